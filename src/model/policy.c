/* Which type a tensor gets when one was asked for. specs/create.md 5: the architecture's rules from its table row, then
 * the default policy. */
#include "model/arch_row.h"

static uint8_t request_bit(nb_qtype q)
{
    switch (q.format) {
    case NB_NVFP4: return NB_REQ_NVFP4;
    case NB_MXFP4: return NB_REQ_MXFP4;
    case NB_MXFP8: return NB_REQ_MXFP8;
    case NB_INT4: return NB_REQ_INT4;
    case NB_INT2:
    case NB_INT3:
    case NB_INT5:
    case NB_INT6:
    case NB_INT8: return NB_REQ_INT_OTHER;
    default: return 0;
    }
}

static bool is_int(nb_qtype q) { return (request_bit(q) & NB_REQ_INT) != 0; }

/* The 8-bit type of the family: MXFP8 for the float ones, affine 8 bits with the same group otherwise. */
static nb_qtype eight_bits(nb_qtype q)
{
    if (!is_int(q)) return nb_qtype_default(NB_MXFP8);
    q.format = NB_INT8;
    return q;
}

/* The last dimension is a whole number of groups. */
static bool aligned(nb_qtype q, uint8_t rank, const int64_t *dim)
{
    return rank > 0 && q.group > 0 && dim[rank - 1] > 0 && dim[rank - 1] % q.group == 0;
}

typedef struct choice {
    bool quantise;
    nb_qtype type;
    const char *reason;
} choice;

static choice keep(const char *reason) { return (choice){.quantise = false, .reason = reason}; }
static choice take(nb_qtype q, const char *reason) { return (choice){.quantise = true, .type = q, .reason = reason}; }

bool nb_more_bits(int32_t layer, int32_t layers, int32_t cadence_end)
{
    if (layer < 0 || layers <= 0) return false;
    int32_t first = layers / 8, last = (int32_t)((int64_t)layers * 7 / 8);
    return layer < first || layer >= last || (layer < cadence_end && (layer - first) % 3 == 2);
}

/* Steps 2 to 5 and 7 of 5.1: what stays at source precision whatever was asked. NULL: nothing speaks against
 * quantising. */
static const char *kept_by_default(nb_str name, bool stacked, uint8_t rank, const int64_t *dim)
{
    if (!stacked) {
        if (nb_has_any(name, "audio_tower|embed_audio")) return "audio";
        if (nb_has_any(name, "embed")) return "embedding";
        if (nb_has_any(name, "norm|ln_|layernorm")) return "norm";
        if (nb_ends_any(name, ".bias")) return "bias";
        if (!nb_ends_any(name, ".weight")) return "not a weight";
    }
    if (nb_ends_any(name, ".A_log|.dt_bias|.D|.e_score_correction_bias|.sinks") || nb_has_any(name, "conv1d"))
        return "recurrent or routing parameter";
    if (rank != 2 && !(rank == 3 && stacked)) return "not a matrix";
    uint64_t elements = 1;
    for (uint8_t i = 0; i < rank; i++)
        if (dim[i] < 0 || !nb_mul_u64(elements, (uint64_t)dim[i], &elements)) return "size out of range";
    if (elements < 1024) return "fewer than 1024 elements";
    if (nb_ends_any(name, ".mlp.gate.weight|.mixer.gate.weight|.shared_expert_gate.weight|.router.proj.weight|.router."
                          "weight|.router.layer.weight"))
        return "router";
    if (nb_ends_any(name, ".gate.weight") && nb_has_any(name, ".block_sparse_moe.|.ffn.")) return "router";
    return NULL;
}

static choice default_policy(nb_str name, uint8_t rank, const int64_t *dim, nb_qtype q)
{
    bool stacked = nb_has_any(name, ".experts.|.mlp.switch_mlp.|.mlp.shared_experts.|.mixer.shared_experts.") &&
                   !nb_ends_any(name, ".bias|.scale|.qbias");
    const char *why = kept_by_default(name, stacked, rank, dim);
    if (why) return keep(why);
    nb_qtype eight = eight_bits(q);
    bool eight_fits = aligned(eight, rank, dim);
    if (nb_ends_any(name, "lm_head.weight"))
        return eight_fits ? take(eight, "head: 8 bits") : keep("head: not aligned");
    if (nb_has_any(name, "vision|visual")) return keep("vision");
    if (!aligned(q, rank, dim)) return keep("not aligned");
    uint8_t bit = request_bit(q);
    if ((bit == NB_REQ_INT4 || ((bit & NB_REQ_FP4) && !stacked)) && nb_has_any(name, ".v_proj|.k_proj|down_proj") &&
        eight_fits)
        return take(eight, "sensitive: 8 bits");
    return take(q, NULL);
}

static bool condition(const nb_config *c, uint8_t cond, nb_str name, uint8_t rank)
{
    int32_t layer = nb_name_layer(name), n = c->layers;
    switch (cond) {
    case NB_COND_NONE: return true;
    case NB_COND_MORE_BITS: return nb_more_bits(layer, n, (int32_t)((int64_t)n * 7 / 8));
    case NB_COND_MORE_BITS_LAGUNA: return nb_more_bits(layer, n, n / 2 - 4);
    case NB_COND_MORE_BITS_OR_NO_LAYER: return layer < 0 || nb_more_bits(layer, n, (int32_t)((int64_t)n * 7 / 8));
    case NB_COND_LAYER: return layer >= 0;
    case NB_COND_DENSE_LAYER: return layer >= 0 && layer < n && c->layer_sparse && !c->layer_sparse[layer];
    case NB_COND_EIGHT_EXPERTS: return c->experts == 8;
    case NB_COND_NOT_WEIGHT: return rank < 2 || !nb_ends_any(name, ".weight");
    case NB_COND_NOT_MODEL: return !nb_begins_any(name, "model.");
    default: return false;
    }
}

static bool matches(const nb_config *c, const nb_rule *r, nb_str name, uint8_t rank, uint8_t request)
{
    if (r->requests && !(r->requests & request)) return false;
    if (r->begins && !nb_begins_any(name, r->begins) && !nb_begins_any(nb_name_body(name), r->begins)) return false;
    if (r->has && !nb_has_any(name, r->has)) return false;
    if (r->ends && !nb_ends_any(name, r->ends)) return false;
    if (r->lacks && nb_has_any(name, r->lacks)) return false;
    return condition(c, r->cond, name, rank);
}

static choice apply(const nb_rule *r, nb_str name, uint8_t rank, const int64_t *dim, nb_qtype q)
{
    nb_qtype eight = eight_bits(q);
    switch (r->action) {
    case NB_DO_KEEP: return keep(r->reason);
    case NB_DO_DEFAULT: return default_policy(name, rank, dim, q);
    case NB_DO_DEFAULT_FP8: return default_policy(name, rank, dim, nb_qtype_default(NB_MXFP8));
    case NB_DO_EIGHT:
    case NB_DO_EIGHT_BASE:
        if (rank == 2 || rank == 3) {
            if (aligned(eight, rank, dim)) return take(eight, r->reason);
            if (r->action == NB_DO_EIGHT_BASE && aligned(q, rank, dim)) return take(q, "8 bits not aligned");
        }
        return keep("not aligned");
    default: return (rank == 2 || rank == 3) && aligned(q, rank, dim) ? take(q, r->reason) : keep("not aligned");
    }
}

static choice choose(const nb_config *c, nb_str name, nb_role role, uint8_t rank, const int64_t *dim, nb_qtype q)
{
    if (role == NB_ROLE_VECTOR) return keep("vector");
    uint8_t request = request_bit(q);
    if (!request) return take(q, NULL); /* float types: every matrix */
    for (const nb_rule *r = c->arch ? c->arch->policy : NULL; r && r->reason; r++)
        if (matches(c, r, name, rank, request)) return apply(r, name, rank, dim, q);
    if (role == NB_ROLE_LINEAR && nb_ends_any(name, "embed_tokens.weight")) {
        nb_qtype eight = eight_bits(q);
        return aligned(eight, rank, dim) ? take(eight, "tied head: 8 bits") : keep("head: not aligned");
    }
    return default_policy(name, rank, dim, q);
}

bool nb_policy(const nb_config *c, nb_str name, nb_role role, uint8_t rank, const int64_t *dim, nb_qtype requested,
               nb_qtype *out, const char **reason)
{
    choice ch = choose(c, name, role, rank, dim, requested);
    if (reason) *reason = ch.reason;
    if (ch.quantise) *out = ch.type;
    return ch.quantise;
}

const char *nb_policy_refusal(const nb_config *c, nb_qtype requested, bool float_source)
{
    const nb_arch *a = c->arch;
    return float_source && a && (a->refuse & request_bit(requested)) ? a->refuse_text : NULL;
}
