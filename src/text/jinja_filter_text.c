/* text/jinja_filter_text: filters on text and numbers. Most make text of whatever they get. */
#include "text/jinja.h"

#include <math.h>

static const char *const no_names[1] = {""};

/* The value as text, where the filter takes no arguments. */
static const jstr *plain(jctx *j, jval in, const jargs *a, const char *fn)
{
    jval ignored[1];
    if (!nbj_bind(j, fn, a, no_names, 0, 0, ignored)) return NULL;
    in = nbj_to_str(j, in);
    return j_bad(in) ? NULL : in.u.s;
}

static jval f_upper(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "upper");
    return s ? nbj_case(j, s, NBJ_UPPER) : jv(J_ERR);
}

static jval f_lower(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "lower");
    return s ? nbj_case(j, s, NBJ_LOWER) : jv(J_ERR);
}

static jval f_capitalize(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "capitalize");
    return s ? nbj_capitalize(j, s, 0, s->n) : jv(J_ERR);
}

/* What the pattern of Jinja's title splits at. */
static bool begins_word(uint32_t c)
{
    return nbj_is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

/* Words begin after spaces and - ( { [ <, not after an apostrophe as in str.title(). */
static jval f_title(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "title");
    jbuf *b = s && nbj_step(j, s->n / 4) ? nbj_push(j) : NULL;
    if (!b) return jv(J_ERR);
    for (uint32_t i = 0; i < s->n && !j->failed;) {
        size_t len;
        uint32_t from = i;
        while (i < s->n && begins_word(nb_utf8_decode(s->p + i, s->n - i, &len))) i += (uint32_t)len;
        nbj_add_part(j, b, s, from, i);
        uint32_t word = i;
        while (i < s->n && !begins_word(nb_utf8_decode(s->p + i, s->n - i, &len))) i += (uint32_t)len;
        if (word == i) continue;
        nb_utf8_decode(s->p + word, s->n - word, &len);
        jval first = nbj_slice(j, s, word, word + (uint32_t)len), rest = nbj_slice(j, s, word + (uint32_t)len, i);
        if (!j_bad(first)) first = nbj_case(j, first.u.s, NBJ_UPPER);
        if (!j_bad(rest)) rest = nbj_case(j, rest.u.s, NBJ_LOWER);
        if (j_bad(first) || j_bad(rest)) return jv(J_ERR);
        nbj_add_str(j, b, first.u.s);
        nbj_add_str(j, b, rest.u.s);
    }
    return nbj_as_markup(j, nbj_pop(j), false);
}

static jval f_string(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "string");
    return s ? jv_str(s) : jv(J_ERR);
}

static jval f_safe(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "safe");
    return s ? nbj_as_markup(j, jv_str(s), true) : jv(J_ERR);
}

static jval f_escape(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "escape");
    return !s ? jv(J_ERR) : s->markup ? jv_str(s) : nbj_escape(j, s);
}

static jval f_forceescape(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "forceescape");
    return s ? nbj_escape(j, s) : jv(J_ERR);
}

static jval f_trim(jctx *j, jval in, const jargs *a)
{
    jval v[1];
    if (!nbj_bind(j, "trim", a, (const char *const[]){"chars"}, 0, 1, v)) return jv(J_ERR);
    in = nbj_to_str(j, in);
    if (j_bad(in)) return in;
    const jstr *chars = NULL;
    if (v[0].t != J_MISSING && v[0].t != J_NONE && !(chars = nbj_want_str(j, v[0], "strip arg"))) return jv(J_ERR);
    return nbj_strip(j, in.u.s, chars, 3);
}

/* All three are made text first; markup is lost. */
static jval f_replace(jctx *j, jval in, const jargs *a)
{
    jval v[3];
    int64_t count = -1;
    if (!nbj_bind(j, "replace", a, (const char *const[]){"old", "new", "count"}, 2, 3, v)) return jv(J_ERR);
    if (v[2].t != J_MISSING && v[2].t != J_NONE && !nbj_want_int(j, v[2], &count)) return jv(J_ERR);
    in = nbj_as_markup(j, nbj_to_str(j, in), false);
    jval old = nbj_to_str(j, v[0]), new_ = nbj_as_markup(j, nbj_to_str(j, v[1]), false);
    if (j_bad(in) || j_bad(old) || j_bad(new_)) return jv(J_ERR);
    return nbj_replace(j, in.u.s, old.u.s, new_.u.s, count);
}

static jval f_center(jctx *j, jval in, const jargs *a)
{
    jval v[1];
    int64_t width = 80;
    if (!nbj_bind(j, "center", a, (const char *const[]){"width"}, 0, 1, v)) return jv(J_ERR);
    if (v[0].t != J_MISSING && !nbj_want_int(j, v[0], &width)) return jv(J_ERR);
    in = nbj_to_str(j, in);
    return j_bad(in) ? in : nbj_center(j, in.u.s, width, ' ', true, 0);
}

/* The % operator with arguments instead of a tuple. */
static jval f_format(jctx *j, jval in, const jargs *a)
{
    if (a->n && a->nkw)
        return nbj_fail(j, "FilterArgumentError", "can't handle positional and keyword arguments at the same time");
    in = nbj_to_str(j, in);
    if (j_bad(in)) return in;
    if (a->nkw) {
        jdict *d = nbj_dict(j, a->nkw);
        for (uint32_t i = 0; d && i < a->nkw; i++) nbj_dict_set(j, d, jv_str(a->kw[i].name), a->kw[i].v);
        return d ? nbj_percent(j, in.u.s, jv_dict(d)) : jv(J_ERR);
    }
    jlist args = {.v = a->v, .n = a->n, .cap = a->n};
    return nbj_percent(j, in.u.s, jv_tuple(&args));
}

/* ---- lines ---- */

/* All lines but the first and blank ones, unless told otherwise. */
static jval f_indent(jctx *j, jval in, const jargs *a)
{
    jval v[3];
    int64_t width = 4;
    if (!nbj_bind(j, "indent", a, (const char *const[]){"width", "first", "blank"}, 0, 3, v)) return jv(J_ERR);
    if (in.t == J_UNDEF) return nbj_use_undef(j, in);
    if (in.t == J_LIST) return nbj_fail(j, "AttributeError", "'list' object has no attribute 'splitlines'");
    if (in.t != J_STR)
        return nbj_fail(j, "TypeError", "unsupported operand type(s) for +=: '%s' and 'str'", nbj_type_name(in));
    if (v[0].t != J_STR && v[0].t != J_MISSING && !nbj_want_int(j, v[0], &width)) return jv(J_ERR);
    bool first = nbj_truth(j, v[1]), blank = nbj_truth(j, v[2]);
    jval text =
        nbj_concat(j, in.u.s, &(jstr){.p = "\n", .n = 1, .chars = 1, .trusted = true, .markup = in.u.s->markup});
    jlist *lines = j_bad(text) ? NULL : nbj_split_lines(j, text.u.s, false);
    jbuf *b = lines ? nbj_push(j) : NULL;
    if (!b) return jv(J_ERR);
    for (uint32_t i = 0; i < lines->n && !j->failed; i++) {
        if (i) NBJ_ADD(j, b, "\n");
        if (i ? blank || lines->v[i].u.s->n : first) {
            if (v[0].t == J_STR)
                nbj_add_str(j, b, v[0].u.s);
            else
                nbj_fill_cp(j, b, ' ', width > 0 ? (uint64_t)width : 0, true);
        }
        nbj_add_str(j, b, lines->v[i].u.s);
    }
    return nbj_as_markup(j, nbj_pop(j), in.u.s->markup);
}

/* At a space before the limit, with some leeway. */
static jval f_truncate(jctx *j, jval in, const jargs *a)
{
    jval v[4];
    int64_t length = 255, leeway = 5;
    if (!nbj_bind(j, "truncate", a, (const char *const[]){"length", "killwords", "end", "leeway"}, 0, 4, v))
        return jv(J_ERR);
    if (v[0].t != J_MISSING && !nbj_want_int(j, v[0], &length)) return jv(J_ERR);
    if (v[3].t != J_MISSING && v[3].t != J_NONE && !nbj_want_int(j, v[3], &leeway)) return jv(J_ERR);
    jval end = v[2].t == J_MISSING ? nbj_cstr(j, "...") : v[2];
    if (j_bad(end) || !nbj_want_str(j, end, "the end")) return jv(J_ERR);
    int64_t end_n = nbj_chars(end.u.s);
    if (length < end_n)
        return nbj_fail(j, "AssertionError", "expected length >= %lld, got %lld", (long long)end_n, (long long)length);
    if (leeway < 0) return nbj_fail(j, "AssertionError", "expected leeway >= 0, got %lld", (long long)leeway);
    int64_t n = nbj_len(j, in);
    if (n < 0) return jv(J_ERR);
    if (n <= length + leeway) return in;
    const jstr *s = nbj_want_str(j, in, "the text");
    if (!s) return jv(J_ERR);
    uint32_t to = nbj_offset(s, (uint32_t)(length - end_n));
    for (uint32_t k = to; !nbj_truth(j, v[1]) && k > 0; k--) {
        if (s->p[k - 1] != ' ') continue;
        to = k - 1;
        break;
    }
    jval cut = nbj_slice(j, s, 0, to);
    return j_bad(cut) ? cut : nbj_concat(j, cut.u.s, end.u.s);
}

static jval f_wordcount(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "wordcount");
    if (!s || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    int64_t n = 0;
    bool inside = false;
    for (size_t i = 0, len; i < s->n; i += len) {
        bool word = nbj_is_word(nb_utf8_decode(s->p + i, s->n - i, &len));
        n += word && !inside;
        inside = word;
    }
    return jv_int(n);
}

/* ---- wordwrap: words and the spaces between them are chunks; a word may be cut behind its hyphens ---- */

typedef struct jwrap {
    const jstr *s;
    int64_t width;
    bool long_words, hyphens;
    const jstr *line_end;
} jwrap;

static bool is_blank(char c) { return c == ' ' || (c >= 9 && c <= 13); }

/* The character at i, 0 at the end; *next behind it. */
static uint32_t char_at(const jwrap *w, uint32_t i, uint32_t to, uint32_t *next)
{
    size_t len = 0;
    uint32_t c = i < to ? nb_utf8_decode(w->s->p + i, to - i, &len) : 0;
    *next = i + (uint32_t)len;
    return c;
}

/* The character before i, 0 at the beginning; *at where it begins. */
static uint32_t char_before(const jwrap *w, uint32_t i, uint32_t *at)
{
    size_t len;
    *at = i;
    if (!i) return 0;
    do --*at;
    while (*at > 0 && ((uint8_t)w->s->p[*at] & 0xC0) == 0x80);
    return nb_utf8_decode(w->s->p + *at, i - *at, &len);
}

static bool is_letter(uint32_t c) { return nbj_is_word(c) && !nbj_is_decimal(c); }
static bool is_punct(uint32_t c) { return nbj_is_word(c) || (c && c < 0x80 && strchr("!\"'&.,?", (int)c)); }

/* Two hyphens or more at i between a word and the next: a dash. Returns its end, or i. */
static uint32_t dash_end(const jwrap *w, uint32_t i, uint32_t to)
{
    uint32_t k = i, at;
    if (!is_punct(char_before(w, i, &at))) return i; /* so a run of hyphens is looked through once */
    while (k < to && w->s->p[k] == '-') k++;
    return k > i + 1 && nbj_is_word(char_at(w, k, to, &at)) ? k : i;
}

/* May a word be cut behind the hyphen before i? Two letters, which may have a hyphen between them, stand before and
 * behind it. */
static bool cut_here(const jwrap *w, uint32_t i, uint32_t to)
{
    uint32_t at, k;
    uint32_t one = char_before(w, i - 1, &at), two = char_before(w, at, &k);
    bool before = is_letter(one) && is_letter(two);
    if (!before && two == '-') before = is_letter(one) && is_letter(char_before(w, k, &at));
    if (!before || !is_letter(char_at(w, i, to, &k))) return false;
    if (k < to && w->s->p[k] == '-') k++;
    return is_letter(char_at(w, k, to, &at));
}

/* The end of the word, dash or run of spaces at i, as textwrap cuts them. */
static uint32_t chunk_end(const jwrap *w, uint32_t i, uint32_t to)
{
    const char *p = w->s->p;
    if (is_blank(p[i])) {
        while (i < to && is_blank(p[i])) i++;
        return i;
    }
    uint32_t dash = w->hyphens ? dash_end(w, i, to) : i;
    if (dash > i) return dash;
    for (char_at(w, i, to, &i); i < to && !is_blank(p[i]); char_at(w, i, to, &i)) {
        if (!w->hyphens || p[i] != '-') continue;
        if (cut_here(w, i + 1, to)) return i + 1;
        if (dash_end(w, i, to) > i) return i;
    }
    return i;
}

/* Characters, counted until there are more than `most`. */
static int64_t chars_in(const jstr *s, uint32_t from, uint32_t to, int64_t most)
{
    int64_t n = 0;
    for (; from < to && n <= most; from++) n += ((uint8_t)s->p[from] & 0xC0) != 0x80;
    return n;
}

/* As many characters from i as fit in n, at least one. */
static uint32_t advance(const jstr *s, uint32_t i, uint32_t to, int64_t n)
{
    for (n = n < 1 ? 1 : n; i < to && n > 0; n--) {
        i++;
        while (i < to && ((uint8_t)s->p[i] & 0xC0) == 0x80) i++;
    }
    return i;
}

/* Where a word that is too long is cut, with `room` characters left on the line: behind its last hyphen in there, if it
 * has one. Without room what stands before it keeps its spaces. */
static uint32_t cut_word(const jwrap *w, uint32_t from, uint32_t to, int64_t room)
{
    uint32_t cut = room > 0 ? advance(w->s, from, to, room) : from, plain = from;
    while (plain < cut && w->s->p[plain] == '-') plain++;
    for (uint32_t i = cut; w->hyphens && i > plain + 1; i--) {
        if (w->s->p[i - 1] == '-') return i;
    }
    return cut;
}

/* Nothing but white space, of any kind. */
static bool all_space(const jstr *s, uint32_t i, uint32_t to)
{
    for (size_t len; i < to; i += (uint32_t)len) {
        if (!nbj_is_space(nb_utf8_decode(s->p + i, s->n - i, &len))) return false;
    }
    return true;
}

/* Fills one line after the other; white space at a break goes. [at, end) is the chunk that comes next, [last, stop) the
 * last piece on the line. */
static void wrap_line(jctx *j, jbuf *b, const jwrap *w, uint32_t at, uint32_t to)
{
    uint32_t end = at < to ? chunk_end(w, at, to) : to;
    bool first = true;
    while (at < to && !j->failed && nbj_step(j, 1)) {
        if (!first && all_space(w->s, at, end)) at = end, end = at < to ? chunk_end(w, at, to) : to;
        uint32_t from = at, last = at, stop = at, pieces = 0;
        int64_t used = 0, n = 0;
        for (; at < to && used + (n = chars_in(w->s, at, end, w->width)) <= w->width; pieces++) {
            used += n;
            last = at;
            stop = at = end;
            if (at < to) end = chunk_end(w, at, to);
        }
        if (at < to && n > w->width && (w->long_words || !pieces)) {
            last = at;
            stop = at = w->long_words ? cut_word(w, at, end, w->width - used) : end;
            pieces++;
            if (at == end && at < to) end = chunk_end(w, at, to);
        }
        if (pieces && all_space(w->s, last, stop)) pieces--, stop = last;
        if (!pieces) continue;
        if (!first) nbj_add_str(j, b, w->line_end);
        nbj_add_part(j, b, w->s, from, stop);
        first = false;
    }
}

static jval f_wordwrap(jctx *j, jval in, const jargs *a)
{
    jval v[4];
    int64_t width = 79;
    if (!nbj_bind(j, "wordwrap", a,
                  (const char *const[]){"width", "break_long_words", "wrapstring", "break_on_hyphens"}, 0, 4, v))
        return jv(J_ERR);
    if (in.t == J_UNDEF) return nbj_use_undef(j, in);
    if (in.t != J_STR)
        return nbj_fail(j, "AttributeError", "'%s' object has no attribute 'splitlines'", nbj_type_name(in));
    bool any = in.u.s->n > 0; /* without a line nobody looks at the width */
    if (any && v[0].t != J_MISSING && !nbj_want_int(j, v[0], &width)) return jv(J_ERR);
    if (any && width <= 0) return nbj_fail(j, "ValueError", "invalid width %lld (must be > 0)", (long long)width);
    jval nl = v[2].t == J_MISSING || v[2].t == J_NONE ? nbj_cstr(j, "\n") : v[2];
    if (j_bad(nl) || !nbj_want_str(j, nl, "wrapstring")) return jv(J_ERR);
    jlist *lines = nbj_split_lines(j, in.u.s, false);
    jbuf *b = lines ? nbj_push(j) : NULL;
    for (uint32_t i = 0; b && i < lines->n; i++) {
        jwrap w = {lines->v[i].u.s, width, v[1].t == J_MISSING || nbj_truth(j, v[1]),
                   v[3].t == J_MISSING || nbj_truth(j, v[3]), nl.u.s};
        if (i) nbj_add_str(j, b, nl.u.s);
        wrap_line(j, b, &w, 0, w.s->n);
    }
    return b ? nbj_pop(j) : jv(J_ERR);
}

/* ---- markup ---- */

/* Drops <...> and comments; runs of white space become one space; character references become characters. */
static void unescape(nb_buf *out, nb_str s)
{
    static const struct {
        const char *name, *text;
    } refs[] = {{"amp;", "&"}, {"lt;", "<"}, {"gt;", ">"}, {"quot;", "\""}, {"apos;", "'"}, {"nbsp;", "\xC2\xA0"}};
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '&') {
            nb_buf_add_char(out, s.p[i]);
            continue;
        }
        nb_str rest = {s.p + i + 1, s.n - i - 1};
        size_t k = 0;
        while (k < NB_COUNT(refs) && !nb_str_starts(rest, refs[k].name)) k++;
        if (k < NB_COUNT(refs)) {
            nb_buf_add_cstr(out, refs[k].text);
            i += strlen(refs[k].name);
            continue;
        }
        bool hex = rest.n > 1 && rest.p[0] == '#' && (rest.p[1] | 0x20) == 'x';
        uint32_t c = 0;
        size_t d = hex ? 2 : 1, from = d;
        for (; rest.n && rest.p[0] == '#' && d < rest.n && c < 0x110000; d++) {
            char ch = (char)(rest.p[d] | 0x20);
            int digit = rest.p[d] >= '0' && rest.p[d] <= '9' ? rest.p[d] - '0'
                        : hex && ch >= 'a' && ch <= 'f'      ? ch - 'a' + 10
                                                             : -1;
            if (digit < 0) break;
            c = c * (hex ? 16u : 10u) + (uint32_t)digit;
        }
        if (d == from || !rest.n || rest.p[0] != '#') {
            nb_buf_add_char(out, '&');
            continue;
        }
        nb_buf_add_cp(out, c > 0x10FFFF || (c >= 0xD800 && c < 0xE000) || !c ? 0xFFFD : c);
        i += d + (d < rest.n && rest.p[d] == ';');
    }
}

/* Drops comments and what stands in angle brackets, up to the first that is not closed. */
static void strip_tags(nb_buf *out, nb_str s)
{
    for (int64_t start; (start = nb_str_find(s, NB_LIT("<"), 0)) >= 0;) {
        nb_str tag = {s.p + start, s.n - (size_t)start};
        bool comment = nb_str_starts(tag, "<!--");
        int64_t end = comment ? nb_str_find(tag, NB_LIT("-->"), 4) : nb_str_find(tag, NB_LIT(">"), 0);
        if (end < 0) break;
        nb_buf_add(out, s.p, (size_t)start);
        size_t skip = (size_t)(start + end) + (comment ? 3 : 1);
        s = (nb_str){s.p + skip, s.n - skip};
    }
    nb_buf_add_str(out, s);
}

static jval f_striptags(jctx *j, jval in, const jargs *a)
{
    const jstr *s = plain(j, in, a, "striptags");
    if (!s || !nbj_step(j, s->n / 4)) return jv(J_ERR);
    nb_buf tags = {0}, words = {0}, text = {0};
    strip_tags(&tags, js_view(s));
    bool space = false;
    for (size_t i = 0, len; i < tags.n; i += len) {
        bool blank = nbj_is_space(nb_utf8_decode(tags.p + i, tags.n - i, &len));
        if (!blank && space && words.n) nb_buf_add_char(&words, ' ');
        if (!blank) nb_buf_add(&words, tags.p + i, len);
        space = blank;
    }
    unescape(&text, nb_buf_str(&words));
    jval v = tags.oom || words.oom || text.oom ? nbj_oom(j) : nbj_str(j, text.p ? text.p : "", text.n, nbj_trusted(s));
    nb_buf_free(&tags);
    nb_buf_free(&words);
    nb_buf_free(&text);
    return v;
}

static jval f_xmlattr(jctx *j, jval in, const jargs *a)
{
    jval v[1];
    if (!nbj_bind(j, "xmlattr", a, (const char *const[]){"autospace"}, 0, 1, v)) return jv(J_ERR);
    if (in.t == J_UNDEF) return nbj_use_undef(j, in);
    if (in.t != J_DICT) return nbj_fail(j, "AttributeError", "'%s' object has no attribute 'items'", nbj_type_name(in));
    bool space = v[0].t == J_MISSING || nbj_truth(j, v[0]), any = false;
    jbuf *b = nbj_push(j);
    for (uint32_t i = 0; b && i < in.u.d->n; i++) {
        jval key = in.u.d->e[i].key, val = in.u.d->e[i].val;
        if (val.t == J_NONE || val.t == J_UNDEF) continue;
        const jstr *k = nbj_want_str(j, key, "an attribute name");
        if (!k) return jv(J_ERR);
        for (uint32_t c = 0; c < k->n; c++) {
            if (is_blank(k->p[c]) || k->p[c] == '/' || k->p[c] == '>' || k->p[c] == '=')
                return nbj_fail(j, "ValueError", "Invalid character in attribute name: '%.*s'", (int)k->n, k->p);
        }
        jval name = k->markup ? key : nbj_escape(j, k), text = nbj_to_str(j, val);
        if (!j_bad(text) && !text.u.s->markup) text = nbj_escape(j, text.u.s);
        if (j_bad(name) || j_bad(text)) return jv(J_ERR);
        if (any || space) NBJ_ADD(j, b, " ");
        nbj_add_str(j, b, name.u.s);
        NBJ_ADD(j, b, "=\"");
        nbj_add_str(j, b, text.u.s);
        NBJ_ADD(j, b, "\"");
        any = true;
    }
    return b ? nbj_pop(j) : jv(J_ERR);
}

/* Percent encoding; in a query a space is +. */
static void quote(jctx *j, jbuf *b, const jstr *s, bool query)
{
    static const char hex[] = "0123456789ABCDEF";
    bool trusted = nbj_trusted(s);
    for (uint32_t i = 0; i < s->n; i++) {
        uint8_t c = (uint8_t)s->p[i];
        char t[3] = {'%', hex[c >> 4], hex[c & 15]};
        bool safe = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    (c && strchr(query ? "_.-~" : "_.-~/", c));
        if (safe)
            nbj_add(j, b, s->p + i, 1, trusted);
        else if (query && c == ' ')
            nbj_add(j, b, "+", 1, trusted);
        else
            nbj_add(j, b, t, 3, trusted);
    }
}

static jval f_urlencode(jctx *j, jval in, const jargs *a)
{
    jval ignored[1], item;
    if (!nbj_bind(j, "urlencode", a, no_names, 0, 0, ignored)) return jv(J_ERR);
    bool pairs =
        in.t == J_DICT || j_is_seq(in) || in.t == J_ITER || in.t == J_VIEW || in.t == J_RANGE || in.t == J_UNDEF;
    jbuf *b = nbj_push(j);
    if (!pairs) {
        in = nbj_to_str(j, in);
        if (j_bad(in)) return in;
        quote(j, b, in.u.s, false);
        return nbj_pop(j);
    }
    if (in.t == J_DICT) in = nbj_call(j, nbj_method_of(j, in, NB_LIT("items")), &(jargs){0});
    jiter *it = nbj_iter(j, in);
    int more = -1;
    for (bool first = true; it && (more = nbj_next(j, it, &item)) > 0; first = false) {
        jlist *l = nbj_collect(j, item);
        if (!l) return jv(J_ERR);
        if (l->n != 2) return nbj_fail(j, "ValueError", "too many or not enough values to unpack (expected 2)");
        jval k = nbj_to_str(j, l->v[0]), v = nbj_to_str(j, l->v[1]);
        if (j_bad(k) || j_bad(v)) return jv(J_ERR);
        if (!first) NBJ_ADD(j, b, "&");
        quote(j, b, k.u.s, true);
        NBJ_ADD(j, b, "=");
        quote(j, b, v.u.s, true);
    }
    return more < 0 ? jv(J_ERR) : nbj_pop(j);
}

static jval f_urlize(jctx *j, jval in, const jargs *a)
{
    (void)in;
    (void)a;
    return nbj_fail(j, "TemplateRuntimeError", "the filter 'urlize' makes HTML and is not available");
}

static jval f_pprint(jctx *j, jval in, const jargs *a)
{
    jval ignored[1];
    return nbj_bind(j, "pprint", a, no_names, 0, 0, ignored) ? nbj_pformat(j, in) : jv(J_ERR);
}

/* ---- numbers ---- */

/* int(), else int(float()), else the default. */
static jval f_int(jctx *j, jval in, const jargs *a)
{
    jval v[2];
    int64_t base = 10;
    double d;
    if (!nbj_bind(j, "int", a, (const char *const[]){"default", "base"}, 0, 2, v)) return jv(J_ERR);
    jval def = v[0].t == J_MISSING ? jv_int(0) : v[0];
    if (in.t == J_UNDEF) return nbj_use_undef(j, in);
    if (in.t == J_BOOL) return jv_int(in.u.b);
    if (in.t == J_INT || in.t == J_BIG) return in;
    if (in.t == J_FLOAT) return isnan(in.u.f) ? def : nbj_int_from_double(j, in.u.f);
    if (in.t != J_STR) return def;
    if (v[1].t != J_MISSING && !nbj_int_of(v[1], &base)) base = -1; /* int() raises TypeError, and float() is tried */
    jval out = base == 0 || (base >= 2 && base <= 36) ? nbj_parse_int(j, js_view(in.u.s), (int)base) : jv(J_MISSING);
    if (out.t == J_MISSING && nbj_parse_float(js_view(in.u.s), &d) && isfinite(d)) out = nbj_int_from_double(j, d);
    if (out.t == J_MISSING) return def;
    out.req = !nbj_trusted(in.u.s);
    return out;
}

static jval f_float(jctx *j, jval in, const jargs *a)
{
    jval v[1];
    double d;
    if (!nbj_bind(j, "float", a, (const char *const[]){"default"}, 0, 1, v)) return jv(J_ERR);
    if (in.t == J_UNDEF) return nbj_use_undef(j, in);
    if (j_is_num(in)) {
        d = nbj_double(in);
        return in.t == J_BIG && isinf(d) ? nbj_fail(j, "OverflowError", "int too large to convert to float")
                                         : jv_float(d);
    }
    if (in.t == J_STR && nbj_parse_float(js_view(in.u.s), &d))
        return (jval){.t = J_FLOAT, .req = !nbj_trusted(in.u.s), .u.f = d};
    return v[0].t == J_MISSING ? jv_float(0.0) : v[0];
}

static jval f_abs(jctx *j, jval in, const jargs *a)
{
    jval ignored[1];
    if (!nbj_bind(j, "abs", a, no_names, 0, 0, ignored)) return jv(J_ERR);
    if (!j_is_num(in)) return nbj_fail(j, "TypeError", "bad operand type for abs(): '%s'", nbj_type_name(in));
    if (in.t == J_FLOAT) return jv_float(fabs(in.u.f));
    if (in.t == J_BOOL) return jv_int(in.u.b);
    return nbj_num_cmp(in, jv_int(0)) < 0 ? nbj_neg(j, in) : in;
}

/* common: round() of Python; ceil and floor scale, round and divide. */
static jval f_round(jctx *j, jval in, const jargs *a)
{
    jval v[2];
    int64_t digits = 0;
    if (!nbj_bind(j, "round", a, (const char *const[]){"precision", "method"}, 0, 2, v)) return jv(J_ERR);
    nb_str how = v[1].t == J_STR ? js_view(v[1].u.s) : NB_LIT("common");
    bool ceil_ = nb_str_is(how, "ceil"), floor_ = nb_str_is(how, "floor");
    if ((v[1].t != J_MISSING && v[1].t != J_STR) || (!ceil_ && !floor_ && !nb_str_is(how, "common")))
        return nbj_fail(j, "FilterArgumentError", "method must be common, ceil or floor");
    if (v[0].t == J_NONE && !ceil_ && !floor_ && in.t == J_FLOAT) {
        jval r = nbj_round(j, in, 0);
        return nbj_int_from_double(j, r.u.f);
    }
    if (v[0].t != J_MISSING && v[0].t != J_NONE && !nbj_want_int(j, v[0], &digits)) return jv(J_ERR);
    if (in.t == J_UNDEF && (ceil_ || floor_)) return nbj_use_undef(j, in);
    if (!j_is_num(in)) return nbj_fail(j, "TypeError", "type %s doesn't define __round__ method", nbj_type_name(in));
    if (!ceil_ && !floor_) return nbj_round(j, in, digits);
    jval scale = nbj_arith(j, OP_POW, jv_int(10), jv_int(digits));
    jval scaled = j_bad(scale) ? scale : nbj_arith(j, OP_MUL, in, scale);
    if (scaled.t == J_FLOAT) scaled = nbj_int_from_double(j, ceil_ ? ceil(scaled.u.f) : floor(scaled.u.f));
    return j_bad(scaled) ? scaled : nbj_arith(j, OP_DIV, scaled, scale);
}

static jval f_filesizeformat(jctx *j, jval in, const jargs *a)
{
    static const char *const names[2][8] = {{"kB", "MB", "GB", "TB", "PB", "EB", "ZB", "YB"},
                                            {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ZiB", "YiB"}};
    jval v[1];
    double d;
    if (!nbj_bind(j, "filesizeformat", a, (const char *const[]){"binary"}, 0, 1, v)) return jv(J_ERR);
    if (in.t == J_UNDEF) return nbj_use_undef(j, in);
    if (in.t == J_STR && !nbj_parse_float(js_view(in.u.s), &d))
        return nbj_fail(j, "ValueError", "could not convert string to float");
    if (in.t != J_STR && !j_is_num(in))
        return nbj_fail(j, "TypeError", "float() argument must be a string or a real number, not '%s'",
                        nbj_type_name(in));
    if (in.t != J_STR) d = nbj_double(in);
    bool binary = nbj_truth(j, v[0]), trusted = in.t == J_STR ? nbj_trusted(in.u.s) : !in.req;
    double base = binary ? 1024 : 1000;
    jval step = jv_int(binary ? 1024 : 1000),
         unit = nbj_arith(j, OP_MUL, step, step); /* exact: 1e24 is below 10 ** 24 */
    if (d == 1) return nbj_cstr(j, "1 Byte");
    jbuf *b = nbj_push(j);
    char t[400];
    if (d < base) {
        jval n = nbj_int_from_double(j, d);
        if (j_bad(n)) return n;
        nbj_num_text(j, b, n, trusted);
        NBJ_ADD(j, b, " Bytes");
        return nbj_pop(j);
    }
    int i = 0;
    while (i < 7 && nbj_num_cmp(jv_float(d), unit) >= 0) unit = nbj_arith(j, OP_MUL, unit, step), i++;
    if (j_bad(unit)) return unit;
    nbj_add(j, b, t, nbj_format_double(t, sizeof t, base * d / nbj_double(unit), 'f', 1, false), trusted);
    NBJ_ADD(j, b, " ");
    nbj_add(j, b, names[binary][i], strlen(names[binary][i]), true);
    return nbj_pop(j);
}

const jfilter nbj_text_filters[] = {
    {"abs", f_abs},
    {"capitalize", f_capitalize},
    {"center", f_center},
    {"e", f_escape},
    {"escape", f_escape},
    {"filesizeformat", f_filesizeformat},
    {"float", f_float},
    {"forceescape", f_forceescape},
    {"format", f_format},
    {"indent", f_indent},
    {"int", f_int},
    {"lower", f_lower},
    {"pprint", f_pprint},
    {"replace", f_replace},
    {"round", f_round},
    {"safe", f_safe},
    {"string", f_string},
    {"striptags", f_striptags},
    {"title", f_title},
    {"trim", f_trim},
    {"truncate", f_truncate},
    {"upper", f_upper},
    {"urlencode", f_urlencode},
    {"urlize", f_urlize},
    {"wordcount", f_wordcount},
    {"wordwrap", f_wordwrap},
    {"xmlattr", f_xmlattr},
    {NULL, NULL},
};
