/* cli/chat: `nibble run NAME` on a terminal. Line editing and history by libedit. specs/text_and_api.md 5.3. */
#include "base/file.h"
#include "cli/generate.h"
#include "cli/term.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

typedef struct chat {
    nb_runner *r;
    EditLine *el;
    History *history;
    char *history_path; /* NULL: not kept */
    nb_buf messages;    /* inside of the JSON array */
    nb_buf system;      /* system message; empty: none */
    nb_buf input;       /* one turn, may have several lines */
    size_t turn_start;  /* length of messages before the last user turn, for /undo */
    bool continued;     /* the prompt shows "... " */
    bool quit;
    mbstate_t typed; /* half a character from the keyboard */
} chat;

static const char help_text[] =
    "  /clear              forget the conversation\n"
    "  /undo               take the last question and answer back\n"
    "  /retry              answer the last question again\n"
    "  /system TEXT        set the system message (forgets the conversation)\n"
    "  /set NAME VALUE     temp, top_k, top_p, min_p, repeat_penalty, seed, n, think on|off, verbose on|off\n"
    "  /show               context in use, sampling options\n"
    "  /bye                leave (also Ctrl-D)\n"
    "  \"\"\"                 begins and ends a text of several lines; a line that ends in \\ goes on\n"
    "  Ctrl-C              stops an answer\n";

static char *prompt_text(EditLine *el)
{
    chat *c = NULL;
    static char first[] = ">>> ", more[] = "... ";
    el_get(el, EL_CLIENTDATA, &c);
    return c && c->continued ? more : first;
}

/* $XDG_STATE_HOME/nibble/history; NULL where it is not to be kept. */
static char *find_history_path(void)
{
    if (getenv("NIBBLE_NOHISTORY")) return NULL;
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    nb_buf b = {0};
    if (state && *state == '/')
        nb_buf_printf(&b, "%s/nibble", state);
    else if (home && *home)
        nb_buf_printf(&b, "%s/.local/state/nibble", home);
    else
        return NULL;
    nb_error ignored;
    const char *dir = nb_buf_cstr(&b);
    if (!dir || nb_mkdirs(dir, &ignored) != NB_OK) {
        nb_buf_free(&b);
        return NULL;
    }
    nb_buf_add_cstr(&b, "/history");
    nb_buf_cstr(&b);
    return b.p;
}

/* Waits for a key. Signals are let in only while waiting, so that none is missed between a look at nb_interrupted and
 * the read. False: a signal came. */
static bool wait_key(void)
{
    sigset_t both, before;
    struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
    sigemptyset(&both);
    sigaddset(&both, SIGINT);
    sigaddset(&both, SIGTERM);
    sigprocmask(SIG_BLOCK, &both, &before);
    while (!nb_interrupted && ppoll(&p, 1, NULL, &before) < 0 && errno == EINTR) continue;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return !nb_interrupted;
}

/* The editor's source of characters: 1, 0 at the end, -1 on an error or a signal. */
static int read_key(EditLine *el, wchar_t *out)
{
    chat *c = NULL;
    el_get(el, EL_CLIENTDATA, &c);
    for (;;) {
        char byte;
        if (!wait_key()) return -1;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return (int)n;
        size_t got = mbrtowc(out, &byte, 1, &c->typed);
        if (got <= 1) return 1;
        if (got == (size_t)-1) memset(&c->typed, 0, sizeof c->typed); /* not UTF-8: the byte is dropped */
    }
}

static bool editor_open(chat *c)
{
    HistEvent ev;
    if (!setlocale(LC_CTYPE, "C.UTF-8"))
        setlocale(LC_CTYPE, ""); /* the editor decodes keys by locale; nothing else does */
    c->el = el_init("nibble", stdin, stdout, stderr);
    c->history = history_init();
    if (!c->el || !c->history) return false;
    history(c->history, &ev, H_SETSIZE, 1000);
    history(c->history, &ev, H_SETUNIQUE, 1);
    el_set(c->el, EL_CLIENTDATA, c);
    el_set(c->el, EL_GETCFN, read_key);
    el_set(c->el, EL_PROMPT, prompt_text);
    el_set(c->el, EL_EDITOR, "emacs");
    el_set(c->el, EL_HIST, history, c->history);
    el_set(c->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    c->history_path = find_history_path();
    if (c->history_path) history(c->history, &ev, H_LOAD, c->history_path);
    return true;
}

static void editor_close(chat *c)
{
    HistEvent ev;
    if (c->history_path) {
        mode_t old = umask(0077);
        history(c->history, &ev, H_SAVE, c->history_path);
        umask(old);
        chmod(c->history_path, 0600);
    }
    if (c->el) el_end(c->el);
    if (c->history) history_end(c->history);
    free(c->history_path);
}

typedef enum line_kind { LINE_READ, LINE_END, LINE_CLEARED } line_kind;

/* Adds one line to input. LINE_CLEARED: Ctrl-C; the whole turn is dropped. */
static line_kind read_line(chat *c)
{
    int n = 0;
    const char *text = el_gets(c->el, &n);
    if (text && n > 0) {
        nb_buf_add(&c->input, text, (size_t)n);
        return LINE_READ;
    }
    if (nb_interrupted != SIGINT) return LINE_END;
    nb_interrupted = 0;
    printf("\n(/bye or Ctrl-D leaves)\n");
    return LINE_CLEARED;
}

static void trim_newline(nb_buf *b)
{
    while (b->n && (b->p[b->n - 1] == '\n' || b->p[b->n - 1] == '\r')) b->n--;
}

/* Is the turn complete? Takes the marks out of the text: the closing """ of a block, or a trailing backslash. */
static bool complete(nb_buf *in, bool block)
{
    if (block) {
        int64_t end = nb_str_find(nb_buf_str(in), NB_LIT("\"\"\""), 0);
        if (end >= 0) in->n = (size_t)end;
        return end >= 0;
    }
    trim_newline(in);
    if (in->n == 0 || in->p[in->n - 1] != '\\') return true;
    in->p[in->n - 1] = '\n';
    return false;
}

/* One turn: a line, lines joined by a trailing backslash, or a block between two """. False at the end of the input. */
static bool read_turn(chat *c)
{
    bool block = false;
    c->input.n = 0;
    c->continued = false;
    do {
        line_kind got = read_line(c);
        if (got == LINE_CLEARED) c->input.n = 0;
        if (got == LINE_CLEARED || (got == LINE_END && c->continued)) break;
        if (got == LINE_END) return false;
        if (!c->continued && c->input.n >= 3 && memcmp(c->input.p, "\"\"\"", 3) == 0) {
            memmove(c->input.p, c->input.p + 3, c->input.n - 3);
            c->input.n -= 3;
            block = true;
        }
        c->continued = true;
    } while (!complete(&c->input, block));
    c->continued = false;
    trim_newline(&c->input);
    HistEvent ev;
    const char *text = nb_buf_cstr(&c->input);
    if (text && *text) history(c->history, &ev, H_ENTER, text);
    return true;
}

static void reset(chat *c)
{
    c->messages.n = 0;
    c->turn_start = 0;
    nb_runner_begin(c->r, nb_buf_str(&c->system), &c->messages);
    c->turn_start = c->messages.n;
}

static int answer(chat *c)
{
    nb_error err = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    nb_status st = nb_runner_encode_chat(c->r, nb_buf_str(&c->messages), &ids, &n, &err);
    if (st == NB_OK) st = nb_runner_generate(c->r, ids, n, &err);
    nb_free(ids);
    if (c->r->out_failed) return 1;
    printf("\n");
    fflush(stdout);
    if (st != NB_OK && st != NB_E_CANCELLED) {
        nb_report(&err);
        c->messages.n = c->turn_start;
        return 0;
    }
    if (nb_interrupted == SIGTERM) return 128 + SIGTERM;
    nb_interrupted = 0;
    nb_add_message(&c->messages, "assistant", nb_buf_str(&c->r->text));
    if (st == NB_OK && c->r->result.finish == NB_FINISH_LENGTH)
        printf("(cut: %d of %d tokens of context in use)\n", nb_session_length(c->r->session),
               nb_session_context(c->r->session));
    if (c->r->verbose) nb_runner_report(c->r);
    printf("\n");
    return 0;
}

static bool set_option(chat *c, const char *name, const char *value)
{
    nb_sampling *s = &c->r->generate.sampling;
    char *end;
    double v = strtod(value, &end);
    bool number = *value && !*end && v == v;
    bool on = strcmp(value, "on") == 0, off = strcmp(value, "off") == 0;
    if (strcmp(name, "think") == 0 && (on || off))
        c->r->think = on;
    else if (strcmp(name, "verbose") == 0 && (on || off))
        c->r->verbose = on;
    else if (!number)
        return false;
    else if (strcmp(name, "temp") == 0)
        s->temperature = (float)v;
    else if (strcmp(name, "top_p") == 0)
        s->top_p = (float)v;
    else if (strcmp(name, "min_p") == 0)
        s->min_p = (float)v;
    else if (strcmp(name, "repeat_penalty") == 0)
        s->repeat_penalty = (float)v;
    else if (strcmp(name, "top_k") == 0 && v >= 0 && v < 1e9)
        s->top_k = (int32_t)v;
    else if (strcmp(name, "n") == 0 && (v == -1 || v >= 1) && v < 1e9)
        c->r->generate.max_tokens = (int32_t)v;
    else if (strcmp(name, "seed") == 0 && v >= 0 && v < 1e15)
        s->seed = (uint64_t)v;
    else
        return false;
    return true;
}

static void show(const chat *c)
{
    const nb_sampling *s = &c->r->generate.sampling;
    printf("model %s, context %d of %d tokens\ntemp %g, top_k %d, top_p %g, min_p %g, repeat_penalty %g, seed %llu\n",
           c->r->name, nb_session_length(c->r->session), nb_session_context(c->r->session), (double)s->temperature,
           s->top_k, (double)s->top_p, (double)s->min_p, (double)s->repeat_penalty, (unsigned long long)s->seed);
}

/* A line that begins with '/'. Returns an exit code, or 0 to go on. */
static int command(chat *c, char *line)
{
    char *save = NULL;
    char *name = strtok_r(line, " \t\n", &save);
    if (strcmp(name, "/bye") == 0 || strcmp(name, "/exit") == 0) {
        c->quit = true;
    } else if (strcmp(name, "/?") == 0 || strcmp(name, "/help") == 0) {
        fputs(help_text, stdout);
    } else if (strcmp(name, "/clear") == 0) {
        reset(c);
    } else if (strcmp(name, "/undo") == 0) {
        c->messages.n = c->turn_start;
    } else if (strcmp(name, "/system") == 0) {
        c->system.n = 0;
        nb_buf_add_cstr(&c->system, save && *save ? save : "");
        reset(c);
    } else if (strcmp(name, "/show") == 0) {
        show(c);
    } else if (strcmp(name, "/retry") == 0) {
        if (c->messages.n == c->turn_start) {
            printf("nothing to retry\n");
            return 0;
        }
        int64_t at = nb_str_find(nb_buf_str(&c->messages), NB_LIT(",{\"role\":\"assistant\""), c->turn_start);
        if (at >= 0) c->messages.n = (size_t)at;
        c->r->generate.sampling.seed++;
        return answer(c);
    } else if (strcmp(name, "/set") == 0) {
        char *key = strtok_r(NULL, " \t\n", &save), *value = key ? strtok_r(NULL, " \t\n", &save) : NULL;
        if (!value || !set_option(c, key, value)) printf("usage: /set NAME VALUE; /? lists the names\n");
    } else {
        printf("unknown command; /? lists the commands\n");
    }
    return 0;
}

/* Where in messages the last question begins is kept in turn_start; its text must survive /retry, so commands are
 * parsed from a copy. */
static int turn(chat *c)
{
    if (c->input.n == 0) return 0;
    if (c->input.p[0] == '/') {
        char *copy = strdup(nb_buf_cstr(&c->input));
        if (!copy) return 5;
        int code = command(c, copy);
        free(copy);
        return code;
    }
    if (nb_utf8_valid_prefix(c->input.p, c->input.n) != c->input.n) {
        printf("the input is not valid UTF-8\n");
        return 0;
    }
    c->turn_start = c->messages.n;
    nb_add_message(&c->messages, "user", nb_buf_str(&c->input));
    return answer(c);
}

int nb_chat_loop(nb_runner *r)
{
    chat c = {.r = r};
    int code = 0;
    if (!editor_open(&c)) {
        editor_close(&c);
        fprintf(stderr, "nibble: the line editor could not be started\n");
        return 1;
    }
    nb_buf_add_str(&c.system, nb_runner_system(r));
    reset(&c);
    printf("%s: %s, %d layers, context %d. /? for help\n", r->name, r->info.architecture, r->info.layers,
           nb_session_context(r->session));
    while (!c.quit && code == 0 && read_turn(&c)) code = turn(&c);
    if (nb_interrupted == SIGTERM) code = 128 + SIGTERM;
    if (!c.quit && code == 0) printf("\n");
    editor_close(&c);
    nb_buf_free(&c.messages);
    nb_buf_free(&c.system);
    nb_buf_free(&c.input);
    return code;
}
