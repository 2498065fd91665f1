#!/usr/bin/env python3
"""Compares with the `tokenizers` package on tokenizers put together at random from the components of the test data.

usage: tokenizer_mutate.py DRIVER DATA [--count 200] [--seed 1]

Each takes the model of one file, or a small one that shows every border, with other flags, and normalizers, pre-tokenizers, post-processors, decoders
and added tokens of random kinds and parameters, in Sequences inside Sequences, with random patterns. Ids with and without special tokens and decoded
texts with and without them must be equal. What the package fails on is passed over; what nibble refuses must be refused by a name that docs/tokenizers.md
has (REFUSED below). Installs nothing.
"""
import argparse
import collections
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

PATTERNS = ["", r"\s+", r"\p{L}+|\p{N}", "[aeiou]", r"\w+|[^\w\s]+", r"(?i)the|S", "^.", "$", r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
            r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", r"x*", r"(?<=a)", r"[\p{Lu}&&[^A-F]]", r"\b", " {2,}", r"[[:punct:]]+", r"\p{Han}|\p{Greek}+"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
REFUSED = ["a border of grapheme clusters", "an unknown group", "a call of a group", "unknown property", "two groups of one name", "a back reference", "letters that fold to one", "PCRE2 refuses it",
           "a bad hexadecimal", "a single byte above 0x7f", "a group's name", "an unknown escape", "has an id that no token has", "must be a token and its id", "two entries have the id", "TemplateProcessing behind one that leaves", "a template for one text names it"]


def flag(r):
    return r.random() < 0.5


# ---- patterns ----

CHARS = ["a", "b", "s", "k", "K", "e", "1", " ", "\\n", "\u00e9", "\u00df", "\u4e2d", "\\.", "\\-", "_", "'", "\ufb01", "\u017f", "\u0130", "\\x41", "\\x{e9}", "\\u0061", "\\101", "\\o{142}", "\\t", "\\cJ", "\\/", "\\i", "\\q"]
CLASSES = [r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\h", r"\H", r"\p{L}", r"\P{L}", r"\p{^Lu}", r"\p{Ll}", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{C}", r"\p{Han}", r"\p{Greek}", r"\p{Alpha}", r"\p{Punct}", r"\p{Upper}"]
POSIX = ["alpha", "digit", "space", "punct", "upper", "lower", "alnum", "word", "xdigit", "^space", "cntrl", "graph", "print", "blank", "ascii"]
QUANTIFIERS = ["*", "+", "?", "*?", "+?", "??", "*+", "++", "?+", "{2}", "{1,3}", "{2,}", "{,2}", "{1,2}?", "{2}+", "{2}?", "{a}"]


def char_class(r, depth):
    parts = []
    for _ in range(r.randint(1, 3)):
        k = r.random()
        c = r.choice(CHARS)
        parts.append(c if k < .4 else r.choice(["a-f", "A-Z", "0-9", "\u00e0-\u00ff", "\u4e00-\u9fff", " -~", "\\x00-\\x1f"]) if k < .6 else r.choice(CLASSES) if k < .8 else f"[:{r.choice(POSIX)}:]" if k < .9 or not depth else char_class(r, depth - 1))
    body = "".join(parts)
    if r.random() < .15:
        body += "&&" + (char_class(r, 0) if flag(r) else r.choice(CLASSES))
    return "[" + r.choice(["", "", "^"]) + body + "]"


def atom(r, depth, names):
    k = r.random()
    if k < .3:
        return r.choice(CHARS)
    if k < .5:
        return r.choice(CLASSES)
    if k < .65:
        return char_class(r, 1)
    if k < .7:
        return r.choice([".", r"\N", r"\O", r"\R"])
    if depth == 0 or k < .75:
        return r.choice(CHARS) + r.choice(CHARS)
    if k < .78:
        names.append(f"n{len(names)}")
        return f"(?<{names[-1]}>{alternation(r, depth - 1, names)})"
    if k < .81 and names:
        return rf"\k<{r.choice(names)}>"
    return r.choice(["(", "(?:", "(?:", "(?i:", "(?m:", "(?-i:", "(?>", "(?x: "]) + alternation(r, depth - 1, names) + ")"


def assertion(r, depth, names):
    return r.choice(["^", "$", r"\b", r"\B", r"\A", r"\z", "(?=" + alternation(r, 0, names) + ")", "(?!" + alternation(r, 0, names) + ")", "(?<=" + r.choice(CHARS) + ")", "(?<!" + r.choice(CLASSES) + ")", r"(?!\S)"])


def alternation(r, depth, names):
    out = []
    for _ in range(r.choice([1, 1, 2, 3])):
        parts = []
        for _ in range(r.randint(1, 3)):
            if r.random() < .12:
                parts.append(assertion(r, depth, names))
            else:
                a = atom(r, depth, names)  # Oniguruma leaves a counted loop early where one round matches nothing: groups may
                parts.append(a + (r.choice(QUANTIFIERS[:9 if a[0] == "(" else None]) if r.random() < .4 else ""))
        out.append("".join(parts))
    return "|".join(out)


def random_pattern(r):
    start = r.choice(["", "", "", "(?i)"])
    if r.random() < .04:
        return start + r.choice(CHARS) + r"\K" + r.choice(CLASSES) + "+"
    return start + alternation(r, 2, [])


def pattern(r):
    if flag(r):
        return {"Regex": r.choice(PATTERNS) if flag(r) else random_pattern(r)}
    return {"String": r.choice(["a", " ", "th", "\u2581", "..", "\n", "\u00e9", "", "  ", "e\u0301", "\U0001f600"])}


# ---- components ----

def normalizer(r, pool):
    k = r.randint(0, 14)
    simple = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt", "ByteLevel"]
    if k < len(simple):
        return {"type": simple[k]}
    return [{"type": "Strip", "strip_left": flag(r), "strip_right": flag(r)},
            {"type": "BertNormalizer", "clean_text": flag(r), "handle_chinese_chars": flag(r), "strip_accents": r.choice([None, True, False]), "lowercase": flag(r)},
            {"type": "Replace", "pattern": pattern(r), "content": r.choice(["", "-", " ", "\u2581", "zz", "e\u0301"])},
            {"type": "Replace", "pattern": pattern(r), "content": r.choice(["", "a"])},
            {"type": "Prepend", "prepend": r.choice(["\u2581", "a", " ", "\u0301"])},
            r.choice(pool["Precompiled"]) if pool["Precompiled"] else {"type": "NFC"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}][k - len(simple)]


def pre(r):
    scheme, sign = r.choice(["always", "first", "never"]), r.choice(["\u2581", "\u2581", "_", "\u00e9"])
    return r.choice([
        {"type": "ByteLevel", "add_prefix_space": flag(r), "trim_offsets": flag(r), "use_regex": flag(r)},
        {"type": "Split", "pattern": pattern(r), "behavior": r.choice(BEHAVIORS), "invert": flag(r)},
        {"type": "Split", "pattern": pattern(r), "behavior": r.choice(BEHAVIORS), "invert": flag(r)},
        {"type": "Metaspace", "replacement": sign, "prepend_scheme": scheme, "split": flag(r)},
        {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {"type": "BertPreTokenizer"}, {"type": "UnicodeScripts"},
        {"type": "Punctuation", "behavior": r.choice(BEHAVIORS)}, {"type": "Digits", "individual_digits": flag(r)},
        {"type": "CharDelimiterSplit", "delimiter": r.choice(" a|.\u00e9\u4e2d")}, {"type": "FixedLength", "length": r.randint(1, 7)}])


def decoder(r):
    return r.choice([
        {"type": "ByteLevel", "add_prefix_space": flag(r), "trim_offsets": flag(r), "use_regex": flag(r)}, {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": r.choice(" a\u2581\u00e9"), "start": r.randint(0, 2), "stop": r.choice([0, 0, 1, 2])}, {"type": "Replace", "pattern": pattern(r), "content": r.choice(["", " ", "+"])},
        {"type": "Metaspace", "replacement": r.choice(["\u2581", "_"]), "prepend_scheme": r.choice(["always", "first", "never"]), "split": flag(r)},
        {"type": "WordPiece", "prefix": r.choice(["##", "@@", "a", ""]), "cleanup": flag(r)}, {"type": "BPEDecoder", "suffix": r.choice(["</w>", "e", ""])},
        {"type": "CTC", "pad_token": r.choice(["<pad>", "a", ""]), "word_delimiter_token": r.choice(["|", "e", ""]), "cleanup": flag(r)}])


def post(r, tokens):
    def special():
        t, i = r.choice(tokens)
        return {"id": t, "ids": [i] if r.random() < .9 else [i, r.choice(tokens)[1]], "tokens": [t]}
    kind = r.random()
    if kind < .15:
        return {"type": "ByteLevel", "add_prefix_space": flag(r), "trim_offsets": flag(r), "use_regex": flag(r)}
    if kind < .4:
        two = {"sep": list(r.choice(tokens)), "cls": list(r.choice(tokens))}
        return {"type": "BertProcessing", **two} if flag(r) else {"type": "RobertaProcessing", **two, "trim_offsets": flag(r), "add_prefix_space": flag(r)}
    specials = {}
    for _ in range(r.randint(0, 3)):
        s = special()
        specials[s["id"]] = s
        if len(s["ids"]) != len(s["tokens"]):
            s["tokens"] = s["tokens"] * len(s["ids"])

    def parts(names):
        out = [{"Sequence": {"id": n, "type_id": r.randint(0, 2)}} for n in names]
        for s in specials:
            for _ in range(r.randint(0, 2)):
                out.insert(r.randint(0, len(out)), {"SpecialToken": {"id": s, "type_id": r.randint(0, 2)}})
        return out
    return {"type": "TemplateProcessing", "single": parts("A" if r.random() < .97 else r.choice(["AA", ""])), "pair": parts("AB"), "special_tokens": specials}


def added(r):
    words = ["the", " ", "\n", "ab", "abc", "a", "\u00c9", "\u00e9", "Hello", "<x>", "<x", "...", "\u4e2d", "  ", "don't", "1", "\u2581", "The", "\t", "\u00bd", " a", "a ", "THE", "e\u0301", "\u0120", "\U0001f600", "x y", "\r\n"]
    return [{"id": 0, "content": w, "single_word": r.random() < 0.2, "lstrip": r.random() < 0.2, "rstrip": r.random() < 0.2, "normalized": flag(r), "special": r.random() < 0.4}
            for w in r.sample(words, r.randint(0, 10))]


def sequence(r, key, kind, make, most, depth=2):
    n = r.choice([0, 1, 1, 2, most])
    items = [sequence(r, key, kind, make, 2, depth - 1) or make(r) if depth and r.random() < .15 else make(r) for _ in range(n)]
    return None if not items else items[0] if n == 1 and flag(r) else {"type": kind, key: items}


def small_model(r):
    """Few entries, and borders of pieces seen in the ids."""
    chars = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,'-_<>|/\n\t\r") + list("\u00e9\u00c9\u00df\u4e2d\u6587\ud55c\uac00\u0301\u2581\ufb01\u017f\u0130\U0001f600\u0120\u010a\u00bd")
    kind = r.choice(["BPE", "BPE", "BPE", "Unigram", "WordPiece", "WordLevel"])
    names = ["[UNK]", "<pad>", "<s>", "</s>"]
    if kind == "Unigram":
        vocab = [[n, 0.0] for n in names] + [[c, -r.random() * 9] for c in chars if flag(r)] + [[w, -r.random() * 9] for w in ("th", "the", "\u2581the", "in", "ing", "\u2581", "er", "\u2581a")]
        if r.random() < .4:
            vocab += [[f"<0x{i:02X}>", -20.0] for i in range(256)]
        seen = {}
        vocab = [seen.setdefault(v[0], v) for v in vocab if v[0] not in seen]
        return {"type": "Unigram", "unk_id": r.choice([0, 0, 0, None, 1]), "vocab": vocab, "byte_fallback": flag(r)}
    if kind == "WordLevel":
        words = names + chars + ["the", "in", "of", "and", "Hello", "  "]
        return {"type": "WordLevel", "vocab": {w: i for i, w in enumerate(dict.fromkeys(words))}, "unk_token": r.choice(["[UNK]", "[UNK]", "<none>"])}
    prefix, suffix = r.choice(["##", "##", "@"]), r.choice([None, None, "</w>"])
    words = names + chars + [prefix + c for c in chars if kind == "WordPiece" or r.random() < .95]
    if suffix and kind == "BPE":
        words += [c + suffix for c in chars] + [prefix + c + suffix for c in chars]
    if kind == "WordPiece":
        words += ["the", prefix + "ing", prefix + "er", "un", prefix + "aff", "\u4e2d\u6587"]
        return {"type": "WordPiece", "vocab": {w: i for i, w in enumerate(dict.fromkeys(words))}, "unk_token": "[UNK]", "continuing_subword_prefix": prefix, "max_input_chars_per_word": r.choice([100, 100, 5, 1, 0])}
    merges = []
    for a, b in (("t", "h"), ("th", "e"), ("i", "n"), ("a", "b"), (" ", "a"), ("1", "2")):
        if flag(r) and a in words:
            words.append(a + b)
            merges.append([a, prefix + b] if flag(r) else f"{a} {prefix}{b}" if " " not in a else [a, prefix + b])
    if r.random() < .3:
        words += [f"<0x{i:02X}>" for i in range(256)]
    vocab = {w: i for i, w in enumerate(dict.fromkeys(words))}
    merges = [m for m in merges if (m[1] if isinstance(m, list) else m.split(" ")[1]) in vocab]
    return {"type": "BPE", "dropout": r.choice([None, None, None, 0.0, 1.0]), "unk_token": r.choice(["[UNK]", "[UNK]", None]), "continuing_subword_prefix": prefix, "end_of_word_suffix": suffix,
            "fuse_unk": flag(r), "byte_fallback": flag(r), "ignore_merges": flag(r), "vocab": vocab, "merges": merges}


def tokens_of(j):
    v = j["model"]["vocab"]
    out = [(t, i) for t, i in v.items()] if isinstance(v, dict) else [(t[0], i) for i, t in enumerate(v)]
    return out[:4] + out[-4:] + [a for a in [("[SEP]", len(out) + 5000)]]


def build(r, files, pool):
    if r.random() < .45:
        j = {"version": "1.0", "normalizer": None, "pre_tokenizer": None, "decoder": None, "added_tokens": [], "model": small_model(r)}
    else:
        j = json.loads(json.dumps(r.choice(files)))
    for section, value in (("normalizer", sequence(r, "normalizers", "Sequence", lambda x: normalizer(x, pool), 3)), ("pre_tokenizer", sequence(r, "pretokenizers", "Sequence", pre, 3)),
                           ("decoder", sequence(r, "decoders", "Sequence", decoder, 3))):
        if r.random() < 0.7:
            j[section] = value
    if r.random() < 0.5:
        j["added_tokens"] = [a for a in j.get("added_tokens", []) if a["special"]] + added(r)
    m = j["model"]
    for name in ("fuse_unk", "byte_fallback", "ignore_merges"):
        if name in m and r.random() < 0.3:
            m[name] = flag(r)
    if m.get("type") == "WordPiece" and r.random() < .2:
        m["max_input_chars_per_word"] = r.randint(0, 12)
    j.setdefault("added_tokens", [])
    j["truncation"] = j["padding"] = None
    tokens = tokens_of(j)[:-1] if r.random() < .97 else tokens_of(j)
    j["post_processor"] = sequence(r, "processors", "Sequence", lambda x: post(x, tokens), 2, 1) if flag(r) else None
    return j


def run(driver, mode, path, data, *more):
    p = subprocess.run([driver, mode, path, *more], input=data, capture_output=True)
    return p.stdout if p.returncode == 0 else None


def refusal(driver, path):
    """Why nibble does not load it."""
    p = subprocess.run([driver, "ids", path], input=b"", capture_output=True)
    return p.stderr.decode("utf-8", "replace").split("\n")[0]


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


def check_ids(driver, t, path, batch, special):
    """What differs, and the ids of the package for each text that it encoded."""
    got = run(driver, "ids", path, framed(batch), *(["special"] if special else [])).decode("utf-8", "replace").split("\n")
    all_ids = []
    for x, a in zip(batch, got):
        try:
            ids = t.encode(x, add_special_tokens=special).ids
        except BaseException:
            break  # a panic poisons a lock of the package: what it gives afterwards is not merged
        if a.startswith("error"):
            return f"{a} for {x[:60]!r}", all_ids
        if a.split() != [str(i) for i in ids]:
            return f"ids of {x[:60]!r}{' with special tokens' if special else ''}: {a.split()[:30]} for {ids[:30]}", all_ids
        all_ids.append(ids)
    return "", all_ids


def check_decode(driver, t, path, lists, skip):
    want = []
    for ids in lists:
        try:
            want.append(t.decode(ids, skip_special_tokens=skip))
        except BaseException:
            break
    lists = lists[:len(want)]
    out, at = run(driver, "decode", path, "".join(" ".join(map(str, ids)) + "\n" for ids in lists).encode(), *(["skip"] if skip else [])) if lists else b"", 0
    for ids, w in zip(lists, want):
        n = struct.unpack_from("<I", out, at)[0]
        have = out[at + 4:at + 4 + n].decode("utf-8", "replace")
        at += 4 + n
        if have != w:
            return f"decode of {ids[:20]}{' without special tokens' if skip else ''}: {have[:60]!r} for {w[:60]!r}"
    return ""


def inserts(n):
    """Does a Replace find nothing before a character? Behind one that does the package takes bytes twice or panics, where a ByteLevel follows."""
    from tokenizers import Regex, normalizers
    if not n:
        return False
    if n["type"] == "Sequence":
        return any(inserts(x) for x in n["normalizers"])
    if n["type"] != "Replace":
        return False
    p = n["pattern"]
    one = normalizers.Replace(Regex(p["Regex"]) if "Regex" in p else p["String"], "\ue000")
    return any(one.normalize_str(x).startswith("\ue000" + x[0]) for x in ("a ", " a", "b1", "1a", "\u00e9s", "\u4e2d\u4e2d", "\n\n", "-a", "A", "s\u00df", "\u0301a", "k"))


def check(driver, j, batch, path, r, named):
    """What differs; None: passed over."""
    from tokenizers import Tokenizer
    text = json.dumps(j, ensure_ascii=False)
    open(path, "w", encoding="utf-8").write(text)
    try:
        t = Tokenizer.from_str(text)
        if "ByteLevel" in text and inserts(j["normalizer"]):
            return None
        forms = [t.normalizer.normalize_str(x["content"]) if t.normalizer else x["content"] for x in j["added_tokens"] if x["normalized"]]
    except BaseException:
        return None
    if len(set(forms)) < len(forms) or "" in forms:
        return None  # of equal forms the package finds either; an empty one cuts between all characters
    why = refusal(driver, path)
    if "usage" not in why and why:
        for name in REFUSED:
            if name in why:
                named[name] += 1
                return None
        return "not loaded: " + why
    problem, lists = check_ids(driver, t, path, batch, False)
    problem = problem or check_ids(driver, t, path, batch[:30], True)[0]
    size = t.get_vocab_size()
    lists += [[r.randrange(size + 2) for _ in range(r.randint(1, 12))] for _ in range(20)] if lists else []
    return problem or check_decode(driver, t, path, lists, False) or check_decode(driver, t, path, lists[:40], True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("data")
    p.add_argument("--count", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    files, pool, bad, over, named, compared = [], {"Precompiled": []}, 0, 0, collections.Counter(), 0
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
            result = check(a.driver, j, batch, os.path.join(folder, "t.json"), r, named)
            over += result is None
            compared += len(batch) if result is not None else 0
            if result:
                bad += 1
                print(f"seed {a.seed} number {k}: {result}")
                print("  ", json.dumps({x: j.get(x) for x in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens")}, ensure_ascii=False)[:1500], {x: v for x, v in j["model"].items() if x not in ("vocab", "merges")}, flush=True)
        for f in sorted(glob.glob(os.path.join(a.data, "tokenizers", "components", "*", "tokenizer.model"))):
            for k in range(a.count // 20):
                r = random.Random(a.seed * 7919 + k)
                result = check_sp(a.driver, open(f, "rb").read(), r, os.path.join(folder, "t.model"), [x[:300] for x in texts(r, 20000, [])])
                over += result is None
                if result:
                    bad += 1
                    print(os.path.basename(os.path.dirname(f)), result, flush=True)
    for name, n in named.most_common():
        print(f"refused by name, {n}: {name}")
    print(f"{a.count} tokenizers and their like, {compared} texts; {over} passed over, {sum(named.values())} of them refused by name; {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
