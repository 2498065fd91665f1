/* linear_gemv_avx512: one to four rows of x with AVX-512. Weights go from memory to registers; several row tiles run side by side, so that loads of x and
 * chains are shared out, and each tile is its own stream with its own prefetch.
 */
#include "cpu/x86/linear_x86.h"
#include "cpu/x86/quad_avx512.h"

enum { DIRECT_COLS = 4, MAX_TILES = 4 };

/* One call: `tiles` row tiles side by side, all of K. */
typedef struct gemv {
    nb_lin_geom g;
    const nb_linear_job *j;
    int64_t tile;
    const float *x;     /* [cols][x_stride] fp32 */
    size_t x_stride;
    const float *table; /* FP4, one row in bf16: 16 products per k */
    const float *sums;  /* [cols][groups] */
} gemv;

/* Lines of a stream that lie ahead of it; past the end of its tile they are those of the tile that the stream takes next. */
NB_INLINE void prefetch(nb_format f, const gemv *v, const uint8_t *const base[], int tiles, size_t at, size_t bytes)
{
    at += nb_lin_ahead(f);
    if (at >= v->j->tile_bytes) at += (size_t)(tiles - 1) * v->j->tile_bytes;
#pragma GCC unroll 4
    for (int r = 0; r < tiles; r++)
#pragma GCC unroll 16
        for (size_t i = 0; i < bytes; i += 64) _mm_prefetch((const char *)base[r] + at + i, NB_PREFETCH_HINT);
}

/* even and odd chains of one block of each tile; even[r * cols + c]. */
NB_INLINE void chains(nb_format f, const nb_luts *l, const uint8_t *const block[], const float *x, size_t x_stride, int tiles, int cols, __m512 *even, __m512 *odd)
{
    __m512 scale[MAX_TILES], w[4];
#pragma GCC unroll 8
    for (int q = 0; q < 8; q++) {
#pragma GCC unroll 4
        for (int r = 0; r < tiles; r++) {
            if (f == NB_INT8) {
                nb_quad_int8_unshifted(nb_once(_mm512_loadu_si512(block[r] + 64 * q)), w);
            } else {
                if (nb_scaled(f) && q % 4 == 0) scale[r] = nb_block_scales(f, block[r], q);
                nb_quad(f, l, nb_quad_codes(f, block[r], q), nb_quad_index(f, q), w);
            }
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                __m512 weight = nb_scaled(f) ? _mm512_mul_ps(w[i], scale[r]) : w[i];
#pragma GCC unroll 4
                for (int c = 0; c < cols; c++) {
                    __m512 *chain = i % 2 ? &odd[r * cols + c] : &even[r * cols + c];
                    *chain = _mm512_fmadd_ps(weight, _mm512_set1_ps(x[(size_t)c * x_stride + (size_t)(4 * q + i)]), *chain);
                }
            }
        }
    }
}

/* The same for FP4 and one bf16 row: code times activation comes from the table, the scale is the other factor. */
NB_INLINE void table_chains(nb_format f, const uint8_t *const block[], const float *table, int tiles, __m512 *even, __m512 *odd)
{
    __m512 scale[MAX_TILES];
#pragma GCC unroll 16
    for (int pair = 0; pair < 16; pair++, table += 2 * 16) {
        const __m512 product0 = _mm512_load_ps(table), product1 = _mm512_load_ps(table + 16);
        const size_t at = f == NB_NVFP4 ? (size_t)(pair / 8 * 144 + pair % 8 / 4 * 64 + pair % 4) : (size_t)(pair / 4 * 64 + pair % 4);
#pragma GCC unroll 4
        for (int r = 0; r < tiles; r++) {
            __m512i v = nb_once(_mm512_loadu_si512(block[r] + at));
            if (pair % 8 == 0) scale[r] = nb_block_scales(f, block[r], pair / 2);
            even[r] = _mm512_fmadd_ps(_mm512_permutexvar_ps(v, product0), scale[r], even[r]);
            odd[r] = _mm512_fmadd_ps(_mm512_permutexvar_ps(_mm512_srli_epi32(v, 4), product1), scale[r], odd[r]);
        }
    }
}

NB_INLINE void rows(nb_format f, const gemv *v, bool table, const int tiles, const int cols)
{
    const nb_lin_geom *g = &v->g;
    const nb_luts luts = nb_luts_of(f);
    const size_t block_bytes = nb_lin_block_bytes(f);
    __m512 acc[MAX_TILES * DIRECT_COLS], t[MAX_TILES * DIRECT_COLS], even[MAX_TILES * DIRECT_COLS], odd[MAX_TILES * DIRECT_COLS];
    const uint8_t *base[MAX_TILES], *block[MAX_TILES];
#pragma GCC unroll 16
    for (int i = 0; i < tiles * cols; i++) acc[i] = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int r = 0; r < tiles; r++) base[r] = v->j->data + (size_t)(v->tile + r) * v->j->tile_bytes;

    int32_t b = 0;
    for (int32_t group = 0; group < g->groups; group++) {
        size_t at = (size_t)group * g->group_bytes;
        if (nb_is_affine(f)) {
            prefetch(f, v, base, tiles, at + g->scale_at, 64);
            if (g->scale_dtype == NB_DT_F32) prefetch(f, v, base, tiles, at + g->scale_at + 64, 64);
#pragma GCC unroll 16
            for (int i = 0; i < tiles * cols; i++) t[i] = _mm512_setzero_ps();
        }
        for (int32_t n = 0; n < (nb_is_affine(f) ? g->per_group : 1); n++, b++, at += block_bytes) {
            prefetch(f, v, base, tiles, at, block_bytes);
#pragma GCC unroll 4
            for (int r = 0; r < tiles; r++) block[r] = base[r] + at;
#pragma GCC unroll 16
            for (int i = 0; i < tiles * cols; i++) even[i] = odd[i] = _mm512_setzero_ps();
            if (table) table_chains(f, block, v->table + (size_t)b * NB_BLOCK * 16, tiles, even, odd);
            else chains(f, &luts, block, v->x + (size_t)b * NB_BLOCK, v->x_stride, tiles, cols, even, odd);
#pragma GCC unroll 16
            for (int i = 0; i < tiles * cols; i++) {
                __m512 *sum = nb_is_affine(f) ? &t[i] : &acc[i];
                *sum = _mm512_add_ps(*sum, _mm512_add_ps(even[i], odd[i]));
            }
        }
        if (!nb_is_affine(f)) continue;
#pragma GCC unroll 4
        for (int r = 0; r < tiles; r++) {
            const uint8_t *p = base[r] + (size_t)group * g->group_bytes;
            const __m512 s = nb_factors(p + g->scale_at, g->scale_dtype), z = nb_factors(p + g->bias_at, g->scale_dtype);
#pragma GCC unroll 4
            for (int c = 0; c < cols; c++) {
                acc[r * cols + c] = _mm512_fmadd_ps(s, t[r * cols + c], acc[r * cols + c]);
                acc[r * cols + c] = _mm512_fmadd_ps(z, _mm512_set1_ps(v->sums[(size_t)c * (size_t)g->groups + (size_t)group]), acc[r * cols + c]);
            }
        }
    }
    float out[MAX_TILES * DIRECT_COLS * NB_TILE] __attribute__((aligned(64)));
#pragma GCC unroll 16
    for (int i = 0; i < tiles * cols; i++) _mm512_store_ps(out + i * NB_TILE, acc[i]);
    for (int r = 0; r < tiles; r++) nb_finish_avx512(v->j, v->tile + r, 0, cols, out + r * cols * NB_TILE);
}

/* 16 products of every value of x with the codes' values. */
static void fill_table(nb_format f, const float *x, size_t n, float *table)
{
    const __m512 value = nb_luts_of(f).value;
    for (size_t k = 0; k < n; k++) _mm512_store_ps(table + 16 * k, _mm512_mul_ps(value, _mm512_set1_ps(x[k])));
}

/* Scratch of a direct call: x, sums, table. */
static size_t direct_scratch(int64_t max_k)
{
    size_t kp = (size_t)(max_k + 31) / 32 * 32;
    return (DIRECT_COLS * (kp + kp / 32 + 16) + 16 * kp) * sizeof(float);
}

/* Expands x, sums it where biases want that, and fills the table where there is one. int8: codes stay where they lie in their word, so x is divided by
 * 2^8, 2^16, 2^24 instead; both are exact for a bf16 x of the domain. */
static gemv prepare(nb_format f, const nb_linear_job *j, bool table, float *scratch)
{
    gemv v = {.g = nb_lin_geometry(j->type, j->k), .j = j, .x = scratch};
    v.x_stride = (size_t)v.g.blocks * NB_BLOCK;
    for (int32_t c = 0; c < j->rows; c++) nb_expand_avx512((const char *)j->x + (size_t)c * j->x_stride, j->f32, scratch + (size_t)c * v.x_stride, v.g.blocks);
    float *next = scratch + DIRECT_COLS * v.x_stride;
    if (v.g.biased) nb_linear_sums(j, &v.g, 0, j->rows, next);
    v.sums = next;
    next += NB_ALIGN_UP((size_t)DIRECT_COLS * (size_t)v.g.groups, 16);
    if (table) fill_table(f, v.x, v.x_stride, next);
    v.table = next;
    if (f == NB_INT8) nb_lin_unshift(scratch, (size_t)j->rows * v.x_stride, 0x1p-24f);
    return v;
}

/* TILES1: row tiles side by side with one row of x; two otherwise. TABLE: products from a table when x is bf16. ANY_X: float32 mode too. */
#define DIRECT(f, name, TILES1, TABLE, ANY_X)                                                     \
    static void name##_1(gemv *v, int64_t tile1)                                              \
    {                                                                                         \
        for (; v->tile + TILES1 <= tile1; v->tile += TILES1) rows(f, v, TABLE, TILES1, 1);    \
        for (; v->tile < tile1; v->tile++) rows(f, v, TABLE, 1, 1);                           \
    }                                                                                         \
    static void name##_2(gemv *v, int64_t tile1)                                              \
    {                                                                                         \
        for (; v->tile + 2 <= tile1; v->tile += 2) rows(f, v, false, 2, 2);                   \
        for (; v->tile < tile1; v->tile++) rows(f, v, false, 1, 2);                           \
    }                                                                                         \
    static void name##_3(gemv *v, int64_t tile1)                                              \
    {                                                                                         \
        for (; v->tile + 2 <= tile1; v->tile += 2) rows(f, v, false, 2, 3);                   \
        for (; v->tile < tile1; v->tile++) rows(f, v, false, 1, 3);                           \
    }                                                                                         \
    static void name##_4(gemv *v, int64_t tile1)                                              \
    {                                                                                         \
        for (; v->tile + 2 <= tile1; v->tile += 2) rows(f, v, false, 2, 4);                   \
        for (; v->tile < tile1; v->tile++) rows(f, v, false, 1, 4);                           \
    }                                                                                         \
    static void name(const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch)     \
    {                                                                                         \
        static void (*const by_rows[])(gemv *, int64_t) = {name##_1, name##_2, name##_3, name##_4}; \
        if (j->rows > DIRECT_COLS || (j->f32 && !ANY_X)) {                                     \
            nb_linear_blocked_avx512(j, tile0, tile1, scratch);                               \
            return;                                                                           \
        }                                                                                     \
        gemv v = prepare(f, j, TABLE && j->rows == 1, scratch);                               \
        v.tile = tile0;                                                                       \
        by_rows[j->rows - 1](&v, tile1);                                                      \
    }
DIRECT(NB_BF16, direct_bf16, 4, false, true)
DIRECT(NB_NVFP4, direct_nvfp4, 4, true, false)
DIRECT(NB_MXFP4, direct_mxfp4, 4, true, false)
DIRECT(NB_MXFP8, direct_mxfp8, 2, false, true)
DIRECT(NB_INT4, direct_int4, 4, false, true)
DIRECT(NB_INT8, direct_int8, 4, false, false)

static size_t scratch_bytes(int64_t max_k, int32_t max_rows)
{
    size_t direct = direct_scratch(max_k), blocked = nb_linear_blocked_scratch(max_k, max_rows);
    return direct > blocked ? direct : blocked;
}

void nb_linear_avx512(nb_kernels *k)
{
    static nb_linear_fn *const direct[NB_FORMAT_COUNT] = {[NB_BF16] = direct_bf16, [NB_NVFP4] = direct_nvfp4, [NB_MXFP4] = direct_mxfp4, [NB_MXFP8] = direct_mxfp8,
        [NB_INT4] = direct_int4, [NB_INT8] = direct_int8};
    for (int f = 0; f < NB_FORMAT_COUNT; f++)
        for (int mode = 0; mode < 2; mode++) k->linear[f][mode] = direct[f] ? direct[f] : nb_linear_blocked_avx512;
    k->linear_scratch = scratch_bytes;
}
