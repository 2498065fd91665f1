/* create/attach: a draft for a model that is already stored. specs/create.md 1.5. The job has no source of its own: the
 * stored model's config stands in for it, its layers are kept as they are, and what an earlier draft left is replaced.
 */
#include "base/file.h"
#include "create/plan.h"

#define MEDIA_DRAFT "application/vnd.ollama.image.draft"
#define MAX_JSON    (64u << 20)

/* Parses a JSON object out of a layer. The text stays in the arena, where the document points. */
static nb_status read_object(nb_job *j, const nb_layer *l, const char *what, nb_json_doc *doc, nb_error *err)
{
    nb_buf path = {0}, text = {0};
    nb_blob_path(j->store, l->hex, &path);
    nb_status st =
        nb_buf_cstr(&path) ? nb_file_read(&text, path.p, MAX_JSON, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (st == NB_OK) {
        char *copy = nb_arena_dup(j->arena, text.p, text.n);
        st = copy ? nb_json_parse(doc, copy, text.n, what, NULL, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    if (st == NB_OK && doc->root->type != NB_JSON_OBJECT)
        st = nb_fail(err, NB_E_INVALID, "%s: not a JSON object (E_CONFIG)", what);
    nb_buf_free(&path);
    nb_buf_free(&text);
    return st;
}

static bool of_draft(const nb_layer *l)
{
    return nb_str_is(l->media_type, MEDIA_DRAFT) || nb_str_starts(l->name, "draft.") ||
           nb_str_starts(l->name, "draft/");
}

/* What belongs to a target only. */
static nb_status check_options(const nb_create_options *o, nb_error *err)
{
    const char *bad = o->request != NB_REQUEST_NONE ? "a quantisation"
                      : o->keep                     ? "a list of tensors to keep"
                      : o->types                    ? "a list of types"
                      : o->extra_parameters         ? "a list of parameters"
                      : o->template_text            ? "a chat template"
                      : o->license                  ? "a licence"
                      : o->system || o->messages    ? "a system prompt or messages"
                      : o->parser || o->renderer    ? "a parser or renderer"
                      : o->min_version              ? "a required version"
                                                    : NULL;
    return bad ? nb_fail(err, NB_E_USAGE, "%s of the model was given, but it is stored already: only a draft is added",
                         bad)
               : NB_OK;
}

/* The stored model's own config, as far as this version knows it: what the draft must fit. */
static nb_status read_target(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    const nb_layer *l = nb_manifest_find(&j->base->manifest, "config.json");
    if (!l) return NB_OK;
    nb_status st = read_object(j, l, "config.json", &s->config, err);
    l = nb_manifest_find(&j->base->manifest, "generation_config.json");
    if (st == NB_OK && l) st = read_object(j, l, "generation_config.json", &s->generation, err);
    if (st != NB_OK) return st;
    st = nb_config_read(&s->cfg, s->config.root, s->generation.root, j->arena, err);
    s->has_cfg = st == NB_OK;
    if (st == NB_E_UNSUPPORTED || st == NB_E_INVALID) { /* it was imported by names and shapes */
        memset(&s->cfg, 0, sizeof s->cfg);
        st = NB_OK;
    }
    return st;
}

nb_status nb_base_open(nb_job *j, const nb_name *name, nb_error *err)
{
    nb_str id = NB_LIT("unknown");
    nb_status st = check_options(j->o, err);
    if (st != NB_OK) return st;
    nb_base *b = NB_NEW(j->arena, nb_base);
    if (!b) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    st = nb_manifest_read(j->store, name, &b->manifest, err);
    if (st != NB_OK) return st;
    j->base = b; /* from here on nb_base_close frees it */
    b->keep = NB_NEW_N(j->arena, nb_layer, b->manifest.n_layers + 1);
    if (!b->keep) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < b->manifest.n_layers; i++)
        if (!of_draft(&b->manifest.layers[i])) b->keep[b->n_keep++] = b->manifest.layers[i];
    st = read_object(j, &b->manifest.config, "model config", &b->config, err);
    if (st == NB_OK) st = read_target(j, err);
    if (st != NB_OK) return st;
    nb_json_str(nb_json_get(b->config.root, "architecture"), &id);
    j->r->architecture = nb_arena_str(j->arena, id);
    j->r->source_kind = NB_LIT("stored");
    return j->r->architecture.p ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

/* The model is still what the plan saw. The caller holds the store, so that its blobs stay. */
nb_status nb_base_unchanged(nb_job *j, const nb_name *name, nb_error *err)
{
    nb_manifest now;
    if (!j->base) return NB_OK;
    nb_status st = nb_manifest_read(j->store, name, &now, err);
    if (st != NB_OK) return st;
    if (strcmp(now.hex, j->base->manifest.hex))
        st = nb_fail(err, NB_E_INVALID, "model %s changed while its draft was imported (E_SOURCE_CHANGED)", j->r->name);
    nb_manifest_free(&now);
    return st;
}

void nb_base_config(const nb_job *j, nb_buf *b)
{
    const nb_json *root = j->base->config.root;
    for (uint32_t i = 0; i < root->count; i++) {
        if (nb_str_is(root->keys[i], "draft")) continue;
        if (b->p[b->n - 1] != '{') nb_buf_add_char(b, ',');
        nb_json_write_string(b, root->keys[i], 0);
        nb_buf_add_char(b, ':');
        nb_json_write(b, &root->items[i], NB_JSON_COMPACT);
    }
}

void nb_base_close(nb_job *j)
{
    if (!j->base) return;
    nb_json_free(&j->base->config);
    nb_manifest_free(&j->base->manifest);
    j->base = NULL;
}
