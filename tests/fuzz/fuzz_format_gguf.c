/* Fuzzes the GGUF reader and the block decoders: each tensor lies inside the file, and its first rows decode without a
 * fault. */
#include "format/gguf.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A few rows through both ways out of a block; sizes of the outputs are exact, so that a byte too many is seen. */
static void decode(const nb_gguf *g, const nb_gguf_tensor *t)
{
    const nb_ggml_row *row = nb_ggml_info(t->type);
    int64_t k = t->rank ? t->dim[0] : 1, count = (int64_t)(t->len / row->bytes) * row->block, rows = k ? count / k : 0;
    nb_qtype q;
    size_t c, s, b;
    if (k == 0 || k > 4096 || rows == 0) return;
    rows = rows > 4 ? 4 : rows;
    float *f = malloc((size_t)(rows * k) * sizeof *f);
    if (f) nb_ggml_to_f32(t->type, g->p + t->off, rows * k, f);
    free(f);
    if (!nb_ggml_lossless(t->type, &q) || !nb_parts_row_bytes(q, k, &c, &s, &b)) return;
    nb_parts p = {malloc((size_t)rows * c), c, malloc((size_t)rows * s + 1), s, malloc((size_t)rows * b + 1), b};
    if (p.codes && p.scales && p.biases) nb_ggml_to_parts(t->type, g->p + t->off, rows, k, q, &p, NULL, NULL);
    free(p.codes), free(p.scales), free(p.biases);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nb_gguf g;
    nb_error err = {0};
    nb_status st = nb_gguf_parse(&g, data, size, "fuzz", &err);
    if (st != NB_OK) {
        if (err.status != st || err.text[0] == 0) abort();
        return 0;
    }
    for (size_t i = 0; i < g.n; i++) {
        const nb_gguf_tensor *t = &g.tensors[i];
        if (t->off > size || t->len > size - t->off || (t->len && t->off % g.alignment)) abort();
        if (nb_gguf_find(&g, t->name) != t) abort();
        decode(&g, t);
    }
    nb_buf out = {.limit = 1 << 24};
    nb_json_write(&out, g.meta, NB_JSON_COMPACT);
    nb_buf_free(&out);
    nb_gguf_free(&g);
    return 0;
}
