/* text/chat: from a chat request to a prompt. specs/text_and_api.md 2, design.md 9. */
#ifndef NB_TEXT_CHAT_H
#define NB_TEXT_CHAT_H

#include "base/base.h"
#include "json/json.h"
#include "text/tokenizer.h"

typedef struct nb_template nb_template; /* a parsed Jinja template; immutable, may be shared */

/* Lexes and parses. Errors name line and column: "chat template: line 3, column 12: ...". */
nb_status nb_template_parse(nb_template **out, const char *text, size_t n, nb_error *err);
void nb_template_free(nb_template *t);

typedef struct nb_render_limits { uint64_t steps, output_bytes, memory_bytes; uint32_t depth; } nb_render_limits; /* 0: defaults */

/* A rendered prompt: spans, each from the template (trusted) or from the request. Owned by the arena given. */
typedef struct nb_prompt {
    nb_span *spans;
    size_t n;
} nb_prompt;

/* Renders with the variables of one JSON object (strict engine, no preparation). now: fixed "seconds since 1970, local" for strftime_now, or NULL for the clock. */
nb_status nb_template_render(const nb_template *t, const nb_json *variables, const nb_render_limits *limits, const int64_t *now, nb_arena *arena, nb_prompt *out, nb_error *err);

/* A special token under the name that templates know it by: "bos_token" and "<s>". */
typedef struct nb_chat_token {
    nb_str name, text;
} nb_chat_token;
/* Those that a template sees, from the parsed tokenizer_config.json and special_tokens_map.json (each may be NULL), as transformers reads them; names on which both are
 * silent come from the tokenizer's own file (t may be NULL). Texts lie in the arena. */
nb_status nb_chat_tokens(const nb_json *config, const nb_json *map, const nb_tokenizer *t, nb_arena *arena, const nb_chat_token **out, size_t *n, nb_error *err);

typedef struct nb_chat_request {
    const nb_json *messages, *tools, *documents; /* tools, documents may be NULL */
    const nb_json *variables;                    /* object of further template variables, or NULL (enable_thinking, ...) */
    bool add_generation_prompt, continue_final_message;
    bool trust_content;                          /* the whole prompt counts as the template's */
    const nb_chat_token *tokens;                 /* a variable of the same name hides one */
    size_t n_tokens;
} nb_chat_request;
/* Reads {"messages", "tools", "documents", "add_generation_prompt" (true unless said, or continued), "continue_final_message", "trust_content"}; every other key is a
 * template variable. The keys of `more` (NULL: none) take the place of the request's. NB_E_USAGE: not an object. The request points into both. */
nb_status nb_chat_request_read(nb_chat_request *r, const nb_json *root, const nb_json *more, nb_arena *arena, nb_error *err);

/* Strict: exactly what transformers' apply_chat_template does. */
nb_status nb_chat_render_strict(const nb_template *t, const nb_chat_request *r, const int64_t *now, nb_arena *arena, nb_prompt *out, nb_error *err);
/* Product mode (specs 2.2, 2.7): answers where strict would fail for reasons that are not the user's. */
nb_status nb_chat_render(const nb_template *t, const nb_chat_request *r, const int64_t *now, nb_arena *arena, nb_prompt *out, nb_error *err);

#endif
