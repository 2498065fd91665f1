/* quad_avx2: four consecutive k of eight rows (half a tile), from codes to fp32. Included by the *_avx2.c files of the products only.
 *
 * Formats are constants here, as in quad_avx512.h. `block` is a block of the tile, `half` 0 or 1: rows 0..7 or 8..15.
 */
#ifndef NB_CPU_QUAD_AVX2_H
#define NB_CPU_QUAD_AVX2_H

#include "cpu/linear.h"

#include <immintrin.h>

#define NB_INLINE static inline __attribute__((always_inline))

/* Keeps v in a register, so that GCC does not load it again for each use. */
NB_INLINE __m256i nb_once(__m256i v)
{
    __asm__("" : "+x"(v));
    return v;
}
NB_INLINE __m256i nb_load8(const uint8_t *p) { return nb_once(_mm256_loadu_si256((const __m256i *)(const void *)p)); }

/* Eight magnitudes (or products of them) whose bits 28..30 are flipped by their index: code << 28 puts the sign on bit 31 and flips them back. */
NB_INLINE __m256 nb_e2m1_flipped(__m256 magnitudes)
{
    const __m256i index = _mm256_setr_epi32(0, 1 << 28, 2 << 28, 3 << 28, 4 << 28, 5 << 28, 6 << 28, 7 << 28);
    return _mm256_xor_ps(magnitudes, _mm256_castsi256_ps(index));
}
NB_INLINE __m256 nb_e2m1_magnitudes(nb_format f)
{
    const __m256 m = _mm256_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f);
    return f == NB_NVFP4 ? _mm256_mul_ps(m, _mm256_set1_ps(256.0f)) : m; /* nb_scales_e4m3 is 1/256 of the scale */
}
/* Code in the low four bits of each lane; vpermps heeds three bits of it. */
NB_INLINE __m256 nb_e2m1_pick(__m256 flipped, __m256i code)
{
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(flipped, code), _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

/* As f16 bits an E4M3 byte (moved by 7) means its value times 2^-8, subnormals included. */
NB_INLINE __m256 nb_scales_e4m3(const uint8_t *p)
{
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p)), 7));
}
/* Times 2^`up`. */
NB_INLINE __m256 nb_scales_e8m0(const uint8_t *p, int up)
{
    __m256i b = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(b, _mm256_set1_epi32(up)), 23));
}
/* Eight scales or biases of an affine format, those of `half`. */
NB_INLINE __m256 nb_factors(const uint8_t *p, uint8_t dtype, int half)
{
    if (dtype == NB_DT_F32) return _mm256_loadu_ps((const float *)(const void *)(p + 32 * half));
    __m128i h = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * half));
    if (dtype == NB_DT_F16) return _mm256_cvtph_ps(h);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

/* Bytes `byte` and `byte` + 1 of eight lanes, as E4M3 / 256. */
NB_INLINE void nb_pair_e4m3(__m256i v, int byte, __m256 w[2])
{
    const __m256i pick = byte ? _mm256_setr_epi8(-1, 2, -1, 6, -1, 10, -1, 14, -1, 3, -1, 7, -1, 11, -1, 15, -1, 2, -1, 6, -1, 10, -1, 14, -1, 3, -1, 7, -1, 11, -1, 15)
                              : _mm256_setr_epi8(-1, 0, -1, 4, -1, 8, -1, 12, -1, 1, -1, 5, -1, 9, -1, 13, -1, 0, -1, 4, -1, 8, -1, 12, -1, 1, -1, 5, -1, 9, -1, 13);
    __m256i h = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, pick), 0xd8); /* 8 rows of one k, then of the next; the byte is the upper one of its word */
    h = _mm256_and_si256(_mm256_srai_epi16(h, 1), _mm256_set1_epi16((short)0xbf80));
    w[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
    w[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
}

NB_INLINE void nb_quad_int8(__m256i v, __m256 w[4])
{
    const __m256i byte = _mm256_set1_epi32(0xff);
    w[0] = _mm256_cvtepi32_ps(_mm256_and_si256(v, byte));
    w[1] = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(v, 8), byte));
    w[2] = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srli_epi32(v, 16), byte));
    w[3] = _mm256_cvtepi32_ps(_mm256_srli_epi32(v, 24));
}

/* Codes times 1, 2^8, 2^16, 1. */
NB_INLINE void nb_quad_int8_unshifted(__m256i v, __m256 w[4])
{
    for (int i = 0; i < 3; i++) w[i] = _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(0xff << 8 * i)));
    w[3] = _mm256_cvtepi32_ps(_mm256_srli_epi32(v, 24));
}

/* p: word vector, at byte 0 or 2 of it; scales follow the codes, so that loads at offsets stay inside the tile. */
NB_INLINE void nb_quad_4bit(nb_format f, const uint8_t *p, __m256 w[4])
{
    const __m256 flipped = nb_e2m1_flipped(nb_e2m1_magnitudes(f));
    const __m256i nibble = _mm256_set1_epi32(15);
    for (int i = 0; i < 2; i++) {
        __m256i low = nb_load8(p + i), high = _mm256_srli_epi32(low, 4);
        w[2 * i] = f == NB_INT4 ? _mm256_cvtepi32_ps(_mm256_and_si256(low, nibble)) : nb_e2m1_pick(flipped, low);
        w[2 * i + 1] = f == NB_INT4 ? _mm256_cvtepi32_ps(_mm256_and_si256(high, nibble)) : nb_e2m1_pick(flipped, high);
    }
}

NB_INLINE void nb_quad_16bit(nb_format f, const uint8_t *p, __m256 w[4])
{
    for (int i = 0; i < 2; i++) {
        __m256i v = nb_load8(p + 64 * i);
        if (f == NB_BF16) {
            w[2 * i] = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
            w[2 * i + 1] = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000)));
        } else {
            __m256i even = _mm256_and_si256(v, _mm256_set1_epi32(0xffff)), h = _mm256_permute4x64_epi64(_mm256_packus_epi32(even, _mm256_srli_epi32(v, 16)), 0xd8);
            w[2 * i] = _mm256_cvtph_ps(_mm256_castsi256_si128(h));
            w[2 * i + 1] = _mm256_cvtph_ps(_mm256_extracti128_si256(h, 1));
        }
    }
}

/* Any width below 32: element k starts at bit k * bits of the row's words. */
NB_INLINE void nb_quad_bits(const uint8_t *codes, int bits, int q, __m256 w[4])
{
    for (int i = 0; i < 4; i++) {
        int at = (4 * q + i) * bits, shift = at % 32;
        const uint8_t *p = codes + (size_t)(at / 32) * 64;
        __m256i v = _mm256_srl_epi32(nb_load8(p), _mm_cvtsi32_si128(shift));
        if (shift + bits > 32) v = _mm256_or_si256(v, _mm256_sll_epi32(nb_load8(p + 64), _mm_cvtsi32_si128(32 - shift)));
        w[i] = _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32((1 << bits) - 1)));
    }
}

/* FP8 values come as 1/256; their block scale makes up for it, or this does. */
NB_INLINE void nb_quad_e4m3(__m256i v, bool times256, __m256 w[4])
{
    nb_pair_e4m3(v, 0, w);
    nb_pair_e4m3(v, 2, w + 2);
    for (int i = 0; i < 4 && times256; i++) w[i] = _mm256_mul_ps(w[i], _mm256_set1_ps(256.0f));
}

/* Codes k = 4q .. 4q+3 of a block, q 0..7, as fp32 without their scale. */
NB_INLINE void nb_quad(nb_format f, const uint8_t *block, int half, int q, __m256 w[4])
{
    const uint8_t *codes = block + 32 * half;
    switch (f) {
    case NB_F32:
        for (int i = 0; i < 4; i++) w[i] = _mm256_loadu_ps((const float *)(const void *)(codes + (4 * q + i) * 64));
        break;
    case NB_F16:
    case NB_BF16: nb_quad_16bit(f, codes + 128 * q, w); break;
    case NB_NVFP4: nb_quad_4bit(f, codes + q / 4 * 144 + q % 4 / 2 * 64 + q % 2 * 2, w); break;
    case NB_MXFP4:
    case NB_INT4: nb_quad_4bit(f, codes + q / 2 * 64 + q % 2 * 2, w); break;
    case NB_INT8: nb_quad_int8(nb_load8(codes + 64 * q), w); break;
    case NB_MXFP8: nb_quad_e4m3(nb_load8(codes + 64 * q), false, w); break;
    case NB_FP8_TENSOR:
    case NB_FP8_CHANNEL:
    case NB_FP8_BLOCK: nb_quad_e4m3(nb_load8(codes + 64 * q), true, w); break;
    case NB_INT2: nb_quad_bits(codes, 2, q, w); break;
    case NB_INT3: nb_quad_bits(codes, 3, q, w); break;
    case NB_INT5: nb_quad_bits(codes, 5, q, w); break;
    case NB_INT6: nb_quad_bits(codes, 6, q, w); break;
    default: break;
    }
}

/* Formats whose weight is code times a scale that belongs to the block, and that scale for quad q. */
NB_INLINE bool nb_scaled(nb_format f) { return f == NB_NVFP4 || f == NB_MXFP4 || f == NB_MXFP8; }
NB_INLINE __m256 nb_block_scales(nb_format f, const uint8_t *block, int half, int q)
{
    if (f == NB_NVFP4) return nb_scales_e4m3(block + q / 4 * 144 + 128 + 8 * half);
    return f == NB_MXFP4 ? nb_scales_e8m0(block + 256 + 8 * half, 0) : nb_scales_e8m0(block + 512 + 8 * half, 8);
}

#endif
