/* The kernels in plain C: the definition that the vector tables are compared with (specs/create.md 4.4 to 4.8). */
#include "format/kernels.h"

#include <math.h>
#include <stdatomic.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static uint32_t abs_bits(const float *w, size_t n)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = nb_bits_f32(w[i]) & 0x7fffffffu;
        if (u > top) top = u;
    }
    return top;
}

static float group_max(const float *w, int n) { return nb_f32_bits(abs_bits(w, (size_t)n)); }

/* Codes of n elements (a multiple of 8), one a byte, as a bit stream of n * bits / 8 bytes. */
static void put_codes(uint8_t *dst, const uint8_t *codes, int n, int bits)
{
    for (int i = 0; i < n; i += 8, dst += bits) nb_put_bytes(dst, nb_pack8(nb_load_u64(codes + i), bits), bits);
}
static void get_codes(uint8_t *codes, const uint8_t *src, int n, int bits)
{
    for (int i = 0; i < n; i += 8, src += bits) nb_store_u64(codes + i, nb_unpack8(nb_get_bytes(src, bits), bits));
}

/* ---- quantisers ---- */

static void nvfp4(const float *w, int64_t k, float enc, nb_row out)
{
    uint8_t c[16];
    for (int64_t i = 0; i < k; i += 16) {
        float r;
        out.scales[i / 16] = nb_nvfp4_scale(group_max(w + i, 16), enc, &r);
        for (int j = 0; j < 16; j++) c[j] = nb_e2m1_encode(w[i + j] * r);
        put_codes(out.codes + i / 2, c, 16, 4);
    }
}

static bool mxfp4(const float *w, int64_t k, nb_row out)
{
    uint8_t c[32];
    bool ok = true;
    for (int64_t i = 0; i < k; i += 32) {
        float inv;
        ok &= nb_mx_scale(group_max(w + i, 32), 6.0f, &out.scales[i / 32], &inv);
        for (int j = 0; j < 32; j++) c[j] = inv > 0 ? nb_e2m1_encode(w[i + j] * inv) : 0;
        put_codes(out.codes + i / 2, c, 32, 4);
    }
    return ok;
}

static bool mxfp8(const float *w, int64_t k, nb_row out)
{
    bool ok = true;
    for (int64_t i = 0; i < k; i += 32) {
        float inv;
        ok &= nb_mx_scale(group_max(w + i, 32), 448.0f, &out.scales[i / 32], &inv);
        for (int j = 0; j < 32; j++) out.codes[i + j] = inv > 0 ? nb_e4m3_encode(w[i + j] * inv) : 0;
    }
    return ok;
}

/* Sum of the squares of n differences, 16 or 32, in place: 16 accumulators, folded by halves. */
static float fold_squares(float *d, int n)
{
    for (int j = 0; j < n; j++) d[j] *= d[j];
    for (int half = n / 2; half; half /= 2)
        for (int j = 0; j < half; j++) d[j] += d[j + half];
    return d[0];
}

/* Squared error of a block under scale byte s, in units of the multiplier. */
static float nvfp4_error(const float *w, float enc, uint8_t s)
{
    float scale = nb_f32_bits(nb_e4m3_table[s]), r = enc / scale, d[16];
    for (int j = 0; j < 16; j++) d[j] = w[j] * enc - nb_e2m1_table[nb_e2m1_encode(w[j] * r)] * scale;
    return fold_squares(d, 16);
}

static void nvfp4_search(const float *w, int64_t k, float enc, nb_row out)
{
    uint8_t c[16];
    for (int64_t i = 0; i < k; i += 16) {
        float r;
        uint8_t plain = nb_nvfp4_scale(group_max(w + i, 16), enc, &r), best = plain;
        float least = plain ? nvfp4_error(w + i, enc, plain) : 0;
        for (int s = nb_nvfp4_first(plain); s <= nb_nvfp4_last(plain); s++) {
            float e = nvfp4_error(w + i, enc, (uint8_t)s);
            if (e < least) least = e, best = (uint8_t)s;
        }
        if (best != plain) r = enc / nb_f32_bits(nb_e4m3_table[best]);
        out.scales[i / 16] = best;
        for (int j = 0; j < 16; j++) c[j] = nb_e2m1_encode(w[i + j] * r);
        put_codes(out.codes + i / 2, c, 16, 4);
    }
}

/* Squared error of a block in units of its scale; inv is one over that. */
static float mxfp4_error(const float *w, float inv)
{
    float d[32];
    for (int j = 0; j < 32; j++) {
        float x = w[j] * inv;
        d[j] = x - nb_e2m1_table[nb_e2m1_encode(x)];
    }
    return fold_squares(d, 32);
}

static bool mxfp4_search(const float *w, int64_t k, nb_row out)
{
    uint8_t c[32];
    bool ok = true;
    for (int64_t i = 0; i < k; i += 32) {
        float inv;
        ok &= nb_mx_scale(group_max(w + i, 32), 6.0f, &out.scales[i / 32], &inv);
        /* the power of two below: its unit is half as large */
        if (inv > 0 && out.scales[i / 32] > 16 && mxfp4_error(w + i, inv * 2) * 0.25f < mxfp4_error(w + i, inv))
            inv *= 2, out.scales[i / 32]--;
        for (int j = 0; j < 32; j++) c[j] = inv > 0 ? nb_e2m1_encode(w[i + j] * inv) : 0;
        put_codes(out.codes + i / 2, c, 32, 4);
    }
    return ok;
}

bool nb_affine_scale(float lo, float hi, nb_qtype q, int64_t i, nb_row out, float *s, float *z)
{
    float n = (float)((1 << nb_format_info((nb_format)q.format)->bits) - 1);
    float d = (hi - lo) / n, scale, edge, bias = 0;
    if (d < 1e-7f) d = 1e-7f;
    if (fabsf(lo) > fabsf(hi))
        scale = d, edge = lo;
    else
        scale = -d, edge = hi;
    float q0 = rintf(edge / scale);
    if (q0 != 0) scale = edge / q0, bias = edge; /* the edge, and nearly zero too, lies on the grid */
    *s = nb_scale_put(q.scale_dtype, out.scales, i, scale);
    *z = nb_scale_put(q.scale_dtype, out.biases, i, bias);
    return isfinite(*s) && isfinite(*z);
}

static bool affine(const float *w, int64_t k, nb_qtype q, nb_row out)
{
    int bits = nb_format_info((nb_format)q.format)->bits;
    float n = (float)((1 << bits) - 1);
    uint8_t c[128];
    bool ok = true;
    for (int64_t g = 0; g < k / q.group; g++, w += q.group) {
        float lo = w[0], hi = w[0], s, z;
        for (int j = 1; j < q.group; j++) {
            if (w[j] < lo) lo = w[j];
            if (w[j] > hi) hi = w[j];
        }
        ok &= nb_affine_scale(lo, hi, q, g, out, &s, &z);
        for (int j = 0; j < q.group; j++) {
            float x = rintf((w[j] - z) / s); /* against the scale and bias as stored */
            x = x > 0 ? x : 0;
            c[j] = (uint8_t)(x < n ? x : n);
        }
        put_codes(out.codes + g * q.group * bits / 8, c, q.group, bits);
    }
    return ok;
}

static void to_e4m3(const float *w, int64_t k, float s, uint8_t *out)
{
    for (int64_t i = 0; i < k; i++) out[i] = nb_e4m3_encode(w[i] / s);
}

static bool to_bf16(const float *w, int64_t k, uint8_t *out)
{
    bool ok = true;
    for (int64_t i = 0; i < k; i++) {
        uint16_t h = nb_bf16_encode(w[i]);
        ok &= (h & 0x7fff) < 0x7f80;
        nb_store_u16(out + 2 * i, h);
    }
    return ok;
}

static bool to_f16(const float *w, int64_t k, uint8_t *out)
{
    bool ok = true;
    for (int64_t i = 0; i < k; i++) {
        uint16_t h = nb_f16_encode(w[i]);
        ok &= (h & 0x7fff) < 0x7c00;
        nb_store_u16(out + 2 * i, h);
    }
    return ok;
}

/* ---- decoders ---- */

static void from_e2m1(nb_row_in in, int64_t k, nb_qtype q, float m, float *out)
{
    uint8_t c[32];
    for (int64_t g = 0; g < k / q.group; g++, out += q.group) {
        float s = q.format == NB_NVFP4 ? nb_e4m3_decode(in.scales[g]) : nb_e8m0_decode(in.scales[g]);
        get_codes(c, in.codes + g * q.group / 2, q.group, 4);
        for (int j = 0; j < q.group; j++) out[j] = (nb_e2m1_table[c[j]] * s) * m;
    }
}

static void from_mxfp8(nb_row_in in, int64_t k, float *out)
{
    for (int64_t i = 0; i < k; i++) out[i] = nb_e4m3_decode(in.codes[i]) * nb_e8m0_decode(in.scales[i / 32]);
}

static void from_affine(nb_row_in in, int64_t k, nb_qtype q, float *out)
{
    int bits = nb_format_info((nb_format)q.format)->bits;
    uint8_t c[128];
    for (int64_t g = 0; g < k / q.group; g++, out += q.group) {
        float s = nb_scale_get(q.scale_dtype, in.scales, g), z = nb_scale_get(q.scale_dtype, in.biases, g);
        get_codes(c, in.codes + g * q.group * bits / 8, q.group, bits);
        for (int j = 0; j < q.group; j++) out[j] = fmaf((float)c[j], s, z);
    }
}

static void from_bf16(const uint8_t *in, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = nb_bf16_decode(nb_load_u16(in + 2 * i));
}

static void from_f16(const uint8_t *in, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = nb_f16_decode(nb_load_u16(in + 2 * i));
}

static void from_e4m3(const uint8_t *in, size_t n, float m, float *out)
{
    for (size_t i = 0; i < n; i++) out[i] = nb_e4m3_decode(in[i]) * m;
}

const nb_kernels nb_kernels_c = {
    .name = "c",
    .abs_bits = abs_bits,
    .nvfp4 = nvfp4,
    .mxfp4 = mxfp4,
    .mxfp8 = mxfp8,
    .nvfp4_search = nvfp4_search,
    .mxfp4_search = mxfp4_search,
    .affine = affine,
    .e4m3 = to_e4m3,
    .bf16 = to_bf16,
    .f16 = to_f16,
    .from_e2m1 = from_e2m1,
    .from_mxfp8 = from_mxfp8,
    .from_affine = from_affine,
    .from_bf16 = from_bf16,
    .from_f16 = from_f16,
    .from_e4m3 = from_e4m3,
};

/* ---- choice by processor ---- */

#if defined(__x86_64__)
static bool has_f16c(void) /* not every compiler's __builtin_cpu_supports knows the name */
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

const nb_kernels *nb_kernels_at(int i)
{
#if defined(__x86_64__)
    bool avx2 =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") && has_f16c();
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512vbmi");
    if (i == 1 && avx2) return &nb_kernels_avx2;
    if (i == 2 && avx512) return &nb_kernels_avx512;
#endif
    return i == 0 ? &nb_kernels_c : NULL;
}

const nb_kernels *nb_kernels_best(void)
{
    static const nb_kernels *_Atomic best; /* CPUID traps in a virtual machine: asked once */
    const nb_kernels *k = atomic_load_explicit(&best, memory_order_relaxed);
    for (int i = 2; !k; i--) k = nb_kernels_at(i);
    atomic_store_explicit(&best, k, memory_order_relaxed);
    return k;
}
