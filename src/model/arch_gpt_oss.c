/* gpt-oss: sinks, alternating windows, biased experts. specs/architectures.md 6.5. Importable. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_pattern tensors[] = {
    {"model.layers.#.self_attn.sinks", NB_ROLE_VECTOR, NB_ALWAYS, "heads", NULL},
    {"model.layers.#.mlp.router.weight", NB_ROLE_LINEAR, NB_ALWAYS, "experts, hidden", NULL},
    {"model.layers.#.mlp.router.bias", NB_ROLE_VECTOR, NB_ALWAYS, "experts", NULL},
    {"model.layers.#.mlp.experts", NB_ROLE_BANK, NB_ALWAYS, "ffn, hidden; ffn, hidden; hidden, ffn", NULL},
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_gpt_oss = {
    .name = "gpt_oss",
    .ids = "GptOssForCausalLM|gpt_oss",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size",
    .window = NB_WINDOW_TYPES,
    .common = nb_tensors_llama,
    .tensors = tensors,
};
