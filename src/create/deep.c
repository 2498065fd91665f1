/* create/deep: what was stored against what the source says, on sampled rows. specs/create.md 6.7. Bits that were moved
 * must be equal; rounding must be near what the format costs on Gaussian data. */
#include "create/producer.h"
#include "create/stored.h"

#include <math.h>

#define SAMPLE_ROWS 16

/* Relative RMS on Gaussian data (specs/create.md 4); the affine ones at groups of 128. */
static double expected_rms(nb_format f)
{
    switch (f) {
    case NB_NVFP4: return 0.0951;
    case NB_MXFP4: return 0.1154;
    case NB_MXFP8: return 0.0265;
    case NB_INT2: return 0.424;
    case NB_INT3: return 0.207;
    case NB_INT4: return 0.1001;
    case NB_INT5: return 0.0487;
    case NB_INT6: return 0.024;
    case NB_INT8: return 0.0059;
    case NB_FP8_TENSOR:
    case NB_FP8_CHANNEL:
    case NB_FP8_BLOCK: return 0.0265;
    case NB_F32: return 0;
    default: return 0.00166;
    }
}

typedef struct sums {
    double diff, ref;
    uint64_t rows;
    bool equal;
} sums;

static nb_status sample(const nb_item *it, const nb_matrix *m, const nb_stored *t, int64_t r0, sums *s, nb_scratch *sc,
                        nb_buf *buf, nb_error *err)
{
    int64_t rows = m->n - r0 < SAMPLE_ROWS ? m->n - r0 : SAMPLE_ROWS;
    uint64_t n = (uint64_t)(rows * m->k);
    nb_buf scratch = {0};
    buf->n = 0;
    if (!nb_buf_reserve(buf, (size_t)n * 8)) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    float *want = (float *)(void *)buf->p, *got = want + n;
    nb_status st = nb_matrix_floats(it->source, m, r0, rows, want, sc, err);
    if (st == NB_OK) st = nb_stored_floats(t, r0, rows, got, &scratch, err);
    nb_buf_free(&scratch);
    for (uint64_t i = 0; i < n && st == NB_OK; i++) {
        double d = (double)got[i] - (double)want[i];
        s->equal = s->equal && (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])));
        if (!isfinite(want[i])) continue; /* moved as it is, or replaced on request */
        s->diff += d * d;
        s->ref += (double)want[i] * (double)want[i];
    }
    s->rows += (uint64_t)rows;
    return st;
}

static nb_status judge(nb_job *j, const nb_item_proj *p, const sums *s, nb_error *err)
{
    double rms = s->ref > 0    ? sqrt(s->diff / s->ref)
                 : s->diff > 0 ? 1
                               : 0,
           want = expected_rms((nb_format)p->type.format);
    char type[32];
    nb_qtype_name(p->type, type);
    if (p->native && !s->equal)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: stored values differ from the source's (E_VERIFY)",
                       NB_FMT_STR(p->name));
    if (p->native) return NB_OK;
    if (rms > 0.5)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: relative RMS %.3g as %s (E_VERIFY)", NB_FMT_STR(p->name), rms,
                       type);
    bool is_float = nb_format_info((nb_format)p->type.format)->is_float;
    if (is_float && !p->m[0].float_source)
        nb_job_warn(j, p->name, "loss as %s: relative RMS %.3g over %llu rows", type, rms, (unsigned long long)s->rows);
    else if (want > 0 && (rms > 2 * want || (rms < 0.5 * want && rms > 0)))
        nb_job_warn(j, p->name, "relative RMS %.3g as %s, %.3g is usual", rms, type, want);
    return NB_OK;
}

/* Float matrices of the standard layout are plain tensors there: one of them as a matrix, expert by expert. */
static const nb_stored *find_stored(const nb_model_blobs *b, const nb_item_proj *p, int64_t expert, nb_stored *room)
{
    const nb_stored *t = nb_blobs_find(b, p->name, expert);
    if (t && t->matrix) return t;
    t = nb_blobs_find(b, p->name, 0);
    if (!t || t->matrix) return NULL;
    uint64_t one = (uint64_t)(p->n * p->k) * (uint64_t)nb_dtype_bits(t->dtype) / 8;
    bool is_fp = t->dtype == NB_DT_F32 || t->dtype == NB_DT_F16 || t->dtype == NB_DT_BF16;
    if (!is_fp || t->rank < 2 || t->dim[t->rank - 2] != p->n || t->dim[t->rank - 1] != p->k ||
        one * (uint64_t)(expert + 1) > t->bytes)
        return NULL;
    *room = *t;
    room->matrix = true;
    room->layout = NB_LAYOUT_STANDARD;
    room->q = nb_float_qtype(t->dtype);
    room->n = p->n;
    room->k = p->k;
    room->data = t->data + one * (uint64_t)expert;
    return room;
}

/* Rows at the beginning, the middle and the end, of as many experts. */
static nb_status measure(const nb_item *it, const nb_item_proj *p, const nb_model_blobs *b, sums *s, nb_scratch *sc,
                         nb_buf *buf, nb_error *err)
{
    int64_t experts[3] = {0, it->experts / 2, it->experts - 1};
    nb_status st = NB_OK;
    for (int i = 0; i < 3 && st == NB_OK; i++) {
        if (i && experts[i] == experts[i - 1]) continue;
        nb_stored room;
        const nb_stored *t = find_stored(b, p, experts[i], &room);
        if (!t || t->n != p->n || t->k != p->k)
            return nb_fail(err, NB_E_INVALID, "tensor %.*s is not in its blob (E_VERIFY)", NB_FMT_STR(p->name));
        int64_t at[3] = {0, p->n / 32 * 16, (p->n - 1) / 16 * 16};
        for (int k = 0; k < 3 && st == NB_OK; k++)
            if (!k || at[k] != at[k - 1]) st = sample(it, &p->m[experts[i]], t, at[k], s, sc, buf, err);
    }
    return st;
}

static nb_status check_proj(nb_job *j, const nb_item *it, const nb_item_proj *p, const nb_model_blobs *b,
                            nb_scratch *sc, nb_buf *buf, nb_error *err)
{
    sums s = {.equal = true};
    nb_status st = measure(it, p, b, &s, sc, buf, err);
    return st == NB_OK ? judge(j, p, &s, err) : st;
}

static bool wanted(const nb_job *j, const nb_item *it)
{
    bool hit = it->kind != NB_ITEM_PLAIN && j->o->deep;
    for (int i = 0; i < it->n_proj; i++)
        hit = hit || (!it->proj[i].native && nb_format_info((nb_format)it->proj[i].type.format)->is_float &&
                      !it->proj[i].m[0].float_source);
    return hit && it->kind != NB_ITEM_PLAIN;
}

/* Floats of the standard layout that were floats before: nothing was rounded that the writer did not round. */
static bool moved(const nb_item *it, const nb_item_proj *p)
{
    return it->layout == NB_LAYOUT_STANDARD && nb_format_info((nb_format)p->type.format)->is_float &&
           p->m[0].float_source;
}

/* ---- tensors that were passed through: nobody has looked at their values yet ---- */

typedef struct not_finite {
    uint64_t count, first; /* first: element */
} not_finite;

static void look(not_finite *f, const float *v, uint64_t at, size_t n)
{
    if (isfinite(nb_abs_max(v, n))) return;
    for (size_t i = 0; i < n; i++)
        if (!isfinite(v[i]) && f->count++ == 0) f->first = at + i;
}

static nb_status look_plain(const nb_stored *t, not_finite *f, nb_buf *buf, nb_error *err)
{
    enum { STEP = 1 << 16 };
    int bits = nb_dtype_bits(t->dtype);
    size_t elem = bits >= 8 ? (size_t)bits / 8 : 0;
    buf->n = 0;
    if (!elem) return NB_OK;
    if (!nb_buf_reserve(buf, STEP * sizeof(float))) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    float *v = (float *)(void *)buf->p;
    for (uint64_t at = 0; at < t->bytes / elem; at += STEP) {
        uint64_t left = t->bytes / elem - at;
        size_t n = left < STEP ? (size_t)left : STEP;
        if (!nb_floats_decode(t->dtype, t->data + at * elem, n, v)) return NB_OK; /* integers */
        look(f, v, at, n);
    }
    return NB_OK;
}

static nb_status look_matrix(const nb_stored *t, not_finite *f, nb_buf *buf, nb_error *err)
{
    nb_buf scratch = {0};
    nb_status st = NB_OK;
    for (int64_t r = 0; r < t->n && st == NB_OK; r += SAMPLE_ROWS) {
        int64_t rows = t->n - r < SAMPLE_ROWS ? t->n - r : SAMPLE_ROWS;
        buf->n = 0;
        if (!nb_buf_reserve(buf, (size_t)(rows * t->k) * sizeof(float)))
            st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        if (st == NB_OK) st = nb_stored_floats(t, r, rows, (float *)(void *)buf->p, &scratch, err);
        if (st == NB_OK) look(f, (float *)(void *)buf->p, (uint64_t)(r * t->k), (size_t)(rows * t->k));
    }
    nb_buf_free(&scratch);
    return st;
}

static nb_status check_finite(nb_job *j, const nb_stored *t, nb_buf *buf, nb_error *err)
{
    not_finite f = {0};
    uint64_t cols = t->matrix ? (uint64_t)t->k : t->rank && t->dim[t->rank - 1] > 0 ? (uint64_t)t->dim[t->rank - 1] : 1;
    nb_status st = NB_OK;
    if (!t->matrix)
        st = look_plain(t, &f, buf, err);
    else if (nb_format_info((nb_format)t->q.format)->is_float)
        st = look_matrix(t, &f, buf, err);
    if (st != NB_OK || !f.count) return st;
    if (!j->o->permissive)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s contains %llu non-finite values (first at [%llu,%llu]); --permissive imports it "
                       "all the same (E_NONFINITE)",
                       NB_FMT_STR(t->name), (unsigned long long)f.count, (unsigned long long)(f.first / cols),
                       (unsigned long long)(f.first % cols));
    nb_job_warn(j, t->name, "%llu non-finite values, first at [%llu,%llu]", (unsigned long long)f.count,
                (unsigned long long)(f.first / cols), (unsigned long long)(f.first % cols));
    return NB_OK;
}

nb_status nb_deep_check(nb_job *j, const nb_layer *layers, nb_error *err)
{
    nb_scratch sc = {0};
    nb_buf buf = {0};
    nb_status st = NB_OK;
    for (size_t i = 0; i < j->n_items && st == NB_OK; i++) {
        const nb_item *it = &j->items[i];
        nb_model_blobs b;
        if (!wanted(j, it) && !j->o->deep) continue;
        if (nb_job_cancelled(j)) {
            st = nb_fail(err, NB_E_CANCELLED, "cancelled while verifying");
            break;
        }
        st = nb_blobs_open_one(&b, j->store, &layers[i], err);
        for (size_t k = 0; k < b.n && j->o->deep && st == NB_OK; k++) st = check_finite(j, &b.t[k], &buf, err);
        for (int k = 0; k < it->n_proj && wanted(j, it) && st == NB_OK; k++)
            if (!moved(it, &it->proj[k])) st = check_proj(j, it, &it->proj[k], &b, &sc, &buf, err);
        nb_blobs_close(&b);
    }
    nb_scratch_free(&sc);
    nb_buf_free(&buf);
    return st;
}

/* ---- a blob that an earlier import left ---- */

/* The first bytes of a plain tensor that is stored as the source has it. */
static bool same_plain(const nb_item *it, const nb_model_blobs *b)
{
    uint8_t raw[4096];
    const nb_stored *t = nb_blobs_find(b, it->name, 0);
    if (!t || t->matrix) return false;
    size_t n = t->bytes < sizeof raw ? (size_t)t->bytes : sizeof raw;
    if (it->plain_dtype != it->src->dtype || it->plain_perm || it->minus_one) return true;
    return nb_source_read(it->source, it->src, 0, n, raw, NULL) == NB_OK && !memcmp(raw, t->data, n);
}

bool nb_deep_same(nb_job *j, const nb_item *it, const nb_layer *l)
{
    nb_model_blobs b;
    nb_scratch sc = {0};
    nb_buf buf = {0};
    if (nb_blobs_open_one(&b, j->store, l, NULL) != NB_OK) return false;
    bool same = it->kind != NB_ITEM_PLAIN || same_plain(it, &b);
    for (int i = 0; i < it->n_proj && same; i++) {
        const nb_item_proj *p = &it->proj[i];
        sums s = {.equal = true};
        same = measure(it, p, &b, &s, &sc, &buf, NULL) == NB_OK &&
               (p->native ? s.equal
                          : s.diff <= 4 * expected_rms((nb_format)p->type.format) *
                                          expected_rms((nb_format)p->type.format) * s.ref);
    }
    nb_blobs_close(&b);
    nb_buf_free(&buf);
    nb_scratch_free(&sc);
    return same;
}
