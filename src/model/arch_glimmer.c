/* Muse Glimmer. specs/architectures.md 7, specs/create.md 5.2. Importable; its tensors are not listed. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_ANY, NULL, "vision|visual", NULL, NULL, NB_COND_NONE, NB_DO_KEEP, "vision"},
    {NB_REQ_ANY, NULL, NULL, "embed_tokens.weight", NULL, NB_COND_NONE, NB_DO_EIGHT_BASE, "embedding: 8 bits"},
    {NB_REQ_4BIT, NULL, ".q_proj.|.k_proj.|.v_proj.|.o_proj.", ".weight", NULL, NB_COND_NONE, NB_DO_EIGHT_BASE,
     "attention: 8 bits"},
    {NB_REQ_4BIT, NULL, "self_attn.gate_proj|output_gate_proj|mlp.down_proj", ".weight", NULL, NB_COND_MORE_BITS,
     NB_DO_EIGHT_BASE, "sensitive: 8 bits"},
    {NB_REQ_4BIT, NULL, "self_attn.gate_proj|output_gate_proj|mlp.down_proj", ".weight", NULL, NB_COND_NONE, NB_DO_BASE,
     "as requested"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_glimmer = {
    .name = "glimmer",
    .ids = "MuseGlimmerForConditionalGeneration|muse_glimmer",
    .window = NB_WINDOW_TYPES,
    .policy = policy,
};
