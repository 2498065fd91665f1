/* cli: template: the prompt of a chat request, for people who debug prompts. */
#include "base/file.h"
#include "cli/commands.h"
#include "cli/term.h"
#include "cli/text_model.h"
#include "json/json.h"
#include "text/chat.h"

#include <stdio.h>
#include <unistd.h>

#define MAX_TEMPLATE ((uint64_t)16 << 20)

typedef struct template_args {
    const char *vars, *name;
    bool strict, raw, ids, json, spans;
} template_args;

/* The request's variables with those of --vars in their place. */
static nb_status merge(const nb_json *root, const nb_json *more, nb_arena *a, nb_json **out, nb_error *err)
{
    *out = nb_json_new(a, NB_JSON_OBJECT);
    bool ok = *out != NULL;
    for (uint32_t i = 0; ok && i < root->count; i++) ok = nb_json_set(a, *out, root->keys[i], &root->items[i]);
    for (uint32_t i = 0; ok && more && i < more->count; i++) ok = nb_json_set(a, *out, more->keys[i], &more->items[i]);
    return ok ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "no memory for the variables");
}

/* Which of the model's templates, parsed. */
static nb_status choose(const nb_network *net, const template_args *o, const nb_json *tools, nb_template **t,
                        nb_error *err)
{
    size_t i;
    nb_str name = o->name ? nb_str_of(o->name) : (nb_str){0};
    nb_status st = nb_network_template(net, name, nb_json_present(tools), &i, err);
    return st == NB_OK ? nb_template_parse(t, net->templates[i].text.p, net->templates[i].text.n, err) : st;
}

static nb_status render(const nb_network *net, nb_template **t, const nb_json *root, const template_args *o,
                        nb_arena *a, nb_prompt *p, nb_error *err)
{
    nb_json_doc extra = {0};
    nb_json *all = NULL;
    nb_chat_request r;
    nb_status st = NB_OK;
    if (o->vars) {
        nb_json_limits lim = {.flags = NB_JSON_COPY};
        st = nb_json_parse(&extra, o->vars, strlen(o->vars), "--vars", &lim, err);
        if (st != NB_OK || !nb_json_is(extra.root, NB_JSON_OBJECT)) {
            nb_error why = *err;
            st = nb_fail(err, NB_E_USAGE, "%s", st == NB_OK ? "--vars is not a JSON object" : why.text);
        }
    }
    if (st == NB_OK) st = nb_chat_request_read(&r, root, extra.root, a, err);
    if (st == NB_OK && !*t) st = choose(net, o, r.tools, t, err);
    if (st == NB_OK && o->raw) {
        st = merge(root, extra.root, a, &all, err);
        if (st == NB_OK) st = nb_template_render(*t, all, NULL, NULL, a, p, err);
    } else if (st == NB_OK) {
        if (net) r.tokens = net->special_tokens, r.n_tokens = net->n_special_tokens;
        st = o->strict ? nb_chat_render_strict(*t, &r, NULL, a, p, err) : nb_chat_render(*t, &r, NULL, a, p, err);
    }
    nb_json_free(&extra);
    return st;
}

static void add_span(nb_buf *b, const nb_span *s)
{
    nb_buf_printf(b, "{\"from\":\"%s\",\"text\":", s->trusted ? "template" : "request");
    nb_json_write_string(b, s->text, NB_JSON_COMPACT);
    nb_buf_add_char(b, '}');
}

/* One object: the prompt, and what else was asked for. */
static void add_object(nb_buf *b, nb_str whole, const nb_prompt *p, const nb_ids *v, const template_args *o)
{
    nb_buf_add_cstr(b, "{\"prompt\":");
    nb_json_write_string(b, whole, NB_JSON_COMPACT);
    if (o->ids) {
        nb_buf_add_cstr(b, ",\"ids\":[");
        for (size_t i = 0; i < v->n; i++) nb_buf_printf(b, "%s%d", i ? "," : "", v->id[i]);
        nb_buf_add_char(b, ']');
    }
    if (o->spans) {
        nb_buf_add_cstr(b, ",\"spans\":[");
        for (size_t i = 0; i < p->n; i++) {
            if (i) nb_buf_add_char(b, ',');
            add_span(b, &p->spans[i]);
        }
        nb_buf_add_char(b, ']');
    }
    nb_buf_add_cstr(b, "}\n");
}

static nb_status print_prompt(const nb_network *net, const nb_prompt *p, const template_args *o, nb_error *err)
{
    nb_buf b = {0}, whole = {0};
    nb_ids v = {0};
    nb_status st = NB_OK;
    if (o->ids && !net) return nb_fail(err, NB_E_UNSUPPORTED, "a template alone has no tokenizer");
    if (o->ids && (st = nb_network_need_tokenizer(net, err)) != NB_OK) return st;
    if (o->ids) st = nb_tokenizer_encode_spans(net->tokenizer, p->spans, p->n, NB_ENC_PARSE_ADDED, &v, err);
    for (size_t i = 0; i < p->n; i++) nb_buf_add_str(&whole, p->spans[i].text);
    if (o->json) {
        add_object(&b, nb_buf_str(&whole), p, &v, o);
    } else if (o->ids) {
        for (size_t i = 0; i < v.n; i++) nb_buf_printf(&b, "%s%d", i ? " " : "", v.id[i]);
        nb_buf_add_char(&b, '\n');
    } else if (o->spans) {
        for (size_t i = 0; i < p->n; i++) {
            add_span(&b, &p->spans[i]);
            nb_buf_add_char(&b, '\n');
        }
    } else if (nb_term_is_tty(STDOUT_FILENO)) {
        nb_term_clean(&b, nb_buf_str(&whole), true);
    } else {
        nb_buf_add_str(&b, nb_buf_str(&whole));
    }
    if (st == NB_OK && b.n) fwrite(b.p, 1, b.n, stdout);
    nb_buf_free(&whole);
    nb_buf_free(&b);
    nb_ids_free(&v);
    return st;
}

/* A file that holds a template and nothing else. */
static bool is_template_file(const char *where)
{
    static const char *const ends[] = {".jinja", ".jinja2", ".j2"}, *const others[] = {".json", ".model", ".tiktoken",
                                                                                       ".gguf"};
    nb_str s = nb_str_of(where);
    for (size_t i = 0; i < NB_COUNT(ends); i++)
        if (nb_str_ends(s, ends[i])) return true;
    for (size_t i = 0; i < NB_COUNT(others); i++)
        if (nb_str_ends(s, others[i])) return false;
    return !nb_path_is_dir(where) && (nb_looks_like_path(where) || (strchr(where, '/') && nb_path_exists(where)));
}

static nb_status run(const char *where, const char *file, const template_args *o, nb_error *err)
{
    nb_text_model m = {0};
    nb_buf source = {0}, request = {0};
    nb_json_doc doc = {0};
    nb_template *t = NULL;
    nb_prompt p = {0};
    nb_arena *a = nb_arena_new(0);
    nb_status st = a ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "no memory");
    bool alone = is_template_file(where);
    if (st == NB_OK && alone && o->name) st = nb_fail(err, NB_E_USAGE, "--template: %s holds one template", where);
    if (st == NB_OK) st = alone ? nb_file_read(&source, where, MAX_TEMPLATE, err) : nb_text_model_open(&m, where, err);
    if (st == NB_OK && !alone && !m.net->n_templates && m.net->chat_error.status == NB_OK)
        st = nb_fail(err, NB_E_NOT_FOUND, "%s has no chat template", where);
    if (st == NB_OK) st = nb_read_input(&request, file, NB_MAX_TEXT, err);
    if (st == NB_OK) st = nb_json_parse(&doc, request.p, request.n, file, NULL, err);
    if (st == NB_OK && alone) st = nb_template_parse(&t, source.p ? source.p : "", source.n, err);
    if (st == NB_OK) st = render(m.net, &t, doc.root, o, a, &p, err);
    if (st == NB_OK) st = print_prompt(m.net, &p, o, err);
    nb_template_free(t);
    nb_json_free(&doc);
    nb_buf_free(&source);
    nb_buf_free(&request);
    nb_text_model_close(&m);
    nb_arena_free(a);
    return st;
}

int nb_cmd_template(const nb_command *c, int argc, char **argv)
{
    template_args o = {0};
    const nb_opt opts[] = {
        {"--vars", NULL, NB_OPT_STR, &o.vars, "JSON", "an object of variables and fields, in place of the request's"},
        {"--template", NULL, NB_OPT_STR, &o.name, "NAME",
         "one of the model's templates; else tool_use where there are tools, else default"},
        {"--strict", NULL, NB_OPT_FLAG, &o.strict, NULL,
         "prepare the request exactly as transformers does, and fail where it fails"},
        {"--raw", NULL, NB_OPT_FLAG, &o.raw, NULL, "no preparation: FILE holds the template's variables"},
        {"--ids", NULL, NB_OPT_FLAG, &o.ids, NULL, "print the prompt's token ids"},
        {"--spans", NULL, NB_OPT_FLAG, &o.spans, NULL,
         "one JSON object a line: which text is the template's, which the request's"},
        {"--json", NULL, NB_OPT_FLAG, &o.json, NULL, "print one JSON object; with --ids and --spans it holds them too"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n != 2)
        return nb_usage_error(c,
                              "a model, folder or template file and a request file (- for standard input) are needed");
    nb_error err = {0};
    return run(argv[0], argv[1], &o, &err) == NB_OK ? 0 : nb_report(&err);
}
