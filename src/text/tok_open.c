/* text/tok_open: checks an image before anything in it is used, saves it, and the small look-ups of the public API. */
#include "text/tok_image.h"

#include "text/tok_regex.h"
#include "text/tok_run.h"

#include <stdlib.h>

static nb_status bad(nb_error *err, const char *what) { return nb_fail(err, NB_E_INVALID, "prepared tokenizer: %s", what); }

static const void *section(const nb_tokenizer *t, int i, uint64_t *size)
{
    const nb_tok_header *h = (const nb_tok_header *)t->image;
    *size = h->section[i].size;
    return t->image + (*size ? h->section[i].off : 0); /* the offset of an empty one is not checked */
}

static nb_status check_header(const nb_tokenizer *t, const char key[65], nb_error *err)
{
    const nb_tok_header *h = (const nb_tok_header *)t->image;
    if (t->image_n < sizeof *h || ((uintptr_t)t->image & 15)) return bad(err, "too short or not aligned");
    if (memcmp(h->magic, "nbtoken", 8) || h->version != NB_TOK_IMAGE_VERSION || h->sections != NB_TS_COUNT || h->size != t->image_n)
        return bad(err, "another version, or truncated");
    if (key && memcmp(h->key, key, 64)) return bad(err, "made from other sources");
    for (int i = 0; i < NB_TS_COUNT; i++) {
        uint64_t off = h->section[i].off, n = h->section[i].size;
        if (n > t->image_n || off > t->image_n - n || off % 64 || off < sizeof *h) {
            if (n) return bad(err, "a section lies outside the file");
        }
    }
    return NB_OK;
}

static bool ref_ok(nb_tok_ref r, uint64_t n) { return r.n <= n && r.off <= n - r.n; }
static bool range_ok(uint32_t at, uint32_t n, uint64_t of) { return n <= of && at <= of - n; }
static bool id_ok(uint32_t id, const nb_tok_meta *m) { return id == NB_TOK_NONE || id < m->ids; }

/* Texts must be UTF-8: what reads them goes from character to character without looking where they end. */
static bool text_ok(const nb_tokenizer *t, nb_tok_ref r, uint64_t n)
{
    return ref_ok(r, n) && nb_utf8_valid_prefix(t->strings + r.off, r.n) == r.n;
}

static bool step_ok(const nb_tokenizer *t, const nb_tok_step *s, uint64_t strings)
{
    if (!s->kind || s->kind >= NB_T_KIND_END || s->f[1] > NB_BEHAVE_CONTIGUOUS || !ref_ok(s->s, strings) || !text_ok(t, s->s2, strings)) return false;
    switch (s->kind) {
    case NB_TN_CHARSMAP: return nb_tok_charsmap_check(nb_tok_str(t, s->s), NULL) == NB_OK;
    case NB_TN_FORM: return s->a[0] <= 3;
    case NB_TP_FIXED: return s->a[0] > 0;
    case NB_TN_REPLACE: case NB_TP_SPLIT: case NB_TD_REPLACE: return (s->f[0] || s->s.n) && text_ok(t, s->s, strings);
    case NB_TP_DELIMITER: case NB_TD_STRIP: return s->a[0] < 0xD800 || (s->a[0] > 0xDFFF && s->a[0] <= 0x10FFFF);
    default: return text_ok(t, s->s, strings);
    }
}

static nb_status check_meta(nb_tokenizer *t, nb_error *err)
{
    uint64_t n, strings, steps, items;
    t->meta = section(t, NB_TS_META, &n);
    if (n != sizeof *t->meta) return bad(err, "size of the description");
    t->strings = section(t, NB_TS_STRINGS, &strings);
    t->steps = section(t, NB_TS_STEPS, &steps);
    t->items = section(t, NB_TS_ITEMS, &items);
    const nb_tok_meta *m = t->meta;
    if (steps % sizeof *t->steps || items % sizeof *t->items) return bad(err, "size of the steps");
    steps /= sizeof *t->steps, items /= sizeof *t->items;
    if (steps > 4096) return bad(err, "too many steps");
    t->step_n = (uint32_t)steps;
    bool ok = m->model < NB_TM_COUNT && m->ids <= NB_TOK_MAX_IDS && m->ranks <= NB_TOK_MAX_IDS && range_ok(m->norm_at, m->norm_n, steps) && range_ok(m->pre_at, m->pre_n, steps) &&
              range_ok(m->dec_at, m->dec_n, steps) && range_ok(m->single_at, m->single_n, items) && range_ok(m->pair_at, m->pair_n, items) &&
              id_ok(m->unk, m) && id_ok(m->bos, m) && id_ok(m->eos, m) && text_ok(t, m->prefix, strings) && text_ok(t, m->suffix, strings) &&
              text_ok(t, m->unk_surface, strings) && text_ok(t, m->unknown_pre, strings) && ref_ok(m->sp_charsmap, strings) && nb_tok_charsmap_check(nb_tok_str(t, m->sp_charsmap), NULL) == NB_OK && (m->pair_bits == 0 || (m->pair_bits >= 6 && m->pair_bits <= 30));
    for (int i = 0; ok && i < NB_SPECIAL_COUNT; i++) ok = text_ok(t, m->special[i], strings);
    for (int i = 0; ok && i < 256; i++) ok = id_ok(m->byte_id[i], m) && id_ok(m->symbol_id[i], m);
    for (uint64_t i = 0; ok && i < steps; i++) ok = step_ok(t, &t->steps[i], strings);
    for (uint64_t i = 0; ok && i < items; i++) ok = t->items[i].id >= -2 && (t->items[i].id < 0 || (uint32_t)t->items[i].id < m->ids);
    return ok ? NB_OK : bad(err, "a number in the description is out of range");
}

static nb_status check_tokens(nb_tokenizer *t, nb_error *err)
{
    const nb_tok_meta *m = t->meta;
    uint64_t n, bytes, used = 0;
    t->tok_off = section(t, NB_TS_TOK_OFF, &n);
    t->tok_bytes = section(t, NB_TS_TOK_BYTES, &bytes);
    if (n != ((uint64_t)m->ids + 1) * 4) return bad(err, "size of the token table");
    uint32_t wrong = t->tok_off[0] != 0 || t->tok_off[m->ids] != bytes;
    for (uint32_t i = 0; i < m->ids; i++) wrong |= t->tok_off[i] > t->tok_off[i + 1];
    t->tok_flags = section(t, NB_TS_TOK_FLAGS, &n);
    if (wrong || n != m->ids) return bad(err, "token offsets");
    t->scores = section(t, NB_TS_SCORES, &n);
    if (!n) t->scores = NULL;
    else if (n != (uint64_t)m->ids * 8) return bad(err, "size of the scores");
    bool need_scores = m->model == NB_TM_UNIGRAM || m->model == NB_TM_SP_UNIGRAM || m->model == NB_TM_SP_BPE;
    if (need_scores && !t->scores && m->ids) return bad(err, "no scores");
    t->vocab = section(t, NB_TS_VOCAB, &n);
    if (n != (uint64_t)m->vocab_slots * 8) return bad(err, "size of the vocabulary table");
    for (uint32_t i = 0; i < m->vocab_slots; i++) {
        uint32_t id = (uint32_t)t->vocab[i];
        used += t->vocab[i] != 0;
        wrong |= id > m->ids || (id == 0 && t->vocab[i]);
    }
    /* A look-up ends at an empty slot: there must be one. */
    if (wrong || (m->vocab_slots && used >= m->vocab_slots)) return bad(err, "vocabulary table");
    t->merges = section(t, NB_TS_MERGES, &n);
    if (n != (uint64_t)m->merge_slots * sizeof *t->merges) return bad(err, "size of the merges");
    t->pairs = section(t, NB_TS_PAIRS, &n);
    if (m->byte_level_last && m->pair_bits && m->pair_bits != 16) return bad(err, "size of the pair filter");
    if (n != (m->pair_bits ? (uint64_t)1 << (m->pair_bits - 3) : 0)) return bad(err, "size of the pair filter");
    return NB_OK;
}

static nb_status check_tries(nb_tokenizer *t, nb_error *err)
{
    for (int k = 0; k < NB_TRIE_COUNT; k++) {
        nb_tok_trie *d = &t->trie[k];
        uint64_t a, b, c;
        d->first = section(t, NB_TS_TRIES + 3 * k, &a);
        d->value = section(t, NB_TS_TRIES + 3 * k + 1, &b);
        d->label = section(t, NB_TS_TRIES + 3 * k + 2, &c);
        if (!c && !a && !b) continue;
        if (c > UINT32_MAX / 8 || a != (c + 1) * 4 || b != c * 4) return bad(err, "size of a trie");
        d->nodes = (uint32_t)c;
        uint32_t limit = k == NB_TRIE_RAW || k == NB_TRIE_NORMAL ? t->added_n : t->meta->ids;
        uint32_t wrong = d->first[d->nodes] != d->nodes;
        for (uint32_t i = 0; i < d->nodes; i++) {
            /* Children come after their parent: a walk always ends. */
            wrong |= d->first[i] > d->first[i + 1] || d->first[i] <= i;
            wrong |= d->value[i] != NB_TOK_NONE && d->value[i] >= limit;
        }
        if (wrong) return bad(err, "a trie");
    }
    return NB_OK;
}

/* Tables for the upper nodes of the tries. */
static nb_status make_dense(nb_tokenizer *t, nb_error *err)
{
    static const uint32_t most[NB_TRIE_COUNT] = {[NB_TRIE_RAW] = 16, [NB_TRIE_NORMAL] = 16, [NB_TRIE_MODEL] = 1024, [NB_TRIE_USER] = 16};
    size_t total = 0;
    for (int k = 0; k < NB_TRIE_COUNT; k++) total += t->trie[k].nodes < most[k] ? t->trie[k].nodes : most[k];
    if (!total) return NB_OK;
    uint32_t *p = t->dense = malloc(total * 256 * sizeof *p);
    if (!p) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    memset(p, 0xFF, total * 256 * sizeof *p);
    for (int k = 0; k < NB_TRIE_COUNT; k++) {
        nb_tok_trie *d = &t->trie[k];
        uint32_t n = d->nodes < most[k] ? d->nodes : most[k];
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t c = d->first[i]; c < d->first[i + 1]; c++) p[i << 8 | d->label[c]] = c;
        d->dense = p, d->dense_n = n;
        p += (size_t)n << 8;
    }
    return NB_OK;
}

/* Which ASCII characters SentencePiece's normalisation leaves alone where an ASCII character follows: no user-defined piece
 * begins with them, and no key of the map is that character or begins with it and another one. */
static void find_plain(nb_tokenizer *t)
{
    nb_str map = nb_tok_str(t, t->meta->sp_charsmap);
    if (t->meta->model != NB_TM_SP_BPE && t->meta->model != NB_TM_SP_UNIGRAM) return;
    for (int c = 1; c < 128; c++) {
        char key[2] = {(char)c, 0};
        nb_str to;
        bool plain = !t->trie[NB_TRIE_USER].nodes || nb_trie_child(&t->trie[NB_TRIE_USER], 0, (uint8_t)c) == NB_TOK_NONE;
        plain = plain && !nb_tok_charsmap_find(map, key, 1, false, &to);
        if (plain && nb_tok_charsmap_begins(map, key, 1))
            for (int d = 1; d < 128 && plain; d++) key[1] = (char)d, plain = !nb_tok_charsmap_begins(map, key, 2);
        if (plain) t->sp_plain[c] = c == ' ' ? NB_PLAIN_SPACE : NB_PLAIN_CHAR;
    }
}

static nb_status check_added(nb_tokenizer *t, nb_error *err)
{
    uint64_t n, order, strings;
    section(t, NB_TS_STRINGS, &strings);
    t->added = section(t, NB_TS_ADDED, &n);
    t->added_by_id = section(t, NB_TS_ADDED_BY_ID, &order);
    if (n % sizeof *t->added || n / sizeof *t->added > NB_TOK_MAX_IDS || order != n / sizeof *t->added * 4) return bad(err, "size of the added tokens");
    t->added_n = (uint32_t)(n / sizeof *t->added);
    for (uint32_t i = 0; i < t->added_n; i++) {
        const nb_tok_added *a = &t->added[i];
        if (!text_ok(t, a->content, strings) || !text_ok(t, a->normal, strings) || a->id >= t->meta->ids || t->added_by_id[i] >= t->added_n)
            return bad(err, "an added token");
        if (!a->normal.n) continue;
        uint8_t c = (uint8_t)t->strings[a->normal.off];
        ((a->flags & NB_AF_NORMALIZED) ? t->normal_first : t->raw_first)[c] = true;
        if ((a->flags & NB_AF_NORMALIZED) && (a->flags & NB_AF_SPECIAL)) t->normal_special = true;
    }
    return NB_OK;
}

/* Patterns are compiled here, not stored: the compiled form depends on the library. */
static nb_status compile_patterns(nb_tokenizer *t, nb_error *err)
{
    t->regex = calloc(t->step_n + 1, sizeof *t->regex);
    if (!t->regex) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    for (uint32_t i = 0; i < t->step_n; i++) {
        const nb_tok_step *s = &t->steps[i];
        nb_str pattern = nb_tok_str(t, s->s);
        if (s->kind == NB_TP_BYTELEVEL && s->f[1]) pattern = NB_LIT(NB_TOK_GPT2_PATTERN);
        else if (!((s->kind == NB_TN_REPLACE || s->kind == NB_TP_SPLIT || s->kind == NB_TD_REPLACE) && s->f[0])) continue;
        nb_status st = nb_tok_regex_new(&t->regex[i], pattern, err);
        if (st) return st;
    }
    return NB_OK;
}

nb_status nb_tok_open(nb_tokenizer **out, const void *p, size_t n, uint8_t *owned, const char key[65], nb_error *err)
{
    nb_status st;
    nb_tokenizer *t = calloc(1, sizeof *t);
    *out = NULL;
    nb_uni_init();
    if (!t) {
        free(owned);
        return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    }
    t->image = p, t->image_n = n, t->owned = owned;
    if ((st = check_header(t, key, err)) || (st = check_meta(t, err)) || (st = check_tokens(t, err)) || (st = check_added(t, err)) ||
        (st = check_tries(t, err)) || (st = make_dense(t, err)) || (st = compile_patterns(t, err))) {
        nb_tokenizer_free(t);
        return st;
    }
    find_plain(t);
    *out = t;
    return NB_OK;
}

nb_status nb_tokenizer_open(nb_tokenizer **out, const void *p, size_t n, const char key[65], nb_error *err)
{
    return nb_tok_open(out, p, n, NULL, key, err);
}

nb_status nb_tokenizer_save(const nb_tokenizer *t, nb_buf *out, const char key[65], nb_error *err)
{
    size_t at = out->n;
    nb_buf_add(out, t->image, t->image_n);
    if (out->oom) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory for the prepared form");
    memcpy(out->p + at + offsetof(nb_tok_header, key), key, 64);
    return NB_OK;
}

void nb_tokenizer_free(nb_tokenizer *t)
{
    if (!t) return;
    for (uint32_t i = 0; t->regex && i < t->step_n; i++) nb_tok_regex_free(t->regex[i]);
    free(t->regex);
    free(t->dense);
    free(t->owned);
    free(t);
}

/* ---- look-ups ---- */

const nb_tok_added *nb_tok_added_of(const nb_tokenizer *t, uint32_t id)
{
    uint32_t lo = 0, hi = t->added_n;
    while (lo < hi) { /* the last one with this id: it has the say in the package too */
        uint32_t mid = (lo + hi) / 2;
        if (t->added[t->added_by_id[mid]].id <= id) lo = mid + 1;
        else hi = mid;
    }
    return lo && t->added[t->added_by_id[lo - 1]].id == id ? &t->added[t->added_by_id[lo - 1]] : NULL;
}

uint32_t nb_tokenizer_size(const nb_tokenizer *t) { return t->meta->ids; }
int32_t nb_tokenizer_bos(const nb_tokenizer *t) { return (int32_t)t->meta->bos; }
int32_t nb_tokenizer_eos(const nb_tokenizer *t) { return (int32_t)t->meta->eos; }

static bool has(const nb_tokenizer *t, int32_t id, uint8_t flags)
{
    return id >= 0 && (uint32_t)id < t->meta->ids && (t->tok_flags[id] & flags);
}
bool nb_tokenizer_is_special(const nb_tokenizer *t, int32_t id) { return has(t, id, NB_TF_SPECIAL | NB_TF_CONTROL); }
bool nb_tokenizer_is_added(const nb_tokenizer *t, int32_t id) { return has(t, id, NB_TF_USER) && nb_tok_added_of(t, (uint32_t)id); }

nb_str nb_tokenizer_token(const nb_tokenizer *t, int32_t id)
{
    if (!has(t, id, NB_TF_PRESENT)) return (nb_str){0};
    const nb_tok_added *a = (t->tok_flags[id] & NB_TF_USER) ? nb_tok_added_of(t, (uint32_t)id) : NULL;
    return a ? nb_tok_str(t, a->content) : nb_tok_valid_text(t, (uint32_t)id);
}

static nb_str given(const nb_tokenizer *t, nb_tok_ref r) { return r.n ? nb_tok_str(t, r) : (nb_str){0}; }
nb_str nb_tokenizer_special(const nb_tokenizer *t, int which) { return given(t, t->meta->special[which]); }
nb_str nb_tokenizer_unknown_pre(const nb_tokenizer *t) { return given(t, t->meta->unknown_pre); }

int32_t nb_tokenizer_find(const nb_tokenizer *t, nb_str token)
{
    /* Added tokens first: few look-ups, and the vocabulary has most of them too. */
    uint32_t id = nb_tok_vocab_find(t, token.n ? token.p : "", token.n);
    for (uint32_t i = 0; id == NB_TOK_NONE && i < t->added_n; i++)
        if (nb_str_eq(nb_tok_str(t, t->added[i].content), token)) id = t->added[i].id;
    return (int32_t)id;
}

void nb_ids_free(nb_ids *v)
{
    free(v->id);
    free(v->off);
    *v = (nb_ids){0};
}

bool nb_ids_push(nb_ids *v, int32_t id)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 64;
        int32_t *p = cap > SIZE_MAX / 8 ? NULL : realloc(v->id, cap * sizeof *p);
        if (!p) return false;
        v->id = p;
        if (v->off) {
            uint32_t *q = realloc(v->off, cap * sizeof *q);
            if (!q) return false;
            v->off = q;
        }
        v->cap = cap;
    }
    if (v->off) v->off[v->n] = 0;
    v->id[v->n++] = id;
    return true;
}

/* ---- the byte-level alphabet: 188 bytes are printable characters themselves, the others follow from U+0100 ---- */

static bool printable(uint32_t b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

uint32_t nb_tok_byte_char(uint8_t byte)
{
    if (printable(byte)) return byte;
    if (byte <= 0x20) return 0x100u + byte;
    if (byte <= 0xA0) return 0x121u + (byte - 0x7Fu);
    return 0x143u;
}

int nb_tok_char_byte(uint32_t cp)
{
    if (cp < 0x100) return printable(cp) ? (int)cp : -1;
    if (cp <= 0x120) return (int)(cp - 0x100);
    if (cp <= 0x142) return (int)(cp - 0x121 + 0x7F);
    return cp == 0x143 ? 0xAD : -1;
}
