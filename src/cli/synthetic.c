#include "cli/synthetic.h"
#include "cli/args.h"
#include "format/safetensors.h"
#include "model/arch.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>

static const nb_shape shapes[] = {
    {"s135", "LlamaForCausalLM", 30, 576, 9, 3, 64, 1536, 49152, true, 0, 0, 0},
    {"s600", "LlamaForCausalLM", 28, 1024, 16, 8, 128, 3072, 151936, true, 0, 0, 0},
    {"s1100", "LlamaForCausalLM", 22, 2048, 32, 4, 64, 5632, 32000, false, 0, 0, 0},
    {"s3000", "LlamaForCausalLM", 28, 3072, 24, 8, 128, 8192, 128256, true, 0, 0, 0},
    {"s7000", "LlamaForCausalLM", 32, 4096, 32, 32, 128, 11008, 32000, false, 0, 0, 0},
    {"moe", "Qwen3MoeForCausalLM", 12, 2048, 32, 4, 128, 6144, 32000, false, 128, 8, 768},
};

const nb_shape *nb_shape_find(const char *name)
{
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        if (strcmp(shapes[i].name, name) == 0) return &shapes[i];
    return NULL;
}

void nb_shape_names(nb_buf *out)
{
    for (size_t i = 0; i < NB_COUNT(shapes); i++) nb_buf_printf(out, "%s%s", i ? ", " : "", shapes[i].name);
}

static void write_config(const nb_shape *s, nb_buf *b)
{
    nb_buf_printf(b,
                  "{\"architectures\":[\"%s\"],\"hidden_size\":%d,\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
                  "\"num_key_value_heads\":%d,\"head_dim\":%d,"
                  "\"intermediate_size\":%d,\"vocab_size\":%d,\"tie_word_embeddings\":%s,\"rms_norm_eps\":1e-5,\"rope_"
                  "theta\":500000.0,\"max_position_embeddings\":131072,\"hidden_act\":\"silu\"",
                  s->arch, s->hidden, s->layers, s->heads, s->kv_heads, s->head_dim, s->ffn, s->vocab,
                  s->tied ? "true" : "false");
    if (s->experts)
        nb_buf_printf(b,
                      ",\"num_experts\":%d,\"num_experts_per_tok\":%d,\"moe_intermediate_size\":%d,\"norm_topk_prob\":"
                      "true,\"decoder_sparse_step\":1,\"mlp_only_layers\":[]",
                      s->experts, s->used, s->moe_ffn);
    nb_buf_add_char(b, '}');
}

/* ---- random weights near a standard deviation of 0.02, straight in the packed layout ---- */

static uint64_t rng_state = 0x9e3779b97f4a7c15u;
static uint64_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}

/* Some rows of random values, quantised and packed once; a matrix repeats them. Random bytes would do for codes, but
 * not for scales. */
typedef struct filler {
    nb_qtype q;
    int64_t k;
    uint8_t *tile; /* one tile of 16 rows, or one rows1 record */
    size_t bytes;
    float multiplier;
} filler;

static nb_status filler_make(filler *f, nb_qtype q, int64_t k, nb_layout layout, nb_error *err)
{
    int64_t rows = layout == NB_LAYOUT_ROWS1 ? 1 : 16;
    size_t codes, scales, biases;
    memset(f, 0, sizeof *f);
    f->q = q;
    f->k = k;
    bool fits = nb_parts_row_bytes(q, k, &codes, &scales, &biases) &&
                (rows == 1 ? nb_rows1_row_bytes(q, k, &f->bytes) : nb_rows16_tile_bytes(q, k, &f->bytes));
    if (!fits) return nb_fail(err, NB_E_USAGE, "a row of %lld values does not fit the format", (long long)k);
    float *w = malloc((size_t)(rows * k) * sizeof *w);
    uint8_t *p = malloc((codes + scales + biases) * (size_t)rows + 1);
    f->tile = calloc(1, f->bytes);
    nb_status st = w && p && f->tile ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "no memory for a tile");
    if (st == NB_OK) {
        for (int64_t i = 0; i < rows * k; i++) w[i] = ((float)(rng() >> 40) / 16777216.0f - 0.5f) * 0.07f;
        size_t n = (size_t)rows;
        nb_parts parts = {p,     codes, scales ? p + n * codes : NULL, scales, biases ? p + n * (codes + scales) : NULL,
                          biases};
        f->multiplier = nb_nvfp4_multiplier(nb_abs_max(w, (size_t)(rows * k)));
        st = nb_quantize_rows(q, w, rows, k, f->multiplier, &parts, err);
        if (st == NB_OK && rows == 1)
            nb_rows1_pack(q, &parts, rows, k, f->tile);
        else if (st == NB_OK)
            nb_rows16_pack(q, &parts, rows, k, f->tile);
    }
    free(w);
    free(p);
    return st;
}

typedef struct writer {
    nb_store *store;
    nb_arena *arena;
    nb_qtype q;
    nb_layer *layers;
    size_t n, cap;
    uint64_t done, total;
    void (*progress)(void *, uint64_t, uint64_t);
    void *user;
} writer;

#define BATCH ((size_t)1 << 20)

static nb_status write_repeated(writer *w, nb_blob_writer *b, const uint8_t *unit, size_t unit_bytes, uint64_t total,
                                nb_error *err)
{
    size_t reps = BATCH / unit_bytes ? BATCH / unit_bytes : 1;
    uint8_t *buf = malloc(reps * unit_bytes);
    if (!buf) return nb_fail(err, NB_E_NO_MEMORY, "no memory for %zu bytes", reps * unit_bytes);
    for (size_t i = 0; i < reps; i++) memcpy(buf + i * unit_bytes, unit, unit_bytes);
    nb_status st = NB_OK;
    while (total && st == NB_OK && (st = nb_check_interrupted(err)) == NB_OK) {
        size_t n = total < reps * unit_bytes ? (size_t)total : reps * unit_bytes;
        st = nb_blob_write(b, buf, n, err);
        total -= n;
        w->done += n;
        if (w->progress) w->progress(w->user, w->done, w->total);
    }
    free(buf);
    return st;
}

static nb_status add_layer(writer *w, const char *media, nb_str name, const nb_blob_ref *ref, nb_error *err)
{
    if (w->n == w->cap) {
        size_t cap = w->cap ? w->cap * 2 : 256;
        nb_layer *grown = realloc(w->layers, cap * sizeof *grown);
        if (!grown) return nb_fail(err, NB_E_NO_MEMORY, "no memory for %zu layers", cap);
        w->layers = grown;
        w->cap = cap;
    }
    nb_layer *l = &w->layers[w->n++];
    memset(l, 0, sizeof *l);
    l->media_type = nb_str_of(media);
    l->name = nb_arena_str(w->arena, name);
    memcpy(l->hex, ref->hex, sizeof l->hex);
    l->size = ref->size;
    return NB_OK;
}

static nb_str fmt(nb_arena *a, const char *f, ...)
{
    va_list ap;
    char text[400];
    va_start(ap, f);
    vsnprintf(text, sizeof text, f, ap);
    va_end(ap);
    return nb_arena_str(a, nb_str_of(text));
}

/* Metadata of one packed matrix under `key` ("X.weight", "G.weight.gate"). */
static size_t matrix_meta(writer *w, nb_st_kv *kv, const char *key, nb_qtype q, int64_t n, int64_t k)
{
    size_t c = 0;
    kv[c++] = (nb_st_kv){fmt(w->arena, "%s.quant_type", key), nb_str_of(nb_format_info((nb_format)q.format)->name)};
    kv[c++] = (nb_st_kv){fmt(w->arena, "%s.group_size", key), fmt(w->arena, "%d", q.group)};
    if (nb_format_info((nb_format)q.format)->scale_kind == NB_SCALE_AFFINE)
        kv[c++] = (nb_st_kv){fmt(w->arena, "%s.scale_dtype", key), nb_str_of(nb_dtype_name((nb_dtype)q.scale_dtype))};
    kv[c++] = (nb_st_kv){fmt(w->arena, "%s.shape", key), fmt(w->arena, "[%lld,%lld]", (long long)n, (long long)k)};
    return c;
}

static nb_status begin_blob(writer *w, nb_blob_writer **b, const nb_st_out *out, size_t n_out, const nb_st_kv *kv,
                            size_t n_kv, size_t pad, nb_error *err)
{
    nb_buf head = {0};
    uint64_t total = 0;
    nb_status st = nb_st_header(&head, out, n_out, kv, n_kv, pad, &total, NULL, err);
    if (st == NB_OK) st = nb_blob_begin(w->store, b, total, err);
    if (st == NB_OK) st = nb_blob_write(*b, head.p, head.n, err);
    nb_buf_free(&head);
    return st;
}

static nb_status end_blob(writer *w, nb_blob_writer *b, nb_str name, nb_status st, nb_error *err)
{
    nb_blob_ref ref;
    if (st != NB_OK) {
        nb_blob_abort(b);
        return st;
    }
    st = nb_blob_finish(b, &ref, err);
    return st == NB_OK ? add_layer(w, NB_MEDIA_TENSOR, name, &ref, err) : st;
}

static nb_status write_matrix(writer *w, const nb_tensor_spec *spec, nb_error *err)
{
    nb_layout layout = spec->role == NB_ROLE_TABLE ? NB_LAYOUT_ROWS1 : NB_LAYOUT_ROWS16;
    int64_t n = spec->dim[0], k = spec->dim[1];
    filler f;
    nb_blob_writer *b = NULL;
    nb_status st = filler_make(&f, w->q, k, layout, err);
    if (st != NB_OK) goto out;
    uint64_t bytes = layout == NB_LAYOUT_ROWS1 ? (uint64_t)n * f.bytes : ((uint64_t)n + 15) / 16 * f.bytes;
    nb_st_kv kv[8];
    char key[300];
    snprintf(key, sizeof key, "%.*s", NB_FMT_STR(spec->name));
    size_t c = matrix_meta(w, kv, key, w->q, n, k);
    kv[c++] = (nb_st_kv){NB_LIT("format_version"), NB_LIT("2")};
    kv[c++] = (nb_st_kv){fmt(w->arena, "%s.layout", key), nb_str_of(nb_layout_name(layout))};
    bool global = w->q.format == NB_NVFP4;
    nb_st_out outs[2] = {{.name = spec->name, .dtype = NB_DT_U8, .rank = 1, .dim = {(int64_t)bytes}},
                         {.name = fmt(w->arena, "%s.global_scale", key), .dtype = NB_DT_F32, .rank = 1, .dim = {1}}};
    st = begin_blob(w, &b, outs, global ? 2 : 1, kv, c, 4096, err);
    if (st == NB_OK) st = write_repeated(w, b, f.tile, f.bytes, bytes, err);
    if (st == NB_OK && global) st = nb_blob_write(b, &f.multiplier, sizeof f.multiplier, err);
    st = end_blob(w, b, spec->name, st, err);
out:
    free(f.tile);
    return st;
}

static nb_status write_vector(writer *w, const nb_tensor_spec *spec, nb_error *err)
{
    uint64_t count = 1;
    for (int i = 0; i < spec->rank; i++) count *= (uint64_t)spec->dim[i];
    nb_st_out out = {.name = spec->name, .dtype = NB_DT_F32, .rank = spec->rank};
    for (int i = 0; i < spec->rank; i++) out.dim[i] = spec->dim[i];
    float one = 1;
    nb_blob_writer *b = NULL;
    nb_status st = begin_blob(w, &b, &out, 1, NULL, 0, 64, err);
    if (st == NB_OK) st = write_repeated(w, b, (const uint8_t *)&one, sizeof one, count * sizeof one, err);
    return end_blob(w, b, spec->name, st, err);
}

static nb_status write_bank(writer *w, const nb_tensor_spec *spec, nb_error *err)
{
    static const char *const short_names[] = {"gate", "up", "down"};
    filler f[3] = {{.k = 0}};
    uint64_t size[3], offset[3], stride = 0;
    nb_blob_writer *b = NULL;
    nb_status st = NB_OK;
    nb_st_kv kv[24];
    size_t c = 0;
    char key[300];
    kv[c++] = (nb_st_kv){NB_LIT("format_version"), NB_LIT("2")};
    kv[c++] = (nb_st_kv){fmt(w->arena, "%.*s.weight.layout", NB_FMT_STR(spec->name)), NB_LIT("rows16.1")};
    for (int p = 0; p < 3 && st == NB_OK; p++) {
        st = filler_make(&f[p], w->q, spec->proj[p].k, NB_LAYOUT_ROWS16, err);
        size[p] = ((uint64_t)spec->proj[p].n + 15) / 16 * f[p].bytes;
        offset[p] = stride;
        stride += size[p];
        snprintf(key, sizeof key, "%.*s.weight.%s", NB_FMT_STR(spec->name), short_names[p]);
        c += matrix_meta(w, kv + c, key, w->q, spec->proj[p].n, spec->proj[p].k);
        kv[c++] = (nb_st_kv){fmt(w->arena, "%s.offset", key), fmt(w->arena, "%llu", (unsigned long long)offset[p])};
    }
    uint64_t padded = NB_ALIGN_UP(stride, 4096);
    bool global = w->q.format == NB_NVFP4;
    nb_st_out outs[4] = {{.name = fmt(w->arena, "%.*s.weight", NB_FMT_STR(spec->name)),
                          .dtype = NB_DT_U8,
                          .rank = 2,
                          .dim = {spec->experts, (int64_t)padded}}};
    for (int p = 0; p < 3; p++)
        outs[p + 1] =
            (nb_st_out){.name = fmt(w->arena, "%.*s.%s_proj.global_scale", NB_FMT_STR(spec->name), short_names[p]),
                        .dtype = NB_DT_F32,
                        .rank = 1,
                        .dim = {spec->experts}};
    if (st == NB_OK) st = begin_blob(w, &b, outs, global ? 4 : 1, kv, c, 4096, err);
    static const uint8_t zeros[4096];
    for (int32_t e = 0; e < spec->experts && st == NB_OK; e++) {
        for (int p = 0; p < 3 && st == NB_OK; p++) st = write_repeated(w, b, f[p].tile, f[p].bytes, size[p], err);
        if (st == NB_OK && padded > stride) st = nb_blob_write(b, zeros, (size_t)(padded - stride), err);
    }
    for (int p = 0; p < 3 && st == NB_OK && global; p++)
        st = write_repeated(w, b, (const uint8_t *)&f[p].multiplier, sizeof(float),
                            (uint64_t)spec->experts * sizeof(float), err);
    st = end_blob(w, b, spec->name, st, err);
    for (int p = 0; p < 3; p++) free(f[p].tile);
    return st;
}

static uint64_t planned_bytes(const nb_tensor_spec *t, size_t n, nb_qtype q)
{
    uint64_t total = 0, bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (t[i].role == NB_ROLE_BANK)
            for (int p = 0; p < 3; p++)
                total +=
                    nb_rows16_bytes(q, t[i].proj[p].n, t[i].proj[p].k, &bytes) ? bytes * (uint64_t)t[i].experts : 0;
        else if (t[i].rank == 2 && nb_rows16_bytes(q, t[i].dim[0], t[i].dim[1], &bytes))
            total += bytes;
    }
    return total;
}

static nb_status write_all(writer *w, const nb_json *root, nb_error *err)
{
    nb_config c;
    nb_tensor_spec *specs = NULL;
    size_t n = 0;
    nb_status st = nb_config_read(&c, root, NULL, w->arena, err);
    if (st == NB_OK) st = nb_arch_tensors(&c, w->arena, &specs, &n, err);
    if (st != NB_OK) return st;
    w->total = planned_bytes(specs, n, w->q);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        if (specs[i].optional) continue;
        if (specs[i].role == NB_ROLE_BANK)
            st = write_bank(w, &specs[i], err);
        else if (specs[i].role == NB_ROLE_VECTOR)
            st = write_vector(w, &specs[i], err);
        else
            st = write_matrix(w, &specs[i], err);
    }
    return st;
}

nb_status nb_synthetic_create(nb_store *s, const nb_name *name, const nb_shape *shape, nb_qtype q,
                              void (*progress)(void *, uint64_t, uint64_t), void *user, nb_error *err)
{
    static const char model_config[] = "{\"model_format\":\"nibble\"}";
    writer w = {.store = s, .arena = nb_arena_new(0), .q = q, .progress = progress, .user = user};
    nb_buf config = {0};
    nb_json_doc doc = {0};
    nb_blob_ref ref, config_ref;
    write_config(shape, &config);
    nb_status st = w.arena && !config.oom ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "no memory for a model");
    if (st == NB_OK) st = nb_json_parse(&doc, config.p, config.n, "config.json", NULL, err);
    if (st == NB_OK) st = write_all(&w, doc.root, err);
    if (st == NB_OK) st = nb_blob_put(s, config.p, config.n, &ref, err);
    if (st == NB_OK) st = add_layer(&w, NB_MEDIA_JSON, NB_LIT("config.json"), &ref, err);
    if (st == NB_OK) st = nb_blob_put(s, model_config, sizeof model_config - 1, &config_ref, err);
    if (st == NB_OK) {
        nb_layer top = {.media_type = NB_LIT(NB_MEDIA_CONFIG), .size = config_ref.size};
        memcpy(top.hex, config_ref.hex, sizeof top.hex);
        st = nb_manifest_publish(s, name, &top, w.layers, w.n, NULL, err);
    }
    nb_json_free(&doc);
    nb_buf_free(&config);
    free(w.layers);
    nb_arena_free(w.arena);
    return st;
}
