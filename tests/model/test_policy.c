/* Quantisation policies: the golden tests of specs/create.md 9.8, and what design.md adds. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "data.h"
#include "model/arch_row.h"

static nb_arena *arena;
static nb_config cfg;
static nb_json_doc doc;

static void use(const char *text)
{
    nb_error err;
    nb_json_free(&doc);
    if (config_text(&cfg, &doc, arena, text, &err) != NB_OK) fail_msg("%s", err.text);
}

/* Asks and compares; want "keep" or a type name. */
static void ask(nb_role role, const char *name, int rank, int64_t a, int64_t b, int64_t c, const char *request,
                const char *want)
{
    int64_t dim[3] = {a, b, c};
    nb_qtype q, out;
    nb_error err;
    const char *why = NULL;
    char got[32] = "keep";
    assert_int_equal(nb_qtype_parse(&q, request, &err), NB_OK);
    if (nb_policy(&cfg, nb_str_of(name), role, (uint8_t)rank, dim, q, &out, &why))
        nb_qtype_name(out, got);
    else
        assert_non_null(why);
    if (strncmp(got, want, strlen(want)) != 0)
        fail_msg("%s, request %s: got %s (%s), want %s", name, request, got, why ? why : "-", want);
}
#define L  NB_ROLE_LINEAR
#define LM "model.language_model."

static void qwen4_exp(void **state)
{
    (void)state;
    use("{\"architectures\":[\"Qwen4ExpForConditionalGeneration\"],\"hidden_size\":2560,\"num_hidden_layers\":48}");
    static const char *const prefix[] = {LM, "model."};
    for (size_t i = 0; i < NB_COUNT(prefix); i++) {
        char n[200];
#define NAME(rest) (snprintf(n, sizeof n, "%s%s", prefix[i], rest), n)
        ask(NB_ROLE_TABLE, NAME("layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight"), 2, 156250, 2560, 0,
            "nvfp4", "nvfp4");
        ask(NB_ROLE_TABLE, NAME("layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight"), 2, 156250, 2560, 0,
            "mxfp8", "mxfp8");
        ask(NB_ROLE_TABLE, NAME("layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight"), 2, 2500012, 160, 0,
            "nvfp4", "nvfp4");
        ask(NB_ROLE_TABLE, NAME("layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight"), 2, 2500012, 160, 0,
            "int4", "keep");
        ask(NB_ROLE_TABLE, NAME("layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight"), 2, 2500012, 160, 0,
            "int4:g32", "int4");
        ask(NB_ROLE_TABLE, NAME("embed_tokens.weight"), 2, 248320, 2560, 0, "nvfp4", "mxfp8");
        ask(L, NAME("layers.0.linear_attn.in_proj_a.weight"), 2, 24, 5120, 0, "nvfp4", "keep");
        ask(L, NAME("layers.0.linear_attn.out_proj.weight"), 2, 5120, 3072, 0, "nvfp4", "mxfp8");
        ask(L, NAME("layers.3.self_attn.q_proj.weight"), 2, 12288, 2560, 0, "nvfp4", "keep");
        ask(L, NAME("layers.3.self_attn.q_proj.weight"), 2, 12288, 2560, 0, "mxfp8", "mxfp8");
        ask(L, NAME("layers.3.self_attn.indexer.index_qk_proj.weight"), 2, 1536, 2560, 0, "nvfp4", "keep");
        ask(L, NAME("layers.0.mlp.experts.0.down_proj.weight"), 2, 2560, 1024, 0, "nvfp4", "nvfp4");
        ask(NB_ROLE_BANK, NAME("layers.0.mlp.experts.down_proj.weight"), 3, 512, 2560, 1024, "nvfp4", "nvfp4");
        ask(L, NAME("layers.0.attn_hyper_connection.block_inject_weight.weight"), 2, 2560, 2560, 0, "nvfp4", "mxfp8");
    }
    ask(L, "mtp.layers.0.mlp.experts.0.down_proj.weight", 2, 2560, 1024, 0, "nvfp4", "nvfp4");
    ask(L, "mtp.layers.0.self_attn.q_proj.weight", 2, 12288, 2560, 0, "nvfp4", "keep");
    ask(L, "mtp.fc.weight", 2, 2560, 5120, 0, "nvfp4", "keep");
}

static void plain_default(void **state)
{
    (void)state;
    use("{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_size\":2560,\"num_hidden_layers\":4,\"num_attention_"
        "heads\":8,\"num_key_value_heads\":8,\"head_dim\":128,\"vocab_size\":1000}");
    ask(L, "model.layers.0.mlp.down_proj.weight", 2, 2560, 1024, 0, "nvfp4", "mxfp8");
    ask(L, "model.layers.0.mlp.down_proj.weight", 2, 2560, 1024, 0, "int4", "int8");
    ask(L, "model.layers.0.mlp.gate_proj.weight", 2, 1024, 2560, 0, "nvfp4", "nvfp4");
    ask(L, "model.layers.0.mlp.gate_proj.weight", 2, 1024, 2560, 0, "mxfp4", "mxfp4");
    ask(L, "model.layers.0.self_attn.v_proj.weight", 2, 1024, 2560, 0, "mxfp8", "mxfp8");
    ask(L, "model.layers.0.self_attn.v_proj.weight", 2, 1024, 2560, 0, "int8", "int8");
    ask(NB_ROLE_BANK, "model.layers.0.mlp.experts.down_proj", 3, 8, 2560, 1024, "nvfp4", "nvfp4");
    ask(NB_ROLE_BANK, "model.layers.0.mlp.experts.down_proj", 3, 8, 2560, 1024, "int4", "int8");
    ask(NB_ROLE_BANK, "model.layers.0.mlp.experts.gate_proj.weight", 3, 8, 1024, 2560, "int4", "int4");
    ask(L, "model.layers.0.mlp.gate.weight", 2, 512, 2560, 0, "nvfp4", "keep");
    ask(L, "lm_head.weight", 2, 1000, 2560, 0, "nvfp4", "mxfp8");
    ask(L, "lm_head.weight", 2, 1000, 2560, 0, "int4", "int8");
    ask(L, "lm_head.weight", 2, 1000, 40, 0, "nvfp4", "keep");
    ask(L, "model.layers.0.self_attn.q_proj.weight", 2, 16, 32, 0, "nvfp4", "keep");
    ask(L, "model.layers.0.self_attn.q_proj.weight", 2, 64, 72, 0, "nvfp4", "keep");
    ask(L, "model.layers.0.linear_attn.conv1d.weight", 3, 8192, 1, 4, "nvfp4", "keep");
    ask(NB_ROLE_TABLE, "model.embed_tokens.weight", 2, 1000, 2560, 0, "nvfp4", "keep");
    ask(NB_ROLE_VECTOR, "model.norm.weight", 1, 2560, 0, 0, "nvfp4", "keep");
    ask(NB_ROLE_VECTOR, "model.norm.weight", 1, 2560, 0, 0, "bf16", "keep");
    ask(NB_ROLE_VECTOR, "x.bias", 1, 2560, 0, 0, "nvfp4", "keep");
    ask(L, "model.visual.blocks.0.attn.qkv.weight", 2, 2560, 2560, 0, "nvfp4", "keep");
    ask(L, "model.layers.0.mlp.gate.weight", 2, 512, 2560, 0, "bf16", "bf16");
    /* a tied embedding is the head */
    ask(L, "model.embed_tokens.weight", 2, 1000, 2560, 0, "nvfp4", "mxfp8");
    ask(L, "model.embed_tokens.weight", 2, 1000, 2560, 0, "int4:g32", "int8:g32");
    ask(L, "model.embed_tokens.weight", 2, 1000, 40, 0, "int4", "keep");
}

static void gemma4(void **state)
{
    (void)state;
    use("{\"architectures\":[\"Gemma4ForCausalLM\"],\"hidden_size\":2560,\"num_hidden_layers\":40,\"vocab_size\":1024,"
        "\"num_experts\":8,\"num_attention_heads\":8}");
    ask(L, "model.embed_tokens.weight", 2, 1024, 2560, 0, "nvfp4", "mxfp8");
    ask(L, "model.embed_tokens.weight", 2, 1024, 16, 0, "nvfp4", "nvfp4");
    ask(L, "model.layers.6.self_attn.k_proj.weight", 2, 1024, 2560, 0, "nvfp4", "mxfp8");
    ask(L, "model.layers.6.mlp.down_proj.weight", 2, 2560, 1024, 0, "nvfp4", "nvfp4");
    ask(L, "model.layers.7.mlp.down_proj.weight", 2, 2560, 1024, 0, "nvfp4", "mxfp8");
    use("{\"architectures\":[\"Gemma4ForCausalLM\"],\"hidden_size\":2560,\"num_hidden_layers\":40,\"vocab_size\":1024,"
        "\"num_attention_heads\":8}");
    ask(L, "model.layers.7.self_attn.k_proj.weight", 2, 1024, 2560, 0, "nvfp4", "nvfp4");
    ask(L, "model.layers.7.self_attn.v_proj.weight", 2, 1024, 2560, 0, "int4", "int8");
    ask(L, "model.layers.6.self_attn.v_proj.weight", 2, 1024, 2560, 0, "int4", "int4");
    ask(NB_ROLE_TABLE, "model.embed_tokens_per_layer.weight", 2, 1024, 2560, 0, "int4", "keep");
}

static void others(void **state)
{
    (void)state;
    use("{\"architectures\":[\"LagunaForCausalLM\"],\"hidden_size\":2560,\"num_hidden_layers\":40,\"vocab_size\":1024,"
        "\"num_attention_heads\":8,\"num_experts\":16}");
    ask(L, "model.layers.3.self_attn.v_proj.weight", 2, 1024, 2560, 0, "nvfp4", "nvfp4");
    ask(L, "model.layers.3.self_attn.v_proj.weight", 2, 1024, 2560, 0, "mxfp8", "keep");
    ask(L, "model.layers.3.self_attn.v_proj.weight", 2, 1024, 2560, 0, "int4", "int8");
    ask(L, "model.layers.0.mlp.down_proj.weight", 2, 2560, 1024, 0, "nvfp4", "nvfp4");
    ask(L, "model.layers.10.mlp.shared_expert.down_proj.weight", 2, 2560, 1024, 0, "nvfp4", "mxfp8");
    ask(L, "model.layers.16.mlp.shared_expert.down_proj.weight", 2, 2560, 1024, 0, "nvfp4", "nvfp4");
    ask(NB_ROLE_BANK, "model.layers.10.mlp.experts.down_proj.weight", 3, 16, 2560, 1024, "mxfp8", "keep");
    ask(NB_ROLE_BANK, "model.layers.16.mlp.experts.down_proj.weight", 3, 16, 2560, 1024, "mxfp8", "mxfp8");
    ask(L, "model.layers.4.other.weight", 2, 2560, 1024, 0, "nvfp4", "keep");
    use("{\"architectures\":[\"GraniteForCausalLM\"],\"hidden_size\":2560,\"num_hidden_layers\":40,\"vocab_size\":1024,"
        "\"num_attention_heads\":8,\"intermediate_size\":8}");
    ask(L, "model.layers.10.self_attn.o_proj.weight", 2, 2560, 2560, 0, "nvfp4", "mxfp8");
    ask(L, "model.layers.10.self_attn.o_proj.weight", 2, 2560, 2560, 0, "int4", "int4");
    use("{\"architectures\":[\"NemotronHForCausalLM\"],\"hidden_size\":2560,\"num_hidden_layers\":40,\"vocab_size\":"
        "1024}");
    ask(L, "backbone.layers.10.mixer.q_proj.weight", 2, 2560, 2560, 0, "nvfp4", "mxfp8");
    ask(L, "backbone.layers.11.mixer.out_proj.weight", 2, 2560, 2560, 0, "nvfp4", "nvfp4");
    ask(L, "backbone.layers.10.mixer.out_proj.weight", 2, 2560, 2560, 0, "nvfp4", "mxfp8");
    ask(L, "mixer.out_proj.weight", 2, 2560, 2560, 0, "nvfp4", "nvfp4"); /* no dot before mixer: not of this kind */
    ask(L, "mtp.mixer.out_proj.weight", 2, 2560, 2560, 0, "nvfp4", "mxfp8");
    use("{\"architectures\":[\"Kolibri1ForCausalLM\"],\"hidden_size\":2560,\"num_hidden_layers\":40,\"vocab_size\":"
        "1024}");
    ask(L, "model.layers.10.self_attn.q_proj.weight", 2, 2560, 2560, 0, "nvfp4", "mxfp8");
    ask(NB_ROLE_BANK, "model.layers.10.mlp.experts.up_proj.weight", 3, 8, 2560, 2560, "nvfp4", "nvfp4");
    use("{\"architectures\":[\"ClefForDecision\"],\"hidden_size\":2560,\"num_hidden_layers\":40,\"vocab_size\":1024}");
    ask(L, "joint.q_proj.weight", 2, 2560, 2560, 0, "nvfp4", "keep");
    ask(L, "model.layers.0.linear_attn.in_proj_b.weight", 2, 2560, 2560, 0, "int8", "keep");
    ask(L, "model.layers.0.mlp.up_proj.weight", 2, 2560, 2560, 0, "nvfp4", "nvfp4");
}

static void refusals(void **state)
{
    (void)state;
    nb_qtype nv = nb_qtype_default(NB_NVFP4), i8 = nb_qtype_default(NB_INT8);
    use("{\"architectures\":[\"FlintForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":4,\"vocab_size\":8,\"num_"
        "attention_heads\":4}");
    assert_non_null(nb_policy_refusal(&cfg, nv, true));
    assert_null(nb_policy_refusal(&cfg, nv, false));
    assert_null(nb_policy_refusal(&cfg, i8, true));
    use("{\"architectures\":[\"LayaForDecision\"]}");
    assert_non_null(nb_policy_refusal(&cfg, i8, true));
    assert_null(nb_policy_refusal(&cfg, nb_qtype_default(NB_BF16), true));
}

static void cadence(const int *want, size_t n, int layers, int end)
{
    size_t hit = 0;
    for (int i = -1; i < layers + 3; i++) {
        bool listed = false;
        for (size_t k = 0; k < n; k++) listed |= want[k] == i;
        if (i < layers && nb_more_bits(i, layers, end) != listed) fail_msg("more_bits(%d, %d)", i, layers);
        hit += listed;
    }
    assert_int_equal(hit, n);
}

static void more_bits(void **state)
{
    (void)state;
    static const int n40[] = {0, 1, 2, 3, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31, 34, 35, 36, 37, 38, 39};
    static const int n48[] = {0, 1, 2, 3, 4, 5, 8, 11, 14, 17, 20, 23, 26, 29, 32, 35, 38, 41, 42, 43, 44, 45, 46, 47};
    static const int laguna[] = {0, 1, 2, 3, 4, 7, 10, 13, 35, 36, 37, 38, 39};
    cadence(n40, NB_COUNT(n40), 40, 35);
    cadence(n48, NB_COUNT(n48), 48, 42);
    cadence(laguna, NB_COUNT(laguna), 40, 16);
    assert_false(nb_more_bits(0, 0, 0));
    assert_int_equal(nb_name_layer(NB_LIT("model.layers.12.x")), 12);
    assert_int_equal(nb_name_layer(NB_LIT("layers.3.x")), 3);
    assert_int_equal(nb_name_layer(NB_LIT("model.layers.x")), -1);
    assert_int_equal(nb_name_layer(NB_LIT("model.layers.99999999999.x")), -1);
    assert_int_equal(nb_name_layer(NB_LIT("model.norm.weight")), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(qwen4_exp), cmocka_unit_test(plain_default),
                                       cmocka_unit_test(gemma4),    cmocka_unit_test(others),
                                       cmocka_unit_test(refusals),  cmocka_unit_test(more_bits)};
    arena = nb_arena_new(0);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    nb_json_free(&doc);
    nb_arena_free(arena);
    return rc;
}
