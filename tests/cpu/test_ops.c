/* The elementary functions against double, and every element-wise kernel of every tier against plain C by memcmp, with
 * odd sizes, wild values and guard bytes. */
#include "cpu/util.h"

#include "cpu/math.h"

static const int64_t sizes[] = {1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 100, 255, 576, 1000};

/* ---- against double ---- */

typedef struct function {
    const char *name;
    float (*f)(float);
    double (*ref)(double);
    double from, to, rel, abs; /* |error| <= rel |value| + abs */
} function;

static double ref_silu(double x) { return x / (1 + exp(-x)); }
static double ref_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double ref_gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
static double ref_gelu_erf(double x) { return 0.5 * x * (1 + erf(x / sqrt(2))); }

static void test_functions(void **state)
{
    UNUSED_STATE;
    static const function all[] = {
        {"exp", nb_exp, exp, -87.2, 88.6, 1.5e-7, 0},
        {"sigmoid", nb_sigmoid, ref_sigmoid, -80, 80, 3e-7, 0},
        {"silu", nb_silu, ref_silu, -80, 80, 3e-7, 0},
        {"tanh", nb_tanh, tanh, -20, 20, 2e-7, 0},
        {"tanh near 0", nb_tanh, tanh, -0.7, 0.7, 2e-7, 0},
        {"gelu_tanh", nb_gelu_tanh, ref_gelu_tanh, -6, 20, 2e-6, 1e-9},
        {"erf", nb_erf, erf, -6, 6, 2e-7, 1e-9},
        {"gelu_erf", nb_gelu_erf, ref_gelu_erf, -8, 20, 3e-7, 8e-7},
        {"log1p", nb_log1p, log1p, 0, 1, 2e-7, 0},
    };
    uint32_t saved = nb_fpu_enter();
    for (size_t i = 0; i < NB_COUNT(all); i++) {
        const function *f = &all[i];
        double worst = 0, at = 0;
        for (int k = 0; k <= 200000; k++) {
            float x = (float)(f->from + (f->to - f->from) * k / 200000);
            double want = f->ref((double)x), got = (double)f->f(x);
            double e = fabs(got - want) / (f->rel * fabs(want) + f->abs + 1e-37);
            if (e > worst) worst = e, at = (double)x;
        }
        print_message("%-12s error at most %.2f of its bound, at %g\n", f->name, worst, at);
        assert_true(worst <= 1.0);
    }
    nb_fpu_leave(saved);
}

static void test_exact_points(void **state)
{
    UNUSED_STATE;
    uint32_t saved = nb_fpu_enter();
    assert_true(nb_exp(0.0f) == 1.0f && nb_exp(-0.0f) == 1.0f);
    assert_int_equal(nb_bits_f32(nb_exp(-__builtin_inff())), 0);
    assert_int_equal(nb_bits_f32(nb_exp(-1000.0f)), 0);
    assert_true(nb_exp(1000.0f) == __builtin_inff() && nb_exp(__builtin_inff()) == __builtin_inff());
    assert_true(isnan(nb_exp(__builtin_nanf(""))) && isnan(nb_tanh(__builtin_nanf(""))) &&
                isnan(nb_erf(__builtin_nanf(""))) && isnan(nb_silu(__builtin_nanf(""))));
    assert_true(nb_tanh(50.0f) == 1.0f && nb_tanh(-50.0f) == -1.0f && nb_tanh(0.0f) == 0.0f);
    assert_true(nb_erf(9.0f) == 1.0f && nb_erf(-9.0f) == -1.0f && nb_erf(0.0f) == 0.0f && nb_log1p(0.0f) == 0.0f);
    assert_true(nb_silu(0.0f) == 0.0f && nb_silu(-200.0f) == 0.0f && nb_gelu_tanh(0.0f) == 0.0f);
    nb_fpu_leave(saved);
}

static void test_norm_against_double(void **state)
{
    UNUSED_STATE;
    nb_kernels k;
    plain_table(&k);
    for (size_t s = 0; s < NB_COUNT(sizes); s++) {
        int64_t n = sizes[s];
        float x[1000], w[1000], y[1000];
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            x[i] = 4 * rnd_unit(), w[i] = 1 + rnd_unit(), sum += (double)x[i] * (double)x[i];
        k.rms_norm(x, w, n, 1e-5f, y);
        for (int64_t i = 0; i < n; i++) {
            double want = (double)x[i] / sqrt(sum / (double)n + 1e-5) * (double)w[i];
            assert_true(fabs((double)y[i] - want) <= 1e-6 * fabs(want) + 1e-9);
        }
    }
}

/* ---- tiers ---- */

typedef struct fixture {
    nb_kernels want, *got;
    const char *name;
    int64_t n;
    float *a, *b, *c; /* inputs of n values (a is refilled) */
} fixture;

static void same(const fixture *f, const char *what, const void *want, const void *got, int64_t n)
{
    int64_t i = differ(want, got, n);
    if (i >= 0)
        fail_msg("%s: %s, n %lld: value %lld is %a, plain C gives %a", f->name, what, (long long)f->n, (long long)i,
                 (double)((const float *)got)[i], (double)((const float *)want)[i]);
}

static void check_round(const fixture *f)
{
    int64_t n = f->n, pad = NB_ALIGN_UP(n, 32);
    guarded g1, g2;
    for (int what = 0; what < 4; what++) {
        size_t elem = what & 1 ? 4 : 2;
        void *y1 = guarded_new(&g1, (size_t)pad * elem), *y2 = guarded_new(&g2, (size_t)pad * elem);
        bool b1, b2;
        if (what == 0)
            b1 = f->want.round_row(f->a, n, pad, y1), b2 = f->got->round_row(f->a, n, pad, y2);
        else if (what == 1)
            b1 = f->want.round_row_f32(f->a, n, pad, y1), b2 = f->got->round_row_f32(f->a, n, pad, y2);
        else
            b1 = f->want.round_kv[what - 2](f->a, n, pad, y1), b2 = f->got->round_kv[what - 2](f->a, n, pad, y2);
        assert_int_equal(b1, b2);
        assert_memory_equal(y1, y2, (size_t)pad * elem);
        for (int64_t i = n; i < pad; i++) assert_int_equal(elem == 2 ? ((uint16_t *)y1)[i] : ((uint32_t *)y1)[i], 0);
        guarded_free(&g1);
        guarded_free(&g2);
    }
}

static void check_unary(const fixture *f)
{
    int64_t n = f->n;
    guarded g1, g2;
    float *y1 = guarded_new(&g1, (size_t)n * 4), *y2 = guarded_new(&g2, (size_t)n * 4);
    for (int w = 0; w < 2; w++) {
        f->want.rms_norm(f->a, w ? f->b : NULL, n, 1e-6f, y1), f->got->rms_norm(f->a, w ? f->b : NULL, n, 1e-6f, y2);
        same(f, "rms_norm", y1, y2, n);
        f->want.rms_norm(f->c, w ? f->b : NULL, n, 1e-6f, y1), f->got->rms_norm(f->c, w ? f->b : NULL, n, 1e-6f, y2);
        same(f, "rms_norm, tame", y1, y2, n);
    }
    for (int act = NB_ACT_SILU; act <= NB_ACT_SIGMOID; act++) {
        f->want.glu(f->a, f->b, n, (nb_act)act, y1), f->got->glu(f->a, f->b, n, (nb_act)act, y2);
        same(f, "glu", y1, y2, n);
        f->want.glu(f->a, NULL, n, (nb_act)act, y1), f->got->glu(f->a, NULL, n, (nb_act)act, y2);
        same(f, "act", y1, y2, n);
    }
    f->want.softcap(f->a, n, 30.0f, y1), f->got->softcap(f->a, n, 30.0f, y2);
    same(f, "softcap", y1, y2, n);
    f->want.add(f->a, f->b, n, y1), f->got->add(f->a, f->b, n, y2);
    same(f, "add", y1, y2, n);
    f->want.scale(f->a, n, 0.3f, y1), f->got->scale(f->a, n, 0.3f, y2);
    same(f, "scale", y1, y2, n);
    f->want.attn_divide(f->a, n, 3.7f, y1), f->got->attn_divide(f->a, n, 3.7f, y2);
    same(f, "divide", y1, y2, n);
    f->want.widen((const uint16_t *)(const void *)f->a, n, y1),
        f->got->widen((const uint16_t *)(const void *)f->a, n, y2);
    same(f, "widen", y1, y2, n);
    guarded_free(&g1);
    guarded_free(&g2);
}

static void check_in_place(const fixture *f)
{
    int64_t n = f->n;
    guarded g1, g2;
    float *y1 = guarded_new(&g1, (size_t)n * 4), *y2 = guarded_new(&g2, (size_t)n * 4);
#define BOTH(src) (memcpy(y1, src, (size_t)n * 4), memcpy(y2, src, (size_t)n * 4))
    BOTH(f->a), f->want.softmax(y1, n), f->got->softmax(y2, n);
    same(f, "softmax, wild", y1, y2, n);
    BOTH(f->c), f->want.softmax(y1, n), f->got->softmax(y2, n);
    same(f, "softmax", y1, y2, n);
    BOTH(f->a), f->want.fma_row(0.7f, f->b, n, y1), f->got->fma_row(0.7f, f->b, n, y2);
    same(f, "fma_row", y1, y2, n);
    BOTH(f->a), f->want.attn_merge(y1, f->b, n, 0.9f, 0.3f), f->got->attn_merge(y2, f->b, n, 0.9f, 0.3f);
    same(f, "merge", y1, y2, n);
    for (int inter = 0; inter < 2 && n >= 2; inter++) {
        BOTH(f->a), f->want.rotate(y1, n / 2, f->b, f->c, inter), f->got->rotate(y2, n / 2, f->b, f->c, inter);
        same(f, inter ? "rotate pairs" : "rotate halves", y1, y2, n);
    }
#undef BOTH
    guarded_free(&g1);
    guarded_free(&g2);
}

static void check_attn_softmax(const fixture *f)
{
    for (int k = 0; k < 40; k++) {
        float s1[256], s2[256], m1, m2, l1, l2;
        int32_t lo = rnd_below(256), hi = lo + 1 + rnd_below(256 - lo), from = lo / 32 * 32, to = NB_ALIGN_UP(hi, 32);
        if (k % 3 == 0) from = 0, to = 256;
        for (int i = 0; i < 256; i++) s1[i] = s2[i] = k < 30 ? 40 * rnd_unit() : rnd_wild();
        float cap = k & 1 ? 20.0f : 0.0f;
        f->want.attn_softmax(s1, from, to, lo, hi, 0.125f, cap, k & 2, &m1, &l1);
        f->got->attn_softmax(s2, from, to, lo, hi, 0.125f, cap, k & 2, &m2, &l2);
        same(f, "attn_softmax", s1, s2, 256);
        same(f, "attn_softmax m", &m1, &m2, 1);
        same(f, "attn_softmax l", &l1, &l2, 1);
    }
}

static void test_tiers(void **state)
{
    UNUSED_STATE;
    nb_kernels k[NB_TIER_COUNT + 1];
    const char *names[NB_TIER_COUNT + 1];
    int n = tables(k, names);
    uint32_t saved = nb_fpu_enter();
    for (int t = 0; t < n; t++) {
        for (size_t s = 0; s < NB_COUNT(sizes); s++) {
            for (int round = 0; round < 5; round++) {
                float a[1000], b[1000], c[1000];
                for (int i = 0; i < 1000; i++)
                    a[i] = round == 4 ? rnd_unit() * 5 : rnd_wild(), b[i] = round & 1 ? rnd_wild() : rnd_unit(),
                    c[i] = rnd_unit() * 8;
                fixture f = {.got = &k[t], .name = names[t], .n = sizes[s], .a = a, .b = b, .c = c};
                plain_table(&f.want);
                check_round(&f);
                check_unary(&f);
                check_in_place(&f);
                if (s == 0) check_attn_softmax(&f);
            }
        }
        print_message("%s equals plain C\n", names[t]);
    }
    nb_fpu_leave(saved);
}

static void test_rounding(void **state)
{
    UNUSED_STATE;
    nb_kernels k;
    plain_table(&k);
    uint16_t y[32];
    const float in[] = {1.0f, 0x1p-100f, 0x1.fffffep-101f, 0x1p100f, -0x1p100f};
    assert_false(k.round_row(in, 5, 32, y));
    assert_int_equal(y[0], 0x3f80);
    assert_int_equal(y[1], nb_bits_f32(0x1p-100f) >> 16);
    assert_int_equal(y[2], 0);
    assert_int_equal(y[3], nb_bits_f32(0x1p100f) >> 16);
    const float bad[] = {0x1.000002p100f, __builtin_inff(), __builtin_nanf(""), 1.0f};
    for (int i = 0; i < 3; i++) {
        assert_true(k.round_row(bad + i, 1, 32, y));
        assert_int_equal(y[0], 0);
    }
    const float tie[] = {nb_f32_bits(0x3f808000u), nb_f32_bits(0x3f818000u), nb_f32_bits(0x3f808001u)};
    assert_false(k.round_row(tie, 3, 3, y));
    assert_int_equal(y[0], 0x3f80);
    assert_int_equal(y[1], 0x3f82);
    assert_int_equal(y[2], 0x3f81);
}

static void test_tier_names(void **state)
{
    UNUSED_STATE;
    for (int t = 0; t < NB_TIER_COUNT; t++) {
        nb_tier back;
        assert_true(nb_tier_parse(&back, nb_tier_name((nb_tier)t)) && back == (nb_tier)t);
    }
    nb_tier t;
    assert_false(nb_tier_parse(&t, "sse"));
    assert_true(nb_tier_available(NB_TIER_C) && nb_tier_available(nb_tier_best()));
    print_message("best tier here: %s\n", nb_tier_name(nb_tier_best()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_exact_points),
        cmocka_unit_test(test_norm_against_double),
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_tier_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
