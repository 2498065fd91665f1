/* format/kernels_body: the vector kernels, written once over LANES lanes. kernels_avx2.c and kernels_avx512.c define
 * the vector type and the few operations that differ (vf, vi, LANES, vf_load, ...) and include this file; each
 * operation is the one of kernels.c, so the bytes are equal.
 *
 *   vf, vi         LANES floats, LANES 32-bit integers (vector_size types: + - * / & | compare work on them)
 *   narrow(c, o)   LANES codes of 0..255 as bytes: LANES / 8 words of eight codes
 *   widen(w)       the inverse
 */

static vi vi_abs_bits(vf x) { return (vi)x & 0x7fffffff; }

static uint32_t abs_bits(const float *w, size_t n)
{
    size_t i = 0;
    vi a = vi_set(0), b = a;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        a = vi_max(a, vi_abs_bits(vf_load(w + i)));
        b = vi_max(b, vi_abs_bits(vf_load(w + i + LANES)));
    }
    uint32_t top = (uint32_t)vi_top(vi_max(a, b));
    for (; i < n; i++) {
        uint32_t u = nb_bits_f32(w[i]) & 0x7fffffffu;
        if (u > top) top = u;
    }
    return top;
}

static inline float group_max(const float *w, int n)
{
    vi a = vi_abs_bits(vf_load(w));
    for (int i = LANES; i < n; i += LANES) a = vi_max(a, vi_abs_bits(vf_load(w + i)));
    return nb_f32_bits((uint32_t)vi_top(a));
}

static inline vi e2m1_encode(vf x)
{
    vf a = (vf)vi_abs_bits(x);
    /* a comparison is -1 where it holds */
    vi c = (a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f);
    return -c | (((vi)x >> 28) & 8);
}

static inline vi e4m3_encode(vf x) /* x is no NaN */
{
    vi u = vi_abs_bits(x);
    vi small = (vi)((vf)u + 16384.0f) - 0x46800000;
    vi large = vi_min(((u + 0x7ffff + ((u >> 20) & 1)) >> 20) - (120 << 3), vi_set(0x7e));
    vi is_small = u < 0x3c800000;
    return (small & is_small) | (large & ~is_small) | (((vi)x >> 24) & 0x80);
}

/* Where `bits` bits of each of eight bytes stand. */
static const uint64_t code_mask[9] = {[2] = 0x0303030303030303u, [3] = 0x0707070707070707u, [4] = 0x0f0f0f0f0f0f0f0fu,
                                      [5] = 0x1f1f1f1f1f1f1f1fu, [6] = 0x3f3f3f3f3f3f3f3fu, [8] = ~(uint64_t)0};

static inline void put_codes(uint8_t *p, vi c, int bits)
{
    uint64_t eight[LANES / 8];
    narrow(c, eight);
    for (int i = 0; i < LANES / 8; i++) nb_put_bytes(p + i * bits, _pext_u64(eight[i], code_mask[bits]), bits);
}
static inline vi get_codes(const uint8_t *p, int bits)
{
    uint64_t eight[LANES / 8];
    for (int i = 0; i < LANES / 8; i++) eight[i] = _pdep_u64(nb_get_bytes(p + i * bits, bits), code_mask[bits]);
    return widen(eight);
}

/* ---- quantisers ---- */

static void nvfp4(const float *w, int64_t k, float enc, nb_row out)
{
    for (int64_t i = 0; i < k; i += 16) {
        float r;
        out.scales[i / 16] = nb_nvfp4_scale(group_max(w + i, 16), enc, &r);
        for (int j = 0; j < 16; j += LANES) put_codes(out.codes + (i + j) / 2, e2m1_encode(vf_load(w + i + j) * r), 4);
    }
}

static bool mxfp4(const float *w, int64_t k, nb_row out)
{
    bool ok = true;
    for (int64_t i = 0; i < k; i += 32) {
        float inv;
        ok &= nb_mx_scale(group_max(w + i, 32), 6.0f, &out.scales[i / 32], &inv);
        vi keep = vi_set(inv > 0 ? -1 : 0);
        for (int j = 0; j < 32; j += LANES)
            put_codes(out.codes + (i + j) / 2, e2m1_encode(vf_load(w + i + j) * inv) & keep, 4);
    }
    return ok;
}

static bool mxfp8(const float *w, int64_t k, nb_row out)
{
    bool ok = true;
    for (int64_t i = 0; i < k; i += 32) {
        float inv;
        ok &= nb_mx_scale(group_max(w + i, 32), 448.0f, &out.scales[i / 32], &inv);
        vi keep = vi_set(inv > 0 ? -1 : 0);
        for (int j = 0; j < 32; j += LANES)
            put_codes(out.codes + i + j, e4m3_encode(vf_load(w + i + j) * inv) & keep, 8);
    }
    return ok;
}

/* Squares of 16 differences, then folded; vf_fold adds the halves of a vector, again and again. */
static inline float fold_squares(const vf *d, int n)
{
    vf s = d[0] * d[0];
    for (int j = 1; j < n; j++) s += d[j] * d[j];
    return vf_fold(s);
}

static inline float nvfp4_error(const float *w, float enc, uint8_t s)
{
    float scale = nb_f32_bits(nb_e4m3_table[s]), r = enc / scale;
    vf d[16 / LANES];
    for (int j = 0; j < 16 / LANES; j++) {
        vf x = vf_load(w + j * LANES);
        d[j] = x * enc - e2m1_decode(e2m1_encode(x * r)) * scale;
    }
    return fold_squares(d, 16 / LANES);
}

static void nvfp4_search(const float *w, int64_t k, float enc, nb_row out)
{
    for (int64_t i = 0; i < k; i += 16) {
        float r;
        uint8_t plain = nb_nvfp4_scale(group_max(w + i, 16), enc, &r), best = plain;
        float least = plain ? nvfp4_error(w + i, enc, plain) : 0;
        for (int s = nb_nvfp4_first(plain); s <= nb_nvfp4_last(plain); s++) {
            float e = nvfp4_error(w + i, enc, (uint8_t)s);
            if (e < least) least = e, best = (uint8_t)s;
        }
        if (best != plain) r = enc / nb_f32_bits(nb_e4m3_table[best]);
        out.scales[i / 16] = best;
        for (int j = 0; j < 16; j += LANES) put_codes(out.codes + (i + j) / 2, e2m1_encode(vf_load(w + i + j) * r), 4);
    }
}

static inline float mxfp4_error(const float *w, float inv)
{
    vf d[32 / LANES];
    for (int j = 0; j < 32 / LANES; j++) {
        vf x = vf_load(w + j * LANES) * inv;
        d[j] = x - e2m1_decode(e2m1_encode(x));
    }
    for (int j = 0; j < 16 / LANES; j++) d[j] = d[j] * d[j] + d[j + 16 / LANES] * d[j + 16 / LANES];
    vf s = d[0];
    for (int j = 1; j < 16 / LANES; j++) s += d[j];
    return vf_fold(s);
}

static bool mxfp4_search(const float *w, int64_t k, nb_row out)
{
    bool ok = true;
    for (int64_t i = 0; i < k; i += 32) {
        float inv;
        ok &= nb_mx_scale(group_max(w + i, 32), 6.0f, &out.scales[i / 32], &inv);
        if (inv > 0 && out.scales[i / 32] > 16 && mxfp4_error(w + i, inv * 2) * 0.25f < mxfp4_error(w + i, inv))
            inv *= 2, out.scales[i / 32]--;
        vi some = vi_set(inv > 0 ? -1 : 0);
        for (int j = 0; j < 32; j += LANES)
            put_codes(out.codes + (i + j) / 2, e2m1_encode(vf_load(w + i + j) * inv) & some, 4);
    }
    return ok;
}

static bool affine(const float *w, int64_t k, nb_qtype q, nb_row out)
{
    int bits = nb_format_info((nb_format)q.format)->bits;
    float n = (float)((1 << bits) - 1);
    bool ok = true;
    for (int64_t g = 0; g < k / q.group; g++, w += q.group) {
        vf lo = vf_load(w), hi = lo;
        for (int j = LANES; j < q.group; j += LANES) {
            vf x = vf_load(w + j);
            lo = vf_min(lo, x);
            hi = vf_max(hi, x);
        }
        float s, z;
        ok &= nb_affine_scale(vf_least(lo), vf_greatest(hi), q, g, out, &s, &z);
        uint8_t *codes = out.codes + g * q.group * bits / 8;
        for (int j = 0; j < q.group; j += LANES) {
            vf x = vf_rint((vf_load(w + j) - z) / s);
            put_codes(codes + j * bits / 8, vf_to_int(vf_min(vf_max(x, vf_set(0)), vf_set(n))), bits);
        }
    }
    return ok;
}

static void to_e4m3(const float *w, int64_t k, float s, uint8_t *out)
{
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES) put_codes(out + i, e4m3_encode(vf_load(w + i) / s), 8);
    for (; i < k; i++) out[i] = nb_e4m3_encode(w[i] / s);
}

static bool to_bf16(const float *w, int64_t k, uint8_t *out)
{
    int64_t i = 0;
    vi top = vi_set(0);
    for (; i + LANES <= k; i += LANES) { /* the row is finite: no NaN to keep quiet */
        vi u = (vi)vf_load(w + i);
        u = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
        top = vi_max(top, u & 0x7fff);
        narrow16(out + 2 * i, u & 0xffff);
    }
    bool ok = vi_top(top) < 0x7f80;
    return nb_kernels_c.bf16(w + i, k - i, out + 2 * i) && ok;
}

static bool to_f16(const float *w, int64_t k, uint8_t *out)
{
    int64_t i = 0;
    bool ok = true;
    for (; i + LANES <= k; i += LANES) ok &= store_f16(out + 2 * i, vf_load(w + i));
    return nb_kernels_c.f16(w + i, k - i, out + 2 * i) && ok;
}

/* ---- decoders ---- */

static void from_e2m1(nb_row_in in, int64_t k, nb_qtype q, float m, float *out)
{
    for (int64_t g = 0; g < k / q.group; g++) {
        float s = q.format == NB_NVFP4 ? nb_f32_bits(nb_e4m3_table[in.scales[g]]) : nb_e8m0_decode(in.scales[g]);
        for (int64_t i = g * q.group; i < (g + 1) * q.group; i += LANES)
            vf_store(out + i, (e2m1_decode(get_codes(in.codes + i / 2, 4)) * s) * m);
    }
}

static void from_mxfp8(nb_row_in in, int64_t k, float *out)
{
    for (int64_t i = 0; i < k; i += 32) {
        float s = nb_e8m0_decode(in.scales[i / 32]);
        for (int j = 0; j < 32; j += LANES) vf_store(out + i + j, gather_e4m3(get_codes(in.codes + i + j, 8)) * s);
    }
}

static void from_affine(nb_row_in in, int64_t k, nb_qtype q, float *out)
{
    int bits = nb_format_info((nb_format)q.format)->bits;
    for (int64_t g = 0; g < k / q.group; g++) {
        vf s = vf_set(nb_scale_get(q.scale_dtype, in.scales, g)), z = vf_set(nb_scale_get(q.scale_dtype, in.biases, g));
        for (int64_t i = g * q.group; i < (g + 1) * q.group; i += LANES)
            vf_store(out + i, vf_fma(int_to_vf(get_codes(in.codes + i * bits / 8, bits)), s, z));
    }
}

static void from_bf16(const uint8_t *in, size_t n, float *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) vf_store(out + i, (vf)(load_u16(in + 2 * i) << 16));
    nb_kernels_c.from_bf16(in + 2 * i, n - i, out + i);
}

static void from_f16(const uint8_t *in, size_t n, float *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) vf_store(out + i, load_f16(in + 2 * i));
    nb_kernels_c.from_f16(in + 2 * i, n - i, out + i);
}

static void from_e4m3(const uint8_t *in, size_t n, float m, float *out)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) vf_store(out + i, gather_e4m3(get_codes(in + i, 8)) * m);
    nb_kernels_c.from_e4m3(in + i, n - i, m, out + i);
}

#define NB_KERNELS(label)                                                                                              \
    {                                                                                                                  \
        .name = (label), .abs_bits = abs_bits, .nvfp4 = nvfp4, .mxfp4 = mxfp4, .mxfp8 = mxfp8, .affine = affine,       \
        .nvfp4_search = nvfp4_search, .mxfp4_search = mxfp4_search, .e4m3 = to_e4m3, .bf16 = to_bf16, .f16 = to_f16,   \
        .from_e2m1 = from_e2m1, .from_mxfp8 = from_mxfp8, .from_affine = from_affine, .from_bf16 = from_bf16,          \
        .from_f16 = from_f16, .from_e4m3 = from_e4m3,                                                                  \
    }
