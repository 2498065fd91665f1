/* The check values of specs/architectures.md 5.3. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nn/rope.h"

#include <math.h>
#include <stdio.h>

static void near(double got, double want)
{
    if (fabs(got - want) > 5e-7 * fabs(want)) fail_msg("got %.10g, want %.10g", got, want);
}

static void yarn_gpt_oss(void **state)
{
    (void)state;
    nb_rope_config r = {
        .type = "yarn", .theta = 150000, .factor = 32, .original_max = 4096, .beta_fast = 32, .beta_slow = 1};
    float f[32];
    double m;
    nb_error err;
    assert_int_equal(nb_rope_pairs(&r, 64), 32);
    assert_int_equal(nb_rope_table(&r, 64, 131072, f, &m, &err), NB_OK);
    static const struct {
        int i;
        double f;
    } exact[] = {{7, 0.0737445682},   {8, 0.0508132748},   {9, 0.0317056962},  {12, 0.00679495949},
                 {16, 4.56483919e-4}, {17, 1.29318701e-4}, {31, 3.02351143e-7}};
    for (size_t i = 0; i < NB_COUNT(exact); i++) near(f[exact[i].i], exact[i].f);
    near(m, 1.34657359);
    r.truncate = true;
    assert_int_equal(nb_rope_table(&r, 64, 131072, f, &m, &err), NB_OK);
    static const struct {
        int i;
        double f;
    } cut[] = {{9, 0.0316207523}, {12, 0.00701571391}, {16, 5.80947502e-4}, {17, 2.27947796e-4}};
    for (size_t i = 0; i < NB_COUNT(cut); i++) near(f[cut[i].i], cut[i].f);
}

static void llama3(void **state)
{
    (void)state;
    nb_rope_config r = {.type = "llama3",
                        .theta = 500000,
                        .factor = 32,
                        .low_freq_factor = 1,
                        .high_freq_factor = 4,
                        .original_max = 8192};
    float f[32];
    double m;
    nb_error err;
    assert_int_equal(nb_rope_table(&r, 64, 131072, f, &m, &err), NB_OK);
    static const struct {
        int i;
        double f;
    } want[] = {{14, 0.00321144599}, {15, 0.00129054793}, {16, 4.29556797e-4}, {17, 9.7082878e-5}, {18, 1.94616382e-5}};
    for (size_t i = 0; i < NB_COUNT(want); i++) near(f[want[i].i], want[i].f);
    assert_true(m == 1);
    r.high_freq_factor = 1;
    assert_int_equal(nb_rope_table(&r, 64, 131072, f, &m, &err), NB_E_INVALID);
}

static void proportional(void **state)
{
    (void)state;
    nb_rope_config r = {.type = "proportional", .theta = 1e6, .partial = 0.25};
    float f[256];
    double m;
    nb_error err;
    assert_int_equal(nb_rope_pairs(&r, 512), 256);
    assert_int_equal(nb_rope_table(&r, 512, 4096, f, &m, &err), NB_OK);
    near(f[1], 0.947463526);
    near(f[63], 0.0333762469);
    for (int i = 64; i < 256; i++) assert_true(f[i] == 0);
}

static void plain_kinds(void **state)
{
    (void)state;
    nb_rope_config r = {.type = "default", .theta = 10000, .partial = 0.5};
    float f[32], g[32];
    double m;
    nb_error err;
    assert_int_equal(nb_rope_pairs(&r, 64), 16);
    assert_int_equal(nb_rope_table(&r, 64, 1, f, &m, &err), NB_OK);
    near(f[0], 1);
    near(f[8], 0.01); /* exponents use the rotated width, 32 */
    r.partial = 1;
    strcpy(r.type, "linear");
    r.factor = 8;
    assert_int_equal(nb_rope_table(&r, 64, 1, f, &m, &err), NB_OK);
    near(f[0], 0.125);
    strcpy(r.type, "dynamic");
    r.factor = 2;
    r.max_position = 2048;
    assert_int_equal(nb_rope_table(&r, 64, 2048, f, &m, &err), NB_OK);
    near(f[16], 0.01);
    assert_int_equal(nb_rope_table(&r, 64, 4096, g, &m, &err), NB_OK);
    near(g[16], 1 / sqrt(10000 * pow(3, 64 / 62.0)));
    r.theta = 0;
    assert_int_equal(nb_rope_table(&r, 64, 1, f, &m, &err), NB_E_INVALID);
}

static void longrope(void **state)
{
    (void)state;
    double lo[2] = {1, 2}, hi[2] = {4, 8};
    nb_rope_config r = {.type = "longrope",
                        .theta = 100,
                        .original_max = 64,
                        .max_position = 256,
                        .short_factor = lo,
                        .long_factor = hi,
                        .n_factor = 2};
    float f[2];
    double m;
    nb_error err;
    assert_int_equal(nb_rope_table(&r, 4, 64, f, &m, &err), NB_OK);
    near(f[1], 0.05);
    near(m, sqrt(1 + log(4) / log(64)));
    assert_int_equal(nb_rope_table(&r, 4, 65, f, &m, &err), NB_OK);
    near(f[0], 0.25);
    near(f[1], 0.0125);
    assert_int_equal(nb_rope_table(&r, 8, 65, f, &m, &err), NB_E_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(yarn_gpt_oss), cmocka_unit_test(llama3),
                                       cmocka_unit_test(proportional), cmocka_unit_test(plain_kinds),
                                       cmocka_unit_test(longrope)};
    printf(
        "rope tables: yarn (exact and truncated), llama3, proportional, default, partial, linear, dynamic, longrope\n");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
