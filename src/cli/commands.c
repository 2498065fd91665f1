#include "cli/commands.h"
#include "cli/term.h"

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int help(const nb_command *c, int argc, char **argv);

static const nb_command commands[] = {
    {"run", NULL, "run NAME [PROMPT] [options]", "Generate text; without a prompt on a terminal, chat", NULL,
     nb_cmd_run},
    {"create", NULL, "create NAME --from PATH [options] | create NAME --draft DIR [options]", "Import a checkpoint directory or a GGUF file", NULL,
     nb_cmd_create},
    {"list", "ls", "list [--json]", "List the stored models", NULL, nb_cmd_list},
    {"show", NULL, "show NAME [options]", "Show a model's architecture, formats and files", NULL, nb_cmd_show},
    {"ps", NULL, "ps [--json]", "List the models that a server holds in memory", NULL, nb_cmd_ps},
    {"cp", NULL, "cp FROM TO", "Give a model a second name", NULL, nb_cmd_cp},
    {"rm", NULL, "rm NAME...", "Remove models, and the files that no other model uses", NULL, nb_cmd_rm},
    {"verify", NULL, "verify NAME [--deep]", "Check a stored model's files", NULL, nb_cmd_verify},
    {"dump", NULL, "dump NAME [TENSOR] [--json]", "Show the tensors of a model, or the first values of one", NULL,
     nb_cmd_dump},
    {"export", NULL, "export NAME DIR [--as FORMAT] [--dtype TYPE]", "Write a standard checkpoint directory", NULL,
     nb_cmd_export},
    {"compare", NULL, "compare PATH [options]", "Compare a checkpoint's forward with the publisher's reference", NULL,
     nb_cmd_compare},
    {"perplexity", NULL, "perplexity NAME FILE [options]", "Mean negative log-likelihood of a text", NULL,
     nb_cmd_perplexity},
    {"bench", NULL, "bench NAME | --shape S [options]", "Measure prompt and decode speed beside the machine's limits",
     NULL, nb_cmd_bench},
    {"tokenize", NULL, "tokenize NAME|PATH [TEXT] [options]", "Show the ids and pieces of a text", NULL, nb_cmd_tokenize},
    {"detokenize", NULL, "detokenize NAME|PATH ID... [options]", "Show the text of ids", NULL, nb_cmd_detokenize},
    {"template", NULL, "template NAME|PATH FILE [options]", "Render the prompt of a chat request", NULL, nb_cmd_template},
    {"version", NULL, "version [--json]", "Show version, tier and arithmetic order", NULL, nb_cmd_version},
    {"help", NULL, "help [COMMAND]", "Show the commands, or one command's options", NULL, help},
};

static const nb_command *find(const char *name)
{
    for (size_t i = 0; i < NB_COUNT(commands); i++)
        if (strcmp(commands[i].name, name) == 0 || (commands[i].alias && strcmp(commands[i].alias, name) == 0))
            return &commands[i];
    return NULL;
}

static void overview(FILE *f)
{
    fprintf(
        f,
        "nibble runs language models whose weights are stored in a few bits.\n\nusage: nibble COMMAND [arguments]\n\n");
    for (size_t i = 0; i < NB_COUNT(commands); i++) fprintf(f, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fprintf(f, "\n`nibble help COMMAND` lists the options of a command. Models live in $NIBBLE_MODELS, else in "
               "~/.local/share/nibble/models.\n");
}

static int unknown(const char *name)
{
    const char *names[NB_COUNT(commands)];
    for (size_t i = 0; i < NB_COUNT(commands); i++) names[i] = commands[i].name;
    const char *near = nb_nearest(name, names, NB_COUNT(names));
    nb_buf b = {0};
    nb_term_clean(&b, nb_str_of(name), false);
    fprintf(stderr, "nibble: unknown command '%s'%s%s%s\n`nibble help` lists the commands.\n",
            b.p ? nb_buf_cstr(&b) : "", near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    nb_buf_free(&b);
    return 2;
}

static int help(const nb_command *c, int argc, char **argv)
{
    (void)c;
    if (argc == 0) {
        overview(stdout);
        return 0;
    }
    const nb_command *of = find(argv[0]);
    if (!of) return unknown(argv[0]);
    if (of->run == help) {
        nb_print_help(of, NULL, 0);
        return 0;
    }
    char flag[] = "--help";
    char *args[] = {flag, NULL};
    return of->run(of, 1, args);
}

/* A blob that shrinks or vanishes under the mapping: the library leaves the signal alone, the program turns it into a
 * clear exit. */
static void on_bus_error(int sig)
{
    static const char text[] =
        "nibble: a model file was truncated or became unreadable while it was in use; `nibble verify NAME` checks it\n";
    static atomic_flag said = ATOMIC_FLAG_INIT; /* several lanes may fault at once */
    (void)sig;
    while (atomic_flag_test_and_set(&said)) pause();
    ssize_t n = write(STDERR_FILENO, text, sizeof text - 1);
    (void)n;
    _exit(6);
}

static void log_line(void *user, int level, const char *line)
{
    (void)user;
    static const char *const names[] = {"error", "warning", "note", "debug"};
    if (level > 2 && !getenv("NIBBLE_DEBUG")) return;
    nb_buf b = {0};
    nb_term_clean(&b, nb_str_of(line), false);
    fprintf(stderr, "%s: %s\n", names[level < 0 ? 0 : level > 3 ? 3 : level], b.p ? nb_buf_cstr(&b) : "");
    nb_buf_free(&b);
}

/* A program started without standard files would open its own files as number 0, 1 or 2, and print into them. */
static void open_standard_files(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_WRONLY : O_RDONLY) != fd) _exit(1);
}

int nb_cli_main(int argc, char **argv)
{
    open_standard_files();
    nb_signals_install();
    signal(SIGBUS, on_bus_error);
    nb_log_set(log_line, NULL);
    if (argc < 2) {
        overview(stderr);
        return 2;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
    if (strcmp(name, "--version") == 0 || strcmp(name, "-v") == 0) name = "version";
    const nb_command *c = find(name);
    if (!c) return unknown(name);
    return nb_finish_stdout(c->run(c, argc - 2, argv + 2));
}
