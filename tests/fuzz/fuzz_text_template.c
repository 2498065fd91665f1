/* A template and its variables: everything up to the first NUL is the template, the rest JSON. Rendered by the engine
 * and by both chat layers. */
#include "text/chat.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const nb_prompt *p)
{
    for (size_t i = 0; i < p->n; i++) {
        if (!p->spans[i].text.n || nb_utf8_valid_prefix(p->spans[i].text.p, p->spans[i].text.n) != p->spans[i].text.n)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char empty[] = "{}";
    const nb_render_limits lim = {.steps = 20000, .output_bytes = 1 << 18, .memory_bytes = 32 << 20};
    const int64_t now = 1767323045;
    const uint8_t *end = memchr(data, 0, size);
    size_t n = end ? (size_t)(end - data) : size;
    nb_template *t = NULL;
    nb_json_doc doc;
    nb_error err;
    nb_prompt p;
    if (nb_template_parse(&t, (const char *)data, n, &err) != NB_OK) return 0;
    nb_json_limits json = {.flags = NB_JSON_COPY | NB_JSON_LONE_SURROGATES};
    const char *text = end && size > n + 1 ? (const char *)end + 1 : empty;
    if (nb_json_parse(&doc, text, text == empty ? 2 : size - n - 1, "variables", &json, &err) == NB_OK) {
        nb_arena *a = nb_arena_new(0);
        if (a && nb_template_render(t, doc.root, &lim, &now, a, &p, &err) == NB_OK) check(&p);
        static const nb_chat_token bos = {{"bos_token", 9}, {"<s>", 3}};
        nb_chat_request r = {.messages = nb_json_get(doc.root, "messages"),
                             .tools = nb_json_get(doc.root, "tools"),
                             .tokens = &bos,
                             .n_tokens = 1};
        nb_json_bool(nb_json_get(doc.root, "continue_final_message"), &r.continue_final_message);
        bool small = n < 400; /* the chat layers have no limits of the caller: short templates only */
        if (a && small && r.messages && !memmem(data, n, "range", 5) &&
            nb_chat_render(t, &r, &now, a, &p, &err) == NB_OK)
            check(&p);
        nb_arena_free(a);
        nb_json_free(&doc);
    }
    nb_template_free(t);
    return 0;
}
