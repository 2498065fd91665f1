/* The writer. */
#include "json/index.h"

#include <stdlib.h>

static void escape(nb_buf *out, uint32_t cp)
{
    switch (cp) {
    case '"': nb_buf_add(out, "\\\"", 2); return;
    case '\\': nb_buf_add(out, "\\\\", 2); return;
    case '\n': nb_buf_add(out, "\\n", 2); return;
    case '\r': nb_buf_add(out, "\\r", 2); return;
    case '\t': nb_buf_add(out, "\\t", 2); return;
    case '\b': nb_buf_add(out, "\\b", 2); return;
    case '\f': nb_buf_add(out, "\\f", 2); return;
    default: break;
    }
    if (cp < 0x10000) {
        nb_buf_printf(out, "\\u%04x", (unsigned)cp);
    } else {
        cp -= 0x10000;
        nb_buf_printf(out, "\\u%04x\\u%04x", 0xd800u + (unsigned)(cp >> 10), 0xdc00u + (unsigned)(cp & 0x3ff));
    }
}

void nb_json_write_string(nb_buf *out, nb_str s, int style)
{
    bool ascii = style & NB_JSON_ASCII;
    nb_buf_add_char(out, '"');
    size_t from = 0, i = 0; /* bytes from..i need no change */
    while (i < s.n) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\' && !(ascii && c == 0x7f)) {
            i++;
            continue;
        }
        size_t len;
        uint32_t cp = nb_utf8_decode(s.p + i, s.n - i, &len);
        if (cp >= 0x80 && cp != UINT32_MAX && !ascii) {
            i += len;
            continue;
        }
        nb_buf_add(out, s.p + from, i - from);
        i += len;
        from = i;
        /* A byte that is no UTF-8 has no place in JSON: the replacement character stands for it. */
        if (cp != UINT32_MAX)
            escape(out, cp);
        else if (ascii)
            escape(out, 0xfffd);
        else
            nb_buf_add_cp(out, 0xfffd);
    }
    if (s.n) nb_buf_add(out, s.p + from, s.n - from);
    nb_buf_add_char(out, '"');
}

static int by_key(const void *a, const void *b, void *keys)
{
    const nb_str *k = keys;
    return nb_str_cmp(k[*(const uint32_t *)a], k[*(const uint32_t *)b]);
}

/* Positions of an object's members sorted by key, malloc; NULL when memory is out. */
static uint32_t *sorted(const nb_json *v)
{
    uint32_t *order = malloc(v->count * sizeof *order);
    if (!order) return NULL;
    for (uint32_t i = 0; i < v->count; i++) order[i] = i;
    qsort_r(order, v->count, sizeof *order, by_key, v->keys);
    return order;
}

static void new_line(nb_buf *out, int style, unsigned depth)
{
    if (!(style & NB_JSON_PRETTY)) return;
    nb_buf_add_char(out, '\n');
    for (unsigned i = 0; i < depth; i++) nb_buf_add(out, "  ", 2);
}

static void write_value(nb_buf *out, const nb_json *v, int style, unsigned depth);

static void write_container(nb_buf *out, const nb_json *v, int style, unsigned depth)
{
    bool object = v->type == NB_JSON_OBJECT;
    uint32_t *order = NULL;
    /* No parsed value is deeper; one that was built deeper is refused like one that is too long. */
    if (depth >= NB_JSON_MAX_DEPTH) {
        out->oom = true;
        return;
    }
    if (object && v->count > 1 && (style & NB_JSON_SORT_KEYS)) {
        order = sorted(v);
        if (!order) {
            out->oom = true;
            return;
        }
    }
    nb_buf_add_char(out, object ? '{' : '[');
    for (uint32_t n = 0; n < v->count; n++) {
        uint32_t i = order ? order[n] : n;
        if (n) nb_buf_add_char(out, ',');
        new_line(out, style, depth + 1);
        if (object) {
            nb_json_write_string(out, v->keys[i], style);
            nb_buf_add_char(out, ':');
            if (style & NB_JSON_PRETTY) nb_buf_add_char(out, ' ');
        }
        write_value(out, &v->items[i], style, depth + 1);
    }
    if (v->count) new_line(out, style, depth);
    nb_buf_add_char(out, object ? '}' : ']');
    free(order);
}

static void write_value(nb_buf *out, const nb_json *v, int style, unsigned depth)
{
    switch ((nb_json_type)v->type) {
    case NB_JSON_NULL: nb_buf_add(out, "null", 4); break;
    case NB_JSON_FALSE: nb_buf_add(out, "false", 5); break;
    case NB_JSON_TRUE: nb_buf_add(out, "true", 4); break;
    case NB_JSON_NUMBER: nb_buf_add_str(out, v->text); break;
    case NB_JSON_STRING: nb_json_write_string(out, v->text, style); break;
    case NB_JSON_ARRAY:
    case NB_JSON_OBJECT: write_container(out, v, style, depth); break;
    }
}

void nb_json_write(nb_buf *out, const nb_json *v, int style) { write_value(out, v, style, 0); }
