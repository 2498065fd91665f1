/* The Unicode tables against unicode.json of the test data (what each component of the published package says of every
 * code point) and normalisation against utf8proc. */
#include "tok_testlib.h"

#include "text/unicode.h"

#include <utf8proc.h>

static uint8_t *listed; /* by code point: in the range list that is being compared */

static void mark(const nb_json *v)
{
    int64_t a, b;
    memset(listed, 0, 0x110000);
    assert_non_null(v);
    for (uint32_t i = 0; i < v->count; i++) {
        assert_true(nb_json_i64(nb_json_at(&v->items[i], 0), &a) && nb_json_i64(nb_json_at(&v->items[i], 1), &b));
        for (int64_t c = a; c <= b; c++) listed[c] = 1;
    }
}

static void compare_flag(const nb_json *root, const char *key, uint32_t flag)
{
    size_t wrong = 0;
    mark(nb_json_get(root, key));
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        if (c == 0 && flag == NB_UF_BERT_GONE) continue; /* U+0000 is Cc too */
        if (nb_uni_is(c, flag) != listed[c] && ++wrong < 4) print_error("%s: U+%04X\n", key, c);
    }
    assert_int_equal(wrong, 0);
}

static void compare_lower(const nb_json *v)
{
    uint32_t *to = calloc(0x110000, 2 * sizeof *to), out[2];
    assert_non_null(v);
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t from, x;
        nb_json_i64(nb_json_at(&v->items[i], 0), &from);
        for (uint32_t k = 1; k < v->items[i].count && k < 3; k++) {
            nb_json_i64(nb_json_at(&v->items[i], k), &x);
            to[2 * from + k - 1] = (uint32_t)x;
        }
    }
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        size_t n = nb_uni_lowercase(c, out);
        assert_int_equal(out[0], to[2 * c] ? to[2 * c] : c);
        assert_int_equal(n, to[2 * c + 1] ? 2 : 1);
        if (n == 2) assert_int_equal(out[1], to[2 * c + 1]);
    }
    free(to);
}

/* Classes of the file and scripts of the tables must be the same partition. */
static void compare_scripts(const nb_json *v)
{
    int class_of[256], seen[256];
    memset(class_of, -1, sizeof class_of), memset(seen, -1, sizeof seen);
    uint16_t *class = malloc(0x110000 * sizeof *class);
    for (uint32_t c = 0; c < 0x110000; c++) class[c] = 0xFFFF;
    assert_non_null(v);
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t x[3];
        for (uint32_t k = 0; k < 3; k++) nb_json_i64(nb_json_at(&v->items[i], k), &x[k]);
        for (int64_t c = x[0]; c <= x[1]; c++) class[c] = (uint16_t)x[2];
    }
    for (uint32_t c = 0; c < 0x110000; c++) {
        if (c >= 0xD800 && c < 0xE000) continue;
        int s = nb_uni(c)->script9;
        if (class[c] == 0xFFFF) {
            assert_int_equal(s, 0);
            continue;
        }
        assert_int_not_equal(s, 0);
        if (class_of[s] < 0) class_of[s] = class[c];
        assert_int_equal(class_of[s], class[c]);
        if (seen[class[c] & 255] < 0) seen[class[c] & 255] = s;
        assert_int_equal(seen[class[c] & 255], s);
    }
    free(class);
}

static void test_classes(void **state)
{
    char dir[4096];
    nb_buf b = {0};
    nb_json_doc doc = {0};
    (void)state;
    nb_uni_init();
    snprintf(dir, sizeof dir, "%s/tokenizers/components", test_data());
    if (!read_data(&b, dir, "unicode.json")) {
        print_message("skipped: no unicode.json in %s\n", dir);
        skip();
    }
    assert_int_equal(nb_json_parse(&doc, b.p, b.n, "unicode.json", NULL, NULL), NB_OK);
    listed = malloc(0x110000);
    compare_flag(doc.root, "whitespace", NB_UF_WHITE);
    compare_flag(doc.root, "word", NB_UF_WORD);
    compare_flag(doc.root, "numeric", NB_UF_NUM17);
    compare_flag(doc.root, "punctuation", NB_UF_PUNCT8);
    compare_flag(doc.root, "bert_removed", NB_UF_BERT_GONE);
    compare_flag(doc.root, "bert_accents", NB_UF_MN8);
    compare_flag(doc.root, "strip_accents", NB_UF_MARK9);
    compare_lower(nb_json_get(doc.root, "lower"));
    compare_scripts(nb_json_get(doc.root, "script"));
    mark(nb_json_get(doc.root, "nf_unknown_marks"));
    for (uint32_t c = 0; c < 0x110000; c++) if (listed[c]) assert_int_equal(nb_uni(c)->ccc9, 0);
    mark(nb_json_get(doc.root, "nf_unknown_decompositions"));
    for (uint32_t c = 0; c < 0x110000; c++) if (listed[c]) assert_false(nb_uni_is(c, NB_UF_CANON | NB_UF_COMPAT));
    free(listed);
    nb_json_free(&doc);
    nb_buf_free(&b);
}

static bool emit(void *user, uint32_t cp, size_t from)
{
    (void)from;
    nb_buf_add_cp(user, cp);
    return true;
}

static void normalize(int form, const char *p, size_t n, nb_buf *out)
{
    nb_uni_scratch s = {0};
    out->n = 0;
    for (size_t at = 0, k; at < n; at += k) {
        k = nb_uni_normal_prefix(form, p + at, n - at);
        nb_buf_add(out, p + at, k);
        at += k;
        if (at == n) break;
        assert_true(nb_uni_normal_segment(form, p + at, n - at, &k, &s, emit, out));
    }
    nb_uni_scratch_free(&s);
}

/* utf8proc has later tables: characters that Unicode 9.0 lacked are left out of the texts. */
static void test_normalization(void **state)
{
    static const int options[] = {UTF8PROC_STABLE | UTF8PROC_COMPOSE, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                  UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    uint32_t pool[20000], n = 0, random = 12345;
    nb_buf got = {0}, text = {0};
    (void)state;
    nb_uni_init();
    for (uint32_t c = 0xA0; c < 0x30000 && n < NB_COUNT(pool); c++) {
        const nb_uni_record *r = nb_uni(c);
        bool known = r->ccc9 == utf8proc_get_property((utf8proc_int32_t)c)->combining_class;
        if (known && (r->ccc9 || (r->flags & (NB_UF_CANON | NB_UF_COMPAT | NB_UF_NFC_MAYBE)))) pool[n++] = c;
    }
    for (int i = 0; i < 40000; i++) {
        text.n = 0;
        for (int k = 0; k < 1 + i % 7; k++) {
            random = random * 1664525 + 1013904223;
            nb_buf_add_cp(&text, (random >> 8) % 5 == 0 ? 'a' + (random >> 12) % 26 : (random >> 8) % 5 == 1 ? 0xAC00 + (random >> 12) % 11172 : pool[(random >> 8) % n]);
        }
        nb_buf_cstr(&text);
        for (int form = 0; form < 4; form++) {
            utf8proc_uint8_t *want = NULL;
            assert_true(utf8proc_map((const utf8proc_uint8_t *)text.p, (utf8proc_ssize_t)text.n, &want, (utf8proc_option_t)options[form]) >= 0);
            normalize(form, text.p, text.n, &got);
            assert_string_equal(nb_buf_cstr(&got), (const char *)want);
            free(want);
        }
    }
    print_message("normalisation: 160,000 strings of %u characters equal to utf8proc\n", n);
    nb_buf_free(&got);
    nb_buf_free(&text);
}

/* What came after 9.0 is not touched: U+0898 is no mark, U+11935 U+11930 stay two. */
static void test_age(void **state)
{
    nb_buf got = {0};
    (void)state;
    nb_uni_init();
    normalize(NB_NFC, "a\xE0\xA2\x98\xCC\xA3", 6, &got);
    assert_string_equal(nb_buf_cstr(&got), "a\xE0\xA2\x98\xCC\xA3");
    normalize(NB_NFC, "\xF0\x91\xA4\xB5\xF0\x91\xA4\xB0", 8, &got);
    assert_int_equal(got.n, 8);
    normalize(NB_NFC, "\xE2\x84\xAB", 3, &got);
    assert_string_equal(nb_buf_cstr(&got), "\xC3\x85");
    nb_buf_free(&got);
}

static void test_graphemes(void **state)
{
    static const struct { const char *text; size_t first; } t[] = {
        {"ab", 1}, {"a\xCC\x81" "b", 3}, {"\r\n", 2}, {"\n\r", 1}, {"\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9x", 11}, {"\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA\xF0\x9F\x87\xA9", 8},
        {"\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8z", 9}, {"\xD8\x80" "1x", 3},
    };
    (void)state;
    nb_uni_init();
    for (size_t i = 0; i < NB_COUNT(t); i++) assert_int_equal(nb_uni_grapheme(t[i].text, strlen(t[i].text)), t[i].first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_classes), cmocka_unit_test(test_normalization), cmocka_unit_test(test_age), cmocka_unit_test(test_graphemes)};
    return cmocka_run_group_tests_name("unicode", tests, NULL, NULL);
}
