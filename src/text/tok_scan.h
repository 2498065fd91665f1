/* text/tok_scan: one parametrised scanner for the split patterns of published byte-level tokenizers. */
#ifndef NB_TEXT_TOK_SCAN_H
#define NB_TEXT_TOK_SCAN_H

#include "base/base.h"

typedef struct nb_tok_scan {
    uint8_t contraction; /* 0 none, 1 before words, lower case only, 2 before words, any case, 3 as suffix, any case */
    uint8_t letters;     /* 0 letters, 1 letters and marks, 2 by case (upper* lower+ | upper+ lower*) */
    uint8_t lead;        /* what may stand before letters: 0 a space, 1 all but CR LF L N, 2 all but CR LF L P S */
    uint8_t digits;      /* 0 none, 1 one, 3 up to three, 255 a run with a space before it */
    uint8_t punct;       /* 0 all but space L N, 1 all but space L M N, 2 P and S */
    uint8_t trail;       /* behind punctuation: 0 nothing, 1 CR LF, 2 CR LF and slash */
    uint8_t newlines;    /* 0 none, 1 a run of space up to its last CR or LF */
    uint8_t ascii_words; /* one ASCII punctuation character and ASCII letters first */
} nb_tok_scan;

/* Recognises a pattern as the alternatives that the scanner knows. */
bool nb_tok_scan_parse(nb_tok_scan *s, nb_str pattern);
/* End of the piece that begins at p[at], at < n. Valid UTF-8. */
size_t nb_tok_scan_next(const nb_tok_scan *s, const char *p, size_t at, size_t n);

#endif
