/* Tier avx2 of the element-wise kernels: vec_elementwise.h over the vectors of vec_avx2.h. */
#include "cpu/x86/vec_avx2.h"

#include "cpu/x86/vec_elementwise.h"

void nb_elementwise_avx2(nb_kernels *k) { v_elementwise_init(k); }
