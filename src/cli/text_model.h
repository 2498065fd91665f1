/* cli/text_model: tokenizer and templates for the commands that need no weights: of a stored model, a folder or a file. */
#ifndef NB_CLI_TEXT_MODEL_H
#define NB_CLI_TEXT_MODEL_H

#include "model/model.h"

typedef struct nb_text_model {
    nb_store *store;
    nb_network *net;
} nb_text_model;

/* A path by its looks ("./x", "/x", "x.json", "x.gguf" ...), else the name of a stored model, else a path after all. */
nb_status nb_text_model_open(nb_text_model *m, const char *where, nb_error *err);
void nb_text_model_close(nb_text_model *m);
bool nb_looks_like_path(const char *where);

#define NB_MAX_TEXT ((size_t)1 << 30)

#endif
