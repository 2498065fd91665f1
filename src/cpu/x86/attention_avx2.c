/* Tier avx2 of attn_tiles: one 16-row tile, as two halves of eight rows, by R vectors. Each output half has an even and
 * an odd chain in registers for one group of 32 k: with three vectors 12 chains, two weights and a broadcast in the 16
 * registers. The running sums lie in memory and are touched once per group.
 *
 * BF16: word w of a group = k 2w (low half), 2w + 1; F32: vectors 2w and 2w + 1. x is fp32.
 */
#include "cpu/kernels.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { R_MAX = 3 };

/* Eight rows of the even (odd) k of word w. */
INLINE __m256 load_half(const uint8_t *g, int w, int half, bool odd, bool f32)
{
    if (f32) return _mm256_loadu_ps((const float *)(const void *)(g + w * 128 + (odd ? 64 : 0) + half * 32));
    __m256i v = _mm256_loadu_si256((const void *)(g + w * 64 + half * 32));
    return _mm256_castsi256_ps(odd ? _mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u))
                                   : _mm256_slli_epi32(v, 16));
}

/* Tile t, R vectors from vector r0. */
INLINE void tile_block(const nb_attn_job *j, int32_t t, int32_t r0, const int R, const bool f32)
{
    const size_t group_bytes = f32 ? 2048 : 1024;
    const uint8_t *w = j->w + (size_t)t * j->tile_stride, *ahead = j->ahead + (size_t)t * j->tile_stride;
    const float *x = j->x + (size_t)r0 * j->x_stride;
    for (int32_t g = 0; g < j->groups; g++, w += group_bytes, ahead += group_bytes, x += 32) {
        __m256 even[R_MAX][2], odd[R_MAX][2];
#pragma GCC unroll 3
        for (int r = 0; r < R; r++) even[r][0] = even[r][1] = odd[r][0] = odd[r][1] = _mm256_setzero_ps();
        for (int v = 0; v < 16; v++) {
            const float *q = x + 2 * v;
            if (r0 == 0) _mm_prefetch((const char *)ahead + v * (f32 ? 128 : 64), _MM_HINT_T0);
            __m256 k0 = load_half(w, v, 0, false, f32), k1 = load_half(w, v, 1, false, f32);
#pragma GCC unroll 3
            for (int r = 0; r < R; r++) {
                __m256 b = _mm256_broadcast_ss(q + (size_t)r * j->x_stride);
                even[r][0] = _mm256_fmadd_ps(k0, b, even[r][0]);
                even[r][1] = _mm256_fmadd_ps(k1, b, even[r][1]);
            }
            k0 = load_half(w, v, 0, true, f32), k1 = load_half(w, v, 1, true, f32);
#pragma GCC unroll 3
            for (int r = 0; r < R; r++) {
                __m256 b = _mm256_broadcast_ss(q + (size_t)r * j->x_stride + 1);
                odd[r][0] = _mm256_fmadd_ps(k0, b, odd[r][0]);
                odd[r][1] = _mm256_fmadd_ps(k1, b, odd[r][1]);
            }
        }
#pragma GCC unroll 3
        for (int r = 0; r < R; r++)
            for (int h = 0; h < 2; h++) {
                float *a = j->acc + (size_t)(r0 + r) * j->acc_stride + t * 16 + h * 8;
                _mm256_storeu_ps(a, _mm256_add_ps(_mm256_loadu_ps(a), _mm256_add_ps(even[r][h], odd[r][h])));
            }
    }
}

INLINE void tiles_of(const nb_attn_job *j, const bool f32)
{
    for (int32_t t = 0; t < j->tiles; t++) {
        int32_t r = 0;
        for (; r + R_MAX <= j->rows; r += R_MAX) tile_block(j, t, r, R_MAX, f32);
        if (j->rows - r == 2) tile_block(j, t, r, 2, f32);
        if (j->rows - r == 1) tile_block(j, t, r, 1, f32);
    }
}

static void tiles_bf16(const nb_attn_job *j) { tiles_of(j, false); }
static void tiles_f32(const nb_attn_job *j) { tiles_of(j, true); }

void nb_attention_avx2(nb_kernels *k)
{
    k->attn_tiles[0] = tiles_bf16;
    k->attn_tiles[1] = tiles_f32;
}
