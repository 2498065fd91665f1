/* Qwen2 and Qwen2.5: Llama with biases on q, k and v. specs/architectures.md 6.2. */
#include "model/arch_row.h"
#include "model/arch_rows.h"
#include "model/build.h"

static const nb_default defaults[] = {{"max_position_embeddings", 32768}, {"max_window_layers", 28}, {NULL, 0}};

static const nb_pattern tensors[] = {
    {"model.layers.#.self_attn.q_proj.bias", NB_ROLE_VECTOR, NB_ALWAYS, "heads*head_dim", NULL},
    {"model.layers.#.self_attn.k_proj.bias", NB_ROLE_VECTOR, NB_ALWAYS, "kv_heads*head_dim", NULL},
    {"model.layers.#.self_attn.v_proj.bias", NB_ROLE_VECTOR, NB_ALWAYS, "kv_heads*head_dim", NULL},
    {"model.layers.#.self_attn.o_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", NULL},
    {NULL, 0, 0, NULL, NULL},
};

const nb_arch nb_arch_qwen2 = {
    .name = "qwen2",
    .ids = "Qwen2ForCausalLM|qwen2",
    .required = "hidden_size|num_hidden_layers|num_attention_heads|vocab_size|intermediate_size",
    .defaults = defaults,
    .window = NB_WINDOW_QWEN,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .forward = nb_forward_prenorm,
};
