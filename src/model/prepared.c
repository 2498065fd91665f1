/* The text side of a model: tokenizer (prepared, else from its sources), chat template, generation defaults. */
#include "model/load.h"

#include <stdio.h>

#define PREPARED_VERSION "nibble 0.1.0, prepared tokenizer 1"
#define MAX_TEMPLATE     (4u << 20)

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory while a tokenizer is loaded");
}

/* ---- tokenizer ---- */

static const char *const sources[] = {"tokenizer.json", "tokenizer.model", "gguf_tokenizer.json"};

/* What a tokenizer is made of: the first source there is, and tokenizer_config.json. Its key also names the program's
 * version. */
static const nb_layer *tokenizer_source(const nb_manifest *m, char key[65])
{
    for (size_t i = 0; i < NB_COUNT(sources); i++) {
        const nb_layer *layer = nb_manifest_find(m, sources[i]), *config = nb_manifest_find(m, "tokenizer_config.json");
        if (!layer) continue;
        char text[300];
        int n = snprintf(text, sizeof text, "%s\n%s %s\n%s\n", PREPARED_VERSION, sources[i], layer->hex,
                         config ? config->hex : "-");
        nb_sha256_hex(text, (size_t)n, key);
        return layer;
    }
    return NULL;
}

static bool open_prepared(nb_network *net, const char *path, const char key[65])
{
    nb_error quiet;
    nb_mapped *f = &net->blobs->tokenizer;
    if (nb_file_map(f, path, UINT64_MAX, &quiet) != NB_OK) return false;
    if (nb_tokenizer_open(&net->tokenizer, f->p, f->n, key, &quiet) == NB_OK) return true;
    nb_log(2, "%s: %s; it is made anew", path, quiet.text);
    net->tokenizer = NULL;
    nb_file_unmap(f);
    return false;
}

static nb_status from_source(nb_network *net, nb_store *store, const nb_manifest *m, const nb_layer *layer,
                             nb_error *err)
{
    nb_buf text = {0}, path = {0};
    nb_mapped f = {.fd = -1};
    nb_blob_path(store, layer->hex, &path);
    const char *p = nb_buf_cstr(&path);
    nb_status s = p ? nb_file_map(&f, p, layer->size, err) : no_memory(err);
    const nb_json *config = net->tokenizer_config;
    if (s == NB_OK) {
        const char *bytes = (const char *)f.p;
        if (layer == nb_manifest_find(m, sources[0]))
            s = nb_tokenizer_from_json(&net->tokenizer, bytes, f.n, config, err);
        else if (layer == nb_manifest_find(m, sources[1]))
            s = nb_tokenizer_from_spm(&net->tokenizer, f.p, f.n, config, err);
        else
            s = nb_tokenizer_from_gguf(&net->tokenizer, bytes, f.n, err);
    }
    nb_file_unmap(&f);
    nb_buf_free(&path);
    nb_buf_free(&text);
    return s;
}

/* Best effort: a store that cannot be written to still serves its models. */
static void save_prepared(const nb_network *net, const char *dir, const char *path, const char key[65])
{
    nb_buf out = {0};
    nb_error e;
    nb_status s = nb_tokenizer_save(net->tokenizer, &out, key, &e);
    if (s == NB_OK) s = nb_mkdirs(dir, &e);
    if (s == NB_OK) s = nb_file_write_atomic(path, out.p, out.n, &e);
    if (s != NB_OK) nb_log(2, "the prepared tokenizer was not kept: %s", e.text);
    nb_buf_free(&out);
}

static nb_status load_tokenizer(nb_network *net, nb_store *store, const nb_manifest *m, nb_error *err)
{
    char key[65];
    const nb_layer *layer = tokenizer_source(m, key);
    if (!layer) return NB_OK;
    char *dir = nb_arena_printf(net->arena, "%s/cache", nb_store_root(store)),
         *path = nb_arena_printf(net->arena, "%s/cache/tokenizer-%s", nb_store_root(store), key);
    if (!dir || !path) return no_memory(err);
    if (open_prepared(net, path, key)) return NB_OK;
    nb_status s = from_source(net, store, m, layer, err);
    if (s != NB_OK) return s;
    save_prepared(net, dir, path, key);
    return NB_OK;
}

/* ---- chat template ---- */

/* A template in JSON: a string, or a list of {name, template} whose "default" one counts, else the first. */
static nb_str template_of(const nb_json *v)
{
    nb_str s = {NULL, 0}, name, first = {NULL, 0};
    if (nb_json_str(v, &s)) return s;
    for (size_t i = 0; nb_json_is(v, NB_JSON_ARRAY) && i < v->count; i++) {
        const nb_json *one = nb_json_at(v, i);
        if (!nb_json_str(nb_json_get(one, "template"), &s)) continue;
        if (!first.p) first = s;
        if (nb_json_str(nb_json_get(one, "name"), &name) && nb_str_is(name, "default")) return s;
    }
    return first;
}

static nb_status text_layer(nb_network *net, nb_store *store, const nb_manifest *m, const char *media, const char *name,
                            nb_str *out, nb_error *err)
{
    const nb_layer *layer = NULL;
    for (size_t i = 0; i < m->n_layers && !layer; i++)
        if (media ? nb_str_is(m->layers[i].media_type, media) : nb_str_is(m->layers[i].name, name))
            layer = &m->layers[i];
    *out = (nb_str){NULL, 0};
    if (!layer) return NB_OK;
    nb_buf path = {0}, text = {0};
    nb_blob_path(store, layer->hex, &path);
    const char *p = nb_buf_cstr(&path);
    nb_status s = p ? nb_file_read(&text, p, MAX_TEMPLATE, err) : no_memory(err);
    if (s == NB_OK) *out = nb_arena_str(net->arena, nb_buf_str(&text));
    if (s == NB_OK && !out->p) s = no_memory(err);
    nb_buf_free(&path);
    nb_buf_free(&text);
    return s;
}

/* An override in the manifest, chat_template.jinja, tokenizer_config.json, chat_template.json: the first that is there.
 */
static nb_status load_template(nb_network *net, nb_store *store, const nb_manifest *m, nb_error *err)
{
    const nb_json *doc;
    nb_status s = text_layer(net, store, m, NB_MEDIA_TEMPLATE, NULL, &net->chat_template, err);
    if (s == NB_OK && !net->chat_template.p)
        s = text_layer(net, store, m, NULL, "chat_template.jinja", &net->chat_template, err);
    if (s != NB_OK || net->chat_template.p) return s;
    net->chat_template = template_of(nb_json_get(net->tokenizer_config, "chat_template"));
    if (net->chat_template.p) return NB_OK;
    s = nb_net_load_json(net, store, m, "chat_template.json", &doc, err);
    if (s == NB_OK) net->chat_template = template_of(nb_json_get(doc, "chat_template"));
    return s;
}

/* ---- generation defaults ---- */

static void real(const nb_json *doc, const char *key, double *out, uint32_t *given, uint32_t bit)
{
    double v;
    if (!nb_json_present(nb_json_get(doc, key)) || !nb_json_f64(nb_json_get(doc, key), &v) || !(v >= -1e9 && v <= 1e9))
        return;
    *out = v;
    *given |= bit;
}

static void whole(const nb_json *doc, const char *key, int32_t *out, uint32_t *given, uint32_t bit)
{
    int64_t v;
    if (!nb_json_i64(nb_json_get(doc, key), &v) || v < INT32_MIN || v > INT32_MAX) return;
    *out = (int32_t)v;
    *given |= bit;
}

static void read_generation(nb_generation *g, const nb_json *doc)
{
    if (nb_json_bool(nb_json_get(doc, "do_sample"), &g->do_sample)) g->given |= NB_GEN_DO_SAMPLE;
    real(doc, "temperature", &g->temperature, &g->given, NB_GEN_TEMPERATURE);
    real(doc, "top_p", &g->top_p, &g->given, NB_GEN_TOP_P);
    real(doc, "min_p", &g->min_p, &g->given, NB_GEN_MIN_P);
    real(doc, "repetition_penalty", &g->repeat_penalty, &g->given, NB_GEN_REPEAT);
    real(doc, "repeat_penalty", &g->repeat_penalty, &g->given, NB_GEN_REPEAT);
    whole(doc, "top_k", &g->top_k, &g->given, NB_GEN_TOP_K);
    whole(doc, "max_new_tokens", &g->max_new_tokens, &g->given, NB_GEN_MAX_NEW);
}

static nb_status read_suppressed(nb_network *net, const nb_json *list, nb_error *err)
{
    if (!nb_json_is(list, NB_JSON_ARRAY) || list->count == 0) return NB_OK;
    int32_t *ids = NB_NEW_N(net->arena, int32_t, list->count);
    if (!ids) return no_memory(err);
    for (size_t i = 0; i < list->count; i++) {
        int64_t v;
        if (nb_json_i64(nb_json_at(list, i), &v) && v >= 0 && v < net->config.vocab)
            ids[net->generation.n_suppress++] = (int32_t)v;
    }
    net->generation.suppress = ids;
    return NB_OK;
}

static nb_status load_generation(nb_network *net, nb_store *store, const nb_manifest *m, nb_error *err)
{
    const nb_json *doc;
    nb_status s = nb_net_load_json(net, store, m, "generation_config.json", &doc, err);
    if (s != NB_OK) return s;
    read_generation(&net->generation, doc);
    if ((s = read_suppressed(net, nb_json_get(doc, "suppress_tokens"), err)) != NB_OK) return s;
    nb_str params;
    s = text_layer(net, store, m, NB_MEDIA_PARAMS, NULL, &params, err);
    if (s != NB_OK || !params.p) return s;
    nb_json_doc own;
    s = nb_json_parse(&own, params.p, params.n, "parameters", NULL, err);
    if (s != NB_OK) return s;
    read_generation(&net->generation, own.root);
    nb_json_free(&own);
    return NB_OK;
}

/* ---- where a generation ends ---- */

/* Control tokens that end a turn in the models which have them (specs/text_and_api.md 1.1), whether or not the
 * checkpoint declares them; the last row are marks between files of fill-in-the-middle models. */
static const char *const end_texts[] = {
    "<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<turn|>", "<|tool_response>", "<|endoftext|>", "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]",
    "[EOS]", "<end_of_utterance>", "<eos>", "</s>", "<｜end▁of▁sentence｜>",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<|file_sep|>"};

static bool is_control(const nb_tokenizer *t, const char *text)
{
    int32_t id = nb_tokenizer_find(t, nb_str_of(text));
    return id >= 0 && nb_tokenizer_is_special(t, id);
}

static void add_end(nb_network *net, int32_t id)
{
    for (int32_t i = 0; i < net->n_end_ids; i++)
        if (net->end_ids[i] == id) return;
    if (id >= 0 && net->n_end_ids < NB_MAX_END_IDS) net->end_ids[net->n_end_ids++] = id;
}

static void find_ends(nb_network *net)
{
    const nb_tokenizer *t = net->tokenizer;
    for (int32_t i = 0; i < net->config.n_eos; i++) add_end(net, net->config.eos[i]);
    if (!t) return;
    add_end(net, nb_tokenizer_eos(t));
    /* harmony: <|end|> closes a message, not the turn */
    bool harmony = is_control(t, "<|start|>") && is_control(t, "<|channel|>") && is_control(t, "<|message|>");
    for (size_t i = 0; i < NB_COUNT(end_texts); i++)
        if (is_control(t, end_texts[i]) && !(harmony && strcmp(end_texts[i], "<|end|>") == 0))
            add_end(net, nb_tokenizer_find(t, nb_str_of(end_texts[i])));
}

nb_status nb_net_load_text(nb_network *net, nb_store *store, const nb_manifest *m, bool no_tokenizer, nb_error *err)
{
    nb_status s = nb_net_load_json(net, store, m, "tokenizer_config.json", &net->tokenizer_config, err);
    if (s == NB_OK && !no_tokenizer) s = load_tokenizer(net, store, m, err);
    if (s == NB_OK) find_ends(net);
    if (s == NB_OK) s = load_template(net, store, m, err);
    return s == NB_OK ? load_generation(net, store, m, err) : s;
}
