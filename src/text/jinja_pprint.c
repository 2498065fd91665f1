/* text/jinja_pprint: the filter pprint, as Python's pprint.pformat: on one line where 80 characters are enough, else
 * one item a line; keys in order. All of the result has one origin, as the print of a container has. */
#include "text/jinja.h"

enum { WIDTH = 80 };

/* An order for keys of any types: those that do not compare go by the names of their types. */
static int before(jctx *j, jval a, jval b)
{
    if (a.t == J_UNDEF || b.t == J_UNDEF) return nbj_use_undef(j, a.t == J_UNDEF ? a : b), -1;
    bool both = (j_is_num(a) && j_is_num(b)) || (a.t == J_STR && b.t == J_STR) || (a.t == J_TUPLE && b.t == J_TUPLE);
    return both ? nbj_compare(j, OP_LT, a, b) : strcmp(nbj_type_name(a), nbj_type_name(b)) < 0;
}

/* By insertion: dicts that are printed are small. */
static bool sort_keys(jctx *j, jdict *d)
{
    for (uint32_t i = 1; i < d->n; i++) {
        jentry e = d->e[i];
        uint32_t k = i;
        for (int less; k > 0; k--) {
            if ((less = before(j, e.key, d->e[k - 1].key)) < 0 || !nbj_step(j, 1)) return false;
            if (!less) break;
            d->e[k] = d->e[k - 1];
        }
        d->e[k] = e;
    }
    return true;
}

/* A copy in which the keys of every dict are in order; only read by position. */
static jval sorted(jctx *j, jval v, uint32_t depth)
{
    if (depth > NBJ_MAX_DATA_DEPTH)
        return nbj_fail(j, "RecursionError", "data nested more than %d deep", NBJ_MAX_DATA_DEPTH);
    if (v.t == J_DICT) {
        jdict *d = nbj_alloc(j, sizeof *d);
        jentry *e = nbj_array(j, v.u.d->n, sizeof *e);
        if (!d || !e || !nbj_step(j, v.u.d->n)) return jv(J_ERR);
        *d = (jdict){.e = e, .n = v.u.d->n, .cap = v.u.d->n};
        for (uint32_t i = 0; i < d->n; i++) {
            e[i] = v.u.d->e[i];
            e[i].val = sorted(j, e[i].val, depth + 1);
            if (j_bad(e[i].val)) return jv(J_ERR);
        }
        return sort_keys(j, d) ? jv_dict(d) : jv(J_ERR);
    }
    if (!j_is_seq(v)) return v;
    jlist *l = nbj_list(j, v.u.l->n);
    for (uint32_t i = 0; l && i < v.u.l->n; i++) {
        if (!nbj_push_val(j, l, sorted(j, v.u.l->v[i], depth + 1))) return jv(J_ERR);
    }
    return !l ? jv(J_ERR) : v.t == J_LIST ? jv_list(l) : jv_tuple(l);
}

typedef struct jpretty {
    jctx *j;
    jbuf *b;
    bool trusted;
} jpretty;

static void put(const jpretty *p, const char *s) { nbj_add(p->j, p->b, s, strlen(s), p->trusted); }

static void new_line(const jpretty *p, const char *end, int64_t indent)
{
    put(p, end);
    put(p, "\n");
    nbj_fill_cp(p->j, p->b, ' ', (uint64_t)indent, p->trusted);
}

static const jstr *repr(const jpretty *p, jval v)
{
    jbuf *b = nbj_push(p->j);
    if (!b || !nbj_repr(p->j, b, v, p->trusted)) return NULL;
    v = nbj_pop(p->j);
    return j_bad(v) ? NULL : v.u.s;
}

/* Behind a word of s and the white space that follows it. */
static uint32_t word_end(const jstr *s, uint32_t i)
{
    for (int space = 0; space < 2; space++) {
        for (size_t len; i < s->n; i += (uint32_t)len) {
            if (nbj_is_space(nb_utf8_decode(s->p + i, s->n - i, &len)) != (space == 1)) break;
        }
    }
    return i;
}

/* One line of a long text as pieces that fit; `last`: the line is the last, whose last piece leaves room for more. */
static bool cut_line(const jpretty *p, jlist *out, const jstr *line, int64_t width, int64_t allowance, bool last)
{
    uint32_t from = 0, i = 0;
    while (i < line->n) {
        uint32_t end = word_end(line, i);
        if (last && end == line->n) width -= allowance;
        jval piece = nbj_slice(p->j, line, from, end);
        const jstr *r = j_bad(piece) ? NULL : repr(p, piece);
        if (!r) return false;
        if ((int64_t)nbj_chars(r) > width && i > from) {
            if (!nbj_push_val(p->j, out, nbj_slice(p->j, line, from, i))) return false;
            from = i;
        }
        i = end;
    }
    return i == from || nbj_push_val(p->j, out, nbj_slice(p->j, line, from, i));
}

/* A text of several lines, or one that is too long: pieces under each other, in parentheses where it stands alone. */
static bool text(const jpretty *p, const jstr *s, int64_t indent, int64_t allowance, bool alone)
{
    jlist *lines = nbj_split_lines(p->j, s, true), *out = nbj_list(p->j, 4);
    if (alone) indent++, allowance++;
    int64_t width = WIDTH - indent;
    for (uint32_t i = 0; lines && out && i < lines->n; i++) {
        bool last = i + 1 == lines->n;
        const jstr *r = repr(p, lines->v[i]);
        if (!r) return false;
        bool fits = (int64_t)nbj_chars(r) <= width - (last ? allowance : 0);
        if (fits ? !nbj_push_val(p->j, out, lines->v[i]) : !cut_line(p, out, lines->v[i].u.s, width, allowance, last))
            return false;
    }
    if (!lines || !out) return false;
    bool several = out->n != 1;
    if (alone && several) put(p, "(");
    for (uint32_t i = 0; i < out->n; i++) {
        if (i) new_line(p, "", indent);
        if (!nbj_repr(p->j, p->b, out->v[i], p->trusted)) return false;
    }
    if (alone && several) put(p, ")");
    return true;
}

static bool pretty(const jpretty *p, jval v, int64_t indent, int64_t allowance, bool top);

static bool dict(const jpretty *p, const jdict *d, int64_t indent, int64_t allowance)
{
    put(p, "{");
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) new_line(p, ",", indent + 1);
        const jstr *key = repr(p, d->e[i].key);
        if (!key) return false;
        nbj_add(p->j, p->b, key->p, key->n, p->trusted);
        put(p, ": ");
        if (!pretty(p, d->e[i].val, indent + 3 + nbj_chars(key), i + 1 == d->n ? allowance + 1 : 1, false))
            return false;
    }
    put(p, "}");
    return true;
}

static bool items(const jpretty *p, const jlist *l, const char *close, int64_t indent, int64_t allowance)
{
    for (uint32_t i = 0; i < l->n; i++) {
        if (i) new_line(p, ",", indent + 1);
        int64_t room = i + 1 == l->n ? allowance + (int64_t)strlen(close) : 1;
        if (!pretty(p, l->v[i], indent + 1, room, false)) return false;
    }
    put(p, close);
    return true;
}

/* v at column `indent`, with `allowance` characters to come behind it. Depth is that of the sorted copy: bounded. */
static bool pretty(const jpretty *p, jval v, int64_t indent, int64_t allowance, bool top)
{
    const jstr *r = repr(p, v);
    if (!r) return false;
    bool fits = (int64_t)nbj_chars(r) <= WIDTH - indent - allowance;
    if (!fits && v.t == J_DICT) return dict(p, v.u.d, indent, allowance);
    if (!fits && v.t == J_STR && !v.u.s->markup && v.u.s->n) return text(p, v.u.s, indent, allowance, top);
    if (!fits && j_is_seq(v)) {
        put(p, v.t == J_LIST ? "[" : "(");
        return items(p, v.u.l, v.t == J_LIST ? "]" : v.u.l->n == 1 ? ",)" : ")", indent, allowance);
    }
    nbj_add(p->j, p->b, r->p, r->n, p->trusted);
    return !p->j->failed;
}

jval nbj_pformat(jctx *j, jval v)
{
    jpretty p = {.j = j, .trusted = nbj_origin(j, v)};
    v = sorted(j, v, 0);
    if (j_bad(v) || !(p.b = nbj_push(j)) || !pretty(&p, v, 0, 0, true)) return jv(J_ERR);
    return nbj_pop(j);
}
