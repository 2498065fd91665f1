/* text/tok_build: collects what a loader finds and lays it out as an image. */
#include "text/tok_image.h"

#include "text/tok_run.h"
#include "text/tok_trie.h"

#include <stdlib.h>

bool nb_tok_vec_push(nb_tok_vec *v, const void *item, size_t size)
{
    if (v->n == v->cap) {
        size_t cap = v->cap ? v->cap * 2 : 16;
        void *p = cap > SIZE_MAX / size ? NULL : realloc(v->p, cap * size);
        if (!p) return false;
        v->p = p;
        v->cap = cap;
    }
    memcpy((char *)v->p + v->n++ * size, item, size);
    return true;
}

nb_status nb_tok_build_init(nb_tok_build *b, nb_error *err)
{
    *b = (nb_tok_build){0};
    nb_uni_init();
    b->arena = nb_arena_new(0);
    if (!b->arena) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    b->meta.unk = b->meta.bos = b->meta.eos = NB_TOK_NONE;
    for (int i = 0; i < 256; i++) b->meta.byte_id[i] = b->meta.symbol_id[i] = NB_TOK_NONE;
    return NB_OK;
}

void nb_tok_build_free(nb_tok_build *b)
{
    free(b->norm.p), free(b->pre.p), free(b->dec.p), free(b->single.p), free(b->pair.p), free(b->added.p);
    nb_buf_free(&b->strings);
    nb_map_free(&b->added_index);
    nb_arena_free(b->arena);
    *b = (nb_tok_build){0};
}

/* The arrays grow by doubling, since added tokens come one by one behind the vocabulary. */
bool nb_tok_build_tokens(nb_tok_build *b, uint32_t n, bool scores)
{
    if (n <= b->tokens) return true;
    uint32_t cap = b->tokens ? b->tokens + b->tokens / 2 : 0;
    if (cap < n) cap = n;
    nb_str *token = NB_NEW_N(b->arena, nb_str, cap);
    uint8_t *flags = NB_NEW_N(b->arena, uint8_t, cap);
    double *score = scores || b->score ? NB_NEW_N(b->arena, double, cap) : NULL;
    if (!token || !flags || ((scores || b->score) && !score)) {
        b->oom = true;
        return false;
    }
    if (b->tokens) {
        memcpy(token, b->token, b->tokens * sizeof *token);
        memcpy(flags, b->flags, b->tokens);
        if (b->score) memcpy(score, b->score, b->tokens * sizeof *score);
    }
    b->token = token, b->flags = flags, b->score = score;
    b->tokens = cap;
    return true;
}

nb_tok_ref nb_tok_build_str(nb_tok_build *b, nb_str s)
{
    nb_tok_ref r = {(uint32_t)b->strings.n, (uint32_t)s.n};
    if (s.n > (1u << 28) || b->strings.n > (1u << 28)) b->oom = true;
    else nb_buf_add_str(&b->strings, s);
    return r;
}

void nb_tok_build_step(nb_tok_build *b, nb_tok_vec *v, const nb_tok_step *s)
{
    if (!nb_tok_vec_push(v, s, sizeof *s)) b->oom = true;
}

void nb_tok_build_item(nb_tok_build *b, nb_tok_vec *v, int32_t id, uint32_t type)
{
    nb_tok_item it = {id, type};
    if (!nb_tok_vec_push(v, &it, sizeof it)) b->oom = true;
}

/* ---- the vocabulary table, used while building and copied into the image ---- */

nb_status nb_tok_build_vocab(nb_tok_build *b, nb_error *err)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < b->tokens; i++) count += (b->flags[i] & NB_TF_PRESENT) && !(b->flags[i] & NB_TF_ADDED);
    uint32_t slots = count * 2 + 8;
    b->vocab = NB_NEW_N(b->arena, uint64_t, slots);
    if (!b->vocab) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    b->meta.vocab_slots = slots;
    for (uint32_t id = 0; id < b->tokens; id++) {
        if (!(b->flags[id] & NB_TF_PRESENT) || (b->flags[id] & NB_TF_ADDED)) continue;
        uint64_t h = nb_tok_hash(b->token[id].p, b->token[id].n);
        uint32_t i = nb_tok_scale(h, slots);
        while (b->vocab[i]) {
            uint32_t other = (uint32_t)b->vocab[i] - 1;
            if ((uint32_t)(b->vocab[i] >> 32) == (uint32_t)h && nb_str_eq(b->token[other], b->token[id])) break;
            i = i + 1 == slots ? 0 : i + 1;
        }
        /* Of two ids with one text the later wins, as in the package. */
        b->vocab[i] = h << 32 | (id + 1);
    }
    b->vocab_count = count;
    return NB_OK;
}

uint32_t nb_tok_build_find(const nb_tok_build *b, nb_str s) { return nb_tok_build_find_hashed(b, s, nb_tok_hash(s.p, s.n)); }

uint32_t nb_tok_build_find_hashed(const nb_tok_build *b, nb_str s, uint64_t h)
{
    uint32_t slots = b->meta.vocab_slots;
    if (!slots) return NB_TOK_NONE;
    for (uint32_t i = nb_tok_scale(h, slots); b->vocab[i]; i = i + 1 == slots ? 0 : i + 1) {
        if ((uint32_t)(b->vocab[i] >> 32) != (uint32_t)h) continue;
        uint32_t id = (uint32_t)b->vocab[i] - 1;
        if (nb_str_eq(b->token[id], s)) return id;
    }
    return NB_TOK_NONE;
}

nb_status nb_tok_build_add(nb_tok_build *b, nb_str content, uint32_t flags, nb_error *err)
{
    if (!content.n) return NB_OK;
    if (content.n >= NB_TOK_MAX_TOKEN) return nb_fail(err, NB_E_INVALID, "added token of %zu bytes is too long", content.n);
    nb_tok_added *a = b->added.p;
    uint32_t old = NB_TOK_NONE;
    if (!b->added_index.slot && !nb_map_init(&b->added_index, 64)) b->oom = true;
    if (b->oom) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    if (nb_map_get(&b->added_index, content, &old)) {
        /* Said twice: the later flags count, but once special is special. */
        a[old].flags = flags | (a[old].flags & NB_AF_SPECIAL);
        if (flags & NB_AF_SPECIAL) b->flags[a[old].id] |= NB_TF_SPECIAL;
        return NB_OK;
    }
    uint32_t id = nb_tok_build_find(b, content);
    if (id == NB_TOK_NONE) {
        /* New ones follow the number of entries, even where the vocabulary has holes. */
        id = b->vocab_count + b->added_new++;
        if (id >= NB_TOK_MAX_IDS) return nb_fail(err, NB_E_INVALID, "added token id %u is out of range", id);
        if (!nb_tok_build_tokens(b, id + 1, false)) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
        if (!(b->flags[id] & NB_TF_PRESENT)) {
            b->token[id] = nb_arena_str(b->arena, content);
            b->flags[id] = NB_TF_PRESENT | NB_TF_ADDED;
        }
    }
    return nb_tok_build_add_id(b, content, id, flags, err);
}

nb_status nb_tok_build_add_id(nb_tok_build *b, nb_str content, uint32_t id, uint32_t flags, nb_error *err)
{
    nb_tok_added item = {.content = nb_tok_build_str(b, content), .id = id, .flags = flags};
    item.normal = item.content;
    nb_str key = nb_arena_str(b->arena, content);
    if (!b->added_index.slot && !nb_map_init(&b->added_index, 64)) b->oom = true;
    if (b->oom || !key.p || !nb_map_put(&b->added_index, key, (uint32_t)b->added.n, NULL, NULL) || !nb_tok_vec_push(&b->added, &item, sizeof item))
        return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    b->flags[id] |= NB_TF_USER | ((flags & NB_AF_SPECIAL) ? NB_TF_SPECIAL : 0);
    return NB_OK;
}

/* ---- layout ---- */

typedef struct layout {
    nb_tok_header head;
    const void *from[NB_TS_COUNT];
    uint64_t at;
} layout;

static void place(layout *l, int section, const void *p, uint64_t n)
{
    l->from[section] = p;
    l->head.section[section].off = l->at;
    l->head.section[section].size = n;
    l->at = NB_ALIGN_UP(l->at + n, 64);
}

/* Offsets and bytes of the tokens, end to end. */
static nb_status lay_tokens(nb_tok_build *b, layout *l, nb_error *err)
{
    uint32_t n = b->meta.ids;
    uint32_t *off = NB_NEW_N(b->arena, uint32_t, (size_t)n + 1);
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) total += b->token[i].p ? b->token[i].n : 0;
    char *bytes = total < UINT32_MAX ? nb_arena_alloc_aligned(b->arena, (size_t)total, 1) : NULL;
    if (!off || !bytes) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    uint32_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        off[i] = at;
        if (!b->token[i].p) continue;
        memcpy(bytes + at, b->token[i].p, b->token[i].n);
        at += (uint32_t)b->token[i].n;
    }
    off[n] = at;
    place(l, NB_TS_TOK_OFF, off, ((uint64_t)n + 1) * 4);
    place(l, NB_TS_TOK_BYTES, bytes, at);
    place(l, NB_TS_TOK_FLAGS, b->flags, n);
    if (b->score) place(l, NB_TS_SCORES, b->score, (uint64_t)n * 8);
    place(l, NB_TS_VOCAB, b->vocab, (uint64_t)b->meta.vocab_slots * 8);
    return NB_OK;
}

/* Does every pair have a higher rank than all merges that make one of its parts? Ranks ascend. */
static bool merges_rise(const nb_tok_build *b)
{
    uint32_t *made = NB_NEW_N(b->arena, uint32_t, b->meta.ids); /* by id: highest rank of the merges that make it, + 1 */
    bool rise = made != NULL;
    for (uint32_t i = 0; i < b->merge_n && made; i++) made[b->merge[i].id] = b->merge[i].rank + 1;
    for (uint32_t i = 0; i < b->merge_n && made; i++)
        rise &= b->merge[i].rank >= made[b->merge[i].left] && b->merge[i].rank >= made[b->merge[i].right];
    return rise;
}

/* Where a pair stands twice the later rank counts, as in the package. */
static nb_status lay_merges(nb_tok_build *b, layout *l, nb_error *err)
{
    if (!b->merge_n) return NB_OK;
    uint32_t slots = b->merge_n + b->merge_n / 2 + 8;
    nb_tok_merge *m = NB_NEW_N(b->arena, nb_tok_merge, slots);
    if (!m) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    memset(m, 0xFF, slots * sizeof *m);
    enum { AHEAD = 12 };
    for (uint32_t k = 0; k < b->merge_n; k++) {
        if (k + AHEAD < b->merge_n)
            __builtin_prefetch(&m[nb_tok_scale(nb_tok_pair_hash(b->merge[k + AHEAD].left, b->merge[k + AHEAD].right), slots)], 1);
        const nb_tok_merge *x = &b->merge[k];
        uint32_t i = nb_tok_scale(nb_tok_pair_hash(x->left, x->right), slots);
        while (m[i].left != NB_TOK_NONE && !(m[i].left == x->left && m[i].right == x->right)) i = i + 1 == slots ? 0 : i + 1;
        m[i] = *x;
    }
    b->meta.merge_slots = slots;
    b->meta.ranks = b->merge[b->merge_n - 1].rank + 1; /* they ascend, and may leave some out */
    b->meta.merges_rise = merges_rise(b);
    place(l, NB_TS_MERGES, m, (uint64_t)slots * sizeof *m);
    return NB_OK;
}

/* The pair filter: a bit for each two characters that stand next to each other in what some merge makes. Where the bit
 * of two neighbours is clear no merge ever joins them, and a piece may be cut there. */
static void add_pairs(uint64_t *set, uint32_t bits, nb_str s)
{
    uint32_t before = 0;
    for (size_t at = 0, len; at < s.n; at += len) {
        uint32_t cp = nb_uni_next(s.p + at, &len);
        if (at) {
            uint64_t bit = nb_tok_pair_hash(before, cp) >> (64 - bits);
            set[bit >> 6] |= 1ull << (bit & 63);
        }
        before = cp;
    }
}

/* The same for bytes, exact. */
static void add_byte_pairs(uint64_t *set, nb_str s)
{
    int before = -1;
    for (size_t at = 0, len; at < s.n; at += len) {
        int byte = nb_tok_char_byte(nb_uni_next(s.p + at, &len));
        if (before >= 0 && byte >= 0) set[before << 2 | byte >> 6] |= 1ull << (byte & 63);
        before = byte;
    }
}

static nb_status lay_pairs(nb_tok_build *b, layout *l, nb_error *err)
{
    bool sp = b->meta.model == NB_TM_SP_BPE;
    uint32_t most = sp ? b->meta.ids : b->merge_n, bits = 16;
    if (!sp && (b->meta.model != NB_TM_BPE || !b->merge_n || b->meta.prefix.n || b->meta.suffix.n)) return NB_OK;
    for (uint32_t id = 0; sp && id < b->meta.ids; id++)
        if (b->flags[id] & NB_TF_UNUSED) b->meta.sp_unused = 1;
    while (bits < 22 && (1u << bits) < most * 8u && !b->meta.byte_level_last) bits++;
    uint64_t *set = NB_NEW_N(b->arena, uint64_t, (size_t)1 << (bits - 6));
    uint8_t *seen = NB_NEW_N(b->arena, uint8_t, (size_t)b->meta.ids / 8 + 1);
    if (!set || !seen) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    for (uint32_t id = 0; sp && id < b->meta.ids; id++)
        if ((b->flags[id] & NB_TF_PRESENT) && !(b->flags[id] & (NB_TF_CONTROL | NB_TF_UNKNOWN | NB_TF_BYTE))) add_pairs(set, bits, b->token[id]);
    for (uint32_t k = 0; !sp && k < b->merge_n; k++) {
        uint32_t id = b->merge[k].id;
        if (seen[id / 8] >> (id % 8) & 1) continue;
        seen[id / 8] |= (uint8_t)(1u << (id % 8));
        if (b->meta.byte_level_last) add_byte_pairs(set, b->token[id]);
        else add_pairs(set, bits, b->token[id]);
    }
    b->meta.pair_bits = bits;
    place(l, NB_TS_PAIRS, set, (uint64_t)1 << (bits - 3));
    return NB_OK;
}

static nb_status lay_trie(nb_tok_build *b, layout *l, int which, nb_tok_key *keys, size_t n, nb_error *err)
{
    if (!n) return NB_OK;
    nb_tok_trie_data d;
    if (!nb_tok_trie_make(&d, b->arena, keys, n)) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    int s = NB_TS_TRIES + 3 * which;
    place(l, s, d.first, ((uint64_t)d.nodes + 1) * 4);
    place(l, s + 1, d.value, (uint64_t)d.nodes * 4);
    place(l, s + 2, d.label, d.nodes);
    return NB_OK;
}

/* Tries over the added tokens: those looked for in the raw text and those in the normalised one. */
static nb_status lay_added(nb_tok_build *b, layout *l, nb_error *err)
{
    const nb_tok_added *a = b->added.p;
    nb_tok_key *keys = NB_NEW_N(b->arena, nb_tok_key, b->added.n);
    if (!keys) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    for (int pass = 0; pass < 2; pass++) {
        size_t n = 0;
        for (uint32_t i = 0; i < b->added.n; i++) {
            if (((a[i].flags & NB_AF_NORMALIZED) != 0) != pass || !a[i].normal.n) continue;
            keys[n++] = (nb_tok_key){b->strings.p + a[i].normal.off, a[i].normal.n, i};
        }
        nb_status st = lay_trie(b, l, pass ? NB_TRIE_NORMAL : NB_TRIE_RAW, keys, n, err);
        if (st) return st;
    }
    return NB_OK;
}

/* Tries over the vocabulary: what the Viterbi and longest-match models walk, and user-defined pieces. */
static nb_status lay_model_tries(nb_tok_build *b, layout *l, nb_error *err)
{
    uint32_t model = b->meta.model;
    bool sp = model == NB_TM_SP_BPE || model == NB_TM_SP_UNIGRAM;
    if (model != NB_TM_UNIGRAM && model != NB_TM_WORDPIECE && !sp) return NB_OK;
    nb_tok_key *keys = NB_NEW_N(b->arena, nb_tok_key, b->meta.ids);
    if (!keys) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    size_t n = 0;
    for (uint32_t i = 0; i < b->meta.ids && model != NB_TM_SP_BPE; i++) {
        uint8_t f = b->flags[i];
        if (!(f & NB_TF_PRESENT) || (f & NB_TF_ADDED) || !b->token[i].n) continue;
        if (sp && (f & (NB_TF_CONTROL | NB_TF_UNKNOWN | NB_TF_BYTE | NB_TF_UNUSED))) continue;
        if (nb_tok_build_find(b, b->token[i]) != i) continue; /* a later id has the same text */
        keys[n++] = (nb_tok_key){b->token[i].p, (uint32_t)b->token[i].n, i};
    }
    nb_status st = lay_trie(b, l, NB_TRIE_MODEL, keys, n, err);
    if (st || !sp || b->meta.sp_raw_user) return st;
    n = 0;
    for (uint32_t i = 0; i < b->meta.ids; i++)
        if ((b->flags[i] & NB_TF_USER) && !(b->flags[i] & (NB_TF_CONTROL | NB_TF_ADDED)) && b->token[i].n)
            keys[n++] = (nb_tok_key){b->token[i].p, (uint32_t)b->token[i].n, i};
    return lay_trie(b, l, NB_TRIE_USER, keys, n, err);
}

static int by_id(const void *x, const void *y, void *user)
{
    const nb_tok_added *a = user;
    uint32_t i = *(const uint32_t *)x, j = *(const uint32_t *)y;
    if (a[i].id != a[j].id) return a[i].id < a[j].id ? -1 : 1;
    return i < j ? -1 : i > j;
}

static nb_status lay_steps(nb_tok_build *b, layout *l, nb_error *err)
{
    size_t steps = b->norm.n + b->pre.n + b->dec.n, items = b->single.n + b->pair.n;
    nb_tok_step *s = NB_NEW_N(b->arena, nb_tok_step, steps);
    nb_tok_item *it = NB_NEW_N(b->arena, nb_tok_item, items);
    uint32_t *order = NB_NEW_N(b->arena, uint32_t, b->added.n);
    if (!s || !it || !order) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    nb_tok_meta *m = &b->meta;
    const nb_tok_vec *v[3] = {&b->norm, &b->pre, &b->dec};
    uint32_t *at[3] = {&m->norm_at, &m->pre_at, &m->dec_at}, *count[3] = {&m->norm_n, &m->pre_n, &m->dec_n}, k = 0;
    for (int i = 0; i < 3; i++) {
        *at[i] = k, *count[i] = (uint32_t)v[i]->n;
        if (v[i]->n) memcpy(s + k, v[i]->p, v[i]->n * sizeof *s);
        k += (uint32_t)v[i]->n;
    }
    m->single_at = 0, m->single_n = m->pair_at = (uint32_t)b->single.n, m->pair_n = (uint32_t)b->pair.n;
    if (b->single.n) memcpy(it, b->single.p, b->single.n * sizeof *it);
    if (b->pair.n) memcpy(it + b->single.n, b->pair.p, b->pair.n * sizeof *it);
    for (uint32_t i = 0; i < b->added.n; i++) order[i] = i;
    if (b->added.n) qsort_r(order, b->added.n, sizeof *order, by_id, b->added.p);
    place(l, NB_TS_STEPS, s, steps * sizeof *s);
    place(l, NB_TS_ITEMS, it, items * sizeof *it);
    place(l, NB_TS_ADDED, b->added.p, b->added.n * sizeof(nb_tok_added));
    place(l, NB_TS_ADDED_BY_ID, order, b->added.n * sizeof *order);
    return NB_OK;
}

/* One-character tokens that BPE begins with, and the tokens of single bytes. */
static void find_symbols(nb_tok_build *b)
{
    for (uint32_t i = 0; i < 256; i++) {
        char name[8], sym[4];
        static const char hex[] = "0123456789ABCDEF";
        memcpy(name, "<0x00>", 6);
        name[3] = hex[i >> 4], name[4] = hex[i & 15];
        b->meta.byte_id[i] = nb_tok_build_find(b, (nb_str){name, 6});
        if (b->meta.byte_level_last) b->meta.symbol_id[i] = nb_tok_build_find(b, (nb_str){sym, nb_utf8_encode(nb_tok_byte_char((uint8_t)i), sym)});
        else if (i < 128) b->meta.symbol_id[i] = nb_tok_build_find(b, (nb_str){(sym[0] = (char)i, sym), 1});
    }
}

static void highest_id(nb_tok_build *b)
{
    uint32_t n = b->tokens;
    while (n && !(b->flags[n - 1] & NB_TF_PRESENT)) n--;
    b->meta.ids = n;
}

static nb_status lay_out(nb_tok_build *b, nb_tokenizer **out, nb_error *err);

/* Added tokens that are looked for in the normalised text are looked for as their own normalised form. A tokenizer of
 * the steps alone does that. */
static nb_status normalize_added(nb_tok_build *b, nb_error *err)
{
    nb_tok_added *a = b->added.p;
    bool any = false;
    for (uint32_t i = 0; i < b->added.n; i++) any |= (a[i].flags & NB_AF_NORMALIZED) != 0;
    if (!any || !b->norm.n) return NB_OK;
    nb_tokenizer *steps = NULL;
    nb_tok_build core = {.arena = b->arena, .meta = b->meta, .strings = b->strings, .norm = b->norm};
    core.meta.unk = core.meta.bos = core.meta.eos = NB_TOK_NONE;
    core.meta.vocab_slots = 0;
    nb_status st = lay_out(&core, &steps, err);
    nb_tok_run r = {.t = steps, .err = err};
    for (uint32_t i = 0; i < b->added.n && !st; i++) {
        if (!(a[i].flags & NB_AF_NORMALIZED)) continue;
        nb_tok_buf_clear(&r.a);
        nb_tok_buf_copy(&r.a, b->strings.p + a[i].content.off, a[i].content.n, NULL, 0);
        st = r.a.oom ? nb_tok_no_memory(err) : nb_tok_normalize(&r, &r.a, &r.b);
        if (!st) a[i].normal = nb_tok_build_str(b, (nb_str){r.a.p ? r.a.p : "", r.a.n});
    }
    nb_tok_buf_free(&r.a), nb_tok_buf_free(&r.b);
    nb_uni_scratch_free(&r.uni);
    nb_tokenizer_free(steps);
    return st;
}

nb_status nb_tok_build_finish(nb_tok_build *b, nb_tokenizer **out, nb_error *err)
{
    if (b->oom || b->strings.oom) return nb_tok_no_memory(err);
    nb_status st = normalize_added(b, err);
    return st ? st : lay_out(b, out, err);
}

static nb_status lay_out(nb_tok_build *b, nb_tokenizer **out, nb_error *err)
{
    layout l = {.at = NB_ALIGN_UP(sizeof(nb_tok_header), 64)};
    nb_status st = NB_OK;
    highest_id(b);
    find_symbols(b);
    place(&l, NB_TS_META, &b->meta, sizeof b->meta);
    if ((st = lay_steps(b, &l, err)) || (st = lay_tokens(b, &l, err)) || (st = lay_merges(b, &l, err)) || (st = lay_pairs(b, &l, err)) ||
        (st = lay_added(b, &l, err)) || (st = lay_model_tries(b, &l, err)))
        return st;
    place(&l, NB_TS_STRINGS, b->strings.p, b->strings.n);
    if (b->oom || b->strings.oom) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    uint8_t *image = aligned_alloc(64, NB_ALIGN_UP(l.at, 64));
    if (!image) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory for %llu bytes", (unsigned long long)l.at);
    memcpy(l.head.magic, "nbtoken", 8);
    memset(l.head.key, '0', 64);
    l.head.version = NB_TOK_IMAGE_VERSION;
    l.head.sections = NB_TS_COUNT;
    l.head.size = l.at;
    memset(image, 0, NB_ALIGN_UP(sizeof l.head, 64));
    memcpy(image, &l.head, sizeof l.head);
    for (int i = 0; i < NB_TS_COUNT; i++) {
        uint64_t n = l.head.section[i].size, end = NB_ALIGN_UP(n, 64);
        if (!n) continue;
        memcpy(image + l.head.section[i].off, l.from[i], n);
        memset(image + l.head.section[i].off + n, 0, end - n);
    }
    return nb_tok_open(out, image, l.at, image, NULL, err);
}
