/* tensor/weight: a matrix, a gathered table, an expert bank, as they lie in a mapped blob. Nothing here owns memory. */
#ifndef NB_TENSOR_WEIGHT_H
#define NB_TENSOR_WEIGHT_H

#include "format/format.h"

/* y = W x: W is [n, k] in `layout`. */
typedef struct nb_weight {
    const char *name;         /* hub name, for messages; NUL-terminated */
    nb_qtype type;
    nb_layout layout;         /* ROWS16 for products, ROWS1 for gathered tables */
    int64_t n, k;             /* logical */
    const uint8_t *data;      /* first tile or record */
    uint64_t bytes;
    float multiplier;         /* m of the epilogue: NVFP4 global scale, FP8 per tensor; 1 otherwise */
    const float *row_scale;   /* [n] FP8 per channel, or NULL */
    const float *block_scale; /* [ceil(n/128), ceil(k/128)] FP8 blocks, or NULL */
    const float *bias;        /* [n] F32 or NULL; model arena */
    const float *pre_scale;   /* [k] F32 or NULL: y = W (x * pre_scale), applied by the records before the product */
} nb_weight;

enum { NB_PROJ_GATE, NB_PROJ_UP, NB_PROJ_DOWN, NB_PROJ_COUNT };
/* Experts' matrices, rows16 tiles of gate, up, down at `offset` inside each expert's record. */
typedef struct nb_bank {
    const char *name;
    int32_t experts;
    const uint8_t *data;      /* [experts] records of `stride` bytes; a kernel takes one pointer per chosen expert */
    uint64_t stride;
    struct nb_bank_proj {
        nb_qtype type;
        int64_t n, k;
        uint64_t offset;
        const float *multiplier; /* [experts], or NULL: 1 */
        const float *bias;       /* [experts, n], or NULL */
    } proj[NB_PROJ_COUNT];
} nb_bank;

#endif
