/* cpu: the processor backend. Plain C first, then tiers laid over it. */
#ifndef NB_CPU_CPU_H
#define NB_CPU_CPU_H

#include "tensor/graph.h"

extern const nb_backend nb_cpu_backend;

typedef enum nb_tier { NB_TIER_C, NB_TIER_AVX2, NB_TIER_AVX512, NB_TIER_AVX512BF16, NB_TIER_AMX, NB_TIER_COUNT } nb_tier;
const char *nb_tier_name(nb_tier t);                 /* "c", "avx2", ... */
bool nb_tier_parse(nb_tier *out, const char *name);
bool nb_tier_available(nb_tier t);                   /* built in and the machine has it (CPUID and XGETBV) */
nb_tier nb_tier_best(void);

/* MXCSR: round to nearest, FTZ and DAZ on, exceptions masked; every compute entry calls enter in every lane and leave with its result. */
uint32_t nb_fpu_enter(void);
void nb_fpu_leave(uint32_t saved);

#endif
