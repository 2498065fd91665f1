/* format/gguf: a GGUF v3 (and v2) reader with the care of the safetensors reader. */
#ifndef NB_FORMAT_GGUF_H
#define NB_FORMAT_GGUF_H

#include "format/format.h"
#include "json/json.h"

/* ggml type numbers that a file may carry */
typedef enum nb_ggml_type {
    NB_GGML_F32 = 0, NB_GGML_F16 = 1, NB_GGML_Q4_0 = 2, NB_GGML_Q4_1 = 3, NB_GGML_Q5_0 = 6, NB_GGML_Q5_1 = 7, NB_GGML_Q8_0 = 8,
    NB_GGML_Q2_K = 10, NB_GGML_Q3_K = 11, NB_GGML_Q4_K = 12, NB_GGML_Q5_K = 13, NB_GGML_Q6_K = 14,
    NB_GGML_IQ4_NL = 20, NB_GGML_IQ4_XS = 23, NB_GGML_BF16 = 30, NB_GGML_MXFP4 = 39, NB_GGML_NVFP4 = 40,
} nb_ggml_type;
typedef struct nb_ggml_row { const char *name; int type; uint16_t block, bytes; } nb_ggml_row;
const nb_ggml_row *nb_ggml_info(uint32_t type); /* NULL: unknown type; known ones beyond the enum (IQ2_XS ...) have a name and sizes too, so that they are refused by name */

typedef struct nb_gguf_tensor {
    nb_str name;
    uint32_t type;
    uint8_t rank;
    int64_t dim[4]; /* as a matrix [dim[rank-1] ... rows][dim[0] columns]: ggml order, dim[0] is contiguous */
    uint64_t off, len; /* absolute, bytes */
} nb_gguf_tensor;

typedef struct nb_gguf {
    nb_arena *arena;
    const uint8_t *p; size_t n_bytes;      /* the mapped file */
    const nb_json *meta;                   /* object: key -> value; numbers as literals (infinity 1e999, NaN null), arrays as arrays; large arrays included. Non-UTF-8 string bytes become the code points U+00xx of each byte of that string, and the key is counted in bad_utf8 */
    uint32_t bad_utf8;
    nb_gguf_tensor *tensors; size_t n;     /* sorted by name */
    uint64_t data_off, alignment;
} nb_gguf;

/* Parses a mapped file (create reads sources by pread: nb_gguf_read below). Every count, length, dimension, offset and alignment is checked against the file's size. */
nb_status nb_gguf_parse(nb_gguf *g, const void *p, size_t n, const char *path, nb_error *err);
/* Reads the header part by pread into memory of its own (at most 512 MiB), then parses it as above; tensor data is not touched. */
nb_status nb_gguf_read(nb_gguf *g, int fd, uint64_t size, const char *path, nb_error *err);
void nb_gguf_free(nb_gguf *g);
const nb_gguf_tensor *nb_gguf_find(const nb_gguf *g, nb_str name);

/* The qtype that holds blocks of a ggml type without loss (design.md 9): F32, F16, BF16, Q4_0 -> int4:g32 (F16 scale; bias F16 or F32), Q4_1, Q8_0 -> int8:g32, MXFP4, NVFP4, Q5_0/Q5_1 -> int5:g32, Q4_K/Q5_K -> group 32 with F32 scales. false: none (Q6_K ...). */
bool nb_ggml_lossless(uint32_t type, nb_qtype *q);
/* Blocks of `rows` rows of k elements (row_bytes each) into standard parts of that qtype. NB_E_INVALID where a block is out of the domain;
 * zeroed (may be NULL) counts the blocks below it, which became zero (nb_parts_domain). */
nb_status nb_ggml_to_parts(uint32_t type, const void *blocks, int64_t rows, int64_t k, nb_qtype q, const nb_parts *out, uint64_t *zeroed, nb_error *err);
/* Decodes any weight type of the enum to F32, as the gguf package does. false: unknown */
bool nb_ggml_to_f32(uint32_t type, const void *blocks, int64_t count, float *out);

#endif
