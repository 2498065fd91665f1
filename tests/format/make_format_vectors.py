#!/usr/bin/env python3
"""Writes tests/format/format_vectors.h with two kinds of evidence that do not come from our own code:

quantised   the quantisers of specs/create.md 4.4 to 4.7 written a second time, in numpy, with ml_dtypes' rounding to E2M1 and
            E4M3: the bytes that nb_quantize_rows must give for the same weights;
foreign     what MLX's own mx.quantize packs and mx.dequantize gives back: our standard layout must read the same values.

Run it with a Python that has numpy, ml_dtypes and mlx[cpu]; the header is committed, so the tests need none of them."""
import os
import sys

import ml_dtypes
import mlx.core as mx
import numpy as np

F = np.float32
E4, E2, BF = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.bfloat16
ROWS, K = 1, 256
rng = np.random.default_rng(20261130)
w = (rng.standard_normal((ROWS, K)) * 0.03).astype(F)
w[0, 32:64] = 0
w[0, 96:128] = 0.0125
w[0, 200] = 1.5
w[0, 128:160] *= F(1e-5)

out = open(os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "format_vectors.h"), "w")


def array(kind, name, values, fmt=str):
    out.write(f"static const {kind} {name}[] = {{" + ",".join(fmt(v) for v in values) + "};\n")


def floats(name, x):
    array("uint32_t", name, np.ascontiguousarray(x, dtype=F).ravel().view(np.uint32), hex)


def stream(codes, bits):
    """Codes as a little-endian bit stream, row by row."""
    b = (codes.reshape(ROWS, -1)[..., None].astype(np.uint8) >> np.arange(bits)) & 1
    return np.packbits(b.astype(np.uint8).reshape(ROWS, -1), axis=-1, bitorder="little").ravel()


def nvfp4(w):
    a = np.abs(w.reshape(ROWS, -1, 16)).max(-1)
    enc = F(2688) / np.abs(w).max()
    s = np.minimum((a / F(6)) * enc, F(448)).astype(E4).view(np.uint8).copy()
    s[(a > 0) & (s == 0)] = 1
    v = s.view(E4).astype(F)
    with np.errstate(divide="ignore"):
        r = np.where(v == 0, F(0), enc / v).astype(F)
    q = (w.reshape(ROWS, -1, 16) * r[..., None]).astype(F).astype(E2)
    return stream(q.view(np.uint8) & 15, 4), s.ravel(), []


def mx_blocks(w, bits):
    x = w.reshape(ROWS, -1, 32)
    a = np.abs(x).max(-1)
    u = (a / F(6 if bits == 4 else 448)).astype(F).view(np.uint32)
    e = np.where(a == 0, 127, (u >> 23) + ((u & 0x7fffff) != 0)).astype(np.uint8)
    y = (x / np.exp2(e.astype(np.float64) - 127)[..., None]).astype(F)
    q = y.astype(E2) if bits == 4 else np.clip(y, F(-448), F(448)).astype(E4)
    return stream(q.view(np.uint8) & (15 if bits == 4 else 255), bits), e.ravel(), []


def affine(w, bits, group, dtype):
    x = w.reshape(ROWS, -1, group)
    lo, hi, n = x.min(-1), x.max(-1), F(2**bits - 1)
    d = np.maximum((hi - lo) / n, F(1e-7))
    low = np.abs(lo) > np.abs(hi)
    s, edge = np.where(low, d, -d).astype(F), np.where(low, lo, hi)
    q0 = np.rint(edge / s)
    with np.errstate(divide="ignore", invalid="ignore"):
        s = np.where(q0 != 0, edge / q0, s).astype(dtype)
    z = np.where(q0 != 0, edge, F(0)).astype(dtype)
    q = np.clip(np.rint((x - z.astype(F)[..., None]) / s.astype(F)[..., None]), 0, n)
    return stream(q.astype(np.uint8), bits), s.ravel().view(np.uint8), z.ravel().view(np.uint8)


def main():
    out.write("/* Made by make_format_vectors.py: bytes of an independent quantiser, and MLX's own packing with its values. */\n")
    out.write("/* clang-format off */\n")
    out.write(f"enum {{ VECTOR_ROWS = {ROWS}, VECTOR_K = {K} }};\n")
    floats("vector_weights", w)
    cases = [("nvfp4", "NB_DT_F8_E4M3", nvfp4(w)), ("mxfp4", "NB_DT_F8_E8M0", mx_blocks(w, 4)), ("mxfp8", "NB_DT_F8_E8M0", mx_blocks(w, 8))]
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            for name, dtype in (("NB_DT_BF16", BF), ("NB_DT_F32", F)):
                cases.append((f"int{bits}:g{group}", name, affine(w, bits, group, dtype)))
    for i, (_, _, parts) in enumerate(cases):
        for part, x in zip("csz", parts):
            if len(x):
                array("uint8_t", f"q{i}_{part}", np.ascontiguousarray(x).view(np.uint8).ravel())
    out.write("static const struct { const char *type; uint8_t scale_dtype; const uint8_t *codes, *scales, *biases; } quantised[] = {\n")
    for i, (name, dtype, parts) in enumerate(cases):
        out.write(f"    {{\"{name}\", {dtype}, q{i}_c, q{i}_s, {f'q{i}_z' if len(parts[2]) else 'NULL'}}},\n")
    out.write("};\n")
    foreign = [("nvfp4", dict(mode="nvfp4", group_size=16, bits=4)), ("mxfp4", dict(mode="mxfp4", group_size=32, bits=4)),
               ("mxfp8", dict(mode="mxfp8", group_size=32, bits=8))]
    foreign += [(f"int{b}:g{g}", dict(group_size=g, bits=b)) for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128)]
    for i, (_, args) in enumerate(foreign):
        parts = mx.quantize(mx.array(w), **args)
        for part, x in zip("csz", parts):
            array("uint8_t", f"m{i}_{part}", np.array(x).ravel().view(np.uint8))
        floats(f"m{i}_v", np.array(mx.dequantize(*parts, **args).astype(mx.float32)))
    out.write("static const struct { const char *type; const uint8_t *codes, *scales, *biases; const uint32_t *values; } foreign[] = {\n")
    for i, (name, _) in enumerate(foreign):
        out.write(f"    {{\"{name}\", m{i}_c, m{i}_s, {f'm{i}_z' if name.startswith('int') else 'NULL'}, m{i}_v}},\n")
    out.write("};\n")


main()
