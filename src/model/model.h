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
#include "text/tokenizer.h"

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

typedef struct nb_network {
    nb_arena *arena; /* owns everything below but mappings and tokenizer */
    nb_config config;
    nb_graph graph;                  /* the recorded forward; kv shapes are those of BF16 mode */
    nb_graph graph_f32;              /* the same records with kv shapes of float32 mode */
    nb_tokenizer *tokenizer;         /* NULL: the model has none */
    int32_t end_ids[NB_MAX_END_IDS]; /* ids that end a generation: declared ones, and control tokens known to do so */
    int32_t n_end_ids;
    nb_str chat_template;            /* p NULL: none */
    const nb_json *tokenizer_config; /* root or NULL */
    nb_generation generation;
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
    bool weights_only; /* config and tensors, no graph: an architecture whose forward does not run yet can be shown and
                          exported */
} nb_network_options;

/* NB_E_NOT_FOUND, NB_E_INVALID (a file that fails a check, a missing tensor), NB_E_UNSUPPORTED "architecture 'X' is
 * importable, but its forward does not run yet". options may be NULL. */
nb_status nb_network_open(nb_network **out, nb_store *store, const nb_name *name, const nb_network_options *o,
                          nb_error *err);
void nb_network_close(nb_network *net); /* NULL is fine */
const nb_net_tensor *nb_network_find(const nb_network *net, nb_str name);
/* The bytes of a text or JSON layer ("config.json", "chat_template.jinja"); appended to out. NB_E_NOT_FOUND. */
nb_status nb_network_layer(nb_store *store, const nb_manifest *m, const char *name, nb_buf *out, nb_error *err);

#endif
