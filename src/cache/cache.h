/* cache: the KV blocks behind the sequences of one model. design.md 5, specs/runner.md 3.
 *
 * A cache holds any number of sequences; every operation takes a sequence index. For each kv layer a sequence has a
 * table of blocks of NB_KV_BLOCK slots: full layers grow with the sequence, window layers are rings of window + chunk +
 * 32 slots, rounded up to 64. Blocks come from one pool per block size; its address space is reserved when a sequence
 * is opened (untouched pages cost nothing), so that writing rows makes no system call and allocates nothing. Blocks are
 * counted: a fork shares all of them, and the first of the two that writes into a shared block copies that one block.
 *
 * A round: nb_cache_prepare(seq, n) -> forward writes slots [len, len + n) -> nb_cache_commit(seq, n). A forward that
 * failed is simply not committed. Not thread safe: calls on one model are serialised by their caller.
 */
#ifndef NB_CACHE_CACHE_H
#define NB_CACHE_CACHE_H

#include "base/base.h"
#include "tensor/kv.h"

typedef struct nb_cache nb_cache;

typedef struct nb_cache_options {
    const nb_kv_shape
        *layers; /* [n_layers], copied; their f32 flag is replaced by the one below. A graph's kv and n_kv */
    int32_t n_layers;
    int32_t chunk; /* most rows of one forward of one sequence: what a ring keeps beside its window */
    bool f32;      /* float32 mode */
} nb_cache_options;
nb_status nb_cache_new(nb_cache **out, const nb_cache_options *o, nb_error *err);
void nb_cache_free(nb_cache *c); /* with all its sequences; NULL is fine */

/* An empty sequence of at most `context` slots. Reserves its address space. */
nb_status nb_cache_open(nb_cache *c, int32_t context, int32_t *seq, nb_error *err);
/* A sequence with the same slots (and context) as `from`; shares its blocks. */
nb_status nb_cache_fork(nb_cache *c, int32_t from, int32_t *seq, nb_error *err);
void nb_cache_close(nb_cache *c, int32_t seq);

int32_t nb_cache_length(const nb_cache *c, int32_t seq); /* slots committed */
int32_t nb_cache_context(const nb_cache *c, int32_t seq);

/* Makes the blocks of slots [length, length + n) exist and belong to this sequence alone. n is at most the chunk;
 * length + n at most the context (NB_E_CONTEXT). Allocates nothing. */
nb_status nb_cache_prepare(nb_cache *c, int32_t seq, int32_t n, nb_error *err);
void nb_cache_commit(nb_cache *c, int32_t seq, int32_t n); /* length += n */
/* One view per kv layer, as nb_batch.kv wants it; the pointer stays valid while the sequence is open, the contents
 * change with prepare and truncate. Table entries that have no block yet point to one block of zeros. */
const nb_kv_view *nb_cache_views(const nb_cache *c, int32_t seq);

/* The deepest slot at most `length` to which every layer can go back: `length` itself, or 0 where a ring has already
 * overwritten what the next row would see. */
int32_t nb_cache_restorable(const nb_cache *c, int32_t seq, int32_t length);
/* Goes back to nb_cache_restorable(length) and returns it; the caller evaluates the slots from there again. Always
 * succeeds (lengths are clamped to 0 .. current). */
int32_t nb_cache_truncate(nb_cache *c, int32_t seq, int32_t length);

/* Bytes of the blocks that this sequence uses; a shared block counts in full for each. */
uint64_t nb_cache_bytes(const nb_cache *c, int32_t seq);
typedef struct nb_cache_usage {
    uint64_t used;     /* blocks in use, each counted once */
    uint64_t touched;  /* blocks that were ever used: what may be resident (nb_cache_trim gives the free ones back, they
                          stay counted) */
    uint64_t reserved; /* address space */
} nb_cache_usage;
void nb_cache_get_usage(const nb_cache *c, nb_cache_usage *u);
/* Most bytes that one sequence of `context` slots can use: for memory estimates before opening one. */
uint64_t nb_cache_estimate(const nb_cache_options *o, int32_t context);
/* Gives the memory of free blocks back to the system (they stay reserved, zeroed again). */
void nb_cache_trim(nb_cache *c);

#endif
