/* text/jinja_stmt: statements, and nb_template_parse. */
#include "text/jinja_parse.h"

#include <stdlib.h>

static bool statements(jparser *p, const char *const *ends, jblock *out);

/* A node of a statement that has a body. */
static jnode *with_body(jparser *p, jkind kind, uint32_t pos)
{
    jnode *n = nbj_node(p, kind, pos, NULL, NULL);
    if (n && !(n->body = NB_NEW(p->t->arena, jbody))) return nbj_parse_oom(p);
    return n;
}

/* Marks names as assigned to; refuses what cannot be. */
static bool make_target(jparser *p, jnode *n, char ctx)
{
    if (n->kind == N_TUPLE) {
        for (uint32_t i = 0; i < n->kids.n; i++) {
            if (!make_target(p, n->kids.v[i], ctx)) return false;
        }
        return true;
    }
    if (n->kind == N_NAME) n->ctx = (uint8_t)ctx;
    if (n->kind == N_NAME || n->kind == N_NSREF) return true;
    nbj_syntax_fail(p, n->pos, "can't assign to this expression");
    return false;
}

/* What stands on the left of an assignment or between `for` and `in`. */
static jnode *target(jparser *p, int flags)
{
    jnode *n = nbj_tuple(p, TUPLE_TARGETS | flags);
    return n && make_target(p, n, 's') ? n : NULL;
}

/* A single name that is assigned to or declared. */
static jnode *name_target(jparser *p, char ctx)
{
    uint32_t pos = p->k->pos;
    if (p->k->t != T_NAME) return nbj_expect(p, T_NAME), NULL;
    jnode *n = nbj_primary(p, false);
    if (!n) return NULL;
    if (n->kind != N_NAME) return nbj_syntax_fail(p, pos, "can't assign to a constant");
    n->ctx = (uint8_t)ctx;
    return n;
}

/* {% set a = b %}, or a block whose output becomes the value, through a filter if one is named. */
static jnode *parse_set(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endset", NULL};
    jnode *to = target(p, TUPLE_NAMESPACE);
    if (!to) return NULL;
    if (nbj_skip(p, T_ASSIGN)) {
        jnode *v = nbj_tuple(p, 0);
        return v ? nbj_node(p, N_SET, pos, to, v) : NULL;
    }
    jnode *n = with_body(p, N_SETBLOCK, pos);
    if (!n) return NULL;
    n->a = to;
    if (p->k->t == T_PIPE && !(n->b = nbj_filters(p, NULL, false))) return NULL;
    if (!statements(p, ends, &n->body->main)) return NULL;
    p->k++;
    return n;
}

/* for a in b if c recursive: the inline `if` of an expression is not read here, it is the filter. */
static jnode *parse_for(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const last[] = {"endfor", NULL};
    jnode *n = with_body(p, N_FOR, pos);
    if (!n || !(n->a = target(p, 0))) return NULL;
    if (!nbj_skip_name(p, "in"))
        return nbj_syntax_fail(p, p->k->pos, "expected token 'in', got '%s'", nbj_describe(p->k));
    if (!(n->b = nbj_tuple(p, TUPLE_NO_COND))) return NULL;
    if (nbj_skip_name(p, "if") && !(n->c = nbj_expr(p, true))) return NULL;
    n->body->recursive = nbj_skip_name(p, "recursive");
    if (!statements(p, ends, &n->body->main)) return NULL;
    bool more = nbj_is_name(p, "else");
    p->k++;
    if (!more) return n;
    if (!statements(p, last, &n->body->other)) return NULL;
    p->k++;
    return n;
}

/* elif hangs at ->b as an `if` of its own, else in ->body->other of the last. */
static jnode *parse_if(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    jnode *first = NULL, **link = &first;
    for (;;) {
        jnode *n = with_body(p, N_IF, pos);
        if (!n || !(n->a = nbj_tuple(p, TUPLE_NO_COND))) return NULL;
        if (!statements(p, ends, &n->body->main)) return NULL;
        *link = n;
        link = &n->b;
        pos = p->k->pos;
        if (nbj_skip_name(p, "elif")) continue;
        if (nbj_skip_name(p, "else") && !statements(p, last, &n->body->other)) return NULL;
        p->k++; /* endif */
        return first;
    }
}

/* Parameters of a macro or call block; those with defaults come last. */
static bool signature(jparser *p, jbody *b)
{
    size_t from = p->stack.n;
    nb_buf defaults = {0};
    if (!nbj_expect(p, T_LPAREN)) return false;
    for (uint32_t n = 0; p->k->t != T_RPAREN; n++) {
        if (n && !nbj_expect(p, T_COMMA)) break;
        jnode *arg = name_target(p, 'p');
        if (!arg) break;
        for (size_t i = from; i < p->stack.n; i += sizeof arg) {
            if ((*(jnode **)(void *)(p->stack.p + i))->name == arg->name)
                nbj_syntax_fail(p, arg->pos, "duplicate argument '%s'", arg->name->p);
        }
        if (nbj_skip(p, T_ASSIGN)) {
            jnode *v = nbj_expr(p, true);
            if (!v) break;
            nb_buf_add(&defaults, &v, sizeof v);
        } else if (defaults.n) {
            nbj_syntax_fail(p, arg->pos, "non-default argument follows default argument");
            break;
        }
        if (!nbj_keep(p, arg)) break;
    }
    if (p->status == NB_OK && nbj_expect(p, T_RPAREN)) {
        b->params = nbj_take(p, from);
        b->defaults.n = (uint32_t)(defaults.n / sizeof(void *));
        b->defaults.v = nbj_copy(p->t->arena, defaults.p, b->defaults.n, sizeof(jnode *));
        if (!b->defaults.v || defaults.oom) nbj_parse_oom(p);
    }
    nb_buf_free(&defaults);
    return p->status == NB_OK;
}

static jnode *parse_macro(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endmacro", NULL};
    jnode *n = with_body(p, N_MACRO, pos);
    jnode *name = n ? name_target(p, 's') : NULL;
    if (!name || !signature(p, n->body) || !statements(p, ends, &n->body->main)) return NULL;
    n->name = name->name;
    p->k++;
    return n;
}

/* {% call(args) f(...) %}: the body becomes the macro `caller`. */
static jnode *parse_call(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endcall", NULL};
    jnode *n = with_body(p, N_CALLBLOCK, pos);
    if (!n || (p->k->t == T_LPAREN && !signature(p, n->body))) return NULL;
    if (!(n->a = nbj_expr(p, true))) return NULL;
    if (n->a->kind != N_CALL) return nbj_syntax_fail(p, pos, "expected call");
    if (!statements(p, ends, &n->body->main)) return NULL;
    p->k++;
    return n;
}

static jnode *parse_filter(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endfilter", NULL};
    jnode *n = with_body(p, N_FILTERBLOCK, pos);
    if (!n || !(n->b = nbj_filters(p, NULL, true)) || !statements(p, ends, &n->body->main)) return NULL;
    p->k++;
    return n;
}

/* {% generation %}: marks what the assistant says for trainers; printed as it is, but a scope of its own. */
static jnode *parse_generation(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endgeneration", NULL};
    jnode *n = with_body(p, N_GENERATION, pos);
    if (!n || !statements(p, ends, &n->body->main)) return NULL;
    p->k++;
    return n;
}

static jnode *parse_with(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endwith", NULL};
    jnode *n = with_body(p, N_WITH, pos);
    size_t from = p->stack.n;
    if (!n) return NULL;
    for (uint32_t i = 0; p->k->t != T_BLOCK_END; i++) {
        if (i && !nbj_expect(p, T_COMMA)) return NULL;
        jnode *to = target(p, 0);
        if (!to || !make_target(p, to, 'p') || !nbj_expect(p, T_ASSIGN)) return NULL;
        jnode *v = nbj_expr(p, true);
        jnode *pair = v ? nbj_node(p, N_SET, to->pos, to, v) : NULL;
        if (!pair || !nbj_keep(p, pair)) return NULL;
    }
    n->kids = nbj_take(p, from);
    if (!statements(p, ends, &n->body->main)) return NULL;
    p->k++;
    return n;
}

/* Text is never escaped unless |safe says so; a template may say that it wants no more than that. */
static jnode *parse_autoescape(jparser *p, uint32_t pos)
{
    static const char *const ends[] = {"endautoescape", NULL};
    jnode *n = with_body(p, N_WITH, pos), *v = n ? nbj_expr(p, true) : NULL;
    if (!v) return NULL;
    if (v->kind != N_CONST || v->value.t != J_BOOL || v->value.u.b)
        return nbj_syntax_fail(p, pos, "autoescape is supported with false only");
    if (!statements(p, ends, &n->body->main)) return NULL;
    p->k++;
    return n;
}

/* print a, b: outputs in a row, as the kids of one node. */
static jnode *parse_print(jparser *p, uint32_t pos)
{
    jnode *n = nbj_node(p, N_OUTPUT, pos, NULL, NULL);
    size_t from = p->stack.n;
    for (uint32_t i = 0; n && p->k->t != T_BLOCK_END; i++) {
        if (i && !nbj_expect(p, T_COMMA)) return NULL;
        jnode *v = nbj_expr(p, true);
        if (!v || !nbj_keep(p, v)) return NULL;
    }
    if (n) n->kids = nbj_take(p, from);
    return n;
}

/* Tags that need other templates: there are none, so they fail when they are reached. */
static jnode *parse_refused(jparser *p, uint32_t pos, nb_str tag)
{
    jnode *n = nbj_node(p, N_REFUSED, pos, NULL, NULL);
    if (!n || !(n->name = nbj_name_of(p, tag))) return NULL;
    while (p->k->t != T_BLOCK_END && p->k->t != T_EOF) p->k++;
    return n;
}

/* A tag from its name on, without the closing delimiter. */
static jnode *statement(jparser *p)
{
    const jtoken *k = p->k;
    if (k->t != T_NAME) return nbj_syntax_fail(p, k->pos, "tag name expected");
    static const struct {
        const char *tag;
        jnode *(*parse)(jparser *p, uint32_t pos);
    } tags[] = {
        {"for", parse_for},
        {"if", parse_if},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call},
        {"filter", parse_filter},
        {"generation", parse_generation},
        {"with", parse_with},
        {"print", parse_print},
        {"autoescape", parse_autoescape},
    };
    p->k++;
    for (size_t i = 0; i < NB_COUNT(tags); i++) {
        if (nb_str_is(k->text, tags[i].tag)) return tags[i].parse(p, k->pos);
    }
    if (nb_str_is(k->text, "break")) return nbj_node(p, N_BREAK, k->pos, NULL, NULL);
    if (nb_str_is(k->text, "continue")) return nbj_node(p, N_CONTINUE, k->pos, NULL, NULL);
    static const char *const refused[] = {"include", "import", "from", "extends"};
    for (size_t i = 0; i < NB_COUNT(refused); i++) {
        if (nb_str_is(k->text, refused[i])) return parse_refused(p, k->pos, k->text);
    }
    if (nb_str_is(k->text, "block"))
        return nbj_syntax_fail(p, k->pos, "the tag '%.*s' is not supported", NB_FMT_STR(k->text));
    return nbj_syntax_fail(p, k->pos, "Encountered unknown tag '%.*s'.", k->text.n > 60 ? 60 : (int)k->text.n,
                           k->text.p);
}

/* Is the next token one of the tags that end this block? */
static bool is_end(const jparser *p, const char *const *ends)
{
    for (; ends && *ends; ends++) {
        if (nbj_is_name(p, *ends)) return true;
    }
    return false;
}

/* Text between tags. */
static jnode *data(jparser *p)
{
    const jtoken *k = p->k++;
    jnode *n = nbj_node(p, N_DATA, k->pos, NULL, NULL);
    jstr *s = n ? nbj_const_str(p->t->arena, k->text.p, k->text.n, true) : NULL;
    if (!s) return nbj_parse_oom(p);
    n->value = jv_str(s);
    return n;
}

/* {{ ... }} */
static jnode *output(jparser *p)
{
    uint32_t pos = (p->k++)->pos;
    jnode *v = nbj_tuple(p, 0);
    return v && nbj_expect(p, T_VAR_END) ? nbj_node(p, N_OUTPUT, pos, v, NULL) : NULL;
}

/* Up to one of the end tags, at whose name it stops; to the end of the template where ends is NULL. */
static bool block(jparser *p, const char *const *ends, jblock *out)
{
    size_t from = p->stack.n;
    uint32_t begin = p->k->pos;
    while (p->k->t != T_EOF) {
        jnode *n = NULL;
        if (p->k->t == T_DATA)
            n = data(p);
        else if (p->k->t == T_VAR_BEGIN)
            n = output(p);
        else if (p->k->t == T_BLOCK_BEGIN) {
            p->k++;
            if (is_end(p, ends)) {
                *out = nbj_take(p, from);
                return p->status == NB_OK;
            }
            n = statement(p);
            if (n && !nbj_expect(p, T_BLOCK_END)) return false;
        } else {
            nbj_syntax_fail(p, p->k->pos, "unexpected '%s'", nbj_describe(p->k));
        }
        if (!n || !nbj_keep(p, n)) return false;
    }
    if (ends) {
        nbj_syntax_fail(p, begin, "Unexpected end of template. Jinja was looking for the tag '%s'.", ends[0]);
        return false;
    }
    *out = nbj_take(p, from);
    return p->status == NB_OK;
}

/* The body of a tag: behind its delimiter, up to one of `ends`. */
static bool statements(jparser *p, const char *const *ends, jblock *out)
{
    nbj_skip(p, T_COLON);
    if (!nbj_expect(p, T_BLOCK_END) || !nbj_deeper(p)) return false;
    bool ok = block(p, ends, out);
    p->depth--;
    return ok;
}

nb_status nbj_parse(nb_template *t, const jtoken *tok, uint32_t n, nb_error *err)
{
    jparser p = {.t = t, .k = tok, .err = err};
    (void)n;
    if (!nb_map_init(&p.names, 64))
        nbj_parse_oom(&p);
    else
        block(&p, NULL, &t->root);
    nb_map_free(&p.names);
    nb_buf_free(&p.name_list);
    nb_buf_free(&p.stack);
    return p.status;
}

/* \r\n and \r become \n; one trailing line end goes. */
static bool normalise(nb_template *t, const char *text, size_t n)
{
    char *s = nb_arena_alloc(t->arena, n + 1);
    if (!s) return false;
    uint32_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        s[m++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (m && s[m - 1] == '\n') m--;
    s[m] = 0;
    t->source = s;
    t->n = m;
    return true;
}

nb_status nb_template_parse(nb_template **out, const char *text, size_t n, nb_error *err)
{
    *out = NULL;
    if (n > NBJ_MAX_SOURCE)
        return nb_fail(err, NB_E_INVALID, "chat template: %zu bytes, the limit is %d", n, NBJ_MAX_SOURCE);
    size_t good = nb_utf8_valid_prefix(text, n);
    if (good < n) return nb_fail(err, NB_E_INVALID, "chat template: byte %zu is not UTF-8", good);
    nb_template *t = calloc(1, sizeof *t);
    if (t) t->arena = nb_arena_new((size_t)1 << 30);
    jtoken *tok = NULL;
    uint32_t count = 0;
    nb_status s = NB_OK;
    if (!t || !t->arena || !normalise(t, text, n)) s = nb_fail(err, NB_E_NO_MEMORY, "chat template: no memory");
    if (s == NB_OK) s = nbj_lex(t, &tok, &count, err);
    if (s == NB_OK) s = nbj_parse(t, tok, count, err);
    if (s == NB_OK) s = nbj_scope(t, err);
    if (s == NB_OK)
        *out = t;
    else
        nb_template_free(t);
    return s;
}

void nb_template_free(nb_template *t)
{
    if (!t) return;
    nb_arena_free(t->arena);
    free(t->caps);
    free(t);
}
