/* cli: run. One prompt, piped input, or a chat on a terminal. */
#include "base/file.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/generate.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_BIAS   32
#define MAX_PROMPT ((size_t)64 << 20)

typedef struct run_args {
    nb_runner r;
    bool raw, strict, think, no_think, ignore_eos;
    const char *ids;
    nb_opt_list bias_text, stop;
    nb_logit_bias bias[MAX_BIAS];
    float temp, top_p, min_p, repeat, presence, frequency;
    int32_t top_k, repeat_last_n, max_tokens;
    uint64_t seed;
    nb_buf prompt;
} run_args;

#define UNSET_F (-1e30f)
#define UNSET_I INT32_MIN

/* Piped input comes first, then a blank line, then the words of the command line. */
static nb_status gather_prompt(run_args *a, int n, char **words, nb_error *err)
{
    if (!isatty(STDIN_FILENO) && !a->ids) {
        nb_status st = nb_read_stdin(&a->prompt, MAX_PROMPT, err);
        if (st != NB_OK) return st;
        if (n == 0 && !a->raw)
            while (a->prompt.n && a->prompt.p[a->prompt.n - 1] == '\n') a->prompt.n--;
    }
    if (n && a->prompt.n) nb_buf_add_cstr(&a->prompt, a->prompt.p[a->prompt.n - 1] == '\n' ? "\n" : "\n\n");
    for (int i = 0; i < n; i++) {
        if (i) nb_buf_add_char(&a->prompt, ' ');
        nb_buf_add_cstr(&a->prompt, words[i]);
    }
    size_t bad = nb_utf8_valid_prefix(a->prompt.p, a->prompt.n);
    if (bad < a->prompt.n) return nb_fail(err, NB_E_USAGE, "the prompt is not valid UTF-8 at byte %zu", bad);
    return NB_OK;
}

/* "ID=BIAS" */
static nb_status parse_bias(run_args *a, nb_error *err)
{
    for (size_t i = 0; i < a->bias_text.n; i++) {
        char *end;
        long id = strtol(a->bias_text.v[i], &end, 10);
        bool good = end != a->bias_text.v[i] && *end == '=' && end[1] && id >= 0 && id <= INT32_MAX;
        float b = good ? strtof(end + 1, &end) : 0;
        if (!good || *end || b != b)
            return nb_fail(err, NB_E_USAGE, "--logit-bias '%s' is not ID=BIAS", a->bias_text.v[i]);
        a->bias[i] = (nb_logit_bias){(int32_t)id, b};
    }
    return NB_OK;
}

/* An option that was given and lies outside [low, high]. */
static bool outside(float v, float low, float high) { return v != UNSET_F && !(v >= low && v <= high); }

static const char *bad_option(const run_args *a)
{
    const nb_model_options *m = &a->r.model_options;
    if (outside(a->temp, 0, 1e6f)) return "--temp is a number from 0 on";
    if (outside(a->top_p, 0, 1) || a->top_p == 0) return "--top-p is above 0 and at most 1";
    if (outside(a->min_p, 0, 1)) return "--min-p lies from 0 to 1";
    if (outside(a->repeat, 0, 1e6f) || a->repeat == 0) return "--repeat-penalty is above 0";
    if (a->top_k != UNSET_I && a->top_k < 0) return "--top-k is 0 or a number of tokens";
    if (a->repeat_last_n != UNSET_I && a->repeat_last_n < -1) return "--repeat-last-n is -1, 0 or a number of tokens";
    if (a->max_tokens != UNSET_I && a->max_tokens != -1 && a->max_tokens < 1)
        return "-n is a number of tokens from 1 on, or -1: until the context is full";
    if (a->r.session_options.context < 0) return "--ctx is a number of tokens";
    if (m->threads < 0) return "--threads is a number from 1 on";
    if (m->chunk < 0) return "--chunk is a number of rows from 1 on";
    return NULL;
}

/* The model's defaults, then what the command line gave. */
static void set_sampling(run_args *a)
{
    nb_generate_options *g = &a->r.generate;
    nb_generate_options_default(g, a->r.model);
    nb_sampling *s = &g->sampling;
    if (a->temp != UNSET_F) s->temperature = a->temp;
    if (a->top_p != UNSET_F) s->top_p = a->top_p;
    if (a->min_p != UNSET_F) s->min_p = a->min_p;
    if (a->repeat != UNSET_F) s->repeat_penalty = a->repeat;
    if (a->presence != UNSET_F) s->presence_penalty = a->presence;
    if (a->frequency != UNSET_F) s->frequency_penalty = a->frequency;
    if (a->top_k != UNSET_I) s->top_k = a->top_k;
    if (a->repeat_last_n != UNSET_I) s->repeat_last_n = a->repeat_last_n;
    s->seed = a->seed;
    s->bias = a->bias;
    s->n_bias = a->bias_text.n;
    g->max_tokens = a->max_tokens == UNSET_I ? -1 : a->max_tokens;
    g->stop = a->stop.v;
    g->n_stop = a->stop.n;
    g->ignore_eos = a->ignore_eos;
}

static nb_status make_ids(run_args *a, int32_t **ids, size_t *n, nb_error *err)
{
    if (a->ids) return nb_ids_of(a->ids, ids, n, err);
    if (a->raw || !a->r.info.has_template)
        return nb_tokenize(a->r.model, a->prompt.p ? a->prompt.p : "", a->prompt.n,
                           NB_TOKENIZE_SPECIALS | NB_TOKENIZE_CONTROL, ids, n, err); /* the user writes it all */
    nb_buf messages = {0};
    nb_runner_begin(&a->r, nb_runner_system(&a->r), &messages);
    nb_add_message(&messages, "user", nb_buf_str(&a->prompt));
    nb_status st = nb_runner_encode_chat(&a->r, nb_buf_str(&messages), ids, n, err);
    nb_buf_free(&messages);
    return st;
}

static void print_json(const run_args *a)
{
    static const char *const finish[] = {"stop", "length", "cancelled", "error"};
    const nb_runner *r = &a->r;
    const nb_generate_result *g = &r->result;
    nb_buf b = {0};
    nb_buf_add_cstr(&b, "{\"model\":");
    nb_json_write_string(&b, nb_str_of(r->name), NB_JSON_COMPACT);
    nb_buf_add_cstr(&b, ",\"text\":");
    nb_json_write_string(&b, nb_buf_str(&r->text), NB_JSON_COMPACT);
    nb_buf_add_cstr(&b, ",\"ids\":[");
    for (size_t i = 0; i < r->n_ids; i++) nb_buf_printf(&b, "%s%d", i ? "," : "", r->ids[i]);
    nb_buf_printf(&b,
                  "],\"finish\":\"%s\",\"prompt_tokens\":%d,\"cached_tokens\":%d,\"generated_tokens\":%d,\"load_ns\":%"
                  "llu,\"prompt_ns\":%llu,\"decode_ns\":%llu",
                  finish[g->finish], g->prompt_tokens, g->cached_tokens, g->generated_tokens,
                  (unsigned long long)r->info.load_ns, (unsigned long long)g->prompt_ns,
                  (unsigned long long)g->decode_ns);
    nb_buf_printf(&b, ",\"tier\":\"%s\",\"order\":\"%s\",\"threads\":%d,\"weight_bytes\":%llu,\"cache_bytes\":%llu}\n",
                  r->info.tier, r->info.order, r->info.threads, (unsigned long long)r->info.weight_bytes,
                  (unsigned long long)nb_session_bytes(r->session));
    fwrite(b.p, 1, b.n, stdout);
    nb_buf_free(&b);
}

static int run_once(run_args *a)
{
    nb_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    nb_status st = make_ids(a, &ids, &n, &err);
    if (st == NB_OK) {
        a->r.generate.keep_special = a->raw;
        st = nb_runner_generate(&a->r, ids, n, &err);
        if (a->r.json && st == NB_OK)
            print_json(a);
        else if (a->r.text.n && a->r.text.p[a->r.text.n - 1] != '\n' && !a->r.out_failed)
            putchar('\n');
        if (!a->r.info.has_tokenizer && !a->r.json) {
            for (size_t i = 0; i < a->r.n_ids; i++) printf("%s%d", i ? " " : "", a->r.ids[i]);
            putchar('\n');
        }
    }
    nb_free(ids);
    if (a->r.out_failed) return 1; /* what failed, and the exit code, is said at the end of the program */
    fflush(stdout);
    if (st == NB_OK && a->r.verbose) nb_runner_report(&a->r);
    if (st != NB_OK) {
        if (st == NB_E_CANCELLED && nb_interrupted) return 128 + nb_interrupted;
        return nb_report(&err);
    }
    return a->strict && a->r.result.finish == NB_FINISH_LENGTH ? 8 : 0;
}

/* Words of the command line: the model's name, then the prompt. */
static int start(run_args *a, const nb_command *c, int n, char **argv)
{
    int code;
    nb_signals_catch();
    nb_error err = {0};
    bool chat = n == 1 && isatty(STDIN_FILENO) && !a->ids;
    nb_status st = parse_bias(a, &err);
    if (st == NB_OK && !chat) st = gather_prompt(a, n - 1, argv + 1, &err);
    if (st == NB_OK) st = nb_runner_open(&a->r, &err);
    if (st == NB_OK) st = nb_check_interrupted(&err);
    if (st == NB_OK) set_sampling(a);
    if (st != NB_OK)
        code = nb_report(&err);
    else if (chat && a->r.info.has_template && !a->raw)
        code = nb_chat_loop(&a->r);
    else if (chat)
        code = nb_usage_error(c, "a prompt is needed: %s",
                              a->raw ? "--raw continues a text" : "the model has no chat template");
    else
        code = run_once(a);
    nb_runner_close(&a->r);
    nb_buf_free(&a->prompt);
    return code;
}

int nb_cmd_run(const nb_command *c, int argc, char **argv)
{
    run_args a = {.temp = UNSET_F,
                  .top_p = UNSET_F,
                  .min_p = UNSET_F,
                  .repeat = UNSET_F,
                  .presence = UNSET_F,
                  .frequency = UNSET_F,
                  .top_k = UNSET_I,
                  .max_tokens = UNSET_I,
                  .repeat_last_n = UNSET_I};
    nb_model_options *m = &a.r.model_options;
    m->size = sizeof *m;
    a.r.session_options.size = sizeof a.r.session_options;
    const nb_opt opts[] = {
        {"--raw", NULL, NB_OPT_FLAG, &a.raw, NULL, "continue the prompt as it is, without the chat template"},
        {"--trust-content", NULL, NB_OPT_FLAG, &a.r.trust, NULL,
         "control tokens written in messages are control tokens (--raw always does so)"},
        {"--system", NULL, NB_OPT_STR, &a.r.system, "TEXT", "system message in place of the model's; '' for none"},
        {"--temp", "--temperature", NB_OPT_FLOAT, &a.temp, "T", "temperature; 0 takes the most likely token"},
        {"--top-k", NULL, NB_OPT_INT, &a.top_k, "K", "sample from the K most likely tokens; 0: off"},
        {"--top-p", NULL, NB_OPT_FLOAT, &a.top_p, "P", "sample from the smallest set of tokens with this mass; 1: off"},
        {"--min-p", NULL, NB_OPT_FLOAT, &a.min_p, "P", "drop tokens below P times the best one's probability"},
        {"--repeat-penalty", NULL, NB_OPT_FLOAT, &a.repeat, "R", "divide the logits of recent tokens; 1: off"},
        {"--repeat-last-n", NULL, NB_OPT_INT, &a.repeat_last_n, "N",
         "tokens that the penalties look at; -1: all, 0: none"},
        {"--presence-penalty", NULL, NB_OPT_FLOAT, &a.presence, "X",
         "subtract from the logits of tokens that occurred"},
        {"--frequency-penalty", NULL, NB_OPT_FLOAT, &a.frequency, "X", "the same for each time that they occurred"},
        {"--logit-bias", NULL, NB_OPT_LIST, &a.bias_text, "ID=B",
         "add B to a token's logit; -100 bans it, 100 allows nothing else; may repeat"},
        {"--seed", NULL, NB_OPT_U64, &a.seed, "N", "random numbers are a function of this and the position"},
        {"-n", "--max-tokens", NB_OPT_INT, &a.max_tokens, "N", "most tokens to generate; -1, and the default: until the context is full"},
        {"--stop", NULL, NB_OPT_LIST, &a.stop, "TEXT", "end where this text would be printed; may repeat"},
        {"--ignore-eos", NULL, NB_OPT_FLAG, &a.ignore_eos, NULL, "go on after the model's end token"},
        {"--ctx", "--ctx-size", NB_OPT_INT, &a.r.session_options.context, "N",
         "context in tokens (default: the model's, at most 4096)"},
        {"--think", NULL, NB_OPT_FLAG, &a.think, NULL, "ask the model to think first"},
        {"--no-think", NULL, NB_OPT_FLAG, &a.no_think, NULL, "ask it not to"},
        {"--ids", NULL, NB_OPT_STR, &a.ids, "LIST", "token ids (1,2,3) or a file of them instead of text"},
        {"--strict", NULL, NB_OPT_FLAG, &a.strict, NULL, "exit with 8 when the answer was cut at a limit"},
        {"--json", NULL, NB_OPT_FLAG, &a.r.json, NULL, "print one JSON object at the end"},
        {"--verbose", "-v", NB_OPT_FLAG, &a.r.verbose, NULL, "print load time, speeds and memory"},
        {"--threads", "-t", NB_OPT_INT, &m->threads, "N", "threads (default: one per processor)"},
        {"--chunk", NULL, NB_OPT_INT, &m->chunk, "N", "rows of one forward (default 512)"},
        {"--tier", NULL, NB_OPT_STR, &m->tier, "TIER", "c, avx2, avx512 ... (default: the best; also NIBBLE_TIER)"},
        {"--resident", NULL, NB_OPT_FLAG, &m->resident, NULL, "copy the weights into memory of their own"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n == 0) return nb_usage_error(c, "the name of a model is needed");
    if (a.think && a.no_think) return nb_usage_error(c, "--think and --no-think exclude each other");
    const char *bad = bad_option(&a);
    if (bad) return nb_usage_error(c, "%s", bad);
    a.r.name = argv[0];
    a.r.think = a.think ? 1 : a.no_think ? 0 : -1;

    return start(&a, c, n, argv);
}
