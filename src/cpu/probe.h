/* cpu/probe: what this machine can do at most, measured beside every speed figure: read bandwidth and fp32 FMA peak. */
#ifndef NB_CPU_PROBE_H
#define NB_CPU_PROBE_H

#include "base/lanes.h"
#include "cpu/cpu.h"

typedef struct nb_probe nb_probe;
/* Reserves `bytes` (at least 4 times the last-level cache to mean memory) for reading; lanes must outlive it. */
nb_status nb_probe_new(nb_probe **out, nb_lanes *lanes, uint64_t bytes, nb_error *err);
void nb_probe_free(nb_probe *p);
/* Best of `rounds` passes over the buffer, bytes per second; each lane reads its own part. */
double nb_probe_read(nb_probe *p, int rounds);
/* fp32 operations per second, a multiply-add as two, of independent FMA chains in registers of the tier's width, all lanes; tier c reports its own scalar chains. */
double nb_probe_fma(nb_probe *p, nb_tier tier);

/* Per-tier loops, one lane: return the operations done. */
double nb_probe_fma_plain(long rounds);
double nb_probe_fma_avx2(long rounds);
double nb_probe_fma_avx512(long rounds);

#endif
