/* Qwen4Exp (Flash Next): delta rule, block-sparse attention, residual streams, n-gram tables. specs/qwen4_exp.md,
 * specs/create.md 5.3. Importable. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"

/* Block-sparse attention: what chooses the blocks. */
#define PART_INDEXER(at, when)                                                                                         \
    NB_PART_ROW(at "self_attn.indexer.index_qk_proj.weight", LINEAR, when,                                             \
                "indexer_n_heads*indexer_head_dim + indexer_kv_heads*indexer_head_dim, hidden"),                       \
        NB_PART_ROW(at "self_attn.indexer.q_layernorm.weight", VECTOR, when, "indexer_head_dim"),                      \
        NB_PART_ROW(at "self_attn.indexer.k_layernorm.weight", VECTOR, when, "indexer_head_dim")

/* Residual streams: how a block reads them, */
#define PART_STREAM_INPUT(at, when)                                                                                    \
    NB_PART_ROW(at "hc_norm.weight", VECTOR, when, "hc_count*hidden"),                                                 \
        NB_PART_ROW(at "input_mix_weight_down.weight", LINEAR, when, "hc_lowrank, hc_count*hidden"),                   \
        NB_PART_ROW(at "input_mix_weight_up.weight", LINEAR, when, "hc_count*hidden, hc_lowrank")
/* and how it also writes to them. */
#define PART_STREAM_BLOCK(at, when)                                                                                    \
    PART_STREAM_INPUT(at, when), NB_PART_ROW(at "block_inject_weight.weight", LINEAR, when, "hc_count, hc_count*hidden")

static const nb_pattern tensors[] = {
    NB_PART_ROW("model.embed_tokens.weight", TABLE, NB_ALWAYS, "vocab, hidden"),
    NB_PART_ROW("lm_head.weight", LINEAR, NB_IF_UNTIED, "vocab, hidden"),
    NB_PART_DELTA_RULE_INPUTS("model.layers.#.", NB_IF_LINEAR),
    NB_PART_DELTA_RULE("model.layers.#.", NB_IF_LINEAR),
    NB_PART_GATED_ATTENTION("model.layers.#.", NB_IF_ATTENTION),
    PART_INDEXER("model.layers.#.", NB_IF_ATTENTION),
    NB_PART_EXPERTS_GATED("model.layers.#.", NB_IF_SPARSE),
    PART_STREAM_BLOCK("model.layers.#.attn_hyper_connection.", NB_ALWAYS),
    PART_STREAM_BLOCK("model.layers.#.mlp_hyper_connection.", NB_ALWAYS),
    PART_STREAM_INPUT("model.hyper_connection_mixer.", NB_ALWAYS),
    {"model.layers.#.ple.conv1d.weight", NB_ROLE_VECTOR, NB_IF_MEMBER, "?, ?, ?", "ple_layer_ids"},
    {"model.layers.#.ple.key_proj.weight", NB_ROLE_LINEAR, NB_IF_MEMBER, "hc_count*hidden, ple_embed_dim",
     "ple_layer_ids"},
    {"model.layers.#.ple.value_proj.weight", NB_ROLE_LINEAR, NB_IF_MEMBER, "hidden, ple_embed_dim", "ple_layer_ids"},
    {"model.layers.#.ple.norm_conv.weight", NB_ROLE_VECTOR, NB_IF_MEMBER, "hc_count*hidden", "ple_layer_ids"},
    {"model.layers.#.ple.norm_key.weight", NB_ROLE_VECTOR, NB_IF_MEMBER, "hc_count*hidden", "ple_layer_ids"},
    {"model.layers.#.ple.norm_query.weight", NB_ROLE_VECTOR, NB_IF_MEMBER, "hc_count*hidden", "ple_layer_ids"},
    {"model.layers.#.ple.ple_embedding.layer_multipliers", NB_ROLE_VECTOR, NB_IF_MEMBER, "?", "ple_layer_ids"},
    {"model.layers.#.ple.ple_embedding.ngram_heads_offsets", NB_ROLE_VECTOR, NB_IF_MEMBER, "?", "ple_layer_ids"},
    {"model.layers.#.ple.ple_embedding.ngram_heads_vocab_sizes", NB_ROLE_VECTOR, NB_IF_MEMBER, "?", "ple_layer_ids"},
    {"model.layers.#.ple.ple_embedding.ngram_embedding.shard_#.weight", NB_ROLE_TABLE, NB_IF_MEMBER, "?, ?",
     "ple_layer_ids:split_ngram_parts"},
    NB_PART_ROW("mtp.fc_embedding.weight", LINEAR, NB_OPTIONAL, "hidden, hidden"),
    NB_PART_ROW("mtp.fc_hidden.weight", LINEAR, NB_OPTIONAL, "hidden, hidden"),
    NB_PART_ROW("mtp.pre_fc_norm_embedding.weight", VECTOR, NB_OPTIONAL, "hidden"),
    NB_PART_ROW("mtp.pre_fc_norm_hidden.weight", VECTOR, NB_OPTIONAL, "hc_count*hidden"),
    PART_STREAM_INPUT("mtp.hyper_connection_mixer.", NB_OPTIONAL),
    PART_STREAM_BLOCK("mtp.layers.0.attn_hyper_connection.", NB_OPTIONAL),
    PART_STREAM_BLOCK("mtp.layers.0.mlp_hyper_connection.", NB_OPTIONAL),
    NB_PART_GATED_ATTENTION("mtp.layers.0.", NB_OPTIONAL),
    PART_INDEXER("mtp.layers.0.", NB_OPTIONAL),
    NB_PART_EXPERTS_GATED("mtp.layers.0.", NB_OPTIONAL),
    {NULL, 0, 0, NULL, NULL},
};

static const nb_rule policy[] = {
    {NB_REQ_ANY, NULL, ".ple.ple_embedding.ngram_embedding.shard_", ".weight", NULL, NB_COND_NONE, NB_DO_BASE,
     "n-gram table"},
    {NB_REQ_ANY, NULL, ".linear_attn.in_proj_a.weight|.linear_attn.in_proj_b.weight|.linear_attn.in_proj_ba.weight",
     NULL, NULL, NB_COND_NONE, NB_DO_KEEP, "recurrent gate"},
    {NB_REQ_NVFP4, "layers.", ".self_attn.",
     ".q_proj.weight|.k_proj.weight|.v_proj.weight|.indexer.index_qk_proj.weight", NULL, NB_COND_NONE, NB_DO_KEEP,
     "sparse attention"},
    {NB_REQ_NVFP4, "mtp.", NULL, NULL, ".mlp.experts.", NB_COND_NONE, NB_DO_KEEP, "draft head"},
    {NB_REQ_NVFP4, NULL, NULL, "embed_tokens.weight", NULL, NB_COND_NONE, NB_DO_EIGHT, "embedding: 8 bits"},
    {NB_REQ_NVFP4, "layers.|mtp.layers.", ".mlp.experts.", NULL, NULL, NB_COND_NONE, NB_DO_DEFAULT, "routed expert"},
    {NB_REQ_NVFP4, NULL, NULL, NULL, NULL, NB_COND_NONE, NB_DO_DEFAULT_FP8, "8 bits"},
    {0, NULL, NULL, NULL, NULL, 0, 0, NULL},
};

const nb_arch nb_arch_qwen4_exp = {
    .name = "qwen4_exp",
    .ids = "Qwen4ExpForConditionalGeneration|Qwen4ExpForCausalLM|qwen4_exp|qwen4_exp_text",
    .required = "hidden_size|num_hidden_layers",
    .window = NB_WINDOW_NONE,
    .tensors = tensors,
    .policy = policy,
};
