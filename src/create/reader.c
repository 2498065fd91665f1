/* create/reader: rows of a matrix out of the source, as float or as parts of its own format. */
#include "create/producer.h"

void nb_scratch_free(nb_scratch *sc)
{
    nb_buf_free(&sc->raw);
    nb_buf_free(&sc->aux);
    nb_buf_free(&sc->aux2);
    nb_buf_free(&sc->aux3);
    nb_buf_free(&sc->heads);
    nb_buf_free(&sc->joined);
}

void nb_put_float(uint8_t *p, nb_dtype dt, int64_t i, float v)
{
    if (dt == NB_DT_F32)
        nb_store_u32(p + i * 4, nb_bits_f32(v));
    else
        nb_store_u16(p + i * 2, dt == NB_DT_F16 ? nb_f16_encode(v) : nb_bf16_encode(v));
}

/* Room for n bytes, content undefined. */
static uint8_t *room(nb_buf *b, uint64_t n)
{
    b->n = 0;
    return n <= SIZE_MAX / 2 && nb_buf_reserve(b, (size_t)n) ? (uint8_t *)b->p : NULL;
}

static nb_status no_memory(const nb_matrix *m, nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory reading rows of %.*s", NB_FMT_STR(m->w->name));
}

static void copy_rows(uint8_t *dst, size_t stride, const uint8_t *src, size_t src_stride, size_t bytes, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++) memcpy(dst + (size_t)r * stride, src + (size_t)r * src_stride, bytes);
}

/* Pair order (2i, 2i+1) back to halves (i, i + hd/2): rows of whole heads are read, then picked. */
static nb_status rows_unpermuted(const nb_source *s, const nb_matrix *m, const nb_src_tensor *t, size_t row_bytes,
                                 uint64_t base, int64_t r0, int64_t rows, uint8_t *dst, size_t stride, nb_scratch *sc,
                                 nb_error *err)
{
    int64_t hd = m->perm, first = r0 / hd * hd, last = (r0 + rows + hd - 1) / hd * hd;
    uint64_t n = (uint64_t)(last - first) * row_bytes;
    uint8_t *raw = room(&sc->raw, n);
    if (!raw) return no_memory(m, err);
    nb_status st = nb_source_read(s, t, base + (uint64_t)first * row_bytes, (size_t)n, raw, err);
    for (int64_t r = 0; r < rows && st == NB_OK; r++) {
        int64_t at = r0 + r, head = at / hd, i = at % hd;
        int64_t from = head * hd + 2 * (i % (hd / 2)) + i / (hd / 2);
        memcpy(dst + (size_t)r * stride, raw + (size_t)(from - first) * row_bytes, row_bytes);
    }
    return st;
}

nb_status nb_matrix_rows(const nb_source *s, const nb_matrix *m, const nb_src_tensor *t, size_t row_bytes, int64_t r0,
                         int64_t rows, uint8_t *dst, size_t stride, nb_scratch *sc, nb_error *err)
{
    uint64_t base = (uint64_t)m->expert * (uint64_t)m->stored_rows * row_bytes;
    if (m->perm) return rows_unpermuted(s, m, t, row_bytes, base, r0, rows, dst, stride, sc, err);
    uint64_t first = base + (uint64_t)(m->row0 + r0 * m->step) * row_bytes;
    if (m->step == 1 && stride == row_bytes) return nb_source_read(s, t, first, (size_t)rows * row_bytes, dst, err);
    uint64_t n = ((uint64_t)(rows - 1) * (uint64_t)m->step + 1) * row_bytes;
    uint8_t *raw = room(&sc->raw, n);
    if (!raw) return no_memory(m, err);
    nb_status st = nb_source_read(s, t, first, (size_t)n, raw, err);
    if (st == NB_OK) copy_rows(dst, stride, raw, row_bytes * (size_t)m->step, row_bytes, rows);
    return st;
}

/* ---- plain floats ---- */

/* A matrix stored [k, n]: for each k one run of columns. */
static nb_status transposed_rows(const nb_source *s, const nb_matrix *m, size_t elem, int64_t r0, int64_t rows,
                                 uint8_t *dst, size_t stride, nb_scratch *sc, nb_error *err)
{
    size_t run = (size_t)((rows - 1) * m->step + 1) * elem, pitch = (size_t)m->stored_rows * elem;
    uint64_t base = (uint64_t)m->expert * (uint64_t)m->k * pitch + (uint64_t)(m->row0 + r0 * m->step) * elem;
    uint8_t *raw = room(&sc->raw, run);
    if (!raw) return no_memory(m, err);
    for (int64_t c = 0; c < m->k; c++) {
        nb_status st = nb_source_read(s, m->w, base + (uint64_t)c * pitch, run, raw, err);
        if (st != NB_OK) return st;
        for (int64_t r = 0; r < rows; r++)
            memcpy(dst + (size_t)r * stride + (size_t)c * elem, raw + (size_t)r * (size_t)m->step * elem, elem);
    }
    return NB_OK;
}

static nb_status float_raw(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, uint8_t *dst,
                           size_t stride, nb_scratch *sc, nb_error *err)
{
    size_t elem = (size_t)nb_dtype_bits(m->w->dtype) / 8;
    if (m->transposed) return transposed_rows(s, m, elem, r0, rows, dst, stride, sc, err);
    return nb_matrix_rows(s, m, m->w, (size_t)m->k * elem, r0, rows, dst, stride, sc, err);
}

static nb_status float_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                              nb_scratch *sc, nb_error *err)
{
    size_t row = (size_t)m->k * ((size_t)nb_dtype_bits(m->w->dtype) / 8);
    uint8_t *raw = room(&sc->aux, (uint64_t)rows * row);
    if (!raw) return no_memory(m, err);
    nb_status st = float_raw(s, m, r0, rows, raw, row, sc, err);
    if (st == NB_OK && !nb_floats_decode(m->w->dtype, raw, (size_t)(rows * m->k), out))
        st = nb_fail(err, NB_E_INVALID, "tensor %.*s has dtype %s, which cannot be imported (E_DTYPE_UNSUPPORTED)",
                     NB_FMT_STR(m->w->name), nb_dtype_name(m->w->dtype));
    return st;
}

static nb_status float_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                             nb_scratch *sc, nb_error *err)
{
    if (m->w->dtype != NB_DT_F64) return float_raw(s, m, r0, rows, out->codes, out->code_stride, sc, err);
    nb_status st = float_floats(s, m, r0, rows, (float *)(void *)out->codes, sc, err);
    const float *v = (const float *)(const void *)out->codes;
    for (int64_t i = 0; i < rows * m->k && st == NB_OK; i++)
        if (!(v[i] - v[i] == 0.0f)) /* infinite or NaN */
            st = nb_fail(err, NB_E_INVALID, "tensor %.*s: row %lld holds a value beyond F32 (E_NONFINITE)",
                         NB_FMT_STR(m->w->name), (long long)(r0 + i / m->k));
    return st;
}

const nb_reader nb_reader_float = {"float", float_parts, float_floats};

/* ---- GGUF blocks ---- */

static nb_status ggml_raw(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, uint8_t **raw,
                          nb_scratch *sc, nb_error *err)
{
    const nb_ggml_row *g = nb_ggml_info(m->w->ggml);
    size_t row = (size_t)(m->k / g->block) * g->bytes;
    *raw = room(&sc->aux, (uint64_t)rows * row);
    if (!*raw) return no_memory(m, err);
    return nb_matrix_rows(s, m, m->w, row, r0, rows, *raw, row, sc, err);
}

static nb_status ggml_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                            nb_scratch *sc, nb_error *err)
{
    uint8_t *raw;
    nb_status st = ggml_raw(s, m, r0, rows, &raw, sc, err);
    if (st == NB_OK) st = nb_ggml_to_parts(m->w->ggml, raw, rows, m->k, m->native, out, &sc->zeroed, err);
    if (st != NB_OK && st != NB_E_CANCELLED)
        nb_error_prefix(err, "tensor %.*s, rows from %lld", NB_FMT_STR(m->w->name), (long long)r0);
    return st;
}

static nb_status decode_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                              nb_scratch *sc, nb_error *err);

static nb_status ggml_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                             nb_scratch *sc, nb_error *err)
{
    uint8_t *raw;
    if (m->w->ggml == NB_GGML_MXFP4) return decode_parts(s, m, r0, rows, out, sc, err); /* blocks below the domain */
    nb_status st = ggml_raw(s, m, r0, rows, &raw, sc, err);
    if (st == NB_OK && !nb_ggml_to_f32(m->w->ggml, raw, rows * m->k, out))
        st = nb_fail(err, NB_E_UNSUPPORTED, "tensor %.*s: GGUF type %s cannot be decoded (E_FORMAT_UNSUPPORTED)",
                     NB_FMT_STR(m->w->name), nb_ggml_info(m->w->ggml)->name);
    for (int64_t i = 0; m->m != 1.0f && i < rows * m->k && st == NB_OK; i++) out[i] *= m->m;
    return st;
}

const nb_reader nb_reader_ggml = {"gguf", ggml_parts, ggml_floats};

nb_status nb_ggml_widen(const nb_job *j, nb_matrix *m, nb_error *err)
{
    size_t c, sb, bb;
    const nb_ggml_row *g = nb_ggml_info(m->w->ggml);
    nb_qtype q = m->native;
    if (nb_format_info((nb_format)q.format)->scale_kind != NB_SCALE_AFFINE || q.scale_dtype == NB_DT_F32 || m->k < 1 ||
        m->k > NB_MAX_COLUMNS || !nb_parts_row_bytes(q, m->k, &c, &sb, &bb))
        return NB_OK; /* what cannot be stored, the plan refuses */
    nb_matrix all = {.reader = m->reader, .k = m->k, .native = q, .w = m->w, .step = 1, .m = 1};
    all.n = all.stored_rows = (int64_t)(m->w->len / ((uint64_t)(m->k / g->block) * g->bytes));
    int64_t step = (1 << 20) / m->k + 1;
    nb_scratch sc = {0};
    uint8_t *p = room(&sc.aux2, (uint64_t)step * (c + sb + bb));
    nb_parts parts = {.codes = p, .code_stride = c, .scale_stride = sb, .bias_stride = bb};
    nb_status st = p ? NB_OK : no_memory(m, err);
    if (p) parts.scales = p + (size_t)step * c;
    if (p) parts.biases = p + (size_t)step * (c + sb);
    for (int64_t r = 0; r < all.n && st == NB_OK; r += step) {
        st = ggml_parts(&j->src, &all, r, all.n - r < step ? all.n - r : step, &parts, &sc, err);
        if (nb_job_cancelled(j)) st = nb_fail(err, NB_E_CANCELLED, "cancelled while reading scales");
    }
    nb_scratch_free(&sc);
    if (st == NB_E_UNSUPPORTED) m->native.scale_dtype = NB_DT_F32;
    return st == NB_E_UNSUPPORTED || st == NB_E_INVALID ? NB_OK : st; /* the write says what is not finite */
}

/* ---- any matrix ---- */

nb_status nb_matrix_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                          nb_scratch *sc, nb_error *err)
{
    return m->reader->parts(s, m, r0, rows, out, sc, err);
}

/* The scales that stand apart: per row, or per 128 x 128 block. */
static void apply_apart(const nb_matrix *m, int64_t r0, int64_t rows, float *out)
{
    int64_t blocks = (m->k + 127) / 128;
    for (int64_t r = 0; r < rows; r++) {
        float *row = out + r * m->k;
        for (int64_t c = 0; m->row_scale && c < m->k; c++) row[c] *= m->row_scale[r0 + r];
        for (int64_t c = 0; m->block_scale && c < m->k; c++)
            row[c] *= m->block_scale[(r0 + r) / 128 * blocks + c / 128];
    }
}

static nb_status decode_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out,
                              nb_scratch *sc, nb_error *err)
{
    size_t c, sb, bb;
    if (!nb_parts_row_bytes(m->native, m->k, &c, &sb, &bb))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld columns do not fit its format", NB_FMT_STR(m->w->name),
                       (long long)m->k);
    /* aux belongs to the readers */
    uint8_t *codes = room(&sc->aux2, (uint64_t)rows * (c + sb + bb));
    if (!codes) return no_memory(m, err);
    nb_parts p = {.codes = codes, .code_stride = c, .scale_stride = sb, .bias_stride = bb};
    if (sb) p.scales = codes + (size_t)rows * c;
    if (bb) p.biases = codes + (size_t)rows * (c + sb);
    nb_status st = nb_matrix_parts(s, m, r0, rows, &p, sc, err);
    if (st != NB_OK) return st;
    nb_dequantize_rows(m->native, &p, rows, m->k, m->m, out);
    if (m->row_scale || m->block_scale) apply_apart(m, r0, rows, out);
    return NB_OK;
}

nb_status nb_matrix_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out, nb_scratch *sc,
                           nb_error *err)
{
    nb_status st = m->reader->floats ? m->reader->floats(s, m, r0, rows, out, sc, err)
                                     : decode_parts(s, m, r0, rows, out, sc, err);
    /* y = W (x * p): the columns of W take the factors */
    for (int64_t i = 0; st == NB_OK && m->pre_scale && i < rows * m->k; i++) out[i] *= m->pre_scale[i % m->k];
    return st;
}

/* Whether every FP4 code of a matrix has magnitude zero: an expert that calibration never saw. */
static nb_status all_zero(const nb_source *s, const nb_matrix *m, bool *zero, nb_error *err)
{
    nb_scratch sc = {0};
    nb_buf row = {0};
    size_t bytes = (size_t)m->k / 2;
    nb_status st = nb_buf_reserve(&row, bytes) ? NB_OK : no_memory(m, err);
    *zero = !m->transposed;
    for (int64_t r = 0; r < m->n && st == NB_OK && *zero; r++) {
        st = nb_matrix_rows(s, m, m->w, bytes, r, 1, (uint8_t *)row.p, bytes, &sc, err);
        for (size_t i = 0; i < bytes && st == NB_OK; i++) *zero = *zero && !(row.p[i] & 0x77);
    }
    nb_buf_free(&row);
    nb_scratch_free(&sc);
    return st;
}

/* One F32 of a multiplier tensor: its only element, or the expert's. */
static nb_status read_multiplier(nb_job *j, nb_matrix *m, int64_t expert, nb_error *err)
{
    const nb_src_tensor *t = m->global;
    size_t elem = (size_t)nb_dtype_bits(t->dtype) / 8;
    uint8_t raw[8];
    if (!elem || elem > 8 || t->len < elem)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: dtype %s cannot be a multiplier", NB_FMT_STR(t->name),
                       nb_dtype_name(t->dtype));
    uint64_t at = t->len / elem > 1 ? (uint64_t)expert : 0;
    nb_status st = nb_source_read(&j->src, t, at * elem, elem, raw, err);
    if (st != NB_OK) return st;
    float g = 0;
    if (!nb_floats_decode(t->dtype, raw, 1, &g))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: dtype %s cannot be a multiplier", NB_FMT_STR(t->name),
                       nb_dtype_name(t->dtype));
    if (g == 0 && (m->flags & NB_MX_ZERO)) { /* an exporter's way to say that the matrix is zero */
        m->m = 1.0f;
        m->zero = t;
        return NB_OK;
    }
    m->m = m->flags & NB_MX_INVERT ? 1.0f / g : m->flags & NB_MX_AMAX ? g / 2688.0f : g;
    bool ok = g > 0 && g - g == 0.0f && m->m > 0 && m->m - m->m == 0.0f;
    if (ok) return NB_OK;
    bool zero = false;
    st = j->o->permissive ? all_zero(&j->src, m, &zero, err) : NB_OK;
    if (st == NB_OK && !zero)
        st = nb_fail(err, NB_E_INVALID, "tensor %.*s: global scale %lld is %g (E_GLOBAL_INVALID)", NB_FMT_STR(t->name),
                     (long long)at, (double)g);
    if (st == NB_OK) nb_job_warn(j, t->name, "global scale %g of a matrix of zeros: taken as 1", (double)g);
    m->m = 1.0f;
    return st;
}

nb_status nb_matrix_of_expert(nb_job *j, nb_matrix *m, int64_t expert, nb_error *err)
{
    nb_status st = m->global ? read_multiplier(j, m, expert, err) : NB_OK;
    return st == NB_OK && m->fp8 ? nb_fp8_of_expert(j, m, expert, err) : st;
}
