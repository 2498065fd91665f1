/* text/tok_scan: the scanner. At each place it tries, in this order: contraction, (ASCII punctuation and word), word,
 * digits, punctuation, white space; the published patterns are these alternatives with different parameters. */
#include "text/tok_scan.h"

#include "text/unicode.h"

/* Kinds of characters; a character has exactly one. */
enum { UP = 1, LOW = 2, OTHER_L = 4, MARK = 8, NUM = 16, PUNCT = 32, SYMBOL = 64, WHITE = 128, SPACE = 256, NEWLINE = 512, REST = 1024 };
enum { LETTER = UP | LOW | OTHER_L, ANY_WHITE = WHITE | SPACE | NEWLINE, EVERY = 2047 };

#define L UP
#define l LOW
#define N NUM
#define P PUNCT
#define S SYMBOL
#define W WHITE
#define R REST
static const uint16_t ascii[128] = {
    R, R, R, R, R, R, R, R, R, W, NEWLINE, W, W, NEWLINE, R, R, R, R, R, R, R, R, R, R, R, R, R, R, R, R, R, R,
    SPACE, P, P, P, S, P, P, P, P, P, P, S, P, P, P, P, N, N, N, N, N, N, N, N, N, N, P, P, S, S, S, P,
    P, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, L, P, P, P, S, P,
    S, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, P, S, P, S, R,
};
static const uint16_t by_category[NB_GC_COUNT] = {
    R, L, l, L, OTHER_L, OTHER_L, MARK, MARK, MARK, N, N, N, P, P, P, P, P, P, P, S, S, S, S, W, W, W, R, R, R, R,
};
#undef L
#undef l
#undef N
#undef P
#undef S
#undef W
#undef R

static inline uint32_t kind_wide(const char *p, size_t at, size_t *len)
{
    const nb_uni_record *r = nb_uni(nb_uni_next(p + at, len));
    return (r->flags & NB_UF_WHITE) ? WHITE : by_category[r->gc];
}

/* Kind of the character at `at`; 0 at the end. */
static inline uint32_t kind(const char *p, size_t at, size_t n, size_t *len)
{
    if (at >= n) return 0;
    if ((uint8_t)p[at] < 0x80) {
        *len = 1;
        return ascii[(uint8_t)p[at]];
    }
    return kind_wide(p, at, len);
}

static inline size_t run(const char *p, size_t at, size_t n, uint32_t kinds)
{
    size_t len;
    while (kind(p, at, n, &len) & kinds) at += len;
    return at;
}

static uint32_t kind_before(const char *p, size_t at)
{
    size_t len;
    return kind(p, nb_uni_back(p, at), at, &len);
}

/* 's 't 're 've 'm 'll 'd. U+017F folds to s. */
static size_t contraction(const char *p, size_t at, size_t n, bool any_case)
{
    if (at + 1 >= n || p[at] != '\'') return at;
    char a = p[at + 1], b = at + 2 < n ? p[at + 2] : 0;
    if (any_case) {
        if ((uint8_t)a == 0xC5 && (uint8_t)b == 0xBF) return at + 3;
        if (a >= 'A' && a <= 'Z') a = (char)(a + 32);
        if (b >= 'A' && b <= 'Z') b = (char)(b + 32);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return at + 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return at + 3;
    return at;
}

/* By case. First form: any of upper, other letters, marks, then at least one of lower, other letters, marks; where the
 * latter run is empty the former gives back. Second form: at least one of the former, then any of the latter. */
static size_t shaped(const nb_tok_scan *s, const char *p, size_t at, size_t n, bool second)
{
    const uint32_t upper = UP | OTHER_L | MARK, lower = LOW | OTHER_L | MARK;
    size_t a = run(p, at, n, upper);
    if (second) {
        if (a == at) return at;
        a = run(p, a, n, lower);
    } else {
        size_t b = run(p, a, n, lower);
        if (b == a)
            while (b > at && !(kind_before(p, b) & lower)) b = nb_uni_back(p, b);
        if (b == at) return at;
        a = b;
    }
    return s->contraction == 3 ? contraction(p, a, n, true) : a;
}

static const uint32_t lead_kinds[3] = {SPACE, EVERY & ~(uint32_t)(NEWLINE | LETTER | NUM), EVERY & ~(uint32_t)(NEWLINE | LETTER | PUNCT | SYMBOL)};

static size_t word(const nb_tok_scan *s, const char *p, size_t at, size_t n, uint32_t k, size_t len)
{
    bool lead = (k & lead_kinds[s->lead]) != 0;
    size_t end;
    if (s->letters == 2) {
        for (int second = 0; second < 2; second++) {
            if (lead && (end = shaped(s, p, at + len, n, second)) > at + len) return end;
            if ((end = shaped(s, p, at, n, second)) > at) return end;
        }
        return at;
    }
    uint32_t letters = s->letters ? LETTER | MARK : LETTER;
    if (lead && (end = run(p, at + len, n, letters)) > at + len) return end;
    return run(p, at, n, letters);
}

static size_t digits(const nb_tok_scan *s, const char *p, size_t at, size_t n, uint32_t k, size_t len)
{
    if (s->digits == 255) {
        size_t from = k == SPACE ? at + len : at, end = run(p, from, n, NUM);
        return end > from ? end : at;
    }
    for (uint32_t i = 0; i < s->digits && (kind(p, at, n, &len) & NUM); i++) at += len;
    return at;
}

static const uint32_t punct_kinds[3] = {EVERY & ~(uint32_t)(ANY_WHITE | LETTER | NUM), EVERY & ~(uint32_t)(ANY_WHITE | LETTER | NUM | MARK), PUNCT | SYMBOL};

static size_t punctuation(const nb_tok_scan *s, const char *p, size_t at, size_t n, uint32_t k, size_t len)
{
    size_t from = k == SPACE ? at + len : at, end = run(p, from, n, punct_kinds[s->punct]);
    if (end == from) return at;
    if (s->trail) while (end < n && (p[end] == '\r' || p[end] == '\n' || (s->trail == 2 && p[end] == '/'))) end++;
    return end;
}

static size_t white(const nb_tok_scan *s, const char *p, size_t at, size_t n)
{
    size_t end = run(p, at, n, ANY_WHITE), last;
    if (end == at) return at;
    if (s->newlines) {
        for (last = end; last > at && p[last - 1] != '\n' && p[last - 1] != '\r'; last--) continue;
        if (last > at) return last;
    }
    if (end == n) return end;
    last = nb_uni_back(p, end);
    return last > at ? last : end;
}

static size_t ascii_word(const char *p, size_t at, size_t n)
{
    uint8_t c = (uint8_t)p[at];
    size_t end = at + 1;
    if (c >= 128 || !(ascii[c] & (PUNCT | SYMBOL))) return at;
    while (end < n && (uint8_t)p[end] < 128 && (ascii[(uint8_t)p[end]] & (UP | LOW))) end++;
    return end > at + 1 ? end : at;
}

/* End of the match that begins exactly at `at`, or `at`. */
static inline size_t match(const nb_tok_scan *s, const char *p, size_t at, size_t n)
{
    size_t len, end;
    uint32_t k = kind(p, at, n, &len);
    if (s->contraction && s->contraction < 3 && p[at] == '\'' && (end = contraction(p, at, n, s->contraction == 2)) > at) return end;
    if (s->ascii_words && (end = ascii_word(p, at, n)) > at) return end;
    if ((end = word(s, p, at, n, k, len)) > at) return end;
    if ((k & (NUM | SPACE)) && (end = digits(s, p, at, n, k, len)) > at) return end;
    if ((end = punctuation(s, p, at, n, k, len)) > at) return end;
    return white(s, p, at, n);
}

size_t nb_tok_scan_next(const nb_tok_scan *s, const char *p, size_t at, size_t n)
{
    size_t end = match(s, p, at, n);
    if (end > at) return end;
    /* Nothing begins here: a piece of its own, up to the next match. */
    for (;;) {
        size_t len;
        nb_uni_next(p + at, &len);
        at += len;
        if (at >= n || match(s, p, at, n) > at) return at;
    }
}

/* ---- recognising patterns ---- */

#define CASED "'s|'t|'re|'ve|'m|'ll|'d"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"

/* Alternatives, in groups that must follow each other in this order. */
enum { G_CONTRACTION, G_ASCII, G_WORD, G_DIGITS, G_PUNCT, G_NEWLINES, G_TAIL };
static const struct alternative { const char *text; uint8_t group, value, lead; } alternatives[] = {
    {CASED, G_CONTRACTION, 1, 0}, {"'(?:[sdmt]|ll|ve|re)", G_CONTRACTION, 1, 0},
    {"(?i:" CASED ")", G_CONTRACTION, 2, 0}, {"'(?i:[sdmt]|ll|ve|re)", G_CONTRACTION, 2, 0},
    {"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", G_ASCII, 1, 0},
    {"[!\\\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+", G_ASCII, 1, 0},
    {" ?\\p{L}+", G_WORD, 0, 0}, {LEAD "\\p{L}+", G_WORD, 0, 1}, {"[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+", G_WORD, 0, 1},
    {LEAD "[\\p{L}\\p{M}]+", G_WORD, 1, 1}, {"[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+", G_WORD, 1, 2},
    {LEAD UPPER "*" LOWER "+(?i:" CASED ")?|" LEAD UPPER "+" LOWER "*(?i:" CASED ")?", G_WORD, 3, 1},
    {LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*", G_WORD, 2, 1},
    {" ?\\p{N}+", G_DIGITS, 255, 0}, {"\\p{N}{1,3}", G_DIGITS, 3, 0}, {"\\p{N}{1}", G_DIGITS, 1, 0}, {"\\p{N}", G_DIGITS, 1, 0},
    {" ?[^\\s\\p{L}\\p{N}]+", G_PUNCT, 0, 0}, {" ?[^\\s\\p{L}\\p{N}\\r\\n]+", G_PUNCT, 0, 0},
    {" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*", G_PUNCT, 0, 1}, {" ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*", G_PUNCT, 0, 1},
    {" ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*", G_PUNCT, 0, 2}, {" ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*", G_PUNCT, 1, 1},
    {" ?[\\p{P}\\p{S}]+[\\r\\n]*", G_PUNCT, 2, 1},
    {"\\s*[\\r\\n]+", G_NEWLINES, 1, 0}, {"\\s*[\\r\\n]", G_NEWLINES, 1, 0},
    {"\\s+(?!\\S)|\\s+", G_TAIL, 0, 0},
};

static void apply(nb_tok_scan *s, const struct alternative *a)
{
    switch (a->group) {
    case G_CONTRACTION: s->contraction = a->value; break;
    case G_ASCII: s->ascii_words = 1; break;
    case G_WORD:
        s->lead = a->lead;
        s->letters = a->value == 3 ? 2 : a->value;
        if (a->value == 3) s->contraction = 3;
        break;
    case G_DIGITS: s->digits = a->value; break;
    case G_PUNCT: s->punct = a->value, s->trail = a->lead; break;
    case G_NEWLINES: s->newlines = 1; break;
    default: break;
    }
}

bool nb_tok_scan_parse(nb_tok_scan *s, nb_str pattern)
{
    int group = -1;
    uint32_t seen = 0;
    *s = (nb_tok_scan){0};
    while (pattern.n) {
        const struct alternative *best = NULL;
        size_t best_n = 0;
        for (size_t i = 0; i < NB_COUNT(alternatives); i++) {
            size_t n = strlen(alternatives[i].text);
            if (n <= best_n || n > pattern.n || memcmp(pattern.p, alternatives[i].text, n)) continue;
            if (n < pattern.n && pattern.p[n] != '|') continue;
            best = &alternatives[i], best_n = n;
        }
        if (!best || best->group <= group) return false;
        if (best->group == G_WORD && best->value == 3 && (seen & 1u << G_CONTRACTION)) return false;
        group = best->group;
        seen |= 1u << group;
        apply(s, best);
        pattern.p += best_n, pattern.n -= best_n;
        if (pattern.n) {
            pattern.p++, pattern.n--;
            if (!pattern.n) return false;
        }
    }
    const uint32_t must = 1u << G_WORD | 1u << G_PUNCT | 1u << G_TAIL;
    return (seen & must) == must;
}
