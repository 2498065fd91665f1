/* Blob tensors become weights, banks and vectors under their canonical names; the list is then compared with what the
 * architecture expects. */
#include "model/load.h"

#include <stdlib.h>

#define MAX_VECTOR (1 << 24) /* elements: what is larger is no parameter of a block */

typedef struct binder {
    nb_network *net;
    nb_error *err;
    nb_tensor_spec *specs;
    size_t n_specs;
    nb_map spec_of; /* canonical name -> number of the spec */
    uint8_t *seen;  /* [n_specs] */
    nb_net_tensor *out;
    nb_weight **weight; /* [cap] beside out: the same weight, writable */
    size_t n, cap;
    nb_standard *stacks; /* row-major stacks of experts, grouped at the end */
    size_t n_stacks, cap_stacks;
    uint32_t repacked;
} binder;

static nb_status no_memory(binder *b)
{
    return nb_fail(b->err, NB_E_NO_MEMORY, "out of memory while a model is opened");
}

static nb_net_tensor *add(binder *b, nb_str name, nb_role role, const nb_blob *blob)
{
    size_t cap = b->cap;
    if (!nb_arena_grow(b->net->arena, &b->out, b->n, &cap, sizeof *b->out, 256) ||
        !nb_arena_grow(b->net->arena, &b->weight, b->n, &b->cap, sizeof *b->weight, 256))
        return NULL;
    nb_net_tensor *t = &b->out[b->n];
    b->weight[b->n++] = NULL;
    *t = (nb_net_tensor){.name = nb_arena_str(b->net->arena, name), .role = role, .blob = blob->layer->hex};
    return t->name.p ? t : NULL;
}

static const nb_tensor_spec *spec_of(binder *b, nb_str canon)
{
    uint32_t i;
    if (!nb_map_get(&b->spec_of, canon, &i)) return NULL;
    b->seen[i] = 1;
    return &b->specs[i];
}

/* ---- metadata of packed tensors ---- */

static bool number(nb_str s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.n == 0 || s.n > 19) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        v = v * 10 + (uint64_t)(s.p[i] - '0');
    }
    *out = v;
    return true;
}

/* "[N,K]" */
static bool shape(nb_str s, int64_t *n, int64_t *k)
{
    const char *comma = s.n > 4 ? memchr(s.p, ',', s.n) : NULL;
    uint64_t a, b;
    if (!comma || s.p[0] != '[' || s.p[s.n - 1] != ']') return false;
    if (!number((nb_str){s.p + 1, (size_t)(comma - s.p) - 1}, &a) ||
        !number((nb_str){comma + 1, s.n - (size_t)(comma - s.p) - 2}, &b))
        return false;
    *n = (int64_t)a;
    *k = (int64_t)b;
    return a >= 1 && b >= 1 && a <= INT32_MAX && b <= INT32_MAX;
}

/* <key>.quant_type, .group_size, .scale_dtype, .shape */
static nb_status packed_type(binder *b, const nb_blob *blob, nb_str key, nb_qtype *q, int64_t *n, int64_t *k)
{
    nb_str type, text;
    uint64_t group;
    char name[32] = "";
    if (!nb_net_blob_meta(blob, key, ".quant_type", &type))
        return nb_net_bad_tensor(b->err, blob, key, "has no quant_type");
    nb_text_clean(name, sizeof name, type.p, type.n);
    if (nb_qtype_parse(q, name, b->err) != NB_OK)
        return nb_net_bad_tensor(b->err, blob, key, "quant_type '%s' is not known", name);
    bool affine = nb_format_info((nb_format)q->format)->scale_kind == NB_SCALE_AFFINE;
    if (nb_net_blob_meta(blob, key, ".group_size", &text)) {
        if (!number(text, &group) || (affine ? group != 32 && group != 64 && group != 128 : group != q->group))
            return nb_net_bad_tensor(b->err, blob, key, "group_size '%.*s' does not fit %s",
                                     (int)(text.n < 20 ? text.n : 20), text.p, name);
        q->group = (uint16_t)group;
    }
    if (affine && nb_net_blob_meta(blob, key, ".scale_dtype", &text)) {
        nb_dtype dt = nb_dtype_parse(text);
        if (dt != NB_DT_BF16 && dt != NB_DT_F16 && dt != NB_DT_F32)
            return nb_net_bad_tensor(b->err, blob, key, "scale_dtype '%.*s' is not a float type",
                                     (int)(text.n < 20 ? text.n : 20), text.p);
        q->scale_dtype = (uint8_t)dt;
    }
    if (!nb_net_blob_meta(blob, key, ".shape", &text) || !shape(text, n, k))
        return nb_net_bad_tensor(b->err, blob, key, "has no shape [N,K]");
    return NB_OK;
}

static bool positive(const float *v, uint64_t n)
{
    for (uint64_t i = 0; v && i < n; i++)
        if (!(v[i] > 0)) return false;
    return true;
}

/* ---- one packed matrix or table ---- */

static nb_status check_shape(binder *b, const nb_blob *blob, const nb_tensor_spec *spec, nb_str name, int64_t n,
                             int64_t k)
{
    if (!spec || ((spec->dim[0] < 0 || spec->dim[0] == n) && (spec->dim[1] < 0 || spec->dim[1] == k))) return NB_OK;
    return nb_net_bad_tensor(b->err, blob, name, "shape is [%lld,%lld], config.json says [%lld,%lld]", (long long)n,
                             (long long)k, (long long)spec->dim[0], (long long)spec->dim[1]);
}

static nb_status bind_weight(binder *b, const nb_blob *blob, const nb_st_tensor *t, nb_str canon, nb_layout layout)
{
    nb_network *net = b->net;
    nb_weight *w = NB_NEW(net->arena, nb_weight);
    const nb_tensor_spec *spec = spec_of(b, canon);
    nb_net_tensor *out = add(b, canon, layout == NB_LAYOUT_ROWS1 ? NB_ROLE_TABLE : NB_ROLE_LINEAR, blob);
    if (!w || !out) return no_memory(b);
    nb_status s = packed_type(b, blob, t->name, &w->type, &w->n, &w->k);
    if (s == NB_OK) s = check_shape(b, blob, spec, t->name, w->n, w->k);
    if (s != NB_OK) return s;
    uint64_t want = 0;
    size_t row = 0;
    bool fits = layout == NB_LAYOUT_ROWS16
                    ? nb_rows16_bytes(w->type, w->n, w->k, &want)
                    : nb_rows1_row_bytes(w->type, w->k, &row) && nb_mul_u64(row, (uint64_t)w->n, &want);
    if (!fits || t->dtype != NB_DT_U8 || t->len != want)
        return nb_net_bad_tensor(b->err, blob, t->name, "has %llu bytes, its type and shape need %llu",
                                 (unsigned long long)t->len, (unsigned long long)want);
    if (t->off % 64)
        return nb_net_bad_tensor(b->err, blob, t->name, "begins at byte %llu, which is not a multiple of 64",
                                 (unsigned long long)t->off);
    const float *m;
    s = nb_net_companion(net, blob, t->name, ".global_scale", 1, &m, b->err);
    if (s == NB_OK) s = nb_net_companion(net, blob, t->name, ".row_scale", (uint64_t)w->n, &w->row_scale, b->err);
    if (s == NB_OK)
        s = nb_net_companion(net, blob, t->name, ".block_scale",
                             (uint64_t)((w->n + 127) / 128) * (uint64_t)((w->k + 127) / 128), &w->block_scale, b->err);
    if (s == NB_OK) s = nb_net_companion(net, blob, t->name, ".pre_quant_scale", (uint64_t)w->k, &w->pre_scale, b->err);
    if (s != NB_OK) return s;
    if ((w->type.format == NB_NVFP4 || w->type.format == NB_FP8_TENSOR) && !m)
        return nb_net_bad_tensor(b->err, blob, t->name, "has no global_scale");
    if (!positive(m, 1)) return nb_net_bad_tensor(b->err, blob, t->name, "global_scale is not above 0");
    if (w->type.format == NB_FP8_CHANNEL && !w->row_scale)
        return nb_net_bad_tensor(b->err, blob, t->name, "has no row_scale");
    if (w->type.format == NB_FP8_BLOCK && !w->block_scale)
        return nb_net_bad_tensor(b->err, blob, t->name, "has no block_scale");
    w->multiplier = m ? *m : 1;
    w->name = out->name.p;
    w->layout = layout;
    w->data = blob->p + t->off;
    w->bytes = t->len;
    out->layout = layout;
    out->type = w->type;
    out->rank = 2;
    out->dim[0] = w->n;
    out->dim[1] = w->k;
    out->bytes = t->len + (m ? 4 : 0) + (w->row_scale ? (uint64_t)w->n * 4 : 0) +
                 (w->block_scale ? (uint64_t)((w->n + 127) / 128) * (uint64_t)((w->k + 127) / 128) * 4 : 0) +
                 (w->pre_scale ? (uint64_t)w->k * 4 : 0);
    out->weight = w;
    b->weight[b->n - 1] = w;
    return NB_OK;
}

/* ---- banks ---- */

static const char *const bank_keys[3] = {".gate", ".up", ".down"};
static const char *const proj_names[3] = {".gate_proj", ".up_proj", ".down_proj"};

/* The three projections of a bank as tensors of their own. */
static nb_status list_bank(binder *b, const nb_blob *blob, nb_str group, const nb_bank *bank, bool repacked)
{
    for (int i = 0; i < 3; i++) {
        const struct nb_bank_proj *p = &bank->proj[i];
        if (p->n == 0) continue;
        char *name = nb_arena_printf(b->net->arena, "%.*s%s.weight", NB_FMT_STR(group), proj_names[i]);
        nb_net_tensor *t = name ? add(b, nb_str_of(name), NB_ROLE_BANK, blob) : NULL;
        uint64_t size = 0;
        if (!t) return no_memory(b);
        if (!nb_rows16_bytes(p->type, p->n, p->k, &size))
            return nb_fail(b->err, NB_E_INVALID, "%s: size is out of range", name);
        t->layout = NB_LAYOUT_ROWS16;
        t->type = p->type;
        t->rank = 3;
        t->dim[0] = bank->experts;
        t->dim[1] = p->n;
        t->dim[2] = p->k;
        t->bytes = size * (uint64_t)bank->experts + (p->multiplier ? 4 * (uint64_t)bank->experts : 0);
        t->bank = bank;
        t->proj = i;
        t->repacked = repacked;
    }
    return NB_OK;
}

static nb_status check_bank(binder *b, const nb_blob *blob, nb_str group, const nb_bank *bank)
{
    const nb_tensor_spec *spec = spec_of(b, group);
    if (!spec) return NB_OK;
    if (spec->experts != bank->experts)
        return nb_net_bad_tensor(b->err, blob, group, "has %d experts, config.json says %d", (int)bank->experts,
                                 (int)spec->experts);
    for (int i = 0; i < 3; i++)
        if (spec->proj[i].n != bank->proj[i].n || (spec->proj[i].n && spec->proj[i].k != bank->proj[i].k))
            return nb_net_bad_tensor(b->err, blob, group, "%s is [%lld,%lld], config.json says [%lld,%lld]",
                                     proj_names[i] + 1, (long long)bank->proj[i].n, (long long)bank->proj[i].k,
                                     (long long)spec->proj[i].n, (long long)spec->proj[i].k);
    return NB_OK;
}

static nb_status bank_proj(binder *b, const nb_blob *blob, const nb_st_tensor *t, nb_str raw_group, nb_bank *bank,
                           int i)
{
    char key[1024], base[1024];
    nb_str text, where;
    uint64_t size, end, count = (uint64_t)bank->experts;
    struct nb_bank_proj *p = &bank->proj[i];
    if (t->name.n + 8 > sizeof key || raw_group.n + 12 > sizeof base)
        return nb_net_bad_tensor(b->err, blob, t->name, "name is too long");
    memcpy(key, t->name.p, t->name.n);
    strcpy(key + t->name.n, bank_keys[i]);
    memcpy(base, raw_group.p, raw_group.n);
    strcpy(base + raw_group.n, proj_names[i]);
    if (!nb_net_blob_meta(blob, nb_str_of(key), ".shape", &text)) return NB_OK;
    nb_status s = packed_type(b, blob, nb_str_of(key), &p->type, &p->n, &p->k);
    if (s != NB_OK) return s;
    if (!nb_net_blob_meta(blob, nb_str_of(key), ".offset", &where) || !number(where, &p->offset))
        return nb_net_bad_tensor(b->err, blob, t->name, "%s has no offset", bank_keys[i] + 1);
    /* Tiles are a multiple of 16 bytes, not of 64: with scales of one byte the next projection may begin between. */
    if (!nb_rows16_bytes(p->type, p->n, p->k, &size) || !nb_add_u64(p->offset, size, &end) || end > bank->stride ||
        p->offset % 16)
        return nb_net_bad_tensor(b->err, blob, t->name, "%s at %llu does not fit a record of %llu bytes",
                                 bank_keys[i] + 1, (unsigned long long)p->offset, (unsigned long long)bank->stride);
    if (nb_format_info((nb_format)p->type.format)->scale_kind == NB_SCALE_APART && p->type.format != NB_FP8_TENSOR)
        return nb_fail(b->err, NB_E_UNSUPPORTED, "tensor %.*s: %s banks are not supported by the forward",
                       NB_FMT_STR(t->name), nb_format_info((nb_format)p->type.format)->name);
    s = nb_net_companion(b->net, blob, nb_str_of(base), ".global_scale", count, &p->multiplier, b->err);
    if (s == NB_OK && (p->type.format == NB_NVFP4 || p->type.format == NB_FP8_TENSOR) && !p->multiplier)
        s = nb_net_bad_tensor(b->err, blob, t->name, "%s has no global_scale", proj_names[i] + 1);
    if (s == NB_OK && !positive(p->multiplier, count))
        s = nb_net_bad_tensor(b->err, blob, t->name, "%s: a global_scale is not above 0", proj_names[i] + 1);
    const nb_st_tensor *bias = nb_net_blob_find(blob, nb_str_of(base), ".bias");
    float *v = NULL;
    if (s == NB_OK && bias) s = nb_net_floats(b->net, blob, bias, count * (uint64_t)p->n, &v, b->err);
    p->bias = v;
    return s;
}

static nb_status bind_bank(binder *b, const nb_blob *blob, const nb_st_tensor *t, nb_str canon)
{
    nb_bank *bank = NB_NEW(b->net->arena, nb_bank);
    nb_str raw = {t->name.p, t->name.n - sizeof ".weight" + 1}, group = {canon.p, canon.n - sizeof ".weight" + 1};
    if (!bank) return no_memory(b);
    if (t->rank != 2 || t->dtype != NB_DT_U8 || t->dim[0] < 1 || t->dim[0] > 1 << 16 || t->dim[1] < 4096 ||
        t->dim[1] % 4096 || t->off % 64)
        return nb_net_bad_tensor(b->err, blob, t->name, "is no bank of records of a multiple of 4096 bytes");
    char *name = nb_arena_dup(b->net->arena, group.p, group.n);
    if (!name) return no_memory(b);
    *bank =
        (nb_bank){.name = name, .experts = (int32_t)t->dim[0], .data = blob->p + t->off, .stride = (uint64_t)t->dim[1]};
    nb_status s = NB_OK;
    for (int i = 0; s == NB_OK && i < 3; i++) s = bank_proj(b, blob, t, raw, bank, i);
    if (s == NB_OK && (bank->proj[1].n == 0 || bank->proj[2].n == 0))
        s = nb_net_bad_tensor(b->err, blob, t->name, "has no up or no down projection");
    if (s == NB_OK) s = check_bank(b, blob, group, bank);
    return s == NB_OK ? list_bank(b, blob, nb_str_of(name), bank, false) : s;
}

/* ---- row-major tensors ---- */

static nb_status bind_vector(binder *b, const nb_blob *blob, const nb_st_tensor *t, nb_str canon)
{
    nb_network *net = b->net;
    const nb_tensor_spec *spec = spec_of(b, canon);
    nb_net_tensor *out = add(b, canon, NB_ROLE_VECTOR, blob);
    uint64_t count = 0;
    if (!out) return no_memory(b);
    if (spec && spec->rank != t->rank)
        return nb_net_bad_tensor(b->err, blob, t->name, "has rank %d, expected %d", t->rank, spec->rank);
    for (int i = 0; spec && i < t->rank && i < 3; i++)
        if (spec->dim[i] >= 0 && spec->dim[i] != t->dim[i])
            return nb_net_bad_tensor(b->err, blob, t->name, "dimension %d is %lld, config.json says %lld", i,
                                     (long long)t->dim[i], (long long)spec->dim[i]);
    out->layout = NB_LAYOUT_STANDARD;
    out->type = nb_qtype_default(t->dtype == NB_DT_F16 ? NB_F16 : t->dtype == NB_DT_BF16 ? NB_BF16 : NB_F32);
    out->rank = t->rank < 3 ? t->rank : 3;
    for (int i = 0; i < out->rank; i++) out->dim[i] = t->dim[i];
    out->bytes = t->len;
    out->raw = blob->p + t->off;
    out->raw_dtype = t->dtype;
    bool is_float = t->dtype == NB_DT_F32 || t->dtype == NB_DT_F16 || t->dtype == NB_DT_BF16;
    if (!is_float || (!spec && t->rank > 1) || !nb_st_count(t, &count) || count > MAX_VECTOR) return NB_OK;
    float *v;
    nb_status s = nb_net_floats(net, blob, t, count, &v, b->err);
    if (s != NB_OK) return s;
    out->norm_offset = net->config.arch->norm_plus_one && nb_ends_any(canon, "norm.weight");
    if (out->norm_offset && !net->config.norm_has_one)
        for (uint64_t i = 0; i < count; i++) v[i] += 1.0f;
    out->vector = v;
    return NB_OK;
}

static nb_status bind_matrix(binder *b, const nb_blob *blob, const nb_st_tensor *t, nb_str canon,
                             const nb_tensor_spec *spec)
{
    nb_standard s;
    nb_layout layout = spec->role == NB_ROLE_TABLE ? NB_LAYOUT_ROWS1 : NB_LAYOUT_ROWS16;
    nb_status st = nb_net_standard_read(b->net, blob, t, &s, b->err);
    if (st != NB_OK) return st;
    if (s.experts) return nb_net_bad_tensor(b->err, blob, t->name, "has rank 3, expected 2");
    if ((st = check_shape(b, blob, spec, t->name, s.n, s.k)) != NB_OK) return st;
    nb_weight *w = NB_NEW(b->net->arena, nb_weight);
    nb_net_tensor *out = add(b, canon, spec->role, blob);
    if (!w || !out) return no_memory(b);
    w->name = out->name.p;
    bool repacked;
    if ((st = nb_net_repack_weight(b->net, &s, layout, w, &repacked, b->err)) != NB_OK) return st;
    b->repacked += repacked;
    out->layout = layout;
    out->type = s.type;
    out->rank = 2;
    out->dim[0] = s.n;
    out->dim[1] = s.k;
    out->bytes = s.bytes;
    out->weight = w;
    out->repacked = repacked;
    b->weight[b->n - 1] = w;
    return NB_OK;
}

/* "G.gate_proj.weight" of a row-major stack; *proj gets 0, 1, 2. */
static bool stack_name(nb_str name, nb_str *group, int *proj)
{
    static const char *const ends[3] = {".gate_proj.weight", ".up_proj.weight", ".down_proj.weight"};
    for (int i = 0; i < 3; i++)
        if (nb_str_ends(name, ends[i])) {
            *group = (nb_str){name.p, name.n - strlen(ends[i])};
            *proj = i;
            return true;
        }
    return false;
}

static nb_status collect_stack(binder *b, const nb_blob *blob, const nb_st_tensor *t, nb_str canon)
{
    if (!nb_arena_grow(b->net->arena, &b->stacks, b->n_stacks, &b->cap_stacks, sizeof *b->stacks, 256))
        return no_memory(b);
    nb_standard *s = &b->stacks[b->n_stacks];
    nb_status st = nb_net_standard_read(b->net, blob, t, s, b->err);
    if (st != NB_OK) return st;
    nb_str base = {t->name.p, t->name.n - sizeof ".weight" + 1};
    const nb_st_tensor *bias = nb_net_blob_find(blob, base, ".bias");
    float *v = NULL;
    if (bias && (st = nb_net_floats(b->net, blob, bias, (uint64_t)s->experts * (uint64_t)s->n, &v, b->err)) != NB_OK)
        return st;
    s->bias = v;
    s->canon = nb_arena_str(b->net->arena, canon);
    if (!s->canon.p) return no_memory(b);
    b->n_stacks++;
    return NB_OK;
}

static nb_status bind_stacks(binder *b)
{
    for (size_t i = 0; i < b->n_stacks; i++) {
        const nb_standard *proj[3] = {NULL};
        nb_str group, other;
        int p, q;
        if (!b->stacks[i].canon.p || !stack_name(b->stacks[i].canon, &group, &p)) continue;
        for (size_t k = i; k < b->n_stacks; k++)
            if (b->stacks[k].canon.p && stack_name(b->stacks[k].canon, &other, &q) && nb_str_eq(group, other))
                proj[q] = &b->stacks[k];
        nb_bank *bank = NB_NEW(b->net->arena, nb_bank);
        char *name = nb_arena_dup(b->net->arena, group.p, group.n);
        if (!bank || !name) return no_memory(b);
        bank->name = name;
        if (!proj[1] || !proj[2])
            return nb_fail(b->err, NB_E_INVALID, "tensor %s: has no up or no down projection", name);
        nb_status s = nb_net_repack_bank(b->net, proj, bank, b->err);
        if (s != NB_OK) return s;
        b->repacked += 3;
        const nb_blob *blob = NULL;
        for (size_t k = 0; k < b->net->blobs->n; k++)
            if (b->net->blobs->blob[k].layer->hex == proj[1]->blob) blob = &b->net->blobs->blob[k];
        if ((s = check_bank(b, blob, nb_str_of(name), bank)) != NB_OK ||
            (s = list_bank(b, blob, nb_str_of(name), bank, true)) != NB_OK)
            return s;
        for (size_t k = i; k < b->n_stacks; k++)
            for (int j = 0; j < 3; j++)
                if (proj[j] == &b->stacks[k]) b->stacks[k].canon.p = NULL;
    }
    return NB_OK;
}

/* ---- all of a blob ---- */

/* Companions are read with the tensor that they belong to. */
static bool is_companion(const nb_blob *blob, nb_str name)
{
    if (nb_ends_any(name, ".global_scale|.row_scale|.block_scale|.pre_quant_scale")) return true;
    if (nb_str_ends(name, ".scale")) return nb_net_blob_find(blob, (nb_str){name.p, name.n - 6}, "") != NULL;
    if (!nb_str_ends(name, ".bias")) return false;
    nb_str base = {name.p, name.n - 5};
    const nb_st_tensor *own = nb_net_blob_find(blob, base, ".weight");
    if (nb_net_blob_find(blob, base, ".scale") || (own && own->rank == 3)) return true;
    nb_str group;
    int proj;
    char text[1024];
    if (base.n + 8 > sizeof text) return false;
    memcpy(text, base.p, base.n);
    strcpy(text + base.n, ".weight");
    return stack_name(nb_str_of(text), &group, &proj) && nb_net_blob_find(blob, group, ".weight") != NULL;
}

static nb_status bind_tensor(binder *b, const nb_blob *blob, const nb_st_tensor *t, bool weights_only)
{
    nb_str text, canon = nb_arch_canonical(&b->net->config, t->name, b->net->arena), group;
    nb_layout layout = NB_LAYOUT_STANDARD;
    int proj;
    uint32_t i;
    if (!canon.p) return NB_OK;
    if (nb_net_blob_meta(blob, t->name, ".layout", &text) && !nb_layout_parse(&layout, text))
        return nb_fail(b->err, NB_E_UNSUPPORTED,
                       "blob sha256-%.12s: tensor %.*s: layout '%.*s' is not known to this version", blob->layer->hex,
                       NB_FMT_STR(t->name), (int)(text.n < 32 ? text.n : 32), text.p);
    if (layout != NB_LAYOUT_STANDARD) {
        bool single = nb_net_blob_meta(blob, t->name, ".shape", &text);
        if (!single && nb_str_ends(t->name, ".weight")) return bind_bank(b, blob, t, canon);
        return bind_weight(b, blob, t, canon, layout);
    }
    const nb_tensor_spec *spec = nb_map_get(&b->spec_of, canon, &i) ? &b->specs[i] : NULL;
    if (spec && (spec->role == NB_ROLE_LINEAR || spec->role == NB_ROLE_TABLE)) {
        b->seen[i] = 1;
        return bind_matrix(b, blob, t, canon, spec);
    }
    if (t->rank == 3 && stack_name(canon, &group, &proj) &&
        (nb_map_get(&b->spec_of, group, &i) || (weights_only && t->dtype == NB_DT_U32)))
        return collect_stack(b, blob, t, canon);
    return bind_vector(b, blob, t, canon);
}

static nb_status bind_blobs(binder *b, bool weights_only)
{
    struct nb_net_blobs *blobs = b->net->blobs;
    for (size_t k = 0; k < blobs->n; k++) {
        const nb_blob *blob = &blobs->blob[k];
        for (size_t i = 0; i < blob->head.n; i++) {
            const nb_st_tensor *t = &blob->head.tensors[i];
            if (is_companion(blob, t->name)) continue;
            nb_status s = bind_tensor(b, blob, t, weights_only);
            if (s != NB_OK) return s;
        }
    }
    return bind_stacks(b);
}

/* ---- the list as a whole ---- */

static nb_status expect(binder *b)
{
    nb_network *net = b->net;
    nb_config *c = &net->config;
    bool head = false;
    for (size_t k = 0; k < net->blobs->n && !head; k++)
        for (size_t i = 0; i < net->blobs->blob[k].head.n; i++) {
            nb_str name = net->blobs->blob[k].head.tensors[i].name;
            head |= nb_str_ends(name, "lm_head.weight") && !nb_begins_any(name, "draft.|mtp.");
        }
    if (!head) c->tie_embeddings = true;
    nb_status s = nb_arch_tensors(c, net->arena, &b->specs, &b->n_specs, b->err);
    if (s != NB_OK) return s;
    b->seen = NB_NEW_N(net->arena, uint8_t, b->n_specs + 1);
    if (!b->seen || !nb_map_init(&b->spec_of, b->n_specs)) return no_memory(b);
    for (size_t i = 0; i < b->n_specs; i++)
        if (!nb_map_put(&b->spec_of, b->specs[i].name, (uint32_t)i, NULL, NULL)) return no_memory(b);
    return NB_OK;
}

static int by_name(const void *x, const void *y)
{
    const nb_net_tensor *a = x, *b = y;
    return nb_str_cmp(a->name, b->name);
}

/* "X.bias" belongs to the matrix "X.weight". */
static void bind_biases(binder *b)
{
    for (size_t i = 0; i < b->n; i++) {
        nb_weight *w = b->weight[i];
        char name[1024];
        nb_str full = b->out[i].name;
        if (!w || !nb_str_ends(full, ".weight") || full.n >= sizeof name) continue;
        memcpy(name, full.p, full.n - 6);
        strcpy(name + full.n - 6, "bias");
        const nb_net_tensor *t = nb_network_find(b->net, nb_str_of(name));
        if (t && t->vector && t->rank == 1 && t->dim[0] == w->n) w->bias = t->vector;
    }
}

/* Draft models are no part of either sum, draft heads not of what a token reads. */
static void account(nb_network *net)
{
    for (size_t i = 0; i < net->n_tensors; i++) {
        const nb_net_tensor *t = &net->tensors[i];
        uint64_t n = 1;
        if (nb_begins_any(t->name, "draft.")) continue;
        for (int k = 0; k < t->rank; k++) n *= (uint64_t)t->dim[k];
        net->parameters += n;
        if (nb_begins_any(t->name, "mtp.|vision|model.vision|model.visual|audio|model.audio")) continue;
        if (t->role == NB_ROLE_TABLE)
            net->token_bytes += t->dim[0] > 0 ? t->bytes / (uint64_t)t->dim[0] : 0;
        else if (t->role == NB_ROLE_BANK)
            net->token_bytes += t->bytes / (uint64_t)t->dim[0] *
                                (uint64_t)(net->config.experts_used > 0 ? net->config.experts_used : 1);
        else if (t->role == NB_ROLE_LINEAR || t->vector)
            net->token_bytes += t->bytes;
    }
    for (size_t k = 0; k < net->blobs->n; k++) net->mapped_bytes += net->blobs->blob[k].layer->size;
}

static nb_status finish(binder *b, bool weights_only)
{
    nb_network *net = b->net;
    for (size_t i = 0; i < b->n_specs && !weights_only; i++)
        if (!b->seen[i] && !b->specs[i].optional)
            return nb_fail(b->err, NB_E_INVALID, "the model lacks tensor %.*s", NB_FMT_STR(b->specs[i].name));
    /* Sort an index beside the writable weights: both arrays follow the names. */
    for (size_t i = 0; i < b->n; i++) b->out[i].weight = b->weight[i];
    if (b->n) qsort(b->out, b->n, sizeof *b->out, by_name);
    for (size_t i = 0; i < b->n; i++) b->weight[i] = (nb_weight *)(uintptr_t)b->out[i].weight;
    for (size_t i = 1; i < b->n; i++)
        if (nb_str_eq(b->out[i].name, b->out[i - 1].name))
            return nb_fail(b->err, NB_E_INVALID, "tensor %.*s is in two blobs", NB_FMT_STR(b->out[i].name));
    net->tensors = b->out;
    net->n_tensors = b->n;
    bind_biases(b);
    account(net);
    if (b->repacked)
        nb_log(2,
               "%u tensors are stored row-major and were repacked into memory; importing again with --layout rows16 "
               "starts faster",
               b->repacked);
    return NB_OK;
}

nb_status nb_net_bind(nb_network *net, bool weights_only, nb_error *err)
{
    binder b = {.net = net, .err = err};
    nb_status s = expect(&b);
    if (s == NB_OK) s = bind_blobs(&b, weights_only);
    if (s == NB_OK) s = finish(&b, weights_only);
    nb_map_free(&b.spec_of);
    return s;
}

const nb_net_tensor *nb_network_find(const nb_network *net, nb_str name)
{
    size_t lo = 0, hi = net->n_tensors;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = nb_str_cmp(net->tensors[mid].name, name);
        if (c == 0) return &net->tensors[mid];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
