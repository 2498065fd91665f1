/* text/jinja_attr: a.b, a[b] and a[b:c:d], with the sandbox's rules. */
#include "text/jinja.h"

/* A method by name. */
static const jmethdef *in_table(const jmethdef *t, nb_str name)
{
    for (; t->name; t++) {
        if (name.n && t->name[0] == name.p[0] && nb_str_is(name, t->name)) return t;
    }
    return NULL;
}

/* obj.method as a value. */
static jval bound(jctx *j, jval self, const jmethdef *def)
{
    jmethod *m = nbj_alloc(j, sizeof *m);
    if (!m) return jv(J_ERR);
    *m = (jmethod){self, def};
    jval v = jv(J_METHOD);
    v.u.method = m;
    return v;
}

/* The first table that has the name; the list of tables ends with NULL. */
static jval from_tables(jctx *j, jval o, nb_str name, const jmethdef *const *tables)
{
    for (; *tables; tables++) {
        const jmethdef *d = in_table(*tables, name);
        if (d) return bound(j, o, d);
    }
    return jv(J_MISSING);
}

static jval number_attr(jctx *j, jval o, nb_str name)
{
    bool real = nb_str_is(name, "real"), imag = nb_str_is(name, "imag");
    if (real || imag)
        return o.t == J_FLOAT ? jv_float(real ? o.u.f : 0.0) : !real ? jv_int(0) : o.t == J_BOOL ? jv_int(o.u.b) : o;
    if (o.t != J_FLOAT && nb_str_is(name, "numerator")) return o.t == J_BOOL ? jv_int(o.u.b) : o;
    if (o.t != J_FLOAT && nb_str_is(name, "denominator")) return jv_int(1);
    const jmethdef *d = in_table(o.t == J_FLOAT ? nbj_num_methods : nbj_int_methods, name);
    return d ? bound(j, o, d) : jv(J_MISSING);
}

/* What Jinja's Macro objects show. */
static jval macro_attr(jctx *j, const jmacro *m, nb_str name)
{
    const jbody *b = m->node->body;
    if (nb_str_is(name, "name")) return m->name ? jv_str(m->name) : jv(J_NONE);
    if (nb_str_is(name, "catch_kwargs")) return jv_bool(b->kwargs != 0);
    if (nb_str_is(name, "catch_varargs")) return jv_bool(b->varargs != 0);
    if (nb_str_is(name, "caller")) return jv_bool(b->caller != 0);
    if (nb_str_is(name, "explicit_caller")) return jv_bool(b->explicit_caller);
    if (!nb_str_is(name, "arguments")) return jv(J_MISSING);
    jlist *l = nbj_list(j, b->params.n);
    for (uint32_t i = 0; l && i < b->params.n; i++) nbj_push_val(j, l, jv_str(b->params.v[i]->name));
    return l ? jv_tuple(l) : jv(J_ERR);
}

/* Python attributes of a value: methods and the few properties. */
jval nbj_method_of(jctx *j, jval o, nb_str name)
{
    jval v;
    switch (o.t) {
    case J_STR:
        return from_tables(
            j, o, name,
            (const jmethdef *const[]){nbj_str_methods, nbj_str_tests, o.u.s->markup ? nbj_markup_methods : NULL, NULL});
    case J_LIST: return from_tables(j, o, name, (const jmethdef *const[]){nbj_list_methods, nbj_list_edits, NULL});
    case J_TUPLE:
        if (o.u.l->group && nb_str_is(name, "grouper")) return o.u.l->v[0];
        if (o.u.l->group && nb_str_is(name, "list")) return o.u.l->v[1];
        return from_tables(j, o, name, (const jmethdef *const[]){nbj_tuple_methods, NULL});
    case J_DICT: return from_tables(j, o, name, (const jmethdef *const[]){nbj_dict_methods, nbj_dict_edits, NULL});
    case J_BOOL:
    case J_INT:
    case J_BIG:
    case J_FLOAT: return number_attr(j, o, name);
    case J_NS: return nbj_dict_find(o.u.d, name, &v) ? v : jv(J_MISSING);
    case J_RANGE:
        if (nb_str_is(name, "start")) return jv_int(o.u.range->start);
        if (nb_str_is(name, "stop")) return jv_int(o.u.range->stop);
        if (nb_str_is(name, "step")) return jv_int(o.u.range->step);
        return from_tables(j, o, name, (const jmethdef *const[]){nbj_tuple_methods, NULL});
    case J_MACRO: return macro_attr(j, o.u.macro, name);
    case J_LOOP:
        v = nbj_loop_attr(j, o.u.loop, name);
        return v.t != J_MISSING ? v : from_tables(j, o, name, (const jmethdef *const[]){nbj_loop_methods, NULL});
    case J_CYCLER:
        if (nb_str_is(name, "current")) return o.u.cycler->v[o.u.cycler->pos];
        if (nb_str_is(name, "pos")) return jv_int(o.u.cycler->pos);
        if (nb_str_is(name, "items")) {
            jlist *l = nbj_list(j, o.u.cycler->n);
            for (uint32_t i = 0; l && i < o.u.cycler->n; i++) nbj_push_val(j, l, o.u.cycler->v[i]);
            return l ? jv_tuple(l) : jv(J_ERR);
        }
        return from_tables(j, o, name, (const jmethdef *const[]){nbj_cycler_methods, NULL});
    case J_JOINER:
        if (nb_str_is(name, "sep")) return o.u.joiner->sep;
        return nb_str_is(name, "used") ? jv_bool(o.u.joiner->used) : jv(J_MISSING);
    case J_FUNC:
        return nb_str_eq(nb_str_of(o.u.func->name), NB_LIT("dict"))
                   ? from_tables(j, o, name, (const jmethdef *const[]){nbj_dict_type_methods, NULL})
                   : jv(J_MISSING);
    default: return jv(J_MISSING);
    }
}

/* Attributes that every Python object has; the sandbox refuses them. */
static bool is_internal(jval o, nb_str name)
{
    static const char *const names[] = {
        "__class__",         "__init__",         "__doc__",       "__dict__",    "__module__",
        "__new__",           "__repr__",         "__str__",       "__eq__",      "__ne__",
        "__hash__",          "__getattribute__", "__setattr__",   "__delattr__", "__dir__",
        "__format__",        "__reduce__",       "__reduce_ex__", "__sizeof__",  "__subclasshook__",
        "__init_subclass__", "__lt__",           "__le__",        "__gt__",      "__ge__",
    };
    static const char *const sized[] = {"__len__", "__iter__", "__contains__", "__getitem__"};
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        if (nb_str_is(name, names[i])) return o.t != J_NS;
    }
    for (size_t i = 0; i < NB_COUNT(sized); i++) {
        if (nb_str_is(name, sized[i]))
            return o.t == J_UNDEF || o.t == J_STR || j_is_seq(o) || o.t == J_DICT || o.t == J_RANGE;
    }
    return false;
}

static jval no_attribute(jctx *j, jval o, const jstr *name) { return nbj_undef_key(j, o, jv_str(name), NULL); }
static jval unsafe(jctx *j, jval o, const jstr *name) { return nbj_undef_key(j, o, jv_str(name), "SecurityError"); }

/* The Python attribute `name`, J_MISSING where there is none; one that the sandbox refuses gives an undefined value
 * that fails when used. */
static jval attribute(jctx *j, jval o, const jstr *name)
{
    nb_str n = js_view(name);
    if (n.n && n.p[0] == '_' && o.t != J_NS) return is_internal(o, n) ? unsafe(j, o, name) : jv(J_MISSING);
    jval v = nbj_method_of(j, o, n);
    if (v.t != J_METHOD) return v;
    bool edit = (o.t == J_LIST && in_table(nbj_list_edits, n)) || (o.t == J_DICT && in_table(nbj_dict_edits, n));
    if (!edit || o.t == J_NS) return v;
    bool allowed = j->extend && o.t == J_LIST && !o.u.l->req && v.u.method->def->fn;
    return allowed ? v : unsafe(j, o, name);
}

/* a.b: the attribute first, then the key. */
jval nbj_getattr(jctx *j, jval o, const jstr *name)
{
    if (o.t == J_UNDEF) return is_internal(o, js_view(name)) ? unsafe(j, o, name) : nbj_use_undef(j, o);
    jval v = attribute(j, o, name);
    if (v.t != J_MISSING) return v;
    if (o.t == J_DICT && nbj_dict_find(o.u.d, js_view(name), &v)) return v;
    return no_attribute(j, o, name);
}

jval nbj_getattr_only(jctx *j, jval o, const jstr *name)
{
    if (o.t == J_UNDEF) return nbj_getattr(j, o, name);
    jval v = attribute(j, o, name);
    return v.t != J_MISSING ? v : no_attribute(j, o, name);
}

/* ---- o[key] ---- */

static jval char_at(jctx *j, const jstr *s, int64_t i)
{
    if (nbj_chars(s) != s->n && !nbj_step(j, s->n / 32)) return jv(J_ERR);
    uint32_t from = nbj_offset(s, (uint32_t)i), to = from + 1;
    while (to < s->n && ((uint8_t)s->p[to] & 0xC0) == 0x80) to++;
    return nbj_slice(j, s, from, to);
}

/* An item by index, J_MISSING outside. */
static jval element(jctx *j, jval o, int64_t i)
{
    int64_t n = nbj_len(j, o);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return jv(J_MISSING);
    if (o.t == J_STR) return char_at(j, o.u.s, i);
    if (o.t == J_RANGE) return jv_int(o.u.range->start + i * o.u.range->step);
    return o.u.l->v[i];
}

/* a[b]: the key or index first, then the attribute of that name. */
jval nbj_getitem(jctx *j, jval o, jval key)
{
    if (o.t == J_UNDEF) return nbj_use_undef(j, o);
    jval v = jv(J_MISSING);
    int64_t i;
    if (o.t == J_DICT && nbj_can_hash(j, key)) {
        if (nbj_dict_get(j, o.u.d, key, &v) < 0) return jv(J_ERR);
    } else if ((o.t == J_STR || j_is_seq(o) || o.t == J_RANGE) && nbj_int_of(key, &i)) {
        v = element(j, o, i);
    }
    if (v.t != J_MISSING) return v;
    if (j->failed) return jv(J_ERR);
    if (key.t == J_STR) {
        v = attribute(j, o, key.u.s);
        return v.t != J_MISSING ? v : no_attribute(j, o, key.u.s);
    }
    return nbj_undef_key(j, o, key, NULL);
}

/* ---- o[start:stop:step] ---- */

/* A bound of a slice; huge integers are clamped. */
static bool bound_of(jctx *j, jval v, int64_t *out)
{
    if (nbj_int_of(v, out)) return true;
    if (v.t == J_BIG) {
        *out = v.u.big->neg ? -((int64_t)1 << 62) : (int64_t)1 << 62;
        return true;
    }
    nbj_fail(j, "TypeError", "slice indices must be integers or None or have an __index__ method");
    return false;
}

/* start, stop and step as slice.indices() gives them. */
bool nbj_slice_bounds(jctx *j, int64_t len, const jval part[3], int64_t *start, int64_t *stop, int64_t *step)
{
    *step = 1;
    if (part[2].t != J_NONE && !bound_of(j, part[2], step)) return false;
    if (*step == 0) return nbj_fail(j, "ValueError", "slice step cannot be zero"), false;
    if (*step < -((int64_t)1 << 62)) *step = -((int64_t)1 << 62);
    int64_t low = *step < 0 ? -1 : 0, high = *step < 0 ? len - 1 : len, *out[2] = {start, stop};
    for (int i = 0; i < 2; i++) {
        if (part[i].t == J_NONE) {
            *out[i] = (*step < 0) == (i == 0) ? high : low;
            continue;
        }
        int64_t v;
        if (!bound_of(j, part[i], &v)) return false;
        if (v < 0)
            v = v < -len ? low : v + len < low ? low : v + len;
        else if (v > high)
            v = high;
        *out[i] = v;
    }
    return true;
}

/* How many items a slice has. */
static uint64_t count_of(int64_t start, int64_t stop, int64_t step)
{
    if (step > 0) return start < stop ? ((uint64_t)(stop - start) - 1) / (uint64_t)step + 1 : 0;
    return start > stop ? ((uint64_t)(start - stop) - 1) / (0 - (uint64_t)step) + 1 : 0;
}

static jval slice_str(jctx *j, const jstr *s, int64_t start, int64_t step, uint64_t n)
{
    if (!n) return nbj_slice(j, s, 0, 0);
    if (nbj_chars(s) != s->n && !nbj_step(j, s->n / 32)) return jv(J_ERR);
    if (step == 1)
        return nbj_slice(j, s, nbj_offset(s, (uint32_t)start), nbj_offset(s, (uint32_t)(start + (int64_t)n)));
    uint32_t chars = nbj_chars(s), *off = NULL;
    if (chars != s->n) { /* where each character begins */
        off = nbj_array(j, (size_t)chars + 1, sizeof *off);
        if (!off) return jv(J_ERR);
        for (uint32_t i = 0, c = 0; i < s->n; i++) {
            if (((uint8_t)s->p[i] & 0xC0) != 0x80) off[c++] = i;
        }
        off[chars] = s->n;
    }
    jbuf *b = nbj_push(j);
    if (!b || !nbj_step(j, n)) return jv(J_ERR);
    for (uint64_t k = 0; k < n; k++) {
        uint32_t i = (uint32_t)(start + (int64_t)k * step);
        nbj_add_part(j, b, s, off ? off[i] : i, off ? off[i + 1] : i + 1);
    }
    return nbj_as_markup(j, nbj_pop(j), s->markup);
}

/* Strings by code points; a range gives a range. */
jval nbj_slice_of(jctx *j, jval o, jval first, jval last, jval by)
{
    const jval part[3] = {first, last, by};
    int64_t start, stop, step;
    if (o.t == J_UNDEF) return nbj_use_undef(j, o);
    if (o.t == J_DICT) return nbj_fail(j, "TypeError", "unhashable type: 'slice'");
    if (o.t != J_STR && !j_is_seq(o) && o.t != J_RANGE)
        return nbj_fail(j, "TypeError", "'%s' object is not subscriptable", nbj_type_name(o));
    if (!nbj_slice_bounds(j, nbj_len(j, o), part, &start, &stop, &step)) return jv(J_ERR);
    uint64_t n = count_of(start, stop, step);
    if (o.t == J_STR) return slice_str(j, o.u.s, start, step, n);
    if (o.t == J_RANGE) {
        jrange *r = nbj_alloc(j, sizeof *r);
        if (!r) return jv(J_ERR);
        const jrange *of = o.u.range;
        int64_t wide = __builtin_mul_overflow(of->step, step, &r->step) ? 1 : 0;
        if (wide) r->step = 1;
        r->start = of->start + start * of->step;
        r->stop = of->start + stop * of->step;
        r->len = (int64_t)n;
        jval v = jv(J_RANGE);
        v.u.range = r;
        return v;
    }
    jlist *l = nbj_list(j, (uint32_t)n);
    if (!l || !nbj_step(j, n)) return jv(J_ERR);
    for (uint64_t k = 0; k < n; k++) l->v[k] = o.u.l->v[start + (int64_t)k * step];
    l->n = (uint32_t)n;
    l->req = o.u.l->req;
    return o.t == J_LIST ? jv_list(l) : jv_tuple(l);
}
