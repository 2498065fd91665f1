/* Llama, and all that share its graph: pre-norm, GQA, gated MLP. specs/architectures.md 6.1. */
#include "model/arch_row.h"
#include "model/arch_rows.h"
#include "model/build.h"

const nb_pattern nb_tensors_llama[] = {
    {"model.embed_tokens.weight", NB_ROLE_TABLE, NB_ALWAYS, "vocab, hidden", NULL},
    {"model.layers.#.input_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"model.layers.#.self_attn.q_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "heads*head_dim, hidden", NULL},
    {"model.layers.#.self_attn.q_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "heads*head_dim", "attention_bias"},
    {"model.layers.#.self_attn.k_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "kv_heads*head_dim, hidden", NULL},
    {"model.layers.#.self_attn.k_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "kv_heads*head_dim", "attention_bias"},
    {"model.layers.#.self_attn.v_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "kv_heads*head_dim, hidden", NULL},
    {"model.layers.#.self_attn.v_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "kv_heads*head_dim", "attention_bias"},
    {"model.layers.#.self_attn.o_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "hidden, heads*head_dim", NULL},
    {"model.layers.#.self_attn.o_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", "attention_bias"},
    {"model.layers.#.post_attention_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"model.layers.#.mlp.gate_proj.weight", NB_ROLE_LINEAR, NB_IF_DENSE, "ffn, hidden", NULL},
    {"model.layers.#.mlp.up_proj.weight", NB_ROLE_LINEAR, NB_IF_DENSE, "ffn, hidden", NULL},
    {"model.layers.#.mlp.down_proj.weight", NB_ROLE_LINEAR, NB_IF_DENSE, "hidden, ffn", NULL},
    {"model.norm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"lm_head.weight", NB_ROLE_LINEAR, NB_IF_UNTIED, "vocab, hidden", NULL},
    {NULL, 0, 0, NULL, NULL},
};

static const nb_pattern tensors[] = {
    {"model.layers.#.mlp.gate_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "ffn", "mlp_bias"},
    {"model.layers.#.mlp.up_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "ffn", "mlp_bias"},
    {"model.layers.#.mlp.down_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", "mlp_bias"},
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_llama = {
    .name = "llama",
    .ids = "LlamaForCausalLM|llama",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .window = NB_WINDOW_NONE,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .forward = nb_forward_prenorm,
};
