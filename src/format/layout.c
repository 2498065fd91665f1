/* The three layouts of a matrix (design.md 3). rows16 and rows1 are moved here; standard is the nb_parts itself.
 *
 * A rows16 tile, one scale group (NVFP4: W = 2, so 128 + 16 bytes for 16 x 16 weights):
 *
 *   vector 0   word 0 of row 0 | word 0 of row 1 | ... | word 0 of row 15      64 bytes
 *   ...
 *   vector W-1 word W-1 of row 0 | ... | word W-1 of row 15
 *   scales     row 0 ... row 15      16 scales of 1, 2 or 4 bytes, where the format has them in the tile
 *   biases     row 0 ... row 15      affine formats
 *
 * Groups ascend along K; then the next 16 rows. Padding rows and groups hold code 0, scale one, bias 0.
 */
#include "format/kernels.h"

static const char *const layout_names[] = {"standard", "rows16.1", "rows1.1"};

const char *nb_layout_name(nb_layout l) { return (unsigned)l < NB_COUNT(layout_names) ? layout_names[l] : "?"; }

bool nb_layout_parse(nb_layout *out, nb_str s)
{
    for (size_t i = 0; i < NB_COUNT(layout_names); i++)
        if (nb_str_is(s, layout_names[i])) {
            *out = (nb_layout)i;
            return true;
        }
    return false;
}

/* What a packer needs to know about a matrix. */
typedef struct geometry {
    size_t words;                       /* W: words of one row in one group */
    size_t scale, bias;                 /* bytes of one, 0 where there is none */
    size_t groups, full;                /* groups as stored; those that the row fills whole */
    size_t rest;                        /* code bytes of the row beyond the full groups (float formats) */
    size_t group_bytes;                 /* of a tile */
    uint32_t one;                       /* a scale of one in its type */
    size_t k_codes, k_scales, k_biases; /* bytes of one row in the standard layout */
} geometry;

static uint32_t scale_one(uint8_t dtype)
{
    switch (dtype) {
    case NB_DT_F8_E4M3: return 0x38;
    case NB_DT_F8_E8M0: return 127;
    case NB_DT_BF16: return 0x3f80;
    case NB_DT_F16: return 0x3c00;
    default: return 0x3f800000;
    }
}

bool nb_padded_k(nb_qtype q, int64_t k, int64_t *kp)
{
    size_t a, b, c;
    if (k <= 0 || k > INT64_MAX - 31 || !nb_parts_row_bytes(q, k, &a, &b, &c)) return false;
    *kp = (k + 31) / 32 * 32;
    return true;
}

static bool geometry_of(nb_qtype q, int64_t k, geometry *g)
{
    int64_t kp;
    if (!nb_padded_k(q, k, &kp) || !nb_parts_row_bytes(q, k, &g->k_codes, &g->k_scales, &g->k_biases)) return false;
    unsigned bits = nb_format_info((nb_format)q.format)->bits;
    g->words = q.group * bits / 32;
    g->scale = g->k_scales ? nb_scale_size(q.scale_dtype) : 0;
    g->bias = g->k_biases ? g->scale : 0;
    g->groups = (size_t)(kp / q.group);
    g->full = (size_t)(k / q.group);
    g->rest = g->k_codes - g->full * g->words * 4;
    g->group_bytes = g->words * 64 + 16 * (g->scale + g->bias);
    g->one = scale_one(q.scale_dtype);
    return true;
}

bool nb_rows16_tile_bytes(nb_qtype q, int64_t k, size_t *bytes)
{
    geometry g;
    uint64_t n;
    if (!geometry_of(q, k, &g) || !nb_mul_u64(g.groups, g.group_bytes, &n)) return false;
    *bytes = n;
    return true;
}

bool nb_rows16_bytes(nb_qtype q, int64_t n, int64_t k, uint64_t *bytes)
{
    size_t tile;
    if (n < 0 || !nb_rows16_tile_bytes(q, k, &tile)) return false;
    return nb_mul_u64((uint64_t)n / 16 + (n % 16 != 0), tile, bytes);
}

bool nb_rows1_row_bytes(nb_qtype q, int64_t k, size_t *bytes)
{
    size_t c, s, b;
    uint64_t n;
    if (k <= 0 || !nb_parts_row_bytes(q, k, &c, &s, &b) || !nb_add_u64(c, s, &n) || !nb_add_u64(n, b, &n)) return false;
    *bytes = n;
    return true;
}

/* ---- rows16 ---- */

/* Words of one group: rows 0..15 at row[r] + off. The loop over rows inside is what the compiler turns into a
 * transposition. */
static void pack_words(uint8_t *dst, const uint8_t *const row[16], size_t off, size_t words)
{
    for (size_t w = 0; w < words; w++)
        for (int r = 0; r < 16; r++) nb_store_u32(dst + w * 64 + r * 4, nb_load_u32(row[r] + off + w * 4));
}

static void pack_scales(uint8_t *dst, const uint8_t *const row[16], size_t i, size_t size)
{
    for (int r = 0; r < 16; r++) switch (size) {
        case 1: dst[r] = row[r][i]; break;
        case 2: nb_store_u16(dst + 2 * r, nb_load_u16(row[r] + 2 * i)); break;
        default: nb_store_u32(dst + 4 * r, nb_load_u32(row[r] + 4 * i)); break;
        }
}

static void fill_scales(uint8_t *dst, int from, uint32_t value, size_t size)
{
    for (int r = from; r < 16; r++) memcpy(dst + (size_t)r * size, &value, size);
}

/* A group past the end of full ones: what is left of the codes, then zeros; scales one, biases zero. */
static void pack_tail(const geometry *g, uint8_t *dst, const uint8_t *const codes[16], int rows, size_t rest)
{
    memset(dst, 0, g->group_bytes);
    for (int r = 0; r < rows; r++)
        for (size_t b = 0; b < rest; b++)
            dst[b / 4 * 64 + (size_t)r * 4 + b % 4] = codes[r][g->full * g->words * 4 + b];
    if (g->scale) fill_scales(dst + g->words * 64, 0, g->one, g->scale);
}

/* One tile; rows below 16 for the last one: missing rows borrow row 0 and are cleared afterwards. */
static void pack_tile(const geometry *g, const nb_parts *in, int64_t row0, int rows, uint8_t *dst)
{
    const uint8_t *codes[16], *scales[16], *biases[16];
    for (int r = 0; r < 16; r++) {
        size_t i = (size_t)row0 + (size_t)(r < rows ? r : 0);
        codes[r] = in->codes + i * in->code_stride;
        scales[r] = g->scale ? in->scales + i * in->scale_stride : NULL;
        biases[r] = g->bias ? in->biases + i * in->bias_stride : NULL;
    }
    for (size_t i = 0; i < g->groups; i++, dst += g->group_bytes) {
        uint8_t *sc = dst + g->words * 64, *bi = sc + 16 * g->scale;
        if (i >= g->full) {
            pack_tail(g, dst, codes, rows, i == g->full ? g->rest : 0);
            continue;
        }
        pack_words(dst, codes, i * g->words * 4, g->words);
        if (g->scale) pack_scales(sc, scales, i, g->scale);
        if (g->bias) pack_scales(bi, biases, i, g->bias);
        if (rows == 16) continue;
        for (size_t w = 0; w < g->words; w++) memset(dst + w * 64 + rows * 4, 0, (size_t)(16 - rows) * 4);
        if (g->scale) fill_scales(sc, rows, g->one, g->scale);
        if (g->bias) fill_scales(bi, rows, 0, g->bias);
    }
}

void nb_rows16_pack(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, void *dst)
{
    geometry g;
    if (!geometry_of(q, k, &g)) return;
    for (int64_t r = 0; r < rows; r += 16)
        pack_tile(&g, in, r, rows - r < 16 ? (int)(rows - r) : 16,
                  (uint8_t *)dst + (size_t)(r / 16) * g.groups * g.group_bytes);
}

static void unpack_row(const geometry *g, const uint8_t *src, size_t lane, nb_row out)
{
    for (size_t i = 0; i < g->full; i++, src += g->group_bytes) {
        const uint8_t *sc = src + g->words * 64, *bi = sc + 16 * g->scale;
        for (size_t w = 0; w < g->words; w++)
            nb_store_u32(out.codes + (i * g->words + w) * 4, nb_load_u32(src + w * 64 + lane * 4));
        if (g->scale) memcpy(out.scales + i * g->scale, sc + lane * g->scale, g->scale);
        if (g->bias) memcpy(out.biases + i * g->bias, bi + lane * g->bias, g->bias);
    }
    for (size_t b = 0; b < g->rest; b++) out.codes[g->full * g->words * 4 + b] = src[b / 4 * 64 + lane * 4 + b % 4];
}

void nb_rows16_unpack(nb_qtype q, const void *src, int64_t row0, int64_t rows, int64_t k, const nb_parts *out)
{
    geometry g;
    if (!geometry_of(q, k, &g)) return;
    size_t tile = g.groups * g.group_bytes;
    for (int64_t r = 0; r < rows; r++) {
        size_t i = (size_t)r, at = (size_t)(row0 + r);
        nb_row row = {out->codes + i * out->code_stride, g.scale ? out->scales + i * out->scale_stride : NULL,
                      g.bias ? out->biases + i * out->bias_stride : NULL};
        unpack_row(&g, (const uint8_t *)src + at / 16 * tile, at % 16, row);
    }
}

/* ---- rows1 ---- */

void nb_rows1_pack(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, void *dst)
{
    geometry g;
    if (!geometry_of(q, k, &g)) return;
    uint8_t *p = dst;
    for (size_t r = 0; r < (size_t)rows; r++) {
        memcpy(p, in->codes + r * in->code_stride, g.k_codes);
        p += g.k_codes;
        if (g.k_scales) memcpy(p, in->scales + r * in->scale_stride, g.k_scales);
        p += g.k_scales;
        if (g.k_biases) memcpy(p, in->biases + r * in->bias_stride, g.k_biases);
        p += g.k_biases;
    }
}

void nb_rows1_unpack(nb_qtype q, const void *src, int64_t rows, int64_t k, const nb_parts *out)
{
    geometry g;
    if (!geometry_of(q, k, &g)) return;
    const uint8_t *p = src;
    for (size_t r = 0; r < (size_t)rows; r++) {
        memcpy(out->codes + r * out->code_stride, p, g.k_codes);
        p += g.k_codes;
        if (g.k_scales) memcpy(out->scales + r * out->scale_stride, p, g.k_scales);
        p += g.k_scales;
        if (g.k_biases) memcpy(out->biases + r * out->bias_stride, p, g.k_biases);
        p += g.k_biases;
    }
}
