/* text/jinja_strmeth: methods of str. Positions are code points; results keep the origin of every piece. */
#include "text/jinja.h"

#define ARGS(fn, req, max, ...)                                                                                        \
    jval v[(max) > 0 ? (max) : 1];                                                                                     \
    if (!nbj_bind(j, fn, a, (const char *const[]){__VA_ARGS__}, (req), (max), v)) return jv(J_ERR)

static bool no_args(jctx *j, const char *fn, const jargs *a)
{
    if (!a->n && !a->nkw) return true;
    nbj_fail(j, "TypeError", "str.%s() takes no arguments (%u given)", fn, a->n + a->nkw);
    return false;
}

/* Methods of markup give markup. */
static jval as_markup_of(jctx *j, const jstr *s, jval v) { return nbj_as_markup(j, v, s->markup); }

/* An argument that becomes part of the result: markup escapes it. */
static const jstr *part_of(jctx *j, const jstr *s, const jstr *arg)
{
    if (!arg || s->markup == arg->markup || !s->markup) return arg;
    jval e = nbj_escape(j, arg);
    return j_bad(e) ? NULL : e.u.s;
}

/* ---- strip ---- */

/* Is the character at p one of `chars` (NULL: white space)? */
static bool in_chars(const jstr *chars, const char *p, size_t len)
{
    if (!chars) {
        size_t n;
        return nbj_is_space(nb_utf8_decode(p, len, &n));
    }
    for (uint32_t i = 0; i + len <= chars->n; i++) {
        if (((uint8_t)chars->p[i] & 0xC0) != 0x80 && memcmp(chars->p + i, p, len) == 0) return true;
    }
    return false;
}

/* A set of characters, not a prefix. */
jval nbj_strip(jctx *j, const jstr *s, const jstr *chars, int sides)
{
    uint32_t from = 0, to = s->n;
    if (!nbj_step(j, chars ? 1 + (uint64_t)chars->n * s->n / 256 : 1)) return jv(J_ERR);
    while ((sides & 1) && from < to) {
        uint32_t k = from + 1;
        while (k < to && ((uint8_t)s->p[k] & 0xC0) == 0x80) k++;
        if (!in_chars(chars, s->p + from, k - from)) break;
        from = k;
    }
    while ((sides & 2) && to > from) {
        uint32_t k = to - 1;
        while (k > from && ((uint8_t)s->p[k] & 0xC0) == 0x80) k--;
        if (!in_chars(chars, s->p + k, to - k)) break;
        to = k;
    }
    return nbj_slice(j, s, from, to);
}

static jval strip_with(jctx *j, jval self, const jargs *a, const char *fn, int sides)
{
    ARGS(fn, 0, 1, "-chars");
    if (v[0].t == J_MISSING || v[0].t == J_NONE) return nbj_strip(j, self.u.s, NULL, sides);
    const jstr *c = nbj_want_str(j, v[0], "strip arg");
    return c ? nbj_strip(j, self.u.s, c, sides) : jv(J_ERR);
}

static jval m_strip(jctx *j, jval self, const jargs *a) { return strip_with(j, self, a, "strip", 3); }
static jval m_lstrip(jctx *j, jval self, const jargs *a) { return strip_with(j, self, a, "lstrip", 1); }
static jval m_rstrip(jctx *j, jval self, const jargs *a) { return strip_with(j, self, a, "rstrip", 2); }

/* ---- split ---- */

static bool push_part(jctx *j, jlist *l, const jstr *s, uint32_t from, uint32_t to)
{
    return nbj_push_val(j, l, nbj_slice(j, s, from, to));
}

/* Over white space (or over all but white space) from i on. */
static uint32_t skip_space(const jstr *s, uint32_t i, bool space)
{
    while (i < s->n) {
        size_t len;
        if (nbj_is_space(nb_utf8_decode(s->p + i, s->n - i, &len)) != space) break;
        i += (uint32_t)len;
    }
    return i;
}

static uint32_t skip_space_back(const jstr *s, uint32_t i, bool space)
{
    while (i > 0) {
        uint32_t k = i - 1;
        while (k > 0 && ((uint8_t)s->p[k] & 0xC0) == 0x80) k--;
        size_t len;
        if (nbj_is_space(nb_utf8_decode(s->p + k, s->n - k, &len)) != space) break;
        i = k;
    }
    return i;
}

/* split() without a separator: runs of white space count once, none at the ends; what is left behind the last of
 * `max` cuts keeps its own end. */
static bool split_words(jctx *j, jlist *l, const jstr *s, int64_t max)
{
    uint32_t i = skip_space(s, 0, true);
    for (; i < s->n; max--) {
        uint32_t end = max == 0 ? s->n : skip_space(s, i, false);
        if (!push_part(j, l, s, i, end)) return false;
        if (max == 0) return true;
        i = skip_space(s, end, true);
    }
    return true;
}

/* The same from the right; the parts come in reverse. */
static bool split_words_back(jctx *j, jlist *l, const jstr *s, int64_t max)
{
    uint32_t end = skip_space_back(s, s->n, true);
    for (; end > 0; max--) {
        uint32_t from = max == 0 ? 0 : skip_space_back(s, end, false);
        if (!push_part(j, l, s, from, end)) return false;
        if (max == 0) return true;
        end = skip_space_back(s, from, true);
    }
    return true;
}

/* The last place of part that ends at or before `to`; linear, since both may be long: Knuth, Morris, Pratt from the
 * right. */
static int64_t find_back(jctx *j, nb_str s, nb_str part, size_t to)
{
    size_t m = part.n;
    if (m > to || m == 0) return m ? -1 : (int64_t)to;
    uint32_t *fail = nbj_array(j, m, sizeof *fail);
    if (!fail) return -1;
#define PART(i) part.p[m - 1 - (i)]
    for (size_t i = 1, k = 0; i < m; i++) {
        while (k && PART(i) != PART(k)) k = fail[k - 1];
        if (PART(i) == PART(k)) k++;
        fail[i] = (uint32_t)k;
    }
    for (size_t i = to, k = 0; i > 0; i--) {
        while (k && s.p[i - 1] != PART(k)) k = fail[k - 1];
        if (s.p[i - 1] == PART(k)) k++;
        if (k == m) return (int64_t)i - 1;
    }
#undef PART
    return -1;
}

/* At a separator; from the right the parts come in reverse. */
static bool split_sep(jctx *j, jlist *l, const jstr *s, const jstr *sep, int64_t max, bool back)
{
    uint32_t from = 0, to = s->n;
    for (; max != 0; max--) {
        int64_t hit = back ? find_back(j, js_view(s), js_view(sep), to) : nbj_find(js_view(s), js_view(sep), from);
        if (hit < 0) break;
        if (!nbj_step(j, 1)) return false;
        if (back ? !push_part(j, l, s, (uint32_t)hit + sep->n, to) : !push_part(j, l, s, from, (uint32_t)hit))
            return false;
        if (back)
            to = (uint32_t)hit;
        else
            from = (uint32_t)hit + sep->n;
    }
    return push_part(j, l, s, from, to);
}

static void reverse_list(jlist *l)
{
    for (uint32_t i = 0; i < l->n / 2; i++) {
        jval t = l->v[i];
        l->v[i] = l->v[l->n - 1 - i];
        l->v[l->n - 1 - i] = t;
    }
}

static jval split(jctx *j, jval self, const jargs *a, bool back)
{
    ARGS(back ? "rsplit" : "split", 0, 2, "sep", "maxsplit");
    int64_t max = -1;
    if (v[1].t != J_MISSING && !nbj_want_int(j, v[1], &max)) return jv(J_ERR);
    jlist *l = nbj_list(j, 4);
    if (!l || !nbj_step(j, self.u.s->n / 16)) return jv(J_ERR);
    bool ok;
    if (v[0].t == J_MISSING || v[0].t == J_NONE) {
        ok = back ? split_words_back(j, l, self.u.s, max) : split_words(j, l, self.u.s, max);
    } else {
        const jstr *sep = nbj_want_str(j, v[0], "the separator");
        if (!sep) return jv(J_ERR);
        if (!sep->n) return nbj_fail(j, "ValueError", "empty separator");
        ok = split_sep(j, l, self.u.s, sep, max, back);
    }
    if (back) reverse_list(l);
    return ok ? jv_list(l) : jv(J_ERR);
}

static jval m_split(jctx *j, jval self, const jargs *a) { return split(j, self, a, false); }
static jval m_rsplit(jctx *j, jval self, const jargs *a) { return split(j, self, a, true); }

static bool is_line_end(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

/* At all of Unicode's line ends. */
jlist *nbj_split_lines(jctx *j, const jstr *s, bool keep)
{
    jlist *l = nbj_step(j, s->n / 4) ? nbj_list(j, 4) : NULL;
    uint32_t from = 0;
    for (uint32_t i = 0; l && i < s->n;) {
        size_t len;
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len);
        uint32_t end = i + (uint32_t)len;
        if (is_line_end(c)) {
            if (c == '\r' && end < s->n && s->p[end] == '\n') end++;
            if (!nbj_step(j, 1) || !push_part(j, l, s, from, keep ? end : i)) return NULL;
            from = end;
        }
        i = end;
    }
    if (l && from < s->n && !push_part(j, l, s, from, s->n)) return NULL;
    return l;
}

static jval m_splitlines(jctx *j, jval self, const jargs *a)
{
    ARGS("splitlines", 0, 1, "keepends");
    jlist *l = nbj_split_lines(j, self.u.s, v[0].t != J_MISSING && nbj_truth(j, v[0]));
    return l ? jv_list(l) : jv(J_ERR);
}

/* Before, separator, after; not found: all of it first, or last from the right. */
static jval partition(jctx *j, jval self, const jargs *a, bool back)
{
    ARGS(back ? "rpartition" : "partition", 1, 1, "-sep");
    const jstr *s = self.u.s, *sep = nbj_want_str(j, v[0], "the separator");
    if (!sep) return jv(J_ERR);
    if (!sep->n) return nbj_fail(j, "ValueError", "empty separator");
    int64_t hit = back ? find_back(j, js_view(s), js_view(sep), s->n) : nbj_find(js_view(s), js_view(sep), 0);
    jlist *l = nbj_list(j, 3);
    if (!l) return jv(J_ERR);
    uint32_t at = hit < 0 ? (back ? 0 : s->n) : (uint32_t)hit, behind = hit < 0 ? at : at + sep->n;
    bool ok = push_part(j, l, s, 0, at) &&
              nbj_push_val(j, l, hit < 0 ? nbj_slice(j, s, at, at) : nbj_slice(j, s, at, behind)) &&
              push_part(j, l, s, behind, s->n);
    return ok ? jv_tuple(l) : jv(J_ERR);
}

static jval m_partition(jctx *j, jval self, const jargs *a) { return partition(j, self, a, false); }
static jval m_rpartition(jctx *j, jval self, const jargs *a) { return partition(j, self, a, true); }

/* ---- search ---- */

/* start and end as Python has them, in bytes; false: error. *none: start lies behind the end of the string. */
static bool window(jctx *j, const jstr *s, jval start, jval end, uint32_t *from, uint32_t *to, bool *none)
{
    int64_t n = nbj_chars(s), a = 0, b = n;
    if (start.t != J_MISSING && start.t != J_NONE && !nbj_want_int(j, start, &a)) return false;
    if (end.t != J_MISSING && end.t != J_NONE && !nbj_want_int(j, end, &b)) return false;
    if (a < 0) a = a + n < 0 ? 0 : a + n;
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    if (b > n) b = n;
    *none = a > b;
    *from = nbj_offset(s, a > n ? (uint32_t)n : (uint32_t)a);
    *to = nbj_offset(s, (uint32_t)b);
    return true;
}

/* find, rfind, index, rindex; positions are code points. */
static jval search(jctx *j, jval self, const jargs *a, const char *fn, bool back, bool must)
{
    ARGS(fn, 1, 3, "-sub", "-start", "-end");
    const jstr *s = self.u.s, *sub = nbj_want_str(j, v[0], "must be str: the substring");
    uint32_t from, to;
    bool none;
    if (!sub || !window(j, s, v[1], v[2], &from, &to, &none) || !nbj_step(j, s->n / 64)) return jv(J_ERR);
    nb_str in = {s->p, to};
    int64_t hit = none ? -1 : back ? find_back(j, in, js_view(sub), to) : nbj_find(in, js_view(sub), from);
    if (hit >= 0 && hit < from) hit = -1;
    if (hit < 0) return must ? nbj_fail(j, "ValueError", "substring not found") : jv_int(-1);
    uint32_t chars = 0;
    for (int64_t i = 0; i < hit; i++) chars += ((uint8_t)s->p[i] & 0xC0) != 0x80;
    return jv_int(chars);
}

static jval m_find(jctx *j, jval self, const jargs *a) { return search(j, self, a, "find", false, false); }
static jval m_rfind(jctx *j, jval self, const jargs *a) { return search(j, self, a, "rfind", true, false); }
static jval m_index(jctx *j, jval self, const jargs *a) { return search(j, self, a, "index", false, true); }
static jval m_rindex(jctx *j, jval self, const jargs *a) { return search(j, self, a, "rindex", true, true); }

static jval m_count(jctx *j, jval self, const jargs *a)
{
    ARGS("count", 1, 3, "-sub", "-start", "-end");
    const jstr *s = self.u.s, *sub = nbj_want_str(j, v[0], "must be str: the substring");
    uint32_t from, to;
    bool none;
    if (!sub || !window(j, s, v[1], v[2], &from, &to, &none) || !nbj_step(j, s->n / 64)) return jv(J_ERR);
    if (none) return jv_int(0);
    int64_t n = 0;
    if (!sub->n) {
        for (uint32_t i = from; i < to; i++) n += ((uint8_t)s->p[i] & 0xC0) != 0x80;
        return jv_int(n + 1);
    }
    for (int64_t hit; (hit = nbj_find((nb_str){s->p, to}, js_view(sub), from)) >= 0; n++) from = (uint32_t)hit + sub->n;
    return jv_int(n);
}

/* startswith and endswith, with one text or a tuple of them. */
static jval affix(jctx *j, jval self, const jargs *a, const char *fn, bool end)
{
    ARGS(fn, 1, 3, "-prefix", "-start", "-end");
    const jstr *s = self.u.s;
    uint32_t from, to;
    bool none, tuple = v[0].t == J_TUPLE;
    if (!tuple && v[0].t != J_STR)
        return nbj_fail(j, "TypeError", "%s first arg must be str or a tuple of str, not %s", fn, nbj_type_name(v[0]));
    if (!window(j, s, v[1], v[2], &from, &to, &none)) return jv(J_ERR);
    for (uint32_t i = 0; i < (tuple ? v[0].u.l->n : 1); i++) {
        const jstr *p = nbj_want_str(j, tuple ? v[0].u.l->v[i] : v[0], "tuple for startswith: an item");
        if (!p) return jv(J_ERR);
        if (none || p->n > to - from) continue;
        if (!nbj_step(j, p->n / 128)) return jv(J_ERR);
        if (memcmp(s->p + (end ? to - p->n : from), p->p, p->n) == 0) return jv_bool(true);
    }
    return jv_bool(false);
}

static jval m_startswith(jctx *j, jval self, const jargs *a) { return affix(j, self, a, "startswith", false); }
static jval m_endswith(jctx *j, jval self, const jargs *a) { return affix(j, self, a, "endswith", true); }

static jval m_removeprefix(jctx *j, jval self, const jargs *a)
{
    ARGS("removeprefix", 1, 1, "-prefix");
    if (!nbj_step(j, self.u.s->n / 128)) return jv(J_ERR);
    const jstr *s = self.u.s, *p = nbj_want_str(j, v[0], "removeprefix() argument");
    if (!p) return jv(J_ERR);
    return p->n <= s->n && memcmp(s->p, p->p, p->n) == 0 ? nbj_slice(j, s, p->n, s->n) : self;
}

static jval m_removesuffix(jctx *j, jval self, const jargs *a)
{
    ARGS("removesuffix", 1, 1, "-suffix");
    if (!nbj_step(j, self.u.s->n / 128)) return jv(J_ERR);
    const jstr *s = self.u.s, *p = nbj_want_str(j, v[0], "removesuffix() argument");
    if (!p) return jv(J_ERR);
    return p->n <= s->n && memcmp(s->p + s->n - p->n, p->p, p->n) == 0 ? nbj_slice(j, s, 0, s->n - p->n) : self;
}

/* ---- case ---- */

static jval m_upper(jctx *j, jval self, const jargs *a)
{
    return no_args(j, "upper", a) ? nbj_case(j, self.u.s, NBJ_UPPER) : jv(J_ERR);
}
static jval m_lower(jctx *j, jval self, const jargs *a)
{
    return no_args(j, "lower", a) ? nbj_case(j, self.u.s, NBJ_LOWER) : jv(J_ERR);
}
static jval m_casefold(jctx *j, jval self, const jargs *a)
{
    return no_args(j, "casefold", a) ? nbj_case(j, self.u.s, NBJ_FOLD) : jv(J_ERR);
}
static jval m_capitalize(jctx *j, jval self, const jargs *a)
{
    return no_args(j, "capitalize", a) ? nbj_capitalize(j, self.u.s, 0, self.u.s->n) : jv(J_ERR);
}

/* Runs of cased characters are the words. */
static jval m_title(jctx *j, jval self, const jargs *a)
{
    const jstr *s = self.u.s;
    if (!no_args(j, "title", a) || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    jbuf *b = nbj_push(j);
    for (uint32_t i = 0; b && i < s->n && !j->failed;) {
        size_t len;
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len), from = i;
        if (!nbj_is_cased(c)) {
            nbj_add_part(j, b, s, i, i + (uint32_t)len);
            i += (uint32_t)len;
            continue;
        }
        while (i < s->n && nbj_is_cased(nb_utf8_decode(s->p + i, s->n - i, &len))) i += (uint32_t)len;
        jval word = nbj_capitalize(j, s, from, i);
        if (j_bad(word)) return word;
        nbj_add_str(j, b, word.u.s);
    }
    return as_markup_of(j, s, nbj_pop(j));
}

static jval m_swapcase(jctx *j, jval self, const jargs *a)
{
    const jstr *s = self.u.s;
    if (!no_args(j, "swapcase", a) || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    jval low = nbj_case(j, s, NBJ_LOWER); /* for the final sigma, which depends on its surroundings */
    jbuf *b = j_bad(low) ? NULL : nbj_push(j);
    for (uint32_t i = 0; b && i < s->n && !j->failed;) {
        size_t len;
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len), out[3];
        uint32_t n = nbj_map(c, nbj_is_upper(c) ? NBJ_LOWER : nbj_is_lower(c) ? NBJ_UPPER : NBJ_FOLD, out);
        if (!nbj_is_upper(c) && !nbj_is_lower(c)) n = 1, out[0] = c;
        if (c == 0x3A3 && low.u.s->n == s->n && (uint8_t)low.u.s->p[i + 1] == 0x82) out[0] = 0x3C2;
        for (uint32_t k = 0; k < n; k++) nbj_add_cp(j, b, out[k], nbj_trusted_at(s, i));
        i += (uint32_t)len;
    }
    return b ? as_markup_of(j, s, nbj_pop(j)) : jv(J_ERR);
}

/* ---- padding ---- */

/* Python puts the odd space on the left where the width is odd. */
jval nbj_center(jctx *j, const jstr *s, int64_t width, uint32_t fill, bool fill_trusted, int how)
{
    int64_t pad = width - nbj_chars(s);
    if (pad <= 0) return jv_str(s);
    int64_t left = how == 1 ? 0 : how == 2 ? pad : pad / 2 + (pad & width & 1);
    jbuf *b = nbj_push(j);
    if (!b) return jv(J_ERR);
    nbj_fill_cp(j, b, fill, (uint64_t)left, fill_trusted);
    nbj_add_str(j, b, s);
    nbj_fill_cp(j, b, fill, (uint64_t)(pad - left), fill_trusted);
    return as_markup_of(j, s, nbj_pop(j));
}

static jval pad(jctx *j, jval self, const jargs *a, const char *fn, int how)
{
    ARGS(fn, 1, 2, "-width", "-fillchar");
    int64_t width;
    if (!nbj_want_int(j, v[0], &width)) return jv(J_ERR);
    if (v[1].t == J_MISSING) return nbj_center(j, self.u.s, width, ' ', true, how);
    const jstr *f = nbj_want_str(j, v[1], "the fill character");
    if (!f) return jv(J_ERR);
    if (nbj_chars(f) != 1) return nbj_fail(j, "TypeError", "The fill character must be exactly one character long");
    size_t len;
    return nbj_center(j, self.u.s, width, nb_utf8_decode(f->p, f->n, &len), nbj_trusted(f), how);
}

static jval m_center(jctx *j, jval self, const jargs *a) { return pad(j, self, a, "center", 0); }
static jval m_ljust(jctx *j, jval self, const jargs *a) { return pad(j, self, a, "ljust", 1); }
static jval m_rjust(jctx *j, jval self, const jargs *a) { return pad(j, self, a, "rjust", 2); }

/* Zeros go behind a sign. */
static jval m_zfill(jctx *j, jval self, const jargs *a)
{
    ARGS("zfill", 1, 1, "-width");
    const jstr *s = self.u.s;
    int64_t width;
    if (!nbj_want_int(j, v[0], &width)) return jv(J_ERR);
    int64_t fill = width - nbj_chars(s);
    if (fill <= 0) return self;
    jbuf *b = nbj_push(j);
    if (!b) return jv(J_ERR);
    uint32_t sign = s->n && (s->p[0] == '-' || s->p[0] == '+');
    nbj_add_part(j, b, s, 0, sign);
    nbj_fill_cp(j, b, '0', (uint64_t)fill, true);
    nbj_add_part(j, b, s, sign, s->n);
    return as_markup_of(j, s, nbj_pop(j));
}

static jval m_expandtabs(jctx *j, jval self, const jargs *a)
{
    ARGS("expandtabs", 0, 1, "tabsize");
    const jstr *s = self.u.s;
    int64_t size = 8, column = 0;
    if (v[0].t != J_MISSING && !nbj_want_int(j, v[0], &size)) return jv(J_ERR);
    jbuf *b = nbj_push(j);
    for (uint32_t i = 0; b && i < s->n && !j->failed; i++) {
        if (s->p[i] == '\t') {
            int64_t n = size > 0 ? size - column % size : 0;
            nbj_fill_cp(j, b, ' ', (uint64_t)n, nbj_trusted_at(s, i));
            column += n;
            continue;
        }
        nbj_add_part(j, b, s, i, i + 1);
        if (s->p[i] == '\n' || s->p[i] == '\r')
            column = 0;
        else
            column += ((uint8_t)s->p[i] & 0xC0) != 0x80;
    }
    return as_markup_of(j, s, nbj_pop(j));
}

/* ---- replace, join, format ---- */

/* What replaces text takes part in deciding where tokens are, so the result has one origin. */
jval nbj_replace(jctx *j, const jstr *s, const jstr *old, const jstr *new_, int64_t count)
{
    if (count < 0) count = INT64_MAX;
    if (!(new_ = part_of(j, s, new_)) || !nbj_step(j, 1 + s->n / 64)) return jv(J_ERR);
    int64_t hit = nbj_find(js_view(s), js_view(old), 0);
    if (hit < 0 || count == 0) return jv_str(s);
    bool trusted = nbj_trusted(s) && nbj_trusted(old) && nbj_trusted(new_);
    jbuf *b = nbj_push(j);
    uint32_t from = 0;
    for (; b && hit >= 0 && count > 0 && !j->failed; count--) {
        nbj_add(j, b, s->p + from, (size_t)hit - from, trusted);
        nbj_add(j, b, new_->p, new_->n, trusted);
        from = (uint32_t)hit + old->n;
        if (!nbj_step(j, 1)) break;
        if (old->n) {
            hit = nbj_find(js_view(s), js_view(old), from);
            continue;
        }
        if (from >= s->n) { /* an empty `old` stands before each character and at the end */
            hit = -1;
            break;
        }
        uint32_t next = from + 1;
        while (next < s->n && ((uint8_t)s->p[next] & 0xC0) == 0x80) next++;
        hit = next;
    }
    if (from < s->n) nbj_add(j, b, s->p + from, s->n - from, trusted);
    return as_markup_of(j, s, nbj_pop(j));
}

static jval m_replace(jctx *j, jval self, const jargs *a)
{
    ARGS("replace", 2, 3, "-old", "-new", "-count");
    int64_t count = -1;
    const jstr *old = nbj_want_str(j, v[0], "replace() argument 1"),
               *new_ = old ? nbj_want_str(j, v[1], "replace() argument 2") : NULL;
    if (!new_ || (v[2].t != J_MISSING && !nbj_want_int(j, v[2], &count))) return jv(J_ERR);
    return nbj_replace(j, self.u.s, old, new_, count);
}

/* Origins of items and separators are kept. */
jval nbj_join(jctx *j, const jstr *sep, jval items, bool any)
{
    jiter *it = nbj_iter(j, items);
    jbuf *b = it ? nbj_push(j) : NULL;
    jval v;
    int more = -1;
    for (uint32_t i = 0; b && (more = nbj_next(j, it, &v)) > 0; i++) {
        if (i) nbj_add_str(j, b, sep);
        if (any || sep->markup) v = nbj_to_str(j, v);
        if (j_bad(v)) return v;
        if (v.t != J_STR)
            return nbj_fail(j, "TypeError", "sequence item %u: expected str instance, %s found", i, nbj_type_name(v));
        const jstr *s = any ? v.u.s : part_of(j, sep, v.u.s);
        if (!s) return jv(J_ERR);
        nbj_add_str(j, b, s);
    }
    if (more < 0) return jv(J_ERR);
    return nbj_as_markup(j, nbj_pop(j), !any && sep->markup);
}

static jval m_join(jctx *j, jval self, const jargs *a)
{
    ARGS("join", 1, 1, "-iterable");
    return nbj_join(j, self.u.s, v[0], false);
}

static jval m_format(jctx *j, jval self, const jargs *a) { return nbj_format(j, self.u.s, a); }

static jval m_format_map(jctx *j, jval self, const jargs *a)
{
    ARGS("format_map", 1, 1, "-mapping");
    if (v[0].t != J_DICT) return nbj_fail(j, "TypeError", "format_map() argument must be a mapping");
    const jdict *d = v[0].u.d;
    jargs named = {.kw = nbj_array(j, d->n, sizeof(jkw))};
    for (uint32_t i = 0; named.kw && i < d->n; i++) {
        if (d->e[i].key.t == J_STR) named.kw[named.nkw++] = (jkw){d->e[i].key.u.s, d->e[i].val};
    }
    return named.kw ? nbj_format(j, self.u.s, &named) : jv(J_ERR);
}

const jmethdef nbj_str_methods[] = {
    {"split", m_split},
    {"strip", m_strip},
    {"lstrip", m_lstrip},
    {"rstrip", m_rstrip},
    {"startswith", m_startswith},
    {"endswith", m_endswith},
    {"replace", m_replace},
    {"join", m_join},
    {"upper", m_upper},
    {"lower", m_lower},
    {"title", m_title},
    {"capitalize", m_capitalize},
    {"casefold", m_casefold},
    {"swapcase", m_swapcase},
    {"rsplit", m_rsplit},
    {"splitlines", m_splitlines},
    {"partition", m_partition},
    {"rpartition", m_rpartition},
    {"find", m_find},
    {"rfind", m_rfind},
    {"index", m_index},
    {"rindex", m_rindex},
    {"count", m_count},
    {"removeprefix", m_removeprefix},
    {"removesuffix", m_removesuffix},
    {"center", m_center},
    {"ljust", m_ljust},
    {"rjust", m_rjust},
    {"zfill", m_zfill},
    {"expandtabs", m_expandtabs},
    {"format", m_format},
    {"format_map", m_format_map},
    {"encode", NULL},
    {"translate", NULL},
    {"maketrans", NULL},
    {NULL, NULL},
};
