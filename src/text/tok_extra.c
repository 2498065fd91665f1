/* text/tok_extra: the tokens that tokenizer_config.json and its older companions add to a vocabulary file, as transformers
 * reads them. */
#include "text/tok_extra.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const standard[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

static bool is_standard(nb_str key)
{
    for (size_t i = 0; i < NB_COUNT(standard); i++)
        if (nb_str_is(key, standard[i])) return true;
    return false;
}

/* A token is a string or {"content": string, ...}. */
static bool content_of(const nb_json *v, nb_str *out)
{
    return nb_json_str(v, out) || nb_json_str(nb_json_get(v, "content"), out);
}

/* ---- one config out of the files ---- */

static bool is_special_in(const nb_json *config, nb_str content)
{
    nb_str s;
    for (size_t i = 0; i < NB_COUNT(standard); i++)
        if (content_of(nb_json_get(config, standard[i]), &s) && nb_str_eq(s, content)) return true;
    const nb_json *list = nb_tok_extra_list(config);
    for (uint32_t i = 0; list && i < list->count; i++)
        if (content_of(&list->items[i], &s) && nb_str_eq(s, content)) return true;
    return false;
}

/* added_tokens.json, {"<pad>": 32000}, in the form of "added_tokens_decoder". */
static nb_json *decoder_of(const nb_json *added, const nb_json *config, nb_arena *a)
{
    nb_json *out = nb_json_new(a, NB_JSON_OBJECT);
    for (uint32_t i = 0; out && i < added->count; i++) {
        uint64_t id;
        char key[24];
        if (!nb_json_u64(&added->items[i], &id)) continue;
        bool special = is_special_in(config, added->keys[i]);
        nb_json *one = nb_json_new(a, NB_JSON_OBJECT);
        snprintf(key, sizeof key, "%llu", (unsigned long long)id);
        if (!one || !nb_json_set(a, one, NB_LIT("content"), nb_json_new_str(a, added->keys[i])) ||
            !nb_json_set(a, one, NB_LIT("special"), nb_json_new_bool(a, special)) ||
            !nb_json_set(a, one, NB_LIT("normalized"), nb_json_new_bool(a, !special)) ||
            !nb_json_set(a, out, nb_str_of(nb_arena_dup(a, key, strlen(key))), one))
            return NULL;
    }
    return out;
}

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
    for (uint32_t i = 0; out && config && i < config->count; i++)
        if (!nb_json_set(a, out, config->keys[i], &config->items[i])) return NULL;
    for (uint32_t i = 0; out && nb_json_is(map, NB_JSON_OBJECT) && i < map->count; i++) {
        nb_str key = map->keys[i];
        const nb_json *v = &map->items[i];
        bool takes = is_standard(key) || !nb_json_get_str(out, key);
        if (nb_str_is(key, "additional_special_tokens")) takes = !nb_tok_extra_list(config);
        if (nb_str_is(key, "extra_special_tokens")) takes = true, v = both_lists(nb_tok_extra_list(config), v, a);
        if (takes && (!v || !nb_json_set(a, out, key, v))) return NULL;
    }
    if (!out || !nb_json_is(added, NB_JSON_OBJECT)) return out;
    nb_json *decoder = decoder_of(added, out, a);
    return decoder && nb_json_set(a, out, NB_LIT("added_tokens_decoder"), decoder) ? out : NULL;
}

const nb_json *nb_tok_extra_list(const nb_json *config)
{
    const nb_json *v = nb_json_get(config, "extra_special_tokens");
    if (!nb_json_present(v) || !v->count) v = nb_json_get(config, "additional_special_tokens");
    return nb_json_is(v, NB_JSON_ARRAY) ? v : NULL;
}

/* ---- the list ---- */

static bool is_on(const nb_json *v, const char *key, bool otherwise)
{
    bool b;
    return nb_json_bool(nb_json_get(v, key), &b) ? b : otherwise;
}

/* named: it stands under a name, and is special whatever its flags say. */
static void push(nb_tok_extras *x, const nb_json *v, int64_t id, bool named)
{
    nb_str content;
    if (!content_of(v, &content) || !content.n) return;
    for (size_t i = 0; named && i < x->n; i++)
        if (nb_str_eq(x->v[i].content, content)) {
            x->v[i].flags |= NB_AF_SPECIAL;
            return;
        }
    bool special = named || is_on(v, "special", false);
    uint32_t flags = special ? NB_AF_SPECIAL : 0;
    if (is_on(v, "single_word", false)) flags |= NB_AF_SINGLE_WORD;
    if (is_on(v, "lstrip", false)) flags |= NB_AF_LSTRIP;
    if (is_on(v, "rstrip", false)) flags |= NB_AF_RSTRIP;
    if (is_on(v, "normalized", !special)) flags |= NB_AF_NORMALIZED;
    x->v[x->n++] = (nb_tok_extra){content, id, flags};
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

nb_status nb_tok_extras_read(nb_tok_extras *x, const nb_json *config, nb_arena *a, nb_error *err)
{
    const nb_json *decoder = nb_json_get(config, "added_tokens_decoder"), *list = nb_tok_extra_list(config),
                  *named = nb_json_get(config, "extra_special_tokens");
    bool is_map = nb_json_is(named, NB_JSON_OBJECT);
    size_t most = NB_COUNT(standard) + (decoder ? decoder->count : 0) + (list ? list->count : 0) +
                  (is_map ? named->count : 0);
    *x = (nb_tok_extras){.v = NB_NEW_N(a, nb_tok_extra, most)};
    if (!x->v) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    for (uint32_t i = 0; nb_json_is(decoder, NB_JSON_OBJECT) && i < decoder->count; i++) {
        int64_t id = nb_tok_id_of(decoder->keys[i]);
        if (id < 0 || id >= NB_TOK_MAX_IDS)
            return nb_fail(err, NB_E_INVALID, "tokenizer_config.json: added_tokens_decoder has the id '%.*s'",
                           NB_FMT_STR(decoder->keys[i]));
        push(x, &decoder->items[i], id, false);
    }
    if (x->n) qsort(x->v, x->n, sizeof *x->v, by_id);
    for (size_t i = 0; i < NB_COUNT(standard); i++) push(x, nb_json_get(config, standard[i]), -1, true);
    for (uint32_t i = 0; is_map && i < named->count; i++) push(x, &named->items[i], -1, true);
    for (uint32_t i = 0; list && i < list->count; i++) push(x, &list->items[i], -1, true);
    return NB_OK;
}
