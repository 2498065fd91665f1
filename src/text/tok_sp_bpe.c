/* text/tok_sp_bpe: SentencePiece's BPE: of all neighbours that make a piece, the pair with the highest score, the leftmost of
 * equals. The text is cut where no piece reaches across; what comes again is taken from the cache.
 *
 * Unused pieces take part in merging and are taken apart again in the end, into the halves that were looked at last for
 * that text anywhere. "Last" is in the order of one agenda for the whole text; stretches have agendas of their own, but the
 * order can be told: of two stretches the one goes on whose next pair is better, so a step comes after all steps of other
 * stretches that had no pair worse than its own worst one so far. */
#include "text/tok_sp.h"

#include <stdlib.h>

void nb_tok_sp_put(nb_tok_sink *s, uint32_t id, const char *p, size_t n, uint32_t from)
{
    const nb_tok_meta *m = s->r->t->meta;
    bool unknown = id == NB_TOK_NONE || (s->r->t->tok_flags[id] & NB_TF_UNKNOWN);
    if (unknown && m->byte_fallback) {
        for (size_t i = 0; i < n && s->ok; i++) {
            uint32_t b = m->byte_id[(uint8_t)p[i]];
            s->ok = b != NB_TOK_NONE ? nb_tok_emit(s->r, b, from) : m->unk == NB_TOK_NONE || nb_tok_emit(s->r, m->unk, from);
        }
    } else if (!unknown) {
        s->ok &= nb_tok_emit(s->r, id, from);
    } else if (!s->unknown_before && m->unk != NB_TOK_NONE) {
        s->ok &= nb_tok_emit(s->r, m->unk, from);
    }
    s->unknown_before = unknown;
    s->unknown_seen |= unknown;
}

size_t nb_tok_sp_user(const nb_tokenizer *t, const char *p, size_t n)
{
    const nb_tok_trie *trie = &t->trie[NB_TRIE_USER];
    size_t best = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < n && trie->nodes; ) {
        node = nb_trie_child(trie, node, (uint8_t)p[i]);
        if (node == NB_TOK_NONE) break;
        i++;
        if (trie->value[node] != NB_TOK_NONE && nb_tok_border(p, i, n)) best = i;
    }
    return best;
}

/* A piece that plain text may become: not control, unknown, byte or added. */
static uint32_t piece_id(const nb_tokenizer *t, const char *p, size_t n)
{
    uint32_t id = n < NB_TOK_MAX_TOKEN ? nb_tok_vocab_find(t, p, n) : NB_TOK_NONE;
    return id != NB_TOK_NONE && (t->tok_flags[id] & (NB_TF_CONTROL | NB_TF_UNKNOWN | NB_TF_BYTE | NB_TF_ADDED)) ? NB_TOK_NONE : id;
}

typedef struct symbol { uint32_t at, n, prev, next; bool frozen; } symbol;
typedef struct pair { float score; uint32_t left, size; } pair; /* left: number of the symbol */

static bool before(const pair *a, const pair *b) { return a->score > b->score || (a->score == b->score && a->left < b->left); }

/* When the halves of an unused piece were looked at: before the agenda, or at a step of it. */
typedef struct moment { bool step; float score; uint32_t place; } moment; /* place in the whole text; a step: of the worst pair so far */
typedef struct halves { moment when; uint32_t left; } halves;          /* bytes of the left half */

/* What is found out about a whole text with unused pieces. */
typedef struct part { uint32_t at, n, id; } part;
typedef struct unused {
    nb_map map;      /* text of an unused piece -> place in `halves` */
    nb_tok_vec halves;
    part *part;
    size_t parts, cap;
} unused;

static inline bool add_part(unused *u, part x)
{
    if (u->parts == u->cap) {
        size_t cap = u->cap ? 2 * u->cap : 256;
        part *p = realloc(u->part, cap * sizeof *p);
        if (!p) return false;
        u->part = p, u->cap = cap;
    }
    u->part[u->parts++] = x;
    return true;
}

typedef struct agenda {
    nb_tok_run *r;
    const char *p;
    symbol *sym;
    size_t n;
    pair *heap;
    size_t heap_n;
    unused *u;       /* NULL: the model has no unused pieces */
    moment now;
    uint32_t base;   /* where p begins in the whole text */
    bool unused_seen, oom;
} agenda;

static void heap_push(agenda *g, pair x)
{
    size_t i = g->heap_n++;
    while (i && before(&x, &g->heap[(i - 1) / 4])) g->heap[i] = g->heap[(i - 1) / 4], i = (i - 1) / 4;
    g->heap[i] = x;
}

static pair heap_pop(agenda *g)
{
    pair top = g->heap[0], x = g->heap[--g->heap_n];
    size_t n = g->heap_n, i = 0;
    for (;;) {
        size_t c = 4 * i + 1, end = c + 4 < n ? c + 4 : n, b = c;
        if (c >= n) break;
        for (size_t k = c + 1; k < end; k++)
            if (before(&g->heap[k], &g->heap[b])) b = k;
        if (!before(&g->heap[b], &x)) break;
        g->heap[i] = g->heap[b];
        i = b;
    }
    if (n) g->heap[i] = x;
    return top;
}

static bool earlier(const moment *a, const moment *b)
{
    if (a->step != b->step) return !a->step;
    if (a->step && a->score != b->score) return a->score > b->score;
    return a->place < b->place;
}

static void note_halves(agenda *g, nb_str text, uint32_t left)
{
    unused *u = g->u;
    uint32_t i;
    halves x = {g->now, left};
    g->unused_seen = true;
    if (nb_map_get(&u->map, text, &i)) {
        halves *old = (halves *)u->halves.p + i;
        if (!earlier(&x.when, &old->when)) *old = x;
        return;
    }
    if ((!u->map.slot && !nb_map_init(&u->map, 8)) || !nb_map_put(&u->map, text, (uint32_t)u->halves.n, NULL, NULL) || !nb_tok_vec_push(&u->halves, &x, sizeof x)) g->oom = true;
}

static void consider(agenda *g, uint32_t left, uint32_t right)
{
    const nb_tokenizer *t = g->r->t;
    if (left == UINT32_MAX || right >= g->n || g->sym[left].frozen || g->sym[right].frozen) return;
    uint32_t size = g->sym[left].n + g->sym[right].n;
    uint32_t id = piece_id(t, g->p + g->sym[left].at, size);
    if (id == NB_TOK_NONE) return;
    heap_push(g, (pair){(float)t->scores[id], left, size});
    if (g->u && (t->tok_flags[id] & NB_TF_UNUSED)) note_halves(g, (nb_str){g->p + g->sym[left].at, size}, g->sym[left].n);
}

/* Merges all that can be merged in the bytes of g->p; the symbols are linked from 0 on. */
static bool merge(agenda *g, size_t bytes)
{
    size_t n = 0, len;
    symbol *sym = g->sym = nb_tok_work(g->r, 0, bytes * sizeof *sym);
    g->heap = nb_tok_work(g->r, 1, 3 * bytes * sizeof *g->heap);
    if (!sym || !g->heap) return false;
    for (size_t at = 0; at < bytes; at += len, n++) {
        len = nb_tok_sp_user(g->r->t, g->p + at, bytes - at);
        bool frozen = len > 0;
        if (!frozen) nb_uni_next(g->p + at, &len);
        sym[n] = (symbol){(uint32_t)at, (uint32_t)len, n ? (uint32_t)n - 1 : UINT32_MAX, (uint32_t)n + 1, frozen};
    }
    g->n = n;
    for (uint32_t i = 0; i + 1 < n; i++) {
        g->now = (moment){.place = g->base + sym[i].at};
        consider(g, i, i + 1);
    }
    while (g->heap_n && !g->oom) {
        pair top = heap_pop(g);
        symbol *l = &sym[top.left];
        if (!l->n || l->next >= n || l->n + sym[l->next].n != top.size) continue;
        moment now = {true, top.score, g->base + l->at};
        if (!g->now.step || earlier(&g->now, &now)) g->now = now;
        symbol *gone = &sym[l->next];
        l->n = top.size;
        l->next = gone->next;
        gone->n = 0;
        if (l->next < n) sym[l->next].prev = top.left;
        consider(g, l->prev, top.left);
        consider(g, top.left, l->next);
    }
    return !g->oom;
}

/* One stretch, bytes from .. end of the text: no piece reaches across its ends. */
static nb_status stretch(nb_tok_run *r, nb_tok_sink *s, const nb_tok_buf *text, size_t from, size_t end)
{
    size_t bytes = end - from, out = r->out->n;
    bool unknown = s->unknown_before;
    agenda g = {.r = r, .p = text->p + from};
    nb_tok_cache_slot *slot = nb_tok_cache_slot_of(r, g.p, bytes);
    if (nb_tok_cached(r, slot, g.p, bytes)) {
        s->unknown_before = false;
        return NB_OK;
    }
    if (!merge(&g, bytes)) return nb_tok_no_memory(r->err);
    s->unknown_seen = unknown;
    for (uint32_t i = 0; i < g.n; i = g.sym[i].next) {
        const symbol *x = &g.sym[i];
        nb_tok_sp_put(s, piece_id(r->t, g.p + x->at, x->n), g.p + x->at, x->n, nb_tok_from(text, from + x->at));
    }
    if (!s->ok) return nb_tok_no_memory(r->err);
    /* Runs of unknown reach across stretches: those with one are not kept. */
    if (!s->unknown_seen) nb_tok_cache_put(r, slot, g.p, bytes, out);
    return NB_OK;
}

/* The same for a model with unused pieces: the symbols are kept, ids come when the whole text is known. The cache holds
 * places in the list of parts. */
static nb_status unused_stretch(nb_tok_run *r, unused *u, const nb_tok_buf *text, size_t from, size_t end)
{
    size_t bytes = end - from, out = u->parts;
    agenda g = {.r = r, .p = text->p + from, .u = u, .base = (uint32_t)from};
    nb_tok_cache_slot *slot = nb_tok_cache_slot_of(r, g.p, bytes);
    if (slot && slot->out >= r->cache_from && nb_tok_slot_has(slot, g.p, bytes)) {
        size_t old = slot->out - r->cache_from;
        uint32_t shift = (uint32_t)from - u->part[old].at;
        for (uint32_t i = 0; i < slot->count && !g.oom; i++) {
            const part *x = &u->part[old + i];
            g.oom = !add_part(u, (part){x->at + shift, x->n, x->id});
        }
        return g.oom ? nb_tok_no_memory(r->err) : NB_OK;
    }
    if (!merge(&g, bytes)) return nb_tok_no_memory(r->err);
    for (uint32_t i = 0; i < g.n && !g.oom; i = g.sym[i].next) {
        const symbol *x = &g.sym[i];
        g.oom = !add_part(u, (part){(uint32_t)from + x->at, x->n, piece_id(r->t, g.p + x->at, x->n)});
    }
    if (g.oom) return nb_tok_no_memory(r->err);
    /* Where unused pieces were looked at, every occurrence has its own moment. */
    if (slot && !g.unused_seen && out <= UINT32_MAX - r->cache_from) {
        memcpy(slot->key, g.p, bytes);
        slot->n = (uint8_t)bytes, slot->out = r->cache_from + (uint32_t)out, slot->count = (uint32_t)(u->parts - out);
    }
    return NB_OK;
}

/* Puts a part out; an unused piece as its two halves, with a stack instead of recursion. */
static void take_apart(nb_tok_sink *s, const unused *u, const nb_tok_buf *text, const part *x)
{
    const nb_tokenizer *t = s->r->t;
    part stack[64];
    size_t depth = 1;
    stack[0] = *x;
    while (depth) {
        part y = stack[--depth];
        bool is = y.id != NB_TOK_NONE && (t->tok_flags[y.id] & NB_TF_UNUSED);
        uint32_t i, half = y.n;
        if (is && nb_map_get(&u->map, (nb_str){text->p + y.at, y.n}, &i)) half = ((const halves *)u->halves.p)[i].left;
        if (half >= y.n || depth + 2 > NB_COUNT(stack)) {
            nb_tok_sp_put(s, y.id, text->p + y.at, y.n, nb_tok_from(text, x->at));
            continue;
        }
        stack[depth++] = (part){y.at + half, y.n - half, piece_id(t, text->p + y.at + half, y.n - half)};
        stack[depth++] = (part){y.at, half, piece_id(t, text->p + y.at, half)};
    }
}

/* Calls for each stretch; u NULL: no unused pieces. */
static nb_status each_stretch(nb_tok_run *r, nb_tok_sink *s, unused *u, const nb_tok_buf *text)
{
    size_t from = 0, len;
    uint32_t before_cp = 0;
    nb_status st = NB_OK;
    for (size_t i = 0; i < text->n && r->t->meta->pair_bits && !st; i += len) {
        uint32_t cp = nb_uni_next(text->p + i, &len);
        if (i && nb_tok_may_cut(r->t, before_cp, cp)) {
            st = u ? unused_stretch(r, u, text, from, i) : stretch(r, s, text, from, i);
            from = i;
        }
        before_cp = cp;
    }
    if (st) return st;
    return u ? unused_stretch(r, u, text, from, text->n) : stretch(r, s, text, from, text->n);
}

nb_status nb_tok_sp_bpe(nb_tok_run *r, const nb_tok_buf *text)
{
    nb_tok_sink s = {.r = r, .ok = true};
    unused u = {0};
    if (!r->t->meta->sp_unused) return each_stretch(r, &s, NULL, text);
    nb_status st = each_stretch(r, &s, &u, text);
    for (size_t i = 0; i < u.parts && !st && s.ok; i++) {
        const part *x = &u.part[i];
        if (x->id != NB_TOK_NONE && !(r->t->tok_flags[x->id] & NB_TF_UNUSED)) nb_tok_sp_put(&s, x->id, text->p + x->at, x->n, nb_tok_from(text, x->at));
        else take_apart(&s, &u, text, x);
    }
    /* The next text has a list of its own: what the cache holds are places in this one. */
    if (u.parts < UINT32_MAX - r->cache_from) r->cache_from += (uint32_t)u.parts;
    else r->cache_n = 0;
    nb_map_free(&u.map);
    free(u.halves.p), free(u.part);
    return st ? st : s.ok ? NB_OK : nb_tok_no_memory(r->err);
}
