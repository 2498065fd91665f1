/* text/tok_extra: tokens that stand beside a vocabulary file. */
#ifndef NB_TEXT_TOK_EXTRA_H
#define NB_TEXT_TOK_EXTRA_H

#include "text/tok_image.h"

typedef struct nb_tok_extra {
    nb_str content; /* in the config */
    int64_t id;     /* as the config says; -1: it does not */
    uint32_t flags; /* NB_AF_* */
} nb_tok_extra;
typedef struct nb_tok_extras {
    nb_tok_extra *v;
    size_t n;
} nb_tok_extras;

/* An id written in at most nine digits and nothing else, or -1. */
int64_t nb_tok_id_of(nb_str digits);

/* In the order in which transformers adds them: "added_tokens_decoder" by id, the named tokens, further special ones. */
nb_status nb_tok_extras_read(nb_tok_extras *x, const nb_json *config, nb_arena *a, nb_error *err);
/* The list of further special tokens, NULL without one. */
const nb_json *nb_tok_extra_list(const nb_json *config);

#endif
