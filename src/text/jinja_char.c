/* text/jinja_char: what Python's str methods know about characters. Categories and simple case mappings are utf8proc's;
 * jinja_char_tables.h has what it lacks. */
#include "text/jinja.h"
#include "text/jinja_char_tables.h"

#include <utf8proc.h>

static int category(uint32_t c) { return c > 0x10FFFF ? UTF8PROC_CATEGORY_CN : utf8proc_category((utf8proc_int32_t)c); }

/* Binary search in sorted ranges. */
static bool in_ranges(const nbj_char_range *r, size_t n, uint32_t c)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c < r[mid].first)
            hi = mid;
        else if (c > r[mid].last)
            lo = mid + 1;
        else
            return true;
    }
    return false;
}

/* str.isspace(): what strip() and split() take for white space. */
bool nbj_is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

/* str.isprintable(): repr() escapes all others. */
bool nbj_is_printable(uint32_t c)
{
    if (c < 0x7F) return c >= ' ';
    switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
    }
}

bool nbj_is_alpha(uint32_t c)
{
    int k = category(c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT ||
           k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_LO;
}

bool nbj_is_decimal(uint32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UTF8PROC_CATEGORY_ND; }
bool nbj_is_digit(uint32_t c) { return nbj_is_decimal(c) || in_ranges(nbj_digits, NB_COUNT(nbj_digits), c); }
bool nbj_is_numeric(uint32_t c) { return nbj_is_digit(c) || in_ranges(nbj_numerics, NB_COUNT(nbj_numerics), c); }
bool nbj_is_lower(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(nbj_other_lower, NB_COUNT(nbj_other_lower), c);
}
bool nbj_is_upper(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(nbj_other_upper, NB_COUNT(nbj_other_upper), c);
}
bool nbj_is_title(uint32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool nbj_is_cased(uint32_t c) { return nbj_is_lower(c) || nbj_is_upper(c) || nbj_is_title(c); }

/* Characters that do not end a word for the final sigma (Case_Ignorable). */
bool nbj_is_case_ignorable(uint32_t c)
{
    int k = category(c);
    if (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_ME || k == UTF8PROC_CATEGORY_CF ||
        k == UTF8PROC_CATEGORY_LM || k == UTF8PROC_CATEGORY_SK)
        return true;
    return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x55F || c == 0x5F4 || c == 0x2018 ||
           c == 0x2019 || c == 0x2024 || c == 0x2027 || c == 0xFE13 || c == 0xFE52 || c == 0xFE55 || c == 0xFF07 ||
           c == 0xFF0E || c == 0xFF1A;
}

bool nbj_is_word(uint32_t c)
{
    if (c < 0x80) return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    return c <= 0x10FFFF && (nbj_is_alpha(c) || nbj_is_numeric(c));
}

/* 0 to 9 for decimal digits of any script, else -1. */
int nbj_decimal_value(uint32_t c)
{
    if (c < 0x80) return c >= '0' && c <= '9' ? (int)c - '0' : -1;
    if (!nbj_is_decimal(c)) return -1;
    /* Decimal digits come in runs of ten whose zero is a multiple of ten after the run's beginning. */
    uint32_t first = c;
    while (first && nbj_is_decimal(first - 1)) first--;
    return (int)((c - first) % 10);
}

static const nbj_special *special(uint32_t c)
{
    size_t lo = 0, hi = NB_COUNT(nbj_specials);
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (nbj_specials[mid].c == c) return &nbj_specials[mid];
        if (nbj_specials[mid].c < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* Full case mapping of one character: up to three. */
uint32_t nbj_map(uint32_t c, int how, uint32_t out[3])
{
    out[0] = c;
    if (c < 0x80) {
        if (how == NBJ_UPPER || how == NBJ_TITLE)
            out[0] = c >= 'a' && c <= 'z' ? c - 32 : c;
        else
            out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
        return 1;
    }
    if (how == NBJ_FOLD) {
        utf8proc_int32_t to[4];
        utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, to, 4, UTF8PROC_CASEFOLD, NULL);
        if (n < 1 || n > 3) return 1;
        for (utf8proc_ssize_t i = 0; i < n; i++) out[i] = (uint32_t)to[i];
        return (uint32_t)n;
    }
    const nbj_special *s = special(c);
    const uint16_t *to = !s ? NULL : how == NBJ_UPPER ? s->upper : how == NBJ_TITLE ? s->title : s->lower;
    if (to && to[0]) {
        uint32_t n = 0;
        for (; n < 3 && to[n]; n++) out[n] = to[n];
        return n;
    }
    utf8proc_int32_t k = (utf8proc_int32_t)c;
    out[0] = (uint32_t)(how == NBJ_UPPER   ? utf8proc_toupper(k)
                        : how == NBJ_TITLE ? utf8proc_totitle(k)
                                           : utf8proc_tolower(k));
    return 1;
}

/* Capital sigma becomes the final form where a cased letter stands before it and none after it, not counting marks
 * between. */
static bool final_sigma(const jstr *s, uint32_t at)
{
    bool before = false;
    for (uint32_t i = at; i > 0;) {
        i--;
        while (i > 0 && ((uint8_t)s->p[i] & 0xC0) == 0x80) i--;
        size_t len;
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len);
        if (nbj_is_case_ignorable(c)) continue;
        before = nbj_is_cased(c);
        break;
    }
    if (!before) return false;
    for (uint32_t i = at + 2; i < s->n;) {
        size_t len;
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len);
        i += (uint32_t)len;
        if (!nbj_is_case_ignorable(c)) return !nbj_is_cased(c);
    }
    return true;
}

/* Appends the mapping of the character at *i and moves on. */
static void map_one(jctx *j, jbuf *b, const jstr *s, uint32_t *i, int how)
{
    size_t len;
    uint32_t c = nb_utf8_decode(s->p + *i, s->n - *i, &len), out[3];
    uint32_t n = nbj_map(c, how, out);
    if (c == 0x3A3 && how == NBJ_LOWER && final_sigma(s, *i)) out[0] = 0x3C2;
    for (uint32_t k = 0; k < n; k++) nbj_add_cp(j, b, out[k], nbj_trusted_at(s, *i));
    *i += (uint32_t)len;
}

/* ASCII changes in place: one copy, the same origins. J_MISSING: not all of it is ASCII. */
static jval case_ascii(jctx *j, const jstr *s, int how)
{
    if (nbj_chars(s) != s->n) return jv(J_MISSING);
    char *p = nbj_alloc(j, (size_t)s->n + 1);
    jstr *out = p ? nbj_alloc(j, sizeof *out) : NULL;
    if (!out) return jv(J_ERR);
    for (uint32_t i = 0; i < s->n; i++) {
        char c = s->p[i];
        p[i] = how == NBJ_UPPER ? (c >= 'a' && c <= 'z' ? (char)(c - 32) : c)
                                : (c >= 'A' && c <= 'Z' ? (char)(c + 32) : c);
    }
    *out = *s;
    out->p = p;
    out->grow = NULL;
    return jv_str(out);
}

/* Origins follow each character. */
jval nbj_case(jctx *j, const jstr *s, int how)
{
    jval plain = nbj_step(j, s->n / 16) ? case_ascii(j, s, how) : jv(J_ERR);
    if (plain.t != J_MISSING) return plain;
    jbuf *b = nbj_push(j);
    if (!b || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    for (uint32_t i = 0; i < s->n && !j->failed;) map_one(j, b, s, &i, how);
    return nbj_as_markup(j, nbj_pop(j), s->markup);
}

/* First character in title case, the others in lower case. */
jval nbj_capitalize(jctx *j, const jstr *s, uint32_t from, uint32_t to)
{
    jbuf *b = nbj_push(j);
    if (!b || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    for (uint32_t i = from; i < to && !j->failed;) map_one(j, b, s, &i, i == from ? NBJ_TITLE : NBJ_LOWER);
    return nbj_as_markup(j, nbj_pop(j), s->markup);
}
