#include "cpu/probe.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

struct nb_probe {
    nb_lanes *lanes;
    uint8_t *buffer;
    size_t bytes;
    nb_tier tier;
    long rounds;
    double ops[256];
    uint64_t sums[256 * 8]; /* a cache line for each lane */
};

nb_status nb_probe_new(nb_probe **out, nb_lanes *lanes, uint64_t bytes, nb_error *err)
{
    nb_probe *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return nb_fail(err, NB_E_NO_MEMORY, "no memory for a probe");
    p->lanes = lanes;
    p->bytes = (size_t)bytes / 4096 * 4096;
    p->buffer = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p->buffer == MAP_FAILED) {
        free(p);
        return nb_fail(err, NB_E_NO_MEMORY, "no memory for a read probe of %llu bytes", (unsigned long long)bytes);
    }
    madvise(p->buffer, p->bytes, MADV_HUGEPAGE);
    memset(p->buffer, 1, p->bytes);
    *out = p;
    return NB_OK;
}

void nb_probe_free(nb_probe *p)
{
    if (!p) return;
    munmap(p->buffer, p->bytes);
    free(p);
}

typedef uint64_t vec8 __attribute__((vector_size(64)));

static void read_lane(void *arg, int lane, int lanes)
{
    nb_probe *p = arg;
    size_t each = p->bytes / (size_t)lanes / 4096 * 4096;
    const uint8_t *at = p->buffer + each * (size_t)lane;
    vec8 a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < each; i += 256) {
        const vec8 *v = (const vec8 *)(const void *)(at + i);
        a += v[0];
        b += v[1];
        c += v[2];
        d += v[3];
    }
    a += b + c + d;
    p->sums[lane * 8] = a[0] ^ a[7];
}

double nb_probe_read(nb_probe *p, int rounds)
{
    size_t lanes = (size_t)nb_lanes_count(p->lanes);
    double bytes = (double)(p->bytes / lanes / 4096 * 4096 * lanes), best = 0;
    for (int i = 0; i < rounds; i++) {
        uint64_t t = nb_now_ns();
        nb_lanes_run(p->lanes, read_lane, p);
        double rate = bytes * 1e9 / (double)(nb_now_ns() - t);
        if (rate > best) best = rate;
    }
    return best;
}

double nb_probe_fma_plain(long rounds)
{
    float c[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    volatile float keep;
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < 8; i++) c[i] = c[i] * 0.999f + 1e-3f;
    keep = c[0] + c[1] + c[2] + c[3] + c[4] + c[5] + c[6] + c[7];
    (void)keep;
    return 16.0 * (double)rounds;
}

static void fma_lane(void *arg, int lane, int lanes)
{
    nb_probe *p = arg;
    (void)lanes;
    p->ops[lane] = p->tier >= NB_TIER_AVX512 ? nb_probe_fma_avx512(p->rounds) : p->tier == NB_TIER_AVX2 ? nb_probe_fma_avx2(p->rounds) : nb_probe_fma_plain(p->rounds);
}

double nb_probe_fma(nb_probe *p, nb_tier tier)
{
    p->tier = tier;
    double best = 0;
    p->rounds = 20000;
    for (int i = 0; i < 8; i++) { /* the first rounds are short: they warm up and find the length of the later ones */
        uint64_t t = nb_now_ns();
        nb_lanes_run(p->lanes, fma_lane, p);
        double ns = (double)(nb_now_ns() - t), ops = 0;
        for (int l = 0; l < nb_lanes_count(p->lanes); l++) ops += p->ops[l];
        if (i > 1 && ops * 1e9 / ns > best) best = ops * 1e9 / ns;
        if (ns < 2e7) p->rounds *= 4;
    }
    return best;
}
