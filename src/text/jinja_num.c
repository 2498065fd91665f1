/* text/jinja_num: numbers as Python has them. */
#include "text/jinja.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* bool counts as int, as in Python. */
bool nbj_int_of(jval v, int64_t *out)
{
    if (v.t == J_INT)
        *out = v.u.i;
    else if (v.t == J_BOOL)
        *out = v.u.b;
    else
        return false;
    return true;
}

double nbj_double(jval v)
{
    switch (v.t) {
    case J_FLOAT: return v.u.f;
    case J_BIG: return nbj_big_double(v.u.big);
    case J_BOOL: return v.u.b;
    default: return (double)v.u.i;
    }
}

/* ---- reading ---- */

/* Correctly rounded and without a locale: JSON's own reader. */
static bool text_double(nb_str s, double *out)
{
    nb_json n = {.type = NB_JSON_NUMBER, .text = s};
    return nb_json_f64(&n, out);
}

/* Value of a digit in any base up to 36, 99 for others. */
static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
}

/* Digits of a base that is no power of ten, through big arithmetic; in the template's arena there is no context, so 128
 * bits are the limit there. */
static jval based(nb_arena *a, nb_str s, int base)
{
    uint32_t n = (uint32_t)(s.n * 4 / 9 + 2);
    if (s.n > 4000) return jv(J_ERR);
    jbig *b = nb_arena_alloc(a, sizeof *b + n * sizeof(uint32_t));
    if (!b) return jv(J_ERR);
    for (size_t i = 0; i < s.n; i++) {
        uint64_t carry = (uint64_t)digit_of(s.p[i]);
        for (uint32_t k = 0; k < n && (k < b->n || carry); k++) {
            carry += (uint64_t)b->d[k] * (uint64_t)base;
            b->d[k] = (uint32_t)(carry % 1000000000);
            carry /= 1000000000;
            if (k >= b->n) b->n = k + 1;
        }
    }
    if (b->n < 3) {
        uint64_t v = 0;
        for (uint32_t i = b->n; i > 0; i--) v = v * 1000000000 + b->d[i - 1];
        return jv_int((int64_t)v);
    }
    /* Written out and read again, so that one place decides what fits in 64 bits. */
    nb_buf t = {0};
    for (uint32_t i = b->n; i > 0; i--) nb_buf_printf(&t, "%09u", b->d[i - 1]);
    jval v = t.oom ? jv(J_ERR) : nbj_big_parse(a, (nb_str){t.p, t.n}, false);
    nb_buf_free(&t);
    return v;
}

/* Digits of any base; the result is large only where it must be. */
static jval integer(nb_arena *a, nb_str digits, int base, bool neg)
{
    if (base == 10 && digits.n <= 18) {
        int64_t v = 0;
        for (size_t i = 0; i < digits.n; i++) v = v * 10 + (digits.p[i] - '0');
        return jv_int(neg ? -v : v);
    }
    if (base == 10) return nbj_big_parse(a, digits, neg);
    jval v = based(a, digits, base);
    if (!neg || j_bad(v)) return v;
    if (v.t == J_INT) return jv_int(-v.u.i);
    ((jbig *)v.u.big)->neg = true;
    return v;
}

jval nbj_literal(nb_arena *a, nb_str text, bool is_float)
{
    if (is_float) {
        double d;
        return text_double(text, &d) ? jv_float(d) : jv_float(INFINITY);
    }
    char kind = text.n > 2 && text.p[0] == '0' ? (char)(text.p[1] | 0x20) : 0;
    int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) text = (nb_str){text.p + 2, text.n - 2};
    return integer(a, text, base, false);
}

/* s without white space around it and without single underscores between digits, decimal digits of all scripts as
 * ASCII; false where it can be no number. */
static bool clean_number(nb_str s, char *out, size_t cap, size_t *n)
{
    size_t i = 0, end = s.n, len;
    *n = 0;
    while (i < end && nbj_is_space(nb_utf8_decode(s.p + i, end - i, &len))) i += len;
    while (end > i) {
        size_t k = end - 1;
        while (k > i && ((uint8_t)s.p[k] & 0xC0) == 0x80) k--;
        if (!nbj_is_space(nb_utf8_decode(s.p + k, end - k, &len))) break;
        end = k;
    }
    char last = 0;
    for (; i < end; i += len) {
        uint32_t c = nb_utf8_decode(s.p + i, end - i, &len);
        if (c >= 0x80) {
            int d = nbj_decimal_value(c);
            if (d < 0) return false;
            c = (uint32_t)('0' + d);
        }
        if (c == '_') {
            if (digit_of(last) > 35 || i + 1 >= end || digit_of(s.p[i + 1]) > 35) return false;
            last = '_';
            continue;
        }
        if (*n + 1 >= cap) return false;
        last = (char)c;
        out[(*n)++] = last;
    }
    out[*n] = 0;
    return *n > 0;
}

/* float(str): white space around, underscores, inf and nan, digits of any script. */
bool nbj_parse_float(nb_str s, double *out)
{
    char t[1200];
    size_t n, i = 0;
    if (!clean_number(s, t, sizeof t, &n)) return false;
    bool neg = t[0] == '-';
    if (t[0] == '-' || t[0] == '+') i++;
    nb_str body = {t + i, n - i};
    for (size_t k = i; k < n; k++) t[k] |= t[k] >= 'A' && t[k] <= 'Z' ? 0x20 : 0;
    if (nb_str_is(body, "inf") || nb_str_is(body, "infinity") || nb_str_is(body, "nan")) {
        *out = t[i] == 'n' ? (double)NAN : neg ? -(double)INFINITY : (double)INFINITY;
        return true;
    }
    /* JSON wants a digit on both sides of the point and no leading zeros. */
    char j[1300];
    size_t m = 0, digits = 0;
    if (neg) j[m++] = '-';
    while (i + 1 < n && t[i] == '0' && t[i + 1] >= '0' && t[i + 1] <= '9') i++;
    if (t[i] == '.') j[m++] = '0';
    for (; i < n; i++) {
        if (t[i] >= '0' && t[i] <= '9')
            digits++;
        else if (t[i] != '.' && t[i] != 'e' && t[i] != '-' && t[i] != '+')
            return false;
        j[m++] = t[i];
        if (t[i] == '.' && (i + 1 == n || t[i + 1] < '0' || t[i + 1] > '9')) j[m++] = '0';
        if (t[i] == 'e' && !digits) return false;
    }
    j[m] = 0;
    char *end;
    size_t k = neg;
    bool point = false, exp = false; /* the shape: digits [. digits] [e sign digits] */
    for (; k < m; k++) {
        if (j[k] == '.' && (point || exp)) return false;
        if (j[k] == 'e' && exp) return false;
        if ((j[k] == '-' || j[k] == '+') && j[k - 1] != 'e') return false;
        point |= j[k] == '.';
        exp |= j[k] == 'e';
    }
    if (!digits || !(j[m - 1] >= '0' && j[m - 1] <= '9')) return false;
    (void)end;
    return text_double((nb_str){j, m}, out) || (*out = neg ? -(double)INFINITY : (double)INFINITY, true);
}

/* int(str, base): with base 0, 2, 8 or 16 a prefix is allowed. */
jval nbj_parse_int(jctx *j, nb_str s, int base)
{
    char t[5000]; /* longer than any number that Python reads */
    size_t n, i = 0;
    if (!nbj_step(j, 1 + s.n / 64)) return jv(J_ERR);
    if (!clean_number(s, t, sizeof t, &n)) return jv(J_MISSING);
    bool neg = t[0] == '-';
    if (t[0] == '-' || t[0] == '+') i++;
    if (n - i > 2 && t[i] == '0' && (base == 0 || base == 16 || base == 8 || base == 2)) {
        char kind = (char)(t[i + 1] | 0x20);
        int b = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
        if (b && (base == 0 || base == b)) {
            base = b;
            i += 2;
        }
    }
    bool zeros = true;
    for (size_t k = i; k < n; k++) zeros &= t[k] == '0';
    if (base == 0) {
        if (t[i] == '0' && !zeros) return jv(J_MISSING);
        base = 10;
    }
    if (i == n) return jv(J_MISSING);
    for (size_t k = i; k < n; k++) {
        if (digit_of(t[k]) >= base) return jv(J_MISSING);
    }
    jval v = integer(j->a, (nb_str){t + i, n - i}, base, neg);
    return j_bad(v) ? jv(J_MISSING) : v;
}

/* int(float). */
jval nbj_int_from_double(jctx *j, double d)
{
    if (isnan(d)) return nbj_fail(j, "ValueError", "cannot convert float NaN to integer");
    if (isinf(d)) return nbj_fail(j, "OverflowError", "cannot convert float infinity to integer");
    if (fabs(d) < 9.0e18) return jv_int((int64_t)d);
    return nbj_big_from_double(j, trunc(d));
}

/* ---- writing ---- */

/* %e, %f, %g through libc, whatever its locale's decimal point is. */
size_t nbj_format_double(char *out, size_t cap, double v, char conv, int prec, bool alt)
{
    char fmt[] = "%#.*f";
    fmt[4] = conv;
    if (!alt) memmove(fmt + 1, fmt + 2, 4);
    int n = snprintf(out, cap, fmt, prec, v);
    if (n < 0 || (size_t)n >= cap) return 0;
    size_t m = 0;
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)out[i];
        bool keep = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+';
        if (keep)
            out[m++] = (char)c;
        else if (m && out[m - 1] != '.')
            out[m++] = '.';
    }
    out[m] = 0;
    return m;
}

/* str() of a number. */
void nbj_num_text(jctx *j, jbuf *b, jval v, bool trusted)
{
    char t[40];
    size_t n = 0;
    if (v.t == J_BOOL) {
        nbj_add(j, b, v.u.b ? "True" : "False", v.u.b ? 4 : 5, trusted);
        return;
    }
    if (v.t == J_BIG) {
        nbj_big_text(j, b, v.u.big, trusted);
        return;
    }
    if (v.t == J_FLOAT) {
        n = nb_f64_repr(v.u.f, t);
    } else {
        uint64_t u = v.u.i < 0 ? 0 - (uint64_t)v.u.i : (uint64_t)v.u.i;
        char *p = t + sizeof t;
        do *--p = (char)('0' + u % 10);
        while (u /= 10);
        if (v.u.i < 0) *--p = '-';
        n = (size_t)(t + sizeof t - p);
        memmove(t, p, n);
    }
    nbj_add(j, b, t, n, trusted);
}

/* ---- comparing ---- */

/* Numbers of all types compare exactly: an int is not rounded to a float first. */
int nbj_num_cmp(jval a, jval b)
{
    int64_t x, y;
    if (nbj_int_of(a, &x) && nbj_int_of(b, &y)) return (x > y) - (x < y);
    if (a.t != J_FLOAT && b.t != J_FLOAT) return nbj_big_cmp(a, b);
    if (a.t == J_FLOAT && b.t == J_FLOAT) {
        if (isnan(a.u.f) || isnan(b.u.f)) return 2;
        return (a.u.f > b.u.f) - (a.u.f < b.u.f);
    }
    bool flip = a.t == J_FLOAT;
    double d = flip ? a.u.f : b.u.f;
    jval i = flip ? b : a;
    if (isnan(d)) return 2;
    int c; /* i against d, exactly */
    if (nbj_int_of(i, &x) && fabs(d) < 9.2e18) {
        int64_t t = (int64_t)d;
        double frac = d - (double)t;
        c = x != t ? (x > t) - (x < t) : (frac < 0) - (frac > 0);
    } else if (i.t != J_BIG || isinf(d)) {
        c = d > 0 ? -1 : 1;
    } else {
        c = nbj_big_cmp_double(i.u.big, d);
    }
    return flip ? -c : c;
}

/* ---- arithmetic ---- */

static jval zero_division(jctx *j, const char *what) { return nbj_fail(j, "ZeroDivisionError", "%s", what); }

/* Division, floor and modulo as Python defines them for floats. */
static jval float_arith(jctx *j, jop op, double x, double y)
{
    double m;
    switch (op) {
    case OP_ADD: return jv_float(x + y);
    case OP_SUB: return jv_float(x - y);
    case OP_MUL: return jv_float(x * y);
    case OP_DIV: return y == 0 ? zero_division(j, "float division by zero") : jv_float(x / y);
    case OP_MOD:
    case OP_FLOORDIV:
        if (y == 0) return zero_division(j, op == OP_MOD ? "float modulo" : "float floor division by zero");
        m = fmod(x, y);
        if (op == OP_MOD) {
            if (m != 0 && (m < 0) != (y < 0)) m += y;
            return jv_float(m != 0 ? m : copysign(0.0, y));
        }
        m = (x - m) / y - ((m != 0 && (m < 0) != (y < 0)) ? 1.0 : 0.0);
        if (m == 0) return jv_float(copysign(0.0, x / y));
        return jv_float(m - floor(m) > 0.5 ? floor(m) + 1.0 : floor(m));
    default:
        if (x == 0 && y < 0) return zero_division(j, "0.0 cannot be raised to a negative power");
        if (x < 0 && isfinite(x) && isfinite(y) && y != floor(y))
            return nbj_fail(j, "TypeError", "the result is a complex number");
        m = pow(x, y);
        if (isinf(m) && isfinite(x) && isfinite(y))
            return nbj_fail(j, "OverflowError", "Numerical result out of range");
        return jv_float(m);
    }
}

/* A negative exponent gives a float. */
static jval int_power(jctx *j, jval a, jval b, int64_t y)
{
    if (y < 0) {
        if (nbj_double(a) == 0) return zero_division(j, "0.0 cannot be raised to a negative power");
        return float_arith(j, OP_POW, nbj_double(a), (double)y);
    }
    return nbj_big_arith(j, OP_POW, a, b);
}

/* a / b of integers of any size, rounded once: a quotient of more than 64 bits whose last bit says whether something is
 * left over. */
static jval true_division(jctx *j, jval a, jval b)
{
    double p = nbj_double(a), q = nbj_double(b);
    if (q == 0) return zero_division(j, "division by zero");
    if (p == 0) return jv_float(0.0);
    if (isinf(p) || isinf(q)) return nbj_fail(j, "OverflowError", "integer division result too large for a float");
    bool neg = (p < 0) != (q < 0);
    if (p < 0) a = nbj_neg(j, a);
    if (q < 0) b = nbj_neg(j, b);
    int k = 66 - (ilogb(p) - ilogb(q));
    jval scale = nbj_arith(j, OP_POW, jv_int(2), jv_int(k < 0 ? -k : k));
    if (k > 0) a = nbj_arith(j, OP_MUL, a, scale);
    if (k < 0) b = nbj_arith(j, OP_MUL, b, scale);
    if (j_bad(a) || j_bad(b)) return jv(J_ERR);
    jval whole = nbj_arith(j, OP_FLOORDIV, a, b), rest = nbj_arith(j, OP_MOD, a, b);
    if (j_bad(whole) || j_bad(rest)) return jv(J_ERR);
    jval odd = nbj_arith(j, OP_MOD, whole, jv_int(2));
    if (nbj_num_cmp(rest, jv_int(0)) != 0 && odd.u.i == 0) whole = nbj_arith(j, OP_ADD, whole, jv_int(1));
    double d = ldexp(nbj_double(whole), -k);
    return jv_float(neg ? -d : d);
}

/* Both are int64; what overflows goes through big integers. */
static jval int_arith(jctx *j, jop op, jval a, jval b, int64_t x, int64_t y)
{
    int64_t r;
    switch (op) {
    case OP_ADD:
        if (!__builtin_add_overflow(x, y, &r)) return jv_int(r);
        break;
    case OP_SUB:
        if (!__builtin_sub_overflow(x, y, &r)) return jv_int(r);
        break;
    case OP_MUL:
        if (!__builtin_mul_overflow(x, y, &r)) return jv_int(r);
        break;
    case OP_DIV:
        if (y == 0) return zero_division(j, "division by zero");
        if (llabs(x) < (1LL << 53) && llabs(y) < (1LL << 53) && x != INT64_MIN && y != INT64_MIN)
            return jv_float((double)x / (double)y);
        return true_division(j, a, b);
    case OP_FLOORDIV:
    case OP_MOD:
        if (y == 0) return zero_division(j, "integer division or modulo by zero");
        if (y == -1) {
            if (op == OP_MOD) return jv_int(0);
            if (x != INT64_MIN) return jv_int(-x);
            break;
        }
        r = x % y;
        if (op == OP_MOD) return jv_int(r != 0 && (r < 0) != (y < 0) ? r + y : r);
        return jv_int(x / y - (r != 0 && (r < 0) != (y < 0)));
    default: return int_power(j, a, b, y);
    }
    return nbj_big_arith(j, op, a, b);
}

jval nbj_arith(jctx *j, jop op, jval a, jval b)
{
    int64_t x, y;
    if (nbj_int_of(a, &x) && nbj_int_of(b, &y)) return int_arith(j, op, a, b, x, y);
    if (a.t == J_FLOAT || b.t == J_FLOAT) {
        if ((a.t == J_BIG && isinf(nbj_double(a))) || (b.t == J_BIG && isinf(nbj_double(b))))
            return nbj_fail(j, "OverflowError", "int too large to convert to float");
        return float_arith(j, op, nbj_double(a), nbj_double(b));
    }
    if (op == OP_DIV) return true_division(j, a, b);
    if (op == OP_POW && b.t == J_BIG && nbj_big_cmp(b, jv_int(0)) < 0)
        return float_arith(j, op, nbj_double(a), nbj_double(b));
    if (op == OP_POW && nbj_int_of(b, &y) && y < 0) return int_power(j, a, b, y);
    return nbj_big_arith(j, op, a, b);
}

jval nbj_neg(jctx *j, jval v)
{
    if (v.t == J_FLOAT) return jv_float(-v.u.f);
    return nbj_arith(j, OP_SUB, jv_int(0), v);
}

/* round(v, digits): floats exactly as their decimal expansion says, ties to even; integers stay integers. */
jval nbj_round(jctx *j, jval v, int64_t digits)
{
    if (v.t != J_FLOAT) {
        if (v.t == J_BOOL) v = jv_int(v.u.b);
        if (digits >= 0) return v;
        if (digits < -4000) return jv_int(0);
        jval p = nbj_arith(j, OP_POW, jv_int(10), jv_int(-digits));
        if (j_bad(p)) return p;
        jval rest = nbj_arith(j, OP_MOD, v, p), down = j_bad(rest) ? rest : nbj_arith(j, OP_SUB, v, rest);
        if (j_bad(down)) return down;
        jval twice = nbj_arith(j, OP_MUL, rest, jv_int(2));
        int c = j_bad(twice) ? 0 : nbj_num_cmp(twice, p);
        jval odd = nbj_arith(j, OP_MOD, nbj_arith(j, OP_FLOORDIV, down, p), jv_int(2));
        bool up = c > 0 || (c == 0 && odd.t == J_INT && odd.u.i == 1);
        return up ? nbj_arith(j, OP_ADD, down, p) : down;
    }
    double d = v.u.f;
    if (!isfinite(d) || digits > 323 || d == 0) return v;
    if (digits < -308) return jv_float(copysign(0.0, d));
    char t[800];
    if (digits >= 0) {
        size_t n = nbj_format_double(t, sizeof t, d, 'f', (int)digits, false);
        double out = d;
        return n && text_double((nb_str){t, n}, &out) ? jv_float(out) : v;
    }
    /* As many significant digits as stay left of the position. */
    int magnitude = (int)floor(log10(fabs(d))) + 1 + (int)digits;
    if (magnitude < 0) return jv_float(copysign(0.0, d));
    if (magnitude == 0) {
        double p = pow(10, (double)-digits);
        return jv_float(fabs(d) > p / 2 ? copysign(p, d) : copysign(0.0, d));
    }
    size_t n = nbj_format_double(t, sizeof t, d, 'e', magnitude - 1, false);
    double out = d;
    return n && text_double((nb_str){t, n}, &out) ? jv_float(out) : v;
}
