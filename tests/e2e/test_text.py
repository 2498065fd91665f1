#!/usr/bin/env python3
"""The text side of a checkpoint by way of the commands: named templates, special tokens, --vars, tokenizers from files, warnings."""
import base64
import json
import lzma
import math
import os
import struct
import subprocess
import threading
import unittest

import checkpoint
import harness

SHOW = "{{ name }}" + "".join("[{{ %s }}]" % n for n in ("bos_token", "unk_token", "image_token"))


def write(path, content):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(content if isinstance(content, str) else json.dumps(content))
    return path


class Text(harness.Case):
    def folder(self, name, files):
        """A checkpoint with these files beside the tokenizer; a value of None removes one."""
        src = checkpoint.copy(checkpoint.llama(), self.temp(name), tokenizer=True)
        for file, content in files.items():
            path = os.path.join(src, file)
            if content is None:
                os.remove(path)
            else:
                write(path, content)
        return src

    def create(self, name, files):
        src = self.folder(f"src-{name}", files)
        return src, json.loads(self.ok("create", name, "--from", src, "--quiet", "--json"))

    def render(self, model, request, *args, **kw):
        path = write(self.temp("request.json"), request)
        return self.ok("template", model, path, *args, **kw).decode()

    # ---- templates by name ----

    def test_named_templates(self):
        listed = {"chat_template": [{"name": n, "template": n.upper()} for n in ("tool_use", "rag", "default")]}
        files = {"chat_template.jinja": "DEFAULT", "additional_chat_templates/tool_use.jinja": "TOOL_USE", "additional_chat_templates/rag.jinja": "RAG",
                 "tokenizer_config.json": {"chat_template": "hidden"}}
        plain, tools = {"messages": []}, {"messages": [], "tools": []}
        src, _ = self.create("listed", {"tokenizer_config.json": listed})
        src2, _ = self.create("files", files)
        out = self.temp("out")
        self.ok("export", "files", out, "--quiet")
        for where in ("listed", src, "files", src2, out):
            with self.subTest(where):
                self.assertEqual(self.render(where, plain), "DEFAULT")
                self.assertEqual(self.render(where, tools), "TOOL_USE")
                self.assertEqual(self.render(where, {"messages": [], "tools": None}), "DEFAULT")
                self.assertEqual(self.render(where, tools, "--template", "rag"), "RAG")
                self.assertIn("'default', 'rag', 'tool_use'" if where != "listed" and where != src else "'tool_use', 'rag', 'default'",
                              self.fails(3, "template", where, write(self.temp("r.json"), plain), "--template", "other"))
        self.assertEqual(self.ok("show", "files", "--template"), b"DEFAULT")
        self.assertEqual(json.loads(self.ok("show", "files", "--json"))["templates"], ["default", "rag", "tool_use"])
        self.assertRegex(self.ok("show", "files").decode(), r"(?m)^  templates +default, rag, tool_use$")
        # of one name without a default nothing is chosen
        src, _ = self.create("none", {"tokenizer_config.json": {"chat_template": [{"name": "rag", "template": "RAG"}]}})
        for where in ("none", src):
            self.assertIn("several chat templates and none is the default: name one of 'rag'", self.fails(2, "template", where, write(self.temp("r.json"), plain)))
            self.assertEqual(self.render(where, plain, "--template", "rag"), "RAG")
        self.assertIn("none is the default", self.fails(2, "run", "none", "ab", "-n", "1"))

    def test_template_files_win(self):
        files = {"tokenizer_config.json": {"chat_template": "config"}, "chat_template.json": {"chat_template": "json"}}
        self.create("json", files)
        self.assertEqual(self.render("json", {"messages": []}), "json")
        self.create("jinja", dict(files, **{"chat_template.jinja": "jinja"}))
        self.assertEqual(self.render("jinja", {"messages": []}), "jinja")
        self.ok("create", "own", "--from", self.temp("src-jinja"), "--template", write(self.temp("t.jinja"), "own"), "--quiet")
        self.assertEqual(self.render("own", {"messages": []}), "own")

    # ---- special tokens ----

    def test_special_tokens(self):
        config = {"chat_template": SHOW, "bos_token": {"content": "<b>", "lstrip": False}, "image_token": "<i>", "unk_token": "<u>"}
        tokens = {"bos_token": "<B>", "unk_token": {"content": "<U>"}, "image_token": "<I>"}
        for name, files, want in (("config", {"tokenizer_config.json": config}, "[<b>][<u>][<i>]"),
                                  ("map", {"tokenizer_config.json": config, "special_tokens_map.json": tokens}, "[<B>][<U>][<i>]"),
                                  ("decoder", {"tokenizer_config.json": dict(config, added_tokens_decoder={}), "special_tokens_map.json": tokens}, "[<b>][<u>][<i>]"),
                                  ("named", {"tokenizer_config.json": {"chat_template": SHOW, "extra_special_tokens": {"image_token": "<e>"}, "bos_token": None}}, "[][][<e>]")):
            with self.subTest(name):
                src, _ = self.create(name, files)
                for where in (name, src):
                    self.assertEqual(self.render(where, {"messages": [], "name": "n"}), "n" + want)
                    self.assertEqual(self.render(where, {"messages": [], "name": "n"}, "--strict"), "n" + want)
        spans = [json.loads(line) for line in self.render("config", {"messages": [], "name": "n"}, "--spans").splitlines()]
        self.assertEqual([(s["from"], s["text"]) for s in spans], [("request", "n"), ("template", "[<b>][<u>][<i>]")])
        # what the caller gives hides one, and is not trusted
        spans = [json.loads(line) for line in self.render("config", {"messages": [], "name": ""}, "--spans", "--vars", '{"image_token":"x"}').splitlines()]
        self.assertEqual([(s["from"], s["text"]) for s in spans], [("template", "[<b>][<u>]["), ("request", "x"), ("template", "]")])

    # ---- --vars ----

    def test_vars(self):
        t = write(self.temp("v.jinja"), "{{ x }}|{{ add_generation_prompt }}|{{ tools | length if tools }}|{{ documents | length if documents }}|{{ messages[-1].content }}")
        request = {"messages": [{"role": "user", "content": "m"}], "x": 1, "tools": [{}], "add_generation_prompt": True}
        self.assertEqual(self.render(t, request), "1|True|1||m")
        new = {"x": "y", "add_generation_prompt": False, "tools": [{}, {}], "documents": [{}], "messages": [{"role": "user", "content": "n"}]}
        self.assertEqual(self.render(t, request, "--vars", json.dumps(new)), "y|False|2|1|n")
        self.assertEqual(self.render(t, request, "--vars", '{"tools":null}'), "1|True|||m")
        self.assertEqual(self.render(t, request, "--raw", "--vars", json.dumps(new)), "y|False|2|1|n")
        self.assertEqual(self.render(t, request, "--strict", "--vars", json.dumps(new)), "y|False|2|1|n")
        self.assertEqual(self.render(t, request, "--vars", '{"continue_final_message":true,"add_generation_prompt":false}'), "1|False|1||m")
        self.assertIn("cannot both be set", self.fails(2, "template", t, self.temp("request.json"), "--vars", '{"continue_final_message":true}'))
        for bad in ("[1]", "1", "null", '"s"', "{", "{} x"):
            self.assertIn("--vars", self.fails(2, "template", t, self.temp("request.json"), "--vars", bad))

        for field in ("add_generation_prompt", "continue_final_message", "trust_content"):
            self.render(t, dict(request, **{field: None}))
            for bad in (1, "true", [], {}):
                self.assertIn(f"{field} of the request is not true or false", self.fails(2, "template", t, write(self.temp("flag.json"), dict(request, **{field: bad}))))
        for field in ("tools", "documents"):
            self.assertIn("is not a list", self.fails(6, "template", t, write(self.temp("flag.json"), dict(request, **{field: {"a": 1}})), "--strict"))

    def test_one_object(self):
        """--json holds what --ids and --spans print."""
        src, _ = self.create("object", {"tokenizer_config.json": {"chat_template": "ab{{ messages[0].content }}"}})
        request = {"messages": [{"role": "user", "content": "cd"}]}
        want = {"prompt": "abcd", "ids": [8, 9], "spans": [{"from": "template", "text": "ab"}, {"from": "request", "text": "cd"}]}
        for flags in ([], ["--ids"], ["--spans"], ["--ids", "--spans"]):
            got = json.loads(self.render(src, request, "--json", *flags))
            self.assertEqual(got, {k: v for k, v in want.items() if k == "prompt" or f"--{k}" in flags})
            self.assertEqual(json.loads(self.render("object", request, "--json", *flags)), got)
        self.assertEqual(self.render(src, request, "--ids"), "8 9\n")
        self.assertEqual([json.loads(line) for line in self.render(src, request, "--spans").splitlines()], want["spans"])

    # ---- tokenizers without a stored model ----

    def test_paths(self):
        src, _ = self.create("m", {"special_tokens_map.json": {"bos_token": "[b]"}})
        want = self.ok("tokenize", "m", "abcd e")
        tokenizer = os.path.join(src, "tokenizer.json")
        other = write(self.temp("other-name.json"), checkpoint.TOKENIZER)
        for where in (src, tokenizer, other):
            self.assertEqual(self.ok("tokenize", where, "abcd e"), want)
            self.assertEqual(self.ok("detokenize", where, "8", "9"), self.ok("detokenize", "m", "8", "9"))
        self.assertEqual(self.render(src, {"messages": [{"role": "user", "content": "abcd"}]}, "--ids").split(), ["8", "9"])
        self.assertEqual(self.render(src, {"messages": [{"role": "user", "content": "ab"}]}), "ab")
        # a name that is no model but a folder
        p = subprocess.run([harness.NIBBLE, "tokenize", os.path.basename(src), "abcd e"], cwd=os.path.dirname(src), env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        self.assertEqual(p.stdout, want)
        self.fails(3, "tokenize", "./absent", "a")
        self.fails(3, "tokenize", "absent", "a")
        self.fails(3, "tokenize", write(self.temp("empty/x.txt"), "")[:-6], "a")
        self.assertIn("neither a folder nor a tokenizer", self.fails(6, "tokenize", self.temp("empty/") + "../empty/x.txt", "a"))
        self.assertIn("tokenizer.json", self.fails(6, "tokenize", write(self.temp("broken/tokenizer.json"), "{"), "a"))

    def test_streams(self):
        src = self.folder("m", {})
        want = self.ok("tokenize", src, "abcd e")
        self.assertEqual(self.ok("tokenize", src, "-f", "-", stdin=b"abcd e"), want)
        self.assertEqual(self.ok("tokenize", src, "-f", "/dev/null"), b"")
        self.assertEqual(self.ok("detokenize", src, stdin=b""), b"\n")
        self.assertEqual(self.ok("detokenize", src, "[8, 9]"), self.ok("detokenize", src, "8", "9"))
        for bad, says in (("1e3", "'1e3'"), ("8x", "'8x'"), ("99999999999", "'99999999999'"), ("0x8", "'0x8'")):
            self.assertIn(says, self.fails(2, "detokenize", src, "8", bad))
        self.assertIn("NUL", self.run_nibble("detokenize", src, stdin=b"8 \0 9").stderr.decode())
        self.assertEqual(self.render(write(self.temp("nothing.jinja"), ""), {"messages": []}), "")
        fifo = self.temp("fifo")
        os.mkfifo(fifo)

        def feed():
            with open(fifo, "wb") as f:
                f.write(b"abcd e")

        t = threading.Thread(target=feed)
        t.start()
        self.assertEqual(self.ok("tokenize", src, "-f", fifo), want)
        t.join()
        self.assertEqual(self.ok("template", src, "-", stdin=b'{"messages":[{"content":"ab"}]}'), b"ab")
        self.fails(6, "tokenize", src, "-f", self.tmp.name)

    def test_offsets(self):
        src = self.folder("m", {})
        text = "ab cd a"
        tokens = json.loads(self.ok("tokenize", src, text, "--json"))["tokens"]
        self.assertEqual([text[t["offset"]:t["end"]] for t in tokens], ["ab", " ", "cd", " ", "a"])
        words = {"version": "1.0", "added_tokens": [{"id": 3, "content": "[S]", "single_word": False, "lstrip": True, "rstrip": False, "normalized": False, "special": True}],
                 "normalizer": {"type": "Lowercase"}, "pre_tokenizer": {"type": "WhitespaceSplit"},
                 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[S]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[S]", "type_id": 0}}],
                                    "pair": [], "special_tokens": {"[S]": {"id": "[S]", "ids": [3], "tokens": ["[S]"]}}},
                 "decoder": None, "model": {"type": "WordLevel", "vocab": {"one": 0, "two": 1, "?": 2}, "unk_token": "?"}}
        tokens = json.loads(self.ok("tokenize", write(self.temp("w.json"), words), "One  TWO   [S] zzz ", "--json"))["tokens"]
        self.assertEqual([(t["id"], t["offset"], t["end"]) for t in tokens], [(3, 0, 0), (0, 0, 3), (1, 5, 8), (3, 8, 14), (2, 15, 18), (3, 0, 0)])
        tokens = json.loads(self.ok("tokenize", self.temp("w.json"), "[S]", "--json"))["tokens"]
        self.assertEqual([(t["offset"], t["end"]) for t in tokens], [(0, 0), (0, 3), (0, 0)])
        self.assertEqual([(t["offset"], t["end"]) for t in json.loads(self.ok("tokenize", self.temp("w.json"), "", "--json"))["tokens"]], [(0, 0), (0, 0)])

    # ---- tokenizers from other files, and those that cannot be used ----

    def test_older_files(self):
        merges = "#version: 0.2\n" + "\n".join(checkpoint.TOKENIZER["model"]["merges"]) + "\n"
        ranks = "".join("%s %d\n" % (base64.b64encode(t.replace("\u010a", "\n").replace("\u0120", " ").replace("\u011b", "\x1b").encode()).decode(), i) for t, i in checkpoint.TOKENS.items())
        vocab = {"tokenizer.json": None, "vocab.json": checkpoint.TOKENS, "merges.txt": merges}
        gpt2 = {"chat_template": checkpoint.TEMPLATE, "tokenizer_class": "GPT2Tokenizer"}
        plain = {"chat_template": checkpoint.TEMPLATE, "added_tokens_decoder": {"14": {"content": "<x>", "special": True}}}
        for name, files, extra in (("vocab", dict(vocab, **{"tokenizer_config.json": gpt2}), 13), ("ranks", {"tokenizer.json": None, "tiktoken.model": ranks, "tokenizer_config.json": plain}, 14),
                                   ("misnamed", {"tokenizer.json": None, "tokenizer.model": ranks, "tokenizer_config.json": plain}, 14),
                                   ("renamed", {"tokenizer.json": None, "own.tiktoken": ranks, "tokenizer_config.json": plain}, 14)):
            with self.subTest(name):
                src, report = self.create(name, files)
                self.assertEqual(report["warnings"], [])
                for where in (name, src):
                    self.assertEqual(self.ok("tokenize", where, "abcd e", "--ids"), b"8 9 11 4\n")
                    self.assertEqual(self.ok("tokenize", where, {13: "<|endoftext|>", 14: "<x>"}[extra] + "ab", "--ids").split(), [str(extra).encode(), b"8"])
                    self.assertEqual(self.ok("detokenize", where, "8", "9"), b"abcd\n")
        self.assertEqual(self.ok("tokenize", "ranks", "<|reserved_token_13|>", "--ids"), b"13\n")
        far = {"added_tokens_decoder": {"888888": {"content": "<x>", "special": True}}}
        _, report = self.create("far", {"tokenizer.json": None, "tiktoken.model": ranks, "tokenizer_config.json": far})
        self.assertIn("id 888888 lies 888875 behind the last rank", report["warnings"][0]["text"])

    def test_qwen_1(self):
        """Ranks under a name of their own, and special tokens that stand in no file. Qwen3 has the same ranks."""
        packed = os.path.join(harness.DATA, "tokenizers/qwen3/tokenizer.json.xz")
        if not os.path.exists(packed):
            self.skipTest("no test data")
        with lzma.open(packed, "rt", encoding="utf-8") as f:
            qwen3 = json.load(f)
        vocab = qwen3["model"]["vocab"]
        printable = [b for b in range(256) if 33 <= b < 127 or 161 <= b < 173 or b > 173]
        byte = dict(zip(map(chr, printable), printable))
        byte.update((chr(256 + i), b) for i, b in enumerate(b for b in range(256) if b not in printable))
        lines = ["%s %d\n" % (base64.b64encode(bytes(map(byte.get, t))).decode(), i) for t, i in vocab.items()]
        src, report = self.create("qwen1", {"tokenizer.json": None, "qwen.tiktoken": "".join(lines), "tokenizer_config.json": {"tokenizer_class": "QWenTokenizer"}})
        self.assertEqual(report["warnings"], [])
        text = "Hello, <|im_start|>user's 12\u212b<|extra_204|><|extra_205|>"
        plain = write(self.temp("plain.json"), dict(qwen3, added_tokens=[]))
        parts = [self.ok("tokenize", plain, t, "--ids") for t in ("Hello, ", "user's 12\u00c5", "<|extra_205|>")]
        ids = parts[0] + b"151644 " + parts[1] + b"151850 " + parts[2]
        for where in ("qwen1", src, os.path.join(src, "qwen.tiktoken")):
            self.assertEqual(self.ok("tokenize", where, text, "--ids").split(), ids.split())
        write(os.path.join(src, "a.tiktoken"), lines[0])
        self.assertIn("a.tiktoken and qwen.tiktoken", self.fails(6, "tokenize", src, "ab"))
        os.remove(os.path.join(src, "a.tiktoken"))
        write(os.path.join(src, "config.json"), {"visual": {}})
        self.assertIn("config.json: 'visual'", self.fails(6, "tokenize", src, "ab"))
        write(os.path.join(src, "qwen.tiktoken"), lines[0])
        os.remove(os.path.join(src, "config.json"))
        self.assertIn("qwen.tiktoken: 1 tokens", self.fails(6, "tokenize", src, "ab"))

    def test_unusable(self):
        """create names the file and what is wrong with it; ids still run, and text says why it cannot."""
        def tokenizer(**change):
            return dict(checkpoint.TOKENIZER, **change)

        cut = {"tokenizer.json": None, "vocab.json": checkpoint.TOKENS}
        rows = [("json", {"tokenizer.json": '{"model":'}, ["tokenizer.json", "line 1"]),
                ("normalizer", {"tokenizer.json": tokenizer(normalizer={"type": "Upside"})}, ["tokenizer.json", "normalizer", "Upside"]),
                ("model", {"tokenizer.json": tokenizer(model={"type": "Markov"})}, ["tokenizer.json", "model", "Markov"]),
                ("class", dict(cut, **{"merges.txt": "a b\n", "tokenizer_config.json": {"tokenizer_class": "NewTokenizer"}}), ["vocab.json", "NewTokenizer"]),
                ("alone", cut, ["vocab.json", "merges.txt"]), ("merges", dict(cut, **{"merges.txt": "a b c\n", "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer"}}), ["merges.txt", "line 1"]),
                ("ranks", {"tokenizer.json": None, "tiktoken.model": "YQ== 0\n?? 1\n"}, ["tiktoken.model", "line 2"]),
                ("rankclass", {"tokenizer.json": None, "tiktoken.model": "YQ== 0\n", "tokenizer_config.json": {"tokenizer_class": "OwnTokenizer"}}, ["tiktoken.model", "OwnTokenizer"]),
                ("spm", {"tokenizer.json": None, "tokenizer.model": "\x00\x01"}, ["tokenizer.model"])]
        for name, files, words in rows:
            with self.subTest(name):
                _, report = self.create(name, files)
                self.assertEqual(len(report["warnings"]), 1, report["warnings"])
                line = str(report["warnings"][0])
                for word in [*words, "--ids only"]:
                    self.assertIn(word, line)
                self.assertEqual(json.loads(self.ok("run", name, "--ids", "1,2", "-n", "2", "--json"))["generated_tokens"], 2)
                p = self.run_nibble("run", name, "ab", "-n", "1", "--raw")
                self.assertNotEqual(p.returncode, 0)
                self.assertIn(words[0], p.stderr.decode())
                self.assertIn(words[0], json.loads(self.ok("show", name, "--json"))["tokenizer_error"])
        _, report = self.create("half", {"tokenizer.json": None, "merges.txt": "a b\n"})
        self.assertIn("merges.txt alone", str(report["warnings"]))
        _, report = self.create("templates", {"chat_template.jinja": "ok", "additional_chat_templates/rag.jinja": "{% oops %}"})
        self.assertEqual(len(report["warnings"]), 1)
        for word in ("additional_chat_templates/rag.jinja", "'rag'", "line 1", "oops"):
            self.assertIn(word, str(report["warnings"][0]))
        self.assertEqual(self.render("templates", {"messages": []}), "ok")
        self.assertIn("oops", self.fails(6, "template", "templates", self.temp("request.json"), "--template", "rag"))
        _, report = self.create("map", {"special_tokens_map.json": "{"})
        self.assertEqual(len(report["warnings"]), 2)
        self.ok("run", "map", "--ids", "1,2", "-n", "1")
        self.assertIn("special_tokens_map.json", self.fails(6, "template", "map", self.temp("request.json")))
        # a template needs no tokenizer
        src = self.folder("only", {"tokenizer.json": "{", "chat_template.jinja": "T"})
        self.assertEqual(self.render(src, {"messages": []}), "T")
        self.assertIn("tokenizer.json", self.fails(6, "template", src, self.temp("request.json"), "--ids"))
        os.rename(os.path.join(src, "chat_template.jinja"), self.temp("x.jinja2"))
        self.assertEqual(self.render(self.temp("x.jinja2"), {"messages": []}), "T")
        self.assertIn("tokenizer_config.json", self.fails(6, "create", "x", "--from", self.folder("cfg", {"tokenizer_config.json": "{broken"}), "--quiet"))

    # ---- GGUF ----

    def gguf(self, name, pre, **more):
        """A llama of one layer whose pre-tokenizer has this name."""
        n, ffn, tokens = 32, 32, list(checkpoint.TOKENS)
        meta = {"general.architecture": "llama", "llama.embedding_length": n, "llama.block_count": 1, "llama.attention.head_count": 1, "llama.attention.head_count_kv": 1,
                "llama.feed_forward_length": ffn, "llama.context_length": 64, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
                "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [1] * len(tokens),
                "tokenizer.ggml.merges": ["a b", "c d"], "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.padding_token_id": 3, "tokenizer.ggml.add_bos_token": False, **more}
        shapes = {"token_embd.weight": [n, len(tokens)], "output_norm.weight": [n]}
        for k, v in (("attn_norm", [n]), ("ffn_norm", [n]), ("attn_q", [n, n]), ("attn_k", [n, n]), ("attn_v", [n, n]), ("attn_output", [n, n]), ("ffn_gate", [n, ffn]), ("ffn_up", [n, ffn]), ("ffn_down", [ffn, n])):
            shapes[f"blk.0.{k}.weight"] = v
        values = {k: struct.pack("<8f", *(0.5 - 0.125 * i for i in range(8))) * (math.prod(v) // 8) for k, v in shapes.items()}
        return checkpoint.gguf(self.temp(name), meta, {k: (v, values[k]) for k, v in shapes.items()})

    def test_gguf(self):
        named = {"tokenizer.chat_template": "[{{ bos_token }}{{ pad_token }}{{ eos_token }}]", "tokenizer.chat_template.tool_use": "TOOLS"}
        path = self.gguf("known.gguf", "gpt-2", **named)
        self.ok("create", "known", "--from", path, "--quiet")
        for where in ("known", path):
            self.assertEqual(self.ok("tokenize", where, "abcd", "--ids"), b"8 9\n")
            self.assertEqual(self.render(where, {"messages": []}), "[ad]")
            self.assertEqual(self.render(where, {"messages": [], "tools": []}), "TOOLS")
        self.assertNotIn("tokenizer_pre_unknown", json.loads(self.ok("show", "known", "--json")))

    def test_unknown_pre(self):
        """Said by every command, not only by the first."""
        path = self.gguf("odd.gguf", "no-such-cut")
        p = self.run_nibble("create", "odd", "--from", path, "--json")
        self.assertIn("no-such-cut", " ".join(map(str, json.loads(p.stdout)["warnings"])))
        for args in [("run", "odd", "ab", "-n", "1", "--raw"), ("tokenize", "odd", "ab"), ("show", "odd"), ("tokenize", path, "ab")] * 2:
            p = self.run_nibble(*args)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.assertIn(b"pre-tokenizer 'no-such-cut' is unknown", p.stderr)
        v = json.loads(self.ok("show", "odd", "--json"))
        self.assertEqual((v["tokenizer_pre_unknown"], v["tokenizer_pre"]), (True, "no-such-cut"))


if __name__ == "__main__":
    harness.main()
