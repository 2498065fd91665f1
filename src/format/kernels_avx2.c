/* The vector kernels with 8 lanes (AVX2, FMA, F16C, BMI2). */
#if defined(__x86_64__)
#include "format/kernels.h"

#include <immintrin.h>

#define LANES 8
typedef float vf __attribute__((vector_size(32)));
typedef int32_t vi __attribute__((vector_size(32)));

static inline vf vf_set(float x) { return (vf)_mm256_set1_ps(x); }
static inline vi vi_set(int32_t x) { return (vi)_mm256_set1_epi32(x); }
static inline vf vf_load(const float *p) { return (vf)_mm256_loadu_ps(p); }
static inline void vf_store(float *p, vf x) { _mm256_storeu_ps(p, (__m256)x); }
static inline vf vf_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
static inline vf vf_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
static inline vi vi_min(vi a, vi b) { return (vi)_mm256_min_epi32((__m256i)a, (__m256i)b); }
static inline vi vi_max(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
static inline int32_t vi_top(vi a)
{
    __m128i x = _mm_max_epi32(_mm256_castsi256_si128((__m256i)a), _mm256_extracti128_si256((__m256i)a, 1));
    x = _mm_max_epi32(x, _mm_shuffle_epi32(x, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(x, _mm_shuffle_epi32(x, 0xb1)));
}
static inline float vf_least(vf a)
{
    __m128 x = _mm_min_ps(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));
    x = _mm_min_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_min_ss(x, _mm_movehdup_ps(x)));
}
static inline float vf_greatest(vf a)
{
    __m128 x = _mm_max_ps(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
/* Adds the halves of the vector, then of the half: 4, 2, 1. */
static inline float vf_fold(vf a)
{
    __m128 x = _mm_add_ps(_mm256_castps256_ps128((__m256)a), _mm256_extractf128_ps((__m256)a, 1));
    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
static inline vf vf_rint(vf a) { return (vf)_mm256_round_ps((__m256)a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
static inline vf vf_fma(vf a, vf b, vf c) { return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
static inline vi vf_to_int(vf a) { return (vi)_mm256_cvttps_epi32((__m256)a); }
static inline vf int_to_vf(vi a) { return (vf)_mm256_cvtepi32_ps((__m256i)a); }

/* Eight 32-bit values below 65536 as 16 bits each. */
static inline __m128i halves(vi c)
{
    return _mm_packus_epi32(_mm256_castsi256_si128((__m256i)c), _mm256_extracti128_si256((__m256i)c, 1));
}
static inline void narrow(vi c, uint64_t eight[1])
{
    __m128i h = halves(c);
    eight[0] = (uint64_t)_mm_cvtsi128_si64(_mm_packus_epi16(h, h));
}
static inline vi widen(const uint64_t eight[1])
{
    return (vi)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)eight[0]));
}
static inline void narrow16(uint8_t *p, vi c) { _mm_storeu_si128((__m128i *)p, halves(c)); }
static inline vi load_u16(const uint8_t *p) { return (vi)_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)); }
static inline vf load_f16(const uint8_t *p) { return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
/* Stores LANES halves; false where one is infinite. */
static inline bool store_f16(uint8_t *p, vf x)
{
    __m128i h = _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i *)p, h);
    return _mm_movemask_epi8(_mm_cmpgt_epi16(_mm_and_si128(h, _mm_set1_epi16(0x7fff)), _mm_set1_epi16(0x7bff))) == 0;
}
static inline vf e2m1_decode(vi c)
{
    vi magnitude =
        (vi)_mm256_permutevar8x32_ps(_mm256_loadu_ps(nb_e2m1_table), (__m256i)c); /* low three bits of the code */
    return (vf)(magnitude | ((c & 8) << 28));
}
static inline vf gather_e4m3(vi c) { return (vf)_mm256_i32gather_epi32((const int *)nb_e4m3_table, (__m256i)c, 4); }

#include "format/kernels_body.h"

const nb_kernels nb_kernels_avx2 = NB_KERNELS("avx2");
#else
extern int nb_kernels_avx2_absent;
int nb_kernels_avx2_absent;
#endif
