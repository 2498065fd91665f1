/* The text side of a stored model: the tokenizer, prepared or from its files; generation defaults; where a generation
 * ends. */
#include "model/load.h"

#include <stdio.h>

#define MAX_GIVEN (4u << 20)

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory while a tokenizer is loaded");
}

/* ---- tokenizer ---- */

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

static nb_status load_tokenizer(nb_network *net, nb_store *store, const nb_text_files *f, nb_error *err)
{
    char *dir = nb_arena_printf(net->arena, "%s/cache", nb_store_root(store)),
         *path = nb_arena_printf(net->arena, "%s/cache/tokenizer-%s", nb_store_root(store), f->key);
    if (!dir || !path) return no_memory(err);
    if (open_prepared(net, path, f->key)) return NB_OK;
    nb_status s = nb_text_tokenizer(&net->tokenizer, f->v, f->n, err);
    if (s == NB_OK && net->tokenizer) save_prepared(net, dir, path, f->key);
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

/* What the user gave at import: the layer of a kind, in the arena. out->p NULL: there is none. */
static nb_status read_given(nb_network *net, nb_store *store, const nb_manifest *m, const char *media, nb_str *out,
                            nb_error *err)
{
    const nb_layer *layer = NULL;
    *out = (nb_str){0};
    for (size_t i = 0; i < m->n_layers && !layer; i++)
        if (nb_str_is(m->layers[i].media_type, media)) layer = &m->layers[i];
    if (!layer) return NB_OK;
    nb_buf path = {0}, text = {0};
    nb_blob_path(store, layer->hex, &path);
    const char *p = nb_buf_cstr(&path);
    nb_status s = p ? nb_file_read(&text, p, MAX_GIVEN, err) : no_memory(err);
    if (s == NB_OK && !(out->p = nb_arena_dup(net->arena, text.p ? text.p : "", text.n))) s = no_memory(err);
    out->n = text.n;
    nb_buf_free(&path);
    nb_buf_free(&text);
    return s;
}

static nb_status read_parameters(nb_network *net, nb_str text, nb_error *err)
{
    nb_json_doc own;
    if (!text.p) return NB_OK;
    nb_status s = nb_json_parse(&own, text.p, text.n, "parameters", NULL, err);
    if (s != NB_OK) return s;
    read_generation(&net->generation, own.root);
    nb_json_free(&own);
    return NB_OK;
}

/* They are joined with a conversation's own, so they are kept as a list without white space around its entries. */
static nb_status read_messages(nb_network *net, nb_error *err)
{
    nb_json_doc own = {0};
    nb_buf compact = {0};
    if (!net->messages.p) return NB_OK;
    nb_status s = nb_json_parse(&own, net->messages.p, net->messages.n, "messages", NULL, err);
    if (s == NB_OK && !nb_json_is(own.root, NB_JSON_ARRAY)) s = nb_fail(err, NB_E_INVALID, "messages: not a JSON list");
    if (s == NB_OK) {
        nb_json_write(&compact, own.root, NB_JSON_COMPACT);
        net->messages = own.root->count ? nb_arena_str(net->arena, nb_buf_str(&compact)) : (nb_str){0};
        if (compact.oom || (own.root->count && !net->messages.p)) s = no_memory(err);
    }
    nb_buf_free(&compact);
    nb_json_free(&own);
    return s;
}

static nb_status load_generation(nb_network *net, nb_store *store, const nb_manifest *m, nb_error *err)
{
    const nb_json *doc;
    nb_status s = nb_net_load_json(net, store, m, "generation_config.json", &doc, err);
    if (s != NB_OK) return s;
    read_generation(&net->generation, doc);
    if ((s = read_suppressed(net, nb_json_get(doc, "suppress_tokens"), err)) != NB_OK) return s;
    nb_str parameters;
    s = read_given(net, store, m, NB_MEDIA_PARAMS, &parameters, err);
    if (s == NB_OK) s = read_parameters(net, parameters, err);
    if (s == NB_OK) s = read_given(net, store, m, NB_MEDIA_SYSTEM, &net->system, err);
    if (s == NB_OK) s = read_given(net, store, m, NB_MEDIA_MESSAGES, &net->messages, err);
    return s == NB_OK ? read_messages(net, err) : s;
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

nb_status nb_net_load_text(nb_network *net, nb_store *store, const nb_manifest *m, const nb_network_options *o,
                           nb_error *err)
{
    nb_text_files f;
    nb_status s = nb_text_files_map(&f, store, m, net->arena, err);
    if (s == NB_OK && !o->no_tokenizer) {
        s = load_tokenizer(net, store, &f, o->text_optional ? &net->tokenizer_error : err);
        if (o->text_optional) s = NB_OK;
    }
    if (s == NB_OK) {
        find_ends(net);
        s = nb_net_load_chat(net, f.v, f.n, o->text_optional ? &net->chat_error : err);
        if (o->text_optional) s = NB_OK;
    }
    nb_text_files_unmap(&f);
    return s == NB_OK ? load_generation(net, store, m, err) : s;
}
