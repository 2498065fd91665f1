/* base/lanes: a thread team. The caller is lane 0; n - 1 threads wait, spinning for a while and then asleep on a futex. */
#ifndef NB_BASE_LANES_H
#define NB_BASE_LANES_H

#include "base/base.h"

typedef struct nb_lanes nb_lanes;
typedef void nb_lane_fn(void *arg, int lane, int lanes);

/* n from 1 to 256. Threads start here and live until nb_lanes_free. */
nb_status nb_lanes_new(nb_lanes **out, int n, nb_error *err);
void nb_lanes_free(nb_lanes *l);
int nb_lanes_count(const nb_lanes *l);
/* Runs fn in every lane and returns when all have returned. One call at a time; allocates nothing. */
void nb_lanes_run(nb_lanes *l, nb_lane_fn *fn, void *arg);
/* Inside fn: waits until every lane has arrived. All stores before it are visible after it. */
void nb_lanes_barrier(nb_lanes *l, int lane);

#endif
