/* create/report: what an import did, as JSON or text. */
#include "create/plan.h"

#include <stdio.h>

static void count_type(nb_create_report *r, const nb_create_tensor *t)
{
    size_t i = 0;
    while (i < r->n_types && strcmp(r->types[i].type, t->type)) i++;
    if (i == r->n_types) {
        if (i == NB_COUNT(r->types)) return;
        memcpy(r->types[r->n_types++].type, t->type, sizeof t->type);
    }
    uint64_t params = 1;
    for (int d = 0; d < t->rank; d++) params *= (uint64_t)t->dim[d];
    r->types[i].tensors++;
    r->types[i].params += params;
    r->types[i].bytes += t->bytes;
    r->params += params;
    r->n_quantized += t->quantized;
}

/* Keys and values in BF16. Layers that slide keep their window and one chunk (design.md 5), linear ones none. */
static void estimate(const nb_job *j, nb_create_memory *m)
{
    enum { DEFAULT_CONTEXT = 4096, CHUNK = 512 };
    const nb_config *c = &j->src.cfg;
    const nb_json *types = c->text ? nb_json_get(c->text, "layer_types") : NULL;
    memset(m, 0, sizeof *m);
    for (size_t i = 0; i < j->n_items; i++)
        *(j->items[i].layout == NB_LAYOUT_ROWS1 ? &m->tables : &m->weights) += j->items[i].bytes;
    if (!j->src.has_cfg || c->layers <= 0 || c->kv_heads <= 0 || c->head_dim <= 0) return;
    m->context = c->max_context > 0 && c->max_context < DEFAULT_CONTEXT ? c->max_context : DEFAULT_CONTEXT;
    for (int32_t i = 0; i < c->layers; i++) {
        nb_str type = {"", 0};
        int64_t slots = m->context, window = c->window + CHUNK + 32;
        nb_json_str(nb_json_at(types, (size_t)i), &type);
        if (nb_str_has(type, "linear")) continue;
        if (c->layer_slides && c->layer_slides[i] && window < slots) slots = window;
        m->kv += (uint64_t)slots * (uint64_t)c->kv_heads * (uint64_t)c->head_dim * 4;
    }
}

void nb_report_fill(nb_job *j)
{
    nb_create_report *r = j->r;
    r->tensors = j->tensors.v;
    r->n_tensors = j->tensors.n;
    r->kept = j->kept.v;
    r->n_kept = j->kept.n;
    r->dropped = j->dropped.v;
    r->n_dropped = j->dropped.n;
    r->unused = j->unused.v;
    r->n_unused = j->unused.n;
    r->warnings = j->warnings.v;
    r->n_warnings = j->warnings.n;
    r->bytes = j->total_bytes;
    estimate(j, &r->memory);
    r->n_types = r->n_quantized = 0;
    r->params = 0;
    memset(r->types, 0, sizeof r->types);
    for (size_t i = 0; i < r->n_tensors; i++) count_type(r, &r->tensors[i]);
}

void nb_create_report_free(nb_create_report *r)
{
    nb_arena_free(r->arena);
    memset(r, 0, sizeof *r);
}

/* ---- JSON ---- */

static void key(nb_buf *b, const char *k, bool first) { nb_buf_printf(b, "%s\"%s\":", first ? "" : ",", k); }

static void str(nb_buf *b, const char *k, nb_str v, bool first)
{
    key(b, k, first);
    nb_json_write_string(b, v, 0);
}

static void num(nb_buf *b, const char *k, uint64_t v)
{
    key(b, k, false);
    nb_buf_printf(b, "%llu", (unsigned long long)v);
}

static void notes(nb_buf *b, const char *k, const nb_create_note *v, size_t n)
{
    key(b, k, false);
    nb_buf_add_char(b, '[');
    for (size_t i = 0; i < n; i++) {
        nb_buf_add_cstr(b, i ? ",{" : "{");
        str(b, "name", v[i].name, true);
        str(b, "text", v[i].text, false);
        if (v[i].more) num(b, "more", v[i].more);
        nb_buf_add_char(b, '}');
    }
    nb_buf_add_char(b, ']');
}

static void json_tensor(nb_buf *b, const nb_create_tensor *t)
{
    nb_buf_add_char(b, '{');
    str(b, "name", t->name, true);
    str(b, "type", nb_str_of(t->type), false);
    str(b, "from", t->from, false);
    str(b, "layout", nb_str_of(t->layout), false);
    key(b, "shape", false);
    nb_buf_add_char(b, '[');
    for (int i = 0; i < t->rank; i++) nb_buf_printf(b, "%s%lld", i ? "," : "", (long long)t->dim[i]);
    nb_buf_add_char(b, ']');
    num(b, "bytes", t->bytes);
    if (t->reason) str(b, "reason", nb_str_of(t->reason), false);
    nb_buf_printf(b, ",\"quantized\":%s,\"lossless\":%s}", t->quantized ? "true" : "false",
                  t->lossless ? "true" : "false");
}

void nb_create_report_json(const nb_create_report *r, nb_buf *b)
{
    nb_buf_add_char(b, '{');
    str(b, "name", nb_str_of(r->name), true);
    str(b, "architecture", r->architecture, false);
    str(b, "source_kind", r->source_kind, false);
    str(b, "request", r->request, false);
    if (r->search) str(b, "quality", NB_LIT("search"), false);
    nb_buf_printf(b, ",\"dry_run\":%s", r->dry_run ? "true" : "false");
    if (r->digest[0]) {
        key(b, "digest", false);
        nb_buf_printf(b, "\"sha256:%s\"", r->digest);
    }
    num(b, "params", r->params);
    num(b, "source_bytes", r->source_bytes);
    num(b, "bytes", r->bytes);
    num(b, "new_bytes", r->new_bytes);
    nb_buf_printf(b, ",\"memory\":{\"weights\":%llu,\"tables\":%llu,\"kv\":%llu,\"context\":%d}",
                  (unsigned long long)r->memory.weights, (unsigned long long)r->memory.tables,
                  (unsigned long long)r->memory.kv, (int)r->memory.context);
    num(b, "tensors_quantized", r->n_quantized);
    num(b, "blobs", r->n_blobs);
    num(b, "blobs_reused", r->n_reused);
    num(b, "blobs_resumed", r->n_resumed);
    key(b, "seconds", false);
    nb_buf_printf(b, "%.3f", r->seconds);
    key(b, "sync_seconds", false);
    nb_buf_printf(b, "%.3f", r->sync_seconds);
    key(b, "types", false);
    nb_buf_add_char(b, '{');
    for (size_t i = 0; i < r->n_types; i++) {
        const nb_create_type_count *t = &r->types[i];
        nb_buf_printf(b, "%s\"%s\":{\"tensors\":%u,\"params\":%llu,\"bytes\":%llu}", i ? "," : "", t->type, t->tensors,
                      (unsigned long long)t->params, (unsigned long long)t->bytes);
    }
    nb_buf_add_char(b, '}');
    key(b, "tensors", false);
    nb_buf_add_char(b, '[');
    for (size_t i = 0; i < r->n_tensors; i++) {
        if (i) nb_buf_add_char(b, ',');
        json_tensor(b, &r->tensors[i]);
    }
    nb_buf_add_char(b, ']');
    notes(b, "kept", r->kept, r->n_kept);
    notes(b, "dropped", r->dropped, r->n_dropped);
    notes(b, "unused", r->unused, r->n_unused);
    notes(b, "warnings", r->warnings, r->n_warnings);
    nb_buf_add_cstr(b, "}\n");
}

/* ---- text ---- */

static void size_text(uint64_t n, char out[32])
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    double v = (double)n;
    size_t u = 0;
    for (; v >= 1000 && u + 1 < NB_COUNT(units); u++) v /= 1000;
    snprintf(out, 32, u ? "%.2f %s" : "%.0f %s", v, units[u]);
}

static void text_notes(nb_buf *b, const char *title, const nb_create_note *v, size_t n, bool verbose)
{
    if (!n) return;
    size_t all = n, shown = verbose || n <= 6 ? n : 4;
    for (size_t i = 0; i < n; i++) all += v[i].more;
    nb_buf_printf(b, "%s: %zu\n", title, all);
    for (size_t i = 0; i < shown; i++) {
        nb_buf_printf(b, "  %.*s%s%.*s\n", NB_FMT_STR(v[i].name), v[i].name.n ? ": " : "", NB_FMT_STR(v[i].text));
        if (v[i].more) nb_buf_printf(b, "  ... and %zu more like this\n", v[i].more);
    }
    if (shown < n) nb_buf_printf(b, "  ... and %zu more\n", n - shown);
}

/* "to run: 98.30 MB of weights, 40.00 MB of tables that may stay on the disk, 94.37 MB of keys and values for 4096
 * tokens" */
static void text_memory(const nb_create_report *r, nb_buf *b)
{
    char size[32];
    size_text(r->memory.weights, size);
    nb_buf_printf(b, "to run: %s of weights", size);
    size_text(r->memory.tables, size);
    if (r->memory.tables) nb_buf_printf(b, ", %s of tables that may stay on the disk", size);
    size_text(r->memory.kv, size);
    if (r->memory.kv) nb_buf_printf(b, ", %s of keys and values for %d tokens", size, (int)r->memory.context);
    nb_buf_add_char(b, '\n');
}

void nb_create_report_text(const nb_create_report *r, bool verbose, nb_buf *b)
{
    char out[32], in[32];
    size_text(r->source_bytes, in);
    size_text(r->bytes, out);
    nb_buf_printf(b, "%s: %.*s, %.*s source, %.3g B parameters, %s -> %s (request: %.*s%s)\n",
                  r->name[0] ? r->name : "plan", NB_FMT_STR(r->architecture), NB_FMT_STR(r->source_kind),
                  (double)r->params * 1e-9, in, out, NB_FMT_STR(r->request), r->search ? ", quality: search" : "");
    for (size_t i = 0; i < r->n_types; i++) {
        size_text(r->types[i].bytes, out);
        nb_buf_printf(b, "  %-12s %6u tensors  %14llu values  %10s  %5.1f %%\n", r->types[i].type, r->types[i].tensors,
                      (unsigned long long)r->types[i].params, out,
                      r->bytes ? 100.0 * (double)r->types[i].bytes / (double)r->bytes : 0.0);
    }
    text_memory(r, b);
    for (size_t i = 0; verbose && i < r->n_tensors; i++) {
        const nb_create_tensor *t = &r->tensors[i];
        nb_buf_printf(b, "  %-60.*s %-10.*s -> %-12s %-9s", NB_FMT_STR(t->name), NB_FMT_STR(t->from), t->type,
                      t->layout);
        for (int d = 0; d < t->rank; d++) nb_buf_printf(b, "%s%lld", d ? "x" : " ", (long long)t->dim[d]);
        nb_buf_printf(b, "%s%s\n", t->reason ? "  " : "", t->reason ? t->reason : "");
    }
    text_notes(b, "kept at source precision", r->kept, r->n_kept, verbose);
    text_notes(b, "dropped", r->dropped, r->n_dropped, verbose);
    text_notes(b, "in the source but not used", r->unused, r->n_unused, verbose);
    text_notes(b, "warnings", r->warnings, r->n_warnings, true);
    size_text(r->new_bytes, out);
    if (!r->dry_run && r->digest[0])
        nb_buf_printf(b,
                      "%u blobs, %s new, %u reused, %u resumed, %.2f s (%.0f MB/s of source; %.2f s syncing), "
                      "manifest sha256:%.12s\n",
                      r->n_blobs, out, r->n_reused, r->n_resumed, r->seconds,
                      r->seconds > 0 ? (double)r->source_bytes * 1e-6 / r->seconds : 0.0, r->sync_seconds, r->digest);
}
