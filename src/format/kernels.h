/* format/kernels: the inner loops of quantising and decoding, as a table per instruction set. Inside this room and its
 * tests.
 *
 * kernels.c holds the definition in plain C. The vector tables give the same bytes, whatever the input: a test compares
 * them with memcmp. Rounding is to nearest and subnormals are kept, as `create` runs (design.md 4, Domain).
 */
#ifndef NB_FORMAT_KERNELS_H
#define NB_FORMAT_KERNELS_H

#include "format/format.h"

/* One row of codes with its scales (and biases). k is a multiple of the group. */
typedef struct nb_row {
    uint8_t *codes, *scales, *biases;
} nb_row;
typedef struct nb_row_in {
    const uint8_t *codes, *scales, *biases;
} nb_row_in;

typedef struct nb_kernels {
    const char *name;
    /* The greatest bit pattern of |w[i]|: below 0x7f800000 all are finite, above it one is a NaN. */
    uint32_t (*abs_bits)(const float *w, size_t n);
    /* Quantisers of one row of finite values. enc = 2688/A, or 0 for an all-zero result. false: a value does not fit
     * the format. */
    void (*nvfp4)(const float *w, int64_t k, float enc, nb_row out);
    bool (*mxfp4)(const float *w, int64_t k, nb_row out);
    bool (*mxfp8)(const float *w, int64_t k, nb_row out);
    /* The same formats with the scale of each group searched for (nb_quantize_search). */
    void (*nvfp4_search)(const float *w, int64_t k, float enc, nb_row out);
    bool (*mxfp4_search)(const float *w, int64_t k, nb_row out);
    bool (*affine)(const float *w, int64_t k, nb_qtype q, nb_row out);
    void (*e4m3)(const float *w, int64_t k, float s, uint8_t *out); /* e4m3(w / s) */
    bool (*bf16)(const float *w, int64_t k, uint8_t *out);          /* false: rounds to infinity */
    bool (*f16)(const float *w, int64_t k, uint8_t *out);
    /* Decoders of one row: (code * scale) * m, fma(q, s, z). */
    void (*from_e2m1)(nb_row_in in, int64_t k, nb_qtype q, float m, float *out); /* NVFP4, MXFP4 */
    void (*from_mxfp8)(nb_row_in in, int64_t k, float *out);
    void (*from_affine)(nb_row_in in, int64_t k, nb_qtype q, float *out);
    void (*from_bf16)(const uint8_t *in, size_t n, float *out);
    void (*from_f16)(const uint8_t *in, size_t n, float *out);
    void (*from_e4m3)(const uint8_t *in, size_t n, float m, float *out); /* e4m3(b) * m */
} nb_kernels;

extern const nb_kernels nb_kernels_c;
#if defined(__x86_64__)
extern const nb_kernels nb_kernels_avx2, nb_kernels_avx512;
#endif
/* The best table that this processor runs. */
const nb_kernels *nb_kernels_best(void);
/* Table 0, 1, 2 where the processor runs it, else NULL; for tests. */
const nb_kernels *nb_kernels_at(int i);

/* F32 patterns of the 256 E4M3 bytes and the values of the 16 E2M1 codes. */
extern const uint32_t nb_e4m3_table[256];
extern const float nb_e2m1_table[16];

/* ---- what scalar and vector code share: one scale at a time ---- */

/* E4M3 byte of a finite x >= 0. */
static inline uint8_t nb_e4m3_encode_positive(float x)
{
    uint32_t u = nb_bits_f32(x);
    if (u < 0x3c800000u) /* below 2^-6 the grid is 2^-9: adding 2^14 makes the processor round there */
        return (uint8_t)(nb_bits_f32(x + 16384.0f) - 0x46800000u);
    u = ((u + 0x7ffffu + ((u >> 20) & 1)) >> 20) - (120u << 3);
    return u > 0x7e ? 0x7e : (uint8_t)u;
}

/* NVFP4 block scale byte and the factor for its codes; a is the block's absolute maximum. */
static inline uint8_t nb_nvfp4_scale(float a, float enc, float *r)
{
    uint8_t s = nb_e4m3_encode_positive((a / 6.0f) * enc);
    if (a > 0 && enc > 0 && s == 0) s = 0x01; /* never lose a block that has a value */
    *r = s ? enc / nb_f32_bits(nb_e4m3_table[s]) : 0.0f;
    return s;
}

/* E8M0 byte for a block with absolute maximum a of elements up to `top`; *inv = 2^(127 - byte). Blocks below the domain
 * become zero (*inv = 0, byte 127); false: above it (design.md 4, Domain). */
static inline bool nb_mx_scale(float a, float top, uint8_t *byte, float *inv)
{
    uint8_t e = nb_e8m0_round_up(a / top);
    *byte = 127;
    *inv = 0.0f;
    if (e > 240) return false;
    if (a == 0.0f || e < 16) return true;
    *byte = e;
    *inv = nb_f32_bits((uint32_t)(254 - e) << 23);
    return true;
}

/* ---- the search for a better scale (specs/create.md 4.4, 4.5) ----
 * The error of a group is the sum of (w - value)^2 in units of the format, each square rounded once; the sum has 16
 * accumulators, value i goes to i mod 16, then they fold 8, 4, 2, 1. The rounded-up scale is tried first, the others in
 * ascending order, and only a smaller error wins. So plain C and the vectors choose alike. */
#define NB_NVFP4_REACH 6 /* scale codes tried on either side */
static inline int nb_nvfp4_first(uint8_t s) { return s > NB_NVFP4_REACH ? s - NB_NVFP4_REACH : 0x01; }
static inline int nb_nvfp4_last(uint8_t s) /* below the first for a block of zeros */
{
    return s == 0 ? 0 : s < 0x7e - NB_NVFP4_REACH ? s + NB_NVFP4_REACH : 0x7e;
}

static inline size_t nb_scale_size(uint8_t dtype)
{
    return dtype == NB_DT_F32 ? 4 : dtype == NB_DT_BF16 || dtype == NB_DT_F16 ? 2 : dtype == NB_DT_NONE ? 0 : 1;
}
/* Scale i of a row, of type BF16, F16 or F32. */
static inline float nb_scale_get(uint8_t dtype, const uint8_t *p, int64_t i)
{
    if (dtype == NB_DT_F32) return nb_f32_bits(nb_load_u32(p + 4 * i));
    return dtype == NB_DT_F16 ? nb_f16_decode(nb_load_u16(p + 2 * i)) : nb_bf16_decode(nb_load_u16(p + 2 * i));
}
/* Stores x rounded to dtype and returns what was stored. */
static inline float nb_scale_put(uint8_t dtype, uint8_t *p, int64_t i, float x)
{
    if (dtype == NB_DT_F32)
        nb_store_u32(p + 4 * i, nb_bits_f32(x));
    else
        nb_store_u16(p + 2 * i, dtype == NB_DT_F16 ? nb_f16_encode(x) : nb_bf16_encode(x));
    return nb_scale_get(dtype, p, i);
}

/* Affine scale and bias of one group from its least and greatest value, stored at index i; false: they do not fit the
 * type. */
bool nb_affine_scale(float lo, float hi, nb_qtype q, int64_t i, nb_row out, float *s, float *z);

/* Eight codes, one a byte, to and from `bits` bytes of bit stream: the byte-wise part; codes come packed in v. */
static inline void nb_put_bytes(uint8_t *p, uint64_t v, int bits)
{
    switch (bits) {
    case 2: nb_store_u16(p, (uint16_t)v); break;
    case 3: nb_store_u16(p, (uint16_t)v), p[2] = (uint8_t)(v >> 16); break;
    case 4: nb_store_u32(p, (uint32_t)v); break;
    case 5: nb_store_u32(p, (uint32_t)v), p[4] = (uint8_t)(v >> 32); break;
    case 6: nb_store_u32(p, (uint32_t)v), nb_store_u16(p + 4, (uint16_t)(v >> 32)); break;
    default: nb_store_u64(p, v); break;
    }
}
static inline uint64_t nb_get_bytes(const uint8_t *p, int bits)
{
    switch (bits) {
    case 2: return nb_load_u16(p);
    case 3: return nb_load_u16(p) | (uint64_t)p[2] << 16;
    case 4: return nb_load_u32(p);
    case 5: return nb_load_u32(p) | (uint64_t)p[4] << 32;
    case 6: return nb_load_u32(p) | (uint64_t)nb_load_u16(p + 4) << 32;
    default: return nb_load_u64(p);
    }
}

/* Packs eight codes, one in each byte of x, into the low 8 * bits bits; neighbours are joined pairwise, then fours,
 * then all. */
static inline uint64_t nb_pack8(uint64_t x, int bits)
{
    uint64_t m1 = 0x0001000100010001u * ((1u << bits) - 1), m2 = 0x0000000100000001u * ((1u << 2 * bits) - 1),
             m3 = ((uint64_t)1 << 4 * bits) - 1;
    x = (x & m1) | ((x >> (8 - bits)) & (m1 << bits));
    x = (x & m2) | ((x >> (16 - 2 * bits)) & (m2 << 2 * bits));
    return (x & m3) | ((x >> (32 - 4 * bits)) & (m3 << 4 * bits));
}
static inline uint64_t nb_unpack8(uint64_t x, int bits)
{
    uint64_t m1 = 0x0001000100010001u * ((1u << bits) - 1), m2 = 0x0000000100000001u * ((1u << 2 * bits) - 1),
             m3 = ((uint64_t)1 << 4 * bits) - 1;
    x = (x & m3) | ((x & (m3 << 4 * bits)) << (32 - 4 * bits));
    x = (x & m2) | ((x & (m2 << 2 * bits)) << (16 - 2 * bits));
    return (x & m1) | ((x & (m1 << bits)) << (8 - bits));
}

#endif
