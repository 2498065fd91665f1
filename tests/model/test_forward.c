/* The recorded forwards end to end on the CPU in float32 mode, against the publishers' own logits and hidden states:
 * every reference model whose architecture runs, in one go and in odd chunks, greedy decoding from the cache included.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cache/cache.h"
#include "cpu/cpu.h"
#include "import.h"

#include <math.h>

#define TOLERANCE 2e-4

typedef struct runner {
    nb_network *net;
    nb_cache *cache;
    nb_plan *plan;
    int32_t seq, chunk;
    const nb_graph *g;
    float **capture;
    uint8_t bad;
} runner;

static nb_name name_of(const char *text)
{
    nb_name n;
    nb_error err;
    assert_int_equal(nb_name_parse(&n, text, &err), NB_OK);
    return n;
}

static void open_runner(runner *r, nb_network *net, int32_t chunk, bool f32)
{
    nb_error err;
    *r = (runner){.net = net, .chunk = chunk, .g = f32 ? &net->graph_f32 : &net->graph};
    nb_cache_options co = {.layers = r->g->kv, .n_layers = r->g->n_kv, .chunk = chunk, .f32 = f32};
    nb_plan_options po = {.chunk = chunk, .threads = 2, .f32 = f32, .tier = getenv("NIBBLE_TIER")};
    if (nb_cache_new(&r->cache, &co, &err) != NB_OK || nb_cache_open(r->cache, 1024, &r->seq, &err) != NB_OK ||
        nb_cpu_backend.plan_new(&r->plan, r->g, &po, &err) != NB_OK)
        fail_msg("%s", err.text);
    r->capture = calloc((size_t)r->g->n_captures + 1, sizeof *r->capture);
    for (int32_t i = 0; i < r->g->n_captures; i++)
        r->capture[i] = malloc((size_t)chunk * (size_t)net->config.hidden * 4);
}

static void close_runner(runner *r)
{
    for (int32_t i = 0; i < r->g->n_captures; i++) free(r->capture[i]);
    free(r->capture);
    nb_cpu_backend.plan_free(r->plan);
    nb_cache_free(r->cache);
}

/* One forward of n rows; logits of all rows go to out [n, vocab] if it is not NULL. */
static void step(runner *r, const int32_t *ids, int32_t n, float *out)
{
    nb_error err;
    int32_t *seq = calloc((size_t)n, 4), *slot = malloc((size_t)n * 4);
    if (nb_cache_prepare(r->cache, r->seq, n, &err) != NB_OK) fail_msg("%s", err.text);
    for (int32_t i = 0; i < n; i++) slot[i] = nb_cache_length(r->cache, r->seq) + i;
    const nb_kv_view *views = nb_cache_views(r->cache, r->seq);
    nb_batch b = {.rows = n,
                  .ids = ids,
                  .seq = seq,
                  .slot = slot,
                  .n_seqs = 1,
                  .kv = &views,
                  .bad = &r->bad,
                  .capture = r->capture};
    nb_cpu_backend.forward(r->plan, &b);
    assert_int_equal(r->bad, 0);
    nb_cache_commit(r->cache, r->seq, n);
    for (int32_t i = 0; out && i < n; i++) {
        const float *logits = nb_cpu_backend.unembed(r->plan, &i, 1);
        memcpy(out + (size_t)i * (size_t)r->net->config.vocab, logits, (size_t)r->net->config.vocab * 4);
    }
    free(seq);
    free(slot);
}

static double rms(const float *got, const float *want, size_t n)
{
    double d = 0, w = 0;
    for (size_t i = 0; i < n; i++) {
        double e = (double)got[i] - want[i];
        d += e * e;
        w += (double)want[i] * want[i];
    }
    return w > 0 ? sqrt(d / w) : sqrt(d);
}

static float *reference(const nb_st_file *f, const nb_mapped *m, const char *name, size_t *n)
{
    const nb_st_tensor *t = nb_st_find(f, nb_str_of(name));
    uint64_t count = 0;
    if (!t || !nb_st_count(t, &count)) return NULL;
    float *v = malloc(count * 4 + 4);
    if (!nb_floats_decode(t->dtype, m->p + t->off, count, v))
        fail_msg("%s has dtype %s", name, nb_dtype_name(t->dtype));
    *n = count;
    return v;
}

static int32_t *reference_ids(const nb_st_file *f, const nb_mapped *m, const char *name, int32_t *n)
{
    const nb_st_tensor *t = nb_st_find(f, nb_str_of(name));
    if (!t) return NULL;
    *n = (int32_t)t->dim[t->rank - 1];
    int32_t *ids = malloc((size_t)*n * 4);
    for (int32_t i = 0; i < *n; i++)
        ids[i] = t->dtype == NB_DT_I64 ? (int32_t)nb_load_u64(m->p + t->off + (size_t)i * 8)
                                       : (int32_t)nb_load_u32(m->p + t->off + (size_t)i * 4);
    return ids;
}

static void near(const char *model, const char *what, const float *got, const float *want, size_t n, double *worst)
{
    double e = rms(got, want, n);
    if (e > *worst) *worst = e;
    if (!(e <= TOLERANCE)) fail_msg("%s: %s is off by %.3g relative RMS", model, what, e);
}

/* Logits and hidden states of one forward over the whole prompt. */
static void check_prompt(const char *model, nb_network *net, const nb_st_file *f, const nb_mapped *m,
                         const int32_t *ids, int32_t n, double *worst)
{
    runner r;
    size_t count;
    char name[32];
    open_runner(&r, net, n, true);
    float *want = reference(f, m, "logits", &count), *got = malloc((size_t)n * (size_t)net->config.vocab * 4);
    assert_int_equal(count, (size_t)n * (size_t)net->config.vocab);
    step(&r, ids, n, got);
    float *want_logits = want;
    for (int32_t i = 0; i < r.g->n_captures; i++) {
        snprintf(name, sizeof name, "hidden.%d", i);
        want = reference(f, m, name, &count);
        if (want) near(model, name, r.capture[i], want, count, worst);
        free(want);
    }
    near(model, "logits", got, want_logits, (size_t)n * (size_t)net->config.vocab, worst);
    free(want_logits);
    want = reference(f, m, "final_hidden", &count);
    if (want)
        for (int32_t i = 0; i < n; i++) {
            size_t h = (size_t)net->config.hidden, at = (size_t)i * h;
            near(model, "final_hidden", nb_cpu_backend.slot(r.plan, r.g->hidden) + at, want + at, h, worst);
        }
    free(want);
    /* odd chunks give the same bits */
    runner s;
    open_runner(&s, net, 7, true);
    float *part = malloc((size_t)7 * (size_t)net->config.vocab * 4);
    for (int32_t i = 0; i < n; i += 7) {
        int32_t k = n - i < 7 ? n - i : 7;
        step(&s, ids + i, k, part);
        assert_memory_equal(part, got + (size_t)i * (size_t)net->config.vocab,
                            (size_t)k * (size_t)net->config.vocab * 4);
    }
    free(part);
    close_runner(&s);
    free(got);
    close_runner(&r);
}

/* Greedy decoding from the cache; decode_logits[i] are those after decode_ids[i] was evaluated. */
static void check_decode(const char *model, nb_network *net, const nb_st_file *f, const nb_mapped *m,
                         const int32_t *ids, int32_t n, double *worst)
{
    int32_t count = 0;
    size_t floats, vocab = (size_t)net->config.vocab;
    int32_t *want_ids = reference_ids(f, m, "decode_ids", &count);
    float *want = reference(f, m, "decode_logits", &floats), *got = malloc((size_t)n * vocab * 4);
    runner r;
    if (!want_ids || !want) return;
    open_runner(&r, net, n, true);
    step(&r, ids, n, got);
    const float *last = got + (size_t)(n - 1) * vocab;
    for (int32_t i = 0; i < count; i++) {
        int32_t best = 0;
        for (size_t v = 1; v < vocab; v++)
            if (last[v] > last[best]) best = (int32_t)v;
        assert_int_equal(best, want_ids[i]);
        step(&r, &best, 1, got);
        near(model, "decode_logits", got, want + (size_t)i * vocab, vocab, worst);
        last = got;
    }
    free(want_ids);
    free(want);
    free(got);
    close_runner(&r);
}

/* Rows [from, to) of ids in the runner's chunks; each row's logits must have the bits of all. */
static void continue_to(runner *r, const int32_t *ids, int32_t from, int32_t to, const float *all)
{
    size_t vocab = (size_t)r->net->config.vocab;
    float *part = malloc((size_t)r->chunk * vocab * 4);
    while (from < to) {
        int32_t k = to - from < r->chunk ? to - from : r->chunk;
        step(r, ids + from, k, part);
        assert_memory_equal(part, all + (size_t)from * vocab, (size_t)k * vocab * 4);
        from += k;
    }
    free(part);
}

/* Sequences far longer than a window: wrapped rings, forks and truncations equal one plain forward, bit for bit. */
static void check_long(nb_network *net, bool f32)
{
    enum { LONG = 300, FORK = 250 };
    int32_t ids[LONG], other = -1;
    nb_error err;
    runner whole, r;
    float *all = malloc((size_t)LONG * (size_t)net->config.vocab * 4);
    for (int i = 0; i < LONG; i++) ids[i] = (int32_t)((uint32_t)(i * 2654435761u) >> 8) % net->config.vocab;
    open_runner(&whole, net, LONG, f32);
    step(&whole, ids, LONG, all);
    close_runner(&whole);
    open_runner(&r, net, 7, f32);
    continue_to(&r, ids, 0, FORK, all);
    assert_int_equal(nb_cache_fork(r.cache, r.seq, &other, &err), NB_OK);
    continue_to(&r, ids, FORK, LONG, all);
    /* a little back: what a ring keeps for it */
    assert_int_equal(nb_cache_truncate(r.cache, r.seq, LONG - 20), LONG - 20);
    continue_to(&r, ids, LONG - 20, LONG, all);
    /* far back: from wherever every layer can */
    int32_t at = nb_cache_truncate(r.cache, r.seq, 100);
    assert_true(at == 100 || at == 0);
    continue_to(&r, ids, at, 140, all);
    /* the fork was not touched by any of it */
    r.seq = other;
    continue_to(&r, ids, FORK, LONG, all);
    free(all);
    close_runner(&r);
}

static void check_model(const char *model, const nb_network *net_const, double *worst)
{
    nb_network *net = (nb_network *)(uintptr_t)net_const;
    char path[4096];
    nb_mapped m;
    nb_st_file f;
    nb_error err;
    int32_t n = 0;
    snprintf(path, sizeof path, "%s/reference_models/%s/reference.safetensors", data_root(), model);
    assert_int_equal(nb_file_map(&m, path, UINT64_MAX, &err), NB_OK);
    assert_int_equal(nb_st_read_mem(&f, m.p, m.n, path, 0, &err), NB_OK);
    int32_t *ids = reference_ids(&f, &m, "input_ids", &n);
    assert_non_null(ids);
    check_prompt(model, net, &f, &m, ids, n, worst);
    check_decode(model, net, &f, &m, ids, n, worst);
    check_long(net, true);
    check_long(net, false);
    free(ids);
    nb_st_free(&f);
    nb_file_unmap(&m);
}

static void references(void **state)
{
    (void)state;
    char *names[256];
    size_t n = reference_models(names);
    int ran = 0, skipped = 0;
    for (size_t i = 0; i < n; i++) {
        nb_error err = {0};
        nb_name name = name_of(names[i]);
        nb_network *net = NULL;
        double worst = 0;
        nb_json_doc doc = {0};
        nb_arena *a = nb_arena_new(0);
        nb_config c;
        bool runs = json_file(&doc, names[i], "config.json", &err) == NB_OK &&
                    nb_config_read(&c, doc.root, NULL, a, &err) == NB_OK && nb_arch_runs(c.arch);
        nb_json_free(&doc);
        nb_arena_free(a);
        if (!runs) {
            skipped++;
        } else {
            if (import_reference(store, names[i], &name, nb_qtype_default(NB_BF16), false, &err) != NB_OK)
                fail_msg("%s: %s", names[i], err.text);
            if (nb_network_open(&net, store, &name, NULL, &err) != NB_OK) fail_msg("%s", err.text);
            check_model(names[i], net, &worst);
            printf("%-12s worst relative RMS %.2e, %d records, %zu tensors\n", names[i], worst, (int)net->graph.n_ops,
                   net->n_tensors);
            nb_network_close(net);
            ran++;
        }
        free(names[i]);
    }
    printf("%d reference models ran, %d skipped (their forward does not run yet)\n", ran, skipped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(references)};
    return cmocka_run_group_tests(tests, store_setup, store_teardown);
}
