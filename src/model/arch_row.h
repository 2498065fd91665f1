/* model/arch_row: the columns of an architecture's table row. Internal to src/model; one file arch_<name>.c per
 * architecture fills one row.
 *
 * Lists of words are written "a|b|c". A row is data: what a config may say, which tensors there are with their shapes,
 * which types they get, and the function that lists its blocks. To add an architecture: write arch_<name>.c and name
 * its row in arch_rows.h.
 */
#ifndef NB_MODEL_ARCH_ROW_H
#define NB_MODEL_ARCH_ROW_H

#include "model/arch.h"

/* ---- config ---- */

/* What a field is when config.json leaves it out (null counts as absent). */
typedef struct nb_default {
    const char *key; /* NULL ends the list */
    double value;
} nb_default;

/* Which layers slide, where "layer_types" does not say. */
typedef enum nb_window_rule {
    NB_WINDOW_NONE,    /* a sliding_window in the file means nothing */
    NB_WINDOW_ALL,     /* every layer, if sliding_window is given (mistral) */
    NB_WINDOW_QWEN,    /* use_sliding_window, then layers from max_window_layers on */
    NB_WINDOW_PATTERN, /* all but every sliding_window_pattern-th */
    NB_WINDOW_TYPES,   /* only what layer_types says */
} nb_window_rule;

/* ---- tensors ---- */

typedef enum nb_when {
    NB_ALWAYS,
    NB_OPTIONAL,  /* present or not: decided by the file; needed where the config says true for `field` */
    NB_IF_SPARSE, /* layers with experts */
    NB_IF_DENSE,  /* layers without */
    NB_IF_UNTIED, /* lm_head; absent means tied after all */
    NB_IF_SLIDING,
    NB_IF_FULL,      /* layer_types says full attention, or does not say */
    NB_IF_LINEAR,    /* layer_types says linear_attention */
    NB_IF_ATTENTION, /* any layer that is not linear */
    NB_IF_FIELD,     /* the number `field` of the config is not 0 */
    NB_IF_MEMBER, /* the layer, counted from 1, is named in the list `field` of the config; "list:count" where the name
                     counts too */
} nb_when;

/* One tensor, or one per layer where the name holds a '#'. A second '#' inside a name counts to `field`.
 * shape: dimensions separated by commas; each a sum of products of words: fields of nb_config (hidden, heads, kv_heads,
 * head_dim, ffn, vocab, layers, experts, moe_ffn), layer_heads, layer_kv_heads, layer_head_dim and layer_ffn (widths
 * that vary), any integer field of config.json, decimal numbers; '?' is any size. A bank has "gate n, gate k; up n, up
 * k; down n, down k". */
typedef struct nb_pattern {
    const char *name; /* NULL ends the list */
    uint8_t role, when;
    const char *shape;
    const char *field;
} nb_pattern;

/* ---- policy (specs/create.md 5) ---- */

typedef enum nb_action {
    NB_DO_KEEP,        /* source precision */
    NB_DO_BASE,        /* the requested type if aligned, else keep */
    NB_DO_EIGHT,       /* 8 bits of the family if aligned, else keep */
    NB_DO_EIGHT_BASE,  /* 8 bits of the family, else the requested type, else keep */
    NB_DO_DEFAULT,     /* the default policy decides */
    NB_DO_DEFAULT_FP8, /* the default policy with mxfp8 instead of what was requested */
} nb_action;
enum { /* requested types that a rule is about */
       NB_REQ_ANY = 0,
       NB_REQ_NVFP4 = 1,
       NB_REQ_MXFP4 = 2,
       NB_REQ_MXFP8 = 4,
       NB_REQ_INT4 = 8,
       NB_REQ_INT_OTHER = 16,
       NB_REQ_FP4 = NB_REQ_NVFP4 | NB_REQ_MXFP4,
       NB_REQ_4BIT = NB_REQ_FP4 | NB_REQ_INT4,
       NB_REQ_INT = NB_REQ_INT4 | NB_REQ_INT_OTHER,
};
typedef enum nb_cond {
    NB_COND_NONE,
    NB_COND_MORE_BITS,        /* more_bits(layer, layers) */
    NB_COND_MORE_BITS_LAGUNA, /* its cadence ends at N/2 - 4 */
    NB_COND_MORE_BITS_OR_NO_LAYER,
    NB_COND_LAYER,       /* the name has a layer number */
    NB_COND_DENSE_LAYER, /* a layer without experts */
    NB_COND_EIGHT_EXPERTS,
    NB_COND_NOT_WEIGHT, /* does not end .weight, or rank < 2 */
    NB_COND_NOT_MODEL,  /* name does not begin with "model." */
} nb_cond;
/* Evaluated top to bottom, first match wins, then the default policy. Every column that is not NULL must match.
 * `begins` is compared with the name as it is and with its outer prefix removed. */
typedef struct nb_rule {
    uint8_t requests;
    const char *begins, *has, *ends, *lacks;
    uint8_t cond, action;
    const char *reason; /* NULL ends the list */
} nb_rule;

/* A part of a tensor's name as another program writes it, and as the publisher does. */
typedef struct nb_spelling {
    const char *part, *canonical; /* part NULL ends the list */
} nb_spelling;

/* ---- the row ---- */

struct nb_builder;
struct nb_arch {
    const char *name;     /* "qwen3" */
    const char *ids;      /* architectures[0] values and model types */
    const char *required; /* fields that config.json must have */
    const nb_default *defaults;
    uint8_t window;                                    /* nb_window_rule */
    const char *act;                                   /* activation where the file names none */
    nb_status (*resolve)(nb_config *c, nb_error *err); /* further derived fields; NULL: none */
    const nb_pattern *common;     /* tensors shared with other rows; one that `tensors` names too is taken from there */
    const nb_pattern *tensors;    /* both NULL: not listed; the importer takes roles from names and shapes */
    const nb_rule *policy;        /* NULL: the default alone */
    const nb_spelling *spellings; /* of parts of names in the files of other programs; NULL: none */
    uint8_t refuse;               /* NB_REQ_ mask: types that a float source is not converted to, */
    const char *refuse_text;      /* and why */
    bool f32_only;                /* a source of any other type is refused with that text */
    bool final_softcap;           /* final_logit_softcapping means something to the publisher's code; so does */
    bool attention_softcap;       /* attn_logit_softcapping. Elsewhere the fields are ignored, as it ignores them */
    bool norm_plus_one;           /* norms are stored as an offset from 1, unless the config says norm_has_one */
    nb_status (*forward)(struct nb_builder *b); /* lists the blocks (model/build.h); NULL: importable only */
};

/* Tensors that several rows share: embedding, pre-norm layers with GQA and a gated MLP, final norm, head. */
extern const nb_pattern nb_tensors_llama[];
extern const nb_rule nb_policy_qwen3_5[];

/* ---- helpers of src/model ---- */
/* `word` is one of the words of "a|b|c". */
bool nb_word_in(const char *words, nb_str word);
/* s contains / ends with / begins with one of the words. */
bool nb_has_any(nb_str s, const char *words);
bool nb_ends_any(nb_str s, const char *words);
bool nb_begins_any(nb_str s, const char *words);
/* Number in the first ".layers.<n>." of a name (or "layers.<n>." at its begin), else -1. */
int32_t nb_name_layer(nb_str name);
/* The name without "model.language_model.", "language_model.model.", "language_model." or "model.". */
nb_str nb_name_body(nb_str name);
/* Number of one of the fields "a|b": text part, then top level, then the row's default; false where none has a number.
 */
bool nb_config_number(const nb_config *c, const char *keys, double *out);
const nb_json *nb_config_field(const nb_config *c,
                               const char *keys); /* first of "a|b" that is present, text part first */
/* layer_types[layer] or "" */
nb_str nb_config_layer_type(const nb_config *c, int32_t layer);
bool nb_more_bits(int32_t layer, int32_t layers, int32_t cadence_end);

#endif
