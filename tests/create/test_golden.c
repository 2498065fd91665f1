/* Golden tests of specs/create.md 9.5 to 9.7: what each producer's tensors become, byte by byte in the standard layout
 * and by value in rows16. */
#include "create/fixture.h"
#include "create/stored.h"

#include <math.h>

static void words(uint8_t *p, const uint32_t *w, size_t n)
{
    for (size_t i = 0; i < n; i++) nb_store_u32(p + 4 * i, w[i]);
}

static void put_f32(uint8_t *p, const float *v, size_t n)
{
    for (size_t i = 0; i < n; i++) nb_store_u32(p + 4 * i, nb_bits_f32(v[i]));
}

/* ---- FP8 ---- */

static void f1_blocks(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t s[16];
    put_f32(s, (float[]){1, 2, 3, 4}, 4);
    fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}");
    fx_fill(x, "l.weight", NB_DT_F8_E4M3, "129,130", 0x38);
    fx_add(x, "l.weight_scale_inv", NB_DT_F32, "2,2", s);
    fx_save(x, "model.safetensors");
    nb_create_options o = fx_options(x);
    o.allow_requantize = true;
    o.layout = NB_LAYOUT_STANDARD;
    assert_int_equal(nb_create_parse_request(&o, "none", &x->err), NB_OK);
    fx_ok(x, fx_run(x, &o));
    fx_blob b = fx_open(x, "l.weight");
    fx_meta(&b, "quant_type", "fp8_block");
    fx_expect(&b, "l.weight.block_scale", NB_DT_F32, "2,2", s);
    fx_close(&b);
    fx_free(x);
}

static void f2_powers_of_two(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t s[16], want[256 * 8], codes[256 * 256];
    put_f32(s, (float[]){0.25f, 2, 1, 4}, 4);
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(i % 0x7f);
    for (size_t r = 0; r < 256; r++)
        for (size_t g = 0; g < 8; g++) want[r * 8 + g] = r < 128 ? g < 4 ? 0x7d : 0x80 : g < 4 ? 0x7f : 0x81;
    fx_plain_config(x, "");
    fx_add(x, "l.weight", NB_DT_F8_E4M3, "256,256", codes);
    fx_add(x, "l.weight_scale_inv", NB_DT_F32, "2,2", s);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_expect(&b, "l.weight", NB_DT_U32, "256,64", codes);
    fx_expect(&b, "l.weight.scale", NB_DT_U8, "256,8", want);
    fx_meta(&b, "quant_type", "mxfp8");
    fx_close(&b);
    fx_free(x);
}

static void f3_to_f5_scales(void **state)
{
    (void)state;
    static const struct {
        const char *dims;
        size_t n;
        const char *type;
    } rows[] = {
        {"4,1", 4, "fp8_channel"}, {"4", 4, "fp8_channel"},      {"", 1, "fp8_tensor"},
        {"1", 1, "fp8_tensor"},    {"1,1,1,1", 1, "fp8_tensor"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        uint8_t s[16];
        put_f32(s, (float[]){1.5f, 2.5f, 3.5f, 4.5f}, 4);
        fx_plain_config(x, "");
        fx_fill(x, "l.weight", NB_DT_F8_E4M3, "4,64", 0x38);
        fx_add(x, "l.weight_scale", NB_DT_F32, rows[i].dims, s);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_blob b = fx_open(x, "l.weight");
        fx_meta(&b, "quant_type", rows[i].type);
        fx_expect(&b, rows[i].n == 4 ? "l.weight.row_scale" : "l.weight.global_scale", NB_DT_F32,
                  rows[i].n == 4 ? "4" : "1", s);
        fx_close(&b);
        fx_free(x);
    }
    fx *x = fx_new(); /* F5: [2,1,3,1] is [2,3] */
    uint8_t s[24];
    put_f32(s, (float[]){1, 3, 5, 6, 7, 9}, 6);
    fx_plain_config(x, "");
    fx_fill(x, "l.weight", NB_DT_F8_E4M3, "200,384", 0x38);
    fx_add(x, "l.weight_scale", NB_DT_F32, "2,1,3,1", s);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_expect(&b, "l.weight.block_scale", NB_DT_F32, "2,3", s);
    fx_close(&b);
    fx_free(x);
}

static void f6_e5m2(void **state)
{
    (void)state;
    for (int bad = 0; bad < 2; bad++) {
        fx *x = fx_new();
        float one = 1;
        uint8_t w[32];
        memset(w, 0x3c, sizeof w);
        w[1] = bad ? 0x7c : 0x7b;
        fx_plain_config(x, "");
        fx_add(x, "l.weight", NB_DT_F8_E5M2, "1,32", w);
        fx_add(x, "l.weight_scale", NB_DT_F32, "1", &one);
        fx_save(x, "model.safetensors");
        nb_status st = fx_create(x, "none");
        if (bad) {
            fx_fails(x, st, NB_E_INVALID, "E_NONFINITE");
            fx_nothing_left(x);
        } else {
            fx_ok(x, st);
            fx_blob b = fx_open(x, "l.weight");
            const nb_st_tensor *t = fx_tensor(&b, "l.weight");
            assert_int_equal(nb_load_u16(b.map.p + t->off), 0x3f80);
            assert_true(nb_bf16_decode(nb_load_u16(b.map.p + t->off + 2)) == 57344.0f);
            fx_close(&b);
        }
        fx_free(x);
    }
}

static void f7_errors(void **state)
{
    (void)state;
    uint8_t s[64] = {0};
    fx *x = fx_new();
    fx_plain_config(x, "");
    fx_fill(x, "l.weight", NB_DT_F8_E4M3, "32,32", 0x38);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_FP8_META");
    fx_clear(x);
    fx_add(x, "l.weight_scale_inv", NB_DT_F32, "2,2", s);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_ORPHAN_COMPANION");
    fx_clear(x);
    fx_fill(x, "l.weight", NB_DT_F8_E4M3, "300,300", 0x38);
    fx_add(x, "l.weight_scale_inv", NB_DT_F32, "2,2", s);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_FP8_META");
    fx_nothing_left(x);
    fx_free(x);
}

static void f8_mxfp8(void **state)
{
    (void)state;
    static const char *const names[] = {"l.weight_scale", "l.weight_scale_inv"};
    for (size_t i = 0; i < 2; i++) {
        fx *x = fx_new();
        uint8_t w[64], s[2] = {0x7f, 0x80};
        for (int k = 0; k < 64; k++) w[k] = (uint8_t)(k + 1);
        fx_plain_config(x, "");
        fx_add(x, "l.weight", NB_DT_F8_E4M3, "2,32", w);
        fx_add(x, names[i], NB_DT_U8, "2,1", s);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_blob b = fx_open(x, "l.weight");
        fx_expect(&b, "l.weight", NB_DT_U32, "2,8", w);
        fx_expect(&b, "l.weight.scale", NB_DT_U8, "2,1", s);
        fx_meta(&b, "quant_type", "mxfp8");
        fx_meta(&b, "group_size", "32");
        fx_close(&b);
        fx_free(x);
    }
}

/* ---- integers ---- */

static const nb_qtype int4_f32 = {NB_INT4, NB_DT_F32, 32};

static void i1_to_i3_packed(void **state)
{
    (void)state;
    for (int asym = 0; asym < 2; asym++) {
        fx *x = fx_new();
        uint8_t w[16];
        float scale = 0.5f, v[32];
        int64_t shape[2] = {1, 32};
        words(w, (uint32_t[]){0x76543210, 0x76543210, 0x76543210, 0x76543210}, 4);
        fx_plain_config(x, asym ? "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
                                  "\"g\":{\"weights\":{\"num_bits\":4,\"symmetric\":false}}}}"
                                : "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{"
                                  "\"g\":{\"weights\":{\"num_bits\":4,\"symmetric\":true}}}}");
        fx_add(x, "l.weight_packed", NB_DT_I32, "1,4", w);
        fx_add(x, "l.weight_scale", NB_DT_F32, "1,1", &scale);
        fx_add(x, "l.weight_shape", NB_DT_I64, "2", shape);
        uint32_t zero = 3;
        if (asym) fx_add(x, "l.weight_zero_point", NB_DT_I32, "1,1", &zero);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_blob b = fx_open(x, "l.weight");
        fx_expect(&b, "l.weight", NB_DT_U32, "1,4", w);
        assert_true(fx_f32(&b, "l.weight.bias", 0) == (asym ? -1.5f : -4.0f));
        fx_values(&b, "l.weight", int4_f32, 1, 32, v);
        for (int i = 0; i < 8; i++) assert_true(v[i] == (asym ? -1.5f : -4.0f) + 0.5f * (float)i);
        fx_close(&b);
        fx_free(x);
    }
    fx *x = fx_new(); /* I3: zero points along the rows */
    uint8_t w[8 * 16] = {0}, s[32];
    uint32_t zero = 0x76543210;
    int64_t shape[2] = {8, 32};
    put_f32(s, (float[]){1, 1, 1, 1, 1, 1, 1, 1}, 8);
    fx_plain_config(
        x, "\"quantization_config\":{\"config_groups\":{\"g\":{\"weights\":{\"num_bits\":4,\"symmetric\":false}}}}");
    fx_add(x, "l.weight_packed", NB_DT_I32, "8,4", w);
    fx_add(x, "l.weight_scale", NB_DT_F32, "8,1", s);
    fx_add(x, "l.weight_shape", NB_DT_I64, "2", shape);
    fx_add(x, "l.weight_zero_point", NB_DT_I32, "1,1", &zero);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    for (size_t r = 0; r < 8; r++) assert_true(fx_f32(&b, "l.weight.bias", r) == -(float)r); /* code r means zero */
    fx_close(&b);
    fx_free(x);
}

/* 8 outputs, 32 inputs, one group of 32: a GPTQ word holds 8 inputs of one output. */
static void q_gptq(void **state)
{
    (void)state;
    for (int v2 = 0; v2 < 2; v2++) {
        fx *x = fx_new();
        uint8_t w[4 * 8 * 4], s[16];
        uint32_t zeros = v2 ? 0x88888888u : 0x77777777u;
        float v[8 * 32];
        for (size_t i = 0; i < 32; i++) nb_store_u32(w + 4 * i, 0x76543210);
        for (size_t i = 0; i < 8; i++) nb_store_u16(s + 2 * i, nb_f16_encode(0.5f));
        fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}");
        fx_add(x, "l.qweight", NB_DT_I32, "4,8", w);
        fx_add(x, "l.qzeros", NB_DT_I32, "1,1", &zeros);
        fx_add(x, "l.scales", NB_DT_F16, "1,8", s);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_blob b = fx_open(x, "l.weight");
        const nb_st_tensor *t = fx_tensor(&b, "l.weight");
        assert_int_equal(nb_load_u32(b.map.p + t->off), 0x76543210);
        fx_values(&b, "l.weight", (nb_qtype){NB_INT4, NB_DT_F16, 32}, 8, 32, v);
        for (int i = 0; i < 8 * 32; i++) assert_true(v[i] == -4.0f + 0.5f * (float)(i % 8));
        fx_close(&b);
        fx_free(x);
    }
}

static void q3_group_index(void **state)
{
    (void)state;
    for (int mixed = 0; mixed < 3; mixed++) {
        fx *x = fx_new();
        int32_t g[64];
        for (int i = 0; i < 64; i++) g[i] = mixed == 0 ? i / 32 : mixed == 1 ? 1 - i % 2 : i < 63 ? i / 32 : 7;
        uint8_t w[8 * 8 * 4] = {0}, s[32] = {0}, z[8];
        words(z, (uint32_t[]){0x77777777u, 0x77777777u}, 2);
        fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}");
        fx_add(x, "l.qweight", NB_DT_I32, "8,8", w);
        fx_add(x, "l.qzeros", NB_DT_I32, "2,1", z);
        fx_add(x, "l.scales", NB_DT_F16, "2,8", s);
        fx_add(x, "l.g_idx", NB_DT_I32, "64", g);
        fx_save(x, "model.safetensors");
        nb_status st = fx_create(x, "none");
        if (mixed == 0) fx_ok(x, st);
        if (mixed == 1) fx_fails(x, st, NB_E_INVALID, "E_REQUANT");
        if (mixed == 2) fx_fails(x, st, NB_E_INVALID, "out of range");
        fx_free(x);
    }
}

static void a1_awq(void **state)
{
    (void)state;
    static const float want[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    fx *x = fx_new();
    uint8_t w[32 * 4], s[16];
    uint32_t zeros = 0;
    float v[8 * 32];
    for (size_t i = 0; i < 32; i++) nb_store_u32(w + 4 * i, 0x76543210);
    for (size_t i = 0; i < 8; i++) nb_store_u16(s + 2 * i, nb_f16_encode(1.0f));
    fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemm\"}");
    fx_add(x, "l.qweight", NB_DT_I32, "32,1", w);
    fx_add(x, "l.qzeros", NB_DT_I32, "1,1", &zeros);
    fx_add(x, "l.scales", NB_DT_F16, "1,8", s);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    const nb_st_tensor *t = fx_tensor(&b, "l.weight.scale");
    fx_values(&b, "l.weight", (nb_qtype){NB_INT4, (uint8_t)t->dtype, 32}, 8, 32, v);
    for (int o = 0; o < 8; o++) assert_true(v[o * 32] == want[o]);
    fx_close(&b);
    fx_free(x);
}

static void m1_modelopt_int4(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t s[8];
    float v[64];
    put_f32(s, (float[]){1, 1}, 2);
    fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A16_AWQ\"}");
    fx_fill(x, "l.weight", NB_DT_U8, "1,32", 0x9f);
    fx_add(x, "l.weight_scale", NB_DT_F32, "2,1", s);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_values(&b, "l.weight", int4_f32, 2, 32, v);
    assert_true(v[0] == -1 && v[31] == -1 && v[32] == -7 && v[63] == -7);
    fx_close(&b);
    fx_free(x);
}

static void b1_int8(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t w[32] = {0x80, 0, 0x7f}, want[32];
    float scale = 0.5f, v[32];
    for (int i = 0; i < 32; i++) want[i] = w[i] ^ 0x80;
    fx_plain_config(x, "");
    fx_add(x, "l.weight", NB_DT_I8, "1,32", w);
    fx_add(x, "l.weight_scale", NB_DT_F32, "1,1", &scale);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_expect(&b, "l.weight", NB_DT_U32, "1,8", want);
    assert_true(fx_f32(&b, "l.weight.bias", 0) == -64.0f);
    fx_values(&b, "l.weight", (nb_qtype){NB_INT8, NB_DT_F32, 32}, 1, 32, v);
    assert_true(v[0] == -64 && v[1] == 0 && v[2] == 63.5f);
    fx_close(&b);
    fx_free(x);
}

/* Symmetric codes keep F16 scales as long as the bias, -128 of them, is finite in F16. */
static void int8_wide_scales(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t w[32] = {0x80, 0, 0x7f};
    for (int big = 0; big < 2; big++) {
        const uint16_t scale = big ? 0xe000 : 0x5fff; /* -512, 511.75 */
        float s = big ? -512.0f : 511.75f, v[32];
        fx_clear(x);
        fx_plain_config(x, "");
        fx_add(x, "l.weight", NB_DT_I8, "1,32", w);
        fx_add(x, "l.weight_scale", NB_DT_F16, "1,1", &scale);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_blob b = fx_open(x, "l.weight");
        fx_expect(&b, "l.weight.scale", big ? NB_DT_F32 : NB_DT_F16, "1,1", NULL);
        fx_values(&b, "l.weight", (nb_qtype){NB_INT8, big ? NB_DT_F32 : NB_DT_F16, 32}, 1, 32, v);
        assert_true(v[0] == -128 * s && v[1] == 0 && v[2] == 127 * s);
        fx_close(&b);
    }
    fx_free(x);
}

/* A finite scale whose bias would be infinite. */
static void int8_huge_scale(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t w[32] = {0x80, 0, 0x7f};
    float scale = 1e37f;
    for (int decoded = 0; decoded < 2; decoded++) {
        fx_clear(x);
        fx_plain_config(x, "");
        fx_add(x, "l.weight", NB_DT_I8, decoded ? "2,16" : "1,32", w);
        fx_add(x, "l.weight_scale", NB_DT_F32, "1", &scale);
        fx_save(x, "model.safetensors");
        fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "the scale 1e+37 times its zero point is too large (E_SCALE_NAN)");
        fx_nothing_left(x);
    }
    fx_free(x);
}

/* A scale below zero: no multiplier of the tensor, but of each row, and no value is rounded. Of two experts one has it. */
static void fp8_negative_scale(void **state)
{
    (void)state;
    fx *x = fx_new();
    float s[2] = {-0.3f, 0.7f};
    uint8_t codes[32 * 4] = {0x38, 0xb8, 0x7e, 0x01};
    fx_plain_config(x, "");
    fx_add(x, "l.weight", NB_DT_F8_E4M3, "4,32", codes);
    fx_add(x, "l.weight_scale", NB_DT_F32, "1", &s[0]);
    for (int e = 0; e < 2; e++) {
        fx_add(x, e ? "a.mlp.experts.1.up_proj.weight" : "a.mlp.experts.0.up_proj.weight", NB_DT_F8_E4M3, "4,32", codes);
        fx_add(x, e ? "a.mlp.experts.1.up_proj.weight_scale" : "a.mlp.experts.0.up_proj.weight_scale", NB_DT_F32, "1", &s[e]);
    }
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_meta(&b, "quant_type", "fp8_channel");
    fx_expect(&b, "l.weight.row_scale", NB_DT_F32, "4", (float[]){s[0], s[0], s[0], s[0]});
    fx_expect(&b, "l.weight", NB_DT_U32, "4,8", codes);
    fx_close(&b);
    b = fx_open(x, "a.mlp.experts");
    fx_meta(&b, "quant_type", "fp8_channel");
    fx_expect(&b, "a.mlp.experts.up_proj.weight.row_scale", NB_DT_F32, "2,4", (float[]){s[0], s[0], s[0], s[0], s[1], s[1], s[1], s[1]});
    fx_close(&b);
    fx_free(x);
}

static void o1_gpt_oss(void **state)
{
    (void)state;
    static const float want[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};
    static const uint8_t block[16] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
    fx *x = fx_new();
    uint8_t scale = 0x80;
    float v[32];
    fx_plain_config(x, "");
    fx_add(x, "l.experts.w_blocks", NB_DT_U8, "1,1,16", block);
    fx_add(x, "l.experts.w_scales", NB_DT_U8, "1,1", &scale);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.experts.w");
    fx_values(&b, "l.experts.w", nb_qtype_default(NB_MXFP4), 1, 32, v);
    for (int i = 0; i < 32; i++) assert_true(v[i] == (i < 16 ? want[i] : 0.0f));
    fx_close(&b);
    fx_free(x);
}

static size_t warned(const fx *x, const char *part)
{
    size_t n = 0;
    for (size_t i = 0; i < x->report.n_warnings; i++)
        for (size_t k = 0; k + strlen(part) <= x->report.warnings[i].text.n; k++)
            n += !memcmp(x->report.warnings[i].text.p + k, part, strlen(part));
    return n;
}

/* Blocks whose scales no format holds become zero, and the report counts them. */
static void zeroed_blocks(void **state)
{
    (void)state;
    fx *x = fx_new();
    const uint8_t mx4[3] = {15, 16, 1}, mx8[3] = {0, 16, 127};
    float v[96];
    fx_plain_config(x, "");
    fx_fill(x, "l.w_blocks", NB_DT_U8, "1,3,16", 0x22);
    fx_add(x, "l.w_scales", NB_DT_U8, "1,3", mx4);
    fx_fill(x, "k.weight", NB_DT_F8_E4M3, "1,96", 0x38);
    fx_add(x, "k.weight_scale", NB_DT_U8, "1,3", mx8);
    fx_save(x, "model.safetensors");
    for (int type = 0; type < 2; type++) {
        nb_create_options o = fx_options(x);
        o.allow_requantize = type;
        fx_ok(x, nb_create_parse_request(&o, "none", &x->err));
        o.types = type ? "l.w=nvfp4" : NULL;
        fx_ok(x, fx_run(x, &o));
        assert_int_equal(warned(x, "2 blocks with a scale below 2^-111 became zero"), 1);
        assert_int_equal(warned(x, "1 blocks with a scale below 2^-111 became zero"), 1);
        if (type) continue;
        fx_blob b = fx_open(x, "l.w");
        fx_values(&b, "l.w", nb_qtype_default(NB_MXFP4), 1, 96, v);
        assert_true(v[0] == 0 && v[32] == 0x1p-111f && v[64] == 0);
        fx_close(&b);
    }
    fx_free(x);
}

/* DeepSeek-V4: codes in I8, scales in F8_E8M0, experts named w1, w3, w2. */
static void o2_deepseek(void **state)
{
    (void)state;
    static const char *const proj[] = {"w1", "w2", "w3"};
    static char names[3][2][64];
    fx *x = fx_new();
    fx_plain_config(x, "");
    for (int i = 0; i < 3; i++) {
        snprintf(names[i][0], 64, "layers.0.ffn.experts.0.%s.weight", proj[i]);
        snprintf(names[i][1], 64, "layers.0.ffn.experts.0.%s.scale", proj[i]);
        fx_fill(x, names[i][0], NB_DT_I8, "32,16", (uint8_t)(0x21 + i));
        fx_fill(x, names[i][1], NB_DT_F8_E8M0, "32,1", 0x80);
    }
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "layers.0.mlp.experts");
    fx_meta(&b, "quant_type", "mxfp4");
    fx_expect(&b, "layers.0.mlp.experts.gate_proj.weight", NB_DT_U32, "1,32,4", NULL);
    const nb_st_tensor *up = fx_tensor(&b, "layers.0.mlp.experts.up_proj.weight");
    assert_non_null(up);
    assert_int_equal(b.map.p[up->off], 0x23); /* w3 is up */
    fx_close(&b);
    fx_free(x);
}

/* ---- planning ---- */

static void p1_mlx(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t w[2 * 64], s[16], z[16];
    for (size_t i = 0; i < sizeof w; i++) w[i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < 8; i++) {
        nb_store_u16(s + 2 * i, nb_bf16_encode(0.5f));
        nb_store_u16(z + 2 * i, nb_bf16_encode(-1.0f));
    }
    fx_plain_config(x, "\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"affine\"}");
    fx_add(x, "l.weight", NB_DT_U32, "2,16", w);
    fx_add(x, "l.scales", NB_DT_BF16, "2,4", s);
    fx_add(x, "l.biases", NB_DT_BF16, "2,4", z);
    fx_fill(x, "norm.weight", NB_DT_BF16, "8", 0x3f);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    assert_int_equal(b.f.n, 3);
    fx_expect(&b, "l.weight", NB_DT_U32, "2,16", w);
    fx_expect(&b, "l.weight.scale", NB_DT_BF16, "2,4", s);
    fx_expect(&b, "l.weight.bias", NB_DT_BF16, "2,4", z);
    fx_meta(&b, "quant_type", "int4");
    fx_meta(&b, "group_size", "32");
    fx_close(&b);
    b = fx_open(x, "norm.weight");
    fx_expect(&b, "norm.weight", NB_DT_BF16, "8", NULL);
    fx_meta(&b, "quant_type", NULL);
    fx_close(&b);
    fx_free(x);
}

/* P2 to P4: ModelOpt and compressed-tensors, with ignored companions. The group size is always written, where P2's row
 * gave none. */
static void p2_to_p4_nvfp4(void **state)
{
    (void)state;
    for (int ct = 0; ct < 2; ct++) {
        fx *x = fx_new();
        float g = ct ? 4.0f : 0.25f, m = 0.25f, half = 0.5f;
        fx_plain_config(x, "");
        fx_fill(x, ct ? "l.weight_packed" : "l.weight", NB_DT_U8, "128,128", 0x77);
        fx_fill(x, "l.weight_scale", NB_DT_F8_E4M3, "128,16", 0x38);
        fx_add(x, ct ? "l.weight_global_scale" : "l.weight_scale_2", NB_DT_F32, ct ? "1" : "", &g);
        fx_add(x, "l.input_scale", NB_DT_F32, "", &half);
        fx_add(x, "l.input_global_scale", NB_DT_F32, "1", &half);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_blob b = fx_open(x, "l.weight");
        fx_expect(&b, "l.weight", NB_DT_U32, "128,32", NULL);
        fx_expect(&b, "l.weight.scale", NB_DT_U8, "128,16", NULL);
        fx_expect(&b, "l.weight.global_scale", NB_DT_F32, "1", &m);
        fx_meta(&b, "quant_type", "nvfp4");
        fx_meta(&b, "group_size", "16");
        float *v = malloc(128 * 256 * sizeof *v);
        fx_values(&b, "l.weight", nb_qtype_default(NB_NVFP4), 128, 256, v);
        assert_true(v[0] == 1.5f); /* N4 */
        free(v);
        assert_int_equal(b.m.n_layers, 2); /* the weight and config.json */
        fx_close(&b);
        fx_free(x);
    }
}

static void p5_override(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_plain_config(x,
                    "\"quantization\":{\"bits\":4,\"group_size\":64,\"router.layer\":{\"bits\":8,\"group_size\":64}}");
    fx_add(x, "router.layer.weight", NB_DT_U32, "2,32", NULL);
    fx_add(x, "router.layer.scales", NB_DT_BF16, "2,2", NULL);
    fx_add(x, "router.layer.biases", NB_DT_BF16, "2,2", NULL);
    fx_add(x, "other.weight", NB_DT_U32, "2,16", NULL);
    fx_add(x, "other.scales", NB_DT_BF16, "2,2", NULL);
    fx_add(x, "other.biases", NB_DT_BF16, "2,2", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "router.layer.weight");
    fx_meta(&b, "quant_type", "int8");
    fx_meta(&b, "group_size", "64");
    fx_close(&b);
    b = fx_open(x, "other.weight");
    fx_meta(&b, "quant_type", "int4");
    fx_meta(&b, "group_size", "64");
    fx_close(&b);
    fx_free(x);
}

static void p6_collision(void **state)
{
    (void)state;
    fx *x = fx_new();
    float one = 1;
    fx_plain_config(x, "\"quantization\":{\"bits\":4,\"group_size\":64}");
    fx_add(x, "foo.weight", NB_DT_U32, "2,16", NULL);
    fx_add(x, "foo.scales", NB_DT_BF16, "2,2", NULL);
    fx_add(x, "foo.biases", NB_DT_BF16, "2,2", NULL);
    fx_add(x, "foo.weight_packed", NB_DT_U8, "2,64", NULL);
    fx_add(x, "foo.weight_scale", NB_DT_F8_E4M3, "2,8", NULL);
    fx_add(x, "foo.weight_global_scale", NB_DT_F32, "1", &one);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_COLLISION");
    fx_nothing_left(x);
    fx_free(x);
}

static void p7_int4_is_not_nvfp4(void **state)
{
    (void)state;
    fx *x = fx_new();
    int64_t shape[2] = {2, 64};
    fx_plain_config(x, "");
    fx_add(x, "l.weight_packed", NB_DT_I32, "2,8", NULL);
    fx_add(x, "l.weight_scale", NB_DT_BF16, "2,2", NULL);
    fx_add(x, "l.weight_shape", NB_DT_I64, "2", shape);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_meta(&b, "quant_type", "int4");
    fx_close(&b);
    fx_free(x);
}

static void p8_expert_names(void **state)
{
    (void)state;
    static const struct {
        const char *names[6];
        const char *code;
        const char *also;
    } rows[] = {
        {{"model.layers.0.mlp.experts.0.up_proj.weight", "model.layers.0.mlp.experts.1.up_proj.weight",
          "model.layers.0.mlp.experts.3.up_proj.weight"},
         "E_EXPERT_GAP",
         "index 2"},
        {{"model.layers.0.mlp.experts.01.up_proj.weight"}, "E_EXPERT_NAME", "01"},
        {{"model.layers.0.mlp.experts.0.gate_proj.weight", "model.layers.0.mlp.experts.1.gate_proj.weight",
          "model.layers.0.mlp.experts.0.up_proj.weight"},
         "E_EXPERT_COUNT",
         "up_proj"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        fx_plain_config(x, "");
        for (size_t k = 0; k < 6 && rows[i].names[k]; k++) fx_add(x, rows[i].names[k], NB_DT_BF16, "32,32", NULL);
        fx_save(x, "model.safetensors");
        fx_fails(x, fx_create(x, "none"), NB_E_INVALID, rows[i].code);
        assert_non_null(strstr(x->err.text, rows[i].also));
        fx_nothing_left(x);
        fx_free(x);
    }
}

static void p13_index(void **state)
{
    (void)state;
    static const struct {
        const char *index, *code;
    } rows[] = {
        {"{\"weight_map\":{\"a.weight\":\"model-1.safetensors\",\"x\":\"model-9.safetensors\"}}", "E_INCOMPLETE"},
        {"{\"weight_map\":{\"a.weight\":\"model-2.safetensors\",\"b.weight\":\"model-1.safetensors\"}}",
         "E_INDEX_MISMATCH"},
        {"{\"weight_map\":{\"a.weight\":\"../model-1.safetensors\"}}", "bare name"},
        {"{\"weight_map\":{\"a.weight\":\"model-1.safetensors\"}}", NULL},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        fx_plain_config(x, "");
        fx_add(x, "a.weight", NB_DT_BF16, "4,4", NULL);
        fx_add(x, "extra.weight", NB_DT_BF16, "4,4", NULL);
        fx_save(x, "model-1.safetensors");
        fx_clear(x);
        fx_add(x, "b.weight", NB_DT_BF16, "4,4", NULL);
        fx_save(x, "model-2.safetensors");
        fx_text(x, "model.safetensors.index.json", rows[i].index);
        nb_status st = fx_create(x, "none");
        if (rows[i].code)
            fx_fails(x, st, NB_E_INVALID, rows[i].code);
        else {
            fx_ok(x, st);
            assert_int_equal(x->report.n_tensors, 1);
        }
        fx_free(x);
    }
}

static void p14_cache_only(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"modelopt\",\"kv_cache_scheme\":{\"num_bits\":8}}");
    fx_random(x, "l.weight", "64,64", 1);
    fx_add(x, "l.k_scale", NB_DT_F32, "", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "int8"));
    assert_true(nb_str_is(x->report.source_kind, "float"));
    assert_int_equal(x->report.n_quantized, 1);
    assert_int_equal(x->report.n_dropped, 1);
    fx_free(x);
}

/* N5, N6: NaN and negative block scales of NVFP4. */
static void n5_n6_scales(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        fx *x = fx_new();
        float one = 1;
        uint8_t codes[8], scale = i == 2 ? 0xb8 : 0x7f, want_codes = i == 2 ? 0xa9 : 0x88,
                          want_scale = i == 2 ? 0x38 : 0;
        memset(codes, i == 0 ? 0x88 : 0x21, sizeof codes);
        fx_plain_config(x, "");
        fx_add(x, "l.weight", NB_DT_U8, "1,8", codes);
        fx_add(x, "l.weight_scale", NB_DT_F8_E4M3, "1,1", &scale);
        fx_add(x, "l.weight_scale_2", NB_DT_F32, "1", &one);
        fx_save(x, "model.safetensors");
        nb_status st = fx_create(x, "none");
        if (i == 1)
            fx_fails(x, st, NB_E_INVALID, "E_SCALE_NAN");
        else {
            fx_ok(x, st);
            fx_blob b = fx_open(x, "l.weight");
            fx_expect(&b, "l.weight.scale", NB_DT_U8, "1,1", &want_scale);
            const nb_st_tensor *t = fx_tensor(&b, "l.weight");
            assert_int_equal(b.map.p[t->off], want_codes);
            fx_close(&b);
        }
        fx_free(x);
    }
}

/* GPTQ v1: one is taken from whole words, so that a zero point of 0 borrows from its neighbour; quantize_config.json
 * may be the only config. */
static void q4_borrowed_zero(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t w[4 * 8 * 4] = {0}, s[16];
    uint32_t zeros = 0x76543210u - 0x11111111u; /* zero points 0 to 7 */
    for (size_t i = 0; i < 8; i++) nb_store_u16(s + 2 * i, nb_f16_encode(1.0f));
    fx_plain_config(x, "");
    fx_text(x, "quantize_config.json", "{\"bits\":4,\"group_size\":32,\"checkpoint_format\":\"gptq\"}");
    fx_add(x, "l.qweight", NB_DT_I32, "4,8", w);
    fx_add(x, "l.qzeros", NB_DT_I32, "1,1", &zeros);
    fx_add(x, "l.scales", NB_DT_F16, "1,8", s);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    for (size_t o = 0; o < 8; o++) assert_true(fx_f32(&b, "l.weight.bias", o) == -(float)o);
    fx_close(&b);
    fx_free(x);
}

/* An expert that ModelOpt exported as all zero: multiplier 0, NaN scales, codes 7. A divisor without a value: refused,
 * or with --permissive 1 over zeros. */
static void dead_experts(void **state)
{
    (void)state;
    fx *x = fx_new();
    float zero = 0;
    uint8_t none[8] = {0};
    fx_plain_config(x, "");
    fx_fill(x, "l.weight", NB_DT_U8, "1,8", 0x77);
    fx_fill(x, "l.weight_scale", NB_DT_F8_E4M3, "1,1", 0xff);
    fx_add(x, "l.weight_scale_2", NB_DT_F32, "", &zero);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_expect(&b, "l.weight", NB_DT_U32, "1,2", none);
    fx_expect(&b, "l.weight.scale", NB_DT_U8, "1,1", none);
    fx_close(&b);
    for (int codes = 0; codes < 2; codes++)
        for (int permissive = 0; permissive < 2; permissive++) {
            fx_clear(x);
            fx_fill(x, "l.weight_packed", NB_DT_U8, "1,8", codes ? 0x21 : 0x80);
            fx_fill(x, "l.weight_scale", NB_DT_F8_E4M3, "1,1", 0x38);
            fx_add(x, "l.weight_global_scale", NB_DT_F32, "1", &zero);
            fx_save(x, "model.safetensors");
            nb_create_options o = fx_options(x);
            o.permissive = permissive;
            nb_status st = fx_run(x, &o);
            if (permissive && !codes)
                fx_ok(x, st);
            else
                fx_fails(x, st, NB_E_INVALID, "E_GLOBAL_INVALID");
        }
    fx_free(x);
}

/* Tables of others have a scale for every row, FP8 or INT8 (specs/qwen4_exp.md 2.4): nothing is rounded. */
static void ngram_rows(void **state)
{
    (void)state;
    static const struct {
        nb_dtype dt;
        const char *type;
        uint8_t code;
        float value;
    } rows[] = {{NB_DT_F8_E4M3, "fp8_channel", 0x3c, 1.5f}, {NB_DT_I8, "int8", 0xfd, -3.0f}};
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        float s[4] = {0.5f, 1, 2, 3}, v[4 * 160];
        nb_buf scratch = {0};
        nb_name name;
        nb_model_blobs b;
        fx_plain_config(x, "");
        fx_fill(x, "m.ple.ple_embedding.ngram_embedding.shard_0.weight", rows[i].dt, "4,160", rows[i].code);
        fx_add(x, "m.ple.ple_embedding.ngram_embedding.shard_0.weight_scale", NB_DT_F32, "4,1", s);
        fx_save(x, "model.safetensors");
        nb_create_options o = fx_options(x);
        o.layout = NB_LAYOUT_ROWS16;
        fx_ok(x, fx_run(x, &o));
        assert_true(x->report.tensors[0].lossless && !strncmp(x->report.tensors[0].type, rows[i].type, 4));
        assert_string_equal(x->report.tensors[0].layout, "rows1.1");
        fx_ok(x, nb_name_parse(&name, "t", &x->err));
        fx_ok(x, nb_blobs_open(&b, x->store, &name, &x->err));
        fx_ok(x, nb_stored_floats(&b.t[0], 0, 4, v, &scratch, &x->err));
        for (int k = 0; k < 4 * 160; k++) assert_true(v[k] == rows[i].value * s[k / 160]);
        nb_blobs_close(&b);
        nb_buf_free(&scratch);
        fx_free(x);
    }
}

/* An FP8 n-gram table: all shards share one scalar beside them; without it the table is an error. */
static void ngram_table(void **state)
{
    (void)state;
    fx *x = fx_new();
    float half = 0.5f;
    uint8_t s[2];
    nb_store_u16(s, nb_bf16_encode(0.5f));
    fx_plain_config(x, "");
    fx_fill(x, "m.ple.ple_embedding.ngram_embedding.shard_0.weight", NB_DT_F8_E4M3, "4,160", 0x38);
    fx_fill(x, "m.ple.ple_embedding.ngram_embedding.shard_1.weight", NB_DT_F8_E4M3, "4,160", 0x40);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_FP8_META");
    fx_add(x, "m.ple.ple_embedding.ngram_embedding.weight_scale", NB_DT_BF16, "1", s);
    fx_save(x, "model.safetensors");
    nb_create_options o = fx_options(x);
    o.layout = NB_LAYOUT_ROWS16;
    fx_ok(x, fx_run(x, &o));
    for (int i = 0; i < 2; i++) {
        char name[100], key[120];
        snprintf(name, sizeof name, "m.ple.ple_embedding.ngram_embedding.shard_%d.weight", i);
        fx_blob b = fx_open(x, name);
        snprintf(key, sizeof key, "%s.layout", name);
        fx_meta(&b, key, "rows1.1");
        snprintf(key, sizeof key, "%s.quant_type", name);
        fx_meta(&b, key, "fp8_tensor");
        snprintf(key, sizeof key, "%s.global_scale", name);
        fx_expect(&b, key, NB_DT_F32, "1", &half);
        fx_close(&b);
    }
    fx_free(x);
}

/* mlx-vlm's names and shapes of a Qwen4Exp: shards, depthwise kernels. */
static void mlx_vlm_names(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_plain_config(x, "\"quantization\":{\"bits\":4,\"group_size\":32}");
    fx_add(x, "m.ple.ple_embedding.ngram_embedding.shards.7.weight", NB_DT_U32, "4,20", NULL);
    fx_add(x, "m.ple.ple_embedding.ngram_embedding.shards.7.scales", NB_DT_BF16, "4,5", NULL);
    fx_add(x, "m.ple.ple_embedding.ngram_embedding.shards.7.biases", NB_DT_BF16, "4,5", NULL);
    fx_add(x, "m.linear_attn.conv1d.weight", NB_DT_BF16, "8,4,1", NULL);
    fx_save(x, "model.safetensors");
    nb_create_options o = fx_options(x);
    o.layout = NB_LAYOUT_ROWS16;
    fx_ok(x, fx_run(x, &o));
    fx_blob b = fx_open(x, "m.ple.ple_embedding.ngram_embedding.shard_7.weight");
    fx_meta(&b, "m.ple.ple_embedding.ngram_embedding.shard_7.weight.layout", "rows1.1");
    fx_meta(&b, "m.ple.ple_embedding.ngram_embedding.shard_7.weight.quant_type", "int4");
    fx_close(&b);
    b = fx_open(x, "m.linear_attn.conv1d.weight");
    fx_expect(&b, "m.linear_attn.conv1d.weight", NB_DT_BF16, "8,1,4", NULL);
    fx_close(&b);
    fx_free(x);
}

/* One expert's block scales happen to be powers of two, the other's are not: both are stored as FP8 blocks. */
static void fp8_experts_of_one_form(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t s[2][8];
    put_f32(s[0], (float[]){1, 2}, 2);
    put_f32(s[1], (float[]){3, 5}, 2);
    fx_plain_config(x, "");
    for (int e = 0; e < 2; e++) {
        fx_fill(x, e ? "a.mlp.experts.1.up_proj.weight" : "a.mlp.experts.0.up_proj.weight", NB_DT_F8_E4M3, "128,256",
                0x38);
        fx_add(x, e ? "a.mlp.experts.1.up_proj.weight_scale_inv" : "a.mlp.experts.0.up_proj.weight_scale_inv",
               NB_DT_F32, "1,2", s[e]);
    }
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "a.mlp.experts");
    fx_meta(&b, "quant_type", "fp8_block");
    fx_expect(&b, "a.mlp.experts.up_proj.weight.block_scale", NB_DT_F32, "2,1,2", s);
    fx_close(&b);
    fx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f1_blocks),
        cmocka_unit_test(f2_powers_of_two),
        cmocka_unit_test(f3_to_f5_scales),
        cmocka_unit_test(f6_e5m2),
        cmocka_unit_test(f7_errors),
        cmocka_unit_test(f8_mxfp8),
        cmocka_unit_test(i1_to_i3_packed),
        cmocka_unit_test(q_gptq),
        cmocka_unit_test(q3_group_index),
        cmocka_unit_test(a1_awq),
        cmocka_unit_test(m1_modelopt_int4),
        cmocka_unit_test(b1_int8),
        cmocka_unit_test(int8_wide_scales),
        cmocka_unit_test(int8_huge_scale),
        cmocka_unit_test(fp8_negative_scale),
        cmocka_unit_test(o1_gpt_oss),
        cmocka_unit_test(zeroed_blocks),
        cmocka_unit_test(o2_deepseek),
        cmocka_unit_test(p1_mlx),
        cmocka_unit_test(p2_to_p4_nvfp4),
        cmocka_unit_test(p5_override),
        cmocka_unit_test(p6_collision),
        cmocka_unit_test(p7_int4_is_not_nvfp4),
        cmocka_unit_test(p8_expert_names),
        cmocka_unit_test(p13_index),
        cmocka_unit_test(p14_cache_only),
        cmocka_unit_test(n5_n6_scales),
        cmocka_unit_test(q4_borrowed_zero),
        cmocka_unit_test(dead_experts),
        cmocka_unit_test(ngram_table),
        cmocka_unit_test(ngram_rows),
        cmocka_unit_test(fp8_experts_of_one_form),
        cmocka_unit_test(mlx_vlm_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
