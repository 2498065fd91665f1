/* Granite: Llama with four multipliers. specs/architectures.md 7, specs/create.md 5.2. Importable. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_FP4, NULL, NULL, ".self_attn.o_proj.weight", NULL, NB_COND_NONE, NB_DO_EIGHT_BASE,
     "attention output: 8 bits"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

static nb_status resolve(nb_config *c, nb_error *err)
{
    (void)err;
    nb_config_number(c, "attention_multiplier", &c->query_scale);
    return NB_OK;
}

const nb_arch nb_arch_granite = {
    .name = "granite",
    .ids = "GraniteForCausalLM|granite",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .window = NB_WINDOW_NONE,
    .resolve = resolve,
    .common = nb_tensors_llama,
    .policy = policy,
};
