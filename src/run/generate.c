/* run/generate: prompt in, text out: prefix reuse, prefill, sampling, end tokens, stop strings, streaming.
 * specs/runner.md 2.6. */
#include "run/run.h"
#include "run/stop.h"

typedef struct generation {
    nb_session *s;
    const nb_generate_options *o;
    nb_generate_result *r;
    nb_decode_stream *stream; /* NULL: no tokenizer, no text */
    nb_stop stop;
    nb_buf text, shown; /* scratch of one token */
    bool cancelled;
} generation;

static void keep_last_row(void *user, int32_t row, const float *logits)
{
    nb_session *s = user;
    (void)row;
    memcpy(s->logits, logits, (size_t)s->model->net->config.vocab * sizeof(float));
    s->n_logits = 1;
}

static nb_status eval_keep(nb_session *s, const int32_t *ids, int32_t n, bool (*progress)(void *, int32_t, int32_t),
                           void *user, nb_error *err)
{
    nb_run_item it = {.session = s,
                      .ids = ids,
                      .n = n,
                      .logits_from = n - 1,
                      .sink = keep_last_row,
                      .user = s,
                      .progress = progress,
                      .progress_user = user};
    return nb_run_eval(s->model, &it, 1, err);
}

static bool is_end(const generation *g, int32_t id)
{
    for (size_t i = 0; i < g->o->n_stop_ids; i++)
        if (g->o->stop_ids[i] == id) return true;
    if (g->o->ignore_eos) return false;
    const nb_network *net = g->s->model->net;
    for (int32_t i = 0; i < net->n_end_ids; i++)
        if (net->end_ids[i] == id) return true;
    return false;
}

static void show(generation *g, int32_t id)
{
    if (g->shown.n && g->o->on_text && !g->o->on_text(g->o->user, g->shown.p, g->shown.n, id)) g->cancelled = true;
    g->shown.n = 0;
}

/* One sampled token as text. */
static nb_status push_token(generation *g, int32_t id, nb_error *err)
{
    if (!g->stream) return NB_OK;
    g->text.n = 0;
    nb_status st = nb_decode_stream_push(g->stream, id, &g->text, err);
    if (st != NB_OK) return st;
    nb_stop_push(&g->stop, g->text.p, g->text.n, &g->shown);
    show(g, id);
    return g->shown.oom || g->text.oom || g->stop.held.oom
               ? nb_fail(err, NB_E_NO_MEMORY, "no memory for the text of a token")
               : NB_OK;
}

static nb_status flush_text(generation *g, nb_error *err)
{
    if (!g->stream) return NB_OK;
    g->text.n = 0;
    nb_status st = nb_decode_stream_flush(g->stream, &g->text, err);
    nb_stop_push(&g->stop, g->text.p, g->text.n, &g->shown);
    nb_stop_flush(&g->stop, &g->shown);
    show(g, -1);
    return st;
}

static bool prompt_progress(void *user, int32_t done, int32_t total)
{
    generation *g = user;
    int32_t cached = g->r->cached_tokens;
    return !g->o->on_prompt || g->o->on_prompt(g->o->user, cached + done, cached + total);
}

/* Makes the session hold ids, reusing the longest common prefix; its last token is always evaluated, for its logits. */
static nb_status prefill(generation *g, const int32_t *ids, int32_t n, nb_error *err)
{
    nb_session *s = g->s;
    int32_t same = 0;
    while (same < s->length && same < n && s->tokens[same] == ids[same]) same++;
    if (same == n) same--;
    int32_t again = 0;
    nb_status st = nb_run_session_truncate(s, same, &again, err);
    if (st != NB_OK) return st;
    g->r->prompt_tokens = n;
    g->r->cached_tokens = same - again;
    return eval_keep(s, ids + same, n - same, prompt_progress, g, err);
}

static nb_status decode(generation *g, nb_error *err)
{
    nb_session *s = g->s;
    int32_t most = s->context - s->length;
    if (g->o->max_tokens > 0 && g->o->max_tokens < most) most = g->o->max_tokens;
    for (;;) {
        if (g->r->generated_tokens >= most) {
            g->r->finish = NB_FINISH_LENGTH;
            return NB_OK;
        }
        int32_t id = -1;
        nb_status st = nb_sample_logits(&s->sampler, s->logits, s->model->usable, &g->o->sampling, s->tokens, s->length,
                                        (uint64_t)s->length, &id, NULL, err);
        if (st != NB_OK) return st;
        g->r->generated_tokens++;
        g->r->finish = NB_FINISH_STOP;
        if (g->o->on_token && !g->o->on_token(g->o->user, id)) g->cancelled = true;
        if (is_end(g, id)) return NB_OK;
        if ((st = push_token(g, id, err)) != NB_OK) return st;
        if (g->stop.hit) return NB_OK;
        if (g->cancelled || atomic_load(&s->cancel)) return nb_fail(err, NB_E_CANCELLED, "cancelled");
        if (s->length == s->context || g->r->generated_tokens >= most) continue; /* its row would not be used */
        if ((st = eval_keep(s, &id, 1, NULL, NULL, err)) != NB_OK) return st;
    }
}

nb_status nb_run_generate(nb_session *s, const int32_t *ids, size_t n, const nb_generate_options *o,
                          nb_generate_result *r, nb_error *err)
{
    generation g = {.s = s, .o = o, .r = r};
    *r = (nb_generate_result){.size = sizeof *r, .finish = NB_FINISH_ERROR};
    if (n == 0) return nb_fail(err, NB_E_USAGE, "the prompt has no tokens");
    if (n >= (size_t)s->context)
        return nb_fail(err, NB_E_CONTEXT,
                       "the prompt has %zu tokens and the context holds %d: nothing could be generated", n, s->context);
    if (s->model->net->tokenizer && !(g.stream = nb_decode_stream_new(s->model->net->tokenizer, !o->keep_special)))
        return nb_fail(err, NB_E_NO_MEMORY, "no memory for a decode stream");
    nb_stop_init(&g.stop, o->stop, o->n_stop);
    uint64_t t0 = nb_now_ns();
    nb_status st = prefill(&g, ids, (int32_t)n, err);
    uint64_t t1 = nb_now_ns();
    g.r->prompt_ns = t1 - t0;
    if (st == NB_OK) {
        nb_error flush_err;
        st = decode(&g, err);
        g.r->decode_ns = nb_now_ns() - t1;
        nb_status fst = flush_text(&g, st == NB_OK ? err : &flush_err);
        if (st == NB_OK) st = fst;
    }
    if (st == NB_E_CANCELLED)
        g.r->finish = NB_FINISH_CANCELLED;
    else if (st != NB_OK)
        g.r->finish = NB_FINISH_ERROR;
    nb_stop_free(&g.stop);
    nb_buf_free(&g.text);
    nb_buf_free(&g.shown);
    nb_decode_stream_free(g.stream);
    return st;
}
