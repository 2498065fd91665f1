/* Strands: a decision head on a Qwen3.5 backbone. Importable; its tensors are not listed. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

const nb_arch nb_arch_strands = {
    .name = "strands",
    .ids = "StrandsDeciderForDecision",
    .window = NB_WINDOW_NONE,
    .policy = nb_policy_qwen3_5,
};
