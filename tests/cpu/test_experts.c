/* Routing: exact selection, ties to the lower index, all three kinds against double. Experts: the sorted, lane-split
 * form against one row and one rank at a time, bits. */
#include "cpu/util.h"

#include "cpu/math.h"

enum { ROWS = 40, EXPERTS = 12, USED = 4, WIDE = 64, MID = 96 };

static nb_weight table_of(const float *data, int64_t n, int64_t k)
{
    return (nb_weight){.name = "table",
                       .type = {NB_F32, NB_DT_NONE, 32},
                       .layout = NB_LAYOUT_ROWS1,
                       .n = n,
                       .k = k,
                       .data = (const uint8_t *)data,
                       .bytes = (uint64_t)(n * k * 4),
                       .multiplier = 1};
}

typedef struct rig {
    nb_graph g;
    nb_weight logits_table, x_table;
    nb_slot_id logits, ids, weights, x, act, out;
    nb_op *route, *experts;
} rig;

static void rig_new(rig *r, nb_arena *a, const float *logits, const float *x, const nb_bank *bank)
{
    *r = (rig){.g = {.arena = a}};
    nb_graph *g = &r->g;
    r->logits_table = table_of(logits, ROWS, EXPERTS);
    r->x_table = table_of(x, ROWS, WIDE);
    r->logits = nb_graph_slot(g, NB_SLOT_F32, EXPERTS, "logits");
    r->ids = nb_graph_slot(g, NB_SLOT_I32, USED, "ids");
    r->weights = nb_graph_slot(g, NB_SLOT_F32, USED, "weights");
    r->x = nb_graph_slot(g, NB_SLOT_F32, WIDE, "x");
    r->act = nb_graph_slot(g, NB_SLOT_ACT, WIDE, "act");
    r->out = nb_graph_slot(g, NB_SLOT_F32, WIDE, "out");
    nb_op *op = nb_graph_op(g, NB_OP_GATHER_ROWS);
    op->u.gather.table = &r->logits_table, op->u.gather.out = r->logits, op->u.gather.scale = 1;
    op = nb_graph_op(g, NB_OP_GATHER_ROWS);
    op->u.gather.table = &r->x_table, op->u.gather.out = r->x, op->u.gather.scale = 1;
    op = nb_graph_op(g, NB_OP_ROUND);
    op->u.round.in = r->x, op->u.round.act = r->act;
    op = nb_graph_op(g, NB_OP_ROUTE);
    op->u.route.logits = r->logits, op->u.route.ids = r->ids, op->u.route.weights = r->weights, op->u.route.k = USED;
    if (bank) {
        op = nb_graph_op(g, NB_OP_EXPERTS);
        op->u.experts.act = r->act, op->u.experts.ids = r->ids, op->u.experts.weights = r->weights,
        op->u.experts.out = r->out, op->u.experts.bank = bank, op->u.experts.k = USED;
    }
    r->route = &g->ops[3];
    r->experts = bank ? &g->ops[4] : NULL;
    g->hidden = g->aux = r->x;
    g->head_in = g->logits = r->x;
}

/* Runs the rows [from, from + n); ids and weights [n][USED], out [n][WIDE] where wanted. */
static void rig_run(rig *r, const char *tier, int lanes, bool f32, int32_t from, int32_t n, int32_t *ids,
                    float *weights, float *out)
{
    nb_plan *p;
    nb_error err;
    nb_plan_options o = {.chunk = ROWS, .threads = lanes, .tier = tier, .f32 = f32};
    if (nb_cpu_backend.plan_new(&p, &r->g, &o, &err) != NB_OK) fail_msg("%s", err.text);
    int32_t row[ROWS], zero[ROWS] = {0};
    uint8_t bad[1] = {0};
    for (int32_t i = 0; i < n; i++) row[i] = from + i;
    nb_batch b = {.rows = n,
                  .ids = row,
                  .seq = zero,
                  .slot = row,
                  .n_seqs = 1,
                  .bad = bad,
                  .routes = (int32_t *const[]){ids},
                  .n_routes = 1};
    nb_cpu_backend.forward(p, &b);
    if (weights) memcpy(weights, nb_cpu_backend.slot(p, r->weights), (size_t)n * USED * 4);
    if (out) memcpy(out, nb_cpu_backend.slot(p, r->out), (size_t)n * WIDE * 4);
    nb_cpu_backend.plan_free(p);
}

static void check_route(nb_router f, const float *logits, const float *bias, bool normalise, float scale,
                        const int32_t *ids, const float *weights)
{
    for (int32_t row = 0; row < ROWS; row++) {
        double p[EXPERTS], sum = 0, top = 0;
        const float *x = logits + row * EXPERTS;
        bool used[EXPERTS] = {false};
        for (int e = 0; e < EXPERTS; e++) sum += exp((double)x[e]);
        for (int e = 0; e < EXPERTS; e++)
            p[e] = f == NB_ROUTER_SOFTMAX   ? exp((double)x[e]) / sum
                   : f == NB_ROUTER_SIGMOID ? 1 / (1 + exp(-(double)x[e]))
                                            : (double)x[e];
        for (int s = 0; s < USED; s++) {
            int best = -1;
            for (int e = 0; e < EXPERTS; e++) {
                double v = p[e] + (bias ? (double)bias[e] : 0);
                if (!used[e] && (best < 0 || v > p[best] + (bias ? (double)bias[best] : 0))) best = e;
            }
            assert_int_equal(ids[row * USED + s], best);
            used[best] = true;
            top += f == NB_ROUTER_SOFTMAX_TOPK ? exp(p[best]) : p[best];
        }
        for (int s = 0; s < USED; s++) {
            double w = p[ids[row * USED + s]];
            if (f == NB_ROUTER_SOFTMAX_TOPK)
                w = exp(w) / top;
            else if (normalise)
                w /= top;
            assert_true(fabs((double)weights[row * USED + s] - w * (double)scale) < 2e-6 * fabs(w) + 1e-9);
        }
    }
}

static void test_route(void **state)
{
    UNUSED_STATE;
    nb_arena *a = nb_arena_new(0);
    static float logits[ROWS * EXPERTS], x[ROWS * WIDE], bias[EXPERTS], weights[ROWS * USED];
    static int32_t ids[ROWS * USED];
    /* Multiples of 1/4: many exact ties, which every tier must break alike. */
    for (int i = 0; i < ROWS * EXPERTS; i++) logits[i] = (float)rnd_below(9) * 0.25f - 1.0f;
    for (int e = 0; e < EXPERTS; e++) bias[e] = (float)rnd_below(3) * 0.5f;
    rig r;
    rig_new(&r, a, logits, x, NULL);
    for (int f = NB_ROUTER_SOFTMAX; f <= NB_ROUTER_SIGMOID; f++) {
        for (int k = 0; k < 4; k++) {
            bool biased = k & 1 && f == NB_ROUTER_SIGMOID;
            r.route->u.route.f = (nb_router)f, r.route->u.route.normalise = k & 2,
            r.route->u.route.scale = k & 1 ? 2.5f : 1.0f, r.route->u.route.bias = biased ? bias : NULL;
            rig_run(&r, k & 2 ? "c" : NULL, 1 + k % 3, false, 0, ROWS, ids, weights, NULL);
            check_route((nb_router)f, logits, biased ? bias : NULL, k & 2, k & 1 ? 2.5f : 1.0f, ids, weights);
        }
    }
    for (int i = 0; i < EXPERTS; i++) logits[i] = i == 3 ? 1.0f : NAN; /* ids stay valid and distinct whatever comes */
    r.route->u.route.f = NB_ROUTER_SOFTMAX_TOPK;
    r.route->u.route.bias = NULL;
    rig_run(&r, NULL, 1, false, 0, 1, ids, weights, NULL);
    assert_int_equal(ids[0], 3);
    for (int s = 1; s < USED; s++) assert_int_equal(ids[s], s - 1);
    nb_arena_free(a);
}

/* Choices given from outside are used, with weights from the row's own scores; the row's own choice is still reported.
 */
static void test_given_routes(void **state)
{
    UNUSED_STATE;
    nb_arena *a = nb_arena_new(0);
    static float logits[ROWS * EXPERTS], x[ROWS * WIDE];
    for (int i = 0; i < EXPERTS; i++) logits[i] = (float)i;
    rig r;
    rig_new(&r, a, logits, x, NULL);
    r.route->u.route.f = NB_ROUTER_SOFTMAX_TOPK;
    nb_plan *p;
    nb_error err;
    nb_plan_options o = {.chunk = 1, .threads = 1};
    if (nb_cpu_backend.plan_new(&p, &r.g, &o, &err) != NB_OK) fail_msg("%s", err.text);
    int32_t zero[1] = {0}, own[USED], given[USED] = {2, 0, 7, 1};
    uint8_t bad[1] = {0};
    nb_batch b = {.rows = 1, .ids = zero, .seq = zero, .slot = zero, .n_seqs = 1, .bad = bad};
    b.routes = (int32_t *const[]){own}, b.n_routes = 1;
    b.given = (const int32_t *const[]){given}, b.n_given = 1;
    nb_cpu_backend.forward(p, &b);
    const float *w = nb_cpu_backend.slot(p, r.weights);
    double sum = exp(2) + exp(0) + exp(7) + exp(1);
    for (int s = 0; s < USED; s++) {
        assert_int_equal(own[s], EXPERTS - 1 - s);
        assert_true(fabs((double)w[s] - exp(given[s]) / sum) < 1e-6);
    }
    nb_cpu_backend.plan_free(p);
    nb_arena_free(a);
}

/* ---- experts ---- */

static void fill_bank(nb_bank *b, nb_arena *a, bool gated)
{
    static const int64_t n[3] = {MID, MID, WIDE}, k[3] = {WIDE, WIDE, MID};
    uint64_t at = 0, bytes;
    *b = (nb_bank){.name = "bank", .experts = EXPERTS};
    for (int p = gated ? 0 : 1; p < 3; p++) {
        nb_qtype t = {NB_BF16, NB_DT_NONE, 32};
        float *m = NB_NEW_N(a, float, EXPERTS), *bias = NB_NEW_N(a, float, (size_t)(EXPERTS * n[p]));
        for (int e = 0; e < EXPERTS; e++) m[e] = 0.5f + (float)e * 0.125f;
        for (int64_t i = 0; i < EXPERTS * n[p]; i++) bias[i] = 0.1f * rnd_unit();
        b->proj[p] =
            (struct nb_bank_proj){.type = t, .n = n[p], .k = k[p], .offset = at, .multiplier = m, .bias = bias};
        assert_true(nb_rows16_bytes(t, n[p], k[p], &bytes));
        at += bytes;
    }
    b->stride = NB_ALIGN_UP(at, 4096);
    uint8_t *data = nb_arena_alloc_aligned(a, EXPERTS * b->stride, 4096);
    for (uint64_t i = 0; i < EXPERTS * b->stride; i += 2) nb_store_u16(data + i, nb_bf16_encode(0.3f * rnd_unit()));
    b->data = data;
}

static void one(const nb_kernels *k, const nb_bank *b, int proj, int e, const void *x, bool f32, float *y)
{
    static uint8_t scratch[1 << 20] __attribute__((aligned(4096)));
    const struct nb_bank_proj *q = &b->proj[proj];
    nb_linear_job j = {.data = b->data + (uint64_t)e * b->stride + q->offset,
                       .type = q->type,
                       .n = q->n,
                       .k = q->k,
                       .x = x,
                       .x_stride = 512,
                       .rows = 1,
                       .y = y,
                       .y_stride = 512,
                       .multiplier = q->multiplier[e],
                       .bias = q->bias + (int64_t)e * q->n,
                       .f32 = f32};
    assert_true(nb_rows16_tile_bytes(q->type, q->k, &j.tile_bytes) && k->linear_scratch(q->k, 1) <= sizeof scratch);
    k->linear[q->type.format][f32](&j, 0, (q->n + 15) / 16, scratch);
}

static void expected(const nb_kernels *k, const nb_bank *b, nb_act f, bool f32, const float *x, const int32_t *ids,
                     const float *w, float *y)
{
    float xa[128], ma[128], up[MID], gate[MID], down[WIDE];
    for (int i = 0; i < WIDE; i++) y[i] = 0;
    for (int s = 0; s < USED; s++) {
        if (f32)
            k->round_row_f32(x, WIDE, WIDE, xa);
        else
            k->round_row(x, WIDE, WIDE, (uint16_t *)xa);
        one(k, b, NB_PROJ_UP, ids[s], xa, f32, up);
        if (b->proj[NB_PROJ_GATE].n)
            one(k, b, NB_PROJ_GATE, ids[s], xa, f32, gate), k->glu(gate, up, MID, f, up);
        else
            k->glu(up, NULL, MID, f, up);
        if (f32)
            k->round_row_f32(up, MID, MID, ma);
        else
            k->round_row(up, MID, MID, (uint16_t *)ma);
        one(k, b, NB_PROJ_DOWN, ids[s], ma, f32, down);
        for (int i = 0; i < WIDE; i++) y[i] = fmaf(w[s], down[i], y[i]);
    }
    for (int i = 0; i < WIDE; i++) y[i] = y[i] + x[i];
}

static void check_experts(bool gated, bool f32)
{
    nb_arena *a = nb_arena_new(0);
    nb_bank bank;
    fill_bank(&bank, a, gated);
    static float logits[ROWS * EXPERTS], x[ROWS * WIDE], out[ROWS * WIDE], weights[ROWS * USED], want[WIDE];
    static int32_t ids[ROWS * USED];
    for (int i = 0; i < ROWS * EXPERTS; i++)
        logits[i] = rnd_unit() * 3 - (i % EXPERTS == 5 ? 100.0f : 0.0f); /* expert 5 is never chosen */
    for (int i = 0; i < ROWS * WIDE; i++) x[i] = 2 * rnd_unit();
    rig r;
    rig_new(&r, a, logits, x, &bank);
    r.route->u.route.normalise = true;
    r.experts->u.experts.f = gated ? NB_ACT_SILU : NB_ACT_RELU2;
    r.experts->u.experts.residual = r.x;
    nb_kernels k;
    nb_kernels_init(&k, NB_TIER_C);
    for (int t = 0; t < NB_TIER_COUNT; t++) {
        if (!nb_tier_available((nb_tier)t)) continue;
        static const int32_t starts[] = {0, 0, 3, 39}, counts[] = {ROWS, 1, 17, 1};
        for (int c = 0; c < 12; c++) {
            int32_t from = starts[c % 4], n = counts[c % 4];
            rig_run(&r, nb_tier_name((nb_tier)t), 1 + c / 4, f32, from, n, ids, weights, out);
            for (int32_t row = 0; row < n; row++) {
                expected(&k, &bank, r.experts->u.experts.f, f32, x + (from + row) * WIDE, ids + row * USED,
                         weights + row * USED, want);
                if (differ(want, out + row * WIDE, WIDE) >= 0)
                    fail_msg("%s, %d lanes, %d rows: row %d differs", nb_tier_name((nb_tier)t), 1 + c / 4, n, row);
            }
        }
    }
    nb_arena_free(a);
}

static void test_experts(void **state)
{
    UNUSED_STATE;
    for (int i = 0; i < 4; i++) check_experts(i & 1, i & 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_route), cmocka_unit_test(test_given_routes),
                                       cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
