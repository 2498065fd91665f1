/* text/tok_bpe: byte-pair encoding: from a piece to the symbols that merging begins with. Long pieces are cut where no merge
 * can reach across, and what comes again is taken from the cache. */
#include "text/tok_run.h"

#include <stdlib.h>

enum { CUT_AT = 16 };

void *nb_tok_work(nb_tok_run *r, int k, size_t n)
{
    if (r->work_n[k] < n) {
        size_t cap = n + n / 2 + 256;
        free(r->work[k]);
        r->work[k] = malloc(cap);
        r->work_n[k] = r->work[k] ? cap : 0;
    }
    return r->work[k];
}

/* The symbols of the piece before any merge, and where each begins in it. */
typedef struct symbols { uint32_t *id, *at; size_t n, cap; } symbols;

static bool room(nb_tok_run *r, symbols *s, size_t n)
{
    s->id = nb_tok_work(r, 0, n * sizeof *s->id);
    s->at = nb_tok_work(r, 1, n * sizeof *s->at);
    s->n = 0, s->cap = n;
    return s->id && s->at;
}
static inline void add(symbols *s, uint32_t id, size_t at)
{
    if (s->n < s->cap) s->id[s->n] = id, s->at[s->n++] = (uint32_t)at;
}

static nb_status merge_and_emit(nb_tok_run *r, symbols *s, const uint32_t *org, size_t at)
{
    nb_status st = NB_OK;
    if (s->n > 1 && r->t->meta->merge_slots && !r->t->meta->no_merges) st = nb_tok_merge_all(r, s->id, s->at, &s->n);
    for (size_t i = 0; i < s->n && !st; i++)
        if (!nb_tok_emit(r, s->id[i], nb_tok_place(org, at, s->at[i]))) st = nb_tok_no_memory(r->err);
    return st;
}

/* ---- byte-level: symbols are bytes ---- */

/* One stretch of a piece: no merge reaches across its ends. A part of a piece may give other ids than the same text as a whole
 * piece does (ignore_merges): then it must not be kept. */
static nb_status byte_stretch(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at, bool keep)
{
    const nb_tok_meta *m = r->t->meta;
    nb_tok_cache_slot *c = keep ? nb_tok_cache_slot_of(r, p, n) : NULL;
    size_t from = r->out->n, pending_at = 0;
    bool pending = false;
    symbols s;
    if (nb_tok_cached(r, c, p, n)) return NB_OK;
    if (!room(r, &s, n)) return nb_tok_no_memory(r->err);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = m->symbol_id[(uint8_t)p[i]];
        if (id == NB_TOK_NONE) { /* unknown; without an unknown token it vanishes */
            if (m->unk == NB_TOK_NONE) continue;
            if (pending && !m->fuse_unk) add(&s, m->unk, pending_at);
            if (!pending || !m->fuse_unk) pending_at = i;
            pending = true;
            continue;
        }
        if (pending) add(&s, m->unk, pending_at);
        pending = false;
        add(&s, id, i);
    }
    if (pending) add(&s, m->unk, pending_at);
    nb_status st = merge_and_emit(r, &s, org, at);
    if (!st) nb_tok_cache_put(r, c, p, n, from);
    return st;
}

/* ignore_merges: the id of the whole piece, if the vocabulary has it. */
static uint32_t whole_piece(nb_tok_run *r, const char *p, size_t n)
{
    char *q = nb_tok_work(r, 2, 2 * n + 8);
    size_t k = 0;
    for (size_t i = 0; q && i < n; i++) k += nb_utf8_encode(nb_tok_byte_char((uint8_t)p[i]), q + k);
    uint32_t id = q ? nb_tok_vocab_find(r->t, q, k) : NB_TOK_NONE;
    return id != NB_TOK_NONE && nb_tok_allowed(r, id) ? id : NB_TOK_NONE;
}

nb_status nb_tok_bpe_bytes(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at)
{
    const nb_tok_meta *m = r->t->meta;
    size_t out = r->out->n, from = 0;
    if (m->ignore_merges && n < NB_TOK_MAX_TOKEN) {
        nb_tok_cache_slot *c = nb_tok_cache_slot_of(r, p, n);
        if (nb_tok_cached(r, c, p, n)) return NB_OK;
        uint32_t id = whole_piece(r, p, n);
        if (id != NB_TOK_NONE) {
            if (!nb_tok_emit(r, id, nb_tok_place(org, at, 0))) return nb_tok_no_memory(r->err);
            nb_tok_cache_put(r, c, p, n, out);
            return NB_OK;
        }
    }
    nb_status st = NB_OK;
    if (m->pair_bits && n >= CUT_AT) {
        uint32_t known = m->symbol_id[(uint8_t)p[0]];
        for (size_t i = 1; i < n && !st; i++) {
            uint32_t before = known;
            known = m->symbol_id[(uint8_t)p[i]];
            /* No merge makes a token that holds both, and both have entries of their own: cut between them. */
            if (!nb_tok_may_cut_bytes(r->t, (uint8_t)p[i - 1], (uint8_t)p[i]) || before == NB_TOK_NONE || known == NB_TOK_NONE) continue;
            st = byte_stretch(r, p + from, i - from, org ? org + from : NULL, at + from, !m->ignore_merges);
            from = i;
        }
    }
    return st ? st : byte_stretch(r, p + from, n - from, org ? org + from : NULL, at + from, !m->ignore_merges || !from);
}

/* ---- symbols are characters ---- */

typedef struct chars { symbols s; bool pending; size_t pending_at; } chars;

static void unknown(chars *c, const nb_tok_meta *m, size_t at)
{
    if (m->unk == NB_TOK_NONE) return;
    if (c->pending && m->fuse_unk) return;
    if (c->pending) add(&c->s, m->unk, c->pending_at);
    c->pending = true, c->pending_at = at;
}

/* A character without an entry becomes its bytes, where all of them (and those of prefix and suffix) have tokens. An
 * unknown token that is still waiting is not put out for them. */
static bool as_bytes(chars *c, const nb_tok_meta *m, const char *p, size_t n, size_t at)
{
    for (size_t i = 0; i < n; i++)
        if (m->byte_id[(uint8_t)p[i]] == NB_TOK_NONE) return false;
    for (size_t i = 0; i < n; i++) add(&c->s, m->byte_id[(uint8_t)p[i]], at);
    return true;
}

static void known(chars *c, const nb_tok_meta *m, uint32_t id, size_t at)
{
    if (c->pending) add(&c->s, m->unk, c->pending_at);
    c->pending = false;
    add(&c->s, id, at);
}

static nb_status decorated(nb_tok_run *r, chars *c, const char *p, size_t at, size_t len, size_t n)
{
    const nb_tok_meta *m = r->t->meta;
    nb_str prefix = nb_tok_str(r->t, m->prefix), suffix = nb_tok_str(r->t, m->suffix);
    char small[64], *q = small;
    size_t total = prefix.n + len + suffix.n, k = 0;
    if (total > sizeof small && !(q = malloc(total))) return nb_tok_no_memory(r->err);
    if (at) memcpy(q, prefix.p, prefix.n), k = prefix.n;
    memcpy(q + k, p + at, len), k += len;
    if (at + len == n) memcpy(q + k, suffix.p, suffix.n), k += suffix.n;
    uint32_t id = nb_tok_vocab_find(r->t, q, k);
    if (id != NB_TOK_NONE) known(c, m, id, at);
    else if (!(m->byte_fallback && as_bytes(c, m, q, k, at))) unknown(c, m, at);
    if (q != small) free(q);
    return NB_OK;
}

/* One stretch of a piece: characters at .. end, no merge reaches across its ends. */
static nb_status stretch(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t base)
{
    const nb_tok_meta *m = r->t->meta;
    bool plain = !m->prefix.n && !m->suffix.n;
    nb_tok_cache_slot *slot = nb_tok_cache_slot_of(r, p, n);
    size_t from = r->out->n;
    chars c = {0};
    nb_status st = NB_OK;
    if (nb_tok_cached(r, slot, p, n)) return NB_OK;
    if (!room(r, &c.s, n + (m->prefix.n ? n * m->prefix.n : 0) + m->suffix.n)) return nb_tok_no_memory(r->err);
    for (size_t i = 0, len; i < n && !st; i += len) {
        uint32_t cp = nb_uni_next(p + i, &len), id;
        if (!plain) {
            st = decorated(r, &c, p, i, len, n);
            continue;
        }
        id = cp < 128 ? m->symbol_id[cp] : nb_tok_vocab_find(r->t, p + i, len);
        if (id != NB_TOK_NONE) known(&c, m, id, i);
        else if (!(m->byte_fallback && as_bytes(&c, m, p + i, len, i))) unknown(&c, m, i);
    }
    if (c.pending) add(&c.s, m->unk, c.pending_at);
    if (!st) st = merge_and_emit(r, &c.s, org, base);
    if (!st) nb_tok_cache_put(r, slot, p, n, from);
    return st;
}

nb_status nb_tok_bpe(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at)
{
    const nb_tok_meta *m = r->t->meta;
    if ((m->ignore_merges || (m->whole_newlines && p[0] == '\n')) && n < NB_TOK_MAX_TOKEN) {
        uint32_t id = nb_tok_vocab_find(r->t, p, n);
        if (id != NB_TOK_NONE && nb_tok_allowed(r, id)) return nb_tok_emit(r, id, nb_tok_place(org, at, 0)) ? NB_OK : nb_tok_no_memory(r->err);
    }
    if (n == 1 && !m->prefix.n && !m->suffix.n && m->symbol_id[(uint8_t)p[0]] != NB_TOK_NONE)
        return nb_tok_emit(r, m->symbol_id[(uint8_t)p[0]], nb_tok_place(org, at, 0)) ? NB_OK : nb_tok_no_memory(r->err);
    if (!m->pair_bits || n < CUT_AT) return stretch(r, p, n, org, at);
    size_t from = 0, len;
    uint32_t before = 0;
    bool before_known = false;
    nb_status st = NB_OK;
    for (size_t i = 0; i < n && !st; i += len) {
        uint32_t cp = nb_uni_next(p + i, &len);
        /* No merge makes a token that holds both, and both have entries of their own: cut between them. */
        bool cut = i && nb_tok_may_cut(r->t, before, cp);
        if (cut) {
            size_t back = nb_uni_back(p, i);
            if (!before_known) before_known = before < 128 ? m->symbol_id[before] != NB_TOK_NONE : nb_tok_vocab_find(r->t, p + back, i - back) != NB_TOK_NONE;
            bool is_known = cp < 128 ? m->symbol_id[cp] != NB_TOK_NONE : nb_tok_vocab_find(r->t, p + i, len) != NB_TOK_NONE;
            if (before_known && is_known) {
                st = stretch(r, p + from, i - from, org ? org + from : NULL, at + from);
                from = i;
            }
            before_known = is_known;
        } else {
            before_known = false;
        }
        before = cp;
    }
    return st ? st : stretch(r, p + from, n - from, org ? org + from : NULL, at + from);
}
