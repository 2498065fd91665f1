/* format/safetensors: hardened reader (specs/create.md 1.6, checks V1 to V22) and canonical writer (6.1). */
#ifndef NB_FORMAT_SAFETENSORS_H
#define NB_FORMAT_SAFETENSORS_H

#include "format/format.h"
#include "json/json.h"

typedef struct nb_st_tensor {
    nb_str name;
    nb_dtype dtype;
    uint8_t rank;
    int64_t dim[8];
    uint64_t off; /* absolute in the file */
    uint64_t len; /* bytes */
} nb_st_tensor;

typedef struct nb_st_file {
    nb_arena *arena;       /* owns names and the table */
    nb_st_tensor *tensors; /* sorted by name bytes */
    size_t n;
    nb_json_doc header;
    const nb_json *metadata; /* object of strings, or NULL */
    uint64_t file_size, data_off;
    bool has_holes; /* V20: allowed in sources, reported */
} nb_st_file;

enum { NB_ST_STRICT = 1 /* holes are errors: our own blobs */ };
/* Reads and checks a header from an open descriptor. path only names the file in errors: "PATH: tensor T: ... (E_ST_RANGE)". */
nb_status nb_st_read(nb_st_file *f, int fd, uint64_t file_size, const char *path, int flags, nb_error *err);
/* From memory holding the whole file (fuzzing, mapped blobs). */
nb_status nb_st_read_mem(nb_st_file *f, const void *p, size_t n, const char *path, int flags, nb_error *err);
void nb_st_free(nb_st_file *f);
const nb_st_tensor *nb_st_find(const nb_st_file *f, nb_str name);
bool nb_st_meta(const nb_st_file *f, const char *key, nb_str *value);
bool nb_st_count(const nb_st_tensor *t, uint64_t *elements);

/* Writer: declare, then header, then the caller streams the data in declared order. */
typedef struct nb_st_out {
    nb_str name;
    nb_dtype dtype;
    uint8_t rank;
    int64_t dim[8];
} nb_st_out;
typedef struct nb_st_kv { nb_str key, value; } nb_st_kv;
/* Appends the 8 length bytes and the header to buf; data order is that of `tensors`; metadata keys are sorted by bytes. pad: 8 + N is a multiple of it (4096, 64 or 8).
 * total gets the size of the whole file, offs[i] (may be NULL) the absolute offset of tensor i. */
nb_status nb_st_header(nb_buf *buf, const nb_st_out *tensors, size_t n, const nb_st_kv *meta, size_t n_meta, size_t pad, uint64_t *total, uint64_t *offs, nb_error *err);

/* Shard choice of a source directory (specs/create.md 1.3): index file, shard names, completeness. */
typedef struct nb_st_shards {
    nb_arena *arena;
    nb_str *files;     /* bare names, sorted */
    size_t n;
    nb_json_doc index; /* root NULL without an index */
    const nb_json *weight_map; /* or NULL */
} nb_st_shards;
nb_status nb_st_shards_find(nb_st_shards *s, const char *dir, nb_error *err);
void nb_st_shards_free(nb_st_shards *s);
/* The headers of s->files (files[i] belongs to s->files[i]) against the index: E_INDEX_MISMATCH, E_INCOMPLETE, without an index
 * E_DUP_TENSOR; E_NO_WEIGHTS. A tensor that no weight_map names is to be ignored; they are counted. */
typedef struct nb_st_totals {
    uint64_t tensors, unmapped, bytes;
    bool size_differs; /* from metadata.total_size: a warning */
} nb_st_totals;
nb_status nb_st_shards_check(const nb_st_shards *s, const nb_st_file *files, nb_st_totals *out, nb_error *err);

#endif
