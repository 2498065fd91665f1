#!/usr/bin/env python3
"""An independent forward pass in numpy, for checking nibble's own.

  forward.py --source DIR --out FILE              weights of a hub directory
  forward.py --store ROOT --name NAME --ids REF --out FILE   weights of a stored model, dequantised in double from their definition

Writes a reference file (input_ids, logits, hidden.i, final_hidden, decode_ids, decode_logits) that `nibble compare --reference` reads. It shares no code
with nibble: blobs are parsed and decoded here from the description of the formats (docs/formats.md), in float64; the forward runs in float64 too, so
that what differs from it is nibble's rounding alone. Architectures: llama, mistral, qwen2, qwen3, qwen3_moe, gemma3 (text).
"""
import argparse
import json
import os
import struct

import numpy as np

# ---- containers ----

DTYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "U8": np.uint8, "U32": np.uint32, "I32": np.int32, "F64": np.float64}


def bf16(raw):
    return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)


def read_safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(n))
        data = f.read()
    meta = header.pop("__metadata__", {}) or {}
    out = {}
    for name, t in header.items():
        raw = data[t["data_offsets"][0]:t["data_offsets"][1]]
        a = bf16(raw) if t["dtype"] == "BF16" else np.frombuffer(raw, DTYPES[t["dtype"]])
        out[name] = a.reshape(t["shape"])
    return out, meta


def write_safetensors(path, tensors):
    names = {np.dtype(np.float32): "F32", np.dtype(np.int64): "I64"}
    header, at, blobs = {}, 0, []
    for name, a in sorted(tensors.items(), key=lambda kv: -kv[1].dtype.itemsize):
        a = np.ascontiguousarray(a)
        header[name] = {"dtype": names[a.dtype], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
        blobs.append(a.tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- number formats, from their definition ----

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6])


def e4m3_table():
    t = np.zeros(256)
    for b in range(256):
        e, m = b >> 3 & 15, b & 7
        v = m * 2.0 ** -9 if e == 0 else (8 + m) * 2.0 ** (e - 10)
        t[b] = -v if b & 128 else v
    t[0x7F] = t[0xFF] = np.nan
    return t


E4M3 = e4m3_table()
AFFINE = {"int2": 2, "int3": 3, "int4": 4, "int5": 5, "int6": 6, "int8": 8}
BITS = {"nvfp4": 4, "mxfp4": 4, "mxfp8": 8, "bf16": 16, "f16": 16, "f32": 32, "fp8_tensor": 8, "fp8_channel": 8, "fp8_block": 8, **AFFINE}


def codes_of(words, bits):
    """words: [..., n] uint32, a little-endian bit stream; returns [..., n*32/bits] codes."""
    raw = np.ascontiguousarray(words).view(np.uint8)
    stream = np.unpackbits(raw, axis=-1, bitorder="little")
    stream = stream.reshape(*stream.shape[:-1], -1, bits).astype(np.uint64)
    return (stream << np.arange(bits, dtype=np.uint64)).sum(-1)


def values_of(kind, codes):
    if kind in ("nvfp4", "mxfp4"):
        return E2M1[codes]
    if kind == "mxfp8" or kind.startswith("fp8"):
        return E4M3[codes]
    if kind == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == "f16":
        return codes.astype(np.uint16).view(np.float16).astype(np.float64)
    if kind == "f32":
        return codes.astype(np.uint32).view(np.float32).astype(np.float64)
    return codes.astype(np.float64)


def floats(raw, dtype):
    return {"BF16": lambda: bf16(raw), "F16": lambda: np.frombuffer(raw, np.float16), "F32": lambda: np.frombuffer(raw, np.float32)}[dtype]().astype(np.float64)


def scale_values(kind, raw, dtype):
    if kind == "nvfp4":
        return E4M3[np.frombuffer(raw, np.uint8)]
    if kind.startswith("mx"):
        return 2.0 ** (np.frombuffer(raw, np.uint8).astype(np.float64) - 127)
    return floats(raw, dtype)


SCALE_BYTES = {"BF16": 2, "F16": 2, "F32": 4}


def decode_rows16(data, kind, group, scale_dtype, n, k):
    """Tiles of 16 rows: per group W vectors of 16 words, then 16 scales, then 16 biases."""
    has_scale = kind in ("nvfp4", "mxfp4", "mxfp8") or kind in AFFINE
    g = group if has_scale else 32
    step = 32 if not has_scale or g < 32 else g
    groups = -(-k // step) * step // g
    words = g * BITS[kind] // 32
    each = SCALE_BYTES[scale_dtype] if kind in AFFINE else 1
    record = words * 64 + (16 * each if has_scale else 0) + (16 * each if kind in AFFINE else 0)
    tiles = -(-n // 16)
    raw = np.frombuffer(data, np.uint8)[:tiles * groups * record].reshape(tiles, groups, record)
    w = np.ascontiguousarray(raw[:, :, :words * 64]).view(np.uint32).reshape(tiles, groups, words, 16)
    v = values_of(kind, codes_of(w.transpose(0, 3, 1, 2), BITS[kind])).reshape(tiles, 16, groups, g)
    if has_scale:
        s = scale_values(kind, np.ascontiguousarray(raw[:, :, words * 64:words * 64 + 16 * each]).tobytes(), scale_dtype)
        v = v * s.reshape(tiles, groups, 16).transpose(0, 2, 1)[..., None]
    if kind in AFFINE:
        z = scale_values(kind, np.ascontiguousarray(raw[:, :, words * 64 + 16 * each:]).tobytes(), scale_dtype)
        v = v + z.reshape(tiles, groups, 16).transpose(0, 2, 1)[..., None]
    return v.reshape(tiles * 16, groups * g)[:n, :k]


def decode_rows(codes, scales, biases, kind, group, scale_dtype, n, k):
    v = values_of(kind, codes_of(codes, BITS[kind]))[:, :k]
    if scales is not None:
        v = v * np.repeat(scale_values(kind, scales, scale_dtype).reshape(n, -1), group, axis=1)[:, :k]
    if biases is not None:
        v = v + np.repeat(scale_values(kind, biases, scale_dtype).reshape(n, -1), group, axis=1)[:, :k]
    return v


def decode_rows1(data, kind, group, scale_dtype, n, k):
    """Records: codes of a row, then its scales, then its biases."""
    has_scale = kind in ("nvfp4", "mxfp4", "mxfp8") or kind in AFFINE
    code_bytes = k * BITS[kind] // 8
    each = (SCALE_BYTES[scale_dtype] if kind in AFFINE else 1) * (k // group) if has_scale else 0
    record = code_bytes + each * (2 if kind in AFFINE else 1 if has_scale else 0)
    raw = np.frombuffer(data, np.uint8)[:n * record].reshape(n, record)
    if kind in ("bf16", "f16", "f32"):
        dt = {"bf16": np.uint16, "f16": np.uint16, "f32": np.uint32}[kind]
        return values_of(kind, np.ascontiguousarray(raw).view(dt).astype(np.uint64))
    codes = np.ascontiguousarray(raw[:, :code_bytes])
    if code_bytes % 4:
        codes = np.pad(codes, ((0, 0), (0, -code_bytes % 4)))
    s = np.ascontiguousarray(raw[:, code_bytes:code_bytes + each]).tobytes() if has_scale else None
    z = np.ascontiguousarray(raw[:, code_bytes + each:]).tobytes() if kind in AFFINE else None
    return decode_rows(codes.view(np.uint32), s, z, kind, group, scale_dtype, n, k)


def matrix_from(tensors, meta, key, data, layout):
    kind = meta[key + ".quant_type"]
    group = int(meta.get(key + ".group_size", "32"))
    dtype = meta.get(key + ".scale_dtype", "BF16")
    n, k = json.loads(meta[key + ".shape"])
    if layout == "rows16.1":
        return decode_rows16(data, kind, group, dtype, n, k)
    return decode_rows1(data, kind, group, dtype, n, k)


def load_blob(path, out, counts):
    tensors, meta = read_safetensors(path)
    for name, a in tensors.items():
        layout = meta.get(name + ".layout")
        if layout is None:
            continue
        raw = np.ascontiguousarray(a).view(np.uint8)
        if name + ".shape" in meta:
            w = matrix_from(tensors, meta, name, raw.tobytes(), layout)
            if name + ".global_scale" in tensors:
                w = w * float(tensors[name + ".global_scale"].reshape(-1)[0])
            if name + ".row_scale" in tensors:
                w = w * tensors[name + ".row_scale"].astype(np.float64)[:, None]
            if name + ".pre_quant_scale" in tensors:
                w = w * tensors[name + ".pre_quant_scale"].astype(np.float64)
            out[name] = w
            counts[meta[name + ".quant_type"]] = counts.get(meta[name + ".quant_type"], 0) + 1
        else:
            group_name = name[:-len(".weight")]
            for p in ("gate", "up", "down"):
                key = f"{name}.{p}"
                at = int(meta[key + ".offset"])
                w = np.stack([matrix_from(tensors, meta, key, raw[e, at:].tobytes(), "rows16.1") for e in range(raw.shape[0])])
                scale = tensors.get(f"{group_name}.{p}_proj.global_scale")
                if scale is not None:
                    w = w * scale.astype(np.float64)[:, None, None]
                out[f"{group_name}.{p}_proj"] = w
                counts[meta[key + ".quant_type"]] = counts.get(meta[key + ".quant_type"], 0) + 1
    for name, a in tensors.items():
        companion = name.endswith((".global_scale", ".row_scale", ".block_scale", ".pre_quant_scale"))
        if meta.get(name + ".layout") is None and not companion:
            out[name] = a.astype(np.float64)


def load_store(root, name):
    path = os.path.join(root, "manifests-v2", "local", "library", name, "latest")
    manifest = json.load(open(path))
    weights, counts, config = {}, {}, None
    for layer in manifest["layers"]:
        blob = os.path.join(root, "blobs", layer["digest"].replace(":", "-"))
        if layer["mediaType"].endswith(".tensor"):
            load_blob(blob, weights, counts)
        elif layer.get("name") == "config.json":
            config = json.load(open(blob))
    return weights, config, counts


def load_hub(directory):
    config = json.load(open(os.path.join(directory, "config.json")))
    weights = {}
    for f in sorted(os.listdir(directory)):
        if f.startswith("model") and f.endswith(".safetensors"):
            t, _ = read_safetensors(os.path.join(directory, f))
            weights.update({k: v.astype(np.float64) for k, v in t.items()})
    experts = {}
    for k in [k for k in weights if ".mlp.experts." in k]:
        head, tail = k.split(".mlp.experts.")
        if tail.split(".")[0].isdigit():
            e, proj = tail.split(".")[:2]
            experts.setdefault(f"{head}.mlp.experts.{proj}", {})[int(e)] = weights.pop(k)
    for k, v in experts.items():
        weights[k] = np.stack([v[e] for e in range(len(v))])
    return weights, config


# ---- the forward ----

def rope_frequencies(c, head_dim, kind):
    p = c.get("rope_parameters") or c.get("rope_scaling") or {}
    if kind in p:
        p = p[kind]
    theta = p.get("rope_theta") or c.get("rope_theta") or 10000.0
    if kind == "sliding_attention" and "rope_local_base_freq" in c:
        theta, p = c["rope_local_base_freq"], {}
    f = theta ** (-2.0 * np.arange(head_dim // 2) / head_dim)
    t = p.get("rope_type") or p.get("type") or "default"
    if t == "linear":
        return f / p["factor"]
    if t == "llama3":
        wave, orig = 2 * np.pi / f, p["original_max_position_embeddings"]
        low, high = orig / p["low_freq_factor"], orig / p["high_freq_factor"]
        s = (orig / wave - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
        mixed = f * ((1 - s) / p["factor"] + s)
        return np.where(wave < high, f, np.where(wave > low, f / p["factor"], mixed))
    assert t == "default", t
    return f


def rotate(x, freq):
    angle = (np.arange(x.shape[0], dtype=np.float32)[:, None] * freq.astype(np.float32)).astype(np.float32).astype(np.float64)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


def rms(x, w, eps, plus_one):
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)
    return y * (w + 1 if plus_one else w)


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x / (1 + np.exp(-x))


class Model:
    def __init__(self, weights, config):
        self.w = weights
        c = self.c = config.get("text_config", config)
        self.gemma = c["model_type"].startswith("gemma3")
        self.heads = c["num_attention_heads"]
        self.kv = c.get("num_key_value_heads") or self.heads
        self.dim = c.get("head_dim") or c["hidden_size"] // self.heads
        self.eps = c.get("rms_norm_eps", 1e-6)
        self.layers = c["num_hidden_layers"]

    def slides(self, i):
        c = self.c
        if c.get("layer_types"):
            return c["layer_types"][i] == "sliding_attention"
        if self.gemma:
            return (i + 1) % (c.get("sliding_window_pattern") or c.get("_sliding_window_pattern") or 6) != 0
        if c["model_type"].startswith("qwen"):
            return bool(c.get("use_sliding_window")) and i >= c.get("max_window_layers", 0)
        return c.get("sliding_window") is not None

    def linear(self, x, name):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def attention(self, x, i):
        p, t, c = f"model.layers.{i}.self_attn.", x.shape[0], self.c
        q = self.linear(x, p + "q_proj").reshape(t, self.heads, self.dim)
        k = self.linear(x, p + "k_proj").reshape(t, self.kv, self.dim)
        v = self.linear(x, p + "v_proj").reshape(t, self.kv, self.dim)
        if p + "q_norm.weight" in self.w:
            q = rms(q, self.w[p + "q_norm.weight"], self.eps, self.gemma)
            k = rms(k, self.w[p + "k_norm.weight"], self.eps, self.gemma)
        freq = rope_frequencies(c, self.dim, "sliding_attention" if self.slides(i) else "full_attention")
        q, k = rotate(q, freq), rotate(k, freq)
        scale = (c.get("query_pre_attn_scalar") or self.dim) ** -0.5 if self.gemma else self.dim ** -0.5
        rep = self.heads // self.kv
        s = np.einsum("qhd,khd->hqk", q, np.repeat(k, rep, 1)) * scale
        d = np.arange(t)[:, None] - np.arange(t)[None]
        seen = d >= 0
        if self.slides(i) and c.get("sliding_window"):
            seen &= d < c["sliding_window"]
        s = np.where(seen, s, -np.inf)
        o = np.einsum("hqk,khd->qhd", softmax(s), np.repeat(v, rep, 1)).reshape(t, -1)
        return self.linear(o, p + "o_proj")

    def mlp(self, x, i):
        p, c = f"model.layers.{i}.mlp.", self.c
        act = gelu_tanh if self.gemma else silu
        if p + "experts.gate_proj" not in self.w:
            return self.linear(act(self.linear(x, p + "gate_proj")) * self.linear(x, p + "up_proj"), p + "down_proj")
        prob = softmax(self.linear(x, p + "gate"))
        k = c["num_experts_per_tok"]
        out = np.zeros_like(x)
        for r in range(x.shape[0]):
            best = np.argsort(-prob[r], kind="stable")[:k]
            weight = prob[r][best]
            if c.get("norm_topk_prob"):
                weight = weight / weight.sum()
            for e, we in zip(best, weight):
                g = self.w[p + "experts.gate_proj"][e] @ x[r]
                u = self.w[p + "experts.up_proj"][e] @ x[r]
                out[r] += we * (self.w[p + "experts.down_proj"][e] @ (act(g) * u))
        return out

    def forward(self, ids):
        w, g = self.w, self.gemma
        e = w["model.embed_tokens.weight"]
        h = e[ids]
        if g:
            h = h * float(np.float32(self.c["hidden_size"] ** 0.5))  # in float32, so not rounded to bf16
        hidden = [h]
        for i in range(self.layers):
            p = f"model.layers.{i}."
            n = lambda name, x: rms(x, w[p + name + ".weight"], self.eps, g)
            a = self.attention(n("input_layernorm", h), i)
            if g:
                h = h + n("post_attention_layernorm", a)
                h = h + n("post_feedforward_layernorm", self.mlp(n("pre_feedforward_layernorm", h), i))
            else:
                h = h + a
                h = h + self.mlp(n("post_attention_layernorm", h), i)
            hidden.append(h)
        final = rms(h, w["model.norm.weight"], self.eps, g)
        tied = self.c.get("tie_word_embeddings", g) or "lm_head.weight" not in w
        return hidden, final, final @ (e if tied else w["lm_head.weight"]).T


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--source")
    ap.add_argument("--store")
    ap.add_argument("--name")
    ap.add_argument("--ids", help="a reference file whose input_ids are used")
    ap.add_argument("--decode", type=int, default=4)
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    counts = {}
    if a.store:
        weights, config, counts = load_store(a.store, a.name)
    else:
        weights, config = load_hub(a.source)
    ids = read_safetensors(a.ids or os.path.join(a.source, "reference.safetensors"))[0]["input_ids"].astype(np.int64)
    model = Model(weights, config)
    hidden, final, logits = model.forward(ids)
    out = {"input_ids": ids, "logits": logits.astype(np.float32), "final_hidden": final.astype(np.float32)}
    for i, h in enumerate(hidden):
        out[f"hidden.{i}"] = h.astype(np.float32)
    decode, rows, now = [], [], list(ids)
    best = int(logits[-1].argmax())
    for _ in range(a.decode):
        decode.append(best)
        now.append(best)
        row = model.forward(np.array(now))[2][-1]
        rows.append(row)
        best = int(row.argmax())
    if decode:
        out["decode_ids"] = np.array(decode, np.int64)
        out["decode_logits"] = np.array(rows, np.float32)
    write_safetensors(a.out, out)
    print(json.dumps({"formats": counts}))


if __name__ == "__main__":
    main()
