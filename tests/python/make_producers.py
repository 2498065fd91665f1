#!/usr/bin/env python3
"""Makes one tiny checkpoint per producer of quantised weights, with that producer's own package where it is installed, and what its own dequantisation gives.

    make_producers.py OUTDIR [CASE ...]

Each case is a folder: config.json, model.safetensors, and expected.safetensors (F32, hub names; experts one by one). Packages: mlx, compressed-tensors,
nvidia-modelopt, gptqmodel, autoawq, transformers, torch, safetensors. A case whose package is missing is skipped and counted. expected.safetensors says in
its metadata, as "by", what gave its values.
"""
import json
import os
import sys

import numpy as np
import torch
from safetensors.torch import save_file

import producer_mixed  # noqa: F401
import producer_mlx_lm  # noqa: F401
import producer_packages  # noqa: F401
from producer_models import BY, CASES, E, V, case, each, float_weights, is_linear, moe_config
from producer_packages import loaded

# ---- MLX ----

def mx_to_torch(a):
    import mlx.core as mx
    if a.dtype == mx.bfloat16:
        return torch.from_numpy(np.array(a.astype(mx.float32))).bfloat16()
    n = np.array(a)
    return torch.from_numpy(n.astype(np.int64)).to(torch.uint32) if n.dtype == np.uint32 else torch.from_numpy(n)


def mlx_one(w, **kw):
    import mlx.core as mx
    a = mx.array(w.float().numpy()).astype(mx.bfloat16)
    q = mx.quantize(a, **kw)
    d = mx.dequantize(q[0], q[1], q[2] if len(q) > 2 else None, **kw)
    parts = {".weight": mx_to_torch(q[0]), ".scales": mx_to_torch(q[1])}
    if len(q) > 2:
        # the package rounds its result to BF16: the value is code * scale + bias
        parts[".biases"] = mx_to_torch(q[2])
        d32 = mx.dequantize(q[0], q[1].astype(mx.float32), q[2].astype(mx.float32), **kw)
        return parts, torch.from_numpy(np.array(d32))
    return parts, torch.from_numpy(np.array(d.astype(mx.float32)))


def mlx_case(bits, group, mode="affine"):
    def f():
        kw = {"bits": bits, "group_size": group}
        if mode != "affine":
            kw["mode"] = mode
        q = {"bits": bits, "group_size": group}
        if mode != "affine":
            q["mode"] = mode
        return each(lambda b, w: mlx_one(w, **kw), {"quantization": q, "quantization_config": q}, embed=True)
    return f


for _b, _g in ((2, 32), (3, 64), (4, 32), (4, 64), (4, 128), (5, 32), (6, 64), (8, 32), (8, 64), (8, 128)):
    CASES[f"mlx-int{_b}-g{_g}"] = mlx_case(_b, _g)
CASES["mlx-mxfp4"] = mlx_case(4, 32, "mxfp4")
CASES["mlx-mxfp8"] = mlx_case(8, 32, "mxfp8")
CASES["mlx-nvfp4"] = mlx_case(4, 16, "nvfp4")


@case("mlx-mixed")
def mlx_mixed():
    q = {"bits": 4, "group_size": 64, "model.layers.0.mlp.down_proj": {"bits": 6, "group_size": 64}, "layers.1.self_attn.v_proj": {"bits": 8, "group_size": 32}}

    def one(base, w):
        if base.endswith("layers.0.mlp.down_proj"):
            return mlx_one(w, bits=6, group_size=64)
        if base.endswith("layers.1.self_attn.v_proj"):
            return mlx_one(w, bits=8, group_size=32)
        return mlx_one(w, bits=4, group_size=64)
    return each(one, {"quantization": q})


@case("mlx-nvfp4-moe")
def mlx_moe():
    """Stacked switch_mlp, an override of the router without a mode (so affine), a global scale that is the absolute maximum."""
    import mlx.core as mx
    cfg = moe_config()
    q = {"bits": 4, "group_size": 16, "mode": "nvfp4"}
    out, exp, banks = {}, {}, {}
    for name, w in float_weights(True).items():
        if ".experts." in name:
            head, rest = name.split(".experts.")
            e, proj, _ = rest.split(".")
            banks.setdefault((head, proj), {})[int(e)] = w
        elif name.endswith("mlp.gate.weight"):
            q[name[:-7]] = {"bits": 8, "group_size": 64}
            parts, v = mlx_one(w, bits=8, group_size=64)
            out.update({name[:-7] + s: t for s, t in parts.items()})
            exp[name] = v
        elif is_linear(name):
            parts, v = mlx_one(w, bits=4, group_size=16, mode="nvfp4")
            out.update({name[:-7] + s: t for s, t in parts.items()})
            exp[name] = v
        else:
            out[name] = w
            exp[name] = w.float()
    for (head, proj), ws in banks.items():
        base = f"{head}.switch_mlp.{proj}"
        codes, scales, tops = [], [], []
        for e in range(E):
            a = mx.array(ws[e].float().numpy())
            top = mx.abs(a).max()
            c, s = mx.quantize(a, bits=4, group_size=16, mode="nvfp4", global_scale=top)
            d = mx.dequantize(c, s, None, bits=4, group_size=16, mode="nvfp4", global_scale=top, dtype=mx.float32)
            codes.append(mx_to_torch(c))
            scales.append(mx_to_torch(s))
            tops.append(float(top))
            exp[f"{head}.experts.{e}.{proj}.weight"] = torch.from_numpy(np.array(d))
        out[base + ".weight"] = torch.stack([c.view(torch.int32) for c in codes]).view(torch.uint32)
        out[base + ".scales"] = torch.stack(scales)
        out[base + ".global_scale"] = torch.tensor(tops, dtype=torch.float32)
        q[base] = {"bits": 4, "group_size": 16, "mode": "nvfp4", "global_scale": True}
    cfg["quantization"] = q
    return cfg, out, exp


# ---- compressed-tensors ----

def ct_scheme(**weights):
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    return QuantizationScheme(targets=["Linear"], weights=QuantizationArgs(**weights))


def ct_config(fmt, **weights):
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": fmt, "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}}


def ct_case(fmt, scales, state=None, moe=False, **weights):
    """scales(w) -> weight_scale, zero_point or None (float32). The package packs and unpacks."""
    def f():
        from compressed_tensors.compressors.base import BaseCompressor
        comp = BaseCompressor.get_value_from_registry(fmt) if hasattr(BaseCompressor, "get_value_from_registry") else BaseCompressor.load_from_registry(fmt)
        scheme = ct_scheme(**weights)

        def one(base, w):
            st = {"weight": w.float()}
            st.update({k: v for k, v in scales(w.float()).items() if v is not None})
            c = comp.compress(st, scheme)
            exact = dict(c)
            for k in ("weight_scale",):
                if exact[k].dtype == torch.bfloat16:
                    exact[k] = exact[k].float()
            if "nvfp4" in fmt:  # the package's decompress rounds to the scale's dtype: its own unpacking, then the definition in F32
                from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
                o, k = w.shape
                q = unpack_fp4_from_uint8(c["weight_packed"], o, k).float().reshape(o, -1, 16)
                v = (q * c["weight_scale"].float()[:, :, None] / c["weight_global_scale"]).reshape(o, k)
            else:
                v = comp.decompress(exact, scheme)["weight"].float()
            return {"." + k: t for k, t in c.items()}, v
        return each(one, ct_config(fmt, **{k: v for k, v in weights.items()}), moe=moe)
    return f


def group_scale(bits, g, sym, dt=torch.bfloat16):
    def f(w):
        o, k = w.shape
        b = w.reshape(o, -1, k if g < 0 else g)
        if sym:
            s = (b.abs().amax(2) * 2 / (2 ** bits - 1)).bfloat16().float()
            return {"weight_scale": s}
        lo, hi = b.amin(2).clamp(max=0), b.amax(2).clamp(min=0)
        s = ((hi - lo) / (2 ** bits - 1)).to(dt).float()
        z = (-(2 ** (bits - 1)) - lo / s).round().clamp(-2 ** (bits - 1), 2 ** (bits - 1) - 1).to(torch.int8)
        return {"weight_scale": s, "weight_zero_point": z}
    return f


def fp8_tensor(w):
    return {"weight_scale": (w.abs().max() / 448).bfloat16().float().reshape(1)}


def fp8_channel(w):
    return {"weight_scale": (w.abs().amax(1, keepdim=True) / 448).bfloat16().float()}


def fp8_block(w):
    o, k = w.shape
    br, bc = -(-o // 128), -(-k // 128)
    p = torch.zeros(br * 128, bc * 128)
    p[:o, :k] = w
    return {"weight_scale": (p.reshape(br, 128, bc, 128).abs().amax((1, 3)) / 448).bfloat16().float()}


def nvfp4_scales(w):
    g = (448 * 6 / w.abs().max()).bfloat16().float().reshape(1)
    s = (w.reshape(w.shape[0], -1, 16).abs().amax(2) / 6 * g).clamp(max=448).to(torch.float8_e4m3fn).float()
    return {"weight_scale": s, "weight_global_scale": g}


def mx_scales(top):
    def f(w):
        a = w.reshape(w.shape[0], -1, 32).abs().amax(2)
        return {"weight_scale": 2.0 ** torch.ceil(torch.log2(a / top))}
    return f


CASES["ct-nvfp4"] = ct_case("nvfp4-pack-quantized", nvfp4_scales, num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
CASES["ct-nvfp4-moe"] = ct_case("nvfp4-pack-quantized", nvfp4_scales, moe=True, num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)
CASES["ct-mxfp4"] = ct_case("mxfp4-pack-quantized", mx_scales(6), num_bits=4, type="float", strategy="group", group_size=32, symmetric=True)
CASES["ct-mxfp8"] = ct_case("mxfp8-quantized", mx_scales(448), num_bits=8, type="float", strategy="group", group_size=32, symmetric=True)
for _b, _g, _s in ((4, 128, True), (4, 32, True), (4, 64, False), (8, 128, True), (8, 32, False), (3, 64, True), (2, 32, True), (5, 32, True), (6, 128, False)):
    CASES[f"ct-int{_b}-g{_g}-{'sym' if _s else 'asym'}"] = ct_case("pack-quantized", group_scale(_b, _g, _s), num_bits=_b, type="int", strategy="group", group_size=_g, symmetric=_s)
CASES["ct-int4-channel"] = ct_case("pack-quantized", group_scale(4, -1, True), num_bits=4, type="int", strategy="channel", symmetric=True)
CASES["ct-int4-channel-asym"] = ct_case("pack-quantized", group_scale(4, -1, False, torch.float32), num_bits=4, type="int", strategy="channel", symmetric=False)
CASES["ct-int4-moe"] = ct_case("pack-quantized", group_scale(4, 32, True), moe=True, num_bits=4, type="int", strategy="group", group_size=32, symmetric=True)
CASES["ct-fp8-tensor"] = ct_case("float-quantized", fp8_tensor, num_bits=8, type="float", strategy="tensor", symmetric=True)
CASES["ct-fp8-channel"] = ct_case("float-quantized", fp8_channel, num_bits=8, type="float", strategy="channel", symmetric=True)
CASES["ct-fp8-block"] = ct_case("float-quantized", fp8_block, num_bits=8, type="float", strategy="block", block_structure=[128, 128], symmetric=True)
CASES["ct-fp8-block-moe"] = ct_case("float-quantized", fp8_block, moe=True, num_bits=8, type="float", strategy="block", block_structure=[128, 128], symmetric=True)
CASES["ct-int8-channel"] = ct_case("int-quantized", group_scale(8, -1, True), num_bits=8, type="int", strategy="channel", symmetric=True)
CASES["ct-int8-asym"] = ct_case("int-quantized", group_scale(8, -1, False), num_bits=8, type="int", strategy="channel", symmetric=False)


# ---- ModelOpt ----

def modelopt_config(algo, **more):
    return {"quantization_config": {"quant_method": "modelopt", "quant_algo": algo, "ignore": ["lm_head"], **more}}


def modelopt_nvfp4(base, w):
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    q, s, s2 = NVFP4QTensor.quantize(w.float(), 16)
    v = q.dequantize(dtype=torch.float32, scale=s, double_scale=s2, block_sizes={-1: 16})
    return {".weight": q._quantized_data, ".weight_scale": s, ".weight_scale_2": s2.float(), ".input_scale": torch.tensor(0.5)}, v


CASES["modelopt-nvfp4"] = lambda: each(modelopt_nvfp4, modelopt_config("NVFP4", group_size=16))
CASES["modelopt-nvfp4-moe"] = lambda: each(modelopt_nvfp4, modelopt_config("NVFP4", group_size=16), moe=True)


@case("modelopt-mxfp8")
def modelopt_mxfp8():
    from modelopt.torch.quantization.qtensor import MXFP8QTensor

    def one(base, w):
        q, s = MXFP8QTensor.quantize(w.float())
        return {".weight": q._quantized_data, ".weight_scale": s}, q.dequantize(dtype=torch.float32, scale=s)
    return each(one, modelopt_config("MXFP8"))


@case("modelopt-mxfp4")
def modelopt_mxfp4():
    from modelopt.torch.quantization.qtensor import MXFP4QTensor

    def one(base, w):
        q, s = MXFP4QTensor.quantize(w.float(), 32)
        v = q.dequantize(dtype=torch.float32, scale=s, block_sizes={-1: 32})
        return {".weight": q._quantized_data, ".weight_scale": s.reshape(w.shape[0], -1)}, v
    return each(one, modelopt_config("W4A8_MXFP4_FP8"))


def fp8_qtensor(scale, block=None, shape=None):
    """Packed and read by modelopt's FP8QTensor. scale(w) -> F32 that broadcasts, or one per block."""
    def one(base, w):
        from modelopt.torch.quantization.qtensor import FP8QTensor
        w = w.float()
        s = scale(w)
        more = {"block_sizes": {-1: block, -2: block}} if block else {}
        q, s = FP8QTensor.quantize(w, s, **more)
        return {".weight": q._quantized_data, ".weight_scale": shape(s) if shape else s}, q.dequantize(dtype=torch.float32, scale=s, **more)
    return one


@case("modelopt-fp8-ragged", "modelopt: FP8QTensor")
def modelopt_fp8_ragged():
    """Blocks of 128 x 128 over an edge of 64 rows or columns."""
    def one(base, w):
        w = w[:320] if base.endswith(("gate_proj", "up_proj")) else w[:, :320] if base.endswith("down_proj") else w
        return fp8_qtensor(lambda w: fp8_block(w)["weight_scale"], 128, lambda s: s[:, None, :, None])(base, w.contiguous())
    cfg, out, exp = each(one, modelopt_config("fp8_pb_wo"))
    cfg["intermediate_size"] = 320
    return cfg, out, exp


@case("modelopt-mixed", "modelopt: NVFP4QTensor, FP8QTensor")
def modelopt_mixed():
    """NVFP4 experts, FP8 attention per tensor, the rest BF16: each tensor decides for itself."""
    attention = fp8_qtensor(lambda w: fp8_tensor(w)["weight_scale"], None, lambda s: s.reshape([]))
    return each(lambda b, w: modelopt_nvfp4(b, w) if ".experts." in b else attention(b, w), modelopt_config("MIXED_PRECISION", quantized_layers={}), moe=True)


def e4m3_tensor(w, scale):
    return (w.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


def fp8_blocks_of(base, w):
    """The publisher's blocks, from their definition: no package reads this architecture's experts."""
    s = fp8_block(w.float())["weight_scale"].bfloat16()
    o, k = w.shape
    full = s.float().repeat_interleave(128, 0)[:o].repeat_interleave(128, 1)[:, :k]
    q = e4m3_tensor(w, full)
    return {".weight": q, ".weight_scale_inv": s}, q.float() * full


# ---- gpt-oss, DeepSeek blocks ----

def mxfp4_blocks(w):
    """[E, o, k] -> codes [E, o, k/32, 16] and scales [E, o, k/32], packed by modelopt's tensor class."""
    from modelopt.torch.quantization.qtensor import MXFP4QTensor
    q, s = MXFP4QTensor.quantize(w.float(), 32)
    return q._quantized_data.reshape(*w.shape[:2], -1, 16), s.reshape(*w.shape[:2], -1)


def nvfp4_fused(w):
    """[E, o, k] -> ModelOpt's transposed bank: codes [E, k/2, o], scales [E, k/16, o], one multiplier; and the values."""
    from modelopt.torch.quantization.qtensor import NVFP4QTensor
    e, o, k = w.shape
    q, s, s2 = NVFP4QTensor.quantize(w.float().reshape(e * o, k), 16)
    v = q.dequantize(dtype=torch.float32, scale=s, double_scale=s2, block_sizes={-1: 16})
    return q._quantized_data.reshape(e, o, k // 2).transpose(1, 2), s.reshape(e, o, k // 16).transpose(1, 2), s2.float().reshape([]), v.reshape(e, o, k)


@case("modelopt-gpt-oss", "modelopt: NVFP4QTensor")
def modelopt_gpt_oss():
    cfg, out, exp = gpt_oss()
    cfg["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    g = torch.Generator().manual_seed(4)
    for name in [n for n in out if n.endswith("_blocks")]:
        base = name[:-len("_blocks")]
        shape = list(out.pop(name).shape)
        del out[base + "_scales"]
        q, s, s2, v = nvfp4_fused(torch.randn(shape[0], shape[1], shape[2] * 32, generator=g) * 0.05)
        out[base], out[base + "_weight_scale"], out[base + "_weight_scale_2"] = q.contiguous(), s.contiguous(), s2
        out[base + "_input_scale"] = torch.tensor(0.5)
        head = base.rsplit(".", 1)[0]
        for e in range(shape[0]):
            if base.endswith("down_proj"):
                exp[f"{head}.{e}.down_proj.weight"] = v[e].contiguous()
            else:
                exp[f"{head}.{e}.gate_proj.weight"] = v[e, 0::2].contiguous()
                exp[f"{head}.{e}.up_proj.weight"] = v[e, 1::2].contiguous()
    return cfg, out, exp


@case("gpt-oss-mxfp4", "transformers: from_pretrained; packed by modelopt")
def gpt_oss():
    g = torch.Generator().manual_seed(3)

    def r(*shape):
        return (torch.randn(*shape, generator=g) * 0.05).bfloat16()
    cfg = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
           "head_dim": 16, "vocab_size": V, "num_local_experts": E, "num_experts_per_tok": 2, "rms_norm_eps": 1e-5, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"],
           "max_position_embeddings": 512, "tie_word_embeddings": False, "hidden_act": "silu", "attention_bias": True, "swiglu_limit": 7.0, "eos_token_id": 2,
           "rope_parameters": {"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 64},
           "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}}
    plain = {"model.embed_tokens.weight": r(V, 64), "lm_head.weight": r(V, 64), "model.norm.weight": 1 + r(64)}
    out = {}
    for i in range(2):
        p = f"model.layers.{i}."
        for n, o in (("q", 64), ("k", 32), ("v", 32)):
            plain[p + f"self_attn.{n}_proj.weight"] = r(o, 64)
            plain[p + f"self_attn.{n}_proj.bias"] = r(o)
        plain[p + "self_attn.o_proj.weight"] = r(64, 64)
        plain[p + "self_attn.o_proj.bias"] = r(64)
        plain[p + "self_attn.sinks"] = r(4)
        plain[p + "input_layernorm.weight"] = 1 + r(64)
        plain[p + "post_attention_layernorm.weight"] = 1 + r(64)
        plain[p + "mlp.router.weight"] = r(E, 64)
        plain[p + "mlp.router.bias"] = r(E)
        out[p + "mlp.experts.gate_up_proj_bias"] = r(E, 128)
        out[p + "mlp.experts.down_proj_bias"] = r(E, 64)
        for n, o in (("gate_up_proj", 128), ("down_proj", 64)):
            out[p + f"mlp.experts.{n}_blocks"], out[p + f"mlp.experts.{n}_scales"] = mxfp4_blocks(r(E, o, 64))
    out.update(plain)
    return cfg, out, loaded(cfg, out, gpt_oss=True)


# ---- Qwen4Exp, from the reference model: experts per expert, an n-gram table ----

def qwen4(expert, table):
    """expert(base, w) and table(shards) as in `each`; everything else BF16. Reads DATA/reference_models/qwen4_exp."""
    from safetensors.torch import load_file
    folder = os.path.join(os.environ.get("NIBBLE_TEST_DATA", "../shared"), "reference_models", "qwen4_exp")
    if not os.path.exists(folder):
        raise ImportError(f"{folder} is not there")
    cfg = json.load(open(os.path.join(folder, "config.json")))
    w = load_file(os.path.join(folder, "model.safetensors"))
    out, exp = {}, {}
    shards = {n: t for n, t in w.items() if ".ngram_embedding.shard_" in n}
    for name, t in w.items():
        if name in shards:
            continue
        if ".mlp.experts." in name:
            parts, v = expert(name[:-7], t)
            out.update({name[:-7] + s: x for s, x in parts.items()})
            exp[name] = v
        else:
            out[name] = t
            if t.is_floating_point():
                exp[name] = t.float()
    parts, values = table(shards)
    out.update(parts)
    exp.update(values)
    return cfg, out, exp


def fp8_table(shards):
    scale = (max(t.float().abs().max() for t in shards.values()) / 448).bfloat16().float()
    out, exp = {}, {}
    for n, t in shards.items():
        out[n] = e4m3_tensor(t, scale)
        exp[n] = out[n].float() * scale
    out[next(iter(shards)).split(".shard_")[0] + ".weight_scale"] = scale.bfloat16().reshape(1)
    return out, exp


@case("qwen4-fp8")
def qwen4_fp8():
    cfg, out, exp = qwen4(fp8_blocks_of, fp8_table)
    cfg["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    return cfg, out, exp


@case("qwen4-modelopt")
def qwen4_modelopt():
    cfg, out, exp = qwen4(modelopt_nvfp4, fp8_table)
    cfg.update(modelopt_config("NVFP4", group_size=16))
    return cfg, out, exp


PACKAGES = {"mlx": "mlx: quantize, dequantize", "ct": "compressed-tensors: compress, decompress", "modelopt": "modelopt: tensor class"}


def by(name):
    """What the expected values come from; "definition" where no package reads them."""
    return BY.get(name) or PACKAGES.get(name.split("-")[0], "definition")


def main():
    out = sys.argv[1]
    names = sys.argv[2:] or list(CASES)
    made = skipped = 0
    for n in names:
        try:
            cfg, tensors, expected, *more = CASES[n]()
        except ImportError as e:
            print(f"skipped {n}: {e}")
            skipped += 1
            continue
        d = os.path.join(out, n)
        os.makedirs(d, exist_ok=True)
        with open(os.path.join(d, "config.json"), "w") as f:
            json.dump(cfg, f, indent=1)
        for file, text in (more[0] if more else {}).items():
            with open(os.path.join(d, file), "w") as f:
                f.write(text)
        save_file({k: v.clone() for k, v in tensors.items()}, os.path.join(d, "model.safetensors"), {"format": "pt"})
        save_file({k: v.float().clone() for k, v in expected.items()}, os.path.join(d, "expected.safetensors"), {"by": by(n)})
        made += 1
    print(f"{made} checkpoints made, {skipped} skipped")


if __name__ == "__main__":
    main()
