/* cpu/math.h for sixteen values: the same operations in the same order, so the same bits. Include after vec_avx2.h or
 * vec_avx512.h. */
#ifndef NB_CPU_X86_VEC_MATH_H
#define NB_CPU_X86_VEC_MATH_H

#include "cpu/math.h"

static inline v16 v_exp(v16 x)
{
    v16 t = v_fma(x, v_set(NB_EXP_LOG2E), v_set(NB_EXP_MAGIC));
    v16 n = v_sub(t, v_set(NB_EXP_MAGIC));
    v16 r = v_fma(n, v_set(-NB_EXP_LN2HI), x);
    r = v_fma(n, v_set(-NB_EXP_LN2LO), r);
    v16 q = v_fma(v_set(NB_EXP_Q4), r, v_set(NB_EXP_Q3));
    q = v_fma(q, r, v_set(NB_EXP_Q2));
    q = v_fma(q, r, v_set(NB_EXP_Q1));
    q = v_fma(q, r, v_set(NB_EXP_Q0));
    v16 y = v_add(v_fma(v_mul(r, r), q, r), v_set(1.0f));
    y = v_add_exponent(y, t);
    y = v_select(v_lt(x, v_set(NB_EXP_LO)), v_set(0.0f), y);
    y = v_select(v_gt(x, v_set(NB_EXP_HI)), v_set(__builtin_inff()), y);
    return v_select(v_is_nan(x), x, y);
}

static inline v16 v_sigmoid(v16 x) { return v_div(v_set(1.0f), v_add(v_set(1.0f), v_exp(v_neg(x)))); }
static inline v16 v_silu(v16 x) { return v_div(x, v_add(v_set(1.0f), v_exp(v_neg(x)))); }

static inline v16 v_tanh(v16 x)
{
    v16 sign = v_and(x, v_bits(0x80000000u)), a = v_and(x, v_bits(0x7fffffffu)), z = v_mul(x, x);
    v16 p = v_fma(v_set(NB_TANH_P4), z, v_set(NB_TANH_P3));
    p = v_fma(p, z, v_set(NB_TANH_P2));
    p = v_fma(p, z, v_set(NB_TANH_P1));
    p = v_fma(p, z, v_set(NB_TANH_P0));
    v16 small = v_fma(v_mul(x, z), p, x);
    v16 big = v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(v_exp(v_add(a, a)), v_set(1.0f))));
    return v_select(v_lt(a, v_set(NB_TANH_SMALL)), small, v_or(big, sign));
}

static inline v16 v_gelu_tanh(v16 x)
{
    v16 u = v_mul(x, v_fma(v_mul(x, x), v_set(NB_GELU_B), v_set(NB_GELU_A)));
    return v_div(x, v_add(v_set(1.0f), v_exp(v_neg(u))));
}

static inline v16 v_erf(v16 x)
{
    v16 sign = v_and(x, v_bits(0x80000000u)), a = v_and(x, v_bits(0x7fffffffu)), z = v_mul(x, x);
    v16 s = v_fma(v_set(NB_ERF_S6), z, v_set(NB_ERF_S5));
    s = v_fma(s, z, v_set(NB_ERF_S4));
    s = v_fma(s, z, v_set(NB_ERF_S3));
    s = v_fma(s, z, v_set(NB_ERF_S2));
    s = v_fma(s, z, v_set(NB_ERF_S1));
    s = v_fma(s, z, v_set(NB_ERF_S0));
    s = v_mul(x, s);
    v16 b = v_fma(v_set(NB_ERF_B7), a, v_set(NB_ERF_B6));
    b = v_fma(b, a, v_set(NB_ERF_B5));
    b = v_fma(b, a, v_set(NB_ERF_B4));
    b = v_fma(b, a, v_set(NB_ERF_B3));
    b = v_fma(b, a, v_set(NB_ERF_B2));
    b = v_fma(b, a, v_set(NB_ERF_B1));
    b = v_fma(b, a, v_set(NB_ERF_B0));
    b = v_sub(v_set(1.0f), v_exp(v_neg(b)));
    b = v_select(v_gt(a, v_set(NB_ERF_ONE)), v_set(1.0f), b);
    b = v_or(v_and(b, v_bits(0x7fffffffu)), sign);
    v16 y = v_select(v_gt(a, v_set(1.0f)), b, s);
    return v_select(v_is_nan(x), x, y);
}

static inline v16 v_gelu_erf(v16 x)
{
    return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1.0f), v_erf(v_mul(x, v_set(NB_GELU_SQRT_HALF)))));
}

static inline v16 v_relu2(v16 x)
{
    v16 y = v_select(v_gt(x, v_set(0.0f)), v_mul(x, x), v_set(0.0f));
    return v_select(v_is_nan(x), x, y);
}

static inline v16 v_act(nb_act f, v16 x)
{
    switch (f) {
    case NB_ACT_SILU: return v_silu(x);
    case NB_ACT_GELU_TANH: return v_gelu_tanh(x);
    case NB_ACT_GELU_ERF: return v_gelu_erf(x);
    case NB_ACT_RELU2: return v_relu2(x);
    case NB_ACT_SIGMOID: return v_sigmoid(x);
    }
    return x;
}

/* The 16 accumulators fold 8, 4, 2, 1. */
static inline float v_fold(v16 a)
{
    float t[16];
    v_store(t, a);
    return nb_fold16(t);
}

#endif
