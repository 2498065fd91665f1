/* Fuzzes the tensors of a stored model: one blob in memory, whatever its header and metadata say, is bound as a part of
 * a small model. Every matrix, bank and vector that comes out lies inside the blob or in memory of its own: all of its
 * bytes are read here. */
#include "model/load.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char config[] = "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"hidden_size\":32,\"num_hidden_layers\":1,"
                             "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":16,\"vocab_size\":40,"
                             "\"moe_intermediate_size\":16,\"num_experts\":2,\"num_experts_per_tok\":1}";

static uint32_t sum(const void *p, uint64_t n)
{
    uint32_t s = 0;
    for (uint64_t i = 0; p && i < n; i++) s += ((const uint8_t *)p)[i];
    return s;
}

static uint32_t touch(const nb_net_tensor *t)
{
    uint32_t s = 0;
    uint64_t size = 0;
    if (t->weight) {
        const nb_weight *w = t->weight;
        s += sum(w->data, w->bytes) + sum(w->bias, w->bias ? (uint64_t)w->n * 4 : 0) +
             sum(w->row_scale, w->row_scale ? (uint64_t)w->n * 4 : 0) +
             sum(w->pre_scale, w->pre_scale ? (uint64_t)w->k * 4 : 0);
    }
    if (t->bank) {
        const struct nb_bank_proj *p = &t->bank->proj[t->proj];
        if (!nb_rows16_bytes(p->type, p->n, p->k, &size)) abort();
        for (int32_t e = 0; e < t->bank->experts; e++)
            s += sum(t->bank->data + (uint64_t)e * t->bank->stride + p->offset, size);
        s += sum(p->multiplier, p->multiplier ? (uint64_t)t->bank->experts * 4 : 0) +
             sum(p->bias, p->bias ? (uint64_t)t->bank->experts * (uint64_t)p->n * 4 : 0);
    }
    if (t->vector) {
        size = 4;
        for (int i = 0; i < t->rank; i++) size *= (uint64_t)t->dim[i];
        s += sum(t->vector, size);
    }
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint32_t total = 0;
    nb_json_doc doc = {0};
    nb_error err = {0};
    nb_layer layer = {.hex = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", .size = size};
    nb_blob blob = {.layer = &layer, .file = {.fd = -1}};
    struct nb_net_blobs blobs = {.blob = &blob, .n = 1, .tokenizer = {.fd = -1}};
    nb_network net = {.arena = nb_arena_new(64u << 20), .blobs = &blobs};
    uint8_t *copy = aligned_alloc(4096, NB_ALIGN_UP(size + 1, (size_t)4096)); /* blobs are mapped: page aligned */
    if (!net.arena || !copy) goto done;
    memcpy(copy, data, size);
    blob.p = copy;
    blob.has_head = nb_st_read_mem(&blob.head, copy, size, "fuzz", NB_ST_STRICT, &err) == NB_OK;
    if (!blob.has_head || nb_json_parse(&doc, config, sizeof config - 1, "config.json", NULL, &err) != NB_OK) goto done;
    if (nb_config_read(&net.config, doc.root, NULL, net.arena, &err) != NB_OK) abort();
    if (nb_net_bind(&net, true, &err) == NB_OK)
        for (size_t i = 0; i < net.n_tensors; i++) total += touch(&net.tensors[i]);
    else if (err.text[0] == 0)
        abort();
    if (total == 0xdeadbeef && size == 0) abort(); /* the sum is used, so that the reads stay */
done:
    nb_net_blobs_close(&blobs);
    nb_json_free(&doc);
    nb_arena_free(net.arena);
    free(copy);
    return 0;
}
