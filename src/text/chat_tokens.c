/* text/chat_tokens: which special tokens a template sees, and under which names: what transformers 5 makes of
 * tokenizer_config.json and special_tokens_map.json. */
#include "text/chat.h"
#include "text/tok_extra.h"

typedef struct tokens {
    nb_arena *arena;
    nb_json *seen; /* name -> text, or null: said to be none */
    bool oom;
} tokens;

static void put(tokens *t, nb_str name, const nb_json *v)
{
    nb_str text;
    const nb_json *value = nb_tok_content(v, &text) ? nb_json_new_str(t->arena, text) : nb_json_new(t->arena, NB_JSON_NULL);
    if (!value || !nb_json_set(t->arena, t->seen, name, value)) t->oom = true;
}

/* Tokens of a model's own, {"image_token": "<image>"}. */
static void put_named(tokens *t, const nb_json *named)
{
    nb_str text;
    for (uint32_t i = 0; nb_json_is(named, NB_JSON_OBJECT) && i < named->count; i++)
        if (nb_tok_content(&named->items[i], &text)) put(t, named->keys[i], &named->items[i]);
}

/* The keys of a file that name tokens: the seven standard ones, and others that end in "_token". Null takes a token away.
 */
static void put_keys(tokens *t, const nb_json *file)
{
    nb_str text;
    for (uint32_t i = 0; nb_json_is(file, NB_JSON_OBJECT) && i < file->count; i++) {
        nb_str key = file->keys[i];
        const nb_json *v = &file->items[i];
        if (nb_tok_special_place(key) >= 0 || (nb_str_ends(key, "_token") && (v->type == NB_JSON_NULL || nb_tok_content(v, &text))))
            put(t, key, v);
    }
}

/* A model's own tokens that the file gives as plain strings. */
static void put_own(tokens *t, const nb_json *file)
{
    for (uint32_t i = 0; nb_json_is(file, NB_JSON_OBJECT) && i < file->count; i++) {
        nb_str key = file->keys[i];
        if (nb_tok_special_place(key) < 0 && nb_str_ends(key, "_token") && file->items[i].type == NB_JSON_STRING)
            put(t, key, &file->items[i]);
    }
}

/* special_tokens_map.json is read only beside a tokenizer_config.json without "added_tokens_decoder". There it wins over
 * the config, but for tokens of the model's own that the config gives as strings or by name. */
static void put_files(tokens *t, const nb_json *config, const nb_json *map)
{
    const nb_json *extra = nb_json_get(config, "extra_special_tokens"),
                  *old = nb_json_get(config, "additional_special_tokens");
    if (nb_json_get(config, "added_tokens_decoder")) map = NULL;
    const nb_json *other = nb_json_get(map, "extra_special_tokens");
    bool listed = nb_json_is(other ? other : extra, NB_JSON_ARRAY);
    if (!nb_json_present(extra) || !extra->count) extra = old, old = NULL;
    if (nb_json_get(map, "additional_special_tokens")) old = NULL;
    put_keys(t, config);
    put_keys(t, map);
    for (uint32_t i = 0; !listed && nb_json_is(old, NB_JSON_OBJECT) && i < old->count; i++)
        if (!nb_json_present(nb_json_get_str(t->seen, old->keys[i]))) put(t, old->keys[i], &old->items[i]);
    put_named(t, nb_json_get(config, "model_specific_special_tokens"));
    put_own(t, config);
    put_named(t, extra);
    put_named(t, other);
}

nb_status nb_chat_tokens(const nb_json *config, const nb_json *map, const nb_tokenizer *t, nb_arena *arena,
                         const nb_chat_token **out, size_t *n, nb_error *err)
{
    tokens all = {.arena = arena, .seen = nb_json_new(arena, NB_JSON_OBJECT)};
    *out = NULL, *n = 0;
    if (!all.seen) return nb_fail(err, NB_E_NO_MEMORY, "out of memory for the special tokens");
    put_files(&all, config, map);
    for (int i = 0; t && i < NB_SPECIAL_COUNT; i++) {
        nb_str own = nb_tokenizer_special(t, i);
        if (!own.p || nb_json_get(all.seen, nb_tok_special_names[i])) continue;
        const nb_json *v = nb_json_new_str(arena, own);
        if (!v || !nb_json_set(arena, all.seen, nb_str_of(nb_tok_special_names[i]), v)) all.oom = true;
    }
    nb_chat_token *list = NB_NEW_N(arena, nb_chat_token, all.seen->count + 1);
    for (uint32_t i = 0; list && i < all.seen->count; i++) {
        const nb_json *v = &all.seen->items[i];
        if (v->type != NB_JSON_STRING) continue;
        list[*n] = (nb_chat_token){nb_arena_str(arena, all.seen->keys[i]), nb_arena_str(arena, v->text)};
        if (!list[*n].name.p || !list[*n].text.p) all.oom = true;
        (*n)++;
    }
    *out = list;
    return list && !all.oom ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory for the special tokens");
}
