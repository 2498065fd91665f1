/* Matrices stored row-major: read from their parts, and repacked where the kernels need tiles. Our own imports are
 * never repacked; stores with layout "standard" are. */
#include "model/load.h"

static nb_status no_memory(nb_error *err, nb_str name)
{
    return nb_fail(err, NB_E_NO_MEMORY, "tensor %.*s: out of memory", NB_FMT_STR(name));
}

static bool float_format(nb_dtype t, nb_format *f)
{
    *f = t == NB_DT_F32 ? NB_F32 : t == NB_DT_F16 ? NB_F16 : NB_BF16;
    return t == NB_DT_F32 || t == NB_DT_F16 || t == NB_DT_BF16;
}

static bool parse_number(nb_str s, int64_t *out)
{
    int64_t v = 0;
    if (s.n == 0 || s.n > 9) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        v = v * 10 + (s.p[i] - '0');
    }
    *out = v;
    return true;
}

/* quant_type and group_size: of the tensor, else of the blob. */
static nb_status standard_type(const nb_blob *b, const nb_st_tensor *t, nb_qtype *q, nb_error *err)
{
    nb_str text, group;
    nb_format f;
    if (float_format(t->dtype, &f)) {
        *q = nb_qtype_default(f);
        return NB_OK;
    }
    if (t->dtype != NB_DT_U32)
        return nb_net_bad_tensor(err, b, t->name, "dtype %s is not that of a weight", nb_dtype_name(t->dtype));
    if (!nb_net_blob_meta(b, t->name, ".quant_type", &text) &&
        !nb_net_blob_meta(b, (nb_str){"", 0}, "quant_type", &text))
        return nb_net_bad_tensor(err, b, t->name, "has no quant_type");
    char name[32];
    nb_text_clean(name, sizeof name, text.p, text.n);
    nb_status s = nb_qtype_parse(q, name, err);
    if (s != NB_OK) return nb_net_bad_tensor(err, b, t->name, "quant_type '%s' is not known", name);
    int64_t g = q->group;
    if ((nb_net_blob_meta(b, t->name, ".group_size", &group) ||
         nb_net_blob_meta(b, (nb_str){"", 0}, "group_size", &group)) &&
        !parse_number(group, &g))
        return nb_net_bad_tensor(err, b, t->name, "group_size '%.*s' is no number", (int)(group.n < 20 ? group.n : 20),
                                 group.p);
    bool affine = nb_format_info((nb_format)q->format)->scale_kind == NB_SCALE_AFFINE;
    if (affine ? g != 32 && g != 64 && g != 128 : g != q->group)
        return nb_net_bad_tensor(err, b, t->name, "group_size %lld does not fit %s", (long long)g, name);
    q->group = (uint16_t)g;
    const nb_st_tensor *scale = nb_net_blob_find(b, t->name, ".scale");
    if (affine && scale) q->scale_dtype = (uint8_t)scale->dtype;
    if (affine && q->scale_dtype != NB_DT_BF16 && q->scale_dtype != NB_DT_F16 && q->scale_dtype != NB_DT_F32)
        return nb_net_bad_tensor(err, b, t->name, "scale dtype is not a float type");
    return NB_OK;
}

/* One part beside the codes: present exactly where the format has it, and of the right size. */
static nb_status part(const nb_blob *b, const nb_st_tensor *t, const char *suffix, size_t row_bytes, int64_t rows,
                      uint8_t **p, size_t *stride, uint64_t *bytes, nb_error *err)
{
    *p = NULL;
    *stride = row_bytes;
    if (row_bytes == 0) return NB_OK;
    const nb_st_tensor *s = nb_net_blob_find(b, t->name, suffix);
    uint64_t want = 0;
    if (!s) return nb_net_bad_tensor(err, b, t->name, "has no %s beside it", suffix);
    if (!nb_mul_u64(row_bytes, (uint64_t)rows, &want) || s->len != want)
        return nb_net_bad_tensor(err, b, s->name, "has %llu bytes, expected %llu", (unsigned long long)s->len,
                                 (unsigned long long)want);
    *p = (uint8_t *)(uintptr_t)(b->p + s->off);
    *bytes += s->len;
    return NB_OK;
}

nb_status nb_net_standard_read(nb_network *net, const nb_blob *b, const nb_st_tensor *t, nb_standard *out,
                               nb_error *err)
{
    *out = (nb_standard){.name = t->name, .blob = b->layer->hex, .bytes = t->len};
    nb_status s = standard_type(b, t, &out->type, err);
    if (s != NB_OK) return s;
    int bits = nb_format_info((nb_format)out->type.format)->bits, last = t->rank - 1;
    if (t->rank != 2 && t->rank != 3) return nb_net_bad_tensor(err, b, t->name, "has rank %d", t->rank);
    out->experts = t->rank == 3 ? t->dim[0] : 0;
    out->n = t->dim[last - 1];
    out->k = t->dtype == NB_DT_U32 ? (t->dim[last] < INT32_MAX ? t->dim[last] * 32 / bits : 0) : t->dim[last];
    if (out->n < 1 || out->k < 1 || out->n > INT32_MAX || out->k > INT32_MAX || out->experts > 1 << 16 ||
        (t->rank == 3 && out->experts < 1))
        return nb_net_bad_tensor(err, b, t->name, "shape is out of range");
    size_t codes, scales, biases;
    int64_t rows = out->n * (out->experts ? out->experts : 1);
    uint64_t want = 0;
    if (!nb_parts_row_bytes(out->type, out->k, &codes, &scales, &biases))
        return nb_net_bad_tensor(err, b, t->name, "row length %lld does not fit %s", (long long)out->k,
                                 nb_format_info((nb_format)out->type.format)->name);
    if (!nb_mul_u64(codes, (uint64_t)rows, &want) || t->len != want)
        return nb_net_bad_tensor(err, b, t->name, "has %llu bytes, expected %llu", (unsigned long long)t->len,
                                 (unsigned long long)want);
    out->parts.codes = (uint8_t *)(uintptr_t)(b->p + t->off);
    out->parts.code_stride = codes;
    s = part(b, t, ".scale", scales, rows, &out->parts.scales, &out->parts.scale_stride, &out->bytes, err);
    if (s == NB_OK)
        s = part(b, t, ".bias", biases, rows, &out->parts.biases, &out->parts.bias_stride, &out->bytes, err);
    uint64_t e = out->experts ? (uint64_t)out->experts : 1;
    if (s == NB_OK) s = nb_net_companion(net, b, t->name, ".global_scale", e, &out->multiplier, err);
    if (s == NB_OK && !out->experts)
        s = nb_net_companion(net, b, t->name, ".row_scale", (uint64_t)out->n, &out->row_scale, err);
    if (s == NB_OK && !out->experts)
        s = nb_net_companion(net, b, t->name, ".block_scale",
                             (uint64_t)((out->n + 127) / 128) * (uint64_t)((out->k + 127) / 128), &out->block_scale,
                             err);
    if (s == NB_OK && !out->experts)
        s = nb_net_companion(net, b, t->name, ".pre_quant_scale", (uint64_t)out->k, &out->pre_scale, err);
    return s;
}

nb_status nb_net_repack_weight(nb_network *net, const nb_standard *s, nb_layout layout, nb_weight *w, bool *repacked,
                               nb_error *err)
{
    uint64_t bytes;
    *w = (nb_weight){.name = w->name,
                     .type = s->type,
                     .layout = layout,
                     .n = s->n,
                     .k = s->k,
                     .multiplier = s->multiplier ? s->multiplier[0] : 1,
                     .row_scale = s->row_scale,
                     .block_scale = s->block_scale,
                     .pre_scale = s->pre_scale};
    *repacked = true;
    if (layout == NB_LAYOUT_ROWS1) {
        size_t row;
        if (!nb_rows1_row_bytes(s->type, s->k, &row) || !nb_mul_u64(row, (uint64_t)s->n, &bytes))
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: size is out of range", NB_FMT_STR(s->name));
        if (!s->parts.scales && row == s->parts.code_stride) { /* codes alone: a record is a row */
            w->data = s->parts.codes;
            w->bytes = bytes;
            *repacked = false;
            return NB_OK;
        }
    } else if (!nb_rows16_bytes(s->type, s->n, s->k, &bytes)) {
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: size is out of range", NB_FMT_STR(s->name));
    }
    uint8_t *p = nb_net_blobs_pages(net->blobs, bytes);
    if (!p) return no_memory(err, s->name);
    if (layout == NB_LAYOUT_ROWS1)
        nb_rows1_pack(s->type, &s->parts, s->n, s->k, p);
    else
        nb_rows16_pack(s->type, &s->parts, s->n, s->k, p);
    w->data = p;
    w->bytes = bytes;
    return NB_OK;
}

nb_status nb_net_repack_bank(nb_network *net, const nb_standard *const proj[3], nb_bank *bank, nb_error *err)
{
    uint64_t size[3] = {0}, stride = 0, total;
    for (int i = 0; i < 3; i++) {
        const nb_standard *s = proj[i];
        if (!s) continue;
        if (bank->experts && bank->experts != (int32_t)s->experts)
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld experts, expected %d", NB_FMT_STR(s->name),
                           (long long)s->experts, (int)bank->experts);
        bank->experts = (int32_t)s->experts;
        if (!nb_rows16_bytes(s->type, s->n, s->k, &size[i]))
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: size is out of range", NB_FMT_STR(s->name));
        bank->proj[i] = (struct nb_bank_proj){
            .type = s->type, .n = s->n, .k = s->k, .offset = stride, .multiplier = s->multiplier, .bias = s->bias};
        if (!nb_add_u64(stride, size[i], &stride) || !nb_align_u64(stride, 64, &stride))
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: size is out of range", NB_FMT_STR(s->name));
    }
    if (!nb_align_u64(stride, 4096, &stride) || !nb_mul_u64(stride, (uint64_t)bank->experts, &total))
        return nb_fail(err, NB_E_INVALID, "%s: size is out of range", bank->name);
    uint8_t *p = nb_net_blobs_pages(net->blobs, total);
    if (!p) return nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", bank->name);
    bank->data = p;
    bank->stride = stride;
    for (int i = 0; i < 3; i++)
        for (int64_t e = 0; proj[i] && e < bank->experts; e++) {
            nb_parts one = proj[i]->parts;
            size_t row = (size_t)(e * proj[i]->n);
            one.codes += row * one.code_stride;
            if (one.scales) one.scales += row * one.scale_stride;
            if (one.biases) one.biases += row * one.bias_stride;
            nb_rows16_pack(proj[i]->type, &one, proj[i]->n, proj[i]->k,
                           p + (uint64_t)e * stride + bank->proj[i].offset);
        }
    return NB_OK;
}
