/* run/stop: stop strings found across token borders, without printing a part of one. specs/runner.md 2.6. */
#ifndef NB_RUN_STOP_H
#define NB_RUN_STOP_H

#include "base/base.h"

typedef struct nb_stop {
    const char *const *strings; /* NUL-terminated, the caller's; empty ones are ignored */
    size_t n;
    nb_buf held; /* text not yet printed: its end may begin a stop string */
    bool hit;
} nb_stop;

void nb_stop_init(nb_stop *s, const char *const *strings, size_t n);
void nb_stop_free(nb_stop *s);
/* Adds text and appends to out what may be printed now. On a hit text before the earliest stop string is printed, the
 * rest dropped, and s->hit set. */
void nb_stop_push(nb_stop *s, const char *text, size_t n, nb_buf *out);
/* Prints what is still held (end of the text without a hit). */
void nb_stop_flush(nb_stop *s, nb_buf *out);

#endif
