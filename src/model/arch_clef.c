/* Clef: a joint head on a Qwen3.5 backbone. specs/create.md 5.2. Importable; its tensors are not listed. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_ANY, NULL, NULL, NULL, NULL, NB_COND_NOT_MODEL, NB_DO_KEEP, "joint head"},
    {NB_REQ_ANY, NULL, ".linear_attn.in_proj_a.weight|.linear_attn.in_proj_b.weight|.linear_attn.in_proj_ba.weight",
     NULL, NULL, NB_COND_NONE, NB_DO_KEEP, "recurrent gate"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_clef = {
    .name = "clef",
    .ids = "ClefForDecision",
    .window = NB_WINDOW_NONE,
    .policy = policy,
};
