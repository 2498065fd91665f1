/* text/jinja_test: what stands after `is`. */
#include "text/jinja.h"

static bool args(jctx *j, const char *name, const jargs *a, uint32_t n, jval *out)
{
    static const char *const names[] = {"other"};
    jval ignored[1];
    return nbj_bind(j, name, a, names, n, n, n ? out : ignored);
}

#define SIMPLE(name, expr)                                                                                             \
    static int t_##name(jctx *j, jval v, const jargs *a) { return args(j, #name, a, 0, NULL) ? (expr) : -1; }

SIMPLE(defined, v.t != J_UNDEF)
SIMPLE(undefined, v.t == J_UNDEF)
SIMPLE(none, v.t == J_NONE)
SIMPLE(boolean, v.t == J_BOOL)
SIMPLE(false, v.t == J_BOOL && !v.u.b)
SIMPLE(true, v.t == J_BOOL && v.u.b)
SIMPLE(integer, v.t == J_INT || v.t == J_BIG)
SIMPLE(float, v.t == J_FLOAT)
SIMPLE(string, v.t == J_STR)
SIMPLE(mapping, v.t == J_DICT)
SIMPLE(number, j_is_num(v))
SIMPLE(escaped, v.t == J_STR && v.u.s->markup)
SIMPLE(callable, nbj_is_callable(v))
SIMPLE(sequence, v.t == J_STR || j_is_seq(v) || v.t == J_DICT || v.t == J_RANGE || v.t == J_UNDEF)
SIMPLE(iterable, v.t == J_STR || j_is_seq(v) || v.t == J_DICT || v.t == J_RANGE || v.t == J_UNDEF || v.t == J_VIEW ||
                     v.t == J_ITER || v.t == J_LOOP || v.t == J_SELF)

static int is_remainder(jctx *j, jval v, jval by, int64_t want)
{
    jval r = nbj_binop(j, OP_MOD, v, by);
    return j_bad(r) ? -1 : nbj_equal(j, r, jv_int(want));
}

static int t_odd(jctx *j, jval v, const jargs *a)
{
    return args(j, "odd", a, 0, NULL) ? is_remainder(j, v, jv_int(2), 1) : -1;
}
static int t_even(jctx *j, jval v, const jargs *a)
{
    return args(j, "even", a, 0, NULL) ? is_remainder(j, v, jv_int(2), 0) : -1;
}

static int t_divisibleby(jctx *j, jval v, const jargs *a)
{
    jval n;
    return nbj_bind(j, "divisibleby", a, (const char *const[]){"num"}, 1, 1, &n) ? is_remainder(j, v, n, 0) : -1;
}

static int known(jctx *j, jval v, const jargs *a, bool filter)
{
    if (!args(j, filter ? "filter" : "test", a, 0, NULL)) return -1;
    if (v.t == J_LIST || v.t == J_DICT) return nbj_fail(j, "TypeError", "unhashable type: '%s'", nbj_type_name(v)), -1;
    if (v.t != J_STR) return 0;
    return filter ? nbj_filter(js_view(v.u.s)) != NULL : nbj_test(js_view(v.u.s)) != NULL;
}

static int t_filter(jctx *j, jval v, const jargs *a) { return known(j, v, a, true); }
static int t_test(jctx *j, jval v, const jargs *a) { return known(j, v, a, false); }

static int cased(jctx *j, jval v, const jargs *a, const char *method)
{
    if (!args(j, method, a, 0, NULL)) return -1;
    v = nbj_to_str(j, v);
    if (j_bad(v)) return -1;
    jval r = nbj_call(j, nbj_method_of(j, v, nb_str_of(method)), a);
    return j_bad(r) ? -1 : r.u.b;
}

static int t_lower(jctx *j, jval v, const jargs *a) { return cased(j, v, a, "islower"); }
static int t_upper(jctx *j, jval v, const jargs *a) { return cased(j, v, a, "isupper"); }

static int t_sameas(jctx *j, jval v, const jargs *a)
{
    jval o;
    if (!args(j, "sameas", a, 1, &o)) return -1;
    if (v.t != o.t) return 0;
    bool by_value = v.t == J_NONE || v.t == J_BOOL || v.t == J_INT;
    if (v.t == J_STR && !v.u.s->markup && !o.u.s->markup) /* Python has each short string once */
        by_value = v.u.s->n < 2 || (v.u.s->n == 2 && (uint8_t)v.u.s->p[0] < 0xC4 && nbj_chars(v.u.s) == 1);
    return by_value ? nbj_equal(j, v, o) : v.u.p == o.u.p;
}

static int t_in(jctx *j, jval v, const jargs *a)
{
    jval box;
    return nbj_bind(j, "in", a, (const char *const[]){"seq"}, 1, 1, &box) ? nbj_contains(j, box, v) : -1;
}

static int t_eq(jctx *j, jval v, const jargs *a)
{
    jval o;
    return args(j, "eq", a, 1, &o) ? nbj_equal(j, v, o) : -1;
}

static int t_ne(jctx *j, jval v, const jargs *a)
{
    int eq = t_eq(j, v, a);
    return eq < 0 ? eq : !eq;
}

static int order(jctx *j, jval v, const jargs *a, jop op)
{
    jval o;
    return args(j, "compare", a, 1, &o) ? nbj_compare(j, op, v, o) : -1;
}

static int t_gt(jctx *j, jval v, const jargs *a) { return order(j, v, a, OP_GT); }
static int t_ge(jctx *j, jval v, const jargs *a) { return order(j, v, a, OP_GE); }
static int t_lt(jctx *j, jval v, const jargs *a) { return order(j, v, a, OP_LT); }
static int t_le(jctx *j, jval v, const jargs *a) { return order(j, v, a, OP_LE); }

static const jtest tests[] = {
    {"odd", t_odd},
    {"even", t_even},
    {"divisibleby", t_divisibleby},
    {"defined", t_defined},
    {"undefined", t_undefined},
    {"filter", t_filter},
    {"test", t_test},
    {"none", t_none},
    {"boolean", t_boolean},
    {"false", t_false},
    {"true", t_true},
    {"integer", t_integer},
    {"float", t_float},
    {"lower", t_lower},
    {"upper", t_upper},
    {"string", t_string},
    {"mapping", t_mapping},
    {"number", t_number},
    {"sequence", t_sequence},
    {"iterable", t_iterable},
    {"callable", t_callable},
    {"sameas", t_sameas},
    {"escaped", t_escaped},
    {"in", t_in},
    {"==", t_eq},
    {"eq", t_eq},
    {"equalto", t_eq},
    {"!=", t_ne},
    {"ne", t_ne},
    {">", t_gt},
    {"gt", t_gt},
    {"greaterthan", t_gt},
    {">=", t_ge},
    {"ge", t_ge},
    {"<", t_lt},
    {"lt", t_lt},
    {"lessthan", t_lt},
    {"<=", t_le},
    {"le", t_le},
};

const jtest *nbj_test(nb_str name)
{
    for (size_t i = 0; i < NB_COUNT(tests); i++) {
        if (nb_str_is(name, tests[i].name)) return &tests[i];
    }
    return NULL;
}
