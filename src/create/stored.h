/* create/stored: the weights of a stored model, one by one, out of blobs of any layout. Internal to src/create. */
#ifndef NB_CREATE_STORED_H
#define NB_CREATE_STORED_H

#include "base/file.h"
#include "create/plan.h"

/* A matrix as a blob's metadata describes it. */
typedef struct nb_packed {
    nb_qtype q;
    int64_t n, k;
} nb_packed;
bool nb_blob_meta(const nb_st_file *f, nb_str tensor, const char *key, nb_str *v);
bool nb_blob_packed(const nb_st_file *f, nb_str prefix, nb_packed *p);
bool nb_parse_i64(nb_str s, int64_t *out);

typedef struct nb_stored {
    nb_str name; /* hub name; experts of a bank: "G.gate_proj.weight" with `expert` and `experts` set */
    bool matrix; /* else a plain tensor */
    nb_qtype q;
    nb_layout layout;
    int64_t n, k, expert, experts;         /* experts 0: not of a bank */
    const uint8_t *data, *scales, *biases; /* packed data, or the parts of the standard layout */
    uint64_t bytes;                        /* of data */
    float m;
    const uint8_t *row_scale, *block_scale; /* F32, unaligned */
    const uint8_t *pre_scale; /* [k] the same, or NULL: values are those of W with its columns multiplied */
    nb_dtype dtype;           /* plain */
    uint8_t rank;
    int64_t dim[8];
} nb_stored;

typedef struct nb_model_blobs {
    nb_arena *arena;
    nb_manifest manifest;
    nb_mapped *map;
    nb_st_file *file;
    size_t n_files;
    nb_stored *t;
    size_t n, cap; /* in manifest order */
} nb_model_blobs;

nb_status nb_blobs_open(nb_model_blobs *b, nb_store *s, const nb_name *name, nb_error *err);
/* One blob, before there is a manifest. */
nb_status nb_blobs_open_one(nb_model_blobs *b, nb_store *s, const nb_layer *layer, nb_error *err);
/* The matrix of this name and expert; NULL: not there. */
const nb_stored *nb_blobs_find(const nb_model_blobs *b, nb_str name, int64_t expert);
void nb_blobs_close(nb_model_blobs *b);
/* Rows [r0, r0+rows) as contiguous parts, or as F32. */
void nb_stored_parts(const nb_stored *t, int64_t r0, int64_t rows, const nb_parts *out);
nb_status nb_stored_floats(const nb_stored *t, int64_t r0, int64_t rows, float *out, nb_buf *scratch, nb_error *err);

#endif
