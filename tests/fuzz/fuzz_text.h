/* Shared by the fuzz targets of the tokenizers. */
#ifndef NB_TESTS_FUZZ_TEXT_H
#define NB_TESTS_FUZZ_TEXT_H

#include "text/tokenizer.h"

#include <stdlib.h>

static inline void check(bool ok)
{
    if (!ok) abort();
}

/* Decodes whole and as a stream. */
static inline void use_ids(const nb_tokenizer *t, const int32_t *id, size_t n)
{
    nb_buf whole = {0}, piece = {0};
    for (int skip = 0; skip < 2; skip++) {
        whole.n = 0;
        if (nb_tokenizer_decode(t, id, n, skip, &whole, NULL) == NB_OK) check(nb_utf8_valid_prefix(whole.p, whole.n) == whole.n);
        nb_decode_stream *s = nb_decode_stream_new(t, skip);
        check(s != NULL);
        for (size_t i = 0; i < n; i++) {
            piece.n = 0;
            if (nb_decode_stream_push(s, id[i], &piece, NULL)) break;
            check(nb_utf8_valid_prefix(piece.p, piece.n) == piece.n);
        }
        piece.n = 0;
        if (nb_decode_stream_flush(s, &piece, NULL) == NB_OK) check(nb_utf8_valid_prefix(piece.p, piece.n) == piece.n);
        nb_decode_stream_free(s);
    }
    nb_buf_free(&whole);
    nb_buf_free(&piece);
}

static inline void use_tokenizer(const nb_tokenizer *t)
{
    static const char *const texts[] = {"ab  1 don't <s>x\n\nNew zig. \xC3\xA9\xE4\xB8\xAD", "\xE2\x96\x81" "a\xE2\x96\x81\xE2\x96\x81" "b   ", "aaaaaaaabbbbbbbbaaaaaaaabbbbbbbbaaaaaaaabbbbbbbbaaaaaaaabbbbbbbb", ""};
    nb_ids v = {0};
    for (size_t i = 0; i < NB_COUNT(texts); i++) {
        nb_span s[2] = {{nb_str_of(texts[i]), true}, {nb_str_of(texts[i]), false}};
        v.n = 0;
        if (nb_tokenizer_encode_spans(t, s, 2, NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS | NB_ENC_OFFSETS, &v, NULL) == NB_OK) use_ids(t, v.id, v.n);
    }
    v.n = 0;
    for (int32_t id = -1; id < 40 && id <= (int32_t)nb_tokenizer_size(t); id++) nb_ids_push(&v, id);
    use_ids(t, v.id, v.n);
    for (size_t i = 0; i < v.n; i++) {
        nb_buf b = {0};
        nb_str token = nb_tokenizer_token(t, v.id[i]);
        nb_tokenizer_bytes(t, v.id[i], &b);
        if (token.p) nb_tokenizer_find(t, token);
        nb_tokenizer_is_special(t, v.id[i]);
        nb_buf_free(&b);
    }
    nb_ids_free(&v);
}

#endif
