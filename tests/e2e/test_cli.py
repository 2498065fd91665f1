"""Every command of the program: help, exit codes, --json, options of run, the chat on a terminal, progress, text made safe for a terminal."""
import json
import math
import os
import re
import struct
import subprocess

import checkpoint
import harness
from terminal import Terminal

COMMANDS = ["run", "create", "list", "show", "ps", "cp", "rm", "verify", "dump", "export", "compare", "perplexity", "bench", "tokenize", "detokenize", "template", "version"]
NO_ESCAPE = f"{checkpoint.TOKENS[chr(0x11b)]}=-100"  # answers that a terminal shows as they are


def bf16(raw):
    return [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]


class Cli(harness.Case):
    def setUp(self):
        super().setUp()
        self.env["XDG_STATE_HOME"] = self.temp("state")
        self.env.pop("NIBBLE_NOHISTORY", None)

    def tiny(self, name="tiny", tokenizer=True, **kw):
        src = checkpoint.copy(checkpoint.llama(), self.temp(f"src-{name}"), tokenizer=tokenizer, **kw)
        self.ok("create", name, "--from", src, "--quiet")
        return src

    @staticmethod
    def config(src):
        with open(os.path.join(src, "config.json")) as f:
            return json.load(f)

    # ---- help and usage ----

    def test_help(self):
        listed = self.ok("help").decode()
        for c in COMMANDS:
            self.assertRegex(listed, rf"(?m)^  {c} ")
            text = self.ok("help", c).decode()
            self.assertIn(f"usage: nibble {c}", text)
            self.assertEqual(text, self.ok(c, "--help").decode())
            for line in text.splitlines():
                self.assertLessEqual(len(line), 140, line)
            for option in re.findall(r"(?m)^  (--[a-z][a-z0-9-]*)", text):
                wrong = option + "x"
                err = self.fails(2, c, wrong)
                self.assertIn(f"'{wrong}'; did you mean", err)
        self.assertEqual(self.ok("--help").decode(), listed)
        self.assertEqual(self.ok("-h").decode(), listed)
        p = self.run_nibble()
        self.assertEqual((p.returncode, p.stdout), (2, b""))
        self.assertEqual(p.stderr.decode(), listed)

    def test_usage_errors(self):
        rows = [(("lst",), "list"), (("crate",), "create"), (("qqqqqqq",), "unknown command"), (("run",), "needed"), (("run", "x", "--temp"), "needs"), (("run", "x", "--temp", "warm"), "warm"),
                (("run", "x", "-n", "1.5"), "1.5"), (("run", "x", "-n", "99999999999"), "99999999999"), (("run", "x", "--seed", "-1"), "-1"), (("run", "x", "--json=1"), "no value"),
                (("run", "x", "--think", "--no-think", "y"), "exclude"), (("run", "x", "y", "--logit-bias", "=5"), "ID=BIAS"), (("run", "x", "y", "--logit-bias", "5="), "ID=BIAS"),
                (("create", "x"), "--from"), (("create",), "name"), (("create", "x", "--from", "y", "--layout", "diagonal"), "diagonal"), (("create", "x", "--from", "y", "--quantize", "int99"), "int99"),
                (("export", "x"), "needed"), (("export", "x", "y", "--as", "onnx"), "onnx"), (("export", "x", "y", "--dtype", "f8"), "f8"), (("cp", "x"), "two names"), (("rm",), "needed"),
                (("run", "x", "y", "--temp", "-1"), "--temp"), (("run", "x", "y", "--top-p", "2"), "--top-p"), (("run", "x", "y", "--top-p", "0"), "--top-p"), (("run", "x", "y", "--min-p", "1.5"), "--min-p"),
                (("run", "x", "y", "--top-k", "-3"), "--top-k"), (("run", "x", "y", "--repeat-penalty", "0"), "--repeat-penalty"), (("run", "x", "y", "--repeat-last-n", "-2"), "--repeat-last-n"),
                (("run", "x", "y", "--threads", "-1"), "--threads"), (("run", "x", "y", "--ctx", "-5"), "--ctx"),
                (("bench",), "needed"), (("bench", "--shape", "s9"), "s1100"), (("bench", "--shape", "s135", "-r", "0"), "range"), (("compare",), "needed"), (("perplexity", "x"), "needed"),
                (("perplexity", "x", "y", "--window", "1"), "--window"), (("list", "extra"), "extra"), (("version", "extra"), "extra"), (("ps", "extra"), "extra"), (("run", "x", "y", "-n", "0"), "-n"), (("run", "x", "y", "-n", "-2"), "-n"), (("verify",), "needed"), (("help", "nothing"), "nothing"), (("dump",), "needed"), (("show",), "needed")]
        for args, word in rows:
            with self.subTest(args):
                err = self.fails(2, *args)
                self.assertIn(word, err)
                self.assertTrue(err.startswith("nibble"), err)
        err = self.fails(2, "\x1b[31mred\x07")
        self.assertNotIn("\x1b", err)
        print(f"covered: {len(rows)} usage errors")

    def test_tier_and_environment(self):
        self.tiny(tokenizer=False)
        for t in harness.tiers():
            r = json.loads(self.ok("run", "tiny", "--ids", "1,2", "-n", "2", "--json", env={"NIBBLE_TIER": t}))
            self.assertEqual(r["tier"], t)
            self.assertEqual(json.loads(self.ok("version", "--json", env={"NIBBLE_TIER": t}))["tier"], t)
        for args in (("run", "tiny", "--ids", "1"), ("version",)):
            self.assertIn("abacus", self.fails(2, *args, env={"NIBBLE_TIER": "abacus"}))
        self.assertIn("abacus", self.fails(2, "run", "tiny", "--ids", "1", "--tier", "abacus"))
        env = dict(self.env, XDG_DATA_HOME=self.temp("data"))
        env.pop("NIBBLE_MODELS")
        self.assertEqual(json.loads(subprocess.run([harness.NIBBLE, "list", "--json"], env=env, stdout=subprocess.PIPE, check=True).stdout), [])

    # ---- JSON ----

    def test_json(self):
        src = self.tiny()
        text, request, ids = self.temp("t.txt"), self.temp("r.json"), self.temp("ids.txt")
        for path, content in ((text, "abcd efgh abcd " * 20), (request, json.dumps({"messages": [{"role": "user", "content": "ab"}]})), (ids, "1 2 3 4 5 6 7")):
            with open(path, "w") as f:
                f.write(content)
        outputs = [("version", "--json"), ("list", "--json"), ("ps", "--json"), ("show", "tiny", "--json"), ("dump", "tiny", "--json"), ("dump", "tiny", "model.norm.weight", "--json"),
                   ("run", "tiny", "ab", "-n", "3", "--json"), ("run", "tiny", "--ids", "1,2", "-n", "3", "--json"), ("perplexity", "tiny", text, "--json", "--quiet"),
                   ("perplexity", "tiny", "--ids", ids, "--json", "--quiet"), ("compare", src, "--json", "--quiet", "--threads", "1"), ("tokenize", "tiny", "abcd", "--json"),
                   ("detokenize", "tiny", "1", "8", "--json"), ("template", "tiny", request, "--json"), ("create", "again", "--from", src, "--json", "--quiet"),
                   ("create", "dry", "--from", src, "--json", "--quiet", "--dry-run", "--quantize", "int4")]
        for args in outputs:
            with self.subTest(args[0]):
                out = self.ok(*args).decode()
                v = json.loads(out, parse_constant=lambda c: self.fail(f"{args}: {c} is not JSON"))
                self.assertTrue(out.endswith("\n") and out.count("\n") == 1)
                if args[0] in ("run", "perplexity", "compare", "version"):
                    self.assertIn("tier", v)
                    self.assertIn("order", v)
        self.assertEqual([m["name"] for m in json.loads(self.ok("list", "--json"))], ["again", "tiny"])
        for line in self.ok("template", "tiny", request, "--spans").splitlines():
            self.assertIn(json.loads(line)["from"], ("template", "request"))
        print(f"covered: {len(outputs)} JSON outputs")

    # ---- run ----

    def generate(self, *args, **kw):
        return json.loads(self.ok("run", "tiny", *args, "--json", **kw))

    def test_run(self):
        self.tiny()
        ids = self.generate("--ids", "1,2,3", "--temp", "0", "-n", "20", "--ignore-eos")
        self.assertEqual((ids["prompt_tokens"], ids["generated_tokens"], len(ids["ids"]), ids["finish"]), (3, 20, 20, "length"))
        path = self.temp("ids")
        with open(path, "w") as f:
            f.write("[1, 2,\n3]")
        self.assertEqual(self.generate("--ids", path, "--temp", "0", "-n", "20", "--ignore-eos")["ids"], ids["ids"])
        self.assertEqual(self.generate("--ids", "1 2 3", "--temp", "0", "-n", "20", "--ignore-eos", "--chunk", "1", "-t", "3")["ids"], ids["ids"])
        raw = self.generate("bcd", "--raw", "--temp", "0", "-n", "20", "--ignore-eos")  # b, cd
        self.assertEqual(raw["ids"], self.generate("--ids", "1,9", "--temp", "0", "-n", "20", "--ignore-eos")["ids"])
        self.assertEqual(self.ok("run", "tiny", "bcd", "--raw", "--temp", "0", "-n", "20", "--ignore-eos").decode(), raw["text"] + ("" if raw["text"].endswith("\n") else "\n"))
        # through the template, and by a pipe, which comes before the words
        chat = self.generate("bcd", "--temp", "0", "-n", "9", "--ignore-eos")
        self.assertEqual(chat["ids"], raw["ids"][:9])
        self.assertEqual(self.generate("--temp", "0", "-n", "9", "--ignore-eos", stdin=b"bcd\n")["ids"], chat["ids"])
        self.assertEqual(self.generate("cd", "--temp", "0", "-n", "9", "--ignore-eos", stdin=b"ab")["ids"], self.generate("ab\n\ncd", "--temp", "0", "-n", "9", "--ignore-eos")["ids"])
        self.assertEqual(self.generate("a", "b", "--temp", "0", "-n", "9", "--ignore-eos")["ids"], self.generate("a b", "--temp", "0", "-n", "9", "--ignore-eos")["ids"])
        self.assertEqual(self.generate("cd", "--system", "b", "--temp", "0", "-n", "9", "--ignore-eos")["ids"], chat["ids"])
        # sampling: the same seed gives the same text, however it is computed
        warm = ("abcd", "--raw", "--temp", "1.5", "-n", "40", "--ignore-eos")
        first = self.generate(*warm, "--seed", "5")
        for extra in (("-t", "1"), ("--chunk", "2"), ("--tier", harness.tiers()[0])):
            self.assertEqual(self.generate(*warm, "--seed", "5", *extra)["ids"], first["ids"])
        self.assertNotEqual(self.generate(*warm, "--seed", "6")["ids"], first["ids"])
        self.assertEqual(self.generate(*warm, "--top-k", "1")["ids"], self.generate("abcd", "--raw", "--temp", "0", "-n", "40", "--ignore-eos")["ids"])
        self.assertTrue(all(i < len(checkpoint.TOKENS) for i in first["ids"]))
        forced = self.generate("ab", "--raw", "-n", "5", "--logit-bias", "3=100")
        self.assertEqual((forced["text"], forced["ids"]), ("ddddd", [3] * 5))
        banned = self.generate(*warm, *(f"--logit-bias={i}=-100" for i in range(1, 13)))
        self.assertEqual(set(banned["ids"]), {0})
        # stop strings, across the border of tokens too, are not printed
        self.assertEqual(self.generate("ab", "--raw", "-n", "9", "--logit-bias", "3=100", "--stop", "ddd")["text"], "")
        text = first["text"]
        stop = text[7:10]
        cut = self.generate(*warm, "--seed", "5", "--stop", stop)
        self.assertEqual((cut["text"], cut["finish"]), (text[:text.index(stop)], "stop"))
        # limits
        full = self.generate("abcd", "--raw", "--ctx", "20", "--temp", "1", "--ignore-eos")
        self.assertEqual((full["finish"], full["prompt_tokens"] + full["generated_tokens"]), ("length", 20))
        self.assertEqual(self.run_nibble("run", "tiny", "ab", "--raw", "-n", "3", "--ignore-eos", "--strict").returncode, 8)
        self.ok("run", "tiny", "ab", "--raw", "-n", "3", "--logit-bias", "3=100", "--stop", "d", "--strict")
        self.assertIn("context", self.fails(1, "run", "tiny", "abcd" * 20, "--raw", "--ctx", "16"))
        self.assertIn("context", self.fails(2, "run", "tiny", "ab", "--ctx", "99999999"))
        self.assertIn("vocabulary", self.fails(2, "run", "tiny", "--ids", "999999"))
        self.assertIn("no tokens", self.fails(2, "run", "tiny", "", "--raw"))
        self.assertIn("UTF-8", self.fails(2, "run", "tiny", stdin=b"\xff\xfe"))
        p = self.run_nibble("run", "tiny", "ab", "-n", "4", "-v")
        for word in ("load", "prompt", "decode", "memory", "tokens/s", "mapped", "resident", "cache"):
            self.assertIn(word, p.stderr.decode())
        self.assertEqual(len(p.stdout.splitlines()[0]) > 0, True)

    def test_given_messages(self):
        """A system message and messages that the model was imported with."""
        src = checkpoint.copy(checkpoint.llama(), self.temp("given"), tokenizer=True)
        files = {}
        for name, text in (("system", "ab"), ("messages", '[ {"role":"user","content":"cd"},\n{"role":"assistant","content":"b"} ]')):
            files[name] = self.temp(name)
            with open(files[name], "w") as f:
                f.write(text)
        self.ok("create", "given", "--from", src, "--quiet", "--system", files["system"], "--messages", files["messages"])
        self.ok("create", "plain", "--from", src, "--quiet")

        def ids(model, prompt, *args):
            return json.loads(self.ok("run", model, prompt, *args, "--json", "--temp", "0", "-n", "9", "--ignore-eos"))["ids"]

        self.assertEqual(ids("given", "d"), ids("plain", "abcdbd"))
        self.assertEqual(ids("given", "d", "--system", ""), ids("plain", "cdbd"))
        self.assertEqual(ids("given", "d", "--system", "c"), ids("plain", "ccdbd"))
        self.assertEqual(ids("given", "d", "--raw"), ids("plain", "d"))
        v = json.loads(self.ok("show", "given", "--json"))
        self.assertEqual((v["system"], [m["content"] for m in v["messages"]]), ("ab", ["cd", "b"]))
        self.assertNotIn("system", json.loads(self.ok("show", "plain", "--json")))
        self.assertIn("system        ab", self.ok("show", "given").decode())
        self.ok("verify", "given", "--deep")
        for bad in ("[]", "{}", "[1]", '[{"role":"user"}]', "[", ""):
            with open(files["messages"], "w") as f:
                f.write(bad)
            self.assertIn("messages", self.run_nibble("create", "bad", "--from", src, "--quiet", "--messages", files["messages"]).stderr.decode())
        for bad in (b"", b"a\xff", b"a\0b"):
            with open(files["system"], "wb") as f:
                f.write(bad)
            self.assertIn("system", self.run_nibble("create", "bad", "--from", src, "--quiet", "--system", files["system"]).stderr.decode())
        self.fails(3, "show", "bad")

    def test_exported_texts(self):
        """What was given at import goes out with the model where a checkpoint has a place for it."""
        src = checkpoint.copy(checkpoint.llama(), self.temp("texts"), tokenizer=True)
        os.makedirs(os.path.join(src, "additional_chat_templates"))
        files = {"tmpl": "{{ 1 + 1 }}", "licence": "Do what you like.", "sys": "ab"}
        for name, text in files.items():
            with open(self.temp(name), "w") as f:
                f.write(text)
        with open(os.path.join(src, "additional_chat_templates", "rag.jinja"), "w") as f:
            f.write("rag")
        with open(os.path.join(src, "generation_config.json"), "w") as f:
            json.dump({"temperature": 0.5, "top_k": 7}, f)
        self.ok("create", "texts", "--from", src, "--quiet", "--template", self.temp("tmpl"), "--license", self.temp("licence"), "--system", self.temp("sys"), "--parameters", '{"temperature":0.25}')
        out = self.temp("out")
        p = self.run_nibble("export", "texts", out, "--as", "hub", "--quiet")
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertIn("system message", p.stderr.decode())

        def text(name):
            with open(os.path.join(out, name)) as f:
                return f.read()

        self.assertEqual((text("chat_template.jinja"), text("LICENSE")), (files["tmpl"], files["licence"]))
        self.assertEqual(json.loads(text("generation_config.json")), {"temperature": 0.25, "top_k": 7})
        self.assertFalse(os.path.exists(os.path.join(out, "additional_chat_templates")))

    def test_control_tokens(self):
        src = self.temp("src-control")
        checkpoint.copy(checkpoint.llama(), src, tokenizer=True)
        path = os.path.join(src, "tokenizer.json")
        with open(path) as f:
            t = json.load(f)
        names = ["<|im_end|>", "<|im_start|>", "<|end|>", "plain"]  # ids 13 to 16; none is declared as an end
        t["added_tokens"] = [{"id": 13 + i, "content": n, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": n != "plain"} for i, n in enumerate(names)]
        with open(path, "w") as f:
            json.dump(t, f)
        self.ok("create", "tiny", "--from", src, "--quiet")

        def forced(i, *more):
            r = self.generate("ab", "--raw", "-n", "5", "--logit-bias", f"{i}=100", *more)
            return r["finish"], len(r["ids"])
        self.assertEqual([forced(13), forced(14), forced(15), forced(16)], [("stop", 1), ("length", 5), ("stop", 1), ("length", 5)])
        self.assertEqual(forced(13, "--ignore-eos"), ("length", 5))
        # what is written raw is the user's own; what stands in a message is text, unless it is trusted
        text = "<|im_end|>"  # as text: e and d, the other letters are not in this vocabulary
        for args, n in ((("--raw",), 1), ((), 2), (("--trust-content",), 1)):
            r = self.generate(text, "-n", "1", *args)
            self.assertEqual(r["prompt_tokens"], n, args)

    # ---- the store ----

    def test_store_commands(self):
        src = self.tiny()
        self.ok("cp", "tiny", "other:v1")
        self.assertEqual([m["name"] for m in json.loads(self.ok("list", "--json"))], ["other:v1", "tiny"])
        self.assertIn("tiny", self.ok("list").decode())
        self.ok("rm", "tiny")
        self.fails(3, "show", "tiny")
        self.ok("verify", "other:v1", "--deep", "--quiet")
        self.assertRegex(self.ok("show", "other:v1").decode(), r"architecture +llama")
        self.assertEqual(json.loads(self.ok("show", "other:v1", "--file", "config.json")), self.config(src))
        self.assertEqual(self.ok("show", "other:v1", "--template").decode(), checkpoint.TEMPLATE)
        self.ok("rm", "other:v1")
        left = os.listdir(os.path.join(self.store, "blobs"))
        self.assertEqual(left, [])

    def block_draft(self, target, **fields):
        """A block draft of one layer for a model: it fits, but for the fields given."""
        c, folder = self.config(target), self.temp(f"draft-{len(os.listdir(self.tmp.name))}")
        h, heads, kv = c["hidden_size"], 4, 2
        d = h // heads
        config = {"architectures": ["DFlashDraftModel"], "hidden_size": h, "num_hidden_layers": 1, "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": d, "intermediate_size": h,
                  "vocab_size": c["vocab_size"], "num_target_layers": c["num_hidden_layers"], "dflash_config": {"block_size": 4, "mask_token_id": 7, "target_layer_ids": [0, c["num_hidden_layers"] - 1]}}
        for k, v in fields.items():
            (config["dflash_config"] if k in config["dflash_config"] else config)[k] = v
        shapes = {"fc": (h, 2 * h), "layers.0.self_attn.q_proj": (h, h), "layers.0.self_attn.k_proj": (kv * d, h), "layers.0.self_attn.v_proj": (kv * d, h), "layers.0.self_attn.o_proj": (h, h),
                  "layers.0.mlp.gate_proj": (h, h), "layers.0.mlp.up_proj": (h, h), "layers.0.mlp.down_proj": (h, h)}
        os.mkdir(folder)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        checkpoint.write_safetensors(os.path.join(folder, "model.safetensors"), {n + ".weight": ("BF16", s, b"\x80\x3c" * (s[0] * s[1])) for n, s in shapes.items()})
        return folder

    def test_draft(self):
        src = self.tiny()
        last = self.config(src)["num_hidden_layers"] - 1
        self.assertNotIn("draft", json.loads(self.ok("show", "tiny", "--json")))
        for field, value, why in (("mask_token_id", 10 ** 6, "mask_token_id is 1000000, the model has"), ("target_layer_ids", [last, 0], "ascending"), ("hidden_size", 32, "hidden_size is 32, the model has"),
                                  ("block_size", 1, "block_size is 1"), ("vocab_size", 5, "vocab_size is 5, the model has"), ("num_key_value_heads", 4, "k_proj.weight is")):
            self.assertIn(why, self.fails(6, "create", "tiny", "--draft", self.block_draft(src, **{field: value})))
        self.ok("create", "tiny", "--draft", self.block_draft(src), "--quiet")
        draft = json.loads(self.ok("show", "tiny", "--json"))["draft"]
        self.assertEqual({k: draft[k] for k in ("kind", "layers", "block_size", "mask_token_id", "target_layer_ids", "config")},
                         {"kind": "dflash", "layers": 1, "block_size": 4, "mask_token_id": 7, "target_layer_ids": [0, last], "config": "draft/config.json"})
        self.assertRegex(self.ok("show", "tiny").decode(), rf"draft +dflash, 1 layer, block of 4, mask 7, taps 0 {last} \(DFlashDraftModel, draft/config.json\)")
        self.ok("verify", "tiny", "--deep", "--quiet")
        self.ok("rm", "tiny")
        self.assertEqual(os.listdir(os.path.join(self.store, "blobs")), [])  # nor what the model was before it had the draft

    def test_two_imports_of_one_name(self):
        sources = [checkpoint.copy(checkpoint.llama(), self.temp(f"s{i}"), tokenizer=i == 1) for i in range(2)]
        for _ in range(6):
            p = [subprocess.Popen([harness.NIBBLE, "create", "same", "--from", s, "--quantize", q, "--quiet"], env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                 for s, q in zip(sources * 2, ("int8", "int4", "int8", "nvfp4"))]
            for x in p:
                _, err = x.communicate()
                self.assertEqual(x.returncode, 0, err)
            self.assertEqual(len(json.loads(self.ok("list", "--json"))), 1)
            self.ok("verify", "same", "--deep", "--quiet")
            self.ok("run", "same", "--ids", "1,2", "-n", "2")

    def test_export_round_trip(self):
        done = 0
        for d in harness.reference_models():
            if harness.model_type(d) not in ("llama", "qwen2", "qwen3_moe", "gemma3_text"):
                continue
            with self.subTest(os.path.basename(d)):
                self.ok("create", "m", "--from", d, "--quiet")
                out = self.temp(f"out{done}")
                self.ok("export", "m", out, "--as", "hub", "--quiet")
                exported = {}
                for f in sorted(os.listdir(out)):
                    if f.endswith(".safetensors"):
                        exported.update(checkpoint.read_safetensors(os.path.join(out, f))[1])
                source = checkpoint.read_safetensors(os.path.join(d, "model.safetensors"))[1]
                self.assertEqual(set(exported), set(source))
                for name, (dtype, shape, raw) in source.items():
                    self.assertEqual(dtype, "BF16")
                    self.assertEqual(exported[name][1], shape, name)
                    self.assertEqual(exported[name][2], raw, name)
                self.ok("create", "again", "--from", out, "--quiet")
                a, b = (json.loads(self.ok("run", n, "--ids", "1,2,3", "-n", "8", "--temp", "0", "--json"))["ids"] for n in ("m", "again"))
                self.assertEqual(a, b)
                self.assertEqual(self.run_nibble("export", "m", out, "--quiet").returncode, 2)  # not into a folder that holds something
                done += 1
        self.assertGreater(done, 0)
        print(f"covered: {done} models exported and imported again")

    def test_dump_against_the_source(self):
        values = 0
        for d in harness.reference_models():
            if harness.model_type(d) not in ("llama", "mistral", "qwen2", "qwen3"):
                continue
            source = checkpoint.read_safetensors(os.path.join(d, "model.safetensors"))[1]
            for q, tolerance in (("none", 0), ("int8", 0.01), ("nvfp4", 0.3)):
                self.ok("create", "m", "--from", d, "--quantize", q, "--quiet")
                listed = json.loads(self.ok("dump", "m", "--json"))
                self.assertEqual({t["name"]: t["shape"] for t in listed}, {k: v[1] for k, v in source.items()})
                for t in listed[:4] + listed[-4:]:
                    want = bf16(source[t["name"]][2][:64])
                    got = json.loads(self.ok("dump", "m", t["name"], "--json"))["values"]
                    largest = max(map(abs, bf16(source[t["name"]][2][:2 * t["shape"][-1]])))
                    self.assertEqual(len(got), len(want))
                    for a, b in zip(got, want):
                        self.assertLessEqual(abs(a - b), tolerance * largest + 1e-8 * abs(b), (t, q))
                    values += len(got)
                    text = self.ok("dump", "m", t["name"]).decode().split("\n", 1)[1].split()
                    self.assertEqual([float(x) for x in text], got)
        self.fails(3, "dump", "m", "no.such.tensor")
        print(f"covered: {values} values against the source")

    def test_perplexity(self):
        d = checkpoint.llama()
        self.ok("create", "m", "--from", d, "--quiet")
        ref = checkpoint.read_safetensors(os.path.join(d, "reference.safetensors"))[1]
        ids = [v[0] for v in struct.iter_unpack("<q", ref["input_ids"][2])]
        vocab = ref["logits"][1][1]
        logits = struct.unpack(f"<{len(ref['logits'][2]) // 4}f", ref["logits"][2])
        total = 0
        for i in range(len(ids) - 1):
            row = logits[i * vocab:(i + 1) * vocab]
            top = max(row)
            total += math.log(sum(math.exp(x - top) for x in row)) + top - row[ids[i + 1]]
        files = {"ids.txt": " ".join(map(str, ids)).encode(), "ids.u16": struct.pack(f"<{len(ids)}H", *ids), "ids.i32": struct.pack(f"<{len(ids)}i", *ids)}
        for name, data in files.items():
            with open(self.temp(name), "wb") as f:
                f.write(data)
            r = json.loads(self.ok("perplexity", "m", "--ids", self.temp(name), "--float32", "--json", "--quiet"))
            self.assertEqual((r["scored"], r["windows"], r["bytes"]), (len(ids) - 1, 1, 0))
            self.assertAlmostEqual(r["nll_per_token"], total / (len(ids) - 1), delta=1e-5)
            self.assertAlmostEqual(r["perplexity"], math.exp(r["nll_per_token"]), delta=1e-3)
        r = json.loads(self.ok("perplexity", "m", "--ids", self.temp("ids.u16"), "--window", "10", "--json", "--quiet"))
        self.assertEqual(r["scored"], sum(max(0, min(10, len(ids) - i) - 1) for i in range(0, len(ids), 10)))
        self.assertEqual(r["windows"], sum(1 for i in range(0, len(ids), 10) if len(ids) - i > 1))

    # ---- terminals ----

    def test_progress(self):
        src = checkpoint.big(self.temp("big"), layers=3)
        p = self.run_nibble("create", "plain", "--from", src)
        err = p.stderr.decode()
        self.assertNotIn("\r", err)
        self.assertNotIn("\x1b", err)
        for phase in ("reading", "planning", "publishing"):
            self.assertEqual(len([l for l in err.splitlines() if l.startswith(phase)]), 1, err)
        self.assertEqual(self.run_nibble("create", "quiet", "--from", src, "--quiet").stderr, b"")
        with Terminal([harness.NIBBLE, "create", "shown", "--from", src], self.env, columns=60) as t:
            self.assertEqual(t.wait(), 0)
            self.assertIn(b"\r", t.output)
            drawn = re.findall(rb"\r([^\r\n]*)\x1b\[K", t.output)
            self.assertTrue(drawn)
            for d in drawn:
                self.assertLess(len(re.sub(rb"\x1b\[[0-9;]*[A-Za-z]", b"", d).decode()), 60)
            self.assertIn(b"\r\x1b[K", t.output)

    def test_text_is_made_safe_for_a_terminal(self):
        self.tiny()
        escape = str(checkpoint.TOKENS["\u011b"])
        args = ("run", "tiny", "ab", "--raw", "-n", "6", "--logit-bias", f"{escape}=100", "--logit-bias", "3=100", "--temp", "50", "--seed", "3")
        out = self.ok(*args)
        self.assertIn(b"\x1b", out)
        self.assertIn(b"d", out)
        with Terminal([harness.NIBBLE, *args], self.env) as t:
            self.assertEqual(t.wait(), 0)
            self.assertNotIn(b"\x1b", t.output)
            self.assertIn(b"d", t.output)
        evil = self.tiny("evil", config=lambda c: c.update(note="\x1b]0;title\x07\x9b31m"))
        self.assertTrue(evil)
        with Terminal([harness.NIBBLE, "show", "evil", "--file", "config.json"], self.env) as t:
            self.assertEqual(t.wait(), 0)
            self.assertNotIn(b"\x1b", t.output)
        with open(self.temp("bad.jinja"), "w") as f:
            f.write("{{ raise_exception('\x1b[2Jgone') }}")
        with open(self.temp("r.json"), "w") as f:
            f.write('{"messages":[]}')
        self.assertNotIn("\x1b", self.fails(6, "template", self.temp("bad.jinja"), self.temp("r.json")))
        self.assertNotIn("\x1b", self.fails(3, "create", "x", "--from", "/absent/\x1b[31m"))

    def chat(self, *args):
        return Terminal([harness.NIBBLE, "run", "tiny", "--temp", "0", "--logit-bias", NO_ESCAPE, *args], self.env)

    def answer(self, raw, n):
        return json.loads(self.ok("run", "tiny", raw, "--raw", "--temp", "0", "-n", str(n), "--ignore-eos", "--logit-bias", NO_ESCAPE, "--json"))["text"]

    @staticmethod
    def lines(raw):
        """What a terminal's user reads: escape sequences and returns taken away."""
        return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>()][0B]?|\r", b"", raw).decode()

    def test_chat(self):
        self.tiny()
        first = self.answer("ab", 6)
        second = self.answer("ab" + first + "cd", 6)
        with self.chat("-n", "6", "--ignore-eos") as t:
            t.prompt()
            t.send("ab\r")
            t.expect(rb"\(cut: ")
            self.assertIn("\n" + first + "\n", self.lines(t.output[:t.at]))
            t.prompt()
            t.send("cd\r")
            self.assertIn("\n" + second + "\n", self.lines(t.expect(rb"\(cut: ")))
            t.prompt()
            t.send("/undo\r")
            t.prompt()
            t.send("cd\r")
            self.assertIn("\n" + second + "\n", self.lines(t.expect(rb"\(cut: ")))
            t.prompt()
            t.send("/retry\r")
            self.assertIn("\n" + second + "\n", self.lines(t.expect(rb"\(cut: ")))
            t.prompt()
            t.send("/clear\r")
            t.prompt()
            # several lines: a block, and a trailing backslash
            t.send('"""a\r')
            t.prompt(rb"\.\.\. ")
            t.send('b"""\r')
            block = self.answer("a\nb", 6)
            self.assertIn("\n" + block + "\n", self.lines(t.expect(rb"\(cut: ")))
            t.prompt()
            t.send("/clear\r")
            t.prompt()
            t.send("a\\\r")
            t.prompt(rb"\.\.\. ")
            t.send("b\r")
            self.assertIn("\n" + block + "\n", self.lines(t.expect(rb"\(cut: ")))
            t.prompt()
            # history: up twice is the line before the last
            t.send("/system b\r")
            t.prompt()
            t.send("cd\r")
            self.assertIn("\n" + self.answer("bcd", 6) + "\n", self.lines(t.expect(rb"\(cut: ")))
            t.prompt()
            t.send("/set n 3\r")
            t.prompt()
            t.send("/set temp 0.5\r")
            t.prompt()
            t.send("/set temp warm\r")
            t.expect(rb"usage: /set")
            t.prompt()
            t.send("/show\r")
            self.assertIn("temp 0.5", self.lines(t.prompt()))
            t.send("/?\r")
            t.expect(rb"/retry")
            t.prompt()
            t.send("/nothing\r")
            t.expect(rb"unknown command")
            t.prompt()
            t.send("\x1b[A\x1b[A\r")  # /? again
            t.expect(rb"/retry")
            t.prompt()
            t.send("\x04")
            self.assertEqual(t.wait(), 0)
        path = os.path.join(self.temp("state"), "nibble", "history")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with open(path) as f:
            kept = f.read()
        self.assertIn("/nothing", kept)
        with self.chat() as t:  # the next chat knows it
            t.prompt()
            t.send("\x10\x10\r")
            t.expect(rb"unknown command")
            t.prompt()
            t.send("/bye\r")
            self.assertEqual(t.wait(), 0)
        self.env["NIBBLE_NOHISTORY"] = "1"
        os.remove(path)
        with self.chat() as t:
            t.prompt()
            t.send("/bye\r")
            self.assertEqual(t.wait(), 0)
        self.assertFalse(os.path.exists(path))

    def test_chat_signals(self):
        self.ok("create", "tiny", "--from", self.slow(), "--quiet")
        with self.chat("--ignore-eos", "--ctx", "8192", "--temp", "1") as t:
            t.prompt()
            t.send("abcd\r")
            t.expect(rb"[a-h]{8}")
            t.send("\x03")  # stops the answer
            t.prompt(seconds=20)
            t.send("ab\x03")  # drops the line
            t.expect(rb"/bye")
            t.prompt()
            t.send("\x03")
            t.expect(rb"/bye")
            t.prompt()
            t.send("/show\r")
            t.expect(rb"context [1-9]\d* of")
            t.prompt()
            t.send("cd\r")  # still answers
            t.expect(rb"[a-h]{8}")
            t.send("\x03")
            t.prompt(seconds=20)
            t.send('"""ab\r')
            t.prompt(rb"\.\.\. ")
            t.send("\x03")  # drops the block
            t.prompt()
            t.send("\x04")
            self.assertEqual(t.wait(), 0)
        for during in (False, True):
            with self.chat("--ignore-eos", "--ctx", "8192", "--temp", "1") as t:
                t.prompt()
                if during:
                    t.send("abcd\r")
                    t.expect(rb"[a-h]{8}")
                t.process.terminate()
                self.assertEqual(t.wait(), 143)

    def slow(self):
        """A model that is not done before a key is pressed."""
        src = checkpoint.big(self.temp("slow"), layers=3)
        with open(os.path.join(src, "tokenizer_config.json"), "w") as f:
            json.dump({"chat_template": checkpoint.TEMPLATE}, f)
        return src

    def test_chat_without_a_template(self):
        self.tiny(tokenizer=False)
        with self.chat() as t:
            self.assertEqual(t.wait(), 2)
            self.assertIn(b"no chat template", t.output)


if __name__ == "__main__":
    harness.main()
