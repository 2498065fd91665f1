/* Byte strings and UTF-8. */
#include "base/base.h"

bool nb_str_starts(nb_str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.n >= n && (n == 0 || memcmp(s.p, prefix, n) == 0);
}

bool nb_str_ends(nb_str s, const char *suffix)
{
    size_t n = strlen(suffix);
    return s.n >= n && (n == 0 || memcmp(s.p + s.n - n, suffix, n) == 0);
}

bool nb_str_has(nb_str s, const char *part) { return nb_str_find(s, nb_str_of(part), 0) >= 0; }

int nb_str_cmp(nb_str a, nb_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    if (c) return c < 0 ? -1 : 1;
    return a.n < b.n ? -1 : a.n > b.n;
}

int64_t nb_str_find(nb_str s, nb_str part, size_t from)
{
    if (from > s.n) return -1;
    if (part.n == 0) return (int64_t)from;
    if (part.n > s.n - from) return -1;
    const char *hit = memmem(s.p + from, s.n - from, part.p, part.n);
    return hit ? hit - s.p : -1;
}

/* Length of the valid character at p[0..n), 0 if it is bad. The second byte's range depends on the first: it keeps out
 * overlong forms (E0, F0), surrogates (ED) and what lies beyond U+10FFFF (F4). */
static size_t utf8_char(const unsigned char *p, size_t n)
{
    unsigned char b = p[0];
    if (b < 0x80) return 1;
    if (b < 0xc2 || b > 0xf4) return 0;
    if (b < 0xe0) return n >= 2 && (p[1] & 0xc0) == 0x80 ? 2 : 0;
    unsigned char lo = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : 0xbf;
    if (n < 3 || p[1] < lo || p[1] > hi || (p[2] & 0xc0) != 0x80) return 0;
    if (b < 0xf0) return 3;
    return n >= 4 && (p[3] & 0xc0) == 0x80 ? 4 : 0;
}

size_t nb_utf8_valid_prefix(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n) {
        /* Eight ASCII bytes at a time. */
        if (n - i >= 8 && !(nb_load_u64(p + i) & 0x8080808080808080u)) {
            i += 8;
            continue;
        }
        size_t len = utf8_char((const unsigned char *)p + i, n - i);
        if (!len) return i;
        i += len;
    }
    return n;
}

uint32_t nb_utf8_decode(const char *p, size_t n, size_t *len)
{
    const unsigned char *u = (const unsigned char *)p;
    size_t k = utf8_char(u, n);
    *len = k ? k : 1;
    switch (k) {
    case 1: return u[0];
    case 2: return (u[0] & 0x1fu) << 6 | (u[1] & 0x3fu);
    case 3: return (u[0] & 0x0fu) << 12 | (u[1] & 0x3fu) << 6 | (u[2] & 0x3fu);
    case 4: return (u[0] & 0x07u) << 18 | (u[1] & 0x3fu) << 12 | (u[2] & 0x3fu) << 6 | (u[3] & 0x3fu);
    default: return UINT32_MAX;
    }
}

size_t nb_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | (cp >> 18 & 0x07));
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}
