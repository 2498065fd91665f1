/* base: errors, strings, buffers, arenas, map, log. */
#include "base/base.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* ---- errors ---- */

static void error_text_is_one_clean_line(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } row[] = {
        {"plain", "plain"},
        {"a\nb\tc\rd", "a?b?c?d"},
        {"\x1b[31mred", "?[31mred"},
        {"del\x7f", "del?"},
        {"\xc2\x9b"
         "31m",
         "?31m"}, /* C1: a one-character escape */
        {"\xff\xfe", "??"},
        {"caf\xc3\xa9 \xe4\xbd\xa0", "caf\xc3\xa9 \xe4\xbd\xa0"},
        {"\xed\xa0\x80", "???"}, /* surrogate */
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_error e;
        assert_int_equal(nb_fail(&e, NB_E_INVALID, "%s", row[i].in), NB_E_INVALID);
        assert_string_equal(e.text, row[i].out);
        assert_int_equal(e.status, NB_E_INVALID);
    }
    assert_int_equal(nb_fail(NULL, NB_E_USAGE, "nobody listens"), NB_E_USAGE);
}

static void error_text_is_cut_on_a_character_border(void **state)
{
    (void)state;
    for (int pad = 500; pad <= 600; pad++) {
        char text[2000];
        memset(text, 'x', (size_t)pad);
        strcpy(text + pad, "\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0\xe4\xbd\xa0 the end of a text that does not fit");
        nb_error e;
        nb_fail(&e, NB_E_FAILED, "%s", text);
        size_t n = strlen(e.text);
        assert_true(n <= 511 && n >= 508);
        assert_int_equal(nb_utf8_valid_prefix(e.text, n), n);
        assert_null(strchr(e.text, '?'));
    }
}

static void errno_gives_a_status(void **state)
{
    (void)state;
    static const struct {
        int e;
        nb_status status;
    } row[] = {{ENOSPC, NB_E_NO_SPACE},  {EDQUOT, NB_E_NO_SPACE}, {EFBIG, NB_E_NO_SPACE}, {ENOENT, NB_E_NOT_FOUND},
               {ENOMEM, NB_E_NO_MEMORY}, {EACCES, NB_E_IO},       {EIO, NB_E_IO}};
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_error e;
        assert_int_equal(nb_fail_errno(&e, row[i].e, "some/%s", "file"), row[i].status);
        assert_non_null(strstr(e.text, "some/file: "));
        assert_non_null(strstr(e.text, strerror(row[i].e)));
    }
    char path[1000];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    nb_error e;
    nb_fail_errno(&e, ENOENT, "%s", path);
    assert_non_null(strstr(e.text, strerror(ENOENT))); /* the reason survives a long path */
}

static void error_prefix_keeps_the_status(void **state)
{
    (void)state;
    nb_error e;
    nb_fail(&e, NB_E_NUMERIC, "value 7");
    nb_error_prefix(&e, "file %d", 3);
    assert_string_equal(e.text, "file 3: value 7");
    assert_int_equal(e.status, NB_E_NUMERIC);
    nb_error_prefix(NULL, "x");
    for (int s = 0; s <= NB_E_CONTEXT; s++) assert_string_not_equal(nb_status_name((nb_status)s), "unknown");
    assert_string_equal(nb_status_name((nb_status)99), "unknown");
}

/* ---- strings ---- */

static void strings_compare_and_search(void **state)
{
    (void)state;
    nb_str s = NB_LIT("hello world"), none = {0};
    assert_true(nb_str_starts(s, "hello") && !nb_str_starts(s, "world") && nb_str_starts(none, ""));
    assert_true(nb_str_ends(s, "world") && !nb_str_ends(s, "hello world!"));
    assert_true(nb_str_has(s, "o w") && !nb_str_has(s, "ow"));
    assert_int_equal(nb_str_find(s, NB_LIT("o"), 5), 7);
    assert_int_equal(nb_str_find(s, NB_LIT("o"), 8), -1);
    assert_int_equal(nb_str_find(s, NB_LIT(""), 11), 11);
    assert_int_equal(nb_str_find(s, NB_LIT("x"), 99), -1);
    assert_int_equal(nb_str_find(none, NB_LIT("x"), 0), -1);
    assert_true(nb_str_cmp(NB_LIT("a"), NB_LIT("ab")) < 0);
    assert_true(nb_str_cmp(NB_LIT("\xff"), NB_LIT("a")) > 0);
    assert_true(nb_str_cmp(none, none) == 0);
    assert_true(nb_str_eq(none, NB_LIT("")));
}

static void utf8_is_strict(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n, good;
    } row[] = {
        {"", 0, 0},
        {"abc", 3, 3},
        {"\xc3\xa9", 2, 2},
        {"\xe2\x82\xac", 3, 3},
        {"\xf0\x9f\x98\x80", 4, 4},
        {"\xc0\x80", 2, 0}, /* overlong NUL */
        {"\xc1\xbf", 2, 0},
        {"a\xe0\x9f\xbf", 4, 1}, /* overlong */
        {"\xe0\xa0\x80", 3, 3},
        {"\xed\x9f\xbf", 3, 3}, /* U+D7FF */
        {"\xed\xa0\x80", 3, 0}, /* U+D800 */
        {"\xee\x80\x80", 3, 3},
        {"\xf0\x8f\xbf\xbf", 4, 0}, /* overlong */
        {"\xf4\x8f\xbf\xbf", 4, 4}, /* U+10FFFF */
        {"\xf4\x90\x80\x80", 4, 0},
        {"\xf5\x80\x80\x80", 4, 0},
        {"\x80", 1, 0},
        {"\xe2\x82", 2, 0},
        {"\xf0\x9f\x98", 3, 0},
        {"\xc3", 1, 0},
        {"12345678\xff", 9, 8},
        {"1234567\xff", 8, 7},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++)
        assert_int_equal(nb_utf8_valid_prefix(row[i].bytes, row[i].n), row[i].good);
}

static void utf8_round_trip_of_every_character(void **state)
{
    (void)state;
    unsigned tried = 0;
    for (uint32_t cp = 0; cp <= 0x10ffff; cp++) {
        if (cp >= 0xd800 && cp <= 0xdfff) continue;
        char b[4];
        size_t len, n = nb_utf8_encode(cp, b);
        assert_int_equal(nb_utf8_decode(b, n, &len), cp);
        assert_int_equal(len, n);
        tried++;
    }
    size_t len;
    assert_int_equal(nb_utf8_decode("\xe2\x82", 2, &len), UINT32_MAX);
    assert_int_equal(len, 1);
    print_message("utf-8: %u characters\n", tried);
}

/* ---- buffers ---- */

static void buffer_grows_and_formats(void **state)
{
    (void)state;
    nb_buf b = {0};
    assert_string_equal(nb_buf_cstr(&b), "");
    char want[4000];
    size_t n = 0;
    for (int i = 0; i < 200; i++) {
        nb_buf_printf(&b, "%d,%s;", i, i % 3 ? "short" : "a somewhat longer piece of text");
        n += (size_t)snprintf(want + n, sizeof want - n, "%d,%s;", i,
                              i % 3 ? "short" : "a somewhat longer piece of text");
        if (n > 3900) break;
    }
    assert_string_equal(nb_buf_cstr(&b), want);
    nb_buf_add_cp(&b, 0x20ac);
    nb_buf_add(&b, "\0", 1);
    nb_buf_add_str(&b, NB_LIT("end"));
    assert_int_equal(b.n, n + 3 + 1 + 3);
    nb_buf_free(&b);
    assert_null(b.p);
}

static void buffer_limit_is_sticky(void **state)
{
    (void)state;
    nb_buf b = {.limit = 10};
    nb_buf_add_cstr(&b, "0123456789");
    assert_string_equal(nb_buf_cstr(&b), "0123456789");
    nb_buf_add_char(&b, 'x');
    assert_true(b.oom);
    nb_buf_printf(&b, "y");
    assert_null(nb_buf_cstr(&b));
    assert_int_equal(b.n, 10);
    nb_buf_free(&b);
    nb_buf c = {0};
    assert_false(nb_buf_reserve(&c, SIZE_MAX));
    assert_true(c.oom);
    nb_buf_free(&c);
}

/* ---- arenas ---- */

static void arena_gives_aligned_zeroed_memory(void **state)
{
    (void)state;
    nb_arena *a = nb_arena_new(0);
    assert_non_null(a);
    for (int round = 0; round < 3; round++) {
        size_t seed = 1;
        for (int i = 0; i < 2000; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t n = (seed >> 40) % (i % 100 == 0 ? 300000 : 200), align = (size_t)1 << ((seed >> 33) % 13);
            unsigned char *p = nb_arena_alloc_aligned(a, n, align);
            assert_non_null(p);
            assert_int_equal((uintptr_t)p % align, 0);
            for (size_t k = 0; k < n; k++) assert_int_equal(p[k], 0);
            memset(p, 0xa5, n);
        }
        nb_arena_reset(a);
        assert_int_equal(nb_arena_used(a), 0);
    }
    assert_null(nb_arena_alloc_aligned(a, 8, 3));
    assert_null(nb_arena_alloc_aligned(a, 8, 8192));
    assert_null(nb_arena_array(a, SIZE_MAX / 2, 3));
    assert_null(nb_arena_alloc(a, SIZE_MAX));
    assert_non_null(nb_arena_alloc(a, 0));
    assert_string_equal(nb_arena_printf(a, "%d-%s", 5, "x"), "5-x");
    assert_string_equal(nb_arena_str(a, NB_LIT("abc")).p, "abc");
    char *big = nb_arena_alloc(a, 9u << 20); /* huge pages */
    assert_non_null(big);
    big[0] = big[(9u << 20) - 1] = 1;
    nb_arena_free(a);
    nb_arena_free(NULL);
}

static void arena_arrays_grow(void **state)
{
    (void)state;
    nb_arena *a = nb_arena_new(2000);
    uint32_t *v = NULL;
    size_t cap = 0, n = 0;
    for (; n < 300 && nb_arena_grow(a, &v, n, &cap, sizeof *v, 5); n++) {
        assert_true(n < cap);
        v[n] = (uint32_t)n * 7;
    }
    assert_int_equal(n, 160); /* 5, 10, 20 ... 160: then the limit */
    for (size_t i = 0; i < n; i++) assert_int_equal(v[i], i * 7);
    assert_false(nb_arena_grow(a, &v, n, &cap, sizeof *v, 5)); /* and what was there stays */
    assert_int_equal(v[n - 1], (n - 1) * 7);
    cap = SIZE_MAX / 2 + 1;
    assert_false(nb_arena_grow(a, &v, cap, &cap, sizeof *v, 5)); /* twice as many is none */
    nb_arena_free(a);
}

static void arena_limit_holds(void **state)
{
    (void)state;
    nb_arena *a = nb_arena_new(1000);
    assert_non_null(nb_arena_alloc(a, 600));
    assert_null(nb_arena_alloc(a, 401));
    assert_non_null(nb_arena_alloc(a, 400));
    assert_null(nb_arena_alloc(a, 1));
    assert_int_equal(nb_arena_used(a), 1000);
    nb_arena_free(a);
}

static void pages_are_zero_and_aligned(void **state)
{
    (void)state;
    static const size_t size[] = {1, 4096, 4097, 2 << 20, (2 << 20) + 1, (5 << 20) + 123};
    for (size_t i = 0; i < NB_COUNT(size); i++) {
        char *p = nb_pages_new(size[i]);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (size[i] >= 2 << 20 ? 2 << 20 : 4096), 0);
        assert_int_equal(p[0] | p[size[i] - 1], 0);
        memset(p, 1, size[i]);
        nb_pages_free(p, size[i]);
    }
    assert_null(nb_pages_new(0));
    assert_null(nb_pages_new(SIZE_MAX));
    nb_pages_free(NULL, 5);
}

/* ---- checked arithmetic ---- */

static void arithmetic_is_checked(void **state)
{
    (void)state;
    uint64_t r = 7;
    assert_true(nb_add_u64(1, 2, &r) && r == 3);
    assert_false(nb_add_u64(UINT64_MAX, 1, &r));
    assert_int_equal(r, 3);
    assert_true(nb_mul_u64(1ull << 32, (1ull << 32) - 1, &r));
    assert_false(nb_mul_u64(1ull << 32, 1ull << 32, &r));
    assert_true(nb_align_u64(4097, 4096, &r) && r == 8192);
    assert_true(nb_align_u64(0, 16, &r) && r == 0);
    assert_false(nb_align_u64(UINT64_MAX - 3, 16, &r));
}

/* ---- map ---- */

static void map_keeps_what_is_put(void **state)
{
    (void)state;
    enum { N = 50000 };
    static char key[N][12];
    nb_map m;
    assert_true(nb_map_init(&m, 4));
    for (uint32_t i = 0; i < N; i++) {
        snprintf(key[i], sizeof key[i], "k%u", i);
        bool had = true;
        assert_true(nb_map_put(&m, nb_str_of(key[i]), i, &had, NULL));
        assert_false(had);
    }
    assert_int_equal(m.count, N);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t v = 0;
        assert_true(nb_map_get(&m, nb_str_of(key[i]), &v));
        assert_int_equal(v, i);
    }
    bool had = false;
    uint32_t old = 0;
    assert_true(nb_map_put(&m, NB_LIT("k17"), 99, &had, &old));
    assert_true(had && old == 17);
    assert_false(nb_map_get(&m, NB_LIT("absent"), NULL));
    assert_true(nb_map_put(&m, (nb_str){NULL, 0}, 5, NULL, NULL));
    assert_true(nb_map_get(&m, NB_LIT(""), &old) && old == 5);
    nb_map_free(&m);
    assert_false(nb_map_get(&m, NB_LIT("k1"), NULL));
    nb_map zero = {0};
    assert_true(nb_map_put(&zero, NB_LIT("a"), 1, NULL, NULL)); /* a zeroed map works */
    nb_map_free(&zero);
}

static void hash_depends_on_every_byte(void **state)
{
    (void)state;
    unsigned char b[40] = {0};
    for (size_t n = 0; n <= sizeof b; n++) {
        uint64_t h = nb_hash_bytes(b, n, 1);
        assert_int_equal(h, nb_hash_bytes(b, n, 1));
        assert_true(h != nb_hash_bytes(b, n, 2));
        for (size_t i = 0; i < n; i++) {
            b[i] ^= 1;
            assert_true(nb_hash_bytes(b, n, 1) != h);
            b[i] ^= 1;
        }
        if (n < sizeof b) assert_true(nb_hash_bytes(b, n + 1, 1) != h);
    }
}

/* ---- log ---- */

static char last_line[1100];
static int last_level;
static void keep(void *user, int level, const char *line)
{
    (*(int *)user)++;
    last_level = level;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void log_is_silent_until_set(void **state)
{
    (void)state;
    int calls = 0;
    nb_log(0, "nobody");
    nb_log_set(keep, &calls);
    nb_log(2, "two\n%s", "lines");
    nb_log_set(NULL, NULL);
    nb_log(0, "nobody");
    assert_int_equal(calls, 1);
    assert_int_equal(last_level, 2);
    assert_string_equal(last_line, "two?lines");
    uint64_t t = nb_now_ns();
    assert_true(nb_now_ns() >= t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_text_is_one_clean_line),
        cmocka_unit_test(error_text_is_cut_on_a_character_border),
        cmocka_unit_test(errno_gives_a_status),
        cmocka_unit_test(error_prefix_keeps_the_status),
        cmocka_unit_test(strings_compare_and_search),
        cmocka_unit_test(utf8_is_strict),
        cmocka_unit_test(utf8_round_trip_of_every_character),
        cmocka_unit_test(buffer_grows_and_formats),
        cmocka_unit_test(buffer_limit_is_sticky),
        cmocka_unit_test(arena_gives_aligned_zeroed_memory),
        cmocka_unit_test(arena_arrays_grow),
        cmocka_unit_test(arena_limit_holds),
        cmocka_unit_test(pages_are_zero_and_aligned),
        cmocka_unit_test(arithmetic_is_checked),
        cmocka_unit_test(map_keeps_what_is_put),
        cmocka_unit_test(hash_depends_on_every_byte),
        cmocka_unit_test(log_is_silent_until_set),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
