/* text/jinja_scope: gives every name a slot, as Jinja's compiler does.
 *
 * A frame (template, loop body, macro, ...) first collects the names that it loads and stores. A name only loaded
 * belongs to the nearest outer frame that knows it, else it is looked up in the variables when the frame is entered. A
 * name that is stored gets a slot of this frame, which starts as a copy of the outer one. So `set` in a loop does not
 * leak out, and every round starts afresh. `if` is no frame. Functions (macro, call block, generation, recursive loop,
 * loop filter) have slots of their own and reach those of outer functions as closures do, by reference. */
#include "text/jinja.h"

#include <stdlib.h>

typedef struct jfn {
    struct jfn *parent;
    uint32_t nslots;
} jfn;

typedef struct jsymbol {
    const jstr *name;
    uint32_t slot;
    jload op;
    jref from;
    bool stored;
} jsymbol;

typedef struct jframe {
    struct jframe *parent;
    jfn *fn;
    nb_buf list;  /* jsymbol after jsymbol */
    nb_map index; /* name -> place in list, once the list is long */
} jframe;

typedef struct jscoper {
    nb_template *t;
    nb_error *err;
    nb_status status;
} jscoper;

/* Where a statement stands. */
typedef struct jplace {
    jframe *f;
    bool soft;    /* inside `if`: unknown filters fail only when they are reached */
    bool in_loop; /* break and continue are allowed */
    bool in_for;  /* anywhere inside a loop: `loop` is not to be assigned */
} jplace;

enum { U_LOOP = 1, U_CALLER = 2, U_KWARGS = 4, U_VARARGS = 8, U_SELF = 16, INDEX_FROM = 24 };

static void visit_block(jscoper *s, const jblock *b, jplace at);
static void visit_expr(jscoper *s, jnode *n, jplace at);
static void collect(jscoper *s, jframe *f, const jblock *b, bool branch);

/* Reports the first problem. `what` takes a name as %.*s. */
static void fail(jscoper *s, const jnode *n, const char *type, const char *what, const jstr *name)
{
    if (s->status == NB_OK)
        s->status = nbj_syntax(s->t, n->pos, s->err, type, what, name ? (int)name->n : 0, name ? name->p : "");
}

static void no_memory(jscoper *s)
{
    if (s->status == NB_OK) s->status = nb_fail(s->err, NB_E_NO_MEMORY, "chat template: no memory");
}

static void frame_free(jframe *f)
{
    nb_buf_free(&f->list);
    nb_map_free(&f->index);
}

static jsymbol *symbol_at(const jframe *f, size_t i) { return (jsymbol *)(void *)f->list.p + i; }
static size_t symbols(const jframe *f) { return f->list.n / sizeof(jsymbol); }

/* The symbol of this very frame. */
static jsymbol *own(const jframe *f, const jstr *name)
{
    uint32_t at;
    if (f->index.cap) return nb_map_get(&f->index, js_view(name), &at) ? symbol_at(f, at) : NULL;
    for (size_t i = 0; i < symbols(f); i++) {
        if (nb_str_eq(js_view(symbol_at(f, i)->name), js_view(name))) return symbol_at(f, i);
    }
    return NULL;
}

/* A new symbol with a slot of the frame's function. */
static jsymbol *define(jscoper *s, jframe *f, const jstr *name, jload op)
{
    jsymbol n = {.name = name, .op = op, .slot = f->fn->nslots++};
    nb_buf_add(&f->list, &n, sizeof n);
    size_t count = symbols(f);
    bool ok = !f->list.oom;
    if (ok && count == INDEX_FROM) {
        ok = nb_map_init(&f->index, 4 * INDEX_FROM);
        for (size_t i = 0; ok && i < count; i++)
            ok = nb_map_put(&f->index, js_view(symbol_at(f, i)->name), (uint32_t)i, NULL, NULL);
    } else if (ok && f->index.cap) {
        ok = nb_map_put(&f->index, js_view(name), (uint32_t)(count - 1), NULL, NULL);
    }
    if (!ok) no_memory(s);
    return ok ? symbol_at(f, count - 1) : NULL;
}

/* The variable that `name` means in f, seen from f's function. */
static bool find(const jframe *f, const jstr *name, jref *out)
{
    const jfn *from = f ? f->fn : NULL;
    for (; f; f = f->parent) {
        const jsymbol *y = own(f, name);
        if (!y) continue;
        out->up = 0;
        for (const jfn *k = from; k != f->fn; k = k->parent) out->up++;
        out->slot = y->slot;
        return true;
    }
    return false;
}

/* A name is read: unless a frame around knows it, it is looked up when this frame is entered. */
static void load(jscoper *s, jframe *f, const jstr *name)
{
    jref r;
    if (!find(f, name, &r)) define(s, f, name, L_RESOLVE);
}

/* A name is assigned to. In a branch of `if` it may stay unset: then the outer value shows, or the variable of that
 * name. */
static void store(jscoper *s, jframe *f, const jstr *name, bool branch)
{
    jsymbol *y = own(f, name);
    if (y) {
        y->stored = true;
        return;
    }
    y = define(s, f, name, branch ? L_RESOLVE : L_UNDEF);
    if (!y) return;
    y->stored = true;
    jref r;
    if (!f->parent || !find(f->parent, name, &r)) return;
    /* find() counted from the parent's function; ours may be one further in. */
    r.up = (uint16_t)(r.up + (f->fn != f->parent->fn));
    y->op = L_ALIAS;
    y->from = r;
}

/* A name that gets its value from outside: loop targets, macro parameters. */
static void parameter(jscoper *s, jframe *f, const jstr *name)
{
    jsymbol *y = own(f, name);
    if (!y) y = define(s, f, name, L_PARAM);
    if (!y) return;
    y->op = L_PARAM;
    y->stored = true;
}

/* The frame's work on entry, for the evaluator. */
static jscope finish(jscoper *s, jframe *f)
{
    jscope out = {.n = (uint32_t)symbols(f)};
    out.ops = nb_arena_array(s->t->arena, out.n, sizeof *out.ops);
    if (!out.ops) {
        no_memory(s);
        out.n = 0;
    }
    for (uint32_t i = 0; i < out.n; i++) {
        const jsymbol *y = symbol_at(f, i);
        out.ops[i] = (jloadop){y->op, y->slot, y->from, y->name};
    }
    return out;
}

/* ---- which special names does a body use? ---- */

typedef struct jusage {
    int open, used;
} jusage;

/* The bit of a special name, 0 for others. */
static int special(const jstr *name)
{
    static const char *const names[] = {"loop", "caller", "kwargs", "varargs", "self"};
    for (int i = 0; i < (int)NB_COUNT(names); i++) {
        if (nb_str_is(js_view(name), names[i])) return 1 << i;
    }
    return 0;
}

static void usage(const jnode *n, jusage *u);

static void usage_block(const jblock *b, jusage *u)
{
    for (uint32_t i = 0; i < b->n; i++) usage(b->v[i], u);
}

static void usage_args(const jcallargs *c, jusage *u)
{
    if (!c) return;
    usage_block(&c->pos, u);
    usage_block(&c->kw, u);
    usage(c->dyn, u);
    usage(c->dynkw, u);
}

/* A name that is assigned to before it is read is not the special one, wherever that happens. */
static void usage(const jnode *n, jusage *u)
{
    for (; n; n = n->kind == N_IF ? n->b : NULL) {
        if (n->kind == N_NAME) {
            int bit = special(n->name);
            if (n->ctx == 'l')
                u->used |= bit & u->open;
            else
                u->open &= ~bit;
            return;
        }
        usage(n->a, u);
        if (n->kind != N_IF) usage(n->b, u);
        if (n->body) {
            usage_block(&n->body->params, u);
            usage_block(&n->body->defaults, u);
            usage_block(&n->body->main, u);
            usage_block(&n->body->other, u);
        }
        usage(n->c, u);
        if (n->kind != N_FOR) usage_block(&n->kids, u);
        usage_args(n->args, u);
    }
}

/* ---- pass one: names of a frame ---- */

/* Every name in an expression is a load. */
static void collect_expr(jscoper *s, jframe *f, const jnode *n)
{
    if (!n) return;
    if (n->kind == N_NAME || n->kind == N_NSREF) load(s, f, n->name);
    collect_expr(s, f, n->a);
    collect_expr(s, f, n->b);
    collect_expr(s, f, n->c);
    for (uint32_t i = 0; i < n->kids.n; i++) collect_expr(s, f, n->kids.v[i]);
    if (!n->args) return;
    for (uint32_t i = 0; i < n->args->pos.n; i++) collect_expr(s, f, n->args->pos.v[i]);
    for (uint32_t i = 0; i < n->args->kw.n; i++) collect_expr(s, f, n->args->kw.v[i]);
    collect_expr(s, f, n->args->dyn);
    collect_expr(s, f, n->args->dynkw);
}

/* Names in a target; the object of a.b is only loaded. */
static void collect_target(jscoper *s, jframe *f, const jnode *n, bool branch, bool param)
{
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->kids.n; i++) collect_target(s, f, n->kids.v[i], branch, param);
    } else if (n->kind == N_NSREF) {
        load(s, f, n->name);
    } else if (param) {
        parameter(s, f, n->name);
    } else {
        store(s, f, n->name, branch);
    }
}

/* What one statement does to the names of the frame that it stands in. Bodies with frames of their own are not entered.
 */
static void collect_stmt(jscoper *s, jframe *f, const jnode *n, bool branch)
{
    switch (n->kind) {
    case N_OUTPUT: collect_expr(s, f, n); break;
    case N_FOR: collect_expr(s, f, n->b); break;
    case N_MACRO: store(s, f, n->name, branch); break;
    case N_CALLBLOCK: collect_expr(s, f, n->a); break;
    case N_FILTERBLOCK: collect_expr(s, f, n->b); break;
    case N_SET:
        collect_expr(s, f, n->b);
        collect_target(s, f, n->a, branch, false);
        break;
    case N_SETBLOCK: collect_target(s, f, n->a, branch, false); break;
    case N_WITH:
        for (uint32_t i = 0; i < n->kids.n; i++) collect_expr(s, f, n->kids.v[i]->b);
        break;
    case N_IF:
        for (; n; n = n->b) {
            collect_expr(s, f, n->a);
            collect(s, f, &n->body->main, true);
            collect(s, f, &n->body->other, true);
        }
        break;
    default: break;
    }
}

static void collect(jscoper *s, jframe *f, const jblock *b, bool branch)
{
    for (uint32_t i = 0; i < b->n && s->status == NB_OK; i++) collect_stmt(s, f, b->v[i], branch);
}

/* ---- pass two: references ---- */

/* Binds a name node to the variable that it means from here. */
static void resolve(jscoper *s, jnode *n, jplace at)
{
    if (!find(at.f, n->name, &n->ref))
        fail(s, n, "TemplateAssertionError", "the name '%.*s' cannot be used here", n->name);
}

static void visit_exprs(jscoper *s, const jblock *b, jplace at)
{
    for (uint32_t i = 0; i < b->n; i++) visit_expr(s, b->v[i], at);
}

/* Binds names; unknown filters and tests fail here unless an `if` stands around them, as in Jinja. */
static void visit_expr(jscoper *s, jnode *n, jplace at)
{
    if (!n || s->status != NB_OK) return;
    if (n->kind == N_NAME || n->kind == N_NSREF) resolve(s, n, at);
    if (n->kind == N_COND) at.soft = true;
    if ((n->kind == N_FILTER || n->kind == N_TEST) && !n->def) {
        n->unknown = true;
        if (!at.soft && nb_str_is(js_view(n->name), "from_json"))
            s->t->unknown = n;
        else if (!at.soft)
            fail(s, n, "TemplateAssertionError",
                 n->kind == N_FILTER ? "No filter named '%.*s'." : "No test named '%.*s'.", n->name);
    }
    visit_expr(s, n->a, at);
    visit_expr(s, n->b, at);
    visit_expr(s, n->c, at);
    visit_exprs(s, &n->kids, at);
    if (!n->args) return;
    visit_exprs(s, &n->args->pos, at);
    visit_exprs(s, &n->args->kw, at);
    visit_expr(s, n->args->dyn, at);
    visit_expr(s, n->args->dynkw, at);
}

/* Binds the names of a target. */
static void visit_target(jscoper *s, jnode *n, jplace at)
{
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->kids.n; i++) visit_target(s, n->kids.v[i], at);
        return;
    }
    if (at.in_for && n->kind == N_NAME && n->ctx == 's' && nb_str_is(js_view(n->name), "loop"))
        fail(s, n, "TemplateAssertionError", "Can't assign to special loop variable in for-loop target%.*s", NULL);
    resolve(s, n, at);
}

/* A copy of a loop's target, for the loop filter, whose variables are its own. */
static jnode *clone_target(jscoper *s, const jnode *n)
{
    jnode *c = NB_NEW(s->t->arena, jnode);
    if (!c) return no_memory(s), NULL;
    *c = *n;
    if (n->kind != N_TUPLE) return c;
    c->kids.v = nb_arena_array(s->t->arena, n->kids.n, sizeof *c->kids.v);
    if (!c->kids.v) return no_memory(s), NULL;
    for (uint32_t i = 0; i < n->kids.n; i++) {
        if (!(c->kids.v[i] = clone_target(s, n->kids.v[i]))) return NULL;
    }
    return c;
}

/* for ... if: the test is a function of its own with its own copy of the targets. */
static void loop_filter(jscoper *s, jnode *n, jplace at)
{
    jfn fn = {.parent = at.f->fn};
    jframe f = {.parent = at.f, .fn = &fn};
    jnode **copy = NB_NEW_N(s->t->arena, jnode *, 1);
    if (!copy || !(*copy = clone_target(s, n->a))) return no_memory(s);
    n->kids = (jblock){copy, 1};
    collect_target(s, &f, n->a, false, true);
    collect_expr(s, &f, n->c);
    jplace in = {.f = &f, .in_for = true};
    visit_target(s, *copy, in);
    visit_expr(s, n->c, in);
    n->body->test_scope = finish(s, &f);
    n->body->test_nslots = fn.nslots;
    frame_free(&f);
}

/* Body and else are frames; a recursive loop is a function around both. */
static void visit_for(jscoper *s, jnode *n, jplace at)
{
    jbody *b = n->body;
    jusage u = {.open = U_LOOP};
    usage_block(&b->main, &u);
    b->extended = b->recursive || (u.used & U_LOOP);
    visit_expr(s, n->b, at);
    at.in_for = true;
    if (n->c) loop_filter(s, n, at);
    jfn fn = {.parent = at.f->fn};
    jfn *mine = b->recursive ? &fn : at.f->fn;
    jframe f = {.parent = at.f, .fn = mine}, other = {.parent = at.f, .fn = mine};
    static const jstr loop = {.p = "loop", .n = 4};
    if (b->extended) {
        jsymbol *y = define(s, &f, &loop, L_PARAM);
        if (y) b->self = (jref){0, y->slot};
    }
    collect_target(s, &f, n->a, false, true);
    collect(s, &f, &b->main, false);
    collect(s, &other, &b->other, false);
    jplace in = {.f = &f, .in_loop = true, .in_for = true};
    visit_target(s, n->a, in);
    visit_block(s, &b->main, in);
    jplace out = {.f = &other, .in_loop = at.in_loop && !b->recursive, .in_for = true};
    visit_block(s, &b->other, out);
    b->scope = finish(s, &f);
    b->else_scope = finish(s, &other);
    b->nslots = fn.nslots;
    frame_free(&f);
    frame_free(&other);
}

/* Declares caller, kwargs or varargs where the body uses it and no parameter has its name. Slot + 1, else 0. */
static uint32_t special_slot(jscoper *s, jframe *f, const jbody *b, const jstr *name, int used)
{
    if (!(used & special(name))) return 0;
    for (uint32_t i = 0; i < b->params.n; i++) {
        if (nb_str_eq(js_view(b->params.v[i]->name), js_view(name))) return 0;
    }
    parameter(s, f, name);
    jsymbol *y = own(f, name);
    return y ? y->slot + 1 : 0;
}

/* Macro, call block, generation: a function. */
static void visit_function(jscoper *s, jnode *n, jplace at)
{
    static const jstr caller = {.p = "caller", .n = 6}, kwargs = {.p = "kwargs", .n = 6},
                      varargs = {.p = "varargs", .n = 7};
    jbody *b = n->body;
    jfn fn = {.parent = at.f->fn};
    jframe f = {.parent = at.f, .fn = &fn};
    jusage u = {.open = U_CALLER | U_KWARGS | U_VARARGS};
    usage_block(&b->main, &u);
    for (uint32_t i = 0; i < b->params.n; i++) {
        parameter(s, &f, b->params.v[i]->name);
        if (special(b->params.v[i]->name) != U_CALLER) continue;
        b->explicit_caller = true;
        if ((u.used & U_CALLER) && i + b->defaults.n < b->params.n)
            fail(s, n, "TemplateAssertionError",
                 "the special argument 'caller' must be omitted or be given a default%.*s", NULL);
    }
    b->caller = special_slot(s, &f, b, &caller, u.used);
    b->kwargs = special_slot(s, &f, b, &kwargs, u.used);
    b->varargs = special_slot(s, &f, b, &varargs, u.used);
    for (uint32_t i = 0; i < b->defaults.n; i++) collect_expr(s, &f, b->defaults.v[i]);
    collect(s, &f, &b->main, false);
    b->param_slot = nb_arena_array(s->t->arena, b->params.n, sizeof *b->param_slot);
    if (!b->param_slot) no_memory(s);
    for (uint32_t i = 0; i < b->params.n && s->status == NB_OK; i++)
        b->param_slot[i] = own(&f, b->params.v[i]->name)->slot;
    jplace in = {.f = &f, .in_for = at.in_for};
    visit_exprs(s, &b->defaults, in);
    visit_block(s, &b->main, in);
    b->scope = finish(s, &f);
    b->nslots = fn.nslots;
    frame_free(&f);
}

/* Filter block, set block, with: a frame in the same function. */
static void visit_inner(jscoper *s, jnode *n, jplace at)
{
    jbody *b = n->body;
    jframe f = {.parent = at.f, .fn = at.f->fn};
    if (n->kind == N_WITH) {
        for (uint32_t i = 0; i < n->kids.n; i++) {
            collect_target(s, &f, n->kids.v[i]->a, false, true);
            visit_expr(s, n->kids.v[i]->b, at);
        }
    }
    collect(s, &f, &b->main, false);
    if (n->kind == N_FILTERBLOCK) collect_expr(s, &f, n->b);
    if (n->kind == N_SETBLOCK) visit_target(s, n->a, at);
    at.f = &f;
    at.soft = false;
    for (uint32_t i = 0; n->kind == N_WITH && i < n->kids.n; i++) visit_target(s, n->kids.v[i]->a, at);
    visit_block(s, &b->main, at);
    if (n->kind != N_WITH) visit_expr(s, n->b, at);
    b->scope = finish(s, &f);
    frame_free(&f);
}

/* No frame: branches share the names of the frame around. */
static void visit_if(jscoper *s, jnode *n, jplace at)
{
    at.soft = true;
    for (; n; n = n->b) {
        visit_expr(s, n->a, at);
        visit_block(s, &n->body->main, at);
        visit_block(s, &n->body->other, at);
    }
}

/* No names, no calls, no filter that sees the variables. */
static bool is_constant(const jnode *n)
{
    static const char *const with_context[] = {"map", "select", "reject", "selectattr", "rejectattr", "random"};
    if (!n) return true;
    if (n->kind == N_NAME || n->kind == N_CALL || n->unknown) return false;
    for (size_t i = 0; n->kind == N_FILTER && i < NB_COUNT(with_context); i++) {
        if (nb_str_is(js_view(n->name), with_context[i])) return false;
    }
    if (!is_constant(n->a) || !is_constant(n->b) || !is_constant(n->c)) return false;
    for (uint32_t i = 0; i < n->kids.n; i++) {
        if (!is_constant(n->kids.v[i])) return false;
    }
    for (uint32_t i = 0; n->args && i < n->args->pos.n; i++) {
        if (!is_constant(n->args->pos.v[i])) return false;
    }
    for (uint32_t i = 0; n->args && i < n->args->kw.n; i++) {
        if (!is_constant(n->args->kw.v[i])) return false;
    }
    return !n->args || (is_constant(n->args->dyn) && is_constant(n->args->dynkw));
}

static void mark_folded(jnode *n)
{
    if (!n) return;
    n->folded = true;
    mark_folded(n->a);
    mark_folded(n->b);
    mark_folded(n->c);
    for (uint32_t i = 0; i < n->kids.n; i++) mark_folded(n->kids.v[i]);
    for (uint32_t i = 0; n->args && i < n->args->pos.n; i++) mark_folded(n->args->pos.v[i]);
    for (uint32_t i = 0; n->args && i < n->args->kw.n; i++) mark_folded(n->args->kw.v[i]);
}

static void visit_stmt(jscoper *s, jnode *n, jplace at)
{
    switch (n->kind) {
    case N_OUTPUT:
        if (n->a && is_constant(n->a)) mark_folded(n->a);
        for (uint32_t i = 0; i < n->kids.n; i++) {
            if (is_constant(n->kids.v[i])) mark_folded(n->kids.v[i]);
        }
        visit_expr(s, n->a, at);
        visit_exprs(s, &n->kids, at);
        break;
    case N_FOR: visit_for(s, n, at); break;
    case N_IF: visit_if(s, n, at); break;
    case N_MACRO:
        resolve(s, n, at);
        visit_function(s, n, at);
        break;
    case N_CALLBLOCK:
        visit_function(s, n, at);
        visit_expr(s, n->a, at);
        break;
    case N_GENERATION: visit_function(s, n, at); break;
    case N_SET:
        visit_expr(s, n->b, at);
        visit_target(s, n->a, at);
        break;
    case N_FILTERBLOCK:
    case N_SETBLOCK:
    case N_WITH: visit_inner(s, n, at); break;
    case N_BREAK:
    case N_CONTINUE:
        if (!at.in_loop) fail(s, n, "SyntaxError", "break or continue outside a loop%.*s", NULL);
        break;
    case N_REFUSED:
        if (at.f->parent && nb_str_is(js_view(n->name), "extends"))
            fail(s, n, "TemplateAssertionError", "cannot use extend from a non top-level scope%.*s", NULL);
        break;
    default: break;
    }
}

static void visit_block(jscoper *s, const jblock *b, jplace at)
{
    for (uint32_t i = 0; i < b->n && s->status == NB_OK; i++) visit_stmt(s, b->v[i], at);
}

nb_status nbj_scope(nb_template *t, nb_error *err)
{
    jscoper s = {.t = t, .err = err};
    jfn fn = {0};
    jframe f = {.fn = &fn};
    static const jstr self = {.p = "self", .n = 4};
    jusage u = {.open = U_SELF};
    usage_block(&t->root, &u);
    jsymbol *y = u.used ? define(&s, &f, &self, L_SELF) : NULL;
    if (y) y->stored = true;
    collect(&s, &f, &t->root, false);
    visit_block(&s, &t->root, (jplace){.f = &f});
    t->scope = finish(&s, &f);
    t->nslots = fn.nslots;
    frame_free(&f);
    return s.status;
}
