#!/usr/bin/env python3
"""Compares with the `tokenizers` package on tokenizers put together at random from the components of the test data.

usage: tokenizer_mutate.py DRIVER DATA [--count 200] [--seed 1]

Each takes a model of one file, and normalizer, pre-tokenizer, decoder and added tokens of others or made up with random
flags. Ids and decoded texts must be equal; what the package fails on is passed over. Installs nothing.
"""
import argparse
import glob
import json
import lzma
import os
import random
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from tokenizer_diff import texts  # noqa: E402

PATTERNS = [r"\s+", r"\p{L}+|\p{N}", "[aeiou]", r"\w+|[^\w\s]+", r"(?i)the|S", "^.", "$", r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"x*", r"(?<=a)", r"[\p{Lu}&&[^A-F]]", r"\b", " {2,}", r"[[:punct:]]+", r"\p{Han}|\p{Greek}+"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def flag(r):
    return r.random() < 0.5


def pattern(r):
    return {"Regex": r.choice(PATTERNS)} if flag(r) else {"String": r.choice(["a", " ", "th", "▁", "..", "\n", "é"])}


def normalizer(r, pool):
    k = r.randint(0, 13)
    simple = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"]
    if k < len(simple):
        return {"type": simple[k]}
    return [{"type": "Strip", "strip_left": flag(r), "strip_right": flag(r)},
            {"type": "BertNormalizer", "clean_text": flag(r), "handle_chinese_chars": flag(r), "strip_accents": r.choice([None, True, False]), "lowercase": flag(r)},
            {"type": "Replace", "pattern": pattern(r), "content": r.choice(["", "-", " ", "▁", "zz"])},
            {"type": "Prepend", "prepend": r.choice(["▁", "a", " "])},
            r.choice(pool["Precompiled"]) if pool["Precompiled"] else {"type": "NFC"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}][k - len(simple)]


def pre(r):
    scheme = r.choice(["always", "first", "never"])
    return r.choice([
        {"type": "ByteLevel", "add_prefix_space": flag(r), "trim_offsets": True, "use_regex": flag(r)},
        {"type": "Split", "pattern": pattern(r), "behavior": r.choice(BEHAVIORS), "invert": flag(r)},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": flag(r)},
        {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "UnicodeScripts"},
        {"type": "Punctuation", "behavior": r.choice(BEHAVIORS)}, {"type": "Digits", "individual_digits": flag(r)},
        {"type": "CharDelimiterSplit", "delimiter": r.choice(" a|.")}, {"type": "FixedLength", "length": r.randint(1, 7)}])


def decoder(r):
    return r.choice([
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": r.choice(" a▁"), "start": r.randint(0, 2), "stop": 0}, {"type": "Replace", "pattern": pattern(r), "content": r.choice(["", " ", "+"])},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": r.choice(["always", "first", "never"]), "split": True},
        {"type": "WordPiece", "prefix": r.choice(["##", "@@", "a"]), "cleanup": flag(r)}, {"type": "BPEDecoder", "suffix": r.choice(["</w>", "e"])},
        {"type": "CTC", "pad_token": r.choice(["<pad>", "a"]), "word_delimiter_token": "|", "cleanup": flag(r)}])


def added(r):
    words = ["the", " ", "\n", "ab", "abc", "a", "É", "é", "Hello", "<x>", "<x", "...", "中", "  ", "don't", "1", "▁", "The", "\t", "½"]
    return [{"id": 0, "content": w, "single_word": r.random() < 0.2, "lstrip": r.random() < 0.2, "rstrip": r.random() < 0.2, "normalized": flag(r), "special": r.random() < 0.4}
            for w in r.sample(words, r.randint(0, 8))]


def sequence(r, key, kind, make, most):
    n = r.choice([0, 1, 1, 2, most])
    items = [make(r) for _ in range(n)]
    return None if not items else items[0] if n == 1 else {"type": kind, key: items}


def build(r, files, pool):
    j = json.loads(json.dumps(r.choice(files)))
    for section, value in (("normalizer", sequence(r, "normalizers", "Sequence", lambda x: normalizer(x, pool), 3)), ("pre_tokenizer", sequence(r, "pretokenizers", "Sequence", pre, 3)),
                           ("decoder", sequence(r, "decoders", "Sequence", decoder, 3))):
        if r.random() < 0.7:
            j[section] = value
    if r.random() < 0.5:
        j["added_tokens"] = [a for a in j.get("added_tokens", []) if a["special"]] + added(r)
    for flag_name in ("fuse_unk", "byte_fallback", "ignore_merges"):
        if flag_name in j["model"] and r.random() < 0.3:
            j["model"][flag_name] = flag(r)
    j.setdefault("added_tokens", [])
    j["post_processor"] = j["truncation"] = j["padding"] = None
    return j


def run(driver, mode, path, data):
    p = subprocess.run([driver, mode, path], input=data, capture_output=True)
    return p.stdout if p.returncode == 0 else None


def framed(batch):
    return b"".join(struct.pack("<I", len(x.encode())) + x.encode() for x in batch)


def field(number, payload):
    """A protobuf field: an integer, or bytes with their length."""
    if isinstance(payload, int):
        return bytes([*varint(number << 3), *varint(payload)])
    return bytes([*varint(number << 3 | 2), *varint(len(payload))]) + payload


def varint(n):
    out = []
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    return out + [n]


def check_sp(driver, model, r, path, batch):
    """A SentencePiece model with other flags: fields that come later in the file win."""
    import sentencepiece
    normalizer = b"".join(field(k, int(flag(r))) for k in (3, 4, 5) if flag(r))
    trainer = field(24, int(flag(r))) if flag(r) else b""
    data = model + field(3, normalizer) + field(2, trainer)
    open(path, "wb").write(data)
    try:
        sp = sentencepiece.SentencePieceProcessor(model_file=path)
    except BaseException:
        return None
    want = [sp.encode(x) for x in batch]
    got = run(driver, "raw", path, framed(batch)).decode().split("\n")
    for x, a, b in zip(batch, got, want):
        if a.split() != [str(i) for i in b]:
            return f"ids of {x[:60]!r}: {a.split()[:30]} for {b[:30]} ({normalizer!r} {trainer!r})"
    lists = want + [[r.randrange(sp.vocab_size()) for _ in range(r.randint(1, 12))] for _ in range(50)]
    out, at = run(driver, "decode", path, ("\n".join(" ".join(map(str, x)) for x in lists) + "\n").encode()), 0
    for ids in lists:
        n = struct.unpack_from("<I", out, at)[0]
        have = out[at + 4:at + 4 + n].decode("utf-8", "replace")
        at += 4 + n
        if have != sp.decode(ids):
            return f"decode of {ids[:20]}: {have[:60]!r} for {sp.decode(ids)[:60]!r} ({normalizer!r} {trainer!r})"
    return ""


def check(driver, j, batch, path):
    """(ids differ, decoded differ, passed over)."""
    from tokenizers import Tokenizer
    text = json.dumps(j, ensure_ascii=False)
    open(path, "w", encoding="utf-8").write(text)
    try:
        t = Tokenizer.from_str(text)
    except BaseException:
        return None
    forms = [t.normalizer.normalize_str(x["content"]) if t.normalizer else x["content"] for x in j["added_tokens"] if x["normalized"]]
    if len(set(forms)) < len(forms) or "" in forms:
        return None  # of equal forms the package finds either; an empty one cuts between all characters
    sent = framed(batch)
    got = run(driver, "ids", path, sent)
    if got is None:
        return "not loaded"
    got = got.decode().split("\n")
    decode_in, decode_want = [], []
    for x, a in zip(batch, got):
        try:
            ids = t.encode(x, add_special_tokens=False).ids
            decoded = t.decode(ids, skip_special_tokens=False)
        except BaseException:
            break  # a panic poisons a lock of the package: what it gives afterwards is not merged
        if a.split() != [str(i) for i in ids]:
            return f"ids of {x[:60]!r}: {a.split()[:30]} for {ids[:30]}"
        decode_in.append(" ".join(map(str, ids)))
        decode_want.append(decoded)
    out = run(driver, "decode", path, ("\n".join(decode_in) + "\n").encode()) if decode_in else b""
    at = 0
    for ids, want in zip(decode_in, decode_want):
        n = struct.unpack_from("<I", out, at)[0]
        have = out[at + 4:at + 4 + n].decode("utf-8", "replace")
        at += 4 + n
        if have != want:
            return f"decode of {ids[:60]}: {have[:60]!r} for {want[:60]!r}"
    return ""


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("data")
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    files, pool, bad, over = [], {"Precompiled": []}, 0, 0
    for f in sorted(glob.glob(os.path.join(a.data, "tokenizers", "components", "*", "tokenizer.json*"))):
        files.append(json.loads(lzma.open(f).read() if f.endswith(".xz") else open(f, "rb").read()))
        for n in (files[-1].get("normalizer") or {}, *((files[-1].get("normalizer") or {}).get("normalizers") or [])):
            if n.get("type") == "Precompiled":
                pool["Precompiled"].append(n)
    with tempfile.TemporaryDirectory() as folder:
        for k in range(a.count):
            r = random.Random(a.seed * 100003 + k)
            j = build(r, files, pool)
            batch = [x[:200] for x in texts(r, 12000, [t["content"] for t in j["added_tokens"]] if j.get("added_tokens") else [])][:120]
            result = check(a.driver, j, batch, os.path.join(folder, "t.json"))
            over += result is None
            if result:
                bad += 1
                print(f"seed {a.seed} number {k}: {result}")
                print("  ", json.dumps({x: j.get(x) for x in ("normalizer", "pre_tokenizer", "decoder", "added_tokens")}, ensure_ascii=False)[:900], {x: v for x, v in j["model"].items() if x not in ("vocab", "merges")}, flush=True)
        for f in sorted(glob.glob(os.path.join(a.data, "tokenizers", "components", "*", "tokenizer.model"))):
            for k in range(a.count // 20):
                r = random.Random(a.seed * 7919 + k)
                result = check_sp(a.driver, open(f, "rb").read(), r, os.path.join(folder, "t.model"), [x[:300] for x in texts(r, 20000, [])])
                over += result is None
                if result:
                    bad += 1
                    print(os.path.basename(os.path.dirname(f)), result, flush=True)
    print(f"{a.count} tokenizers and their like, {over} passed over, {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
