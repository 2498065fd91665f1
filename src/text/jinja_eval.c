/* text/jinja_eval: expressions. */
#include "text/jinja.h"

/* ---- names ---- */

/* The variable that a reference means now. */
static jval *slot(jctx *j, jref r)
{
    jact *a = j->act;
    for (uint16_t i = 0; i < r.up; i++) a = a->up;
    return &a->slot[r.slot];
}

static jval eval_name(jctx *j, const jnode *n)
{
    jval v = *slot(j, n->ref);
    return v.t == J_MISSING ? nbj_undef(j, NULL, n->name, NULL) : v;
}

/* A name that no frame knows: the request's variables, then the globals. */
static jval lookup(jctx *j, const jstr *name)
{
    jval v;
    if (nbj_dict_find(j->globals, js_view(name), &v)) return v;
    return nbj_global(js_view(name));
}

/* Prepares the variables of a frame. */
void nbj_enter(jctx *j, const jscope *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const jloadop *op = &s->ops[i];
        switch (op->op) {
        case L_PARAM: break;
        case L_RESOLVE: j->act->slot[op->slot] = lookup(j, op->name); break;
        case L_ALIAS: j->act->slot[op->slot] = *slot(j, op->from); break;
        case L_UNDEF: j->act->slot[op->slot] = jv(J_MISSING); break;
        case L_SELF: j->act->slot[op->slot] = jv(J_SELF); break;
        }
    }
}

/* Unpacks any iterable of the right length. */
static bool assign_tuple(jctx *j, const jnode *n, jval v)
{
    jlist *l = j_is_seq(v) ? v.u.l : nbj_collect(j, v);
    if (!l) return false;
    if (l->n != n->kids.n) {
        j->at = n;
        if (l->n > n->kids.n)
            nbj_fail(j, "ValueError", "too many values to unpack (expected %u)", n->kids.n);
        else
            nbj_fail(j, "ValueError", "not enough values to unpack (expected %u, got %u)", n->kids.n, l->n);
        return false;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        if (!nbj_assign(j, n->kids.v[i], l->v[i])) return false;
    }
    return true;
}

/* set ns.attr = v */
static bool assign_attr(jctx *j, const jnode *n, jval v)
{
    jval ns = *slot(j, n->ref);
    j->at = n;
    /* Plain assignments have been checked before; for the others Jinja leaves it to Python. */
    if (ns.t == J_DICT && !ns.u.d->req) return nbj_dict_set(j, ns.u.d, n->value, v);
    if (ns.t != J_NS)
        return nbj_fail(j, "TypeError", "'%s' object does not support item assignment", nbj_type_name(ns)), false;
    const jstr *name = n->value.u.s;
    if (name->n && name->p[0] == '_') {
        nbj_fail(j, "SecurityError",
                 "Chat templates cannot store underscore-prefixed attributes on a namespace, but got '%.*s'. Please "
                 "rename the attribute.",
                 (int)name->n, name->p);
        return false;
    }
    return nbj_dict_set(j, ns.u.d, n->value, v);
}

/* Binds a target: a name, a tuple of targets or an attribute of a namespace. */
bool nbj_assign(jctx *j, const jnode *n, jval v)
{
    if (j_bad(v)) return false;
    if (n->kind == N_TUPLE) return assign_tuple(j, n, v);
    if (n->kind == N_NSREF) return assign_attr(j, n, v);
    *slot(j, n->ref) = v;
    return true;
}

/* ---- operators ---- */

/* Items are shared, not copied; at most a million. */
static jval repeat_list(jctx *j, jval seq, int64_t times)
{
    uint64_t n = times > 0 ? (uint64_t)times * seq.u.l->n : 0;
    if (seq.u.l->n && (n > 1000000 || times > 1000000))
        return nbj_fail(j, "MemoryError", "a list of more than a million items");
    jlist *l = nbj_list(j, (uint32_t)n);
    if (!l || !nbj_step(j, n)) return jv(J_ERR);
    for (uint64_t i = 0; i < n; i++) l->v[i] = seq.u.l->v[i % seq.u.l->n];
    l->n = (uint32_t)n;
    l->req = seq.u.l->req;
    return seq.t == J_LIST ? jv_list(l) : jv_tuple(l);
}

/* Strings and sequences times a number. */
static jval repeat(jctx *j, jval seq, jval times)
{
    int64_t n;
    if (!nbj_int_of(times, &n)) {
        if (times.t == J_BIG) return nbj_fail(j, "OverflowError", "cannot fit 'int' into an index-sized integer");
        return nbj_fail(j, "TypeError", "can't multiply sequence by non-int of type '%s'", nbj_type_name(times));
    }
    if (seq.t != J_STR) return repeat_list(j, seq, n);
    if (n == 1) return seq;
    jbuf *b = nbj_push(j);
    if (n > 0 && seq.u.s->n && (uint64_t)n > j->lim.output_bytes / seq.u.s->n)
        return nbj_fail(j, "MemoryError", "a string is too long");
    if (!nbj_step(j, n > 0 ? (uint64_t)n : 0)) return jv(J_ERR);
    for (int64_t i = 0; i < n && seq.u.s->n; i++) nbj_add_str(j, b, seq.u.s);
    return nbj_as_markup(j, nbj_pop(j), seq.u.s->markup);
}

/* Origins stay with the items. */
static jval join_lists(jctx *j, jval a, jval b)
{
    jlist *l = nbj_list(j, a.u.l->n + b.u.l->n);
    if (!l || !nbj_step(j, a.u.l->n + b.u.l->n)) return jv(J_ERR);
    for (uint32_t i = 0; i < a.u.l->n; i++) l->v[l->n++] = a.u.l->v[i];
    for (uint32_t i = 0; i < b.u.l->n; i++) l->v[l->n++] = b.u.l->v[i];
    return a.t == J_LIST ? jv_list(l) : jv_tuple(l);
}

/* Python's words for operands that do not fit. */
static jval unsupported(jctx *j, jop op, jval a, jval b)
{
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};
    if (op == OP_ADD && a.t == J_STR)
        return nbj_fail(j, "TypeError", "can only concatenate str (not \"%s\") to str", nbj_type_name(b));
    if (op == OP_ADD && j_is_seq(a))
        return nbj_fail(j, "TypeError", "can only concatenate %s (not \"%s\") to %s", nbj_type_name(a),
                        nbj_type_name(b), nbj_type_name(a));
    return nbj_fail(j, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", signs[op], nbj_type_name(a),
                    nbj_type_name(b));
}

/* Undefined operands raise, but for str % undefined, which formats. */
jval nbj_binop(jctx *j, jop op, jval a, jval b)
{
    if (j_bad(a) || j_bad(b)) return jv(J_ERR);
    if (j_is_num(a) && j_is_num(b)) return nbj_arith(j, op, a, b);
    if (a.t == J_STR && op == OP_MOD) return nbj_percent(j, a.u.s, b);
    if (a.t == J_UNDEF || b.t == J_UNDEF) return nbj_use_undef(j, a.t == J_UNDEF ? a : b);
    if (op == OP_ADD && a.t == J_STR && b.t == J_STR) return nbj_concat(j, a.u.s, b.u.s);
    if (op == OP_ADD && j_is_seq(a) && a.t == b.t) return join_lists(j, a, b);
    if (op == OP_MUL && (a.t == J_STR || j_is_seq(a))) return repeat(j, a, b);
    if (op == OP_MUL && (b.t == J_STR || j_is_seq(b)) && j_is_num(a)) return repeat(j, b, a);
    return unsupported(j, op, a, b);
}

static jval eval_unary(jctx *j, const jnode *n)
{
    jval v = nbj_eval(j, n->a);
    if (j_bad(v)) return v;
    j->at = n;
    if (v.t == J_UNDEF) return nbj_use_undef(j, v);
    if (!j_is_num(v))
        return nbj_fail(j, "TypeError", "bad operand type for unary %c: '%s'", n->kind == N_NEG ? '-' : '+',
                        nbj_type_name(v));
    if (n->kind == N_NEG) return nbj_neg(j, v);
    return v.t == J_BOOL ? jv_int(v.u.b) : v;
}

/* Stops at the first comparison that does not hold; each operand is evaluated once. */
static jval eval_compare(jctx *j, const jnode *n)
{
    jval left = nbj_eval(j, n->a);
    int r = 1;
    for (uint32_t i = 0; r == 1 && i < n->kids.n; i++) {
        const jnode *k = n->kids.v[i];
        jval right = j_bad(left) ? left : nbj_eval(j, k->a);
        if (j_bad(right)) return right;
        j->at = k;
        switch (k->op) {
        case OP_EQ: r = nbj_equal(j, left, right); break;
        case OP_NE:
            r = nbj_equal(j, left, right);
            if (r >= 0) r = !r;
            break;
        case OP_IN: r = nbj_contains(j, right, left); break;
        case OP_NOTIN:
            r = nbj_contains(j, right, left);
            if (r >= 0) r = !r;
            break;
        default: r = nbj_compare(j, (jop)k->op, left, right);
        }
        left = right;
    }
    return r < 0 ? jv(J_ERR) : jv_bool(r);
}

/* ~ makes text of everything and never escapes. */
static jval eval_concat(jctx *j, const jnode *n)
{
    jval all = jv(J_MISSING);
    for (uint32_t i = 0; i < n->kids.n; i++) {
        jval v = nbj_eval(j, n->kids.v[i]);
        if (j_bad(v)) return v;
        j->at = n->kids.v[i];
        v = nbj_as_markup(j, nbj_to_str(j, v), false);
        all = i == 0 || j_bad(v) ? v : nbj_concat(j, all.u.s, v.u.s);
        if (j_bad(all)) return all;
    }
    return all;
}

/* ---- displays ---- */

static jval eval_list(jctx *j, const jnode *n)
{
    jlist *l = nbj_list(j, n->kids.n);
    for (uint32_t i = 0; l && i < n->kids.n; i++) {
        if (!nbj_push_val(j, l, nbj_eval(j, n->kids.v[i]))) return jv(J_ERR);
    }
    if (!l) return jv(J_ERR);
    return n->kind == N_LIST ? jv_list(l) : jv_tuple(l);
}

static jval eval_dict(jctx *j, const jnode *n)
{
    jdict *d = nbj_dict(j, n->kids.n / 2);
    for (uint32_t i = 0; d && i + 1 < n->kids.n; i += 2) {
        jval key = nbj_eval(j, n->kids.v[i]), v = j_bad(key) ? key : nbj_eval(j, n->kids.v[i + 1]);
        j->at = n->kids.v[i];
        if (!nbj_dict_set(j, d, key, v)) return jv(J_ERR);
    }
    return d ? jv_dict(d) : jv(J_ERR);
}

/* a[b], and a[b:c:d] whose parts are evaluated first. */
static jval eval_item(jctx *j, const jnode *n)
{
    jval o = nbj_eval(j, n->a);
    if (j_bad(o)) return o;
    if (n->b->kind != N_SLICE) {
        jval key = nbj_eval(j, n->b);
        j->at = n;
        return j_bad(key) ? key : nbj_getitem(j, o, key);
    }
    const jnode *s = n->b;
    jval part[3];
    const jnode *expr[3] = {s->a, s->b, s->c};
    for (int i = 0; i < 3; i++) {
        part[i] = expr[i] ? nbj_eval(j, expr[i]) : jv(J_NONE);
        if (j_bad(part[i])) return part[i];
    }
    j->at = n;
    bool sliceable = o.t == J_STR || j_is_seq(o) || o.t == J_RANGE || o.t == J_UNDEF;
    for (int i = 0; i < 3; i++) sliceable = sliceable && (part[i].t == J_NONE || j_is_int(part[i]) || o.t == J_UNDEF);
    if (n->folded && !sliceable) return nbj_undef(j, "the object has no such slice", NULL, NULL);
    return nbj_slice_of(j, o, part[0], part[1], part[2]);
}

/* ---- calls ---- */

/* Adds a keyword argument; a second one of that name is an error. */
static bool add_kw(jctx *j, jargs *a, uint32_t *cap, const jstr *name, jval v)
{
    for (uint32_t i = 0; i < a->nkw; i++) {
        if (nb_str_eq(js_view(a->kw[i].name), js_view(name)))
            return nbj_fail(j, "TypeError", "got multiple values for keyword argument '%.*s'", (int)name->n, name->p),
                   false;
    }
    if (a->nkw == *cap) {
        *cap = *cap ? 2 * *cap : 4;
        jkw *p = nbj_array(j, *cap, sizeof *p);
        if (!p) return false;
        if (a->nkw) memcpy(p, a->kw, a->nkw * sizeof *p);
        a->kw = p;
    }
    a->kw[a->nkw++] = (jkw){name, v};
    return true;
}

/* **v */
static bool spread_kw(jctx *j, jargs *a, uint32_t *cap, jval v)
{
    if (v.t != J_DICT)
        return nbj_fail(j, "TypeError", "argument after ** must be a mapping, not %s", nbj_type_name(v)), false;
    for (uint32_t i = 0; i < v.u.d->n; i++) {
        if (v.u.d->e[i].key.t != J_STR) return nbj_fail(j, "TypeError", "keywords must be strings"), false;
        if (!add_kw(j, a, cap, v.u.d->e[i].key.u.s, v.u.d->e[i].val)) return false;
    }
    return true;
}

/* Evaluates arguments in Python's order. */
static bool eval_args(jctx *j, const jcallargs *c, jargs *a)
{
    *a = (jargs){0};
    if (!c) return true;
    uint32_t cap = c->kw.n;
    if (c->pos.n && !(a->v = nbj_array(j, c->pos.n, sizeof *a->v))) return false;
    for (; a->n < c->pos.n; a->n++) {
        a->v[a->n] = nbj_eval(j, c->pos.v[a->n]);
        if (j_bad(a->v[a->n])) return false;
    }
    if (c->dyn) {
        jval v = nbj_eval(j, c->dyn);
        jlist *more = j_bad(v) ? NULL : nbj_collect(j, v);
        jval *all = more ? nbj_array(j, a->n + more->n, sizeof *all) : NULL;
        if (!all) return false;
        if (a->n) memcpy(all, a->v, a->n * sizeof *all);
        if (more->n) memcpy(all + a->n, more->v, more->n * sizeof *all);
        a->v = all;
        a->n += more->n;
    }
    if (cap && !(a->kw = nbj_array(j, cap, sizeof *a->kw))) return false;
    for (uint32_t i = 0; i < c->kw.n; i++) {
        jval v = nbj_eval(j, c->kw.v[i]);
        if (j_bad(v) || !add_kw(j, a, &cap, c->kwname[i], v)) return false;
    }
    if (!c->dynkw) return true;
    jval v = nbj_eval(j, c->dynkw);
    return !j_bad(v) && spread_kw(j, a, &cap, v);
}

jval nbj_eval_call(jctx *j, const jnode *n, jval caller)
{
    jval fn = nbj_eval(j, n->a);
    jargs a;
    if (j_bad(fn) || !eval_args(j, n->args, &a)) return jv(J_ERR);
    uint32_t cap = a.nkw;
    static const jstr name = {.p = "caller", .n = 6, .chars = 6, .trusted = true};
    if (caller.t != J_MISSING && !add_kw(j, &a, &cap, &name, caller)) return jv(J_ERR);
    j->at = n;
    return nbj_call(j, fn, &a);
}

/* A filter or test that does not exist, reached at last. */
static jval no_such(jctx *j, const jnode *n)
{
    return nbj_fail(j, "TemplateRuntimeError", "No %s named '%.*s' found.", n->kind == N_FILTER ? "filter" : "test",
                    (int)n->name->n, n->name->p);
}

jval nbj_eval_filter(jctx *j, const jnode *n, jval in)
{
    jargs a;
    /* A chain that stands for itself ({% filter a|b %}) begins with what the block printed. */
    if (n->a) in = n->a->kind == N_FILTER ? nbj_eval_filter(j, n->a, in) : nbj_eval(j, n->a);
    if (j_bad(in)) return in;
    if (!eval_args(j, n->args, &a)) return jv(J_ERR);
    j->at = n;
    const jfilter *f = n->def;
    if (!f && j->extend && nb_str_is(js_view(n->name), "from_json")) {
        jval v = in.t == J_STR ? nbj_parse_json(j, in.u.s) : in;
        return v.t == J_MISSING ? nbj_fail(j, "ValueError", "from_json: the text is not JSON") : v;
    }
    return f ? f->fn(j, in, &a) : no_such(j, n);
}

static jval eval_test(jctx *j, const jnode *n)
{
    jargs a;
    jval v = nbj_eval(j, n->a);
    if (j_bad(v) || !eval_args(j, n->args, &a)) return jv(J_ERR);
    j->at = n;
    const jtest *t = n->def;
    if (!t) return no_such(j, n);
    int r = t->fn(j, v, &a);
    return r < 0 ? jv(J_ERR) : jv_bool(r);
}

static jval eval_cond(jctx *j, const jnode *n)
{
    jval t = nbj_eval(j, n->a);
    if (j_bad(t)) return t;
    if (nbj_truth(j, t)) return nbj_eval(j, n->b);
    if (n->c) return nbj_eval(j, n->c);
    return nbj_undef(j, "the inline if-expression evaluated to false and no else section was defined.", NULL, NULL);
}

/* and, or give one of their operands; not gives a boolean. */
static jval eval_logic(jctx *j, const jnode *n)
{
    jval v = nbj_eval(j, n->a);
    if (j_bad(v)) return v;
    bool truth = nbj_truth(j, v);
    if (n->kind == N_NOT) return jv_bool(!truth);
    return truth == (n->kind == N_AND) ? nbj_eval(j, n->b) : v;
}

static jval eval_node(jctx *j, const jnode *n)
{
    jval v;
    switch (n->kind) {
    case N_CONST: return n->value;
    case N_NAME: return eval_name(j, n);
    case N_LIST:
    case N_TUPLE: return eval_list(j, n);
    case N_DICT: return eval_dict(j, n);
    case N_COND: return eval_cond(j, n);
    case N_OR:
    case N_AND:
    case N_NOT: return eval_logic(j, n);
    case N_NEG:
    case N_POS: return eval_unary(j, n);
    case N_COMPARE: return eval_compare(j, n);
    case N_CONCAT: return eval_concat(j, n);
    case N_BIN: {
        jval a = nbj_eval(j, n->a), b = j_bad(a) ? a : nbj_eval(j, n->b);
        j->at = n;
        return nbj_binop(j, (jop)n->op, a, b);
    }
    case N_GETATTR:
        v = nbj_eval(j, n->a);
        j->at = n;
        return j_bad(v) ? v : nbj_getattr(j, v, n->name);
    case N_GETITEM: return eval_item(j, n);
    case N_CALL: return nbj_eval_call(j, n, jv(J_MISSING));
    case N_FILTER: return nbj_eval_filter(j, n, jv(J_MISSING));
    case N_TEST: return eval_test(j, n);
    case N_SLICE: return nbj_fail(j, "TypeError", "a slice among several subscripts");
    default: return nbj_fail(j, "TemplateRuntimeError", "not an expression");
    }
}

/* Every evaluation counts a step and a level. */
jval nbj_eval(jctx *j, const jnode *n)
{
    if (!nbj_step(j, 1)) return jv(J_ERR);
    if (j->depth >= j->lim.depth) return nbj_fail(j, "RecursionError", "maximum recursion depth exceeded");
    j->depth++;
    j->at = n;
    jval v = eval_node(j, n);
    j->depth--;
    return v;
}
