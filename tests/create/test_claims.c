/* What the config says against what the tensors are: the tensors win and one warning names both; what fits no producer
 * is refused. specs/create.md 3.1, 3.16. */
#include "create/fixture.h"

/* NVFP4 as ModelOpt writes it: "l.0.q_proj" [2, 32]. */
static void modelopt(fx *x, const char *quant, float multiplier, uint8_t scale)
{
    char more[600];
    snprintf(more, sizeof more, "\"quantization_config\":%s", quant);
    fx_plain_config(x, more);
    fx_fill(x, "l.0.q_proj.weight", NB_DT_U8, "2,16", 0x21);
    fx_fill(x, "l.0.q_proj.weight_scale", NB_DT_F8_E4M3, "2,2", scale);
    fx_add(x, "l.0.q_proj.weight_scale_2", NB_DT_F32, "", &multiplier);
    fx_save(x, "model.safetensors");
}

static size_t warnings_with(const fx *x, const char *part)
{
    size_t n = 0;
    for (size_t i = 0; i < x->report.n_warnings; i++) n += nb_str_has(x->report.warnings[i].text, part);
    return n;
}

static void contradictions(void **state)
{
    (void)state;
    static const struct {
        const char *quant, *warning; /* NULL: none of them */
    } rows[] = {
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"ignore\":[\"lm_head\"]}", NULL},
        {"{\"quant_method\":\"awq\"}", "quant_method awq, the tensors are modelopt-nvfp4"},
        {"{\"quant_method\":\"zap\"}", "quant_method zap (unknown)"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"FP8\"}", "quant_algo FP8, the tensors are modelopt-nvfp4"},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"nvfp4\"}", NULL},
        {"{\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"l.0.q_proj\":{\"quant_algo\":\"NVFP4\",\"group_size\":16}}}", NULL},
        {"{\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{\"l.0.q_proj\":{\"quant_algo\":\"FP8\"},\"l.1.q_proj\":{\"quant_algo\":\"FP8\"}}}",
         "quantized_layers.*.quant_algo FP8 of 1 modules, this one first, whose tensors are modelopt-nvfp4"},
        {"{\"quantized_layers\":{\"model.l.0.q_proj\":{\"quant_algo\":\"W4A16_AWQ\"}}}", "quant_algo W4A16_AWQ of 1 modules"},
        {"{\"quantized_layers\":{\"l.0.q_proj\":{\"quant_algo\":\"zap\"},\"q_proj\":{\"quant_algo\":\"FP8\"}}}", NULL},
        {"{\"quantized_layers\":{\"l.0.q_proj\":{},\"x\":7}}", NULL},
        {"{\"quantized_layers\":[1]}", NULL},
        {"{\"ignore\":[\"l.0.q_proj\"]}", "lists 1 modules as not quantised"},
        {"{\"exclude_modules\":[\"*q_p*\"]}", "lists 1 modules as not quantised"},
        {"{\"modules_to_not_convert\":[\"q_proj\"]}", "lists 1 modules as not quantised"},
        {"{\"ignore\":[\"re:.*\\\\.q_proj$\"]}", "lists 1 modules as not quantised"},
        {"{\"ignore\":[\"re:^l\"]}", "lists 1 modules as not quantised"},
        {"{\"ignore\":[\"re:q_proj\",\"q_pro\",\"proj\",\"re:(\",\"\",7,\"*k_proj\"]}", NULL},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        modelopt(x, rows[i].quant, 0.5f, 0x38);
        fx_ok(x, fx_create(x, "none"));
        size_t all = warnings_with(x, "the tensors win");
        if (rows[i].warning ? warnings_with(x, rows[i].warning) != 1 || all != 1 : all != 0)
            fail_msg("row %zu: %zu warnings", i, all);
        fx_free(x);
    }
    printf("covered: %zu configs\n", NB_COUNT(rows));
    fx *x = fx_new(); /* a module that is listed, and is not quantised */
    modelopt(x, "{\"quantized_layers\":{\"l.0.q_proj\":{\"quant_algo\":\"NVFP4\"},\"l.0.k_proj\":{\"quant_algo\":\"FP8\"}}}", 0.5f, 0x38);
    fx_fill(x, "l.0.k_proj.weight", NB_DT_BF16, "4,32", 0x3f);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    assert_int_equal(warnings_with(x, "quant_algo FP8 of 1 modules"), 1);
    assert_int_equal(warnings_with(x, "the tensors win"), 1);
    fx_free(x);
}

static void zero_multipliers(void **state)
{
    (void)state;
    static const uint8_t scales[] = {0x38, 0x7f, 0xff, 0x00};
    for (size_t i = 0; i < NB_COUNT(scales); i++) {
        fx *x = fx_new();
        modelopt(x, "{\"quant_method\":\"modelopt\"}", 0, scales[i]);
        if (i == 0) {
            fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_GLOBAL_INVALID");
            fx_nothing_left(x);
        } else {
            fx_ok(x, fx_create(x, "none"));
        }
        fx_free(x);
    }
}

static void blocks_of_32(void **state)
{
    (void)state;
    for (int said = 0; said < 2; said++) {
        fx *x = fx_new();
        float m = 1;
        uint8_t scales[2] = {0x38, 0x40};
        fx_plain_config(x, said ? "\"quantization_config\":{\"quant_algo\":\"W4A16_NVFP4\",\"group_size\":32}" : "");
        fx_fill(x, "l.weight", NB_DT_U8, "2,16", 0x21);
        fx_add(x, "l.weight_scale", NB_DT_F8_E4M3, "2,1", scales);
        fx_add(x, "l.weight_scale_2", NB_DT_F32, "", &m);
        fx_save(x, "model.safetensors");
        if (!said) {
            fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_QUANT_SHAPE");
        } else {
            fx_ok(x, fx_create(x, "none"));
            fx_blob b = fx_open(x, "l.weight");
            fx_expect(&b, "l.weight.scale", NB_DT_U8, "2,2", (uint8_t[]){0x38, 0x38, 0x40, 0x40});
            fx_close(&b);
        }
        fx_free(x);
    }
}

static void fp8_axes(void **state)
{
    (void)state;
    static const struct {
        const char *dims, *quant;
        bool good;
    } rows[] = {
        {"2,1", "", true},
        {"1,2", "", false},
        {"2,1,1,1", "", true},
        {"1,2,1,1", "", false},
        {"1,1,2,1", "", false},
        {"2,1,2", "", false},
        {"2", "", true},
        {"192,4", "\"quantization_config\":{\"quant_algo\":\"MXFP8\"}", false},
        {"2,1", "\"quantization_config\":{\"weight_block_size\":[9223372036854775807,128]}", true},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        float scales[192 * 4];
        for (size_t k = 0; k < NB_COUNT(scales); k++) scales[k] = 1.5f;
        fx_plain_config(x, rows[i].quant);
        fx_fill(x, "l.weight", NB_DT_F8_E4M3, "192,128", 0x38);
        fx_add(x, "l.weight_scale_inv", NB_DT_F32, rows[i].dims, scales);
        fx_save(x, "model.safetensors");
        if (rows[i].good)
            fx_ok(x, fx_create(x, "none"));
        else
            fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_FP8_META");
        fx_free(x);
    }
}

#define MLX_LAYER "model.layers.0."

static void mlx_norm_source(fx *x, const char *type, const char *conv)
{
    char config[300];
    const uint16_t w[4] = {0x3f80, 0x3f81, 0x3e90, 0xbf40}; /* 1, 1.0078125, 0.28125, -0.75 */
    snprintf(config, sizeof config, "{\"architectures\":[\"%s\"],\"model_type\":\"qwen3_next\"}", type);
    fx_text(x, "config.json", config);
    fx_clear(x);
    fx_add(x, MLX_LAYER "linear_attn.conv1d.weight", NB_DT_BF16, conv, NULL);
    fx_add(x, MLX_LAYER "linear_attn.norm.weight", NB_DT_BF16, "4", w);
    fx_add(x, MLX_LAYER "input_layernorm.weight", NB_DT_BF16, "4", w);
    fx_add(x, MLX_LAYER "self_attn.q_norm.weight", NB_DT_BF16, "4", w);
    fx_add(x, "model.norm.weight", NB_DT_BF16, "4", w);
    fx_add(x, "mtp.layers.0.input_layernorm.weight", NB_DT_BF16, "4", w);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
}

static void expect_norm(fx *x, const char *name, bool less)
{
    const float minus[4] = {0, 0.0078125f, -0.71875f, -1.75f};
    const uint16_t w[4] = {0x3f80, 0x3f81, 0x3e90, 0xbf40};
    fx_blob b = fx_open(x, name);
    fx_expect(&b, name, less ? NB_DT_F32 : NB_DT_BF16, "4", less ? (const void *)minus : w);
    fx_close(&b);
}

/* mlx-lm adds one to the norms that hub files store less one, and turns the kernels: both are undone, or neither. */
static void mlx_norms(void **state)
{
    (void)state;
    static const char *const types[] = {"Qwen3_5ForCausalLM", "Qwen3_5MoeForConditionalGeneration",
                                        "Qwen3NextForCausalLM", "TestForCausalLM"};
    fx *x = fx_new();
    for (size_t i = 0; i < NB_COUNT(types); i++)
        for (int mlx = 0; mlx < 2; mlx++) {
            bool less = mlx && i < 3;
            mlx_norm_source(x, types[i], mlx ? "8,4,1" : "8,1,4");
            expect_norm(x, MLX_LAYER "input_layernorm.weight", less);
            expect_norm(x, MLX_LAYER "self_attn.q_norm.weight", less);
            expect_norm(x, "model.norm.weight", less);
            expect_norm(x, MLX_LAYER "linear_attn.norm.weight", false);
            expect_norm(x, "mtp.layers.0.input_layernorm.weight", false);
        }
    /* its reader of Qwen3-Next takes stacked experts' files as they are: the export has both, and comes back */
    char dir[400];
    nb_create_options o = fx_options(x);
    nb_export_options e;
    nb_export_defaults(&e);
    snprintf(dir, sizeof dir, "%s/mlx", x->dir);
    e.name = "t";
    e.dir = dir;
    e.as = NB_EXPORT_MLX;
    mlx_norm_source(x, "Qwen3NextForCausalLM", "8,4,1");
    fx_ok(x, nb_export(x->store, &e, &x->err));
    o.source = dir;
    fx_ok(x, fx_run(x, &o));
    expect_norm(x, "model.norm.weight", true);
    expect_norm(x, MLX_LAYER "linear_attn.norm.weight", false);
    fx_free(x);
}

/* ---- companions of another format, and two sources for one weight ---- */

static float one = 1.0f;

/* A weight "l" of one format, whole; [.., 32] columns so that every row of the table is the smallest that fits. */
static void weight_of(fx *x, const char *format)
{
    static const char ct4[] =
        "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":"
        "{\"weights\":{\"num_bits\":4,\"symmetric\":true}}}}";
    static int64_t shape[2] = {8, 32};
    if (!strcmp(format, "mlx") || !strcmp(format, "mlx-fp4")) {
        bool fp4 = format[3] != 0;
        fx_plain_config(x, fp4 ? "\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"mxfp4\"}"
                               : "\"quantization\":{\"bits\":4,\"group_size\":32}");
        fx_add(x, "l.weight", NB_DT_U32, "8,4", NULL);
        fx_fill(x, "l.scales", fp4 ? NB_DT_U8 : NB_DT_BF16, "8,1", 0x3f);
        if (!fp4) fx_add(x, "l.biases", NB_DT_BF16, "8,1", NULL);
    } else if (!strcmp(format, "modelopt-nvfp4") || !strcmp(format, "ct-nvfp4")) {
        bool ct = format[0] == 'c';
        fx_plain_config(x, "");
        fx_fill(x, ct ? "l.weight_packed" : "l.weight", NB_DT_U8, "8,16", 0x21);
        fx_fill(x, "l.weight_scale", NB_DT_F8_E4M3, "8,2", 0x38);
        fx_add(x, ct ? "l.weight_global_scale" : "l.weight_scale_2", NB_DT_F32, "1", &one);
    } else if (!strcmp(format, "mxfp8") || !strcmp(format, "fp8")) {
        bool mx = format[0] == 'm';
        fx_plain_config(x, "");
        fx_fill(x, "l.weight", NB_DT_F8_E4M3, "8,32", 0x38);
        fx_fill(x, "l.weight_scale", mx ? NB_DT_U8 : NB_DT_F32, "8,1", mx ? 0x7f : 0x3f);
    } else if (!strcmp(format, "ct-int")) {
        fx_plain_config(x, ct4);
        fx_add(x, "l.weight_packed", NB_DT_I32, "8,4", NULL);
        fx_fill(x, "l.weight_scale", NB_DT_BF16, "8,1", 0x3f);
        fx_add(x, "l.weight_shape", NB_DT_I64, "2", shape);
    } else if (!strcmp(format, "int8")) {
        fx_plain_config(x, "");
        fx_add(x, "l.weight", NB_DT_I8, "8,32", NULL);
        fx_fill(x, "l.weight_scale", NB_DT_BF16, "8,1", 0x3f);
    } else { /* gptq */
        fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}");
        fx_add(x, "l.qweight", NB_DT_I32, "4,8", NULL);
        fx_fill(x, "l.qzeros", NB_DT_I32, "1,1", 0x77);
        fx_fill(x, "l.scales", NB_DT_F16, "1,8", 0x3c);
    }
}

static const char *const formats[] = {"mlx", "mlx-fp4", "modelopt-nvfp4", "ct-nvfp4", "mxfp8",
                                      "fp8", "ct-int",  "int8",           "gptq"};

static void foreign_companions(void **state)
{
    (void)state;
    static const char *const foreign[] = {"l.svdquant_lora_a",
                                          "l.svdquant_lora_b",
                                          "l.weight_quantizer._svdquant_lora_b",
                                          "l.global_scale",
                                          "l.weight_scale_3",
                                          "l.zero_point",
                                          "l.weight.zero_point",
                                          "l.lora_A.weight",
                                          "l.weight_perm",
                                          "l.scale"};
    size_t n = 0;
    for (size_t f = 0; f < NB_COUNT(formats); f++)
        for (size_t i = 0; i < NB_COUNT(foreign); i++, n++) {
            fx *x = fx_new();
            weight_of(x, formats[f]);
            fx_fill(x, foreign[i], NB_DT_BF16, "8,32", 0x3f);
            fx_save(x, "model.safetensors");
            nb_status st = fx_create(x, "none");
            bool named = strstr(foreign[i], "svdquant"); /* a method of its own */
            fx_fails(x, st, named ? NB_E_UNSUPPORTED : NB_E_INVALID, named ? "SVDQuant" : "E_ORPHAN_COMPANION");
            fx_fails(x, st, st, foreign[i]);
            fx_nothing_left(x);
            fx_free(x);
        }
    printf("covered: %zu weights with a companion of another format\n", n);
}

/* The layer's own bias, and tensors that say nothing about the weight. */
static void unrelated_tensors(void **state)
{
    (void)state;
    static const char *const plain[] = {"l.bias",  "l_scale",        "scale",
                                        "m.scale", "lm.layer_scale", "l.weight_quantizer._amax"};
    for (size_t f = 0; f < NB_COUNT(formats); f++) {
        fx *x = fx_new();
        weight_of(x, formats[f]);
        for (size_t i = 0; i < NB_COUNT(plain); i++) fx_fill(x, plain[i], NB_DT_BF16, "8", 0x3f);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        assert_int_equal(x->report.n_tensors, 1 + NB_COUNT(plain));
        fx_free(x);
    }
    fx *x = fx_new(); /* what a float weight has beside it is its own */
    fx_plain_config(x, "");
    fx_add(x, "l.weight", NB_DT_BF16, "8,32", NULL);
    fx_add(x, "l.scale", NB_DT_BF16, "8", NULL);
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    fx_free(x);
}

#define BANK "model.layers.0.mlp.experts"

static void two_sources(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b; /* two stacks [2, ..], or the first of two experts */
    } banks[] = {
        {BANK ".0.gate_proj.weight", BANK ".gate_up_proj"},
        {BANK ".0.up_proj.weight", BANK ".gate_up_proj"},
        {BANK ".0.gate_proj.weight", BANK ".gate_proj"},
        {BANK ".0.down_proj.weight", "model.layers.0.mlp.switch_mlp.down_proj.weight"},
        {BANK ".0.w2.weight", BANK ".down_proj"},
        {BANK ".0.gate_up_proj.weight", BANK ".gate_proj.weight"},
        {BANK ".gate_proj.weight", BANK ".gate_up_proj"},
        {BANK ".gate_proj.weight", BANK ".gate_proj"},
        {BANK ".down_proj.weight", "model.layers.0.mlp.switch_mlp.down_proj.weight"},
    };
    for (size_t i = 0; i < NB_COUNT(banks); i++) {
        fx *x = fx_new();
        fx_plain_config(x, "");
        fx_add(x, banks[i].a, NB_DT_BF16, strstr(banks[i].a, "experts.0.") ? "8,32" : "2,8,32", NULL);
        fx_add(x, banks[i].b, NB_DT_BF16, "2,8,32", NULL);
        fx_save(x, "model.safetensors");
        nb_status st = fx_create(x, "none");
        if (st == NB_OK) print_error("%s beside %s\n", banks[i].a, banks[i].b);
        fx_fails(x, st, NB_E_INVALID, "E_COLLISION");
        fx_fails(x, st, NB_E_INVALID, banks[i].a);
        fx_fails(x, st, NB_E_INVALID, banks[i].b);
        fx_nothing_left(x);
        fx_free(x);
    }
    static const char *const other[] = {"ct-nvfp4", "ct-int", "gptq"}, *const dims[] = {"8,32", "8", "8,32"};
    for (size_t i = 0; i < NB_COUNT(other); i++) { /* one module packed and plain, as a matrix or as a vector */
        fx *x = fx_new();
        weight_of(x, other[i]);
        fx_add(x, "l.weight", NB_DT_BF16, dims[i], NULL);
        fx_save(x, "model.safetensors");
        fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_COLLISION");
        fx_nothing_left(x);
        fx_free(x);
    }
}

/* compressed-tensors' transforms: rotated weights are like any, rotated activations are no part of a weight. */
static void rotations(void **state)
{
    (void)state;
    static const char *const places[] = {"weight_input", "weight_output", "input", "output", "q_attn", "k_cache"};
    for (size_t i = 0; i < NB_COUNT(places); i++) {
        fx *x = fx_new();
        char more[500];
        weight_of(x, "ct-nvfp4");
        snprintf(
            more, sizeof more,
            "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"transform_config\":{\"config_groups\":{"
            "\"R1\":{\"type\":\"hadamard\",\"apply\":[{\"location\":\"weight_output\"},{\"location\":\"%s\"}]}}}}",
            places[i]);
        fx_plain_config(x, more);
        fx_save(x, "model.safetensors");
        nb_status st = fx_create(x, "none");
        if (i < 2)
            fx_ok(x, st);
        else
            fx_fails(x, st, NB_E_UNSUPPORTED, "transform_config");
        if (i >= 2) fx_nothing_left(x);
        fx_free(x);
    }
}

/* One wrong width in a config concerns every tensor: of equal warnings four are listed, and how many there are is said
 * in the text, in JSON and in the manifest. Another text is listed by itself. */
static void equal_warnings(void **state)
{
    (void)state;
    enum { SAME = 30, LISTED = 4 };
    fx *x = fx_new();
    char names[3 * (SAME + 1)][24];
    nb_buf b = {0}, config = {0};
    nb_json_doc d;
    nb_name name;
    nb_manifest m = {0};
    int64_t more = 0, all = 0;
    fx_plain_config(x, "\"quantization\":{\"bits\":8,\"group_size\":64}");
    for (int i = 0; i < 3 * (SAME + 1); i++) { /* groups of 32: 2 bits, once 3 */
        static const char *const ends[] = {"weight", "scales", "biases"};
        snprintf(names[i], sizeof names[i], "l.%d.%s", i / 3, ends[i % 3]);
        fx_add(x, names[i], i % 3 ? NB_DT_BF16 : NB_DT_U32, i % 3 ? "2,1" : i == 21 ? "2,3" : "2,2", NULL);
    }
    fx_save(x, "model.safetensors");
    fx_ok(x, fx_create(x, "none"));
    assert_int_equal(warnings_with(x, "the shapes say 2 bits"), LISTED);
    assert_int_equal(warnings_with(x, "the shapes say 3 bits"), 1);
    nb_create_report_text(&x->report, true, &b);
    char title[64];
    size_t others = x->report.n_warnings - LISTED - 1; /* of the config */
    snprintf(title, sizeof title, "\nwarnings: %zu\n", others + SAME + 1);
    assert_true(nb_str_has(nb_buf_str(&b), title) && nb_str_has(nb_buf_str(&b), "\n  ... and 26 more like this\n"));
    b.n = 0;
    nb_create_report_json(&x->report, &b);
    fx_ok(x, nb_json_parse(&d, b.p, b.n, "report", NULL, &x->err));
    const nb_json *list = nb_json_get(d.root, "warnings");
    for (uint32_t i = 0; i < list->count; i++, all++)
        if (nb_json_i64(nb_json_get(&list->items[i], "more"), &more)) all += more;
    assert_true(list->count == x->report.n_warnings && all == (int64_t)others + SAME + 1);
    nb_json_free(&d);
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, nb_manifest_read(x->store, &name, &m, &x->err));
    d = fx_json(x, m.config.hex, &config);
    list = nb_json_path(d.root, "x_import.warnings");
    int counted = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        nb_str text = {"", 0};
        counted += nb_json_str(&list->items[i], &text) && nb_str_ends(text, " (and 26 more like this)");
    }
    assert_true(list->count == x->report.n_warnings && counted == 1);
    nb_json_free(&d);
    nb_manifest_free(&m);
    nb_buf_free(&b);
    nb_buf_free(&config);
    fx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlx_norms),         cmocka_unit_test(contradictions), cmocka_unit_test(zero_multipliers),
        cmocka_unit_test(blocks_of_32),      cmocka_unit_test(fp8_axes),       cmocka_unit_test(foreign_companions),
        cmocka_unit_test(unrelated_tensors), cmocka_unit_test(two_sources),    cmocka_unit_test(rotations),
        cmocka_unit_test(equal_warnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
