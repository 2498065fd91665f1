/* What the user may ask for beyond a type: a search for better scales, scales of a quantised KV cache; and factors
 * before a product (pre_quant_scale), which stay beside the matrix. */
#include "create/fixture.h"
#include "create/stored.h"
#include "model/model.h"

#include <math.h>
#include <sys/resource.h>

static nb_json_doc model_config(fx *x, nb_buf *text)
{
    nb_name name;
    nb_manifest m = {0};
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, nb_manifest_read(x->store, &name, &m, &x->err));
    nb_json_doc d = fx_json(x, m.config.hex, text);
    nb_manifest_free(&m);
    return d;
}

static void said(fx *x, const char *key, const char *want)
{
    nb_buf text = {0};
    nb_json_doc d = model_config(x, &text);
    nb_str v = {0};
    char path[64];
    snprintf(path, sizeof path, "x_import.%s", key);
    bool has = nb_json_str(nb_json_path(d.root, path), &v);
    assert_true(want ? has && nb_str_is(v, want) : !has);
    nb_json_free(&d);
    nb_buf_free(&text);
}

/* ---- --quality search ---- */

/* The stored values are those of nb_quantize_search over the whole matrix. */
static void check_searched(fx *x, const char *layer, const nb_buf *bf16, int64_t n, int64_t k, nb_qtype q)
{
    nb_name name;
    nb_model_blobs b;
    nb_buf scratch = {0};
    size_t c, s, z, count = (size_t)(n * k);
    float *w = malloc(count * 4), *want = malloc(count * 4), *got = malloc(count * 4);
    assert_true(nb_floats_decode(NB_DT_BF16, bf16->p, count, w));
    assert_true(nb_parts_row_bytes(q, k, &c, &s, &z));
    uint8_t *p = calloc((size_t)n, c + s);
    nb_parts parts = {.codes = p, .code_stride = c, .scales = p + (size_t)n * c, .scale_stride = s};
    float a = nb_abs_max(w, count);
    fx_ok(x, nb_quantize_search(q, w, n, k, a, &parts, &x->err));
    nb_dequantize_rows(q, &parts, n, k, q.format == NB_NVFP4 ? nb_nvfp4_multiplier(a) : 1.0f, want);
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, nb_blobs_open(&b, x->store, &name, &x->err));
    const nb_stored *t = nb_blobs_find(&b, nb_str_of(layer), 0);
    assert_non_null(t);
    assert_true(nb_qtype_eq(t->q, q));
    fx_ok(x, nb_stored_floats(t, 0, n, got, &scratch, &x->err));
    assert_memory_equal(got, want, count * 4);
    nb_blobs_close(&b);
    nb_buf_free(&scratch);
    free(w), free(want), free(got), free(p);
}

static void quality_search(void **state)
{
    (void)state;
    static const char *const types[] = {"nvfp4", "mxfp4"};
    for (size_t i = 0; i < NB_COUNT(types); i++)
        for (int layout = 0; layout < 2; layout++) {
            fx *x = fx_new();
            char digest[3][65];
            fx_plain_config(x, "");
            fx_random(x, "layers.0.q_proj.weight", "300,640", 5);
            fx_random(x, "layers.0.down_proj.weight", "64,128", 6); /* promoted to MXFP8, which has no search */
            fx_random(x, "layers.0.o_proj.weight", "9000,512", 7);  /* in tiles */
            fx_save(x, "model.safetensors");
            for (int run = 0; run < 3; run++) { /* plain; searched with one thread; with three */
                nb_create_options o = fx_options(x);
                o.layout = layout ? NB_LAYOUT_ROWS16 : NB_LAYOUT_STANDARD;
                o.search = run > 0;
                o.threads = run > 1 ? 3 : 1;
                o.deep = true;
                fx_ok(x, nb_create_parse_request(&o, types[i], &x->err));
                fx_ok(x, fx_run(x, &o));
                memcpy(digest[run], x->report.digest, 65);
                said(x, "quality", run ? "search" : NULL);
                assert_true(x->report.search == (run > 0));
                assert_int_equal(x->report.n_warnings,
                                 2); /* the config is not known, no tokenizer; the deep check is content */
            }
            assert_string_not_equal(digest[0], digest[1]);
            assert_string_equal(digest[1], digest[2]);
            nb_qtype q;
            fx_ok(x, nb_qtype_parse(&q, types[i], &x->err));
            check_searched(x, "layers.0.q_proj.weight", &x->data[0], 300, 640, q);
            check_searched(x, "layers.0.o_proj.weight", &x->data[2], 9000, 512, q);
            fx_free(x);
        }
}

static void quality_refused(void **state)
{
    (void)state;
    static const struct {
        const char *type, *types;
        bool ok;
    } rows[] = {{"nvfp4", NULL, true},
                {"mxfp4", NULL, true},
                {"int4", NULL, false},
                {"mxfp8", NULL, false},
                {"bf16", NULL, false},
                {"keep", NULL, false},
                {"none", NULL, false},
                {"none", "*.q_proj.*=nvfp4", true},
                {"int8", "*.q_proj.*=mxfp8", false}};
    fx *x = fx_new();
    fx_plain_config(x, "");
    fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
    fx_save(x, "model.safetensors");
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        nb_create_options o = fx_options(x);
        o.search = true;
        o.types = rows[i].types;
        o.dry_run = true;
        fx_ok(x, nb_create_parse_request(&o, rows[i].type, &x->err));
        nb_status st = fx_run(x, &o);
        if (rows[i].ok)
            fx_ok(x, st);
        else
            fx_fails(x, st, NB_E_USAGE, "quality 'search'");
    }
    fx_nothing_left(x);
    fx_free(x);
}

/* ---- --keep-kv-scales ---- */

static void kv_scales(void **state)
{
    (void)state;
    static const char *const names[] = {"layers.0.self_attn.k_proj.k_scale", "layers.0.self_attn.v_proj.v_scale",
                                        "layers.0.self_attn.kv_scale", "layers.0.self_attn.k_proj.k_bias"};
    fx *x = fx_new();
    float half = 0.5f;
    fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"modelopt\",\"kv_cache_scheme\":\"FP8\"}");
    fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
    for (size_t i = 0; i < NB_COUNT(names); i++) fx_add(x, names[i], NB_DT_F32, i % 2 ? "1" : "", &half);
    fx_add(x, "layers.0.q_proj.input_scale", NB_DT_F32, "", &half);
    fx_save(x, "model.safetensors");
    for (int kept = 0; kept < 2; kept++) {
        nb_create_options o = fx_options(x);
        o.keep_kv_scales = kept;
        fx_ok(x, nb_create_parse_request(&o, "int8", &x->err));
        fx_ok(x, fx_run(x, &o));
        assert_int_equal(x->report.n_dropped, kept ? 1 : 5);
        said(x, "kv_scales", kept ? "kept" : NULL);
        for (size_t i = 0; i < NB_COUNT(names); i++) {
            fx_blob b = fx_open(x, names[i]);
            assert_true(b.found == kept);
            if (kept) fx_expect(&b, names[i], NB_DT_F32, i % 2 ? "1" : "", &half);
            fx_close(&b);
        }
    }
    fx_free(x);
}

/* ---- pre_quant_scale: y = W (x * p) ---- */

static void awq_source(fx *x, const char *base)
{
    static char names[4][64];
    static const char *const ends[] = {".weight", ".weight_scale", ".weight_scale_2", ".pre_quant_scale"};
    float half = 0.5f;
    uint8_t p[64];
    for (size_t i = 0; i < 32; i++) nb_store_u16(p + 2 * i, nb_bf16_encode(i % 2 ? 2.0f : 0.75f));
    for (size_t i = 0; i < 4; i++) snprintf(names[i], sizeof names[i], "%s%s", base, ends[i]);
    fx_clear(x);
    fx_plain_config(x, "\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4_AWQ\"}");
    fx_fill(x, names[0], NB_DT_U8, "32,16", 0x42); /* 1 and 2 */
    fx_fill(x, names[1], NB_DT_F8_E4M3, "32,2", 0x38);
    fx_add(x, names[2], NB_DT_F32, "", &half);
    fx_add(x, names[3], NB_DT_BF16, "32", p);
    fx_save(x, "model.safetensors");
}

/* Bits are moved, the factors stay beside them as F32, and values are those of the product. */
static void factors_kept(void **state)
{
    (void)state;
    for (int layout = 0; layout < 2; layout++) {
        fx *x = fx_new();
        awq_source(x, "l");
        nb_create_options o = fx_options(x);
        o.layout = layout ? NB_LAYOUT_ROWS16 : NB_LAYOUT_STANDARD;
        o.deep = true;
        fx_ok(x, fx_run(x, &o));
        assert_true(x->report.tensors[0].lossless);
        fx_blob b = fx_open(x, "l.weight");
        float want[32], got[32 * 32];
        for (size_t i = 0; i < 32; i++) want[i] = i % 2 ? 2.0f : 0.75f;
        fx_expect(&b, "l.weight.pre_quant_scale", NB_DT_F32, "32", want);
        fx_close(&b);
        nb_name name;
        nb_model_blobs blobs;
        nb_buf scratch = {0};
        fx_ok(x, nb_name_parse(&name, "t", &x->err));
        fx_ok(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err));
        fx_ok(x, nb_blobs_open(&blobs, x->store, &name, &x->err));
        assert_int_equal(blobs.n, 1);
        fx_ok(x, nb_stored_floats(&blobs.t[0], 0, 32, got, &scratch, &x->err));
        for (size_t i = 0; i < NB_COUNT(got); i++) assert_true(got[i] == (i % 2 ? 1.0f : 0.5f) * want[i % 32]);
        nb_blobs_close(&blobs);
        nb_buf_free(&scratch);
        /* quantised again: the factors go into the columns */
        o.allow_requantize = true;
        fx_ok(x, nb_create_parse_request(&o, "bf16", &x->err));
        fx_ok(x, fx_run(x, &o));
        b = fx_open(x, "l.weight");
        assert_null(fx_tensor(&b, "l.weight.pre_quant_scale"));
        fx_close(&b);
        fx_free(x);
    }
}

static void factors_refused(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint8_t p[64];
    awq_source(x, "model.embed_tokens"); /* a table is gathered: nothing is multiplied */
    fx_fails(x, fx_create(x, "none"), NB_E_UNSUPPORTED, "E_PRE_QUANT_SCALE");
    awq_source(x, "model.layers.0.mlp.experts.0.gate_proj");
    fx_fails(x, fx_create(x, "none"), NB_E_UNSUPPORTED, "E_PRE_QUANT_SCALE");
    fx_nothing_left(x);
    awq_source(x, "l");
    for (size_t i = 0; i < 32; i++) nb_store_u16(p + 2 * i, i == 7 ? 0x7fc0 : 0x3f80);
    memcpy(x->data[3].p, p, 64); /* NaN */
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_PRE_QUANT_SCALE");
    x->outs[3].dim[0] = 16; /* a wrong length */
    x->data[3].n = 32;
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_PRE_QUANT_SCALE");
    awq_source(x, "l");
    fx_add(x, "l.svdquant_lora_a", NB_DT_BF16, "4,32", NULL);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_UNSUPPORTED, "SVDQuant");
    fx_nothing_left(x);
    fx_free(x);
}

/* verify finds that the stored tensors are not those of the stored config. */
static void another_config(fx *x, const char *config)
{
    nb_layer layers[64];
    nb_manifest m = {0};
    nb_blob_ref ref;
    nb_name name;
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, nb_manifest_read(x->store, &name, &m, &x->err));
    fx_ok(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err));
    fx_ok(x, nb_blob_put(x->store, config, strlen(config), &ref, &x->err));
    assert_true(m.n_layers <= NB_COUNT(layers));
    memcpy(layers, m.layers, m.n_layers * sizeof *layers);
    for (size_t i = 0; i < m.n_layers; i++)
        if (nb_str_is(layers[i].name, "config.json")) {
            layers[i].size = ref.size;
            memcpy(layers[i].hex, ref.hex, sizeof ref.hex);
        }
    fx_ok(x, nb_manifest_publish(x->store, &name, &m.config, layers, m.n_layers, NULL, &x->err));
    fx_fails(x, nb_create_verify(x->store, &name, false, NULL, NULL, &x->err), NB_E_INVALID, "config.json asks for");
    nb_manifest_free(&m);
}

/* Matrices that read one vector need the same factors, and only some places have any, as far as the forward runs. */
static void factors_of_siblings(void **state)
{
    (void)state;
    static const char config[] =
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":32,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"vocab_size\":32,\"intermediate_size\":32,"
        "\"rms_norm_eps\":1e-5,\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":"
        "\"NVFP4_AWQ\"}}";
    static const char *const linear[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                         "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    for (int wrong = -1; wrong < (int)NB_COUNT(linear); wrong++) { /* this one has a vector of its own */
        fx *x = fx_new();
        static char names[NB_COUNT(linear)][4][80];
        float half = 0.5f, p[32];
        fx_text(x, "config.json", config);
        fx_random(x, "model.embed_tokens.weight", "32,32", 1);
        fx_random(x, "model.norm.weight", "32", 2);
        fx_random(x, "model.layers.0.input_layernorm.weight", "32", 3);
        fx_random(x, "model.layers.0.post_attention_layernorm.weight", "32", 4);
        for (size_t i = 0; i < NB_COUNT(linear); i++) {
            static const char *const ends[] = {".weight", ".weight_scale", ".weight_scale_2", ".pre_quant_scale"};
            for (size_t e = 0; e < 4; e++)
                snprintf(names[i][e], sizeof names[i][e], "model.layers.0.%s%s", linear[i], ends[e]);
            for (size_t k = 0; k < 32; k++) p[k] = 1.0f + (float)k / 64 + ((int)i == wrong ? 0.25f : 0);
            fx_fill(x, names[i][0], NB_DT_U8, "32,16", 0x42);
            fx_fill(x, names[i][1], NB_DT_F8_E4M3, "32,2", 0x38);
            fx_add(x, names[i][2], NB_DT_F32, "", &half);
            fx_add(x, names[i][3], NB_DT_F32, "32", p);
        }
        fx_save(x, "model.safetensors");
        nb_create_options o = fx_options(x);
        o.force = false;
        bool alone = wrong < 0 || wrong == 3 || wrong == 6; /* o_proj, down_proj */
        if (alone)
            fx_ok(x, fx_run(x, &o));
        else
            fx_fails(x, fx_run(x, &o), NB_E_UNSUPPORTED, "different pre_quant_scale");
        char *other = strdup(config), *at = strstr(other, "\"intermediate_size\":32");
        assert_non_null(at);
        memcpy(at + 20, "48", 2);
        if (wrong < 0) another_config(x, other);
        free(other);
        fx_free(x);
    }
}

/* ---- what the user gives in place of the checkpoint's ---- */

/* A model whose default template knows no tools has them where another template is for them. */
static void tool_template(void **state)
{
    (void)state;
    for (int with = 0; with < 2; with++) {
        fx *x = fx_new();
        fx_plain_config(x, "");
        fx_text(x, "tokenizer_config.json",
                with ? "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"y\"},{\"name\":\"default\",\"template\":\"x\"}]}"
                     : "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"y\"},{\"name\":\"default\",\"template\":\"x\"}]}");
        fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
        fx_save(x, "model.safetensors");
        nb_create_options o = fx_options(x);
        fx_ok(x, fx_run(x, &o));
        nb_buf text = {0};
        nb_json_doc d = model_config(x, &text);
        const nb_json *caps = nb_json_get(d.root, "capabilities");
        bool tools = false;
        for (uint32_t i = 0; caps && i < caps->count; i++) tools = tools || nb_str_is(caps->items[i].text, "tools");
        assert_int_equal(tools, with);
        nb_json_free(&d);
        nb_buf_free(&text);
        fx_free(x);
    }
}

static void users_texts(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_plain_config(x, "\"llm_config\":{\"model_type\":\"qwen3\"}");
    fx_text(x, "LICENSE", "theirs");
    fx_text(
        x, "tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"x\"},{\"name\":\"default\",\"template\":\"think\"}]}");
    fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
    fx_save(x, "model.safetensors");
    nb_create_options o = fx_options(x);
    fx_ok(x, fx_run(x, &o));
    nb_buf text = {0};
    nb_json_doc d = model_config(x, &text);
    nb_str v;
    assert_true(nb_json_str(nb_json_get(d.root, "parser"), &v) && nb_str_is(v, "qwen3"));
    bool thinks = false;
    const nb_json *caps = nb_json_get(d.root, "capabilities");
    for (uint32_t i = 0; caps && i < caps->count; i++) thinks = thinks || nb_str_is(caps->items[i].text, "thinking");
    assert_true(thinks); /* by the template that is named "default" */
    nb_json_free(&d);
    nb_buf_free(&text);
    /* refused before anything is written */
    const struct {
        const char *version, *tmpl, *params, *part;
    } bad[] = {{"not-semver", NULL, NULL, "E_REQUIRES"}, {"1.2", NULL, NULL, "E_REQUIRES"},
               {"1.2.3.4", NULL, NULL, "E_REQUIRES"},    {NULL, "{% if", NULL, "TemplateSyntaxError"},
               {NULL, NULL, "[1]", "no JSON object"},    {NULL, NULL, "{", "parameters"}};
    fx *y = fx_new();
    fx_plain_config(y, "");
    fx_random(y, "layers.0.q_proj.weight", "32,128", 5);
    fx_save(y, "model.safetensors");
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_create_options b = fx_options(y);
        b.min_version = bad[i].version;
        b.template_text = bad[i].tmpl;
        b.extra_parameters = bad[i].params;
        nb_status st = fx_run(y, &b);
        assert_true(st != NB_OK);
        fx_fails(y, st, st, bad[i].part);
    }
    nb_create_options unknown = fx_options(y);
    unknown.parser = "nosuch";
    fx_fails(y, fx_run(y, &unknown), NB_E_USAGE, "parser 'nosuch' is not known");
    fx_nothing_left(y);
    fx_free(y);
    o.min_version = "v0.20.0";
    o.template_text = "{{ messages }}";
    o.extra_parameters = "{\"temperature\":0.5}";
    o.license = "mine";
    o.parser = "glm-4.7";
    o.renderer = "qwen3.8";
    fx_ok(x, fx_run(x, &o));
    d = model_config(x, &text);
    assert_true(nb_json_str(nb_json_get(d.root, "requires"), &v) && nb_str_is(v, "0.20.0"));
    assert_true(nb_json_str(nb_json_get(d.root, "parser"), &v) && nb_str_is(v, "glm-4.7"));
    assert_true(nb_json_str(nb_json_get(d.root, "renderer"), &v) && nb_str_is(v, "qwen3.8"));
    nb_json_free(&d);
    nb_buf_free(&text);
    fx_blob b = fx_open(x, "layers.0.q_proj.weight");
    size_t licences = 0, templates = 0, parameters = 0;
    for (size_t i = 0; i < b.m.n_layers; i++) {
        licences += nb_str_is(b.m.layers[i].media_type, NB_MEDIA_LICENSE);
        templates += nb_str_is(b.m.layers[i].media_type, NB_MEDIA_TEMPLATE);
        parameters += nb_str_is(b.m.layers[i].media_type, NB_MEDIA_PARAMS);
    }
    assert_true(licences == 1 && templates == 1 && parameters == 1);
    fx_close(&b);
    nb_network *net = NULL;
    nb_name name;
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_fails(x, nb_network_open(&net, x->store, &name, NULL, &x->err), NB_E_UNSUPPORTED, "requires version 0.20.0");
    fx_free(x);
}

/* What lists of models show: families, the size, and the model that it was made from. */
static void model_fields(void **state)
{
    (void)state;
    static const struct {
        const char *more, *dims, *size, *base; /* base NULL: not said */
    } rows[] = {
        {"\"_name_or_path\":\"owner/name-1B\"", "1000,2000", "2M", "owner/name-1B"},
        {"\"_name_or_path\":\"/data/owner/name\"", "1234,1000", "1.23M", NULL},
        {"\"_name_or_path\":\"./name\"", "30,40", "1K", NULL},
        {"\"_name_or_path\":7", "30,4", "120", NULL},
        {"", "30,4", "120", NULL},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        nb_buf text = {0};
        nb_str s;
        fx_plain_config(x, rows[i].more);
        fx_random(x, "l.weight", rows[i].dims, 1);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_blob b = fx_open(x, "l.weight");
        nb_json_doc d = fx_json(x, b.m.config.hex, &text);
        assert_true(nb_json_str(nb_json_get(d.root, "model_type"), &s) && nb_str_is(s, rows[i].size));
        assert_true(nb_json_str(nb_json_at(nb_json_get(d.root, "model_families"), 0), &s) &&
                    nb_str_is(s, "TestForCausalLM"));
        bool named = nb_json_str(nb_json_get(d.root, "base_name"), &s);
        assert_true(rows[i].base ? named && nb_str_is(s, rows[i].base) : !named);
        nb_json_free(&d);
        nb_buf_free(&text);
        fx_close(&b);
        fx_free(x);
    }
}

/* ---- checks ---- */

/* --deep looks at what was passed through; a policy of the architecture and config files are named in the message. */
static void gates(void **state)
{
    (void)state;
    fx *x = fx_new();
    float v[64] = {0};
    v[37] = NAN;
    fx_plain_config(x, "");
    fx_add(x, "x.norm.weight", NB_DT_F32, "64", v);
    fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
    fx_save(x, "model.safetensors");
    nb_create_options o = fx_options(x);
    o.deep = true;
    for (int layout = 0; layout < 2; layout++) {
        o.layout = layout ? NB_LAYOUT_ROWS16 : NB_LAYOUT_STANDARD;
        o.permissive = false;
        fx_fails(x, fx_run(x, &o), NB_E_INVALID, "x.norm.weight contains 1 non-finite values (first at [0,37])");
        o.permissive = true;
        fx_ok(x, fx_run(x, &o));
        fx_clear(x);
        fx_random(x, "x.norm.weight", "64", 1);
        fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
        nb_store_u16(x->data[1].p + 2 * (5 * 128 + 7), 0x7f80);
        fx_save(x, "model.safetensors");
        o.permissive = false;
        fx_fails(x, fx_run(x, &o), NB_E_INVALID,
                 "layers.0.q_proj.weight contains 1 non-finite values (first at [5,7])");
        fx_clear(x);
        fx_add(x, "x.norm.weight", NB_DT_F32, "64", v);
        fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
        fx_save(x, "model.safetensors");
    }
    fx_text(x, "config.json", "{\"architectures\":[\"GLiNER\"]}");
    o.deep = o.force = false;
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "E_POLICY_REFUSED");
    fx_text(x, "config.json", "{");
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "E_CONFIG");
    fx_plain_config(x, "");
    fx_text(x, "tokenizer_config.json", "{");
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "E_CONFIG");
    fx_free(x);
}

/* verify --deep of row-major blobs: a spoilt scale is found where the file still hashes to another name. */
static void verify_standard(void **state)
{
    (void)state;
    static const char *const types[] = {"nvfp4", "mxfp4", "mxfp8", "int4"};
    static const uint8_t spoilt[][4] = {{0x7f}, {0xff}, {0x05}, {0x80, 0x7f}};
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        fx *x = fx_new();
        fx_plain_config(x, "");
        fx_random(x, "layers.0.q_proj.weight", "32,128", 5);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, types[i]));
        fx_blob b = fx_open(x, "layers.0.q_proj.weight");
        const nb_layer *l = nb_manifest_find(&b.m, "layers.0.q_proj.weight");
        const nb_st_tensor *t = fx_tensor(&b, "layers.0.q_proj.weight.scale");
        nb_buf bytes = {0};
        nb_blob_ref ref;
        assert_non_null(t);
        nb_buf_add(&bytes, b.map.p, b.map.n);
        memcpy(bytes.p + t->off, spoilt[i], i == 3 ? 2 : 1);
        fx_ok(x, nb_blob_put(x->store, bytes.p, bytes.n, &ref, &x->err));
        nb_layer bad = {.media_type = l->media_type, .name = l->name, .size = ref.size};
        memcpy(bad.hex, ref.hex, sizeof bad.hex);
        nb_name name;
        fx_ok(x, nb_name_parse(&name, "t", &x->err));
        fx_ok(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err));
        fx_ok(x, nb_manifest_publish(x->store, &name, &b.m.config, &bad, 1, NULL, &x->err));
        fx_fails(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err), NB_E_INVALID, "out of its domain");
        nb_buf_free(&bytes);
        fx_close(&b);
        fx_free(x);
    }
}

/* A model of more blobs than the process may open files. */
static void few_descriptors(void **state)
{
    (void)state;
    fx *x = fx_new();
    static char names[200][64];
    char dir[300];
    struct rlimit old, few;
    fx_plain_config(x, "");
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        snprintf(names[i], sizeof names[i], "layers.%zu.input_layernorm.weight", i);
        fx_random(x, names[i], "64", (uint32_t)i);
    }
    fx_random(x, "layers.0.q_proj.weight", "64,64", 1);
    fx_save(x, "model.safetensors");
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    few = old;
    few.rlim_cur = 80;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    nb_create_options o = fx_options(x);
    nb_export_options e;
    nb_name name;
    nb_model_blobs b;
    o.layout = NB_LAYOUT_ROWS16;
    o.deep = true;
    fx_ok(x, fx_run(x, &o));
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err));
    fx_ok(x, nb_blobs_open(&b, x->store, &name, &x->err));
    assert_int_equal(b.n, NB_COUNT(names) + 1);
    nb_blobs_close(&b);
    nb_export_defaults(&e);
    snprintf(dir, sizeof dir, "%.250s/out", x->dir);
    e.name = "t";
    e.dir = dir;
    fx_ok(x, nb_export(x->store, &e, &x->err));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    fx_free(x);
}

/* Codes of specs/create.md 7.6 that no other test meets. */
static void named_codes(void **state)
{
    (void)state;
    static const char index_file[] = "{\"weight_map\":{\"a.weight\":\"../a.safetensors\"}}";
    static const char gate[] = "model.layers.0.mlp.experts.0.gate_proj.weight",
                      w1[] = "model.layers.0.mlp.experts.0.w1.weight",
                      second[] = "model.layers.0.mlp.experts.1.gate_proj.weight";
    fx *x = fx_new();
    nb_create_options o;
    fx_fails(x, nb_create_parse_request(&o, "int9", &x->err), NB_E_USAGE, "E_QUANT_TYPE");
    fx_fails(x, nb_create_parse_request(&o, "fp8", &x->err), NB_E_USAGE, "ambiguous");
    o = fx_options(x);
    o.force = false;
    fx_plain_config(x, "");
    fx_random(x, gate, "32,32", 1);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_run(x, &o), NB_E_UNSUPPORTED, "--force imports by names and shapes (E_ARCH_UNSUPPORTED)");
    fx_random(x, w1, "32,32", 2);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_EXPERT_DUP");
    fx_clear(x);
    fx_random(x, gate, "32,32", 1);
    fx_random(x, second, "32,64", 2);
    fx_save(x, "model.safetensors");
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_EXPERT_LAYOUT");
    fx_text(x, "model.safetensors.index.json", index_file);
    fx_fails(x, fx_create(x, "none"), NB_E_INVALID, "E_INDEX_PATH");
    fx_nothing_left(x);
    fx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quality_search),  cmocka_unit_test(quality_refused), cmocka_unit_test(kv_scales),
        cmocka_unit_test(factors_kept),    cmocka_unit_test(factors_refused), cmocka_unit_test(factors_of_siblings),
        cmocka_unit_test(users_texts),     cmocka_unit_test(model_fields),    cmocka_unit_test(gates),
        cmocka_unit_test(verify_standard), cmocka_unit_test(named_codes),     cmocka_unit_test(few_descriptors),
        cmocka_unit_test(tool_template),
    };
    return cmocka_run_group_tests_name("create: options and factors", tests, NULL, NULL);
}
