/* create/producer: the table of producers. Internal to src/create. One file under producers/ per family. */
#ifndef NB_CREATE_PRODUCER_H
#define NB_CREATE_PRODUCER_H

#include "create/plan.h"

/* Looks at a tensor as the weight of one format. *hit is set, and companions are marked used, when it is one; NB_OK
 * without *hit passes it on. */
typedef nb_status nb_producer_fn(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err);
typedef struct nb_producer {
    const char *name;
    const char *suffix; /* of the weight, or "" for any name */
    nb_producer_fn *match;
} nb_producer;

nb_status nb_producers_match(nb_job *j, nb_src_tensor *t, nb_error *err);
/* Formats that are recognised and refused by name (specs/create.md 3.16). */
nb_status nb_producers_refuse(nb_job *j, nb_error *err);

/* What quantization_config says, as far as anybody asks. Values are NULL or 0 where it is silent. */
const nb_json *nb_quant_field(const nb_job *j, const char *key);       /* first object that has it */
bool nb_same_word(nb_str a, const char *b);                            /* without case */
bool nb_quant_is(const nb_job *j, const char *key, const char *value); /* a string field, compared without case */

/* schemes.c. The group of config_groups that has the module `base` among its targets. */
typedef struct nb_scheme {
    nb_str name;
    const nb_json *group, *weights; /* weights NULL: they are not quantised */
} nb_scheme;
typedef struct nb_scheme_hit {
    const nb_scheme *scheme; /* NULL: none */
    bool by_name;            /* not by its class */
    bool ignored;            /* listed as not quantised */
} nb_scheme_hit;
nb_scheme_hit nb_scheme_of(const nb_job *j, nb_str base);
/* Of a tensor's name the module's: without the last part, where that is one of a module's parameters. */
nb_str nb_module_of(nb_str name);
/* A module's entry in a map by names, also where those are of another version of its publisher's code; NULL: none. */
const nb_json *nb_module_entry(const nb_json *map, nb_str base);
/* Its weights object, or NULL. */
const nb_json *nb_quant_group(const nb_job *j, nb_str base);
/* What `dynamic` (gptqmodel) or `extra_config` (AutoRound) says of this module, or NULL; *off: not quantised. */
const nb_json *nb_quant_override(const nb_job *j, nb_str base, bool *off);

/* A group size of the config that the shapes contradict: the tensors win, with a warning. */
void nb_group_contradicted(nb_job *j, const nb_src_tensor *t, const nb_json *said, int64_t actual);

/* Companion "base" + suffix, not claimed yet; NULL: none. */
nb_src_tensor *nb_src_companion(const nb_job *j, nb_str base, const char *suffix);
void nb_claim(nb_src_tensor *t);
/* [lead, rows, cols] of a tensor of rank 2 or 3 (lead 0 for rank 2). false: another rank. */
bool nb_view3(const nb_src_tensor *t, int64_t *lead, int64_t *rows, int64_t *cols);
/* The tensor is [.., rows, cols] with the same leading axis. */
bool nb_shape_is(const nb_src_tensor *t, int64_t lead, int64_t rows, int64_t cols);
/* Adds a weight of native type q: claims the weight and the companions that are set in w->m. */
nb_status nb_producer_add(nb_job *j, nb_weight_src *w, nb_error *err);
/* Canonical name for "base" with the suffix ".weight" (or as it is, where the source's weight has none). */
nb_status nb_producer_name(nb_job *j, nb_str base, bool suffixed, nb_str *name, nb_error *err);
/* pre_quant_scale: kept beside a matrix whose bits are moved. Experts and tables are refused, or with allow_requantize
 * decoded. */
nb_status nb_producer_pre_scale(nb_job *j, nb_weight_src *w, nb_str base, nb_error *err);
/* Gives up MXFP8 for the form that holds any scale. */
void nb_fp8_downgrade(nb_matrix *m);
nb_status nb_fp8_of_expert(nb_job *j, nb_matrix *m, int64_t expert, nb_error *err);

/* Rows of codes, scales and biases as they lie, then the domain. */
nb_status nb_direct_parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                          nb_scratch *sc, nb_error *err);

nb_producer_fn nb_match_mlx, nb_match_ct_nvfp4, nb_match_mxfp4, nb_match_ct_int, nb_match_modelopt_nvfp4,
    nb_match_mxfp8, nb_match_fp8, nb_match_gpt_oss, nb_match_deepseek, nb_match_gptq, nb_match_int8,
    nb_match_modelopt_int4, nb_match_fused_nvfp4;

void nb_weight_init(nb_weight_src *w, nb_src_tensor *t, nb_str name);
nb_qtype nb_float_qtype(nb_dtype t);
bool nb_is_plain_float(nb_dtype t); /* F32, F16, BF16, F64 */

#endif
