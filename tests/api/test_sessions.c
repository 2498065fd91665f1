/* Sessions on every reference model that runs: several in one call, failures, forks, truncation behind windows,
 * cancelling, threads. All results are compared by memcmp with a session that did nothing but evaluate the same ids. */
#include "support.h"

#include <pthread.h>

static nb_model *models[MODELS_MAX]; /* chunk 16, so that rings of window layers wrap soon */
static int n_models;

static int setup(void **state)
{
    int st = group_setup(state);
    for (int i = 0; st == 0 && i < n_model_dirs; i++) {
        char name[32];
        snprintf(name, sizeof name, "m%d", i);
        nb_model *m = open_dir(model_dirs[i], name, 16, 2);
        if (m) models[n_models++] = m;
    }
    printf("covered: %d models run, %d are imported only\n", n_models, n_model_dirs - n_models);
    return n_models ? st : -1;
}

static int teardown(void **state)
{
    for (int i = 0; i < n_models; i++) nb_model_close(models[i]);
    return group_teardown(state);
}

static void two_sessions_in_one_call(void **state)
{
    (void)state;
    for (int i = 0; i < n_models; i++) {
        nb_model *m = models[i];
        int32_t a[90], b[90], most = vocab_of(m);
        make_ids(a, 90, most, 1);
        make_ids(b, 90, most, 2);
        nb_session *s = session(m, 100), *t = session(m, 100);
        must_feed(s, a, 33, 0);
        must_feed(t, b, 5, 0);
        nb_eval_item it[2] = {{.size = sizeof it[0], .session = s, .ids = a + 33, .n = 41, .logits = 1},
                              {.size = sizeof it[0], .session = t, .ids = b + 5, .n = 7, .logits = 3}};
        assert_int_equal(nb_eval(it, 2, NULL), NB_OK);
        float *x = expected(m, a, 74), *y = expected(m, b, 10);
        same_logits(s, x);
        same_logits(t, y); /* the first of the last three rows */
        assert_null(nb_logits(t, 3));
        /* decode steps of both together */
        for (int32_t k = 0; k < 3; k++) {
            nb_eval_item step[2] = {{.size = sizeof it[0], .session = s, .ids = a + 74 + k, .n = 1, .logits = 1},
                                    {.size = sizeof it[0], .session = t, .ids = b + 12 + k, .n = 1, .logits = 1}};
            assert_int_equal(nb_eval(step, 2, NULL), NB_OK);
        }
        float *z = expected(m, a, 77);
        same_logits(s, z);
        free(x), free(y), free(z);
        nb_session_free(s);
        nb_session_free(t);
    }
}

static void one_failing_item_leaves_the_others(void **state)
{
    (void)state;
    for (int i = 0; i < n_models; i++) {
        nb_model *m = models[i];
        int32_t a[60], bad[3] = {1, 2, INT32_MAX}, most = vocab_of(m);
        make_ids(a, 60, most, 3);
        nb_session *s = session(m, 64), *full = session(m, 8), *t = session(m, 64), *c = session(m, 64);
        must_feed(full, a, 6, 1);
        nb_cancel(c);
        nb_eval_item it[4] = {{.size = sizeof it[0], .session = full, .ids = a, .n = 3, .logits = 1},
                              {.size = sizeof it[0], .session = s, .ids = a, .n = 40, .logits = 1},
                              {.size = sizeof it[0], .session = t, .ids = bad, .n = 3, .logits = 1},
                              {.size = sizeof it[0], .session = c, .ids = a, .n = 4, .logits = 1}};
        nb_error err = {0};
        assert_int_equal(nb_eval(it, 4, &err), NB_E_CONTEXT);
        assert_int_equal(it[0].status, NB_E_CONTEXT);
        assert_non_null(strstr(it[0].error, "context"));
        assert_int_equal(it[1].status, NB_OK);
        assert_int_equal(it[2].status, NB_E_USAGE);
        assert_int_equal(it[3].status, NB_E_CANCELLED);
        assert_int_equal(nb_session_length(full), 6);
        assert_int_equal(nb_session_length(t), 0);
        assert_null(nb_logits(full, 0));
        float *x = expected(m, a, 40);
        same_logits(s, x);
        must_feed(c, a, 40, 1); /* the flag went with the call that it ended */
        same_logits(c, x);
        free(x);
        nb_session_free(s), nb_session_free(full), nb_session_free(t), nb_session_free(c);
    }
}

static void a_fork_goes_its_own_way(void **state)
{
    (void)state;
    for (int i = 0; i < n_models; i++) {
        nb_model *m = models[i];
        int32_t a[120], b[120], most = vocab_of(m);
        make_ids(a, 120, most, 4);
        make_ids(b, 120, most, 5);
        memcpy(b, a, 70 * sizeof *a);
        nb_session *s = session(m, 128), *f = NULL;
        must_feed(s, a, 70, 1);
        assert_int_equal(nb_session_fork(&f, s, NULL), NB_OK);
        assert_int_equal(nb_session_length(f), 70);
        assert_memory_equal(nb_session_tokens(f), a, 70 * sizeof *a);
        same_logits(f, nb_logits(s, 0));
        must_feed(f, b + 70, 50, 1);
        must_feed(s, a + 70, 50, 1);
        float *x = expected(m, a, 120), *y = expected(m, b, 120);
        same_logits(s, x);
        same_logits(f, y);
        nb_session_free(s); /* the other keeps its blocks */
        assert_int_equal(nb_session_truncate(f, 70, NULL, NULL), NB_OK);
        must_feed(f, a + 70, 50, 1);
        same_logits(f, x);
        free(x), free(y);
        nb_session_free(f);
    }
}

static void truncation_always_succeeds(void **state)
{
    (void)state;
    static const int32_t keep[] = {199, 190, 150, 128, 64, 63, 17, 1, 0};
    int again = 0;
    for (int i = 0; i < n_models; i++) {
        nb_model *m = models[i];
        int32_t a[260], b[60], most = vocab_of(m);
        make_ids(a, 260, most, 6);
        make_ids(b, 60, most, 7);
        nb_session *s = session(m, 300);
        for (size_t k = 0; k < NB_COUNT(keep); k++) {
            int32_t had = nb_session_length(s), cost = -1;
            must_feed(s, a + had, 200 - had, 1);
            assert_int_equal(nb_session_truncate(s, keep[k], &cost, NULL), NB_OK);
            assert_int_equal(nb_session_length(s), keep[k]);
            assert_null(nb_logits(s, 0));
            assert_true(cost >= 0 && cost <= keep[k]);
            again += cost > 0;
            memcpy(b, a + keep[k], 30 * sizeof *a);
            b[0] = (a[keep[k]] + 1) % most; /* another continuation */
            must_feed(s, b, 30, 1);
            int32_t whole[300];
            memcpy(whole, a, (size_t)keep[k] * sizeof *a);
            memcpy(whole + keep[k], b, 30 * sizeof *a);
            float *x = expected(m, whole, keep[k] + 30);
            same_logits(s, x);
            free(x);
            assert_int_equal(nb_session_truncate(s, keep[k], NULL, NULL), NB_OK);
        }
        nb_error err = {0};
        assert_int_equal(nb_session_truncate(s, 1, NULL, &err), NB_E_USAGE);
        assert_int_equal(nb_session_truncate(s, -1, NULL, &err), NB_E_USAGE);
        nb_session_free(s);
    }
    printf("covered: %d truncations that evaluated tokens again\n", again);
}

/* A token that leaves the numeric domain, in models with and without windows. */
static void a_bad_number_changes_nothing(void **state)
{
    (void)state;
    static const char *const types[] = {"llama", "mistral"};
    int done = 0;
    for (size_t k = 0; k < NB_COUNT(types); k++) {
        const char *dir = model_of_type(types[k]);
        if (!dir) continue;
        char changed[200];
        nb_model *m = open_dir(copy_model(dir, types[k], poison, changed), types[k], 16, 2);
        int32_t a[260], most = vocab_of(m);
        make_ids(a, 260, most, 8);
        for (int i = 0; i < 260; i++) a[i] = a[i] == POISON ? POISON + 1 : a[i];
        nb_session *s = session(m, 300), *t = session(m, 300);
        must_feed(s, a, 150, 1);
        int32_t bad[100];
        memcpy(bad, a + 150, sizeof bad);
        bad[93] = POISON; /* in the seventh chunk: what came before is taken back, behind the ring of a window too */
        nb_eval_item it[2] = {{.size = sizeof it[0], .session = s, .ids = bad, .n = 100, .logits = 1},
                              {.size = sizeof it[0], .session = t, .ids = a, .n = 50, .logits = 1}};
        nb_error err = {0};
        assert_int_equal(nb_eval(it, 2, &err), NB_E_NUMERIC);
        assert_non_null(strstr(err.text, "domain"));
        assert_int_equal(it[0].status, NB_E_NUMERIC);
        assert_int_equal(it[1].status, NB_OK);
        assert_int_equal(nb_session_length(s), 150);
        assert_memory_equal(nb_session_tokens(s), a, 150 * sizeof *a);
        assert_null(nb_logits(s, 0));
        float *x = expected(m, a, 190), *y = expected(m, a, 50);
        same_logits(t, y);
        must_feed(s, a + 150, 40, 1);
        same_logits(s, x);
        nb_generate_options o;
        nb_generate_result r = {.size = sizeof r};
        nb_generate_options_default(&o, m);
        assert_int_equal(nb_generate(s, bad, 100, &o, &r, &err), NB_E_NUMERIC);
        assert_int_equal(r.finish, NB_FINISH_ERROR);
        free(x), free(y);
        nb_session_free(s), nb_session_free(t);
        nb_model_close(m);
        done++;
    }
    printf("covered: %d models with a poisoned token\n", done);
    assert_true(done > 0);
}

/* ---- cancelling ---- */

static void *cancel_later(void *arg)
{
    usleep(20000);
    nb_cancel(arg);
    return NULL;
}

static bool count_token(void *user, int32_t id)
{
    (void)id;
    ++*(int *)user;
    return true;
}

typedef struct stopper {
    nb_session *s;
    int tokens;
} stopper;
static bool cancel_at_five(void *user, int32_t id)
{
    stopper *p = user;
    (void)id;
    if (++p->tokens == 5) nb_cancel(p->s);
    return true;
}

static bool refuse_at_three(void *user, int32_t id)
{
    (void)id;
    return ++*(int *)user < 3;
}

static bool stop_prompt(void *user, int32_t done, int32_t total)
{
    (void)user;
    assert_true(done < total);
    return done < 40;
}

static void cancelling(void **state)
{
    (void)state;
    nb_model *m = models[0];
    int32_t a[200];
    make_ids(a, 200, vocab_of(m), 9);
    nb_session *s = session(m, 2000);
    nb_generate_options o;
    nb_generate_result r = {.size = sizeof r};
    nb_error err = {0};
    nb_generate_options_default(&o, m);
    o.ignore_eos = true;
    /* at a known token, while its forward is still to come */
    stopper p = {s, 0};
    o.on_token = cancel_at_five;
    o.user = &p;
    assert_int_equal(nb_generate(s, a, 20, &o, &r, &err), NB_E_CANCELLED);
    assert_int_equal(r.finish, NB_FINISH_CANCELLED);
    assert_int_equal(r.generated_tokens, 5);
    assert_int_equal(nb_session_length(s), 24);
    /* by the callback's answer */
    int count = 0;
    o.on_token = refuse_at_three;
    o.user = &count;
    assert_int_equal(nb_generate(s, a, 20, &o, &r, &err), NB_E_CANCELLED);
    assert_int_equal(count, 3);
    /* in the prompt */
    o.on_token = NULL;
    o.on_prompt = stop_prompt;
    assert_int_equal(nb_session_truncate(s, 0, NULL, NULL), NB_OK);
    assert_int_equal(nb_generate(s, a, 200, &o, &r, &err), NB_E_CANCELLED);
    assert_int_equal(nb_session_length(s), 0);
    /* from another thread, at any moment, many times: never lost */
    o.on_prompt = NULL;
    o.on_token = count_token;
    for (int k = 0; k < 5; k++) {
        pthread_t th;
        count = 0;
        assert_int_equal(pthread_create(&th, NULL, cancel_later, s), 0);
        nb_status st = nb_generate(s, a, 20, &o, &r, &err);
        pthread_join(th, NULL);
        if (st == NB_OK) { /* a fast machine may be done before; then the flag ends the next call */
            assert_int_equal(r.finish, NB_FINISH_LENGTH);
            assert_int_equal(feed(s, a, 1, 1, &err), NB_E_CONTEXT);
            nb_session_truncate(s, 0, NULL, NULL);
        } else {
            assert_int_equal(st, NB_E_CANCELLED);
        }
    }
    /* the session goes on as if nothing had been */
    nb_session_truncate(s, 0, NULL, NULL);
    must_feed(s, a, 100, 1);
    float *x = expected(m, a, 100);
    same_logits(s, x);
    free(x);
    nb_session_free(s);
}

static void a_full_context(void **state)
{
    (void)state;
    for (int i = 0; i < n_models; i++) {
        nb_model *m = models[i];
        int32_t a[64];
        make_ids(a, 64, vocab_of(m), 10);
        nb_session *s = session(m, 40);
        nb_generate_options o;
        nb_generate_result r = {.size = sizeof r};
        nb_error err = {0};
        int count = 0;
        nb_generate_options_default(&o, m);
        o.ignore_eos = true;
        o.on_token = count_token;
        o.user = &count;
        assert_int_equal(nb_generate(s, a, 30, &o, &r, &err), NB_OK);
        assert_int_equal(r.finish, NB_FINISH_LENGTH);
        assert_int_equal(r.generated_tokens, 10);
        assert_int_equal(count, 10);
        assert_int_equal(nb_generate(s, a, 40, &o, &r, &err), NB_E_CONTEXT);
        must_feed(s, a, 40 - nb_session_length(s), 1);
        assert_int_equal(feed(s, a, 1, 1, &err), NB_E_CONTEXT);
        assert_int_equal(nb_session_length(s), 40);
        nb_session_free(s);
    }
}

/* ---- two threads, two sessions ---- */

typedef struct worker {
    nb_model *m;
    const int32_t *ids;
    int32_t n;
    int32_t got[40];
    int n_got;
    nb_status status;
} worker;

static bool take_id(void *user, int32_t id)
{
    worker *w = user;
    w->got[w->n_got++] = id;
    return true;
}

static void *generate_some(void *arg)
{
    worker *w = arg;
    nb_session *s = NULL;
    nb_session_options so = {.size = sizeof so, .context = 200};
    nb_generate_options o;
    nb_generate_options_default(&o, w->m);
    o.sampling.temperature = 0.9f;
    o.sampling.seed = 11;
    o.max_tokens = 40;
    o.ignore_eos = true;
    o.on_token = take_id;
    o.user = w;
    w->status = nb_session_new(&s, w->m, &so, NULL);
    if (w->status == NB_OK) w->status = nb_generate(s, w->ids, (size_t)w->n, &o, NULL, NULL);
    nb_session_bytes(s);
    nb_session_free(s);
    return NULL;
}

static void two_threads(void **state)
{
    (void)state;
    for (int i = 0; i < n_models; i++) {
        int32_t a[100], b[100];
        make_ids(a, 100, vocab_of(models[i]), 12);
        make_ids(b, 100, vocab_of(models[i]), 13);
        worker alone[2] = {{.m = models[i], .ids = a, .n = 100}, {.m = models[i], .ids = b, .n = 37}}, both[2];
        memcpy(both, alone, sizeof both);
        for (int k = 0; k < 2; k++) generate_some(&alone[k]);
        pthread_t th[2];
        for (int k = 0; k < 2; k++) assert_int_equal(pthread_create(&th[k], NULL, generate_some, &both[k]), 0);
        for (int k = 0; k < 2; k++) pthread_join(th[k], NULL);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(both[k].status, NB_OK);
            assert_int_equal(both[k].n_got, 40);
            assert_memory_equal(both[k].got, alone[k].got, sizeof alone[k].got);
        }
    }
}

static void logits_stay_until_their_session_is_named(void **state)
{
    (void)state;
    nb_model *m = models[0];
    int32_t a[100], vocab = vocab_of(m);
    make_ids(a, 100, vocab, 14);
    nb_session *s = session(m, 128), *t = session(m, 128);
    must_feed(s, a, 80, 64);
    const float *first = nb_logits(s, 0), *last = nb_logits(s, 63);
    float *x = expected(m, a, 17), *y = expected(m, a, 80);
    assert_null(nb_logits(s, 64));
    assert_null(nb_logits(s, -1));
    must_feed(t, a, 70, 64); /* another session's call */
    assert_memory_equal(first, x, (size_t)vocab * sizeof(float));
    assert_memory_equal(last, y, (size_t)vocab * sizeof(float));
    int32_t id = -1;
    nb_sampling greedy = {.size = sizeof greedy};
    assert_int_equal(nb_sample(s, 0, &greedy, &id, NULL), NB_OK);
    assert_int_equal(id, nb_argmax(x, vocab));
    assert_int_equal(nb_sample(s, -1, &greedy, &id, NULL), NB_OK);
    assert_int_equal(id, nb_argmax(y, vocab));
    must_feed(s, a, 1, 0);
    assert_null(nb_logits(s, 0));
    assert_int_equal(nb_sample(s, -1, &greedy, &id, NULL), NB_E_USAGE);
    free(x), free(y);
    nb_session_free(s), nb_session_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_sessions_in_one_call),
        cmocka_unit_test(one_failing_item_leaves_the_others),
        cmocka_unit_test(a_fork_goes_its_own_way),
        cmocka_unit_test(truncation_always_succeeds),
        cmocka_unit_test(a_bad_number_changes_nothing),
        cmocka_unit_test(cancelling),
        cmocka_unit_test(a_full_context),
        cmocka_unit_test(two_threads),
        cmocka_unit_test(logits_stay_until_their_session_is_named),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
