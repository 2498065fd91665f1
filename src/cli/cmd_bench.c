/* cli: bench: prompt and decode speed, each beside the bytes moved and the share of what the machine can do at most,
 * measured in the same run. design.md 6.6, specs/performance.md 5. */
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/synthetic.h"
#include "cli/term.h"
#include "cpu/probe.h"
#include "run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct bench {
    nb_model_options model;
    const char *shape, *format, *name;
    int32_t rounds, prompt, tokens, depth_max;
    bool json, quiet;
    char root[4096]; /* temporary store of a shape; empty: the user's */
    nb_lanes *lanes;
    nb_probe *probe;
    nb_model *m;
    nb_session *s;
    int32_t *ids; /* [prompt or depth] arbitrary ids */
    int32_t n_ids;
} bench;

typedef struct figure {
    double seconds[64];
    double limit[64]; /* bytes/s or operations/s measured beside each round */
    int n;
} figure;

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v, int n)
{
    double t[64];
    memcpy(t, v, (size_t)n * sizeof *t);
    qsort(t, (size_t)n, sizeof *t, ascending);
    return n % 2 ? t[n / 2] : (t[n / 2 - 1] + t[n / 2]) / 2;
}

static void draw(void *user, uint64_t done, uint64_t total)
{
    nb_progress_update(user, "making weights", "", done, total);
}

static nb_status make_shape(bench *b, nb_error *err)
{
    const nb_shape *shape = nb_shape_find(b->shape);
    nb_buf known = {0};
    nb_qtype q;
    nb_store *store = NULL;
    nb_name name;
    if (!shape) {
        nb_shape_names(&known);
        nb_fail(err, NB_E_USAGE, "unknown shape '%s'; known: %s", b->shape, nb_buf_cstr(&known));
        nb_buf_free(&known);
        return NB_E_USAGE;
    }
    nb_status st = nb_qtype_parse(&q, b->format, err);
    if (st != NB_OK) return st;
    st = nb_temp_make(b->root, "bench", err);
    if (st != NB_OK) return st;
    nb_progress p;
    nb_progress_begin(&p, b->quiet);
    b->name = "bench";
    b->model.store = b->root;
    st = nb_store_open(&store, b->root, err);
    if (st == NB_OK) st = nb_name_parse(&name, b->name, err);
    if (st == NB_OK) st = nb_synthetic_create(store, &name, shape, q, draw, &p, err);
    nb_progress_end(&p);
    nb_store_close(store);
    return st;
}

static nb_status open_all(bench *b, nb_error *err)
{
    nb_status st = nb_run_open(&b->m, b->name, &b->model, err);
    if (st == NB_OK) st = nb_lanes_new(&b->lanes, b->m->options.threads, err);
    if (st == NB_OK) st = nb_probe_new(&b->probe, b->lanes, (uint64_t)512 << 20, err);
    if (st != NB_OK) return st;
    int32_t most = b->m->net->config.max_context,
            want = (b->depth_max > b->prompt ? b->depth_max : b->prompt) + b->tokens + 1;
    st = nb_run_session_new(&b->s, b->m, want < most ? want : most, err);
    b->n_ids = want;
    b->ids = malloc((size_t)want * sizeof *b->ids);
    if (!b->ids) return nb_fail(err, NB_E_NO_MEMORY, "no memory for %d ids", want);
    for (int32_t i = 0; i < want; i++)
        b->ids[i] = (int32_t)(((uint32_t)i * 2654435761u >> 7) % (uint32_t)b->m->net->config.vocab);
    return st;
}

static void close_all(bench *b)
{
    nb_run_session_free(b->s);
    nb_probe_free(b->probe);
    nb_lanes_free(b->lanes);
    nb_run_close(b->m);
    free(b->ids);
    nb_temp_remove(b->root);
}

static nb_status eval(bench *b, const int32_t *ids, int32_t n, int32_t logits, nb_error *err)
{
    nb_eval_item it = {.size = sizeof it, .session = b->s, .ids = ids, .n = n, .logits = logits};
    nb_status st = nb_check_interrupted(err);
    return st != NB_OK ? st : nb_eval(&it, 1, err);
}

static double seconds_since(uint64_t t) { return (double)(nb_now_ns() - t) * 1e-9; }

/* Prompt of b->prompt tokens from an empty state, logits of the last row. */
static nb_status time_prompt(bench *b, figure *f, nb_tier tier, nb_error *err)
{
    nb_status st = NB_OK;
    for (int r = 0; r <= b->rounds && st == NB_OK; r++) { /* round 0 warms up */
        double peak = nb_probe_fma(b->probe, tier);
        st = nb_run_session_truncate(b->s, 0, NULL, err);
        uint64_t t = nb_now_ns();
        if (st == NB_OK) st = eval(b, b->ids, b->prompt, 1, err);
        if (r == 0) continue;
        f->seconds[f->n] = seconds_since(t);
        f->limit[f->n++] = peak;
    }
    return st;
}

/* b->tokens single steps at a depth. */
static nb_status time_decode(bench *b, figure *f, int32_t depth, nb_error *err)
{
    nb_status st = nb_run_session_truncate(b->s, 0, NULL, err);
    if (st == NB_OK && depth) st = eval(b, b->ids, depth, 0, err);
    for (int r = 0; r <= b->rounds && st == NB_OK; r++) {
        double read = nb_probe_read(b->probe, 2);
        uint64_t t = nb_now_ns();
        for (int32_t i = 0; i < b->tokens && st == NB_OK; i++) st = eval(b, b->ids + depth + i, 1, 1, err);
        double s = seconds_since(t) / b->tokens;
        if (st == NB_OK) st = nb_run_session_truncate(b->s, depth, NULL, err);
        if (r == 0) continue;
        f->seconds[f->n] = s;
        f->limit[f->n++] = read;
    }
    return st;
}

/* Operations of one prompt token: two for each weight of the matrices it meets; the head only for the last row. */
static double prompt_ops(const bench *b)
{
    const nb_graph *g = b->m->graph;
    double per_token = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const nb_op *op = &g->ops[i];
        if (op->kind == NB_OP_LINEAR)
            for (int32_t p = 0; p < op->u.linear.parts; p++)
                per_token += 2.0 * (double)op->u.linear.part[p].w->n * (double)op->u.linear.part[p].w->k;
        if (op->kind == NB_OP_EXPERTS)
            for (int p = 0; p < NB_PROJ_COUNT; p++)
                per_token += 2.0 * op->u.experts.k * (double)op->u.experts.bank->proj[p].n *
                             (double)op->u.experts.bank->proj[p].k;
    }
    return per_token;
}

/* KV bytes that a step at this depth reads. */
static double kv_bytes(const bench *b, int32_t depth)
{
    double total = 0;
    for (int32_t i = 0; i < b->m->graph->n_kv; i++) {
        const nb_kv_shape *k = &b->m->graph->kv[i];
        double slots = k->window && k->window < depth ? k->window : depth;
        total += slots / NB_KV_BLOCK * (double)nb_kv_block_bytes(k);
    }
    return total;
}

static void print_prompt(const bench *b, const figure *f)
{
    double share[64], s = median(f->seconds, f->n), ops = prompt_ops(b) * b->prompt;
    for (int i = 0; i < f->n; i++) share[i] = ops / f->seconds[i] / f->limit[i];
    if (b->json)
        printf("{\"test\":\"pp%d\",\"tokens_per_second\":%.2f,\"gop_per_second\":%.1f,\"fma_peak_gop\":%.1f,\"share\":%"
               ".4f}",
               b->prompt, b->prompt / s, ops / s * 1e-9, median(f->limit, f->n) * 1e-9, median(share, f->n));
    else
        printf("  pp%-10d %9.1f tokens/s  %8.1f Gop/s of %.1f fp32 FMA peak: %.2f\n", b->prompt, b->prompt / s,
               ops / s * 1e-9, median(f->limit, f->n) * 1e-9, median(share, f->n));
}

static void print_decode(const bench *b, const figure *f, int32_t depth)
{
    double share[64], s = median(f->seconds, f->n), weights = (double)b->m->net->token_bytes, kv = kv_bytes(b, depth);
    for (int i = 0; i < f->n; i++) share[i] = weights / f->seconds[i] / f->limit[i];
    if (b->json)
        printf(",{\"test\":\"tg%d@%d\",\"tokens_per_second\":%.2f,\"weight_bytes\":%.0f,\"kv_bytes\":%.0f,\"gb_per_"
               "second\":%.2f,\"read_gb_per_second\":%.2f,\"share\":%.4f}",
               b->tokens, depth, 1 / s, weights, kv, weights / s * 1e-9, median(f->limit, f->n) * 1e-9,
               median(share, f->n));
    else
        printf("  tg%-3d @ %-5d %8.2f tokens/s  %8.1f MB weights + %.1f MB cache a token, %.1f GB/s of weights of %.1f "
               "read: %.2f\n",
               b->tokens, depth, 1 / s, weights * 1e-6, kv * 1e-6, weights / s * 1e-9, median(f->limit, f->n) * 1e-9,
               median(share, f->n));
    fflush(stdout);
}

static nb_status run_bench(bench *b, nb_error *err)
{
    static const int32_t depths[] = {0, 2048, 8192, 32768};
    const nb_network *net = b->m->net;
    const char *tier_name = b->m->backend->plan_tier(b->m->plan);
    nb_tier tier = NB_TIER_C;
    nb_tier_parse(&tier, tier_name);
    char params[24], load[24], mapped[24];
    nb_human_count(net->parameters, params);
    nb_human_ns(b->m->load_ns, load);
    nb_human_bytes(net->mapped_bytes, mapped);
    if (b->json)
        printf("{\"model\":\"%s\",\"format\":\"%s\",\"tier\":\"%s\",\"order\":\"%s\",\"threads\":%d,\"parameters\":%"
               "llu,\"load_ns\":%llu,\"results\":[",
               b->shape ? b->shape : b->name, b->shape ? b->format : "", tier_name,
               b->m->backend->plan_order(b->m->plan), b->m->options.threads, (unsigned long long)net->parameters,
               (unsigned long long)b->m->load_ns);
    else
        printf("%s%s%s: %s parameters, %s mapped, ready in %s, tier %s, %s order, %d threads; medians of %d rounds\n",
               b->shape ? b->shape : b->name, b->shape ? " " : "", b->shape ? b->format : "", params, mapped, load,
               tier_name, b->m->backend->plan_order(b->m->plan), b->m->options.threads, b->rounds);
    figure f = {.n = 0};
    nb_status st = time_prompt(b, &f, tier, err);
    if (st == NB_OK) print_prompt(b, &f);
    for (size_t i = 0; i < NB_COUNT(depths) && st == NB_OK; i++) {
        if (depths[i] > b->depth_max || depths[i] + b->tokens >= b->s->context) continue;
        figure d = {.n = 0};
        st = time_decode(b, &d, depths[i], err);
        if (st == NB_OK) print_decode(b, &d, depths[i]);
    }
    if (b->json && st == NB_OK) printf("]}\n");
    return st;
}

int nb_cmd_bench(const nb_command *c, int argc, char **argv)
{
    bench b = {.format = "nvfp4",
               .rounds = 5,
               .prompt = 512,
               .tokens = 16,
               .depth_max = 8192,
               .model = {.size = sizeof(nb_model_options)}};
    const nb_opt opts[] = {
        {"--shape", NULL, NB_OPT_STR, &b.shape, "S",
         "a shape with random weights: s135, s600, s1100, s3000, s7000, moe"},
        {"--format", "-q", NB_OPT_STR, &b.format, "TYPE", "format of every matrix of a shape (default nvfp4)"},
        {"--prompt", "-p", NB_OPT_INT, &b.prompt, "N", "tokens of the prompt (default 512)"},
        {"-n", NULL, NB_OPT_INT, &b.tokens, "N", "decode steps of a round (default 16)"},
        {"--depth", "-d", NB_OPT_INT, &b.depth_max, "N", "deepest decode of 0, 2048, 8192, 32768 (default 8192)"},
        {"--rounds", "-r", NB_OPT_INT, &b.rounds, "N", "counted rounds (default 5, at most 60)"},
        {"--threads", "-t", NB_OPT_INT, &b.model.threads, "N", "threads"},
        {"--chunk", NULL, NB_OPT_INT, &b.model.chunk, "N", "rows of one forward (default 512)"},
        {"--tier", NULL, NB_OPT_STR, &b.model.tier, "TIER", "c, avx2, avx512 ..."},
        {"--resident", NULL, NB_OPT_FLAG, &b.model.resident, NULL, "copy the weights into memory of their own"},
        {"--json", NULL, NB_OPT_FLAG, &b.json, NULL, "print one JSON object"},
        {"--quiet", NULL, NB_OPT_FLAG, &b.quiet, NULL, "no progress"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n + (b.shape != NULL) != 1) return nb_usage_error(c, "either a model or --shape S is needed");
    if (b.rounds < 1 || b.rounds > 60 || b.tokens < 1 || b.prompt < 1 || b.depth_max < 0 || b.depth_max > 1000000 ||
        b.prompt > 1000000 || b.tokens > 100000)
        return nb_usage_error(c, "a number is out of range");
    nb_signals_catch();
    nb_error err = {0};
    if (n) b.name = argv[0];
    nb_status st = b.shape ? make_shape(&b, &err) : NB_OK;
    if (st == NB_OK) st = open_all(&b, &err);
    if (st == NB_OK) st = run_bench(&b, &err);
    close_all(&b);
    return st == NB_OK ? 0 : nb_report(&err);
}
