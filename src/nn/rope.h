/* nn/rope: frequency tables of rotary embeddings, in double, rounded once to F32. specs/architectures.md 5.3. */
#ifndef NB_NN_ROPE_H
#define NB_NN_ROPE_H

#include "base/base.h"

/* The fields of rope_parameters / rope_scaling, resolved. Numbers that a kind does not use are 0. */
typedef struct nb_rope_config {
    char type[16]; /* "default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional" */
    double theta, factor, low_freq_factor, high_freq_factor, original_max, beta_fast, beta_slow, attention_factor,
        mscale, mscale_all_dim, partial;
    bool truncate;
    double max_position; /* max_position_embeddings: dynamic and longrope compare lengths with it */
    const double *short_factor, *long_factor; /* longrope: [n_factor] divisors per pair; config arena */
    int32_t n_factor;
} nb_rope_config;

bool nb_rope_type_known(nb_str type);
/* Rotated pairs of a head of head_dim channels: half of head_dim * partial; half of head_dim for "proportional", whose
 * other pairs have frequency 0. */
int32_t nb_rope_pairs(const nb_rope_config *r, int32_t head_dim);
/* freq[nb_rope_pairs]; *factor multiplies cos and sin. length: tokens that the table is made for (dynamic and longrope
 * depend on it). NB_E_INVALID "rope: ..." where a field is missing or out of range. */
nb_status nb_rope_table(const nb_rope_config *r, int32_t head_dim, double length, float *freq, double *factor,
                        nb_error *err);

#endif
