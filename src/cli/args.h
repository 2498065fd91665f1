/* cli/args: one table of options per command; parsing, help, exit codes. */
#ifndef NB_CLI_ARGS_H
#define NB_CLI_ARGS_H

#include "base/base.h"

typedef enum nb_opt_kind {
    NB_OPT_FLAG,
    NB_OPT_NOFLAG /* sets false */,
    NB_OPT_STR,
    NB_OPT_INT,
    NB_OPT_U64,
    NB_OPT_FLOAT,
    NB_OPT_LIST
} nb_opt_kind;

typedef struct nb_opt_list {
    const char *v[32];
    size_t n;
} nb_opt_list;

typedef struct nb_opt {
    const char *name;  /* "--quantize", or "-n" */
    const char *alias; /* another spelling, or NULL */
    nb_opt_kind kind;
    void *out;        /* bool *, const char **, int32_t *, uint64_t *, float *, nb_opt_list * */
    const char *arg;  /* name of the value in the help text, NULL for flags */
    const char *help; /* NULL: not listed (an alias of another engine) */
} nb_opt;

typedef struct nb_command {
    const char *name, *alias;
    const char *usage;   /* "create NAME --from PATH [options]" */
    const char *summary; /* one line */
    const char *details; /* further lines of `nibble help NAME`, or NULL */
    int (*run)(const struct nb_command *c, int argc,
               char **argv); /* argv without program and command; returns the exit code */
} nb_command;

/* Parses argv in place: options may stand anywhere, "--" ends them, "--name=value" works. positional arguments are
 * moved to the front of argv; *n gets their number. Returns -1 to go on, or an exit code (2 after a printed error, 0
 * after --help was printed). */
int nb_args_parse(const nb_command *c, const nb_opt *opts, size_t n_opts, int argc, char **argv, int *n);
/* Prints "nibble NAME: text" and how to get help; returns 2. */
int nb_usage_error(const nb_command *c, const char *fmt, ...) NB_PRINTF(2, 3);
/* Prints "nibble: text" to stderr, cleaned of control characters, and returns the exit code of the status. */
int nb_report(const nb_error *err);
int nb_exit_code(nb_status st);
void nb_print_help(const nb_command *c, const nb_opt *opts, size_t n_opts);
/* The name in `names` nearest to `given`, or NULL when none is near. */
const char *nb_nearest(const char *given, const char *const *names, size_t n);

/* Ctrl-C and SIGTERM end the program at once with 130 or 143 (design.md 8), until a command that has something to clean
 * up calls nb_signals_catch: from then on the handler sets nb_interrupted, which the command looks at, and calls the
 * hook; only a second signal ends the program at once. */
extern volatile int nb_interrupted; /* 0, or the signal */
void nb_signals_install(void);
void nb_signals_catch(void);
/* NB_E_CANCELLED when a signal arrived. */
nb_status nb_check_interrupted(nb_error *err);
void nb_signals_hook(void (*fn)(void *),
                     void *arg); /* called in the handler: async-signal-safe work only; NULL clears */
/* 128 + signal when one arrived, else code. */
int nb_exit_with_signal(int code);
/* Flushes stdout; a closed pipe gives 141, a full disk 5, another write error 1 (with one line on stderr). */
int nb_finish_stdout(int code);
/* A number for JSON: "null" where it is not finite. Returns out. */
const char *nb_number_text(double v, char out[32]);
/* Appends the whole standard input, at most `most` bytes. */
nb_status nb_read_stdin(nb_buf *b, size_t most, nb_error *err);
/* The same of a file, a FIFO, a device, or with "-" of standard input. */
nb_status nb_read_input(nb_buf *b, const char *path, size_t most, nb_error *err);

#endif
