/* create/claims: what the config says about quantisation, against what the tensors are. The tensors win
 * (specs/create.md 3.1); where the two contradict, one warning names both. */
#include "create/patterns.h"
#include "create/producer.h"

#include <strings.h>

typedef struct claim {
    const char *value;   /* of the config, compared without case; a final '*' stands for any ending */
    const char *from[7]; /* what a tensor that fulfils it is */
} claim;

#define MODELOPT_FORMATS "modelopt-nvfp4", "mxfp4", "mxfp8", "fp8", "modelopt-int4", "int8"

static const claim methods[] = {
    {"modelopt*", {MODELOPT_FORMATS}},
    {"compressed-tensors", {"ct-nvfp4", "mxfp4", "mxfp8", "fp8", "ct-int", "int8"}},
    {"fp8", {"fp8", "fp8-e5m2", "mxfp8", "deepseek-mxfp4", "mxfp4"}},
    {"fbgemm_fp8", {"fp8"}},
    {"mxfp4", {"gpt-oss-mxfp4", "mxfp4"}},
    {"mxfp8", {"mxfp8"}},
    {"gptq", {"gptq"}},
    {"awq", {"awq"}},
    {"auto*", {"gptq", "awq", "ct-nvfp4", "mxfp4", "mxfp8", "fp8", "ct-int"}},
    {"intel/auto-round", {"gptq", "awq", "ct-nvfp4", "mxfp4", "mxfp8", "fp8", "ct-int"}},
};
static const claim algorithms[] = {
    {"NVFP4*", {"modelopt-nvfp4"}},
    {"W4A16_NVFP4", {"modelopt-nvfp4"}},
    {"W4A8_NVFP4_FP8", {"modelopt-nvfp4"}},
    {"MXFP8", {"mxfp8"}},
    {"MXFP4", {"mxfp4"}},
    {"W4A8_MXFP4_FP8", {"mxfp4"}},
    {"FP8*", {"fp8", "mxfp8"}},
    {"W4A16_AWQ", {"modelopt-int4"}},
    {"W4A8_AWQ", {"modelopt-int4"}},
    {"W8A*", {"int8"}},
    {"MIXED_PRECISION", {MODELOPT_FORMATS}},
};

static bool says(const char *pattern, nb_str s)
{
    size_t n = strlen(pattern);
    bool any = n && pattern[n - 1] == '*';
    if (any) n--;
    return (any ? s.n >= n : s.n == n) && !strncasecmp(s.p, pattern, n);
}

static const claim *find_claim(const claim *table, size_t n, nb_str value)
{
    for (size_t i = 0; i < n; i++)
        if (says(table[i].value, value)) return &table[i];
    return NULL;
}

static bool fulfils(const claim *c, const nb_weight_src *w)
{
    for (size_t i = 0; i < NB_COUNT(c->from) && c->from[i]; i++)
        if (!strcmp(c->from[i], w->from)) return true;
    return false;
}

/* One field of the config that names a format. No tensor at all must fulfil it: mixtures are common. */
static void check_field(nb_job *j, const nb_weight_src *first, const char *key, const claim *table, size_t n)
{
    nb_str value;
    if (!nb_json_str(nb_quant_field(j, key), &value) || !value.n) return;
    const claim *c = find_claim(table, n, value);
    for (size_t i = 0; c && i < j->n_weights; i++)
        if (j->weights[i].quantized && fulfils(c, &j->weights[i])) return;
    nb_job_warn(j, first->src_name, "the config says %s %.*s%s, the tensors are %s: the tensors win", key,
                NB_FMT_STR(value), c ? "" : " (unknown)", first->from);
}

/* ---- lists of what is not quantised ---- */

/* Stars match anything, other characters themselves. */
static bool stars_match(nb_str p, nb_str s)
{
    size_t i = 0, k = 0, star = SIZE_MAX, mark = 0;
    while (k < s.n) {
        if (i < p.n && p.p[i] == '*') {
            star = i++;
            mark = k;
        } else if (i < p.n && p.p[i] == s.p[k]) {
            i++;
            k++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            k = ++mark;
        } else {
            return false;
        }
    }
    while (i < p.n && p.p[i] == '*') i++;
    return i == p.n;
}

/* "lm_head" names the module and what lies below it, wherever it stands. */
static bool component(nb_str name, nb_str part)
{
    for (int64_t at = 0; (at = nb_str_find(name, part, (size_t)at)) >= 0; at++) {
        size_t end = (size_t)at + part.n;
        if ((!at || name.p[at - 1] == '.') && (end == name.n || name.p[end] == '.')) return true;
    }
    return false;
}

typedef struct ignored {
    nb_str v[256];       /* a longer list names its modules one by one, and nobody reads the rest for a warning */
    nb_pattern *re[256]; /* of those that begin with "re:" */
    size_t n;
} ignored;

static void add_ignored(ignored *list, nb_str s)
{
    nb_pattern *re = NULL;
    bool expression = nb_str_starts(s, "re:");
    if (expression && nb_pattern_new(&re, (nb_str){s.p + 3, s.n - 3}, NULL) != NB_OK) return; /* explains nothing */
    list->re[list->n] = re;
    list->v[list->n++] = s;
}

static void collect(const nb_job *j, ignored *list)
{
    static const char *const keys[] = {"ignore", "exclude_modules", "modules_to_not_convert", "ignored_layers"};
    for (size_t q = 0; q < j->src.n_quant; q++)
        for (size_t k = 0; k < NB_COUNT(keys); k++) {
            const nb_json *a = nb_json_get(j->src.quant[q], keys[k]);
            for (uint32_t i = 0; nb_json_is(a, NB_JSON_ARRAY) && i < a->count && list->n < NB_COUNT(list->v); i++) {
                nb_str s;
                if (nb_json_str(&a->items[i], &s) && s.n) add_ignored(list, s);
            }
        }
}

static bool is_ignored(const ignored *list, nb_str base)
{
    for (size_t i = 0; i < list->n; i++) {
        bool star = memchr(list->v[i].p, '*', list->v[i].n) != NULL;
        if (list->re[i] ? nb_pattern_match(list->re[i], base) > 0
            : star      ? stars_match(list->v[i], base)
                        : component(base, list->v[i]))
            return true;
    }
    return false;
}

static void check_ignored(nb_job *j)
{
    ignored list = {.n = 0};
    const nb_weight_src *first = NULL;
    size_t n = 0;
    collect(j, &list);
    for (size_t i = 0; list.n && i < j->n_weights; i++) {
        const nb_weight_src *w = &j->weights[i];
        nb_str base = w->src_name;
        const char *dot = base.n ? memrchr(base.p, '.', base.n) : NULL;
        if (dot) base.n = (size_t)(dot - base.p);
        if (!w->quantized || !is_ignored(&list, base)) continue;
        if (!n++) first = w;
    }
    for (size_t i = 0; i < list.n; i++) nb_pattern_free(list.re[i]);
    if (n)
        nb_job_warn(
            j, first->src_name,
            "the config lists %zu modules as not quantised, this one first, whose tensors are %s: the tensors win", n,
            first->from);
}

/* ---- ModelOpt's list of modules with an algorithm each ---- */

/* One warning for each algorithm whose modules are something else, and one for those that are not quantised. */
static void check_layers(nb_job *j)
{
    struct {
        const nb_weight_src *first;
        nb_str algorithm;
        size_t n;
    } found[NB_COUNT(algorithms) + 1] = {{0}};
    const nb_json *layers = nb_quant_field(j, "quantized_layers");
    for (size_t i = 0; nb_json_is(layers, NB_JSON_OBJECT) && i < j->n_weights; i++) {
        const nb_weight_src *w = &j->weights[i];
        nb_str algorithm;
        if (!nb_json_str(nb_json_get(nb_module_entry(layers, nb_module_of(w->src_name)), "quant_algo"), &algorithm)) continue;
        const claim *c = find_claim(algorithms, NB_COUNT(algorithms), algorithm);
        if (w->quantized && (!c || fulfils(c, w))) continue;
        size_t k = w->quantized ? (size_t)(c - algorithms) : NB_COUNT(algorithms);
        if (!found[k].n++) found[k].first = w, found[k].algorithm = algorithm;
    }
    for (size_t k = 0; k < NB_COUNT(found); k++)
        if (found[k].n)
            nb_job_warn(j, found[k].first->src_name,
                        "the config says quantized_layers.*.quant_algo %.*s of %zu modules, this one first, whose tensors "
                        "are %s: the tensors win",
                        NB_FMT_STR(found[k].algorithm), found[k].n, found[k].first->from);
}

void nb_claims_check(nb_job *j)
{
    const nb_weight_src *first = NULL;
    for (size_t i = 0; i < j->n_weights && !first; i++)
        if (j->weights[i].quantized) first = &j->weights[i];
    if (!first || j->src.gguf) return;
    check_field(j, first, "quant_method", methods, NB_COUNT(methods));
    check_field(j, first, "quant_algo", algorithms, NB_COUNT(algorithms));
    check_layers(j);
    check_ignored(j);
}
