/* Which tiers this processor has, and the table of kernels for one of them. */
#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define NB_X86 1
#else
#define NB_X86 0
#endif

static const char *const tier_names[NB_TIER_COUNT] = {"c", "avx2", "avx512", "avx512bf16", "amx"};

const char *nb_tier_name(nb_tier t) { return (unsigned)t < NB_TIER_COUNT ? tier_names[t] : "?"; }

bool nb_tier_parse(nb_tier *out, const char *name)
{
    for (int t = 0; t < NB_TIER_COUNT; t++) {
        if (strcmp(name, tier_names[t]) == 0) {
            *out = (nb_tier)t;
            return true;
        }
    }
    return false;
}

#if NB_X86
/* What the operating system saves of the registers, or 0. */
static uint64_t xcr0(void)
{
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    uint32_t lo, hi;
    __asm__("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* The fused plain build needs FMA with AVX registers. */
static bool has_fma(void)
{
    uint32_t a, b, c, d;
    if ((xcr0() & 6) != 6 || !__get_cpuid(1, &a, &b, &c, &d)) return false;
    return (c & bit_AVX) && (c & bit_FMA);
}

static bool has_avx2(void)
{
    uint32_t a, b, c, d;
    if (!has_fma() || !__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C)) return false;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) && (b & bit_BMI2);
}

/* The tier is a set of features: F, BW, DQ, VL, VBMI (CMakeLists.txt gives its files the same). */
static bool has_avx512(void)
{
    const uint32_t want = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    uint32_t a, b, c, d;
    if (!has_avx2() || (xcr0() & 0xe6) != 0xe6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return (b & want) == want && (c & bit_AVX512VBMI);
}
#else
static bool has_fma(void) { return false; }
static bool has_avx2(void) { return false; }
static bool has_avx512(void) { return false; }
#endif

/* avx512bf16 and amx have names and places here, and no kernels yet: not available. */
bool nb_tier_available(nb_tier t)
{
    switch (t) {
    case NB_TIER_C: return true;
    case NB_TIER_AVX2: return has_avx2();
    case NB_TIER_AVX512: return has_avx512();
    default: return false;
    }
}

nb_tier nb_tier_best(void)
{
    for (int t = NB_TIER_COUNT - 1; t > 0; t--)
        if (nb_tier_available((nb_tier)t)) return (nb_tier)t;
    return NB_TIER_C;
}

void nb_kernels_init(nb_kernels *k, nb_tier t)
{
    memset(k, 0, sizeof *k);
    k->tier = t;
    nb_linear_plain(k);
    if (has_fma()) {
        nb_elementwise_plain_fma(k);
        nb_attention_plain_fma(k);
    } else {
        nb_elementwise_plain(k);
        nb_attention_plain(k);
    }
#if NB_X86
    if (t < NB_TIER_AVX2) return;
    nb_linear_avx2(k);
    nb_elementwise_avx2(k);
    nb_attention_avx2(k);
    if (t < NB_TIER_AVX512) return;
    nb_linear_avx512(k);
    nb_elementwise_avx512(k);
    nb_attention_avx512(k);
#endif
}

/* MXCSR: bits 13-14 rounding (0: to nearest), 15 FTZ, 6 DAZ, 7-12 exceptions masked. */
uint32_t nb_fpu_enter(void)
{
#if NB_X86
    uint32_t saved = _mm_getcsr();
    _mm_setcsr(0x8000 | 0x0040 | 0x1f80);
    return saved;
#else
    return 0;
#endif
}

void nb_fpu_leave(uint32_t saved)
{
#if NB_X86
    _mm_setcsr(saved);
#else
    (void)saved;
#endif
}
