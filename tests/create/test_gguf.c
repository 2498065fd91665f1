/* GGUF files: every type that imports without loss comes back bit for bit, rows of q and k are put in order, metadata
 * becomes a config, a tokenizer and a template. */
#include "create/fixture.h"
#include "create/stored.h"
#include "format/gguf.h"

#include <math.h>

typedef struct gg {
    nb_buf kv, infos, data;
    uint64_t n_kv, n_tensors;
} gg;

static void put_u32(nb_buf *b, uint32_t v) { nb_buf_add(b, &v, 4); }
static void put_u64(nb_buf *b, uint64_t v) { nb_buf_add(b, &v, 8); }
static void put_str(nb_buf *b, const char *s)
{
    put_u64(b, strlen(s));
    nb_buf_add_cstr(b, s);
}

static void kv_u32(gg *g, const char *k, uint32_t v)
{
    put_str(&g->kv, k);
    put_u32(&g->kv, 4);
    put_u32(&g->kv, v);
    g->n_kv++;
}
static void kv_f32(gg *g, const char *k, float v)
{
    put_str(&g->kv, k);
    put_u32(&g->kv, 6);
    put_u32(&g->kv, nb_bits_f32(v));
    g->n_kv++;
}
static void kv_str(gg *g, const char *k, const char *v)
{
    put_str(&g->kv, k);
    put_u32(&g->kv, 8);
    put_str(&g->kv, v);
    g->n_kv++;
}
static void kv_tokens(gg *g, uint32_t n)
{
    put_str(&g->kv, "tokenizer.ggml.tokens");
    put_u32(&g->kv, 9);
    put_u32(&g->kv, 8);
    put_u64(&g->kv, n);
    for (uint32_t i = 0; i < n; i++) {
        char t[16];
        snprintf(t, sizeof t, "t%u", i);
        put_str(&g->kv, t);
    }
    put_str(&g->kv, "tokenizer.ggml.merges"); /* none, but a tokenizer of this kind has the list */
    put_u32(&g->kv, 9);
    put_u32(&g->kv, 8);
    put_u64(&g->kv, 0);
    g->n_kv += 2;
}

/* rows of k columns (rows 0: a vector); bytes random, block scales sane. */
static size_t tensor(gg *g, const char *name, uint32_t type, int64_t rows, int64_t k, uint32_t seed)
{
    const nb_ggml_row *info = nb_ggml_info(type);
    size_t at = g->data.n, n = (size_t)((rows ? rows : 1) * (k / info->block)) * info->bytes;
    put_str(&g->infos, name);
    put_u32(&g->infos, rows ? 2 : 1);
    put_u64(&g->infos, (uint64_t)k);
    if (rows) put_u64(&g->infos, (uint64_t)rows);
    put_u32(&g->infos, type);
    put_u64(&g->infos, at);
    g->n_tensors++;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        nb_buf_add_char(&g->data, (char)(seed >> 24));
    }
    uint8_t *p = (uint8_t *)g->data.p + at;
    for (size_t b = 0; b < n / info->bytes; b++) {
        uint8_t *q = p + b * info->bytes;
        uint16_t d = nb_f16_encode(0.01f + 0.001f * (float)(b % 50)), m = nb_f16_encode(-0.05f);
        switch (type) {
        case NB_GGML_F32: nb_store_u32(q, nb_bits_f32(0.5f + 0.01f * (float)(b % 90))); break;
        case NB_GGML_F16: nb_store_u16(q, d); break;
        case NB_GGML_BF16: nb_store_u16(q, nb_bf16_encode(0.02f * (float)(b % 70) - 0.5f)); break;
        case NB_GGML_Q4_1:
        case NB_GGML_Q5_1:
        case NB_GGML_Q4_K:
        case NB_GGML_Q5_K:
            nb_store_u16(q, d);
            nb_store_u16(q + 2, m);
            break;
        case NB_GGML_Q6_K: nb_store_u16(q + info->bytes - 2, d); break;
        case NB_GGML_MXFP4: q[0] = (uint8_t)(120 + b % 8); break;
        case NB_GGML_NVFP4:
            for (int i = 0; i < 4; i++) q[i] = (uint8_t)(0x30 + (b + (size_t)i) % 16);
            break;
        default: nb_store_u16(q, d);
        }
    }
    while (g->data.n % 32) nb_buf_add_char(&g->data, 0);
    return at;
}

static void save(fx *x, gg *g, size_t cut)
{
    nb_buf b = {0};
    nb_buf_add_cstr(&b, "GGUF");
    put_u32(&b, 3);
    put_u64(&b, g->n_tensors);
    put_u64(&b, g->n_kv);
    nb_buf_add(&b, g->kv.p, g->kv.n);
    nb_buf_add(&b, g->infos.p, g->infos.n);
    while (b.n % 32) nb_buf_add_char(&b, 0);
    nb_buf_add(&b, g->data.p, g->data.n);
    fx_file(x, "m.gguf", b.p, b.n - cut);
    nb_buf_free(&b);
}

static void gg_free(gg *g)
{
    nb_buf_free(&g->kv);
    nb_buf_free(&g->infos);
    nb_buf_free(&g->data);
}

/* One layer, width 256, 4 heads of 64, 2 for k and v; `type` for q, k and down. */
static void small(gg *g, const char *arch, uint32_t type, size_t at[3])
{
    char key[100];
    static const struct {
        const char *key;
        uint32_t v;
    } ints[] = {{"embedding_length", 256},      {"block_count", 1},           {"attention.head_count", 4},
                {"attention.head_count_kv", 2}, {"feed_forward_length", 512}, {"context_length", 512},
                {"rope.dimension_count", 64},   {"attention.key_length", 64}};
    memset(g, 0, sizeof *g);
    kv_str(g, "general.architecture", arch);
    for (size_t i = 0; i < NB_COUNT(ints); i++) {
        snprintf(key, sizeof key, "%s.%s", arch, ints[i].key);
        kv_u32(g, key, ints[i].v);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    kv_f32(g, key, 1e-5f);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    kv_f32(g, key, 50000.0f);
    kv_str(g, "tokenizer.ggml.model", "gpt2");
    kv_str(g, "tokenizer.ggml.pre", "smollm");
    kv_u32(g, "tokenizer.ggml.eos_token_id", 2);
    kv_u32(g, "tokenizer.ggml.eot_token_id", 7);
    kv_str(g, "tokenizer.chat_template", "{{ messages }}");
    kv_tokens(g, 96);
    tensor(g, "token_embd.weight", NB_GGML_Q8_0, 96, 256, 1);
    tensor(g, "output_norm.weight", NB_GGML_F32, 0, 256, 2);
    tensor(g, "blk.0.attn_norm.weight", NB_GGML_F32, 0, 256, 3);
    tensor(g, "blk.0.ffn_norm.weight", NB_GGML_F32, 0, 256, 4);
    at[0] = tensor(g, "blk.0.attn_q.weight", type, 256, 256, 5);
    at[1] = tensor(g, "blk.0.attn_k.weight", type, 128, 256, 6);
    tensor(g, "blk.0.attn_v.weight", NB_GGML_Q8_0, 128, 256, 7);
    tensor(g, "blk.0.attn_output.weight", NB_GGML_Q8_0, 256, 256, 8);
    tensor(g, "blk.0.ffn_gate.weight", NB_GGML_BF16, 512, 256, 9);
    tensor(g, "blk.0.ffn_up.weight", NB_GGML_F16, 512, 256, 10);
    at[2] = tensor(g, "blk.0.ffn_down.weight", type, 256, 512, 11);
}

static nb_status import(fx *x, const char *type, bool requantize)
{
    static char path[400];
    nb_create_options o = fx_options(x);
    snprintf(path, sizeof path, "%s/m.gguf", x->src);
    o.source = path;
    o.force = false;
    o.layout = NB_LAYOUT_ROWS16;
    o.allow_requantize = requantize;
    fx_ok(x, nb_create_parse_request(&o, type, &x->err));
    return fx_run(x, &o);
}

/* Values of a stored matrix against blocks of the file, with rows of heads put in order when hd is not 0. */
static void compare(fx *x, const gg *g, const char *name, uint32_t type, size_t at, int64_t rows, int64_t k, int64_t hd,
                    bool exact)
{
    nb_name n;
    nb_model_blobs b;
    nb_buf scratch = {0};
    size_t count = (size_t)(rows * k);
    float *want = malloc(count * sizeof *want), *got = malloc(count * sizeof *got);
    fx_ok(x, nb_name_parse(&n, "t", &x->err));
    fx_ok(x, nb_blobs_open(&b, x->store, &n, &x->err));
    const nb_stored *s = nb_blobs_find(&b, nb_str_of(name), 0);
    assert_non_null(s);
    assert_int_equal(s->n, rows);
    assert_true(nb_ggml_to_f32(type, g->data.p + at, rows * k, want));
    fx_ok(x, nb_stored_floats(s, 0, rows, got, &scratch, &x->err));
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = hd ? r / hd * hd + 2 * (r % hd % (hd / 2)) + r % hd / (hd / 2) : r;
        for (int64_t c = 0; c < k; c++) {
            float w = want[from * k + c], v = got[r * k + c];
            if (exact)
                assert_true(w == v);
            else
                assert_true(fabsf(w - v) <= fabsf(w) * 0.00391f);
        }
    }
    free(want);
    free(got);
    nb_buf_free(&scratch);
    nb_blobs_close(&b);
}

/* Matrices whose loss is said in figures. */
static size_t losses(const fx *x)
{
    size_t n = 0;
    for (size_t i = 0; i < x->report.n_warnings; i++) {
        const nb_str *t = &x->report.warnings[i].text;
        n += t->n > 12 && !memcmp(t->p, "loss as bf16", 12);
    }
    return n;
}

static void every_type(void **state)
{
    (void)state;
    static const uint32_t types[] = {NB_GGML_F32,  NB_GGML_F16,  NB_GGML_BF16, NB_GGML_Q4_0,  NB_GGML_Q4_1,
                                     NB_GGML_Q5_0, NB_GGML_Q5_1, NB_GGML_Q8_0, NB_GGML_MXFP4, NB_GGML_NVFP4,
                                     NB_GGML_Q4_K, NB_GGML_Q5_K, NB_GGML_Q6_K};
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        fx *x = fx_new();
        gg g;
        size_t at[3];
        nb_qtype q;
        bool exact = nb_ggml_lossless(types[i], &q);
        small(&g, "llama", types[i], at);
        save(x, &g, 0);
        fx_ok(x, import(x, "none", false));
        compare(x, &g, "model.layers.0.self_attn.q_proj.weight", types[i], at[0], 256, 256, 64, exact);
        compare(x, &g, "model.layers.0.self_attn.k_proj.weight", types[i], at[1], 128, 256, 64, exact);
        compare(x, &g, "model.layers.0.mlp.down_proj.weight", types[i], at[2], 256, 512, 0, exact);
        assert_int_equal(losses(x), exact ? 0 : 3);
        char path[400];
        snprintf(path, sizeof path, "%s/m.gguf", x->src);
        nb_create_options o = fx_options(x); /* standard layout: plain tensors */
        o.source = path;
        fx_ok(x, fx_run(x, &o));
        assert_int_equal(losses(x), exact ? 0 : 3);
        gg_free(&g);
        fx_free(x);
    }
    print_message("%zu types\n", NB_COUNT(types));
}

/* A scale whose bias is beyond F16: the tensors that have one get F32 scales, the others stay, and no value is lost. A
 * scale that is not finite is refused still. */
static void large_scales(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        float d;
    } rows[] = {{NB_GGML_Q8_0, 600.0f}, {NB_GGML_Q8_0, -40000.0f}, {NB_GGML_Q4_0, 9000.0f}, {NB_GGML_Q5_0, 5000.0f}};
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        gg g;
        size_t at[3];
        small(&g, "llama", rows[i].type, at);
        const size_t bytes = nb_ggml_info(rows[i].type)->bytes;
        nb_store_u16(g.data.p + at[0] + 17 * bytes, nb_f16_encode(rows[i].d));
        nb_store_u16(g.data.p + at[2] + (256 * 16 - 1) * bytes, nb_f16_encode(rows[i].d)); /* the last block */
        save(x, &g, 0);
        fx_ok(x, import(x, "none", false));
        static const struct {
            const char *name, *scale;
        } want[] = {{"model.layers.0.self_attn.q_proj.weight", "F32"},
                    {"model.layers.0.self_attn.k_proj.weight", "F16"},
                    {"model.layers.0.mlp.down_proj.weight", "F32"}};
        for (size_t k = 0; k < NB_COUNT(want); k++) {
            char key[100];
            snprintf(key, sizeof key, "%s.scale_dtype", want[k].name);
            fx_blob b = fx_open(x, want[k].name);
            fx_meta(&b, key, want[k].scale);
            fx_close(&b);
        }
        compare(x, &g, want[0].name, rows[i].type, at[0], 256, 256, 64, true);
        compare(x, &g, want[1].name, rows[i].type, at[1], 128, 256, 64, true);
        compare(x, &g, want[2].name, rows[i].type, at[2], 256, 512, 0, true);
        assert_int_equal(x->report.n_warnings, 0);
        gg_free(&g);
        fx_free(x);
    }
    fx *x = fx_new();
    gg g;
    size_t at[3];
    small(&g, "llama", NB_GGML_Q8_0, at);
    nb_store_u16(g.data.p + at[0], nb_f16_encode(600.0f));
    nb_store_u16(g.data.p + at[1] + 9 * 34, 0x7c00);
    save(x, &g, 0);
    fx_fails(x, import(x, "none", false), NB_E_INVALID, "not finite");
    fx_nothing_left(x);
    gg_free(&g);
    fx_free(x);
}

static void metadata(void **state)
{
    (void)state;
    fx *x = fx_new();
    gg g;
    size_t at[3];
    small(&g, "llama", NB_GGML_Q4_0, at);
    save(x, &g, 0);
    fx_ok(x, import(x, "none", false));
    fx_blob b = fx_open(x, "none");
    nb_buf text = {0};
    nb_json_doc d = fx_json(x, nb_manifest_find(&b.m, "config.json")->hex, &text);
    static const struct {
        const char *key;
        int64_t v;
    } want[] = {
        {"hidden_size", 256}, {"num_hidden_layers", 1},   {"num_attention_heads", 4}, {"num_key_value_heads", 2},
        {"head_dim", 64},     {"intermediate_size", 512}, {"vocab_size", 96},         {"max_position_embeddings", 512}};
    for (size_t i = 0; i < NB_COUNT(want); i++) {
        int64_t v = 0;
        assert_true(nb_json_i64(nb_json_get(d.root, want[i].key), &v));
        assert_int_equal(v, want[i].v);
    }
    double f = 0;
    bool tied = false;
    assert_true(nb_json_f64(nb_json_get(d.root, "rms_norm_eps"), &f) && f == 1e-5);
    assert_true(nb_json_f64(nb_json_path(d.root, "rope_parameters.rope_theta"), &f) && f == 50000.0);
    assert_true(nb_json_bool(nb_json_get(d.root, "tie_word_embeddings"), &tied) && tied);
    assert_int_equal(nb_json_get(d.root, "eos_token_id")->count, 2);
    nb_json_free(&d);
    assert_non_null(nb_manifest_find(&b.m, "gguf_tokenizer.json"));
    assert_non_null(nb_manifest_find(&b.m, "chat_template.jinja"));
    assert_non_null(nb_manifest_find(&b.m, "generation_config.json"));
    nb_buf_free(&text);
    fx_close(&b);
    fx_fails(x, import(x, "nvfp4", false), NB_E_INVALID, "E_REQUANT");
    fx_ok(x, import(x, "nvfp4", true));
    assert_int_equal(x->report.n_quantized, 8);
    gg_free(&g);
    fx_free(x);
}

static void bad_files(void **state)
{
    (void)state;
    fx *x = fx_new();
    gg g;
    size_t at[3];
    small(&g, "llama", NB_GGML_Q4_0, at);
    save(x, &g, 1000);
    fx_fails(x, import(x, "none", false), NB_E_INVALID, "m.gguf");
    save(x, &g, g.data.n + 300);
    fx_fails(x, import(x, "none", false), NB_E_INVALID, "m.gguf");
    gg_free(&g);
    small(&g, "nosuch", NB_GGML_Q4_0, at);
    save(x, &g, 0);
    fx_fails(x, import(x, "none", false), NB_E_UNSUPPORTED, "nosuch");
    gg_free(&g);
    small(&g, "qwen3", NB_GGML_Q4_0, at); /* q and k norms are missing */
    save(x, &g, 0);
    fx_fails(x, import(x, "none", false), NB_E_INVALID, "q_norm");
    gg_free(&g);
    small(&g, "llama", NB_GGML_Q4_0, at); /* a multiplier beside a type that has none */
    tensor(&g, "blk.0.attn_q.scale", NB_GGML_F32, 0, 1, 12);
    save(x, &g, 0);
    fx_fails(x, import(x, "none", false), NB_E_INVALID, "blk.0.attn_q.scale");
    fx_nothing_left(x);
    gg_free(&g);
    memset(&g, 0, sizeof g);
    kv_str(&g, "general.architecture", "llama");
    tensor(&g, "token_embd.weight", NB_GGML_Q8_0, 96, 256, 1);
    save(x, &g, 0);
    fx_fails(x, import(x, "none", false), NB_E_INVALID, "llama.embedding_length");
    fx_nothing_left(x);
    gg_free(&g);
    fx_free(x);
}

/* Blocks whose scale lies below what kernels take become zero, in every layout, and the report counts them; one above
 * is an error. */
static void scales_out_of_the_domain(void **state)
{
    (void)state;
    for (int high = 0; high < 2; high++) {
        gg g;
        size_t at[3];
        fx *x = fx_new();
        small(&g, "qwen3", NB_GGML_MXFP4, at);
        tensor(&g, "blk.0.attn_q_norm.weight", NB_GGML_F32, 0, 64, 20);
        tensor(&g, "blk.0.attn_k_norm.weight", NB_GGML_F32, 0, 64, 21);
        uint8_t *block = (uint8_t *)g.data.p + at[0] + 17 * 3; /* of row 0: columns 96 to 127 */
        block[0] = high ? 241 : 15;
        block[1] = 0x21;
        block[17] = 15; /* the next one holds nothing but zeros: no block is lost */
        memset(block + 18, 0x80, 16);
        save(x, &g, 0);
        nb_status st = import(x, "none", false);
        if (high) {
            fx_fails(x, st, NB_E_INVALID, "E_SCALE_RANGE");
            fx_nothing_left(x);
        } else {
            nb_create_options o = fx_options(x);
            char path[400];
            size_t told = 0;
            fx_ok(x, st);
            for (size_t i = 0; i < x->report.n_warnings; i++)
                told += nb_str_is(x->report.warnings[i].text, "1 blocks with a scale below 2^-111 became zero") &&
                        nb_str_ends(x->report.warnings[i].name, "self_attn.q_proj.weight");
            assert_int_equal(told, 1);
            memset(block, 0, 17);
            memset(block + 17, 0, 17);
            compare(x, &g, "model.layers.0.self_attn.q_proj.weight", NB_GGML_MXFP4, at[0], 256, 256, 0, true);
            block[0] = 15;
            block[1] = 0x21;
            snprintf(path, sizeof path, "%s/m.gguf", x->src);
            o.source = path;
            o.deep = true; /* what became zero is not taken for damage */
            fx_ok(x, fx_run(x, &o));
        }
        gg_free(&g);
        fx_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),
        cmocka_unit_test(large_scales),
        cmocka_unit_test(metadata),
        cmocka_unit_test(bad_files),
        cmocka_unit_test(scales_out_of_the_domain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
