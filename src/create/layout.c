/* create/layout: what one blob holds: its tensors in data order, its metadata, its header and size. design.md 3,
 * specs/create.md 6.1. */
#include "create/plan.h"

#include <stdio.h>

#define MAX_OUTS 24
#define MAX_META 32

typedef struct layout_build {
    nb_job *j;
    nb_item *it;
    nb_st_out out[MAX_OUTS];
    struct nb_item_out src[MAX_OUTS];
    size_t n;
    nb_st_kv meta[MAX_META];
    size_t n_meta;
    bool oom;
} layout_build;

static void add_meta(layout_build *b, nb_str prefix, const char *key, const char *fmt, ...) NB_PRINTF(4, 5);
static void add_meta(layout_build *b, nb_str prefix, const char *key, const char *fmt, ...)
{
    char text[128];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    char *k = nb_arena_printf(b->j->arena, "%.*s%s", NB_FMT_STR(prefix), key);
    char *v = nb_arena_dup(b->j->arena, text, n < 0 ? 0 : (size_t)n);
    if (!k || !v || b->n_meta == MAX_META)
        b->oom = true;
    else
        b->meta[b->n_meta++] = (nb_st_kv){nb_str_of(k), nb_str_of(v)};
}

static void add_out(layout_build *b, int what, int proj, nb_str base, const char *suffix, nb_dtype dt, int rank,
                    int64_t d0, int64_t d1, int64_t d2)
{
    char *name = nb_arena_printf(b->j->arena, "%.*s%s", NB_FMT_STR(base), suffix);
    if (!name || b->n == MAX_OUTS) {
        b->oom = true;
        return;
    }
    b->out[b->n] = (nb_st_out){.name = nb_str_of(name), .dtype = dt, .rank = (uint8_t)rank, .dim = {d0, d1, d2}};
    b->src[b->n++] = (struct nb_item_out){(uint8_t)what, (uint8_t)proj};
}

static void type_meta(layout_build *b, nb_str prefix, const nb_item_proj *p)
{
    const nb_format_row *f = nb_format_info((nb_format)p->type.format);
    add_meta(b, prefix, ".quant_type", "%s", f->name);
    add_meta(b, prefix, ".group_size", "%u", (unsigned)p->type.group);
    if (p->type.scale_dtype != NB_DT_NONE)
        add_meta(b, prefix, ".scale_dtype", "%s", nb_dtype_name((nb_dtype)p->type.scale_dtype));
    add_meta(b, prefix, ".shape", "[%lld,%lld]", (long long)p->n, (long long)p->k);
}

static bool has_global(const nb_item_proj *p) { return p->type.format == NB_NVFP4 || p->type.format == NB_FP8_TENSOR; }

/* F32 companions; `base` is the tensor's name without the suffix that companions take ("X.weight", or "G.gate_proj").
 */
static void add_f32_companions(layout_build *b, int i, nb_str base)
{
    const nb_item *it = b->it;
    const nb_item_proj *p = &it->proj[i];
    int64_t e = it->experts;
    bool bank = it->kind == NB_ITEM_BANK;
    if (has_global(p)) add_out(b, NB_OUT_GLOBAL, i, base, ".global_scale", NB_DT_F32, 1, bank ? e : 1, 0, 0);
    if (p->native && p->m[0].row_scale) {
        if (bank)
            add_out(b, NB_OUT_ROW_SCALE, i, base, ".row_scale", NB_DT_F32, 2, e, p->n, 0);
        else
            add_out(b, NB_OUT_ROW_SCALE, i, base, ".row_scale", NB_DT_F32, 1, p->n, 0, 0);
    }
    if (p->native && p->m[0].block_scale) {
        int64_t br = (p->n + 127) / 128, bc = (p->k + 127) / 128;
        if (bank)
            add_out(b, NB_OUT_BLOCK_SCALE, i, base, ".block_scale", NB_DT_F32, 3, e, br, bc);
        else
            add_out(b, NB_OUT_BLOCK_SCALE, i, base, ".block_scale", NB_DT_F32, 2, br, bc, 0);
    }
    if (p->native && p->m[0].pre_scale && it->kind == NB_ITEM_MATRIX)
        add_out(b, NB_OUT_PRE_SCALE, i, base, ".pre_quant_scale", NB_DT_F32, 1, p->k, 0, 0);
}

/* "X.weight" for a matrix, "G.gate_proj" for a bank's projection. */
static nb_str companion_base(const nb_item *it, int i)
{
    nb_str s = it->proj[i].name;
    if (it->kind == NB_ITEM_BANK && !it->stacked && nb_str_ends(s, ".weight")) s.n -= 7;
    return s;
}

static void add_out_bias(layout_build *b, int i)
{
    const nb_item_proj *p = &b->it->proj[i];
    nb_str base = p->name;
    if (!p->out_bias) return;
    if (nb_str_ends(base, ".weight")) base.n -= 7;
    add_out(b, NB_OUT_BIAS, i, base, ".bias", p->out_bias->dtype, 2, b->it->experts, p->n, 0);
}

static void build_packed(layout_build *b)
{
    nb_item *it = b->it;
    if (it->kind == NB_ITEM_MATRIX) {
        nb_item_proj *p = &it->proj[0];
        add_out(b, NB_OUT_PACKED, 0, p->name, "", NB_DT_U8, 1, (int64_t)p->bytes, 0, 0);
        add_meta(b, p->name, ".layout", "%s", nb_layout_name(it->layout));
        type_meta(b, p->name, p);
    } else {
        nb_str name = nb_str_of(nb_arena_printf(b->j->arena, "%.*s.weight", NB_FMT_STR(it->name)));
        if (!name.p) {
            b->oom = true;
            return;
        }
        add_out(b, NB_OUT_PACKED, 0, name, "", NB_DT_U8, 2, it->experts, (int64_t)it->stride, 0);
        add_meta(b, name, ".layout", "%s", nb_layout_name(it->layout));
        for (int i = 0; i < it->n_proj; i++) {
            char *prefix = nb_arena_printf(b->j->arena, "%.*s.%s", NB_FMT_STR(name), it->proj[i].key);
            if (!prefix)
                b->oom = true;
            else {
                type_meta(b, nb_str_of(prefix), &it->proj[i]);
                add_meta(b, nb_str_of(prefix), ".offset", "%llu", (unsigned long long)it->proj[i].offset);
            }
        }
    }
    for (int i = 0; i < it->n_proj; i++) add_f32_companions(b, i, companion_base(it, i));
    for (int i = 0; i < it->n_proj; i++) add_out_bias(b, i);
}

static nb_dtype affine_scale(const nb_item_proj *p)
{
    switch (nb_format_info((nb_format)p->type.format)->scale_kind) {
    case NB_SCALE_E4M3:
    case NB_SCALE_E8M0: return NB_DT_U8;
    case NB_SCALE_AFFINE: return (nb_dtype)p->type.scale_dtype;
    default: return NB_DT_NONE;
    }
}

static void standard_codes(layout_build *b, int i)
{
    nb_item *it = b->it;
    nb_item_proj *p = &it->proj[i];
    const nb_format_row *f = nb_format_info((nb_format)p->type.format);
    nb_dtype dt = p->type.format == NB_F32    ? NB_DT_F32
                  : p->type.format == NB_F16  ? NB_DT_F16
                  : p->type.format == NB_BF16 ? NB_DT_BF16
                                              : NB_DT_U32;
    if (dt == NB_DT_U32 && p->k * f->bits % 32) dt = NB_DT_U8; /* FP8 rows need not be whole words */
    int64_t cols = dt == NB_DT_U32 ? p->k * f->bits / 32 : dt == NB_DT_U8 ? p->k * f->bits / 8 : p->k;
    if (it->stacked)
        add_out(b, NB_OUT_CODES, i, p->name, "", dt, 3, it->experts, p->n, cols);
    else
        add_out(b, NB_OUT_CODES, i, p->name, "", dt, 2, p->n, cols, 0);
}

static void standard_scales(layout_build *b, int i, int what)
{
    nb_item *it = b->it;
    nb_item_proj *p = &it->proj[i];
    int64_t groups = p->k / p->type.group;
    const char *suffix = what == NB_OUT_SCALES ? ".scale" : ".bias";
    if (it->stacked)
        add_out(b, what, i, p->name, suffix, affine_scale(p), 3, it->experts, p->n, groups);
    else
        add_out(b, what, i, p->name, suffix, affine_scale(p), 2, p->n, groups, 0);
}

/* Codes in name order, then F32, 2-byte and 1-byte tensors (specs/create.md 6.1). */
static void build_standard(layout_build *b)
{
    static const nb_dtype widths[3][2] = {{NB_DT_F32, NB_DT_F32}, {NB_DT_BF16, NB_DT_F16}, {NB_DT_U8, NB_DT_U8}};
    nb_item *it = b->it;
    int order[3] = {0, 1, 2};
    for (int i = 0; i < it->n_proj; i++)
        for (int k = i + 1; k < it->n_proj; k++)
            if (nb_str_cmp(it->proj[order[k]].name, it->proj[order[i]].name) < 0) {
                int t = order[i];
                order[i] = order[k];
                order[k] = t;
            }
    for (int i = 0; i < it->n_proj; i++) standard_codes(b, order[i]);
    for (int w = 0; w < 3; w++)
        for (int i = 0; i < it->n_proj; i++) {
            nb_item_proj *p = &it->proj[order[i]];
            nb_dtype dt = affine_scale(p);
            if (w == 0) add_f32_companions(b, order[i], companion_base(it, order[i]));
            if (p->out_bias && (w == 0 ? p->out_bias->dtype == NB_DT_F32 : w == 1 && p->out_bias->dtype != NB_DT_F32))
                add_out_bias(b, order[i]);
            if (dt == NB_DT_NONE || (dt != widths[w][0] && dt != widths[w][1])) continue;
            standard_scales(b, order[i], NB_OUT_SCALES);
            if (nb_format_info((nb_format)p->type.format)->scale_kind == NB_SCALE_AFFINE)
                standard_scales(b, order[i], NB_OUT_BIASES);
        }
}

/* quant_type and group_size of the whole blob, or per tensor where the projections differ. */
static void standard_meta(layout_build *b)
{
    nb_item *it = b->it;
    bool same = true;
    for (int i = 1; i < it->n_proj; i++) same = same && nb_qtype_eq(it->proj[i].type, it->proj[0].type);
    for (int i = 0; i < it->n_proj; i++) {
        nb_item_proj *p = &it->proj[i];
        const nb_format_row *f = nb_format_info((nb_format)p->type.format);
        if (f->is_float || (same && i > 0)) continue;
        nb_str prefix = same ? (nb_str){"", 0} : p->name;
        add_meta(b, prefix, same ? "quant_type" : ".quant_type", "%s", f->name);
        add_meta(b, prefix, same ? "group_size" : ".group_size", "%u", (unsigned)p->type.group);
    }
}

static void build_plain(layout_build *b)
{
    nb_item *it = b->it;
    nb_st_out *o = &b->out[0];
    *o = (nb_st_out){.name = it->name, .dtype = it->plain_dtype, .rank = it->src->rank};
    memcpy(o->dim, it->src->dim, sizeof o->dim);
    if (nb_str_ends(it->name, "conv1d.weight") && o->rank == 3 &&
        o->dim[2] == 1) { /* MLX has [C, K, 1]: the same bytes */
        o->dim[2] = o->dim[1];
        o->dim[1] = 1;
    }
    b->src[0] = (struct nb_item_out){NB_OUT_PLAIN, 0};
    b->n = 1;
}

nb_status nb_item_layout(nb_job *j, nb_item *it, nb_error *err)
{
    layout_build b = {.j = j, .it = it};
    it->source = &j->src;
    add_meta(&b, (nb_str){"", 0}, "format_version", "2");
    if (it->kind == NB_ITEM_PLAIN)
        build_plain(&b);
    else {
        add_meta(&b, (nb_str){"", 0}, "source", "%s", it->proj[0].m[0].reader->name);
        if (it->layout == NB_LAYOUT_STANDARD) {
            build_standard(&b);
            standard_meta(&b);
        } else {
            build_packed(&b);
        }
    }
    it->outs = NB_NEW_N(j->arena, nb_st_out, b.n);
    it->out_src = NB_NEW_N(j->arena, struct nb_item_out, b.n);
    if (b.oom || !it->outs || !it->out_src)
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory planning %.*s", NB_FMT_STR(it->name));
    memcpy(it->outs, b.out, b.n * sizeof *b.out);
    memcpy(it->out_src, b.src, b.n * sizeof *b.src);
    it->n_outs = b.n;
    nb_buf header = {0};
    bool packed = it->kind != NB_ITEM_PLAIN && it->layout != NB_LAYOUT_STANDARD;
    nb_status st =
        nb_st_header(&header, it->outs, it->n_outs, b.meta, b.n_meta, packed ? 4096 : 64, &it->bytes, NULL, err);
    if (st == NB_OK && !packed && it->bytes >= 65536) {
        header.n = 0;
        st = nb_st_header(&header, it->outs, it->n_outs, b.meta, b.n_meta, 4096, &it->bytes, NULL, err);
    }
    if (st == NB_OK) {
        it->header = (nb_str){nb_arena_dup(j->arena, header.p, header.n), header.n};
        if (!it->header.p) st = nb_fail(err, NB_E_NO_MEMORY, "out of memory planning %.*s", NB_FMT_STR(it->name));
    }
    nb_buf_free(&header);
    return st;
}
