/* A row's tensor patterns become the list of tensors that a model with this config has. */
#include "model/arch_row.h"

#define MAX_TENSORS (1 << 19)

typedef struct expander {
    const nb_config *c;
    nb_arena *a;
    nb_tensor_spec *out;
    size_t n, cap;
    nb_error *err;
} expander;

static nb_status no_memory(nb_error *err) { return nb_fail(err, NB_E_NO_MEMORY, "tensor list: out of memory"); }

/* ---- shape expressions ---- */

static const struct {
    const char *word;
    uint16_t off;
} own_fields[] = {
    {"hidden", offsetof(nb_config, hidden)},     {"heads", offsetof(nb_config, heads)},
    {"kv_heads", offsetof(nb_config, kv_heads)}, {"head_dim", offsetof(nb_config, head_dim)},
    {"ffn", offsetof(nb_config, ffn)},           {"vocab", offsetof(nb_config, vocab)},
    {"layers", offsetof(nb_config, layers)},     {"experts", offsetof(nb_config, experts)},
    {"moe_ffn", offsetof(nb_config, moe_ffn)},
};

/* A field that newer configs give per layer: per_layer_config.<layer>.<key>. */
static const nb_json *layer_override(const nb_config *c, int32_t layer, nb_str key)
{
    char digits[12];
    int n = 0;
    uint32_t v = (uint32_t)layer;
    do digits[sizeof digits - 1 - (size_t)n++] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    const nb_json *one =
        nb_json_get_str(nb_config_field(c, "per_layer_config"), (nb_str){digits + sizeof digits - n, (size_t)n});
    const nb_json *f = nb_json_get_str(one, key);
    return nb_json_present(f) ? f : NULL;
}

/* Widths that some architectures vary from layer to layer. */
static bool layer_word(const nb_config *c, nb_str w, int32_t layer, int64_t *out)
{
    bool full = layer >= 0 && !nb_str_is(nb_config_layer_type(c, layer), "sliding_attention"), on = false;
    double v = 0;
    int64_t i;
    if (nb_str_is(w, "layer_heads")) {
        *out = nb_json_i64(nb_json_at(nb_config_field(c, "num_attention_heads_per_layer"), (size_t)layer), &i)
                   ? i
                   : c->heads;
    } else if (nb_str_is(w, "layer_head_dim")) {
        if (nb_json_i64(layer_override(c, layer, NB_LIT("head_dim")), &i))
            *out = i;
        else
            *out =
                full && nb_config_number(c, "global_head_dim", &v) && v >= 1 && v < 1 << 20 ? (int64_t)v : c->head_dim;
    } else if (nb_str_is(w, "layer_kv_heads")) {
        bool same = nb_json_bool(nb_config_field(c, "attention_k_eq_v"), &on) && on;
        if (nb_json_i64(layer_override(c, layer, NB_LIT("num_key_value_heads")), &i))
            *out = i;
        else
            *out = full && same && nb_config_number(c, "num_global_key_value_heads", &v) && v >= 1 && v < 1 << 20
                       ? (int64_t)v
                       : c->kv_heads;
    } else if (nb_str_is(w, "layer_ffn")) {
        bool wide = nb_json_bool(nb_config_field(c, "use_double_wide_mlp"), &on) && on &&
                    nb_config_number(c, "num_kv_shared_layers", &v) && layer >= c->layers - v;
        *out = wide ? 2 * (int64_t)c->ffn : c->ffn;
    } else {
        return false;
    }
    return true;
}

static bool word_value(const expander *e, nb_str w, int32_t layer, int64_t *out)
{
    char key[64];
    if (w.n == 0 || w.n >= sizeof key) return false;
    if (layer_word(e->c, w, layer, out)) return *out > 0 && *out <= INT32_MAX;
    if (w.p[0] >= '0' && w.p[0] <= '9') {
        for (*out = 0; w.n && *out < 1 << 20; w.p++, w.n--) *out = *out * 10 + (w.p[0] - '0');
        return true;
    }
    for (size_t i = 0; i < NB_COUNT(own_fields); i++)
        if (nb_str_is(w, own_fields[i].word)) {
            int32_t v;
            memcpy(&v, (const char *)e->c + own_fields[i].off, sizeof v);
            *out = v;
            return v > 0;
        }
    memcpy(key, w.p, w.n);
    key[w.n] = 0;
    const nb_json *f = layer >= 0 ? layer_override(e->c, layer, w) : NULL;
    if (!f) f = nb_config_field(e->c, key);
    if (nb_json_is(f, NB_JSON_ARRAY) && layer >= 0) f = nb_json_at(f, (size_t)layer);
    double d;
    if (!f && nb_config_number(e->c, key, &d) && d >= 0 && d < 1 << 30) {
        *out = (int64_t)d;
        return true;
    }
    return nb_json_i64(f, out) && *out > 0 && *out <= INT32_MAX;
}

/* A sum of products up to ',' or ';' or the end; *p moves behind it. false: a word has no value, or the size is out of
 * range. */
static bool expression(const expander *e, const char **p, int32_t layer, int64_t *out, nb_str *bad)
{
    int64_t sum = 0, product = 1;
    for (;;) {
        int64_t v;
        *p += strspn(*p, " ");
        nb_str w = {*p, strcspn(*p, "+*,; ")};
        *bad = w;
        if (nb_str_is(w, "?")) {
            *p += 1 + (w.p[1] != 0);
            *out = -1;
            return true;
        }
        if (!word_value(e, w, layer, &v) || __builtin_mul_overflow(product, v, &product)) return false;
        *p += w.n;
        *p += strspn(*p, " ");
        if (**p == '*') {
            ++*p;
            continue;
        }
        if (__builtin_add_overflow(sum, product, &sum) || sum > (int64_t)1 << 40) return false;
        product = 1;
        if (**p == '+') {
            ++*p;
            continue;
        }
        *out = sum;
        if (**p) ++*p;
        return true;
    }
}

static nb_status shape_of(const expander *e, const nb_pattern *t, int32_t layer, nb_tensor_spec *spec)
{
    const char *p = t->shape;
    nb_str bad = {"", 0};
    int64_t v[6];
    int n = 0;
    while (*p && n < 6) {
        if (!expression(e, &p, layer, &v[n], &bad))
            return nb_fail(e->err, NB_E_INVALID,
                           "config.json: field %.*s, which the shape of %s needs, is missing or out of range",
                           NB_FMT_STR(bad), t->name);
        n++;
    }
    if (t->role == NB_ROLE_BANK) {
        spec->experts = e->c->experts;
        for (int i = 0; i < 3 && 2 * i + 1 < n; i++) {
            spec->proj[i].n = v[2 * i];
            spec->proj[i].k = v[2 * i + 1];
        }
        return NB_OK;
    }
    spec->rank = (uint8_t)(n < 3 ? n : 3);
    for (int i = 0; i < spec->rank; i++) spec->dim[i] = v[i];
    return NB_OK;
}

/* ---- conditions ---- */

static bool field_on(const nb_config *c, const char *key)
{
    double v;
    bool b;
    const nb_json *f = nb_config_field(c, key);
    if (nb_json_bool(f, &b)) return b;
    return nb_config_number(c, key, &v) && v != 0;
}

/* keys: "list:count", the count being for a second '#'. */
static bool listed(const nb_config *c, const char *keys, int32_t layer)
{
    int64_t v;
    char key[64];
    nb_text_clean(key, sizeof key, keys, strcspn(keys, ":"));
    const nb_json *list = nb_config_field(c, key);
    for (size_t i = 0; nb_json_is(list, NB_JSON_ARRAY) && i < list->count; i++)
        if (nb_json_i64(nb_json_at(list, i), &v) && v == layer + 1) return true;
    return false;
}

static bool applies(const nb_config *c, const nb_pattern *t, int32_t layer)
{
    switch (t->when) {
    case NB_IF_SPARSE: return layer >= 0 && c->layer_sparse[layer];
    case NB_IF_DENSE: return layer >= 0 && !c->layer_sparse[layer];
    case NB_IF_UNTIED: return !c->tie_embeddings;
    case NB_IF_SLIDING: return layer >= 0 && nb_str_is(nb_config_layer_type(c, layer), "sliding_attention");
    case NB_IF_FULL: return layer >= 0 && !nb_str_is(nb_config_layer_type(c, layer), "sliding_attention");
    case NB_IF_LINEAR: return layer >= 0 && nb_str_is(nb_config_layer_type(c, layer), "linear_attention");
    case NB_IF_ATTENTION: return layer >= 0 && !nb_str_is(nb_config_layer_type(c, layer), "linear_attention");
    case NB_IF_FIELD: return field_on(c, t->field);
    case NB_IF_MEMBER: return listed(c, t->field, layer);
    default: return true;
    }
}

/* ---- expansion ---- */

/* The name with its first '#' replaced by a number. */
static nb_str numbered(nb_arena *a, nb_str pattern, int32_t number)
{
    const char *hash = memchr(pattern.p, '#', pattern.n);
    size_t head = (size_t)(hash - pattern.p);
    char *p =
        nb_arena_printf(a, "%.*s%d%.*s", (int)head, pattern.p, (int)number, (int)(pattern.n - head - 1), hash + 1);
    return nb_str_of(p);
}

static nb_status emit(expander *e, const nb_pattern *t, nb_str name, int32_t layer)
{
    if (!name.p) return no_memory(e->err);
    if (e->n == MAX_TENSORS)
        return nb_fail(e->err, NB_E_INVALID, "config.json: describes more than %d tensors", MAX_TENSORS);
    if (e->n == e->cap) {
        size_t cap = e->cap ? 2 * e->cap : 512;
        nb_tensor_spec *grown = NB_NEW_N(e->a, nb_tensor_spec, cap);
        if (!grown) return no_memory(e->err);
        if (e->n) memcpy(grown, e->out, e->n * sizeof *grown);
        e->out = grown;
        e->cap = cap;
    }
    nb_tensor_spec *spec = &e->out[e->n++];
    *spec = (nb_tensor_spec){
        .name = name, .role = t->role, .optional = t->when == NB_OPTIONAL && !(t->field && field_on(e->c, t->field))};
    if (t->role == NB_ROLE_TABLE && e->c->tie_embeddings && nb_ends_any(name, "embed_tokens.weight"))
        spec->role = NB_ROLE_LINEAR;
    return shape_of(e, t, layer, spec);
}

/* A second '#' runs over 0 .. field - 1. */
static nb_status emit_all(expander *e, const nb_pattern *t, nb_str name, int32_t layer)
{
    if (!name.p) return no_memory(e->err);
    if (!memchr(name.p, '#', name.n)) return emit(e, t, name, layer);
    double count = 0;
    const char *colon = t->field ? strchr(t->field, ':') : NULL, *key = colon ? colon + 1 : t->field;
    if (!key || !nb_config_number(e->c, key, &count) || count < 1 || count > 65536)
        return nb_fail(e->err, NB_E_INVALID, "config.json: field %s, which %s needs, is missing or out of range",
                       key ? key : "?", t->name);
    nb_status s = NB_OK;
    for (int32_t i = 0; s == NB_OK && i < (int32_t)count; i++) s = emit(e, t, numbered(e->a, name, i), layer);
    return s;
}

static bool overridden(const nb_pattern *own, const char *name)
{
    for (; own && own->name; own++)
        if (strcmp(own->name, name) == 0) return true;
    return false;
}

static nb_status expand(expander *e, const nb_pattern *list, const nb_pattern *own)
{
    nb_status s = NB_OK;
    for (const nb_pattern *t = list; s == NB_OK && t && t->name; t++) {
        if (overridden(own, t->name)) continue;
        const char *hash = strchr(t->name, '#');
        nb_str name = nb_str_of(t->name);
        bool per_layer = hash && strstr(t->name, "layers.#");
        if (!per_layer) {
            if (applies(e->c, t, -1)) s = emit_all(e, t, name, -1);
            continue;
        }
        for (int32_t i = 0; s == NB_OK && i < e->c->layers; i++)
            if (applies(e->c, t, i)) s = emit_all(e, t, numbered(e->a, name, i), i);
    }
    return s;
}

nb_status nb_arch_tensors(const nb_config *c, nb_arena *a, nb_tensor_spec **out, size_t *n, nb_error *err)
{
    expander e = {.c = c, .a = a, .err = err};
    *out = NULL;
    *n = 0;
    nb_status s = expand(&e, c->arch->common, c->arch->tensors);
    if (s == NB_OK) s = expand(&e, c->arch->tensors, NULL);
    if (s != NB_OK) return s;
    *out = e.out;
    *n = e.n;
    return NB_OK;
}
