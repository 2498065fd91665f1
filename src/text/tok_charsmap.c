/* text/tok_charsmap: SentencePiece's precompiled character map: u32 size of a double array, the array, then strings
 * that end with NUL. A unit: bits 0-7 label, 8 has a leaf, 9 offset is shifted by 8, 10-30 offset; a leaf: bit 31 and the value. */
#include "text/tok_run.h"

nb_status nb_tok_charsmap_check(nb_str blob, nb_error *err)
{
    if (!blob.n) return NB_OK;
    uint32_t size = blob.n >= 4 ? nb_load_u32(blob.p) : 0;
    if (blob.n < 4 || size > blob.n - 4 || size % 4 || size < 4) return nb_fail(err, NB_E_INVALID, "precompiled_charsmap: the array has %u bytes of %zu", size, blob.n);
    const char *strings = blob.p + 4 + size;
    size_t n = blob.n - 4 - size;
    if (nb_utf8_valid_prefix(strings, n) != n) return nb_fail(err, NB_E_INVALID, "precompiled_charsmap: a replacement is not UTF-8");
    if (n && blob.p[blob.n - 1]) return nb_fail(err, NB_E_INVALID, "precompiled_charsmap: the last string does not end");
    return NB_OK;
}

static uint32_t unit_offset(uint32_t u) { return (u >> 10) << ((u & 512) >> 6); }

size_t nb_tok_charsmap_find(nb_str blob, const char *p, size_t n, bool shortest, nb_str *to)
{
    if (blob.n < 8) return 0;
    uint32_t size = nb_load_u32(blob.p), units = size / 4;
    const char *array = blob.p + 4, *strings = array + size;
    size_t string_n = blob.n - 4 - size, best = 0;
    uint32_t node = 0, unit = nb_load_u32(array);
    node ^= unit_offset(unit);
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)p[i];
        if (!c) break; /* 0 is the label of leaves */
        node ^= c;
        if (node >= units) break;
        unit = nb_load_u32(array + 4 * (size_t)node);
        if ((unit & 0x800000FFu) != c) break;
        node ^= unit_offset(unit);
        if (!(unit >> 8 & 1)) continue;
        if (node >= units) break;
        uint32_t value = nb_load_u32(array + 4 * (size_t)node) & 0x7FFFFFFF;
        if (value >= string_n || (strings[value] & 0xC0) == 0x80) break;
        if (i + 1 < n && (p[i + 1] & 0xC0) == 0x80) continue; /* a key that ends inside a character */
        best = i + 1;
        to->p = strings + value;
        to->n = strnlen(to->p, string_n - value);
        if (shortest) break;
    }
    return best;
}

bool nb_tok_charsmap_begins(nb_str blob, const char *p, size_t n)
{
    if (blob.n < 8) return false;
    uint32_t units = nb_load_u32(blob.p) / 4, node = unit_offset(nb_load_u32(blob.p + 4));
    for (size_t i = 0; i < n; i++) {
        node ^= (uint8_t)p[i];
        if (node >= units) return false;
        uint32_t unit = nb_load_u32(blob.p + 4 + 4 * (size_t)node);
        if ((unit & 0x800000FFu) != (uint8_t)p[i]) return false;
        node ^= unit_offset(unit);
    }
    return true;
}
