/* text/jinja_value: lists, dicts, truth, equality, order. */
#include "text/jinja.h"

#include <math.h>

enum { INDEX_FROM = 8 }; /* dicts of more entries have a hash index */

const char *nbj_type_name(jval v)
{
    static const char *const names[] = {
        "Undefined",
        "?",
        "Undefined",
        "NoneType",
        "bool",
        "int",
        "int",
        "float",
        "str",
        "list",
        "tuple",
        "dict",
        "Namespace",
        "range",
        "dict_view",
        "generator",
        "Macro",
        "builtin_function_or_method",
        "function",
        "LoopContext",
        "Cycler",
        "Joiner",
        "TemplateReference",
    };
    return names[v.t];
}

/* hint may hold one %.*s for the name. exc: the error type when it is used, NULL for UndefinedError. */
jval nbj_undef(jctx *j, const char *hint, const jstr *name, const char *exc)
{
    jundef *u = nbj_alloc(j, sizeof *u);
    if (!u) return jv(J_ERR);
    *u = (jundef){.hint = hint, .name = name, .exc = exc};
    jval v = jv(J_UNDEF);
    v.u.un = u;
    return v;
}

jval nbj_undef_key(jctx *j, jval owner, jval key, const char *exc)
{
    jval v = nbj_undef(j, NULL, NULL, exc);
    if (j_bad(v)) return v;
    jundef *u = (jundef *)v.u.un;
    u->owner = nbj_type_name(owner);
    u->key = key;
    return v;
}

/* A key or attribute that an object lacks. */
static jval use_lacking(jctx *j, const jundef *u, const char *exc)
{
    const char *object = strcmp(u->owner, "NoneType") == 0 ? "None" : u->owner,
               *word = object == u->owner ? " object" : "";
    int n = u->key.t == J_STR ? (int)(u->key.u.s->n > 80 ? 80 : u->key.u.s->n) : 0;
    if (u->exc)
        return nbj_fail(j, exc, "access to attribute '%.*s' of '%s' object is unsafe.", n, n ? u->key.u.s->p : "",
                        u->owner);
    if (u->key.t == J_STR) return nbj_fail(j, exc, "'%s%s' has no attribute '%.*s'", object, word, n, u->key.u.s->p);
    bool printable =
        j_is_num(u->key) || j_is_seq(u->key) || u->key.t == J_DICT || u->key.t == J_NONE || u->key.t == J_UNDEF;
    jbuf *b = printable ? nbj_push(j) : NULL;
    if (!b || !nbj_repr(j, b, u->key, true)) return nbj_fail(j, exc, "%s%s has no such element", object, word);
    return nbj_fail(j, exc, "%s%s has no element %.*s", object, word, (int)(b->n > 200 ? 200 : b->n), b->p);
}

/* Raises what the undefined value was made with. */
jval nbj_use_undef(jctx *j, jval v)
{
    const jundef *u = v.u.un;
    const char *exc = u && u->exc ? u->exc : "UndefinedError";
    if (u && u->owner) return use_lacking(j, u, exc);
    if (u && u->hint && u->name) return nbj_fail(j, exc, u->hint, (int)(u->name->n > 80 ? 80 : u->name->n), u->name->p);
    if (u && u->hint) return nbj_fail(j, exc, "%s", u->hint);
    if (u && u->name)
        return nbj_fail(j, exc, "'%.*s' is undefined", (int)(u->name->n > 80 ? 80 : u->name->n), u->name->p);
    return nbj_fail(j, exc, "an undefined value was used");
}

/* ---- lists ---- */

jlist *nbj_list(jctx *j, uint32_t cap)
{
    jlist *l = nbj_alloc(j, sizeof *l);
    if (!l || !cap) return l;
    l->v = nbj_array(j, cap, sizeof *l->v);
    l->cap = cap;
    return l->v ? l : NULL;
}

bool nbj_push_val(jctx *j, jlist *l, jval v)
{
    if (j_bad(v)) return false;
    if (l->n == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 4;
        if (cap < l->cap) return nbj_oom(j), false;
        jval *p = nbj_array(j, cap, sizeof *p);
        if (!p) return false;
        if (l->n) memcpy(p, l->v, l->n * sizeof *p);
        l->v = p;
        l->cap = cap;
    }
    l->v[l->n++] = v;
    return true;
}

jval nbj_pair(jctx *j, jval a, jval b)
{
    jlist *l = nbj_list(j, 2);
    if (!l || j_bad(a) || j_bad(b)) return jv(J_ERR);
    l->v[0] = a;
    l->v[1] = b;
    l->n = 2;
    return jv_tuple(l);
}

/* ---- dicts ---- */

/* Guards recursion into data; the caller counts data_depth down again. */
static bool deeper(jctx *j)
{
    if (++j->data_depth <= NBJ_MAX_DATA_DEPTH) return true;
    j->data_depth--;
    nbj_fail(j, "RecursionError", "data nested more than %d deep", NBJ_MAX_DATA_DEPTH);
    return false;
}

static bool hash_tuple(jctx *j, const jlist *l, uint32_t *h)
{
    *h = 17;
    if (!nbj_step(j, l->n) || !deeper(j)) return false;
    bool ok = true;
    for (uint32_t i = 0; ok && i < l->n; i++) {
        uint32_t k = 0;
        ok = nbj_hashable(j, l->v[i], &k);
        *h = *h * 31 + k;
    }
    j->data_depth--;
    return ok;
}

/* A number that is a float exactly hashes as that float, a small integer as itself. */
static uint32_t hash_number(jval v)
{
    if (v.t == J_BOOL) return v.u.b;
    double d = nbj_double(v);
    if (isfinite(d) && nbj_num_cmp(v, jv_float(d)) == 0 && (fabs(d) >= 9.0e15 || d != floor(d)))
        return (uint32_t)nb_hash_bytes(&d, sizeof d, 5);
    if (v.t == J_BIG) return nbj_big_hash(v.u.big);
    if (v.t == J_FLOAT && !isfinite(d)) return isnan(d) ? 11 : d > 0 ? 12 : 13;
    int64_t i = v.t == J_FLOAT ? (int64_t)d : v.u.i;
    return (uint32_t)i ^ (uint32_t)(i >> 32);
}

/* Python's hash rules: equal values hash alike, lists and dicts do not hash. */
bool nbj_hashable(jctx *j, jval v, uint32_t *h)
{
    switch (v.t) {
    case J_STR: *h = nbj_hash(js_view(v.u.s)); return nbj_step(j, v.u.s->n / 128);
    case J_BOOL:
    case J_INT:
    case J_BIG:
    case J_FLOAT: *h = hash_number(v); return true;
    case J_TUPLE: return hash_tuple(j, v.u.l, h);
    case J_LIST:
    case J_DICT: nbj_fail(j, "TypeError", "unhashable type: '%s'", nbj_type_name(v)); return false;
    case J_UNDEF:
    case J_NONE:
    case J_RANGE: *h = v.t; return true;
    default: *h = (uint32_t)((uintptr_t)v.u.p >> 4); return true;
    }
}

static bool can_hash(jctx *j, jval v, int depth)
{
    if (v.t == J_TUPLE && !nbj_step(j, v.u.l->n)) return false;
    if (v.t == J_LIST || v.t == J_DICT || depth > NBJ_MAX_DATA_DEPTH) return false;
    for (uint32_t i = 0; v.t == J_TUPLE && i < v.u.l->n; i++) {
        if (!can_hash(j, v.u.l->v[i], depth + 1)) return false;
    }
    return true;
}

bool nbj_can_hash(jctx *j, jval v) { return can_hash(j, v, 0); }

jdict *nbj_dict(jctx *j, uint32_t cap)
{
    jdict *d = nbj_alloc(j, sizeof *d);
    if (!d || !cap) return d;
    d->e = nbj_array(j, cap, sizeof *d->e);
    d->cap = cap;
    return d->e ? d : NULL;
}

/* The entry of key: 1 and *at, 0, or -1 for an error. */
static int find(jctx *j, const jdict *d, jval key, uint32_t h, uint32_t *at)
{
    if (d->index) {
        for (uint32_t i = h & d->mask; d->index[i]; i = (i + 1) & d->mask) {
            jentry *e = &d->e[d->index[i] - 1];
            int eq = e->hash == h ? nbj_equal(j, e->key, key) : 0;
            if (eq < 0) return -1;
            if (!eq) continue;
            *at = d->index[i] - 1;
            return 1;
        }
        return 0;
    }
    for (uint32_t i = 0; i < d->n; i++) {
        int eq = d->e[i].hash == h ? nbj_equal(j, d->e[i].key, key) : 0;
        if (eq < 0) return -1;
        if (!eq) continue;
        *at = i;
        return 1;
    }
    return 0;
}

static void index_put(jdict *d, uint32_t entry)
{
    uint32_t i = d->e[entry].hash & d->mask;
    while (d->index[i]) i = (i + 1) & d->mask;
    d->index[i] = entry + 1;
}

/* A new index of three slots per entry at least. */
static bool reindex(jctx *j, jdict *d)
{
    uint32_t size = 32;
    while (size < 3 * d->cap) size *= 2;
    d->index = nbj_array(j, size, sizeof *d->index);
    if (!d->index) return false;
    d->mask = size - 1;
    for (uint32_t i = 0; i < d->n; i++) index_put(d, i);
    return true;
}

/* An equal key keeps its place and its first spelling. */
bool nbj_dict_set(jctx *j, jdict *d, jval key, jval v)
{
    uint32_t h, at;
    if (j_bad(key) || j_bad(v) || !nbj_hashable(j, key, &h)) return false;
    int hit = find(j, d, key, h, &at);
    if (hit < 0) return false;
    if (hit) {
        d->e[at].val = v;
        return true;
    }
    if (d->n == d->cap) {
        uint32_t cap = d->cap ? 2 * d->cap : 4;
        jentry *e = nbj_array(j, cap, sizeof *e);
        if (!e) return false;
        if (d->n) memcpy(e, d->e, d->n * sizeof *e);
        d->e = e;
        d->cap = cap;
        d->index = NULL;
    }
    d->e[d->n++] = (jentry){key, v, h};
    if (d->index)
        index_put(d, d->n - 1);
    else if (d->n > INDEX_FROM)
        return reindex(j, d);
    return true;
}

int nbj_dict_get(jctx *j, const jdict *d, jval key, jval *out)
{
    uint32_t h, at;
    if (!nbj_hashable(j, key, &h)) return -1;
    int hit = find(j, d, key, h, &at);
    if (hit > 0) *out = d->e[at].val;
    return hit;
}

/* By text, without making a value of it. */
bool nbj_dict_find(const jdict *d, nb_str key, jval *out)
{
    uint32_t h = nbj_hash(key);
    uint32_t i = d->index ? h & d->mask : 0;
    for (;; i = d->index ? (i + 1) & d->mask : i + 1) {
        if (d->index ? !d->index[i] : i >= d->n) return false;
        const jentry *e = &d->e[d->index ? d->index[i] - 1 : i];
        if (e->hash != h || e->key.t != J_STR || !nb_str_eq(js_view(e->key.u.s), key)) continue;
        *out = e->val;
        return true;
    }
}

/* dict(mapping or pairs, **kw). */
bool nbj_dict_update(jctx *j, jdict *d, const jargs *a)
{
    if (a->n > 1) return nbj_fail(j, "TypeError", "dict expected at most 1 argument, got %u", a->n), false;
    if (a->n && a->v[0].t == J_UNDEF) return nbj_use_undef(j, a->v[0]), false;
    if (a->n && a->v[0].t == J_DICT) {
        const jdict *from = a->v[0].u.d;
        for (uint32_t i = 0; i < from->n; i++) {
            if (!nbj_dict_set(j, d, from->e[i].key, from->e[i].val)) return false;
        }
    } else if (a->n) {
        jiter *it = nbj_iter(j, a->v[0]);
        jval v;
        int more;
        if (!it) return false;
        while ((more = nbj_next(j, it, &v)) > 0) {
            jlist *pair = nbj_collect(j, v);
            if (!pair) return false;
            if (pair->n != 2)
                return nbj_fail(j, "ValueError", "dictionary update sequence element has length %u; 2 is required",
                                pair->n),
                       false;
            if (!nbj_dict_set(j, d, pair->v[0], pair->v[1])) return false;
        }
        if (more < 0) return false;
    }
    for (uint32_t i = 0; i < a->nkw; i++) {
        if (!nbj_dict_set(j, d, jv_str(a->kw[i].name), a->kw[i].v)) return false;
    }
    return true;
}

/* ---- truth, length ---- */

/* bool(v). */
bool nbj_truth(jctx *j, jval v)
{
    switch (v.t) {
    case J_UNDEF:
    case J_MISSING:
    case J_NONE:
    case J_ERR: return false;
    case J_BOOL: return v.u.b;
    case J_INT: return v.u.i != 0;
    case J_FLOAT: return v.u.f != 0;
    case J_STR: return v.u.s->n > 0;
    case J_LIST:
    case J_TUPLE: return v.u.l->n > 0;
    case J_DICT: return v.u.d->n > 0;
    case J_RANGE: return v.u.range->len > 0;
    case J_VIEW: return v.u.view->d->n > 0;
    case J_LOOP: return nbj_loop_length(j, v.u.loop) > 0;
    default: return true;
    }
}

/* len(v). */
int64_t nbj_len(jctx *j, jval v)
{
    switch (v.t) {
    case J_UNDEF: return 0;
    case J_STR: return v.u.s->chars != UINT32_MAX || nbj_step(j, v.u.s->n / 32) ? (int64_t)nbj_chars(v.u.s) : -1;
    case J_LIST:
    case J_TUPLE: return v.u.l->n;
    case J_DICT: return v.u.d->n;
    case J_RANGE: return v.u.range->len;
    case J_VIEW: return v.u.view->d->n;
    case J_LOOP: return nbj_loop_length(j, v.u.loop);
    default: nbj_fail(j, "TypeError", "object of type '%s' has no len()", nbj_type_name(v)); return -1;
    }
}

/* ---- equality ---- */

static int equal_lists(jctx *j, const jlist *a, const jlist *b)
{
    if (a == b) return 1;
    if (a->n != b->n) return 0;
    if (!nbj_step(j, a->n)) return -1;
    int eq = 1;
    for (uint32_t i = 0; eq == 1 && i < a->n; i++) eq = nbj_equal(j, a->v[i], b->v[i]);
    return eq;
}

static int equal_dicts(jctx *j, const jdict *a, const jdict *b)
{
    if (a == b) return 1;
    if (a->n != b->n) return 0;
    if (!nbj_step(j, a->n)) return -1;
    int eq = 1;
    for (uint32_t i = 0; eq == 1 && i < a->n; i++) {
        uint32_t at;
        eq = find(j, b, a->e[i].key, a->e[i].hash, &at);
        if (eq == 1) eq = nbj_equal(j, a->e[i].val, b->e[at].val);
    }
    return eq;
}

/* Ranges are equal where they give the same numbers. */
static int equal_ranges(const jrange *a, const jrange *b)
{
    if (a->len != b->len) return 0;
    return a->len == 0 || (a->start == b->start && (a->len == 1 || a->step == b->step));
}

/* keys() and items() are equal as sets; values() only to itself. */
static int equal_views(jctx *j, jval a, jval b)
{
    const jview *v = a.u.view, *w = b.u.view;
    if (v == w) return 1;
    if (v->kind == 1 || w->kind == 1 || v->d->n != w->d->n) return 0;
    jiter *it = nbj_iter(j, a);
    jval item;
    int more = it ? 1 : -1, eq = 1;
    while (more > 0 && eq == 1 && (more = nbj_next(j, it, &item)) > 0) eq = nbj_contains(j, b, item);
    return more < 0 ? -1 : eq;
}

/* ==. Values of different types are not equal, numbers aside. */
int nbj_equal(jctx *j, jval a, jval b)
{
    if (j_is_num(a) && j_is_num(b)) return nbj_num_cmp(a, b) == 0;
    if (a.t != b.t) return 0;
    switch (a.t) {
    case J_UNDEF:
    case J_NONE: return 1;
    case J_STR:
        if (a.u.s == b.u.s || a.u.s->n != b.u.s->n) return a.u.s == b.u.s;
        return nbj_step(j, a.u.s->n / 128) ? nb_str_eq(js_view(a.u.s), js_view(b.u.s)) : -1;
    case J_RANGE: return equal_ranges(a.u.range, b.u.range);
    case J_VIEW: return equal_views(j, a, b);
    case J_METHOD: return a.u.method->def == b.u.method->def && a.u.method->self.u.p == b.u.method->self.u.p;
    case J_LIST:
    case J_TUPLE:
    case J_DICT: {
        if (!deeper(j)) return -1;
        int eq = a.t == J_DICT ? equal_dicts(j, a.u.d, b.u.d) : equal_lists(j, a.u.l, b.u.l);
        j->data_depth--;
        return eq;
    }
    default: return a.u.p == b.u.p;
    }
}

/* ---- order ---- */

/* Does a comparison hold, given the sign of a - b? */
static bool holds(jop op, int c)
{
    switch (op) {
    case OP_LT: return c < 0;
    case OP_LE: return c <= 0;
    case OP_GT: return c > 0;
    default: return c >= 0;
    }
}

/* The first pair that differs decides, else the length. */
static int compare_lists(jctx *j, jop op, const jlist *a, const jlist *b)
{
    uint32_t n = a->n < b->n ? a->n : b->n;
    if (!nbj_step(j, n)) return -1;
    for (uint32_t i = 0; i < n; i++) {
        int eq = nbj_equal(j, a->v[i], b->v[i]);
        if (eq < 0) return -1;
        if (!eq) return nbj_compare(j, op, a->v[i], b->v[i]);
    }
    return holds(op, (a->n > b->n) - (a->n < b->n));
}

/* < <= > >= with Python's type errors. */
int nbj_compare(jctx *j, jop op, jval a, jval b)
{
    if (a.t == J_UNDEF || b.t == J_UNDEF) return nbj_use_undef(j, a.t == J_UNDEF ? a : b), -1;
    if (j_is_num(a) && j_is_num(b)) {
        int c = nbj_num_cmp(a, b);
        return c != 2 && holds(op, c);
    }
    if (a.t == J_STR && b.t == J_STR && !nbj_step(j, (a.u.s->n < b.u.s->n ? a.u.s->n : b.u.s->n) / 128)) return -1;
    if (a.t == J_STR && b.t == J_STR) return holds(op, nb_str_cmp(js_view(a.u.s), js_view(b.u.s)));
    if (j_is_seq(a) && a.t == b.t) {
        if (!deeper(j)) return -1;
        int c = compare_lists(j, op, a.u.l, b.u.l);
        j->data_depth--;
        return c;
    }
    static const char *const signs[] = {"<", "<=", ">", ">="};
    nbj_fail(j, "TypeError", "'%s' not supported between instances of '%s' and '%s'", signs[op - OP_LT],
             nbj_type_name(a), nbj_type_name(b));
    return -1;
}

/* ---- in ---- */

/* Looks at one item after the other; an iterator stays where the search ended. */
static int in_items(jctx *j, jval box, jval v)
{
    jiter *it = nbj_iter(j, box);
    jval item;
    int more;
    if (!it) return -1;
    while ((more = nbj_next(j, it, &item)) > 0) {
        int eq = nbj_equal(j, item, v);
        if (eq) return eq;
    }
    return more;
}

int nbj_contains(jctx *j, jval box, jval v)
{
    jval ignored;
    switch (box.t) {
    case J_STR:
        if (v.t != J_STR)
            return nbj_fail(j, "TypeError", "'in <string>' requires string as left operand, not %s", nbj_type_name(v)),
                   -1;
        if (!nbj_step(j, box.u.s->n / 64)) return -1;
        return nbj_find(js_view(box.u.s), js_view(v.u.s), 0) >= 0;
    case J_DICT: return nbj_dict_get(j, box.u.d, v, &ignored);
    case J_VIEW:
        if (box.u.view->kind == 0) return nbj_dict_get(j, box.u.view->d, v, &ignored);
        return in_items(j, box, v);
    case J_LIST:
    case J_TUPLE:
    case J_RANGE:
    case J_ITER:
    case J_LOOP:
    case J_UNDEF: return in_items(j, box, v);
    default: return nbj_fail(j, "TypeError", "argument of type '%s' is not iterable", nbj_type_name(box)), -1;
    }
}

/* ---- sorting: stable, keys move with their values ---- */

/* Merges two sorted neighbours; equal keys keep their order. */
static bool merge(jctx *j, jval *k, jval *v, jval *tk, jval *tv, uint32_t from, uint32_t mid, uint32_t to, bool reverse)
{
    uint32_t a = from, b = mid, n = from;
    while (a < mid && b < to) {
        int second = reverse ? nbj_compare(j, OP_LT, k[a], k[b]) : nbj_compare(j, OP_LT, k[b], k[a]);
        if (second < 0) return false;
        uint32_t pick = second ? b++ : a++;
        tk[n] = k[pick];
        tv[n++] = v[pick];
    }
    for (; a < mid; a++, n++) tk[n] = k[a], tv[n] = v[a];
    for (; b < to; b++, n++) tk[n] = k[b], tv[n] = v[b];
    memcpy(k + from, tk + from, (to - from) * sizeof *k);
    memcpy(v + from, tv + from, (to - from) * sizeof *v);
    return true;
}

bool nbj_sort(jctx *j, jval *keys, jval *v, uint32_t n, bool reverse)
{
    jval *tk = nbj_array(j, n, sizeof *tk), *tv = nbj_array(j, n, sizeof *tv);
    if (!tk || !tv) return false;
    for (uint32_t width = 1; width < n; width *= 2) {
        if (!nbj_step(j, n)) return false;
        for (uint32_t i = 0; i + width < n; i += 2 * width) {
            uint32_t to = i + 2 * width < n ? i + 2 * width : n;
            if (!merge(j, keys, v, tk, tv, i, i + width, to, reverse)) return false;
        }
        if (width > n / 2) break;
    }
    return true;
}
