#include "cli/text_model.h"

bool nb_looks_like_path(const char *where)
{
    static const char *const begins[] = {"/", "./", "../"};
    static const char *const ends[] = {"/", ".json", ".model", ".tiktoken", ".gguf", ".jinja"};
    nb_str s = nb_str_of(where);
    bool path = !strcmp(where, ".") || !strcmp(where, "..");
    for (size_t i = 0; i < NB_COUNT(begins); i++) path |= nb_str_starts(s, begins[i]);
    for (size_t i = 0; i < NB_COUNT(ends); i++) path |= nb_str_ends(s, ends[i]);
    return path;
}

nb_status nb_text_model_open(nb_text_model *m, const char *where, nb_error *err)
{
    nb_name name;
    nb_network_options o = {.weights_only = true, .text_optional = true}; /* no weights are touched beyond their headers */
    *m = (nb_text_model){0};
    if (nb_looks_like_path(where)) return nb_network_from_path(&m->net, where, err);
    nb_status st = nb_name_parse(&name, where, err);
    if (st == NB_OK) st = nb_store_open(&m->store, NULL, err);
    if (st == NB_OK) st = nb_network_open(&m->net, m->store, &name, &o, err);
    if ((st == NB_E_NOT_FOUND || st == NB_E_USAGE) && nb_path_exists(where))
        return nb_network_from_path(&m->net, where, err);
    return st;
}

void nb_text_model_close(nb_text_model *m)
{
    nb_network_close(m->net);
    nb_store_close(m->store);
    *m = (nb_text_model){0};
}
