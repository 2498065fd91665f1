/* GLiNER: an entity extractor. specs/create.md 5.2. Importable, never quantised. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_ANY, NULL, NULL, NULL, NULL, NB_COND_NONE, NB_DO_KEEP, "not quantised"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_gliner = {
    .name = "gliner",
    .ids = "GLiNER",
    .window = NB_WINDOW_NONE,
    .policy = policy,
    .refuse = NB_REQ_FP4 | NB_REQ_MXFP8 | NB_REQ_INT,
    .refuse_text = "GLiNER: this architecture is not quantised; import its F32 weights without --quantize",
    .f32_only = true,
};
