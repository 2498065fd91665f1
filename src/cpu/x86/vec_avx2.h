/* Sixteen fp32 values as two 256-bit registers, under the names of vec_avx512.h (which says what each does). */
#ifndef NB_CPU_X86_VEC_AVX2_H
#define NB_CPU_X86_VEC_AVX2_H

#include "base/base.h"

#include <immintrin.h>

typedef struct v16 {
    __m256 a, b;
} v16;                /* values 0..7, 8..15 */
typedef v16 v16_mask; /* all bits of a lane set or none */

static inline v16 v_pair(__m256 a, __m256 b) { return (v16){a, b}; }
static inline v16 v_set(float x) { return v_pair(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
static inline v16 v_bits(uint32_t x)
{
    __m256 v = _mm256_castsi256_ps(_mm256_set1_epi32((int)x));
    return v_pair(v, v);
}
static inline v16 v_load(const float *p) { return v_pair(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)); }
static inline void v_store(float *p, v16 v)
{
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}

/* Lanes [lo, hi), any integers. */
static inline v16_mask v_range(int32_t lo, int32_t hi)
{
    const __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), j = _mm256_add_epi32(i, _mm256_set1_epi32(8));
    __m256i l = _mm256_set1_epi32(lo), h = _mm256_set1_epi32(hi);
    return v_pair(_mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(l, i), _mm256_cmpgt_epi32(h, i))),
                  _mm256_castsi256_ps(_mm256_andnot_si256(_mm256_cmpgt_epi32(l, j), _mm256_cmpgt_epi32(h, j))));
}
static inline v16 v_load_n(const float *p, int64_t n)
{
    if (n >= 16) return v_load(p);
    v16_mask m = v_range(0, (int32_t)n);
    return v_pair(_mm256_maskload_ps(p, _mm256_castps_si256(m.a)), _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.b)));
}
static inline void v_store_n(float *p, int64_t n, v16 v)
{
    if (n >= 16) {
        v_store(p, v);
        return;
    }
    v16_mask m = v_range(0, (int32_t)n);
    _mm256_maskstore_ps(p, _mm256_castps_si256(m.a), v.a);
    _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.b), v.b);
}

static inline v16 v_add(v16 x, v16 y) { return v_pair(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
static inline v16 v_sub(v16 x, v16 y) { return v_pair(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
static inline v16 v_mul(v16 x, v16 y) { return v_pair(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
static inline v16 v_div(v16 x, v16 y) { return v_pair(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
static inline v16 v_fma(v16 x, v16 y, v16 z)
{
    return v_pair(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
static inline v16 v_and(v16 x, v16 y) { return v_pair(_mm256_and_ps(x.a, y.a), _mm256_and_ps(x.b, y.b)); }
static inline v16 v_or(v16 x, v16 y) { return v_pair(_mm256_or_ps(x.a, y.a), _mm256_or_ps(x.b, y.b)); }
static inline v16 v_neg(v16 x)
{
    v16 s = v_bits(0x80000000u);
    return v_pair(_mm256_xor_ps(x.a, s.a), _mm256_xor_ps(x.b, s.b));
}
static inline __m256 v8_add_exponent(__m256 y, __m256 t)
{
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(y), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
static inline v16 v_add_exponent(v16 y, v16 t) { return v_pair(v8_add_exponent(y.a, t.a), v8_add_exponent(y.b, t.b)); }

static inline v16_mask v_lt(v16 x, v16 y)
{
    return v_pair(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ));
}
static inline v16_mask v_gt(v16 x, v16 y)
{
    return v_pair(_mm256_cmp_ps(x.a, y.a, _CMP_GT_OQ), _mm256_cmp_ps(x.b, y.b, _CMP_GT_OQ));
}
static inline v16_mask v_not_le(v16 x, v16 y)
{
    return v_pair(_mm256_cmp_ps(x.a, y.a, _CMP_NLE_UQ), _mm256_cmp_ps(x.b, y.b, _CMP_NLE_UQ));
}
static inline v16_mask v_is_nan(v16 x)
{
    return v_pair(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q), _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q));
}
static inline bool v_any(v16_mask m) { return (_mm256_movemask_ps(m.a) | _mm256_movemask_ps(m.b)) != 0; }
static inline v16 v_select(v16_mask m, v16 yes, v16 no)
{
    return v_pair(_mm256_blendv_ps(no.a, yes.a, m.a), _mm256_blendv_ps(no.b, yes.b, m.b));
}

static inline __m256i v8_round_bits(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
}
static inline __m256i v_to_bf16(v16 x)
{
    __m256i lo = _mm256_srli_epi32(v8_round_bits(x.a), 16), hi = _mm256_srli_epi32(v8_round_bits(x.b), 16);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xd8);
}
static inline v16 v_round_bf16(v16 x)
{
    const __m256i top = _mm256_set1_epi32((int)0xffff0000u);
    return v_pair(_mm256_castsi256_ps(_mm256_and_si256(v8_round_bits(x.a), top)),
                  _mm256_castsi256_ps(_mm256_and_si256(v8_round_bits(x.b), top)));
}
static inline void v_store_bf16_n(uint16_t *p, int64_t n, v16 x)
{
    if (n >= 16) {
        _mm256_storeu_si256((void *)p, v_to_bf16(x));
        return;
    }
    uint16_t t[16];
    _mm256_storeu_si256((void *)t, v_to_bf16(x));
    memcpy(p, t, (size_t)n * 2);
}
static inline __m256 v8_widen(__m128i x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
static inline v16 v_widen(const uint16_t *p)
{
    return v_pair(v8_widen(_mm_loadu_si128((const void *)p)), v8_widen(_mm_loadu_si128((const void *)(p + 8))));
}

/* Even and odd values of 16 in order: shuffle inside halves, then put the quarters right. */
static inline __m256 v8_pick(__m256 x, __m256 y, bool second)
{
    __m256 t = second ? _mm256_shuffle_ps(x, y, 0xdd) : _mm256_shuffle_ps(x, y, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(t), 0xd8));
}
static inline void v_unzip(v16 x, v16 y, v16 *first, v16 *second)
{
    *first = v_pair(v8_pick(x.a, x.b, false), v8_pick(y.a, y.b, false));
    *second = v_pair(v8_pick(x.a, x.b, true), v8_pick(y.a, y.b, true));
}
static inline v16 v8_zip(__m256 first, __m256 second)
{
    __m256 lo = _mm256_unpacklo_ps(first, second), hi = _mm256_unpackhi_ps(first, second);
    return v_pair(_mm256_permute2f128_ps(lo, hi, 0x20), _mm256_permute2f128_ps(lo, hi, 0x31));
}
static inline void v_zip(v16 first, v16 second, v16 *x, v16 *y)
{
    *x = v8_zip(first.a, second.a);
    *y = v8_zip(first.b, second.b);
}

#endif
