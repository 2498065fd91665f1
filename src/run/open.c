/* run/open: opening and closing a model. */
#include "cpu/cpu.h"
#include "run/run.h"

#include <sched.h>
#include <stdlib.h>

static int32_t processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int n = CPU_COUNT(&set);
    return n < 1 ? 1 : n > 256 ? 256 : n;
}

static nb_status read_options(nb_model *m, const nb_model_options *o, nb_error *err)
{
    nb_plan_options *p = &m->options;
    p->chunk = o && o->chunk ? o->chunk : 512;
    p->threads = o && o->threads ? o->threads : processors();
    p->f32 = o && o->float32;
    p->tier = o && o->tier ? o->tier : getenv("NIBBLE_TIER");
    if (p->tier && !*p->tier) p->tier = NULL;
    const char *f32 = getenv("NIBBLE_F32");
    if (f32 && strcmp(f32, "1") == 0) p->f32 = true;
    if (p->chunk < 1 || p->chunk > 4096) return nb_fail(err, NB_E_USAGE, "chunk is %d; it must be 1 to 4096", p->chunk);
    if (p->threads < 1 || p->threads > 256)
        return nb_fail(err, NB_E_USAGE, "threads is %d; it must be 1 to 256", p->threads);
    return NB_OK;
}

static int32_t count_routes(const nb_graph *g)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) n += g->ops[i].kind == NB_OP_ROUTE;
    return n;
}

static nb_status make_batch_arrays(nb_model *m, nb_error *err)
{
    size_t n = (size_t)m->options.chunk;
    m->n_routes = count_routes(m->graph);
    m->ids = calloc(n, sizeof *m->ids);
    m->seq = calloc(n, sizeof *m->seq);
    m->slot = calloc(n, sizeof *m->slot);
    m->row_item = calloc(n, sizeof *m->row_item);
    m->logit_rows = calloc(n, sizeof *m->logit_rows);
    m->views = calloc(n, sizeof *m->views);
    m->bad = calloc(n, 1);
    m->capture = calloc((size_t)m->graph->n_captures + 1, sizeof *m->capture);
    m->routes = calloc((size_t)m->n_routes + 1, sizeof *m->routes);
    m->given = calloc((size_t)m->n_routes + 1, sizeof *m->given);
    if (m->ids && m->seq && m->slot && m->row_item && m->logit_rows && m->views && m->bad && m->capture && m->routes &&
        m->given)
        return NB_OK;
    return nb_fail(err, NB_E_NO_MEMORY, "no memory for a batch of %zu rows", n);
}

static nb_status make_cache(nb_model *m, nb_error *err)
{
    nb_cache_options o = {
        .layers = m->graph->kv, .n_layers = m->graph->n_kv, .chunk = m->options.chunk, .f32 = m->options.f32};
    return nb_cache_new(&m->cache, &o, err);
}

/* A template that does not parse matters only to those who use it. */
static nb_status parse_templates(nb_model *m, nb_error *err)
{
    const nb_network *net = m->net;
    m->templates = calloc(net->n_templates + 1, sizeof *m->templates);
    if (!m->templates) return nb_fail(err, NB_E_NO_MEMORY, "no memory for the chat templates");
    for (size_t i = 0; i < net->n_templates; i++)
        nb_template_parse(&m->templates[i].t, net->templates[i].text.p, net->templates[i].text.n,
                          &m->templates[i].error);
    return NB_OK;
}

nb_status nb_run_open(nb_model **out, const char *name, const nb_model_options *o, nb_error *err)
{
    uint64_t start = nb_now_ns();
    *out = NULL;
    nb_model *m = calloc(1, sizeof *m);
    if (!m) return nb_fail(err, NB_E_NO_MEMORY, "no memory for a model");
    pthread_mutex_init(&m->lock, NULL);
    atomic_init(&m->users, 1);
    nb_name parsed;
    nb_network_options no = {.resident = o && o->resident, .text_optional = true}; /* ids run without one */
    nb_status st = read_options(m, o, err);
    if (st == NB_OK) st = nb_name_parse(&parsed, name, err);
    if (st == NB_OK) st = nb_store_open(&m->store, o ? o->store : NULL, err);
    if (st == NB_OK) st = nb_network_open(&m->net, m->store, &parsed, &no, err);
    if (st != NB_OK) goto fail;
    m->graph = m->options.f32 ? &m->net->graph_f32 : &m->net->graph;
    m->backend = &nb_cpu_backend;
    if ((st = m->backend->plan_new(&m->plan, m->graph, &m->options, err)) != NB_OK) goto fail;
    m->options.tier = NULL; /* the caller's string; the plan knows its tier */
    if ((st = make_cache(m, err)) != NB_OK) goto fail;
    if ((st = make_batch_arrays(m, err)) != NB_OK) goto fail;
    m->usable = m->net->config.vocab;
    if (m->net->tokenizer && (int64_t)nb_tokenizer_size(m->net->tokenizer) < m->usable)
        m->usable = (int32_t)nb_tokenizer_size(m->net->tokenizer);
    if ((st = parse_templates(m, err)) != NB_OK) goto fail;
    m->load_ns = nb_now_ns() - start;
    *out = m;
    return NB_OK;
fail:
    nb_run_close(m);
    return st;
}

void nb_run_close(nb_model *m)
{
    if (!m || atomic_fetch_sub(&m->users, 1) > 1) return;
    for (size_t i = 0; m->templates && i < m->net->n_templates; i++) nb_template_free(m->templates[i].t);
    free(m->templates);
    nb_cache_free(m->cache);
    if (m->plan) m->backend->plan_free(m->plan);
    nb_network_close(m->net);
    nb_store_close(m->store);
    free(m->ids);
    free(m->seq);
    free(m->slot);
    free(m->row_item);
    free(m->logit_rows);
    free(m->views);
    free(m->bad);
    free(m->capture);
    free(m->routes);
    free(m->given);
    pthread_mutex_destroy(&m->lock);
    free(m);
}
