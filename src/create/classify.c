/* create/classify: which producer's format each weight has, and which companions belong to it. specs/create.md 3.3. A
 * pure function of the inventory, except that small companions (multipliers, scales of FP8) are read, because their
 * values decide between formats.
 *
 * Producers are tried in order; the first whose predicates all hold takes the weight and its companions. What then is
 * left over is a plain tensor, a companion that may be dropped, or an error.
 */
#include "create/producer.h"

bool nb_classify_add(nb_job *j, const nb_weight_src *w)
{
    if (!nb_arena_grow(j->arena, &j->weights, j->n_weights, &j->cap_weights, sizeof *j->weights, 512)) return false;
    j->weights[j->n_weights++] = *w;
    return true;
}

nb_weight_src *nb_weight_find(nb_job *j, nb_str name)
{
    uint32_t i;
    return nb_map_get(&j->weight_by_name, name, &i) ? &j->weights[i] : NULL;
}

/* mlx-vlm writes "ngram_embedding.shards.3" where the publisher has "ngram_embedding.shard_3". */
static nb_str shard_name(nb_job *j, nb_str name)
{
    static const char part[] = ".ngram_embedding.shards.";
    int64_t at = name.p ? nb_str_find(name, NB_LIT(".ngram_embedding.shards."), 0) : -1;
    if (at < 0) return name;
    size_t rest = (size_t)at + sizeof part - 1;
    char *p = nb_arena_printf(j->arena, "%.*s.ngram_embedding.shard_%.*s", (int)at, name.p, (int)(name.n - rest),
                              name.p + rest);
    return p ? nb_str_of(p) : name;
}

nb_str nb_canonical(nb_job *j, nb_str name)
{
    const nb_source *s = &j->src;
    if (s->gguf) return nb_gguf_hub_name(s, name, j->arena);
    nb_str canon = shard_name(j, s->has_cfg ? nb_arch_canonical(&s->cfg, name, j->arena) : name);
    if (!canon.p || !j->is_draft) return canon;
    char *prefixed = nb_arena_printf(j->arena, "draft.%.*s", NB_FMT_STR(canon));
    return prefixed ? nb_str_of(prefixed) : (nb_str){0};
}

/* Canonical names of all tensors. Where no architecture is known a name is its own. */
static nb_status canonical_names(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    for (size_t i = 0; i < s->n; i++) {
        nb_src_tensor *t = &s->t[i];
        t->canon = nb_canonical(j, t->name);
        if (t->canon.p || t->used) continue;
        t->used = "dropped";
        if (!nb_job_drop(j, t->name, s->gguf ? "not a tensor of this architecture" : "recomputed at load"))
            return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    return NB_OK;
}

/* The config says outright that the head is a tensor of its own; of two parts that say different things, one that ties
 * is believed. */
static bool says_untied(const nb_config *c)
{
    const nb_json *said[2] = {nb_json_get(c->text, "tie_word_embeddings"), nb_json_get(c->root, "tie_word_embeddings")};
    bool any = false, tied = false;
    for (int i = 0; i < 2; i++) {
        bool v;
        if (!nb_json_bool(said[i], &v)) continue;
        any = true;
        tied = tied || v;
    }
    return any && !tied;
}

/* The tensors that config.json asks for. A source without any head tensor is tied, unless it says that it is not. */
static nb_status expected(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    bool head = false;
    for (size_t i = 0; i < s->n && !head; i++) head = s->t[i].canon.p && nb_str_starts(s->t[i].canon, "lm_head.");
    if (!head && !says_untied(&s->cfg)) s->cfg.tie_embeddings = true;
    nb_status st = nb_arch_tensors(&s->cfg, j->arena, &s->specs, &s->n_specs, err);
    if (st == NB_OK && !nb_map_init(&j->spec_by_name, s->n_specs + 1))
        st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < s->n_specs && st == NB_OK; i++)
        if (!nb_map_put(&j->spec_by_name, s->specs[i].name, (uint32_t)i, NULL, NULL))
            st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    return st;
}

bool nb_known_shape(const nb_job *j, nb_str name, int64_t *n, int64_t *k)
{
    uint32_t i;
    char group[1100];
    if (!j->src.n_specs) return false;
    if (nb_map_get(&j->spec_by_name, name, &i)) {
        const nb_tensor_spec *s = &j->src.specs[i];
        *n = s->dim[0];
        *k = s->dim[1];
        return s->rank == 2 && *k > 0;
    }
    int64_t at = nb_str_find(name, NB_LIT(".mlp."), 0);
    if (at < 0 || (size_t)at + 13 > sizeof group) return false;
    memcpy(group, name.p, (size_t)at);
    memcpy(group + at, ".mlp.experts", 12);
    if (!nb_map_get(&j->spec_by_name, (nb_str){group, (size_t)at + 12}, &i)) return false;
    const nb_tensor_spec *s = &j->src.specs[i];
    bool fused = nb_str_has(name, "gate_up_proj"), down = nb_str_has(name, "down_proj") || nb_str_has(name, ".w2.");
    if (!nb_str_has(name, "experts.") && !nb_str_has(name, "switch_mlp.")) return false;
    *n = s->proj[down ? 2 : 1].n * (fused ? 2 : 1);
    *k = s->proj[down ? 2 : 1].k;
    return *k > 0;
}

/* ---- plain tensors ---- */

bool nb_is_plain_float(nb_dtype t) { return t == NB_DT_F32 || t == NB_DT_F16 || t == NB_DT_BF16 || t == NB_DT_F64; }

nb_qtype nb_float_qtype(nb_dtype t)
{
    return nb_qtype_default(t == NB_DT_F16 ? NB_F16 : t == NB_DT_BF16 ? NB_BF16 : NB_F32);
}

void nb_weight_init(nb_weight_src *w, nb_src_tensor *t, nb_str name)
{
    memset(w, 0, sizeof *w);
    w->name = name;

    w->src_name = t->name;
    w->m.w = t;
    w->m.step = 1;
    w->m.m = 1.0f;
    if (t->rank >= 2) {
        w->m.n = w->m.stored_rows = t->dim[t->rank - 2];
        w->m.k = t->dim[t->rank - 1];
    }
    w->experts = t->rank == 3 ? t->dim[0] : 0;
}

/* A float matrix, or a stack of them. Whether it is used as one, the plan decides. */
static nb_status plain_weight(nb_job *j, nb_src_tensor *t, nb_error *err)
{
    nb_weight_src w;
    nb_weight_init(&w, t, t->canon);
    w.m.has_native = true;
    w.m.native = nb_float_qtype(t->dtype);
    w.m.float_source = true;
    w.m.reader = &nb_reader_float;
    w.from = nb_dtype_name(t->dtype);
    return nb_classify_add(j, &w) ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

static nb_status ggml_weight(nb_job *j, nb_src_tensor *t, nb_error *err)
{
    const nb_ggml_row *g = nb_ggml_info(t->ggml);
    nb_weight_src w;
    if (t->rank > 3)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s has %u dimensions (E_ST_SHAPE)", NB_FMT_STR(t->name),
                       (unsigned)t->rank);
    nb_weight_init(&w, t, t->canon);
    if (t->rank < 2) {
        w.m.n = w.m.stored_rows = 1;
        w.m.k = t->rank ? t->dim[0] : 1;
    }
    if (w.m.k % g->block)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld columns are not whole blocks of %s (E_QUANT_SHAPE)",
                       NB_FMT_STR(t->name), (long long)w.m.k, g->name);
    w.m.has_native = nb_ggml_lossless(t->ggml, &w.m.native);
    w.m.reader = &nb_reader_ggml;
    nb_status st = w.m.has_native && j->wide_scales ? nb_ggml_widen(j, &w.m, err) : NB_OK;
    if (st != NB_OK) return st;
    w.quantized = true;
    w.from = g->name;
    nb_str base = t->canon;
    if (nb_str_ends(t->name, ".weight")) { /* the multiplier of NVFP4 is a tensor of its own */
        nb_str b = {t->name.p, t->name.n - 7};
        nb_src_tensor *sc = nb_source_findf(&j->src, "%.*s.scale", NB_FMT_STR(b));
        if (sc && t->ggml != NB_GGML_NVFP4)
            return nb_fail(err, NB_E_INVALID,
                           "tensor %.*s stands beside %.*s (%s), a type that has no multiplier (E_ORPHAN_COMPANION)",
                           NB_FMT_STR(sc->name), NB_FMT_STR(t->name), g->name);
        if (sc) {
            w.m.global = sc;
            sc->used = "companion";
        }
    }
    if (!base.n) return NB_OK;
    if (!w.m.has_native) {
        float probe[1024];
        uint8_t zero[4096] = {0};
        if (g->block > NB_COUNT(probe) || g->bytes > sizeof zero || !nb_ggml_to_f32(t->ggml, zero, g->block, probe))
            return nb_fail(err, NB_E_UNSUPPORTED,
                           "GGUF type %s (first seen at %.*s) is not supported; import another quantisation "
                           "(E_FORMAT_UNSUPPORTED)",
                           g->name, NB_FMT_STR(t->name));
    }
    return nb_classify_add(j, &w) ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

bool nb_is_kv_scale(nb_str n)
{
    static const char *const ends[] = {".k_scale",    ".v_scale",       ".kv_scale",     ".q_scale",
                                       ".prob_scale", ".k_proj.k_bias", ".v_proj.v_bias"};
    for (size_t i = 0; i < NB_COUNT(ends); i++)
        if (nb_str_ends(n, ends[i])) return true;
    return false;
}

/* Companions that an import may leave out (specs/create.md 2.5, 0.1). */
static bool droppable(nb_str n)
{
    static const char *const ends[] = {
        ".input_scale",    ".input_global_scale",     ".activation_scale",        ".output_scale",     ".qscale_act",
        ".input_scale_ub", ".input_activation_scale", ".output_activation_scale", "_activation_scale", ".scale_input",
        "_input_scale",    ".input_zero_point",       ".output_zero_point"};
    for (size_t i = 0; i < NB_COUNT(ends); i++)
        if (nb_str_ends(n, ends[i])) return true;
    return nb_str_is(n, "scaled_fp8");
}

static bool left_out(const nb_job *j, nb_str n) { return droppable(n) || (nb_is_kv_scale(n) && !j->o->keep_kv_scales); }

/* Names that only make sense beside a quantised weight. */
static bool companion(nb_str n)
{
    static const char *const ends[] = {".scales",
                                       ".biases",
                                       ".weight_scale",
                                       ".weight_scale_inv",
                                       ".weight_scale_2",
                                       ".weight_global_scale",
                                       ".weight_zero_point",
                                       ".weight_g_idx",
                                       ".weight_shape",
                                       ".weight_packed",
                                       ".qweight",
                                       ".qzeros",
                                       ".g_idx",
                                       "_blocks",
                                       "_scale_inv",
                                       "_weight_scale",
                                       "_weight_scale_2",
                                       ".qscale_weight",
                                       ".scale_weight",
                                       ".pre_quant_scale"};
    for (size_t i = 0; i < NB_COUNT(ends); i++)
        if (nb_str_ends(n, ends[i])) return true;
    return false;
}

/* Of a head that a tied model carries nevertheless; the weight itself is dropped by its name. */
static bool tied_head_part(const nb_job *j, nb_str name)
{
    static const char *const prefixes[] = {"model.", "language_model.", "model.language_model."};
    if (!j->src.has_cfg || !j->src.cfg.tie_embeddings) return false;
    for (size_t i = 0; i < NB_COUNT(prefixes); i++) {
        size_t n = strlen(prefixes[i]);
        if (nb_str_starts(name, prefixes[i]) && nb_str_starts((nb_str){name.p + n, name.n - n}, "lm_head."))
            return true;
    }
    return nb_str_starts(name, "lm_head.");
}

static nb_status left_over(nb_job *j, nb_src_tensor *t, nb_error *err)
{
    if (t->dtype == NB_DT_NONE) return ggml_weight(j, t, err);
    if (!j->src.gguf && left_out(j, t->name)) {
        t->used = "dropped";
        return nb_job_drop(j, t->name, "activation or cache scale") ? NB_OK
                                                                    : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    if (!j->src.gguf && companion(t->name) && tied_head_part(j, t->name)) {
        t->used = "dropped";
        return nb_job_drop(j, t->name, "tied: the embedding is the head")
                   ? NB_OK
                   : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    if (!j->src.gguf && companion(t->name) && !(nb_str_ends(t->name, "_blocks") && nb_is_plain_float(t->dtype)))
        return nb_fail(
            err, NB_E_INVALID,
            "tensor %.*s (%s) is a quantisation companion without a weight that it fits (E_ORPHAN_COMPANION)",
            NB_FMT_STR(t->name), nb_dtype_name(t->dtype));
    if (nb_is_plain_float(t->dtype)) return t->rank == 2 || t->rank == 3 ? plain_weight(j, t, err) : NB_OK;
    if (nb_str_ends(t->name, ".weight") && t->rank >= 2) {
        int bits = nb_dtype_bits(t->dtype);
        if (t->dtype == NB_DT_F8_E4M3 || t->dtype == NB_DT_F8_E5M2)
            return nb_fail(err, NB_E_INVALID, "FP8 weight %.*s has no scale companion (E_FP8_META)",
                           NB_FMT_STR(t->name));
        return nb_fail(err, NB_E_INVALID,
                       "tensor %.*s has dtype %s (%d bits), which no known format explains (E_DTYPE_UNSUPPORTED)",
                       NB_FMT_STR(t->name), nb_dtype_name(t->dtype), bits);
    }
    return NB_OK;
}

/* ---- companions of another format ---- */

/* The name of a packed weight's module. */
static nb_str module_of(nb_str weight)
{
    static const char *const ends[] = {".weight", ".weight_packed", ".qweight", "_blocks"};
    for (size_t i = 0; i < NB_COUNT(ends); i++)
        if (nb_str_ends(weight, ends[i])) return (nb_str){weight.p, weight.n - strlen(ends[i])};
    return weight;
}

/* Words of names that stand beside a packed weight only to change what it means. A module's own ".bias" has none. */
static bool alters(nb_str rest)
{
    static const char *const words[] = {"scale", "zero", "biases", "lora",   "quant",
                                        "g_idx", "perm", "packed", "blocks", "codebook"};
    if (nb_str_ends(rest, "_amax")) return false; /* what a calibration saw, left in the file */
    for (size_t i = 0; i < NB_COUNT(words); i++)
        if (nb_str_has(rest, words[i])) return true;
    return false;
}

static const nb_weight_src *owner(const nb_job *j, const nb_map *modules, nb_str name)
{
    uint32_t i;
    for (size_t n = name.n; n-- > 1;) {
        if (name.p[n] != '.' && name.p[n] != '_') continue;
        if (!alters((nb_str){name.p + n, name.n - n}) || !nb_map_get(modules, (nb_str){name.p, n}, &i)) continue;
        const nb_weight_src *w = &j->weights[i]; /* "gate_scale" is no companion of a matrix "gate.weight" */
        if (name.p[n] == '.' || w->src_name.n == n || nb_str_ends(w->src_name, "_blocks")) return w;
    }
    return NULL;
}

/* What no producer took, though it stands beside a weight that one of them did: the weight means something else with it
 * (a second scale, zero points, low-rank factors), and that is not known here. */
static nb_status foreign_companions(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    nb_map modules = {0};
    nb_status st = nb_map_init(&modules, j->n_weights + 1) ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->n_weights && st == NB_OK; i++)
        if (j->weights[i].quantized &&
            !nb_map_put(&modules, module_of(j->weights[i].src_name), (uint32_t)i, NULL, NULL))
            st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < s->n && st == NB_OK; i++) {
        const nb_src_tensor *t = &s->t[i];
        uint32_t named;
        bool asked = t->canon.p && s->n_specs && nb_map_get(&j->spec_by_name, t->canon, &named);
        const nb_weight_src *w = t->used || asked || nb_is_kv_scale(t->name) ? NULL : owner(j, &modules, t->name);
        if (!w) continue;
        const char *path = s->files[t->file].path, *slash = strrchr(path, '/');
        st = nb_fail(err, NB_E_INVALID,
                     "%s: tensor %.*s (%s) stands beside %.*s (%s), a format that has no such companion: with it the "
                     "weight would mean something else (E_ORPHAN_COMPANION)",
                     slash ? slash + 1 : path, NB_FMT_STR(t->name), nb_dtype_name(t->dtype), NB_FMT_STR(w->src_name),
                     w->from);
    }
    nb_map_free(&modules);
    return st;
}

static nb_status index_names(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    if (!nb_map_init(&j->weight_by_name, j->n_weights + 1) || !nb_map_init(&s->by_canon, s->n + 1))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->n_weights; i++) {
        bool had = false;
        uint32_t old = 0;
        if (!nb_map_put(&j->weight_by_name, j->weights[i].name, (uint32_t)i, &had, &old))
            return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        if (had)
            return nb_fail(err, NB_E_INVALID, "two sources would both become %.*s (%.*s, %.*s) (E_COLLISION)",
                           NB_FMT_STR(j->weights[i].name), NB_FMT_STR(j->weights[old].src_name),
                           NB_FMT_STR(j->weights[i].src_name));
    }
    for (size_t i = 0; i < s->n; i++) {
        bool had = false;
        uint32_t old = 0;
        nb_str first = {0};
        if (!s->t[i].canon.p || s->t[i].used) continue;
        const nb_weight_src *w = nb_weight_find(j, s->t[i].canon);
        if (!nb_map_put(&s->by_canon, s->t[i].canon, (uint32_t)i, &had, &old))
            return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        if (had) first = s->t[old].name;
        if (w && w->m.w != &s->t[i]) first = w->src_name; /* a packed weight, and a plain tensor of its name */
        if (first.p)
            return nb_fail(err, NB_E_INVALID, "two sources would both become %.*s (%.*s, %.*s) (E_COLLISION)",
                           NB_FMT_STR(s->t[i].canon), NB_FMT_STR(first), NB_FMT_STR(s->t[i].name));
    }
    return NB_OK;
}

/* What the whole source is, for the request: float, fp8, prequantized. */
static nb_status source_kind(nb_job *j, nb_error *err)
{
    bool fp8 = false, pre = false;
    const nb_weight_src *first = NULL;
    for (size_t i = 0; i < j->n_weights; i++) {
        const nb_weight_src *w = &j->weights[i];
        if (!w->quantized) continue;
        if (!first) first = w;
        if (nb_str_starts(nb_str_of(w->from), "fp8"))
            fp8 = true;
        else
            pre = true;
    }
    j->r->source_kind = nb_str_of(j->src.gguf ? "gguf" : pre ? "prequantized" : fp8 ? "fp8" : "float");
    if (first && j->o->request == NB_REQUEST_TYPE && !j->o->allow_requantize) {
        char type[32];
        nb_qtype_name(j->o->type, type);
        return nb_fail(
            err, NB_E_INVALID,
            "source is already quantised (%s at %.*s); use --allow-requantize to decode and quantise to %s (E_REQUANT)",
            first->from, NB_FMT_STR(first->src_name), type);
    }
    return NB_OK;
}

nb_status nb_classify(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    nb_status st = canonical_names(j, err);
    if (st == NB_OK && s->has_cfg) st = expected(j, err);
    if (st == NB_OK && !s->gguf) st = nb_schemes_read(j, err);
    if (st == NB_OK && !s->gguf) st = nb_producers_refuse(j, err);
    for (size_t i = 0; i < s->n && st == NB_OK && !s->gguf; i++)
        if (!s->t[i].used) st = nb_producers_match(j, &s->t[i], err);
    /* multipliers of GGUF NVFP4 tensors are claimed by their weights first */
    for (size_t i = 0; i < s->n && st == NB_OK; i++)
        if (!s->t[i].used && s->t[i].dtype == NB_DT_NONE) st = left_over(j, &s->t[i], err);
    for (size_t i = 0; i < s->n && st == NB_OK; i++)
        if (!s->t[i].used && s->t[i].dtype != NB_DT_NONE) st = left_over(j, &s->t[i], err);
    if (st == NB_OK && !s->gguf) st = foreign_companions(j, err);
    if (st == NB_OK) st = index_names(j, err);
    if (st == NB_OK) st = nb_latent_join(j, err);
    return st == NB_OK ? source_kind(j, err) : st;
}
