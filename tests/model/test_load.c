/* Opening stored models: layouts, formats, companions, text files, and a table of damaged ones. Models are made here
 * from random numbers; nothing is read from the test data. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "import.h"
#include "model/load.h"

#include <math.h>
#include <sys/stat.h>

#define LLAMA                                                                                                          \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4,"  \
    "\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":100,\"intermediate_size\":160,"                          \
    "\"eos_token_id\":2}"
#define LLAMA_TIED                                                                                                     \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":4,"  \
    "\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":100,\"intermediate_size\":160,"                          \
    "\"tie_word_embeddings\":true}"
#define MOE                                                                                                            \
    "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_heads\":" \
    "4,\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":100,\"moe_intermediate_size\":96,"                     \
    "\"num_experts\":6,\"num_experts_per_tok\":2}"
#define GEMMA                                                                                                          \
    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":4," \
    "\"num_key_value_heads\":2,\"head_dim\":32,\"vocab_size\":100,\"intermediate_size\":160%s}"

/* What a made model is, and what is wrong with it. */
typedef struct recipe {
    const char *config, *type; /* type: of matrices, "bf16" */
    bool standard;
    const char *drop;        /* tensor left out */
    const char *target;      /* tensor whose blob is damaged by the fields below */
    const char *key, *value; /* metadata key (after the tensor's name) that gets another value; value NULL: left out */
    int shorten;             /* bytes taken off the packed tensor */
    bool no_scale;           /* the multiplier is left out */
    float scale;             /* its value, if not 0 */
    const char *extra_name, *extra_text; /* one more text layer */
    const char *extra2_name, *extra2_text;
    const char *no_config; /* leaves config.json out */
} recipe;

typedef struct maker {
    importer im;
    const recipe *r;
    uint32_t rng;
} maker;

static float rnd(maker *m)
{
    m->rng = m->rng * 1664525u + 1013904223u;
    return nb_bf16_decode(nb_bf16_encode(((float)(m->rng >> 8) / 8388608.0f - 1) * 0.5f));
}

static bool damaged(const maker *m, nb_str name) { return m->r->target && nb_str_is(name, m->r->target); }

static void meta(maker *m, nb_st_kv *kv, size_t *n, nb_str base, const char *tail, const char *value, nb_str tensor)
{
    if (damaged(m, tensor) && m->r->key && strcmp(tail, m->r->key) == 0) {
        if (!m->r->value) return;
        value = m->r->value;
    }
    kv[(*n)++] = imp_meta(&m->im, base, tail, nb_arena_dup(m->im.a, value, strlen(value)));
}

static void type_meta(maker *m, nb_st_kv *kv, size_t *n, nb_str base, int64_t rows, int64_t k, nb_str tensor)
{
    char text[64];
    const nb_format_row *f = nb_format_info((nb_format)m->im.type.format);
    meta(m, kv, n, base, ".quant_type", f->name, tensor);
    snprintf(text, sizeof text, "%u", m->im.type.group);
    meta(m, kv, n, base, ".group_size", text, tensor);
    if (f->scale_kind == NB_SCALE_AFFINE)
        meta(m, kv, n, base, ".scale_dtype", nb_dtype_name((nb_dtype)m->im.type.scale_dtype), tensor);
    snprintf(text, sizeof text, "[%lld,%lld]", (long long)rows, (long long)k);
    meta(m, kv, n, base, ".shape", text, tensor);
}

/* Random rows in the recipe's type. *mult gets the NVFP4 multiplier. */
static nb_parts random_parts(maker *m, int64_t rows, int64_t k, float *mult)
{
    nb_parts p = {0};
    size_t n = (size_t)(rows * k);
    float *f = malloc(n * 4);
    for (size_t i = 0; i < n; i++) f[i] = rnd(m);
    *mult = m->im.type.format == NB_NVFP4 ? nb_nvfp4_multiplier(nb_abs_max(f, n)) : 1;
    assert_true(nb_parts_row_bytes(m->im.type, k, &p.code_stride, &p.scale_stride, &p.bias_stride));
    p.codes = nb_arena_alloc(m->im.a, p.code_stride * (size_t)rows);
    p.scales = p.scale_stride ? nb_arena_alloc(m->im.a, p.scale_stride * (size_t)rows) : NULL;
    p.biases = p.bias_stride ? nb_arena_alloc(m->im.a, p.bias_stride * (size_t)rows) : NULL;
    if (nb_quantize_rows(m->im.type, f, rows, k, *mult, &p, &m->im.err) != NB_OK) fail_msg("%s", m->im.err.text);
    free(f);
    return p;
}

static void put_blob(maker *m, nb_str layer, const nb_st_out *outs, const void *const *data, const size_t *bytes,
                     size_t n, const nb_st_kv *kv, size_t n_kv)
{
    nb_buf b = {0};
    uint64_t total;
    if (nb_st_header(&b, outs, n, kv, n_kv, 4096, &total, NULL, &m->im.err) != NB_OK) fail_msg("%s", m->im.err.text);
    for (size_t i = 0; i < n; i++) nb_buf_add(&b, data[i], bytes[i]);
    assert_int_equal(imp_layer(&m->im, NB_MEDIA_TENSOR, layer, b.p, b.n), NB_OK);
    nb_buf_free(&b);
}

static void put_matrix(maker *m, const nb_tensor_spec *s)
{
    bool table = s->role == NB_ROLE_TABLE,
         affine = nb_format_info((nb_format)m->im.type.format)->scale_kind == NB_SCALE_AFFINE;
    float mult;
    nb_parts p = random_parts(m, s->dim[0], s->dim[1], &mult);
    nb_st_kv kv[16];
    size_t n_kv = 0, n = 0, bytes[4];
    nb_st_out o[4] = {0};
    const void *data[4];
    nb_str name = s->name;
    if (m->r->standard) {
        int bits = nb_format_info((nb_format)m->im.type.format)->bits;
        bool is_float = nb_format_info((nb_format)m->im.type.format)->is_float;
        nb_dtype dt = is_float ? (m->im.type.format == NB_F32   ? NB_DT_F32
                                  : m->im.type.format == NB_F16 ? NB_DT_F16
                                                                : NB_DT_BF16)
                               : NB_DT_U32;
        o[n] = (nb_st_out){
            .name = name, .dtype = dt, .rank = 2, .dim = {s->dim[0], is_float ? s->dim[1] : s->dim[1] * bits / 32}};
        data[n] = p.codes;
        bytes[n++] = p.code_stride * (size_t)s->dim[0];
        if (p.scales) {
            o[n] = (nb_st_out){.name = nb_str_of(nb_arena_printf(m->im.a, "%.*s.scale", NB_FMT_STR(name))),
                               .dtype = affine ? (nb_dtype)m->im.type.scale_dtype : NB_DT_U8,
                               .rank = 2,
                               .dim = {s->dim[0], s->dim[1] / m->im.type.group}};
            data[n] = p.scales;
            bytes[n++] = p.scale_stride * (size_t)s->dim[0];
        }
        if (p.biases) {
            o[n] = (nb_st_out){.name = nb_str_of(nb_arena_printf(m->im.a, "%.*s.bias", NB_FMT_STR(name))),
                               .dtype = (nb_dtype)m->im.type.scale_dtype,
                               .rank = 2,
                               .dim = {s->dim[0], s->dim[1] / m->im.type.group}};
            data[n] = p.biases;
            bytes[n++] = p.bias_stride * (size_t)s->dim[0];
        }
        if (!is_float) {
            char g[16];
            snprintf(g, sizeof g, "%u", m->im.type.group);
            meta(m, kv, &n_kv, nb_str_of(""), "quant_type", nb_format_info((nb_format)m->im.type.format)->name, name);
            meta(m, kv, &n_kv, nb_str_of(""), "group_size", nb_arena_dup(m->im.a, g, strlen(g)), name);
        }
    } else {
        uint64_t size = 0;
        size_t row = 0;
        if (table)
            nb_rows1_row_bytes(m->im.type, s->dim[1], &row), size = row * (uint64_t)s->dim[0];
        else
            nb_rows16_bytes(m->im.type, s->dim[0], s->dim[1], &size);
        uint8_t *packed = nb_arena_alloc(m->im.a, size);
        if (table)
            nb_rows1_pack(m->im.type, &p, s->dim[0], s->dim[1], packed);
        else
            nb_rows16_pack(m->im.type, &p, s->dim[0], s->dim[1], packed);
        if (damaged(m, name)) size -= (uint64_t)m->r->shorten;
        meta(m, kv, &n_kv, name, ".layout", table ? "rows1.1" : "rows16.1", name);
        type_meta(m, kv, &n_kv, name, s->dim[0], s->dim[1], name);
        o[n] = (nb_st_out){.name = name, .dtype = NB_DT_U8, .rank = 1, .dim = {(int64_t)size}};
        data[n] = packed;
        bytes[n++] = size;
    }
    if (m->im.type.format == NB_NVFP4 && !(damaged(m, name) && m->r->no_scale)) {
        if (damaged(m, name) && m->r->scale != 0) mult = m->r->scale;
        o[n] = (nb_st_out){.name = nb_str_of(nb_arena_printf(m->im.a, "%.*s.global_scale", NB_FMT_STR(name))),
                           .dtype = NB_DT_F32,
                           .rank = 1,
                           .dim = {1}};
        data[n] = nb_arena_dup(m->im.a, &mult, 4);
        bytes[n++] = 4;
    }
    put_blob(m, name, o, data, bytes, n, kv, n_kv);
}

static const char *const proj_name[3] = {"gate_proj", "up_proj", "down_proj"}, *const proj_key[3] = {".gate", ".up",
                                                                                                     ".down"};

static void put_bank(maker *m, const nb_tensor_spec *s)
{
    nb_st_kv kv[20];
    nb_st_out o[4] = {0};
    const void *data[4];
    size_t n_kv = 0, n = 0, bytes[4];
    uint64_t off[3], stride = 0, size;
    nb_str name = nb_str_of(nb_arena_printf(m->im.a, "%.*s.weight", NB_FMT_STR(s->name)));
    float *mult = nb_arena_alloc(m->im.a, 3 * 4 * (size_t)s->experts);
    for (int i = 0; i < 3; i++) {
        nb_rows16_bytes(m->im.type, s->proj[i].n, s->proj[i].k, &size);
        off[i] = stride;
        stride += size;
    }
    stride = NB_ALIGN_UP(stride, 4096);
    uint8_t *packed = nb_arena_alloc_aligned(m->im.a, (size_t)s->experts * stride, 64);
    uint8_t *codes[3];
    size_t row[3];
    for (int i = 0; i < 3; i++) {
        codes[i] = NULL;
        for (int32_t e = 0; e < s->experts; e++) {
            nb_parts p = random_parts(m, s->proj[i].n, s->proj[i].k, &mult[i * s->experts + e]);
            row[i] = p.code_stride * (size_t)s->proj[i].n;
            if (!codes[i]) codes[i] = nb_arena_alloc(m->im.a, row[i] * (size_t)s->experts);
            memcpy(codes[i] + row[i] * (size_t)e, p.codes, row[i]);
            nb_rows16_pack(m->im.type, &p, s->proj[i].n, s->proj[i].k, packed + (uint64_t)e * stride + off[i]);
        }
    }
    if (m->r->standard) {
        for (int i = 0; i < 3; i++) {
            o[n] = (nb_st_out){
                .name = nb_str_of(nb_arena_printf(m->im.a, "%.*s.%s.weight", NB_FMT_STR(s->name), proj_name[i])),
                .dtype = NB_DT_BF16,
                .rank = 3,
                .dim = {s->experts, s->proj[i].n, s->proj[i].k}};
            data[n] = codes[i];
            bytes[n++] = row[i] * (size_t)s->experts;
        }
        put_blob(m, s->name, o, data, bytes, n, NULL, 0);
        return;
    }
    meta(m, kv, &n_kv, name, ".layout", "rows16.1", name);
    for (int i = 0; i < 3; i++) {
        char text[32];
        nb_str base = nb_str_of(nb_arena_printf(m->im.a, "%.*s%s", NB_FMT_STR(name), proj_key[i]));
        type_meta(m, kv, &n_kv, base, s->proj[i].n, s->proj[i].k, i == 1 ? name : nb_str_of(""));
        snprintf(text, sizeof text, "%llu", (unsigned long long)off[i]);
        meta(m, kv, &n_kv, base, ".offset", text, i == 1 ? name : nb_str_of(""));
    }
    o[n] = (nb_st_out){.name = name, .dtype = NB_DT_U8, .rank = 2, .dim = {s->experts, (int64_t)stride}};
    data[n] = packed;
    bytes[n++] = (size_t)s->experts * stride;
    for (int i = 0; i < 3 && m->im.type.format == NB_NVFP4; i++) {
        if (damaged(m, name) && m->r->no_scale && i == 2) continue;
        o[n] = (nb_st_out){
            .name = nb_str_of(nb_arena_printf(m->im.a, "%.*s.%s.global_scale", NB_FMT_STR(s->name), proj_name[i])),
            .dtype = NB_DT_F32,
            .rank = 1,
            .dim = {s->experts}};
        data[n] = mult + i * s->experts;
        bytes[n++] = 4 * (size_t)s->experts;
    }
    put_blob(m, s->name, o, data, bytes, n, kv, n_kv);
}

static void put_vector(maker *m, const nb_tensor_spec *s)
{
    size_t n = (size_t)s->dim[0];
    uint16_t *v = nb_arena_alloc(m->im.a, 2 * n);
    for (size_t i = 0; i < n; i++) v[i] = nb_bf16_encode(i == 0 ? -0.001f : 0.01f * (float)(i % 7));
    assert_int_equal(imp_blob(&m->im, s->name, s->name, NB_DT_BF16, 1, s->dim, v, 2 * n, NULL, 0), NB_OK);
}

static nb_name name_of(const char *text)
{
    nb_name n;
    nb_error err;
    assert_int_equal(nb_name_parse(&n, text, &err), NB_OK);
    return n;
}

static void make(const recipe *r, const char *as)
{
    maker *m = calloc(1, sizeof *m);
    nb_json_doc doc;
    nb_error err;
    nb_tensor_spec *specs;
    size_t n;
    nb_name name = name_of(as);
    m->r = r;
    m->rng = 7;
    m->im.store = store;
    m->im.a = nb_arena_new(0);
    assert_int_equal(nb_qtype_parse(&m->im.type, r->type ? r->type : "bf16", &err), NB_OK);
    if (config_text(&m->im.c, &doc, m->im.a, r->config, &err) != NB_OK) fail_msg("%s", err.text);
    assert_int_equal(nb_arch_tensors(&m->im.c, m->im.a, &specs, &n, &err), NB_OK);
    for (size_t i = 0; i < n; i++) {
        if (specs[i].optional || (r->drop && nb_str_is(specs[i].name, r->drop))) continue;
        if (specs[i].role == NB_ROLE_BANK)
            put_bank(m, &specs[i]);
        else if (specs[i].role == NB_ROLE_VECTOR)
            put_vector(m, &specs[i]);
        else
            put_matrix(m, &specs[i]);
    }
    if (!r->no_config) imp_layer(&m->im, NB_MEDIA_JSON, nb_str_of("config.json"), r->config, strlen(r->config));
    if (r->extra_name) imp_layer(&m->im, NB_MEDIA_JSON, nb_str_of(r->extra_name), r->extra_text, strlen(r->extra_text));
    if (r->extra2_name)
        imp_layer(&m->im, NB_MEDIA_TEXT, nb_str_of(r->extra2_name), r->extra2_text, strlen(r->extra2_text));
    imp_layer(&m->im, NB_MEDIA_CONFIG, nb_str_of(""), "{\"model_format\":\"nibble\"}", 25);
    if (nb_manifest_publish(store, &name, &m->im.layers[m->im.n - 1], m->im.layers, m->im.n - 1, NULL, &err) != NB_OK)
        fail_msg("%s", err.text);
    nb_json_free(&doc);
    nb_arena_free(m->im.a);
    free(m);
}

static nb_network *open_made(const recipe *r, const nb_network_options *o)
{
    nb_network *net;
    nb_error err;
    nb_name name = name_of("made");
    make(r, "made");
    if (nb_network_open(&net, store, &name, o, &err) != NB_OK) fail_msg("%s", err.text);
    return net;
}

/* ---- what is right ---- */

static void same_network(const nb_network *a, const nb_network *b)
{
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const nb_net_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        assert_true(nb_str_eq(x->name, y->name) && x->role == y->role && x->rank == y->rank &&
                    nb_qtype_eq(x->type, y->type) && x->layout == y->layout);
        if (x->weight) {
            assert_int_equal(x->weight->bytes, y->weight->bytes);
            assert_memory_equal(x->weight->data, y->weight->data, x->weight->bytes);
            assert_true(x->weight->multiplier == y->weight->multiplier);
        }
        if (x->vector) assert_memory_equal(x->vector, y->vector, (size_t)x->dim[0] * 4);
        if (x->bank)
            for (int32_t e = 0; e < x->bank->experts; e++) {
                const struct nb_bank_proj *p = &x->bank->proj[x->proj], *q = &y->bank->proj[x->proj];
                uint64_t size;
                nb_rows16_bytes(p->type, p->n, p->k, &size);
                assert_memory_equal(x->bank->data + (uint64_t)e * x->bank->stride + p->offset,
                                    y->bank->data + (uint64_t)e * y->bank->stride + q->offset, size);
            }
    }
}

static void layouts_and_formats(void **state)
{
    (void)state;
    static const char *const types[] = {"bf16", "f16", "f32", "int8:g32", "int4:g32", "mxfp8", "mxfp4", "nvfp4"};
    static const char *const configs[] = {LLAMA, LLAMA_TIED};
    for (size_t i = 0; i < NB_COUNT(types); i++)
        for (size_t k = 0; k < NB_COUNT(configs); k++) {
            recipe r = {.config = configs[k], .type = types[i]}, s = r;
            nb_network_options resident = {.resident = true};
            s.standard = true;
            nb_network *packed = open_made(&r, NULL), *copied = open_made(&r, &resident),
                       *standard = open_made(&s, NULL);
            same_network(packed, standard);
            same_network(packed, copied);
            const nb_net_tensor *q = nb_network_find(standard, NB_LIT("model.layers.0.self_attn.q_proj.weight"));
            assert_true(q->repacked && !nb_network_find(packed, q->name)->repacked);
            assert_int_equal(packed->config.tie_embeddings, k == 1);
            assert_int_equal(packed->graph.n_captures, packed->config.layers + 1);
            assert_int_equal(packed->graph_f32.kv[0].f32, 1);
            assert_int_equal(packed->graph.kv[0].f32, 0);
            nb_network_close(packed);
            nb_network_close(copied);
            nb_network_close(standard);
        }
    printf("%zu formats, packed, row-major and resident\n", NB_COUNT(types));
}

static void banks(void **state)
{
    (void)state;
    recipe r = {.config = MOE}, s = {.config = MOE, .standard = true}, nv = {.config = MOE, .type = "nvfp4"};
    nb_network *packed = open_made(&r, NULL), *standard = open_made(&s, NULL), *fp4 = open_made(&nv, NULL);
    same_network(packed, standard);
    const nb_net_tensor *t = nb_network_find(fp4, NB_LIT("model.layers.0.mlp.experts.down_proj.weight"));
    assert_true(t->bank && t->proj == NB_PROJ_DOWN && t->bank->proj[2].multiplier && t->dim[0] == 6);
    assert_true(t->bank->stride % 4096 == 0 && t->bank->proj[2].n == 64 && t->bank->proj[2].k == 96);
    nb_network_close(packed);
    nb_network_close(standard);
    nb_network_close(fp4);
}

/* 1 + w is formed in fp32: w = -0.001 gives 0.999, not 1 */
static void gemma_norms(void **state)
{
    (void)state;
    for (int stored = 0; stored < 2; stored++) {
        char text[1024];
        snprintf(text, sizeof text, GEMMA, stored ? ",\"nibble_norm_has_one\":true" : "");
        recipe r = {.config = text};
        nb_network *net = open_made(&r, NULL);
        static const char *const names[] = {"model.norm.weight", "model.layers.1.self_attn.q_norm.weight",
                                            "model.layers.0.post_feedforward_layernorm.weight"};
        for (size_t i = 0; i < NB_COUNT(names); i++) {
            const nb_net_tensor *t = nb_network_find(net, nb_str_of(names[i]));
            float w = nb_bf16_decode(nb_bf16_encode(-0.001f));
            assert_true(t->vector[0] == (stored ? w : 1.0f + w));
        }
        nb_network_close(net);
    }
}

static void text_files(void **state)
{
    (void)state;
    recipe r = {.config = LLAMA,
                .extra_name = "generation_config.json",
                .extra_text = "{\"temperature\":0.25,\"top_k\":40,\"do_sample\":true,\"eos_token_id\":[2,5],\"suppress_"
                              "tokens\":[3,4,1000]}",
                .extra2_name = "chat_template.jinja",
                .extra2_text = "{{ messages }}"};
    nb_network *net = open_made(&r, NULL);
    assert_int_equal(net->generation.given, NB_GEN_TEMPERATURE | NB_GEN_TOP_K | NB_GEN_DO_SAMPLE);
    assert_true(net->generation.temperature == 0.25 && net->generation.top_k == 40);
    assert_true(net->config.n_eos == 2 && net->config.eos[1] == 5);
    assert_int_equal(net->generation.n_suppress, 2);
    assert_true(nb_str_is(net->chat_template, "{{ messages }}"));
    assert_null(net->tokenizer);
    nb_network_close(net);
    recipe list = {
        .config = LLAMA,
        .extra_name = "tokenizer_config.json",
        .extra_text =
            "{\"chat_template\":[{\"name\":\"tool\",\"template\":\"a\"},{\"name\":\"default\",\"template\":\"b\"}]}"};
    net = open_made(&list, NULL);
    assert_true(nb_str_is(net->chat_template, "b"));
    nb_network_close(net);
    recipe both = {.config = LLAMA,
                   .extra_name = "tokenizer_config.json",
                   .extra_text = "{\"chat_template\":\"a\"}",
                   .extra2_name = "chat_template.jinja",
                   .extra2_text = "c"};
    net = open_made(&both, NULL);
    assert_true(nb_str_is(net->chat_template, "c"));
    nb_network_close(net);
}

static const char tokenizer_text[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[{\"id\":3,\"content\":\"<end>\","
    "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
    "\"use_regex\":true},\"post_processor\":null,"
    "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_"
    "suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}}";

static int prepared_files(char *path, size_t cap)
{
    char dir[300];
    int n = 0;
    snprintf(dir, sizeof dir, "%s/cache", root);
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "tokenizer-", 10) == 0) n++, snprintf(path, cap, "%s/%s", dir, e->d_name);
    if (d) closedir(d);
    return n;
}

/* The first opening prepares the tokenizer, the second maps it; a damaged prepared file is made anew. */
static void prepared_tokenizer(void **state)
{
    (void)state;
    char path[1024];
    recipe r = {.config = LLAMA, .extra_name = "tokenizer.json", .extra_text = tokenizer_text};
    nb_network *first = open_made(&r, NULL), *net;
    nb_name name = name_of("made");
    nb_error err;
    struct stat before, after;
    assert_non_null(first->tokenizer);
    assert_null(first->blobs->tokenizer.p);
    assert_int_equal(prepared_files(path, sizeof path), 1);
    assert_int_equal(stat(path, &before), 0);
    for (int damage = 0; damage < 3; damage++) {
        if (damage == 1) assert_int_equal(truncate(path, before.st_size / 2), 0);
        if (damage == 2) assert_int_equal(truncate(path, 0), 0);
        assert_int_equal(nb_network_open(&net, store, &name, NULL, &err), NB_OK);
        assert_true((net->blobs->tokenizer.p != NULL) == (damage == 0));
        assert_int_equal(nb_tokenizer_size(net->tokenizer), nb_tokenizer_size(first->tokenizer));
        for (int32_t i = 0; i < (int32_t)nb_tokenizer_size(first->tokenizer); i++)
            assert_true(nb_str_eq(nb_tokenizer_token(net->tokenizer, i), nb_tokenizer_token(first->tokenizer, i)));
        assert_int_equal(stat(path, &after), 0);
        assert_int_equal(after.st_size, before.st_size);
        nb_network_close(net);
    }
    nb_network_close(first);
    recipe bad = {.config = LLAMA, .extra_name = "tokenizer.json", .extra_text = "{\"model\":{}}"};
    make(&bad, "made");
    nb_status s = nb_network_open(&net, store, &name, NULL, &err);
    assert_true(s == NB_E_INVALID || s == NB_E_UNSUPPORTED);
    nb_network_options without = {.no_tokenizer = true};
    assert_int_equal(nb_network_open(&net, store, &name, &without, &err), NB_OK);
    nb_network_close(net);
}

/* lm_head.weight is absent and the config does not say "tied": the embedding is the head after all. */
static void tied_after_all(void **state)
{
    (void)state;
    recipe r = {.config = LLAMA, .drop = "lm_head.weight"};
    nb_network *net;
    nb_error err;
    nb_name name = name_of("made");
    make(&r, "made"); /* its embedding is a rows1 table: no head can read that */
    assert_int_equal(nb_network_open(&net, store, &name, NULL, &err), NB_E_INVALID);
    r.standard = true;
    net = open_made(&r, NULL);
    assert_true(net->config.tie_embeddings);
    nb_network_close(net);
}

/* ---- what is wrong ---- */

#define Q "model.layers.0.self_attn.q_proj.weight"
#define B "model.layers.0.mlp.experts.weight"
static void damaged_models(void **state)
{
    (void)state;
    static const struct {
        recipe r;
        nb_status status;
        const char *part;
    } table[] = {
        {{.config = LLAMA, .drop = Q}, NB_E_INVALID, "lacks tensor " Q},
        {{.config = LLAMA, .drop = "model.norm.weight"}, NB_E_INVALID, "lacks tensor model.norm.weight"},
        {{.config = LLAMA, .target = Q, .key = ".layout", .value = "rows16.9"}, NB_E_UNSUPPORTED, "layout 'rows16.9'"},
        {{.config = LLAMA, .target = Q, .key = ".shape", .value = "[128,96]"},
         NB_E_INVALID,
         "config.json says [128,64]"},
        {{.config = LLAMA, .target = Q, .key = ".shape", .value = "[128,-64]"}, NB_E_INVALID, "has no shape"},
        {{.config = LLAMA, .target = Q, .key = ".shape", .value = "[99999999999,64]"}, NB_E_INVALID, "has no shape"},
        {{.config = LLAMA, .target = Q, .key = ".quant_type", .value = "int9"}, NB_E_INVALID, "quant_type 'int9'"},
        {{.config = LLAMA, .target = Q, .key = ".quant_type", .value = NULL}, NB_E_INVALID, "has no quant_type"},
        {{.config = LLAMA, .target = Q, .key = ".quant_type", .value = "mxfp8"},
         NB_E_INVALID,
         "its type and shape need"},
        {{.config = LLAMA, .target = Q, .shorten = 64}, NB_E_INVALID, "its type and shape need"},
        {{.config = LLAMA, .type = "int8:g32", .target = Q, .key = ".group_size", .value = "48"},
         NB_E_INVALID,
         "group_size '48'"},
        {{.config = LLAMA, .type = "int8:g32", .target = Q, .key = ".scale_dtype", .value = "I32"},
         NB_E_INVALID,
         "scale_dtype 'I32'"},
        {{.config = LLAMA, .type = "int8:g32", .target = Q, .key = ".scale_dtype", .value = "F32"},
         NB_E_INVALID,
         "its type and shape need"},
        {{.config = LLAMA, .type = "nvfp4", .target = Q, .no_scale = true}, NB_E_INVALID, "has no global_scale"},
        {{.config = LLAMA, .type = "nvfp4", .target = Q, .scale = -1}, NB_E_INVALID, "global_scale is not above 0"},
        {{.config = LLAMA, .type = "nvfp4", .target = Q, .scale = INFINITY}, NB_E_INVALID, "NaN or infinite"},
        {{.config = LLAMA, .standard = true, .type = "int8:g32", .target = Q, .key = "group_size", .value = "64"},
         NB_E_INVALID,
         "expected"},
        {{.config = LLAMA, .standard = true, .type = "int8:g32", .target = Q, .key = "quant_type", .value = NULL},
         NB_E_INVALID,
         "no quant_type"},
        {{.config = MOE, .target = B, .key = ".offset", .value = "100000000"}, NB_E_INVALID, "does not fit a record"},
        {{.config = MOE, .target = B, .key = ".offset", .value = "10"}, NB_E_INVALID, "does not fit a record"},
        {{.config = MOE, .target = B, .key = ".shape", .value = "[96,32]"}, NB_E_INVALID, "up_proj is [96,32]"},
        {{.config = MOE, .target = B, .key = ".shape", .value = NULL}, NB_E_INVALID, "no up or no down"},
        {{.config = MOE, .type = "nvfp4", .target = B, .no_scale = true},
         NB_E_INVALID,
         "down_proj has no global_scale"},
        {{.config = LLAMA, .no_config = "x"}, NB_E_INVALID, "no config.json"},
        {{.config = LLAMA, .extra_name = "generation_config.json", .extra_text = "{"},
         NB_E_INVALID,
         "generation_config.json"},
        {{.config = LLAMA, .extra_name = "tokenizer_config.json", .extra_text = "{\"a\":"},
         NB_E_INVALID,
         "tokenizer_config.json"},
        {{.config =
              "{\"architectures\":[\"GptOssForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_"
              "heads\":4,\"head_dim\":16,\"vocab_size\":100,\"intermediate_size\":32,\"num_local_experts\":4}"},
         NB_E_UNSUPPORTED,
         "architecture 'gpt_oss' is importable"},
    };
    for (size_t i = 0; i < NB_COUNT(table); i++) {
        nb_network *net;
        nb_error err = {0};
        nb_name name = name_of("damaged");
        make(&table[i].r, "damaged");
        nb_status s = nb_network_open(&net, store, &name, NULL, &err);
        if (s != table[i].status || !strstr(err.text, table[i].part))
            fail_msg("%zu: status %d, '%s' lacks '%s'", i, s, err.text, table[i].part);
        assert_null(net);
        if (!strstr(err.text, "damaged")) fail_msg("%s: does not name the model", err.text);
    }
    nb_network *net;
    nb_error err;
    nb_name name = name_of("absent");
    assert_int_equal(nb_network_open(&net, store, &name, NULL, &err), NB_E_NOT_FOUND);
    printf("%zu damaged models\n", NB_COUNT(table));
}

/* weights_only opens what cannot run, and what lacks tensors. */
static void weights_only(void **state)
{
    (void)state;
    nb_network_options o = {.weights_only = true, .no_tokenizer = true};
    recipe r = {
        .config =
            "{\"architectures\":[\"GptOssForCausalLM\"],\"hidden_size\":64,\"num_hidden_layers\":1,\"num_attention_"
            "heads\":4,\"head_dim\":16,\"vocab_size\":100,\"intermediate_size\":32,\"num_local_experts\":4}",
        .type = "mxfp4"};
    nb_network *net = open_made(&r, &o);
    assert_int_equal(net->graph.n_ops, 0);
    assert_non_null(nb_network_find(net, NB_LIT("model.layers.0.mlp.experts.up_proj.weight"))->bank);
    nb_network_close(net);
}

/* A blob cut short on the disk: its size no longer is the manifest's. */
static void truncated_blob(void **state)
{
    (void)state;
    recipe r = {.config = LLAMA};
    nb_manifest m;
    nb_error err;
    nb_name name = name_of("cut");
    nb_buf path = {0};
    nb_network *net;
    make(&r, "cut");
    assert_int_equal(nb_manifest_read(store, &name, &m, &err), NB_OK);
    nb_blob_path(store, m.layers[3].hex, &path);
    assert_int_equal(truncate(nb_buf_cstr(&path), 100), 0);
    assert_int_equal(nb_network_open(&net, store, &name, NULL, &err), NB_E_INVALID);
    assert_non_null(strstr(err.text, "expected"));
    assert_int_equal(unlink(nb_buf_cstr(&path)), 0);
    assert_int_equal(nb_network_open(&net, store, &name, NULL, &err), NB_E_NOT_FOUND);
    nb_buf_free(&path);
    nb_manifest_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(layouts_and_formats), cmocka_unit_test(banks),
                                       cmocka_unit_test(gemma_norms),         cmocka_unit_test(text_files),
                                       cmocka_unit_test(prepared_tokenizer),  cmocka_unit_test(tied_after_all),
                                       cmocka_unit_test(damaged_models),      cmocka_unit_test(weights_only),
                                       cmocka_unit_test(truncated_blob)};
    return cmocka_run_group_tests(tests, store_setup, store_teardown);
}
