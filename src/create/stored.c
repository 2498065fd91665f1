/* create/stored: reads a stored model back, whatever layout its blobs have. Sizes are checked here, so that what
 * follows may trust the pointers. */
#include "create/stored.h"
#include "create/producer.h"

bool nb_blob_meta(const nb_st_file *f, nb_str tensor, const char *key, nb_str *v)
{
    nb_buf b = {0};
    nb_buf_add_str(&b, tensor);
    nb_buf_add_cstr(&b, key);
    bool hit = nb_buf_cstr(&b) && nb_st_meta(f, b.p, v);
    nb_buf_free(&b);
    return hit;
}

bool nb_parse_i64(nb_str s, int64_t *out)
{
    nb_json v = {.type = NB_JSON_NUMBER, .text = s};
    return s.n && s.n < 20 && nb_json_i64(&v, out);
}

/* "[N,K]" */
static bool parse_shape(nb_str s, int64_t *n, int64_t *k)
{
    const char *comma = s.n > 4 ? memchr(s.p, ',', s.n) : NULL;
    if (!comma || s.p[0] != '[' || s.p[s.n - 1] != ']') return false;
    nb_str a = {s.p + 1, (size_t)(comma - s.p - 1)}, b = {comma + 1, (size_t)(s.p + s.n - 1 - (comma + 1))};
    return nb_parse_i64(a, n) && nb_parse_i64(b, k) && *n > 0 && *k > 0 && *k <= NB_MAX_COLUMNS && *n <= INT32_MAX;
}

static bool parse_type(nb_str type, nb_str group, nb_qtype *q)
{
    int64_t g;
    for (int f = 0; f < NB_FORMAT_COUNT; f++)
        if (nb_str_is(type, nb_format_info((nb_format)f)->name)) {
            *q = nb_qtype_default((nb_format)f);
            if (group.n && (!nb_parse_i64(group, &g) || g < 1 || g > 256)) return false;
            if (group.n) q->group = (uint16_t)g;
            return true;
        }
    return false;
}

bool nb_blob_packed(const nb_st_file *f, nb_str prefix, nb_packed *p)
{
    nb_str type, group, dt, shape;
    memset(p, 0, sizeof *p);
    if (!nb_blob_meta(f, prefix, ".quant_type", &type) || !nb_blob_meta(f, prefix, ".group_size", &group) ||
        !nb_blob_meta(f, prefix, ".shape", &shape))
        return false;
    if (!parse_type(type, group, &p->q)) return false;
    if (nb_blob_meta(f, prefix, ".scale_dtype", &dt)) p->q.scale_dtype = (uint8_t)nb_dtype_parse(dt);
    return parse_shape(shape, &p->n, &p->k);
}

/* ---- collecting ---- */

typedef struct collect {
    nb_model_blobs *b;
    const nb_st_file *f;
    const uint8_t *p;
    nb_str layer;
    nb_error *err;
} collect;

static nb_status damaged(collect *c, nb_str tensor)
{
    return nb_fail(c->err, NB_E_INVALID, "blob %.*s: tensor %.*s does not fit its metadata (E_VERIFY)",
                   NB_FMT_STR(c->layer), NB_FMT_STR(tensor));
}

static nb_stored *push(nb_model_blobs *b)
{
    if (!nb_arena_grow(b->arena, &b->t, b->n, &b->cap, sizeof *b->t, 512)) return NULL;
    nb_stored *t = &b->t[b->n++];
    *t = (nb_stored){.m = 1.0f};
    return t;
}

/* A companion of exactly `bytes` bytes per expert; NULL: absent. */
static const uint8_t *companion(const collect *c, nb_str base, const char *suffix, uint64_t experts, uint64_t bytes,
                                int64_t expert)
{
    nb_buf b = {0};
    nb_buf_add_str(&b, base);
    nb_buf_add_cstr(&b, suffix);
    const nb_st_tensor *t = b.oom ? NULL : nb_st_find(c->f, nb_buf_str(&b));
    nb_buf_free(&b);
    return t && t->len == experts * bytes ? c->p + t->off + (uint64_t)expert * bytes : NULL;
}

/* Multipliers of one matrix; false: one that its format needs is missing. */
static bool multipliers(collect *c, nb_stored *t, nb_str base, uint64_t experts)
{
    const uint8_t *g;
    if (!t->experts) t->pre_scale = companion(c, base, ".pre_quant_scale", 1, (uint64_t)t->k * 4, 0);
    switch (t->q.format) {
    case NB_NVFP4:
    case NB_FP8_TENSOR:
        g = companion(c, base, ".global_scale", experts, 4, t->expert);
        if (g) t->m = nb_f32_bits(nb_load_u32(g));
        return g != NULL;
    case NB_FP8_CHANNEL:
        return (t->row_scale = companion(c, base, ".row_scale", experts, (uint64_t)t->n * 4, t->expert)) != NULL;
    case NB_FP8_BLOCK:
        t->block_scale = companion(c, base, ".block_scale", experts,
                                   (uint64_t)((t->n + 127) / 128) * (uint64_t)((t->k + 127) / 128) * 4, t->expert);
        return t->block_scale != NULL;
    default: return true;
    }
}

static nb_status take_matrix(collect *c, const nb_st_tensor *st, nb_layout layout)
{
    nb_packed p;
    uint64_t bytes = 0;
    nb_stored *t = push(c->b);
    if (!t) return nb_fail(c->err, NB_E_NO_MEMORY, "out of memory");
    if (!nb_blob_packed(c->f, st->name, &p) || !nb_plan_bytes(layout, p.q, p.n, p.k, &bytes) || bytes != st->len)
        return damaged(c, st->name);
    *t = (nb_stored){.name = st->name,
                     .matrix = true,
                     .q = p.q,
                     .layout = layout,
                     .n = p.n,
                     .k = p.k,
                     .data = c->p + st->off,
                     .bytes = bytes,
                     .m = 1.0f};
    return multipliers(c, t, st->name, 1) ? NB_OK : damaged(c, st->name);
}

static nb_status take_bank(collect *c, const nb_st_tensor *st)
{
    static const char *const keys[] = {"gate", "up", "down"};
    nb_str group = {st->name.p, st->name.n - 7};
    if (!nb_str_ends(st->name, ".weight")) return damaged(c, st->name);
    for (size_t i = 0; i < NB_COUNT(keys); i++) {
        nb_packed p;
        nb_str text;
        int64_t off;
        uint64_t bytes;
        char *prefix = nb_arena_printf(c->b->arena, "%.*s.%s", NB_FMT_STR(st->name), keys[i]);
        char *name = nb_arena_printf(c->b->arena, "%.*s.%s_proj.weight", NB_FMT_STR(group), keys[i]);
        if (!prefix || !name) return nb_fail(c->err, NB_E_NO_MEMORY, "out of memory");
        if (!nb_blob_meta(c->f, nb_str_of(prefix), ".quant_type", &text)) continue;
        if (!nb_blob_packed(c->f, nb_str_of(prefix), &p) || !nb_blob_meta(c->f, nb_str_of(prefix), ".offset", &text) ||
            !nb_parse_i64(text, &off) || off < 0 || !nb_rows16_bytes(p.q, p.n, p.k, &bytes) ||
            bytes > (uint64_t)st->dim[1] || (uint64_t)off > (uint64_t)st->dim[1] - bytes)
            return damaged(c, st->name);
        for (int64_t e = 0; e < st->dim[0]; e++) {
            nb_stored *t = push(c->b);
            if (!t) return nb_fail(c->err, NB_E_NO_MEMORY, "out of memory");
            *t = (nb_stored){.name = nb_str_of(name),
                             .matrix = true,
                             .q = p.q,
                             .layout = NB_LAYOUT_ROWS16,
                             .n = p.n,
                             .k = p.k,
                             .expert = e,
                             .experts = st->dim[0],
                             .m = 1.0f,
                             .data = c->p + st->off + (uint64_t)e * (uint64_t)st->dim[1] + (uint64_t)off,
                             .bytes = bytes};
            if (!multipliers(c, t, (nb_str){name, strlen(name) - 7}, (uint64_t)st->dim[0])) return damaged(c, st->name);
        }
    }
    return NB_OK;
}

/* A quantised matrix of the standard layout, or a stack of them. */
static nb_status take_standard(collect *c, const nb_st_tensor *st, nb_qtype q, const nb_st_tensor *scale)
{
    const nb_format_row *f = nb_format_info((nb_format)q.format);
    int64_t rows = st->dim[st->rank - 2], words = st->dim[st->rank - 1], experts = st->rank == 3 ? st->dim[0] : 0,
            lead = experts ? experts : 1;
    int64_t k = f->is_float ? words : words * (st->dtype == NB_DT_U32 ? 32 : 8) / f->bits;
    size_t cb, sb, bb;
    if (scale && f->scale_kind == NB_SCALE_AFFINE) q.scale_dtype = (uint8_t)scale->dtype;
    if (!nb_parts_row_bytes(q, k, &cb, &sb, &bb) || st->len != (uint64_t)lead * (uint64_t)rows * cb ||
        (sb && (!scale || scale->len != (uint64_t)lead * (uint64_t)rows * sb)))
        return damaged(c, st->name);
    for (int64_t e = 0; e < lead; e++) {
        nb_stored *t = push(c->b);
        if (!t) return nb_fail(c->err, NB_E_NO_MEMORY, "out of memory");
        *t = (nb_stored){.name = st->name,
                         .matrix = true,
                         .q = q,
                         .layout = NB_LAYOUT_STANDARD,
                         .n = rows,
                         .k = k,
                         .expert = e,
                         .experts = experts,
                         .m = 1.0f,
                         .data = c->p + st->off + (uint64_t)e * (uint64_t)rows * cb,
                         .bytes = (uint64_t)rows * cb};
        if (sb) t->scales = c->p + scale->off + (uint64_t)e * (uint64_t)rows * sb;
        if (bb && !(t->biases = companion(c, st->name, ".bias", (uint64_t)lead, (uint64_t)rows * bb, e)))
            return damaged(c, st->name);
        if (!multipliers(c, t, st->name, (uint64_t)lead)) return damaged(c, st->name);
    }
    return NB_OK;
}

static nb_status take_plain(collect *c, const nb_st_tensor *st)
{
    nb_stored *t = push(c->b);
    if (!t) return nb_fail(c->err, NB_E_NO_MEMORY, "out of memory");
    *t = (nb_stored){
        .name = st->name, .data = c->p + st->off, .bytes = st->len, .dtype = st->dtype, .rank = st->rank, .m = 1.0f};
    memcpy(t->dim, st->dim, sizeof t->dim);
    return NB_OK;
}

static bool is_companion(const collect *c, nb_str name)
{
    static const char *const ends[] = {".scale",     ".bias",        ".global_scale",
                                       ".row_scale", ".block_scale", ".pre_quant_scale"};
    for (size_t i = 0; i < NB_COUNT(ends); i++) {
        size_t n = strlen(ends[i]);
        if (!nb_str_ends(name, ends[i])) continue;
        nb_str base = {name.p, name.n - n};
        if (nb_str_ends(base, ".weight") || nb_st_find(c->f, base)) return true;
        /* "G.gate_proj.global_scale" of a bank */
        if (i >= 2) return true;
    }
    return false;
}

static nb_status take_blob(collect *c)
{
    nb_str type, group = {0}, text;
    nb_status s = NB_OK;
    for (size_t i = 0; i < c->f->n && s == NB_OK; i++) {
        const nb_st_tensor *st = &c->f->tensors[i];
        nb_layout layout;
        nb_qtype q;
        if (nb_blob_meta(c->f, st->name, ".layout", &text)) {
            if (!nb_layout_parse(&layout, text) || layout == NB_LAYOUT_STANDARD) return damaged(c, st->name);
            s = st->rank == 2 ? take_bank(c, st) : take_matrix(c, st, layout);
            continue;
        }
        if (is_companion(c, st->name)) continue;
        char *sname = nb_arena_printf(c->b->arena, "%.*s.scale", NB_FMT_STR(st->name));
        const nb_st_tensor *scale = sname ? nb_st_find(c->f, nb_str_of(sname)) : NULL;
        bool own = nb_blob_meta(c->f, st->name, ".quant_type", &type),
             any = own || nb_st_meta(c->f, "quant_type", &type);
        if (own)
            nb_blob_meta(c->f, st->name, ".group_size", &group);
        else if (any)
            nb_st_meta(c->f, "group_size", &group);
        if (any && (st->dtype == NB_DT_U32 || st->dtype == NB_DT_U8) && st->rank >= 2 && st->rank <= 3 &&
            parse_type(type, group, &q))
            s = take_standard(c, st, q, scale);
        else if (st->rank == 3 && nb_str_has(st->name, ".experts.") && nb_str_ends(st->name, "_proj.weight") &&
                 (st->dtype == NB_DT_F32 || st->dtype == NB_DT_F16 || st->dtype == NB_DT_BF16))
            s = take_standard(c, st, nb_float_qtype(st->dtype), NULL);
        else
            s = take_plain(c, st);
    }
    return s;
}

static nb_status open_layers(nb_model_blobs *b, nb_store *s, const nb_layer *layers, size_t n, nb_error *err)
{
    nb_status st = NB_OK;
    b->map = NB_NEW_N(b->arena, nb_mapped, n + 1);
    b->file = NB_NEW_N(b->arena, nb_st_file, n + 1);
    if (!b->map || !b->file) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        const nb_layer *l = &layers[i];
        if (!nb_str_is(l->media_type, NB_MEDIA_TENSOR)) continue;
        nb_buf path = {0};
        size_t k = b->n_files;
        nb_blob_path(s, l->hex, &path);
        st = nb_buf_cstr(&path) ? nb_file_map(&b->map[k], path.p, l->size, err)
                                : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        if (st == NB_OK) b->n_files++;
        nb_file_close(&b->map[k]); /* a model may have more blobs than a process has descriptors */
        if (st == NB_OK) st = nb_st_read_mem(&b->file[k], b->map[k].p, b->map[k].n, path.p, NB_ST_STRICT, err);
        collect c = {.b = b, .f = &b->file[k], .p = b->map[k].p, .layer = l->name, .err = err};
        if (st == NB_OK) st = take_blob(&c);
        nb_buf_free(&path);
    }
    return st;
}

nb_status nb_blobs_open(nb_model_blobs *b, nb_store *s, const nb_name *name, nb_error *err)
{
    memset(b, 0, sizeof *b);
    b->arena = nb_arena_new(0);
    if (!b->arena) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = nb_manifest_read(s, name, &b->manifest, err);
    return st == NB_OK ? open_layers(b, s, b->manifest.layers, b->manifest.n_layers, err) : st;
}

nb_status nb_blobs_open_one(nb_model_blobs *b, nb_store *s, const nb_layer *layer, nb_error *err)
{
    memset(b, 0, sizeof *b);
    b->arena = nb_arena_new(0);
    return b->arena ? open_layers(b, s, layer, 1, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

const nb_stored *nb_blobs_find(const nb_model_blobs *b, nb_str name, int64_t expert)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->t[i].expert == expert && nb_str_eq(b->t[i].name, name)) return &b->t[i];
    return NULL;
}

void nb_blobs_close(nb_model_blobs *b)
{
    for (size_t i = 0; i < b->n_files; i++) {
        nb_st_free(&b->file[i]);
        nb_file_unmap(&b->map[i]);
    }
    nb_manifest_free(&b->manifest);
    nb_arena_free(b->arena);
    memset(b, 0, sizeof *b);
}

/* ---- rows ---- */

void nb_stored_parts(const nb_stored *t, int64_t r0, int64_t rows, const nb_parts *out)
{
    size_t row;
    if (t->layout == NB_LAYOUT_ROWS16) {
        nb_rows16_unpack(t->q, t->data, r0, rows, t->k, out);
    } else if (t->layout == NB_LAYOUT_ROWS1) {
        if (nb_rows1_row_bytes(t->q, t->k, &row)) nb_rows1_unpack(t->q, t->data + (size_t)r0 * row, rows, t->k, out);
    } else {
        memcpy(out->codes, t->data + (size_t)r0 * out->code_stride, (size_t)rows * out->code_stride);
        if (out->scales && t->scales)
            memcpy(out->scales, t->scales + (size_t)r0 * out->scale_stride, (size_t)rows * out->scale_stride);
        if (out->biases && t->biases)
            memcpy(out->biases, t->biases + (size_t)r0 * out->bias_stride, (size_t)rows * out->bias_stride);
    }
}

nb_status nb_stored_floats(const nb_stored *t, int64_t r0, int64_t rows, float *out, nb_buf *scratch, nb_error *err)
{
    size_t c, s, b;
    if (!nb_parts_row_bytes(t->q, t->k, &c, &s, &b))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld columns do not fit its format", NB_FMT_STR(t->name),
                       (long long)t->k);
    scratch->n = 0;
    if (!nb_buf_reserve(scratch, (size_t)rows * (c + s + b))) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    uint8_t *p = (uint8_t *)scratch->p;
    nb_parts parts = {.codes = p, .code_stride = c, .scale_stride = s, .bias_stride = b};
    if (s) parts.scales = p + (size_t)rows * c;
    if (b) parts.biases = p + (size_t)rows * (c + s);
    nb_stored_parts(t, r0, rows, &parts);
    nb_dequantize_rows(t->q, &parts, rows, t->k, t->m, out);
    int64_t blocks = (t->k + 127) / 128;
    for (int64_t r = 0; r < rows && (t->row_scale || t->block_scale); r++)
        for (int64_t i = 0; i < t->k; i++) {
            const uint8_t *f =
                t->row_scale ? t->row_scale + (r0 + r) * 4 : t->block_scale + ((r0 + r) / 128 * blocks + i / 128) * 4;
            out[r * t->k + i] *= nb_f32_bits(nb_load_u32(f));
        }
    for (int64_t i = 0; t->pre_scale && i < rows * t->k; i++)
        out[i] *= nb_f32_bits(nb_load_u32(t->pre_scale + i % t->k * 4));
    return NB_OK;
}
