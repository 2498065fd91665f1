/* Fuzz: whatever the reader accepts is written, read again and must be the same text; look-ups find every key. */
#include "json/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
    if (!ok) abort();
}

static void visit(const nb_json *v, const nb_json_doc *d)
{
    check((uint64_t)v->src_off + v->src_len <= d->source.n);
    int64_t i;
    uint64_t u;
    double f;
    if (nb_json_i64(v, &i) && i >= 0) check(nb_json_u64(v, &u) && u == (uint64_t)i);
    if (nb_json_f64(v, &f)) {
        char text[32];
        double back;
        size_t len = nb_f64_repr(f, text);
        nb_json again = {.type = NB_JSON_NUMBER, .text = {text, len}};
        check(len < sizeof text && nb_json_f64(&again, &back) && memcmp(&f, &back, 8) == 0);
    }
    for (uint32_t k = 0; k < v->count; k++) {
        if (v->keys) check(nb_json_get_str(v, v->keys[k]) == &v->items[k]);
        visit(&v->items[k], d);
    }
}

static void begin(void *user) { ((nb_buf *)user)->n = 0; }
static void member(void *user, const nb_json *v)
{
    nb_buf *b = user;
    nb_buf_add_char(b, b->n ? ',' : '[');
    nb_json_write(b, v, NB_JSON_COMPACT);
}

/* An array that is handed over has the members that it has as a value. */
static void stream(const char *text, size_t n, nb_json_limits limits, const nb_json_doc *whole, const char *path, const nb_json *v)
{
    nb_buf got = {0}, want = {0};
    nb_json_doc d;
    nb_error e;
    nb_json_stream s = {path, begin, member, &got};
    limits.stream = &s;
    check(nb_json_parse(&d, text, n, "streamed", &limits, &e) == NB_OK && d.duplicate_keys == whole->duplicate_keys);
    if (nb_json_is(v, NB_JSON_ARRAY)) {
        nb_json_write(&want, v, NB_JSON_COMPACT);
        nb_buf_add_cstr(&got, got.n ? "]" : "[]");
        check(nb_str_eq(nb_buf_str(&got), nb_buf_str(&want)));
    }
    nb_buf_free(&got);
    nb_buf_free(&want);
    nb_json_free(&d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    nb_json_limits limits = {.flags = data[0] & 15, .depth = data[0] & 16 ? 8 : 0, .max_string = data[0] & 32 ? 20 : 0};
    nb_json_doc d, again;
    nb_error e;
    if (nb_json_parse(&d, (const char *)data + 1, n - 1, "input", &limits, &e)) return 0;
    visit(d.root, &d);
    stream((const char *)data + 1, n - 1, limits, &d, "a", nb_json_get(d.root, "a"));
    stream((const char *)data + 1, n - 1, limits, &d, "a.b", nb_json_path(d.root, "a.b"));
    static const int style[] = {NB_JSON_COMPACT, NB_JSON_PRETTY, NB_JSON_ASCII, NB_JSON_PRETTY | NB_JSON_ASCII};
    nb_buf first = {0};
    nb_json_write(&first, d.root, NB_JSON_COMPACT);
    check(!first.oom);
    for (size_t i = 0; i < NB_COUNT(style); i++) {
        nb_buf out = {0}, second = {0};
        nb_json_write(&out, d.root, style[i]);
        check(nb_json_parse(&again, out.p, out.n, "again", &(nb_json_limits){.flags = NB_JSON_UNIQUE_KEYS}, &e) ==
              NB_OK);
        nb_json_write(&second, again.root, NB_JSON_COMPACT);
        check(nb_str_eq(nb_buf_str(&first), nb_buf_str(&second)));
        nb_json_free(&again);
        nb_buf_free(&second);
        nb_buf_free(&out);
    }
    nb_buf_free(&first);
    nb_json_free(&d);
    return 0;
}
