/* SmolLM3: Llama with layers that are not rotated. specs/architectures.md 6.1. */
#include "model/arch_row.h"
#include "model/arch_rows.h"
#include "model/build.h"

static const nb_default defaults[] = {
    {"rope_theta", 2000000}, {"tie_word_embeddings", 1}, {"max_position_embeddings", 32768}, {NULL, 0}};

const nb_arch nb_arch_smollm3 = {
    .name = "smollm3",
    .ids = "SmolLM3ForCausalLM|smollm3",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .defaults = defaults,
    .window = NB_WINDOW_QWEN,
    .common = nb_tensors_llama,
    .forward = nb_forward_prenorm,
};
