/* create/patterns: regular expressions that configs name modules with ("re:..." of compressed-tensors, "+:..." of
 * gptqmodel). Their syntax is Python's `re`, and they are matched as re.match does: at the beginning of the name, not
 * necessarily to its end. They come from outside: length, steps and memory are limited. Internal to src/create. */
#ifndef NB_CREATE_PATTERNS_H
#define NB_CREATE_PATTERNS_H

#include "base/base.h"

typedef struct nb_pattern nb_pattern;

/* NB_E_INVALID: what is wrong with the text, and where. The caller says whose text it is. */
nb_status nb_pattern_new(nb_pattern **out, nb_str text, nb_error *err);
void nb_pattern_free(nb_pattern *p); /* NULL is fine */
/* 1: it matches; 0: it does not; -1: it was given up, because it takes too many steps. */
int nb_pattern_match(const nb_pattern *p, nb_str name);

#endif
