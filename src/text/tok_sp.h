/* text/tok_sp: what the parts of SentencePiece's way share. */
#ifndef NB_TEXT_TOK_SP_H
#define NB_TEXT_TOK_SP_H

#include "text/tok_run.h"

/* Where ids go: runs of unknown are one id, or the bytes of each. */
typedef struct nb_tok_sink { nb_tok_run *r; bool unknown_before, ok, unknown_seen; } nb_tok_sink;
void nb_tok_sp_put(nb_tok_sink *s, uint32_t id, const char *p, size_t n, uint32_t from);
/* The longest user-defined piece at p, or 0. */
size_t nb_tok_sp_user(const nb_tokenizer *t, const char *p, size_t n);
nb_status nb_tok_sp_bpe(nb_tok_run *r, const nb_tok_buf *text);

#endif
