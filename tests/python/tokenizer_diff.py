#!/usr/bin/env python3
"""Compares ids with the `tokenizers` package over mixed text, and the speed of both.

usage: tokenizer_diff.py DRIVER DATA [--mb 5] [--seed N] [--only NAME] [--jobs 2]

DRIVER is tests/tools/tok_driver. Every tokenizer.json[.xz] of DATA/tokenizers, of its components and of DATA/* is
taken, whatever its name, and gguf_tokenizer.json files that --gguf names. Needs the packages tokenizers (0.23.3) and, for tokenizer.model,
sentencepiece; installs nothing.
"""
import argparse
import json
import lzma
import multiprocessing
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

SCRIPTS = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x531, 0x58F), (0x590, 0x5F4), (0x600, 0x6FF), (0x900, 0x97F), (0x980, 0x9FF),
           (0xB80, 0xBFF), (0xE00, 0xE5B), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2190, 0x23FF),
           (0x2500, 0x27BF), (0x3000, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xFB00, 0xFDFF), (0xFE00, 0xFE2F), (0xFF00, 0xFFEF),
           (0x10000, 0x100FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0xE0000, 0xE01EF)]
MARKS = "\u0300\u0301\u0308\u0323\u0327\u0338\u064b\u0652\u093c\u094d\u0e31\u20d0\u3099\ufe0f\u200d\u200c"
SPACES = " \t\n\r\u00a0\u0085\u2028\u3000\u200b\ufeff\u1680"
WORDS = ("the of and to in it's don't I'LL we've CamelCaseWord snake_case ALLCAPS naïve Straße İstanbul ﬁne ½ 1234567 3.14 0x1F 10,000 x²+y² Привет мир "
         "γειά σου 你好世界 こんにちは カタカナ 안녕하세요 مرحبا بالعالم שלום नमस्ते दुनिया สวัสดี ครับ Việt Nam việc hợp 😀 👍🏽 👨‍👩‍👧 🏳️‍🌈 ▁ <s> </s> <0x0A> <|im_start|> "
         "<|endoftext|> <think> </think> <unk> [CLS] [SEP] [MASK] ## @@ -- ... !? // /* */ { } ( ) ; => != :: \\n \"q\" 'q' `q` http://a.b/c?d=e#f a@b.c "
         "def return static const void import from").split(" ")


def piece(r):
    k = r.random()
    if k < 0.45:
        return " ".join(r.choice(WORDS) for _ in range(r.randint(1, 12)))
    if k < 0.60:
        a, b = r.choice(SCRIPTS)
        return "".join(chr(r.randint(a, b)) for _ in range(r.randint(1, 20)))
    if k < 0.70:
        return "".join(r.choice(MARKS + "aeo한가क") for _ in range(r.randint(1, 8)))
    if k < 0.80:
        return "".join(r.choice(SPACES) for _ in range(r.randint(1, 6)))
    if k < 0.86:
        return r.choice("a=- \n0.x▁é中😀") * r.randint(2, 60)
    if k < 0.90:
        return "".join(chr(r.randint(0, 31)) for _ in range(r.randint(1, 4)))
    if k < 0.94:
        return str(r.randint(0, 10 ** r.randint(1, 20)))
    if k < 0.97:
        return "".join(chr(c) for c in (r.randint(0, 0x10FFFF) for _ in range(4)) if not 0xD800 <= c <= 0xDFFF)
    return "\n".join("    " * r.randint(0, 4) + " ".join(r.choice(WORDS) for _ in range(r.randint(0, 6))) for _ in range(4))


def texts(r, size, added):
    total = 0
    while total < size:
        parts = []
        for _ in range(r.choice([1, 2, 5, 20, 100])):
            parts.append(piece(r))
            if added and r.random() < 0.06:
                parts.append(r.choice(added))
            if r.random() < 0.4:
                parts.append(" ")
        s = "".join(parts)
        total += len(s.encode())
        yield s


def from_gguf(path):
    """The publisher's tokenizer of a smollm-like file, put together from its metadata."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, decoders
    j = json.load(open(path, encoding="utf-8"))
    steps = {"smollm": [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False, use_regex=True)], "gpt-2": [pre_tokenizers.ByteLevel(False)]}.get(j.get("pre"))
    if j["model"] != "gpt2" or not steps:
        return None
    t = Tokenizer(models.BPE({x: i for i, x in enumerate(j["tokens"])}, [tuple(m.split(" ")) for m in j["merges"]]))
    t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(x, special=True, normalized=False) for x, k in zip(j["tokens"], j["token_type"]) if k == 3])
    return t


def find(data, gguf):
    seen = []
    for root in (data, os.path.join(data, "tokenizers"), os.path.join(data, "tokenizers", "components")):
        for name in sorted(os.listdir(root)) if os.path.isdir(root) else []:
            for f in ("tokenizer.json", "tokenizer.json.xz", "tokenizer.model"):
                p = os.path.join(root, name, f)
                if os.path.isfile(p):
                    seen.append((name, p))
                    break
    return seen + [(os.path.basename(p), p) for p in gguf]


def compare(driver, name, path, size, seed, folder):
    raw = lzma.open(path).read() if path.endswith(".xz") else open(path, "rb").read()
    kind = "model" if path.endswith(".model") else "gguf" if path.endswith("gguf_tokenizer.json") else "json"
    local = os.path.join(folder, {"model": "t.model", "gguf": "gguf_tokenizer.json", "json": "t.json"}[kind])
    open(local, "wb").write(raw)
    added = []
    if kind == "model":
        import sentencepiece
        sp = sentencepiece.SentencePieceProcessor(model_file=local)
        encode = lambda batch: [sp.encode(x) for x in batch]
    else:
        from tokenizers import Tokenizer
        t = from_gguf(local) if kind == "gguf" else Tokenizer.from_file(local)
        if t is None:
            return None
        t.no_truncation()
        t.no_padding()
        added = [a.content for a in t.get_added_tokens_decoder().values()][:400]
        encode = lambda batch: [e.ids for e in t.encode_batch_fast(batch)]
    batch = list(texts(random.Random(seed), size, added))
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    start = time.process_time()
    want = encode(batch)
    theirs = time.process_time() - start
    sent = b"".join(struct.pack("<I", len(x.encode())) + x.encode() for x in batch)
    mode = ["raw"] if kind == "model" else ["ids"]
    out = subprocess.run([driver, mode[0], local] + (["special"] if kind != "model" else []), input=sent, capture_output=True)
    if out.returncode:
        print(name, "driver failed", out.stderr.decode()[-300:])
        return 1
    got = out.stdout.decode().split("\n")[:-1]
    wrong = 0
    for text, a, b in zip(batch, got, want):
        if a.split() != [str(x) for x in b]:
            wrong += 1
            if wrong <= 3:
                ours = a.split()
                k = next((i for i, (x, y) in enumerate(zip(ours, b)) if x != str(y)), min(len(ours), len(b)))
                print(f"  {name}: {text[:80]!r}... differs at id {k}: {ours[k:k + 6]} for {b[k:k + 6]}")
    assert len(got) == len(batch)
    mb = sum(len(x.encode()) for x in batch) / 1e6
    whole = os.path.join(folder, "text")
    open(whole, "wb").write("\n".join(batch).encode())
    speed = subprocess.run([driver, "bench", local, whole, "3"], capture_output=True).stdout.decode().strip().split(", ")[-1]
    print(f"{name:24} {mb:.1f} MB, {len(batch)} texts, {wrong} differ; package {mb / theirs:.1f} MB/s, ours {speed} (processor time, one thread)", flush=True)
    return wrong


def compare_one(job):
    driver, name, path, size, seed = job
    with tempfile.TemporaryDirectory() as folder:
        r = compare(driver, name, path, size, seed, folder)
    if r is None:
        print(name, "skipped: no reference for it", flush=True)
    return r


def main():
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("data")
    p.add_argument("--mb", type=float, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--gguf", action="append", default=[])
    a = p.parse_args()
    jobs = [(a.driver, name, path, int(a.mb * 1e6), a.seed) for name, path in find(a.data, a.gguf) if not a.only or a.only == name]
    with multiprocessing.Pool(a.jobs) as pool:
        results = list(pool.imap_unordered(compare_one, jobs))
    done = [r for r in results if r is not None]
    print(f"{len(done)} tokenizers, {a.mb:g} MB each, {sum(done)} texts differ, {len(results) - len(done)} skipped")
    sys.exit(sum(done) > 0)


if __name__ == "__main__":
    main()
