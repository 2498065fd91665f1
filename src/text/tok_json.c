/* text/tok_json: loads tokenizer.json: the model, the added tokens, and by way of tok_json_steps the pipeline. */
#include "text/tok_json.h"

#include "text/tok_extra.h"
#include "text/unicode.h"

#include <stdio.h>

static nb_str text(const nb_json *v, const char *field)
{
    nb_str s = {0};
    nb_json_str(nb_json_get(v, field), &s);
    return s;
}

static bool flag(const nb_json *v, const char *field)
{
    bool b = false;
    return nb_json_bool(nb_json_get(v, field), &b) && b;
}

static nb_status put_token(nb_tok_build *b, nb_str s, uint32_t id, nb_error *err)
{
    if (s.n >= NB_TOK_MAX_TOKEN) return nb_fail(err, NB_E_INVALID, "model.vocab: an entry of %zu bytes (id %u) is too long", s.n, id);
    if (b->flags[id] & NB_TF_PRESENT) return nb_fail(err, NB_E_UNSUPPORTED, "model.vocab: two entries have the id %u", id);
    b->token[id] = s;
    b->flags[id] = NB_TF_PRESENT;
    return NB_OK;
}

/* {"text": id, ...} */
static nb_status read_vocab(nb_tok_build *b, const nb_json *vocab, nb_error *err)
{
    uint64_t id, most = 0;
    if (!nb_json_is(vocab, NB_JSON_OBJECT)) return nb_fail(err, NB_E_INVALID, "model.vocab must be an object");
    for (uint32_t i = 0; i < vocab->count; i++) {
        if (!nb_json_u64(&vocab->items[i], &id) || id >= NB_TOK_MAX_IDS)
            return nb_fail(err, NB_E_INVALID, "model.vocab: '%.*s' has a bad id", NB_FMT_STR(vocab->keys[i]));
        if (id > most) most = id;
    }
    if (!nb_tok_build_tokens(b, (uint32_t)most + 1, false)) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    nb_status st = NB_OK;
    for (uint32_t i = 0; i < vocab->count && !st; i++) {
        nb_json_u64(&vocab->items[i], &id);
        st = put_token(b, vocab->keys[i], (uint32_t)id, err);
    }
    return st ? st : nb_tok_build_vocab(b, err);
}

/* ---- merges: read without a node for each part, since these are most of the file ---- */

typedef struct pair {
    const char *left, *right; /* in the file or in the document's arena */
    uint32_t left_n, right_n, entry;
} pair;

typedef struct merges {
    nb_arena *arena;
    pair *v;
    size_t n, cap;
    uint32_t entries;
    nb_error err; /* what is wrong with the first bad entry */
} merges;

static void begin_merges(void *user)
{
    merges *m = user;
    m->n = m->entries = 0;
    m->err.status = NB_OK;
}

/* The two halves of a merge: "a b" or ["a", "b"]. */
static nb_status halves(const nb_json *v, uint32_t i, nb_str *a, nb_str *c, nb_error *err)
{
    if (nb_json_is(v, NB_JSON_STRING)) {
        const char *sp = memchr(v->text.p, ' ', v->text.n);
        size_t k = sp ? (size_t)(sp - v->text.p) : 0;
        if (!sp || memchr(sp + 1, ' ', v->text.n - k - 1)) return nb_fail(err, NB_E_INVALID, "model.merges: entry %u is not two parts with a space between", i);
        *a = (nb_str){v->text.p, k}, *c = (nb_str){sp + 1, v->text.n - k - 1};
        return NB_OK;
    }
    if (nb_json_is(v, NB_JSON_ARRAY) && v->count == 2 && nb_json_str(&v->items[0], a) && nb_json_str(&v->items[1], c)) return NB_OK;
    return nb_fail(err, NB_E_INVALID, "model.merges: entry %u must be a string or two strings", i);
}

static void add_merge(void *user, const nb_json *v)
{
    merges *m = user;
    nb_str a, c;
    uint32_t i = m->entries++;
    if (m->err.status || (nb_json_is(v, NB_JSON_STRING) && nb_str_starts(v->text, "#version"))) return;
    if (m->n == NB_TOK_MAX_IDS) nb_fail(&m->err, NB_E_INVALID, "model.merges: more than %u entries", (unsigned)NB_TOK_MAX_IDS);
    else if (halves(v, i, &a, &c, &m->err)) return;
    else if (!nb_arena_grow(m->arena, &m->v, m->n, &m->cap, sizeof *m->v, 1024)) nb_fail(&m->err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    else m->v[m->n++] = (pair){a.p, c.p, (uint32_t)a.n, (uint32_t)c.n, i};
}

/* Look-ups go in batches, so that the cache misses of one batch overlap: hashes and prefetch first. */
enum { BATCH = 16 };
typedef struct batch { nb_str left[BATCH], right[BATCH], whole[BATCH]; char text[BATCH][128]; uint32_t line[BATCH], n; } batch;

static nb_status join(nb_tok_build *b, batch *q, uint32_t k, nb_error *err)
{
    size_t skip = b->meta.prefix.n, n = q->right[k].n >= skip ? q->right[k].n - skip : 0, total = q->left[k].n + n;
    char *p = q->text[k];
    if (total > sizeof q->text[k] && !(p = nb_arena_alloc_aligned(b->arena, total, 1))) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    memcpy(p, q->left[k].p, q->left[k].n);
    memcpy(p + q->left[k].n, q->right[k].p + (q->right[k].n - n), n);
    q->whole[k] = (nb_str){p, total};
    return NB_OK;
}

static nb_status resolve(nb_tok_build *b, batch *q, nb_error *err)
{
    uint32_t slots = b->meta.vocab_slots, first[BATCH * 3];
    uint64_t hash[BATCH * 3];
    const nb_str *s[BATCH * 3];
    for (uint32_t k = 0; k < q->n; k++) {
        nb_status st = join(b, q, k, err);
        if (st) return st;
        s[3 * k] = &q->left[k], s[3 * k + 1] = &q->right[k], s[3 * k + 2] = &q->whole[k];
    }
    /* Table slot, token, text: each a cache miss, each fetched for the whole batch before it is needed. */
    for (uint32_t i = 0; i < 3 * q->n; i++) {
        hash[i] = nb_tok_hash(s[i]->p, s[i]->n);
        first[i] = nb_tok_scale(hash[i], slots);
        __builtin_prefetch(&b->vocab[first[i]]);
    }
    for (uint32_t i = 0; i < 3 * q->n; i++) {
        first[i] = (uint32_t)b->vocab[first[i]];
        if (first[i]) __builtin_prefetch(&b->token[first[i] - 1]);
    }
    for (uint32_t i = 0; i < 3 * q->n; i++)
        if (first[i]) __builtin_prefetch(b->token[first[i] - 1].p);
    for (uint32_t k = 0; k < q->n; k++) {
        uint32_t id[3], j = 0;
        for (; j < 3; j++)
            if ((id[j] = nb_tok_build_find_hashed(b, *s[3 * k + j], hash[3 * k + j])) == NB_TOK_NONE) break;
        if (j < 3) return nb_fail(err, NB_E_INVALID, "model.merges: entry %u needs '%.*s', which is not in the vocabulary", q->line[k], NB_FMT_STR(*s[3 * k + j]));
        b->merge[b->merge_n] = (nb_tok_merge){id[0], id[1], b->merge_n, id[2]};
        b->merge_n++;
    }
    q->n = 0;
    return NB_OK;
}

static nb_status read_merges(nb_tok_build *b, const nb_json *list, const merges *m, nb_error *err)
{
    batch q = {.n = 0};
    nb_status st = NB_OK;
    if (!nb_json_is(list, NB_JSON_ARRAY)) return nb_fail(err, NB_E_INVALID, "model.merges must be a list");
    if (m->err.status) return nb_fail(err, m->err.status, "%s", m->err.text);
    b->merge = NB_NEW_N(b->arena, nb_tok_merge, m->n);
    if (!b->merge) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    for (size_t i = 0; i < m->n && !st; i++) {
        const pair *x = &m->v[i];
        q.left[q.n] = (nb_str){x->left, x->left_n}, q.right[q.n] = (nb_str){x->right, x->right_n};
        q.line[q.n++] = x->entry;
        if (q.n == BATCH) st = resolve(b, &q, err);
    }
    return st ? st : resolve(b, &q, err);
}

static nb_status read_bpe(nb_tok_build *b, const nb_json *m, const merges *list, nb_error *err)
{
    double dropout = 0;
    nb_status st = read_vocab(b, nb_json_get(m, "vocab"), err);
    if (st) return st;
    b->meta.model = NB_TM_BPE;
    b->meta.prefix = nb_tok_build_str(b, text(m, "continuing_subword_prefix"));
    b->meta.suffix = nb_tok_build_str(b, text(m, "end_of_word_suffix"));
    b->meta.fuse_unk = flag(m, "fuse_unk");
    b->meta.byte_fallback = flag(m, "byte_fallback");
    b->meta.ignore_merges = flag(m, "ignore_merges");
    /* A dropout of one means no merges at all, nor a look at whole pieces; between zero and one it is for training and does nothing here. */
    b->meta.no_merges = nb_json_f64(nb_json_get(m, "dropout"), &dropout) && dropout >= 1;
    b->meta.ignore_merges &= !b->meta.no_merges;
    nb_str unk = text(m, "unk_token");
    if (unk.p) b->meta.unk = nb_tok_build_find(b, unk);
    return read_merges(b, nb_json_get(m, "merges"), list, err);
}

/* 10^k, k from 0 to 308, correctly rounded. */
static double power_of_ten(int k)
{
    static const double ten[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    char text[8];
    double r = 0;
    if ((size_t)k < NB_COUNT(ten)) return ten[k];
    snprintf(text, sizeof text, "1e%d", k);
    nb_json v = {.type = NB_JSON_NUMBER, .text = nb_str_of(text)};
    return nb_json_f64(&v, &r) ? r : 0;
}

/* A score as the package reads it: the digits that fit into 64 bits, times or over a power of ten. That rounds twice, so one in eight of 17 digits is the
 * neighbour of the nearest double; which of two ways with equal sums wins (runs of one character) depends on it. */
static bool read_score(const nb_json *v, double *out)
{
    double exact;
    if (!nb_json_f64(v, &exact)) return false;
    uint64_t m = 0;
    int64_t exp = 0, given = 0;
    bool point = false, full = false;
    size_t i = v->text.p[0] == '-';
    for (; i < v->text.n && (v->text.p[i] | 0x20) != 'e'; i++) {
        if (v->text.p[i] == '.') {
            point = true;
            full = false;
            continue;
        }
        uint64_t digit = (uint64_t)(v->text.p[i] - '0');
        full = full || m > UINT64_MAX / 10 || (m == UINT64_MAX / 10 && digit > UINT64_MAX % 10);
        if (!full) m = m * 10 + digit;
        exp += full == !point ? (full ? 1 : -1) : 0;
    }
    if (i < v->text.n) {
        bool minus = v->text.p[++i] == '-';
        for (i += minus || v->text.p[i] == '+'; i < v->text.n; i++) given = given < 100000 ? given * 10 + (v->text.p[i] - '0') : given;
        exp += minus ? -given : given;
    }
    double f = (double)m;
    for (; f != 0 && exp < -308; exp += 308) f /= 1e308;
    if (f != 0 && exp > 308) f = exact < 0 ? -exact : exact; /* the package refuses it */
    else if (f != 0) f = exp < 0 ? f / power_of_ten((int)-exp) : f * power_of_ten((int)exp);
    *out = v->text.p[0] == '-' ? -f : f;
    return true;
}

/* [["piece", score], ...]; the id is the place. */
static nb_status read_unigram(nb_tok_build *b, const nb_json *m, nb_error *err)
{
    const nb_json *vocab = nb_json_get(m, "vocab");
    double lowest = 0;
    uint64_t unk;
    nb_status st = NB_OK;
    if (!nb_json_is(vocab, NB_JSON_ARRAY) || vocab->count > NB_TOK_MAX_IDS) return nb_fail(err, NB_E_INVALID, "model.vocab must be a list of pieces and scores");
    b->meta.model = NB_TM_UNIGRAM;
    if (!nb_tok_build_tokens(b, vocab->count, true)) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    for (uint32_t i = 0; i < vocab->count && !st; i++) {
        nb_str piece;
        if (!nb_json_str(nb_json_at(&vocab->items[i], 0), &piece) || !read_score(nb_json_at(&vocab->items[i], 1), &b->score[i]))
            return nb_fail(err, NB_E_INVALID, "model.vocab: entry %u must be a piece and a score", i);
        if (i == 0 || b->score[i] < lowest) lowest = b->score[i];
        st = put_token(b, piece, i, err);
    }
    b->meta.unk_score = lowest - 10.0;
    b->meta.byte_fallback = flag(m, "byte_fallback");
    if (!st && nb_json_present(nb_json_get(m, "unk_id"))) {
        if (!nb_json_u64(nb_json_get(m, "unk_id"), &unk) || unk >= vocab->count) return nb_fail(err, NB_E_INVALID, "model.unk_id is out of range");
        b->meta.unk = (uint32_t)unk;
    }
    return st ? st : nb_tok_build_vocab(b, err);
}

static nb_status read_words(nb_tok_build *b, const nb_json *m, bool wordpiece, nb_error *err)
{
    uint64_t most = 0;
    nb_str unk = text(m, "unk_token"), prefix = text(m, "continuing_subword_prefix");
    nb_status st = read_vocab(b, nb_json_get(m, "vocab"), err);
    if (st) return st;
    if (!unk.p) return nb_fail(err, NB_E_INVALID, "model: %s needs 'unk_token'", wordpiece ? "WordPiece" : "WordLevel");
    b->meta.model = wordpiece ? NB_TM_WORDPIECE : NB_TM_WORDLEVEL;
    b->meta.unk = nb_tok_build_find(b, unk);
    if (!wordpiece) return NB_OK;
    if (!prefix.p || !nb_json_u64(nb_json_get(m, "max_input_chars_per_word"), &most)) return nb_fail(err, NB_E_INVALID, "model: WordPiece needs its prefix and 'max_input_chars_per_word'");
    b->meta.prefix = nb_tok_build_str(b, prefix);
    b->meta.max_chars = most < INT32_MAX ? (uint32_t)most : INT32_MAX;
    return NB_OK;
}

static nb_status read_model(nb_tok_build *b, const nb_json *m, const merges *list, nb_error *err)
{
    if (!nb_json_is(m, NB_JSON_OBJECT)) return nb_fail(err, NB_E_INVALID, "tokenizer.json: 'model' is missing");
    nb_str type = text(m, "type");
    if (!type.p) {
        if (nb_json_get(m, "merges")) type = NB_LIT("BPE");
        else if (nb_json_is(nb_json_get(m, "vocab"), NB_JSON_ARRAY)) type = NB_LIT("Unigram");
        else type = nb_json_get(m, "continuing_subword_prefix") ? NB_LIT("WordPiece") : NB_LIT("WordLevel");
    }
    if (nb_str_is(type, "BPE")) return read_bpe(b, m, list, err);
    if (nb_str_is(type, "Unigram")) return read_unigram(b, m, err);
    if (nb_str_is(type, "WordPiece") || nb_str_is(type, "WordLevel")) return read_words(b, m, nb_str_is(type, "WordPiece"), err);
    return nb_fail(err, NB_E_UNSUPPORTED, "model: unknown type '%.*s'", NB_FMT_STR(type));
}

/* The ids in the file count for nothing: nb_tok_build_add has the rule. */
static nb_status read_added(nb_tok_build *b, const nb_json *list, nb_error *err)
{
    static const struct { const char *name; uint32_t flag; } fields[] = {
        {"single_word", NB_AF_SINGLE_WORD}, {"lstrip", NB_AF_LSTRIP}, {"rstrip", NB_AF_RSTRIP}, {"normalized", NB_AF_NORMALIZED}, {"special", NB_AF_SPECIAL}};
    nb_status st = NB_OK;
    if (!nb_json_present(list)) return NB_OK;
    if (!nb_json_is(list, NB_JSON_ARRAY)) return nb_fail(err, NB_E_INVALID, "added_tokens must be a list");
    for (uint32_t i = 0; i < list->count && !st; i++) {
        nb_str content;
        uint32_t flags = 0;
        bool on;
        if (!nb_json_str(nb_json_get(&list->items[i], "content"), &content)) return nb_fail(err, NB_E_INVALID, "added_tokens: entry %u has no 'content'", i);
        for (size_t k = 0; k < NB_COUNT(fields); k++) {
            if (!nb_json_bool(nb_json_get(&list->items[i], fields[k].name), &on))
                return nb_fail(err, NB_E_INVALID, "added_tokens: entry %u lacks '%s'", i, fields[k].name);
            if (on) flags |= fields[k].flag;
        }
        st = nb_tok_build_add(b, content, flags, err);
    }
    return st;
}

/* Where byte-level mapping is the last step before BPE, the model reads bytes and the mapping is left out. */
static void choose_byte_level(nb_tok_build *b)
{
    const nb_tok_step *s = b->pre.p;
    b->meta.byte_level_last = b->meta.model == NB_TM_BPE && b->pre.n && s[b->pre.n - 1].kind == NB_TP_BYTELEVEL && !b->meta.prefix.n &&
                              !b->meta.suffix.n && !b->meta.byte_fallback;
}

nb_status nb_tokenizer_from_json(nb_tokenizer **out, const char *p, size_t n, const nb_json *config, nb_error *err)
{
    nb_tok_build b;
    nb_json_doc doc = {0};
    *out = NULL;
    nb_status st = nb_tok_build_init(&b, err);
    if (st) return st;
    merges list = {.arena = b.arena};
    const nb_json_stream stream = {"model.merges", begin_merges, add_merge, &list};
    if ((st = nb_json_parse(&doc, p, n, "tokenizer.json", &(nb_json_limits){.stream = &stream}, err))) goto end;
    if ((st = read_model(&b, nb_json_get(doc.root, "model"), &list, err))) goto end;
    if ((st = read_added(&b, nb_json_get(doc.root, "added_tokens"), err))) goto end;
    if ((st = nb_tok_extras_add(&b, config, err))) goto end;
    if ((st = nb_tok_json_normalizer(&b, nb_json_get(doc.root, "normalizer"), 0, err))) goto end;
    if ((st = nb_tok_json_pre(&b, nb_json_get(doc.root, "pre_tokenizer"), 0, err))) goto end;
    if ((st = nb_tok_json_post(&b, nb_json_get(doc.root, "post_processor"), 0, err))) goto end;
    if ((st = nb_tok_json_decoder(&b, nb_json_get(doc.root, "decoder"), 0, err))) goto end;
    b.meta.special[NB_SPECIAL_PAD] = nb_tok_build_str(&b, text(nb_json_get(doc.root, "padding"), "pad_token"));
    nb_tok_json_config(&b, config);
    choose_byte_level(&b);
    st = nb_tok_build_finish(&b, out, err);
end:
    nb_json_free(&doc);
    nb_tok_build_free(&b);
    return st;
}
