/* The golden vectors of specs/create.md 9.2 to 9.4 and names of formats. */
#include "support.h"

#include "format_vectors.h"

static float bf(uint16_t h) { return nb_bf16_decode(h); }

static void test_e4m3(void **state)
{
    (void)state;
    const struct {
        float x;
        uint8_t want;
    } t[] = {{0, 0x00},
             {1, 0x38},
             {-1, 0xb8},
             {448, 0x7e},
             {449, 0x7e},
             {464, 0x7e},
             {480, 0x7e},
             {1e9f, 0x7e},
             {0x1p-6f, 0x08},
             {0x1p-9f, 0x01},
             {0x1p-10f, 0x00},
             {0.00097657f, 0x01},
             {0.0029296875f, 0x02},
             {17, 0x58},
             {18.5f, 0x59},
             {240, 0x77},
             {0.3f, 0x2a},
             {-0.0f, 0x80},
             {INFINITY, 0x7e},
             {-INFINITY, 0xfe},
             {NAN, 0x7f},
             {0.0151f, 0x08}};
    for (size_t i = 0; i < NB_COUNT(t); i++) assert_int_equal(nb_e4m3_encode(t[i].x), t[i].want);
    assert_true(isnan(nb_e4m3_decode(0x7f)) && isnan(nb_e4m3_decode(0xff)));
    for (int b = 0; b < 256; b++) { /* the formula, and encode as the inverse */
        int e = (b >> 3) & 15, m = b & 7;
        double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
        if ((b & 0x7f) == 0x7f) continue;
        assert_true((double)nb_e4m3_decode((uint8_t)b) == (b & 128 ? -v : v));
        assert_int_equal(nb_e4m3_encode(nb_e4m3_decode((uint8_t)b)), b);
    }
}

static void test_e8m0(void **state)
{
    (void)state;
    assert_int_equal(nb_e8m0_round_up(0.75f), 127);
    assert_int_equal(nb_e8m0_round_up(0.7f), 127);
    assert_int_equal(nb_e8m0_round_up(0.5f), 126);
    assert_int_equal(nb_e8m0_round_up(1.0f), 127);
    assert_int_equal(nb_e8m0_round_up(1.0000001f), 128);
    assert_int_equal(nb_e8m0_round_up(0), 127);
    assert_int_equal(nb_e8m0_round_up(3e38f), 254);
    assert_int_equal(nb_e8m0_round_up(1e-42f), 1);
    assert_true(nb_bits_f32(nb_e8m0_decode(0)) == 0x00400000u && isnan(nb_e8m0_decode(255)));
    for (int b = 1; b < 255; b++) assert_true((double)nb_e8m0_decode((uint8_t)b) == ldexp(1, b - 127));
}

static void test_bf16(void **state)
{
    (void)state;
    const struct {
        float x;
        uint16_t want;
    } t[] = {{1.0f, 0x3f80},  {1.00390625f, 0x3f80},   {1.01171875f, 0x3f82}, {3.14159265f, 0x4049},
             {65504, 0x4780}, {3.3895314e38f, 0x7f7f}, {3.4e38f, 0x7f80}};
    for (size_t i = 0; i < NB_COUNT(t); i++) assert_int_equal(nb_bf16_encode(t[i].x), t[i].want);
    assert_int_equal(nb_bf16_encode(nb_f32_bits(0x7f800001u)), 0x7fc0);
}

static void test_e2m1(void **state)
{
    (void)state;
    const struct {
        float x;
        uint8_t want;
    } t[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4}, {2.5f, 4},    {3.5f, 6},
             {5, 6},     {-0.0f, 8}, {1e30f, 7}, {-0.1f, 8}, {INFINITY, 7}};
    for (size_t i = 0; i < NB_COUNT(t); i++) assert_int_equal(nb_e2m1_encode(t[i].x), t[i].want);
    for (int c = 0; c < 16; c++) assert_int_equal(nb_e2m1_encode(nb_e2m1_decode((uint8_t)c)), c);
}

static void test_half_and_others(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        int e = (h >> 10) & 31, m = h & 0x3ff;
        float f = nb_f16_decode((uint16_t)h);
        if (e == 31) {
            assert_true(m ? isnan(f) : isinf(f));
            continue;
        }
        double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
        assert_true((double)f == (h & 0x8000 ? -v : v));
        assert_int_equal(nb_f16_encode(f), h);
    }
    assert_int_equal(nb_f16_encode(65519.9f), 0x7bff);
    assert_int_equal(nb_f16_encode(65520.0f), 0x7c00);
    assert_int_equal(nb_f16_encode(0x1p-25f), 0); /* tie to even */
    assert_int_equal(nb_f16_encode(0x1.8p-24f), 2);
    assert_true(nb_e5m2_decode(0x3c) == 1.0f && nb_e5m2_decode(0x7b) == 57344.0f && isinf(nb_e5m2_decode(0x7c)));
    uint8_t fnuz[] = {0x40, 0x80, 0x01, 0x7f, 0xc0};
    float got[5];
    assert_true(nb_floats_decode(NB_DT_F8_E4M3FNUZ, fnuz, 5, got));
    assert_true(got[0] == 1.0f && isnan(got[1]) && got[2] == 0x1p-10f && got[3] == 240.0f && got[4] == -1.0f);
    assert_true(nb_floats_decode(NB_DT_F8_E5M2FNUZ, fnuz, 5, got));
    assert_true(got[0] == 1.0f && isnan(got[1]) && got[2] == 0x1p-17f && got[3] == 57344.0f && got[4] == -1.0f);
    double d[2] = {0.1, -1e300};
    assert_true(nb_floats_decode(NB_DT_F64, d, 2, got) && got[0] == 0.1f && isinf(got[1]));
    assert_false(nb_floats_decode(NB_DT_I32, d, 1, got));
}

static void test_dtypes(void **state)
{
    (void)state;
    for (int t = 1; t < NB_DT_COUNT; t++) assert_int_equal(nb_dtype_parse(nb_str_of(nb_dtype_name((nb_dtype)t))), t);
    assert_int_equal(nb_dtype_parse(NB_LIT("bf16")), NB_DT_BF16);
    assert_int_equal(nb_dtype_parse(NB_LIT("F8_E4M3FN")), NB_DT_F8_E4M3);
    assert_int_equal(nb_dtype_parse(NB_LIT("F8_E4M3FNUZ")), NB_DT_F8_E4M3FNUZ);
    assert_int_equal(nb_dtype_parse(NB_LIT("none")), NB_DT_NONE);
    assert_int_equal(nb_dtype_parse(NB_LIT("")), NB_DT_NONE);
    assert_int_equal(nb_dtype_bits(NB_DT_F6_E2M3), 6);
}

static const float n1[16] = {0, .25f, -.5f, .75f, 1, -1.25f, 1.5f, 1.75f, 2, -2.5f, 3, 3.5f, -4, 5, 6, -6};
static const uint16_t n2[32] = {0xbd34, 0xbd1c, 0xbd04, 0xbcd8, 0xbca8, 0xbc70, 0xbc10, 0xbb40, 0x3b40, 0x3c10, 0x3c70,
                                0x3ca8, 0x3cd8, 0x3d04, 0x3d1c, 0x3d34, 0xbb34, 0xbb1c, 0xbb04, 0xbad8, 0xbaa8, 0xba70,
                                0xba10, 0xb940, 0x3940, 0x3a10, 0x3a70, 0x3aa8, 0x3ad8, 0x3b04, 0x3b1c, 0x3b34};

/* The single-level quantiser of 9.3 ("m = 1 mode"), which we never write: no floor at 2^-9. */
static uint8_t single_level(const float *w, uint8_t codes[16])
{
    float a = nb_abs_max(w, 16);
    uint8_t s = nb_e4m3_encode(a / 6);
    float r = s ? 1.0f / nb_e4m3_decode(s) : 0;
    for (int i = 0; i < 16; i++) codes[i] = nb_e2m1_encode(w[i] * r);
    return s;
}
static void assert_codes(const uint8_t codes[16], const char *text)
{
    uint8_t packed[8];
    for (int i = 0; i < 8; i++) packed[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    assert_hex(packed, text);
}

static void test_nvfp4(void **state)
{
    (void)state;
    nb_qtype q = nb_qtype_default(NB_NVFP4);
    uint8_t codes[16], scales[2], lanes[16];
    float w[32], back[32];
    nb_parts p = {codes, 16, scales, 2, NULL, 0};
    float m = nb_nvfp4_multiplier(6);
    assert_int_equal(nb_bits_f32(m), 0x3b124925u);
    assert_int_equal(nb_quantize_rows(q, n1, 1, 16, m, &p, NULL), NB_OK);
    assert_hex(codes, "0029a243c4656ef7");
    assert_int_equal(scales[0], 0x7e);
    assert_int_equal(single_level(n1, lanes), 0x38);
    assert_codes(lanes, "0029a243c4656ef7");
    for (int i = 0; i < 32; i++) w[i] = bf(n2[i]);
    assert_int_equal(single_level(w, lanes), 0x04);
    assert_codes(lanes, "efdecd9a21546576");
    assert_int_equal(single_level(w + 16, lanes), 0x00);
    assert_codes(lanes, "8888888800000000");
    float a = nb_abs_max(w, 32);
    assert_true(a == 0.0439453125f);
    assert_int_equal(nb_bits_f32(nb_nvfp4_multiplier(a)), 0x37892492u);
    for (int way = 0; way < 2; way++) { /* from the multiplier and from the maximum */
        memset(codes, 0, 16);
        nb_status st = way ? nb_quantize_nvfp4(w, 1, 32, a, &p, NULL)
                           : nb_quantize_rows(q, w, 1, 32, nb_nvfp4_multiplier(a), &p, NULL);
        assert_int_equal(st, NB_OK);
        assert_hex(scales, "7e5e");
        assert_hex(codes, "ffeecd9a21546677ffeecd9a21546677");
    }
    nb_dequantize_rows(q, &p, 1, 32, nb_nvfp4_multiplier(a), back);
    for (int b = 0; b < 32; b += 16) {
        double e = 0, s = 0;
        for (int i = b; i < b + 16; i++) e += pow((double)w[i] - (double)back[i], 2), s += pow((double)w[i], 2);
        assert_true(fabs(sqrt(e / s) - 0.0982) < 0.0001);
    }
    const struct {
        float top;
        uint8_t want;
    } t[] = {{0.005f, 0}, {0.005859375f, 0}, {0.00586f, 1}, {0.006f, 1}, {0.0117f, 1}, {0.09375f, 8}};
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        memset(w, 0, sizeof w);
        w[3] = t[i].top;
        assert_int_equal(single_level(w, lanes), t[i].want);
        assert_int_equal(nb_quantize_nvfp4(w, 1, 16, 2688, &p, NULL), NB_OK); /* ours never loses a block */
        assert_int_equal(scales[0], t[i].want ? t[i].want : 1);
    }
    memset(w, 0, sizeof w);
    assert_true(nb_nvfp4_multiplier(0) == 1.0f);
    assert_int_equal(nb_quantize_nvfp4(w, 1, 32, 0, &p, NULL), NB_OK);
    assert_hex(scales, "0000");
    assert_hex(codes, "00000000000000000000000000000000");
}

static void test_nvfp4_maximum_recovered(void **state)
{
    (void)state;
    rng r = {5};
    nb_qtype q = nb_qtype_default(NB_NVFP4);
    uint8_t c[2][32], s[2][4];
    float w[64];
    int differ = 0, n = SLOW_BUILD ? 2000 : 20000;
    for (int t = 0; t < n; t++) {
        for (int i = 0; i < 64; i++)
            w[i] =
                t % 2 ? bf(nb_bf16_encode(rng_gauss(&r) * 0.02f)) : nb_f16_decode(nb_f16_encode(rng_gauss(&r) * 0.02f));
        float a = nb_abs_max(w, 64);
        nb_parts p0 = {c[0], 32, s[0], 4, NULL, 0}, p1 = {c[1], 32, s[1], 4, NULL, 0};
        assert_int_equal(nb_quantize_nvfp4(w, 1, 64, a, &p0, NULL), NB_OK);
        assert_int_equal(nb_quantize_rows(q, w, 1, 64, nb_nvfp4_multiplier(a), &p1, NULL), NB_OK);
        differ += memcmp(c[0], c[1], 32) != 0 || memcmp(s[0], s[1], 4) != 0;
    }
    assert_int_equal(differ, 0);
}

static void ramp(float k[32])
{
    for (int i = 0; i < 32; i++) k[i] = (float)(i - 16) * 0.25f;
}

static void test_mx(void **state)
{
    (void)state;
    uint8_t codes[32], scale[1];
    float w[32];
    nb_parts p = {codes, 32, scale, 1, NULL, 0};
    ramp(w);
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_MXFP4), w, 1, 32, 1, &p, NULL), NB_OK);
    assert_hex(scale, "7f");
    assert_hex(codes, "eededdccccabaa890021224344545566");
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_MXFP8), w, 1, 32, 1, &p, NULL), NB_OK);
    assert_hex(scale, "79");
    assert_hex(codes, "f8f7f6f5f4f3f2f1f0eeeceae8e4e0d80058606468 6a6c6e7071727374757677");
    for (int i = 0; i < 32; i++) w[i] = bf(n2[i]);
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_MXFP8), w, 1, 32, 1, &p, NULL), NB_OK);
    assert_hex(scale, "72");
    assert_hex(codes, "fbfaf8f6f2efe9dc5c696f7276787a7bdbdad8d6d2cfc9bc3c494f525658 5a5b");
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_MXFP4), w, 1, 32, 1, &p, NULL), NB_OK);
    assert_hex(scale, "78");
    assert_hex(codes, "efdecd9a2154657699898888 00001011");
    /* the domain: a tiny block becomes zero, a huge one is an error (design.md 4) */
    nb_error err;
    for (int i = 0; i < 32; i++) w[i] = 0x1p-112f;
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_MXFP4), w, 1, 32, 1, &p, NULL), NB_OK);
    assert_hex(scale, "7f");
    assert_hex(codes, "00000000000000000000000000000000");
    for (int i = 0; i < 32; i++) w[i] = 0x1p120f;
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_MXFP4), w, 1, 32, 1, &p, &err), NB_E_INVALID);
    assert_non_null(strstr(err.text, "row 0"));
}

static void test_affine(void **state)
{
    (void)state;
    const struct {
        nb_format f;
        float scale;
        uint16_t bf16;
        const char *codes;
    } t[] = {
        {NB_INT2, 2, 0x4000, "005455aa aafeffff"},
        {NB_INT3, 1, 0x3f80, "00924892 b69124db dab6ffff"},
        {NB_INT4, 0.5f, 0x3f00, "00212243 44656687 88a9aacb ccedeeff"},
        {NB_INT5, 0.25f, 0x3e80, "2088418a 3928a9c5 9a7b30ca 49abbd38 ebcdbbff"},
        {NB_INT6, 0.121212125f, 0x3df8, "80401888 c238d054 5dd9d67d e1589ee9 dabe326d e33aefff"},
        {NB_INT8, 0.0303030312f, 0x3cf8, "00081019 2129323a 424a525b 636b747c 848c949d a5adb6be c6ced6df e7eff8ff"},
    };
    float w[32], back[32];
    uint8_t codes[32], s[4], z[4];
    nb_parts p = {codes, 32, s, 4, z, 4};
    ramp(w);
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        double rms[2];
        for (int wide = 0; wide < 2; wide++) {
            nb_qtype q = {(uint8_t)t[i].f, wide ? NB_DT_F32 : NB_DT_BF16, 32};
            assert_int_equal(nb_quantize_rows(q, w, 1, 32, 1, &p, NULL), NB_OK);
            if (wide) {
                assert_true(nb_f32_bits(nb_load_u32(s)) == t[i].scale && nb_f32_bits(nb_load_u32(z)) == -4.0f);
            } else {
                assert_int_equal(nb_load_u16(s), t[i].bf16);
                assert_int_equal(nb_load_u16(z), 0xc080);
            }
            if (wide || t[i].f < NB_INT6) assert_hex(codes, t[i].codes);
            nb_dequantize_rows(q, &p, 1, 32, 1, back);
            rms[wide] = 0;
            for (int j = 0; j < 32; j++) rms[wide] += pow((double)w[j] - (double)back[j], 2);
        }
        /* 6 and 8 bits: codes taken against the rounded scale are no worse than codes of the F32 scale read with the
         * rounded one */
        double naive = 0;
        float rounded = bf(t[i].bf16), top = (float)((1 << nb_format_info(t[i].f)->bits) - 1);
        for (int j = 0; j < 32; j++)
            naive += pow((double)w[j] - ((double)fminf(rintf((w[j] + 4) / t[i].scale), top) * (double)rounded - 4), 2);
        assert_true(rms[0] <= naive + 1e-12);
    }
}

static void test_fp8(void **state)
{
    (void)state;
    /* F1: 129 x 130, scales [[1,2],[3,4]] */
    nb_qtype q = nb_qtype_default(NB_FP8_BLOCK);
    matrix m = matrix_new(q, 129, 130, 0);
    memset(m.p.codes, 0x38, 129 * 130);
    for (int i = 0; i < 4; i++) nb_store_u32(m.p.scales + 4 * i, nb_bits_f32((float)(i + 1)));
    float *w = malloc(sizeof *w * 129 * 130);
    nb_dequantize_rows(q, &m.p, 129, 130, 1, w);
    assert_true(w[0] == 1 && w[127] == 1 && w[128] == 2 && w[127 * 130] == 1 && w[128 * 130] == 3 &&
                w[128 * 130 + 129] == 4);
    /* quantising that again finds the same values: every block is constant */
    float *again = malloc(sizeof *w * 129 * 130);
    assert_int_equal(nb_quantize_rows(q, w, 129, 130, 1, &m.p, NULL), NB_OK);
    nb_dequantize_rows(q, &m.p, 129, 130, 1, again);
    for (int i = 0; i < 129 * 130; i++) assert_true(fabsf(w[i] - again[i]) < 1e-6f * w[i]);
    free(w), free(again);
    matrix_free(&m);
    /* F3: one scale a row */
    q = nb_qtype_default(NB_FP8_CHANNEL);
    m = matrix_new(q, 5, 33, 0);
    float x[5 * 33], y[5 * 33];
    for (int i = 0; i < 5 * 33; i++) x[i] = (float)(i / 33 + 1) * (i % 33 == 7 ? 448 : 1);
    assert_int_equal(nb_quantize_rows(q, x, 5, 33, 1, &m.p, NULL), NB_OK);
    nb_dequantize_rows(q, &m.p, 5, 33, 1, y);
    assert_memory_equal(x, y, sizeof x);
    matrix_free(&m);
}

static void test_names(void **state)
{
    (void)state;
    char name[32];
    nb_qtype q;
    nb_error err;
    const struct {
        const char *text, *name;
    } t[] = {{"nvfp4", "nvfp4"},         {"BF16", "bf16"},         {"int4", "int4:g64"},   {"int4:g32", "int4:g32"},
             {"INT8:G128", "int8:g128"}, {"q4", "int4:g64"},       {"q8:g32", "int8:g32"}, {"mxfp8", "mxfp8"},
             {"fp8_block", "fp8_block"}, {"int3:g64", "int3:g64"}, {"nvfp4:g16", "nvfp4"}};
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        assert_int_equal(nb_qtype_parse(&q, t[i].text, &err), NB_OK);
        nb_qtype_name(q, name);
        assert_string_equal(name, t[i].name);
    }
    const char *bad[] = {"int7",    "",    "int4:", "int4:g16", "int4:g31", "nvfp4:g32",
                         "int4:32", "fp4", "fp8",   "bf16x",    "int4:g64 "};
    for (size_t i = 0; i < NB_COUNT(bad); i++) assert_int_equal(nb_qtype_parse(&q, bad[i], &err), NB_E_USAGE);
    assert_int_equal(nb_qtype_parse(&q, "int7", &err), NB_E_USAGE);
    assert_non_null(strstr(err.text, "unknown quantisation 'int7'; known: "));
    assert_non_null(strstr(err.text, "nvfp4"));
    assert_null(nb_format_info(NB_FORMAT_COUNT));
    for (int f = 0; f < NB_FORMAT_COUNT; f++) {
        assert_int_equal(nb_qtype_parse(&q, nb_format_info((nb_format)f)->name, NULL), NB_OK);
        assert_true(nb_qtype_eq(q, nb_qtype_default((nb_format)f)));
    }
}

static void test_errors(void **state)
{
    (void)state;
    float w[64] = {0};
    uint8_t c[256], s[64], z[64];
    nb_parts p = {c, 128, s, 16, z, 16};
    nb_error err;
    for (int f = 0; f < NB_FORMAT_COUNT; f++) {
        w[33] = NAN;
        assert_int_equal(nb_quantize_rows(nb_qtype_default((nb_format)f), w, 1, 64, 1, &p, &err), NB_E_INVALID);
        assert_string_equal(err.text, "row 0, column 33: the value is NaN");
        w[33] = -INFINITY;
        assert_int_equal(nb_quantize_rows(nb_qtype_default((nb_format)f), w, 2, 32, 1, &p, &err), NB_E_INVALID);
        w[33] = 0;
    }
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_INT4), w, 1, 48, 1, &p, &err), NB_E_INVALID);
    assert_true(isnan(nb_abs_max((float[]){1, NAN, INFINITY}, 3)));
    assert_true(isinf(nb_abs_max((float[]){1, -INFINITY, 3}, 3)));
    w[0] = 70000;
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_F16), w, 1, 64, 1, &p, &err), NB_E_INVALID);
    assert_non_null(strstr(err.text, "70000"));
    w[0] = 3.4e38f;
    assert_int_equal(nb_quantize_rows(nb_qtype_default(NB_BF16), w, 1, 64, 1, &p, &err), NB_E_INVALID);
    size_t a, b, d;
    assert_false(nb_parts_row_bytes(nb_qtype_default(NB_NVFP4), 24, &a, &b, &d));
    assert_false(nb_parts_row_bytes(nb_qtype_default(NB_F32), INT64_MAX / 2, &a, &b, &d));
    uint64_t big;
    assert_false(nb_rows16_bytes(nb_qtype_default(NB_F32), INT64_MAX, 1 << 20, &big));
    assert_true(nb_rows16_bytes(nb_qtype_default(NB_NVFP4), 16, 16, &big) && big == 288); /* K is padded to 32 */
    assert_true(nb_rows16_bytes(nb_qtype_default(NB_BF16), 17, 33, &big) && big == 2 * 2 * 1024);
}

/* The bytes of a second implementation of the quantisers (make_format_vectors.py). */
static void test_second_implementation(void **state)
{
    (void)state;
    float w[VECTOR_ROWS * VECTOR_K];
    memcpy(w, vector_weights, sizeof w);
    for (size_t i = 0; i < NB_COUNT(quantised); i++) {
        nb_qtype q;
        assert_int_equal(nb_qtype_parse(&q, quantised[i].type, NULL), NB_OK);
        q.scale_dtype = quantised[i].scale_dtype;
        matrix m = matrix_new(q, VECTOR_ROWS, VECTOR_K, 0);
        float a = nb_abs_max(w, NB_COUNT(w));
        nb_status st = q.format == NB_NVFP4 ? nb_quantize_nvfp4(w, VECTOR_ROWS, VECTOR_K, a, &m.p, NULL)
                                            : nb_quantize_rows(q, w, VECTOR_ROWS, VECTOR_K, 1, &m.p, NULL);
        assert_int_equal(st, NB_OK);
        assert_memory_equal(m.p.codes, quantised[i].codes, VECTOR_ROWS * m.c);
        assert_memory_equal(m.p.scales, quantised[i].scales, VECTOR_ROWS * m.s);
        if (m.b) assert_memory_equal(m.p.biases, quantised[i].biases, VECTOR_ROWS * m.b);
        matrix_free(&m);
    }
    print_message("           %zu weight types: bytes of the numpy implementation\n", NB_COUNT(quantised));
}

/* What MLX packed, read in our standard layout, is what MLX reads. Its affine product and sum are rounded twice, ours
 * once. */
static void test_mlx(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(foreign); i++) {
        nb_qtype q;
        assert_int_equal(nb_qtype_parse(&q, foreign[i].type, NULL), NB_OK);
        bool affine = foreign[i].biases != NULL;
        if (affine) q.scale_dtype = NB_DT_F32;
        matrix m = matrix_new(q, VECTOR_ROWS, VECTOR_K, 0);
        float got[VECTOR_ROWS * VECTOR_K];
        memcpy(m.p.codes, foreign[i].codes, VECTOR_ROWS * m.c);
        memcpy(m.p.scales, foreign[i].scales, VECTOR_ROWS * m.s);
        if (m.b) memcpy(m.p.biases, foreign[i].biases, VECTOR_ROWS * m.b);
        nb_dequantize_rows(q, &m.p, VECTOR_ROWS, VECTOR_K, 1, got);
        for (size_t e = 0; e < NB_COUNT(got); e++) {
            float want = nb_f32_bits(foreign[i].values[e]);
            if (affine ? fabsf(got[e] - want) > 2e-7f : got[e] != want)
                fail_msg("%s element %zu: %a, MLX has %a", foreign[i].type, e, (double)got[e], (double)want);
        }
        matrix_free(&m);
    }
    print_message("           %zu modes and groups as MLX packs and reads them\n", NB_COUNT(foreign));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e4m3),
        cmocka_unit_test(test_e8m0),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_e2m1),
        cmocka_unit_test(test_half_and_others),
        cmocka_unit_test(test_dtypes),
        cmocka_unit_test(test_nvfp4),
        cmocka_unit_test(test_nvfp4_maximum_recovered),
        cmocka_unit_test(test_mx),
        cmocka_unit_test(test_affine),
        cmocka_unit_test(test_fp8),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_second_implementation),
        cmocka_unit_test(test_mlx),
    };
    return cmocka_run_group_tests_name("format: golden vectors of specs/create.md 9.2 to 9.4", tests, NULL, NULL);
}
