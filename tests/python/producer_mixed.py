"""Cases of make_producers.py in which several groups of modules have different widths, chosen by the package's own code from expressions, names and classes:
compressed-tensors' config_groups and ignore, gptqmodel's dynamic."""
import json
import os
import tempfile

import torch
from safetensors.torch import save_file

import producer_packages as pp
from producer_models import dense_config, each, float_weights

CT = "compressed-tensors: "


def args(**weights):
    from compressed_tensors.quantization import QuantizationArgs
    return QuantizationArgs(**weights)


def int_args(bits, group=None, symmetric=True):
    return args(num_bits=bits, type="int", strategy="group" if group else "channel", group_size=group, symmetric=symmetric)


def fp8_args():
    return args(num_bits=8, type="float", strategy="channel", symmetric=True)


def nvfp4_args():
    return args(num_bits=4, type="float", strategy="tensor_group", group_size=16, symmetric=True)


def schemes(groups):
    from compressed_tensors.quantization import QuantizationScheme
    return {f"group_{i}": QuantizationScheme(targets=targets, weights=a) for i, (targets, a) in enumerate(groups)}


def qparams(w, a):
    """Scale and zero point as the package calculates them from the extremes of each group; scales that BF16 holds."""
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    group = a.group_size or w.shape[1]
    b = w.reshape(w.shape[0], -1, group)
    low, high = b.amin(2), b.amax(2)
    more = {"global_scale": generate_gparam(w.amin(), w.amax())} if a.strategy == "tensor_group" else {}
    scale, zero = calculate_qparams(low, high, a, **more)
    out = {"weight_scale": scale if more else scale.bfloat16().float()}
    if more:
        out["weight_global_scale"] = more["global_scale"].reshape(1)
    if not a.symmetric:
        out["weight_zero_point"] = zero.to(torch.int8)
    return out


def stored(t):
    """As llmcompressor stores it: the scales of a BF16 model are BF16."""
    return {n: v.bfloat16() if n.endswith("weight_scale") and v.dtype == torch.float32 else v for n, v in t.items()}


def nvfp4_values(t, base):
    """Its decompressor rounds to the scale's dtype: its own unpacking, then the definition in F32."""
    from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
    packed = t[base + ".weight_packed"]
    o, k = packed.shape[0], packed.shape[1] * 2
    q = unpack_fp4_from_uint8(packed, o, k).float().reshape(o, -1, 16)
    return (q * t[base + ".weight_scale"].float()[:, :, None] / t[base + ".weight_global_scale"]).reshape(o, k)


def whole_model(groups, ignore):
    """apply_quantization_config, ModelCompressor.compress_model, update_config; the values are those of decompress_model."""
    def f():
        from compressed_tensors.compressors import ModelCompressor
        from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        with tempfile.TemporaryDirectory() as d, torch.no_grad():
            with open(os.path.join(d, "config.json"), "w") as out:
                json.dump(dense_config(), out)
            save_file(float_weights(), os.path.join(d, "model.safetensors"), {"format": "pt"})
            model = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32)
            config = QuantizationConfig(config_groups=schemes(groups), ignore=ignore, format="mixed-precision", quantization_status="compressed")
            apply_quantization_config(model, config)
            kinds = set()
            for m in model.modules():
                scheme = getattr(m, "quantization_scheme", None)
                if scheme is None or scheme.weights is None:
                    continue
                kinds.add((scheme.weights.num_bits, str(scheme.weights.type), scheme.weights.group_size))
                for name, t in qparams(m.weight, scheme.weights).items():
                    setattr(m, name, torch.nn.Parameter(t, requires_grad=False))
            if len(kinds) < len(groups):
                raise RuntimeError(f"only {kinds} of {len(groups)} groups have modules")
            compressor = ModelCompressor(quantization_config=config)
            compressor.compress_model(model)
            tensors = stored({n: t.clone() for n, t in model.state_dict().items()})
            compressor.update_config(d)
            compressor.decompress_model(model)
            with open(os.path.join(d, "config.json")) as written:
                cfg = json.load(written)
            exp = {n: t.float() for n, t in model.state_dict().items() if n.endswith((".weight", ".bias"))}
            exp.update({n[:-19] + "weight": nvfp4_values(tensors, n[:-20]) for n in tensors if n.endswith(".weight_global_scale")})
            return cfg, tensors, exp
    return f


def by_modules(groups, ignore):
    """The same choice of groups (match_targets) for experts, whose modules transformers fuses; the compressor of each group packs and unpacks."""
    def f():
        from compressed_tensors.compressors.base import BaseCompressor
        from compressed_tensors.compressors.format import infer_module_format
        from compressed_tensors.quantization import QuantizationConfig
        from compressed_tensors.utils.match import is_match, match_targets
        named = schemes(groups)
        target = {t: s for s in named.values() for t in s.targets}
        linear = torch.nn.Linear(1, 1)
        formats = set()

        def one(base, w):
            w = w.float()
            if is_match(base, linear, ignore):
                return {".weight": w.bfloat16()}, w.bfloat16()
            scheme = target[match_targets(base, linear, list(target))[0]]
            fmt = infer_module_format(torch.nn.Linear, scheme)
            scheme.format = fmt
            formats.add(fmt)
            compressor = BaseCompressor.get_value_from_registry(fmt.value)
            c = compressor.compress({"weight": w, **qparams(w, scheme.weights)}, scheme)
            return {"." + n: t for n, t in stored(c).items()}, compressor.decompress(dict(c), scheme)["weight"]
        cfg, out, exp = each(one, {}, moe=True)
        if len(formats) < 2:
            raise RuntimeError(f"only {formats}")
        config = QuantizationConfig(config_groups=named, ignore=ignore, format="mixed-precision", quantization_status="compressed")
        cfg["quantization_config"] = json.loads(config.model_dump_json())
        return cfg, out, exp
    return f


ATTENTION, IGNORE = "re:.*self_attn\\.(q|k|v)_proj$", ["re:.*lm_head$", "re:model\\.layers\\.0\\.mlp\\.down_proj"]
pp.packages("ct-mixed", CT + "compress_model, decompress_model",
            whole_model([([ATTENTION], int_args(4, 64)), (["re:.*mlp\\.(gate|up)_proj$"], nvfp4_args()), (["Linear"], fp8_args())], IGNORE))
pp.packages("ct-mixed-int", CT + "compress_model, decompress_model",
            whole_model([(["Linear"], int_args(4, 128)), (["re:.*down_proj"], int_args(8, 32, False)), (["model.layers.1.self_attn.o_proj"], int_args(8)), ([ATTENTION], int_args(3, 64))],
                        ["re:lm.head", "model.layers.0.self_attn.o_proj"]))
pp.packages("ct-mixed-moe", CT + "the compressor of each group",
            by_modules([(["re:.*experts\\.\\d+\\.(gate|up)_proj$"], int_args(4, 32)), (["re:.*experts.*down_proj$"], int_args(8, 128)), (["Linear"], fp8_args())],
                       ["re:.*lm_head$", "re:.*mlp\\.gate$", "re:.*layers\\.0.*o_proj"]))


# ---- gptqmodel: dynamic ----

def dynamic(bits, group, rules, method_fields=True):
    """QuantizeConfig reads the rules and says the width of each module; TorchLinear packs and reads, as in producer_packages.gptq."""
    def f():
        pp.gptqmodel()
        from gptqmodel import QuantizeConfig
        q = QuantizeConfig(bits=bits, group_size=group, sym=True, desc_act=False, dynamic=rules, offload_to_disk=False)
        seen = set()

        def one(base, w):
            if q.dynamic_get(base) is False:
                seen.add(False)
                return {".weight": w}, w
            own = [q.dynamic_get(base, key, default) for key, default in (("bits", bits), ("group_size", group), ("sym", True))]
            seen.add(tuple(own))
            return pp.gptq_module(base, w, *own)
        cfg, out, exp = each(one, {})
        if len(seen) < 3 or False not in seen:
            raise RuntimeError(f"only {seen}")
        own = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": True, "desc_act": False, "checkpoint_format": "gptq", "dynamic": q.to_dict()["dynamic"]}
        if not method_fields:  # without a width: the tensors tell
            del own["bits"]
        cfg["quantization_config"] = own
        return cfg, out, exp
    return f


RULES = {"+:.*\\.0\\.self_attn\\..*": {"bits": 8, "group_size": 32}, "-:.*\\.1\\.mlp\\.down_proj$": {}, "+:^model\\.layers\\.1\\.mlp\\.up_proj$": {"bits": 3, "group_size": 64, "sym": False}}
pp.packages("gptq-dynamic", "gptqmodel: QuantizeConfig.dynamic_get, TorchLinear.pack, dequantize_weight", dynamic(4, 128, RULES))
pp.packages("gptq-dynamic-no-bits", "gptqmodel: QuantizeConfig.dynamic_get, TorchLinear.pack, dequantize_weight", dynamic(4, 128, {**RULES, ".*q_proj": {"bits": 2, "group_size": 32}}, False))
