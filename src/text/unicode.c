/* text/unicode: look-ups over the generated tables, normalisation, grapheme clusters. */
#include "text/unicode.h"

#include "text/unicode_tables.h"

#include <pthread.h>
#include <stdlib.h>

/* Blocks of 128 code points; those inside one run share a block per record. */
enum { MAX_BLOCKS = 512 };
uint16_t nb_uni_stage1[0x110000 >> 7];
uint16_t nb_uni_stage2[MAX_BLOCKS * 128];
uint32_t nb_uni_ascii[128];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void spread(void)
{
    uint16_t whole[2048] = {0}; /* record -> block that holds nothing else, + 1 */
    uint32_t blocks = 0, run = 0;
    for (uint32_t b = 0; b < 0x110000 >> 7; b++) {
        uint32_t cp = b << 7;
        while (run + 1 < nb_uni_run_count && nb_uni_runs[run + 1] >> 11 <= cp) run++;
        uint32_t rec = nb_uni_runs[run] & 2047;
        bool uniform = run + 1 >= nb_uni_run_count || nb_uni_runs[run + 1] >> 11 >= cp + 128;
        if (uniform && whole[rec]) {
            nb_uni_stage1[b] = (uint16_t)(whole[rec] - 1);
            continue;
        }
        uint16_t *out = nb_uni_stage2 + (size_t)blocks * 128;
        for (uint32_t i = 0, r = run; i < 128; i++) {
            while (r + 1 < nb_uni_run_count && nb_uni_runs[r + 1] >> 11 <= cp + i) r++;
            out[i] = (uint16_t)(nb_uni_runs[r] & 2047);
        }
        nb_uni_stage1[b] = (uint16_t)blocks++;
        if (uniform) whole[rec] = (uint16_t)blocks;
    }
    for (uint32_t c = 0; c < 128; c++) nb_uni_ascii[c] = nb_uni(c)->flags;
}

void nb_uni_init(void) { pthread_once(&once, spread); }

static uint32_t map_case(const nb_uni_case *t, uint32_t count, uint32_t cp)
{
    uint32_t lo = 0, hi = count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (t[mid].last < cp) lo = mid + 1;
        else hi = mid;
    }
    if (lo == count || cp < t[lo].first || (cp - t[lo].first) % t[lo].step) return cp;
    return t[lo].to + (cp - t[lo].first);
}

size_t nb_uni_lowercase(uint32_t cp, uint32_t out[2])
{
    out[0] = cp;
    if (cp < 128) {
        if (cp >= 'A' && cp <= 'Z') out[0] = cp + 32;
        return 1;
    }
    if (cp == 0x130) {
        out[0] = 'i', out[1] = 0x307;
        return 2;
    }
    out[0] = map_case(nb_uni_lower, nb_uni_lower_count, cp);
    return 1;
}

uint32_t nb_uni_simple_fold(uint32_t cp) { return map_case(nb_uni_fold, nb_uni_fold_count, cp); }

bool nb_uni_name_eq(nb_str a, const char *b)
{
    size_t i = 0;
    for (;;) {
        while (i < a.n && (a.p[i] == ' ' || a.p[i] == '_' || a.p[i] == '-')) i++;
        while (*b == ' ' || *b == '_' || *b == '-') b++;
        if (i == a.n || !*b) return i == a.n && !*b;
        char x = a.p[i++], y = *b++;
        if (x >= 'A' && x <= 'Z') x = (char)(x + 32);
        if (y >= 'A' && y <= 'Z') y = (char)(y + 32);
        if (x != y) return false;
    }
}

int nb_uni_script_find(nb_str name)
{
    for (uint32_t i = 0; i < nb_uni_script_count; i++)
        if (nb_uni_name_eq(name, nb_uni_script_names[i])) return (int)i;
    return -1;
}

/* ---- normalisation ---- */

enum { S_BASE = 0xAC00, L_BASE = 0x1100, V_BASE = 0x1161, T_BASE = 0x11A7, L_COUNT = 19, V_COUNT = 21, T_COUNT = 28,
       S_COUNT = L_COUNT * V_COUNT * T_COUNT };

/* A character that a segment may begin with and that needs no work itself. */
static bool inert(int form, uint32_t cp)
{
    if (cp < 0x80) return true;
    const nb_uni_record *r = nb_uni(cp);
    if (r->ccc9) return false;
    bool hangul = cp - S_BASE < S_COUNT;
    switch (form) {
    case NB_NFC: return !(r->flags & (NB_UF_NFC_MAYBE | NB_UF_NFC_NO));
    case NB_NFKC: return !(r->flags & (NB_UF_NFC_MAYBE | NB_UF_NFC_NO | NB_UF_COMPAT));
    case NB_NFD: return !hangul && !(r->flags & NB_UF_CANON);
    default: return !hangul && !(r->flags & (NB_UF_CANON | NB_UF_COMPAT));
    }
}

size_t nb_uni_normal_prefix(int form, const char *p, size_t n)
{
    size_t at = 0, last = 0; /* last: start of the character before `at` */
    while (at < n) {
        size_t len;
        uint32_t cp = nb_uni_next(p + at, &len);
        /* What composes takes the character before it along; decomposed forms only mind the order of marks. */
        if (!inert(form, cp)) return last;
        last = at;
        at += len;
    }
    return n;
}

static const nb_uni_decomposition *find_decomposition(uint32_t cp)
{
    uint32_t lo = 0, hi = nb_uni_decomposition_count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (nb_uni_decompositions[mid].cp < cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < nb_uni_decomposition_count && nb_uni_decompositions[lo].cp == cp ? &nb_uni_decompositions[lo] : NULL;
}

static bool push(nb_uni_scratch *s, size_t *count, uint32_t cp)
{
    if (*count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        uint32_t *c = realloc(s->cp, cap * sizeof *c);
        if (!c) return false;
        s->cp = c;
        uint32_t *f = realloc(s->from, cap * sizeof *f);
        if (!f) return false;
        s->from = f;
        uint8_t *k = realloc(s->ccc, cap);
        if (!k) return false;
        s->ccc = k;
        s->cap = cap;
    }
    s->cp[*count] = cp;
    s->from[*count] = (uint32_t)s->at;
    s->ccc[*count] = nb_uni(cp)->ccc9;
    ++*count;
    return true;
}

/* Full decomposition of one character; the depth of the tables is at most four. */
static bool decompose(nb_uni_scratch *s, size_t *count, uint32_t cp, bool compat)
{
    if (cp - S_BASE < S_COUNT) {
        uint32_t i = cp - S_BASE, t = i % T_COUNT;
        return push(s, count, L_BASE + i / (V_COUNT * T_COUNT)) && push(s, count, V_BASE + i / T_COUNT % V_COUNT) &&
               (!t || push(s, count, T_BASE + t));
    }
    uint32_t flags = cp < 0x80 ? 0 : nb_uni(cp)->flags;
    if (!(flags & NB_UF_CANON) && !(compat && (flags & NB_UF_COMPAT))) return push(s, count, cp);
    const nb_uni_decomposition *d = find_decomposition(cp);
    if (!d) return push(s, count, cp);
    for (uint32_t i = 0; i < (d->len & 0x7Fu); i++) {
        uint32_t c = nb_uni_decomposition_pool[d->at + i];
        if (c - 0xD800 < 0x800) c = nb_uni_decomposition_astral[c - 0xD800];
        if (!decompose(s, count, c, compat)) return false;
    }
    return true;
}

/* Stable sort of each run of marks by combining class. Runs may be long in hostile text: counting sort by class. The
 * places stay in order, as in the published package: the first of a run comes from where the run begins. */
static bool sort_marks(nb_uni_scratch *s, size_t count)
{
    for (size_t i = 0; i < count;) {
        if (!s->ccc[i]) { i++; continue; }
        size_t j = i;
        bool sorted = true;
        for (; j < count && s->ccc[j]; j++)
            if (j > i && s->ccc[j] < s->ccc[j - 1]) sorted = false;
        if (!sorted && j - i <= 32) {
            for (size_t a = i + 1; a < j; a++) {
                uint32_t cp = s->cp[a];
                uint8_t k = s->ccc[a];
                size_t b = a;
                for (; b > i && s->ccc[b - 1] > k; b--) s->cp[b] = s->cp[b - 1], s->ccc[b] = s->ccc[b - 1];
                s->cp[b] = cp, s->ccc[b] = k;
            }
        } else if (!sorted) {
            size_t place[257] = {0};
            uint32_t *tmp = malloc((j - i) * sizeof *tmp);
            if (!tmp) return false;
            for (size_t a = i; a < j; a++) place[s->ccc[a] + 1]++;
            for (int k = 0; k < 256; k++) place[k + 1] += place[k];
            for (size_t a = i; a < j; a++) tmp[place[s->ccc[a]]++] = s->cp[a];
            for (size_t a = i; a < j; a++) s->cp[a] = tmp[a - i], s->ccc[a] = nb_uni(tmp[a - i])->ccc9;
            free(tmp);
        }
        i = j;
    }
    return true;
}

static uint32_t compose_pair(uint32_t a, uint32_t b)
{
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT) return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1) return a + (b - T_BASE);
    uint32_t lo = 0, hi = nb_uni_composition_count;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        const uint32_t *c = nb_uni_compositions[mid];
        if (c[0] < a || (c[0] == a && c[1] < b)) lo = mid + 1;
        else hi = mid;
    }
    if (lo == nb_uni_composition_count) return 0;
    const uint32_t *c = nb_uni_compositions[lo];
    return c[0] == a && c[1] == b ? c[2] : 0;
}

static size_t compose(nb_uni_scratch *s, size_t count)
{
    size_t out = 0, starter = SIZE_MAX;
    int last = -1; /* class of the character before, within the run after the starter; -1: next to it */
    for (size_t i = 0; i < count; i++) {
        uint32_t cp = s->cp[i];
        int k = s->ccc[i];
        if (starter != SIZE_MAX && last < k) {
            uint32_t c = compose_pair(s->cp[starter], cp);
            if (c) {
                s->cp[starter] = c;
                continue;
            }
        }
        if (!k) starter = out, last = -1;
        else last = k;
        s->cp[out] = cp;
        s->from[out] = s->from[i];
        s->ccc[out++] = (uint8_t)k;
    }
    return out;
}

bool nb_uni_normal_segment(int form, const char *p, size_t n, size_t *used, nb_uni_scratch *scratch, nb_uni_emit *emit, void *user)
{
    bool compat = form == NB_NFKC || form == NB_NFKD;
    size_t at = 0, count = 0;
    /* Up to the first inert character that follows an inert one: only the latter can change no more. */
    while (at < n) {
        size_t len;
        uint32_t cp = nb_uni_next(p + at, &len);
        if (at && inert(form, cp)) break;
        scratch->at = at;
        if (!decompose(scratch, &count, cp, compat)) return false;
        at += len;
    }
    *used = at;
    if (!sort_marks(scratch, count)) return false;
    if (form == NB_NFC || form == NB_NFKC) count = compose(scratch, count);
    for (size_t i = 0; i < count; i++)
        if (!emit(user, scratch->cp[i], scratch->from[i])) return false;
    return true;
}

void nb_uni_scratch_free(nb_uni_scratch *s)
{
    free(s->cp);
    free(s->from);
    free(s->ccc);
    *s = (nb_uni_scratch){0};
}

/* ---- grapheme clusters (UAX 29, without the Indic conjunct rule, which only joins what is 9 bytes or more) ---- */

size_t nb_uni_grapheme(const char *p, size_t n)
{
    size_t len, at;
    uint32_t cp = nb_uni_next(p, &at);
    int before = nb_uni(cp)->gcb;
    bool pict = nb_uni_is(cp, NB_UF_PICT); /* pictograph, Extend*, then perhaps ZWJ */
    size_t regional = before == NB_GCB_REGIONAL;
    for (; at < n; at += len) {
        cp = nb_uni_next(p + at, &len);
        int g = nb_uni(cp)->gcb;
        bool join = false;
        if (before == NB_GCB_CR) join = g == NB_GCB_LF;
        else if (before == NB_GCB_LF || before == NB_GCB_CONTROL) join = false;
        else if (g == NB_GCB_CR || g == NB_GCB_LF || g == NB_GCB_CONTROL) join = false;
        else if (before == NB_GCB_L) join = g == NB_GCB_L || g == NB_GCB_V || g == NB_GCB_LV || g == NB_GCB_LVT;
        else if (before == NB_GCB_LV || before == NB_GCB_V) join = g == NB_GCB_V || g == NB_GCB_T;
        else if (before == NB_GCB_LVT || before == NB_GCB_T) join = g == NB_GCB_T;
        if (g == NB_GCB_EXTEND || g == NB_GCB_ZWJ || g == NB_GCB_SPACING)
            join = before != NB_GCB_CR && before != NB_GCB_LF && before != NB_GCB_CONTROL;
        if (before == NB_GCB_PREPEND && g != NB_GCB_CR && g != NB_GCB_LF && g != NB_GCB_CONTROL) join = true;
        if (before == NB_GCB_ZWJ && pict && nb_uni_is(cp, NB_UF_PICT)) join = true;
        if (before == NB_GCB_REGIONAL && g == NB_GCB_REGIONAL && regional % 2) join = true;
        if (!join) break;
        if (nb_uni_is(cp, NB_UF_PICT)) pict = true;
        else if (g != NB_GCB_EXTEND && g != NB_GCB_ZWJ) pict = false;
        regional = g == NB_GCB_REGIONAL ? regional + 1 : 0;
        before = g;
    }
    return at;
}
