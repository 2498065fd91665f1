/* text/tok_trie: tries in breadth-first order, built from sorted keys level by level. */
#include "text/tok_trie.h"

#include <stdlib.h>

static int by_text(const void *x, const void *y)
{
    const nb_tok_key *a = x, *b = y;
    int c = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    if (c) return c;
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    return a->p < b->p ? -1 : a->p > b->p;
}

/* Number of nodes: one for each byte that a key does not share with the key before it. */
static uint64_t count_nodes(const nb_tok_key *keys, size_t n)
{
    uint64_t total = 1;
    for (size_t i = 0; i < n; i++) {
        size_t same = 0;
        if (i) while (same < keys[i].n && same < keys[i - 1].n && keys[i].p[same] == keys[i - 1].p[same]) same++;
        total += keys[i].n - same;
    }
    return total;
}

bool nb_tok_trie_make(nb_tok_trie_data *d, nb_arena *arena, nb_tok_key *keys, size_t n)
{
    qsort(keys, n, sizeof *keys, by_text);
    uint64_t total = count_nodes(keys, n);
    if (total >= UINT32_MAX / 2) return false;
    d->nodes = (uint32_t)total;
    d->first = NB_NEW_N(arena, uint32_t, (size_t)total + 1);
    d->value = NB_NEW_N(arena, uint32_t, (size_t)total);
    d->label = NB_NEW_N(arena, uint8_t, (size_t)total);
    /* The keys below each node: keys[from[i]] .. keys[to[i]]. */
    uint32_t *from = malloc(total * 4), *to = malloc(total * 4), *depth = malloc(total * 4);
    bool ok = d->first && d->value && d->label && from && to && depth;
    if (ok) from[0] = 0, to[0] = (uint32_t)n, depth[0] = 0;
    uint32_t made = 1;
    for (uint32_t i = 0; ok && i < d->nodes; i++) {
        uint32_t lo = from[i], hi = to[i], k = depth[i];
        d->first[i] = made;
        d->value[i] = NB_TOK_NONE;
        for (; lo < hi && keys[lo].n == k; lo++) d->value[i] = keys[lo].value;
        while (lo < hi) {
            uint32_t end = lo + 1;
            while (end < hi && keys[end].p[k] == keys[lo].p[k]) end++;
            from[made] = lo, to[made] = end, depth[made] = k + 1;
            d->label[made++] = (uint8_t)keys[lo].p[k];
            lo = end;
        }
    }
    if (ok) d->first[d->nodes] = made;
    free(from), free(to), free(depth);
    return ok;
}
