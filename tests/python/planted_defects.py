"""Defects that test_defects.py plants one at a time in the checkpoints of make_producers.py, and what must become of each.

A row is (case, label, change, outcome). change(t, c, d) alters the tensors and the config, or writes the weight files of folder d itself and returns
FILES. outcome: "E_..." an import refused with this code; "same" the values are those of the unspoilt checkpoint; "same: TEXT" likewise, and a warning
has this text: where the config contradicts the tensors, the tensors win and both are named.
"""
import json
import os

import torch
from safetensors.torch import save_file

FILES = "files"
Q, D = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"
X, O = "model.layers.1.mlp.experts.0.gate_proj", "model.layers.0.mlp.experts."
W = "model.layers.0.mlp.switch_mlp.gate_proj"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
TABLE = []


def rows(case, *more):
    for label, change, outcome in more:
        TABLE.append((case, label, change, outcome))


def put(name, g):
    def f(t, c, d):
        t[name] = g(t[name])
    return f


def add(name, x):
    def f(t, c, d):
        t[name] = x(t) if callable(x) else x
    return f


def drop(*names):
    def f(t, c, d):
        for n in names:
            del t[n]
    return f


def conf(g):
    def f(t, c, d):
        g(c)
        if os.path.exists(os.path.join(d, "hf_quant_config.json")):
            os.remove(os.path.join(d, "hf_quant_config.json"))
    return f


def quant(**fields):
    return conf(lambda c: c["quantization_config"].update(fields))


def group(**fields):
    return conf(lambda c: c["quantization_config"]["config_groups"]["group_0"]["weights"].update(fields))


def rename(g):
    def f(t, c, d):
        for n in list(t):
            t[g(n)] = t.pop(n)
    return f


def each_name(part, g):
    """g(t, name) for every tensor whose name has this part."""
    def f(t, c, d):
        for n in [n for n in t if part in n]:
            g(t, n)
    return f


def transposed(x):
    return x.transpose(-1, -2).contiguous()


def cast(dt):
    return lambda x: x.to(dt)


def value(i, v):
    def g(x):
        x.view(-1)[i] = v
        return x
    return g


def byte(i, v):
    def g(x):
        x.view(torch.uint8).view(-1)[i] = v
        return x
    return g


def fewer(x):
    return x[..., :-1].contiguous()


def one(*shape):
    return lambda *_: torch.ones(*shape)


# ---- FP4 and MX ----
rows("ct-nvfp4",
     ("scale of dtype BF16", put(Q + ".weight_scale", cast(torch.bfloat16)), "E_ORPHAN_COMPANION"),
     ("scale as raw bytes", put(Q + ".weight_scale", lambda x: x.view(torch.uint8)), "same"),
     ("scale transposed", put(D + ".weight_scale", transposed), "E_QUANT_SHAPE"),
     ("one group fewer", put(Q + ".weight_scale", fewer), "E_QUANT_SHAPE"),
     ("divisor 0", put(Q + ".weight_global_scale", lambda x: x * 0), "E_GLOBAL_INVALID"),
     ("divisor negative", put(Q + ".weight_global_scale", lambda x: -x), "E_GLOBAL_INVALID"),
     ("divisor infinite", put(Q + ".weight_global_scale", lambda x: x * float("inf")), "E_GLOBAL_INVALID"),
     ("divisor without a reciprocal", put(Q + ".weight_global_scale", lambda x: x * 0 + 1e-45), "E_GLOBAL_INVALID"),
     ("divisor of dtype I32", put(Q + ".weight_global_scale", cast(torch.int32)), "E_EXPERT_NVFP4"),
     ("two divisors", put(Q + ".weight_global_scale", lambda x: x.repeat(2)), "E_EXPERT_NVFP4"),
     ("multiplier under a second name", add(Q + ".weight_scale_2", torch.tensor([0.5])), "E_ORPHAN_COMPANION"),
     ("weight under a second name", add(Q + ".weight", lambda t: torch.zeros(256, 256, dtype=torch.bfloat16)), "E_COLLISION"),
     ("orphan scale", add("model.layers.0.self_attn.z_proj.weight_scale", lambda t: t[Q + ".weight_scale"].clone()), "E_ORPHAN_COMPANION"),
     ("orphan divisor", add("model.layers.7.self_attn.q_proj.weight_global_scale", torch.tensor([2.0])), "E_ORPHAN_COMPANION"),
     ("codes of dtype I8", put(Q + ".weight_packed", lambda x: x.view(torch.int8)), "E_ORPHAN_COMPANION"),
     ("one row fewer", put(Q + ".weight_packed", lambda x: x[:-1].contiguous()), "E_QUANT_SHAPE"),
     ("ignored by name", quant(ignore=["lm_head", D]), "same: lists 1 modules as not quantised"),
     ("ignored by expression", quant(ignore=["re:.*down_proj"]), "same: lists 2 modules as not quantised"),
     ("a broken expression", quant(ignore=["re:((("]), "E_CONFIG"),
     ("a broken target", quant(config_groups={"group_0": {"targets": ["re:*_proj"], "weights": {"num_bits": 4, "type": "float"}}}), "config_groups.group_0.targets"),
     ("an expression without an end", quant(ignore=["re:(?:[a-z0-9_.]+)+\\.$"]), "takes too many steps"),
     ("8 bits, says the group", group(num_bits=8), "same: config_groups.group_0.weights.num_bits is 8"),
     ("integers, says the group", group(type="int"), "same: config_groups.group_0.weights.type is"),
     ("groups of 32, says the group", group(group_size=32), "same: config_groups.group_0.weights.group_size is 32"),
     ("a group for other modules", quant(config_groups={"group_0": {"targets": ["re:.*mlp"], "weights": {"num_bits": 4, "type": "float"}}}), "same: config_groups targets 8 modules"),
     ("a class that is not here", quant(config_groups={"group_0": {"targets": ["ZapLinear"], "weights": {"num_bits": 4, "type": "float"}}}), "same"),
     ("another method", quant(quant_method="awq"), "same: quant_method awq, the tensors are ct-nvfp4"),
     ("an unknown method", quant(quant_method="zap"), "same: quant_method zap (unknown)"),
     ("a refused method", quant(quant_method="bitsandbytes"), "E_FORMAT_UNSUPPORTED"),
     ("a refused format", quant(format="mxfp6-pack-quantized"), "E_FORMAT_UNSUPPORTED"),
     ("config groups as a list", quant(config_groups=[1, 2]), "same"),
     ("the section is a list", conf(lambda c: c.update(quantization_config=[1])), "same"),
     ("no section", conf(lambda c: c.pop("quantization_config")), "same"))
rows("modelopt-export-nvfp4",
     ("scale of dtype F32", put(Q + ".weight_scale", cast(torch.float32)), "E_DTYPE_UNSUPPORTED"),
     ("scale transposed", put(D + ".weight_scale", transposed), "E_QUANT_SHAPE"),
     ("half the groups", put(Q + ".weight_scale", lambda x: x[:, ::2].contiguous()), "E_QUANT_SHAPE"),
     ("multiplier 0", put(Q + ".weight_scale_2", lambda x: x * 0), "E_GLOBAL_INVALID"),
     ("multiplier NaN", put(Q + ".weight_scale_2", lambda x: x * float("nan")), "E_GLOBAL_INVALID"),
     ("multiplier negative", put(Q + ".weight_scale_2", lambda x: -x), "E_GLOBAL_INVALID"),
     ("multiplier of dtype I64", put(Q + ".weight_scale_2", cast(torch.int64)), "E_EXPERT_NVFP4"),
     ("multiplier missing", drop(Q + ".weight_scale_2"), "E_GLOBAL_MISSING"),
     ("multiplier under the divisor's name", lambda t, c, d: t.update({Q + ".weight_global_scale": t.pop(Q + ".weight_scale_2").reshape(1)}), "E_GLOBAL_MISSING"),
     ("scale NaN over codes", put(Q + ".weight_scale", byte(0, 0x7F)), "E_SCALE_NAN"),
     ("pre_quant_scale too short", add(Q + ".pre_quant_scale", one(255)), "E_PRE_QUANT_SCALE"),
     ("pre_quant_scale of a norm", add("model.layers.0.input_layernorm.pre_quant_scale", one(256)), "E_ORPHAN_COMPANION"),
     ("low-rank factors", add(Q + ".svdquant_lora_a", one(4, 256)), "E_FORMAT_UNSUPPORTED"),
     ("low-rank factors of the quantiser, half of them", add(Q + ".weight_quantizer._svdquant_lora_b", one(256, 4)), "E_FORMAT_UNSUPPORTED"),
     ("zero points", add(Q + ".zero_point", one(256, 16)), "E_ORPHAN_COMPANION"),
     ("a multiplier of MLX", add(Q + ".global_scale", one(1)), "E_ORPHAN_COMPANION"),
     ("a third scale", add(Q + ".weight_scale_3", one(1)), "E_ORPHAN_COMPANION"),
     ("biases", add(Q + ".biases", one(256, 16)), "E_ORPHAN_COMPANION"),
     ("a tensor that has to do with nothing", add("model.layers.0.self_attn.scale_of_mine", one(3)), "same"),
     ("excluded by star", quant(ignore=["*q_proj*"]), "same: lists 2 modules as not quantised"),
     ("another algorithm", quant(quant_algo="FP8"), "same: quant_algo FP8, the tensors are modelopt-nvfp4"),
     ("an unknown algorithm", quant(quant_algo="NVFP5"), "same: quant_algo NVFP5 (unknown)"),
     ("the two configs disagree", lambda t, c, d: c["quantization_config"].update(quant_algo="MXFP8"), "same: quant_algo MXFP8, the tensors are modelopt-nvfp4"))
rows("ct-mxfp4",
     ("scale byte 255", put(Q + ".weight_scale", byte(0, 255)), "E_SCALE_NAN"),
     ("scale byte 250", put(Q + ".weight_scale", byte(0, 250)), "E_SCALE_RANGE"),
     ("scale transposed", put(D + ".weight_scale", transposed), "E_ORPHAN_COMPANION"),
     ("integers, says the group", group(type="int"), "E_FORMAT_UNSUPPORTED"),
     ("a divisor", add(Q + ".weight_global_scale", torch.tensor([1.0])), "E_QUANT_SHAPE"))
rows("ct-mxfp8", ("scale transposed", put(D + ".weight_scale", transposed), "E_FP8_META"), ("code NaN", put(Q + ".weight", byte(0, 0x7F)), "E_NONFINITE"))
rows("modelopt-export-mxfp8", ("scale of dtype F32", put(Q + ".weight_scale", cast(torch.float32)), "E_FP8_META"), ("scale byte 255", put(Q + ".weight_scale", byte(0, 255)), "E_SCALE_NAN"))
rows("gpt-oss-mxfp4",
     ("scales missing", drop(O + "gate_up_proj_scales"), "E_ORPHAN_COMPANION"),
     ("blocks missing", drop(O + "gate_up_proj_blocks"), "E_MISSING_TENSORS"),
     ("bias missing", drop(O + "down_proj_bias"), "E_MISSING_TENSORS"),
     ("bias of dtype I32", put(O + "down_proj_bias", cast(torch.int32)), "E_DTYPE_UNSUPPORTED"),
     ("bias too short", put(O + "down_proj_bias", fewer), "E_ST_SHAPE"),
     ("scales transposed", put(O + "gate_up_proj_scales", transposed), "E_QUANT_SHAPE"),
     ("scale byte 255", put(O + "gate_up_proj_scales", byte(0, 255)), "E_SCALE_NAN"),
     ("an expert fewer in the config", conf(lambda c: c.update(num_local_experts=3)), "E_ST_SHAPE"),
     ("sinks missing", drop("model.layers.0.self_attn.sinks"), "E_MISSING_TENSORS"))
rows("modelopt-gpt-oss", ("two multipliers for four experts", put(O + "gate_up_proj_weight_scale_2", one(2)), "E_EXPERT_NVFP4"))
rows("modelopt-mixed", ("one expert in another format", lambda t, c, d: t.update({X + ".weight": torch.zeros(128, 256, dtype=torch.float8_e4m3fn), X + ".weight_scale": torch.tensor(0.01)})
                        or t.pop(X + ".weight_scale_2"), "E_EXPERT_NVFP4"))


def groups(g):
    """Changes the config groups: g(groups, section)."""
    return conf(lambda c: g(c["quantization_config"]["config_groups"], c["quantization_config"]))


def exchange(a, b):
    def f(g, q):
        g[a]["weights"], g[b]["weights"] = g[b]["weights"], g[a]["weights"]
    return groups(f)


rows("ct-mixed",
     ("two groups exchanged", exchange("group_0", "group_1"), "same: config says type float"),
     ("the class's group exchanged", exchange("group_0", "group_2"), "same: config_groups.group_2.weights.num_bits is 4"),
     ("a group lost", groups(lambda g, q: g.pop("group_2")), "same: config_groups targets 3 modules"),
     ("an expression that ends too early", groups(lambda g, q: g["group_0"].update(targets=["re:self_attn"])), "same: the tensors win"),
     ("nothing ignored", groups(lambda g, q: q.update(ignore=[])), "same: config_groups.group_2 targets 1 modules"),
     ("all ignored", groups(lambda g, q: q.update(ignore=["re:.*"])), "same: lists 13 modules as not quantised"),
     ("a format that is refused", groups(lambda g, q: g["group_0"].update(format="marlin-24")), "E_FORMAT_UNSUPPORTED"),
     ("MXFP6 for some", groups(lambda g, q: g["group_1"].update(format="mxfp6-pack-quantized")), "E_FORMAT_UNSUPPORTED"),
     ("targets that are no list", groups(lambda g, q: g["group_0"].update(targets="Linear")), "same"))
rows("ct-mixed-int",
     ("two groups exchanged", exchange("group_0", "group_3"), "same: config says 4 bits, the shapes say 3"),
     ("two groups of one width exchanged", exchange("group_1", "group_2"), "E_QUANT_SHAPE"))
rows("gptq-dynamic",
     ("no rules", quant(dynamic=None), "same: config says 4 bits, the shapes say 8"),
     ("rules for other modules", conf(lambda c: c["quantization_config"].update(dynamic={"+:mlp": {"bits": 8}})), "same: config says 4 bits, the shapes say 3"))

# ---- MLX ----
rows("mlx-int4-g64",
     ("a multiplier", add(Q + ".global_scale", one(1)), "E_ORPHAN_COMPANION"),
     ("a second scale", add(Q + ".scale", one(256, 4)), "E_ORPHAN_COMPANION"),
     ("a group index", add(Q + ".g_idx", lambda t: torch.zeros(256, dtype=torch.int32)), "E_ORPHAN_COMPANION"),
     ("an adapter", add(Q + ".lora_A.weight", one(4, 256)), "E_ORPHAN_COMPANION"),
     ("biases of the layer, says the config", conf(lambda c: c.update(attention_bias=True)), "E_MISSING_TENSORS"),
     ("an unknown activation", conf(lambda c: c.update(hidden_act="zap")), "E_ARCH_UNSUPPORTED"),
     ("a norm that is no number", put("model.layers.1.input_layernorm.weight", value(3, float("nan"))), "E_NONFINITE"),
     ("a norm that is infinite", put("model.norm.weight", value(3, float("inf"))), "E_NONFINITE"),
     ("untied, and no head", lambda t, c, d: c.update(tie_word_embeddings=False) or t.pop("lm_head.weight") is None, "E_MISSING_TENSORS"),
     ("biases missing", drop(Q + ".biases"), "E_QUANT_SHAPE"),
     ("scales missing", drop(Q + ".scales"), "E_ORPHAN_COMPANION"),
     ("scales transposed", put(D + ".scales", transposed), "E_QUANT_SHAPE"),
     ("scales and biases of two dtypes", put(Q + ".scales", cast(torch.float16)), "E_QUANT_SHAPE"),
     ("scales of dtype U8", put(Q + ".scales", lambda x: x.view(torch.uint8)[:, :4].contiguous()), "E_ORPHAN_COMPANION"),
     ("one group fewer", lambda t, c, d: t.update({Q + s: fewer(t[Q + s]) for s in (".scales", ".biases")}), "E_QUANT_SHAPE"),
     ("scale infinite", put(Q + ".scales", value(5, float("inf"))), "E_SCALE_NAN"),
     ("bias NaN", put(Q + ".biases", value(5, float("nan"))), "E_SCALE_NAN"),
     ("8 bits, says the config", conf(lambda c: c["quantization"].update(bits=8)), "same: config says 8 bits, group 64"),
     ("groups of 32, says the config", conf(lambda c: c["quantization"].update(group_size=32)), "same: config says 4 bits, group 32"),
     ("mode mxfp4, says the config", conf(lambda c: c["quantization"].update(mode="mxfp4")), "same: config says mode mxfp4, the shapes say affine"),
     ("an unknown mode", conf(lambda c: c["quantization"].update(mode="zap")), "same: config says mode zap"),
     ("not quantised, says the config", conf(lambda c: c["quantization"].update({Q: False})), "same: config says not quantised"),
     ("3 bits for one module, says the config", conf(lambda c: c["quantization"].update({Q: {"bits": 3, "group_size": 64}})), "same: config says 3 bits"),
     ("no section", conf(lambda c: (c.pop("quantization"), c.pop("quantization_config"))), "same"),
     ("tied, and a quantised head", lambda t, c, d: c.update(tie_word_embeddings=True) or t.update({"lm_head" + s: t["model.embed_tokens" + s].clone() for s in (".weight", ".scales", ".biases")}), "same"),
     ("tied, and a float head", conf(lambda c: c.update(tie_word_embeddings=True)), "same"))
rows("mlx-mxfp8", ("scale byte 255", put(Q + ".scales", byte(0, 255)), "E_SCALE_NAN"), ("code NaN", put(Q + ".weight", byte(0, 0x7F)), "E_NONFINITE"))
rows("mlx-nvfp4-moe",
     ("multipliers missing", drop(W + ".global_scale"), "E_GLOBAL_MISSING"),
     ("a multiplier fewer", put(W + ".global_scale", fewer), "E_EXPERT_NVFP4"),
     ("an expert fewer", lambda t, c, d: t.update({W + s: t[W + s][:3].clone() for s in (".weight", ".scales", ".global_scale")}), "E_EXPERT_COUNT"),
     ("the bank a second time, per expert", add(O + "0.gate_proj.weight", lambda t: torch.zeros(128, 256, dtype=torch.bfloat16)), "E_COLLISION"),
     ("the bank a second time, gate and up in one", add(O + "gate_up_proj", lambda t: torch.zeros(4, 256, 256, dtype=torch.bfloat16)), "E_COLLISION"))
A = "model.layers.0.self_attn."
rows("mlx-lm-glm4_moe_lite-float",
     ("the matrix and its halves", add(A + "kv_b_proj.weight", lambda t: torch.zeros(128, 32, dtype=torch.bfloat16)), "E_COLLISION"),
     ("keys without values", drop(A + "unembed_out.weight"), "E_MISSING_TENSORS"),
     ("values without keys", drop(A + "embed_q.weight"), "E_MISSING_TENSORS"),
     ("keys as the publisher's rows", put(A + "embed_q.weight", transposed), "E_ST_SHAPE"),
     ("a head fewer", put(A + "embed_q.weight", lambda x: x[:-1].contiguous()), "E_ST_SHAPE"))
rows("mlx-lm-laguna-float",
     ("the router under both names", add("model.layers.1.mlp.gate.weight", lambda t: t["model.layers.1.mlp.gate.proj.weight"].clone()), "E_COLLISION"))

# ---- integers ----
rows("ct-int4-g64-asym",
     ("zero point missing", drop(Q + ".weight_zero_point"), "E_QUANT_SHAPE"),
     ("zero point of dtype F32", put(Q + ".weight_zero_point", cast(torch.float32)), "E_QUANT_SHAPE"),
     ("zero point transposed", put(Q + ".weight_zero_point", transposed), "E_QUANT_SHAPE"),
     ("weight_shape missing", drop(Q + ".weight_shape"), "E_ORPHAN_COMPANION"),
     ("weight_shape doubled", put(Q + ".weight_shape", lambda x: x * 2), "E_QUANT_SHAPE"),
     ("weight_shape negative", put(Q + ".weight_shape", lambda x: -x), "E_QUANT_SHAPE"),
     ("scale transposed", put(D + ".weight_scale", transposed), "E_QUANT_SHAPE"),
     ("scale of dtype I32", put(Q + ".weight_scale", cast(torch.int32)), "E_ORPHAN_COMPANION"),
     ("groups of 128, says the config", group(group_size=128), "same: config says groups of 128, the shapes say 64"),
     ("8 bits, says the config", group(num_bits=8), "same: config says 8 bits, the shapes say 4"),
     ("7 bits, says the config", group(num_bits=7), "E_FORMAT_UNSUPPORTED"),
     ("channels, says the config", group(strategy="channel", group_size=None), "same: config_groups.group_0.weights.strategy is"),
     ("no width in the config", group(num_bits=None), "same"),
     ("symmetric, says the config", group(symmetric=True), "same: config says symmetric"),
     ("floats, says the config", group(type="float"), "same: config says type float"))
rows("ct-int4-g32-sym",
     ("g_idx out of range", add(Q + ".weight_g_idx", lambda t: torch.full((256,), 99, dtype=torch.int32)), "E_QUANT_SHAPE"),
     ("g_idx too short", add(Q + ".weight_g_idx", lambda t: torch.zeros(255, dtype=torch.int32)), "E_QUANT_SHAPE"))
rows("ct-int8-channel", ("scales of columns", put(D + ".weight_scale", one(384, 1)), "E_QUANT_SHAPE"), ("scale missing", drop(Q + ".weight_scale"), "E_DTYPE_UNSUPPORTED"))
rows("modelopt-export-int4",
     ("scale of dtype I32", put(Q + ".weight_scale", cast(torch.int32)), "E_DTYPE_UNSUPPORTED"),
     ("one row fewer", put(Q + ".weight", lambda x: x[:-1].contiguous()), "E_DTYPE_UNSUPPORTED"),
     ("another algorithm", quant(quant_algo="NVFP4"), "same: quant_algo NVFP4, the tensors are modelopt-int4"))
rows("gptq-4-asym",
     ("qzeros missing", drop(Q + ".qzeros"), "E_ORPHAN_COMPANION"),
     ("scales missing", drop(Q + ".scales"), "E_ORPHAN_COMPANION"),
     ("g_idx missing", drop(Q + ".g_idx"), "same"),
     ("g_idx out of range", put(Q + ".g_idx", value(3, 4)), "E_QUANT_SHAPE"),
     ("g_idx negative", put(Q + ".g_idx", value(3, -1)), "E_QUANT_SHAPE"),
     ("g_idx too short", put(Q + ".g_idx", fewer), "E_QUANT_SHAPE"),
     ("g_idx of dtype I64", put(Q + ".g_idx", cast(torch.int64)), "E_QUANT_SHAPE"),
     ("g_idx permuted", put(Q + ".g_idx", lambda x: x.flip(0).contiguous()), "E_REQUANT"),
     ("scales transposed", put(D + ".scales", transposed), "E_QUANT_SHAPE"),
     ("one group fewer", put(Q + ".scales", lambda x: x[:-1].contiguous()), "E_QUANT_SHAPE"),
     ("scales of dtype I32", put(Q + ".scales", cast(torch.int32)), "E_ORPHAN_COMPANION"),
     ("scale NaN", put(Q + ".scales", value(2, float("nan"))), "E_SCALE_NAN"),
     ("scale infinite", put(Q + ".scales", value(2, float("inf"))), "E_SCALE_NAN"),
     ("qzeros transposed", put(D + ".qzeros", transposed), "E_QUANT_SHAPE"),
     ("qzeros of dtype I64", put(Q + ".qzeros", cast(torch.int64)), "E_QUANT_SHAPE"),
     ("qweight of dtype I64", put(Q + ".qweight", cast(torch.int64)), "E_ORPHAN_COMPANION"),
     ("8 bits, says the config", quant(bits=8), "same: config says 8 bits, the shapes say 4"),
     ("5 bits, says the config", quant(bits=5), "same: config says 5 bits, the shapes say 4"),
     ("no width in the config", conf(lambda c: c["quantization_config"].pop("bits")), "same"),
     ("symmetric, says the config", quant(sym=True), "same: config says symmetric"),
     ("8 bits for some, says the config", quant(dynamic={"+:.*q_proj": {"bits": 8}}), "same: config says 8 bits, the shapes say 4"),
     ("some not quantised, says the config", quant(dynamic={"-:.*down_proj": {}}), "same: config says not quantised (dynamic)"),
     ("a broken expression", quant(dynamic={"+:[": {"bits": 8}}), "E_CONFIG"),
     ("one column of zero points fewer", put(Q + ".qzeros", fewer), "E_QUANT_SHAPE"),
     ("a quarter of the inputs fewer", put(Q + ".qweight", lambda x: x[:-8].contiguous()), "E_QUANT_SHAPE"),
     ("groups of 128, says the config", quant(group_size=128), "same: config says groups of 128, the shapes say 64"),
     ("AWQ, says the config", quant(quant_method="awq"), "same: quant_method awq, the tensors are gptq"),
     ("Marlin packing", quant(checkpoint_format="marlin"), "E_FORMAT_UNSUPPORTED"),
     ("planar packing", quant(checkpoint_format="gptq_p"), "E_FORMAT_UNSUPPORTED"),
     ("weight under a second name", add(Q + ".weight", lambda t: torch.zeros(256, 256, dtype=torch.bfloat16)), "E_COLLISION"))
rows("awq-4",
     ("qzeros missing", drop(Q + ".qzeros"), "E_ORPHAN_COMPANION"),
     ("zero points a second time", add(Q + ".zero_point", one(2, 256)), "E_ORPHAN_COMPANION"),
     ("weight under a second name", add(Q + ".weight", lambda t: torch.zeros(256, 256, dtype=torch.bfloat16)), "E_COLLISION"),
     ("GEMV", quant(version="gemv"), "E_FORMAT_UNSUPPORTED"),
     ("fast GEMV", quant(version="gemv_fast"), "E_FORMAT_UNSUPPORTED"),
     ("GEMM in capitals", quant(version="GEMM"), "same"),
     ("GPTQ, says the config", quant(quant_method="gptq"), "same: quant_method gptq, the tensors are awq"),
     ("scales transposed", put(D + ".scales", transposed), "E_QUANT_SHAPE"),
     ("g_idx out of range", add(Q + ".g_idx", lambda t: torch.full((256,), 7, dtype=torch.int32)), "E_QUANT_SHAPE"))

# ---- FP8 and experts ----
rows("fp8-block",
     ("a second scale", add(Q + ".scale", one(1)), "E_ORPHAN_COMPANION"),
     ("scale transposed", put("model.layers.0.self_attn.k_proj.weight_scale_inv", transposed), "E_FP8_META"),
     ("a row of scales fewer", put(Q + ".weight_scale_inv", lambda x: x[:1].contiguous()), "E_FP8_META"),
     ("a column of scales more", put(Q + ".weight_scale_inv", lambda x: torch.cat([x, x[:, :1]], 1)), "E_FP8_META"),
     ("scale NaN", put(Q + ".weight_scale_inv", value(0, float("nan"))), "E_SCALE_NAN"),
     ("scale infinite", put(Q + ".weight_scale_inv", value(0, float("inf"))), "E_SCALE_NAN"),
     ("scale of dtype I32", put(Q + ".weight_scale_inv", cast(torch.int32)), "E_FP8_META"),
     ("scale under two names", add(Q + ".weight_scale", lambda t: t[Q + ".weight_scale_inv"].clone()), "E_ORPHAN_COMPANION"),
     ("scale missing", drop(Q + ".weight_scale_inv"), "E_FP8_META"),
     ("weight missing", drop(Q + ".weight"), "E_ORPHAN_COMPANION"),
     ("weight of dtype BF16", put(Q + ".weight", cast(torch.bfloat16)), "E_ORPHAN_COMPANION"),
     ("code NaN", put(Q + ".weight", byte(0, 0x7F)), "E_NONFINITE"),
     ("blocks of 64, says the config", quant(weight_block_size=[64, 64]), "same: config says blocks of [64,64]"),
     ("blocks of 0, says the config", quant(weight_block_size=[0, 0]), "same: config says blocks of [0,0]"),
     ("huge blocks, says the config", quant(weight_block_size=[2 ** 63 - 1, 2 ** 63 - 1]), "same: config says blocks of"),
     ("not converted, says the config", quant(modules_to_not_convert=["q_proj"]), "same: lists 2 modules as not quantised"),
     ("scale of an expert missing", drop(X + ".weight_scale_inv"), "E_FP8_META"),
     ("a float expert", lambda t, c, d: t.update({X + ".weight": t[X + ".weight"].to(torch.bfloat16)}) or t.pop(X + ".weight_scale_inv"), "E_EXPERT_PARTIAL"),
     ("an expert missing between others", each_name("experts.2.", lambda t, n: t.pop(n)), "E_EXPERT_GAP"),
     ("an expert twice", each_name("experts.3.", lambda t, n: t.update({n.replace("experts.3.", "experts.03."): t[n].clone()})), "E_EXPERT_NAME"),
     ("an expert more", each_name("experts.3.", lambda t, n: t.update({n.replace("experts.3.", "experts.4."): t[n].clone()})), "E_EXPERT_COUNT"),
     ("a projection of an expert missing", each_name("experts.3.up_proj", lambda t, n: t.pop(n)), "E_EXPERT_COUNT"))
rows("ct-fp8-channel", ("scales of columns", put(D + ".weight_scale", one(384, 1)), "E_FP8_META"))
rows("ct-fp8-tensor", ("three scales", put(D + ".weight_scale", one(3)), "E_FP8_META"), ("scale 0", put(D + ".weight_scale", lambda x: x * 0), "E_GLOBAL_INVALID"))
rows("modelopt-export-fp8-blocks", ("axes of the scale exchanged", put(D + ".weight_scale", lambda x: x.reshape(1, 2, 3, 1)), "E_FP8_META"))


# ---- files, names, config ----
def shards(change=None, index=True, first=lambda i, n: i % 2 == 0):
    def f(t, c, d):
        names = sorted(t)
        a = {n: t[n] for i, n in enumerate(names) if first(i, n)}
        b = {n: t[n] for n in names if n not in a}
        x = {"metadata": {"total_size": sum(v.numel() * v.element_size() for v in t.values())}, "weight_map": {**{n: ONE for n in a}, **{n: TWO for n in b}}}
        if change:
            change(x, a, b)
        for file, part in ((ONE, a), (TWO, b)):
            save_file({k: v.clone() for k, v in part.items()}, os.path.join(d, file))
        if index:
            with open(os.path.join(d, "model.safetensors.index.json"), "w") as f:
                json.dump(x, f)
        return FILES
    return f


def mapped(to):
    return shards(lambda x, a, b: x["weight_map"].update({next(iter(a)): to}))


def text(name, content):
    def f(t, c, d):
        with open(os.path.join(d, name), "wb") as out:
            out.write(content)
        return FILES
    return f


def ambiguous(t, c, d):
    save_file(t, os.path.join(d, "model.safetensors"))
    return shards(index=False)(t, c, d)


def fused_qkv(t, c, d):
    for i in range(2):
        p = f"model.layers.{i}.self_attn."
        for s in (".weight_packed", ".weight_scale"):
            parts = [t.pop(p + x + s) for x in ("q_proj", "k_proj", "v_proj")]
            t[p + "qkv_proj" + s] = torch.cat([x.view(torch.uint8) for x in parts]).view(parts[0].dtype)
        t[p + "qkv_proj.weight_global_scale"] = [t.pop(p + x + ".weight_global_scale") for x in ("q_proj", "k_proj", "v_proj")][0]


rows("ct-nvfp4",
     ("two shards", shards(), "same"),
     ("companions in another shard", shards(first=lambda i, n: n.endswith("weight_scale")), "same"),
     ("two shards without an index", shards(index=False), "same"),
     ("a tensor in two files", shards(lambda x, a, b: b.update({next(iter(a)): next(iter(a.values()))}), index=False), "E_DUP_TENSOR"),
     ("the index names a tensor that no file has", shards(lambda x, a, b: x["weight_map"].update({"z.weight": ONE})), "E_INCOMPLETE"),
     ("the index names a file that is missing", mapped("model-00003-of-00003.safetensors"), "E_INCOMPLETE"),
     ("the index names the other file", mapped(TWO), "E_INDEX_MISMATCH"),
     ("the index leaves the folder", mapped("../" + ONE), "E_INDEX_PATH"),
     ("the index names an absolute path", mapped("/etc/passwd"), "E_INDEX_PATH"),
     ("the index maps to a number", mapped(5), "E_INDEX_PATH"),
     ("a wrong total size", shards(lambda x, a, b: x["metadata"].update(total_size=5)), "same: total size of 5 bytes"),
     ("the index leaves out a companion", shards(lambda x, a, b: x["weight_map"].pop(Q + ".weight_global_scale")), "E_GLOBAL_MISSING"),
     ("one file beside shards", ambiguous, "E_AMBIGUOUS_SOURCE"),
     ("an empty file", text("model.safetensors", b""), "E_ST_TOO_SMALL"),
     ("a pointer in place of the file", text("model.safetensors", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"), "E_ST_HEADER_SIZE"),
     ("a pickle only", text("pytorch_model.bin", b"x"), "E_NO_WEIGHTS"),
     ("names below language_model", rename(lambda n: "language_model." + n), "same"),
     ("names below model.language_model", rename(lambda n: n.replace("model.", "model.language_model.", 1)), "same"),
     ("names below module", rename(lambda n: "module." + n), "E_MISSING_TENSORS"),
     ("one tensor under two prefixes", add("language_model.model.norm.weight", lambda t: t["model.norm.weight"].clone()), "E_COLLISION"),
     ("fused q, k and v", fused_qkv, "E_MISSING_TENSORS"),
     ("no embedding", drop("model.embed_tokens.weight"), "E_MISSING_TENSORS"),
     ("a short norm", put("model.norm.weight", fewer), "E_ST_SHAPE"),
     ("a norm of integers", put("model.norm.weight", cast(torch.int32)), "E_DTYPE_UNSUPPORTED"),
     ("a layer fewer than the config says", conf(lambda c: c.update(num_hidden_layers=3)), "E_MISSING_TENSORS"),
     ("another width", conf(lambda c: c.update(hidden_size=512)), "E_ST_SHAPE"),
     ("another vocabulary", conf(lambda c: c.update(vocab_size=321)), "E_ST_SHAPE"),
     ("a negative vocabulary", conf(lambda c: c.update(vocab_size=-1)), "vocab_size"),
     ("2.5 layers", conf(lambda c: c.update(num_hidden_layers=2.5)), "num_hidden_layers"),
     ("an unknown architecture", conf(lambda c: c.update(architectures=["ZapForCausalLM"], model_type="zap")), "E_ARCH_UNSUPPORTED"))
