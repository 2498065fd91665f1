/* The reader: one pass, no recursion. Finished values wait on a stack; a container that closes moves its members from
 * there into the arena and takes their place. Strings without escapes are views of the source. */
#include "json/index.h"

#include <stdlib.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef struct frame {
    uint8_t type;
    bool streamed; /* an array whose members are handed over */
    uint32_t off; /* of the bracket */
    size_t first, first_key;
} frame;

typedef struct parser {
    const char *p, *begin, *end;
    nb_json_doc *doc;
    const char *what;
    nb_error *err;
    uint64_t max_string;
    uint32_t flags, depth, max_depth;
    nb_status status;
    nb_json *vals; /* stack, see grow() */
    size_t n_vals, cap_vals;
    nb_str *keys; /* stack of the open objects' keys */
    size_t n_keys, cap_keys;
    frame *frames; /* max_depth of them, malloc */
    const nb_json_stream *stream;
    uint32_t stream_depth; /* keys of its path */
} parser;

/* ---- errors ---- */

static bool bad_at(parser *s, const char *at, const char *msg)
{
    unsigned line = 1, column = 1;
    for (const char *c = s->begin; c < at; c++) {
        if (*c == '\n') {
            line++;
            column = 1;
        } else if (((unsigned char)*c & 0xc0) != 0x80) {
            column++;
        }
    }
    s->status = nb_fail(s->err, NB_E_INVALID, "%s: line %u, column %u: %s", s->what, line, column, msg);
    return false;
}

static bool no_memory(parser *s)
{
    s->status = nb_fail(s->err, NB_E_NO_MEMORY, "%s: out of memory", s->what);
    return false;
}

/* "expected X", or that the text ended. */
static bool expected(parser *s, const char *msg)
{
    return bad_at(s, s->p, s->p == s->end ? "unexpected end of the text" : msg);
}

/* ---- stacks ---- */

/* Doubles a stack. Plain malloc while it is small; later pages from the kernel, since faulting in megabytes of small
 * pages would cost more than all the parsing. */
enum { SMALL_STACK = 1 << 20 };

static void stack_free(void *p, size_t cap, size_t size)
{
    if (cap * size > SMALL_STACK)
        nb_pages_free(p, cap * size);
    else
        free(p);
}

static bool grow(void **p, size_t *cap, size_t size)
{
    size_t more = *cap ? *cap * 2 : 64;
    if (more > SIZE_MAX / 2 / size) return false;
    void *q = more * size > SMALL_STACK ? nb_pages_new(more * size) : malloc(more * size);
    if (!q) return false;
    if (*cap) memcpy(q, *p, *cap * size);
    stack_free(*p, *cap, size);
    *p = q;
    *cap = more;
    return true;
}

static inline nb_json *push(parser *s)
{
    if (s->n_vals == s->cap_vals) {
        void *p = s->vals;
        if (!grow(&p, &s->cap_vals, sizeof *s->vals)) {
            no_memory(s);
            return NULL;
        }
        s->vals = p;
    }
    return &s->vals[s->n_vals++];
}

static bool push_key(parser *s, nb_str key)
{
    if (s->n_keys == s->cap_keys) {
        void *p = s->keys;
        if (!grow(&p, &s->cap_keys, sizeof *s->keys)) return no_memory(s);
        s->keys = p;
    }
    s->keys[s->n_keys++] = key;
    return true;
}

/* ---- scanning ---- */

static inline void skip_space(parser *s)
{
    const char *p = s->p;
    while (p < s->end && (*p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
    s->p = p;
}

/* First byte that is a quote, a backslash, a control character or beyond ASCII; or end. */
static inline const char *plain_run(const char *p, const char *end)
{
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), space = _mm_set1_epi8(0x20);
    while (end - p >= 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)p);
        /* Signed: bytes from 0x80 on are negative, so one comparison finds them and the control characters. */
        __m128i hit =
            _mm_or_si128(_mm_cmplt_epi8(v, space), _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash)));
        int mask = _mm_movemask_epi8(hit);
        if (mask) return p + __builtin_ctz((unsigned)mask);
        p += 16;
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80) p++;
    return p;
}

static int hex4(const char *p)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        v = v << 4 | d;
    }
    return v;
}

/* A \uXXXX escape (or a pair of them) at p, the backslash; q is the string's end. Returns what follows, NULL on error.
 */
static const char *unicode_escape(parser *s, const char *p, const char *q, uint32_t *cp)
{
    int hi = q - p >= 6 ? hex4(p + 2) : -1;
    if (hi < 0) {
        bad_at(s, p, "\\u is not followed by four hexadecimal digits");
        return NULL;
    }
    *cp = (uint32_t)hi;
    if (hi < 0xd800 || hi > 0xdfff) return p + 6;
    if (hi < 0xdc00 && q - p >= 12 && p[6] == '\\' && p[7] == 'u') {
        int lo = hex4(p + 8);
        if (lo >= 0xdc00 && lo <= 0xdfff) {
            *cp = 0x10000u + (((uint32_t)hi - 0xd800u) << 10) + ((uint32_t)lo - 0xdc00u);
            return p + 12;
        }
    }
    if (!(s->flags & NB_JSON_LONE_SURROGATES)) {
        bad_at(s, p, "surrogate escape without its other half");
        return NULL;
    }
    s->doc->lone_surrogates++;
    *cp = 0xfffd;
    return p + 6;
}

/* Decodes the escapes of p[0..q) into the arena. The result is never longer than the source. */
static bool decode(parser *s, const char *p, const char *q, nb_str *out)
{
    char *to = nb_arena_alloc_aligned(s->doc->arena, (size_t)(q - p) + 1, 1);
    if (!to) return no_memory(s);
    out->p = to;
    while (p < q) {
        const char *slash = memchr(p, '\\', (size_t)(q - p));
        size_t run = (size_t)((slash ? slash : q) - p);
        memcpy(to, p, run);
        to += run;
        p += run;
        if (!slash) break;
        uint32_t cp;
        switch (p[1]) {
        case '"':
        case '\\':
        case '/':
            *to++ = p[1];
            p += 2;
            break;
        case 'b':
            *to++ = '\b';
            p += 2;
            break;
        case 'f':
            *to++ = '\f';
            p += 2;
            break;
        case 'n':
            *to++ = '\n';
            p += 2;
            break;
        case 'r':
            *to++ = '\r';
            p += 2;
            break;
        case 't':
            *to++ = '\t';
            p += 2;
            break;
        case 'u':
            p = unicode_escape(s, p, q, &cp);
            if (!p) return false;
            to += nb_utf8_encode(cp, to);
            break;
        default: return bad_at(s, p, "unknown escape in a string");
        }
    }
    out->n = (size_t)(to - out->p);
    return true;
}

/* Non-ASCII characters at p, checked. Returns what follows, NULL on error. */
static const char *utf8_run(parser *s, const char *p)
{
    do {
        size_t len;
        if (nb_utf8_decode(p, (size_t)(s->end - p), &len) == UINT32_MAX) {
            bad_at(s, p, "the text is not valid UTF-8");
            return NULL;
        }
        p += len;
    } while (p < s->end && (unsigned char)*p >= 0x80);
    return p;
}

/* A string; s->p is at its opening quote. */
static bool string(parser *s, nb_str *out)
{
    const char *start = s->p + 1, *p = start;
    bool escaped = false;
    for (;;) {
        p = plain_run(p, s->end);
        if (p == s->end) return bad_at(s, s->p, "string without end");
        unsigned char c = (unsigned char)*p;
        if (c == '"') break;
        if (c == '\\') {
            if (s->end - p < 2) return bad_at(s, s->p, "string without end");
            escaped = true;
            p++;
            /* The character after a backslash is skipped unread, unless it needs a look for itself. */
            if ((unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80) p++;
        } else if (c >= 0x80) {
            p = utf8_run(s, p);
            if (!p) return false;
        } else {
            return bad_at(s, p, "control character in a string");
        }
    }
    if ((uint64_t)(p - start) > s->max_string) return bad_at(s, s->p, "string is longer than allowed");
    if (escaped) {
        if (!decode(s, start, p, out)) return false;
    } else {
        *out = (nb_str){start, (size_t)(p - start)};
    }
    s->p = p + 1;
    return true;
}

static inline bool digit(const char *p, const char *end) { return p < end && *p >= '0' && *p <= '9'; }

/* A number's end, checked against the grammar; NULL on error. */
static const char *number(parser *s)
{
    const char *p = s->p, *end = s->end;
    if (*p == '-') p++;
    if (!digit(p, end)) goto bad;
    if (*p == '0')
        p++;
    else
        while (digit(p, end)) p++;
    if (p < end && *p == '.') {
        p++;
        if (!digit(p, end)) goto bad;
        while (digit(p, end)) p++;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        if (!digit(p, end)) goto bad;
        while (digit(p, end)) p++;
    }
    if (digit(p, end)) goto bad; /* 01 */
    return p;
bad:
    bad_at(s, p, p == end ? "unexpected end of the text" : "malformed number");
    return NULL;
}

/* ---- values ---- */

static bool scalar(parser *s)
{
    nb_json v = {.src_off = (uint32_t)(s->p - s->begin)};
    const char *start = s->p;
    size_t left = (size_t)(s->end - s->p);
    if (*start == '"') {
        v.type = NB_JSON_STRING;
        if (!string(s, &v.text)) return false;
    } else if (*start == '-' || digit(start, s->end)) {
        const char *end = number(s);
        if (!end) return false;
        v.type = NB_JSON_NUMBER;
        v.text = (nb_str){start, (size_t)(end - start)};
        s->p = end;
    } else if (left >= 4 && memcmp(start, "true", 4) == 0) {
        v.type = NB_JSON_TRUE;
        s->p += 4;
    } else if (left >= 5 && memcmp(start, "false", 5) == 0) {
        v.type = NB_JSON_FALSE;
        s->p += 5;
    } else if (left >= 4 && memcmp(start, "null", 4) == 0) {
        v.type = NB_JSON_NULL;
        s->p += 4;
    } else {
        return expected(s, "expected a value");
    }
    v.src_len = (uint32_t)(s->p - start);
    nb_json *slot = push(s);
    if (!slot) return false;
    *slot = v;
    return true;
}

/* A member's key and its colon. */
static bool key(parser *s)
{
    skip_space(s);
    if (s->p == s->end || *s->p != '"') return expected(s, "expected a key in quotes");
    nb_str k;
    if (!string(s, &k) || !push_key(s, k)) return false;
    skip_space(s);
    if (s->p == s->end || *s->p != ':') return expected(s, "expected ':' after a key");
    s->p++;
    return true;
}

/* Later members with an equal key replace the first one in place. */
static bool merge_duplicate(parser *s, nb_json *v, uint32_t kept, uint32_t from)
{
    if (s->flags & NB_JSON_UNIQUE_KEYS) {
        char msg[128], name[64];
        size_t n = nb_text_clean(name, sizeof name, v->keys[from].p, v->keys[from].n);
        nb_buf b = {.p = msg, .cap = sizeof msg, .limit = sizeof msg - 1}; /* on the stack: never grows */
        nb_buf_printf(&b, "key \"%.*s\" occurs twice", (int)n, name);
        return bad_at(s, s->begin + v->items[from].src_off, nb_buf_cstr(&b));
    }
    s->doc->duplicate_keys++;
    v->items[kept] = v->items[from];
    return true;
}

/* Removes duplicate keys of a new object and indexes a large one. */
static bool settle_object(parser *s, nb_json *v)
{
    nb_json_box *box = NULL;
    if (v->count > NB_JSON_LINEAR) {
        box = NB_NEW(s->doc->arena, nb_json_box);
        if (!box || !nb_json_index_new(box, s->doc->arena, v->count)) return no_memory(s);
    }
    uint32_t out = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        uint32_t at = 0;
        if (box)
            at = nb_json_index_add(box, v->keys, v->keys[i], out);
        else
            while (at < out && !nb_str_eq(v->keys[at], v->keys[i])) at++;
        if (at < out) {
            if (!merge_duplicate(s, v, at, i)) return false;
            continue;
        }
        if (out != i) {
            v->keys[out] = v->keys[i];
            v->items[out] = v->items[i];
        }
        out++;
    }
    v->count = out;
    if (box) {
        box->used = box->cap = out;
        v->text.p = (const char *)box;
    }
    return true;
}

/* Does the value that begins here stand where the stream's path says? */
static bool is_streamed(const parser *s)
{
    if (!s->stream || s->depth != s->stream_depth) return false;
    const char *at = s->stream->path;
    for (uint32_t i = 0; i < s->depth; i++) {
        if (s->frames[i].type != NB_JSON_OBJECT) return false;
        nb_str k = s->keys[(i + 1 < s->depth ? s->frames[i + 1].first_key : s->n_keys) - 1];
        size_t n = strcspn(at, ".");
        if (!nb_str_eq(k, (nb_str){at, n})) return false;
        at += n + (at[n] == '.');
    }
    return true;
}

static bool open_container(parser *s)
{
    if (s->depth == s->max_depth) return bad_at(s, s->p, "nested too deeply");
    frame f = {.type = *s->p == '{' ? NB_JSON_OBJECT : NB_JSON_ARRAY,
               .off = (uint32_t)(s->p - s->begin),
               .first = s->n_vals,
               .first_key = s->n_keys};
    f.streamed = f.type == NB_JSON_ARRAY && is_streamed(s);
    if (f.streamed) s->stream->begin(s->stream->user);
    s->frames[s->depth++] = f;
    s->p++;
    return true;
}

/* s->p is behind the closing bracket. What an array holds that is about to be handed over stays on the stack. */
static bool close_container(parser *s)
{
    frame f = s->frames[--s->depth];
    size_t n = s->n_vals - f.first;
    bool stays = f.type == NB_JSON_ARRAY && s->depth && s->frames[s->depth - 1].streamed;
    nb_json v = {
        .type = f.type, .count = (uint32_t)n, .src_off = f.off, .src_len = (uint32_t)(s->p - s->begin) - f.off};
    if (n && !stays) {
        v.items = NB_NEW_N(s->doc->arena, nb_json, n);
        if (!v.items) return no_memory(s);
        memcpy(v.items, s->vals + f.first, n * sizeof *v.items);
        if (f.type == NB_JSON_OBJECT) {
            v.keys = NB_NEW_N(s->doc->arena, nb_str, n);
            if (!v.keys) return no_memory(s);
            memcpy(v.keys, s->keys + f.first_key, n * sizeof *v.keys);
            if (!settle_object(s, &v)) return false;
        }
    }
    if (!stays) s->n_vals = f.first;
    s->n_keys = f.first_key;
    nb_json *slot = push(s);
    if (!slot) return false;
    *slot = v;
    if (stays && n) slot->items = s->vals + f.first;
    return true;
}

/* After a value inside a container: closes what closes here, then goes behind the comma (and the next key). */
static bool next_member(parser *s)
{
    while (s->depth) {
        const frame *f = &s->frames[s->depth - 1];
        bool object = f->type == NB_JSON_OBJECT;
        if (f->streamed) {
            s->stream->member(s->stream->user, &s->vals[s->n_vals - 1]);
            s->n_vals = f->first;
        }
        skip_space(s);
        char c = s->p < s->end ? *s->p : '\0';
        if (c == ',') {
            s->p++;
            return !object || key(s);
        }
        if (c != (object ? '}' : ']')) return expected(s, object ? "expected ',' or '}'" : "expected ',' or ']'");
        s->p++;
        if (!close_container(s)) return false;
    }
    return true;
}

static bool parse_text(parser *s)
{
    do {
        skip_space(s);
        if (s->p == s->end) return expected(s, "");
        if (*s->p != '{' && *s->p != '[') {
            if (!scalar(s)) return false;
        } else {
            bool object = *s->p == '{';
            if (!open_container(s)) return false;
            skip_space(s);
            bool empty = s->p < s->end && *s->p == (object ? '}' : ']');
            if (!empty) {
                if (object && !key(s)) return false;
                continue; /* to the first member's value */
            }
            s->p++;
            if (!close_container(s)) return false;
        }
        if (!next_member(s)) return false;
    } while (s->depth);
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r' ||
                             (*s->p == '\0' && (s->flags & NB_JSON_TRAILING_NUL)))) {
        s->p++;
    }
    return s->p == s->end || bad_at(s, s->p, "text after the value");
}

nb_status nb_json_parse(nb_json_doc *doc, const char *text, size_t n, const char *what, const nb_json_limits *limits,
                        nb_error *err)
{
    static const nb_json_limits none;
    if (!limits) limits = &none;
    *doc = (nb_json_doc){0};
    parser s = {.doc = doc, .what = what ? what : "JSON", .err = err, .flags = limits->flags, .stream = limits->stream};
    if (s.stream) {
        s.stream_depth = 1;
        for (const char *c = s.stream->path; *c; c++) s.stream_depth += *c == '.';
    }
    s.max_depth = limits->depth ? limits->depth : 64;
    if (s.max_depth > NB_JSON_MAX_DEPTH) s.max_depth = NB_JSON_MAX_DEPTH;
    s.max_string = limits->max_string ? limits->max_string : 16u << 20;
    uint64_t max_bytes = limits->max_bytes ? limits->max_bytes : 256u << 20;
    if (max_bytes > UINT32_MAX - 1) max_bytes = UINT32_MAX - 1; /* spans have 32 bits */
    if (n > max_bytes) {
        return nb_fail(err, NB_E_INVALID, "%s: %zu bytes of JSON, at most %llu are read", s.what, n,
                       (unsigned long long)max_bytes);
    }
    doc->arena = nb_arena_new(0);
    s.frames = malloc(s.max_depth * sizeof *s.frames);
    const char *src = text;
    if (doc->arena && (limits->flags & NB_JSON_COPY)) src = nb_arena_dup(doc->arena, text, n);
    if (!doc->arena || !s.frames || (!src && n)) {
        no_memory(&s);
        goto out;
    }
    doc->source = (nb_str){src, n};
    s.begin = s.p = src;
    s.end = n ? src + n : src;
    if (n >= 3 && memcmp(src, "\xef\xbb\xbf", 3) == 0) {
        bad_at(&s, src, "begins with a byte order mark");
    } else if (parse_text(&s)) {
        doc->root = NB_NEW(doc->arena, nb_json);
        if (doc->root)
            *doc->root = s.vals[0];
        else
            no_memory(&s);
    }
out:
    stack_free(s.vals, s.cap_vals, sizeof *s.vals);
    stack_free(s.keys, s.cap_keys, sizeof *s.keys);
    free(s.frames);
    if (s.status) nb_json_free(doc);
    return s.status;
}

void nb_json_free(nb_json_doc *doc)
{
    nb_arena_free(doc->arena);
    *doc = (nb_json_doc){0};
}
