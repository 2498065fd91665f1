/* bench_attention: attention through the executor, beside a loop of FMAs between registers in the same rounds.
 *
 *   bench_attention [-H HEADS=8] [-K KV_HEADS=2] [-d HEAD_DIM=64] [-c CONTEXT=1536] [-m ROWS=512] [-t THREADS=1] [-r
 * ROUNDS=7] [-T TIER]
 *
 * ROWS query rows follow CONTEXT slots that lie in the cache. Prints the median of the useful operations per second (4
 * x head_dim for each query, head and key that the mask shows), their share of the FMA loop, and the bytes of K and V
 * per second. With one thread times are CPU times, so that other programs on the machine count only where they take
 * bandwidth or clock.
 */
#include "cpu/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ROUNDS = 100, TABLE_ROWS = 64, REPEAT = 4 /* attention records in the graph */ };

typedef struct options {
    int32_t heads, kv_heads, d, context, rows;
    int threads, rounds;
    const char *tier;
} options;

typedef struct bench {
    options o;
    nb_graph g;
    nb_weight table[3];
    nb_plan *plan;
    uint8_t **block;
    nb_kv_view view;
} bench;

static double seconds(const options *o)
{
    struct timespec t;
    clock_gettime(o->threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float unit(void)
{
    static uint32_t s = 1;
    s = s * 1664525u + 1013904223u;
    return (float)(int32_t)s * 0x1p-31f;
}

static nb_slot_id gathered(bench *b, int i, int32_t width, const float *data)
{
    b->table[i] = (nb_weight){.name = "rows",
                              .type = {NB_F32, NB_DT_NONE, 32},
                              .layout = NB_LAYOUT_ROWS1,
                              .n = TABLE_ROWS,
                              .k = width,
                              .data = (const uint8_t *)data,
                              .multiplier = 1};
    nb_slot_id s = nb_graph_slot(&b->g, NB_SLOT_F32, width, "rows");
    nb_op *op = nb_graph_op(&b->g, NB_OP_GATHER_ROWS);
    op->u.gather.table = &b->table[i], op->u.gather.out = s, op->u.gather.scale = 1;
    return s;
}

static bool record(bench *b)
{
    const options *o = &b->o;
    nb_graph *g = &b->g;
    if (!(g->arena = nb_arena_new(0))) return false;
    float *data = NB_NEW_N(g->arena, float, (size_t)TABLE_ROWS *(size_t)o->heads *(size_t)o->d);
    if (!data) return false;
    for (int32_t i = 0; i < TABLE_ROWS * o->heads * o->d; i++) data[i] = unit();
    nb_slot_id q = gathered(b, 0, o->heads * o->d, data), k = gathered(b, 1, o->kv_heads * o->d, data),
               v = gathered(b, 2, o->kv_heads * o->d, data);
    nb_slot_id q_act = nb_graph_slot(g, NB_SLOT_ACT, o->heads * NB_ALIGN_UP(o->d, 32), "q"),
               act = nb_graph_slot(g, NB_SLOT_ACT, o->heads * o->d, "out");
    nb_graph_kv(g, &(nb_kv_shape){o->kv_heads, o->d, o->d, 0, false});
    nb_op *op = nb_graph_op(g, NB_OP_ROPE);
    op->u.rope.q = q, op->u.rope.k = k, op->u.rope.v = v, op->u.rope.q_act = q_act, op->u.rope.no_rotation = true;
    op->u.rope.heads = o->heads, op->u.rope.kv_heads = o->kv_heads, op->u.rope.dk = op->u.rope.dv = o->d;
    for (int i = 0; i < REPEAT; i++) {
        op = nb_graph_op(g, NB_OP_ATTENTION);
        op->u.attention.q_act = q_act, op->u.attention.act = act, op->u.attention.heads = o->heads,
        op->u.attention.kv_heads = o->kv_heads;
        op->u.attention.dk = op->u.attention.dv = o->d, op->u.attention.scale = 0.1f;
    }
    g->hidden = g->aux = g->head_in = g->logits = q;
    return true;
}

/* Blocks in one mapping on huge pages, as the cache has them. */
static bool fill_cache(bench *b)
{
    size_t bytes = nb_kv_block_bytes(&b->g.kv[0]);
    int32_t n = (b->o.context + b->o.rows + NB_KV_BLOCK - 1) / NB_KV_BLOCK;
    size_t all = NB_ALIGN_UP(bytes * (size_t)n, (size_t)2 << 20);
    uint8_t *p = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    b->block = NB_NEW_N(b->g.arena, uint8_t *, (size_t)n);
    if (p == MAP_FAILED || !b->block) return false;
    madvise(p, all, MADV_HUGEPAGE);
    for (size_t i = 0; i < bytes * (size_t)n; i += 2) nb_store_u16(p + i, nb_bf16_encode(unit()));
    for (int32_t i = 0; i < n; i++) b->block[i] = p + bytes * (size_t)i;
    b->view = (nb_kv_view){b->block, n, 0};
    return true;
}

static double one_round(bench *b)
{
    static int32_t ids[4096], seq[4096], slot[4096];
    const nb_kv_view *views = &b->view;
    uint8_t bad = 0;
    for (int32_t i = 0; i < b->o.rows; i++) ids[i] = i % TABLE_ROWS, slot[i] = b->o.context + i;
    nb_batch batch = {.rows = b->o.rows, .ids = ids, .seq = seq, .slot = slot, .n_seqs = 1, .kv = &views, .bad = &bad};
    double start = seconds(&b->o);
    nb_cpu_backend.forward(b->plan, &batch);
    return (seconds(&b->o) - start) / REPEAT;
}

static double peak(const bench *b)
{
    double start = seconds(&b->o);
    const char *tier = nb_cpu_backend.plan_tier(b->plan);
    double ops = strcmp(tier, "avx512") == 0 ? nb_probe_fma_avx512(2000000)
                 : strcmp(tier, "avx2") == 0 ? nb_probe_fma_avx2(2000000)
                                             : nb_probe_fma_plain(2000000);
    return ops * b->o.threads / (seconds(&b->o) - start);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool parse(options *o, int argc, char **argv)
{
    for (int c; (c = getopt(argc, argv, "H:K:d:c:m:t:r:T:")) != -1;) {
        int n = optarg ? atoi(optarg) : 0;
        switch (c) {
        case 'H': o->heads = n; break;
        case 'K': o->kv_heads = n; break;
        case 'd': o->d = n; break;
        case 'c': o->context = n; break;
        case 'm': o->rows = n; break;
        case 't': o->threads = n; break;
        case 'r': o->rounds = n; break;
        case 'T': o->tier = optarg; break;
        default: return false;
        }
    }
    return o->rows >= 1 && o->rows <= 4096 && o->context >= 0 && o->rounds >= 1 && o->rounds <= MAX_ROUNDS;
}

int main(int argc, char **argv)
{
    static bench b = {.o = {8, 2, 64, 1536, 512, 1, 7, NULL}};
    double t[MAX_ROUNDS], fma[MAX_ROUNDS];
    nb_error err;
    options *o = &b.o;
    if (!parse(o, argc, argv)) return 2;
    nb_plan_options po = {.chunk = o->rows, .threads = o->threads, .tier = o->tier};
    if (!record(&b) || nb_cpu_backend.plan_new(&b.plan, &b.g, &po, &err) != NB_OK || !fill_cache(&b)) {
        fprintf(stderr, "%s\n", b.plan ? "out of memory" : err.text);
        return 1;
    }
    one_round(&b);
    for (int i = 0; i < o->rounds; i++) t[i] = one_round(&b), fma[i] = peak(&b);
    qsort(t, (size_t)o->rounds, sizeof *t, ascending);
    qsort(fma, (size_t)o->rounds, sizeof *fma, ascending);
    double time = t[o->rounds / 2], top = fma[o->rounds / 2],
           keys = (double)o->rows * o->context + 0.5 * o->rows * (o->rows + 1.0);
    double ops = 4.0 * o->d * o->heads * keys / time,
           bytes = (double)(o->context + o->rows) / NB_KV_BLOCK * (double)nb_kv_block_bytes(&b.g.kv[0]) / time;
    printf("%s, %d/%d heads of %d, %d rows after %d, %d threads: %.3f ms, %.1f Gop/s, %.2f of %.0f; %.2f GB/s of K and "
           "V\n",
           nb_cpu_backend.plan_tier(b.plan), o->heads, o->kv_heads, o->d, o->rows, o->context, o->threads, time * 1e3,
           ops * 1e-9, ops / top, top * 1e-9, bytes * 1e-9);
    nb_cpu_backend.plan_free(b.plan);
    nb_arena_free(b.g.arena);
    return 0;
}
