/* The GGUF reader, versions 2 and 3: magic, version, counts, key-value pairs, tensor descriptions, padding, data.
 * Everything a file states is checked against its size before it is used: an array or a list of tensors cannot be
 * longer than the bytes that must hold it, so no small file makes us allocate much (specs/create.md 1.9).
 */
#include "format/gguf.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    MAX_HEADER = 512 << 20,
    MAX_STRING = 64 << 20,
    MAX_NAME = 1024,
    MAX_VALUES = 8 << 20,
    MAX_ALIGN = 1 << 20,
    MAX_NESTING = 4
};
enum { FIRST_READ = 16 << 20 };
/* types of metadata values */
enum { V_U8, V_I8, V_U16, V_I16, V_U32, V_I32, V_F32, V_BOOL, V_STRING, V_ARRAY, V_U64, V_I64, V_F64, V_COUNT };
static const uint8_t value_size[V_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8}; /* least bytes of one */

/* p[0..n) is in memory, the file has `size` bytes: n is less while only a part of the header has been read. */
typedef struct reader {
    nb_gguf *g;
    const uint8_t *p;
    size_t n, at;
    uint64_t size;
    bool more;       /* the header goes on beyond n, and so does the file */
    bool bad_string; /* the value being read had a string that is no UTF-8 */
    uint64_t values; /* metadata values so far */
    const char *path;
    nb_str where; /* key or tensor being read */
    nb_error *err;
} reader;

static nb_status bad(const reader *r, const char *fmt, ...) NB_PRINTF(2, 3);
static nb_status bad(const reader *r, const char *fmt, ...)
{
    char text[256];
    size_t n = strlen(r->path);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return nb_fail(r->err, NB_E_INVALID, "%s: %.*s%s%s", n > 120 ? r->path + n - 120 : r->path,
                   r->where.n < 100 ? (int)r->where.n : 100, r->where.p ? r->where.p : "", r->where.n ? ": " : "",
                   text);
}

static nb_status no_memory(const reader *r) { return nb_fail(r->err, NB_E_NO_MEMORY, "%s: out of memory", r->path); }

/* The next n bytes, or NULL where the file or what was read of it ends. */
static const uint8_t *take(reader *r, uint64_t n)
{
    if (n > r->n - r->at) {
        r->more = n <= r->size - r->at;
        return NULL;
    }
    const uint8_t *p = r->p + r->at;
    r->at += n;
    return p;
}
static nb_status ended(const reader *r) { return bad(r, "the file ends inside its header"); }

static nb_status take_u32(reader *r, uint32_t *v)
{
    const uint8_t *p = take(r, 4);
    if (!p) return ended(r);
    *v = nb_load_u32(p);
    return NB_OK;
}
static nb_status take_u64(reader *r, uint64_t *v)
{
    const uint8_t *p = take(r, 8);
    if (!p) return ended(r);
    *v = nb_load_u64(p);
    return NB_OK;
}

static nb_status take_string(reader *r, nb_str *s)
{
    uint64_t n = 0;
    nb_status st = take_u64(r, &n);
    if (st != NB_OK) return st;
    if (n > MAX_STRING || n > r->size - r->at) return bad(r, "a string of %llu bytes", (unsigned long long)n);
    const uint8_t *p = take(r, n);
    if (!p) return ended(r);
    *s = (nb_str){(const char *)p, n};
    return NB_OK;
}

/* ---- metadata values as JSON ---- */

/* A string that is no UTF-8 is taken byte by byte: 0xE9 becomes U+00E9. */
static nb_status text_of(reader *r, nb_str s, nb_str *out)
{
    *out = s;
    if (nb_utf8_valid_prefix(s.p, s.n) == s.n) return NB_OK;
    r->bad_string = true;
    char *p = nb_arena_alloc(r->g->arena, 2 * s.n + 1);
    if (!p) return no_memory(r);
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += nb_utf8_encode((unsigned char)s.p[i], p + n);
    *out = (nb_str){p, n};
    return NB_OK;
}

/* Digits of a number. Token types and the like repeat small integers: these share one text. */
static nb_status literal(reader *r, const char *text, size_t n, nb_json *v)
{
    static const char digit[] = "0123456789";
    v->type = NB_JSON_NUMBER;
    if (n == 1 && text[0] >= '0' && text[0] <= '9') {
        v->text = (nb_str){digit + (text[0] - '0'), 1};
        return NB_OK;
    }
    char *copy = nb_arena_dup(r->g->arena, text, n);
    if (!copy) return no_memory(r);
    v->text = (nb_str){copy, n};
    return NB_OK;
}

static nb_status read_number(reader *r, uint32_t type, const uint8_t *p, nb_json *v)
{
    char text[40];
    int64_t i = 0;
    uint64_t u = 0;
    double d = 0;
    switch (type) {
    case V_U8: u = p[0]; break;
    case V_I8: i = (int8_t)p[0]; break;
    case V_U16: u = nb_load_u16(p); break;
    case V_I16: i = (int16_t)nb_load_u16(p); break;
    case V_U32: u = nb_load_u32(p); break;
    case V_I32: i = (int32_t)nb_load_u32(p); break;
    case V_U64: u = nb_load_u64(p); break;
    case V_I64: i = (int64_t)nb_load_u64(p); break;
    case V_F32: d = (double)nb_f32_bits(nb_load_u32(p)); break;
    default: memcpy(&d, p, 8); break;
    }
    size_t n;
    if (d - d != 0) { /* JSON has no word for these */
        v->type = NB_JSON_NULL;
        return d != d ? NB_OK : literal(r, d > 0 ? "1e999" : "-1e999", d > 0 ? 5 : 6, v);
    }
    if (type == V_F32 || type == V_F64)
        n = nb_f64_repr(d, text);
    else if (type == V_I8 || type == V_I16 || type == V_I32 || type == V_I64)
        n = (size_t)snprintf(text, sizeof text, "%lld", (long long)i);
    else
        n = (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)u);
    return literal(r, text, n, v);
}

static nb_status read_value(reader *r, uint32_t type, int depth, nb_json *v);

static nb_status read_array(reader *r, int depth, nb_json *v)
{
    uint32_t type = 0;
    uint64_t n = 0;
    nb_status st = take_u32(r, &type);
    if (st == NB_OK) st = take_u64(r, &n);
    if (st != NB_OK) return st;
    if (type >= V_COUNT) return bad(r, "unknown element type %u", type);
    if (depth >= MAX_NESTING) return bad(r, "arrays nested deeper than %d", MAX_NESTING);
    if (n > (r->size - r->at) / value_size[type])
        return bad(r, "an array of %llu elements does not fit into the file", (unsigned long long)n);
    if (n > MAX_VALUES - r->values) return bad(r, "more than %d metadata values", MAX_VALUES);
    if (n > (r->n - r->at) / value_size[type]) { /* no point in allocating before all of it is here */
        r->more = true;
        return ended(r);
    }
    r->values += n;
    v->type = NB_JSON_ARRAY;
    v->items = NB_NEW_N(r->g->arena, nb_json, n);
    if (!v->items) return no_memory(r);
    for (; v->count < n && st == NB_OK; v->count++) st = read_value(r, type, depth + 1, &v->items[v->count]);
    return st;
}

static nb_status read_value(reader *r, uint32_t type, int depth, nb_json *v)
{
    if (type >= V_COUNT) return bad(r, "unknown value type %u", type);
    if (type == V_ARRAY) return read_array(r, depth, v);
    if (type == V_STRING) {
        nb_str s;
        nb_status st = take_string(r, &s);
        v->type = NB_JSON_STRING;
        return st != NB_OK ? st : text_of(r, s, &v->text);
    }
    const uint8_t *p = take(r, value_size[type]);
    if (!p) return ended(r);
    if (type != V_BOOL) return read_number(r, type, p, v);
    if (p[0] > 1) return bad(r, "a boolean of %u", p[0]);
    v->type = p[0] ? NB_JSON_TRUE : NB_JSON_FALSE;
    return NB_OK;
}

static nb_status check_name(reader *r, nb_str s)
{
    if (s.n == 0 || s.n > MAX_NAME) return bad(r, "a name of %zu bytes", s.n);
    if (nb_utf8_valid_prefix(s.p, s.n) != s.n) return bad(r, "a name that is no UTF-8");
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f) return bad(r, "a name with control characters");
    return NB_OK;
}

static nb_status read_alignment(reader *r, uint32_t type, const nb_json *v)
{
    uint64_t a;
    if (type != V_U32 || !nb_json_u64(v, &a) || a == 0 || a > MAX_ALIGN || (a & (a - 1)))
        return bad(r, "the alignment is no power of two up to %d", MAX_ALIGN);
    r->g->alignment = a;
    return NB_OK;
}

static nb_status read_metadata(reader *r, uint64_t n)
{
    if (n > (r->size - r->at) / 13)
        return bad(r, "%llu metadata keys do not fit into the file",
                   (unsigned long long)n); /* length, type, one byte */
    if (n > (r->n - r->at) / 13) {
        r->more = true;
        return ended(r);
    }
    nb_json *meta = nb_json_new(r->g->arena, NB_JSON_OBJECT);
    nb_map keys = {0};
    if (!meta || !nb_map_init(&keys, n)) return no_memory(r);
    meta->items = NB_NEW_N(r->g->arena, nb_json, n);
    meta->keys = NB_NEW_N(r->g->arena, nb_str, n);
    nb_status st = meta->items && meta->keys ? NB_OK : no_memory(r);
    r->g->meta = meta;
    for (uint64_t i = 0; i < n && st == NB_OK; i++) {
        nb_str key = {0};
        uint32_t type = 0;
        bool had = false;
        r->where = NB_LIT("metadata");
        st = take_string(r, &key);
        if (st == NB_OK) st = check_name(r, key);
        if (st != NB_OK) break;
        r->where = key;
        r->bad_string = false;
        if (!nb_map_put(&keys, key, 0, &had, NULL))
            st = no_memory(r);
        else if (had)
            st = bad(r, "the key stands twice");
        if (st == NB_OK) st = take_u32(r, &type);
        if (st == NB_OK) st = read_value(r, type, 0, &meta->items[i]);
        if (st == NB_OK && nb_str_is(key, "general.alignment")) st = read_alignment(r, type, &meta->items[i]);
        meta->keys[i] = key;
        meta->count = (uint32_t)i + 1;
        r->g->bad_utf8 += r->bad_string;
    }
    nb_map_free(&keys);
    r->where = (nb_str){0};
    return st;
}

/* ---- tensors ---- */

/* Elements and bytes from the dimensions and the type. */
static nb_status tensor_size(const reader *r, nb_gguf_tensor *t)
{
    const nb_ggml_row *type = nb_ggml_info(t->type);
    uint64_t count = 1;
    if (!type) return bad(r, "unknown type %u", t->type);
    for (int i = 0; i < t->rank; i++)
        if (!nb_mul_u64(count, (uint64_t)t->dim[i], &count)) return bad(r, "the product of its dimensions overflows");
    if ((t->rank ? (uint64_t)t->dim[0] : 1) % type->block)
        return bad(r, "rows of %lld do not divide into %s blocks of %d", (long long)(t->rank ? t->dim[0] : 1),
                   type->name, type->block);
    if (!nb_mul_u64(count / type->block, type->bytes, &t->len)) return bad(r, "its size overflows");
    return NB_OK;
}

static nb_status read_tensor(reader *r, nb_gguf_tensor *t)
{
    uint32_t rank = 0;
    uint64_t d = 0;
    nb_status st = take_string(r, &t->name);
    if (st == NB_OK) st = check_name(r, t->name);
    if (st != NB_OK) return st;
    r->where = t->name;
    st = take_u32(r, &rank);
    if (st == NB_OK && rank > NB_COUNT(t->dim)) st = bad(r, "rank %u is above 4", rank);
    for (uint32_t i = 0; i < rank && st == NB_OK; i++) {
        st = take_u64(r, &d);
        if (st == NB_OK && d > INT64_MAX) st = bad(r, "a dimension of %llu", (unsigned long long)d);
        if (st == NB_OK) t->dim[i] = (int64_t)d;
    }
    t->rank = (uint8_t)rank;
    if (st == NB_OK) st = take_u32(r, &t->type);
    if (st == NB_OK) st = take_u64(r, &t->off); /* relative until the data offset is known */
    return st != NB_OK ? st : tensor_size(r, t);
}

static int by_name(const void *a, const void *b)
{
    return nb_str_cmp(((const nb_gguf_tensor *)a)->name, ((const nb_gguf_tensor *)b)->name);
}
static int by_offset(const void *a, const void *b)
{
    const nb_gguf_tensor *x = *(const nb_gguf_tensor *const *)a, *y = *(const nb_gguf_tensor *const *)b;
    return x->off != y->off ? (x->off < y->off ? -1 : 1) : nb_str_cmp(x->name, y->name);
}

/* Offsets become absolute; each tensor lies inside the file, names are unique, ranges disjoint. */
static nb_status place_tensors(reader *r)
{
    nb_gguf *g = r->g;
    const nb_gguf_tensor **order = NB_NEW_N(g->arena, const nb_gguf_tensor *, g->n);
    if (!order) return no_memory(r);
    if (g->n && g->data_off > r->size) return bad(r, "the file ends before its data");
    for (size_t i = 0; i < g->n; i++) {
        nb_gguf_tensor *t = &g->tensors[i];
        uint64_t avail = r->size - g->data_off;
        r->where = t->name;
        if (t->off % g->alignment)
            return bad(r, "offset %llu is not aligned to %llu", (unsigned long long)t->off,
                       (unsigned long long)g->alignment);
        if (t->off > avail || t->len > avail - t->off)
            return bad(r, "%llu bytes at offset %llu, the file has %llu data bytes", (unsigned long long)t->len,
                       (unsigned long long)t->off, (unsigned long long)avail);
        t->off += g->data_off;
    }
    qsort(g->tensors, g->n, sizeof *g->tensors, by_name);
    for (size_t i = 0; i < g->n; i++) {
        order[i] = &g->tensors[i];
        r->where = g->tensors[i].name;
        if (i && nb_str_eq(g->tensors[i].name, g->tensors[i - 1].name)) return bad(r, "the tensor stands twice");
    }
    qsort(order, g->n, sizeof *order, by_offset);
    uint64_t cursor = 0;
    for (size_t i = 0; i < g->n; i++) {
        if (order[i]->len == 0) continue;
        r->where = order[i]->name;
        if (order[i]->off < cursor) return bad(r, "its data overlaps that of another tensor");
        cursor = order[i]->off + order[i]->len;
    }
    return NB_OK;
}

static nb_status read_tensors(reader *r, uint64_t n)
{
    nb_gguf *g = r->g;
    if (n > (r->size - r->at) / 25)
        return bad(r, "%llu tensors do not fit into the file", (unsigned long long)n); /* name, rank, type, offset */
    if (n > (r->n - r->at) / 25) {
        r->more = true;
        return ended(r);
    }
    g->tensors = NB_NEW_N(g->arena, nb_gguf_tensor, n);
    if (!g->tensors) return no_memory(r);
    nb_status st = NB_OK;
    for (; g->n < n && st == NB_OK; g->n++) {
        r->where = NB_LIT("tensors");
        st = read_tensor(r, &g->tensors[g->n]);
    }
    r->where = (nb_str){0};
    if (st != NB_OK) return st;
    if (!nb_align_u64(r->at, g->alignment, &g->data_off)) return ended(r);
    st = place_tensors(r);
    r->where = (nb_str){0};
    return st;
}

static nb_status read_header(reader *r)
{
    uint64_t tensors = 0, keys = 0;
    const uint8_t *p = take(r, 8);
    if (!p || memcmp(p, "GGUF", 4) != 0) return bad(r, "not a GGUF file");
    uint32_t version = nb_load_u32(p + 4);
    if (version && (version & 0xffff) == 0) return bad(r, "a big-endian GGUF file");
    if (version != 2 && version != 3) return bad(r, "GGUF version %u; versions 2 and 3 are read", version);
    nb_status st = take_u64(r, &tensors);
    if (st == NB_OK) st = take_u64(r, &keys);
    if (st == NB_OK) st = read_metadata(r, keys);
    return st != NB_OK ? st : read_tensors(r, tensors);
}

static nb_status begin(nb_gguf *g, const char *path, nb_error *err)
{
    memset(g, 0, sizeof *g);
    g->alignment = 32;
    g->arena = nb_arena_new(0);
    return g->arena ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
}

nb_status nb_gguf_parse(nb_gguf *g, const void *p, size_t n, const char *path, nb_error *err)
{
    nb_status st = begin(g, path, err);
    if (st != NB_OK) return st;
    g->p = p;
    g->n_bytes = n;
    reader r = {.g = g, .p = p, .n = n, .size = n, .path = path, .err = err};
    st = read_header(&r);
    if (st != NB_OK) nb_gguf_free(g);
    return st;
}

/* Reads the first part of the file and parses it; as long as the header goes on, four times as much. */
nb_status nb_gguf_read(nb_gguf *g, int fd, uint64_t size, const char *path, nb_error *err)
{
    for (uint64_t part = FIRST_READ;; part *= 4) {
        size_t n = size < part ? size : part < MAX_HEADER ? part : MAX_HEADER;
        nb_status st = begin(g, path, err);
        if (st != NB_OK) return st;
        uint8_t *p = nb_arena_alloc(g->arena, n);
        st = p ? nb_pread_full(fd, p, n, 0, path, err) : nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
        reader r = {.g = g, .p = p, .n = n, .size = size, .path = path, .err = err};
        if (st == NB_OK) st = read_header(&r);
        if (st == NB_OK) {
            g->n_bytes = size; /* p stays NULL: no data in memory */
            return NB_OK;
        }
        nb_gguf_free(g);
        if (!r.more || n == MAX_HEADER) return st;
    }
}

void nb_gguf_free(nb_gguf *g)
{
    nb_arena_free(g->arena);
    memset(g, 0, sizeof *g);
}

const nb_gguf_tensor *nb_gguf_find(const nb_gguf *g, nb_str name)
{
    nb_gguf_tensor key = {.name = name};
    return g->n ? bsearch(&key, g->tensors, g->n, sizeof key, by_name) : NULL;
}
