/* Kolibri. specs/architectures.md 7, specs/create.md 5.2. Importable; its tensors are not listed. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_ANY, NULL, NULL, NULL, NULL, NB_COND_NOT_WEIGHT, NB_DO_KEEP, "not a matrix"},
    {NB_REQ_ANY, NULL, NULL, ".mlp.gate.weight", NULL, NB_COND_NONE, NB_DO_KEEP, "router"},
    {NB_REQ_ANY, NULL, ".mlp.experts.", NULL, NULL, NB_COND_NONE, NB_DO_BASE, "expert"},
    {NB_REQ_ANY, NULL, NULL, NULL, NULL, NB_COND_NONE, NB_DO_EIGHT_BASE, "8 bits"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_kolibri1 = {
    .name = "kolibri1",
    .ids = "Kolibri1ForCausalLM|kolibri1",
    .window = NB_WINDOW_TYPES,
    .policy = policy,
};
