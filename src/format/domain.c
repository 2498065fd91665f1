/* Scales of foreign files against the domain that kernels rely on (design.md 4, specs/create.md 3.7). */
#include "format/kernels.h"

#include <math.h>

/* Whether a block's codes all have magnitude zero; mask clears the sign bits of eight bytes. */
static bool all_zero(const uint8_t *codes, size_t bytes, uint64_t mask)
{
    uint64_t any = 0;
    for (size_t i = 0; i < bytes; i += 8) any |= nb_load_u64(codes + i) & mask;
    return any == 0;
}

/* Whether one of the E4M3 codes is NaN: 0x7f or 0xff. Adding one to the low seven bits carries into the sign for these
 * only. */
static bool has_nan(const uint8_t *codes, size_t bytes)
{
    uint64_t any = 0;
    for (size_t i = 0; i < bytes; i += 8) any |= (nb_load_u64(codes + i) & 0x7f7f7f7f7f7f7f7fu) + 0x0101010101010101u;
    return (any & 0x8080808080808080u) != 0;
}

static nb_status bad_scale(nb_error *err, int64_t row, int64_t block, const char *what, const char *code)
{
    return nb_fail(err, NB_E_INVALID, "row %lld, block %lld: %s (%s)", (long long)row, (long long)block, what, code);
}

static nb_status nvfp4_row(nb_row row, int64_t r, int64_t blocks, nb_error *err)
{
    for (int64_t b = 0; b < blocks; b++) {
        uint8_t *codes = row.codes + 8 * b, *s = row.scales + b;
        if (*s < 0x7f) continue;
        if ((*s & 0x7f) == 0x7f) {
            if (!all_zero(codes, 8, 0x7777777777777777u))
                return bad_scale(err, r, b, "the scale is NaN", "E_SCALE_NAN");
            *s = 0;
        } else { /* kernels take scales without a sign: move it to the codes */
            nb_store_u64(codes, nb_load_u64(codes) ^ 0x8888888888888888u);
            *s &= 0x7f;
        }
    }
    return NB_OK;
}

static nb_status mx_row(nb_row row, int64_t r, int64_t blocks, int bits, uint64_t *zeroed, nb_error *err)
{
    size_t bytes = 4 * (size_t)bits;
    for (int64_t b = 0; b < blocks; b++) {
        uint8_t *codes = row.codes + (size_t)b * bytes, *s = row.scales + b;
        if (bits == 8 && has_nan(codes, bytes)) return bad_scale(err, r, b, "a code is NaN", "E_NONFINITE");
        if (*s >= 16 && *s <= 240) continue;
        if (*s == 255) return bad_scale(err, r, b, "the scale is NaN", "E_SCALE_NAN");
        if (!all_zero(codes, bytes, bits == 4 ? 0x7777777777777777u : 0x7f7f7f7f7f7f7f7fu)) {
            if (*s > 240) return bad_scale(err, r, b, "the scale is above 2^113", "E_SCALE_RANGE");
            memset(codes, 0, bytes);
            ++*zeroed;
        }
        *s = 127;
    }
    return NB_OK;
}

static nb_status affine_row(nb_row row, int64_t r, int64_t blocks, uint8_t dtype, nb_error *err)
{
    for (int64_t b = 0; b < blocks; b++) {
        if (!isfinite(nb_scale_get(dtype, row.scales, b)))
            return bad_scale(err, r, b, "the scale is not finite", "E_SCALE_NAN");
        if (!isfinite(nb_scale_get(dtype, row.biases, b)))
            return bad_scale(err, r, b, "the bias is not finite", "E_SCALE_NAN");
    }
    return NB_OK;
}

nb_status nb_parts_domain(nb_qtype q, const nb_parts *p, int64_t rows, int64_t k, uint64_t *zeroed, nb_error *err)
{
    size_t a, b, c;
    uint64_t count = 0;
    if (!nb_parts_row_bytes(q, k, &a, &b, &c))
        return nb_fail(err, NB_E_INVALID, "a row of %lld values does not divide into groups of %d", (long long)k,
                       q.group);
    nb_status st = NB_OK;
    for (int64_t r = 0; r < rows && st == NB_OK; r++) {
        size_t i = (size_t)r;
        nb_row row = {p->codes + i * p->code_stride, p->scales ? p->scales + i * p->scale_stride : NULL,
                      p->biases ? p->biases + i * p->bias_stride : NULL};
        const nb_format_row *f = nb_format_info((nb_format)q.format);
        if (f->scale_kind == NB_SCALE_E4M3)
            st = nvfp4_row(row, r, k / q.group, err);
        else if (f->scale_kind == NB_SCALE_E8M0)
            st = mx_row(row, r, k / q.group, f->bits, &count, err);
        else if (f->scale_kind == NB_SCALE_AFFINE)
            st = affine_row(row, r, k / q.group, q.scale_dtype, err);
    }
    if (zeroed) *zeroed += count;
    return st;
}
