/* create/producers/int: integer codes: compressed-tensors pack-quantized, INT8, ModelOpt INT4-AWQ, GPTQ, AWQ.
 * specs/create.md 3.6, 3.8, 3.14, 3.15.
 *
 * All become affine: value = u * s + z with u unsigned. u is the source's code moved to 0 .. 2^b - 1, z = -zero * s in
 * F32. Where zero is a power of two (symmetric codes) z is exact in the scale's own dtype, unless it is too large for
 * F16; otherwise scale and bias are stored as F32, so that nothing is rounded.
 *
 * A reader fills rows of unsigned codes and of (s, zero) per source group; what follows is common.
 */
#include "create/producer.h"

#include <math.h>

/* ---- common: rows of codes and zero points to parts or floats ---- */

typedef struct int_rows {
    uint8_t *u;     /* [rows, k] unsigned codes */
    float *s;       /* [rows, groups] */
    float *zero;    /* [rows, groups]: the code that means 0 */
    int64_t groups; /* of the source */
    int64_t group;  /* columns per source group */
} int_rows;

typedef nb_status int_fill(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, int_rows *out,
                           nb_scratch *sc, nb_error *err);

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory reading integer weights");
}

static nb_status begin(const nb_matrix *m, int64_t rows, int_rows *v, nb_scratch *sc, nb_error *err)
{
    v->group = m->src_group ? m->src_group : m->k;
    if (m->flags & NB_MX_CHANNEL) v->group = m->k;
    v->groups = (m->k + v->group - 1) / v->group;
    size_t codes = (size_t)NB_ALIGN_UP((uint64_t)(rows * m->k), 16),
           floats = (size_t)(rows * v->groups) * sizeof(float);
    sc->aux.n = 0;
    if (!nb_buf_reserve(&sc->aux, codes + 2 * floats)) return no_memory(err);
    v->u = (uint8_t *)sc->aux.p;
    v->s = (float *)(void *)(sc->aux.p + codes);
    v->zero = v->s + rows * v->groups;
    return NB_OK;
}

static nb_status check_scales(const nb_matrix *m, const int_rows *v, int64_t r0, int64_t rows, nb_error *err)
{
    for (int64_t i = 0; i < rows * v->groups; i++) {
        bool finite = isfinite(v->s[i]);
        if (finite && isfinite(v->zero[i] * v->s[i])) continue;
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: row %lld, group %lld: the scale %g%s (E_SCALE_NAN)",
                       NB_FMT_STR(m->scale->name), (long long)(r0 + i / v->groups), (long long)(i % v->groups),
                       (double)v->s[i], finite ? " times its zero point is too large" : " is not finite");
    }
    return NB_OK;
}

static int code_bits(const nb_matrix *m) { return nb_format_info((nb_format)m->native.format)->bits; }

/* Codes of one row as a bit stream, element 0 lowest. */
static void pack_row(const uint8_t *u, int64_t k, int bits, uint8_t *out)
{
    if (bits == 8) {
        memcpy(out, u, (size_t)k);
        return;
    }
    uint64_t acc = 0;
    int have = 0;
    for (int64_t i = 0; i < k; i++) {
        acc |= (uint64_t)u[i] << have;
        have += bits;
        for (; have >= 8; have -= 8, acc >>= 8) *out++ = (uint8_t)acc;
    }
    if (have) *out = (uint8_t)acc;
}

static nb_status int_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                           int_fill *fill, nb_scratch *sc, nb_error *err)
{
    int_rows v;
    nb_status st = begin(m, rows, &v, sc, err);
    if (st == NB_OK) st = fill(s, m, r0, rows, &v, sc, err);
    if (st == NB_OK) st = check_scales(m, &v, r0, rows, err);
    if (st != NB_OK) return st;
    int64_t g = m->native.group, n = m->k / g;
    nb_dtype dt = (nb_dtype)m->native.scale_dtype;
    for (int64_t r = 0; r < rows; r++) {
        pack_row(v.u + r * m->k, m->k, code_bits(m), out->codes + (size_t)r * out->code_stride);
        for (int64_t i = 0; i < n; i++) {
            int64_t from = r * v.groups + i * g / v.group;
            nb_put_float(out->scales + (size_t)r * out->scale_stride, dt, i, v.s[from]);
            nb_put_float(out->biases + (size_t)r * out->bias_stride, dt, i, -v.zero[from] * v.s[from]);
        }
    }
    return NB_OK;
}

static nb_status int_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                            int_fill *fill, nb_scratch *sc, nb_error *err)
{
    int_rows v;
    nb_status st = begin(m, rows, &v, sc, err);
    if (st == NB_OK) st = fill(s, m, r0, rows, &v, sc, err);
    if (st == NB_OK) st = check_scales(m, &v, r0, rows, err);
    if (st != NB_OK) return st;
    const int32_t *map = m->column_group;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < m->k; c++) {
            int64_t g = r * v.groups + (map ? map[c] : c / v.group);
            out[r * m->k + c] = ((float)v.u[r * m->k + c] - v.zero[g]) * v.s[g];
        }
    return NB_OK;
}

/* A field of `bits` bits at bit position `at` of little-endian words. */
static uint32_t field(const uint8_t *p, uint64_t at, int bits)
{
    uint32_t v = 0;
    for (int got = 0; got < bits;) {
        int shift = (int)(at & 7), take = 8 - shift < bits - got ? 8 - shift : bits - got;
        v |= (uint32_t)((p[at >> 3] >> shift) & ((1 << take) - 1)) << got;
        got += take;
        at += (uint64_t)take;
    }
    return v;
}

/* Scales of rows: [.., o, groups] of any float dtype. */
static nb_status scale_rows(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, int_rows *v,
                            nb_scratch *sc, nb_error *err)
{
    size_t elem = (size_t)nb_dtype_bits(m->scale->dtype) / 8, row = (size_t)v->groups * elem;
    sc->aux3.n = 0;
    if (!nb_buf_reserve(&sc->aux3, (size_t)rows * row)) return no_memory(err);
    if (m->scale->len == elem) { /* one scale for the tensor */
        nb_status st = nb_source_read(s, m->scale, 0, elem, sc->aux3.p, err);
        float one = 0;
        if (st != NB_OK) return st;
        nb_floats_decode(m->scale->dtype, sc->aux3.p, 1, &one);
        for (int64_t i = 0; i < rows * v->groups; i++) v->s[i] = one;
        return NB_OK;
    }
    nb_status st = nb_matrix_rows(s, m, m->scale, row, r0, rows, (uint8_t *)sc->aux3.p, row, sc, err);
    if (st == NB_OK) nb_floats_decode(m->scale->dtype, sc->aux3.p, (size_t)(rows * v->groups), v->s);
    return st;
}

/* The format that holds it: bits and group of the source, groups expanded to at most 128. */
static void native_int(nb_weight_src *w, int64_t bits, int64_t group, bool symmetric)
{
    static const nb_format by_bits[9] = {
        [2] = NB_INT2, [3] = NB_INT3, [4] = NB_INT4, [5] = NB_INT5, [6] = NB_INT6, [8] = NB_INT8};
    nb_matrix *m = &w->m;
    int64_t g = 0;
    for (int64_t try = 128; try >= 32 && !g; try /= 2)
        if (group % try == 0 && m->k % try == 0) g = try;
    m->has_native = g && bits >= 2 && bits <= 8 && bits != 7;
    m->bits = (uint8_t)bits;
    if (group >= m->k || group > 65535) m->flags |= NB_MX_CHANNEL;
    m->src_group = group <= 65535 ? (uint16_t)group : 0;
    if (!m->has_native) {
        m->native = nb_qtype_default(NB_BF16);
        return;
    }
    nb_dtype dt = m->scale->dtype;
    if (!symmetric || (dt != NB_DT_BF16 && dt != NB_DT_F16)) dt = NB_DT_F32;
    m->native = (nb_qtype){.format = (uint8_t)by_bits[bits], .scale_dtype = (uint8_t)dt, .group = (uint16_t)g};
    if (symmetric) m->flags |= NB_MX_SYMMETRIC;
}

/* F16 scales whose biases would be infinite in F16 are stored as F32, with their biases. */
static nb_status widen(nb_job *j, nb_matrix *m, nb_error *err)
{
    enum { STEP = 1 << 16 };
    if (!m->has_native || m->native.scale_dtype != NB_DT_F16) return NB_OK;
    float zero = (float)(1 << (m->bits - 1));
    nb_buf b = {0};
    nb_status st = nb_buf_reserve(&b, STEP * 6) ? NB_OK : no_memory(err);
    for (uint64_t at = 0, all = m->scale->len / 2; at < all && st == NB_OK; at += STEP) {
        size_t n = all - at < STEP ? (size_t)(all - at) : STEP;
        float *v = (float *)(void *)b.p;
        st = nb_source_read(&j->src, m->scale, at * 2, n * 2, b.p + STEP * 4, err);
        if (st != NB_OK) break;
        nb_floats_decode(NB_DT_F16, b.p + STEP * 4, n, v);
        for (size_t i = 0; i < n; i++)
            if (fabsf(v[i]) * zero > 65504.0f) m->native.scale_dtype = NB_DT_F32;
        if (m->native.scale_dtype == NB_DT_F32) break;
    }
    nb_buf_free(&b);
    return st;
}

static nb_status add_int(nb_job *j, nb_weight_src *w, nb_error *err)
{
    nb_status st = widen(j, &w->m, err);
    return st == NB_OK ? nb_producer_add(j, w, err) : st;
}

static bool is_float(nb_dtype t) { return t == NB_DT_BF16 || t == NB_DT_F16 || t == NB_DT_F32; }

/* A group index per column. Plain grouping is dropped; any other order cannot be kept without moving columns. */
static nb_status group_index(nb_job *j, nb_weight_src *w, nb_src_tensor *gidx, int64_t group, int64_t groups,
                             nb_error *err)
{
    nb_matrix *m = &w->m;
    if (!gidx) return NB_OK;
    nb_claim(gidx);
    uint64_t bytes = (uint64_t)m->k * 4;
    if ((gidx->dtype != NB_DT_I32 && gidx->dtype != NB_DT_U32) || gidx->len != bytes)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld 32-bit indices were expected (E_QUANT_SHAPE)",
                       NB_FMT_STR(gidx->name), (long long)m->k);
    int32_t *map = NB_NEW_N(j->arena, int32_t, (size_t)m->k);
    if (!map) return no_memory(err);
    nb_status st = nb_source_read(&j->src, gidx, 0, (size_t)bytes, map, err);
    if (st != NB_OK) return st;
    bool plain = true, unset = true;
    for (int64_t c = 0; c < m->k; c++) {
        plain = plain && map[c] == c / group;
        unset = unset && map[c] == -1;
    }
    if (plain || unset) return NB_OK;
    for (int64_t c = 0; c < m->k; c++)
        if (map[c] < 0 || map[c] >= groups)
            return nb_fail(
                err, NB_E_INVALID,
                "tensor %.*s: index %d at column %lld is out of range, there are %lld groups (E_QUANT_SHAPE)",
                NB_FMT_STR(gidx->name), map[c], (long long)c, (long long)groups);
    if (!j->o->allow_requantize)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: its groups are not runs of columns (activation order); use --allow-requantize to "
                       "decode it (E_REQUANT)",
                       NB_FMT_STR(w->src_name));
    m->column_group = map;
    m->has_native = false;
    return NB_OK;
}

/* ---- compressed-tensors pack-quantized ---- */

static nb_status ct_fill(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, int_rows *v, nb_scratch *sc,
                         nb_error *err)
{
    size_t row = (size_t)m->w->dim[m->w->rank - 1] * 4;
    int per = 32 / m->bits;
    float half = (float)(1 << (m->bits - 1));
    sc->aux2.n = 0;
    if (!nb_buf_reserve(&sc->aux2, (size_t)rows * row)) return no_memory(err);
    const uint8_t *raw = (const uint8_t *)sc->aux2.p;
    nb_status st = nb_matrix_rows(s, m, m->w, row, r0, rows, (uint8_t *)sc->aux2.p, row, sc, err);
    for (int64_t r = 0; r < rows && st == NB_OK; r++)
        for (int64_t c = 0; c < m->k; c++) {
            uint64_t at = m->flags & NB_MX_SPARSE_PACK ? (uint64_t)(c / per) * 32 + (uint64_t)(c % per) * m->bits
                                                       : (uint64_t)c * m->bits;
            v->u[r * m->k + c] = (uint8_t)field(raw + (size_t)r * row, at, m->bits);
        }
    if (st == NB_OK) st = scale_rows(s, m, r0, rows, v, sc, err);
    for (int64_t i = 0; i < rows * v->groups; i++) v->zero[i] = half;
    if (st != NB_OK || !m->zero) return st;
    /* zero points [ceil(o*b/32), groups], packed along the rows; stored with the same offset, so the unsigned field is
     * the code that means zero */
    int64_t zrows = m->zero->dim[m->zero->rank - 2], base = m->expert * zrows;
    for (int64_t r = 0; r < rows && st == NB_OK; r++) {
        int64_t at = m->row0 + (r0 + r) * m->step, bit = at * m->bits, word = bit / 32;
        for (int64_t g = 0; g < v->groups && st == NB_OK; g++) {
            uint8_t two[8] = {0};
            st = nb_source_read(s, m->zero, (uint64_t)((base + word) * v->groups + g) * 4, 4, two, err);
            if (st == NB_OK && bit % 32 + m->bits > 32)
                st = nb_source_read(s, m->zero, (uint64_t)((base + word + 1) * v->groups + g) * 4, 4, two + 4, err);
            v->zero[r * v->groups + g] = (float)field(two, (uint64_t)(bit % 32), m->bits);
        }
    }
    return st;
}

static nb_status ct_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                          nb_scratch *sc, nb_error *err)
{
    return int_parts(s, m, r0, rows, out, ct_fill, sc, err);
}
static nb_status ct_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out, nb_scratch *sc,
                           nb_error *err)
{
    return int_floats(s, m, r0, rows, out, ct_fill, sc, err);
}
static const nb_reader reader_ct_int = {"ct-int", ct_parts, ct_floats};

/* weight_shape: the logical [o, i]. */
static nb_status ct_shape(nb_job *j, nb_src_tensor *t, nb_src_tensor *shape, int64_t rows, int64_t *k, nb_error *err)
{
    uint8_t raw[16];
    size_t elem = shape->dtype == NB_DT_I64 || shape->dtype == NB_DT_U64 ? 8 : 4;
    bool ok = (elem == 8 || shape->dtype == NB_DT_I32 || shape->dtype == NB_DT_U32) && shape->len >= 2 * elem;
    if (!ok)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s is not a shape of two integers (E_QUANT_SHAPE)",
                       NB_FMT_STR(shape->name));
    nb_status st = nb_source_read(&j->src, shape, shape->len - 2 * elem, 2 * elem, raw, err);
    if (st != NB_OK) return st;
    int64_t o = elem == 8 ? (int64_t)nb_load_u64(raw) : (int32_t)nb_load_u32(raw);
    *k = elem == 8 ? (int64_t)nb_load_u64(raw + 8) : (int32_t)nb_load_u32(raw + 4);
    if (o != rows || *k < 1 || *k > NB_MAX_COLUMNS)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s says [%lld,%lld], %.*s has %lld rows (E_QUANT_SHAPE)",
                       NB_FMT_STR(shape->name), (long long)o, (long long)*k, NB_FMT_STR(t->name), (long long)rows);
    return NB_OK;
}

/* Whether codes of this width fill the words of a row: densely, or, in old files of odd widths, whole codes to a word.
 */
static bool fills(int64_t cols, int64_t k, int64_t bits, bool *sparse)
{
    bool dense = cols == (k * bits + 31) / 32;
    *sparse = !dense && cols == (k + 32 / bits - 1) / (32 / bits);
    return dense || *sparse;
}

/* The width that the config says if it fills the words, else the only one that does; dense ones go first. 0: none, or
 * more than one. */
static int64_t ct_bits(int64_t said, int64_t cols, int64_t k, bool *sparse)
{
    int64_t bits = 0;
    if (said >= 2 && said <= 8 && fills(cols, k, said, sparse)) return said;
    for (int pass = 0; pass < 2 && !bits; pass++) /* 7 bits in old files look like 8: only the config tells them */
        for (int64_t b = 8; b >= 2; b--) {
            bool s;
            if (b == 7 || !fills(cols, k, b, &s) || s != (pass == 1)) continue;
            if (bits) return 0;
            bits = b;
            *sparse = s;
        }
    return bits;
}

/* What the group says of packed integers, where the tensors say otherwise: the tensors win, with warnings. */
static void ct_contradicted(nb_job *j, const nb_src_tensor *t, const nb_json *group, int64_t bits, int64_t columns,
                            bool zeros)
{
    nb_str type;
    int64_t said;
    bool symmetric;
    if (nb_json_i64(nb_json_get(group, "num_bits"), &said) && said != bits)
        nb_job_warn(j, t->name, "config says %lld bits, the shapes say %lld", (long long)said, (long long)bits);
    if (zeros && nb_json_bool(nb_json_get(group, "symmetric"), &symmetric) && symmetric)
        nb_job_warn(j, t->name, "config says symmetric, and there are zero points: they are used");
    if (nb_json_str(nb_json_get(group, "type"), &type) && !nb_str_is(type, "int"))
        nb_job_warn(j, t->name, "config says type %.*s, the tensors are packed integers", NB_FMT_STR(type));
    nb_group_contradicted(j, t, nb_json_get(group, "group_size"), columns);
}

nb_status nb_match_ct_int(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".weight_scale"),
                  *shape = nb_src_companion(j, base, ".weight_shape"),
                  *zero = nb_src_companion(j, base, ".weight_zero_point");
    int64_t lead, rows, cols, sl, sr, sc, k = 0, bits = 0, said = 0;
    bool sparse = false, symmetric = true;
    if (t->dtype != NB_DT_I32 || !scale || !is_float(scale->dtype) || !nb_view3(t, &lead, &rows, &cols) ||
        !nb_view3(scale, &sl, &sr, &sc))
        return NB_OK;
    if (!shape && !j->o->permissive) return NB_OK; /* then an orphan */
    const nb_json *group = nb_quant_group(j, base);
    nb_json_i64(nb_json_get(group, "num_bits"), &said);
    nb_json_bool(nb_json_get(group, "symmetric"), &symmetric);
    nb_status st = NB_OK;
    if (shape)
        st = ct_shape(j, t, shape, rows, &k, err);
    else
        k = said ? cols * 32 / said : 0;
    if (st != NB_OK) return st;
    if (said == 1 || said == 7)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "compressed-tensors integers of %lld bits (first seen at %.*s) are not supported; import the "
                       "original checkpoint (E_FORMAT_UNSUPPORTED)",
                       (long long)said, NB_FMT_STR(t->name));
    if (sl == lead && sr == rows && k > 0 && k % sc == 0) bits = ct_bits(said, cols, k, &sparse);
    if (!bits)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: packed [%lld,%lld] and scales [%lld,%lld] fit no (bits, group); config says %lld "
                       "bits (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name), (long long)rows, (long long)cols, (long long)sr, (long long)sc,
                       (long long)said);
    nb_weight_src w;
    nb_str name;
    st = nb_producer_name(j, base, true, &name, err);
    if (st != NB_OK) return st;
    if (!symmetric && !zero)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: the config says asymmetric, and there is no weight_zero_point (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name));
    if (zero && ((zero->dtype != NB_DT_I32 && zero->dtype != NB_DT_U32) ||
                 !nb_shape_is(zero, lead, (rows * bits + 31) / 32, sc)))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: zero points of the wrong shape or dtype (E_QUANT_SHAPE)",
                       NB_FMT_STR(zero->name));
    nb_weight_init(&w, t, name);
    w.m.k = k;
    w.m.reader = &reader_ct_int;
    w.m.scale = scale;
    w.m.zero = zero;
    w.from = reader_ct_int.name;
    if (sparse) w.m.flags |= NB_MX_SPARSE_PACK;
    native_int(&w, bits, k / sc, !zero);
    st = group_index(j, &w, nb_src_companion(j, base, ".weight_g_idx"), k / sc, sc, err);
    if (st != NB_OK) return st;
    nb_claim(shape);
    ct_contradicted(j, t, group, bits, k / sc, zero != NULL);
    *hit = true;
    return add_int(j, &w, err);
}

/* ---- INT8 (and 4-bit codes kept in bytes) ---- */

static nb_status int8_fill(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, int_rows *v,
                           nb_scratch *sc, nb_error *err)
{
    nb_status st = nb_matrix_rows(s, m, m->w, (size_t)m->k, r0, rows, v->u, (size_t)m->k, sc, err);
    for (int64_t i = 0; i < rows * m->k; i++) v->u[i] ^= 0x80;
    if (st == NB_OK) st = scale_rows(s, m, r0, rows, v, sc, err);
    for (int64_t i = 0; i < rows * v->groups; i++) v->zero[i] = 128.0f;
    if (st != NB_OK || !m->zero) return st;
    sc->aux3.n = 0;
    if (!nb_buf_reserve(&sc->aux3, (size_t)(rows * v->groups))) return no_memory(err);
    if (m->zero->len == 1) {
        st = nb_source_read(s, m->zero, 0, 1, sc->aux3.p, err);
        for (int64_t i = 0; i < rows * v->groups && st == NB_OK; i++) v->zero[i] += (float)(int8_t)sc->aux3.p[0];
        return st;
    }
    st = nb_matrix_rows(s, m, m->zero, (size_t)v->groups, r0, rows, (uint8_t *)sc->aux3.p, (size_t)v->groups, sc, err);
    for (int64_t i = 0; i < rows * v->groups && st == NB_OK; i++) v->zero[i] += (float)(int8_t)sc->aux3.p[i];
    return st;
}

static nb_status int8_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                            nb_scratch *sc, nb_error *err)
{
    return int_parts(s, m, r0, rows, out, int8_fill, sc, err);
}
static nb_status int8_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                             nb_scratch *sc, nb_error *err)
{
    return int_floats(s, m, r0, rows, out, int8_fill, sc, err);
}
static const nb_reader reader_int8 = {"int8", int8_parts, int8_floats};

nb_status nb_match_int8(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".weight_scale"),
                  *zero = nb_src_companion(j, base, ".weight_zero_point");
    int64_t lead, rows, cols, sl, sr, sc = 1;
    if (t->dtype != NB_DT_I8 || !scale || !is_float(scale->dtype) || !nb_view3(t, &lead, &rows, &cols)) return NB_OK;
    bool one = scale->len == (uint64_t)nb_dtype_bits(scale->dtype) / 8,
         flat = scale->rank == 1 && scale->dim[0] == rows && !lead;
    if (!one && !flat && (!nb_view3(scale, &sl, &sr, &sc) || sl != lead || sr != rows || cols % sc))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: [%lld,%lld] and its scales fit no INT8 (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name), (long long)rows, (long long)cols);
    if (zero && (zero->dtype != NB_DT_I8 || (zero->len != 1 && zero->len != (uint64_t)(rows * sc * (lead ? lead : 1)))))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: zero points of the wrong shape or dtype (E_QUANT_SHAPE)",
                       NB_FMT_STR(zero->name));
    bool symmetric = true;
    nb_json_bool(nb_json_get(nb_quant_group(j, base), "symmetric"), &symmetric);
    if (!symmetric && !zero)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: the config says asymmetric, and there is no weight_zero_point (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name));
    nb_weight_src w;
    nb_str name;
    nb_status st = nb_producer_name(j, base, true, &name, err);
    if (st != NB_OK) return st;
    nb_weight_init(&w, t, name);
    w.m.reader = &reader_int8;
    w.m.scale = scale;
    w.m.zero = zero;
    w.from = reader_int8.name;
    native_int(&w, 8, cols / sc, !zero);
    *hit = true;
    st = nb_producer_pre_scale(j, &w, base, err);
    return st == NB_OK ? add_int(j, &w, err) : st;
}

/* ---- ModelOpt INT4-AWQ: two output rows per byte ---- */

static nb_status paired_fill(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, int_rows *v,
                             nb_scratch *sc, nb_error *err)
{
    sc->aux2.n = 0;
    if (!nb_buf_reserve(&sc->aux2, (size_t)m->k)) return no_memory(err);
    nb_status st = NB_OK;
    for (int64_t r = 0; r < rows && st == NB_OK; r++) {
        int64_t at = m->row0 + (r0 + r) * m->step;
        st = nb_source_read(s, m->w, (uint64_t)((m->expert * m->stored_rows + at) / 2) * (uint64_t)m->k, (size_t)m->k,
                            sc->aux2.p, err);
        for (int64_t c = 0; c < m->k && st == NB_OK; c++) {
            uint8_t b = (uint8_t)sc->aux2.p[c];
            v->u[r * m->k + c] = (uint8_t)((at & 1 ? b >> 4 : b & 15) ^ 8);
        }
    }
    if (st == NB_OK) st = scale_rows(s, m, r0, rows, v, sc, err);
    for (int64_t i = 0; i < rows * v->groups; i++) v->zero[i] = 8.0f;
    return st;
}

static nb_status paired_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                              nb_scratch *sc, nb_error *err)
{
    return int_parts(s, m, r0, rows, out, paired_fill, sc, err);
}
static nb_status paired_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                               nb_scratch *sc, nb_error *err)
{
    return int_floats(s, m, r0, rows, out, paired_fill, sc, err);
}
static const nb_reader reader_paired = {"modelopt-int4", paired_parts, paired_floats};

nb_status nb_match_modelopt_int4(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".weight_scale"),
                  *second = nb_src_companion(j, base, ".weight_scale_2");
    int64_t lead, rows, cols, sl, sr, sc;
    if (t->dtype != NB_DT_U8 || !scale || !is_float(scale->dtype) || !nb_view3(t, &lead, &rows, &cols) ||
        !nb_view3(scale, &sl, &sr, &sc))
        return NB_OK;
    if (sl != lead || sr != rows * 2 || cols % sc) return NB_OK;
    nb_weight_src w;
    nb_str name;
    nb_status st = nb_producer_name(j, base, true, &name, err);
    if (st != NB_OK) return st;
    nb_weight_init(&w, t, name);
    w.m.n = w.m.stored_rows = rows * 2;
    w.m.reader = &reader_paired;
    w.m.scale = scale;
    w.from = reader_paired.name;
    native_int(&w, 4, cols / sc, true);
    *hit = true;
    nb_claim(second); /* of the activations' format; it does not multiply the weight */
    st = nb_producer_pre_scale(j, &w, base, err);
    return st == NB_OK ? add_int(j, &w, err) : st;
}

/* ---- GPTQ and AWQ: stored [in, out] ---- */

static const int awq_nibble[8] = {0, 4, 1, 5, 2, 6, 3, 7}; /* nibble that holds column j of a word */

/* Zero point fields of one group row: natural order along the outputs, or AWQ's. */
static uint32_t zero_field(const nb_matrix *m, const uint8_t *row, int64_t o)
{
    if (m->flags & NB_MX_AWQ) return field(row, (uint64_t)(o / 8) * 32 + 4u * (uint64_t)awq_nibble[o % 8], 4);
    return field(row, (uint64_t)o * m->bits, m->bits);
}

/* v1 files have one taken from every zero point, from whole words where fields fill them: a zero point of 0 has
 * borrowed from its neighbour. */
static void add_ones(const nb_matrix *m, uint8_t *row, size_t bytes)
{
    uint32_t ones = m->bits == 2 ? 0x55555555u : m->bits == 4 ? 0x11111111u : 0x01010101u;
    for (size_t i = 0; i + 4 <= bytes; i += 4) nb_store_u32(row + i, nb_load_u32(row + i) + ones);
}

/* Scales and zero points of outputs [o0, o0+rows): [groups, out]. */
static nb_status gptq_scales(const nb_source *s, const nb_matrix *m, int64_t o0, int64_t rows, int_rows *v,
                             nb_scratch *sc, nb_error *err)
{
    size_t elem = (size_t)nb_dtype_bits(m->scale->dtype) / 8, zrow = (size_t)m->zero->dim[1] * 4;
    uint32_t mask = (1u << m->bits) - 1;
    sc->aux3.n = 0;
    if (!nb_buf_reserve(&sc->aux3, (size_t)rows * 4 + zrow + (size_t)rows * 4)) return no_memory(err);
    uint8_t *raw = (uint8_t *)sc->aux3.p, *z = raw + (size_t)rows * 4;
    float *f = (float *)(void *)(z + NB_ALIGN_UP(zrow, 4));
    nb_status st = NB_OK;
    for (int64_t g = 0; g < v->groups && st == NB_OK; g++) {
        st = nb_source_read(s, m->scale, (uint64_t)(g * m->stored_rows + o0) * elem, (size_t)rows * elem, raw, err);
        if (st == NB_OK) st = nb_source_read(s, m->zero, (uint64_t)g * zrow, zrow, z, err);
        if (st != NB_OK) return st;
        nb_floats_decode(m->scale->dtype, raw, (size_t)rows, f);
        bool v1 = !(m->flags & (NB_MX_AWQ | NB_MX_GPTQ_V2));
        if (v1 && m->bits != 3) add_ones(m, z, zrow);
        for (int64_t r = 0; r < rows; r++) {
            uint32_t q = zero_field(m, z, o0 + r);
            if (v1 && m->bits == 3) q = (q + 1) & mask;
            v->s[r * v->groups + g] = f[r];
            v->zero[r * v->groups + g] = (float)q;
        }
    }
    return st;
}

static nb_status gptq_fill(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, int_rows *v,
                           nb_scratch *sc, nb_error *err)
{
    int64_t o0 = m->row0 + r0, out = m->stored_rows, words = m->k * m->bits / 32;
    size_t run = (size_t)rows * 4;
    sc->aux2.n = 0;
    /* all words of these outputs: [words, rows], then per output its own bit stream */
    if (!nb_buf_reserve(&sc->aux2, (size_t)words * run + (size_t)words * 4)) return no_memory(err);
    uint8_t *raw = (uint8_t *)sc->aux2.p, *line = raw + (size_t)words * run;
    nb_status st = NB_OK;
    for (int64_t w = 0; w < words && st == NB_OK; w++)
        st = nb_source_read(s, m->w, (uint64_t)(w * out + o0) * 4, run, raw + (size_t)w * run, err);
    for (int64_t r = 0; r < rows && st == NB_OK; r++) {
        for (int64_t w = 0; w < words; w++) memcpy(line + w * 4, raw + (size_t)w * run + (size_t)r * 4, 4);
        for (int64_t c = 0; c < m->k; c++) v->u[r * m->k + c] = (uint8_t)field(line, (uint64_t)c * m->bits, m->bits);
    }
    return st == NB_OK ? gptq_scales(s, m, o0, rows, v, sc, err) : st;
}

static nb_status awq_fill(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, int_rows *v, nb_scratch *sc,
                          nb_error *err)
{
    int64_t o0 = m->row0 + r0, first = o0 / 8, last = (o0 + rows + 7) / 8, pitch = m->w->dim[1];
    size_t run = (size_t)(last - first) * 4;
    sc->aux2.n = 0;
    if (!nb_buf_reserve(&sc->aux2, run)) return no_memory(err);
    nb_status st = NB_OK;
    for (int64_t c = 0; c < m->k && st == NB_OK; c++) {
        st = nb_source_read(s, m->w, (uint64_t)(c * pitch + first) * 4, run, sc->aux2.p, err);
        for (int64_t r = 0; r < rows && st == NB_OK; r++) {
            int64_t o = o0 + r - first * 8;
            v->u[r * m->k + c] = (uint8_t)field((const uint8_t *)sc->aux2.p,
                                                (uint64_t)(o / 8) * 32 + 4u * (uint64_t)awq_nibble[o % 8], 4);
        }
    }
    return st == NB_OK ? gptq_scales(s, m, o0, rows, v, sc, err) : st;
}

static nb_status gptq_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                            nb_scratch *sc, nb_error *err)
{
    return int_parts(s, m, r0, rows, out, m->flags & NB_MX_AWQ ? awq_fill : gptq_fill, sc, err);
}
static nb_status gptq_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                             nb_scratch *sc, nb_error *err)
{
    return int_floats(s, m, r0, rows, out, m->flags & NB_MX_AWQ ? awq_fill : gptq_fill, sc, err);
}
static const nb_reader reader_gptq = {"gptq", gptq_parts, gptq_floats};
static const nb_reader reader_awq = {"awq", gptq_parts, gptq_floats};

/* Whether every zero point field has one value; *value is it. */
static nb_status uniform_zeros(nb_job *j, const nb_matrix *m, int64_t groups, bool *uniform, uint32_t *value,
                               nb_error *err)
{
    size_t zrow = (size_t)m->zero->dim[1] * 4;
    nb_buf b = {0};
    nb_status st = nb_buf_reserve(&b, zrow) ? NB_OK : no_memory(err);
    *uniform = true;
    for (int64_t g = 0; g < groups && st == NB_OK; g++) {
        st = nb_source_read(&j->src, m->zero, (uint64_t)g * zrow, zrow, b.p, err);
        for (int64_t o = 0; o < m->stored_rows && st == NB_OK; o++) {
            uint32_t z = zero_field(m, (const uint8_t *)b.p, o);
            if (g == 0 && o == 0) *value = z;
            *uniform = *uniform && z == *value;
        }
    }
    nb_buf_free(&b);
    return st;
}

static bool says_awq(const nb_job *j)
{
    return nb_quant_is(j, "quant_method", "awq") || nb_quant_is(j, "packing_format", "auto_round:auto_awq") ||
           nb_quant_is(j, "quant_method", "auto_round:auto_awq");
}

/* What the config says of one module: its entry of `dynamic` or `extra_config`, else the fields for all. */
typedef struct gptq_says {
    const nb_json *bits, *group, *sym;
    bool off; /* not quantised */
} gptq_says;

static gptq_says read_says(const nb_job *j, nb_str base)
{
    gptq_says s = {0};
    const nb_json *own = nb_quant_override(j, base, &s.off);
    static const char *const keys[3][2] = {{"bits", "w_bit"}, {"group_size", "q_group_size"}, {"sym", "sym"}};
    const nb_json **out[] = {&s.bits, &s.group, &s.sym};
    for (size_t i = 0; i < NB_COUNT(out); i++) {
        *out[i] = nb_json_get(own, keys[i][0]);
        for (int k = 0; k < 2 && !nb_json_present(*out[i]); k++) *out[i] = nb_quant_field(j, keys[i][k]);
    }
    return s;
}

static nb_status gptq_misfit(const nb_src_tensor *t, const nb_src_tensor *scale, const nb_src_tensor *zeros,
                             const gptq_says *says, nb_error *err)
{
    nb_str bits = nb_json_present(says->bits) ? says->bits->text : NB_LIT("no");
    return nb_fail(err, NB_E_INVALID,
                   "tensor %.*s: [%lld,%lld] with scales [%lld,%lld] and zero points [%lld,%lld] is neither GPTQ nor "
                   "AWQ of one width; the config says %.*s bits (E_QUANT_SHAPE)",
                   NB_FMT_STR(t->name), (long long)t->dim[0], (long long)t->dim[1], (long long)scale->dim[0],
                   (long long)scale->dim[1], (long long)zeros->dim[0], (long long)zeros->dim[1],
                   (int)(bits.n > 40 ? 40 : bits.n), bits.p);
}

typedef struct gptq_shape {
    bool awq;
    int64_t bits, k; /* bits 0: no shape or more than one */
} gptq_shape;

static bool gptq_fits(int64_t bits, const nb_src_tensor *t, const nb_src_tensor *scale, const nb_src_tensor *zeros)
{
    int64_t rows = t->dim[0], out = scale->dim[1];
    return t->dim[1] == out && rows * 32 % bits == 0 && zeros->dim[1] == (out * bits + 31) / 32 &&
           rows * 32 / bits % scale->dim[0] == 0;
}

/* Which of the two it is, its bits and its columns, by shapes; the config settles what shapes leave open. Nearly always
 * they leave nothing open: the columns of the zero points are the outputs' bits in words. */
static gptq_shape gptq_or_awq(const nb_job *j, const gptq_says *says, const nb_src_tensor *t,
                              const nb_src_tensor *scale, const nb_src_tensor *zeros)
{
    int64_t said = 0, rows = t->dim[0], bits = 0;
    int n = 0;
    bool awq = t->dim[1] * 8 == scale->dim[1] && zeros->dim[1] * 8 == scale->dim[1] && rows % scale->dim[0] == 0;
    for (int64_t b = 2; b <= 8; b++)
        if (gptq_fits(b, t, scale, zeros)) bits = b, n++;
    if (n > 1 && nb_json_i64(says->bits, &said) && said >= 2 && said <= 8 && gptq_fits(said, t, scale, zeros))
        bits = said, n = 1;
    if (awq && (!n || says_awq(j))) return (gptq_shape){true, 4, rows};
    return n == 1 ? (gptq_shape){false, bits, rows * 32 / bits} : (gptq_shape){0};
}

/* The tensors win over the config, with warnings. */
static void gptq_contradicted(nb_job *j, const nb_src_tensor *t, const gptq_says *says, const nb_matrix *m,
                              int64_t group, bool uniform)
{
    int64_t bits;
    bool sym;
    if (says->off)
        nb_job_warn(j, t->name, "config says not quantised (dynamic), the tensors are %s: the tensors win",
                    m->reader->name);
    if (nb_json_i64(says->bits, &bits) && bits != m->bits)
        nb_job_warn(j, t->name, "config says %lld bits, the shapes say %d", (long long)bits, m->bits);
    if (!(m->flags & NB_MX_AWQ) && nb_json_bool(says->sym, &sym) && sym && !uniform)
        nb_job_warn(j, t->name, "config says symmetric, and the zero points differ: they are used");
    nb_group_contradicted(j, t, says->group, group);
}

nb_status nb_match_gptq(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".scales"), *zero = nb_src_companion(j, base, ".qzeros");
    bool uniform = false;
    uint32_t value = 0;
    if ((t->dtype != NB_DT_I32 && t->dtype != NB_DT_U32) || t->rank != 2 || !scale || !zero || scale->rank != 2 ||
        zero->rank != 2 || !is_float(scale->dtype))
        return NB_OK;
    gptq_says says = read_says(j, base);
    if (t->dim[0] < 1 || t->dim[1] < 1 || scale->dim[0] < 1 || zero->dim[0] != scale->dim[0] ||
        (zero->dtype != NB_DT_I32 && zero->dtype != NB_DT_U32))
        return gptq_misfit(t, scale, zero, &says, err);
    if (nb_quant_is(j, "version", "gemv") || nb_quant_is(j, "version", "gemv_fast"))
        return nb_fail(
            err, NB_E_UNSUPPORTED,
            "AWQ GEMV (first seen at %.*s) is not supported; import the original checkpoint (E_FORMAT_UNSUPPORTED)",
            NB_FMT_STR(t->name));
    gptq_shape shape = gptq_or_awq(j, &says, t, scale, zero);
    bool awq = shape.awq;
    int64_t bits = shape.bits, k = shape.k;
    if (!bits) return gptq_misfit(t, scale, zero, &says, err);
    if (!awq && bits != 2 && bits != 3 && bits != 4 && bits != 8)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "GPTQ with %lld bits (first seen at %.*s) is not supported; import the original checkpoint "
                       "(E_FORMAT_UNSUPPORTED)",
                       (long long)bits, NB_FMT_STR(t->name));
    nb_weight_src w;
    nb_str name;
    nb_status st = nb_producer_name(j, base, true, &name, err);
    if (st != NB_OK) return st;
    nb_weight_init(&w, t, name);
    w.m.n = w.m.stored_rows = scale->dim[1];
    w.m.k = k;
    w.m.bits = (uint8_t)bits;
    w.m.scale = scale;
    w.m.zero = zero;
    w.m.reader = awq ? &reader_awq : &reader_gptq;
    w.m.flags = awq ? NB_MX_AWQ : 0;
    w.from = w.m.reader->name;
    st = uniform_zeros(j, &w.m, scale->dim[0], &uniform, &value, err);
    if (st != NB_OK) return st;
    /* symmetric codes have zero point 2^(b-1): stored as such by v2, less one by v1, whatever the label says */
    uint32_t half = 1u << (bits - 1);
    if (!awq &&
        (nb_quant_is(j, "checkpoint_format", "gptq_v2") ? !(uniform && value == half - 1) : uniform && value == half))
        w.m.flags |= NB_MX_GPTQ_V2;
    bool v1 = !(w.m.flags & (NB_MX_AWQ | NB_MX_GPTQ_V2));
    uint32_t effective = v1 ? (value + 1) & ((1u << bits) - 1) : value;
    native_int(&w, bits, k / scale->dim[0], uniform && (effective & (effective - 1)) == 0);
    gptq_contradicted(j, t, &says, &w.m, k / scale->dim[0], uniform);
    st = group_index(j, &w, nb_src_companion(j, base, ".g_idx"), k / scale->dim[0], scale->dim[0], err);
    if (st != NB_OK) return st;
    *hit = true;
    return add_int(j, &w, err);
}
