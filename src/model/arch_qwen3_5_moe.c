/* Qwen3.5 with experts. specs/architectures.md 6.4. Importable. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default defaults[] = {
    {"partial_rotary_factor", 0.25}, {"full_attention_interval", 4}, {"norm_topk_prob", 1}, {NULL, 0}};

static const nb_pattern tensors[] = {
    NB_PART_DELTA_RULE_INPUTS("model.layers.#.", NB_IF_LINEAR),
    NB_PART_DELTA_RULE("model.layers.#.", NB_IF_LINEAR),
    NB_PART_GATED_ATTENTION("model.layers.#.", NB_IF_ATTENTION),
    NB_PART_EXPERTS_GATED("model.layers.#.", NB_IF_SPARSE),
    NB_PART_MTP,
    NB_PART_EXPERTS_GATED("mtp.layers.0.", NB_OPTIONAL),
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_qwen3_5_moe = {
    .name = "qwen3_5_moe",
    .ids = "Qwen3_5MoeForCausalLM|Qwen3_5MoeForConditionalGeneration|qwen3_5_moe|qwen3_5_moe_text",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size",
    .defaults = defaults,
    .window = NB_WINDOW_NONE,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .policy = nb_policy_qwen3_5,
};
