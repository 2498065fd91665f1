/* The floors of speed on one core, each as it was promised: 20 MB/s on prose and code, 2 MB/s on hostile text, a large tokenizer ready in 250 ms from
 * tokenizer.json and in 5 ms from its prepared form, 200 messages with 40 tools rendered in 5 ms. Over two made tokenizers of 262,144 entries and
 * everything in the test data. Processor time of this thread, and another try where one was too slow: a busy machine does not fail it. Builds with
 * sanitizers or without optimisation do the same work and compare no times. */
#include "tok_hostile.h"
#include "tok_made.h"

#include "text/chat.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(NB_DEBUG) || defined(NB_TSAN)
enum { TIMED = 0, TRIES = 1 };
#else
enum { TIMED = 1, TRIES = 100 };
#endif

enum { CODE_BYTES = 400000, MESSAGES = 200, TOOLS = 40 };
static const double text_floor = 20e6, hostile_floor = 2e6, load_most = 0.250, open_most = 0.005, render_most = 0.005;

static nb_buf prose, code, made_json[2];

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- what is measured: each does its work once and says how many seconds of it count ---- */

typedef struct job {
    const nb_tokenizer *t;
    nb_str source;                          /* tokenizer.json, the path of the prepared file, or the text */
    nb_status (*load)(nb_tokenizer **, const char *, size_t, const nb_json *, nb_error *);
    const nb_template *template;
    const nb_chat_request *request;
    nb_error err;
    bool bad;
} job;

static double encode_once(job *j)
{
    nb_ids v = {0};
    double from = cpu_seconds();
    j->bad = nb_tokenizer_encode(j->t, j->source, NB_ENC_PARSE_ADDED, &v, &j->err) != NB_OK;
    double s = cpu_seconds() - from;
    nb_ids_free(&v);
    return s;
}

static double load_once(job *j)
{
    nb_tokenizer *t = NULL;
    double from = cpu_seconds();
    j->bad = j->load(&t, j->source.p, j->source.n, NULL, &j->err) != NB_OK;
    double s = cpu_seconds() - from;
    nb_tokenizer_free(t);
    return s;
}

static const char key[65] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

static double open_once(job *j)
{
    nb_tokenizer *t = NULL;
    nb_mapped map = {0};
    double from = cpu_seconds();
    j->bad = nb_file_map(&map, j->source.p, UINT64_MAX, &j->err) || nb_tokenizer_open(&t, map.p, map.n, key, &j->err);
    double s = cpu_seconds() - from;
    nb_tokenizer_free(t);
    nb_file_unmap(&map);
    return s;
}

static double render_once(job *j)
{
    nb_prompt p;
    nb_arena *a = nb_arena_new(0);
    const int64_t now = 1767323045;
    double from = cpu_seconds();
    j->bad = nb_chat_render(j->template, j->request, &now, a, &p, &j->err) != NB_OK;
    double s = cpu_seconds() - from;
    nb_arena_free(a);
    return s;
}

/* The best of several tries, the first that is good enough ends them. `worst` keeps the slowest of all that were measured. */
typedef struct worst { const char *what; double share; char name[128]; size_t count; } worst;

static void measure(worst *w, const char *name, double most, double (*once)(job *), job *j)
{
    double best = 1e9;
    for (int i = 0; i < TRIES && best > most; i++) {
        double s = once(j);
        if (j->bad) fail_msg("%s, %s: %s", name, w->what, j->err.text);
        if (s < best) best = s;
        if (i % 16 == 15 && best > most) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* what else runs here may end; seldom, as it takes the caches meanwhile */
    }
    w->count++;
    if (best / most > w->share) {
        w->share = best / most;
        snprintf(w->name, sizeof w->name, "%s", name);
    }
    if (TIMED && best > most) fail_msg("%s, %s: %.2f ms, and %.2f ms are promised", name, w->what, best * 1e3, most * 1e3);
}

static void report(const worst *w, double floor, const char *unit, bool rate)
{
    if (w->count) print_message("speed: %s: %zu measured, the slowest %.2f %s (%s)\n", w->what, w->count, rate ? floor / w->share : floor * w->share, unit, w->name);
}

/* ---- tokenizers ---- */

static worst on_prose = {.what = "prose"}, on_code = {.what = "code"}, on_hostile = {.what = "hostile text"}, on_load = {.what = "from its file"}, on_open = {.what = "prepared"};

static void speeds(const nb_tokenizer *t, const char *name)
{
    nb_buf h = {0}, saved = {0};
    job j = {.t = t, .source = nb_buf_str(&prose)};
    measure(&on_prose, name, (double)prose.n / text_floor, encode_once, &j);
    j.source = nb_buf_str(&code);
    measure(&on_code, name, (double)code.n / text_floor, encode_once, &j);
    for (size_t k = 0; k < NB_COUNT(hostile_kinds); k++) {
        char full[128];
        hostile_text(&h, k, t);
        if (!h.n) continue;
        snprintf(full, sizeof full, "%s, %s", name, hostile_kinds[k]);
        j.source = nb_buf_str(&h);
        measure(&on_hostile, full, (double)h.n / hostile_floor, encode_once, &j);
    }
    char path[64];
    int fd = memfd_create("prepared", 0);
    assert_true(fd >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(nb_tokenizer_save(t, &saved, key, &j.err), NB_OK);
    assert_int_equal(nb_write_full(fd, saved.p, saved.n, "prepared", &j.err), NB_OK);
    j.source = nb_str_of(path);
    measure(&on_open, name, open_most, open_once, &j);
    close(fd);
    nb_buf_free(&h), nb_buf_free(&saved);
}

static nb_status load_spm(nb_tokenizer **t, const char *p, size_t n, const nb_json *config, nb_error *err) { return nb_tokenizer_from_spm(t, p, n, config, err); }

static nb_tokenizer *load_timed(const char *name, nb_str source, bool json)
{
    nb_tokenizer *t = NULL;
    job j = {.source = source, .load = json ? nb_tokenizer_from_json : load_spm};
    measure(&on_load, name, load_most, load_once, &j);
    assert_int_equal(j.load(&t, source.p, source.n, NULL, &j.err), NB_OK);
    return t;
}

/* The made ones are what they should be: full, and of use for these texts. */
static void test_made(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        nb_tokenizer *t = load_timed(i ? "made, byte fallback" : "made, byte-level", nb_buf_str(&made_json[i]), true);
        nb_ids v = {0};
        nb_buf back = {0};
        assert_int_equal(nb_tokenizer_size(t), MADE_ENTRIES);
        assert_int_equal(nb_tokenizer_encode(t, nb_buf_str(&prose), 0, &v, NULL), NB_OK);
        assert_in_range(v.n, prose.n / 12, prose.n / 2);
        assert_int_equal(nb_tokenizer_decode(t, v.id, v.n, false, &back, NULL), NB_OK);
        assert_true(nb_str_eq(nb_buf_str(&back), nb_buf_str(&prose)));
        nb_ids_free(&v), nb_buf_free(&back);
        speeds(t, i ? "made, byte fallback" : "made, byte-level");
        nb_tokenizer_free(t);
    }
}

static bool model_files;

static void one(const char *dir, const char *name)
{
    nb_buf source = {0};
    assert_true(read_data(&source, dir, model_files ? "tokenizer.model" : "tokenizer.json"));
    nb_tokenizer *t = load_timed(name, nb_buf_str(&source), !model_files);
    speeds(t, name);
    nb_tokenizer_free(t);
    nb_buf_free(&source);
}

static void test_found(void **state)
{
    static const char *const folders[] = {"tokenizers", "tokenizers/components"};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        char root[4096];
        model_files = i % 2;
        snprintf(root, sizeof root, "%s/%s", test_data(), folders[i / 2]);
        each_folder(root, model_files ? "tokenizer.model" : "tokenizer.json", one);
    }
    if (on_load.count == 2) print_message("skipped: 1 (no tokenizers in the test data)\n");
    report(&on_prose, text_floor / 1e6, "MB/s", true), report(&on_code, text_floor / 1e6, "MB/s", true), report(&on_hostile, hostile_floor / 1e6, "MB/s", true);
    report(&on_load, load_most * 1e3, "ms", false), report(&on_open, open_most * 1e3, "ms", false);
}

/* ---- templates ---- */

static const char chatml[] =
    "{%- if tools %}\n    {{- '<|im_start|>system\\n' }}\n    {%- if messages[0].role == 'system' %}\n        {{- messages[0].content + '\\n\\n' }}\n    {%- endif %}\n"
    "    {{- '# Tools\\n' }}\n    {%- for tool in tools %}\n        {{- '\\n' }}\n        {{- tool | tojson }}\n    {%- endfor %}\n    {{- '<|im_end|>\\n' }}\n{%- endif %}\n"
    "{%- set ns = namespace(last=messages | length - 1) %}\n{%- for message in messages[::-1] %}\n    {%- if message.role == 'user' and not message.content.startswith('<tool_response>') %}\n"
    "        {%- set ns.last = [ns.last, loop.index0] | min %}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- for message in messages %}\n    {%- if message.role == 'assistant' and message.tool_calls %}\n        {{- '<|im_start|>assistant\\n' + (message.content or '') }}\n"
    "        {%- for call in message.tool_calls %}\n            {{- '<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}\n            {{- call.function.arguments | tojson }}\n"
    "            {{- '}\\n</tool_call>' }}\n        {%- endfor %}\n        {{- '<|im_end|>\\n' }}\n    {%- elif loop.index0 or message.role != 'system' or not tools %}\n"
    "        {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>\\n' }}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}";

/* A long piece of work with tools: questions, calls, results and answers of some sentences each. */
static void conversation(nb_buf *out)
{
    size_t at = 0;
    nb_buf_add_cstr(out, "{\"messages\":[{\"role\":\"system\",\"content\":\"You help.\"}");
    for (int i = 1; i < MESSAGES; i++) {
        static const char *const roles[] = {"user", "assistant", "tool", "assistant"};
        nb_str said = {prose.p + at, nb_utf8_valid_prefix(prose.p + at, 300)};
        nb_buf_printf(out, ",{\"role\":\"%s\",\"content\":", roles[(i - 1) % 4]);
        nb_json_write_string(out, i % 4 == 2 ? NB_LIT("") : said, 0);
        if (i % 4 == 2) nb_buf_printf(out, ",\"tool_calls\":[{\"id\":\"call%05d\",\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"arguments\":{\"path\":\"a/b\",\"lines\":[1,%d]}}}]", i, i % TOOLS, i);
        if (i % 4 == 3) nb_buf_printf(out, ",\"name\":\"tool_%d\",\"tool_call_id\":\"call%05d\"", (i - 1) % TOOLS, i - 1);
        nb_buf_add_char(out, '}');
        at = (at + said.n) % (prose.n - 400);
        while (((uint8_t)prose.p[at] & 0xC0) == 0x80) at++;
    }
    nb_buf_add_cstr(out, "],\"tools\":[");
    for (int i = 0; i < TOOLS; i++)
        nb_buf_printf(out, "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%d\",\"description\":\"Reads or changes the file that is named, at most so many lines of it.\",\"parameters\":{\"type\":\"object\",\"properties\":"
                      "{\"path\":{\"type\":\"string\",\"description\":\"Where it lies, from the root of the project\"},\"lines\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"description\":\"First and last\"},"
                      "\"mode\":{\"type\":\"string\",\"enum\":[\"read\",\"write\",\"append\"]}},\"required\":[\"path\"]}}}", i ? "," : "", i);
    nb_buf_add_cstr(out, "]}");
}

static worst on_render = {.what = "200 messages with 40 tools"};
static size_t refused;

static void render(const char *name, nb_str text, const nb_chat_request *r)
{
    nb_template *t = NULL;
    nb_error err = {0};
    nb_prompt p;
    nb_arena *a = nb_arena_new(0);
    assert_int_equal(nb_template_parse(&t, text.p, text.n, &err), NB_OK);
    job j = {.template = t, .request = r};
    /* Some templates know no tools, or not in this order. */
    if (nb_chat_render(t, r, NULL, a, &p, &err)) refused++;
    else measure(&on_render, name, render_most, render_once, &j);
    nb_arena_free(a);
    nb_template_free(t);
}

static void test_render(void **state)
{
    char dir[4096];
    struct dirent **list;
    nb_buf text = {0};
    nb_json_doc doc = {0};
    (void)state;
    conversation(&text);
    assert_int_equal(nb_json_parse(&doc, text.p, text.n, "request", NULL, NULL), NB_OK);
    const nb_chat_token tokens[] = {{NB_LIT("bos_token"), NB_LIT("<s>")}, {NB_LIT("eos_token"), NB_LIT("</s>")}};
    nb_chat_request r = {.messages = nb_json_get(doc.root, "messages"), .tools = nb_json_get(doc.root, "tools"), .add_generation_prompt = true, .tokens = tokens, .n_tokens = NB_COUNT(tokens)};
    assert_int_equal(r.messages->count, MESSAGES);
    assert_int_equal(r.tools->count, TOOLS);
    render("ChatML", NB_LIT(chatml), &r);
    assert_int_equal(refused, 0);
    snprintf(dir, sizeof dir, "%s/chat_templates", test_data());
    int n = scandir(dir, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        nb_buf source = {0};
        if (strstr(list[i]->d_name, ".jinja") && read_data(&source, dir, list[i]->d_name)) render(list[i]->d_name, nb_buf_str(&source), &r);
        nb_buf_free(&source);
        free(list[i]);
    }
    if (n >= 0) free(list);
    else print_message("skipped: 1 (no chat templates in the test data)\n");
    report(&on_render, render_most * 1e3, "ms", false);
    print_message("%zu templates refuse this conversation\n", refused);
    nb_json_free(&doc);
    nb_buf_free(&text);
}

static int start(void **state)
{
    (void)state;
    repository_text(&prose, "docs", ".md", CODE_BYTES);
    repository_text(&code, "src/text", ".c", CODE_BYTES);
    if (prose.n < 20000 || code.n < 20000) return -1;
    for (int i = 0; i < 2; i++) made_tokenizer(&made_json[i], i == 0, nb_buf_str(&prose), nb_buf_str(&code));
    return 0;
}

static int end(void **state)
{
    (void)state;
    nb_buf_free(&prose), nb_buf_free(&code), nb_buf_free(&made_json[0]), nb_buf_free(&made_json[1]);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_made), cmocka_unit_test(test_found), cmocka_unit_test(test_render)};
    return cmocka_run_group_tests_name("speed", tests, start, end);
}
