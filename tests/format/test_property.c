/* Properties over random matrices: every format, scale type, group and odd size; each layout packs and unpacks to the
 * same parts; decoded values are those of the definition in double; vector kernels give the bytes of the plain ones;
 * the error tables of section 4. */
#include "support.h"

#include "format/safetensors.h"

typedef void each_qtype_fn(nb_qtype q, void *arg);
static int each_qtype(each_qtype_fn *fn, void *arg)
{
    int n = 0;
    for (int f = 0; f < NB_FORMAT_COUNT; f++) {
        if (nb_format_info((nb_format)f)->scale_kind != NB_SCALE_AFFINE) {
            fn(nb_qtype_default((nb_format)f), arg);
            n++;
            continue;
        }
        const uint8_t types[] = {NB_DT_BF16, NB_DT_F16, NB_DT_F32};
        for (uint16_t group = 32; group <= 128; group *= 2)
            for (int t = 0; t < 3; t++, n++) fn((nb_qtype){(uint8_t)f, types[t], group}, arg);
    }
    return n;
}

static bool any_k(nb_qtype q)
{
    uint8_t kind = nb_format_info((nb_format)q.format)->scale_kind;
    return kind == NB_SCALE_NONE || kind == NB_SCALE_APART;
}

/* Weights as models have them, with zeros, constant groups, outliers and mixed magnitudes strewn in. */
static float *random_weights(rng *r, int64_t n, float sigma)
{
    float *w = malloc((size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++) {
        float x = rng_gauss(r) * sigma;
        switch (rng_int(r, 40)) {
        case 0: x = 0; break;
        case 1: x = -0.0f; break;
        case 2: x *= 30; break;
        case 3: x *= 1e-6f; break;
        case 4: x = sigma; break;
        default: break;
        }
        w[i] = x;
    }
    for (int64_t i = 0; i + 128 <= n; i += 128 * (1 + rng_int(r, 9))) {
        float v = rng_int(r, 2) ? 0 : rng_gauss(r) * sigma;
        for (int j = 0; j < (rng_int(r, 2) ? 128 : 32); j++) w[i + j] = v;
    }
    return w;
}

static float multiplier(nb_qtype q, const float *w, int64_t n)
{
    float a = nb_abs_max(w, (size_t)n);
    return q.format == NB_NVFP4 ? nb_nvfp4_multiplier(a) : q.format == NB_FP8_TENSOR ? a / 448 : 1.0f;
}

static uint8_t *guarded(size_t n)
{
    uint8_t *p = malloc(n + 64);
    memset(p, 0xa5, n + 64);
    return p;
}
static void check_guard(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < 64; i++) assert_int_equal(p[n + i], 0xa5);
}

/* ---- layouts ---- */

/* rows16 by its definition: where each code, scale and bias of a tile must lie (design.md 3). */
static void check_tiles(nb_qtype q, const matrix *m, const uint8_t *packed, int64_t k)
{
    const nb_format_row *f = nb_format_info((nb_format)q.format);
    size_t words = q.group * f->bits / 32u,
           scale = m->s && f->scale_kind != NB_SCALE_APART ? nb_scale_size(q.scale_dtype) : 0, bias = m->b ? scale : 0;
    size_t group_bytes = words * 64 + 16 * (scale + bias);
    int64_t kp, rows = (m->rows + 15) / 16 * 16;
    assert_true(nb_padded_k(q, k, &kp) && kp % 32 == 0 && kp >= k && kp < k + 32);
    static const uint8_t one_bf16[] = {0x80, 0x3f}, one_f16[] = {0, 0x3c}, one_f32[] = {0, 0, 0x80, 0x3f}, zero[4];
    const uint8_t one_byte = q.scale_dtype == NB_DT_F8_E4M3 ? 0x38 : 127;
    const uint8_t *one = scale == 1                   ? &one_byte
                         : scale == 4                 ? one_f32
                         : q.scale_dtype == NB_DT_F16 ? one_f16
                                                      : one_bf16;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < kp / q.group; g++) {
            const uint8_t *tile = packed + ((size_t)(r / 16) * (size_t)(kp / q.group) + (size_t)g) * group_bytes;
            size_t lane = (size_t)(r % 16), row = (size_t)r;
            bool real = r < m->rows;
            for (size_t b = 0; b < words * 4; b++) {
                size_t at = (size_t)g * words * 4 + b;
                uint8_t want = real && at < m->c ? m->p.codes[row * m->p.code_stride + at] : 0;
                assert_int_equal(tile[b / 4 * 64 + lane * 4 + b % 4], want);
            }
            bool scaled = real && (g + 1) * q.group <= k;
            const uint8_t *sc = tile + words * 64 + lane * scale, *bi = tile + words * 64 + 16 * scale + lane * bias;
            if (scale)
                assert_memory_equal(sc, scaled ? m->p.scales + row * m->p.scale_stride + (size_t)g * scale : one,
                                    scale);
            if (bias)
                assert_memory_equal(bi, scaled ? m->p.biases + row * m->p.bias_stride + (size_t)g * bias : zero, bias);
        }
}

/* The packed bytes as a blob: header, data; read back, the tensor is found where it lies, aligned, and unchanged.
 * Returns the copy. */
static uint8_t *through_a_file(nb_qtype q, const uint8_t *packed, uint64_t bytes)
{
    nb_buf b = {0};
    nb_st_out t = {NB_LIT("x.weight"), NB_DT_U8, 1, {(int64_t)bytes}};
    char type[32];
    nb_qtype_name(q, type);
    nb_st_kv meta[] = {{NB_LIT("x.weight.quant_type"), nb_str_of(type)},
                       {NB_LIT("x.weight.layout"), NB_LIT("rows16.1")}};
    uint64_t total;
    nb_st_file f;
    nb_str v;
    nb_layout l;
    nb_qtype back;
    assert_int_equal(nb_st_header(&b, &t, 1, meta, 2, 4096, &total, NULL, NULL), NB_OK);
    nb_buf_add(&b, packed, bytes);
    assert_true(b.n == total);
    assert_int_equal(nb_st_read_mem(&f, b.p, b.n, "blob", NB_ST_STRICT, NULL), NB_OK);
    assert_true(nb_st_meta(&f, "x.weight.layout", &v) && nb_layout_parse(&l, v) && l == NB_LAYOUT_ROWS16);
    assert_true(nb_st_meta(&f, "x.weight.quant_type", &v) && nb_qtype_parse(&back, type, NULL) == NB_OK);
    assert_true(nb_str_is(v, type) && back.format == q.format && back.group == q.group);
    const nb_st_tensor *found = nb_st_find(&f, t.name);
    assert_true(found && found->off % 4096 == 0 && found->len == bytes);
    uint8_t *copy = guarded(bytes);
    memcpy(copy, b.p + found->off, bytes);
    nb_st_free(&f);
    nb_buf_free(&b);
    return copy;
}

static void check_layouts(nb_qtype q, const matrix *m, int64_t k, rng *r)
{
    uint64_t bytes = 0;
    size_t record = 0;
    assert_true(nb_rows16_bytes(q, m->rows, k, &bytes) && nb_rows1_row_bytes(q, k, &record));
    uint8_t *packed = guarded(bytes), *records = guarded(record * (size_t)m->rows);
    nb_rows16_pack(q, &m->p, m->rows, k, packed);
    check_guard(packed, bytes);
    check_tiles(q, m, packed, k);
    uint8_t *read = through_a_file(q, packed, bytes);
    free(packed);
    packed = read;
    nb_rows1_pack(q, &m->p, m->rows, k, records);
    check_guard(records, record * (size_t)m->rows);
    for (int64_t i = 0; i < m->rows; i++) {
        const uint8_t *p = records + (size_t)i * record;
        assert_memory_equal(p, m->p.codes + (size_t)i * m->p.code_stride, m->c);
        if (record > m->c) assert_memory_equal(p + m->c, m->p.scales + (size_t)i * m->p.scale_stride, m->s);
    }
    matrix back = matrix_new(q, m->rows, k, 5), part;
    bool apart = nb_format_info((nb_format)q.format)->scale_kind == NB_SCALE_APART;
    if (apart) back.s = 0; /* these scales lie in no tile */
    nb_rows16_unpack(q, packed, 0, m->rows, k, &back.p);
    assert_true(matrix_equal(&back, m));
    nb_rows1_unpack(q, records, m->rows, k, &back.p);
    assert_true(matrix_equal(&back, m));
    matrix_free(&back);
    int64_t row0 = rng_int(r, (int)m->rows), rows = 1 + rng_int(r, (int)(m->rows - row0));
    part = matrix_new(q, rows, k, 0);
    if (apart) part.s = 0;
    nb_rows16_unpack(q, packed, row0, rows, k, &part.p);
    matrix window = *m;
    window.p.codes += (size_t)row0 * m->p.code_stride;
    if (m->s) window.p.scales += (size_t)row0 * m->p.scale_stride;
    if (m->b) window.p.biases += (size_t)row0 * m->p.bias_stride;
    assert_true(matrix_equal(&part, &window));
    matrix_free(&part);
    free(packed), free(records);
}

/* ---- values ---- */

static void check_values(nb_qtype q, const matrix *m, int64_t k, float mul)
{
    size_t n = (size_t)(m->rows * k);
    float *f = malloc(n * sizeof *f);
    double *d = malloc(n * sizeof *d);
    nb_dequantize_rows(q, &m->p, m->rows, k, mul, f);
    nb_dequantize_rows_f64(q, &m->p, m->rows, k, mul, d);
    /* one rounding at most: scales that are powers of two or come without a multiplier make products exact */
    for (size_t i = 0; i < n; i++) assert_true(f[i] == (float)d[i]);
    free(f), free(d);
}

/* The same rows in two spans give the same bytes. */
static void check_split(nb_qtype q, const float *w, const matrix *m, int64_t k, float mul, rng *r)
{
    matrix two = matrix_new(q, m->rows, k, 3);
    int64_t cut = rng_int(r, (int)m->rows + 1);
    if (q.format == NB_FP8_BLOCK) cut = cut / 128 * 128;
    nb_parts rest = two.p;
    rest.codes += (size_t)cut * rest.code_stride;
    if (rest.scales) rest.scales += (size_t)(q.format == NB_FP8_BLOCK ? cut / 128 : cut) * rest.scale_stride;
    if (rest.biases) rest.biases += (size_t)cut * rest.bias_stride;
    assert_int_equal(nb_quantize_rows(q, w, cut, k, mul, &two.p, NULL), NB_OK);
    assert_int_equal(nb_quantize_rows(q, w + cut * k, m->rows - cut, k, mul, &rest, NULL), NB_OK);
    assert_true(matrix_equal(m, &two));
    matrix_free(&two);
}

static int cases;
static void one_qtype(nb_qtype q, void *arg)
{
    rng *r = arg;
    static const int64_t rows[] = {1, 7, 15, 16, 17, 33, 130};
    int trials = SLOW_BUILD ? 4 : 12;
    for (int t = 0; t < trials; t++, cases++) {
        int64_t n = rows[rng_int(r, NB_COUNT(rows))], k = q.group * (1 + rng_int(r, 5));
        if (any_k(q)) k = 1 + rng_int(r, 200);
        float *w = random_weights(r, n * k, t % 3 ? 0.02f : 3.0f), mul = multiplier(q, w, n * k);
        matrix m = matrix_new(q, n, k, t % 2 ? 0 : 8);
        assert_int_equal(nb_quantize_rows(q, w, n, k, mul, &m.p, NULL), NB_OK);
        check_layouts(q, &m, k, r);
        check_values(q, &m, k, mul);
        check_split(q, w, &m, k, mul, r);
        for (int64_t i = 0; i < n; i++) /* any code is a legal one, not only what our quantiser writes */
            for (size_t b = 0; b < m.c && !nb_format_info((nb_format)q.format)->is_float; b++) {
                uint8_t x = (uint8_t)rng_u64(r);
                bool e4m3 = q.format == NB_MXFP8 || any_k(q);
                m.p.codes[(size_t)i * m.p.code_stride + b] = e4m3 && (x & 0x7f) == 0x7f ? 0 : x;
            }
        check_layouts(q, &m, k, r);
        check_values(q, &m, k, mul);
        matrix_free(&m);
        free(w);
    }
}

static void test_round_trips(void **state)
{
    (void)state;
    rng r = {1};
    int n = each_qtype(one_qtype, &r);
    print_message("           %d weight types, %d random matrices: layouts, values, splits\n", n, 2 * cases);
}

/* ---- vector kernels against the plain ones ---- */

/* One row searched by both tables. */
static void one_search(const nb_kernels *a, const nb_kernels *b, rng *r, nb_qtype q, int64_t k)
{
    if (!nb_format_searches((nb_format)q.format)) return;
    float *w = random_weights(r, k, rng_int(r, 4) ? 0.05f : ldexpf(1, rng_int(r, 200) - 120));
    float amax = nb_abs_max(w, (size_t)k), enc = amax / 2688 < 0x1p-126f ? 0 : 2688 / amax;
    matrix m[2] = {matrix_new(q, 1, k, 0), matrix_new(q, 1, k, 0)};
    bool ok[2] = {true, true};
    for (int i = 0; i < 2; i++) {
        const nb_kernels *t = i ? b : a;
        nb_row o = {m[i].p.codes, m[i].p.scales, NULL};
        if (q.format == NB_NVFP4)
            t->nvfp4_search(w, k, enc, o);
        else
            ok[i] = t->mxfp4_search(w, k, o);
    }
    assert_true(ok[0] == ok[1]);
    assert_true(matrix_equal(&m[0], &m[1]));
    matrix_free(&m[0]), matrix_free(&m[1]);
    free(w);
}

static void one_row(const nb_kernels *a, const nb_kernels *b, rng *r, nb_qtype q, int64_t k)
{
    float *w = random_weights(r, k, rng_int(r, 4) ? 0.05f : ldexpf(1, rng_int(r, 200) - 120)),
          *f = malloc((size_t)k * 8);
    matrix m[2] = {matrix_new(q, 1, k, 0), matrix_new(q, 1, k, 0)};
    nb_row o[2];
    nb_row_in in;
    float amax = nb_abs_max(w, (size_t)k), enc = amax / 2688 < 0x1p-126f ? 0 : 2688 / amax, mul = 0.37f;
    bool ok[2] = {true, true};
    for (int i = 0; i < 2; i++) {
        const nb_kernels *t = i ? b : a;
        o[i] = (nb_row){m[i].p.codes, m[i].p.scales, m[i].p.biases};
        switch (q.format) {
        case NB_NVFP4: t->nvfp4(w, k, enc, o[i]); break;
        case NB_MXFP4: ok[i] = t->mxfp4(w, k, o[i]); break;
        case NB_MXFP8: ok[i] = t->mxfp8(w, k, o[i]); break;
        case NB_BF16: ok[i] = t->bf16(w, k, o[i].codes); break;
        case NB_F16: ok[i] = t->f16(w, k, o[i].codes); break;
        case NB_F32: break;
        case NB_FP8_TENSOR:
        case NB_FP8_CHANNEL:
        case NB_FP8_BLOCK: t->e4m3(w, k, amax / 448 + 1e-30f, o[i].codes); break;
        default: ok[i] = t->affine(w, k, q, o[i]); break;
        }
    }
    assert_true(ok[0] == ok[1]);
    assert_true(matrix_equal(&m[0], &m[1]));
    in = (nb_row_in){m[0].p.codes, m[0].p.scales, m[0].p.biases};
    for (size_t b2 = 0; b2 < m[0].c; b2++) m[0].p.codes[b2] = (uint8_t)rng_u64(r); /* all codes, NaNs included */
    for (int i = 0; i < 2; i++) {
        const nb_kernels *t = i ? b : a;
        float *out = f + i * k;
        switch (q.format) {
        case NB_NVFP4:
        case NB_MXFP4: t->from_e2m1(in, k, q, mul, out); break;
        case NB_MXFP8: t->from_mxfp8(in, k, out); break;
        case NB_BF16: t->from_bf16(in.codes, (size_t)k, out); break;
        case NB_F16: t->from_f16(in.codes, (size_t)k, out); break;
        case NB_F32: memset(out, 0, (size_t)k * 4); break;
        case NB_FP8_TENSOR:
        case NB_FP8_CHANNEL:
        case NB_FP8_BLOCK: t->from_e4m3(in.codes, (size_t)k, mul, out); break;
        default: t->from_affine(in, k, q, out); break;
        }
    }
    for (int64_t i = 0; i < k; i++)
        assert_true(nb_bits_f32(f[i]) == nb_bits_f32(f[k + i]) || (isnan(f[i]) && isnan(f[k + i])));
    assert_int_equal(a->abs_bits(w, (size_t)k), b->abs_bits(w, (size_t)k));
    matrix_free(&m[0]), matrix_free(&m[1]);
    free(w), free(f);
}

struct tiers {
    const nb_kernels *a, *b;
    rng r;
    int n;
};
static void tiers_one(nb_qtype q, void *arg)
{
    struct tiers *t = arg;
    for (int i = 0; i < (SLOW_BUILD ? 20 : 200); i++, t->n++) {
        one_row(t->a, t->b, &t->r, q, any_k(q) ? 1 + rng_int(&t->r, 300) : q.group * (1 + rng_int(&t->r, 6)));
        one_search(t->a, t->b, &t->r, q, q.group * (1 + rng_int(&t->r, 6)));
    }
}

static void test_tiers(void **state)
{
    (void)state;
    for (int i = 1; i <= 2; i++) {
        struct tiers t = {nb_kernels_at(0), nb_kernels_at(i), {7}, 0};
        if (!t.b) {
            print_message("           kernel table %d: skipped, the processor lacks it\n", i);
            continue;
        }
        each_qtype(tiers_one, &t);
        print_message("           %s: %d rows quantised and decoded as in plain C\n", t.b->name, t.n);
    }
    print_message("           in use: %s\n", nb_kernels_best()->name);
}

/* Every float pattern of interest through the scalar encoders that have vector twins: all BF16 values, and their
 * neighbours. */
static void test_encoders_exhaustively(void **state)
{
    (void)state;
    for (int i = 1; i <= 2; i++) {
        const nb_kernels *t = nb_kernels_at(i), *c = nb_kernels_at(0);
        if (!t) continue;
        float w[256];
        uint8_t a[512], b[512];
        for (uint32_t hi = 0; hi < 65536; hi += 64) {
            for (uint32_t j = 0; j < 256; j++) {
                static const uint32_t low[] = {0, 1, 0x8000, 0xffff};
                uint32_t u = (hi + j / 4) << 16 | low[j % 4];
                w[j] = (u & 0x7fffffff) < 0x7f800000u ? nb_f32_bits(u) : 1.0f;
            }
            t->e4m3(w, 256, 1.0f, a), c->e4m3(w, 256, 1.0f, b);
            assert_memory_equal(a, b, 256);
            assert_true(t->f16(w, 256, a) == c->f16(w, 256, b));
            assert_memory_equal(a, b, 512);
            assert_true(t->bf16(w, 256, a) == c->bf16(w, 256, b));
            assert_memory_equal(a, b, 512);
        }
    }
}

/* ---- error tables of 4.4 to 4.8, on Gaussian data ---- */

static double rel_rms(nb_qtype q, const float *w, int64_t rows, int64_t k, float mul)
{
    matrix m = matrix_new(q, rows, k, 0);
    double *d = malloc((size_t)(rows * k) * sizeof *d), e = 0, s = 0;
    assert_int_equal(nb_quantize_rows(q, w, rows, k, mul, &m.p, NULL), NB_OK);
    nb_dequantize_rows_f64(q, &m.p, rows, k, mul, d);
    for (int64_t i = 0; i < rows * k; i++) e += pow((double)w[i] - d[i], 2), s += (double)w[i] * (double)w[i];
    matrix_free(&m);
    free(d);
    return sqrt(e / s);
}

static void test_error_tables(void **state)
{
    (void)state;
    int64_t rows = SLOW_BUILD ? 256 : 4096, k = 1024; /* 2^22 samples */
    float *w = malloc((size_t)(rows * k) * sizeof *w), *v = malloc((size_t)(rows * k) * sizeof *v);
    rng r = {11};
    for (int64_t i = 0; i < rows * k; i++) w[i] = rng_gauss(&r);
    const struct {
        nb_format f;
        uint16_t group;
        double want;
    } t[] = {
        {NB_BF16, 32, 0.00166},       {NB_MXFP4, 32, 0.1154},     {NB_MXFP8, 32, 0.0265}, {NB_FP8_TENSOR, 32, 0.0265},
        {NB_FP8_CHANNEL, 32, 0.0265}, {NB_FP8_BLOCK, 32, 0.0265}, {NB_INT2, 32, 0.362},   {NB_INT2, 64, 0.395},
        {NB_INT2, 128, 0.424},        {NB_INT3, 32, 0.171},       {NB_INT3, 64, 0.190},   {NB_INT3, 128, 0.207},
        {NB_INT4, 32, 0.0810},        {NB_INT4, 64, 0.0910},      {NB_INT4, 128, 0.1001}, {NB_INT5, 32, 0.0392},
        {NB_INT5, 64, 0.0441},        {NB_INT5, 128, 0.0487},     {NB_INT6, 32, 0.0193},  {NB_INT6, 64, 0.0217},
        {NB_INT6, 128, 0.0240},       {NB_INT8, 32, 0.0048},      {NB_INT8, 64, 0.0054},  {NB_INT8, 128, 0.0059}};
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        nb_qtype q = nb_qtype_default(t[i].f);
        q.group = t[i].group;
        double got = rel_rms(q, w, rows, k, multiplier(q, w, rows * k));
        char name[32];
        nb_qtype_name(q, name);
        print_message("           %-12s %.5f, table %.5f\n", name, got, t[i].want);
        /* the table gives 4 decimals: half of the last one is added to its 2 % */
        assert_true(fabs(got - t[i].want) <= 0.02 * t[i].want + (t[i].want < 0.01 && t[i].f != NB_BF16 ? 0.00005 : 0));
    }
    const double sigma[] = {1, 0.1, 0.02, 0.01, 0.005, 0.002, 0.001};
    int64_t some = rows / 4;
    for (size_t s = 0; s < NB_COUNT(sigma); s++) { /* NVFP4 with its multiplier does not care how large weights are */
        for (int64_t i = 0; i < some * k; i++) v[i] = w[i] * (float)sigma[s];
        nb_qtype q = nb_qtype_default(NB_NVFP4);
        double got = rel_rms(q, v, some, k, multiplier(q, v, some * k));
        print_message("           nvfp4 sigma %-6g %.4f, table 0.0951\n", sigma[s], got);
        assert_true(fabs(got - 0.0951) <= 0.02 * 0.0951);
    }
    free(w), free(v);
}

/* ---- the search for better scales ---- */

/* Squared errors of the groups of one row in double, and of all of them together. */
static double group_errors(nb_qtype q, const matrix *m, const float *w, int64_t rows, int64_t k, float mul, double *e)
{
    double *d = malloc((size_t)(rows * k) * sizeof *d), all = 0;
    nb_dequantize_rows_f64(q, &m->p, rows, k, mul, d);
    for (int64_t g = 0; g < rows * k / q.group; g++, all += e[g - 1]) {
        e[g] = 0;
        for (int64_t i = g * q.group; i < (g + 1) * q.group; i++) e[g] += pow((double)w[i] - d[i], 2);
    }
    free(d);
    return all;
}

/* The searched matrix against the plain one: no group is worse (but for the last bits of the sums in binary32), the
 * split of the rows changes nothing, and each scale is within its reach. Returns both relative RMS. */
static void search_against_plain(nb_qtype q, const float *w, int64_t rows, int64_t k, double rms[2])
{
    int64_t groups = rows * k / q.group, cut = rows / 3;
    float amax = nb_abs_max(w, (size_t)(rows * k)), mul = multiplier(q, w, rows * k);
    matrix plain = matrix_new(q, rows, k, 0), best = matrix_new(q, rows, k, 0), two = matrix_new(q, rows, k, 0);
    double *e = malloc((size_t)groups * 2 * sizeof *e), sum = 0;
    if (q.format == NB_NVFP4)
        assert_int_equal(nb_quantize_nvfp4(w, rows, k, amax, &plain.p, NULL), NB_OK);
    else
        assert_int_equal(nb_quantize_rows(q, w, rows, k, 1, &plain.p, NULL), NB_OK);
    assert_int_equal(nb_quantize_search(q, w, rows, k, amax, &best.p, NULL), NB_OK);
    nb_parts rest = two.p;
    rest.codes += (size_t)cut * rest.code_stride;
    rest.scales += (size_t)cut * rest.scale_stride;
    assert_int_equal(nb_quantize_search(q, w, cut, k, amax, &two.p, NULL), NB_OK);
    assert_int_equal(nb_quantize_search(q, w + cut * k, rows - cut, k, amax, &rest, NULL), NB_OK);
    assert_true(matrix_equal(&best, &two));
    rms[0] = group_errors(q, &plain, w, rows, k, mul, e);
    rms[1] = group_errors(q, &best, w, rows, k, mul, e + groups);
    for (int64_t i = 0; i < rows * k; i++) sum += (double)w[i] * (double)w[i];
    for (int i = 0; i < 2; i++) rms[i] = sqrt(rms[i] / sum);
    for (int64_t g = 0; g < groups; g++) {
        int a = plain.p.scales[g], b = best.p.scales[g];
        assert_true(e[groups + g] <= e[g] * (1 + 1e-4));
        assert_true(q.format == NB_NVFP4 ? abs(a - b) <= 6 && b <= 0x7e && (a == 0) == (b == 0) : b == a || b == a - 1);
    }
    matrix_free(&plain), matrix_free(&best), matrix_free(&two);
    free(e);
}

static void test_search(void **state)
{
    (void)state;
    int64_t rows = SLOW_BUILD ? 256 : 4096, k = 1024; /* 2^22 samples */
    const struct {
        nb_format f;
        double plain, search; /* specs/create.md 4.4, 4.5 */
    } t[] = {{NB_NVFP4, 0.0951, 0.0812}, {NB_MXFP4, 0.1154, 0.1115}};
    float *w = malloc((size_t)(rows * k) * sizeof *w);
    rng r = {13};
    double rms[2];
    for (int64_t i = 0; i < rows * k; i++) w[i] = rng_gauss(&r);
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        nb_qtype q = nb_qtype_default(t[i].f);
        search_against_plain(q, w, rows, k, rms);
        print_message("           %-6s plain %.4f, searched %.4f, table %.4f and %.4f\n", nb_format_info(t[i].f)->name,
                      rms[0], rms[1], t[i].plain, t[i].search);
        assert_true(fabs(rms[0] - t[i].plain) <= 0.02 * t[i].plain);
        assert_true(fabs(rms[1] - t[i].search) <= 0.02 * t[i].search);
    }
    free(w);
    for (int i = 0; i < 50; i++) { /* zeros, outliers, constant groups */
        float *odd = random_weights(&r, 16 * 160, i % 2 ? 0.02f : 3.0f);
        for (size_t f = 0; f < NB_COUNT(t); f++) search_against_plain(nb_qtype_default(t[f].f), odd, 16, 160, rms);
        free(odd);
    }
    for (int f = 0; f < NB_FORMAT_COUNT; f++)
        assert_true(nb_format_searches((nb_format)f) == (f == NB_NVFP4 || f == NB_MXFP4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_encoders_exhaustively),
        cmocka_unit_test(test_error_tables),
        cmocka_unit_test(test_search),
    };
    return cmocka_run_group_tests_name("format: properties of every format and layout", tests, NULL, NULL);
}
