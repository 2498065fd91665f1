/* text/jinja_meth: the is... methods of str, and methods of lists, dicts and the rest. */
#include "text/jinja.h"

#include <math.h>

static bool no_args(jctx *j, const char *fn, const jargs *a)
{
    if (!a->n && !a->nkw) return true;
    nbj_fail(j, "TypeError", "%s() takes no arguments (%u given)", fn, a->n + a->nkw);
    return false;
}

/* ---- str.is... ---- */

/* True where there is a character and all pass. */
static jval all_chars(jctx *j, jval self, const jargs *a, bool (*test)(uint32_t))
{
    const jstr *s = self.u.s;
    if (!no_args(j, "str.is", a) || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    for (size_t i = 0, len; i < s->n; i += len) {
        if (!test(nb_utf8_decode(s->p + i, s->n - i, &len))) return jv_bool(false);
    }
    return jv_bool(s->n > 0);
}

static bool is_alnum(uint32_t c) { return nbj_is_alpha(c) || nbj_is_numeric(c); }
static bool is_ascii(uint32_t c) { return c < 0x80; }

static jval m_isalnum(jctx *j, jval s, const jargs *a) { return all_chars(j, s, a, is_alnum); }
static jval m_isalpha(jctx *j, jval s, const jargs *a) { return all_chars(j, s, a, nbj_is_alpha); }
static jval m_isdecimal(jctx *j, jval s, const jargs *a) { return all_chars(j, s, a, nbj_is_decimal); }
static jval m_isdigit(jctx *j, jval s, const jargs *a) { return all_chars(j, s, a, nbj_is_digit); }
static jval m_isnumeric(jctx *j, jval s, const jargs *a) { return all_chars(j, s, a, nbj_is_numeric); }
static jval m_isspace(jctx *j, jval s, const jargs *a) { return all_chars(j, s, a, nbj_is_space); }

static jval m_isascii(jctx *j, jval s, const jargs *a)
{
    return s.u.s->n ? all_chars(j, s, a, is_ascii) : jv_bool(true);
}
static jval m_isprintable(jctx *j, jval s, const jargs *a)
{
    return s.u.s->n ? all_chars(j, s, a, nbj_is_printable) : jv_bool(true);
}

/* At least one cased character and none of the other case. */
static jval one_case(jctx *j, jval self, const jargs *a, bool (*want)(uint32_t), bool (*other)(uint32_t))
{
    const jstr *s = self.u.s;
    if (!no_args(j, "str.is", a) || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    bool any = false;
    for (size_t i = 0, len; i < s->n; i += len) {
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len);
        if (other(c) || nbj_is_title(c)) return jv_bool(false);
        any |= want(c);
    }
    return jv_bool(any);
}

static jval m_islower(jctx *j, jval s, const jargs *a) { return one_case(j, s, a, nbj_is_lower, nbj_is_upper); }
static jval m_isupper(jctx *j, jval s, const jargs *a) { return one_case(j, s, a, nbj_is_upper, nbj_is_lower); }

static jval m_istitle(jctx *j, jval self, const jargs *a)
{
    const jstr *s = self.u.s;
    if (!no_args(j, "str.istitle", a) || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    bool any = false, inside = false;
    for (size_t i = 0, len; i < s->n; i += len) {
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len);
        bool up = nbj_is_upper(c) || nbj_is_title(c), low = !up && nbj_is_lower(c);
        if ((up && inside) || (low && !inside)) return jv_bool(false);
        inside = up || low;
        any |= inside;
    }
    return jv_bool(any);
}

static jval m_isidentifier(jctx *j, jval self, const jargs *a)
{
    const jstr *s = self.u.s;
    if (!no_args(j, "str.isidentifier", a) || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    for (size_t i = 0, len; i < s->n; i += len) {
        uint32_t c = nb_utf8_decode(s->p + i, s->n - i, &len);
        if (!(c == '_' || nbj_is_alpha(c) || (i && (nbj_is_decimal(c) || (c >= 0x300 && c <= 0x36F)))))
            return jv_bool(false);
    }
    return jv_bool(s->n > 0);
}

const jmethdef nbj_str_tests[] = {
    {"isalnum", m_isalnum},
    {"isalpha", m_isalpha},
    {"isascii", m_isascii},
    {"isdecimal", m_isdecimal},
    {"isdigit", m_isdigit},
    {"isidentifier", m_isidentifier},
    {"islower", m_islower},
    {"isnumeric", m_isnumeric},
    {"isprintable", m_isprintable},
    {"isspace", m_isspace},
    {"istitle", m_istitle},
    {"isupper", m_isupper},
    {NULL, NULL},
};

/* ---- markup ---- */

static jval m_striptags(jctx *j, jval self, const jargs *a)
{
    if (!no_args(j, "Markup.striptags", a)) return jv(J_ERR);
    return nbj_filter(NB_LIT("striptags"))->fn(j, self, a);
}

const jmethdef nbj_markup_methods[] = {{"striptags", m_striptags}, {"unescape", NULL}, {"escape", NULL}, {NULL, NULL}};

/* ---- lists, tuples, ranges ---- */

/* list.index, tuple.index, range.index. */
static jval seq_index(jctx *j, jval self, const jargs *a)
{
    jval v[3], item;
    if (!nbj_bind(j, "index", a, (const char *const[]){"-value", "-start", "-stop"}, 1, 3, v)) return jv(J_ERR);
    int64_t n = nbj_len(j, self), from = 0, to = n;
    if (v[1].t != J_MISSING && !nbj_want_int(j, v[1], &from)) return jv(J_ERR);
    if (v[2].t != J_MISSING && !nbj_want_int(j, v[2], &to)) return jv(J_ERR);
    if (from < 0) from = from + n < 0 ? 0 : from + n;
    if (to < 0) to += n;
    jiter *it = nbj_iter(j, self);
    int more = it ? 1 : -1;
    for (int64_t i = 0; it && (more = nbj_next(j, it, &item)) > 0; i++) {
        if (i < from || i >= to) continue;
        int eq = nbj_equal(j, item, v[0]);
        if (eq < 0) return jv(J_ERR);
        if (eq) return jv_int(i);
    }
    return more < 0 ? jv(J_ERR) : nbj_fail(j, "ValueError", "the value is not in the sequence");
}

static jval seq_count(jctx *j, jval self, const jargs *a)
{
    jval v[1], item;
    if (!nbj_bind(j, "count", a, (const char *const[]){"-value"}, 1, 1, v)) return jv(J_ERR);
    jiter *it = nbj_iter(j, self);
    int64_t n = 0;
    int more = it ? 1 : -1;
    while (it && (more = nbj_next(j, it, &item)) > 0) {
        int eq = nbj_equal(j, item, v[0]);
        if (eq < 0) return jv(J_ERR);
        n += eq;
    }
    return more < 0 ? jv(J_ERR) : jv_int(n);
}

static jval list_copy(jctx *j, jval self, const jargs *a)
{
    if (!no_args(j, "list.copy", a)) return jv(J_ERR);
    jlist *l = nbj_collect(j, self);
    if (l) l->req = self.u.l->req;
    return l ? jv_list(l) : jv(J_ERR);
}

/* The four that product mode allows. */
static jval list_append(jctx *j, jval self, const jargs *a)
{
    jval v[1];
    if (!nbj_bind(j, "append", a, (const char *const[]){"-object"}, 1, 1, v)) return jv(J_ERR);
    return nbj_push_val(j, self.u.l, v[0]) ? jv(J_NONE) : jv(J_ERR);
}

static jval list_extend(jctx *j, jval self, const jargs *a)
{
    jval v[1];
    if (!nbj_bind(j, "extend", a, (const char *const[]){"-iterable"}, 1, 1, v)) return jv(J_ERR);
    jlist *more = nbj_collect(j, v[0]);
    for (uint32_t i = 0; more && i < more->n; i++) {
        if (!nbj_push_val(j, self.u.l, more->v[i])) return jv(J_ERR);
    }
    return more ? jv(J_NONE) : jv(J_ERR);
}

static jval list_insert(jctx *j, jval self, const jargs *a)
{
    jval v[2];
    int64_t i;
    jlist *l = self.u.l;
    if (!nbj_bind(j, "insert", a, (const char *const[]){"-index", "-object"}, 2, 2, v) || !nbj_want_int(j, v[0], &i))
        return jv(J_ERR);
    if (i < 0) i = i + l->n < 0 ? 0 : i + l->n;
    if (i > l->n) i = l->n;
    if (!nbj_push_val(j, l, v[1])) return jv(J_ERR);
    memmove(l->v + i + 1, l->v + i, (l->n - 1 - (size_t)i) * sizeof *l->v);
    l->v[i] = v[1];
    return jv(J_NONE);
}

static jval list_pop(jctx *j, jval self, const jargs *a)
{
    jval v[1];
    jlist *l = self.u.l;
    int64_t i = -1;
    if (!nbj_bind(j, "pop", a, (const char *const[]){"-index"}, 0, 1, v)) return jv(J_ERR);
    if (v[0].t != J_MISSING && !nbj_want_int(j, v[0], &i)) return jv(J_ERR);
    if (i < 0) i += l->n;
    if (i < 0 || i >= l->n) return nbj_fail(j, "IndexError", l->n ? "pop index out of range" : "pop from empty list");
    jval out = l->v[i];
    l->n--;
    memmove(l->v + i, l->v + i + 1, (l->n - (size_t)i) * sizeof *l->v);
    return out;
}

const jmethdef nbj_list_methods[] = {{"index", seq_index}, {"count", seq_count}, {"copy", list_copy}, {NULL, NULL}};
const jmethdef nbj_list_edits[] = {
    {"append", list_append}, {"extend", list_extend}, {"insert", list_insert}, {"pop", list_pop}, {"clear", NULL},
    {"reverse", NULL},       {"sort", NULL},          {"remove", NULL},        {NULL, NULL},
};
const jmethdef nbj_tuple_methods[] = {{"index", seq_index}, {"count", seq_count}, {NULL, NULL}};

/* ---- dicts ---- */

/* d.get(key, default) */
static jval dict_get(jctx *j, jval self, const jargs *a)
{
    jval v[2], out;
    if (!nbj_bind(j, "get", a, (const char *const[]){"-key", "-default"}, 1, 2, v)) return jv(J_ERR);
    int hit = nbj_dict_get(j, self.u.d, v[0], &out);
    if (hit < 0) return jv(J_ERR);
    return hit ? out : v[1].t == J_MISSING ? jv(J_NONE) : v[1];
}

/* A live view, as dict.keys() gives. */
static jval view(jctx *j, jval self, const jargs *a, const char *fn, int kind)
{
    if (!no_args(j, fn, a)) return jv(J_ERR);
    jview *w = nbj_alloc(j, sizeof *w);
    if (!w) return jv(J_ERR);
    *w = (jview){self.u.d, kind};
    jval v = jv(J_VIEW);
    v.u.view = w;
    return v;
}

static jval dict_keys(jctx *j, jval s, const jargs *a) { return view(j, s, a, "dict.keys", 0); }
static jval dict_values(jctx *j, jval s, const jargs *a) { return view(j, s, a, "dict.values", 1); }
static jval dict_items(jctx *j, jval s, const jargs *a) { return view(j, s, a, "dict.items", 2); }

static jval dict_copy(jctx *j, jval self, const jargs *a)
{
    if (!no_args(j, "dict.copy", a)) return jv(J_ERR);
    jdict *d = nbj_dict(j, self.u.d->n);
    jargs from = {.v = &self, .n = 1};
    if (!d || !nbj_dict_update(j, d, &from)) return jv(J_ERR);
    d->req = self.u.d->req;
    return jv_dict(d);
}

static jval dict_fromkeys(jctx *j, jval self, const jargs *a) { return nbj_dict_type_methods[0].fn(j, self, a); }

const jmethdef nbj_dict_methods[] = {
    {"get", dict_get},   {"items", dict_items},       {"keys", dict_keys}, {"values", dict_values},
    {"copy", dict_copy}, {"fromkeys", dict_fromkeys}, {NULL, NULL},
};
const jmethdef nbj_dict_edits[] = {{"clear", NULL},      {"pop", NULL},    {"popitem", NULL},
                                   {"setdefault", NULL}, {"update", NULL}, {NULL, NULL}};

/* ---- floats, loops, cyclers ---- */

static jval float_is_integer(jctx *j, jval self, const jargs *a)
{
    return no_args(j, "float.is_integer", a) ? jv_bool(isfinite(self.u.f) && floor(self.u.f) == self.u.f) : jv(J_ERR);
}

/* A number is its own conjugate; a truth value becomes a number. */
static jval num_conjugate(jctx *j, jval self, const jargs *a)
{
    if (!no_args(j, "conjugate", a)) return jv(J_ERR);
    return self.t == J_BOOL ? jv_int(self.u.b) : self;
}

/* Bits and set bits of the absolute value; a long one is taken apart into words. */
static bool int_bits(jctx *j, jval v, int64_t *length, int64_t *count)
{
    uint64_t x = v.t == J_BOOL ? v.u.b : v.t == J_INT && v.u.i < 0 ? 0 - (uint64_t)v.u.i : v.t == J_INT ? (uint64_t)v.u.i : 0;
    *length = x ? 64 - __builtin_clzll(x) : 0;
    *count = __builtin_popcountll(x);
    if (v.t != J_BIG) return true;
    const jbig *b = v.u.big;
    uint32_t n = b->n, *d = nbj_array(j, n + 1, sizeof *d);
    if (!d || !nbj_step(j, (uint64_t)n * n / 16)) return false;
    memcpy(d, b->d, n * sizeof *d);
    for (int64_t word = 0; n; word++) {
        uint64_t rest = 0;
        for (uint32_t i = n; i > 0; i--) {
            uint64_t t = rest * 1000000000u + d[i - 1];
            d[i - 1] = (uint32_t)(t >> 32), rest = t & UINT32_MAX;
        }
        if (rest) *length = word * 32 + 64 - __builtin_clzll(rest);
        *count += __builtin_popcountll(rest);
        while (n && !d[n - 1]) n--;
    }
    return true;
}

static jval int_bit_length(jctx *j, jval self, const jargs *a)
{
    int64_t length, count;
    return no_args(j, "int.bit_length", a) && int_bits(j, self, &length, &count) ? jv_int(length) : jv(J_ERR);
}

static jval int_bit_count(jctx *j, jval self, const jargs *a)
{
    int64_t length, count;
    return no_args(j, "int.bit_count", a) && int_bits(j, self, &length, &count) ? jv_int(count) : jv(J_ERR);
}

const jmethdef nbj_num_methods[] = {
    {"is_integer", float_is_integer}, {"hex", NULL}, {"as_integer_ratio", NULL}, {"conjugate", num_conjugate}, {NULL, NULL}};
const jmethdef nbj_int_methods[] = {{"bit_length", int_bit_length}, {"bit_count", int_bit_count}, {"conjugate", num_conjugate},
                                    {"as_integer_ratio", NULL},     {"to_bytes", NULL},           {NULL, NULL}};

static jval loop_cycle(jctx *j, jval self, const jargs *a)
{
    if (a->nkw) return nbj_fail(j, "TypeError", "LoopContext.cycle() got an unexpected keyword argument");
    if (!a->n) return nbj_fail(j, "TypeError", "no items for cycling given");
    return a->v[self.u.loop->index0 % a->n];
}

/* True on the first call and whenever the values differ from the last ones. */
static jval loop_changed(jctx *j, jval self, const jargs *a)
{
    jloop *l = self.u.loop;
    if (a->nkw) return nbj_fail(j, "TypeError", "LoopContext.changed() got an unexpected keyword argument");
    jlist *now = nbj_list(j, a->n);
    for (uint32_t i = 0; now && i < a->n; i++) nbj_push_val(j, now, a->v[i]);
    if (!now) return jv(J_ERR);
    int same = l->changed.t == J_MISSING ? 0 : nbj_equal(j, l->changed, jv_tuple(now));
    if (same < 0) return jv(J_ERR);
    if (!same) l->changed = jv_tuple(now);
    return jv_bool(!same);
}

const jmethdef nbj_loop_methods[] = {{"cycle", loop_cycle}, {"changed", loop_changed}, {NULL, NULL}};

static jval cycler_next(jctx *j, jval self, const jargs *a)
{
    jcycler *c = self.u.cycler;
    if (!no_args(j, "Cycler.next", a)) return jv(J_ERR);
    jval v = c->v[c->pos];
    c->pos = (c->pos + 1) % c->n;
    return v;
}

static jval cycler_reset(jctx *j, jval self, const jargs *a)
{
    if (!no_args(j, "Cycler.reset", a)) return jv(J_ERR);
    self.u.cycler->pos = 0;
    return jv(J_NONE);
}

const jmethdef nbj_cycler_methods[] = {{"next", cycler_next}, {"reset", cycler_reset}, {NULL, NULL}};
