/* text/tok_merge: merging: the pair with the lowest rank, the leftmost of equals, again and again. Three ways that give the
 * same: short pieces scan an array of ranks; long ones use a heap over a linked list, O(n log n) for any text; the longest
 * go from rank to rank, where merges rise (no pair has a lower rank than the merges that made its parts). */
#include "text/tok_run.h"

#include <stdlib.h>

enum { SHORT = 64, PER_RANK = 128 };

static inline const nb_tok_merge *find(const nb_tok_run *r, uint32_t left, uint32_t right)
{
    const nb_tok_merge *m = nb_tok_merge_find(r->t, left, right);
    return m && nb_tok_allowed(r, m->id) ? m : NULL;
}

static inline void prefetch_pair(const nb_tok_run *r, uint32_t left, uint32_t right)
{
    __builtin_prefetch(&r->t->merges[nb_tok_scale(nb_tok_pair_hash(left, right), r->t->meta->merge_slots)]);
}

/* ---- short pieces ---- */

/* key: rank << 6 | place of the left symbol; NO_KEY: the pair does not merge, or the symbol is gone. */
typedef struct small { int32_t key[SHORT]; uint32_t to[SHORT]; uint8_t next[SHORT], prev[SHORT]; } small;
#define NO_KEY INT32_MAX
_Static_assert(SHORT <= 64 && SHORT % 8 == 0 && NB_TOK_MAX_IDS <= 1 << 24, "a rank and a place share 31 bits");

static inline void set_small(const nb_tok_run *r, small *v, const uint32_t *id, size_t i, size_t n)
{
    const nb_tok_merge *m = v->next[i] < n ? find(r, id[i], id[v->next[i]]) : NULL;
    v->key[i] = m ? (int32_t)(m->rank << 6 | (uint32_t)i) : NO_KEY;
    v->to[i] = m ? m->id : 0;
}

/* The least of n keys, behind which NO_KEY stands up to a multiple of 8. Eight chains: one would wait for each comparison. */
static inline int32_t least(const int32_t *key, size_t n)
{
    int32_t a[8], best = NO_KEY;
    if (n <= 12) {
        for (size_t i = 0; i < n; i++) best = key[i] < best ? key[i] : best;
        return best;
    }
    memcpy(a, key, sizeof a);
    for (size_t i = 8; i < n; i += 8)
        for (size_t k = 0; k < 8; k++) a[k] = key[i + k] < a[k] ? key[i + k] : a[k];
    for (size_t k = 4; k; k /= 2)
        for (size_t i = 0; i < k; i++) a[i] = a[i + k] < a[i] ? a[i + k] : a[i];
    return a[0];
}

static size_t merge_short(const nb_tok_run *r, uint32_t *id, uint32_t *at, size_t n)
{
    small v;
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        v.next[i] = (uint8_t)(i + 1), v.prev[i] = (uint8_t)(i - 1);
        set_small(r, &v, id, i, n);
    }
    size_t whole = NB_ALIGN_UP(n, 8);
    for (size_t i = n; i < whole; i++) v.key[i] = NO_KEY;
    for (;;) {
        int32_t best = least(v.key, n);
        if (best == NO_KEY) break;
        size_t i = (size_t)best & 63, gone = v.next[i], after = v.next[gone];
        id[i] = v.to[i];
        v.key[gone] = NO_KEY;
        v.next[i] = (uint8_t)after;
        if (after < n) v.prev[after] = (uint8_t)i;
        if (i) prefetch_pair(r, id[v.prev[i]], id[i]); /* while the other one is looked up */
        set_small(r, &v, id, i, n);
        if (i) set_small(r, &v, id, v.prev[i], n);
    }
    for (size_t i = 0; i < n; i = v.next[i]) id[out] = id[i], at[out++] = at[i];
    return out;
}

/* ---- long pieces: a linked list. A heap entry is rank << 32 | place of the left symbol; it is stale when that pair's rank has changed. ---- */

static void sift_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (;;) {
        size_t c = 4 * i + 1, end = c + 4 < n ? c + 4 : n, best = c;
        if (c >= n) break;
        for (size_t k = c + 1; k < end; k++)
            if (h[k] < h[best]) best = k;
        if (h[best] >= x) break;
        h[i] = h[best];
        i = best;
    }
    h[i] = x;
}
static void sift_up(uint64_t *h, size_t i)
{
    uint64_t x = h[i];
    while (i && h[(i - 1) / 4] > x) h[i] = h[(i - 1) / 4], i = (i - 1) / 4;
    h[i] = x;
}

typedef struct node { uint32_t prev, next, rank, to; } node; /* rank of the pair with the next one; UINT32_MAX: none */

static void set_pair(const nb_tok_run *r, node *v, const uint32_t *id, uint32_t i, size_t n)
{
    const nb_tok_merge *m = v[i].next < n ? find(r, id[i], id[v[i].next]) : NULL;
    v[i].rank = m ? m->rank : UINT32_MAX;
    v[i].to = m ? m->id : 0;
}

static void link_all(const nb_tok_run *r, node *v, const uint32_t *id, size_t n)
{
    enum { AHEAD = 8 };
    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD + 1 < n) prefetch_pair(r, id[i + AHEAD], id[i + AHEAD + 1]);
        v[i] = (node){i ? i - 1 : UINT32_MAX, i + 1, UINT32_MAX, 0};
        set_pair(r, v, id, i, n);
    }
}

/* Merges the pair at i: id and links, not the ranks of the pairs that are new. */
static inline void merge_at(node *v, uint32_t *id, uint32_t i, size_t n)
{
    uint32_t gone = v[i].next;
    id[i] = v[i].to;
    v[i].next = v[gone].next;
    v[gone].rank = UINT32_MAX;
    if (v[i].next < n) v[v[i].next].prev = i;
}

static bool merge_by_heap(nb_tok_run *r, node *v, uint32_t *id, size_t n)
{
    size_t heap_n = 0;
    /* Each merge takes a symbol away and puts at most two entries in: at most n + 2 n at any time. */
    uint64_t *heap = nb_tok_work(r, 3, 3 * n * sizeof *heap);
    if (!heap) return false;
    for (uint32_t i = 0; i + 1 < n; i++)
        if (v[i].rank != UINT32_MAX) heap[heap_n++] = (uint64_t)v[i].rank << 32 | i;
    for (size_t i = heap_n / 4 + 1; i-- > 0;)
        if (i < heap_n) sift_down(heap, heap_n, i);
    while (heap_n) {
        uint32_t i = (uint32_t)heap[0];
        bool stale = v[i].rank != (uint32_t)(heap[0] >> 32);
        heap[0] = heap[--heap_n];
        if (heap_n) sift_down(heap, heap_n, 0);
        if (stale) continue;
        merge_at(v, id, i, n);
        const uint32_t changed[2] = {i, v[i].prev};
        for (int c = 0; c < 2 && changed[c] != UINT32_MAX; c++) {
            uint32_t k = changed[c];
            set_pair(r, v, id, k, n);
            if (v[k].rank != UINT32_MAX) heap[heap_n] = (uint64_t)v[k].rank << 32 | k, sift_up(heap, heap_n++);
        }
    }
    return true;
}

/* ---- the longest pieces: a list of places for each rank. A place is stale when its pair's rank has changed ---- */

typedef struct by_rank {
    struct { uint32_t place, next; } *entry; /* next 0: the last one; entry 0 is none */
    uint32_t *first;                         /* by rank; only where the bit is set */
    uint64_t *bits;
    uint32_t entries;
} by_rank;

static inline void put(by_rank *q, uint32_t rank, uint32_t place)
{
    if (rank == UINT32_MAX) return;
    uint64_t bit = (uint64_t)1 << (rank & 63), *word = &q->bits[rank >> 6];
    q->entry[q->entries].place = place;
    q->entry[q->entries].next = *word & bit ? q->first[rank] : 0;
    q->first[rank] = q->entries++;
    *word |= bit;
}

static int ascending(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

/* The places of this rank that are not stale. Pairs of two equal symbols may overlap: then the order matters. */
static size_t take(by_rank *q, const node *v, const uint32_t *id, uint32_t rank, uint32_t *place)
{
    size_t n = 0;
    bool sorted = true;
    for (uint32_t e = q->first[rank]; e; e = q->entry[e].next) {
        uint32_t i = q->entry[e].place;
        if (v[i].rank != rank) continue;
        sorted &= !n || place[n - 1] <= i;
        place[n++] = i;
    }
    if (!sorted && id[place[0]] == id[v[place[0]].next]) qsort(place, n, sizeof *place, ascending);
    return n;
}

static bool merge_by_rank(nb_tok_run *r, node *v, uint32_t *id, size_t n)
{
    uint32_t ranks = r->t->meta->ranks;
    size_t words = (size_t)ranks / 64 + 1, entries = 3 * n + 1;
    by_rank q = {.entries = 1};
    char *p = nb_tok_work(r, 3, words * 8 + entries * sizeof *q.entry + ((size_t)ranks + n) * 4);
    if (!p) return false;
    q.bits = (void *)p, q.entry = (void *)(p + words * 8), q.first = (void *)(p + words * 8 + entries * sizeof *q.entry);
    uint32_t *place = q.first + ranks;
    memset(q.bits, 0, words * 8);
    for (uint32_t i = (uint32_t)n; i-- > 0;) put(&q, v[i].rank, i);
    for (size_t w = 0; w < words; w++) {
        while (q.bits[w]) { /* what is put while a rank is worked on has a higher one */
            uint32_t rank = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(q.bits[w]);
            size_t count = take(&q, v, id, rank, place);
            q.bits[w] &= q.bits[w] - 1;
            for (size_t k = 0; k < count; k++) {
                uint32_t i = place[k];
                if (v[i].rank != rank) continue;
                merge_at(v, id, i, n);
                set_pair(r, v, id, i, n);
                put(&q, v[i].rank, i);
                uint32_t before = v[i].prev;
                if (before == UINT32_MAX) continue;
                set_pair(r, v, id, before, n);
                put(&q, v[before].rank, before);
            }
        }
    }
    return true;
}

nb_status nb_tok_merge_all(nb_tok_run *r, uint32_t *id, uint32_t *at, size_t *count)
{
    size_t n = *count, out = 0;
    if (n <= SHORT) {
        *count = merge_short(r, id, at, n);
        return NB_OK;
    }
    node *v = nb_tok_work(r, 2, n * sizeof *v);
    if (!v) return nb_tok_no_memory(r->err);
    link_all(r, v, id, n);
    bool rising = r->t->meta->merges_rise && r->t->meta->ranks / PER_RANK < n;
    if (!(rising ? merge_by_rank(r, v, id, n) : merge_by_heap(r, v, id, n))) return nb_tok_no_memory(r->err);
    for (uint32_t i = 0; i < n; i = v[i].next) id[out] = id[i], at[out++] = at[i];
    *count = out;
    return NB_OK;
}
