/* Draft models beside a target (specs/create.md 1.5, golden P15) and inline heads. */
#include "create/fixture.h"

static const char target[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":128,"
    "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,\"vocab_size\":320,"
    "\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"max_position_embeddings\":512,\"tie_word_embeddings\":true}";

/* A target of one layer, and its draft in SRC/draft. */
static void sources(fx *x, const char *draft_config)
{
    char src[300];
    fx_text(x, "config.json", target);
    fx_random(x, "model.embed_tokens.weight", "320,64", 1);
    fx_random(x, "model.norm.weight", "64", 2);
    fx_random(x, "model.layers.0.input_layernorm.weight", "64", 3);
    fx_random(x, "model.layers.0.post_attention_layernorm.weight", "64", 4);
    fx_random(x, "model.layers.0.self_attn.q_proj.weight", "64,64", 5);
    fx_random(x, "model.layers.0.self_attn.k_proj.weight", "32,64", 6);
    fx_random(x, "model.layers.0.self_attn.v_proj.weight", "32,64", 7);
    fx_random(x, "model.layers.0.self_attn.o_proj.weight", "64,64", 8);
    fx_random(x, "model.layers.0.mlp.gate_proj.weight", "128,64", 9);
    fx_random(x, "model.layers.0.mlp.up_proj.weight", "128,64", 10);
    fx_random(x, "model.layers.0.mlp.down_proj.weight", "64,128", 11);
    fx_save(x, "model.safetensors");
    fx_clear(x);
    memcpy(src, x->src, sizeof src);
    snprintf(x->src, sizeof x->src, "%.280s/draft", src);
    assert_int_equal(mkdir(x->src, 0755), 0);
    fx_text(x, "config.json", draft_config);
    fx_random(x, "embed_tokens.weight", "320,64", 21);
    fx_random(x, "lm_head.weight", "320,64", 22);
    fx_random(x, "layers.0.self_attn.q_proj.weight", "64,64", 23);
    fx_random(x, "norm.weight", "64", 24);
    fx_save(x, "model.safetensors");
    fx_clear(x);
    memcpy(x->src, src, sizeof src);
}

static nb_create_options options(fx *x)
{
    nb_create_options o = fx_options(x);
    o.force = false;
    o.layout = NB_LAYOUT_ROWS16;
    return o;
}

static void p15_draft(void **state)
{
    (void)state;
    fx *x = fx_new();
    sources(x, "{\"architectures\":[\"SomeDraft\"],\"vocab_size\":320}");
    nb_create_options o = options(x);
    o.draft_request = NB_REQUEST_TYPE;
    o.draft_type = nb_qtype_default(NB_NVFP4);
    fx_ok(x, fx_run(x, &o));
    static const char *const quantised[] = {"draft.embed_tokens.weight", "draft.lm_head.weight",
                                            "draft.layers.0.self_attn.q_proj.weight"};
    for (size_t i = 0; i < NB_COUNT(quantised); i++) { /* embedding and head too: no promotion to 8 bits */
        char key[100];
        fx_blob b = fx_open(x, quantised[i]);
        snprintf(key, sizeof key, "%s.quant_type", quantised[i]);
        fx_meta(&b, key, "nvfp4");
        fx_close(&b);
    }
    fx_blob b = fx_open(x, "model.embed_tokens.weight"); /* the target keeps what it was */
    fx_meta(&b, "model.embed_tokens.weight.quant_type", "bf16");
    assert_non_null(nb_manifest_find(&b.m, "draft/config.json"));
    assert_non_null(nb_manifest_find(&b.m, "draft.norm.weight"));
    nb_buf text = {0};
    nb_json_doc d = fx_json(x, b.m.config.hex, &text);
    nb_str s;
    assert_true(nb_json_str(nb_json_path(d.root, "draft.architecture"), &s) && nb_str_is(s, "SomeDraft"));
    assert_true(nb_json_str(nb_json_path(d.root, "draft.tensor_prefix"), &s) && nb_str_is(s, "draft."));
    nb_json_free(&d);
    nb_buf_free(&text);
    fx_close(&b);
    nb_name name;
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err));
    fx_free(x);
}

/* The draft's own architecture has a say in its types: Gemma 4 promotes v_proj by layer, the default always. */
static void own_policy(void **state)
{
    (void)state;
    static const struct {
        const char *config, *type;
    } rows[] = {
        {"{\"architectures\":[\"Gemma4AssistantForCausalLM\"],\"num_hidden_layers\":40,\"vocab_size\":320}", "int4"},
        {"{\"architectures\":[\"SomeDraft\"],\"num_hidden_layers\":40,\"vocab_size\":320}", "int8"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char src[300];
        sources(x, rows[i].config);
        memcpy(src, x->src, sizeof src);
        snprintf(x->src, sizeof x->src, "%.280s/draft", src);
        fx_random(x, "layers.6.self_attn.v_proj.weight", "64,64", 23);
        fx_save(x, "model.safetensors");
        memcpy(x->src, src, sizeof src);
        nb_create_options o = options(x);
        o.draft_request = NB_REQUEST_TYPE;
        o.draft_type = nb_qtype_default(NB_INT4);
        fx_ok(x, fx_run(x, &o));
        fx_blob b = fx_open(x, "draft.layers.6.self_attn.v_proj.weight");
        fx_meta(&b, "draft.layers.6.self_attn.v_proj.weight.quant_type", rows[i].type);
        fx_close(&b);
        fx_free(x);
    }
}

/* A draft is added to a stored model, then replaced by another: the model's own layers and config stay. */
static void added_later(void **state)
{
    (void)state;
    fx *x = fx_new();
    char aside[300], dir[320];
    sources(x, "{\"architectures\":[\"FirstDraft\"],\"vocab_size\":320}");
    snprintf(dir, sizeof dir, "%.280s/draft", x->src);
    snprintf(aside, sizeof aside, "%.250s/later", x->dir);
    assert_int_equal(rename(dir, aside), 0);
    nb_create_options o = options(x);
    o.source = NULL;
    o.draft = aside;
    fx_fails(x, fx_run(x, &o), NB_E_NOT_FOUND, "not found"); /* nothing stored yet */
    fx_nothing_left(x);
    o = options(x);
    fx_ok(x, fx_run(x, &o));
    fx_blob plain = fx_open(x, "model.norm.weight");
    size_t n = plain.m.n_layers;
    nb_buf before = {0}, after = {0};
    nb_json_doc old = fx_json(x, plain.m.config.hex, &before);
    assert_null(nb_json_get(old.root, "draft"));

    static const struct {
        const char *arch, *type;
    } steps[] = {{"FirstDraft", "nvfp4"}, {"SecondDraft", "bf16"}};
    for (size_t s = 0; s < NB_COUNT(steps); s++) {
        char src[300], text[200];
        memcpy(src, x->src, sizeof src);
        memcpy(x->src, aside, sizeof src);
        snprintf(text, sizeof text, "{\"architectures\":[\"%s\"],\"vocab_size\":320}", steps[s].arch);
        fx_text(x, "config.json", text);
        memcpy(x->src, src, sizeof src);
        o = options(x);
        o.source = NULL;
        o.draft = aside;
        o.draft_request = s ? NB_REQUEST_NONE : NB_REQUEST_TYPE;
        o.draft_type = nb_qtype_default(NB_NVFP4);
        o.search = s == 0;
        o.deep = true;
        fx_ok(x, fx_run(x, &o));
        assert_true(nb_str_is(x->report.source_kind, "stored"));
        assert_int_equal(x->report.n_tensors, 4);
        fx_blob b = fx_open(x, "draft.layers.0.self_attn.q_proj.weight");
        fx_meta(&b, "draft.layers.0.self_attn.q_proj.weight.quant_type", steps[s].type);
        assert_int_equal(b.m.n_layers, n + 5); /* four tensors, one config */
        for (size_t i = 0; i < n; i++) {
            assert_true(nb_str_eq(b.m.layers[i].name, plain.m.layers[i].name));
            assert_string_equal(b.m.layers[i].hex, plain.m.layers[i].hex);
        }
        nb_json_doc now = fx_json(x, b.m.config.hex, &after);
        nb_str arch;
        assert_true(nb_json_str(nb_json_path(now.root, "draft.architecture"), &arch));
        assert_true(nb_str_is(arch, steps[s].arch));
        assert_true(nb_json_present(nb_json_path(now.root, "draft.quality")) == (s == 0));
        assert_int_equal(now.root->count, old.root->count + 1);
        for (uint32_t i = 0; i < old.root->count; i++) assert_true(nb_str_eq(now.root->keys[i], old.root->keys[i]));
        nb_json_free(&now);
        fx_close(&b);
    }
    nb_name name;
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, nb_create_verify(x->store, &name, true, NULL, NULL, &x->err));
    fx_ok(x, nb_store_rm(x->store, &name, NULL, &x->err)); /* what was replaced on the way went with it */
    fx_nothing_left(x);
    nb_json_free(&old);
    nb_buf_free(&before);
    nb_buf_free(&after);
    fx_close(&plain);
    fx_free(x);
}

typedef struct meddler {
    fx *x;
    nb_status st;
    uint32_t times;
} meddler;

/* Imports the model anew, as another type, while its draft is about to be published. */
static void meddle(void *user, nb_create_phase p, const char *item, uint64_t done, uint64_t total, uint32_t n,
                   uint32_t n_total)
{
    meddler *m = user;
    nb_create_report r;
    nb_error err;
    (void)item, (void)done, (void)total, (void)n, (void)n_total;
    if (p != NB_CREATE_CONFIGS || m->times++) return;
    nb_create_options o = options(m->x);
    o.request = NB_REQUEST_TYPE;
    o.type = nb_qtype_default(NB_MXFP8);
    m->st = nb_create(m->x->store, &o, &r, &err);
    nb_create_report_free(&r);
}

static void replaced_meanwhile(void **state)
{
    (void)state;
    fx *x = fx_new();
    char aside[300], dir[320];
    sources(x, "{\"architectures\":[\"SomeDraft\"],\"vocab_size\":320}");
    snprintf(dir, sizeof dir, "%.280s/draft", x->src);
    snprintf(aside, sizeof aside, "%.250s/later", x->dir);
    assert_int_equal(rename(dir, aside), 0);
    nb_create_options o = options(x);
    fx_ok(x, fx_run(x, &o));
    meddler m = {.x = x, .st = NB_E_FAILED};
    o.source = NULL;
    o.draft = aside;
    o.progress = meddle;
    o.user = &m;
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "E_SOURCE_CHANGED");
    assert_int_equal(m.times, 1);
    assert_int_equal(m.st, NB_OK);
    fx_blob b = fx_open(x, "model.layers.0.self_attn.q_proj.weight"); /* the other import stands */
    fx_meta(&b, "model.layers.0.self_attn.q_proj.weight.quant_type", "mxfp8");
    assert_null(nb_manifest_find(&b.m, "draft/config.json"));
    fx_close(&b);
    fx_free(x);
}

/* What cannot be said of a model that is stored, and a draft that does not fit it: the model stays as it was. */
static void added_wrongly(void **state)
{
    (void)state;
    fx *x = fx_new();
    char aside[300], dir[320];
    sources(x, "{\"architectures\":[\"SomeDraft\"],\"vocab_size\":321}");
    snprintf(dir, sizeof dir, "%.280s/draft", x->src);
    snprintf(aside, sizeof aside, "%.250s/later", x->dir);
    assert_int_equal(rename(dir, aside), 0);
    nb_create_options o = options(x);
    fx_ok(x, fx_run(x, &o));
    size_t blobs = fx_files_in(x, "blobs");
    o.source = NULL;
    o.draft = aside;
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "vocab_size");
    nb_create_options bad[3] = {o, o, o};
    bad[0].request = NB_REQUEST_TYPE;
    bad[0].type = nb_qtype_default(NB_NVFP4);
    bad[1].keep = "*";
    bad[2].types = "*=int8";
    for (size_t i = 0; i < NB_COUNT(bad); i++) fx_fails(x, fx_run(x, &bad[i]), NB_E_USAGE, "stored already");
    o.draft = NULL;
    fx_fails(x, fx_run(x, &o), NB_E_NOT_FOUND, "no source");
    assert_int_equal(fx_files_in(x, "blobs"), blobs);
    fx_blob b = fx_open(x, "model.norm.weight");
    assert_null(nb_manifest_find(&b.m, "draft/config.json"));
    fx_close(&b);
    fx_free(x);
}

static void misfits(void **state)
{
    (void)state;
    static const struct {
        const char *config, *part;
    } rows[] = {
        {"{\"architectures\":[\"SomeDraft\"],\"vocab_size\":321}", "vocab_size"},
        {"{\"architectures\":[\"SomeDraft\"],\"num_target_layers\":2}", "num_target_layers"},
        {"{\"architectures\":[\"SomeDraft\"],\"dflash_config\":{\"target_layer_ids\":[0,1]}}", "target_layer_ids"},
        {"{\"vocab_size\":320}", "no architecture"},
        {"{", "draft"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        sources(x, rows[i].config);
        nb_create_options o = options(x);
        fx_fails(x, fx_run(x, &o), NB_E_INVALID, rows[i].part);
        fx_nothing_left(x);
        fx_free(x);
    }
    fx *x = fx_new();
    sources(x, "{\"architectures\":[\"SomeDraft\"]}");
    nb_create_options o = options(x);
    o.draft = x->src;
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "same directory");
    fx_free(x);
}

/* ---- a block draft ---- */

typedef struct dflash {
    const char *fields, *block; /* of config.json, and of dflash_config */
    const char *fc, *q, *kv;    /* shapes that differ; NULL: as they should be */
    const char *tokens;         /* tokenizer.json of the draft */
    const char *part;           /* of the message; NULL: it fits */
} dflash;

#define BLOCK "\"block_size\":4,\"mask_token_id\":7"
#define TAPS  "\"target_layer_ids\":[0]"
#define VOCAB "{\"model\":{\"vocab\":{\"a\":0,\"b\":1}},\"added_tokens\":[{\"id\":2,\"content\":\"<e>\"}]"

/* Replaces the folder "draft": one layer of the target's width, 4 heads of 16, 2 of them for keys. */
static void make_dflash(fx *x, const dflash *r)
{
    char src[300], text[1500];
    memcpy(src, x->src, sizeof src);
    snprintf(x->src, sizeof x->src, "%.280s/draft", src);
    snprintf(text, sizeof text, "{\"architectures\":[\"DFlashDraftModel\"],%s%s\"dflash_config\":{%s}}", r->fields,
             *r->fields ? "," : "", r->block);
    fx_text(x, "config.json", text);
    if (r->tokens) fx_text(x, "tokenizer.json", r->tokens);
    fx_clear(x);
    fx_random(x, "fc.weight", r->fc ? r->fc : "64,64", 1);
    fx_random(x, "hidden_norm.weight", "64", 2);
    fx_random(x, "norm.weight", "64", 3);
    fx_random(x, "layers.0.self_attn.q_proj.weight", r->q ? r->q : "64,64", 4);
    fx_random(x, "layers.0.self_attn.k_proj.weight", r->kv ? r->kv : "32,64", 5);
    fx_random(x, "layers.0.self_attn.v_proj.weight", "32,64", 6);
    fx_random(x, "layers.0.self_attn.o_proj.weight", "64,64", 7);
    fx_random(x, "layers.0.mlp.gate_proj.weight", "96,64", 8);
    fx_random(x, "layers.0.mlp.up_proj.weight", "96,64", 9);
    fx_random(x, "layers.0.mlp.down_proj.weight", "64,96", 10);
    fx_save(x, "model.safetensors");
    fx_clear(x);
    memcpy(x->src, src, sizeof src);
}

#define OWN                                                                                                            \
    "\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"  \
    "\"intermediate_size\":96,\"vocab_size\":320,\"num_target_layers\":1"

static void dflash_fits(void **state)
{
    (void)state;
    static const dflash rows[] = {
        {OWN, BLOCK "," TAPS, NULL, NULL, NULL, NULL, NULL},
        {OWN ",\"block_size\":4", "\"mask_token_id\":7," TAPS, NULL, NULL, NULL, NULL, NULL}, /* beside it */
        {OWN, BLOCK "," TAPS, NULL, NULL, NULL, VOCAB "}", NULL},
        {OWN, BLOCK "," TAPS, NULL, NULL, NULL, VOCAB ",\"other\":1}", NULL}, /* other bytes, the same tokens */
        {OWN, BLOCK, NULL, NULL, NULL, NULL, "no field dflash_config.target_layer_ids"},
        {OWN, BLOCK ",\"target_layer_ids\":[]", NULL, NULL, NULL, NULL, "target_layer_ids is [], a list"},
        {OWN, BLOCK ",\"target_layer_ids\":[0,1]", NULL, NULL, NULL, NULL, "is [0,1], the model has the layers 0 to 0"},
        {OWN, BLOCK ",\"target_layer_ids\":[-1]", NULL, NULL, NULL, NULL, "target_layer_ids is [-1], the model has"},
        {OWN, BLOCK ",\"target_layer_ids\":[0,0]", NULL, NULL, NULL, NULL, "is [0,0], ascending"},
        {OWN, BLOCK ",\"target_layer_ids\":\"0\\n\"", NULL, NULL, NULL, NULL, "target_layer_ids is \"0\\n\""},
        {OWN, "\"mask_token_id\":7," TAPS, NULL, NULL, NULL, NULL, "no field dflash_config.block_size"},
        {OWN, "\"block_size\":1,\"mask_token_id\":7," TAPS, NULL, NULL, NULL, NULL, "dflash_config.block_size is 1"},
        {OWN, "\"block_size\":2.5,\"mask_token_id\":7," TAPS, NULL, NULL, NULL, NULL, "block_size is 2.5"},
        {OWN, "\"block_size\":4," TAPS, NULL, NULL, NULL, NULL, "no field dflash_config.mask_token_id"},
        {OWN, "\"block_size\":4,\"mask_token_id\":320," TAPS, NULL, NULL, NULL, NULL,
         "is 320, the model has 320 tokens"},
        {OWN, "\"block_size\":4,\"mask_token_id\":-1," TAPS, NULL, NULL, NULL, NULL, "mask_token_id is -1"},
        {OWN, "\"block_size\":4,\"mask_token_id\":2," TAPS, NULL, NULL, NULL, NULL, "is 2, which ends or pads"},
        {OWN, "\"block_size\":4,\"mask_token_id\":3," TAPS, NULL, NULL, NULL, NULL, "is 3, which ends or pads"},
        {OWN ",\"vocab_size\":321", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "vocab_size is 321, the model has 320"},
        {OWN ",\"draft_vocab_size\":100", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "no tensor d2t"},
        {OWN ",\"draft_vocab_size\":400", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "draft_vocab_size is 400"},
        {OWN ",\"num_target_layers\":2", BLOCK "," TAPS, NULL, NULL, NULL, NULL,
         "num_target_layers is 2, the model has 1"},
        {OWN ",\"target_hidden_size\":32", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "target_hidden_size is 32"},
        {OWN ",\"hidden_size\":128", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "hidden_size is 128, the model has 64"},
        {OWN ",\"hidden_size\":0", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "hidden_size is 0"},
        {OWN ",\"num_hidden_layers\":2", BLOCK "," TAPS, NULL, NULL, NULL, NULL,
         "layers.1.self_attn.q_proj.weight is missing"},
        {OWN ",\"layer_types\":[]", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "layer_types is [], 1 layers"},
        {OWN ",\"layer_types\":[\"sliding_attention\"]", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "no sliding_window"},
        {OWN ",\"layer_types\":[\"sliding_attention\"],\"sliding_window\":64", BLOCK "," TAPS, NULL, NULL, NULL, NULL,
         NULL},
        {OWN ",\"num_key_value_heads\":3", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "num_key_value_heads is 3, 4 heads"},
        {OWN ",\"num_attention_heads\":2", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "[64,64], [32,64] was expected"},
        {OWN ",\"head_dim\":null,\"num_attention_heads\":6", BLOCK "," TAPS, NULL, NULL, NULL, NULL,
         "num_attention_heads is 6, a width of 64"},
        {OWN ",\"intermediate_size\":97", BLOCK "," TAPS, NULL, NULL, NULL, NULL, "mlp.gate_proj.weight is [96,64]"},
        {OWN, BLOCK "," TAPS, "64,128", NULL, NULL, NULL, "fc.weight is [64,128], [64,64]"},
        {OWN, BLOCK "," TAPS, "32,64", NULL, NULL, NULL, "fc.weight is [32,64], [64,64]"},
        {OWN, BLOCK "," TAPS, NULL, "128,64", NULL, NULL, "q_proj.weight is [128,64], [64,64]"},
        {OWN, BLOCK "," TAPS, NULL, NULL, "16,64", NULL, "k_proj.weight is [16,64], [32,64]"},
        {OWN, BLOCK "," TAPS, NULL, NULL, NULL, "{\"model\":{\"vocab\":{\"a\":1,\"b\":0}}}",
         "token \"b\" has the id 0, in the model it has 1"},
        {OWN, BLOCK "," TAPS, NULL, NULL, NULL, "{\"model\":{\"vocab\":{\"a\":0,\"\\n\":1}}}",
         "token \"\\n\" has the id 1, the model does not know it"},
        {OWN, BLOCK "," TAPS, NULL, NULL, NULL, "{\"model\":{\"vocab\":{\"a\":0,\"b\":1}}}",
         "2 tokens, the model has 3"},
        {OWN, BLOCK "," TAPS, NULL, NULL, NULL, "{", "draft: tokenizer.json"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char text[700];
        sources(x, "{}");
        fx_text(x, "tokenizer.json", VOCAB "}");
        snprintf(text, sizeof text, "%.*s,\"eos_token_id\":[2,5],\"pad_token_id\":3}", (int)strlen(target) - 1, target);
        fx_text(x, "config.json", text);
        make_dflash(x, &rows[i]);
        nb_create_options o = options(x);
        nb_status st = fx_run(x, &o);
        if (rows[i].part ? st != NB_E_INVALID || !strstr(x->err.text, rows[i].part) : st != NB_OK)
            fail_msg("row %zu: %d: %s", i, st, x->err.text);
        if (rows[i].part) {
            assert_non_null(strstr(x->err.text, "draft"));
            assert_null(strchr(x->err.text, '\n'));
            fx_nothing_left(x);
        }
        fx_free(x);
    }
    printf("covered: %zu drafts\n", NB_COUNT(rows));
}

/* Drafts of other kinds: by their architecture, their numbers perhaps in text_config. */
static void other_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *config, *d2t, *kind, *part; /* d2t: shape, NULL: none; part NULL: it fits */
    } rows[] = {
        {"\"Gemma4AssistantForCausalLM\"],\"text_config\":{\"vocab_size\":320,\"head_dim\":16,\"num_hidden_layers\":4}",
         NULL, "assistant", NULL},
        {"\"Gemma4AssistantForCausalLM\"],\"text_config\":{\"head_dim\":32}", NULL, NULL,
         "field text_config.head_dim is 32, the model has 16"},
        {"\"Gemma4AssistantForCausalLM\"],\"num_key_value_heads\":4", NULL, NULL,
         "num_key_value_heads is 4, the model has 2"},
        {"\"Gemma4AssistantForCausalLM\"],\"text_config\":{\"vocab_size\":321}", NULL, NULL, "vocab_size is 321"},
        {"\"LlamaForCausalLMEagle3\"],\"hidden_size\":64,\"draft_vocab_size\":100", "100", "eagle", NULL},
        {"\"LlamaForCausalLMEagle3\"],\"hidden_size\":64,\"draft_vocab_size\":100", "99", NULL,
         "d2t has 99 entries, 100 tokens"},
        {"\"LlamaForCausalLMEagle3\"],\"hidden_size\":64", "321", NULL, "d2t has 321 entries"},
        {"\"LlamaForCausalLMEagle3\"],\"hidden_size\":32", NULL, NULL, "hidden_size is 32, the model has 64"},
        {"\"SmallForCausalLM\"],\"hidden_size\":32", NULL, "model", NULL}, /* a model of its own width */
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char src[300], text[400];
        nb_buf stored = {0};
        nb_str s;
        sources(x, "{}");
        memcpy(src, x->src, sizeof src);
        snprintf(x->src, sizeof x->src, "%.280s/draft", src);
        snprintf(text, sizeof text, "{\"architectures\":[%s}", rows[i].config);
        fx_text(x, "config.json", text);
        fx_random(x, "layers.0.self_attn.q_proj.weight", "64,64", 23);
        if (rows[i].d2t) fx_add(x, "d2t", NB_DT_I64, rows[i].d2t, NULL);
        fx_save(x, "model.safetensors");
        memcpy(x->src, src, sizeof src);
        nb_create_options o = options(x);
        nb_status st = fx_run(x, &o);
        if (rows[i].part) {
            fx_fails(x, st, NB_E_INVALID, rows[i].part);
        } else {
            fx_ok(x, st);
            fx_blob b = fx_open(x, "draft.layers.0.self_attn.q_proj.weight");
            nb_json_doc d = fx_json(x, b.m.config.hex, &stored);
            assert_true(nb_json_str(nb_json_path(d.root, "draft.kind"), &s) && nb_str_is(s, rows[i].kind));
            nb_json_free(&d);
            fx_close(&b);
        }
        nb_buf_free(&stored);
        fx_free(x);
    }
}

/* What is recorded; and a draft that is added to a stored model is compared with the stored tokenizer. */
static void dflash_recorded(void **state)
{
    (void)state;
    fx *x = fx_new();
    char aside[300], dir[320];
    nb_buf text = {0};
    nb_str s;
    int64_t v;
    sources(x, "{}");
    fx_text(x, "tokenizer.json", VOCAB "}");
    make_dflash(x, &(dflash){OWN, BLOCK "," TAPS, NULL, NULL, NULL, VOCAB ",\"other\":1}", NULL});
    snprintf(dir, sizeof dir, "%.280s/draft", x->src);
    snprintf(aside, sizeof aside, "%.250s/later", x->dir);
    assert_int_equal(rename(dir, aside), 0);
    nb_create_options o = options(x);
    fx_ok(x, fx_run(x, &o));
    o.source = NULL;
    o.draft = aside;
    fx_ok(x, fx_run(x, &o));
    fx_blob b = fx_open(x, "draft.fc.weight");
    nb_json_doc d = fx_json(x, b.m.config.hex, &text);
    assert_true(nb_json_str(nb_json_path(d.root, "draft.kind"), &s) && nb_str_is(s, "dflash"));
    assert_true(nb_json_i64(nb_json_path(d.root, "draft.block_size"), &v) && v == 4);
    assert_true(nb_json_i64(nb_json_path(d.root, "draft.mask_token_id"), &v) && v == 7);
    assert_true(nb_json_i64(nb_json_path(d.root, "draft.layers"), &v) && v == 1);
    const nb_json *taps = nb_json_path(d.root, "draft.target_layer_ids");
    assert_true(nb_json_is(taps, NB_JSON_ARRAY) && taps->count == 1);
    nb_json_free(&d);
    nb_buf_free(&text);
    fx_close(&b);
    size_t blobs = fx_files_in(x, "blobs");
    char src[300];
    memcpy(src, x->src, sizeof src);
    memcpy(x->src, aside, sizeof src);
    fx_text(x, "tokenizer.json", "{\"model\":{\"vocab\":{\"a\":1,\"b\":0}}}");
    memcpy(x->src, src, sizeof src);
    fx_fails(x, fx_run(x, &o), NB_E_INVALID, "token \"b\" has the id 0, in the model it has 1");
    assert_int_equal(fx_files_in(x, "blobs"), blobs);
    fx_free(x);
}

/* Importing a name anew leaves nothing of what it stood for, but what is still used. */
static void replaced(void **state)
{
    (void)state;
    fx *x = fx_new();
    sources(x, "{\"architectures\":[\"SomeDraft\"]}");
    nb_create_options o = options(x);
    nb_name name;
    fx_ok(x, nb_name_parse(&name, "t", &x->err));
    fx_ok(x, fx_run(x, &o));
    size_t blobs = fx_files_in(x, "blobs");
    o.request = NB_REQUEST_TYPE;
    o.type = nb_qtype_default(NB_MXFP8);
    fx_ok(x, fx_run(x, &o));
    assert_int_equal(fx_files_in(x, "blobs"), blobs);
    nb_name other;
    fx_ok(x, nb_name_parse(&other, "kept", &x->err));
    fx_ok(x, nb_store_cp(x->store, &name, &other, &x->err)); /* what another name has stays */
    o.request = NB_REQUEST_NONE;
    fx_ok(x, fx_run(x, &o));
    assert_true(fx_files_in(x, "blobs") > blobs);
    fx_ok(x, nb_store_verify(x->store, &other, NULL, NULL, &x->err));
    fx_ok(x, nb_store_rm(x->store, &other, NULL, &x->err));
    assert_int_equal(fx_files_in(x, "blobs"), blobs);
    fx_ok(x, nb_store_rm(x->store, &name, NULL, &x->err));
    fx_nothing_left(x);
    fx_free(x);
}

/* The inline head has the target's width, and layers like the target's. */
static void inline_misfits(void **state)
{
    (void)state;
    static const struct {
        const char *fc, *q, *k, *part;
    } rows[] = {
        {"64,128", "64,64", "32,64", NULL},
        {"64,64", "64,64", "32,64", "mtp.fc.weight is [64,64], [64,128] was expected"},
        {"64,128", "96,64", "32,64", "mtp.layers.0.self_attn.q_proj.weight of the inline draft is [96,64]"},
        {"64,128", "64,64", "64,64", "model.layers.0.self_attn.k_proj.weight is [32,64]"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        sources(x, "{\"architectures\":[\"SomeDraft\"]}");
        fx_random(x, "mtp.fc.weight", rows[i].fc, 1);
        fx_random(x, "mtp.layers.0.self_attn.q_proj.weight", rows[i].q, 2);
        fx_random(x, "mtp.layers.0.self_attn.k_proj.weight", rows[i].k, 3);
        fx_save(x, "model-2.safetensors");
        char from[700], to[700];
        snprintf(from, sizeof from, "%s/model.safetensors", x->src);
        snprintf(to, sizeof to, "%s/model-1.safetensors", x->src);
        assert_int_equal(rename(from, to), 0);
        nb_create_options o = options(x);
        nb_status st = fx_run(x, &o);
        if (rows[i].part)
            fx_fails(x, st, NB_E_INVALID, rows[i].part);
        else
            fx_ok(x, st);
        fx_free(x);
    }
}

/* An inline head: its matrices are stored like the others, its experts as a bank, and it is recorded. */
static void inline_head(void **state)
{
    (void)state;
    fx *x = fx_new();
    fx_text(x, "config.json", target);
    fx_plain_config(x, "\"mtp_num_hidden_layers\":1");
    fx_random(x, "model.layers.0.self_attn.q_proj.weight", "64,64", 1);
    fx_random(x, "mtp.fc.weight", "64,128", 2);
    fx_random(x, "mtp.layers.0.mlp.experts.gate_up_proj", "4,64,64", 3);
    fx_random(x, "mtp.layers.0.mlp.experts.down_proj", "4,64,32", 4);
    fx_save(x, "model.safetensors");
    nb_create_options o = fx_options(x);
    o.layout = NB_LAYOUT_ROWS16;
    fx_ok(x, fx_run(x, &o));
    fx_blob b = fx_open(x, "mtp.layers.0.mlp.experts");
    fx_meta(&b, "mtp.layers.0.mlp.experts.weight.gate.shape", "[32,64]");
    fx_meta(&b, "mtp.layers.0.mlp.experts.weight.down.shape", "[64,32]");
    nb_buf text = {0};
    nb_json_doc d = fx_json(x, b.m.config.hex, &text);
    nb_str kind;
    assert_true(nb_json_str(nb_json_path(d.root, "inline_draft.kind"), &kind) && nb_str_is(kind, "mtp"));
    nb_json_free(&d);
    nb_buf_free(&text);
    fx_close(&b);
    fx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p15_draft),   cmocka_unit_test(own_policy),    cmocka_unit_test(misfits),
        cmocka_unit_test(added_later), cmocka_unit_test(added_wrongly), cmocka_unit_test(replaced_meanwhile),
        cmocka_unit_test(inline_head), cmocka_unit_test(dflash_fits),   cmocka_unit_test(dflash_recorded),
        cmocka_unit_test(other_kinds), cmocka_unit_test(replaced),      cmocka_unit_test(inline_misfits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
