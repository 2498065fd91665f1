/* Qwen3.5, dense: gated delta rule three to one gated attention, MTP head. specs/architectures.md 6.4,
 * specs/create.md 5.2. Importable. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default defaults[] = {{"partial_rotary_factor", 0.25}, {"full_attention_interval", 4}, {NULL, 0}};

static const nb_pattern tensors[] = {
    NB_PART_DELTA_RULE_INPUTS("model.layers.#.", NB_IF_LINEAR),
    NB_PART_DELTA_RULE("model.layers.#.", NB_IF_LINEAR),
    NB_PART_GATED_ATTENTION("model.layers.#.", NB_IF_ATTENTION),
    NB_PART_MTP,
    NB_PART_ROW("mtp.layers.0.mlp.gate_proj.weight", LINEAR, NB_OPTIONAL, "ffn, hidden"),
    NB_PART_ROW("mtp.layers.0.mlp.up_proj.weight", LINEAR, NB_OPTIONAL, "ffn, hidden"),
    NB_PART_ROW("mtp.layers.0.mlp.down_proj.weight", LINEAR, NB_OPTIONAL, "hidden, ffn"),
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
