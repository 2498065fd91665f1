/* cpu/kernels: the primitives of the CPU tiers. A struct of pointers is filled with plain C first, then overlaid by each tier up to the chosen one. Internal to src/cpu.
 *
 * Activations of products: x is [rows][kp], kp = K padded to 32 with +0; bf16 (uint16_t), or fp32 in float32 mode. All results are bit-equal over tiers (design.md 4).
 */
#ifndef NB_CPU_KERNELS_H
#define NB_CPU_KERNELS_H

#include "cpu/cpu.h"

/* y[r][i] for the 16-row tiles [tile0, tile1) and all rows: acc in tile order, then the epilogue acc*m (global or per row), + bias, + residual, each rounded once. */
typedef struct nb_linear_job {
    const uint8_t *data;     /* rows16 tiles */
    nb_qtype type;
    int64_t n, k;            /* logical; columns of y beyond n are not written */
    size_t tile_bytes;
    const void *x; size_t x_stride; /* bytes between rows */
    int32_t rows;
    float *y; size_t y_stride;      /* floats between rows */
    float multiplier; const float *row_scale, *block_scale, *bias;
    const float *residual; size_t residual_stride; /* NULL: none; may be y itself */
    bool f32;                /* x is fp32 */
} nb_linear_job;
typedef void nb_linear_fn(const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch);

/* acc[r][16 t + i] += the groups' partial sums, in tile order, of row i of tile t with x[r]: tiles of 16 rows, each `groups` groups of 32 k. */
typedef struct nb_attn_job {
    const uint8_t *w; size_t tile_stride; /* tile t at w + t * tile_stride, its groups one after another */
    int32_t tiles, groups;
    const float *x; size_t x_stride;      /* fp32 (but in float32 mode exact copies of bf16 values); strides in floats */
    int32_t rows;
    float *acc; size_t acc_stride;
    const uint8_t *ahead;                 /* what will be read next, laid out alike: a tier may prefetch it */
} nb_attn_job;

typedef struct nb_kernels {
    nb_tier tier;
    /* linear[format][0]: bf16 activations, [1]: float32 mode. scratch is the lane's own, linear_scratch(k, rows) bytes, 4096-aligned */
    nb_linear_fn *linear[NB_FORMAT_COUNT][2];
    size_t (*linear_scratch)(int64_t max_k, int32_t max_rows);
    /* gather one row of a ROWS16 or ROWS1 table as fp32: fma(q, s, z) or (code*s)*m */
    void (*gather_row)(const nb_weight *w, int64_t row, float *out);

    /* rounds n values to bf16 with the domain rule (|a| < 2^-100 gives +0; |a| > 2^100, inf, NaN give +0 and a true result), pads with +0 to n_pad */
    bool (*round_row)(const float *x, int64_t n, int64_t n_pad, uint16_t *out);
    bool (*round_row_f32)(const float *x, int64_t n, int64_t n_pad, float *out); /* float32 mode: only replaces what is out of domain */
    /* (x*r)*w over n values; w may be NULL; out may be x */
    void (*rms_norm)(const float *x, const float *w, int64_t n, float eps, float *out);
    /* f(gate) * up; up NULL: f(gate) */
    void (*glu)(const float *gate, const float *up, int64_t n, nb_act f, float *out);
    void (*rotate)(float *x, int64_t pairs, const float *cos, const float *sin, bool interleaved); /* x has at least 2*pairs values; half split: (i, i+pairs) */
    void (*softcap)(const float *x, int64_t n, float cap, float *out);
    void (*softmax)(float *x, int64_t n); /* router and head: max, nb_exp, sum in 16 accumulators, divide */
    /* the same rounding for q, k and v: below 2^-50 gives +0; [1]: float32 mode, out is float */
    bool (*round_kv[2])(const float *x, int64_t n, int64_t n_pad, void *out);
    void (*add)(const float *a, const float *b, int64_t n, float *out);
    void (*scale)(const float *x, int64_t n, float s, float *out);
    void (*fma_row)(float w, const float *x, int64_t n, float *y); /* y = fma(w, x, y) */

    /* ---- attention over blocks of 256 absolute slots (attention.c) ---- */
    /* Scores (rows of the tiles are slots) and p*V (rows are channels) alike. [0]: BF16 tiles, [1]: F32 */
    void (*attn_tiles[2])(const nb_attn_job *j);
    /* One query row in one block. s[from..to), multiples of 32, holds raw scores and gets p; keys [lo, hi) are seen, hi > lo. */
    void (*attn_softmax)(float *s, int32_t from, int32_t to, int32_t lo, int32_t hi, float scale, float cap, bool f32, float *m, float *l);
    /* o = fma(o, a, ob * c) */
    void (*attn_merge)(float *o, const float *ob, int64_t n, float a, float c);
    void (*attn_divide)(const float *o, int64_t n, float l, float *out); /* out = o / l */
    void (*widen)(const uint16_t *x, int64_t n, float *out);             /* bf16 to fp32 */
} nb_kernels;

/* Filled by nb_kernels_init(t): plain, then avx2, then avx512 as far as t goes. */
void nb_kernels_init(nb_kernels *k, nb_tier t);
void nb_linear_plain(nb_kernels *k);   /* linear_*.c: products and gather */
void nb_linear_avx2(nb_kernels *k);
void nb_linear_avx512(nb_kernels *k);
void nb_elementwise_plain(nb_kernels *k); /* the rest */
void nb_elementwise_avx2(nb_kernels *k);
void nb_elementwise_avx512(nb_kernels *k);
void nb_attention_plain(nb_kernels *k);
void nb_attention_avx2(nb_kernels *k);
void nb_attention_avx512(nb_kernels *k);
/* plain_*.c is compiled a second time with -mfma; these are that build's names, taken when the machine has FMA. */
void nb_elementwise_plain_fma(nb_kernels *k);
void nb_attention_plain_fma(nb_kernels *k);
#ifdef NB_PLAIN_FMA
#define NB_PLAIN(name) name##_fma
#else
#define NB_PLAIN(name) name
#endif

#endif
