/* cli/compare: a checkpoint's forward against recorded reference tensors, and against itself in every way of running
 * it. design.md 11. */
#ifndef NB_CLI_COMPARE_H
#define NB_CLI_COMPARE_H

#include "format/safetensors.h"
#include "run/run.h"

/* reference.safetensors, mapped and checked. Pointers are into the mapping (or an aligned copy). */
typedef struct nb_reference {
    nb_buf file;
    nb_st_file st;
    int32_t n, vocab, width; /* input ids, columns of logits, columns of hidden.i */
    int32_t *ids;            /* [n] */
    const float *logits;
    int32_t logit_rows; /* the last rows of the n */
    int32_t n_decode;
    int32_t *decode_ids;
    const float *decode_logits;
    const float *final_hidden; /* [n, hidden] or NULL */
    const float **hidden;
    int32_t n_hidden; /* hidden.0 ..., entries may be NULL */
} nb_reference;
nb_status nb_reference_load(nb_reference *r, const char *path, nb_error *err);
void nb_reference_free(nb_reference *r);

/* How far a is from b. */
typedef struct nb_difference {
    double max_abs, rel_rms, top1; /* top1: share of rows with the same largest column; -1 where it means nothing */
} nb_difference;
nb_difference nb_difference_of(const float *a, const float *b, int64_t rows, int64_t cols, const bool *skip_row,
                               bool top1);

/* One model's results over the reference's input. */
typedef struct nb_forward {
    int32_t n, vocab, hidden, n_captures, n_routes;
    float *logits;       /* [n, vocab] */
    float *final_hidden; /* [n, hidden] */
    float **captures;    /* [n_captures] of [n, hidden] */
    int32_t **routes;    /* [n_routes] of [n, k[i]] */
    int32_t *route_k;
} nb_forward;
/* given: expert choices to use, as the routes of another run, or NULL. */
nb_status nb_forward_run(nb_forward *f, nb_model *m, const int32_t *ids, int32_t n, int32_t *const *given,
                         nb_error *err);
void nb_forward_free(nb_forward *f);

/* Every way of running the same ids must give the logits of `whole` by memcmp. *failed names the first that does not
 * ("token by token", row ...), empty if none. */
typedef struct nb_identity {
    int checks, failures;
    char failed[160];
} nb_identity;
nb_status nb_identity_run(nb_identity *r, nb_model *m, const int32_t *ids, const nb_forward *whole, nb_error *err);

#endif
