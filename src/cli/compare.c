#include "cli/compare.h"
#include "base/file.h"
#include "cli/args.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the reference file ---- */

#define MAX_REFERENCE ((uint64_t)4 << 30)

/* Tensor data in the buffer; the canonical writer aligns it, others are refused rather than read unaligned. */
static const void *tensor_data(const nb_reference *r, const nb_st_tensor *t) { return r->file.p + t->off; }

static const nb_st_tensor *find(const nb_reference *r, const char *name, nb_dtype dtype, int rank)
{
    const nb_st_tensor *t = nb_st_find(&r->st, nb_str_of(name));
    return t && t->dtype == dtype && t->rank == rank && t->off % 4 == 0 ? t : NULL;
}

static nb_status load_ids(const nb_reference *r, const char *name, int32_t **ids, int32_t *n, const char *path,
                          nb_error *err)
{
    const nb_st_tensor *t = find(r, name, NB_DT_I64, 1);
    if (!t) return nb_fail(err, NB_E_INVALID, "%s: tensor %s (I64, rank 1) is missing", path, name);
    if (t->dim[0] < 1 || t->dim[0] > INT32_MAX)
        return nb_fail(err, NB_E_INVALID, "%s: tensor %s has %lld entries", path, name, (long long)t->dim[0]);
    *n = (int32_t)t->dim[0];
    *ids = malloc((size_t)*n * sizeof **ids);
    if (!*ids) return nb_fail(err, NB_E_NO_MEMORY, "no memory for %d ids", *n);
    for (int32_t i = 0; i < *n; i++) {
        uint64_t v = nb_load_u64((const char *)tensor_data(r, t) + 8 * (size_t)i);
        if (v > INT32_MAX)
            return nb_fail(err, NB_E_INVALID, "%s: tensor %s: id %llu at %d", path, name, (unsigned long long)v, i);
        (*ids)[i] = (int32_t)v;
    }
    return NB_OK;
}

static nb_status load_hidden(nb_reference *r, const char *path, nb_error *err)
{
    int32_t n = 0;
    char name[32];
    for (;; n++) {
        snprintf(name, sizeof name, "hidden.%d", n);
        if (!nb_st_find(&r->st, nb_str_of(name))) break;
    }
    r->hidden = calloc((size_t)n + 1, sizeof *r->hidden);
    if (!r->hidden) return nb_fail(err, NB_E_NO_MEMORY, "no memory for %d tensors", n);
    r->n_hidden = n;
    for (int32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "hidden.%d", i);
        const nb_st_tensor *t = find(r, name, NB_DT_F32, 2);
        if (!t || t->dim[0] != r->n)
            return nb_fail(err, NB_E_INVALID, "%s: tensor %s is not F32 [%d, width]", path, name, r->n);
        r->hidden[i] = tensor_data(r, t);
        r->width = (int32_t)t->dim[1];
    }
    const nb_st_tensor *t = find(r, "final_hidden", NB_DT_F32, 2);
    if (t && t->dim[0] == r->n) r->final_hidden = tensor_data(r, t);
    return NB_OK;
}

nb_status nb_reference_load(nb_reference *r, const char *path, nb_error *err)
{
    memset(r, 0, sizeof *r);
    nb_status st = nb_file_read(&r->file, path, MAX_REFERENCE, err);
    if (st == NB_OK) st = nb_st_read_mem(&r->st, r->file.p, r->file.n, path, 0, err);
    if (st == NB_OK) st = load_ids(r, "input_ids", &r->ids, &r->n, path, err);
    if (st != NB_OK) return st;
    const nb_st_tensor *t = find(r, "logits", NB_DT_F32, 2);
    if (!t || t->dim[0] < 1 || t->dim[0] > r->n || t->dim[1] < 1)
        return nb_fail(err, NB_E_INVALID, "%s: tensor logits is not F32 [rows, vocab]", path);
    r->logits = tensor_data(r, t);
    r->logit_rows = (int32_t)t->dim[0];
    r->vocab = (int32_t)t->dim[1];
    if (nb_st_find(&r->st, NB_LIT("decode_ids"))) {
        if ((st = load_ids(r, "decode_ids", &r->decode_ids, &r->n_decode, path, err)) != NB_OK) return st;
        t = find(r, "decode_logits", NB_DT_F32, 2);
        if (!t || t->dim[0] != r->n_decode || t->dim[1] != r->vocab)
            return nb_fail(err, NB_E_INVALID, "%s: tensor decode_logits is not F32 [%d, %d]", path, r->n_decode,
                           r->vocab);
        r->decode_logits = tensor_data(r, t);
    }
    return load_hidden(r, path, err);
}

void nb_reference_free(nb_reference *r)
{
    nb_st_free(&r->st);
    nb_buf_free(&r->file);
    free(r->ids);
    free(r->decode_ids);
    free(r->hidden);
    memset(r, 0, sizeof *r);
}

/* ---- differences ---- */

static int64_t arg_max(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

nb_difference nb_difference_of(const float *a, const float *b, int64_t rows, int64_t cols, const bool *skip_row,
                               bool top1)
{
    nb_difference d = {0, 0, -1};
    double num = 0, den = 0;
    int64_t same = 0, used = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (skip_row && skip_row[r]) continue;
        used++;
        const float *x = a + r * cols, *y = b + r * cols;
        for (int64_t c = 0; c < cols; c++) {
            double e = (double)x[c] - (double)y[c];
            if (!(fabs(e) <= d.max_abs)) d.max_abs = fabs(e);
            num += e * e;
            den += (double)y[c] * (double)y[c];
        }
        if (top1) same += arg_max(x, cols) == arg_max(y, cols);
    }
    d.rel_rms = den > 0 ? sqrt(num / den) : num > 0 ? INFINITY : 0;
    if (top1 && used) d.top1 = (double)same / (double)used;
    return d;
}

/* ---- one forward over all ids ---- */

typedef struct row_store {
    float *rows;
    int32_t vocab;
} row_store;

static void store_row(void *user, int32_t row, const float *logits)
{
    row_store *s = user;
    memcpy(s->rows + (size_t)row * (size_t)s->vocab, logits, (size_t)s->vocab * sizeof(float));
}

static bool forward_alloc(nb_forward *f, const nb_model *m)
{
    size_t n = (size_t)f->n;
    f->logits = calloc(n * (size_t)f->vocab, sizeof(float));
    f->final_hidden = calloc(n * (size_t)f->hidden, sizeof(float));
    f->captures = calloc((size_t)f->n_captures + 1, sizeof *f->captures);
    f->routes = calloc((size_t)f->n_routes + 1, sizeof *f->routes);
    f->route_k = calloc((size_t)f->n_routes + 1, sizeof *f->route_k);
    if (!f->logits || !f->final_hidden || !f->captures || !f->routes || !f->route_k) return false;
    for (int32_t i = 0; i < f->n_captures; i++)
        if (!(f->captures[i] = calloc(n * (size_t)f->hidden, sizeof(float)))) return false;
    int32_t at = 0;
    for (int32_t i = 0; i < m->graph->n_ops; i++) {
        const nb_op *op = &m->graph->ops[i];
        if (op->kind != NB_OP_ROUTE) continue;
        f->route_k[at] = op->u.route.k;
        if (!(f->routes[at++] = calloc(n * (size_t)op->u.route.k, sizeof(int32_t)))) return false;
    }
    return true;
}

nb_status nb_forward_run(nb_forward *f, nb_model *m, const int32_t *ids, int32_t n, int32_t *const *given,
                         nb_error *err)
{
    memset(f, 0, sizeof *f);
    f->n = n;
    f->vocab = m->net->config.vocab;
    f->hidden = m->net->config.hidden;
    f->n_captures = m->graph->n_captures;
    f->n_routes = m->n_routes;
    if (!forward_alloc(f, m)) return nb_fail(err, NB_E_NO_MEMORY, "no memory for the tensors of %d rows", n);
    nb_session *s = NULL;
    nb_status st = nb_check_interrupted(err);
    if (st == NB_OK) st = nb_run_session_new(&s, m, n, err);
    if (st != NB_OK) return st;
    row_store rows = {f->logits, f->vocab};
    nb_run_item it = {.session = s,
                      .ids = ids,
                      .n = n,
                      .logits_from = 0,
                      .sink = store_row,
                      .user = &rows,
                      .capture = f->captures,
                      .hidden = f->final_hidden,
                      .routes = f->routes,
                      .given = given};
    st = nb_run_eval(m, &it, 1, err);
    nb_run_session_free(s);
    return st;
}

void nb_forward_free(nb_forward *f)
{
    for (int32_t i = 0; f->captures && i < f->n_captures; i++) free(f->captures[i]);
    for (int32_t i = 0; f->routes && i < f->n_routes; i++) free(f->routes[i]);
    free(f->captures);
    free(f->routes);
    free(f->route_k);
    free(f->logits);
    free(f->final_hidden);
    memset(f, 0, sizeof *f);
}

/* ---- identity: every way of running the ids ---- */

typedef struct identity {
    nb_identity *r;
    nb_model *m;
    const int32_t *ids;
    const nb_forward *whole;
    float *rows; /* [n, vocab] of the run under test */
} identity;

static void check_rows(identity *c, const char *what, int32_t first, int32_t n)
{
    size_t vocab = (size_t)c->whole->vocab;
    c->r->checks++;
    for (int32_t r = first; r < first + n; r++) {
        if (memcmp(c->rows + (size_t)r * vocab, c->whole->logits + (size_t)r * vocab, vocab * sizeof(float)) == 0)
            continue;
        if (c->r->failures++ == 0) snprintf(c->r->failed, sizeof c->r->failed, "%s: row %d differs", what, r);
        return;
    }
}

/* ids [from, from + n) appended; their logits go to the rows of their own numbers. */
static nb_status feed(identity *c, nb_session *s, int32_t from, int32_t n, nb_error *err)
{
    row_store rows = {c->rows + (size_t)from * (size_t)c->whole->vocab, c->whole->vocab};
    nb_run_item it = {.session = s, .ids = c->ids + from, .n = n, .logits_from = 0, .sink = store_row, .user = &rows};
    nb_status st = nb_check_interrupted(err);
    return st == NB_OK ? nb_run_eval(c->m, &it, 1, err) : st;
}

static void clear_rows(identity *c)
{
    memset(c->rows, 0xff, (size_t)c->whole->n * (size_t)c->whole->vocab * sizeof(float));
}

static nb_status in_pieces(identity *c, const char *what, const int32_t *pieces, int32_t n_pieces, nb_error *err)
{
    nb_session *s = NULL;
    nb_status st = nb_run_session_new(&s, c->m, c->whole->n, err);
    clear_rows(c);
    for (int32_t at = 0, k = 0; st == NB_OK && at < c->whole->n; k++) {
        int32_t n = pieces[k % n_pieces];
        if (n > c->whole->n - at) n = c->whole->n - at;
        st = feed(c, s, at, n, err);
        at += n;
    }
    if (st == NB_OK) check_rows(c, what, 0, c->whole->n);
    nb_run_session_free(s);
    return st;
}

/* The last `rows` ids as one batch after a prefix; then a truncation and the same again. */
static nb_status as_rows(identity *c, int32_t rows, nb_error *err)
{
    char what[64];
    int32_t prefix = c->whole->n - rows;
    nb_session *s = NULL;
    nb_status st = nb_run_session_new(&s, c->m, c->whole->n, err);
    clear_rows(c);
    if (st == NB_OK && prefix > 0) st = feed(c, s, 0, prefix, err);
    if (st == NB_OK) st = feed(c, s, prefix, rows, err);
    snprintf(what, sizeof what, "%d rows of one batch", rows);
    if (st == NB_OK) check_rows(c, what, prefix, rows);
    if (st == NB_OK && prefix > 0) st = nb_run_session_truncate(s, prefix, NULL, err);
    clear_rows(c);
    if (st == NB_OK && prefix > 0) st = feed(c, s, prefix, rows, err);
    snprintf(what, sizeof what, "%d rows after a truncation", rows);
    if (st == NB_OK && prefix > 0) check_rows(c, what, prefix, rows);
    nb_run_session_free(s);
    return st;
}

/* Two sessions of different length in one call, and a fork of the longer one. */
static nb_status together(identity *c, nb_error *err)
{
    int32_t n = c->whole->n, a = n / 2, b = n / 3;
    if (b < 1) return NB_OK;
    nb_session *s = NULL, *t = NULL, *f = NULL;
    nb_status st = nb_run_session_new(&s, c->m, n, err);
    if (st == NB_OK) st = nb_run_session_new(&t, c->m, n, err);
    clear_rows(c);
    if (st == NB_OK) st = feed(c, s, 0, a, err);
    if (st == NB_OK) st = feed(c, t, 0, b, err);
    if (st == NB_OK) st = nb_run_session_fork(&f, s, err);
    row_store rs = {c->rows + (size_t)a * (size_t)c->whole->vocab, c->whole->vocab}, rt = {NULL, c->whole->vocab};
    float *second = st == NB_OK ? malloc((size_t)(n - b) * (size_t)c->whole->vocab * sizeof(float)) : NULL;
    if (st == NB_OK && !second) st = nb_fail(err, NB_E_NO_MEMORY, "no memory for %d rows", n - b);
    rt.rows = second;
    if (st == NB_OK) {
        nb_run_item items[2] = {
            {.session = s, .ids = c->ids + a, .n = n - a, .sink = store_row, .user = &rs},
            {.session = t, .ids = c->ids + b, .n = n - b, .sink = store_row, .user = &rt},
        };
        st = nb_run_eval(c->m, items, 2, err);
    }
    if (st == NB_OK) {
        check_rows(c, "the first of two sessions in one call", a, n - a);
        memcpy(c->rows + (size_t)b * (size_t)c->whole->vocab, second,
               (size_t)(n - b) * (size_t)c->whole->vocab * sizeof(float));
        check_rows(c, "the second of two sessions in one call", b, n - b);
        clear_rows(c);
        st = feed(c, f, a, n - a, err);
        if (st == NB_OK) check_rows(c, "a fork", a, n - a);
    }
    free(second);
    nb_run_session_free(s);
    nb_run_session_free(t);
    nb_run_session_free(f);
    return st;
}

nb_status nb_identity_run(nb_identity *r, nb_model *m, const int32_t *ids, const nb_forward *whole, nb_error *err)
{
    static const int32_t odd[] = {1, 3, 7, 5, 16, 17, 2, 33}, one[] = {1};
    static const int32_t counts[] = {1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32};
    identity c = {r, m, ids, whole, NULL};
    c.rows = malloc((size_t)whole->n * (size_t)whole->vocab * sizeof(float));
    if (!c.rows) return nb_fail(err, NB_E_NO_MEMORY, "no memory for the logits of %d rows", whole->n);
    int32_t all = whole->n;
    nb_status st = in_pieces(&c, "prefill whole", &all, 1, err);
    if (st == NB_OK) st = in_pieces(&c, "odd chunks", odd, NB_COUNT(odd), err);
    if (st == NB_OK) st = in_pieces(&c, "token by token", one, 1, err);
    for (size_t i = 0; st == NB_OK && i < NB_COUNT(counts); i++)
        if (counts[i] <= whole->n) st = as_rows(&c, counts[i], err);
    if (st == NB_OK) st = together(&c, err);
    free(c.rows);
    return st;
}
