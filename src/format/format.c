/* The format table: one row per weight format, with everything that quantising and decoding need. Adding a format is
 * adding an enum value, a row here and, where no row function below fits, its quantise and decode functions. */
#include "format/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

/* What the functions of a row get besides the data. */
typedef struct job {
    const nb_kernels *kern;
    nb_qtype q;
    int64_t k;
    float m;   /* as nb_quantize_rows */
    float enc; /* NVFP4: 2688 / A */
    bool search;
} job;

typedef bool quantize_row(const job *j, const float *w, nb_row out); /* false: a value does not fit the format */
typedef void decode_row(const job *j, nb_row_in in, float *out);
/* One code as a number, for the definition in double precision. */
typedef double code_value(uint32_t code);

typedef struct format_row {
    nb_format_row info;
    nb_dtype scale_dtype; /* default */
    quantize_row *quantize;
    decode_row *decode;
    code_value *value;
} format_row;

/* ---- row functions ---- */

static bool q_f32(const job *j, const float *w, nb_row out)
{
    memcpy(out.codes, w, (size_t)j->k * 4);
    return true;
}
static bool q_f16(const job *j, const float *w, nb_row out) { return j->kern->f16(w, j->k, out.codes); }
static bool q_bf16(const job *j, const float *w, nb_row out) { return j->kern->bf16(w, j->k, out.codes); }
static bool q_nvfp4(const job *j, const float *w, nb_row out)
{
    (j->search ? j->kern->nvfp4_search : j->kern->nvfp4)(w, j->k, j->enc, out);
    return true;
}
static bool q_mxfp4(const job *j, const float *w, nb_row out)
{
    return (j->search ? j->kern->mxfp4_search : j->kern->mxfp4)(w, j->k, out);
}
static bool q_mxfp8(const job *j, const float *w, nb_row out) { return j->kern->mxfp8(w, j->k, out); }
static bool q_affine(const job *j, const float *w, nb_row out) { return j->kern->affine(w, j->k, j->q, out); }
static bool q_fp8_tensor(const job *j, const float *w, nb_row out)
{
    j->kern->e4m3(w, j->k, j->m > 0 ? j->m : 1.0f, out.codes); /* an all-zero tensor has no scale of its own */
    return true;
}
static bool q_fp8_channel(const job *j, const float *w, nb_row out)
{
    float a = nb_abs_max(w, (size_t)j->k), s = a > 0 ? a / 448.0f : 1.0f;
    if (s == 0) s = 1.0f;
    if (out.scales) nb_store_u32(out.scales, nb_bits_f32(s));
    j->kern->e4m3(w, j->k, s, out.codes);
    return true;
}

static void d_f32(const job *j, nb_row_in in, float *out) { memcpy(out, in.codes, (size_t)j->k * 4); }
static void d_f16(const job *j, nb_row_in in, float *out) { j->kern->from_f16(in.codes, (size_t)j->k, out); }
static void d_bf16(const job *j, nb_row_in in, float *out) { j->kern->from_bf16(in.codes, (size_t)j->k, out); }
static void d_e2m1(const job *j, nb_row_in in, float *out) { j->kern->from_e2m1(in, j->k, j->q, j->m, out); }
static void d_mxfp8(const job *j, nb_row_in in, float *out) { j->kern->from_mxfp8(in, j->k, out); }
static void d_affine(const job *j, nb_row_in in, float *out) { j->kern->from_affine(in, j->k, j->q, out); }
static void d_fp8_tensor(const job *j, nb_row_in in, float *out)
{
    j->kern->from_e4m3(in.codes, (size_t)j->k, j->m, out);
}
static void d_fp8_channel(const job *j, nb_row_in in, float *out)
{
    float s = in.scales ? nb_f32_bits(nb_load_u32(in.scales)) : 1.0f;
    j->kern->from_e4m3(in.codes, (size_t)j->k, s, out);
}
static void d_fp8_block(const job *j, nb_row_in in, float *out) /* in.scales: the scale row of this block of 128 rows */
{
    for (int64_t c = 0; c < j->k; c += 128) {
        float s = in.scales ? nb_f32_bits(nb_load_u32(in.scales + c / 128 * 4)) : 1.0f;
        j->kern->from_e4m3(in.codes + c, (size_t)(j->k - c < 128 ? j->k - c : 128), s, out + c);
    }
}

static double v_f32(uint32_t c) { return (double)nb_f32_bits(c); }
static double v_f16(uint32_t c) { return (double)nb_f16_decode((uint16_t)c); }
static double v_bf16(uint32_t c) { return (double)nb_bf16_decode((uint16_t)c); }
static double v_e2m1(uint32_t c) { return (double)nb_e2m1_decode((uint8_t)c); }
static double v_e4m3(uint32_t c) { return (double)nb_e4m3_decode((uint8_t)c); }
static double v_int(uint32_t c) { return (double)c; }

/* ---- the table ---- */

#define AFFINE(b)                                                                                                      \
    {                                                                                                                  \
        {"int" #b, (b), NB_SCALE_AFFINE, 64, 0}, NB_DT_BF16, q_affine, d_affine, v_int                                 \
    }
static const format_row formats[NB_FORMAT_COUNT] = {
    [NB_F32] = {{"f32", 32, NB_SCALE_NONE, 32, 1}, NB_DT_NONE, q_f32, d_f32, v_f32},
    [NB_F16] = {{"f16", 16, NB_SCALE_NONE, 32, 1}, NB_DT_NONE, q_f16, d_f16, v_f16},
    [NB_BF16] = {{"bf16", 16, NB_SCALE_NONE, 32, 1}, NB_DT_NONE, q_bf16, d_bf16, v_bf16},
    [NB_NVFP4] = {{"nvfp4", 4, NB_SCALE_E4M3, 16, 0}, NB_DT_F8_E4M3, q_nvfp4, d_e2m1, v_e2m1},
    [NB_MXFP4] = {{"mxfp4", 4, NB_SCALE_E8M0, 32, 0}, NB_DT_F8_E8M0, q_mxfp4, d_e2m1, v_e2m1},
    [NB_MXFP8] = {{"mxfp8", 8, NB_SCALE_E8M0, 32, 0}, NB_DT_F8_E8M0, q_mxfp8, d_mxfp8, v_e4m3},
    [NB_INT2] = AFFINE(2),
    [NB_INT3] = AFFINE(3),
    [NB_INT4] = AFFINE(4),
    [NB_INT5] = AFFINE(5),
    [NB_INT6] = AFFINE(6),
    [NB_INT8] = AFFINE(8),
    [NB_FP8_TENSOR] = {{"fp8_tensor", 8, NB_SCALE_APART, 32, 0}, NB_DT_NONE, q_fp8_tensor, d_fp8_tensor, v_e4m3},
    [NB_FP8_CHANNEL] = {{"fp8_channel", 8, NB_SCALE_APART, 32, 0}, NB_DT_NONE, q_fp8_channel, d_fp8_channel, v_e4m3},
    /* quantised 128 rows at a time: quantize_blocks */
    [NB_FP8_BLOCK] = {{"fp8_block", 8, NB_SCALE_APART, 32, 0}, NB_DT_NONE, NULL, d_fp8_block, v_e4m3},
};

const nb_format_row *nb_format_info(nb_format f) { return (unsigned)f < NB_FORMAT_COUNT ? &formats[f].info : NULL; }

nb_qtype nb_qtype_default(nb_format f)
{
    nb_qtype q = {(uint8_t)f, (uint8_t)formats[f].scale_dtype, formats[f].info.group};
    return q;
}

bool nb_qtype_valid(nb_qtype q)
{
    if (q.format >= NB_FORMAT_COUNT) return false;
    const format_row *r = &formats[q.format];
    if (r->info.scale_kind != NB_SCALE_AFFINE) return q.group == r->info.group && q.scale_dtype == r->scale_dtype;
    return (q.group == 32 || q.group == 64 || q.group == 128) &&
           (q.scale_dtype == NB_DT_BF16 || q.scale_dtype == NB_DT_F16 || q.scale_dtype == NB_DT_F32);
}

/* ---- names ---- */

static nb_status unknown_type(const char *text, nb_error *err)
{
    nb_buf b = {0};
    for (int f = 0; f < NB_FORMAT_COUNT; f++) nb_buf_printf(&b, "%s%s", f ? ", " : "", formats[f].info.name);
    const char *known = nb_buf_cstr(&b);
    nb_fail(err, NB_E_USAGE, "unknown quantisation '%s'; known: %s; intB takes :g32, :g64 or :g128 (E_QUANT_TYPE)",
            text, known ? known : "");
    nb_buf_free(&b);
    return NB_E_USAGE;
}

nb_status nb_qtype_parse(nb_qtype *out, const char *text, nb_error *err)
{
    const char *colon = strchr(text, ':');
    nb_str name = {text, colon ? (size_t)(colon - text) : strlen(text)};
    if (name.n == 3 && (strncasecmp(text, "fp4", 3) == 0 || strncasecmp(text, "fp8", 3) == 0))
        return nb_fail(err, NB_E_USAGE, "quantisation '%s' is ambiguous; use %s", text,
                       text[2] == '4' ? "nvfp4, mxfp4 or int4" : "mxfp8, int8, fp8_tensor, fp8_channel or fp8_block");
    for (int f = 0; f < NB_FORMAT_COUNT; f++) {
        const nb_format_row *r = &formats[f].info;
        bool alias = (f == NB_INT4 && name.n == 2 && strncasecmp(text, "q4", 2) == 0) ||
                     (f == NB_INT8 && name.n == 2 && strncasecmp(text, "q8", 2) == 0);
        if (!alias && (strlen(r->name) != name.n || strncasecmp(r->name, text, name.n) != 0)) continue;
        nb_qtype q = nb_qtype_default((nb_format)f);
        if (colon) {
            const char *g = colon + 1;
            q.group = strcasecmp(g, "g16") == 0    ? 16
                      : strcasecmp(g, "g32") == 0  ? 32
                      : strcasecmp(g, "g64") == 0  ? 64
                      : strcasecmp(g, "g128") == 0 ? 128
                                                   : 0;
        }
        if (!nb_qtype_valid(q))
            return nb_fail(err, NB_E_USAGE, "quantisation '%s': %s takes %s", text, r->name,
                           r->scale_kind == NB_SCALE_AFFINE ? "a group of g32, g64 or g128"
                                                            : "no other group than its own");
        *out = q;
        return NB_OK;
    }
    return unknown_type(text, err);
}

void nb_qtype_name(nb_qtype q, char out[32])
{
    const nb_format_row *r = nb_format_info((nb_format)q.format);
    const char *name = r ? r->name : "?";
    size_t n = strlen(name);
    memcpy(out, name, n + 1);
    if (!r || r->scale_kind != NB_SCALE_AFFINE) return;
    char digits[6];
    int d = 0;
    for (unsigned g = q.group; d == 0 || g; g /= 10) digits[d++] = (char)('0' + g % 10);
    out[n++] = ':', out[n++] = 'g';
    while (d) out[n++] = digits[--d];
    out[n] = 0;
}

/* ---- sizes of the standard layout ---- */

bool nb_parts_row_bytes(nb_qtype q, int64_t k, size_t *codes, size_t *scales, size_t *biases)
{
    if (!nb_qtype_valid(q) || k < 0) return false;
    const nb_format_row *r = &formats[q.format].info;
    bool grouped = r->scale_kind != NB_SCALE_NONE && r->scale_kind != NB_SCALE_APART;
    uint64_t bits, sc = 0;
    if (grouped && k % q.group) return false;
    if (!nb_mul_u64((uint64_t)k, r->bits, &bits)) return false;
    if (grouped && !nb_mul_u64((uint64_t)k / q.group, nb_scale_size(q.scale_dtype), &sc)) return false;
    *codes = bits / 8;
    *scales = sc;
    *biases = r->scale_kind == NB_SCALE_AFFINE ? sc : 0;
    return true;
}

/* ---- quantise ---- */

float nb_nvfp4_multiplier(float amax)
{
    float m = amax / 2688.0f;
    return m < 0x1p-126f ? 1.0f : m; /* such a tensor is zero: its multiplier would be flushed by every kernel */
}

/* The A of a multiplier m = A/2688. Several A may round to one m; the one with the most trailing zero bits is taken,
 * which is the right one whenever the weights were BF16 or F16. */
static float nvfp4_amax(float m)
{
    uint32_t near = nb_bits_f32(m * 2688.0f), best = near;
    int best_zeros = -1;
    for (uint32_t u = near - 2; u != near + 3; u++) {
        int zeros = __builtin_ctz(u | 0x800000u);
        if (nb_f32_bits(u) / 2688.0f == m && zeros > best_zeros) best = u, best_zeros = zeros;
    }
    return nb_f32_bits(best);
}

float nb_abs_max(const float *w, size_t n)
{
    uint32_t u = nb_kernels_best()->abs_bits(w, n);
    return nb_f32_bits(u > 0x7f800000u ? 0x7fc00000u : u);
}

static nb_status check_finite(const nb_kernels *kern, const float *w, int64_t row, int64_t k, nb_error *err)
{
    if (kern->abs_bits(w, (size_t)k) < 0x7f800000u) return NB_OK;
    int64_t c = 0;
    while (isfinite(w[c])) c++;
    return nb_fail(err, NB_E_INVALID, "row %lld, column %lld: the value is %s", (long long)row, (long long)c,
                   isnan(w[c]) ? "NaN" : "infinite");
}

static nb_row row_at(const nb_parts *p, int64_t r)
{
    size_t i = (size_t)r;
    nb_row out = {p->codes + i * p->code_stride, p->scales ? p->scales + i * p->scale_stride : NULL,
                  p->biases ? p->biases + i * p->bias_stride : NULL};
    return out;
}

/* FP8 with 128x128 blocks: the first row starts a block; scale row b of the span is at scales + b * scale_stride. */
static void quantize_blocks(const job *j, const float *w, int64_t rows, const nb_parts *out)
{
    for (int64_t r0 = 0; r0 < rows; r0 += 128) {
        int64_t r1 = r0 + 128 < rows ? r0 + 128 : rows;
        for (int64_t c = 0; c < j->k; c += 128) {
            int64_t n = j->k - c < 128 ? j->k - c : 128;
            float a = 0;
            for (int64_t r = r0; r < r1; r++) {
                float x = nb_abs_max(w + r * j->k + c, (size_t)n);
                a = x > a ? x : a;
            }
            float s = a / 448.0f > 0 ? a / 448.0f : 1.0f;
            if (out->scales)
                nb_store_u32(out->scales + (size_t)(r0 / 128) * out->scale_stride + c / 128 * 4, nb_bits_f32(s));
            for (int64_t r = r0; r < r1; r++) j->kern->e4m3(w + r * j->k + c, n, s, row_at(out, r).codes + c);
        }
    }
}

static nb_status quantize(const job *j, const float *w, int64_t rows, const nb_parts *out, nb_error *err)
{
    size_t a, b, c;
    if (j->k <= 0 || rows < 0 || !nb_parts_row_bytes(j->q, j->k, &a, &b, &c))
        return nb_fail(err, NB_E_INVALID, "a row of %lld values does not divide into groups of %d", (long long)j->k,
                       j->q.group);
    const format_row *f = &formats[j->q.format];
    for (int64_t r = 0; r < rows; r++) {
        nb_status st = check_finite(j->kern, w + r * j->k, r, j->k, err);
        if (st != NB_OK) return st;
    }
    if (j->q.format == NB_FP8_BLOCK) {
        quantize_blocks(j, w, rows, out);
        return NB_OK;
    }
    for (int64_t r = 0; r < rows; r++)
        if (!f->quantize(j, w + r * j->k, row_at(out, r)))
            return nb_fail(err, NB_E_INVALID, "row %lld: a value of magnitude up to %g does not fit %s", (long long)r,
                           (double)nb_abs_max(w + r * j->k, (size_t)j->k), f->info.name);
    return NB_OK;
}

static float nvfp4_enc(float amax) { return amax / 2688.0f < 0x1p-126f ? 0.0f : 2688.0f / amax; }

nb_status nb_quantize_rows(nb_qtype q, const float *w, int64_t rows, int64_t k, float m, const nb_parts *out,
                           nb_error *err)
{
    job j = {.kern = nb_kernels_best(), .q = q, .k = k, .m = m};
    if (q.format == NB_NVFP4) j.enc = nvfp4_enc(nvfp4_amax(m));
    return quantize(&j, w, rows, out, err);
}

nb_status nb_quantize_nvfp4(const float *w, int64_t rows, int64_t k, float amax, const nb_parts *out, nb_error *err)
{
    job j = {.kern = nb_kernels_best(),
             .q = nb_qtype_default(NB_NVFP4),
             .k = k,
             .m = nb_nvfp4_multiplier(amax),
             .enc = nvfp4_enc(amax)};
    return quantize(&j, w, rows, out, err);
}

bool nb_format_searches(nb_format f) { return f == NB_NVFP4 || f == NB_MXFP4; }

nb_status nb_quantize_search(nb_qtype q, const float *w, int64_t rows, int64_t k, float amax, const nb_parts *out,
                             nb_error *err)
{
    job j = {.kern = nb_kernels_best(), .q = q, .k = k, .m = 1, .enc = nvfp4_enc(amax), .search = true};
    return quantize(&j, w, rows, out, err);
}

/* ---- decode ---- */

static nb_row_in row_in(nb_qtype q, const nb_parts *p, int64_t r)
{
    size_t i = (size_t)r, s = q.format == NB_FP8_BLOCK ? i / 128 : i;
    nb_row_in in = {p->codes + i * p->code_stride, p->scales ? p->scales + s * p->scale_stride : NULL,
                    p->biases ? p->biases + i * p->bias_stride : NULL};
    return in;
}

void nb_dequantize_rows(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, float m, float *out)
{
    job j = {.kern = nb_kernels_best(), .q = q, .k = k, .m = m};
    for (int64_t r = 0; r < rows; r++) formats[q.format].decode(&j, row_in(q, in, r), out + r * k);
}

static uint32_t code_at(const uint8_t *codes, int64_t i, unsigned bits)
{
    if (bits == 32) return nb_load_u32(codes + 4 * i);
    if (bits == 16) return nb_load_u16(codes + 2 * i);
    size_t bit = (size_t)i * bits, byte = bit / 8;
    uint32_t v = codes[byte];
    if (bit % 8 + bits > 8) v |= (uint32_t)codes[byte + 1] << 8;
    return (v >> bit % 8) & ((1u << bits) - 1);
}

static double scale_f64(nb_qtype q, nb_row_in in, int64_t i)
{
    switch (q.format) {
    case NB_NVFP4: return (double)nb_e4m3_decode(in.scales[i / 16]);
    case NB_MXFP4:
    case NB_MXFP8: return (double)nb_e8m0_decode(in.scales[i / 32]);
    case NB_FP8_CHANNEL: return in.scales ? (double)nb_f32_bits(nb_load_u32(in.scales)) : 1.0;
    case NB_FP8_BLOCK: return in.scales ? (double)nb_f32_bits(nb_load_u32(in.scales + i / 128 * 4)) : 1.0;
    default: return in.biases ? (double)nb_scale_get(q.scale_dtype, in.scales, i / q.group) : 1.0;
    }
}

void nb_dequantize_rows_f64(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, float m, double *out)
{
    const format_row *f = &formats[q.format];
    bool affine = f->info.scale_kind == NB_SCALE_AFFINE;
    bool multiplied = q.format == NB_NVFP4 || q.format == NB_MXFP4 || q.format == NB_FP8_TENSOR;
    for (int64_t r = 0; r < rows; r++) {
        nb_row_in row = row_in(q, in, r);
        for (int64_t i = 0; i < k; i++) {
            double v = f->value(code_at(row.codes, i, f->info.bits)) * scale_f64(q, row, i);
            if (affine) v += (double)nb_scale_get(q.scale_dtype, row.biases, i / q.group);
            out[r * k + i] = multiplied ? v * (double)m : v;
        }
    }
}
