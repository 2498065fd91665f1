/* The fp32 FMA peak of 256-bit registers: twelve independent chains, written out so that they stay in registers. */
#include "cpu/probe.h"

#include <immintrin.h>

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define DECLARE(i) __m256 c##i = _mm256_set1_ps((float)i);
#define STEP(i) c##i = _mm256_fmadd_ps(c##i, a, b);
#define ADD(i) sum = _mm256_add_ps(sum, c##i);

double nb_probe_fma_avx2(long rounds)
{
    __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f), sum = _mm256_setzero_ps();
    EACH(DECLARE)
    for (long r = 0; r < rounds; r++) {
        EACH(STEP)
        __asm__ volatile("" : "+x"(a));
    }
    EACH(ADD)
    volatile float keep = ((const float *)&sum)[0];
    (void)keep;
    return 2.0 * 8 * 12 * (double)rounds;
}
