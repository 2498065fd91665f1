/* create/producers/fp4: FP4 and MX formats whose bits are ours already: compressed-tensors and ModelOpt NVFP4, MXFP4,
 * MXFP8, gpt-oss blocks, DeepSeek-V4. specs/create.md 3.5 to 3.12. */
#include "create/producer.h"

static const nb_reader reader_ct_nvfp4 = {"ct-nvfp4", nb_direct_parts, NULL};
static const nb_reader reader_modelopt_nvfp4 = {"modelopt-nvfp4", nb_direct_parts, NULL};
static const nb_reader reader_mxfp4 = {"mxfp4", nb_direct_parts, NULL};
static const nb_reader reader_mxfp8 = {"mxfp8", nb_direct_parts, NULL};
static const nb_reader reader_gpt_oss = {"gpt-oss-mxfp4", nb_direct_parts, NULL};
static const nb_reader reader_deepseek = {"deepseek-mxfp4", nb_direct_parts, NULL};

/* Columns of codes in a row of bytes or words. */
static int64_t byte_cols(const nb_src_tensor *t, int64_t cols)
{
    return t->dtype == NB_DT_U32 || t->dtype == NB_DT_I32 ? cols * 4 : cols;
}
static bool is_byte_scale(nb_dtype t) { return t == NB_DT_U8 || t == NB_DT_F8_E8M0; }
static bool one_element(const nb_src_tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] != 1) return false;
    return true;
}

static nb_status start(nb_job *j, nb_weight_src *w, nb_src_tensor *t, nb_str base, bool suffixed, const nb_reader *r,
                       nb_format f, int64_t k, nb_error *err)
{
    nb_str name;
    nb_status st = nb_producer_name(j, base, suffixed, &name, err);
    nb_weight_init(w, t, name);
    w->m.k = k;
    w->m.has_native = true;
    w->m.native = nb_qtype_default(f);
    w->m.reader = r;
    w->from = r->name;
    return st;
}

/* The multiplier beside a plain (not stacked) weight is one F32, [] or [1]. */
static nb_status check_global(const nb_src_tensor *g, int64_t lead, nb_error *err)
{
    if (g->dtype != NB_DT_F32 && g->dtype != NB_DT_BF16 && g->dtype != NB_DT_F16)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: a global scale of dtype %s (E_EXPERT_NVFP4)",
                       NB_FMT_STR(g->name), nb_dtype_name(g->dtype));
    if (!lead && !one_element(g))
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: a global scale of %lld elements where one was expected (E_EXPERT_NVFP4)",
                       NB_FMT_STR(g->name), (long long)g->dim[0]);
    return NB_OK;
}

nb_status nb_match_ct_nvfp4(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".weight_scale"),
                  *global = nb_src_companion(j, base, ".weight_global_scale");
    int64_t lead, rows, cols, sl, sr, sc;
    if (t->dtype != NB_DT_U8 || !scale || !nb_view3(t, &lead, &rows, &cols) || !nb_view3(scale, &sl, &sr, &sc))
        return NB_OK;
    bool e4m3 = scale->dtype == NB_DT_F8_E4M3 || (scale->dtype == NB_DT_U8 && (global || cols == sc * 8));
    if (!e4m3) return NB_OK;
    if (nb_quant_is(j, "data_type", "nvfp4_v2") ||
        nb_quant_is(j, "quant_method", "auto_round:llm_compressor_nvfp4_e5m3") ||
        nb_quant_is(j, "packing_format", "auto_round:llm_compressor_nvfp4_e5m3"))
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "NVFP4 with E5M3 scales (first seen at %.*s) is not supported; import the original checkpoint "
                       "(E_FORMAT_UNSUPPORTED)",
                       NB_FMT_STR(t->name));
    if (sl != lead || sr != rows || cols != sc * 8)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: packed [%lld,%lld] and scales [%lld,%lld] fit no NVFP4 (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name), (long long)rows, (long long)cols, (long long)sr, (long long)sc);
    nb_weight_src w;
    nb_status st = start(j, &w, t, base, true, &reader_ct_nvfp4, NB_NVFP4, cols * 2, err);
    if (st == NB_OK && !global && !j->o->permissive)
        st = nb_fail(err, NB_E_INVALID, "tensor %.*s: no global scale (E_GLOBAL_MISSING)", NB_FMT_STR(t->name));
    if (st == NB_OK && !global) nb_job_warn(j, t->name, "no global scale: taken as 1");
    if (st == NB_OK && global) st = check_global(global, lead, err);
    if (st != NB_OK) return st;
    w.m.scale = scale;
    w.m.global = global;
    w.m.flags |= NB_MX_INVERT;
    *hit = true;
    return nb_producer_add(j, &w, err);
}

/* Row 3: codes U8 and one E8M0 byte per 32, no global scale. */
nb_status nb_match_mxfp4(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".weight_scale");
    int64_t lead, rows, cols, sl, sr, sc;
    if (t->dtype != NB_DT_U8 || !scale || !is_byte_scale(scale->dtype) || !nb_view3(t, &lead, &rows, &cols) ||
        !nb_view3(scale, &sl, &sr, &sc))
        return NB_OK;
    if (sl != lead || sr != rows || cols != sc * 16 || nb_src_companion(j, base, ".weight_global_scale") ||
        nb_src_companion(j, base, ".weight_scale_2"))
        return NB_OK;
    if (nb_quant_is(j, "data_type", "mx_int4") || nb_quant_is(j, "data_type", "mx_int"))
        return nb_fail(
            err, NB_E_UNSUPPORTED,
            "MXINT4 (first seen at %.*s) is not supported; import the original checkpoint (E_FORMAT_UNSUPPORTED)",
            NB_FMT_STR(t->name));
    nb_weight_src w;
    nb_status st = start(j, &w, t, base, true, &reader_mxfp4, NB_MXFP4, cols * 2, err);
    if (st != NB_OK) return st;
    w.m.scale = scale;
    *hit = true;
    st = nb_producer_pre_scale(j, &w, base, err);
    return st == NB_OK ? nb_producer_add(j, &w, err) : st;
}

static nb_status add_modelopt(nb_job *j, nb_weight_src *w, nb_str base, int64_t lead, nb_src_tensor *scale,
                              nb_src_tensor *global, nb_error *err)
{
    nb_status st = NB_OK;
    if (!global && !j->o->permissive)
        st = nb_fail(err, NB_E_INVALID, "tensor %.*s: no global scale (E_GLOBAL_MISSING)", NB_FMT_STR(w->src_name));
    if (st == NB_OK && !global) nb_job_warn(j, w->src_name, "no global scale: taken as 1");
    if (st == NB_OK && global) st = check_global(global, lead, err);
    if (st == NB_OK && global)
        nb_log(3, "%.*s: weight_scale_2 is %s", NB_FMT_STR(w->src_name), global->rank ? "an array" : "a scalar");
    w->m.scale = scale;
    w->m.global = global;
    w->m.flags |= NB_MX_ZERO;
    if (st == NB_OK) st = nb_producer_pre_scale(j, w, base, err);
    return st == NB_OK ? nb_producer_add(j, w, err) : st;
}

/* NVFP4 blocks of 32, one scale for two of ours: W4A8_NVFP4_FP8 always has them, other algorithms say so in the
 * module's entry, in its config group or for the whole model. */
static bool says_blocks32(const nb_job *j, nb_str base)
{
    int64_t size;
    nb_str algo;
    const nb_json *layer = nb_module_entry(nb_quant_field(j, "quantized_layers"), base);
    const nb_json *places[] = {nb_json_get(layer, "group_size"), nb_json_get(nb_quant_group(j, base), "group_size"),
                               nb_quant_field(j, "group_size")};
    if (nb_quant_is(j, "quant_algo", "W4A8_NVFP4_FP8")) return true;
    if (nb_json_str(nb_json_get(layer, "quant_algo"), &algo) && nb_str_is(algo, "W4A8_NVFP4_FP8")) return true;
    for (size_t i = 0; i < NB_COUNT(places); i++)
        if (nb_json_i64(places[i], &size)) return size == 32;
    return false;
}

nb_status nb_match_modelopt_nvfp4(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".weight_scale"),
                  *global = nb_src_companion(j, base, ".weight_scale_2");
    int64_t lead, rows, cols, sl, sr, sc;
    if ((t->dtype != NB_DT_U8 && t->dtype != NB_DT_U32) || !scale || !nb_view3(t, &lead, &rows, &cols)) return NB_OK;
    if (scale->dtype != NB_DT_F8_E4M3 && scale->dtype != NB_DT_U8) return NB_OK;
    if (!nb_view3(scale, &sl, &sr, &sc)) return NB_OK;
    int64_t k = byte_cols(t, cols) * 2;
    if (sl == lead && sr == rows && k % 8)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: %lld columns of packed FP4 are not whole words (E_EXPERT_NVFP4)",
                       NB_FMT_STR(t->name), (long long)cols);
    bool blocks32 = k == sc * 32 && scale->dtype == NB_DT_F8_E4M3 && says_blocks32(j, base);
    if (sl != lead || sr != rows || (k != sc * 16 && !blocks32))
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: packed [%lld,%lld] and scales [%lld,%lld] fit no NVFP4 (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name), (long long)rows, (long long)cols, (long long)sr, (long long)sc);
    nb_weight_src w;
    nb_status st = start(j, &w, t, base, true, &reader_modelopt_nvfp4, NB_NVFP4, k, err);
    if (st != NB_OK) return st;
    if (blocks32) w.m.flags |= NB_MX_CHANNEL;
    *hit = true;
    return add_modelopt(j, &w, base, lead, scale, global, err);
}

/* Stacked experts whose companions are named after the tensor: "...experts.gate_up_proj" with "..._weight_scale". The
 * packed axis may be the second of three. */
nb_status nb_match_fused_nvfp4(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, "_weight_scale"),
                  *global = nb_src_companion(j, base, "_weight_scale_2");
    int64_t lead, rows, cols, sl, sr, sc;
    if (t->dtype != NB_DT_U8 || t->rank != 3 || !scale || (scale->dtype != NB_DT_F8_E4M3 && scale->dtype != NB_DT_U8) ||
        !nb_view3(t, &lead, &rows, &cols) || !nb_view3(scale, &sl, &sr, &sc))
        return NB_OK;
    bool straight = sl == lead && sr == rows && cols == sc * 8, crossed = sl == lead && sc == cols && rows == sr * 8;
    if (!straight && !crossed)
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s: packed [%lld,%lld] and scales [%lld,%lld] fit no NVFP4 (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name), (long long)rows, (long long)cols, (long long)sr, (long long)sc);
    nb_weight_src w;
    nb_status st = start(j, &w, t, base, false, &reader_modelopt_nvfp4, NB_NVFP4, straight ? cols * 2 : rows * 2, err);
    if (st != NB_OK) return st;
    if (!straight) {
        w.m.n = w.m.stored_rows = cols;
        w.m.transposed = true;
    }
    *hit = true;
    return add_modelopt(j, &w, base, lead, scale, global, err);
}

nb_status nb_match_mxfp8(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".weight_scale");
    int64_t lead, rows, cols;
    if (!scale) scale = nb_src_companion(j, base, ".weight_scale_inv");
    if (t->dtype != NB_DT_F8_E4M3 || !scale || !is_byte_scale(scale->dtype) || !nb_view3(t, &lead, &rows, &cols) ||
        cols % 32 || !nb_shape_is(scale, lead, rows, cols / 32))
        return NB_OK;
    nb_weight_src w;
    nb_status st = start(j, &w, t, base, true, &reader_mxfp8, NB_MXFP8, cols, err);
    if (st != NB_OK) return st;
    w.m.scale = scale;
    *hit = true;
    st = nb_producer_pre_scale(j, &w, base, err);
    return st == NB_OK ? nb_producer_add(j, &w, err) : st;
}

/* X_blocks U8 [.., rows, G, 16] with X_scales U8 [.., rows, G]. */
nb_status nb_match_gpt_oss(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, "_scales");
    if (t->dtype != NB_DT_U8 || !scale || !is_byte_scale(scale->dtype) || t->rank < 3 || t->rank > 4 ||
        t->dim[t->rank - 1] != 16 || scale->rank != t->rank - 1)
        return NB_OK;
    for (int i = 0; i < scale->rank; i++)
        if (scale->dim[i] != t->dim[i])
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: its scales have other dimensions (E_QUANT_SHAPE)",
                           NB_FMT_STR(t->name));
    nb_weight_src w;
    nb_status st = start(j, &w, t, base, false, &reader_gpt_oss, NB_MXFP4, t->dim[t->rank - 2] * 32, err);
    if (st != NB_OK) return st;
    w.m.n = w.m.stored_rows = t->dim[t->rank - 3];
    w.experts = t->rank == 4 ? t->dim[0] : 0;
    w.m.scale = scale;
    *hit = true;
    return nb_producer_add(j, &w, err);
}

nb_status nb_match_deepseek(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".scale");
    int64_t lead, rows, cols;
    if ((t->dtype != NB_DT_I8 && t->dtype != NB_DT_U8) || !scale || scale->dtype != NB_DT_F8_E8M0 ||
        !nb_view3(t, &lead, &rows, &cols) || cols % 16 || !nb_shape_is(scale, lead, rows, cols / 16))
        return NB_OK;
    nb_weight_src w;
    nb_status st = start(j, &w, t, base, true, &reader_deepseek, NB_MXFP4, cols * 2, err);
    if (st != NB_OK) return st;
    w.m.scale = scale;
    *hit = true;
    return nb_producer_add(j, &w, err);
}
