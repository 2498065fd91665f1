/* config.json resolved: specs/architectures.md 5.1. Text fields come from text_config, field by field, else from the
 * top level; null counts as absent. */
#include "model/arch_row.h"
#include "nn/nn.h"

#include <math.h>

#define MAX_LAYERS 4096

const nb_json *nb_config_field(const nb_config *c, const char *keys)
{
    while (keys) {
        size_t n = strcspn(keys, "|");
        nb_str key = {keys, n};
        const nb_json *v = nb_json_get_str(c->text, key);
        if (!nb_json_present(v)) v = nb_json_get_str(c->root, key);
        if (nb_json_present(v)) return v;
        keys = keys[n] ? keys + n + 1 : NULL;
    }
    return NULL;
}

static bool row_default(const nb_config *c, const char *keys, double *out)
{
    for (const nb_default *d = c->arch->defaults; d && d->key; d++)
        if (nb_word_in(keys, nb_str_of(d->key))) {
            *out = d->value;
            return true;
        }
    return false;
}

bool nb_config_number(const nb_config *c, const char *keys, double *out)
{
    const nb_json *v = nb_config_field(c, keys);
    if (v) return nb_json_f64(v, out);
    return row_default(c, keys, out);
}

nb_str nb_config_layer_type(const nb_config *c, int32_t layer)
{
    nb_str s = {"", 0};
    const nb_json *v = nb_json_at(nb_config_field(c, "layer_types"), (size_t)layer);
    if (!nb_json_str(v, &s)) s = (nb_str){"", 0};
    return s;
}

/* "config.json: field F is V, must be ..." */
static nb_status bad_field(nb_error *err, const char *keys, const nb_json *v, const char *must)
{
    nb_buf text = {.limit = 4096};
    int n = (int)strcspn(keys, "|");
    nb_json_write(&text, v, NB_JSON_COMPACT);
    int shown = text.oom ? 0 : text.n > 60 ? 60 : (int)text.n;
    nb_fail(err, NB_E_INVALID, "config.json: field %.*s is %.*s%s, must be %s", n, keys, shown, text.p ? text.p : "",
            shown == 60 || text.oom ? "..." : "", must);
    nb_buf_free(&text);
    return NB_E_INVALID;
}

/* ---- plain fields, one table ---- */

typedef enum kind { INT, REAL, BOOL } kind;
typedef struct field {
    const char *keys;
    uint8_t kind;
    uint16_t off;
    double lo, hi;
} field;
#define AT(f) offsetof(nb_config, f)
static const field fields[] = {
    {"hidden_size", INT, AT(hidden), 1, 1 << 20},
    {"num_hidden_layers", INT, AT(layers), 1, MAX_LAYERS},
    {"num_attention_heads", INT, AT(heads), 1, 1 << 14},
    {"num_key_value_heads", INT, AT(kv_heads), 1, 1 << 14},
    {"head_dim", INT, AT(head_dim), 1, 1 << 14},
    {"intermediate_size", INT, AT(ffn), 1, 1 << 22},
    {"vocab_size", INT, AT(vocab), 1, 1 << 26},
    {"max_position_embeddings", INT, AT(max_context), 1, 1 << 30},
    {"num_experts|num_local_experts|n_routed_experts", INT, AT(experts), 0, 1 << 16},
    {"num_experts_per_tok|top_k_experts", INT, AT(experts_used), 0, 1 << 10},
    {"moe_intermediate_size", INT, AT(moe_ffn), 0, 1 << 22},
    {"rms_norm_eps", REAL, AT(rms_eps), 1e-12, 1},
    {"attn_logit_softcapping", REAL, AT(attn_softcap), 0, 1e6},
    {"final_logit_softcapping", REAL, AT(final_softcap), 0, 1e6},
    {"tie_word_embeddings", BOOL, AT(tie_embeddings), 0, 1},
    {"norm_topk_prob", BOOL, AT(norm_topk_prob), 0, 1},
    {"nibble_norm_has_one|norm_has_one", BOOL, AT(norm_has_one), 0, 1},
    {"sliding_window", INT, AT(window), 0, 1 << 30},
};

static void put(nb_config *c, const field *f, double v)
{
    char *p = (char *)c + f->off;
    if (f->kind == INT) {
        int32_t i = (int32_t)v;
        memcpy(p, &i, sizeof i);
    } else if (f->kind == REAL) {
        memcpy(p, &v, sizeof v);
    } else {
        bool b = v != 0;
        memcpy(p, &b, sizeof b);
    }
}

static nb_status read_field(nb_config *c, const field *f, nb_error *err)
{
    double v = 0;
    const nb_json *j = nb_config_field(c, f->keys);
    char must[80];
    if (!j) {
        if (row_default(c, f->keys, &v)) put(c, f, v);
        return NB_OK;
    }
    if (f->kind == BOOL) {
        bool b;
        if (!nb_json_bool(j, &b)) return bad_field(err, f->keys, j, "true or false");
        put(c, f, b);
        return NB_OK;
    }
    int64_t i = 0;
    bool fits = f->kind == INT ? nb_json_i64(j, &i) : nb_json_f64(j, &v);
    if (f->kind == INT) v = (double)i;
    nb_buf b = {.limit = sizeof must};
    nb_buf_printf(&b, "%s from %g to %.10g", f->kind == INT ? "a whole number" : "a number", f->lo, f->hi);
    nb_text_clean(must, sizeof must, b.p ? b.p : "", b.p ? b.n : 0);
    nb_buf_free(&b);
    if (!fits || !(v >= f->lo && v <= f->hi)) return bad_field(err, f->keys, j, must);
    put(c, f, v);
    return NB_OK;
}

static nb_status check_required(const nb_config *c, nb_error *err)
{
    const char *p = c->arch->required;
    while (p) {
        size_t n = strcspn(p, "|");
        nb_str key = {p, n};
        const nb_json *v = nb_json_get_str(c->text, key);
        if (!nb_json_present(v)) v = nb_json_get_str(c->root, key);
        if (!nb_json_present(v))
            return nb_fail(err, NB_E_INVALID, "config.json: field %.*s is missing", NB_FMT_STR(key));
        p = p[n] ? p + n + 1 : NULL;
    }
    return NB_OK;
}

/* ---- end tokens ---- */

static nb_status add_eos(nb_config *c, const nb_json *v, const char *file, nb_error *err)
{
    size_t n = nb_json_is(v, NB_JSON_ARRAY) ? v->count : 1;
    if (!nb_json_present(v)) return NB_OK;
    for (size_t i = 0; i < n; i++) {
        int64_t id = -1;
        bool known = false;
        if (!nb_json_i64(nb_json_is(v, NB_JSON_ARRAY) ? nb_json_at(v, i) : v, &id) || id < 0 || id > INT32_MAX)
            return nb_fail(err, NB_E_INVALID, "%s: field eos_token_id is not a token id or a list of them", file);
        for (int32_t k = 0; k < c->n_eos; k++) known |= c->eos[k] == (int32_t)id;
        if (known) continue;
        if (c->n_eos == NB_MAX_EOS)
            return nb_fail(err, NB_E_INVALID, "%s: field eos_token_id names more than %d end tokens", file, NB_MAX_EOS);
        c->eos[c->n_eos++] = (int32_t)id;
    }
    return NB_OK;
}

static nb_status read_special_ids(nb_config *c, const nb_json *generation, nb_error *err)
{
    nb_status s = add_eos(c, nb_json_get(c->text, "eos_token_id"), "config.json", err);
    if (s == NB_OK && c->root != c->text) s = add_eos(c, nb_json_get(c->root, "eos_token_id"), "config.json", err);
    if (s == NB_OK) s = add_eos(c, nb_json_get(generation, "eos_token_id"), "generation_config.json", err);
    int64_t bos = -1;
    const nb_json *v = nb_json_get(generation, "bos_token_id");
    if (!nb_json_present(v)) v = nb_config_field(c, "bos_token_id");
    c->bos = nb_json_i64(v, &bos) && bos >= 0 && bos <= INT32_MAX ? (int32_t)bos : -1;
    return s;
}

/* ---- rope ---- */

static void rope_number(const nb_json *obj, const char *key, double *out)
{
    double v;
    if (nb_json_present(nb_json_get(obj, key)) && nb_json_f64(nb_json_get(obj, key), &v)) *out = v;
}

static nb_status rope_list(const nb_json *v, const double **out, int32_t *n, nb_arena *a, nb_error *err)
{
    if (!nb_json_is(v, NB_JSON_ARRAY) || v->count == 0 || v->count > 1 << 14) return NB_OK;
    double *list = NB_NEW_N(a, double, v->count);
    if (!list) return nb_fail(err, NB_E_NO_MEMORY, "config.json: out of memory");
    for (size_t i = 0; i < v->count; i++)
        if (!nb_json_f64(nb_json_at(v, i), &list[i]))
            return nb_fail(err, NB_E_INVALID, "config.json: rope factor list holds a value that is no number");
    if (*n == 0 || (int32_t)v->count < *n) *n = (int32_t)v->count;
    *out = list;
    return NB_OK;
}

/* The object that speaks for layers of this type: rope_parameters[type], rope_parameters, rope_scaling. */
static const nb_json *rope_object(const nb_config *c, const char *layer_type)
{
    const nb_json *all = nb_config_field(c, "rope_parameters");
    const nb_json *one = nb_json_get(all, layer_type);
    if (nb_json_is(one, NB_JSON_OBJECT)) return one;
    if (nb_json_is(all, NB_JSON_OBJECT)) return all;
    const nb_json *old = nb_config_field(c, "rope_scaling");
    return nb_json_is(old, NB_JSON_OBJECT) ? old : NULL;
}

static nb_status read_rope(nb_config *c, nb_rope_config *r, const nb_json *obj, double theta, nb_arena *a,
                           nb_error *err)
{
    nb_str type = NB_LIT("default");
    *r = (nb_rope_config){.theta = theta,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4,
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .partial = 1,
                          .truncate = true};
    r->max_position = c->max_context;
    r->original_max = c->max_context;
    nb_config_number(c, "partial_rotary_factor", &r->partial);
    nb_config_number(c, "original_max_position_embeddings", &r->original_max);
    if (obj) {
        if (!nb_json_str(nb_json_get(obj, "rope_type"), &type)) nb_json_str(nb_json_get(obj, "type"), &type);
        rope_number(obj, "rope_theta", &r->theta);
        rope_number(obj, "partial_rotary_factor", &r->partial);
        rope_number(obj, "factor", &r->factor);
        rope_number(obj, "low_freq_factor", &r->low_freq_factor);
        rope_number(obj, "high_freq_factor", &r->high_freq_factor);
        rope_number(obj, "original_max_position_embeddings", &r->original_max);
        rope_number(obj, "beta_fast", &r->beta_fast);
        rope_number(obj, "beta_slow", &r->beta_slow);
        rope_number(obj, "attention_factor", &r->attention_factor);
        rope_number(obj, "mscale", &r->mscale);
        rope_number(obj, "mscale_all_dim", &r->mscale_all_dim);
        if (nb_json_is(nb_json_get(obj, "truncate"), NB_JSON_FALSE)) r->truncate = false;
        nb_status s = rope_list(nb_json_get(obj, "short_factor"), &r->short_factor, &r->n_factor, a, err);
        if (s == NB_OK) s = rope_list(nb_json_get(obj, "long_factor"), &r->long_factor, &r->n_factor, a, err);
        if (s != NB_OK) return s;
    }
    if (nb_str_is(type, "mrope")) type = NB_LIT("default"); /* with text all three axes are equal */
    if (nb_str_is(type, "su")) type = NB_LIT("longrope");
    if (!nb_rope_type_known(type)) {
        if (nb_arch_runs(c->arch))
            return nb_fail(err, NB_E_UNSUPPORTED, "config.json: rope type '%.*s' is not supported", NB_FMT_STR(type));
        type = NB_LIT("default");
    }
    memcpy(r->type, type.p, type.n);
    return NB_OK;
}

static nb_status read_ropes(nb_config *c, nb_arena *a, nb_error *err)
{
    double theta = 10000, local = 0;
    nb_config_number(c, "rope_theta", &theta);
    nb_status s = read_rope(c, &c->rope, rope_object(c, "full_attention"), theta, a, err);
    if (s != NB_OK) return s;
    c->rope_local = c->rope;
    const nb_json *own = nb_json_get(nb_config_field(c, "rope_parameters"), "sliding_attention");
    if (nb_json_is(own, NB_JSON_OBJECT)) return read_rope(c, &c->rope_local, own, theta, a, err);
    if (nb_config_number(c, "rope_local_base_freq", &local)) return read_rope(c, &c->rope_local, NULL, local, a, err);
    return NB_OK;
}

/* ---- layers ---- */

static bool in_list(const nb_json *list, int32_t layer)
{
    int64_t v;
    for (size_t i = 0; nb_json_is(list, NB_JSON_ARRAY) && i < list->count; i++)
        if (nb_json_i64(nb_json_at(list, i), &v) && v == layer) return true;
    return false;
}

static bool layer_is_sparse(const nb_config *c, int32_t layer)
{
    nb_str mlp;
    double first, step = 1;
    if (c->experts == 0) return false;
    if (nb_json_str(nb_json_at(nb_config_field(c, "mlp_layer_types"), (size_t)layer), &mlp))
        return nb_str_is(mlp, "sparse");
    if (nb_config_number(c, "first_k_dense_replace", &first) && layer < first) return false;
    if (nb_config_number(c, "decoder_sparse_step", &step) && step >= 1 &&
        (layer + 1) % (int32_t)fmin(step, 1 << 20) != 0)
        return false;
    return !in_list(nb_config_field(c, "mlp_only_layers"), layer);
}

static bool layer_slides(const nb_config *c, int32_t layer)
{
    bool use = false;
    double from = 0, pattern = 6;
    if (c->window == 0) return false;
    nb_str type = nb_config_layer_type(c, layer);
    switch (c->arch->window) {
    case NB_WINDOW_NONE: return false;
    case NB_WINDOW_QWEN:
        if (!nb_json_bool(nb_config_field(c, "use_sliding_window"), &use) || !use) return false;
        if (type.n) return nb_str_is(type, "sliding_attention");
        return nb_config_number(c, "max_window_layers", &from) && layer >= from;
    case NB_WINDOW_PATTERN:
        if (type.n) return nb_str_is(type, "sliding_attention");
        nb_config_number(c, "sliding_window_pattern|_sliding_window_pattern", &pattern);
        return !(pattern >= 1 && (layer + 1) % (int32_t)fmin(pattern, 1 << 20) == 0);
    case NB_WINDOW_ALL: return type.n == 0 || nb_str_is(type, "sliding_attention");
    default: return nb_str_is(type, "sliding_attention");
    }
}

static nb_status read_layers(nb_config *c, nb_arena *a, nb_error *err)
{
    const nb_json *types = nb_config_field(c, "layer_types");
    if (types && (!nb_json_is(types, NB_JSON_ARRAY) || types->count < (uint32_t)c->layers))
        return nb_fail(err, NB_E_INVALID, "config.json: field layer_types has %u entries for %d layers",
                       nb_json_is(types, NB_JSON_ARRAY) ? types->count : 0, (int)c->layers);
    c->layer_slides = NB_NEW_N(a, uint8_t, (size_t)c->layers);
    c->layer_sparse = NB_NEW_N(a, uint8_t, (size_t)c->layers);
    if (!c->layer_slides || !c->layer_sparse) return nb_fail(err, NB_E_NO_MEMORY, "config.json: out of memory");
    const nb_json *rotated = nb_config_field(c, "no_rope_layers"); /* 1: rotated */
    if (nb_json_is(rotated, NB_JSON_ARRAY)) {
        c->layer_no_rope = NB_NEW_N(a, uint8_t, (size_t)c->layers);
        if (!c->layer_no_rope) return nb_fail(err, NB_E_NO_MEMORY, "config.json: out of memory");
    }
    for (int32_t i = 0; i < c->layers; i++) {
        int64_t on = 1;
        nb_str type = nb_config_layer_type(c, i);
        if (nb_arch_runs(c->arch) && type.n && !nb_str_is(type, "full_attention") &&
            !nb_str_is(type, "sliding_attention"))
            return nb_fail(err, NB_E_UNSUPPORTED, "config.json: layer type '%.*s' is not supported in architecture %s",
                           NB_FMT_STR(type), c->arch->name);
        c->layer_slides[i] = layer_slides(c, i);
        c->layer_sparse[i] = layer_is_sparse(c, i);
        if (c->layer_no_rope && nb_json_i64(nb_json_at(rotated, (size_t)i), &on)) c->layer_no_rope[i] = on == 0;
    }
    return NB_OK;
}

/* ---- the whole ---- */

static nb_status find_arch(nb_config *c, nb_error *err)
{
    nb_str name = {"", 0};
    const nb_json *text = nb_json_get(c->root, "text_config");
    if (!nb_json_str(nb_json_at(nb_json_get(c->root, "architectures"), 0), &name) &&
        !nb_json_str(nb_json_get(c->root, "model_type"), &name) && !nb_json_str(nb_json_get(text, "model_type"), &name))
        return nb_fail(err, NB_E_INVALID, "config.json: neither architectures nor model_type names an architecture");
    c->arch = nb_arch_find(name);
    if (!c->arch)
        return nb_fail(err, NB_E_UNSUPPORTED, "architecture '%.*s' is not supported", (int)(name.n < 80 ? name.n : 80),
                       name.p);
    return NB_OK;
}

/* What the forward divides and multiplies by, for architectures that run. */
static nb_status check_shapes(const nb_config *c, nb_error *err)
{
    if (!nb_arch_runs(c->arch)) return NB_OK;
    if (c->heads % c->kv_heads)
        return nb_fail(err, NB_E_INVALID,
                       "config.json: field num_key_value_heads is %d, must divide num_attention_heads %d",
                       (int)c->kv_heads, (int)c->heads);
    if (c->head_dim < 2 || c->head_dim > 1024)
        return nb_fail(err, NB_E_INVALID, "config.json: field head_dim is %d, must be 2 to 1024", (int)c->head_dim);
    if ((int64_t)c->heads * c->head_dim > 1 << 22)
        return nb_fail(err, NB_E_INVALID, "config.json: %d heads of %d are too wide", (int)c->heads, (int)c->head_dim);
    if (c->experts && (c->experts_used < 1 || c->experts_used > c->experts))
        return nb_fail(err, NB_E_INVALID, "config.json: field num_experts_per_tok is %d of %d experts",
                       (int)c->experts_used, (int)c->experts);
    if (c->experts && c->moe_ffn < 1)
        return nb_fail(err, NB_E_INVALID, "config.json: field moe_intermediate_size is missing");
    for (int32_t i = 0; i < c->layers; i++)
        if (!c->layer_sparse[i] && c->ffn < 1)
            return nb_fail(err, NB_E_INVALID, "config.json: field intermediate_size is missing");
    return NB_OK;
}

nb_status nb_config_read(nb_config *c, const nb_json *root, const nb_json *generation, nb_arena *a, nb_error *err)
{
    *c = (nb_config){.root = root, .text = root, .bos = -1, .rms_eps = 1e-6, .max_context = 2048};
    if (!nb_json_is(root, NB_JSON_OBJECT)) return nb_fail(err, NB_E_INVALID, "config.json: not an object");
    nb_status s = find_arch(c, err);
    if (s != NB_OK) return s;
    const nb_json *text = nb_json_get(root, "text_config");
    if (nb_json_is(text, NB_JSON_OBJECT)) c->text = text;
    if ((s = check_required(c, err)) != NB_OK) return s;
    for (size_t i = 0; i < NB_COUNT(fields); i++)
        if ((s = read_field(c, &fields[i], err)) != NB_OK) return s;
    if (!c->arch->final_softcap) c->final_softcap = 0;
    if (!c->arch->attention_softcap) c->attn_softcap = 0;
    c->tie_known = nb_config_field(c, "tie_word_embeddings") != NULL;
    if (c->arch->resolve && (s = c->arch->resolve(c, err)) != NB_OK) return s;
    if (c->kv_heads == 0) c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->heads > 0) c->head_dim = c->hidden / c->heads;
    if (c->act[0] == 0) {
        nb_str act = nb_str_of(c->arch->act ? c->arch->act : "silu");
        nb_json_str(nb_config_field(c, "hidden_activation|hidden_act"), &act);
        nb_text_clean(c->act, sizeof c->act, act.p, act.n);
    }
    nb_act known;
    if (c->arch->forward && !nb_act_parse(&known, c->act))
        return nb_fail(err, NB_E_UNSUPPORTED, "config.json: activation '%s' (hidden_act) is not supported", c->act);
    if ((s = read_special_ids(c, generation, err)) != NB_OK) return s;
    if ((s = read_ropes(c, a, err)) != NB_OK) return s;
    if ((s = read_layers(c, a, err)) != NB_OK) return s;
    return check_shapes(c, err);
}
