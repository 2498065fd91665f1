/* text/tok_models: Unigram, WordPiece and WordLevel. */
#include "text/tok_run.h"

#include <stdlib.h>

/* ---- Unigram: the best path over the pieces, Viterbi from left to right ---- */

typedef struct best { double score; uint32_t from, id; } best; /* id NB_TOK_NONE: nothing ends here */

/* All pieces that begin at `at`: a better score than what ended there replaces it; the first found stays on a tie. */
static bool relax(const nb_tok_run *r, best *b, const char *p, size_t n, size_t at, size_t char_n)
{
    const nb_tok_trie *t = &r->t->trie[NB_TRIE_MODEL];
    bool single = false;
    uint32_t node = 0;
    for (size_t end = at; end < n && t->nodes; ) {
        node = nb_trie_child(t, node, (uint8_t)p[end]);
        if (node == NB_TOK_NONE) break;
        end++;
        uint32_t id = t->value[node];
        if (id == NB_TOK_NONE || !nb_tok_allowed(r, id) || !nb_tok_border(p, end, n)) continue;
        double score = b[at].score + r->t->scores[id];
        if (b[end].id == NB_TOK_NONE || score > b[end].score) b[end] = (best){score, (uint32_t)at, id};
        if (end - at == char_n) single = true;
    }
    return single;
}

/* The ids of one unknown string: its own id, else its bytes, else the unknown token. */
static bool emit_unknown(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at, size_t from)
{
    const nb_tok_meta *m = r->t->meta;
    uint32_t id = n < NB_TOK_MAX_TOKEN ? nb_tok_vocab_find(r->t, p, n) : NB_TOK_NONE;
    if (id != NB_TOK_NONE && nb_tok_allowed(r, id)) return nb_tok_emit(r, id, nb_tok_place(org, at, from));
    bool bytes = m->byte_fallback;
    for (size_t i = 0; i < n && bytes; i++) bytes = m->byte_id[(uint8_t)p[i]] != NB_TOK_NONE;
    if (!bytes) return nb_tok_emit(r, m->unk, nb_tok_place(org, at, from));
    for (size_t i = 0; i < n; i++)
        if (!nb_tok_emit(r, m->byte_id[(uint8_t)p[i]], nb_tok_place(org, at, from + i))) return false;
    return true;
}

/* Reverses the best path into `step` (ends of its parts, ascending); returns how many. */
static size_t trace(const best *b, size_t n, uint32_t *step)
{
    size_t count = 0;
    for (size_t end = n; end; end = b[end].from) step[count++] = (uint32_t)end;
    for (size_t i = 0; i < count / 2; i++) {
        uint32_t x = step[i];
        step[i] = step[count - 1 - i];
        step[count - 1 - i] = x;
    }
    return count;
}

nb_status nb_tok_unigram(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at)
{
    const nb_tok_meta *m = r->t->meta;
    best *b = nb_tok_work(r, 0, (n + 1) * sizeof *b);
    uint32_t *step = nb_tok_work(r, 1, (n + 1) * sizeof *step);
    if (!b || !step) return nb_tok_no_memory(r->err);
    for (size_t i = 0; i <= n; i++) b[i].id = NB_TOK_NONE;
    b[0].score = 0;
    for (size_t i = 0, len; i < n; i += len) {
        nb_uni_next(p + i, &len);
        if (i && b[i].id == NB_TOK_NONE) continue; /* cannot be: every character has at least the unknown */
        if (relax(r, b, p, n, i, len)) continue;
        if (m->unk == NB_TOK_NONE) return nb_fail(r->err, NB_E_INVALID, "tokenizer: a character without a piece, and no unk_id");
        double score = b[i].score + m->unk_score;
        if (b[i + len].id == NB_TOK_NONE || score > b[i + len].score) b[i + len] = (best){score, (uint32_t)i, m->unk};
    }
    size_t count = trace(b, n, step), from = 0;
    for (size_t i = 0; i < count; i++) {
        size_t end = step[i];
        if (b[end].id != m->unk) {
            if (!nb_tok_emit(r, b[end].id, nb_tok_place(org, at, from))) return nb_tok_no_memory(r->err);
        } else {
            while (i + 1 < count && b[step[i + 1]].id == m->unk) end = step[++i];
            if (!emit_unknown(r, p + from, end - from, org, at, from)) return nb_tok_no_memory(r->err);
        }
        from = end;
    }
    return NB_OK;
}

/* ---- WordPiece: the longest entry, again and again; one part not found makes the whole word unknown ---- */

/* Node behind the prefix of continuing parts, or NB_TOK_NONE. */
static uint32_t walk(const nb_tok_trie *t, nb_str s)
{
    uint32_t node = t->nodes ? 0 : NB_TOK_NONE;
    for (size_t i = 0; i < s.n && node != NB_TOK_NONE; i++) node = nb_trie_child(t, node, (uint8_t)s.p[i]);
    return node;
}

static nb_status word_unknown(nb_tok_run *r, const uint32_t *org, size_t at)
{
    if (r->t->meta->unk == NB_TOK_NONE) return nb_fail(r->err, NB_E_INVALID, "tokenizer: a word is unknown, and the vocabulary lacks the unknown token");
    return nb_tok_emit(r, r->t->meta->unk, nb_tok_place(org, at, 0)) ? NB_OK : nb_tok_no_memory(r->err);
}

nb_status nb_tok_wordpiece(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at)
{
    const nb_tok_meta *m = r->t->meta;
    const nb_tok_trie *t = &r->t->trie[NB_TRIE_MODEL];
    size_t chars = 0, out = r->out->n, from = 0;
    for (size_t i = 0; i < n && chars <= m->max_chars; i++) chars += ((uint8_t)p[i] & 0xC0) != 0x80;
    if (chars > m->max_chars) return word_unknown(r, org, at);
    while (from < n) {
        uint32_t node = from ? walk(t, nb_tok_str(r->t, m->prefix)) : t->nodes ? 0 : NB_TOK_NONE, id = NB_TOK_NONE;
        size_t end = from, k = from;
        while (node != NB_TOK_NONE && k < n) {
            node = nb_trie_child(t, node, (uint8_t)p[k++]);
            if (node == NB_TOK_NONE) break;
            if (t->value[node] != NB_TOK_NONE && nb_tok_allowed(r, t->value[node]) && nb_tok_border(p, k, n)) id = t->value[node], end = k;
        }
        if (id == NB_TOK_NONE) {
            r->out->n = out;
            return word_unknown(r, org, at);
        }
        if (!nb_tok_emit(r, id, nb_tok_place(org, at, from))) return nb_tok_no_memory(r->err);
        from = end;
    }
    return NB_OK;
}

nb_status nb_tok_wordlevel(nb_tok_run *r, const char *p, size_t n, const uint32_t *org, size_t at)
{
    uint32_t id = n < NB_TOK_MAX_TOKEN ? nb_tok_vocab_find(r->t, p, n) : NB_TOK_NONE;
    if (id == NB_TOK_NONE || !nb_tok_allowed(r, id)) return word_unknown(r, org, at);
    return nb_tok_emit(r, id, nb_tok_place(org, at, 0)) ? NB_OK : nb_tok_no_memory(r->err);
}
