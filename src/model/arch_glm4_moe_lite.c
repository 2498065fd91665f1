/* GLM-4.7-Flash: latent attention, sigmoid router. specs/architectures.md 6.8. Importable. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default defaults[] = {
    {"first_k_dense_replace", 1}, {"n_shared_experts", 1}, {"norm_topk_prob", 1}, {NULL, 0}};

static const nb_pattern tensors[] = {
    {"model.embed_tokens.weight", NB_ROLE_TABLE, NB_ALWAYS, "vocab, hidden", NULL},
    {"model.layers.#.input_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"model.layers.#.post_attention_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"model.layers.#.self_attn.q_a_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "q_lora_rank, hidden", NULL},
    {"model.layers.#.self_attn.q_a_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "q_lora_rank", NULL},
    {"model.layers.#.self_attn.q_b_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS,
     "heads*qk_nope_head_dim + heads*qk_rope_head_dim, q_lora_rank", NULL},
    {"model.layers.#.self_attn.kv_a_proj_with_mqa.weight", NB_ROLE_LINEAR, NB_ALWAYS,
     "kv_lora_rank + qk_rope_head_dim, hidden", NULL},
    {"model.layers.#.self_attn.kv_a_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "kv_lora_rank", NULL},
    {"model.layers.#.self_attn.kv_b_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS,
     "heads*qk_nope_head_dim + heads*v_head_dim, kv_lora_rank", NULL},
    {"model.layers.#.self_attn.o_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "hidden, heads*v_head_dim", NULL},
    {"model.layers.#.mlp.gate_proj.weight", NB_ROLE_LINEAR, NB_IF_DENSE, "ffn, hidden", NULL},
    {"model.layers.#.mlp.up_proj.weight", NB_ROLE_LINEAR, NB_IF_DENSE, "ffn, hidden", NULL},
    {"model.layers.#.mlp.down_proj.weight", NB_ROLE_LINEAR, NB_IF_DENSE, "hidden, ffn", NULL},
    {"model.layers.#.mlp.gate.e_score_correction_bias", NB_ROLE_VECTOR, NB_IF_SPARSE, "experts", NULL},
    NB_PART_EXPERTS("model.layers.#.", NB_IF_SPARSE),
    {"model.layers.#.mlp.shared_experts.gate_proj.weight", NB_ROLE_LINEAR, NB_IF_SPARSE,
     "moe_ffn*n_shared_experts, hidden", NULL},
    {"model.layers.#.mlp.shared_experts.up_proj.weight", NB_ROLE_LINEAR, NB_IF_SPARSE,
     "moe_ffn*n_shared_experts, hidden", NULL},
    {"model.layers.#.mlp.shared_experts.down_proj.weight", NB_ROLE_LINEAR, NB_IF_SPARSE,
     "hidden, moe_ffn*n_shared_experts", NULL},
    {"model.norm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"lm_head.weight", NB_ROLE_LINEAR, NB_IF_UNTIED, "vocab, hidden", NULL},
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_glm4_moe_lite = {
    .name = "glm4_moe_lite",
    .ids = "Glm4MoeLiteForCausalLM|GLM4MoeLite|glm4_moe_lite",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size",
    .defaults = defaults,
    .window = NB_WINDOW_NONE,
    .tensors = tensors,
};
