/* Clock and log callback. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

uint64_t nb_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Set by the program before it starts threads; read from any thread. */
static _Atomic(nb_log_fn *) log_fn;
static _Atomic(void *) log_user;

void nb_log_set(nb_log_fn *fn, void *user)
{
    atomic_store(&log_user, user);
    atomic_store(&log_fn, fn);
}

void nb_log(int level, const char *fmt, ...)
{
    nb_log_fn *fn = atomic_load(&log_fn);
    if (!fn) return;
    char raw[1024], line[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(raw, sizeof raw, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    nb_text_clean(line, sizeof line, raw, (size_t)n < sizeof raw ? (size_t)n : sizeof raw - 1);
    fn(atomic_load(&log_user), level, line);
}
