/* Qwen3: Llama with a norm on each head of q and k. specs/architectures.md 6.2. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"
#include "model/build.h"

static const nb_default defaults[] = {
    {"max_position_embeddings", 32768}, {"max_window_layers", 28}, {"head_dim", 128}, {NULL, 0}};

static const nb_pattern tensors[] = {
    NB_PART_HEAD_NORMS("model.layers.#.", NB_ALWAYS),
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_qwen3 = {
    .name = "qwen3",
    .ids = "Qwen3ForCausalLM|qwen3",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .defaults = defaults,
    .window = NB_WINDOW_QWEN,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .forward = nb_forward_prenorm,
};
