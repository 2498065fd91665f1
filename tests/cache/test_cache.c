/* The cache against a plain record: every slot gets a number when it is "evaluated", and what a row may see must be
 * that number, whatever was forked, truncated or wrapped. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cache/cache.h"

#include <stdio.h>
#include <stdlib.h>

#define CONTEXT 3000
#define CHUNK   100
static const nb_kv_shape shapes[] = {
    {.heads = 2, .dk = 16, .dv = 32, .window = 0},
    {.heads = 1, .dk = 64, .dv = 64, .window = 40},
    {.heads = 2, .dk = 16, .dv = 32, .window = 200},
    {.heads = 1, .dk = 32, .dv = 48, .window = 2950},
};
#define LAYERS (int)NB_COUNT(shapes)

typedef struct record {
    int32_t seq, length;
    uint32_t value[CONTEXT];
} record;

static uint32_t rng = 1;
static uint32_t rnd(uint32_t n)
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) % n;
}

/* Where slot j of a layer keeps the number of this test: somewhere in its block, 4 bytes per slot. */
static uint8_t *place(const nb_kv_view *v, int32_t j)
{
    int32_t at = v->ring ? j % v->ring : j;
    return v->block[at / NB_KV_BLOCK] + (size_t)(at % NB_KV_BLOCK) * 8;
}

static void evaluate(nb_cache *c, record *r, int32_t n)
{
    nb_error err;
    if (nb_cache_prepare(c, r->seq, n, &err) != NB_OK) fail_msg("%s", err.text);
    const nb_kv_view *v = nb_cache_views(c, r->seq);
    for (int32_t i = 0; i < n; i++) {
        uint32_t x = rnd(1u << 24);
        r->value[r->length + i] = x;
        for (int l = 0; l < LAYERS; l++) nb_store_u32(place(&v[l], r->length + i), x + (uint32_t)l);
    }
    nb_cache_commit(c, r->seq, n);
    r->length += n;
}

/* What the row at slot `length` would see. */
static void check(nb_cache *c, const record *r)
{
    const nb_kv_view *v = nb_cache_views(c, r->seq);
    assert_int_equal(nb_cache_length(c, r->seq), r->length);
    for (int l = 0; l < LAYERS; l++) {
        int32_t first = shapes[l].window ? r->length - shapes[l].window + 1 : 0;
        for (int32_t j = first > 0 ? first : 0; j < r->length; j++)
            if (nb_load_u32(place(&v[l], j)) != r->value[j] + (uint32_t)l)
                fail_msg("layer %d slot %d of %d", l, j, r->length);
        if (!v[l].ring) assert_int_equal(v[l].n_blocks, (r->length + 63) / 64);
    }
}

static nb_cache *make(bool f32)
{
    nb_cache *c;
    nb_error err;
    nb_cache_options o = {.layers = shapes, .n_layers = LAYERS, .chunk = CHUNK, .f32 = f32};
    assert_int_equal(nb_cache_new(&c, &o, &err), NB_OK);
    return c;
}

static void random_walk(void **state)
{
    (void)state;
    enum { MAX = 6 };
    record *r = calloc(MAX, sizeof *r);
    for (int round = 0; round < 4; round++) {
        nb_cache *c = make(round & 1);
        nb_error err;
        int n = 1, reevaluated = 0, forks = 0;
        r[0] = (record){0};
        assert_int_equal(nb_cache_open(c, CONTEXT, &r[0].seq, &err), NB_OK);
        for (int step = 0; step < 1200; step++) {
            record *one = &r[rnd((uint32_t)n)];
            uint32_t what = rnd(10);
            if (what < 6) {
                int32_t k = 1 + (int32_t)rnd(rnd(2) ? CHUNK : 3);
                if (one->length + k > CONTEXT) continue;
                evaluate(c, one, k);
            } else if (what < 8) {
                int32_t to = one->length - (int32_t)rnd(rnd(3) ? 60 : 900);
                int32_t got = nb_cache_truncate(c, one->seq, to);
                if (to < 0) to = 0;
                assert_true(got == to || got == 0);
                if (to + 33 >= one->length && one->length > 0) assert_int_equal(got, to < 0 ? 0 : to);
                one->length = got;
                reevaluated += to - got;
                while (one->length < to) evaluate(c, one, to - one->length < CHUNK ? to - one->length : CHUNK);
            } else if (what == 8 && n < MAX) {
                r[n] = *one;
                assert_int_equal(nb_cache_fork(c, one->seq, &r[n].seq, &err), NB_OK);
                n++;
                forks++;
            } else if (n > 1) {
                nb_cache_close(c, one->seq);
                *one = r[--n];
            }
            if (step % 16 == 0)
                for (int i = 0; i < n; i++) check(c, &r[i]);
        }
        printf("%s: %d forks, %d slots evaluated again\n", round & 1 ? "float32" : "bf16", forks, reevaluated);
        for (int i = 0; i < n; i++) nb_cache_close(c, r[i].seq);
        nb_cache_usage u;
        nb_cache_get_usage(c, &u);
        assert_int_equal(u.used, 0);
        nb_cache_free(c);
    }
    free(r);
}

/* A fork copies one block per full layer, when one of the two goes on; the rest stays shared. */
static void sharing(void **state)
{
    (void)state;
    nb_cache *c;
    nb_error err;
    nb_kv_shape full = {.heads = 1, .dk = 64, .dv = 64};
    nb_cache_options o = {.layers = &full, .n_layers = 1, .chunk = 64};
    int32_t a, b;
    nb_cache_usage before, after;
    assert_int_equal(nb_cache_new(&c, &o, &err), NB_OK);
    assert_int_equal(nb_cache_open(c, 1000, &a, &err), NB_OK);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(nb_cache_prepare(c, a, 50, &err), NB_OK);
        nb_cache_commit(c, a, 50);
    }
    assert_int_equal(nb_cache_fork(c, a, &b, &err), NB_OK);
    nb_cache_get_usage(c, &before);
    assert_int_equal(before.used, 4 * nb_kv_block_bytes(&full));
    assert_int_equal(nb_cache_bytes(c, b), before.used);
    assert_int_equal(nb_cache_prepare(c, b, 1, &err), NB_OK);
    nb_cache_get_usage(c, &after);
    assert_int_equal(after.used, before.used + nb_kv_block_bytes(&full));
    for (int i = 0; i < 3; i++) assert_ptr_equal(nb_cache_views(c, a)->block[i], nb_cache_views(c, b)->block[i]);
    assert_ptr_not_equal(nb_cache_views(c, a)->block[3], nb_cache_views(c, b)->block[3]);
    assert_int_equal(nb_cache_estimate(&o, 1000), 16 * nb_kv_block_bytes(&full));
    nb_cache_trim(c);
    /* limits */
    assert_int_equal(nb_cache_prepare(c, b, 65, &err), NB_E_USAGE);
    for (int i = 0; i < 11; i++) {
        assert_int_equal(nb_cache_prepare(c, b, 64, &err), NB_OK);
        nb_cache_commit(c, b, 64);
    }
    assert_int_equal(nb_cache_prepare(c, b, 64, &err), NB_E_CONTEXT);
    assert_int_equal(nb_cache_prepare(c, b, 46, &err), NB_OK);
    nb_cache_free(c);
}

static void bad_options(void **state)
{
    (void)state;
    nb_cache *c;
    nb_error err;
    int32_t s;
    nb_kv_shape l = {.heads = 0, .dk = 64, .dv = 64};
    nb_cache_options o = {.layers = &l, .n_layers = 1, .chunk = 64};
    assert_int_equal(nb_cache_new(&c, &o, &err), NB_E_USAGE);
    l.heads = 1;
    o.chunk = 0;
    assert_int_equal(nb_cache_new(&c, &o, &err), NB_E_USAGE);
    o.chunk = 1;
    assert_int_equal(nb_cache_new(&c, &o, &err), NB_OK);
    assert_int_equal(nb_cache_open(c, 0, &s, &err), NB_E_USAGE);
    nb_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_walk), cmocka_unit_test(sharing),
                                       cmocka_unit_test(bad_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
