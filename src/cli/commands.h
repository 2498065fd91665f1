/* cli/commands: every command of the program. To add one: a cmd_*.c file and a row in commands.c. */
#ifndef NB_CLI_COMMANDS_H
#define NB_CLI_COMMANDS_H

#include "cli/args.h"

int nb_cmd_create(const nb_command *c, int argc, char **argv);
int nb_cmd_export(const nb_command *c, int argc, char **argv);
int nb_cmd_run(const nb_command *c, int argc, char **argv);
int nb_cmd_compare(const nb_command *c, int argc, char **argv);
int nb_cmd_perplexity(const nb_command *c, int argc, char **argv);
int nb_cmd_bench(const nb_command *c, int argc, char **argv);
int nb_cmd_show(const nb_command *c, int argc, char **argv);
int nb_cmd_list(const nb_command *c, int argc, char **argv);
int nb_cmd_ps(const nb_command *c, int argc, char **argv);
int nb_cmd_rm(const nb_command *c, int argc, char **argv);
int nb_cmd_cp(const nb_command *c, int argc, char **argv);
int nb_cmd_verify(const nb_command *c, int argc, char **argv);
int nb_cmd_dump(const nb_command *c, int argc, char **argv);
int nb_cmd_tokenize(const nb_command *c, int argc, char **argv);
int nb_cmd_detokenize(const nb_command *c, int argc, char **argv);
int nb_cmd_template(const nb_command *c, int argc, char **argv);
int nb_cmd_version(const nb_command *c, int argc, char **argv);

int nb_cli_main(int argc, char **argv);

#endif
