/* text/unicode_tables: the shapes of the generated tables. Only unicode.c, tok_charset.c and the generated files include this. */
#ifndef NB_TEXT_UNICODE_TABLES_H
#define NB_TEXT_UNICODE_TABLES_H

#include "text/unicode.h"

/* Characters first, first + step, ... last map to `to`, to + step, ... */
typedef struct nb_uni_case { uint32_t first, last, step, to; } nb_uni_case;
typedef struct nb_uni_decomposition { uint32_t cp; uint16_t at; uint8_t len; } nb_uni_decomposition;

extern const uint32_t nb_uni_record_count;
extern const nb_uni_case nb_uni_lower[], nb_uni_fold[];
extern const uint32_t nb_uni_lower_count, nb_uni_fold_count;
extern const nb_uni_decomposition nb_uni_decompositions[];
extern const uint32_t nb_uni_decomposition_count;
extern const uint16_t nb_uni_decomposition_pool[];
extern const uint32_t nb_uni_decomposition_astral[];
extern const uint32_t nb_uni_compositions[][3];
extern const uint32_t nb_uni_composition_count;

#endif
