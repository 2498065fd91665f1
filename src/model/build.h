/* model/build: what an architecture's forward is written with. It lists blocks by the canonical names of their tensors;
 * the builder looks the tensors up, sizes come from the config. Internal to src/model. */
#ifndef NB_MODEL_BUILD_H
#define NB_MODEL_BUILD_H

#include "model/model.h"
#include "nn/nn.h"

typedef struct nb_builder {
    const nb_network *net;
    const nb_config *c;
    nb_recorder r;
    nb_slot_id h;             /* the residual stream, F32 [hidden] */
    nb_slot_id x;             /* a block's rounded input, ACT [hidden] */
    nb_slot_id branch;        /* a block's output where it does not go straight into h, F32 [hidden] */
    int32_t rope, rope_local; /* rotary tables of full and of sliding layers */
    nb_act f;
} nb_builder;

/* h = embedding * scale; makes the slots and rotary tables; captures hidden.0. */
void nb_build_begin(nb_builder *b, float scale);
/* x = rounded norm of `in` with "model.layers.<layer>.<name>.weight" */
void nb_build_norm(nb_builder *b, int32_t layer, const char *name, nb_slot_id in);
/* out = norm of `in`, F32 */
void nb_build_norm_f32(nb_builder *b, int32_t layer, const char *name, nb_slot_id in, nb_slot_id out);
/* Attention of a layer over x: q/k norms and biases where their tensors exist, window, rotation and scale from the
 * config. */
void nb_build_attention(nb_builder *b, int32_t layer, nb_slot_id out, nb_slot_id residual);
/* Dense gated MLP or experts over x, as the config says for this layer. */
void nb_build_ffn(nb_builder *b, int32_t layer, nb_slot_id out, nb_slot_id residual);
/* h += branch */
void nb_build_add_branch(nb_builder *b);
void nb_build_end_layer(nb_builder *b); /* captures hidden.<i> */
nb_status nb_build_head(nb_builder *b);

/* Pre-norm layers with GQA and a gated MLP or experts: llama and its relatives. */
nb_status nb_forward_prenorm(nb_builder *b);

/* Records the architecture's forward into g (f32: kv shapes of float32 mode) and checks it. */
nb_status nb_build_graph(const nb_network *net, nb_graph *g, bool f32, nb_error *err);

#endif
