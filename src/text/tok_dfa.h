/* text/tok_dfa: patterns as a table of states, one look-up for each character. Most patterns of tokenizers are of this
 * kind: sets of characters, groups, alternatives, quantifiers, conditions on one neighbouring character and on what follows. */
#ifndef NB_TEXT_TOK_DFA_H
#define NB_TEXT_TOK_DFA_H

#include "base/base.h"

typedef struct nb_tok_dfa nb_tok_dfa;

/* The pattern is what tok_regex translates to, with sets written as ranges. NULL: not of this kind, too large, or memory
 * is out; then PCRE2 has it. */
nb_tok_dfa *nb_tok_dfa_new(nb_str pattern);
void nb_tok_dfa_free(nb_tok_dfa *d);

/* What one text has taught, by place. Row: reached in this row of the table, no match ends from there on; this keeps searches
 * that look far ahead in vain from being quadratic. Looks: which conditions on what follows hold there. */
typedef struct nb_tok_dfa_memo { uint32_t *row; uint8_t *looks; bool oom; } nb_tok_dfa_memo; /* oom: for rows */
void nb_tok_dfa_memo_free(nb_tok_dfa_memo *m);

/* The first match that begins at `at` or behind it (at <= n, valid UTF-8); of those the one that Perl's rules take. The
 * memo belongs to this text; it is empty at first. Found: 1; none: 0; memory is out: -1. */
int nb_tok_dfa_find(const nb_tok_dfa *d, nb_tok_dfa_memo *memo, const char *p, size_t n, size_t at, size_t *start, size_t *end);

#endif
