/* Configs, tensor lists and canonical names: against every reference model that the test data holds, and against texts
 * with defects. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "data.h"
#include "format/safetensors.h"
#include "model/arch_row.h"

#include <unistd.h>

/* The bank projection that a source tensor belongs to: "<group>.<e>.<proj>.weight" or "<group>.<proj>". */
static bool in_bank(const nb_tensor_spec *spec, nb_str name)
{
    return name.n > spec->name.n && memcmp(name.p, spec->name.p, spec->name.n) == 0 && name.p[spec->name.n] == '.';
}

static const nb_tensor_spec *find_spec(const nb_tensor_spec *specs, size_t n, nb_str name)
{
    for (size_t i = 0; i < n; i++)
        if (nb_str_eq(specs[i].name, name)) return &specs[i];
    for (size_t i = 0; i < n; i++)
        if (specs[i].role == NB_ROLE_BANK && in_bank(&specs[i], name)) return &specs[i];
    return NULL;
}

/* Every tensor of the file is in the list with its shape, and nothing that the list demands is missing. */
static void check_file(const char *model, const nb_st_file *f, const nb_config *c, nb_arena *a, int *tensors)
{
    nb_tensor_spec *specs;
    size_t n;
    nb_error err;
    if (nb_arch_tensors(c, a, &specs, &n, &err) != NB_OK) fail_msg("%s: %s", model, err.text);
    if (n == 0) return;
    uint8_t *seen = NB_NEW_N(a, uint8_t, n);
    for (size_t i = 0; i < f->n; i++) {
        const nb_st_tensor *t = &f->tensors[i];
        nb_str name = nb_arch_canonical(c, t->name, a);
        assert_non_null(name.p);
        const nb_tensor_spec *s = find_spec(specs, n, name);
        if (!s) fail_msg("%s: no spec for %.*s", model, NB_FMT_STR(name));
        seen[s - specs] = 1;
        ++*tensors;
        if (s->role == NB_ROLE_BANK) {
            int p = nb_str_has(name, "down_proj")                                 ? 2
                    : nb_str_has(name, "up_proj") && !nb_str_has(name, "gate_up") ? 1
                                                                                  : 0;
            if (t->rank == 2 && !nb_str_has(name, "bias"))
                assert_true(t->dim[0] == s->proj[p].n && t->dim[1] == s->proj[p].k);
            continue;
        }
        if (s->rank != t->rank) fail_msg("%s: rank of %.*s", model, NB_FMT_STR(name));
        for (int d = 0; d < t->rank; d++)
            if (s->dim[d] >= 0 && s->dim[d] != t->dim[d])
                fail_msg("%s: %.*s dimension %d is %lld, expected %lld", model, NB_FMT_STR(name), d,
                         (long long)t->dim[d], (long long)s->dim[d]);
    }
    for (size_t i = 0; i < n; i++)
        if (!seen[i] && !specs[i].optional)
            fail_msg("%s: %.*s is expected and not there", model, NB_FMT_STR(specs[i].name));
}

static void reference_tensors(void **state)
{
    (void)state;
    char *names[256], path[4096];
    size_t n = reference_models(names);
    int tensors = 0, models = 0, listed = 0;
    for (size_t i = 0; i < n; i++) {
        nb_json_doc doc = {0}, gen = {0};
        nb_error err;
        nb_arena *a = nb_arena_new(0);
        nb_config c;
        assert_int_equal(json_file(&doc, names[i], "config.json", &err), NB_OK);
        if (json_file(&gen, names[i], "generation_config.json", &err) != NB_OK) gen.root = NULL;
        if (nb_config_read(&c, doc.root, gen.root, a, &err) != NB_OK) {
            printf("skipped %s: %s\n", names[i], err.text);
        } else {
            int fd, before = tensors;
            uint64_t size;
            nb_st_file f;
            snprintf(path, sizeof path, "%s/reference_models/%s/model.safetensors", data_root(), names[i]);
            assert_int_equal(nb_file_open(&fd, &size, path, &err), NB_OK);
            assert_int_equal(nb_st_read(&f, fd, size, path, 0, &err), NB_OK);
            check_file(names[i], &f, &c, a, &tensors);
            nb_st_free(&f);
            close(fd);
            models++;
            listed += tensors > before;
        }
        nb_json_free(&doc);
        if (gen.root) nb_json_free(&gen);
        nb_arena_free(a);
        free(names[i]);
    }
    printf("%d reference models, %d with a tensor list, %d tensors\n", models, listed, tensors);
    if (n == 0) printf("skipped: no reference models under %s\n", data_root());
}

static nb_config cfg;
static nb_json_doc doc;
static nb_arena *arena;

static void expect(const char *text, nb_status want, const char *part)
{
    nb_error err = {0};
    nb_json_free(&doc);
    nb_status s = config_text(&cfg, &doc, arena, text, &err);
    if (s != want) fail_msg("%s: status %d, %s", text, s, err.text);
    if (part && !strstr(err.text, part)) fail_msg("%s: error '%s' lacks '%s'", text, err.text, part);
}

#define BASE                                                                                                           \
    "\"hidden_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":320,\"intermediate_size\":"   \
    "160"

static void bad_configs(void **state)
{
    (void)state;
    expect("[]", NB_E_INVALID, "not an object");
    expect("{}", NB_E_INVALID, "architectures");
    expect("{\"architectures\":[\"FooForCausalLM\"]}", NB_E_UNSUPPORTED,
           "architecture 'FooForCausalLM' is not supported");
    expect("{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":4,\"num_attention_heads\":4,\"vocab_size\":"
           "320,\"intermediate_size\":160}",
           NB_E_INVALID, "hidden_size is missing");
    expect("{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":null,\"num_hidden_layers\":4,\"num_attention_"
           "heads\":4,\"vocab_size\":320,\"intermediate_size\":160}",
           NB_E_INVALID, "hidden_size is missing");
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"num_key_value_heads\":-3}", NB_E_INVALID,
           "num_key_value_heads is -3");
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"num_key_value_heads\":\"x\"}", NB_E_INVALID,
           "num_key_value_heads is \"x\"");
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"num_key_value_heads\":1e300}", NB_E_INVALID,
           "num_key_value_heads is 1e300");
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"tie_word_embeddings\":3}", NB_E_INVALID,
           "true or false");
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"eos_token_id\":[1,\"a\"]}", NB_E_INVALID,
           "eos_token_id");
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"rms_norm_eps\":0}", NB_E_INVALID, "rms_norm_eps is 0");
    expect("{\"architectures\":[\"Qwen3ForCausalLM\"]," BASE ",\"layer_types\":[\"full_attention\"]}", NB_E_INVALID,
           "layer_types has 1 entries for 4 layers");
}

static void spellings(void **state)
{
    (void)state;
    /* head_dim is not the quotient; kv heads default to heads */
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"head_dim\":32}", NB_OK, NULL);
    assert_int_equal(cfg.head_dim, 32);
    assert_int_equal(cfg.kv_heads, 4);
    assert_false(cfg.tie_embeddings);
    assert_false(cfg.tie_known);
    /* theta and scaling in four places */
    static const char *const rope[] = {
        "\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}",
        "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":4.0,\"rope_theta\":500000}",
        "\"rope_parameters\":{\"rope_type\":\"linear\",\"factor\":4,\"rope_theta\":500000.0}",
        "\"rope_theta\":500000,\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"factor\":4}}",
    };
    for (size_t i = 0; i < NB_COUNT(rope); i++) {
        char text[1024];
        snprintf(text, sizeof text, "{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",%s}", rope[i]);
        expect(text, NB_OK, NULL);
        assert_string_equal(cfg.rope.type, "linear");
        assert_true(cfg.rope.theta == 500000 && cfg.rope.factor == 4);
    }
    /* text_config first, then the top level */
    expect("{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":[1,106],\"vocab_size\":300,\"text_"
           "config\":{\"hidden_size\":64,\"num_hidden_layers\":34,\"intermediate_size\":128,\"sliding_window\":1024,"
           "\"eos_token_id\":1,"
           "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}}",
           NB_OK, NULL);
    assert_int_equal(cfg.heads, 8);
    assert_int_equal(cfg.kv_heads, 4);
    assert_int_equal(cfg.head_dim, 256);
    assert_int_equal(cfg.vocab, 300);
    assert_int_equal(cfg.n_eos, 2);
    assert_true(cfg.tie_embeddings && cfg.query_scale == 0.0625);
    assert_true(cfg.rope.theta == 1e6 && cfg.rope.factor == 8 && cfg.rope_local.theta == 1e4);
    assert_string_equal(cfg.rope_local.type, "default");
    assert_string_equal(cfg.act, "gelu_pytorch_tanh");
    for (int i = 0; i < 34; i++) assert_int_equal(cfg.layer_slides[i], (i + 1) % 6 != 0);
    /* windows */
    expect("{\"architectures\":[\"MistralForCausalLM\"]," BASE ",\"sliding_window\":17}", NB_OK, NULL);
    assert_true(cfg.window == 17 && cfg.layer_slides[0] && cfg.layer_slides[3]);
    expect("{\"architectures\":[\"MistralForCausalLM\"]," BASE ",\"sliding_window\":null}", NB_OK, NULL);
    assert_true(cfg.window == 0 && !cfg.layer_slides[0]);
    expect("{\"architectures\":[\"Qwen2ForCausalLM\"]," BASE
           ",\"sliding_window\":17,\"use_sliding_window\":true,\"max_window_layers\":2}",
           NB_OK, NULL);
    assert_true(!cfg.layer_slides[1] && cfg.layer_slides[2]);
    expect("{\"architectures\":[\"Qwen2ForCausalLM\"]," BASE ",\"sliding_window\":17,\"max_window_layers\":2}", NB_OK,
           NULL);
    assert_true(!cfg.layer_slides[2]);
    /* which layers have experts */
    expect("{\"architectures\":[\"Qwen3MoeForCausalLM\"]," BASE
           ",\"num_experts\":8,\"mlp_only_layers\":[1],\"decoder_sparse_step\":2}",
           NB_OK, NULL);
    assert_true(!cfg.layer_sparse[0] && !cfg.layer_sparse[1] && !cfg.layer_sparse[2] && cfg.layer_sparse[3]);
    assert_false(cfg.norm_topk_prob);
}

static void canonical(void **state)
{
    (void)state;
    static const char *const pair[][2] = {
        {"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
        {"layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
        {"language_model.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
        {"model.language_model.embed_tokens.weight", "model.embed_tokens.weight"},
        {"language_model.lm_head.weight", "lm_head.weight"},
        {"lm_head.weight", "lm_head.weight"},
        {"norm.weight", "model.norm.weight"},
        {"model.layers.3.mlp.switch_mlp.gate_proj.weight", "model.layers.3.mlp.experts.gate_proj.weight"},
        {"mtp.layers.0.self_attn.q_proj.weight", "mtp.layers.0.self_attn.q_proj.weight"},
        {"vision_tower.encoder.layers.0.norm.weight", "vision_tower.encoder.layers.0.norm.weight"},
        {"model.visual.blocks.0.norm.weight", "model.visual.blocks.0.norm.weight"},
        {"something_else", "something_else"},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", NULL},
    };
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE "}", NB_OK, NULL);
    for (size_t i = 0; i < NB_COUNT(pair); i++) {
        nb_str got = nb_arch_canonical(&cfg, nb_str_of(pair[i][0]), arena);
        if (!pair[i][1])
            assert_null(got.p);
        else if (!nb_str_is(got, pair[i][1]))
            fail_msg("%s: got %.*s", pair[i][0], NB_FMT_STR(got));
    }
    expect("{\"architectures\":[\"LlamaForCausalLM\"]," BASE ",\"tie_word_embeddings\":true}", NB_OK, NULL);
    assert_null(nb_arch_canonical(&cfg, NB_LIT("lm_head.weight"), arena).p);
}

static void registry(void **state)
{
    (void)state;
    size_t runs = 0;
    for (size_t i = 0; i < nb_arch_count(); i++) {
        const nb_arch *a = nb_arch_at(i);
        assert_non_null(a->ids);
        runs += nb_arch_runs(a);
        for (size_t k = 0; k < i; k++) assert_string_not_equal(nb_arch_name(a), nb_arch_name(nb_arch_at(k)));
        /* no id belongs to two rows */
        for (const char *p = a->ids; p;) {
            size_t n = strcspn(p, "|");
            assert_ptr_equal(nb_arch_find((nb_str){p, n}), a);
            p = p[n] ? p + n + 1 : NULL;
        }
    }
    assert_null(nb_arch_at(nb_arch_count()));
    printf("%zu architectures, %zu of them run\n", nb_arch_count(), runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(registry), cmocka_unit_test(reference_tensors),
                                       cmocka_unit_test(bad_configs), cmocka_unit_test(spellings),
                                       cmocka_unit_test(canonical)};
    arena = nb_arena_new(0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    nb_json_free(&doc);
    nb_arena_free(arena);
    return rc;
}
