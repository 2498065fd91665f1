/* Laguna: head counts per layer, gated heads, experts with a shared one. specs/architectures.md 7, specs/create.md 5.2.
 * Importable. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default defaults[] = {{"first_k_dense_replace", 1}, {NULL, 0}};

static const nb_pattern tensors[] = {
    {"model.layers.#.self_attn.q_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "layer_heads*head_dim, hidden", NULL},
    {"model.layers.#.self_attn.q_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "?", "qkv_bias"},
    {"model.layers.#.self_attn.k_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "kv_heads*head_dim", "qkv_bias"},
    {"model.layers.#.self_attn.v_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "kv_heads*head_dim", "qkv_bias"},
    {"model.layers.#.self_attn.o_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "hidden, layer_heads*head_dim", NULL},
    {"model.layers.#.self_attn.g_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "?, hidden", NULL},
    NB_PART_HEAD_NORMS("model.layers.#.", NB_ALWAYS),
    NB_PART_EXPERTS("model.layers.#.", NB_IF_SPARSE),
    {"model.layers.#.mlp.experts.e_score_correction_bias", NB_ROLE_VECTOR, NB_OPTIONAL, "experts", NULL},
    NB_PART_SHARED_EXPERT("model.layers.#.", NB_IF_SPARSE),
    {NULL, 0, 0, NULL, NULL},
};

static const nb_rule policy[] = {
    {NB_REQ_INT, NULL, NULL, NULL, NULL, NB_COND_NONE, NB_DO_DEFAULT, "default"},
    {NB_REQ_FP4 | NB_REQ_MXFP8, NULL, NULL, "embed_tokens.weight|lm_head.weight", NULL, NB_COND_NONE, NB_DO_EIGHT,
     "head: 8 bits"},
    {NB_REQ_FP4 | NB_REQ_MXFP8, NULL, NULL, ".mlp.gate.weight", NULL, NB_COND_NONE, NB_DO_KEEP, "router"},
    {NB_REQ_MXFP8, NULL, ".self_attn.", "q_proj.weight|k_proj.weight|v_proj.weight|o_proj.weight|g_proj.weight", NULL,
     NB_COND_NONE, NB_DO_KEEP, "attention"},
    {NB_REQ_MXFP8, NULL, ".mlp.shared_expert", "down_proj.weight", NULL, NB_COND_NONE, NB_DO_KEEP, "shared expert"},
    {NB_REQ_MXFP8, NULL, ".mlp.experts.", "down_proj.weight", NULL, NB_COND_MORE_BITS_LAGUNA, NB_DO_KEEP,
     "sensitive layer"},
    {NB_REQ_MXFP8, NULL, NULL, NULL, NULL, NB_COND_NONE, NB_DO_DEFAULT, "default"},
    {NB_REQ_FP4, NULL, ".self_attn.", "q_proj.weight|k_proj.weight|v_proj.weight|o_proj.weight|g_proj.weight", NULL,
     NB_COND_NONE, NB_DO_BASE, "attention"},
    {NB_REQ_FP4, NULL, ".mlp.shared_expert", "down_proj.weight", NULL, NB_COND_MORE_BITS_LAGUNA, NB_DO_EIGHT_BASE,
     "sensitive: 8 bits"},
    {NB_REQ_FP4, NULL, ".mlp.shared_expert|.mlp.experts.|.mlp.switch_mlp.", "_proj.weight", NULL, NB_COND_NONE,
     NB_DO_BASE, "expert"},
    {NB_REQ_FP4, NULL, ".mlp.", "gate_proj.weight|up_proj.weight|down_proj.weight", NULL, NB_COND_DENSE_LAYER,
     NB_DO_BASE, "dense layer"},
    {NB_REQ_FP4, NULL, NULL, NULL, NULL, NB_COND_NONE, NB_DO_KEEP, "not named by the policy"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

static const nb_spelling mlx[] = {
    {".mlp.gate.proj.", ".mlp.gate."},
    {".mlp.gate.e_score_correction_bias", ".mlp.experts.e_score_correction_bias"},
    {NULL, NULL},
};

const nb_arch nb_arch_laguna = {
    .name = "laguna",
    .ids = "LagunaForCausalLM|laguna",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size",
    .defaults = defaults,
    .window = NB_WINDOW_TYPES,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .policy = policy,
    .spellings = mlx,
};
