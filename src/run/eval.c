/* run/eval: rows of several sessions through one forward, chunk by chunk.
 *
 * Each chunk takes the next rows of each unfinished item, in the items' order, until the plan's chunk is full. How rows
 * are grouped changes no bit of any of them (row invariance, design.md 4), so this order is free.
 */
#include "run/run.h"

static void fail_item(nb_run_item *it, nb_status st, const char *text) { nb_fail(&it->error, st, "%s", text); }

static bool active(const nb_run_item *it) { return it->error.status == NB_OK && it->done < it->n; }

static nb_status check_item(nb_model *m, nb_run_item *items, int32_t i, nb_error *err)
{
    nb_run_item *it = &items[i];
    it->error = (nb_error){0};
    it->done = 0;
    if (!it->session || it->session->model != m)
        return nb_fail(err, NB_E_USAGE, "item %d: the session belongs to another model", i);
    if (it->n < 1 || !it->ids) return nb_fail(err, NB_E_USAGE, "item %d: no ids", i);
    for (int32_t j = 0; j < i; j++)
        if (items[j].session == it->session)
            return nb_fail(err, NB_E_USAGE, "items %d and %d name the same session", j, i);
    it->base = it->session->length;
    it->session->n_logits = 0;
    if (it->n > it->session->context - it->base)
        nb_fail(&it->error, NB_E_CONTEXT, "%d tokens do not fit: the context holds %d and %d are in use", it->n,
                it->session->context, it->base);
    for (int32_t r = 0; r < it->n && it->error.status == NB_OK; r++)
        if (it->ids[r] < 0 || it->ids[r] >= m->net->config.vocab)
            nb_fail(&it->error, NB_E_USAGE, "token id %d at %d is outside the vocabulary of %d", it->ids[r], r,
                    m->net->config.vocab);
    return NB_OK;
}

typedef struct chunk_part {
    int32_t item, row0, rows;
} chunk_part;

/* Fills the model's batch arrays with the next rows; parts[k] says which rows belong to which item. Returns the number
 * of rows. */
static int32_t gather_rows(nb_model *m, nb_run_item *items, int32_t n, int32_t *n_parts)
{
    int32_t rows = 0, parts = 0;
    for (int32_t i = 0; i < n && rows < m->options.chunk; i++) {
        nb_run_item *it = &items[i];
        if (!active(it)) continue;
        if (!it->restoring && atomic_load(&it->session->cancel)) {
            fail_item(it, NB_E_CANCELLED, "cancelled");
            continue;
        }
        int32_t take = it->n - it->done;
        if (take > m->options.chunk - rows) take = m->options.chunk - rows;
        nb_error e = {0};
        if (nb_cache_prepare(m->cache, it->session->cache_seq, take, &e) != NB_OK) {
            it->error = e;
            continue;
        }
        for (int32_t r = 0; r < take; r++) {
            m->ids[rows + r] = it->ids[it->done + r];
            m->seq[rows + r] = parts;
            m->slot[rows + r] = it->base + it->done + r;
            m->row_item[rows + r] = i;
        }
        m->views[parts] = nb_cache_views(m->cache, it->session->cache_seq);
        m->bad[parts] = 0;
        parts++;
        rows += take;
    }
    *n_parts = parts;
    return rows;
}

/* Hands the logits of the wanted rows of one chunk to their sinks, NB_LOGIT_ROWS at a time. first[i]: batch row of item
 * i's row it->done. */
static void unembed_chunk(nb_model *m, nb_run_item *items, int32_t rows)
{
    int32_t n = 0;
    for (int32_t r = 0; r < rows; r++) {
        const nb_run_item *it = &items[m->row_item[r]];
        if (it->error.status != NB_OK || !it->sink) continue;
        if (m->slot[r] - it->base >= it->logits_from) m->logit_rows[n++] = r;
    }
    int32_t vocab = m->net->config.vocab;
    for (int32_t at = 0; at < n; at += NB_LOGIT_ROWS) {
        int32_t some = n - at < NB_LOGIT_ROWS ? n - at : NB_LOGIT_ROWS;
        const float *logits = m->backend->unembed(m->plan, m->logit_rows + at, some);
        for (int32_t k = 0; k < some; k++) {
            int32_t r = m->logit_rows[at + k];
            nb_run_item *it = &items[m->row_item[r]];
            it->sink(it->user, m->slot[r] - it->base, logits + (size_t)k * (size_t)vocab);
        }
    }
}

/* Pointers of this chunk into the item's capture buffers. */
static void set_captures(nb_model *m, const nb_run_item *it, nb_batch *b)
{
    if (it->capture) {
        size_t width = (size_t)m->net->config.hidden;
        for (int32_t c = 0; c < m->graph->n_captures; c++)
            m->capture[c] = it->capture[c] ? it->capture[c] + (size_t)it->done * width : NULL;
        b->capture = m->capture;
    }
    if (!it->routes && !it->given) return;
    int32_t at = 0;
    for (int32_t i = 0; i < m->graph->n_ops; i++) {
        const nb_op *op = &m->graph->ops[i];
        if (op->kind != NB_OP_ROUTE) continue;
        size_t done = (size_t)it->done * (size_t)op->u.route.k;
        m->routes[at] = it->routes ? it->routes[at] + done : NULL;
        m->given[at] = it->given ? it->given[at] + done : NULL;
        at++;
    }
    b->routes = m->routes;
    b->given = m->given;
    b->n_routes = b->n_given = at;
}

/* After a forward: bad items fail, the others' rows are committed and recorded. */
static void commit_chunk(nb_model *m, nb_run_item *items, int32_t rows)
{
    for (int32_t r = 0; r < rows;) {
        nb_run_item *it = &items[m->row_item[r]];
        int32_t end = r;
        while (end < rows && m->row_item[end] == m->row_item[r]) end++;
        if (m->bad[m->seq[r]]) {
            nb_fail(&it->error, NB_E_NUMERIC,
                    "a value left the numeric domain (NaN, infinity or beyond 2^100) between tokens %d and %d",
                    m->slot[r], m->slot[end - 1]);
        } else {
            nb_session *s = it->session;
            nb_cache_commit(m->cache, s->cache_seq, end - r);
            memmove(s->tokens + s->length, it->ids + it->done, (size_t)(end - r) * sizeof *s->tokens);
            s->length += end - r;
        }
        r = end;
    }
}

static void finish_chunk(nb_model *m, nb_run_item *items, int32_t n_items, int32_t rows)
{
    if (n_items == 1 && items[0].hidden && items[0].error.status == NB_OK) {
        size_t width = (size_t)m->net->config.hidden;
        memcpy(items[0].hidden + (size_t)items[0].done * width, m->backend->slot(m->plan, m->graph->hidden),
               (size_t)rows * width * sizeof(float));
    }
    for (int32_t r = 0; r < rows; r++) items[m->row_item[r]].done += items[m->row_item[r]].error.status == NB_OK;
    if (n_items == 1 && items[0].progress && active(&items[0]) &&
        !items[0].progress(items[0].progress_user, items[0].done, items[0].n))
        fail_item(&items[0], NB_E_CANCELLED, "cancelled");
}

/* Takes a failed item back to the tokens it had. Where a layer cannot go back that far they are evaluated again by the
 * caller. */
static void take_back(nb_model *m, nb_run_item *it)
{
    nb_session *s = it->session;
    if (s->length == it->base) return;
    s->length = nb_cache_truncate(m->cache, s->cache_seq, it->base);
}

static void eval_locked(nb_model *m, nb_run_item *items, int32_t n)
{
    for (;;) {
        int32_t parts = 0;
        int32_t rows = gather_rows(m, items, n, &parts);
        if (rows == 0) break;
        nb_batch b = {.rows = rows,
                      .ids = m->ids,
                      .seq = m->seq,
                      .slot = m->slot,
                      .n_seqs = parts,
                      .kv = m->views,
                      .bad = m->bad};
        if (n == 1) set_captures(m, &items[0], &b);
        m->backend->forward(m->plan, &b);
        commit_chunk(m, items, rows);
        unembed_chunk(m, items, rows);
        finish_chunk(m, items, n, rows);
    }
    for (int32_t i = 0; i < n; i++)
        if (items[i].error.status != NB_OK) take_back(m, &items[i]);
}

/* A failed item whose ring layers went back further than its base: evaluate the record again, so that the session is as
 * it was. */
static void restore_item(nb_model *m, nb_run_item *it)
{
    nb_session *s = it->session;
    if (s->length >= it->base) return;
    nb_run_item again = {.session = s,
                         .ids = s->tokens + s->length,
                         .n = it->base - s->length,
                         .logits_from = it->base,
                         .restoring = true};
    again.base = s->length;
    eval_locked(m, &again, 1);
}

/* Every item is looked at before any is evaluated; a call that is refused is refused for all of them. */
static nb_status check_all(nb_model *m, nb_run_item *items, int32_t n)
{
    nb_error e = {0};
    nb_status st = NB_OK;
    for (int32_t i = 0; i < n && st == NB_OK; i++) st = check_item(m, items, i, &e);
    for (int32_t i = 0; i < n && st != NB_OK; i++) items[i].error = e;
    return st;
}

nb_status nb_run_eval(nb_model *m, nb_run_item *items, int32_t n, nb_error *err)
{
    if (n < 1) return NB_OK;
    pthread_mutex_lock(&m->lock);
    nb_status st = check_all(m, items, n);
    if (st == NB_OK) {
        eval_locked(m, items, n);
        for (int32_t i = 0; i < n; i++)
            if (items[i].error.status != NB_OK) restore_item(m, &items[i]);
    }
    pthread_mutex_unlock(&m->lock);
    for (int32_t i = 0; i < n; i++) {
        if (items[i].error.status == NB_OK) continue;
        if (err) *err = items[i].error;
        return items[i].error.status;
    }
    return NB_OK;
}
