/* cpu/linear_blocked: the product for many rows, driven by a tier's three inner functions. Internal to src/cpu.
 *
 * A panel holds NB_PANEL_K k of one or two row tiles as fp32, in the order that the inner loop reads: for each k, 16 weights of the first tile, then 16 of the second.
 */
#ifndef NB_CPU_LINEAR_BLOCKED_H
#define NB_CPU_LINEAR_BLOCKED_H

#include "cpu/linear.h"

enum {
    NB_PANEL_BLOCKS = 4, NB_PANEL_K = NB_PANEL_BLOCKS * NB_BLOCK, /* a multiple of every group */
    NB_MAX_PANEL_TILES = 2,
    NB_ROWS_AT_ONCE = 256,  /* rows of x; their fp32 copy of one panel's K takes 128 KiB of L2 */
    NB_TILES_AT_ONCE = 32,  /* row tiles whose accumulators stay in L2 meanwhile, 512 KiB */
};

/* One call of the inner loop: `tiles` row tiles of a panel times `cols` rows of x. */
typedef struct nb_micro {
    const float *panel;
    const float *x;       /* [cols][NB_PANEL_K] */
    int blocks;           /* of 32 k, at most NB_PANEL_BLOCKS */
    int per_group;        /* 0: not grouped */
    const float *s, *z;   /* grouped: [group][tiles][16]; z NULL without biases */
    const float *sums;    /* sums[c * sums_stride + group]: A of design.md 4 */
    size_t sums_stride;
    float *acc;           /* acc[t * acc_stride + c * 16 + r] */
    size_t acc_stride;
} nb_micro;

typedef struct nb_blocked {
    int tiles, cols; /* most that `micro` takes */
    /* Blocks [b0, b0 + blocks) of a tile into panel (lane t of `tiles`); per-group factors into s, z [group][tiles][16] */
    void (*decode[NB_FORMAT_COUNT])(const nb_lin_geom *g, const uint8_t *tile, int64_t b0, int blocks, int tiles, float *panel, float *s, float *z);
    void (*micro)(const nb_micro *m, int tiles, int cols);
    void (*expand)(const void *x, bool f32, float *out, int blocks); /* 32 values each */
    /* Epilogue of tile t over rows [row0, row0 + rows): acc is [rows][16] */
    void (*finish)(const nb_linear_job *j, int64_t tile, int32_t row0, int32_t rows, const float *acc);
} nb_blocked;

void nb_linear_blocked(const nb_blocked *ops, const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch);
size_t nb_linear_blocked_scratch(int64_t max_k, int32_t max_rows);
/* sums[i * groups + g] of rows [row0, row0 + rows): tile order with weights one. */
void nb_linear_sums(const nb_linear_job *j, const nb_lin_geom *g, int32_t row0, int32_t rows, float *sums);

#endif
