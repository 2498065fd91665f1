/* text/tok_trie: building the tries of an image. */
#ifndef NB_TEXT_TOK_TRIE_H
#define NB_TEXT_TOK_TRIE_H

#include "text/tok_image.h"

typedef struct nb_tok_trie_data {
    uint32_t *first, *value;
    uint8_t *label;
    uint32_t nodes;
} nb_tok_trie_data;

/* Sorts keys (n > 0; of equal keys the last one counts) and builds in the arena. False when memory is out. */
bool nb_tok_trie_make(nb_tok_trie_data *d, nb_arena *arena, nb_tok_key *keys, size_t n);

#endif
