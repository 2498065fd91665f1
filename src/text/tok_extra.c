/* text/tok_extra: the tokens that tokenizer_config.json and its older companions add to a vocabulary file, as transformers
 * reads them. */
#include "text/tok_extra.h"

#include <stdio.h>
#include <stdlib.h>

const char *const nb_tok_special_names[NB_SPECIAL_COUNT] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                            "pad_token", "cls_token", "mask_token"};

int nb_tok_special_place(nb_str name)
{
    for (int i = 0; i < NB_SPECIAL_COUNT; i++)
        if (nb_str_is(name, nb_tok_special_names[i])) return i;
    return -1;
}

bool nb_tok_content(const nb_json *v, nb_str *out)
{
    return nb_json_str(v, out) || nb_json_str(nb_json_get(v, "content"), out);
}

/* ---- one config out of the files ---- */

/* The texts that the config names as special, and those of the list. */
static bool specials_of(nb_map *out, const nb_json *config, const nb_json *list)
{
    nb_str s;
    bool ok = nb_map_init(out, 16);
    for (int i = 0; i < NB_SPECIAL_COUNT && ok; i++)
        if (nb_tok_content(nb_json_get(config, nb_tok_special_names[i]), &s)) ok = nb_map_put(out, s, 0, NULL, NULL);
    for (uint32_t i = 0; nb_json_is(list, NB_JSON_ARRAY) && i < list->count && ok; i++)
        if (nb_tok_content(&list->items[i], &s)) ok = nb_map_put(out, s, 0, NULL, NULL);
    return ok;
}

/* added_tokens.json, {"<pad>": 32000}, in the form of "added_tokens_decoder". NULL: memory. */
static nb_json *decoder_of(const nb_json *added, const nb_json *config, const nb_json *list, nb_arena *a)
{
    nb_map specials;
    bool ok = specials_of(&specials, config, list);
    nb_json *out = nb_json_new(a, NB_JSON_OBJECT);
    for (uint32_t i = 0; out && ok && i < added->count; i++) {
        uint64_t id;
        char key[24];
        if (!nb_json_u64(&added->items[i], &id)) continue;
        bool special = nb_map_get(&specials, added->keys[i], NULL);
        nb_json *one = nb_json_new(a, NB_JSON_OBJECT);
        snprintf(key, sizeof key, "%llu", (unsigned long long)id);
        ok = one && nb_json_set(a, one, NB_LIT("content"), nb_json_new_str(a, added->keys[i])) &&
             nb_json_set(a, one, NB_LIT("special"), nb_json_new_bool(a, special)) &&
             nb_json_set(a, one, NB_LIT("normalized"), nb_json_new_bool(a, !special)) &&
             nb_json_set(a, one, NB_LIT("older"), nb_json_new_bool(a, true)) &&
             nb_json_set(a, out, nb_str_of(key), one);
    }
    nb_map_free(&specials);
    return ok ? out : NULL;
}

static const char model_specific[] = "model_specific_special_tokens";

/* The items of both lists, `more` as it is where there is one list only. */
static const nb_json *both_lists(const nb_json *first, const nb_json *more, nb_arena *a)
{
    nb_json *out = first && nb_json_is(more, NB_JSON_ARRAY) ? nb_json_new(a, NB_JSON_ARRAY) : NULL;
    if (!first || !nb_json_is(more, NB_JSON_ARRAY)) return more;
    for (uint32_t i = 0; out && i < first->count; i++)
        if (!nb_json_push(a, out, &first->items[i])) return NULL;
    for (uint32_t i = 0; out && i < more->count; i++)
        if (!nb_json_push(a, out, &more->items[i])) return NULL;
    return out;
}

const nb_json *nb_tok_config(const nb_json *config, const nb_json *map, const nb_json *added, nb_arena *a)
{
    if (nb_json_get(config, "added_tokens_decoder") || (!map && !added)) return config;
    nb_json *out = nb_json_new(a, NB_JSON_OBJECT);
    const nb_json *list = nb_tok_extra_list(config); /* "additional_special_tokens" of the map do not count for those of
                                                        added_tokens.json: transformers does not look there */
    for (uint32_t i = 0; out && config && i < config->count; i++)
        if (!nb_json_set(a, out, config->keys[i], &config->items[i])) return NULL;
    for (uint32_t i = 0; out && nb_json_is(map, NB_JSON_OBJECT) && i < map->count; i++) {
        nb_str key = map->keys[i];
        const nb_json *v = &map->items[i];
        bool takes = nb_tok_special_place(key) >= 0 || !nb_json_get_str(out, key);
        if (nb_str_is(key, "additional_special_tokens")) takes = !nb_tok_extra_list(config);
        if (nb_str_is(key, "extra_special_tokens")) {
            const nb_json *own = nb_json_get(config, "extra_special_tokens"); /* a map of names stays beside a list */
            if (nb_json_is(own, NB_JSON_OBJECT) && !nb_json_set(a, out, nb_str_of(model_specific), own)) return NULL;
            takes = true, list = v = both_lists(list, v, a);
        }
        if (takes && (!v || !nb_json_set(a, out, key, v))) return NULL;
    }
    if (!out || !nb_json_is(added, NB_JSON_OBJECT) || !added->count) return out;
    nb_json *decoder = decoder_of(added, out, list, a);
    return decoder && nb_json_set(a, out, NB_LIT("added_tokens_decoder"), decoder) ? out : NULL;
}

const nb_json *nb_tok_extra_list(const nb_json *config)
{
    const nb_json *v = nb_json_get(config, "extra_special_tokens");
    if (!nb_json_is(v, NB_JSON_ARRAY) || !v->count) v = nb_json_get(config, "additional_special_tokens");
    return nb_json_is(v, NB_JSON_ARRAY) ? v : NULL;
}

/* ---- the list ---- */

static bool is_on(const nb_json *v, const char *key, bool otherwise)
{
    bool b;
    return nb_json_bool(nb_json_get(v, key), &b) ? b : otherwise;
}

static bool push(nb_tok_extras *x, const nb_json *v, int64_t id)
{
    nb_str content;
    if (!nb_tok_content(v, &content)) return false;
    bool special = is_on(v, "special", id < 0);
    uint32_t flags = special ? NB_AF_SPECIAL : 0;
    if (is_on(v, "single_word", false)) flags |= NB_AF_SINGLE_WORD;
    if (is_on(v, "lstrip", false)) flags |= NB_AF_LSTRIP;
    if (is_on(v, "rstrip", false)) flags |= NB_AF_RSTRIP;
    if (is_on(v, "normalized", !special)) flags |= NB_AF_NORMALIZED;
    if (content.n) x->v[x->n++] = (nb_tok_extra){content, id, flags, false, is_on(v, "older", false)};
    return true;
}

typedef struct reader {
    nb_tok_extras *x;
    nb_map decoder; /* text to place, of those with ids */
    nb_map said[2]; /* texts that came as objects, as strings */
    bool oom;
} reader;

static void index_decoder(reader *r)
{
    r->oom = !nb_map_init(&r->decoder, r->x->n) || !nb_map_init(&r->said[0], 8) || !nb_map_init(&r->said[1], 8);
    for (size_t i = 0; i < r->x->n && !r->oom; i++)
        if (!nb_map_put(&r->decoder, r->x->v[i].content, (uint32_t)i, NULL, NULL)) r->oom = true;
}

/* A token of the config's own lists: special, whatever its flags say. */
static void push_special(reader *r, const nb_json *v, bool named)
{
    nb_str content;
    uint32_t at;
    size_t n = r->x->n;
    bool had;
    if (r->oom || !nb_tok_content(v, &content)) return;
    if (nb_map_get(&r->decoder, content, &at)) {
        if (!named) return;
        r->x->v[at].flags |= NB_AF_SPECIAL;
        r->x->v[at].named = true;
        return;
    }
    if (!nb_map_put(&r->said[nb_json_is(v, NB_JSON_STRING)], content, 0, &had, NULL)) r->oom = true;
    if (r->oom || had || !push(r->x, v, -1) || r->x->n == n) return;
    r->x->v[n].flags |= NB_AF_SPECIAL;
    r->x->v[n].named = named;
}

/* Tokens of a model's own, "image_token" and the like: those with flags come before plain strings. */
static void push_own(reader *r, const nb_json *config, bool strings)
{
    for (uint32_t i = 0; nb_json_is(config, NB_JSON_OBJECT) && i < config->count; i++) {
        const nb_json *v = &config->items[i];
        if (nb_tok_special_place(config->keys[i]) < 0 && nb_str_ends(config->keys[i], "_token") &&
            nb_json_is(v, NB_JSON_STRING) == strings)
            push_special(r, v, true);
    }
}

static int by_id(const void *a, const void *b)
{
    const nb_tok_extra *x = a, *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

int64_t nb_tok_id_of(nb_str digits)
{
    int64_t id = 0;
    if (!digits.n || digits.n > 9) return -1;
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] < '0' || digits.p[i] > '9') return -1;
        id = id * 10 + digits.p[i] - '0';
    }
    return id;
}

static nb_status read_decoder(nb_tok_extras *x, const nb_json *decoder, nb_error *err)
{
    static const char at[] = "tokenizer_config.json: added_tokens_decoder";
    if (!nb_json_present(decoder)) return NB_OK;
    if (!nb_json_is(decoder, NB_JSON_OBJECT)) return nb_fail(err, NB_E_INVALID, "%s must be an object", at);
    for (uint32_t i = 0; i < decoder->count; i++) {
        int64_t id = nb_tok_id_of(decoder->keys[i]);
        if (id < 0 || id >= NB_TOK_MAX_IDS)
            return nb_fail(err, NB_E_INVALID, "%s has the id '%.*s'", at, NB_FMT_STR(decoder->keys[i]));
        if (!push(x, &decoder->items[i], id))
            return nb_fail(err, NB_E_INVALID, "%s: id %lld has no 'content'", at, (long long)id);
    }
    if (x->n) qsort(x->v, x->n, sizeof *x->v, by_id);
    return NB_OK;
}

nb_status nb_tok_extras_read(nb_tok_extras *x, const nb_json *config, nb_arena *a, nb_error *err)
{
    const nb_json *decoder = nb_json_get(config, "added_tokens_decoder"), *list = nb_tok_extra_list(config),
                  *maps[2] = {nb_json_get(config, model_specific), nb_json_get(config, "extra_special_tokens")};
    size_t most = (config ? config->count : 0) + (nb_json_is(decoder, NB_JSON_OBJECT) ? decoder->count : 0) +
                  (list ? list->count : 0);
    for (int k = 0; k < 2; k++)
        if (nb_json_is(maps[k], NB_JSON_OBJECT)) most += maps[k]->count;
        else maps[k] = NULL;
    *x = (nb_tok_extras){.v = NB_NEW_N(a, nb_tok_extra, most + 1)};
    if (!x->v) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    nb_status st = read_decoder(x, decoder, err);
    if (st) return st;
    reader r = {.x = x};
    index_decoder(&r);
    for (int i = 0; i < NB_SPECIAL_COUNT; i++) push_special(&r, nb_json_get(config, nb_tok_special_names[i]), true);
    push_own(&r, config, false);
    push_own(&r, config, true);
    for (int k = 0; k < 2; k++)
        for (uint32_t i = 0; maps[k] && i < maps[k]->count; i++) push_special(&r, &maps[k]->items[i], true);
    for (uint32_t i = 0; list && i < list->count; i++) push_special(&r, &list->items[i], false);
    nb_map_free(&r.decoder);
    for (int i = 0; i < 2; i++) nb_map_free(&r.said[i]);
    return r.oom ? nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory") : NB_OK;
}

/* ---- on top of a tokenizer.json ---- */

/* added_tokens.json gives way to the file, token by token; what the config lists in "added_tokens_decoder" counts instead of
 * what the file says of it, and other names only where they are in neither. Without that list a token of the file becomes
 * special when something names it. */
nb_status nb_tok_extras_add(nb_tok_build *b, const nb_json *config, nb_error *err)
{
    nb_tok_extras x;
    nb_status st = config ? nb_tok_extras_read(&x, config, b->arena, err) : NB_OK;
    if (!config || st) return st;
    size_t n = b->added.n;
    bool listed = nb_json_get(config, "added_tokens_decoder") && !(x.n && x.v[0].older);
    for (size_t i = 0; i < x.n && !st; i++) {
        const nb_tok_extra *t = &x.v[i];
        uint32_t k, flags = t->flags;
        bool in_file = b->added_index.slot && nb_map_get(&b->added_index, t->content, &k) && k < n,
             gives_way = t->older ? t->id < b->tokens && (b->flags[t->id] & NB_TF_USER) : t->id < 0 && in_file;
        if (gives_way) {
            if (listed || !t->named || !in_file) continue;
            flags = ((const nb_tok_added *)b->added.p)[k].flags | NB_AF_SPECIAL;
        }
        st = nb_tok_build_add(b, t->content, flags, err);
        if (st) nb_error_prefix(err, "tokenizer_config.json");
    }
    return st;
}
