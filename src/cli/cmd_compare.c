/* cli: compare. Imports a checkpoint with create's own code into a temporary store and runs the normal forward.
 * design.md 11. */
#include "base/file.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/compare.h"
#include "cli/term.h"
#include "create/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct comparison {
    const char *path, *reference, *tier, *quantize;
    nb_create_options create;
    int32_t threads;
    float tolerance;
    bool json, quiet;
    char root[4096]; /* temporary store */
    nb_create_report report;
    nb_reference ref;
    bool have_reference, decides;     /* does (a) decide? */
    nb_forward f32, shipped, steered; /* steered: as shipped, with the expert choices of float32 mode */
    nb_buf rows;                      /* JSON objects or text lines */
    bool a_ok, b_ok;
    nb_difference a_logits, b_logits;
    int32_t changed_rows; /* rows whose expert choices differ between the two modes */
    int32_t greedy_same;  /* greedy ids that agree with the reference */
    nb_identity identity;
    char tier_used[16], order[8];
} comparison;

static nb_status import(comparison *c, nb_error *err)
{
    nb_store *store = NULL;
    nb_progress p;
    nb_progress_begin(&p, c->quiet);
    nb_status st = nb_temp_make(c->root, "compare", err);
    if (st == NB_OK) st = nb_store_open(&store, c->root, err);
    c->create.name = "compare";
    c->create.source = c->path;
    c->create.progress = nb_draw_create;
    c->create.user = &p;
    c->create.cancel = &nb_interrupted;
    if (st == NB_OK) st = nb_create(store, &c->create, &c->report, err);
    nb_progress_end(&p);
    nb_store_close(store);
    return st;
}

static nb_status open_model(const comparison *c, nb_model **m, bool float32, int32_t threads, nb_error *err)
{
    nb_model_options o = {.size = sizeof o, .store = c->root, .threads = threads, .tier = c->tier, .float32 = float32};
    return nb_run_open(m, "compare", &o, err);
}

static void add_row(comparison *c, const char *name, const nb_difference *d)
{
    if (c->json) {
        char most[32], rms[32];
        nb_buf_printf(&c->rows, "%s{\"tensor\":\"%s\",\"max_abs\":%s,\"rel_rms\":%s", c->rows.n ? "," : "", name,
                      nb_number_text(d->max_abs, most), nb_number_text(d->rel_rms, rms));
        if (d->top1 >= 0) nb_buf_printf(&c->rows, ",\"top1\":%.6g", d->top1);
        nb_buf_add_char(&c->rows, '}');
    } else if (d->top1 >= 0) {
        nb_buf_printf(&c->rows, "  %-16s max abs %.3e  rel rms %.3e  top-1 %.4f\n", name, d->max_abs, d->rel_rms,
                      d->top1);
    } else {
        nb_buf_printf(&c->rows, "  %-16s max abs %.3e  rel rms %.3e\n", name, d->max_abs, d->rel_rms);
    }
}

/* ---- (a) float32 mode against the reference ---- */

/* Feeds the reference's greedy ids one by one and compares the logits that follow. */
static nb_status compare_decode(comparison *c, nb_model *m, nb_error *err)
{
    const nb_reference *r = &c->ref;
    size_t vocab = (size_t)r->vocab;
    nb_session *s = NULL;
    float *got = malloc((size_t)r->n_decode * vocab * sizeof(float));
    nb_status st = got ? nb_run_session_new(&s, m, r->n + r->n_decode, err)
                       : nb_fail(err, NB_E_NO_MEMORY, "no memory for decode logits");
    if (st == NB_OK) {
        nb_eval_item it = {.size = sizeof it, .session = s, .ids = r->ids, .n = r->n, .logits = 1};
        st = nb_eval(&it, 1, err);
    }
    for (int32_t i = 0; st == NB_OK && i < r->n_decode; i++) {
        c->greedy_same += nb_argmax(nb_logits(s, 0), m->net->config.vocab) == r->decode_ids[i];
        nb_eval_item it = {.size = sizeof it, .session = s, .ids = &r->decode_ids[i], .n = 1, .logits = 1};
        st = nb_eval(&it, 1, err);
        if (st == NB_OK) memcpy(got + (size_t)i * vocab, nb_logits(s, 0), vocab * sizeof(float));
    }
    if (st == NB_OK) {
        nb_difference d = nb_difference_of(got, r->decode_logits, r->n_decode, r->vocab, NULL, true);
        add_row(c, "decode_logits", &d);
        if (!(d.rel_rms <= (double)c->tolerance) || c->greedy_same != r->n_decode) c->a_ok = false;
    }
    nb_run_session_free(s);
    free(got);
    return st;
}

static nb_status compare_reference(comparison *c, nb_model *m, nb_error *err)
{
    const nb_reference *r = &c->ref;
    if (r->vocab != c->f32.vocab)
        return nb_fail(err, NB_E_INVALID, "the reference has %d logits a row and the model %d", r->vocab, c->f32.vocab);
    c->a_ok = true;
    for (int32_t i = 0; i < r->n_hidden && i < c->f32.n_captures && r->width == c->f32.hidden; i++) {
        char name[32];
        snprintf(name, sizeof name, "hidden.%d", i);
        nb_difference d = nb_difference_of(c->f32.captures[i], r->hidden[i], r->n, r->width, NULL, false);
        add_row(c, name, &d);
    }
    if (r->final_hidden) {
        nb_difference d = nb_difference_of(c->f32.final_hidden, r->final_hidden, r->n, c->f32.hidden, NULL, false);
        add_row(c, "final_hidden", &d);
    }
    const float *mine = c->f32.logits + (size_t)(r->n - r->logit_rows) * (size_t)r->vocab;
    c->a_logits = nb_difference_of(mine, r->logits, r->logit_rows, r->vocab, NULL, true);
    add_row(c, "logits", &c->a_logits);
    if (!(c->a_logits.rel_rms <= (double)c->tolerance)) c->a_ok = false;
    return r->n_decode ? compare_decode(c, m, err) : NB_OK;
}

static nb_status part_a(comparison *c, const int32_t *ids, int32_t n, nb_error *err)
{
    nb_model *m = NULL;
    nb_status st = open_model(c, &m, true, c->threads, err);
    if (st == NB_OK) st = nb_forward_run(&c->f32, m, ids, n, NULL, err);
    if (st == NB_OK && c->have_reference) st = compare_reference(c, m, err);
    nb_run_close(m);
    return st;
}

/* ---- (b) as shipped ---- */

/* The same experts, in whatever order: their rank decides nothing but the order of the sum. */
static bool same_experts(const int32_t *a, const int32_t *b, size_t k)
{
    for (size_t i = 0; i < k; i++) {
        size_t j = 0;
        while (j < k && b[j] != a[i]) j++;
        if (j == k) return false;
    }
    return true;
}

/* Rows that would choose other experts. A row that does changes its keys and values, and so every row after it: that is
 * why each row is judged in a run where all rows use the choices of float32 mode. */
static bool *changed_rows(comparison *c)
{
    bool *skip = calloc((size_t)c->steered.n, sizeof *skip);
    for (int32_t r = 0; skip && r < c->steered.n; r++) {
        for (int32_t i = 0; i < c->steered.n_routes && !skip[r]; i++) {
            size_t k = (size_t)c->steered.route_k[i];
            skip[r] = !same_experts(c->steered.routes[i] + (size_t)r * k, c->f32.routes[i] + (size_t)r * k, k);
        }
        c->changed_rows += skip[r];
    }
    return skip;
}

static nb_status part_b(comparison *c, const int32_t *ids, int32_t n, nb_error *err)
{
    int32_t most = c->threads ? c->threads : 3;
    nb_status st = NB_OK;
    for (int32_t threads = 1; st == NB_OK && threads <= most; threads++) {
        if (c->threads && threads != c->threads) continue;
        nb_model *m = NULL;
        st = open_model(c, &m, false, threads, err);
        if (st == NB_OK && !c->shipped.logits) {
            st = nb_forward_run(&c->shipped, m, ids, n, NULL, err);
            if (st == NB_OK) st = nb_forward_run(&c->steered, m, ids, n, c->f32.routes, err);
        }
        if (st == NB_OK) st = nb_identity_run(&c->identity, m, ids, &c->shipped, err);
        if (st == NB_OK) {
            snprintf(c->tier_used, sizeof c->tier_used, "%s", m->backend->plan_tier(m->plan));
            snprintf(c->order, sizeof c->order, "%s", m->backend->plan_order(m->plan));
        }
        nb_run_close(m);
    }
    if (st != NB_OK) return st;
    bool *skip = changed_rows(c);
    if (!skip) return nb_fail(err, NB_E_NO_MEMORY, "no memory for %d rows", n);
    c->b_logits = nb_difference_of(c->steered.logits, c->f32.logits, n, c->steered.vocab, skip, true);
    free(skip);
    c->b_ok = c->b_logits.rel_rms <= 2e-2 && c->changed_rows * 10 <= n && c->identity.failures == 0;
    return NB_OK;
}

/* ---- report ---- */

static int print_result(const comparison *c)
{
    bool ok = c->b_ok && (!c->decides || c->a_ok);
    char shipped[65], f32[65];
    size_t bytes = (size_t)c->shipped.n * (size_t)c->shipped.vocab * sizeof(float);
    nb_sha256_hex(c->shipped.logits, bytes, shipped);
    nb_sha256_hex(c->f32.logits, bytes, f32);
    const nb_create_report *r = &c->report;
    if (c->json) {
        char rms[32];
        printf("{\"path\":");
        nb_buf b = {0};
        nb_json_write_string(&b, nb_str_of(c->path), NB_JSON_COMPACT);
        printf("%.*s,\"quantize\":\"%s\",\"quantized_tensors\":%u,\"tier\":\"%s\",\"order\":\"%s\",\"a\":{"
               "\"reference\":%s,\"decides\":%s,\"ok\":%s,\"greedy_same\":%d,\"greedy\":%d,\"tensors\":[%.*s]},",
               (int)b.n, b.p, c->quantize ? c->quantize : "none", r->n_quantized, c->tier_used, c->order,
               c->have_reference ? "true" : "false", c->decides ? "true" : "false", c->a_ok ? "true" : "false",
               c->greedy_same, c->ref.n_decode, (int)c->rows.n, c->rows.p ? c->rows.p : "");
        printf("\"b\":{\"ok\":%s,\"rel_rms\":%s,\"top1\":%.6g,\"rows\":%d,\"rows_with_other_experts\":%d,\"identity_"
               "checks\":%d,\"identity_failures\":%d,\"first_failure\":\"%s\",\"digest\":\"%s\",\"float32_digest\":\"%"
               "s\"},\"ok\":%s}\n",
               c->b_ok ? "true" : "false", nb_number_text(c->b_logits.rel_rms, rms), c->b_logits.top1, c->shipped.n,
               c->changed_rows, c->identity.checks, c->identity.failures, c->identity.failed, shipped, f32,
               ok ? "true" : "false");
        nb_buf_free(&b);
        return ok ? 0 : 1;
    }
    printf("%s: %.*s, %s, %u tensors quantised, tier %s, %s order\n", c->path, NB_FMT_STR(r->architecture),
           c->quantize ? c->quantize : "none", r->n_quantized, c->tier_used, c->order);
    if (c->have_reference) {
        printf("(a) float32 mode against the reference%s\n%.*s",
               c->decides ? "" : " (shown only: the weights were quantised)", (int)c->rows.n,
               c->rows.p ? c->rows.p : "");
        if (c->ref.n_decode) printf("  greedy ids       %d of %d as the reference\n", c->greedy_same, c->ref.n_decode);
        printf("  %s\n", c->a_ok ? "passed" : c->decides ? "FAILED" : "beyond tolerance");
    } else {
        printf("(a) not compared: there is no reference.safetensors beside the checkpoint\n");
    }
    printf("(b) as shipped against float32 mode: rel rms %.3e, top-1 %.4f, %d of %d rows with other experts\n",
           c->b_logits.rel_rms, c->b_logits.top1, c->changed_rows, c->shipped.n);
    printf("  %d ways of running it: %s%s\n  %s\n", c->identity.checks,
           c->identity.failures ? "not equal: " : "all equal", c->identity.failed, c->b_ok ? "passed" : "FAILED");
    return ok ? 0 : 1;
}

/* The reference beside the checkpoint, unless --reference names another. */
static nb_status load_reference(comparison *c, nb_error *err)
{
    nb_buf b = {0};
    nb_status st = NB_OK;
    if (c->reference)
        nb_buf_add_cstr(&b, c->reference);
    else if (nb_path_is_dir(c->path))
        nb_buf_printf(&b, "%s/reference.safetensors", c->path);
    const char *path = nb_buf_cstr(&b);
    if (path && *path && (c->reference || nb_path_exists(path))) {
        st = nb_reference_load(&c->ref, path, err);
        c->have_reference = st == NB_OK;
    }
    c->decides = c->have_reference && (c->reference || !c->quantize || strcmp(c->quantize, "none") == 0);
    nb_buf_free(&b);
    return st;
}

static nb_status run_comparison(comparison *c, nb_error *err)
{
    nb_status st = load_reference(c, err);
    if (st == NB_OK) st = import(c, err);
    if (st != NB_OK) return st;
    int32_t some[64]; /* without a reference: any ids do for (b) */
    const int32_t *ids = c->ref.ids;
    int32_t n = c->ref.n;
    if (!c->have_reference) {
        nb_model *m = NULL;
        if ((st = open_model(c, &m, false, 1, err)) != NB_OK) return st;
        for (int32_t i = 0; i < 64; i++)
            some[i] = (int32_t)(((uint32_t)i * 2654435761u >> 8) % (uint32_t)m->net->config.vocab);
        nb_run_close(m);
        ids = some;
        n = 64;
    }
    st = part_a(c, ids, n, err);
    return st == NB_OK ? part_b(c, ids, n, err) : st;
}

int nb_cmd_compare(const nb_command *cmd, int argc, char **argv)
{
    comparison c = {.tolerance = 2e-4f};
    const char *layout = NULL, *quality = NULL;
    nb_create_defaults(&c.create);
    const nb_opt opts[] = {
        {"--quantize", "-q", NB_OPT_STR, &c.quantize, "TYPE", "as for create"},
        {"--allow-requantize", NULL, NB_OPT_FLAG, &c.create.allow_requantize, NULL, "as for create"},
        {"--quality", NULL, NB_OPT_STR, &quality, "HOW", "as for create: plain or search"},
        {"--layout", NULL, NB_OPT_STR, &layout, "LAYOUT", "rows16 or standard"},
        {"--reference", NULL, NB_OPT_STR, &c.reference, "FILE",
         "recorded tensors (default: reference.safetensors in PATH)"},
        {"--tier", NULL, NB_OPT_STR, &c.tier, "TIER", "c, avx2, avx512 ... (default: the best, or NIBBLE_TIER)"},
        {"--threads", "-t", NB_OPT_INT, &c.threads, "N", "only this number of threads (default: 1, 2 and 3)"},
        {"--tolerance", NULL, NB_OPT_FLOAT, &c.tolerance, "X", "most relative RMS of (a) (default 2e-4)"},
        {"--json", NULL, NB_OPT_FLAG, &c.json, NULL, "print one JSON object"},
        {"--quiet", NULL, NB_OPT_FLAG, &c.quiet, NULL, "no progress"},
    };
    int n = 0;
    int code = nb_args_parse(cmd, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n != 1) return nb_usage_error(cmd, "a checkpoint directory or GGUF file is needed");
    if (c.threads < 0 || c.threads > 256) return nb_usage_error(cmd, "--threads is %d", c.threads);
    if (layout && strcmp(layout, "standard") == 0)
        c.create.layout = NB_LAYOUT_STANDARD;
    else if (layout && strcmp(layout, "rows16") != 0)
        return nb_usage_error(cmd, "unknown layout '%s'; known: rows16, standard", layout);
    c.create.search = quality && strcmp(quality, "search") == 0;
    if (quality && !c.create.search && strcmp(quality, "plain") != 0)
        return nb_usage_error(cmd, "--quality is '%s'; known: plain, search", quality);
    c.path = argv[0];
    nb_signals_catch();
    nb_error err = {0};
    nb_status st = nb_create_parse_request(&c.create, c.quantize, &err);
    if (st == NB_OK) st = run_comparison(&c, &err);
    code = st == NB_OK ? print_result(&c) : nb_report(&err);
    nb_temp_remove(c.root);
    nb_create_report_free(&c.report);
    nb_reference_free(&c.ref);
    nb_forward_free(&c.f32);
    nb_forward_free(&c.shipped);
    nb_forward_free(&c.steered);
    nb_buf_free(&c.rows);
    return code;
}
