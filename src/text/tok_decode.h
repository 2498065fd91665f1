/* text/tok_decode: what whole decoding and streaming share. */
#ifndef NB_TEXT_TOK_DECODE_H
#define NB_TEXT_TOK_DECODE_H

#include "text/tok_image.h"

/* How a tokenizer's decoder can be run step by step. */
enum { NB_DC_BYTES, NB_DC_PIECES, NB_DC_SP, NB_DC_GENERIC };
int nb_tok_decode_class(const nb_tokenizer *t);

/* The text that decoding starts from; p NULL: the id gives nothing. */
nb_str nb_tok_decode_text(const nb_tokenizer *t, int32_t id, bool skip_special);
/* The byte of a token that reads <0xNN>, or -1. */
int nb_tok_fallback_byte(nb_str s);
/* Appends what a byte-level token stands for. */
void nb_tok_unmap(nb_str s, nb_buf *out);
void nb_tok_replace(nb_buf *out, nb_str s, nb_str pattern, nb_str content);
/* Appends p[0..n) as valid UTF-8: a bad sequence becomes U+FFFD, once for its longest beginning of a character, or once
 * for each of its bytes. Returns how many bytes were used: all if `final`, else all but an unfinished character. */
size_t nb_tok_lossy(const char *p, size_t n, bool each_byte, bool final, nb_buf *out);

/* State of SentencePiece's decoder, zeroed at the start. */
typedef struct nb_tok_sp_state { bool seen, any; char pend[4]; size_t pend_n; } nb_tok_sp_state;
void nb_tok_sp_decode(const nb_tokenizer *t, nb_tok_sp_state *s, int32_t id, bool skip_special, nb_buf *out);
void nb_tok_sp_flush(nb_tok_sp_state *s, nb_buf *out);

/* The decoder run over a list of ids, from its first step. */
nb_status nb_tok_decode_list(const nb_tokenizer *t, const nb_str *list, size_t n, nb_buf *out, nb_error *err);

#endif
