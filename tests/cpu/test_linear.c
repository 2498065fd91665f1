/* Products: plain C against double precision, every tier against plain C bit by bit, for every format, odd shapes, odd row counts, both modes, any split of
 * the tiles. Weights and x lie between unreadable pages, results between canaries.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/linear.h"

#include <immintrin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/* ---- random numbers and guarded memory ---- */

static uint64_t seed = 1;
static uint32_t rnd(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 32);
}
static float uniform(void) { return (float)(int32_t)rnd() * 0x1p-31f; }

/* `bytes` bytes whose end touches an unreadable page and whose start lies in the page after another one. */
typedef struct guarded { uint8_t *map, *p; size_t size; } guarded;
static guarded guard_alloc(size_t bytes, bool at_start)
{
    size_t inner = NB_ALIGN_UP(bytes + !bytes, 4096);
    guarded g = {.size = inner + 8192};
    g.map = mmap(NULL, g.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    mprotect(g.map, 4096, PROT_NONE);
    mprotect(g.map + 4096 + inner, 4096, PROT_NONE);
    g.p = g.map + 4096 + (at_start ? 0 : inner - bytes);
    return g;
}
static void guard_free(guarded *g) { munmap(g->map, g->size); }

/* ---- a random matrix ---- */

enum { NORMAL, WORST, ZERO, MODES };

typedef struct matrix {
    nb_qtype type;
    int64_t n, k, kp;
    nb_parts parts;
    guarded tiles;
    size_t tile_bytes;
    float *row_scale, *block_scale, multiplier;
} matrix;

static uint16_t random_half(int mode, bool f16, float range)
{
    float x = uniform() * range;
    if (mode == WORST) x = uniform() * (f16 ? 60000.0f : rnd() % 2 ? 0x1p90f : 0x1p-90f);
    if (mode == ZERO || rnd() % 16 == 0) x = rnd() % 2 ? 0.0f : -0.0f;
    return f16 ? nb_f16_encode(x) : nb_bf16_encode(x);
}

static void random_codes(const matrix *m, int mode, uint8_t *p, size_t bytes)
{
    nb_format f = (nb_format)m->type.format;
    for (size_t i = 0; i < bytes; i++) {
        p[i] = mode == ZERO ? 0 : (uint8_t)rnd();
        bool e4m3 = f == NB_MXFP8 || f == NB_FP8_TENSOR || f == NB_FP8_CHANNEL || f == NB_FP8_BLOCK;
        if (e4m3 && (p[i] & 0x7f) == 0x7f) p[i] &= 0x8f;
        if (e4m3 && mode == NORMAL && rnd() % 4 == 0) p[i] &= 0x87; /* subnormals */
    }
    for (size_t i = 0; i < bytes / 2 && (f == NB_F16 || f == NB_BF16); i++) nb_store_u16(p + 2 * i, random_half(mode, f == NB_F16, 1));
    for (size_t i = 0; i < bytes / 4 && f == NB_F32; i++) nb_store_u32(p + 4 * i, mode == ZERO ? 0 : nb_bits_f32(uniform() * (mode == WORST && rnd() % 2 ? 0x1p100f : 1)));
}

static void random_scales(const matrix *m, int mode, uint8_t *p, size_t bytes, bool bias)
{
    float range = bias ? 1.0f : 0.1f;
    switch (m->type.scale_dtype) {
    case NB_DT_F8_E4M3:
        for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(rnd() % 127);
        break;
    case NB_DT_F8_E8M0:
        for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(mode == WORST ? 16 + rnd() % 225 : mode == ZERO ? 127 : 120 + rnd() % 14);
        break;
    case NB_DT_F32:
        for (size_t i = 0; i < bytes / 4; i++) nb_store_u32(p + 4 * i, nb_bits_f32(mode == ZERO ? 0 : uniform() * (mode == WORST && rnd() % 2 ? 0x1p80f : range)));
        break;
    default:
        for (size_t i = 0; i < bytes / 2; i++) nb_store_u16(p + 2 * i, random_half(mode, m->type.scale_dtype == NB_DT_F16, range));
    }
}

static matrix matrix_new(nb_qtype type, int64_t n, int64_t k, int mode, bool at_start)
{
    matrix m = {.type = type, .n = n, .k = k, .multiplier = 1};
    size_t c = 0, s = 0, b = 0;
    uint64_t bytes = 0;
    assert_true(nb_padded_k(type, k, &m.kp) && nb_parts_row_bytes(type, k, &c, &s, &b) && nb_rows16_tile_bytes(type, k, &m.tile_bytes) && nb_rows16_bytes(type, n, k, &bytes));
    m.parts = (nb_parts){malloc(c * (size_t)n), c, s ? malloc(s * (size_t)n) : NULL, s, b ? malloc(b * (size_t)n) : NULL, b};
    random_codes(&m, mode, m.parts.codes, c * (size_t)n);
    random_scales(&m, mode, m.parts.scales, s * (size_t)n, false);
    random_scales(&m, mode, m.parts.biases, b * (size_t)n, true);
    m.tiles = guard_alloc(bytes, at_start);
    nb_rows16_pack(type, &m.parts, n, k, m.tiles.p);
    if (type.format == NB_NVFP4 || type.format == NB_FP8_TENSOR) m.multiplier = 0.37f;
    size_t blocks = (size_t)(n + 127) / 128 * (size_t)((k + 127) / 128);
    m.row_scale = type.format == NB_FP8_CHANNEL ? malloc((size_t)n * 4) : NULL;
    m.block_scale = type.format == NB_FP8_BLOCK ? malloc(blocks * 4) : NULL;
    for (int64_t i = 0; m.row_scale && i < n; i++) m.row_scale[i] = uniform();
    for (size_t i = 0; m.block_scale && i < blocks; i++) m.block_scale[i] = uniform();
    return m;
}

static void matrix_free(matrix *m)
{
    free(m->parts.codes), free(m->parts.scales), free(m->parts.biases), free(m->row_scale), free(m->block_scale);
    guard_free(&m->tiles);
}

/* ---- one case: x, plain result, tiers ---- */

typedef struct kase {
    matrix m;
    int32_t rows;
    bool f32, extras;
    guarded x;
    float *bias, *residual, *plain;
} kase;

static float x_at(const kase *c, int64_t i, int64_t k)
{
    size_t at = (size_t)(i * c->m.kp + k);
    return c->f32 ? ((float *)(void *)c->x.p)[at] : nb_bf16_decode(((uint16_t *)(void *)c->x.p)[at]);
}

static float random_x(int mode)
{
    if (mode == ZERO) return rnd() % 2 ? 0.0f : -0.0f;
    if (mode == WORST) return uniform() * (rnd() % 3 == 0 ? 0x1p99f : rnd() % 2 ? 0x1p-70f : 1.0f);
    return rnd() % 16 ? uniform() * 4 : 0.0f;
}

static kase kase_new(nb_qtype type, int64_t n, int64_t k, int32_t rows, bool f32, int mode)
{
    kase c = {.m = matrix_new(type, n, k, mode, rnd() % 2), .rows = rows, .f32 = f32, .extras = rnd() % 2};
    c.x = guard_alloc((size_t)rows * (size_t)c.m.kp * (f32 ? 4 : 2), false);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < c.m.kp; j++) {
            float v = j < k ? random_x(mode) : 0;
            size_t at = (size_t)(i * c.m.kp + j);
            if (f32) ((float *)(void *)c.x.p)[at] = v;
            else ((uint16_t *)(void *)c.x.p)[at] = nb_bf16_encode(v);
        }
    c.bias = malloc((size_t)n * 4);
    c.residual = malloc((size_t)rows * (size_t)n * 4);
    c.plain = malloc((size_t)rows * (size_t)n * 4);
    for (int64_t i = 0; i < n; i++) c.bias[i] = uniform();
    for (int64_t i = 0; i < rows * n; i++) c.residual[i] = uniform();
    return c;
}

static void kase_free(kase *c)
{
    free(c->bias), free(c->residual), free(c->plain);
    guard_free(&c->x);
    matrix_free(&c->m);
}

enum { CANARY = 0x7fabcdef, PAD = 5, STEPS_WHOLE = 0 };

/* Runs a kernel over pieces of `step` tiles (0: all at once) and checks the canaries; out is [rows][n]. */
static void run_kernel(const kase *c, nb_linear_fn *fn, size_t scratch_bytes, int64_t step, float *out)
{
    const matrix *m = &c->m;
    size_t stride = (size_t)m->n + PAD, total = (size_t)c->rows * stride + PAD;
    uint32_t *y = malloc(total * 4);
    for (size_t i = 0; i < total; i++) y[i] = CANARY;
    guarded scratch = guard_alloc(NB_ALIGN_UP(scratch_bytes, 4096), false);
    memset(scratch.p, 0xee, NB_ALIGN_UP(scratch_bytes, 4096));
    nb_linear_job j = {.data = m->tiles.p, .type = m->type, .n = m->n, .k = m->k, .tile_bytes = m->tile_bytes, .x = c->x.p, .x_stride = (size_t)m->kp * (c->f32 ? 4 : 2),
        .rows = c->rows, .y = (float *)(void *)y + PAD, .y_stride = stride, .multiplier = m->multiplier, .row_scale = m->row_scale, .block_scale = m->block_scale, .f32 = c->f32};
    if (c->extras) {
        j.bias = c->bias;
        j.residual = c->residual;
        j.residual_stride = (size_t)m->n;
    }
    int64_t tiles = (m->n + 15) / 16;
    for (int64_t t = 0; t < tiles; t += step ? step : tiles) fn(&j, t, step && t + step < tiles ? t + step : tiles, scratch.p);
    for (size_t i = 0; i < total; i++) {
        size_t at = i - PAD;
        if (i >= PAD && at % stride < (size_t)m->n) continue;
        if (y[i] != CANARY) fail_msg("a value outside the result was written (%zu)", i);
    }
    for (int64_t i = 0; i < c->rows; i++) memcpy(out + i * m->n, y + PAD + (size_t)i * stride, (size_t)m->n * 4);
    guard_free(&scratch);
    free(y);
}

static bool same(const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (nb_bits_f32(a[i]) != nb_bits_f32(b[i]) && !(a[i] != a[i] && b[i] != b[i])) return false;
    return true;
}

/* ---- double precision ---- */

static double factor_at(const uint8_t *p, uint8_t dtype, int64_t g)
{
    if (dtype == NB_DT_F32) return (double)nb_f32_bits(nb_load_u32(p + 4 * g));
    return (double)(dtype == NB_DT_F16 ? nb_f16_decode(nb_load_u16(p + 2 * g)) : nb_bf16_decode(nb_load_u16(p + 2 * g)));
}

/* y in double, and in *bound the most that fp32 in tile order may be off. */
static double reference(const kase *c, const double *w, int64_t i, int64_t r, double *bound)
{
    const matrix *m = &c->m;
    double y = 0, size = 0, m_row = m->row_scale ? (double)m->row_scale[r] : 1;
    for (int64_t k = 0; k < m->k; k++) {
        double f = m->block_scale ? (double)m->block_scale[r / 128 * ((m->k + 127) / 128) + k / 128] : 1, x = (double)x_at(c, i, k);
        y += w[k] * f * x;
        double z = nb_is_affine((nb_format)m->type.format) ? fabs(factor_at(m->parts.biases + (size_t)r * m->parts.bias_stride, m->type.scale_dtype, k / m->type.group)) : 0;
        size += (fabs(w[k] * f) + 2 * z) * fabs(x);
    }
    y *= m_row, size *= fabs(m_row);
    if (c->extras) {
        y += (double)c->bias[r] + (double)c->residual[i * m->n + r];
        size += fabs((double)c->bias[r]) + fabs((double)c->residual[i * m->n + r]);
    }
    *bound = size * (double)(16 + 8 + m->kp / 16) * 0x1p-24 + 1e-30;
    return y;
}

static void check_double(const kase *c, double *worst)
{
    const matrix *m = &c->m;
    double *w = malloc((size_t)m->k * sizeof *w);
    for (int64_t r = 0; r < m->n; r++) {
        nb_parts one = m->parts;
        one.codes += (size_t)r * one.code_stride;
        if (one.scales) one.scales += (size_t)r * one.scale_stride;
        if (one.biases) one.biases += (size_t)r * one.bias_stride;
        nb_dequantize_rows_f64(m->type, &one, 1, m->k, m->multiplier, w);
        for (int64_t i = 0; i < c->rows; i++) {
            double bound, y = reference(c, w, i, r, &bound), off = fabs((double)c->plain[i * m->n + r] - y);
            if (!(off <= bound)) fail_msg("row %d column %d: %g instead of %g, bound %g", (int)i, (int)r, (double)c->plain[i * m->n + r], y, bound);
            if (off / bound > *worst) *worst = off / bound;
        }
    }
    free(w);
}

/* ---- the sweep ---- */

typedef struct tier { const char *name; nb_kernels k; } tier;
static tier tiers[4];
static int n_tiers;

static void find_tiers(void)
{
    static const struct { const char *name, *need[4]; void (*add)(nb_kernels *); } list[] = {
        {"avx2", {"avx2", "fma", "bmi2"}, nb_linear_avx2},
        {"avx512", {"avx512f", "avx512bw", "avx512vl", "avx512vbmi"}, nb_linear_avx512},
    };
    nb_linear_plain(&tiers[0].k);
    tiers[0].name = "c";
    n_tiers = 1;
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")) {
        tiers[n_tiers] = (tier){list[0].name, tiers[0].k};
        list[0].add(&tiers[n_tiers++].k);
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi")) {
        tiers[n_tiers] = (tier){list[1].name, tiers[n_tiers - 1].k};
        list[1].add(&tiers[n_tiers++].k);
    }
}

static long compared, cases;

static void check_case(nb_qtype type, int64_t n, int64_t k, int32_t rows, bool f32, int mode, double *worst)
{
    kase c = kase_new(type, n, k, rows, f32, mode);
    size_t count = (size_t)rows * (size_t)n;
    float *y = malloc(count * 4);
    char name[32];
    nb_qtype_name(type, name);
    run_kernel(&c, tiers[0].k.linear[type.format][f32], tiers[0].k.linear_scratch(k, rows), 0, c.plain);
    if (mode == NORMAL && rows <= 5) check_double(&c, worst);
    for (int t = 0; t < n_tiers; t++)
        for (int64_t step = 0; step <= 3; step += t ? 3 : 1) {
            run_kernel(&c, tiers[t].k.linear[type.format][f32], tiers[t].k.linear_scratch(k, rows), step, y);
            if (!same(y, c.plain, count)) fail_msg("tier %s differs from c: %s, n %d, k %d, rows %d, f32 %d, mode %d, step %d", tiers[t].name, name, (int)n, (int)k, (int)rows, f32, mode, (int)step);
            compared += (long)count;
        }
    cases++;
    free(y);
    kase_free(&c);
}

static const int64_t n_list[] = {1, 7, 15, 16, 17, 33, 255};
static const int32_t row_list[] = {1, 2, 3, 4, 5, 8, 12, 13, 16, 31, 33, 64, 130};

static void check_type(nb_qtype type)
{
    int64_t group = type.format == NB_NVFP4 ? 16 : type.format == NB_FP8_BLOCK ? 128 : type.group;
    int64_t k_list[] = {group, 3 * group, 5 * group, type.format == NB_NVFP4 ? 7 * 16 : 7 * group, type.format == NB_NVFP4 ? 33 * 16 : nb_format_info((nb_format)type.format)->is_float ? 83 : 9 * group};
    double worst = 0;
    long c0 = cases, v0 = compared;
    char name[32];
    nb_qtype_name(type, name);
    for (size_t a = 0; a < NB_COUNT(n_list); a++)
        for (size_t b = 0; b < NB_COUNT(k_list); b++)
            for (size_t i = 0; i < NB_COUNT(row_list); i++) {
                /* large results only with one K, so that the sweep stays short */
                if (n_list[a] * row_list[i] > 2200 && b != i % NB_COUNT(k_list)) continue;
                check_case(type, n_list[a], k_list[b], row_list[i], (a + b + i) % 2, NORMAL, &worst);
                if (row_list[i] <= 13 && n_list[a] <= 33) check_case(type, n_list[a], k_list[b], row_list[i], rnd() % 2, rnd() % 4 ? WORST : ZERO, &worst);
            }
    printf("    %-14s scales %-4s %4ld cases, %8ld results equal over %d tiers; error at most %.2f of the bound\n", name, nb_dtype_name((nb_dtype)type.scale_dtype), cases - c0, compared - v0, n_tiers, worst);
}

static void test_products(void **state)
{
    (void)state;
    for (int f = 0; f < NB_FORMAT_COUNT; f++) {
        nb_qtype q = nb_qtype_default((nb_format)f);
        if (!nb_is_affine((nb_format)f)) {
            check_type(q);
            continue;
        }
        static const uint8_t dtypes[] = {NB_DT_BF16, NB_DT_F16, NB_DT_F32};
        for (uint16_t g = 32; g <= 128; g *= 2)
            for (size_t d = 0; d < NB_COUNT(dtypes); d++) {
                if (f != NB_INT4 && f != NB_INT8 && d != g / 64u) continue;
                check_type((nb_qtype){q.format, dtypes[d], g});
            }
    }
    printf("    tiers:");
    for (int t = 0; t < n_tiers; t++) printf(" %s", tiers[t].name);
    printf("; %ld cases, %ld results compared\n", cases, compared);
}

/* The two builds of plain C. */
static void test_plain_builds(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("fma")) {
        printf("    no FMA here: one build of plain C cannot run\n");
        skip();
    }
    for (int f = 0; f < NB_FORMAT_COUNT; f++)
        for (int mode = 0; mode < MODES; mode++) {
            kase c = kase_new(nb_qtype_default((nb_format)f), 17, 192, 3, mode == NORMAL, mode);
            float y[17 * 3];
            run_kernel(&c, nb_linear_rows_base, tiers[0].k.linear_scratch(192, 3), 0, c.plain);
            run_kernel(&c, nb_linear_rows_fma, tiers[0].k.linear_scratch(192, 3), 0, y);
            assert_true(same(y, c.plain, NB_COUNT(y)));
            kase_free(&c);
        }
}

/* Rows of a batch do not depend on each other's number: 600 rows in one call, and the same rows by ones. */
static void test_row_invariance(void **state)
{
    (void)state;
    enum { ROWS = 530, N = 40, K = 320 };
    for (int t = 1; t < n_tiers; t++)
        for (int f = 0; f < NB_FORMAT_COUNT; f++) {
            nb_qtype q = nb_qtype_default((nb_format)f);
            kase c = kase_new(q, N, q.group == 128 ? 384 : K, ROWS, false, NORMAL);
            float *y = malloc(sizeof(float) * ROWS * N), one[N];
            nb_linear_fn *fn = tiers[t].k.linear[f][0];
            size_t scratch = tiers[t].k.linear_scratch(c.m.k, ROWS);
            run_kernel(&c, fn, scratch, 0, y);
            kase single = c;
            single.rows = 1;
            for (int i = 0; i < ROWS; i += 7) {
                single.x.p = c.x.p + (size_t)i * (size_t)c.m.kp * 2;
                single.residual = c.residual + i * N;
                run_kernel(&single, fn, scratch, 0, one);
                assert_true(same(one, y + i * N, N));
            }
            free(y);
            kase_free(&c);
        }
}

/* gather_row of both layouts against the format room's own dequantisation. */
static void test_gather(void **state)
{
    (void)state;
    long values = 0;
    for (int f = 0; f < NB_FORMAT_COUNT; f++) {
        nb_qtype q = nb_qtype_default((nb_format)f);
        int64_t n = 37, k = q.format == NB_NVFP4 ? 112 : q.group * 3;
        matrix m = matrix_new(q, n, k, NORMAL, false);
        size_t record;
        assert_true(nb_rows1_row_bytes(q, k, &record));
        guarded rows1 = guard_alloc(record * (size_t)n, false);
        nb_rows1_pack(q, &m.parts, n, k, rows1.p);
        float *want = malloc((size_t)(n * k) * 4), *got = malloc((size_t)k * 4);
        nb_dequantize_rows(q, &m.parts, n, k, m.multiplier, want);
        nb_weight w = {.name = "w", .type = q, .n = n, .k = k, .multiplier = m.multiplier, .row_scale = m.row_scale, .block_scale = m.block_scale};
        for (int layout = 0; layout < 2; layout++)
            for (int64_t r = 0; r < n; r++) {
                w.layout = layout ? NB_LAYOUT_ROWS1 : NB_LAYOUT_ROWS16;
                w.data = layout ? rows1.p : m.tiles.p;
                tiers[n_tiers - 1].k.gather_row(&w, r, got);
                for (int64_t i = 0; i < k; i++) {
                    float v = want[r * k + i];
                    if (m.row_scale) v *= m.row_scale[r];
                    if (m.block_scale) v *= m.block_scale[r / 128 * ((k + 127) / 128) + i / 128];
                    if (nb_bits_f32(v) != nb_bits_f32(got[i])) fail_msg("%s layout %d row %d value %d: %g, want %g", nb_format_info((nb_format)f)->name, layout, (int)r, (int)i, (double)got[i], (double)v);
                    values++;
                }
            }
        free(want), free(got);
        guard_free(&rows1);
        matrix_free(&m);
    }
    printf("    %ld gathered values\n", values);
}

static int setup(void **state)
{
    (void)state;
    _mm_setcsr(0x9fc0); /* round to nearest, FTZ, DAZ, exceptions masked */
    find_tiers();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_gather), cmocka_unit_test(test_plain_builds), cmocka_unit_test(test_products), cmocka_unit_test(test_row_invariance)};
    return cmocka_run_group_tests_name("cpu_linear", tests, setup, NULL);
}
