/* text/jinja_lex: template text to tokens, with Jinja's white-space control (trim_blocks and lstrip_blocks on). */
#include "text/jinja.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct lexer {
    nb_template *t;
    const char *s;
    uint32_t n, i;
    nb_buf tokens; /* jtoken after jtoken */
    char *stack;   /* closing brackets that are due */
    uint32_t nstack, capstack;
    bool line_starting; /* what was read last ended with a line end, or nothing was read */
    nb_error *err;
} lexer;

void nbj_position(const char *src, uint32_t n, uint32_t pos, uint32_t *line, uint32_t *column)
{
    *line = 1;
    *column = 1;
    for (uint32_t i = 0; i < pos && i < n; i++) {
        if (src[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((uint8_t)src[i] & 0xC0) != 0x80) {
            ++*column;
        }
    }
}

nb_status nbj_syntax(const nb_template *t, uint32_t pos, nb_error *err, const char *type, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    uint32_t line, column;
    nbj_position(t->source, t->n, pos, &line, &column);
    return nb_fail(err, NB_E_INVALID, "chat template: line %u, column %u: %s: %s", line, column, type, text);
}

#define LEX_FAIL(x, at, ...) (nbj_syntax((x)->t, (at), (x)->err, "TemplateSyntaxError", __VA_ARGS__), false)

/* Appends one token. `p` must live as long as the template: it points into the source or the arena. */
static bool emit(lexer *x, jtok t, uint32_t pos, const char *p, size_t n)
{
    jtoken k = {.t = (uint8_t)t, .pos = pos, .text = {p, n}};
    nb_buf_add(&x->tokens, &k, sizeof k);
    return !x->tokens.oom;
}

/* Does `lit` stand at i? */
static bool at(const lexer *x, uint32_t i, const char *lit)
{
    size_t n = strlen(lit);
    return i <= x->n && x->n - i >= n && memcmp(x->s + i, lit, n) == 0;
}

/* The byte length of the white space character at i, 0 where there is none. */
static uint32_t space_at(const lexer *x, uint32_t i)
{
    if (i >= x->n) return 0;
    size_t len;
    uint32_t c = nb_utf8_decode(x->s + i, x->n - i, &len);
    return nbj_is_space(c) ? (uint32_t)len : 0;
}

/* The offset behind all white space from i on. */
static uint32_t skip_space(const lexer *x, uint32_t i)
{
    for (uint32_t k; (k = space_at(x, i)) > 0;) i += k;
    return i;
}

/* The end of from..to without the white space before it. */
static uint32_t rstrip(const lexer *x, uint32_t from, uint32_t to)
{
    while (to > from) {
        uint32_t i = to - 1;
        while (i > from && ((uint8_t)x->s[i] & 0xC0) == 0x80) i--;
        if (space_at(x, i) != to - i) break;
        to = i;
    }
    return to;
}

/* {% raw %} at i: returns the offset behind its tag, 0 if there is none. */
static uint32_t raw_begin(const lexer *x, uint32_t i)
{
    i += 2;
    if (i < x->n && (x->s[i] == '-' || x->s[i] == '+')) i++;
    i = skip_space(x, i);
    if (!at(x, i, "raw")) return 0;
    i = skip_space(x, i + 3);
    if (at(x, i, "-%}")) return skip_space(x, i + 3);
    return at(x, i, "%}") ? i + 2 : 0;
}

/* The end of a tag at i for the closing delimiter `end`: offset behind it with what it swallows, 0 if there is none. */
static uint32_t tag_end(const lexer *x, uint32_t i, const char *end, bool variable)
{
    if (i < x->n && x->s[i] == '-' && at(x, i + 1, end)) return skip_space(x, i + 3);
    if (!variable && i < x->n && x->s[i] == '+' && at(x, i + 1, end)) return i + 3;
    if (!at(x, i, end)) return 0;
    i += 2;
    return !variable && i < x->n && x->s[i] == '\n' ? i + 1 : i;
}

/* Text from..to that stands before a tag with this sign. */
static bool data_before(lexer *x, uint32_t from, uint32_t to, char sign, bool variable)
{
    uint32_t end = to;
    if (sign == '-') {
        end = rstrip(x, from, to);
    } else if (sign != '+' && !variable) {
        uint32_t line = to;
        while (line > from && x->s[line - 1] != '\n') line--;
        if ((line > from || x->line_starting) && to > line && rstrip(x, line, to) == line) end = line;
    }
    return end == from || emit(x, T_DATA, from, x->s + from, end - from);
}

/* Goes on behind a tag. Whether that tag swallowed a line end decides if spaces before the next tag begin a line. */
static void moved_to(lexer *x, uint32_t i)
{
    x->i = i;
    x->line_starting = i > 0 && x->s[i - 1] == '\n';
}

/* Skips a comment whose text begins at `start`. */
static bool comment(lexer *x, uint32_t begin, uint32_t start)
{
    for (uint32_t i = start; i < x->n; i++) {
        uint32_t end = tag_end(x, i, "#}", false);
        if (!end) continue;
        moved_to(x, end);
        return true;
    }
    /* Jinja's rule needs a character to complain about. */
    if (start == x->n) return moved_to(x, start), true;
    return LEX_FAIL(x, begin, "Missing end of comment tag");
}

/* The body of a raw block from i; {%- endraw -%} obeys the rules of tags. */
static bool raw(lexer *x, uint32_t begin, uint32_t i)
{
    x->line_starting = i > 0 && x->s[i - 1] == '\n';
    for (uint32_t k = i; k < x->n; k++) {
        if (!at(x, k, "{%")) continue;
        uint32_t e = k + 2;
        char sign = e < x->n ? x->s[e] : 0;
        if (sign == '-' || sign == '+') e++;
        e = skip_space(x, e);
        if (!at(x, e, "endraw")) continue;
        uint32_t end = tag_end(x, skip_space(x, e + 6), "%}", false);
        if (!end) continue;
        if (!data_before(x, i, k, sign, false)) return false;
        moved_to(x, end);
        return true;
    }
    if (i == x->n) return moved_to(x, i), true;
    return LEX_FAIL(x, begin, "Missing end of raw directive");
}

static int octal(char c) { return c >= '0' && c <= '7' ? c - '0' : -1; }
static int hex(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* \xNN, \uNNNN, \UNNNNNNNN: *i stands behind the letter. */
static bool hex_escape(lexer *x, nb_buf *out, const char *p, uint32_t n, uint32_t *i, uint32_t digits, uint32_t pos)
{
    uint32_t c = 0;
    for (uint32_t k = 0; k < digits; k++, ++*i) {
        int h = *i < n ? hex(p[*i]) : -1;
        if (h < 0) return LEX_FAIL(x, pos, "truncated escape in a string");
        c = c << 4 | (uint32_t)h;
    }
    if (c > 0x10FFFF) return LEX_FAIL(x, pos, "illegal Unicode character");
    nb_buf_add_cp(out, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c); /* half a pair cannot be text */
    return true;
}

/* One escape of a string; p[*i] is the character after the backslash. */
static bool escape(lexer *x, nb_buf *out, const char *p, uint32_t n, uint32_t *i, uint32_t pos)
{
    static const char plain[] = "\\'\"abfnrtv", meaning[] = "\\'\"\a\b\f\n\r\t\v";
    char c = p[*i];
    const char *k = c ? strchr(plain, c) : NULL;
    if (c == '\n') {
        ++*i;
    } else if (k) {
        nb_buf_add_char(out, meaning[k - plain]);
        ++*i;
    } else if (octal(c) >= 0) {
        uint32_t v = 0, d = 0;
        for (; d < 3 && *i < n && octal(p[*i]) >= 0; d++, ++*i) v = v * 8 + (uint32_t)octal(p[*i]);
        nb_buf_add_cp(out, v);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        ++*i;
        return hex_escape(x, out, p, n, i, c == 'x' ? 2 : c == 'u' ? 4 : 8, pos);
    } else if (c == 'N') {
        return LEX_FAIL(x, pos, "named characters are not known here");
    } else if ((uint8_t)c >=
               0x80) { /* Jinja writes such a character as an escape first, so the backslash meets a backslash */
        size_t len;
        uint32_t cp = nb_utf8_decode(p + *i, n - *i, &len);
        nb_buf_printf(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
        *i += (uint32_t)len;
    } else {
        nb_buf_add_char(out, '\\');
    }
    return true;
}

/* A string literal. One without escapes is a view of the source, else the decoded text is copied. */
static bool string(lexer *x)
{
    uint32_t begin = x->i, i = begin + 1;
    char quote = x->s[begin];
    bool escaped = false;
    while (i < x->n && x->s[i] != quote) {
        escaped |= x->s[i] == '\\';
        i += x->s[i] == '\\' ? 2 : 1;
    }
    if (i >= x->n) return LEX_FAIL(x, begin, "unexpected char '%c': the string has no end", quote);
    x->i = i + 1;
    const char *p = x->s + begin + 1;
    uint32_t n = i - begin - 1;
    if (!escaped) return emit(x, T_STRING, begin, p, n);
    nb_buf out = {0};
    bool ok = true;
    for (uint32_t k = 0; k < n && ok;) {
        if (p[k] == '\\') {
            k++;
            ok = escape(x, &out, p, n, &k, begin);
        } else {
            nb_buf_add_char(&out, p[k++]);
        }
    }
    const char *copy = ok && !out.oom ? nb_arena_dup(x->t->arena, out.p ? out.p : "", out.n) : NULL;
    ok = ok && copy && emit(x, T_STRING, begin, copy, out.n);
    if (!copy && !(x->err && x->err->status)) nb_fail(x->err, NB_E_NO_MEMORY, "chat template: no memory");
    nb_buf_free(&out);
    return ok;
}

/* ASCII only, as in the number patterns of Jinja. */
static bool digit(char c) { return c >= '0' && c <= '9'; }

/* Digits with single underscores between them from i; returns the end, i where there are none. */
static uint32_t digits(const lexer *x, uint32_t i)
{
    uint32_t start = i;
    while (i < x->n && (digit(x->s[i]) || (i > start && x->s[i] == '_' && i + 1 < x->n && digit(x->s[i + 1])))) i++;
    return i;
}

/* The end of a float literal at i, 0 where an integer (or nothing) stands. Behind a dot digits are an index: a.1.5 is
 * a[1][5]. */
static uint32_t float_end(const lexer *x, uint32_t i)
{
    if (i > 0 && x->s[i - 1] == '.') return 0;
    uint32_t e = digits(x, i), best = 0;
    if (e == i) return 0;
    if (e < x->n && x->s[e] == '.') {
        uint32_t f = digits(x, e + 1);
        if (f > e + 1) best = e = f;
    }
    if (e < x->n && (x->s[e] == 'e' || x->s[e] == 'E')) {
        uint32_t f = e + 1;
        if (f < x->n && (x->s[f] == '+' || x->s[f] == '-')) f++;
        uint32_t g = digits(x, f);
        if (g > f) best = g;
    }
    return best;
}

/* The end of an integer literal: decimal, or 0x, 0o, 0b. A leading zero is a number of its own, so 007 is three numbers
 * and a syntax error. */
static uint32_t int_end(const lexer *x, uint32_t i)
{
    if (x->s[i] != '0') return digits(x, i);
    char kind = i + 1 < x->n ? (char)(x->s[i + 1] | 0x20) : 0;
    int base = kind == 'b' ? 2 : kind == 'o' ? 8 : kind == 'x' ? 16 : 0;
    uint32_t k = i + 2;
    while (base && k < x->n) {
        uint32_t d = x->s[k] == '_' ? k + 1 : k;
        if (d >= x->n || hex(x->s[d]) < 0 || hex(x->s[d]) >= base) break;
        k = d + 1;
    }
    if (base && k > i + 2) return k;
    k = i + 1; /* zeros only */
    while (k < x->n && (x->s[k] == '0' || (x->s[k] == '_' && k + 1 < x->n && x->s[k + 1] == '0'))) k++;
    return k;
}

/* The token's text is the literal without underscores. */
static bool number(lexer *x)
{
    uint32_t begin = x->i, end = float_end(x, begin);
    jtok t = end ? T_FLOAT : T_INT;
    if (!end) end = int_end(x, begin);
    char *copy = nb_arena_dup(x->t->arena, x->s + begin, end - begin);
    if (!copy) return nb_fail(x->err, NB_E_NO_MEMORY, "chat template: no memory"), false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < end - begin; i++) {
        if (copy[i] != '_') copy[n++] = copy[i];
    }
    copy[n] = 0;
    x->i = end;
    return emit(x, t, begin, copy, n);
}

/* Letters, digits and underscores of any script; keywords are names too. Signs like a raised two are none. */
static bool name(lexer *x)
{
    uint32_t begin = x->i;
    while (x->i < x->n) {
        size_t len;
        uint32_t c = nb_utf8_decode(x->s + x->i, x->n - x->i, &len);
        if (!nbj_is_word(c)) break;
        if (c != '_' && !nbj_is_alpha(c) && !nbj_is_decimal(c))
            return LEX_FAIL(x, begin, "Invalid character in identifier");
        x->i += (uint32_t)len;
    }
    return emit(x, T_NAME, begin, x->s + begin, x->i - begin);
}

/* Keeps track of open brackets: inside them the closing delimiter of a tag is no delimiter. */
static bool bracket(lexer *x, char c)
{
    if (c == '(' || c == '[' || c == '{') {
        if (x->nstack == x->capstack) {
            uint32_t cap = x->capstack ? 2 * x->capstack : 64;
            char *p = realloc(x->stack, cap);
            if (!p) return nb_fail(x->err, NB_E_NO_MEMORY, "chat template: no memory"), false;
            x->stack = p;
            x->capstack = cap;
        }
        x->stack[x->nstack++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        if (!x->nstack) return LEX_FAIL(x, x->i, "unexpected '%c'", c);
        char due = x->stack[--x->nstack];
        if (due != c) return LEX_FAIL(x, x->i, "unexpected '%c', expected '%c'", c, due);
    }
    return true;
}

/* Longest operator first. */
static bool op(lexer *x)
{
    static const struct {
        char text[3];
        uint8_t t;
    } ops[] = {
        {"**", T_POW},     {"//", T_FLOORDIV}, {"==", T_EQ},    {"!=", T_NE},    {">=", T_GE},    {"<=", T_LE},
        {"+", T_ADD},      {"-", T_SUB},       {"*", T_MUL},    {"/", T_DIV},    {"%", T_MOD},    {"~", T_TILDE},
        {"[", T_LBRACKET}, {"]", T_RBRACKET},  {"(", T_LPAREN}, {")", T_RPAREN}, {"{", T_LBRACE}, {"}", T_RBRACE},
        {">", T_GT},       {"<", T_LT},        {"=", T_ASSIGN}, {".", T_DOT},    {":", T_COLON},  {"|", T_PIPE},
        {",", T_COMMA},    {";", T_SEMICOLON},
    };
    for (size_t k = 0; k < NB_COUNT(ops); k++) {
        if (!at(x, x->i, ops[k].text)) continue;
        if (!bracket(x, ops[k].text[0])) return false;
        uint32_t len = ops[k].text[1] ? 2 : 1, begin = x->i;
        x->i += len;
        return emit(x, (jtok)ops[k].t, begin, x->s + begin, len);
    }
    size_t len;
    nb_utf8_decode(x->s + x->i, x->n - x->i, &len);
    return LEX_FAIL(x, x->i, "unexpected char '%.*s'", (int)len, x->s + x->i);
}

/* Everything up to the end of a block or variable tag. Inside brackets the closing delimiter is two operators. */
static bool inside(lexer *x, bool variable)
{
    x->nstack = 0;
    while (x->i < x->n) {
        uint32_t end = x->nstack ? 0 : tag_end(x, x->i, variable ? "}}" : "%}", variable);
        if (end) {
            uint32_t pos = x->i;
            moved_to(x, end);
            return emit(x, variable ? T_VAR_END : T_BLOCK_END, pos, "", 0);
        }
        uint32_t space = space_at(x, x->i);
        size_t len;
        bool ok = true;
        if (space)
            x->i += space;
        else if (digit(x->s[x->i]))
            ok = number(x);
        else if (nbj_is_word(nb_utf8_decode(x->s + x->i, x->n - x->i, &len)))
            ok = name(x);
        else if (x->s[x->i] == '"' || x->s[x->i] == '\'')
            ok = string(x);
        else
            ok = op(x);
        if (!ok) return false;
    }
    return true; /* the parser reports the missing end */
}

/* Text up to the next tag, then the tag itself. */
static bool next_tag(lexer *x)
{
    uint32_t from = x->i, i = from;
    while (i < x->n && !(x->s[i] == '{' && i + 1 < x->n && strchr("{%#", x->s[i + 1]) && x->s[i + 1])) i++;
    if (i >= x->n) {
        x->i = x->n;
        return from == x->n || emit(x, T_DATA, from, x->s + from, x->n - from);
    }
    char kind = x->s[i + 1], sign = i + 2 < x->n ? x->s[i + 2] : 0;
    if (!data_before(x, from, i, sign, kind == '{')) return false;
    uint32_t behind = kind == '%' ? raw_begin(x, i) : 0;
    if (behind) return raw(x, i, behind);
    uint32_t body = i + 2 + (sign == '-' || sign == '+');
    if (kind == '#') return comment(x, i, body);
    x->i = body;
    return emit(x, kind == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, i, "", 0) && inside(x, kind == '{');
}

nb_status nbj_lex(nb_template *t, jtoken **out, uint32_t *count, nb_error *err)
{
    lexer x = {.t = t, .s = t->source, .n = t->n, .line_starting = true, .err = err};
    nb_error mine = {0};
    if (!err) x.err = err = &mine;
    err->status = NB_OK;
    bool ok = true;
    while (ok && x.i < x.n) ok = next_tag(&x);
    ok = ok && emit(&x, T_EOF, x.n, "", 0);
    *count = (uint32_t)(x.tokens.n / sizeof(jtoken));
    *out = ok ? nbj_copy(t->arena, x.tokens.p, *count, sizeof(jtoken)) : NULL;
    nb_buf_free(&x.tokens);
    free(x.stack);
    if (*out) return NB_OK;
    return err->status ? err->status : nb_fail(err, NB_E_NO_MEMORY, "chat template: no memory");
}
