/* create/worker: one blob, tile by tile. */
#include "create/worker.h"
#include "base/file.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define TILE_FLOATS  (1 << 20) /* elements of a tile: 4 MiB as F32 */
#define WHOLE_FLOATS (4 << 20) /* a matrix up to 16 MiB is held whole while its maximum is found */
#define COPY_BYTES   (4u << 20)

void nb_worker_free(nb_worker *w)
{
    nb_scratch_free(&w->sc);
    nb_buf_free(&w->floats);
    nb_buf_free(&w->parts);
    nb_buf_free(&w->packed);
    nb_buf_free(&w->whole);
    for (int i = 0; i < 3; i++) {
        nb_spill_reset(&w->scales[i]);
        nb_spill_reset(&w->biases[i]);
        nb_buf_free(&w->scales[i].mem);
        nb_buf_free(&w->biases[i].mem);
        free(w->globals[i]);
        w->globals[i] = NULL;
    }
}

static void *room(nb_buf *b, uint64_t n)
{
    b->n = 0;
    return n <= SIZE_MAX / 2 && nb_buf_reserve(b, (size_t)n) ? b->p : NULL;
}

static nb_status no_memory(const nb_worker *w, nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory writing %s", w->item_name);
}

static nb_status put(nb_worker *w, const void *p, size_t n, nb_error *err)
{
    nb_status st = nb_blob_write(w->out, p, n, err);
    if (st == NB_OK) nb_worker_count(w, n);
    return st;
}

static nb_status put_zeros(nb_worker *w, uint64_t n, nb_error *err)
{
    static const char zeros[4096];
    nb_status st = NB_OK;
    for (; n && st == NB_OK; n -= n < sizeof zeros ? n : sizeof zeros)
        st = put(w, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros, err);
    return st;
}

/* Rows of a tile: whole row tiles, a multiple of 128 where that many fit (FP8 blocks, heads). */
static int64_t tile_rows(int64_t k)
{
    int64_t rows = TILE_FLOATS / k;
    if (rows >= 128) return rows / 128 * 128;
    return rows < 16 ? 16 : rows / 16 * 16;
}

/* ---- values ---- */

/* Where in a tile the first value is that is not finite. */
static nb_status not_finite(const nb_item_proj *p, const nb_matrix *m, const float *v, int64_t r0, int64_t rows,
                            nb_error *err)
{
    uint64_t count = 0;
    int64_t first = -1;
    for (int64_t i = 0; i < rows * m->k; i++)
        if (!isfinite(v[i])) {
            if (first < 0) first = i;
            count++;
        }
    if (first < 0) { /* finite, but beyond what the format holds: err has the reason */
        nb_error_prefix(err, "tensor %.*s", NB_FMT_STR(p->name));
        return NB_E_INVALID;
    }
    return nb_fail(
        err, NB_E_INVALID, "tensor %.*s contains non-finite values (%llu near the first, at [%lld,%lld]) (E_NONFINITE)",
        NB_FMT_STR(m->w->name), (unsigned long long)count, (long long)(r0 + first / m->k), (long long)(first % m->k));
}

/* NaN becomes 0, an infinity the largest finite value of its group. Returns how many there were. */
static uint64_t mend_group(float *v, int64_t n)
{
    float top = 0;
    uint64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            count++;
        else if (fabsf(v[i]) > top)
            top = fabsf(v[i]);
    }
    for (int64_t i = 0; count && i < n; i++)
        if (!isfinite(v[i])) v[i] = isnan(v[i]) || top == 0 ? 0.0f : copysignf(top, v[i]);
    return count;
}

/* Rows of the source that are to be quantised. Groups never cross rows. */
static nb_status read_rows(nb_worker *w, const nb_item_proj *p, const nb_matrix *m, int64_t r0, int64_t rows, float *v,
                           uint64_t *mended, nb_error *err)
{
    nb_status st = nb_matrix_floats(w->src, m, r0, rows, v, &w->sc, err);
    int64_t group = p->type.group, n = rows * m->k;
    bool mend = w->mend && !nb_format_info((nb_format)p->type.format)->is_float && group > 0;
    if (st != NB_OK || !mend || isfinite(nb_abs_max(v, (size_t)n))) return st;
    for (int64_t at = 0; at < n; at += group) *mended += mend_group(v + at, n - at < group ? n - at : group);
    return NB_OK;
}

static nb_status tensor_max(nb_worker *w, const nb_item_proj *p, const nb_matrix *m, float *amax, nb_error *err)
{
    int64_t step = tile_rows(m->k);
    uint64_t again = 0, zeroed = w->sc.zeroed; /* they are counted when the tile is written */
    *amax = 0;
    for (int64_t r = 0; r < m->n; r += step) {
        int64_t rows = m->n - r < step ? m->n - r : step;
        float *v = room(&w->floats, (uint64_t)rows * (uint64_t)m->k * 4);
        if (!v) return no_memory(w, err);
        nb_status st = nb_worker_check(w, err);
        nb_worker_count(w, 0); /* nothing is written yet, but the caller hears of it */
        if (st == NB_OK) st = read_rows(w, p, m, r, rows, v, &again, err);
        if (st != NB_OK) return st;
        float a = nb_abs_max(v, (size_t)(rows * m->k));
        if (!isfinite(a)) return not_finite(p, m, v, r, rows, err);
        if (a > *amax) *amax = a;
    }
    w->sc.zeroed = zeroed;
    return NB_OK;
}

/* Parts of a tile, contiguous in w->parts. */
static nb_status parts_room(nb_worker *w, const nb_item_proj *p, int64_t rows, nb_parts *out, nb_error *err)
{
    size_t c, s, b;
    if (!nb_parts_row_bytes(p->type, p->k, &c, &s, &b))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld columns do not fit its format", NB_FMT_STR(p->name),
                       (long long)p->k);
    uint8_t *base = room(&w->parts, (uint64_t)rows * (c + s + b));
    if (!base) return no_memory(w, err);
    *out = (nb_parts){.codes = base, .code_stride = c, .scale_stride = s, .bias_stride = b};
    if (s) out->scales = base + (size_t)rows * c;
    if (b) out->biases = base + (size_t)rows * (c + s);
    return NB_OK;
}

static nb_status emit_tile(nb_worker *w, const nb_item *it, int pi, const nb_parts *parts, int64_t rows, nb_error *err)
{
    const nb_item_proj *p = &it->proj[pi];
    if (it->layout == NB_LAYOUT_STANDARD) {
        nb_status st = put(w, parts->codes, (size_t)rows * parts->code_stride, err);
        if (st == NB_OK && parts->scales)
            st = nb_spill_add(&w->scales[pi], w->root, parts->scales, (size_t)rows * parts->scale_stride, err);
        if (st == NB_OK && parts->biases)
            st = nb_spill_add(&w->biases[pi], w->root, parts->biases, (size_t)rows * parts->bias_stride, err);
        return st;
    }
    uint64_t n;
    if (!nb_plan_bytes(it->layout, p->type, rows, p->k, &n))
        return nb_fail(err, NB_E_FAILED, "tensor %.*s: tile too large", NB_FMT_STR(p->name));
    uint8_t *packed = room(&w->packed, n);
    if (!packed) return no_memory(w, err);
    if (it->layout == NB_LAYOUT_ROWS16)
        nb_rows16_pack(p->type, parts, rows, p->k, packed);
    else
        nb_rows1_pack(p->type, parts, rows, p->k, packed);
    return put(w, packed, (size_t)n, err);
}

/* NVFP4 is quantised with the maximum itself: several maxima of F32 weights share a multiplier. */
static nb_status quantize(const nb_worker *w, nb_qtype q, const float *v, int64_t rows, int64_t k, float amax,
                          const nb_parts *out, nb_error *err)
{
    if (w->search && nb_format_searches((nb_format)q.format)) return nb_quantize_search(q, v, rows, k, amax, out, err);
    return q.format == NB_NVFP4 ? nb_quantize_nvfp4(v, rows, k, amax, out, err)
                                : nb_quantize_rows(q, v, rows, k, 1, out, err);
}

/* One tile: rows moved as they are, or decoded and quantised. `given`: their floats, if somebody has them already;
 * amax: the matrix's absolute maximum, for NVFP4. */
static nb_status matrix_tile(nb_worker *w, const nb_item *it, int pi, const nb_matrix *m, float amax,
                             const float *given, int64_t r0, int64_t rows, nb_error *err)
{
    const nb_item_proj *p = &it->proj[pi];
    nb_parts parts;
    nb_status st = parts_room(w, p, rows, &parts, err);
    if (st != NB_OK) return st;
    if (p->native) {
        st = nb_matrix_parts(w->src, m, r0, rows, &parts, &w->sc, err);
    } else {
        float *v = given ? NULL : room(&w->floats, (uint64_t)rows * (uint64_t)m->k * 4);
        if (!given && !v) return no_memory(w, err);
        if (!given) st = read_rows(w, p, m, r0, rows, v, &w->mended, err);
        const float *f = given ? given : v;
        if (st == NB_OK && quantize(w, p->type, f, rows, m->k, amax, &parts, err) != NB_OK)
            st = not_finite(p, m, f, r0, rows, err);
    }
    return st == NB_OK ? emit_tile(w, it, pi, &parts, rows, err) : st;
}

static nb_status write_matrix(nb_worker *w, const nb_item *it, int pi, int64_t e, nb_error *err)
{
    const nb_item_proj *p = &it->proj[pi];
    const nb_matrix *m = &p->m[e];
    float mult = m->m, amax = 0, *whole = NULL;
    nb_status st = NB_OK;
    if (!p->native && p->type.format == NB_NVFP4) {
        if (m->n * m->k <= WHOLE_FLOATS) {
            whole = room(&w->whole, (uint64_t)(m->n * m->k) * 4);
            if (!whole) return no_memory(w, err);
            st = read_rows(w, p, m, 0, m->n, whole, &w->mended, err);
            if (st == NB_OK) amax = nb_abs_max(whole, (size_t)(m->n * m->k));
            if (st == NB_OK && !isfinite(amax)) st = not_finite(p, m, whole, 0, m->n, err);
        } else {
            st = tensor_max(w, p, m, &amax, err);
        }
        if (st != NB_OK) return st;
        mult = nb_nvfp4_multiplier(amax);
    }
    if (w->globals[pi]) w->globals[pi][e] = mult;
    int64_t step = tile_rows(p->k);
    for (int64_t r = 0; r < p->n && st == NB_OK; r += step) {
        int64_t rows = p->n - r < step ? p->n - r : step;
        st = nb_worker_check(w, err);
        if (st == NB_OK) st = matrix_tile(w, it, pi, m, amax, whole ? whole + r * m->k : NULL, r, rows, err);
    }
    return st;
}

/* ---- parts of a blob ---- */

static nb_status write_bank(nb_worker *w, const nb_item *it, nb_error *err)
{
    nb_status st = NB_OK;
    for (int64_t e = 0; e < it->experts && st == NB_OK; e++) {
        uint64_t end = 0;
        for (int i = 0; i < it->n_proj && st == NB_OK; i++) {
            st = write_matrix(w, it, i, e, err);
            end = it->proj[i].offset + it->proj[i].bytes;
        }
        if (st == NB_OK && it->kind == NB_ITEM_BANK) st = put_zeros(w, it->stride - end, err);
    }
    return st;
}

/* Floats apart that the source had: rows or blocks of every expert, one expert after the other. */
static nb_status write_apart(nb_worker *w, const nb_item *it, int pi, int what, nb_error *err)
{
    const nb_item_proj *p = &it->proj[pi];
    nb_status st = NB_OK;
    for (int64_t e = 0; e < it->experts && st == NB_OK; e++) {
        const nb_matrix *m = &p->m[e];
        if (what == NB_OUT_ROW_SCALE)
            st = put(w, m->row_scale, (size_t)p->n * 4, err);
        else
            st = put(w, m->block_scale, (size_t)((p->n + 127) / 128 * ((p->k + 127) / 128)) * 4, err);
    }
    return st;
}

/* Bias vectors of experts, [E, stored]: the rows of this projection. */
static nb_status write_out_bias(nb_worker *w, const nb_item *it, int pi, nb_error *err)
{
    const nb_item_proj *p = &it->proj[pi];
    size_t elem = (size_t)nb_dtype_bits(p->out_bias->dtype) / 8;
    int64_t stored = p->out_bias->dim[p->out_bias->rank - 1];
    uint8_t *raw = room(&w->floats, (uint64_t)stored * elem * 2);
    if (!raw) return no_memory(w, err);
    uint8_t *picked = raw + (size_t)stored * elem;
    nb_status st = NB_OK;
    for (int64_t e = 0; e < it->experts && st == NB_OK; e++) {
        st = nb_source_read(w->src, p->out_bias, (uint64_t)(e * stored) * elem, (size_t)stored * elem, raw, err);
        for (int64_t r = 0; r < p->n && st == NB_OK; r++)
            memcpy(picked + (size_t)r * elem, raw + (size_t)(p->bias_row0 + r * p->bias_step) * elem, elem);
        if (st == NB_OK) st = put(w, picked, (size_t)p->n * elem, err);
    }
    return st;
}

/* The weight of a norm: small, read by every token, and NaN from one of its values is NaN everywhere. Other plain
 * tensors may hold infinities that mean something, such as a sink that is off. */
static bool must_be_finite(const nb_item *it)
{
    const nb_src_tensor *t = it->src;
    return t->rank == 1 && nb_str_ends(it->name, ".weight") &&
           (t->dtype == NB_DT_F32 || t->dtype == NB_DT_F16 || t->dtype == NB_DT_BF16);
}

/* Values that are not finite are an error, or replaced in `raw` on request. v: room for n floats. */
static nb_status settle(nb_worker *w, const nb_item *it, uint8_t *raw, uint64_t first, int64_t n, float *v,
                        nb_error *err)
{
    const nb_src_tensor *t = it->src;
    uint64_t count = 0, at = 0;
    nb_floats_decode(t->dtype, raw, (size_t)n, v);
    if (isfinite(nb_abs_max(v, (size_t)n))) return NB_OK;
    for (int64_t i = n; i-- > 0;)
        if (!isfinite(v[i])) {
            count++;
            at = first + (uint64_t)i;
        }
    if (!w->mend && w->permissive) return NB_OK; /* --deep says so */
    if (!w->mend)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s contains %llu non-finite values (first at [0,%llu]); --permissive imports it all "
                       "the same (E_NONFINITE)",
                       NB_FMT_STR(t->name), (unsigned long long)count, (unsigned long long)at);
    w->mended += mend_group(v, n);
    for (int64_t i = 0; i < n; i++) nb_put_float(raw, t->dtype, i, v[i]);
    return NB_OK;
}

/* A plain tensor: bytes as they are; F64 and GGUF blocks become F32; a permuted bias is put in order. */
static nb_status write_plain(nb_worker *w, const nb_item *it, nb_error *err)
{
    const nb_src_tensor *t = it->src;
    nb_matrix m = {.reader = t->dtype == NB_DT_NONE ? &nb_reader_ggml : &nb_reader_float,
                   .n = (int64_t)it->params,
                   .k = 1,
                   .w = t,
                   .step = 1,
                   .stored_rows = (int64_t)it->params,
                   .perm = it->plain_perm,
                   .m = 1};
    nb_status st = NB_OK;
    if (it->plain_perm && (t->rank != 1 || m.n % it->plain_perm))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld values are not whole heads", NB_FMT_STR(t->name),
                       (long long)m.n);
    if (it->plain_dtype == t->dtype && !it->plain_perm) {
        for (uint64_t at = 0; at < t->len && st == NB_OK; at += COPY_BYTES) {
            size_t n = t->len - at < COPY_BYTES ? (size_t)(t->len - at) : COPY_BYTES;
            uint8_t *p = room(&w->floats, n);
            bool look = must_be_finite(it);
            int64_t values = look ? (int64_t)(n * 8 / (size_t)nb_dtype_bits(t->dtype)) : 0;
            float *v = look ? room(&w->parts, (uint64_t)values * 4) : NULL;
            if (!p || (look && !v)) return no_memory(w, err);
            st = nb_worker_check(w, err);
            if (st == NB_OK) st = nb_source_read(w->src, t, at, n, p, err);
            if (st == NB_OK && look) st = settle(w, it, p, at * 8 / (uint64_t)nb_dtype_bits(t->dtype), values, v, err);
            if (st == NB_OK) st = put(w, p, n, err);
        }
        return st;
    }
    if (t->dtype == NB_DT_NONE) { /* one row, or rows of the last dimension */
        m.k = t->rank ? t->dim[t->rank - 1] : 1;
        m.n = m.stored_rows = m.k ? (int64_t)it->params / m.k : 0;
    }
    int64_t step = m.k > TILE_FLOATS ? 1 : TILE_FLOATS / m.k;
    size_t elem = t->dtype == NB_DT_NONE || t->dtype == NB_DT_F64 ? 4 : (size_t)nb_dtype_bits(t->dtype) / 8;
    for (int64_t r = 0; r < m.n && st == NB_OK; r += step) {
        int64_t rows = m.n - r < step ? m.n - r : step;
        uint8_t *p = room(&w->floats, (uint64_t)(rows * m.k) * 4);
        if (!p) return no_memory(w, err);
        if (elem == 4 && t->dtype != NB_DT_F32)
            st = nb_matrix_floats(w->src, &m, r, rows, (float *)(void *)p, &w->sc, err);
        else
            st = nb_matrix_rows(w->src, &m, t, elem, r, rows, p, elem, &w->sc, err);
        if (st == NB_OK) st = put(w, p, (size_t)(rows * m.k) * elem, err);
    }
    return st;
}

/* A vector of floats, less one. */
static nb_status write_minus_one(nb_worker *w, const nb_item *it, nb_error *err)
{
    const nb_src_tensor *t = it->src;
    size_t elem = (size_t)nb_dtype_bits(t->dtype) / 8;
    nb_status st = NB_OK;
    for (int64_t at = 0, all = (int64_t)it->params; at < all && st == NB_OK; at += TILE_FLOATS) {
        int64_t n = all - at < TILE_FLOATS ? all - at : TILE_FLOATS;
        uint8_t *raw = room(&w->parts, (uint64_t)n * elem);
        float *v = room(&w->floats, (uint64_t)n * 4);
        if (!raw || !v) return no_memory(w, err);
        st = nb_source_read(w->src, t, (uint64_t)at * elem, (size_t)n * elem, raw, err);
        if (st == NB_OK) st = settle(w, it, raw, (uint64_t)at, n, v, err);
        if (st != NB_OK) return st;
        nb_floats_decode(t->dtype, raw, (size_t)n, v);
        for (int64_t i = 0; i < n; i++) v[i] -= 1.0f;
        st = put(w, v, (size_t)n * 4, err);
    }
    return st;
}

static nb_status write_out(nb_worker *w, const nb_item *it, size_t i, nb_error *err)
{
    int pi = it->out_src[i].proj;
    nb_status st = NB_OK;
    switch (it->out_src[i].what) {
    case NB_OUT_PLAIN: return it->minus_one ? write_minus_one(w, it, err) : write_plain(w, it, err);
    case NB_OUT_PACKED: return write_bank(w, it, err);
    case NB_OUT_CODES:
        for (int64_t e = 0; e < it->experts && st == NB_OK; e++) st = write_matrix(w, it, pi, e, err);
        return st;
    case NB_OUT_GLOBAL: return put(w, w->globals[pi], (size_t)it->experts * 4, err);
    case NB_OUT_ROW_SCALE:
    case NB_OUT_BLOCK_SCALE: return write_apart(w, it, pi, it->out_src[i].what, err);
    case NB_OUT_SCALES: return nb_spill_copy(&w->scales[pi], w->out, err);
    case NB_OUT_BIASES: return nb_spill_copy(&w->biases[pi], w->out, err);
    case NB_OUT_PRE_SCALE: return put(w, it->proj[pi].m->pre_scale, (size_t)it->proj[pi].k * 4, err);
    default: return write_out_bias(w, it, pi, err);
    }
}

nb_status nb_worker_item(nb_worker *w, const nb_item *it, nb_error *err)
{
    for (int i = 0; i < 3; i++) {
        nb_spill_reset(&w->scales[i]);
        nb_spill_reset(&w->biases[i]);
        free(w->globals[i]);
        w->globals[i] = i < it->n_proj ? calloc((size_t)it->experts, sizeof(float)) : NULL;
        if (i < it->n_proj && !w->globals[i]) return no_memory(w, err);
    }
    nb_worker_count(w, it->header.n);
    w->mended = 0;
    w->sc.zeroed = 0;
    nb_status st = NB_OK;
    for (size_t i = 0; i < it->n_outs && st == NB_OK; i++) st = write_out(w, it, i, err);
    return st;
}
