/* text/tok_norm: the normalizers. Each reads one buffer and writes the other in one pass. */
#include "text/tok_regex.h"
#include "text/tok_run.h"

#include <stdlib.h>

void nb_tok_buf_free(nb_tok_buf *b)
{
    free(b->p);
    free(b->org);
    *b = (nb_tok_buf){0};
}

bool nb_tok_buf_grow(nb_tok_buf *b, size_t more)
{
    if (more <= b->cap - b->n && (!b->keep || b->org)) return true;
    size_t cap = b->n + more;
    if (cap < b->cap + b->cap / 2) cap = b->cap + b->cap / 2;
    if (cap < 256) cap = 256;
    b->full = b->most && b->n + more > b->most;
    if (cap > UINT32_MAX / 2 || b->full) {
        b->oom = true;
        return false;
    }
    char *p = realloc(b->p, cap);
    if (p) b->p = p;
    uint32_t *org = p && b->keep ? realloc(b->org, cap * sizeof *org) : NULL;
    if (org) b->org = org;
    if (!p || (b->keep && !org)) {
        b->oom = true;
        return false;
    }
    b->cap = cap;
    return true;
}

void nb_tok_buf_clear(nb_tok_buf *b) { b->n = 0; }

void nb_tok_buf_copy(nb_tok_buf *b, const char *p, size_t n, const uint32_t *org, size_t at)
{
    if (!n || !nb_tok_buf_grow(b, n)) return;
    memcpy(b->p + b->n, p, n);
    if (b->keep && org) memcpy(b->org + b->n, org, n * sizeof *org);
    else if (b->keep)
        for (size_t i = 0; i < n; i++) b->org[b->n + i] = (uint32_t)(at + i);
    b->n += n;
}

void nb_tok_buf_put(nb_tok_buf *b, const char *p, size_t n, uint32_t from)
{
    if (!n || !nb_tok_buf_grow(b, n)) return;
    memcpy(b->p + b->n, p, n);
    for (size_t i = 0; b->keep && i < n; i++) b->org[b->n + i] = from;
    b->n += n;
}

void nb_tok_buf_cp(nb_tok_buf *b, uint32_t cp, uint32_t from)
{
    char s[4];
    nb_tok_buf_put(b, s, nb_utf8_encode(cp, s), from);
}

/* Bytes i .. j of src, unchanged. A text that was empty from the start has no memory to point to. */
static void keep(nb_tok_buf *to, const nb_tok_buf *src, size_t i, size_t j)
{
    if (i < j) nb_tok_buf_copy(to, src->p + i, j - i, src->org ? src->org + i : NULL, i);
}

typedef struct form_out { nb_tok_buf *to; const nb_tok_buf *src; size_t at; } form_out;
static bool emit_form(void *user, uint32_t cp, size_t from)
{
    form_out *f = user;
    nb_tok_buf_cp(f->to, cp, nb_tok_from(f->src, f->at + from));
    return !f->to->oom;
}

static void run_form(nb_tok_run *r, int form, const nb_tok_buf *src, nb_tok_buf *to)
{
    for (size_t at = 0; at < src->n && !to->oom;) {
        size_t n = nb_uni_normal_prefix(form, src->p + at, src->n - at);
        keep(to, src, at, at + n);
        at += n;
        if (at == src->n) break;
        form_out f = {to, src, at};
        if (!nb_uni_normal_segment(form, src->p + at, src->n - at, &n, &r->uni, emit_form, &f)) to->oom = true;
        at += n;
    }
}

/* Control characters that go, and those that become a space. */
static int nmt(uint32_t cp)
{
    if ((cp >= 1 && cp <= 8) || cp == 11 || (cp >= 14 && cp <= 31) || cp == 127 || cp == 143 || cp == 159) return -1;
    return cp == 9 || cp == 10 || cp == 12 || cp == 13 || cp == 0x1680 || (cp >= 0x200B && cp <= 0x200F) || cp == 0x2028 || cp == 0x2029 || cp == 0x2581 ||
           cp == 0xFEFF || cp == 0xFFFD;
}

static bool cjk(uint32_t cp) /* Bert's list, with its gap */
{
    return (cp >= 0x3400 && cp <= 0x4DBF) || (cp >= 0x4E00 && cp <= 0x9FFF) || (cp >= 0xF900 && cp <= 0xFAFF) || (cp >= 0x20000 && cp <= 0x2A6DF) ||
           (cp >= 0x2A700 && cp <= 0x2B81F) || (cp >= 0x2B920 && cp <= 0x2CEAF) || (cp >= 0x2F800 && cp <= 0x2FA1F);
}

/* Normalizers that look at one character at a time. */
enum { BY_NMT, BY_LOWER, BY_ACCENTS, BY_CLEAN, BY_CJK, BY_MN };
static void by_char(int what, const nb_tok_buf *src, nb_tok_buf *to)
{
    for (size_t at = 0, len; at < src->n && !to->oom; at += len) {
        size_t end = at;
        while (end < src->n && src->p[end] >= 0x20 && src->p[end] < 0x7F) end++;
        if (end > at) { /* printable ASCII: nothing changes but its case */
            keep(to, src, at, end);
            if (what == BY_LOWER && !to->oom)
                for (char *q = to->p + to->n - (end - at); q < to->p + to->n; q++) *q = (char)(*q | (*q >= 'A' && *q <= 'Z') << 5);
            len = end - at;
            continue;
        }
        uint32_t cp = nb_uni_next(src->p + at, &len), from = nb_tok_from(src, at), low[2];
        switch (what) {
        case BY_NMT: {
            int k = nmt(cp);
            if (k > 0) nb_tok_buf_put(to, " ", 1, from);
            else if (!k) keep(to, src, at, at + len);
            break;
        }
        case BY_LOWER: {
            size_t k = nb_uni_lowercase(cp, low);
            if (k == 1 && low[0] == cp) keep(to, src, at, at + len);
            else for (size_t i = 0; i < k; i++) nb_tok_buf_cp(to, low[i], from);
            break;
        }
        case BY_CLEAN:
            if (nb_uni_is(cp, NB_UF_BERT_GONE)) break;
            if (nb_uni_is(cp, NB_UF_WHITE)) nb_tok_buf_put(to, " ", 1, from);
            else keep(to, src, at, at + len);
            break;
        case BY_CJK:
            if (!cjk(cp)) {
                keep(to, src, at, at + len);
                break;
            }
            nb_tok_buf_put(to, " ", 1, from);
            keep(to, src, at, at + len);
            nb_tok_buf_put(to, " ", 1, from);
            break;
        default:
            if (!nb_uni_is(cp, what == BY_ACCENTS ? NB_UF_MARK9 : NB_UF_MN8)) keep(to, src, at, at + len);
        }
    }
}

static void strip(const nb_tok_step *s, const nb_tok_buf *src, nb_tok_buf *to)
{
    size_t from = 0, end = src->n, len;
    while (s->f[0] && from < end && nb_uni_is(nb_uni_next(src->p + from, &len), NB_UF_WHITE)) from += len;
    while (s->f[1] && end > from) {
        size_t back = nb_uni_back(src->p, end);
        if (!nb_uni_is(nb_uni_next(src->p + back, &len), NB_UF_WHITE)) break;
        end = back;
    }
    keep(to, src, from, end);
}

/* What replaces src[start .. end) counts as coming from its last character; an insertion, from the one before. */
static uint32_t replaced_from(const nb_tok_buf *src, size_t start, size_t end)
{
    size_t at = start < end ? end : start;
    return nb_tok_from(src, at ? nb_uni_back(src->p, at) : 0);
}

static void replace_text(nb_str pattern, nb_str content, const nb_tok_buf *src, nb_tok_buf *to)
{
    if (!pattern.n) {
        keep(to, src, 0, src->n);
        return;
    }
    for (size_t at = 0; at < src->n && !to->oom;) {
        const char *hit = nb_tok_find_text(src->p + at, src->n - at, pattern);
        size_t i = hit ? (size_t)(hit - src->p) : src->n;
        keep(to, src, at, i);
        if (!hit) break;
        nb_tok_buf_put(to, content.p, content.n, replaced_from(src, i, i + pattern.n));
        at = i + pattern.n;
    }
}

static nb_status replace_regex(nb_tok_run *r, const nb_tok_regex *regex, nb_str content, const nb_tok_buf *src, nb_tok_buf *to)
{
    nb_tok_find f;
    size_t at = 0, start, end;
    bool found;
    nb_status st = nb_tok_find_init(&f, regex, src->p, src->n, r->err);
    while (!st && !(st = nb_tok_find_next(&f, &start, &end, &found, r->err)) && found) {
        keep(to, src, at, start);
        nb_tok_buf_put(to, content.p, content.n, replaced_from(src, start, end));
        at = end;
    }
    nb_tok_find_free(&f);
    if (!st) keep(to, src, at, src->n);
    return st;
}

/* The package's way with a SentencePiece character map: by grapheme cluster, the shortest key replaces all of a small
 * one. What is deleted leaves no trace in the places: the package loses it too, and Metaspace `first` shows it. */
static void charsmap(nb_str blob, const nb_tok_buf *src, nb_tok_buf *to)
{
    nb_str out;
    bool lost = true; /* nothing was put yet: what follows counts as the start */
    bool same[256] = {false}; /* ASCII that the map leaves alone; found out for texts that are long enough */
    for (int c = 0x20; c < 0x7F && src->n > 512; c++) same[c] = !nb_tok_charsmap_find(blob, &(char){(char)c}, 1, true, &out);
    for (size_t at = 0; at < src->n && !to->oom;) {
        size_t run = at;
        while (run + 1 < src->n && same[(uint8_t)src->p[run]] && (uint8_t)src->p[run + 1] < 0x80) run++;
        if (run > at) {
            nb_tok_buf_copy(to, src->p + at, run - at, src->org ? src->org + at : NULL, at);
            if (lost && to->keep && !to->oom) to->org[0] = nb_tok_from(src, 0);
            lost = false;
            at = run;
        }
        /* Two ASCII characters are two clusters, but for CR LF. */
        bool alone = (uint8_t)src->p[at] < 0x80 && src->p[at] != '\r' && (at + 1 == src->n || (uint8_t)src->p[at + 1] < 0x80);
        size_t end = at + (alone ? 1 : nb_uni_grapheme(src->p + at, src->n - at)), len;
        uint32_t from = nb_tok_from(src, at);
        if (end - at < 6 && nb_tok_charsmap_find(blob, src->p + at, end - at, true, &out)) {
            if (out.n) nb_tok_buf_put(to, out.p, out.n, lost ? nb_tok_from(src, 0) : from), lost = false;
            at = end;
            continue;
        }
        for (; at < end; at += len) {
            nb_uni_next(src->p + at, &len);
            from = lost ? nb_tok_from(src, 0) : nb_tok_from(src, at);
            if (nb_tok_charsmap_find(blob, src->p + at, len, true, &out)) {
                if (out.n) nb_tok_buf_put(to, out.p, out.n, from), lost = false;
            } else {
                nb_tok_buf_put(to, src->p + at, len, from);
                lost = false;
            }
        }
    }
}

void nb_tok_map_bytes(const char *p, size_t n, const uint32_t *org, size_t at, nb_tok_buf *to)
{
    if (!nb_tok_buf_grow(to, 2 * n)) return;
    for (size_t i = 0; i < n; i++) {
        uint32_t cp = nb_tok_byte_char((uint8_t)p[i]);
        size_t k = to->n;
        if (cp < 0x80) to->p[to->n++] = (char)cp;
        else to->p[to->n++] = (char)(0xC0 | cp >> 6), to->p[to->n++] = (char)(0x80 | (cp & 63));
        for (; to->keep && k < to->n; k++) to->org[k] = nb_tok_place(org, at, i);
    }
}

static void swap(nb_tok_buf *x, nb_tok_buf *y)
{
    nb_tok_buf t = *x;
    *x = *y;
    *y = t;
}

static nb_status bert(nb_tok_run *r, const nb_tok_step *s, nb_tok_buf *src, nb_tok_buf *tmp)
{
    for (int i = 0; i < 5; i++) {
        if (!s->f[i < 2 ? i : i < 4 ? 2 : 3]) continue;
        nb_tok_buf_clear(tmp);
        if (i == 0) by_char(BY_CLEAN, src, tmp);
        else if (i == 1) by_char(BY_CJK, src, tmp);
        else if (i == 2) run_form(r, NB_NFD, src, tmp);
        else by_char(i == 3 ? BY_MN : BY_LOWER, src, tmp);
        if (i < 4) swap(src, tmp);
    }
    if (!s->f[3]) { /* the caller swaps once more */
        nb_tok_buf_clear(tmp);
        keep(tmp, src, 0, src->n);
    }
    return NB_OK;
}

static nb_status one_step(nb_tok_run *r, uint32_t index, nb_tok_buf *src, nb_tok_buf *to)
{
    const nb_tok_step *s = &r->t->steps[index];
    nb_str text = nb_tok_str(r->t, s->s), text2 = nb_tok_str(r->t, s->s2);
    switch (s->kind) {
    case NB_TN_FORM: run_form(r, (int)s->a[0], src, to); break;
    case NB_TN_NMT: by_char(BY_NMT, src, to); break;
    case NB_TN_LOWER: by_char(BY_LOWER, src, to); break;
    case NB_TN_STRIP_ACCENTS: by_char(BY_ACCENTS, src, to); break;
    case NB_TN_STRIP: strip(s, src, to); break;
    case NB_TN_BERT: return bert(r, s, src, to);
    case NB_TN_PREPEND:
        nb_tok_buf_put(to, text.p, text.n, nb_tok_from(src, 0));
        keep(to, src, 0, src->n);
        break;
    case NB_TN_REPLACE:
        if (s->f[0]) return replace_regex(r, r->t->regex[index], text2, src, to);
        replace_text(text, text2, src, to);
        break;
    case NB_TN_CHARSMAP: charsmap(text, src, to); break;
    case NB_TN_BYTELEVEL: nb_tok_map_bytes(src->p, src->n, src->org, 0, to); break;
    default: return nb_fail(r->err, NB_E_INVALID, "tokenizer: step %u is no normalizer", s->kind);
    }
    return NB_OK;
}

/* Replace may insert any text anywhere, and again in what it made: a file of a few lines could ask for all memory. */
enum { MOST_TIMES = 256, MOST_MORE = 1 << 20 };

nb_status nb_tok_normalize(nb_tok_run *r, nb_tok_buf *src, nb_tok_buf *tmp)
{
    const nb_tok_meta *m = r->t->meta;
    size_t n = src->n;
    src->most = tmp->most = MOST_TIMES * n + MOST_MORE;
    for (uint32_t i = 0; i < m->norm_n && src->n; i++) {
        nb_tok_buf_clear(tmp);
        nb_status st = one_step(r, m->norm_at + i, src, tmp);
        if (tmp->full) return nb_fail(r->err, NB_E_INVALID, "tokenizer: a normalizer makes more than %zu bytes of %zu", tmp->most, n);
        if (st) return st;
        if (src->oom || tmp->oom) return nb_tok_no_memory(r->err);
        swap(src, tmp);
    }
    src->most = tmp->most = 0;
    return NB_OK;
}
