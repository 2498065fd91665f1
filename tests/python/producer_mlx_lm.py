"""Cases of make_producers.py that mlx-lm itself wrote, from the reference models: its load_model renames, stacks and splits what the publisher has, quantize_model
packs, save_model writes. Expected: of the plain ones the publisher's own tensors, bit for bit; of the quantised ones each module as mlx dequantises it, under the
publisher's names."""
import json
import os
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from producer_models import BY, CASES

# The fields that mlx-lm asks for by a name of its own.
MODELS = {"glm4_moe_lite": {}, "laguna": {}, "gemma3": {}, "qwen2": {}, "qwen3_moe": {"num_experts": "num_local_experts", "rope_theta": 10000.0}}


def reference(name):
    folder = Path(os.environ.get("NIBBLE_TEST_DATA", "../shared")) / "reference_models" / name
    if not folder.exists():
        raise ImportError(f"{folder} is not there")
    return folder


def loaded(name, folder):
    """mlx-lm's model of a copy of the reference, whose config has the fields that it misses."""
    from mlx_lm.utils import load_model
    cfg = json.load(open(reference(name) / "config.json"))
    for key, v in MODELS[name].items():
        cfg.setdefault(key, cfg.get(v, v) if isinstance(v, str) else v)
    (folder / "config.json").write_text(json.dumps(cfg))
    os.symlink((reference(name) / "model.safetensors").resolve(), folder / "model.safetensors")
    return load_model(folder, lazy=True)


def written(model, cfg, folder):
    from mlx_lm.utils import save_config, save_model
    save_model(folder, model)
    save_config(cfg, folder / "config.json")
    return json.load(open(folder / "config.json")), load_file(folder / "model.safetensors")


def values(model, tensors):
    """Module path -> F32 values of its weight; other tensors by their names."""
    import mlx.core as mx
    out, packed = {}, {n: m for n, m in model.named_modules() if "scales" in m}
    for n, m in packed.items():
        bias = m.get("biases")
        v = mx.dequantize(m["weight"], m["scales"].astype(mx.float32) if bias is not None else m["scales"], None if bias is None else bias.astype(mx.float32),
                          group_size=m.group_size, bits=m.bits, mode=m.mode, **({} if bias is not None else {"dtype": mx.float32}))
        out[n + ".weight"] = torch.from_numpy(np.array(v.astype(mx.float32)))
    for n, t in tensors.items():
        if n.rpartition(".")[0] not in packed or n.endswith(".bias"):
            out[n] = t.float()
    return out


def publishers(name, v):
    """The names and shapes of the publisher."""
    out = {}
    for n, t in v.items():
        if ".switch_mlp." in n:
            head, proj = n.split(".switch_mlp.")
            out.update({f"{head}.experts.{e}.{proj}": t[e] for e in range(t.shape[0])})
        elif n.endswith(".embed_q.weight"):
            keys, vals = t.transpose(1, 2), v[n.replace("embed_q", "unembed_out")]
            out[n.replace("embed_q", "kv_b_proj")] = torch.cat([keys, vals], 1).reshape(-1, vals.shape[2])
        elif n.endswith(".unembed_out.weight"):
            continue
        elif name == "laguna":  # transformers has modules of other names than its files, too
            out[n.replace(".gate.proj.", ".gate.").replace(".gate.e_score", ".experts.e_score").replace(".shared_experts.", ".shared_expert.")] = t
        else:
            out[n] = t
    return out


def mlx_lm(name, bits=None, group=32, mode="affine"):
    def f():
        from mlx_lm.utils import quantize_model
        with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
            model, cfg = loaded(name, Path(a))
            if bits:
                model, cfg = quantize_model(model, cfg, group, bits, mode=mode)
            cfg, tensors = written(model, cfg, Path(b))
        if not bits:
            return cfg, tensors, {n: t for n, t in load_file(reference(name) / "model.safetensors").items() if t.is_floating_point()}
        return cfg, tensors, publishers(name, values(model, tensors))
    return f


for _m in MODELS:
    for _label, _a in {"float": (), "int4": (4,), "int8": (8, 64), "mxfp4": (4, 32, "mxfp4"), "nvfp4": (4, 16, "nvfp4")}.items():
        if _label in ("float", "int4") or _m in ("glm4_moe_lite", "laguna"):
            CASES[f"mlx-lm-{_m}-{_label}"] = mlx_lm(_m, *_a)
            BY[f"mlx-lm-{_m}-{_label}"] = "mlx-lm: load_model, " + ("save_model" if _label == "float" else "quantize_model, save_model; mlx: dequantize")
