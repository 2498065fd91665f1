/* nn: the blocks that models are made of. A block records op records into a graph (tensor/graph.h); it computes nothing
 * itself.
 *
 * A recorder keeps the first error: after one, every call does nothing, so that a model file lists its blocks without a
 * check behind each. Slots are shared by all layers: the same (kind, width, name) is the same slot.
 */
#ifndef NB_NN_NN_H
#define NB_NN_NN_H

#include "nn/rope.h"
#include "tensor/graph.h"

typedef struct nb_recorder {
    nb_graph *g;
    nb_error *err;
    nb_status status;
    bool f32; /* kv shapes of float32 mode */
} nb_recorder;

/* The slot of this kind, width and name (a string literal), made on first use. */
nb_slot_id nb_nn_slot(nb_recorder *r, nb_slot_kind kind, int32_t width, const char *name);
/* Rotary table of one kind of layer: its number in the graph, -1 after an error. length: tokens that it is made for. */
int32_t nb_nn_rope(nb_recorder *r, const nb_rope_config *c, int32_t head_dim, double length);
bool nb_act_parse(nb_act *out, const char *name); /* "silu", "gelu_pytorch_tanh", "gelu", ... */

/* out = rows of the table * scale */
void nb_nn_embed(nb_recorder *r, const nb_weight *table, float scale, nb_slot_id out);
/* Norm of the whole row. out (F32) and act (rounded) may each be NB_NO_SLOT; w NULL: weightless. */
void nb_nn_norm(nb_recorder *r, nb_slot_id in, const float *w, float eps, nb_slot_id out, nb_slot_id act);
void nb_nn_add(nb_recorder *r, nb_slot_id a, nb_slot_id b, nb_slot_id out);
/* hidden.<index> of a reference: captures are numbered in the order of their calls. */
void nb_nn_capture(nb_recorder *r, nb_slot_id in);

typedef struct nb_attention_block {
    const nb_weight *q, *k, *v, *o;
    const float *q_norm, *k_norm; /* [head_dim] each, or NULL */
    const float *sinks;           /* [heads] or NULL */
    int32_t heads, kv_heads, head_dim;
    int32_t rope;   /* from nb_nn_rope; -1: this layer is not rotated */
    int32_t window; /* 0: full */
    float eps, scale, softcap;
} nb_attention_block;
/* out = Wo attention(rope(norm(Wq act)), rope(norm(Wk act)), Wv act) (+ residual). Makes the layer's kv shape. */
void nb_nn_attention(nb_recorder *r, const nb_attention_block *a, nb_slot_id act, nb_slot_id out, nb_slot_id residual);

/* out = down(f(gate act) * up act) (+ residual) */
void nb_nn_mlp(nb_recorder *r, const nb_weight *gate, const nb_weight *up, const nb_weight *down, nb_act f,
               nb_slot_id act, nb_slot_id out, nb_slot_id residual);

typedef struct nb_moe_block {
    const nb_weight *router;
    const float *selection_bias; /* [experts] or NULL */
    const nb_bank *bank;
    nb_router kind;
    int32_t used;
    bool normalise;
    float scale;
    nb_act f;
} nb_moe_block;
void nb_nn_moe(nb_recorder *r, const nb_moe_block *m, nb_slot_id act, nb_slot_id out, nb_slot_id residual);

/* Final norm into the graph's hidden slot, and the head's records: round, product, soft cap. */
void nb_nn_head(nb_recorder *r, nb_slot_id in, const float *norm, float eps, const nb_weight *head, float softcap);

#endif
