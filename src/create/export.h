/* create/export: one tensor of a checkpoint to be written. Internal to src/create. */
#ifndef NB_CREATE_EXPORT_H
#define NB_CREATE_EXPORT_H

#include "create/stored.h"

typedef enum nb_ex_kind {
    NB_EX_PLAIN, /* bytes as stored, or converted to `dtype`; with `add` added */
    NB_EX_FLOAT, /* decoded rows */
    NB_EX_CODES,
    NB_EX_SCALES,
    NB_EX_BIASES,       /* parts of count consecutive matrices */
    NB_EX_BYTES,        /* small, made at planning */
    NB_EX_ZEROS_PACKED, /* compressed-tensors: zero points along the rows */
    NB_EX_PAIRED,       /* ModelOpt int4: two rows per byte, signed */
    NB_EX_FUSED,        /* gpt-oss: gate and up interleaved and transposed, or down transposed (up NULL) */
} nb_ex_kind;

typedef struct nb_ex_tensor {
    nb_str name;
    nb_ex_kind kind;
    nb_dtype dtype;
    uint8_t rank;
    int64_t dim[8];
    const nb_stored *t, *up;
    int64_t count; /* matrices behind one another */
    float add;     /* to every value; 0: none */
    nb_str bytes;
} nb_ex_tensor;

typedef struct nb_export {
    const nb_export_options *o;
    nb_store *store;
    nb_arena *arena;
    nb_model_blobs blobs;
    nb_buf config_text;
    nb_json_doc config;
    nb_json *out_config; /* what config.json becomes */
    nb_json *hf_quant;   /* what hf_quant_config.json becomes; NULL: not written */
    bool norm_has_one, gpt_oss;
    const nb_arch *arch; /* NULL: unknown */
    bool mlx_written; /* norms and convolutions as mlx-lm writes them (nb_mlx_norm): its reader of Qwen3-Next converts
                         neither where experts are stacked already, that of Qwen3.5 both */
    nb_ex_tensor *v;
    size_t n, cap;
} nb_export_job;

nb_ex_tensor *nb_ex_push(nb_export_job *x, nb_str base, const char *suffix, nb_ex_kind kind, nb_dtype dt,
                         nb_error *err);
/* export_hub.c, export_formats.c: the tensors of a target, and its quantisation config in x->out_config. */
nb_status nb_ex_plan_hub(nb_export_job *x, nb_error *err);
nb_status nb_ex_plan_mlx(nb_export_job *x, nb_error *err);
nb_status nb_ex_plan_ct(nb_export_job *x, nb_error *err);
nb_status nb_ex_plan_modelopt(nb_export_job *x, nb_error *err);
nb_status nb_ex_plain(nb_export_job *x, const nb_stored *t, nb_error *err);
/* "G.e.gate_proj" of an expert, "X" of a weight "X.weight". */
nb_status nb_ex_base(nb_export_job *x, const nb_stored *t, nb_str *base, nb_error *err);
/* Whether every group's bias is -zero * scale with a whole zero from 0 to 2^bits - 1: as symmetric codes, or with zero
 * points. */
typedef struct nb_ex_affine {
    bool symmetric, integral;
} nb_ex_affine;
nb_status nb_ex_affine_kind(const nb_stored *t, nb_ex_affine *out, nb_error *err);

#endif
