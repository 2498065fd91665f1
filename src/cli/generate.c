#include "cli/generate.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void cancel_session(void *arg) { nb_cancel(arg); }

nb_status nb_runner_open(nb_runner *r, nb_error *err)
{
    nb_status st = nb_model_open(&r->model, r->name, &r->model_options, err);
    if (st == NB_OK) {
        r->info.size = sizeof r->info;
        st = nb_model_get_info(r->model, &r->info, err);
    }
    if (st == NB_OK) st = nb_session_new(&r->session, r->model, &r->session_options, err);
    return st;
}

void nb_runner_close(nb_runner *r)
{
    nb_session_free(r->session);
    nb_model_close(r->model);
    nb_buf_free(&r->text);
    free(r->ids);
    r->session = NULL;
    r->model = NULL;
    r->ids = NULL;
}

static bool keep_id(void *user, int32_t id)
{
    nb_runner *r = user;
    if (r->n_ids == r->cap_ids) {
        size_t cap = r->cap_ids ? r->cap_ids * 2 : 256;
        int32_t *p = realloc(r->ids, cap * sizeof *p);
        if (!p) return false;
        r->ids = p;
        r->cap_ids = cap;
    }
    r->ids[r->n_ids++] = id;
    return true;
}

static bool print_text(void *user, const char *text, size_t n, int32_t id)
{
    nb_runner *r = user;
    (void)id;
    nb_progress_end(&r->progress);
    nb_buf_add(&r->text, text, n);
    if (r->json) return true;
    if (r->clean) {
        nb_buf b = {0};
        nb_term_clean(&b, (nb_str){text, n}, true);
        if (b.n) fwrite(b.p, 1, b.n, stdout);
        nb_buf_free(&b);
    } else {
        fwrite(text, 1, n, stdout);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) r->out_failed = true;
    return !r->out_failed;
}

/* Called after each chunk of the prompt but the last: short prompts show nothing. */
static bool show_prompt(void *user, int32_t done, int32_t total)
{
    nb_runner *r = user;
    nb_progress_update(&r->progress, "prompt", "", (uint64_t)done, (uint64_t)total);
    return true;
}

nb_status nb_runner_generate(nb_runner *r, const int32_t *ids, size_t n, nb_error *err)
{
    r->text.n = 0;
    r->n_ids = 0;
    r->clean = nb_term_is_tty(STDOUT_FILENO);
    r->generate.on_text = print_text;
    r->generate.on_token = keep_id;
    r->generate.on_prompt = show_prompt;
    nb_progress_begin(&r->progress, r->json || !nb_term_is_tty(STDERR_FILENO));
    r->progress.counts = true;
    r->generate.user = r;
    r->result.size = sizeof r->result;
    nb_signals_hook(cancel_session, r->session);
    nb_status st = nb_check_interrupted(err);
    if (st == NB_OK) st = nb_generate(r->session, ids, n, &r->generate, &r->result, err);
    nb_signals_hook(NULL, NULL);
    nb_progress_end(&r->progress);
    return st;
}

/* Resident set of this process in bytes. */
static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    int got = fscanf(f, "%llu %llu", &size, &resident);
    fclose(f);
    return got == 2 ? (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}

static double rate(int32_t tokens, uint64_t ns) { return ns ? (double)tokens * 1e9 / (double)ns : 0; }

void nb_runner_report(const nb_runner *r)
{
    char load[24], mapped[24], resident[24], cache[24], scratch[24], prompt[24], decode[24];
    const nb_generate_result *g = &r->result;
    nb_human_ns(r->info.load_ns, load);
    nb_human_ns(g->prompt_ns, prompt);
    nb_human_ns(g->decode_ns, decode);
    nb_human_bytes(r->info.weight_bytes, mapped);
    nb_human_bytes(resident_bytes(), resident);
    nb_human_bytes(nb_session_bytes(r->session), cache);
    nb_human_bytes(r->info.plan_bytes, scratch);
    int32_t fresh = g->prompt_tokens - g->cached_tokens;
    int32_t steps =
        g->generated_tokens > 1 ? g->generated_tokens - 1 : 0; /* the first token comes from the prompt's forward */
    fprintf(stderr, "load    %s (%s, %s order, %d threads)\n", load, r->info.tier, r->info.order, r->info.threads);
    fprintf(stderr, "prompt  %d tokens, %d cached, %s, %.1f tokens/s\n", g->prompt_tokens, g->cached_tokens, prompt,
            rate(fresh, g->prompt_ns));
    fprintf(stderr, "decode  %d tokens, %s, %.1f tokens/s\n", g->generated_tokens, decode, rate(steps, g->decode_ns));
    fprintf(stderr, "memory  %s mapped, %s resident, %s cache, %s scratch; context %d of %d tokens\n", mapped, resident,
            cache, scratch, nb_session_length(r->session), nb_session_context(r->session));
}

void nb_add_message(nb_buf *messages, const char *role, nb_str text)
{
    nb_buf_add_cstr(messages, messages->n ? ",{\"role\":" : "{\"role\":");
    nb_json_write_string(messages, nb_str_of(role), NB_JSON_COMPACT);
    nb_buf_add_cstr(messages, ",\"content\":");
    nb_json_write_string(messages, text, NB_JSON_COMPACT);
    nb_buf_add_char(messages, '}');
}

nb_str nb_runner_system(const nb_runner *r)
{
    const char *text = r->system ? r->system : r->info.system;
    return nb_str_of(text ? text : "");
}

void nb_runner_begin(const nb_runner *r, nb_str system, nb_buf *messages)
{
    if (system.n) nb_add_message(messages, "system", system);
    if (!r->info.messages) return;
    if (messages->n) nb_buf_add_char(messages, ',');
    nb_buf_add(messages, r->info.messages + 1, strlen(r->info.messages) - 2); /* without its brackets */
}

nb_status nb_runner_encode_chat(nb_runner *r, nb_str messages, int32_t **ids, size_t *n, nb_error *err)
{
    nb_buf b = {0};
    nb_buf_add_cstr(&b, "{\"messages\":[");
    nb_buf_add_str(&b, messages);
    nb_buf_add_cstr(&b, "],\"add_generation_prompt\":true");
    if (r->think >= 0) nb_buf_add_cstr(&b, r->think ? ",\"enable_thinking\":true" : ",\"enable_thinking\":false");
    if (r->trust) nb_buf_add_cstr(&b, ",\"trust_content\":true");
    nb_buf_add_char(&b, '}');
    nb_status st = b.oom ? nb_fail(err, NB_E_NO_MEMORY, "no memory for the request")
                         : nb_session_chat_encode(r->session, b.p, b.n, ids, n, NULL, NULL, err);
    nb_buf_free(&b);
    return st;
}
