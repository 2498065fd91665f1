/* The text side of a model as the files it is made of: which of them hold the tokenizer, the templates by their names,
 * special tokens. */
#include "model/load.h"

#include <stdio.h>
#include <stdlib.h>

#define PREPARED_VERSION "nibble 0.1.0, prepared tokenizer 3"

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory for tokenizer and templates");
}

/* ---- the files ---- */

/* What a tokenizer can be made of, in order of preference; what else takes part in one; templates. */
enum { SOURCES = 5, PARTS = 10 };
static const char *const names[] = {"tokenizer.json",
                                    "tokenizer.model",
                                    "gguf_tokenizer.json",
                                    "tiktoken.model",
                                    "vocab.json",
                                    "merges.txt",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "added_tokens.json",
                                    "config.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    NULL};
static const char jinja[] = ".jinja", ranks[] = ".tiktoken"; /* ranks may have any name: qwen.tiktoken */
enum { RANKS = 3 };

const char *const *nb_text_file_names(void) { return names; }

static size_t place_of(nb_str name)
{
    size_t i = 0;
    while (names[i] && !nb_str_is(name, names[i])) i++;
    return i;
}

static bool is_named_ranks(nb_str name) { return nb_str_ends(name, ranks) && name.n >= sizeof ranks; }

bool nb_text_is_source(const char *name)
{
    return place_of(nb_str_of(name)) < SOURCES || is_named_ranks(nb_str_of(name));
}

static bool is_additional(nb_str name)
{
    return nb_str_starts(name, NB_TEXT_ADDITIONAL) && nb_str_ends(name, jinja) &&
           name.n > sizeof NB_TEXT_ADDITIONAL + sizeof jinja - 2;
}

nb_str nb_text_file_find(const nb_text_file *f, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (nb_str_is(f[i].name, name)) return f[i].bytes;
    return (nb_str){NULL, 0};
}

static nb_status map_layer(nb_text_files *f, nb_store *store, const nb_layer *l, nb_error *err)
{
    nb_buf path = {0};
    nb_blob_path(store, l->hex, &path);
    const char *p = nb_buf_cstr(&path);
    nb_status s = p ? nb_file_map(&f->map[f->n], p, l->size, err) : no_memory(err);
    if (s == NB_OK) {
        nb_file_close(&f->map[f->n]);
        bool user = nb_str_is(l->media_type, NB_MEDIA_TEMPLATE);
        const char *bytes = f->map[f->n].p ? (const char *)f->map[f->n].p : "";
        f->v[f->n] = (nb_text_file){user ? NB_LIT(NB_USER_TEMPLATE) : l->name, {bytes, f->map[f->n].n}};
        f->n++;
    }
    nb_buf_free(&path);
    return s;
}

nb_status nb_text_files_map(nb_text_files *f, nb_store *store, const nb_manifest *m, nb_arena *a, nb_error *err)
{
    nb_buf key = {0};
    *f = (nb_text_files){.v = NB_NEW_N(a, nb_text_file, m->n_layers + 1), .map = NB_NEW_N(a, nb_mapped, m->n_layers + 1)};
    if (!f->v || !f->map) return no_memory(err);
    nb_status s = NB_OK;
    nb_buf_add_cstr(&key, PREPARED_VERSION "\n");
    for (size_t i = 0; i < m->n_layers && s == NB_OK; i++) {
        const nb_layer *l = &m->layers[i];
        size_t place = place_of(l->name);
        bool named = is_named_ranks(l->name);
        if (!names[place] && !named && !is_additional(l->name) && !nb_str_is(l->media_type, NB_MEDIA_TEMPLATE)) continue;
        if (place < PARTS || named) nb_buf_printf(&key, "%.*s %s\n", NB_FMT_STR(l->name), l->hex);
        s = map_layer(f, store, l, err);
    }
    if (s == NB_OK && key.oom) s = no_memory(err);
    if (s == NB_OK) nb_sha256_hex(key.p, key.n, f->key);
    nb_buf_free(&key);
    if (s != NB_OK) nb_text_files_unmap(f);
    return s;
}

void nb_text_files_unmap(nb_text_files *f)
{
    for (size_t i = 0; i < f->n; i++) nb_file_unmap(&f->map[i]);
    f->n = 0;
}

/* *doc.root is NULL without such a file. */
static nb_status parse(nb_json_doc *doc, const nb_text_file *f, size_t n, const char *name, nb_error *err)
{
    nb_json_limits lim = {.flags = NB_JSON_COPY | NB_JSON_LONE_SURROGATES | NB_JSON_TRAILING_NUL};
    nb_str text = nb_text_file_find(f, n, name);
    *doc = (nb_json_doc){0};
    return text.p ? nb_json_parse(doc, text.p, text.n, name, &lim, err) : NB_OK;
}

/* ---- the tokenizer ---- */

static nb_status load_vocab(nb_tokenizer **out, nb_str vocab, const nb_json *config, const nb_text_file *f, size_t n,
                            nb_error *err)
{
    nb_json_doc model;
    nb_str type = {"", 0};
    nb_status s = parse(&model, f, n, "config.json", err);
    if (s != NB_OK) return s;
    nb_json_str(nb_json_get(model.root, "model_type"), &type);
    s = nb_tokenizer_from_vocab(out, vocab, nb_text_file_find(f, n, "merges.txt"), config, type, err);
    nb_json_free(&model);
    return s;
}

/* Qwen-VL and Qwen-Audio name the class of Qwen-1, and have tokens that it lacks. */
static nb_status load_ranks(nb_tokenizer **out, nb_str text, const nb_json *config, const nb_text_file *f, size_t n,
                            nb_error *err)
{
    static const char *const more[] = {"visual", "audio"};
    nb_json_doc model;
    nb_str class = {"", 0};
    nb_json_str(nb_json_get(config, "tokenizer_class"), &class);
    if (!nb_str_is(class, "QWenTokenizer")) return nb_tokenizer_from_ranks(out, text.p, text.n, config, err);
    nb_status s = parse(&model, f, n, "config.json", err);
    for (size_t i = 0; i < NB_COUNT(more) && s == NB_OK; i++)
        if (nb_json_present(nb_json_get(model.root, more[i])))
            s = nb_fail(err, NB_E_UNSUPPORTED,
                        "config.json: '%s': which tokens such a model adds to those of QWenTokenizer is not known: "
                        "tokenizer.json is needed",
                        more[i]);
    if (s == NB_OK) s = nb_tokenizer_from_ranks(out, text.p, text.n, config, err);
    nb_json_free(&model);
    return s;
}

static nb_status load(nb_tokenizer **out, size_t which, nb_str text, const nb_json *config, const nb_text_file *f, size_t n,
                      nb_error *err)
{
    switch (which) {
    case 0: return nb_tokenizer_from_json(out, text.p, text.n, config, err);
    case 1: /* Llama 3 called its ranks so, too */
        if (nb_tok_is_ranks(text.p, text.n)) return load_ranks(out, text, config, f, n, err);
        return nb_tokenizer_from_spm(out, text.p, text.n, config, err);
    case 2: return nb_tokenizer_from_gguf(out, text.p, text.n, err);
    case RANKS: return load_ranks(out, text, config, f, n, err);
    default: return load_vocab(out, text, config, f, n, err);
    }
}

/* Does the text begin with one of the files? */
static bool names_file(const char *text)
{
    for (size_t i = 0; i < PARTS; i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0) return true;
    return false;
}

/* The file that the tokenizer is made of, NULL: none. */
static nb_status find_source(const nb_text_file *f, size_t n, size_t *which, const nb_text_file **source, nb_error *err)
{
    *source = NULL;
    for (*which = 0; *which < SOURCES; ++*which)
        for (size_t i = 0; i < n; i++)
            if (nb_str_is(f[i].name, names[*which])) {
                *source = &f[i];
                return NB_OK;
            }
    *which = RANKS;
    for (size_t i = 0; i < n; i++) {
        if (!is_named_ranks(f[i].name)) continue;
        if (*source)
            return nb_fail(err, NB_E_UNSUPPORTED, "%.*s and %.*s: which of them the tokenizer is made of is not known",
                           NB_FMT_STR((*source)->name), NB_FMT_STR(f[i].name));
        *source = &f[i];
    }
    return NB_OK;
}

nb_status nb_text_tokenizer(nb_tokenizer **out, const nb_text_file *f, size_t n, nb_error *err)
{
    const nb_text_file *source;
    size_t which;
    *out = NULL;
    nb_status s = find_source(f, n, &which, &source, err);
    if (s != NB_OK || !source) return s;
    nb_arena *a = nb_arena_new(0);
    nb_json_doc doc[3] = {{0}};
    static const char *const beside[] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"};
    s = a ? NB_OK : no_memory(err);
    for (int i = 0; i < 3 && s == NB_OK; i++)
        if (!i || !nb_json_get(doc[0].root, "added_tokens_decoder")) s = parse(&doc[i], f, n, beside[i], err);
    const nb_json *config = s == NB_OK ? nb_tok_config(doc[0].root, doc[1].root, doc[2].root, a) : NULL;
    if (s == NB_OK) {
        s = load(out, which, source->bytes, config, f, n, err);
        if (s != NB_OK && err && !names_file(err->text)) nb_error_prefix(err, "%.*s", NB_FMT_STR(source->name));
    }
    for (int i = 0; i < 3; i++) nb_json_free(&doc[i]);
    nb_arena_free(a);
    return s;
}

/* ---- templates ---- */

/* Adds a template; of two with one name the later counts. */
static nb_status add_template(nb_network *net, size_t *cap, nb_str name, nb_str text, nb_str file,
                              nb_error *err)
{
    size_t i = 0;
    while (i < net->n_templates && !nb_str_eq(net->templates[i].name, name)) i++;
    if (i == net->n_templates && !nb_arena_grow(net->arena, &net->templates, i, cap, sizeof *net->templates, 4))
        return no_memory(err);
    nb_named_template *t = &net->templates[i];
    if (i == net->n_templates) t->name = nb_arena_str(net->arena, name);
    t->text = nb_arena_str(net->arena, text);
    t->file = nb_arena_str(net->arena, file);
    if (!t->name.p || !t->text.p || !t->file.p) return no_memory(err);
    if (i == net->n_templates) net->n_templates++;
    return NB_OK;
}

/* "chat_template" of a JSON file: one text, or a list of {name, template}. */
static nb_status add_from_json(nb_network *net, size_t *cap, const nb_text_file *f, size_t n, const char *file,
                               nb_error *err)
{
    nb_json_doc doc;
    nb_str text, name;
    nb_status s = parse(&doc, f, n, file, err);
    const nb_json *v = s == NB_OK ? nb_json_get(doc.root, "chat_template") : NULL;
    if (nb_json_str(v, &text)) s = add_template(net, cap, NB_LIT("default"), text, nb_str_of(file), err);
    for (size_t i = 0; s == NB_OK && nb_json_is(v, NB_JSON_ARRAY) && i < v->count; i++) {
        const nb_json *one = nb_json_at(v, i);
        if (nb_json_str(nb_json_get(one, "name"), &name) && nb_json_str(nb_json_get(one, "template"), &text))
            s = add_template(net, cap, name, text, nb_str_of(file), err);
    }
    nb_json_free(&doc);
    return s;
}

/* The first of: the user's; chat_template.jinja with additional_chat_templates; chat_template.json;
 * tokenizer_config.json. */
static nb_status load_templates(nb_network *net, const nb_text_file *f, size_t n, nb_error *err)
{
    static const char *const alone[] = {NB_USER_TEMPLATE, "chat_template.jinja"};
    size_t cap = 0;
    nb_status s = NB_OK;
    for (size_t i = 0; i < NB_COUNT(alone) && !net->n_templates && s == NB_OK; i++) {
        nb_str text = nb_text_file_find(f, n, alone[i]);
        if (text.p) s = add_template(net, &cap, NB_LIT("default"), text, nb_str_of(alone[i]), err);
    }
    bool user = nb_text_file_find(f, n, NB_USER_TEMPLATE).p != NULL;
    for (size_t i = 0; i < n && !user && s == NB_OK; i++) {
        if (!is_additional(f[i].name)) continue;
        size_t skip = sizeof NB_TEXT_ADDITIONAL - 1;
        nb_str name = {f[i].name.p + skip, f[i].name.n - skip - (sizeof jinja - 1)};
        s = add_template(net, &cap, name, f[i].bytes, f[i].name, err);
    }
    if (s == NB_OK && !net->n_templates) s = add_from_json(net, &cap, f, n, "chat_template.json", err);
    if (s == NB_OK && !net->n_templates) s = add_from_json(net, &cap, f, n, "tokenizer_config.json", err);
    return s;
}

nb_status nb_network_need_tokenizer(const nb_network *net, nb_error *err)
{
    const nb_error *why = &net->tokenizer_error;
    if (net->tokenizer) return NB_OK;
    if (why->status != NB_OK) return nb_fail(err, why->status, "%s", why->text);
    return nb_fail(err, NB_E_UNSUPPORTED, "the model has no tokenizer: give ids instead of text");
}

static bool find_template(const nb_network *net, nb_str name, size_t *index)
{
    for (*index = 0; *index < net->n_templates; (*index)++)
        if (nb_str_eq(net->templates[*index].name, name)) return true;
    return false;
}

nb_status nb_network_template(const nb_network *net, nb_str name, bool tools, size_t *index, nb_error *err)
{
    if (net->chat_error.status != NB_OK) return nb_fail(err, net->chat_error.status, "%s", net->chat_error.text);
    if (!net->n_templates) return nb_fail(err, NB_E_NOT_FOUND, "the model has no chat template");
    if (name.p && find_template(net, name, index)) return NB_OK;
    if (!name.p && tools && find_template(net, NB_LIT("tool_use"), index)) return NB_OK;
    if (!name.p && find_template(net, NB_LIT("default"), index)) return NB_OK;
    nb_buf have = {0};
    for (size_t i = 0; i < net->n_templates; i++)
        nb_buf_printf(&have, "%s'%.*s'", i ? ", " : "", NB_FMT_STR(net->templates[i].name));
    const char *list = nb_buf_cstr(&have);
    nb_status s = name.p ? nb_fail(err, NB_E_NOT_FOUND, "the model has no chat template '%.*s'; it has %s",
                                   NB_FMT_STR(name), list ? list : "others")
                         : nb_fail(err, NB_E_USAGE,
                                   "the model has several chat templates and none is the default: name one of %s",
                                   list ? list : "them");
    nb_buf_free(&have);
    return s;
}

static bool pre_text(const nb_tokenizer *t, char out[300])
{
    nb_str pre = t ? nb_tokenizer_unknown_pre(t) : (nb_str){0};
    if (!pre.p) return false;
    snprintf(out, 300,
             "gguf tokenizer: pre-tokenizer '%.*s' is unknown; the text is cut in a general way, and tokens may differ from "
             "the publisher's",
             pre.n < 100 ? (int)pre.n : 100, pre.p);
    return true;
}

nb_status nb_net_load_chat(nb_network *net, const nb_text_file *f, size_t n, nb_error *err)
{
    nb_json_doc config, map = {0};
    size_t index;
    nb_status s = load_templates(net, f, n, err);
    if (s != NB_OK) return s;
    char odd[300]; /* said each time: whoever sees odd answers need not know what was said at the import */
    if (pre_text(net->tokenizer, odd)) nb_log(1, "%s", odd);
    if (find_template(net, NB_LIT("default"), &index)) net->chat_template = net->templates[index].text;
    s = parse(&config, f, n, "tokenizer_config.json", err);
    if (s == NB_OK && !nb_json_get(config.root, "added_tokens_decoder")) /* else nobody reads it */
        s = parse(&map, f, n, "special_tokens_map.json", err);
    if (s == NB_OK)
        s = nb_chat_tokens(config.root, map.root, net->tokenizer, net->arena, &net->special_tokens,
                           &net->n_special_tokens, err);
    nb_json_free(&map);
    nb_json_free(&config);
    return s;
}

/* ---- what create says about them ---- */

/* Files that make no tokenizer without others. */
static const char *half_of(const nb_text_file *f, size_t n)
{
    static const char *const halves[] = {"merges.txt", "vocab.txt", "added_tokens.json"};
    for (size_t i = 0; i < NB_COUNT(halves); i++)
        if (nb_text_file_find(f, n, halves[i]).p) return halves[i];
    return NULL;
}

static void check_tokenizer(const nb_text_file *f, size_t n, void (*say)(void *, const char *), void *user)
{
    nb_tokenizer *t = NULL;
    nb_error why = {0};
    char line[700];
    if (nb_text_tokenizer(&t, f, n, &why) != NB_OK) {
        snprintf(line, sizeof line, "%s: the model runs with --ids only", why.text);
        say(user, line);
    } else if (!t) {
        const char *half = half_of(f, n);
        if (half)
            snprintf(line, sizeof line, "no tokenizer found (%s alone is none): the model runs with --ids only", half);
        else
            snprintf(line, sizeof line, "no tokenizer found: the model runs with --ids only");
        say(user, line);
    } else if (pre_text(t, line)) {
        say(user, line);
    }
    nb_tokenizer_free(t);
}

nb_status nb_text_check(const nb_text_file *f, size_t n, void (*say)(void *user, const char *line), void *user,
                        nb_error *err)
{
    nb_network net = {.arena = nb_arena_new(0)};
    nb_error why = {0};
    char line[1200];
    if (!net.arena) return no_memory(err);
    check_tokenizer(f, n, say, user);
    nb_status s = nb_net_load_chat(&net, f, n, &why);
    if (s == NB_E_NO_MEMORY) {
        nb_arena_free(net.arena);
        return no_memory(err);
    }
    if (s != NB_OK) {
        snprintf(line, sizeof line, "%s: chats will fail", why.text);
        say(user, line);
    }
    for (size_t i = 0; i < net.n_templates; i++) {
        nb_template *t = NULL;
        const nb_named_template *one = &net.templates[i];
        if (nb_template_parse(&t, one->text.p, one->text.n, &why) != NB_OK) {
            snprintf(line, sizeof line, "%.*s, template '%.*s': %s: chats with it will fail",
                     one->file.n < 200 ? (int)one->file.n : 200, one->file.p, one->name.n < 200 ? (int)one->name.n : 200,
                     one->name.p, why.text);
            say(user, line);
        }
        nb_template_free(t);
    }
    nb_arena_free(net.arena);
    return NB_OK;
}
