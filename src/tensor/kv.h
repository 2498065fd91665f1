/* tensor/kv: how keys and values lie in memory. Declared here since a backend may not include src/cache, which owns the blocks. design.md 5.
 *
 * A block holds NB_KV_BLOCK slots of one layer: for each kv head K as rows16 [64 slots x dk] (4 tiles of 16 slots; dk padded to 32), then for each kv head
 * V as rows16 of its transpose [dv x 64 slots] (dv padded to 16; 2 groups of 32 slots). BF16 (4 B words: 2 channels or slots), or F32 in float32 mode with the same tiles.
 * Memory starts zeroed and holds in-domain values only.
 */
#ifndef NB_TENSOR_KV_H
#define NB_TENSOR_KV_H

#include "base/base.h"

#define NB_KV_BLOCK 64

typedef struct nb_kv_shape {
    int32_t heads, dk, dv; /* kv heads, logical widths */
    int32_t window;        /* 0: full attention; else keys with 0 <= q - k < window are seen */
    bool f32;              /* float32 mode */
} nb_kv_shape;

static inline size_t nb_kv_elem(const nb_kv_shape *s) { return s->f32 ? 4 : 2; }
static inline size_t nb_kv_k_head_bytes(const nb_kv_shape *s) { return (size_t)NB_KV_BLOCK * (size_t)NB_ALIGN_UP(s->dk, 32) * nb_kv_elem(s); }
static inline size_t nb_kv_v_head_bytes(const nb_kv_shape *s) { return (size_t)NB_KV_BLOCK * (size_t)NB_ALIGN_UP(s->dv, 16) * nb_kv_elem(s); }
static inline size_t nb_kv_block_bytes(const nb_kv_shape *s) { return (size_t)s->heads * (nb_kv_k_head_bytes(s) + nb_kv_v_head_bytes(s)); }

/* One layer of one sequence. The block of absolute slot j is block[(ring ? j % ring : j) / NB_KV_BLOCK]. */
typedef struct nb_kv_view {
    uint8_t *const *block;
    int32_t n_blocks;
    int32_t ring; /* modulus in slots, a multiple of 64; 0: linear */
} nb_kv_view;

#endif
