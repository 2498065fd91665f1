"""The small models that make_producers.py quantises, the table of its cases, and the affine quantiser that several of them share."""
import numpy as np
import torch

H, F, V, LAYERS, HEADS, KV = 256, 384, 320, 2, 4, 2
E, MOE = 4, 128


def dense_config():
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H, "intermediate_size": F, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
            "num_key_value_heads": KV, "head_dim": H // HEADS, "vocab_size": V, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512, "tie_word_embeddings": False,
            "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}


def moe_config():
    c = dense_config()
    c.update({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": E, "num_experts_per_tok": 2, "moe_intermediate_size": MOE, "decoder_sparse_step": 1,
              "mlp_only_layers": [], "norm_topk_prob": True, "rms_norm_eps": 1e-6})
    return c


def float_weights(moe=False, seed=1):
    """Hub names -> BF16 tensors of a random model."""
    g = torch.Generator().manual_seed(seed)

    def r(*shape):
        return (torch.randn(*shape, generator=g) * 0.05).bfloat16()
    w = {"model.embed_tokens.weight": r(V, H), "lm_head.weight": r(V, H), "model.norm.weight": 1 + r(H)}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        w[p + "input_layernorm.weight"] = 1 + r(H)
        w[p + "post_attention_layernorm.weight"] = 1 + r(H)
        for n, o, k in (("q_proj", H, H), ("k_proj", H * KV // HEADS, H), ("v_proj", H * KV // HEADS, H), ("o_proj", H, H)):
            w[p + f"self_attn.{n}.weight"] = r(o, k)
        if moe:
            w[p + "self_attn.q_norm.weight"] = 1 + r(H // HEADS)
            w[p + "self_attn.k_norm.weight"] = 1 + r(H // HEADS)
            w[p + "mlp.gate.weight"] = r(E, H)
            for e in range(E):
                w[p + f"mlp.experts.{e}.gate_proj.weight"] = r(MOE, H)
                w[p + f"mlp.experts.{e}.up_proj.weight"] = r(MOE, H)
                w[p + f"mlp.experts.{e}.down_proj.weight"] = r(H, MOE)
        else:
            w[p + "mlp.gate_proj.weight"] = r(F, H)
            w[p + "mlp.up_proj.weight"] = r(F, H)
            w[p + "mlp.down_proj.weight"] = r(H, F)
    return w


def is_linear(name):
    return name.endswith("_proj.weight")


CASES = {}
BY = {}  # case -> what gave its expected values: a package and, where it is not evident, which part of it


def case(name, by=None):
    def deco(f):
        CASES[name] = f
        BY[name] = by
        return f
    return deco


def each(quantise, config, moe=False, extra=None, embed=False):
    """quantise(base, weight) -> (tensors by suffix, F32 values). Everything else stays BF16."""
    cfg = moe_config() if moe else dense_config()
    cfg.update(config)
    out, exp = {}, {}
    for name, w in float_weights(moe).items():
        if is_linear(name) or (embed and name == "model.embed_tokens.weight"):
            base = name[:-len(".weight")]
            parts, values = quantise(base, w)
            for suffix, t in parts.items():
                out[base + suffix] = t.contiguous()
            exp[name] = values.float().contiguous()
        else:
            out[name] = w
            exp[name] = w.float()
    out.update(extra or {})
    return cfg, out, exp


def affine(w, bits, g, sym):
    o, k = w.shape
    b = w.float().numpy().reshape(o, -1, g)
    n = 2 ** bits - 1
    if sym:
        s = (np.abs(b).max(2) * 2 / n).astype(np.float16).astype(np.float32)
        z = np.full(s.shape, 2 ** (bits - 1))
    else:
        lo, hi = np.minimum(b.min(2), 0), np.maximum(b.max(2), 0)
        s = ((hi - lo) / n).astype(np.float16).astype(np.float32)
        z = np.clip(np.rint(-lo / s), 0, n).astype(np.int64)
    q = np.clip(np.rint(b / s[:, :, None]) + z[:, :, None], 0, n).astype(np.int64)
    v = ((q - z[:, :, None]) * s[:, :, None].astype(np.float64)).reshape(o, k)
    return q.reshape(o, k), s, z, torch.from_numpy(v.astype(np.float32))
