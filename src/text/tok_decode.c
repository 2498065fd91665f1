/* text/tok_decode: ids back to text. The steps of a decoder work on a list of strings, one for each token at first. */
#include "text/tok_decode.h"

#include "text/tok_regex.h"
#include "text/tok_run.h"

#include <stdlib.h>

static const char fffd[] = "\xEF\xBF\xBD";

/* What counts is the text: that of some special token, mostly its own. */
static bool is_special_text(const nb_tokenizer *t, uint32_t id, const nb_tok_added *a, nb_str s)
{
    if (!a) { /* lists of pieces may have a text twice; the added token is the last of them */
        uint32_t twin = t->meta->model == NB_TM_UNIGRAM ? nb_tok_vocab_find(t, s.p, s.n) : NB_TOK_NONE;
        return twin != NB_TOK_NONE && twin != id && (t->tok_flags[twin] & NB_TF_SPECIAL);
    }
    if (nb_str_eq(s, nb_tok_str(t, a->content))) return (t->tok_flags[a->id] & NB_TF_SPECIAL) != 0;
    for (uint32_t i = 0; i < t->added_n; i++)
        if ((t->added[i].flags & NB_AF_SPECIAL) && nb_str_eq(s, nb_tok_str(t, t->added[i].content))) return true;
    return false;
}

nb_str nb_tok_decode_text(const nb_tokenizer *t, int32_t id, bool skip_special)
{
    if (id < 0 || (uint32_t)id >= t->meta->ids || !(t->tok_flags[id] & NB_TF_PRESENT)) return (nb_str){0};
    const nb_tok_added *a = (t->tok_flags[id] & NB_TF_USER) ? nb_tok_added_of(t, (uint32_t)id) : NULL;
    nb_str s = a ? nb_tok_str(t, a->normal) : nb_tok_valid_text(t, (uint32_t)id);
    if (!s.p) return s;
    /* The package compares texts: a special token that its normalizer changes is not passed over. */
    if (skip_special && is_special_text(t, (uint32_t)id, a, s)) return (nb_str){0};
    return s.n ? s : (nb_str){"", 0};
}

static int hex(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

int nb_tok_fallback_byte(nb_str s)
{
    if (s.n != 6 || memcmp(s.p, "<0x", 3) || s.p[5] != '>' || hex(s.p[4]) < 0) return -1;
    if (s.p[3] == '+') return hex(s.p[4]); /* the package's parser takes a sign */
    return hex(s.p[3]) < 0 ? -1 : hex(s.p[3]) * 16 + hex(s.p[4]);
}

void nb_tok_unmap(nb_str s, nb_buf *out)
{
    size_t from = out->n;
    for (size_t at = 0, len; at < s.n; at += len) {
        int b = nb_tok_char_byte(nb_uni_next(s.p + at, &len));
        if (b >= 0) {
            nb_buf_add_char(out, (char)b);
            continue;
        }
        /* A character outside the alphabet: the whole token is text as it stands. */
        if (!out->oom) out->n = from;
        nb_buf_add_str(out, s);
        return;
    }
}

void nb_tok_replace(nb_buf *out, nb_str s, nb_str pattern, nb_str content)
{
    /* An empty one is found before each character and at the end. */
    for (size_t len; !pattern.n && content.n && s.n; s.p += len, s.n -= len) {
        nb_buf_add_str(out, content);
        nb_utf8_decode(s.p, s.n, &len);
        nb_buf_add(out, s.p, len);
    }
    if (!pattern.n && content.n) nb_buf_add_str(out, content);
    while (pattern.n) {
        const char *hit = memmem(s.p, s.n, pattern.p, pattern.n);
        if (!hit) break;
        nb_buf_add(out, s.p, (size_t)(hit - s.p));
        nb_buf_add_str(out, content);
        s.n -= (size_t)(hit - s.p) + pattern.n;
        s.p = hit + pattern.n;
    }
    nb_buf_add_str(out, s);
}

/* Length of a well-formed character at p, or minus the length of the longest beginning of one (at least 1);
 * *cut: it ends because the text does. */
static int sequence(const uint8_t *p, size_t n, bool *cut)
{
    uint8_t lo = 0x80, hi = 0xBF;
    int want;
    *cut = false;
    if (p[0] < 0x80) return 1;
    if (p[0] >= 0xC2 && p[0] <= 0xDF) want = 2;
    else if (p[0] >= 0xE0 && p[0] <= 0xEF) want = 3, lo = p[0] == 0xE0 ? 0xA0 : 0x80, hi = p[0] == 0xED ? 0x9F : 0xBF;
    else if (p[0] >= 0xF0 && p[0] <= 0xF4) want = 4, lo = p[0] == 0xF0 ? 0x90 : 0x80, hi = p[0] == 0xF4 ? 0x8F : 0xBF;
    else return -1;
    for (int i = 1; i < want; i++) {
        if ((size_t)i == n) {
            *cut = true;
            return -i;
        }
        if (p[i] < lo || p[i] > hi) return -i;
        lo = 0x80, hi = 0xBF;
    }
    return want;
}

size_t nb_tok_lossy(const char *p, size_t n, bool each_byte, bool final, nb_buf *out)
{
    size_t at = 0;
    while (at < n) {
        bool cut;
        size_t good = nb_utf8_valid_prefix(p + at, n - at);
        nb_buf_add(out, p + at, good);
        if ((at += good) == n) break;
        int k = sequence((const uint8_t *)p + at, n - at, &cut);
        if (cut && !final) break;
        for (int i = 0; i < (each_byte ? -k : 1); i++) nb_buf_add(out, fffd, 3);
        at += (size_t)(k < 0 ? -k : k);
    }
    return at;
}

/* ---- a list of strings, in one buffer ---- */

typedef struct strings { nb_buf text; nb_tok_vec item; bool oom; } strings;

static void list_end(strings *l, size_t from)
{
    nb_tok_piece p = {(uint32_t)from, (uint32_t)(l->text.n - from)};
    if (l->text.n > UINT32_MAX || !nb_tok_vec_push(&l->item, &p, sizeof p)) l->oom = true;
}
static void list_add(strings *l, nb_str s)
{
    size_t from = l->text.n;
    nb_buf_add_str(&l->text, s);
    list_end(l, from);
}
static nb_str list_at(const strings *l, size_t i)
{
    const nb_tok_piece *p = (const nb_tok_piece *)l->item.p + i;
    return (nb_str){l->text.p ? l->text.p + p->at : "", p->n};
}
static void list_clear(strings *l) { l->text.n = l->item.n = 0; }
static void list_free(strings *l)
{
    nb_buf_free(&l->text);
    free(l->item.p);
}

/* ---- the steps ---- */

static void step_bytes(const strings *in, strings *out)
{
    nb_buf raw = {0};
    size_t from = out->text.n;
    for (size_t i = 0; i < in->item.n; i++) nb_tok_unmap(list_at(in, i), &raw);
    nb_tok_lossy(raw.p ? raw.p : "", raw.n, false, true, &out->text);
    out->oom |= raw.oom;
    nb_buf_free(&raw);
    list_end(out, from);
}

/* A run of byte tokens: one string if it is UTF-8, else U+FFFD for each of its bytes. */
static void step_fallback(const strings *in, strings *out)
{
    nb_buf run = {0};
    for (size_t i = 0; i <= in->item.n; i++) {
        int byte = i < in->item.n ? nb_tok_fallback_byte(list_at(in, i)) : -1;
        if (byte >= 0) {
            nb_buf_add_char(&run, (char)byte);
            continue;
        }
        if (run.n && nb_utf8_valid_prefix(run.p, run.n) == run.n) list_add(out, nb_buf_str(&run));
        else for (size_t k = 0; k < run.n; k++) list_add(out, (nb_str){fffd, 3});
        run.n = 0;
        if (i < in->item.n) list_add(out, list_at(in, i));
    }
    out->oom |= run.oom;
    nb_buf_free(&run);
}

static void step_fuse(const strings *in, strings *out)
{
    size_t from = out->text.n;
    for (size_t i = 0; i < in->item.n; i++) nb_buf_add_str(&out->text, list_at(in, i));
    list_end(out, from);
}

static nb_str strip(nb_str s, uint32_t cp, uint32_t start, uint32_t stop)
{
    size_t len;
    while (start-- && s.n && nb_uni_next(s.p, &len) == cp) s.p += len, s.n -= len;
    while (stop-- && s.n) {
        size_t back = nb_uni_back(s.p, s.n);
        if (nb_uni_next(s.p + back, &len) != cp) break;
        s.n = back;
    }
    return s;
}

/* WordPiece's clean-up: these, one after the other over the whole token. */
static void clean_up(nb_buf *text, size_t from)
{
    static const char *const pairs[][2] = {{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
                                           {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    nb_buf next = {0};
    for (size_t i = 0; i < NB_COUNT(pairs) && !text->oom; i++) {
        next.n = 0;
        nb_tok_replace(&next, (nb_str){text->p ? text->p + from : "", text->n - from}, nb_str_of(pairs[i][0]), nb_str_of(pairs[i][1]));
        text->n = from;
        nb_buf_add(text, next.p, next.n);
    }
    text->oom |= next.oom;
    nb_buf_free(&next);
}

static void step_wordpiece(const nb_tok_step *s, nb_str prefix, const strings *in, strings *out)
{
    for (size_t i = 0; i < in->item.n; i++) {
        nb_str x = list_at(in, i);
        size_t from = out->text.n;
        if (i) {
            if (x.n >= prefix.n && !memcmp(x.p, prefix.p, prefix.n)) x.p += prefix.n, x.n -= prefix.n;
            else nb_buf_add_char(&out->text, ' ');
        }
        nb_buf_add_str(&out->text, x);
        if (s->f[0]) clean_up(&out->text, from);
        list_end(out, from);
    }
}

static void step_ctc(const nb_tok_step *s, nb_str pad, nb_str delimiter, const strings *in, strings *out)
{
    for (size_t i = 0; i < in->item.n; i++) {
        nb_str x = list_at(in, i);
        if (i && nb_str_eq(x, list_at(in, i - 1))) continue;
        size_t from = out->text.n;
        nb_tok_replace(&out->text, x, pad, (nb_str){"", 0});
        if (s->f[0]) {
            nb_buf tmp = {0};
            clean_up(&out->text, from);
            nb_tok_replace(&tmp, (nb_str){out->text.p ? out->text.p + from : "", out->text.n - from}, delimiter, NB_LIT(" "));
            if (!out->text.oom) out->text.n = from;
            nb_buf_add_str(&out->text, nb_buf_str(&tmp));
            out->oom |= tmp.oom;
            nb_buf_free(&tmp);
        }
        if (out->text.n > from) list_end(out, from);
    }
}

static nb_status step_regex(const nb_tok_regex *regex, nb_str content, const strings *in, strings *out, nb_error *err)
{
    nb_status st = NB_OK;
    for (size_t i = 0; i < in->item.n && !st; i++) {
        nb_str x = list_at(in, i);
        size_t from = out->text.n, at = 0, a, b;
        nb_tok_find f;
        bool found;
        st = nb_tok_find_init(&f, regex, x.p, x.n, err);
        while (!st && !(st = nb_tok_find_next(&f, &a, &b, &found, err)) && found) {
            nb_buf_add(&out->text, x.p + at, a - at);
            nb_buf_add_str(&out->text, content);
            at = b;
        }
        nb_tok_find_free(&f);
        nb_buf_add(&out->text, x.p + at, x.n - at);
        list_end(out, from);
    }
    return st;
}

/* Every replacement sign becomes a space; in the first token they go, unless the scheme is `never`. */
static void step_metaspace(const nb_tok_step *s, nb_str sign, const strings *in, strings *out)
{
    for (size_t i = 0; i < in->item.n; i++) {
        size_t from = out->text.n;
        nb_tok_replace(&out->text, list_at(in, i), sign, i == 0 && s->f[0] != NB_SCHEME_NEVER ? (nb_str){"", 0} : NB_LIT(" "));
        list_end(out, from);
    }
}

static nb_status run_step(const nb_tokenizer *t, uint32_t index, const strings *in, strings *out, nb_error *err)
{
    const nb_tok_step *s = &t->steps[index];
    nb_str a = nb_tok_str(t, s->s), b = nb_tok_str(t, s->s2);
    switch (s->kind) {
    case NB_TD_BYTELEVEL: step_bytes(in, out); break;
    case NB_TD_BYTE_FALLBACK: step_fallback(in, out); break;
    case NB_TD_FUSE: step_fuse(in, out); break;
    case NB_TD_STRIP:
        for (size_t i = 0; i < in->item.n; i++) list_add(out, strip(list_at(in, i), s->a[0], s->a[1], s->a[2]));
        break;
    case NB_TD_REPLACE:
        if (s->f[0]) return step_regex(t->regex[index], b, in, out, err);
        for (size_t i = 0; i < in->item.n; i++) {
            size_t from = out->text.n;
            nb_tok_replace(&out->text, list_at(in, i), a, b);
            list_end(out, from);
        }
        break;
    case NB_TD_METASPACE: step_metaspace(s, a, in, out); break;
    case NB_TD_WORDPIECE: step_wordpiece(s, a, in, out); break;
    case NB_TD_BPE:
        for (size_t i = 0; i < in->item.n; i++) {
            size_t from = out->text.n;
            nb_tok_replace(&out->text, list_at(in, i), a, i + 1 == in->item.n ? (nb_str){"", 0} : NB_LIT(" "));
            list_end(out, from);
        }
        break;
    case NB_TD_CTC: step_ctc(s, a, b, in, out); break;
    default: return nb_fail(err, NB_E_INVALID, "tokenizer: step %u is no decoder", s->kind);
    }
    return NB_OK;
}

/* whole: the list is a text with its beginning; else a Strip of the fused text, which is for its ends, is left out. */
static nb_status decode_list(const nb_tokenizer *t, const nb_str *texts, size_t n, bool whole, nb_buf *out, nb_error *err)
{
    bool fused = false;
    const nb_tok_meta *m = t->meta;
    strings a = {0}, b = {0};
    nb_status st = NB_OK;
    for (size_t i = 0; i < n; i++) list_add(&a, texts[i]);
    for (uint32_t i = 0; i < m->dec_n && !st; i++) {
        uint8_t kind = t->steps[m->dec_at + i].kind;
        if (kind == NB_TD_STRIP && fused && !whole) continue;
        fused |= kind == NB_TD_FUSE;
        list_clear(&b);
        st = run_step(t, m->dec_at + i, &a, &b, err);
        strings x = a;
        a = b;
        b = x;
        if (!st && (a.oom || a.text.oom)) st = nb_tok_no_memory(err);
    }
    for (size_t i = 0; i < a.item.n && !st; i++) {
        if (i && m->join_space) nb_buf_add_char(out, ' ');
        nb_buf_add_str(out, list_at(&a, i));
    }
    list_free(&a);
    list_free(&b);
    if (!st && out->oom) st = nb_tok_no_memory(err);
    return st;
}

nb_status nb_tok_decode_list(const nb_tokenizer *t, const nb_str *texts, size_t n, nb_buf *out, nb_error *err)
{
    return decode_list(t, texts, n, true, out, err);
}

/* ---- SentencePiece's own decoder ---- */

void nb_tok_sp_flush(nb_tok_sp_state *s, nb_buf *out)
{
    nb_tok_lossy(s->pend, s->pend_n, true, true, out);
    if (s->pend_n) s->any = true;
    s->pend_n = 0;
}

/* Bytes of a run: good characters survive, each bad byte is one U+FFFD. */
static void sp_byte(nb_tok_sp_state *s, uint8_t byte, nb_buf *out)
{
    size_t before = out->n;
    s->pend[s->pend_n++] = (char)byte;
    size_t used = nb_tok_lossy(s->pend, s->pend_n, true, false, out);
    memmove(s->pend, s->pend + used, s->pend_n - used);
    s->pend_n -= used;
    if (out->n > before) s->any = true;
}

void nb_tok_sp_decode(const nb_tokenizer *t, nb_tok_sp_state *s, int32_t id, bool skip_special, nb_buf *out)
{
    const nb_tok_meta *m = t->meta;
    if (id < 0 || (uint32_t)id >= m->ids || !(t->tok_flags[id] & NB_TF_PRESENT)) return;
    uint8_t f = t->tok_flags[id];
    nb_str piece = nb_tok_valid_text(t, (uint32_t)id);
    if (!piece.p) return;
    int byte = (f & NB_TF_BYTE) ? nb_tok_fallback_byte(piece) : -1;
    if (byte >= 0) {
        sp_byte(s, (uint8_t)byte, out);
        return;
    }
    nb_tok_sp_flush(s, out);
    if ((f & NB_TF_CONTROL) || (skip_special && (f & NB_TF_SPECIAL))) return;
    size_t before = out->n;
    if (f & NB_TF_UNKNOWN) {
        nb_buf_add_str(out, nb_tok_str(t, m->unk_surface));
    } else {
        static const char sign[] = "\xE2\x96\x81";
        if (!s->seen && !s->any && (m->sp_dummy_prefix || m->sp_remove_extra) && piece.n >= 3 && !memcmp(piece.p, sign, 3)) {
            piece.p += 3, piece.n -= 3;
            s->seen = !m->sp_remove_extra;
        }
        nb_tok_replace(out, piece, (nb_str){sign, 3}, NB_LIT(" "));
    }
    if (out->n > before) s->any = true;
}

/* ---- public ---- */

int nb_tok_decode_class(const nb_tokenizer *t)
{
    const nb_tok_meta *m = t->meta;
    const nb_tok_step *s = t->steps + m->dec_at;
    uint32_t i = 0;
    if (m->dec_n == 1 && s[0].kind == NB_TD_SP) return NB_DC_SP;
    if (m->dec_n == 1 && s[0].kind == NB_TD_BYTELEVEL) return NB_DC_BYTES;
    /* Replace (literal) ..., ByteFallback, Fuse, and perhaps a Strip at the start. */
    while (i < m->dec_n && s[i].kind == NB_TD_REPLACE && !s[i].f[0]) i++;
    if (i + 2 > m->dec_n || i > 4 || s[i].kind != NB_TD_BYTE_FALLBACK || s[i + 1].kind != NB_TD_FUSE) return NB_DC_GENERIC;
    if (i + 2 == m->dec_n || (i + 3 == m->dec_n && s[i + 2].kind == NB_TD_STRIP && !s[i + 2].a[2])) return NB_DC_PIECES;
    return NB_DC_GENERIC;
}

static nb_status decode_bytes(const nb_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, nb_buf *out, nb_error *err)
{
    nb_buf raw = {0};
    for (size_t i = 0; i < n; i++) {
        nb_str s = nb_tok_decode_text(t, ids[i], skip_special);
        if (s.p) nb_tok_unmap(s, &raw);
    }
    nb_tok_lossy(raw.p ? raw.p : "", raw.n, false, true, out);
    bool oom = raw.oom || out->oom;
    nb_buf_free(&raw);
    return oom ? nb_tok_no_memory(err) : NB_OK;
}

nb_status nb_tokenizer_decode(const nb_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, nb_buf *out, nb_error *err)
{
    int class = nb_tok_decode_class(t);
    if (class == NB_DC_BYTES) return decode_bytes(t, ids, n, skip_special, out, err);
    if (class == NB_DC_SP) {
        nb_tok_sp_state s = {0};
        for (size_t i = 0; i < n; i++) nb_tok_sp_decode(t, &s, ids[i], skip_special, out);
        nb_tok_sp_flush(&s, out);
        return out->oom ? nb_tok_no_memory(err) : NB_OK;
    }
    nb_str *list = n < SIZE_MAX / sizeof *list ? malloc((n + 1) * sizeof *list) : NULL;
    size_t count = 0;
    if (!list) return nb_tok_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        nb_str s = nb_tok_decode_text(t, ids[i], skip_special);
        if (s.p) list[count++] = s;
    }
    nb_status st = nb_tok_decode_list(t, list, count, out, err);
    free(list);
    return st;
}

/* What the token adds in the middle of a text: decoded behind an empty token, before one where the last is special. */
bool nb_tokenizer_bytes(const nb_tokenizer *t, int32_t id, nb_buf *out)
{
    nb_str s = nb_tok_decode_text(t, id, false);
    int class = nb_tok_decode_class(t), byte;
    if (!s.p) return false;
    if (class == NB_DC_BYTES) {
        nb_tok_unmap(s, out);
    } else if (class != NB_DC_BYTES && t->meta->model != NB_TM_WORDPIECE && t->meta->model != NB_TM_WORDLEVEL && (byte = nb_tok_fallback_byte(s)) >= 0) {
        nb_buf_add_char(out, (char)byte);
    } else if (class == NB_DC_SP) {
        nb_tok_sp_state state = {.seen = true, .any = true};
        nb_tok_sp_decode(t, &state, id, false, out);
    } else {
        bool bpe = t->meta->dec_n && t->steps[t->meta->dec_at].kind == NB_TD_BPE;
        nb_str list[3] = {{"", 0}, s, {"", 0}};
        return decode_list(t, list, bpe ? 3 : 2, false, out, NULL) == NB_OK;
    }
    return !out->oom;
}
