/* quad_avx512: four consecutive k of 16 rows, from codes to fp32. Included by the *_avx512.c files of the products only.
 *
 * Every function here takes the format as a constant, so that the switch is gone after inlining. No load leaves the group that a code lies in: where a load starts at a
 * byte offset, scales follow the codes.
 */
#ifndef NB_CPU_QUAD_AVX512_H
#define NB_CPU_QUAD_AVX512_H

#include "cpu/linear.h"

#include <immintrin.h>

#define NB_INLINE static inline __attribute__((always_inline))

/* Keeps v in a register: without it GCC loads a second time to shift from memory, and loads across lines are what limits the FP4 products. */
NB_INLINE __m512i nb_once(__m512i v)
{
    __asm__("" : "+v"(v));
    return v;
}

/* Look-up tables in registers; which ones are used depends on the format. */
typedef struct nb_luts {
    __m512 value;           /* 4-bit codes: E2M1 (times 256 for NVFP4) or integers */
    __m512i high[2], low[2];/* E4M3 magnitudes as bf16: upper and lower bytes of 128 values */
} nb_luts;

/* E4M3 magnitude n as the upper 16 bits of its fp32; below 8 it is n * 2^-9. 0x7F counts as 480 (plain_linear.c). */
#define NB_E4M3_BF16(n) ((n) >= 8 ? ((n) << 4) + (120 << 7) : (n) >= 4 ? 0x3c00 + ((n) - 4) * 0x20 : (n) >= 2 ? 0x3b80 + ((n) - 2) * 0x40 : (n) * 0x3b00)
#define NB_HIGH(n) (uint8_t)(NB_E4M3_BF16(n) >> 8)
#define NB_LOW(n) (uint8_t)(NB_E4M3_BF16(n) & 0xff)
#define NB_LIST4(f, n) f(n), f((n) + 1), f((n) + 2), f((n) + 3)
#define NB_LIST16(f, n) NB_LIST4(f, n), NB_LIST4(f, (n) + 4), NB_LIST4(f, (n) + 8), NB_LIST4(f, (n) + 12)
#define NB_LIST64(f, n) NB_LIST16(f, n), NB_LIST16(f, (n) + 16), NB_LIST16(f, (n) + 32), NB_LIST16(f, (n) + 48)
static const uint8_t nb_e4m3_high[128] = {NB_LIST64(NB_HIGH, 0), NB_LIST64(NB_HIGH, 64)};
static const uint8_t nb_e4m3_low[128] = {NB_LIST64(NB_LOW, 0), NB_LIST64(NB_LOW, 64)};

NB_INLINE nb_luts nb_luts_of(nb_format f)
{
    nb_luts l = {.value = _mm512_setzero_ps()};
    const __m512 e2m1 = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
    if (f == NB_MXFP4) l.value = e2m1;
    if (f == NB_NVFP4) l.value = _mm512_mul_ps(e2m1, _mm512_set1_ps(256.0f));
    if (f == NB_INT4) l.value = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    if (f == NB_MXFP8 || f == NB_FP8_TENSOR || f == NB_FP8_CHANNEL || f == NB_FP8_BLOCK) {
        for (int i = 0; i < 2; i++) l.high[i] = _mm512_loadu_si512(nb_e4m3_high + 64 * i), l.low[i] = _mm512_loadu_si512(nb_e4m3_low + 64 * i);
    }
    return l;
}

/* 16 scales E4M3 / 256: as f16 bits the byte means its value times 2^-8, subnormals included (the conversion heeds no DAZ). */
NB_INLINE __m512 nb_scales_e4m3(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p)), 7));
}

NB_INLINE __m512 nb_scales_e8m0(const uint8_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 23));
}

/* 16 scales or biases of an affine format. */
NB_INLINE __m512 nb_factors(const uint8_t *p, uint8_t dtype)
{
    if (dtype == NB_DT_F32) return _mm512_loadu_ps(p);
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (dtype == NB_DT_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

NB_INLINE void nb_quad_e4m3(const nb_luts *l, __m512i v, __m512 w[4])
{
    const __m512i low_bytes = _mm512_set1_epi16(0x00ff), upper = _mm512_set1_epi32((int)0xffff0000), sign = _mm512_set1_epi8((char)0x80);
    __m512i hi = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(l->high[0], v, l->high[1]), v, sign, 0xf8); /* a | (b & c) */
    __m512i lo = _mm512_permutex2var_epi8(l->low[0], v, l->low[1]);
    __m512i even = _mm512_ternarylogic_epi32(low_bytes, lo, _mm512_slli_epi16(hi, 8), 0xca); /* a ? b : c; bf16 of k 0 and 2 */
    __m512i odd = _mm512_ternarylogic_epi32(low_bytes, _mm512_srli_epi16(lo, 8), hi, 0xca);
    w[0] = _mm512_castsi512_ps(_mm512_slli_epi32(even, 16));
    w[1] = _mm512_castsi512_ps(_mm512_slli_epi32(odd, 16));
    w[2] = _mm512_castsi512_ps(_mm512_and_si512(even, upper));
    w[3] = _mm512_castsi512_ps(_mm512_and_si512(odd, upper));
}

/* Codes times 1, 2^8, 2^16, 2^24. */
NB_INLINE void nb_quad_int8_unshifted(__m512i v, __m512 w[4])
{
    for (int i = 0; i < 4; i++) w[i] = _mm512_cvtepu32_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)(0xffu << 8 * i))));
}

NB_INLINE void nb_quad_int8(__m512i v, __m512 w[4])
{
    const __m512i byte = _mm512_set1_epi32(0xff);
    w[0] = _mm512_cvtepi32_ps(_mm512_and_si512(v, byte));
    w[1] = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, 8), byte));
    w[2] = _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(v, 16), byte));
    w[3] = _mm512_cvtepi32_ps(_mm512_srli_epi32(v, 24));
}

/* vpermps heeds four index bits only: low nibbles of the byte at an offset need no shift. p: word vector, at byte 0 or 2 of it. */
NB_INLINE void nb_quad_4bit(const nb_luts *l, const uint8_t *p, __m512 w[4])
{
    for (int i = 0; i < 2; i++) {
        __m512i v = nb_once(_mm512_loadu_si512(p + i));
        w[2 * i] = _mm512_permutexvar_ps(v, l->value);
        w[2 * i + 1] = _mm512_permutexvar_ps(_mm512_srli_epi32(v, 4), l->value);
    }
}

NB_INLINE void nb_quad_16bit(nb_format f, const uint8_t *p, __m512 w[4])
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    for (int i = 0; i < 2; i++) {
        __m512i v = nb_once(_mm512_loadu_si512(p + 64 * i));
        if (f == NB_BF16) {
            w[2 * i] = _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
            w[2 * i + 1] = _mm512_castsi512_ps(_mm512_and_si512(v, upper));
        } else {
            w[2 * i] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v));
            w[2 * i + 1] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(v, 16)));
        }
    }
}

/* Any width below 32: element k starts at bit k * bits of the row's words. */
NB_INLINE void nb_quad_bits(const uint8_t *codes, int bits, int q, __m512 w[4])
{
    for (int i = 0; i < 4; i++) {
        int at = (4 * q + i) * bits, shift = at % 32;
        const uint8_t *p = codes + (size_t)(at / 32) * 64;
        __m512i v = _mm512_srl_epi32(_mm512_loadu_si512(p), _mm_cvtsi32_si128(shift));
        if (shift + bits > 32) v = _mm512_or_si512(v, _mm512_sll_epi32(_mm512_loadu_si512(p + 64), _mm_cvtsi32_si128(32 - shift)));
        w[i] = _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32((1 << bits) - 1)));
    }
}

/* Codes k = 4q .. 4q+3 of a block, q 0..7, as fp32 without their scale; even and odd k alternate. NVFP4: `codes` is its half of the block, q 0..3. */
NB_INLINE void nb_quad(nb_format f, const nb_luts *l, const uint8_t *codes, int q, __m512 w[4])
{
    switch (f) {
    case NB_F32:
        for (int i = 0; i < 4; i++) w[i] = _mm512_loadu_ps(codes + (4 * q + i) * 64);
        break;
    case NB_F16:
    case NB_BF16: nb_quad_16bit(f, codes + 128 * q, w); break;
    case NB_NVFP4:
    case NB_MXFP4:
    case NB_INT4: nb_quad_4bit(l, codes + q / 2 * 64 + q % 2 * 2, w); break;
    case NB_INT8: nb_quad_int8(nb_once(_mm512_loadu_si512(codes + 64 * q)), w); break;
    case NB_MXFP8:
    case NB_FP8_TENSOR:
    case NB_FP8_CHANNEL:
    case NB_FP8_BLOCK: nb_quad_e4m3(l, nb_once(_mm512_loadu_si512(codes + 64 * q)), w); break;
    case NB_INT2: nb_quad_bits(codes, 2, q, w); break;
    case NB_INT3: nb_quad_bits(codes, 3, q, w); break;
    case NB_INT5: nb_quad_bits(codes, 5, q, w); break;
    case NB_INT6: nb_quad_bits(codes, 6, q, w); break;
    default: break;
    }
}

/* Formats whose weight is code times a scale that belongs to the block. */
NB_INLINE bool nb_scaled(nb_format f) { return f == NB_NVFP4 || f == NB_MXFP4 || f == NB_MXFP8; }

/* Where quad q (0..7) of a block starts, and its scales: NVFP4 has two groups in a block. */
NB_INLINE const uint8_t *nb_quad_codes(nb_format f, const uint8_t *block, int q) { return f == NB_NVFP4 ? block + q / 4 * 144 : block; }
NB_INLINE int nb_quad_index(nb_format f, int q) { return f == NB_NVFP4 ? q % 4 : q; }
NB_INLINE __m512 nb_block_scales(nb_format f, const uint8_t *block, int q)
{
    if (f == NB_NVFP4) return nb_scales_e4m3(block + q / 4 * 144 + 128);
    return nb_scales_e8m0(block + (f == NB_MXFP4 ? 256 : 512));
}

#endif
