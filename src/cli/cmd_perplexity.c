/* cli: perplexity: mean negative log-likelihood of a text, in non-overlapping windows that each start from an empty
 * state. design.md 11. */
#include "base/file.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/term.h"
#include "run/run.h"
#include "json/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_TEXT ((uint64_t)1 << 30)

typedef struct scorer {
    const int32_t *ids; /* the window */
    int32_t vocab, n;
    double sum; /* of negative log-likelihoods */
    int64_t scored;
} scorer;

/* Row i predicts token i + 1. */
static void score_row(void *user, int32_t row, const float *logits)
{
    scorer *s = user;
    if (row + 1 >= s->n) return;
    s->sum -= nb_log_probability(logits, s->vocab, s->ids[row + 1]);
    s->scored++;
}

typedef struct text_ids {
    int32_t *ids;
    size_t n;
    size_t bytes; /* of the text; 0 with --ids */
    bool bos;     /* every window begins with the BOS token */
    int32_t bos_id;
} text_ids;

static nb_status load_text(const nb_model *m, const char *path, bool as_ids, text_ids *t, nb_error *err)
{
    if (as_ids) return nb_ids_read(path, &t->ids, &t->n, err);
    nb_buf b = {0};
    nb_status st = nb_file_read(&b, path, MAX_TEXT, err);
    if (st == NB_OK) st = nb_tokenize(m, b.p ? b.p : "", b.n, 0, &t->ids, &t->n, err);
    t->bytes = b.n;
    nb_buf_free(&b);
    if (st != NB_OK) return st;
    int32_t *probe = NULL; /* BOS only if the tokenizer adds it */
    size_t np = 0;
    st = nb_tokenize(m, "a", 1, NB_TOKENIZE_SPECIALS, &probe, &np, err);
    if (st == NB_OK && np > 0 && m->net->tokenizer && probe[0] == nb_tokenizer_bos(m->net->tokenizer)) {
        t->bos = true;
        t->bos_id = probe[0];
    }
    nb_free(probe);
    return st;
}

typedef struct outcome {
    double sum;
    int64_t scored;
    int64_t windows;
    uint64_t ns;
} outcome;

/* One window: the first token is not scored. */
static nb_status score_window(nb_session *s, const int32_t *ids, int32_t n, outcome *o, nb_error *err)
{
    nb_status st = nb_session_truncate(s, 0, NULL, err);
    if (st != NB_OK) return st;
    scorer sc = {.ids = ids, .vocab = s->model->net->config.vocab, .n = n};
    nb_run_item it = {.session = s, .ids = ids, .n = n, .logits_from = 0, .sink = score_row, .user = &sc};
    st = nb_run_eval(s->model, &it, 1, err);
    o->sum += sc.sum;
    o->scored += sc.scored;
    o->windows++;
    return st;
}

static nb_status score_all(nb_session *s, const text_ids *t, int32_t window, int32_t most, nb_progress *p, outcome *o,
                           nb_error *err)
{
    int32_t *buf = malloc(((size_t)window + 1) * sizeof *buf);
    if (!buf) return nb_fail(err, NB_E_NO_MEMORY, "no memory for a window");
    nb_status st = NB_OK;
    uint64_t start = nb_now_ns();
    size_t step = (size_t)window - t->bos;
    for (size_t at = 0; at < t->n && st == NB_OK && (most <= 0 || o->windows < most); at += step) {
        size_t n = t->n - at < step ? t->n - at : step;
        if (n + t->bos < 2) break;
        if (t->bos) buf[0] = t->bos_id;
        memcpy(buf + t->bos, t->ids + at, n * sizeof *buf);
        st = nb_check_interrupted(err);
        if (st == NB_OK) st = score_window(s, buf, (int32_t)(n + t->bos), o, err);
        char item[64];
        snprintf(item, sizeof item, "nll %.4f", o->scored ? o->sum / (double)o->scored : 0);
        nb_progress_update(p, "tokens", item, at + n, t->n);
    }
    o->ns = nb_now_ns() - start;
    free(buf);
    return st;
}

static void print_outcome(const nb_model_info *info, const char *name, const text_ids *t, const outcome *o, bool json)
{
    double nll = o->scored ? o->sum / (double)o->scored : 0;
    double per_byte = t->bytes ? o->sum / (double)t->bytes : 0;
    double rate = o->ns ? (double)o->scored * 1e9 / (double)o->ns : 0;
    if (json) {
        char a[32], p[32], y[32];
        printf("{\"model\":\"%s\",\"nll_per_token\":%s,\"perplexity\":%s,\"nll_per_byte\":%s,\"scored\":%lld,"
               "\"tokens\":%zu,\"bytes\":%zu,\"windows\":%lld,\"tokens_per_second\":%.1f,"
               "\"tier\":\"%s\",\"order\":\"%s\"}\n",
               name, nb_number_text(nll, a), nb_number_text(exp(nll), p), nb_number_text(per_byte, y),
               (long long)o->scored, t->n, t->bytes, (long long)o->windows, rate, info->tier, info->order);
        return;
    }
    printf("nll per token %.6f (perplexity %.4f) over %lld tokens in %lld windows", nll, exp(nll), (long long)o->scored,
           (long long)o->windows);
    if (t->bytes) printf("; per byte %.6f", per_byte);
    printf("; %.1f tokens/s, %s\n", rate, info->tier);
}

int nb_cmd_perplexity(const nb_command *c, int argc, char **argv)
{
    nb_model_options m = {.size = sizeof m};
    int32_t window = 512, most = 0;
    const char *ids = NULL;
    bool json = false, quiet = false;
    const nb_opt opts[] = {
        {"--window", NULL, NB_OPT_INT, &window, "N",
         "tokens of a window (default 512); windows do not overlap and start from an empty state"},
        {"--windows", NULL, NB_OPT_INT, &most, "N", "stop after N windows"},
        {"--ids", NULL, NB_OPT_STR, &ids, "FILE",
         "token ids instead of a text: numbers, or .u16 or .i32 little-endian"},
        {"--float32", NULL, NB_OPT_FLAG, &m.float32, NULL, "keep activations and the cache in fp32"},
        {"--threads", "-t", NB_OPT_INT, &m.threads, "N", "threads"},
        {"--tier", NULL, NB_OPT_STR, &m.tier, "TIER", "c, avx2, avx512 ..."},
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON object"},
        {"--quiet", NULL, NB_OPT_FLAG, &quiet, NULL, "no progress"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n != (ids ? 1 : 2)) return nb_usage_error(c, "a model and a text file (or --ids FILE) are needed");
    if (window < 2) return nb_usage_error(c, "--window is %d; it must be at least 2", window);
    nb_signals_catch();
    nb_error err = {0};
    nb_model *model = NULL;
    nb_session *s = NULL;
    text_ids t = {0};
    outcome o = {0};
    nb_session_options so = {.size = sizeof so, .context = window};
    nb_model_info info = {.size = sizeof info};
    nb_progress p;
    nb_progress_begin(&p, quiet);
    p.counts = true; /* tokens */
    nb_status st = nb_model_open(&model, argv[0], &m, &err);
    if (st == NB_OK) st = nb_model_get_info(model, &info, &err);
    if (st == NB_OK) st = nb_session_new(&s, model, &so, &err);
    if (st == NB_OK) st = load_text(model, ids ? ids : argv[1], ids != NULL, &t, &err);
    if (st == NB_OK && t.n < 2)
        st = nb_fail(&err, NB_E_USAGE, "%s: at least two tokens are needed", ids ? ids : argv[1]);
    if (st == NB_OK) st = score_all(s, &t, window, most, &p, &o, &err);
    nb_progress_end(&p);
    if (st == NB_OK) print_outcome(&info, argv[0], &t, &o, json);
    nb_free(t.ids);
    nb_session_free(s);
    nb_model_close(model);
    return st == NB_OK ? 0 : nb_report(&err);
}
