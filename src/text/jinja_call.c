/* text/jinja_call: calls, binding of arguments, global functions. */
#include "text/jinja.h"

bool nbj_is_callable(jval v)
{
    return v.t == J_MACRO || v.t == J_METHOD || v.t == J_FUNC || v.t == J_LOOP || v.t == J_JOINER || v.t == J_UNDEF;
}

/* Nothing the first time, then the separator. */
static jval call_joiner(jctx *j, jjoiner *o, const jargs *a)
{
    if (a->n || a->nkw) return nbj_fail(j, "TypeError", "Joiner.__call__() takes 1 positional argument");
    bool first = !o->used;
    o->used = true;
    return first ? nbj_cstr(j, "") : o->sep;
}

/* Calls whatever is callable. */
jval nbj_call(jctx *j, jval fn, const jargs *a)
{
    switch (fn.t) {
    case J_ERR: return fn;
    case J_MACRO: return nbj_call_macro(j, fn.u.macro, a);
    case J_FUNC: return fn.u.func->fn(j, jv(J_NONE), a);
    case J_METHOD:
        if (!fn.u.method->def->fn)
            return nbj_fail(j, "SecurityError", "the method '%s' is not available in templates",
                            fn.u.method->def->name);
        return fn.u.method->def->fn(j, fn.u.method->self, a);
    case J_LOOP: return nbj_call_loop(j, fn.u.loop, a);
    case J_JOINER: return call_joiner(j, fn.u.joiner, a);
    case J_UNDEF: return nbj_use_undef(j, fn);
    default: return nbj_fail(j, "TypeError", "'%s' object is not callable", nbj_type_name(fn));
    }
}

/* Puts one keyword argument into its place. */
static bool bind_kw(jctx *j, const char *fn, const jkw *kw, const char *const *names, uint32_t max, jval *out)
{
    for (uint32_t i = 0; i < max; i++) {
        if (names[i][0] == '-' || !nb_str_is(js_view(kw->name), names[i])) continue;
        if (out[i].t != J_MISSING)
            return nbj_fail(j, "TypeError", "%s() got multiple values for argument '%s'", fn, names[i]), false;
        out[i] = kw->v;
        return true;
    }
    nbj_fail(j, "TypeError", "%s() got an unexpected keyword argument '%.*s'", fn, (int)kw->name->n, kw->name->p);
    return false;
}

bool nbj_bind(jctx *j, const char *fn, const jargs *a, const char *const *names, uint32_t req, uint32_t max, jval *out)
{
    if (a->n > max) return nbj_fail(j, "TypeError", "%s() takes at most %u arguments (%u given)", fn, max, a->n), false;
    for (uint32_t i = 0; i < max; i++) out[i] = i < a->n ? a->v[i] : jv(J_MISSING);
    for (uint32_t i = 0; i < a->nkw; i++) {
        if (!bind_kw(j, fn, &a->kw[i], names, max, out)) return false;
    }
    for (uint32_t i = 0; i < req; i++) {
        if (out[i].t == J_MISSING)
            return nbj_fail(j, "TypeError", "%s() missing a required argument: '%s'", fn,
                            names[i] + (names[i][0] == '-')),
                   false;
    }
    return true;
}

const jstr *nbj_want_str(jctx *j, jval v, const char *what)
{
    if (v.t == J_STR) return v.u.s;
    nbj_fail(j, "TypeError", "%s must be str, not %s", what, nbj_type_name(v));
    return NULL;
}

bool nbj_want_int(jctx *j, jval v, int64_t *out)
{
    if (nbj_int_of(v, out)) return true;
    if (v.t == J_BIG)
        nbj_fail(j, "OverflowError", "Python int too large to convert to C ssize_t");
    else
        nbj_fail(j, "TypeError", "'%s' object cannot be interpreted as an integer", nbj_type_name(v));
    return false;
}

/* ---- globals ---- */

/* At most NBJ_MAX_RANGE numbers, the sandbox's own limit. */
static jval fn_range(jctx *j, jval self, const jargs *a)
{
    (void)self;
    int64_t v[3] = {0, 0, 1};
    if (a->nkw || a->n < 1 || a->n > 3)
        return nbj_fail(j, "TypeError", "range expected 1 to 3 arguments, got %u", a->n + a->nkw);
    for (uint32_t i = 0; i < a->n; i++) {
        if (!nbj_want_int(j, a->v[i], &v[a->n == 1 ? 1 : i])) return jv(J_ERR);
    }
    if (v[2] == 0) return nbj_fail(j, "ValueError", "range() arg 3 must not be zero");
    __int128 span = (__int128)v[1] - v[0], n = 0;
    if (v[2] > 0 && span > 0) n = (span - 1) / v[2] + 1;
    if (v[2] < 0 && span < 0) n = (-span - 1) / -(__int128)v[2] + 1;
    if (n > NBJ_MAX_RANGE)
        return nbj_fail(j, "OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                        NBJ_MAX_RANGE);
    jrange *r = nbj_alloc(j, sizeof *r);
    if (!r) return jv(J_ERR);
    *r = (jrange){v[0], v[1], v[2], (int64_t)n};
    jval out = jv(J_RANGE);
    out.u.range = r;
    return out;
}

static jval fn_dict(jctx *j, jval self, const jargs *a)
{
    (void)self;
    jdict *d = nbj_dict(j, a->nkw);
    return d && nbj_dict_update(j, d, a) ? jv_dict(d) : jv(J_ERR);
}

static jval fn_fromkeys(jctx *j, jval self, const jargs *a)
{
    (void)self;
    jval v[2], key;
    if (!nbj_bind(j, "fromkeys", a, (const char *const[]){"-iterable", "-value"}, 1, 2, v)) return jv(J_ERR);
    jdict *d = nbj_dict(j, 0);
    jiter *it = d ? nbj_iter(j, v[0]) : NULL;
    int more = -1;
    while (it && (more = nbj_next(j, it, &key)) > 0) {
        if (!nbj_dict_set(j, d, key, v[1].t == J_MISSING ? jv(J_NONE) : v[1])) return jv(J_ERR);
    }
    return more == 0 ? jv_dict(d) : jv(J_ERR);
}

/* A dict whose keys are attributes; the stand-in of transformers refuses names with an underscore first. */
static jval fn_namespace(jctx *j, jval self, const jargs *a)
{
    jval v = fn_dict(j, self, a);
    if (j_bad(v)) return v;
    for (uint32_t i = 0; i < v.u.d->n; i++) {
        jval key = v.u.d->e[i].key;
        if (key.t != J_STR || !key.u.s->n || key.u.s->p[0] != '_') continue;
        return nbj_fail(j, "SecurityError",
                        "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'. "
                        "Please rename the attribute.",
                        (int)key.u.s->n, key.u.s->p);
    }
    v.t = J_NS;
    return v;
}

static jval fn_cycler(jctx *j, jval self, const jargs *a)
{
    (void)self;
    if (a->nkw) return nbj_fail(j, "TypeError", "Cycler.__init__() got an unexpected keyword argument");
    if (!a->n) return nbj_fail(j, "RuntimeError", "at least one item has to be provided");
    jcycler *c = nbj_alloc(j, sizeof *c);
    if (!c) return jv(J_ERR);
    *c = (jcycler){a->v, a->n, 0};
    jval v = jv(J_CYCLER);
    v.u.cycler = c;
    return v;
}

static jval fn_joiner(jctx *j, jval self, const jargs *a)
{
    (void)self;
    jval sep, text;
    if (!nbj_bind(j, "Joiner.__init__", a, (const char *const[]){"sep"}, 0, 1, &sep)) return jv(J_ERR);
    text = sep.t == J_MISSING ? nbj_cstr(j, ", ") : sep;
    jjoiner *o = nbj_alloc(j, sizeof *o);
    if (!o || j_bad(text)) return jv(J_ERR);
    o->sep = text;
    jval v = jv(J_JOINER);
    v.u.joiner = o;
    return v;
}

/* The message is the template's own and goes to the user as it is. */
static jval fn_raise(jctx *j, jval self, const jargs *a)
{
    (void)self;
    jval m;
    if (!nbj_bind(j, "raise_exception", a, (const char *const[]){"message"}, 1, 1, &m)) return jv(J_ERR);
    m = nbj_to_str(j, m);
    return j_bad(m) ? m : nbj_fail(j, "TemplateError", "%.*s", (int)(m.u.s->n > 500 ? 500 : m.u.s->n), m.u.s->p);
}

static jval fn_strftime(jctx *j, jval self, const jargs *a)
{
    (void)self;
    jval f;
    if (!nbj_bind(j, "strftime_now", a, (const char *const[]){"format"}, 1, 1, &f)) return jv(J_ERR);
    const jstr *s = nbj_want_str(j, f, "strftime() argument 1");
    return s ? nbj_strftime(j, s) : jv(J_ERR);
}

static jval fn_lipsum(jctx *j, jval self, const jargs *a)
{
    (void)self;
    (void)a;
    return nbj_fail(j, "TemplateRuntimeError", "lipsum() gives random text and is not available");
}

static const jfuncdef globals[] = {
    {"range", fn_range},           {"dict", fn_dict},     {"namespace", fn_namespace},
    {"cycler", fn_cycler},         {"joiner", fn_joiner}, {"raise_exception", fn_raise},
    {"strftime_now", fn_strftime}, {"lipsum", fn_lipsum},
};

const jmethdef nbj_dict_type_methods[] = {{"fromkeys", fn_fromkeys}, {NULL, NULL}};

jval nbj_global(nb_str name)
{
    for (size_t i = 0; i < NB_COUNT(globals); i++) {
        if (!nb_str_is(name, globals[i].name)) continue;
        jval v = jv(J_FUNC);
        v.u.func = &globals[i];
        return v;
    }
    return jv(J_MISSING);
}
