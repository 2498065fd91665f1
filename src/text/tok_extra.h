/* text/tok_extra: tokens that stand beside a vocabulary file. */
#ifndef NB_TEXT_TOK_EXTRA_H
#define NB_TEXT_TOK_EXTRA_H

#include "text/tok_image.h"

typedef struct nb_tok_extra {
    nb_str content; /* in the config */
    int64_t id;     /* as the config says; -1: it does not */
    uint32_t flags; /* NB_AF_*; a token that stands under a name is special */
    bool named;
    bool older; /* its id is from added_tokens.json */
} nb_tok_extra;
typedef struct nb_tok_extras {
    nb_tok_extra *v;
    size_t n;
} nb_tok_extras;

/* The names under which a config gives special tokens, by NB_SPECIAL_*. */
extern const char *const nb_tok_special_names[NB_SPECIAL_COUNT];
/* Place of a name in that list, or -1. */
int nb_tok_special_place(nb_str name);
/* Text of a token in a config: a string or {"content": string, ...}. */
bool nb_tok_content(const nb_json *v, nb_str *out);

/* An id written in at most nine digits and nothing else, or -1. */
int64_t nb_tok_id_of(nb_str digits);

/* In the order in which transformers adds them: "added_tokens_decoder" by id, the named tokens, further special ones. Of
 * two with one text the flags of the later count. */
nb_status nb_tok_extras_read(nb_tok_extras *x, const nb_json *config, nb_arena *a, nb_error *err);
/* Adds them to the tokens of a tokenizer.json, which `b` has. */
nb_status nb_tok_extras_add(nb_tok_build *b, const nb_json *config, nb_error *err);
/* The list of further special tokens, NULL without one. */
const nb_json *nb_tok_extra_list(const nb_json *config);

#endif
