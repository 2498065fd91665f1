/* Granite with experts behind one fused input matrix. specs/architectures.md 7, specs/create.md 5.2. Importable; its
 * tensors are not listed. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_FP4, NULL, NULL, ".self_attn.o_proj.weight", NULL, NB_COND_NONE, NB_DO_EIGHT_BASE,
     "attention output: 8 bits"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_granitemoe = {
    .name = "granitemoe",
    .ids = "GraniteMoeForCausalLM|granitemoe",
    .window = NB_WINDOW_NONE,
    .policy = policy,
};
