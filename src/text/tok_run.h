/* text/tok_run: what the parts of encoding share: the text that is being worked on, its pieces, and the state of one call. */
#ifndef NB_TEXT_TOK_RUN_H
#define NB_TEXT_TOK_RUN_H

#include "text/tok_image.h"
#include "text/unicode.h"

/* A text with, where asked for, the place in the caller's text that each byte came from. */
typedef struct nb_tok_buf {
    char *p;
    uint32_t *org; /* by byte; NULL: not kept */
    size_t n, cap, most; /* most 0: what offsets can hold */
    bool keep, oom, full; /* full: it would have grown beyond `most` */
} nb_tok_buf;

void nb_tok_buf_free(nb_tok_buf *b);
bool nb_tok_buf_grow(nb_tok_buf *b, size_t more);
void nb_tok_buf_clear(nb_tok_buf *b);
/* n bytes, the i-th from org[i] (org NULL: from `at` + i). */
void nb_tok_buf_copy(nb_tok_buf *b, const char *p, size_t n, const uint32_t *org, size_t at);
/* n bytes that all come from one place. */
void nb_tok_buf_put(nb_tok_buf *b, const char *p, size_t n, uint32_t from);
void nb_tok_buf_cp(nb_tok_buf *b, uint32_t cp, uint32_t from);
static inline uint32_t nb_tok_from(const nb_tok_buf *b, size_t i) { return b->org && i < b->n ? b->org[i] : 0; }

typedef struct nb_tok_piece { uint32_t at, n; } nb_tok_piece;

/* Recently encoded pieces of this call: where in the output their ids stand. Half a cache line each. */
enum { NB_TOK_KEY = 23 };
typedef struct nb_tok_cache_slot { char key[NB_TOK_KEY]; uint8_t n; uint32_t out, count; } nb_tok_cache_slot;

typedef struct nb_tok_run {
    const nb_tokenizer *t;
    nb_error *err;
    nb_ids *out;
    int flags;
    bool want_off;         /* per id, its place in the caller's text */
    bool no_control;       /* control tokens may not come out of plain text */
    const nb_span *spans;  /* where the text came from; NULL: all of it is trusted */
    size_t *span_at;       /* first byte of each span, and the end */
    size_t span_n;
    size_t first_n;        /* bytes of the text's first character: what comes from there is at the start */
    size_t from;           /* the text before this place has its ids already */
    nb_tok_buf a, b, c, d, e; /* working texts */
    nb_tok_vec pieces, pieces2, all, part; /* nb_tok_piece */
    nb_uni_scratch uni;
    nb_tok_cache_slot *cache;
    nb_tok_cache_slot *pre_cache; /* the same for pieces that the pre-tokenizers from pre_step on have not seen; made when needed */
    uint32_t pre_step;
    uint32_t cache_n;      /* slots of each: a power of two, or 0 */
    uint32_t cache_from;   /* SentencePiece with unused pieces: places below are of an earlier text */
    /* working memory of the models, grown on demand */
    void *work[4];
    size_t work_n[4];
} nb_tok_run;

static inline nb_status nb_tok_no_memory(nb_error *err) { return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory"); }
/* Working memory k of at least n bytes, uninitialised; NULL when memory is out. */
void *nb_tok_work(nb_tok_run *r, int k, size_t n);

/* tok_norm: applies the normalizers to src (swapped through tmp); the result is in src. */
nb_status nb_tok_normalize(nb_tok_run *r, nb_tok_buf *src, nb_tok_buf *tmp);
/* nb_tokenizer_encode_spans for the text from byte `from` on, which is where an added token ended. */
nb_status nb_tok_encode_from(const nb_tokenizer *t, const nb_span *spans, size_t n, size_t from, int flags, nb_ids *out, nb_error *err);
/* The byte-level alphabet, byte by byte. */
void nb_tok_map_bytes(const char *p, size_t n, const uint32_t *org, size_t at, nb_tok_buf *to);
/* tok_charsmap: one replacement by a SentencePiece character map. Longest (or shortest) key that is a prefix of p[0..n); returns its length, 0 for none, and the replacement. */
size_t nb_tok_charsmap_find(nb_str blob, const char *p, size_t n, bool shortest, nb_str *to);
/* Does some key begin with p[0..n)? */
bool nb_tok_charsmap_begins(nb_str blob, const char *p, size_t n);
nb_status nb_tok_charsmap_check(nb_str blob, nb_error *err);
nb_tok_cache_slot *nb_tok_cache_new(uint32_t slots); /* slots * 32 must be a multiple of 64; NULL: memory is out */
/* tok_pre: cuts the text in r->b (which it changes, and c and d too) into pieces and calls the model for each. */
typedef nb_status nb_tok_piece_fn(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at);
nb_status nb_tok_pretokenize(nb_tok_run *r, nb_tok_piece_fn *model);
/* The models: ids of one piece; org gives the place of each byte of the piece or is NULL (then `at` + i). */
/* Merges symbols: id and the place of each in its piece. */
nb_status nb_tok_merge_all(nb_tok_run *r, uint32_t *id, uint32_t *at, size_t *count);
nb_status nb_tok_bpe(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at);
nb_status nb_tok_bpe_bytes(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at);
nb_status nb_tok_unigram(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at);
nb_status nb_tok_wordpiece(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at);
nb_status nb_tok_wordlevel(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at);
/* SentencePiece: one text between control tokens. first: it stands at the start or behind one. */
nb_status nb_tok_sp_encode(nb_tok_run *r, nb_tok_buf *src, nb_tok_buf *tmp, bool first);

/* First occurrence of s (not empty) in p[0..n), NULL: none. Most are one character, or few bytes: the C library's way costs more than it finds. */
static inline const char *nb_tok_find_text(const char *p, size_t n, nb_str s)
{
    if (s.n > 4) return memmem(p, n, s.p, s.n);
    for (const char *end = p + n; (size_t)(end - p) >= s.n; p++) {
        if (end - p >= 16) {
            p = memchr(p, s.p[0], (size_t)(end - p) - s.n + 1);
            if (!p) return NULL;
        } else if (*p != s.p[0]) {
            continue;
        }
        size_t k = 1;
        while (k < s.n && p[k] == s.p[k]) k++;
        if (k == s.n) return p;
    }
    return NULL;
}

/* Does a character begin at p[at], or does the text end there? Matches of a trie count only if they end so. */
static inline bool nb_tok_border(const char *p, size_t at, size_t n) { return at >= n || (p[at] & 0xC0) != 0x80; }

/* One id and the place that it came from. */
static inline bool nb_tok_emit(nb_tok_run *r, uint32_t id, uint32_t from)
{
    nb_ids *v = r->out;
    if (v->n == v->cap || v->off) {
        if (!nb_ids_push(v, (int32_t)id)) return false;
        if (v->off) v->off[v->n - 1] = from;
        return true;
    }
    v->id[v->n++] = (int32_t)id;
    return true;
}
static inline uint32_t nb_tok_place(const uint32_t *org, size_t at, size_t i) { return org ? org[i] : (uint32_t)(at + i); }
/* ---- the cache of a call: short pieces, and where their ids stand in the output. Offsets differ from piece to piece, so it
 * serves only calls without them ---- */
static inline nb_tok_cache_slot *nb_tok_slot_in(const nb_tok_run *r, nb_tok_cache_slot *cache, const char *p, size_t n)
{
    return n <= NB_TOK_KEY && r->cache_n && !r->want_off ? &cache[(nb_tok_hash(p, n) >> 40) & (r->cache_n - 1)] : NULL;
}
static inline nb_tok_cache_slot *nb_tok_cache_slot_of(const nb_tok_run *r, const char *p, size_t n) { return nb_tok_slot_in(r, r->cache, p, n); }
/* Does the slot hold this piece? Words that overlap, rather than a call for few bytes. */
static inline bool nb_tok_slot_has(const nb_tok_cache_slot *c, const char *p, size_t n)
{
    if (c->n != n) return false;
    if (n >= 8) return nb_load_u64(c->key) == nb_load_u64(p) && (n <= 16 || nb_load_u64(c->key + 8) == nb_load_u64(p + 8)) && nb_load_u64(c->key + n - 8) == nb_load_u64(p + n - 8);
    if (n >= 4) return nb_load_u32(c->key) == nb_load_u32(p) && nb_load_u32(c->key + n - 4) == nb_load_u32(p + n - 4);
    return n && c->key[0] == p[0] && c->key[n / 2] == p[n / 2] && c->key[n - 1] == p[n - 1];
}
/* Puts out what the same piece gave before. */
static inline bool nb_tok_cached(nb_tok_run *r, const nb_tok_cache_slot *c, const char *p, size_t n)
{
    if (!c || !nb_tok_slot_has(c, p, n)) return false;
    nb_ids *v = r->out;
    if (!c->count) return true; /* there may be no ids at all yet, and no memory for them */
    if (!v->off && v->cap - v->n >= c->count) {
        const int32_t *from = v->id + c->out;
        for (uint32_t i = 0; i < c->count; i++) v->id[v->n + i] = from[i];
        v->n += c->count;
        return true;
    }
    for (uint32_t i = 0; i < c->count; i++)
        if (!nb_tok_emit(r, (uint32_t)v->id[c->out + i], 0)) return false;
    return true;
}
static inline void nb_tok_cache_put(nb_tok_run *r, nb_tok_cache_slot *c, const char *p, size_t n, size_t from)
{
    if (!c || from > UINT32_MAX) return;
    memcpy(c->key, p, n);
    c->n = (uint8_t)n, c->out = (uint32_t)from, c->count = (uint32_t)(r->out->n - from);
}
/* Does no token that merging makes hold the characters a and b side by side? */
static inline bool nb_tok_may_cut(const nb_tokenizer *t, uint32_t a, uint32_t b)
{
    uint64_t bit = nb_tok_pair_hash(a, b) >> (64 - t->meta->pair_bits);
    return !(t->pairs[bit >> 6] >> (bit & 63) & 1);
}
static inline bool nb_tok_may_cut_bytes(const nb_tokenizer *t, uint8_t a, uint8_t b)
{
    return !(t->pairs[a << 2 | b >> 6] >> (b & 63) & 1);
}
/* May this id come out of plain text in this call? */
static inline bool nb_tok_allowed(const nb_tok_run *r, uint32_t id)
{
    return !r->no_control || !(r->t->tok_flags[id] & (NB_TF_SPECIAL | NB_TF_CONTROL));
}

#endif
