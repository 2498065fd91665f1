/* run: a network with a backend's plan and a cache becomes a model that sessions use. Batches, truncation, generation.
 * design.md 5, 7.
 *
 * Locking: everything that touches the plan or the cache runs under the model's lock. A session's own fields belong to
 * the thread that uses the session, but for `cancel`.
 */
#ifndef NB_RUN_RUN_H
#define NB_RUN_RUN_H

#include "base/base.h"
#include "cache/cache.h"
#include "model/model.h"
#include "run/sample.h"
#include "tensor/graph.h"
#include "text/chat.h"

#include <pthread.h>
#include <stdatomic.h>

struct nb_model {
    nb_store *store;
    nb_network *net;
    const nb_graph *graph; /* of the chosen mode; the network's */
    const nb_backend *backend;
    nb_plan *plan;
    nb_cache *cache;
    struct nb_parsed_template {
        nb_template *t; /* NULL: it did not parse */
        nb_error error;
    } * templates; /* beside net->templates */
    nb_plan_options options;
    uint64_t load_ns;
    int32_t usable; /* ids that may be sampled */
    pthread_mutex_t lock;
    atomic_int users; /* the handle and each session; the last one closes */
    /* arrays of one batch, [chunk] each; used under the lock */
    int32_t *ids, *seq, *slot, *row_item, *logit_rows;
    const nb_kv_view **views;
    uint8_t *bad;
    float **capture;  /* [n_captures] pointers of one chunk */
    int32_t **routes; /* [n_routes] likewise */
    const int32_t **given;
    int32_t n_routes;
};

/* The last prompt of a session's conversation: the next one usually begins like it, and encodes only its new end. */
typedef struct nb_said {
    nb_arena *arena; /* owns the prompt's text; NULL: none yet */
    nb_prompt prompt;
    nb_ids ids; /* with offsets */
} nb_said;

struct nb_session {
    nb_model *model;
    int32_t cache_seq;
    int32_t context, length;
    int32_t *tokens; /* [context] the token record */
    float *logits;   /* [NB_LOGIT_ROWS, vocab], untouched pages cost nothing */
    size_t logits_bytes;
    int32_t n_logits;
    atomic_bool cancel; /* set by nb_cancel; cleared when a call of the public API returns */
    nb_sampler sampler;
    nb_said said;
};

/* Rows whose logits are wanted are handed to a sink as soon as they exist; logits [vocab] are valid inside the call.
 * row counts from the item's first id. */
typedef void nb_row_sink(void *user, int32_t row, const float *logits);

typedef struct nb_run_item {
    nb_session *session;
    const int32_t *ids;
    int32_t n;
    int32_t logits_from; /* first row whose logits are wanted; n: none */
    nb_row_sink *sink;
    void *user;
    float *const *capture;  /* [n_captures] of [n, width], or NULL: hidden states. Only for a call with one item */
    float *hidden;          /* [n, hidden] what is unembedded, or NULL. Only for a call with one item */
    int32_t *const *routes; /* [n_routes] of [n, k], or NULL: expert choices. Only for a call with one item */
    int32_t *const *given;  /* likewise: choices to use instead of the model's own, or NULL */
    bool (*progress)(void *user, int32_t done,
                     int32_t total); /* after each chunk; false cancels. Only for a call with one item */
    void *progress_user;
    /* out */
    nb_error error; /* status NB_OK: fine */
    /* private */
    int32_t base, done;
    bool restoring; /* not to be cancelled: the session would lose tokens that it had */
} nb_run_item;

nb_status nb_run_open(nb_model **out, const char *name, const nb_model_options *o, nb_error *err);
void nb_run_close(nb_model *m); /* gives up one use: the handle's, or a session's */

/* The model's own limit is the public API's business: compare runs references of any length. */
#define NB_CONTEXT_LIMIT (1 << 24)
nb_status nb_run_session_new(nb_session **out, nb_model *m, int32_t context, nb_error *err);
void nb_run_session_free(nb_session *s);
nb_status nb_run_session_fork(nb_session **out, nb_session *s, nb_error *err);
nb_status nb_run_session_truncate(nb_session *s, int32_t length, int32_t *reevaluated, nb_error *err);

/* Evaluates all items together, in chunks. An item that fails is taken back to where it was. Returns the first failure.
 * Allocates nothing. Cancel flags are obeyed and left set: the call of the public API around it clears them. */
nb_status nb_run_eval(nb_model *m, nb_run_item *items, int32_t n, nb_error *err);

/* o and r are whole structs of this version. */
nb_status nb_run_generate(nb_session *s, const int32_t *ids, size_t n, const nb_generate_options *o,
                          nb_generate_result *r, nb_error *err);

#endif
