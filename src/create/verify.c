/* create/verify: a stored blob against its own header, and a stored model against its architecture.
 * specs/create.md 6.7. */
#include "create/stored.h"

#include <stdlib.h>
#include <unistd.h>

typedef struct blob_check {
    const nb_layer *layer;
    nb_st_file f;
    nb_mapped map;
    bool deep;
    nb_error *err;
} blob_check;

static nb_status bad(blob_check *c, nb_str tensor, const char *what)
{
    return nb_fail(c->err, NB_E_INVALID, "blob %.*s (sha256-%.12s): tensor %.*s: %s (E_VERIFY)",
                   NB_FMT_STR(c->layer->name), c->layer->hex, NB_FMT_STR(tensor), what);
}

static bool meta(const blob_check *c, nb_str tensor, const char *key, nb_str *v)
{
    return nb_blob_meta(&c->f, tensor, key, v);
}

/* Scale bytes of these rows lie in their domain; affine scales and biases are finite. */
static bool in_domain(nb_qtype q, const nb_parts *p, int64_t rows)
{
    int kind = nb_format_info((nb_format)q.format)->scale_kind;
    size_t n = (size_t)rows * p->scale_stride;
    if (kind == NB_SCALE_AFFINE) {
        size_t elem = q.scale_dtype == NB_DT_F32 ? 4 : 2;
        bool ok = true;
        for (size_t i = 0; i < n && ok; i += elem) {
            float v[2];
            ok = nb_floats_decode((nb_dtype)q.scale_dtype, p->scales + i, 1, &v[0]) &&
                 nb_floats_decode((nb_dtype)q.scale_dtype, p->biases + i, 1, &v[1]) && v[0] - v[0] == 0.0f &&
                 v[1] - v[1] == 0.0f;
        }
        return ok;
    }
    for (size_t i = 0; i < n && (kind == NB_SCALE_E4M3 || kind == NB_SCALE_E8M0); i++)
        if (kind == NB_SCALE_E4M3 ? p->scales[i] > 0x7E
                                  : p->scales[i] != 127 && (p->scales[i] < 16 || p->scales[i] > 240))
            return false;
    return true;
}

static nb_status check_scales(blob_check *c, nb_str name, const nb_packed *p, nb_layout layout, const uint8_t *data)
{
    size_t cb, sb, bb, row1;
    if (!nb_parts_row_bytes(p->q, p->k, &cb, &sb, &bb) || sb == 0 || !nb_rows1_row_bytes(p->q, p->k, &row1))
        return NB_OK;
    uint8_t *codes = malloc((cb + sb + bb) * 16);
    nb_status st = codes ? NB_OK : nb_fail(c->err, NB_E_NO_MEMORY, "out of memory");
    nb_parts parts = {.codes = codes, .code_stride = cb, .scale_stride = sb, .bias_stride = bb};
    if (codes) parts.scales = codes + cb * 16;
    if (codes && bb) parts.biases = codes + (cb + sb) * 16;
    for (int64_t r = 0; r < p->n && st == NB_OK; r += 16) {
        int64_t rows = p->n - r < 16 ? p->n - r : 16;
        if (layout == NB_LAYOUT_ROWS16)
            nb_rows16_unpack(p->q, data, r, rows, p->k, &parts);
        else
            nb_rows1_unpack(p->q, data + (size_t)r * row1, rows, p->k, &parts);
        if (!in_domain(p->q, &parts, rows)) st = bad(c, name, "a block scale is out of its domain");
    }
    free(codes);
    return st;
}

static nb_status check_companion(blob_check *c, nb_str base, const char *suffix, uint64_t count)
{
    nb_buf b = {0};
    nb_buf_add_str(&b, base);
    nb_buf_add_cstr(&b, suffix);
    const nb_st_tensor *t = b.oom ? NULL : nb_st_find(&c->f, nb_buf_str(&b));
    nb_buf_free(&b);
    uint64_t have;
    if (!t || t->dtype != NB_DT_F32 || !nb_st_count(t, &have) || have != count)
        return bad(c, base, "a companion is missing or has the wrong shape");
    for (uint64_t i = 0; i < count; i++) {
        float v = nb_f32_bits(nb_load_u32(c->map.p + t->off + i * 4));
        if (!(v - v == 0.0f) || (!strcmp(suffix, ".global_scale") && v <= 0))
            return bad(c, base, "a multiplier is not finite and positive");
    }
    return NB_OK;
}

/* Factors of the columns, where the matrix has them. */
static nb_status check_factors(blob_check *c, nb_str base, int64_t k)
{
    nb_buf b = {0};
    nb_buf_printf(&b, "%.*s.pre_quant_scale", NB_FMT_STR(base));
    bool has = !b.oom && nb_st_find(&c->f, nb_buf_str(&b));
    nb_buf_free(&b);
    return has ? check_companion(c, base, ".pre_quant_scale", (uint64_t)k) : NB_OK;
}

static nb_status check_companions(blob_check *c, nb_str base, const nb_packed *p, uint64_t experts)
{
    uint64_t blocks = (uint64_t)((p->n + 127) / 128) * (uint64_t)((p->k + 127) / 128);
    switch (p->q.format) {
    case NB_NVFP4:
    case NB_FP8_TENSOR: return check_companion(c, base, ".global_scale", experts);
    case NB_FP8_CHANNEL: return check_companion(c, base, ".row_scale", experts * (uint64_t)p->n);
    case NB_FP8_BLOCK: return check_companion(c, base, ".block_scale", experts * blocks);
    default: return NB_OK;
    }
}

static nb_status check_bank(blob_check *c, const nb_st_tensor *t)
{
    static const char *const keys[] = {"gate", "up", "down"};
    nb_str group = {t->name.p, t->name.n - 7}; /* without ".weight" */
    nb_status st = NB_OK;
    int found = 0;
    if (t->rank != 2 || t->dim[1] % 4096) return bad(c, t->name, "a bank is [E,S] with S a multiple of 4096");
    for (size_t i = 0; i < NB_COUNT(keys) && st == NB_OK; i++) {
        nb_buf prefix = {0}, base = {0};
        nb_packed p;
        nb_str text;
        int64_t off = -1;
        uint64_t bytes;
        nb_buf_printf(&prefix, "%.*s.%s", NB_FMT_STR(t->name), keys[i]);
        nb_buf_printf(&base, "%.*s.%s_proj", NB_FMT_STR(group), keys[i]);
        if (prefix.oom || base.oom)
            st = nb_fail(c->err, NB_E_NO_MEMORY, "out of memory");
        else if (meta(c, nb_buf_str(&prefix), ".quant_type", &text)) {
            found++;
            if (!nb_blob_packed(&c->f, nb_buf_str(&prefix), &p) || !meta(c, nb_buf_str(&prefix), ".offset", &text) ||
                !nb_parse_i64(text, &off) || off < 0 || !nb_rows16_bytes(p.q, p.n, p.k, &bytes) ||
                bytes > (uint64_t)t->dim[1] || (uint64_t)off > (uint64_t)t->dim[1] - bytes)
                st = bad(c, t->name, "the metadata of a projection does not fit its bytes");
            if (st == NB_OK) st = check_companions(c, nb_buf_str(&base), &p, (uint64_t)t->dim[0]);
            for (int64_t e = 0; e < t->dim[0] && c->deep && st == NB_OK; e++)
                st = check_scales(c, t->name, &p, NB_LAYOUT_ROWS16,
                                  c->map.p + t->off + (uint64_t)e * (uint64_t)t->dim[1] + (uint64_t)off);
        }
        nb_buf_free(&prefix);
        nb_buf_free(&base);
    }
    return st == NB_OK && !found ? bad(c, t->name, "no projection is described") : st;
}

/* Matrices of the standard layout: their companions are there and of the right size, else the blob does not open. */
static nb_status check_standard(blob_check *c, nb_store *s)
{
    nb_model_blobs b;
    nb_status st = nb_blobs_open_one(&b, s, c->layer, c->err);
    for (size_t i = 0; i < b.n && st == NB_OK; i++) {
        const nb_stored *t = &b.t[i];
        nb_parts parts;
        size_t codes;
        if (!t->matrix || t->layout != NB_LAYOUT_STANDARD) continue;
        if (!(t->m > 0) || !(t->m - t->m == 0.0f)) st = bad(c, t->name, "a multiplier is not finite and positive");
        if (!c->deep || !t->scales || !nb_parts_row_bytes(t->q, t->k, &codes, &parts.scale_stride, &parts.bias_stride))
            continue;
        parts.scales = (uint8_t *)(uintptr_t)t->scales;
        parts.biases = (uint8_t *)(uintptr_t)t->biases;
        if (st == NB_OK && !in_domain(t->q, &parts, t->n)) st = bad(c, t->name, "a block scale is out of its domain");
    }
    nb_blobs_close(&b);
    return st;
}

static nb_status check_tensor(blob_check *c, const nb_st_tensor *t)
{
    nb_str text;
    nb_layout layout;
    nb_packed p;
    uint64_t bytes = 0;
    size_t row;
    if (!meta(c, t->name, ".layout", &text)) return NB_OK;
    if (!nb_layout_parse(&layout, text) || layout == NB_LAYOUT_STANDARD || t->dtype != NB_DT_U8)
        return bad(c, t->name, "unknown layout");
    if (t->off % 4096) return bad(c, t->name, "packed data does not begin at a multiple of 4096");
    if (t->rank == 2) return check_bank(c, t);
    if (!nb_blob_packed(&c->f, t->name, &p)) return bad(c, t->name, "its metadata is incomplete");
    bool fits = layout == NB_LAYOUT_ROWS16
                    ? nb_rows16_bytes(p.q, p.n, p.k, &bytes)
                    : nb_rows1_row_bytes(p.q, p.k, &row) && nb_mul_u64(row, (uint64_t)p.n, &bytes);
    if (!fits || bytes != t->len) return bad(c, t->name, "its metadata does not fit its bytes");
    nb_status st = check_companions(c, t->name, &p, 1);
    if (st == NB_OK) st = check_factors(c, t->name, p.k);
    return st == NB_OK && c->deep ? check_scales(c, t->name, &p, layout, c->map.p + t->off) : st;
}

nb_status nb_verify_blob(nb_store *s, const nb_layer *l, bool deep, nb_error *err)
{
    blob_check c = {.layer = l, .deep = deep, .err = err, .map = {.fd = -1}};
    nb_buf path = {0};
    char hex[65];
    nb_blob_path(s, l->hex, &path);
    nb_status st =
        nb_buf_cstr(&path) ? nb_file_map(&c.map, path.p, l->size, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (st == NB_OK && deep) {
        nb_sha256_hex(c.map.p, c.map.n, hex);
        if (strcmp(hex, l->hex))
            st = nb_fail(err, NB_E_INVALID, "blob %.*s: its bytes do not hash to sha256-%.12s (E_VERIFY)",
                         NB_FMT_STR(l->name), l->hex);
    }
    if (st == NB_OK) st = nb_st_read_mem(&c.f, c.map.p, c.map.n, path.p, NB_ST_STRICT, err);
    bool packed = false;
    nb_str text;
    for (size_t i = 0; i < c.f.n && st == NB_OK; i++) {
        st = check_tensor(&c, &c.f.tensors[i]);
        packed = packed || meta(&c, c.f.tensors[i].name, ".layout", &text);
    }
    if (st == NB_OK && !packed && c.f.n > 1) st = check_standard(&c, s); /* a quantised matrix has companions */
    nb_st_free(&c.f);
    nb_file_unmap(&c.map);
    nb_buf_free(&path);
    return st;
}

/* ---- a whole model ---- */

static nb_status read_layer(nb_store *s, const nb_manifest *m, const char *name, nb_buf *text, nb_json_doc *doc,
                            bool needed, nb_error *err)
{
    const nb_layer *l = nb_manifest_find(m, name);
    nb_buf path = {0};
    if (!l) return needed ? nb_fail(err, NB_E_INVALID, "the manifest has no %s (E_VERIFY)", name) : NB_OK;
    nb_blob_path(s, l->hex, &path);
    nb_status st =
        nb_buf_cstr(&path) ? nb_file_read(text, path.p, 64u << 20, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (st == NB_OK) st = nb_json_parse(doc, text->p, text->n, name, NULL, err);
    nb_buf_free(&path);
    return st;
}

/* ---- what is stored against the architecture's list ---- */

typedef struct inventory {
    const nb_model_blobs *b;
    nb_map by_name; /* of the first expert */
    nb_error *err;
} inventory;

static const nb_stored *stored_as(const inventory *v, nb_str name)
{
    uint32_t i;
    return nb_map_get(&v->by_name, name, &i) ? &v->b->t[i] : NULL;
}

static nb_status wrong_shape(const inventory *v, const nb_stored *t, int64_t n, int64_t k)
{
    return nb_fail(v->err, NB_E_INVALID, "tensor %.*s is [%lld,%lld], config.json asks for [%lld,%lld] (E_VERIFY)",
                   NB_FMT_STR(t->name), (long long)t->n, (long long)t->k, (long long)n, (long long)k);
}

static nb_status check_bank_shape(const inventory *v, const nb_tensor_spec *spec, nb_arena *a)
{
    static const char *const proj[] = {"gate_proj", "up_proj", "down_proj"};
    for (int i = 0; i < 3; i++) {
        char *name = nb_arena_printf(a, "%.*s.%s.weight", NB_FMT_STR(spec->name), proj[i]);
        const nb_stored *t = name ? stored_as(v, nb_str_of(name)) : NULL;
        if (!name) return nb_fail(v->err, NB_E_NO_MEMORY, "out of memory");
        if (!t || !t->matrix || !spec->proj[i].n) continue;
        if (t->n != spec->proj[i].n || t->k != spec->proj[i].k)
            return wrong_shape(v, t, spec->proj[i].n, spec->proj[i].k);
        if (t->experts != spec->experts)
            return nb_fail(v->err, NB_E_INVALID, "%.*s has %lld experts, config.json asks for %d (E_VERIFY)",
                           NB_FMT_STR(spec->name), (long long)t->experts, (int)spec->experts);
    }
    return NB_OK;
}

/* Logical shape of one tensor; -1: any. */
static nb_status check_shape(const inventory *v, const nb_tensor_spec *spec, nb_arena *a)
{
    if (spec->role == NB_ROLE_BANK) return check_bank_shape(v, spec, a);
    const nb_stored *t = stored_as(v, spec->name);
    uint64_t want = 1, have = 1;
    if (!t) return NB_OK; /* of another kind of blob */
    if (t->matrix && spec->rank == 2)
        return (spec->dim[0] > 0 && t->n != spec->dim[0]) || (spec->dim[1] > 0 && t->k != spec->dim[1])
                   ? wrong_shape(v, t, spec->dim[0], spec->dim[1])
                   : NB_OK;
    for (int i = 0; i < spec->rank; i++) {
        if (spec->dim[i] <= 0) return NB_OK;
        want *= (uint64_t)spec->dim[i];
    }
    for (int i = 0; i < t->rank; i++) have *= (uint64_t)t->dim[i];
    return want == have || t->matrix
               ? NB_OK
               : nb_fail(v->err, NB_E_INVALID, "tensor %.*s has %llu elements, config.json asks for %llu (E_VERIFY)",
                         NB_FMT_STR(t->name), (unsigned long long)have, (unsigned long long)want);
}

static nb_status check_shapes(nb_store *s, const nb_name *name, const nb_tensor_spec *specs, size_t n, nb_arena *a,
                              nb_error *err)
{
    nb_model_blobs b;
    inventory v = {.b = &b, .err = err};
    nb_status st = nb_blobs_open(&b, s, name, err);
    if (st == NB_OK && !nb_map_init(&v.by_name, b.n + 1)) st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < b.n && st == NB_OK; i++)
        if (b.t[i].expert == 0 && !nb_map_put(&v.by_name, b.t[i].name, (uint32_t)i, NULL, NULL))
            st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n && st == NB_OK; i++) st = check_shape(&v, &specs[i], a);
    nb_map_free(&v.by_name);
    nb_blobs_close(&b);
    return st;
}

/* Every tensor that the architecture expects is the name of a layer, and has its shape. */
static nb_status check_names(nb_store *s, const nb_name *name, const nb_manifest *m, nb_error *err)
{
    nb_buf config = {0}, generation = {0};
    nb_json_doc cd = {0}, gd = {0};
    nb_config cfg = {0};
    nb_tensor_spec *specs = NULL;
    size_t n = 0;
    nb_arena *a = nb_arena_new(0);
    nb_status st =
        a ? read_layer(s, m, "config.json", &config, &cd, true, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (st == NB_OK) st = read_layer(s, m, "generation_config.json", &generation, &gd, false, err);
    if (st == NB_OK) st = nb_config_read(&cfg, cd.root, gd.root, a, err);
    if (st == NB_E_UNSUPPORTED) {
        st = NB_OK;
        goto out;
    }
    if (st == NB_OK && !nb_manifest_find(m, "lm_head.weight")) cfg.tie_embeddings = true;
    if (st == NB_OK) st = nb_arch_tensors(&cfg, a, &specs, &n, err);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        char *layer = nb_arena_dup(a, specs[i].name.p, specs[i].name.n);
        char *first = layer ? nb_arena_printf(a, "%s.gate_proj.weight", layer) : NULL;
        if (!first)
            st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        else if (!specs[i].optional && !nb_manifest_find(m, layer) &&
                 !(specs[i].role == NB_ROLE_BANK && nb_manifest_find(m, first)))
            st = nb_fail(err, NB_E_INVALID, "tensor %s is missing from the model (E_MISSING_TENSORS)", layer);
    }
    if (st == NB_OK) st = check_shapes(s, name, specs, n, a, err);
out:
    nb_json_free(&cd);
    nb_json_free(&gd);
    nb_buf_free(&config);
    nb_buf_free(&generation);
    nb_arena_free(a);
    return st;
}

nb_status nb_create_verify(nb_store *s, const nb_name *name, bool deep, nb_create_progress *progress, void *user,
                           nb_error *err)
{
    nb_manifest m = {0};
    nb_status st = nb_manifest_read(s, name, &m, err);
    if (st != NB_OK) return st;
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < m.n_layers; i++) total += m.layers[i].size;
    for (size_t i = 0; i < m.n_layers && st == NB_OK; i++) {
        const nb_layer *l = &m.layers[i];
        if (nb_str_is(l->media_type, NB_MEDIA_TENSOR)) st = nb_verify_blob(s, l, deep, err);
        done += l->size;
        if (progress) progress(user, NB_CREATE_VERIFYING, "", done, total, (uint32_t)i + 1, (uint32_t)m.n_layers);
    }
    if (st == NB_OK) st = check_names(s, name, &m, err);
    nb_manifest_free(&m);
    return st;
}
