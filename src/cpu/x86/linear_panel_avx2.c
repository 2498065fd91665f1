/* linear_panel_avx2: many rows of x with AVX2: panels of one row tile, three columns at a time, 12 chains in registers. */
#include "cpu/x86/linear_x86.h"
#include "cpu/x86/quad_avx2.h"

NB_INLINE void decode(nb_format f, const nb_lin_geom *g, const uint8_t *tile, int64_t b0, int blocks, float *panel, float *s, float *z)
{
    for (int b = 0; b < blocks; b++, panel += NB_BLOCK * NB_TILE) {
        const uint8_t *block = nb_lin_codes(g, tile, b0 + b);
        for (int half = 0; half < 2; half++) {
            __m256 scale = _mm256_setzero_ps(), w[4];
#pragma GCC unroll 8
            for (int q = 0; q < 8; q++) {
                if (nb_scaled(f) && q % 4 == 0) scale = nb_block_scales(f, block, half, q);
                nb_quad(f, block, half, q, w);
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) _mm256_store_ps(panel + (4 * q + i) * NB_TILE + 8 * half, nb_scaled(f) ? _mm256_mul_ps(w[i], scale) : w[i]);
            }
            if (!nb_is_affine(f) || b % g->per_group) continue;
            const uint8_t *group = nb_lin_group(g, tile, b0 + b);
            size_t at = (size_t)(b / g->per_group) * NB_TILE + (size_t)half * 8;
            _mm256_store_ps(s + at, nb_factors(group + g->scale_at, g->scale_dtype, half));
            _mm256_store_ps(z + at, nb_factors(group + g->bias_at, g->scale_dtype, half));
        }
    }
}

#define DECODE(f, name)                                                                                                               \
    static void name(const nb_lin_geom *g, const uint8_t *tile, int64_t b0, int blocks, int tiles, float *panel, float *s, float *z) \
    {                                                                                                                                 \
        (void)tiles;                                                                                                                  \
        decode(f, g, tile, b0, blocks, panel, s, z);                                                                                  \
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

/* A group is complete in t[column][half]: acc = fma(s, t, acc), then fma(z, A, acc). */
NB_INLINE void apply_group(const nb_micro *m, int cols, int group, const __m256 *t)
{
    for (int c = 0; c < cols; c++)
        for (int half = 0; half < 2; half++) {
            float *acc = m->acc + c * NB_TILE + 8 * half;
            size_t at = (size_t)group * NB_TILE + (size_t)half * 8;
            __m256 v = _mm256_fmadd_ps(_mm256_load_ps(m->s + at), t[2 * c + half], _mm256_load_ps(acc));
            if (m->z) v = _mm256_fmadd_ps(_mm256_load_ps(m->z + at), _mm256_set1_ps(m->sums[(size_t)c * m->sums_stride + (size_t)group]), v);
            _mm256_store_ps(acc, v);
        }
}

/* Even and odd chains of one tile x `cols` results over each block. */
NB_INLINE void micro(const nb_micro *m, const int cols)
{
    __m256 t[6]; /* grouped: the group's sums so far */
#pragma GCC unroll 6
    for (int i = 0; i < 2 * cols; i++) t[i] = _mm256_setzero_ps();
    for (int b = 0; b < m->blocks; b++) {
        __m256 chain[2][6];
#pragma GCC unroll 6
        for (int i = 0; i < 2 * cols; i++) chain[0][i] = chain[1][i] = _mm256_setzero_ps();
        const float *w = m->panel + (size_t)b * NB_BLOCK * NB_TILE, *x = m->x + b * NB_BLOCK;
        for (int k = 0; k < NB_BLOCK; k += 2, w += 2 * NB_TILE, x += 2)
#pragma GCC unroll 2
            for (int odd = 0; odd < 2; odd++) {
                const __m256 v0 = _mm256_load_ps(w + odd * NB_TILE), v1 = _mm256_load_ps(w + odd * NB_TILE + 8);
#pragma GCC unroll 3
                for (int c = 0; c < cols; c++) {
                    const __m256 a = _mm256_broadcast_ss(x + c * NB_PANEL_K + odd);
                    chain[odd][2 * c] = _mm256_fmadd_ps(v0, a, chain[odd][2 * c]);
                    chain[odd][2 * c + 1] = _mm256_fmadd_ps(v1, a, chain[odd][2 * c + 1]);
                }
            }
#pragma GCC unroll 6
        for (int i = 0; i < 2 * cols; i++) {
            __m256 sum = _mm256_add_ps(chain[0][i], chain[1][i]);
            float *acc = m->acc + i * 8;
            if (m->per_group) t[i] = _mm256_add_ps(t[i], sum);
            else _mm256_store_ps(acc, _mm256_add_ps(_mm256_load_ps(acc), sum));
        }
        if (!m->per_group || ((b + 1) % m->per_group && b + 1 < m->blocks)) continue;
        apply_group(m, cols, b / m->per_group, t);
#pragma GCC unroll 6
        for (int i = 0; i < 2 * cols; i++) t[i] = _mm256_setzero_ps();
    }
}

static void micro_any(const nb_micro *m, int tiles, int cols)
{
    (void)tiles;
    switch (cols) {
    case 1: micro(m, 1); break;
    case 2: micro(m, 2); break;
    default: micro(m, 3); break;
    }
}

void nb_expand_avx2(const void *x, bool f32, float *out, int blocks)
{
    for (int i = 0; i < blocks * 4; i++) {
        __m256 v;
        if (f32) v = _mm256_loadu_ps((const float *)x + 8 * i);
        else v = nb_factors((const uint8_t *)x + 16 * i, NB_DT_BF16, 0);
        _mm256_store_ps(out + 8 * i, v);
    }
}

/* The last tile of a matrix may have fewer than 16 rows. */
static void finish_part(const nb_linear_job *j, int64_t n, int32_t row0, int32_t rows, const float *acc)
{
    for (int32_t i = row0; i < row0 + rows; i++, acc += NB_TILE)
        for (int64_t r = 0; n + r < j->n; r++) {
            float v = acc[r] * (j->row_scale ? j->row_scale[n + r] : j->multiplier);
            if (j->bias) v += j->bias[n + r];
            if (j->residual) v += j->residual[(size_t)i * j->residual_stride + (size_t)(n + r)];
            j->y[(size_t)i * j->y_stride + (size_t)(n + r)] = v;
        }
}

void nb_finish_avx2(const nb_linear_job *j, int64_t tile, int32_t row0, int32_t rows, const float *acc)
{
    const int64_t n = tile * NB_TILE;
    if (j->n - n < NB_TILE) {
        finish_part(j, n, row0, rows, acc);
        return;
    }
    for (int32_t i = row0; i < row0 + rows; i++, acc += NB_TILE)
        for (int half = 0; half < 16; half += 8) {
            __m256 v = _mm256_mul_ps(_mm256_load_ps(acc + half), j->row_scale ? _mm256_loadu_ps(j->row_scale + n + half) : _mm256_set1_ps(j->multiplier));
            if (j->bias) v = _mm256_add_ps(v, _mm256_loadu_ps(j->bias + n + half));
            if (j->residual) v = _mm256_add_ps(v, _mm256_loadu_ps(j->residual + (size_t)i * j->residual_stride + n + half));
            _mm256_storeu_ps(j->y + (size_t)i * j->y_stride + n + half, v);
        }
}

static const nb_blocked ops = {
    .tiles = 1, .cols = 3, .micro = micro_any, .expand = nb_expand_avx2, .finish = nb_finish_avx2,
    .decode = {[NB_F32] = decode_f32, [NB_F16] = decode_f16, [NB_BF16] = decode_bf16, [NB_NVFP4] = decode_nvfp4, [NB_MXFP4] = decode_mxfp4, [NB_MXFP8] = decode_mxfp8,
        [NB_INT2] = decode_int2, [NB_INT3] = decode_int3, [NB_INT4] = decode_int4, [NB_INT5] = decode_int5, [NB_INT6] = decode_int6, [NB_INT8] = decode_int8,
        [NB_FP8_TENSOR] = decode_fp8, [NB_FP8_CHANNEL] = decode_fp8, [NB_FP8_BLOCK] = decode_fp8},
};

void nb_linear_blocked_avx2(const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch) { nb_linear_blocked(&ops, j, tile0, tile1, scratch); }
