/* json: ordered JSON values that keep each number as it was written, with source spans. Reader and writers.
 *
 * A document owns an arena; values point into it and into the source text, which must outlive the document
 * (nb_json_parse copies it when NB_JSON_COPY is given). Key order is source order.
 */
#ifndef NB_JSON_JSON_H
#define NB_JSON_JSON_H

#include "base/base.h"

typedef enum nb_json_type {
    NB_JSON_NULL,
    NB_JSON_FALSE,
    NB_JSON_TRUE,
    NB_JSON_NUMBER, /* text: the literal as written ("1.0", "1e3", "12345678901234567890") */
    NB_JSON_STRING, /* text: decoded UTF-8, may hold NUL */
    NB_JSON_ARRAY,
    NB_JSON_OBJECT,
} nb_json_type;

typedef struct nb_json nb_json;
struct nb_json {
    uint8_t type;    /* nb_json_type */
    uint32_t count;  /* items of an array or object */
    nb_str text;     /* literal or decoded string */
    nb_json *items;  /* array: count values; object: count values, keys beside them */
    nb_str *keys;    /* object: count decoded keys */
    uint32_t src_off, src_len; /* span of the value in the source */
};

enum {
    NB_JSON_COPY = 1,        /* copy the source, so that the caller may free it */
    NB_JSON_UNIQUE_KEYS = 2, /* a duplicate key is an error; else the last one wins (first position kept) and it is counted */
    NB_JSON_TRAILING_NUL = 4,/* tolerate NUL padding after the value */
    NB_JSON_LONE_SURROGATES = 8, /* \ud800 alone becomes U+FFFD and is counted; else an error with its offset */
};

/* An array that is not kept: its members are handed over one by one as they are read, and the document has it empty. For
 * lists so long that their nodes would cost more than the reading. */
typedef struct nb_json_stream {
    const char *path;          /* keys from the root, "a.b" */
    void (*begin)(void *user); /* an array begins; once more where the same key comes twice: what came before does not count */
    void (*member)(void *user, const nb_json *v); /* v, and what it holds if it is an array, live as long as the call; texts stay */
    void *user;
} nb_json_stream;

typedef struct nb_json_limits {
    uint32_t depth;       /* 0: 64 */
    uint64_t max_bytes;   /* 0: 256 MiB; source size */
    uint64_t max_string;  /* 0: 16 MiB */
    uint32_t flags;
    const nb_json_stream *stream; /* NULL: none */
} nb_json_limits;

typedef struct nb_json_doc {
    nb_json *root;
    nb_arena *arena;
    nb_str source;
    uint32_t duplicate_keys, lone_surrogates; /* counted, see flags */
} nb_json_doc;

/* Parses one JSON text (strict RFC 8259, UTF-8 validated). `what` names the source in errors: "config.json: line 3, column 7: ...". limits may be NULL. NB_E_INVALID or NB_E_NO_MEMORY. */
nb_status nb_json_parse(nb_json_doc *doc, const char *text, size_t n, const char *what, const nb_json_limits *limits, nb_error *err);
void nb_json_free(nb_json_doc *doc);

/* Look-ups: NULL for a missing key, a value that is not an object, or v == NULL. Large objects (> 16 keys) may be indexed by the parser; look-up is then O(1). */
const nb_json *nb_json_get(const nb_json *v, const char *key);
const nb_json *nb_json_get_str(const nb_json *v, nb_str key);
const nb_json *nb_json_at(const nb_json *v, size_t i); /* array item or NULL */
/* "a.b.c" */
const nb_json *nb_json_path(const nb_json *v, const char *path);

static inline bool nb_json_is(const nb_json *v, nb_json_type t) { return v && v->type == t; }
static inline bool nb_json_present(const nb_json *v) { return v && v->type != NB_JSON_NULL; } /* null equals absent */
static inline bool nb_json_is_bool(const nb_json *v) { return v && (v->type == NB_JSON_TRUE || v->type == NB_JSON_FALSE); }

/* Typed reads: false when the type is wrong or out of range. Integers accept integral floats ("1.0", "1e3"). */
bool nb_json_i64(const nb_json *v, int64_t *out);
bool nb_json_u64(const nb_json *v, uint64_t *out);
bool nb_json_f64(const nb_json *v, double *out); /* correctly rounded, locale independent */
bool nb_json_bool(const nb_json *v, bool *out);
bool nb_json_str(const nb_json *v, nb_str *out);
bool nb_json_is_int_literal(const nb_json *v); /* no '.', 'e', 'E' */

/* ---- building: values in an arena ---- */
nb_json *nb_json_new(nb_arena *a, nb_json_type type);
nb_json *nb_json_new_str(nb_arena *a, nb_str s);
nb_json *nb_json_new_i64(nb_arena *a, int64_t v);
nb_json *nb_json_new_f64(nb_arena *a, double v); /* shortest text that reads back the same */
nb_json *nb_json_new_bool(nb_arena *a, bool v);
/* Append; false when memory is out. `value` is copied shallowly into the container. */
bool nb_json_push(nb_arena *a, nb_json *array, const nb_json *value);
bool nb_json_set(nb_arena *a, nb_json *object, nb_str key, const nb_json *value); /* replaces an equal key in place */

/* ---- writing ---- */
enum { NB_JSON_COMPACT = 0, NB_JSON_PRETTY = 1, NB_JSON_ASCII = 2 /* \uXXXX for all beyond ASCII */, NB_JSON_SORT_KEYS = 4 };
void nb_json_write(nb_buf *out, const nb_json *v, int style); /* numbers as written */
void nb_json_write_string(nb_buf *out, nb_str s, int style);  /* with quotes; escapes only where JSON requires */
/* Shortest decimal text that reads back as v, in Python's repr() form (1e+22, 0.1, 1.0, inf, nan); at most 32 bytes, NUL-terminated; returns length. */
size_t nb_f64_repr(double v, char out[32]);

#endif
