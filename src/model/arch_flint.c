/* Flint: windows with rope, full layers without, sinks, experts with an ungated shared one. specs/flint.md,
 * specs/create.md 5.4. Importable. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_pattern tensors[] = {
    NB_PART_HEAD_NORMS("model.layers.#.", NB_ALWAYS),
    NB_PART_ROW("model.layers.#.self_attn.softmax_offset", VECTOR, NB_OPTIONAL, "heads"),
    NB_PART_EXPERTS("model.layers.#.", NB_IF_SPARSE),
    NB_PART_SHARED_EXPERT("model.layers.#.", NB_IF_SPARSE),
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
