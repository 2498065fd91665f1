/* create/write: executes the plan and decides nothing. Each worker takes a whole blob, largest first; what a blob holds
 * depends on nothing but its plan, so the bytes do not depend on the number of workers. A matrix goes through in tiles
 * of rows: read, (decode, quantise,) pack, hash, write.
 *
 * Memory: a worker holds one tile (about 4 MiB of floats and its packed forms) or, for NVFP4, one matrix of at most 16
 * MiB, so that its maximum need not be found by reading twice. Scales of the standard layout, which follow the codes,
 * go to a spill buffer that moves to an unlinked file when it grows.
 */
#include "base/file.h"
#include "create/plan.h"
#include "create/worker.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct team {
    nb_job *j;
    pthread_mutex_t lock; /* guards all below */
    uint32_t *order;      /* items, largest first */
    size_t next, n;
    uint64_t done_bytes, last_tick;
    uint32_t done_tensors;
    bool stop;
    nb_status st;
    nb_error err;
} team;

/* Counts written bytes and tells the caller at most every 50 ms. */
void nb_worker_count(nb_worker *w, uint64_t bytes)
{
    team *t = w->team;
    pthread_mutex_lock(&t->lock);
    t->done_bytes += bytes;
    uint64_t now = nb_now_ns();
    if (now - t->last_tick > 50000000) {
        t->last_tick = now;
        nb_job_progress(t->j, NB_CREATE_WRITING, w->item_name, t->done_bytes, t->j->total_bytes, t->done_tensors,
                        (uint32_t)t->j->n_items);
    }
    pthread_mutex_unlock(&t->lock);
}

static bool stopped(nb_worker *w)
{
    team *t = w->team;
    if (nb_job_cancelled(t->j)) return true;
    pthread_mutex_lock(&t->lock);
    bool s = t->stop;
    pthread_mutex_unlock(&t->lock);
    return s;
}

nb_status nb_worker_check(nb_worker *w, nb_error *err)
{
    return stopped(w) ? nb_fail(err, NB_E_CANCELLED, "cancelled while writing %s", w->item_name) : NB_OK;
}

static nb_status write_item(nb_worker *w, size_t i, nb_error *err)
{
    team *t = w->team;
    const nb_item *it = &t->j->items[i];
    size_t name = it->name.n < sizeof w->item_name - 1 ? it->name.n : sizeof w->item_name - 1;
    memcpy(w->item_name, it->name.p, name);
    w->item_name[name] = 0;
    w->out = NULL;
    w->src = it->source;
    nb_status st = nb_blob_begin(t->j->store, &w->out, it->bytes, err);
    if (st == NB_OK) st = nb_blob_write(w->out, it->header.p, it->header.n, err);
    if (st == NB_OK) st = nb_worker_item(w, it, err);
    t->j->mended[i] = w->mended;
    t->j->zeroed[i] = w->sc.zeroed;
    if (st == NB_OK) st = nb_worker_check(w, err);
    if (st != NB_OK) {
        nb_blob_abort(w->out);
        return st;
    }
    st = nb_blob_finish(w->out, &t->j->refs[i], err);
    if (st == NB_OK && t->j->refs[i].size != it->bytes)
        st = nb_fail(err, NB_E_FAILED, "blob %s has %llu bytes, the plan says %llu (E_VERIFY)", w->item_name,
                     (unsigned long long)t->j->refs[i].size, (unsigned long long)it->bytes);
    return st;
}

static void *work(void *arg)
{
    nb_worker *w = arg;
    team *t = w->team;
    for (;;) {
        nb_error err = {0};
        pthread_mutex_lock(&t->lock);
        bool stop = t->stop || t->next == t->n;
        size_t i = stop ? 0 : t->order[t->next++];
        pthread_mutex_unlock(&t->lock);
        if (stop) break;
        nb_status st =
            nb_job_cancelled(t->j) ? nb_fail(&err, NB_E_CANCELLED, "cancelled while writing") : write_item(w, i, &err);
        pthread_mutex_lock(&t->lock);
        t->done_tensors++;
        /* the journal has no room for the warnings: a resumed import makes such a blob again */
        if (st == NB_OK && !t->j->mended[i] && !t->j->zeroed[i]) st = nb_journal_add(t->j, i, &err);
        if (st != NB_OK && !t->stop) {
            t->stop = true;
            t->st = st;
            t->err = err;
        }
        pthread_mutex_unlock(&t->lock);
    }
    nb_worker_free(w);
    return NULL;
}

typedef struct sized {
    uint64_t bytes;
    uint32_t i;
} sized;
static int larger(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    return x->bytes != y->bytes ? x->bytes > y->bytes ? -1 : 1 : x->i < y->i ? -1 : 1;
}

static nb_status make_order(team *t, nb_error *err)
{
    nb_job *j = t->j;
    sized *v = NB_NEW_N(j->arena, sized, j->n_items + 1);
    t->order = NB_NEW_N(j->arena, uint32_t, j->n_items + 1);
    if (!v || !t->order) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->n_items; i++) {
        if (j->resumed[i]) {
            t->done_bytes += j->items[i].bytes;
            t->done_tensors++;
        } else {
            v[t->n++] = (sized){j->items[i].bytes, (uint32_t)i};
        }
    }
    if (t->n) qsort(v, t->n, sizeof *v, larger);
    for (size_t i = 0; i < t->n; i++) t->order[i] = v[i].i;
    return NB_OK;
}

int nb_write_threads(const nb_job *j, size_t items)
{
    long n = j->o->threads > 0 ? j->o->threads : sysconf(_SC_NPROCESSORS_ONLN);
    if (n > 16 || n < 1) n = n < 1 ? 1 : 16;
    return (size_t)n > items ? (items ? (int)items : 1) : (int)n;
}

nb_status nb_write_items(nb_job *j, nb_error *err)
{
    team t = {.j = j, .st = NB_OK};
    nb_worker workers[16];
    pthread_t id[16];
    int started = 0;
    nb_status st = make_order(&t, err);
    if (st != NB_OK) return st;
    int n = nb_write_threads(j, t.n);
    pthread_mutex_init(&t.lock, NULL);
    memset(workers, 0, sizeof workers);
    for (int i = 0; i < n; i++) {
        workers[i].team = &t;
        workers[i].root = nb_store_root(j->store);
        workers[i].mend = j->o->nonfinite_zero;
        workers[i].permissive = j->o->permissive;
        workers[i].search = j->o->search;
    }
    for (int i = 1; i < n; i++) {
        if (pthread_create(&id[i], NULL, work, &workers[i]) != 0) break; /* fewer workers, the same bytes */
        started = i;
    }
    work(&workers[0]);
    for (int i = 1; i <= started; i++) pthread_join(id[i], NULL);
    pthread_mutex_destroy(&t.lock);
    if (t.st != NB_OK && err) *err = t.err;
    for (size_t i = 0; i < j->n_items && t.st == NB_OK; i++) {
        if (j->mended[i])
            nb_job_warn(j, j->items[i].name, "%llu values that are not finite were replaced",
                        (unsigned long long)j->mended[i]);
        if (j->zeroed[i])
            nb_job_warn(j, j->items[i].name, "%llu blocks with a scale below 2^-111 became zero",
                        (unsigned long long)j->zeroed[i]);
    }
    nb_job_progress(j, NB_CREATE_WRITING, "", t.done_bytes, j->total_bytes, t.done_tensors, (uint32_t)j->n_items);
    return t.st;
}
