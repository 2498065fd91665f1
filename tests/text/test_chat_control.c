/* Control tokens in every string of a request: content, names, keys, descriptions, arguments, reasoning, prefill, a role.
 * Published templates and requests meet published tokenizers; the ids hold exactly the control tokens that the template
 * wrote, counted span by span. */
#include "text/chat.h"
#include "tok_testlib.h"

static uint32_t prompts, refused, control, hidden;

typedef struct hostile {
    nb_tokenizer *t;
    nb_buf tokens; /* all special tokens, one behind the other */
} hostile;

static hostile each[8];
static size_t n_each;

static void add_tokenizer(const char *dir, const char *name)
{
    (void)name;
    nb_tokenizer *t = n_each < NB_COUNT(each) ? load_tokenizer(dir) : NULL;
    if (!t) return;
    hostile *h = &each[n_each++];
    h->t = t;
    for (uint32_t id = 0, n = 0; id < nb_tokenizer_size(t) && n < 8; id++) {
        if (!nb_tokenizer_is_special(t, (int32_t)id)) continue;
        nb_buf_add_str(&h->tokens, nb_tokenizer_token(t, (int32_t)id));
        n++;
    }
}

/* Names that templates look for keep their letters; so do roles and types. */
static bool structural(nb_str key)
{
    static const char *const names[] = {"messages", "tools", "documents", "role", "content", "type", "text", "image", "image_url", "tool_calls", "function", "name", "arguments", "parameters", "properties", "description", "required", "id", "tool_call_id", "reasoning_content", "thinking", "reasoning", "title", "add_generation_prompt", "continue_final_message"};
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (nb_str_is(key, names[i])) return true;
    return false;
}

static nb_str around(nb_arena *a, nb_str s, nb_str tokens)
{
    nb_buf b = {0};
    nb_buf_add_str(&b, tokens);
    nb_buf_add_str(&b, s);
    nb_buf_add_str(&b, tokens);
    nb_str out = nb_arena_str(a, nb_buf_str(&b));
    nb_buf_free(&b);
    return out;
}

static void poison(nb_arena *a, nb_json *v, nb_str key, nb_str tokens)
{
    bool word = nb_str_is(key, "role") || nb_str_is(key, "type");
    if (v->type == NB_JSON_STRING && !word) v->text = around(a, v->text, tokens);
    for (uint32_t i = 0; i < v->count; i++) {
        bool object = v->type == NB_JSON_OBJECT;
        poison(a, &v->items[i], object ? v->keys[i] : key, tokens);
        if (object && !structural(v->keys[i])) v->keys[i] = around(a, v->keys[i], tokens);
    }
}

static size_t specials(const nb_tokenizer *t, const nb_span *s, size_t n)
{
    nb_ids v = {0};
    nb_error err = {0};
    size_t count = 0;
    if (nb_tokenizer_encode_spans(t, s, n, NB_ENC_PARSE_ADDED, &v, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < v.n; i++) count += nb_tokenizer_is_special(t, v.id[i]);
    nb_ids_free(&v);
    return count;
}

static void one_prompt(const nb_template *t, const nb_json *c, const hostile *h, bool product, const char *name)
{
    nb_arena *a = nb_arena_new(0);
    nb_error err = {0};
    nb_prompt p = {0};
    const nb_chat_token tokens[] = {{NB_LIT("bos_token"), nb_tokenizer_token(h->t, nb_tokenizer_bos(h->t))}, {NB_LIT("eos_token"), nb_tokenizer_token(h->t, nb_tokenizer_eos(h->t))}};
    size_t n_tokens = !tokens[0].text.p ? 0 : !tokens[1].text.p ? 1 : 2;
    nb_chat_request r = {.messages = nb_json_get(c, "messages"), .tools = nb_json_get(c, "tools"), .documents = nb_json_get(c, "documents"), .variables = c,
                         .tokens = tokens, .n_tokens = n_tokens};
    nb_json_bool(nb_json_get(c, "add_generation_prompt"), &r.add_generation_prompt);
    nb_json_bool(nb_json_get(c, "continue_final_message"), &r.continue_final_message);
    const int64_t now = 1767323045;
    nb_status st = product ? nb_chat_render(t, &r, &now, a, &p, &err) : nb_chat_render_strict(t, &r, &now, a, &p, &err);
    prompts += st == NB_OK, refused += st != NB_OK;
    size_t want = 0, got = st == NB_OK ? specials(h->t, p.spans, p.n) : 0;
    for (size_t i = 0; i < p.n && st == NB_OK; i++) {
        if (p.spans[i].trusted) want += specials(h->t, &p.spans[i], 1);
        else hidden += nb_str_find(p.spans[i].text, nb_buf_str(&h->tokens), 0) >= 0;
    }
    if (got != want) fail_msg("%s: %zu control tokens, the template wrote %zu", name, got, want);
    control += (uint32_t)got;
    nb_arena_free(a);
}

/* One template with every request, the last message's role left alone or hostile too. */
static void one_template(const char *path, const char *name, const nb_buf *contexts, const hostile *h)
{
    nb_buf text = {0};
    nb_error err = {0};
    nb_template *t = NULL;
    assert_int_equal(nb_file_read(&text, path, UINT64_MAX, &err), NB_OK);
    if (nb_template_parse(&t, text.p, text.n, &err)) fail_msg("%s: %s", name, err.text);
    nb_json_doc doc;
    nb_json_limits lim = {.depth = 200};
    assert_int_equal(nb_json_parse(&doc, contexts->p, contexts->n, "contexts.json", &lim, &err), NB_OK);
    for (uint32_t i = 0; i < doc.root->count; i++) {
        nb_json *c = &doc.root->items[i];
        const nb_json *inner = nb_json_get(c, "context");
        if (inner) c = &c->items[inner - c->items];
        poison(doc.arena, c, NB_LIT(""), nb_buf_str(&h->tokens));
        one_prompt(t, c, h, false, name);
        one_prompt(t, c, h, true, name);
        const nb_json *messages = nb_json_get(c, "messages");
        nb_json *last = messages && messages->count ? &messages->items[messages->count - 1] : NULL;
        const nb_json *role = last ? nb_json_get(last, "role") : NULL;
        if (!role) continue;
        last->items[role - last->items].text = nb_buf_str(&h->tokens);
        one_prompt(t, c, h, true, name);
    }
    nb_json_free(&doc);
    nb_template_free(t);
    nb_buf_free(&text);
}

static void test_control(void **state)
{
    (void)state;
    char root[4096];
    nb_buf contexts = {0};
    struct dirent **list;
    uint32_t templates = 0;
    snprintf(root, sizeof root, "%s/tokenizers", test_data());
    each_folder(root, "tokenizer.json", add_tokenizer);
    snprintf(root, sizeof root, "%s/chat_templates", test_data());
    if (!n_each || !read_data(&contexts, root, "contexts.json")) {
        print_message("skipped: no tokenizers or chat templates under %s\n", test_data());
        skip();
    }
    int n = scandir(root, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[8300];
        snprintf(path, sizeof path, "%s/%s", root, list[i]->d_name);
        if (strstr(list[i]->d_name, ".jinja")) one_template(path, list[i]->d_name, &contexts, &each[templates++ % n_each]);
        free(list[i]);
    }
    if (n >= 0) free(list);
    print_message("%u templates, %zu tokenizers: %u prompts (%u refused), %u control tokens of templates; %u spans of requests with all control tokens, none became one\n", templates, n_each, prompts, refused, control, hidden);
    assert_true(hidden > prompts / 2);
    for (size_t i = 0; i < n_each; i++) nb_tokenizer_free(each[i].t), nb_buf_free(&each[i].tokens);
    nb_buf_free(&contexts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_control)};
    return cmocka_run_group_tests_name("control tokens", tests, NULL, NULL);
}
