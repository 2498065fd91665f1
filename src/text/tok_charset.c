/* text/tok_charset: see the header. Properties are read off the run lists of the Unicode tables. */
#include "text/tok_charset.h"

#include "text/unicode.h"
#include "text/unicode_tables.h"

#include <stdlib.h>

enum { LAST = 0x10FFFF };

void nb_charset_free(nb_charset *s)
{
    free(s->r);
    *s = (nb_charset){0};
}

static void append(nb_charset *s, uint32_t first, uint32_t last)
{
    if (first > last) return;
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        void *p = realloc(s->r, cap * sizeof *s->r);
        if (!p) {
            s->oom = true;
            return;
        }
        s->r = p;
        s->cap = cap;
    }
    s->r[s->n].first = first;
    s->r[s->n++].last = last;
}

void nb_charset_add(nb_charset *s, uint32_t first, uint32_t last)
{
    if (last > LAST) last = LAST;
    if (first < 0xD800) append(s, first, last < 0xD800 ? last : 0xD7FF);
    if (last > 0xDFFF) append(s, first > 0xDFFF ? first : 0xE000, last);
}

static int by_first(const void *x, const void *y)
{
    const struct nb_char_range *a = x, *b = y;
    return a->first < b->first ? -1 : a->first > b->first;
}

void nb_charset_normalise(nb_charset *s)
{
    size_t out = 0;
    if (!s->n) return;
    qsort(s->r, s->n, sizeof *s->r, by_first);
    for (size_t i = 1; i < s->n; i++) {
        if (s->r[i].first <= s->r[out].last + 1) {
            if (s->r[i].last > s->r[out].last) s->r[out].last = s->r[i].last;
        } else {
            s->r[++out] = s->r[i];
        }
    }
    s->n = out + 1;
}

void nb_charset_union(nb_charset *s, const nb_charset *other)
{
    for (size_t i = 0; i < other->n; i++) append(s, other->r[i].first, other->r[i].last);
    s->oom |= other->oom;
    nb_charset_normalise(s);
}

void nb_charset_complement(nb_charset *s)
{
    nb_charset out = {.oom = s->oom};
    uint32_t next = 0;
    nb_charset_normalise(s);
    for (size_t i = 0; i < s->n; i++) {
        if (s->r[i].first > next) nb_charset_add(&out, next, s->r[i].first - 1);
        next = s->r[i].last + 1;
    }
    if (next <= LAST) nb_charset_add(&out, next, LAST);
    free(s->r);
    *s = out;
}

void nb_charset_intersect(nb_charset *s, const nb_charset *other)
{
    nb_charset out = {.oom = s->oom || other->oom};
    size_t i = 0, j = 0;
    nb_charset_normalise(s);
    while (i < s->n && j < other->n) {
        uint32_t a = s->r[i].first > other->r[j].first ? s->r[i].first : other->r[j].first;
        uint32_t b = s->r[i].last < other->r[j].last ? s->r[i].last : other->r[j].last;
        if (a <= b) append(&out, a, b);
        if (s->r[i].last < other->r[j].last) i++;
        else j++;
    }
    free(s->r);
    *s = out;
}

bool nb_charset_has(const nb_charset *s, uint32_t cp)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (s->r[mid].last < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < s->n && s->r[lo].first <= cp;
}

/* Adds to `out` the folds of what s holds, or with `back` all characters whose fold s holds. */
static void add_folds(const nb_charset *s, nb_charset *out, bool back)
{
    for (uint32_t i = 0; i < nb_uni_fold_count; i++) {
        const nb_uni_case *c = &nb_uni_fold[i];
        for (uint32_t cp = c->first, to = c->to; cp <= c->last; cp += c->step, to += c->step)
            if (nb_charset_has(s, back ? to : cp)) nb_charset_add(out, back ? cp : to, back ? cp : to);
    }
}

void nb_charset_fold(nb_charset *s)
{
    nb_charset folds = {0}, more = {0};
    nb_charset_normalise(s);
    add_folds(s, &folds, false);
    nb_charset_union(s, &folds);
    add_folds(s, &more, true);
    nb_charset_union(s, &more);
    nb_charset_free(&folds);
    nb_charset_free(&more);
}

typedef struct wanted { uint32_t gc, flags; int script; bool not_gc; } wanted;

static void add_matching(nb_charset *s, const wanted *w)
{
    for (uint32_t run = 0; run < nb_uni_run_count; run++) {
        const nb_uni_record *r = &nb_uni_records[nb_uni_runs[run] & 2047];
        bool in = (w->gc >> r->gc & 1) || (r->flags & w->flags) || (w->script >= 0 && r->script == w->script);
        if (in == w->not_gc) continue;
        nb_charset_add(s, nb_uni_runs[run] >> 11, run + 1 < nb_uni_run_count ? (nb_uni_runs[run + 1] >> 11) - 1 : LAST);
    }
    nb_charset_normalise(s);
}

void nb_charset_keep_after14(nb_charset *s)
{
    nb_charset only = {0};
    add_matching(&only, &(wanted){.flags = NB_UF_AFTER14, .script = -1});
    nb_charset_intersect(s, &only);
    nb_charset_free(&only);
}

void nb_charset_without_categories(nb_charset *s, uint32_t gc)
{
    nb_charset others = {0};
    add_matching(&others, &(wanted){.gc = gc, .script = -1, .not_gc = true});
    nb_charset_intersect(s, &others);
    nb_charset_free(&others);
}

static const struct { const char *name; uint32_t gc; } categories[] = {
    {"L", NB_GC_L}, {"Letter", NB_GC_L}, {"M", NB_GC_M}, {"Mark", NB_GC_M}, {"Combining_Mark", NB_GC_M}, {"N", NB_GC_N}, {"Number", NB_GC_N},
    {"P", NB_GC_P}, {"Punctuation", NB_GC_P}, {"S", NB_GC_S}, {"Symbol", NB_GC_S}, {"Z", NB_GC_Z}, {"Separator", NB_GC_Z}, {"C", NB_GC_C}, {"Other", NB_GC_C},
    {"LC", 7u << NB_GC_LU}, {"Cased_Letter", 7u << NB_GC_LU}, {"Punct", NB_GC_P},
    {"Lu", 1u << NB_GC_LU}, {"Uppercase_Letter", 1u << NB_GC_LU}, {"Ll", 1u << NB_GC_LL}, {"Lowercase_Letter", 1u << NB_GC_LL},
    {"Lt", 1u << NB_GC_LT}, {"Titlecase_Letter", 1u << NB_GC_LT}, {"Lm", 1u << NB_GC_LM}, {"Modifier_Letter", 1u << NB_GC_LM},
    {"Lo", 1u << NB_GC_LO}, {"Other_Letter", 1u << NB_GC_LO}, {"Mn", 1u << NB_GC_MN}, {"Nonspacing_Mark", 1u << NB_GC_MN},
    {"Mc", 1u << NB_GC_MC}, {"Spacing_Mark", 1u << NB_GC_MC}, {"Me", 1u << NB_GC_ME}, {"Enclosing_Mark", 1u << NB_GC_ME},
    {"Nd", 1u << NB_GC_ND}, {"Decimal_Number", 1u << NB_GC_ND}, {"Digit", 1u << NB_GC_ND}, {"Nl", 1u << NB_GC_NL}, {"Letter_Number", 1u << NB_GC_NL},
    {"No", 1u << NB_GC_NO}, {"Other_Number", 1u << NB_GC_NO}, {"Pc", 1u << NB_GC_PC}, {"Connector_Punctuation", 1u << NB_GC_PC},
    {"Pd", 1u << NB_GC_PD}, {"Dash_Punctuation", 1u << NB_GC_PD}, {"Ps", 1u << NB_GC_PS}, {"Open_Punctuation", 1u << NB_GC_PS},
    {"Pe", 1u << NB_GC_PE}, {"Close_Punctuation", 1u << NB_GC_PE}, {"Pi", 1u << NB_GC_PI}, {"Initial_Punctuation", 1u << NB_GC_PI},
    {"Pf", 1u << NB_GC_PF}, {"Final_Punctuation", 1u << NB_GC_PF}, {"Po", 1u << NB_GC_PO}, {"Other_Punctuation", 1u << NB_GC_PO},
    {"Sm", 1u << NB_GC_SM}, {"Math_Symbol", 1u << NB_GC_SM}, {"Sc", 1u << NB_GC_SC}, {"Currency_Symbol", 1u << NB_GC_SC},
    {"Sk", 1u << NB_GC_SK}, {"Modifier_Symbol", 1u << NB_GC_SK}, {"So", 1u << NB_GC_SO}, {"Other_Symbol", 1u << NB_GC_SO},
    {"Zs", 1u << NB_GC_ZS}, {"Space_Separator", 1u << NB_GC_ZS}, {"Zl", 1u << NB_GC_ZL}, {"Line_Separator", 1u << NB_GC_ZL},
    {"Zp", 1u << NB_GC_ZP}, {"Paragraph_Separator", 1u << NB_GC_ZP}, {"Cc", 1u << NB_GC_CC}, {"Control", 1u << NB_GC_CC}, {"Cntrl", 1u << NB_GC_CC},
    {"Cf", 1u << NB_GC_CF}, {"Format", 1u << NB_GC_CF}, {"Cn", 1u << NB_GC_CN}, {"Unassigned", 1u << NB_GC_CN}, {"Co", 1u << NB_GC_CO}, {"Private_Use", 1u << NB_GC_CO},
};
static const struct { const char *name; uint32_t flags; } flags[] = {
    {"Alphabetic", NB_UF_ALPHA}, {"Alpha", NB_UF_ALPHA}, {"Uppercase", NB_UF_UPPER}, {"Upper", NB_UF_UPPER}, {"Lowercase", NB_UF_LOWER}, {"Lower", NB_UF_LOWER},
    {"White_Space", NB_UF_WHITE}, {"Space", NB_UF_WHITE}, {"Extended_Pictographic", NB_UF_PICT}, {"Ideographic", NB_UF_IDEO}, {"Hex_Digit", NB_UF_HEX},
};

/* Classes that are put together. */
static bool composed(nb_charset *s, nb_str name, int where)
{
    wanted w = {.script = -1};
    if (nb_uni_name_eq(name, "Any")) nb_charset_add(s, 0, LAST);
    else if (nb_uni_name_eq(name, "Assigned")) w = (wanted){.gc = 1u << NB_GC_CN, .script = -1, .not_gc = true};
    else if (nb_uni_name_eq(name, "ASCII")) nb_charset_add(s, 0, 127);
    else if (nb_uni_name_eq(name, "XDigit")) nb_charset_add(s, '0', '9'), nb_charset_add(s, 'A', 'F'), nb_charset_add(s, 'a', 'f');
    else if (nb_uni_name_eq(name, "Alnum")) w = (wanted){.gc = 1u << NB_GC_ND, .flags = NB_UF_ALPHA, .script = -1};
    else if (nb_uni_name_eq(name, "Blank")) nb_charset_add(s, 9, 9), w.gc = 1u << NB_GC_ZS;
    else if (nb_uni_name_eq(name, "Print")) w = (wanted){.gc = 1u << NB_GC_CN | 1u << NB_GC_CC | 1u << NB_GC_CS | 1u << NB_GC_ZL | 1u << NB_GC_ZP, .script = -1, .not_gc = true};
    else if (nb_uni_name_eq(name, "Graph")) w = (wanted){.gc = 1u << NB_GC_CN | 1u << NB_GC_CC | 1u << NB_GC_CS, .flags = NB_UF_WHITE, .script = -1, .not_gc = true};
    else if (nb_uni_name_eq(name, "Word")) {
        w = (wanted){.gc = NB_GC_M | 1u << NB_GC_ND | 1u << NB_GC_PC, .flags = NB_UF_ALPHA, .script = -1};
        if (where == NB_CHARSET_BARE) nb_charset_add(s, 0xB2, 0xB3), nb_charset_add(s, 0xB9, 0xB9), nb_charset_add(s, 0xBC, 0xBE);
    } else return false;
    if (w.gc || w.flags) add_matching(s, &w);
    nb_charset_normalise(s);
    return true;
}

bool nb_charset_property(nb_charset *s, nb_str name, int where)
{
    wanted w = {.script = -1};
    if (where == NB_CHARSET_POSIX && nb_uni_name_eq(name, "punct")) {
        w.gc = NB_GC_P | NB_GC_S;
        add_matching(s, &w);
        return true;
    }
    if (composed(s, name, where)) return true;
    for (size_t i = 0; i < NB_COUNT(categories) && !w.gc; i++)
        if (nb_uni_name_eq(name, categories[i].name)) w.gc = categories[i].gc;
    for (size_t i = 0; i < NB_COUNT(flags) && !w.gc && !w.flags; i++)
        if (nb_uni_name_eq(name, flags[i].name)) w.flags = flags[i].flags;
    if (!w.gc && !w.flags && (w.script = nb_uni_script_find(name)) < 0) return false;
    add_matching(s, &w);
    return true;
}
