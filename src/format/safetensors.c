/* The safetensors reader: 8 bytes N, N bytes of JSON, data. Every check of specs/create.md 1.6 stands here once, with
 * its code in the error text; a tensor that comes out lies inside the file, and no two overlap. */
#include "format/safetensors.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_HEADER = 100000000, MAX_TENSORS = 4000000, MAX_NAME = 1024, MAX_VALUES = 12000000 };

/* Where the reader is, for errors: "PATH: tensor T: ... (CODE)". */
typedef struct reader {
    nb_st_file *f;
    const char *path;
    uint64_t avail; /* bytes of the data section */
    nb_error *err;
    bool extra_keys;
} reader;

/* The end of a long path: an error must have room for its code. */
static const char *tail(const char *path)
{
    size_t n = strlen(path);
    return n > 120 ? path + n - 120 : path;
}

static nb_status bad(const reader *r, const char *what, const char *code)
{
    return nb_fail(r->err, NB_E_INVALID, "%s: %s (%s)", r->path, what, code);
}

/* The same for one tensor. */
static nb_status bad_tensor(const reader *r, nb_str name, const char *code, const char *fmt, ...) NB_PRINTF(4, 5);
static nb_status bad_tensor(const reader *r, nb_str name, const char *code, const char *fmt, ...)
{
    char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return nb_fail(r->err, NB_E_INVALID, "%s: tensor %.*s: %s (%s)", r->path, name.n < 120 ? (int)name.n : 120, name.p,
                   text, code);
}

/* An unsigned integer literal: digits only. false: it is something else, or beyond 64 bits. */
static bool digits(const nb_json *v, uint64_t *out)
{
    if (!nb_json_is(v, NB_JSON_NUMBER) || v->text.n == 0) return false;
    uint64_t x = 0;
    for (size_t i = 0; i < v->text.n; i++) {
        char c = v->text.p[i];
        if (c < '0' || c > '9' || !nb_mul_u64(x, 10, &x) || !nb_add_u64(x, (uint64_t)(c - '0'), &x)) return false;
    }
    *out = x;
    return true;
}

static nb_status read_shape(const reader *r, nb_st_tensor *t, const nb_json *shape)
{
    if (!nb_json_is(shape, NB_JSON_ARRAY)) return bad_tensor(r, t->name, "E_ST_ENTRY", "shape is missing or no list");
    if (shape->count > NB_COUNT(t->dim))
        return bad_tensor(r, t->name, "E_ST_SHAPE", "rank %u is above 8", shape->count);
    t->rank = (uint8_t)shape->count;
    for (uint32_t i = 0; i < shape->count; i++) {
        const nb_json *d = nb_json_at(shape, i);
        uint64_t x;
        if (!digits(d, &x) || x > INT64_MAX)
            return bad_tensor(r, t->name, "E_ST_SHAPE", "dimension %u is '%.*s', not a plain integer below 2^63", i,
                              d->text.n < 40 ? (int)d->text.n : 40, d->text.p ? d->text.p : "");
        t->dim[i] = (int64_t)x;
    }
    return NB_OK;
}

/* Bytes from shape and dtype, checked against the offsets, and these against the file. */
static nb_status check_range(const reader *r, nb_st_tensor *t, const nb_json *offs)
{
    uint64_t count = 1, bits, begin, end;
    if (!nb_st_count(t, &count) || !nb_mul_u64(count, (uint64_t)nb_dtype_bits(t->dtype), &bits))
        return bad_tensor(r, t->name, "E_ST_OVERFLOW", "the product of its dimensions overflows");
    if (bits % 8)
        return bad_tensor(r, t->name, "E_ST_MISALIGNED", "%llu bits of %s are no whole bytes", (unsigned long long)bits,
                          nb_dtype_name(t->dtype));
    if (!nb_json_is(offs, NB_JSON_ARRAY) || offs->count != 2)
        return bad_tensor(r, t->name, "E_ST_ENTRY", "data_offsets is no list of two");
    if (!digits(nb_json_at(offs, 0), &begin) || !digits(nb_json_at(offs, 1), &end))
        return bad_tensor(r, t->name, "E_ST_OFFSETS", "data_offsets are not plain integers");
    if (begin > end)
        return bad_tensor(r, t->name, "E_ST_OFFSETS", "data_offsets [%llu,%llu] run backwards",
                          (unsigned long long)begin, (unsigned long long)end);
    if (end > r->avail)
        return bad_tensor(r, t->name, "E_ST_RANGE", "data_offsets end at %llu, the file has %llu data bytes",
                          (unsigned long long)end, (unsigned long long)r->avail);
    if (end - begin != bits / 8)
        return bad_tensor(r, t->name, "E_ST_SIZE", "data_offsets hold %llu bytes, dtype and shape need %llu",
                          (unsigned long long)(end - begin), (unsigned long long)(bits / 8));
    t->off = r->f->data_off + begin;
    t->len = end - begin;
    return NB_OK;
}

static nb_status check_name(const reader *r, nb_str name)
{
    if (name.n == 0 || name.n > MAX_NAME) return bad_tensor(r, name, "E_ST_NAME", "a name of %zu bytes", name.n);
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7f)
            return bad_tensor(r, name, "E_ST_NAME", "its name has a control character");
    return NB_OK;
}

static nb_status read_entry(reader *r, nb_st_tensor *t, nb_str name, const nb_json *entry)
{
    nb_status st = check_name(r, name);
    if (st != NB_OK) return st;
    t->name = name;
    const nb_json *dtype = nb_json_get(entry, "dtype");
    nb_str type;
    if (!nb_json_is(entry, NB_JSON_OBJECT)) return bad_tensor(r, name, "E_ST_ENTRY", "its entry is no object");
    if (!nb_json_str(dtype, &type)) return bad_tensor(r, name, "E_ST_ENTRY", "dtype is missing or no string");
    t->dtype = nb_dtype_parse(type);
    if (t->dtype == NB_DT_NONE)
        return bad_tensor(r, name, "E_ST_DTYPE", "unknown dtype '%.*s'", type.n < 40 ? (int)type.n : 40, type.p);
    if (entry->count > 3) r->extra_keys = true;
    st = read_shape(r, t, nb_json_get(entry, "shape"));
    return st != NB_OK ? st : check_range(r, t, nb_json_get(entry, "data_offsets"));
}

static nb_status read_metadata(const reader *r, const nb_json *meta)
{
    if (meta->type == NB_JSON_NULL) return NB_OK; /* MLX writes null */
    if (meta->type != NB_JSON_OBJECT) return bad(r, "__metadata__ is no object", "E_ST_METADATA");
    for (uint32_t i = 0; i < meta->count; i++)
        if (meta->items[i].type != NB_JSON_STRING)
            return bad_tensor(r, meta->keys[i], "E_ST_METADATA", "a value of __metadata__ that is no string");
    r->f->metadata = meta;
    return NB_OK;
}

static int by_name(const void *a, const void *b)
{
    return nb_str_cmp(((const nb_st_tensor *)a)->name, ((const nb_st_tensor *)b)->name);
}

/* By place; empty tensors are left out of the comparison of ranges, so their order does not matter. */
static int by_offset(const void *a, const void *b)
{
    const nb_st_tensor *x = *(const nb_st_tensor *const *)a, *y = *(const nb_st_tensor *const *)b;
    if (x->off != y->off) return x->off < y->off ? -1 : 1;
    return x->len != y->len ? (x->len < y->len ? -1 : 1) : nb_str_cmp(x->name, y->name);
}

/* No two ranges share a byte; holes are noted, or refused for our own files. */
static nb_status check_layout(const reader *r, int flags)
{
    nb_st_file *f = r->f;
    const nb_st_tensor **order = NB_NEW_N(f->arena, const nb_st_tensor *, f->n);
    if (!order) return nb_fail(r->err, NB_E_NO_MEMORY, "%s: out of memory", r->path);
    for (size_t i = 0; i < f->n; i++) order[i] = &f->tensors[i];
    qsort(order, f->n, sizeof *order, by_offset);
    uint64_t cursor = f->data_off;
    const nb_st_tensor *before = NULL;
    for (size_t i = 0; i < f->n; i++) {
        const nb_st_tensor *t = order[i];
        if (t->len == 0) continue;
        if (t->off < cursor)
            return bad_tensor(r, t->name, "E_ST_OVERLAP", "its data overlaps that of %.*s",
                              before->name.n < 120 ? (int)before->name.n : 120, before->name.p);
        if (t->off > cursor) f->has_holes = true;
        cursor = t->off + t->len;
        before = t;
    }
    if (cursor != f->file_size) f->has_holes = true;
    if (f->has_holes && (flags & NB_ST_STRICT)) return bad(r, "bytes that belong to no tensor", "E_ST_HOLE");
    return NB_OK;
}

/* JSON values of a text, roughly: commas and opening brackets outside strings. A value takes 50 times the memory of the
 * two bytes that may state it, so their number is bounded before they are parsed. */
static uint64_t count_values(const char *text, size_t n)
{
    uint64_t count = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"')
            in_string = !in_string;
        else if (in_string && c == '\\')
            i++;
        else if (!in_string && (c == ',' || c == '[' || c == '{'))
            count++;
    }
    return count;
}

/* The header's JSON. A second pass without the rule on keys tells a duplicate key from other faults. */
static nb_status parse_header(const reader *r, const char *text, size_t n)
{
    nb_json_limits limits = {
        .depth = 8, .max_bytes = MAX_HEADER, .max_string = MAX_HEADER, .flags = NB_JSON_UNIQUE_KEYS};
    nb_error why = {0};
    size_t good = nb_utf8_valid_prefix(text, n);
    if (good != n)
        return nb_fail(r->err, NB_E_INVALID, "%s: header byte %zu is not valid UTF-8 (E_ST_UTF8)", r->path, good);
    if (count_values(text, n) > MAX_VALUES)
        return nb_fail(r->err, NB_E_INVALID, "%s: the header has more than %d values (E_ST_TOO_MANY)", r->path,
                       MAX_VALUES);
    nb_status st = nb_json_parse(&r->f->header, text, n, "header", &limits, &why);
    if (st == NB_OK && r->f->header.root->type == NB_JSON_OBJECT) return NB_OK;
    if (st == NB_OK) return bad(r, "the header is no JSON object", "E_ST_JSON");
    if (st == NB_E_NO_MEMORY) return nb_fail(r->err, st, "%s: %s", r->path, why.text);
    nb_json_doc again = {0};
    limits.flags = 0;
    bool duplicate = nb_json_parse(&again, text, n, "header", &limits, NULL) == NB_OK;
    if (duplicate) nb_json_free(&again);
    memset(&r->f->header, 0, sizeof r->f->header);
    return nb_fail(r->err, NB_E_INVALID, "%s: %.300s (%s)", r->path, why.text,
                   duplicate ? "E_ST_DUP_KEY" : "E_ST_JSON");
}

/* text: the header's N bytes, owned by the arena of r->f. */
static nb_status read_header(reader *r, const char *text, size_t n, int flags)
{
    nb_st_file *f = r->f;
    nb_status st = parse_header(r, text, n);
    if (st != NB_OK) return st;
    const nb_json *root = f->header.root;
    if (root->count > MAX_TENSORS)
        return nb_fail(r->err, NB_E_INVALID, "%s: %u tensors, at most %d are read (E_ST_TOO_MANY)", r->path,
                       root->count, MAX_TENSORS);
    f->tensors = NB_NEW_N(f->arena, nb_st_tensor, root->count);
    if (!f->tensors) return nb_fail(r->err, NB_E_NO_MEMORY, "%s: out of memory", r->path);
    for (uint32_t i = 0; i < root->count; i++) {
        if (nb_str_is(root->keys[i], "__metadata__"))
            st = read_metadata(r, &root->items[i]);
        else
            st = read_entry(r, &f->tensors[f->n++], root->keys[i], &root->items[i]);
        if (st != NB_OK) return st;
    }
    if (r->extra_keys) nb_log(1, "%s: keys beside dtype, shape and data_offsets are ignored", r->path);
    qsort(f->tensors, f->n, sizeof *f->tensors, by_name);
    return check_layout(r, flags);
}

/* What both entries share: the eight length bytes. *n gets N. */
static nb_status read_length(const reader *r, const uint8_t *first, uint64_t size, uint64_t *n)
{
    uint64_t len = nb_load_u64(first);
    if (len < 2 || len > MAX_HEADER)
        return nb_fail(r->err, NB_E_INVALID, "%s: header length %llu is not between 2 and %d (E_ST_HEADER_SIZE)",
                       r->path, (unsigned long long)len, MAX_HEADER);
    if (len > size - 8)
        return nb_fail(r->err, NB_E_INVALID, "%s: header length %llu, but the file has %llu bytes (E_ST_TRUNCATED)",
                       r->path, (unsigned long long)len, (unsigned long long)size);
    *n = len;
    return NB_OK;
}

static nb_status start(nb_st_file *f, uint64_t size, const char *path, nb_error *err)
{
    memset(f, 0, sizeof *f);
    f->file_size = size;
    if (size < 8)
        return nb_fail(err, NB_E_INVALID, "%s: %llu bytes are too few for a safetensors file (E_ST_TOO_SMALL)", path,
                       (unsigned long long)size);
    f->arena = nb_arena_new(0);
    return f->arena ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
}

/* The text of the header is there, or `st` says why not. */
static nb_status finish(reader *r, nb_status st, uint64_t size, char *text, uint64_t n, int flags)
{
    if (st == NB_OK) {
        r->f->data_off = 8 + n;
        r->avail = size - r->f->data_off;
        st = read_header(r, text, n, flags);
    }
    if (st != NB_OK) nb_st_free(r->f);
    return st;
}

nb_status nb_st_read(nb_st_file *f, int fd, uint64_t file_size, const char *path, int flags, nb_error *err)
{
    reader r = {.f = f, .path = tail(path), .err = err};
    uint8_t first[8];
    uint64_t n = 0;
    char *text = NULL;
    nb_status st = start(f, file_size, path, err);
    if (st == NB_OK) st = nb_pread_full(fd, first, 8, 0, path, err);
    if (st == NB_OK) st = read_length(&r, first, file_size, &n);
    if (st == NB_OK && !(text = nb_arena_alloc(f->arena, n)))
        st = nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
    if (st == NB_OK) st = nb_pread_full(fd, text, n, 8, path, err);
    return finish(&r, st, file_size, text, n, flags);
}

nb_status nb_st_read_mem(nb_st_file *f, const void *p, size_t size, const char *path, int flags, nb_error *err)
{
    reader r = {.f = f, .path = tail(path), .err = err};
    uint64_t n = 0;
    char *text = NULL;
    nb_status st = start(f, size, path, err);
    if (st == NB_OK) st = read_length(&r, p, size, &n);
    if (st == NB_OK && !(text = nb_arena_dup(f->arena, (const uint8_t *)p + 8, n)))
        st = nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
    return finish(&r, st, size, text, n, flags);
}

void nb_st_free(nb_st_file *f)
{
    nb_json_free(&f->header);
    nb_arena_free(f->arena);
    memset(f, 0, sizeof *f);
}

const nb_st_tensor *nb_st_find(const nb_st_file *f, nb_str name)
{
    nb_st_tensor key = {.name = name};
    return f->n ? bsearch(&key, f->tensors, f->n, sizeof key, by_name) : NULL;
}

bool nb_st_meta(const nb_st_file *f, const char *key, nb_str *value)
{
    return nb_json_str(nb_json_get(f->metadata, key), value);
}

bool nb_st_count(const nb_st_tensor *t, uint64_t *elements)
{
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || !nb_mul_u64(n, (uint64_t)t->dim[i], &n)) return false;
    *elements = n;
    return true;
}
