/* text/jinja_render: one rendering from its limits to its spans. */
#include "text/jinja.h"

#include <stdio.h>
#include <stdlib.h>

enum { DEFAULT_STEPS = 20000000, DEFAULT_OUTPUT = 64 << 20, DEFAULT_MEMORY = 512 << 20, DEFAULT_DEPTH = 1500 };

jval nbj_fail(jctx *j, const char *type, const char *fmt, ...)
{
    if (j->failed) return jv(J_ERR);
    j->failed = true;
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    uint32_t line, column;
    if (!j->at) { /* while the variables are made */
        nb_fail(j->err, NB_E_INVALID, "chat template: %s: %s", type, text);
        return jv(J_ERR);
    }
    nbj_position(j->t->source, j->t->n, j->at->pos, &line, &column);
    nb_fail(j->err, NB_E_INVALID, "chat template: line %u, column %u: %s: %s", line, column, type, text);
    return jv(J_ERR);
}

/* Memory is out, or the limit is reached: the same for the template. */
jval nbj_oom(jctx *j)
{
    return nbj_fail(j, "MemoryError", "the template needs more than its %llu bytes of memory",
                    (unsigned long long)j->lim.memory_bytes);
}

bool nbj_step(jctx *j, uint64_t n)
{
    j->steps += n;
    if (j->steps <= j->lim.steps) return !j->failed;
    nbj_fail(j, "TimeoutError", "the template did not end within %llu steps", (unsigned long long)j->lim.steps);
    return false;
}

void *nbj_alloc(jctx *j, size_t n)
{
    void *p = nb_arena_alloc(j->a, n);
    if (!p) nbj_oom(j);
    return p;
}

void *nbj_array(jctx *j, size_t count, size_t size)
{
    void *p = nb_arena_array(j->a, count, size);
    if (!p) nbj_oom(j);
    return p;
}

/* A variable; globals of the same name are hidden. */
bool nbj_define_str(jctx *j, nb_str name, jval v)
{
    jval key = nbj_str_ref(j, name.p, name.n, true);
    return !j_bad(key) && nbj_dict_set(j, j->globals, key, v);
}

bool nbj_define(jctx *j, const char *name, jval v) { return nbj_define_str(j, nb_str_of(name), v); }

/* Copies the output into the caller's arena: one text, cut into spans. */
static nb_status give_spans(jctx *j, const jbuf *b, nb_arena *arena, nb_prompt *out)
{
    char *text = nb_arena_dup(arena, b->p ? b->p : "", b->n);
    out->spans = nb_arena_array(arena, b->nruns, sizeof *out->spans);
    out->n = 0;
    if (!text || !out->spans) return nb_fail(j->err, NB_E_NO_MEMORY, "chat template: no memory for the prompt");
    uint32_t from = 0;
    for (uint32_t i = 0; i < b->nruns; i++) {
        out->spans[out->n++] = (nb_span){{text + from, b->runs[i].end - from}, b->runs[i].trusted};
        from = b->runs[i].end;
    }
    return NB_OK;
}

/* Fills in the variables, enters the root frame and executes the template. */
static bool run(jctx *j, const nbj_options *o)
{
    const nb_template *t = j->t;
    j->globals = nbj_dict(j, 16);
    jact *act = nbj_alloc(j, sizeof *act);
    if (!j->globals || !act || !o->fill(j, o->user)) return false;
    act->slot = nbj_array(j, t->nslots, sizeof *act->slot);
    j->out = nbj_push(j);
    if (!act->slot || !j->out) return false;
    if (t->unknown && !o->extend) {
        j->at = t->unknown;
        nbj_fail(j, "TemplateAssertionError", "No filter named '%.*s'.", (int)t->unknown->name->n, t->unknown->name->p);
        return false;
    }
    j->act = act;
    nbj_enter(j, &t->scope);
    return nbj_exec(j, &t->root) >= 0 && !j->failed && nbj_joins(j, j->out);
}

nb_status nbj_render(const nb_template *t, const nbj_options *o, nb_arena *arena, nb_prompt *out, nb_error *err)
{
    nb_error mine;
    jctx j = {
        .t = t, .err = err ? err : &mine, .extend = o->extend, .has_now = o->now != NULL, .now = o->now ? *o->now : 0};
    if (o->limits) j.lim = *o->limits;
    if (!j.lim.steps) j.lim.steps = DEFAULT_STEPS;
    if (!j.lim.output_bytes || j.lim.output_bytes > INT32_MAX / 2) j.lim.output_bytes = DEFAULT_OUTPUT;
    if (!j.lim.memory_bytes) j.lim.memory_bytes = DEFAULT_MEMORY;
    if (!j.lim.depth) j.lim.depth = DEFAULT_DEPTH;
    *out = (nb_prompt){0};
    j.a = nb_arena_new(j.lim.memory_bytes);
    if (!j.a) return nb_fail(err, NB_E_NO_MEMORY, "chat template: no memory");
    nb_status s = NB_E_INVALID;
    if (run(&j, o))
        s = give_spans(&j, j.out, arena, out);
    else if (!j.failed)
        s = nb_fail(j.err, NB_E_NO_MEMORY, "chat template: no memory");
    for (uint32_t i = 0; i < j.cappool; i++) {
        if (!j.pool[i]) continue;
        free(j.pool[i]->p);
        free(j.pool[i]->runs);
        free(j.pool[i]);
    }
    free(j.pool);
    for (size_t i = 0; i < j.docs.n / sizeof(nb_json_doc); i++) nb_json_free((nb_json_doc *)(void *)j.docs.p + i);
    nb_buf_free(&j.docs);
    nb_arena_free(j.a);
    return s;
}

/* Every key of an object becomes a variable; all of it is the request's. */
static bool fill_object(jctx *j, const void *user)
{
    const nb_json *v = user;
    for (uint32_t i = 0; v && i < v->count; i++) {
        if (!nbj_define_str(j, v->keys[i], nbj_from_json(j, &v->items[i], false))) return false;
    }
    return true;
}

nb_status nb_template_render(const nb_template *t, const nb_json *variables, const nb_render_limits *limits,
                             const int64_t *now, nb_arena *arena, nb_prompt *out, nb_error *err)
{
    if (variables && variables->type != NB_JSON_OBJECT)
        return nb_fail(err, NB_E_USAGE, "chat template: the variables are not a JSON object");
    nbj_options o = {.fill = fill_object, .user = variables, .limits = limits, .now = now};
    return nbj_render(t, &o, arena, out, err);
}
