#!/usr/bin/env python3
"""Dequantises stored models and source checkpoints in double precision, from the definitions alone, and compares them.

Independent of the C code: formats follow specs/create.md 3 and 4, layouts follow design.md 3. Needs numpy; GGUF sources need the gguf package.

    dequant_reference.py STORE NAME                      list tensors of a stored model
    dequant_reference.py STORE NAME --source PATH        compare with a directory or GGUF file; exit 1 on a difference
    dequant_reference.py STORE NAME --out FILE           write the dequantised weights as F32 safetensors under their hub names

With --source, a tensor whose import was lossless must be equal in every value (after rounding both to F32); a quantised one must lie within the bound
of its format (relative RMS), given by --bound-scale times the figures of specs/create.md 4.
"""
import argparse
import json
import os
import re
import struct
import sys

import numpy as np

E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6])


def e4m3(b):
    b = np.asarray(b, np.uint8).astype(np.int64)
    s, e, m = b >> 7, (b >> 3) & 15, b & 7
    v = np.where(e == 0, m * 2.0 ** -9, (8 + m) * 2.0 ** (e - 10.0))
    v = np.where((b & 0x7F) == 0x7F, np.nan, v)
    return np.where(s == 1, -v, v)


def e5m2(b):
    return (np.asarray(b, np.uint8).astype(np.uint16) << 8).view(np.float16).astype(np.float64)


def e8m0(b):
    b = np.asarray(b, np.uint8).astype(np.float64)
    return np.where(b == 255, np.nan, 2.0 ** (b - 127))


def bf16(b):
    return (np.asarray(b, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def floats(dtype, raw):
    raw = np.frombuffer(raw, np.uint8)
    if dtype == "F32":
        return raw.view("<f4").astype(np.float64)
    if dtype == "F16":
        return raw.view("<f2").astype(np.float64)
    if dtype == "BF16":
        return bf16(raw.view("<u2"))
    if dtype == "F64":
        return raw.view("<f8").astype(np.float64)
    if dtype in ("F8_E4M3", "F8_E4M3FN"):
        return e4m3(raw)
    if dtype == "F8_E5M2":
        return e5m2(raw)
    if dtype == "F8_E8M0":
        return e8m0(raw)
    return None


# ---- containers ----

def read_safetensors(path):
    """name -> (dtype, shape, bytes); and the metadata."""
    with open(path, "rb") as f:
        n, = struct.unpack("<Q", f.read(8))
        head = json.loads(f.read(n))
        data = f.read()
    meta = head.pop("__metadata__", None) or {}
    return {k: (v["dtype"], v["shape"], data[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in head.items()}, meta


def write_safetensors(path, tensors):
    head, off = {}, 0
    for k, a in tensors.items():
        head[k] = {"dtype": "F32", "shape": list(a.shape), "data_offsets": [off, off + a.size * 4]}
        off += a.size * 4
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a, "<f4").tobytes())


class Store:
    def __init__(self, root, name):
        self.root = root
        tag = "latest"
        if ":" in name:
            name, tag = name.rsplit(":", 1)
        parts = name.split("/")
        parts = ["local", "library"][:3 - len(parts)] + parts
        link = os.path.join(root, "manifests-v2", *parts, tag)
        with open(link, "rb") as f:
            self.manifest = json.loads(f.read())

    def path(self, layer):
        return os.path.join(self.root, "blobs", layer["digest"].replace(":", "-"))

    def layers(self, media):
        return [l for l in self.manifest["layers"] if l["mediaType"].endswith(media)]

    def config(self, name):
        for l in self.manifest["layers"]:
            if l.get("name") == name:
                with open(self.path(l), "rb") as f:
                    return f.read()
        return None


# ---- codes of one row-major matrix ----

BITS = {"f32": 32, "f16": 16, "bf16": 16, "nvfp4": 4, "mxfp4": 4, "mxfp8": 8, "int2": 2, "int3": 3, "int4": 4, "int5": 5, "int6": 6, "int8": 8,
        "fp8_tensor": 8, "fp8_channel": 8, "fp8_block": 8}
SCALE_BYTES = {"nvfp4": 1, "mxfp4": 1, "mxfp8": 1}


def stream(codes, bits):
    """uint8 [n, bytes] -> unsigned codes [n, bytes*8/bits], element 0 in the lowest bits."""
    if bits == 8:
        return codes.astype(np.int64)
    if bits == 4:
        out = np.empty((codes.shape[0], codes.shape[1] * 2), np.int64)
        out[:, 0::2] = codes & 15
        out[:, 1::2] = codes >> 4
        return out
    b = np.unpackbits(codes, axis=1, bitorder="little")
    b = b[:, :b.shape[1] // bits * bits].reshape(codes.shape[0], -1, bits)
    return (b.astype(np.int64) << np.arange(bits)).sum(2)


def decode(fmt, group, scale_dtype, codes, scales, biases, m=1.0, row_scale=None, block_scale=None):
    """codes uint8 [n, bytes]; scales, biases uint8 [n, bytes]. Values in double."""
    n = codes.shape[0]
    if fmt in ("f32", "f16", "bf16"):
        return floats(fmt.upper(), codes.tobytes()).reshape(n, -1)
    q = stream(codes, BITS[fmt])
    if fmt.startswith("fp8"):
        v = e4m3(q.astype(np.uint8))
        if fmt == "fp8_tensor":
            return v * m
        if fmt == "fp8_channel":
            return v * row_scale[:, None]
        full = np.repeat(np.repeat(block_scale, 128, 0)[:n], 128, 1)[:, :v.shape[1]]
        return v * full
    if fmt.startswith("int"):
        s = floats(scale_dtype, scales.tobytes()).reshape(n, -1)
        z = floats(scale_dtype, biases.tobytes()).reshape(n, -1)
        return q * np.repeat(s, group, 1)[:, :q.shape[1]] + np.repeat(z, group, 1)[:, :q.shape[1]]
    if fmt == "nvfp4":
        return E2M1[q] * np.repeat(e4m3(scales), 16, 1)[:, :q.shape[1]] * m
    s = np.repeat(e8m0(scales), 32, 1)[:, :q.shape[1]]
    return (E2M1[q] if fmt == "mxfp4" else e4m3(q.astype(np.uint8))) * s


def scale_bytes(fmt, scale_dtype):
    if fmt in SCALE_BYTES:
        return 1
    if fmt.startswith("int"):
        return 4 if scale_dtype == "F32" else 2
    return 0


# ---- layouts ----

def tile_group(fmt, group):
    return group if fmt in SCALE_BYTES or fmt.startswith("int") else 32


def padded_k(fmt, group, k):
    return -(-k // 32) * 32


def rows16(raw, n, k, fmt, group, scale_dtype):
    """Packed bytes -> codes, scales, biases row-major."""
    g = tile_group(fmt, group)
    kp = padded_k(fmt, group, k)
    words = g * BITS[fmt] // 32
    sb = scale_bytes(fmt, scale_dtype)
    nb = sb if fmt.startswith("int") else 0
    block = words * 64 + 16 * (sb + nb)
    tiles, groups = -(-n // 16), kp // g
    a = np.frombuffer(raw, np.uint8)[:tiles * groups * block].reshape(tiles, groups, block)
    c = a[:, :, :words * 64].reshape(tiles, groups, words, 16, 4).transpose(0, 3, 1, 2, 4).reshape(tiles * 16, -1)
    out = [c[:n, :k * BITS[fmt] // 8]]
    for i in range(2):
        w = (sb, nb)[i]
        at = words * 64 + 16 * sb * i
        s = a[:, :, at:at + 16 * w].reshape(tiles, groups, 16, w).transpose(0, 2, 1, 3).reshape(tiles * 16, -1)
        out.append(s[:n, :-(-k // g) * w] if w else None)
    return out


def rows1(raw, n, k, fmt, group, scale_dtype):
    g = tile_group(fmt, group)
    sb = scale_bytes(fmt, scale_dtype)
    a = np.frombuffer(raw, np.uint8).reshape(n, -1)
    c = k * BITS[fmt] // 8
    s = k // g * sb
    return [a[:, :c], a[:, c:c + s] if s else None, a[:, c + s:c + 2 * s] if s and fmt.startswith("int") else None]


def packed(tensors, meta, name, prefix, raw, layout, companions, expert=None):
    fmt, group = meta[prefix + ".quant_type"], int(meta[prefix + ".group_size"])
    sd = meta.get(prefix + ".scale_dtype", "")
    n, k = json.loads(meta[prefix + ".shape"])
    parts = (rows16 if layout.startswith("rows16") else rows1)(raw, n, k, fmt, group, sd)

    def companion(suffix):
        t = tensors.get(companions + suffix)
        if t is None:
            return None
        v = floats(t[0], t[2]).reshape(t[1])
        return v[expert] if expert is not None else v
    m = companion(".global_scale")
    v = decode(fmt, group, sd, *parts, m=1.0 if m is None else float(np.ravel(m)[0]), row_scale=companion(".row_scale"), block_scale=companion(".block_scale"))
    p = companion(".pre_quant_scale")
    return (v if p is None else v * p), fmt


def standard(tensors, meta, name):
    """A tensor of a standard blob, with any leading axes."""
    dtype, shape, raw = tensors[name]
    scale = tensors.get(name + ".scale")
    fmt = meta.get(name + ".quant_type", meta.get("quant_type"))
    fp8 = fmt and fmt.startswith("fp8")
    if dtype not in ("U32", "U8") or (scale is None and not fp8):
        v = floats(dtype, raw)
        return (None if v is None else v.reshape(shape)), dtype.lower()
    group = int(meta.get(name + ".group_size", meta.get("group_size", "0")))
    rows = int(np.prod(shape[:-1]))
    codes = np.frombuffer(raw, np.uint8).reshape(rows, -1)
    sc = np.frombuffer(scale[2], np.uint8).reshape(rows, -1) if scale else None
    b = tensors.get(name + ".bias")
    bi = np.frombuffer(b[2], np.uint8).reshape(rows, -1) if b else None
    if not group and scale:
        group = codes.shape[1] * 8 // BITS[fmt] // scale[1][-1]
    k = codes.shape[1] * 8 // BITS[fmt]

    def comp(suffix, count):
        t = tensors.get(name + suffix)
        return None if t is None else floats(t[0], t[2]).reshape(count, -1)
    lead = shape[0] if len(shape) == 3 else 1
    per = rows // lead
    g, rs, bs = comp(".global_scale", lead), comp(".row_scale", lead), comp(".block_scale", lead)
    out = []
    for e in range(lead):
        r = slice(e * per, (e + 1) * per)
        out.append(decode(fmt, group, scale[0] if scale else "", codes[r], None if sc is None else sc[r], None if bi is None else bi[r], m=1.0 if g is None else float(g[e, 0]),
                          row_scale=None if rs is None else rs[e], block_scale=None if bs is None else bs[e].reshape(-1, -(-k // 128))))
    v = np.stack(out) if len(shape) == 3 else out[0]
    return v, fmt


SUFFIXES = (".scale", ".bias", ".global_scale", ".row_scale", ".block_scale", ".pre_quant_scale")


def stored_weights(store):
    """hub name -> (values in double [..], format). Experts of a bank come as GROUP.<e>.<proj>.weight."""
    out = {}
    for layer in store.layers("image.tensor"):
        tensors, meta = read_safetensors(store.path(layer))
        for name, (dtype, shape, raw) in tensors.items():
            layout = meta.get(name + ".layout")
            if layout and len(shape) == 2:
                group = name[:-len(".weight")]
                for key in ("gate", "up", "down"):
                    if name + "." + key + ".quant_type" not in meta:
                        continue
                    off = int(meta[f"{name}.{key}.offset"])
                    for e in range(shape[0]):
                        rec = raw[e * shape[1] + off:(e + 1) * shape[1]]
                        v, fmt = packed(tensors, meta, name, f"{name}.{key}", rec, layout, f"{group}.{key}_proj", e)
                        out[f"{group}.{e}.{key}_proj.weight"] = (v, fmt)
            elif layout:
                out[name] = packed(tensors, meta, name, name, raw, layout, name)
            elif re.search(r"\.experts\.\w+_proj\.bias$", name):
                out[name] = (floats(dtype, raw).reshape(shape), dtype.lower())
            elif any(name.endswith(s) and name[:-len(s)] in tensors for s in SUFFIXES) or (name.endswith(SUFFIXES) and layer["name"] != name):
                continue
            else:
                v, fmt = standard(tensors, meta, name)
                if v is not None and v.ndim == 3 and re.search(r"experts\.\w+_proj\.weight$", name):
                    base, proj = name.rsplit(".", 2)[0], name.rsplit(".", 2)[1]
                    for e in range(v.shape[0]):
                        out[f"{base}.{e}.{proj}.weight"] = (v[e], fmt)
                elif v is not None:
                    out[name] = (v, fmt)
    return out


# ---- sources ----

GGUF_BLOCK = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
              "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
              "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate", "post_ffw_norm": "post_feedforward_layernorm"}


def gguf_source(path):
    import gguf
    r = gguf.GGUFReader(path)
    arch = bytes(r.fields["general.architecture"].parts[-1]).decode()
    block = dict(GGUF_BLOCK)
    if arch == "gemma3":
        block.update({"post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm"})

    def number(key, default=None):
        f = r.fields.get(f"{arch}.{key}")
        return int(f.parts[-1][0]) if f else default
    heads, hidden = number("attention.head_count"), number("embedding_length")
    hd = number("attention.key_length", number("rope.dimension_count", hidden // heads))
    out = {}
    for t in r.tensors:
        v = gguf.dequantize(t.data, t.tensor_type).astype(np.float64)
        v = v.reshape([int(d) for d in reversed(t.shape)])
        part, suffix = t.name.rsplit(".", 1)
        if part.startswith("blk."):
            _, n, p = part.split(".", 2)
            m = re.match(r"ffn_(gate|up|down)_exps", p)
            if m:
                for e in range(v.shape[0]):
                    out[f"model.layers.{n}.mlp.experts.{e}.{m[1]}_proj.weight"] = v[e]
                continue
            if p not in block:
                continue
            name = f"model.layers.{n}.{block[p]}.{suffix}"
            if arch == "llama" and p in ("attn_q", "attn_k"):
                w = v.reshape(v.shape[0] // hd, hd // 2, 2, -1)
                v = w.transpose(0, 2, 1, 3).reshape(v.shape)
        else:
            name = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}.get(part)
            if not name:
                continue
            name += "." + suffix
        out[name] = v
    return out


def hub_files(path):
    index = os.path.join(path, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index) as f:
            return sorted(set(json.load(f)["weight_map"].values()))
    return sorted(f for f in os.listdir(path) if f.startswith("model") and f.endswith(".safetensors"))


def float_source(path):
    out = {}
    for f in hub_files(path):
        for name, (dtype, shape, raw) in read_safetensors(os.path.join(path, f))[0].items():
            v = floats(dtype, raw)
            if v is not None:
                out[name] = v.reshape(shape)
    with open(os.path.join(path, "config.json")) as f:
        gpt_oss = json.load(f).get("model_type") == "gpt_oss"
    for name in [n for n in out if re.search(r"\.experts\.(gate_up|gate|up|down)_proj(\.weight)?$", n) and out[n].ndim == 3]:
        split_experts(out, name, gpt_oss)
    return out


def split_experts(out, name, gpt_oss):
    """A stacked tensor [E, rows, k] becomes one matrix per expert. gpt-oss stores [E, k, rows], gate in even rows and up in odd ones."""
    v = out.pop(name)
    if gpt_oss:
        v = v.transpose(0, 2, 1)
    base, proj = re.match(r"(.*\.experts)\.(\w+?)_proj", name).groups()
    for e in range(v.shape[0]):
        if proj != "gate_up":
            out[f"{base}.{e}.{proj}_proj.weight"] = v[e]
            continue
        half = v.shape[1] // 2
        out[f"{base}.{e}.gate_proj.weight"] = v[e][0::2] if gpt_oss else v[e][:half]
        out[f"{base}.{e}.up_proj.weight"] = v[e][1::2] if gpt_oss else v[e][half:]


# relative RMS on Gaussian data (specs/create.md 4)
BOUND = {"nvfp4": .0951, "mxfp4": .1154, "mxfp8": .0265, "int2": .424, "int3": .207, "int4": .1001, "int5": .0487, "int6": .024, "int8": .0059, "bf16": .00166, "f16": .0005, "f32": 1e-7}


def compare(stored, source, scale, lossless):
    bad = quantised = exact = 0
    for name, want in sorted(source.items()):
        if name not in stored:
            continue
        got, fmt = stored[name]
        got = np.asarray(got).reshape(want.shape)
        if np.array_equal(got.astype(np.float32), want.astype(np.float32)):
            exact += 1
            continue
        quantised += 1
        rms = float(np.sqrt(((got - want) ** 2).sum() / max((want ** 2).sum(), 1e-300)))
        if fmt not in BOUND or lossless or rms > scale * BOUND[fmt]:
            print(f"{name}: {fmt}: relative RMS {rms:.6g}")
            bad += 1
    missing = sorted(set(source) - set(stored))
    print(f"{exact} tensors equal, {quantised} quantised, {bad} out of bounds, {len(missing)} of the source not stored")
    for m in missing[:10]:
        print("  not stored:", m)
    return bad


def main():
    p = argparse.ArgumentParser()
    p.add_argument("store")
    p.add_argument("name")
    p.add_argument("--source")
    p.add_argument("--out")
    p.add_argument("--bound-scale", type=float, default=1.6)
    p.add_argument("--lossless", action="store_true", help="no tensor may differ")
    a = p.parse_args()
    stored = stored_weights(Store(a.store, a.name))
    if a.out:
        write_safetensors(a.out, {k: v.astype(np.float32) for k, (v, _) in stored.items()})
    if not a.source:
        for k, (v, fmt) in sorted(stored.items()):
            print(k, list(v.shape), fmt, f"{np.abs(v).max():.6g}")
        return 0
    if os.path.isdir(a.source):
        source = float_source(a.source)
    else:
        source = gguf_source(a.source)
    return 1 if compare(stored, source, a.bound_scale, a.lossless) else 0


if __name__ == "__main__":
    sys.exit(main())
