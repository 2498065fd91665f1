/* create/producers/mlx: mlx-lm checkpoints: affine 2 to 8 bits, mxfp4, mxfp8, nvfp4, with overrides per module.
 * specs/create.md 3.4, 0.1. */
#include "create/producer.h"

#include <stdio.h>

static const nb_reader reader_mlx = {"mlx", nb_direct_parts, NULL};

typedef struct mlx_mode {
    bool mode_said;
    int64_t bits, group; /* 0: not said */
    nb_str mode;         /* "affine" where nothing is said */
    bool off;            /* false: not quantised, says the config */
    bool said;
    bool global; /* the module has a global scale */
} mlx_mode;

/* The first quantisation object with bits or a mode. */
static const nb_json *global_object(const nb_job *j)
{
    for (size_t i = 0; i < j->src.n_quant; i++)
        if (nb_json_present(nb_json_get(j->src.quant[i], "bits")) ||
            nb_json_present(nb_json_get(j->src.quant[i], "mode")))
            return j->src.quant[i];
    return NULL;
}

static const nb_json *get_joined(const nb_json *o, const char *prefix, nb_str rest)
{
    char name[1200];
    int n = snprintf(name, sizeof name, "%s%.*s", prefix, NB_FMT_STR(rest));
    return n > 0 && (size_t)n < sizeof name ? nb_json_get_str(o, (nb_str){name, (size_t)n}) : NULL;
}

static nb_str without(nb_str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return nb_str_starts(s, prefix) ? (nb_str){s.p + n, s.n - n} : (nb_str){0};
}

/* Publishes write paths in the checkpoint's namespace or in the loader's: the ones in use are tried in turn. */
static const nb_json *override_in(const nb_json *o, nb_str base)
{
    static const char *const prefixes[] = {"model.", "language_model.", "language_model.model.",
                                           "model.language_model."};
    const nb_json *v = nb_json_get_str(o, base);
    if (v) return v;
    nb_str r = without(base, "model.language_model.");
    if (r.p && (v = get_joined(o, "language_model.model.", r))) return v;
    r = without(base, "language_model.model.");
    if (r.p && (v = get_joined(o, "model.language_model.", r))) return v;
    for (size_t i = 0; i < NB_COUNT(prefixes); i++) {
        r = without(base, prefixes[i]);
        if (r.p && (v = nb_json_get_str(o, r))) return v;
        if ((v = get_joined(o, prefixes[i], base))) return v;
        for (size_t k = 0; r.p && k < NB_COUNT(prefixes); k++)
            if ((v = get_joined(o, prefixes[k], r))) return v;
    }
    return NULL;
}

/* The same path with `from` replaced by `to`; p NULL: not in it or too long. */
static nb_str swap_part(nb_str s, const char *from, const char *to, char buf[1200])
{
    int64_t at = nb_str_find(s, nb_str_of(from), 0);
    if (at < 0) return (nb_str){0};
    int n = snprintf(buf, 1200, "%.*s%s%.*s", (int)at, s.p, to, (int)(s.n - (size_t)at - strlen(from)),
                     s.p + at + strlen(from));
    return n > 0 && n < 1200 ? (nb_str){buf, (size_t)n} : (nb_str){0};
}

static const nb_json *find_override(const nb_json *o, nb_str base)
{
    char buf[1200];
    const nb_json *v = override_in(o, base);
    nb_str alt = v ? (nb_str){0} : swap_part(base, ".experts.", ".switch_mlp.", buf);
    if (alt.p) v = override_in(o, alt);
    alt = v ? (nb_str){0} : swap_part(base, ".switch_mlp.", ".experts.", buf);
    if (alt.p) v = override_in(o, alt);
    return v;
}

static mlx_mode read_mode(const nb_job *j, nb_str base)
{
    const nb_json *g = global_object(j), *o = g ? find_override(g, base) : NULL;
    mlx_mode m = {.mode = NB_LIT("affine")};
    if (!g) return m;
    m.said = nb_json_i64(nb_json_get(g, "bits"), &m.bits);
    nb_json_i64(nb_json_get(g, "group_size"), &m.group);
    nb_str s;
    m.mode_said = nb_json_str(nb_json_get(g, "mode"), &s);
    if (m.mode_said) m.mode = s;
    if (nb_json_is(o, NB_JSON_FALSE)) m.off = true;
    if (nb_json_is(o, NB_JSON_OBJECT)) {
        m.said = true;
        nb_json_bool(nb_json_get(o, "global_scale"), &m.global);
        nb_json_i64(nb_json_get(o, "bits"), &m.bits);
        nb_json_i64(nb_json_get(o, "group_size"), &m.group);
        m.mode_said = nb_json_str(nb_json_get(o, "mode"), &s);
        m.mode = m.mode_said ? s : NB_LIT("affine"); /* the global mode is not inherited */
    }
    return m;
}

static bool group_ok(int64_t g) { return g == 32 || g == 64 || g == 128; }
static bool bits_ok(int64_t b) { return b == 2 || b == 3 || b == 4 || b == 5 || b == 6 || b == 8; }

static nb_format affine_format(int64_t bits)
{
    switch (bits) {
    case 2: return NB_INT2;
    case 3: return NB_INT3;
    case 4: return NB_INT4;
    case 5: return NB_INT5;
    case 6: return NB_INT6;
    default: return NB_INT8;
    }
}

static nb_status no_fit(const nb_weight_src *w, const nb_src_tensor *scale, int64_t words, const mlx_mode *m,
                        nb_error *err)
{
    return nb_fail(err, NB_E_INVALID,
                   "tensor %.*s: packed [%lld,%lld] and scales [%lld,%lld] fit no (bits, group); config says %lld/%lld "
                   "(E_QUANT_SHAPE)",
                   NB_FMT_STR(w->src_name), (long long)w->m.n, (long long)words, (long long)scale->dim[scale->rank - 2],
                   (long long)scale->dim[scale->rank - 1], (long long)m->bits, (long long)m->group);
}

/* bits and group of an affine weight: the config's if they fit the shapes, else the only pair that does. */
static nb_status affine_shape(nb_job *j, nb_weight_src *w, const nb_src_tensor *scale, int64_t words,
                              const mlx_mode *mode, nb_error *err)
{
    static const int64_t all_bits[] = {2, 3, 4, 5, 6, 8}, all_groups[] = {32, 64, 128};
    int64_t cols = scale->dim[scale->rank - 1], bits = mode->bits, group = mode->group, n, k;
    bool known = nb_known_shape(j, w->name, &n, &k);
    if (bits == 1)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "MLX affine with 1 bit (first seen at %.*s) is not supported; import the original checkpoint "
                       "(E_FORMAT_UNSUPPORTED)",
                       NB_FMT_STR(w->src_name));
    bool fits = bits_ok(bits) && group_ok(group) && words * 32 == bits * group * cols && (!known || group * cols == k);
    if (!fits) {
        int hits = 0;
        int64_t fb = 0, fg = 0;
        for (size_t b = 0; b < NB_COUNT(all_bits); b++)
            for (size_t g = 0; g < NB_COUNT(all_groups); g++)
                if (words * 32 == all_bits[b] * all_groups[g] * cols && (!known || all_groups[g] * cols == k)) {
                    hits++;
                    fb = all_bits[b];
                    fg = all_groups[g];
                }
        if (hits != 1) return no_fit(w, scale, words, mode, err);
        if (mode->said)
            nb_job_warn(j, w->src_name, "config says %lld bits, group %lld; the shapes say %lld bits, group %lld",
                        (long long)bits, (long long)group, (long long)fb, (long long)fg);
        bits = fb;
        group = fg;
    }
    w->m.k = group * cols;
    w->m.native = (nb_qtype){
        .format = (uint8_t)affine_format(bits), .scale_dtype = (uint8_t)scale->dtype, .group = (uint16_t)group};
    return NB_OK;
}

/* Formats with byte scales: the ratio of words to scales tells them apart but for int readings. */
static nb_status byte_scales(nb_weight_src *w, const nb_src_tensor *scale, int64_t words, const mlx_mode *mode,
                             nb_error *err)
{
    static const struct {
        const char *mode;
        int64_t ratio;
        nb_format f;
    } rows[] = {{"nvfp4", 2, NB_NVFP4}, {"mxfp4", 4, NB_MXFP4}, {"mxfp8", 8, NB_MXFP8}};
    int64_t cols = scale->dim[scale->rank - 1];
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        if (words != rows[i].ratio * cols) continue;
        w->m.native = nb_qtype_default(rows[i].f);
        w->m.k = (int64_t)w->m.native.group * cols;
        return NB_OK;
    }
    return no_fit(w, scale, words, mode, err);
}

/* Flint's embedding: int4/128 and int8/64 pack to the same shapes, a field of its own says which. flint.md 4.3 */
static nb_status flint_embedding(nb_job *j, const nb_weight_src *w, mlx_mode *mode, nb_error *err)
{
    int64_t bits = 0;
    const nb_json *e = nb_json_get(j->src.config.root, "mlx_export"), *v = nb_json_get(e, "embedding_bits");
    if (!nb_str_is(j->r->architecture, "FlintForCausalLM") || !nb_str_is(w->name, "model.embed_tokens.weight") ||
        mode->bits != 4 || !nb_str_is(mode->mode, "affine"))
        return NB_OK;
    if (nb_json_present(e) && e->type != NB_JSON_OBJECT)
        return nb_fail(err, NB_E_INVALID, "config.json: field mlx_export is not an object (E_FLINT_EMBED_BITS)");
    if (nb_json_present(v) && !nb_json_i64(v, &bits))
        return nb_fail(
            err, NB_E_INVALID,
            "config.json: field mlx_export.embedding_bits is not an integer; expected 4 or 8 (E_FLINT_EMBED_BITS)");
    if (bits != 4 && bits != 8)
        return nb_fail(err, NB_E_INVALID,
                       "Flint embedding: mlx_export.embedding_bits is %lld; expected 4 or 8 (E_FLINT_EMBED_BITS)",
                       (long long)bits);
    if (bits == 4) return NB_OK;
    /* the group is what the shapes say, not what the global config does */
    int64_t words = w->m.w->dim[w->m.w->rank - 1], cols = w->m.scale->dim[w->m.scale->rank - 1];
    mode->bits = 8;
    mode->group = cols ? words * 4 / cols : 0;
    return NB_OK;
}

nb_status nb_match_mlx(nb_job *j, nb_src_tensor *t, nb_str base, bool *hit, nb_error *err)
{
    nb_src_tensor *scale = nb_src_companion(j, base, ".scales"), *bias = nb_src_companion(j, base, ".biases");
    int64_t lead, rows, cols, sl, sr, sc;
    if (!scale || !nb_view3(t, &lead, &rows, &cols)) return NB_OK;
    if (nb_src_companion(j, base, ".qzeros") || nb_src_companion(j, base, ".qweight")) return NB_OK;
    bool words = t->dtype == NB_DT_U32, bytes = t->dtype == NB_DT_U8 && cols % 4 == 0;
    if (!words && !bytes) return NB_OK;
    bool byte_scale = scale->dtype == NB_DT_U8 || scale->dtype == NB_DT_F8_E8M0 || scale->dtype == NB_DT_F8_E4M3;
    bool float_scale = scale->dtype == NB_DT_BF16 || scale->dtype == NB_DT_F16 || scale->dtype == NB_DT_F32;
    if (bytes && !float_scale) return NB_OK;
    nb_weight_src w;
    nb_str name;
    nb_status st = nb_producer_name(j, base, true, &name, err);
    if (st != NB_OK) return st;
    nb_weight_init(&w, t, name);
    mlx_mode mode = read_mode(j, base);
    int64_t n_words = words ? cols : cols / 4;
    if (!nb_view3(scale, &sl, &sr, &sc) || sl != lead || sr != rows || (!byte_scale && !float_scale)) {
        w.m.n = rows;
        return no_fit(&w, scale, n_words, &mode, err);
    }
    if (mode.off)
        nb_job_warn(j, t->name,
                    "config says not quantised, the file holds packed weights with scales: the tensors win");
    w.m.has_native = true;
    w.m.reader = &reader_mlx;
    w.m.scale = scale;
    w.from = "mlx";
    if (float_scale) {
        if (!bias || bias->dtype != scale->dtype || !nb_shape_is(bias, lead, rows, sc))
            return nb_fail(err, NB_E_INVALID,
                           "tensor %.*s: affine scales without .biases of the same shape and dtype (E_QUANT_SHAPE)",
                           NB_FMT_STR(t->name));
        w.m.bias = bias;
        st = flint_embedding(j, &w, &mode, err);
        if (st == NB_OK) st = affine_shape(j, &w, scale, n_words, &mode, err);
    } else {
        st = byte_scales(&w, scale, n_words, &mode, err);
        w.m.global = nb_src_companion(j, base, ".global_scale");
        if (st == NB_OK && w.m.global && w.m.native.format != NB_NVFP4)
            st = nb_fail(err, NB_E_INVALID,
                         "tensor %.*s: a global scale beside a format that has none (E_ORPHAN_COMPANION)",
                         NB_FMT_STR(w.m.global->name));
        if (st == NB_OK && mode.global && !w.m.global)
            st =
                nb_fail(err, NB_E_INVALID, "tensor %.*s: the config says that it has a global scale (E_GLOBAL_MISSING)",
                        NB_FMT_STR(t->name));
        w.m.flags |= NB_MX_AMAX;
    }
    if (st != NB_OK) return st;
    const char *actual = float_scale ? "affine" : nb_format_info((nb_format)w.m.native.format)->name;
    if (mode.mode_said && !nb_str_is(mode.mode, actual))
        nb_job_warn(j, t->name, "config says mode %.*s, the shapes say %s", NB_FMT_STR(mode.mode), actual);
    *hit = true;
    return nb_producer_add(j, &w, err);
}
