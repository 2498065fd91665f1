/* Arena: chunks, small ones from calloc and large ones from the kernel, handed out front to back, freed together.
 *
 * Memory is promised to be zero. A fresh chunk is (large ones come untouched from the kernel, so that zeroing costs
 * nothing until use); `dirty` is how far a chunk that survived a reset was used, and only that part is cleared again.
 */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { FIRST_CHUNK = 4096, LARGEST_CHUNK = 4 << 20, MAX_ALIGN = 4096, HUGE_PAGE = 2 << 20 };

void *nb_pages_new(size_t n)
{
    if (n == 0 || n > SIZE_MAX / 2) return NULL;
    size_t slack = n >= HUGE_PAGE ? HUGE_PAGE : 0;
    char *p = mmap(NULL, n + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!slack) return p;
    /* Give back what lies before the first border of 2 MiB, and the rest of the slack behind. */
    size_t before = (size_t)(-(uintptr_t)p & (HUGE_PAGE - 1)), whole = NB_ALIGN_UP(n, (size_t)MAX_ALIGN);
    if (before) munmap(p, before);
    munmap(p + before + whole, slack - before);
    madvise(p + before, n, MADV_HUGEPAGE);
    return p + before;
}

void nb_pages_free(void *p, size_t n)
{
    if (p) munmap(p, n);
}

typedef struct chunk {
    struct chunk *next; /* older chunk */
    char *p;            /* payload, owned */
    size_t cap, used, dirty;
} chunk;

struct nb_arena {
    chunk *head; /* the one handed out from; older ones follow */
    size_t limit, total, next_cap;
};

nb_arena *nb_arena_new(size_t limit)
{
    nb_arena *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->limit = limit;
    a->next_cap = FIRST_CHUNK;
    return a;
}

static void *payload_new(size_t cap) { return cap >= HUGE_PAGE ? nb_pages_new(cap) : calloc(1, cap); }

static void free_chunks(chunk *c)
{
    while (c) {
        chunk *next = c->next;
        if (c->cap >= HUGE_PAGE)
            nb_pages_free(c->p, c->cap);
        else
            free(c->p);
        free(c);
        c = next;
    }
}

void nb_arena_free(nb_arena *a)
{
    if (!a) return;
    free_chunks(a->head);
    free(a);
}

void nb_arena_reset(nb_arena *a)
{
    a->total = 0;
    if (!a->head) return;
    free_chunks(a->head->next);
    a->head->next = NULL;
    if (a->head->dirty < a->head->used) a->head->dirty = a->head->used;
    a->head->used = 0;
}

size_t nb_arena_used(const nb_arena *a) { return a->total; }

/* A new chunk with room for n bytes at any alignment. An object too large for the usual size gets a chunk of its own,
 * put behind the head so that the head's remaining room is not lost. */
static chunk *add_chunk(nb_arena *a, size_t n, size_t align)
{
    size_t need;
    if (__builtin_add_overflow(n, align, &need)) return NULL;
    bool own = a->head && need > a->next_cap / 2;
    size_t cap = own || need > a->next_cap ? need : a->next_cap;
    chunk *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->p = payload_new(cap);
    if (!c->p) {
        free(c);
        return NULL;
    }
    c->cap = cap;
    if (own) {
        c->next = a->head->next;
        a->head->next = c;
    } else {
        c->next = a->head;
        a->head = c;
    }
    /* Growth follows use, so that a small arena stays small and a large one makes few chunks. */
    if (a->next_cap < LARGEST_CHUNK) a->next_cap *= 2;
    return c;
}

/* Room left at this alignment? Then hands out n bytes, zeroed. */
static void *take(chunk *c, size_t n, size_t align)
{
    size_t pad = (size_t)(-(uintptr_t)(c->p + c->used) & (align - 1));
    size_t left = c->cap - c->used;
    if (pad > left || n > left - pad) return NULL;
    size_t start = c->used + pad;
    if (start < c->dirty) memset(c->p + start, 0, n < c->dirty - start ? n : c->dirty - start);
    c->used = start + n;
    return c->p + start;
}

void *nb_arena_alloc_aligned(nb_arena *a, size_t n, size_t align)
{
    if (align == 0 || (align & (align - 1)) || align > MAX_ALIGN) return NULL;
    if (n == 0) n = 1; /* a pointer of its own, so that callers can tell it from failure */
    size_t total;
    if (__builtin_add_overflow(a->total, n, &total) || (a->limit && total > a->limit)) return NULL;
    void *p = a->head ? take(a->head, n, align) : NULL;
    if (!p) {
        chunk *c = add_chunk(a, n, align);
        if (!c) return NULL;
        p = take(c, n, align);
    }
    a->total = total;
    return p;
}

void *nb_arena_alloc(nb_arena *a, size_t n) { return nb_arena_alloc_aligned(a, n, 16); }

void *nb_arena_array(nb_arena *a, size_t count, size_t size)
{
    size_t n;
    if (__builtin_mul_overflow(count, size, &n)) return NULL;
    return nb_arena_alloc(a, n);
}

bool nb_arena_grow(nb_arena *a, void *array, size_t n, size_t *cap, size_t size, size_t first)
{
    if (n < *cap) return true;
    size_t more = *cap ? *cap * 2 : first;
    void *old, *grown = more > n ? nb_arena_array(a, more, size) : NULL;
    if (!grown) return false;
    memcpy(&old, array, sizeof old);
    if (n) memcpy(grown, old, n * size);
    memcpy(array, &grown, sizeof grown);
    *cap = more;
    return true;
}

char *nb_arena_dup(nb_arena *a, const void *p, size_t n)
{
    if (n == SIZE_MAX) return NULL;
    char *copy = nb_arena_alloc_aligned(a, n + 1, 1);
    if (copy && n) memcpy(copy, p, n);
    return copy;
}

nb_str nb_arena_str(nb_arena *a, nb_str s)
{
    char *p = nb_arena_dup(a, s.p, s.n);
    return (nb_str){p, p ? s.n : 0};
}

char *nb_arena_printf(nb_arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = n < 0 ? NULL : nb_arena_alloc_aligned(a, (size_t)n + 1, 1);
    if (p) vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return p;
}
