"""Factors before a product (pre_quant_scale of ModelOpt's AWQ and SmoothQuant): logits against an independent forward of the weights that mean the same."""
import array
import json
import os
import shutil
import subprocess

import checkpoint
import harness

RUN = {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma3_text"}
PYTHON = os.path.join(harness.ROOT, "tests", "python")


class Factors(harness.Case):
    def exports(self, quantized, plain, algo):
        """As ModelOpt: the same bytes; as float: the columns multiplied; other targets have no place for the factors."""
        self.ok("create", "awq", "--from", quantized, "--quiet")
        out = self.temp("out")
        targets = [("modelopt", quantized), ("hub", plain)]
        if algo.startswith("W8A8"):  # ModelOpt's integer files of 8 bits are not written
            self.assertIn("ModelOpt cannot hold", self.fails(6, "export", "awq", out, "--as", "modelopt", "--quiet"))
            targets = targets[1:]
        for target, want in targets:
            self.ok("export", "awq", out, "--as", target, "--dtype", "f32", "--quiet")
            got = checkpoint.read_safetensors(os.path.join(out, "model.safetensors"))[1]
            want = checkpoint.read_safetensors(os.path.join(want, "model.safetensors"))[1]
            for name, (_, _, data) in want.items():
                if target == "hub" and name.endswith("_proj.weight") and name in got:
                    a, b = array.array("f", got[name][2]), array.array("f", data)
                    self.assertTrue(len(a) == len(b) and all(abs(x - y) <= 1e-6 * abs(y) for x, y in zip(a, b)), name)
                elif target == "modelopt" and name.endswith(("_proj.weight", ".weight_scale", ".weight_scale_2", ".pre_quant_scale")):
                    self.assertEqual(got[name][2], data, name)
            self.assertEqual({n for n in want if ".pre_quant" in n}, {n for n in got if ".pre_quant" in n})
            shutil.rmtree(out)
        for target in ("mlx", "compressed-tensors"):
            self.assertIn("pre_quant_scale", self.fails(6, "export", "awq", out, "--as", target, "--quiet"))
        self.ok("rm", "awq")

    def test_pre_quant_scale(self):
        python = harness.python_with_numpy()
        if not python:
            self.skipTest("numpy is not installed")
        done, worst = 0, 0.0
        for d in harness.reference_models():
            if harness.model_type(d) not in RUN:
                continue
            for algo in ("NVFP4_AWQ", "W4A16_AWQ", "W8A8_SQ_PER_CHANNEL"):
                with self.subTest(model=os.path.basename(d), algo=algo):
                    q, f, ref = (self.temp(f"{os.path.basename(d)}-{algo}-{x}") for x in ("q", "f", "ref"))
                    p = subprocess.run([python, os.path.join(PYTHON, "make_pre_quant.py"), d, q, f, "--algo", algo], stdout=subprocess.PIPE, check=True)
                    self.assertGreater(int(p.stdout), 0)
                    subprocess.run([python, os.path.join(PYTHON, "forward.py"), "--source", f, "--ids", os.path.join(d, "reference.safetensors"), "--out", ref], stdout=subprocess.DEVNULL, check=True)
                    r = json.loads(self.ok("compare", q, "--reference", ref, "--threads", 2, "--json"))
                    self.assertTrue(r["a"]["ok"] and r["a"]["decides"])
                    self.assertEqual(r["a"]["greedy_same"], r["a"]["greedy"])
                    self.assertEqual(r["b"]["identity_failures"], 0)
                    self.exports(q, f, algo)
                    worst = max(worst, max(t["rel_rms"] for t in r["a"]["tensors"]))
                    done += 1
        print(f"covered: {done} checkpoints with factors against the independent forward, worst relative RMS {worst:.2e}")


if __name__ == "__main__":
    harness.main()
