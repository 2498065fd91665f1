/* The attention kernels in plain C: the definition (design.md 4, Attention). Compiled twice, see kernels.h.
 *
 * Keys lie as rows16: a tile is 16 slots, a group 32 channels of each; BF16: 16 vectors of 64 bytes, vector w =
 * channels 2w, 2w+1 of slots 0..15; F32: 32 vectors, vector w = channel w of slots 0..15. Values lie as the same tiles
 * of the transpose: 16 channels, groups of 32 slots.
 */
#include "cpu/kernels.h"
#include "cpu/math.h"

/* One group: adds even + odd chain of 16 rows to acc[16]. */
static inline void group_bf16(const uint8_t *w, const float *x, float *acc)
{
    float even[16] = {0}, odd[16] = {0};
    for (int v = 0; v < 16; v++) {
        for (int i = 0; i < 16; i++) {
            uint32_t word = nb_load_u32(w + v * 64 + i * 4);
            even[i] = fmaf(nb_f32_bits(word << 16), x[2 * v], even[i]);
            odd[i] = fmaf(nb_f32_bits(word & 0xffff0000u), x[2 * v + 1], odd[i]);
        }
    }
    for (int i = 0; i < 16; i++) acc[i] = acc[i] + (even[i] + odd[i]);
}

static inline void group_f32(const uint8_t *w, const float *x, float *acc)
{
    float even[16] = {0}, odd[16] = {0};
    for (int v = 0; v < 32; v += 2) {
        for (int i = 0; i < 16; i++) {
            even[i] = fmaf(nb_f32_bits(nb_load_u32(w + v * 64 + i * 4)), x[v], even[i]);
            odd[i] = fmaf(nb_f32_bits(nb_load_u32(w + v * 64 + 64 + i * 4)), x[v + 1], odd[i]);
        }
    }
    for (int i = 0; i < 16; i++) acc[i] = acc[i] + (even[i] + odd[i]);
}

static void plain_tiles(const nb_attn_job *j)
{
    for (int32_t r = 0; r < j->rows; r++)
        for (int32_t t = 0; t < j->tiles; t++)
            for (int32_t g = 0; g < j->groups; g++)
                group_bf16(j->w + (size_t)t * j->tile_stride + (size_t)g * 1024,
                           j->x + (size_t)r * j->x_stride + g * 32, j->acc + (size_t)r * j->acc_stride + t * 16);
}

static void plain_tiles_f32(const nb_attn_job *j)
{
    for (int32_t r = 0; r < j->rows; r++)
        for (int32_t t = 0; t < j->tiles; t++)
            for (int32_t g = 0; g < j->groups; g++)
                group_f32(j->w + (size_t)t * j->tile_stride + (size_t)g * 2048, j->x + (size_t)r * j->x_stride + g * 32,
                          j->acc + (size_t)r * j->acc_stride + t * 16);
}

static void plain_attn_softmax(float *s, int32_t from, int32_t to, int32_t lo, int32_t hi, float scale, float cap,
                               bool f32, float *m, float *l)
{
    float top = -__builtin_inff(), acc[16] = {0};
    for (int32_t j = lo; j < hi; j++) {
        s[j] = s[j] * scale;
        if (cap != 0.0f) s[j] = cap * nb_tanh(s[j] / cap);
        top = s[j] > top ? s[j] : top;
    }
    for (int32_t j = from; j < to; j++) {
        float p = j >= lo && j < hi ? nb_exp(s[j] - top) : 0.0f;
        if (!f32) p = p < NB_SMALL_P ? 0.0f : nb_bf16_decode(nb_bf16_encode(p));
        s[j] = p;
        acc[j % 16] = acc[j % 16] + p;
    }
    *m = top;
    *l = nb_fold16(acc);
}

static void plain_attn_merge(float *o, const float *ob, int64_t n, float a, float c)
{
    for (int64_t i = 0; i < n; i++) o[i] = fmaf(o[i], a, ob[i] * c);
}

static void plain_attn_divide(const float *o, int64_t n, float l, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = o[i] / l;
}

void NB_PLAIN(nb_attention_plain)(nb_kernels *k)
{
    k->attn_tiles[0] = plain_tiles;
    k->attn_tiles[1] = plain_tiles_f32;
    k->attn_softmax = plain_attn_softmax;
    k->attn_merge = plain_attn_merge;
    k->attn_divide = plain_attn_divide;
}
