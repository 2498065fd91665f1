/* Element types of containers, and their decoding to F32. */
#include "format/kernels.h"
#include "format/scalar.h"

#include <strings.h>

static const struct {
    const char *name;
    uint8_t bits;
} dtypes[NB_DT_COUNT] = {
    [NB_DT_NONE] = {"none", 0},
    [NB_DT_BOOL] = {"BOOL", 8},
    [NB_DT_U8] = {"U8", 8},
    [NB_DT_I8] = {"I8", 8},
    [NB_DT_U16] = {"U16", 16},
    [NB_DT_I16] = {"I16", 16},
    [NB_DT_F16] = {"F16", 16},
    [NB_DT_BF16] = {"BF16", 16},
    [NB_DT_U32] = {"U32", 32},
    [NB_DT_I32] = {"I32", 32},
    [NB_DT_F32] = {"F32", 32},
    [NB_DT_U64] = {"U64", 64},
    [NB_DT_I64] = {"I64", 64},
    [NB_DT_F64] = {"F64", 64},
    [NB_DT_C64] = {"C64", 64},
    [NB_DT_F8_E4M3] = {"F8_E4M3", 8},
    [NB_DT_F8_E5M2] = {"F8_E5M2", 8},
    [NB_DT_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [NB_DT_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [NB_DT_F8_E8M0] = {"F8_E8M0", 8},
    [NB_DT_F4] = {"F4", 4},
    [NB_DT_F6_E2M3] = {"F6_E2M3", 6},
    [NB_DT_F6_E3M2] = {"F6_E3M2", 6},
};

const char *nb_dtype_name(nb_dtype t) { return (unsigned)t < NB_DT_COUNT ? dtypes[t].name : "?"; }
int nb_dtype_bits(nb_dtype t) { return (unsigned)t < NB_DT_COUNT ? dtypes[t].bits : 0; }

nb_dtype nb_dtype_parse(nb_str name)
{
    for (int t = NB_DT_NONE + 1; t < NB_DT_COUNT; t++)
        if (name.n == strlen(dtypes[t].name) && strncasecmp(name.p, dtypes[t].name, name.n) == 0) return (nb_dtype)t;
    if (name.n == 9 && strncasecmp(name.p, "F8_E4M3FN", 9) == 0) return NB_DT_F8_E4M3;
    return NB_DT_NONE;
}

static void decode_bytes(const uint8_t *src, size_t n, float *dst, float (*fn)(uint8_t))
{
    for (size_t i = 0; i < n; i++) dst[i] = fn(src[i]);
}

bool nb_floats_decode(nb_dtype t, const void *src, size_t count, float *dst)
{
    const nb_kernels *kern = nb_kernels_best();
    const uint8_t *p = src;
    switch (t) {
    case NB_DT_F32:
        if (count) memcpy(dst, p, count * 4);
        return true;
    case NB_DT_BF16: kern->from_bf16(p, count, dst); return true;
    case NB_DT_F16: kern->from_f16(p, count, dst); return true;
    case NB_DT_F64:
        for (size_t i = 0; i < count; i++) {
            double d;
            memcpy(&d, p + 8 * i, 8);
            dst[i] = (float)d;
        }
        return true;
    case NB_DT_F8_E4M3: kern->from_e4m3(p, count, 1.0f, dst); return true;
    case NB_DT_F8_E5M2: decode_bytes(p, count, dst, nb_e5m2_decode); return true;
    case NB_DT_F8_E4M3FNUZ: decode_bytes(p, count, dst, nb_e4m3fnuz_decode); return true;
    case NB_DT_F8_E5M2FNUZ: decode_bytes(p, count, dst, nb_e5m2fnuz_decode); return true;
    case NB_DT_F8_E8M0: decode_bytes(p, count, dst, nb_e8m0_decode); return true;
    default: return false;
    }
}
