/* Growable byte buffer with a sticky out-of-memory mark. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

void nb_buf_free(nb_buf *b)
{
    free(b->p);
    *b = (nb_buf){.limit = b->limit};
}

bool nb_buf_reserve(nb_buf *b, size_t more)
{
    if (b->oom) return false;
    size_t need; /* with the NUL */
    if (__builtin_add_overflow(b->n, more, &need) || (b->limit && need > b->limit) || need >= SIZE_MAX / 2) {
        b->oom = true;
        return false;
    }
    need += 1;
    if (need <= b->cap) return true;
    size_t cap = b->cap + b->cap / 2;
    if (cap < need) cap = need;
    if (cap < 64) cap = 64;
    char *p = realloc(b->p, cap);
    if (!p) {
        b->oom = true;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void nb_buf_add(nb_buf *b, const void *p, size_t n)
{
    if (n == 0 || !nb_buf_reserve(b, n)) return;
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

void nb_buf_add_str(nb_buf *b, nb_str s) { nb_buf_add(b, s.p, s.n); }
void nb_buf_add_cstr(nb_buf *b, const char *s) { nb_buf_add(b, s, strlen(s)); }

void nb_buf_add_char(nb_buf *b, char c)
{
    if (!nb_buf_reserve(b, 1)) return;
    b->p[b->n++] = c;
}

void nb_buf_add_cp(nb_buf *b, uint32_t cp)
{
    char utf8[4];
    nb_buf_add(b, utf8, nb_utf8_encode(cp, utf8));
}

void nb_buf_printf(nb_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    /* A first try into what is there; only a longer text is formatted twice. */
    size_t room = b->oom ? 0 : b->cap - b->n;
    int n = vsnprintf(room ? b->p + b->n : NULL, room, fmt, ap);
    if (n < 0) {
        b->oom = true;
    } else if (nb_buf_reserve(b, (size_t)n)) {
        if ((size_t)n >= room) vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

const char *nb_buf_cstr(nb_buf *b)
{
    if (b->oom) return NULL;
    if (!b->p) return "";
    b->p[b->n] = '\0';
    return b->p;
}
