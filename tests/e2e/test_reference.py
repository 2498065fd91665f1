"""Every reference model: `nibble compare` in both parts, on every tier, and quantised against an independent forward (tests/python/forward.py)."""
import json
import os
import struct
import subprocess

import harness

MUST_RUN = {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text"}
TYPES = ["bf16", "nvfp4", "mxfp8", "mxfp4", "int8", "int4", "int4:g32", "int8:g32"]
FORWARD = os.path.join(harness.ROOT, "tests", "python", "forward.py")


def header(directory):
    """Shapes of a hub directory's tensors, from the safetensors headers."""
    shapes = {}
    for f in os.listdir(directory):
        if f.startswith("model") and f.endswith(".safetensors"):
            with open(os.path.join(directory, f), "rb") as file:
                n = struct.unpack("<Q", file.read(8))[0]
                shapes.update({k: v["shape"] for k, v in json.loads(file.read(n)).items() if k != "__metadata__"})
    return shapes


def must_quantize(directory, q):
    """Is there a matrix that every policy puts into the type that was asked for? Narrow models may have none whose rows fit its groups."""
    group = {"nvfp4": 16, "mxfp4": 32, "mxfp8": 32}.get(q) or int(q.split(":g")[1] if ":g" in q else 64)
    return any(k.endswith(("q_proj.weight", "o_proj.weight", "gate_proj.weight", "up_proj.weight")) and len(s) == 2 and s[1] % group == 0 and s[0] * s[1] >= 1024
               for k, s in header(directory).items())


def running(case, directory):
    """False for a model that nibble imports but does not run yet; the ones of MUST_RUN never are."""
    p = case.run_nibble("compare", directory, "--threads", "1", "--json")
    text = p.stderr.decode(errors="replace")
    if p.returncode == 6 and ("does not run yet" in text or "is not supported" in text):
        case.assertNotIn(harness.model_type(directory), MUST_RUN, text)
        return False
    return True


class Reference(harness.Case):
    def test_compare(self):
        done, skipped = 0, []
        found = harness.reference_models()
        self.assertTrue(found)
        self.assertTrue(MUST_RUN <= {harness.model_type(d) for d in found} or "NIBBLE_TEST_DATA" in os.environ)
        for d in found:
            if not running(self, d):
                skipped.append(harness.model_type(d))
                continue
            for tier in harness.tiers():
                with self.subTest(model=os.path.basename(d), tier=tier):
                    r = json.loads(self.ok("compare", d, "--tier", tier, "--json"))
                    self.assertTrue(r["a"]["ok"] and r["a"]["decides"])
                    self.assertEqual(r["a"]["greedy_same"], r["a"]["greedy"])
                    self.assertEqual(r["b"]["identity_failures"], 0)
                    self.assertEqual(r["tier"], tier)
                    done += 1
        print(f"covered: {done} comparisons of models and tiers; imported only: {', '.join(skipped) or 'none'}")

    def test_quantized(self):
        python = harness.python_with_numpy()
        if not python:
            self.skipTest("numpy is not installed")
        done, worst = 0, 0.0
        for d in harness.reference_models():
            if harness.model_type(d) not in MUST_RUN:
                continue
            for q in TYPES:
                with self.subTest(model=os.path.basename(d), quantize=q):
                    name = f"m-{q.replace(':', '-')}"
                    self.ok("create", name, "--from", d, "--quantize", q, "--quiet")
                    ref = self.temp("ref.safetensors")
                    p = subprocess.run([python, FORWARD, "--store", self.store, "--name", name, "--ids", os.path.join(d, "reference.safetensors"), "--out", ref], stdout=subprocess.PIPE, check=True)
                    formats = json.loads(p.stdout)["formats"]
                    r = json.loads(self.ok("compare", d, "--quantize", q, "--reference", ref, "--json"))
                    family = q.split(":")[0]
                    if family != "bf16":
                        if must_quantize(d, q):
                            self.assertGreater(r["quantized_tensors"], 0)
                            self.assertGreater(formats.get(family, 0), 0, formats)
                        self.assertEqual(r["quantized_tensors"], sum(n for f, n in formats.items() if f not in ("bf16", "f16", "f32")))
                    worst = max(worst, max(t["rel_rms"] for t in r["a"]["tensors"]))
                    done += 1
                    self.ok("rm", name)
        print(f"covered: {done} quantised models against the independent forward, worst relative RMS {worst:.2e}")


if __name__ == "__main__":
    harness.main()
