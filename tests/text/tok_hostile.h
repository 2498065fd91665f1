/* Made texts of 300 kB that make careless tokenizers quadratic: for the measuring program and for the test of the speed floors. */
#ifndef NB_TESTS_TOK_HOSTILE_H
#define NB_TESTS_TOK_HOSTILE_H

#include "text/tokenizer.h"

#include <stdlib.h>

enum { HOSTILE_BYTES = 300000 };

static inline uint32_t hostile_draw(uint64_t *s, uint32_t n)
{
    *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
    return (uint32_t)((*s >> 32) * n >> 32);
}

typedef struct hostile_span { uint32_t first, last; } hostile_span;
static inline void hostile_random_chars(nb_buf *b, const hostile_span *v, uint32_t n, uint32_t run)
{
    uint64_t seed = 88172645463325252u;
    while (b->n < HOSTILE_BYTES) {
        const hostile_span *s = &v[hostile_draw(&seed, n)];
        for (uint32_t k = 0; k < run; k++) nb_buf_add_cp(b, s->first + hostile_draw(&seed, s->last - s->first + 1));
    }
}

static inline void hostile_repeat(nb_buf *b, const char *unit)
{
    while (b->n < HOSTILE_BYTES) nb_buf_add_cstr(b, unit);
}

/* The tokenizer's own added tokens, whole and cut short. */
static inline void hostile_added_tokens(nb_buf *b, const nb_tokenizer *t)
{
    uint64_t seed = 362436069;
    uint32_t n = nb_tokenizer_size(t), count = 0, *id = calloc(n + 1, sizeof *id);
    for (uint32_t i = 0; id && i < n; i++)
        if (nb_tokenizer_is_added(t, (int32_t)i)) id[count++] = i;
    while (count && b->n < HOSTILE_BYTES) {
        nb_str s = nb_tokenizer_token(t, (int32_t)id[hostile_draw(&seed, count)]);
        if (hostile_draw(&seed, 3) == 0 && s.n > 1 && (uint8_t)s.p[s.n - 1] < 0x80) s.n--;
        nb_buf_add_str(b, s);
        if (!s.n) nb_buf_add_char(b, 'x');
    }
    free(id);
}

static const char *const hostile_kinds[] = {"letters", "one letter", "spaces", "newlines", "signs", "digits", "scripts", "ideographs", "marks", "emoji", "unknown", "words", "accents", "added"};

static inline void hostile_text(nb_buf *b, size_t kind, const nb_tokenizer *t)
{
    static const hostile_span lower = {'a', 'z'}, han = {0x4E00, 0x9FFF}, marks = {0x300, 0x34F}, unknown[] = {{0xE000, 0xF8FF}, {0x20000, 0x2A6DF}};
    static const hostile_span scripts[] = {{'a', 'z'}, {0x410, 0x44F}, {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3}, {0x627, 0x64A}, {0x905, 0x939}, {0x3041, 0x3096}, {0x1F600, 0x1F64F}};
    b->n = 0;
    switch (kind) {
    case 0: hostile_random_chars(b, &lower, 1, 1); break;
    case 1: hostile_repeat(b, "a"); break;
    case 2: hostile_repeat(b, " "); break;
    case 3: hostile_repeat(b, "\n"); break;
    case 4: hostile_repeat(b, "="); break;
    case 5: hostile_repeat(b, "1"); break;
    case 6: hostile_random_chars(b, scripts, NB_COUNT(scripts), 1); break;
    case 7: hostile_random_chars(b, &han, 1, 1); break;
    case 8: hostile_random_chars(b, &marks, 1, 1); break;
    case 9: hostile_repeat(b, "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7\xE2\x80\x8D"); break;
    case 10: hostile_random_chars(b, unknown, NB_COUNT(unknown), 1); break;
    case 11: hostile_repeat(b, "a "); break;
    case 12: hostile_repeat(b, "\xC3\xA9\xEF\xBD\x81\xEF\xAC\x81\xC4\xB0\xEA\xB0\x80"); break;
    default: hostile_added_tokens(b, t);
    }
}

#endif
