#!/usr/bin/env python3
"""Imports every checkpoint of make_producers.py in both layouts and compares each value with what the producer's own package dequantises.

    test_producers.py NIBBLE CHECKPOINTS

NIBBLE is the program. Values must be equal after rounding both to F32; a case may name a larger bound where the package itself rounds.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dequant_reference as ref  # noqa: E402

# NVFP4: (code * scale) * multiplier against code * (scale * multiplier), or a quantiser that multiplies by 448 / amax and back: one unit in the last place
BOUND = {"mlx-nvfp4-moe": 1.3e-7, "ct-nvfp4": 1.3e-7, "ct-nvfp4-moe": 1.3e-7, "ct-mixed": 1.3e-7, "qwen4-modelopt": 1.3e-7, "modelopt-gpt-oss": 1.3e-7, "modelopt-mixed": 1.3e-7,
         "ct-int4-channel-asym": 1.3e-7}  # (q - z) * s against q * s + (-z * s), whose product is rounded where the scale is F32
# Decoded, because no format holds them: rounded to BF16
DECODED = {"fp8-block-64": [], "gptq-4-order": ["--allow-requantize"], "gptq-4-order-v2": ["--allow-requantize"]}


def bound(case):
    if case in DECODED:
        return 2.0 ** -8
    return BOUND.get(case, 1.3e-7 if "nvfp4" in case and case.startswith("modelopt") else 1.3e-7 if case.startswith("modelopt-export-int4") else 0.0)


def check(nibble, root, case, layout, counts):
    with tempfile.TemporaryDirectory() as store:
        env = dict(os.environ, NIBBLE_MODELS=store)
        run = subprocess.run([nibble, "create", "t", "--from", os.path.join(root, case), "--layout", layout, *DECODED.get(case, [])], env=env, capture_output=True, text=True)
        if run.returncode:
            return f"create failed: {run.stdout[-300:]}{run.stderr[-300:]}"
        if "config says" in run.stdout or "the tensors win" in run.stdout:  # the package's own config and tensors agree
            return f"its config contradicts its tensors: {run.stdout[-500:]}"
        stored = ref.stored_weights(ref.Store(store, "t"))
    want, meta = ref.read_safetensors(os.path.join(root, case, "expected.safetensors"))
    quantised, worst, formats = 0, 0.0, set()
    for name, (dtype, shape, raw) in want.items():
        if name not in stored:
            return f"{name} is not stored"
        v, fmt = stored[name]
        w = ref.floats(dtype, raw).reshape(shape)
        if "_proj" in name:
            quantised += fmt not in ("bf16", "f32", "f16")
            formats.add(fmt)
        d = np.abs(v.astype(np.float32) - w.astype(np.float32)).max()
        worst = max(worst, float(d / max(np.abs(w).max(), 1e-30)))
    by = meta.get("by", "definition")
    if worst > bound(case):
        return f"largest difference {worst:.3g} of the largest value, formats {sorted(formats)}, expected by {by}"
    if not quantised and case not in DECODED and not case.endswith("-float"):
        return f"nothing is stored quantised: {sorted(formats)}"
    n = counts.setdefault(by.split(":")[0], [set(), 0])
    n[0].add(case)
    n[1] += len(want)
    print(f"{case} {layout}: {len(want)} tensors equal, {quantised} quantised, {', '.join(sorted(formats))}; {by}")
    return None


def main():
    nibble, root = sys.argv[1:3]
    only = sys.argv[3:]
    cases = only or sorted(d for d in os.listdir(root) if os.path.exists(os.path.join(root, d, "expected.safetensors")))
    bad = 0
    counts = {}
    for c in cases:
        for layout in ("rows16", "standard"):
            why = check(nibble, root, c, layout, counts)
            if why:
                print(f"FAILED {c} {layout}: {why}")
                bad += 1
    for by, (names, tensors) in sorted(counts.items()):
        print(f"values from {by}: {len(names)} checkpoints, {tensors} tensors in two layouts")
    packages = sum(len(n) for by, (n, _) in counts.items() if by != "definition")
    print(f"{len(cases)} checkpoints, {packages} against their producers' packages, {bad} failures")
    return 1 if bad or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
