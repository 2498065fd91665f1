#include "run/stop.h"

void nb_stop_init(nb_stop *s, const char *const *strings, size_t n)
{
    memset(s, 0, sizeof *s);
    s->strings = strings;
    s->n = n;
}

void nb_stop_free(nb_stop *s) { nb_buf_free(&s->held); }

/* Offset of the stop string that is complete first, the longest of several; -1: none. By the end, not by the beginning,
 * so that the result does not depend on how the text was cut into pieces. */
static int64_t find_stop(const nb_stop *s)
{
    int64_t best = -1, best_end = 0;
    for (size_t i = 0; i < s->n; i++) {
        nb_str stop = nb_str_of(s->strings[i]);
        if (stop.n == 0) continue;
        int64_t at = nb_str_find(nb_buf_str(&s->held), stop, 0);
        int64_t end = at + (int64_t)stop.n;
        if (at < 0 || (best >= 0 && (end > best_end || (end == best_end && at > best)))) continue;
        best = at;
        best_end = end;
    }
    return best;
}

/* Length of the longest end of held that begins a stop string. */
static size_t held_back(const nb_stop *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n; i++) {
        nb_str stop = nb_str_of(s->strings[i]);
        size_t len = stop.n ? stop.n - 1 : 0;
        if (len > s->held.n) len = s->held.n;
        for (; len > most; len--)
            if (memcmp(s->held.p + s->held.n - len, stop.p, len) == 0) {
                most = len;
                break;
            }
    }
    return most;
}

static void release(nb_stop *s, size_t n, nb_buf *out)
{
    if (n == 0) return;
    nb_buf_add(out, s->held.p, n);
    memmove(s->held.p, s->held.p + n, s->held.n - n);
    s->held.n -= n;
}

void nb_stop_push(nb_stop *s, const char *text, size_t n, nb_buf *out)
{
    if (s->hit) return;
    nb_buf_add(&s->held, text, n);
    int64_t at = find_stop(s);
    if (at >= 0) {
        release(s, (size_t)at, out);
        s->held.n = 0;
        s->hit = true;
        return;
    }
    release(s, s->held.n - held_back(s), out);
}

void nb_stop_flush(nb_stop *s, nb_buf *out)
{
    if (!s->hit) release(s, s->held.n, out);
}
