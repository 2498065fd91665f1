/* model/arch_rows: the rows of the architecture table, in the order in which they are listed. A new architecture is
 * named here and described in its own file, arch_<name>.c. Internal to src/model. */
#ifndef NB_MODEL_ARCH_ROWS_H
#define NB_MODEL_ARCH_ROWS_H

#include "model/arch.h"

#define NB_ARCH_ROWS(X)                                                                                                \
    X(llama)                                                                                                           \
    X(mistral) X(smollm3) X(qwen2) X(qwen3) X(qwen3_moe) X(gemma3) X(gpt_oss) X(gemma4) X(qwen3_5) X(qwen3_5_moe)      \
        X(qwen3_next) X(qwen4_exp) X(glm4_moe_lite) X(laguna) X(glimmer) X(cohere2_moe) X(nemotron_h) X(granite)       \
            X(granitemoe) X(granite_swa) X(kolibri1) X(flint) X(strands) X(clef) X(laya) X(gliner)

#define NB_ARCH_DECLARE(name) extern const nb_arch nb_arch_##name;
NB_ARCH_ROWS(NB_ARCH_DECLARE)

/* Rows that hold no more than names, behind the others. */
#define NB_ARCH_LISTED 35
extern const nb_arch nb_arch_listed[];

#endif
