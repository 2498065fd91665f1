/* text/jinja_print: str(), repr(), tojson, and values from JSON. */
#include "text/jinja.h"

#include <math.h>

/* ---- origin ---- */

/* Every item counts as work: a list may hold the same list many times, and that one again. */
static bool origin_list(jctx *j, const jval *v, uint32_t n)
{
    if (!nbj_step(j, n)) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!nbj_origin(j, v[i])) return false;
    }
    return true;
}

static bool origin_dict(jctx *j, const jdict *d)
{
    if (d->req || !nbj_step(j, d->n)) return false;
    for (uint32_t i = 0; i < d->n; i++) {
        if (!nbj_origin(j, d->e[i].key) || !nbj_origin(j, d->e[i].val)) return false;
    }
    return true;
}

/* Goes through containers: one part from the request makes the whole print the request's. */
bool nbj_origin(jctx *j, jval v)
{
    if (v.req) return false;
    if (v.t == J_STR) return nbj_trusted(v.u.s);
    if (v.t != J_LIST && v.t != J_TUPLE && v.t != J_DICT && v.t != J_NS && v.t != J_VIEW) return true;
    if (j->data_depth >= NBJ_MAX_DATA_DEPTH) return false;
    j->data_depth++;
    bool ok;
    if (v.t == J_LIST || v.t == J_TUPLE)
        ok = !v.u.l->req && origin_list(j, v.u.l->v, v.u.l->n);
    else
        ok = origin_dict(j, v.t == J_VIEW ? v.u.view->d : v.u.d);
    j->data_depth--;
    return ok;
}

/* ---- repr ---- */

/* \x, \u or \U, as short as it goes. */
static void repr_char(jctx *j, jbuf *b, uint32_t c, bool trusted)
{
    static const char hex[] = "0123456789abcdef";
    char t[10] = {'\\', c < 0x100 ? 'x' : c < 0x10000 ? 'u' : 'U'};
    uint32_t n = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
    for (uint32_t i = 0; i < n; i++) t[2 + i] = hex[(c >> 4 * (n - 1 - i)) & 15];
    nbj_add(j, b, t, n + 2, trusted);
}

/* Single quotes unless the text has only those. */
static void repr_str(jctx *j, jbuf *b, const jstr *s, bool trusted)
{
    nb_str v = js_view(s);
    if (!nbj_step(j, v.n / 16)) return;
    char quote = memchr(v.p, '\'', v.n) && !memchr(v.p, '"', v.n) ? '"' : '\'';
    if (s->markup) nbj_add(j, b, "Markup(", 7, trusted);
    nbj_add(j, b, &quote, 1, trusted);
    for (size_t i = 0, len; i < v.n; i += len) {
        uint32_t c = nb_utf8_decode(v.p + i, v.n - i, &len);
        if (c == (uint8_t)quote || c == '\\') {
            nbj_add(j, b, "\\", 1, trusted);
            nbj_add(j, b, v.p + i, 1, trusted);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            nbj_add(j, b, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", 2, trusted);
        } else if (nbj_is_printable(c)) {
            nbj_add(j, b, v.p + i, len, trusted);
        } else {
            repr_char(j, b, c, trusted);
        }
    }
    nbj_add(j, b, &quote, 1, trusted);
    if (s->markup) nbj_add(j, b, ")", 1, trusted);
}

static bool repr_items(jctx *j, jbuf *b, const jval *v, uint32_t n, const char *open, const char *close, bool trusted)
{
    nbj_add(j, b, open, strlen(open), trusted);
    for (uint32_t i = 0; i < n; i++) {
        if (i) nbj_add(j, b, ", ", 2, trusted);
        if (!nbj_repr(j, b, v[i], trusted)) return false;
    }
    nbj_add(j, b, close, strlen(close), trusted);
    return true;
}

/* kind: 0 to 2 are views, 3 a dict. */
static bool repr_dict(jctx *j, jbuf *b, const jdict *d, int kind, bool trusted)
{
    static const char *const open[] = {"dict_keys([", "dict_values([", "dict_items([", "{"}, *const close[] = {
                                                                                                 "])", "])", "])", "}"};
    nbj_add(j, b, open[kind], strlen(open[kind]), trusted);
    for (uint32_t i = 0; i < d->n; i++) {
        if (i) nbj_add(j, b, ", ", 2, trusted);
        if (kind == 2) nbj_add(j, b, "(", 1, trusted);
        if (kind != 1 && !nbj_repr(j, b, d->e[i].key, trusted)) return false;
        if (kind >= 2) nbj_add(j, b, kind == 2 ? ", " : ": ", 2, trusted);
        if (kind && !nbj_repr(j, b, d->e[i].val, trusted)) return false;
        if (kind == 2) nbj_add(j, b, ")", 1, trusted);
    }
    nbj_add(j, b, close[kind], strlen(close[kind]), trusted);
    return true;
}

static bool repr_range(jctx *j, jbuf *b, const jrange *r)
{
    NBJ_ADD(j, b, "range(");
    nbj_num_text(j, b, jv_int(r->start), true);
    NBJ_ADD(j, b, ", ");
    nbj_num_text(j, b, jv_int(r->stop), true);
    if (r->step != 1) {
        NBJ_ADD(j, b, ", ");
        nbj_num_text(j, b, jv_int(r->step), true);
    }
    NBJ_ADD(j, b, ")");
    return true;
}

static bool repr_loop(jctx *j, jbuf *b, jloop *l)
{
    int64_t n = nbj_loop_length(j, l);
    NBJ_ADD(j, b, "<LoopContext ");
    nbj_num_text(j, b, jv_int(l->index0 + 1), true);
    NBJ_ADD(j, b, "/");
    nbj_num_text(j, b, jv_int(n), true);
    NBJ_ADD(j, b, ">");
    return n >= 0;
}

static bool repr_macro(jctx *j, jbuf *b, const jmacro *m)
{
    if (!m->name) {
        NBJ_ADD(j, b, "<Macro anonymous>");
        return true;
    }
    NBJ_ADD(j, b, "<Macro ");
    repr_str(j, b, m->name, true);
    NBJ_ADD(j, b, ">");
    return true;
}

static bool repr_nested(jctx *j, jbuf *b, jval v, bool t)
{
    bool ok;
    switch (v.t) {
    case J_LIST: return repr_items(j, b, v.u.l->v, v.u.l->n, "[", "]", t);
    case J_TUPLE: return repr_items(j, b, v.u.l->v, v.u.l->n, "(", v.u.l->n == 1 ? ",)" : ")", t);
    case J_DICT: return repr_dict(j, b, v.u.d, 3, t);
    case J_VIEW: return repr_dict(j, b, v.u.view->d, v.u.view->kind, t);
    default:
        nbj_add(j, b, "<Namespace ", 11, t);
        ok = repr_dict(j, b, v.u.d, 3, t);
        nbj_add(j, b, ">", 1, t);
        return ok;
    }
}

/* repr(v). t: the origin that all of it gets. */
bool nbj_repr(jctx *j, jbuf *b, jval v, bool t)
{
    if (!b || !nbj_step(j, 1)) return false;
    switch (v.t) {
    case J_ERR: return false;
    case J_UNDEF: nbj_add(j, b, "Undefined", 9, t); break;
    case J_NONE: nbj_add(j, b, "None", 4, t); break;
    case J_BOOL:
    case J_INT:
    case J_BIG:
    case J_FLOAT: nbj_num_text(j, b, v, t && !v.req); break;
    case J_STR: repr_str(j, b, v.u.s, t); break;
    case J_RANGE: return repr_range(j, b, v.u.range);
    case J_LOOP: return repr_loop(j, b, v.u.loop);
    case J_MACRO: return repr_macro(j, b, v.u.macro);
    case J_LIST:
    case J_TUPLE:
    case J_DICT:
    case J_NS:
    case J_VIEW: {
        if (j->data_depth >= NBJ_MAX_DATA_DEPTH)
            return nbj_fail(j, "RecursionError", "data nested more than %d deep", NBJ_MAX_DATA_DEPTH), false;
        j->data_depth++;
        bool ok = repr_nested(j, b, v, t);
        j->data_depth--;
        return ok && !j->failed;
    }
    case J_SELF: nbj_add(j, b, "<TemplateReference None>", 24, t); break;
    default:
        return nbj_fail(j, "TypeError", "a %s cannot be printed", nbj_type_name(v)),
               false; /* Python prints its address */
    }
    return !j->failed;
}

/* str(v) at the end of b. */
bool nbj_print(jctx *j, jbuf *b, jval v)
{
    if (j_bad(v)) return false;
    if (v.t == J_UNDEF) return true;
    if (v.t == J_STR)
        nbj_add_str(j, b, v.u.s);
    else
        return nbj_repr(j, b, v, nbj_origin(j, v));
    return !j->failed;
}

/* str(v); strings stay as they are. */
jval nbj_to_str(jctx *j, jval v)
{
    if (v.t == J_STR || j_bad(v)) return v;
    jbuf *b = nbj_push(j);
    if (!b || !nbj_print(j, b, v)) return jv(J_ERR);
    return nbj_pop(j);
}

/* ---- JSON to values ---- */

/* Without point and exponent an integer of any length, else a float. */
static jval json_number(jctx *j, nb_str text, bool trusted)
{
    bool is_float = false;
    for (size_t i = 0; i < text.n; i++) is_float |= text.p[i] == '.' || text.p[i] == 'e' || text.p[i] == 'E';
    bool neg = text.n && text.p[0] == '-';
    if (neg && !is_float) text = (nb_str){text.p + 1, text.n - 1};
    jval v = nbj_literal(j->a, text, is_float);
    if (j_bad(v)) return nbj_fail(j, "ValueError", "Exceeds the limit (4300 digits) for integer string conversion");
    if (is_float && isinf(v.u.f) && neg) v.u.f = -INFINITY;
    if (neg && !is_float) v = nbj_neg(j, v);
    v.req = !trusted;
    return v;
}

/* Lists and dicts of the request are marked, so that they print as the request's. */
static jval json_container(jctx *j, const nb_json *v, bool trusted)
{
    if (v->type == NB_JSON_ARRAY) {
        jlist *l = nbj_list(j, v->count);
        for (uint32_t i = 0; l && i < v->count; i++) {
            if (!nbj_push_val(j, l, nbj_from_json(j, &v->items[i], trusted))) return jv(J_ERR);
        }
        if (!l) return jv(J_ERR);
        l->req = !trusted;
        return jv_list(l);
    }
    jdict *d = nbj_dict(j, v->count);
    for (uint32_t i = 0; d && i < v->count; i++) {
        jval key = nbj_str_ref(j, v->keys[i].p, v->keys[i].n, trusted);
        if (!nbj_dict_set(j, d, key, nbj_from_json(j, &v->items[i], trusted))) return jv(J_ERR);
    }
    if (!d) return jv(J_ERR);
    d->req = !trusted;
    return jv_dict(d);
}

jval nbj_from_json(jctx *j, const nb_json *v, bool trusted)
{
    if (!v) return jv(J_NONE);
    if (!nbj_step(j, 1)) return jv(J_ERR);
    switch (v->type) {
    case NB_JSON_NULL: return jv(J_NONE);
    case NB_JSON_FALSE: return jv_bool(false);
    case NB_JSON_TRUE: return jv_bool(true);
    case NB_JSON_NUMBER: return json_number(j, v->text, trusted);
    case NB_JSON_STRING: return nbj_str_ref(j, v->text.p, v->text.n, trusted);
    default: {
        if (j->data_depth >= NBJ_MAX_DATA_DEPTH)
            return nbj_fail(j, "RecursionError", "data nested more than %d deep", NBJ_MAX_DATA_DEPTH);
        j->data_depth++;
        jval out = json_container(j, v, trusted);
        j->data_depth--;
        return out;
    }
    }
}

jval nbj_parse_json(jctx *j, const jstr *s)
{
    nb_json_doc doc;
    nb_json_limits lim = {.depth = 64, .flags = NB_JSON_LONE_SURROGATES};
    nb_error ignored;
    if (nb_json_parse(&doc, s->p, s->n, "arguments", &lim, &ignored) != NB_OK) return jv(J_MISSING);
    nb_buf_add(&j->docs, &doc, sizeof doc); /* the strings of the values point into it */
    if (j->docs.oom) {
        nb_json_free(&doc);
        return nbj_oom(j);
    }
    return nbj_from_json(j, doc.root, nbj_trusted(s));
}

/* ---- tojson ---- */

typedef struct jdump {
    jbuf *b;
    bool trusted, ascii, sort;
    const jstr *indent; /* NULL: on one line */
    nb_str item, key;   /* separators */
} jdump;

static void dump_text(jctx *j, const jdump *d, const char *p, size_t n) { nbj_add(j, d->b, p, n, d->trusted); }

static void dump_escape(jctx *j, const jdump *d, uint32_t c)
{
    static const char hex[] = "0123456789abcdef";
    char t[6] = {'\\', 'u', hex[c >> 12 & 15], hex[c >> 8 & 15], hex[c >> 4 & 15], hex[c & 15]};
    dump_text(j, d, t, 6);
}

/* Runs of plain characters go out at once. */
static void dump_str(jctx *j, const jdump *d, nb_str s)
{
    dump_text(j, d, "\"", 1);
    for (size_t i = 0, len; i < s.n; i += len) {
        size_t plain = i;
        while (plain < s.n && (uint8_t)s.p[plain] >= 0x20 && s.p[plain] != '"' && s.p[plain] != '\\' &&
               (!d->ascii || (uint8_t)s.p[plain] < 0x7F))
            plain++;
        if (plain > i) {
            dump_text(j, d, s.p + i, plain - i);
            len = plain - i;
            continue;
        }
        uint32_t c = nb_utf8_decode(s.p + i, s.n - i, &len);
        static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
        const char *k = c && c < 0x80 ? strchr(from, (int)c) : NULL;
        if (k) {
            char t[2] = {'\\', to[k - from]};
            dump_text(j, d, t, 2);
        } else if (c >= 0x10000) {
            dump_escape(j, d, 0xD800 + ((c - 0x10000) >> 10));
            dump_escape(j, d, 0xDC00 + ((c - 0x10000) & 0x3FF));
        } else {
            dump_escape(j, d, c);
        }
    }
    dump_text(j, d, "\"", 1);
}

static bool dump(jctx *j, const jdump *d, jval v, uint32_t level);

static void dump_break(jctx *j, const jdump *d, uint32_t level)
{
    if (!d->indent) return;
    dump_text(j, d, "\n", 1);
    for (uint32_t i = 0; i < level; i++) dump_text(j, d, d->indent->p, d->indent->n);
}

/* JSON has no NaN, Python's writer has. */
static bool dump_num(jctx *j, const jdump *d, jval v)
{
    if (v.t == J_BOOL)
        dump_text(j, d, v.u.b ? "true" : "false", v.u.b ? 4 : 5);
    else if (v.t == J_FLOAT && isnan(v.u.f))
        dump_text(j, d, "NaN", 3);
    else if (v.t == J_FLOAT && isinf(v.u.f))
        dump_text(j, d, v.u.f > 0 ? "Infinity" : "-Infinity", v.u.f > 0 ? 8 : 9);
    else
        nbj_num_text(j, d->b, v, d->trusted);
    return !j->failed;
}

/* Numbers, booleans and null become text. */
static bool dump_key(jctx *j, const jdump *d, jval key)
{
    if (key.t == J_STR) {
        dump_str(j, d, js_view(key.u.s));
        return true;
    }
    if (key.t != J_NONE && !j_is_num(key))
        return nbj_fail(j, "TypeError", "keys must be str, int, float, bool or None, not %s", nbj_type_name(key)),
               false;
    dump_text(j, d, "\"", 1);
    if (key.t == J_NONE)
        dump_text(j, d, "null", 4);
    else
        dump_num(j, d, key);
    dump_text(j, d, "\"", 1);
    return !j->failed;
}

/* In the order of the dict, or sorted by key. */
static bool dump_dict(jctx *j, const jdump *d, const jdict *in, uint32_t level)
{
    jval *keys = NULL, *vals = NULL;
    if (!in->n) return dump_text(j, d, "{}", 2), true;
    if (d->sort) {
        keys = nbj_array(j, in->n, sizeof *keys);
        vals = nbj_array(j, in->n, sizeof *vals);
        if (!keys || !vals) return false;
        for (uint32_t i = 0; i < in->n; i++) keys[i] = in->e[i].key, vals[i] = in->e[i].val;
        if (!nbj_sort(j, keys, vals, in->n, false)) return false;
    }
    dump_text(j, d, "{", 1);
    for (uint32_t i = 0; i < in->n; i++) {
        if (i) dump_text(j, d, d->item.p, d->item.n);
        dump_break(j, d, level + 1);
        if (!dump_key(j, d, keys ? keys[i] : in->e[i].key)) return false;
        dump_text(j, d, d->key.p, d->key.n);
        if (!dump(j, d, vals ? vals[i] : in->e[i].val, level + 1)) return false;
    }
    dump_break(j, d, level);
    dump_text(j, d, "}", 1);
    return true;
}

static bool dump_list(jctx *j, const jdump *d, const jlist *l, uint32_t level)
{
    if (!l->n) return dump_text(j, d, "[]", 2), true;
    dump_text(j, d, "[", 1);
    for (uint32_t i = 0; i < l->n; i++) {
        if (i) dump_text(j, d, d->item.p, d->item.n);
        dump_break(j, d, level + 1);
        if (!dump(j, d, l->v[i], level + 1)) return false;
    }
    dump_break(j, d, level);
    dump_text(j, d, "]", 1);
    return true;
}

static bool dump(jctx *j, const jdump *d, jval v, uint32_t level)
{
    if (!nbj_step(j, 1)) return false;
    if (level > NBJ_MAX_DATA_DEPTH)
        return nbj_fail(j, "RecursionError", "data nested more than %d deep", NBJ_MAX_DATA_DEPTH), false;
    if (v.t == J_STR && !nbj_step(j, v.u.s->n / 16)) return false;
    if (v.t == J_STR)
        dump_str(j, d, js_view(v.u.s));
    else if (v.t == J_NONE)
        dump_text(j, d, "null", 4);
    else if (j_is_num(v))
        dump_num(j, d, v);
    else if (j_is_seq(v))
        return dump_list(j, d, v.u.l, level);
    else if (v.t == J_DICT)
        return dump_dict(j, d, v.u.d, level);
    else
        return nbj_fail(j, "TypeError", "Object of type %s is not JSON serializable", nbj_type_name(v)), false;
    return !j->failed;
}

/* The unit of indentation, NULL for none; false: error. */
static bool indent_unit(jctx *j, jval indent, const jstr **out)
{
    *out = NULL;
    if (indent.t == J_NONE || indent.t == J_MISSING) return true;
    if (indent.t == J_STR) return *out = indent.u.s, true;
    int64_t n;
    if (!nbj_int_of(indent, &n))
        return nbj_fail(j, "TypeError", "can't multiply sequence by non-int of type '%s'", nbj_type_name(indent)),
               false;
    jbuf *b = nbj_push(j);
    nbj_fill_cp(j, b, ' ', n > 0 ? (uint64_t)n : 0, true);
    jval s = nbj_pop(j);
    *out = j_bad(s) ? NULL : s.u.s;
    return *out != NULL;
}

/* json.dumps with the parameters that templates pass. With an indent there is no space behind the comma. */
jval nbj_tojson(jctx *j, jval v, bool ascii, jval indent, jval separators, bool sort)
{
    if (v.t == J_ITER && j->extend) { /* tools|map(attribute="function")|tojson: other engines have lists there */
        jlist *l = nbj_collect(j, v);
        if (!l) return jv(J_ERR);
        v = jv_list(l);
    }
    jdump d = {.trusted = nbj_origin(j, v), .ascii = ascii, .sort = sort, .item = NB_LIT(", "), .key = NB_LIT(": ")};
    if (!indent_unit(j, indent, &d.indent)) return jv(J_ERR);
    if (d.indent) d.item = NB_LIT(",");
    if (separators.t != J_NONE && separators.t != J_MISSING) {
        jlist *s = nbj_collect(j, separators);
        if (!s) return jv(J_ERR);
        if (s->n != 2 || s->v[0].t != J_STR || s->v[1].t != J_STR)
            return nbj_fail(j, "ValueError", "separators must be two strings");
        d.item = js_view(s->v[0].u.s);
        d.key = js_view(s->v[1].u.s);
        d.trusted = d.trusted && nbj_trusted(s->v[0].u.s) && nbj_trusted(s->v[1].u.s);
    }
    if (d.indent) d.trusted = d.trusted && nbj_trusted(d.indent);
    d.b = nbj_push(j);
    if (!d.b || !dump(j, &d, v, 0)) return jv(J_ERR);
    return nbj_pop(j);
}
