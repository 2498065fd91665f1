/* Tier avx512 of attn_tiles: register tiles of T 16-row tiles by R vectors. Each output has an even and an odd chain in
 * registers for one group of 32 k; the running sums lie in memory (L1) and are touched once per group. 2 x 6 outputs
 * keep 24 chains, 4 weights and a broadcast in the 32 registers.
 *
 * BF16: word w of a group = k 2w (low half), 2w + 1; F32: vectors 2w and 2w + 1. x is fp32.
 */
#include "cpu/kernels.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))
enum { T_MAX = 4, R_MAX = 6 };

/* Even and odd k of word w of one tile's group. */
INLINE void load_pair(const uint8_t *g, int w, bool f32, __m512 *even, __m512 *odd)
{
    if (f32) {
        *even = _mm512_loadu_ps(g + w * 128);
        *odd = _mm512_loadu_ps(g + w * 128 + 64);
    } else {
        __m512i v = _mm512_loadu_si512(g + w * 64);
        *even = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
        *odd = _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000u)));
    }
}

/* T tiles from tile t0, R vectors from vector r0. */
INLINE void tile_block(const nb_attn_job *j, int32_t t0, int32_t r0, const int T, const int R, const bool f32)
{
    const size_t group_bytes = f32 ? 2048 : 1024, stride = j->tile_stride;
    const uint8_t *w = j->w + (size_t)t0 * stride, *ahead = j->ahead + (size_t)t0 * stride;
    const float *x = j->x + (size_t)r0 * j->x_stride;
    for (int32_t g = 0; g < j->groups; g++, w += group_bytes, ahead += group_bytes, x += 32) {
        __m512 even[T_MAX][R_MAX], odd[T_MAX][R_MAX];
#pragma GCC unroll 4
        for (int t = 0; t < T; t++)
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) even[t][r] = odd[t][r] = _mm512_setzero_ps();
        for (int v = 0; v < 16; v++) {
            __m512 e[T_MAX], o[T_MAX];
#pragma GCC unroll 4
            for (int t = 0; t < T; t++) {
                load_pair(w + (size_t)t * stride, v, f32, &e[t], &o[t]);
                /* Few vectors: memory is the limit. */
                if (R < R_MAX)
                    _mm_prefetch((const char *)ahead + (size_t)t * stride + v * (f32 ? 128 : 64), _MM_HINT_T0);
                if (R < R_MAX && f32)
                    _mm_prefetch((const char *)ahead + (size_t)t * stride + v * 128 + 64, _MM_HINT_T0);
            }
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) {
                const float *q = x + (size_t)r * j->x_stride + 2 * v;
                __m512 b0 = _mm512_set1_ps(q[0]), b1 = _mm512_set1_ps(q[1]);
#pragma GCC unroll 4
                for (int t = 0; t < T; t++) even[t][r] = _mm512_fmadd_ps(e[t], b0, even[t][r]);
#pragma GCC unroll 4
                for (int t = 0; t < T; t++) odd[t][r] = _mm512_fmadd_ps(o[t], b1, odd[t][r]);
            }
        }
#pragma GCC unroll 4
        for (int t = 0; t < T; t++)
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) {
                float *a = j->acc + (size_t)(r0 + r) * j->acc_stride + (size_t)(t0 + t) * 16;
                _mm512_storeu_ps(a, _mm512_add_ps(_mm512_loadu_ps(a), _mm512_add_ps(even[t][r], odd[t][r])));
            }
    }
}

/* All vectors against T tiles, R_MAX at a time. */
INLINE void rows_of(const nb_attn_job *j, int32_t t, const int T, const bool f32)
{
    int32_t r = 0;
    for (; r + R_MAX <= j->rows; r += R_MAX) tile_block(j, t, r, T, R_MAX, f32);
    switch (j->rows - r) {
    case 1: tile_block(j, t, r, T, 1, f32); break;
    case 2: tile_block(j, t, r, T, 2, f32); break;
    case 3: tile_block(j, t, r, T, 3, f32); break;
    case 4: tile_block(j, t, r, T, 4, f32); break;
    case 5: tile_block(j, t, r, T, 5, f32); break;
    default: break;
    }
}

/* One or two vectors take four tiles at a time, for enough independent chains. */
INLINE void tiles_of(const nb_attn_job *j, const bool f32)
{
    int32_t t = 0;
    if (j->rows == 1)
        for (; t + 4 <= j->tiles; t += 4) tile_block(j, t, 0, 4, 1, f32);
    if (j->rows == 2)
        for (; t + 4 <= j->tiles; t += 4) tile_block(j, t, 0, 4, 2, f32);
    for (; t + 2 <= j->tiles; t += 2) rows_of(j, t, 2, f32);
    if (t < j->tiles) rows_of(j, t, 1, f32);
}

static void tiles_bf16(const nb_attn_job *j) { tiles_of(j, false); }
static void tiles_f32(const nb_attn_job *j) { tiles_of(j, true); }

void nb_attention_avx512(nb_kernels *k)
{
    k->attn_tiles[0] = tiles_bf16;
    k->attn_tiles[1] = tiles_f32;
}
