/* create: a checkpoint (hub directory or GGUF file) becomes a stored, verified model; and a stored model becomes a
 * checkpoint again. specs/create.md, design.md 3, 8, 11.
 *
 * Stages: inventory (headers only, by pread) -> classify -> policy -> plan -> preflight -> write -> verify -> publish.
 * Classify and plan are pure functions of the inventory: everything that can be refused is refused before the first
 * blob is written.
 *
 * What a blob holds. Names are canonical (model/arch.h), companions are named after the weight:
 *   rows16.1, rows1.1   "X.weight" U8 [bytes], first in the data section, at a multiple of 4096. Metadata:
 * format_version "2", "X.weight.layout", ".quant_type",
 *                       ".group_size", ".scale_dtype" (affine only), ".shape" "[N,K]". Companions
 * "X.weight.global_scale" F32 [1] (NVFP4, FP8 per tensor), "X.weight.row_scale" F32 [N], "X.weight.block_scale" F32
 * [ceil(N/128), ceil(K/128)], "X.weight.pre_quant_scale" F32 [K] where y = W (x * p). bank                "G.weight" U8
 * [E, S], S a multiple of 4096, G = "model.layers.N.mlp.experts"; metadata "G.weight.layout" and per projection
 *                       "G.weight.<gate|up|down>.{quant_type,group_size,scale_dtype,shape,offset}"; companions
 * "G.<gate_proj|up_proj|down_proj>.global_scale" F32 [E], "G.<..>.bias" [E, N] in the source's dtype. standard
 * "X.weight" U32 [N, K*bits/32] (float formats: their dtype, [N, K]), "X.weight.scale", "X.weight.bias",
 * "X.weight.global_scale"; metadata quant_type, group_size; banks "G.gate_proj.weight" U32 [E, N, K*bits/32] with the
 * same companions, all in one blob named G. vectors             the tensor as it came, one blob each. Config files are
 * layers under their own names: config.json (GGUF: synthesised), tokenizer.json, gguf_tokenizer.json,
 * chat_template.jinja (NB_MEDIA_TEXT), generation_config.json ...
 */
#ifndef NB_CREATE_CREATE_H
#define NB_CREATE_CREATE_H

#include "base/base.h"
#include "format/format.h"
#include "store/store.h"
#include "json/json.h"

typedef enum nb_create_phase {
    NB_CREATE_READING,
    NB_CREATE_PLANNING,
    NB_CREATE_WRITING,
    NB_CREATE_CONFIGS,
    NB_CREATE_VERIFYING,
    NB_CREATE_PUBLISHING,
    NB_CREATE_DONE,
} nb_create_phase;
const char *nb_create_phase_name(
    nb_create_phase p); /* "reading", "planning", "quantizing", "configs", "verifying", "publishing", "done" */

/* item: tensor or file in hand. Bytes are output bytes; the totals are exact from the plan. Called from any thread, one
 * call at a time, at least every 250 ms while working. */
typedef void nb_create_progress(void *user, nb_create_phase phase, const char *item, uint64_t done_bytes,
                                uint64_t total_bytes, uint32_t done_tensors, uint32_t total_tensors);

/* What --quantize says. */
typedef enum nb_create_request { NB_REQUEST_NONE, NB_REQUEST_KEEP, NB_REQUEST_TYPE } nb_create_request;

typedef struct nb_create_options {
    size_t size;        /* sizeof(nb_create_options) */
    const char *name;   /* model name, NUL-terminated */
    const char *source; /* directory, .safetensors file inside one, or GGUF file. NULL with `draft` set: the draft is
                           added to the stored model `name`, in place of an earlier one */
    nb_create_request request;
    nb_qtype type;         /* with NB_REQUEST_TYPE */
    nb_layout layout;      /* NB_LAYOUT_STANDARD or NB_LAYOUT_ROWS16 (tables then get rows1.1) */
    bool allow_requantize; /* decode sources that are already quantised and quantise again */
    bool dry_run;          /* stop after the plan */
    bool force;            /* import an architecture that this version cannot run */
    bool permissive;       /* repair what can be repaired instead of refusing: see the warnings */
    bool deep;             /* before publishing, compare sampled rows with the source, rehash every blob, and look for
                              NaN and infinities in what was passed through (E_NONFINITE; a warning if permissive) */
    int threads;           /* 0: one per CPU, at most 16 */
    const char *draft; /* second directory with a draft model, or NULL; a "draft" or "draft_*" folder with a config.json
                          inside the source is found without it */
    /* Layers of the manifest in place of the checkpoint's own, NULL: as the checkpoint has it. Checked before anything
     * is written. */
    const char *extra_parameters; /* JSON object of sampling parameters: win over generation_config.json */
    const char *template_text;    /* chat template */
    const char *license;          /* text of a licence, instead of LICENSE* */
    const char *system;           /* system message that every conversation begins with */
    const char *messages;         /* JSON list of messages {"role", "content"} that stand behind it */
    /* Recorded in the model config, NULL: by architecture. min_version: the oldest program that may run it, "1.2.3" */
    const char *parser, *renderer, *min_version;
    nb_create_progress *progress; /* may be NULL */
    void *user;
    const volatile int *cancel; /* set to non-zero from any thread or a signal handler: NB_E_CANCELLED. May be NULL */
    nb_create_request draft_request; /* for the draft model: its own request */
    nb_qtype draft_type;
    /* The user's own choices, applied last and recorded in the manifest: comma-separated patterns of canonical tensor
     * names (as file name patterns: * ? [..]) that stay as they are, and PATTERN=TYPE. NULL: none. */
    const char *keep, *types;
    bool nonfinite_zero; /* of a tensor to be quantised: NaN becomes 0, an infinity the largest finite value of its
                            group, with its sign, and a warning counts them. Else such a tensor is refused */
    bool keep_kv_scales; /* scales of a quantised KV cache (".k_scale" ...) stay as tensors, though nothing reads them;
                            else they are left out */
    bool strict; /* source files are known by their SHA-256 instead of by date and inode, which costs a reading of
                    all of them: an import that was killed goes on from a copy too */
    bool search; /* quality: search the scales of groups (nb_quantize_search). NB_E_USAGE where no type that was
                    asked for has a search */
} nb_create_options;
/* Fills size and defaults: NB_REQUEST_NONE, rows16. */
void nb_create_defaults(nb_create_options *o);
/* "none", "keep" or a type name (nb_qtype_parse). NULL or "" is none. NB_E_USAGE. */
nb_status nb_create_parse_request(nb_create_options *o, const char *text, nb_error *err);

/* ---- the report: everything in one arena ---- */
typedef struct nb_create_type_count {
    char type[32];
    uint32_t tensors;
    uint64_t params, bytes;
} nb_create_type_count;
typedef struct nb_create_note {
    nb_str name, text; /* tensor (may be empty) and reason */
    size_t nth, more;  /* of warnings: which one with this text it is; how many after it are not listed */
} nb_create_note;
typedef struct nb_create_tensor { /* one line of the plan */
    nb_str name;                  /* canonical; "G.gate_proj.weight" for a bank's projection */
    char type[32];                /* stored type */
    nb_str from;                  /* type in the source: "BF16", "Q4_1", "modelopt-nvfp4" ... */
    const char *layout;           /* "rows16.1", "rows1.1", "standard", "plain" */
    uint8_t rank;
    int64_t dim[3];
    uint64_t bytes;
    const char *reason; /* why it was kept or promoted, or NULL */
    bool quantized;     /* its values were rounded by this import */
    bool lossless;      /* the stored values equal the source's */
} nb_create_tensor;

/* What running the model will take: an estimate from the plan and the config. */
typedef struct nb_create_memory {
    uint64_t weights; /* read for every token, or by the experts that it chooses */
    uint64_t tables;  /* gathered by row: may stay on the disk */
    uint64_t kv;      /* keys and values of `context` tokens; 0 where the config does not say */
    int32_t context;  /* what `run` opens by default */
} nb_create_memory;

typedef struct nb_create_report {
    nb_arena *arena;
    char name[340];
    nb_str architecture, source_kind, request; /* source_kind: "float", "fp8", "prequantized", "gguf", "stored" */
    nb_create_type_count types[32];
    size_t n_types;
    nb_create_tensor *tensors;
    size_t n_tensors;
    nb_create_note *kept;
    size_t n_kept; /* not quantised although a type was asked for */
    nb_create_note *dropped;
    size_t n_dropped;
    nb_create_note *unused;
    size_t n_unused;          /* in the source, and no part of the architecture */
    nb_create_note *warnings; /* of each text the first few; the last of them counts the others */
    size_t n_warnings;
    uint64_t source_bytes, bytes, new_bytes; /* planned output, and what of it was not in the store yet */
    uint64_t params;
    nb_create_memory memory;
    uint32_t n_quantized, n_blobs, n_reused, n_resumed;
    double seconds, sync_seconds; /* the whole; of it, waiting until the disk had everything */
    bool dry_run;
    bool search;     /* as asked for */
    char digest[65]; /* of the manifest; empty after a dry run */
} nb_create_report;

/* Imports. r is filled as far as the run came, also on failure (free it either way); on failure nothing that this run
 * made stays behind. */
nb_status nb_create(nb_store *s, const nb_create_options *o, nb_create_report *r, nb_error *err);
void nb_create_report_free(nb_create_report *r);
void nb_create_report_json(const nb_create_report *r, nb_buf *out); /* one object */
void nb_create_report_text(const nb_create_report *r, bool verbose,
                           nb_buf *out); /* lines for a terminal; verbose lists every tensor */

/* Re-checks a stored model: every blob header, companion shape, scale byte and multiplier (specs/create.md 6.7), and
 * the architecture's tensor list. deep: also rehashes. NB_E_INVALID names the first bad blob. */
nb_status nb_create_verify(nb_store *s, const nb_name *name, bool deep, nb_create_progress *progress, void *user,
                           nb_error *err);

/* ---- export ---- */
typedef enum nb_export_as {
    NB_EXPORT_HUB,
    NB_EXPORT_MLX,
    NB_EXPORT_COMPRESSED_TENSORS,
    NB_EXPORT_MODELOPT
} nb_export_as;
bool nb_export_parse(nb_export_as *out, const char *text);
typedef struct nb_export_options {
    size_t size;
    const char *name, *dir; /* dir must not exist, or be empty */
    nb_export_as as;
    nb_dtype dtype; /* hub: NB_DT_BF16 or NB_DT_F32 */
    nb_create_progress *progress;
    void *user;
    const volatile int *cancel;
} nb_export_options;
void nb_export_defaults(nb_export_options *o);
/* Writes a checkpoint directory: a temporary folder beside dir, renamed when whole. NB_E_UNSUPPORTED names the first
 * tensor whose format the target cannot hold. */
nb_status nb_export(nb_store *s, const nb_export_options *o, nb_error *err);

#endif
