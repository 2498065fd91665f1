/* text/tok_pre: the pre-tokenizers. A step either cuts pieces further, or writes the text anew with its pieces. */
#include "text/tok_regex.h"
#include "text/tok_run.h"
#include "text/tok_scan.h"

#include <stdlib.h>

/* Turns a run of segments, each a match or not, into pieces. In a merge only one match goes with its neighbour: of two
 * matches in a row the second stays alone. */
typedef struct cutter {
    nb_tok_vec *out;
    int behave;
    bool before;  /* was the segment before a match? */
    bool waiting; /* NEXT: a match waits for what follows it */
    bool started, oom;
    nb_tok_piece last; /* PREVIOUS, CONTIGUOUS: the piece that may still grow */
} cutter;

static void push_slowly(cutter *c, uint32_t at, uint32_t n)
{
    if (!nb_tok_vec_push(c->out, &(nb_tok_piece){at, n}, sizeof(nb_tok_piece))) c->oom = true;
}

static inline void push(cutter *c, uint32_t at, uint32_t n)
{
    nb_tok_vec *v = c->out;
    if (!n) return;
    if (v->n == v->cap) {
        push_slowly(c, at, n);
        return;
    }
    /* Field by field: a whole that was just put together from halves is slow to move. */
    nb_tok_piece *p = (nb_tok_piece *)v->p + v->n++;
    p->at = at, p->n = n;
}

/* The behaviours that join segments. */
static void join(cutter *c, uint32_t at, uint32_t n, bool match)
{
    if (c->behave == NB_BEHAVE_NEXT) {
        if (c->waiting) {
            if (!match) {
                push(c, c->last.at, c->last.n + n);
                c->waiting = false;
                return;
            }
            push(c, c->last.at, c->last.n);
        }
        c->waiting = match;
        if (match) c->last = (nb_tok_piece){at, n};
        else push(c, at, n);
        return;
    }
    bool joins = c->behave == NB_BEHAVE_PREVIOUS ? match && !c->before : match == c->before;
    c->before = match;
    if (joins && c->started) {
        c->last.n += n;
        return;
    }
    if (c->started) push(c, c->last.at, c->last.n);
    c->last = (nb_tok_piece){at, n};
    c->started = true;
}

static inline void segment(cutter *c, size_t start, size_t end, bool match)
{
    uint32_t at = (uint32_t)start, n = (uint32_t)(end - start);
    if (c->behave > NB_BEHAVE_ISOLATED) join(c, at, n, match);
    else if (!match || c->behave == NB_BEHAVE_ISOLATED) push(c, at, n);
}

static void finish(cutter *c)
{
    if (c->started || c->waiting) push(c, c->last.at, c->last.n);
    c->started = c->waiting = c->before = false;
}

/* Segments of one piece: each character with one of these flags is a match. */
static void cut_chars(cutter *c, uint32_t flags, const char *p, nb_tok_piece piece)
{
    size_t at = piece.at, end = at + piece.n, from = at, len;
    for (; at < end; at += len) {
        if (!nb_uni_is(nb_uni_next(p + at, &len), flags)) continue;
        if (from < at) segment(c, from, at, false);
        segment(c, at, at + len, true);
        from = at + len;
    }
    if (from < end) segment(c, from, end, false);
    finish(c);
}

static void cut_text(cutter *c, nb_str pattern, bool invert, const char *p, nb_tok_piece piece)
{
    size_t at = piece.at, end = at + piece.n;
    while (pattern.n && at < end) {
        const char *hit = nb_tok_find_text(p + at, end - at, pattern);
        if (!hit) break;
        size_t i = (size_t)(hit - p);
        if (at < i) segment(c, at, i, invert);
        segment(c, i, i + pattern.n, !invert);
        at = i + pattern.n;
    }
    if (at < end) segment(c, at, end, invert);
    finish(c);
}

static nb_status cut_regex(nb_tok_run *r, cutter *c, const nb_tok_regex *regex, bool invert, const char *p, const nb_tok_vec *pieces)
{
    const nb_tok_piece *v = pieces->p;
    nb_tok_find f;
    nb_status st = NB_OK;
    if (!pieces->n) return NB_OK;
    if ((st = nb_tok_find_init(&f, regex, p, 0, r->err))) return st;
    for (size_t i = 0; i < pieces->n && !st; i++) {
        size_t at = 0, start, end;
        bool found;
        nb_tok_find_in(&f, p + v[i].at, v[i].n);
        while (!(st = nb_tok_find_next(&f, &start, &end, &found, r->err)) && found) {
            if (at < start) segment(c, v[i].at + at, v[i].at + start, invert);
            segment(c, v[i].at + start, v[i].at + end, !invert);
            at = end;
        }
        if (!st && at < v[i].n) segment(c, v[i].at + at, v[i].at + v[i].n, invert);
        finish(c);
    }
    nb_tok_find_free(&f);
    return st;
}

/* Runs of word characters, runs of what is neither word nor white space; the rest goes. */
static void cut_words(cutter *c, const char *p, nb_tok_piece piece)
{
    size_t at = piece.at, end = at + piece.n, from = at, len;
    int before = 0;
    for (; at < end; at += len) {
        uint32_t flags = nb_uni_flags(nb_uni_next(p + at, &len));
        int k = (flags & NB_UF_WORD) ? 1 : (flags & NB_UF_WHITE) ? 0 : 2;
        if (k != before) {
            if (before) push(c, (uint32_t)from, (uint32_t)(at - from));
            from = at;
            before = k;
        }
    }
    if (before) push(c, (uint32_t)from, (uint32_t)(end - from));
}

/* Cut where the script changes. Characters without one go with what precedes them, and are lost at the start. */
static void cut_scripts(cutter *c, const char *p, nb_tok_piece piece)
{
    size_t at = piece.at, end = at + piece.n, from = at, len;
    int before = 0; /* script 0: none */
    for (; at < end; at += len) {
        int k = nb_uni(nb_uni_next(p + at, &len))->script9;
        if (!k || k == before) continue;
        if (before) push(c, (uint32_t)from, (uint32_t)(at - from));
        from = at;
        before = k;
    }
    if (before) push(c, (uint32_t)from, (uint32_t)(end - from));
}

static void cut_fixed(cutter *c, const char *p, nb_tok_piece piece, uint32_t length)
{
    size_t at = piece.at, end = at + piece.n, from = at, len;
    uint32_t k = 0;
    while (at < end) {
        nb_uni_next(p + at, &len);
        at += len;
        if (++k < length && at < end) continue;
        push(c, (uint32_t)from, (uint32_t)(at - from));
        from = at;
        k = 0;
    }
}

/* Runs of newlines and what lies between them. */
static void cut_newlines(cutter *c, const char *p, nb_tok_piece piece)
{
    size_t at = piece.at, end = at + piece.n, from;
    while (at < end) {
        bool newline = p[at] == '\n';
        for (from = at; at < end && (p[at] == '\n') == newline; at++) continue;
        push(c, (uint32_t)from, (uint32_t)(at - from));
    }
}

/* Runs of digits (Nd) are cut so that threes are counted from the right. Mode 0: each run stands apart; 1: the same, for
 * runs that end at a word boundary; 2: only the cuts before threes. */
static void cut_threes(cutter *c, int mode, const char *p, nb_tok_piece piece)
{
    size_t at = piece.at, end = at + piece.n, from = at, len;
    while (at < end) {
        size_t run = at, count = 0;
        while (run < end && nb_uni_in(nb_uni_next(p + run, &len), NB_GC_BIT(NB_GC_ND))) run += len, count++;
        bool word = run < end && nb_uni_is(nb_uni_next(p + run, &len), NB_UF_WORD);
        if (!count || (mode == 1 && word)) {
            if (!count) nb_uni_next(p + at, &len), run = at + len;
            at = run;
            continue;
        }
        for (bool first = mode != 2; count; count--, first = false) {
            if ((first || count % 3 == 0) && at > from) {
                push(c, (uint32_t)from, (uint32_t)(at - from));
                from = at;
            }
            nb_uni_next(p + at, &len);
            at += len;
        }
        if (mode == 2) continue;
        push(c, (uint32_t)from, (uint32_t)(at - from));
        from = at;
    }
    if (from < end) push(c, (uint32_t)from, (uint32_t)(end - from));
}

static void swap_bufs(nb_tok_buf *x, nb_tok_buf *y)
{
    nb_tok_buf t = *x;
    *x = *y;
    *y = t;
}

/* Writes the pieces anew, each with a space before it unless it begins with one. */
static void add_spaces(nb_tok_run *r, nb_tok_buf *src, nb_tok_buf *tmp)
{
    nb_tok_piece *v = r->pieces.p;
    nb_tok_buf_clear(tmp);
    for (size_t i = 0; i < r->pieces.n; i++) {
        uint32_t at = (uint32_t)tmp->n;
        if (v[i].n && src->p[v[i].at] != ' ') nb_tok_buf_put(tmp, " ", 1, nb_tok_from(src, v[i].at));
        nb_tok_buf_copy(tmp, src->p + v[i].at, v[i].n, src->org ? src->org + v[i].at : NULL, v[i].at);
        v[i] = (nb_tok_piece){at, (uint32_t)tmp->n - at};
    }
    swap_bufs(src, tmp);
}

static void map_bytes(nb_tok_run *r, nb_tok_buf *src, nb_tok_buf *tmp)
{
    nb_tok_piece *v = r->pieces.p;
    nb_tok_buf_clear(tmp);
    for (size_t i = 0; i < r->pieces.n; i++) {
        uint32_t at = (uint32_t)tmp->n;
        nb_tok_map_bytes(src->p + v[i].at, v[i].n, src->org ? src->org + v[i].at : NULL, v[i].at, tmp);
        v[i] = (nb_tok_piece){at, (uint32_t)tmp->n - at};
    }
    swap_bufs(src, tmp);
}

static void metaspace(nb_tok_run *r, const nb_tok_step *s, nb_tok_buf *src, nb_tok_buf *tmp)
{
    nb_tok_piece *v = r->pieces.p;
    nb_str sign = nb_tok_str(r->t, s->s);
    nb_tok_buf_clear(tmp);
    for (size_t i = 0; i < r->pieces.n; i++) {
        uint32_t at = (uint32_t)tmp->n;
        const char *p = src->p + v[i].at;
        bool has = v[i].n && (p[0] == ' ' || (v[i].n >= sign.n && !memcmp(p, sign.p, sign.n)));
        bool want = s->f[0] == NB_SCHEME_ALWAYS || (s->f[0] == NB_SCHEME_FIRST && v[i].n && nb_tok_from(src, v[i].at) < r->first_n);
        if (want && !has && v[i].n) nb_tok_buf_put(tmp, sign.p, sign.n, nb_tok_from(src, v[i].at));
        for (size_t from = 0, k = 0; from < v[i].n; from = k) {
            const char *sp = memchr(p + from, ' ', v[i].n - from);
            k = sp ? (size_t)(sp - p) : v[i].n;
            nb_tok_buf_copy(tmp, p + from, k - from, src->org ? src->org + v[i].at + from : NULL, v[i].at + from);
            if (sp) nb_tok_buf_put(tmp, sign.p, sign.n, nb_tok_from(src, v[i].at + k)), k++;
        }
        v[i] = (nb_tok_piece){at, (uint32_t)tmp->n - at};
    }
    swap_bufs(src, tmp);
}

/* Steps that cut: from r->pieces to r->pieces2, then swapped. */
static nb_status cut(nb_tok_run *r, const nb_tok_step *s, const nb_tok_regex *regex, const nb_tok_buf *src)
{
    cutter c = {.out = &r->pieces2, .behave = s->f[1]};
    const nb_tok_piece *v = r->pieces.p;
    const char *p = src->p;
    nb_status st = NB_OK;
    r->pieces2.n = 0;
    if (regex) {
        if (s->kind == NB_TP_BYTELEVEL) c.behave = NB_BEHAVE_ISOLATED;
        st = cut_regex(r, &c, regex, s->kind == NB_TP_SPLIT && s->f[2], p, &r->pieces);
    } else {
        for (size_t i = 0; i < r->pieces.n && !c.oom; i++) {
            switch (s->kind) {
            case NB_TP_SPLIT: cut_text(&c, nb_tok_str(r->t, s->s), s->f[2], p, v[i]); break;
            case NB_TP_METASPACE:
                c.behave = NB_BEHAVE_NEXT;
                cut_text(&c, nb_tok_str(r->t, s->s), false, p, v[i]);
                break;
            case NB_TP_WHITESPACE: cut_words(&c, p, v[i]); break;
            case NB_TP_WHITESPACE_SPLIT: c.behave = NB_BEHAVE_REMOVED; cut_chars(&c, NB_UF_WHITE, p, v[i]); break;
            case NB_TP_PUNCT: cut_chars(&c, NB_UF_PUNCT8, p, v[i]); break;
            case NB_TP_DIGITS: cut_chars(&c, NB_UF_NUM17, p, v[i]); break;
            case NB_TP_DELIMITER: {
                char sign[4];
                c.behave = NB_BEHAVE_REMOVED;
                cut_text(&c, (nb_str){sign, nb_utf8_encode(s->a[0], sign)}, false, p, v[i]);
                break;
            }
            case NB_TP_SCRIPTS: cut_scripts(&c, p, v[i]); break;
            case NB_TP_FIXED: cut_fixed(&c, p, v[i], s->a[0]); break;
            case NB_TP_NEWLINES: cut_newlines(&c, p, v[i]); break;
            case NB_TP_DIGITS3: cut_threes(&c, s->f[0], p, v[i]); break;
            default: return nb_fail(r->err, NB_E_INVALID, "tokenizer: step %u is no pre-tokenizer", s->kind);
            }
        }
    }
    if (c.oom) return nb_tok_no_memory(r->err);
    nb_tok_vec t = r->pieces;
    r->pieces = r->pieces2;
    r->pieces2 = t;
    return st;
}

static nb_status one_step(nb_tok_run *r, uint32_t index, bool last, nb_tok_buf *src, nb_tok_buf *tmp)
{
    const nb_tok_step *s = &r->t->steps[index];
    nb_status st = NB_OK;
    if (s->kind == NB_TP_BYTELEVEL) {
        if (s->f[0]) add_spaces(r, src, tmp);
        if (s->f[1]) st = cut(r, s, r->t->regex[index], src);
        /* Where nothing follows, the model reads the bytes themselves. */
        if (!st && !(last && r->t->meta->byte_level_last)) map_bytes(r, src, tmp);
    } else if (s->kind == NB_TP_METASPACE) {
        metaspace(r, s, src, tmp);
        if (s->f[1]) st = cut(r, s, NULL, src);
    } else if (s->kind == NB_TP_BERT) {
        nb_tok_step white = {.kind = NB_TP_WHITESPACE_SPLIT}, punct = {.kind = NB_TP_PUNCT, .f = {0, NB_BEHAVE_ISOLATED}};
        st = cut(r, &white, NULL, src);
        if (!st) st = cut(r, &punct, NULL, src);
    } else {
        st = cut(r, s, r->t->regex[index], src);
    }
    if (!st && (src->oom || tmp->oom)) st = nb_tok_no_memory(r->err);
    return st;
}

static nb_status model_over(nb_tok_run *r, const nb_tok_buf *text, nb_tok_piece_fn *model)
{
    const nb_tok_piece *v = r->pieces.p;
    nb_status st = NB_OK;
    for (size_t i = 0; i < r->pieces.n && !st; i++) st = model(r, text->p + v[i].at, v[i].n, text->org ? text->org + v[i].at : NULL, v[i].at);
    return st;
}

static void swap_lists(nb_tok_vec *x, nb_tok_vec *y)
{
    nb_tok_vec t = *x;
    *x = *y;
    *y = t;
}

/* May what a piece gives be kept from step k on? It is always the same step. Not where it depends on the place of the piece, nor where only the model is
 * left, which has its own cache. */
static bool may_remember(const nb_tok_run *r, uint32_t k)
{
    const nb_tok_meta *m = r->t->meta;
    if (!r->cache_n || r->want_off || (r->pre_cache && r->pre_step != k)) return false;
    if (k + 1 == m->pre_n && m->byte_level_last && !r->t->regex[m->pre_at + k]) return false;
    for (; k < m->pre_n; k++)
        if (r->t->steps[m->pre_at + k].kind == NB_TP_METASPACE && r->t->steps[m->pre_at + k].f[0] == NB_SCHEME_FIRST) return false;
    return true;
}

/* The pieces are of the size of words? */
static bool are_short(const nb_tok_run *r, size_t bytes) { return r->pieces.n * 16 >= bytes; }

/* Pieces of c that came before give what they gave then; for others the steps from k on and the model run. */
static nb_status remember(nb_tok_run *r, uint32_t k, nb_tok_piece_fn *model)
{
    const nb_tok_meta *m = r->t->meta;
    nb_status st = NB_OK;
    if (!r->pre_cache && !(r->pre_cache = nb_tok_cache_new(r->cache_n))) return nb_tok_no_memory(r->err);
    r->pre_step = k;
    swap_lists(&r->pieces, &r->part);
    for (size_t i = 0; i < r->part.n && !st; i++) {
        nb_tok_piece x = ((const nb_tok_piece *)r->part.p)[i], whole = {0, x.n};
        const char *p = r->c.p + x.at;
        nb_tok_cache_slot *slot = nb_tok_slot_in(r, r->pre_cache, p, x.n);
        size_t from = r->out->n;
        if (nb_tok_cached(r, slot, p, x.n)) continue;
        nb_tok_buf_clear(&r->d);
        nb_tok_buf_copy(&r->d, p, x.n, r->c.org ? r->c.org + x.at : NULL, x.at);
        r->pieces.n = 0;
        if (r->d.oom || !nb_tok_vec_push(&r->pieces, &whole, sizeof whole)) st = nb_tok_no_memory(r->err);
        for (uint32_t j = k; j < m->pre_n && !st; j++) st = one_step(r, m->pre_at + j, j + 1 == m->pre_n, &r->d, &r->e);
        if (!st) st = model_over(r, &r->d, model);
        if (!st) nb_tok_cache_put(r, slot, p, x.n, from);
    }
    swap_lists(&r->pieces, &r->part);
    return st;
}

/* The steps behind the first one, and the model, over the pieces in c. */
static nb_status rest_of_steps(nb_tok_run *r, nb_tok_piece_fn *model)
{
    const nb_tok_meta *m = r->t->meta;
    nb_status st = NB_OK;
    for (uint32_t k = 1; k < m->pre_n && !st; k++) {
        if (are_short(r, r->c.n) && may_remember(r, k)) return remember(r, k, model);
        st = one_step(r, m->pre_at + k, k + 1 == m->pre_n, &r->c, &r->d);
    }
    return st ? st : model_over(r, &r->c, model);
}

/* The steps behind the first one look at each piece alone. So they and the model take some pieces at a time, copied to c:
 * text and pieces stay in the processor's cache. */
enum { PART = 16384 };
static nb_status by_parts(nb_tok_run *r, nb_tok_piece_fn *model)
{
    nb_status st = NB_OK;
    swap_lists(&r->pieces, &r->all);
    const nb_tok_piece *v = r->all.p;
    for (size_t i = 0, from, n = r->all.n; i < n && !st;) {
        uint32_t begin = v[i].at;
        r->pieces.n = 0;
        for (from = i; i < n && (i == from || v[i].at + v[i].n - begin <= PART) && !st; i++) {
            nb_tok_piece x = {v[i].at - begin, v[i].n};
            if (!nb_tok_vec_push(&r->pieces, &x, sizeof x)) st = nb_tok_no_memory(r->err);
        }
        nb_tok_buf_clear(&r->c);
        nb_tok_buf_copy(&r->c, r->b.p + begin, v[i - 1].at + v[i - 1].n - begin, r->b.org ? r->b.org + begin : NULL, begin);
        if (r->c.oom) st = nb_tok_no_memory(r->err);
        if (!st) st = rest_of_steps(r, model);
    }
    return st;
}

nb_status nb_tok_pretokenize(nb_tok_run *r, nb_tok_piece_fn *model)
{
    const nb_tok_meta *m = r->t->meta;
    nb_tok_piece whole = {0, (uint32_t)r->b.n};
    nb_status st = NB_OK;
    r->pieces.n = 0;
    if (r->b.n && !nb_tok_vec_push(&r->pieces, &whole, sizeof whole)) return nb_tok_no_memory(r->err);
    if (m->pre_n) st = one_step(r, m->pre_at, m->pre_n == 1, &r->b, &r->c);
    if (st) return st;
    return m->pre_n > 1 ? by_parts(r, model) : model_over(r, &r->b, model);
}
