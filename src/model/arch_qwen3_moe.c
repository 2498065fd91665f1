/* Qwen3 MoE: Qwen3 with routed experts. specs/architectures.md 6.3. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"
#include "model/build.h"

/* Where use_sliding_window is set, every layer slides unless the file says max_window_layers: the publisher's code
 * knows no such field here. */
static const nb_default defaults[] = {
    {"max_position_embeddings", 32768}, {"max_window_layers", 0},   {"num_experts", 128},  {"num_experts_per_tok", 8},
    {"moe_intermediate_size", 768},     {"decoder_sparse_step", 1}, {"norm_topk_prob", 0}, {NULL, 0}};

static const nb_pattern tensors[] = {
    NB_PART_HEAD_NORMS("model.layers.#.", NB_ALWAYS),
    NB_PART_EXPERTS("model.layers.#.", NB_IF_SPARSE),
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_qwen3_moe = {
    .name = "qwen3_moe",
    .ids = "Qwen3MoeForCausalLM|qwen3_moe",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size",
    .defaults = defaults,
    .window = NB_WINDOW_QWEN,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .forward = nb_forward_prenorm,
};
