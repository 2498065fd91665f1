/* Sampling against an independent enumeration in double: a full sort, straight from the definition of
 * specs/runner.md 5.2. */
#include "run/sample.h"
#include "run/stop.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { V = 200 };

static float random_logit(uint64_t i) { return (float)(nb_random(7, i, NB_DRAW_DRAFT) * 12 - 6); }

typedef struct entry {
    double x, p;
    int id;
} entry;

static int by_value(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->x != y->x) return x->x > y->x ? -1 : 1;
    return x->id - y->id;
}

/* Which ids may be drawn, and with what probability; the definition, without any shortcut. */
static void enumerate(const float *logits, int usable, const nb_sampling *o, const int32_t *hist, int n_hist,
                      double *prob)
{
    static float x[V];
    for (int i = 0; i < usable; i++) x[i] = logits[i];
    bool only = false;
    for (size_t i = 0; i < o->n_bias; i++) only |= o->bias[i].bias >= 100;
    for (int i = 0; only && i < usable; i++) {
        bool allowed = false;
        for (size_t k = 0; k < o->n_bias; k++) allowed |= o->bias[k].id == i && o->bias[k].bias >= 100;
        if (!allowed) x[i] = -INFINITY;
    }
    for (size_t i = 0; i < o->n_bias; i++)
        if (o->bias[i].bias < 100)
            x[o->bias[i].id] = o->bias[i].bias <= -100 ? -INFINITY : x[o->bias[i].id] + o->bias[i].bias;
    int window = o->repeat_last_n < 0 || o->repeat_last_n > n_hist ? n_hist : o->repeat_last_n;
    for (int id = 0; id < usable; id++) {
        int c = 0;
        for (int i = n_hist - window; i < n_hist; i++) c += hist[i] == id;
        if (!c) continue;
        x[id] = x[id] < 0 ? x[id] * o->repeat_penalty : x[id] / o->repeat_penalty;
        x[id] -= o->presence_penalty;
        x[id] -= o->frequency_penalty * (float)c;
    }
    static entry e[V];
    for (int i = 0; i < usable; i++) e[i] = (entry){(double)(x[i] / o->temperature), 0, i};
    qsort(e, (size_t)usable, sizeof *e, by_value);
    int n = o->top_k > 0 && o->top_k < usable ? o->top_k : usable;
    double total = 0;
    for (int i = 0; i < n; i++) total += e[i].p = exp(e[i].x - e[0].x);
    double cum = 0;
    int kept = 0;
    for (; kept < n; kept++) {
        if (o->top_p > 0 && o->top_p < 1 && cum >= (double)o->top_p * total) break;
        cum += e[kept].p;
    }
    double left = 0;
    for (int i = 0; i < V; i++) prob[i] = 0;
    for (int i = 0; i < kept; i++)
        if (!(o->min_p > 0) || e[i].p >= (double)o->min_p * e[0].p) left += prob[e[i].id] = e[i].p;
    for (int i = 0; i < V; i++) prob[i] /= left;
}

static void check(const nb_sampling *o, uint64_t salt)
{
    nb_sampler s;
    nb_error err;
    float logits[V];
    int32_t hist[40];
    double prob[V];
    assert_int_equal(nb_sampler_init(&s, V, &err), NB_OK);
    for (int i = 0; i < V; i++) logits[i] = random_logit(salt * 1000 + (uint64_t)i);
    for (int i = 0; i < V; i += 17) logits[i] = 3.0f; /* ties */
    for (int i = 0; i < 40; i++) hist[i] = (int32_t)(random_logit(salt + 77777 + (uint64_t)i) * 10 + 100);
    int usable = V - 9;
    enumerate(logits, usable, o, hist, 40, prob);
    for (uint64_t slot = 0; slot < 200; slot++) {
        int32_t id = -1, again = -1;
        double p = 0, cum = 0, u = nb_random(o->seed, slot, NB_DRAW_TOKEN);
        assert_int_equal(nb_sample_logits(&s, logits, usable, o, hist, 40, slot, &id, &p, &err), NB_OK);
        assert_in_range(id, 0, usable - 1);
        assert_true(prob[id] > 0);
        assert_true(fabs(p - prob[id]) < 1e-9);
        for (int i = 0; i < id; i++) cum += prob[i];
        assert_true(u > cum - 1e-9 && u < cum + prob[id] + 1e-9); /* inverse CDF in ascending id order */
        assert_int_equal(nb_sample_logits(&s, logits, usable, o, hist, 40, slot, &again, NULL, &err), NB_OK);
        assert_int_equal(id, again);
    }
    nb_sampler_free(&s);
}

static void test_against_enumeration(void **state)
{
    (void)state;
    static const nb_logit_bias bias[] = {{3, 2.5f}, {17, -100}, {34, -3}},
                               only[] = {{5, 100}, {34, 100}, {190, 100}, {8, 1}};
    nb_sampling base = {
        .size = sizeof base, .temperature = 0.7f, .top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64, .seed = 11};
    int n = 0;
    for (int k = 0; k < 4; k++)
        for (int p = 0; p < 4; p++)
            for (int m = 0; m < 3; m++)
                for (int pen = 0; pen < 3; pen++)
                    for (int b = 0; b < 3; b++) {
                        nb_sampling o = base;
                        o.top_k = (int[]){0, 1, 7, 60}[k];
                        o.top_p = (float[]){1, 0.3f, 0.9f, 0.999f}[p];
                        o.min_p = (float[]){0, 0.05f, 0.5f}[m];
                        if (pen)
                            o.repeat_penalty = 1.3f, o.repeat_last_n = pen == 1 ? 10 : -1, o.presence_penalty = 0.2f,
                            o.frequency_penalty = 0.1f;
                        if (b == 1) o.bias = bias, o.n_bias = NB_COUNT(bias);
                        if (b == 2) o.bias = only, o.n_bias = NB_COUNT(only);
                        check(&o, (uint64_t)n++);
                    }
    printf("covered: %d option sets, 200 draws each, against a full enumeration\n", n);
}

static void test_greedy_and_errors(void **state)
{
    (void)state;
    nb_sampler s;
    nb_error err;
    float x[8] = {1, 5, 5, 2, 9, 9, 0, 0};
    int32_t id;
    nb_sampling o = {.size = sizeof o, .temperature = 0, .top_p = 1, .repeat_penalty = 1};
    assert_int_equal(nb_sampler_init(&s, 8, &err), NB_OK);
    assert_int_equal(nb_sample_logits(&s, x, 8, &o, NULL, 0, 0, &id, NULL, &err), NB_OK);
    assert_int_equal(id, 4); /* the lowest of two equals */
    assert_int_equal(nb_sample_logits(&s, x, 4, &o, NULL, 0, 0, &id, NULL, &err), NB_OK);
    assert_int_equal(id, 1); /* ids beyond the tokenizer are masked */
    x[2] = NAN;
    assert_int_equal(nb_sample_logits(&s, x, 8, &o, NULL, 0, 0, &id, NULL, &err), NB_E_NUMERIC);
    o.temperature = 1;
    assert_int_equal(nb_sample_logits(&s, x, 8, &o, NULL, 0, 0, &id, NULL, &err), NB_E_NUMERIC);
    assert_int_equal(nb_sample_logits(&s, x, 2, &o, NULL, 0, 0, &id, NULL, &err),
                     NB_OK); /* a NaN beyond the usable ids does no harm */
    const nb_logit_bias ban[] = {{0, -100}, {1, -100}};
    o.bias = ban, o.n_bias = 2;
    assert_int_equal(nb_sample_logits(&s, x, 2, &o, NULL, 0, 0, &id, NULL, &err), NB_E_NUMERIC);
    nb_sampler_free(&s);
}

static void test_random_numbers(void **state)
{
    (void)state;
    double sum = 0;
    for (uint64_t i = 0; i < 100000; i++) {
        double u = nb_random(1, i, NB_DRAW_TOKEN);
        assert_true(u >= 0 && u < 1);
        sum += u;
    }
    assert_true(fabs(sum / 100000 - 0.5) < 0.005);
    assert_true(nb_random(1, 5, NB_DRAW_TOKEN) != nb_random(1, 5, NB_DRAW_ACCEPT));
    assert_true(nb_random(1, 5, NB_DRAW_TOKEN) != nb_random(2, 5, NB_DRAW_TOKEN));
    assert_true(nb_random(1, 5, NB_DRAW_TOKEN) == nb_random(1, 5, NB_DRAW_TOKEN));
}

static void test_log_probability(void **state)
{
    (void)state;
    float x[5] = {1, 2, 3, 4, -50};
    double z = 0;
    for (int i = 0; i < 5; i++) z += exp((double)x[i]);
    for (int i = 0; i < 5; i++) assert_true(fabs(nb_log_probability(x, 5, i) - ((double)x[i] - log(z))) < 1e-12);
}

/* Any cutting of a text into pieces prints the same: everything before the stop string that is complete first. */
static void test_stop_strings(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stop[3], *want;
    } cases[] = {
        {"hello world", {"wor"}, "hello "},
        {"aaab", {"aab"}, "a"},
        {"no stop here", {"xyz"}, "no stop here"},
        {"abcabd", {"abd", "cab"}, "ab"},
        {"ends with <|en", {"<|end|>"}, "ends with <|en"},
        {"x<|end|>y", {"<|end|>", "|e"}, "x<"},
        {"", {"a"}, ""},
        {"\xc3\xa9t\xc3\xa9", {"t\xc3"}, "\xc3\xa9"},
    };
    for (size_t c = 0; c < NB_COUNT(cases); c++) {
        size_t n = strlen(cases[c].text), n_stop = 0;
        while (n_stop < 3 && cases[c].stop[n_stop]) n_stop++;
        for (size_t step = 1; step <= n + 1; step++) {
            nb_stop s;
            nb_buf out = {0};
            nb_stop_init(&s, cases[c].stop, n_stop);
            for (size_t at = 0; at < n; at += step) {
                nb_stop_push(&s, cases[c].text + at, n - at < step ? n - at : step, &out);
                assert_true(out.n <= strlen(cases[c].want)); /* no part of a stop string is ever printed */
            }
            nb_stop_flush(&s, &out);
            assert_int_equal(out.n, strlen(cases[c].want));
            assert_memory_equal(out.p ? out.p : "", cases[c].want, out.n);
            nb_stop_free(&s);
            nb_buf_free(&out);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_enumeration), cmocka_unit_test(test_greedy_and_errors),
        cmocka_unit_test(test_random_numbers),      cmocka_unit_test(test_log_probability),
        cmocka_unit_test(test_stop_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
