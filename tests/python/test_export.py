#!/usr/bin/env python3
"""Exports stored models to every target and imports the result again: each value must come back. What a target cannot hold must be refused by name.

    test_export.py NIBBLE CHECKPOINTS [CASE ...]

CHECKPOINTS: made by make_producers.py, whose imports test_producers.py compares with the producers' own packages.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dequant_reference as ref  # noqa: E402
import producer_packages as packages  # noqa: E402
from producer_mlx_lm import publishers  # noqa: E402

TARGETS = ("hub", "mlx", "compressed-tensors", "modelopt")


def run(nibble, store, *args):
    r = subprocess.run([nibble, *args], env=dict(os.environ, NIBBLE_MODELS=store), capture_output=True, text=True)
    return r.returncode, (r.stdout + r.stderr)[-300:]


def same(a, b, target):
    worst, name = 0.0, ""
    for k, (v, _) in a.items():
        if k not in b:
            return f"{k} did not come back"
        w = b[k][0]
        x, y = v.astype(np.float32), w.astype(np.float32)
        d = np.abs(x - y).max() / max(np.abs(x).max(), 1e-30)
        if d > worst:
            worst, name = d, k
    # 1/(1/m) of a divisor is one unit off at most
    bound = 2.5e-7 if target == "compressed-tensors" else 0.0
    return f"{name}: largest difference {worst:.3g}" if worst > bound else None


def mlx_value(m, kw):
    """A quantised array of mlx, dequantised by it in F32."""
    import mlx.core as mx
    scales, biases, g = m["scales"], m.get("biases"), m.get("global_scale")
    if biases is not None:
        scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
    more = {} if g is None else {"global_scale": g}
    return np.array(mx.dequantize(m["weight"], scales, biases, dtype=mx.float32, **kw, **more))


def mlx_names(base, m, kw, out):
    """Hub names of one module: a stack of experts gives one weight each."""
    import mlx.core as mx
    arrays = {k: v for k, v in m.items() if isinstance(v, mx.array)}
    if arrays["weight"].ndim == 2:
        out[base + ".weight"] = mlx_value(arrays, kw)
        return
    head, proj = base.rsplit(".", 1)
    for e in range(arrays["weight"].shape[0]):
        out[f"{head.replace('switch_mlp', 'experts')}.{e}.{proj}.weight"] = mlx_value({k: v[e] for k, v in arrays.items()}, kw)


def hub_names(config, arrays):
    """Under the publisher's names, where the package has its own."""
    import torch
    tensors = {k: torch.from_numpy(v) for k, v in arrays.items()}
    return {k: v.numpy() for k, v in publishers(config["model_type"], tensors).items()}


def load_mlx(folder):
    """The model as mlx-lm builds it from the directory, strictly: each quantised module dequantised by mlx, every other parameter as it is. A
    model type that mlx-lm does not have, or whose config it does not understand, is read array by array."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.utils import load_model
    config = json.load(open(os.path.join(folder, "config.json")))
    q = config.get("quantization", {})
    out = {}
    try:
        model, _ = load_model(pathlib.Path(folder))
    except (ValueError, TypeError) as e:
        if "not supported" not in str(e) and "ModelArgs" not in str(e):
            raise
        w = mx.load(os.path.join(folder, "model.safetensors"))
        for base in [n[:-len(".scales")] for n in w if n.endswith(".scales")]:
            c = q.get(base, q)
            parts = {k: w[f"{base}.{k}"] for k in ("weight", "scales", "biases", "global_scale") if f"{base}.{k}" in w}
            mlx_names(base, parts, {"bits": c["bits"], "group_size": c["group_size"], "mode": c.get("mode", "affine")}, out)
        return out, "mlx"
    inside = set()
    for base, m in model.named_modules():
        if "scales" in m:
            mlx_names(base, m, {"bits": m.bits, "group_size": m.group_size, "mode": m.mode}, out)
            inside.update(f"{base}.{k}" for k in ("weight", "scales", "biases", "global_scale"))
    for name, v in tree_flatten(model.parameters()):
        if name not in inside:
            out[name] = np.array(v.astype(mx.float32))
    return hub_names(config, out), "mlx-lm"


def ct_modules(w, config):
    """Base -> scheme of every quantised module, as the package resolves targets: names before classes."""
    from compressed_tensors.quantization import QuantizationConfig
    q = QuantizationConfig.model_validate(config)
    named = {t: g for g in q.config_groups.values() for t in g.targets}
    out = {}
    for base in [n.rsplit(".weight_scale", 1)[0] for n in w if n.endswith(".weight_scale")]:
        if base in (q.ignore or []):
            raise RuntimeError(f"{base} is quantised and ignored")
        kind = "Embedding" if base.endswith("embed_tokens") else "Linear"
        if base not in named and kind not in named:
            raise RuntimeError(f"{base} is in no group")
        out[base] = named.get(base) or named[kind]
    return out


def load_ct(folder):
    """Every module decompressed by the compressor of its group."""
    import torch
    from compressed_tensors.compressors.base import BaseCompressor
    from safetensors.torch import load_file
    w = load_file(os.path.join(folder, "model.safetensors"))
    out = {}
    for base, scheme in ct_modules(w, json.load(open(os.path.join(folder, "config.json")))["quantization_config"]).items():
        comp = BaseCompressor.get_value_from_registry(scheme.format)
        state = {n[len(base) + 1:]: t for n, t in w.items() if n.startswith(base + ".weight")}
        if state["weight_scale"].dtype in (torch.bfloat16, torch.float16):
            state["weight_scale"] = state["weight_scale"].float()
        if "nvfp4" in scheme.format:  # its decompress rounds to the scale's dtype: its unpacking, then the definition
            from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
            o, k = state["weight_packed"].shape
            codes = unpack_fp4_from_uint8(state["weight_packed"], o, k * 2).float().reshape(o, -1, 16)
            v = (codes * state["weight_scale"].float()[:, :, None] / state["weight_global_scale"]).reshape(o, k * 2)
        else:
            v = comp.decompress(state, scheme)["weight"]
        out[base + ".weight"] = v.float().numpy()
    return out, "compressed-tensors"


def load_ct_model(folder):
    """The model as transformers builds it with compressed-tensors, decompressed at load (without that, 0.20 gives packed zero points the wrong shape).
    It reads one group, and experts that have neither zero points nor multipliers; other directories are read by module only."""
    from transformers import CompressedTensorsConfig
    config = json.load(open(os.path.join(folder, "config.json")))
    groups = config["quantization_config"]["config_groups"].values()
    experts = any(config.get(k) for k in ("num_experts", "n_routed_experts", "num_local_experts"))
    plain = all(g["format"] == "pack-quantized" and g["weights"]["symmetric"] for g in groups)
    classes = [t for g in groups for t in g["targets"]]
    if len(groups) != 1 or classes != ["Linear"] or (experts and not plain) or config["model_type"] == "gpt_oss":
        return None
    t = packages.by_transformers(folder, quantization_config=CompressedTensorsConfig(run_compressed=False))
    return {k: v.numpy() for k, v in t.items()}, "transformers with compressed-tensors"


def load_modelopt(folder):
    """Each weight read by modelopt's tensor class of its format; INT4, whose export has none, packed again by modelopt's packer. Its converter of
    hf_quant_config.json must give what config.json says."""
    import torch
    from modelopt.torch.export.convert_hf_config import convert_hf_quant_config_format
    from modelopt.torch.export.quant_utils import pack_int4_in_uint8
    from safetensors.torch import load_file
    said = json.load(open(os.path.join(folder, "config.json")))["quantization_config"]
    mine = json.load(open(os.path.join(folder, "hf_quant_config.json")))
    theirs = convert_hf_quant_config_format(mine)
    for key in ("quant_algo", "ignore", "quantized_layers"):
        if theirs.get(key) != said.get(key):
            raise RuntimeError(f"hf_quant_config.json says {key} {str(theirs.get(key))[:80]}, config.json {str(said.get(key))[:80]}")
    w = load_file(os.path.join(folder, "model.safetensors"))
    out = {}
    for base in [n[:-len(".weight")] for n in w if n.endswith(".weight") and n + "_scale" in w]:
        algo = said.get("quantized_layers", {}).get(base, said)["quant_algo"]
        v = packages.modelopt_values(w, base, algo)
        if v is None:
            codes, s = w[base + ".weight"], w[base + ".weight_scale"].float()
            g = codes.shape[1] // s.shape[1]
            q = torch.stack([codes & 15, codes >> 4], 1).reshape(-1, codes.shape[1]).to(torch.int8)
            v = torch.where(q > 7, q - 16, q).float() * s.repeat_interleave(g, 1)
            if not torch.equal(pack_int4_in_uint8(v, s, g), codes):
                raise RuntimeError(f"{base}: modelopt packs these values otherwise")
        elif base + ".weight" in w:
            out[base + ".weight"] = v.numpy()
            continue
        out[base + ".weight"] = v.numpy()
    return out, "modelopt"


def load_hub(folder):
    config = json.load(open(os.path.join(folder, "config.json")))
    read = packages.by_transformers(folder, config["model_type"] == "gpt_oss")
    if config.get("tie_word_embeddings") and read.get("lm_head.weight") is not None:
        read.pop("lm_head.weight")  # the embedding under its second name
    return hub_names(config, {k: v.numpy() for k, v in read.items()}), "transformers"


LOADERS = {"mlx": [load_mlx], "compressed-tensors": [load_ct, load_ct_model], "modelopt": [load_modelopt], "hub": [load_hub]}


def compare_read(a, read, package):
    worst, name = 0.0, ""
    for k, v in read.items():
        shards = sorted((n for n in a if n.startswith(k[:-len("weight")] + "shard_")), key=lambda n: int(n.rsplit("shard_", 1)[1].split(".")[0]))
        if k not in a and not shards:
            return f"the package reads {k}, which is not stored"
        x = a[k][0].astype(np.float32) if k in a else np.concatenate([a[n][0] for n in shards]).astype(np.float32)
        d = np.abs(x - v.reshape(x.shape)).max() / max(np.abs(x).max(), 1e-30)
        if not d <= worst:
            worst, name = d, k
    if not read:
        return f"{package} reads nothing"
    # transformers' decompression rounds to the dtype of the scales; the compressors themselves are compared exactly
    bound = 2.0 ** -8 if package.startswith("transformers with") else 2.5e-7
    return f"{name}: {package} differs by {worst:.3g}" if not worst <= bound else None


def by_package(a, folder, target, counts):
    """What the target's own package reads from the directory, against what is stored."""
    if target not in ("hub", "mlx") and "quantization_config" not in json.load(open(os.path.join(folder, "config.json"))):
        return None
    for loader in LOADERS[target]:
        try:
            got = loader(folder)
        except ImportError as e:
            print(f"  {target} not read by its package: {e}")
            continue
        except (RuntimeError, ValueError, KeyError, TypeError, AttributeError) as e:
            return f"the package refuses the directory: {type(e).__name__} {str(e)[:300]}"
        if got is None:
            continue
        why = compare_read(a, *got)
        if why:
            return why
        counts[got[1]] = [c + d for c, d in zip(counts.get(got[1], [0, 0]), (1, len(got[0])))]
    return None


def reference_models(nibble):
    """Reference models through import and `export --as hub`: transformers loads the directory whole and gives the recorded logits. Returns the failures."""
    import torch
    from safetensors.torch import load_file
    root = os.path.join(os.environ.get("NIBBLE_TEST_DATA", "../shared"), "reference_models")
    folders = sorted(os.path.join(root, d) for d in os.listdir(root)) if os.path.isdir(root) else []
    bad, equal, skipped = 0, [], []
    for folder in [f for f in folders if os.path.exists(os.path.join(f, "reference.safetensors"))]:
        name = os.path.basename(folder)
        with tempfile.TemporaryDirectory() as store:
            out, made = os.path.join(store, "out"), []
            code, text = run(nibble, store, "create", "a", "--from", folder, "--quiet")
            if not code:
                code, text = run(nibble, store, "export", "a", out, "--as", "hub", "--dtype", "f32")
            if code:
                print(f"FAILED {name}: {text}")
                bad += 1
                continue
            reference = load_file(os.path.join(folder, "reference.safetensors"))
            try:
                packages.by_transformers(out, model_out=made)
            except (ImportError, RuntimeError, ValueError, KeyError, AttributeError, TypeError) as e:
                skipped.append(f"{name} ({type(e).__name__} {str(e)[:120]})")
                continue
            with torch.no_grad():
                logits = made[0](input_ids=reference["input_ids"].reshape(1, -1).long()).logits[0].float()
            want = reference["logits"].float().reshape(logits.shape)
            d = float(((logits - want) ** 2).mean().sqrt() / (want ** 2).mean().sqrt())
            if not d <= 2e-4:
                print(f"FAILED {name}: logits of the exported directory differ by {d:.3g} relative RMS")
                bad += 1
            else:
                equal.append(name)
    print(f"reference models: {len(equal)} exported directories give the recorded logits in transformers" + (f"; not read by it: {', '.join(skipped)}" if skipped else ""))
    return bad + (bool(folders) and not equal)


def main():
    nibble, root = sys.argv[1:3]
    cases = sys.argv[3:] or sorted(d for d in os.listdir(root) if os.path.exists(os.path.join(root, d, "expected.safetensors")))
    bad = exported = refused = 0
    counts = {}
    for case in cases:
        with tempfile.TemporaryDirectory() as store:
            code, text = run(nibble, store, "create", "a", "--from", os.path.join(root, case), "--layout", "rows16", *(["--allow-requantize"] if "-order" in case else []))
            if code:
                print(f"FAILED {case}: {text}")
                bad += 1
                continue
            a = ref.stored_weights(ref.Store(store, "a"))
            for target in TARGETS:
                out = os.path.join(store, "out-" + target)
                code, text = run(nibble, store, "export", "a", out, "--as", target, "--dtype", "f32")
                if code:
                    ok = "cannot hold" in text and not os.path.exists(out)
                    refused += ok
                    if not ok:
                        print(f"FAILED {case} {target}: {text}")
                        bad += 1
                    continue
                if "quantization_config" in json.load(open(os.path.join(out, "config.json"))) and target == "hub":
                    print(f"FAILED {case} hub: the config still has a quantisation section")
                    bad += 1
                why = by_package(a, out, target, counts)
                if why:
                    print(f"FAILED {case} {target}: {why}")
                    bad += 1
                code, text = run(nibble, store, "create", "b-" + target, "--from", out, "--layout", "rows16")
                why = text if code else same(a, ref.stored_weights(ref.Store(store, "b-" + target)), target)
                exported += 1
                if why:
                    print(f"FAILED {case} {target}: {why}")
                    bad += 1
    if len(sys.argv) < 4:
        bad += reference_models(nibble)
    for package, (n, tensors) in sorted(counts.items()):
        print(f"read by {package}: {n} directories, {tensors} tensors equal")
    print(f"{len(cases)} checkpoints, {exported} exports came back, {sum(n for n, _ in counts.values())} readings by the targets' own packages, {refused} refused by name, {bad} failures")
    return 1 if bad or not exported else 0


if __name__ == "__main__":
    sys.exit(main())
