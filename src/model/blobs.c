/* The mapped blobs of a model: sizes against the manifest, strict headers, and the optional copy into anonymous memory.
 */
#include "model/load.h"

#include <stdio.h>
#include <stdlib.h>

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory while a model is opened");
}

static nb_status open_blob(nb_blob *b, nb_store *store, nb_error *err)
{
    nb_buf path = {0};
    nb_blob_path(store, b->layer->hex, &path);
    const char *text = nb_buf_cstr(&path);
    nb_status s = text ? nb_file_map(&b->file, text, b->layer->size, err) : no_memory(err);
    if (s == NB_OK) {
        b->p = b->file.p;
        s = nb_st_read_mem(&b->head, b->p, b->file.n, text, NB_ST_STRICT, err);
        b->has_head = s == NB_OK;
    }
    nb_buf_free(&path);
    return s;
}

nb_status nb_net_blobs_open(struct nb_net_blobs *b, nb_store *store, const nb_manifest *m, nb_arena *a, nb_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_layers; i++) n += nb_str_is(m->layers[i].media_type, NB_MEDIA_TENSOR);
    b->blob = NB_NEW_N(a, nb_blob, n);
    if (!b->blob) return no_memory(err);
    for (size_t i = 0; i < m->n_layers; i++) {
        if (!nb_str_is(m->layers[i].media_type, NB_MEDIA_TENSOR)) continue;
        nb_blob *one = &b->blob[b->n++];
        one->file.fd = -1;
        nb_layer *layer = NB_NEW(a, nb_layer); /* a copy: the manifest goes, the network stays */
        if (!layer) return no_memory(err);
        *layer = m->layers[i];
        one->layer = layer;
        nb_status s = open_blob(one, store, err);
        if (s != NB_OK) return s;
        nb_file_close(&one->file); /* a model has hundreds of blobs */
    }
    return NB_OK;
}

nb_status nb_net_blobs_resident(struct nb_net_blobs *b, nb_error *err)
{
    uint64_t total = 0, at = 0;
    for (size_t i = 0; i < b->n; i++)
        if (!nb_align_u64(total + b->blob[i].file.n, 4096, &total)) return no_memory(err);
    if (total == 0) return NB_OK;
    b->copies = nb_pages_new(total);
    if (!b->copies)
        return nb_fail(err, NB_E_NO_MEMORY, "no memory for a resident copy of %llu bytes of weights",
                       (unsigned long long)total);
    b->copies_bytes = total;
    for (size_t i = 0; i < b->n; i++) {
        nb_blob *one = &b->blob[i];
        memcpy(b->copies + at, one->p, one->file.n);
        one->p = b->copies + at;
        at += NB_ALIGN_UP(one->file.n, (size_t)4096);
        nb_file_unmap(&one->file);
    }
    return NB_OK;
}

uint8_t *nb_net_blobs_pages(struct nb_net_blobs *b, uint64_t bytes)
{
    struct nb_pages *grown = realloc(b->pages, (b->n_pages + 1) * sizeof *grown);
    if (!grown) return NULL;
    b->pages = grown;
    void *p = bytes && bytes < SIZE_MAX / 2 ? nb_pages_new((size_t)bytes) : NULL;
    if (p) grown[b->n_pages++] = (struct nb_pages){p, (size_t)bytes};
    return p;
}

void nb_net_blobs_close_heads(struct nb_net_blobs *b)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->blob[i].has_head) nb_st_free(&b->blob[i].head);
        b->blob[i].has_head = false;
    }
}

void nb_net_blobs_close(struct nb_net_blobs *b)
{
    nb_net_blobs_close_heads(b);
    for (size_t i = 0; i < b->n; i++) nb_file_unmap(&b->blob[i].file);
    for (size_t i = 0; i < b->n_pages; i++) nb_pages_free(b->pages[i].p, b->pages[i].n);
    free(b->pages);
    nb_pages_free(b->copies, b->copies_bytes);
    for (size_t i = 0; i < b->n_docs; i++) nb_json_free(&b->docs[i]);
    nb_file_unmap(&b->tokenizer);
    *b = (struct nb_net_blobs){0};
}

/* ---- helpers of binding ---- */

nb_status nb_net_bad_tensor(nb_error *err, const nb_blob *b, nb_str name, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return nb_fail(err, NB_E_INVALID, "blob sha256-%.12s: tensor %.*s: %s", b->layer->hex,
                   (int)(name.n < 160 ? name.n : 160), name.p, text);
}

/* base + suffix in a buffer of the caller; false: too long */
static bool join(char *out, size_t cap, nb_str base, const char *suffix, nb_str *key)
{
    size_t n = strlen(suffix);
    if (base.n + n >= cap) return false;
    memcpy(out, base.p, base.n);
    memcpy(out + base.n, suffix, n + 1);
    *key = (nb_str){out, base.n + n};
    return true;
}

const nb_st_tensor *nb_net_blob_find(const nb_blob *b, nb_str base, const char *suffix)
{
    char text[1024];
    nb_str key;
    return join(text, sizeof text, base, suffix, &key) ? nb_st_find(&b->head, key) : NULL;
}

bool nb_net_blob_meta(const nb_blob *b, nb_str base, const char *suffix, nb_str *value)
{
    char text[1024];
    nb_str key;
    return join(text, sizeof text, base, suffix, &key) && nb_json_str(nb_json_get_str(b->head.metadata, key), value);
}

nb_status nb_net_floats(nb_network *net, const nb_blob *b, const nb_st_tensor *t, uint64_t count, float **out,
                        nb_error *err)
{
    uint64_t have = 0;
    if (!nb_st_count(t, &have) || have != count)
        return nb_net_bad_tensor(err, b, t->name, "has %llu values, expected %llu",
                                 (unsigned long long)(nb_st_count(t, &have) ? have : 0), (unsigned long long)count);
    float *v = count < SIZE_MAX / 8 ? nb_arena_alloc_aligned(net->arena, (size_t)count * 4, 64) : NULL;
    if (!v) return no_memory(err);
    if (!nb_floats_decode(t->dtype, b->p + t->off, (size_t)count, v))
        return nb_net_bad_tensor(err, b, t->name, "dtype %s is no float type", nb_dtype_name(t->dtype));
    for (uint64_t i = 0; i < count; i++)
        if ((nb_bits_f32(v[i]) & 0x7f800000u) == 0x7f800000u)
            return nb_net_bad_tensor(err, b, t->name, "value %llu is NaN or infinite", (unsigned long long)i);
    *out = v;
    return NB_OK;
}

nb_status nb_net_companion(nb_network *net, const nb_blob *b, nb_str base, const char *suffix, uint64_t count,
                           const float **out, nb_error *err)
{
    *out = NULL;
    const nb_st_tensor *t = nb_net_blob_find(b, base, suffix);
    if (!t) return NB_OK;
    uint64_t have = 0;
    if (t->dtype != NB_DT_F32 || !nb_st_count(t, &have) || have != count)
        return nb_net_bad_tensor(err, b, t->name, "is %s of %llu values, expected F32 of %llu", nb_dtype_name(t->dtype),
                                 (unsigned long long)(t->len / 4), (unsigned long long)count);
    float *v;
    nb_status s = nb_net_floats(net, b, t, count, &v, err);
    if (s == NB_OK) *out = v;
    return s;
}
