/* text/jinja_str: strings with origins, and the builders that make them. */
#include "text/jinja.h"

#include <stdlib.h>

enum { GROW_FROM = 256 }; /* strings of this size and more get room to grow when they are concatenated */

uint32_t nbj_hash(nb_str s) { return (uint32_t)nb_hash_bytes(s.p, s.n, 7); }

/* Code points of valid UTF-8. */
static uint32_t count_chars(const char *p, size_t n)
{
    uint32_t c = 0;
    for (size_t i = 0; i < n; i++) c += ((uint8_t)p[i] & 0xC0) != 0x80;
    return c;
}

jstr *nbj_const_str(nb_arena *a, const char *p, size_t n, bool trusted)
{
    jstr *s = NB_NEW(a, jstr);
    char *copy = s ? nb_arena_dup(a, p ? p : "", n) : NULL;
    if (!copy) return NULL;
    *s = (jstr){.p = copy, .n = (uint32_t)n, .chars = count_chars(p, n), .trusted = trusted};
    return s;
}

void *nbj_copy(nb_arena *a, const void *p, size_t count, size_t size)
{
    void *out = nb_arena_array(a, count, size);
    if (out && count) memcpy(out, p, count * size);
    return out;
}

/* A string of one origin over bytes that stay valid. */
static jstr *new_str(jctx *j, const char *p, size_t n, bool trusted)
{
    if (n >= UINT32_MAX / 2) {
        nbj_fail(j, "MemoryError", "a string of %zu bytes", n);
        return NULL;
    }
    jstr *s = nbj_alloc(j, sizeof *s);
    if (s) *s = (jstr){.p = p, .n = (uint32_t)n, .chars = UINT32_MAX, .trusted = trusted};
    return s;
}

/* No copy is made. */
jval nbj_str_ref(jctx *j, const char *p, size_t n, bool trusted)
{
    jstr *s = new_str(j, n ? p : "", n, trusted);
    return s ? jv_str(s) : jv(J_ERR);
}

jval nbj_cstr(jctx *j, const char *s) { return nbj_str_ref(j, s, strlen(s), true); }

jval nbj_str(jctx *j, const char *p, size_t n, bool trusted)
{
    char *copy = nbj_alloc(j, n + 1);
    if (!copy) return jv(J_ERR);
    memcpy(copy, p, n);
    return nbj_str_ref(j, copy, n, trusted);
}

/* Counted once per string. */
uint32_t nbj_chars(const jstr *s)
{
    if (s->chars == UINT32_MAX)
        ((jstr *)s)->chars = count_chars(s->p, s->n); /* strings of the template are counted when parsed */
    return s->chars;
}

uint32_t nbj_offset(const jstr *s, uint32_t ch)
{
    uint32_t total = nbj_chars(s);
    if (ch >= total) return s->n;
    if (total == s->n) return ch;
    uint32_t i = 0;
    for (; ch; ch--) {
        i++;
        while (((uint8_t)s->p[i] & 0xC0) == 0x80) i++;
    }
    return i;
}

/* ---- origins ---- */

bool nbj_trusted(const jstr *s)
{
    if (!s->nruns) return s->trusted || s->n == 0;
    for (uint32_t i = 0; i < s->nruns; i++) {
        if (!s->runs[i].trusted) return false;
    }
    return true;
}

/* The origin of the byte at off. */
bool nbj_trusted_at(const jstr *s, uint32_t off)
{
    if (!s->nruns) return s->trusted;
    uint32_t lo = 0, hi = s->nruns - 1; /* the first run that ends behind off; the last one takes the rest */
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (s->runs[mid].end <= off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return s->runs[lo].trusted;
}

/* Appends the origins of s[from..to), shifted to begin at `base`, to runs[*n]; neighbours of one origin become one run.
 */
static void add_runs(jrun *runs, uint32_t *n, uint32_t base, const jstr *s, uint32_t from, uint32_t to)
{
    if (to == from) return;
    for (uint32_t i = 0; i < (s->nruns ? s->nruns : 1); i++) {
        uint32_t end = s->nruns && s->runs[i].end < to ? s->runs[i].end : to;
        if (s->nruns && i + 1 == s->nruns) end = to;
        if (end <= from) continue;
        bool trusted = s->nruns ? s->runs[i].trusted : s->trusted;
        if (*n && runs[*n - 1].trusted == trusted)
            runs[*n - 1].end = base + (end - from);
        else
            runs[(*n)++] = (jrun){base + (end - from), trusted};
        if (end == to) return;
    }
}

/* Copies runs into the arena; one run is the string's own origin. */
static bool set_runs(jctx *j, jstr *out, const jrun *runs, uint32_t n)
{
    out->nruns = 0;
    if (n <= 1) {
        if (n) out->trusted = runs[0].trusted;
        return true;
    }
    jrun *copy = nbj_array(j, n, sizeof *copy);
    if (!copy) return false;
    memcpy(copy, runs, n * sizeof *runs);
    out->runs = copy;
    out->nruns = n;
    return true;
}

/* Shares the bytes; copies only the runs that lie inside. */
jval nbj_slice(jctx *j, const jstr *s, uint32_t from, uint32_t to)
{
    if (from > to) from = to;
    if (from == 0 && to == s->n) return jv_str(s);
    jstr *out = new_str(j, s->p + from, to - from, s->trusted);
    if (!out) return jv(J_ERR);
    out->markup = s->markup;
    if (s->chars == s->n) out->chars = out->n;
    if (!s->nruns) return jv_str(out);
    jrun *runs = nbj_array(j, s->nruns, sizeof *runs);
    if (!runs) return jv(J_ERR);
    uint32_t n = 0;
    add_runs(runs, &n, 0, s, from, to);
    out->runs = runs;
    out->nruns = n > 1 ? n : 0;
    out->trusted = n ? runs[0].trusted : true;
    return jv_str(out);
}

/* Bytes of a followed by b: in the room behind a where a ends there, else in new memory with room to grow. */
static bool join_bytes(jctx *j, jstr *out, const jstr *a, const jstr *b)
{
    jgrow *g = a->grow;
    uint32_t n = a->n + b->n;
    if (g && a->p + a->n == g->p + g->used && g->cap - g->used >= b->n) {
        memcpy(g->p + g->used, b->p, b->n);
        g->used += b->n;
        out->p = a->p;
        out->grow = g;
        return true;
    }
    if (!nbj_step(j, n / 64)) return false;
    uint32_t cap = n >= GROW_FROM ? n + n : n;
    char *p = nbj_alloc(j, (size_t)cap + 1);
    if (!p) return false;
    memcpy(p, a->p, a->n);
    memcpy(p + a->n, b->p, b->n);
    out->p = p;
    if (cap == n) return true;
    g = nbj_alloc(j, sizeof *g);
    if (!g) return false;
    *g = (jgrow){.used = n, .cap = cap, .p = p};
    out->grow = g;
    return true;
}

/* Origins of a followed by those of b, behind a's own where there is room. A longer last run does not disturb the
 * strings that share the array. */
static bool join_runs(jctx *j, jstr *out, const jstr *a, const jstr *b)
{
    jgrow *g = out->grow;
    uint32_t more = b->nruns ? b->nruns : 1, n = 0;
    bool shared = g && g == a->grow && a->nruns && a->runs == g->runs && a->nruns == g->nruns;
    if (shared && more <= g->capruns - g->nruns) {
        add_runs(g->runs, &g->nruns, a->n, b, 0, b->n);
        out->runs = g->runs;
        out->nruns = g->nruns;
        return true;
    }
    size_t need = (size_t)(a->nruns ? a->nruns : 1) + more, cap = g ? 2 * need : need;
    jrun *runs = nbj_array(j, cap, sizeof *runs);
    if (!runs || !nbj_step(j, need / 16)) return false;
    add_runs(runs, &n, 0, a, 0, a->n);
    add_runs(runs, &n, a->n, b, 0, b->n);
    out->runs = runs;
    out->nruns = n;
    if (g) g->runs = runs, g->nruns = n, g->capruns = (uint32_t)cap;
    return true;
}

/* Python's +. Origins of both parts are kept. */
jval nbj_concat(jctx *j, const jstr *a, const jstr *b)
{
    if (a->markup != b->markup) { /* Markup escapes what it is added to */
        jval e = nbj_escape(j, a->markup ? b : a);
        if (j_bad(e)) return e;
        if (a->markup)
            b = e.u.s;
        else
            a = e.u.s;
    }
    if (!b->n) return jv_str(a);
    if (!a->n) return jv_str(b);
    if (!nbj_step(j, 1 + b->n / 64)) return jv(J_ERR);
    jstr *out = new_str(j, NULL, (size_t)a->n + b->n, a->trusted);
    if (!out || !join_bytes(j, out, a, b)) return jv(J_ERR);
    out->markup = a->markup;
    if (a->chars != UINT32_MAX && b->chars != UINT32_MAX) out->chars = a->chars + b->chars;
    if (!a->nruns && !b->nruns && a->trusted == b->trusted) return jv_str(out);
    if (!join_runs(j, out, a, b)) return jv(J_ERR);
    out->trusted = out->runs[0].trusted;
    if (out->nruns == 1) out->nruns = 0;
    return jv_str(out);
}

/* The same text as markup or not; a copy of the header only. */
jval nbj_as_markup(jctx *j, jval s, bool markup)
{
    if (j_bad(s) || s.u.s->markup == markup) return s;
    jstr *out = nbj_alloc(j, sizeof *out);
    if (!out) return jv(J_ERR);
    *out = *s.u.s;
    out->markup = markup;
    return jv_str(out);
}

/* Markup of plain text. One origin for all of it: what replaces a character is not the template's choice. */
jval nbj_escape(jctx *j, const jstr *s)
{
    jbuf *b = nbj_push(j);
    if (!b) return jv(J_ERR);
    bool trusted = nbj_trusted(s);
    for (uint32_t i = 0; i < s->n; i++) {
        const char *r = NULL;
        switch (s->p[i]) {
        case '&': r = "&amp;"; break;
        case '<': r = "&lt;"; break;
        case '>': r = "&gt;"; break;
        case '\'': r = "&#39;"; break;
        case '"': r = "&#34;"; break;
        default: break;
        }
        if (r)
            nbj_add(j, b, r, strlen(r), trusted);
        else
            nbj_add(j, b, s->p + i, 1, trusted);
    }
    return nbj_as_markup(j, nbj_pop(j), true);
}

/* Byte offset of part in s at or after from, -1 where it is not. */
int64_t nbj_find(nb_str s, nb_str part, size_t from)
{
    if (from > s.n || part.n > s.n - from) return -1;
    if (!part.n) return (int64_t)from;
    const char *hit = memmem(s.p + from, s.n - from, part.p, part.n);
    return hit ? hit - s.p : -1;
}

/* ---- builders ---- */

/* The next builder of the pool, empty. Buffers are used again, so macros in a loop do not allocate. */
jbuf *nbj_push(jctx *j)
{
    if (j->failed) return NULL;
    if (j->npool == j->cappool) {
        uint32_t cap = j->cappool ? 2 * j->cappool : 16;
        jbuf **p = realloc(j->pool, cap * sizeof *p);
        if (!p) return nbj_oom(j), NULL;
        memset(p + j->cappool, 0, (cap - j->cappool) * sizeof *p);
        j->pool = p;
        j->cappool = cap;
    }
    if (!j->pool[j->npool] && !(j->pool[j->npool] = calloc(1, sizeof(jbuf)))) return nbj_oom(j), NULL;
    jbuf *b = j->pool[j->npool++];
    b->n = b->nruns = 0;
    b->odd = NULL;
    return b;
}

void nbj_drop(jctx *j)
{
    if (j->npool) j->npool--;
}

/* Room for more bytes within the limits of output and memory. */
static bool grow(jctx *j, jbuf *b, size_t more)
{
    size_t need = (size_t)b->n + more;
    if (need > j->lim.output_bytes)
        return nbj_fail(j, "MemoryError", "more than %llu bytes of text", (unsigned long long)j->lim.output_bytes),
               false;
    if (need <= b->cap) return true;
    size_t cap = b->cap ? b->cap : 512;
    while (cap < need) cap *= 2;
    j->bufbytes += cap - b->cap;
    if (j->bufbytes + nb_arena_used(j->a) > j->lim.memory_bytes) return nbj_oom(j), false;
    char *p = realloc(b->p, cap);
    if (!p) return nbj_oom(j), false;
    b->p = p;
    b->cap = (uint32_t)cap;
    return true;
}

static bool grow_runs(jctx *j, jbuf *b, uint32_t more)
{
    if (b->nruns + more <= b->capruns) return true;
    uint32_t cap = b->capruns ? b->capruns : 16;
    while (cap < b->nruns + more) cap *= 2;
    jrun *r = realloc(b->runs, cap * sizeof *r);
    if (!r) return nbj_oom(j), false;
    b->runs = r;
    b->capruns = cap;
    return true;
}

/* Bytes of one origin. */
void nbj_add(jctx *j, jbuf *b, const char *p, size_t n, bool trusted)
{
    /* Most text continues the run before it and fits. */
    if (b && b->nruns && b->runs[b->nruns - 1].trusted == trusted && n && n <= b->cap - b->n &&
        b->n + n <= j->lim.output_bytes && !j->failed) {
        memcpy(b->p + b->n, p, n);
        b->n += (uint32_t)n;
        b->runs[b->nruns - 1].end = b->n;
        return;
    }
    if (!b || !n || j->failed || !grow(j, b, n)) return;
    bool extend = b->nruns && b->runs[b->nruns - 1].trusted == trusted;
    if (!extend && !grow_runs(j, b, 1)) return;
    memcpy(b->p + b->n, p, n);
    b->n += (uint32_t)n;
    if (!extend) b->runs[b->nruns++].trusted = trusted;
    b->runs[b->nruns - 1].end = b->n;
}

/* Bytes from..to of s with their origins. */
void nbj_add_part(jctx *j, jbuf *b, const jstr *s, uint32_t from, uint32_t to)
{
    if (from >= to) return;
    if (!s->nruns) {
        nbj_add(j, b, s->p + from, to - from, s->trusted);
        return;
    }
    if (!b || j->failed || !grow(j, b, to - from) || !grow_runs(j, b, s->nruns)) return;
    memcpy(b->p + b->n, s->p + from, to - from);
    add_runs(b->runs, &b->nruns, b->n, s, from, to);
    b->n += to - from;
}

void nbj_add_str(jctx *j, jbuf *b, const jstr *s) { nbj_add_part(j, b, s, 0, s->n); }

void nbj_add_cp(jctx *j, jbuf *b, uint32_t cp, bool trusted)
{
    char out[4];
    nbj_add(j, b, out, nb_utf8_encode(cp, out), trusted);
}

/* A character `count` times. */
void nbj_fill_cp(jctx *j, jbuf *b, uint32_t cp, uint64_t count, bool trusted)
{
    if (!nbj_step(j, count / 16)) return;
    if (count > j->lim.output_bytes) {
        nbj_fail(j, "MemoryError", "a string of %llu characters", (unsigned long long)count);
        return;
    }
    while (count-- && !j->failed) nbj_add_cp(j, b, cp, trusted);
}

bool nbj_joins(jctx *j, const jbuf *b)
{
    if (!b->odd) return true;
    j->at = b->odd;
    nbj_fail(j, "TypeError", "sequence item: expected str instance, %s found", b->odd_type);
    return false;
}

/* The text of the last builder as a string; the builder goes back to the pool. */
jval nbj_pop(jctx *j)
{
    if (!j->npool) return nbj_oom(j);
    jbuf *b = j->pool[--j->npool];
    if (j->failed || !nbj_joins(j, b)) return jv(J_ERR);
    jval v = nbj_str(j, b->p ? b->p : "", b->n, true);
    if (j_bad(v) || !set_runs(j, (jstr *)v.u.s, b->runs, b->nruns)) return jv(J_ERR);
    return v;
}
