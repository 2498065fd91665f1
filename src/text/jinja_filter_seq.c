/* text/jinja_filter_seq: filters on sequences and mappings. Those that Python makes generators are lazy here too. */
#include "text/jinja.h"

static const char *const no_names[1] = {""};

static bool none_given(jctx *j, const char *fn, const jargs *a)
{
    jval ignored[1];
    return nbj_bind(j, fn, a, no_names, 0, 0, ignored);
}

static bool given(jval v) { return v.t != J_MISSING && v.t != J_NONE; }

/* ---- attributes ---- */

/* One step of a path: digits are an index. */
static jval one_part(jctx *j, jval v, nb_str part, jval def)
{
    jval key = nbj_str_ref(j, part.p, part.n, true);
    bool digits = part.n > 0;
    for (size_t i = 0; i < part.n; i++) digits &= part.p[i] >= '0' && part.p[i] <= '9';
    if (digits) key = nbj_parse_int(j, part, 10);
    v = j_bad(key) ? key : nbj_getitem(j, v, key);
    return given(def) && v.t == J_UNDEF ? def : v;
}

static jval attribute(jctx *j, jval v, nb_str path, jval def)
{
    for (size_t i = 0; i <= path.n && !j_bad(v);) {
        size_t end = i;
        while (end < path.n && path.p[end] != '.') end++;
        v = one_part(j, v, (nb_str){path.p + i, end - i}, def);
        i = end + 1;
    }
    return v;
}

/* A path in text, or any other key; def stands for what is undefined on the way. */
static jval attribute_or(jctx *j, jval v, jval path, jval def)
{
    if (!given(path)) return v;
    if (path.t == J_STR) return attribute(j, v, js_view(path.u.s), def);
    v = nbj_getitem(j, v, path);
    return given(def) && v.t == J_UNDEF ? def : v;
}

jval nbj_attribute(jctx *j, jval v, jval path) { return attribute_or(j, v, path, jv(J_MISSING)); }

/* Text compares in lower case unless told otherwise. */
static jval folded(jctx *j, jval v, bool case_sensitive)
{
    return v.t == J_STR && !case_sensitive ? nbj_case(j, v.u.s, NBJ_LOWER) : v;
}

/* "a,b.c": a tuple of keys, one for each. */
static jval sort_key(jctx *j, jval v, jval path, bool case_sensitive)
{
    jlist *l = nbj_list(j, 1);
    if (!l) return jv(J_ERR);
    if (path.t != J_STR) {
        jval k = folded(j, nbj_attribute(j, v, path), case_sensitive);
        return nbj_push_val(j, l, k) ? jv_list(l) : jv(J_ERR);
    }
    nb_str p = js_view(path.u.s);
    for (size_t i = 0; i <= p.n;) {
        size_t end = i;
        while (end < p.n && p.p[end] != ',') end++;
        jval k = folded(j, attribute(j, v, (nb_str){p.p + i, end - i}, jv(J_MISSING)), case_sensitive);
        if (!nbj_push_val(j, l, k)) return jv(J_ERR);
        i = end + 1;
    }
    return jv_list(l);
}

/* ---- order ---- */

/* Keys are lists, as in Jinja, so equal items that have no order do not fail. */
static jval f_sort(jctx *j, jval in, const jargs *a)
{
    jval v[3];
    if (!nbj_bind(j, "sort", a, (const char *const[]){"reverse", "case_sensitive", "attribute"}, 0, 3, v))
        return jv(J_ERR);
    jlist *l = nbj_collect(j, in);
    jval *keys = l ? nbj_array(j, l->n, sizeof *keys) : NULL;
    if (!keys) return jv(J_ERR);
    for (uint32_t i = 0; i < l->n; i++) {
        keys[i] = sort_key(j, l->v[i], v[2], nbj_truth(j, v[1]));
        if (j_bad(keys[i])) return keys[i];
    }
    return nbj_sort(j, keys, l->v, l->n, nbj_truth(j, v[0])) ? jv_list(l) : jv(J_ERR);
}

static jval f_dictsort(jctx *j, jval in, const jargs *a)
{
    jval v[3];
    if (!nbj_bind(j, "dictsort", a, (const char *const[]){"case_sensitive", "by", "reverse"}, 0, 3, v))
        return jv(J_ERR);
    bool by_value = v[1].t == J_STR && nb_str_is(js_view(v[1].u.s), "value");
    if (v[1].t != J_MISSING && !by_value && !(v[1].t == J_STR && nb_str_is(js_view(v[1].u.s), "key")))
        return nbj_fail(j, "FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    if (in.t == J_UNDEF) return nbj_use_undef(j, in);
    if (in.t != J_DICT) return nbj_fail(j, "AttributeError", "'%s' object has no attribute 'items'", nbj_type_name(in));
    const jdict *d = in.u.d;
    jlist *l = nbj_list(j, d->n);
    jval *keys = l ? nbj_array(j, d->n, sizeof *keys) : NULL;
    if (!keys) return jv(J_ERR);
    for (uint32_t i = 0; i < d->n; i++) {
        keys[i] = folded(j, by_value ? d->e[i].val : d->e[i].key, nbj_truth(j, v[0]));
        if (j_bad(keys[i]) || !nbj_push_val(j, l, nbj_pair(j, d->e[i].key, d->e[i].val))) return jv(J_ERR);
    }
    return nbj_sort(j, keys, l->v, l->n, nbj_truth(j, v[2])) ? jv_list(l) : jv(J_ERR);
}

static jval min_or_max(jctx *j, jval in, const jargs *a, bool max)
{
    jval v[2], item, best = jv(J_MISSING), best_key = jv(J_MISSING);
    if (!nbj_bind(j, max ? "max" : "min", a, (const char *const[]){"case_sensitive", "attribute"}, 0, 2, v))
        return jv(J_ERR);
    jiter *it = nbj_iter(j, in);
    int more = -1;
    while (it && (more = nbj_next(j, it, &item)) > 0) {
        jval key = folded(j, nbj_attribute(j, item, v[1]), nbj_truth(j, v[0]));
        if (j_bad(key)) return key;
        int better = best.t == J_MISSING ? 1 : nbj_compare(j, max ? OP_GT : OP_LT, key, best_key);
        if (better < 0) return jv(J_ERR);
        if (!better) continue;
        best = item;
        best_key = key;
    }
    if (more < 0) return jv(J_ERR);
    return best.t == J_MISSING ? nbj_undef(j, "No aggregated item, sequence was empty.", NULL, NULL) : best;
}

static jval f_min(jctx *j, jval in, const jargs *a) { return min_or_max(j, in, a, false); }
static jval f_max(jctx *j, jval in, const jargs *a) { return min_or_max(j, in, a, true); }

/* Sorted by key, then neighbours of one key together; the key shown is the first item's own. */
static jval f_groupby(jctx *j, jval in, const jargs *a)
{
    jval v[3];
    if (!nbj_bind(j, "groupby", a, (const char *const[]){"attribute", "default", "case_sensitive"}, 1, 3, v))
        return jv(J_ERR);
    bool exact = nbj_truth(j, v[2]);
    jlist *l = nbj_collect(j, in), *out = nbj_list(j, 4), *group = NULL;
    jval *keys = l ? nbj_array(j, l->n, sizeof *keys) : NULL;
    if (!keys || !out) return jv(J_ERR);
    for (uint32_t i = 0; i < l->n; i++) {
        keys[i] = folded(j, attribute_or(j, l->v[i], v[0], v[1]), exact);
        if (j_bad(keys[i])) return keys[i];
    }
    if (!nbj_sort(j, keys, l->v, l->n, false)) return jv(J_ERR);
    for (uint32_t i = 0; i < l->n; i++) {
        int same = i ? nbj_equal(j, keys[i - 1], keys[i]) : 0;
        if (same < 0) return jv(J_ERR);
        if (!same) {
            group = nbj_list(j, 2);
            jval pair =
                group ? nbj_pair(j, exact ? keys[i] : attribute_or(j, l->v[i], v[0], v[1]), jv_list(group)) : jv(J_ERR);
            if (!nbj_push_val(j, out, pair)) return jv(J_ERR);
            pair.u.l->group = true;
        }
        if (!nbj_push_val(j, group, l->v[i])) return jv(J_ERR);
    }
    return jv_list(out);
}

/* ---- lazy ---- */

typedef struct jlazy {
    jargs a;
    bool invert, attr;
    jdict *seen;
    jlist *l;
    int64_t size, place;
    jval fill, path, def, count, held, name;
    const jfilter *filter;
    const jtest *test;
    bool boolean, exact;
} jlazy;

/* Arguments are looked at when the first item is asked for, as generators do. */
static jval lazy(jctx *j, jval in, const jargs *a, int (*next)(jctx *, jiter *, jval *))
{
    jlazy *z = nbj_alloc(j, sizeof *z);
    jiter *it = nbj_iter_new(j, next);
    if (!z || !it) return jv(J_ERR);
    z->a = *a;
    it->src = in;
    it->p = z;
    jval v = jv(J_ITER);
    v.u.it = it;
    return v;
}

/* map(attribute=...) or map(filter, ...). */
static int start_map(jctx *j, jlazy *z)
{
    if (!z->a.n) {
        bool attr = false;
        for (uint32_t i = 0; i < z->a.nkw; i++) {
            nb_str k = js_view(z->a.kw[i].name);
            if (nb_str_is(k, "attribute"))
                z->path = z->a.kw[i].v, attr = true;
            else if (nb_str_is(k, "default"))
                z->def = z->a.kw[i].v;
        }
        for (uint32_t i = 0; attr && i < z->a.nkw; i++) {
            nb_str k = js_view(z->a.kw[i].name);
            if (!nb_str_is(k, "attribute") && !nb_str_is(k, "default"))
                return nbj_fail(j, "FilterArgumentError", "Unexpected keyword argument '%.*s'", (int)k.n, k.p), -1;
        }
        z->attr = attr;
        return attr ? 0 : (nbj_fail(j, "FilterArgumentError", "map requires a filter argument"), -1);
    }
    z->name = z->a.v[0];
    z->filter = z->name.t == J_STR ? nbj_filter(js_view(z->name.u.s)) : NULL;
    z->a.v++;
    z->a.n--;
    return 0;
}

/* Names are looked up with the first item, as Jinja does: without items an unknown one is no error. */
static int unknown_name(jctx *j, const jlazy *z, const char *what)
{
    nb_str name = z->name.t == J_STR ? js_view(z->name.u.s) : NB_LIT("");
    return nbj_fail(j, "TemplateRuntimeError", "No %s named '%.*s'.", what, (int)name.n, name.p), -1;
}

/* [attribute,] [test, ...] */
static int start_select(jctx *j, jlazy *z)
{
    if (z->attr) {
        if (!z->a.n) return nbj_fail(j, "FilterArgumentError", "Missing parameter for attribute name"), -1;
        z->path = z->a.v[0];
        z->a.v++;
        z->a.n--;
    }
    z->boolean = !z->a.n;
    if (z->boolean) return 0;
    z->name = z->a.v[0];
    z->test = z->name.t == J_STR ? nbj_test(js_view(z->name.u.s)) : NULL;
    z->a.v++;
    z->a.n--;
    return 0;
}

/* Opens the source on the first call. `if value:` stands before everything in Jinja, so false values are empty. 1 go
 * on, 0 end, -1 error. */
static int opened(jctx *j, jiter *it, int (*start)(jctx *, jlazy *), bool falsy_is_empty)
{
    if (it->done) return 0;
    if (it->in) return 1;
    it->done = true; /* unless all goes well */
    if (falsy_is_empty && !nbj_truth(j, it->src)) return 0;
    if (start && start(j, it->p) < 0) return -1;
    it->in = nbj_iter(j, it->src);
    it->done = !it->in;
    return it->in ? 1 : -1;
}

static int next_map(jctx *j, jiter *it, jval *out)
{
    jval v;
    jlazy *z = it->p;
    int more = opened(j, it, start_map, true);
    if (more > 0) more = nbj_next(j, it->in, &v);
    if (more <= 0) return more;
    if (!z->filter && !z->attr) return unknown_name(j, z, "filter");
    *out = z->filter ? z->filter->fn(j, v, &z->a) : attribute_or(j, v, z->path, z->def);
    return j_bad(*out) ? -1 : 1;
}

static int next_select(jctx *j, jiter *it, jval *out)
{
    jlazy *z = it->p;
    int more = opened(j, it, start_select, true);
    while (more > 0 && (more = nbj_next(j, it->in, out)) > 0) {
        jval v = z->attr ? nbj_attribute(j, *out, z->path) : *out;
        if (j_bad(v)) return -1;
        if (!z->boolean && !z->test) return unknown_name(j, z, "test");
        int yes = z->boolean ? nbj_truth(j, v) : z->test->fn(j, v, &z->a);
        if (yes < 0) return -1;
        if ((yes > 0) != z->invert) return 1;
    }
    return more;
}

static jval select_with(jctx *j, jval in, const jargs *a, bool invert, bool attr)
{
    jval v = lazy(j, in, a, next_select);
    if (j_bad(v)) return v;
    ((jlazy *)v.u.it->p)->invert = invert;
    ((jlazy *)v.u.it->p)->attr = attr;
    return v;
}

static jval f_map(jctx *j, jval in, const jargs *a) { return lazy(j, in, a, next_map); }
static jval f_select(jctx *j, jval in, const jargs *a) { return select_with(j, in, a, false, false); }
static jval f_reject(jctx *j, jval in, const jargs *a) { return select_with(j, in, a, true, false); }
static jval f_selectattr(jctx *j, jval in, const jargs *a) { return select_with(j, in, a, false, true); }
static jval f_rejectattr(jctx *j, jval in, const jargs *a) { return select_with(j, in, a, true, true); }

static int next_unique(jctx *j, jiter *it, jval *out)
{
    jlazy *z = it->p;
    int more = opened(j, it, NULL, false);
    while (more > 0 && (more = nbj_next(j, it->in, out)) > 0) {
        jval key = folded(j, nbj_attribute(j, *out, z->path), z->exact), old;
        int seen = j_bad(key) ? -1 : nbj_dict_get(j, z->seen, key, &old);
        if (seen < 0) return -1;
        if (seen) continue;
        return nbj_dict_set(j, z->seen, key, jv(J_NONE)) ? 1 : -1;
    }
    return more;
}

static jval f_unique(jctx *j, jval in, const jargs *a)
{
    jval v[2];
    if (!nbj_bind(j, "unique", a, (const char *const[]){"case_sensitive", "attribute"}, 0, 2, v)) return jv(J_ERR);
    jval out = lazy(j, in, a, next_unique);
    if (j_bad(out)) return out;
    jlazy *z = out.u.it->p;
    z->seen = nbj_dict(j, 0);
    z->exact = nbj_truth(j, v[0]);
    z->path = v[1];
    return z->seen ? out : jv(J_ERR);
}

static int next_items(jctx *j, jiter *it, jval *out)
{
    if (it->src.t == J_UNDEF) return 0;
    if (it->src.t != J_DICT) return nbj_fail(j, "TypeError", "Can only get item pairs from a mapping."), -1;
    const jdict *d = it->src.u.d;
    if (it->pos >= d->n || !nbj_step(j, 1)) return j->failed ? -1 : 0;
    *out = nbj_pair(j, d->e[it->pos].key, d->e[it->pos].val);
    it->pos++;
    return j_bad(*out) ? -1 : 1;
}

static jval f_items(jctx *j, jval in, const jargs *a)
{
    return none_given(j, "items", a) ? lazy(j, in, a, next_items) : jv(J_ERR);
}

static int next_batch(jctx *j, jiter *it, jval *out)
{
    jlazy *z = it->p;
    jval v;
    int more = opened(j, it, NULL, false), full = 0;
    jlist *l = more > 0 ? nbj_list(j, 4) : NULL;
    if (!l || (z->held.t != J_MISSING && !nbj_push_val(j, l, z->held))) return more > 0 ? -1 : more;
    z->held = jv(J_MISSING);
    *out = jv_list(l);
    while ((more = nbj_next(j, it->in, &v)) > 0 && (full = nbj_equal(j, jv_int(l->n), z->count)) == 0) {
        if (!nbj_push_val(j, l, v)) return -1;
    }
    if (more < 0 || full < 0) return -1;
    if (full) { /* the item that showed that the list is full begins the next one */
        z->held = v;
        return 1;
    }
    it->done = true;
    if (!l->n || !given(z->fill)) return l->n > 0;
    int less = nbj_compare(j, OP_LT, jv_int(l->n), z->count);
    if (less <= 0) return less < 0 ? -1 : 1;
    if (!nbj_want_int(j, z->count, &z->size)) return -1;
    while (l->n < z->size) {
        if (!nbj_push_val(j, l, z->fill) || !nbj_step(j, 1)) return -1;
    }
    return 1;
}

static jval f_batch(jctx *j, jval in, const jargs *a)
{
    jval v[2];
    if (!nbj_bind(j, "batch", a, (const char *const[]){"linecount", "fill_with"}, 1, 2, v)) return jv(J_ERR);
    jval out = lazy(j, in, a, next_batch);
    if (j_bad(out)) return out;
    jlazy *z = out.u.it->p;
    z->count = v[0];
    z->fill = v[1];
    return out;
}

/* Columns: the first ones get what is left over. */
static int next_slice(jctx *j, jiter *it, jval *out)
{
    jlazy *z = it->p;
    if (!z->l && !(z->l = nbj_collect(j, it->src))) return -1;
    if (z->size == 0) return nbj_fail(j, "ZeroDivisionError", "integer division or modulo by zero"), -1;
    int64_t k = (int64_t)it->pos++, each = z->l->n / z->size, extra = z->l->n % z->size;
    if (k >= z->size || !nbj_step(j, 1)) return j->failed ? -1 : 0;
    int64_t n = each + (k < extra);
    jlist *l = nbj_list(j, (uint32_t)n + 1);
    for (int64_t i = 0; l && i < n; i++) nbj_push_val(j, l, z->l->v[z->place + i]);
    z->place += n;
    if (l && given(z->fill) && k >= extra) nbj_push_val(j, l, z->fill);
    *out = l ? jv_list(l) : jv(J_ERR);
    return l ? 1 : -1;
}

static jval f_slice(jctx *j, jval in, const jargs *a)
{
    jval v[2];
    if (!nbj_bind(j, "slice", a, (const char *const[]){"slices", "fill_with"}, 1, 2, v)) return jv(J_ERR);
    jval out = lazy(j, in, a, next_slice);
    int64_t n = 0;
    if (j_bad(out) || !nbj_want_int(j, v[0], &n)) return jv(J_ERR);
    jlazy *z = out.u.it->p;
    z->size = n < 0 ? -1 : n;
    z->fill = v[1];
    return out;
}

/* ---- ends, sums ---- */

static jval f_first(jctx *j, jval in, const jargs *a)
{
    jval v;
    if (!none_given(j, "first", a)) return jv(J_ERR);
    jiter *it = nbj_iter(j, in);
    int more = it ? nbj_next(j, it, &v) : -1;
    if (more < 0) return jv(J_ERR);
    return more ? v : nbj_undef(j, "No first item, sequence was empty.", NULL, NULL);
}

static int next_reversed(jctx *j, jiter *it, jval *out)
{
    const jlist *l = it->src.u.l;
    if (it->pos >= l->n || !nbj_step(j, 1)) return j->failed ? -1 : 0;
    *out = l->v[l->n - 1 - it->pos++];
    return 1;
}

/* What Python's reversed() takes. */
static bool reversible(jval v)
{
    return v.t == J_STR || j_is_seq(v) || v.t == J_DICT || v.t == J_RANGE || v.t == J_VIEW || v.t == J_UNDEF;
}

static jval f_last(jctx *j, jval in, const jargs *a)
{
    if (!none_given(j, "last", a)) return jv(J_ERR);
    if (!reversible(in)) return nbj_fail(j, "TypeError", "'%s' object is not reversible", nbj_type_name(in));
    if (in.t == J_STR && in.u.s->n) return nbj_getitem(j, in, jv_int(-1));
    jlist *l = j_is_seq(in) ? in.u.l : nbj_collect(j, in);
    if (!l) return jv(J_ERR);
    return l->n ? l->v[l->n - 1] : nbj_undef(j, "No last item, sequence was empty.", NULL, NULL);
}

/* Text at once, sequences lazily, iterators as a list. */
static jval f_reverse(jctx *j, jval in, const jargs *a)
{
    if (!none_given(j, "reverse", a)) return jv(J_ERR);
    if (in.t == J_STR) return nbj_slice_of(j, in, jv(J_NONE), jv(J_NONE), jv_int(-1));
    if (!reversible(in) && in.t != J_ITER && in.t != J_LOOP)
        return nbj_fail(j, "FilterArgumentError", "argument must be iterable");
    jlist *l = nbj_collect(j, in);
    jiter *it = l ? nbj_iter_new(j, next_reversed) : NULL;
    if (!it) return jv(J_ERR);
    it->src = jv_list(l);
    jval v = jv(J_ITER);
    v.u.it = it;
    if (reversible(in)) return v;
    l = nbj_collect(j, v);
    return l ? jv_list(l) : jv(J_ERR);
}

static jval f_length(jctx *j, jval in, const jargs *a)
{
    int64_t n = none_given(j, "len", a) ? nbj_len(j, in) : -1;
    return n < 0 ? jv(J_ERR) : jv_int(n);
}

static jval f_list(jctx *j, jval in, const jargs *a)
{
    jlist *l = none_given(j, "list", a) ? nbj_collect(j, in) : NULL;
    return l ? jv_list(l) : jv(J_ERR);
}

static jval f_sum(jctx *j, jval in, const jargs *a)
{
    jval v[2], item;
    if (!nbj_bind(j, "sum", a, (const char *const[]){"attribute", "start"}, 0, 2, v)) return jv(J_ERR);
    if (v[1].t == J_STR) return nbj_fail(j, "TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    jval sum = v[1].t == J_MISSING ? jv_int(0) : v[1];
    jiter *it = nbj_iter(j, in);
    int more = -1;
    while (it && (more = nbj_next(j, it, &item)) > 0) {
        item = nbj_attribute(j, item, v[0]);
        sum = nbj_binop(j, OP_ADD, sum, item);
        if (j_bad(sum)) return sum;
    }
    return more < 0 ? jv(J_ERR) : sum;
}

/* join: items are looked up first where an attribute is named. */
static int next_attribute(jctx *j, jiter *it, jval *out)
{
    int more = nbj_next(j, it->in, out);
    if (more > 0) *out = nbj_attribute(j, *out, it->a);
    return more > 0 && j_bad(*out) ? -1 : more;
}

static jval f_join(jctx *j, jval in, const jargs *a)
{
    jval v[2];
    if (!nbj_bind(j, "join", a, (const char *const[]){"d", "attribute"}, 0, 2, v)) return jv(J_ERR);
    jval sep = v[0].t == J_MISSING ? nbj_cstr(j, "") : nbj_to_str(j, v[0]);
    if (j_bad(sep)) return sep;
    if (given(v[1])) {
        jiter *it = nbj_iter_new(j, next_attribute);
        if (!it || !(it->in = nbj_iter(j, in))) return jv(J_ERR);
        it->a = v[1];
        in = jv(J_ITER);
        in.u.it = it;
    }
    return nbj_join(j, sep.u.s, in, true);
}

/* For undefined values; with true also for false ones. */
static jval f_default(jctx *j, jval in, const jargs *a)
{
    jval v[2];
    if (!nbj_bind(j, "default", a, (const char *const[]){"default_value", "boolean"}, 0, 2, v)) return jv(J_ERR);
    bool use = in.t == J_UNDEF || (nbj_truth(j, v[1]) && !nbj_truth(j, in));
    return !use ? in : v[0].t == J_MISSING ? nbj_cstr(j, "") : v[0];
}

static jval f_attr(jctx *j, jval in, const jargs *a)
{
    jval v[1];
    if (!nbj_bind(j, "attr", a, (const char *const[]){"name"}, 1, 1, v)) return jv(J_ERR);
    const jstr *name = nbj_want_str(j, v[0], "attribute name");
    return name ? nbj_getattr_only(j, in, name) : jv(J_ERR);
}

static jval f_random(jctx *j, jval in, const jargs *a)
{
    (void)in;
    (void)a;
    return nbj_fail(j, "TemplateRuntimeError",
                    "the filter 'random' is not available: a prompt has to be the same every time");
}

/* The parameters in the order of transformers, not of Jinja: tojson(2) is ensure_ascii. */
static jval f_tojson(jctx *j, jval in, const jargs *a)
{
    jval v[4];
    if (!nbj_bind(j, "tojson", a, (const char *const[]){"ensure_ascii", "indent", "separators", "sort_keys"}, 0, 4, v))
        return jv(J_ERR);
    return nbj_tojson(j, in, nbj_truth(j, v[0]), v[1], v[2], nbj_truth(j, v[3]));
}

const jfilter nbj_seq_filters[] = {
    {"attr", f_attr},
    {"batch", f_batch},
    {"count", f_length},
    {"d", f_default},
    {"default", f_default},
    {"dictsort", f_dictsort},
    {"first", f_first},
    {"groupby", f_groupby},
    {"items", f_items},
    {"join", f_join},
    {"last", f_last},
    {"length", f_length},
    {"list", f_list},
    {"map", f_map},
    {"max", f_max},
    {"min", f_min},
    {"random", f_random},
    {"reject", f_reject},
    {"rejectattr", f_rejectattr},
    {"reverse", f_reverse},
    {"select", f_select},
    {"selectattr", f_selectattr},
    {"slice", f_slice},
    {"sort", f_sort},
    {"sum", f_sum},
    {"tojson", f_tojson},
    {"unique", f_unique},
    {NULL, NULL},
};

const jfilter *nbj_filter(nb_str name)
{
    const jfilter *const tables[] = {nbj_seq_filters, nbj_text_filters};
    for (int i = 0; i < 2; i++) {
        for (const jfilter *f = tables[i]; f->name; f++) {
            if (nb_str_is(name, f->name)) return f;
        }
    }
    return NULL;
}
