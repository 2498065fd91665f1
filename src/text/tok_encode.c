/* text/tok_encode: from a text, or spans of it, to ids.
 *
 * Added tokens that are not normalised are cut out of the raw text; each rest is normalised as a text of its own; the
 * other added tokens are cut out of that; what is left is pre-tokenised and goes through the model.
 * Memory: at most 160 bytes for each byte of the normalised text, beside the ids and 4 bytes for each merge. */
#include "text/tok_run.h"

#include "text/tok_regex.h"
#include "text/tok_scan.h"

#include <stdlib.h>

/* Is a special token allowed at bytes start .. end of the caller's text? Only inside one trusted span. */
static bool trusted(const nb_tok_run *r, size_t start, size_t end)
{
    if (!r->spans) return true;
    size_t lo = 0, hi = r->span_n;
    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;
        if (r->span_at[mid] <= start) lo = mid;
        else hi = mid;
    }
    return r->span_n && r->spans[lo].trusted && end <= r->span_at[lo + 1];
}

static const nb_tok_trie no_trie = {0};

/* A text in which added tokens are looked for. */
typedef struct hay {
    const char *p;
    size_t n;
    const uint32_t *org; /* NULL: the caller's text itself, from `at` on */
    size_t at;
    const nb_tok_trie *trie;
    const bool *first; /* bytes that a token begins with */
} hay;

static size_t origin(const hay *h, size_t i)
{
    if (!h->org) return h->at + i;
    return i < h->n ? h->org[i] : h->n ? h->org[h->n - 1] + 1u : 0;
}

/* The longest added token at i that is allowed there; its number or NB_TOK_NONE, *end behind it. */
static uint32_t longest(const nb_tok_run *r, const hay *h, size_t i, size_t *end)
{
    uint32_t node = 0, found = NB_TOK_NONE;
    if (!nb_tok_border(h->p, i, h->n)) return found;
    for (size_t k = i; k < h->n; ) {
        node = nb_trie_child(h->trie, node, (uint8_t)h->p[k]);
        if (node == NB_TOK_NONE) break;
        k++;
        uint32_t a = h->trie->value[node];
        if (a == NB_TOK_NONE || !nb_tok_border(h->p, k, h->n)) continue;
        if ((r->t->added[a].flags & NB_AF_SPECIAL) && r->spans && !trusted(r, origin(h, i), origin(h, k - 1) + 1)) continue;
        found = a, *end = k;
    }
    return found;
}

static bool word_at(const char *p, size_t n, size_t i)
{
    size_t len;
    return i < n && nb_uni_is(nb_uni_next(p + i, &len), NB_UF_WORD);
}

typedef nb_status part_fn(nb_tok_run *r, const hay *h, size_t start, size_t end);

/* Calls `part` for each stretch between added tokens and puts the tokens out. With rstrip the search goes on behind the
 * token's own content, so that a token of white space inside what was stripped is found as well, as in the package. */
static nb_status split_added(nb_tok_run *r, const hay *h, size_t from, part_fn *part)
{
    size_t done = from, white_from = 0, white_to = 0; /* a run of white space that was looked through */
    nb_status st = NB_OK;
    for (size_t i = from; i < h->n && h->trie->nodes && !st;) {
        size_t stop, len;
        uint32_t a;
        while (i < h->n && !h->first[(uint8_t)h->p[i]]) i++;
        if (i == h->n) break;
        if ((a = longest(r, h, i, &stop)) == NB_TOK_NONE) {
            i++;
            continue;
        }
        const nb_tok_added *token = &r->t->added[a];
        size_t start = i;
        i = stop;
        if ((token->flags & NB_AF_SINGLE_WORD) && ((start && word_at(h->p, h->n, nb_uni_back(h->p, start))) || word_at(h->p, h->n, stop))) continue;
        if (token->flags & NB_AF_LSTRIP) {
            size_t back = start;
            while (back > done) {
                size_t b = nb_uni_back(h->p, back);
                if (!nb_uni_is(nb_uni_next(h->p + b, &len), NB_UF_WHITE)) break;
                back = b;
            }
            start = back > done ? back : done;
        }
        if (token->flags & NB_AF_RSTRIP) {
            if (stop < white_from || stop > white_to) white_from = white_to = stop;
            while (white_to < h->n && nb_uni_is(nb_uni_next(h->p + white_to, &len), NB_UF_WHITE)) white_to += len;
            stop = white_to;
        }
        if (done < start && start < stop) st = part(r, h, done, start);
        /* A token whose white space an earlier one took whole is lost, as in the package. */
        if (!st && start < stop && !nb_tok_emit(r, token->id, (uint32_t)origin(h, start))) st = nb_tok_no_memory(r->err);
        done = stop;
    }
    if (!st && done < h->n) st = part(r, h, done, h->n);
    return st;
}

static nb_status run_model(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at)
{
    uint32_t model = r->t->meta->model;
    if (model == NB_TM_BPE) return r->t->meta->byte_level_last ? nb_tok_bpe_bytes(r, p, n, org, at) : nb_tok_bpe(r, p, n, org, at);
    nb_tok_cache_slot *slot = nb_tok_cache_slot_of(r, p, n);
    if (nb_tok_cached(r, slot, p, n)) return NB_OK;
    size_t from = r->out->n;
    nb_status st = model == NB_TM_UNIGRAM ? nb_tok_unigram(r, p, n, org, at) : model == NB_TM_WORDPIECE ? nb_tok_wordpiece(r, p, n, org, at) : nb_tok_wordlevel(r, p, n, org, at);
    if (!st) nb_tok_cache_put(r, slot, p, n, from);
    return st;
}

/* The usual case, without a list of pieces: one known split pattern, then byte-level. Returns its scanner. */
static const nb_tok_scan *simple_scan(const nb_tokenizer *t)
{
    const nb_tok_meta *m = t->meta;
    if (!m->byte_level_last) return NULL;
    const nb_tok_step *s = &t->steps[m->pre_at];
    if (m->pre_n == 1 && s->kind == NB_TP_BYTELEVEL && s->f[1] && !s->f[0]) return nb_tok_regex_scan(t->regex[m->pre_at]);
    if (m->pre_n != 2 || s->kind != NB_TP_SPLIT || !s->f[0] || s[1].kind != NB_TP_BYTELEVEL || s[1].f[0] || s[1].f[1]) return NULL;
    if (!((s->f[1] == NB_BEHAVE_ISOLATED && !s->f[2]) || (s->f[1] == NB_BEHAVE_REMOVED && s->f[2]))) return NULL;
    return nb_tok_regex_scan(t->regex[m->pre_at]);
}

/* Plain text that is normalised already: bytes start .. end of h. */
static nb_status plain(nb_tok_run *r, const hay *h, size_t start, size_t end)
{
    const nb_tok_scan *scan = simple_scan(r->t);
    nb_status st = NB_OK;
    if (scan) {
        const char *p = h->p + start;
        size_t n = end - start;
        for (size_t at = 0, next; at < n && !st; at = next) {
            next = nb_tok_scan_next(scan, p, at, n);
            st = nb_tok_bpe_bytes(r, p + at, next - at, h->org ? h->org + start + at : NULL, h->at + start + at);
        }
        return st;
    }
    if (!r->t->meta->pre_n) return run_model(r, h->p + start, end - start, h->org ? h->org + start : NULL, h->at + start);
    nb_tok_buf_clear(&r->b);
    nb_tok_buf_copy(&r->b, h->p + start, end - start, h->org ? h->org + start : NULL, h->at + start);
    if (r->b.oom) return nb_tok_no_memory(r->err);
    return nb_tok_pretokenize(r, run_model);
}

/* Raw text between added tokens: bytes start .. end of the caller's text. */
static nb_status raw(nb_tok_run *r, const hay *h, size_t start, size_t end)
{
    const nb_tokenizer *t = r->t;
    hay rest = {.p = h->p + start, .n = end - start, .at = h->at + start, .trie = (r->flags & NB_ENC_PARSE_ADDED) ? &t->trie[NB_TRIE_NORMAL] : &no_trie, .first = t->normal_first};
    if (t->meta->norm_n) {
        nb_tok_buf_clear(&r->a);
        nb_tok_buf_copy(&r->a, h->p + start, end - start, NULL, h->at + start);
        nb_status st = r->a.oom ? nb_tok_no_memory(r->err) : nb_tok_normalize(r, &r->a, &r->b);
        if (st) return st;
        rest.p = r->a.p, rest.n = r->a.n, rest.org = r->a.org;
        if (!rest.org) rest.at = 0;
    }
    return split_added(r, &rest, 0, plain);
}

static nb_status sp_raw(nb_tok_run *r, const hay *h, size_t start, size_t end)
{
    nb_tok_buf_clear(&r->a);
    nb_tok_buf_copy(&r->a, h->p + start, end - start, NULL, h->at + start);
    if (r->a.oom) return nb_tok_no_memory(r->err);
    return nb_tok_sp_encode(r, &r->a, &r->b, start == 0 || r->t->meta->sp_prefix_every);
}

/* Do places have to be kept beside working texts? For offsets, for Metaspace `first`, and to tell where a special
 * token that is found in the normalised text came from. */
static bool keeps_places(const nb_tok_run *r)
{
    const nb_tok_meta *m = r->t->meta;
    if (r->want_off || (r->spans && r->t->normal_special && m->norm_n)) return true;
    for (uint32_t i = 0; i < m->pre_n; i++)
        if (r->t->steps[m->pre_at + i].kind == NB_TP_METASPACE && r->t->steps[m->pre_at + i].f[0] == NB_SCHEME_FIRST) return true;
    return false;
}

static nb_status sequence(nb_tok_run *r, const char *p, size_t n)
{
    const nb_tokenizer *t = r->t;
    bool sp = t->meta->model == NB_TM_SP_BPE || t->meta->model == NB_TM_SP_UNIGRAM;
    hay h = {.p = p, .n = n, .trie = (r->flags & NB_ENC_PARSE_ADDED) ? &t->trie[NB_TRIE_RAW] : &no_trie, .first = t->raw_first};
    size_t bad = nb_utf8_valid_prefix(p, n);
    if (bad != n) return nb_fail(r->err, NB_E_INVALID, "text is not UTF-8 at byte %zu", bad);
    if (n > UINT32_MAX / 4) return nb_fail(r->err, NB_E_INVALID, "text of %zu bytes is too long", n);
    if (n) nb_uni_next(p, &r->first_n);
    return split_added(r, &h, r->from, sp ? sp_raw : raw);
}

nb_tok_cache_slot *nb_tok_cache_new(uint32_t slots)
{
    nb_tok_cache_slot *c = aligned_alloc(64, slots * sizeof *c);
    if (c) memset(c, 0, slots * sizeof *c);
    return c;
}

/* A cache that fits the text: small prompts need none of 16,384 places. */
static void make_cache(nb_tok_run *r, size_t n)
{
    uint32_t slots = 64;
    if (r->t->meta->model == NB_TM_SP_UNIGRAM || n < 64) return;
    while (slots < 8192 && slots < n / 8) slots *= 2;
    r->cache = nb_tok_cache_new(slots);
    r->cache_n = r->cache ? slots : 0;
}

static void run_free(nb_tok_run *r)
{
    nb_tok_buf_free(&r->a), nb_tok_buf_free(&r->b), nb_tok_buf_free(&r->c), nb_tok_buf_free(&r->d), nb_tok_buf_free(&r->e);
    free(r->pieces.p), free(r->pieces2.p), free(r->all.p), free(r->part.p), free(r->cache), free(r->pre_cache);
    for (int i = 0; i < 4; i++) free(r->work[i]);
    nb_uni_scratch_free(&r->uni);
}

static nb_status encode_items(nb_tok_run *r, const nb_tok_item *it, uint32_t count, const nb_str text[2], nb_ids *types)
{
    nb_status st = NB_OK;
    for (uint32_t i = 0; i < count && !st; i++) {
        if (it[i].id >= 0) {
            if (!nb_tok_emit(r, (uint32_t)it[i].id, 0)) st = nb_tok_no_memory(r->err);
        } else {
            nb_str s = text[it[i].id == -1 ? 0 : 1];
            st = sequence(r, s.p ? s.p : "", s.n);
        }
        while (types && !st && types->n < r->out->n)
            if (!nb_ids_push(types, (int32_t)it[i].type)) st = nb_tok_no_memory(r->err);
    }
    return st;
}

/* One text, or with `pair` two; types may be NULL. */
static nb_status encode(nb_tok_run *r, const nb_str text[2], bool pair, nb_ids *types)
{
    static const nb_tok_item bare[2] = {{-1, 0}, {-2, 1}};
    const nb_tok_meta *m = r->t->meta;
    const nb_tok_item *it = bare;
    uint32_t count = pair ? 2 : 1;
    if ((r->flags & NB_ENC_SPECIALS) && m->single_n) {
        it = r->t->items + (pair ? m->pair_at : m->single_at);
        count = pair ? m->pair_n : m->single_n;
    }
    /* What goes before the text is there already when only the end is encoded. */
    while (r->from && count && it->id >= 0) it++, count--;
    r->want_off = (r->flags & NB_ENC_OFFSETS) != 0;
    if (r->want_off && !r->out->off) {
        r->out->off = calloc(r->out->cap ? r->out->cap : 1, sizeof *r->out->off);
        if (!r->out->off) return nb_tok_no_memory(r->err);
    }
    r->no_control = r->spans || !(r->flags & NB_ENC_PARSE_ADDED);
    r->a.keep = r->b.keep = r->c.keep = r->d.keep = r->e.keep = keeps_places(r);
    make_cache(r, text[0].n);
    size_t from = r->out->n;
    nb_status st = encode_items(r, it, count, text, types);
    if (st) r->out->n = from;
    run_free(r);
    return st;
}

nb_status nb_tokenizer_encode(const nb_tokenizer *t, nb_str text, int flags, nb_ids *out, nb_error *err)
{
    nb_tok_run r = {.t = t, .err = err, .out = out, .flags = flags};
    return encode(&r, (nb_str[2]){text, {0}}, false, NULL);
}

nb_status nb_tokenizer_encode_pair(const nb_tokenizer *t, nb_str a, nb_str b, int flags, nb_ids *out, nb_ids *types, nb_error *err)
{
    nb_tok_run r = {.t = t, .err = err, .out = out, .flags = flags};
    return encode(&r, (nb_str[2]){a, b}, true, types);
}

nb_status nb_tokenizer_encode_spans(const nb_tokenizer *t, const nb_span *spans, size_t n, int flags, nb_ids *out, nb_error *err)
{
    return nb_tok_encode_from(t, spans, n, 0, flags, out, err);
}

nb_status nb_tok_encode_from(const nb_tokenizer *t, const nb_span *spans, size_t n, size_t from, int flags, nb_ids *out, nb_error *err)
{
    nb_tok_run r = {.t = t, .err = err, .out = out, .flags = flags, .from = from};
    nb_buf text = {0};
    nb_status st = NB_OK;
    bool all = true;
    size_t *at = n < SIZE_MAX / sizeof *at - 1 ? malloc((n + 1) * sizeof *at) : NULL;
    if (!at) return nb_tok_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        at[i] = text.n;
        nb_buf_add_str(&text, spans[i].text);
        all &= spans[i].trusted;
    }
    at[n] = text.n;
    if (text.oom) st = nb_tok_no_memory(err);
    if (!all) r.spans = spans, r.span_at = at, r.span_n = n;
    if (!st) st = encode(&r, (nb_str[2]){nb_buf_str(&text), {0}}, false, NULL);
    free(at);
    nb_buf_free(&text);
    return st;
}
