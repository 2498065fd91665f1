/* nibble: language models whose weights are stored in a few bits. Public API.
 *
 * Handles are opaque. Every options struct begins with `size`, set by the caller to sizeof the struct, so that
 * fields may be added at the end without breaking a caller. No struct is passed by value. Strings carry lengths
 * unless a comment says "NUL-terminated". A model is immutable and may be shared; a session belongs to one thread at a
 * time; nb_cancel may be called from any thread. The library never prints, exits, aborts on input or installs
 * a signal handler.
 */
#ifndef NIBBLE_H
#define NIBBLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NB_API __attribute__((visibility("default")))
#else
#define NB_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers never change; new ones are added at the end. */
typedef enum nb_status {
    NB_OK = 0,
    NB_E_FAILED = 1,       /* anything without a better number */
    NB_E_USAGE = 2,        /* the caller's arguments are wrong */
    NB_E_NOT_FOUND = 3,    /* model, tensor or path does not exist */
    NB_E_UNREACHABLE = 4,  /* server or registry does not answer */
    NB_E_NO_SPACE = 5,     /* disk full, or file would not fit */
    NB_E_INVALID = 6,      /* an input or stored file failed a check */
    NB_E_AUTH = 7,         /* not authorised */
    NB_E_TRUNCATED = 8,    /* output ended at a limit */
    NB_E_IO = 9,           /* read, write or system call failed */
    NB_E_NUMERIC = 10,     /* NaN, infinity or |value| > 2^100 in a forward */
    NB_E_CANCELLED = 11,   /* nb_cancel was called */
    NB_E_UNSUPPORTED = 12, /* a valid input that this version refuses by name */
    NB_E_NO_MEMORY = 13,   /* an allocation failed or would pass a limit */
    NB_E_CONTEXT = 14,     /* more tokens than the context holds */
} nb_status;

typedef struct nb_error {
    nb_status status;
    char text[512]; /* one line, NUL-terminated, valid UTF-8, no control characters */
} nb_error;

/* "0.1.0" and a one-line description of the build and the machine's tiers. NUL-terminated, static. */
NB_API const char *nb_version(void);
NB_API const char *nb_build_info(void);
NB_API const char *nb_status_text(nb_status status);

/* ---- models ---- */

typedef struct nb_model nb_model;     /* immutable, shared; closes after its last session */
typedef struct nb_session nb_session; /* one thread at a time */

typedef struct nb_model_options {
    size_t size;
    const char *store;   /* NULL: $NIBBLE_MODELS, else the user's data folder */
    int32_t threads;     /* 0: one per processor this process may use */
    int32_t chunk;       /* rows of one forward; 0: 512 */
    const char *tier;    /* NULL: $NIBBLE_TIER, else the best that the machine has */
    bool float32;        /* activations, q, KV and p stay fp32 (for comparisons) */
    bool resident;       /* copy the weights into anonymous huge pages */
} nb_model_options;

/* name: NUL-terminated "[host/][namespace/]model[:tag]". options may be NULL. NB_E_NOT_FOUND, NB_E_INVALID, NB_E_UNSUPPORTED, NB_E_NO_MEMORY. */
NB_API nb_status nb_model_open(nb_model **out, const char *name, const nb_model_options *options, nb_error *err);
NB_API void nb_model_close(nb_model *model); /* NULL is fine. While sessions are open the last of them closes it */

typedef struct nb_model_info {
    size_t size;
    char architecture[64], tier[16], order[8];
    int32_t layers, hidden, vocab, context;  /* context: the model's maximum, tokens */
    int32_t threads, chunk, tokens;          /* tokens: ids that the tokenizer knows, 0 without one */
    uint64_t parameters, weight_bytes;       /* weight_bytes: mapped */
    uint64_t token_bytes;                    /* weight bytes that one token reads (all experts used by one row) */
    uint64_t plan_bytes;                     /* scratch */
    uint64_t load_ns;
    bool has_tokenizer, has_template;
    bool tokenizer_pre_unknown;              /* GGUF: the name of the pre-tokenizer is not known, so ids may differ from the publisher's */
    const char *system, *messages;           /* what conversations begin with, NULL: nothing. A system message; a JSON list of messages, "[{...}]" without white space around it. Theirs until the model is closed */
} nb_model_info;
NB_API nb_status nb_model_get_info(const nb_model *model, nb_model_info *info, nb_error *err);

/* ---- text ---- */

enum { NB_TOKENIZE_SPECIALS = 1 /* BOS and the like */, NB_TOKENIZE_CONTROL = 2 /* find control tokens in the text */ };
/* *ids is allocated; free with nb_free. */
NB_API nb_status nb_tokenize(const nb_model *model, const char *text, size_t n, int flags, int32_t **ids, size_t *n_ids, nb_error *err);
/* *text is allocated and NUL-terminated; *n does not count the NUL. */
NB_API nb_status nb_detokenize(const nb_model *model, const int32_t *ids, size_t n_ids, bool skip_special, char **text, size_t *n, nb_error *err);
/* request: a JSON object {"messages": [...], "tools": [...], "documents": [...], "add_generation_prompt": true, "continue_final_message": false, further template variables}.
 * Renders the model's chat template (the one named "tool_use" where there are tools and it is there, else "default") and encodes it; control tokens inside request content stay text unless "trust_content" is true. prompt (may be NULL) gets the rendered text. */
NB_API nb_status nb_chat_encode(const nb_model *model, const char *request, size_t n, int32_t **ids, size_t *n_ids, char **prompt, nb_error *err);
NB_API void nb_free(void *p);

/* ---- sessions: a token record and its cache ---- */

typedef struct nb_session_options {
    size_t size;
    int32_t context; /* slots; 0: the smaller of the model's maximum and 4096 */
} nb_session_options;
NB_API nb_status nb_session_new(nb_session **out, nb_model *model, const nb_session_options *options, nb_error *err);
NB_API void nb_session_free(nb_session *s); /* NULL is fine */
NB_API int32_t nb_session_length(const nb_session *s);  /* tokens evaluated */
NB_API int32_t nb_session_context(const nb_session *s);
NB_API const int32_t *nb_session_tokens(const nb_session *s); /* [length], valid until the next call that changes s */
NB_API uint64_t nb_session_bytes(const nb_session *s); /* cache memory in use */
/* Keeps the first `length` tokens. Always succeeds for 0 <= length <= nb_session_length; where a layer cannot go back that far the tokens
 * from its deepest restorable slot are evaluated again. *reevaluated (may be NULL): how many. */
NB_API nb_status nb_session_truncate(nb_session *s, int32_t length, int32_t *reevaluated, nb_error *err);
/* A second session with the same tokens; blocks are shared until one of them changes. */
NB_API nb_status nb_session_fork(nb_session **out, nb_session *s, nb_error *err);
/* nb_chat_encode for a conversation that goes on: the session keeps the last request's prompt and its ids, and of the next prompt only what differs is encoded.
 * The ids are those of nb_chat_encode. *kept (may be NULL): how many ids of the last prompt stand at the beginning of this one. The session's tokens are not touched. */
NB_API nb_status nb_session_chat_encode(nb_session *s, const char *request, size_t n, int32_t **ids, size_t *n_ids, char **prompt, size_t *kept, nb_error *err);
/* Ends the running call of s with NB_E_CANCELLED, soon; from any thread and from signal handlers. Between two calls it ends the next one. The flag is cleared when that call returns. */
NB_API void nb_cancel(nb_session *s);

typedef struct nb_eval_item {
    size_t size;
    nb_session *session; /* each session at most once per call */
    const int32_t *ids;
    int32_t n;           /* > 0 */
    int32_t logits;      /* the last `logits` rows get logits: 0 to 64, at most n */
    nb_status status;    /* out */
    char error[256];     /* out: one line when status is not NB_OK */
} nb_eval_item;
/* Appends every item's ids to its session and evaluates them together. An item that fails leaves its session as it was and the others' results valid.
 * Returns NB_OK when every item is; else the first status that is not. */
NB_API nb_status nb_eval(nb_eval_item *items, int32_t n, nb_error *err);
/* Logits of row i of the last nb_eval of s, fp32 [vocab]; NULL when there is none. Valid until the next call that names s. Ids at and beyond the tokenizer's size are not to be sampled. */
NB_API const float *nb_logits(const nb_session *s, int32_t i);

/* ---- sampling and generation ---- */

typedef struct nb_logit_bias { int32_t id; float bias; } nb_logit_bias;
typedef struct nb_sampling {
    size_t size;
    float temperature;       /* <= 0: greedy, lowest id on ties */
    int32_t top_k;           /* 0: off */
    float top_p, min_p;      /* top_p outside (0, 1): off; min_p outside (0, 1]: off */
    float repeat_penalty;    /* 1: off */
    int32_t repeat_last_n;   /* window of the three penalties: -1 the whole context, 0 none */
    float presence_penalty, frequency_penalty;
    const nb_logit_bias *bias; size_t n_bias; /* -100 bans an id; ids with +100 become the only ones allowed */
    uint64_t seed;           /* draws are keyed by (seed, absolute slot, purpose), never by their number */
} nb_sampling;
/* Defaults: temperature 0.8, top_p 1, repeat_penalty 1, repeat_last_n 64, seed 0; then what the model's generation config gives. */
NB_API void nb_sampling_default(nb_sampling *s, const nb_model *model);
/* Samples the token that follows the last evaluated one from logits row i (-1: the last row). NB_E_NUMERIC where a logit is NaN. */
NB_API nb_status nb_sample(nb_session *s, int32_t i, const nb_sampling *sampling, int32_t *id, nb_error *err);

typedef enum nb_finish { NB_FINISH_STOP = 0, NB_FINISH_LENGTH = 1, NB_FINISH_CANCELLED = 2, NB_FINISH_ERROR = 3 } nb_finish;
typedef struct nb_generate_options {
    size_t size;
    nb_sampling sampling;
    int32_t max_tokens;               /* <= 0: until the context is full */
    const char *const *stop; size_t n_stop; /* NUL-terminated stop strings; not printed */
    const int32_t *stop_ids; size_t n_stop_ids; /* beside the model's own end tokens */
    bool ignore_eos;
    bool keep_special;                /* print special tokens too */
    /* Text as it becomes showable, never half a character; id is the token that completed it, -1 at the flush. Return false to cancel. May be NULL. */
    bool (*on_text)(void *user, const char *text, size_t n, int32_t id);
    /* Prompt progress: done of total tokens. Return false to cancel. May be NULL. The model is locked meanwhile: call nothing of it but nb_cancel. */
    bool (*on_prompt)(void *user, int32_t done, int32_t total);
    void *user;
    /* Each sampled id before its text, an end token included. Return false to cancel. May be NULL. */
    bool (*on_token)(void *user, int32_t id);
} nb_generate_options;
typedef struct nb_generate_result {
    size_t size;
    nb_finish finish;
    int32_t prompt_tokens, cached_tokens, generated_tokens;
    uint64_t prompt_ns, decode_ns;
} nb_generate_result;
NB_API void nb_generate_options_default(nb_generate_options *o, const nb_model *model);
/* Makes the session hold `ids` (reusing the longest common prefix), then generates. */
NB_API nb_status nb_generate(nb_session *s, const int32_t *ids, size_t n, const nb_generate_options *o, nb_generate_result *result, nb_error *err);

#ifdef __cplusplus
}
#endif
#endif
