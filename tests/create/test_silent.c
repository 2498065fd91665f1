/* What an import must not accept in silence: a config that asks for tensors which are not there, an activation that
 * nothing here knows, norms with values that are no numbers, patterns of the user's that match nothing. */
#include "create/fixture.h"

#include <math.h>

/* A whole llama of one layer; `more` are further fields of its config. */
static void llama(fx *x, const char *more, bool head)
{
    static const struct {
        const char *name, *dims;
    } parts[] = {
        {"model.embed_tokens.weight", "64,32"},
        {"model.norm.weight", "32"},
        {"model.layers.0.input_layernorm.weight", "32"},
        {"model.layers.0.post_attention_layernorm.weight", "32"},
        {"model.layers.0.self_attn.q_proj.weight", "32,32"},
        {"model.layers.0.self_attn.k_proj.weight", "32,32"},
        {"model.layers.0.self_attn.v_proj.weight", "32,32"},
        {"model.layers.0.self_attn.o_proj.weight", "32,32"},
        {"model.layers.0.mlp.gate_proj.weight", "64,32"},
        {"model.layers.0.mlp.up_proj.weight", "64,32"},
        {"model.layers.0.mlp.down_proj.weight", "32,64"},
        {"lm_head.weight", "64,32"},
    };
    char text[2000];
    snprintf(text, sizeof text,
             "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":32,"
             "\"intermediate_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
             "\"head_dim\":16,\"vocab_size\":64,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0%s%s}",
             *more ? "," : "", more);
    fx_clear(x);
    fx_text(x, "config.json", text);
    for (uint32_t i = 0; i < NB_COUNT(parts) - !head; i++) fx_random(x, parts[i].name, parts[i].dims, i + 1);
}

static nb_status run(fx *x)
{
    nb_create_options o = fx_options(x);
    o.force = false;
    fx_save(x, "model.safetensors");
    return fx_run(x, &o);
}

static void missing_biases(void **state)
{
    (void)state;
    static const char *const names[] = {"model.layers.0.self_attn.q_proj.bias", "model.layers.0.self_attn.k_proj.bias",
                                        "model.layers.0.self_attn.v_proj.bias", "model.layers.0.self_attn.o_proj.bias"};
    fx *x = fx_new();
    llama(x, "\"attention_bias\":true", true);
    fx_fails(x, run(x), NB_E_INVALID, "E_MISSING_TENSORS");
    assert_non_null(strstr(x->err.text, names[0]));
    for (size_t gap = 0; gap < 5; gap++) { /* one of four is missing; then none */
        llama(x, "\"attention_bias\":true", true);
        for (size_t i = 0; i < 4; i++)
            if (i != gap) fx_random(x, names[i], "32", 50 + (uint32_t)i);
        if (gap < 4)
            fx_fails(x, run(x), NB_E_INVALID, names[gap]);
        else
            fx_ok(x, run(x));
        if (gap < 4) fx_nothing_left(x);
    }
    fx_free(x);
    x = fx_new();
    llama(x, "\"mlp_bias\":true", true);
    fx_fails(x, run(x), NB_E_INVALID, "model.layers.0.mlp.gate_proj.bias");
    fx_nothing_left(x);
    llama(x, "\"attention_bias\":false,\"mlp_bias\":null", true);
    fx_ok(x, run(x));
    fx_free(x);
}

static void missing_head(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        bool good;
    } rows[] = {
        {"\"tie_word_embeddings\":false", false},
        {"\"tie_word_embeddings\":true", true},
        {"", true}, /* not said: an exporter leaves out what is tied */
        {"\"tie_word_embeddings\":null", true},
        {"\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":false}", true},
        {"\"tie_word_embeddings\":false,\"text_config\":{\"tie_word_embeddings\":false}", false},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        llama(x, rows[i].more, false);
        nb_status st = run(x);
        if (rows[i].good) {
            fx_ok(x, st);
        } else {
            fx_fails(x, st, NB_E_INVALID, "lm_head.weight");
            fx_fails(x, st, NB_E_INVALID, "E_MISSING_TENSORS");
            fx_nothing_left(x);
        }
        fx_free(x);
    }
}

static void unknown_activation(void **state)
{
    (void)state;
    static const char *const good[] = {"silu", "swish", "gelu", "gelu_pytorch_tanh", "gelu_new", "relu2"};
    fx *x = fx_new();
    llama(x, "\"hidden_act\":\"zap\"", true);
    fx_fails(x, run(x), NB_E_UNSUPPORTED, "hidden_act");
    assert_non_null(strstr(x->err.text, "'zap'"));
    fx_nothing_left(x);
    for (size_t i = 0; i < NB_COUNT(good); i++) {
        char more[64];
        snprintf(more, sizeof more, "\"hidden_act\":\"%s\"", good[i]);
        llama(x, more, true);
        fx_ok(x, run(x));
    }
    fx_free(x);
}

static void broken_norms(void **state)
{
    (void)state;
    static const nb_dtype types[] = {NB_DT_BF16, NB_DT_F16, NB_DT_F32};
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t t = 0; t < NB_COUNT(types); t++)
        for (size_t b = 0; b < NB_COUNT(bad); b++) {
            fx *x = fx_new();
            float v[32];
            uint8_t raw[32 * 4];
            size_t elem = (size_t)nb_dtype_bits(types[t]) / 8;
            for (int i = 0; i < 32; i++) v[i] = i == 7 ? bad[b] : i == 9 ? 2.0f : 1.0f;
            for (size_t i = 0; i < 32; i++) {
                if (elem == 4)
                    nb_store_u32(raw + 4 * i, nb_bits_f32(v[i]));
                else
                    nb_store_u16(raw + 2 * i, types[t] == NB_DT_F16 ? nb_f16_encode(v[i]) : nb_bf16_encode(v[i]));
            }
            fx_plain_config(x, "");
            fx_add(x, "model.norm.weight", types[t], "32", raw);
            fx_add(x, "self_attn.sinks", types[t], "32", raw); /* a sink may be off */
            fx_save(x, "model.safetensors");
            fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "model.norm.weight contains 1 non-finite values");
            assert_non_null(strstr(x->err.text, "[0,7]"));
            fx_nothing_left(x);
            nb_create_options o = fx_options(x);
            o.nonfinite_zero = true;
            fx_ok(x, fx_run(x, &o));
            size_t told = 0;
            for (size_t i = 0; i < x->report.n_warnings; i++)
                told += nb_str_is(x->report.warnings[i].name, "model.norm.weight");
            assert_int_equal(told, 1);
            fx_blob blob = fx_open(x, "model.norm.weight");
            const nb_st_tensor *n = fx_tensor(&blob, "model.norm.weight");
            float got[32];
            assert_true(nb_floats_decode(types[t], blob.map.p + n->off, 32, got));
            assert_true(got[7] == (isnan(bad[b]) ? 0.0f : copysignf(2.0f, bad[b])) && got[6] == 1.0f);
            fx_close(&blob);
            blob = fx_open(x, "self_attn.sinks");
            fx_expect(&blob, "self_attn.sinks", types[t], "32", raw);
            fx_close(&blob);
            fx_free(x);
        }
}

static void idle_patterns(void **state)
{
    (void)state;
    static const struct {
        const char *types, *keep, *said; /* NULL: imported */
    } rows[] = {
        {NULL, "*q_proj*", NULL},
        {NULL, "*q_proj*,*z_proj*", "--keep '*z_proj*'"},
        {NULL, "model.norm.weight", NULL}, /* kept anyway, and it is there */
        {NULL, "model.norm", "--keep 'model.norm'"},
        {"*q_proj*=int8:g32", NULL, NULL},
        {"*q_proj*=int8:g32,q_proj=int8:g32", NULL, "--type 'q_proj=int8:g32'"},
        {"*lm_head*=int8:g32", "*lm_head*", NULL},
        {"*.mlp.experts.*=int8:g32", NULL, "--type"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++)
        for (int dry = 0; dry < 2; dry++) {
            fx *x = fx_new();
            nb_create_options o = fx_options(x);
            llama(x, "", true);
            fx_save(x, "model.safetensors");
            o.types = rows[i].types;
            o.keep = rows[i].keep;
            o.dry_run = dry;
            nb_status st = fx_run(x, &o);
            if (rows[i].said) {
                fx_fails(x, st, NB_E_USAGE, rows[i].said);
                fx_nothing_left(x);
            } else {
                fx_ok(x, st);
            }
            fx_free(x);
        }
    fx *x = fx_new(); /* a type for what has none */
    nb_create_options o = fx_options(x);
    llama(x, "", true);
    fx_save(x, "model.safetensors");
    o.types = "model.norm.weight=int8:g32,*_layernorm*=int8:g32";
    fx_ok(x, fx_run(x, &o));
    size_t told = 0;
    for (size_t i = 0; i < x->report.n_warnings; i++)
        told += nb_str_has(x->report.warnings[i].text, "--type does not apply");
    assert_int_equal(told, 1);
    fx_free(x);
}

/* FP8 blocks over a fused gate_up whose halves do not meet at a block: the first half keeps its bits, the second has no
 * format, and the report says which, why and what it costs. */
static void halves_inside_a_block(void **state)
{
    (void)state;
    static const struct {
        int half;
        const char *dims[4];
    } rows[] = {{96, {"2,192,128", "2,2,1", "2,128,96", "2,1,1"}}, {128, {"2,256,128", "2,2,1", "2,128,128", "2,1,1"}}};
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        float scales[4] = {0.3f, 0.7f, 1.1f, 1.3f};
        fx_plain_config(x, "\"quantization_config\":{\"weight_block_size\":[128,128]}");
        fx_fill(x, "model.layers.0.mlp.experts.gate_up_proj", NB_DT_F8_E4M3, rows[i].dims[0], 0x3b);
        fx_add(x, "model.layers.0.mlp.experts.gate_up_proj_scale_inv", NB_DT_F32, rows[i].dims[1], scales);
        fx_fill(x, "model.layers.0.mlp.experts.down_proj", NB_DT_F8_E4M3, rows[i].dims[2], 0x3b);
        fx_add(x, "model.layers.0.mlp.experts.down_proj_scale_inv", NB_DT_F32, rows[i].dims[3], scales);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        size_t why = 0, loss = 0, native = 0;
        for (size_t k = 0; k < x->report.n_warnings; k++) {
            why += nb_str_has(x->report.warnings[k].text, "begin inside a 128x128 block");
            loss += nb_str_has(x->report.warnings[k].text, "loss as bf16: relative RMS");
        }
        for (size_t k = 0; k < x->report.n_tensors; k++) native += x->report.tensors[k].lossless;
        assert_int_equal(x->report.n_tensors, 3);
        assert_int_equal(native, rows[i].half % 128 ? 2 : 3);
        assert_int_equal(why, rows[i].half % 128 ? 1 : 0);
        assert_int_equal(loss, why);
        fx_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_biases), cmocka_unit_test(missing_head),  cmocka_unit_test(unknown_activation),
        cmocka_unit_test(broken_norms),   cmocka_unit_test(idle_patterns), cmocka_unit_test(halves_inside_a_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
