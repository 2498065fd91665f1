/* text/chat_request: a chat request as JSON, the same for the library and for `nibble template`. */
#include "text/chat.h"

static const char *const fields[] = {"messages", "tools", "documents", "add_generation_prompt",
                                     "continue_final_message", "trust_content"};

static bool is_field(nb_str key)
{
    for (size_t i = 0; i < NB_COUNT(fields); i++)
        if (nb_str_is(key, fields[i])) return true;
    return false;
}

static bool add_variables(nb_json *vars, const nb_json *from, nb_arena *arena)
{
    for (uint32_t i = 0; from && i < from->count; i++)
        if (!is_field(from->keys[i]) && !nb_json_set(arena, vars, from->keys[i], &from->items[i])) return false;
    return true;
}

/* A field that is true or false; null counts as absent. */
static nb_status read_bool(const nb_json *v, const char *field, bool *out, bool *given, nb_error *err)
{
    *given = nb_json_bool(v, out);
    if (*given || !nb_json_present(v)) return NB_OK;
    return nb_fail(err, NB_E_USAGE, "%s of the request is not true or false", field);
}

nb_status nb_chat_request_read(nb_chat_request *r, const nb_json *root, const nb_json *more, nb_arena *arena,
                               nb_error *err)
{
    *r = (nb_chat_request){0};
    if (!nb_json_is(root, NB_JSON_OBJECT)) return nb_fail(err, NB_E_USAGE, "the request is not a JSON object");
    nb_json *vars = nb_json_new(arena, NB_JSON_OBJECT);
    if (!vars || !add_variables(vars, root, arena) || !add_variables(vars, more, arena))
        return nb_fail(err, NB_E_NO_MEMORY, "no memory for the request's variables");
    const nb_json *v[NB_COUNT(fields)];
    for (size_t i = 0; i < NB_COUNT(fields); i++) {
        v[i] = nb_json_get(more, fields[i]);
        if (!v[i]) v[i] = nb_json_get(root, fields[i]);
    }
    *r = (nb_chat_request){.messages = v[0], .tools = v[1], .documents = v[2], .variables = vars};
    bool asked, ignored;
    nb_status st = read_bool(v[3], fields[3], &r->add_generation_prompt, &asked, err);
    if (st == NB_OK) st = read_bool(v[4], fields[4], &r->continue_final_message, &ignored, err);
    if (st == NB_OK) st = read_bool(v[5], fields[5], &r->trust_content, &ignored, err);
    if (!asked) r->add_generation_prompt = !r->continue_final_message;
    return st;
}
