/* The template engine against recorded jinja2 output, case by case; error positions; limits. */
#include "jinja_testlib.h"

static void test_cases(void **state)
{
    (void)state;
    nb_json_doc doc;
    if (!load_json(&doc, "tests/data/jinja_cases.json"))
        fail_msg("tests/data/jinja_cases.json is missing: run from the repository's root");
    const nb_json *cases = nb_json_get(doc.root, "cases"), *vars = nb_json_get(doc.root, "variables");
    uint32_t errors = 0, bad = 0;
    nb_buf text = {0};
    for (uint32_t i = 0; i < cases->count; i++) {
        nb_str t, want;
        nb_template *tpl = NULL;
        nb_error err = {0};
        nb_prompt p = {0};
        nb_arena *a = nb_arena_new(0);
        assert_true(nb_json_str(nb_json_get(&cases->items[i], "t"), &t));
        nb_status s = nb_template_parse(&tpl, t.p, t.n, &err);
        if (s == NB_OK) s = nb_template_render(tpl, vars, NULL, &test_now, a, &p, &err);
        join_spans(&text, &p);
        bool ok;
        if (nb_json_str(nb_json_get(&cases->items[i], "output"), &want)) {
            ok = s == NB_OK && nb_str_eq(nb_buf_str(&text), want);
        } else {
            assert_true(nb_json_str(nb_json_get(&cases->items[i], "error"), &want));
            errors++;
            ok = s != NB_OK && same_error(err.text, want);
        }
        if (!ok)
            print_error("%.*s\n  want %.*s\n  got  %.*s %s\n", NB_FMT_STR(t), NB_FMT_STR(want), (int)text.n,
                        text.p ? text.p : "", err.text);
        bad += !ok;
        nb_template_free(tpl);
        nb_arena_free(a);
    }
    print_message("%u cases, %u of them errors\n", cases->count, errors);
    nb_buf_free(&text);
    nb_json_free(&doc);
    assert_int_equal(bad, 0);
}

/* Renders without variables; the error text, or "" where it works. */
static const char *failure(const char *t, const nb_render_limits *lim)
{
    static nb_error err;
    nb_template *tpl = NULL;
    nb_prompt p;
    nb_arena *a = nb_arena_new(0);
    err.text[0] = 0;
    if (nb_template_parse(&tpl, t, strlen(t), &err) == NB_OK &&
        nb_template_render(tpl, NULL, lim, NULL, a, &p, &err) == NB_OK)
        err.text[0] = 0;
    nb_template_free(tpl);
    nb_arena_free(a);
    return err.text;
}

static void test_positions(void **state)
{
    (void)state;
    static const struct {
        const char *t, *want;
    } cases[] = {
        {"a\n  {{ x.y }}", "chat template: line 2, column 7: UndefinedError: 'x' is undefined"},
        {"{% if true %}\r\n{{ raise_exception('no: ' ~ 1) }}{% endif %}",
         "chat template: line 2, column 19: TemplateError: no: 1"},
        {"é{{ 1 + }}", "chat template: line 1, column 9: TemplateSyntaxError: unexpected 'end of print statement'"},
        {"\n\n{% for x in [] %}", "chat template: line 3, column 18: TemplateSyntaxError: Unexpected end of template. "
                                  "Jinja was looking for the tag 'endfor'."},
        {"{{ [].append(1) }}",
         "chat template: line 1, column 13: SecurityError: access to attribute 'append' of 'list' object is unsafe."},
        {"{{ 'a' | nofilter }}",
         "chat template: line 1, column 10: TemplateAssertionError: No filter named 'nofilter'."},
        {"x {{ 1 / 0 }}", "chat template: line 1, column 8: ZeroDivisionError: division by zero"},
        {"{{ {}.a.b }}", "chat template: line 1, column 8: UndefinedError: 'dict object' has no attribute 'a'"},
    };
    for (size_t i = 0; i < NB_COUNT(cases); i++) assert_string_equal(failure(cases[i].t, NULL), cases[i].want);
}

static void test_limits(void **state)
{
    (void)state;
    const nb_render_limits few = {.steps = 100000}, small = {.output_bytes = 10000}, tight = {.memory_bytes = 4 << 20};
    static const char forever[] =
        "line\n{% for a in range(100000) %}{% for b in range(100000) %}{{ a }}{% endfor %}{% endfor %}";
    assert_non_null(strstr(failure(forever, &few), "line 2"));
    assert_non_null(strstr(failure(forever, &few), "TimeoutError"));
    assert_non_null(strstr(failure(forever, &small), "MemoryError"));
    assert_non_null(strstr(failure("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", NULL), "RecursionError"));
    assert_non_null(
        strstr(failure("{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", NULL), "RecursionError"));
    assert_non_null(strstr(
        failure("{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}",
                NULL),
        "RecursionError"));
    assert_non_null(strstr(failure("{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}", NULL), "RecursionError"));
    assert_non_null(strstr(failure("{{ ('a' * 1000000) * 1000000 }}", NULL), "MemoryError"));
    assert_non_null(strstr(failure("{{ ([1] * 1000) * 1000000 }}", NULL), "MemoryError"));
    assert_non_null(strstr(failure("{{ 10 ** 1000000 }}", NULL), "Error"));
    assert_non_null(strstr(failure("{{ '%1000000000d' % 1 }}", NULL), "ValueError"));
    assert_non_null(strstr(failure("{% set ns = namespace(s='a' * 1000) %}{% for i in range(10000) %}{% set ns.s = "
                                   "ns.s ~ 'x' ~ ns.s[0:2000] %}{% endfor %}",
                                   &tight),
                           "MemoryError"));
    /* A value that holds another one twice, and so on: small, but endless to walk. */
    static const char *const walks[] = {
        "ns.d",       "ns.d|tojson",      "ns.d|pprint", "ns.d == ns.e", "ns.t < ns.u",
        "{ns.t: 1}",  "ns.d[ns.t]",       "ns.t in {}",  "'%s' % ns.d",  "[ns.t, ns.u]|unique|list",
        "ns.d ~ 'x'", "'{}'.format(ns.d)"};
    for (size_t k = 0; k < NB_COUNT(walks); k++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "{%% set ns = namespace(d={}, e={}, t=(), u=()) %%}{%% for i in range(40) %%}{%% set ns.d = {1: ns.d, 2: "
            "ns.d} %%}{%% set ns.e = {1: ns.e, 2: ns.e} %%}{%% set ns.t = (ns.t, ns.t) %%}{%% set ns.u = (ns.u, "
            "ns.u) %%}{%% endfor %%}{{ %s }}",
            walks[k]);
        assert_non_null(strstr(failure(text, &few), "TimeoutError"));
    }
    /* Nesting in the source. */
    nb_buf b = {0};
    for (int i = 0; i < 100000; i++) nb_buf_add_char(&b, i > 1 ? '(' : '{');
    assert_non_null(strstr(failure(nb_buf_cstr(&b), NULL), "line 1"));
    static const char *const opens[] = {"{{ ((((",   "{{ [[[[",          "{{ - - - -", "{{ not not not ",
                                        "{{ a[a[a[", "{{ 1 if 1 else ",  "{{ {1:{1:",  "{% if 1 %}{% if 1 %}",
                                        "{{ f(f(f(", "{{ 1|join(1|join("};
    for (size_t k = 0; k < NB_COUNT(opens); k++) {
        b.n = 0;
        nb_buf_add_cstr(&b, opens[k]);
        for (int i = 0; i < 20000; i++) nb_buf_add_cstr(&b, opens[k] + (opens[k][1] == '{' ? 3 : 0));
        assert_non_null(strstr(failure(nb_buf_cstr(&b), NULL), "TemplateSyntaxError"));
    }
    b.n = 0;
    nb_buf_add_cstr(&b, "{{ 1");
    for (int i = 0; i < 20000; i++) nb_buf_add_cstr(&b, " + 1");
    nb_buf_add_cstr(&b, " }}");
    assert_non_null(strstr(failure(nb_buf_cstr(&b), NULL), "in a row"));
    b.n = 0;
    for (int i = 0; i < (1 << 20) + 1; i++) nb_buf_add_char(&b, 'x');
    assert_non_null(strstr(failure(nb_buf_cstr(&b), NULL), "the limit is"));
    assert_non_null(strstr(failure("\xff{{ 1 }}", NULL), "byte 0 is not UTF-8"));
    nb_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_positions),
                                       cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
