#!/usr/bin/env python3
"""Writes tests/format/ggml_vectors.h: random blocks of every ggml type that nibble decodes, and what the `gguf` package's own
dequantisation makes of them. Run it with a Python that has gguf and numpy; the header is committed, so the tests need neither."""
import os
import sys

import numpy as np
from gguf import GGMLQuantizationType as T, GGML_QUANT_SIZES, dequantize

rng = np.random.default_rng(20261130)


def half(lo, hi, n):
    """Finite F16 values as bytes, log-uniform in magnitude, both signs."""
    v = np.exp2(rng.uniform(lo, hi, n)) * rng.choice([-1.0, 1.0], n)
    return v.astype(np.float16).view(np.uint8).reshape(n, 2)


# where the F16 fields of a block lie
HALVES = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
          T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0]}
TYPES = [T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q2_K, T.Q3_K, T.Q4_K, T.Q5_K, T.Q6_K, T.IQ4_NL,
         T.IQ4_XS, T.MXFP4, T.NVFP4]


def blocks(t):
    elements, size = GGML_QUANT_SIZES[t]
    n = {1: 32, 32: 4, 64: 3}.get(elements, 2)
    b = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for at in HALVES.get(t, []):
        b[:, at:at + 2] = half(-14, 4, n)
    if t == T.MXFP4:
        b[:, 0] = [16, 120, 131, 240]
    if t == T.NVFP4:
        b[:, :4] = rng.integers(0, 0x7f, (n, 4))
    if elements == 1:
        v = rng.standard_normal(n).astype(np.float32)
        b = v.view(np.uint8) if t == T.F32 else v.astype(np.float16).view(np.uint8) if t == T.F16 else (v.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        b = b.reshape(1, -1)
    return b


def main():
    out = open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "ggml_vectors.h"), "w")
    out.write("/* Made by make_ggml_vectors.py: blocks of ggml types and the F32 patterns of their dequantisation by the gguf package. */\n")
    out.write("/* clang-format off */\n")
    for t in TYPES:
        b = blocks(t)
        f = dequantize(b, t).astype(np.float32).ravel()
        out.write(f"static const uint8_t {t.name.lower()}_blocks[] = {{" + ",".join(str(x) for x in b.ravel()) + "};\n")
        out.write(f"static const uint32_t {t.name.lower()}_floats[] = {{" + ",".join(hex(x) for x in f.view(np.uint32)) + "};\n")
    out.write("static const struct { uint32_t type; const uint8_t *blocks; const uint32_t *floats; size_t bytes, count; } ggml_vectors[] = {\n")
    for t in TYPES:
        n = t.name.lower()
        out.write(f"    {{{int(t)}, {n}_blocks, {n}_floats, sizeof {n}_blocks, sizeof {n}_floats / 4}},\n")
    out.write("};\n")


main()
