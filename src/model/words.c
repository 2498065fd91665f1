/* Names and lists of words: what the table rows are matched with. */
#include "model/arch_row.h"

/* Takes the first word off a list "a|b|c". */
static nb_str next_word(const char **words)
{
    const char *p = *words;
    size_t n = strcspn(p, "|");
    *words = p[n] ? p + n + 1 : NULL;
    return (nb_str){p, n};
}

bool nb_word_in(const char *words, nb_str word)
{
    while (words)
        if (nb_str_eq(next_word(&words), word)) return true;
    return false;
}

bool nb_has_any(nb_str s, const char *words)
{
    while (words)
        if (nb_str_find(s, next_word(&words), 0) >= 0) return true;
    return false;
}

bool nb_ends_any(nb_str s, const char *words)
{
    while (words) {
        nb_str w = next_word(&words);
        if (s.n >= w.n && memcmp(s.p + s.n - w.n, w.p, w.n) == 0) return true;
    }
    return false;
}

bool nb_begins_any(nb_str s, const char *words)
{
    while (words) {
        nb_str w = next_word(&words);
        if (s.n >= w.n && memcmp(s.p, w.p, w.n) == 0) return true;
    }
    return false;
}

int32_t nb_name_layer(nb_str name)
{
    static const char key[] = ".layers.";
    size_t i = 0;
    if (nb_begins_any(name, "layers.")) {
        i = sizeof key - 2;
    } else {
        int64_t at = nb_str_find(name, NB_LIT(key), 0);
        if (at < 0) return -1;
        i = (size_t)at + sizeof key - 1;
    }
    int32_t v = 0;
    size_t from = i;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9'; i++) {
        if (v > 100000) return -1;
        v = v * 10 + (name.p[i] - '0');
    }
    return i > from && i < name.n && name.p[i] == '.' ? v : -1;
}

nb_str nb_name_body(nb_str name)
{
    static const char *const outer[] = {"model.language_model.", "language_model.model.", "language_model.", "model."};
    for (size_t i = 0; i < NB_COUNT(outer); i++) {
        size_t n = strlen(outer[i]);
        if (nb_str_starts(name, outer[i])) return (nb_str){name.p + n, name.n - n};
    }
    return name;
}
