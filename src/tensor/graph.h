/* tensor/graph: a model's forward, recorded once at load as an array of op records over tensor slots. design.md 5.
 *
 * Nothing in a graph depends on row count, sequences or positions; these come with each run as an nb_batch. Slots are matrices [rows, width]; a backend
 * gives them memory for one chunk when it prepares a plan. Between ops all values are fp32 (NB_SLOT_F32). A vector that a product reads is rounded once into an
 * NB_SLOT_ACT slot (bf16; fp32 in float32 mode; K padded with +0; layout is the backend's) and every consumer reads that copy.
 */
#ifndef NB_TENSOR_GRAPH_H
#define NB_TENSOR_GRAPH_H

#include "base/base.h"
#include "tensor/kv.h"
#include "tensor/weight.h"

typedef enum nb_slot_kind { NB_SLOT_F32, NB_SLOT_ACT, NB_SLOT_I32 } nb_slot_kind;
typedef struct nb_slot {
    nb_slot_kind kind;
    int32_t width;
    const char *name;
} nb_slot;
typedef int32_t nb_slot_id; /* index into the graph's slots; NB_NO_SLOT: absent */
#define NB_NO_SLOT (-1)

typedef enum nb_act { NB_ACT_SILU, NB_ACT_GELU_TANH, NB_ACT_GELU_ERF, NB_ACT_RELU2, NB_ACT_SIGMOID } nb_act;
typedef enum nb_router { NB_ROUTER_SOFTMAX, NB_ROUTER_SOFTMAX_TOPK, NB_ROUTER_SIGMOID } nb_router;

typedef enum nb_op_kind {
    NB_OP_GATHER_ROWS, /* out = table[id of row] * scale */
    NB_OP_ROUND,       /* act = bf16(in) */
    NB_OP_RMS_NORM,    /* out and/or act = (x * r) * w, per group of `width` values (specs/architectures.md 5.2); w is F32 with any +1 already added */
    NB_OP_LINEAR,      /* up to NB_LINEAR_PARTS matrices that read one act: out = m*acc + bias (+ residual) */
    NB_OP_ROPE,        /* q, k in place: rotary embedding of the row's position, then k and v into the cache of kv layer `layer`, q into act `q_act` */
    NB_OP_ATTENTION,   /* act/out = softmax(scale q k + mask) v over the row's sequence */
    NB_OP_GLU,         /* act = f(gate) * up */
    NB_OP_ADD,         /* out = a + b */
    NB_OP_SCALE,       /* out = in * scale, or in * w element by element */
    NB_OP_SOFTCAP,     /* out = cap * tanh(in / cap) */
    NB_OP_ROUTE,       /* ids, weights of the k best experts of each row */
    NB_OP_EXPERTS,     /* out = sum over ranks, ascending, of w_s * down(f(gate) * up) (+ residual after) */
    NB_OP_CAPTURE,     /* copies in to the batch's capture buffer `index`, if the batch wants it */
    NB_OP_COUNT
} nb_op_kind;

#define NB_LINEAR_PARTS 4
typedef struct nb_op {
    uint8_t kind;    /* nb_op_kind */
    bool no_barrier; /* the next op may start without all lanes having met (set by the recorder where the lanes' shares agree) */
    union {
        struct { const nb_weight *table; float scale; nb_slot_id out; } gather;
        struct { nb_slot_id in, act; const float *pre_scale; } round; /* pre_scale, here and below: what act was multiplied with already (nb_weight.pre_scale), for the check of the record; or NULL */
        struct { nb_slot_id in, out, act; const float *w; int32_t width, groups; float eps; const float *pre_scale; } norm; /* w NULL: weightless; out or act may be absent; out may be in */
        struct { nb_slot_id act; int32_t parts; struct { const nb_weight *w; nb_slot_id out, residual; int32_t col; /* first column in out */ } part[NB_LINEAR_PARTS]; } linear;
        struct { nb_slot_id q, k, v, q_act; int32_t rope, layer, heads, kv_heads, dk, dv; bool interleaved; bool no_rotation; } rope; /* q_act holds heads * pad32(dk) values per row */
        struct { nb_slot_id q_act, out, act; int32_t layer, heads, kv_heads, dk, dv; float scale, softcap; const float *sinks; } attention; /* softcap 0: none; sinks [heads] or NULL */
        struct { nb_slot_id gate, up, act; nb_act f; int32_t width; const float *pre_scale; } glu;
        struct { nb_slot_id a, b, out; } add;
        struct { nb_slot_id in, out; float scale; const float *w; } scale; /* w [width], or NULL: scale */
        struct { nb_slot_id in, out; float cap; } softcap;
        struct { nb_slot_id logits, ids, weights; nb_router f; int32_t k; bool normalise; float scale; const float *bias; } route;
        struct { nb_slot_id act, ids, weights, out, residual; const nb_bank *bank; nb_act f; int32_t k; } experts;
        struct { nb_slot_id in; int32_t index; } capture;
    } u;
} nb_op;

/* Rotary frequencies of one kind of layer: angle = fp32(position) * freq[i]; `factor` multiplies cos and sin in double. design.md 4. */
typedef struct nb_rope_spec {
    const float *freq; /* [pairs], F32 rounded from double */
    int32_t pairs;     /* rotated width / 2 */
    double factor;     /* attention factor, 1 otherwise */
    /* llama-4 style temperature etc. come as further fields */
} nb_rope_spec;

typedef struct nb_graph {
    nb_arena *arena;       /* the model's; everything below lives there */
    nb_slot *slots; int32_t n_slots, cap_slots;
    nb_op *ops; int32_t n_ops, cap_ops;             /* forward: ids -> hidden */
    nb_op *head; int32_t n_head, cap_head;          /* unembedding: hidden rows chosen by the batch -> logits; runs with at most NB_LOGIT_ROWS rows */
    nb_rope_spec *ropes; int32_t n_ropes, cap_ropes;
    nb_kv_shape *kv; int32_t n_kv, cap_kv;          /* kv layers */
    nb_slot_id hidden;     /* F32: what is unembedded, after the final norm */
    nb_slot_id aux;        /* F32: what a draft conditions on; hidden unless the model says otherwise */
    nb_slot_id head_in;    /* F32 slot that the chosen rows of hidden are copied to before the head runs */
    nb_slot_id logits;     /* F32 [rows, vocab] of the head */
    int32_t n_captures;    /* capture indices 0..n-1: hidden.0 .. hidden.n */
} nb_graph;
#define NB_LOGIT_ROWS 64

/* Recording. Each returns false / NB_NO_SLOT when memory is out; sizes are the caller's duty and checked by nb_graph_check. */
nb_slot_id nb_graph_slot(nb_graph *g, nb_slot_kind kind, int32_t width, const char *name);
nb_op *nb_graph_op(nb_graph *g, nb_op_kind kind);  /* appended to ops, zeroed, slots set to NB_NO_SLOT */
nb_op *nb_graph_head_op(nb_graph *g, nb_op_kind kind);
int32_t nb_graph_rope(nb_graph *g, const nb_rope_spec *spec);
int32_t nb_graph_kv(nb_graph *g, const nb_kv_shape *shape);
/* Every slot exists, kinds and widths fit the op and its weights. NB_E_INVALID naming op and slot. */
nb_status nb_graph_check(const nb_graph *g, nb_error *err);
const char *nb_op_name(int kind); /* "linear"; "?" when unknown */
/* The first NaN or infinity of a row of logits, or -1: what a runner checks before it samples. */
int64_t nb_find_nonfinite(const float *x, int64_t n);

/* ---- one run ---- */
typedef struct nb_batch {
    int32_t rows;              /* at most the plan's chunk */
    const int32_t *ids;        /* [rows] */
    const int32_t *seq;        /* [rows] index into kv[] and bad[]; the rows of a sequence are ascending in slot */
    const int32_t *slot;       /* [rows] absolute slot; also the position */
    int32_t n_seqs;
    const nb_kv_view *const *kv; /* [n_seqs] -> [n_kv layers]; blocks for every slot of the batch exist */
    uint8_t *bad;              /* [n_seqs] set to 1 where a value left the domain (design.md 4); never cleared */
    float *const *capture;     /* [n_captures] or NULL; each [rows, hidden width of the captured slot] or NULL */
    /* expert choices of each ROUTE op, for compare: routes[i] is [rows, k] or NULL */
    int32_t *const *routes; int32_t n_routes;
    /* choices to use instead of the row's own (routes still gets its own): given[i] is [rows, k] or NULL, n_given of them; for compare */
    const int32_t *const *given; int32_t n_given;
} nb_batch;

/* ---- the op table that a backend fills ---- */
typedef struct nb_plan nb_plan; /* a backend's slots, scratch and lanes for one graph */
typedef struct nb_plan_options {
    int32_t chunk;     /* rows of one forward, 1..4096 */
    int32_t threads;   /* lanes */
    bool f32;          /* float32 mode */
    const char *tier;  /* NULL: best that the machine has (NIBBLE_TIER is read by the program, not here) */
} nb_plan_options;
typedef struct nb_backend {
    const char *name;
    nb_status (*plan_new)(nb_plan **out, const nb_graph *g, const nb_plan_options *o, nb_error *err);
    void (*plan_free)(nb_plan *p);
    uint64_t (*plan_bytes)(const nb_plan *p);
    const char *(*plan_tier)(const nb_plan *p);  /* "avx512" */
    const char *(*plan_order)(const nb_plan *p); /* "tile" or "dot" */
    /* Runs g->ops over the batch. Allocates nothing. */
    void (*forward)(nb_plan *p, const nb_batch *b);
    /* Copies rows[n] of hidden of the last forward (n <= NB_LOGIT_ROWS) and runs g->head; logits [n, vocab] F32 belong to the plan, valid until the next call. */
    const float *(*unembed)(nb_plan *p, const int32_t *rows, int32_t n);
    const float *(*slot)(nb_plan *p, nb_slot_id s); /* F32 slot after a forward, [rows, width] */
} nb_backend;

#endif
