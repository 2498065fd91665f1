/* The vector kernels with 16 lanes (AVX-512 F, BW, DQ, VL; BMI2). */
#if defined(__x86_64__)
#include "format/kernels.h"

#include <immintrin.h>

#define LANES 16
typedef float vf __attribute__((vector_size(64)));
typedef int32_t vi __attribute__((vector_size(64)));

static inline vf vf_set(float x) { return (vf)_mm512_set1_ps(x); }
static inline vi vi_set(int32_t x) { return (vi)_mm512_set1_epi32(x); }
static inline vf vf_load(const float *p) { return (vf)_mm512_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm512_storeu_ps(p, (__m512)x); }
static inline vf vf_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
static inline vf vf_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
static inline vi vi_min(vi a, vi b) { return (vi)_mm512_min_epi32((__m512i)a, (__m512i)b); }
static inline vi vi_max(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
static inline int32_t vi_top(vi a) { return _mm512_reduce_max_epi32((__m512i)a); }
static inline float vf_least(vf a) { return _mm512_reduce_min_ps((__m512)a); }
static inline float vf_greatest(vf a) { return _mm512_reduce_max_ps((__m512)a); }
/* Adds the halves of the vector, then of the half: 8, 4, 2, 1. */
static inline float vf_fold(vf a)
{
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256((__m512)a), _mm512_extractf32x8_ps((__m512)a, 1));
    __m128 x = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline vf vf_rint(vf a)
{
    return (vf)_mm512_roundscale_ps((__m512)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
static inline vi vf_to_int(vf a) { return (vi)_mm512_cvttps_epi32((__m512)a); }
static inline vf int_to_vf(vi a) { return (vf)_mm512_cvtepi32_ps((__m512i)a); }

static inline void narrow(vi c, uint64_t eight[2])
{
    _mm_storeu_si128((__m128i *)eight, _mm512_cvtepi32_epi8((__m512i)c));
}
static inline vi widen(const uint64_t eight[2])
{
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)eight));
}
static inline void narrow16(uint8_t *p, vi c) { _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16((__m512i)c)); }
static inline vi load_u16(const uint8_t *p)
{
    return (vi)_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
}
static inline vf load_f16(const uint8_t *p) { return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
/* Stores LANES halves; false where one is infinite. */
static inline bool store_f16(uint8_t *p, vf x)
{
    __m256i h = _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm256_storeu_si256((__m256i *)p, h);
    return _mm256_cmpge_epu16_mask(_mm256_and_si256(h, _mm256_set1_epi16(0x7fff)), _mm256_set1_epi16(0x7c00)) == 0;
}
static inline vf e2m1_decode(vi c) { return (vf)_mm512_permutexvar_ps((__m512i)c, _mm512_loadu_ps(nb_e2m1_table)); }
static inline vf gather_e4m3(vi c) { return (vf)_mm512_i32gather_epi32((__m512i)c, nb_e4m3_table, 4); }

#include "format/kernels_body.h"

const nb_kernels nb_kernels_avx512 = NB_KERNELS("avx512");
#else
extern int nb_kernels_avx512_absent;
int nb_kernels_avx512_absent;
#endif
