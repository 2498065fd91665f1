/* model/arch_parts: lists of tensors that stand in several rows of the architecture table. Internal to src/model.
 *
 * Each is a run of initialisers for an nb_pattern[]: `at` is the beginning of the name, a string literal such as
 * "model.layers.#.", `when` an nb_when. Shapes are written as in arch_row.h.
 */
#ifndef NB_MODEL_ARCH_PARTS_H
#define NB_MODEL_ARCH_PARTS_H

#define NB_PART_ROW(name, role, when, shape)                                                                           \
    {                                                                                                                  \
        name, NB_ROLE_##role, when, shape, NULL                                                                        \
    }

/* RMS norms of each head of q and k. */
#define NB_PART_HEAD_NORMS(at, when)                                                                                   \
    NB_PART_ROW(at "self_attn.q_norm.weight", VECTOR, when, "head_dim"),                                               \
        NB_PART_ROW(at "self_attn.k_norm.weight", VECTOR, when, "head_dim")

/* Attention whose q_proj also holds the gate of its output (Qwen3-Next and later), with norms of the heads. */
#define NB_PART_GATED_ATTENTION(at, when)                                                                              \
    NB_PART_ROW(at "self_attn.q_proj.weight", LINEAR, when, "2*heads*head_dim, hidden"),                               \
        NB_PART_ROW(at "self_attn.k_proj.weight", LINEAR, when, "kv_heads*head_dim, hidden"),                          \
        NB_PART_ROW(at "self_attn.v_proj.weight", LINEAR, when, "kv_heads*head_dim, hidden"),                          \
        NB_PART_ROW(at "self_attn.o_proj.weight", LINEAR, when, "hidden, heads*head_dim"),                             \
        NB_PART_HEAD_NORMS(at, when)

/* The gated delta rule without its input projections, which come apart or fused. */
#define NB_PART_DELTA_RULE(at, when)                                                                                   \
    NB_PART_ROW(at "linear_attn.conv1d.weight", VECTOR, when, "?, ?, ?"),                                              \
        NB_PART_ROW(at "linear_attn.A_log", VECTOR, when, "linear_num_value_heads"),                                   \
        NB_PART_ROW(at "linear_attn.dt_bias", VECTOR, when, "linear_num_value_heads"),                                 \
        NB_PART_ROW(at "linear_attn.norm.weight", VECTOR, when, "linear_value_head_dim"),                              \
        NB_PART_ROW(at "linear_attn.out_proj.weight", LINEAR, when,                                                    \
                    "hidden, linear_num_value_heads*linear_value_head_dim")

/* The input projections of the delta rule, one by one (Qwen3.5 and later). */
#define NB_PART_DELTA_RULE_INPUTS(at, when)                                                                            \
    NB_PART_ROW(at "linear_attn.in_proj_qkv.weight", LINEAR, when,                                                     \
                "2*linear_num_key_heads*linear_key_head_dim + linear_num_value_heads*linear_value_head_dim, hidden"),  \
        NB_PART_ROW(at "linear_attn.in_proj_z.weight", LINEAR, when,                                                   \
                    "linear_num_value_heads*linear_value_head_dim, hidden"),                                           \
        NB_PART_ROW(at "linear_attn.in_proj_a.weight", LINEAR, when, "linear_num_value_heads, hidden"),                \
        NB_PART_ROW(at "linear_attn.in_proj_b.weight", LINEAR, when, "linear_num_value_heads, hidden")

/* Router and routed experts. */
#define NB_PART_EXPERTS(at, when)                                                                                      \
    NB_PART_ROW(at "mlp.gate.weight", LINEAR, when, "experts, hidden"),                                                \
        NB_PART_ROW(at "mlp.experts", BANK, when, "moe_ffn, hidden; moe_ffn, hidden; hidden, moe_ffn")

/* The expert that every token passes through. */
#define NB_PART_SHARED_EXPERT(at, when)                                                                                \
    NB_PART_ROW(at "mlp.shared_expert.gate_proj.weight", LINEAR, when, "shared_expert_intermediate_size, hidden"),     \
        NB_PART_ROW(at "mlp.shared_expert.up_proj.weight", LINEAR, when, "shared_expert_intermediate_size, hidden"),   \
        NB_PART_ROW(at "mlp.shared_expert.down_proj.weight", LINEAR, when, "hidden, shared_expert_intermediate_size")

/* Routed experts and a shared one whose output a gate of one row scales (Qwen). */
#define NB_PART_EXPERTS_GATED(at, when)                                                                                \
    NB_PART_EXPERTS(at, when), NB_PART_SHARED_EXPERT(at, when),                                                        \
        NB_PART_ROW(at "mlp.shared_expert_gate.weight", LINEAR, when, "1, hidden")

/* Qwen's multi-token prediction head without its MLP: two norms, a projection of both inputs, one layer of attention.
 */
#define NB_PART_MTP                                                                                                    \
    NB_PART_ROW("mtp.fc.weight", LINEAR, NB_OPTIONAL, "hidden, 2*hidden"),                                             \
        NB_PART_ROW("mtp.norm.weight", VECTOR, NB_OPTIONAL, "hidden"),                                                 \
        NB_PART_ROW("mtp.pre_fc_norm_embedding.weight", VECTOR, NB_OPTIONAL, "hidden"),                                \
        NB_PART_ROW("mtp.pre_fc_norm_hidden.weight", VECTOR, NB_OPTIONAL, "hidden"),                                   \
        NB_PART_ROW("mtp.layers.0.input_layernorm.weight", VECTOR, NB_OPTIONAL, "hidden"),                             \
        NB_PART_ROW("mtp.layers.0.post_attention_layernorm.weight", VECTOR, NB_OPTIONAL, "hidden"),                    \
        NB_PART_GATED_ATTENTION("mtp.layers.0.", NB_OPTIONAL)

#endif
