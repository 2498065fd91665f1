/* Opening a stored model: manifest, config, blobs, tensors, forward, text. */
#include "model/load.h"
#include "model/build.h"

#include <stdlib.h>

#define MAX_JSON_LAYER (256u << 20)

nb_status nb_network_layer(nb_store *store, const nb_manifest *m, const char *name, nb_buf *out, nb_error *err)
{
    const nb_layer *layer = nb_manifest_find(m, name);
    if (!layer) return nb_fail(err, NB_E_NOT_FOUND, "the model has no file %s", name);
    if (layer->size > MAX_JSON_LAYER)
        return nb_fail(err, NB_E_INVALID, "%s: %llu bytes are too many", name, (unsigned long long)layer->size);
    nb_buf path = {0};
    nb_mapped f;
    nb_blob_path(store, layer->hex, &path);
    const char *text = nb_buf_cstr(&path);
    nb_status s = text ? nb_file_map(&f, text, layer->size, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_buf_free(&path);
    if (s != NB_OK) return s;
    nb_buf_add(out, f.p, f.n);
    nb_file_unmap(&f);
    return out->oom ? nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", name) : NB_OK;
}

nb_status nb_net_load_json(nb_network *net, nb_store *store, const nb_manifest *m, const char *name,
                           const nb_json **out, nb_error *err)
{
    *out = NULL;
    nb_buf text = {0};
    nb_json_limits lim = {.flags = NB_JSON_COPY | NB_JSON_LONE_SURROGATES | NB_JSON_TRAILING_NUL,
                          .max_bytes = MAX_JSON_LAYER};
    if (!nb_manifest_find(m, name)) return NB_OK;
    if (net->blobs->n_docs == NB_MAX_DOCS) return nb_fail(err, NB_E_INVALID, "%s: too many config files", name);
    nb_status s = nb_network_layer(store, m, name, &text, err);
    nb_json_doc *doc = &net->blobs->docs[net->blobs->n_docs];
    if (s == NB_OK) s = nb_json_parse(doc, text.p, text.n, name, &lim, err);
    if (s == NB_OK) {
        net->blobs->n_docs++;
        *out = doc->root;
    }
    nb_buf_free(&text);
    return s;
}

/* The model config is a layer of its own kind. */
static nb_status load_model_config(nb_network *net, nb_store *store, const nb_manifest *m, nb_error *err)
{
    nb_buf path = {0}, text = {0};
    nb_json_limits lim = {.flags = NB_JSON_COPY};
    nb_blob_path(store, m->config.hex, &path);
    const char *p = nb_buf_cstr(&path);
    nb_status s = p ? nb_file_read(&text, p, 64u << 20, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_json_doc *doc = &net->blobs->docs[net->blobs->n_docs];
    if (s == NB_OK) s = nb_json_parse(doc, text.p, text.n, "model config", &lim, err);
    if (s == NB_OK) {
        net->blobs->n_docs++;
        net->model_config = doc->root;
    }
    nb_buf_free(&path);
    nb_buf_free(&text);
    return s;
}

static nb_status load_config(nb_network *net, nb_store *store, const nb_manifest *m, nb_error *err)
{
    const nb_json *root, *generation;
    nb_status s = nb_net_load_json(net, store, m, "config.json", &root, err);
    if (s == NB_OK && !root) s = nb_fail(err, NB_E_INVALID, "the model has no config.json");
    if (s == NB_OK) s = nb_net_load_json(net, store, m, "generation_config.json", &generation, err);
    return s == NB_OK ? nb_config_read(&net->config, root, generation, net->arena, err) : s;
}

/* "1.2.3" as numbers; what follows the third does not count. */
static void version(nb_str s, uint32_t v[3])
{
    size_t i = 0;
    for (int part = 0; part < 3; part++, i++)
        for (v[part] = 0; i < s.n && s.p[i] >= '0' && s.p[i] <= '9' && v[part] < 100000000; i++)
            v[part] = v[part] * 10 + (uint32_t)(s.p[i] - '0');
}

/* A model may say which version of this program it needs. Other programs' stores mean theirs. */
static nb_status check_version(const nb_network *net, nb_error *err)
{
    nb_str format, needs;
    uint32_t want[3], have[3];
    if (!nb_json_str(nb_json_get(net->model_config, "model_format"), &format) || !nb_str_is(format, "nibble") ||
        !nb_json_str(nb_json_get(net->model_config, "requires"), &needs))
        return NB_OK;
    version(needs, want);
    version(nb_str_of(NB_VERSION), have);
    for (int i = 0; i < 3 && want[i] >= have[i]; i++)
        if (want[i] > have[i])
            return nb_fail(err, NB_E_UNSUPPORTED, "it requires version %.*s; this is %s", NB_FMT_STR(needs),
                           NB_VERSION);
    return NB_OK;
}

static nb_status open_network(nb_network *net, nb_store *store, const nb_manifest *m, const nb_network_options *o,
                              nb_error *err)
{
    nb_status s = load_model_config(net, store, m, err);
    if (s == NB_OK) s = check_version(net, err);
    if (s == NB_OK) s = load_config(net, store, m, err);
    if (s != NB_OK) return s;
    if (!o->weights_only && !nb_arch_runs(net->config.arch))
        return nb_fail(err, NB_E_UNSUPPORTED, "architecture '%s' is importable, but its forward does not run yet",
                       nb_arch_name(net->config.arch));
    s = nb_net_blobs_open(net->blobs, store, m, net->arena, err);
    if (s == NB_OK && o->resident) s = nb_net_blobs_resident(net->blobs, err);
    if (s == NB_OK) s = nb_net_bind(net, o->weights_only, err);
    nb_net_blobs_close_heads(net->blobs);
    if (s == NB_OK && !o->weights_only) s = nb_build_graph(net, &net->graph, false, err);
    if (s == NB_OK && !o->weights_only) s = nb_build_graph(net, &net->graph_f32, true, err);
    return s == NB_OK ? nb_net_load_text(net, store, m, o, err) : s;
}

static nb_status new_network(nb_network **out, nb_error *err)
{
    nb_network *net = *out = calloc(1, sizeof *net);
    if (net) {
        net->arena = nb_arena_new(0);
        net->blobs = net->arena ? NB_NEW(net->arena, struct nb_net_blobs) : NULL;
    }
    if (!net || !net->blobs) return nb_fail(err, NB_E_NO_MEMORY, "out of memory while a model is opened");
    net->blobs->tokenizer.fd = -1;
    return NB_OK;
}

nb_status nb_network_from_files(nb_network **out, const nb_text_file *files, size_t n, nb_error *err)
{
    nb_network *net = NULL;
    nb_status s = new_network(&net, err);
    if (s == NB_OK) {
        nb_text_tokenizer(&net->tokenizer, files, n, &net->tokenizer_error);
        nb_net_load_chat(net, files, n, &net->chat_error);
    } else {
        nb_network_close(net);
        net = NULL;
    }
    *out = net;
    return s;
}

nb_status nb_network_open(nb_network **out, nb_store *store, const nb_name *name, const nb_network_options *o,
                          nb_error *err)
{
    static const nb_network_options defaults;
    uint64_t start = nb_now_ns();
    nb_manifest m;
    char text[340];
    *out = NULL;
    nb_status s = nb_manifest_read(store, name, &m, err);
    if (s != NB_OK) return s;
    nb_network *net = NULL;
    if ((s = new_network(&net, err)) != NB_OK) goto done;
    memcpy(net->digest, m.hex, sizeof net->digest);
    s = open_network(net, store, &m, o ? o : &defaults, err);
    if (s != NB_OK) {
        nb_name_text(name, text);
        nb_error_prefix(err, "model '%s'", text);
        goto done;
    }
    net->load_ns = nb_now_ns() - start;
    *out = net;
    net = NULL;
done:
    nb_network_close(net);
    nb_manifest_free(&m);
    return s;
}

void nb_network_close(nb_network *net)
{
    if (!net) return;
    nb_tokenizer_free(net->tokenizer);
    if (net->blobs) nb_net_blobs_close(net->blobs);
    nb_arena_free(net->arena);
    free(net);
}
