/* linear_blocked: loops of the product for many rows. Weights are decoded once per 256 rows of x, into a panel that stays in L1. */
#include "cpu/linear_blocked.h"

/* A lane's scratch, in floats. */
struct work {
    float *panel; /* [NB_PANEL_K][tiles][16] */
    float *s, *z; /* [NB_PANEL_BLOCKS][tiles][16] */
    float *x;     /* [rows at once][NB_PANEL_K] */
    float *acc;   /* [NB_TILES_AT_ONCE][rows at once][16] */
    float *sums;  /* [rows at once][groups] */
    size_t acc_stride;
};

enum { PANEL_FLOATS = NB_PANEL_K * NB_MAX_PANEL_TILES * NB_TILE, FACTOR_FLOATS = NB_PANEL_BLOCKS * NB_MAX_PANEL_TILES * NB_TILE, FINISH_ROWS = 8 };

size_t nb_linear_blocked_scratch(int64_t max_k, int32_t max_rows)
{
    size_t rows = (size_t)(max_rows < NB_ROWS_AT_ONCE ? max_rows : NB_ROWS_AT_ONCE);
    size_t groups = (size_t)(max_k + NB_BLOCK - 1) / NB_BLOCK;
    size_t per_row = (size_t)NB_PANEL_K + (size_t)NB_TILES_AT_ONCE * NB_TILE + groups;
    return ((size_t)PANEL_FLOATS + 2 * (size_t)FACTOR_FLOATS + rows * per_row) * sizeof(float);
}

static struct work work_of(void *scratch, int32_t rows)
{
    struct work w = {.panel = scratch};
    w.s = w.panel + PANEL_FLOATS;
    w.z = w.s + FACTOR_FLOATS;
    w.x = w.z + FACTOR_FLOATS;
    w.acc = w.x + (size_t)rows * NB_PANEL_K;
    w.acc_stride = (size_t)rows * NB_TILE;
    w.sums = w.acc + NB_TILES_AT_ONCE * w.acc_stride;
    return w;
}

void nb_linear_sums(const nb_linear_job *j, const nb_lin_geom *g, int32_t row0, int32_t rows, float *sums)
{
    for (int32_t i = 0; i < rows; i++, sums += g->groups) {
        const char *x = (const char *)j->x + (size_t)(row0 + i) * j->x_stride;
        for (int64_t b = 0; b < g->blocks; b++) {
            float even = 0, odd = 0;
            for (int64_t k = b * NB_BLOCK; k < (b + 1) * NB_BLOCK; k += 2)
                if (j->f32) even += ((const float *)(const void *)x)[k], odd += ((const float *)(const void *)x)[k + 1];
                else even += nb_bf16_decode(((const uint16_t *)(const void *)x)[k]), odd += nb_bf16_decode(((const uint16_t *)(const void *)x)[k + 1]);
            float *t = &sums[b / g->per_group];
            *t = (b % g->per_group == 0 ? 0.0f : *t) + (even + odd);
        }
    }
}

/* x of one panel's K for all rows: contiguous fp32. */
static void expand_rows(const nb_blocked *ops, const nb_linear_job *j, int32_t row0, int32_t rows, int64_t b0, int blocks, float *out)
{
    size_t size = j->f32 ? 4 : 2;
    for (int32_t i = 0; i < rows; i++, out += NB_PANEL_K)
        ops->expand((const char *)j->x + (size_t)(row0 + i) * j->x_stride + (size_t)b0 * NB_BLOCK * size, j->f32, out, blocks);
}

/* All rows against the panel in w. Columns are shared out evenly: 256 rows make 41 parts of 6 and 2 of 5, not 42 of 6 and one of 4. */
static void panel_rows(const nb_blocked *ops, nb_micro *m, int tiles, int32_t rows)
{
    int32_t parts = (rows + ops->cols - 1) / ops->cols, done = 0;
    const float *x = m->x, *sums = m->sums;
    float *acc = m->acc;
    for (int32_t p = 0; p < parts; p++) {
        int cols = (rows - done) / (parts - p);
        m->x = x + (size_t)done * NB_PANEL_K;
        m->sums = sums ? sums + (size_t)done * m->sums_stride : NULL;
        m->acc = acc + (size_t)done * NB_TILE;
        ops->micro(m, tiles, cols);
        done += cols;
    }
}

/* Decodes `tiles` row tiles from tile0 on into the panel. FP8 blocks take their factors from beside the matrix. */
static void fill_panel(const nb_blocked *ops, const nb_linear_job *j, const nb_lin_geom *g, int64_t tile0, int tiles, int64_t b0, int blocks, struct work *w)
{
    for (int t = 0; t < tiles; t++) {
        float *s = w->s + t * NB_TILE, *z = w->z + t * NB_TILE;
        ops->decode[g->format](g, j->data + (size_t)(tile0 + t) * j->tile_bytes, b0, blocks, tiles, w->panel + t * NB_TILE, s, z);
        if (g->format == NB_FP8_BLOCK)
            for (int r = 0; r < NB_TILE; r++) s[r] = nb_lin_block_scale(j, tile0 + t, b0);
    }
}

/* Up to NB_TILES_AT_ONCE row tiles over the whole K, for `rows` rows of x. */
static void tiles_rows(const nb_blocked *ops, const nb_linear_job *j, const nb_lin_geom *g, int64_t tile0, int64_t tile1, int32_t row0, int32_t rows, struct work *w)
{
    memset(w->acc, 0, (size_t)(tile1 - tile0) * w->acc_stride * sizeof(float));
    for (int64_t b0 = 0; b0 < g->blocks; b0 += NB_PANEL_BLOCKS) {
        int blocks = (int)(g->blocks - b0 < NB_PANEL_BLOCKS ? g->blocks - b0 : NB_PANEL_BLOCKS);
        expand_rows(ops, j, row0, rows, b0, blocks, w->x);
        for (int64_t t = tile0; t < tile1; t += ops->tiles) {
            int tiles = (int)(tile1 - t < ops->tiles ? tile1 - t : ops->tiles);
            fill_panel(ops, j, g, t, tiles, b0, blocks, w);
            nb_micro m = {.panel = w->panel, .x = w->x, .blocks = blocks, .per_group = g->grouped ? g->per_group : 0, .s = w->s, .z = g->biased ? w->z : NULL,
                .sums = g->biased ? w->sums + b0 / g->per_group : NULL, .sums_stride = (size_t)g->groups, .acc = w->acc + (size_t)(t - tile0) * w->acc_stride, .acc_stride = w->acc_stride};
            panel_rows(ops, &m, tiles, rows);
        }
    }
    /* A few rows of y at a time: 32 tiles are 2 KiB of each, and every row may lie on a page of its own. */
    for (int32_t i = 0; i < rows; i += FINISH_ROWS)
        for (int64_t t = tile0; t < tile1; t++)
            ops->finish(j, t, row0 + i, rows - i < FINISH_ROWS ? rows - i : FINISH_ROWS, w->acc + (size_t)(t - tile0) * w->acc_stride + (size_t)i * NB_TILE);
}

void nb_linear_blocked(const nb_blocked *ops, const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch)
{
    nb_lin_geom g = nb_lin_geometry(j->type, j->k);
    for (int32_t row0 = 0; row0 < j->rows; row0 += NB_ROWS_AT_ONCE) {
        int32_t rows = j->rows - row0 < NB_ROWS_AT_ONCE ? j->rows - row0 : NB_ROWS_AT_ONCE;
        struct work w = work_of(scratch, rows);
        if (g.biased) nb_linear_sums(j, &g, row0, rows, w.sums);
        for (int64_t t = tile0; t < tile1; t += NB_TILES_AT_ONCE)
            tiles_rows(ops, j, &g, t, tile1 - t < NB_TILES_AT_ONCE ? tile1 : t + NB_TILES_AT_ONCE, row0, rows, &w);
    }
}
