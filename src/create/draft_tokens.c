/* create/draft_tokens: a draft that has a tokenizer must have its target's: ids are what the two exchange.
 * specs/runner.md 1.6. */
#include "base/file.h"
#include "create/plan.h"

#define FILE_NAME "tokenizer.json"
#define MAX_BYTES (256u << 20)

static nb_str config_named(const nb_source *s, const char *name)
{
    for (size_t i = 0; i < s->n_configs; i++)
        if (nb_str_is(s->configs[i].name, name)) return s->configs[i].bytes;
    return (nb_str){0};
}

/* The target's, from its folder or from the store. p NULL: it has none. */
static nb_status target_text(const nb_job *j, nb_buf *b, nb_str *out, nb_error *err)
{
    const nb_layer *l = j->base ? nb_manifest_find(&j->base->manifest, FILE_NAME) : NULL;
    *out = config_named(&j->src, FILE_NAME);
    if (out->p || !l) return NB_OK;
    nb_buf path = {0};
    nb_blob_path(j->store, l->hex, &path);
    nb_status st =
        nb_buf_cstr(&path) ? nb_file_read(b, path.p, MAX_BYTES, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_buf_free(&path);
    *out = nb_buf_str(b);
    return st;
}

typedef struct vocab {
    nb_json_doc doc;
    nb_map ids;
} vocab;

static bool put(vocab *v, nb_str token, const nb_json *id)
{
    int64_t x;
    if (!nb_json_i64(id, &x) || x < 0 || x >= UINT32_MAX) return true;
    return nb_map_put(&v->ids, token, (uint32_t)x, NULL, NULL);
}

/* Tokens and ids: of `model.vocab`, an object, or a list of [token, score], and of `added_tokens`. */
static nb_status read_vocab(vocab *v, nb_str text, const char *what, nb_error *err)
{
    nb_status st = nb_json_parse(&v->doc, text.p, text.n, what, NULL, err);
    if (st != NB_OK) return st;
    const nb_json *m = nb_json_path(v->doc.root, "model.vocab"), *added = nb_json_get(v->doc.root, "added_tokens");
    bool ok = nb_map_init(&v->ids, (m ? m->count : 0) + 64u);
    nb_str token;
    for (uint32_t i = 0; nb_json_is(m, NB_JSON_OBJECT) && i < m->count && ok; i++)
        ok = put(v, m->keys[i], &m->items[i]);
    for (uint32_t i = 0; nb_json_is(m, NB_JSON_ARRAY) && i < m->count && ok; i++)
        if (nb_json_str(nb_json_at(&m->items[i], 0), &token)) ok = nb_map_put(&v->ids, token, i, NULL, NULL);
    for (uint32_t i = 0; nb_json_is(added, NB_JSON_ARRAY) && i < added->count && ok; i++)
        if (nb_json_str(nb_json_get(&added->items[i], "content"), &token))
            ok = put(v, token, nb_json_get(&added->items[i], "id"));
    return ok ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

static void free_vocab(vocab *v)
{
    nb_map_free(&v->ids);
    nb_json_free(&v->doc);
}

static nb_status differs(nb_str token, uint32_t own, const vocab *target, nb_error *err)
{
    nb_buf b = {0};
    uint32_t id = 0;
    bool has = nb_map_get(&target->ids, token, &id);
    if (token.n > 60) token.n = 60;
    nb_json_write_string(&b, token, NB_JSON_ASCII); /* in one line, whatever it holds */
    nb_status st = has ? nb_fail(err, NB_E_INVALID,
                                 "draft: " FILE_NAME ": token %.*s has the id %u, in the model it has %u (E_DRAFT)",
                                 NB_FMT_STR(nb_buf_str(&b)), own, id)
                       : nb_fail(err, NB_E_INVALID,
                                 "draft: " FILE_NAME ": token %.*s has the id %u, the model does not know it (E_DRAFT)",
                                 NB_FMT_STR(nb_buf_str(&b)), own);
    nb_buf_free(&b);
    return st;
}

/* The token of `a` with the lowest id that `b` does not have with this id. */
static bool first_difference(const vocab *a, const vocab *b, nb_str *token, uint32_t *own)
{
    bool any = false;
    for (size_t i = 0; i < a->ids.cap; i++) {
        uint32_t id, mine = a->ids.slot[i].value;
        nb_str t = {a->ids.slot[i].key, a->ids.slot[i].len};
        if (!a->ids.slot[i].used || (any && mine >= *own)) continue;
        if (nb_map_get(&b->ids, t, &id) && id == mine) continue;
        *token = t;
        *own = mine;
        any = true;
    }
    return any;
}

nb_status nb_draft_tokenizer(const nb_job *j, const nb_job *d, nb_error *err)
{
    nb_str own = config_named(&d->src, FILE_NAME), target = {0}, token;
    nb_buf text = {0};
    vocab a = {0}, b = {0};
    uint32_t id = 0;
    nb_status st = own.p ? target_text(j, &text, &target, err) : NB_OK;
    bool compare = st == NB_OK && own.p && target.p && !nb_str_eq(own, target);
    if (compare) st = read_vocab(&a, own, "draft: " FILE_NAME, err);
    if (compare && st == NB_OK) st = read_vocab(&b, target, FILE_NAME, err);
    if (compare && st == NB_OK && first_difference(&a, &b, &token, &id)) st = differs(token, id, &b, err);
    if (st == NB_OK && a.ids.count != b.ids.count)
        st = nb_fail(err, NB_E_INVALID, "draft: " FILE_NAME ": %zu tokens, the model has %zu (E_DRAFT)", a.ids.count,
                     b.ids.count);
    free_vocab(&a);
    free_vocab(&b);
    nb_buf_free(&text);
    return st;
}
