/* text/tok_stream: decoding one id at a time. Never half a character; at the end nothing is lost.
 *
 * Byte-level, Llama-like and SentencePiece decoders show each token's bytes at once and hold back an unfinished
 * character. Other decoders run over a window of the last tokens, with and without the new one: the difference is shown. */
#include "text/tok_decode.h"

#include <stdlib.h>

enum { WINDOW = 48, KEEP = 16 };

struct nb_decode_stream {
    const nb_tokenizer *t;
    bool skip_special;
    int class;
    char pend[8]; /* an unfinished character */
    size_t pend_n;
    uint32_t strip_left, strip_cp; /* characters that may still be stripped at the start */
    nb_tok_sp_state sp;
    nb_str window[WINDOW]; /* the tokens' texts, owned by t */
    size_t window_n;
    nb_buf shown; /* what the window's tokens gave, as far as it was shown */
};

nb_decode_stream *nb_decode_stream_new(const nb_tokenizer *t, bool skip_special)
{
    nb_decode_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->t = t;
    s->skip_special = skip_special;
    s->class = nb_tok_decode_class(t);
    const nb_tok_meta *m = t->meta;
    const nb_tok_step *last = m->dec_n ? &t->steps[m->dec_at + m->dec_n - 1] : NULL;
    if (s->class == NB_DC_PIECES && last->kind == NB_TD_STRIP) s->strip_cp = last->a[0], s->strip_left = last->a[1];
    return s;
}

void nb_decode_stream_free(nb_decode_stream *s)
{
    if (!s) return;
    nb_buf_free(&s->shown);
    free(s);
}

/* Bytes in, whole characters out. */
static void feed(nb_decode_stream *s, const char *p, size_t n, bool each_byte, nb_buf *out)
{
    nb_buf all = {0};
    nb_buf_add(&all, s->pend, s->pend_n);
    nb_buf_add(&all, p, n);
    out->oom |= all.oom;
    if (all.n && !all.oom) { /* an empty token changes nothing, and has no bytes to point to */
        size_t used = nb_tok_lossy(all.p, all.n, each_byte, false, out);
        s->pend_n = all.n - used;
        memcpy(s->pend, all.p + used, s->pend_n);
    }
    nb_buf_free(&all);
}

static void drain(nb_decode_stream *s, bool each_byte, nb_buf *out)
{
    nb_tok_lossy(s->pend, s->pend_n, each_byte, true, out);
    s->pend_n = 0;
}

/* Text that is shown, but for what is stripped at the very start. */
static void show(nb_decode_stream *s, nb_str text, nb_buf *out)
{
    while (s->strip_left && text.n) {
        char cp[4];
        size_t len = nb_utf8_encode(s->strip_cp, cp);
        if (text.n < len || memcmp(text.p, cp, len)) {
            s->strip_left = 0;
            break;
        }
        s->strip_left--;
        text.p += len, text.n -= len;
    }
    nb_buf_add_str(out, text);
}

/* Llama-like: literal replacements, then byte tokens, then all of it as one text. */
static void push_piece(nb_decode_stream *s, nb_str text, nb_buf *out)
{
    const nb_tok_meta *m = s->t->meta;
    nb_buf a = {0}, b = {0}, shown = {0};
    nb_buf_add_str(&a, text);
    for (uint32_t i = 0; i < m->dec_n && s->t->steps[m->dec_at + i].kind == NB_TD_REPLACE; i++) {
        const nb_tok_step *step = &s->t->steps[m->dec_at + i];
        b.n = 0;
        nb_tok_replace(&b, (nb_str){a.p ? a.p : "", a.n}, nb_tok_str(s->t, step->s), nb_tok_str(s->t, step->s2));
        nb_buf x = a;
        a = b;
        b = x;
    }
    int byte = nb_tok_fallback_byte((nb_str){a.p ? a.p : "", a.n});
    if (byte >= 0) {
        char c = (char)byte;
        feed(s, &c, 1, true, &shown);
    } else {
        drain(s, true, &shown);
        nb_buf_add_str(&shown, nb_buf_str(&a));
    }
    show(s, (nb_str){shown.p ? shown.p : "", shown.n}, out);
    out->oom |= a.oom || b.oom || shown.oom;
    nb_buf_free(&a), nb_buf_free(&b), nb_buf_free(&shown);
}

/* Is the end of the window a run of byte tokens that further bytes may complete? */
static bool waits_for_bytes(const nb_decode_stream *s)
{
    const nb_tok_meta *m = s->t->meta;
    char run[WINDOW];
    size_t n = 0, from = s->window_n;
    nb_buf none = {0};
    bool fallback = false;
    for (uint32_t i = 0; i < m->dec_n; i++) fallback |= s->t->steps[m->dec_at + i].kind == NB_TD_BYTE_FALLBACK;
    if (!fallback) return false;
    while (from && nb_tok_fallback_byte(s->window[from - 1]) >= 0) from--;
    for (; from < s->window_n; from++) run[n++] = (char)nb_tok_fallback_byte(s->window[from]);
    size_t good = nb_utf8_valid_prefix(run, n), used = nb_tok_lossy(run + good, n - good, true, false, &none);
    nb_buf_free(&none);
    return good < n && used == 0;
}

static nb_status push_generic(nb_decode_stream *s, nb_str text, bool flush, nb_buf *out, nb_error *err)
{
    nb_buf now = {0};
    nb_status st = NB_OK;
    if (text.p) s->window[s->window_n++] = text;
    if (!flush && waits_for_bytes(s) && s->window_n < WINDOW) return NB_OK;
    if ((st = nb_tok_decode_list(s->t, s->window, s->window_n, &now, err))) goto end;
    if (now.n >= s->shown.n && (!s->shown.n || !memcmp(now.p, s->shown.p, s->shown.n))) {
        nb_buf_add(out, now.p ? now.p + s->shown.n : "", now.n - s->shown.n);
    } else if (text.p) {
        /* What was shown cannot be taken back (a byte run turned bad): one sign for the byte, and a new window. */
        if (nb_tok_fallback_byte(text) >= 0) nb_buf_add_cstr(out, "\xEF\xBF\xBD");
        s->window[0] = text;
        s->window_n = 1;
        now.n = 0;
        st = nb_tok_decode_list(s->t, s->window, 1, &now, err);
    }
    if (!st && s->window_n == WINDOW) {
        memmove(s->window, s->window + WINDOW - KEEP, KEEP * sizeof *s->window);
        s->window_n = KEEP;
        now.n = 0;
        st = nb_tok_decode_list(s->t, s->window, s->window_n, &now, err);
    }
    s->shown.n = 0;
    nb_buf_add(&s->shown, now.p ? now.p : "", now.n);
    if (!st && (s->shown.oom || out->oom)) st = nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
end:
    nb_buf_free(&now);
    return st;
}

nb_status nb_decode_stream_push(nb_decode_stream *s, int32_t id, nb_buf *out, nb_error *err)
{
    if (s->class == NB_DC_SP) {
        nb_tok_sp_decode(s->t, &s->sp, id, s->skip_special, out);
    } else {
        nb_str text = nb_tok_decode_text(s->t, id, s->skip_special);
        if (!text.p) return NB_OK;
        if (s->class == NB_DC_GENERIC) return push_generic(s, text, false, out, err);
        if (s->class == NB_DC_PIECES) {
            push_piece(s, text, out);
        } else {
            nb_buf raw = {0};
            nb_tok_unmap(text, &raw);
            feed(s, raw.p ? raw.p : "", raw.n, false, out);
            out->oom |= raw.oom;
            nb_buf_free(&raw);
        }
    }
    return out->oom ? nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory") : NB_OK;
}

nb_status nb_decode_stream_flush(nb_decode_stream *s, nb_buf *out, nb_error *err)
{
    if (s->class == NB_DC_GENERIC) {
        nb_status st = s->window_n ? push_generic(s, (nb_str){0}, true, out, err) : NB_OK;
        s->window_n = 0, s->shown.n = 0;
        return st;
    }
    if (s->class == NB_DC_SP) {
        nb_tok_sp_flush(&s->sp, out);
    } else {
        nb_buf rest = {0};
        drain(s, s->class == NB_DC_PIECES, &rest);
        show(s, (nb_str){rest.p ? rest.p : "", rest.n}, out);
        out->oom |= rest.oom;
        nb_buf_free(&rest);
    }
    return out->oom ? nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory") : NB_OK;
}
