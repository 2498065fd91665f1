/* The canonical safetensors header (specs/create.md 6.1): no spaces, __metadata__ first with sorted keys, tensors in
 * data order, padded with spaces, so that the same content always gives the same bytes. */
#include "format/safetensors.h"

#include <stdlib.h>

static int kv_cmp(const void *a, const void *b)
{
    return nb_str_cmp(((const nb_st_kv *)a)->key, ((const nb_st_kv *)b)->key);
}

static nb_status write_metadata(nb_buf *buf, const nb_st_kv *meta, size_t n, nb_error *err)
{
    if (n == 0) return NB_OK;
    nb_st_kv *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return nb_fail(err, NB_E_NO_MEMORY, "safetensors header: out of memory");
    memcpy(sorted, meta, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, kv_cmp);
    nb_status st = NB_OK;
    nb_buf_add_cstr(buf, "\"__metadata__\":{");
    for (size_t i = 0; i < n; i++) {
        if (i && nb_str_eq(sorted[i].key, sorted[i - 1].key))
            st = nb_fail(err, NB_E_INVALID, "safetensors header: metadata key '%.*s' twice", NB_FMT_STR(sorted[i].key));
        if (i) nb_buf_add_char(buf, ',');
        nb_json_write_string(buf, sorted[i].key, NB_JSON_COMPACT);
        nb_buf_add_char(buf, ':');
        nb_json_write_string(buf, sorted[i].value, NB_JSON_COMPACT);
    }
    nb_buf_add_char(buf, '}');
    free(sorted);
    return st;
}

/* Bytes of a tensor; false: dimensions that no file can hold. */
static bool tensor_bytes(const nb_st_out *t, uint64_t *bytes)
{
    uint64_t n = 1;
    if (t->rank > NB_COUNT(t->dim) || t->dtype <= NB_DT_NONE || t->dtype >= NB_DT_COUNT) return false;
    for (int i = 0; i < t->rank; i++)
        if (t->dim[i] < 0 || !nb_mul_u64(n, (uint64_t)t->dim[i], &n)) return false;
    if (!nb_mul_u64(n, (uint64_t)nb_dtype_bits(t->dtype), &n) || n % 8) return false;
    *bytes = n / 8;
    return true;
}

static void write_tensor(nb_buf *buf, const nb_st_out *t, uint64_t begin, uint64_t end)
{
    nb_json_write_string(buf, t->name, NB_JSON_COMPACT);
    nb_buf_printf(buf, ":{\"dtype\":\"%s\",\"shape\":[", nb_dtype_name(t->dtype));
    for (int i = 0; i < t->rank; i++) nb_buf_printf(buf, "%s%lld", i ? "," : "", (long long)t->dim[i]);
    nb_buf_printf(buf, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin, (unsigned long long)end);
}

static nb_status write_tensors(nb_buf *buf, const nb_st_out *tensors, size_t n, bool comma, uint64_t *data,
                               uint64_t *offs, nb_error *err)
{
    nb_map names = {0};
    nb_status st = nb_map_init(&names, n) ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "safetensors header: out of memory");
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        const nb_st_out *t = &tensors[i];
        uint64_t bytes, end;
        bool had = false;
        if (!tensor_bytes(t, &bytes) || !nb_add_u64(*data, bytes, &end) || end > INT64_MAX) {
            st = nb_fail(err, NB_E_INVALID, "safetensors header: tensor %.*s: its size overflows", NB_FMT_STR(t->name));
        } else if (!nb_map_put(&names, t->name, (uint32_t)i, &had, NULL)) {
            st = nb_fail(err, NB_E_NO_MEMORY, "safetensors header: out of memory");
        } else if (had || t->name.n == 0) {
            st = nb_fail(err, NB_E_INVALID, "safetensors header: tensor name '%.*s' twice or empty",
                         NB_FMT_STR(t->name));
        } else {
            if (comma || i) nb_buf_add_char(buf, ',');
            write_tensor(buf, t, *data, end);
            if (offs) offs[i] = *data;
            *data = end;
        }
    }
    nb_map_free(&names);
    return st;
}

nb_status nb_st_header(nb_buf *buf, const nb_st_out *tensors, size_t n, const nb_st_kv *meta, size_t n_meta, size_t pad,
                       uint64_t *total, uint64_t *offs, nb_error *err)
{
    size_t start = buf->n;
    uint64_t data = 0, length;
    nb_buf_add(buf, "\0\0\0\0\0\0\0\0{", 9);
    nb_status st = write_metadata(buf, meta, n_meta, err);
    if (st == NB_OK) st = write_tensors(buf, tensors, n, n_meta > 0, &data, offs, err);
    nb_buf_add_char(buf, '}');
    while (!buf->oom && pad && (buf->n - start) % pad) nb_buf_add_char(buf, ' ');
    if (st == NB_OK && buf->oom) st = nb_fail(err, NB_E_NO_MEMORY, "safetensors header: out of memory");
    if (st != NB_OK) {
        buf->n = start; /* nothing half-written stays */
        return st;
    }
    length = buf->n - start - 8;
    nb_store_u64(buf->p + start, length);
    for (size_t i = 0; offs && i < n; i++) offs[i] += 8 + length;
    *total = 8 + length + data;
    return NB_OK;
}
