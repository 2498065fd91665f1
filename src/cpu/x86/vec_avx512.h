/* Sixteen fp32 values as one 512-bit register. vec_avx2.h gives the same names to two of 256 bits; vec_math.h and
 * vec_elementwise.h are written once in them. Lane i of a vector loaded at p holds p[i], so a vector of sums is the 16
 * accumulators of design.md 4. */
#ifndef NB_CPU_X86_VEC_AVX512_H
#define NB_CPU_X86_VEC_AVX512_H

#include "base/base.h"

#include <immintrin.h>

typedef __m512 v16;
typedef __mmask16 v16_mask;

static inline v16 v_set(float x) { return _mm512_set1_ps(x); }
static inline v16 v_bits(uint32_t x) { return _mm512_castsi512_ps(_mm512_set1_epi32((int)x)); }
static inline v16 v_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void v_store(float *p, v16 a) { _mm512_storeu_ps(p, a); }
/* The first n of 16 values (0 <= n <= 16), the rest +0; stores only n. */
static inline __mmask16 v_first(int64_t n) { return (__mmask16)((1u << n) - 1); }
static inline v16 v_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(v_first(n), p); }
static inline void v_store_n(float *p, int64_t n, v16 a) { _mm512_mask_storeu_ps(p, v_first(n), a); }

static inline v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
static inline v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
static inline v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
static inline v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
static inline v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
static inline v16 v_and(v16 a, v16 b) { return _mm512_and_ps(a, b); }
static inline v16 v_or(v16 a, v16 b) { return _mm512_or_ps(a, b); }
static inline v16 v_neg(v16 a) { return _mm512_xor_ps(a, v_bits(0x80000000u)); }
/* 2^n: adds the low bits of t, as an integer, to the exponent of y */
static inline v16 v_add_exponent(v16 y, v16 t)
{
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(y), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* Ordered comparisons: false where either side is NaN. */
static inline v16_mask v_lt(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
static inline v16_mask v_gt(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
static inline v16_mask v_not_le(v16 a, v16 b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
static inline v16_mask v_is_nan(v16 a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
static inline bool v_any(v16_mask m) { return m != 0; }
static inline v16 v_select(v16_mask m, v16 yes, v16 no) { return _mm512_mask_blend_ps(m, no, yes); }
/* Lanes [lo, hi) of 16, any integers. */
static inline v16_mask v_range(int32_t lo, int32_t hi)
{
    lo = lo < 0 ? 0 : lo > 16 ? 16 : lo;
    hi = hi < lo ? lo : hi > 16 ? 16 : hi;
    return (v16_mask)(((1u << hi) - 1) & ~((1u << lo) - 1));
}

/* bf16, to nearest even; no NaN comes here. */
static inline __m256i v_to_bf16(v16 a)
{
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(u, 16));
}
/* The same value as fp32 */
static inline v16 v_round_bf16(v16 a)
{
    __m512i u = _mm512_castps_si512(a);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    u = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000u)));
}
static inline void v_store_bf16_n(uint16_t *p, int64_t n, v16 a)
{
    _mm256_mask_storeu_epi16(p, v_first(n), v_to_bf16(a));
}
static inline v16 v_widen(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

/* Interleaved pairs: 32 values to 16 first and 16 second, and back. */
static inline void v_unzip(v16 a, v16 b, v16 *first, v16 *second)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *first = _mm512_permutex2var_ps(a, even, b);
    *second = _mm512_permutex2var_ps(a, _mm512_add_epi32(even, _mm512_set1_epi32(1)), b);
}
static inline void v_zip(v16 first, v16 second, v16 *a, v16 *b)
{
    const __m512i lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    *a = _mm512_permutex2var_ps(first, lo, second);
    *b = _mm512_permutex2var_ps(first, _mm512_add_epi32(lo, _mm512_set1_epi32(8)), second);
}

#endif
