/* create/producers/fp8: E4M3 and E5M2 weights with scales per tensor, channel or block. specs/create.md 3.10. The value
 * is always code times scale, whatever the suffix says.
 *
 * Stored, in order of preference: as MXFP8 where every block scale is a power of two and blocks are whole groups of 32
 * columns; as fp8_block (128 x 128), fp8_channel or fp8_tensor; else decoded.
 */
#include "create/producer.h"

#include <math.h>

static nb_status fp8_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                           nb_scratch *sc, nb_error *err);
static nb_status fp8_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                            nb_scratch *sc, nb_error *err);
static const nb_reader reader_fp8 = {"fp8", fp8_parts, fp8_floats};

/* The scale of stored row r, column c of the expert. */
static float scale_at(const nb_matrix *m, int64_t r, int64_t c)
{
    const float *base = m->fp8 + m->expert * m->scale_rows * m->scale_cols;
    int64_t sr = m->scale_rows == 1 ? 0 : r / m->block_rows, sc = m->scale_cols == 1 ? 0 : c / m->block_cols;
    return base[sr * m->scale_cols + sc];
}

static nb_status fp8_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                           nb_scratch *sc, nb_error *err)
{
    nb_status st = nb_matrix_rows(s, m, m->w, (size_t)m->k, r0, rows, out->codes, out->code_stride, sc, err);
    if (st != NB_OK) return st;
    for (int64_t r = 0; r < rows && m->native.format == NB_MXFP8; r++)
        for (int64_t g = 0; g < m->k / 32; g++) {
            int e = 0;
            frexpf(scale_at(m, m->row0 + (r0 + r) * m->step, g * 32), &e); /* a power of two is 0.5 * 2^e */
            out->scales[(size_t)r * out->scale_stride + (size_t)g] = (uint8_t)(126 + e);
        }
    for (int64_t i = 0; i < rows * m->k && m->native.format != NB_MXFP8; i++)
        if ((out->codes[i] & 0x7f) == 0x7f)
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: the code at [%lld,%lld] is NaN (E_NONFINITE)",
                           NB_FMT_STR(m->w->name), (long long)(r0 + i / m->k), (long long)(i % m->k));
    st = nb_parts_domain(m->native, out, rows, m->k, &sc->zeroed, err);
    if (st == NB_E_INVALID) nb_error_prefix(err, "tensor %.*s, rows from %lld", NB_FMT_STR(m->w->name), (long long)r0);
    return st;
}

static nb_status fp8_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                            nb_scratch *sc, nb_error *err)
{
    sc->aux.n = 0;
    if (!nb_buf_reserve(&sc->aux, (size_t)(rows * m->k))) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = nb_matrix_rows(s, m, m->w, (size_t)m->k, r0, rows, (uint8_t *)sc->aux.p, (size_t)m->k, sc, err);
    if (st != NB_OK) return st;
    nb_floats_decode(m->w->dtype, sc->aux.p, (size_t)(rows * m->k), out);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < m->k; c++) out[r * m->k + c] *= scale_at(m, m->row0 + (r0 + r) * m->step, c);
    return NB_OK;
}

/* ---- the shape of the scales ---- */

static bool pair(const nb_json *v, int64_t *r, int64_t *c)
{
    nb_str s;
    if (nb_json_is(v, NB_JSON_ARRAY) && v->count == 2)
        return nb_json_i64(&v->items[0], r) && nb_json_i64(&v->items[1], c);
    if (!nb_json_str(v, &s)) return false;
    int64_t x = nb_str_find(s, NB_LIT("x"), 0); /* "128x128" */
    if (x <= 0) return false;
    nb_json a = {.type = NB_JSON_NUMBER, .text = {s.p, (size_t)x}},
            b = {.type = NB_JSON_NUMBER, .text = {s.p + x + 1, s.n - (size_t)x - 1}};
    return nb_json_i64(&a, r) && nb_json_i64(&b, c);
}

static bool config_block(const nb_job *j, nb_str base, int64_t *br, int64_t *bc)
{
    const nb_json *g = nb_quant_group(j, base);
    if (pair(nb_quant_field(j, "weight_block_size"), br, bc)) return true;
    if (pair(nb_json_get(g, "block_structure"), br, bc)) return true;
    return false;
}

static bool tiles(int64_t n, int64_t k, int64_t br, int64_t bc, int64_t sr, int64_t sc)
{
    return br > 0 && br <= INT32_MAX && bc > 0 && bc <= INT32_MAX && (n + br - 1) / br == sr && (k + bc - 1) / bc == sc;
}

/* Dimensions of the scale without those of size one, after the experts' axis. Returns their number (3: too many). */
static int squeezed(const nb_src_tensor *t, int64_t lead, int64_t d[2])
{
    int n = 0, i = 0;
    d[0] = d[1] = 1;
    if (lead && t->rank > 0 && t->dim[0] == lead) i = 1;
    for (; i < t->rank; i++) {
        if (t->dim[i] == 1) continue;
        if (n == 2) return 3;
        d[n++] = t->dim[i];
    }
    return n;
}

/* A scale that keeps both axes: [rows,cols], or [rows,1,cols,1] as ModelOpt writes blocks. */
static bool grid_of(const nb_src_tensor *t, int64_t lead, int64_t d[2])
{
    const int64_t *dim = t->dim;
    int left = t->rank;
    if (lead && left > 2 && dim[0] == lead) dim++, left--;
    if (left != 2 && (left != 4 || dim[1] != 1 || dim[3] != 1)) return false;
    d[0] = dim[0];
    d[1] = dim[left / 2];
    return true;
}

static nb_status no_tile(const nb_weight_src *w, const nb_src_tensor *s, int64_t br, int64_t bc, nb_error *err)
{
    return nb_fail(err, NB_E_INVALID,
                   "tensor %.*s: scale shape [%lld,%lld] does not tile weight shape [%lld,%lld] with blocks "
                   "[%lld,%lld] (E_FP8_META)",
                   NB_FMT_STR(w->src_name), (long long)(s->rank > 1 ? s->dim[s->rank - 2] : 1),
                   (long long)(s->rank ? s->dim[s->rank - 1] : 1), (long long)w->m.n, (long long)w->m.k, (long long)br,
                   (long long)bc);
}

/* The scale grid [scale_rows, scale_cols] and how many rows and columns one scale serves. */
static nb_status scale_shape(nb_job *j, nb_weight_src *w, const nb_src_tensor *s, nb_str base, nb_error *err)
{
    static const int64_t common[][2] = {{128, 128}, {32, 32}, {64, 64}, {1, 128}, {1, 64}, {1, 32}};
    nb_matrix *m = &w->m;
    int64_t d[2], br = 0, bc = 0;
    int n = squeezed(s, w->experts, d);
    bool said = config_block(j, base, &br, &bc);
    uint64_t count = 1;
    for (int i = 0; i < s->rank; i++) count *= (uint64_t)s->dim[i];
    bool grid = grid_of(s, w->experts, d);
    if (n == 3 || (s->rank > 3 && !grid)) return no_tile(w, s, br, bc, err);
    if (n == 0) { /* one scale; also the single block of an export that squeezes */
        m->scale_rows = m->scale_cols = 1;
        m->block_rows = m->n;
        m->block_cols = m->k;
        return count == 1 || count == (uint64_t)w->experts ? NB_OK : no_tile(w, s, br, bc, err);
    }
    bool last_one = s->rank < 2 || s->dim[s->rank - 1] == 1;
    if (n == 1 && d[0] == m->n && last_one) { /* per channel: [o] or [o,1] */
        m->scale_rows = m->n;
        m->scale_cols = 1;
        m->block_rows = 1;
        m->block_cols = m->k;
        return NB_OK;
    }
    if (n == 1 && !grid &&
        !(said ? tiles(m->n, m->k, br, bc, d[0], 1)
               : (m->k + 127) / 128 == 1 && (m->n + 127) / 128 == d[0])) { /* not a column of blocks: a row of them */
        d[1] = d[0];
        d[0] = 1;
    }
    m->scale_rows = d[0];
    m->scale_cols = d[1];
    bool fits = said && tiles(m->n, m->k, br, bc, d[0], d[1]);
    for (size_t i = 0; i < NB_COUNT(common) && !fits; i++) {
        if (!tiles(m->n, m->k, common[i][0], common[i][1], d[0], d[1])) continue;
        if (said)
            nb_job_warn(j, w->src_name, "config says blocks of [%lld,%lld], the shapes say [%lld,%lld]", (long long)br,
                        (long long)bc, (long long)common[i][0], (long long)common[i][1]);
        br = common[i][0];
        bc = common[i][1];
        fits = true;
    }
    m->block_rows = br;
    m->block_cols = bc;
    return fits ? NB_OK : no_tile(w, s, br, bc, err);
}

/* ---- the values of the scales ---- */

static nb_status read_scales(nb_job *j, nb_weight_src *w, const nb_src_tensor *s, nb_error *err)
{
    float *v = NULL;
    uint64_t n = 0;
    nb_src_tensor as_e8m0 = *s;
    if (s->dtype == NB_DT_U8) as_e8m0.dtype = NB_DT_F8_E8M0;
    nb_status st = nb_source_floats(j, &j->src, &as_e8m0, 1u << 26, &v, &n, err);
    if (st != NB_OK) return st;
    uint64_t experts = w->experts ? (uint64_t)w->experts : 1,
             want = experts * (uint64_t)(w->m.scale_rows * w->m.scale_cols);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(v[i]))
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: scale %llu is not finite (E_SCALE_NAN)",
                           NB_FMT_STR(s->name), (unsigned long long)i);
    if (n == 1 && want == 1 && v[0] == 0)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: the scale is 0 (E_GLOBAL_INVALID)", NB_FMT_STR(s->name));
    if (n == 1 && want > 1) { /* one scalar for the whole bank */
        float *all = NB_NEW_N(j->arena, float, want);
        if (!all) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        for (uint64_t i = 0; i < want; i++) all[i] = v[0];
        v = all;
    } else if (n != want) {
        return no_tile(w, s, w->m.block_rows, w->m.block_cols, err);
    }
    w->m.fp8 = v;
    return NB_OK;
}

static bool powers_of_two(const nb_weight_src *w)
{
    uint64_t n = (uint64_t)(w->experts ? w->experts : 1) * (uint64_t)(w->m.scale_rows * w->m.scale_cols);
    for (uint64_t i = 0; i < n; i++) {
        int e;
        if (frexpf(w->m.fp8[i], &e) != 0.5f || e < -110 || e > 114) return false;
    }
    return true;
}

/* The multiplier of a tensor is above zero; a scale that is not stands beside each row instead. */
static bool all_positive(const nb_weight_src *w)
{
    for (int64_t i = 0; i < (w->experts ? w->experts : 1); i++)
        if (!(w->m.fp8[i] > 0)) return false;
    return true;
}

static void choose_native(nb_weight_src *w)
{
    nb_matrix *m = &w->m;
    bool blocks = m->scale_rows * m->scale_cols > 1 && !(m->scale_cols == 1 && m->block_rows == 1);
    m->has_native = m->w->dtype == NB_DT_F8_E4M3;
    if (blocks && m->k % 32 == 0 && m->block_cols % 32 == 0 && powers_of_two(w))
        m->native = nb_qtype_default(NB_MXFP8);
    else if (m->scale_rows == 1 && m->scale_cols == 1)
        m->native = nb_qtype_default(all_positive(w) ? NB_FP8_TENSOR : NB_FP8_CHANNEL);
    else if (!blocks)
        m->native = nb_qtype_default(NB_FP8_CHANNEL);
    else if (m->block_rows == 128 && m->block_cols == 128)
        m->native = nb_qtype_default(NB_FP8_BLOCK);
    else
        m->has_native = false;
}

void nb_fp8_downgrade(nb_matrix *m)
{
    if (m->native.format == NB_FP8_TENSOR) m->native = nb_qtype_default(NB_FP8_CHANNEL);
    if (m->native.format != NB_MXFP8) return;
    if (m->block_rows == 128 && m->block_cols == 128)
        m->native = nb_qtype_default(NB_FP8_BLOCK);
    else
        m->has_native = false;
}

/* Pointers that the writer stores: rows or blocks of one expert and one half of a fused matrix. */
nb_status nb_fp8_of_expert(nb_job *j, nb_matrix *m, int64_t expert, nb_error *err)
{
    (void)expert;
    if (!m->has_native) return NB_OK;
    if (m->native.format == NB_FP8_TENSOR) m->m = scale_at(m, 0, 0);
    if (m->native.format == NB_FP8_CHANNEL) {
        float *v = NB_NEW_N(j->arena, float, (size_t)m->n);
        if (!v) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        for (int64_t r = 0; r < m->n; r++) v[r] = scale_at(m, m->row0 + r * m->step, 0);
        m->row_scale = v;
    }
    if (m->native.format == NB_FP8_BLOCK) {
        if (m->row0 % 128 || m->step != 1) { /* scales of a stored matrix count its own rows from 0 */
            m->has_native = false;
            m->why = "its rows begin inside a 128x128 block of the fused matrix";
        } else
            m->block_scale = m->fp8 + (m->expert * m->scale_rows + m->row0 / 128) * m->scale_cols;
    }
    return NB_OK;
}

/* A float or E8M0 scale under any of its names. */
static nb_src_tensor *find_scale(const nb_job *j, nb_src_tensor *t, nb_str base, bool suffixed)
{
    static const char *const after_weight[] = {".weight_scale_inv", ".weight_scale", ".scale", ".qscale_weight",
                                               ".scale_weight"};
    static const char *const after_name[] = {"_scale_inv", "_weight_scale", "_weight_scale_inv", "_scale"};
    nb_src_tensor *s = NULL;
    for (size_t i = 0; suffixed && !s && i < NB_COUNT(after_weight); i++)
        s = nb_src_companion(j, base, after_weight[i]);
    for (size_t i = 0; !suffixed && !s && i < NB_COUNT(after_name); i++) s = nb_src_companion(j, base, after_name[i]);
    /* the shards of an n-gram table share the scale of the table */
    int64_t at = s ? -1 : nb_str_find(t->name, NB_LIT(".ngram_embedding.shard"), 0);
    if (at >= 0) s = nb_source_findf(&j->src, "%.*s.ngram_embedding.weight_scale", (int)at, t->name.p);
    return s;
}

nb_status nb_match_fp8(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    bool suffixed = nb_str_ends(t->name, ".weight");
    int64_t lead, rows, cols;
    if ((t->dtype != NB_DT_F8_E4M3 && t->dtype != NB_DT_F8_E5M2) || !nb_view3(t, &lead, &rows, &cols)) return NB_OK;
    nb_src_tensor *s = find_scale(j, t, base, suffixed);
    if (!s)
        return nb_fail(err, NB_E_INVALID, "FP8 weight %.*s has no scale companion (E_FP8_META)", NB_FMT_STR(t->name));
    if (s->dtype != NB_DT_F32 && s->dtype != NB_DT_BF16 && s->dtype != NB_DT_F16 && s->dtype != NB_DT_F8_E8M0 &&
        s->dtype != NB_DT_U8)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: dtype %s cannot be an FP8 scale (E_FP8_META)",
                       NB_FMT_STR(s->name), nb_dtype_name(s->dtype));
    bool mx = nb_quant_is(j, "quant_algo", "MXFP8") || nb_quant_is(j, "format", "mxfp8-quantized");
    if (mx && s->dtype != NB_DT_F8_E8M0 && s->dtype != NB_DT_U8 && nb_shape_is(s, lead, rows, cols / 32))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: dtype %s cannot be an MXFP8 scale (E_FP8_META)",
                       NB_FMT_STR(s->name), nb_dtype_name(s->dtype));
    nb_weight_src w;
    nb_str name;
    nb_status st = nb_producer_name(j, base, suffixed, &name, err);
    if (st != NB_OK) return st;
    nb_weight_init(&w, t, name);
    w.m.reader = &reader_fp8;
    w.from = t->dtype == NB_DT_F8_E4M3 ? "fp8" : "fp8-e5m2";
    w.m.scale = s;
    st = scale_shape(j, &w, s, base, err);
    if (st == NB_OK) st = read_scales(j, &w, s, err);
    if (st != NB_OK) return st;
    choose_native(&w);
    *hit = true;
    st = nb_producer_pre_scale(j, &w, base, err);
    return st == NB_OK ? nb_producer_add(j, &w, err) : st;
}
