#include "run/sample.h"

#include <math.h>
#include <stdlib.h>

/* ---- random numbers ---- */

/* A bijective mixer of 64 bits: xor-shifts and odd multipliers (the constants of the public-domain SplitMix64
 * finaliser). */
static uint64_t mix64(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double nb_random(uint64_t seed, uint64_t slot, nb_purpose purpose)
{
    uint64_t key = mix64(seed + 0x9e3779b97f4a7c15u);
    key = mix64(key ^ (slot * 0xd1342543de82ef95u + 1));
    key = mix64(key ^ (((uint64_t)purpose + 1) * 0xa0761d6478bd642fu));
    return (double)(key >> 11) * 0x1p-53;
}

/* exp for x <= 0 in double, the same on every machine (libm chooses its code by processor): 2^n * e^r with a Taylor
 * polynomial of degree 13 on |r| <= ln2/2, error below 1e-15. */
static double exp_fixed(double x)
{
    if (!(x > -700.0)) return 0.0;
    double n = floor(x * 1.4426950408889634 + 0.5);
    double r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    double y = 1.0;
    for (int i = 13; i >= 1; i--) y = 1.0 + y * r / (double)i;
    return ldexp(y, (int)n);
}

/* ---- scratch ---- */

nb_status nb_sampler_init(nb_sampler *s, int32_t vocab, nb_error *err)
{
    memset(s, 0, sizeof *s);
    if (vocab <= 0) return nb_fail(err, NB_E_USAGE, "sampler: vocabulary of %d ids", vocab);
    size_t n = (size_t)vocab;
    s->vocab = vocab;
    s->x = malloc(n * sizeof *s->x);
    s->p = malloc(n * sizeof *s->p);
    s->kept = malloc(n * sizeof *s->kept);
    s->count = calloc(n, sizeof *s->count);
    s->seen = malloc(n * sizeof *s->seen);
    if (s->x && s->p && s->kept && s->count && s->seen) return NB_OK;
    nb_sampler_free(s);
    return nb_fail(err, NB_E_NO_MEMORY, "no memory for a sampler of %d ids", vocab);
}

void nb_sampler_free(nb_sampler *s)
{
    free(s->x);
    free(s->p);
    free(s->kept);
    free(s->count);
    free(s->seen);
    memset(s, 0, sizeof *s);
}

int32_t nb_argmax(const float *logits, int32_t usable)
{
    int32_t best = -1;
    float top = -INFINITY;
    for (int32_t i = 0; i < usable; i++) {
        if (logits[i] != logits[i]) return -1;
        if (logits[i] > top || best < 0) top = logits[i], best = i;
    }
    return best;
}

double nb_log_probability(const float *logits, int32_t vocab, int32_t id)
{
    float top = -INFINITY;
    for (int32_t i = 0; i < vocab; i++)
        if (logits[i] > top) top = logits[i];
    double sum = 0;
    for (int32_t i = 0; i < vocab; i++) sum += exp_fixed((double)logits[i] - (double)top);
    return (double)logits[id] - (double)top - log(sum);
}

/* ---- steps 1 to 4: masks, bias, penalties ---- */

static void apply_bias(float *x, int32_t usable, const nb_sampling *o)
{
    bool only = false;
    for (size_t i = 0; i < o->n_bias; i++)
        if (o->bias[i].bias >= 100.0f && o->bias[i].id >= 0 && o->bias[i].id < usable) only = true;
    if (only) { /* +100: nothing else may be drawn. Mark the chosen ones by keeping their value aside */
        int32_t next = 0;
        for (;;) { /* bans all ids between two allowed ones, in ascending order of the allowed */
            int32_t allowed = usable;
            for (size_t i = 0; i < o->n_bias; i++) {
                const nb_logit_bias *b = &o->bias[i];
                if (b->bias >= 100.0f && b->id >= next && b->id < allowed) allowed = b->id;
            }
            for (; next < allowed; next++) x[next] = -INFINITY;
            if (allowed == usable) break;
            next = allowed + 1;
        }
    }
    for (size_t i = 0; i < o->n_bias; i++) {
        int32_t id = o->bias[i].id;
        float b = o->bias[i].bias;
        if (id < 0 || id >= usable || b >= 100.0f) continue;
        x[id] = b <= -100.0f ? -INFINITY : x[id] + b;
    }
}

/* Steps 3 and 4 over the last repeat_last_n tokens; leaves count[] zero again. */
static void apply_penalties(nb_sampler *s, int32_t usable, const nb_sampling *o, const int32_t *history, int32_t n)
{
    float r = o->repeat_penalty > 0 ? o->repeat_penalty : 1.0f;
    if (o->repeat_last_n == 0 || (r == 1.0f && o->presence_penalty == 0 && o->frequency_penalty == 0)) return;
    int32_t window = o->repeat_last_n < 0 || o->repeat_last_n > n ? n : o->repeat_last_n;
    int32_t distinct = 0;
    for (int32_t i = n - window; i < n; i++) {
        int32_t id = history[i];
        if (id < 0 || id >= usable) continue;
        if (s->count[id]++ == 0) s->seen[distinct++] = id;
    }
    for (int32_t i = 0; i < distinct; i++) {
        int32_t id = s->seen[i];
        float x = s->x[id];
        if (r != 1.0f) x = x < 0 ? x * r : x / r;
        x -= o->presence_penalty;
        x -= o->frequency_penalty * (float)s->count[id];
        s->x[id] = x;
        s->count[id] = 0;
    }
}

/* ---- step 6: which ids may be drawn ---- */

/* Does a come before b: larger logit first, lower id on ties. */
static bool before(const float *x, int32_t a, int32_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); }

static void sift_down(int32_t *h, int32_t n, int32_t i, const float *x)
{
    for (;;) { /* the root of the heap is the id that comes last */
        int32_t c = 2 * i + 1;
        if (c >= n) return;
        if (c + 1 < n && before(x, h[c], h[c + 1])) c++;
        if (!before(x, h[i], h[c])) return;
        int32_t t = h[i];
        h[i] = h[c], h[c] = t;
        i = c;
    }
}

/* Sorts ids so that the one that comes first is first. */
static void sort_ids(int32_t *h, int32_t n, const float *x)
{
    for (int32_t i = n / 2 - 1; i >= 0; i--) sift_down(h, n, i, x);
    for (int32_t end = n - 1; end > 0; end--) {
        int32_t t = h[0];
        h[0] = h[end], h[end] = t;
        sift_down(h, end, 0, x);
    }
}

/* The k ids that come first among 0..usable-1, unordered. Returns how many are finite. */
static int32_t take_top_k(const float *x, int32_t usable, int32_t k, int32_t *kept)
{
    int32_t n = 0;
    for (int32_t id = 0; id < usable; id++) {
        if (x[id] == -INFINITY) continue;
        if (n < k) {
            kept[n++] = id;
            if (n == k)
                for (int32_t i = k / 2 - 1; i >= 0; i--) sift_down(kept, k, i, x);
        } else if (before(x, id, kept[0])) {
            kept[0] = id;
            sift_down(kept, k, 0, x);
        }
    }
    return n;
}

static int by_id(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Cuts kept[0..n) to the nucleus of mass top_p (in double; `total` is the mass of all candidates). Candidates far below
 * the top are left unsorted while the others already hold the nucleus, which changes nothing in the result. */
static int32_t cut_top_p(nb_sampler *s, int32_t n, double total, float top_p, float top)
{
    const double need = (double)top_p * total;
    for (float depth = 6.0f;; depth *= 2) {
        int32_t m = 0; /* candidates within `depth` of the top go to the front, in their order */
        double mass = 0;
        bool all = depth > 1e6f;
        for (int32_t i = 0; i < n; i++) {
            int32_t id = s->kept[i];
            if (!all && s->x[id] < top - depth) continue;
            s->kept[i] = s->kept[m], s->kept[m++] = id;
            mass += s->p[id];
        }
        if (m < n && mass < need) continue;
        sort_ids(s->kept, m, s->x);
        double cum = 0;
        for (int32_t i = 0; i < m; i++) {
            if (cum >= need) return i;
            cum += s->p[s->kept[i]];
        }
        if (m == n) return n;
        if (cum >= need) return m;
    }
}

/* Inverse CDF in ascending id order. */
static int32_t draw(nb_sampler *s, int32_t n, double u, double *probability)
{
    qsort(s->kept, (size_t)n, sizeof *s->kept, by_id);
    double total = 0;
    for (int32_t i = 0; i < n; i++) total += s->p[s->kept[i]];
    double target = u * total, cum = 0;
    int32_t chosen = -1;
    for (int32_t i = 0; i < n; i++) {
        if (s->p[s->kept[i]] <= 0) continue;
        chosen = s->kept[i];
        cum += s->p[chosen];
        if (cum > target) break;
    }
    if (probability && chosen >= 0) *probability = s->p[chosen] / total;
    return chosen;
}

/* Steps 5 to 7 for a temperature above zero. x holds logits / T. */
static int32_t draw_candidates(nb_sampler *s, int32_t usable, const nb_sampling *o, uint64_t slot, double *probability)
{
    const float *x = s->x;
    int32_t k = o->top_k > 0 && o->top_k < usable ? o->top_k : usable;
    int32_t n = 0;
    if (k < usable)
        n = take_top_k(x, usable, k, s->kept);
    else
        for (int32_t id = 0; id < usable; id++)
            if (x[id] > -INFINITY) s->kept[n++] = id;
    if (n == 0) return -1;
    if (k < usable) qsort(s->kept, (size_t)n, sizeof *s->kept, by_id);
    float top = -INFINITY;
    for (int32_t i = 0; i < n; i++)
        if (x[s->kept[i]] > top) top = x[s->kept[i]];
    double total = 0;
    for (int32_t i = 0; i < n; i++) {
        double p = exp_fixed((double)x[s->kept[i]] - (double)top);
        s->p[s->kept[i]] = p;
        total += p;
    }
    if (o->top_p > 0 && o->top_p < 1) n = cut_top_p(s, n, total, o->top_p, top);
    if (o->min_p > 0 && o->min_p <= 1) { /* the largest p is exp(0) = 1 */
        int32_t m = 0;
        for (int32_t i = 0; i < n; i++)
            if (s->p[s->kept[i]] >= (double)o->min_p) s->kept[m++] = s->kept[i];
        n = m;
    }
    return draw(s, n, nb_random(o->seed, slot, NB_DRAW_TOKEN), probability);
}

nb_status nb_sample_logits(nb_sampler *s, const float *logits, int32_t usable, const nb_sampling *o,
                           const int32_t *history, int32_t n_history, uint64_t slot, int32_t *id, double *probability,
                           nb_error *err)
{
    if (usable <= 0 || usable > s->vocab) usable = s->vocab;
    for (int32_t i = 0; i < usable; i++) {
        if (!(logits[i] < INFINITY))
            return nb_fail(err, NB_E_NUMERIC, "the logit of id %d is %s", i,
                           logits[i] != logits[i] ? "NaN" : "infinite");
        s->x[i] = logits[i];
    }
    apply_bias(s->x, usable, o);
    for (int32_t i = 0; i < s->n_banned; i++)
        if (s->banned[i] >= 0 && s->banned[i] < usable) s->x[s->banned[i]] = -INFINITY;
    apply_penalties(s, usable, o, history, n_history);
    if (!(o->temperature >= 1e-3f)) { /* below 1e-3 as greedy: x/T would overflow */
        *id = nb_argmax(s->x, usable);
        if (*id >= 0 && s->x[*id] == -INFINITY) *id = -1;
        if (probability) *probability = 1;
    } else {
        for (int32_t i = 0; i < usable; i++) s->x[i] = s->x[i] / o->temperature;
        *id = draw_candidates(s, usable, o, slot, probability);
    }
    if (*id < 0) return nb_fail(err, NB_E_NUMERIC, "every id is masked: nothing is left to sample");
    return NB_OK;
}
