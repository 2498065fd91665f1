/* cpu/x86/linear_x86: what the files of one tier's products share. */
#ifndef NB_CPU_LINEAR_X86_H
#define NB_CPU_LINEAR_X86_H

#include "cpu/linear_blocked.h"

/* Into L2: into L1 costs more than it gains on the machines tried (AMD Zen 4). */
#define NB_PREFETCH_HINT _MM_HINT_T1

/* Bytes of 32 k of a tile, block scales included, of the formats that the few-rows kernels know. */
static inline size_t nb_lin_block_bytes(nb_format f)
{
    switch (f) {
    case NB_BF16: return 1024;
    case NB_NVFP4: return 288;
    case NB_MXFP4: return 272;
    case NB_MXFP8: return 528;
    case NB_INT8: return 512;
    default: return 256; /* int4 */
    }
}

/* Bytes between a load and its prefetch in each stream. */
static inline size_t nb_lin_ahead(nb_format f)
{
    switch (f) {
    case NB_BF16: return 1024;
    case NB_INT8:
    case NB_MXFP8: return 4096;
    default: return 2048;
    }
}

/* Multiplies x[k] by 2^-8, 2^-16 and `last` for k % 4 = 1, 2, 3: for int8 codes that stay where they lie in their word. */
static inline void nb_lin_unshift(float *x, size_t n, float last)
{
    for (size_t k = 0; k < n; k += 4) {
        x[k + 1] *= 0x1p-8f;
        x[k + 2] *= 0x1p-16f;
        x[k + 3] *= last;
    }
}

nb_linear_fn nb_linear_blocked_avx512, nb_linear_blocked_avx2;
void nb_expand_avx512(const void *x, bool f32, float *out, int blocks);
void nb_expand_avx2(const void *x, bool f32, float *out, int blocks);
void nb_finish_avx512(const nb_linear_job *j, int64_t tile, int32_t row0, int32_t rows, const float *acc);
void nb_finish_avx2(const nb_linear_job *j, int64_t tile, int32_t row0, int32_t rows, const float *acc);

#endif
