/* KV blocks: pools, block tables, forks that share, rings. See cache.h for the rules and tensor/kv.h for what a block
 * holds. */
#include "cache/cache.h"

#include <stdlib.h>
#include <sys/mman.h>

#define RING_SLACK 32
#define NO_BLOCK   (-1)

/* Blocks of one size. Segments are mapped whenever a sequence is opened, so that there are always at least as many
 * blocks as all open sequences could use: taking one never fails. Freed blocks keep their bytes; what they hold is
 * stale, but in the domain (tensor/kv.h). */
typedef struct pool {
    size_t bytes; /* of a block, a multiple of 4096 */
    struct segment {
        uint8_t *p;
        size_t map_bytes;
        int32_t first, count;
    } * segments;
    int32_t n_segments;
    uint8_t **block;         /* [total] address of each block */
    int32_t *refs;           /* [total] users; 0: free */
    int32_t *spare;          /* stack of free blocks that were used before */
    int32_t n_spare, next;   /* blocks from `next` on were never used */
    int32_t total, promised; /* promised: sum over open sequences of the blocks that they may use */
    uint8_t *zeros;          /* one block that stays zero: what empty table entries point to */
} pool;

typedef struct layer {
    nb_kv_shape shape;
    int32_t pool;
    int32_t ring; /* slots, 0: full attention */
} layer;

typedef struct sequence {
    bool open;
    int32_t context, length;
    int32_t written;   /* highest slot ever prepared since the sequence was empty, plus one: rings have lost slots below
                          written - ring */
    nb_kv_view *views; /* [n_layers] */
    int32_t **id;      /* [n_layers][blocks] block numbers beside the views' addresses */
    uint8_t ***table;  /* [n_layers][blocks] the same memory as views[].block, writable */
} sequence;

struct nb_cache {
    layer *layers;
    int32_t n_layers, chunk;
    pool *pools;
    int32_t n_pools;
    sequence *seqs;
    int32_t n_seqs;
};

static nb_status no_memory(nb_error *err, const char *what)
{
    return nb_fail(err, NB_E_NO_MEMORY, "cache: no memory for %s", what);
}

static int32_t ring_slots(const nb_kv_shape *s, int32_t chunk)
{
    return s->window > 0 ? (int32_t)NB_ALIGN_UP((int64_t)s->window + chunk + RING_SLACK, NB_KV_BLOCK) : 0;
}

/* Blocks that one sequence of `context` slots can use in a layer. A ring that is no shorter than the context is never
 * wrapped. */
static int32_t layer_blocks(int32_t ring, int32_t context)
{
    int32_t slots = ring > 0 && ring < context ? ring : context;
    return (slots + NB_KV_BLOCK - 1) / NB_KV_BLOCK;
}

static size_t pool_block_bytes(const nb_kv_shape *s) { return NB_ALIGN_UP(nb_kv_block_bytes(s), (size_t)4096); }

/* ---- pools ---- */

static void pool_free(pool *p)
{
    for (int32_t i = 0; i < p->n_segments; i++) munmap(p->segments[i].p, p->segments[i].map_bytes);
    if (p->zeros) munmap(p->zeros, p->bytes);
    free(p->segments);
    free(p->block);
    free(p->refs);
    free(p->spare);
}

static bool grow(void *array, size_t count, size_t size)
{
    void **p = array;
    void *q = realloc(*p, count * size);
    if (q) *p = q;
    return q != NULL;
}

static uint8_t *reserve(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Makes room for `more` further promised blocks. */
static nb_status pool_promise(pool *p, int64_t more, nb_error *err)
{
    int64_t want = p->promised + more - p->total;
    if (p->promised + more > INT32_MAX) return nb_fail(err, NB_E_NO_MEMORY, "cache: too many blocks");
    if (want > 0) {
        size_t total = (size_t)(p->total + want);
        uint64_t bytes;
        if (!nb_mul_u64((uint64_t)want, p->bytes, &bytes) || bytes > SIZE_MAX / 2)
            return nb_fail(err, NB_E_NO_MEMORY, "cache: a context of this length does not fit the address space");
        if (!grow(&p->segments, (size_t)p->n_segments + 1, sizeof *p->segments) ||
            !grow(&p->block, total, sizeof *p->block) || !grow(&p->refs, total, sizeof *p->refs) ||
            !grow(&p->spare, total, sizeof *p->spare))
            return no_memory(err, "block tables");
        uint8_t *at = reserve(bytes);
        if (!at) return no_memory(err, "the address space of KV blocks");
        madvise(at, bytes, MADV_HUGEPAGE);
        p->segments[p->n_segments++] = (struct segment){at, bytes, p->total, (int32_t)want};
        for (int64_t i = 0; i < want; i++) {
            p->block[p->total + i] = at + (size_t)i * p->bytes;
            p->refs[p->total + i] = 0;
        }
        p->total = (int32_t)total;
    }
    p->promised += (int32_t)more;
    return NB_OK;
}

/* Never fails: see pool_promise. */
static int32_t pool_take(pool *p)
{
    int32_t i = p->n_spare > 0 ? p->spare[--p->n_spare] : p->next++;
    p->refs[i] = 1;
    return i;
}

static void pool_drop(pool *p, int32_t i)
{
    if (--p->refs[i] == 0) p->spare[p->n_spare++] = i;
}

/* ---- the cache ---- */

static nb_status check_options(const nb_cache_options *o, nb_error *err)
{
    if (o->n_layers < 0 || o->n_layers > 1 << 16 || o->chunk < 1 || o->chunk > 1 << 16)
        return nb_fail(err, NB_E_USAGE, "cache: %d layers, chunk of %d rows", (int)o->n_layers, (int)o->chunk);
    for (int32_t i = 0; i < o->n_layers; i++) {
        const nb_kv_shape *s = &o->layers[i];
        if (s->heads < 1 || s->heads > 1 << 14 || s->dk < 1 || s->dk > 1 << 14 || s->dv < 1 || s->dv > 1 << 14 ||
            s->window < 0 || s->window > 1 << 30)
            return nb_fail(err, NB_E_USAGE, "cache: layer %d has %d heads of %d and %d, window %d", (int)i,
                           (int)s->heads, (int)s->dk, (int)s->dv, (int)s->window);
    }
    return NB_OK;
}

static int32_t find_pool(nb_cache *c, size_t bytes)
{
    for (int32_t i = 0; i < c->n_pools; i++)
        if (c->pools[i].bytes == bytes) return i;
    pool *p = &c->pools[c->n_pools];
    p->bytes = bytes;
    p->zeros = reserve(bytes);
    return p->zeros ? c->n_pools++ : -1;
}

nb_status nb_cache_new(nb_cache **out, const nb_cache_options *o, nb_error *err)
{
    *out = NULL;
    nb_status s = check_options(o, err);
    if (s != NB_OK) return s;
    nb_cache *c = calloc(1, sizeof *c);
    if (!c) return no_memory(err, "a cache");
    size_t n = (size_t)o->n_layers;
    c->n_layers = o->n_layers;
    c->chunk = o->chunk;
    c->layers = calloc(n + 1, sizeof *c->layers);
    c->pools = calloc(n + 1, sizeof *c->pools);
    if (!c->layers || !c->pools) goto fail;
    for (int32_t i = 0; i < c->n_layers; i++) {
        layer *l = &c->layers[i];
        l->shape = o->layers[i];
        l->shape.f32 = o->f32;
        l->ring = ring_slots(&l->shape, o->chunk);
        l->pool = find_pool(c, pool_block_bytes(&l->shape));
        if (l->pool < 0) goto fail;
    }
    *out = c;
    return NB_OK;
fail:
    nb_cache_free(c);
    return no_memory(err, "a cache");
}

/* ---- sequences ---- */

static void seq_free_tables(const nb_cache *c, sequence *s)
{
    for (int32_t l = 0; l < c->n_layers; l++) {
        if (s->id) free(s->id[l]);
        if (s->table) free(s->table[l]);
    }
    free(s->id);
    free(s->table);
    free(s->views);
    *s = (sequence){0};
}

static void set_block(sequence *s, const nb_cache *c, int32_t l, int32_t b, int32_t id)
{
    const pool *p = &c->pools[c->layers[l].pool];
    s->id[l][b] = id;
    s->table[l][b] = id == NO_BLOCK ? p->zeros : p->block[id];
}

/* Tables with every entry on the block of zeros. They end at a whole block of 256 slots, which is the unit that
 * attention walks in. */
static bool seq_make_tables(const nb_cache *c, sequence *s, int32_t context)
{
    size_t n = (size_t)c->n_layers;
    s->views = calloc(n + 1, sizeof *s->views);
    s->id = calloc(n + 1, sizeof *s->id);
    s->table = calloc(n + 1, sizeof *s->table);
    if (!s->views || !s->id || !s->table) return false;
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t blocks = layer_blocks(c->layers[l].ring, context), cap = (int32_t)NB_ALIGN_UP(blocks, 4);
        s->id[l] = malloc((size_t)cap * sizeof **s->id);
        s->table[l] = malloc((size_t)cap * sizeof **s->table);
        if (!s->id[l] || !s->table[l]) return false;
        for (int32_t b = 0; b < cap; b++) set_block(s, c, l, b, NO_BLOCK);
        bool wraps = c->layers[l].ring > 0 && c->layers[l].ring < context;
        s->views[l] =
            (nb_kv_view){.block = s->table[l], .n_blocks = wraps ? blocks : 0, .ring = wraps ? c->layers[l].ring : 0};
    }
    s->context = context;
    s->open = true;
    return true;
}

static void unpromise(nb_cache *c, int32_t context, int32_t layers)
{
    for (int32_t l = 0; l < layers; l++)
        c->pools[c->layers[l].pool].promised -= layer_blocks(c->layers[l].ring, context);
}

nb_status nb_cache_open(nb_cache *c, int32_t context, int32_t *seq, nb_error *err)
{
    int32_t at = 0;
    if (context < 1 || context > 1 << 30) return nb_fail(err, NB_E_USAGE, "cache: a context of %d slots", (int)context);
    while (at < c->n_seqs && c->seqs[at].open) at++;
    if (at == c->n_seqs) {
        if (!grow(&c->seqs, (size_t)c->n_seqs + 1, sizeof *c->seqs)) return no_memory(err, "a sequence");
        c->seqs[c->n_seqs++] = (sequence){0};
    }
    sequence *s = &c->seqs[at];
    if (!seq_make_tables(c, s, context)) {
        seq_free_tables(c, s);
        return no_memory(err, "block tables");
    }
    for (int32_t l = 0; l < c->n_layers; l++) {
        nb_status st = pool_promise(&c->pools[c->layers[l].pool], layer_blocks(c->layers[l].ring, context), err);
        if (st != NB_OK) {
            unpromise(c, context, l);
            seq_free_tables(c, s);
            return st;
        }
    }
    *seq = at;
    return NB_OK;
}

nb_status nb_cache_fork(nb_cache *c, int32_t from, int32_t *seq, nb_error *err)
{
    nb_status st = nb_cache_open(c, c->seqs[from].context, seq, err);
    if (st != NB_OK) return st;
    const sequence *f = &c->seqs[from];
    sequence *s = &c->seqs[*seq];
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t blocks = layer_blocks(c->layers[l].ring, s->context);
        for (int32_t b = 0; b < blocks; b++) {
            int32_t id = f->id[l][b];
            if (id != NO_BLOCK) c->pools[c->layers[l].pool].refs[id]++;
            set_block(s, c, l, b, id);
        }
        s->views[l].n_blocks = f->views[l].n_blocks;
    }
    s->length = f->length;
    s->written = f->written;
    return NB_OK;
}

/* Gives blocks [from, end) of a layer back. */
static void drop_blocks(nb_cache *c, sequence *s, int32_t l, int32_t from)
{
    int32_t blocks = layer_blocks(c->layers[l].ring, s->context);
    for (int32_t b = from; b < blocks; b++) {
        if (s->id[l][b] == NO_BLOCK) continue;
        pool_drop(&c->pools[c->layers[l].pool], s->id[l][b]);
        set_block(s, c, l, b, NO_BLOCK);
    }
}

void nb_cache_close(nb_cache *c, int32_t seq)
{
    sequence *s = &c->seqs[seq];
    if (!s->open) return;
    for (int32_t l = 0; l < c->n_layers; l++) drop_blocks(c, s, l, 0);
    unpromise(c, s->context, c->n_layers);
    seq_free_tables(c, s);
}

void nb_cache_free(nb_cache *c)
{
    if (!c) return;
    for (int32_t i = 0; i < c->n_seqs; i++)
        if (c->seqs[i].open) seq_free_tables(c, &c->seqs[i]);
    for (int32_t i = 0; c->pools && i < c->n_pools; i++) pool_free(&c->pools[i]);
    free(c->seqs);
    free(c->pools);
    free(c->layers);
    free(c);
}

int32_t nb_cache_length(const nb_cache *c, int32_t seq) { return c->seqs[seq].length; }
int32_t nb_cache_context(const nb_cache *c, int32_t seq) { return c->seqs[seq].context; }
const nb_kv_view *nb_cache_views(const nb_cache *c, int32_t seq) { return c->seqs[seq].views; }

/* The block of table entry b becomes this sequence's own: taken anew, or copied from the one that it shares. */
static void own_block(nb_cache *c, sequence *s, int32_t l, int32_t b)
{
    pool *p = &c->pools[c->layers[l].pool];
    int32_t old = s->id[l][b];
    if (old != NO_BLOCK && p->refs[old] == 1) return;
    int32_t id = pool_take(p);
    if (old != NO_BLOCK) {
        memcpy(p->block[id], p->block[old], p->bytes);
        pool_drop(p, old);
    }
    set_block(s, c, l, b, id);
}

nb_status nb_cache_prepare(nb_cache *c, int32_t seq, int32_t n, nb_error *err)
{
    sequence *s = &c->seqs[seq];
    if (n < 0 || n > c->chunk)
        return nb_fail(err, NB_E_USAGE, "cache: %d rows in one forward, the chunk is %d", (int)n, (int)c->chunk);
    if (n > s->context - s->length)
        return nb_fail(err, NB_E_CONTEXT, "%d tokens and %d more exceed the context of %d", (int)s->length, (int)n,
                       (int)s->context);
    if (n == 0) return NB_OK;
    int32_t end = s->length + n;
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t ring = s->views[l].ring;
        for (int32_t j = s->length / NB_KV_BLOCK; j <= (end - 1) / NB_KV_BLOCK; j++)
            own_block(c, s, l, ring ? j % (ring / NB_KV_BLOCK) : j);
        if (!ring) s->views[l].n_blocks = (end + NB_KV_BLOCK - 1) / NB_KV_BLOCK;
    }
    if (end > s->written) s->written = end;
    return NB_OK;
}

void nb_cache_commit(nb_cache *c, int32_t seq, int32_t n) { c->seqs[seq].length += n; }

int32_t nb_cache_restorable(const nb_cache *c, int32_t seq, int32_t length)
{
    const sequence *s = &c->seqs[seq];
    if (length >= s->length) return s->length;
    if (length <= 0) return 0;
    for (int32_t l = 0; l < c->n_layers; l++) {
        /* The next row sees slots from length - window + 1 on; slots below written - ring are overwritten. */
        int32_t ring = s->views[l].ring, first = length - c->layers[l].shape.window + 1;
        if (ring && s->written - ring > (first > 0 ? first : 0)) return 0;
    }
    return length;
}

int32_t nb_cache_truncate(nb_cache *c, int32_t seq, int32_t length)
{
    sequence *s = &c->seqs[seq];
    int32_t to = nb_cache_restorable(c, seq, length);
    for (int32_t l = 0; l < c->n_layers; l++) {
        if (s->views[l].ring) {
            if (to == 0) drop_blocks(c, s, l, 0);
            continue;
        }
        int32_t keep = (to + NB_KV_BLOCK - 1) / NB_KV_BLOCK;
        drop_blocks(c, s, l, keep);
        s->views[l].n_blocks = keep;
    }
    s->length = to;
    if (to == 0) s->written = 0;
    return to;
}

/* ---- accounting ---- */

uint64_t nb_cache_bytes(const nb_cache *c, int32_t seq)
{
    const sequence *s = &c->seqs[seq];
    uint64_t sum = 0;
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t blocks = layer_blocks(c->layers[l].ring, s->context);
        for (int32_t b = 0; b < blocks; b++) sum += s->id[l][b] == NO_BLOCK ? 0 : c->pools[c->layers[l].pool].bytes;
    }
    return sum;
}

void nb_cache_get_usage(const nb_cache *c, nb_cache_usage *u)
{
    *u = (nb_cache_usage){0};
    for (int32_t i = 0; i < c->n_pools; i++) {
        const pool *p = &c->pools[i];
        u->used += (uint64_t)(p->next - p->n_spare) * p->bytes;
        u->touched += (uint64_t)p->next * p->bytes;
        u->reserved += (uint64_t)p->total * p->bytes;
    }
}

uint64_t nb_cache_estimate(const nb_cache_options *o, int32_t context)
{
    uint64_t sum = 0;
    for (int32_t l = 0; l < o->n_layers; l++) {
        nb_kv_shape s = o->layers[l];
        s.f32 = o->f32;
        sum += (uint64_t)layer_blocks(ring_slots(&s, o->chunk), context) * pool_block_bytes(&s);
    }
    return sum;
}

void nb_cache_trim(nb_cache *c)
{
    for (int32_t i = 0; i < c->n_pools; i++) {
        pool *p = &c->pools[i];
        for (int32_t k = 0; k < p->n_spare; k++) madvise(p->block[p->spare[k]], p->bytes, MADV_DONTNEED);
    }
}
