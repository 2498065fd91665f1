/* cli: show and dump: what a stored model is made of. */
#include "cli/commands.h"
#include "cli/term.h"
#include "model/model.h"
#include "store/store.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct opened {
    nb_store *store;
    nb_network *net;
} opened;

static nb_status open_network(opened *o, const char *text, nb_error *err)
{
    nb_name name;
    nb_network_options no = {.text_optional = true, .weights_only = true};
    nb_status st = nb_name_parse(&name, text, err);
    if (st == NB_OK) st = nb_store_open(&o->store, NULL, err);
    if (st == NB_OK) st = nb_network_open(&o->net, o->store, &name, &no, err);
    return st;
}

static void close_network(opened *o)
{
    nb_network_close(o->net);
    nb_store_close(o->store);
}

/* ---- show ---- */

typedef struct share {
    char type[32];
    uint64_t tensors, parameters, bytes;
} share;

static uint64_t elements(const nb_net_tensor *t)
{
    uint64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= (uint64_t)t->dim[i];
    return n;
}

/* The stored type; what is no float and no weight (integer indices) by the container's name. */
static void type_name(const nb_net_tensor *t, char out[32])
{
    bool plain = !t->weight && !t->bank && t->raw_dtype != NB_DT_NONE && t->raw_dtype != NB_DT_F32 &&
                 t->raw_dtype != NB_DT_F16 && t->raw_dtype != NB_DT_BF16;
    if (!plain) {
        nb_qtype_name(t->type, out);
        return;
    }
    const char *name = nb_dtype_name(t->raw_dtype);
    size_t n = 0;
    for (; name[n] && n < 31; n++) out[n] = (char)(name[n] >= 'A' && name[n] <= 'Z' ? name[n] + 32 : name[n]);
    out[n] = 0;
}

/* Per stored type: how many tensors, parameters, bytes. */
static size_t count_types(const nb_network *net, share *s, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_tensors; i++) {
        const nb_net_tensor *t = &net->tensors[i];
        char type[32];
        if (nb_str_starts(t->name, "draft.")) continue; /* not among the model's parameters */
        type_name(t, type);
        size_t k = 0;
        while (k < n && strcmp(s[k].type, type) != 0) k++;
        if (k == most) continue;
        if (k == n) {
            memset(&s[n], 0, sizeof s[n]);
            snprintf(s[n++].type, sizeof s[0].type, "%s", type);
        }
        s[k].tensors++;
        s[k].parameters += elements(t);
        s[k].bytes += t->bytes;
    }
    return n;
}

/* ", 2 layers" where the object says how many. */
static void print_layers(const nb_json *object)
{
    int64_t n;
    if (nb_json_i64(nb_json_get(object, "layers"), &n)) printf(", %lld layer%s", (long long)n, n == 1 ? "" : "s");
}

/* A string of the model config, which a draft's files may have brought in. */
static void print_field(const nb_json *object, const char *key, const char *otherwise)
{
    nb_str s = nb_str_of(otherwise);
    nb_buf clean = {0};
    nb_json_str(nb_json_get(object, key), &s);
    nb_term_clean(&clean, s, false);
    printf("%.*s", NB_FMT_STR(nb_buf_str(&clean)));
    nb_buf_free(&clean);
}

/* "draft  dflash, 2 layers, block of 8, mask 3, taps 1 4 7 (DFlashDraftModel, draft/config.json)"; what an older
 * version did not record is left out. */
static void show_draft(const nb_json *model_config)
{
    const nb_json *d = nb_json_get(model_config, "draft"), *head = nb_json_get(model_config, "inline_draft"),
                  *taps = nb_json_get(d, "target_layer_ids");
    int64_t v;
    if (d) {
        printf("  draft         ");
        print_field(d, "kind", "model");
        print_layers(d);
        if (nb_json_i64(nb_json_get(d, "block_size"), &v)) printf(", block of %lld", (long long)v);
        if (nb_json_i64(nb_json_get(d, "mask_token_id"), &v)) printf(", mask %lld", (long long)v);
        for (uint32_t i = 0; nb_json_is(taps, NB_JSON_ARRAY) && i < taps->count; i++)
            if (nb_json_i64(&taps->items[i], &v)) printf("%s%lld", i ? " " : ", taps ", (long long)v);
        printf(" (");
        print_field(d, "architecture", "unknown");
        printf(", ");
        print_field(d, "config", "draft/config.json");
        printf(")\n");
    }
    if (!head) return;
    printf("  inline draft  ");
    print_field(head, "kind", "mtp");
    print_layers(head);
    printf(" (");
    print_field(head, "tensor_prefix", "mtp.");
    printf("*)\n");
}

/* What text needs: how many tokens, or why there are none; the templates by name. */
static void text_side(const nb_network *net)
{
    nb_str pre = net->tokenizer ? nb_tokenizer_unknown_pre(net->tokenizer) : (nb_str){0};
    if (net->tokenizer)
        printf("  tokenizer     %u tokens\n", nb_tokenizer_size(net->tokenizer));
    else
        printf("  tokenizer     %s\n", net->tokenizer_error.status ? net->tokenizer_error.text : "none");
    if (pre.p) {
        nb_buf clean = {0};
        nb_term_clean(&clean, pre, false);
        printf("                its pre-tokenizer '%.*s' is unknown\n", NB_FMT_STR(nb_buf_str(&clean)));
        nb_buf_free(&clean);
    }
    for (size_t i = 0; i < net->n_templates; i++) {
        nb_buf name = {0};
        nb_term_clean(&name, net->templates[i].name, false);
        printf("%s%s", i ? ", " : "  templates     ", nb_buf_cstr(&name) ? name.p : "");
        nb_buf_free(&name);
    }
    if (net->n_templates) putchar('\n');
    if (net->system.n) {
        nb_buf clean = {0};
        nb_term_clean(&clean, net->system, false);
        printf("  system        %.*s\n", NB_FMT_STR(nb_buf_str(&clean)));
        nb_buf_free(&clean);
    }
    if (net->messages.n) printf("  messages      %zu bytes that conversations begin with (--json shows them)\n", net->messages.n);
}

static void show_text(const char *name, const nb_network *net)
{
    const nb_config *c = &net->config;
    share s[16];
    size_t n = count_types(net, s, NB_COUNT(s));
    char count[24], bytes[24];
    nb_human_count(net->parameters, count);
    nb_human_bytes(net->mapped_bytes, bytes);
    printf("%s\n  architecture  %s\n  parameters    %s\n  size          %s\n", name, nb_arch_name(c->arch), count,
           bytes);
    printf("  layers        %d\n  hidden        %d\n  heads         %d (%d kv, width %d)\n", c->layers, c->hidden,
           c->heads, c->kv_heads, c->head_dim);
    if (c->experts) printf("  experts       %d, %d used\n", c->experts, c->experts_used);
    if (c->window) printf("  window        %d\n", c->window);
    printf("  vocabulary    %d\n  context       %d\n  digest        sha256:%s\n", c->vocab, c->max_context,
           net->digest);
    show_draft(net->model_config);
    text_side(net);
    printf("  formats\n");
    for (size_t i = 0; i < n; i++) {
        nb_human_bytes(s[i].bytes, bytes);
        printf("    %-12s %5.1f %% of the parameters, %llu tensors, %s\n", s[i].type,
               net->parameters ? 100.0 * (double)s[i].parameters / (double)net->parameters : 0,
               (unsigned long long)s[i].tensors, bytes);
    }
}

static void text_json(const nb_network *net)
{
    nb_str pre = net->tokenizer ? nb_tokenizer_unknown_pre(net->tokenizer) : (nb_str){0};
    nb_buf b = {0};
    if (net->tokenizer) nb_buf_printf(&b, ",\"tokens\":%u", nb_tokenizer_size(net->tokenizer));
    if (net->tokenizer_error.status) {
        nb_buf_add_cstr(&b, ",\"tokenizer_error\":");
        nb_json_write_string(&b, nb_str_of(net->tokenizer_error.text), NB_JSON_COMPACT);
    }
    if (pre.p) {
        nb_buf_add_cstr(&b, ",\"tokenizer_pre_unknown\":true,\"tokenizer_pre\":");
        nb_json_write_string(&b, pre, NB_JSON_COMPACT);
    }
    nb_buf_add_cstr(&b, ",\"templates\":[");
    for (size_t i = 0; i < net->n_templates; i++) {
        if (i) nb_buf_add_char(&b, ',');
        nb_json_write_string(&b, net->templates[i].name, NB_JSON_COMPACT);
    }
    nb_buf_add_char(&b, ']');
    if (net->system.n) {
        nb_buf_add_cstr(&b, ",\"system\":");
        nb_json_write_string(&b, net->system, NB_JSON_COMPACT);
    }
    if (net->messages.n) {
        nb_buf_add_cstr(&b, ",\"messages\":");
        nb_buf_add_str(&b, net->messages);
    }
    fwrite(b.p, 1, b.n, stdout);
    nb_buf_free(&b);
}

static void show_json(const char *name, const nb_network *net)
{
    const nb_config *c = &net->config;
    share s[16];
    size_t n = count_types(net, s, NB_COUNT(s));
    printf("{\"name\":\"%s\",\"architecture\":\"%s\",\"parameters\":%llu,\"bytes\":%llu,\"layers\":%d,\"hidden\":%d,"
           "\"heads\":%d,\"kv_heads\":%d,\"head_dim\":%d,\"experts\":%d,\"experts_used\":%d,"
           "\"window\":%d,\"vocab\":%d,\"context\":%d,\"digest\":\"sha256:%s\",\"formats\":{",
           name, nb_arch_name(c->arch), (unsigned long long)net->parameters, (unsigned long long)net->mapped_bytes,
           c->layers, c->hidden, c->heads, c->kv_heads, c->head_dim, c->experts, c->experts_used, c->window, c->vocab,
           c->max_context, net->digest);
    for (size_t i = 0; i < n; i++)
        printf("%s\"%s\":{\"tensors\":%llu,\"parameters\":%llu,\"bytes\":%llu}", i ? "," : "", s[i].type,
               (unsigned long long)s[i].tensors, (unsigned long long)s[i].parameters, (unsigned long long)s[i].bytes);
    putchar('}');
    text_json(net);
    static const char *const drafts[] = {"draft", "inline_draft"};
    for (size_t i = 0; i < NB_COUNT(drafts); i++) {
        const nb_json *d = nb_json_get(net->model_config, drafts[i]);
        nb_buf b = {0};
        if (!d) continue;
        nb_json_write(&b, d, NB_JSON_COMPACT);
        printf(",\"%s\":%.*s", drafts[i], NB_FMT_STR(nb_buf_str(&b)));
        nb_buf_free(&b);
    }
    printf("}\n");
}

/* A stored text: as it is into a file or a pipe, made safe for a terminal. */
static void print_stored(nb_str text)
{
    nb_buf clean = {0};
    bool tty = nb_term_is_tty(STDOUT_FILENO);
    if (tty) {
        nb_term_clean(&clean, text, true);
        text = nb_buf_str(&clean);
    }
    if (text.n) fwrite(text.p, 1, text.n, stdout);
    if (tty && text.n && text.p[text.n - 1] != '\n') putchar('\n');
    nb_buf_free(&clean);
}

/* The default one. */
static nb_status show_template(const nb_network *net, nb_error *err)
{
    size_t i;
    nb_status st = nb_network_template(net, (nb_str){0}, false, &i, err);
    if (st == NB_OK) print_stored(net->templates[i].text);
    return st;
}

static nb_status print_layer(opened *o, const char *name, const char *layer, nb_error *err)
{
    nb_name parsed;
    nb_manifest m = {0};
    nb_buf b = {0};
    nb_status st = nb_name_parse(&parsed, name, err);
    if (st == NB_OK) st = nb_manifest_read(o->store, &parsed, &m, err);
    if (st == NB_OK) st = nb_network_layer(o->store, &m, layer, &b, err);
    if (st == NB_OK) print_stored(nb_buf_str(&b));
    nb_manifest_free(&m);
    nb_buf_free(&b);
    return st;
}

int nb_cmd_show(const nb_command *c, int argc, char **argv)
{
    bool json = false, chat_template = false;
    const char *layer = NULL;
    const nb_opt opts[] = {
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON object"},
        {"--template", NULL, NB_OPT_FLAG, &chat_template, NULL, "print the chat template"},
        {"--file", NULL, NB_OPT_STR, &layer, "NAME", "print a stored file, such as config.json"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n != 1) return nb_usage_error(c, "the name of a model is needed");
    nb_error err = {0};
    opened o = {0};
    nb_status st = open_network(&o, argv[0], &err);
    if (st == NB_OK && layer)
        st = print_layer(&o, argv[0], layer, &err);
    else if (st == NB_OK && chat_template)
        st = show_template(o.net, &err);
    else if (st == NB_OK && json)
        show_json(argv[0], o.net);
    else if (st == NB_OK)
        show_text(argv[0], o.net);
    close_network(&o);
    return st == NB_OK ? 0 : nb_report(&err);
}

/* ---- dump ---- */

static void shape_text(const nb_net_tensor *t, char out[64])
{
    int at = snprintf(out, 64, "[");
    for (int i = 0; i < t->rank && at < 50; i++)
        at += snprintf(out + at, (size_t)(64 - at), "%s%lld", i ? "," : "", (long long)t->dim[i]);
    snprintf(out + at, (size_t)(64 - at), "]");
}

/* The fields that a list and a single tensor share, without the closing brace. */
static void tensor_json(const nb_net_tensor *t, nb_buf *b)
{
    char type[32], shape[64];
    type_name(t, type);
    shape_text(t, shape);
    nb_buf_add_cstr(b, "{\"name\":");
    nb_json_write_string(b, t->name, NB_JSON_COMPACT);
    nb_buf_printf(b, ",\"type\":\"%s\",\"layout\":\"%s\",\"shape\":%s,\"bytes\":%llu,\"blob\":\"sha256:%s\"", type,
                  nb_layout_name(t->layout), shape, (unsigned long long)t->bytes, t->blob);
}

static void dump_all_json(const nb_network *net)
{
    nb_buf b = {0};
    for (size_t i = 0; i < net->n_tensors; i++) {
        nb_buf_add_cstr(&b, i ? "," : "[");
        tensor_json(&net->tensors[i], &b);
        nb_buf_add_char(&b, '}');
    }
    nb_buf_add_cstr(&b, net->n_tensors ? "]\n" : "[]\n");
    fwrite(b.p, 1, b.n, stdout);
    nb_buf_free(&b);
}

static void dump_all(const nb_network *net)
{
    static const bool right[] = {false, false, false, false, true};
    static const char *const head[] = {"TENSOR", "TYPE", "LAYOUT", "SHAPE", "BYTES"};
    nb_table table;
    nb_table_begin(&table, 5, right);
    for (int i = 0; i < 5; i++) nb_table_cell(&table, head[i]);
    for (size_t i = 0; i < net->n_tensors; i++) {
        const nb_net_tensor *t = &net->tensors[i];
        char type[32], shape[64], bytes[32], name[300];
        type_name(t, type);
        shape_text(t, shape);
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)t->bytes);
        snprintf(name, sizeof name, "%.*s", (int)(t->name.n < 299 ? t->name.n : 299), t->name.p);
        nb_table_cell(&table, name);
        nb_table_cell(&table, type);
        nb_table_cell(&table, nb_layout_name(t->layout));
        nb_table_cell(&table, shape);
        nb_table_cell(&table, bytes);
    }
    nb_table_print(&table);
}

/* The first row of a matrix as the format defines its values. */
static nb_status first_row(const nb_net_tensor *t, float *out, nb_error *err)
{
    nb_qtype q = t->type;
    const uint8_t *data = t->weight ? t->weight->data : t->bank->data + t->bank->proj[t->proj].offset;
    int64_t k = t->dim[t->rank - 1];
    float m = t->weight                           ? t->weight->multiplier
              : t->bank->proj[t->proj].multiplier ? t->bank->proj[t->proj].multiplier[0]
                                                  : 1;
    size_t codes, scales, biases;
    if (!nb_parts_row_bytes(q, k, &codes, &scales, &biases))
        return nb_fail(err, NB_E_INVALID, "the row of %lld values does not fit its format", (long long)k);
    uint8_t *p = calloc(1, codes + scales + biases + 1);
    if (!p) return nb_fail(err, NB_E_NO_MEMORY, "no memory for a row");
    nb_parts parts = {.codes = p,
                      .code_stride = codes,
                      .scales = scales ? p + codes : NULL,
                      .scale_stride = scales,
                      .biases = biases ? p + codes + scales : NULL,
                      .bias_stride = biases};
    if (t->layout == NB_LAYOUT_ROWS1)
        nb_rows1_unpack(q, data, 1, k, &parts);
    else
        nb_rows16_unpack(q, data, 0, 1, k, &parts);
    if (t->weight && t->weight->row_scale) m = t->weight->row_scale[0];
    nb_dequantize_rows(q, &parts, 1, k, m, out);
    for (int64_t i = 0; t->weight && t->weight->block_scale && i < k; i++) out[i] *= t->weight->block_scale[i / 128];
    free(p);
    return NB_OK;
}

static void print_values(const nb_net_tensor *t, const float *row, int64_t n, bool json)
{
    char number[32];
    if (json) {
        nb_buf b = {0};
        tensor_json(t, &b);
        nb_buf_add_cstr(&b, ",\"values\":[");
        for (int64_t i = 0; i < n; i++) nb_buf_printf(&b, "%s%s", i ? "," : "", nb_number_text((double)row[i], number));
        nb_buf_add_cstr(&b, "]}\n");
        fwrite(b.p, 1, b.n, stdout);
        nb_buf_free(&b);
        return;
    }
    char type[32], shape[64];
    nb_buf name = {0};
    type_name(t, type);
    shape_text(t, shape);
    nb_term_clean(&name, t->name, false);
    printf("%.*s  %s  %s  %s  %llu bytes\n", NB_FMT_STR(nb_buf_str(&name)), type, nb_layout_name(t->layout), shape,
           (unsigned long long)t->bytes);
    for (int64_t i = 0; i < n; i++) printf("%.9g%s", (double)row[i], i == n - 1 || i % 8 == 7 ? "\n" : " ");
    nb_buf_free(&name);
}

#define SHOWN_VALUES 32

static nb_status dump_one(const nb_network *net, const char *name, bool json, nb_error *err)
{
    const nb_net_tensor *t = nb_network_find(net, nb_str_of(name));
    if (!t) return nb_fail(err, NB_E_NOT_FOUND, "the model has no tensor '%s'; `nibble dump NAME` lists them", name);
    int64_t k = t->rank ? t->dim[t->rank - 1] : 1;
    float *row = calloc((size_t)(k > 0 ? k : 1), sizeof *row);
    if (!row) return nb_fail(err, NB_E_NO_MEMORY, "no memory for a row");
    nb_status st = NB_OK;
    if (t->vector)
        memcpy(row, t->vector, (size_t)k * sizeof *row);
    else
        st = first_row(t, row, err);
    if (st == NB_OK) print_values(t, row, k < SHOWN_VALUES ? k : SHOWN_VALUES, json);
    free(row);
    return st;
}

int nb_cmd_dump(const nb_command *c, int argc, char **argv)
{
    bool json = false;
    const nb_opt opts[] = {
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print a JSON array of the tensors, or one object with values"}};
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n < 1 || n > 2) return nb_usage_error(c, "the name of a model is needed, and at most one tensor");
    nb_error err = {0};
    opened o = {0};
    nb_status st = open_network(&o, argv[0], &err);
    if (st == NB_OK && n == 2)
        st = dump_one(o.net, argv[1], json, &err);
    else if (st == NB_OK && json)
        dump_all_json(o.net);
    else if (st == NB_OK)
        dump_all(o.net);
    close_network(&o);
    return st == NB_OK ? 0 : nb_report(&err);
}
