/* text/tok_regex: the patterns of Split and Replace. Known ones have a scanner of their own, all others are translated
 * from Ruby's syntax (which the published package uses, with Unicode 16.0) and become a table of states or, where they
 * need more than that, go to PCRE2. */
#ifndef NB_TEXT_TOK_REGEX_H
#define NB_TEXT_TOK_REGEX_H

#include "text/tok_dfa.h"

#define NB_TOK_GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef struct nb_tok_regex nb_tok_regex;

nb_status nb_tok_regex_new(nb_tok_regex **out, nb_str pattern, nb_error *err);
/* The same by these ways only (tests compare them): a scanner, a table of states, PCRE2. NB_E_UNSUPPORTED if none serves. */
enum { NB_REGEX_SCAN = 1, NB_REGEX_TABLE = 2, NB_REGEX_PCRE = 4 };
nb_status nb_tok_regex_new_by(nb_tok_regex **out, nb_str pattern, int ways, nb_error *err);
void nb_tok_regex_free(nb_tok_regex *r);

/* A known pattern: it cuts every text into pieces without gaps. NULL for others. */
struct nb_tok_scan;
const struct nb_tok_scan *nb_tok_regex_scan(const nb_tok_regex *r);

/* State of a search through one text. */
typedef struct nb_tok_find {
    const nb_tok_regex *r;
    const char *p;
    size_t n, at, last; /* at: where the next search begins; last: end of the match before, SIZE_MAX: none */
    nb_tok_dfa_memo memo;
    void *data;         /* of PCRE2 */
} nb_tok_find;
nb_status nb_tok_find_init(nb_tok_find *f, const nb_tok_regex *r, const char *p, size_t n, nb_error *err);
/* Goes on with another text. */
void nb_tok_find_in(nb_tok_find *f, const char *p, size_t n);
/* The next match; *found false at the end. An empty match right behind a match does not count. NB_E_INVALID when the
 * pattern needs more than the limits allow. */
nb_status nb_tok_find_next(nb_tok_find *f, size_t *start, size_t *end, bool *found, nb_error *err);
void nb_tok_find_free(nb_tok_find *f);

#endif
