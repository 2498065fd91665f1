/* create/schemes: which part of the config speaks about a module: the group of compressed-tensors' `config_groups`, or
 * gptqmodel's `dynamic` and AutoRound's `extra_config`. specs/create.md 3.6, 3.13, 3.14.
 *
 * A target is the exact name of a module, "re:" and an expression, or the name of a class; of several that match, exact
 * names go before expressions and those before classes, each in byte order, and of two groups with the same target the
 * later one has it. A file has no classes: every quantised matrix is a Linear, or an Embedding where its name says so.
 * A group whose targets are classes that nobody here knows may mean any module that no other group has, if it is the
 * only one. The tensors say what a module is; what they leave open, and what contradicts them, is looked up here.
 */
#include "create/patterns.h"
#include "create/producer.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_PATTERNS = 20000, MAX_NAMES = 8, NO_GROUP = UINT32_MAX };

typedef struct target {
    nb_str text;
    nb_pattern *re; /* NULL: a name or a class */
    uint32_t group; /* of config_groups, or the entry of dynamic */
    bool off;       /* of dynamic: "-:", not quantised */
} target;

typedef struct targets {
    target *v;
    size_t n, cap;
} targets;

struct nb_schemes {
    const char *file; /* where config_groups stands */
    bool ct;          /* written by compressed-tensors itself */
    nb_scheme *groups;
    size_t n_groups, n_patterns;
    uint32_t any; /* the only group of unknown classes */
    targets target, ignore, dynamic;
    const nb_json *overrides, *extra;
    nb_error failed; /* of a match, where nobody could be told */
    nb_map known;    /* answers by module; each is asked for several times */
    nb_scheme_hit *hits;
    size_t n_hits, cap_hits;
};

/* ---- reading ---- */

static nb_status add_target(nb_job *j, targets *l, nb_str text, size_t skip, bool expression, const char *where,
                            uint32_t group, nb_error *err)
{
    nb_schemes *s = j->schemes;
    nb_pattern *re = NULL;
    if (s->n_patterns >= MAX_PATTERNS)
        return nb_fail(err, NB_E_INVALID, "%s: more than %d names of modules (E_CONFIG)", where, MAX_PATTERNS);
    s->n_patterns++;
    if (!nb_arena_grow(j->arena, &l->v, l->n, &l->cap, sizeof *l->v, 16))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (expression) {
        nb_error why = {0};
        nb_status st = nb_pattern_new(&re, (nb_str){text.p + skip, text.n - skip}, &why);
        if (st != NB_OK) return nb_fail(err, st, "%s: %s (E_CONFIG)", where, why.text);
    }
    l->v[l->n++] = (target){.text = text, .re = re, .group = group};
    return NB_OK;
}

/* Names of modules and "re:" expressions of a list. What is no string is no name. */
static nb_status add_list(nb_job *j, targets *l, const nb_json *list, const char *where, uint32_t group, nb_error *err)
{
    nb_status st = NB_OK;
    nb_str s;
    for (uint32_t i = 0; nb_json_is(list, NB_JSON_ARRAY) && i < list->count && st == NB_OK; i++)
        if (nb_json_str(&list->items[i], &s) && s.n)
            st = add_target(j, l, s, 3, nb_str_starts(s, "re:"), where, group, err);
    return st;
}

static int by_rank(const void *a, const void *b)
{
    const target *x = a, *y = b;
    bool p = nb_str_has(x->text, "re:"), q = nb_str_has(y->text, "re:");
    if (p != q) return p ? 1 : -1;
    int c = nb_str_cmp(x->text, y->text);
    return c ? c : x->group > y->group ? -1 : x->group < y->group; /* the later group has it */
}

/* Names of classes begin with a capital and have no dots. */
static bool is_class(const target *t)
{
    return !t->re && t->text.p[0] >= 'A' && t->text.p[0] <= 'Z' && !memchr(t->text.p, '.', t->text.n);
}

static bool known_class(const target *t) { return nb_str_is(t->text, "Linear") || nb_str_is(t->text, "Embedding"); }

/* The group that may mean anything: without targets, or with classes that no file shows. */
static void find_any(nb_schemes *s)
{
    size_t n = 0;
    for (uint32_t g = 0; g < s->n_groups; g++) {
        bool open = !nb_json_is(nb_json_get(s->groups[g].group, "targets"), NB_JSON_ARRAY);
        for (size_t i = 0; i < s->target.n && !open; i++)
            open = s->target.v[i].group == g && is_class(&s->target.v[i]) && !known_class(&s->target.v[i]);
        if (!open || !s->groups[g].weights) continue;
        s->any = g;
        n++;
    }
    if (n != 1) s->any = NO_GROUP;
}

static nb_status read_groups(nb_job *j, const nb_json *groups, nb_error *err)
{
    nb_schemes *s = j->schemes;
    nb_status st = NB_OK;
    s->groups = NB_NEW_N(j->arena, nb_scheme, groups->count + 1);
    if (!s->groups) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < groups->count && st == NB_OK; i++) {
        char where[200];
        nb_str name = groups->keys[i];
        const nb_json *w = nb_json_get(&groups->items[i], "weights");
        s->groups[i] = (nb_scheme){.name = name, .group = &groups->items[i], .weights = nb_json_present(w) ? w : NULL};
        s->n_groups++;
        snprintf(where, sizeof where, "%s: config_groups.%.*s.targets", s->file, (int)(name.n > 100 ? 100 : name.n),
                 name.p);
        st = add_list(j, &s->target, nb_json_get(&groups->items[i], "targets"), where, i, err);
    }
    if (st == NB_OK && s->target.n) qsort(s->target.v, s->target.n, sizeof *s->target.v, by_rank);
    find_any(s);
    return st;
}

/* {"+:expression": {"bits": 8}, "-:expression": {}}; without a sign it is "+:". */
static nb_status read_dynamic(nb_job *j, const char *file, nb_error *err)
{
    nb_schemes *s = j->schemes;
    char where[100];
    nb_status st = NB_OK;
    snprintf(where, sizeof where, "%s: dynamic", file);
    for (uint32_t i = 0; i < s->overrides->count && st == NB_OK; i++) {
        nb_str key = s->overrides->keys[i];
        bool off = nb_str_starts(key, "-:"), on = nb_str_starts(key, "+:");
        st = add_target(j, &s->dynamic, key, off || on ? 2 : 0, true, where, i, err);
        if (st == NB_OK) s->dynamic.v[s->dynamic.n - 1].off = off;
    }
    return st;
}

nb_status nb_schemes_read(nb_job *j, nb_error *err)
{
    nb_status st = NB_OK;
    nb_schemes *s = j->schemes = NB_NEW(j->arena, nb_schemes);
    if (!s) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    s->any = NO_GROUP;
    if (!nb_map_init(&s->known, 256)) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->src.n_quant && st == NB_OK; i++) {
        const nb_json *q = j->src.quant[i], *groups = nb_json_get(q, "config_groups"),
                      *dynamic = nb_json_get(q, "dynamic"), *extra = nb_json_get(q, "extra_config");
        nb_str method;
        bool ct = nb_json_str(nb_json_get(q, "quant_method"), &method) && nb_str_is(method, "compressed-tensors");
        if (!s->file && (ct || nb_json_is(groups, NB_JSON_OBJECT))) {
            char where[100];
            s->file = j->src.quant_file[i];
            s->ct = ct;
            snprintf(where, sizeof where, "%s: ignore", s->file);
            if (nb_json_is(groups, NB_JSON_OBJECT)) st = read_groups(j, groups, err);
            if (st == NB_OK) st = add_list(j, &s->ignore, nb_json_get(q, "ignore"), where, 0, err);
        }
        if (nb_json_is(dynamic, NB_JSON_OBJECT) && !s->overrides && st == NB_OK) {
            s->overrides = dynamic;
            st = read_dynamic(j, j->src.quant_file[i], err);
        }
        if (nb_json_is(extra, NB_JSON_OBJECT) && !s->extra) s->extra = extra;
    }
    return st;
}

static void free_patterns(targets *l)
{
    for (size_t i = 0; i < l->n; i++) nb_pattern_free(l->v[i].re);
    l->n = 0;
}

void nb_schemes_free(nb_job *j)
{
    if (!j->schemes) return;
    free_patterns(&j->schemes->target);
    free_patterns(&j->schemes->ignore);
    free_patterns(&j->schemes->dynamic);
    nb_map_free(&j->schemes->known);
    j->schemes = NULL;
}

/* ---- names ---- */

typedef struct names {
    nb_str v[MAX_NAMES];
    size_t n, used;
    char text[MAX_NAMES * 1100];
} names;

static void add_name(names *l, const char *head, nb_str rest, const char *tail)
{
    size_t left = sizeof l->text - l->used;
    int n = snprintf(l->text + l->used, left, "%s%.*s%s", head, NB_FMT_STR(rest), tail);
    if (l->n == MAX_NAMES || n < 0 || (size_t)n >= left) return;
    nb_str s = {l->text + l->used, (size_t)n};
    for (size_t i = 0; i < l->n; i++)
        if (nb_str_eq(l->v[i], s)) return;
    l->v[l->n++] = s;
    l->used += (size_t)n;
}

/* A module under its name in the file, then as the classes of other versions of its publisher's code call it. */
static void other_names(nb_str base, names *l)
{
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "language_model.",
                                           "model."};
    nb_str rest = base;
    l->n = l->used = 0;
    add_name(l, "", base, "");
    for (size_t i = 0; i < NB_COUNT(prefixes) && rest.n == base.n; i++) {
        size_t n = strlen(prefixes[i]);
        if (nb_str_starts(base, prefixes[i])) rest = (nb_str){base.p + n, base.n - n};
    }
    for (size_t i = 0; i < NB_COUNT(prefixes); i++) add_name(l, prefixes[i], rest, "");
    add_name(l, "", rest, "");
}

/* A matrix of several is meant where one of its parts is: "qkv_proj" by "q_proj". */
static void part_names(nb_str base, names *l)
{
    static const struct {
        const char *fused, *parts[3];
    } table[] = {{"qkv_proj", {"q_proj", "k_proj", "v_proj"}}, {"gate_up_proj", {"gate_proj", "up_proj", NULL}}};
    l->n = l->used = 0;
    for (size_t i = 0; i < NB_COUNT(table); i++) {
        if (!nb_str_ends(base, table[i].fused)) continue;
        nb_str head = {base.p, base.n - strlen(table[i].fused)};
        for (int k = 0; k < 3 && table[i].parts[k]; k++) add_name(l, "", head, table[i].parts[k]);
    }
}

static bool hits(nb_schemes *s, const target *t, const names *l)
{
    for (size_t i = 0; i < l->n; i++) {
        int hit = t->re ? nb_pattern_match(t->re, l->v[i]) : nb_str_eq(t->text, l->v[i]);
        if (hit > 0) return true;
        if (hit < 0 && !s->failed.status)
            nb_fail(&s->failed, NB_E_INVALID, "'%.*s' takes too many steps on the name %.*s (E_CONFIG)",
                    (int)(t->text.n > 200 ? 200 : t->text.n), t->text.p, (int)(l->v[i].n > 200 ? 200 : l->v[i].n),
                    l->v[i].p);
    }
    return false;
}

static const target *first_hit(nb_schemes *s, const targets *t, const names *l)
{
    for (size_t i = 0; i < t->n; i++)
        if (hits(s, &t->v[i], l)) return &t->v[i];
    return NULL;
}

static const target *class_hit(const targets *t, nb_str base)
{
    bool table = nb_str_ends(base, "embed_tokens") || nb_str_ends(base, ".wte") || nb_str_ends(base, "embeddings") ||
                 nb_str_has(base, "ngram_embedding");
    for (size_t i = 0; i < t->n; i++)
        if (nb_str_is(t->v[i].text, table ? "Embedding" : "Linear")) return &t->v[i];
    return NULL;
}

/* ---- answers ---- */

static nb_scheme_hit resolve(nb_schemes *s, nb_str base)
{
    nb_scheme_hit hit = {0};
    names own, parts;
    other_names(base, &own);
    part_names(base, &parts);
    const target *t = first_hit(s, &s->target, &own);
    if (!t) t = first_hit(s, &s->target, &parts);
    hit.by_name = t != NULL;
    if (!t) t = class_hit(&s->target, base);
    uint32_t group = t ? t->group : s->any;
    if (group != NO_GROUP) hit.scheme = &s->groups[group];
    hit.ignored = first_hit(s, &s->ignore, &own) || first_hit(s, &s->ignore, &parts) || class_hit(&s->ignore, base);
    return hit;
}

nb_scheme_hit nb_scheme_of(const nb_job *j, nb_str base)
{
    nb_schemes *s = j->schemes;
    uint32_t at;
    if (!s || !s->file) return (nb_scheme_hit){0};
    if (nb_map_get(&s->known, base, &at)) return s->hits[at];
    nb_scheme_hit hit = resolve(s, base);
    if (nb_arena_grow(j->arena, &s->hits, s->n_hits, &s->cap_hits, sizeof *s->hits, 256) &&
        nb_map_put(&s->known, base, (uint32_t)s->n_hits, NULL, NULL))
        s->hits[s->n_hits++] = hit; /* else it is found again */
    return hit;
}

const nb_json *nb_quant_group(const nb_job *j, nb_str base)
{
    nb_scheme_hit hit = nb_scheme_of(j, base);
    return hit.scheme ? hit.scheme->weights : NULL;
}

const nb_json *nb_module_entry(const nb_json *map, nb_str base)
{
    names own;
    if (!nb_json_is(map, NB_JSON_OBJECT) || !map->count) return NULL;
    other_names(base, &own);
    for (size_t i = 0; i < own.n; i++) {
        const nb_json *v = nb_json_get_str(map, own.v[i]);
        if (v) return v;
    }
    return NULL;
}

const nb_json *nb_quant_override(const nb_job *j, nb_str base, bool *off)
{
    nb_schemes *s = j->schemes;
    names own;
    *off = false;
    if (!s || (!s->overrides && !s->extra)) return NULL;
    other_names(base, &own);
    const target *t = first_hit(s, &s->dynamic, &own);
    if (t) {
        *off = t->off;
        return t->off ? NULL : &s->overrides->items[t->group];
    }
    return nb_module_entry(s->extra, base);
}

/* ---- what the groups claim, against the tensors ---- */

nb_str nb_module_of(nb_str name)
{
    static const char *const ends[] = {".weight", ".weight_packed", ".qweight", "_blocks"};
    for (size_t i = 0; i < NB_COUNT(ends); i++)
        if (nb_str_ends(name, ends[i])) return (nb_str){name.p, name.n - strlen(ends[i])};
    return name;
}

/* What a tensor of one format is, in the words of a group. */
typedef struct fact {
    const char *from, *type;
    int64_t bits, group; /* group 0: not of this format */
} fact;
static const fact facts[] = {
    {"ct-nvfp4", "float", 4, 16}, {"modelopt-nvfp4", "float", 4, 0},
    {"mxfp4", "float", 4, 32},    {"mxfp8", "float", 8, 32},
    {"fp8", "float", 8, 0},       {"fp8-e5m2", "float", 8, 0},
    {"ct-int", "int", 0, 0},      {"int8", "int", 0, 0}, /* bits and groups: said where the weight is read */
};

typedef struct finding { /* one warning for all modules that show the same */
    const nb_weight_src *first;
    size_t n;
} finding;
enum { TYPE, BITS, GROUP, STRATEGY, PLAIN, N_FINDINGS };

static void note(finding *f, const nb_weight_src *w)
{
    if (!f->n++) f->first = w;
}

/* What the scales of FP8 and integers are shared by; NULL: more than one answer, or another format. */
static const char *strategy_of(const nb_weight_src *w)
{
    const nb_matrix *m = &w->m;
    bool fp8 = nb_str_starts(nb_str_of(w->from), "fp8");
    if (fp8 && m->scale_rows * m->scale_cols == 1) return m->n > 128 || m->k > 128 ? "tensor" : NULL;
    if (fp8) return m->scale_cols == 1 && m->block_rows == 1 ? "channel" : m->scale_rows > 1 ? "block" : NULL;
    if (strcmp(w->from, "ct-int") || !m->src_group) return NULL;
    return m->src_group < m->k ? "group" : NULL; /* one group in a row is a channel */
}

static void compare(const nb_json *says, const fact *is, const nb_weight_src *w, finding f[N_FINDINGS])
{
    nb_str type;
    int64_t v;
    if (nb_json_str(nb_json_get(says, "type"), &type) && !nb_str_is(type, is->type) && strcmp(is->from, "ct-int"))
        note(&f[TYPE], w);
    if (is->bits && nb_json_i64(nb_json_get(says, "num_bits"), &v) && v != is->bits) note(&f[BITS], w);
    if (is->group && nb_json_i64(nb_json_get(says, "group_size"), &v) && v > 0 && v != is->group) note(&f[GROUP], w);
    const char *strategy = strategy_of(w);
    if (strategy && nb_json_str(nb_json_get(says, "strategy"), &type) && !nb_str_is(type, strategy))
        note(&f[STRATEGY], w);
}

/* Codes in bytes with E8M0 scales are floats or integers (MXINT4): only the config tells, and it says integers. */
static nb_status check_kind(const nb_job *j, const nb_scheme *g, const nb_weight_src *w, nb_error *err)
{
    nb_str type;
    if (strcmp(w->from, "mxfp4") || !nb_json_str(nb_json_get(g->weights, "type"), &type) || !nb_str_is(type, "int"))
        return NB_OK;
    return nb_fail(err, NB_E_UNSUPPORTED,
                   "MXINT4 (tensor %.*s, and %s: config_groups.%.*s.weights.type is int) is not supported; import the "
                   "original checkpoint (E_FORMAT_UNSUPPORTED)",
                   NB_FMT_STR(w->src_name), j->schemes->file, NB_FMT_STR(g->name));
}

static void tell(nb_job *j, const nb_scheme *g, const finding f[N_FINDINGS])
{
    static const char *const keys[] = {"type", "num_bits", "group_size", "strategy"};
    const char *file = j->schemes->file;
    for (int k = TYPE; k <= STRATEGY; k++) {
        nb_buf v = {0};
        if (!f[k].n) continue;
        nb_json_write(&v, nb_json_get(g->weights, keys[k]), NB_JSON_COMPACT);
        nb_job_warn(j, f[k].first->src_name,
                    "%s: config_groups.%.*s.weights.%s is %.*s, but %zu tensors, this one first, are %s: the tensors "
                    "win",
                    file, NB_FMT_STR(g->name), keys[k], NB_FMT_STR(v), f[k].n, f[k].first->from);
        nb_buf_free(&v);
    }
    if (f[PLAIN].n)
        nb_job_warn(j, f[PLAIN].first->src_name,
                    "%s: config_groups.%.*s targets %zu modules, this one first, whose tensors are %s: the tensors win",
                    file, NB_FMT_STR(g->name), f[PLAIN].n, f[PLAIN].first->from);
}

static const fact *fact_of(const nb_weight_src *w)
{
    for (size_t i = 0; i < NB_COUNT(facts); i++)
        if (!strcmp(facts[i].from, w->from)) return &facts[i];
    return NULL;
}

nb_status nb_schemes_check(nb_job *j, nb_error *err)
{
    nb_schemes *s = j->schemes;
    finding none = {0};
    nb_status st = NB_OK;
    if (!s || !s->n_groups) return s && s->failed.status ? nb_fail(err, s->failed.status, "%s", s->failed.text) : NB_OK;
    finding(*found)[N_FINDINGS] = nb_arena_array(j->arena, s->n_groups, sizeof *found);
    if (!found) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    memset(found, 0, s->n_groups * sizeof *found);
    for (size_t i = 0; i < j->n_weights && st == NB_OK; i++) {
        const nb_weight_src *w = &j->weights[i];
        nb_scheme_hit hit = nb_scheme_of(j, nb_module_of(w->src_name));
        const fact *is = w->quantized ? fact_of(w) : NULL;
        finding *f = hit.scheme ? found[hit.scheme - s->groups] : NULL;
        if (hit.ignored || (w->quantized && !is)) continue; /* those that are ignored: nb_claims_check */
        if (is && (!hit.scheme || !hit.scheme->weights)) {
            note(&none, w);
        } else if (is) {
            compare(hit.scheme->weights, is, w, f);
            st = check_kind(j, hit.scheme, w, err);
        } else if (s->ct && hit.scheme && hit.scheme->weights && nb_str_ends(w->src_name, ".weight") && !w->experts &&
                   (hit.by_name || nb_str_ends(w->src_name, "_proj.weight"))) {
            note(&f[PLAIN], w);
        }
    }
    if (st == NB_OK && s->failed.status) st = nb_fail(err, s->failed.status, "%s", s->failed.text);
    for (size_t g = 0; g < s->n_groups && st == NB_OK; g++) tell(j, &s->groups[g], found[g]);
    if (st == NB_OK && none.n)
        nb_job_warn(j, none.first->src_name,
                    "no group of %s: config_groups targets %zu modules, this one first, whose tensors are %s: the "
                    "tensors win",
                    s->file, none.n, none.first->from);
    return st;
}
