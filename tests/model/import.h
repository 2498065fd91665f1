/* A small importer of its own, so that the tests of src/model need no room above it: a reference model becomes a store
 * with float weights. */
#ifndef TESTS_MODEL_IMPORT_H
#define TESTS_MODEL_IMPORT_H

#include "data.h"
#include "format/safetensors.h"
#include "model/model.h"

#include <unistd.h>

typedef struct importer {
    nb_store *store;
    nb_config c;
    nb_arena *a;
    nb_mapped file;
    nb_st_file st;
    nb_layer layers[4096];
    size_t n;
    nb_qtype type; /* of matrices */
    bool standard; /* row-major instead of rows16.1 and rows1.1 */
    nb_error err;
} importer;

static inline nb_status imp_layer(importer *im, const char *media, nb_str name, const void *p, size_t n)
{
    nb_blob_ref ref;
    nb_status s = nb_blob_put(im->store, p, n, &ref, &im->err);
    nb_layer *l = &im->layers[im->n++];
    *l = (nb_layer){.media_type = nb_str_of(media), .name = name, .size = ref.size};
    memcpy(l->hex, ref.hex, sizeof l->hex);
    return s;
}

/* One blob with one tensor. */
static inline nb_status imp_blob(importer *im, nb_str layer, nb_str tensor, nb_dtype dt, int rank, const int64_t *dim,
                                 const void *p, size_t bytes, const nb_st_kv *meta, size_t n_meta)
{
    nb_st_out o = {.name = tensor, .dtype = dt, .rank = (uint8_t)rank};
    nb_buf b = {0};
    uint64_t total;
    for (int i = 0; i < rank; i++) o.dim[i] = dim[i];
    nb_status s = nb_st_header(&b, &o, 1, meta, n_meta, 4096, &total, NULL, &im->err);
    nb_buf_add(&b, p, bytes);
    if (s == NB_OK) s = imp_layer(im, NB_MEDIA_TENSOR, layer, b.p, b.n);
    nb_buf_free(&b);
    return s;
}

static inline nb_st_kv imp_meta(importer *im, nb_str base, const char *key, const char *value)
{
    return (nb_st_kv){nb_str_of(nb_arena_printf(im->a, "%.*s%s", NB_FMT_STR(base), key)), nb_str_of(value)};
}

/* Rows of a BF16 source tensor in the importer's type, as standard parts; multiplier-free formats only. */
static inline nb_parts imp_parts(importer *im, const uint8_t *src, int64_t rows, int64_t k)
{
    nb_parts p = {0};
    float *f = malloc((size_t)(rows * k) * 4);
    nb_floats_decode(NB_DT_BF16, src, (size_t)(rows * k), f);
    nb_parts_row_bytes(im->type, k, &p.code_stride, &p.scale_stride, &p.bias_stride);
    p.codes = nb_arena_alloc(im->a, p.code_stride * (size_t)rows + 1);
    p.scales = p.scale_stride ? nb_arena_alloc(im->a, p.scale_stride * (size_t)rows) : NULL;
    p.biases = p.bias_stride ? nb_arena_alloc(im->a, p.bias_stride * (size_t)rows) : NULL;
    nb_quantize_rows(im->type, f, rows, k, 1, &p, &im->err);
    free(f);
    return p;
}

static inline nb_status imp_matrix(importer *im, nb_str name, const nb_st_tensor *t, bool table)
{
    const uint8_t *src = im->file.p + t->off;
    int64_t n = t->dim[0], k = t->dim[1];
    nb_parts p = imp_parts(im, src, n, k);
    char q[32];
    nb_qtype_name(im->type, q);
    if (im->standard) {
        if (nb_format_info((nb_format)im->type.format)->is_float)
            return imp_blob(im, name, name,
                            im->type.format == NB_F32   ? NB_DT_F32
                            : im->type.format == NB_F16 ? NB_DT_F16
                                                        : NB_DT_BF16,
                            2, t->dim, p.codes, p.code_stride * (size_t)n, NULL, 0);
        return nb_fail(&im->err, NB_E_UNSUPPORTED, "the test importer writes only float types row-major");
    }
    uint64_t bytes = 0;
    size_t row = 0;
    if (table)
        nb_rows1_row_bytes(im->type, k, &row), bytes = row * (uint64_t)n;
    else
        nb_rows16_bytes(im->type, n, k, &bytes);
    uint8_t *packed = calloc(1, bytes);
    if (table)
        nb_rows1_pack(im->type, &p, n, k, packed);
    else
        nb_rows16_pack(im->type, &p, n, k, packed);
    nb_st_kv meta[] = {imp_meta(im, name, ".layout", table ? "rows1.1" : "rows16.1"),
                       imp_meta(im, name, ".quant_type", nb_format_info((nb_format)im->type.format)->name),
                       imp_meta(im, name, ".group_size", nb_arena_printf(im->a, "%u", im->type.group)),
                       imp_meta(im, name, ".scale_dtype", "BF16"),
                       imp_meta(im, name, ".shape", nb_arena_printf(im->a, "[%lld,%lld]", (long long)n, (long long)k))};
    int64_t dim = (int64_t)bytes;
    bool affine = nb_format_info((nb_format)im->type.format)->scale_kind == NB_SCALE_AFFINE;
    if (!affine) meta[3] = meta[4];
    nb_status s = imp_blob(im, name, name, NB_DT_U8, 1, &dim, packed, bytes, meta, affine ? 5 : 4);
    free(packed);
    return s;
}

static inline const nb_st_tensor *imp_expert(importer *im, nb_str group, int32_t e, const char *proj)
{
    for (size_t i = 0; i < im->st.n; i++)
        if (nb_str_is(nb_arch_canonical(&im->c, im->st.tensors[i].name, im->a),
                      nb_arena_printf(im->a, "%.*s.%d.%s.weight", NB_FMT_STR(group), (int)e, proj)))
            return &im->st.tensors[i];
    return NULL;
}

static inline nb_status imp_bank(importer *im, const nb_tensor_spec *spec)
{
    static const char *const proj[3] = {"gate_proj", "up_proj", "down_proj"}, *const key[3] = {"gate", "up", "down"};
    uint64_t off[3], stride = 0, size;
    nb_str name = nb_str_of(nb_arena_printf(im->a, "%.*s.weight", NB_FMT_STR(spec->name)));
    nb_st_kv meta[16];
    size_t n_meta = 0;
    meta[n_meta++] = imp_meta(im, name, ".layout", "rows16.1");
    for (int i = 0; i < 3; i++) {
        nb_rows16_bytes(im->type, spec->proj[i].n, spec->proj[i].k, &size);
        off[i] = stride;
        stride += size;
        nb_str base = nb_str_of(nb_arena_printf(im->a, "%.*s.%s", NB_FMT_STR(name), key[i]));
        meta[n_meta++] = imp_meta(im, base, ".quant_type", nb_format_info((nb_format)im->type.format)->name);
        meta[n_meta++] = imp_meta(im, base, ".group_size", nb_arena_printf(im->a, "%u", im->type.group));
        meta[n_meta++] =
            imp_meta(im, base, ".shape",
                     nb_arena_printf(im->a, "[%lld,%lld]", (long long)spec->proj[i].n, (long long)spec->proj[i].k));
        meta[n_meta++] = imp_meta(im, base, ".offset", nb_arena_printf(im->a, "%llu", (unsigned long long)off[i]));
    }
    stride = NB_ALIGN_UP(stride, 4096);
    uint8_t *data = calloc((size_t)spec->experts, stride);
    for (int32_t e = 0; e < spec->experts; e++)
        for (int i = 0; i < 3; i++) {
            const nb_st_tensor *t = imp_expert(im, spec->name, e, proj[i]);
            if (!t) return nb_fail(&im->err, NB_E_INVALID, "no expert %d", (int)e);
            nb_parts p = imp_parts(im, im->file.p + t->off, t->dim[0], t->dim[1]);
            nb_rows16_pack(im->type, &p, t->dim[0], t->dim[1], data + (uint64_t)e * stride + off[i]);
        }
    int64_t dim[2] = {spec->experts, (int64_t)stride};
    nb_status s = imp_blob(im, spec->name, name, NB_DT_U8, 2, dim, data, (size_t)spec->experts * stride, meta, n_meta);
    free(data);
    return s;
}

static inline nb_status imp_file(importer *im, const char *model, const char *name, const char *media)
{
    char path[4096];
    nb_buf b = {0};
    snprintf(path, sizeof path, "%s/reference_models/%s/%s", data_root(), model, name);
    if (!nb_path_exists(path)) return NB_OK;
    nb_status s = nb_file_read(&b, path, 64u << 20, &im->err);
    if (s == NB_OK) s = imp_layer(im, media, nb_str_of(name), b.p, b.n);
    nb_buf_free(&b);
    return s;
}

static inline nb_status imp_tensors(importer *im)
{
    nb_tensor_spec *specs;
    size_t n;
    nb_status s = nb_arch_tensors(&im->c, im->a, &specs, &n, &im->err);
    for (size_t i = 0; s == NB_OK && i < n; i++) {
        if (specs[i].role == NB_ROLE_BANK) {
            s = imp_bank(im, &specs[i]);
            continue;
        }
        for (size_t k = 0; s == NB_OK && k < im->st.n; k++) {
            const nb_st_tensor *t = &im->st.tensors[k];
            if (!nb_str_eq(nb_arch_canonical(&im->c, t->name, im->a), specs[i].name)) continue;
            if (specs[i].role == NB_ROLE_VECTOR)
                s = imp_blob(im, specs[i].name, specs[i].name, t->dtype, t->rank, t->dim, im->file.p + t->off, t->len,
                             NULL, 0);
            else
                s = imp_matrix(im, specs[i].name, t, specs[i].role == NB_ROLE_TABLE);
        }
    }
    return s;
}

/* Imports reference model `model` as `name`. extra: name and text of one more layer, or NULL. */
static inline nb_status import_reference(nb_store *store, const char *model, const nb_name *name, nb_qtype type,
                                         bool standard, nb_error *err)
{
    importer *im = calloc(1, sizeof *im);
    nb_json_doc doc = {0};
    char path[4096];
    im->store = store;
    im->type = type;
    im->standard = standard;
    im->a = nb_arena_new(0);
    snprintf(path, sizeof path, "%s/reference_models/%s/model.safetensors", data_root(), model);
    nb_status s = json_file(&doc, model, "config.json", &im->err);
    if (s == NB_OK) s = nb_config_read(&im->c, doc.root, NULL, im->a, &im->err);
    if (s == NB_OK) s = nb_file_map(&im->file, path, UINT64_MAX, &im->err);
    if (s == NB_OK) s = nb_st_read_mem(&im->st, im->file.p, im->file.n, path, 0, &im->err);
    if (s == NB_OK) s = imp_tensors(im);
    if (s == NB_OK) s = imp_file(im, model, "config.json", NB_MEDIA_JSON);
    if (s == NB_OK) s = imp_file(im, model, "generation_config.json", NB_MEDIA_JSON);
    if (s == NB_OK) s = imp_layer(im, NB_MEDIA_CONFIG, nb_str_of(""), "{\"model_format\":\"nibble\"}", 25);
    if (s == NB_OK) s = nb_manifest_publish(store, name, &im->layers[im->n - 1], im->layers, im->n - 1, NULL, &im->err);
    if (err) *err = im->err;
    if (im->st.arena) nb_st_free(&im->st);
    nb_file_unmap(&im->file);
    nb_json_free(&doc);
    nb_arena_free(im->a);
    free(im);
    return s;
}

/* A store of its own for the whole test program. */
static char root[] = "/tmp/nibble-test-model-XXXXXX";
static nb_store *store;

static inline int store_setup(void **state)
{
    (void)state;
    nb_error err;
    return !mkdtemp(root) || nb_store_open(&store, root, &err) != NB_OK;
}

static inline int store_teardown(void **state)
{
    (void)state;
    char command[128];
    nb_store_close(store);
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

#endif
