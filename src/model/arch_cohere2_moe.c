/* Cohere 2 with experts: attention and experts in parallel on one norm. specs/architectures.md 7, specs/create.md 5.2.
 * Importable; its tensors are not listed. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_rule policy[] = {
    {NB_REQ_ANY, NULL, NULL, "embed_tokens.weight", NULL, NB_COND_NONE, NB_DO_EIGHT, "embedding: 8 bits"},
    {NB_REQ_ANY, NULL, NULL, ".mlp.gate.weight", NULL, NB_COND_NONE, NB_DO_KEEP, "router"},
    {NB_REQ_4BIT, NULL, ".v_proj|.k_proj|down_proj", NULL, NULL, NB_COND_MORE_BITS, NB_DO_EIGHT_BASE,
     "sensitive: 8 bits"},
    {NB_REQ_4BIT, NULL, ".v_proj|.k_proj|down_proj", NULL, NULL, NB_COND_LAYER, NB_DO_BASE, "as requested"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

static const nb_default defaults[] = {{"tie_word_embeddings", 1}, {NULL, 0}};

const nb_arch nb_arch_cohere2_moe = {
    .name = "cohere2_moe",
    .ids = "Cohere2MoeForCausalLM|cohere2_moe",
    .defaults = defaults,
    .window = NB_WINDOW_TYPES,
    .policy = policy,
};
