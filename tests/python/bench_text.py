#!/usr/bin/env python3
"""Speed of nibble, of the `tokenizers` package (Rust) and of llama.cpp on the same texts in one run, ids compared.

usage: bench_text.py DRIVER TOKENIZER[:PRE] ... [--rounds 7] [--mb 1] [--text NAME=FILE ...]

DRIVER is tests/tools/tok_driver. TOKENIZER is tokenizer.json, tokenizer.json.xz or a GGUF file. llama.cpp reads GGUF only: for a byte-level
tokenizer.json with PRE, its name for the pattern (llama-bpe, qwen2, gpt-4o ...), a file with the vocabulary alone is written.
Rounds alternate between the three, each encodes the whole text as one in one thread; shown are medians of MB/s of processor time. The package keeps the words
of earlier rounds in its cache; the others begin each time anew. Needs tokenizers and gguf; llama-cpp-python is left out where it is not installed.
"""
import argparse
import glob
import json
import lzma
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(__file__))
from tokenizer_diff import from_gguf  # noqa: E402

CJK = ("今天天气很好，我们去公园散步吧。 人工智能正在改变我们的生活方式， 这个问题需要进一步研究。 请把文件保存到桌面上， 他说：“明天见！” 東京は日本の首都です。 私は昨日、新しい本を買いました。 "
       "このプログラムはとても速いです。 データを読み込んでください、 한국어 문장을 처리합니다. 오늘은 날씨가 좋네요! 서울에서 만나요. 第二章 模型的训练与推理 価格は1,200円です。 "
       "深度学习框架支持多种硬件， 中华人民共和国成立于一九四九年。").split(" ")


def limited(s, size):
    return s.encode()[:size].decode(errors="ignore")


def from_files(patterns, size):
    parts = [open(f, encoding="utf-8").read() for p in patterns for f in sorted(glob.glob(os.path.join(ROOT, p)))]
    return limited("\n".join(parts), size)


def made_texts(size):
    r = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz"
    scripts = [(97, 122), (0x410, 0x44F), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x627, 0x64A), (0x905, 0x939), (0x3041, 0x3096)]
    cjk, n = [], 0
    while n < size:
        cjk.append(r.choice(CJK) + r.choice(["", "", "", "\n"]))
        n += len(cjk[-1].encode())
    return {"prose": from_files(["docs/*.md", "*.md"], size), "code": from_files(["src/*/*.c"], size), "CJK": "".join(cjk),
            "no space": "".join(r.choice(letters) for _ in range(300000)), "one letter": "a" * 300000, "spaces": " " * 300000,
            "scripts": "".join(chr(r.randint(*r.choice(scripts))) for _ in range(100000))}


class Nibble:
    def __init__(self, driver, path):
        self.p = subprocess.Popen([driver, "time", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def encode(self, text):
        data = text.encode()
        self.p.stdin.write(struct.pack("<I", len(data)) + data)
        self.p.stdin.flush()
        ns, *ids = self.p.stdout.readline().split()
        return int(ns) / 1e9, [int(i) for i in ids]


class Package:
    def __init__(self, tokenizer):
        self.t = tokenizer
        self.t.no_truncation()
        self.t.no_padding()

    def encode(self, text):
        start = time.process_time()
        e = self.t.encode_batch_fast([text], add_special_tokens=False)
        return time.process_time() - start, e[0].ids


class Llama:
    """In a process of its own: on some texts llama.cpp's pattern matching runs out of stack."""

    def __init__(self, path):
        self.path, self.p = path, None

    def encode(self, text):
        if not self.p:
            self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve-llama", self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        data = text.encode()
        try:
            self.p.stdin.write(struct.pack("<I", len(data)) + data)
            self.p.stdin.flush()
            ns, *ids = self.p.stdout.readline().split()
        except (BrokenPipeError, ValueError):
            self.p.wait()
            self.p = None
            return None, []
        return int(ns) / 1e9, [int(i) for i in ids]


def serve_llama(path):
    """Answers frames of text with the nanoseconds of processor time that llama.cpp took, and the ids."""
    import ctypes
    import llama_cpp as l
    quiet = l.llama_log_callback(lambda level, text, user: None)  # kept: the library calls it later
    l.llama_log_set(quiet, ctypes.c_void_p(0))
    params = l.llama_model_default_params()
    params.vocab_only = True
    model = l.llama_model_load_from_file(path.encode(), params)
    if not model:
        sys.exit("llama.cpp does not load the file")
    vocab = l.llama_model_get_vocab(model)
    while len(head := sys.stdin.buffer.read(4)) == 4:
        data = sys.stdin.buffer.read(struct.unpack("<I", head)[0])
        room = (l.llama_token * (len(data) + 16))()
        start = time.process_time_ns()
        n = l.llama_tokenize(vocab, data, len(data), room, len(room), False, True)
        print(time.process_time_ns() - start, *room[:n], flush=True)


def read_gguf(path, folder):
    """The metadata of a GGUF file as nibble stores them."""
    import gguf
    out = {}
    for name, f in gguf.GGUFReader(path).fields.items():
        if name.startswith("tokenizer.ggml."):
            out[name[len("tokenizer.ggml."):]] = f.contents()
    to = os.path.join(folder, "gguf_tokenizer.json")
    json.dump(out, open(to, "w", encoding="utf-8"), ensure_ascii=False)
    return to


def write_gguf(source, pre, folder):
    import gguf
    j = json.load(open(source, encoding="utf-8"))
    size = max([*j["model"]["vocab"].values(), *(a["id"] for a in j["added_tokens"])]) + 1
    tokens, types = [f"[unused {i}]" for i in range(size)], [5] * size
    for text, i in j["model"]["vocab"].items():
        tokens[i], types[i] = text, 1
    for a in j["added_tokens"]:
        tokens[a["id"]], types[a["id"]] = a["content"], 3 if a["special"] else 4
    to = os.path.join(folder, "vocabulary.gguf")
    w = gguf.GGUFWriter(to, "llama")
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.close()
    return to


def engines(driver, path, pre, folder):
    from tokenizers import Tokenizer
    if path.endswith(".gguf"):
        local = read_gguf(path, folder)
        reference, gguf_path = from_gguf(local), path
    else:
        local = os.path.join(folder, "tokenizer.json")
        open(local, "wb").write(lzma.open(path).read() if path.endswith(".xz") else open(path, "rb").read())
        reference, gguf_path = Tokenizer.from_file(local), write_gguf(local, pre, folder) if pre else None
    out = {"nibble": Nibble(driver, local)}
    if reference:
        out["tokenizers"] = Package(reference)
    try:
        import llama_cpp  # noqa: F401
        if gguf_path:
            out["llama.cpp"] = Llama(gguf_path)
    except ImportError:
        print("llama-cpp-python is not installed: llama.cpp is left out")
    return out


def compare(name, all_engines, texts, rounds):
    """One row for each text; counts the texts whose ids differ."""
    differ = 0
    print(f"{name}: MB/s, medians of {rounds} alternating rounds")
    print(f"  {'text':12} {'MB':>5} " + " ".join(f"{e:>11}" for e in all_engines) + "   nibble against the others, ids")
    for what, text in texts.items():
        mb, seconds, ids = len(text.encode()) / 1e6, {e: [] for e in all_engines}, {}
        for _ in range(rounds):
            for e, engine in all_engines.items():
                s, ids[e] = engine.encode(text)
                if s is not None:
                    seconds[e].append(s)
        speed = {e: mb / max(statistics.median(s), 1e-9) if s else 0 for e, s in seconds.items()}
        notes = []
        for e in all_engines:
            if e == "nibble":
                continue
            if not seconds[e]:
                notes.append("crashes")
                continue
            same = ids[e] == ids["nibble"]
            differ += not same and e == "tokenizers"
            notes.append(f"{speed['nibble'] / speed[e]:.1f}x " + ("equal" if same else f"differ ({len(ids['nibble'])} for {len(ids[e])})"))
        print(f"  {what:12} {mb:5.2f} " + " ".join(f"{speed[e]:11.1f}" if speed[e] else f"{'-':>11}" for e in all_engines) + "   " + ", ".join(notes), flush=True)
    return differ


def main():
    if sys.argv[1:2] == ["--serve-llama"]:
        return serve_llama(sys.argv[2])
    p = argparse.ArgumentParser()
    p.add_argument("driver")
    p.add_argument("tokenizer", nargs="+")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--mb", type=float, default=1)
    p.add_argument("--text", action="append", default=[])
    a = p.parse_args()
    texts, differ = made_texts(int(a.mb * 1e6)), 0
    for t in a.text:
        name, path = t.split("=", 1)
        texts[name] = limited(open(path, encoding="utf-8").read(), int(a.mb * 1e6))
    for t in a.tokenizer:
        path, _, pre = t.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            differ += compare(t, engines(a.driver, path, pre, folder), texts, a.rounds)
    print(f"{len(a.tokenizer)} tokenizers, {len(texts)} texts each: {differ} differ from the package")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
