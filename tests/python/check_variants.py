#!/usr/bin/env python3
"""Small models of shapes that the references lack, made here with transformers: `nibble compare` on every tier, quantised ones against forward.py.

    check_variants.py NIBBLE [NAME...]

Needs torch, transformers, safetensors. Widths that are no multiple of a tile or a group, odd heads and experts, windows shorter than a chunk, every rotary scaling,
lengths over several attention blocks, F16 and F32 checkpoints, shards, fused experts, prefixes. Weights are drawn so that logits have the scale of the references.
"""
import json
import os
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers as tr
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import forward  # noqa: E402

CLASSES = {"llama": (tr.LlamaConfig, tr.LlamaForCausalLM), "mistral": (tr.MistralConfig, tr.MistralForCausalLM), "qwen2": (tr.Qwen2Config, tr.Qwen2ForCausalLM),
           "qwen3": (tr.Qwen3Config, tr.Qwen3ForCausalLM), "qwen3_moe": (tr.Qwen3MoeConfig, tr.Qwen3MoeForCausalLM), "gemma3": (tr.Gemma3TextConfig, tr.Gemma3ForCausalLM)}
ALL_TYPES = ["bf16", "nvfp4", "mxfp8", "mxfp4", "int8:g32", "int4:g32"]


def shape(hidden, ffn, layers, heads, kv, head_dim, vocab, **more):
    d = dict(hidden_size=hidden, intermediate_size=ffn, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv, vocab_size=vocab, **more)
    return d if head_dim is None else dict(d, head_dim=head_dim)


def rope(kind, theta=10000.0, **more):
    return dict(rope_type=kind, rope_theta=theta, **more)


def moe(experts, used, width, norm, **more):
    return dict(num_experts=experts, num_experts_per_tok=used, moe_intermediate_size=width, norm_topk_prob=norm, **more)


# name: (kind, length, config, options)
VARIANTS = {
    "llama-48": ("llama", 17, shape(48, 72, 2, 3, 1, 16, 257, tie_word_embeddings=True), {}),
    "llama-bias": ("llama", 65, shape(96, 120, 3, 6, 2, 40, 300, attention_bias=True, mlp_bias=True, tie_word_embeddings=False, rope_parameters=rope("linear", factor=4.0)), {"edit": "prefix"}),
    "llama-yarn": ("llama", 130, shape(64, 136, 2, 4, 1, 48, 300, tie_word_embeddings=True, rope_parameters=rope(
        "yarn", factor=8.0, original_max_position_embeddings=32, mscale=0.7, mscale_all_dim=1.3, truncate=False, beta_fast=24.0)), {}),
    "llama-llama3": ("llama", 300, shape(96, 200, 1, 3, 3, 96, 1031, tie_word_embeddings=False, rope_parameters=rope(
        "llama3", 500000.0, factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128)), {"types": ALL_TYPES}),
    "llama-one": ("llama", 1, shape(72, 100, 5, 2, 1, 128, 257, tie_word_embeddings=True, rope_parameters=rope("dynamic", factor=2.0)), {}),
    "llama-f16": ("llama", 33, shape(64, 144, 2, 4, 2, 16, 300, tie_word_embeddings=False), {"dtype": torch.float16, "types": ["nvfp4", "int8:g32"]}),
    "llama-f32": ("llama", 33, shape(80, 144, 2, 4, 2, 16, 300, tie_word_embeddings=True), {"dtype": torch.float32, "save": {"max_shard_size": "60KB"}}),
    "mistral-100": ("mistral", 600, shape(48, 64, 1, 2, 1, 80, 257, sliding_window=100, tie_word_embeddings=True), {}),
    "mistral-3": ("mistral", 130, shape(96, 100, 2, 6, 3, 32, 257, sliding_window=3, tie_word_embeddings=False), {}),
    "qwen2-window": ("qwen2", 130, shape(80, 120, 4, 2, 1, None, 300, use_sliding_window=True, sliding_window=40, max_window_layers=2, tie_word_embeddings=False), {}),
    "qwen3-bias": ("qwen3", 65, shape(48, 200, 2, 3, 3, 40, 1000, attention_bias=True, use_sliding_window=True, sliding_window=8, max_window_layers=1), {}),
    "qwen3-mixed": ("qwen3", 65, shape(64, 80, 3, 4, 2, 96, 300, use_sliding_window=True, sliding_window=8, layer_types=["sliding_attention", "full_attention", "sliding_attention"]), {}),
    "moe-3": ("qwen3_moe", 65, shape(48, 64, 2, 3, 1, 40, 300, **moe(3, 1, 40, False)), {"edit": "fused"}),
    "moe-17": ("qwen3_moe", 130, shape(96, 64, 2, 4, 2, 32, 257, tie_word_embeddings=True, **moe(17, 4, 24, True)), {"types": ALL_TYPES}),
    "moe-dense": ("qwen3_moe", 40, shape(80, 72, 3, 2, 1, 80, 300, **moe(8, 3, 48, False, mlp_only_layers=[1])), {"edit": "switch", "types": ["nvfp4", "mxfp4"]}),
    "moe-window": ("qwen3_moe", 65, shape(64, 72, 2, 4, 2, 32, 300, use_sliding_window=True, sliding_window=8, **moe(8, 2, 32, True)), {}),
    "gemma3-48": ("gemma3", 65, shape(48, 96, 3, 3, 1, 40, 300, sliding_window=8, query_pre_attn_scalar=32), {"types": ["nvfp4"]}),
    "gemma3-linear": ("gemma3", 130, shape(80, 120, 7, 4, 2, 16, 257, sliding_window=40, query_pre_attn_scalar=20, rope_parameters=dict(
        full_attention=rope("linear", 1e6, factor=8.0), sliding_attention=rope("default"))), {"edit": "nested", "types": ["mxfp8"]}),
    "gemma3-256": ("gemma3", 40, shape(200, 72, 2, 2, 1, 256, 1031, sliding_window=16, query_pre_attn_scalar=256, final_logit_softcapping=5.0, layer_types=[
        "full_attention", "sliding_attention"]), {}),
}


# ---- making them ----

def draw(model, kind, name, dtype):
    g = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    for k, p in model.named_parameters():
        r = torch.randn(p.shape, generator=g)
        if p.dim() == 1:
            v = 0.15 * r + (kind != "gemma3") if "norm" in k else 0.3 * r
        else:
            v = r * 1.4 / p.shape[-1] ** 0.5
        p.copy_(v.to(dtype).float())
    return g


def record(model, ids, steps):
    """What a reference file holds, from hooks: hidden states before the final norm, then a greedy continuation from the cache."""
    inner, hidden, final = model.model, [], []
    hooks = [m.register_forward_hook(lambda _m, _i, o: hidden.append((o[0] if isinstance(o, tuple) else o)[0].clone())) for m in inner.layers]
    hooks.append(inner.norm.register_forward_hook(lambda _m, _i, o: final.append(o[0].clone())))
    out = model(ids, use_cache=True)
    for h in hooks:
        h.remove()
    ref = {"input_ids": ids[0].contiguous(), "logits": out.logits[0].contiguous(), "final_hidden": final[0], "hidden.0": inner.embed_tokens(ids)[0].contiguous()}
    ref.update({f"hidden.{i + 1}": h for i, h in enumerate(hidden)})
    chosen, rows, row = [], [], out.logits[0, -1]
    for _ in range(steps):
        chosen.append(int(row.argmax()))
        out = model(torch.tensor([chosen[-1:]]), past_key_values=out.past_key_values, use_cache=True)
        row = out.logits[0, -1].clone()
        rows.append(row)
    return dict(ref, decode_ids=torch.tensor(chosen), decode_logits=torch.stack(rows))


def restack(tensors, fused):
    """Experts of a layer in one tensor per projection: as transformers 5 keeps them (gate rows first), or as mlx does."""
    out, found = {}, {}
    for k, v in tensors.items():
        head, mark, tail = k.partition(".mlp.experts.")
        if mark:
            e, proj = tail.split(".")[:2]
            found.setdefault(head, {}).setdefault(proj, {})[int(e)] = v
        else:
            out[k] = v
    for head, projections in found.items():
        whole = {p: torch.stack([m[e] for e in range(len(m))]) for p, m in projections.items()}
        if fused:
            out[head + ".mlp.experts.gate_up_proj"] = torch.cat([whole["gate_proj"], whole["up_proj"]], 1)
            out[head + ".mlp.experts.down_proj"] = whole["down_proj"]
        else:
            out.update({f"{head}.mlp.switch_mlp.{p}.weight": w for p, w in whole.items()})
    return out


def edit(path, how):
    weights = os.path.join(path, "model.safetensors")
    t = load_file(weights)
    if how in ("fused", "switch"):
        t = restack(t, how == "fused")
    else:
        t = {"language_model." + k: v for k, v in t.items()}
    save_file({k: v.contiguous() for k, v in t.items()}, weights, metadata={"format": "pt"})
    if how == "nested":
        with open(os.path.join(path, "config.json")) as f:
            text = json.load(f)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16", "eos_token_id": [1, 106], "text_config": text}, f)


def make(path, name):
    kind, length, config, options = VARIANTS[name]
    c = CLASSES[kind][0](bos_token_id=1, eos_token_id=2, pad_token_id=0, max_position_embeddings=2048, **config)
    c._attn_implementation = "eager"
    model = CLASSES[kind][1](c).float().eval()
    dtype = options.get("dtype", torch.bfloat16)
    with torch.no_grad():
        g = draw(model, kind, name, dtype)
        ref = record(model, torch.randint(3, c.vocab_size, (1, length), generator=g), 4)
    save_file({k: v.contiguous() for k, v in ref.items()}, os.path.join(path, "reference.safetensors"))
    model.to(dtype).save_pretrained(path, **options.get("save", {}))
    if "edit" in options:
        edit(path, options["edit"])


# ---- checks ----

def compare(nibble, path, *args):
    p = subprocess.run([nibble, "compare", path, "--threads", "2", "--quiet", "--json", *args], capture_output=True, text=True)
    try:
        return json.loads(p.stdout)
    except ValueError:
        return {"ok": False, "why": p.stderr.strip()[-300:] or f"exit {p.returncode}"}


def why_not(r):
    if "why" in r:
        return r["why"]
    worst = max(t["rel_rms"] for t in r["a"]["tensors"])
    return f"(a) {worst:.2e}, greedy {r['a']['greedy_same']}/{r['a']['greedy']}; (b) {r['b']['rel_rms']:.2e}, {r['b']['rows_with_other_experts']} of {r['b']['rows']} rows differ, {r['b']['first_failure']}"


def check_tiers(nibble, path, tiers):
    bad, digests = [], set()
    for tier in tiers:
        r = compare(nibble, path, "--tier", tier)
        if not r["ok"]:
            bad.append(f"{tier}: {why_not(r)}")
        elif r["order"] == "tile":
            digests.add((r["b"]["digest"], r["b"]["float32_digest"]))
    return bad + (["tiers of one order differ"] if len(digests) > 1 else [])


def check_quantised(nibble, path, tmp, kind):
    store, ref = os.path.join(tmp, "store"), os.path.join(tmp, "ref.safetensors")
    env = dict(os.environ, NIBBLE_MODELS=store)
    p = subprocess.run([nibble, "create", "m", "--from", path, "--quantize", kind, "--quiet"], env=env, capture_output=True, text=True)
    if p.returncode:
        return f"{kind}: create: {p.stderr.strip()[-300:]}"
    weights, config, formats = forward.load_store(store, "m")
    ids = forward.read_safetensors(os.path.join(path, "reference.safetensors"))[0]["input_ids"].astype(np.int64)
    logits = forward.Model(weights, config).forward(ids)[2]
    forward.write_safetensors(ref, {"input_ids": ids, "logits": logits.astype(np.float32)})
    subprocess.run([nibble, "rm", "m"], env=env, capture_output=True)
    r = compare(nibble, path, "--quantize", kind, "--reference", ref)
    if not r["ok"]:
        return f"{kind}: {why_not(r)}"
    count = sum(n for f, n in formats.items() if f not in ("bf16", "f16", "f32"))
    if r["quantized_tensors"] != count or (count == 0) != (kind == "bf16"):
        return f"{kind}: {r['quantized_tensors']} tensors quantised, stored {formats}"
    return None


def main():
    nibble = os.path.abspath(sys.argv[1])
    tr.logging.set_verbosity_error()
    torch.set_num_threads(2)
    tiers = json.loads(subprocess.run([nibble, "version", "--json"], stdout=subprocess.PIPE, check=True).stdout)["tiers"]
    runs = failures = 0
    for name in sys.argv[2:] or VARIANTS:
        types = VARIANTS[name][3].get("types", [])
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, name)
            os.mkdir(path)
            make(path, name)
            bad = check_tiers(nibble, path, tiers)
            bad += [why for why in (check_quantised(nibble, path, tmp, kind) for kind in types) if why]
        runs += len(tiers) + len(types)
        failures += len(bad)
        for why in bad:
            print(f"FAILED {name}: {why}", flush=True)
    print(f"covered: {len(sys.argv[2:] or VARIANTS)} models, {len(tiers)} tiers, {runs} comparisons, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
