/* model: a stored model, ready to run: config, mapped weights, recorded forward, tokenizer, chat template, generation
 * defaults.
 *
 * The public nb_model (include/nibble.h) is made by the rooms below this one from an nb_network and a backend's plan.
 * An nb_network is immutable once open and may be shared by threads. Weights are used where the blobs are mapped;
 * nothing is repacked or copied, except small vectors, which become F32 in the network's arena.
 */
#ifndef NB_MODEL_MODEL_H
#define NB_MODEL_MODEL_H

#include "base/base.h"
#include "base/file.h"
#include "model/arch.h"
#include "store/store.h"
#include "tensor/graph.h"
#include "text/chat.h"

/* Sampling defaults of generation_config.json (and the manifest's params layer); `given` says which were there. */
enum {
    NB_GEN_DO_SAMPLE = 1,
    NB_GEN_TEMPERATURE = 2,
    NB_GEN_TOP_P = 4,
    NB_GEN_TOP_K = 8,
    NB_GEN_MIN_P = 16,
    NB_GEN_REPEAT = 32,
    NB_GEN_MAX_NEW = 64
};
typedef struct nb_generation {
    uint32_t given;
    bool do_sample;
    double temperature, top_p, min_p, repeat_penalty;
    int32_t top_k, max_new_tokens;
    const int32_t *suppress; /* suppress_tokens: never sampled */
    int32_t n_suppress;
} nb_generation;

/* One logical tensor, as show, dump, bench and export want it. */
typedef struct nb_net_tensor {
    nb_str name; /* canonical; for the projections of a bank "<group>.<gate|up|down>_proj.weight" */
    nb_role role;
    nb_layout layout; /* as it is used; STANDARD for vectors */
    nb_qtype type;    /* for vectors: the stored float format */
    uint8_t rank;
    int64_t dim[3];          /* logical; bank projections: [E, n, k] */
    uint64_t bytes;          /* stored, companions included */
    const char *blob;        /* 64 hex digits */
    const nb_weight *weight; /* linear and table */
    const nb_bank *bank;     /* bank, with the projection's number */
    int32_t proj;
    const float *vector; /* vector: F32 values as used (gemma norms with their +1), in the arena */
    const uint8_t *raw;  /* vectors and others that are not packed: the stored bytes, of raw_dtype, mapped */
    nb_dtype raw_dtype;
    bool norm_offset; /* vector: hub files store it less one (gemma norms) */
    bool repacked;    /* was stored in another layout */
} nb_net_tensor;

enum { NB_MAX_END_IDS = 64 };

/* A file that the text side is made of, under its name in the checkpoint ("tokenizer.json",
 * "additional_chat_templates/rag.jinja"); NB_USER_TEMPLATE: the template that the user put in place of all others. */
typedef struct nb_text_file {
    nb_str name, bytes;
} nb_text_file;
#define NB_USER_TEMPLATE "template"

typedef struct nb_named_template {
    nb_str name, text; /* a template without a name is "default" */
    nb_str file;       /* where it stands */
} nb_named_template;

typedef struct nb_network {
    nb_arena *arena; /* owns everything below but mappings and tokenizer */
    nb_config config;
    nb_graph graph;                  /* the recorded forward; kv shapes are those of BF16 mode */
    nb_graph graph_f32;              /* the same records with kv shapes of float32 mode */
    nb_tokenizer *tokenizer;         /* NULL: the model has none */
    int32_t end_ids[NB_MAX_END_IDS]; /* ids that end a generation: declared ones, and control tokens known to do so */
    int32_t n_end_ids;
    nb_error tokenizer_error;        /* text_optional: why there is none although the model has its files */
    nb_error chat_error;             /* the same of the templates */
    nb_str chat_template;            /* that of a chat without tools; p NULL: none */
    nb_named_template *templates;    /* all of them */
    size_t n_templates;
    const nb_chat_token *special_tokens; /* as templates see them */
    size_t n_special_tokens;
    nb_generation generation;
    nb_str system, messages; /* given at import: a system message, and a JSON list; p NULL: none */
    nb_net_tensor *tensors;
    size_t n_tensors;      /* sorted by name */
    uint64_t parameters;   /* logical elements of all tensors */
    uint64_t mapped_bytes; /* sizes of the mapped blobs */
    uint64_t
        token_bytes; /* weight bytes that one token's forward and head read (chosen experts once, one row of a table) */
    uint64_t load_ns;
    const nb_json *model_config; /* the manifest's model config */
    char digest[65];             /* of the manifest */
    struct nb_net_blobs *blobs;  /* mappings; private */
} nb_network;

typedef struct nb_network_options {
    bool resident;     /* copy the weights into anonymous memory with huge pages */
    bool no_tokenizer; /* do not load one (bench, dump) */
    bool text_optional; /* a tokenizer, or templates, that cannot be used are no error: who needs them gets it */
    bool weights_only; /* config and tensors, no graph: an architecture whose forward does not run yet can be shown and
                          exported */
} nb_network_options;

/* NB_E_NOT_FOUND, NB_E_INVALID (a file that fails a check, a missing tensor), NB_E_UNSUPPORTED "architecture 'X' is
 * importable, but its forward does not run yet". options may be NULL. */
nb_status nb_network_open(nb_network **out, nb_store *store, const nb_name *name, const nb_network_options *o,
                          nb_error *err);
void nb_network_close(nb_network *net); /* NULL is fine */
const nb_net_tensor *nb_network_find(const nb_network *net, nb_str name);
/* A network with nothing but its text side: tokenizer, templates, special tokens, as with text_optional. The files may be
 * freed afterwards. */
nb_status nb_network_from_files(nb_network **out, const nb_text_file *files, size_t n, nb_error *err);
/* The same of a folder, of a file in one (tokenizer.json, tokenizer.model ...; templates and settings beside it count), or
 * of a GGUF file. */
nb_status nb_network_from_path(nb_network **out, const char *path, nb_error *err);
/* Tokenizer and templates of GGUF metadata as files; names and bytes lie in the arena and the metadata. */
nb_status nb_text_gguf(const nb_json *meta, nb_arena *a, nb_text_file **files, size_t *n, nb_error *err);
/* "additional_chat_templates/NAME.jinja" of a folder, sorted; NULL: memory. */
#define NB_TEXT_ADDITIONAL "additional_chat_templates/"
char **nb_text_additional(const char *dir, nb_arena *a, size_t *n, nb_error *err);
/* NB_OK where there is a tokenizer; else why there is none. */
nb_status nb_network_need_tokenizer(const nb_network *net, nb_error *err);
/* The tokenizer that the files make; *out NULL: none of them holds one. Errors name the file. */
nb_status nb_text_tokenizer(nb_tokenizer **out, const nb_text_file *files, size_t n, nb_error *err);
/* Everything in the files that cannot be used, or not as its publisher meant it; `say` gets one line for each, which
 * names the file. */
nb_status nb_text_check(const nb_text_file *files, size_t n, void (*say)(void *user, const char *line), void *user,
                        nb_error *err);
/* The template of a request as transformers chooses it: by its name (p NULL: none was given); "tool_use", if there is one
 * and the request has tools; "default". NB_E_NOT_FOUND: no template, or none of that name; NB_E_USAGE: no default. */
nb_status nb_network_template(const nb_network *net, nb_str name, bool tools, size_t *index, nb_error *err);
/* The bytes of a text or JSON layer ("config.json", "chat_template.jinja"); appended to out. NB_E_NOT_FOUND. */
nb_status nb_network_layer(nb_store *store, const nb_manifest *m, const char *name, nb_buf *out, nb_error *err);

#endif
