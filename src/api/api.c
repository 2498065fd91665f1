/* api: the functions of include/nibble.h, and nothing else. Each checks its arguments and calls the room below. */
#include "cpu/cpu.h"
#include "run/run.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef NB_VERSION
#define NB_VERSION "0.0.0"
#endif

const char *nb_version(void) { return NB_VERSION; }

const char *nb_build_info(void)
{
#if defined(__clang__)
    return "nibble " NB_VERSION ", clang " __clang_version__;
#else
    return "nibble " NB_VERSION ", gcc " __VERSION__;
#endif
}

const char *nb_status_text(nb_status status) { return nb_status_name(status); }

/* A caller's struct may be older and shorter than ours: fields beyond its size are zero. It may be newer and longer:
 * what we do not know is not read. */
#define MAX_STRUCT 4096 /* no struct of any version is longer: a wild size is a caller's mistake */
static nb_status check_size(size_t size, size_t least, const char *what, nb_error *err)
{
    if (size >= least && size <= MAX_STRUCT) return NB_OK;
    return nb_fail(err, NB_E_USAGE, "%s.size is %zu; it must be sizeof(%s)", what, size, what);
}

static void take_options(void *dst, size_t dst_size, const void *src, size_t src_size)
{
    memset(dst, 0, dst_size);
    memcpy(dst, src, src_size < dst_size ? src_size : dst_size);
}

/* The other way round: a longer struct of the caller keeps its size, and has zeros where we know nothing. */
static void give_result(void *dst, size_t dst_size, const void *src, size_t src_size)
{
    memcpy(dst, src, dst_size < src_size ? dst_size : src_size);
    if (dst_size > src_size) memset((char *)dst + src_size, 0, dst_size - src_size);
}

/* ---- models ---- */

nb_status nb_model_open(nb_model **out, const char *name, const nb_model_options *options, nb_error *err)
{
    if (!out || !name) return nb_fail(err, NB_E_USAGE, "nb_model_open: out and name must not be NULL");
    nb_model_options o = {.size = sizeof o};
    if (options) {
        nb_status st = check_size(options->size, sizeof(size_t), "nb_model_options", err);
        if (st != NB_OK) return st;
        take_options(&o, sizeof o, options, options->size);
    }
    return nb_run_open(out, name, &o, err);
}

void nb_model_close(nb_model *model) { nb_run_close(model); }

nb_status nb_model_get_info(const nb_model *m, nb_model_info *out, nb_error *err)
{
    if (!m || !out || out->size < sizeof(size_t) || out->size > MAX_STRUCT)
        return nb_fail(err, NB_E_USAGE, "nb_model_get_info: model and a sized info are needed");
    const nb_config *c = &m->net->config;
    nb_model_info i = {
        .size = out->size,
        .layers = c->layers,
        .hidden = c->hidden,
        .vocab = c->vocab,
        .context = c->max_context,
        .threads = m->options.threads,
        .chunk = m->options.chunk,
        .tokens = m->net->tokenizer ? (int32_t)nb_tokenizer_size(m->net->tokenizer) : 0,
        .parameters = m->net->parameters,
        .weight_bytes = m->net->mapped_bytes,
        .token_bytes = m->net->token_bytes,
        .plan_bytes = m->backend->plan_bytes(m->plan),
        .load_ns = m->load_ns,
        .has_tokenizer = m->net->tokenizer != NULL,
        .has_template = m->net->n_templates > 0,
        .tokenizer_pre_unknown = m->net->tokenizer && nb_tokenizer_unknown_pre(m->net->tokenizer).p,
        .system = m->net->system.n ? m->net->system.p : NULL,
        .messages = m->net->messages.p,
    };
    snprintf(i.architecture, sizeof i.architecture, "%s", nb_arch_name(c->arch));
    snprintf(i.tier, sizeof i.tier, "%s", m->backend->plan_tier(m->plan));
    snprintf(i.order, sizeof i.order, "%s", m->backend->plan_order(m->plan));
    give_result(out, out->size, &i, sizeof i);
    return NB_OK;
}

/* ---- text ---- */

nb_status nb_tokenize(const nb_model *m, const char *text, size_t n, int flags, int32_t **ids, size_t *n_ids,
                      nb_error *err)
{
    nb_status st = nb_network_need_tokenizer(m->net, err);
    if (st != NB_OK) return st;
    int f =
        (flags & NB_TOKENIZE_SPECIALS ? NB_ENC_SPECIALS : 0) | (flags & NB_TOKENIZE_CONTROL ? NB_ENC_PARSE_ADDED : 0);
    nb_ids v = {0};
    if (flags & NB_TOKENIZE_CONTROL) {
        st = nb_tokenizer_encode(m->net->tokenizer, (nb_str){text, n}, f, &v, err);
    } else { /* text from outside: tokens that are added but not special (HTML tags, runs of newlines) are still found
              */
        nb_span span = {{text, n}, false};
        st = nb_tokenizer_encode_spans(m->net->tokenizer, &span, 1, f | NB_ENC_PARSE_ADDED, &v, err);
    }
    if (st != NB_OK) {
        nb_ids_free(&v);
        return st;
    }
    *ids = v.id;
    *n_ids = v.n;
    free(v.off);
    return NB_OK;
}

nb_status nb_detokenize(const nb_model *m, const int32_t *ids, size_t n_ids, bool skip_special, char **text, size_t *n,
                        nb_error *err)
{
    nb_status st = nb_network_need_tokenizer(m->net, err);
    if (st != NB_OK) return st;
    nb_buf b = {0};
    st = nb_tokenizer_decode(m->net->tokenizer, ids, n_ids, skip_special, &b, err);
    if (st == NB_OK && !nb_buf_reserve(&b, 1))
        st = nb_fail(err, NB_E_NO_MEMORY, "no memory for %zu ids as text", n_ids);
    if (st != NB_OK) {
        nb_buf_free(&b);
        return st;
    }
    nb_buf_cstr(&b);
    *text = b.p;
    *n = b.n;
    return NB_OK;
}

void nb_free(void *p) { free(p); }

static nb_status render_request(const nb_model *m, const nb_json *root, nb_arena *a, nb_prompt *p, nb_error *err)
{
    nb_chat_request r;
    size_t which;
    nb_status st = nb_chat_request_read(&r, root, NULL, a, err);
    if (st == NB_OK && !nb_json_is(r.messages, NB_JSON_ARRAY))
        st = nb_fail(err, NB_E_USAGE, "the request has no array \"messages\"");
    if (st == NB_OK) st = nb_network_template(m->net, (nb_str){0}, nb_json_present(r.tools), &which, err);
    if (st != NB_OK) return st;
    const struct nb_parsed_template *t = &m->templates[which];
    if (!t->t) return nb_fail(err, t->error.status, "%s", t->error.text);
    r.tokens = m->net->special_tokens;
    r.n_tokens = m->net->n_special_tokens;
    return nb_chat_render(t->t, &r, NULL, a, p, err);
}

static nb_status join_spans(const nb_prompt *p, char **out, nb_error *err)
{
    nb_buf b = {0};
    for (size_t i = 0; i < p->n; i++) nb_buf_add_str(&b, p->spans[i].text);
    if (!nb_buf_reserve(&b, 1) || !nb_buf_cstr(&b)) {
        nb_buf_free(&b);
        return nb_fail(err, NB_E_NO_MEMORY, "no memory for the prompt");
    }
    *out = b.p;
    return NB_OK;
}

/* A request's prompt, owned by an arena of its own. */
static nb_status make_prompt(const nb_model *m, const char *request, size_t n, nb_arena **arena, nb_prompt *p,
                             nb_error *err)
{
    nb_json_doc doc = {0};
    nb_status st = nb_network_need_tokenizer(m->net, err);
    if (st != NB_OK) return st;
    if (!m->net->n_templates && m->net->chat_error.status == NB_OK)
        return nb_fail(err, NB_E_UNSUPPORTED, "the model has no chat template");
    if (!(*arena = nb_arena_new(0))) return nb_fail(err, NB_E_NO_MEMORY, "no memory for a prompt");
    st = nb_json_parse(&doc, request, n, "request", NULL, err);
    if (st == NB_OK) st = render_request(m, doc.root, *arena, p, err);
    nb_json_free(&doc);
    return st;
}

nb_status nb_chat_encode(const nb_model *m, const char *request, size_t n, int32_t **ids, size_t *n_ids, char **prompt,
                         nb_error *err)
{
    nb_prompt p = {0};
    nb_ids v = {0};
    nb_arena *a = NULL;
    nb_status st = make_prompt(m, request, n, &a, &p, err);
    if (st == NB_OK) st = nb_tokenizer_encode_spans(m->net->tokenizer, p.spans, p.n, NB_ENC_PARSE_ADDED, &v, err);
    if (st == NB_OK && prompt) st = join_spans(&p, prompt, err);
    if (st == NB_OK) {
        *ids = v.id;
        *n_ids = v.n;
        free(v.off);
    } else {
        nb_ids_free(&v);
    }
    nb_arena_free(a);
    return st;
}

/* The record becomes this prompt's. When the encoding fails nothing of it can be kept. */
static nb_status say(nb_session *s, nb_arena *a, const nb_prompt *p, size_t *kept, nb_error *err)
{
    nb_said *said = &s->said;
    nb_status st = nb_tokenizer_encode_again(s->model->net->tokenizer, said->prompt.spans, said->prompt.n, p->spans,
                                             p->n, NB_ENC_PARSE_ADDED, &said->ids, kept, err);
    nb_arena_free(said->arena);
    said->arena = a;
    said->prompt = *p;
    if (st == NB_OK) return st;
    said->prompt.n = 0;
    said->ids.n = 0;
    return st;
}

nb_status nb_session_chat_encode(nb_session *s, const char *request, size_t n, int32_t **ids, size_t *n_ids,
                                 char **prompt, size_t *kept, nb_error *err)
{
    nb_prompt p = {0};
    nb_arena *a = NULL;
    size_t same = 0;
    nb_status st = make_prompt(s->model, request, n, &a, &p, err);
    if (st != NB_OK) {
        nb_arena_free(a);
        return st;
    }
    if ((st = say(s, a, &p, &same, err)) != NB_OK) return st;
    int32_t *copy = malloc((s->said.ids.n + 1) * sizeof *copy);
    if (!copy) return nb_fail(err, NB_E_NO_MEMORY, "no memory for %zu ids", s->said.ids.n);
    if (prompt && (st = join_spans(&p, prompt, err)) != NB_OK) {
        free(copy);
        return st;
    }
    if (s->said.ids.n) memcpy(copy, s->said.ids.id, s->said.ids.n * sizeof *copy);
    *ids = copy;
    *n_ids = s->said.ids.n;
    if (kept) *kept = same;
    return NB_OK;
}

/* ---- sessions ---- */

nb_status nb_session_new(nb_session **out, nb_model *model, const nb_session_options *options, nb_error *err)
{
    if (!out || !model) return nb_fail(err, NB_E_USAGE, "nb_session_new: out and model must not be NULL");
    nb_session_options o = {0};
    if (options) {
        nb_status st = check_size(options->size, sizeof(size_t), "nb_session_options", err);
        if (st != NB_OK) return st;
        take_options(&o, sizeof o, options, options->size);
    }
    int32_t most = model->net->config.max_context > 0 ? model->net->config.max_context : 4096;
    if (o.context == 0) o.context = most < 4096 ? most : 4096;
    if (o.context < 1 || o.context > most)
        return nb_fail(err, NB_E_USAGE, "a context of %d tokens; this model takes 1 to %d", o.context, most);
    return nb_run_session_new(out, model, o.context, err);
}

void nb_session_free(nb_session *s) { nb_run_session_free(s); }
int32_t nb_session_length(const nb_session *s) { return s->length; }
int32_t nb_session_context(const nb_session *s) { return s->context; }
const int32_t *nb_session_tokens(const nb_session *s) { return s->tokens; }
uint64_t nb_session_bytes(const nb_session *s)
{
    pthread_mutex_lock(&s->model->lock);
    uint64_t n = nb_cache_bytes(s->model->cache, s->cache_seq);
    pthread_mutex_unlock(&s->model->lock);
    return n;
}
nb_status nb_session_truncate(nb_session *s, int32_t length, int32_t *reevaluated, nb_error *err)
{
    nb_status st = nb_run_session_truncate(s, length, reevaluated, err);
    atomic_store(&s->cancel, false);
    return st;
}

nb_status nb_session_fork(nb_session **out, nb_session *s, nb_error *err)
{
    if (!out || !s) return nb_fail(err, NB_E_USAGE, "nb_session_fork: out and session must not be NULL");
    return nb_run_session_fork(out, s, err);
}

void nb_cancel(nb_session *s) { atomic_store(&s->cancel, true); }

/* ---- evaluation ---- */

typedef struct eval_sink {
    nb_session *s;
    int32_t first;
} eval_sink;

static void keep_row(void *user, int32_t row, const float *logits)
{
    eval_sink *k = user;
    size_t vocab = (size_t)k->s->model->net->config.vocab;
    memcpy(k->s->logits + (size_t)(row - k->first) * vocab, logits, vocab * sizeof(float));
    k->s->n_logits = row - k->first + 1;
}

static nb_status check_items(const nb_eval_item *items, int32_t n, nb_error *err)
{
    for (int32_t i = 0; i < n; i++) {
        if (items[i].size != sizeof(nb_eval_item))
            return nb_fail(err, NB_E_USAGE, "item %d: size is %zu, not %zu", i, items[i].size, sizeof(nb_eval_item));
        if (!items[i].session || items[i].session->model != items[0].session->model)
            return nb_fail(err, NB_E_USAGE, "item %d: sessions of one model are needed", i);
        if (items[i].logits < 0 || items[i].logits > NB_LOGIT_ROWS || items[i].logits > items[i].n)
            return nb_fail(err, NB_E_USAGE, "item %d: logits is %d; it must be 0 to the smaller of %d and n", i,
                           items[i].logits, NB_LOGIT_ROWS);
    }
    return NB_OK;
}

/* Nothing was evaluated: says so in every item. */
static nb_status fail_items(nb_eval_item *items, int32_t n, nb_status st)
{
    for (int32_t i = 0; i < n; i++) {
        if (items[i].size != sizeof(nb_eval_item)) break; /* another stride than ours: the rest is not ours to write */
        items[i].status = st;
        snprintf(items[i].error, sizeof items[i].error, "nothing was evaluated: the call was refused");
    }
    return st;
}

static nb_status eval_items(nb_eval_item *items, nb_run_item *run, eval_sink *sinks, int32_t n, nb_error *err)
{
    for (int32_t i = 0; i < n; i++) {
        nb_eval_item *it = &items[i];
        sinks[i] = (eval_sink){it->session, it->n - it->logits};
        run[i] = (nb_run_item){.session = it->session,
                               .ids = it->ids,
                               .n = it->n,
                               .logits_from = it->n - it->logits,
                               .sink = it->logits ? keep_row : NULL,
                               .user = &sinks[i]};
    }
    nb_status st = nb_run_eval(items[0].session->model, run, n, err);
    for (int32_t i = 0; i < n; i++) {
        atomic_store(&items[i].session->cancel, false);
        items[i].status = run[i].error.status;
        snprintf(items[i].error, sizeof items[i].error, "%.255s",
                 run[i].error.status == NB_OK ? "" : run[i].error.text);
        if (items[i].status != NB_OK) items[i].session->n_logits = 0;
    }
    return st;
}

#define EVAL_STACK 8 /* so many items need no allocation */

nb_status nb_eval(nb_eval_item *items, int32_t n, nb_error *err)
{
    if (n < 1) return NB_OK;
    nb_status st = check_items(items, n, err);
    if (st != NB_OK) return fail_items(items, n, st);
    nb_run_item few[EVAL_STACK];
    eval_sink few_sinks[EVAL_STACK];
    if (n <= EVAL_STACK) return eval_items(items, few, few_sinks, n, err);
    nb_run_item *run = malloc((size_t)n * sizeof *run);
    eval_sink *sinks = malloc((size_t)n * sizeof *sinks);
    if (run && sinks)
        st = eval_items(items, run, sinks, n, err);
    else
        st = fail_items(items, n, nb_fail(err, NB_E_NO_MEMORY, "no memory for %d items", n));
    free(run);
    free(sinks);
    return st;
}

const float *nb_logits(const nb_session *s, int32_t i)
{
    if (i < 0 || i >= s->n_logits) return NULL;
    return s->logits + (size_t)i * (size_t)s->model->net->config.vocab;
}

/* ---- sampling ---- */

void nb_sampling_default(nb_sampling *s, const nb_model *m)
{
    *s = (nb_sampling){.size = sizeof *s, .temperature = 0.8f, .top_p = 1, .repeat_penalty = 1, .repeat_last_n = 64};
    if (!m) return;
    const nb_generation *g = &m->net->generation;
    if (g->given & NB_GEN_TEMPERATURE) s->temperature = (float)g->temperature;
    if ((g->given & NB_GEN_DO_SAMPLE) && !g->do_sample) s->temperature = 0;
    if (g->given & NB_GEN_TOP_P) s->top_p = (float)g->top_p;
    if (g->given & NB_GEN_TOP_K) s->top_k = g->top_k;
    if (g->given & NB_GEN_MIN_P) s->min_p = (float)g->min_p;
    if (g->given & NB_GEN_REPEAT) s->repeat_penalty = (float)g->repeat_penalty;
}

/* A count without its array is a caller's mistake that would be read through NULL. */
static nb_status check_lists(const nb_sampling *o, const char *what, nb_error *err)
{
    if (!o->n_bias || o->bias) return NB_OK;
    return nb_fail(err, NB_E_USAGE, "%s: n_bias is %zu and bias is NULL", what, o->n_bias);
}

nb_status nb_sample(nb_session *s, int32_t i, const nb_sampling *sampling, int32_t *id, nb_error *err)
{
    if (!s || !sampling || !id) return nb_fail(err, NB_E_USAGE, "nb_sample: session, sampling and id are needed");
    nb_status st = check_size(sampling->size, offsetof(nb_sampling, top_k), "nb_sampling", err);
    if (st != NB_OK) return st;
    int32_t row = i < 0 ? s->n_logits - 1 : i;
    const float *logits = nb_logits(s, row);
    if (!logits) return nb_fail(err, NB_E_USAGE, "the session has no logits of row %d", i);
    nb_sampling o;
    take_options(&o, sizeof o, sampling, sampling->size);
    if ((st = check_lists(&o, "nb_sample", err)) != NB_OK) return st;
    int32_t history = s->length - (s->n_logits - 1 - row); /* tokens up to that row */
    return nb_sample_logits(&s->sampler, logits, s->model->usable, &o, s->tokens, history, (uint64_t)history, id, NULL,
                            err);
}

void nb_generate_options_default(nb_generate_options *o, const nb_model *m)
{
    *o = (nb_generate_options){.size = sizeof *o};
    nb_sampling_default(&o->sampling, m);
}

nb_status nb_generate(nb_session *s, const int32_t *ids, size_t n, const nb_generate_options *o,
                      nb_generate_result *result, nb_error *err)
{
    if (!s || !o || (n && !ids)) return nb_fail(err, NB_E_USAGE, "nb_generate: session, ids and options are needed");
    nb_status st = check_size(o->size, offsetof(nb_generate_options, max_tokens), "nb_generate_options", err);
    if (st == NB_OK && result) st = check_size(result->size, sizeof(size_t), "nb_generate_result", err);
    if (st != NB_OK) return st;
    nb_generate_options whole;
    nb_generate_result r;
    take_options(&whole, sizeof whole, o, o->size);
    if ((st = check_lists(&whole.sampling, "nb_generate", err)) != NB_OK) return st;
    if ((whole.n_stop && !whole.stop) || (whole.n_stop_ids && !whole.stop_ids))
        return nb_fail(err, NB_E_USAGE, "nb_generate: a number of stops without their array");
    st = nb_run_generate(s, ids, n, &whole, &r, err);
    atomic_store(&s->cancel, false);
    if (result) {
        r.size = result->size;
        give_result(result, result->size, &r, sizeof r);
    }
    return st;
}
