/* text/tok_charset: sets of characters as sorted ranges, for the classes of regular expressions. Unicode 16.0. */
#ifndef NB_TEXT_TOK_CHARSET_H
#define NB_TEXT_TOK_CHARSET_H

#include "base/base.h"

typedef struct nb_charset {
    struct nb_char_range { uint32_t first, last; } *r; /* sorted, apart; surrogates are never in */
    size_t n, cap;
    bool oom;
} nb_charset;

void nb_charset_free(nb_charset *s);
void nb_charset_add(nb_charset *s, uint32_t first, uint32_t last); /* any order; normalise before use */
void nb_charset_normalise(nb_charset *s);
void nb_charset_union(nb_charset *s, const nb_charset *other);
void nb_charset_intersect(nb_charset *s, const nb_charset *other);
void nb_charset_complement(nb_charset *s);
bool nb_charset_has(const nb_charset *s, uint32_t cp);
/* Adds every character that differs from a member only by case (simple folding). */
void nb_charset_fold(nb_charset *s);
/* Adds the characters of a property: a general category, a script, a binary property, a POSIX class. Where it stands
 * matters: [[:punct:]] has symbols, and Word has superscripts and fractions of Latin-1 only outside a class. False for
 * an unknown name. */
enum { NB_CHARSET_BARE, NB_CHARSET_IN_CLASS, NB_CHARSET_POSIX };
bool nb_charset_property(nb_charset *s, nb_str name, int where);

/* Keeps only characters that tables of 14.0 lack or have otherwise. */
void nb_charset_keep_after14(nb_charset *s);
/* Takes the characters of these general categories out. */
void nb_charset_without_categories(nb_charset *s, uint32_t gc);

#endif
