/* format: the table of weight formats, scalar codes, layouts. design.md 3, specs/create.md 4.
 *
 * A weight format is one row of the table in format.c: name, bits, group, scale kind, quantise, decode. Adding a format
 * means adding a row there (and, where it should be fast, a kernel in src/cpu).
 *
 * Three layouts hold a matrix [N, K], K along the groups:
 *   standard  row-major codes (little-endian bit stream, element 0 lowest), scales [N, K/G], biases [N, K/G] apart
 *   rows16    tiles of 16 rows (design.md 3): per group, W = G*bits/32 vectors of 64 bytes (vector w = word w of rows 0..15), then 16 scales, then 16 biases
 *   rows1     records: codes of one row, then its scales, then its biases
 */
#ifndef NB_FORMAT_FORMAT_H
#define NB_FORMAT_FORMAT_H

#include "base/base.h"

/* ---- element types of containers (safetensors names; specs/create.md 1.7) ---- */
typedef enum nb_dtype {
    NB_DT_NONE,
    NB_DT_BOOL, NB_DT_U8, NB_DT_I8, NB_DT_U16, NB_DT_I16, NB_DT_F16, NB_DT_BF16, NB_DT_U32, NB_DT_I32, NB_DT_F32,
    NB_DT_U64, NB_DT_I64, NB_DT_F64, NB_DT_C64,
    NB_DT_F8_E4M3, NB_DT_F8_E5M2, NB_DT_F8_E4M3FNUZ, NB_DT_F8_E5M2FNUZ, NB_DT_F8_E8M0,
    NB_DT_F4, NB_DT_F6_E2M3, NB_DT_F6_E3M2,
    NB_DT_COUNT
} nb_dtype;
const char *nb_dtype_name(nb_dtype t);
int nb_dtype_bits(nb_dtype t);
nb_dtype nb_dtype_parse(nb_str name); /* case-insensitive; NB_DT_NONE when unknown */

/* ---- weight formats ---- */
typedef enum nb_format {
    NB_F32, NB_F16, NB_BF16,
    NB_NVFP4, NB_MXFP4, NB_MXFP8,
    NB_INT2, NB_INT3, NB_INT4, NB_INT5, NB_INT6, NB_INT8, /* affine: s*q + z per group of 32, 64 or 128 */
    NB_FP8_TENSOR, NB_FP8_CHANNEL, NB_FP8_BLOCK,           /* E4M3 with an F32 scale per tensor, row or 128x128 block, kept apart */
    NB_FORMAT_COUNT
} nb_format;

typedef enum nb_scale_kind {
    NB_SCALE_NONE,  /* float formats: the code is the value */
    NB_SCALE_E4M3,  /* one byte per group, 0x00..0x7E, times the tensor's multiplier m */
    NB_SCALE_E8M0,  /* one byte per group, 16..240 for a non-zero block */
    NB_SCALE_AFFINE,/* scale and bias of scale_dtype per group */
    NB_SCALE_APART, /* F32 beside the matrix: row_scale [N], block_scale or m */
} nb_scale_kind;

typedef struct nb_qtype {
    uint8_t format;      /* nb_format */
    uint8_t scale_dtype; /* affine: NB_DT_BF16, NB_DT_F16 or NB_DT_F32; else the scale's own dtype or NB_DT_NONE */
    uint16_t group;      /* elements per scale along K; 32 for formats without one in the tile (design.md 3: G = 32) */
} nb_qtype;

typedef struct nb_format_row {
    const char *name;     /* "nvfp4", "int4", "bf16", "fp8_block": the value of quant_type */
    uint8_t bits;         /* per code */
    uint8_t scale_kind;   /* nb_scale_kind */
    uint16_t group;       /* default group */
    uint8_t is_float;     /* source-like formats */
    /* further columns (quantise, decode) live in format.c */
} nb_format_row;
const nb_format_row *nb_format_info(nb_format f);
nb_qtype nb_qtype_default(nb_format f); /* default group, BF16 scales for affine */
/* "bf16", "nvfp4", "int4", "int4:g32" ...; NB_E_USAGE "unknown quantisation 'X'; known: ..." */
nb_status nb_qtype_parse(nb_qtype *out, const char *text, nb_error *err);
/* Format known, group and scale dtype allowed for it. */
bool nb_qtype_valid(nb_qtype q);
void nb_qtype_name(nb_qtype q, char out[32]); /* "int4:g64", "nvfp4" */
static inline bool nb_qtype_eq(nb_qtype a, nb_qtype b) { return a.format == b.format && a.scale_dtype == b.scale_dtype && a.group == b.group; }

/* ---- scalars. All exact as specs/create.md 4; decode never flushes subnormals ---- */
float nb_e2m1_decode(uint8_t code);
uint8_t nb_e2m1_encode(float x);      /* RNE, saturating, sign kept */
float nb_e4m3_decode(uint8_t b);
uint8_t nb_e4m3_encode(float x);      /* RNE, saturates at 0x7E, NaN 0x7F */
float nb_e5m2_decode(uint8_t b);
float nb_e8m0_decode(uint8_t b);
uint8_t nb_e8m0_round_up(float r);    /* smallest power of two >= r as byte, clamped to [1, 254]; r == 0 gives 127 */
float nb_f16_decode(uint16_t h);
uint16_t nb_f16_encode(float x);      /* RNE */
static inline float nb_bf16_decode(uint16_t h) { return nb_f32_bits((uint32_t)h << 16); }
static inline uint16_t nb_bf16_encode(float x) /* RNE, NaN stays quiet */
{
    uint32_t u = nb_bits_f32(x);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((u | 0x00400000u) >> 16);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
/* count elements of a float-like dtype (F32 F16 BF16 F64 F8_* E8M0) to F32. src may be unaligned. false: not a float dtype */
bool nb_floats_decode(nb_dtype t, const void *src, size_t count, float *dst);

/* ---- standard layout: parts of a span of whole rows ---- */
typedef struct nb_parts {
    uint8_t *codes;  size_t code_stride;  /* bytes per row = K*bits/8 (bit stream) */
    uint8_t *scales; size_t scale_stride; /* bytes per row = K/G * scale size; NULL where the format has none in the tile */
    uint8_t *biases; size_t bias_stride;  /* affine only */
} nb_parts;
/* Bytes of one row in each part. K must be a multiple of the group (float formats: any K). false: it is not, or overflow. */
bool nb_parts_row_bytes(nb_qtype q, int64_t k, size_t *codes, size_t *scales, size_t *biases);

/* Quantises rows of F32. m: NVFP4 multiplier A/2688 with A the tensor's absolute maximum (nb_nvfp4_multiplier), FP8_TENSOR s = A/448 (0 counts as 1); FP8_CHANNEL writes row_scale; else ignored.
 * Float formats convert. NaN or infinity: NB_E_INVALID "row r, column c". Same bytes for any split of the rows. The dispatcher picks a vector version that equals the scalar one by memcmp. */
nb_status nb_quantize_rows(nb_qtype q, const float *w, int64_t rows, int64_t k, float m, const nb_parts *out, nb_error *err);
float nb_nvfp4_multiplier(float amax); /* amax/2688, 1 for amax == 0 (or so small that amax/2688 is subnormal) */
/* NVFP4 from the tensor's absolute maximum itself. nb_quantize_rows gets it back from the multiplier, which is exact where the weights
 * were BF16 or F16; for F32 weights several maxima share a multiplier, and this function is the exact one. */
nb_status nb_quantize_nvfp4(const float *w, int64_t rows, int64_t k, float amax, const nb_parts *out, nb_error *err);
/* Scales of FP8 in nb_parts (all F32, NULL allowed): FP8_CHANNEL scales + row * scale_stride; FP8_BLOCK scales + (row / 128) * scale_stride,
 * ceil(K/128) of them, where row 0 of the span starts a block. They are in no tile: packing leaves them alone. */
/* Quality search (specs/create.md 4.4, 4.5), for the formats that have one: NVFP4 tries for each group the 6 scale codes on either side
 * of the plain one, MXFP4 the power of two below; the least squared error wins. Same format, same speed of the model, slower to make.
 * amax as nb_quantize_nvfp4, unused for MXFP4. */
bool nb_format_searches(nb_format f);
nb_status nb_quantize_search(nb_qtype q, const float *w, int64_t rows, int64_t k, float amax, const nb_parts *out, nb_error *err);
float nb_abs_max(const float *w, size_t n); /* NaN if any is NaN */
/* The value as the format defines it: code*scale*m in F32 (exact steps of design.md 4 gather_rows: fma(q,s,z) or (code*s)*m) and in double. m = 1 where unused. */
void nb_dequantize_rows(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, float m, float *out);
void nb_dequantize_rows_f64(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, float m, double *out);

/* Brings scales from a foreign file into the domain (design.md 4) or refuses them; parts in the standard layout are changed in place.
 * NVFP4: a NaN scale of an all-zero block becomes 0, a negative one turns the signs of its codes. MXFP4, MXFP8: a non-zero block with a
 * scale byte below 16 becomes zero and is counted, an all-zero block gets byte 127, a byte above 240 or an E4M3 code of NaN is an error. Affine: scales and biases are finite.
 * NB_E_INVALID "row r, block b: ... (E_SCALE_NAN)". zeroed (may be NULL) is added to. */
nb_status nb_parts_domain(nb_qtype q, const nb_parts *p, int64_t rows, int64_t k, uint64_t *zeroed, nb_error *err);

/* ---- layouts ---- */
typedef enum nb_layout { NB_LAYOUT_STANDARD, NB_LAYOUT_ROWS16, NB_LAYOUT_ROWS1 } nb_layout;
const char *nb_layout_name(nb_layout l);                /* "standard", "rows16.1", "rows1.1" */
bool nb_layout_parse(nb_layout *out, nb_str s);
/* K as stored: float formats padded to a multiple of 32, others must be a multiple of the group (and are padded to 32 with zero blocks where the group is 16). */
bool nb_padded_k(nb_qtype q, int64_t k, int64_t *kp);
bool nb_rows16_tile_bytes(nb_qtype q, int64_t k, size_t *bytes);           /* one tile of 16 rows, all groups */
bool nb_rows16_bytes(nb_qtype q, int64_t n, int64_t k, uint64_t *bytes);   /* whole matrix, rows padded to 16 */
bool nb_rows1_row_bytes(nb_qtype q, int64_t k, size_t *bytes);
/* Packs `rows` rows (any number; the last tile is padded: code 0, scale one or 0 as design.md 3 says) into consecutive tiles at dst. */
void nb_rows16_pack(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, void *dst);
/* The inverse for rows [row0, row0+rows) of a whole packed matrix. */
void nb_rows16_unpack(nb_qtype q, const void *src, int64_t row0, int64_t rows, int64_t k, const nb_parts *out);
void nb_rows1_pack(nb_qtype q, const nb_parts *in, int64_t rows, int64_t k, void *dst);
void nb_rows1_unpack(nb_qtype q, const void *src, int64_t rows, int64_t k, const nb_parts *out);

#endif
