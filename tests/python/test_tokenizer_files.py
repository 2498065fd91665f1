#!/usr/bin/env python3
"""Tokenizers from several files, against transformers: tokenizer.json and what the config adds to it; tokenizer.model with
tokens that the config adds; vocab.json and merges.txt; tiktoken.model. Small ones are trained here.

usage: test_tokenizer_files.py NIBBLE [--rounds 8] [--seed 1] [--show 5]
Needs transformers, tokenizers, sentencepiece and protobuf. Control tokens that only the model file names are left out: transformers
finds them in some texts and not in others."""
import argparse
import base64
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import warnings

os.environ["TRANSFORMERS_VERBOSITY"] = "critical"
import sentencepiece
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoTokenizer, TokenizersBackend
from transformers.convert_slow_tokenizer import TikTokenConverter

WORDS = "the quick brown fox jumps over lazy dog hello world tokenizer naïve café 12 345 under water fall night light sun moon Don't".split()
ODD = ["é", "日本", "_", "🙂", "\r\n", "\t", "don't", "1234567", "नमस्ते", "e\u0301"]


def token(content, special=False, lstrip=False, rstrip=False, normalized=False, single_word=False):
    return {"content": content, "lstrip": lstrip, "rstrip": rstrip, "normalized": normalized, "single_word": single_word, "special": special}


def write(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, content in files.items():
        if isinstance(content, dict):
            content = json.dumps(content, ensure_ascii=False)
        with open(os.path.join(folder, name), "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
    return folder


class Check:
    def __init__(self, nibble, show):
        self.nibble, self.show, self.bad, self.total = nibble, show, 0, 0

    def run(self, *args, stdin=None):
        p = subprocess.run([self.nibble, *map(str, args)], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if p.returncode:
            raise SystemExit(p.stderr.decode())
        return p.stdout

    def differ(self, what, want, got, more):
        self.bad += 1
        if self.bad <= self.show:
            print(f"{what}\n  transformers {want}\n  nibble       {got}\n  {more}")

    def text(self, reference, folder, text, decode, specials=False):
        self.total += 1
        want = reference(text, add_special_tokens=specials).input_ids
        got = [int(x) for x in self.run("tokenize", folder, "-f", "-", "--ids", *([] if specials else ["--no-special"]), stdin=text.encode()).split()]
        with open(os.path.join(folder, "tokenizer_config.json")) as f:
            config = f.read()
        if want != got:
            self.differ(repr(text), (want, reference.convert_ids_to_tokens(want)), got, config)
        for skip in (False, True) if decode and want == got else ():
            a = reference.decode(want, skip_special_tokens=skip)
            b = json.loads(self.run("detokenize", folder, "--json", *(["--skip-special"] if skip else []), *want))["text"]
            if a != b:
                self.differ(f"decode {want}", repr(a), repr(b), config)


def texts(r, extra, count):
    for _ in range(count):
        yield "".join(r.choice([" ", "", " ", "a", "the "]) + r.choice(WORDS + ODD[:3] + extra * 2) for _ in range(r.randint(1, 6)))


def random_tokens(r, n, most=5):
    """Tokens behind a vocabulary of n, now and then with a gap."""
    out, k = {}, n
    for i in range(r.randint(0, most)):
        flags = [r.random() < p for p in (.5, .3, .3, .4, .2)]
        out[str(k)] = token(r.choice([f"<|a{i}|>", f"<b{i}>", f"[X {i}]", f"hel{i}"]), *flags)
        k += 1 + (r.random() < .15)
    return out


def sentencepiece_models(check, r, tmp, rounds):
    with open(os.path.join(tmp, "text"), "w") as f:
        for _ in range(800):
            f.write(" ".join(r.choice(WORDS) for _ in range(12)) + "\n")
    for kind in ("bpe", "unigram"):
        sentencepiece.SentencePieceTrainer.train(input=f.name, model_prefix=os.path.join(tmp, kind), model_type=kind, vocab_size=400, byte_fallback=True, user_defined_symbols=["<u1>"],
                                                 character_coverage=1.0, hard_vocab_limit=False, minloglevel=2)
        with open(os.path.join(tmp, kind + ".model"), "rb") as f2:
            model = f2.read()
        sp = sentencepiece.SentencePieceProcessor(model_proto=model)
        n = sp.vocab_size()
        pieces = [sp.id_to_piece(i) for i in range(n)]
        whole = [i for i in range(5, n) if sum(pieces[i] in p for p in pieces) == 1]
        for _ in range(rounds):
            config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "legacy": True, "tokenizer_class": "PreTrainedTokenizerFast"}
            files = {"tokenizer.model": model, "tokenizer_config.json": config}
            added = random_tokens(r, n)
            plain = [t["content"] for t in added.values()]
            for i in range(r.randint(0, 2)):  # ids inside the vocabulary, with another text or the piece's own: one of which no other piece is made
                j = r.choice(whole)
                text = r.choice([f"<in{i}>", sp.id_to_piece(j), sp.id_to_piece(r.randrange(300, n))])
                if not sp.is_byte(j) and not text.startswith(("<0x", "▁")):
                    added[str(j)] = token(text, *(r.random() < .4 for _ in range(4)))
                    plain.append(text)
            k = r.random()
            if k < .7:
                config["added_tokens_decoder"] = {"0": token("<unk>", True), "1": token("<s>", True), "2": token("</s>", True), **added}
            elif k < .85:  # the old kind
                files["added_tokens.json"] = {t["content"]: int(i) for i, t in added.items() if int(i) >= n}
                files["special_tokens_map.json"] = {"pad_token": r.choice(["<pad>", "</s>", plain[0] if plain else "<pad>"]), "additional_special_tokens": [t["content"] for i, t in added.items() if int(i) >= n][:1]}
            if r.random() < .4:
                config["pad_token"] = r.choice(["<pad>", "<s>"])
            if r.random() < .3:
                config["additional_special_tokens"] = ["<extra>"]
            folder = write(os.path.join(tmp, "sp"), files)
            reference = AutoTokenizer.from_pretrained(folder)
            for i, text in enumerate(texts(r, plain + ["<pad>", "<extra>", "<s>", "<unk>", "<u1>"], 25)):
                check.text(reference, folder, text, i < 6)


def byte_level(r):
    """A trained vocabulary and its merges."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    lines = [" ".join(r.choice(WORDS + ODD) for _ in range(12)) for _ in range(500)]
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, special_tokens=["<|endoftext|>"]))
    model = json.loads(t.to_str())["model"]
    return model["vocab"], ["".join(m[0]) + " " + "".join(m[1]) if not isinstance(m, str) else m for m in model["merges"]]


def of_file(r, n):
    """Added tokens of a tokenizer.json: the first in its vocabulary, the others behind it."""
    out = []
    for i in range(r.randint(1, 5)):
        t = token("<|endoftext|>" if not i else r.choice([f"<|a{i}|>", f"<b{i}>", f"[X {i}]", f"hel{i}", "under"]), *(r.random() < p for p in (.5, .3, .3, .4, .2)))
        if t["content"] not in [o["content"] for o in out]:
            out.append(t)
    fresh = [t for t in out if t["content"] not in n]
    for t in out:
        t["id"] = n[t["content"]] if t["content"] in n else len(n) + fresh.index(t)
    return out


def config_for(r, own, n, lowercase):
    """A tokenizer_config.json beside it, and the older files in its place: what agrees with the tokenizer.json and what does not. A token that is normalised in
    one and not in the other is left out where there is a normaliser: the package then decodes it to its normalised text."""
    config, files = {"tokenizer_class": "PreTrainedTokenizerFast"}, {}
    names = [t["content"] for t in own] + ["<|new|>", "[PAD]", "fox", "<b2>"]
    decoder = {}
    for t in own:
        if r.random() < .8:
            t = {k: v for k, v in t.items()}
            i = t.pop("id") if r.random() < .9 else t.pop("id") + r.randint(1, 4)
            if r.random() < .3:
                flag = r.choice(["lstrip", "rstrip", "single_word", "special", "special" if lowercase else "normalized"])
                t[flag] = not t[flag]
            decoder[str(i)] = t
    for content in r.sample(["<|n1|>", "<n2>", "[N 3]", "light", "hel"], r.randint(0, 3)):
        decoder[str(n + len(own) + r.randint(0, 5))] = token(content, *(r.random() < p for p in (.5, .3, .3, .4, .2)))
    k = r.random()
    if k < .6:
        config["added_tokens_decoder"] = decoder
    elif k < .8:
        if r.random() < .7:
            files["added_tokens.json"] = {t["content"]: int(i) for i, t in decoder.items()}
        if r.random() < .7:
            files["special_tokens_map.json"] = {"pad_token": r.choice(names), "eos_token": {k: v for k, v in token(r.choice(names), lstrip=r.random() < .4).items() if k != "special"}}
            if r.random() < .5:
                files["special_tokens_map.json"][r.choice(["additional_special_tokens", "extra_special_tokens"])] = r.sample(names, 2)
    for key in ("bos_token", "pad_token", "mask_token", "image_token"):
        if r.random() < .3:
            config[key] = r.choice(names)
    if r.random() < .2:
        config["audio_token"] = {"__type": "AddedToken", **token("<|audio|>", lstrip=r.random() < .5)}
    k = r.random()
    if k < .2:
        config["extra_special_tokens"] = {"video_token": r.choice(names + ["<|video|>"])}
    elif k < .4:
        config[r.choice(["extra_special_tokens", "additional_special_tokens"])] = r.sample(names + ["<|x|>", "<|y|>"], 3)
    if r.random() < .3:  # of no effect beside a tokenizer.json
        config["add_bos_token"] = True
    return config, files


def on_tokenizer_json(check, r, tmp, rounds):
    vocab, merges = byte_level(r)
    for _ in range(4 * rounds):
        t = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in merges]))
        t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        if r.random() < .4:
            t.normalizer = normalizers.Lowercase()
        text = json.loads(t.to_str())
        text["added_tokens"] = of_file(r, vocab)
        config, files = config_for(r, text["added_tokens"], len(vocab), t.normalizer)
        folder = write(os.path.join(tmp, "json"), {"tokenizer.json": text, "tokenizer_config.json": config, **files})
        reference = AutoTokenizer.from_pretrained(folder)
        plain = sorted(reference.get_added_vocab()) + ["fox", "light", "under", "UNDER"]
        for i, text in enumerate(texts(r, plain, 15)):
            check.text(reference, folder, text, i < 4, i % 2 == 0)


def vocab_files(check, r, tmp, rounds):
    vocab, merges = byte_level(r)
    for _ in range(rounds):
        name, kind = r.choice([("GPT2Tokenizer", "gpt2"), ("GPT2TokenizerFast", "gpt2"), ("CodeGenTokenizer", "codegen"), ("Qwen2Tokenizer", "qwen2"), ("Qwen2TokenizerFast", "qwen3"), (None, "qwen2"), (None, "gpt2")])
        config = {"added_tokens_decoder": {str(vocab["<|endoftext|>"]): token("<|endoftext|>", True), **random_tokens(r, len(vocab))}} if r.random() < .7 else {}
        if name:
            config["tokenizer_class"] = name
        if r.random() < .4:
            config["pad_token"] = r.choice(["<|pad|>", "<|endoftext|>"])
        if r.random() < .3:
            config["bos_token"] = "<|bos|>"
        for key in ("add_bos_token", "add_prefix_space"):
            if r.random() < .3:
                config[key] = r.random() < .7
        folder = write(os.path.join(tmp, "vocab"), {"vocab.json": vocab, "merges.txt": "#version: 0.2\n" + "\n".join(merges) + "\n", "tokenizer_config.json": config, "config.json": {"model_type": kind}})
        reference = AutoTokenizer.from_pretrained(folder)
        plain = [t["content"] for t in config.get("added_tokens_decoder", {}).values()] + ["<|endoftext|>", "<|pad|>", "<|bos|>", *ODD]
        for i, text in enumerate(texts(r, plain, 25)):
            check.text(reference, folder, text, i < 6, i % 2 == 0)


def ranks(check, r, tmp, rounds):
    """The file's own reader is a package that need not be there: the same in three lines."""
    def read(path):
        with open(path, "rb") as f:
            return {base64.b64decode(a): int(b) for a, b in (line.split() for line in f.read().splitlines() if line)}

    TikTokenConverter.load_tiktoken_bpe = staticmethod(read)
    vocab, _ = byte_level(r)
    alphabet = {c: b for b, c in ((b, c) for c, b in zip(*byte_chars()))}
    pieces = [bytes(alphabet[c] for c in p) for p in sorted(vocab, key=vocab.get) if p != "<|endoftext|>"]
    lines = "".join(f"{base64.b64encode(p).decode()} {i}\n" for i, p in enumerate(pieces))
    for _ in range(rounds):
        name = r.choice(["tiktoken.model", "tokenizer.model"])
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": random_tokens(r, len(pieces) + r.randint(0, 3))}
        if r.random() < .5:
            config.update(bos_token="<|begin|>", add_bos_token=r.random() < .7)
        folder = write(os.path.join(tmp, "ranks"), {name: lines, "tokenizer_config.json": config})
        vocab_file = os.path.join(folder, name)
        kwargs = TokenizersBackend._convert_from_tiktoken(vocab_file, dict(config))
        with tempfile.TemporaryDirectory() as d:
            kwargs["tokenizer_object"].save(os.path.join(d, "tokenizer.json"))
            with open(os.path.join(d, "tokenizer_config.json"), "w") as f:
                json.dump({k: v for k, v in config.items() if k != "add_bos_token"}, f)
            reference = AutoTokenizer.from_pretrained(d)
        if config.get("add_bos_token"):
            reference.add_bos_token = True
        plain = [t["content"] for t in config["added_tokens_decoder"].values()] + ["<|begin|>", f"<|reserved_token_{len(pieces)}|>", *ODD]
        for i, text in enumerate(texts(r, plain, 25)):
            check.text(reference, folder, text, i < 6, i % 2 == 0)


def byte_chars():
    """The byte-level alphabet: characters and their bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return [chr(b) for b in keep] + [chr(256 + i) for i in range(len(rest))], keep + rest


def main():
    p = argparse.ArgumentParser()
    p.add_argument("nibble")
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--show", type=int, default=5)
    a = p.parse_args()
    warnings.simplefilter("ignore")
    bad = 0
    with tempfile.TemporaryDirectory(prefix="nibble-files-") as tmp:
        for part in (on_tokenizer_json, sentencepiece_models, vocab_files, ranks):
            check = Check(os.path.abspath(a.nibble), a.show)
            part(check, random.Random(a.seed), tmp, a.rounds)
            print(f"{part.__name__}: {check.total} texts, {check.bad} differ")
            bad += check.bad
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
