/* create/configs: the layers that are not weights, and the model config JSON of the manifest. specs/create.md 1.4, 6.3.
 * Nothing here depends on time, threads or paths. */
#include "create/plan.h"
#include "model/model.h"
#include "text/chat.h"

#include <math.h>
#include <stdio.h>

/* ---- parser and renderer names ---- */

typedef struct family {
    const char *part, *parser, *renderer;
} family;
static const family families[] = {
    {"museglimmer", "glimmer", "glimmer"},
    {"muse_glimmer", "glimmer", "glimmer"},
    {"laguna", "laguna", "laguna"},
    {"cohere2moe", "cohere", "cohere"},
    {"cohere2_moe", "cohere", "cohere"},
    {"glm4", "glm-4.7", "glm-4.7"},
    {"glm-4", "glm-4.7", "glm-4.7"},
    {"deepseek", "deepseek3", "deepseek3"},
    {"gemma4", "gemma4", "gemma4"},
    {"ornith", "ornith", "ornith"},
    {"qwen4exp", "qwen3.5", "qwen3.8"},
    {"qwen4_exp", "qwen3.5", "qwen3.8"},
    {"qwen3_5", "qwen3.5", "qwen3.5"},
    {"qwen35", "qwen3.5", "qwen3.5"},
    {"qwen3next", "qwen3.5", "qwen3.5"},
    {"qwen3", "qwen3", "qwen3-coder"},
    {"nemotronh", "nemotron-3-nano", "nemotron-3-nano"},
    {"nemotron_h", "nemotron-3-nano", "nemotron-3-nano"},
};

static nb_str lower(nb_job *j, nb_str s)
{
    char *p = nb_arena_dup(j->arena, s.p, s.n);
    for (size_t i = 0; p && i < s.n; i++)
        if (p[i] >= 'A' && p[i] <= 'Z') p[i] = (char)(p[i] + 32);
    return (nb_str){p, p ? s.n : 0};
}

static const family *find_family(nb_job *j, nb_str id)
{
    nb_str l = lower(j, id);
    for (size_t i = 0; i < NB_COUNT(families); i++)
        if (nb_str_has(l, families[i].part)) return &families[i];
    return NULL;
}

/* The first of architectures[*], model_type and llm_config.model_type that names a family; NULL: none. */
static const family *identify(nb_job *j)
{
    static const char *const paths[] = {"model_type", "llm_config.model_type", "text_config.model_type"};
    const nb_json *ids = nb_json_get(j->src.config.root, "architectures");
    const family *f = find_family(j, j->r->architecture);
    nb_str id;
    for (size_t i = 0; !f && nb_json_is(ids, NB_JSON_ARRAY) && i < ids->count; i++)
        if (nb_json_str(nb_json_at(ids, i), &id)) f = find_family(j, id);
    for (size_t i = 0; !f && i < NB_COUNT(paths); i++)
        if (nb_json_str(nb_json_path(j->src.config.root, paths[i]), &id)) f = find_family(j, id);
    return f;
}

/* "chat_template" of a config file: a string, or of a list the one that is named "default", else the first. */
static nb_str template_in(nb_job *j, const nb_src_config *c)
{
    nb_json_doc d = {0};
    nb_str out = {"", 0}, s, name;
    if (nb_json_parse(&d, c->bytes.p, c->bytes.n, "template", NULL, NULL) == NB_OK) {
        const nb_json *t = nb_json_get(d.root, "chat_template"), *one = nb_json_at(t, 0);
        for (size_t i = 0; nb_json_is(t, NB_JSON_ARRAY) && i < t->count; i++)
            if (nb_json_str(nb_json_get(&t->items[i], "name"), &name) && nb_str_is(name, "default")) one = &t->items[i];
        if (nb_json_is(t, NB_JSON_ARRAY)) t = nb_json_get(one, "template");
        if (nb_json_str(t, &s)) out = nb_arena_str(j->arena, s);
    }
    nb_json_free(&d);
    return out;
}

/* Is a template for requests with tools among several? */
static bool has_tool_template(nb_job *j)
{
    bool has = false;
    nb_str name;
    for (size_t i = 0; i < j->src.n_configs && !j->o->template_text && !has; i++) {
        const nb_src_config *c = &j->src.configs[i];
        nb_json_doc d = {0};
        has = nb_str_is(c->name, NB_TEXT_ADDITIONAL "tool_use.jinja");
        if (!nb_str_is(c->name, "tokenizer_config.json") && !nb_str_is(c->name, "chat_template.json")) continue;
        if (nb_json_parse(&d, c->bytes.p, c->bytes.n, "template", NULL, NULL) != NB_OK) continue;
        const nb_json *t = nb_json_get(d.root, "chat_template");
        for (size_t k = 0; nb_json_is(t, NB_JSON_ARRAY) && k < t->count; k++)
            has = has || (nb_json_str(nb_json_get(&t->items[k], "name"), &name) && nb_str_is(name, "tool_use"));
        nb_json_free(&d);
    }
    return has;
}

/* What the model's family is told from: the user's template, tokenizer_config.json's, chat_template.jinja,
 * chat_template.json's; empty: none. (Chats take the files first: docs/chat.md.) */
static nb_str chat_template(nb_job *j)
{
    static const char *const files[] = {"tokenizer_config.json", "chat_template.jinja", "chat_template.json"};
    nb_str out = nb_str_of(j->o->template_text ? j->o->template_text : "");
    for (size_t f = 0; f < NB_COUNT(files) && !out.n; f++)
        for (size_t i = 0; i < j->src.n_configs && !out.n; i++) {
            const nb_src_config *c = &j->src.configs[i];
            if (nb_str_is(c->name, files[f])) out = f == 1 ? c->bytes : template_in(j, c);
        }
    return out;
}

/* ---- what the user says ---- */

/* A semantic version, with or without a "v". */
static bool is_version(const char *s)
{
    static const char rest[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-+";
    if (*s == 'v') s++;
    for (int part = 0; part < 3; part++) {
        size_t n = strspn(s, "0123456789");
        if (n == 0 || n > 9 || (n > 1 && *s == '0')) return false;
        s += n;
        if (part < 2 && *s++ != '.') return false;
    }
    return !*s || ((*s == '-' || *s == '+') && s[1] && !s[strspn(s, rest)]);
}

static const char *required_version(const nb_create_options *o)
{
    const char *v = o->min_version ? o->min_version : NB_VERSION;
    return *v == 'v' ? v + 1 : v;
}

/* A parser or renderer by one of the names that the table of families gives. */
static nb_status check_name(const char *what, const char *name, nb_error *err)
{
    static const char *const more[] = {"qwen3.8", "poolside-v1", "nemotron-3.5-nano"}; /* of certain templates */
    bool hit = false;
    for (size_t i = 0; i < NB_COUNT(families); i++)
        hit = hit || !strcmp(name, families[i].parser) || !strcmp(name, families[i].renderer);
    for (size_t i = 0; i < NB_COUNT(more); i++) hit = hit || !strcmp(name, more[i]);
    return hit ? NB_OK : nb_fail(err, NB_E_USAGE, "%s '%s' is not known", what, name);
}

/* A list of messages as a chat request holds them: what chats accept is the template's to say. */
static nb_status check_messages(const char *text, nb_error *err)
{
    nb_json_doc d = {0};
    nb_str role;
    nb_status st = nb_json_parse(&d, text, strlen(text), "messages", NULL, err);
    if (st != NB_OK) return st;
    if (!nb_json_is(d.root, NB_JSON_ARRAY) || !d.root->count)
        st = nb_fail(err, NB_E_USAGE, "the messages are no JSON list with entries");
    for (uint32_t i = 0; st == NB_OK && i < d.root->count; i++) {
        const nb_json *m = &d.root->items[i];
        if (!nb_json_str(nb_json_get(m, "role"), &role) || !nb_json_get(m, "content"))
            st = nb_fail(err, NB_E_USAGE, "messages: entry %u lacks 'role' or 'content'", i);
    }
    nb_json_free(&d);
    return st;
}

static nb_status check_system(const char *text, nb_error *err)
{
    size_t n = strlen(text), good = nb_utf8_valid_prefix(text, n);
    if (!n) return nb_fail(err, NB_E_USAGE, "the system prompt is empty");
    return good == n ? NB_OK : nb_fail(err, NB_E_USAGE, "the system prompt is not valid UTF-8 at byte %zu", good);
}

nb_status nb_check_users(const nb_job *j, nb_error *err)
{
    const nb_create_options *o = j->o;
    nb_template *t = NULL;
    nb_json_doc d = {0};
    nb_status st = NB_OK;
    if (o->min_version && !is_version(o->min_version))
        return nb_fail(err, NB_E_USAGE, "requires '%s' is not a semantic version (E_REQUIRES)", o->min_version);
    if (o->parser) st = check_name("parser", o->parser, err);
    if (st == NB_OK && o->renderer) st = check_name("renderer", o->renderer, err);
    if (st == NB_OK && o->template_text) st = nb_template_parse(&t, o->template_text, strlen(o->template_text), err);
    nb_template_free(t);
    if (st == NB_OK && o->system) st = check_system(o->system, err);
    if (st == NB_OK && o->messages) st = check_messages(o->messages, err);
    if (st != NB_OK) return st;
    if (o->extra_parameters)
        st = nb_json_parse(&d, o->extra_parameters, strlen(o->extra_parameters), "parameters", NULL, err);
    if (st == NB_OK && o->extra_parameters && d.root->type != NB_JSON_OBJECT)
        st = nb_fail(err, NB_E_USAGE, "the parameters are no JSON object");
    nb_json_free(&d);
    return st;
}

/* ---- the JSON ---- */

static void put_key(nb_buf *b, const char *key)
{
    if (b->n && b->p[b->n - 1] != '{' && b->p[b->n - 1] != '[') nb_buf_add_char(b, ',');
    nb_json_write_string(b, nb_str_of(key), 0);
    nb_buf_add_char(b, ':');
}

static void put_str(nb_buf *b, const char *key, nb_str v)
{
    put_key(b, key);
    nb_json_write_string(b, v, 0);
}

static void generation_defaults(nb_job *j, nb_buf *b)
{
    static const char *const keys[] = {"temperature",        "top_p",     "top_k",        "min_p",
                                       "repetition_penalty", "do_sample", "eos_token_id", "max_new_tokens"};
    put_key(b, "generation_defaults");
    nb_buf_add_char(b, '{');
    for (size_t i = 0; i < NB_COUNT(keys); i++) {
        const nb_json *v = nb_json_get(j->src.generation.root, keys[i]);
        if (!nb_json_present(v)) continue;
        put_key(b, keys[i]);
        nb_json_write(b, v, NB_JSON_COMPACT);
    }
    nb_buf_add_char(b, '}');
}

static bool present(nb_job *j, const char *key) { return nb_json_present(nb_json_get(j->src.config.root, key)); }

static void capabilities(nb_job *j, nb_buf *b, const family *f, nb_str tmpl)
{
    bool b_vision = false;
    nb_json_bool(nb_json_get(j->src.config.root, "has_vision"), &b_vision);
    put_key(b, "capabilities");
    if (nb_str_ends(j->r->architecture, "ForDecision")) {
        nb_buf_add_cstr(b, "[\"decision\"]");
        return;
    }
    nb_buf_add_cstr(b, "[\"completion\"");
    if (present(j, "vision_config") || b_vision) nb_buf_add_cstr(b, ",\"vision\"");
    if (present(j, "audio_config") || present(j, "sound_config")) nb_buf_add_cstr(b, ",\"audio\"");
    if (f || nb_str_has(tmpl, "tools") || has_tool_template(j)) nb_buf_add_cstr(b, ",\"tools\"");
    if (nb_str_has(tmpl, "think") || (f && !strncmp(f->part, "qwen3_5", 7)) || (f && !strncmp(f->part, "qwen4", 5)))
        nb_buf_add_cstr(b, ",\"thinking\"");
    nb_buf_add_char(b, ']');
}

static void histogram(nb_job *j, nb_buf *b)
{
    put_key(b, "histogram");
    nb_buf_add_char(b, '{');
    for (size_t i = 0; i < j->r->n_types; i++) {
        const nb_create_type_count *t = &j->r->types[i];
        put_key(b, t->type);
        nb_buf_printf(b, "{\"tensors\":%u,\"params\":%llu,\"bytes\":%llu}", t->tensors, (unsigned long long)t->params,
                      (unsigned long long)t->bytes);
    }
    nb_buf_add_char(b, '}');
}

static void x_import(nb_job *j, nb_buf *b)
{
    put_key(b, "x_import");
    nb_buf_add_char(b, '{');
    put_str(b, "version", NB_LIT(NB_VERSION));
    put_str(b, "request", j->r->request);
    put_str(b, "architecture", j->r->architecture);
    put_str(b, "source_kind", j->r->source_kind);
    put_str(b, "layout", nb_str_of(nb_layout_name(j->o->layout)));
    if (j->o->keep) put_str(b, "keep", nb_str_of(j->o->keep));
    if (j->o->types) put_str(b, "types", nb_str_of(j->o->types));
    if (j->o->keep_kv_scales) put_str(b, "kv_scales", NB_LIT("kept"));
    if (j->o->search) put_str(b, "quality", NB_LIT("search"));
    histogram(j, b);
    put_key(b, "sources");
    nb_buf_add_char(b, '[');
    for (size_t i = 0; i < j->src.n_files; i++) {
        const char *slash = strrchr(j->src.files[i].path, '/');
        nb_buf_add_cstr(b, i ? ",{" : "{");
        put_str(b, "name", nb_str_of(slash ? slash + 1 : j->src.files[i].path));
        nb_buf_printf(b, ",\"size\":%llu", (unsigned long long)j->src.files[i].size);
        if (j->src.files[i].sha256[0]) put_str(b, "sha256", nb_str_of(j->src.files[i].sha256));
        nb_buf_add_char(b, '}');
    }
    nb_buf_add_char(b, ']');
    put_key(b, "warnings");
    nb_buf_add_char(b, '[');
    for (size_t i = 0; i < j->warnings.n; i++) {
        nb_buf t = {0};
        if (j->warnings.v[i].name.n) nb_buf_printf(&t, "%.*s: ", NB_FMT_STR(j->warnings.v[i].name));
        nb_buf_add_str(&t, j->warnings.v[i].text);
        if (j->warnings.v[i].more) nb_buf_printf(&t, " (and %zu more like this)", j->warnings.v[i].more);
        if (i) nb_buf_add_char(b, ',');
        nb_json_write_string(b, nb_buf_str(&t), 0);
        nb_buf_free(&t);
    }
    nb_buf_add_cstr(b, "]}");
}

/* file_type: what was asked for, or the one type that all quantised weights share, or "mixed". */
static nb_str file_type(nb_job *j)
{
    if (j->o->request == NB_REQUEST_TYPE) return j->r->request;
    nb_str one = {"", 0};
    for (size_t i = 0; i < j->tensors.n; i++) {
        const nb_create_tensor *t = &j->tensors.v[i];
        if (!strcmp(t->layout, "plain")) continue;
        nb_str type = nb_str_of(t->type);
        if (one.n && !nb_str_eq(one, type)) return NB_LIT("mixed");
        one = type;
    }
    return one;
}

static void put_i64(nb_buf *b, const char *key, int64_t v)
{
    put_key(b, key);
    nb_buf_printf(b, "%lld", (long long)v);
}

static void draft_facts(const nb_draft_facts *f, nb_buf *b)
{
    put_str(b, "kind", nb_str_of(f->kind));
    if (f->layers) put_i64(b, "layers", f->layers);
    if (f->block_size) put_i64(b, "block_size", f->block_size);
    if (f->has_mask) put_i64(b, "mask_token_id", f->mask);
    if (!f->n_taps) return;
    put_key(b, "target_layer_ids");
    for (size_t i = 0; i < f->n_taps; i++) nb_buf_printf(b, "%s%lld", i ? "," : "[", (long long)f->taps[i]);
    nb_buf_add_char(b, ']');
}

static void draft_config(nb_job *j, nb_buf *b)
{
    put_key(b, "draft");
    nb_buf_add_char(b, '{');
    put_str(b, "model_format", NB_LIT("nibble"));
    put_str(b, "architecture", j->draft->r->architecture);
    put_str(b, "tensor_prefix", NB_LIT("draft."));
    put_str(b, "config", NB_LIT("draft/config.json"));
    draft_facts(&j->draft_facts, b);
    bool searched = j->o->search && j->o->draft_request == NB_REQUEST_TYPE &&
                    nb_format_searches((nb_format)j->o->draft_type.format);
    if (searched) put_str(b, "quality", NB_LIT("search"));
    nb_buf_add_char(b, '}');
}

/* "1.7B", "494.03M", "12K": the size of a model as lists of models show it. */
static void put_size(nb_buf *b, uint64_t n)
{
    static const struct {
        double unit;
        const char *suffix;
        int digits;
    } units[] = {{1e9, "B", 1}, {1e6, "M", 2}, {1e3, "K", 0}, {1, "", 0}};
    char text[40];
    size_t i = 0;
    while (i + 1 < NB_COUNT(units) && (double)n < units[i].unit) i++;
    double v = (double)n / units[i].unit;
    snprintf(text, sizeof text, "%.*f%s", v == floor(v) ? 0 : units[i].digits, v, units[i].suffix);
    put_str(b, "model_type", nb_str_of(text));
}

/* The model that this one was made from, where the config names it as hubs do: "owner/name". */
static void put_base_name(nb_job *j, nb_buf *b)
{
    nb_str s;
    if (!nb_json_str(nb_json_get(j->src.config.root, "_name_or_path"), &s) || s.n < 3 || s.n > 200) return;
    const char *slash = memchr(s.p, '/', s.n);
    size_t at = slash ? (size_t)(slash - s.p) : 0;
    if (!at || at + 1 == s.n || memchr(slash + 1, '/', s.n - at - 1) || s.p[0] == '.' || s.p[0] == '~') return;
    put_str(b, "base_name", s);
}

static void model_config(nb_job *j, nb_buf *b)
{
    if (j->base) { /* of a model that is stored already */
        nb_buf_add_char(b, '{');
        if (!b->oom) nb_base_config(j, b);
        draft_config(j, b);
        nb_buf_add_char(b, '}');
        return;
    }
    nb_str id = j->r->architecture, tmpl = chat_template(j);
    const family *f = identify(j);
    nb_str renderer = f ? nb_str_of(f->renderer) : (nb_str){"", 0}, parser = f ? nb_str_of(f->parser) : (nb_str){"", 0};
    if (f && nb_str_is(renderer, "qwen3.5") && nb_str_has(tmpl, "resolved_reasoning_effort") &&
        nb_str_has(tmpl, "preserve_thinking"))
        renderer = NB_LIT("qwen3.8");
    if (f && nb_str_is(parser, "laguna") && nb_str_has(tmpl, "laguna_glm_thinking_v8"))
        parser = renderer = NB_LIT("poolside-v1");
    if (f && nb_str_is(parser, "nemotron-3-nano") && nb_str_has(tmpl, "{reasoning effort: efficient}"))
        parser = renderer = NB_LIT("nemotron-3.5-nano");
    if (j->o->parser) parser = nb_str_of(j->o->parser);
    if (j->o->renderer) renderer = nb_str_of(j->o->renderer);
    nb_buf_add_char(b, '{');
    put_str(b, "model_format", NB_LIT("nibble"));
    put_str(b, "model_family", j->src.has_cfg ? nb_str_of(nb_arch_name(j->src.cfg.arch)) : id);
    put_key(b, "model_families");
    nb_buf_add_char(b, '[');
    nb_json_write_string(b, j->src.has_cfg ? nb_str_of(nb_arch_name(j->src.cfg.arch)) : id, 0);
    nb_buf_add_char(b, ']');
    put_size(b, j->r->params);
    put_base_name(j, b);
    put_str(b, "architecture", id);
    put_str(b, "file_type", file_type(j));
    generation_defaults(j, b);
    if (parser.n) put_str(b, "parser", parser);
    if (renderer.n) put_str(b, "renderer", renderer);
    put_str(b, "requires", nb_str_of(required_version(j->o)));
    capabilities(j, b, f, tmpl);
    if (j->src.has_cfg) {
        put_key(b, "context_length");
        nb_buf_printf(b, "%d", j->src.cfg.max_context);
        put_key(b, "embedding_length");
        nb_buf_printf(b, "%d", j->src.cfg.hidden);
    }
    if (j->draft) draft_config(j, b);
    if (j->mtp_layers) {
        put_key(b, "inline_draft");
        nb_buf_printf(b, "{\"kind\":\"mtp\",\"tensor_prefix\":\"mtp.\",\"layers\":%d}", j->mtp_layers);
    }
    x_import(j, b);
    nb_buf_add_char(b, '}');
}

static nb_status put_blob(nb_job *j, nb_str bytes, const char *media, nb_str name, nb_layer *layer, nb_blob_ref *ref,
                          nb_error *err)
{
    nb_status st = nb_blob_put(j->store, bytes.p, bytes.n, ref, err);
    if (st != NB_OK) return st;
    *layer = (nb_layer){.media_type = nb_str_of(media), .name = name, .size = ref->size};
    memcpy(layer->hex, ref->hex, sizeof layer->hex);
    return NB_OK;
}

/* What the user gave besides the checkpoint, as layers of the manifest. */
static nb_status put_users(nb_job *j, nb_layer *layers, size_t *n, nb_blob_ref *refs, size_t *n_refs, nb_error *err)
{
    const struct {
        const char *text, *media;
    } given[] = {{j->o->template_text, NB_MEDIA_TEMPLATE},
                 {j->o->system, NB_MEDIA_SYSTEM},
                 {j->o->license, NB_MEDIA_LICENSE},
                 {j->o->extra_parameters, NB_MEDIA_PARAMS},
                 {j->o->messages, NB_MEDIA_MESSAGES}};
    nb_status st = NB_OK;
    for (size_t i = 0; i < NB_COUNT(given) && st == NB_OK; i++) {
        if (!given[i].text) continue;
        st = put_blob(j, nb_str_of(given[i].text), given[i].media, (nb_str){"", 0}, &layers[*n], &refs[*n_refs], err);
        if (st == NB_OK) (*n)++, (*n_refs)++;
    }
    return st;
}

nb_status nb_write_configs(nb_job *j, nb_layer *layers, size_t *n, nb_layer *config, nb_blob_ref *refs, size_t *n_refs,
                           nb_error *err)
{
    for (size_t i = 0; i < j->src.n_configs; i++) { /* those of a draft were appended */
        const nb_src_config *c = &j->src.configs[i];
        if (j->o->license && !strcmp(c->media_type, NB_MEDIA_LICENSE)) continue; /* the user's takes its place */
        if (nb_job_cancelled(j)) return nb_fail(err, NB_E_CANCELLED, "cancelled while writing configs");
        nb_status st = put_blob(j, c->bytes, c->media_type, c->name, &layers[*n], &refs[*n_refs], err);
        if (st != NB_OK) return st;
        (*n)++;
        (*n_refs)++;
    }
    nb_status st = put_users(j, layers, n, refs, n_refs, err);
    if (st != NB_OK) return st;
    nb_buf b = {0};
    model_config(j, &b);
    st = b.oom ? nb_fail(err, NB_E_NO_MEMORY, "out of memory for the model config")
               : put_blob(j, nb_buf_str(&b), NB_MEDIA_CONFIG, (nb_str){"", 0}, config, &refs[*n_refs], err);
    if (st == NB_OK) (*n_refs)++;
    nb_buf_free(&b);
    return st;
}
