/* model/arch: what an architecture is. One table row per architecture (registry.c); the importer reads the same rows.
 * design.md 2.
 *
 * Canonical names are hub names without outer prefixes: "model.embed_tokens.weight",
 * "model.layers.3.self_attn.q_proj.weight", "model.norm.weight", "lm_head.weight". The importer maps every source name
 * to them; the loader knows only them.
 */
#ifndef NB_MODEL_ARCH_H
#define NB_MODEL_ARCH_H

#include "base/base.h"
#include "format/format.h"
#include "nn/rope.h" /* nb_rope_config */
#include "json/json.h"

typedef struct nb_arch nb_arch;

typedef enum nb_role {
    NB_ROLE_LINEAR, /* [n, k], rows16 */
    NB_ROLE_TABLE,  /* gathered by row, rows1; a tied embedding is LINEAR (it is the head) */
    NB_ROLE_VECTOR, /* norms, biases, small parameters: stored as they come (F32, F16, BF16) */
    NB_ROLE_BANK,   /* experts: name is the group, "model.layers.N.mlp.experts" */
} nb_role;

typedef struct nb_tensor_spec {
    nb_str name; /* canonical; for a bank the group name */
    nb_role role;
    uint8_t rank;
    int64_t dim[3]; /* expected logical shape; -1: any size; bank: unused */
    bool optional;
    int32_t experts; /* bank */
    struct {
        int64_t n, k;
    } proj[3]; /* bank: gate, up, down (n == 0: absent) */
} nb_tensor_spec;

#define NB_MAX_EOS 16
/* Config resolved by specs/architectures.md 5.1. Fields that an architecture lacks are 0. */
typedef struct nb_config {
    const nb_arch *arch;
    const nb_json *root, *text; /* config.json, and text_config or root */
    int32_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, max_context;
    int32_t experts, experts_used, moe_ffn;
    double rms_eps, query_scale; /* query_scale: 0 means head_dim^-0.5 */
    double attn_softcap, final_softcap;
    bool tie_embeddings, norm_topk_prob, norm_has_one; /* norm_has_one: gemma norms stored with the +1 in (GGUF) */
    bool tie_known;                                    /* tie_word_embeddings was given */
    int32_t window;                                    /* sliding window of the layers that slide; 0 none */
    uint8_t *layer_slides;                             /* [layers] 1: sliding */
    uint8_t *layer_sparse;                             /* [layers] 1: experts */
    uint8_t *layer_no_rope;                            /* [layers] or NULL */
    nb_rope_config rope, rope_local;                   /* local: sliding layers of gemma3 */
    char act[24];                                      /* "silu", "gelu_pytorch_tanh" */
    int32_t eos[NB_MAX_EOS];
    int32_t n_eos;
    int32_t bos;
} nb_config;

/* Reads config.json (and generation_config.json, may be NULL). NB_E_UNSUPPORTED "architecture 'X' is not supported",
 * NB_E_INVALID "config.json: field F is V ...". Everything lives in the arena; the documents must outlive it. */
nb_status nb_config_read(nb_config *c, const nb_json *root, const nb_json *generation, nb_arena *a, nb_error *err);
const nb_arch *nb_arch_find(nb_str name); /* exact architectures[0], or a model_type */
const char *nb_arch_name(const nb_arch *a);
size_t nb_arch_count(void);
const nb_arch *nb_arch_at(size_t i);
/* false: it can be imported, shown and exported, but its forward does not run yet */
bool nb_arch_runs(const nb_arch *a);

/* Every tensor that the model expects, in canonical names. A tensor of the source that no spec names is reported by the
 * importer. *n is 0 for an architecture whose tensors are not listed: roles then follow from names and shapes. Where
 * the config does not say whether the head is tied, the row's default counts: an importer that finds no lm_head.weight
 * sets tie_embeddings before it asks. */
nb_status nb_arch_tensors(const nb_config *c, nb_arena *a, nb_tensor_spec **out, size_t *n, nb_error *err);
/* Canonical name of a source tensor (prefixes of specs/architectures.md 5.1 step 7 removed); p NULL: dropped on purpose
 * (rotary inv_freq, masked bias, ...). Points into `name` or the arena. */
nb_str nb_arch_canonical(const nb_config *c, nb_str name, nb_arena *a);
/* The way back: a canonical name as the other program's files have it (mlx-lm's modules of this architecture, NULL:
 * none). */
nb_str nb_arch_respelled(const nb_arch *arch, nb_str name, nb_arena *a);

/* Policy (specs/create.md 5): the type for a tensor of canonical name and logical shape when `requested` was asked for;
 * false: keep at source precision. Bank projections are asked with names like
 * "model.layers.N.mlp.experts.gate_proj.weight" and shape [E, n, k]. reason (may be NULL) gets a short text such as
 * "norm", "router", "not aligned", "head: 8 bits". */
bool nb_policy(const nb_config *c, nb_str name, nb_role role, uint8_t rank, const int64_t *dim, nb_qtype requested,
               nb_qtype *out, const char **reason);
/* Why an architecture refuses a type before anything is converted, or NULL. float_source: the checkpoint is not
 * quantised yet. */
bool nb_arch_f32_only(
    const nb_arch *a); /* its weights are imported as F32 or not at all; the refusal is that of nb_policy_refusal */
const char *nb_policy_refusal(const nb_config *c, nb_qtype requested, bool float_source);

#endif
