/* Behaviours F-01 to F-32 of specs/flint.md 7, each test named after its id. Where a newer rule of specs/create.md 0.1
 * changes the result, the test keeps the id and says what differs: F-09 (an orphan companion is an error), F-11 and P2
 * (a stored quantised weight always has metadata), F-26 (rank 0 is [1]), F-27 (every architecture gets banks).
 *
 * Plans are looked at in the standard layout; `twin` imports the same source as rows16 and compares every value. */
#include "create/fixture.h"
#include "create/stored.h"

#define G "model.layers.0.mlp.experts"

static void flint_config(fx *x, const char *more)
{
    char text[2000];
    snprintf(text, sizeof text, "{\"architectures\":[\"FlintForCausalLM\"]%s%s}", *more ? "," : "", more);
    fx_text(x, "config.json", text);
}

enum {
    U32_WORDS = 1,
    U8_SCALES = 2,
    NO_GLOBAL = 4,
    FLOAT = 8,
    RANK0 = 16,
    TWO_GLOBALS = 32,
    BF16_GLOBAL = 64,
    AFFINE = 128,
    RANK3 = 256,
    I8_CODES = 512,
    ODD = 1024,
    WIDE = 2048
};

/* One expert's down_proj: 16 rows of 16 columns; what is odd about it is in flags. Codes and scales depend on the
 * expert. */
static void expert(fx *x, int e, int flags)
{
    static char names[64][4][100];
    char(*n)[100] = names[e];
    uint8_t codes[16 * 16], scales[16];
    float g[2] = {0.25f + (float)e, 1};
    memset(codes, 0x11 + e, sizeof codes);
    memset(scales, 0x38, sizeof scales);
    snprintf(n[0], 100, G ".%d.down_proj.weight", e);
    snprintf(n[1], 100, G ".%d.down_proj.%s", e, flags & AFFINE ? "scales" : "weight_scale");
    snprintf(n[2], 100, G ".%d.down_proj.%s", e, flags & AFFINE ? "biases" : "weight_scale_2");
    snprintf(n[3], 100, G ".%d.down_proj.input_scale", e);
    if (flags & FLOAT) {
        fx_add(x, n[0], NB_DT_BF16, "16,16", NULL);
        return;
    }
    if (flags & AFFINE) {
        fx_add(x, n[0], NB_DT_U32, "16,8", NULL);
        fx_add(x, n[1], NB_DT_BF16, "16,2", NULL);
        fx_add(x, n[2], NB_DT_BF16, "16,2", NULL);
        return;
    }
    nb_dtype dt = flags & U32_WORDS ? NB_DT_U32 : flags & I8_CODES ? NB_DT_I8 : NB_DT_U8;
    fx_add(x, n[0], dt,
           flags & RANK3       ? "1,16,8"
           : flags & ODD       ? "16,7"
           : flags & WIDE      ? "16,16"
           : flags & U32_WORDS ? "16,2"
                               : "16,8",
           codes);
    fx_add(x, n[1], flags & U8_SCALES ? NB_DT_U8 : NB_DT_F8_E4M3,
           flags & RANK3  ? "1,16,1"
           : flags & WIDE ? "16,2"
                          : "16,1",
           flags & WIDE ? NULL : scales);
    if (!(flags & NO_GLOBAL)) {
        uint8_t raw[8];
        nb_store_u32(raw, nb_bits_f32(g[0]));
        nb_store_u32(raw + 4, nb_bits_f32(g[1]));
        if (flags & BF16_GLOBAL) nb_store_u16(raw, nb_bf16_encode(g[0]));
        fx_add(x, n[2], flags & BF16_GLOBAL ? NB_DT_BF16 : NB_DT_F32,
               flags & TWO_GLOBALS ? "2"
               : flags & RANK0     ? ""
                                   : "1",
               raw);
    }
    fx_add(x, n[3], NB_DT_F32, "", NULL);
}

static nb_status bank(fx *x, int experts, int flags, int odd_one, int odd_flags)
{
    flint_config(x, "");
    for (int e = 0; e < experts; e++) expert(x, e, e == odd_one ? odd_flags : flags);
    fx_save(x, "model.safetensors");
    return fx_create(x, "none");
}

static void refused(int flags, int odd_flags, const char *code)
{
    fx *x = fx_new();
    nb_status st = bank(x, 2, flags, 1, odd_flags);
    fx_fails(x, st, NB_E_INVALID, code);
    fx_nothing_left(x);
    fx_free(x);
}

/* A dense ModelOpt or compressed-tensors weight under any architecture. */
static void dense(fx *x, const char *weight, nb_dtype wdt, const char *wdims, nb_dtype sdt, const char *sdims,
                  const char *global)
{
    static float g = 4.0f;
    fx_fill(x, weight, wdt, wdims, 0x21);
    fx_fill(x, "l.weight_scale", sdt, sdims, 0x38);
    if (global) fx_add(x, global, NB_DT_F32, "1", &g);
}

/* One matrix, expert by expert, whatever layout holds it: floats of the standard layout are plain stacks. */
static void values_of(fx *x, const nb_model_blobs *b, const nb_stored *like, float *out)
{
    nb_buf scratch = {0};
    const nb_stored *t = nb_blobs_find(b, like->name, like->expert);
    if (!t || !t->matrix) t = nb_blobs_find(b, like->name, 0);
    assert_non_null(t);
    if (t->matrix) {
        assert_true(t->n == like->n && t->k == like->k);
        fx_ok(x, nb_stored_floats(t, 0, t->n, out, &scratch, &x->err));
    } else {
        size_t n = (size_t)(like->n * like->k), elem = (size_t)nb_dtype_bits(t->dtype) / 8;
        assert_true(t->bytes >= n * elem * (size_t)(like->expert + 1));
        assert_true(nb_floats_decode(t->dtype, t->data + n * elem * (size_t)like->expert, n, out));
    }
    nb_buf_free(&scratch);
}

/* The source in hand, imported as rows16 beside what is stored as "t": every matrix has the same values. */
static void twin(fx *x)
{
    nb_model_blobs a, b;
    nb_name one, two;
    size_t matrices = 0;
    nb_create_options o = fx_options(x);
    o.name = "twin";
    o.layout = NB_LAYOUT_ROWS16;
    fx_ok(x, fx_run(x, &o));
    fx_ok(x, nb_name_parse(&one, "t", &x->err));
    fx_ok(x, nb_name_parse(&two, "twin", &x->err));
    fx_ok(x, nb_blobs_open(&a, x->store, &one, &x->err));
    fx_ok(x, nb_blobs_open(&b, x->store, &two, &x->err));
    for (size_t i = 0; i < b.n; i++) {
        const nb_stored *t = &b.t[i];
        if (!t->matrix) continue;
        size_t n = (size_t)(t->n * t->k);
        float *v = calloc(2 * n, sizeof *v);
        assert_non_null(v);
        values_of(x, &a, t, v);
        values_of(x, &b, t, v + n);
        assert_memory_equal(v, v + n, n * sizeof *v);
        free(v);
        matrices++;
    }
    assert_true(matrices > 0);
    nb_blobs_close(&a);
    nb_blobs_close(&b);
}

static void f01_order(void **state)
{
    (void)state;
    fx *x = fx_new();
    flint_config(x, "\"quantization\":{\"bits\":4,\"group_size\":32}");
    fx_add(x, "a.weight", NB_DT_U32, "2,4", NULL);
    fx_add(x, "a.scales", NB_DT_BF16, "2,1", NULL);
    fx_add(x, "a.biases", NB_DT_BF16, "2,1", NULL);
    dense(x, "l.weight", NB_DT_U8, "2,8", NB_DT_F8_E4M3, "2,1", "l.weight_scale_2");
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "a.weight");
    fx_meta(&b, "source", "mlx");
    fx_close(&b);
    b = fx_open(x, "l.weight");
    fx_meta(&b, "source", "modelopt-nvfp4");
    fx_close(&b);
    twin(x);
    fx_free(x);
}

/* One weight of each of the two FP4 producers, with both activation scales beside it. */
static void fused(fx *x, bool ct)
{
    flint_config(x, "");
    dense(x, ct ? "l.weight_packed" : "l.weight", NB_DT_U8, "2,8", NB_DT_F8_E4M3, "2,1",
          ct ? "l.weight_global_scale" : "l.weight_scale_2");
    fx_add(x, "l.input_scale", NB_DT_F32, "", NULL);
    fx_add(x, "l.input_global_scale", NB_DT_F32, "1", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
}

static void f02_names(void **state)
{
    (void)state;
    for (int ct = 0; ct < 2; ct++) {
        fx *x = fx_new();
        fused(x, ct);
        assert_int_equal(x->report.n_tensors, 1); /* nothing on its own */
        fx_blob b = fx_open(x, "l.weight");
        assert_int_equal(b.f.n, 3);
        fx_expect(&b, "l.weight", NB_DT_U32, "2,2", NULL);
        fx_expect(&b, "l.weight.scale", NB_DT_U8, "2,1", NULL);
        fx_expect(&b, "l.weight.global_scale", NB_DT_F32, "1", NULL);
        fx_close(&b);
        twin(x);
        fx_free(x);
    }
}

static void f03_bytes_to_words(void **state)
{
    (void)state;
    uint8_t codes[64];
    memset(codes, 0x21, sizeof codes);
    for (int ct = 0; ct < 2; ct++) { /* U8 */
        fx *x = fx_new();
        fused(x, ct);
        fx_blob b = fx_open(x, "l.weight");
        fx_expect(&b, "l.weight", NB_DT_U32, "2,2", codes);
        fx_close(&b);
        fx_free(x);
    }
    fx *x = fx_new(); /* E4M3 */
    flint_config(x, "");
    dense(x, "l.weight", NB_DT_F8_E4M3, "2,32", NB_DT_U8, "2,1", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_expect(&b, "l.weight", NB_DT_U32, "2,8", codes);
    fx_close(&b);
    twin(x);
    fx_free(x);
}

static void f04_words(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t codes[16];
    memset(codes, 0x21, sizeof codes);
    flint_config(x, "");
    dense(x, "l.weight", NB_DT_U32, "2,2", NB_DT_U8, "2,1", "l.weight_scale_2");
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_expect(&b, "l.weight", NB_DT_U32, "2,2", codes);
    fx_close(&b);
    twin(x);
    fx_free(x);
}

static void f05_scales_relabelled(void **state)
{
    (void)state;
    uint8_t scales[2] = {0x38, 0x38};
    for (int ct = 0; ct < 2; ct++) {
        fx *x = fx_new();
        fused(x, ct);
        fx_blob b = fx_open(x, "l.weight");
        fx_expect(&b, "l.weight.scale", NB_DT_U8, "2,1", scales);
        fx_close(&b);
        fx_free(x);
    }
}

static void f06_global_scale(void **state)
{
    (void)state;
    for (int ct = 0; ct < 2; ct++) {
        fx *x = fx_new();
        float m = ct ? 0.25f : 4.0f; /* compressed-tensors' is inverted */
        fused(x, ct);
        fx_blob b = fx_open(x, "l.weight");
        fx_expect(&b, "l.weight.global_scale", NB_DT_F32, "1", &m);
        fx_close(&b);
        twin(x);
        fx_free(x);
    }
}

static void f07_activation_scales(void **state)
{
    (void)state;
    static const char *const gone[] = {"l.input_scale", "l.input_global_scale"};
    for (int ct = 0; ct < 2; ct++) {
        fx *x = fx_new();
        fused(x, ct);
        assert_int_equal(x->report.n_dropped, 2);
        for (size_t i = 0; i < 2; i++) {
            fx_blob b = fx_open(x, gone[i]);
            assert_false(b.found);
            fx_close(&b);
        }
        fx_free(x);
    }
}

static void f08_mxfp8(void **state)
{
    (void)state;
    fx *x = fx_new();
    flint_config(x, "");
    dense(x, "l.weight", NB_DT_F8_E4M3, "2,32", NB_DT_U8, "2,1", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_meta(&b, "quant_type", "mxfp8");
    fx_meta(&b, "group_size", "32");
    fx_close(&b);
    twin(x);
    fx_free(x);
    x = fx_new(); /* with an E4M3 scale it is not */
    flint_config(x, "");
    dense(x, "l.weight", NB_DT_F8_E4M3, "2,32", NB_DT_F8_E4M3, "2,1", NULL);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_FP8_META");
    fx_free(x);
}

/* differs: the companion of a BF16 weight is an orphan, and an error */
static void f09_companion_of_float(void **state)
{
    (void)state;
    fx *x = fx_new();
    flint_config(x, "");
    dense(x, "l.weight", NB_DT_BF16, "2,16", NB_DT_F8_E4M3, "2,1", NULL);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_ORPHAN_COMPANION");
    fx_nothing_left(x);
    fx_free(x);
}

/* differs in the group: the tensors win over a config that contradicts them */
static void f10_forced_type(void **state)
{
    (void)state;
    fx *x = fx_new();
    flint_config(x, "\"quantization\":{\"bits\":4,\"group_size\":64,\"mode\":\"affine\"}");
    dense(x, "l.weight", NB_DT_U8, "2,8", NB_DT_F8_E4M3, "2,1", "l.weight_scale_2");
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_meta(&b, "quant_type", "nvfp4");
    fx_meta(&b, "group_size", "16");
    fx_close(&b);
    twin(x);
    fx_free(x);
}

/* differs: shapes that have one reading give the metadata; F-11's "none at all" remains for plain tensors */
static void f11_no_config(void **state)
{
    (void)state;
    fx *x = fx_new();
    flint_config(x, "");
    fx_add(x, "a.weight", NB_DT_U32, "2,3", NULL); /* ratio 3: int3, group 32 */
    fx_add(x, "a.scales", NB_DT_BF16, "2,1", NULL);
    fx_add(x, "a.biases", NB_DT_BF16, "2,1", NULL);
    fx_add(x, "norm.weight", NB_DT_F16, "8", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "a.weight");
    fx_meta(&b, "quant_type", "int3");
    fx_close(&b);
    b = fx_open(x, "norm.weight");
    fx_meta(&b, "quant_type", NULL);
    fx_meta(&b, "group_size", NULL);
    fx_close(&b);
    twin(x);
    fx_free(x);
    x = fx_new(); /* ratio 8 has several readings */
    flint_config(x, "");
    fx_add(x, "a.weight", NB_DT_U32, "2,8", NULL);
    fx_add(x, "a.scales", NB_DT_BF16, "2,1", NULL);
    fx_add(x, "a.biases", NB_DT_BF16, "2,1", NULL);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_QUANT_SHAPE");
    fx_free(x);
}

static void f12_unmatched_tensors(void **state)
{
    (void)state;
    static const nb_dtype types[] = {NB_DT_F16, NB_DT_BF16, NB_DT_F32};
    fx *x = fx_new();
    uint8_t raw[3][16 * 32 * 4];
    static const char *const vectors[] = {"norm.0.weight", "norm.1.weight", "norm.2.weight"}, *const matrices[] = {
                                                                                                  "m.0.weight",
                                                                                                  "m.1.weight",
                                                                                                  "m.2.weight"};
    flint_config(x, "");
    for (int t = 0; t < 3; t++) {
        for (size_t i = 0; i < sizeof raw[t]; i++) raw[t][i] = (uint8_t)(i * 7 % 60); /* no value is infinite */
        fx_add(x, vectors[t], types[t], "8", raw[t]);
        fx_add(x, matrices[t], types[t], "16,32", raw[t]);
    }
    dense(x, "l.weight", NB_DT_U8, "2,8", NB_DT_F8_E4M3, "2,1", "l.weight_scale_2");
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    for (int t = 0; t < 3; t++) {
        fx_blob b = fx_open(x, vectors[t]);
        fx_expect(&b, vectors[t], types[t], "8", raw[t]);
        fx_close(&b);
        b = fx_open(x, matrices[t]);
        fx_expect(&b, matrices[t], types[t], "16,32", raw[t]);
        fx_close(&b);
    }
    twin(x);
    fx_free(x);
}

/* A bank of twelve experts, more than ten so that numeric and textual order differ: its bytes in the blob. */
static void expect_bank(fx *x, int flags)
{
    uint8_t want[12 * 16 * 8], scales[12 * 16];
    for (size_t e = 0; e < 12; e++) memset(want + e * 128, 0x11 + (int)e, 128);
    memset(scales, 0x38, sizeof scales);
    fx_ok(x, bank(x, 12, flags, -1, 0));
    fx_blob b = fx_open(x, G);
    fx_expect(&b, G ".down_proj.weight", NB_DT_U32, "12,16,2", want);
    fx_expect(&b, G ".down_proj.weight.scale", NB_DT_U8, "12,16,1", scales);
    fx_expect(&b, G ".down_proj.weight.global_scale", NB_DT_F32, "12", NULL);
    fx_meta(&b, "quant_type", "nvfp4");
    assert_int_equal(b.m.n_layers, 2);
    fx_close(&b);
}

/* P9 */
static void f13_bank_bytes(void **state)
{
    (void)state;
    fx *x = fx_new();
    expect_bank(x, 0);
    twin(x);
    fx_free(x);
}

/* What the manifest names, of a bank with these flags. */
static void bank_digest(int flags, char out[65])
{
    fx *x = fx_new();
    expect_bank(x, flags);
    fx_blob b = fx_open(x, G);
    memcpy(out, nb_manifest_find(&b.m, G)->hex, 65);
    fx_close(&b);
    twin(x);
    fx_free(x);
}

static void f14_words_of_experts(void **state)
{
    (void)state;
    char bytes[65], words[65];
    bank_digest(0, bytes);
    bank_digest(U32_WORDS, words);
    assert_string_equal(bytes, words);
}

static void f15_scales_of_experts(void **state)
{
    (void)state;
    char e4m3[65], raw[65];
    bank_digest(0, e4m3);
    bank_digest(U8_SCALES, raw);
    assert_string_equal(e4m3, raw);
    bank_digest(U32_WORDS | U8_SCALES, raw);
    assert_string_equal(e4m3, raw);
}

/* P12: [] is [1] */
static void f16_global_scales(void **state)
{
    (void)state;
    static const int variants[] = {0, RANK0};
    for (size_t v = 0; v < NB_COUNT(variants); v++) {
        fx *x = fx_new();
        fx_ok(x, bank(x, 12, variants[v], -1, 0));
        fx_blob b = fx_open(x, G);
        fx_expect(&b, G ".down_proj.weight.global_scale", NB_DT_F32, "12", NULL);
        for (size_t e = 0; e < 12; e++)
            assert_true(fx_f32(&b, G ".down_proj.weight.global_scale", e) == 0.25f + (float)e);
        fx_close(&b);
        twin(x);
        fx_free(x);
    }
}

static void f17_numeric_order(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_ok(x, bank(x, 12, 0, -1, 0));
    fx_blob b = fx_open(x, G);
    const nb_st_tensor *t = fx_tensor(&b, G ".down_proj.weight");
    assert_non_null(t);
    for (size_t e = 0; e < 12; e++) /* 10 after 9, not after 1 */
        assert_int_equal((uint8_t)b.map.p[t->off + e * 128], 0x11 + e);
    fx_close(&b);
    fx_free(x);
}

static void f18_partial(void **state)
{
    (void)state;
    refused(0, FLOAT, "1 of 2");
    refused(FLOAT, 0, "E_EXPERT_PARTIAL");
}

static void f19_float_bank(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_ok(x, bank(x, 2, FLOAT, -1, 0));
    fx_blob b = fx_open(x, G);
    fx_expect(&b, G ".down_proj.weight", NB_DT_BF16, "2,16,16", NULL);
    fx_meta(&b, "quant_type", NULL);
    fx_close(&b);
    twin(x);
    fx_free(x);
}

static void f20_gap(void **state)
{
    (void)state;
    fx *x = fx_new();
    flint_config(x, "");
    expert(x, 0, 0);
    expert(x, 2, 0);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_EXPERT_GAP");
    fx_nothing_left(x);
    fx_free(x);
}

static void f21_affine_experts(void **state)
{
    (void)state;
    fx *x = fx_new();
    flint_config(x, "\"quantization\":{\"bits\":4,\"group_size\":32}");
    expert(x, 0, AFFINE);
    expert(x, 1, AFFINE);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "unsupported layout");
    fx_nothing_left(x);
    fx_free(x);
}

static void f22_no_global(void **state)
{
    (void)state;
    refused(0, NO_GLOBAL, "E_GLOBAL_MISSING");
}

static void f23_odd_weights(void **state)
{
    (void)state;
    refused(RANK3, RANK3, "E_EXPERT_NVFP4");
    refused(0, I8_CODES, "E_DTYPE_UNSUPPORTED");
    refused(0, ODD, "E_EXPERT_NVFP4");
}

static void f24_shapes(void **state)
{
    (void)state;
    refused(0, WIDE, "differs from expert 0");
    refused(0, TWO_GLOBALS, "E_EXPERT_NVFP4");
}

static void f25_scale_dtypes(void **state)
{
    (void)state;
    refused(0, U8_SCALES, "differs from expert 0");
}

static void f26_global_dtype(void **state)
{
    (void)state;
    refused(BF16_GLOBAL, BF16_GLOBAL, "E_EXPERT_NVFP4");
}

/* differs: NVFP4 banks are built for every architecture */
static void f27_other_architecture(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_plain_config(x, "");
    expert(x, 0, 0);
    expert(x, 1, 0);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, G);
    assert_true(b.found);
    fx_close(&b);
    twin(x);
    fx_free(x);
}

static nb_status embedding(fx *x, const char *arch, const char *export, bool quantised)
{
    char text[600];
    snprintf(text, sizeof text,
             "{\"architectures\":[\"%s\"],\"quantization\":{\"bits\":4,\"group_size\":128,\"other\":{\"bits\":4,"
             "\"group_size\":128}}%s%s}",
             arch, *export ? "," : "", export);
    fx_text(x, "config.json", text);
    if (quantised) {
        fx_add(x, "model.embed_tokens.weight", NB_DT_U32, "4,16", NULL);
        fx_add(x, "model.embed_tokens.scales", NB_DT_BF16, "4,1", NULL);
        fx_add(x, "model.embed_tokens.biases", NB_DT_BF16, "4,1", NULL);
    } else {
        fx_add(x, "model.embed_tokens.weight", NB_DT_BF16, "4,128", NULL);
    }
    fx_add(x, "other.weight", NB_DT_U32, "4,16", NULL);
    fx_add(x, "other.scales", NB_DT_BF16, "4,1", NULL);
    fx_add(x, "other.biases", NB_DT_BF16, "4,1", NULL);
    fx_save(x, "model.safetensors");
    return fx_create(x, "none");
}

static void f28_embedding_bits(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        fx *x = fx_new();
        fx_ok(x,
              embedding(x, "FlintForCausalLM",
                        bits == 4 ? "\"mlx_export\":{\"embedding_bits\":4}" : "\"mlx_export\":{\"embedding_bits\":8}",
                        true));
        fx_blob b = fx_open(x, "model.embed_tokens.weight");
        fx_meta(&b, "quant_type", bits == 4 ? "int4" : "int8");
        fx_meta(&b, "group_size", bits == 4 ? "128" : "64"); /* the group is what the shapes say */
        fx_close(&b);
        b = fx_open(x, "other.weight");
        fx_meta(&b, "quant_type", "int4");
        fx_close(&b);
        twin(x);
        fx_free(x);
    }
}

static void f29_bad_bits(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "\"mlx_export\":{}",
                                      "\"mlx_export\":{\"embedding_bits\":0}",
                                      "\"mlx_export\":{\"embedding_bits\":2}",
                                      "\"mlx_export\":{\"embedding_bits\":16}",
                                      "\"mlx_export\":{\"embedding_bits\":\"8\"}",
                                      "\"mlx_export\":7",
                                      "\"mlx_export\":{\"embedding_bits\":6}"};
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        fx *x = fx_new();
        nb_status st = embedding(x, "FlintForCausalLM", bad[i], true);
        fx_fails(x, st, NB_E_INVALID, "E_FLINT_EMBED_BITS");
        assert_non_null(strstr(x->err.text, "mlx_export"));
        fx_nothing_left(x);
        fx_free(x);
    }
}

static void f30_other_embeddings(void **state)
{
    (void)state;
    static const char bad[] = "\"mlx_export\":{\"embedding_bits\":99}";
    fx *x = fx_new();
    fx_ok(x, embedding(x, "FlintForCausalLM", bad, false)); /* BF16 */
    twin(x);
    fx_free(x);
    x = fx_new(); /* 8 bits, says the config: not int4 */
    char text[300];
    snprintf(text, sizeof text,
             "{\"architectures\":[\"FlintForCausalLM\"],\"quantization\":{\"bits\":8,\"group_size\":64},%s}", bad);
    fx_text(x, "config.json", text);
    fx_add(x, "model.embed_tokens.weight", NB_DT_U32, "4,16", NULL);
    fx_add(x, "model.embed_tokens.scales", NB_DT_BF16, "4,1", NULL);
    fx_add(x, "model.embed_tokens.biases", NB_DT_BF16, "4,1", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "model.embed_tokens.weight");
    fx_meta(&b, "quant_type", "int8");
    fx_close(&b);
    fx_free(x);
}

static void f31_other_architecture(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_ok(x, embedding(x, "TestForCausalLM", "\"mlx_export\":{\"embedding_bits\":99}", true));
    fx_blob b = fx_open(x, "model.embed_tokens.weight");
    fx_meta(&b, "quant_type", "int4");
    fx_close(&b);
    twin(x);
    fx_free(x);
}

static void f32_no_direct_nvfp4(void **state)
{
    (void)state;
    const char *data = getenv("NIBBLE_TEST_DATA");
    char path[600];
    snprintf(path, sizeof path, "%s/reference_models/flint", data && *data ? data : "../shared");
    if (!nb_path_is_dir(path)) {
        print_message("skipped 1 checkpoint: %s is not there\n", path);
        return;
    }
    fx *x = fx_new();
    static const char *const types[] = {"nvfp4", "int8:g32", "int4:g32", "mxfp4", "mxfp8", "none"};
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        nb_create_options o = fx_options(x);
        o.source = path;
        o.force = false;
        fx_ok(x, nb_create_parse_request(&o, types[i], &x->err));
        nb_status st = fx_run(x, &o);
        if (i == 0) {
            fx_fails(x, st, NB_E_INVALID, "E_POLICY_REFUSED");
            fx_nothing_left(x);
        } else {
            fx_ok(x, st);
        }
    }
    fx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(f01_order),
        cmocka_unit_test(f02_names),
        cmocka_unit_test(f03_bytes_to_words),
        cmocka_unit_test(f04_words),
        cmocka_unit_test(f05_scales_relabelled),
        cmocka_unit_test(f06_global_scale),
        cmocka_unit_test(f07_activation_scales),
        cmocka_unit_test(f08_mxfp8),
        cmocka_unit_test(f09_companion_of_float),
        cmocka_unit_test(f10_forced_type),
        cmocka_unit_test(f11_no_config),
        cmocka_unit_test(f12_unmatched_tensors),
        cmocka_unit_test(f13_bank_bytes),
        cmocka_unit_test(f14_words_of_experts),
        cmocka_unit_test(f15_scales_of_experts),
        cmocka_unit_test(f16_global_scales),
        cmocka_unit_test(f17_numeric_order),
        cmocka_unit_test(f18_partial),
        cmocka_unit_test(f19_float_bank),
        cmocka_unit_test(f20_gap),
        cmocka_unit_test(f21_affine_experts),
        cmocka_unit_test(f22_no_global),
        cmocka_unit_test(f23_odd_weights),
        cmocka_unit_test(f24_shapes),
        cmocka_unit_test(f25_scale_dtypes),
        cmocka_unit_test(f26_global_dtype),
        cmocka_unit_test(f27_other_architecture),
        cmocka_unit_test(f28_embedding_bits),
        cmocka_unit_test(f29_bad_bits),
        cmocka_unit_test(f30_other_embeddings),
        cmocka_unit_test(f31_other_architecture),
        cmocka_unit_test(f32_no_direct_nvfp4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
