/* create/producers: the order in which formats are tried, and what is refused by name. specs/create.md 3.3, 3.16. */
#include "create/producer.h"

#include <strings.h>

static const nb_producer table[] = {
    {"mlx", ".weight", nb_match_mlx},
    {"ct-nvfp4", ".weight_packed", nb_match_ct_nvfp4},
    {"mxfp4", ".weight_packed", nb_match_mxfp4},
    {"mxfp4", ".weight", nb_match_mxfp4},
    {"ct-int", ".weight_packed", nb_match_ct_int},
    {"modelopt-int4", ".weight", nb_match_modelopt_int4},
    {"modelopt-nvfp4", ".weight", nb_match_modelopt_nvfp4},
    {"modelopt-nvfp4", "", nb_match_fused_nvfp4},
    {"mxfp8", ".weight", nb_match_mxfp8},
    {"fp8", ".weight", nb_match_fp8},
    {"fp8", "_proj", nb_match_fp8},
    {"gpt-oss-mxfp4", "_blocks", nb_match_gpt_oss},
    {"deepseek-mxfp4", ".weight", nb_match_deepseek},
    {"gptq", ".qweight", nb_match_gptq},
    {"int8", ".weight", nb_match_int8},
};

nb_status nb_producers_match(nb_job *j, nb_src_tensor *t, nb_error *err)
{
    bool hit = false;
    for (size_t i = 0; i < NB_COUNT(table) && !hit; i++) {
        size_t n = strlen(table[i].suffix);
        if (!nb_str_ends(t->name, table[i].suffix) || t->name.n <= n) continue;
        /* "_proj" belongs to the name, the other suffixes do not */
        nb_str base = {t->name.p, t->name.n - (table[i].suffix[0] == '_' && table[i].suffix[1] == 'p' ? 0 : n)};
        nb_status st = table[i].match(j, t, base, &hit, err);
        if (st != NB_OK) return st;
    }
    return NB_OK;
}

/* ---- refused by name ---- */

typedef struct refused {
    const char *value, *name;
} refused;
static const refused methods[] = {
    {"bitsandbytes", "bitsandbytes"},
    {"hqq", "HQQ"},
    {"aqlm", "AQLM"},
    {"quip", "QuIP#"},
    {"quip_sharp", "QuIP#"},
    {"exl2", "EXL2"},
    {"exl3", "EXL3"},
    {"spqr", "SpQR"},
    {"vptq", "VPTQ"},
    {"bitnet", "BitNet"},
    {"torchao", "torchao"},
    {"quanto", "quanto"},
    {"eetq", "EETQ"},
    {"higgs", "HIGGS"},
    {"fp_quant", "fp_quant"},
    {"sinq", "SINQ"},
    {"quark", "Quark"},
    {"metal", "metal"},
    {"gemma", "gemma"},
    {"fouroversix", "fouroversix"},
    {"qqq", "QQQ"},
    {"paroquant", "ParoQuant"},
    {"marlin", "Marlin"},
    {"gguf", "GGUF in safetensors"},
};
static const refused formats[] = {
    {"mxfp6-pack-quantized", "MXFP6"},   {"marlin-24", "Marlin 2:4 sparse"}, {"marlin", "Marlin"},
    {"sparse-24-bitmask", "2:4 sparse"}, {"sparse-bitmask", "sparse"},
};
/* Packings of GPTQ and AWQ weights that have the usual names and other bits in them. */
static const refused checkpoints[] = {
    {"gptq_p", "GPTQ with planar packing"},
    {"marlin", "Marlin"},
    {"bitblas", "BitBLAS"},
    {"qqq", "QQQ"},
    {"exl3", "EXL3"},
    {"vptq", "VPTQ"},
    {"gemv", "AWQ GEMV"},
    {"gemv_fast", "AWQ GEMV"},
    {"llm-awq", "LLM-AWQ"},
    {"gguf", "GGUF in safetensors"},
};
static const refused endings[] = {
    {".absmax", "bitsandbytes"},
    {".quant_map", "bitsandbytes"},
    {".nested_absmax", "bitsandbytes"},
    {".quant_state.bitsandbytes__nf4", "bitsandbytes NF4"},
    {".quant_state.bitsandbytes__fp4", "bitsandbytes FP4"},
    {".SCB", "bitsandbytes INT8"},
    {".trellis", "EXL3"},
    {".suh", "EXL3"},
    {".svh", "EXL3"},
    {".q_scale_max", "EXL2"},
    {".Qidxs", "QuIP#"},
    {".codebooks", "AQLM"},
    {".W_q", "HQQ"},
    {".qbiases", "metal"},
    {".B_24", "Marlin 2:4 sparse"},
    {"svdquant_lora_a", "SVDQuant"}, /* low-rank factors beside the weight, of the activations before it */
    {"svdquant_lora_b", "SVDQuant"},
};

static nb_status refuse(const char *format, nb_str tensor, nb_error *err)
{
    return nb_fail(err, NB_E_UNSUPPORTED,
                   "%s (first seen at %.*s) is not supported; import the original checkpoint (E_FORMAT_UNSUPPORTED)",
                   format, NB_FMT_STR(tensor));
}

/* The first tensor that no float checkpoint has. */
static const nb_src_tensor *first_packed(const nb_job *j)
{
    for (size_t i = 0; i < j->src.n; i++) {
        const nb_src_tensor *t = &j->src.t[i];
        bool plain = t->dtype == NB_DT_F32 || t->dtype == NB_DT_F16 || t->dtype == NB_DT_BF16 ||
                     t->dtype == NB_DT_F64 || t->dtype == NB_DT_I64 || t->dtype == NB_DT_BOOL;
        if (!plain) return t;
    }
    return NULL;
}

/* A group of a mixture may have a format of its own. */
static bool refused_format(const nb_json *group, size_t *k)
{
    nb_str format;
    if (!nb_json_str(nb_json_get(group, "format"), &format)) return false;
    for (*k = 0; *k < NB_COUNT(formats); ++*k)
        if (nb_same_word(format, formats[*k].value)) return true;
    return false;
}

static nb_status refuse_groups(nb_job *j, nb_error *err)
{
    const nb_json *groups = nb_quant_field(j, "config_groups");
    size_t k;
    bool any = false;
    for (uint32_t i = 0; nb_json_is(groups, NB_JSON_OBJECT) && i < groups->count && !any; i++)
        any = refused_format(&groups->items[i], &k);
    if (!any) return NB_OK;
    for (size_t i = 0; i < j->src.n; i++) {
        nb_str name = j->src.t[i].name;
        const char *end = nb_str_ends(name, ".weight_packed") ? ".weight_packed" : ".weight";
        if (!nb_str_ends(name, end)) continue;
        nb_scheme_hit hit = nb_scheme_of(j, (nb_str){name.p, name.n - strlen(end)});
        if (!hit.scheme || hit.ignored || nb_is_plain_float(j->src.t[i].dtype)) continue;
        if (refused_format(hit.scheme->group, &k)) return refuse(formats[k].name, name, err);
    }
    return NB_OK;
}

/* compressed-tensors' rotations: those of weights are in the weights already, those of activations would have to be
 * done at every step. */
static bool rotates_activations(const nb_job *j)
{
    const nb_json *groups = nb_json_get(nb_quant_field(j, "transform_config"), "config_groups");
    for (uint32_t g = 0; nb_json_is(groups, NB_JSON_OBJECT) && g < groups->count; g++) {
        const nb_json *apply = nb_json_get(&groups->items[g], "apply");
        for (uint32_t i = 0; nb_json_is(apply, NB_JSON_ARRAY) && i < apply->count; i++) {
            nb_str where;
            if (nb_json_str(nb_json_get(&apply->items[i], "location"), &where) && !nb_str_starts(where, "weight_"))
                return true;
        }
    }
    return false;
}

nb_status nb_producers_refuse(nb_job *j, nb_error *err)
{
    for (size_t i = 0; i < j->src.n; i++)
        for (size_t k = 0; k < NB_COUNT(endings); k++)
            if (nb_str_ends(j->src.t[i].name, endings[k].value)) return refuse(endings[k].name, j->src.t[i].name, err);
    const nb_src_tensor *packed = first_packed(j);
    if (!packed) return NB_OK;
    for (size_t k = 0; k < NB_COUNT(methods); k++)
        if (nb_quant_is(j, "quant_method", methods[k].value)) return refuse(methods[k].name, packed->name, err);
    for (size_t k = 0; k < NB_COUNT(formats); k++)
        if (nb_quant_is(j, "format", formats[k].value)) return refuse(formats[k].name, packed->name, err);
    for (size_t k = 0; k < NB_COUNT(checkpoints); k++)
        if (nb_quant_is(j, "checkpoint_format", checkpoints[k].value))
            return refuse(checkpoints[k].name, packed->name, err);
    if (rotates_activations(j)) return refuse("rotation of activations (transform_config)", packed->name, err);
    return refuse_groups(j, err);
}
