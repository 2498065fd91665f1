/* The element-wise and row-wise kernels in plain C: the definition that every tier must match bit for bit (design.md
 * 4). Compiled twice, see kernels.h. */
#include "cpu/kernels.h"
#include "cpu/math.h"

/* The value as a product may read it, before rounding: +0 where |a| < small or out of the domain; *bad is then true for
 * the latter. */
static inline float in_domain(float a, float small, bool *bad)
{
    float m = nb_f32_bits(nb_bits_f32(a) & 0x7fffffffu);
    if (!(m <= NB_DOMAIN_MAX)) {
        *bad = true;
        return 0.0f;
    }
    return m < small ? 0.0f : a;
}

static bool round_bf16(const float *x, int64_t n, int64_t n_pad, float small, uint16_t *out)
{
    bool bad = false;
    for (int64_t i = 0; i < n; i++) out[i] = nb_bf16_encode(in_domain(x[i], small, &bad));
    for (int64_t i = n; i < n_pad; i++) out[i] = 0;
    return bad;
}

static bool round_f32(const float *x, int64_t n, int64_t n_pad, float small, float *out)
{
    bool bad = false;
    for (int64_t i = 0; i < n; i++) out[i] = in_domain(x[i], small, &bad);
    for (int64_t i = n; i < n_pad; i++) out[i] = 0.0f;
    return bad;
}

static bool plain_round_row(const float *x, int64_t n, int64_t n_pad, uint16_t *out)
{
    return round_bf16(x, n, n_pad, NB_SMALL_ACT, out);
}
static bool plain_round_row_f32(const float *x, int64_t n, int64_t n_pad, float *out)
{
    return round_f32(x, n, n_pad, 0.0f, out);
}
static bool plain_round_kv(const float *x, int64_t n, int64_t n_pad, void *out)
{
    return round_bf16(x, n, n_pad, NB_SMALL_KV, out);
}
static bool plain_round_kv_f32(const float *x, int64_t n, int64_t n_pad, void *out)
{
    return round_f32(x, n, n_pad, NB_SMALL_KV, out);
}

static void plain_rms_norm(const float *x, const float *w, int64_t n, float eps, float *out)
{
    float acc[16] = {0};
    for (int64_t i = 0; i < n; i++) acc[i % 16] = fmaf(x[i], x[i], acc[i % 16]);
    float r = 1.0f / nb_sqrtf(nb_fold16(acc) / (float)n + eps);
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] * r;
        out[i] = w ? y * w[i] : y;
    }
}

static void plain_glu(const float *gate, const float *up, int64_t n, nb_act f, float *out)
{
    for (int64_t i = 0; i < n; i++) {
        float g = nb_act_value(f, gate[i]);
        out[i] = up ? g * up[i] : g;
    }
}

static void plain_rotate(float *x, int64_t pairs, const float *cos, const float *sin, bool interleaved)
{
    int64_t step = interleaved ? 2 : 1, second = interleaved ? 1 : pairs;
    for (int64_t i = 0; i < pairs; i++) {
        float x0 = x[i * step], x1 = x[i * step + second];
        x[i * step] = fmaf(x0, cos[i], -(x1 * sin[i]));
        x[i * step + second] = fmaf(x1, cos[i], x0 * sin[i]);
    }
}

static void plain_softcap(const float *x, int64_t n, float cap, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = cap * nb_tanh(x[i] / cap);
}

static void plain_softmax(float *x, int64_t n)
{
    float m = -__builtin_inff(), acc[16] = {0};
    for (int64_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
    for (int64_t i = 0; i < n; i++) {
        x[i] = nb_exp(x[i] - m);
        acc[i % 16] = acc[i % 16] + x[i];
    }
    float l = nb_fold16(acc);
    for (int64_t i = 0; i < n; i++) x[i] = x[i] / l;
}

static void plain_add(const float *a, const float *b, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
}

static void plain_scale(const float *x, int64_t n, float s, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = x[i] * s;
}

static void plain_fma_row(float w, const float *x, int64_t n, float *y)
{
    for (int64_t i = 0; i < n; i++) y[i] = fmaf(w, x[i], y[i]);
}

static void plain_widen(const uint16_t *x, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = nb_bf16_decode(x[i]);
}

void NB_PLAIN(nb_elementwise_plain)(nb_kernels *k)
{
    k->round_row = plain_round_row;
    k->round_row_f32 = plain_round_row_f32;
    k->round_kv[0] = plain_round_kv;
    k->round_kv[1] = plain_round_kv_f32;
    k->rms_norm = plain_rms_norm;
    k->glu = plain_glu;
    k->rotate = plain_rotate;
    k->softcap = plain_softcap;
    k->softmax = plain_softmax;
    k->add = plain_add;
    k->scale = plain_scale;
    k->fma_row = plain_fma_row;
    k->widen = plain_widen;
}
