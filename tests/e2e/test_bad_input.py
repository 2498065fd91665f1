"""Bad input and bad luck: one clear line, the right exit code, nothing left behind."""
import json
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import time

import checkpoint
import harness


class Bad(harness.Case):
    def listing(self):
        """All files of the store but prepared ones, which any command may leave, and locks."""
        found = {}
        for base, _, files in os.walk(self.store):
            for f in files:
                p = os.path.join(base, f)
                rel = os.path.relpath(p, self.store)
                if not rel.startswith("cache" + os.sep) and not f.endswith(".lock"):
                    found[rel] = os.lstat(p).st_size
        return found

    def refused(self, code, *args, mentions=(), **kw):
        before = self.listing()
        p = self.run_nibble(*args, **kw)
        err = p.stderr.decode(errors="replace")
        self.assertEqual(p.returncode, code, err)
        self.assertEqual(p.stdout, b"")
        lines = [l for l in err.splitlines() if not l.startswith(("warning: ", "note: "))]
        self.assertEqual(len(lines), 1, err)
        self.assertTrue(lines[0].startswith("nibble: "), err)
        for m in mentions:
            self.assertIn(m, lines[0])
        self.assertEqual(self.listing(), before)
        return lines[0]

    # ---- checkpoints ----

    def test_checkpoints(self):
        src, n = checkpoint.llama(), 0
        key = "model.layers.1.mlp.up_proj.weight"

        def overlap(h):
            h[key]["data_offsets"] = [x - 2 for x in h[key]["data_offsets"]]

        def dtype(h):
            h[key]["dtype"] = "Q3_WILD"

        def halved(h):
            h[key]["dtype"] = "F32"

        def shape(h):
            h[key]["shape"] = [2 ** 40, 2 ** 40]

        def beyond(h):
            h[key]["data_offsets"] = [h[key]["data_offsets"][0], 2 ** 50]

        def nan(t):
            d, s, raw = t[key]
            t[key] = d, s, raw[:400] + b"\xc0\x7f" + raw[402:]

        def infinite(t):
            d, s, raw = t[key]
            t[key] = d, s, raw[:400] + b"\x80\x7f" + raw[402:]

        def no_tensor(t):
            del t[key]

        def wrong_shape(t):
            d, s, raw = t[key]
            t[key] = d, [s[0] // 2, s[1]], raw[:len(raw) // 2]

        rows = [
            ("overlapping offsets", dict(header=overlap), 6, ["model.safetensors", key]),
            ("unknown dtype", dict(header=dtype), 6, ["model.safetensors", key, "Q3_WILD"]),
            ("wrong dtype", dict(header=halved), 6, ["model.safetensors", key]),
            ("shape that overflows", dict(header=shape), 6, ["model.safetensors", key]),
            ("offset beyond the file", dict(header=beyond), 6, ["model.safetensors", key]),
            ("NaN in a weight", dict(tensors=nan), 6, [key]),
            ("infinity in a weight", dict(tensors=infinite), 6, [key]),
            ("missing tensor", dict(tensors=no_tensor), 6, [key]),
            ("wrong shape", dict(tensors=wrong_shape), 6, [key]),
            ("unknown architecture", dict(config=lambda c: c.update(architectures=["AbacusForCausalLM"], model_type="abacus")), 6, ["AbacusForCausalLM"]),
            ("no architecture", dict(config=lambda c: (c.pop("architectures"), c.pop("model_type"))), 6, ["config.json"]),
            ("missing hidden_size", dict(config=lambda c: c.pop("hidden_size")), 6, ["hidden_size"]),
            ("missing num_hidden_layers", dict(config=lambda c: c.pop("num_hidden_layers")), 6, ["num_hidden_layers"]),
            ("missing vocab_size", dict(config=lambda c: c.pop("vocab_size")), 6, ["vocab_size"]),
            ("negative layers", dict(config=lambda c: c.update(num_hidden_layers=-3)), 6, ["num_hidden_layers"]),
            ("text where a number belongs", dict(config=lambda c: c.update(hidden_size="wide")), 6, ["hidden_size"]),
            ("a billion layers", dict(config=lambda c: c.update(num_hidden_layers=10 ** 9)), 6, ["num_hidden_layers"]),
            ("heads that do not divide", dict(config=lambda c: c.update(num_key_value_heads=3)), 6, ["num_key_value_heads"]),
        ]
        for label, change, code, mentions in rows:
            with self.subTest(label):
                d = checkpoint.copy(src, self.temp(f"c{n}"), **change)
                n += 1
                line = self.refused(code, "create", "bad", "--from", d, "--quantize", "int8", "--quiet", mentions=mentions)
                self.assertLess(len(line), 600)
        print(f"covered: {n} damaged checkpoints")

    def test_files(self):
        src = checkpoint.llama()
        weights = os.path.join(src, "model.safetensors")
        with open(weights, "rb") as f:
            raw = f.read()
        header = struct.unpack("<Q", raw[:8])[0]
        n = 0
        cases = [("truncated data", raw[:-100]), ("truncated header", raw[:header // 2]), ("seven bytes", raw[:7]), ("empty", b""),
                 ("huge header", struct.pack("<Q", 2 ** 62) + raw[8:]), ("header longer than the file", struct.pack("<Q", len(raw)) + raw[8:]),
                 ("header of 200 MB", struct.pack("<Q", 200 << 20) + b"{" + b" " * 1000), ("not JSON", raw[:8] + b"x" + raw[9:]),
                 ("deep JSON", struct.pack("<Q", 100000) + b"[" * 100000), ("a duplicate tensor", None)]
        for label, data in cases:
            with self.subTest(label):
                d = checkpoint.copy(src, self.temp(f"f{n}"))
                n += 1
                path = os.path.join(d, "model.safetensors")
                if data is None:
                    text = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}'
                    data = struct.pack("<Q", len(text)) + text + b"ab"
                with open(path, "wb") as f:
                    f.write(data)
                self.refused(6, "create", "bad", "--from", d, "--quiet", mentions=["model.safetensors"])
        d = checkpoint.copy(src, self.temp("shards"))
        os.rename(os.path.join(d, "model.safetensors"), os.path.join(d, "model-00001-of-00002.safetensors"))
        _, t = checkpoint.read_safetensors(os.path.join(d, "model-00001-of-00002.safetensors"))
        with open(os.path.join(d, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": {k: f"model-0000{1 + (i > 3)}-of-00002.safetensors" for i, k in enumerate(t)}}, f)
        self.refused(6, "create", "bad", "--from", d, "--quiet", mentions=["model-00002-of-00002.safetensors"])
        with open(os.path.join(d, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": {k: "../../etc/passwd" for k in t}}, f)
        self.refused(6, "create", "bad", "--from", d, "--quiet", mentions=["index.json"])
        for label, text in (("config", "{"), ("config", "[]"), ("config", ""), ("config", "\x00" * 100)):
            with open(os.path.join(d, "config.json"), "w") as f:
                f.write(text)
            self.refused(6, "create", "bad", "--from", d, "--quiet", mentions=["config.json"])
            n += 1
        self.refused(3, "create", "bad", "--from", self.temp("absent"), "--quiet", mentions=["absent"])
        empty = self.temp("empty")
        os.makedirs(empty)
        self.assertIn(self.run_nibble("create", "bad", "--from", empty).returncode, (3, 6))
        for label, data in (("magic", b"GGUX" + b"\0" * 100), ("version", b"GGUF" + struct.pack("<IQQ", 99, 0, 0)), ("counts", b"GGUF" + struct.pack("<IQQ", 3, 2 ** 60, 2 ** 60)), ("short", b"GGUF")):
            path = self.temp(f"{label}.gguf")
            with open(path, "wb") as f:
                f.write(data)
            self.refused(6, "create", "bad", "--from", path, "--quiet", mentions=[f"{label}.gguf"])
            n += 1
        print(f"covered: {n + 4} damaged files")

    # ---- names, stores, disks ----

    def test_names(self):
        for name in ("..", "../x", "a/../b", "a/b/c/d/e", "x:..", ".hidden", "a b", "x/", "", "a" * 100, "x:y:z", "a\nb", "é"):
            with self.subTest(name):
                p = self.run_nibble("create", name, "--from", checkpoint.llama(), "--quiet")
                self.assertEqual(p.returncode, 2, p.stderr)
                self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
                self.assertFalse(os.path.exists(self.store) and self.listing())
                for command in (("run", name, "x"), ("show", name), ("rm", name), ("cp", name, "y"), ("verify", name)):
                    self.assertEqual(self.run_nibble(*command).returncode, 2, command)
        for command in (("run", "absent", "x"), ("show", "absent"), ("rm", "absent"), ("cp", "absent", "y"), ("verify", "absent"), ("dump", "absent"), ("perplexity", "absent", "x"), ("export", "absent", self.temp("out"))):
            self.refused(3, *command, mentions=["absent"])

    def test_unreadable_store(self):
        self.ok("create", "tiny", "--from", checkpoint.llama(), "--quiet")
        blocked = self.temp("file")
        open(blocked, "w").close()
        for command in (("run", "tiny", "--ids", "1"), ("show", "tiny"), ("create", "x", "--from", checkpoint.llama(), "--quiet")):
            p = self.run_nibble(*command, env={"NIBBLE_MODELS": os.path.join(blocked, "store")})
            self.assertIn(p.returncode, (1, 3), p.stderr)
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
        # damaged inside: a blob shorter, longer, gone, a manifest that is no JSON
        blobs = os.path.join(self.store, "blobs")
        largest = max((os.path.join(blobs, b) for b in os.listdir(blobs)), key=os.path.getsize)
        with open(largest, "rb") as f:
            raw = f.read()
        for data, code in ((raw[:-1], 6), (raw + b"x", 6), (b"", 6), (None, 3)):
            os.remove(largest)
            if data is not None:
                with open(largest, "wb") as f:
                    f.write(data)
            for command in (("run", "tiny", "--ids", "1"), ("verify", "tiny", "--quiet")):
                p = self.run_nibble(*command)
                self.assertIn(p.returncode, (code, 6), (command, p.stderr))
                self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
            if data is None:
                open(largest, "wb").close()
        with open(largest, "wb") as f:
            f.write(raw[:-1] + bytes([raw[-1] ^ 1]))
        self.assertEqual(self.run_nibble("verify", "tiny", "--quiet").returncode, 6)
        if os.geteuid() == 0:  # somebody who may not read it
            os.chmod(self.store, 0o700)
            os.chmod(self.tmp.name, 0o755)

            def drop():
                os.setgid(65534)
                os.setuid(65534)
            try:
                p = subprocess.run([harness.NIBBLE, "show", "tiny"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=drop)
            except (PermissionError, subprocess.SubprocessError):
                print("skipped: 1 an unreadable store (the program is not reachable for another user)")
                return
            self.assertEqual(p.returncode, 1, p.stderr)
            self.assertIn(b"Permission denied", p.stderr)
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)

    def test_full_disk(self):
        src = checkpoint.big(self.temp("big"), layers=2, tokenizer=False)
        self.ok("create", "tiny", "--from", checkpoint.llama(), "--quiet")
        before = self.listing()

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000))
        for q in ("none", "nvfp4"):
            p = subprocess.run([harness.NIBBLE, "create", "big", "--from", src, "--quantize", q, "--quiet"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=limit)
            self.assertEqual(p.returncode, 5, p.stderr)
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
            self.assertEqual(self.listing(), before)
        small = self.temp("small")
        os.makedirs(small)
        if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", small], stderr=subprocess.DEVNULL).returncode:
            print("skipped: 1 a full disk (no tmpfs can be mounted); a limit on file sizes stands for it")
        else:
            try:
                store = os.path.join(small, "store")
                p = self.run_nibble("create", "big", "--from", src, "--quiet", env={"NIBBLE_MODELS": store})
                self.assertEqual(p.returncode, 5, p.stderr)
                self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)
                left = [f for base, _, files in os.walk(store) for f in files if not f.endswith(".lock")]
                self.assertEqual(left, [])
            finally:
                subprocess.run(["umount", small], check=True)
        for args in (("list",), ("version", "--json"), ("help",)):
            with open("/dev/full", "wb") as full:
                p = subprocess.run([harness.NIBBLE, *args], env=self.env, stdout=full, stderr=subprocess.PIPE)
            self.assertEqual(p.returncode, 5, p.stderr)
            self.assertEqual(len(p.stderr.splitlines()), 1, p.stderr)

        self.ok("create", "tiny", "--from", checkpoint.copy(checkpoint.llama(), self.temp("tiny"), tokenizer=True), "--quiet")
        for args in (("run", "tiny", "--raw", "ab", "-n", "3"), ("run", "tiny", "--raw", "ab", "-n", "3", "--json"), ("dump", "tiny"), ("show", "tiny")):
            with open("/dev/full", "wb") as full:
                p = subprocess.run([harness.NIBBLE, *args], env=self.env, stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE)
            self.assertEqual((p.returncode, len(p.stderr.splitlines())), (5, 1), (args, p.stderr))

    def test_files_of_ids(self):
        """A list of ids that is not one: which file, which word."""
        self.ok("create", "tiny", "--from", checkpoint.llama(), "--quiet")
        for name, data, said in (("odd.u16", b"\1\0\2", "3 bytes"), ("odd.i32", b"\1\0\0\0\2\0", "6 bytes"), ("minus.i32", struct.pack("<2i", 3, -7), "id 1 is -7"), ("words.txt", b"1 2 three 4", "'three'"),
                                 ("minus.txt", b"1 -2", "'-2'"), ("glued.txt", b"1 2x", "'2x'"), ("large.txt", b"1 99999999999999999999", "'99999999999999999999'"), ("empty.txt", b" \n", "no token ids")):
            with open(self.temp(name), "wb") as f:
                f.write(data)
            for args in (("perplexity", "tiny", "--ids", self.temp(name), "--quiet"), ("run", "tiny", "--ids", self.temp(name))):
                with self.subTest(f"{args[0]} {name}"):
                    err = self.fails(2, *args)
                    self.assertIn(said, err)
                    self.assertIn(name, err)
                    self.assertEqual(len(err.splitlines()), 1, err)

    # ---- signals, pipes, vanishing files ----

    def start(self, *args, stdin=subprocess.DEVNULL, **kw):
        return subprocess.Popen([harness.NIBBLE, *map(str, args)], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env, cwd=harness.ROOT, **kw)

    def finish(self, p, timeout=60):
        out, err = p.communicate(timeout=timeout)
        return p.returncode, out, err.decode(errors="replace")

    def wait_for(self, stream, word, seconds=60):
        """Reads until word; everything read. Empty word: the first byte."""
        got, end = b"", time.time() + seconds
        os.set_blocking(stream.fileno(), False)
        while time.time() < end:
            select.select([stream], [], [], 1)
            try:
                part = os.read(stream.fileno(), 65536)
            except BlockingIOError:
                continue
            got += part
            if not part or (word in got if word else got):
                break
        os.set_blocking(stream.fileno(), True)
        return got

    def wait_for_handler(self, p, sig, seconds=60):
        """Until the program catches sig itself: before that a signal ends it as the system does."""
        end = time.time() + seconds
        while time.time() < end and p.poll() is None:
            with open(f"/proc/{p.pid}/status") as f:
                caught = next(int(line.split()[1], 16) for line in f if line.startswith("SigCgt"))
            if caught >> (sig - 1) & 1 and os.path.realpath(f"/proc/{p.pid}/exe") == os.path.realpath(harness.NIBBLE):
                return
            time.sleep(0.005)

    def long_model(self):
        self.ok("create", "long", "--from", checkpoint.big(self.temp("long"), layers=4), "--quiet")

    def test_blob_truncated_under_a_running_process(self):
        self.long_model()
        ids = self.temp("ids.i32")
        with open(ids, "wb") as f:
            f.write(struct.pack("<40000i", *(i * 7919 % 8000 for i in range(40000))))
        p = self.start("perplexity", "long", "--ids", ids)
        self.wait_for(p.stderr, b"nll")
        blobs = os.path.join(self.store, "blobs")
        for b in sorted((os.path.join(blobs, b) for b in os.listdir(blobs)), key=os.path.getsize)[-8:]:
            os.truncate(b, 4096)
        code, _, err = self.finish(p)
        self.assertEqual(code, 6, err)
        self.assertIn("truncated", err.splitlines()[-1])

    def test_closed_output_pipe(self):
        self.long_model()
        for args in (("run", "long", "--raw", "abcd", "--ignore-eos", "-n", "4000", "--temp", "1"), ("run", "long", "--raw", "ab", "-n", "3", "--json"), ("list",), ("list", "--json"), ("show", "long"), ("dump", "long"), ("help",), ("version",),
                     ("tokenize", "long", "abcd"), ("ps",)):
            with self.subTest(args[0]):
                r, w = os.pipe()
                os.close(r)  # before the program starts: a quick one would have written all already
                p = subprocess.Popen([harness.NIBBLE, *args], stdin=subprocess.DEVNULL, stdout=w, stderr=subprocess.PIPE, env=self.env)
                os.close(w)
                _, err = p.communicate(timeout=60)
                self.assertEqual(p.returncode, 141, err)
                self.assertEqual(err, b"")
        # closed after the first words
        p = self.start("run", "long", "--raw", "abcd", "--ignore-eos", "--temp", "1")
        self.wait_for(p.stdout, b"")
        p.stdout.close()
        self.assertEqual(p.wait(60), 141)
        self.assertEqual(p.stderr.read(), b"")
        p.stderr.close()

    def test_standard_files_closed(self):
        """A program without stdout must not print into its own files."""
        for closed in ((0,), (1,), (2,), (0, 1, 2)):
            def close():
                for fd in closed:
                    os.close(fd)
            name = "m" + "".join(map(str, closed))
            p = subprocess.run([harness.NIBBLE, "create", name, "--from", checkpoint.llama()], env=self.env, preexec_fn=close, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            self.assertEqual(p.returncode, 0, p.stderr)
            self.ok("verify", name, "--deep")

    def test_signals_while_importing(self):
        src = checkpoint.big(self.temp("source"))
        self.ok("create", "tiny", "--from", checkpoint.llama(), "--quiet")
        before = self.listing()
        stopped = 0
        for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for phase in (b"", b"reading", b"planning", b"quantizing", b"verifying", b"publishing"):
                for q in ("int4", "none") if sig == signal.SIGINT else ("int4",):
                    with self.subTest(f"{sig.name} {phase.decode()} {q}"):
                        p = self.start("create", "big", "--from", src, "--quantize", q, "--deep")
                        if phase:
                            self.wait_for(p.stderr, phase)
                        else:
                            time.sleep(0.002)
                        p.send_signal(sig)
                        got, _, err = self.finish(p)
                        if got == 0:  # it was already published
                            self.ok("rm", "big")
                        else:
                            self.assertIn(got, (code, -sig), err)
                            stopped += 1
                        self.assertEqual(self.listing(), before)
        self.assertGreater(stopped, 8)
        self.ok("verify", "tiny", "--deep")
        print(f"covered: {stopped} imports stopped by a signal")

    def test_signals_while_running(self):
        self.long_model()
        before = self.listing()
        ids = self.temp("prompt.txt")
        with open(ids, "w") as f:
            f.write(" ".join(str(i * 31 % 8000) for i in range(8000)))
        many = self.temp("many.i32")
        with open(many, "wb") as f:
            f.write(struct.pack("<400000i", *(i * 31 % 8000 for i in range(400000))))
        endless = ("--ignore-eos", "--temp", "1", "--ctx", "8192")
        for sig, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            for delay in (0.0, 0.003, 0.01, 0.03):  # while it loads
                p = self.start("run", "long", "--raw", "abcd", *endless)
                time.sleep(delay)
                p.send_signal(sig)
                got, _, err = self.finish(p)
                self.assertIn(got, (code, -sig), err)
            p = self.start("run", "long", "--ids", ids, "--chunk", "64", *endless)  # in the prompt, which takes seconds; a chunk is finished first
            self.wait_for_handler(p, sig)
            time.sleep(0.3)
            p.send_signal(sig)
            start = time.time()
            got, _, err = self.finish(p)
            self.assertEqual(got, code, err)
            self.assertLess(time.time() - start, 30)
            for _ in range(3):  # while it decodes
                p = self.start("run", "long", "--raw", "abcd", *endless)
                self.assertTrue(self.wait_for(p.stdout, b""))
                p.send_signal(sig)
                got, _, err = self.finish(p)
                self.assertEqual(got, code, err)
                self.assertEqual(err, "")
            r, w = os.pipe()  # while it waits for its input
            p = self.start("run", "long", stdin=r)
            time.sleep(0.3)
            p.send_signal(sig)
            got, _, err = self.finish(p)
            os.close(r)
            os.close(w)
            self.assertIn(got, (code, -sig), err)
            p = self.start("perplexity", "long", "--ids", many)  # minutes, so that it is not done when the first line comes
            self.wait_for(p.stderr, b"nll")
            p.send_signal(sig)
            self.assertEqual(self.finish(p)[0], code)
            for args in (("bench", "--shape", "s135", "-r", "3"), ("compare", self.temp("long"), "--threads", "1"), ("export", "long", self.temp("out"))):
                for delay in (0.05, 0.4):
                    p = self.start(*args)
                    time.sleep(delay)
                    p.send_signal(sig)
                    got, _, err = self.finish(p, 120)
                    if args[0] == "export" and got == 0:
                        shutil.rmtree(self.temp("out"))
                        continue
                    self.assertIn(got, (code, -sig), (args, err))
                    self.assertFalse(os.path.exists(self.temp("out")))
                    left = [f for f in os.listdir(self.tmp.name) if f.startswith(("nibble-", ".out", "out"))]
                    self.assertEqual(left, [], args)
        self.assertEqual(self.listing(), before)
        self.ok("verify", "long", "--deep")


if __name__ == "__main__":
    harness.main()
