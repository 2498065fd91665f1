/* text/jinja_exec: statements, loops, macros. */
#include "text/jinja.h"

static int exec_one(jctx *j, const jnode *n);

/* Runs `b` with its output in a string. *code gets what exec gives. */
static jval capture(jctx *j, const jblock *b, int *code)
{
    jbuf *outer = j->out;
    j->out = nbj_push(j);
    *code = j->out ? nbj_exec(j, b) : -1;
    j->out = outer;
    if (*code < 0) return jv(J_ERR);
    if (*code == 0) return nbj_pop(j);
    nbj_drop(j); /* break and continue leave the text behind */
    return jv(J_NONE);
}

/* Prints what a call or a filter gave. Jinja joins all output in the end; only then what is not text fails. */
static int put_text(jctx *j, jval v)
{
    if (j_bad(v)) return -1;
    if (v.t != J_STR) {
        if (!j->out->odd) j->out->odd = j->at, j->out->odd_type = nbj_type_name(v);
        return 0;
    }
    nbj_add_str(j, j->out, v.u.s);
    return j->failed ? -1 : 0;
}

/* ---- macros ---- */

/* A macro remembers the variables that were in reach where it was defined. */
static jval new_macro(jctx *j, const jnode *n, const jstr *name)
{
    jmacro *m = nbj_alloc(j, sizeof *m);
    if (!m) return jv(J_ERR);
    *m = (jmacro){n, j->act, name};
    jval v = jv(J_MACRO);
    v.u.macro = m;
    return v;
}

/* Variables for one call of a function. */
static jact *new_act(jctx *j, jact *up, uint32_t nslots)
{
    jact *a = nbj_alloc(j, sizeof *a);
    if (!a) return NULL;
    a->up = up;
    a->slot = nbj_array(j, nslots, sizeof *a->slot); /* zeroed: J_MISSING */
    return a->slot ? a : NULL;
}

/* Takes the keyword `name` out of a; false where it is not there. */
static bool take_kw(jargs *a, nb_str name, jval *out)
{
    for (uint32_t i = 0; i < a->nkw; i++) {
        if (!nb_str_eq(js_view(a->kw[i].name), name)) continue;
        *out = a->kw[i].v;
        memmove(a->kw + i, a->kw + i + 1, (a->nkw - i - 1) * sizeof *a->kw);
        a->nkw--;
        return true;
    }
    return false;
}

/* Keyword arguments that no parameter took, as a dict. */
static jval rest_kw(jctx *j, const jargs *a)
{
    jdict *d = nbj_dict(j, a->nkw);
    for (uint32_t i = 0; d && i < a->nkw; i++) {
        if (!nbj_dict_set(j, d, jv_str(a->kw[i].name), a->kw[i].v)) return jv(J_ERR);
    }
    return d ? jv_dict(d) : jv(J_ERR);
}

/* Arguments to slots, and what is left to kwargs, varargs and caller, in the order in which Jinja's Macro does it. */
static bool bind_params(jctx *j, const jmacro *m, jact *act, const jargs *given)
{
    const jbody *b = m->node->body;
    jargs a = *given;
    const char *name = m->name ? m->name->p : "caller";
    int len = m->name ? (int)m->name->n : 6;
    if (a.nkw) { /* names are taken out: work on a copy */
        a.kw = nbj_array(j, a.nkw, sizeof *a.kw);
        if (!a.kw) return false;
        memcpy(a.kw, given->kw, a.nkw * sizeof *a.kw);
    }
    for (uint32_t i = 0; i < b->params.n; i++) {
        if (i < a.n)
            act->slot[b->param_slot[i]] = a.v[i];
        else
            take_kw(&a, js_view(b->params.v[i]->name), &act->slot[b->param_slot[i]]);
    }
    if (b->caller) {
        jval *c = &act->slot[b->caller - 1];
        if (!take_kw(&a, NB_LIT("caller"), c) || c->t == J_NONE) *c = nbj_undef(j, "No caller defined", NULL, NULL);
    }
    if (b->kwargs)
        act->slot[b->kwargs - 1] = rest_kw(j, &a);
    else if (a.nkw)
        return nbj_fail(j, "TypeError", "macro '%.*s' takes no keyword argument '%.*s'", len, name,
                        (int)a.kw[0].name->n, a.kw[0].name->p),
               false;
    uint32_t extra = a.n > b->params.n ? a.n - b->params.n : 0;
    if (b->varargs) {
        jlist *l = nbj_list(j, extra);
        for (uint32_t i = 0; l && i < extra; i++) nbj_push_val(j, l, a.v[b->params.n + i]);
        if (!l) return false;
        act->slot[b->varargs - 1] = jv_tuple(l);
    } else if (extra) {
        return nbj_fail(j, "TypeError", "macro '%.*s' takes not more than %u argument(s)", len, name, b->params.n),
               false;
    }
    return !j->failed;
}

/* Defaults are evaluated at each call, in the macro's own frame, left to right. */
static bool fill_defaults(jctx *j, const jbody *b)
{
    uint32_t first = b->params.n - b->defaults.n;
    for (uint32_t i = 0; i < b->params.n; i++) {
        jval *v = &j->act->slot[b->param_slot[i]];
        if (v->t != J_MISSING) continue;
        *v = i >= first ? nbj_eval(j, b->defaults.v[i - first])
                        : nbj_undef(j, "parameter '%.*s' was not provided", b->params.v[i]->name, NULL);
        if (j_bad(*v)) return false;
    }
    return true;
}

/* The result is what the body printed, with the origins of its pieces. */
jval nbj_call_macro(jctx *j, jmacro *m, const jargs *a)
{
    const jbody *b = m->node->body;
    if (j->macro_depth >= NBJ_MAX_MACRO_DEPTH)
        return nbj_fail(j, "RecursionError", "macros call each other more than %d deep", NBJ_MAX_MACRO_DEPTH);
    jact *act = new_act(j, m->act, b->nslots), *outer = j->act;
    if (!act || !bind_params(j, m, act, a)) return jv(J_ERR);
    j->macro_depth++;
    j->act = act;
    nbj_enter(j, &b->scope);
    int code;
    jval out = fill_defaults(j, b) ? capture(j, &b->main, &code) : jv(J_ERR);
    j->act = outer;
    j->macro_depth--;
    return out;
}

/* The body becomes a macro; generation calls it at once. */
static int exec_call_block(jctx *j, const jnode *n)
{
    jval caller = new_macro(j, n, NULL);
    if (j_bad(caller)) return -1;
    jargs none = {0};
    jval v = n->kind == N_GENERATION ? nbj_call_macro(j, caller.u.macro, &none) : nbj_eval_call(j, n->a, caller);
    j->at = n;
    return put_text(j, v);
}

/* ---- loops ---- */

/* What a target holds: after the filter a loop over tuples gives tuples. */
static jval target_value(jctx *j, const jnode *n)
{
    if (n->kind == N_NAME) return j->act->slot[n->ref.slot];
    jlist *l = nbj_list(j, n->kids.n);
    for (uint32_t i = 0; l && i < n->kids.n; i++) {
        if (!nbj_push_val(j, l, target_value(j, n->kids.v[i]))) return jv(J_ERR);
    }
    return l ? jv_tuple(l) : jv(J_ERR);
}

typedef struct filtered {
    const jnode *n;
    jact *act;
} filtered;

/* for x in y if test: the test has variables of its own. */
static int next_filtered(jctx *j, jiter *it, jval *out)
{
    filtered *f = it->p;
    jact *outer = j->act;
    jval v;
    int more = -1;
    if (!it->in && !(it->in = nbj_iter(j, it->src))) return -1;
    j->act = f->act;
    if (!it->pos++) nbj_enter(j, &f->n->body->test_scope);
    while ((more = nbj_next(j, it->in, &v)) > 0) {
        jval ok = nbj_assign(j, f->n->kids.v[0], v) ? nbj_eval(j, f->n->c) : jv(J_ERR);
        if (j_bad(ok))
            more = -1;
        else if (!nbj_truth(j, ok))
            continue;
        else
            *out = target_value(j, f->n->kids.v[0]);
        break;
    }
    j->act = outer;
    return more > 0 && j_bad(*out) ? -1 : more;
}

/* The iterator behind `for x in y if test`. */
static jval filter_loop(jctx *j, const jnode *n, jval src)
{
    filtered *f = nbj_alloc(j, sizeof *f);
    jiter *it = nbj_iter_new(j, next_filtered);
    if (!f || !it) return jv(J_ERR);
    f->n = n;
    f->act = new_act(j, j->act, n->body->test_nslots);
    it->p = f;
    it->src = src;
    jval v = jv(J_ITER);
    v.u.it = it;
    return f->act ? v : jv(J_ERR);
}

/* The `loop` variable. */
static jloop *new_loop(jctx *j, const jnode *n, jval src, jiter *it, int64_t depth, jact *outer)
{
    jloop *l = nbj_alloc(j, sizeof *l);
    if (!l) return NULL;
    l->it = it;
    l->src = src;
    l->index0 = -1;
    l->length = -1;
    l->depth0 = depth;
    l->node = n->body->recursive ? n : NULL;
    l->act = outer;
    jval v = jv(J_LOOP);
    v.u.loop = l;
    j->act->slot[n->body->self.slot] = v;
    return l;
}

/* 0 or -1; *empty: no round came to its end, as Jinja decides whether `else` runs. */
static int rounds(jctx *j, const jnode *n, jiter *it, jloop *l, bool *empty)
{
    const jbody *b = n->body;
    jval v;
    int more;
    while ((more = l ? nbj_loop_next(j, l, &v) : nbj_next(j, it, &v)) > 0) {
        if (!nbj_assign(j, n->a, v)) return -1;
        nbj_enter(j, &b->scope);
        int code = nbj_exec(j, &b->main);
        if (code < 0) return -1;
        if (code == 1) break;
        if (code == 0) *empty = false;
    }
    return more < 0 ? -1 : 0;
}

/* All rounds and else, in the current function. */
static int run_loop(jctx *j, const jnode *n, jval src, int64_t depth, jact *outer)
{
    const jbody *b = n->body;
    bool empty = true;
    j->at = n->b;
    jiter *it = nbj_iter(j, src);
    if (!it) return -1;
    jloop *l = b->extended ? new_loop(j, n, src, it, depth, outer) : NULL;
    if (b->extended && !l) return -1;
    if (rounds(j, n, it, l, &empty) < 0) return -1;
    for (uint32_t i = 0; i < b->scope.n; i++) j->act->slot[b->scope.ops[i].slot] = jv(J_MISSING);
    if (!empty || !b->other.n) return 0;
    nbj_enter(j, &b->else_scope);
    return nbj_exec(j, &b->other);
}

/* One level of a recursive loop: a function of its own, whose output is text. */
static jval recursive_loop(jctx *j, const jnode *n, jval src, int64_t depth, jact *outer)
{
    if (j->macro_depth >= NBJ_MAX_MACRO_DEPTH)
        return nbj_fail(j, "RecursionError", "a loop calls itself more than %d deep", NBJ_MAX_MACRO_DEPTH);
    jact *here = j->act;
    jbuf *out = j->out;
    jval text = jv(J_ERR);
    j->act = outer; /* the loop filter belongs to the function around */
    if (n->c) src = filter_loop(j, n, src);
    jact *mine = j_bad(src) ? NULL : new_act(j, outer, n->body->nslots);
    if (mine) {
        j->macro_depth++;
        j->act = mine;
        j->out = nbj_push(j);
        if (j->out && run_loop(j, n, src, depth, outer) >= 0) text = nbj_pop(j);
        j->macro_depth--;
    }
    j->act = here;
    j->out = out;
    return text;
}

/* loop(items) inside a recursive loop. */
jval nbj_call_loop(jctx *j, jloop *l, const jargs *a)
{
    if (!l->node)
        return nbj_fail(j, "TypeError", "The loop must have the 'recursive' marker to be called recursively.");
    if (a->n != 1 || a->nkw) return nbj_fail(j, "TypeError", "loop() takes one argument");
    return recursive_loop(j, l->node, a->v[0], l->depth0 + 1, l->act);
}

static int exec_for(jctx *j, const jnode *n)
{
    jval src = nbj_eval(j, n->b);
    if (j_bad(src)) return -1;
    if (n->body->recursive) return put_text(j, recursive_loop(j, n, src, 0, j->act));
    if (n->c) src = filter_loop(j, n, src);
    return j_bad(src) ? -1 : run_loop(j, n, src, 0, j->act);
}

/* The next round, which looking ahead may have fetched already. */
int nbj_loop_next(jctx *j, jloop *l, jval *out)
{
    if (l->after.t != J_MISSING) {
        *out = l->after;
        l->after = jv(J_MISSING);
    } else {
        int more = nbj_next(j, l->it, out);
        if (more <= 0) return more;
    }
    l->index0++;
    l->before = l->current;
    l->current = *out;
    return 1;
}

/* Looks one item ahead, as loop.last and loop.nextitem do. */
static int peek(jctx *j, jloop *l)
{
    if (l->after.t != J_MISSING) return 1;
    return nbj_next(j, l->it, &l->after);
}

/* An iterator has to be read to its end to know. */
int64_t nbj_loop_length(jctx *j, jloop *l)
{
    if (l->length >= 0) return l->length;
    if (l->src.t != J_ITER) return l->length = nbj_len(j, l->src);
    jlist *rest = nbj_collect(j, l->src);
    if (!rest) return -1;
    l->it = nbj_iter(j, jv_list(rest));
    return l->length = (int64_t)rest->n + l->index0 + 1 + (l->after.t != J_MISSING);
}

jval nbj_loop_attr(jctx *j, jloop *l, nb_str name)
{
    if (nb_str_is(name, "index0")) return jv_int(l->index0);
    if (nb_str_is(name, "index")) return jv_int(l->index0 + 1);
    if (nb_str_is(name, "first")) return jv_bool(l->index0 == 0);
    if (nb_str_is(name, "depth0")) return jv_int(l->depth0);
    if (nb_str_is(name, "depth")) return jv_int(l->depth0 + 1);
    if (nb_str_is(name, "previtem"))
        return l->index0 == 0 ? nbj_undef(j, "there is no previous item", NULL, NULL) : l->before;
    if (nb_str_is(name, "last") || nb_str_is(name, "nextitem")) {
        int more = peek(j, l);
        if (more < 0) return jv(J_ERR);
        if (name.n == 4) return jv_bool(!more);
        return more ? l->after : nbj_undef(j, "there is no next item", NULL, NULL);
    }
    bool rev0 = nb_str_is(name, "revindex0");
    if (!rev0 && !nb_str_is(name, "revindex") && !nb_str_is(name, "length")) return jv(J_MISSING);
    int64_t n = nbj_loop_length(j, l);
    if (n < 0) return jv(J_ERR);
    return jv_int(rev0 ? n - l->index0 - 1 : name.n == 8 ? n - l->index0 : n);
}

/* ---- statements ---- */

/* elif by elif, without recursion. */
static int exec_if(jctx *j, const jnode *n)
{
    for (; n; n = n->b) {
        jval v = nbj_eval(j, n->a);
        if (j_bad(v)) return -1;
        if (nbj_truth(j, v)) return nbj_exec(j, &n->body->main);
        if (!n->b) return nbj_exec(j, &n->body->other);
    }
    return 0;
}

/* {{ a }} and {% print a, b %}. */
static int exec_output(jctx *j, const jnode *n)
{
    const jnode *const *v = n->a ? (const jnode *const *)&n->a : (const jnode *const *)n->kids.v;
    for (uint32_t i = 0; i < (n->a ? 1 : n->kids.n); i++) {
        jval x = nbj_eval(j, v[i]);
        j->at = v[i];
        if (!nbj_print(j, j->out, x)) return -1;
    }
    return 0;
}

/* break and continue inside leave without an assignment. */
static int exec_set_block(jctx *j, const jnode *n)
{
    nbj_enter(j, &n->body->scope);
    int code;
    jval v = capture(j, &n->body->main, &code);
    if (code) return code;
    if (n->b) v = nbj_eval_filter(j, n->b, v);
    return nbj_assign(j, n->a, v) ? 0 : -1;
}

static int exec_filter_block(jctx *j, const jnode *n)
{
    nbj_enter(j, &n->body->scope);
    int code;
    jval v = capture(j, &n->body->main, &code);
    if (code) return code;
    v = nbj_eval_filter(j, n->b, v);
    j->at = n;
    return put_text(j, v);
}

static int exec_with(jctx *j, const jnode *n)
{
    nbj_enter(j, &n->body->scope);
    for (uint32_t i = 0; i < n->kids.n; i++) {
        if (!nbj_assign(j, n->kids.v[i]->a, nbj_eval(j, n->kids.v[i]->b))) return -1;
    }
    return nbj_exec(j, &n->body->main);
}

/* Namespaces on the left are checked before the right side is evaluated. */
static bool check_targets(jctx *j, const jnode *n)
{
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->kids.n; i++) {
            if (!check_targets(j, n->kids.v[i])) return false;
        }
    }
    if (n->kind != N_NSREF) return true;
    jact *a = j->act;
    for (uint16_t i = 0; i < n->ref.up; i++) a = a->up;
    if (a->slot[n->ref.slot].t == J_NS) return true;
    j->at = n;
    nbj_fail(j, "TemplateRuntimeError", "cannot assign attribute on non-namespace object");
    return false;
}

static int exec_one(jctx *j, const jnode *n)
{
    switch (n->kind) {
    case N_DATA: nbj_add_str(j, j->out, n->value.u.s); return j->failed ? -1 : 0;
    case N_OUTPUT: return exec_output(j, n);
    case N_IF: return exec_if(j, n);
    case N_FOR: return exec_for(j, n);
    case N_SET: return check_targets(j, n->a) && nbj_assign(j, n->a, nbj_eval(j, n->b)) ? 0 : -1;
    case N_SETBLOCK: return exec_set_block(j, n);
    case N_MACRO: {
        jval m = new_macro(j, n, n->name);
        if (j_bad(m)) return -1;
        j->act->slot[n->ref.slot] = m;
        return 0;
    }
    case N_CALLBLOCK:
    case N_GENERATION: return exec_call_block(j, n);
    case N_FILTERBLOCK: return exec_filter_block(j, n);
    case N_WITH: return exec_with(j, n);
    case N_BREAK: return 1;
    case N_CONTINUE: return 2;
    default:
        j->at = n;
        nbj_fail(j, "TypeError", "no loader for this environment specified ('%.*s')", n->name ? (int)n->name->n : 0,
                 n->name ? n->name->p : "");
        return -1;
    }
}

/* Statements in a row; break and continue go up to the loop. */
int nbj_exec(jctx *j, const jblock *b)
{
    if (j->depth >= j->lim.depth) return nbj_fail(j, "RecursionError", "maximum recursion depth exceeded"), -1;
    j->depth++;
    int code = 0;
    for (uint32_t i = 0; code == 0 && i < b->n; i++) {
        j->at = b->v[i];
        code = nbj_step(j, 1) ? exec_one(j, b->v[i]) : -1;
    }
    j->depth--;
    return code;
}
