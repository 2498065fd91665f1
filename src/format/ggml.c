/* Blocks of ggml types: their sizes, their decoding to F32, and the lossless conversion to our formats (design.md 9,
 * docs/formats.md).
 *
 * A block of 32 stores two elements a byte as halves: byte i holds element i in its low and element i + 16 in its high
 * nibble. A super-block of 256 ("K") has an F16 scale (and minimum) times small integer scales of its sub-blocks.
 */
#include "format/gguf.h"
#include "format/kernels.h"

#include <math.h>

#define LOW_NIBBLES 0x0f0f0f0f0f0f0f0fu

/* One row per type. `affine` gives codes (one a byte) with scale and bias of each group of 32: value = code * s + z,
 * exactly; `decode` gives floats, for types without that form. */
typedef struct block_row {
    nb_ggml_row info;
    int16_t format;      /* nb_format that holds it without loss, -1: none */
    uint8_t scale_dtype; /* of that format, affine ones */
    void (*affine)(const uint8_t *b, uint8_t *codes, float *s, float *z);
    void (*decode)(const uint8_t *b, float *out);
} block_row;

static float half_at(const uint8_t *b) { return nb_f16_decode(nb_load_u16(b)); }

/* 16 bytes of two nibbles as 32 codes in order. */
static void spread(uint8_t *codes, const uint8_t *q)
{
    for (int i = 0; i < 16; i += 8) {
        uint64_t x = nb_load_u64(q + i);
        nb_store_u64(codes + i, x & LOW_NIBBLES);
        nb_store_u64(codes + 16 + i, (x >> 4) & LOW_NIBBLES);
    }
}
/* Adds bit i of a 32-bit word to code i as its fifth bit. */
static void fifth_bits(uint8_t *codes, uint32_t high)
{
    for (int i = 0; i < 32; i++) codes[i] |= (uint8_t)(((high >> i) & 1) << 4);
}

static void q4_0(const uint8_t *b, uint8_t *codes, float *s, float *z)
{
    spread(codes, b + 2);
    *s = half_at(b);
    *z = -8 * *s;
}
static void q4_1(const uint8_t *b, uint8_t *codes, float *s, float *z)
{
    spread(codes, b + 4);
    *s = half_at(b);
    *z = half_at(b + 2);
}
static void q5_0(const uint8_t *b, uint8_t *codes, float *s, float *z)
{
    spread(codes, b + 6);
    fifth_bits(codes, nb_load_u32(b + 2));
    *s = half_at(b);
    *z = -16 * *s;
}
static void q5_1(const uint8_t *b, uint8_t *codes, float *s, float *z)
{
    spread(codes, b + 8);
    fifth_bits(codes, nb_load_u32(b + 4));
    *s = half_at(b);
    *z = half_at(b + 2);
}
static void q8_0(const uint8_t *b, uint8_t *codes, float *s, float *z)
{
    for (int i = 0; i < 32; i += 8)
        nb_store_u64(codes + i, nb_load_u64(b + 2 + i) ^ 0x8080808080808080u); /* signed to q + 128 */
    *s = half_at(b);
    *z = -128 * *s;
}

/* The eight 6-bit scales and minima of Q4_K and Q5_K in 12 bytes: the first four lie in the low six bits of bytes 0-3
 * and 4-7; of the others the low nibbles lie in bytes 8-11 and the two high bits on top of bytes 0-3 and 4-7. */
static void k_scales(const uint8_t *b, float *s, float *z)
{
    float d = half_at(b), m = half_at(b + 2);
    const uint8_t *p = b + 4;
    for (int j = 0; j < 8; j++) {
        int sc = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | (p[j - 4] >> 6 << 4);
        int mn = j < 4 ? p[j + 4] & 63 : (p[j + 4] >> 4) | (p[j] >> 6 << 4);
        s[j] = d * (float)sc;
        z[j] = -(m * (float)mn);
    }
}
/* 128 bytes hold 256 nibbles: 32 bytes for two sub-blocks, low nibbles first. */
static void k_nibbles(const uint8_t *q, uint8_t *codes)
{
    for (int c = 0; c < 256; c += 64, q += 32)
        for (int i = 0; i < 32; i += 8) {
            uint64_t x = nb_load_u64(q + i);
            nb_store_u64(codes + c + i, x & LOW_NIBBLES);
            nb_store_u64(codes + c + 32 + i, (x >> 4) & LOW_NIBBLES);
        }
}
static void q4_k(const uint8_t *b, uint8_t *codes, float *s, float *z)
{
    k_scales(b, s, z);
    k_nibbles(b + 16, codes);
}
static void q5_k(const uint8_t *b, uint8_t *codes, float *s, float *z)
{
    k_scales(b, s, z);
    k_nibbles(b + 48, codes);
    for (int e = 0; e < 256; e++) codes[e] |= (uint8_t)(((b[16 + e % 32] >> (e / 32)) & 1) << 4);
}

/* ---- types that are only decoded ---- */

static void q2_k(const uint8_t *b, float *out)
{
    const uint8_t *q = b + 16;
    float d = half_at(b + 80), m = half_at(b + 82);
    for (int e = 0; e < 256; e++) {
        uint8_t sc = b[e / 16];
        int code = (q[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3;
        out[e] = (d * (float)(sc & 15)) * (float)code - m * (float)(sc >> 4);
    }
}

static void q3_k(const uint8_t *b, float *out)
{
    const uint8_t *high = b, *q = b + 32, *p = b + 96;
    float d = half_at(b + 108), s[16];
    for (int j = 0; j < 16; j++) {
        int low = j < 8 ? p[j] & 15 : p[j - 8] >> 4;
        s[j] = d * (float)((low | ((p[8 + j % 4] >> (j / 4 * 2)) & 3) << 4) - 32);
    }
    for (int e = 0; e < 256; e++) {
        int code = (q[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2)) & 3;
        if (!((high[e % 32] >> (e / 32)) & 1)) code -= 4;
        out[e] = s[e / 16] * (float)code;
    }
}

static void q6_k(const uint8_t *b, float *out)
{
    const uint8_t *low = b, *high = b + 128;
    float d = half_at(b + 208);
    for (int e = 0; e < 256; e++) {
        int half = e / 128, r = e % 128;
        int nibble = r < 64 ? low[half * 64 + r] & 15 : low[half * 64 + r - 64] >> 4;
        int code = (nibble | ((high[half * 32 + r % 32] >> (r / 32 * 2)) & 3) << 4) - 32;
        out[e] = (d * (float)(int8_t)b[192 + e / 16]) * (float)code;
    }
}

static const int8_t iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static void iq4_nl(const uint8_t *b, float *out)
{
    uint8_t codes[32];
    float d = half_at(b);
    spread(codes, b + 2);
    for (int e = 0; e < 32; e++) out[e] = d * (float)iq4_values[codes[e]];
}

static void iq4_xs(const uint8_t *b, float *out)
{
    float d = half_at(b);
    unsigned high = nb_load_u16(b + 2);
    for (int j = 0; j < 8; j++) {
        uint8_t codes[32];
        int sc = (int)(((b[4 + j / 2] >> (j % 2 * 4)) & 15) | ((high >> (2 * j)) & 3) << 4) - 32;
        float s = d * (float)sc;
        spread(codes, b + 8 + 16 * j);
        for (int e = 0; e < 32; e++) out[32 * j + e] = s * (float)iq4_values[codes[e]];
    }
}

static void mxfp4(const uint8_t *b, float *out)
{
    uint8_t codes[32];
    float s = nb_e8m0_decode(b[0]);
    spread(codes, b + 1);
    for (int e = 0; e < 32; e++) out[e] = nb_e2m1_decode(codes[e]) * s;
}

/* 16 elements are eight bytes: byte j holds elements j and j + 8. The package takes a NaN scale for 0 and ignores its
 * sign. */
static void nvfp4(const uint8_t *b, float *out)
{
    for (int e = 0; e < 64; e++) {
        uint8_t byte = b[4 + e / 16 * 8 + e % 8], sc = b[e / 16] & 0x7f;
        out[e] = nb_e2m1_decode(e % 16 < 8 ? byte & 15 : byte >> 4) * (b[e / 16] == 0x7f ? 0 : nb_e4m3_decode(sc));
    }
}

/* ---- the table ---- */

#define FLOATS(label, number, bytes, format)                                                                           \
    {                                                                                                                  \
        {label, number, 1, bytes}, format, NB_DT_NONE, NULL, NULL                                                      \
    }
#define AFFINE(label, number, block, bytes, format, dtype, fn)                                                         \
    {                                                                                                                  \
        {label, number, block, bytes}, format, dtype, fn, NULL                                                         \
    }
#define DECODED(label, number, block, bytes, format, fn)                                                               \
    {                                                                                                                  \
        {label, number, block, bytes}, format, NB_DT_NONE, NULL, fn                                                    \
    }
#define NAMED(label, number, block, bytes)                                                                             \
    {                                                                                                                  \
        {label, number, block, bytes}, -1, NB_DT_NONE, NULL, NULL                                                      \
    }

static const block_row blocks[] = {
    FLOATS("F32", NB_GGML_F32, 4, NB_F32),
    FLOATS("F16", NB_GGML_F16, 2, NB_F16),
    FLOATS("BF16", NB_GGML_BF16, 2, NB_BF16),
    AFFINE("Q4_0", NB_GGML_Q4_0, 32, 18, NB_INT4, NB_DT_F16, q4_0),
    AFFINE("Q4_1", NB_GGML_Q4_1, 32, 20, NB_INT4, NB_DT_F16, q4_1),
    AFFINE("Q5_0", NB_GGML_Q5_0, 32, 22, NB_INT5, NB_DT_F16, q5_0),
    AFFINE("Q5_1", NB_GGML_Q5_1, 32, 24, NB_INT5, NB_DT_F16, q5_1),
    AFFINE("Q8_0", NB_GGML_Q8_0, 32, 34, NB_INT8, NB_DT_F16, q8_0),
    AFFINE("Q4_K", NB_GGML_Q4_K, 256, 144, NB_INT4, NB_DT_F32, q4_k),
    AFFINE("Q5_K", NB_GGML_Q5_K, 256, 176, NB_INT5, NB_DT_F32, q5_k),
    DECODED("MXFP4", NB_GGML_MXFP4, 32, 17, NB_MXFP4, mxfp4),
    DECODED("NVFP4", NB_GGML_NVFP4, 64, 36, NB_NVFP4, nvfp4),
    DECODED("Q2_K", NB_GGML_Q2_K, 256, 84, -1, q2_k),
    DECODED("Q3_K", NB_GGML_Q3_K, 256, 110, -1, q3_k),
    DECODED("Q6_K", NB_GGML_Q6_K, 256, 210, -1, q6_k),
    DECODED("IQ4_NL", NB_GGML_IQ4_NL, 32, 18, -1, iq4_nl),
    DECODED("IQ4_XS", NB_GGML_IQ4_XS, 256, 136, -1, iq4_xs),
    /* known by name and size, so that they are refused by name */
    NAMED("Q8_1", 9, 32, 40),
    NAMED("Q8_K", 15, 256, 292),
    NAMED("IQ2_XXS", 16, 256, 66),
    NAMED("IQ2_XS", 17, 256, 74),
    NAMED("IQ3_XXS", 18, 256, 98),
    NAMED("IQ1_S", 19, 256, 50),
    NAMED("IQ3_S", 21, 256, 110),
    NAMED("IQ2_S", 22, 256, 82),
    NAMED("I8", 24, 1, 1),
    NAMED("I16", 25, 1, 2),
    NAMED("I32", 26, 1, 4),
    NAMED("I64", 27, 1, 8),
    NAMED("F64", 28, 1, 8),
    NAMED("IQ1_M", 29, 256, 56),
    NAMED("TQ1_0", 34, 256, 54),
    NAMED("TQ2_0", 35, 256, 66),
    NAMED("Q1_0", 41, 128, 18),
};

static const block_row *row_of(uint32_t type)
{
    for (size_t i = 0; i < NB_COUNT(blocks); i++)
        if ((uint32_t)blocks[i].info.type == type) return &blocks[i];
    return NULL;
}

const nb_ggml_row *nb_ggml_info(uint32_t type)
{
    const block_row *r = row_of(type);
    return r ? &r->info : NULL;
}

bool nb_ggml_lossless(uint32_t type, nb_qtype *q)
{
    const block_row *r = row_of(type);
    if (!r || r->format < 0) return false;
    *q = nb_qtype_default((nb_format)r->format);
    if (r->affine) {
        q->group = 32;
        q->scale_dtype = r->scale_dtype;
    }
    return true;
}

/* ---- decode to F32 ---- */

static nb_dtype float_dtype(uint32_t type)
{
    return type == NB_GGML_F32    ? NB_DT_F32
           : type == NB_GGML_F16  ? NB_DT_F16
           : type == NB_GGML_BF16 ? NB_DT_BF16
                                  : NB_DT_NONE;
}

bool nb_ggml_to_f32(uint32_t type, const void *src, int64_t count, float *out)
{
    const block_row *r = row_of(type);
    const uint8_t *b = src;
    if (!r || count < 0 || count % r->info.block) return false;
    if (float_dtype(type) != NB_DT_NONE) return nb_floats_decode(float_dtype(type), src, (size_t)count, out);
    if (!r->decode && !r->affine) return false;
    uint8_t codes[256];
    float s[8], z[8];
    for (int64_t i = 0; i < count; i += r->info.block, b += r->info.bytes, out += r->info.block) {
        if (r->decode) {
            r->decode(b, out);
            continue;
        }
        r->affine(b, codes, s, z);
        for (int e = 0; e < r->info.block; e++) out[e] = fmaf((float)codes[e], s[e / 32], z[e / 32]);
    }
    return true;
}

/* ---- to parts ---- */

enum { CHUNK = 128 }; /* groups; a multiple of the 8 of a super-block */

/* n codes (a multiple of 8) into their bit stream. Widths that are constants here let the compiler fold the masks. */
static void put_codes(uint8_t *dst, const uint8_t *codes, int n, int bits)
{
    switch (bits) {
    case 4:
        for (int e = 0; e < n; e += 8) nb_store_u32(dst + e / 2, (uint32_t)nb_pack8(nb_load_u64(codes + e), 4));
        break;
    case 5:
        for (int e = 0; e < n; e += 8) nb_put_bytes(dst + e / 8 * 5, nb_pack8(nb_load_u64(codes + e), 5), 5);
        break;
    default: memcpy(dst, codes, (size_t)n); break;
    }
}

/* Scales or biases as the format stores them; false where one is not exact there. */
static bool put_scales(const nb_kernels *kern, const float *x, int n, uint8_t dtype, uint8_t *dst)
{
    float back[CHUNK];
    if (dtype == NB_DT_F32) {
        memcpy(dst, x, (size_t)n * 4);
        return kern->abs_bits(x, (size_t)n) < 0x7f800000u;
    }
    if (dtype == NB_DT_F16)
        kern->f16(x, n, dst);
    else
        kern->bf16(x, n, dst);
    nb_floats_decode((nb_dtype)dtype, dst, (size_t)n, back);
    bool exact = kern->abs_bits(x, (size_t)n) < 0x7f800000u;
    for (int i = 0; i < n; i++) exact &= x[i] == back[i];
    return exact;
}

static nb_status inexact(const float *s, const float *z, int n, int64_t row, int64_t group, nb_error *err)
{
    bool finite = true;
    for (int i = 0; i < n; i++) finite &= isfinite(s[i]) && isfinite(z[i]);
    return nb_fail(err, finite ? NB_E_UNSUPPORTED : NB_E_INVALID, "row %lld, columns from %lld: %s", (long long)row,
                   (long long)group * 32, finite ? "a scale or bias needs F32" : "a scale is not finite");
}

/* Blocks are opened one by one, scales rounded CHUNK groups at a time. */
static nb_status affine_to_row(const block_row *r, const uint8_t *b, int64_t row, int64_t k, nb_qtype q, nb_row out,
                               nb_error *err)
{
    const nb_kernels *kern = nb_kernels_best();
    uint8_t codes[256];
    float s[CHUNK], z[CHUNK];
    int bits = nb_format_info((nb_format)q.format)->bits, size = r->info.block;
    size_t scale = nb_scale_size(q.scale_dtype);
    for (int64_t g = 0; g < k / 32; g += CHUNK) {
        int n = k / 32 - g < CHUNK ? (int)(k / 32 - g) : CHUNK;
        for (int i = 0; i < n; i += size / 32, b += r->info.bytes) {
            r->affine(b, codes, s + i, z + i);
            put_codes(out.codes + (g + i) * 4 * bits, codes, size, bits);
        }
        bool exact = put_scales(kern, s, n, q.scale_dtype, out.scales + (size_t)g * scale);
        exact = put_scales(kern, z, n, q.scale_dtype, out.biases + (size_t)g * scale) && exact;
        if (!exact) return inexact(s, z, n, row, g, err);
    }
    return NB_OK;
}

static void mxfp4_to_row(const uint8_t *b, int64_t k, nb_row out)
{
    uint8_t codes[32];
    for (int64_t i = 0; i < k; i += 32, b += 17) {
        spread(codes, b + 1);
        for (int e = 0; e < 32; e += 8)
            nb_store_u32(out.codes + (i + e) / 2, (uint32_t)nb_pack8(nb_load_u64(codes + e), 4));
        out.scales[i / 32] = b[0];
    }
}

static void nvfp4_to_row(const uint8_t *b, int64_t k, nb_row out)
{
    for (int64_t i = 0; i < k; i += 64, b += 36)
        for (int g = 0; g < 4; g++) {
            uint64_t x = nb_load_u64(b + 4 + 8 * g);
            nb_store_u32(out.codes + i / 2 + 8 * g, (uint32_t)nb_pack8(x & LOW_NIBBLES, 4));
            nb_store_u32(out.codes + i / 2 + 8 * g + 4, (uint32_t)nb_pack8((x >> 4) & LOW_NIBBLES, 4));
            out.scales[i / 16 + g] = b[g];
        }
}

nb_status nb_ggml_to_parts(uint32_t type, const void *src, int64_t rows, int64_t k, nb_qtype q, const nb_parts *out,
                           uint64_t *zeroed, nb_error *err)
{
    const block_row *r = row_of(type);
    nb_qtype own;
    size_t c, sb, bb;
    if (!r || !nb_ggml_lossless(type, &own) || q.format != own.format || q.group != own.group || k <= 0 ||
        k % r->info.block || !nb_parts_row_bytes(q, k, &c, &sb, &bb))
        return nb_fail(err, NB_E_INVALID, "%s rows of %lld do not go into this format", r ? r->info.name : "unknown",
                       (long long)k);
    size_t row_bytes = (size_t)(k / r->info.block) * r->info.bytes;
    nb_status st = NB_OK;
    for (int64_t i = 0; i < rows && st == NB_OK; i++) {
        const uint8_t *b = (const uint8_t *)src + (size_t)i * row_bytes;
        nb_row row = {out->codes + (size_t)i * out->code_stride,
                      out->scales ? out->scales + (size_t)i * out->scale_stride : NULL,
                      out->biases ? out->biases + (size_t)i * out->bias_stride : NULL};
        if (r->affine)
            st = affine_to_row(r, b, i, k, q, row, err);
        else if (type == NB_GGML_MXFP4)
            mxfp4_to_row(b, k, row);
        else if (type == NB_GGML_NVFP4)
            nvfp4_to_row(b, k, row);
        else
            memcpy(row.codes, b, row_bytes);
    }
    if (st == NB_OK && !r->affine) st = nb_parts_domain(q, out, rows, k, zeroed, err);
    return st;
}
