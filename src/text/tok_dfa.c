/* text/tok_dfa: from a pattern to a tree, to an automaton with priorities, to a table of states.
 *
 * A state of the table is the list of the automaton's places that a match may be in, in the order in which a backtracking
 * search would try them; behind a place where the match is complete the list is cut, since that one wins over all later
 * ones. Places are kept as they are before the conditions on the next character are looked at: so a state says with the
 * next character (or the end) whether a match ended before it. All states are made when the pattern is compiled; the
 * table is never written afterwards, and all threads may use it.
 *
 * A condition on more than one character, (?=...), has a table of its own, made from the pattern backwards: one pass over
 * the text from its end says for each place whether the condition holds there, and the place's class tells the main table. */
#include "text/tok_dfa.h"

#include "text/tok_charset.h"
#include "text/unicode.h"

#include <stdlib.h>

enum { MAX_LOOKS = 2, MAX_SETS = 60, MAX_NODES = 4000, MAX_PLACES = 3000, MAX_STATES = 1500, MAX_LIST = 1200000, HEADS = 1024, MAX_CLASSES = 200, MAX_DEPTH = 250, NONE = 0xFFFF };
enum { BLOCK = 256, BLOCKS = 0x110000 / BLOCK };
#define AT_START ((uint64_t)1 << 63) /* in the description of the character before: there is none */
#define LINE_END ((uint64_t)1 << 62) /* it is a newline */

typedef struct table {
    uint32_t *next;              /* [row + class]: next row << 1 | a match ended before this character. Row 0: nothing more */
    uint32_t begin[MAX_CLASSES]; /* row to begin with, by class of the character before; the last class: start of the text */
} table;

struct nb_tok_dfa {
    uint8_t ascii[128];       /* class of a character, shifted by `looks` */
    uint16_t block[BLOCKS];   /* code point / 256 -> block of `wide` */
    uint8_t *wide;
    uint32_t looks;           /* conditions with a table of their own: a bit each, the lowest of a class */
    uint32_t classes, end;    /* `end`: the first class of the end of the text; behind it only its other bits */
    table main, look[MAX_LOOKS];
    bool may_begin[256];      /* by first byte */
    bool empty_at_end;        /* there may be a match at the end of the text */
    bool looks_behind;        /* else all rows to begin with are one */
};

/* ---- the tree ---- */

enum { T_EMPTY, T_FAIL, T_SET, T_CAT, T_ALT, T_REPEAT, T_AHEAD, T_NOT_AHEAD, T_BEHIND, T_NOT_BEHIND, T_LINE_START, T_LINE_END,
       T_LOOK, T_NOT_LOOK, /* set: which */
       T_LINE_START_BACK, T_LINE_END_BACK /* what the two are when the text is read from its end */ };
typedef struct tree {
    uint8_t kind;
    bool lazy;
    uint16_t child; /* CAT, ALT: the last child; REPEAT: the only one */
    uint16_t before; /* the sibling before this one */
    uint16_t set, min, max; /* max NONE: no limit */
} tree;

typedef struct parser {
    const char *p;
    size_t n, at;
    tree *node;
    uint32_t nodes;
    nb_charset set[MAX_SETS];
    uint32_t sets, depth;
    uint16_t look[MAX_LOOKS]; /* their trees */
    uint32_t looks;
    bool bad;
} parser;

static uint16_t node(parser *q, tree t)
{
    if (q->nodes >= MAX_NODES) q->bad = true;
    if (q->bad) return 0;
    q->node[q->nodes] = t;
    return (uint16_t)q->nodes++;
}

static bool eat(parser *q, const char *s)
{
    size_t n = strlen(s);
    if (q->n - q->at < n || memcmp(q->p + q->at, s, n)) return false;
    q->at += n;
    return true;
}

/* \x{...} */
static uint32_t character(parser *q)
{
    uint32_t v = 0;
    if (!eat(q, "\\x{")) q->bad = true;
    while (!q->bad && q->at < q->n && q->p[q->at] != '}') {
        char c = q->p[q->at++];
        v = v * 16 + (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (!eat(q, "}")) q->bad = true;
    return v;
}

/* Takes the set (also on failure); equal sets have one number. */
static uint16_t set_node(parser *q, nb_charset *s)
{
    uint32_t i = 0;
    nb_charset_normalise(s);
    for (; i < q->sets; i++)
        if (q->set[i].n == s->n && (!s->n || !memcmp(q->set[i].r, s->r, s->n * sizeof *s->r))) break;
    if (s->oom || i == MAX_SETS) q->bad = true;
    if (q->bad || i < q->sets) nb_charset_free(s);
    else q->set[q->sets++] = *s;
    return node(q, (tree){.kind = T_SET, .set = (uint16_t)i});
}

/* Behind '['. */
static uint16_t class_node(parser *q)
{
    nb_charset s = {0};
    bool negate = eat(q, "^");
    if (eat(q, "\\n]")) {
        nb_charset_add(&s, '\n', '\n');
    } else {
        while (!q->bad && !eat(q, "]")) {
            uint32_t a = character(q), b = eat(q, "-") ? character(q) : a;
            nb_charset_add(&s, a, b);
        }
    }
    nb_charset_normalise(&s);
    if (negate) nb_charset_complement(&s);
    return set_node(q, &s);
}

static uint16_t alternatives(parser *q);

/* What stands in groups of one alone. */
static uint16_t inside(const parser *q, uint16_t x)
{
    while (!q->bad && (q->node[x].kind == T_CAT || q->node[x].kind == T_ALT) && q->node[x].child != NONE && q->node[q->node[x].child].before == NONE) x = q->node[x].child;
    return x;
}

/* Behind an opener that looks at its neighbourhood: one set, or forwards anything that has no such thing inside, and ')'. */
static uint16_t condition(parser *q, uint8_t kind)
{
    if (kind == T_NOT_AHEAD && eat(q, ")")) return node(q, (tree){.kind = T_FAIL});
    uint32_t looks = q->looks;
    uint16_t all = alternatives(q), x = inside(q, all);
    if (q->bad || !eat(q, ")") || q->looks != looks) {
        q->bad = true;
        return 0;
    }
    if (q->node[x].kind == T_SET) return node(q, (tree){.kind = kind, .set = q->node[x].set});
    if (looks == MAX_LOOKS || (kind != T_AHEAD && kind != T_NOT_AHEAD)) {
        q->bad = true;
        return 0;
    }
    q->look[q->looks++] = all;
    return node(q, (tree){.kind = kind == T_AHEAD ? T_LOOK : T_NOT_LOOK, .set = (uint16_t)looks});
}

static uint16_t atom(parser *q)
{
    static const struct { const char *open; uint8_t kind; } looks[] = {{"(?=", T_AHEAD}, {"(?!", T_NOT_AHEAD}, {"(?<=", T_BEHIND}, {"(?<!", T_NOT_BEHIND}};
    nb_charset s = {0};
    if (eat(q, "[")) return class_node(q);
    if (eat(q, "(?m:^)")) return node(q, (tree){.kind = T_LINE_START});
    if (eat(q, "(?m:$)")) return node(q, (tree){.kind = T_LINE_END});
    if (eat(q, "(?s:.)")) {
        nb_charset_add(&s, 0, 0x10FFFF);
        return set_node(q, &s);
    }
    for (size_t i = 0; i < NB_COUNT(looks); i++)
        if (eat(q, looks[i].open)) return condition(q, looks[i].kind);
    if (eat(q, "(?:") || (q->n - q->at > 1 && q->p[q->at + 1] != '?' && eat(q, "("))) {
        uint16_t x = alternatives(q);
        if (!eat(q, ")")) q->bad = true;
        return x;
    }
    uint32_t cp = character(q);
    if (!q->bad) nb_charset_add(&s, cp, cp);
    return set_node(q, &s);
}

static uint32_t number(parser *q)
{
    uint32_t v = 0;
    while (q->at < q->n && q->p[q->at] >= '0' && q->p[q->at] <= '9') {
        v = v * 10 + (uint32_t)(q->p[q->at++] - '0');
        if (v > 1000) q->bad = true, v = 0;
    }
    return v;
}

static bool may_be_empty(const parser *q, uint16_t x)
{
    const tree *t = &q->node[x];
    if (t->kind == T_SET || t->kind == T_FAIL) return false;
    if (t->kind == T_REPEAT) return t->min == 0 || may_be_empty(q, t->child);
    if (t->kind != T_CAT && t->kind != T_ALT) return true;
    bool all = true, any = false;
    for (uint16_t c = t->child; c != NONE; c = q->node[c].before) {
        bool e = may_be_empty(q, c);
        all &= e, any |= e;
    }
    return t->kind == T_CAT ? all : any;
}

/* A possessive quantifier gives nothing back. Over a set: a run that is followed by no other of the set; `?+`: one of the set,
 * or none where none follows. */
static uint16_t possessive(parser *q, uint16_t repeat)
{
    const tree r = q->node[repeat];
    uint16_t x = inside(q, r.child);
    if (q->bad || q->node[x].kind != T_SET || r.lazy || (r.max != NONE && r.max != 1)) {
        q->bad = true;
        return 0;
    }
    bool one = r.max == 1;
    q->node[r.child].before = NONE;
    uint16_t none = node(q, (tree){.kind = T_NOT_AHEAD, .set = q->node[x].set, .before = one ? r.child : repeat});
    return node(q, (tree){.kind = one ? T_ALT : T_CAT, .child = none, .before = NONE});
}

static uint16_t quantified(parser *q)
{
    uint16_t x = atom(q);
    while (!q->bad && q->at < q->n && strchr("*+?{", q->p[q->at])) {
        tree r = {.kind = T_REPEAT, .child = x, .max = NONE, .before = NONE};
        char c = q->p[q->at++];
        if (c == '+') r.min = 1;
        if (c == '?') r.max = 1;
        if (c == '{') {
            r.min = r.max = (uint16_t)number(q);
            if (eat(q, ",")) r.max = q->at < q->n && q->p[q->at] == '}' ? NONE : (uint16_t)number(q);
            if (!eat(q, "}") || r.max < r.min) q->bad = true;
        }
        r.lazy = eat(q, "?");
        if (!q->bad && r.max > 1 && may_be_empty(q, x)) q->bad = true; /* a loop over nothing has rules of its own */
        x = node(q, r);
        if (!q->bad && eat(q, "+")) x = possessive(q, x);
    }
    return x;
}

static uint16_t alternatives(parser *q)
{
    uint16_t last = NONE, branch = NONE;
    if (++q->depth > MAX_DEPTH) q->bad = true;
    for (;;) {
        uint16_t child = NONE;
        while (!q->bad && q->at < q->n && q->p[q->at] != ')' && q->p[q->at] != '|') {
            uint16_t x = quantified(q);
            /* A node stands in one list only: each is made anew for its place. */
            if (!q->bad) q->node[x].before = child, child = x;
        }
        branch = node(q, (tree){.kind = child == NONE ? T_EMPTY : T_CAT, .child = child, .before = last});
        last = branch;
        if (q->bad || !eat(q, "|")) break;
    }
    q->depth--;
    return node(q, (tree){.kind = T_ALT, .child = last, .before = NONE});
}

/* ---- the automaton ---- */

enum { P_SET, P_SPLIT, P_CONDITION, P_FAIL, P_MATCH };
typedef struct place { uint8_t kind, condition; uint16_t set, a, b; } place; /* SPLIT: a is tried first; else a follows */

typedef struct automaton {
    const parser *q;
    place *place;
    uint32_t places;
    bool back; /* the text is read from its end */
    bool bad;
} automaton;

static uint16_t add_place(automaton *m, place p)
{
    if (m->places >= MAX_PLACES) m->bad = true;
    if (m->bad) return 0;
    m->place[m->places] = p;
    return (uint16_t)m->places++;
}

static uint16_t split(automaton *m, uint16_t first, uint16_t second, bool lazy)
{
    return add_place(m, (place){.kind = P_SPLIT, .a = lazy ? second : first, .b = lazy ? first : second});
}

static uint16_t build(automaton *m, uint16_t x, uint16_t next);

/* The children up to c, the first one last. */
static uint16_t build_back(automaton *m, uint16_t c, uint16_t next)
{
    uint16_t before = m->q->node[c].before;
    return m->bad ? 0 : build(m, c, before == NONE ? next : build_back(m, before, next));
}

static uint8_t turned(uint8_t condition)
{
    switch (condition) {
    case T_AHEAD: return T_BEHIND;
    case T_NOT_AHEAD: return T_NOT_BEHIND;
    case T_BEHIND: return T_AHEAD;
    case T_NOT_BEHIND: return T_NOT_AHEAD;
    case T_LINE_START: return T_LINE_START_BACK;
    default: return T_LINE_END_BACK;
    }
}

/* The place where the tree begins, if `next` is where it goes on behind it. */
static uint16_t build(automaton *m, uint16_t x, uint16_t next)
{
    const tree *t = &m->q->node[x];
    uint16_t to = next;
    if (m->bad) return 0;
    switch (t->kind) {
    case T_EMPTY: return next;
    case T_FAIL: return add_place(m, (place){.kind = P_FAIL});
    case T_SET: return add_place(m, (place){.kind = P_SET, .set = t->set, .a = next});
    case T_CAT:
        if (m->back) return build_back(m, t->child, next);
        for (uint16_t c = t->child; c != NONE; c = m->q->node[c].before) to = build(m, c, to);
        return to;
    case T_ALT:
        to = build(m, t->child, next);
        for (uint16_t c = m->q->node[t->child].before; c != NONE; c = m->q->node[c].before) to = split(m, build(m, c, next), to, false);
        return to;
    case T_REPEAT: {
        uint16_t copies = t->min;
        if (t->max == NONE) {
            /* The loop is a place that is known before what it leads to. */
            uint16_t loop = split(m, 0, next, false), body = build(m, t->child, loop);
            if (m->bad) return 0;
            m->place[loop].a = t->lazy ? next : body;
            m->place[loop].b = t->lazy ? body : next;
            to = copies ? body : loop;
            if (copies) copies--;
        } else {
            for (uint16_t k = t->min; k < t->max && !m->bad; k++) to = split(m, build(m, t->child, to), next, t->lazy);
        }
        for (; copies && !m->bad; copies--) to = build(m, t->child, to);
        return to;
    }
    default: return add_place(m, (place){.kind = P_CONDITION, .condition = m->back ? turned(t->kind) : t->kind, .set = t->set, .a = next});
    }
}

/* ---- classes of characters ---- */

typedef struct classes { uint64_t sets[MAX_CLASSES]; uint32_t n, looks; bool bad; } classes; /* by class: the sets that hold it, and LINE_END */

static int by_value(const void *x, const void *y)
{
    uint32_t a = *(const uint32_t *)x, b = *(const uint32_t *)y;
    return a < b ? -1 : a > b;
}

static uint8_t class_of_sets(classes *k, uint64_t sets)
{
    uint32_t i = 0;
    while (i < k->n && k->sets[i] != sets) i++;
    if (i == k->n && ((k->n + 2) << k->looks) <= MAX_CLASSES) k->sets[k->n++] = sets;
    else if (i == k->n) k->bad = true;
    return (uint8_t)(i << k->looks);
}

/* Code points first .. last are of one class; `known` counts the blocks that are filled. */
static bool fill(nb_tok_dfa *d, uint32_t first, uint32_t last, uint8_t class, uint32_t *known, uint16_t whole[MAX_CLASSES])
{
    while (first <= last) {
        uint32_t b = first / BLOCK, end = b * BLOCK + BLOCK - 1;
        bool all = first % BLOCK == 0 && last >= end;
        if (all && whole[class]) {
            d->block[b] = (uint16_t)(whole[class] - 1);
        } else {
            if (first % BLOCK == 0) {
                uint8_t *wide = realloc(d->wide, ((size_t)*known + 1) * BLOCK);
                if (!wide) return false;
                d->wide = wide;
                d->block[b] = (uint16_t)(*known)++;
                if (all) whole[class] = (uint16_t)*known;
            }
            uint32_t to = last < end ? last : end;
            memset(d->wide + (size_t)d->block[b] * BLOCK + first % BLOCK, class, to - first + 1);
        }
        first = end < last ? end + 1 : last + 1;
    }
    return true;
}

static bool make_classes(nb_tok_dfa *d, const parser *q, classes *k)
{
    size_t count = 3, n = 0;
    uint32_t known = 0;
    uint16_t whole[MAX_CLASSES] = {0};
    for (uint32_t i = 0; i < q->sets; i++) count += 2 * q->set[i].n;
    uint32_t *cut = malloc(count * sizeof *cut); /* where some set begins or ends */
    if (!cut) return false;
    cut[n++] = 0, cut[n++] = '\n', cut[n++] = '\n' + 1;
    for (uint32_t i = 0; i < q->sets; i++)
        for (size_t r = 0; r < q->set[i].n; r++) cut[n++] = q->set[i].r[r].first, cut[n++] = q->set[i].r[r].last + 1;
    qsort(cut, n, sizeof *cut, by_value);
    bool ok = true;
    for (size_t i = 0; i < n && ok && !k->bad; i++) {
        uint32_t first = cut[i], last = i + 1 < n ? cut[i + 1] - 1 : 0x10FFFF;
        if (first > 0x10FFFF || (i + 1 < n && cut[i + 1] == first)) continue;
        uint64_t sets = first == '\n' ? LINE_END : 0;
        for (uint32_t s = 0; s < q->sets; s++)
            if (nb_charset_has(&q->set[s], first)) sets |= (uint64_t)1 << s;
        ok = fill(d, first, last, class_of_sets(k, sets), &known, whole);
    }
    free(cut);
    for (int c = 0; c < 128 && ok; c++) d->ascii[c] = d->wide[(size_t)d->block[0] * BLOCK + (size_t)c];
    d->looks = k->looks;
    d->end = k->n << k->looks;
    d->classes = (k->n + 1) << k->looks;
    return ok && !k->bad;
}

/* ---- states ---- */

typedef struct state { uint32_t at, n, hash, chain; uint64_t behind; } state; /* places in `list`; the next with such a hash; what the conditions may ask of the character before */

typedef struct maker {
    nb_tok_dfa *d;
    table *t;
    uint16_t first;
    const automaton *m;
    const classes *k;
    uint64_t behind_mask;
    state *state;
    uint32_t states;
    uint32_t head[HEADS]; /* states by hash, the newest first */
    uint16_t *list, *stack, *found;
    uint32_t *mark, stamp;
    size_t list_n, list_cap;
    bool bad;
} maker;

static uint64_t behind_of(const maker *g, uint32_t class) { return (class >= g->d->end ? AT_START : g->k->sets[class >> g->d->looks]) & g->behind_mask; }

/* The number of the state with these places; a new one if there is none. No places: 0. */
static uint32_t state_of(maker *g, const uint16_t *v, uint32_t n, uint64_t behind)
{
    uint32_t hash = 2166136261u ^ (uint32_t)(behind ^ behind >> 32);
    if (!n || g->bad) return 0;
    for (uint32_t i = 0; i < n; i++) hash = (hash ^ v[i]) * 16777619u;
    uint32_t *head = &g->head[hash % HEADS];
    for (uint32_t s = *head; s; s = g->state[s].chain) {
        const state *x = &g->state[s];
        if (x->hash == hash && x->n == n && x->behind == behind && !memcmp(g->list + x->at, v, n * sizeof *v)) return s;
    }
    if (g->list_n + n > g->list_cap) {
        size_t cap = 2 * (g->list_n + n);
        uint16_t *list = realloc(g->list, cap * sizeof *list);
        if (!list) {
            g->bad = true;
            return 0;
        }
        g->list = list, g->list_cap = cap;
    }
    if (g->states == MAX_STATES || g->list_n + n > MAX_LIST) {
        g->bad = true;
        return 0;
    }
    memcpy(g->list + g->list_n, v, n * sizeof *v);
    g->state[g->states] = (state){(uint32_t)g->list_n, n, hash, *head, behind};
    *head = g->states;
    g->list_n += n;
    return g->states++;
}

static bool holds(const maker *g, const place *p, uint64_t behind, uint32_t class)
{
    bool end = class >= g->d->end;
    uint64_t bit = (uint64_t)1 << p->set, ahead = end ? 0 : g->k->sets[class >> g->d->looks];
    switch (p->condition) {
    case T_AHEAD: return ahead & bit;
    case T_NOT_AHEAD: return !(ahead & bit);
    case T_BEHIND: return behind & bit;
    case T_NOT_BEHIND: return !(behind & bit);
    case T_LINE_START: return (behind & AT_START) || ((behind & LINE_END) && !end);
    case T_LINE_END: return end || (ahead & LINE_END);
    case T_LOOK: return class & bit;
    case T_NOT_LOOK: return !(class & bit);
    case T_LINE_START_BACK: return end || ((ahead & LINE_END) && !(behind & AT_START));
    default: return behind & (AT_START | LINE_END); /* T_LINE_END_BACK */
    }
}

/* The entry of the table for a state and the class of the next character. */
static uint32_t entry(maker *g, uint32_t s, uint32_t class)
{
    const state from = g->state[s];
    uint32_t found = 0;
    bool matched = false;
    g->stamp++;
    uint32_t seen = 2 * g->stamp, taken = 2 * g->stamp + 1; /* marks: visited; and the place is in `found` */
    /* Backwards every match counts, so that none ends the list, and one may begin anywhere. */
    for (uint32_t i = 0; i < from.n && (!matched || g->m->back); i++) {
        uint32_t top = 0;
        g->stack[top++] = g->list[from.at + i];
        while (top && (!matched || g->m->back)) {
            uint16_t x = g->stack[--top];
            const place *p = &g->m->place[x];
            if (g->mark[x] == seen) continue;
            g->mark[x] = seen;
            if (p->kind == P_MATCH) matched = true;
            else if (p->kind == P_SPLIT) g->stack[top++] = p->b, g->stack[top++] = p->a;
            else if (p->kind == P_CONDITION && holds(g, p, from.behind, class)) g->stack[top++] = p->a;
            else if (p->kind == P_SET && class < g->d->end && (g->k->sets[class >> g->d->looks] >> p->set & 1)) {
                uint32_t *m = &g->mark[MAX_PLACES + p->a];
                if (*m != taken) g->found[found++] = p->a;
                *m = taken;
            }
        }
    }
    if (g->m->back && class < g->d->end && g->mark[MAX_PLACES + g->first] != taken) g->found[found++] = g->first;
    uint32_t to = state_of(g, g->found, found, class < g->d->end ? behind_of(g, class) : 0);
    return (to * g->d->classes) << 1 | matched;
}

static void make_states(maker *g)
{
    nb_tok_dfa *d = g->d;
    table *t = g->t;
    for (uint32_t i = 0; i < g->m->places; i++) {
        const place *p = &g->m->place[i];
        if (p->kind != P_CONDITION) continue;
        if (p->condition == T_BEHIND || p->condition == T_NOT_BEHIND) g->behind_mask |= (uint64_t)1 << p->set;
        if (p->condition == T_LINE_START || p->condition >= T_LINE_START_BACK) g->behind_mask |= AT_START | LINE_END;
    }
    if (!g->m->back) d->looks_behind = g->behind_mask != 0;
    g->states = 1; /* state 0 leads nowhere */
    for (uint32_t c = 0; c < d->classes; c++) t->begin[c] = state_of(g, &g->first, 1, behind_of(g, c)) * d->classes;
    for (uint32_t s = 1; s < g->states && !g->bad; s++)
        for (uint32_t c = 0; c < d->classes && !g->bad; c++) t->next[s * d->classes + c] = entry(g, s, c);
}

/* Which bytes a match may begin with. */
static void find_beginnings(nb_tok_dfa *d)
{
    const table *t = &d->main;
    uint32_t bits = 1u << d->looks;
    for (uint32_t b = 0; b < 256; b++) {
        d->may_begin[b] = b >= 128;
        for (uint32_t c = 0; c < d->classes && b < 128; c++)
            for (uint32_t k = 0; k < bits; k++) d->may_begin[b] |= t->next[t->begin[c] + d->ascii[b] + k] != 0;
    }
    for (uint32_t c = 0; c < d->classes; c++)
        for (uint32_t k = 0; k < bits; k++) d->empty_at_end |= t->next[t->begin[c] + d->end + k] != 0;
}

static bool make_table(nb_tok_dfa *d, table *t, const parser *q, const classes *k, uint16_t root, bool back)
{
    automaton m = {.q = q, .place = malloc(MAX_PLACES * sizeof *m.place), .back = back};
    maker g = {.d = d, .t = t, .m = &m, .k = k};
    if (!m.place) return false;
    g.first = build(&m, root, add_place(&m, (place){.kind = P_MATCH}));
    t->next = calloc((size_t)MAX_STATES * d->classes, sizeof *t->next);
    g.state = malloc(MAX_STATES * sizeof *g.state);
    g.stack = malloc(2 * MAX_PLACES * sizeof *g.stack), g.found = malloc((MAX_PLACES + 1) * sizeof *g.found);
    g.mark = calloc(2 * MAX_PLACES, sizeof *g.mark);
    bool ok = !m.bad && t->next && g.state && g.stack && g.found && g.mark;
    if (ok) make_states(&g);
    ok &= !g.bad;
    void *less = ok ? realloc(t->next, (size_t)g.states * d->classes * sizeof *t->next) : NULL;
    if (less) t->next = less;
    free(g.state), free(g.stack), free(g.found), free(g.mark), free(g.list);
    free(m.place);
    return ok;
}

static bool make_tables(nb_tok_dfa *d, const parser *q, uint16_t root)
{
    classes k = {.looks = q->looks};
    bool ok = make_classes(d, q, &k) && make_table(d, &d->main, q, &k, root, false);
    for (uint32_t i = 0; i < q->looks && ok; i++) ok = make_table(d, &d->look[i], q, &k, q->look[i], true);
    if (ok) find_beginnings(d);
    return ok;
}

nb_tok_dfa *nb_tok_dfa_new(nb_str pattern)
{
    parser *q = calloc(1, sizeof *q);
    nb_tok_dfa *d = calloc(1, sizeof *d);
    bool ok = q && d && (q->node = malloc(MAX_NODES * sizeof *q->node)) != NULL;
    if (ok) {
        q->p = pattern.p, q->n = pattern.n;
        uint16_t root = alternatives(q);
        ok = !q->bad && q->at == q->n && make_tables(d, q, root);
    }
    for (uint32_t i = 0; q && i < q->sets; i++) nb_charset_free(&q->set[i]);
    if (q) free(q->node);
    free(q);
    if (!ok) nb_tok_dfa_free(d), d = NULL;
    return d;
}

void nb_tok_dfa_free(nb_tok_dfa *d)
{
    if (!d) return;
    free(d->wide);
    free(d->main.next);
    for (int i = 0; i < MAX_LOOKS; i++) free(d->look[i].next);
    free(d);
}

/* ---- search ---- */

enum { LOOK_AHEAD = 64 }; /* a search may look so far in vain before it takes notes */

void nb_tok_dfa_memo_free(nb_tok_dfa_memo *m)
{
    free(m->row);
    free(m->looks);
    *m = (nb_tok_dfa_memo){0};
}

static inline uint32_t class_at(const nb_tok_dfa *d, const char *p, size_t at, size_t *len)
{
    if ((uint8_t)p[at] < 0x80) {
        *len = 1;
        return d->ascii[(uint8_t)p[at]];
    }
    uint32_t cp = nb_uni_next(p + at, len);
    return d->wide[(size_t)d->block[cp / BLOCK] * BLOCK + cp % BLOCK];
}

/* For each place the bits of the conditions that hold there: one pass for each, from the end of the text. */
static bool look_everywhere(const nb_tok_dfa *d, nb_tok_dfa_memo *memo, const char *p, size_t n)
{
    size_t len;
    if (!(memo->looks = calloc(n + 1, 1))) return false;
    for (uint32_t k = 0; k < d->looks; k++) {
        const table *t = &d->look[k];
        uint32_t s = t->begin[d->end];
        for (size_t i = n;; ) {
            size_t back = i ? nb_uni_back(p, i) : 0;
            uint32_t entry = t->next[s + (i ? class_at(d, p, back, &len) : d->end)];
            memo->looks[i] |= (uint8_t)((entry & 1) << k);
            if (!i) break;
            s = entry >> 1;
            i = back;
        }
    }
    return true;
}

/* The class of the place i < n. */
static inline uint32_t class_of(const nb_tok_dfa *d, const uint8_t *looks, const char *p, size_t i, size_t *len)
{
    return class_at(d, p, i, len) + (looks ? looks[i] : 0);
}

/* Goes over the text from .. to once more, beginning in row s, and notes the rows: no match ends from there on. */
static void take_notes(const nb_tok_dfa *d, nb_tok_dfa_memo *memo, const char *p, size_t n, size_t from, size_t to, uint32_t s)
{
    size_t len;
    if (!memo->row && !memo->oom) {
        memo->row = calloc(n + 1, sizeof *memo->row);
        memo->oom = !memo->row;
    }
    for (size_t i = from; memo->row && i < to; i += len) {
        memo->row[i] = s;
        s = d->main.next[s + class_of(d, memo->looks, p, i, &len)] >> 1;
    }
}

/* End of the match that begins at `at`, SIZE_MAX: none. */
static inline size_t match(const nb_tok_dfa *d, nb_tok_dfa_memo *memo, const char *p, size_t n, size_t at)
{
    const uint32_t *next = d->main.next, *notes = memo->row;
    const uint8_t *looks = memo->looks;
    size_t len, i = at, end = SIZE_MAX, since = at; /* nothing ended from `since` on */
    uint32_t before = at && d->looks_behind ? class_at(d, p, nb_uni_back(p, at), &len) : d->end, s = d->main.begin[before], since_row = s;
    for (; s && i < n; i += len) {
        if (notes && notes[i] == s) break;
        uint32_t t = next[s + class_of(d, looks, p, i, &len)];
        s = t >> 1;
        if (t & 1) end = i, since = i + len, since_row = s;
    }
    if (s && i >= n && (next[s + d->end + (looks ? looks[n] : 0)] & 1)) return n;
    if (i > since + LOOK_AHEAD) take_notes(d, memo, p, n, since, i, since_row);
    return end;
}

int nb_tok_dfa_find(const nb_tok_dfa *d, nb_tok_dfa_memo *memo, const char *p, size_t n, size_t at, size_t *start, size_t *end)
{
    if (d->looks && !memo->looks && !look_everywhere(d, memo, p, n)) return -1;
    for (;;) {
        while (at < n && !d->may_begin[(uint8_t)p[at]]) at++;
        if (at >= n && !d->empty_at_end) return 0;
        size_t e = match(d, memo, p, n, at), len;
        if (e != SIZE_MAX) {
            *start = at, *end = e;
            return 1;
        }
        if (at >= n) return 0;
        nb_uni_next(p + at, &len);
        at += len;
    }
}
