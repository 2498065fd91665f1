/* The element-wise kernels and the attention softmax for sixteen values at a time: plain_elementwise.c and
 * plain_attention.c say what each computes. Included by elementwise_avx2.c and elementwise_avx512.c after their
 * vec_*.h; every function is static. Tails: missing values load as +0, which no sum here notices. */
#ifndef NB_CPU_X86_VEC_ELEMENTWISE_H
#define NB_CPU_X86_VEC_ELEMENTWISE_H

#include "cpu/kernels.h"
#include "cpu/x86/vec_math.h"

/* How many of 16 values are left at i. */
static inline int64_t left(int64_t n, int64_t i) { return n - i < 16 ? n - i : 16; }

static inline v16 v_in_domain(v16 x, float small, v16_mask *out_of_domain)
{
    v16 m = v_and(x, v_bits(0x7fffffffu));
    *out_of_domain = v_not_le(m, v_set(NB_DOMAIN_MAX));
    v16 y = v_select(v_lt(m, v_set(small)), v_set(0.0f), x);
    return v_select(*out_of_domain, v_set(0.0f), y);
}

static inline bool v_round_to_bf16(const float *x, int64_t n, int64_t n_pad, float small, uint16_t *out)
{
    bool bad = false;
    for (int64_t i = 0; i < n_pad; i += 16) {
        v16_mask m;
        v16 y = v_in_domain(i < n ? v_load_n(x + i, left(n, i)) : v_set(0.0f), small, &m);
        bad |= v_any(m);
        v_store_bf16_n(out + i, left(n_pad, i), y);
    }
    return bad;
}

static inline bool v_round_to_f32(const float *x, int64_t n, int64_t n_pad, float small, float *out)
{
    bool bad = false;
    for (int64_t i = 0; i < n_pad; i += 16) {
        v16_mask m;
        v16 y = v_in_domain(i < n ? v_load_n(x + i, left(n, i)) : v_set(0.0f), small, &m);
        bad |= v_any(m);
        v_store_n(out + i, left(n_pad, i), y);
    }
    return bad;
}

static bool v_round_row(const float *x, int64_t n, int64_t n_pad, uint16_t *out)
{
    return v_round_to_bf16(x, n, n_pad, NB_SMALL_ACT, out);
}
static bool v_round_row_f32(const float *x, int64_t n, int64_t n_pad, float *out)
{
    return v_round_to_f32(x, n, n_pad, 0.0f, out);
}
static bool v_round_kv(const float *x, int64_t n, int64_t n_pad, void *out)
{
    return v_round_to_bf16(x, n, n_pad, NB_SMALL_KV, out);
}
static bool v_round_kv_f32(const float *x, int64_t n, int64_t n_pad, void *out)
{
    return v_round_to_f32(x, n, n_pad, NB_SMALL_KV, out);
}

static void v_rms_norm(const float *x, const float *w, int64_t n, float eps, float *out)
{
    v16 acc = v_set(0.0f);
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v_load_n(x + i, left(n, i));
        acc = v_fma(v, v, acc);
    }
    v16 r = v_set(1.0f / nb_sqrtf(v_fold(acc) / (float)n + eps));
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v16 y = v_mul(v_load_n(x + i, k), r);
        v_store_n(out + i, k, w ? v_mul(y, v_load_n(w + i, k)) : y);
    }
}

static inline void v_glu_of(const float *gate, const float *up, int64_t n, nb_act f, float *out)
{
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v16 g = v_act(f, v_load_n(gate + i, k));
        v_store_n(out + i, k, up ? v_mul(g, v_load_n(up + i, k)) : g);
    }
}

/* One loop per function, so that the choice stays outside. */
static void v_glu(const float *gate, const float *up, int64_t n, nb_act f, float *out)
{
    switch (f) {
    case NB_ACT_SILU: v_glu_of(gate, up, n, NB_ACT_SILU, out); break;
    case NB_ACT_GELU_TANH: v_glu_of(gate, up, n, NB_ACT_GELU_TANH, out); break;
    case NB_ACT_GELU_ERF: v_glu_of(gate, up, n, NB_ACT_GELU_ERF, out); break;
    case NB_ACT_RELU2: v_glu_of(gate, up, n, NB_ACT_RELU2, out); break;
    case NB_ACT_SIGMOID: v_glu_of(gate, up, n, NB_ACT_SIGMOID, out); break;
    }
}

static inline void v_turn(v16 *x0, v16 *x1, v16 c, v16 s)
{
    v16 y0 = v_fma(*x0, c, v_neg(v_mul(*x1, s)));
    *x1 = v_fma(*x1, c, v_mul(*x0, s));
    *x0 = y0;
}

static void v_rotate_pairs(float *x, int64_t pairs, const float *cos, const float *sin)
{
    int64_t i = 0;
    for (; i + 16 <= pairs; i += 16) {
        v16 x0, x1, a, b;
        v_unzip(v_load(x + 2 * i), v_load(x + 2 * i + 16), &x0, &x1);
        v_turn(&x0, &x1, v_load(cos + i), v_load(sin + i));
        v_zip(x0, x1, &a, &b);
        v_store(x + 2 * i, a);
        v_store(x + 2 * i + 16, b);
    }
    for (; i < pairs; i++) {
        float x0 = x[2 * i], x1 = x[2 * i + 1];
        x[2 * i] = fmaf(x0, cos[i], -(x1 * sin[i]));
        x[2 * i + 1] = fmaf(x1, cos[i], x0 * sin[i]);
    }
}

static void v_rotate(float *x, int64_t pairs, const float *cos, const float *sin, bool interleaved)
{
    if (interleaved) {
        v_rotate_pairs(x, pairs, cos, sin);
        return;
    }
    for (int64_t i = 0; i < pairs; i += 16) {
        int64_t k = left(pairs, i);
        v16 x0 = v_load_n(x + i, k), x1 = v_load_n(x + pairs + i, k);
        v_turn(&x0, &x1, v_load_n(cos + i, k), v_load_n(sin + i, k));
        v_store_n(x + i, k, x0);
        v_store_n(x + pairs + i, k, x1);
    }
}

static void v_softcap(const float *x, int64_t n, float cap, float *out)
{
    v16 c = v_set(cap);
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v_store_n(out + i, k, v_mul(c, v_tanh(v_div(v_load_n(x + i, k), c))));
    }
}

/* Sixteen running maxima, then one: a maximum does not depend on the order, but for NaN, which it ignores as the plain
 * loop does. */
static inline float v_top(v16 m)
{
    float t[16], top = -__builtin_inff();
    v_store(t, m);
    for (int i = 0; i < 16; i++) top = t[i] > top ? t[i] : top;
    return top;
}

static void v_softmax(float *x, int64_t n)
{
    v16 low = v_set(-__builtin_inff()), m = low, acc = v_set(0.0f);
    for (int64_t i = 0; i < n; i += 16) {
        v16 v = v_load_n(x + i, left(n, i));
        m = v_select(v_gt(v_select(v_range(0, (int32_t)left(n, i)), v, low), m), v, m);
    }
    v16 top = v_set(v_top(m));
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v16 e = v_exp(v_sub(v_load_n(x + i, k), top));
        e = v_select(v_range(0, (int32_t)k), e, v_set(0.0f));
        acc = v_add(acc, e);
        v_store_n(x + i, k, e);
    }
    v16 l = v_set(v_fold(acc));
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v_store_n(x + i, k, v_div(v_load_n(x + i, k), l));
    }
}

static void v_add_rows(const float *a, const float *b, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v_store_n(out + i, k, v_add(v_load_n(a + i, k), v_load_n(b + i, k)));
    }
}

static void v_scale_row(const float *x, int64_t n, float s, float *out)
{
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v_store_n(out + i, k, v_mul(v_load_n(x + i, k), v_set(s)));
    }
}

static void v_fma_row(float w, const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v_store_n(y + i, k, v_fma(v_set(w), v_load_n(x + i, k), v_load_n(y + i, k)));
    }
}

static void v_widen_row(const uint16_t *x, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) v_store(out + i, v_widen(x + i));
    for (; i < n; i++) out[i] = nb_bf16_decode(x[i]);
}

/* ---- attention ---- */

static void v_attn_softmax(float *s, int32_t from, int32_t to, int32_t lo, int32_t hi, float scale, float cap, bool f32,
                           float *m, float *l)
{
    v16 low = v_set(-__builtin_inff()), top = low, acc = v_set(0.0f), zero = v_set(0.0f);
    int32_t a = lo / 16 * 16, b = (hi + 15) / 16 * 16; /* vectors that hold a seen key */
    for (int32_t j = a; j < b; j += 16) {
        v16 v = v_mul(v_load(s + j), v_set(scale));
        if (cap != 0.0f) v = v_mul(v_set(cap), v_tanh(v_div(v, v_set(cap))));
        v_store(s + j, v);
        v = v_select(v_range(lo - j, hi - j), v, low);
        top = v_select(v_gt(v, top), v, top);
    }
    float t = v_top(top);
    for (int32_t j = from; j < a; j += 16) v_store(s + j, zero);
    for (int32_t j = a; j < b; j += 16) {
        v16 p = v_exp(v_sub(v_load(s + j), v_set(t)));
        /* A NaN must stay one: rounding by adding could carry it into the sign. */
        if (!f32)
            p = v_select(v_is_nan(p), v_set(__builtin_nanf("")),
                         v_select(v_lt(p, v_set(NB_SMALL_P)), zero, v_round_bf16(p)));
        p = v_select(v_range(lo - j, hi - j), p, zero);
        acc = v_add(acc, p);
        v_store(s + j, p);
    }
    for (int32_t j = b; j < to; j += 16) v_store(s + j, zero);
    *m = t;
    *l = v_fold(acc);
}

static void v_attn_merge(float *o, const float *ob, int64_t n, float a, float c)
{
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v_store_n(o + i, k, v_fma(v_load_n(o + i, k), v_set(a), v_mul(v_load_n(ob + i, k), v_set(c))));
    }
}

static void v_attn_divide(const float *o, int64_t n, float l, float *out)
{
    for (int64_t i = 0; i < n; i += 16) {
        int64_t k = left(n, i);
        v_store_n(out + i, k, v_div(v_load_n(o + i, k), v_set(l)));
    }
}

static inline void v_elementwise_init(nb_kernels *k)
{
    k->round_row = v_round_row;
    k->round_row_f32 = v_round_row_f32;
    k->round_kv[0] = v_round_kv;
    k->round_kv[1] = v_round_kv_f32;
    k->rms_norm = v_rms_norm;
    k->glu = v_glu;
    k->rotate = v_rotate;
    k->softcap = v_softcap;
    k->softmax = v_softmax;
    k->add = v_add_rows;
    k->scale = v_scale_row;
    k->fma_row = v_fma_row;
    k->widen = v_widen_row;
    k->attn_softmax = v_attn_softmax;
    k->attn_merge = v_attn_merge;
    k->attn_divide = v_attn_divide;
}

#endif
