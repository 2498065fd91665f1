/* Gemma 3, the text part: sandwich norms with 1 + w, five sliding layers to one full one, tied head.
 * specs/architectures.md 6.6. */
#include "model/arch_parts.h"
#include "model/arch_row.h"
#include "model/arch_rows.h"
#include "model/build.h"

#include <math.h>

static const nb_default defaults[] = {
    {"rope_theta", 1000000},  {"rope_local_base_freq", 10000}, {"head_dim", 256},
    {"vocab_size", 262208},   {"tie_word_embeddings", 1},      {"max_position_embeddings", 131072},
    {"sliding_window", 4096}, {"query_pre_attn_scalar", 256},  {NULL, 0}};

static const nb_pattern tensors[] = {
    NB_PART_HEAD_NORMS("model.layers.#.", NB_ALWAYS),
    {"model.layers.#.pre_feedforward_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {"model.layers.#.post_feedforward_layernorm.weight", NB_ROLE_VECTOR, NB_ALWAYS, "hidden", NULL},
    {NULL, 0, 0, NULL, NULL},
};

/* A nested text_config may omit the head counts: they follow from the number of layers. */
static nb_status resolve(nb_config *c, nb_error *err)
{
    static const struct {
        int32_t layers, heads, kv_heads;
    } sizes[] = {{18, 4, 1}, {26, 4, 1}, {34, 8, 4}, {48, 16, 8}, {62, 32, 16}};
    double scalar = 256;
    bool both = false;
    for (size_t i = 0; i < NB_COUNT(sizes); i++) {
        if (sizes[i].layers != c->layers) continue;
        if (c->heads == 0) c->heads = sizes[i].heads;
        if (c->kv_heads == 0) c->kv_heads = sizes[i].kv_heads;
    }
    if (c->heads == 0) return nb_fail(err, NB_E_INVALID, "config.json: field num_attention_heads is missing");
    if (nb_json_bool(nb_config_field(c, "use_bidirectional_attention"), &both) && both)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "config.json: field use_bidirectional_attention is true: encoders are not supported");
    nb_config_number(c, "query_pre_attn_scalar", &scalar);
    if (!(scalar > 0 && scalar < 1e6))
        return nb_fail(err, NB_E_INVALID, "config.json: field query_pre_attn_scalar is %g, must be above 0", scalar);
    c->query_scale = 1 / sqrt(scalar);
    return NB_OK;
}

/* sqrt(hidden) as the type of the weights holds it: the publisher's code casts it to that. In float32 mode the weights
 * are taken as float32, so it stays as it is there; as shipped it is rounded to the type of the checkpoint. */
static float embedding_scale(const nb_config *c, bool f32)
{
    nb_str dtype = {"", 0};
    float s = sqrtf((float)c->hidden);
    if (f32) return s;
    if (!nb_json_str(nb_config_field(c, "torch_dtype|dtype"), &dtype)) dtype = NB_LIT("bfloat16");
    if (nb_str_is(dtype, "float32")) return s;
    if (nb_str_is(dtype, "float16")) return nb_f16_decode(nb_f16_encode(s));
    return nb_bf16_decode(nb_bf16_encode(s));
}

static nb_status forward(nb_builder *b)
{
    nb_build_begin(b, embedding_scale(b->c, b->r.f32));
    for (int32_t i = 0; i < b->c->layers; i++) {
        nb_build_norm(b, i, "input_layernorm", b->h);
        nb_build_attention(b, i, b->branch, NB_NO_SLOT);
        nb_build_norm_f32(b, i, "post_attention_layernorm", b->branch, b->branch);
        nb_build_add_branch(b);
        nb_build_norm(b, i, "pre_feedforward_layernorm", b->h);
        nb_build_ffn(b, i, b->branch, NB_NO_SLOT);
        nb_build_norm_f32(b, i, "post_feedforward_layernorm", b->branch, b->branch);
        nb_build_add_branch(b);
        nb_build_end_layer(b);
    }
    return nb_build_head(b);
}

const nb_arch nb_arch_gemma3 = {
    .name = "gemma3",
    .ids = "Gemma3ForCausalLM|Gemma3ForConditionalGeneration|gemma3_text|gemma3",
    .required = "hidden_size|num_hidden_layers|intermediate_size",
    .defaults = defaults,
    .window = NB_WINDOW_PATTERN,
    .act = "gelu_pytorch_tanh",
    .resolve = resolve,
    .final_softcap = true,
    .common = nb_tensors_llama,
    .tensors = tensors,
    .norm_plus_one = true,
    .forward = forward,
};
