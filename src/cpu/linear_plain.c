/* linear_plain: puts the plain C products into the table of primitives; the build with FMA instructions where the machine has them. */
#include "cpu/linear.h"

static size_t scratch_bytes(int64_t max_k, int32_t max_rows)
{
    (void)max_k;
    return (size_t)max_rows * (2 * NB_TILE + 1) * sizeof(float);
}

void nb_linear_plain(nb_kernels *k)
{
    bool fma = __builtin_cpu_supports("fma");
    for (int f = 0; f < NB_FORMAT_COUNT; f++)
        for (int mode = 0; mode < 2; mode++) k->linear[f][mode] = fma ? nb_linear_rows_fma : nb_linear_rows_base;
    k->linear_scratch = scratch_bytes;
    k->gather_row = fma ? nb_gather_row_fma : nb_gather_row_base;
}
