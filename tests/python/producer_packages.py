"""Cases of make_producers.py whose bytes and expected values both come from the producers' own code: GPTQ-Model, AutoAWQ, transformers (block FP8, gpt-oss
MXFP4) and whole checkpoints that modelopt's export wrote. Every one runs on a CPU. A package that is missing raises ImportError: the case is skipped."""
import importlib.util
import json
import os
import sys
import tempfile
import types
import warnings

import torch
from safetensors.torch import load_file, save_file

from producer_models import BY, CASES, E, affine, case, dense_config, each, float_weights, is_linear, moe_config


def packages(name, by, f):
    CASES[name] = f
    BY[name] = by


# ---- GPTQ: packed and read by gptqmodel's torch kernel ----

def gptqmodel():
    os.environ.update(GPTQMODEL_DISABLE_PACK_EXT="1", GPTQMODEL_CPU_WORKERS="2", GPTQ_TORCH_TRITON_DEQUANT="0")
    import gptqmodel  # noqa: F401
    from gptqmodel.nn_modules.qlinear.torch import TorchLinear
    from gptqmodel.utils import model
    return TorchLinear, model


def gptq_module(base, w, bits, g, sym, v2=False, order=False):
    """Checkpoint format 1 is what the package's own conversion writes; it is read back through the conversion that its loader applies."""
    linear_class, model = gptqmodel()
    w = w.float().clone()
    if not sym:
        w[:8] = w[:8].abs()  # zero points of 0: format 1 takes one from whole words, so these borrow from their neighbour
    o, k = w.shape
    _, s, z, v = affine(w, bits, g, sym)
    index = torch.arange(k, dtype=torch.int32) // g
    if order:
        index = index[torch.randperm(k, generator=torch.Generator().manual_seed(5))]
    args = {"bits": bits, "group_size": g, "sym": sym, "desc_act": order, "in_features": k, "out_features": o, "bias": False, "register_buffers": True}
    linear = torch.nn.Linear(k, o, bias=False)
    linear.weight.data = w if order else v
    m = linear_class(**args)
    m.pack(linear, torch.from_numpy(s.copy()), torch.from_numpy(z.astype("float32")), index)
    if not v2:
        model.convert_gptq_v2_to_v1_format_module(m, types.SimpleNamespace(bits=bits, pack_dtype=torch.int32))
    state = {n: t.clone() for n, t in m.state_dict().items()}
    r = linear_class(**args)
    r.load_state_dict(state)
    if not v2:
        model.convert_gptq_v1_to_v2_format_module(r, bits, torch.int32)
    r.scales = r.scales.float()  # its product in F16 would round
    return {"." + n: t for n, t in state.items()}, r.eval().dequantize_weight().T


def gptq(bits, g, sym, v2=False, label=None, order=False):
    q = {"quant_method": "gptq", "bits": bits, "group_size": g, "sym": sym, "desc_act": order, "checkpoint_format": label or ("gptq_v2" if v2 else "gptq")}
    return lambda: each(lambda base, w: gptq_module(base, w, bits, g, sym, v2, order), {"quantization_config": q})


for _n, _a in {"4-sym": (4, 128, True), "4-asym": (4, 64, False), "4-v2": (4, 32, False, True), "4-v2-mislabelled": (4, 128, True, True, "gptq"), "8-sym": (8, 128, True), "8-asym": (8, 64, False),
               "8-v2": (8, 32, False, True), "3-sym": (3, 64, True), "3-asym": (3, 32, False), "3-v2": (3, 128, False, True), "2-asym": (2, 32, False), "2-v2": (2, 64, False, True),
               "4-order": (4, 64, True, False, None, True), "4-order-v2": (4, 64, False, True, None, True)}.items():
    packages("gptq-" + _n, "gptqmodel: TorchLinear.pack, dequantize_weight", gptq(*_a))


# ---- AWQ: packed by AutoAWQ's WQLinear_GEMM, read by its dequantize_gemm ----

def autoawq():
    """The package's own __init__ imports `datasets` (awq/utils/calib_data.py), which nothing here needs: its modules are imported without it."""
    if "awq" not in sys.modules:
        spec = importlib.util.find_spec("awq")
        if spec is None:
            raise ImportError("autoawq is not installed")
        package = types.ModuleType("awq")
        package.__path__ = list(spec.submodule_search_locations)
        package.__spec__ = spec
        sys.modules["awq"] = package
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from awq.modules.linear.gemm import WQLinear_GEMM
        from awq.utils.packing_utils import dequantize_gemm
    return WQLinear_GEMM, dequantize_gemm


def awq(g):
    def one(base, w):
        linear_class, dequantize = autoawq()
        o, k = w.shape
        _, s, z, v = affine(w, 4, g if g > 0 else k, False)
        linear = torch.nn.Linear(k, o, bias=False)
        linear.weight.data = v
        m = linear_class.from_linear(linear, 4, g if g > 0 else k, scales=torch.from_numpy(s.T.copy()), zeros=torch.from_numpy(z.T.astype("float32")))
        parts = {"." + n: t for n, t in m.state_dict().items()}
        return parts, dequantize(m.qweight, m.qzeros, m.scales.float(), 4, m.group_size).T
    return lambda: each(one, {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": g, "version": "gemm", "zero_point": True}})


packages("awq-4", "autoawq: WQLinear_GEMM.from_linear, dequantize_gemm", awq(128))
packages("awq-4-g32", "autoawq: WQLinear_GEMM.from_linear, dequantize_gemm", awq(32))
packages("awq-4-rows", "autoawq: WQLinear_GEMM.from_linear, dequantize_gemm", awq(-1))


# ---- transformers: whole directories read by from_pretrained, which dequantises where there is no GPU ----

def by_transformers(folder, gpt_oss=False, model_out=None, **more):
    """Every weight of a directory as transformers loads it in float32; experts one by one under their hub names. Nothing may be missing or left over."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, output_loading_info=True, **more)
    left = {k: list(v) for k, v in info.items() if v}
    if left:
        raise RuntimeError(f"transformers does not read this directory whole: {str(left)[:300]}")
    if model_out is not None:
        model_out.append(model)
    files = [os.path.join(folder, f) for f in os.listdir(folder) if f.endswith(".safetensors")]
    known = {k for f in files for k in load_file(f)} | dict(model.named_parameters(remove_duplicate=False)).keys()
    exp = {}
    for name, v in model.state_dict().items():
        if name not in known or not v.is_floating_point():  # a buffer that is computed
            continue
        head, _, last = name.rpartition(".")
        if last == "gate_up_proj":
            for e in range(v.shape[0]):
                x = v[e].T if gpt_oss else v[e]
                half = x.shape[0] // 2
                exp[f"{head}.{e}.gate_proj.weight"] = x[0::2] if gpt_oss else x[:half]
                exp[f"{head}.{e}.up_proj.weight"] = x[1::2] if gpt_oss else x[half:]
        elif last == "down_proj" and v.ndim == 3:
            for e in range(v.shape[0]):
                exp[f"{head}.{e}.down_proj.weight"] = v[e].T if gpt_oss else v[e]
        elif last == "gate_up_proj_bias":
            exp[head + ".gate_proj.bias"], exp[head + ".up_proj.bias"] = v[:, 0::2], v[:, 1::2]
        elif last == "down_proj_bias":
            exp[head + ".down_proj.bias"] = v
        else:
            exp[name] = v
    return {k: v.float().contiguous() for k, v in exp.items()}


def loaded(cfg, out, gpt_oss=False):
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, "config.json"), "w") as f:
            json.dump(cfg, f)
        save_file({k: v.contiguous() for k, v in out.items()}, os.path.join(d, "model.safetensors"), {"format": "pt"})
        return by_transformers(d, gpt_oss)


def fp8_config(block, fmt):
    q = {"quant_method": "fp8", "weight_block_size": list(block), "activation_scheme": "dynamic"}
    if fmt:
        q["scale_fmt"] = fmt
    return q


def fp8_ops(block, fmt):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize, Fp8Quantize
    quantizer = types.SimpleNamespace(quantization_config=types.SimpleNamespace(weight_block_size=list(block), scale_fmt=fmt))
    return Fp8Quantize(quantizer), Fp8Dequantize(quantizer)


def fp8_tensors(moe, block, fmt):
    pack, _ = fp8_ops(block, fmt)
    out = {}
    for name, w in float_weights(moe).items():
        out.update(pack._quantize_one(name, w.float()) if is_linear(name) else {name: w})
    return out


def fp8(moe=False, block=(128, 128), fmt=None, to=None):
    def f():
        cfg = moe_config() if moe else dense_config()
        cfg["quantization_config"] = fp8_config(block, fmt)
        out = fp8_tensors(moe, block, fmt)
        if to:
            out = {k: v.to(to) if k.endswith("_scale_inv") else v for k, v in out.items()}
        return cfg, out, loaded(cfg, out)
    return f


READ = "transformers: Fp8Quantize, from_pretrained"
packages("fp8-block", READ, fp8(moe=True, to=torch.bfloat16))
packages("fp8-block-f32", READ, fp8())
packages("fp8-ue8m0", READ, fp8(fmt="ue8m0"))
packages("fp8-ue8m0-moe", READ, fp8(moe=True, fmt="ue8m0", to=torch.float32))
packages("fp8-block-64", READ, fp8(block=(64, 64)))
packages("fp8-block-32-ue8m0", READ, fp8(block=(32, 32), fmt="ue8m0"))


@case("fp8-fused", "transformers: Fp8Quantize, Fp8Dequantize")
def fp8_fused():
    """Stacked experts with _scale_inv beside them, as its quantising operation names them."""
    pack, unpack = fp8_ops((128, 128), None)
    cfg, w = moe_config(), float_weights(True)
    cfg["quantization_config"] = fp8_config((128, 128), None)
    out, exp, banks = {}, {}, {}
    for name, t in w.items():
        if ".experts." in name:
            head, rest = name.split(".experts.")
            e, proj, _ = rest.split(".")
            head += ".experts"
            banks.setdefault(head, {}).setdefault(proj, {})[int(e)] = t.float()
        elif is_linear(name):
            q = pack._quantize_one(name, t.float())
            out.update(q)
            exp[name] = unpack._dequantize_one(q[name], q[name + "_scale_inv"], torch.float32)
        else:
            out[name], exp[name] = t, t.float()
    for head, p in banks.items():
        both = torch.stack([torch.cat([p["gate_proj"][e], p["up_proj"][e]]) for e in range(E)])
        down = torch.stack([p["down_proj"][e] for e in range(E)])
        for last, t in (("gate_up_proj", both), ("down_proj", down)):
            q = pack._quantize_one(f"{head}.{last}", t)
            out.update(q)
            v = unpack._dequantize_one(q[f"{head}.{last}"], q[f"{head}.{last}_scale_inv"], torch.float32)
            for e in range(E):
                if last == "down_proj":
                    exp[f"{head}.{e}.down_proj.weight"] = v[e]
                else:
                    exp[f"{head}.{e}.gate_proj.weight"], exp[f"{head}.{e}.up_proj.weight"] = v[e].chunk(2)
    return cfg, out, exp


@case("deepseek-mxfp4", "transformers: Fp8Dequantize; packed by modelopt")
def deepseek_mxfp4():
    """Two codes in an I8, E8M0 scales named .scale, as DeepSeek's experts have them."""
    _, unpack = fp8_ops((1, 32), "ue8m0")

    def one(base, w):
        from modelopt.torch.quantization.qtensor import MXFP4QTensor
        q, s = MXFP4QTensor.quantize(w.float(), 32)
        codes, scale = q._quantized_data.view(torch.int8), s.reshape(w.shape[0], -1).view(torch.float8_e8m0fnu)
        return {".weight": codes, ".scale": scale}, unpack._dequantize_one(codes, scale, torch.float32)
    return each(one, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "scale_fmt": "ue8m0", "expert_dtype": "fp4"}}, moe=True)


# ---- ModelOpt: checkpoints that its export wrote ----

def modelopt_model(moe, folder):
    """The random model as transformers builds it. ModelOpt asks for the architecture's name in the config."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    cfg = moe_config() if moe else dense_config()
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(cfg, f)
    save_file(float_weights(moe), os.path.join(folder, "model.safetensors"), {"format": "pt"})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.architectures = cfg["architectures"]
    g = torch.Generator().manual_seed(7)
    for p in model.parameters():  # no weight lies on a tie, where the export and the quantiser may round to different codes
        p.data.mul_(1 + 1e-3 * torch.rand(p.shape, generator=g))
    return model


def modelopt_values(t, base, algo):
    """One exported weight, dequantised by the tensor class of its format. None: it has none for the exported layout."""
    from modelopt.torch.quantization import qtensor as q
    w, s = t[base + ".weight"], t.get(base + ".weight_scale")
    whole = torch.Size([*w.shape[:-1], w.shape[-1] * 2])
    if "NVFP4" in algo:
        group = w.shape[-1] * 2 // s.shape[-1]
        return q.NVFP4QTensor(whole, torch.float32, w).dequantize(dtype=torch.float32, scale=s, double_scale=t[base + ".weight_scale_2"].float(), block_sizes={-1: group})
    if "MXFP4" in algo:
        return q.MXFP4QTensor(whole, torch.float32, w).dequantize(dtype=torch.float32, scale=s.reshape(-1, 1), block_sizes={-1: 32}).reshape(whole)
    if "MXFP8" in algo:
        return q.MXFP8QTensor(w.shape, torch.float32, w).dequantize(dtype=torch.float32, scale=s)
    if "FP8" in algo.upper():
        block = {-1: 128, -2: 128} if s.ndim > 1 else None
        s = s.reshape(s.shape[0], s.shape[2]) if s.ndim == 4 else s[:, None] if s.ndim == 1 and s.numel() > 1 else s
        return q.FP8QTensor(w.shape, torch.float32, w).dequantize(dtype=torch.float32, scale=s, **({"block_sizes": block} if block else {}))
    if w.dtype == torch.int8:
        from modelopt.torch.export.quant_utils import from_quantized_weight
        return from_quantized_weight(w, s, "int8_wo", torch.float32)
    return None


def modelopt_export(config, moe=False, run=False):
    """mtq.quantize, then export_hf_checkpoint. run: its fake quantisation works on a CPU, so activations are calibrated and the quantised weights are
    what the quantiser of each module gives; the others are read by their tensor classes."""
    def f():
        import modelopt.torch.quantization as mtq
        from modelopt.torch.export import export_hf_checkpoint
        exp = {}
        with tempfile.TemporaryDirectory() as d, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            model = mtq.quantize(modelopt_model(moe, d), getattr(mtq, config), (lambda m: m(torch.arange(1, 65)[None])) if run else None)
            for name, m in model.named_modules():
                quantizer = getattr(m, "weight_quantizer", None)
                if run and quantizer is not None and quantizer.is_enabled:
                    exp[name + ".weight"] = quantizer(m.weight).float().clone()
            export_hf_checkpoint(model, export_dir=os.path.join(d, "out"))
            t = load_file(os.path.join(d, "out", "model.safetensors"))
            files = {n: open(os.path.join(d, "out", n)).read() for n in ("config.json", "hf_quant_config.json")}
        algo = json.loads(files["hf_quant_config.json"])["quantization"]["quant_algo"]
        seen = 0
        for name in [n for n in t if n.endswith(".weight")]:
            base = name[:-len(".weight")]
            if base + ".weight_scale" not in t:
                exp[name] = t[name].float()
                continue
            v = modelopt_values(t, base, algo)
            seen += 1
            if v is not None and name in exp and ((v - exp[name]).abs() > 1e-6 * v.abs().max()).float().mean() > 1e-3:
                raise RuntimeError(f"{config}: {name}: the quantiser and the tensor class of modelopt disagree by more than codes at ties")
            if v is not None:
                exp[name] = v
        if not seen:
            raise RuntimeError(f"{config}: nothing was quantised")
        return json.loads(files["config.json"]), t, exp, {"hf_quant_config.json": files["hf_quant_config.json"]}
    return f


EXPORT = "modelopt: export_hf_checkpoint, "
for _n, _c, _k in (("int4", "INT4_BLOCKWISE_WEIGHT_ONLY_CFG", {"run": True}), ("fp8", "FP8_DEFAULT_CFG", {"run": True}), ("fp8-channel", "FP8_PER_CHANNEL_PER_TOKEN_CFG", {"run": True}),
                   ("fp8-blocks", "FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG", {"run": True}), ("int8", "INT8_WEIGHT_ONLY_CFG", {"run": True}), ("nvfp4", "NVFP4_DEFAULT_CFG", {}),
                   ("nvfp4-a16", "W4A16_NVFP4_CFG", {}), ("nvfp4-a8", "W4A8_NVFP4_FP8_CFG", {}), ("nvfp4-mlp", "NVFP4_MLP_WEIGHT_ONLY_CFG", {}), ("mxfp8", "MXFP8_DEFAULT_CFG", {}),
                   ("mxfp4", "W4A8_MXFP4_FP8_CFG", {}), ("nvfp4-moe", "NVFP4_DEFAULT_CFG", {"moe": True}), ("fp8-moe", "FP8_DEFAULT_CFG", {"moe": True, "run": True})):
    # its export of INT4 experts fails with transformers 5.24: get_experts_list asks the fused experts for their length
    packages("modelopt-export-" + _n, EXPORT + ("the module's weight quantiser" if "INT4" in _c else "tensor class"), modelopt_export(_c, **_k))
