/* linear_panel_avx512: many rows of x with AVX-512: panels of two row tiles, six columns at a time, 24 chains in registers. */
#include "cpu/linear_blocked.h"
#include "cpu/x86/linear_x86.h"
#include "cpu/x86/quad_avx512.h"

NB_INLINE void decode(nb_format f, const nb_lin_geom *g, const uint8_t *tile, int64_t b0, int blocks, int tiles, float *panel, float *s, float *z)
{
    const nb_luts luts = nb_luts_of(f);
    const size_t step = (size_t)tiles * NB_TILE;
    for (int b = 0; b < blocks; b++) {
        const uint8_t *block = nb_lin_codes(g, tile, b0 + b);
        __m512 scale = _mm512_setzero_ps(), w[4];
#pragma GCC unroll 8
        for (int q = 0; q < 8; q++) {
            if (nb_scaled(f) && q % 4 == 0) scale = nb_block_scales(f, block, q);
            nb_quad(f, &luts, nb_quad_codes(f, block, q), nb_quad_index(f, q), w);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++, panel += step) _mm512_store_ps(panel, nb_scaled(f) ? _mm512_mul_ps(w[i], scale) : w[i]);
        }
        if (!nb_is_affine(f) || b % g->per_group) continue;
        const uint8_t *group = nb_lin_group(g, tile, b0 + b);
        _mm512_store_ps(s + (size_t)(b / g->per_group) * step, nb_factors(group + g->scale_at, g->scale_dtype));
        _mm512_store_ps(z + (size_t)(b / g->per_group) * step, nb_factors(group + g->bias_at, g->scale_dtype));
    }
}

#define DECODE(f, name)                                                                                                                       \
    static void name(const nb_lin_geom *g, const uint8_t *tile, int64_t b0, int blocks, int tiles, float *panel, float *s, float *z)         \
    {                                                                                                                                         \
        decode(f, g, tile, b0, blocks, tiles, panel, s, z);                                                                                   \
    }
DECODE(NB_F32, decode_f32)
DECODE(NB_F16, decode_f16)
DECODE(NB_BF16, decode_bf16)
DECODE(NB_NVFP4, decode_nvfp4)
DECODE(NB_MXFP4, decode_mxfp4)
DECODE(NB_MXFP8, decode_mxfp8)
DECODE(NB_INT2, decode_int2)
DECODE(NB_INT3, decode_int3)
DECODE(NB_INT4, decode_int4)
DECODE(NB_INT5, decode_int5)
DECODE(NB_INT6, decode_int6)
DECODE(NB_INT8, decode_int8)
DECODE(NB_FP8_TENSOR, decode_fp8)

/* A group is complete in t: acc = fma(s, t, acc), then fma(z, A, acc). */
NB_INLINE void apply_group(const nb_micro *m, const int tiles, const int cols, int group, __m512 *t)
{
    const float *s = m->s + (size_t)group * (size_t)tiles * NB_TILE, *z = m->z ? m->z + (size_t)group * (size_t)tiles * NB_TILE : NULL, *sums = m->sums + group;
    const size_t sums_stride = m->sums_stride, acc_stride = m->acc_stride;
    float *acc = m->acc;
#pragma GCC unroll 12
    for (int i = 0; i < tiles * cols; i++) {
        const int c = i / tiles, r = i % tiles;
        float *at = acc + (size_t)r * acc_stride + c * NB_TILE;
        __m512 v = _mm512_fmadd_ps(_mm512_load_ps(s + r * NB_TILE), t[i], _mm512_load_ps(at));
        if (z) v = _mm512_fmadd_ps(_mm512_load_ps(z + r * NB_TILE), _mm512_set1_ps(sums[(size_t)c * sums_stride]), v);
        _mm512_store_ps(at, v);
        t[i] = _mm512_setzero_ps();
    }
}

/* Even and odd chains of `tiles` x `cols` results over each block; the sums go to the accumulators in memory once per block, or per group. */
NB_INLINE void micro(const nb_micro *m, const bool grouped, const int tiles, const int cols)
{
    __m512 t[12]; /* grouped: the group's sums so far */
    const int blocks = m->blocks, per_group = m->per_group;
    const size_t acc_stride = m->acc_stride;
    const float *w = m->panel, *x = m->x;
    float *const acc = m->acc;
#pragma GCC unroll 12
    for (int i = 0; i < tiles * cols; i++) t[i] = _mm512_setzero_ps();
    for (int b = 0, left = per_group, group = 0; b < blocks; b++) {
        __m512 chain[2][12];
#pragma GCC unroll 12
        for (int i = 0; i < tiles * cols; i++) chain[0][i] = chain[1][i] = _mm512_setzero_ps();
        for (const float *end = x + NB_BLOCK; x < end; x += 2)
#pragma GCC unroll 2
            for (int odd = 0; odd < 2; odd++, w += tiles * NB_TILE) {
                const __m512 v0 = _mm512_load_ps(w), v1 = _mm512_load_ps(w + (tiles - 1) * NB_TILE);
#pragma GCC unroll 6
                for (int c = 0; c < cols; c++) {
                    const __m512 a = _mm512_set1_ps(x[c * NB_PANEL_K + odd]);
                    chain[odd][c * tiles] = _mm512_fmadd_ps(v0, a, chain[odd][c * tiles]);
                    if (tiles == 2) chain[odd][c * tiles + 1] = _mm512_fmadd_ps(v1, a, chain[odd][c * tiles + 1]);
                }
            }
#pragma GCC unroll 12
        for (int i = 0; i < tiles * cols; i++) {
            const __m512 sum = _mm512_add_ps(chain[0][i], chain[1][i]);
            float *at = acc + (size_t)(i % tiles) * acc_stride + i / tiles * NB_TILE;
            if (grouped) t[i] = _mm512_add_ps(t[i], sum);
            else _mm512_store_ps(at, _mm512_add_ps(_mm512_load_ps(at), sum));
        }
        if (!grouped || (--left && b + 1 < blocks)) continue;
        apply_group(m, tiles, cols, group++, t);
        left = per_group;
    }
}

#define MICRO(tiles, cols)                                            \
    case tiles * 8 + cols:                                            \
        if (m->per_group) micro(m, true, tiles, cols);                \
        else micro(m, false, tiles, cols);                            \
        break
static void micro_any(const nb_micro *m, int tiles, int cols)
{
    switch (tiles * 8 + cols) {
        MICRO(2, 1);
        MICRO(2, 2);
        MICRO(2, 3);
        MICRO(2, 4);
        MICRO(2, 5);
        MICRO(2, 6);
        MICRO(1, 1);
        MICRO(1, 2);
        MICRO(1, 3);
        MICRO(1, 4);
        MICRO(1, 5);
        MICRO(1, 6);
    }
}

static void expand(const void *x, bool f32, float *out, int blocks)
{
    for (int i = 0; i < blocks * 2; i++) {
        __m512 v;
        if (f32) v = _mm512_loadu_ps((const float *)x + 16 * i);
        else v = nb_factors((const uint8_t *)x + 32 * i, NB_DT_BF16);
        _mm512_store_ps(out + 16 * i, v);
    }
}

void nb_expand_avx512(const void *x, bool f32, float *out, int blocks) { expand(x, f32, out, blocks); }

void nb_finish_avx512(const nb_linear_job *j, int64_t tile, int32_t row0, int32_t rows, const float *acc)
{
    const int64_t n = tile * NB_TILE;
    const __mmask16 in = j->n - n >= NB_TILE ? 0xffff : (__mmask16)((1u << (j->n - n)) - 1);
    const __m512 m = j->row_scale ? _mm512_maskz_loadu_ps(in, j->row_scale + n) : _mm512_set1_ps(j->multiplier);
    for (int32_t i = row0; i < row0 + rows; i++, acc += NB_TILE) {
        __m512 v = _mm512_mul_ps(_mm512_load_ps(acc), m);
        if (j->bias) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(in, j->bias + n));
        if (j->residual) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(in, j->residual + (size_t)i * j->residual_stride + n));
        _mm512_mask_storeu_ps(j->y + (size_t)i * j->y_stride + n, in, v);
    }
}

static const nb_blocked ops = {
    .tiles = 2, .cols = 6, .micro = micro_any, .expand = expand, .finish = nb_finish_avx512,
    .decode = {[NB_F32] = decode_f32, [NB_F16] = decode_f16, [NB_BF16] = decode_bf16, [NB_NVFP4] = decode_nvfp4, [NB_MXFP4] = decode_mxfp4, [NB_MXFP8] = decode_mxfp8,
        [NB_INT2] = decode_int2, [NB_INT3] = decode_int3, [NB_INT4] = decode_int4, [NB_INT5] = decode_int5, [NB_INT6] = decode_int6, [NB_INT8] = decode_int8,
        [NB_FP8_TENSOR] = decode_fp8, [NB_FP8_CHANNEL] = decode_fp8, [NB_FP8_BLOCK] = decode_fp8},
};

void nb_linear_blocked_avx512(const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch) { nb_linear_blocked(&ops, j, tile0, tile1, scratch); }
