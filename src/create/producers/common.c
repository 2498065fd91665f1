/* create/producers/common: companions, names and config fields that several producers need. */
#include "create/producer.h"

#include <strings.h>

nb_src_tensor *nb_src_companion(const nb_job *j, nb_str base, const char *suffix)
{
    nb_src_tensor *t = nb_source_findf(&j->src, "%.*s%s", NB_FMT_STR(base), suffix);
    return t && !t->used ? t : NULL;
}

void nb_claim(nb_src_tensor *t)
{
    if (t) t->used = "companion";
}

bool nb_view3(const nb_src_tensor *t, int64_t *lead, int64_t *rows, int64_t *cols)
{
    if (t->rank != 2 && t->rank != 3) return false;
    *lead = t->rank == 3 ? t->dim[0] : 0;
    *rows = t->dim[t->rank - 2];
    *cols = t->dim[t->rank - 1];
    return *rows > 0 && *cols > 0;
}

bool nb_shape_is(const nb_src_tensor *t, int64_t lead, int64_t rows, int64_t cols)
{
    int64_t l, r, c;
    return nb_view3(t, &l, &r, &c) && l == lead && r == rows && c == cols;
}

nb_status nb_producer_name(nb_job *j, nb_str base, bool suffixed, nb_str *name, nb_error *err)
{
    char *full = nb_arena_printf(j->arena, "%.*s%s", NB_FMT_STR(base), suffixed ? ".weight" : "");
    if (!full) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    *name = nb_canonical(j, nb_str_of(full));
    if (!name->p) *name = nb_str_of(full);
    return NB_OK;
}

nb_status nb_producer_add(nb_job *j, nb_weight_src *w, nb_error *err)
{
    nb_matrix *m = &w->m;
    const nb_src_tensor *own[] = {m->scale, m->bias, m->global, m->zero, m->gidx};
    ((nb_src_tensor *)m->w)->used = "packed";
    for (size_t i = 0; i < NB_COUNT(own); i++)
        if (own[i]) nb_claim((nb_src_tensor *)own[i]);
    w->quantized = true;
    if (w->experts && m->global) {
        uint64_t n = m->global->len / ((uint64_t)nb_dtype_bits(m->global->dtype) / 8);
        if (n != 1 && n != (uint64_t)w->experts)
            return nb_fail(err, NB_E_INVALID, "tensor %.*s has %llu elements for %lld experts (E_EXPERT_NVFP4)",
                           NB_FMT_STR(m->global->name), (unsigned long long)n, (long long)w->experts);
    }
    return nb_classify_add(j, w) ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

/* Experts are multiplied row by row of a step, and a table is no product: neither has a place for the factors. */
static bool takes_factors(const nb_weight_src *w)
{
    return !w->experts && !nb_str_has(w->name, ".experts.") && !nb_str_has(w->name, ".switch_mlp.") &&
           !nb_str_ends(w->name, "embed_tokens.weight");
}

nb_status nb_producer_pre_scale(nb_job *j, nb_weight_src *w, nb_str base, nb_error *err)
{
    nb_src_tensor *p = nb_src_companion(j, base, ".pre_quant_scale");
    if (!p) return NB_OK;
    float *v;
    uint64_t n;
    nb_status st = nb_source_floats(j, &j->src, p, NB_MAX_COLUMNS, &v, &n, err);
    if (st != NB_OK) return st;
    if (n != (uint64_t)w->m.k)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s has %llu elements for %lld columns (E_PRE_QUANT_SCALE)",
                       NB_FMT_STR(p->name), (unsigned long long)n, (long long)w->m.k);
    for (uint64_t i = 0; i < n; i++)
        if (!(v[i] - v[i] == 0.0f))
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: value %llu is not finite (E_PRE_QUANT_SCALE)",
                           NB_FMT_STR(p->name), (unsigned long long)i);
    nb_claim(p);
    w->m.pre_scale = v;
    if (takes_factors(w)) return NB_OK;
    if (!j->o->allow_requantize)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "tensor %.*s needs pre_quant_scale, which this engine cannot apply here; --allow-requantize "
                       "multiplies it into decoded weights (E_PRE_QUANT_SCALE)",
                       NB_FMT_STR(w->src_name));
    w->m.has_native = false;
    return NB_OK;
}

/* ---- config ---- */

const nb_json *nb_quant_field(const nb_job *j, const char *key)
{
    for (size_t i = 0; i < j->src.n_quant; i++) {
        const nb_json *v = nb_json_get(j->src.quant[i], key);
        if (nb_json_present(v)) return v;
    }
    return NULL;
}

bool nb_same_word(nb_str a, const char *b) { return a.n == strlen(b) && !strncasecmp(a.p, b, a.n); }

bool nb_quant_is(const nb_job *j, const char *key, const char *value)
{
    nb_str s;
    for (size_t i = 0; i < j->src.n_quant; i++)
        if (nb_json_str(nb_json_get(j->src.quant[i], key), &s) && nb_same_word(s, value)) return true;
    return false;
}

void nb_group_contradicted(nb_job *j, const nb_src_tensor *t, const nb_json *said, int64_t actual)
{
    int64_t group;
    if (nb_json_i64(said, &group) && group > 0 && group != actual)
        nb_job_warn(j, t->name, "config says groups of %lld, the shapes say %lld", (long long)group, (long long)actual);
}

/* ---- bits moved as they lie ---- */

/* [k-wise packed rows, n] -> rows: a source that keeps its banks transposed. One run of columns per packed row. */
static nb_status transposed_bytes(const nb_source *s, const nb_matrix *m, const nb_src_tensor *t, int64_t packed_rows,
                                  int64_t r0, int64_t rows, uint8_t *dst, size_t stride, nb_scratch *sc, nb_error *err)
{
    size_t run = (size_t)((rows - 1) * m->step + 1);
    uint64_t base =
        (uint64_t)m->expert * (uint64_t)packed_rows * (uint64_t)m->stored_rows + (uint64_t)(m->row0 + r0 * m->step);
    sc->raw.n = 0;
    if (!nb_buf_reserve(&sc->raw, run)) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (int64_t c = 0; c < packed_rows; c++) {
        nb_status st = nb_source_read(s, t, base + (uint64_t)c * (uint64_t)m->stored_rows, run, sc->raw.p, err);
        if (st != NB_OK) return st;
        for (int64_t r = 0; r < rows; r++) dst[(size_t)r * stride + (size_t)c] = (uint8_t)sc->raw.p[r * m->step];
    }
    return NB_OK;
}

/* The scales of rows as they lie. NVFP4 from blocks of 32: one scale serves two blocks of 16. */
static nb_status direct_scales(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                               nb_scratch *sc, nb_error *err)
{
    if (m->transposed)
        return transposed_bytes(s, m, m->scale, (int64_t)out->scale_stride, r0, rows, out->scales, out->scale_stride,
                                sc, err);
    if (!(m->flags & NB_MX_CHANNEL))
        return nb_matrix_rows(s, m, m->scale, out->scale_stride, r0, rows, out->scales, out->scale_stride, sc, err);
    size_t half = out->scale_stride / 2;
    nb_status st = nb_matrix_rows(s, m, m->scale, half, r0, rows, out->scales, half, sc, err);
    for (size_t i = (size_t)rows * half; i-- > 0 && st == NB_OK;)
        out->scales[2 * i] = out->scales[2 * i + 1] = out->scales[i];
    return st;
}

/* A multiplier of 0: exported so for a matrix of zeros, whose block scales (amax / 0) are then NaN or 0. */
static nb_status zero_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                            nb_scratch *sc, nb_error *err)
{
    nb_status st = direct_scales(s, m, r0, rows, out, sc, err);
    for (size_t i = 0; i < (size_t)rows * out->scale_stride && st == NB_OK; i++) {
        uint8_t magnitude = out->scales[i] & 0x7f;
        if (magnitude && magnitude != 0x7f)
            st = nb_fail(err, NB_E_INVALID,
                         "tensor %.*s: global scale is 0, the block scales are not (E_GLOBAL_INVALID)",
                         NB_FMT_STR(m->zero->name));
    }
    memset(out->codes, 0, (size_t)rows * out->code_stride);
    memset(out->scales, 0, (size_t)rows * out->scale_stride);
    return st;
}

nb_status nb_direct_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                          nb_scratch *sc, nb_error *err)
{
    if (m->zero && (m->flags & NB_MX_ZERO)) return zero_parts(s, m, r0, rows, out, sc, err);
    nb_status st =
        m->transposed
            ? transposed_bytes(s, m, m->w, (int64_t)out->code_stride, r0, rows, out->codes, out->code_stride, sc, err)
            : nb_matrix_rows(s, m, m->w, out->code_stride, r0, rows, out->codes, out->code_stride, sc, err);
    if (st == NB_OK) st = direct_scales(s, m, r0, rows, out, sc, err);
    if (st == NB_OK && m->bias && !m->transposed)
        st = nb_matrix_rows(s, m, m->bias, out->bias_stride, r0, rows, out->biases, out->bias_stride, sc, err);
    if (st == NB_OK) st = nb_parts_domain(m->native, out, rows, m->k, &sc->zeroed, err);
    if (st == NB_E_INVALID) nb_error_prefix(err, "tensor %.*s, rows from %lld", NB_FMT_STR(m->w->name), (long long)r0);
    return st;
}
