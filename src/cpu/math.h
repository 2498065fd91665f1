/* cpu/math: the elementary functions of design.md 4, as fixed sequences of binary32 operations. Tiers repeat these
 * sequences, vector by vector (x86/math_avx2.h, x86/math_avx512.h), and must give the same bits. No libm but fmaf.
 * MXCSR has FTZ and DAZ on (cpu.h).
 *
 * Coefficients are our own least-maximum fits; their errors (against double, rounding aside) stand beside them.
 */
#ifndef NB_CPU_MATH_H
#define NB_CPU_MATH_H

#include "tensor/graph.h"

float fmaf(float, float, float); /* the only thing wanted of math.h; sqrt is an instruction */
static inline float nb_sqrtf(float x) { return __builtin_sqrtf(x); }

/* exp(x) = 2^n (1 + r + r^2 q(r)), n = round(x / ln 2), |r| <= ln(2)/2. Relative error of q's part 4e-9. */
#define NB_EXP_LO    (-87.3f) /* below: +0, since the result would be subnormal */
#define NB_EXP_HI    88.72f   /* above: infinity */
#define NB_EXP_LOG2E 1.44269504f
#define NB_EXP_MAGIC 12582912.0f  /* 1.5 * 2^23: adding it rounds to an integer */
#define NB_EXP_LN2HI 0.693145752f /* 16 bits, so that n * LN2HI is exact */
#define NB_EXP_LN2LO 1.42860682e-6f
#define NB_EXP_Q0    0.5f
#define NB_EXP_Q1    0.166665211f
#define NB_EXP_Q2    0.041668389f
#define NB_EXP_Q3    0.00836871751f
#define NB_EXP_Q4    0.00138145965f

/* exp(0) = 1 and exp(-inf) = +0 exactly; NaN stays NaN. */
static inline float nb_exp(float x)
{
    float t = fmaf(x, NB_EXP_LOG2E, NB_EXP_MAGIC);
    float n = t - NB_EXP_MAGIC;
    float r = fmaf(n, -NB_EXP_LN2HI, x);
    r = fmaf(n, -NB_EXP_LN2LO, r);
    float q = fmaf(NB_EXP_Q4, r, NB_EXP_Q3);
    q = fmaf(q, r, NB_EXP_Q2);
    q = fmaf(q, r, NB_EXP_Q1);
    q = fmaf(q, r, NB_EXP_Q0);
    float y = fmaf(r * r, q, r) + 1.0f;
    y = nb_f32_bits(nb_bits_f32(y) + (nb_bits_f32(t) << 23)); /* the low bits of t are n */
    if (x < NB_EXP_LO) y = 0.0f;
    if (x > NB_EXP_HI) y = __builtin_inff();
    return x != x ? x : y;
}

static inline float nb_sigmoid(float x) { return 1.0f / (1.0f + nb_exp(-x)); }
static inline float nb_silu(float x) { return x / (1.0f + nb_exp(-x)); }

/* tanh: x + x^3 p(x^2) up to 0.625 (relative error 4e-9), then 1 - 2/(exp(2|x|) + 1) with the sign of x. */
#define NB_TANH_SMALL 0.625f
#define NB_TANH_P0    (-0.333332837f)
#define NB_TANH_P1    0.133314908f
#define NB_TANH_P2    (-0.0537434965f)
#define NB_TANH_P3    0.0206505787f
#define NB_TANH_P4    (-0.00571703678f)

static inline float nb_tanh(float x)
{
    uint32_t sign = nb_bits_f32(x) & 0x80000000u;
    float a = nb_f32_bits(nb_bits_f32(x) & 0x7fffffffu);
    float z = x * x;
    float p = fmaf(NB_TANH_P4, z, NB_TANH_P3);
    p = fmaf(p, z, NB_TANH_P2);
    p = fmaf(p, z, NB_TANH_P1);
    p = fmaf(p, z, NB_TANH_P0);
    float small = fmaf(x * z, p, x);
    float big = 1.0f - 2.0f / (nb_exp(a + a) + 1.0f);
    big = nb_f32_bits(nb_bits_f32(big) | sign);
    return a < NB_TANH_SMALL ? small : big;
}

/* The tanh form of gelu, x (1 + tanh u) / 2 = x / (1 + exp(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3). */
#define NB_GELU_A 1.59576912f   /* 2 sqrt(2/pi) */
#define NB_GELU_B 0.0713548163f /* 2 sqrt(2/pi) 0.044715 */

static inline float nb_gelu_tanh(float x)
{
    float u = x * fmaf(x * x, NB_GELU_B, NB_GELU_A);
    return x / (1.0f + nb_exp(-u));
}

/* erf: x p(x^2) up to 1 (absolute error 2e-9); then 1 - exp(-p(|x|)), p = -log(erfc) up to 4; then 1. */
#define NB_ERF_ONE 4.0f
#define NB_ERF_S0  1.12837911f
#define NB_ERF_S1  (-0.37612626f)
#define NB_ERF_S2  0.112836003f
#define NB_ERF_S3  (-0.0268544443f)
#define NB_ERF_S4  0.00518953521f
#define NB_ERF_S5  (-0.000802084105f)
#define NB_ERF_S6  7.8891193e-05f
#define NB_ERF_B0  (-0.000188031845f)
#define NB_ERF_B1  1.12957835f
#define NB_ERF_B2  0.633219957f
#define NB_ERF_B3  0.108418494f
#define NB_ERF_B4  (-0.025208205f)
#define NB_ERF_B5  0.00420454238f
#define NB_ERF_B6  (-0.000441332377f)
#define NB_ERF_B7  2.16865101e-05f

static inline float nb_erf(float x)
{
    uint32_t sign = nb_bits_f32(x) & 0x80000000u;
    float a = nb_f32_bits(nb_bits_f32(x) & 0x7fffffffu);
    float z = x * x;
    float s = fmaf(NB_ERF_S6, z, NB_ERF_S5);
    s = fmaf(s, z, NB_ERF_S4);
    s = fmaf(s, z, NB_ERF_S3);
    s = fmaf(s, z, NB_ERF_S2);
    s = fmaf(s, z, NB_ERF_S1);
    s = fmaf(s, z, NB_ERF_S0);
    s = x * s;
    float b = fmaf(NB_ERF_B7, a, NB_ERF_B6);
    b = fmaf(b, a, NB_ERF_B5);
    b = fmaf(b, a, NB_ERF_B4);
    b = fmaf(b, a, NB_ERF_B3);
    b = fmaf(b, a, NB_ERF_B2);
    b = fmaf(b, a, NB_ERF_B1);
    b = fmaf(b, a, NB_ERF_B0);
    b = 1.0f - nb_exp(-b);
    b = a > NB_ERF_ONE ? 1.0f : b;
    b = nb_f32_bits(nb_bits_f32(b) | sign);
    return a > 1.0f || x != x ? (x != x ? x : b) : s;
}

#define NB_GELU_SQRT_HALF 0.707106769f
static inline float nb_gelu_erf(float x) { return (0.5f * x) * (1.0f + nb_erf(x * NB_GELU_SQRT_HALF)); }

/* log(1 + y) for 0 <= y <= 1 (softplus(x) = max(x, 0) + log1p(exp(-|x|))): 2 atanh(w), w = y / (2 + y), as 2w + 2w^3
 * p(w^2). Relative error 1e-9. */
#define NB_LOG1P_P0 0.333333373f
#define NB_LOG1P_P1 0.19999437f
#define NB_LOG1P_P2 0.143085182f
#define NB_LOG1P_P3 0.107129253f
#define NB_LOG1P_P4 0.121541627f

static inline float nb_log1p(float y)
{
    float w = y / (2.0f + y);
    float z = w * w;
    float p = fmaf(NB_LOG1P_P4, z, NB_LOG1P_P3);
    p = fmaf(p, z, NB_LOG1P_P2);
    p = fmaf(p, z, NB_LOG1P_P1);
    p = fmaf(p, z, NB_LOG1P_P0);
    float w2 = w + w;
    return fmaf(w2 * z, p, w2);
}

/* A gate's activation function, one value. */
static inline float nb_act_value(nb_act f, float x)
{
    switch (f) {
    case NB_ACT_SILU: return nb_silu(x);
    case NB_ACT_GELU_TANH: return nb_gelu_tanh(x);
    case NB_ACT_GELU_ERF: return nb_gelu_erf(x);
    case NB_ACT_RELU2: return x > 0.0f ? x * x : x != x ? x : 0.0f;
    case NB_ACT_SIGMOID: return nb_sigmoid(x);
    }
    return x;
}

/* Sixteen accumulators fold 8, 4, 2, 1. */
static inline float nb_fold16(float a[16])
{
    for (int h = 8; h > 0; h /= 2)
        for (int i = 0; i < h; i++) a[i] = a[i] + a[i + h];
    return a[0];
}

/* Rounding an activation to bf16: the domain of design.md 4. `small` is what becomes +0 below it: 2^-100 for products,
 * 2^-50 for q, k and v, 2^-40 for p. */
#define NB_DOMAIN_MAX 0x1p100f
#define NB_SMALL_ACT  0x1p-100f
#define NB_SMALL_KV   0x1p-50f
#define NB_SMALL_P    0x1p-40f

#endif
