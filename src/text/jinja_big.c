/* text/jinja_big: integers beyond 64 bits, base 1e9. Python keeps every integer of a request; so do we. */
#include "text/jinja.h"

#include <math.h>

enum { BASE = 1000000000, MAX_DIGITS = 4300, MAX_LIMBS = 4096 }; /* 4300: Python refuses to print or read longer ones */

/* n limbs of zero. */
static jbig *new_big(nb_arena *a, uint32_t n)
{
    jbig *b = nb_arena_alloc(a, sizeof *b + n * sizeof(uint32_t));
    if (b) b->n = n;
    return b;
}

/* Drops leading zeros; a value that fits becomes J_INT. */
static jval settle(jbig *b)
{
    while (b->n && !b->d[b->n - 1]) b->n--;
    if (b->n <= 3) {
        unsigned __int128 v = 0;
        for (uint32_t i = b->n; i > 0; i--) v = v * BASE + b->d[i - 1];
        if (!b->neg && v <= INT64_MAX) return jv_int((int64_t)v);
        if (b->neg && v <= (unsigned __int128)INT64_MAX + 1) return jv_int((int64_t)(0 - (uint64_t)v));
    }
    jval out = jv(J_BIG);
    out.u.big = b;
    return out;
}

static jval settled(const jbig *b) { return settle((jbig *)b); } /* already without leading zeros: nothing is written */

/* Decimal digits; leading zeros are fine. */
jval nbj_big_parse(nb_arena *a, nb_str digits, bool neg)
{
    while (digits.n > 1 && digits.p[0] == '0') {
        digits.p++;
        digits.n--;
    }
    if (digits.n > MAX_DIGITS) return jv(J_ERR);
    jbig *b = new_big(a, (uint32_t)((digits.n + 8) / 9));
    if (!b) return jv(J_ERR);
    b->neg = neg;
    size_t end = digits.n;
    for (uint32_t i = 0; i < b->n; i++) {
        size_t from = end > 9 ? end - 9 : 0;
        for (size_t k = from; k < end; k++) b->d[i] = b->d[i] * 10 + (uint32_t)(digits.p[k] - '0');
        end = from;
    }
    return settle(b);
}

/* Any integer as limbs; small values are spread out in new memory. */
static const jbig *limbs(jctx *j, jval v)
{
    if (v.t == J_BIG) return v.u.big;
    int64_t i = v.t == J_BOOL ? v.u.b : v.u.i;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    jbig *b = new_big(j->a, 3);
    if (!b) return nbj_oom(j), NULL;
    b->neg = i < 0;
    b->n = 0;
    for (; u; u /= BASE) b->d[b->n++] = (uint32_t)(u % BASE);
    return b;
}

/* Compares magnitudes. */
static int cmp_abs(const jbig *a, const jbig *b)
{
    if (a->n != b->n) return a->n < b->n ? -1 : 1;
    const uint32_t *x = a->d, *y = b->d;
    for (uint32_t i = a->n; i > 0; i--) {
        if (x[i - 1] != y[i - 1]) return x[i - 1] < y[i - 1] ? -1 : 1;
    }
    return 0;
}

/* At least one of the two is large. */
int nbj_big_cmp(jval a, jval b)
{
    /* One of them may be small: then the sign of the other decides. */
    if (a.t != J_BIG) return b.u.big->neg ? 1 : -1;
    if (b.t != J_BIG) return a.u.big->neg ? -1 : 1;
    const jbig *x = a.u.big, *y = b.u.big;
    if (x->neg != y->neg) return x->neg ? -1 : 1;
    int c = cmp_abs(x, y);
    return x->neg ? -c : c;
}

/* b against a finite float, exactly: a float as large as this is an integer. */
int nbj_big_cmp_double(const jbig *b, double d)
{
    uint32_t limb[40] = {0}, n = 2; /* 1.8e308 has 35 */
    int exp, shift;
    if (b->neg != (d < 0) || fabs(d) < 9.2e18) return b->neg ? -1 : 1;
    uint64_t m = (uint64_t)ldexp(frexp(fabs(d), &exp), 53);
    limb[0] = (uint32_t)(m % BASE);
    limb[1] = (uint32_t)(m / BASE);
    for (exp -= 53; exp > 0; exp -= shift) {
        shift = exp < 30 ? exp : 30;
        uint64_t carry = 0;
        for (uint32_t i = 0; i < n; i++) {
            carry += (uint64_t)limb[i] << shift;
            limb[i] = (uint32_t)(carry % BASE);
            carry /= BASE;
        }
        while (carry) limb[n++] = (uint32_t)(carry % BASE), carry /= BASE;
    }
    while (n && !limb[n - 1]) n--;
    int c = (b->n > n) - (b->n < n);
    for (uint32_t i = n; !c && i > 0; i--) c = (b->d[i - 1] > limb[i - 1]) - (b->d[i - 1] < limb[i - 1]);
    return b->neg ? -c : c;
}

/* a + b with b's sign given, so that it subtracts too. */
static jval add(jctx *j, const jbig *a, const jbig *b, bool b_neg)
{
    uint32_t n = (a->n > b->n ? a->n : b->n) + 1;
    jbig *out = new_big(j->a, n);
    if (!out) return nbj_oom(j);
    const uint32_t *x = a->d, *y = b->d;
    if (a->neg == b_neg) {
        uint32_t carry = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t s = (i < a->n ? x[i] : 0) + (i < b->n ? y[i] : 0) + carry;
            out->d[i] = s % BASE;
            carry = s / BASE;
        }
        out->neg = a->neg;
        return settle(out);
    }
    bool swap = cmp_abs(a, b) < 0;
    const jbig *big = swap ? b : a, *lo = swap ? a : b;
    int32_t borrow = 0;
    for (uint32_t i = 0; i < n; i++) {
        int32_t s = (int32_t)(i < big->n ? big->d[i] : 0) - (int32_t)(i < lo->n ? lo->d[i] : 0) - borrow;
        borrow = s < 0;
        out->d[i] = (uint32_t)(s + (borrow ? BASE : 0));
    }
    out->neg = swap ? b_neg : a->neg;
    return settle(out);
}

/* Schoolbook: operands are short in practice, and the limit is low. */
static jval mul(jctx *j, const jbig *a, const jbig *b)
{
    if (a->n + b->n > MAX_LIMBS) return nbj_fail(j, "MemoryError", "an integer of more than %d digits", MAX_LIMBS * 9);
    if (!nbj_step(j, (uint64_t)a->n * b->n / 16)) return jv(J_ERR);
    jbig *out = new_big(j->a, a->n + b->n);
    if (!out) return nbj_oom(j);
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t k = 0; k < b->n || carry; k++) {
            uint64_t s = out->d[i + k] + carry + (k < b->n ? (uint64_t)a->d[i] * b->d[k] : 0);
            out->d[i + k] = (uint32_t)(s % BASE);
            carry = s / BASE;
        }
    }
    out->neg = a->neg != b->neg;
    return settle(out);
}

/* r = r * BASE + d, then q = the largest with q * b <= r; r -= q * b. r has room for b->n + 1 limbs. */
static uint32_t div_step(uint32_t *r, const jbig *b, uint32_t d)
{
    uint32_t n = b->n;
    memmove(r + 1, r, n * sizeof *r);
    r[0] = d;
    long double top = ((long double)r[n] * BASE + r[n - 1]) * BASE + (n > 1 ? r[n - 2] : 0);
    long double bot = (long double)b->d[n - 1] * BASE + (n > 1 ? b->d[n - 2] : 0);
    int64_t q = (int64_t)(top / bot);
    { /* the estimate is off by a little at most: subtract, then mend */
        int64_t borrow = 0;
        for (uint32_t i = 0; i <= n; i++) {
            int64_t s = (int64_t)r[i] - (i < n ? (int64_t)b->d[i] * q : 0) + borrow;
            int64_t m = s % BASE;
            if (m < 0) m += BASE;
            borrow = (s - m) / BASE;
            r[i] = (uint32_t)m;
        }
        uint32_t total = 0;
        while (borrow < 0) { /* too much was taken: add b back */
            uint64_t carry = 0;
            for (uint32_t i = 0; i <= n; i++) {
                uint64_t s = (uint64_t)r[i] + (i < n ? b->d[i] : 0) + carry;
                r[i] = (uint32_t)(s % BASE);
                carry = s / BASE;
            }
            borrow += (int64_t)carry;
            total++;
        }
        return (uint32_t)(q - total);
    }
}

/* Floor division and the remainder with the divisor's sign. */
static jval divide(jctx *j, const jbig *a, const jbig *b, bool want_mod)
{
    if (!b->n) return nbj_fail(j, "ZeroDivisionError", "integer division or modulo by zero");
    if (!nbj_step(j, (uint64_t)a->n * b->n / 8)) return jv(J_ERR);
    jbig *q = new_big(j->a, a->n), *r = new_big(j->a, b->n + 2), *one = new_big(j->a, 1);
    if (!q || !r || !one) return nbj_oom(j);
    for (uint32_t i = a->n; i > 0; i--) {
        q->d[i - 1] = div_step(r->d, b, a->d[i - 1]);
        while (true) { /* the estimate may be one too small */
            jbig *view = r;
            view->n = b->n + 1;
            while (view->n && !view->d[view->n - 1]) view->n--;
            if (cmp_abs(view, b) < 0) break;
            int64_t borrow = 0;
            for (uint32_t k = 0; k <= b->n; k++) {
                int64_t s = (int64_t)r->d[k] - (k < b->n ? b->d[k] : 0) - borrow;
                borrow = s < 0;
                r->d[k] = (uint32_t)(s + (borrow ? BASE : 0));
            }
            q->d[i - 1]++;
        }
    }
    r->n = b->n;
    r->neg = a->neg;
    q->neg = a->neg != b->neg;
    jval rem = settle(r);
    bool zero = rem.t == J_INT && rem.u.i == 0;
    if (want_mod) return zero || a->neg == b->neg ? rem : nbj_big_arith(j, OP_ADD, rem, settled(b));
    jval out = settle(q);
    return zero || a->neg == b->neg ? out : nbj_big_arith(j, OP_SUB, out, jv_int(1));
}

/* By squaring. Exponents are not negative here. */
static jval power(jctx *j, jval base, jval exp)
{
    if (exp.t == J_BIG) return nbj_fail(j, "MemoryError", "the exponent is too large");
    int64_t e = exp.t == J_BOOL ? exp.u.b : exp.u.i;
    jval out = jv_int(1);
    while (e > 0) {
        if (e & 1) out = nbj_big_arith(j, OP_MUL, out, base);
        e >>= 1;
        if (e) base = nbj_big_arith(j, OP_MUL, base, base);
        if (j_bad(out) || j_bad(base)) return jv(J_ERR);
    }
    return out;
}

/* Integers of any size; the result is small again where it fits. */
jval nbj_big_arith(jctx *j, jop op, jval a, jval b)
{
    const jbig *x = limbs(j, a), *y = limbs(j, b);
    if (!x || !y) return jv(J_ERR);
    switch (op) {
    case OP_ADD: return add(j, x, y, y->neg);
    case OP_SUB: return add(j, x, y, !y->neg);
    case OP_MUL: return mul(j, x, y);
    case OP_FLOORDIV: return divide(j, x, y, false);
    case OP_MOD: return divide(j, x, y, true);
    case OP_POW: return power(j, a, b);
    default: return nbj_fail(j, "TypeError", "operation on large integers");
    }
}

double nbj_big_double(const jbig *b)
{
    /* Through text, so that it is rounded once. */
    nb_buf t = {0};
    for (uint32_t i = b->n; i > 0; i--) nb_buf_printf(&t, i == b->n ? "%u" : "%09u", b->d[i - 1]);
    double d = INFINITY;
    nb_json n = {.type = NB_JSON_NUMBER, .text = {t.p, t.n}};
    if (t.oom || !nb_json_f64(&n, &d)) d = INFINITY;
    nb_buf_free(&t);
    return b->neg ? -d : d;
}

uint32_t nbj_big_hash(const jbig *b) { return (uint32_t)nb_hash_bytes(b->d, b->n * sizeof(uint32_t), 3); }

void nbj_big_text(jctx *j, jbuf *out, const jbig *b, bool trusted)
{
    if (b->n > MAX_DIGITS / 9 + 1) {
        nbj_fail(j, "ValueError", "Exceeds the limit (%d digits) for integer string conversion", MAX_DIGITS);
        return;
    }
    char t[16];
    if (b->neg) nbj_add(j, out, "-", 1, trusted);
    for (uint32_t i = b->n; i > 0; i--) {
        uint32_t v = b->d[i - 1], n = 0;
        char digit[10];
        for (; v || (i < b->n && n < 9); v /= 10) digit[n++] = (char)('0' + v % 10);
        for (uint32_t k = 0; k < n; k++) t[k] = digit[n - 1 - k];
        nbj_add(j, out, t, n, trusted);
    }
}

/* Exactly: the mantissa times a power of two. */
jval nbj_big_from_double(jctx *j, double d)
{
    bool neg = d < 0;
    d = fabs(d);
    int exp;
    double m = frexp(d, &exp); /* d = m * 2^exp; the mantissa is 53 bits */
    jval out = jv_int((int64_t)ldexp(m, 53));
    jval two = nbj_big_arith(j, OP_POW, jv_int(2), jv_int(exp - 53));
    if (j_bad(two)) return two;
    out = nbj_big_arith(j, OP_MUL, out, two);
    return neg && !j_bad(out) ? nbj_big_arith(j, OP_SUB, jv_int(0), out) : out;
}
