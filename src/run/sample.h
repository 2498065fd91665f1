/* run/sample: from one row of logits to one id. specs/runner.md 5.2, 5.3.
 *
 * The order is: masks and bias, repetition, presence and frequency, temperature, top-k, softmax, top-p, min-p,
 * renormalise, draw. Random numbers are a function of (seed, absolute slot, purpose), never of how many draws came
 * before: cancelling, batching or speculating does not shift them.
 */
#ifndef NB_RUN_SAMPLE_H
#define NB_RUN_SAMPLE_H

#include "base/base.h"

typedef enum nb_purpose { NB_DRAW_TOKEN, NB_DRAW_DRAFT, NB_DRAW_ACCEPT, NB_DRAW_RESIDUAL } nb_purpose;

/* Uniform in [0, 1) with 53 bits. */
double nb_random(uint64_t seed, uint64_t slot, nb_purpose purpose);

/* Scratch of one session for a vocabulary of `vocab` ids; allocated once, so that sampling allocates nothing. */
typedef struct nb_sampler {
    int32_t vocab;
    float *x;        /* [vocab] logits under work */
    double *p;       /* [vocab] probabilities of the candidates */
    int32_t *kept;   /* [vocab] candidate ids */
    uint32_t *count; /* [vocab] zero between calls: occurrences in the penalty window */
    int32_t *seen;   /* [vocab] distinct ids of the window */
    const int32_t *banned;
    int32_t n_banned; /* ids that are never drawn (the model's suppress_tokens); not owned */
} nb_sampler;
nb_status nb_sampler_init(nb_sampler *s, int32_t vocab, nb_error *err);
void nb_sampler_free(nb_sampler *s);

/* Samples from logits [vocab]; ids at and beyond `usable` are masked. history: all tokens so far (the penalty window is
 * its end); slot: absolute slot of the token drawn. probability (may be NULL) gets the chosen id's probability after
 * step 6. NB_E_NUMERIC for NaN or +inf, or when nothing is left to draw. */
nb_status nb_sample_logits(nb_sampler *s, const float *logits, int32_t usable, const nb_sampling *o,
                           const int32_t *history, int32_t n_history, uint64_t slot, int32_t *id, double *probability,
                           nb_error *err);

/* log softmax of one id over all `vocab` raw logits, in double; the sum runs in ascending id order. */
double nb_log_probability(const float *logits, int32_t vocab, int32_t id);
/* Lowest id of the largest logit among the first `usable`; -1 when one of them is NaN. */
int32_t nb_argmax(const float *logits, int32_t usable);

#endif
