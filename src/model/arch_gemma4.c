/* Gemma 4: two head sizes, shared KV, per-layer embeddings. specs/architectures.md 6.7, specs/create.md 5.2.
 * Importable. */
#include "model/arch_row.h"
#include "model/arch_rows.h"

static const nb_default defaults[] = {
    {"tie_word_embeddings", 1}, {"sliding_window", 512}, {"head_dim", 256}, {NULL, 0}};

static const nb_pattern tensors[] = {
    {"model.layers.#.self_attn.q_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "layer_heads*layer_head_dim, hidden", NULL},
    {"model.layers.#.self_attn.k_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "layer_kv_heads*layer_head_dim, hidden",
     NULL},
    {"model.layers.#.self_attn.v_proj.weight", NB_ROLE_LINEAR, NB_OPTIONAL, "layer_kv_heads*layer_head_dim, hidden",
     NULL},
    {"model.layers.#.self_attn.o_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "hidden, layer_heads*layer_head_dim", NULL},
    {"model.layers.#.self_attn.q_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "?", NULL},
    {"model.layers.#.self_attn.k_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "?", NULL},
    {"model.layers.#.self_attn.v_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "?", NULL},
    {"model.layers.#.self_attn.o_proj.bias", NB_ROLE_VECTOR, NB_OPTIONAL, "hidden", NULL},
    {"model.layers.#.self_attn.q_norm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "layer_head_dim", NULL},
    {"model.layers.#.self_attn.k_norm.weight", NB_ROLE_VECTOR, NB_OPTIONAL, "layer_head_dim", NULL},
    {"model.layers.#.mlp.gate_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "layer_ffn, hidden", NULL},
    {"model.layers.#.mlp.up_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "layer_ffn, hidden", NULL},
    {"model.layers.#.mlp.down_proj.weight", NB_ROLE_LINEAR, NB_ALWAYS, "hidden, layer_ffn", NULL},
    {"model.layers.#.pre_feedforward_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"model.layers.#.post_feedforward_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"model.layers.#.layer_scalar", NB_ROLE_VECTOR, NB_ALWAYS, "1", NULL},
    {"model.embed_tokens_per_layer.weight", NB_ROLE_TABLE, NB_IF_FIELD,
     "vocab_size_per_layer_input, layers*hidden_size_per_layer_input", "hidden_size_per_layer_input"},
    {"model.per_layer_model_projection.weight", NB_ROLE_LINEAR, NB_IF_FIELD,
     "layers*hidden_size_per_layer_input, hidden", "hidden_size_per_layer_input"},
    {"model.per_layer_projection_norm.weight", NB_ROLE_VECTOR, NB_IF_FIELD, "hidden_size_per_layer_input",
     "hidden_size_per_layer_input"},
    {"model.layers.#.per_layer_input_gate.weight", NB_ROLE_LINEAR, NB_IF_FIELD, "hidden_size_per_layer_input, hidden",
     "hidden_size_per_layer_input"},
    {"model.layers.#.per_layer_projection.weight", NB_ROLE_LINEAR, NB_IF_FIELD, "hidden, hidden_size_per_layer_input",
     "hidden_size_per_layer_input"},
    {"model.layers.#.post_per_layer_input_norm.weight", NB_ROLE_VECTOR, NB_IF_FIELD, "hidden",
     "hidden_size_per_layer_input"},
    {"model.layers.#.router.proj.weight", NB_ROLE_LINEAR, NB_IF_FIELD, "experts, hidden", "enable_moe_block"},
    {"model.layers.#.router.scale", NB_ROLE_VECTOR, NB_IF_FIELD, "hidden", "enable_moe_block"},
    {"model.layers.#.router.per_expert_scale", NB_ROLE_VECTOR, NB_IF_FIELD, "experts", "enable_moe_block"},
    {"model.layers.#.experts", NB_ROLE_BANK, NB_IF_FIELD, "moe_ffn, hidden; moe_ffn, hidden; hidden, moe_ffn",
     "enable_moe_block"},
    {"model.layers.#.post_feedforward_layernorm_1.weight", NB_ROLE_VECTOR, NB_IF_FIELD, "hidden", "enable_moe_block"},
    {"model.layers.#.post_feedforward_layernorm_2.weight", NB_ROLE_VECTOR, NB_IF_FIELD, "hidden", "enable_moe_block"},
    {"model.layers.#.pre_feedforward_layernorm_2.weight", NB_ROLE_VECTOR, NB_IF_FIELD, "hidden", "enable_moe_block"},
    {NULL, 0, 0, NULL, NULL},
};

static const nb_rule policy[] = {
    {NB_REQ_ANY, "embedding_projection.weight", NULL, NULL, NULL, NB_COND_NONE, NB_DO_KEEP, "embedding head"},
    {NB_REQ_ANY, NULL, NULL, "embed_tokens.weight", "vision|visual|audio", NB_COND_NONE, NB_DO_EIGHT_BASE,
     "embedding: 8 bits"},
    {NB_REQ_4BIT, NULL, ".v_proj|.k_proj", NULL, "vision|visual|audio", NB_COND_EIGHT_EXPERTS, NB_DO_EIGHT_BASE,
     "sensitive: 8 bits"},
    {NB_REQ_4BIT, NULL, ".v_proj|down_proj", NULL, "vision|visual|audio|.k_proj", NB_COND_MORE_BITS, NB_DO_EIGHT_BASE,
     "sensitive: 8 bits"},
    {NB_REQ_4BIT, NULL, ".v_proj|.k_proj|down_proj", NULL, "vision|visual|audio", NB_COND_NONE, NB_DO_BASE,
     "as requested"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_gemma4 = {
    .name = "gemma4",
    .ids = "Gemma4ForCausalLM|Gemma4ForConditionalGeneration|gemma4|gemma4_text|Gemma4UnifiedForCausalLM|"
           "Gemma4UnifiedForConditionalGeneration|gemma4_unified|gemma4_unified_text|"
           "Gemma4AssistantForCausalLM|gemma4_assistant|Gemma4UnifiedAssistantForCausalLM|gemma4_unified_assistant",
    .required = "hidden_size|num_hidden_layers",
    .defaults = defaults,
    .window = NB_WINDOW_TYPES,
    .act = "gelu_pytorch_tanh",
    .final_softcap = true,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .policy = policy,
};
