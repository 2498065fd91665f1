/* text/tok_gguf: the pre-tokenizer names of GGUF files. */
#ifndef NB_TEXT_TOK_GGUF_H
#define NB_TEXT_TOK_GGUF_H

#include "text/tok_image.h"

enum {
    NB_PRE_WHOLE = 1, /* a piece that is in the vocabulary is taken whole */
    NB_PRE_BOS = 2,   /* BOS is added unless the file says otherwise */
    NB_PRE_SEP = 4,   /* and a separator at the end */
    NB_PRE_NFC = 8,   /* the publisher's tokenizer composes first */
    NB_PRE_RAW = 16,  /* no byte-level alphabet: U+2581 for spaces, byte fallback */
};
/* Adds the steps of a name (those of "default" for an unknown one: then false). */
bool nb_tok_gguf_pre(nb_tok_build *b, nb_str name, uint32_t *flags);
/* A pattern of one step by its name here ("QWEN2"). */
const char *nb_tok_gguf_pattern(const char *key);

#endif
