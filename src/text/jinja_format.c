/* text/jinja_format: "..." % args and "...".format(...). Literal parts keep the origin of the format, values theirs. */
#include "text/jinja.h"

#include <math.h>

/* ---- what both have: one formatted value ---- */

typedef struct jspec {
    uint32_t fill;
    char align, sign, type, group; /* 0 where not given */
    bool alt, zero, trusted;       /* trusted: the fill is the template's */
    int64_t width, prec;           /* prec -1: none */
} jspec;

enum { MAX_PREC = 500, MAX_WIDTH = 100000 };

/* A width is memory: it is bounded. */
static bool in_limits(jctx *j, const jspec *f)
{
    if (f->width <= MAX_WIDTH && f->prec <= MAX_PREC) return true;
    nbj_fail(j, "ValueError", "the width or precision of a format is too large");
    return false;
}

/* Pads `text`, whose first `sign` bytes are a sign or prefix that zeros come after. */
static void put_padded(jctx *j, jbuf *b, const jstr *text, uint32_t sign, const jspec *f, char align)
{
    if (f->align) align = f->align;
    int64_t pad = f->width - nbj_chars(text);
    if (pad < 0) pad = 0;
    int64_t left = align == '<' || align == '=' ? 0 : align == '^' ? pad / 2 : pad;
    if (align == '=') {
        nbj_add_part(j, b, text, 0, sign);
        nbj_fill_cp(j, b, f->fill, (uint64_t)pad, f->trusted);
        nbj_add_part(j, b, text, sign, text->n);
        return;
    }
    nbj_fill_cp(j, b, f->fill, (uint64_t)left, f->trusted);
    nbj_add_str(j, b, text);
    nbj_fill_cp(j, b, f->fill, (uint64_t)(pad - left), f->trusted);
}

/* Digits of a non-negative integer in base 2, 8 or 16, or of any size in base 10. */
static bool put_digits(jctx *j, jbuf *b, jval v, int base, bool upper, bool trusted)
{
    if (base == 10) {
        nbj_num_text(j, b, v, trusted);
        return !j->failed;
    }
    char t[2048];
    size_t n = sizeof t;
    while (nbj_num_cmp(v, jv_int(0)) > 0 && n > 0) {
        jval d = nbj_arith(j, OP_MOD, v, jv_int(base));
        v = nbj_arith(j, OP_FLOORDIV, v, jv_int(base));
        if (j_bad(d) || j_bad(v)) return false;
        t[--n] = (upper ? "0123456789ABCDEF" : "0123456789abcdef")[d.u.i];
    }
    if (n == sizeof t) t[--n] = '0';
    nbj_add(j, b, t + n, sizeof t - n, trusted);
    return !j->failed;
}

/* A separator every three (or, in bases of two, four) digits of the whole part. Zeros that pad come in between, so
 * that with `least` characters for number and sign there may be one more than these: no number begins with a separator.
 */
static jval grouped(jctx *j, const jstr *digits, const jspec *f, uint32_t every, int64_t least)
{
    int64_t whole = 0;
    while (whole < digits->n &&
           ((digits->p[whole] >= '0' && digits->p[whole] <= '9') || (every == 4 && digits->p[whole] >= 'A')))
        whole++;
    least -= digits->n - whole;
    int64_t total = whole; /* digits with the zeros */
    if (f->fill == '0' && f->align == '=')
        while (total + (total - 1) / every < least) total++;
    bool trusted = nbj_trusted(digits);
    jbuf *b = whole ? nbj_push(j) : NULL;
    if (!b) return j->failed ? jv(J_ERR) : jv_str(digits);
    for (int64_t i = 0; i < total; i++) {
        if (i && (total - i) % every == 0) nbj_add(j, b, &f->group, 1, trusted);
        if (i < total - whole)
            nbj_add(j, b, "0", 1, trusted);
        else
            nbj_add_part(j, b, digits, (uint32_t)(i - total + whole), (uint32_t)(i - total + whole) + 1);
    }
    nbj_add_part(j, b, digits, (uint32_t)whole, digits->n);
    return nbj_pop(j);
}

static void put_sign(jctx *j, jbuf *b, bool neg, char sign, bool trusted)
{
    if (neg)
        nbj_add(j, b, "-", 1, trusted);
    else if (sign == '+' || sign == ' ')
        nbj_add(j, b, &sign, 1, trusted);
}

/* min_digits: the precision of %d. percent: the alignment rules of the % operator. */
static bool put_int(jctx *j, jbuf *out, jval v, const jspec *f, int64_t min_digits, bool percent)
{
    bool neg = nbj_num_cmp(v, jv_int(0)) < 0, req = v.req;
    int base = f->type == 'x' || f->type == 'X' ? 16 : f->type == 'o' ? 8 : f->type == 'b' ? 2 : 10;
    jval mag = neg ? nbj_neg(j, v) : v;
    if (mag.t == J_BOOL) mag = jv_int(mag.u.b);
    if (j_bad(mag)) return false;
    jbuf *b = nbj_push(j);
    if (!b || !put_digits(j, b, mag, base, f->type == 'X', !req)) return false;
    jval digits = nbj_pop(j);
    bool prefixed = f->alt && base != 10, signs = neg || f->sign == '+' || f->sign == ' ';
    if (f->group && !j_bad(digits))
        digits = grouped(j, digits.u.s, f, base == 10 ? 3 : 4, f->width - signs - 2 * prefixed);
    if (j_bad(digits) || !(b = nbj_push(j))) return false;
    put_sign(j, b, neg, f->sign, !req);
    char prefix[2] = {'0', f->type};
    if (prefixed) nbj_add(j, b, prefix, 2, !req);
    uint32_t sign = b->n;
    if (min_digits > digits.u.s->n) nbj_fill_cp(j, b, '0', (uint64_t)(min_digits - digits.u.s->n), !req);
    nbj_add_str(j, b, digits.u.s);
    jval text = nbj_pop(j);
    if (j_bad(text)) return false;
    put_padded(j, out, text.u.s, sign, f, percent ? '>' : f->zero ? '=' : '>');
    return !j->failed;
}

/* Python's form of a float without a type: repr, or `prec` significant digits with a point. */
static size_t plain_float(char *t, size_t cap, double d, int64_t prec)
{
    if (prec < 0) return nb_f64_repr(d, t);
    size_t n = nbj_format_double(t, cap, d, 'g', prec ? (int)prec : 1, false);
    if (!isfinite(d) || memchr(t, '.', n) || memchr(t, 'e', n)) return n;
    t[n++] = '.';
    t[n++] = '0';
    return n;
}

/* Through libc's exact conversion, with Python's sign and padding. */
static bool put_float(jctx *j, jbuf *out, jval v, const jspec *f)
{
    char t[1400];
    double d = nbj_double(v);
    bool neg = signbit(d) && !isnan(d);
    char conv = f->type == '%' ? 'f' : f->type == 'F' ? 'f' : f->type == 'n' ? 'g' : f->type;
    if (f->type == '%') d *= 100;
    size_t n = f->type ? nbj_format_double(t, sizeof t, fabs(d), conv, f->prec < 0 ? 6 : (int)f->prec, f->alt)
                       : plain_float(t, sizeof t, fabs(d), f->prec);
    if (f->type == 'F' || f->type == 'E' || f->type == 'G') {
        for (size_t i = 0; i < n; i++) t[i] = t[i] >= 'a' && t[i] <= 'z' ? (char)(t[i] - 32) : t[i];
    }
    jval digits = nbj_str(j, t, n, !v.req);
    if (f->group && !j_bad(digits))
        digits = grouped(j, digits.u.s, f, 3, f->width - (neg || f->sign == '+' || f->sign == ' ') - (f->type == '%'));
    jbuf *b = j_bad(digits) ? NULL : nbj_push(j);
    if (!b) return false;
    put_sign(j, b, neg, f->sign, !v.req);
    uint32_t sign = b->n;
    nbj_add_str(j, b, digits.u.s);
    if (f->type == '%') nbj_add(j, b, "%", 1, !v.req);
    jval text = nbj_pop(j);
    if (j_bad(text)) return false;
    put_padded(j, out, text.u.s, sign, f, f->zero ? '=' : '>');
    return !j->failed;
}

/* Precision cuts, width pads. */
static bool put_str(jctx *j, jbuf *b, const jstr *s, const jspec *f, char align)
{
    if (f->prec >= 0 && f->prec < nbj_chars(s)) {
        jval cut = nbj_slice(j, s, 0, nbj_offset(s, (uint32_t)f->prec));
        if (j_bad(cut)) return false;
        s = cut.u.s;
    }
    put_padded(j, b, s, 0, f, align);
    return !j->failed;
}

/* !r and !a, %r and %a. */
static jval repr_of(jctx *j, jval v, bool ascii)
{
    jbuf *b = nbj_push(j);
    if (!b || !nbj_repr(j, b, v, nbj_origin(j, v))) return jv(J_ERR);
    jval r = nbj_pop(j);
    if (j_bad(r) || !ascii) return r;
    b = nbj_push(j);
    for (size_t i = 0, len; b && i < r.u.s->n; i += len) {
        uint32_t c = nb_utf8_decode(r.u.s->p + i, r.u.s->n - i, &len);
        nb_buf t = {0};
        if (c >= 0x80)
            nb_buf_printf(&t, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        else
            nb_buf_add_char(&t, (char)c);
        nbj_add(j, b, t.p, t.n, nbj_trusted(r.u.s));
        nb_buf_free(&t);
    }
    return nbj_pop(j);
}

/* Does every byte of s[from..to) come from the template? */
static bool part_trusted(const jstr *s, uint32_t from, uint32_t to)
{
    while (from < to && nbj_trusted_at(s, from)) from++;
    return from >= to;
}

/* What a format of the request asks for is the request's, whatever it is: it could be put together from the
 * template's letters. */
static void put_part(jctx *j, jbuf *b, const jstr *s, bool trusted)
{
    if (trusted)
        nbj_add_str(j, b, s);
    else
        nbj_add(j, b, s->p, s->n, false);
}

/* ---- fmt % args ---- */

typedef struct jpercent {
    const jstr *fmt;
    jval args;
    uint32_t i, next; /* place in fmt, next positional argument */
    bool named;
} jpercent;

/* The next positional argument. */
static jval next_arg(jctx *j, jpercent *p)
{
    uint32_t n = p->args.t == J_TUPLE ? p->args.u.l->n : 1;
    if (p->next >= n) return nbj_fail(j, "TypeError", "not enough arguments for format string");
    uint32_t k = p->next++;
    return p->args.t == J_TUPLE ? p->args.u.l->v[k] : p->args;
}

/* %(name): the value under it; J_MISSING where there is no name. */
static jval named_arg(jctx *j, jpercent *p)
{
    const jstr *f = p->fmt;
    if (p->i >= f->n || f->p[p->i] != '(') return jv(J_MISSING);
    if (p->args.t != J_DICT) return nbj_fail(j, "TypeError", "format requires a mapping");
    uint32_t from = ++p->i;
    for (int open = 1; p->i < f->n; p->i++) {
        open += f->p[p->i] == '(' ? 1 : f->p[p->i] == ')' ? -1 : 0;
        if (!open) break;
    }
    if (p->i >= f->n) return nbj_fail(j, "ValueError", "incomplete format key");
    nb_str key = {f->p + from, p->i++ - from};
    jval v;
    p->named = true;
    if (!nbj_dict_find(p->args.u.d, key, &v)) return nbj_fail(j, "KeyError", "'%.*s'", (int)key.n, key.p);
    return v;
}

/* A number of the format, or * for an argument. */
static bool percent_number(jctx *j, jpercent *p, int64_t *out)
{
    const jstr *f = p->fmt;
    if (p->i < f->n && f->p[p->i] == '*') {
        p->i++;
        jval v = next_arg(j, p);
        if (!j_bad(v) && !nbj_int_of(v, out)) nbj_fail(j, "TypeError", "* wants int");
        return !j->failed;
    }
    for (*out = 0; p->i < f->n && f->p[p->i] >= '0' && f->p[p->i] <= '9' && *out < 1000000; p->i++)
        *out = *out * 10 + (f->p[p->i] - '0');
    return true;
}

/* Flags, width, precision, an ignored length, and the type. */
static bool percent_spec(jctx *j, jpercent *p, jspec *s)
{
    const jstr *f = p->fmt;
    for (; p->i < f->n; p->i++) {
        char c = f->p[p->i];
        if (c == '-')
            s->align = '<';
        else if (c == '+')
            s->sign = '+';
        else if (c == ' ')
            s->sign = s->sign ? s->sign : ' ';
        else if (c == '#')
            s->alt = true;
        else if (c == '0')
            s->zero = true;
        else
            break;
    }
    if (!percent_number(j, p, &s->width)) return false;
    if (s->width < 0) {
        s->align = '<';
        s->width = -s->width;
    }
    if (p->i < f->n && f->p[p->i] == '.') {
        p->i++;
        if (!percent_number(j, p, &s->prec)) return false;
        if (s->prec < 0) s->prec = 0;
    }
    while (p->i < f->n && (f->p[p->i] == 'h' || f->p[p->i] == 'l' || f->p[p->i] == 'L')) p->i++;
    if (p->i >= f->n) return nbj_fail(j, "ValueError", "incomplete format"), false;
    s->type = f->p[p->i++];
    return in_limits(j, s);
}

static bool percent_char(jctx *j, jbuf *b, jval v, const jspec *s)
{
    int64_t c;
    char t[4];
    if (v.t == J_STR && nbj_chars(v.u.s) == 1) return put_str(j, b, v.u.s, s, '>');
    if (!nbj_int_of(v, &c)) return nbj_fail(j, "TypeError", "%%c requires int or char"), false;
    if (c < 0 || c > 0x10FFFF) return nbj_fail(j, "OverflowError", "%%c arg not in range(0x110000)"), false;
    jval text = nbj_str(j, t, nb_utf8_encode(c >= 0xD800 && c < 0xE000 ? 0xFFFD : (uint32_t)c, t), !v.req);
    return !j_bad(text) && put_str(j, b, text.u.s, s, '>');
}

/* One value by its type. */
static bool percent_value(jctx *j, jbuf *b, jval v, jspec *s, bool markup)
{
    bool left = s->align == '<';
    if (v.t == J_UNDEF && s->type && strchr("diueEfFgG", s->type)) return nbj_use_undef(j, v), false;
    switch (s->type) {
    case 's':
    case 'r':
    case 'a':
        v = s->type == 's' ? nbj_to_str(j, v) : repr_of(j, v, s->type == 'a');
        if (!j_bad(v) && markup && !v.u.s->markup) v = nbj_escape(j, v.u.s);
        return !j_bad(v) && put_str(j, b, v.u.s, s, '>');
    case 'c': return percent_char(j, b, v, s);
    case 'd':
    case 'i':
    case 'u':
        if (v.t == J_FLOAT) v = nbj_int_from_double(j, v.u.f);
        if (j_bad(v)) return false;
        if (!j_is_int(v))
            return nbj_fail(j, "TypeError", "%%d format: a real number is required, not %s", nbj_type_name(v)), false;
        s->type = 'd';
        break;
    case 'o':
    case 'x':
    case 'X':
        if (!j_is_int(v))
            return nbj_fail(j, "TypeError", "%%x format: an integer is required, not %s", nbj_type_name(v)), false;
        break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!j_is_num(v)) return nbj_fail(j, "TypeError", "must be real number, not %s", nbj_type_name(v)), false;
        if (s->zero && !left) s->fill = '0';
        if (left) s->zero = false;
        return put_float(j, b, v, s);
    default: return nbj_fail(j, "ValueError", "unsupported format character '%c'", s->type), false;
    }
    int64_t digits = s->prec < 0 ? 0 : s->prec;
    if (s->zero && !left) {
        s->fill = '0';
        s->align = '=';
    }
    return put_int(j, b, v, s, digits, true);
}

/* Left-over arguments are an error unless the right side is a mapping, which a list is to Python. */
jval nbj_percent(jctx *j, const jstr *fmt, jval args)
{
    jpercent p = {.fmt = fmt, .args = args};
    jbuf *b = nbj_push(j);
    while (b && p.i < fmt->n && !j->failed) {
        const char *hit = memchr(fmt->p + p.i, '%', fmt->n - p.i);
        uint32_t to = hit ? (uint32_t)(hit - fmt->p) : fmt->n;
        nbj_add_part(j, b, fmt, p.i, to);
        p.i = to + 1;
        if (!hit) break;
        jspec s = {.fill = ' ', .prec = -1, .trusted = true};
        jval v = named_arg(j, &p);
        if (j_bad(v) || !percent_spec(j, &p, &s)) return jv(J_ERR);
        if (s.type == '%') {
            nbj_add_part(j, b, fmt, p.i - 1, p.i);
            continue;
        }
        if (v.t == J_MISSING) v = next_arg(j, &p);
        if (j_bad(v)) return v;
        if (part_trusted(fmt, to, p.i)) {
            if (!percent_value(j, b, v, &s, fmt->markup)) return jv(J_ERR);
            continue;
        }
        jbuf *part = nbj_push(j);
        if (!part || !percent_value(j, part, v, &s, fmt->markup)) return jv(J_ERR);
        v = nbj_pop(j);
        if (j_bad(v)) return v;
        put_part(j, b, v.u.s, false);
    }
    bool mapping = args.t == J_DICT || args.t == J_LIST || args.t == J_RANGE || args.t == J_UNDEF;
    uint32_t n = args.t == J_TUPLE ? args.u.l->n : 1;
    if (!j->failed && !mapping && !p.named && p.next < n)
        return nbj_fail(j, "TypeError", "not all arguments converted during string formatting");
    return nbj_as_markup(j, nbj_pop(j), fmt->markup);
}

/* ---- fmt.format(...) ---- */

static bool is_align(uint32_t c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

/* [[fill]align][sign][#][0][width][grouping][.precision][type] */
static bool parse_spec(jctx *j, nb_str t, bool number, jspec *s)
{
    size_t i = 0, len = 0;
    uint32_t first = t.n ? nb_utf8_decode(t.p, t.n, &len) : 0;
    bool filled = false;
    *s = (jspec){.fill = ' ', .prec = -1};
    if (t.n > len && len && is_align((uint8_t)t.p[len])) {
        s->fill = first;
        s->align = t.p[len];
        i = len + 1;
        filled = true;
    } else if (t.n && is_align(first)) {
        s->align = t.p[i++];
    }
    if (i < t.n && (t.p[i] == '+' || t.p[i] == '-' || t.p[i] == ' ')) s->sign = t.p[i++];
    if (i < t.n && t.p[i] == '#') s->alt = t.p[i++];
    if (i < t.n && t.p[i] == '0' && !filled) {
        s->fill = '0';
        if (!s->align && number) s->align = '=';
        i++;
    }
    for (; i < t.n && t.p[i] >= '0' && t.p[i] <= '9' && s->width < 1000000; i++)
        s->width = s->width * 10 + (t.p[i] - '0');
    if (i < t.n && (t.p[i] == ',' || t.p[i] == '_')) s->group = t.p[i++];
    if (i < t.n && t.p[i] == '.') {
        size_t from = ++i;
        for (s->prec = 0; i < t.n && t.p[i] >= '0' && t.p[i] <= '9' && s->prec < 1000000; i++)
            s->prec = s->prec * 10 + (t.p[i] - '0');
        if (i == from) return nbj_fail(j, "ValueError", "Format specifier missing precision"), false;
    }
    if (i < t.n) s->type = t.p[i++];
    if (i < t.n) return nbj_fail(j, "ValueError", "Invalid format specifier"), false;
    return in_limits(j, s);
}

static bool bad_code(jctx *j, const jspec *s, jval v)
{
    nbj_fail(j, "ValueError", "Unknown format code '%c' for object of type '%s'", s->type, nbj_type_name(v));
    return false;
}

/* format(v, spec) */
static bool format_value(jctx *j, jbuf *b, jval v, const jstr *text)
{
    jspec s;
    if (!text->n) return nbj_print(j, b, v);
    if (v.t != J_STR && !j_is_num(v))
        return nbj_fail(j, "TypeError", "unsupported format string passed to %s.__format__", nbj_type_name(v)), false;
    if (!parse_spec(j, js_view(text), v.t != J_STR, &s)) return false;
    s.trusted = nbj_trusted(text);
    bool float_type = s.type && strchr("eEfFgG%", s.type);
    if (v.t == J_STR) {
        if (s.type && s.type != 's') return bad_code(j, &s, v);
        if (s.sign || s.alt || s.group || s.align == '=')
            return nbj_fail(j, "ValueError", "Sign, '=', '#' or grouping not allowed in string format specifier"),
                   false;
        return put_str(j, b, v.u.s, &s, '<');
    }
    if (v.t == J_FLOAT || float_type) {
        if (!float_type && s.type && s.type != 'n') return bad_code(j, &s, v);
        return put_float(j, b, v, &s);
    }
    if (s.prec >= 0) return nbj_fail(j, "ValueError", "Precision not allowed in integer format specifier"), false;
    if (s.type == 'c') return percent_char(j, b, v, &s);
    if (s.type && !strchr("bdoxXn", s.type)) return bad_code(j, &s, v);
    if (s.group == ',' && s.type && s.type != 'd')
        return nbj_fail(j, "ValueError", "Cannot specify ',' with '%c'.", s.type), false;
    return put_int(j, b, v, &s, 0, false);
}

typedef struct jformat {
    const jargs *a;
    int64_t next; /* automatic numbering; -1: numbers are given */
} jformat;

/* An argument by number, in turn, or by name. bare: no name, but something behind it, which the sandbox's formatter
 * does not count as in turn. */
static jval field_root(jctx *j, jformat *f, nb_str name, bool bare)
{
    bool digits = true;
    int64_t n = 0;
    for (size_t i = 0; i < name.n; i++) {
        digits &= name.p[i] >= '0' && name.p[i] <= '9';
        if (digits && n < 1000000) n = n * 10 + (name.p[i] - '0');
    }
    if (!digits || bare) {
        for (uint32_t i = 0; i < f->a->nkw; i++) {
            if (nb_str_eq(js_view(f->a->kw[i].name), name)) return f->a->kw[i].v;
        }
        return nbj_fail(j, "KeyError", "'%.*s'", (int)(name.n > 80 ? 80 : name.n), name.p);
    }
    if (!name.n) {
        if (f->next < 0)
            return nbj_fail(j, "ValueError",
                            "cannot switch from manual field specification to automatic field numbering");
        n = f->next++;
    } else {
        if (f->next > 0)
            return nbj_fail(j, "ValueError",
                            "cannot switch from automatic field numbering to manual field specification");
        f->next = -1;
    }
    if (n >= f->a->n)
        return nbj_fail(j, "IndexError", "Replacement index %lld out of range for positional args tuple", (long long)n);
    return f->a->v[n];
}

/* name.attr[key]... */
static jval field(jctx *j, jformat *f, nb_str t)
{
    size_t i = 0;
    while (i < t.n && t.p[i] != '.' && t.p[i] != '[') i++;
    jval v = field_root(j, f, (nb_str){t.p, i}, !i && t.n);
    while (i < t.n && !j_bad(v)) {
        bool attr = t.p[i] == '.';
        size_t from = ++i;
        while (i < t.n && (attr ? t.p[i] != '.' && t.p[i] != '[' : t.p[i] != ']')) i++;
        nb_str key = {t.p + from, i - from};
        if (!key.n || (!attr && i >= t.n))
            return nbj_fail(j, "ValueError", "Empty attribute or missing ']' in format string");
        i += !attr;
        if (!attr && i < t.n && t.p[i] != '.' && t.p[i] != '[')
            return nbj_fail(j, "ValueError", "Only '.' or '[' may follow ']' in format field specifier");
        jval name = nbj_str_ref(j, key.p, key.n, true);
        if (j_bad(name)) return name;
        bool digits = true;
        for (size_t k = 0; k < key.n; k++) digits &= key.p[k] >= '0' && key.p[k] <= '9';
        v = attr ? nbj_getattr(j, v, name.u.s) : nbj_getitem(j, v, digits ? nbj_parse_int(j, key, 10) : name);
    }
    return v;
}

static bool format_into(jctx *j, jbuf *b, const jstr *s, uint32_t from, uint32_t to, jformat *f, int depth);

/* {field!conv:spec} between from and to, without the braces. */
static bool format_field(jctx *j, jbuf *b, const jstr *s, uint32_t from, uint32_t to, jformat *f, int depth)
{
    uint32_t i = from, brackets = 0;
    for (; i < to; i++) {
        if (s->p[i] == '[')
            brackets = 1;
        else if (s->p[i] == ']')
            brackets = 0;
        else if (!brackets && (s->p[i] == '!' || s->p[i] == ':'))
            break;
    }
    jval v = field(j, f, (nb_str){s->p + from, i - from});
    if (j_bad(v)) return false;
    if (i < to && s->p[i] == '!') {
        char c = i + 1 < to ? s->p[i + 1] : 0;
        if ((c != 'r' && c != 's' && c != 'a') || (i + 2 < to && s->p[i + 2] != ':'))
            return nbj_fail(j, "ValueError", "Unknown conversion specifier"), false;
        v = c == 's' ? nbj_to_str(j, v) : repr_of(j, v, c == 'a');
        i += 2;
    }
    if (j_bad(v)) return false;
    jbuf *t = nbj_push(j);
    if (!t || (i + 1 < to && !format_into(j, t, s, i + 1, to, f, depth + 1))) return false;
    jval spec = nbj_pop(j);
    if (j_bad(spec)) return false;
    bool trusted = part_trusted(s, from - 1, to + 1);
    if (!s->markup && trusted) return format_value(j, b, v, spec.u.s);
    if (!(t = nbj_push(j)) || !format_value(j, t, v, spec.u.s)) return false;
    bool escape = s->markup && !(v.t == J_STR && v.u.s->markup);
    v = nbj_pop(j);
    if (escape && !j_bad(v)) v = nbj_escape(j, v.u.s);
    if (j_bad(v)) return false;
    put_part(j, b, v.u.s, trusted);
    return !j->failed;
}

/* Text and fields; a format may hold fields of its own, once. */
static bool format_into(jctx *j, jbuf *b, const jstr *s, uint32_t from, uint32_t to, jformat *f, int depth)
{
    if (depth > 2) return nbj_fail(j, "ValueError", "Max string recursion exceeded"), false;
    for (uint32_t i = from; i < to && !j->failed;) {
        char c = s->p[i];
        if (c != '{' && c != '}') {
            uint32_t k = i;
            while (k < to && s->p[k] != '{' && s->p[k] != '}') k++;
            nbj_add_part(j, b, s, i, k);
            i = k;
            continue;
        }
        if (i + 1 < to && s->p[i + 1] == c) {
            nbj_add_part(j, b, s, i, i + 1);
            i += 2;
            continue;
        }
        if (c == '}') return nbj_fail(j, "ValueError", "Single '}' encountered in format string"), false;
        uint32_t k = i + 1, open = 1;
        for (; k < to; k++) {
            open += s->p[k] == '{' ? 1u : 0u;
            if (s->p[k] == '}' && --open == 0) break;
        }
        if (k >= to) return nbj_fail(j, "ValueError", "expected '}' before end of string"), false;
        if (!format_field(j, b, s, i + 1, k, f, depth)) return false;
        i = k + 1;
    }
    return !j->failed;
}

jval nbj_format(jctx *j, const jstr *fmt, const jargs *a)
{
    jformat f = {.a = a};
    jbuf *b = nbj_push(j);
    if (!b || !format_into(j, b, fmt, 0, fmt->n, &f, 1)) return jv(J_ERR);
    return nbj_as_markup(j, nbj_pop(j), fmt->markup);
}
