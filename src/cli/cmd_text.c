/* cli: tokenize, detokenize, template: for people who debug prompts. */
#include "base/file.h"
#include "cli/commands.h"
#include "cli/term.h"
#include "model/model.h"
#include "text/chat.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_TEXT ((size_t)1 << 30)

/* Only config and tokenizer are needed: no weights are touched beyond their headers. */
static nb_status open_network(const char *text, nb_store **store, nb_network **net, nb_error *err)
{
    nb_name name;
    nb_network_options o = {.weights_only = true};
    nb_status st = nb_name_parse(&name, text, err);
    if (st == NB_OK) st = nb_store_open(store, NULL, err);
    if (st == NB_OK) st = nb_network_open(net, *store, &name, &o, err);
    return st;
}

static nb_status need_tokenizer(const nb_network *net, const char *name, nb_error *err)
{
    return net->tokenizer ? NB_OK : nb_fail(err, NB_E_UNSUPPORTED, "%s has no tokenizer", name);
}

static void print_ids(const nb_tokenizer *t, const nb_ids *v, bool json, bool ids_only)
{
    nb_buf b = {0}, piece = {0};
    if (json) nb_buf_printf(&b, "{\"count\":%zu,\"tokens\":[", v->n);
    for (size_t i = 0; i < v->n; i++) {
        nb_str token = nb_tokenizer_token(t, v->id[i]);
        if (json) {
            nb_buf_printf(&b, "%s{\"id\":%d,\"offset\":%u,\"token\":", i ? "," : "", v->id[i], v->off ? v->off[i] : 0);
            nb_json_write_string(&b, token.p ? token : NB_LIT(""), NB_JSON_COMPACT);
            piece.n = 0;
            nb_tokenizer_bytes(t, v->id[i], &piece);
            nb_buf_add_cstr(&b, ",\"bytes\":[");
            for (size_t k = 0; k < piece.n; k++)
                nb_buf_printf(&b, "%s%u", k ? "," : "", (unsigned)(unsigned char)piece.p[k]);
            nb_buf_add_cstr(&b, "]}");
        } else if (ids_only) {
            nb_buf_printf(&b, "%s%d", i ? " " : "", v->id[i]);
        } else {
            nb_buf_printf(&b, "%8d  %6u  ", v->id[i], v->off ? v->off[i] : 0);
            nb_json_write_string(&b, token.p ? token : NB_LIT(""), NB_JSON_COMPACT);
            nb_buf_add_char(&b, '\n');
        }
    }
    if (json) nb_buf_add_cstr(&b, "]}");
    if (json || ids_only) nb_buf_add_char(&b, '\n');
    fwrite(b.p, 1, b.n, stdout);
    nb_buf_free(&b);
    nb_buf_free(&piece);
}

int nb_cmd_tokenize(const nb_command *c, int argc, char **argv)
{
    bool json = false, ids_only = false, no_special = false, untrusted = false;
    const char *file = NULL;
    const nb_opt opts[] = {
        {"--file", "-f", NB_OPT_STR, &file, "FILE", "read the text from a file; without text or file: standard input"},
        {"--ids", NULL, NB_OPT_FLAG, &ids_only, NULL, "print ids only, on one line"},
        {"--no-special", NULL, NB_OPT_FLAG, &no_special, NULL, "do not let the tokenizer add BOS and the like"},
        {"--untrusted", NULL, NB_OPT_FLAG, &untrusted, NULL,
         "take the text as request content: control tokens in it stay text"},
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON object with ids, offsets, pieces and bytes"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n < 1 || n > 2 || (n == 2 && file)) return nb_usage_error(c, "a model and at most one text are needed");
    nb_error err = {0};
    nb_store *store = NULL;
    nb_network *net = NULL;
    nb_buf text = {0};
    nb_ids v = {0};
    nb_status st = NB_OK;
    if (n == 2)
        nb_buf_add_cstr(&text, argv[1]);
    else if (file)
        st = nb_file_read(&text, file, MAX_TEXT, &err);
    else
        st = nb_read_stdin(&text, MAX_TEXT, &err);
    if (st == NB_OK) st = open_network(argv[0], &store, &net, &err);
    if (st == NB_OK) st = need_tokenizer(net, argv[0], &err);
    int flags = NB_ENC_PARSE_ADDED | (ids_only ? 0 : NB_ENC_OFFSETS) | (no_special ? 0 : NB_ENC_SPECIALS);
    nb_span span = {{text.p ? text.p : "", text.n}, !untrusted};
    if (st == NB_OK) st = nb_tokenizer_encode_spans(net->tokenizer, &span, 1, flags, &v, &err);
    if (st == NB_OK) print_ids(net->tokenizer, &v, json, ids_only);
    nb_ids_free(&v);
    nb_buf_free(&text);
    nb_network_close(net);
    nb_store_close(store);
    return st == NB_OK ? 0 : nb_report(&err);
}

static nb_status collect_ids(int n, char **words, nb_ids *v, nb_error *err)
{
    nb_buf in = {0};
    nb_status st = NB_OK;
    if (n == 0) st = nb_read_stdin(&in, MAX_TEXT, err);
    for (int i = 0; i < n; i++) nb_buf_printf(&in, "%s ", words[i]);
    const char *p = nb_buf_cstr(&in);
    while (st == NB_OK && p && *p) {
        if (strchr(" ,\n\t[]", *p)) {
            p++;
            continue;
        }
        char *end;
        long id = strtol(p, &end, 10);
        if (end == p || id < 0 || id > INT32_MAX)
            st = nb_fail(err, NB_E_USAGE, "'%.20s' is not a token id", p);
        else if (!nb_ids_push(v, (int32_t)id))
            st = nb_fail(err, NB_E_NO_MEMORY, "no memory for ids");
        p = end;
    }
    nb_buf_free(&in);
    return st;
}

int nb_cmd_detokenize(const nb_command *c, int argc, char **argv)
{
    bool skip = false, json = false, stream = false;
    const nb_opt opts[] = {
        {"--skip-special", NULL, NB_OPT_FLAG, &skip, NULL, "leave special tokens out"},
        {"--stream", NULL, NB_OPT_FLAG, &stream, NULL, "decode id by id, as while generating; one JSON string a line"},
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON object"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n < 1) return nb_usage_error(c, "a model is needed");
    nb_error err = {0};
    nb_store *store = NULL;
    nb_network *net = NULL;
    nb_ids v = {0};
    nb_buf out = {0}, piece = {0};
    nb_decode_stream *ds = NULL;
    nb_status st = collect_ids(n - 1, argv + 1, &v, &err);
    if (st == NB_OK) st = open_network(argv[0], &store, &net, &err);
    if (st == NB_OK) st = need_tokenizer(net, argv[0], &err);
    if (st == NB_OK && stream) {
        ds = nb_decode_stream_new(net->tokenizer, skip);
        if (!ds) st = nb_fail(&err, NB_E_NO_MEMORY, "no memory for a decode stream");
        for (size_t i = 0; st == NB_OK && i <= v.n; i++) {
            piece.n = 0;
            st = i < v.n ? nb_decode_stream_push(ds, v.id[i], &piece, &err) : nb_decode_stream_flush(ds, &piece, &err);
            nb_json_write_string(&out, nb_buf_str(&piece), NB_JSON_COMPACT);
            nb_buf_add_char(&out, '\n');
        }
    } else if (st == NB_OK) {
        st = nb_tokenizer_decode(net->tokenizer, v.id, v.n, skip, &piece, &err);
        if (json) {
            nb_buf_add_cstr(&out, "{\"text\":");
            nb_json_write_string(&out, nb_buf_str(&piece), NB_JSON_COMPACT);
            nb_buf_add_cstr(&out, "}\n");
        } else {
            if (nb_term_is_tty(STDOUT_FILENO))
                nb_term_clean(&out, nb_buf_str(&piece), true);
            else
                nb_buf_add_str(&out, nb_buf_str(&piece));
            nb_buf_add_char(&out, '\n');
        }
    }
    if (st == NB_OK) fwrite(out.p, 1, out.n, stdout);
    nb_decode_stream_free(ds);
    nb_ids_free(&v);
    nb_buf_free(&out);
    nb_buf_free(&piece);
    nb_network_close(net);
    nb_store_close(store);
    return st == NB_OK ? 0 : nb_report(&err);
}

/* ---- template ---- */

static nb_str token_text(const nb_network *net, const char *key, int32_t id)
{
    nb_str s = {0};
    const nb_json *v = net->tokenizer_config ? nb_json_get(net->tokenizer_config, key) : NULL;
    if (nb_json_str(v, &s) || nb_json_str(nb_json_get(v, "content"), &s)) return s;
    return net->tokenizer && id >= 0 ? nb_tokenizer_token(net->tokenizer, id) : s;
}

/* The request's own fields; everything else is a template variable, and --vars adds to them. */
static nb_json *collect_variables(const nb_json *root, const nb_json *more, nb_arena *a)
{
    static const char *const fields[] = {"messages", "tools", "documents", "add_generation_prompt",
                                         "continue_final_message"};
    nb_json *vars = nb_json_new(a, NB_JSON_OBJECT);
    for (uint32_t i = 0; vars && i < root->count; i++) {
        bool field = false;
        for (size_t k = 0; k < NB_COUNT(fields); k++) field |= nb_str_is(root->keys[i], fields[k]);
        if (!field && !nb_json_set(a, vars, root->keys[i], &root->items[i])) return NULL;
    }
    for (uint32_t i = 0; vars && nb_json_is(more, NB_JSON_OBJECT) && i < more->count; i++)
        if (!nb_json_set(a, vars, more->keys[i], &more->items[i])) return NULL;
    return vars;
}

typedef struct template_args {
    const char *vars;
    bool strict, raw, ids, json, spans;
} template_args;

static nb_status render(const nb_network *net, const nb_template *t, const nb_json *root, const template_args *o,
                        nb_arena *a, nb_prompt *p, nb_error *err)
{
    nb_json_doc extra = {0};
    nb_status st = NB_OK;
    if (o->vars) st = nb_json_parse(&extra, o->vars, strlen(o->vars), "--vars", NULL, err);
    if (st == NB_OK && !nb_json_is(root, NB_JSON_OBJECT))
        st = nb_fail(err, NB_E_USAGE, "the request is not a JSON object");
    nb_json *vars = st == NB_OK ? collect_variables(root, extra.root, a) : NULL;
    if (st == NB_OK && !vars) st = nb_fail(err, NB_E_NO_MEMORY, "no memory for the variables");
    if (st == NB_OK && o->raw) {
        st = nb_template_render(t, root, NULL, NULL, a, p, err);
    } else if (st == NB_OK) {
        nb_chat_request r = {.messages = nb_json_get(root, "messages"),
                             .tools = nb_json_get(root, "tools"),
                             .documents = nb_json_get(root, "documents"),
                             .variables = vars,
                             .add_generation_prompt = true};
        nb_json_bool(nb_json_get(root, "add_generation_prompt"), &r.add_generation_prompt);
        nb_json_bool(nb_json_get(root, "continue_final_message"), &r.continue_final_message);
        if (r.continue_final_message && !nb_json_get(root, "add_generation_prompt")) r.add_generation_prompt = false;
        r.bos_token = token_text(net, "bos_token", net->tokenizer ? nb_tokenizer_bos(net->tokenizer) : -1);
        r.eos_token = token_text(net, "eos_token", net->tokenizer ? nb_tokenizer_eos(net->tokenizer) : -1);
        r.pad_token = token_text(net, "pad_token", -1);
        st = o->strict ? nb_chat_render_strict(t, &r, NULL, a, p, err) : nb_chat_render(t, &r, NULL, a, p, err);
    }
    nb_json_free(&extra);
    return st;
}

static nb_status print_prompt(const nb_network *net, const nb_prompt *p, const template_args *o, nb_error *err)
{
    nb_buf b = {0};
    nb_ids v = {0};
    nb_status st = NB_OK;
    if (o->ids) {
        if (!net->tokenizer) return nb_fail(err, NB_E_UNSUPPORTED, "the model has no tokenizer");
        st = nb_tokenizer_encode_spans(net->tokenizer, p->spans, p->n, NB_ENC_PARSE_ADDED, &v, err);
        for (size_t i = 0; i < v.n; i++) nb_buf_printf(&b, "%s%d", i ? " " : "", v.id[i]);
        nb_buf_add_char(&b, '\n');
    } else if (o->spans) {
        for (size_t i = 0; i < p->n; i++) {
            nb_buf_printf(&b, "{\"from\":\"%s\",\"text\":", p->spans[i].trusted ? "template" : "request");
            nb_json_write_string(&b, p->spans[i].text, NB_JSON_COMPACT);
            nb_buf_add_cstr(&b, "}\n");
        }
    } else {
        nb_buf whole = {0};
        for (size_t i = 0; i < p->n; i++) nb_buf_add_str(&whole, p->spans[i].text);
        if (o->json) {
            nb_buf_add_cstr(&b, "{\"prompt\":");
            nb_json_write_string(&b, nb_buf_str(&whole), NB_JSON_COMPACT);
            nb_buf_add_cstr(&b, "}\n");
        } else if (nb_term_is_tty(STDOUT_FILENO)) {
            nb_term_clean(&b, nb_buf_str(&whole), true);
        } else {
            nb_buf_add_str(&b, nb_buf_str(&whole));
        }
        nb_buf_free(&whole);
    }
    if (st == NB_OK) fwrite(b.p, 1, b.n, stdout);
    nb_buf_free(&b);
    nb_ids_free(&v);
    return st;
}

int nb_cmd_template(const nb_command *c, int argc, char **argv)
{
    template_args o = {0};
    const nb_opt opts[] = {
        {"--vars", NULL, NB_OPT_STR, &o.vars, "JSON", "an object of further template variables"},
        {"--strict", NULL, NB_OPT_FLAG, &o.strict, NULL,
         "prepare the request exactly as transformers does, and fail where it fails"},
        {"--raw", NULL, NB_OPT_FLAG, &o.raw, NULL, "no preparation: FILE holds the template's variables"},
        {"--ids", NULL, NB_OPT_FLAG, &o.ids, NULL, "print the prompt's token ids"},
        {"--spans", NULL, NB_OPT_FLAG, &o.spans, NULL,
         "one JSON object a line: which text is the template's, which the request's"},
        {"--json", NULL, NB_OPT_FLAG, &o.json, NULL, "print one JSON object"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n != 2)
        return nb_usage_error(c, "a model (or a template file) and a request file (- for standard input) are needed");
    nb_error err = {0};
    nb_store *store = NULL;
    nb_network *net = NULL, none = {0};
    nb_buf source = {0}, request = {0};
    nb_json_doc doc = {0};
    nb_template *t = NULL;
    nb_prompt p = {0};
    nb_arena *a = nb_arena_new(0);
    nb_status st = a ? NB_OK : nb_fail(&err, NB_E_NO_MEMORY, "no memory");
    bool is_file = strchr(argv[0], '/') || nb_str_ends(nb_str_of(argv[0]), ".jinja");
    if (st == NB_OK && is_file)
        st = nb_file_read(&source, argv[0], (uint64_t)16 << 20, &err);
    else if (st == NB_OK)
        st = open_network(argv[0], &store, &net, &err);
    if (st == NB_OK && !is_file && !net->chat_template.p)
        st = nb_fail(&err, NB_E_NOT_FOUND, "%s has no chat template", argv[0]);
    nb_str text = is_file ? nb_buf_str(&source) : net ? net->chat_template : (nb_str){0};
    if (st == NB_OK)
        st = strcmp(argv[1], "-") == 0 ? nb_read_stdin(&request, MAX_TEXT, &err)
                                       : nb_file_read(&request, argv[1], MAX_TEXT, &err);
    if (st == NB_OK) st = nb_json_parse(&doc, request.p, request.n, argv[1], NULL, &err);
    if (st == NB_OK) st = nb_template_parse(&t, text.p, text.n, &err);
    if (st == NB_OK) st = render(net ? net : &none, t, doc.root, &o, a, &p, &err);
    if (st == NB_OK) st = print_prompt(net ? net : &none, &p, &o, &err);
    nb_template_free(t);
    nb_json_free(&doc);
    nb_buf_free(&source);
    nb_buf_free(&request);
    nb_network_close(net);
    nb_store_close(store);
    nb_arena_free(a);
    return st == NB_OK ? 0 : nb_report(&err);
}
