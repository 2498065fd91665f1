/* Granite with windows and sinks. specs/architectures.md 7. Importable. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_pattern tensors[] = {
    {"model.layers.#.self_attn.sinks", NB_ROLE_VECTOR, NB_OPTIONAL, "heads", NULL},
    {NULL, 0, 0, NULL, NULL},
};

static nb_status resolve(nb_config *c, nb_error *err)
{
    (void)err;
    nb_config_number(c, "attention_multiplier", &c->query_scale);
    return NB_OK;
}

const nb_arch nb_arch_granite_swa = {
    .name = "granite_swa",
    .ids = "GraniteSWAForCausalLM|granite_swa",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .window = NB_WINDOW_TYPES,
    .resolve = resolve,
    .common = nb_tensors_llama,
    .tensors = tensors,
};
