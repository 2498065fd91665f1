/* Qwen3.5, dense: gated delta rule three to one gated attention, MTP head. specs/architectures.md 6.4,
 * specs/create.md 5.2. Importable. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default defaults[] = {{"partial_rotary_factor", 0.25}, {"full_attention_interval", 4}, {NULL, 0}};

static const nb_pattern tensors[] = {
    {"model.layers.#.linear_attn.in_proj_qkv.weight", NB_ROLE_LINEAR, NB_IF_LINEAR,
     "2*linear_num_key_heads*linear_key_head_dim + linear_num_value_heads*linear_value_head_dim, hidden", NULL},
    {"model.layers.#.linear_attn.in_proj_z.weight", NB_ROLE_LINEAR, NB_IF_LINEAR,
     "linear_num_value_heads*linear_value_head_dim, hidden", NULL},
    {"model.layers.#.linear_attn.in_proj_a.weight", NB_ROLE_LINEAR, NB_IF_LINEAR, "linear_num_value_heads, hidden",
     NULL},
    {"model.layers.#.linear_attn.in_proj_b.weight", NB_ROLE_LINEAR, NB_IF_LINEAR, "linear_num_value_heads, hidden",
     NULL},
    {"model.layers.#.linear_attn.conv1d.weight", NB_ROLE_VECTOR, NB_IF_LINEAR, "?, ?, ?", NULL},
    {"model.layers.#.linear_attn.A_log", NB_ROLE_VECTOR, NB_IF_LINEAR, "linear_num_value_heads", NULL},
    {"model.layers.#.linear_attn.dt_bias", NB_ROLE_VECTOR, NB_IF_LINEAR, "linear_num_value_heads", NULL},
    {"model.layers.#.linear_attn.norm.weight", NB_ROLE_VECTOR, NB_IF_LINEAR, "linear_value_head_dim", NULL},
    {"model.layers.#.linear_attn.out_proj.weight", NB_ROLE_LINEAR, NB_IF_LINEAR,
     "hidden, linear_num_value_heads*linear_value_head_dim", NULL},
    {"model.layers.#.self_attn.q_proj.weight", NB_ROLE_LINEAR, NB_IF_ATTENTION, "2*heads*head_dim, hidden", NULL},
    {"model.layers.#.self_attn.k_proj.weight", NB_ROLE_LINEAR, NB_IF_ATTENTION, "kv_heads*head_dim, hidden", NULL},
    {"model.layers.#.self_attn.v_proj.weight", NB_ROLE_LINEAR, NB_IF_ATTENTION, "kv_heads*head_dim, hidden", NULL},
    {"model.layers.#.self_attn.o_proj.weight", NB_ROLE_LINEAR, NB_IF_ATTENTION, "hidden, heads*head_dim", NULL},
    {"model.layers.#.self_attn.q_norm.weight", NB_ROLE_VECTOR, NB_IF_ATTENTION, "head_dim", NULL},
    {"model.layers.#.self_attn.k_norm.weight", NB_ROLE_VECTOR, NB_IF_ATTENTION, "head_dim", NULL},
    {"mtp.fc.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "hidden, 2*hidden", NULL},
    {"mtp.norm.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", NULL},
    {"mtp.pre_fc_norm_embedding.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", NULL},
    {"mtp.pre_fc_norm_hidden.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", NULL},
    {"mtp.layers.0.input_layernorm.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", NULL},
    {"mtp.layers.0.post_attention_layernorm.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", NULL},
    {"mtp.layers.0.self_attn.q_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "2*heads*head_dim, hidden", NULL},
    {"mtp.layers.0.self_attn.k_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "kv_heads*head_dim, hidden", NULL},
    {"mtp.layers.0.self_attn.v_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "kv_heads*head_dim, hidden", NULL},
    {"mtp.layers.0.self_attn.o_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "hidden, heads*head_dim", NULL},
    {"mtp.layers.0.self_attn.q_norm.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "head_dim", NULL},
    {"mtp.layers.0.self_attn.k_norm.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "head_dim", NULL},
    {"mtp.layers.0.mlp.gate_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "ffn, hidden", NULL},
    {"mtp.layers.0.mlp.up_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "ffn, hidden", NULL},
    {"mtp.layers.0.mlp.down_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "hidden, ffn", NULL},
    {NULL, 0, 0, NULL, NULL},
};

const nb_rule nb_policy_qwen3_5[] = {
    {NB_REQ_ANY, NULL, ".linear_attn.in_proj_a.weight|.linear_attn.in_proj_b.weight|.linear_attn.in_proj_ba.weight",
     NULL, NULL, NB_COND_NONE, NB_DO_KEEP, "recurrent gate"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_qwen3_5 = {
    .name = "qwen3_5",
    .ids = "Qwen3_5ForCausalLM|Qwen3_5ForConditionalGeneration|qwen3_5|qwen3_5_text",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .defaults = defaults,
    .window = NB_WINDOW_NONE,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .policy = nb_policy_qwen3_5,
};
