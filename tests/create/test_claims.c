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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mlx_norms),    cmocka_unit_test(contradictions), cmocka_unit_test(zero_multipliers),
        cmocka_unit_test(blocks_of_32), cmocka_unit_test(fp8_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
