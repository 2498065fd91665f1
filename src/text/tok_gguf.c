/* text/tok_gguf: tokenizers from GGUF metadata, written as one JSON object by create. */
#include "text/tok_gguf.h"

#include "text/tok_json.h"
#include "text/tok_run.h"
#include "text/unicode.h"

enum { T_NORMAL = 1, T_UNKNOWN, T_CONTROL, T_USER, T_UNUSED, T_BYTE };
static const char sign[] = "\xE2\x96\x81";

typedef struct source {
    const nb_json *root, *tokens, *types, *scores;
    nb_error *err;
} source;

static bool flag(const source *s, const char *key, bool otherwise)
{
    bool b;
    return nb_json_bool(nb_json_get(s->root, key), &b) ? b : otherwise;
}

static uint32_t token_id(const source *s, const char *key)
{
    uint64_t id;
    return nb_json_u64(nb_json_get(s->root, key), &id) && id < s->tokens->count ? (uint32_t)id : NB_TOK_NONE;
}

static int type_of(const source *s, uint32_t i)
{
    int64_t t;
    return nb_json_i64(nb_json_at(s->types, i), &t) && t >= T_NORMAL && t <= T_BYTE ? (int)t : T_NORMAL;
}

static nb_status read_tokens(nb_tok_build *b, const source *s, bool scores)
{
    static const uint8_t flags[] = {0, 0, NB_TF_UNKNOWN | NB_TF_SPECIAL, NB_TF_CONTROL | NB_TF_SPECIAL, 0, NB_TF_UNUSED, NB_TF_BYTE};
    if (!nb_json_is(s->tokens, NB_JSON_ARRAY) || !s->tokens->count || s->tokens->count > NB_TOK_MAX_IDS)
        return nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: 'tokens' must be a list of strings");
    if (s->types && s->types->count != s->tokens->count) return nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: 'token_type' has %u entries, 'tokens' %u", s->types->count, s->tokens->count);
    if (scores && (!nb_json_is(s->scores, NB_JSON_ARRAY) || s->scores->count != s->tokens->count))
        return nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: 'scores' must have an entry for each of the %u tokens", s->tokens->count);
    if (!nb_tok_build_tokens(b, s->tokens->count, scores)) return nb_tok_no_memory(s->err);
    for (uint32_t i = 0; i < s->tokens->count; i++) {
        nb_str text;
        if (!nb_json_str(&s->tokens->items[i], &text) || text.n >= NB_TOK_MAX_TOKEN) return nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: token %u is not a string or too long", i);
        int type = type_of(s, i);
        b->token[i] = text;
        b->flags[i] = NB_TF_PRESENT | flags[type];
        if (type == T_UNKNOWN && b->meta.unk == NB_TOK_NONE) b->meta.unk = i;
        if (scores && (!nb_json_f64(&s->scores->items[i], &b->score[i]) || b->score[i] != b->score[i]))
            return nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: score of token %u", i);
    }
    if (token_id(s, "unknown_token_id") != NB_TOK_NONE) b->meta.unk = token_id(s, "unknown_token_id");
    return nb_tok_build_vocab(b, s->err);
}

/* Control and user-defined tokens are found in the raw text. */
static nb_status add_tokens(nb_tok_build *b, const source *s, bool control)
{
    nb_status st = NB_OK;
    for (uint32_t i = 0; i < s->tokens->count && !st; i++) {
        int type = type_of(s, i);
        if (!b->token[i].n || !(type == T_USER || (control && type == T_CONTROL))) continue;
        st = nb_tok_build_add_id(b, b->token[i], i, type == T_CONTROL ? NB_AF_SPECIAL : 0, s->err);
    }
    return st;
}

/* "left right"; entries whose parts the vocabulary lacks do nothing. */
static nb_status read_merges(nb_tok_build *b, const source *s)
{
    const nb_json *m = nb_json_get(s->root, "merges");
    if (!nb_json_is(m, NB_JSON_ARRAY) || m->count > NB_TOK_MAX_IDS) return nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: 'merges' must be a list of strings");
    b->merge = NB_NEW_N(b->arena, nb_tok_merge, m->count);
    nb_buf whole = {0};
    nb_status st = NB_OK;
    if (!b->merge) return nb_tok_no_memory(s->err);
    for (uint32_t i = 0; i < m->count && !st; i++) {
        nb_str text;
        if (!nb_json_str(&m->items[i], &text)) {
            st = nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: merge %u is not a string", i);
            break;
        }
        const char *sp = text.n > 1 ? memchr(text.p + 1, ' ', text.n - 1) : NULL; /* a part may begin with a space, but is not empty */
        if (!sp) continue;
        nb_str left = {text.p, (size_t)(sp - text.p)}, right = {sp + 1, text.n - (size_t)(sp - text.p) - 1};
        whole.n = 0;
        nb_buf_add_str(&whole, left);
        nb_buf_add_str(&whole, right);
        if (whole.oom) st = nb_tok_no_memory(s->err);
        nb_tok_merge x = {nb_tok_build_find(b, left), nb_tok_build_find(b, right), i, nb_tok_build_find(b, nb_buf_str(&whole))};
        if (x.left != NB_TOK_NONE && x.right != NB_TOK_NONE && x.id != NB_TOK_NONE) b->merge[b->merge_n++] = x;
    }
    nb_buf_free(&whole);
    return st;
}

static void specials(nb_tok_build *b, const source *s, bool bos, bool eos)
{
    static const char *const keys[NB_SPECIAL_COUNT] = {"bos_token_id", "eos_token_id", "unknown_token_id", "seperator_token_id",
                                                       "padding_token_id", "cls_token_id", "mask_token_id"};
    for (int i = 0; i < NB_SPECIAL_COUNT; i++) {
        uint32_t id = token_id(s, keys[i]);
        if (id != NB_TOK_NONE) b->meta.special[i] = nb_tok_build_str(b, b->token[id]);
    }
    uint32_t sep = token_id(s, "seperator_token_id"); /* spelt so in the files */
    b->meta.bos = token_id(s, "bos_token_id"), b->meta.eos = token_id(s, "eos_token_id");
    uint32_t first = b->meta.bos, last = b->meta.eos;
    if (b->meta.model == NB_TM_WORDPIECE) {
        if (first == NB_TOK_NONE) first = token_id(s, "cls_token_id");
        if (sep != NB_TOK_NONE) last = sep;
    }
    bos = flag(s, "add_bos_token", bos), eos = flag(s, "add_eos_token", eos);
    if (!bos && !eos) return;
    for (int part = 0; part < 2; part++) {
        for (int k = part; k < 2; k++) {
            nb_tok_vec *out = k ? &b->pair : &b->single;
            if (bos && part == 0 && first != NB_TOK_NONE) nb_tok_build_item(b, out, (int32_t)first, 0);
            nb_tok_build_item(b, out, -1 - part, (uint32_t)part);
            if (eos && last != NB_TOK_NONE) nb_tok_build_item(b, out, (int32_t)last, (uint32_t)part);
        }
    }
}

static void decoder(nb_tok_build *b, uint8_t kind, const char *text, const char *text2)
{
    nb_tok_step s = {.kind = kind, .f = {kind == NB_TD_WORDPIECE}};
    if (text) s.s = nb_tok_build_str(b, nb_str_of(text));
    if (text2) s.s2 = nb_tok_build_str(b, nb_str_of(text2));
    nb_tok_build_step(b, &b->dec, &s);
}

/* "gpt2": BPE with merges; the cutting of the text is only a name, which "gemma4" has whatever the file says. */
static nb_status load_bpe(nb_tok_build *b, const source *s, nb_str pre, nb_tokenizer **out)
{
    uint32_t flags;
    nb_status st;
    if ((st = read_tokens(b, s, false)) || (st = read_merges(b, s)) || (st = add_tokens(b, s, true))) return st;
    if (!pre.p) nb_json_str(nb_json_get(s->root, "pre"), &pre);
    if (!nb_tok_gguf_pre(b, pre, &flags)) b->meta.unknown_pre = nb_tok_build_str(b, pre.n ? pre : NB_LIT("(none)"));
    b->meta.model = NB_TM_BPE;
    b->meta.ignore_merges = (flags & NB_PRE_WHOLE) != 0;
    if (flags & NB_PRE_NFC) nb_tok_build_step(b, &b->norm, &(nb_tok_step){.kind = NB_TN_FORM, .a = {NB_NFC}});
    if (flags & NB_PRE_RAW) {
        nb_tok_step space = {.kind = NB_TN_REPLACE, .s = nb_tok_build_str(b, NB_LIT(" ")), .s2 = nb_tok_build_str(b, NB_LIT("\xE2\x96\x81"))};
        nb_tok_build_step(b, &b->norm, &space);
        b->meta.byte_fallback = b->meta.whole_newlines = 1;
        b->meta.fuse_unk = 1;
        decoder(b, NB_TD_REPLACE, sign, " ");
        decoder(b, NB_TD_BYTE_FALLBACK, NULL, NULL);
        decoder(b, NB_TD_FUSE, NULL, NULL);
    } else {
        b->meta.unk = NB_TOK_NONE; /* every byte has a token */
        b->meta.byte_level_last = 1;
        nb_tok_build_step(b, &b->pre, &(nb_tok_step){.kind = NB_TP_BYTELEVEL, .f = {flag(s, "add_space_prefix", false)}});
        decoder(b, NB_TD_BYTELEVEL, NULL, NULL);
    }
    specials(b, s, (flags & NB_PRE_BOS) != 0, (flags & NB_PRE_SEP) != 0);
    return nb_tok_build_finish(b, out, s->err);
}

static nb_status read_charsmap(nb_tok_build *b, const source *s)
{
    const nb_json *v = nb_json_get(s->root, "precompiled_charsmap");
    if (!nb_json_is(v, NB_JSON_ARRAY) || !v->count) return NB_OK;
    char *p = nb_arena_alloc_aligned(b->arena, v->count, 4);
    if (!p) return nb_tok_no_memory(s->err);
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t x;
        if (!nb_json_i64(&v->items[i], &x) || x < -128 || x > 255) return nb_fail(s->err, NB_E_INVALID, "gguf tokenizer: 'precompiled_charsmap' entry %u is no byte", i);
        p[i] = (char)x;
    }
    b->meta.sp_charsmap = nb_tok_build_str(b, (nb_str){p, v->count});
    return nb_tok_charsmap_check((nb_str){p, v->count}, s->err);
}

/* "llama" and "t5": SentencePiece models. */
static nb_status load_sp(nb_tok_build *b, const source *s, bool unigram, nb_tokenizer **out)
{
    nb_status st;
    if ((st = read_tokens(b, s, true)) || (st = read_charsmap(b, s)) || (st = add_tokens(b, s, false))) return st;
    b->meta.model = unigram ? NB_TM_SP_UNIGRAM : NB_TM_SP_BPE;
    b->meta.sp_dummy_prefix = flag(s, "add_space_prefix", true);
    b->meta.sp_remove_extra = flag(s, "remove_extra_whitespaces", unigram);
    b->meta.sp_escape = b->meta.sp_prefix_every = b->meta.sp_raw_user = 1;
    b->meta.unk_surface = nb_tok_build_str(b, NB_LIT(" \xE2\x81\x87 "));
    for (uint32_t i = 0; i < b->tokens; i++) b->meta.byte_fallback |= (b->flags[i] & NB_TF_BYTE) != 0;
    specials(b, s, !unigram, unigram);
    return nb_tok_sp_finish(b, NULL, out, s->err);
}

/* "bert": words carry U+2581 in front, continuing parts nothing; turned back into the publisher's ## form. */
static nb_status load_bert(nb_tok_build *b, const source *s, nb_tokenizer **out)
{
    bool lower = true;
    nb_status st = read_tokens(b, s, false);
    if (st) return st;
    for (uint32_t i = 0; i < b->tokens; i++) {
        nb_str *t = &b->token[i];
        if (type_of(s, i) != T_NORMAL) continue;
        if (t->n > 3 && !memcmp(t->p, sign, 3)) {
            t->p += 3, t->n -= 3;
            /* The file does not say whether the model is cased; a vocabulary with capitals is. */
            for (size_t k = 0; k < t->n; k++) lower &= !(t->p[k] >= 'A' && t->p[k] <= 'Z');
        } else {
            char *p = nb_arena_alloc_aligned(b->arena, t->n + 2, 1);
            if (!p) return nb_tok_no_memory(s->err);
            memcpy(p, "##", 2);
            memcpy(p + 2, t->p, t->n);
            *t = (nb_str){p, t->n + 2};
        }
    }
    if ((st = nb_tok_build_vocab(b, s->err)) || (st = add_tokens(b, s, true))) return st;
    b->meta.model = NB_TM_WORDPIECE;
    b->meta.max_chars = 100;
    b->meta.prefix = nb_tok_build_str(b, NB_LIT("##"));
    nb_tok_build_step(b, &b->norm, &(nb_tok_step){.kind = NB_TN_BERT, .f = {1, 1, lower, lower}});
    nb_tok_build_step(b, &b->pre, &(nb_tok_step){.kind = NB_TP_BERT});
    decoder(b, NB_TD_WORDPIECE, "##", NULL);
    specials(b, s, true, true);
    return nb_tok_build_finish(b, out, s->err);
}

nb_status nb_tokenizer_from_gguf(nb_tokenizer **out, const char *json, size_t n, nb_error *err)
{
    nb_tok_build b;
    nb_json_doc doc = {0};
    nb_str model;
    *out = NULL;
    nb_status st = nb_tok_build_init(&b, err);
    if (st) return st;
    if ((st = nb_json_parse(&doc, json, n, "gguf_tokenizer.json", NULL, err))) goto end;
    source s = {doc.root, nb_json_get(doc.root, "tokens"), nb_json_get(doc.root, "token_type"), nb_json_get(doc.root, "scores"), err};
    if (!nb_json_str(nb_json_get(doc.root, "model"), &model)) st = nb_fail(err, NB_E_INVALID, "gguf tokenizer: 'model' is missing");
    else if (nb_str_is(model, "gpt2")) st = load_bpe(&b, &s, (nb_str){0}, out);
    else if (nb_str_is(model, "gemma4")) st = load_bpe(&b, &s, model, out);
    else if (nb_str_is(model, "llama")) st = load_sp(&b, &s, false, out);
    else if (nb_str_is(model, "t5")) st = load_sp(&b, &s, true, out);
    else if (nb_str_is(model, "bert")) st = load_bert(&b, &s, out);
    else st = nb_fail(err, NB_E_UNSUPPORTED, "gguf tokenizer: model '%.*s' is not supported", NB_FMT_STR(model));
end:
    nb_json_free(&doc);
    nb_tok_build_free(&b);
    return st;
}
