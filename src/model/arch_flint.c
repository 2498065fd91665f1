/* Flint: windows with rope, full layers without, sinks, experts with an ungated shared one. specs/flint.md,
 * specs/create.md 5.4. Importable. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_pattern tensors[] = {
    {"model.layers.#.self_attn.q_norm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "head_dim", NULL},
    {"model.layers.#.self_attn.k_norm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "head_dim", NULL},
    {"model.layers.#.self_attn.softmax_offset", NB_ROLE_VECTOR, NB_OPTIONAL, "heads", NULL},
    {"model.layers.#.mlp.gate.weight", NB_ROLE_LINEAR, NB_IF_SPARSE, "experts, hidden", NULL},
    {"model.layers.#.mlp.experts", NB_ROLE_BANK, NB_IF_SPARSE, "moe_ffn, hidden; moe_ffn, hidden; hidden, moe_ffn",
     NULL},
    {"model.layers.#.mlp.shared_expert.gate_proj.weight", NB_ROLE_LINEAR, NB_IF_SPARSE,
     "shared_expert_intermediate_size, hidden", NULL},
    {"model.layers.#.mlp.shared_expert.up_proj.weight", NB_ROLE_LINEAR, NB_IF_SPARSE,
     "shared_expert_intermediate_size, hidden", NULL},
    {"model.layers.#.mlp.shared_expert.down_proj.weight", NB_ROLE_LINEAR, NB_IF_SPARSE,
     "hidden, shared_expert_intermediate_size", NULL},
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_flint = {
    .name = "flint",
    .ids = "FlintForCausalLM|flint",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size",
    .window = NB_WINDOW_TYPES,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .refuse = NB_REQ_NVFP4,
    .refuse_text = "Flint: NVFP4 must come from the publisher's ModelOpt checkpoint; direct NVFP4 quantisation is not "
                   "supported. Use mxfp8/int8, or import the NVFP4 repository",
};
