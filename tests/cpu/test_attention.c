/* Attention through a recorded graph (gathers, rope with no_rotation, attention): against the page of the design
 * followed literally in scalar C (bits), against double precision (tolerance), and over tiers, lanes and chunkings
 * (bits). Keys outside a window have no cache block at all ("holes"), and blocks carry guard bytes. */
#include "cpu/util.h"

#include "cpu/math.h"

enum { MAX_T = 1200 };

typedef struct shape {
    const char *name;
    int32_t heads, kv_heads, dk, dv, tokens, window;
    float scale, softcap;
    bool sinks, ring;
} shape;

static const shape shapes[] = {
    {"d 64", 4, 2, 64, 64, 600, 0, 0.125f, 0, false, false},
    {"d 80, one kv head", 6, 1, 80, 80, 300, 0, 0.1f, 0, false, false},
    {"d 128, softcap", 2, 2, 128, 128, 530, 0, 0.0884f, 50.0f, false, false},
    {"d 256, sinks", 2, 1, 256, 256, 290, 0, 0.0625f, 0, true, false},
    {"d 64, window 40", 4, 2, 64, 64, 700, 40, 0.125f, 0, false, false},
    {"d 64, window 512, ring", 3, 1, 64, 64, 1200, 512, 0.125f, 0, true, true},
    {"d 80, window 100, ring, softcap", 2, 1, 80, 80, 900, 100, 0.3f, 20.0f, false, true},
    {"dk 48, dv 24", 5, 5, 48, 24, 270, 0, 0.2f, 0, false, false},
};
enum { RING_CHUNK = 64 };
#ifdef NB_TSAN
enum { SLOW_BUILD = 1 }; /* one shape on the best tier: what the lanes share, not the arithmetic */
#else
enum { SLOW_BUILD = 0 };
#endif

typedef struct world {
    const shape *s;
    bool f32;
    nb_arena *arena;
    nb_graph g;
    nb_weight table[3]; /* q, k, v of every token */
    float *q, *k, *v, *sinks;
    int32_t ring, n_blocks;
} world;

static nb_weight f32_table(const char *name, const float *data, int64_t n, int64_t k)
{
    return (nb_weight){.name = name,
                       .type = {NB_F32, NB_DT_NONE, 32},
                       .layout = NB_LAYOUT_ROWS1,
                       .n = n,
                       .k = k,
                       .data = (const uint8_t *)data,
                       .bytes = (uint64_t)(n * k * 4),
                       .multiplier = 1.0f};
}

static float *random_rows(nb_arena *a, int64_t n, float scale)
{
    float *p = NB_NEW_N(a, float, (size_t)n);
    for (int64_t i = 0; i < n; i++) p[i] = rnd() % 500 == 0 ? 0x1p-60f : scale * rnd_unit();
    return p;
}

static void record(world *w)
{
    const shape *s = w->s;
    nb_graph *g = &w->g;
    const int32_t width[3] = {s->heads * s->dk, s->kv_heads * s->dk, s->kv_heads * s->dv};
    const char *const names[3] = {"q", "k", "v"};
    nb_slot_id slot[3];
    g->arena = w->arena;
    for (int i = 0; i < 3; i++) {
        slot[i] = nb_graph_slot(g, NB_SLOT_F32, width[i], names[i]);
        nb_op *op = nb_graph_op(g, NB_OP_GATHER_ROWS);
        op->u.gather.table = &w->table[i];
        op->u.gather.scale = 1.0f;
        op->u.gather.out = slot[i];
    }
    nb_slot_id act = nb_graph_slot(g, NB_SLOT_ACT, s->heads * NB_ALIGN_UP(s->dk, 32), "q_act"),
               out = nb_graph_slot(g, NB_SLOT_F32, s->heads * s->dv, "out");
    nb_slot_id out_act = nb_graph_slot(g, NB_SLOT_ACT, s->heads * s->dv, "out_act");
    int32_t layer = nb_graph_kv(g, &(nb_kv_shape){s->kv_heads, s->dk, s->dv, s->window, w->f32});
    nb_op *op = nb_graph_op(g, NB_OP_ROPE);
    op->u.rope.q = slot[0], op->u.rope.k = slot[1], op->u.rope.v = slot[2], op->u.rope.q_act = act;
    op->u.rope.layer = layer, op->u.rope.heads = s->heads, op->u.rope.kv_heads = s->kv_heads, op->u.rope.dk = s->dk,
    op->u.rope.dv = s->dv, op->u.rope.no_rotation = true;
    op = nb_graph_op(g, NB_OP_ATTENTION);
    op->u.attention.q_act = act, op->u.attention.out = out, op->u.attention.act = out_act,
    op->u.attention.layer = layer;
    op->u.attention.heads = s->heads, op->u.attention.kv_heads = s->kv_heads, op->u.attention.dk = s->dk,
    op->u.attention.dv = s->dv;
    op->u.attention.scale = s->scale, op->u.attention.softcap = s->softcap, op->u.attention.sinks = w->sinks;
    g->hidden = g->aux = out;
    g->head_in = nb_graph_slot(g, NB_SLOT_F32, s->heads * s->dv, "head_in");
    g->logits = g->head_in;
}

static void world_new(world *w, const shape *s, bool f32)
{
    *w = (world){.s = s, .f32 = f32, .arena = nb_arena_new(0)};
    w->q = random_rows(w->arena, (int64_t)s->tokens * s->heads * s->dk, 3.0f);
    w->k = random_rows(w->arena, (int64_t)s->tokens * s->kv_heads * s->dk, 2.0f);
    w->v = random_rows(w->arena, (int64_t)s->tokens * s->kv_heads * s->dv, 2.0f);
    if (s->sinks) w->sinks = random_rows(w->arena, s->heads, 4.0f);
    w->table[0] = f32_table("q", w->q, s->tokens, s->heads * s->dk);
    w->table[1] = f32_table("k", w->k, s->tokens, s->kv_heads * s->dk);
    w->table[2] = f32_table("v", w->v, s->tokens, s->kv_heads * s->dv);
    w->ring = s->ring ? NB_ALIGN_UP(s->window + RING_CHUNK + 32, NB_KV_BLOCK) : 0;
    w->n_blocks = (w->ring ? w->ring : NB_ALIGN_UP(s->tokens, NB_KV_BLOCK)) / NB_KV_BLOCK;
    record(w);
    nb_error err;
    if (nb_graph_check(&w->g, &err) != NB_OK) fail_msg("%s", err.text);
}

/* ---- the design's page, literally ---- */

static float rounded(float x, float small, bool f32)
{
    if (fabsf(x) < small) return 0.0f;
    return f32 ? x : nb_bf16_decode(nb_bf16_encode(x));
}

/* Tile order: chains of even and odd k in each 32, both from +0. */
static float tile_dot(const float *w, const float *x, int32_t n)
{
    float acc = 0;
    for (int32_t b = 0; b < n; b += 32) {
        float even = 0, odd = 0;
        for (int32_t i = b; i < b + 32; i += 2) even = fmaf(w[i], x[i], even), odd = fmaf(w[i + 1], x[i + 1], odd);
        acc = acc + (even + odd);
    }
    return acc;
}

static void page_block(const world *w, const float *q, int32_t t, int32_t kvh, int32_t base, float *m, float *l,
                       float *o)
{
    const shape *s = w->s;
    float p[256] = {0}, col[256], k[256], acc[16] = {0}, mb = -INFINITY;
    bool any = false, seen[256];
    for (int32_t j = 0; j < 256; j++) {
        int32_t at = base + j;
        seen[j] = at <= t && (!s->window || t - at < s->window);
        if (!seen[j]) continue;
        any = true;
        memset(k, 0, sizeof k);
        for (int32_t i = 0; i < s->dk; i++)
            k[i] = rounded(w->k[((int64_t)at * s->kv_heads + kvh) * s->dk + i], 0x1p-50f, w->f32);
        p[j] = tile_dot(k, q, NB_ALIGN_UP(s->dk, 32)) * s->scale;
        if (s->softcap != 0) p[j] = s->softcap * nb_tanh(p[j] / s->softcap);
        mb = p[j] > mb ? p[j] : mb;
    }
    if (!any) return;
    for (int32_t j = 0; j < 256; j++) {
        p[j] = seen[j] ? nb_exp(p[j] - mb) : 0.0f;
        if (!w->f32) p[j] = rounded(p[j], 0x1p-40f, false);
        acc[j % 16] += p[j];
    }
    float lb = nb_fold16(acc), top = *m > mb ? *m : mb, a = nb_exp(*m - top), c = nb_exp(mb - top);
    *l = fmaf(*l, a, lb * c);
    *m = top;
    for (int32_t i = 0; i < s->dv; i++) {
        for (int32_t j = 0; j < 256; j++)
            col[j] = base + j < s->tokens && base + j <= t
                         ? rounded(w->v[((int64_t)(base + j) * s->kv_heads + kvh) * s->dv + i], 0x1p-50f, w->f32)
                         : 0.0f;
        o[i] = fmaf(o[i], a, tile_dot(col, p, 256) * c);
    }
}

static void page_row(const world *w, int32_t t, int32_t h, float *out)
{
    const shape *s = w->s;
    int32_t kvh = h / (s->heads / s->kv_heads);
    float q[256] = {0}, m = w->sinks ? w->sinks[h] : -INFINITY, l = w->sinks ? 1.0f : 0.0f;
    for (int32_t i = 0; i < s->dk; i++) q[i] = rounded(w->q[((int64_t)t * s->heads + h) * s->dk + i], 0x1p-50f, w->f32);
    memset(out, 0, (size_t)s->dv * 4);
    for (int32_t base = 0; base <= t; base += 256) page_block(w, q, t, kvh, base, &m, &l, out);
    for (int32_t i = 0; i < s->dv; i++) out[i] = out[i] / l;
}

/* The plain mathematics in double. */
static void double_row(const world *w, int32_t t, int32_t h, double *out)
{
    const shape *s = w->s;
    int32_t kvh = h / (s->heads / s->kv_heads);
    static double x[MAX_T];
    double m = w->sinks ? (double)w->sinks[h] : -INFINITY, l = 0;
    int32_t low = s->window && t >= s->window ? t - s->window + 1 : 0;
    for (int32_t j = low; j <= t; j++) {
        x[j] = 0;
        for (int32_t i = 0; i < s->dk; i++)
            x[j] += (double)w->q[((int64_t)t * s->heads + h) * s->dk + i] *
                    (double)w->k[((int64_t)j * s->kv_heads + kvh) * s->dk + i];
        x[j] *= (double)s->scale;
        if (s->softcap != 0) x[j] = (double)s->softcap * tanh(x[j] / (double)s->softcap);
        m = x[j] > m ? x[j] : m;
    }
    for (int32_t i = 0; i < s->dv; i++) out[i] = 0;
    for (int32_t j = low; j <= t; j++) {
        double p = exp(x[j] - m);
        l += p;
        for (int32_t i = 0; i < s->dv; i++) out[i] += p * (double)w->v[((int64_t)j * s->kv_heads + kvh) * s->dv + i];
    }
    if (w->sinks) l += exp((double)w->sinks[h] - m);
    for (int32_t i = 0; i < s->dv; i++) out[i] /= l;
}

/* ---- running the graph ---- */

typedef struct cache {
    guarded *guard;
    uint8_t **block;
    nb_kv_view view;
    const nb_kv_view *views[1];
} cache;

static void cache_new(cache *c, const world *w)
{
    size_t bytes = nb_kv_block_bytes(&w->g.kv[0]);
    c->guard = calloc((size_t)w->n_blocks, sizeof *c->guard);
    c->block = calloc((size_t)w->n_blocks, sizeof *c->block);
    for (int32_t i = 0; i < w->n_blocks; i++) memset(c->block[i] = guarded_new(&c->guard[i], bytes), 0, bytes);
    c->view = (nb_kv_view){c->block, w->n_blocks, w->ring};
    c->views[0] = &c->view;
}

static void cache_free(cache *c, const world *w)
{
    for (int32_t i = 0; i < w->n_blocks; i++) guarded_free(&c->guard[i]);
    free(c->guard);
    free(c->block);
}

/* Blocks of a linear cache that no later row can see are taken away: nothing may read them. */
static void make_holes(cache *c, const world *w, int32_t next)
{
    if (!w->s->window || w->ring) return;
    for (int32_t i = 0; (i + 1) * NB_KV_BLOCK <= next - w->s->window; i++) c->block[i] = NULL;
}

/* All tokens, `chunk` rows at a time (0: odd lengths). out: [tokens][heads * dv] */
static void run_all(const world *w, const char *tier, int lanes, int32_t chunk, float *out)
{
    nb_error err;
    nb_plan *p;
    nb_plan_options o = {.chunk = chunk ? chunk : 64, .threads = lanes, .f32 = w->f32, .tier = tier};
    if (nb_cpu_backend.plan_new(&p, &w->g, &o, &err) != NB_OK) fail_msg("%s", err.text);
    cache c;
    cache_new(&c, w);
    uint8_t **all = calloc((size_t)w->n_blocks, sizeof *all);
    memcpy(all, c.block, (size_t)w->n_blocks * sizeof *all);
    int32_t ids[64], seq[64] = {0};
    uint8_t bad[1] = {0};
    int64_t width = w->s->heads * w->s->dv;
    static const int32_t odd[] = {1, 33, 5, 64, 17, 2};
    for (int32_t t = 0, k = 0; t < w->s->tokens; k++) {
        int32_t n = chunk ? chunk : odd[k % 6];
        n = n < w->s->tokens - t ? n : w->s->tokens - t;
        for (int32_t i = 0; i < n; i++) ids[i] = t + i;
        nb_batch b = {.rows = n, .ids = ids, .seq = seq, .slot = ids, .n_seqs = 1, .kv = c.views, .bad = bad};
        nb_cpu_backend.forward(p, &b);
        memcpy(out + t * width, nb_cpu_backend.slot(p, w->g.hidden), (size_t)(n * width) * 4);
        t += n;
        make_holes(&c, w, t);
    }
    assert_int_equal(bad[0], 0);
    memcpy(c.block, all, (size_t)w->n_blocks * sizeof *all);
    free(all);
    cache_free(&c, w);
    nb_cpu_backend.plan_free(p);
}

static void check_reference(const world *w, const float *out)
{
    const shape *s = w->s;
    float page[256];
    double exact[256], error = 0, size = 0;
    int rows = 0;
    for (int32_t t = 0; t < s->tokens; t += t < 70 || t > s->tokens - 4 ? 1 : 37) {
        for (int32_t h = 0; h < s->heads; h++) {
            const float *got = out + ((int64_t)t * s->heads + h) * s->dv;
            page_row(w, t, h, page);
            int64_t i = differ(page, got, s->dv);
            if (i >= 0)
                fail_msg("%s: token %d, head %d, channel %lld: %a, by the page %a", s->name, t, h, (long long)i,
                         (double)got[i], (double)page[i]);
            double_row(w, t, h, exact);
            for (int32_t c = 0; c < s->dv; c++)
                error += ((double)got[c] - exact[c]) * ((double)got[c] - exact[c]), size += exact[c] * exact[c];
            rows++;
        }
    }
    error = sqrt(error / size);
    print_message("%s%s: %d rows equal the page; relative RMS to double %.2e\n", s->name, w->f32 ? ", float32" : "",
                  rows, error);
    assert_true(error < (w->f32 ? 3e-6 : 1.2e-2));
}

static void check_shape(const shape *s, bool f32)
{
    world w;
    world_new(&w, s, f32);
    size_t n = (size_t)s->tokens * (size_t)(s->heads * s->dv);
    float *first = malloc(n * 4), *other = malloc(n * 4);
    run_all(&w, "c", 1, 33, first);
    check_reference(&w, first);
    for (int t = 0; t < NB_TIER_COUNT; t++) {
        if (!nb_tier_available((nb_tier)t) || (SLOW_BUILD && t != (int)nb_tier_best())) continue;
        for (int lanes = 1; lanes <= 3; lanes++) {
            static const int32_t chunks[] = {0, 1, 64};
            for (int c = 0; c < 3; c++) {
                if (t == NB_TIER_C && lanes == 2) continue;
                run_all(&w, nb_tier_name((nb_tier)t), lanes, chunks[c], other);
                int64_t i = differ(first, other, (int64_t)n);
                if (i >= 0)
                    fail_msg("%s: tier %s, %d lanes, chunk %d: value %lld differs", s->name, nb_tier_name((nb_tier)t),
                             lanes, chunks[c], (long long)i);
            }
        }
    }
    free(first);
    free(other);
    nb_arena_free(w.arena);
}

static void test_bf16(void **state)
{
    UNUSED_STATE;
    for (size_t i = 0; i < (SLOW_BUILD ? 1 : NB_COUNT(shapes)); i++) check_shape(&shapes[i], false);
}

static void test_float32(void **state)
{
    UNUSED_STATE;
    if (SLOW_BUILD) skip();
    for (size_t i = 0; i < NB_COUNT(shapes); i += 2) check_shape(&shapes[i], true);
}

/* A context of more blocks than the lanes' shared partial sums hold at once: decode in waves. */
static void test_long(void **state)
{
    UNUSED_STATE;
    static const shape s = {"long", 2, 1, 32, 32, SLOW_BUILD ? 600 : 2600, 0, 0.2f, 0, true, false};
    world w;
    world_new(&w, &s, false);
    size_t n = (size_t)s.tokens * (size_t)(s.heads * s.dv);
    float *first = malloc(n * 4), *other = malloc(n * 4);
    run_all(&w, NULL, 1, 64, first);
    run_all(&w, NULL, 3, 1, other);
    int64_t i = differ(first, other, (int64_t)n);
    if (i >= 0) fail_msg("decode in waves: value %lld differs", (long long)i);
    float page[32];
    page_row(&w, s.tokens - 1, 1, page);
    assert_int_equal(differ(page, other + n - 32, 32), -1);
    free(first);
    free(other);
    nb_arena_free(w.arena);
}

/* attn_tiles of every tier, all row counts, with guard bytes around the sums. */
static void test_tiles(void **state)
{
    UNUSED_STATE;
    nb_kernels k[NB_TIER_COUNT + 1], want;
    const char *names[NB_TIER_COUNT + 1];
    int n = tables(k, names);
    plain_table(&want);
    uint8_t *w = aligned_alloc(64, 8 * 4 * 2048);
    float *x = malloc(40 * 128 * 4);
    for (int t = 0; t < n; t++) {
        for (int round = 0; round < 60; round++) {
            int32_t rows = 1 + rnd_below(40), tiles = 1 + rnd_below(8), groups = 1 + rnd_below(4);
            bool f32 = round & 1;
            for (int i = 0; i < 8 * 4 * 512; i++)
                nb_store_u32(w + i * 4, f32 ? nb_bits_f32(rnd_unit())
                                            : nb_bits_f32(rnd_unit()) >> 16 | (nb_bits_f32(rnd_unit()) & 0xffff0000u));
            for (int i = 0; i < 40 * 128; i++) x[i] = rnd_unit();
            guarded g1, g2;
            size_t bytes = (size_t)rows * (size_t)tiles * 64, stride = (size_t)groups * (f32 ? 2048 : 1024);
            float *a = guarded_new(&g1, bytes), *b = guarded_new(&g2, bytes);
            for (size_t i = 0; i < bytes / 4; i++) a[i] = b[i] = rnd_unit();
            nb_attn_job job = {.w = w,
                               .ahead = w,
                               .tile_stride = stride,
                               .tiles = tiles,
                               .groups = groups,
                               .x = x,
                               .x_stride = 128,
                               .rows = rows,
                               .acc = a,
                               .acc_stride = (size_t)tiles * 16};
            want.attn_tiles[f32](&job);
            job.acc = b;
            k[t].attn_tiles[f32](&job);
            if (memcmp(a, b, bytes)) fail_msg("%s: %d rows, %d tiles, %d groups differ", names[t], rows, tiles, groups);
            guarded_free(&g1);
            guarded_free(&g2);
        }
    }
    free(w);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tiles), cmocka_unit_test(test_bf16),
                                       cmocka_unit_test(test_float32), cmocka_unit_test(test_long)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
