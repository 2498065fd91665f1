/* text/tok_again: a prompt that begins like an earlier one. What both share up to an added token keeps its ids; only
 * the rest is encoded. */
#include "text/tok_run.h"

#include <stdlib.h>

typedef struct joined {
    nb_buf text;
    const nb_span *spans;
    size_t n;
    bool all; /* all of it is trusted: the model itself may give control tokens too, and borders mean nothing */
} joined;

/* May bytes at .. end be a special token? Where all is trusted, anywhere; else inside one trusted span. */
static bool in_trusted(const joined *a, size_t at, size_t end)
{
    size_t begin = 0;
    if (a->all) return true;
    for (size_t i = 0; i < a->n && begin <= at; begin += a->spans[i++].text.n)
        if (at < begin + a->spans[i].text.n) return a->spans[i].trusted && end <= begin + a->spans[i].text.n;
    return false;
}

static joined join(const nb_span *spans, size_t n)
{
    joined a = {.spans = spans, .n = n, .all = true};
    for (size_t i = 0; i < n; i++) a.all &= spans[i].trusted;
    return a;
}

/* Length of the common beginning, of one text, one origin and the same borders between trusted spans. */
static size_t common(const joined *a, const joined *b)
{
    size_t i = 0, j = 0, ai = 0, bj = 0, at = 0;
    for (;;) {
        while (i < a->n && ai == a->spans[i].text.n) i++, ai = 0;
        while (j < b->n && bj == b->spans[j].text.n) j++, bj = 0;
        if (i == a->n || j == b->n || a->spans[i].trusted != b->spans[j].trusted) return at;
        size_t k = a->spans[i].text.n - ai < b->spans[j].text.n - bj ? a->spans[i].text.n - ai : b->spans[j].text.n - bj;
        const char *p = a->spans[i].text.p + ai, *q = b->spans[j].text.p + bj;
        for (size_t x = 0; x < k; x++)
            if (p[x] != q[x]) return at + x;
        at += k, ai += k, bj += k;
        if (a->spans[i].trusted && (ai == a->spans[i].text.n) != (bj == b->spans[j].text.n)) return at;
    }
}

/* How many ids the post-processor adds before and behind the text. False: the text stands there more than once. */
static bool added_around(const nb_tokenizer *t, int flags, size_t *before, size_t *behind)
{
    const nb_tok_meta *m = t->meta;
    size_t texts = 0;
    *before = *behind = 0;
    if (!(flags & NB_ENC_SPECIALS) || !m->single_n) return true;
    for (uint32_t i = 0; i < m->single_n; i++) {
        if (t->items[m->single_at + i].id < 0) texts++;
        else ++*(texts ? behind : before);
    }
    return texts == 1;
}

/* The last place in ids where a raw added token ends that begins at `limit` or before; 0: none. *count
 * gets the number of ids up to there. What the post-processor added, or the model for want of better, only looks as if
 * it stood in the text. */
static size_t last_border(const nb_tokenizer *t, const nb_ids *ids, const joined *old, size_t limit, int flags, size_t *count)
{
    size_t before, behind;
    *count = 0;
    if (!added_around(t, flags, &before, &behind) || ids->n < before + behind) return 0;
    for (size_t k = ids->n - behind; k-- > before;) {
        uint32_t id = (uint32_t)ids->id[k], at = ids->off[k];
        const nb_tok_added *a = id < t->meta->ids && (t->tok_flags[id] & NB_TF_USER) ? nb_tok_added_of(t, id) : NULL;
        if (!a || (a->flags & (NB_AF_NORMALIZED | NB_AF_SINGLE_WORD | NB_AF_LSTRIP | NB_AF_RSTRIP))) continue;
        nb_str content = nb_tok_str(t, a->content);
        if (at > limit || !content.n || content.n > old->text.n - at || memcmp(old->text.p + at, content.p, content.n)) continue;
        if ((a->flags & NB_AF_SPECIAL) && !in_trusted(old, at, at + content.n)) continue;
        *count = k + 1;
        return at + content.n;
    }
    return 0;
}

nb_status nb_tokenizer_encode_again(const nb_tokenizer *t, const nb_span *before, size_t before_n, const nb_span *spans, size_t n, int flags, nb_ids *out, size_t *kept, nb_error *err)
{
    joined old = join(before, before_n), now = join(spans, n);
    size_t longest = 0, from = 0;
    *kept = 0;
    /* Which token is found at a place depends on the text up to the longest token's length behind it. */
    for (uint32_t i = 0; i < t->added_n; i++) longest = t->added[i].content.n > longest ? t->added[i].content.n : longest;
    size_t same = old.all == now.all ? common(&old, &now) : 0;
    if ((flags & NB_ENC_PARSE_ADDED) && out->off && same >= longest) {
        for (size_t i = 0; i < before_n; i++) nb_buf_add_str(&old.text, before[i].text);
        if (!old.text.oom) from = last_border(t, out, &old, same - longest, flags, kept);
        nb_buf_free(&old.text);
    }
    out->n = *kept;
    return nb_tok_encode_from(t, spans, n, from, flags | NB_ENC_OFFSETS, out, err);
}
