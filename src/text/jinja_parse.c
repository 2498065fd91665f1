/* text/jinja_parse: expressions. Tokens to an AST in the template's arena. Statements are in jinja_stmt.c.
 *
 * Recursion is bounded by the parser's depth; chains that are built by loops (a + b + c, filters, subscripts) are
 * bounded by the depth that every node carries, since evaluation recurses into them. */
#include "text/jinja_parse.h"

#include <stdio.h>
#include <stdlib.h>

void *nbj_syntax_fail(jparser *p, uint32_t pos, const char *fmt, ...)
{
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (p->status == NB_OK) p->status = nbj_syntax(p->t, pos, p->err, "TemplateSyntaxError", "%s", text);
    return NULL;
}

void *nbj_parse_oom(jparser *p)
{
    if (p->status == NB_OK) p->status = nb_fail(p->err, NB_E_NO_MEMORY, "chat template: no memory");
    return NULL;
}

const char *nbj_describe(const jtoken *k)
{
    static const char *const names[] = {
        "end of template",
        "template data",
        "begin of print statement",
        "end of print statement",
        "begin of statement block",
        "end of statement block",
        "name",
        "string",
        "integer",
        "float",
        "+",
        "-",
        "/",
        "//",
        "*",
        "%",
        "**",
        "~",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "==",
        "!=",
        ">",
        ">=",
        "<",
        "<=",
        "=",
        ".",
        ":",
        "|",
        ",",
        ";",
    };
    return names[k->t];
}

/* Bytes of a token to show in an error. */
static int show_len(const jtoken *k) { return k->text.n > 40 ? 40 : (int)k->text.n; }

bool nbj_is_name(const jparser *p, const char *word) { return p->k->t == T_NAME && nb_str_is(p->k->text, word); }

bool nbj_skip_name(jparser *p, const char *word)
{
    if (!nbj_is_name(p, word)) return false;
    p->k++;
    return true;
}

bool nbj_skip(jparser *p, jtok t)
{
    if (p->k->t != t) return false;
    p->k++; /* T_EOF is never skipped */
    return true;
}

bool nbj_expect(jparser *p, jtok t)
{
    if (nbj_skip(p, t)) return true;
    jtoken want = {.t = (uint8_t)t};
    if (p->k->t == T_EOF)
        nbj_syntax_fail(p, p->k->pos, "unexpected end of template, expected '%s'", nbj_describe(&want));
    else if (p->k->t == T_NAME)
        nbj_syntax_fail(p, p->k->pos, "expected token '%s', got '%.*s'", nbj_describe(&want), show_len(p->k),
                        p->k->text.p);
    else
        nbj_syntax_fail(p, p->k->pos, "expected token '%s', got '%s'", nbj_describe(&want), nbj_describe(p->k));
    return false;
}

bool nbj_deeper(jparser *p)
{
    if (++p->depth <= NBJ_MAX_NODE_DEPTH) return true;
    nbj_syntax_fail(p, p->k->pos, "nested too deeply (limit %d)", NBJ_MAX_NODE_DEPTH);
    return false;
}

/* Height of the tree below a node: evaluation recurses that far. */
static uint16_t depth_of(const jnode *n) { return n ? n->depth : 0; }

jnode *nbj_node(jparser *p, jkind kind, uint32_t pos, jnode *a, jnode *b)
{
    if (p->status != NB_OK) return NULL;
    jnode *n = NB_NEW(p->t->arena, jnode);
    if (!n) return nbj_parse_oom(p);
    n->kind = (uint8_t)kind;
    n->pos = pos;
    n->a = a;
    n->b = b;
    n->depth = (uint16_t)(1 + (depth_of(a) > depth_of(b) ? depth_of(a) : depth_of(b)));
    if (n->depth > 2 * NBJ_MAX_NODE_DEPTH)
        return nbj_syntax_fail(p, pos, "an expression of more than %d operations in a row", 2 * NBJ_MAX_NODE_DEPTH);
    return n;
}

/* Names are interned: equal names are one pointer. */
const jstr *nbj_name_of(jparser *p, nb_str text)
{
    uint32_t at;
    if (nb_map_get(&p->names, text, &at)) return ((const jstr *const *)p->name_list.p)[at];
    jstr *s = nbj_const_str(p->t->arena, text.p, text.n, true);
    if (!s) return nbj_parse_oom(p);
    at = (uint32_t)(p->name_list.n / sizeof(jstr *));
    nb_buf_add(&p->name_list, &s, sizeof s);
    if (p->name_list.oom || !nb_map_put(&p->names, (nb_str){s->p, s->n}, at, NULL, NULL)) return nbj_parse_oom(p);
    return s;
}

/* ---- lists of nodes, gathered on a stack of the parser and copied into the arena ---- */

bool nbj_keep(jparser *p, const void *n)
{
    nb_buf_add(&p->stack, &n, sizeof n);
    if (p->stack.oom) nbj_parse_oom(p);
    return p->status == NB_OK;
}

/* Takes what was kept since `from` (a value of p->stack.n). */
jblock nbj_take(jparser *p, size_t from)
{
    jblock b = {.n = (uint32_t)((p->stack.n - from) / sizeof(void *))};
    b.v = b.n ? nbj_copy(p->t->arena, p->stack.p + from, b.n, sizeof(jnode *)) : NULL;
    if (b.n && !b.v) {
        nbj_parse_oom(p);
        b.n = 0;
    }
    p->stack.n = from;
    return b;
}

/* Gives n the nodes kept since `from`. */
static jnode *with_kids(jparser *p, jnode *n, size_t from)
{
    if (!n || p->status != NB_OK) {
        p->stack.n = from;
        return NULL;
    }
    n->kids = nbj_take(p, from);
    for (uint32_t i = 0; i < n->kids.n; i++) {
        uint16_t d = depth_of(n->kids.v[i]);
        if (d >= n->depth) n->depth = (uint16_t)(d + 1);
    }
    return n;
}

/* ---- primary expressions ---- */

static jnode *constant(jparser *p, uint32_t pos, jval v)
{
    jnode *n = nbj_node(p, N_CONST, pos, NULL, NULL);
    if (n) n->value = v;
    return n;
}

/* One or several string literals in a row, joined. */
static jnode *strings(jparser *p)
{
    uint32_t pos = p->k->pos;
    nb_str text = p->k->text;
    p->k++;
    nb_buf all = {0};
    if (p->k->t == T_STRING) {
        nb_buf_add_str(&all, text);
        while (p->k->t == T_STRING) nb_buf_add_str(&all, (p->k++)->text);
        char *copy = all.oom ? NULL : nb_arena_dup(p->t->arena, all.p ? all.p : "", all.n);
        text = (nb_str){copy, all.n};
        nb_buf_free(&all);
        if (!copy) return nbj_parse_oom(p);
    }
    jstr *s = nbj_const_str(p->t->arena, text.p, text.n, true);
    return s ? constant(p, pos, jv_str(s)) : nbj_parse_oom(p);
}

static jnode *number(jparser *p)
{
    jval v = nbj_literal(p->t->arena, p->k->text, p->k->t == T_FLOAT);
    if (j_bad(v)) return nbj_syntax_fail(p, p->k->pos, "a number of %zu digits is too long", p->k->text.n);
    return constant(p, (p->k++)->pos, v);
}

/* [a, b, ...], a comma at the end allowed. */
static jnode *list(jparser *p)
{
    uint32_t pos = p->k->pos;
    size_t from = p->stack.n;
    p->k++;
    for (bool first = true; p->k->t != T_RBRACKET; first = false) {
        if (!first && !nbj_expect(p, T_COMMA)) return NULL;
        if (p->k->t == T_RBRACKET) break;
        jnode *item = nbj_expr(p, true);
        if (!item || !nbj_keep(p, item)) return NULL;
    }
    p->k++;
    return with_kids(p, nbj_node(p, N_LIST, pos, NULL, NULL), from);
}

/* {k: v, ...}; keys and values alternate in kids. */
static jnode *dict(jparser *p)
{
    uint32_t pos = p->k->pos;
    size_t from = p->stack.n;
    p->k++;
    for (bool first = true; p->k->t != T_RBRACE; first = false) {
        if (!first && !nbj_expect(p, T_COMMA)) return NULL;
        if (p->k->t == T_RBRACE) break;
        jnode *key = nbj_expr(p, true);
        if (!key || !nbj_keep(p, key) || !nbj_expect(p, T_COLON)) return NULL;
        jnode *v = nbj_expr(p, true);
        if (!v || !nbj_keep(p, v)) return NULL;
    }
    p->k++;
    return with_kids(p, nbj_node(p, N_DICT, pos, NULL, NULL), from);
}

/* A constant by name, a variable, or (in assignments) a.b. */
static jnode *name(jparser *p, bool with_namespace)
{
    const jtoken *k = p->k++;
    if (nb_str_is(k->text, "true") || nb_str_is(k->text, "True")) return constant(p, k->pos, jv_bool(true));
    if (nb_str_is(k->text, "false") || nb_str_is(k->text, "False")) return constant(p, k->pos, jv_bool(false));
    if (nb_str_is(k->text, "none") || nb_str_is(k->text, "None")) return constant(p, k->pos, jv(J_NONE));
    bool ns = with_namespace && p->k->t == T_DOT;
    jnode *n = nbj_node(p, ns ? N_NSREF : N_NAME, k->pos, NULL, NULL);
    if (!n || !(n->name = nbj_name_of(p, k->text))) return NULL;
    n->ctx = 'l';
    if (!ns) return n;
    p->k++;
    nb_str attr = p->k->text;
    if (!nbj_expect(p, T_NAME)) return NULL;
    const jstr *s = nbj_name_of(p, attr);
    n->value = jv_str(s);
    return s ? n : NULL;
}

jnode *nbj_primary(jparser *p, bool with_namespace)
{
    jnode *n = NULL;
    switch (p->k->t) {
    case T_NAME: return name(p, with_namespace);
    case T_STRING: return strings(p);
    case T_INT:
    case T_FLOAT: return number(p);
    case T_LPAREN:
        p->k++;
        if (!nbj_deeper(p)) return NULL;
        n = nbj_tuple(p, TUPLE_PARENS);
        p->depth--;
        return n && nbj_expect(p, T_RPAREN) ? n : NULL;
    case T_LBRACKET:
    case T_LBRACE:
        if (!nbj_deeper(p)) return NULL;
        n = p->k->t == T_LBRACKET ? list(p) : dict(p);
        p->depth--;
        return n;
    default: return nbj_syntax_fail(p, p->k->pos, "unexpected '%s'", nbj_describe(p->k));
    }
}

/* Jinja means to end a tuple before `in` and `recursive` too, and never does: `for x, in y` is an error there. */
static bool tuple_ends(const jparser *p)
{
    return p->k->t == T_VAR_END || p->k->t == T_BLOCK_END || p->k->t == T_RPAREN;
}

/* One expression, or several with commas between them as a tuple. flags: TUPLE_... */
jnode *nbj_tuple(jparser *p, int flags)
{
    uint32_t pos = p->k->pos;
    size_t from = p->stack.n;
    bool is_tuple = false;
    uint32_t n = 0;
    for (;; n++) {
        if (n && !nbj_expect(p, T_COMMA)) return NULL;
        if (tuple_ends(p)) break;
        jnode *item =
            flags & TUPLE_TARGETS ? nbj_primary(p, flags & TUPLE_NAMESPACE) : nbj_expr(p, !(flags & TUPLE_NO_COND));
        if (!item || !nbj_keep(p, item)) return NULL;
        if (p->k->t != T_COMMA) {
            n++;
            break;
        }
        is_tuple = true;
    }
    if (!is_tuple && n) return nbj_take(p, from).v[0];
    if (!is_tuple && !(flags & TUPLE_PARENS))
        return nbj_syntax_fail(p, p->k->pos, "Expected an expression, got '%s'", nbj_describe(p->k));
    return with_kids(p, nbj_node(p, N_TUPLE, pos, NULL, NULL), from);
}

/* ---- calls, subscripts, filters, tests ---- */

/* (a, b, *c, k=d, **e): positional first, one * and one ** at most. */
jcallargs *nbj_call_args(jparser *p)
{
    uint32_t pos = p->k->pos;
    jcallargs *c = NB_NEW(p->t->arena, jcallargs);
    if (!c) return nbj_parse_oom(p);
    if (!nbj_expect(p, T_LPAREN)) return NULL;
    size_t from = p->stack.n;
    nb_buf names = {0}, values = {0};
    bool bad = false;
    for (bool first = true; p->k->t != T_RPAREN && !bad; first = false) {
        if (!first && !nbj_expect(p, T_COMMA)) goto done;
        if (!first && p->k->t == T_RPAREN) break;
        if (p->k->t == T_MUL) {
            bad = c->dyn || c->dynkw;
            p->k++;
            if (!(c->dyn = nbj_expr(p, true))) goto done;
        } else if (p->k->t == T_POW) {
            bad = c->dynkw != NULL;
            p->k++;
            if (!(c->dynkw = nbj_expr(p, true))) goto done;
        } else if (p->k->t == T_NAME && p->k[1].t == T_ASSIGN) {
            const jstr *s = nbj_name_of(p, p->k->text);
            bad = c->dynkw != NULL;
            for (size_t i = 0; i < names.n; i += sizeof s) bad |= memcmp(names.p + i, &s, sizeof s) == 0;
            p->k += 2;
            jnode *v = nbj_expr(p, true);
            if (!v || !s) goto done;
            nb_buf_add(&names, &s, sizeof s);
            nb_buf_add(&values, &v, sizeof v);
        } else {
            bad = c->dyn || c->dynkw || names.n;
            jnode *v = nbj_expr(p, true);
            if (!v || !nbj_keep(p, v)) goto done;
        }
    }
    if (bad) {
        nbj_syntax_fail(p, pos, "invalid syntax for function call expression");
        goto done;
    }
    if (!nbj_expect(p, T_RPAREN)) goto done;
    c->pos = nbj_take(p, from);
    c->kw.n = (uint32_t)(values.n / sizeof(void *));
    c->kw.v = nbj_copy(p->t->arena, values.p, c->kw.n, sizeof(jnode *));
    c->kwname = nbj_copy(p->t->arena, names.p, c->kw.n, sizeof(jstr *));
    if (!c->kw.v || !c->kwname || names.oom || values.oom) nbj_parse_oom(p);
done:
    nb_buf_free(&names);
    nb_buf_free(&values);
    return p->status == NB_OK ? c : NULL;
}

static uint16_t args_depth(const jcallargs *c)
{
    uint16_t d = 0;
    if (!c) return 0;
    for (uint32_t i = 0; i < c->pos.n; i++) d = depth_of(c->pos.v[i]) > d ? depth_of(c->pos.v[i]) : d;
    for (uint32_t i = 0; i < c->kw.n; i++) d = depth_of(c->kw.v[i]) > d ? depth_of(c->kw.v[i]) : d;
    d = depth_of(c->dyn) > d ? depth_of(c->dyn) : d;
    return depth_of(c->dynkw) > d ? depth_of(c->dynkw) : d;
}

/* Gives n its arguments and the depth that they need. */
static jnode *with_args(jparser *p, jnode *n, jcallargs *c)
{
    if (!n || p->status != NB_OK) return NULL;
    n->args = c;
    if (args_depth(c) >= n->depth) n->depth = (uint16_t)(args_depth(c) + 1);
    return n;
}

static jnode *call(jparser *p, jnode *callee)
{
    uint32_t pos = p->k->pos;
    if (!nbj_deeper(p)) return NULL;
    jcallargs *c = nbj_call_args(p);
    p->depth--;
    return c ? with_args(p, nbj_node(p, N_CALL, pos, callee, NULL), c) : NULL;
}

/* One of the comma-separated parts of a[...]: an expression or a slice. */
static jnode *subscribed(jparser *p)
{
    uint32_t pos = p->k->pos;
    jnode *part[3] = {NULL, NULL, NULL};
    if (p->k->t != T_COLON) {
        if (!(part[0] = nbj_expr(p, true))) return NULL;
        if (p->k->t != T_COLON) return part[0];
    }
    p->k++;
    for (int i = 1; i < 3; i++) {
        if (p->k->t != T_COLON && p->k->t != T_RBRACKET && p->k->t != T_COMMA && !(part[i] = nbj_expr(p, true)))
            return NULL;
        if (i == 1 && !nbj_skip(p, T_COLON)) break;
    }
    jnode *n = nbj_node(p, N_SLICE, pos, part[0], part[1]);
    if (!n) return NULL;
    n->c = part[2];
    if (depth_of(part[2]) >= n->depth) n->depth = (uint16_t)(depth_of(part[2]) + 1);
    return n;
}

/* a[...]: several subscripts make a tuple. */
static jnode *brackets(jparser *p, jnode *of, uint32_t pos)
{
    size_t from = p->stack.n;
    uint32_t n = 0;
    if (!nbj_deeper(p)) return NULL;
    for (; p->k->t != T_RBRACKET; n++) {
        if (n && !nbj_expect(p, T_COMMA)) return NULL;
        jnode *part = subscribed(p);
        if (!part || !nbj_keep(p, part)) return NULL;
    }
    p->depth--;
    p->k++;
    jnode *arg = n == 1 ? nbj_take(p, from).v[0] : with_kids(p, nbj_node(p, N_TUPLE, pos, NULL, NULL), from);
    return arg ? nbj_node(p, N_GETITEM, pos, of, arg) : NULL;
}

/* a.name, a.0 and a[...]. */
static jnode *subscript(jparser *p, jnode *of)
{
    uint32_t pos = p->k->pos;
    if (nbj_skip(p, T_LBRACKET)) return brackets(p, of, pos);
    p->k++;
    const jtoken *k = p->k;
    if (k->t == T_NAME) {
        p->k++;
        jnode *n = nbj_node(p, N_GETATTR, pos, of, NULL);
        return n && (n->name = nbj_name_of(p, k->text)) ? n : NULL;
    }
    if (k->t != T_INT) return nbj_syntax_fail(p, k->pos, "expected name or number");
    jnode *index = number(p);
    return index ? nbj_node(p, N_GETITEM, pos, of, index) : NULL;
}

/* Subscripts and calls behind an expression. */
static jnode *postfix(jparser *p, jnode *n)
{
    while (n) {
        if (p->k->t == T_DOT || p->k->t == T_LBRACKET)
            n = subscript(p, n);
        else if (p->k->t == T_LPAREN)
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* The name of a filter or test, which may have dots. */
static const jstr *dotted(jparser *p)
{
    nb_str text = p->k->text;
    if (!nbj_expect(p, T_NAME)) return NULL;
    nb_buf all = {0};
    nb_buf_add_str(&all, text);
    while (nbj_skip(p, T_DOT)) {
        text = p->k->text;
        if (!nbj_expect(p, T_NAME)) break;
        nb_buf_add_char(&all, '.');
        nb_buf_add_str(&all, text);
    }
    char *copy = p->status == NB_OK && !all.oom ? nb_arena_dup(p->t->arena, all.p, all.n) : NULL;
    const jstr *s = copy ? nbj_name_of(p, (nb_str){copy, all.n}) : NULL;
    nb_buf_free(&all);
    return s ? s : nbj_parse_oom(p);
}

jnode *nbj_filters(jparser *p, jnode *n, bool start_inline)
{
    while (p->k->t == T_PIPE || start_inline) {
        if (!start_inline) p->k++;
        start_inline = false;
        uint32_t pos = p->k->pos;
        const jstr *name_ = dotted(p);
        if (!name_) return NULL;
        jcallargs *c = NULL;
        if (p->k->t == T_LPAREN) {
            if (!nbj_deeper(p) || !(c = nbj_call_args(p))) return NULL;
            p->depth--;
        }
        n = with_args(p, nbj_node(p, N_FILTER, pos, n, NULL), c);
        if (!n) return NULL;
        n->name = name_;
        n->def = nbj_filter(js_view(name_));
    }
    return n;
}

/* `is divisibleby 3`: the argument without parentheses. */
static jcallargs *bare_argument(jparser *p)
{
    if (nbj_is_name(p, "is")) return nbj_syntax_fail(p, p->k->pos, "You cannot chain multiple tests with is");
    jcallargs *c = NB_NEW(p->t->arena, jcallargs);
    if (!c) return nbj_parse_oom(p);
    size_t from = p->stack.n;
    jnode *arg = postfix(p, nbj_primary(p, false));
    if (!arg || !nbj_keep(p, arg)) return NULL;
    c->pos = nbj_take(p, from);
    return c;
}

/* `is [not] name`, with arguments in parentheses or one bare primary. */
static jnode *test(jparser *p, jnode *n)
{
    uint32_t pos = (p->k++)->pos;
    bool negated = nbj_skip_name(p, "not");
    const jstr *name_ = dotted(p);
    if (!name_) return NULL;
    jcallargs *c = NULL;
    jtok t = (jtok)p->k->t;
    if (!nbj_deeper(p)) return NULL;
    if (t == T_LPAREN) {
        if (!(c = nbj_call_args(p))) return NULL;
    } else if ((t == T_NAME || t == T_STRING || t == T_INT || t == T_FLOAT || t == T_LBRACKET || t == T_LBRACE) &&
               !nbj_is_name(p, "else") && !nbj_is_name(p, "or") && !nbj_is_name(p, "and")) {
        if (!(c = bare_argument(p))) return NULL;
    }
    p->depth--;
    n = with_args(p, nbj_node(p, N_TEST, pos, n, NULL), c);
    if (!n) return NULL;
    n->name = name_;
    n->def = nbj_test(js_view(name_));
    return negated ? nbj_node(p, N_NOT, pos, n, NULL) : n;
}

/* Filters, tests and calls behind an operand. */
static jnode *filter_chain(jparser *p, jnode *n)
{
    while (n) {
        if (p->k->t == T_PIPE)
            n = nbj_filters(p, n, false);
        else if (nbj_is_name(p, "is"))
            n = test(p, n);
        else if (p->k->t == T_LPAREN)
            n = call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators, from tight to loose ---- */

/* Signs bind tighter than filters only inside: -1|abs is abs(-1). */
static jnode *unary(jparser *p, bool with_filter)
{
    uint32_t pos = p->k->pos;
    jnode *n;
    if (p->k->t == T_SUB || p->k->t == T_ADD) {
        jkind kind = (p->k++)->t == T_SUB ? N_NEG : N_POS;
        if (!nbj_deeper(p)) return NULL;
        n = unary(p, false);
        p->depth--;
        n = n ? nbj_node(p, kind, pos, n, NULL) : NULL;
    } else {
        n = nbj_primary(p, false);
    }
    n = postfix(p, n);
    return with_filter ? filter_chain(p, n) : n;
}

static jnode *binary(jparser *p, jop op, jnode *left, jnode *right, uint32_t pos)
{
    if (!left || !right) return NULL;
    jnode *n = nbj_node(p, N_BIN, pos, left, right);
    if (n) n->op = (uint8_t)op;
    return n;
}

/* ** is left-associative in Jinja. */
static jnode *power(jparser *p)
{
    jnode *n = unary(p, true);
    while (n && p->k->t == T_POW) {
        uint32_t pos = (p->k++)->pos;
        n = binary(p, OP_POW, n, unary(p, true), pos);
    }
    return n;
}

static jnode *product(jparser *p)
{
    jnode *n = power(p);
    while (n) {
        jtok t = (jtok)p->k->t;
        if (t != T_MUL && t != T_DIV && t != T_FLOORDIV && t != T_MOD) break;
        uint32_t pos = (p->k++)->pos;
        n = binary(p, t == T_MUL ? OP_MUL : t == T_DIV ? OP_DIV : t == T_MOD ? OP_MOD : OP_FLOORDIV, n, power(p), pos);
    }
    return n;
}

/* ~ binds tighter than + and -. */
static jnode *concat(jparser *p)
{
    uint32_t pos = p->k->pos;
    size_t from = p->stack.n;
    jnode *first = product(p);
    if (!first || p->k->t != T_TILDE) return first;
    if (!nbj_keep(p, first)) return NULL;
    while (nbj_skip(p, T_TILDE)) {
        jnode *n = product(p);
        if (!n || !nbj_keep(p, n)) return NULL;
    }
    return with_kids(p, nbj_node(p, N_CONCAT, pos, NULL, NULL), from);
}

static jnode *sum(jparser *p)
{
    jnode *n = concat(p);
    while (n && (p->k->t == T_ADD || p->k->t == T_SUB)) {
        const jtoken *k = p->k++;
        n = binary(p, k->t == T_ADD ? OP_ADD : OP_SUB, n, concat(p), k->pos);
    }
    return n;
}

/* The comparison operator that comes next, -1 for none. */
static int comparison(jparser *p)
{
    switch (p->k->t) {
    case T_EQ: return OP_EQ;
    case T_NE: return OP_NE;
    case T_LT: return OP_LT;
    case T_LE: return OP_LE;
    case T_GT: return OP_GT;
    case T_GE: return OP_GE;
    case T_NAME:
        if (nbj_is_name(p, "in")) return OP_IN;
        if (nbj_is_name(p, "not") && p->k[1].t == T_NAME && nb_str_is(p->k[1].text, "in")) return OP_NOTIN;
        return -1;
    default: return -1;
    }
}

/* a < b <= c is one node with two operands. */
static jnode *compare(jparser *p)
{
    uint32_t pos = p->k->pos;
    size_t from = p->stack.n;
    jnode *first = sum(p);
    if (!first || comparison(p) < 0) return first;
    for (int op; (op = comparison(p)) >= 0;) {
        uint32_t at = p->k->pos;
        p->k += op == OP_NOTIN ? 2 : 1;
        jnode *right = sum(p);
        jnode *n = right ? nbj_node(p, N_OPERAND, at, right, NULL) : NULL;
        if (!n || !nbj_keep(p, n)) return NULL;
        n->op = (uint8_t)op;
    }
    return with_kids(p, nbj_node(p, N_COMPARE, pos, first, NULL), from);
}

static jnode *negation(jparser *p)
{
    uint32_t pos = p->k->pos;
    if (!nbj_skip_name(p, "not")) return compare(p);
    if (!nbj_deeper(p)) return NULL;
    jnode *n = negation(p);
    p->depth--;
    return n ? nbj_node(p, N_NOT, pos, n, NULL) : NULL;
}

static jnode *and_chain(jparser *p)
{
    jnode *n = negation(p);
    while (n && nbj_is_name(p, "and")) {
        uint32_t pos = (p->k++)->pos;
        jnode *right = negation(p);
        n = right ? nbj_node(p, N_AND, pos, n, right) : NULL;
    }
    return n;
}

static jnode *or_chain(jparser *p)
{
    jnode *n = and_chain(p);
    while (n && nbj_is_name(p, "or")) {
        uint32_t pos = (p->k++)->pos;
        jnode *right = and_chain(p);
        n = right ? nbj_node(p, N_OR, pos, n, right) : NULL;
    }
    return n;
}

/* a if b else c; without else the value is undefined where b is false. */
static jnode *conditional(jparser *p)
{
    jnode *n = or_chain(p);
    while (n && nbj_is_name(p, "if")) {
        uint32_t pos = (p->k++)->pos;
        jnode *test_ = or_chain(p), *other = NULL;
        if (!test_) return NULL;
        if (nbj_skip_name(p, "else")) {
            if (!nbj_deeper(p)) return NULL;
            other = conditional(p);
            p->depth--;
            if (!other) return NULL;
        }
        jnode *c = nbj_node(p, N_COND, pos, test_, n);
        if (!c) return NULL;
        c->c = other;
        if (depth_of(other) >= c->depth) c->depth = (uint16_t)(depth_of(other) + 1);
        n = c;
    }
    return n;
}

jnode *nbj_expr(jparser *p, bool with_cond)
{
    if (!nbj_deeper(p)) return NULL;
    jnode *n = with_cond ? conditional(p) : or_chain(p);
    p->depth--;
    return p->status == NB_OK ? n : NULL;
}
