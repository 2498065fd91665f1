/* create/export_formats: the tensors of each target directory. A format that a target cannot hold is refused by the
 * name of the first tensor that has it. */
#include "create/export.h"

#include <stdio.h>

static nb_status no_memory(nb_error *err) { return nb_fail(err, NB_E_NO_MEMORY, "out of memory"); }

static nb_status refuse(const nb_stored *t, const char *target, const char *why, nb_error *err)
{
    char type[32];
    nb_qtype_name(t->q, type);
    return nb_fail(err, NB_E_UNSUPPORTED, "tensor %.*s is %s%s, which %s cannot hold; export --as hub decodes it",
                   NB_FMT_STR(t->name), type, why, target);
}

static const char with_factors[] = " with pre_quant_scale";

static void dims(nb_ex_tensor *e, int64_t a, int64_t b, int64_t c)
{
    int64_t d[3] = {a, b, c};
    e->rank = a ? 3 : b ? 2 : c ? 1 : 0;
    for (int i = 0; i < e->rank; i++) e->dim[i] = d[3 - e->rank + i];
}

static bool is_float(const nb_stored *t) { return nb_format_info((nb_format)t->q.format)->is_float; }

static nb_dtype float_dtype(const nb_stored *t)
{
    return t->q.format == NB_F32 ? NB_DT_F32 : t->q.format == NB_F16 ? NB_DT_F16 : NB_DT_BF16;
}

static bool skipped(const nb_stored *t) { return nb_str_starts(t->name, "draft."); }

nb_status nb_ex_plain(nb_export_job *x, const nb_stored *t, nb_error *err)
{
    bool is_fp = t->dtype == NB_DT_F32 || t->dtype == NB_DT_F16 || t->dtype == NB_DT_BF16;
    bool one = x->norm_has_one && nb_str_ends(t->name, "norm.weight"),
         plus = x->mlx_written && is_fp && t->rank == 1 && nb_mlx_norm(t->name);
    nb_dtype dt =
        is_fp && (one || plus || (x->o->as == NB_EXPORT_HUB && x->o->dtype == NB_DT_F32)) ? NB_DT_F32 : t->dtype;
    nb_ex_tensor *e = nb_ex_push(x, t->name, "", NB_EX_PLAIN, dt, err);
    if (!e) return NB_E_NO_MEMORY;
    e->t = t;
    e->add = one ? -1.0f : plus ? 1.0f : 0.0f;
    e->rank = t->rank;
    memcpy(e->dim, t->dim, sizeof e->dim);
    if (x->mlx_written && nb_str_ends(t->name, "linear_attn.conv1d.weight") && t->rank == 3 && t->dim[1] == 1) {
        e->dim[1] = t->dim[2]; /* the same bytes */
        e->dim[2] = 1;
    }
    return NB_OK;
}

static nb_status add_float(nb_export_job *x, const nb_stored *t, nb_dtype dt, nb_error *err)
{
    nb_str base;
    nb_status st = nb_ex_base(x, t, &base, err);
    nb_ex_tensor *e = st == NB_OK
                          ? nb_ex_push(x, base, nb_str_ends(t->name, ".weight") ? ".weight" : "", NB_EX_FLOAT, dt, err)
                          : NULL;
    if (!e) return st == NB_OK ? NB_E_NO_MEMORY : st;
    e->t = t;
    dims(e, 0, t->n, t->k);
    return NB_OK;
}

/* ---- hub ---- */

static bool group_of(const nb_stored *t, nb_str *group, nb_str *proj)
{
    nb_str base = t->name;
    if (nb_str_ends(base, ".weight")) base.n -= 7;
    const char *dot = memrchr(base.p, '.', base.n);
    if (!dot) return false;
    *group = (nb_str){base.p, (size_t)(dot - base.p)};
    *proj = (nb_str){dot + 1, base.n - group->n - 1};
    return true;
}

/* gpt-oss: gate_up_proj and down_proj stacked, transposed, with their biases. */
static nb_status fused_bank(nb_export_job *x, const nb_stored *t, nb_error *err)
{
    nb_str group, proj, g2, p2;
    if (t->expert != 0 || !group_of(t, &group, &proj) || nb_str_is(proj, "up_proj")) return NB_OK;
    const nb_stored *up = NULL;
    for (size_t i = 0; nb_str_is(proj, "gate_proj") && i < x->blobs.n && !up; i++)
        if (x->blobs.t[i].experts && group_of(&x->blobs.t[i], &g2, &p2) && nb_str_eq(g2, group) &&
            nb_str_is(p2, "up_proj"))
            up = &x->blobs.t[i];
    nb_ex_tensor *e = nb_ex_push(x, group, up ? ".gate_up_proj" : ".down_proj", NB_EX_FUSED, x->o->dtype, err);
    if (!e) return NB_E_NO_MEMORY;
    e->t = t;
    e->up = up;
    e->count = t->experts;
    dims(e, t->experts, t->k, up ? 2 * t->n : t->n);
    return NB_OK;
}

/* "G.gate_proj.bias" and "G.up_proj.bias" [E, I] back to "G.gate_up_proj_bias" [E, 2I], element by element. */
static nb_status fused_bias(nb_export_job *x, const nb_stored *t, bool *done, nb_error *err)
{
    const nb_stored *up = NULL;
    *done = nb_str_has(t->name, ".experts.") &&
            (nb_str_ends(t->name, "gate_proj.bias") || nb_str_ends(t->name, "up_proj.bias") ||
             nb_str_ends(t->name, "down_proj.bias"));
    if (!*done || nb_str_ends(t->name, "up_proj.bias")) return NB_OK;
    bool gate = nb_str_ends(t->name, "gate_proj.bias");
    nb_str group = {t->name.p, t->name.n - strlen(".gate_proj.bias")}; /* ".down_proj.bias" is as long */
    for (size_t i = 0; gate && i < x->blobs.n; i++)
        if (nb_str_ends(x->blobs.t[i].name, "up_proj.bias") && x->blobs.t[i].name.n == t->name.n - 2 &&
            !memcmp(x->blobs.t[i].name.p, group.p, group.n))
            up = &x->blobs.t[i];
    nb_ex_tensor *e = nb_ex_push(x, group, gate ? ".gate_up_proj_bias" : ".down_proj_bias", NB_EX_BYTES, t->dtype, err);
    if (!e) return NB_E_NO_MEMORY;
    size_t elem = (size_t)nb_dtype_bits(t->dtype) / 8;
    dims(e, 0, t->dim[0], gate ? 2 * t->dim[1] : t->dim[1]);
    if (gate && (!up || up->bytes != t->bytes))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s has no counterpart of up_proj", NB_FMT_STR(t->name));
    char *p = nb_arena_alloc(x->arena, t->bytes * (gate ? 2 : 1));
    if (!p) return no_memory(err);
    for (size_t i = 0; i < t->bytes / elem; i++) {
        memcpy(p + (gate ? 2 * i : i) * elem, t->data + i * elem, elem);
        if (gate) memcpy(p + (2 * i + 1) * elem, up->data + i * elem, elem);
    }
    e->bytes = (nb_str){p, t->bytes * (gate ? 2 : 1)};
    return NB_OK;
}

nb_status nb_ex_plan_hub(nb_export_job *x, nb_error *err)
{
    nb_status st = NB_OK;
    for (size_t i = 0; i < x->blobs.n && st == NB_OK; i++) {
        const nb_stored *t = &x->blobs.t[i];
        bool done = false;
        if (skipped(t)) continue;
        if (t->matrix && t->experts && x->gpt_oss)
            st = fused_bank(x, t, err);
        else if (t->matrix)
            st = add_float(x, t, x->o->dtype, err);
        else {
            if (x->gpt_oss) st = fused_bias(x, t, &done, err);
            if (st == NB_OK && !done) st = nb_ex_plain(x, t, err);
        }
    }
    return st;
}

/* ---- what all quantised targets share ---- */

static nb_status add_part(nb_export_job *x, const nb_stored *t, int64_t count, nb_str base, const char *suffix,
                          nb_ex_kind kind, nb_dtype dt, int64_t cols, nb_error *err)
{
    nb_ex_tensor *e = nb_ex_push(x, base, suffix, kind, dt, err);
    if (!e) return NB_E_NO_MEMORY;
    e->t = t;
    e->count = count;
    dims(e, count > 1 || (t->experts && count == t->experts) ? count : 0, t->n, cols);
    return NB_OK;
}

static nb_status add_bytes(nb_export_job *x, nb_str base, const char *suffix, nb_dtype dt, int rank, int64_t d0,
                           int64_t d1, const void *p, size_t n, nb_error *err)
{
    nb_ex_tensor *e = nb_ex_push(x, base, suffix, NB_EX_BYTES, dt, err);
    char *copy = nb_arena_dup(x->arena, p, n);
    if (!e || !copy) return no_memory(err);
    e->bytes = (nb_str){copy, n};
    e->rank = (uint8_t)rank;
    e->dim[0] = d0;
    e->dim[1] = d1;
    return NB_OK;
}

static nb_json *object(nb_export_job *x) { return nb_json_new(x->arena, NB_JSON_OBJECT); }

static bool set(nb_export_job *x, nb_json *o, const char *key, const nb_json *v)
{
    return o && v && nb_json_set(x->arena, o, nb_str_of(key), v);
}
static bool set_i64(nb_export_job *x, nb_json *o, const char *key, int64_t v)
{
    return set(x, o, key, nb_json_new_i64(x->arena, v));
}
static bool set_str(nb_export_job *x, nb_json *o, const char *key, const char *v)
{
    return set(x, o, key, nb_json_new_str(x->arena, nb_str_of(v)));
}
static bool set_bool(nb_export_job *x, nb_json *o, const char *key, bool v)
{
    return set(x, o, key, nb_json_new_bool(x->arena, v));
}

/* ---- MLX ---- */

/* The absolute maximum whose 2688th part is exactly m. */
static float mlx_global(float m)
{
    float a = m * 2688.0f;
    for (int i = -4; i <= 4; i++) {
        float c = nb_f32_bits(nb_bits_f32(a) + (uint32_t)i);
        if (c / 2688.0f == m) return c;
    }
    return a;
}

static const char *mlx_mode(const nb_stored *t)
{
    switch (t->q.format) {
    case NB_NVFP4: return "nvfp4";
    case NB_MXFP4: return "mxfp4";
    case NB_MXFP8: return "mxfp8";
    default: return "affine";
    }
}

static nb_json *mlx_entry(nb_export_job *x, const nb_stored *t, bool global)
{
    nb_json *o = object(x);
    bool ok = set_i64(x, o, "group_size", t->q.group) &&
              set_i64(x, o, "bits", nb_format_info((nb_format)t->q.format)->bits) && set_str(x, o, "mode", mlx_mode(t));
    if (ok && global) ok = set_bool(x, o, "global_scale", true);
    return ok ? o : NULL;
}

/* MLX stacks a bank and names it "switch_mlp", but for gpt-oss, where its own reader keeps "experts". */
static nb_status mlx_base(nb_export_job *x, const nb_stored *t, nb_str *base, nb_error *err)
{
    *base = nb_arch_respelled(x->arch, t->name, x->arena);
    if (nb_str_ends(*base, ".weight")) base->n -= 7;
    int64_t at = nb_str_find(*base, NB_LIT(".mlp.experts."), 0);
    if (!t->experts || at < 0 || x->gpt_oss) return NB_OK;
    char *p = nb_arena_printf(x->arena, "%.*s.mlp.switch_mlp.%.*s", (int)at, base->p, (int)(base->n - (size_t)at - 13),
                              base->p + at + 13);
    if (!p) return no_memory(err);
    *base = nb_str_of(p);
    return NB_OK;
}

static bool multiplied(const nb_stored *t, int64_t count)
{
    for (int64_t e = 0; e < count; e++)
        if (t[e].m != 1.0f) return true;
    return false;
}

/* MLX's layers for experts have a place for a multiplier, the others have none: such a matrix is decoded, which keeps
 * its values. */
static bool mlx_decoded(const nb_stored *t)
{
    return t->matrix && !t->experts && t->q.format == NB_NVFP4 && t->m != 1.0f && !t->pre_scale;
}

static nb_status mlx_matrix(nb_export_job *x, const nb_stored *t, nb_json *config, nb_error *err)
{
    nb_str base;
    int64_t count = t->experts ? t->experts : 1;
    const nb_format_row *f = nb_format_info((nb_format)t->q.format);
    nb_status st = mlx_base(x, t, &base, err);
    if (st != NB_OK || t->expert) return st;
    if (t->pre_scale) return refuse(t, "MLX", with_factors, err);
    if (f->is_float) return add_part(x, t, count, base, ".weight", NB_EX_CODES, float_dtype(t), t->k, err);
    if (f->scale_kind == NB_SCALE_APART) return refuse(t, "MLX", "", err);
    st = add_part(x, t, count, base, ".weight", NB_EX_CODES, NB_DT_U32, t->k * f->bits / 32, err);
    bool affine = f->scale_kind == NB_SCALE_AFFINE;
    nb_dtype dt = affine ? (nb_dtype)t->q.scale_dtype : NB_DT_U8;
    if (st == NB_OK) st = add_part(x, t, count, base, ".scales", NB_EX_SCALES, dt, t->k / t->q.group, err);
    if (st == NB_OK && affine) st = add_part(x, t, count, base, ".biases", NB_EX_BIASES, dt, t->k / t->q.group, err);
    bool global = t->q.format == NB_NVFP4 && multiplied(t, count);
    if (st == NB_OK && global) {
        float *g = NB_NEW_N(x->arena, float, (size_t)count);
        for (int64_t e = 0; g && e < count; e++) g[e] = mlx_global(t[e].m);
        st =
            g ? add_bytes(x, base, ".global_scale", NB_DT_F32, 1, count, 0, g, (size_t)count * 4, err) : no_memory(err);
    }
    nb_json *entry = st == NB_OK ? mlx_entry(x, t, global) : NULL;
    if (st == NB_OK && (!entry || !nb_json_set(x->arena, config, base, entry))) st = no_memory(err);
    return st;
}

nb_status nb_ex_plan_mlx(nb_export_job *x, nb_error *err)
{
    nb_json *config = object(x);
    const nb_stored *first = NULL;
    size_t decoded = 0;
    nb_str name = {"", 0};
    for (size_t i = 0; i < x->blobs.n && !first; i++)
        if (x->blobs.t[i].matrix && !is_float(&x->blobs.t[i]) && !skipped(&x->blobs.t[i]) &&
            !mlx_decoded(&x->blobs.t[i]))
            first = &x->blobs.t[i];
    nb_status st = config ? NB_OK : no_memory(err);
    if (first && (!set_i64(x, config, "group_size", first->q.group) ||
                  !set_i64(x, config, "bits", nb_format_info((nb_format)first->q.format)->bits) ||
                  !set_str(x, config, "mode", mlx_mode(first))))
        st = no_memory(err);
    for (size_t i = 0; i < x->blobs.n && st == NB_OK; i++) {
        const nb_stored *t = &x->blobs.t[i];
        if (skipped(t)) continue;
        if (mlx_decoded(t)) {
            if (!decoded++) name = t->name;
            st = add_float(x, t, NB_DT_F32, err);
            continue;
        }
        st = t->matrix ? mlx_matrix(x, t, config, err) : nb_ex_plain(x, t, err);
    }
    if (st == NB_OK && decoded)
        nb_log(
            1,
            "%zu nvfp4 matrices are written as F32, since MLX's layers have no place for their multipliers: %.*s ...",
            decoded, NB_FMT_STR(name));
    if (st == NB_OK && first &&
        (!set(x, x->out_config, "quantization", config) || !set(x, x->out_config, "quantization_config", config)))
        st = no_memory(err);
    return st;
}

/* ---- FP8 with scales apart: the same tensors for both ---- */

/* Scales are [1], [n,1], [rows,cols] for compressed-tensors, and [], [n], [rows,1,cols,1] for ModelOpt. */
static nb_status fp8_matrix(nb_export_job *x, const nb_stored *t, nb_str base, nb_error *err)
{
    bool modelopt = x->o->as == NB_EXPORT_MODELOPT;
    int64_t br = (t->n + 127) / 128, bc = (t->k + 127) / 128;
    nb_status st = add_part(x, t, 1, base, ".weight", NB_EX_CODES, NB_DT_F8_E4M3, t->k, err);
    if (st != NB_OK) return st;
    if (t->q.format == NB_FP8_TENSOR)
        return add_bytes(x, base, ".weight_scale", NB_DT_F32, modelopt ? 0 : 1, 1, 0, &t->m, 4, err);
    if (t->q.format == NB_FP8_CHANNEL)
        return add_bytes(x, base, ".weight_scale", NB_DT_F32, modelopt ? 1 : 2, t->n, 1, t->row_scale, (size_t)t->n * 4,
                         err);
    st = add_bytes(x, base, ".weight_scale", NB_DT_F32, 2, br, bc, t->block_scale, (size_t)(br * bc) * 4, err);
    if (st != NB_OK || !modelopt) return st;
    nb_ex_tensor *e = &x->v[x->n - 1];
    int64_t four[4] = {br, 1, bc, 1};
    e->rank = 4;
    memcpy(e->dim, four, sizeof four);
    return NB_OK;
}

/* ---- compressed-tensors ---- */

typedef struct ct_group {
    nb_qtype q;
    bool symmetric;
    nb_json *targets;
} ct_group;
typedef struct ct_plan {
    ct_group g[32];
    size_t n;
    nb_json *ignore;
} ct_plan;

static nb_status ct_target(nb_export_job *x, ct_plan *p, const nb_stored *t, bool symmetric, nb_str base, nb_error *err)
{
    size_t i = 0;
    while (i < p->n && (!nb_qtype_eq(p->g[i].q, t->q) || p->g[i].symmetric != symmetric)) i++;
    if (i == p->n) {
        if (i == NB_COUNT(p->g))
            return nb_fail(err, NB_E_UNSUPPORTED, "more than %zu weight formats in one model", NB_COUNT(p->g));
        p->g[p->n++] = (ct_group){t->q, symmetric, nb_json_new(x->arena, NB_JSON_ARRAY)};
    }
    const nb_json *name = nb_json_new_str(x->arena, base);
    return p->g[i].targets && name && nb_json_push(x->arena, p->g[i].targets, name) ? NB_OK : no_memory(err);
}

static const char *ct_format(const ct_group *g)
{
    switch (g->q.format) {
    case NB_NVFP4: return "nvfp4-pack-quantized";
    case NB_MXFP4: return "mxfp4-pack-quantized";
    case NB_MXFP8: return "mxfp8-quantized";
    case NB_FP8_TENSOR:
    case NB_FP8_CHANNEL:
    case NB_FP8_BLOCK: return "float-quantized";
    default: return "pack-quantized";
    }
}

static const char *ct_strategy(const ct_group *g)
{
    switch (g->q.format) {
    case NB_NVFP4: return "tensor_group";
    case NB_FP8_TENSOR: return "tensor";
    case NB_FP8_CHANNEL: return "channel";
    case NB_FP8_BLOCK: return "block";
    default: return "group";
    }
}

/* The largest group is named by its classes, as the package's own files have it: a reader that stacks experts knows no
 * modules by their names. Other groups list their modules, which come before classes. */
static bool ct_classes(nb_export_job *x, ct_plan *p)
{
    size_t most = 0;
    for (size_t i = 1; i < p->n; i++)
        if (p->g[i].targets->count > p->g[most].targets->count) most = i;
    if (!p->n) return true;
    bool table = false, linear = false;
    for (uint32_t i = 0; i < p->g[most].targets->count; i++) {
        bool embedding = nb_str_ends(p->g[most].targets->items[i].text, "embed_tokens");
        table = table || embedding;
        linear = linear || !embedding;
    }
    nb_json *names = nb_json_new(x->arena, NB_JSON_ARRAY);
    const nb_json *a = nb_json_new_str(x->arena, NB_LIT("Linear")), *b = nb_json_new_str(x->arena, NB_LIT("Embedding"));
    bool ok = names && a && b && (!linear || nb_json_push(x->arena, names, a)) &&
              (!table || nb_json_push(x->arena, names, b));
    p->g[most].targets = names;
    return ok;
}

static nb_status ct_config(nb_export_job *x, ct_plan *p, nb_error *err)
{
    nb_json *q = object(x), *groups = object(x);
    bool ok = q && groups && ct_classes(x, p);
    for (size_t i = 0; i < p->n && ok; i++) {
        const ct_group *g = &p->g[i];
        const nb_format_row *f = nb_format_info((nb_format)g->q.format);
        bool is_int = f->scale_kind == NB_SCALE_AFFINE;
        nb_json *one = object(x), *w = object(x);
        char name[32];
        snprintf(name, sizeof name, "group_%zu", i);
        ok = set_i64(x, w, "num_bits", f->bits) && set_str(x, w, "type", is_int ? "int" : "float") &&
             set_str(x, w, "strategy", ct_strategy(g)) && set_bool(x, w, "symmetric", g->symmetric) &&
             set_bool(x, w, "dynamic", false);
        if (ok && (is_int || f->scale_kind == NB_SCALE_E4M3 || f->scale_kind == NB_SCALE_E8M0))
            ok = set_i64(x, w, "group_size", g->q.group);
        if (ok && g->q.format == NB_FP8_BLOCK) {
            nb_json *b = nb_json_new(x->arena, NB_JSON_ARRAY);
            const nb_json *v = nb_json_new_i64(x->arena, 128);
            ok = b && v && nb_json_push(x->arena, b, v) && nb_json_push(x->arena, b, v) &&
                 set(x, w, "block_structure", b);
        }
        ok = ok && set_str(x, one, "format", ct_format(g)) && set(x, one, "targets", g->targets) &&
             set(x, one, "weights", w) && set(x, groups, name, one);
    }
    ok = ok && set_str(x, q, "quant_method", "compressed-tensors") &&
         set_str(x, q, "quantization_status", "compressed") && set(x, q, "config_groups", groups) &&
         set(x, q, "ignore", p->ignore) && set_str(x, q, "format", p->n == 1 ? ct_format(&p->g[0]) : "mixed-precision");
    return ok && (!p->n || set(x, x->out_config, "quantization_config", q)) ? NB_OK : no_memory(err);
}

static nb_status ct_int(nb_export_job *x, const nb_stored *t, nb_str base, bool *symmetric, nb_error *err)
{
    nb_ex_affine kind;
    int64_t shape[2] = {t->n, t->k};
    int bits = nb_format_info((nb_format)t->q.format)->bits;
    nb_status st = nb_ex_affine_kind(t, &kind, err);
    if (st == NB_OK && !kind.integral)
        return refuse(t, "compressed-tensors", " with biases that are no whole zero points", err);
    *symmetric = kind.symmetric;
    if (st == NB_OK) st = add_part(x, t, 1, base, ".weight_packed", NB_EX_CODES, NB_DT_I32, t->k * bits / 32, err);
    if (st == NB_OK)
        st = add_part(x, t, 1, base, ".weight_scale", NB_EX_SCALES, (nb_dtype)t->q.scale_dtype, t->k / t->q.group, err);
    if (st == NB_OK) st = add_bytes(x, base, ".weight_shape", NB_DT_I64, 1, 2, 0, shape, sizeof shape, err);
    if (st != NB_OK || kind.symmetric) return st;
    nb_ex_tensor *z = nb_ex_push(x, base, ".weight_zero_point", NB_EX_ZEROS_PACKED, NB_DT_I32, err);
    if (!z) return NB_E_NO_MEMORY;
    z->t = t;
    dims(z, 0, (t->n * bits + 31) / 32, t->k / t->q.group);
    return NB_OK;
}

static nb_status ct_ignored(nb_export_job *x, ct_plan *p, nb_str base, nb_error *err)
{
    const nb_json *name = nb_json_new_str(x->arena, base);
    return name && nb_json_push(x->arena, p->ignore, name) ? NB_OK : no_memory(err);
}

static nb_status ct_matrix(nb_export_job *x, const nb_stored *t, ct_plan *p, nb_error *err)
{
    nb_str base;
    float inverse = 1.0f / t->m;
    bool symmetric = true;
    nb_status st = t->pre_scale ? refuse(t, "compressed-tensors", with_factors, err) : nb_ex_base(x, t, &base, err);
    if (st != NB_OK) return st;
    switch (t->q.format) {
    case NB_NVFP4:
        st = add_part(x, t, 1, base, ".weight_packed", NB_EX_CODES, NB_DT_U8, t->k / 2, err);
        if (st == NB_OK) st = add_part(x, t, 1, base, ".weight_scale", NB_EX_SCALES, NB_DT_F8_E4M3, t->k / 16, err);
        if (st == NB_OK) st = add_bytes(x, base, ".weight_global_scale", NB_DT_F32, 1, 1, 0, &inverse, 4, err);
        break;
    case NB_MXFP4:
    case NB_MXFP8:
        st = t->q.format == NB_MXFP4 ? add_part(x, t, 1, base, ".weight_packed", NB_EX_CODES, NB_DT_U8, t->k / 2, err)
                                     : add_part(x, t, 1, base, ".weight", NB_EX_CODES, NB_DT_F8_E4M3, t->k, err);
        if (st == NB_OK) st = add_part(x, t, 1, base, ".weight_scale", NB_EX_SCALES, NB_DT_U8, t->k / 32, err);
        break;
    case NB_FP8_TENSOR:
    case NB_FP8_CHANNEL:
    case NB_FP8_BLOCK: st = fp8_matrix(x, t, base, err); break;
    case NB_F32:
    case NB_F16:
    case NB_BF16: st = ct_ignored(x, p, base, err); return st == NB_OK ? add_float(x, t, float_dtype(t), err) : st;
    default: st = ct_int(x, t, base, &symmetric, err);
    }
    return st == NB_OK ? ct_target(x, p, t, symmetric, base, err) : st;
}

nb_status nb_ex_plan_ct(nb_export_job *x, nb_error *err)
{
    ct_plan p = {.ignore = nb_json_new(x->arena, NB_JSON_ARRAY)};
    nb_status st = p.ignore ? NB_OK : no_memory(err);
    for (size_t i = 0; i < x->blobs.n && st == NB_OK; i++) {
        const nb_stored *t = &x->blobs.t[i];
        if (skipped(t)) continue;
        st = t->matrix ? ct_matrix(x, t, &p, err) : nb_ex_plain(x, t, err);
        if (st == NB_OK && !t->matrix && t->rank == 2 && nb_str_ends(t->name, ".weight"))
            st = ct_ignored(x, &p, (nb_str){t->name.p, t->name.n - 7}, err);
    }
    return st == NB_OK ? ct_config(x, &p, err) : st;
}

/* ---- ModelOpt ---- */

static const char *modelopt_algo(const nb_stored *t)
{
    switch (t->q.format) {
    case NB_NVFP4: return t->pre_scale ? "NVFP4_AWQ" : "NVFP4";
    case NB_MXFP4: return "W4A8_MXFP4_FP8";
    case NB_MXFP8: return "MXFP8";
    case NB_FP8_TENSOR: return "FP8";
    case NB_FP8_CHANNEL: return "FP8_PER_CHANNEL_PER_TOKEN";
    case NB_FP8_BLOCK: return "FP8_PB_WO";
    case NB_INT4: return "W4A16_AWQ";
    default: return NULL;
    }
}

static nb_status modelopt_int4(nb_export_job *x, const nb_stored *t, nb_str base, nb_error *err)
{
    nb_ex_affine kind;
    nb_status st = nb_ex_affine_kind(t, &kind, err);
    if (st == NB_OK && !kind.symmetric) return refuse(t, "ModelOpt", " that is not symmetric", err);
    if (st == NB_OK && t->n % 2) /* two rows share a byte */
        return refuse(t, "ModelOpt", " with an odd number of rows", err);
    nb_ex_tensor *e = st == NB_OK ? nb_ex_push(x, base, ".weight", NB_EX_PAIRED, NB_DT_U8, err) : NULL;
    if (!e) return st == NB_OK ? NB_E_NO_MEMORY : st;
    e->t = t;
    dims(e, 0, t->n / 2, t->k);
    return add_part(x, t, 1, base, ".weight_scale", NB_EX_SCALES, (nb_dtype)t->q.scale_dtype, t->k / t->q.group, err);
}

static nb_status modelopt_matrix(nb_export_job *x, const nb_stored *t, nb_json *layers, nb_json *ignore, nb_error *err)
{
    nb_str base;
    nb_status st = nb_ex_base(x, t, &base, err);
    if (st != NB_OK) return st;
    const char *algo = modelopt_algo(t);
    const nb_json *name = nb_json_new_str(x->arena, base);
    if (!name) return no_memory(err);
    if (is_float(t))
        return nb_json_push(x->arena, ignore, name) ? add_float(x, t, float_dtype(t), err) : no_memory(err);
    if (!algo) return refuse(t, "ModelOpt", "", err);
    if (t->pre_scale && t->q.format != NB_NVFP4 && t->q.format != NB_INT4)
        return refuse(t, "ModelOpt", with_factors, err);
    switch (t->q.format) {
    case NB_NVFP4:
        st = add_part(x, t, 1, base, ".weight", NB_EX_CODES, NB_DT_U8, t->k / 2, err);
        if (st == NB_OK) st = add_part(x, t, 1, base, ".weight_scale", NB_EX_SCALES, NB_DT_F8_E4M3, t->k / 16, err);
        if (st == NB_OK) st = add_bytes(x, base, ".weight_scale_2", NB_DT_F32, 0, 0, 0, &t->m, 4, err);
        break;
    case NB_MXFP4:
        st = add_part(x, t, 1, base, ".weight", NB_EX_CODES, NB_DT_U8, t->k / 2, err);
        if (st == NB_OK) st = add_part(x, t, 1, base, ".weight_scale", NB_EX_SCALES, NB_DT_U8, t->k / 32, err);
        break;
    case NB_MXFP8:
        st = add_part(x, t, 1, base, ".weight", NB_EX_CODES, NB_DT_F8_E4M3, t->k, err);
        if (st == NB_OK) st = add_part(x, t, 1, base, ".weight_scale", NB_EX_SCALES, NB_DT_U8, t->k / 32, err);
        break;
    case NB_INT4: st = modelopt_int4(x, t, base, err); break;
    default: st = fp8_matrix(x, t, base, err);
    }
    if (st == NB_OK && t->pre_scale)
        st = add_bytes(x, base, ".pre_quant_scale", NB_DT_F32, 1, t->k, 0, t->pre_scale, (size_t)t->k * 4, err);
    nb_json *entry = object(x);
    bool grouped = nb_format_info((nb_format)t->q.format)->scale_kind != NB_SCALE_APART;
    bool ok = st == NB_OK && set_str(x, entry, "quant_algo", algo) &&
              (!grouped || set_i64(x, entry, "group_size", t->q.group)) && nb_json_set(x->arena, layers, base, entry);
    return st != NB_OK || ok ? st : no_memory(err);
}

/* hf_quant_config.json, which ModelOpt writes beside config.json and some of its readers ask for. */
static bool modelopt_file(nb_export_job *x, const nb_json *algo, const nb_json *group, const nb_json *ignore,
                          const nb_json *layers)
{
    nb_json *q = object(x), *producer = object(x);
    x->hf_quant = object(x);
    bool ok = set(x, q, "quant_algo", algo) && set(x, q, "kv_cache_quant_algo", nb_json_new(x->arena, NB_JSON_NULL)) &&
              (!group || set(x, q, "group_size", group)) && set(x, q, "exclude_modules", ignore) &&
              (!layers || set(x, q, "quantized_layers", layers));
    return ok && set_str(x, producer, "name", "nibble") && set_str(x, producer, "version", NB_VERSION) &&
           set(x, x->hf_quant, "producer", producer) && set(x, x->hf_quant, "quantization", q);
}

nb_status nb_ex_plan_modelopt(nb_export_job *x, nb_error *err)
{
    nb_json *layers = object(x), *ignore = nb_json_new(x->arena, NB_JSON_ARRAY), *q = object(x);
    const nb_stored *first = NULL;
    bool mixed = false;
    nb_status st = layers && ignore && q ? NB_OK : no_memory(err);
    for (size_t i = 0; i < x->blobs.n && st == NB_OK; i++) {
        const nb_stored *t = &x->blobs.t[i];
        if (skipped(t)) continue;
        st = t->matrix ? modelopt_matrix(x, t, layers, ignore, err) : nb_ex_plain(x, t, err);
        if (st != NB_OK || !t->matrix || !modelopt_algo(t)) continue;
        mixed = mixed || (first && (strcmp(modelopt_algo(first), modelopt_algo(t)) || first->q.group != t->q.group));
        if (!first) first = t;
    }
    if (st != NB_OK || !first) return st;
    const nb_json *algo = nb_json_new_str(x->arena, nb_str_of(mixed ? "MIXED_PRECISION" : modelopt_algo(first)));
    bool grouped = !mixed && nb_format_info((nb_format)first->q.format)->scale_kind != NB_SCALE_APART;
    const nb_json *group = grouped ? nb_json_new_i64(x->arena, first->q.group) : NULL;
    bool ok = (!grouped || group) && set_str(x, q, "quant_method", "modelopt") && set(x, q, "quant_algo", algo) &&
              set(x, q, "ignore", ignore) && (!mixed || set(x, q, "quantized_layers", layers)) &&
              (!group || set(x, q, "group_size", group));
    return ok && modelopt_file(x, algo, group, ignore, mixed ? layers : NULL) &&
                   set(x, x->out_config, "quantization_config", q)
               ? NB_OK
               : no_memory(err);
}
