/* Mistral: Llama with a sliding window on every layer, where the file gives one. specs/architectures.md 6.1. */
#include "model/arch_row.h"
#include "model/arch_rows.h"
#include "model/build.h"

static const nb_default defaults[] = {{"max_position_embeddings", 131072}, {NULL, 0}};

const nb_arch nb_arch_mistral = {
    .name = "mistral",
    .ids = "MistralForCausalLM|mistral",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .defaults = defaults,
    .window = NB_WINDOW_ALL,
    .common = nb_tensors_llama,
    .forward = nb_forward_prenorm,
};
