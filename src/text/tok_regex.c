/* text/tok_regex: from a pattern in Ruby's syntax to PCRE2, and the search.
 *
 * What differs is written out: classes become explicit ranges of Unicode 16.0 (PCRE2's own tables are of another
 * version), `^` and `$` match at every line, (?m) lets `.` match a newline, (?i) becomes classes and, where one character folds to
 * several, alternatives; \h is a hex digit; && intersects classes; {n}+ is a repetition, not possessive; where a group has a
 * name, groups without one capture nothing; a letter that means nothing behind '\' is itself. */
#include "text/tok_regex.h"

#include "text/tok_charset.h"
#include "text/tok_scan.h"
#include "text/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

enum { MAX_NAMES = 100, MAX_DEPTH = 200, MAX_PATTERN = 1 << 16, JIT_STACK_MIN = 32 << 10, JIT_STACK_MAX = 1 << 20 };

struct nb_tok_regex {
    nb_tok_scan scan;
    bool known;
    nb_tok_dfa *dfa;  /* else NULL, and `code` set */
    pcre2_code *code;
    bool jit;
};

/* ---- translation ---- */

typedef struct translator {
    const char *p;
    size_t n, at;
    nb_buf out;
    int depth;
    bool icase, dotall, extended;
    bool properties; /* PCRE2's own properties may be used */
    bool any_named;  /* some group has a name: the others do not capture */
    uint32_t groups; /* that capture, so far */
    nb_str name[MAX_NAMES]; /* of group i + 1 */
    uint32_t names;
    uint32_t folded; /* under (?i), the character before, where it stands alone, folded; else 0 */
    bool border;     /* a group's border lies behind it */
    nb_error *err;
    nb_status status;
} translator;

static bool fail(translator *t, const char *what)
{
    if (!t->status) t->status = nb_fail(t->err, NB_E_UNSUPPORTED, "pattern: %s at byte %zu", what, t->at);
    return false;
}

static bool more(const translator *t) { return t->at < t->n; }
static int peek(const translator *t) { return more(t) ? (uint8_t)t->p[t->at] : -1; }
static bool eat(translator *t, const char *s)
{
    size_t n = strlen(s);
    if (t->n - t->at < n || memcmp(t->p + t->at, s, n)) return false;
    t->at += n;
    return true;
}
static uint32_t take(translator *t)
{
    size_t len;
    uint32_t cp = nb_uni_next(t->p + t->at, &len);
    t->at += len;
    return cp;
}

static void emit_ranges(translator *t, const nb_charset *s)
{
    for (size_t i = 0; i < s->n; i++) {
        if (s->r[i].first == s->r[i].last) nb_buf_printf(&t->out, "\\x{%x}", s->r[i].first);
        else nb_buf_printf(&t->out, "\\x{%x}-\\x{%x}", s->r[i].first, s->r[i].last);
    }
}

/* A pattern of PCRE2 has 64 KiB, and a class like all letters has 670 ranges. So whole general categories are written as
 * properties: what PCRE2's older tables lack of them stands beside as ranges. Not Cn, of which they have too much: a
 * class that holds it is written as the complement of what it lacks. */
static void emit_set(translator *t, const nb_charset *set)
{
    static const struct { const char *name; uint32_t gc; } parts[] = {
        {"L", NB_GC_L}, {"M", NB_GC_M}, {"N", NB_GC_N}, {"P", NB_GC_P}, {"S", NB_GC_S}, {"Lu", 1u << NB_GC_LU}, {"Ll", 1u << NB_GC_LL},
        {"Lt", 1u << NB_GC_LT}, {"Lm", 1u << NB_GC_LM}, {"Lo", 1u << NB_GC_LO}, {"Mn", 1u << NB_GC_MN}, {"Mc", 1u << NB_GC_MC}, {"Nd", 1u << NB_GC_ND},
        {"No", 1u << NB_GC_NO}, {"Po", 1u << NB_GC_PO}, {"Sm", 1u << NB_GC_SM}, {"So", 1u << NB_GC_SO},
    };
    nb_charset s = {0};
    if (!set->n) {
        nb_buf_add_cstr(&t->out, "(?!)");
        return;
    }
    nb_charset_union(&s, set);
    bool negate = set->n > 8 && nb_charset_has(set, 0x378); /* U+0378 has never been assigned */
    if (negate) nb_charset_complement(&s);
    nb_buf_add_cstr(&t->out, negate ? "[^" : "[");
    for (size_t i = 0; s.n > 8 && t->properties && i < NB_COUNT(parts); i++) {
        nb_charset whole = {0}, rest = {0};
        nb_charset_property(&whole, nb_str_of(parts[i].name), NB_CHARSET_BARE);
        nb_charset_union(&rest, &whole);
        nb_charset_intersect(&rest, &s);
        bool all = rest.n == whole.n && !memcmp(rest.r, whole.r, rest.n * sizeof *rest.r);
        /* U+1171E is Mc in 16.0 and Mn in older tables. */
        if (all && (!(parts[i].gc & 1u << NB_GC_MN) || nb_charset_has(&s, 0x1171E))) {
            nb_charset_keep_after14(&whole);
            nb_charset_without_categories(&s, parts[i].gc);
            nb_charset_union(&s, &whole);
            nb_buf_printf(&t->out, "\\p{%s}", parts[i].name);
        }
        s.oom |= rest.oom | whole.oom;
        nb_charset_free(&whole);
        nb_charset_free(&rest);
    }
    if (s.oom) t->status = nb_fail(t->err, NB_E_NO_MEMORY, "pattern: out of memory");
    emit_ranges(t, &s);
    nb_buf_add_char(&t->out, ']');
    nb_charset_free(&s);
}

/* Are the tables of this PCRE2 no newer than 16.0? */
static bool properties_usable(void)
{
    char version[64] = {0};
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > (int)sizeof version) return false;
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    int major = atoi(version);
    return major >= 14 && major <= 16;
}

static bool hex_digits(translator *t, size_t min, size_t max, uint32_t *out)
{
    uint32_t v = 0;
    size_t k = 0;
    for (; k < max && more(t); k++, t->at++) {
        int c = peek(t) | 32;
        if (c >= '0' && c <= '9') v = v * 16 + (uint32_t)(c - '0');
        else if (c >= 'a' && c <= 'f') v = v * 16 + (uint32_t)(c - 'a' + 10);
        else break;
    }
    *out = v;
    return (k >= min && v <= 0x10FFFF && !(v >= 0xD800 && v < 0xE000)) || fail(t, "a bad hexadecimal character");
}

static bool octal_digits(translator *t, size_t max, uint32_t *out)
{
    uint32_t v = 0;
    size_t k = 0;
    for (; k < max && peek(t) >= '0' && peek(t) <= '7' && v <= 0x10FFFF; k++, t->at++) v = v * 8 + (uint32_t)(peek(t) - '0');
    *out = v;
    return (k && v <= 0x10FFFF && !(v >= 0xD800 && v < 0xE000)) || fail(t, "a bad octal character");
}

/* What stands behind \c or \C-. */
static bool control(translator *t, uint32_t *cp)
{
    int c = peek(t);
    if (c < 0x20 || c > 0x7E || (c == '\\' && !(t->n - t->at >= 2 && t->p[t->at + 1] == '\\'))) return fail(t, "an unknown control character");
    t->at += c == '\\' ? 2 : 1;
    *cp = c == '?' ? 0x7F : (uint32_t)c & 0x1F;
    return true;
}

/* \p{Name}, \p{^Name}, \P{Name}; the letter is taken already. */
static bool property(translator *t, bool negate, int where, nb_charset *s)
{
    if (!eat(t, "{")) return fail(t, "\\p without a name");
    if (eat(t, "^")) negate = !negate;
    const char *end = memchr(t->p + t->at, '}', t->n - t->at);
    if (!end) return fail(t, "\\p without '}'");
    nb_str name = {t->p + t->at, (size_t)(end - t->p) - t->at};
    if (!nb_charset_property(s, name, where)) {
        if (!t->status) t->status = nb_fail(t->err, NB_E_UNSUPPORTED, "pattern: unknown property '%.*s'", NB_FMT_STR(name));
        return false;
    }
    t->at += name.n + 1;
    if (negate) nb_charset_complement(s);
    return true;
}

/* A class by a letter behind '\': true when c is one; t is behind it. */
static bool class_escape(translator *t, int c, int where, nb_charset *s)
{
    static const struct { char letter; const char *name; } classes[] = {{'d', "Digit"}, {'s', "Space"}, {'w', "Word"}, {'h', "XDigit"}};
    if ((c == 'p' || c == 'P') && peek(t) == '{') return property(t, c == 'P', where, s);
    for (size_t i = 0; i < NB_COUNT(classes); i++) {
        if ((c | 32) != classes[i].letter) continue;
        nb_charset_property(s, nb_str_of(classes[i].name), where);
        if (c != classes[i].letter) nb_charset_complement(s);
        return true;
    }
    return false;
}

/* A character by an escape; the letter c is taken already. */
static bool char_escape(translator *t, int c, uint32_t *cp)
{
    static const char from[] = "tnrfvae", to[] = "\t\n\r\f\v\a\x1B";
    const char *q = c ? strchr(from, c) : NULL;
    if (q) {
        *cp = (uint8_t)to[q - from];
        return true;
    }
    if (c == 'u') return hex_digits(t, 4, 4, cp);
    if (c == 'x') {
        if (eat(t, "{")) return hex_digits(t, 1, 8, cp) && (eat(t, "}") || fail(t, "\\x{ without '}'"));
        return hex_digits(t, 1, 2, cp) && (*cp < 0x80 || fail(t, "a single byte above 0x7f"));
    }
    if (c == 'o' && eat(t, "{")) return octal_digits(t, 11, cp) && (eat(t, "}") || fail(t, "\\o{ without '}'"));
    if (c == 'c' || (c == 'C' && eat(t, "-"))) return control(t, cp);
    if (c >= '0' && c <= '7') {
        t->at--;
        return octal_digits(t, 3, cp) && (*cp < 0x80 || fail(t, "a single byte above 0x7f"));
    }
    if (c == 'C' || c == 'M') return fail(t, "an unknown escape");
    *cp = (uint32_t)c;
    return true;
}

static bool class_set(translator *t, nb_charset *s, bool inner);

/* [:name:] or [:^name:]; at '['. */
static bool posix_class(translator *t, nb_charset *s, bool *is)
{
    *is = false;
    if (t->n - t->at < 4 || t->p[t->at + 1] != ':') return true;
    size_t from = t->at + 2, end = from;
    while (end + 1 < t->n && t->p[end] != ':' && t->p[end] != ']') end++;
    if (end + 1 >= t->n || t->p[end] != ':' || t->p[end + 1] != ']') return true;
    bool negate = t->p[from] == '^';
    from += negate;
    if (!nb_charset_property(s, (nb_str){t->p + from, end - from}, NB_CHARSET_POSIX)) return fail(t, "an unknown class in brackets");
    if (negate) nb_charset_complement(s);
    *is = true;
    t->at = end + 2;
    return true;
}

/* One item of a class: a nested class, an escape or a character. *single: it may begin a range. */
static bool class_item(translator *t, nb_charset *s, uint32_t *cp, bool *single)
{
    bool posix;
    *single = false;
    if (peek(t) == '[') {
        if (!posix_class(t, s, &posix)) return false;
        return posix || class_set(t, s, true);
    }
    if (eat(t, "\\")) {
        if (!more(t)) return fail(t, "a lone '\\'");
        int c = peek(t);
        if (c < 0x80) {
            t->at++;
            if (c == 'b') *cp = 8;
            else if (class_escape(t, c, NB_CHARSET_IN_CLASS, s)) return true;
            else if (t->status || !char_escape(t, c, cp)) return false;
            *single = true;
            return true;
        }
    }
    *cp = take(t);
    *single = true;
    return true;
}

/* The items up to ']' or '&&'. */
static bool class_part(translator *t, nb_charset *s, bool first)
{
    while (more(t)) {
        if (peek(t) == ']' && !first) break;
        if (t->n - t->at >= 2 && t->p[t->at] == '&' && t->p[t->at + 1] == '&') break;
        first = false;
        nb_charset item = {0};
        uint32_t a = 0, b;
        bool single, end_single;
        bool ok = class_item(t, &item, &a, &single);
        if (ok && single) {
            b = a;
            if (t->n - t->at >= 2 && t->p[t->at] == '-' && t->p[t->at + 1] != ']') {
                nb_charset unused = {0};
                t->at++;
                ok = class_item(t, &unused, &b, &end_single) && (end_single || fail(t, "a range that ends in a class"));
                nb_charset_free(&unused);
            }
            if (ok && b < a) ok = fail(t, "a range in the wrong order");
            if (ok) nb_charset_add(&item, a, b);
        }
        if (ok) nb_charset_union(s, &item);
        nb_charset_free(&item);
        if (!ok) return false;
    }
    return true;
}

/* Letter case counts for nothing in what the whole class comes to, before its own '^' but behind those inside. */
static bool class_set(translator *t, nb_charset *s, bool inner)
{
    if (++t->depth > MAX_DEPTH) return fail(t, "classes nested too deep");
    t->at++; /* '[' */
    bool negate = eat(t, "^"), first = true, ok = true, started = false;
    nb_charset all = {0};
    for (;;) {
        nb_charset part = {0};
        ok = class_part(t, &part, first);
        first = false;
        if (ok && !started) nb_charset_union(&all, &part);
        else if (ok) nb_charset_intersect(&all, &part);
        started = true;
        nb_charset_free(&part);
        if (!ok || !eat(t, "&&")) break;
    }
    if (ok && !eat(t, "]")) ok = fail(t, "a class without ']'");
    if (ok && t->icase && !inner) nb_charset_fold(&all);
    if (ok && negate) nb_charset_complement(&all);
    if (ok) nb_charset_union(s, &all);
    nb_charset_free(&all);
    t->depth--;
    return ok;
}

static void emit_char(translator *t, uint32_t cp)
{
    if (t->icase) {
        nb_charset s = {0};
        nb_charset_add(&s, cp, cp);
        nb_charset_fold(&s);
        if (s.n > 1 || s.r[0].first != s.r[0].last) {
            emit_set(t, &s);
            nb_charset_free(&s);
            return;
        }
        nb_charset_free(&s);
    }
    nb_buf_printf(&t->out, "\\x{%x}", cp);
}

static void emit_folded(translator *t, const uint16_t *to)
{
    for (int i = 0; i < 3 && to[i]; i++) emit_char(t, to[i]);
}

/* Under (?i): every character whose full folding is this sequence. */
static void emit_sequence(translator *t, const uint16_t *to)
{
    nb_charset s = {0};
    for (uint32_t i = 0; i < nb_uni_full_fold_count; i++)
        if (!memcmp(nb_uni_full_fold[i] + 1, to, 3 * sizeof *to)) nb_charset_add(&s, nb_uni_full_fold[i][0], nb_uni_full_fold[i][0]);
    nb_charset_normalise(&s);
    nb_buf_add_cstr(&t->out, "(?:");
    emit_folded(t, to);
    nb_buf_add_char(&t->out, '|');
    emit_set(t, &s);
    nb_buf_add_char(&t->out, ')');
    nb_charset_free(&s);
}

/* Under (?i): a class, then what its members fold to where that is more than one character. run: it repeats without a limit; then what
 * consists of members need not be said, since they match one by one. */
static void emit_class_folded(translator *t, const nb_charset *s, bool run)
{
    bool any = false;
    size_t from = t->out.n;
    nb_buf_add_cstr(&t->out, "(?:");
    emit_set(t, s);
    for (uint32_t i = 0; i < nb_uni_full_fold_count; i++) {
        const uint16_t *to = nb_uni_full_fold[i] + 1;
        if (!nb_charset_has(s, nb_uni_full_fold[i][0])) continue;
        if (run && nb_charset_has(s, to[0]) && nb_charset_has(s, to[1]) && (!to[2] || nb_charset_has(s, to[2]))) continue;
        nb_buf_add_char(&t->out, '|');
        emit_folded(t, to);
        any = true;
    }
    if (any) {
        nb_buf_add_char(&t->out, ')');
        return;
    }
    t->out.n = from;
    emit_set(t, s);
}

static bool is_quantifier(int c) { return c == '*' || c == '+' || c == '?' || c == '{'; }

/* Under (?i): a character that folds to several, or literals that are such a folding. */
static bool literal_folded(translator *t, uint32_t cp)
{
    for (uint32_t i = 0; i < nb_uni_full_fold_count; i++)
        if (nb_uni_full_fold[i][0] == cp) {
            emit_sequence(t, nb_uni_full_fold[i] + 1);
            t->folded = nb_uni_full_fold[i][nb_uni_full_fold[i][3] ? 3 : 2];
            return true;
        }
    for (int want = 3; want >= 2; want--) {
        for (uint32_t i = 0; i < nb_uni_full_fold_count; i++) {
            const uint16_t *to = nb_uni_full_fold[i] + 1;
            if ((to[2] ? 3 : 2) != want || nb_uni_simple_fold(cp) != to[0]) continue;
            size_t at = t->at, len;
            int k = 1;
            for (; k < want && at < t->n; k++, at += len) {
                if (strchr("\\[]().^$|*+?{", t->p[at])) break;
                if (nb_uni_simple_fold(nb_uni_next(t->p + at, &len)) != to[k]) break;
            }
            if (k < want || (at < t->n && is_quantifier((uint8_t)t->p[at]))) continue;
            t->at = at;
            emit_sequence(t, to);
            t->folded = to[want - 1];
            return true;
        }
    }
    return false;
}

/* Under (?i) the package also finds a character for what it folds to where the letters stand on both sides of a group's border, or as escapes: those
 * are refused. */
static bool literal_apart(translator *t, uint32_t cp)
{
    uint32_t a = t->icase ? t->folded : 0, b = nb_uni_simple_fold(cp);
    for (uint32_t i = 0; a && i < nb_uni_full_fold_count; i++) {
        const uint16_t *to = nb_uni_full_fold[i] + 1;
        if ((to[0] == a && to[1] == b) || (to[1] == a && to[2] && to[2] == b)) return fail(t, "letters that fold to one, apart or as escapes, under (?i),");
    }
    return true;
}

static bool alternatives(translator *t);

/* (?imx-imx) and (?imx-imx: ; behind "(?". *colon: the latter. */
static bool options(translator *t, bool *colon)
{
    bool on = true;
    for (;;) {
        int c = peek(t);
        t->at += c >= 0;
        switch (c) {
        case '-': on = false; break;
        case 'i': t->icase = on; break;
        case 'm': t->dotall = on; break;
        case 'x': t->extended = on; break;
        case ':': *colon = true; return true;
        case ')': *colon = false; return true;
        default: return fail(t, "an unknown group");
        }
    }
}

/* <name> or 'name'; at the sign. */
static bool group_name(translator *t, nb_str *name)
{
    char end = peek(t) == '<' ? '>' : '\'';
    size_t from = ++t->at;
    while (more(t) && peek(t) != end && peek(t) != ')') t->at++;
    *name = (nb_str){t->p + from, t->at - from};
    if (peek(t) != end || !name->n) return fail(t, "a group's name without an end");
    t->at++;
    return true;
}

static uint32_t find_name(const translator *t, nb_str name)
{
    for (uint32_t i = 0; i < t->names; i++)
        if (nb_str_eq(t->name[i], name)) return i + 1;
    return 0;
}

/* (?<name> or (?'name' ; behind "(?". */
static bool named_group(translator *t)
{
    nb_str name;
    if (!group_name(t, &name)) return false;
    if ((uint8_t)name.p[0] < 'A' || memchr(name.p, '-', name.n)) return fail(t, "a group's name that does not begin with a letter");
    if (find_name(t, name)) return fail(t, "two groups of one name");
    if (t->names == MAX_NAMES) return fail(t, "too many groups with names");
    t->name[t->names++] = name;
    t->any_named = true;
    t->groups++;
    return true;
}

/* What begins the group at '(', for PCRE2; NULL: it fails. *colon: ')' ends it. *captures: its number counts. */
static const char *group_opener(translator *t, bool *colon, bool *captures)
{
    static const char *const openers[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    for (size_t i = 0; i < NB_COUNT(openers); i++)
        if (eat(t, openers[i])) return openers[i];
    if (!eat(t, "(?")) {
        t->at++;
        *captures = !t->any_named;
        t->groups += *captures;
        return *captures ? "(" : "(?:";
    }
    if (peek(t) == '<' || peek(t) == '\'') {
        *captures = true;
        return named_group(t) ? "(" : NULL;
    }
    return options(t, colon) ? "(?:" : NULL;
}

static bool group(translator *t)
{
    bool icase = t->icase, dotall = t->dotall, extended = t->extended, colon = true, captures = false, ok;
    if (++t->depth > MAX_DEPTH) return fail(t, "groups nested too deep");
    const char *open = group_opener(t, &colon, &captures);
    if (!open) return false;
    bool plain = !captures && !strcmp(open, "(?:");
    t->border = true;
    if (!plain) t->folded = 0;
    nb_buf_add_cstr(&t->out, open);
    ok = alternatives(t);
    nb_buf_add_char(&t->out, ')');
    /* Options without ':' last to the end of the group around: that group's ')' is not ours. */
    if (ok && colon && !eat(t, ")")) ok = fail(t, "a group without ')'");
    t->icase = icase, t->dotall = dotall, t->extended = extended;
    t->border = true;
    if (!plain) t->folded = 0;
    t->depth--;
    return ok;
}

/* A back reference to a group by its number. */
static bool back_reference(translator *t, uint32_t number)
{
    if (t->icase) return fail(t, "a back reference under (?i)");
    if (!number) return fail(t, "a back reference to no group");
    nb_buf_printf(&t->out, "(?:\\%u)", number);
    return true;
}

/* \k<name>, \k<1>, \k<-1>; at the sign behind 'k'. */
static bool named_reference(translator *t)
{
    nb_str name;
    uint32_t v = 0;
    if (!group_name(t, &name)) return false;
    bool back = name.p[0] == '-';
    size_t k = back;
    for (; k < name.n && name.p[k] >= '0' && name.p[k] <= '9' && v < 1000; k++) v = v * 10 + (uint32_t)(name.p[k] - '0');
    if (k < name.n || k == (size_t)back) {
        v = find_name(t, name);
        return v ? back_reference(t, v) : fail(t, "a back reference to no group");
    }
    if (t->any_named) return fail(t, "a back reference by number where groups have names");
    return back_reference(t, !back ? v : v <= t->groups ? t->groups + 1 - v : 0);
}

/* \1 to \9, and more digits where there are so many groups; else the digits are an octal character. The first is taken already. */
static bool digits_escape(translator *t, int c, bool *is)
{
    uint32_t v = (uint32_t)(c - '0');
    size_t at = t->at;
    while (at < t->n && t->p[at] >= '0' && t->p[at] <= '9' && v < 1000) v = v * 10 + (uint32_t)(t->p[at++] - '0');
    *is = v <= 9 || v <= t->groups;
    if (!*is) return true;
    t->at = at;
    if (t->any_named) return fail(t, "a back reference by number where groups have names");
    return back_reference(t, v);
}

static void emit_border(translator *t, bool not)
{
    nb_charset s = {0};
    nb_charset_property(&s, NB_LIT("Word"), NB_CHARSET_BARE);
    nb_buf_add_cstr(&t->out, "(?:(?<=");
    emit_set(t, &s), nb_buf_add_cstr(&t->out, not ? ")(?=" : ")(?!"), emit_set(t, &s);
    nb_buf_add_cstr(&t->out, ")|(?<!"), emit_set(t, &s), nb_buf_add_cstr(&t->out, not ? ")(?!" : ")(?="), emit_set(t, &s);
    nb_buf_add_cstr(&t->out, "))");
    nb_charset_free(&s);
}

static bool escape(translator *t)
{
    t->at++;
    if (!more(t)) return fail(t, "a lone '\\'");
    int c = peek(t);
    nb_charset s = {0};
    uint32_t cp;
    bool done = false;
    if (c >= 0x80) {
        emit_char(t, take(t));
        return true;
    }
    t->at++;
    if (c >= '1' && c <= '9' && (!digits_escape(t, c, &done) || done)) return !t->status;
    if (c == 'k' && (peek(t) == '<' || peek(t) == '\'')) return named_reference(t);
    if (strchr("XyY", c)) return fail(t, "a border of grapheme clusters");
    if (c == 'g' && (peek(t) == '<' || peek(t) == '\'')) return fail(t, "a call of a group");
    if (strchr("AzZG", c)) nb_buf_printf(&t->out, "\\%c", c);
    else if (c == 'K') nb_buf_add_cstr(&t->out, "\\K");
    else if (c == 'b' || c == 'B') emit_border(t, c == 'B');
    else if (c == 'N') nb_buf_add_cstr(&t->out, "[^\\n]");
    else if (c == 'O') nb_buf_add_cstr(&t->out, "(?s:.)");
    else if (c == 'R') nb_buf_add_cstr(&t->out, "(?>\\r\\n|[\\n-\\r\\x{85}\\x{2028}\\x{2029}])");
    else if (class_escape(t, c, NB_CHARSET_BARE, &s)) emit_set(t, &s);
    else if (!t->status && char_escape(t, c, &cp) && literal_apart(t, cp)) {
        emit_char(t, cp);
        t->folded = nb_uni_simple_fold(cp);
        t->border = true;
    }
    nb_charset_free(&s);
    return !t->status;
}

/* {n,m}, {n}, {n,}, {,m}; anything else is a literal brace. */
static bool interval(translator *t, char text[32])
{
    unsigned lo = 0, hi = 0;
    size_t at = t->at + 1, from = at;
    while (at < t->n && t->p[at] >= '0' && t->p[at] <= '9' && at - from < 5) lo = lo * 10 + (unsigned)(t->p[at++] - '0');
    bool has_lo = at > from, comma = at < t->n && t->p[at] == ',';
    at += comma;
    from = at;
    while (comma && at < t->n && t->p[at] >= '0' && t->p[at] <= '9' && at - from < 5) hi = hi * 10 + (unsigned)(t->p[at++] - '0');
    bool has_hi = at > from;
    if (at >= t->n || t->p[at] != '}' || (!has_lo && !has_hi)) return false;
    nb_buf b = {0};
    if (!comma) nb_buf_printf(&b, "{%u}", lo);
    else if (has_hi) nb_buf_printf(&b, "{%u,%u}", lo, hi);
    else nb_buf_printf(&b, "{%u,}", lo);
    bool ok = b.n && b.n < 32;
    if (ok) memcpy(text, b.p, b.n), text[b.n] = 0;
    nb_buf_free(&b);
    if (ok) t->at = at + 1;
    return ok;
}

/* Comments, and under (?x) spaces: they stand anywhere, also before a quantifier. False where there is none. */
static bool pass_over(translator *t)
{
    size_t from = t->at;
    while (more(t)) {
        if (t->extended && strchr(" \t\r\n\f\v", peek(t))) t->at++;
        else if (t->extended && peek(t) == '#') while (more(t) && peek(t) != '\n') t->at++;
        else if (eat(t, "(?#")) {
            while (more(t) && peek(t) != ')') t->at += peek(t) == '\\' && t->at + 1 < t->n ? 2 : 1;
            if (!eat(t, ")")) return fail(t, "a comment without ')'");
        } else break;
    }
    if (t->at > from) t->border = true;
    return t->at > from;
}

/* Quantifiers behind the atom that was written at `from`. A second one applies to the first with its atom. */
static bool quantifiers(translator *t, size_t from)
{
    for (int count = 0; more(t); count++) {
        if (pass_over(t) && !more(t)) break;
        char text[32] = {(char)peek(t), 0};
        bool braces = text[0] == '{';
        if (!is_quantifier((uint8_t)text[0])) break;
        if (braces ? !interval(t, text) : (t->at++, false)) break;
        if (count > 8) return fail(t, "too many quantifiers");
        if (count) {
            nb_buf inner = {0};
            nb_buf_add(&inner, t->out.p + from, t->out.n - from);
            t->out.n = from;
            nb_buf_add_cstr(&t->out, "(?:");
            nb_buf_add(&t->out, inner.p, inner.n);
            nb_buf_add_char(&t->out, ')');
            t->out.oom |= inner.oom;
            nb_buf_free(&inner);
        }
        nb_buf_add_cstr(&t->out, text);
        /* Ruby: {n}? is (…{n})?, and + behind braces repeats. */
        bool fixed = braces && !strchr(text, ',');
        if (peek(t) == '?' && !fixed) nb_buf_add_char(&t->out, '?'), t->at++;
        else if (peek(t) == '+' && !braces) nb_buf_add_char(&t->out, '+'), t->at++;
    }
    return true;
}

static bool atom(translator *t)
{
    int c = peek(t);
    nb_charset s = {0};
    switch (c) {
    case '(': return group(t);
    case '\\': return escape(t);
    case '[': {
        bool negated = t->n - t->at >= 2 && t->p[t->at + 1] == '^', ok = class_set(t, &s, false);
        if (ok && t->icase && !negated) emit_class_folded(t, &s, peek(t) == '+' || peek(t) == '*');
        else if (ok) emit_set(t, &s);
        nb_charset_free(&s);
        return ok;
    }
    case '.':
        t->at++;
        nb_buf_add_cstr(&t->out, t->dotall ? "(?s:.)" : "[^\\n]");
        return true;
    case '^': t->at++; nb_buf_add_cstr(&t->out, "(?m:^)"); return true;
    case '$': t->at++; nb_buf_add_cstr(&t->out, "(?m:$)"); return true;
    case '*': case '+': case '?': return fail(t, "a quantifier without anything before it");
    default: break;
    }
    uint32_t cp = take(t);
    if (t->border && !literal_apart(t, cp)) return false;
    if (!(t->icase && literal_folded(t, cp))) {
        emit_char(t, cp);
        t->folded = nb_uni_simple_fold(cp);
    }
    t->border = false;
    return !t->status;
}

static bool alternatives(translator *t)
{
    while (more(t) && peek(t) != ')') {
        if (eat(t, "|")) {
            nb_buf_add_char(&t->out, '|');
            t->folded = 0;
            continue;
        }
        if (pass_over(t)) continue;
        size_t from = t->out.n;
        if (strchr("[.^$", peek(t)) || (peek(t) == '\\' && t->at + 1 < t->n && strchr("AbBdDGhHkKNOpPRsSwWzZ", t->p[t->at + 1]))) t->folded = 0;
        if (!atom(t)) return false;
        size_t end = t->out.n;
        if (!quantifiers(t, from)) return false;
        if (t->out.n != end) t->folded = 0;
        if (t->out.oom || t->out.n > (8u << 20)) return fail(t, "it grows too large");
    }
    return true;
}

static nb_status translate(translator *t)
{
    translator fresh = *t;
    bool ok = alternatives(t);
    if (ok && t->groups > t->names && t->any_named) {
        /* Groups without a name stood before the first one with a name: they do not capture after all. */
        nb_buf_free(&t->out);
        *t = fresh;
        t->any_named = true;
        ok = alternatives(t);
    }
    if (!ok) return t->status;
    if (more(t)) return nb_fail(t->err, NB_E_UNSUPPORTED, "pattern: ')' without '(' at byte %zu", t->at);
    return t->out.oom ? nb_fail(t->err, NB_E_NO_MEMORY, "pattern: out of memory") : t->status;
}

static nb_status compile_pcre(nb_tok_regex *r, nb_str pattern, nb_error *err)
{
    translator t = {.p = pattern.p, .n = pattern.n, .err = err, .properties = properties_usable()};
    nb_status st = translate(&t);
    if (!st) {
        int code = 0;
        PCRE2_SIZE where;
        pcre2_compile_context *ctx = pcre2_compile_context_create(NULL);
        if (ctx) pcre2_set_newline(ctx, PCRE2_NEWLINE_LF);
        r->code = ctx ? pcre2_compile((PCRE2_SPTR)(t.out.p ? t.out.p : ""), t.out.n, PCRE2_UTF | PCRE2_NO_UTF_CHECK, &code, &where, ctx) : NULL;
        pcre2_compile_context_free(ctx);
        PCRE2_UCHAR why[200] = {0};
        if (!r->code) pcre2_get_error_message(code, why, sizeof why);
        st = r->code ? NB_OK : nb_fail(err, NB_E_UNSUPPORTED, "pattern: PCRE2 refuses it: %s", (const char *)why);
        if (r->code) r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    }
    nb_buf_free(&t.out);
    return st;
}

/* A table of states, or NULL in r->dfa: what is wrong with the pattern PCRE2's way says. */
static void compile_table(nb_tok_regex *r, nb_str pattern)
{
    translator t = {.p = pattern.p, .n = pattern.n};
    if (!translate(&t) && t.out.n) r->dfa = nb_tok_dfa_new(nb_buf_str(&t.out));
    nb_buf_free(&t.out);
}

nb_status nb_tok_regex_new(nb_tok_regex **out, nb_str pattern, nb_error *err)
{
    return nb_tok_regex_new_by(out, pattern, NB_REGEX_SCAN | NB_REGEX_TABLE | NB_REGEX_PCRE, err);
}

nb_status nb_tok_regex_new_by(nb_tok_regex **out, nb_str pattern, int ways, nb_error *err)
{
    *out = NULL;
    if (pattern.n > MAX_PATTERN || nb_utf8_valid_prefix(pattern.p, pattern.n) != pattern.n)
        return nb_fail(err, NB_E_INVALID, "pattern of %zu bytes: too long or not UTF-8", pattern.n);
    nb_tok_regex *r = calloc(1, sizeof *r);
    if (!r) return nb_fail(err, NB_E_NO_MEMORY, "pattern: out of memory");
    nb_status st = NB_OK;
    r->known = (ways & NB_REGEX_SCAN) && nb_tok_scan_parse(&r->scan, pattern);
    if (!r->known && (ways & NB_REGEX_TABLE)) compile_table(r, pattern);
    if (!r->known && !r->dfa && (ways & NB_REGEX_PCRE)) st = compile_pcre(r, pattern, err);
    if (!st && !r->known && !r->dfa && !r->code) st = nb_fail(err, NB_E_UNSUPPORTED, "pattern: not of this kind");
    if (st) nb_tok_regex_free(r), r = NULL;
    *out = r;
    return st;
}

void nb_tok_regex_free(nb_tok_regex *r)
{
    if (!r) return;
    nb_tok_dfa_free(r->dfa);
    pcre2_code_free(r->code);
    free(r);
}

const struct nb_tok_scan *nb_tok_regex_scan(const nb_tok_regex *r) { return r->known ? &r->scan : NULL; }

/* ---- search ---- */

typedef struct search {
    pcre2_match_data *data;
    pcre2_match_context *ctx;
    pcre2_jit_stack *stack;
} search;

nb_status nb_tok_find_init(nb_tok_find *f, const nb_tok_regex *r, const char *p, size_t n, nb_error *err)
{
    *f = (nb_tok_find){.r = r, .p = p, .n = n, .last = SIZE_MAX};
    if (r->known || r->dfa) return NB_OK;
    search *s = f->data = calloc(1, sizeof *s);
    if (s) s->data = pcre2_match_data_create(1, NULL);
    if (s) s->ctx = pcre2_match_context_create(NULL);
    if (!s || !s->data || !s->ctx) {
        nb_tok_find_free(f);
        return nb_fail(err, NB_E_NO_MEMORY, "pattern: out of memory");
    }
    pcre2_set_match_limit(s->ctx, 10000000);
    pcre2_set_depth_limit(s->ctx, 100000);
    pcre2_set_heap_limit(s->ctx, 64 << 10); /* KiB */
    if (r->jit) s->stack = pcre2_jit_stack_create(JIT_STACK_MIN, JIT_STACK_MAX, NULL);
    if (s->stack) pcre2_jit_stack_assign(s->ctx, NULL, s->stack);
    return NB_OK;
}

void nb_tok_find_in(nb_tok_find *f, const char *p, size_t n)
{
    f->p = p, f->n = n, f->at = 0, f->last = SIZE_MAX;
    if (f->memo.row || f->memo.looks || f->memo.oom) nb_tok_dfa_memo_free(&f->memo);
}

void nb_tok_find_free(nb_tok_find *f)
{
    search *s = f->data;
    nb_tok_dfa_memo_free(&f->memo);
    if (!s) return;
    pcre2_jit_stack_free(s->stack);
    pcre2_match_context_free(s->ctx);
    pcre2_match_data_free(s->data);
    free(s);
    f->data = NULL;
}

static nb_status find_pcre(const nb_tok_find *f, size_t *a, size_t *b, bool *any, nb_error *err)
{
    const search *s = f->data;
    int rc = pcre2_match(f->r->code, (PCRE2_SPTR)f->p, f->n, f->at, PCRE2_NO_UTF_CHECK, s->data, s->ctx);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = pcre2_match(f->r->code, (PCRE2_SPTR)f->p, f->n, f->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->data, s->ctx);
    *any = rc >= 0;
    if (rc == PCRE2_ERROR_NOMATCH) return NB_OK;
    if (rc < 0) return nb_fail(err, NB_E_INVALID, "pattern: the search at byte %zu of a text needs more than the limits allow (PCRE2 error %d)", f->at, rc);
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->data);
    *a = v[0], *b = v[1];
    if (*b < *a || *a < f->at) return nb_fail(err, NB_E_INVALID, "pattern: a match that moves backwards");
    return NB_OK;
}

nb_status nb_tok_find_next(nb_tok_find *f, size_t *start, size_t *end, bool *found, nb_error *err)
{
    *found = false;
    if (f->r->known) {
        if (f->at >= f->n) return NB_OK;
        *start = f->at;
        *end = f->at = nb_tok_scan_next(&f->r->scan, f->p, f->at, f->n);
        *found = true;
        return NB_OK;
    }
    while (f->n && f->at <= f->n) { /* in an empty text the package finds nothing, not even an empty match */
        size_t a, b, len;
        if (f->r->dfa) {
            int any = nb_tok_dfa_find(f->r->dfa, &f->memo, f->p, f->n, f->at, &a, &b);
            if (any < 0) return nb_fail(err, NB_E_NO_MEMORY, "pattern: out of memory");
            if (!any) break;
        } else {
            bool any;
            nb_status st = find_pcre(f, &a, &b, &any, err);
            if (st) return st;
            if (!any) break;
        }
        f->at = b;
        if (a == b) {
            /* Go on behind the next character; an empty match right behind a match is passed over. */
            if (b < f->n) nb_uni_next(f->p + b, &len), f->at = b + len;
            else f->at = f->n + 1;
            if (a == f->last) continue;
        }
        f->last = b;
        *start = a, *end = b, *found = true;
        return NB_OK;
    }
    f->at = f->n + 1;
    return NB_OK;
}
