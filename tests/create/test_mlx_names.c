/* Checkpoints as mlx-lm writes them, where its modules differ from the publisher's: latent attention split by head, and
 * names of its own. Whole models that the package wrote are compared in tests/python/producer_mlx_lm.py. */
#include "create/fixture.h"

enum { HEADS = 2, NOPE = 3, VDIM = 4, RANK = 32 };
#define A "model.layers.0.self_attn."

/* A GLM-4.7-Flash of one dense layer, without kv_b_proj. */
static void glm(fx *x)
{
    static const struct {
        const char *name, *dims;
    } parts[] = {{"model.embed_tokens.weight", "16,32"},
                 {"model.norm.weight", "32"},
                 {"lm_head.weight", "16,32"},
                 {"model.layers.0.input_layernorm.weight", "32"},
                 {"model.layers.0.post_attention_layernorm.weight", "32"},
                 {A "q_a_proj.weight", "32,32"},
                 {A "q_a_layernorm.weight", "32"},
                 {A "q_b_proj.weight", "10,32"},
                 {A "kv_a_proj_with_mqa.weight", "34,32"},
                 {A "kv_a_layernorm.weight", "32"},
                 {A "o_proj.weight", "32,8"},
                 {"model.layers.0.mlp.gate_proj.weight", "32,32"},
                 {"model.layers.0.mlp.up_proj.weight", "32,32"},
                 {"model.layers.0.mlp.down_proj.weight", "32,32"}};
    fx_text(x, "config.json",
            "{\"architectures\":[\"Glm4MoeLiteForCausalLM\"],\"model_type\":\"glm4_moe_lite\",\"hidden_size\":32,"
            "\"intermediate_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
            "\"vocab_size\":16,\"q_lora_rank\":32,\"kv_lora_rank\":32,\"qk_nope_head_dim\":3,\"qk_rope_head_dim\":2,"
            "\"v_head_dim\":4,\"first_k_dense_replace\":1,\"n_routed_experts\":4,\"num_experts_per_tok\":2,"
            "\"moe_intermediate_size\":32,\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,"
            "\"quantization\":{\"bits\":4,\"group_size\":32}}");
    for (uint32_t i = 0; i < NB_COUNT(parts); i++) fx_random(x, parts[i].name, parts[i].dims, i + 1);
}

static float key_at(int h, int l, int i) { return (float)(h * 100 + l + i * 0.25); }
static float value_at(int h, int i, int l) { return (float)(-h * 100 - i * 8 - l * 0.125); }

static void halves(fx *x, nb_dtype dt)
{
    uint8_t k[HEADS * RANK * NOPE * 4], v[HEADS * VDIM * RANK * 4];
    size_t n = 0, elem = dt == NB_DT_F32 ? 4 : 2;
    for (int h = 0; h < HEADS; h++)
        for (int l = 0; l < RANK; l++)
            for (int i = 0; i < NOPE; i++, n++) {
                nb_store_u32(k + n * 4, nb_bits_f32(key_at(h, l, i)));
                if (elem == 2) nb_store_u16(k + n * 2, nb_bf16_encode(key_at(h, l, i)));
            }
    n = 0;
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < VDIM; i++)
            for (int l = 0; l < RANK; l++, n++) {
                nb_store_u32(v + n * 4, nb_bits_f32(value_at(h, i, l)));
                if (elem == 2) nb_store_u16(v + n * 2, nb_bf16_encode(value_at(h, i, l)));
            }
    fx_add(x, A "embed_q.weight", dt, "2,32,3", k);
    fx_add(x, A "unembed_out.weight", dt, "2,4,32", v);
}

static nb_status run(fx *x)
{
    nb_create_options o = fx_options(x);
    o.force = false;
    fx_save(x, "model.safetensors");
    return fx_run(x, &o);
}

static void floats_put_back(void **state)
{
    (void)state;
    static const nb_dtype types[] = {NB_DT_BF16, NB_DT_F32};
    for (size_t t = 0; t < NB_COUNT(types); t++) {
        fx *x = fx_new();
        glm(x);
        halves(x, types[t]);
        fx_ok(x, run(x));
        assert_int_equal(x->report.n_unused, 0);
        fx_blob b = fx_open(x, A "kv_b_proj.weight");
        fx_expect(&b, A "kv_b_proj.weight", types[t], "14,32", NULL);
        const nb_st_tensor *w = fx_tensor(&b, A "kv_b_proj.weight");
        float got[HEADS * (NOPE + VDIM) * RANK];
        assert_true(nb_floats_decode(types[t], b.map.p + w->off, NB_COUNT(got), got));
        for (int h = 0; h < HEADS; h++)
            for (int r = 0; r < NOPE + VDIM; r++)
                for (int l = 0; l < RANK; l++) {
                    float want = r < NOPE ? key_at(h, l, r) : value_at(h, r - NOPE, l);
                    if (types[t] == NB_DT_BF16) want = nb_bf16_decode(nb_bf16_encode(want));
                    assert_true(got[(h * (NOPE + VDIM) + r) * RANK + l] == want);
                }
        fx_close(&b);
        fx_free(x);
    }
}

/* The publisher's matrix gives the same blob as its two halves. */
static void same_blob(void **state)
{
    (void)state;
    char digest[2][80];
    for (int split = 0; split < 2; split++) {
        fx *x = fx_new();
        glm(x);
        uint8_t whole[HEADS * (NOPE + VDIM) * RANK * 2];
        size_t n = 0;
        for (int h = 0; h < HEADS; h++)
            for (int r = 0; r < NOPE + VDIM; r++)
                for (int l = 0; l < RANK; l++, n++)
                    nb_store_u16(whole + 2 * n, nb_bf16_encode(r < NOPE ? key_at(h, l, r) : value_at(h, r - NOPE, l)));
        if (split)
            halves(x, NB_DT_BF16);
        else
            fx_add(x, A "kv_b_proj.weight", NB_DT_BF16, "14,32", whole);
        fx_save(x, "model.safetensors");
        nb_create_options o = fx_options(x);
        o.layout = NB_LAYOUT_ROWS16;
        fx_ok(x, fx_run(x, &o));
        fx_blob b = fx_open(x, A "kv_b_proj.weight");
        const nb_layer *l = nb_manifest_find(&b.m, A "kv_b_proj.weight");
        memcpy(digest[split], l->hex, sizeof l->hex);
        fx_close(&b);
        fx_free(x);
    }
    assert_string_equal(digest[0], digest[1]);
}

/* Quantised after the split: values in groups along the rank are 4 bits, keys lie across; the matrix is F32. */
static void quantised_halves(void **state)
{
    (void)state;
    fx *x = fx_new();
    uint16_t scale = nb_bf16_encode(0.5f), bias = nb_bf16_encode(-2.0f), scales[HEADS * VDIM], biases[HEADS * VDIM];
    uint8_t codes[HEADS * VDIM * RANK / 2];
    glm(x);
    halves(x, NB_DT_BF16);
    x->n--; /* values packed, keys not: 3 columns are no whole group */
    nb_buf_free(&x->data[x->n]);
    memset(&x->data[x->n], 0, sizeof x->data[x->n]);
    memset(codes, 0x31, sizeof codes);
    for (size_t i = 0; i < NB_COUNT(scales); i++) scales[i] = scale, biases[i] = bias;
    fx_add(x, A "unembed_out.weight", NB_DT_U32, "2,4,4", codes);
    fx_add(x, A "unembed_out.scales", NB_DT_BF16, "2,4,1", scales);
    fx_add(x, A "unembed_out.biases", NB_DT_BF16, "2,4,1", biases);
    fx_ok(x, run(x));
    size_t warned = 0;
    for (size_t i = 0; i < x->report.n_warnings; i++)
        warned += nb_str_has(x->report.warnings[i].text, "split by head before it was quantised");
    assert_int_equal(warned, 1);
    fx_blob b = fx_open(x, A "kv_b_proj.weight");
    fx_expect(&b, A "kv_b_proj.weight", NB_DT_F32, "14,32", NULL);
    assert_true(fx_f32(&b, A "kv_b_proj.weight", 1 * RANK + 5) == nb_bf16_decode(nb_bf16_encode(key_at(0, 5, 1))));
    assert_true(fx_f32(&b, A "kv_b_proj.weight", NOPE * RANK) == 1 * 0.5f - 2.0f);
    assert_true(fx_f32(&b, A "kv_b_proj.weight", NOPE * RANK + 1) == 3 * 0.5f - 2.0f);
    fx_close(&b);
    fx_free(x);
}

static void bad_halves(void **state)
{
    (void)state;
    static const struct {
        const char *keys, *values, *whole, *code;
    } rows[] = {
        {"2,32,3", "2,4,32", "14,32", "E_COLLISION"}, {"2,32,3", NULL, NULL, "E_MISSING_TENSORS"},
        {NULL, "2,4,32", NULL, "E_MISSING_TENSORS"},  {"2,32,3", NULL, "14,32", "E_COLLISION"},
        {"2,3,32", "2,4,32", NULL, "E_ST_SHAPE"},     {"2,32,4", "2,3,32", NULL, "E_ST_SHAPE"},
        {"1,32,3", "2,4,32", NULL, "E_ST_SHAPE"},     {"2,31,3", "2,4,31", NULL, "E_ST_SHAPE"},
        {"32,3", "2,4,32", NULL, "E_ST_SHAPE"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        glm(x);
        if (rows[i].keys) fx_add(x, A "embed_q.weight", NB_DT_BF16, rows[i].keys, NULL);
        if (rows[i].values) fx_add(x, A "unembed_out.weight", NB_DT_BF16, rows[i].values, NULL);
        if (rows[i].whole) fx_add(x, A "kv_b_proj.weight", NB_DT_BF16, rows[i].whole, NULL);
        fx_fails(x, run(x), NB_E_INVALID, rows[i].code);
        fx_nothing_left(x);
        fx_free(x);
    }
}

/* Laguna's router is a module inside mlp.gate there, and its correction stands beside it. */
static void laguna_names(void **state)
{
    (void)state;
    static const struct {
        const char *name, *dims;
    } parts[] = {{"model.embed_tokens.weight", "16,32"},
                 {"model.norm.weight", "32"},
                 {"lm_head.weight", "16,32"},
                 {"model.layers.0.input_layernorm.weight", "32"},
                 {"model.layers.0.post_attention_layernorm.weight", "32"},
                 {A "q_proj.weight", "32,32"},
                 {A "k_proj.weight", "16,32"},
                 {A "v_proj.weight", "16,32"},
                 {A "o_proj.weight", "32,32"},
                 {A "g_proj.weight", "2,32"},
                 {A "q_norm.weight", "16"},
                 {A "k_norm.weight", "16"},
                 {"model.layers.0.mlp.gate.proj.weight", "4,32"},
                 {"model.layers.0.mlp.gate.e_score_correction_bias", "4"},
                 {"model.layers.0.mlp.switch_mlp.gate_proj.weight", "4,32,32"},
                 {"model.layers.0.mlp.switch_mlp.up_proj.weight", "4,32,32"},
                 {"model.layers.0.mlp.switch_mlp.down_proj.weight", "4,32,32"},
                 {"model.layers.0.mlp.shared_expert.gate_proj.weight", "32,32"},
                 {"model.layers.0.mlp.shared_expert.up_proj.weight", "32,32"},
                 {"model.layers.0.mlp.shared_expert.down_proj.weight", "32,32"}};
    fx *x = fx_new();
    fx_text(
        x, "config.json",
        "{\"architectures\":[\"LagunaForCausalLM\"],\"model_type\":\"laguna\",\"hidden_size\":32,\"head_dim\":16,"
        "\"intermediate_size\":32,\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"vocab_size\":16,\"num_experts\":4,\"num_experts_per_tok\":2,\"moe_intermediate_size\":32,"
        "\"shared_expert_intermediate_size\":32,\"mlp_layer_types\":[\"sparse\"],\"layer_types\":[\"full_attention\"],"
        "\"rms_norm_eps\":1e-6,\"tie_word_embeddings\":false}");
    for (uint32_t i = 0; i < NB_COUNT(parts); i++) fx_random(x, parts[i].name, parts[i].dims, i + 1);
    fx_ok(x, run(x));
    assert_int_equal(x->report.n_unused, 0);
    static const char *const want[] = {"model.layers.0.mlp.gate.weight", "model.layers.0.mlp.experts",
                                       "model.layers.0.mlp.experts.e_score_correction_bias"};
    for (size_t i = 0; i < NB_COUNT(want); i++) {
        fx_blob b = fx_open(x, want[i]);
        if (!b.found) print_error("%s is not stored\n", want[i]);
        assert_true(b.found);
        fx_close(&b);
    }
    fx_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_put_back), cmocka_unit_test(same_blob),    cmocka_unit_test(quantised_halves),
        cmocka_unit_test(bad_halves),      cmocka_unit_test(laguna_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
