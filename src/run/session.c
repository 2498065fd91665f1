/* run/session: a token record and its place in the cache. */
#include "run/run.h"

#include <stdlib.h>
#include <sys/mman.h>

/* Memory for logits is reserved whole, so that decoding allocates nothing; pages that are never written cost nothing.
 */
static nb_status map_logits(nb_session *s, nb_error *err)
{
    s->logits_bytes = (size_t)NB_LOGIT_ROWS * (size_t)s->model->net->config.vocab * sizeof(float);
    void *p = mmap(NULL, s->logits_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return nb_fail(err, NB_E_NO_MEMORY, "no address space for %d rows of logits", NB_LOGIT_ROWS);
    s->logits = p;
    return NB_OK;
}

static nb_session *session_alloc(nb_model *m, int32_t context, nb_error *err)
{
    nb_session *s = calloc(1, sizeof *s);
    if (!s) {
        nb_fail(err, NB_E_NO_MEMORY, "no memory for a session");
        return NULL;
    }
    s->model = m;
    s->cache_seq = -1;
    s->context = context;
    atomic_init(&s->cancel, false);
    s->tokens = malloc((size_t)context * sizeof *s->tokens);
    nb_status st = s->tokens ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "no memory for a session of %d tokens", context);
    if (st == NB_OK) st = map_logits(s, err);
    if (st == NB_OK) st = nb_sampler_init(&s->sampler, m->net->config.vocab, err);
    if (st == NB_OK) {
        s->sampler.banned = m->net->generation.suppress;
        s->sampler.n_banned = m->net->generation.n_suppress;
        atomic_fetch_add(&m->users, 1);
        return s;
    }
    free(s->tokens);
    if (s->logits) munmap(s->logits, s->logits_bytes);
    free(s);
    return NULL;
}

nb_status nb_run_session_new(nb_session **out, nb_model *m, int32_t context, nb_error *err)
{
    *out = NULL;
    if (context < 1 || context > NB_CONTEXT_LIMIT)
        return nb_fail(err, NB_E_USAGE, "a context of %d tokens; 1 to %d are possible", context, NB_CONTEXT_LIMIT);
    nb_error local = {0};
    nb_session *s = session_alloc(m, context, &local);
    if (!s) {
        if (err) *err = local;
        return local.status;
    }
    pthread_mutex_lock(&m->lock);
    nb_status st = nb_cache_open(m->cache, context, &s->cache_seq, err);
    pthread_mutex_unlock(&m->lock);
    if (st != NB_OK) {
        s->cache_seq = -1;
        nb_run_session_free(s);
        return st;
    }
    *out = s;
    return NB_OK;
}

void nb_run_session_free(nb_session *s)
{
    if (!s) return;
    nb_model *m = s->model;
    if (s->cache_seq >= 0) {
        pthread_mutex_lock(&m->lock);
        nb_cache_close(m->cache, s->cache_seq);
        pthread_mutex_unlock(&m->lock);
    }
    nb_sampler_free(&s->sampler);
    nb_arena_free(s->said.arena);
    nb_ids_free(&s->said.ids);
    munmap(s->logits, s->logits_bytes);
    free(s->tokens);
    free(s);
    nb_run_close(m);
}

nb_status nb_run_session_fork(nb_session **out, nb_session *s, nb_error *err)
{
    *out = NULL;
    nb_model *m = s->model;
    nb_error local = {0};
    nb_session *f = session_alloc(m, s->context, &local);
    if (!f) {
        if (err) *err = local;
        return local.status;
    }
    pthread_mutex_lock(&m->lock);
    nb_status st = nb_cache_fork(m->cache, s->cache_seq, &f->cache_seq, err);
    pthread_mutex_unlock(&m->lock);
    if (st != NB_OK) {
        f->cache_seq = -1;
        nb_run_session_free(f);
        return st;
    }
    f->length = s->length;
    memcpy(f->tokens, s->tokens, (size_t)s->length * sizeof *s->tokens);
    f->n_logits = s->n_logits;
    memcpy(f->logits, s->logits, (size_t)s->n_logits * (size_t)m->net->config.vocab * sizeof(float));
    *out = f;
    return NB_OK;
}

nb_status nb_run_session_truncate(nb_session *s, int32_t length, int32_t *reevaluated, nb_error *err)
{
    if (reevaluated) *reevaluated = 0;
    if (length < 0 || length > s->length)
        return nb_fail(err, NB_E_USAGE, "cannot truncate a session of %d tokens to %d", s->length, length);
    if (length == s->length) return NB_OK;
    s->n_logits = 0;
    pthread_mutex_lock(&s->model->lock);
    int32_t reached = nb_cache_truncate(s->model->cache, s->cache_seq, length);
    pthread_mutex_unlock(&s->model->lock);
    s->length = reached;
    if (reached == length) return NB_OK;
    /* A layer could not go back that far: the tokens between are still in the record, evaluate them again. */
    if (reevaluated) *reevaluated = length - reached;
    nb_run_item item = {
        .session = s, .ids = s->tokens + reached, .n = length - reached, .logits_from = length - reached};
    return nb_run_eval(s->model, &item, 1, err);
}
