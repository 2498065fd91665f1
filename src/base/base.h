/* base: what every room may use. Errors, strings, buffers, arenas, checked arithmetic, hash map, clock. */
#ifndef NB_BASE_BASE_H
#define NB_BASE_BASE_H

#include "nibble.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NB_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define NB_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define NB_UNUSED __attribute__((unused))
#define NB_ALIGN_UP(x, a) (((x) + ((a) - 1)) / (a) * (a))

/* ---- errors ---- */

/* Writes status and one line of text into *err (err may be NULL) and returns the status, so that a function can
 * `return nb_fail(err, NB_E_INVALID, "%s: ...", path)`. Control characters become '?', text is cut at 511 bytes on
 * a character border. */
nb_status nb_fail(nb_error *err, nb_status status, const char *fmt, ...) NB_PRINTF(3, 4);
/* The same for a failed system call: ENOSPC, EDQUOT and EFBIG give NB_E_NO_SPACE, ENOENT NB_E_NOT_FOUND, ENOMEM NB_E_NO_MEMORY, else NB_E_IO; ": <strerror>" is appended. */
nb_status nb_fail_errno(nb_error *err, int errnum, const char *fmt, ...) NB_PRINTF(3, 4);
/* Puts "prefix: " before the text of an error already set; keeps its status. */
void nb_error_prefix(nb_error *err, const char *fmt, ...) NB_PRINTF(2, 3);
const char *nb_status_name(nb_status status);
/* Copies text of any origin as one clean line: control characters (C0, DEL, C1) and bad UTF-8 become '?', cut at cap - 1
 * bytes on a character border, NUL-terminated. Returns the length; cap must be at least 1. */
size_t nb_text_clean(char *dst, size_t cap, const char *src, size_t n);

/* ---- strings: a view of bytes, not NUL-terminated, not owned ---- */

typedef struct nb_str {
    const char *p;
    size_t n;
} nb_str;

#define NB_LIT(s) ((nb_str){(s), sizeof(s) - 1})
#define NB_FMT_STR(s) (int)(s).n, (s).p /* for "%.*s" */

static inline nb_str nb_str_of(const char *s) { return (nb_str){s, s ? strlen(s) : 0}; }
static inline bool nb_str_eq(nb_str a, nb_str b) { return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0); }
static inline bool nb_str_is(nb_str a, const char *b) { return nb_str_eq(a, nb_str_of(b)); }
bool nb_str_starts(nb_str s, const char *prefix);
bool nb_str_ends(nb_str s, const char *suffix);
bool nb_str_has(nb_str s, const char *part);
int nb_str_cmp(nb_str a, nb_str b);     /* byte order */
int64_t nb_str_find(nb_str s, nb_str part, size_t from); /* byte offset or -1 */
/* Strict UTF-8 (no overlongs, no surrogates, at most U+10FFFF). Returns the offset of the first bad byte, or n. */
size_t nb_utf8_valid_prefix(const char *p, size_t n);
/* Decodes one character at p[0..n), n > 0; sets *len to its bytes (1 for a bad byte) and returns the code point, or UINT32_MAX for a bad byte. */
uint32_t nb_utf8_decode(const char *p, size_t n, size_t *len);
/* Encodes a code point (at most 0x10FFFF) into out[4]; returns its length. */
size_t nb_utf8_encode(uint32_t cp, char out[4]);

/* ---- growable byte buffer, owned by whoever declares it; zero-initialised is empty ---- */

typedef struct nb_buf {
    char *p;
    size_t n, cap;
    size_t limit; /* 0: none. Growth beyond it fails like memory exhaustion */
    bool oom;     /* sticky: once set, appends do nothing; check once at the end */
} nb_buf;

void nb_buf_free(nb_buf *b);
bool nb_buf_reserve(nb_buf *b, size_t more); /* room for `more` bytes and a NUL */
void nb_buf_add(nb_buf *b, const void *p, size_t n);
void nb_buf_add_str(nb_buf *b, nb_str s);
void nb_buf_add_cstr(nb_buf *b, const char *s);
void nb_buf_add_char(nb_buf *b, char c);
void nb_buf_add_cp(nb_buf *b, uint32_t cp); /* as UTF-8 */
void nb_buf_printf(nb_buf *b, const char *fmt, ...) NB_PRINTF(2, 3);
/* NUL-terminates (not counted in n) and returns p; "" where nothing was added. NULL after oom. */
const char *nb_buf_cstr(nb_buf *b);
static inline nb_str nb_buf_str(const nb_buf *b) { return (nb_str){b->p, b->n}; }

/* ---- arena: memory with one owner, freed at once ---- */

typedef struct nb_arena nb_arena;
/* limit: most bytes handed out in all, 0 for none. NULL when memory is out. */
nb_arena *nb_arena_new(size_t limit);
void nb_arena_free(nb_arena *a); /* NULL is fine */
void nb_arena_reset(nb_arena *a); /* everything handed out becomes invalid; keeps one chunk */
size_t nb_arena_used(const nb_arena *a);
/* Zeroed memory, aligned to 16 (or to `align`, a power of two up to 4096). NULL when memory is out or the limit is reached. n == 0 gives a valid pointer. */
void *nb_arena_alloc(nb_arena *a, size_t n);
void *nb_arena_alloc_aligned(nb_arena *a, size_t n, size_t align);
/* count * size with overflow check. */
void *nb_arena_array(nb_arena *a, size_t count, size_t size);
/* Room for one element more behind n: `array` is the address of a pointer to *cap elements of `size` bytes, which moves
 * when it is full (to `first` elements the first time, then to twice as many). false when memory is out. */
bool nb_arena_grow(nb_arena *a, void *array, size_t n, size_t *cap, size_t size, size_t first);
char *nb_arena_dup(nb_arena *a, const void *p, size_t n); /* n bytes and a NUL */
nb_str nb_arena_str(nb_arena *a, nb_str s);                /* p is NULL when memory is out */
char *nb_arena_printf(nb_arena *a, const char *fmt, ...) NB_PRINTF(2, 3);
#define NB_NEW(arena, type) ((type *)nb_arena_alloc((arena), sizeof(type)))
#define NB_NEW_N(arena, type, count) ((type *)nb_arena_array((arena), (count), sizeof(type)))

/* Zeroed memory straight from the kernel, aligned to a page; from 2 MiB on it is aligned to 2 MiB and asks for huge pages.
 * NULL when memory is out. Give nb_pages_free the same n. */
void *nb_pages_new(size_t n);
void nb_pages_free(void *p, size_t n); /* NULL is fine */

/* ---- checked arithmetic: false on overflow, *out untouched then ---- */

static inline bool nb_add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
static inline bool nb_mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) return false;
    *out = r;
    return true;
}
/* a up to the next multiple of `align` (> 0). */
static inline bool nb_align_u64(uint64_t a, uint64_t align, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, align - 1, &r)) return false;
    *out = r / align * align;
    return true;
}

/* ---- little-endian loads and stores at any alignment, and bits of floats ---- */

static inline uint16_t nb_load_u16(const void *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static inline uint32_t nb_load_u32(const void *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t nb_load_u64(const void *p) { uint64_t v; memcpy(&v, p, 8); return v; }
static inline void nb_store_u16(void *p, uint16_t v) { memcpy(p, &v, 2); }
static inline void nb_store_u32(void *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void nb_store_u64(void *p, uint64_t v) { memcpy(p, &v, 8); }
static inline uint32_t nb_bits_f32(float f) { uint32_t v; memcpy(&v, &f, 4); return v; }
static inline float nb_f32_bits(uint32_t v) { float f; memcpy(&f, &v, 4); return f; }

/* ---- hash map from byte strings to uint32 values. Keys are not copied: they must outlive the map ---- */

typedef struct nb_map {
    struct nb_map_slot { const char *key; uint32_t len, hash, value, used; } *slot;
    size_t cap, count;
} nb_map;

bool nb_map_init(nb_map *m, size_t expected); /* false: memory */
void nb_map_free(nb_map *m);
/* Sets key to value; returns false when memory is out. *old (may be NULL) gets the former value, *had whether there was one. */
bool nb_map_put(nb_map *m, nb_str key, uint32_t value, bool *had, uint32_t *old);
bool nb_map_get(const nb_map *m, nb_str key, uint32_t *value);
uint64_t nb_hash_bytes(const void *p, size_t n, uint64_t seed);
/* A random number drawn once per process, for hash tables whose keys a stranger may choose. Not for anything that is kept. */
uint64_t nb_hash_seed(void);

/* ---- time ---- */
uint64_t nb_now_ns(void); /* monotonic */

/* ---- log: a callback set by the program; silent by default. level 0 error, 1 warning, 2 notice, 3 debug. Thread safe as the callback is ---- */
typedef void nb_log_fn(void *user, int level, const char *line);
void nb_log_set(nb_log_fn *fn, void *user);
void nb_log(int level, const char *fmt, ...) NB_PRINTF(2, 3);

#endif
