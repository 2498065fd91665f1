#include "cli/args.h"
#include "base/file.h"
#include "cli/term.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- exit codes (design.md 8) ---- */

int nb_exit_code(nb_status st)
{
    switch (st) {
    case NB_OK: return 0;
    case NB_E_USAGE: return 2;
    case NB_E_NOT_FOUND: return 3;
    case NB_E_UNREACHABLE: return 4;
    case NB_E_NO_SPACE:
    case NB_E_NO_MEMORY: return 5;
    case NB_E_INVALID:
    case NB_E_UNSUPPORTED: return 6;
    case NB_E_AUTH: return 7;
    case NB_E_TRUNCATED: return 8;
    case NB_E_CANCELLED: return 130;
    case NB_E_FAILED:
    case NB_E_IO:
    case NB_E_NUMERIC:
    case NB_E_CONTEXT: return 1;
    }
    return 1;
}

int nb_report(const nb_error *err)
{
    nb_buf b = {0};
    nb_term_clean(&b, nb_str_of(err->text), false);
    fprintf(stderr, "nibble: %s\n", b.p ? nb_buf_cstr(&b) : "failed");
    nb_buf_free(&b);
    return nb_exit_with_signal(nb_exit_code(err->status));
}

int nb_usage_error(const nb_command *c, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    nb_buf b = {0};
    nb_term_clean(&b, nb_str_of(text), false);
    fprintf(stderr, "nibble %s: %s\nusage: nibble %s\n`nibble help %s` lists the options.\n", c->name,
            b.p ? nb_buf_cstr(&b) : "", c->usage, c->name);
    nb_buf_free(&b);
    return 2;
}

/* ---- options ---- */

/* Edit distance, for short names. */
static int distance(const char *a, const char *b)
{
    enum { MOST = 40 };
    int row[MOST + 1];
    int n = (int)strlen(b);
    if (n > MOST || strlen(a) > MOST) return MOST;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[n];
}

const char *nb_nearest(const char *given, const char *const *names, size_t n)
{
    const char *best = NULL;
    int least = 3;
    for (size_t i = 0; i < n; i++) {
        int d = distance(given, names[i]);
        if (d < least) least = d, best = names[i];
    }
    return best;
}

static bool set_value(const nb_opt *o, const char *text)
{
    char *end = NULL;
    errno = 0;
    switch (o->kind) {
    case NB_OPT_FLAG: *(bool *)o->out = true; return true;
    case NB_OPT_NOFLAG: *(bool *)o->out = false; return true;
    case NB_OPT_STR: *(const char **)o->out = text; return true;
    case NB_OPT_INT: {
        long v = strtol(text, &end, 10);
        if (errno || *end || end == text || v < INT32_MIN || v > INT32_MAX) return false;
        *(int32_t *)o->out = (int32_t)v;
        return true;
    }
    case NB_OPT_U64: {
        if (*text == '-') return false;
        unsigned long long v = strtoull(text, &end, 10);
        if (errno || *end || end == text) return false;
        *(uint64_t *)o->out = v;
        return true;
    }
    case NB_OPT_FLOAT: {
        double v = strtod(text, &end);
        if (errno || *end || end == text || v != v) return false;
        *(float *)o->out = (float)v;
        return true;
    }
    case NB_OPT_LIST: {
        nb_opt_list *l = o->out;
        if (l->n == NB_COUNT(l->v)) return false;
        l->v[l->n++] = text;
        return true;
    }
    }
    return false;
}

static const nb_opt *find_opt(const nb_opt *opts, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(opts[i].name) == len && memcmp(opts[i].name, name, len) == 0) return &opts[i];
        if (opts[i].alias && strlen(opts[i].alias) == len && memcmp(opts[i].alias, name, len) == 0) return &opts[i];
    }
    return NULL;
}

static int unknown_option(const nb_command *c, const nb_opt *opts, size_t n, const char *name)
{
    const char *names[64];
    size_t k = 0;
    for (size_t i = 0; i < n && k < NB_COUNT(names); i++) names[k++] = opts[i].name;
    const char *near = nb_nearest(name, names, k);
    if (near) return nb_usage_error(c, "unknown option '%s'; did you mean '%s'?", name, near);
    return nb_usage_error(c, "unknown option '%s'", name);
}

int nb_args_parse(const nb_command *c, const nb_opt *opts, size_t n_opts, int argc, char **argv, int *n)
{
    int kept = 0;
    bool ended = false;
    for (int i = 0; i < argc; i++) {
        char *a = argv[i];
        if (ended || a[0] != '-' || a[1] == 0) {
            argv[kept++] = a;
            continue;
        }
        if (strcmp(a, "--") == 0) {
            ended = true;
            continue;
        }
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) {
            nb_print_help(c, opts, n_opts);
            return 0;
        }
        char *eq = a[1] == '-' ? strchr(a, '=') : NULL;
        const nb_opt *o = find_opt(opts, n_opts, a, eq ? (size_t)(eq - a) : strlen(a));
        if (!o) return unknown_option(c, opts, n_opts, a);
        const char *value = eq ? eq + 1 : NULL;
        bool flag = o->kind == NB_OPT_FLAG || o->kind == NB_OPT_NOFLAG;
        if (flag && eq) return nb_usage_error(c, "option '%s' takes no value", o->name);
        if (!flag && !value) {
            if (i + 1 >= argc) return nb_usage_error(c, "option '%s' needs %s", o->name, o->arg ? o->arg : "a value");
            value = argv[++i];
        }
        if (!set_value(o, value))
            return nb_usage_error(c, "option '%s': '%s' is not a valid %s", o->name, value, o->arg ? o->arg : "value");
    }
    *n = kept;
    return -1;
}

void nb_print_help(const nb_command *c, const nb_opt *opts, size_t n_opts)
{
    printf("%s\n\nusage: nibble %s\n", c->summary, c->usage);
    bool any = false;
    for (size_t i = 0; i < n_opts; i++) {
        const nb_opt *o = &opts[i];
        if (!o->help) continue;
        if (!any) printf("\noptions:\n");
        any = true;
        char left[64];
        snprintf(left, sizeof left, "%s%s%s%s%s", o->name, o->alias ? ", " : "", o->alias ? o->alias : "",
                 o->arg ? " " : "", o->arg ? o->arg : "");
        printf("  %-28s %s\n", left, o->help);
    }
    if (c->details) printf("\n%s\n", c->details);
}

/* ---- signals and output ---- */

volatile int nb_interrupted;
static volatile sig_atomic_t caught;
static void (*volatile signal_hook)(void *);
static void *volatile signal_arg;

static void on_signal(int sig)
{
    int saved = errno;
    if (!caught || nb_interrupted) {
        if (isatty(STDERR_FILENO) && write(STDERR_FILENO, "\n", 1) < 0) _exit(128 + sig);
        _exit(128 + sig);
    }
    nb_interrupted = sig;
    void (*fn)(void *) = signal_hook;
    if (fn) fn(signal_arg);
    errno = saved;
}

void nb_signals_hook(void (*fn)(void *), void *arg)
{
    signal_hook = NULL;
    signal_arg = arg;
    signal_hook = fn;
}

void nb_signals_install(void)
{
    struct sigaction a = {.sa_handler = on_signal};
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
    signal(SIGPIPE, SIG_IGN); /* writes fail with EPIPE, and the program ends quietly with 141 */
    signal(SIGXFSZ, SIG_IGN); /* likewise with EFBIG beyond a limit on file sizes */
}

void nb_signals_catch(void) { caught = 1; }

nb_status nb_check_interrupted(nb_error *err)
{
    return nb_interrupted ? nb_fail(err, NB_E_CANCELLED, "cancelled") : NB_OK;
}

int nb_exit_with_signal(int code) { return nb_interrupted ? 128 + nb_interrupted : code; }

int nb_finish_stdout(int code)
{
    bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fflush(stdout) == 0 && !failed) return code;
    int e = errno; /* 0 where an earlier write failed: a closed pipe is still seen, other reasons are tried once more */
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    if (e == EPIPE || (poll(&p, 1, 0) == 1 && (p.revents & POLLERR))) return 141;
    if (e == 0 && write(STDOUT_FILENO, "\n", 1) < 0) e = errno;
    fprintf(stderr, "nibble: standard output: %s\n", e ? strerror(e) : "write error");
    return e == ENOSPC || e == EFBIG ? 5 : code ? code : 1;
}

/* ---- numbers and input ---- */

const char *nb_number_text(double v, char out[32])
{
    snprintf(out, 32, isfinite(v) ? "%.9g" : "null", v);
    return out;
}

static nb_status read_stream(nb_buf *b, FILE *f, const char *name, size_t most, nb_error *err)
{
    char chunk[65536];
    size_t n;
    while (!b->oom && (n = fread(chunk, 1, sizeof chunk, f)) > 0) {
        nb_buf_add(b, chunk, n);
        if (b->n > most) return nb_fail(err, NB_E_USAGE, "%s is longer than %zu bytes", name, most);
    }
    nb_status st = nb_check_interrupted(err); /* a read that a signal broke off looks like an error */
    if (st == NB_OK && ferror(f)) st = nb_fail_errno(err, errno, "%s", name);
    return st == NB_OK && b->oom ? nb_fail(err, NB_E_NO_MEMORY, "no memory for the text") : st;
}

nb_status nb_read_stdin(nb_buf *b, size_t most, nb_error *err)
{
    return read_stream(b, stdin, "standard input", most, err);
}

nb_status nb_read_input(nb_buf *b, const char *path, size_t most, nb_error *err)
{
    struct stat sb;
    if (strcmp(path, "-") == 0) return nb_read_stdin(b, most, err);
    bool stream = stat(path, &sb) == 0 && (S_ISFIFO(sb.st_mode) || S_ISCHR(sb.st_mode));
    if (!stream) return nb_file_read(b, path, most, err);
    FILE *f = fopen(path, "re");
    if (!f) return nb_fail_errno(err, errno, "%s", path);
    nb_status st = read_stream(b, f, path, most, err);
    fclose(f);
    return st;
}
