/* plain_linear: the definition of `linear` and of gathered rows, in plain C. Every faster tier gives these bits.
 *
 * Built twice: without FMA instructions (fmaf of the C library, which is exact) and with them (NB_PLAIN_FMA).
 */
#include "cpu/linear.h"

#include <math.h>

#ifdef NB_PLAIN_FMA
#define NB_NAME(x) x##_fma
#else
#define NB_NAME(x) x##_base
#endif

static const float e2m1_value[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/* E4M3 by arithmetic; 0x7F, which no import lets through, counts as 480 in every tier. */
static inline float e4m3_value(uint32_t b)
{
    uint32_t n = b & 0x7f;
    float f = n < 8 ? (float)n * 0x1p-9f : nb_f32_bits((n << 20) + (120u << 23));
    return nb_f32_bits(nb_bits_f32(f) | (b & 0x80) << 24);
}

static inline float e8m0_value(uint8_t b) { return nb_f32_bits((uint32_t)b << 23); }

/* Scale or bias r of a group of an affine format. */
static float affine_factor(const uint8_t *p, nb_dtype t, int r)
{
    if (t == NB_DT_F32) return nb_f32_bits(nb_load_u32(p + 4 * r));
    uint16_t h = nb_load_u16(p + 2 * r);
    return t == NB_DT_F16 ? nb_f16_decode(h) : nb_bf16_decode(h);
}

/* Element k of a block in row r: `bits` bits of the row's string of words, which lie 64 bytes apart. */
static inline uint32_t code_at(const uint8_t *codes, int bits, int k, int r)
{
    int at = k * bits, word = at / 32, shift = at % 32;
    uint64_t v = nb_load_u32(codes + 64 * word + 4 * r);
    if (shift + bits > 32) v |= (uint64_t)nb_load_u32(codes + 64 * (word + 1) + 4 * r) << 32;
    return (uint32_t)(v >> shift) & (bits == 32 ? UINT32_MAX : (1u << bits) - 1);
}

static float code_value(nb_format f, uint32_t code)
{
    switch (f) {
    case NB_F32: return nb_f32_bits(code);
    case NB_F16: return nb_f16_decode((uint16_t)code);
    case NB_BF16: return nb_bf16_decode((uint16_t)code);
    case NB_NVFP4:
    case NB_MXFP4: return e2m1_value[code];
    case NB_MXFP8:
    case NB_FP8_TENSOR:
    case NB_FP8_CHANNEL:
    case NB_FP8_BLOCK: return e4m3_value(code);
    default: return (float)code;
    }
}

/* The weights of block b as the chains take them: code times block scale, or the code alone where the format applies its scale later. */
static void decode_block(const nb_lin_geom *g, const uint8_t *tile, int64_t b, float w[NB_BLOCK][NB_TILE])
{
    const uint8_t *codes = nb_lin_codes(g, tile, b), *scales = nb_lin_group(g, tile, b) + g->scale_at;
    for (int k = 0; k < NB_BLOCK; k++) {
        const uint8_t *c = codes;
        int at = k;
        if (g->format == NB_NVFP4) {
            c += k / 16 * 144;
            at = k % 16;
            scales = c + 128;
        }
        for (int r = 0; r < NB_TILE; r++) {
            float v = code_value(g->format, code_at(c, g->bits, at, r));
            if (g->format == NB_NVFP4) v *= e4m3_value(scales[r]);
            else if (g->format == NB_MXFP4 || g->format == NB_MXFP8) v *= e8m0_value(scales[r]);
            w[k][r] = v;
        }
    }
}

static void load_x(const nb_linear_job *j, int32_t row, int64_t b, float a[NB_BLOCK])
{
    const char *x = (const char *)j->x + (size_t)row * j->x_stride;
    if (j->f32) memcpy(a, x + (size_t)b * NB_BLOCK * 4, NB_BLOCK * 4);
    else
        for (int k = 0; k < NB_BLOCK; k++) a[k] = nb_bf16_decode(nb_load_u16(x + ((size_t)b * NB_BLOCK + (size_t)k) * 2));
}

/* even + odd of one block. */
static void chains(const float w[NB_BLOCK][NB_TILE], const float a[NB_BLOCK], float sum[NB_TILE])
{
    float even[NB_TILE] = {0}, odd[NB_TILE] = {0};
    for (int k = 0; k < NB_BLOCK; k += 2) {
        for (int r = 0; r < NB_TILE; r++) even[r] = fmaf(w[k][r], a[k], even[r]);
        for (int r = 0; r < NB_TILE; r++) odd[r] = fmaf(w[k + 1][r], a[k + 1], odd[r]);
    }
    for (int r = 0; r < NB_TILE; r++) sum[r] = even[r] + odd[r];
}

static float ones(const float a[NB_BLOCK])
{
    float even = 0, odd = 0;
    for (int k = 0; k < NB_BLOCK; k += 2) even += a[k], odd += a[k + 1];
    return even + odd;
}

/* What a tile keeps per row of x. */
struct state {
    float acc[NB_TILE], t[NB_TILE], a;
};

/* The group that ends with block b is complete in s->t and s->a. */
static void apply_group(const nb_linear_job *j, const nb_lin_geom *g, int64_t tile, int64_t b, const uint8_t *group, struct state *s)
{
    for (int r = 0; r < NB_TILE; r++) {
        float scale = g->biased ? affine_factor(group + g->scale_at, g->scale_dtype, r) : nb_lin_block_scale(j, tile, b);
        s->acc[r] = fmaf(scale, s->t[r], s->acc[r]);
        if (g->biased) s->acc[r] = fmaf(affine_factor(group + g->bias_at, g->scale_dtype, r), s->a, s->acc[r]);
    }
}

static void block_rows(const nb_linear_job *j, const nb_lin_geom *g, int64_t tile, int64_t b, struct state *s)
{
    const uint8_t *data = j->data + (size_t)tile * j->tile_bytes;
    float w[NB_BLOCK][NB_TILE], a[NB_BLOCK], sum[NB_TILE];
    decode_block(g, data, b, w);
    for (int32_t i = 0; i < j->rows; i++, s++) {
        load_x(j, i, b, a);
        chains(w, a, sum);
        if (!g->grouped) {
            for (int r = 0; r < NB_TILE; r++) s->acc[r] += sum[r];
            continue;
        }
        if (b % g->per_group == 0) {
            memset(s->t, 0, sizeof s->t);
            s->a = 0;
        }
        for (int r = 0; r < NB_TILE; r++) s->t[r] += sum[r];
        if (g->biased) s->a += ones(a);
        if (nb_lin_group_ends(g, b)) apply_group(j, g, tile, b, nb_lin_group(g, data, b), s);
    }
}

static void finish_rows(const nb_linear_job *j, int64_t tile, const struct state *s)
{
    for (int32_t i = 0; i < j->rows; i++, s++)
        for (int64_t r = 0, n = tile * NB_TILE; r < NB_TILE && n < j->n; r++, n++) {
            float v = s->acc[r] * (j->row_scale ? j->row_scale[n] : j->multiplier);
            if (j->bias) v += j->bias[n];
            if (j->residual) v += j->residual[(size_t)i * j->residual_stride + (size_t)n];
            j->y[(size_t)i * j->y_stride + (size_t)n] = v;
        }
}

void NB_NAME(nb_linear_rows)(const nb_linear_job *j, int64_t tile0, int64_t tile1, void *scratch)
{
    nb_lin_geom g = nb_lin_geometry(j->type, j->k);
    struct state *s = scratch;
    for (int64_t tile = tile0; tile < tile1; tile++) {
        memset(s, 0, sizeof *s * (size_t)j->rows);
        for (int64_t b = 0; b < g.blocks; b++) block_rows(j, &g, tile, b, s);
        finish_rows(j, tile, s);
    }
}

/* ---- gathered rows ---- */

/* One row of a table: where its words, scales and biases lie. Word i of the row is at codes + i * word_step. */
struct row_view {
    const uint8_t *data;
    size_t lane;   /* rows16: row inside the tile; rows1: 0 */
    bool tiled;
    size_t scales, biases; /* rows1: offsets in the record */
};

static uint32_t view_code(const struct row_view *v, const nb_lin_geom *g, int64_t k)
{
    int group = g->format == NB_NVFP4 ? 16 : g->per_group * NB_BLOCK;
    size_t group_bytes = g->format == NB_NVFP4 ? 144 : g->group_bytes;
    if (v->tiled) return code_at(v->data + (size_t)(k / group) * group_bytes, g->bits, (int)(k % group), (int)v->lane);
    uint64_t at = (uint64_t)k * (uint64_t)g->bits, w = 0;
    size_t byte = (size_t)(at / 8), last = (size_t)((at + (uint64_t)g->bits - 1) / 8);
    memcpy(&w, v->data + byte, last - byte + 1);
    return (uint32_t)(w >> at % 8) & (g->bits == 32 ? UINT32_MAX : (1u << g->bits) - 1);
}

/* The bytes of scale (or bias) of the group of k: `at` inside a group of a tile, `part` inside a record. */
static const uint8_t *view_factor(const struct row_view *v, const nb_lin_geom *g, int64_t k, size_t size, size_t at, size_t part)
{
    int group = g->format == NB_NVFP4 ? 16 : g->per_group * NB_BLOCK;
    size_t group_bytes = g->format == NB_NVFP4 ? 144 : g->group_bytes;
    size_t i = (size_t)(k / group);
    return v->tiled ? v->data + i * group_bytes + at + v->lane * size : v->data + part + i * size;
}

static float view_value(const nb_weight *w, const struct row_view *v, const nb_lin_geom *g, int64_t row, int64_t k)
{
    float q = code_value(g->format, view_code(v, g, k));
    if (g->biased) {
        size_t size = g->scale_dtype == NB_DT_F32 ? 4 : 2;
        float s = affine_factor(view_factor(v, g, k, size, g->scale_at, v->scales), g->scale_dtype, 0);
        return fmaf(q, s, affine_factor(view_factor(v, g, k, size, g->bias_at, v->biases), g->scale_dtype, 0));
    }
    switch (g->format) {
    case NB_NVFP4: return q * e4m3_value(*view_factor(v, g, k, 1, 128, v->scales)) * w->multiplier;
    case NB_MXFP4:
    case NB_MXFP8: return q * e8m0_value(*view_factor(v, g, k, 1, g->scale_at, v->scales)) * w->multiplier;
    case NB_FP8_CHANNEL: return q * w->row_scale[row];
    case NB_FP8_BLOCK: return q * w->block_scale[row / NB_FP8_SCALE_BLOCK * ((w->k + NB_FP8_SCALE_BLOCK - 1) / NB_FP8_SCALE_BLOCK) + k / NB_FP8_SCALE_BLOCK];
    default: return q * w->multiplier;
    }
}

void NB_NAME(nb_gather_row)(const nb_weight *w, int64_t row, float *out)
{
    nb_lin_geom g = nb_lin_geometry(w->type, w->k);
    struct row_view v = {.data = w->data, .tiled = w->layout == NB_LAYOUT_ROWS16};
    size_t bytes = 0, codes = 0, scales = 0, biases = 0;
    if (v.tiled) {
        nb_rows16_tile_bytes(w->type, w->k, &bytes);
        v.data += (size_t)(row / NB_TILE) * bytes;
        v.lane = (size_t)(row % NB_TILE);
    } else {
        nb_rows1_row_bytes(w->type, w->k, &bytes);
        nb_parts_row_bytes(w->type, w->k, &codes, &scales, &biases);
        v.data += (size_t)row * bytes;
        v.scales = codes;
        v.biases = codes + scales;
    }
    for (int64_t k = 0; k < w->k; k++) out[k] = view_value(w, &v, &g, row, k);
}
