/* Look-ups, typed reads and building. */
#include "json/index.h"

#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the index of a large object ---- */

bool nb_json_index_new(nb_json_box *box, nb_arena *a, size_t n)
{
    size_t slots = 64;
    while (slots / 2 < n) slots *= 2; /* n fits 32 bits */
    box->slots = NB_NEW_N(a, uint64_t, slots);
    box->mask = slots - 1;
    return box->slots != NULL;
}

/* The slot that holds key, or the empty one where it belongs. */
static uint64_t *probe(const nb_json_box *box, const nb_str *keys, nb_str key, uint64_t *hash_out)
{
    uint64_t full = nb_hash_bytes(key.p, key.n, nb_hash_seed()), hash = full >> 32;
    *hash_out = hash;
    for (uint64_t i = full & box->mask;; i = (i + 1) & box->mask) {
        uint64_t slot = box->slots[i];
        if (!slot || (slot >> 32 == hash && nb_str_eq(keys[(uint32_t)slot - 1], key))) return &box->slots[i];
    }
}

uint32_t nb_json_index_add(nb_json_box *box, const nb_str *keys, nb_str key, uint32_t pos)
{
    uint64_t hash, *slot = probe(box, keys, key, &hash);
    if (*slot) return (uint32_t)*slot - 1;
    *slot = hash << 32 | (pos + 1);
    return pos;
}

/* Position of key in object v, or UINT32_MAX. */
static uint32_t find(const nb_json *v, nb_str key)
{
    const nb_json_box *box = nb_json_box_of(v);
    if (box && box->slots) {
        uint64_t hash, *slot = probe(box, v->keys, key, &hash);
        uint32_t pos = (uint32_t)*slot - 1;
        /* A position beyond count belongs to a longer copy of this object. */
        return *slot && pos < v->count ? pos : UINT32_MAX;
    }
    for (uint32_t i = 0; i < v->count; i++) {
        if (nb_str_eq(v->keys[i], key)) return i;
    }
    return UINT32_MAX;
}

/* ---- look-ups ---- */

const nb_json *nb_json_get_str(const nb_json *v, nb_str key)
{
    if (!v || v->type != NB_JSON_OBJECT) return NULL;
    uint32_t i = find(v, key);
    return i == UINT32_MAX ? NULL : &v->items[i];
}

const nb_json *nb_json_get(const nb_json *v, const char *key) { return nb_json_get_str(v, nb_str_of(key)); }

const nb_json *nb_json_at(const nb_json *v, size_t i)
{
    return v && v->type == NB_JSON_ARRAY && i < v->count ? &v->items[i] : NULL;
}

const nb_json *nb_json_path(const nb_json *v, const char *path)
{
    while (v) {
        const char *dot = strchr(path, '.');
        if (!dot) return nb_json_get(v, path);
        v = nb_json_get_str(v, (nb_str){path, (size_t)(dot - path)});
        path = dot + 1;
    }
    return NULL;
}

/* ---- numbers ---- */

/* Most significant digits that can decide how a double is rounded, and some. */
enum { MAX_DIGITS = 800 };
static const int64_t max_exp =
    1000000000000000; /* more digits than any text can have: larger exponents need not be told apart */

/* A literal taken apart: value = (neg ? -1 : 1) * digits * 10^exp, leading and trailing zeros removed. */
typedef struct decimal {
    char digit[MAX_DIGITS + 2]; /* '0'..'9', NUL-terminated; n == 0 is zero */
    int n;
    int64_t exp;
    bool neg, cut; /* cut: more digits followed, not all zero */
} decimal;

static void take_apart(nb_str s, decimal *d)
{
    const char *p = s.p, *end = s.p + s.n;
    d->n = 0;
    d->exp = 0;
    d->cut = false;
    d->neg = p < end && *p == '-';
    if (d->neg) p++;
    bool fraction = false;
    for (; p < end && *p != 'e' && *p != 'E'; p++) {
        if (*p == '.') {
            fraction = true;
            continue;
        }
        if (fraction) d->exp--;
        if (d->n == 0 && *p == '0') continue;
        if (d->n < MAX_DIGITS) {
            d->digit[d->n++] = *p;
        } else {
            d->exp++;
            d->cut = d->cut || *p != '0';
        }
    }
    if (p < end) {
        p++;
        bool minus = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        int64_t e = 0;
        for (; p < end; p++) {
            if (e < max_exp) e = e * 10 + (*p - '0');
        }
        d->exp += minus ? -e : e;
    }
    while (!d->cut && d->n && d->digit[d->n - 1] == '0') {
        d->n--;
        d->exp++;
    }
    if (d->cut) { /* whatever followed, it is a little more than the digits kept */
        d->digit[d->n++] = '1';
        d->exp--;
    }
    d->digit[d->n] = '\0';
}

/* The magnitude as an integer; false when it is not one or does not fit. */
static bool magnitude(const decimal *d, uint64_t *out)
{
    uint64_t v = 0;
    if (d->n == 0) {
        *out = 0;
        return true;
    }
    if (d->exp < 0 || d->exp + d->n > 20) return false;
    for (int64_t i = 0; i < d->n + d->exp; i++) {
        uint64_t digit = i < d->n ? (uint64_t)(d->digit[i] - '0') : 0;
        if (!nb_mul_u64(v, 10, &v) || !nb_add_u64(v, digit, &v)) return false;
    }
    *out = v;
    return true;
}

/* Digits alone, as most numbers are: no need to take them apart. */
static bool plain_digits(nb_str s, uint64_t *out)
{
    uint64_t m = 0;
    if (s.n == 0 || s.n > 19) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9') return false;
        m = m * 10 + (uint64_t)(s.p[i] - '0');
    }
    *out = m;
    return true;
}

bool nb_json_u64(const nb_json *v, uint64_t *out)
{
    if (!nb_json_is(v, NB_JSON_NUMBER)) return false;
    if (plain_digits(v->text, out)) return true;
    decimal d;
    uint64_t m;
    take_apart(v->text, &d);
    if (!magnitude(&d, &m) || (d.neg && m)) return false;
    *out = m;
    return true;
}

bool nb_json_i64(const nb_json *v, int64_t *out)
{
    if (!nb_json_is(v, NB_JSON_NUMBER)) return false;
    decimal d;
    uint64_t m;
    take_apart(v->text, &d);
    if (!magnitude(&d, &m) || m > (uint64_t)INT64_MAX + d.neg) return false;
    *out = d.neg ? (int64_t)(0 - m) : (int64_t)m;
    return true;
}

static locale_t c_locale; /* made once, kept for the life of the process; 0 if that failed */
static void make_c_locale(void) { c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* strtod with a decimal point whatever the program's locale. The text holds no point, so even without a locale object
 * the result is right. */
static double to_double(const char *text)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_c_locale);
    return c_locale ? strtod_l(text, NULL, c_locale) : strtod(text, NULL);
}

bool nb_json_f64(const nb_json *v, double *out)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (!nb_json_is(v, NB_JSON_NUMBER)) return false;
    decimal d;
    take_apart(v->text, &d);
    double r = 0;
    if (d.n && d.n <= 15 && d.exp >= -22 && d.exp <= 22) {
        /* Digits and power of ten are both exact doubles: one operation rounds once. */
        uint64_t m = 0;
        for (int i = 0; i < d.n; i++) m = m * 10 + (uint64_t)(d.digit[i] - '0');
        r = d.exp < 0 ? (double)m / ten[-d.exp] : (double)m * ten[d.exp];
    } else if (d.n) {
        char text[MAX_DIGITS + 40];
        snprintf(text, sizeof text, "%se%lld", d.digit, (long long)d.exp);
        r = to_double(text);
    }
    if (isinf(r)) return false;
    *out = d.neg ? -r : r;
    return true;
}

bool nb_json_bool(const nb_json *v, bool *out)
{
    if (!nb_json_is_bool(v)) return false;
    *out = v->type == NB_JSON_TRUE;
    return true;
}

bool nb_json_str(const nb_json *v, nb_str *out)
{
    if (!nb_json_is(v, NB_JSON_STRING)) return false;
    *out = v->text;
    return true;
}

bool nb_json_is_int_literal(const nb_json *v)
{
    if (!nb_json_is(v, NB_JSON_NUMBER)) return false;
    for (size_t i = 0; i < v->text.n; i++) {
        char c = v->text.p[i];
        if (c == '.' || c == 'e' || c == 'E') return false;
    }
    return true;
}

/* ---- shortest decimal text of a double ---- */

/* v > 0 rounded to n digits: the digits in digit[], and the exponent of the first one. The text of printf is read digit
 * by digit, since its point depends on the locale. */
static int round_to(double v, int n, char digit[20])
{
    char text[48];
    snprintf(text, sizeof text, "%.*e", n - 1, v);
    int k = 0;
    const char *p = text;
    for (; *p && *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9' && k < n) digit[k++] = *p;
    }
    digit[k] = '\0';
    return *p ? atoi(p + 1) : 0;
}

static bool reads_back(const char *digit, int n, int exp, double v)
{
    char text[48];
    snprintf(text, sizeof text, "%.*se%d", n, digit, exp - (n - 1));
    return to_double(text) == v;
}

/* The next n-digit number above, in place. False where that needs another digit. */
static bool bump(char *digit, int n)
{
    int i = n - 1;
    while (i >= 0 && digit[i] == '9') digit[i--] = '0';
    if (i < 0) return false;
    digit[i]++;
    return true;
}

/* Shortest digits for v > 0; returns how many. A normal double keeps any 15 digits, so that 15 without trailing zeros
 * are the shortest if they read back at all; a subnormal one may need as few as one. With 16 digits the nearest may
 * fail where the next above does not: below a power of two doubles lie twice as dense. */
static int shortest(double v, char digit[20], int *exp)
{
    int n = v < 0x1p-1022 ? 1 : 15;
    for (; n < 17; n++) {
        *exp = round_to(v, n, digit);
        if (reads_back(digit, n, *exp, v)) break;
        if (n == 16 && bump(digit, n) && reads_back(digit, n, *exp, v)) break;
    }
    if (n == 17) *exp = round_to(v, n, digit);
    while (n > 1 && digit[n - 1] == '0') n--;
    digit[n] = '\0';
    return n;
}

size_t nb_f64_repr(double v, char out[32])
{
    if (isnan(v)) {
        memcpy(out, "nan", 4);
        return 3;
    }
    nb_buf b = {.p = out, .cap = 32, .limit = 31}; /* the caller's 32 bytes: the longest text has 24 */
    if (signbit(v)) nb_buf_add_char(&b, '-');
    v = fabs(v);
    char digit[20] = "0";
    int exp = 0, n = 1;
    if (isinf(v)) {
        nb_buf_add_cstr(&b, "inf");
        nb_buf_cstr(&b);
        return b.n;
    }
    if (v > 0) n = shortest(v, digit, &exp);
    if (exp < -4 || exp >= 16) {
        nb_buf_add(&b, digit, 1);
        if (n > 1) nb_buf_printf(&b, ".%s", digit + 1);
        nb_buf_printf(&b, "e%c%02d", exp < 0 ? '-' : '+', abs(exp));
    } else if (exp < 0) {
        nb_buf_printf(&b, "0.%.*s%s", -exp - 1, "0000", digit);
    } else {
        int whole = exp + 1; /* digits before the point */
        nb_buf_printf(&b, "%.*s%.*s.%s", n < whole ? n : whole, digit, n < whole ? whole - n : 0, "0000000000000000",
                      n > whole ? digit + whole : "0");
    }
    nb_buf_cstr(&b);
    return b.n;
}

/* ---- building ---- */

nb_json *nb_json_new(nb_arena *a, nb_json_type type)
{
    nb_json *v = NB_NEW(a, nb_json);
    if (v) v->type = (uint8_t)type;
    return v;
}

static nb_json *new_text(nb_arena *a, nb_json_type type, nb_str s)
{
    nb_json *v = nb_json_new(a, type);
    nb_str copy = nb_arena_str(a, s);
    if (!v || !copy.p) return NULL;
    v->text = copy;
    return v;
}

nb_json *nb_json_new_str(nb_arena *a, nb_str s) { return new_text(a, NB_JSON_STRING, s); }

nb_json *nb_json_new_i64(nb_arena *a, int64_t v)
{
    char text[24];
    int n = snprintf(text, sizeof text, "%lld", (long long)v);
    return new_text(a, NB_JSON_NUMBER, (nb_str){text, (size_t)n});
}

nb_json *nb_json_new_f64(nb_arena *a, double v)
{
    if (!isfinite(v)) return nb_json_new(a, NB_JSON_NULL); /* JSON has no other word for it */
    char text[32];
    size_t n = nb_f64_repr(v, text);
    return new_text(a, NB_JSON_NUMBER, (nb_str){text, n});
}

nb_json *nb_json_new_bool(nb_arena *a, bool v) { return nb_json_new(a, v ? NB_JSON_TRUE : NB_JSON_FALSE); }

/* Makes room for one more member. A container whose last place was taken by a copy of itself is copied too. */
static bool make_room(nb_arena *a, nb_json *v)
{
    nb_json_box *box = nb_json_box_of(v);
    if (box && box->used == v->count && box->used < box->cap) return true;
    if (v->count >= UINT32_MAX / 2) return false;
    uint32_t cap = v->count < 4 ? 4 : v->count * 2;
    bool object = v->type == NB_JSON_OBJECT;
    nb_json_box *bigger = NB_NEW(a, nb_json_box);
    nb_json *items = NB_NEW_N(a, nb_json, cap);
    nb_str *keys = object ? NB_NEW_N(a, nb_str, cap) : NULL;
    if (!bigger || !items || (object && !keys)) return false;
    if (v->count) memcpy(items, v->items, v->count * sizeof *items);
    if (object && v->count) memcpy(keys, v->keys, v->count * sizeof *keys);
    if (object && cap > NB_JSON_LINEAR) {
        if (!nb_json_index_new(bigger, a, cap)) return false;
        for (uint32_t i = 0; i < v->count; i++) nb_json_index_add(bigger, keys, keys[i], i);
    }
    bigger->used = v->count;
    bigger->cap = cap;
    v->items = items;
    v->keys = keys;
    v->text = (nb_str){(const char *)bigger, 0};
    return true;
}

bool nb_json_push(nb_arena *a, nb_json *array, const nb_json *value)
{
    if (!array || array->type != NB_JSON_ARRAY || !value) return false;
    nb_json copy = *value; /* value may lie in this very array */
    if (!make_room(a, array)) return false;
    array->items[array->count++] = copy;
    nb_json_box_of(array)->used = array->count;
    return true;
}

bool nb_json_set(nb_arena *a, nb_json *object, nb_str key, const nb_json *value)
{
    if (!object || object->type != NB_JSON_OBJECT || !value) return false;
    nb_json copy = *value;
    uint32_t at = find(object, key);
    if (at != UINT32_MAX) {
        object->items[at] = copy;
        return true;
    }
    nb_str kept = nb_arena_str(a, key);
    if (!kept.p || !make_room(a, object)) return false;
    nb_json_box *box = nb_json_box_of(object);
    object->items[object->count] = copy;
    object->keys[object->count] = kept;
    if (box->slots) nb_json_index_add(box, object->keys, kept, object->count);
    box->used = ++object->count;
    return true;
}
