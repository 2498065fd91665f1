/* Every recorded rendering of the published templates, taken from the test data by structure, three ways:
 *   contexts.json through the strict chat layer; variables.json and contexts.json as they stand through the engine;
 * and product mode against the list of docs/chat.md: which entries it answers although transformers fails. */
#include "jinja_testlib.h"

typedef struct vectors {
    char dir[4096];
    nb_json_doc expected, contexts, variables;
    bool found;
} vectors;

static vectors v;

static const nb_json *context_of(nb_str name)
{
    const nb_json *c = nb_json_get_str(v.contexts.root, name), *inner = nb_json_get(c, "context");
    return inner ? inner : c;
}

static const nb_json *variables_of(nb_str name)
{
    const nb_json *c = nb_json_get_str(v.variables.root, name), *inner = nb_json_get(c, "variables");
    return inner ? inner : c;
}

/* A template by its name in expected.json, which may lack the extension. */
static nb_template *open_template(nb_str name)
{
    static const char *const ends[] = {"", ".jinja", ".jinja2"};
    for (size_t i = 0; i < NB_COUNT(ends); i++) {
        char path[8300];
        snprintf(path, sizeof path, "%s/%.*s%s", v.dir, NB_FMT_STR(name), ends[i]);
        if (!nb_path_exists(path)) continue;
        nb_buf text = {0};
        nb_error err = {0};
        nb_template *t = NULL;
        assert_int_equal(nb_file_read(&text, path, UINT64_MAX, &err), NB_OK);
        if (nb_template_parse(&t, text.p, text.n, &err) != NB_OK) print_error("%s: %s\n", path, err.text);
        nb_buf_free(&text);
        return t;
    }
    return NULL;
}

static nb_chat_request request_of(nb_arena *a, const nb_json *c)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt",
                                      "continue_final_message"};
    nb_json *vars = nb_json_new(a, NB_JSON_OBJECT);
    for (uint32_t i = 0; i < c->count; i++) {
        bool mine = false;
        for (size_t k = 0; k < NB_COUNT(own); k++) mine |= nb_str_is(c->keys[i], own[k]);
        if (!mine) nb_json_set(a, vars, c->keys[i], &c->items[i]);
    }
    nb_chat_request r = {.messages = nb_json_get(c, "messages"),
                         .tools = nb_json_get(c, "tools"),
                         .documents = nb_json_get(c, "documents"),
                         .variables = vars,
                         .tokens = test_tokens,
                         .n_tokens = NB_COUNT(test_tokens)};
    nb_json_bool(nb_json_get(c, "add_generation_prompt"), &r.add_generation_prompt);
    nb_json_bool(nb_json_get(c, "continue_final_message"), &r.continue_final_message);
    return r;
}

/* The context and the three tokens, for the bare engine. */
static const nb_json *bare_variables(nb_arena *a, const nb_json *c)
{
    nb_json *o = nb_json_new(a, NB_JSON_OBJECT);
    for (uint32_t i = 0; i < c->count; i++) nb_json_set(a, o, c->keys[i], &c->items[i]);
    nb_json_set(a, o, NB_LIT("bos_token"), nb_json_new_str(a, NB_LIT("<s>")));
    nb_json_set(a, o, NB_LIT("eos_token"), nb_json_new_str(a, NB_LIT("</s>")));
    nb_json_set(a, o, NB_LIT("pad_token"), nb_json_new_str(a, NB_LIT("<pad>")));
    return o;
}

static bool agrees(const nb_json *entry, nb_status s, const nb_prompt *p, const nb_error *err)
{
    nb_str want;
    if (!nb_json_str(nb_json_get(entry, "output"), &want))
        return s != NB_OK && nb_json_str(nb_json_get(entry, "error"), &want) && same_error(err->text, want);
    nb_buf text = {0};
    join_spans(&text, p);
    bool same = s == NB_OK && nb_str_eq(nb_buf_str(&text), want);
    nb_buf_free(&text);
    return same;
}

enum { STRICT, VARIABLES, BARE, WAYS };

static uint32_t check_entry(const nb_template *t, nb_str tname, nb_str cname, const nb_json *entry, uint32_t done[WAYS])
{
    static const char *const names[] = {"chat layer", "variables", "bare"};
    const nb_json *c = context_of(cname), *bare = nb_json_get(entry, "bare");
    uint32_t bad = 0;
    for (int way = 0; way < WAYS; way++) {
        nb_arena *a = nb_arena_new(0);
        nb_prompt p = {0};
        nb_error err = {0};
        nb_status s = NB_OK;
        nb_chat_request r = request_of(a, c);
        if (way == STRICT) s = nb_chat_render_strict(t, &r, &test_now, a, &p, &err);
        if (way == VARIABLES && (r.continue_final_message || !variables_of(cname))) {
            nb_arena_free(a); /* cut by the chat layer: no text of its own */
            continue;
        }
        if (way == VARIABLES) s = nb_template_render(t, variables_of(cname), NULL, &test_now, a, &p, &err);
        if (way == BARE) s = nb_template_render(t, bare_variables(a, c), NULL, &test_now, a, &p, &err);
        if (!agrees(way == BARE && bare ? bare : entry, s, &p, &err)) {
            print_error("%.*s / %.*s (%s): %s\n", NB_FMT_STR(tname), NB_FMT_STR(cname), names[way],
                        s == NB_OK ? "other text" : err.text);
            bad++;
        }
        done[way]++;
        nb_arena_free(a);
    }
    return bad;
}

static void test_expected(void **state)
{
    (void)state;
    uint32_t done[WAYS] = {0}, bad = 0, skipped = 0;
    if (!v.found) {
        print_message("skipped: no chat_templates/expected.json under %s\n", test_data());
        skip();
    }
    for (uint32_t i = 0; i < v.expected.root->count; i++) {
        const nb_json *row = &v.expected.root->items[i];
        nb_template *t = open_template(v.expected.root->keys[i]);
        for (uint32_t k = 0; k < row->count; k++) {
            if (t && context_of(row->keys[k]))
                bad += check_entry(t, v.expected.root->keys[i], row->keys[k], &row->items[k], done);
            else
                skipped++;
        }
        nb_template_free(t);
    }
    print_message("%u templates: %u entries through the chat layer, %u from variables.json, %u bare; %u differ, %u "
                  "skipped (file missing)\n",
                  v.expected.root->count, done[STRICT], done[VARIABLES], done[BARE], bad, skipped);
    assert_int_equal(bad, 0);
}

/* Is `template / context` named in the list of docs/chat.md? Rows: | `template` | context context ... | */
static bool listed(const nb_buf *doc, nb_str t, nb_str c)
{
    nb_buf key = {0};
    nb_buf_printf(&key, "\n| `%.*s` |", NB_FMT_STR(t));
    int64_t at = nb_str_find(nb_buf_str(doc), nb_buf_str(&key), 0);
    nb_buf_free(&key);
    if (at < 0) return false;
    int64_t end = nb_str_find(nb_buf_str(doc), NB_LIT("\n"), (size_t)at + 1);
    nb_str row = {doc->p + at, (size_t)((end < 0 ? (int64_t)doc->n : end) - at)};
    nb_buf_printf(&key, " %.*s ", NB_FMT_STR(c));
    bool yes = nb_str_find(row, nb_buf_str(&key), 0) >= 0;
    nb_buf_free(&key);
    return yes;
}

/* The list speaks of the templates and contexts that docs/chat.md names; what else lies in the folder is only counted.
 */
static bool named(const nb_buf *doc, nb_str name)
{
    nb_buf key = {0};
    nb_buf_printf(&key, "`%.*s`", NB_FMT_STR(name));
    bool yes = nb_str_find(nb_buf_str(doc), nb_buf_str(&key), 0) >= 0;
    nb_buf_free(&key);
    return yes;
}

static void test_product(void **state)
{
    (void)state;
    nb_buf doc = {0};
    uint32_t answered = 0, kept = 0, changed = 0, bad = 0, unnamed = 0;
    if (!v.found) skip();
    assert_int_equal(nb_file_read(&doc, "docs/chat.md", UINT64_MAX, NULL), NB_OK);
    for (uint32_t i = 0; i < v.expected.root->count; i++) {
        const nb_json *row = &v.expected.root->items[i];
        nb_str tname = v.expected.root->keys[i];
        nb_template *t = open_template(tname);
        for (uint32_t k = 0; t && k < row->count; k++) {
            const nb_json *c = context_of(row->keys[k]);
            nb_arena *a = nb_arena_new(0);
            nb_prompt p = {0};
            nb_error err = {0};
            nb_str error;
            if (!c) continue;
            nb_chat_request r = request_of(a, c);
            nb_status s = nb_chat_render(t, &r, &test_now, a, &p, &err);
            bool fails = nb_json_str(nb_json_get(&row->items[k], "error"), &error);
            bool want = fails && listed(&doc, tname, row->keys[k]);
            if (!named(&doc, tname) || !named(&doc, row->keys[k])) {
                unnamed++;
            } else if (fails ? want != (s == NB_OK) : s != NB_OK) {
                print_error("%.*s / %.*s: %s, docs/chat.md %s it. %s\n", NB_FMT_STR(tname), NB_FMT_STR(row->keys[k]),
                            s == NB_OK ? "answered" : "failed", want ? "lists" : "does not list", err.text);
                bad++;
            }
            answered += fails && s == NB_OK;
            if (!fails && s == NB_OK) agrees(&row->items[k], s, &p, &err) ? kept++ : changed++;
            nb_arena_free(a);
        }
        nb_template_free(t);
    }
    print_message("product mode answers %u entries that transformers fails; %u others equal, %u shaped (arguments, "
                  "parts, roles, reasoning); %u not in docs/chat.md\n",
                  answered, kept, changed, unnamed);
    nb_buf_free(&doc);
    assert_int_equal(bad, 0);
}

/* 200 messages, 40 tools: under 5 ms for the templates that show both. */
static void test_speed(void **state)
{
    (void)state;
    nb_error err = {0};
    nb_buf text = {0}, tools = {0};
    nb_json_doc messages_doc, tools_doc;
    if (!v.found) skip();
    nb_buf_add_cstr(&text, "[");
    for (int i = 0; i < 200; i++) {
        if (i % 4 == 1)
            nb_buf_printf(&text,
                          "%s{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"abcdef%03d\", "
                          "\"type\": \"function\", \"function\": {\"name\": \"tool_%d\", \"arguments\": {\"city\": "
                          "\"Oslo %d\", \"days\": %d}}}]}",
                          i ? ", " : "", i, i % 40, i, i);
        else if (i % 4 == 2)
            nb_buf_printf(&text,
                          ", {\"role\": \"tool\", \"tool_call_id\": \"abcdef%03d\", \"name\": \"tool_%d\", "
                          "\"content\": \"{\\\"temp\\\": %d}\"}",
                          i - 1, (i - 1) % 40, i);
        else
            nb_buf_printf(&text,
                          "%s{\"role\": \"%s\", \"content\": \"Message number %d, with some words in it that make it "
                          "about as long as a line.\"}",
                          i ? ", " : "", i % 4 ? "assistant" : "user", i);
    }
    nb_buf_add_cstr(&text, "]");
    nb_buf_add_cstr(&tools, "[");
    for (int i = 0; i < 40; i++)
        nb_buf_printf(&tools,
                      "%s{\"type\": \"function\", \"function\": {\"name\": \"tool_%d\", \"description\": \"Does the "
                      "thing number %d.\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": "
                      "{\"type\": \"string\", \"description\": \"The city\"}, \"days\": {\"type\": \"integer\", "
                      "\"minimum\": 1, \"maximum\": 14, \"default\": 3}, \"unit\": {\"type\": \"string\", \"enum\": "
                      "[\"celsius\", \"fahrenheit\"]}}, \"required\": [\"city\"]}}}",
                      i ? ", " : "", i, i);
    nb_buf_add_cstr(&tools, "]");
    assert_int_equal(nb_json_parse(&messages_doc, text.p, text.n, "messages", NULL, &err), NB_OK);
    assert_int_equal(nb_json_parse(&tools_doc, tools.p, tools.n, "tools", NULL, &err), NB_OK);
    nb_chat_request r = {.messages = messages_doc.root,
                         .tools = tools_doc.root,
                         .add_generation_prompt = true,
                         .tokens = test_tokens,
                         .n_tokens = NB_COUNT(test_tokens)};
    double worst = 0, sum = 0;
    uint32_t n = 0;
    char slowest[128] = "";
    for (uint32_t i = 0; i < v.expected.root->count; i++) {
        nb_template *t = open_template(v.expected.root->keys[i]);
        double best = 1e9;
        for (int run = 0; t && run < 3; run++) {
            nb_arena *a = nb_arena_new(0);
            nb_prompt p;
            uint64_t begin = nb_now_ns();
            nb_status s = nb_chat_render_strict(t, &r, &test_now, a, &p, &err);
            double ms = (double)(nb_now_ns() - begin) / 1e6;
            if (s == NB_OK && ms < best) best = ms;
            nb_arena_free(a);
        }
        nb_template_free(t);
        if (best > 1e8) continue;
        n++;
        sum += best;
        if (best < worst) continue;
        worst = best;
        snprintf(slowest, sizeof slowest, "%.*s", NB_FMT_STR(v.expected.root->keys[i]));
    }
    print_message("200 messages with 40 tools: %u templates, %.2f ms on average, slowest %.2f ms (%s)\n", n,
                  n ? sum / n : 0.0, worst, slowest);
    nb_json_free(&messages_doc);
    nb_json_free(&tools_doc);
    nb_buf_free(&text);
    nb_buf_free(&tools);
}

static bool load(const char *name, nb_json_doc *doc)
{
    char path[8300];
    snprintf(path, sizeof path, "%s/%s", v.dir, name);
    return load_json(doc, path);
}

int main(void)
{
    snprintf(v.dir, sizeof v.dir, "%s/chat_templates", test_data());
    v.found = load("expected.json", &v.expected) && load("contexts.json", &v.contexts) &&
              load("variables.json", &v.variables);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expected), cmocka_unit_test(test_product),
                                       cmocka_unit_test(test_speed)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    if (v.expected.arena) nb_json_free(&v.expected);
    if (v.contexts.arena) nb_json_free(&v.contexts);
    if (v.variables.arena) nb_json_free(&v.variables);
    return rc;
}
