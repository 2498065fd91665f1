/* Choosing experts: exact, best first, ties to the lower index (design.md 4; specs/architectures.md 5.5). */
#include "cpu/exec.h"
#include "cpu/math.h"

/* Is e among the n chosen already? */
static bool chosen(const int32_t *ids, int32_t n, int32_t e)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == e) return true;
    return false;
}

/* The k largest of score + bias. A NaN never wins against a number; ids are valid whatever the scores are. */
static void select_best(const float *score, const float *bias, int32_t experts, int32_t k, int32_t *ids)
{
    for (int32_t s = 0; s < k; s++) {
        int32_t best = -1;
        float top = 0.0f;
        for (int32_t e = 0; e < experts; e++) {
            float v = bias ? score[e] + bias[e] : score[e];
            if (best >= 0 && !(v > top) && !(top != top && v == v)) continue;
            if (chosen(ids, s, e)) continue;
            best = e;
            top = v;
        }
        ids[s] = best;
    }
}

static float sum16(const float *w, int32_t k)
{
    float acc[16] = {0};
    for (int32_t i = 0; i < k; i++) acc[i % 16] = acc[i % 16] + w[i];
    return nb_fold16(acc);
}

/* own: gets the row's own choice, or NULL; given: the choice to use instead, or NULL. */
static void route_row(const nb_run *r, const nb_op *op, float *logits, int32_t experts, int32_t *ids, float *w,
                      int32_t *own, const int32_t *given)
{
    int32_t k = op->u.route.k;
    if (op->u.route.f == NB_ROUTER_SOFTMAX)
        r->p->k.softmax(logits, experts);
    else if (op->u.route.f == NB_ROUTER_SIGMOID)
        for (int32_t e = 0; e < experts; e++) logits[e] = nb_sigmoid(logits[e]);
    select_best(logits, op->u.route.bias, experts, k, ids);
    if (own) memcpy(own, ids, (size_t)k * sizeof *ids);
    if (given) memcpy(ids, given, (size_t)k * sizeof *ids);
    for (int32_t s = 0; s < k; s++) w[s] = logits[ids[s]];
    if (op->u.route.f == NB_ROUTER_SOFTMAX_TOPK) r->p->k.softmax(w, k);
    if (op->u.route.normalise) {
        float sum = sum16(w, k) + 1e-20f;
        for (int32_t s = 0; s < k; s++) w[s] = w[s] / sum;
    }
    if (op->u.route.scale != 1.0f && op->u.route.scale != 0.0f)
        for (int32_t s = 0; s < k; s++) w[s] = w[s] * op->u.route.scale;
}

/* The logits slot is used up: it holds the scores afterwards. */
void nb_run_route(const nb_run *r, const nb_step *s, int lane)
{
    const nb_op *op = s->op;
    int32_t experts = r->p->g->slots[op->u.route.logits].width, k = op->u.route.k;
    int64_t from, to;
    nb_split(r->rows, lane, r->p->n_lanes, &from, &to);
    for (int64_t row = from; row < to; row++) {
        int32_t *ids = nb_slot_i32(r->p, op->u.route.ids, (int32_t)row);
        int32_t *own = r->b->routes && s->ordinal < r->b->n_routes && r->b->routes[s->ordinal]
                           ? r->b->routes[s->ordinal] + row * k
                           : NULL;
        const int32_t *given = r->b->given && s->ordinal < r->b->n_given && r->b->given[s->ordinal]
                                   ? r->b->given[s->ordinal] + row * k
                                   : NULL;
        route_row(r, op, nb_slot_f32(r->p, op->u.route.logits, (int32_t)row), experts, ids,
                  nb_slot_f32(r->p, op->u.route.weights, (int32_t)row), own, given);
    }
}
