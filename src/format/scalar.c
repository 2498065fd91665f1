/* Scalar codes: E2M1, E4M3, E5M2, the FNUZ variants, E8M0, F16. Tables are written as bit patterns, so that nothing
 * depends on the rounding or flushing mode of the thread that decodes. */
#include "format/scalar.h"
#include "format/kernels.h"

const float nb_e2m1_table[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

/* E4M3: exponent 0 holds m * 2^-9, whose F32 patterns are listed; the others are rebiased by 127 - 7. */
#define SUB(s)                                                                                                         \
    (s), (s) | 0x3b000000u, (s) | 0x3b800000u, (s) | 0x3bc00000u, (s) | 0x3c000000u, (s) | 0x3c200000u,                \
        (s) | 0x3c400000u, (s) | 0x3c600000u
#define ONE(s, e, m) ((s) | ((uint32_t)((e) + 120) << 23) | ((uint32_t)(m) << 20))
#define EXP(s, e)                                                                                                      \
    ONE(s, e, 0), ONE(s, e, 1), ONE(s, e, 2), ONE(s, e, 3), ONE(s, e, 4), ONE(s, e, 5), ONE(s, e, 6), ONE(s, e, 7)
#define TOP(s)                                                                                                         \
    ONE(s, 15, 0), ONE(s, 15, 1), ONE(s, 15, 2), ONE(s, 15, 3), ONE(s, 15, 4), ONE(s, 15, 5), ONE(s, 15, 6),           \
        (s) | 0x7fc00000u
#define HALF(s)                                                                                                        \
    SUB(s), EXP(s, 1), EXP(s, 2), EXP(s, 3), EXP(s, 4), EXP(s, 5), EXP(s, 6), EXP(s, 7), EXP(s, 8), EXP(s, 9),         \
        EXP(s, 10), EXP(s, 11), EXP(s, 12), EXP(s, 13), EXP(s, 14), TOP(s)
const uint32_t nb_e4m3_table[256] = {HALF(0u), HALF(0x80000000u)};

float nb_e2m1_decode(uint8_t code) { return nb_e2m1_table[code & 15]; }

uint8_t nb_e2m1_encode(float x)
{
    uint32_t u = nb_bits_f32(x);
    float a = nb_f32_bits(u & 0x7fffffffu);
    /* each border is passed or, where the even code lies above it, reached */
    unsigned c =
        (unsigned)(a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return (uint8_t)(c | (u >> 31 << 3));
}

float nb_e4m3_decode(uint8_t b) { return nb_f32_bits(nb_e4m3_table[b]); }

uint8_t nb_e4m3_encode(float x)
{
    uint32_t u = nb_bits_f32(x), a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7f;
    return (uint8_t)(nb_e4m3_encode_positive(nb_f32_bits(a)) | (u >> 31 << 7));
}

float nb_e5m2_decode(uint8_t b) { return nb_f16_decode((uint16_t)(b << 8)); }

/* FNUZ: no infinities, no -0; 0x80 is the only NaN. mbits: 3 (bias 8) or 2 (bias 16). */
static float fnuz(uint8_t b, int mbits, int bias)
{
    if (b == 0x80) return nb_f32_bits(0x7fc00000u);
    int m = b & ((1 << mbits) - 1), e = (b & 0x7f) >> mbits;
    int mant = e ? m + (1 << mbits) : m;
    float v = (float)mant * nb_f32_bits((uint32_t)(127 + (e ? e : 1) - bias - mbits) << 23);
    return b & 0x80 ? -v : v;
}
float nb_e4m3fnuz_decode(uint8_t b) { return fnuz(b, 3, 8); }
float nb_e5m2fnuz_decode(uint8_t b) { return fnuz(b, 2, 16); }

float nb_e8m0_decode(uint8_t b)
{
    if (b == 255) return nb_f32_bits(0x7fc00000u);
    return nb_f32_bits(b ? (uint32_t)b << 23 : 0x00400000u);
}

uint8_t nb_e8m0_round_up(float r)
{
    uint32_t u = nb_bits_f32(r) & 0x7fffffffu;
    if (u == 0) return 127;
    uint32_t e = (u >> 23) + ((u & 0x7fffffu) != 0);
    return (uint8_t)(e < 1 ? 1 : e > 254 ? 254 : e);
}

float nb_f16_decode(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3ff;
    if (e == 31) return nb_f32_bits(sign | 0x7f800000u | (m << 13) | (m ? 0x00400000u : 0)); /* a NaN is made quiet */
    if (e) return nb_f32_bits(sign | (e + 112) << 23 | m << 13);
    if (m == 0) return nb_f32_bits(sign);
    int shift = __builtin_clz(m) - 21; /* brings the leading one to bit 10 */
    return nb_f32_bits(sign | (uint32_t)(113 - shift) << 23 | ((m << shift) & 0x3ff) << 13);
}

uint16_t nb_f16_encode(float x)
{
    uint32_t u = nb_bits_f32(x), a = u & 0x7fffffffu, sign = (u >> 16) & 0x8000;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | ((a >> 13) & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* 65520 and more */
    if (a < 0x38800000u) return (uint16_t)(sign | (nb_bits_f32(nb_f32_bits(a) + 0.5f) - 0x3f000000u)); /* grid 2^-24 */
    return (uint16_t)(sign | (((a + 0xfffu + ((a >> 13) & 1)) >> 13) - (112u << 10)));
}
