/* linear_gemv_avx2: one or two rows of x with AVX2. Weights go from memory to registers; a unit is half a row tile, eight rows. */
#include "cpu/x86/linear_x86.h"
#include "cpu/x86/quad_avx2.h"

enum { DIRECT_COLS = 2, MAX_UNITS = 4, MAX_CHAINS = 4 };

/* One call: `tiles` row tiles side by side, all of K. */
typedef struct gemv {
    nb_lin_geom g;
    const nb_linear_job *j;
    int64_t tile;
    const float *x;     /* [cols][x_stride] fp32 */
    size_t x_stride;
    const float *table; /* FP4, one row in bf16: 8 products per k, bits flipped (quad_avx2.h) */
    const float *sums;  /* [cols][groups] */
} gemv;

/* Lines of a stream that lie ahead of it; past the end of its tile they are those of the tile that the stream takes next. */
NB_INLINE void prefetch(nb_format f, const gemv *v, const uint8_t *const base[], int tiles, size_t at, size_t bytes)
{
    at += nb_lin_ahead(f);
    if (at >= v->j->tile_bytes) at += (size_t)(tiles - 1) * v->j->tile_bytes;
    for (int r = 0; r < tiles; r++)
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)base[r] + at + i, NB_PREFETCH_HINT);
}

/* Even and odd chains of one block; chain i = unit * cols + column. */
NB_INLINE void chains(nb_format f, const uint8_t *const block[], const float *x, size_t x_stride, int units, int cols, __m256 *even, __m256 *odd)
{
    __m256 scale[MAX_UNITS], w[4];
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++) {
#pragma GCC unroll 4
        for (int u = 0; u < units; u++) {
            if (nb_scaled(f) && q % 4 == 0) scale[u] = nb_block_scales(f, block[u / 2], u % 2, q);
            if (f == NB_INT8) nb_quad_int8_unshifted(nb_load8(block[u / 2] + 32 * (u % 2) + 64 * q), w);
            else nb_quad(f, block[u / 2], u % 2, q, w);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __m256 weight = nb_scaled(f) ? _mm256_mul_ps(w[i], scale[u]) : w[i];
#pragma GCC unroll 2
                for (int c = 0; c < cols; c++) {
                    __m256 *chain = i % 2 ? &odd[u * cols + c] : &even[u * cols + c];
                    *chain = _mm256_fmadd_ps(weight, _mm256_broadcast_ss(x + (size_t)c * x_stride + (size_t)(4 * q + i)), *chain);
                }
            }
        }
    }
}

/* The same for FP4 and one bf16 row: code times activation comes from the table, the scale is the other factor. */
NB_INLINE void table_chains(nb_format f, const uint8_t *const block[], const float *table, int units, __m256 *even, __m256 *odd)
{
    __m256 scale[MAX_UNITS];
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; pair++, table += 2 * 8) {
        const __m256 product0 = _mm256_load_ps(table), product1 = _mm256_load_ps(table + 8);
        const size_t at = f == NB_NVFP4 ? (size_t)(pair / 8 * 144 + pair % 8 / 4 * 64 + pair % 4) : (size_t)(pair / 4 * 64 + pair % 4);
#pragma GCC unroll 4
        for (int u = 0; u < units; u++) {
            if (pair % 8 == 0) scale[u] = nb_block_scales(f, block[u / 2], u % 2, pair / 2);
            __m256i low = nb_load8(block[u / 2] + at + 32 * (u % 2)), high = _mm256_srli_epi32(low, 4);
            even[u] = _mm256_fmadd_ps(nb_e2m1_pick(product0, low), scale[u], even[u]);
            odd[u] = _mm256_fmadd_ps(nb_e2m1_pick(product1, high), scale[u], odd[u]);
        }
    }
}

/* A group of an affine format is complete in t. */
NB_INLINE void apply_group(const gemv *v, const uint8_t *const base[], int32_t group, int units, int cols, const __m256 *t, __m256 *acc)
{
    const nb_lin_geom *g = &v->g;
#pragma GCC unroll 4
    for (int u = 0; u < units; u++) {
        const uint8_t *p = base[u / 2] + (size_t)group * g->group_bytes;
        const __m256 s = nb_factors(p + g->scale_at, g->scale_dtype, u % 2), z = nb_factors(p + g->bias_at, g->scale_dtype, u % 2);
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++) {
            acc[u * cols + c] = _mm256_fmadd_ps(s, t[u * cols + c], acc[u * cols + c]);
            acc[u * cols + c] = _mm256_fmadd_ps(z, _mm256_broadcast_ss(&v->sums[(size_t)c * (size_t)g->groups + (size_t)group]), acc[u * cols + c]);
        }
    }
}

NB_INLINE void rows(nb_format f, const gemv *v, bool table, const int tiles, const int cols)
{
    const nb_lin_geom *g = &v->g;
    const size_t block_bytes = nb_lin_block_bytes(f);
    const int units = 2 * tiles, n = units * cols;
    __m256 acc[MAX_CHAINS], t[MAX_CHAINS], even[MAX_CHAINS], odd[MAX_CHAINS];
    const uint8_t *base[MAX_UNITS / 2], *block[MAX_UNITS / 2];
    for (int i = 0; i < n; i++) acc[i] = t[i] = _mm256_setzero_ps();
    for (int r = 0; r < tiles; r++) base[r] = v->j->data + (size_t)(v->tile + r) * v->j->tile_bytes;

    for (int32_t b = 0; b < g->blocks; b++) {
        const size_t at = nb_is_affine(f) ? (size_t)(nb_lin_codes(g, base[0], b) - base[0]) : (size_t)b * block_bytes;
        prefetch(f, v, base, tiles, at, block_bytes);
        for (int r = 0; r < tiles; r++) block[r] = base[r] + at;
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) even[i] = odd[i] = _mm256_setzero_ps();
        if (table) table_chains(f, block, v->table + (size_t)b * NB_BLOCK * 8, units, even, odd);
        else chains(f, block, v->x + (size_t)b * NB_BLOCK, v->x_stride, units, cols, even, odd);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) {
            __m256 *sum = nb_is_affine(f) ? &t[i] : &acc[i];
            *sum = _mm256_add_ps(*sum, _mm256_add_ps(even[i], odd[i]));
        }
        if (!nb_is_affine(f) || !nb_lin_group_ends(g, b)) continue;
        apply_group(v, base, b / g->per_group, units, cols, t, acc);
#pragma GCC unroll 4
        for (int i = 0; i < n; i++) t[i] = _mm256_setzero_ps();
    }
    float out[MAX_CHAINS * 8] __attribute__((aligned(64)));
    for (int r = 0; r < tiles; r++) {
        for (int c = 0; c < cols; c++)
            for (int half = 0; half < 2; half++) _mm256_store_ps(out + c * NB_TILE + half * 8, acc[(2 * r + half) * cols + c]);
        nb_finish_avx2(v->j, v->tile + r, 0, cols, out);
    }
}

static void fill_table(nb_format f, const float *x, size_t n, float *table)
{
    const __m256 value = nb_e2m1_magnitudes(f);
    for (size_t k = 0; k < n; k++) _mm256_store_ps(table + 8 * k, nb_e2m1_flipped(_mm256_mul_ps(value, _mm256_broadcast_ss(x + k))));
}

/* Scratch of a direct call: x, sums, table. */
static size_t direct_scratch(int64_t max_k)
{
    size_t kp = (size_t)(max_k + 31) / 32 * 32;
    return (DIRECT_COLS * (kp + kp / 32 + 16) + 8 * kp) * sizeof(float);
}

static gemv prepare(nb_format f, const nb_linear_job *j, bool table, float *scratch)
{
    gemv v = {.g = nb_lin_geometry(j->type, j->k), .j = j, .x = scratch};
    v.x_stride = (size_t)v.g.blocks * NB_BLOCK;
    for (int32_t c = 0; c < j->rows; c++) nb_expand_avx2((const char *)j->x + (size_t)c * j->x_stride, j->f32, scratch + (size_t)c * v.x_stride, v.g.blocks);
    float *next = scratch + DIRECT_COLS * v.x_stride;
    if (v.g.biased) nb_linear_sums(j, &v.g, 0, j->rows, next);
    v.sums = next;
    next += NB_ALIGN_UP((size_t)DIRECT_COLS * (size_t)v.g.groups, 16);
    if (table) fill_table(f, v.x, v.x_stride, next);
    v.table = next;
    if (f == NB_INT8) nb_lin_unshift(scratch, (size_t)j->rows * v.x_stride, 1); /* the last code of a word is shifted down */
    return v;
}

/* TABLE: products from a table when x is one bf16 row. ANY_X: float32 mode too. */
#define DIRECT(f, name, TABLE, ANY_X)                                                       \
    static void name##_1(gemv *v, int64_t tile1)                                            \
    {                                                                                       \
        for (; v->tile + 2 <= tile1; v->tile += 2) rows(f, v, TABLE, 2, 1);                 \
        if (v->tile < tile1) rows(f, v, TABLE, 1, 1);                                       \
    }                                                                                       \
    static void name##_2(gemv *v, int64_t tile1)                                            \
    {                                                                                       \
        for (; v->tile < tile1; v->tile++) rows(f, v, false, 1, 2);                         \
    }                                                                                       \
    static void name(const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch)   \
    {                                                                                       \
        if (j->rows > DIRECT_COLS || (j->f32 && !ANY_X)) {                                   \
            nb_linear_blocked_avx2(j, tile0, tile1, scratch);                               \
            return;                                                                         \
        }                                                                                   \
        gemv v = prepare(f, j, TABLE && j->rows == 1, scratch);                             \
        v.tile = tile0;                                                                     \
        if (j->rows == 1) name##_1(&v, tile1);                                              \
        else name##_2(&v, tile1);                                                           \
    }
DIRECT(NB_BF16, direct_bf16, false, true)
DIRECT(NB_NVFP4, direct_nvfp4, true, false)
DIRECT(NB_MXFP4, direct_mxfp4, true, false)
DIRECT(NB_MXFP8, direct_mxfp8, false, true)
DIRECT(NB_INT4, direct_int4, false, true)
DIRECT(NB_INT8, direct_int8, false, false)

static size_t scratch_bytes(int64_t max_k, int32_t max_rows)
{
    size_t direct = direct_scratch(max_k), blocked = nb_linear_blocked_scratch(max_k, max_rows);
    return direct > blocked ? direct : blocked;
}

void nb_linear_avx2(nb_kernels *k)
{
    static nb_linear_fn *const direct[NB_FORMAT_COUNT] = {[NB_BF16] = direct_bf16, [NB_NVFP4] = direct_nvfp4, [NB_MXFP4] = direct_mxfp4, [NB_MXFP8] = direct_mxfp8,
        [NB_INT4] = direct_int4, [NB_INT8] = direct_int8};
    for (int f = 0; f < NB_FORMAT_COUNT; f++)
        for (int mode = 0; mode < 2; mode++) k->linear[f][mode] = direct[f] ? direct[f] : nb_linear_blocked_avx2;
    k->linear_scratch = scratch_bytes;
}
