/* cpu/linear: what the product kernels of all tiers share. Internal to src/cpu.
 *
 * A product is cut into blocks of 32 consecutive k. Inside one, the even and the odd k form two FMA chains from +0; their sum is added to the accumulator
 * (tile order, design.md 4). In rows16 a block is `bits` vectors of 64 bytes, vector w holding word w of the rows 0..15.
 *
 * `grouped` formats (affine, FP8 with 128x128 scales) sum codes over a group into t first, then acc = fma(s, t, acc) and, affine only, acc = fma(z, A, acc),
 * A being the group's sum of activations in the same order.
 */
#ifndef NB_CPU_LINEAR_H
#define NB_CPU_LINEAR_H

#include "cpu/kernels.h"

enum { NB_BLOCK = 32, NB_TILE = 16, NB_FP8_SCALE_BLOCK = 128 };

typedef struct nb_lin_geom {
    nb_format format;
    uint8_t scale_dtype;
    int bits;
    int32_t blocks;     /* of 32 k, the last one padded */
    int32_t per_group;  /* blocks that share one scale; 1 where each block stands alone */
    int32_t groups;     /* ceil(blocks / per_group) */
    size_t group_bytes; /* from one group of a tile to the next */
    size_t scale_at, bias_at; /* inside a group */
    bool grouped, biased;
} nb_lin_geom;

static inline bool nb_is_affine(nb_format f) { return f >= NB_INT2 && f <= NB_INT8; }

static inline nb_lin_geom nb_lin_geometry(nb_qtype type, int64_t k)
{
    nb_lin_geom g = {.format = (nb_format)type.format, .scale_dtype = type.scale_dtype, .bits = nb_format_info((nb_format)type.format)->bits, .per_group = 1};
    size_t block_bytes = (size_t)g.bits * 64, scale = 0;
    g.blocks = (int32_t)((k + NB_BLOCK - 1) / NB_BLOCK);
    if (nb_is_affine(g.format)) {
        g.grouped = g.biased = true;
        g.per_group = type.group / NB_BLOCK;
        scale = type.scale_dtype == NB_DT_F32 ? 64 : 32;
    } else if (g.format == NB_FP8_BLOCK) {
        g.grouped = true;
        g.per_group = NB_FP8_SCALE_BLOCK / NB_BLOCK;
    } else if (g.format == NB_MXFP4 || g.format == NB_MXFP8) {
        scale = 16;
    } else if (g.format == NB_NVFP4) {
        scale = 32; /* two groups of 16: codes, scales, codes, scales */
    }
    g.groups = (g.blocks + g.per_group - 1) / g.per_group;
    g.scale_at = (size_t)g.per_group * block_bytes;
    g.bias_at = g.scale_at + scale;
    g.group_bytes = g.bias_at + (g.biased ? scale : 0);
    return g;
}

/* First code of block b in a tile, and the tile's group that b lies in. */
static inline const uint8_t *nb_lin_group(const nb_lin_geom *g, const uint8_t *tile, int64_t b) { return tile + (size_t)(b / g->per_group) * g->group_bytes; }
static inline const uint8_t *nb_lin_codes(const nb_lin_geom *g, const uint8_t *tile, int64_t b)
{
    return nb_lin_group(g, tile, b) + (size_t)(b % g->per_group) * (size_t)g->bits * 64;
}
static inline bool nb_lin_group_ends(const nb_lin_geom *g, int64_t b) { return (b + 1) % g->per_group == 0 || b + 1 == g->blocks; }

/* FP8 with 128x128 scales: the factor of the rows of `tile` at block b. */
static inline float nb_lin_block_scale(const nb_linear_job *j, int64_t tile, int64_t b)
{
    int64_t across = (j->k + NB_FP8_SCALE_BLOCK - 1) / NB_FP8_SCALE_BLOCK;
    return j->block_scale[tile * NB_TILE / NB_FP8_SCALE_BLOCK * across + b * NB_BLOCK / NB_FP8_SCALE_BLOCK];
}

/* The plain C kernels, built without and with FMA instructions from plain_linear.c; same bits. */
nb_linear_fn nb_linear_rows_base, nb_linear_rows_fma;
void nb_gather_row_base(const nb_weight *w, int64_t row, float *out);
void nb_gather_row_fma(const nb_weight *w, int64_t row, float *out);

#endif
