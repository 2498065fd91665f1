/* tests/create/fixture: tiny checkpoints in a temporary folder, imports of them, and a look into the blobs. */
#ifndef TESTS_CREATE_FIXTURE_H
#define TESTS_CREATE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/file.h"
#include "create/create.h"
#include "format/safetensors.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fx {
    char dir[256], src[300], root[300];
    nb_store *store;
    nb_st_out outs[512];
    nb_buf data[512];
    size_t n;
    nb_error err;
    nb_create_report report;
} fx;

static int fx_rm(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

static NB_UNUSED fx *fx_new(void)
{
    fx *x = calloc(1, sizeof *x);
    const char *tmp = getenv("TMPDIR");
    assert_non_null(x);
    snprintf(x->dir, sizeof x->dir, "%s/nibble-create-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    assert_non_null(mkdtemp(x->dir));
    snprintf(x->src, sizeof x->src, "%s/src", x->dir);
    snprintf(x->root, sizeof x->root, "%s/store", x->dir);
    assert_int_equal(mkdir(x->src, 0755), 0);
    assert_int_equal(nb_store_open(&x->store, x->root, &x->err), NB_OK);
    return x;
}

static NB_UNUSED void fx_clear(fx *x)
{
    for (size_t i = 0; i < x->n; i++) nb_buf_free(&x->data[i]);
    memset(x->data, 0, sizeof x->data);
    x->n = 0;
}

static NB_UNUSED void fx_free(fx *x)
{
    fx_clear(x);
    nb_create_report_free(&x->report);
    nb_store_close(x->store);
    nftw(x->dir, fx_rm, 16, FTW_DEPTH | FTW_PHYS);
    free(x);
}

static NB_UNUSED void fx_file(fx *x, const char *name, const void *p, size_t n)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", x->src, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static NB_UNUSED void fx_text(fx *x, const char *name, const char *text) { fx_file(x, name, text, strlen(text)); }

/* Adds a tensor; data NULL: zeros. Dimensions as text: "2,32", "" for a scalar. */
static NB_UNUSED void fx_add(fx *x, const char *name, nb_dtype dt, const char *dims, const void *data)
{
    nb_st_out *o = &x->outs[x->n];
    uint64_t count = 1;
    *o = (nb_st_out){.name = nb_str_of(name), .dtype = dt};
    for (const char *p = dims; *p;) {
        char *end;
        o->dim[o->rank++] = strtoll(p, &end, 10);
        count *= (uint64_t)o->dim[o->rank - 1];
        p = *end ? end + 1 : end;
    }
    size_t bytes = (size_t)(count * (uint64_t)nb_dtype_bits(dt) / 8);
    assert_true(nb_buf_reserve(&x->data[x->n], bytes));
    if (data)
        memcpy(x->data[x->n].p, data, bytes);
    else
        memset(x->data[x->n].p, 0, bytes);
    x->data[x->n++].n = bytes;
}

static NB_UNUSED void fx_fill(fx *x, const char *name, nb_dtype dt, const char *dims, uint8_t byte)
{
    fx_add(x, name, dt, dims, NULL);
    memset(x->data[x->n - 1].p, byte, x->data[x->n - 1].n);
}

/* BF16 values from a fixed generator, about +-1. */
static NB_UNUSED void fx_random(fx *x, const char *name, const char *dims, uint32_t seed)
{
    fx_add(x, name, NB_DT_BF16, dims, NULL);
    nb_buf *b = &x->data[x->n - 1];
    for (size_t i = 0; i < b->n / 2; i++) {
        seed = seed * 1664525u + 1013904223u;
        nb_store_u16(b->p + 2 * i, nb_bf16_encode((float)(int32_t)seed * (1.0f / 2147483648.0f)));
    }
}

static NB_UNUSED void fx_save(fx *x, const char *file)
{
    nb_buf b = {0};
    uint64_t total;
    assert_int_equal(nb_st_header(&b, x->outs, x->n, NULL, 0, 8, &total, NULL, &x->err), NB_OK);
    for (size_t i = 0; i < x->n; i++) nb_buf_add(&b, x->data[i].p, x->data[i].n);
    assert_int_equal(b.n, total);
    fx_file(x, file, b.p, b.n);
    nb_buf_free(&b);
}

/* A config that no architecture matches: tensors are planned by names and shapes. */
static NB_UNUSED void fx_plain_config(fx *x, const char *more)
{
    char text[4000];
    snprintf(text, sizeof text, "{\"architectures\":[\"TestForCausalLM\"]%s%s}", *more ? "," : "", more);
    fx_text(x, "config.json", text);
}

static NB_UNUSED nb_create_options fx_options(fx *x)
{
    nb_create_options o;
    nb_create_defaults(&o);
    o.name = "t";
    o.source = x->src;
    o.force = true;
    o.layout = NB_LAYOUT_STANDARD;
    return o;
}

static NB_UNUSED nb_status fx_run(fx *x, const nb_create_options *o)
{
    nb_create_report_free(&x->report);
    memset(&x->err, 0, sizeof x->err);
    return nb_create(x->store, o, &x->report, &x->err);
}

static NB_UNUSED nb_status fx_create(fx *x, const char *type)
{
    nb_create_options o = fx_options(x);
    assert_int_equal(nb_create_parse_request(&o, type, &x->err), NB_OK);
    return fx_run(x, &o);
}

static NB_UNUSED void fx_ok(fx *x, nb_status st)
{
    if (st != NB_OK) print_error("%s\n", x->err.text);
    assert_int_equal(st, NB_OK);
}

/* The import failed, its text holds `part`, and nothing is left behind. */
static NB_UNUSED size_t fx_files_in(const fx *x, const char *sub);
static NB_UNUSED void fx_fails(fx *x, nb_status got, nb_status want, const char *part)
{
    if (got != want || !strstr(x->err.text, part))
        print_error("status %d: %s (wanted %d, %s)\n", got, x->err.text, want, part);
    assert_int_equal(got, want);
    assert_non_null(strstr(x->err.text, part));
    assert_null(strchr(x->err.text, '\n'));
}

static size_t fx_count;
static int fx_counter(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)path;
    (void)st;
    (void)f;
    fx_count += type == FTW_F || type == FTW_SL;
    return 0;
}
/* Files below ROOT/sub that are not locks. */
static NB_UNUSED size_t fx_files_in(const fx *x, const char *sub)
{
    char path[700];
    snprintf(path, sizeof path, "%s/%s", x->root, sub);
    fx_count = 0;
    nftw(path, fx_counter, 16, FTW_PHYS);
    return fx_count;
}
static NB_UNUSED void fx_nothing_left(const fx *x)
{
    assert_int_equal(fx_files_in(x, "blobs"), 0);
    assert_int_equal(fx_files_in(x, "manifests-v2"), 0);
    assert_int_equal(fx_files_in(x, "tmp"), 0);
}

/* ---- blobs ---- */

typedef struct fx_blob {
    nb_manifest m;
    nb_mapped map;
    nb_st_file f;
    bool found;
} fx_blob;

static NB_UNUSED fx_blob fx_open(fx *x, const char *layer)
{
    fx_blob b = {.map = {.fd = -1}};
    nb_name name;
    nb_buf path = {0};
    assert_int_equal(nb_name_parse(&name, "t", &x->err), NB_OK);
    fx_ok(x, nb_manifest_read(x->store, &name, &b.m, &x->err));
    const nb_layer *l = nb_manifest_find(&b.m, layer);
    if (l) {
        nb_blob_path(x->store, l->hex, &path);
        fx_ok(x, nb_file_map(&b.map, nb_buf_cstr(&path), l->size, &x->err));
        fx_ok(x, nb_st_read_mem(&b.f, b.map.p, b.map.n, layer, NB_ST_STRICT, &x->err));
        b.found = true;
    }
    nb_buf_free(&path);
    return b;
}

static NB_UNUSED void fx_close(fx_blob *b)
{
    if (b->found) {
        nb_st_free(&b->f);
        nb_file_unmap(&b->map);
    }
    nb_manifest_free(&b->m);
}

static NB_UNUSED const nb_st_tensor *fx_tensor(const fx_blob *b, const char *name)
{
    return b->found ? nb_st_find(&b->f, nb_str_of(name)) : NULL;
}

/* A stored file as JSON; the text must outlive the document. */
static NB_UNUSED nb_json_doc fx_json(fx *x, const char *hex, nb_buf *text)
{
    nb_json_doc d = {0};
    nb_buf path = {0};
    text->n = 0;
    nb_blob_path(x->store, hex, &path);
    fx_ok(x, nb_file_read(text, nb_buf_cstr(&path), 1 << 20, &x->err));
    fx_ok(x, nb_json_parse(&d, text->p, text->n, "stored", NULL, &x->err));
    nb_buf_free(&path);
    return d;
}

/* A tensor is there with this dtype, dimensions and bytes (NULL: any). */
static NB_UNUSED void fx_expect(const fx_blob *b, const char *name, nb_dtype dt, const char *dims, const void *bytes)
{
    const nb_st_tensor *t = fx_tensor(b, name);
    if (!t) print_error("%s is not in the blob\n", name);
    assert_non_null(t);
    assert_string_equal(nb_dtype_name(t->dtype), nb_dtype_name(dt));
    char text[100] = "";
    for (int i = 0; i < t->rank; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%lld", i ? "," : "", (long long)t->dim[i]);
    assert_string_equal(text, dims);
    if (bytes) assert_memory_equal(b->map.p + t->off, bytes, t->len);
}

static NB_UNUSED void fx_meta(const fx_blob *b, const char *key, const char *want)
{
    nb_str v;
    bool hit = nb_st_meta(&b->f, key, &v);
    if (!want) {
        assert_false(hit);
        return;
    }
    if (!hit) print_error("metadata %s is missing\n", key);
    assert_true(hit);
    assert_true(nb_str_is(v, want));
}

static NB_UNUSED float fx_f32(const fx_blob *b, const char *name, size_t i)
{
    const nb_st_tensor *t = fx_tensor(b, name);
    assert_non_null(t);
    return nb_f32_bits(nb_load_u32(b->map.p + t->off + 4 * i));
}

/* Values of a standard-layout matrix "X" in the blob of that name, by the definition. */
static NB_UNUSED void fx_values(const fx_blob *b, const char *name, nb_qtype q, int64_t n, int64_t k, float *out)
{
    char key[200];
    size_t c, s, z;
    const nb_st_tensor *t = fx_tensor(b, name);
    assert_non_null(t);
    assert_true(nb_parts_row_bytes(q, k, &c, &s, &z));
    nb_parts p = {
        .codes = (uint8_t *)(uintptr_t)(b->map.p + t->off), .code_stride = c, .scale_stride = s, .bias_stride = z};
    snprintf(key, sizeof key, "%s.scale", name);
    t = fx_tensor(b, key);
    if (t) p.scales = (uint8_t *)(uintptr_t)(b->map.p + t->off);
    snprintf(key, sizeof key, "%s.bias", name);
    t = fx_tensor(b, key);
    if (t) p.biases = (uint8_t *)(uintptr_t)(b->map.p + t->off);
    snprintf(key, sizeof key, "%s.global_scale", name);
    t = fx_tensor(b, key);
    nb_dequantize_rows(q, &p, n, k, t ? nb_f32_bits(nb_load_u32(b->map.p + t->off)) : 1.0f, out);
}

#endif
