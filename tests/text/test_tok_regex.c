/* Patterns: the table of states finds what PCRE2 finds, and no search looks far ahead in vain again and again. */
#include "tok_testlib.h"

#include "text/tok_regex.h"
#include "text/unicode.h"

#include <time.h>

static uint32_t seed = 2463534242u;
static uint32_t draw(uint32_t n)
{
    seed ^= seed << 13, seed ^= seed >> 17, seed ^= seed << 5;
    return (uint32_t)((uint64_t)seed * n >> 32);
}

/* A random pattern over a small alphabet. */
static void random_pattern(nb_buf *b, int depth)
{
    static const char *const atoms[] = {"a", "b", "\\s", "\\S", "\\d", "[ab]", "[^a]", ".", "\\p{L}", "\\p{Lu}", "\xC3\xA9", "\xE4\xB8\xAD", "[\\p{L}&&[^a]]", "\\w", "(?i:b)", "(?m:.)", "\n", "1", "[^\\s\\p{L}\\p{N}]", "'"};
    static const char *const conditions[] = {"^", "$", "\\b", "\\B", "(?=a)", "(?!\\S)", "(?<=\\s)", "(?<!b)", "(?![ab])", "(?<=\xC3\xA9)", "(?=ab+)", "(?!a\\s|bb)", "(?=(a|b\\b)*$)", "(?=.{3})", "(?!(?:\\d{2})+(?!\\d))", "(?=\\n^b)"};
    static const char *const quantifiers[] = {"*", "+", "?", "*?", "+?", "??", "{2}", "{1,3}", "{2,}", "{0,2}?", "*+", "++", "?+"};
    uint32_t parts = 1 + draw(3);
    for (uint32_t i = 0; i < parts; i++) {
        uint32_t k = draw(12);
        if (k < 7 || depth == 0) nb_buf_add_cstr(b, atoms[draw(NB_COUNT(atoms))]);
        else if (k < 8) nb_buf_add_cstr(b, conditions[draw(NB_COUNT(conditions))]);
        else {
            nb_buf_add_cstr(b, draw(2) ? "(?:" : "(");
            for (uint32_t n = 1 + draw(3); n; n--) {
                random_pattern(b, depth - 1);
                if (n > 1) nb_buf_add_char(b, '|');
            }
            nb_buf_add_char(b, ')');
        }
        if (k != 7 && draw(2)) nb_buf_add_cstr(b, quantifiers[draw(NB_COUNT(quantifiers))]);
    }
}

static void random_text(nb_buf *b, uint32_t most)
{
    static const char *const parts[] = {"a", "b", "A", "B", " ", "  ", "\n", "\t", "1", "22", "\xC3\xA9", "\xC3\x89", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "'s", "-", "\xCC\x81", "\xC2\xA0", "aaa", "ab"};
    b->n = 0;
    for (uint32_t n = draw(most); n; n--) nb_buf_add_cstr(b, parts[draw(NB_COUNT(parts))]);
}

/* All matches as pairs of places; false where the search gives up. */
static bool all_matches(const nb_tok_regex *r, nb_str text, nb_buf *out)
{
    nb_tok_find f;
    size_t v[2];
    bool found;
    nb_status st = nb_tok_find_init(&f, r, text.p, text.n, NULL);
    out->n = 0;
    while (!st && !(st = nb_tok_find_next(&f, &v[0], &v[1], &found, NULL)) && found) nb_buf_add(out, v, sizeof v);
    nb_tok_find_free(&f);
    return !st;
}

static size_t compared, tables, texts;

/* The table, where the pattern has one, against PCRE2. */
static void compare(nb_str pattern, int rounds)
{
    nb_tok_regex *want = NULL, *got = NULL;
    nb_buf text = {0}, a = {0}, b = {0};
    if (nb_tok_regex_new_by(&want, pattern, NB_REGEX_PCRE, NULL)) return;
    compared++;
    tables += !nb_tok_regex_new_by(&got, pattern, NB_REGEX_TABLE, NULL);
    for (int i = 0; got && i < rounds; i++) {
        random_text(&text, 30);
        nb_str s = {text.n ? text.p : "", text.n};
        if (!all_matches(want, s, &a)) continue;
        texts++;
        assert_true(all_matches(got, s, &b));
        if (a.n != b.n || (a.n && memcmp(a.p, b.p, a.n))) fail_msg("pattern '%.*s', text '%.*s': %zu and %zu matches", NB_FMT_STR(pattern), NB_FMT_STR(s), a.n / 16, b.n / 16);
    }
    nb_tok_regex_free(want), nb_tok_regex_free(got);
    nb_buf_free(&text), nb_buf_free(&a), nb_buf_free(&b);
}

static void test_published(void **state)
{
    static const char *const patterns[] = {
        "\\s+", "\\p{L}+|\\p{N}", "[aeiou]", "\\w+|[^\\w\\s]+", "(?i)the|S", "^.", "$", "x*", "(?<=a)", "[\\p{Lu}&&[^A-F]]", "\\b", " {2,}", "[[:punct:]]+", "\\p{Han}|\\p{Greek}+", "^[> ]+|;$",
        "\\p{N}{1,3}", "[\xE4\xB8\x80-\xE9\xBE\xA5]+", "[0-9][0-9][0-9]", " ?[^(\\s|[.,!?])]+", "[^\\W\\d]+", "\\d+", ".", "a?b", "(a|ab)(c|bcd)?", "a*?b", "(?:a|b)*a", "(\\s|a)+$", "\\s+(?!\\S)|\\s+",
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s", "\\s++$", "a?+ab|a*+b", "(?:[ab])++(?=a)", "(?=(\\d{3})+(?!\\d))", "\\p{N}{1,3}(?=(?:\\p{N}{3})*\\b)", "\\s+(?=\\s[^\\s])", "a(?!ab)(?=a+$)", "(?!$)a*(?=ba|$)",
        "<\\|startoftext\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+", "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "\\p{L}+|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}",
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(patterns); i++) {
        size_t before = tables;
        compare(nb_str_of(patterns[i]), 400);
        if (tables == before) print_message("'%s' has no table\n", patterns[i]);
    }
    print_message("%zu patterns, %zu as tables, %zu texts\n", compared, tables, texts);
    assert_int_equal(compared, NB_COUNT(patterns));
    assert_int_equal(tables, compared);
}

static void test_random(void **state)
{
    nb_buf b = {0};
    (void)state;
    compared = tables = texts = 0;
    for (int i = 0; i < 700; i++) {
        b.n = 0;
        random_pattern(&b, 2);
        compare(nb_buf_str(&b), 40);
    }
    print_message("%zu random patterns, %zu as tables, %zu texts\n", compared, tables, texts);
    assert_true(tables > compared / 2);
    nb_buf_free(&b);
}

/* Rarer constructs, each with what a text becomes in the package when matches are replaced by "<>". */
static void test_constructs(void **state)
{
    static const struct { const char *pattern, *text, *want; } rows[] = {
        {"\\N+", "ab\ncd", "<>\n<>"},
        {"\\O{2}", "a\nbc", "<><>"},
        {"a\\Kb", "aabb", "aa<>b"},
        {"\\cA|\\C-b|\\c?", "a\x01""b\x02\x7F", "a<>b<><>"},
        {"\\o{101}|\\102", "ABC", "<><>C"},
        {"[\\101\\o{102}]", "ABC", "<><>C"},
        {"[\\18]", "8\x01", "<><>"},
        {"\\18", "8\x01""8", "8<>"},
        {"(?<n>a|b)\\k<n>", "abbaab", "a<><>b"},
        {"(b)?(?<n>a)\\k<n>", "baab", "<>b"},
        {"(?'x1'a)b\\k'x1'", "abab", "<>b"},
        {"(a)(b)\\k<-2>", "abaab", "<>ab"},
        {"(a)\\k<1>", "aaab", "<>ab"},
        {"\\i\\Q", "xiQ", "x<>"},
        {"[\\Q\\z]", "zQa", "<><>a"},
        {"\\pL", "pLx", "<>x"},
        {"(?i)[\xC3\x9F]", "ss \xC3\x9F \xE1\xBA\x9E Ss s", "<> <> <> <> s"},
        {"(?i)[s\xC3\x9F]{2}", "ss\xC3\x9F", "<>\xC3\x9F"},
        {"(?i)[^\xC3\x9F]+", "a\xC3\x9FSSb", "<>\xC3\x9F<>"},
        {"(?i)[a[^k]]", "kKa", "<><><>"},
        {"(?i)[^[^k]]", "kKa", "kKa"},
        {"(?i)[a-z&&[^k]]+", "akKb", "<>kK<>"},
        {"", "ab", "<>a<>b<>"},
        {"[&&a]", "a", "a"},
        {"(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)\\10", "abcdefghijjk", "<>k"},
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        nb_tok_regex *r = NULL;
        nb_buf found = {0}, out = {0};
        nb_error err = {0};
        nb_str text = nb_str_of(rows[i].text);
        if (nb_tok_regex_new(&r, nb_str_of(rows[i].pattern), &err)) fail_msg("'%s': %s", rows[i].pattern, err.text);
        assert_true(all_matches(r, text, &found));
        const size_t *v = (const size_t *)(const void *)found.p;
        size_t at = 0;
        for (size_t k = 0; k < found.n / 16; at = v[2 * k + 1], k++) {
            nb_buf_add(&out, text.p + at, v[2 * k] - at);
            nb_buf_add_cstr(&out, "<>");
        }
        nb_buf_add(&out, text.p + at, text.n - at);
        assert_string_equal(nb_buf_cstr(&out), rows[i].want);
        nb_tok_regex_free(r);
        nb_buf_free(&found), nb_buf_free(&out);
    }
}

/* What the package takes and nibble does not is refused with what it is. */
static void test_refused(void **state)
{
    static const struct { const char *pattern, *why; } rows[] = {
        {"\\X", "a border of grapheme clusters at byte 2"}, {"a\\y", "a border of grapheme clusters at byte 3"}, {"(?~ab)", "an unknown group at byte 3"}, {"(?W:\\w)", "an unknown group at byte 3"},
        {"\\p{Emoji}", "unknown property 'Emoji'"}, {"\\p{InBasicLatin}", "unknown property 'InBasicLatin'"}, {"(?<a>b)\\g<a>", "a call of a group at byte 9"}, {"(?<a>b)|(?<a>c)", "two groups of one name at byte 13"},
        {"(?i)(a)\\1", "a back reference under (?i) at byte 9"}, {"(?i)s(?:s)", "letters that fold to one, apart or as escapes, under (?i), at byte 9"}, {"(?i)\\x73s", "letters that fold to one, apart or as escapes, under (?i), at byte 9"},
        {"(?<n>a)(b)\\1", "a back reference by number where groups have names at byte 12"}, {"\\k<n>", "a back reference to no group at byte 5"}, {"(?<1>a)", "a group's name that does not begin with a letter at byte 5"},
        {"(?<n", "a group's name without an end at byte 4"}, {"\\M-a", "an unknown escape at byte 2"}, {"\\c", "an unknown control character at byte 2"}, {"\\o{9}", "a bad octal character at byte 3"}, {"\\377", "a single byte above 0x7f at byte 4"},
        {"(?<=a+)b", "PCRE2 refuses it: lookbehind assertion is not fixed length"},
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        nb_tok_regex *r = NULL;
        nb_error err = {0};
        assert_int_equal(nb_tok_regex_new(&r, nb_str_of(rows[i].pattern), &err), NB_E_UNSUPPORTED);
        assert_null(r);
        if (!strstr(err.text, rows[i].why)) fail_msg("'%s': %s", rows[i].pattern, err.text);
    }
}

static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* From every place each of these looks to the end of the text, and finds nothing or little. */
static void test_far_ahead(void **state)
{
    static const char *const patterns[] = {"a+$", "a*b", "a|a*b", "(?:a|aa)+b", "\\p{L}+1", "a{3,}?b|aa", "(?=(?:aaa)+b)", "a(?=a*$)"};
    (void)state;
    for (size_t i = 0; i < NB_COUNT(patterns); i++) {
        nb_tok_regex *r = NULL;
        nb_buf text = {0}, out = {0};
        assert_int_equal(nb_tok_regex_new_by(&r, nb_str_of(patterns[i]), NB_REGEX_TABLE, NULL), NB_OK);
        while (text.n < 300000) nb_buf_add_cstr(&text, "aaaaaaaa");
        nb_buf_add_cstr(&text, ".");
        uint64_t from = cpu_ns();
        assert_true(all_matches(r, nb_buf_str(&text), &out));
        uint64_t ns = cpu_ns() - from;
        print_message("'%s': %zu matches, %.1f MB/s\n", patterns[i], out.n / 16, (double)text.n * 1e3 / (double)ns);
        assert_true(ns < 2000000000u); /* quadratic would be a minute */
        nb_tok_regex_free(r);
        nb_buf_free(&text), nb_buf_free(&out);
    }
}

static int set_up(void **state)
{
    (void)state;
    nb_uni_init();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published), cmocka_unit_test(test_random), cmocka_unit_test(test_constructs), cmocka_unit_test(test_refused), cmocka_unit_test(test_far_ahead)};
    return cmocka_run_group_tests_name("patterns", tests, set_up, NULL);
}
