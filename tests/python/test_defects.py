#!/usr/bin/env python3
"""Plants one defect at a time in the checkpoints of make_producers.py: in every one a tensor dropped, a tensor one column short, a NaN; then the rows of
planted_defects.py. A refusal is one line with its code and leaves nothing in the store; what is no defect must give the same values.

    test_defects.py NIBBLE CHECKPOINTS [CASE ...]
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dequant_reference as ref  # noqa: E402
import planted_defects as planted  # noqa: E402

# Dropping or spoiling these changes no weight, or the format does not need them; a NaN in a tensor that stays as it is is found by --deep only.
HARMLESS = re.compile(r"input_scale|input_global_scale|g_idx|q_proj\.bias")
# One scale fewer is another valid grouping (per channel): the tensors win, with a warning.
GROUPING = re.compile(r"^(ct-int\d-g128-sym|modelopt-export-int4) shape .*weight_scale$")
PICK = re.compile(r"layers\.0\.self_attn\.q_proj|layers\.1\.mlp\.experts\.(0\.|gate_up)|layers\.0\.mlp\.switch_mlp\.gate")


def spoil(x, kind, name):
    """The tensor with its defect; None: this defect makes no sense here."""
    if kind == "shape":
        return x[..., :-1].contiguous() if x.ndim and x.shape[-1] > 1 else None
    y = x.clone()
    if name.endswith("_proj.weight") and x.is_floating_point() and x.element_size() > 1:
        return None  # not quantised in this checkpoint
    if x.dtype in (torch.float16, torch.float32) or (x.dtype == torch.bfloat16 and "scale" in name):
        y.view(-1)[0] = float("nan")
    elif x.dtype == torch.float8_e4m3fn:
        y.view(torch.uint8).view(-1)[0] = 0x7F
    elif x.dtype == torch.uint8 and "scale" in name:
        y.view(-1)[0] = 255
    else:
        return None
    return y


def attempt(nibble, folder, tensors, change=None):
    """Exit code, output, files left, and of an import the values."""
    with tempfile.TemporaryDirectory() as tmp:
        src, store = os.path.join(tmp, "src"), os.path.join(tmp, "store")
        os.mkdir(src)
        for file in ("config.json", "hf_quant_config.json"):
            if os.path.exists(os.path.join(folder, file)):
                shutil.copy(os.path.join(folder, file), src)
        written = None
        if change:
            with open(os.path.join(src, "config.json")) as f:
                config = json.load(f)
            written = change(tensors, config, src)
            with open(os.path.join(src, "config.json"), "w") as f:
                json.dump(config, f)
        if written != planted.FILES:
            save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(src, "model.safetensors"))
        r = subprocess.run([nibble, "create", "t", "--from", src, "--quiet"], env=dict(os.environ, NIBBLE_MODELS=store), capture_output=True, text=True)
        left = [f for _, _, names in os.walk(store) for f in names if not f.endswith("lock")]
        values = ref.stored_weights(ref.Store(store, "t")) if change and r.returncode == 0 else None
        return r.returncode, (r.stdout if r.returncode == 0 else r.stderr), left, values


def same_values(values, folder):
    """What differs from the producer's own values, or None."""
    want = load_file(os.path.join(folder, "expected.safetensors"))
    for name, w in want.items():
        if name not in values:
            if name == "lm_head.weight":
                continue  # dropped where the model is tied
            return f"{name} is not stored"
        v = values[name][0].astype(np.float32).reshape(w.shape)
        if not np.abs(v - w.numpy()).max() <= 2.5e-7 * max(w.abs().max().item(), 1e-30):
            return f"{name} has other values"
    return None


def plant(nibble, root, row):
    """None, or why this row fails."""
    case, _, change, outcome = row
    folder = os.path.join(root, case)
    code, text, left, values = attempt(nibble, folder, load_file(os.path.join(folder, "model.safetensors")), change)
    if outcome.startswith("same"):
        if code:
            return f"exit {code}: {text.strip()[-200:]}"
        warning = outcome.partition(": ")[2]
        if warning not in text:
            return f"no warning with '{warning}' in {text[-300:]}"
        return same_values(values, folder)
    if code != 6 or outcome not in text:
        return f"exit {code}, {outcome} expected: {text.strip()[-200:]}"
    if len(text.strip().split("\n")) != 1:
        return f"more than one line: {text}"
    return f"left {left[:3]}" if left else None


def main():
    nibble, root = sys.argv[1:3]
    refused = bad = 0
    rows = [r for r in planted.TABLE if os.path.exists(os.path.join(root, r[0])) and (len(sys.argv) < 4 or r[0] in sys.argv[3:])]
    for row in rows:
        why = plant(nibble, root, row)
        if why:
            print(f"FAILED {row[0]}: {row[1]}: {why}")
            bad += 1
    print(f"{len(rows)} of {len(planted.TABLE)} planted rows tried")
    for case in sys.argv[3:] or sorted(os.listdir(root)):
        folder = os.path.join(root, case)
        if not os.path.exists(os.path.join(folder, "expected.safetensors")) or "-order" in case:
            continue
        t = load_file(os.path.join(folder, "model.safetensors"))
        seen = set()
        for name in sorted(t):
            kind_of = (name.split("proj")[-1], "experts" in name)
            if not PICK.search(name) or kind_of in seen or HARMLESS.search(name):
                continue
            seen.add(kind_of)
            for kind in ("drop", "shape", "nan"):
                m = dict(t)
                x = m.pop(name)
                if kind != "drop":
                    x = spoil(x, kind, name)
                    if x is None:
                        continue
                    m[name] = x
                if GROUPING.match(f"{case} {kind} {name}"):
                    continue
                code, _, left, _ = attempt(nibble, folder, m)
                refused += code == 6 or code == 12
                if code == 0 or left:
                    print(f"FAILED {case} {kind} {name}: exit {code}, left {left[:3]}")
                    bad += 1
    print(f"{refused} defects refused, {len(rows)} planted rows as they should be, {bad} failures" if not bad else f"{bad} failures")
    return 1 if bad or not refused else 0


if __name__ == "__main__":
    sys.exit(main())
