/* text/tok_sp: SentencePiece models as its own library runs them: normalisation, and Unigram in float32. BPE: tok_sp_bpe. */
#include "text/tok_sp.h"

#include <stdlib.h>

static const char sign[] = "\xE2\x96\x81"; /* stands for a space */
enum { SIGN = 3 };

/* ---- normalisation ---- */

/* What the text at p becomes: a user-defined piece as it is, the longest key of the map, or one character. */
static size_t normal_prefix(const nb_tokenizer *t, const char *p, size_t n, nb_str *to)
{
    size_t len = nb_tok_sp_user(t, p, n);
    if (!len) {
        len = nb_tok_charsmap_find(nb_tok_str(t, t->meta->sp_charsmap), p, n, false, to);
        if (len) return len;
        nb_uni_next(p, &len);
    }
    *to = (nb_str){p, len};
    return len;
}

/* End of the run at p[at] that normalisation leaves alone: without spaces, and what follows it is ASCII. */
static size_t plain_run(const nb_tokenizer *t, const char *p, size_t at, size_t n)
{
    size_t end = at;
    while (end < n && t->sp_plain[(uint8_t)p[end]] == NB_PLAIN_CHAR) end++;
    return end > at && end < n && (uint8_t)p[end] >= 0x80 ? end - 1 : end;
}

static void add_space(const nb_tok_meta *m, nb_tok_buf *to, uint32_t from)
{
    if (m->sp_escape) nb_tok_buf_put(to, sign, SIGN, from);
    else nb_tok_buf_put(to, " ", 1, from);
}

static void normalize(const nb_tokenizer *t, const nb_tok_buf *src, nb_tok_buf *to, bool dummy)
{
    const nb_tok_meta *m = t->meta;
    size_t at = 0, len;
    nb_str part;
    nb_tok_buf_clear(to);
    while (m->sp_remove_extra && at < src->n) {
        len = normal_prefix(t, src->p + at, src->n - at, &part);
        if (part.n != 1 || part.p[0] != ' ') break;
        at += len;
    }
    if (at == src->n) return;
    if (dummy && !m->sp_suffix) add_space(m, to, nb_tok_from(src, at));
    bool after_space = m->sp_remove_extra;
    for (; at < src->n && !to->oom; at += len) {
        size_t end = plain_run(t, src->p, at, src->n);
        if (end > at) {
            nb_tok_buf_copy(to, src->p + at, end - at, src->org ? src->org + at : NULL, at);
            after_space = false;
            len = end - at;
            continue;
        }
        uint32_t from = nb_tok_from(src, at);
        bool space = t->sp_plain[(uint8_t)src->p[at]] == NB_PLAIN_SPACE && at + 1 < src->n && (uint8_t)src->p[at + 1] < 0x80;
        len = 1, part = (nb_str){src->p + at, 1};
        if (!space) len = normal_prefix(t, src->p + at, src->n - at, &part);
        while (after_space && part.n && part.p[0] == ' ') part.p++, part.n--;
        for (size_t i = 0, j; i < part.n; i = j) {
            const char *sp = memchr(part.p + i, ' ', part.n - i);
            j = sp ? (size_t)(sp - part.p) : part.n;
            nb_tok_buf_put(to, part.p + i, j - i, from);
            if (sp) add_space(m, to, from), j++;
        }
        if (part.n) after_space = part.p[part.n - 1] == ' ';
        if (!m->sp_remove_extra) after_space = false;
    }
    if (m->sp_remove_extra) {
        const char *space = m->sp_escape ? sign : " ";
        size_t k = m->sp_escape ? SIGN : 1;
        while (to->n >= k && !memcmp(to->p + to->n - k, space, k)) to->n -= k;
    }
    if (dummy && m->sp_suffix) add_space(m, to, nb_tok_from(src, src->n - 1));
}

/* ---- Unigram: sums in float32; a user-defined piece scores a tenth of its bytes less one, so it is always taken. Where
 * the sum falls below -100,000 it begins anew from zero: then that place's sum is taken off all that were reached so far ---- */

static const float lowest_sum = -100000;

typedef struct best { float score; uint32_t from, id; bool set; } best;

/* All pieces that begin at `at`; *far: the furthest place that was reached. */
static bool relax(const nb_tok_run *r, best *b, const char *p, size_t n, size_t at, size_t char_n, size_t *far)
{
    const nb_tok_trie *t = &r->t->trie[NB_TRIE_MODEL];
    bool single = false;
    uint32_t node = 0;
    for (size_t end = at; end < n && t->nodes; ) {
        node = nb_trie_child(t, node, (uint8_t)p[end]);
        if (node == NB_TOK_NONE) break;
        end++;
        uint32_t id = t->value[node];
        if (id == NB_TOK_NONE || !nb_tok_border(p, end, n)) continue;
        bool user = (r->t->tok_flags[id] & NB_TF_USER) != 0;
        float score = (user ? (float)(0.1 * (double)(end - at - 1)) : (float)r->t->scores[id]) + b[at].score;
        if (!b[end].set || score > b[end].score) b[end] = (best){score, (uint32_t)at, id, true};
        if (end > *far) *far = end;
        if (end - at == char_n) single = true;
    }
    return single;
}

static nb_status unigram(nb_tok_run *r, const nb_tok_buf *text)
{
    const nb_tok_meta *m = r->t->meta;
    size_t n = text->n, count = 0, far = 0;
    best *b = nb_tok_work(r, 0, (n + 1) * sizeof *b);
    uint32_t *step = nb_tok_work(r, 1, (n + 1) * sizeof *step);
    if (!b || !step) return nb_tok_no_memory(r->err);
    memset(b, 0, (n + 1) * sizeof *b);
    for (size_t i = 0, len; i < n; i += len) {
        nb_uni_next(text->p + i, &len);
        if (b[i].score < lowest_sum) {
            float base = b[i].score;
            for (size_t k = i; k <= far; k++) b[k].score -= base; /* what is not set yet has no use for its score */
        }
        if (relax(r, b, text->p, n, i, len, &far)) continue;
        if (i + len > far) far = i + len;
        float score = b[i].score + (float)m->unk_score;
        if (!b[i + len].set || score > b[i + len].score) b[i + len] = (best){score, (uint32_t)i, NB_TOK_NONE, true};
    }
    for (size_t end = n; end; end = b[end].from) step[count++] = (uint32_t)end;
    nb_tok_sink s = {.r = r, .ok = true};
    for (size_t from = 0; count; from = step[count]) {
        count--;
        nb_tok_sp_put(&s, b[step[count]].id, text->p + from, step[count] - from, nb_tok_from(text, from));
    }
    return s.ok ? NB_OK : nb_tok_no_memory(r->err);
}

nb_status nb_tok_sp_encode(nb_tok_run *r, nb_tok_buf *src, nb_tok_buf *tmp, bool first)
{
    normalize(r->t, src, tmp, r->t->meta->sp_dummy_prefix && first);
    if (tmp->oom) return nb_tok_no_memory(r->err);
    if (!tmp->n) return NB_OK;
    return r->t->meta->model == NB_TM_SP_UNIGRAM ? unigram(r, tmp) : nb_tok_sp_bpe(r, tmp);
}
