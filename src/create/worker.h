/* create/worker: what one thread of the write stage owns. Internal to src/create. */
#ifndef NB_CREATE_WORKER_H
#define NB_CREATE_WORKER_H

#include "create/plan.h"

/* Bytes kept for later: in memory up to a limit, then in an unlinked file. */
typedef struct nb_spill {
    nb_buf mem;
    int fd;         /* 0: none yet */
    uint64_t filed; /* bytes in the file */
} nb_spill;

typedef struct nb_worker {
    struct team *team;
    const nb_source *src;
    const char *root; /* of the store: spill files go to its tmp folder */
    nb_blob_writer *out;
    char item_name[256];
    nb_scratch sc;
    nb_buf floats, parts, packed, whole;
    nb_spill scales[3], biases[3];
    float *globals[3]; /* malloc, [experts] of the item in hand */
    bool mend;         /* replace what is not finite */
    bool permissive;   /* a norm may hold what is not finite */
    bool search;       /* for better scales, where the format has a search */
    uint64_t mended;   /* of the item in hand */
} nb_worker;

nb_status nb_worker_item(nb_worker *w, const nb_item *it, nb_error *err);
void nb_worker_free(nb_worker *w);
void nb_worker_count(nb_worker *w, uint64_t bytes);
nb_status nb_worker_check(nb_worker *w, nb_error *err);

nb_status nb_spill_add(nb_spill *s, const char *root, const void *p, size_t n, nb_error *err);
nb_status nb_spill_copy(nb_spill *s, nb_blob_writer *out, nb_error *err);
void nb_spill_reset(nb_spill *s);

/* journal.c: called under the team's lock */
nb_status nb_journal_add(nb_job *j, size_t item, nb_error *err);

#endif
