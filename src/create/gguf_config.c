/* create/gguf_config: config.json, generation_config.json, tokenizer and template out of GGUF metadata, in hub
 * conventions. design.md 9.
 *
 * Two facts that the metadata does not say are taken from the file: the vocabulary size is the number of rows of the
 * embedding, and a file without an output matrix is tied.
 */
#include "create/plan.h"
#include "model/model.h"

#include <math.h>
#include <stdio.h>

typedef struct gguf_arch {
    const char *gguf, *hub, *model_type;
    bool permuted, moe, has_one;
} gguf_arch;

static const gguf_arch archs[] = {
    {"llama", "LlamaForCausalLM", "llama", true, false, false},
    {"qwen2", "Qwen2ForCausalLM", "qwen2", false, false, false},
    {"qwen3", "Qwen3ForCausalLM", "qwen3", false, false, false},
    {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe", false, true, false},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text", false, false, true},
};

typedef struct config_build {
    nb_job *j;
    nb_source *s;
    const gguf_arch *arch;
    nb_json *root;
    nb_error *err;
    nb_status st;
} config_build;

static const nb_json *meta(const config_build *b, const char *key)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", b->arch->gguf, key);
    const nb_json *v = nb_json_get(b->s->gguf_file.meta, full);
    /* the same number for every layer is that number */
    if (v && v->type == NB_JSON_ARRAY && v->count) {
        for (uint32_t i = 1; i < v->count; i++)
            if (!nb_str_eq(v->items[i].text, v->items[0].text)) return v;
        return &v->items[0];
    }
    return v;
}

static void set(config_build *b, nb_json *o, const char *key, const nb_json *v)
{
    if (!v || !nb_json_set(b->j->arena, o, nb_str_of(key), v))
        if (b->st == NB_OK) b->st = nb_fail(b->err, NB_E_NO_MEMORY, "out of memory for the config of %s", b->s->path);
}

static void set_i64(config_build *b, nb_json *o, const char *key, int64_t v)
{
    set(b, o, key, nb_json_new_i64(b->j->arena, v));
}
static void set_f64(config_build *b, nb_json *o, const char *key, double v)
{
    set(b, o, key, nb_json_new_f64(b->j->arena, v));
}
static void set_str(config_build *b, nb_json *o, const char *key, const char *v)
{
    set(b, o, key, nb_json_new_str(b->j->arena, nb_str_of(v)));
}
static void set_bool(config_build *b, nb_json *o, const char *key, bool v)
{
    set(b, o, key, nb_json_new_bool(b->j->arena, v));
}

/* An integer field that must be there, from 1 to 2^31-1. */
static int64_t need(config_build *b, const char *key)
{
    int64_t v = 0;
    const nb_json *f = meta(b, key);
    if (!nb_json_i64(f, &v) || v < 1 || v > INT32_MAX) {
        if (b->st == NB_OK)
            b->st = nb_fail(b->err, NB_E_INVALID, "%s: field %s.%s is %s (E_CONFIG)", b->s->path, b->arch->gguf, key,
                            !f                         ? "missing"
                            : f->type == NB_JSON_ARRAY ? "different per layer"
                                                       : "not a positive integer");
        return 1;
    }
    return v;
}

/* GGUF floats are F32: the shortest text that gives the same F32 reads better and rounds back to it. */
static bool get_f32(const config_build *b, const char *key, double *out)
{
    if (!nb_json_f64(meta(b, key), out)) return false;
    for (int digits = 6; digits <= 9; digits++) {
        char text[40];
        snprintf(text, sizeof text, "%.*g", digits, *out);
        nb_json v = {.type = NB_JSON_NUMBER, .text = nb_str_of(text)};
        double back;
        if (nb_json_f64(&v, &back) && (float)back == (float)*out) {
            *out = back;
            break;
        }
    }
    return true;
}

/* Llama 3 scaling comes as a tensor of divisors. The parameters are found again from it and checked against every
 * value. */
static void llama3_rope(config_build *b, nb_json *rope, double theta, int64_t head_dim)
{
    nb_src_tensor *t = nb_source_find(b->s, NB_LIT("rope_freqs.weight"));
    float *f = NULL;
    uint64_t n = 0;
    if (!t || b->st != NB_OK) return;
    t->used = "rope";
    b->st = nb_source_floats(b->j, b->s, t, 4096, &f, &n, b->err);
    if (b->st != NB_OK) return;
    double factor = 1;
    for (uint64_t i = 0; i < n; i++)
        if (f[i] > factor) factor = f[i];
    if (factor == 1) return;
    /* a divisor between 1 and the factor gives the original length; where there is none, the usual lengths are tried */
    double originals[] = {0, 8192, 4096, 16384, 32768, 2048};
    for (uint64_t i = 0; i < n && originals[0] == 0; i++) {
        double wave = 6.283185307179586 * pow(theta, 2.0 * (double)i / (double)head_dim);
        if (f[i] > 1.001 && f[i] < 0.999 * factor)
            originals[0] = nearbyint(wave * (3 * (1 / f[i] - 1 / factor) / (1 - 1 / factor) + 1));
    }
    for (size_t o = originals[0] > 0 ? 0 : 1; o < NB_COUNT(originals); o++) {
        double low = 1, high = 4, old = originals[o];
        bool same = (int64_t)n == head_dim / 2;
        for (uint64_t i = 0; i < n && same; i++) {
            double wave = 6.283185307179586 * pow(theta, 2.0 * (double)i / (double)head_dim), want = factor;
            if (wave < old / high)
                want = 1;
            else if (wave <= old / low) {
                double smooth = (old / wave - low) / (high - low);
                want = 1 / ((1 - smooth) / factor + smooth);
            }
            same = fabs(want - f[i]) <= 2e-3 * want;
        }
        if (!same) continue;
        set_str(b, rope, "rope_type", "llama3");
        set_f64(b, rope, "factor", factor);
        set_f64(b, rope, "low_freq_factor", low);
        set_f64(b, rope, "high_freq_factor", high);
        set_i64(b, rope, "original_max_position_embeddings", (int64_t)old);
        return;
    }
    b->st =
        nb_fail(b->err, NB_E_UNSUPPORTED,
                "%s: tensor rope_freqs.weight fits no known rotary scaling (largest divisor %g)", b->s->path, factor);
}

static void scaling(config_build *b, nb_json *rope)
{
    nb_str type;
    double v;
    if (!nb_json_str(meta(b, "rope.scaling.type"), &type) || nb_str_is(type, "none")) return;
    if (!nb_str_is(type, "linear") && !nb_str_is(type, "yarn")) {
        if (b->st == NB_OK)
            b->st = nb_fail(b->err, NB_E_UNSUPPORTED, "%s: rotary scaling '%.*s' is not supported", b->s->path,
                            NB_FMT_STR(type));
        return;
    }
    set(b, rope, "rope_type", nb_json_new_str(b->j->arena, type));
    if (get_f32(b, "rope.scaling.factor", &v)) set_f64(b, rope, "factor", v);
    if (get_f32(b, "rope.scaling.original_context_length", &v))
        set_i64(b, rope, "original_max_position_embeddings", (int64_t)v);
    if (get_f32(b, "rope.scaling.attn_factor", &v)) set_f64(b, rope, "attention_factor", v);
    if (get_f32(b, "rope.scaling.yarn_beta_fast", &v)) set_f64(b, rope, "beta_fast", v);
    if (get_f32(b, "rope.scaling.yarn_beta_slow", &v)) set_f64(b, rope, "beta_slow", v);
}

static nb_json *object(config_build *b) { return nb_json_new(b->j->arena, NB_JSON_OBJECT); }

static void gemma3_fields(config_build *b, int64_t layers, int64_t hidden, int64_t heads, int64_t head_dim,
                          double theta)
{
    nb_json *full = object(b), *local = object(b), *rope = object(b), *types = nb_json_new(b->j->arena, NB_JSON_ARRAY);
    double v;
    if (!full || !local || !rope || !types) {
        b->st = nb_fail(b->err, NB_E_NO_MEMORY, "out of memory");
        return;
    }
    set_str(b, full, "rope_type", "default");
    set_f64(b, full, "rope_theta", theta);
    scaling(b, full);
    set_str(b, local, "rope_type", "default");
    set_f64(b, local, "rope_theta", get_f32(b, "rope.freq_base_swa", &v) ? v : 10000.0);
    set(b, rope, "full_attention", full);
    set(b, rope, "sliding_attention", local);
    set(b, b->root, "rope_parameters", rope);
    for (int64_t i = 0; i < layers; i++)
        if (!nb_json_push(b->j->arena, types,
                          nb_json_new_str(b->j->arena, nb_str_of(i % 6 == 5 ? "full_attention" : "sliding_attention"))))
            b->st = nb_fail(b->err, NB_E_NO_MEMORY, "out of memory");
    set(b, b->root, "layer_types", types);
    set_i64(b, b->root, "sliding_window", need(b, "attention.sliding_window"));
    set_str(b, b->root, "hidden_activation", "gelu_pytorch_tanh");
    /* the 27B model scales queries by its width per head, the others by the head size */
    set_i64(b, b->root, "query_pre_attn_scalar", layers == 62 ? hidden / heads : head_dim);
    set_bool(b, b->root, "nibble_norm_has_one", true);
    if (get_f32(b, "final_logit_softcapping", &v)) set_f64(b, b->root, "final_logit_softcapping", v);
    if (get_f32(b, "attn_logit_softcapping", &v)) set_f64(b, b->root, "attn_logit_softcapping", v);
}

static void rope_fields(config_build *b, double theta, int64_t head_dim)
{
    nb_json *rope = object(b);
    if (!rope) {
        b->st = nb_fail(b->err, NB_E_NO_MEMORY, "out of memory");
        return;
    }
    set_str(b, rope, "rope_type", "default");
    set_f64(b, rope, "rope_theta", theta);
    scaling(b, rope);
    llama3_rope(b, rope, theta, head_dim);
    set(b, b->root, "rope_parameters", rope);
}

/* Special ids: also those that end a turn, which belong to the ids that stop a generation. */
static void token_ids(config_build *b, nb_json *generation)
{
    static const char *const stops[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    nb_json *eos = nb_json_new(b->j->arena, NB_JSON_ARRAY);
    int64_t v, seen[3];
    int n = 0;
    for (size_t i = 0; i < NB_COUNT(stops) && eos; i++) {
        char key[64];
        snprintf(key, sizeof key, "tokenizer.ggml.%s", stops[i]);
        if (!nb_json_i64(nb_json_get(b->s->gguf_file.meta, key), &v) || v < 0 || v > INT32_MAX) continue;
        bool dup = false;
        for (int k = 0; k < n; k++) dup = dup || seen[k] == v;
        if (dup) continue;
        seen[n++] = v;
        const nb_json *id = nb_json_new_i64(b->j->arena, v);
        if (!id || !nb_json_push(b->j->arena, eos, id)) eos = NULL;
    }
    if (!eos)
        b->st = nb_fail(b->err, NB_E_NO_MEMORY, "out of memory");
    else if (n) {
        set(b, b->root, "eos_token_id", n == 1 ? &eos->items[0] : eos);
        set(b, generation, "eos_token_id", n == 1 ? &eos->items[0] : eos);
    }
    if (nb_json_i64(nb_json_get(b->s->gguf_file.meta, "tokenizer.ggml.bos_token_id"), &v) && v >= 0 && v <= INT32_MAX) {
        set_i64(b, b->root, "bos_token_id", v);
        set_i64(b, generation, "bos_token_id", v);
    }
}

static nb_status store_json(config_build *b, const char *name, const nb_json *v, nb_json_doc *doc)
{
    nb_buf out = {0};
    nb_json_write(&out, v, NB_JSON_PRETTY);
    nb_buf_add_char(&out, '\n');
    nb_str bytes = {out.oom ? NULL : nb_arena_dup(b->j->arena, out.p, out.n), out.n};
    nb_buf_free(&out);
    if (!bytes.p || !nb_source_add_config(b->j, b->s, nb_str_of(name), NB_MEDIA_JSON, bytes))
        return nb_fail(b->err, NB_E_NO_MEMORY, "out of memory for %s", name);
    return doc ? nb_json_parse(doc, bytes.p, bytes.n, name, NULL, b->err) : NB_OK;
}

/* Tokenizer and templates as files. */
static nb_status tokenizer_layers(config_build *b)
{
    nb_text_file *files;
    size_t n;
    nb_status st = nb_text_gguf(b->s->gguf_file.meta, b->j->arena, &files, &n, b->err);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        bool json = nb_str_ends(files[i].name, ".json");
        nb_str copy = nb_arena_str(b->j->arena, files[i].bytes);
        if (!copy.p || !nb_source_add_config(b->j, b->s, files[i].name, json ? NB_MEDIA_JSON : NB_MEDIA_TEXT, copy))
            st = nb_fail(b->err, NB_E_NO_MEMORY, "out of memory for the tokenizer");
    }
    if (st != NB_OK) return st;
    if (b->s->gguf_file.bad_utf8)
        nb_job_warn(b->j, (nb_str){0}, "%u metadata strings are not UTF-8", b->s->gguf_file.bad_utf8);
    return NB_OK;
}

static void common_fields(config_build *b)
{
    int64_t hidden = need(b, "embedding_length"), layers = need(b, "block_count"),
            heads = need(b, "attention.head_count"), kv = heads, head_dim = 0, context = 0;
    double eps = 0, theta = 10000;
    nb_json_i64(meta(b, "attention.head_count_kv"), &kv);
    if (!nb_json_i64(meta(b, "attention.key_length"), &head_dim) &&
        !(b->arch->permuted && nb_json_i64(meta(b, "rope.dimension_count"), &head_dim)))
        head_dim = hidden / heads;
    if ((head_dim < 2 || head_dim > 65536 || head_dim % 2) && b->st == NB_OK)
        b->st = nb_fail(b->err, NB_E_INVALID, "%s: head size %lld is not possible (E_CONFIG)", b->s->path,
                        (long long)head_dim);
    if (!get_f32(b, "attention.layer_norm_rms_epsilon", &eps) && b->st == NB_OK)
        b->st = nb_fail(b->err, NB_E_INVALID, "%s: field %s.attention.layer_norm_rms_epsilon is missing (E_CONFIG)",
                        b->s->path, b->arch->gguf);
    get_f32(b, "rope.freq_base", &theta);
    const nb_src_tensor *embed = nb_source_find(b->s, NB_LIT("token_embd.weight"));
    if ((!embed || embed->rank != 2) && b->st == NB_OK)
        b->st =
            nb_fail(b->err, NB_E_INVALID, "%s: tensor token_embd.weight is missing (E_MISSING_TENSORS)", b->s->path);
    if (b->st != NB_OK) return;
    set_i64(b, b->root, "hidden_size", hidden);
    set_i64(b, b->root, "num_hidden_layers", layers);
    set_i64(b, b->root, "num_attention_heads", heads);
    set_i64(b, b->root, "num_key_value_heads", kv);
    set_i64(b, b->root, "head_dim", head_dim);
    set_i64(b, b->root, "intermediate_size",
            b->arch->moe && !nb_json_present(meta(b, "feed_forward_length")) ? need(b, "expert_feed_forward_length")
                                                                             : need(b, "feed_forward_length"));
    set_i64(b, b->root, "vocab_size", embed->dim[0]);
    set_i64(b, b->root, "max_position_embeddings", nb_json_i64(meta(b, "context_length"), &context) ? context : 2048);
    set_f64(b, b->root, "rms_norm_eps", eps);
    set_bool(b, b->root, "tie_word_embeddings", !nb_source_find(b->s, NB_LIT("output.weight")));
    if (b->arch->moe) {
        set_i64(b, b->root, "num_experts", need(b, "expert_count"));
        set_i64(b, b->root, "num_experts_per_tok", need(b, "expert_used_count"));
        set_i64(b, b->root, "moe_intermediate_size", need(b, "expert_feed_forward_length"));
        set_i64(b, b->root, "decoder_sparse_step", 1);
        set(b, b->root, "mlp_only_layers", nb_json_new(b->j->arena, NB_JSON_ARRAY));
        set_bool(b, b->root, "norm_topk_prob", true);
    }
    if (b->arch->has_one)
        gemma3_fields(b, layers, hidden, heads, head_dim, theta);
    else {
        set_str(b, b->root, "hidden_act", "silu");
        set_bool(b, b->root, "attention_bias", nb_source_find(b->s, NB_LIT("blk.0.attn_q.bias")) != NULL);
        rope_fields(b, theta, head_dim);
    }
}

nb_status nb_gguf_config(nb_job *j, nb_source *s, nb_error *err)
{
    config_build b = {.j = j, .s = s, .err = err, .st = NB_OK};
    for (size_t i = 0; i < NB_COUNT(archs); i++)
        if (nb_str_is(s->gguf_arch, archs[i].gguf)) b.arch = &archs[i];
    if (!b.arch)
        return nb_fail(err, NB_E_UNSUPPORTED, "%s: architecture '%.*s' is not supported from GGUF (E_ARCH_UNSUPPORTED)",
                       s->path, NB_FMT_STR(s->gguf_arch));
    s->permuted_qk = b.arch->permuted;
    nb_json *arch_list = nb_json_new(j->arena, NB_JSON_ARRAY), *generation = object(&b);
    const nb_json *hub = nb_json_new_str(j->arena, nb_str_of(b.arch->hub));
    b.root = object(&b);
    if (!arch_list || !generation || !hub || !b.root || !nb_json_push(j->arena, arch_list, hub))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    set(&b, b.root, "architectures", arch_list);
    set_str(&b, b.root, "model_type", b.arch->model_type);
    common_fields(&b);
    token_ids(&b, generation);
    if (b.st != NB_OK) return b.st;
    nb_status st = store_json(&b, "config.json", b.root, &s->config);
    if (st == NB_OK) st = store_json(&b, "generation_config.json", generation, &s->generation);
    return st == NB_OK ? tokenizer_layers(&b) : st;
}
