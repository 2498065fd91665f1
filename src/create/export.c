/* create/export: a stored model becomes a checkpoint directory again. The directory is made under a temporary name
 * beside its own and renamed when whole. */
#include "create/export.h"
#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARD_BYTES (4ull << 30)
#define TILE_ROWS   128

void nb_export_defaults(nb_export_options *o)
{
    memset(o, 0, sizeof *o);
    o->size = sizeof *o;
    o->as = NB_EXPORT_HUB;
    o->dtype = NB_DT_BF16;
}

bool nb_export_parse(nb_export_as *out, const char *text)
{
    static const char *const names[] = {"hub", "mlx", "compressed-tensors", "modelopt"};
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            *out = (nb_export_as)i;
            return true;
        }
    return false;
}

nb_ex_tensor *nb_ex_push(nb_export_job *x, nb_str base, const char *suffix, nb_ex_kind kind, nb_dtype dt, nb_error *err)
{
    if (x->n == x->cap) {
        size_t more = x->cap ? x->cap * 2 : 1024;
        nb_ex_tensor *grown = NB_NEW_N(x->arena, nb_ex_tensor, more);
        if (grown && x->n) memcpy(grown, x->v, x->n * sizeof *grown);
        if (grown) x->v = grown;
        if (grown) x->cap = more;
    }
    char *name = x->n < x->cap ? nb_arena_printf(x->arena, "%.*s%s", NB_FMT_STR(base), suffix) : NULL;
    if (!name) {
        nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        return NULL;
    }
    nb_ex_tensor *t = &x->v[x->n++];
    *t = (nb_ex_tensor){.name = nb_str_of(name), .kind = kind, .dtype = dt, .count = 1};
    return t;
}

nb_status nb_ex_base(nb_export_job *x, const nb_stored *t, nb_str *base, nb_error *err)
{
    *base = t->name;
    if (nb_str_ends(*base, ".weight")) base->n -= 7;
    const char *dot = t->experts ? memrchr(base->p, '.', base->n) : NULL;
    if (!dot) return NB_OK;
    char *p = nb_arena_printf(x->arena, "%.*s.%lld%.*s", (int)(dot - base->p), base->p, (long long)t->expert,
                              (int)(base->n - (size_t)(dot - base->p)), dot);
    if (!p) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    *base = nb_str_of(p);
    return NB_OK;
}

/* ---- writing one tensor ---- */

typedef struct writer {
    nb_export_job *x;
    int fd;
    const char *path;
    nb_buf a, b, c;
    uint64_t done, total;
} writer;

static nb_status put(writer *w, const void *p, size_t n, nb_error *err)
{
    const nb_export_options *o = w->x->o;
    if (o->cancel && *o->cancel) return nb_fail(err, NB_E_CANCELLED, "cancelled while exporting");
    w->done += n;
    if (o->progress) o->progress(o->user, NB_CREATE_WRITING, w->path, w->done, w->total, 0, 0);
    return nb_write_full(w->fd, p, n, w->path, err);
}

static void *room(nb_buf *b, uint64_t n)
{
    b->n = 0;
    return n <= SIZE_MAX / 2 && nb_buf_reserve(b, (size_t)n) ? b->p : NULL;
}

static nb_status no_memory(nb_error *err) { return nb_fail(err, NB_E_NO_MEMORY, "out of memory while exporting"); }

static nb_status put_floats(writer *w, nb_dtype dt, const float *v, size_t n, nb_error *err)
{
    if (dt == NB_DT_F32) return put(w, v, n * 4, err);
    uint8_t *p = room(&w->c, n * 2);
    if (!p) return no_memory(err);
    for (size_t i = 0; i < n; i++)
        nb_store_u16(p + 2 * i, dt == NB_DT_F16 ? nb_f16_encode(v[i]) : nb_bf16_encode(v[i]));
    return put(w, p, n * 2, err);
}

static nb_status write_plain(writer *w, const nb_ex_tensor *e, nb_error *err)
{
    const nb_stored *t = e->t;
    if (e->dtype == t->dtype && e->add == 0) return put(w, t->data, t->bytes, err);
    size_t n = t->bytes / ((size_t)nb_dtype_bits(t->dtype) / 8);
    float *v = room(&w->a, n * 4);
    if (!v) return no_memory(err);
    if (!nb_floats_decode(t->dtype, t->data, n, v))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: dtype %s is not a float", NB_FMT_STR(t->name),
                       nb_dtype_name(t->dtype));
    for (size_t i = 0; i < n && e->add != 0; i++) v[i] += e->add;
    return put_floats(w, e->dtype, v, n, err);
}

static nb_status write_float(writer *w, const nb_ex_tensor *e, nb_error *err)
{
    nb_status st = NB_OK;
    for (int64_t r = 0; r < e->t->n && st == NB_OK; r += TILE_ROWS) {
        int64_t rows = e->t->n - r < TILE_ROWS ? e->t->n - r : TILE_ROWS;
        float *v = room(&w->a, (uint64_t)(rows * e->t->k) * 4);
        if (!v) return no_memory(err);
        st = nb_stored_floats(e->t, r, rows, v, &w->b, err);
        if (st == NB_OK) st = put_floats(w, e->dtype, v, (size_t)(rows * e->t->k), err);
    }
    return st;
}

/* Parts of rows [r, r+rows) in w->b. */
static nb_status parts_of(writer *w, const nb_stored *t, int64_t r, int64_t rows, nb_parts *p, nb_error *err)
{
    size_t c, s, b;
    if (!nb_parts_row_bytes(t->q, t->k, &c, &s, &b))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: its columns do not fit its format", NB_FMT_STR(t->name));
    uint8_t *base = room(&w->b, (uint64_t)rows * (c + s + b));
    if (!base) return no_memory(err);
    *p = (nb_parts){.codes = base, .code_stride = c, .scale_stride = s, .bias_stride = b};
    if (s) p->scales = base + (size_t)rows * c;
    if (b) p->biases = base + (size_t)rows * (c + s);
    nb_stored_parts(t, r, rows, p);
    return NB_OK;
}

static nb_status write_parts(writer *w, const nb_ex_tensor *e, nb_error *err)
{
    nb_status st = NB_OK;
    for (int64_t i = 0; i < e->count && st == NB_OK; i++) {
        const nb_stored *t = e->t + i;
        for (int64_t r = 0; r < t->n && st == NB_OK; r += TILE_ROWS) {
            int64_t rows = t->n - r < TILE_ROWS ? t->n - r : TILE_ROWS;
            nb_parts p;
            st = parts_of(w, t, r, rows, &p, err);
            if (st != NB_OK) break;
            if (e->kind == NB_EX_CODES)
                st = put(w, p.codes, (size_t)rows * p.code_stride, err);
            else if (e->kind == NB_EX_SCALES)
                st = put(w, p.scales, (size_t)rows * p.scale_stride, err);
            else
                st = put(w, p.biases, (size_t)rows * p.bias_stride, err);
        }
    }
    return st;
}

static float affine_float(const nb_stored *t, const uint8_t *p, int64_t i)
{
    float v = 0;
    size_t elem = t->q.scale_dtype == NB_DT_F32 ? 4 : 2;
    nb_floats_decode((nb_dtype)t->q.scale_dtype, p + (size_t)i * elem, 1, &v);
    return v;
}

/* The code that means zero, of one group: the whole number whose product with the scale, rounded once, is the bias.
 * false: there is none. */
static bool whole_zero(const nb_stored *t, const nb_parts *p, int64_t row, int64_t g, float *zero)
{
    float s = affine_float(t, p->scales + (size_t)row * p->scale_stride, g),
          z = affine_float(t, p->biases + (size_t)row * p->bias_stride, g);
    *zero = s == 0 ? (float)(1 << (nb_format_info((nb_format)t->q.format)->bits - 1)) : nearbyintf(-z / s);
    return -(*zero * s) == z;
}

nb_status nb_ex_affine_kind(const nb_stored *t, nb_ex_affine *out, nb_error *err)
{
    writer w = {0};
    float half = (float)(1 << (nb_format_info((nb_format)t->q.format)->bits - 1)), top = 2 * half - 1;
    nb_status st = NB_OK;
    *out = (nb_ex_affine){true, true};
    for (int64_t r = 0; r < t->n && st == NB_OK && out->integral; r += TILE_ROWS) {
        int64_t rows = t->n - r < TILE_ROWS ? t->n - r : TILE_ROWS;
        nb_parts p;
        st = parts_of(&w, t, r, rows, &p, err);
        for (int64_t i = 0; i < rows && st == NB_OK; i++)
            for (int64_t g = 0; g < t->k / t->q.group; g++) {
                float z;
                out->integral = out->integral && whole_zero(t, &p, i, g, &z) && z >= 0 && z <= top;
                out->symmetric = out->symmetric && out->integral && z == half;
            }
    }
    nb_buf_free(&w.b);
    return st;
}

/* Zero points [ceil(n*b/32), groups] I32, packed along the rows. */
static nb_status write_zeros(writer *w, const nb_ex_tensor *e, nb_error *err)
{
    const nb_stored *t = e->t;
    int bits = nb_format_info((nb_format)t->q.format)->bits;
    int64_t groups = t->k / t->q.group, words = (t->n * bits + 31) / 32;
    uint32_t *z = room(&w->a, (uint64_t)(words * groups) * 4);
    if (!z) return no_memory(err);
    memset(z, 0, (size_t)(words * groups) * 4);
    nb_status st = NB_OK;
    for (int64_t r = 0; r < t->n && st == NB_OK; r += TILE_ROWS) {
        int64_t rows = t->n - r < TILE_ROWS ? t->n - r : TILE_ROWS;
        nb_parts p;
        st = parts_of(w, t, r, rows, &p, err);
        for (int64_t i = 0; i < rows && st == NB_OK; i++)
            for (int64_t g = 0; g < groups; g++) {
                float zero;
                whole_zero(t, &p, i, g, &zero); /* there is one: the plan has looked */
                uint64_t v = (uint64_t)zero, at = (uint64_t)(r + i) * (uint64_t)bits;
                z[(int64_t)(at / 32) * groups + g] |= (uint32_t)(v << (at % 32));
                if (at % 32 + (uint64_t)bits > 32)
                    z[(int64_t)(at / 32 + 1) * groups + g] |= (uint32_t)(v >> (32 - at % 32));
            }
    }
    return st == NB_OK ? put(w, z, (size_t)(words * groups) * 4, err) : st;
}

/* Rows 2r (low nibble) and 2r+1 (high nibble) in one byte per column, two's complement. */
static nb_status write_paired(writer *w, const nb_ex_tensor *e, nb_error *err)
{
    const nb_stored *t = e->t;
    uint8_t *out = room(&w->a, (uint64_t)t->k);
    nb_status st = NB_OK;
    if (!out) return no_memory(err);
    for (int64_t r = 0; r < t->n && st == NB_OK; r += 2) {
        nb_parts p;
        st = parts_of(w, t, r, 2, &p, err);
        for (int64_t c = 0; c < t->k && st == NB_OK; c++) {
            uint8_t lo = (uint8_t)(p.codes[c / 2] >> (c % 2 * 4) & 15),
                    hi = (uint8_t)(p.codes[p.code_stride + (size_t)c / 2] >> (c % 2 * 4) & 15);
            out[c] = (uint8_t)((lo ^ 8) | (hi ^ 8) << 4);
        }
        if (st == NB_OK) st = put(w, out, (size_t)t->k, err);
    }
    return st;
}

/* gpt-oss float banks: [E, k, 2n] with gate in even and up in odd columns, or [E, k, n]. */
static nb_status write_fused(writer *w, const nb_ex_tensor *e, nb_error *err)
{
    int64_t n = e->t->n, k = e->t->k, cols = e->up ? 2 * n : n;
    nb_status st = NB_OK;
    for (int64_t i = 0; i < e->count && st == NB_OK; i++) {
        float *v = room(&w->a, (uint64_t)(n * k + k * cols) * 4), *out = v ? v + n * k : NULL;
        if (!v) return no_memory(err);
        for (int h = 0; h < (e->up ? 2 : 1) && st == NB_OK; h++) {
            st = nb_stored_floats((h ? e->up : e->t) + i, 0, n, v, &w->b, err);
            for (int64_t r = 0; r < n && st == NB_OK; r++)
                for (int64_t c = 0; c < k; c++) out[c * cols + (e->up ? 2 * r + h : r)] = v[r * k + c];
        }
        if (st == NB_OK) st = put_floats(w, e->dtype, out, (size_t)(k * cols), err);
    }
    return st;
}

static nb_status write_tensor(writer *w, const nb_ex_tensor *e, nb_error *err)
{
    switch (e->kind) {
    case NB_EX_PLAIN: return write_plain(w, e, err);
    case NB_EX_FLOAT: return write_float(w, e, err);
    case NB_EX_BYTES: return put(w, e->bytes.p, e->bytes.n, err);
    case NB_EX_ZEROS_PACKED: return write_zeros(w, e, err);
    case NB_EX_PAIRED: return write_paired(w, e, err);
    case NB_EX_FUSED: return write_fused(w, e, err);
    default: return write_parts(w, e, err);
    }
}

/* ---- files ---- */

static uint64_t tensor_bytes(const nb_ex_tensor *e)
{
    uint64_t n = (uint64_t)nb_dtype_bits(e->dtype);
    for (int i = 0; i < e->rank; i++) n *= (uint64_t)e->dim[i];
    return n / 8;
}

static nb_status write_shard(writer *w, const char *path, size_t first, size_t end, nb_error *err)
{
    nb_export_job *x = w->x;
    nb_st_out *outs = calloc(end - first + 1, sizeof *outs);
    nb_st_kv format = {NB_LIT("format"), x->o->as == NB_EXPORT_MLX ? NB_LIT("mlx") : NB_LIT("pt")};
    nb_buf header = {0};
    uint64_t total;
    nb_status st = outs ? NB_OK : no_memory(err);
    for (size_t i = first; i < end && st == NB_OK; i++) {
        outs[i - first] = (nb_st_out){.name = x->v[i].name, .dtype = x->v[i].dtype, .rank = x->v[i].rank};
        memcpy(outs[i - first].dim, x->v[i].dim, sizeof outs->dim);
    }
    if (st == NB_OK) st = nb_st_header(&header, outs, end - first, &format, 1, 8, &total, NULL, err);
    w->path = path;
    w->fd = st == NB_OK ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644) : -1;
    if (st == NB_OK && w->fd < 0) st = nb_fail_errno(err, errno, "%s", path);
    if (st == NB_OK) st = put(w, header.p, header.n, err);
    for (size_t i = first; i < end && st == NB_OK; i++) {
        uint64_t before = w->done;
        st = write_tensor(w, &x->v[i], err);
        if (st == NB_OK && w->done - before != tensor_bytes(&x->v[i]))
            st = nb_fail(err, NB_E_FAILED, "tensor %.*s: wrong number of bytes written", NB_FMT_STR(x->v[i].name));
    }
    if (w->fd >= 0 && fsync(w->fd) != 0 && st == NB_OK) st = nb_fail_errno(err, errno, "%s", path);
    if (w->fd >= 0) close(w->fd);
    free(outs);
    nb_buf_free(&header);
    return st;
}

static nb_status write_json(nb_export_job *x, const char *dir, const char *name, const nb_json *v, nb_error *err)
{
    nb_buf b = {0};
    char *path = nb_arena_printf(x->arena, "%s/%s", dir, name);
    nb_json_write(&b, v, NB_JSON_PRETTY);
    nb_buf_add_char(&b, '\n');
    nb_status st = path && !b.oom ? nb_file_write_atomic(path, b.p, b.n, err) : no_memory(err);
    nb_buf_free(&b);
    return st;
}

/* One file, or shards of at most 4 GiB with an index. */
static nb_status write_weights(nb_export_job *x, const char *dir, nb_error *err)
{
    writer w = {.x = x};
    size_t ends[1024], shards = 0;
    uint64_t in = 0;
    for (size_t i = 0; i < x->n; i++) {
        uint64_t n = tensor_bytes(&x->v[i]);
        if (in && in + n > SHARD_BYTES && shards + 1 < NB_COUNT(ends)) {
            ends[shards++] = i;
            in = 0;
        }
        in += n;
        w.total += n;
    }
    ends[shards++] = x->n;
    nb_json *map = nb_json_new(x->arena, NB_JSON_OBJECT);
    nb_status st = map ? NB_OK : no_memory(err);
    for (size_t s = 0, first = 0; s < shards && st == NB_OK; first = ends[s++]) {
        char *file = shards == 1 ? nb_arena_dup(x->arena, "model.safetensors", 17)
                                 : nb_arena_printf(x->arena, "model-%05zu-of-%05zu.safetensors", s + 1, shards);
        char *path = file ? nb_arena_printf(x->arena, "%s/%s", dir, file) : NULL;
        if (!path) st = no_memory(err);
        if (st == NB_OK) st = write_shard(&w, path, first, ends[s], err);
        for (size_t i = first; i < ends[s] && st == NB_OK; i++) {
            const nb_json *v = nb_json_new_str(x->arena, nb_str_of(file));
            if (!v || !nb_json_set(x->arena, map, x->v[i].name, v)) st = no_memory(err);
        }
    }
    if (st == NB_OK && shards > 1) {
        nb_json *index = nb_json_new(x->arena, NB_JSON_OBJECT);
        if (!index || !nb_json_set(x->arena, index, NB_LIT("weight_map"), map)) st = no_memory(err);
        if (st == NB_OK) st = write_json(x, dir, "model.safetensors.index.json", index, err);
    }
    nb_buf_free(&w.a);
    nb_buf_free(&w.b);
    nb_buf_free(&w.c);
    return st;
}

/* "additional_chat_templates/NAME.jinja", with nothing in NAME that leads elsewhere. */
static bool is_named_template(nb_str name)
{
    size_t k = sizeof NB_TEXT_ADDITIONAL - 1;
    return nb_str_starts(name, NB_TEXT_ADDITIONAL) && name.n > k && name.p[k] != '.' &&
           !memchr(name.p + k, '/', name.n - k) && nb_str_ends(name, ".jinja");
}

/* The bytes of a layer, in `text`, which the caller frees. */
static nb_status layer_bytes(nb_export_job *x, const nb_layer *l, nb_buf *text, nb_error *err)
{
    nb_buf from = {0};
    nb_blob_path(x->store, l->hex, &from);
    nb_status st = nb_buf_cstr(&from) ? nb_file_read(text, from.p, 256u << 20, err) : no_memory(err);
    nb_buf_free(&from);
    return st;
}

static nb_status write_layer(nb_export_job *x, const char *dir, nb_str name, const nb_layer *l, nb_error *err)
{
    nb_buf text = {0};
    char *path = nb_arena_printf(x->arena, "%s/%.*s", dir, NB_FMT_STR(name));
    nb_status st = path ? layer_bytes(x, l, &text, err) : no_memory(err);
    if (st == NB_OK) st = nb_file_write_atomic(path, text.p ? text.p : "", text.n, err);
    nb_buf_free(&text);
    return st;
}

static const nb_layer *layer_of(const nb_export_job *x, const char *media)
{
    const nb_manifest *m = &x->blobs.manifest;
    for (size_t i = 0; i < m->n_layers; i++)
        if (nb_str_is(m->layers[i].media_type, media) && !m->layers[i].name.n) return &m->layers[i];
    return NULL;
}

/* The parameters that were given at import, over generation_config.json. */
static nb_status write_parameters(nb_export_job *x, const char *dir, const nb_layer *given, nb_error *err)
{
    const nb_layer *old = nb_manifest_find(&x->blobs.manifest, "generation_config.json");
    nb_json *out = nb_json_new(x->arena, NB_JSON_OBJECT);
    nb_json_doc d[2] = {{0}};
    nb_buf text[2] = {{0}};
    const nb_layer *l[2] = {old, given};
    nb_status st = out ? NB_OK : no_memory(err);
    for (int i = 0; i < 2 && st == NB_OK; i++) {
        if (!l[i]) continue;
        st = layer_bytes(x, l[i], &text[i], err);
        if (st == NB_OK)
            st = nb_json_parse(&d[i], text[i].p, text[i].n, i ? "parameters" : "generation_config.json", NULL, err);
        for (uint32_t k = 0; st == NB_OK && nb_json_is(d[i].root, NB_JSON_OBJECT) && k < d[i].root->count; k++)
            if (!nb_json_set(x->arena, out, d[i].root->keys[k], &d[i].root->items[k])) st = no_memory(err);
    }
    if (st == NB_OK) st = write_json(x, dir, "generation_config.json", out, err);
    for (int i = 0; i < 2; i++) nb_json_free(&d[i]), nb_buf_free(&text[i]);
    return st;
}

/* What the user gave at import, which has no name of its own. */
static nb_status write_given(nb_export_job *x, const char *dir, nb_error *err)
{
    const nb_layer *template = layer_of(x, NB_MEDIA_TEMPLATE), *license = layer_of(x, NB_MEDIA_LICENSE),
                   *parameters = layer_of(x, NB_MEDIA_PARAMS);
    nb_status st = template ? write_layer(x, dir, NB_LIT("chat_template.jinja"), template, err) : NB_OK;
    if (st == NB_OK && license) st = write_layer(x, dir, NB_LIT("LICENSE"), license, err);
    if (st == NB_OK && parameters) st = write_parameters(x, dir, parameters, err);
    if (layer_of(x, NB_MEDIA_SYSTEM)) nb_log(1, "the model's system message is left out: a checkpoint has no place for it");
    if (layer_of(x, NB_MEDIA_MESSAGES)) nb_log(1, "the model's messages are left out: a checkpoint has no place for them");
    return st;
}

/* Config files as they are stored, but for config.json and what described the source's own quantisation. */
static nb_status write_configs(nb_export_job *x, const char *dir, nb_error *err)
{
    nb_status st = write_json(x, dir, "config.json", x->out_config, err);
    bool own_template = layer_of(x, NB_MEDIA_TEMPLATE) != NULL; /* it stands in place of all others */
    if (st == NB_OK && x->hf_quant) st = write_json(x, dir, "hf_quant_config.json", x->hf_quant, err);
    for (size_t i = 0; i < x->blobs.manifest.n_layers && st == NB_OK; i++) {
        const nb_layer *l = &x->blobs.manifest.layers[i];
        bool config = nb_str_is(l->media_type, NB_MEDIA_JSON) || nb_str_is(l->media_type, NB_MEDIA_TEXT) ||
                      nb_str_is(l->media_type, NB_MEDIA_LICENSE);
        if (!config || nb_str_is(l->name, "config.json") || nb_str_is(l->name, "hf_quant_config.json") || !l->name.n ||
            l->name.p[0] == '.')
            continue;
        const char *slash = memchr(l->name.p, '/', l->name.n);
        if (slash && (own_template || !is_named_template(l->name))) continue;
        char *folder = slash ? nb_arena_printf(x->arena, "%s/%s", dir, NB_TEXT_ADDITIONAL) : NULL;
        if (slash && (st = folder ? nb_mkdirs(folder, err) : no_memory(err)) != NB_OK) break;
        st = write_layer(x, dir, l->name, l, err);
    }
    return st == NB_OK ? write_given(x, dir, err) : st;
}

/* ---- the whole ---- */

static void drop_key(nb_json *o, const char *key)
{
    for (uint32_t i = 0; i < o->count; i++) {
        if (!nb_str_is(o->keys[i], key)) continue;
        memmove(&o->keys[i], &o->keys[i + 1], (o->count - i - 1) * sizeof *o->keys);
        memmove(&o->items[i], &o->items[i + 1], (o->count - i - 1) * sizeof *o->items);
        o->count--;
        return;
    }
}

/* A copy of config.json without quantisation sections. */
static nb_status read_config(nb_export_job *x, nb_error *err)
{
    static const char *const drop[] = {"quantization", "quantization_config", "compression_config",
                                       "nibble_norm_has_one", "mlx_export"};
    const nb_layer *l = nb_manifest_find(&x->blobs.manifest, "config.json");
    nb_buf path = {0};
    nb_str type;
    if (!l) return nb_fail(err, NB_E_INVALID, "the model has no config.json");
    nb_blob_path(x->store, l->hex, &path);
    nb_status st = nb_buf_cstr(&path) ? nb_file_read(&x->config_text, path.p, 64u << 20, err) : no_memory(err);
    if (st == NB_OK) st = nb_json_parse(&x->config, x->config_text.p, x->config_text.n, "config.json", NULL, err);
    nb_buf_free(&path);
    if (st != NB_OK) return st;
    if (x->config.root->type != NB_JSON_OBJECT) return nb_fail(err, NB_E_INVALID, "config.json: not a JSON object");
    nb_json_bool(nb_json_get(x->config.root, "nibble_norm_has_one"), &x->norm_has_one);
    if (nb_json_str(nb_json_get(x->config.root, "model_type"), &type)) x->arch = nb_arch_find(type);
    x->gpt_oss = x->arch && !strcmp(nb_arch_name(x->arch), "gpt_oss");
    x->mlx_written = x->o->as == NB_EXPORT_MLX && nb_json_str(nb_json_get(x->config.root, "model_type"), &type) &&
                     nb_str_is(type, "qwen3_next");
    x->out_config = nb_json_new(x->arena, NB_JSON_OBJECT);
    for (uint32_t i = 0; x->out_config && i < x->config.root->count; i++) {
        nb_json item = x->config.root->items[i];
        bool skip = false;
        for (size_t k = 0; k < NB_COUNT(drop); k++) skip = skip || nb_str_is(x->config.root->keys[i], drop[k]);
        if (nb_str_is(x->config.root->keys[i], "text_config") && item.type == NB_JSON_OBJECT)
            for (size_t k = 0; k < 3; k++) drop_key(&item, drop[k]);
        if (!skip && !nb_json_set(x->arena, x->out_config, x->config.root->keys[i], &item)) return no_memory(err);
    }
    const nb_json *dt = nb_json_new_str(
        x->arena, x->o->dtype == NB_DT_F32 && x->o->as == NB_EXPORT_HUB ? NB_LIT("float32") : NB_LIT("bfloat16"));
    if (!x->out_config || !dt || !nb_json_set(x->arena, x->out_config, NB_LIT("dtype"), dt) ||
        !nb_json_set(x->arena, x->out_config, NB_LIT("torch_dtype"), dt))
        return no_memory(err);
    return NB_OK;
}

static nb_status plan(nb_export_job *x, nb_error *err)
{
    switch (x->o->as) {
    case NB_EXPORT_HUB: return nb_ex_plan_hub(x, err);
    case NB_EXPORT_MLX: return nb_ex_plan_mlx(x, err);
    case NB_EXPORT_COMPRESSED_TENSORS: return nb_ex_plan_ct(x, err);
    default: return nb_ex_plan_modelopt(x, err);
    }
}

/* The temporary folder holds regular files of ours only. */
static void remove_folder(const char *dir)
{
    char path[4096];
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
            unlink(path);
    if (d) closedir(d);
    rmdir(dir);
}

nb_status nb_export(nb_store *s, const nb_export_options *o, nb_error *err)
{
    nb_export_job x = {.o = o, .store = s, .arena = nb_arena_new(0)};
    nb_name name;
    char *tmp = NULL;
    nb_status st = x.arena ? nb_name_parse(&name, o->name, err) : no_memory(err);
    if (st == NB_OK && o->dtype != NB_DT_BF16 && o->dtype != NB_DT_F32)
        st = nb_fail(err, NB_E_USAGE, "export: dtype %s; known: bf16, f32", nb_dtype_name(o->dtype));
    if (st == NB_OK && nb_path_exists(o->dir) && (!nb_path_is_dir(o->dir) || rmdir(o->dir) != 0))
        st = nb_fail(err, NB_E_USAGE, "%s exists and is not an empty directory", o->dir);
    if (st == NB_OK) st = nb_blobs_open(&x.blobs, s, &name, err);
    if (st == NB_OK) st = read_config(&x, err);
    if (st == NB_OK) st = plan(&x, err);
    if (st == NB_OK) {
        tmp = nb_arena_printf(x.arena, "%s.tmp-%ld", o->dir, (long)getpid());
        st = tmp ? nb_mkdirs(tmp, err) : no_memory(err);
    }
    if (st == NB_OK) st = write_weights(&x, tmp, err);
    if (st == NB_OK) st = write_configs(&x, tmp, err);
    if (st == NB_OK && rename(tmp, o->dir) != 0) st = nb_fail_errno(err, errno, "%s", o->dir);
    if (st != NB_OK && tmp) remove_folder(tmp);
    nb_json_free(&x.config);
    nb_buf_free(&x.config_text);
    nb_blobs_close(&x.blobs);
    nb_arena_free(x.arena);
    return st;
}
