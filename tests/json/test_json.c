/* json: what is accepted, what is refused and where, values, building, writing, speed. */
#include "json/json.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static nb_json_doc parse(const char *text)
{
    nb_json_doc d;
    nb_error e;
    nb_status st = nb_json_parse(&d, text, strlen(text), "test", NULL, &e);
    if (st) print_message("%s\n", e.text);
    assert_int_equal(st, NB_OK);
    return d;
}

/* ---- grammar ---- */

static void good_texts_come_back_as_they_were(void **state)
{
    (void)state;
    /* Written compactly, each gives itself (or the second text). */
    static const struct {
        const char *in, *out;
    } row[] = {
        {"null", NULL},
        {"true", NULL},
        {"false", NULL},
        {"0", NULL},
        {"-0", NULL},
        {"1.0", NULL},
        {"1e3", NULL},
        {"1E+3", NULL},
        {"-1.5e-10", NULL},
        {"12345678901234567890", NULL},
        {"123456789012345678901234567890", NULL},
        {"\"\"", NULL},
        {"[]", NULL},
        {"{}", NULL},
        {"[[],{}]", NULL},
        {"[1,2,[3,[4]]]", NULL},
        {"{\"b\":1,\"a\":{\"z\":null,\"y\":[true,false]}}", NULL},
        {" [ 1 , 2 ]\r\n\t", "[1,2]"},
        {"{ \"a\" : 1 , \"b\" : [ ] }", "{\"a\":1,\"b\":[]}"},
        {"\"\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"", "\"A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\""},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
        {"\"\\u0000\\u001f\\u007f\"", "\"\\u0000\\u001f\x7f\""},
        {"\"a string of more than sixteen bytes \xc3\xa9 and then some \\n more of it\"", NULL},
        {"{\"\":1}", NULL},
        {"{\"k\\u0065y\":1}", "{\"key\":1}"},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_json_doc d = parse(row[i].in);
        nb_buf b = {0};
        nb_json_write(&b, d.root, NB_JSON_COMPACT);
        assert_string_equal(nb_buf_cstr(&b), row[i].out ? row[i].out : row[i].in);
        nb_buf_free(&b);
        nb_json_free(&d);
    }
}

static void bad_texts_are_refused_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *in, *what; /* part of the message; "L:C" is the place */
        int line, column;
    } row[] = {
        {"", "unexpected end", 1, 1},
        {"  ", "unexpected end", 1, 3},
        {"[1,]", "expected a value", 1, 4},
        {"[1 2]", "expected ','", 1, 4},
        {"[", "unexpected end", 1, 2},
        {"{", "unexpected end", 1, 2},
        {"[1", "unexpected end", 1, 3},
        {"]", "expected a value", 1, 1},
        {"[1}", "expected ',' or ']'", 1, 3},
        {"{\"a\":1]", "expected ',' or '}'", 1, 7},
        {"{\"a\"}", "expected ':'", 1, 5},
        {"{\"a\":}", "expected a value", 1, 6},
        {"{\"a\":1,}", "expected a key", 1, 8},
        {"{a:1}", "expected a key", 1, 2},
        {"{1:1}", "expected a key", 1, 2},
        {"{,}", "expected a key", 1, 2},
        {"[,]", "expected a value", 1, 2},
        {"01", "malformed number", 1, 2},
        {"-", "unexpected end", 1, 2},
        {"-a", "malformed number", 1, 2},
        {"1.", "unexpected end", 1, 3},
        {"1.e3", "malformed number", 1, 3},
        {".5", "expected a value", 1, 1},
        {"+1", "expected a value", 1, 1},
        {"1e", "unexpected end", 1, 3},
        {"1e+", "unexpected end", 1, 4},
        {"00", "malformed number", 1, 2},
        {"-01", "malformed number", 1, 3},
        {"0x10", "text after", 1, 2},
        {"NaN", "expected a value", 1, 1},
        {"Infinity", "expected a value", 1, 1},
        {"-Infinity", "malformed number", 1, 2},
        {"nul", "expected a value", 1, 1},
        {"True", "expected a value", 1, 1},
        {"tru", "expected a value", 1, 1},
        {"nullx", "text after", 1, 5},
        {"1 2", "text after", 1, 3},
        {"[] []", "text after", 1, 4},
        {"// c\n1", "expected a value", 1, 1},
        {"[1,/**/2]", "expected a value", 1, 4},
        {"'a'", "expected a value", 1, 1},
        {"\"abc", "without end", 1, 1},
        {"\"abc\\\"", "without end", 1, 1},
        {"\"abc\\", "without end", 1, 1},
        {"\"a\nb\"", "control character", 1, 3},
        {"\"a\tb\"", "control character", 1, 3},
        {"\"\x01\"", "control character", 1, 2},
        {"\"\\x\"", "unknown escape", 1, 2},
        {"\"\\u12\"", "four hexadecimal", 1, 2},
        {"\"\\u12g4\"", "four hexadecimal", 1, 2},
        {"\"ab\\ud800\"", "surrogate", 1, 4},
        {"\"\\udc00\"", "surrogate", 1, 2},
        {"\"\\ud800\\u0041\"", "surrogate", 1, 2},
        {"\"\\ud800\\ud800\"", "surrogate", 1, 2},
        {"\"\xff\"", "UTF-8", 1, 2},
        {"\"\xc0\x80\"", "UTF-8", 1, 2},
        {"\"\xed\xa0\x80\"", "UTF-8", 1, 2},
        {"\"\xe2\x82\"", "UTF-8", 1, 2},
        {"\"\\\xc3\xa9\"", "unknown escape", 1, 2},
        {"\xef\xbb\xbf{}", "byte order mark", 1, 1},
        {"{\n  \"a\": 1,\n  \"b\": x\n}", "expected a value", 3, 8},
        {"[\"\xc3\xa9\xe2\x82\xac\", x]", "expected a value", 1, 8},
        {"\xa0"
         "1",
         "expected a value", 1, 1},
        {"\f1", "expected a value", 1, 1},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_json_doc d;
        nb_error e = {0};
        char place[64];
        assert_int_equal(nb_json_parse(&d, row[i].in, strlen(row[i].in), "x.json", NULL, &e), NB_E_INVALID);
        snprintf(place, sizeof place, "x.json: line %d, column %d: ", row[i].line, row[i].column);
        if (strncmp(e.text, place, strlen(place)) || !strstr(e.text, row[i].what))
            fail_msg("%s -> %s", row[i].in, e.text);
        assert_null(d.arena);
        nb_json_free(&d);
    }
    print_message("json: %zu bad texts\n", NB_COUNT(row));
}

/* Every prefix of a text, in memory of exactly its size so that a read beyond it is seen by ASan. */
static void truncated_texts_are_refused(void **state)
{
    (void)state;
    static const char text[] = "{\"a string key of some length\":[1.5e-3,true,false,null,\"\\ud83d\\ude00 "
                               "\xe4\xbd\xa0\"],\"\\n\":{\"x\":-12}}";
    for (size_t n = 0; n < sizeof text - 1; n++) {
        char *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, text, n);
        nb_json_doc d;
        assert_int_equal(nb_json_parse(&d, copy, n, NULL, NULL, NULL), NB_E_INVALID);
        free(copy);
    }
    nb_json_doc d = parse(text);
    nb_json_free(&d);
}

static void limits_hold(void **state)
{
    (void)state;
    nb_error e;
    nb_json_doc d;
    char deep[4100];
    for (size_t depth = 1; depth <= 2000; depth += depth < 70 ? 1 : 97) {
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        nb_status st = nb_json_parse(&d, deep, 2 * depth, "deep", NULL, &e);
        assert_int_equal(st, depth <= 64 ? NB_OK : NB_E_INVALID);
        nb_json_free(&d);
        st = nb_json_parse(&d, deep, 2 * depth, "deep", &(nb_json_limits){.depth = 5000}, &e);
        assert_int_equal(st, depth <= 1000 ? NB_OK : NB_E_INVALID);
        if (st) assert_non_null(strstr(e.text, "nested too deeply"));
        nb_json_free(&d);
    }
    assert_int_equal(nb_json_parse(&d, "[1,2]", 5, "x", &(nb_json_limits){.max_bytes = 4}, &e), NB_E_INVALID);
    assert_int_equal(nb_json_parse(&d, "[\"abc\"]", 7, "x", &(nb_json_limits){.max_string = 2}, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "longer than allowed"));
    assert_int_equal(nb_json_parse(&d, "{\"abc\":1}", 9, "x", &(nb_json_limits){.max_string = 2}, &e), NB_E_INVALID);
    assert_int_equal(nb_json_parse(&d, "[\"abc\"]", 7, "x", &(nb_json_limits){.max_string = 3}, &e), NB_OK);
    nb_json_free(&d);
}

static void flags_do_what_they_say(void **state)
{
    (void)state;
    nb_error e;
    nb_json_doc d;
    assert_int_equal(nb_json_parse(&d, "{}\0\0 \0", 6, "x", NULL, &e), NB_E_INVALID);
    assert_int_equal(nb_json_parse(&d, "{}\0\0 \0", 6, "x", &(nb_json_limits){.flags = NB_JSON_TRAILING_NUL}, &e),
                     NB_OK);
    nb_json_free(&d);
    nb_json_limits lone = {.flags = NB_JSON_LONE_SURROGATES};
    const char *s = "[\"\\ud800\",\"\\udfffx\",\"\\ud800\\ud83d\\ude00\"]";
    assert_int_equal(nb_json_parse(&d, s, strlen(s), "x", &lone, &e), NB_OK);
    assert_int_equal(d.lone_surrogates, 3);
    assert_true(nb_str_is(nb_json_at(d.root, 0)->text, "\xef\xbf\xbd"));
    assert_true(nb_str_is(nb_json_at(d.root, 2)->text, "\xef\xbf\xbd\xf0\x9f\x98\x80"));
    nb_json_free(&d);
    char text[] = "{\"key\":\"value\"}";
    assert_int_equal(nb_json_parse(&d, text, strlen(text), "x", &(nb_json_limits){.flags = NB_JSON_COPY}, &e), NB_OK);
    memset(text, 'x', sizeof text - 1);
    assert_true(nb_str_is(nb_json_get(d.root, "key")->text, "value"));
    nb_json_free(&d);
}

static void duplicate_keys(void **state)
{
    (void)state;
    nb_error e;
    nb_json_doc d = parse("{\"a\":1,\"b\":2,\"a\":3,\"\\u0061\":4}");
    nb_buf b = {0};
    nb_json_write(&b, d.root, 0);
    assert_string_equal(nb_buf_cstr(&b), "{\"a\":4,\"b\":2}"); /* first place, last value */
    assert_int_equal(d.duplicate_keys, 2);
    nb_json_free(&d);
    nb_json_limits unique = {.flags = NB_JSON_UNIQUE_KEYS};
    const char *s = "{\"x\":{\"a\":1,\n\"a\":3}}";
    assert_int_equal(nb_json_parse(&d, s, strlen(s), "x", &unique, &e), NB_E_INVALID);
    assert_string_equal(e.text, "x: line 2, column 5: key \"a\" occurs twice");
    /* The same in an object large enough for an index, with a key that needs cleaning in the message. */
    b.n = 0;
    nb_buf_add_char(&b, '{');
    for (int i = 0; i < 1000; i++) nb_buf_printf(&b, "\"k%d\":%d,", i % 990, i);
    nb_buf_add_cstr(&b, "\"end\":0}");
    assert_int_equal(nb_json_parse(&d, b.p, b.n, "x", NULL, &e), NB_OK);
    assert_int_equal(d.duplicate_keys, 10);
    assert_int_equal(d.root->count, 991);
    for (int i = 0; i < 990; i++) {
        char key[16];
        int64_t v = -1;
        snprintf(key, sizeof key, "k%d", i);
        assert_true(nb_json_i64(nb_json_get(d.root, key), &v));
        assert_int_equal(v, i < 10 ? 990 + i : i);
        assert_true(nb_str_is(d.root->keys[i], key));
    }
    nb_json_free(&d);
    assert_int_equal(nb_json_parse(&d, b.p, b.n, "x", &unique, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "key \"k0\" occurs twice"));
    nb_buf_free(&b);
}

/* ---- arrays that are handed over ---- */

static void note_begin(void *user) { ((nb_buf *)user)->n = 0; }
static void note_member(void *user, const nb_json *v)
{
    nb_json_write(user, v, NB_JSON_COMPACT);
    nb_buf_add_char(user, ' ');
}

static void a_streamed_array_is_handed_over(void **state)
{
    (void)state;
    static const struct {
        const char *path, *text, *members, *rest;
    } row[] = {
        {"a.b", "{\"a\":{\"x\":[1],\"b\":[1,\"s\",[2,[3],{\"a\":{\"b\":[4]}}],[],{},{\"k\":[5,6]}]},\"b\":[7]}",
         "1 \"s\" [2,[3],{\"a\":{\"b\":[4]}}] [] {} {\"k\":[5,6]} ", "{\"a\":{\"x\":[1],\"b\":[]},\"b\":[7]}"},
        {"a", "{\"a\":[1,2],\"a\":[[\"\\u0061\",\"b\"]]}", "[\"a\",\"b\"] ", "{\"a\":[]}"}, /* the later counts */
        {"a", "{\"a\":[1],\"a\":2}", "1 ", "{\"a\":2}"},
        {"a", "{\"a\":[[[],[]],[]]}", "[[],[]] [] ", "{\"a\":[]}"},
        {"a.b", "{\"a\":[{\"b\":[1]}],\"a.b\":[2],\"ab\":{\"b\":[3]}}", "", "{\"a\":[{\"b\":[1]}],\"a.b\":[2],\"ab\":{\"b\":[3]}}"},
        {"a", "{\"a\":{\"b\":[1]},\"b\":{\"a\":[2]}}", "", "{\"a\":{\"b\":[1]},\"b\":{\"a\":[2]}}"},
        {"a", "[1]", "", "[1]"},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_buf members = {0}, rest = {0};
        nb_json_doc d;
        nb_error e;
        nb_json_stream stream = {row[i].path, note_begin, note_member, &members};
        assert_int_equal(nb_json_parse(&d, row[i].text, strlen(row[i].text), "x", &(nb_json_limits){.stream = &stream}, &e), NB_OK);
        nb_json_write(&rest, d.root, NB_JSON_COMPACT);
        assert_string_equal(members.n ? nb_buf_cstr(&members) : "", row[i].members);
        assert_string_equal(nb_buf_cstr(&rest), row[i].rest);
        nb_buf_free(&members), nb_buf_free(&rest);
        nb_json_free(&d);
    }
}

/* The stack on which they wait grows meanwhile. */
static void a_streamed_array_may_be_long(void **state)
{
    (void)state;
    nb_buf b = {0}, members = {0}, want = {0};
    nb_json_doc d;
    nb_error e;
    nb_buf_add_cstr(&b, "{\"a\":[");
    for (int i = 1; i < 300; i++) {
        size_t from = b.n;
        nb_buf_add_cstr(&b, "[");
        for (int k = 0; k < i; k++) nb_buf_printf(&b, "%s%d", k ? "," : "", k);
        nb_buf_add_cstr(&b, "]");
        nb_buf_printf(&want, "%.*s ", (int)(b.n - from), b.p + from);
        nb_buf_add_cstr(&b, i < 299 ? "," : "]}");
    }
    nb_json_stream stream = {"a", note_begin, note_member, &members};
    assert_int_equal(nb_json_parse(&d, b.p, b.n, "x", &(nb_json_limits){.stream = &stream}, &e), NB_OK);
    assert_true(nb_str_eq(nb_buf_str(&members), nb_buf_str(&want)));
    nb_buf_free(&b), nb_buf_free(&members), nb_buf_free(&want);
    nb_json_free(&d);
}

/* ---- look-ups and spans ---- */

static void values_know_their_source(void **state)
{
    (void)state;
    const char *text = " { \"a\" : [ 10 , \"x\\n\" ] , \"b\" : { \"c\" : 1.50 } } ";
    nb_json_doc d = parse(text);
    const nb_json *a = nb_json_get(d.root, "a"), *c = nb_json_path(d.root, "b.c");
    assert_true(strncmp(text + a->src_off, "[ 10 , \"x\\n\" ]", a->src_len) == 0 && a->src_len == 14);
    assert_true(strncmp(text + c->src_off, "1.50", c->src_len) == 0 && c->src_len == 4);
    const nb_json *x = nb_json_at(a, 1);
    assert_true(strncmp(text + x->src_off, "\"x\\n\"", x->src_len) == 0 && x->src_len == 5);
    assert_int_equal(d.root->src_off, 1);
    assert_int_equal(d.root->src_len, strlen(text) - 2);
    assert_null(nb_json_path(d.root, "b.d"));
    assert_null(nb_json_path(d.root, "a.c"));
    assert_null(nb_json_path(d.root, "x.c"));
    assert_null(nb_json_at(a, 2));
    assert_null(nb_json_at(d.root, 0));
    assert_null(nb_json_get(NULL, "a"));
    assert_null(nb_json_get(a, "a"));
    assert_false(nb_json_present(NULL));
    nb_json_free(&d);
}

typedef struct reader {
    const nb_json *v;
    int wrong;
} reader;

static void *read_all(void *p)
{
    reader *r = p;
    for (int i = 0; i < 5000; i++) {
        char key[16];
        int64_t v;
        snprintf(key, sizeof key, "key%d", i);
        if (!nb_json_i64(nb_json_get(r->v, key), &v) || v != i) r->wrong++;
    }
    return NULL;
}

static void large_objects_are_read_from_threads(void **state)
{
    (void)state;
    nb_buf b = {0};
    nb_error e;
    nb_json_doc d;
    nb_buf_add_char(&b, '{');
    for (int i = 0; i < 5000; i++) nb_buf_printf(&b, "%s\"key%d\":%d", i ? "," : "", i, i);
    nb_buf_add_char(&b, '}');
    assert_int_equal(nb_json_parse(&d, b.p, b.n, "x", NULL, &e), NB_OK);
    pthread_t t[3];
    reader r[3];
    for (int i = 0; i < 3; i++) {
        r[i] = (reader){d.root, 0};
        assert_int_equal(pthread_create(&t[i], NULL, read_all, &r[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(r[i].wrong, 0);
    }
    assert_null(nb_json_get(d.root, "key5000"));
    nb_json_free(&d);
    nb_buf_free(&b);
}

/* ---- numbers ---- */

static nb_json num(const char *text) { return (nb_json){.type = NB_JSON_NUMBER, .text = nb_str_of(text)}; }

static void integers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool i_ok, u_ok;
        int64_t i;
        uint64_t u;
    } row[] = {
        {"0", true, true, 0, 0},
        {"-0", true, true, 0, 0},
        {"-0.0", true, true, 0, 0},
        {"0e999999999999999999999", true, true, 0, 0},
        {"1.0", true, true, 1, 1},
        {"1e3", true, true, 1000, 1000},
        {"1.5", false, false, 0, 0},
        {"15e-1", false, false, 0, 0},
        {"150e-1", true, true, 15, 15},
        {"1.25e2", true, true, 125, 125},
        {"-7", true, false, -7, 0},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", false, true, 0, 9223372036854775808u},
        {"-9223372036854775808", true, false, INT64_MIN, 0},
        {"-9223372036854775809", false, false, 0, 0},
        {"18446744073709551615", false, true, 0, UINT64_MAX},
        {"18446744073709551616", false, false, 0, 0},
        {"1e19", false, true, 0, 10000000000000000000u},
        {"1e20", false, false, 0, 0},
        {"1e400", false, false, 0, 0},
        {"1e-400", false, false, 0, 0},
        {"1e99999999999999999999", false, false, 0, 0},
        {"9007199254740993", true, true, 9007199254740993, 9007199254740993u},
        {"0.00001e5", true, true, 1, 1},
        {"100000000000000000000000000000e-28", true, true, 10, 10},
    };
    for (size_t k = 0; k < NB_COUNT(row); k++) {
        nb_json v = num(row[k].text);
        int64_t i = 0;
        uint64_t u = 0;
        assert_int_equal(nb_json_i64(&v, &i), row[k].i_ok);
        assert_int_equal(nb_json_u64(&v, &u), row[k].u_ok);
        if (row[k].i_ok) assert_true(i == row[k].i);
        if (row[k].u_ok) assert_true(u == row[k].u);
    }
    nb_json s = {.type = NB_JSON_STRING, .text = NB_LIT("1")}, v = num("1"), f = num("1.0"), g = num("1e0");
    int64_t i;
    double x;
    bool flag;
    nb_str text;
    assert_false(nb_json_i64(&s, &i) || nb_json_i64(NULL, &i) || nb_json_f64(&s, &x) || nb_json_bool(&v, &flag) ||
                 nb_json_str(&v, &text));
    assert_true(nb_json_is_int_literal(&v) && !nb_json_is_int_literal(&f) && !nb_json_is_int_literal(&g) &&
                !nb_json_is_int_literal(&s));
}

static void doubles_are_correctly_rounded(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double v;
    } row[] = {
        {"0", 0},
        {"0.1", 0.1},
        {"1e22", 1e22},
        {"1e23", 1e23},
        {"123456789012345678", 123456789012345678.0},
        {"9007199254740993", 9007199254740992.0},
        {"9007199254740993.0000000000000000000000000000000001", 9007199254740994.0},
        {"5e-324", 0x1p-1074},
        {"2.4703282292062327e-324", 0},
        {"2.4703282292062328e-324", 0x1p-1074},
        {"2.2250738585072011e-308", 2.2250738585072011e-308},
        {"1.7976931348623157e308", 0x1.fffffffffffffp1023},
        {"1e-400", 0},
        {"-1.5", -1.5},
        {"6.02214076e23", 6.02214076e23},
        {"0.000001", 1e-6},
        {"3.14159265358979323846264338327950288", 0x1.921fb54442d18p1},
    };
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        nb_json v = num(row[i].text);
        double x = -1;
        assert_true(nb_json_f64(&v, &x));
        assert_true(x == row[i].v);
    }
    nb_json z = num("-0.0"), inf = num("1e309"), far = num("-1e99999999999999999999");
    double x = 1;
    assert_true(nb_json_f64(&z, &x) && x == 0 && signbit(x));
    assert_false(nb_json_f64(&inf, &x));
    assert_false(nb_json_f64(&far, &x));
    /* More digits than are kept: halfway between 1 and the next double, then a 1 a thousand digits further. */
    char text[1200] = "1.00000000000000011102230246251565404236316680908203125";
    size_t n = strlen(text);
    nb_json half = {.type = NB_JSON_NUMBER, .text = {text, n}};
    assert_true(nb_json_f64(&half, &x) && x == 1.0);
    memset(text + n, '0', 1000);
    text[n + 1000] = '1';
    nb_json above = {.type = NB_JSON_NUMBER, .text = {text, n + 1001}};
    assert_true(nb_json_f64(&above, &x) && x == 1.0 + 0x1p-52);
}

static void repr_is_pythons(void **state)
{
    (void)state;
    static const struct {
        double v;
        const char *text;
    } row[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {1.0, "1.0"},
        {0.1, "0.1"},
        {1.0 / 3, "0.3333333333333333"},
        {1e15, "1000000000000000.0"},
        {1e16, "1e+16"},
        {123456789012345680.0, "1.2345678901234568e+17"},
        {1e22, "1e+22"},
        {1e-4, "0.0001"},
        {1e-5, "1e-05"},
        {1.5e-7, "1.5e-07"},
        {1e100, "1e+100"},
        {5e-324, "5e-324"},
        {2.2250738585072014e-308, "2.2250738585072014e-308"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {0x1p-44, "5.684341886080802e-14"},
        {9007199254740993.0, "9007199254740992.0"},
        {-123.456, "-123.456"},
        {100.0, "100.0"},
        {0.5, "0.5"},
        {9999999999999998.0, "9999999999999998.0"},
        {0x1p-1074 * 3, "1.5e-323"},
        {0x1p-24, "5.960464477539063e-08"},
    };
    char out[32];
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        assert_int_equal(nb_f64_repr(row[i].v, out), strlen(row[i].text));
        assert_string_equal(out, row[i].text);
    }
    nb_f64_repr((double)NAN, out);
    assert_string_equal(out, "nan");
    nb_f64_repr(-(double)INFINITY, out);
    assert_string_equal(out, "-inf");
    /* Random bit patterns read back as they were. */
    uint64_t seed = 7;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint64_t bits = seed ^ seed >> 29;
        double v, back;
        memcpy(&v, &bits, 8);
        if (!isfinite(v)) continue;
        nb_f64_repr(v, out);
        nb_json j = num(out);
        assert_true(nb_json_f64(&j, &back));
        assert_memory_equal(&v, &back, 8);
    }
}

static void numbers_ignore_the_locale(void **state)
{
    (void)state;
    static const char *const name[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "fr_FR.utf8"};
    const char *set = NULL;
    for (size_t i = 0; i < NB_COUNT(name) && !set; i++) set = setlocale(LC_ALL, name[i]);
    nb_json v = num("1234567.0000001234567");
    double x;
    char out[32];
    assert_true(nb_json_f64(&v, &x) && x == 1234567.0000001234567);
    nb_f64_repr(0.1 + 0.2, out);
    assert_string_equal(out, "0.30000000000000004");
    setlocale(LC_ALL, "C");
    print_message("json: locale with a decimal comma: %s\n", set ? "tried" : "none installed, skipped");
}

/* ---- building and writing ---- */

static void built_values_are_written(void **state)
{
    (void)state;
    nb_arena *a = nb_arena_new(0);
    nb_json *o = nb_json_new(a, NB_JSON_OBJECT), *list = nb_json_new(a, NB_JSON_ARRAY);
    for (int i = 0; i < 40; i++) assert_true(nb_json_push(a, list, nb_json_new_i64(a, i - 20)));
    assert_true(nb_json_set(a, o, NB_LIT("z"), nb_json_new_f64(a, 1e22)));
    assert_true(nb_json_set(a, o, NB_LIT("a"), nb_json_new_str(a, NB_LIT("q\"\xc3\xa9\x01\xf0\x9f\x98\x80\x7f"))));
    assert_true(nb_json_set(a, o, NB_LIT("t"), nb_json_new_bool(a, true)));
    assert_true(nb_json_set(a, o, NB_LIT("n"), nb_json_new_f64(a, (double)NAN)));
    assert_true(nb_json_set(a, o, NB_LIT("z"), nb_json_new_f64(a, 0.5))); /* keeps its place */
    assert_true(nb_json_set(a, o, NB_LIT("e"), nb_json_new(a, NB_JSON_ARRAY)));
    nb_buf b = {0};
    nb_json_write(&b, o, NB_JSON_COMPACT);
    assert_string_equal(
        nb_buf_cstr(&b),
        "{\"z\":0.5,\"a\":\"q\\\"\xc3\xa9\\u0001\xf0\x9f\x98\x80\x7f\",\"t\":true,\"n\":null,\"e\":[]}");
    b.n = 0;
    nb_json_write(&b, o, NB_JSON_PRETTY | NB_JSON_ASCII | NB_JSON_SORT_KEYS);
    assert_string_equal(nb_buf_cstr(&b), "{\n  \"a\": \"q\\\"\\u00e9\\u0001\\ud83d\\ude00\\u007f\",\n  \"e\": [],\n  "
                                         "\"n\": null,\n  \"t\": true,\n  \"z\": 0.5\n}");
    b.n = 0;
    nb_json_write_string(&b, NB_LIT("a\xff\xe2\x82z"), 0); /* what is no UTF-8 is replaced */
    assert_string_equal(nb_buf_cstr(&b), "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
    b.n = 0;
    nb_json_write(&b, list, 0);
    assert_true(strncmp(nb_buf_cstr(&b), "[-20,-19,", 9) == 0);
    assert_false(nb_json_push(a, o, list));
    assert_false(nb_json_set(a, list, NB_LIT("x"), o));
    assert_false(nb_json_push(a, list, NULL));
    nb_buf_free(&b);
    nb_arena_free(a);
}

static void large_built_objects_find_their_keys(void **state)
{
    (void)state;
    nb_arena *a = nb_arena_new(0);
    nb_json *o = nb_json_new(a, NB_JSON_OBJECT);
    char key[16];
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "k%d", i % 2000);
        assert_true(nb_json_set(a, o, nb_str_of(key), nb_json_new_i64(a, i)));
    }
    assert_int_equal(o->count, 2000);
    for (int i = 0; i < 2000; i++) {
        int64_t v = -1;
        snprintf(key, sizeof key, "k%d", i);
        assert_true(nb_json_i64(nb_json_get(o, key), &v));
        assert_int_equal(v, i < 1000 ? 2000 + i : i);
    }
    nb_arena_free(a);
}

/* A shallow copy and its original may both grow without touching each other; a parsed value may grow too. */
static void copies_grow_apart(void **state)
{
    (void)state;
    nb_json_doc d = parse("{\"list\":[1,2],\"o\":{\"a\":1}}");
    nb_arena *a = d.arena;
    nb_json list = *nb_json_get(d.root, "list"), other;
    assert_true(nb_json_push(a, &list, nb_json_new_i64(a, 3)));
    other = list;
    assert_true(nb_json_push(a, &list, nb_json_new_i64(a, 4)));
    assert_true(nb_json_push(a, &other, nb_json_new_i64(a, 5)));
    assert_true(nb_json_push(a, &list, &list)); /* a value may be part of itself as it was */
    nb_buf b = {0};
    nb_json_write(&b, &list, 0);
    nb_json_write(&b, &other, 0);
    nb_json_write(&b, nb_json_get(d.root, "list"), 0);
    assert_string_equal(nb_buf_cstr(&b), "[1,2,3,4,[1,2,3,4]][1,2,3,5][1,2]");
    nb_json o = *nb_json_get(d.root, "o"), p;
    char key[8];
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "%d", i);
        if (i == 30) p = o;
        assert_true(nb_json_set(a, &o, nb_str_of(key), nb_json_new_i64(a, i)));
    }
    assert_null(nb_json_get(&p, "35"));
    assert_true(nb_json_set(a, &p, NB_LIT("35"), nb_json_new_bool(a, true)));
    assert_int_equal(p.count, 32);
    assert_int_equal(nb_json_get(&p, "35")->type, NB_JSON_TRUE);
    assert_int_equal(nb_json_get(&o, "35")->type, NB_JSON_NUMBER);
    nb_buf_free(&b);
    nb_json_free(&d);
}

static void writing_is_bounded(void **state)
{
    (void)state;
    nb_arena *a = nb_arena_new(0);
    nb_json *v = nb_json_new(a, NB_JSON_ARRAY);
    for (int i = 0; i < 5000; i++) {
        nb_json *outer = nb_json_new(a, NB_JSON_ARRAY);
        assert_true(nb_json_push(a, outer, v));
        v = outer;
    }
    nb_buf b = {0};
    nb_json_write(&b, v, 0);
    assert_null(nb_buf_cstr(&b));
    nb_buf_free(&b);
    nb_buf small = {.limit = 10};
    nb_json_doc d = parse("[\"a text of more than ten bytes\"]");
    nb_json_write(&small, d.root, 0);
    assert_true(small.oom);
    nb_buf_free(&small);
    nb_json_free(&d);
    nb_arena_free(a);
}

/* ---- speed ---- */

static void word(nb_buf *b, uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    uint64_t r = *seed >> 20;
    if (r & 1) nb_buf_add_cstr(b, "\xc4\xa0");
    for (unsigned n = 2 + (unsigned)(r >> 1) % 9; n; n--, r = r / 3 + *seed) nb_buf_add_char(b, (char)('a' + r % 26));
}

/* Time that this thread ran: other programs on the machine do not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The shape of a published tokenizer.json: 200,000 keys, as many merges, added tokens, indented. */
static void say_how_fast_a_tokenizer_file_is_read(void **state)
{
    (void)state;
    nb_buf b = {0};
    uint64_t seed = 1;
    nb_buf_add_cstr(&b, "{\n  \"version\": \"1.0\",\n  \"model\": {\n    \"type\": \"BPE\",\n    \"vocab\": {");
    for (int i = 0; i < 200000; i++) {
        nb_buf_printf(&b, "%s\n      \"", i ? "," : "");
        word(&b, &seed);
        nb_buf_printf(&b, "%x\": %d", (unsigned)i, i);
    }
    nb_buf_add_cstr(&b, "\n    },\n    \"merges\": [");
    for (int i = 0; i < 280000; i++) {
        nb_buf_printf(&b, "%s\n      [\n        \"", i ? "," : "");
        word(&b, &seed);
        nb_buf_add_cstr(&b, "\",\n        \"");
        word(&b, &seed);
        nb_buf_add_cstr(&b, "\"\n      ]");
    }
    nb_buf_add_cstr(&b, "\n    ]\n  }\n}\n");
    assert_non_null(nb_buf_cstr(&b));
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        nb_json_doc d;
        nb_error e;
        uint64_t t = cpu_ns();
        assert_int_equal(nb_json_parse(&d, b.p, b.n, "tokenizer.json", NULL, &e), NB_OK);
        t = cpu_ns() - t;
        if (t < best) best = t;
        assert_int_equal(nb_json_path(d.root, "model.vocab")->count, 200000);
        nb_json_free(&d);
    }
    print_message("json: %.1f MB of tokenizer in %.1f ms, %.0f MB/s of processor time (best of 5)\n", (double)b.n / 1e6,
                  (double)best / 1e6, (double)b.n * 1e3 / (double)best);
    nb_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_come_back_as_they_were),
        cmocka_unit_test(bad_texts_are_refused_with_their_place),
        cmocka_unit_test(truncated_texts_are_refused),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(flags_do_what_they_say),
        cmocka_unit_test(duplicate_keys),
        cmocka_unit_test(values_know_their_source),
        cmocka_unit_test(large_objects_are_read_from_threads),
        cmocka_unit_test(integers_are_exact),
        cmocka_unit_test(doubles_are_correctly_rounded),
        cmocka_unit_test(repr_is_pythons),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(built_values_are_written),
        cmocka_unit_test(large_built_objects_find_their_keys),
        cmocka_unit_test(copies_grow_apart),
        cmocka_unit_test(writing_is_bounded),
        cmocka_unit_test(a_streamed_array_is_handed_over),
        cmocka_unit_test(a_streamed_array_may_be_long),
        cmocka_unit_test(say_how_fast_a_tokenizer_file_is_read),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
