#!/usr/bin/env python3
"""Writes the small reference checkpoints as GGUF files, as converters do it (pair order of q and k, norms with the one inside, stacked experts), and imports them:
every value must be that of the hub checkpoint, and greedy ids of both imports must be equal.

    test_gguf_models.py NIBBLE DATA      needs the gguf package and numpy
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import gguf
import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import dequant_reference as ref  # noqa: E402

ARCH = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "mlp.gate": "ffn_gate_inp", "post_attention_layernorm": "ffn_norm"}
GEMMA = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}


def pair_order(v, hd):
    """Halves of each head interleaved: row h * hd/2 + j goes to 2j + h."""
    return v.reshape(v.shape[0] // hd, 2, hd // 2, -1).swapaxes(1, 2).reshape(v.shape)


def write(path, cfg, weights):
    arch = ARCH[cfg["model_type"]]
    w = gguf.GGUFWriter(path, arch)
    hd = cfg.get("head_dim") or cfg["hidden_size"] // cfg["num_attention_heads"]
    rope = cfg.get("rope_parameters", {})
    w.add_embedding_length(cfg["hidden_size"])
    w.add_block_count(cfg["num_hidden_layers"])
    w.add_head_count(cfg["num_attention_heads"])
    w.add_head_count_kv(cfg["num_key_value_heads"])
    w.add_feed_forward_length(cfg["intermediate_size"])
    w.add_context_length(cfg["max_position_embeddings"])
    w.add_layer_norm_rms_eps(cfg["rms_norm_eps"])
    w.add_key_length(hd)
    w.add_rope_freq_base(rope.get("full_attention", rope).get("rope_theta", 10000.0))
    w.add_eos_token_id(cfg["eos_token_id"])
    if arch == "gemma3":
        w.add_sliding_window(cfg["sliding_window"])
    if arch == "qwen3moe":
        w.add_expert_count(cfg.get("num_experts") or cfg["num_local_experts"])
        w.add_expert_used_count(cfg["num_experts_per_tok"])
        w.add_expert_feed_forward_length(cfg["moe_intermediate_size"])
    if rope.get("rope_type") == "llama3":  # converters write the divisors as a tensor
        theta = rope["rope_theta"]
        f = []
        for i in range(hd // 2):
            wave = 2 * np.pi * theta ** (2 * i / hd)
            old, lo, hi, factor = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"], rope["factor"]
            smooth = (old / wave - lo) / (hi - lo)
            f.append(1 if wave < old / hi else factor if wave > old / lo else 1 / ((1 - smooth) / factor + smooth))
        w.add_tensor("rope_freqs.weight", np.array(f, np.float32))
    experts = {}
    for name, v in weights.items():
        v = v.astype(np.float32)
        m = re.match(r"model\.layers\.(\d+)\.(.*)\.(weight|bias)$", name)
        e = re.match(r"model\.layers\.(\d+)\.mlp\.experts\.(\d+)\.(\w+)_proj\.weight$", name)
        if e:
            experts.setdefault((int(e[1]), e[3]), {})[int(e[2])] = v
            continue
        if m:
            part = GEMMA.get(m[2]) if arch == "gemma3" and m[2] in GEMMA else NAMES[m[2]]
            out = f"blk.{m[1]}.{part}.{m[3]}"
        else:
            out = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}[name]
        if arch == "gemma3" and "norm" in name:
            v = v + 1
        if arch == "llama" and re.search(r"self_attn\.[qk]_proj", name):
            v = pair_order(v, hd)
        w.add_tensor(out, v)
    for (layer, proj), v in experts.items():
        w.add_tensor(f"blk.{layer}.ffn_{proj}_exps.weight", np.stack([v[i] for i in range(len(v))]))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def greedy(nibble, env, name):
    r = subprocess.run([nibble, "run", name, "--ids", "1,5,9,200,31,77", "-n", "24", "--temp", "0", "--json"], env=env, capture_output=True, text=True)
    return json.loads(r.stdout)["ids"] if r.returncode == 0 else r.stderr


def check(nibble, folder, cfg):
    with tempfile.TemporaryDirectory() as store:
        env = dict(os.environ, NIBBLE_MODELS=store)
        path = os.path.join(store, "m.gguf")
        weights = ref.float_source(folder)
        write(path, cfg, weights)
        for name, src in (("a", folder), ("b", path)):
            r = subprocess.run([nibble, "create", name, "--from", src, "--layout", "rows16"], env=env, capture_output=True, text=True)
            if r.returncode:
                return r.stdout[-300:] + r.stderr[-300:]
        stored = ref.stored_weights(ref.Store(store, "b"))
        for k, v in weights.items():
            if k not in stored:
                return f"{k} is not stored"
            want = v + 1 if cfg["model_type"] == "gemma3_text" and "norm" in k else v
            if not np.array_equal(stored[k][0].astype(np.float32).reshape(want.shape), want.astype(np.float32)):
                return f"{k} differs"
        if "--no-run" in sys.argv:
            return None
        a, b = greedy(nibble, env, "a"), greedy(nibble, env, "b")
        return None if a == b and isinstance(a, list) and a else f"greedy ids differ: {a} and {b}"


def main():
    nibble, data = sys.argv[1:3]
    root = os.path.join(data, "reference_models")
    done = bad = 0
    for d in sorted(os.listdir(root)):
        folder = os.path.join(root, d)
        config = os.path.join(folder, "config.json")
        if not os.path.exists(config):
            continue
        with open(config) as f:
            cfg = json.load(f)
        if cfg.get("model_type") not in ARCH or (cfg["model_type"] == "mistral" and cfg.get("sliding_window")):
            continue  # a GGUF of type llama has no window
        why = check(nibble, folder, cfg)
        done += 1
        bad += why is not None
        print(f"{d}: {why or 'equal'}")
    print(f"{done} models, {bad} failures")
    return 1 if bad or not done else 0


if __name__ == "__main__":
    sys.exit(main())
