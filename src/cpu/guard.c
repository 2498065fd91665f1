/* Debug builds: an allocation inside a forward is fatal, in any lane (design.md 6, rule 2). The allocator's entry
 * points are wrapped in front of glibc's own. Sanitizers bring their own allocator; there only the tests count. */
#include "cpu/exec.h"

#ifdef NB_DEBUG

static _Thread_local int guarded;

void nb_guard_on(void) { guarded++; }
void nb_guard_off(void) { guarded--; }

#if defined(__SANITIZE_ADDRESS__)
#define NB_OWN_ALLOCATOR 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NB_OWN_ALLOCATOR 1
#endif
#endif

#if defined(__GLIBC__) && !defined(NB_OWN_ALLOCATOR)
#define NB_WRAP __attribute__((visibility("default")))

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t n);
NB_WRAP void *malloc(size_t n);
NB_WRAP void *calloc(size_t count, size_t size);
NB_WRAP void *realloc(void *p, size_t n);

static void refuse(void)
{
    if (guarded) __builtin_trap();
}

void *malloc(size_t n)
{
    refuse();
    return __libc_malloc(n);
}

void *calloc(size_t count, size_t size)
{
    refuse();
    return __libc_calloc(count, size);
}

void *realloc(void *p, size_t n)
{
    refuse();
    return __libc_realloc(p, n);
}
#endif
#else
typedef int nb_guard_is_for_debug_builds;
#endif
