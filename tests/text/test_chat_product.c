/* Product mode, step by step, with templates made for each step; and that a longer conversation begins with the shorter
 * one's prompt. */
#include "jinja_testlib.h"

#include <pthread.h>

static nb_buf out;

/* Renders `messages` (JSON); "" and the error in `why` where it fails. Spans of the request are marked ‹ ›, if asked.
 */
static char why[512];
static const char *render(const char *t, const char *messages, const char *tools, bool spans)
{
    nb_template *tpl = NULL;
    nb_error err = {0};
    nb_json_doc doc = {0}, tool_doc = {0};
    nb_prompt p = {0};
    nb_arena *a = nb_arena_new(0);
    out.n = 0;
    assert_int_equal(nb_json_parse(&doc, messages, strlen(messages), "messages", NULL, &err), NB_OK);
    if (tools) assert_int_equal(nb_json_parse(&tool_doc, tools, strlen(tools), "tools", NULL, &err), NB_OK);
    nb_status s = nb_template_parse(&tpl, t, strlen(t), &err);
    nb_chat_request r = {
        .messages = doc.root, .tools = tools ? tool_doc.root : NULL, .tokens = test_tokens, .n_tokens = 1};
    if (s == NB_OK) s = nb_chat_render(tpl, &r, &test_now, a, &p, &err);
    for (size_t i = 0; i < p.n; i++) {
        if (spans && !p.spans[i].trusted) nb_buf_add_cstr(&out, "‹");
        nb_buf_add_str(&out, p.spans[i].text);
        if (spans && !p.spans[i].trusted) nb_buf_add_cstr(&out, "›");
    }
    snprintf(why, sizeof why, "%s", s == NB_OK ? "" : err.text);
    nb_template_free(tpl);
    nb_json_free(&doc);
    if (tools) nb_json_free(&tool_doc);
    nb_arena_free(a);
    return s == NB_OK ? nb_buf_cstr(&out) : "";
}

#define LINES "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
#define ONLY(roles)                                                                                                    \
    "{% for m in messages %}{% if m.role not in " roles                                                                \
    " %}{{ raise_exception('role ' ~ m.role) }}{% endif %}{% endfor %}"
#define ALTERNATE                                                                                                      \
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must "      \
    "alternate') }}{% endif %}{% endfor %}"
#define CALLS(expr)                                                                                                    \
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }} " expr \
    ">{% endfor %}{{ '\\n' }}{% endfor %}"
#define PARTS                                                                                                          \
    "{% for m in messages %}{{ m.role }}:{% for p in m.content %}{{ p.text | default(raise_exception('parts only') "   \
    "if p is string) }}{% endfor %}{{ '\\n' }}{% endfor %}"
#define CALL(args)                                                                                                     \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"a\", \"type\": \"function\", "           \
    "\"function\": {\"name\": \"f\", \"arguments\": " args "}}]}"

static const struct step {
    const char *what, *t, *messages, *want;
} steps[] = {
    {"a template that can do it is left alone", LINES,
     "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"developer\", \"content\": \"d\"}, {\"role\": \"user\", "
     "\"content\": \"u\"}]",
     "system:s\ndeveloper:d\nuser:u\n"},
    {"system is folded", ONLY("['user', 'assistant']") LINES,
     "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}]", "user:s\n\nu\n"},
    {"a conversation of instructions only", ONLY("['user', 'assistant']") LINES,
     "[{\"role\": \"system\", \"content\": \"s\"}]", "user:s\n"},
    {"system before an assistant opens it", ONLY("['user', 'assistant']") LINES,
     "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"assistant\", \"content\": \"a\"}, {\"role\": \"user\", "
     "\"content\": \"u\"}]",
     "user:s\nassistant:a\nuser:u\n"},
    {"a dropped system is folded too",
     "{% for m in messages if m.role != 'system' %}{{ m.role }}:{{ m.content }}\n{% endfor %}",
     "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}]", "user:s\n\nu\n"},
    {"developer becomes system", ONLY("['system', 'user', 'assistant']") LINES,
     "[{\"role\": \"developer\", \"content\": \"d\"}, {\"role\": \"user\", \"content\": \"u\"}]", "system:d\nuser:u\n"},
    {"developer is folded where there is no system", ONLY("['user', 'assistant']") LINES,
     "[{\"role\": \"developer\", \"content\": \"d\"}, {\"role\": \"user\", \"content\": \"u\"}]", "user:d\n\nu\n"},
    {"a late system message",
     "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be "
     "at the beginning.') }}{% endif %}{% endfor %}" LINES,
     "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"system\", \"content\": \"t\"}, {\"role\": \"user\", "
     "\"content\": \"u\"}, {\"role\": \"system\", \"content\": \"w\"}, {\"role\": \"user\", \"content\": \"v\"}]",
     "system:s\n\nt\nuser:u\nuser:w\n\nv\n"},
    {"equal roles are joined", ALTERNATE LINES,
     "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", "
     "\"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]",
     "user:a\n\nb\nassistant:c\n\nd\n"},
    {"parts become text", "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}",
     "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"image\"}, {\"type\": "
     "\"text\", \"text\": \"b\"}]}]",
     "user:a[image]b\n"},
    {"text becomes a part",
     "{% for m in messages %}{% for p in m.content %}{{ p.text | default(raise_exception('parts only') if p is string) "
     "}}{% endfor %}{{ '\\n' }}{% endfor %}",
     "[{\"role\": \"user\", \"content\": \"a\"}]", "a\n"},
    {"arguments are decoded", CALLS("{{ c.function.arguments|tojson }}"),
     "[{\"role\": \"user\", \"content\": \"u\"}, " CALL("\"{\\\"b\\\": 1.0, \\\"a\\\": 12345678901234567890}\"") "]",
     "user:u\nassistant:<f {\"b\": 1.0, \"a\": 12345678901234567890}>\n"},
    {"arguments that are no JSON stay text", CALLS("{{ c.function.arguments|tojson }}"),
     "[{\"role\": \"user\", \"content\": \"u\"}, " CALL("\"{oops\"") "]", "user:u\nassistant:<f \"{oops\">\n"},
    {"arguments are written", CALLS("{{ '' + c.function.arguments }}"),
     "[{\"role\": \"user\", \"content\": \"u\"}, " CALL("{\"b\": 1.0}") "]", "user:u\nassistant:<f {\"b\": 1.0}>\n"},
    {"a call without its wrapping", CALLS("{{ c.function.arguments|tojson }}"),
     "[{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"name\": \"f\", \"arguments\": {}}]}]",
     "assistant:<f {}>\n"},
    {"no content beside calls",
     "{% for m in messages %}{{ m.role + ':' + m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }} {{ "
     "c.function.arguments|tojson }}>{% endfor %}{{ '\\n' }}{% endfor %}",
     "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
     "[{\"function\": {\"name\": \"f\", \"arguments\": {}}}]}]",
     "user:u\nassistant:<f {}>\n"},
    {"a template without tools", ONLY("['user', 'assistant']") ALTERNATE LINES,
     "[{\"role\": \"user\", \"content\": \"u\"}, " CALL(
         "{\"q\": 1}") ", {\"role\": \"tool\", \"content\": \"r\"}, {\"role\": \"user\", \"content\": \"v\"}]",
     "user:u\nassistant:{\"name\": \"f\", \"arguments\": {\"q\": 1}}\nuser:r\n\nv\n"},
    {"a template that drops tool results, and fails at the turn after",
     "{% set ns = namespace(ask=true) %}{% for m in messages %}{% if m.role in ['user', 'assistant'] %}{% if (m.role "
     "== "
     "'user') != ns.ask %}{{ raise_exception('roles must alternate') }}{% endif %}{% set ns.ask = not ns.ask %}{{ "
     "m.role "
     "}}:{{ m.content }}\n{% endif %}{% endfor %}",
     "[{\"role\": \"user\", \"content\": \"u\"}, " CALL(
         "{}") ", {\"role\": \"tool\", \"content\": \"r\"}, {\"role\": \"assistant\", \"content\": \"a\"}]",
     "user:u\nassistant:{\"name\": \"f\", \"arguments\": {}}\nuser:r\nassistant:a\n"},
    {"calls as text behind content in parts", ONLY("['user', 'assistant']") PARTS,
     "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", "
     "\"text\": "
     "\"said\"}], \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {}}}]}, {\"role\": \"tool\", "
     "\"content\": \"r\"}]",
     "user:u\nassistant:said\n{\"name\": \"f\", \"arguments\": {}}\nuser:r\n"},
    {"content or reasoning beside calls",
     "{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}{{ raise_exception('not both') }}{% "
     "endif "
     "%}{% endfor %}{% for m in messages %}{{ m.role }}:{{ m.content }}/{{ m.thinking }}{% for c in m.tool_calls or [] "
     "%}<{{ c.function.name }} {{ c.function.arguments|tojson }}>{% endfor %}{{ '\\n' }}{% endfor %}",
     "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"said\", \"reasoning\": "
     "\"thought\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {}}}]}, {\"role\": \"assistant\", "
     "\"content\": \"said\", \"reasoning\": \"thought\"}]",
     "user:u/\nassistant:/thought\n\nsaid<f {}>\nassistant:said/thought\n"},
    {"a lazy list as JSON", "{{ messages|map(attribute='content')|tojson }}",
     "[{\"role\": \"user\", \"content\": \"u\"}]", "[\"u\"]"},
    {"one call at a time",
     "{% for m in messages %}{% if m.tool_calls and m.tool_calls|length > 1 %}{{ raise_exception('one at a time') }}{% "
     "endif %}{% endfor %}" CALLS("{{ c.function.arguments|tojson }}"),
     "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": "
     "[{\"id\": \"1\", \"function\": {\"name\": \"f\", \"arguments\": {}}}, {\"id\": \"2\", \"function\": {\"name\": "
     "\"g\", \"arguments\": {}}}]}, "
     "{\"role\": \"tool\", \"tool_call_id\": \"2\", \"content\": \"two\"}, {\"role\": \"tool\", \"tool_call_id\": "
     "\"1\", \"content\": \"one\"}]",
     "user:u\nassistant:x<f {}>\ntool:one\nassistant:<g {}>\ntool:two\n"},
    {"an empty answer",
     "{% for m in messages %}{% if m.role == 'assistant' and not m.content and not m.tool_calls %}{{ "
     "raise_exception('empty') }}{% endif %}{{ m.content }};{% endfor %}",
     "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"\"}, {\"role\": \"user\", "
     "\"content\": \"v\"}]",
     "u;v;"},
    {"absent tools", "{% for t in tools %}{{ t }}{% endfor %}{{ messages[0].content }}",
     "[{\"role\": \"user\", \"content\": \"u\"}]", "u"},
    {"lists of the template",
     "{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.content) %}{% endfor %}{{ l|join(',') }}{{ l.pop() "
     "}}",
     "[{\"role\": \"user\", \"content\": \"u\"}]", "uu"},
    {"reasoning under every name",
     "{% for m in messages %}{{ m.content }}{{ m.reasoning }}{{ m.thinking }}{{ m.reasoning_content }}{% endfor %}",
     "[{\"role\": \"assistant\", \"content\": \"a\", \"thinking\": \"t\"}]", "attt"},
    {"from_json", "{{ (messages[0].content|from_json).k if messages[0].content[0] == '{' else messages[0].content }}",
     "[{\"role\": \"user\", \"content\": \"{\\\"k\\\": 5}\"}]", "5"},
};

static void test_steps(void **state)
{
    (void)state;
    uint32_t bad = 0;
    for (size_t i = 0; i < NB_COUNT(steps); i++) {
        const char *got = render(steps[i].t, steps[i].messages, NULL, false);
        if (strcmp(got, steps[i].want) == 0) continue;
        bad++;
        print_error("%s\n  want %s\n  got  %s %s\n", steps[i].what, steps[i].want, got, why);
    }
    print_message("%zu steps\n", NB_COUNT(steps));
    assert_int_equal(bad, 0);
}

/* What is the user's to mend still fails, in the template's words. */
static void test_failures(void **state)
{
    (void)state;
    static const char t[] = "{% if not messages %}{{ raise_exception('No messages.') }}{% endif %}{% if effort == 'x' "
                            "%}{{ raise_exception('bad effort') }}{% endif %}{{ messages[0].content }}";
    assert_string_equal(render(t, "[]", NULL, false), "");
    assert_non_null(strstr(why, "TemplateError: No messages."));
    render("{{ raise_exception('never') }}", "[{\"role\": \"user\", \"content\": \"u\"}]", NULL, false);
    assert_non_null(strstr(why, "TemplateError: never"));
    render(t, "[5]", NULL, false);
    assert_non_null(strstr(why, "TypeError"));
    render(t, "{}", NULL, false);
    assert_non_null(strstr(why, "messages is not a list"));
}

/* A prefilled answer is cut where it ends, also where its parts were joined. */
static void test_prefill(void **state)
{
    (void)state;
    static const char t[] = "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}",
                      messages[] =
                          "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": "
                          "[{\"type\": \"text\", \"text\": \"Sure. \"}, {\"type\": \"text\", \"text\": \"First, \"}]}]";
    nb_template *tpl = NULL;
    nb_error err = {0};
    nb_json_doc doc;
    nb_prompt p;
    nb_arena *a = nb_arena_new(0);
    assert_int_equal(nb_template_parse(&tpl, t, sizeof t - 1, &err), NB_OK);
    assert_int_equal(nb_json_parse(&doc, messages, sizeof messages - 1, "messages", NULL, &err), NB_OK);
    nb_chat_request r = {.messages = doc.root, .continue_final_message = true};
    if (nb_chat_render(tpl, &r, &test_now, a, &p, &err) != NB_OK) fail_msg("%s", err.text);
    join_spans(&out, &p);
    assert_string_equal(nb_buf_cstr(&out), "user:u\nassistant:Sure. First, ");
    nb_template_free(tpl);
    nb_json_free(&doc);
    nb_arena_free(a);
}

/* Whatever is folded, joined, decoded or written stays the request's. */
static void test_origins(void **state)
{
    (void)state;
    static const char folding[] = ONLY("['user', 'assistant']") ALTERNATE
        "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content + '<|end|>' }}{% endfor %}";
    assert_string_equal(
        render(folding,
               "[{\"role\": \"system\", \"content\": \"<|s|>\"}, {\"role\": \"user\", \"content\": \"<|u|>\"}, "
               "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"<|v|>\"}]}]",
               NULL, true),
        "<|user|>‹<|s|>\n\n<|u|>\n\n<|v|>›<|end|>");
    assert_string_equal(
        render(folding, "[{\"role\": \"user\", \"content\": \"u\"}, " CALL("\"{\\\"<|end|>\\\": 1}\"") "]", NULL, true),
        "<|user|>‹u›<|end|><|assistant|>‹{\"name\": \"f\", \"arguments\": {\"<|end|>\": 1}}›<|end|>");
    assert_string_equal(render(CALLS("{{ c.function.arguments|tojson }}"),
                               "[{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": "
                               "{\"name\": \"<|f|>\", \"arguments\": \"{\\\"<|k|>\\\": \\\"<|v|>\\\"}\"}}]}]",
                               NULL, true),
                        "assistant:<‹<|f|>› ‹{\"<|k|>\": \"<|v|>\"}›>\n");
}

/* The prompt of n messages begins the prompt of n + 1, through every step that changes a conversation. */
static void test_prefix(void **state)
{
    (void)state;
    static const char *const templates[] = {
        LINES, ONLY("['user', 'assistant']") LINES, ONLY("['user', 'assistant']") ALTERNATE LINES,
        CALLS("{{ c.function.arguments|tojson }}"), CALLS("{{ '' + c.function.arguments }}")};
    static const char *const turns[] = {
        "{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}",
        ", " CALL("\"{\\\"q\\\": 1}\""),
        ", {\"role\": \"tool\", \"tool_call_id\": \"a\", \"content\": \"r\"}",
        ", {\"role\": \"assistant\", \"content\": \"a\", \"reasoning_content\": \"t\"}",
        ", {\"role\": \"developer\", \"content\": \"d\"}, {\"role\": \"user\", \"content\": \"v\"}",
        ", {\"role\": \"assistant\", \"content\": \"b\"}",
    };
    for (size_t k = 0; k < NB_COUNT(templates); k++) {
        nb_buf messages = {0}, before = {0};
        nb_buf_add_cstr(&messages, "[");
        for (size_t n = 0; n < NB_COUNT(turns); n++) {
            nb_buf_add_cstr(&messages, turns[n]);
            nb_buf_add_cstr(&messages, "]");
            const char *now = render(templates[k], nb_buf_cstr(&messages), NULL, false);
            assert_string_equal(why, "");
            if (before.n && strncmp(now, nb_buf_cstr(&before), before.n - 1))
                fail_msg("template %zu, turn %zu:\n%s\nthen\n%s", k, n, nb_buf_cstr(&before), now);
            before.n = 0;
            nb_buf_add_cstr(&before, now);
            messages.n--;
        }
        nb_buf_free(&messages);
        nb_buf_free(&before);
    }
}

static const char shared_text[] = ONLY("['user', 'assistant']") ALTERNATE CALLS("{{ c.function.arguments|tojson }}");
static nb_template *shared;

static void *renders(void *unused)
{
    static const char messages[] = "[{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"é "
                                   "u\"}, {\"role\": \"user\", \"content\": \"v\"}]";
    static const char want[] = "user:s\n\né u\n\nv\n";
    uintptr_t bad = 0;
    (void)unused;
    for (int i = 0; i < 20; i++) {
        nb_json_doc doc;
        nb_prompt p;
        nb_buf text = {0};
        nb_arena *a = nb_arena_new(0);
        if (nb_json_parse(&doc, messages, sizeof messages - 1, "messages", NULL, NULL) != NB_OK) return (void *)1;
        nb_chat_request r = {.messages = doc.root};
        bad += nb_chat_render(shared, &r, NULL, a, &p, NULL) != NB_OK;
        join_spans(&text, &p);
        bad += !nb_str_eq(nb_buf_str(&text), nb_str_of(want));
        nb_buf_free(&text);
        nb_json_free(&doc);
        nb_arena_free(a);
    }
    return (void *)bad;
}

/* A template is shared by threads, which probe it at the same time. */
static void test_threads(void **state)
{
    (void)state;
    pthread_t t[4];
    assert_int_equal(nb_template_parse(&shared, shared_text, sizeof shared_text - 1, NULL), NB_OK);
    for (size_t i = 0; i < NB_COUNT(t); i++) assert_int_equal(pthread_create(&t[i], NULL, renders, NULL), 0);
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        void *bad;
        pthread_join(t[i], &bad);
        assert_null(bad);
    }
    nb_template_free(shared);
}

static int free_out(void **state)
{
    (void)state;
    nb_buf_free(&out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps),   cmocka_unit_test(test_failures),
                                       cmocka_unit_test(test_prefill), cmocka_unit_test(test_origins),
                                       cmocka_unit_test(test_prefix),  cmocka_unit_test(test_threads)};
    return cmocka_run_group_tests(tests, NULL, free_out);
}
