/* Shared by the tests of the format room: random numbers, hex, parts of a matrix in memory of their own. */
#ifndef NB_TEST_FORMAT_SUPPORT_H
#define NB_TEST_FORMAT_SUPPORT_H

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* needs the headers above */
#include <cmocka.h>

#include "format/kernels.h"

#if defined(__SANITIZE_ADDRESS__) || defined(NB_DEBUG) || defined(NB_TSAN)
#define SLOW_BUILD 1
#else
#define SLOW_BUILD 0
#endif

/* xorshift64*, and Gaussians by Box and Muller: fixed sequences, whatever the machine. */
typedef struct rng {
    uint64_t s;
} rng;
static inline uint64_t rng_u64(rng *r)
{
    r->s ^= r->s >> 12, r->s ^= r->s << 25, r->s ^= r->s >> 27;
    return r->s * 0x2545f4914f6cdd1dull;
}
static inline double rng_unit(rng *r) { return (double)((rng_u64(r) >> 11) + 1) * 0x1p-53; }
static inline int rng_int(rng *r, int n) { return (int)(rng_u64(r) >> 33) % n; }
static inline float rng_gauss(rng *r)
{
    return (float)(sqrt(-2 * log(rng_unit(r))) * cos(6.283185307179586 * rng_unit(r)));
}

static inline size_t unhex(const char *text, uint8_t *out)
{
    size_t n = 0;
    for (; *text; text++) {
        if (*text == ' ') continue;
        out[n++] = (uint8_t)strtoul((char[]){text[0], text[1], 0}, NULL, 16);
        text++;
    }
    return n;
}
static inline void assert_hex(const uint8_t *got, const char *text)
{
    uint8_t want[512];
    size_t n = unhex(text, want);
    assert_memory_equal(got, want, n);
}

/* Every file below a folder whose name ends with `suffix`, opened for reading. Returns how many there are. */
typedef void visit_fn(int fd, uint64_t size, const char *path);
static inline int visit_files(const char *folder, const char *suffix, int depth, visit_fn *fn)
{
    int found = 0;
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[1024];
        struct stat sb;
        if (e->d_name[0] == '.' || snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path ||
            stat(path, &sb))
            continue;
        if (S_ISDIR(sb.st_mode) && depth < 6) found += visit_files(path, suffix, depth + 1, fn);
        if (!S_ISREG(sb.st_mode) || !nb_str_ends(nb_str_of(path), suffix)) continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(fd >= 0);
        fn(fd, (uint64_t)sb.st_size, path);
        close(fd);
        found++;
    }
    if (d) closedir(d);
    return found;
}

/* Parts with their exact sizes (so that ASan sees every byte beyond) and, where pad is set, strides wider than the
 * rows. */
typedef struct matrix {
    nb_parts p;
    size_t c, s, b; /* row bytes */
    int64_t rows;
} matrix;
static inline matrix matrix_new(nb_qtype q, int64_t rows, int64_t k, size_t pad)
{
    matrix m = {.rows = rows};
    assert_true(nb_parts_row_bytes(q, k, &m.c, &m.s, &m.b));
    if (q.format == NB_FP8_CHANNEL) m.s = 4;
    if (q.format == NB_FP8_BLOCK) m.s = (size_t)(k + 127) / 128 * 4;
    m.p.code_stride = m.c + pad, m.p.scale_stride = m.s + pad, m.p.bias_stride = m.b + pad;
    m.p.codes = calloc((size_t)rows, m.p.code_stride);
    if (m.s) m.p.scales = calloc((size_t)rows, m.p.scale_stride);
    if (m.b) m.p.biases = calloc((size_t)rows, m.p.bias_stride);
    return m;
}
static inline void matrix_free(matrix *m) { free(m->p.codes), free(m->p.scales), free(m->p.biases); }
static inline int matrix_equal(const matrix *a, const matrix *b)
{
    for (int64_t r = 0; r < a->rows; r++) {
        size_t i = (size_t)r;
        if (memcmp(a->p.codes + i * a->p.code_stride, b->p.codes + i * b->p.code_stride, a->c)) return 0;
        if (a->s && memcmp(a->p.scales + i * a->p.scale_stride, b->p.scales + i * b->p.scale_stride, a->s)) return 0;
        if (a->b && memcmp(a->p.biases + i * a->p.bias_stride, b->p.biases + i * b->p.bias_stride, a->b)) return 0;
    }
    return 1;
}

#endif
