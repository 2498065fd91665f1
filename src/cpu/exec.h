/* cpu/exec: how the CPU runs a graph. Every lane walks the array of steps and meets the others only before steps marked
 * so. Internal to src/cpu.
 *
 * A plan owns one mapping: slots, rotary rows, attention partials, then each lane's scratch. A slot is [rows][stride]:
 * F32 and I32 slots have a stride of `width` elements, ACT slots of width padded to 32; what nobody writes (padding)
 * stays +0.
 */
#ifndef NB_CPU_EXEC_H
#define NB_CPU_EXEC_H

#include "base/lanes.h"
#include "cpu/kernels.h"

/* How the lanes divide a step. Only whole rows, columns in tiles of 16, heads or blocks; never a reduction (design.md
 * 4). */
typedef enum nb_share {
    NB_SHARE_ROWS, /* contiguous rows */
    NB_SHARE_COLS, /* all rows, contiguous tiles of 16 columns out of `tiles` */
    NB_SHARE_OWN,  /* the op's own way */
} nb_share;

typedef struct nb_step {
    const nb_op *op;
    uint8_t share;
    bool barrier;    /* all lanes meet before this step */
    int32_t tiles;   /* NB_SHARE_COLS */
    int32_t ordinal; /* ROUTE: number among the routes */
} nb_step;

typedef struct nb_slot_mem {
    uint8_t *p;
    size_t stride; /* bytes */
    int32_t rows;
} nb_slot_mem;

typedef struct nb_lane_mem {
    void *linear;  /* linear_scratch bytes, 4096-aligned */
    uint8_t *temp; /* temp_bytes, 64-aligned: rows of norms, experts, attention */
} nb_lane_mem;

/* Attention over (item, block) units: see attention.c. Shared by the lanes. */
typedef struct nb_attn_shared {
    float *partial; /* per unit and row: m, l, then o[dv16] */
    float *state;   /* per item and row: the same */
} nb_attn_shared;

struct nb_plan {
    const nb_graph *g;
    nb_kernels k;
    nb_lanes *lanes;
    int32_t n_lanes, chunk;
    bool f32;
    size_t elem;             /* bytes of an ACT element */
    nb_slot_mem *slots;      /* [n_slots] */
    nb_step *forward, *head; /* [n_ops], [n_head] */
    float **rope;            /* [n_ropes] -> [chunk][2][pairs]: cos, then sin */
    nb_lane_mem *lane;       /* [n_lanes] */
    nb_attn_shared attn;
    uint8_t *experts_act; /* experts.c: rounded f(gate) * up of every (row, rank) pair */
    uint8_t head_bad[NB_LOGIT_ROWS];
    int32_t head_seq[NB_LOGIT_ROWS]; /* 0, 1, 2 ... */
    void *map;
    size_t map_bytes, temp_bytes, linear_bytes;
    nb_arena *arena; /* the small arrays above */
};

/* One forward or unembedding. */
typedef struct nb_run {
    nb_plan *p;
    const nb_step *steps;
    int32_t n_steps, rows;
    const nb_batch *b;  /* NULL in the head */
    const int32_t *seq; /* of each row: index into bad */
    uint8_t *bad;
} nb_run;

static inline void nb_mark_bad(const nb_run *r, int32_t row)
{
    __atomic_store_n(&r->bad[r->seq[row]], 1, __ATOMIC_RELAXED);
}
static inline float *nb_slot_f32(const nb_plan *p, nb_slot_id s, int32_t row)
{
    return (float *)(void *)(p->slots[s].p + (size_t)row * p->slots[s].stride);
}
static inline int32_t *nb_slot_i32(const nb_plan *p, nb_slot_id s, int32_t row)
{
    return (int32_t *)(void *)(p->slots[s].p + (size_t)row * p->slots[s].stride);
}
static inline uint8_t *nb_slot_act(const nb_plan *p, nb_slot_id s, int32_t row)
{
    return p->slots[s].p + (size_t)row * p->slots[s].stride;
}
static inline int64_t nb_pad32(int64_t n) { return NB_ALIGN_UP(n, 32); }
static inline int64_t nb_pad16(int64_t n) { return NB_ALIGN_UP(n, 16); }

/* Part `lane` of `lanes` of [0, n), contiguous and even. */
static inline void nb_split(int64_t n, int lane, int lanes, int64_t *from, int64_t *to)
{
    *from = n * lane / lanes;
    *to = n * (lane + 1) / lanes;
}

/* Rounds x[n] into columns [col, col + n) of an act row, padded to n_pad; marks the row's sequence when a value left
 * the domain. */
static inline void nb_round_into(const nb_run *r, int32_t row, const float *x, int64_t n, int64_t n_pad, uint8_t *act,
                                 int64_t col)
{
    const nb_plan *p = r->p;
    bool bad = p->f32 ? p->k.round_row_f32(x, n, n_pad, (float *)(void *)act + col)
                      : p->k.round_row(x, n, n_pad, (uint16_t *)(void *)act + col);
    if (bad) nb_mark_bad(r, row);
}

/* exec_plan.c: shares, barriers, scratch. */
void nb_plan_steps(nb_plan *p, const nb_op *ops, int32_t n, nb_step *steps, uint8_t *state);
size_t nb_plan_state_bytes(const nb_graph *g);
/* Bytes of temp that one lane needs for the op. */
size_t nb_op_temp_bytes(const nb_plan *p, const nb_op *op);

/* The ops that have files of their own. */
void nb_run_rope(const nb_run *r, const nb_step *s, int lane);
size_t nb_rope_temp_bytes(const nb_op *op);
void nb_run_attention(const nb_run *r, const nb_step *s, int lane);
size_t nb_attention_temp_bytes(const nb_plan *p, const nb_op *op);
void nb_attention_shared_floats(const nb_plan *p, const nb_op *op, size_t *partial, size_t *state);
void nb_run_experts(const nb_run *r, const nb_step *s, int lane);
size_t nb_experts_temp_bytes(const nb_plan *p, const nb_op *op);
size_t nb_experts_shared_bytes(const nb_plan *p, const nb_op *op);
void nb_run_route(const nb_run *r, const nb_step *s, int lane);
/* exec_ops.c */
void nb_run_op(const nb_run *r, const nb_step *s, int lane);

/* guard.c: in debug builds an allocation between on and off, in that thread, is fatal (design.md 6, rule 2). */
#ifdef NB_DEBUG
void nb_guard_on(void);
void nb_guard_off(void);
#else
static inline void nb_guard_on(void) {}
static inline void nb_guard_off(void) {}
#endif

#endif
