/* text/jinja_iter: what `for` and the lazy filters read from. */
#include "text/jinja.h"

jiter *nbj_iter_new(jctx *j, int (*next)(jctx *, jiter *, jval *))
{
    jiter *it = nbj_alloc(j, sizeof *it);
    if (it) it->next = next;
    return it;
}

static int next_list(jctx *j, jiter *it, jval *out)
{
    if (it->pos >= it->src.u.l->n) return 0;
    *out = it->src.u.l->v[it->pos++];
    return nbj_step(j, 1) ? 1 : -1;
}

/* Code points; characters of markup are plain text. */
static int next_char(jctx *j, jiter *it, jval *out)
{
    const jstr *s = it->src.u.s;
    if (it->pos >= s->n) return 0;
    uint32_t from = (uint32_t)it->pos, to = from + 1;
    while (to < s->n && ((uint8_t)s->p[to] & 0xC0) == 0x80) to++;
    it->pos = to;
    *out = nbj_as_markup(j, nbj_slice(j, s, from, to), false);
    return j_bad(*out) || !nbj_step(j, 1) ? -1 : 1;
}

static int next_range(jctx *j, jiter *it, jval *out)
{
    const jrange *r = it->src.u.range;
    if ((int64_t)it->pos >= r->len) return 0;
    *out = jv_int(r->start + (int64_t)it->pos++ * r->step);
    return nbj_step(j, 1) ? 1 : -1;
}

/* Keys, values or items: `a` is the kind. */
static int next_dict(jctx *j, jiter *it, jval *out)
{
    const jdict *d = it->src.t == J_VIEW ? it->src.u.view->d : it->src.u.d;
    if (it->pos >= d->n) return 0;
    const jentry *e = &d->e[it->pos++];
    int kind = it->src.t == J_VIEW ? it->src.u.view->kind : 0;
    *out = kind == 0 ? e->key : kind == 1 ? e->val : nbj_pair(j, e->key, e->val);
    return j_bad(*out) || !nbj_step(j, 1) ? -1 : 1;
}

/* Undefined iterates as empty. */
static int next_none(jctx *j, jiter *it, jval *out)
{
    (void)j;
    (void)it;
    (void)out;
    return 0;
}

/* A loop that is itself looped over: gives (item, loop). */
static int next_loop(jctx *j, jiter *it, jval *out)
{
    int more = nbj_loop_next(j, it->src.u.loop, out);
    if (more > 0) *out = nbj_pair(j, *out, it->src);
    return more > 0 && j_bad(*out) ? -1 : more;
}

/* iter(v). An iterator is its own. */
jiter *nbj_iter(jctx *j, jval v)
{
    int (*next)(jctx *, jiter *, jval *);
    switch (v.t) {
    case J_ERR: return NULL;
    case J_ITER: return v.u.it;
    case J_UNDEF: next = next_none; break;
    case J_STR: next = next_char; break;
    case J_LIST:
    case J_TUPLE: next = next_list; break;
    case J_DICT:
    case J_VIEW: next = next_dict; break;
    case J_RANGE: next = next_range; break;
    case J_LOOP: next = next_loop; break;
    default: nbj_fail(j, "TypeError", "'%s' object is not iterable", nbj_type_name(v)); return NULL;
    }
    jiter *it = nbj_iter_new(j, next);
    if (it) it->src = v;
    return it;
}

/* list(v), always a new list. */
jlist *nbj_collect(jctx *j, jval v)
{
    jiter *it = nbj_iter(j, v);
    if (!it) return NULL;
    jlist *l = nbj_list(j, j_is_seq(v) ? v.u.l->n : v.t == J_DICT ? v.u.d->n : 0);
    jval item;
    int more = 0;
    while (l && (more = nbj_next(j, it, &item)) > 0) {
        if (!nbj_push_val(j, l, item)) return NULL;
    }
    return l && more == 0 ? l : NULL;
}
