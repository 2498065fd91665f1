/* What the tests of this room share: random numbers, guarded buffers, the tiers of this machine. */
#ifndef NB_TESTS_CPU_UTIL_H
#define NB_TESTS_CPU_UTIL_H

#include "cpu/kernels.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define UNUSED_STATE (void)state

static uint64_t rng_state = 0x9e3779b97f4a7c15ull;
static inline uint32_t rnd(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 32);
}
static inline float rnd_unit(void) { return (float)(int32_t)rnd() * 0x1p-31f; } /* [-1, 1) */
static inline int32_t rnd_below(int32_t n) { return (int32_t)(rnd() % (uint32_t)n); }

/* What a kernel may meet: ordinary values, and now and then the edges of the domain and beyond. */
static inline float rnd_wild(void)
{
    static const float edges[] = {0.0f,       -0.0f,     1.0f,         -1.0f,     0x1p100f, -0x1p100f,
                                  0x1.8p100f, 0x1p-100f, -0x1.8p-101f, 0x1p-140f, 0x1p-50f, 0x1.fffp-51f,
                                  3e38f,      88.5f,     -87.5f,       1e-30f};
    uint32_t r = rnd();
    if (r % 16 == 0) return edges[rnd() % NB_COUNT(edges)];
    if (r % 97 == 1) return r & 1024 ? __builtin_nanf("") : r & 2048 ? __builtin_inff() : -__builtin_inff();
    return rnd_unit() * (r & 256 ? 10.0f : r & 512 ? 0.01f : 1.0f);
}

/* Equal bits, or both NaN. Returns the first index that differs, or -1. */
static inline int64_t differ(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (nb_bits_f32(a[i]) != nb_bits_f32(b[i]) && !(a[i] != a[i] && b[i] != b[i])) return i;
    return -1;
}

/* A buffer with 64 guard bytes on either side. */
typedef struct guarded {
    uint8_t *base;
    size_t n;
} guarded;
enum { GUARD = 64 };
static inline void *guarded_new(guarded *g, size_t n)
{
    g->base = aligned_alloc(64, NB_ALIGN_UP(n + 2 * GUARD, (size_t)64));
    assert_non_null(g->base);
    memset(g->base, 0xa5, n + 2 * GUARD);
    g->n = n;
    return g->base + GUARD;
}
static inline void guarded_check(const guarded *g)
{
    for (size_t i = 0; i < GUARD; i++) {
        assert_int_equal(g->base[i], 0xa5);
        assert_int_equal(g->base[GUARD + g->n + i], 0xa5);
    }
}
static inline void guarded_free(guarded *g)
{
    guarded_check(g);
    free(g->base);
}

/* Tables to compare with plain C without FMA instructions: its twin, then every tier that the machine has. */
static inline int tables(nb_kernels *out, const char **names)
{
    int n = 0;
    nb_kernels_init(&out[n], NB_TIER_C);
    names[n++] = "c (as chosen)";
    for (int t = NB_TIER_AVX2; t < NB_TIER_COUNT; t++) {
        if (!nb_tier_available((nb_tier)t)) continue;
        nb_kernels_init(&out[n], (nb_tier)t);
        names[n++] = nb_tier_name((nb_tier)t);
    }
    return n;
}
static inline void plain_table(nb_kernels *k)
{
    nb_kernels_init(k, NB_TIER_C);
    nb_elementwise_plain(k);
    nb_attention_plain(k);
}

#endif
