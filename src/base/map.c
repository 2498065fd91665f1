/* Hash map from byte strings to numbers: open addressing, linear probing, at most half full.
 *
 * Keys may come from a stranger's file, so the hash is seeded with a number drawn once per process: nobody can prepare
 * keys that all meet in one slot. Nothing may depend on the order of slots.
 */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

/* 64 x 64 -> 128 bit product, folded: every input bit reaches every output bit. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 u128;
    u128 p = (u128)a * b;
    return (uint64_t)p ^ (uint64_t)(p >> 64);
}

uint64_t nb_hash_bytes(const void *data, size_t n, uint64_t seed)
{
    /* Odd constants: the fractional parts of the square roots of 2, 3 and 5. */
    const uint64_t k0 = 0x6a09e667f3bcc909u, k1 = 0xbb67ae8584caa73bu, k2 = 0x3c6ef372fe94f82bu;
    const unsigned char *p = data;
    uint64_t h = seed ^ k0 ^ mix(n ^ k1, k2);
    while (n >= 16) {
        h = mix(nb_load_u64(p) ^ k1, nb_load_u64(p + 8) ^ h);
        p += 16;
        n -= 16;
    }
    /* The tail of 0 to 15 bytes as two words, overlapping rather than read past the end. */
    uint64_t a = 0, b = 0;
    if (n >= 8) {
        a = nb_load_u64(p);
        b = nb_load_u64(p + n - 8);
    } else if (n >= 4) {
        a = nb_load_u32(p);
        b = nb_load_u32(p + n - 4);
    } else if (n) {
        a = (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 8 | p[n - 1];
    }
    h = mix(a ^ k2, b ^ h);
    return mix(h ^ k0, k1);
}

uint64_t nb_hash_seed(void)
{
    static _Atomic uint64_t kept;
    uint64_t seed = atomic_load_explicit(&kept, memory_order_relaxed);
    if (seed) return seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed) seed = nb_now_ns() ^ (uintptr_t)&seed;
    seed |= 1;
    uint64_t none = 0;
    /* The first one wins, so that all maps agree. */
    return atomic_compare_exchange_strong(&kept, &none, seed) ? seed : none;
}

static uint32_t hash_key(nb_str key) { return (uint32_t)nb_hash_bytes(key.p, key.n, nb_hash_seed()); }

bool nb_map_init(nb_map *m, size_t expected)
{
    *m = (nb_map){0};
    size_t cap = 16;
    while (cap / 2 < expected) {
        if (cap > SIZE_MAX / 4 / sizeof *m->slot) return false;
        cap *= 2;
    }
    m->slot = calloc(cap, sizeof *m->slot);
    if (!m->slot) return false;
    m->cap = cap;
    return true;
}

void nb_map_free(nb_map *m)
{
    free(m->slot);
    *m = (nb_map){0};
}

/* The slot of key, or the empty one where it belongs. cap > 0 and a slot is free. */
static struct nb_map_slot *probe(const nb_map *m, nb_str key, uint32_t hash)
{
    size_t i = hash & (m->cap - 1);
    for (;;) {
        struct nb_map_slot *s = &m->slot[i];
        if (!s->used) return s;
        if (s->hash == hash && s->len == key.n && (key.n == 0 || memcmp(s->key, key.p, key.n) == 0)) return s;
        i = (i + 1) & (m->cap - 1);
    }
}

static bool grow(nb_map *m)
{
    nb_map bigger;
    if (!nb_map_init(&bigger, m->cap)) return false;
    for (size_t i = 0; i < m->cap; i++) {
        const struct nb_map_slot *s = &m->slot[i];
        if (s->used) *probe(&bigger, (nb_str){s->key, s->len}, s->hash) = *s;
    }
    bigger.count = m->count;
    nb_map_free(m);
    *m = bigger;
    return true;
}

bool nb_map_put(nb_map *m, nb_str key, uint32_t value, bool *had, uint32_t *old)
{
    if (had) *had = false;
    if (key.n > UINT32_MAX) return false;
    if ((m->count + 1) * 2 > m->cap && !grow(m)) return false;
    uint32_t hash = hash_key(key);
    struct nb_map_slot *s = probe(m, key, hash);
    if (s->used) {
        if (had) *had = true;
        if (old) *old = s->value;
        s->value = value;
        return true;
    }
    *s = (struct nb_map_slot){key.p, (uint32_t)key.n, hash, value, 1};
    m->count++;
    return true;
}

bool nb_map_get(const nb_map *m, nb_str key, uint32_t *value)
{
    if (m->cap == 0 || key.n > UINT32_MAX) return false;
    const struct nb_map_slot *s = probe(m, key, hash_key(key));
    if (!s->used) return false;
    if (value) *value = s->value;
    return true;
}
