/* tools/jinja_driver: renders many templates. One JSON object a line on stdin, one on stdout.
 *   {"t": template, "v": {variables}}            the engine
 *   {"t": template, "c": {request}, "m": MODE}   the chat layer; MODE "strict" or "product"; "tokenizer_config" and
 *                                              "special_tokens_map" name the special tokens
 *   "now": seconds since 1970, local; "spans": true adds [[text, trusted], ...]
 * Answer: {"output": text} or {"error": text}. */
#include "text/chat.h"

#include <stdio.h>
#include <stdlib.h>

static void answer(const nb_prompt *p, bool spans, nb_buf *out)
{
    nb_buf all = {0};
    for (size_t i = 0; i < p->n; i++) nb_buf_add_str(&all, p->spans[i].text);
    nb_buf_add_cstr(out, "{\"output\": ");
    nb_json_write_string(out, (nb_str){all.p ? all.p : "", all.n}, NB_JSON_ASCII);
    nb_buf_free(&all);
    if (spans) nb_buf_add_cstr(out, ", \"spans\": [");
    for (size_t i = 0; spans && i < p->n; i++) {
        nb_buf_add_cstr(out, i ? ", [" : "[");
        nb_json_write_string(out, p->spans[i].text, NB_JSON_ASCII);
        nb_buf_add_cstr(out, p->spans[i].trusted ? ", true]" : ", false]");
    }
    nb_buf_add_cstr(out, spans ? "]}\n" : "}\n");
}

static nb_status chat(const nb_template *t, const nb_json *v, const int64_t *now, nb_arena *arena, nb_prompt *p,
                      nb_error *err)
{
    const nb_json *c = nb_json_get(v, "c");
    nb_chat_request r;
    nb_status st = nb_chat_request_read(&r, c, NULL, arena, err);
    if (st == NB_OK)
        st = nb_chat_tokens(nb_json_get(v, "tokenizer_config"), nb_json_get(v, "special_tokens_map"), NULL, arena,
                            &r.tokens, &r.n_tokens, err);
    if (st != NB_OK) return st;
    if (!nb_json_get(c, "add_generation_prompt")) r.add_generation_prompt = false; /* as apply_chat_template has it */
    nb_str mode = NB_LIT("strict");
    nb_json_str(nb_json_get(v, "m"), &mode);
    return nb_str_is(mode, "product") ? nb_chat_render(t, &r, now, arena, p, err)
                                      : nb_chat_render_strict(t, &r, now, arena, p, err);
}

static void one(const char *line, size_t n, nb_buf *out)
{
    nb_json_doc doc = {0};
    nb_error err = {0};
    nb_template *t = NULL;
    nb_prompt p = {0};
    nb_str text;
    int64_t now;
    bool spans = false;
    nb_json_limits lim = {.depth = 200, .max_string = 1 << 26};
    nb_arena *arena = nb_arena_new(0);
    nb_status s = nb_json_parse(&doc, line, n, "line", &lim, &err);
    if (s == NB_OK && !nb_json_str(nb_json_get(doc.root, "t"), &text))
        s = nb_fail(&err, NB_E_USAGE, "no template in \"t\"");
    bool fixed = s == NB_OK && nb_json_i64(nb_json_get(doc.root, "now"), &now);
    if (s == NB_OK) nb_json_bool(nb_json_get(doc.root, "spans"), &spans);
    if (s == NB_OK) s = nb_template_parse(&t, text.p, text.n, &err);
    if (s == NB_OK && nb_json_get(doc.root, "c"))
        s = chat(t, doc.root, fixed ? &now : NULL, arena, &p, &err);
    else if (s == NB_OK)
        s = nb_template_render(t, nb_json_get(doc.root, "v"), NULL, fixed ? &now : NULL, arena, &p, &err);
    if (s == NB_OK) {
        answer(&p, spans, out);
    } else {
        nb_buf_add_cstr(out, "{\"error\": ");
        nb_json_write_string(out, nb_str_of(err.text), NB_JSON_ASCII);
        nb_buf_add_cstr(out, "}\n");
    }
    nb_template_free(t);
    if (doc.arena) nb_json_free(&doc);
    nb_arena_free(arena);
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    nb_buf out = {0};
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0; out.n = 0) {
        one(line, (size_t)n, &out);
        fwrite(out.p, 1, out.n, stdout);
        fflush(stdout);
    }
    nb_buf_free(&out);
    free(line);
    return 0;
}
