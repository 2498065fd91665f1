/* create/plan: the types that the stages of an import hand to each other. Internal to src/create.
 *
 * source -> weights (classify) -> items (plan) -> blobs (write). All strings and tables live in the arena of the job;
 * the write stage allocates nothing from it.
 */
#ifndef NB_CREATE_PLAN_H
#define NB_CREATE_PLAN_H

#include "create/create.h"
#include "format/gguf.h"
#include "format/safetensors.h"
#include "model/arch.h"

#define NB_MAX_COLUMNS (1 << 24) /* of a matrix: bounds a tile of 16 rows */

/* ---- source ---- */
typedef struct nb_src_file {
    const char *path; /* as given to open; NUL-terminated */
    int fd;
    uint64_t size, ino, dev;
    int64_t mtime_ns, ctime_ns; /* nobody can set the second */
    char sha256[65]; /* of its bytes, where the import is strict; else "" */
} nb_src_file;

typedef struct nb_src_tensor {
    nb_str name;    /* in the source */
    nb_str canon;   /* canonical; p NULL: dropped on purpose */
    nb_dtype dtype; /* NB_DT_NONE: GGUF blocks of type `ggml` */
    uint32_t ggml;
    uint8_t rank;
    int64_t dim[8]; /* outermost first, as safetensors has it; a GGUF's order is reversed to that */
    uint32_t file;
    uint64_t off, len;
    const char *used; /* NULL: not consumed yet; else what took it ("weight", "companion", "dropped") */
} nb_src_tensor;

typedef struct nb_src_config { /* a file that becomes a config layer, or a synthesised one */
    nb_str name;
    const char *media_type;
    nb_str bytes;
} nb_src_config;

typedef struct nb_source {
    const char *path, *dir; /* dir: of the checkpoint; for a GGUF its own folder */
    bool gguf;
    nb_str gguf_arch;
    bool mlx_norms;   /* see nb_mlx_norm */
    bool permuted_qk; /* GGUF llama: q and k rows are in pair order */
    nb_src_file *files;
    size_t n_files;
    nb_src_tensor *t;
    size_t n;                 /* sorted by name */
    nb_map by_name, by_canon; /* name -> index; by_canon is filled by classify */
    nb_src_config *configs;
    size_t n_configs;
    nb_json_doc config, generation;
    const nb_json *quant[14];
    const char *quant_file[14];     /* where each stands */
    size_t n_quant;                 /* every quantisation object, in look-up order (specs/create.md 1.2) */
    nb_json_doc hf_quant, quantize; /* hf_quant_config.json; quantize_config.json or quant_config.json */
    const char *quantize_file;
    nb_gguf gguf_file;
    nb_config cfg;
    bool has_cfg; /* the architecture is known and its config was read */
    nb_tensor_spec *specs;
    size_t n_specs;
    uint64_t bytes; /* of all tensors */
} nb_source;

/* ---- weights ---- */
typedef struct nb_matrix nb_matrix;
typedef struct nb_scratch nb_scratch;

/* A producer's way to store a matrix. Readers are pure: same rows, same bytes. */
typedef struct nb_reader {
    const char *name; /* "float", "gguf", "mlx", "ct-nvfp4" ... */
    /* rows [r0, r0+rows) as parts of m->native, contiguous rows. NULL: no lossless form */
    nb_status (*parts)(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                       nb_scratch *sc, nb_error *err);
    /* the same as F32. NULL: decode the parts */
    nb_status (*floats)(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out, nb_scratch *sc,
                        nb_error *err);
} nb_reader;

/* A logical matrix [n, k] somewhere in the source: a tensor, one expert of a stacked one, some rows of a fused one. */
struct nb_matrix {
    const nb_reader *reader;
    int64_t n, k;
    bool has_native, float_source;
    nb_qtype native; /* holds it without loss */
    const nb_src_tensor *w, *scale, *bias, *global, *zero, *gidx;
    int64_t expert;                 /* index in the leading axis of the tensors, 0 where there is none */
    int64_t row0, step;             /* stored row of logical row r: row0 + r * step */
    int64_t stored_rows;            /* rows of one expert in the source */
    int64_t perm;                   /* head size where pair order must be undone; 0 */
    bool transposed;                /* stored [k, n] */
    uint8_t bits;                   /* integer producers */
    uint16_t src_group;             /* group of the source where it differs from native.group */
    uint16_t flags;                 /* NB_MX_* */
    int64_t block_rows, block_cols; /* FP8 blocks */
    float m;                        /* multiplier read from the source; 1 */
    const float *row_scale;         /* [n] or NULL */
    const float *block_scale;       /* [ceil(n/128), ceil(k/128)] or NULL */
    const float *pre_scale; /* pre_quant_scale [k] or NULL, y = W (x * p): a companion, or multiplied into the columns
                               of decoded weights */
    const int32_t *column_group; /* [k] group of each column where groups are not runs; or NULL */
    const float *fp8;            /* scales of FP8 as the source has them, [experts, scale_rows, scale_cols] */
    int64_t scale_rows, scale_cols;
    const char *why;                /* it has no lossless form, where that is not the format's fault; or NULL */
    const nb_matrix *keys, *values; /* [heads] of a split kv_b_proj (latent.c), or NULL */
};
enum {
    NB_MX_GPTQ_V2 = 1,
    NB_MX_SYMMETRIC = 2,
    NB_MX_CHANNEL = 4,
    NB_MX_SPARSE_PACK = 8,
    NB_MX_AWQ = 16,
    NB_MX_INVERT = 32,
    NB_MX_AMAX = 64,
    NB_MX_ZERO = 128
};

typedef struct nb_weight_src {
    nb_str name;      /* canonical output name, ending ".weight" where the source's does */
    nb_str src_name;  /* in messages */
    nb_matrix m;      /* of expert 0 */
    int64_t experts;  /* leading axis; 0: a plain matrix */
    bool quantized;   /* has companions or packed codes */
    const char *from; /* "BF16", "Q4_1", "modelopt-nvfp4" */
    bool planned;
    const char *note; /* for the report: what had to be done to it; or NULL */
} nb_weight_src;

/* ---- plan ---- */
typedef enum nb_item_kind { NB_ITEM_PLAIN, NB_ITEM_MATRIX, NB_ITEM_BANK } nb_item_kind;

typedef struct nb_item_proj {
    nb_str name;     /* tensor: "X.weight"; bank: "G.gate_proj.weight" */
    const char *key; /* "gate", "up", "down" */
    nb_qtype type;   /* stored */
    int64_t n, k;
    uint64_t offset, bytes;        /* in an expert's record; bytes of one expert */
    nb_matrix *m;                  /* [experts], or one */
    bool native;                   /* type is m->native: bits are moved, not rounded */
    const nb_src_tensor *out_bias; /* gpt-oss: bias [E, stored] */
    int64_t bias_row0, bias_step;
} nb_item_proj;

enum {
    NB_OUT_PACKED,
    NB_OUT_CODES,
    NB_OUT_GLOBAL,
    NB_OUT_ROW_SCALE,
    NB_OUT_BLOCK_SCALE,
    NB_OUT_SCALES,
    NB_OUT_BIASES,
    NB_OUT_BIAS,
    NB_OUT_PRE_SCALE,
    NB_OUT_PLAIN
};

typedef struct nb_item {
    nb_item_kind kind;
    const nb_source *source; /* its tensors are in there */
    nb_str name;             /* of the layer */
    nb_layout layout;
    nb_item_proj proj[3];
    int n_proj;
    int64_t experts; /* bank: E; else 1 */
    bool stacked;    /* a bank in standard layout: tensors keep the leading axis */
    uint64_t stride; /* bank record */
    /* plain */
    const nb_src_tensor *src;
    bool minus_one;     /* stored as F32, less one: a norm as mlx-lm writes it */
    int64_t plain_perm; /* as nb_matrix.perm, for a bias of a permuted projection */
    nb_dtype plain_dtype;
    /* blob */
    nb_st_out *outs;
    size_t n_outs;
    struct nb_item_out {
        uint8_t what, proj;
    } * out_src; /* beside outs: NB_OUT_*, projection */
    nb_st_kv *meta;
    size_t n_meta;
    uint64_t bytes, params; /* bytes: whole file */
    nb_str header;
    char recipe[65]; /* hash of all that decides the bytes */
} nb_item;

typedef struct nb_expert_entry {
    nb_str group, proj;
    int64_t index;
    uint32_t weight;
} nb_expert_entry;

/* The stored model that only gets a draft. */
typedef struct nb_base {
    nb_manifest manifest;
    nb_json_doc config; /* its model config JSON */
    nb_layer *keep;     /* its layers without those of an earlier draft; strings belong to the manifest */
    size_t n_keep;
} nb_base;

typedef struct nb_schemes nb_schemes; /* schemes.c */

/* What a draft is, for the manifest. */
typedef struct nb_draft_facts {
    const char *kind; /* "dflash", "dflash2", "assistant", "eagle", "model" */
    bool block;       /* a block draft: taps, block and mask must be given */
    bool has_mask;
    int64_t layers, block_size, mask; /* layers, block_size 0: not given */
    int64_t *taps;                    /* layers of the target */
    size_t n_taps;
} nb_draft_facts;

typedef struct nb_job {
    nb_store *store;
    const nb_create_options *o;
    nb_arena *arena; /* everything here; freed with the report's */
    nb_source src;
    nb_schemes *schemes; /* what the config says of single modules; NULL before nb_classify */
    nb_weight_src *weights;
    size_t n_weights, cap_weights;
    nb_map weight_by_name, spec_by_name, warned; /* warned: text of a warning -> the last one listed with it */
    nb_expert_entry *experts;
    size_t n_experts; /* per-expert weights, sorted */
    nb_item *items;
    size_t n_items, cap_items;
    nb_blob_ref *refs; /* [n_items], filled by write */
    bool *resumed;     /* [n_items] */
    uint64_t *mended;  /* [n_items] values that were not finite and were replaced, filled by write */
    uint64_t *zeroed;  /* [n_items] blocks below the domain of their scales that became zero, filled by write */
    nb_create_report *r;
    struct {
        nb_create_note *v;
        size_t n, cap;
    } kept, dropped, unused, warnings;
    struct {
        nb_create_tensor *v;
        size_t n, cap;
    } tensors;
    uint64_t total_bytes;
    struct nb_job *draft; /* the draft model's own plan, NULL: none */
    nb_draft_facts draft_facts;
    bool is_draft;      /* names get the prefix "draft." */
    nb_base *base;      /* NULL: a whole import */
    bool wide_scales;   /* scales of GGUF blocks are read while planning: F32 where their usual type is too small */
    bool scale_refused; /* the write met such a scale, and wide_scales is not set */
    uint64_t type_hits, keep_hits; /* patterns of --type and --keep that matched, by their place in the list */
    int mtp_layers;                /* of an inline head, 0: none */
    const char *journal_path;
    int journal_fd; /* -1: none */
} nb_job;

/* job.c */
/* Of equal texts the first few are listed; the rest are counted in `more` of the last listed: a wrong width in a config
 * concerns every expert of a model. */
bool nb_job_warn(nb_job *j, nb_str name, const char *fmt, ...) NB_PRINTF(3, 4);
bool nb_job_adopt_warnings(nb_job *j, const nb_job *draft); /* each marked "draft: " */
bool nb_job_drop(nb_job *j, nb_str name, const char *why);
bool nb_job_kept(nb_job *j, nb_str name, const char *why);
bool nb_job_unused(nb_job *j, nb_str name, const char *why);
nb_create_tensor *nb_job_tensor(nb_job *j);
bool nb_job_cancelled(const nb_job *j);
void nb_job_progress(const nb_job *j, nb_create_phase p, const char *item, uint64_t done, uint64_t total, uint32_t n,
                     uint32_t n_total);

/* source.c, source_gguf.c */
nb_status nb_source_open(nb_job *j, nb_source *s, const char *path, nb_error *err);
nb_status nb_source_open_gguf(nb_job *j, nb_source *s, const char *path, nb_error *err);
void nb_source_close(nb_source *s);
nb_status nb_source_index(nb_job *j, nb_source *s, nb_error *err);
nb_src_tensor *nb_source_find(const nb_source *s, nb_str name);
nb_src_tensor *nb_source_findf(const nb_source *s, const char *fmt, ...) NB_PRINTF(2, 3);
nb_status nb_source_unchanged(const nb_source *s, nb_error *err);
nb_status nb_source_add_file(nb_job *j, nb_source *s, const char *path, nb_error *err);
bool nb_source_add_config(nb_job *j, nb_source *s, nb_str name, const char *media, nb_str bytes);
/* Reads bytes [off, off+n) of a tensor, checked against its length. */
nb_status nb_source_read(const nb_source *s, const nb_src_tensor *t, uint64_t off, size_t n, void *dst, nb_error *err);
/* A whole small tensor as F32 in the arena; limit in elements. */
nb_status nb_source_floats(nb_job *j, const nb_source *s, const nb_src_tensor *t, uint64_t limit, float **out,
                           uint64_t *count, nb_error *err);
nb_status nb_gguf_config(nb_job *j, nb_source *s, nb_error *err);
nb_str nb_gguf_hub_name(const nb_source *s, nb_str name, nb_arena *a); /* p NULL: unknown */

/* reader.c and producers */
struct nb_scratch {
    nb_buf raw, aux, aux2, aux3, heads, joined;
    uint64_t zeroed; /* blocks that readers found below the domain and made zero */
};
void nb_scratch_free(nb_scratch *sc);
/* Element i of an array of F32, F16 or BF16. */
void nb_put_float(uint8_t *p, nb_dtype dt, int64_t i, float v);
extern const nb_reader nb_reader_float, nb_reader_ggml;
/* Gives the tensor m->w, all experts of it, F32 scales if the usual ones do not hold its scales. Reads it whole. */
nb_status nb_ggml_widen(const nb_job *j, nb_matrix *m, nb_error *err);
/* Rows of a companion: row_bytes each, leading axis `stored` rows per expert; honours row0, step, perm. */
nb_status nb_matrix_rows(const nb_source *s, const nb_matrix *m, const nb_src_tensor *t, size_t row_bytes, int64_t r0,
                         int64_t rows, uint8_t *dst, size_t stride, nb_scratch *sc, nb_error *err);
nb_status nb_matrix_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                          nb_scratch *sc, nb_error *err);
nb_status nb_matrix_floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out, nb_scratch *sc,
                           nb_error *err);

/* classify.c: fills j->weights and marks companions */
nb_status nb_classify(nb_job *j, nb_error *err);
/* schemes.c: reads the parts of the config that speak about single modules; checks what they claim against the tensors:
 * warnings, and an error where the tensors alone do not tell. */
nb_status nb_schemes_read(nb_job *j, nb_error *err);
nb_status nb_schemes_check(nb_job *j, nb_error *err);
void nb_schemes_free(nb_job *j);
/* latent.c: puts the two halves of mlx-lm's kv_b_proj together again. */
nb_status nb_latent_join(nb_job *j, nb_error *err);
/* claims.c: warnings where the config names other formats than the tensors have. */
void nb_claims_check(nb_job *j);
/* Canonical name of a source's tensor; p NULL: dropped on purpose. */
nb_str nb_canonical(nb_job *j, nb_str name);
bool nb_classify_add(nb_job *j, const nb_weight_src *w);
bool nb_is_kv_scale(nb_str name); /* of a quantised KV cache */
nb_weight_src *nb_weight_find(nb_job *j, nb_str name);
/* Logical [n, k] that the architecture gives a weight of this canonical name (experts included; a fused gate_up has
 * twice the rows). false: unknown. */
bool nb_known_shape(const nb_job *j, nb_str name, int64_t *n, int64_t *k);

/* plan.c, bank.c, layout.c */
nb_status nb_plan_all(nb_job *j, nb_error *err);
nb_item *nb_plan_item(nb_job *j);
/* Checks the user's PATTERN=TYPE list. */
nb_status nb_plan_overrides(const nb_job *j, nb_error *err);
/* After the plan: every pattern of the user's matched something. */
nb_status nb_plan_matched(const nb_job *j, nb_error *err);
/* A search for better scales needs a type that has one. */
nb_status nb_plan_quality(const nb_job *j, nb_error *err);
/* Chooses the stored type of a matrix or projection; *reason may be set. */
nb_qtype nb_plan_type(nb_job *j, nb_str name, nb_role role, uint8_t rank, const int64_t *dim, const nb_matrix *m,
                      const char **reason);
nb_status nb_plan_matrix(nb_job *j, nb_weight_src *w, nb_role role, nb_str name, nb_error *err);
nb_status nb_plan_plain(nb_job *j, nb_src_tensor *t, nb_str name, nb_error *err);
/* Qwen3.5 and Qwen3-Next: the norms that hub files store less one, and mlx-lm as they multiply. Which of the two a
 * checkpoint is the kernels of its convolutions say: [C, 1, K], and [C, K, 1] where mlx-lm wrote it. */
bool nb_mlx_norm(nb_str name);
nb_status nb_plan_check_matrix(const nb_weight_src *w, nb_error *err);
bool nb_plan_bytes(nb_layout l, nb_qtype q, int64_t n, int64_t k, uint64_t *bytes);
nb_status nb_report_tensor(nb_job *j, const nb_item *it, const nb_item_proj *p, const nb_weight_src *w,
                           const char *reason, nb_error *err);
nb_status nb_bank_scan(nb_job *j, nb_error *err);
nb_status nb_plan_stacked(nb_job *j, nb_weight_src *w, nb_error *err);
/* Fills what differs per expert of a stacked source: multiplier, scales apart. */
nb_status nb_matrix_of_expert(nb_job *j, nb_matrix *m, int64_t expert, nb_error *err);
/* Banks: every group that a spec names, then every group that the names show. */
nb_status nb_plan_bank(nb_job *j, const nb_tensor_spec *spec, nb_str group, nb_error *err);
nb_status nb_plan_loose_banks(nb_job *j, nb_error *err);
nb_status nb_item_layout(nb_job *j, nb_item *it, nb_error *err); /* outs, metadata, header, sizes */

/* draft.c: a draft model beside the target, and the inline head inside it. Items and config files of the draft are
 * appended to the target's. */
nb_status nb_draft_plan(nb_job *j, nb_error *err);
void nb_draft_close(nb_job *j);
/* draft_fit.c, draft_tokens.c: the draft d, or the inline head, fits the target; fills j->draft_facts. */
nb_status nb_draft_fit(nb_job *j, nb_job *d, nb_error *err);
nb_status nb_inline_fit(nb_job *j, nb_error *err);
nb_status nb_draft_tokenizer(const nb_job *j, const nb_job *d, nb_error *err);
/* attach.c: reads the stored model `name` in place of a source; checks that it is still the same; writes the members of
 * its model config but the draft; frees. */
nb_status nb_base_open(nb_job *j, const nb_name *name, nb_error *err);
nb_status nb_base_unchanged(nb_job *j, const nb_name *name, nb_error *err);
void nb_base_config(const nb_job *j, nb_buf *b);
void nb_base_close(nb_job *j);
/* create.c: inventory, classify and plan of one source */
nb_status nb_job_plan(nb_job *j, nb_error *err);
void nb_job_close(nb_job *j);

/* write.c */
nb_status nb_write_items(nb_job *j, nb_error *err);
/* How many workers write so many blobs. */
int nb_write_threads(const nb_job *j, size_t items);

/* journal.c: open marks what an earlier run finished; close removes the file */
nb_status nb_journal_open(nb_job *j, nb_error *err);
void nb_journal_close(nb_job *j);

/* configs.c: what the user gave as text is sound: parameters, template, version. */
nb_status nb_check_users(const nb_job *j, nb_error *err);
/* Config layers and the user's, then the model config. layers has room for n_configs + 4 more; refs of new blobs follow
 * those of the items. */
nb_status nb_write_configs(nb_job *j, nb_layer *layers, size_t *n, nb_layer *config, nb_blob_ref *refs, size_t *n_refs,
                           nb_error *err);

/* report.c: points the report at the notes of the job */
void nb_report_fill(nb_job *j);

/* deep.c: stored values against the source's, on sampled rows: of every matrix with --deep, else of those that were
 * decoded because no format holds them. Adds warnings. */
nb_status nb_deep_check(nb_job *j, const nb_layer *layers, nb_error *err);

/* A stored blob that has the header of this item has its values too, as far as samples tell. */
bool nb_deep_same(nb_job *j, const nb_item *it, const nb_layer *l);

/* room.c: the disk has room for what is still to be written. */
nb_status nb_room_check(nb_job *j, nb_error *err);

/* verify.c */
nb_status nb_verify_blob(nb_store *s, const nb_layer *l, bool deep, nb_error *err);

#endif
