/* create/patterns: Python's regular expressions by PCRE2. The two syntaxes agree in all that names of modules need;
 * what they write differently is rewritten, and what only PCRE2 has (recursion, verbs, callouts, \K) is refused, since
 * no file means it. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "create/patterns.h"

#include <pcre2.h>
#include <stdlib.h>

enum {
    MAX_TEXT = 4096,    /* bytes of an expression */
    MAX_STEPS = 100000, /* of one match; an ordinary one on a name takes a few hundred */
    MAX_DEPTH = 2000,
    MAX_KIB = 4096
};

struct nb_pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *limits;
};

static nb_status wrong(nb_str text, size_t at, const char *what, nb_error *err)
{
    return nb_fail(err, NB_E_INVALID, "'%.*s' is no regular expression: %s at %zu", (int)(text.n > 200 ? 200 : text.n),
                   text.p, what, at);
}

/* One escape at text[i] == '\\'. *next: behind it. */
static nb_status add_escape(nb_buf *out, nb_str text, size_t i, size_t *next, nb_error *err)
{
    char c = i + 1 < text.n ? text.p[i + 1] : 0;
    size_t digits = c == 'u' ? 4 : c == 'U' ? 8 : 0;
    *next = i + 2;
    if (i + 1 >= text.n) return wrong(text, i, "a backslash", err);
    if (digits) {
        if (text.n - i - 2 < digits || memchr(text.p + i + 2, '}', digits)) return wrong(text, i, "a bad escape", err);
        nb_buf_printf(out, "\\x{%.*s}", (int)digits, text.p + i + 2);
        *next += digits;
    } else if (c == 'Z') {
        nb_buf_add_cstr(out, "\\z");
    } else if (c == 'v') {
        nb_buf_add_cstr(out, "\\x0b");
    } else if (((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) && !strchr("AbBdDsSwWafnrtx", c)) {
        return wrong(text, i, "a bad escape", err);
    } else {
        nb_buf_add(out, text.p + i, 2);
    }
    return NB_OK;
}

/* "{,5}" is "{0,5}" in Python, and literal text in older PCRE2. */
static bool open_count(nb_str text, size_t i)
{
    size_t k = i + 2;
    if (i + 1 >= text.n || text.p[i + 1] != ',') return false;
    while (k < text.n && text.p[k] >= '0' && text.p[k] <= '9') k++;
    return k > i + 2 && k < text.n && text.p[k] == '}';
}

/* What may follow "(?" in Python. */
static bool known_group(nb_str text, size_t i)
{
    nb_str rest = {text.p + i + 2, text.n - i - 2};
    static const char *const starts[] = {":", "=", "!", "<=", "<!", "P<", "P=", "#", "(", ">"};
    for (size_t k = 0; k < NB_COUNT(starts); k++)
        if (nb_str_starts(rest, starts[k])) return true;
    return rest.n && strchr("imsx-", rest.p[0]) && rest.p[0]; /* a, L and u: meant for other strings than names */
}

static nb_status translate(nb_buf *out, nb_str text, nb_error *err)
{
    nb_status st = NB_OK;
    bool set = false; /* inside [...] */
    for (size_t i = 0, next; i < text.n && st == NB_OK; i = next) {
        char c = text.p[i];
        next = i + 1;
        if (c == '\\') {
            st = add_escape(out, text, i, &next, err);
        } else if (set) {
            if (c == '[') nb_buf_add_char(out, '\\'); /* no POSIX classes in Python */
            nb_buf_add_char(out, c);
            set = c != ']';
        } else if (c == '[') {
            set = true;
            nb_buf_add_char(out, c);
            if (next < text.n && text.p[next] == '^') nb_buf_add_char(out, text.p[next++]);
            if (next < text.n && text.p[next] == ']') nb_buf_add_char(out, text.p[next++]); /* first: itself */
        } else if (c == '(' && next < text.n && text.p[next] == '*') {
            st = wrong(text, next, "nothing to repeat", err);
        } else if (c == '(' && next < text.n && text.p[next] == '?' && !known_group(text, i)) {
            st = wrong(text, next, "an unknown extension", err);
        } else if (c == '{' && open_count(text, i)) {
            nb_buf_add_cstr(out, "{0");
        } else {
            nb_buf_add_char(out, c);
        }
    }
    return st == NB_OK && out->oom ? nb_fail(err, NB_E_NO_MEMORY, "out of memory") : st;
}

static nb_status compile(nb_pattern *p, nb_str text, nb_error *err)
{
    static const uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C;
    nb_buf b = {0};
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR why[120] = "";
    nb_status st = translate(&b, text, err);
    if (st == NB_OK && !(p->code = pcre2_compile((PCRE2_SPTR)nb_buf_cstr(&b), b.n, flags, &code, &at, NULL))) {
        pcre2_get_error_message(code, why, sizeof why);
        st = wrong(text, at, (const char *)why, err);
    }
    nb_buf_free(&b);
    return st;
}

nb_status nb_pattern_new(nb_pattern **out, nb_str text, nb_error *err)
{
    *out = NULL;
    if (text.n > MAX_TEXT)
        return nb_fail(err, NB_E_INVALID, "'%.*s...' is a regular expression of %zu bytes, more than %d", 60, text.p,
                       text.n, MAX_TEXT);
    nb_pattern *p = calloc(1, sizeof *p);
    if (!p) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = compile(p, text, err);
    if (st == NB_OK) {
        p->data = pcre2_match_data_create(1, NULL);
        p->limits = pcre2_match_context_create(NULL);
        if (!p->data || !p->limits) st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    if (st != NB_OK) {
        nb_pattern_free(p);
        return st;
    }
    pcre2_set_match_limit(p->limits, MAX_STEPS);
    pcre2_set_depth_limit(p->limits, MAX_DEPTH);
    pcre2_set_heap_limit(p->limits, MAX_KIB);
    pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE); /* where there is none, it is only slower */
    *out = p;
    return NB_OK;
}

void nb_pattern_free(nb_pattern *p)
{
    if (!p) return;
    pcre2_match_context_free(p->limits);
    pcre2_match_data_free(p->data);
    pcre2_code_free(p->code);
    free(p);
}

int nb_pattern_match(const nb_pattern *p, nb_str name)
{
    int rc = pcre2_match(p->code, (PCRE2_SPTR)name.p, name.n, 0, 0, p->data, p->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(p->code, (PCRE2_SPTR)name.p, name.n, 0, PCRE2_NO_JIT, p->data, p->limits);
    bool gave_up = rc == PCRE2_ERROR_MATCHLIMIT || rc == PCRE2_ERROR_DEPTHLIMIT || rc == PCRE2_ERROR_HEAPLIMIT ||
                   rc == PCRE2_ERROR_NOMEMORY;
    return rc >= 0 ? 1 : gave_up ? -1 : 0;
}
