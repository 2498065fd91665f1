/* text/tok_json: the parts of the tokenizer.json loader. */
#ifndef NB_TEXT_TOK_JSON_H
#define NB_TEXT_TOK_JSON_H

#include "text/tok_image.h"

/* Each takes its section of the file (absent or null: nothing to do). Errors name section, field and value. */
nb_status nb_tok_json_normalizer(nb_tok_build *b, const nb_json *v, int depth, nb_error *err);
nb_status nb_tok_json_pre(nb_tok_build *b, const nb_json *v, int depth, nb_error *err);
nb_status nb_tok_json_post(nb_tok_build *b, const nb_json *v, int depth, nb_error *err);
nb_status nb_tok_json_decoder(nb_tok_build *b, const nb_json *v, int depth, nb_error *err);
/* bos_token and eos_token of tokenizer_config.json (may be NULL), once the tokens are there. */
void nb_tok_json_config(nb_tok_build *b, const nb_json *config);
/* Base64 into the arena. */
nb_status nb_tok_base64(nb_arena *a, nb_str text, nb_str *out, nb_error *err);

/* The end of both SentencePiece loaders, once tokens, flags and scores are there. config may be NULL. */
nb_status nb_tok_sp_finish(nb_tok_build *b, const nb_json *config, nb_tokenizer **out, nb_error *err);

#endif
