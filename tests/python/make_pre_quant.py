#!/usr/bin/env python3
"""From a float checkpoint: one as ModelOpt's AWQ and SmoothQuant algorithms write it, with pre_quant_scale before its products, and the float checkpoint that means the same.

  make_pre_quant.py SOURCE QUANTIZED FLOAT --algo NVFP4_AWQ|W4A16_AWQ|W8A8_SQ_PER_CHANNEL

y = W (x * p): QUANTIZED has the codes of W and the vector p, FLOAT has W with its columns multiplied by p, in F32. Matrices that read one vector (q, k, v; gate, up)
share their p, as ModelOpt's export arranges it. Experts and embeddings stay as they are.
"""
import argparse
import json
import os
import shutil
import struct

import numpy as np

from forward import E2M1, E4M3, read_safetensors

SHARED = {"q_proj": "qkv", "k_proj": "qkv", "v_proj": "qkv", "gate_proj": "gate_up", "up_proj": "gate_up"}
GROUP = 32


def nearest(table, x):
    """Index of the nearest entry of a sorted table."""
    i = np.clip(np.searchsorted(table, x), 1, len(table) - 1)
    return i - (np.abs(x - table[i - 1]) <= np.abs(table[i] - x))


def nvfp4(w):
    """(tensors of ModelOpt, value in double)"""
    n, k = w.shape
    m = np.float32(np.abs(w).max() / 2688)
    g = w.reshape(n, k // 16, 16)
    codes = nearest(E4M3[:0x7F], np.abs(g).max(-1) / 6 / float(m)).astype(np.uint8)
    codes[codes == 0] = 1
    s = E4M3[codes] * float(m)
    q = nearest(E2M1[:8], np.abs(g) / s[..., None]) + 8 * (g < 0)
    value = E2M1[q] * s[..., None]
    q = q.reshape(n, k // 2, 2).astype(np.uint8)
    return {"weight": ("U8", q[..., 0] | q[..., 1] << 4), "weight_scale": ("F8_E4M3", codes), "weight_scale_2": ("F32", np.array(m))}, value.reshape(n, k)


def int4(w):
    """Signed codes of two rows in a byte, a float scale for each group of columns."""
    n, k = w.shape
    g = w.reshape(n, k // GROUP, GROUP)
    s = (np.abs(g).max(-1) / 7).astype(np.float16)
    q = np.clip(np.rint(g / s.astype(np.float64)[..., None]), -8, 7).astype(np.int8)
    value = q * s.astype(np.float64)[..., None]
    q = (q.reshape(n, k) & 15).astype(np.uint8)
    return {"weight": ("U8", q[0::2] | q[1::2] << 4), "weight_scale": ("F16", s)}, value.reshape(n, k)


def int8(w):
    """SmoothQuant: signed codes, a float scale for each row."""
    s = (np.abs(w).max(-1) / 127).astype(np.float32)
    q = np.clip(np.rint(w / s.astype(np.float64)[:, None]), -128, 127).astype(np.int8)
    return {"weight": ("I8", q), "weight_scale": ("F32", s)}, q * s.astype(np.float64)[:, None]


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, a) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, a in tensors.values():
            f.write(np.ascontiguousarray(a).tobytes())


ALGORITHMS = {"NVFP4_AWQ": (nvfp4, 16), "W4A16_AWQ": (int4, GROUP), "W8A8_SQ_PER_CHANNEL": (int8, GROUP)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("source")
    ap.add_argument("quantized")
    ap.add_argument("float")
    ap.add_argument("--algo", required=True, choices=list(ALGORITHMS))
    a = ap.parse_args()
    rng, factors, packed, plain, count = np.random.default_rng(5), {}, {}, {}, 0
    quantize, group = ALGORITHMS[a.algo]
    for name, w in read_safetensors(os.path.join(a.source, "model.safetensors"))[0].items():
        base, module = name[:-len(".weight")], name.split(".")[-2] if "." in name else ""
        matrix = w.ndim == 2 and name.endswith("_proj.weight") and ".experts." not in name and w.shape[1] % group == 0 and w.shape[0] % 2 == 0
        if not matrix and name != "lm_head.weight":
            packed[name] = plain[name] = ("F32", w.astype(np.float32))
            continue
        parts, value = quantize(w.astype(np.float64))
        key = (base[:-len(module)], SHARED.get(module, module))
        p = factors.setdefault(key, (2.0 ** rng.uniform(-0.75, 0.75, w.shape[1])).astype(np.float32))
        packed.update({f"{base}.{k}": v for k, v in parts.items()})
        packed[base + ".pre_quant_scale"] = ("F32", p)
        plain[name] = ("F32", (value * p).astype(np.float32))
        count += 1
    for folder, tensors in ((a.quantized, packed), (a.float, plain)):
        os.makedirs(folder)
        for f in os.listdir(a.source):
            if f.endswith(".json"):
                shutil.copy(os.path.join(a.source, f), folder)
        write(os.path.join(folder, "model.safetensors"), tensors)
    path = os.path.join(a.quantized, "config.json")
    config = json.load(open(path))
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": a.algo, "group_size": group}
    json.dump(config, open(path, "w"))
    print(count)


if __name__ == "__main__":
    main()
