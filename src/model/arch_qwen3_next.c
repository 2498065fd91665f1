/* Qwen3-Next: Qwen3.5 with experts, whose delta-rule inputs are fused. specs/architectures.md 6.4. Importable. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default defaults[] = {{"partial_rotary_factor", 0.25},
                                      {"full_attention_interval", 4},
                                      {"norm_topk_prob", 1},
                                      {"decoder_sparse_step", 1},
                                      {NULL, 0}};

static const nb_pattern tensors[] = {
    NB_PART_ROW("model.layers.#.linear_attn.in_proj_qkvz.weight", LINEAR, NB_IF_LINEAR,
                "2*linear_num_key_heads*linear_key_head_dim + 2*linear_num_value_heads*linear_value_head_dim, hidden"),
    NB_PART_ROW("model.layers.#.linear_attn.in_proj_ba.weight", LINEAR, NB_IF_LINEAR,
                "2*linear_num_value_heads, hidden"),
    NB_PART_DELTA_RULE("model.layers.#.", NB_IF_LINEAR),
    NB_PART_GATED_ATTENTION("model.layers.#.", NB_IF_ATTENTION),
    NB_PART_EXPERTS_GATED("model.layers.#.", NB_IF_SPARSE),
    NB_PART_MTP,
    NB_PART_EXPERTS_GATED("mtp.layers.0.", NB_OPTIONAL),
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_qwen3_next = {
    .name = "qwen3_next",
    .ids = "Qwen3NextForCausalLM|Qwen3NextForConditionalGeneration|Qwen3NextMoeForCausalLM|"
           "Qwen3NextMoeForConditionalGeneration|qwen3_next",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size",
    .defaults = defaults,
    .window = NB_WINDOW_NONE,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .policy = nb_policy_qwen3_5,
};
