/* cli/generate: what run and chat share: a model, a session, options of sampling, and streaming to stdout. Uses the
 * public API only. */
#ifndef NB_CLI_GENERATE_H
#define NB_CLI_GENERATE_H

#include "cli/args.h"
#include "cli/term.h"

typedef struct nb_runner {
    const char *name;
    nb_model_options model_options;
    nb_session_options session_options;
    nb_generate_options generate;
    nb_model *model;
    nb_session *session;
    nb_model_info info;
    int think;                 /* -1: not said, 0, 1: template variable enable_thinking */
    const char *system;        /* system message; NULL: the model's, "": none */
    bool trust;                /* control tokens in messages count */
    bool verbose, json, clean; /* clean: strip control sequences (stdout is a terminal) */
    nb_buf text;               /* what was generated */
    int32_t *ids;
    size_t n_ids, cap_ids; /* generated ids, an end token included */
    nb_progress progress;  /* of a long prompt, on a terminal */
    bool out_failed;       /* stdout could not be written: nothing more is printed */
    nb_generate_result result;
} nb_runner;

nb_status nb_runner_open(nb_runner *r, nb_error *err);
void nb_runner_close(nb_runner *r);
/* Generates from ids; streams to stdout unless json. */
nb_status nb_runner_generate(nb_runner *r, const int32_t *ids, size_t n, nb_error *err);
/* Load time, speeds and memory, on stderr. */
void nb_runner_report(const nb_runner *r);
/* A chat request with these messages (the inside of a JSON array) as ids; what the last request said is not encoded
 * again. */
nb_status nb_runner_encode_chat(nb_runner *r, nb_str messages, int32_t **ids, size_t *n, nb_error *err);
/* Appends {"role": role, "content": text} to the inside of a JSON array. */
void nb_add_message(nb_buf *messages, const char *role, nb_str text);
/* What every conversation begins with: the system message, then the messages that the model was imported with. */
void nb_runner_begin(const nb_runner *r, nb_str system, nb_buf *messages);
/* The system message of a new conversation. */
nb_str nb_runner_system(const nb_runner *r);
int nb_chat_loop(nb_runner *r);

#endif
