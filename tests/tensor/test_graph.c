/* Recording, growth of the arrays, and what nb_graph_check refuses, one fault at a time. */
#include "tensor/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

typedef struct sample {
    nb_arena *a;
    nb_graph g;
    nb_weight table, square, head;
    nb_bank bank;
    nb_slot_id h, act, q, k, v, qa, oa, gate, ga, r, ids, w;
    int at_norm, at_linear, at_rope, at_attention, at_glu, at_route, at_experts, at_add;
} sample;

enum { H = 64, V = 100, HEADS = 2, D = 32, E = 4, USED = 2 };
static float freq[D / 2];

static nb_weight weight(const char *name, int64_t n, int64_t k, nb_layout layout)
{
    static const uint8_t byte;
    return (nb_weight){.name = name,
                       .type = {NB_BF16, NB_DT_NONE, 32},
                       .layout = layout,
                       .n = n,
                       .k = k,
                       .data = &byte,
                       .multiplier = 1};
}

static void slots(sample *s)
{
    nb_graph *g = &s->g;
    s->h = nb_graph_slot(g, NB_SLOT_F32, H, "h");
    s->act = nb_graph_slot(g, NB_SLOT_ACT, H, "act");
    s->q = nb_graph_slot(g, NB_SLOT_F32, HEADS * D, "q");
    s->k = nb_graph_slot(g, NB_SLOT_F32, D, "k");
    s->v = nb_graph_slot(g, NB_SLOT_F32, D, "v");
    s->qa = nb_graph_slot(g, NB_SLOT_ACT, HEADS * D, "q_act");
    s->oa = nb_graph_slot(g, NB_SLOT_ACT, HEADS * D, "o_act");
    s->gate = nb_graph_slot(g, NB_SLOT_F32, H, "gate");
    s->ga = nb_graph_slot(g, NB_SLOT_ACT, H, "ffn_act");
    s->r = nb_graph_slot(g, NB_SLOT_F32, E, "router");
    s->ids = nb_graph_slot(g, NB_SLOT_I32, USED, "ids");
    s->w = nb_graph_slot(g, NB_SLOT_F32, USED, "weights");
    g->hidden = g->aux = s->h;
    g->head_in = nb_graph_slot(g, NB_SLOT_F32, H, "head_in");
    g->logits = nb_graph_slot(g, NB_SLOT_F32, V, "logits");
}

static void ops(sample *s)
{
    nb_graph *g = &s->g;
    nb_op *op = nb_graph_op(g, NB_OP_GATHER_ROWS);
    op->u.gather.table = &s->table, op->u.gather.out = s->h, op->u.gather.scale = 1;
    s->at_norm = g->n_ops;
    op = nb_graph_op(g, NB_OP_RMS_NORM);
    op->u.norm.in = s->h, op->u.norm.act = s->act, op->u.norm.width = H, op->u.norm.groups = 1;
    s->at_linear = g->n_ops;
    op = nb_graph_op(g, NB_OP_LINEAR);
    op->u.linear.act = s->act, op->u.linear.parts = 2;
    op->u.linear.part[0].w = &s->square, op->u.linear.part[0].out = s->q;
    op->u.linear.part[1].w = &s->square, op->u.linear.part[1].out = s->gate, op->u.linear.part[1].residual = s->h;
    s->at_rope = g->n_ops;
    op = nb_graph_op(g, NB_OP_ROPE);
    op->u.rope.q = s->q, op->u.rope.k = s->k, op->u.rope.v = s->v, op->u.rope.q_act = s->qa, op->u.rope.heads = HEADS,
    op->u.rope.kv_heads = 1, op->u.rope.dk = D, op->u.rope.dv = D;
    s->at_attention = g->n_ops;
    op = nb_graph_op(g, NB_OP_ATTENTION);
    op->u.attention.q_act = s->qa, op->u.attention.act = s->oa, op->u.attention.heads = HEADS,
    op->u.attention.kv_heads = 1, op->u.attention.dk = D, op->u.attention.dv = D;
    s->at_glu = g->n_ops;
    op = nb_graph_op(g, NB_OP_GLU);
    op->u.glu.gate = s->gate, op->u.glu.up = s->h, op->u.glu.act = s->ga, op->u.glu.width = H;
    s->at_route = g->n_ops;
    op = nb_graph_op(g, NB_OP_ROUTE);
    op->u.route.logits = s->r, op->u.route.ids = s->ids, op->u.route.weights = s->w, op->u.route.k = USED;
    s->at_experts = g->n_ops;
    op = nb_graph_op(g, NB_OP_EXPERTS);
    op->u.experts.act = s->act, op->u.experts.ids = s->ids, op->u.experts.weights = s->w, op->u.experts.out = s->h,
    op->u.experts.bank = &s->bank, op->u.experts.k = USED;
    s->at_add = g->n_ops;
    op = nb_graph_op(g, NB_OP_ADD);
    op->u.add.a = s->h, op->u.add.b = s->gate, op->u.add.out = s->h;
    op = nb_graph_head_op(g, NB_OP_LINEAR);
    op->u.linear.act = s->act, op->u.linear.parts = 1, op->u.linear.part[0].w = &s->head,
    op->u.linear.part[0].out = g->logits;
}

static void sample_new(sample *s)
{
    *s = (sample){.a = nb_arena_new(0)};
    s->g.arena = s->a;
    s->table = weight("table", V, H, NB_LAYOUT_ROWS1);
    s->square = weight("square", H, H, NB_LAYOUT_ROWS16);
    s->head = weight("head", V, H, NB_LAYOUT_ROWS16);
    s->bank = (nb_bank){.name = "bank", .experts = E, .data = s->square.data};
    for (int p = 0; p < NB_PROJ_COUNT; p++)
        s->bank.proj[p] = (struct nb_bank_proj){.type = s->square.type, .n = H, .k = H};
    assert_int_equal(nb_graph_rope(&s->g, &(nb_rope_spec){freq, D / 2, 1}), 0);
    assert_int_equal(nb_graph_kv(&s->g, &(nb_kv_shape){1, D, D, 0, false}), 0);
    slots(s);
    ops(s);
}

static void refused(sample *s, const char *part)
{
    nb_error err;
    assert_int_equal(nb_graph_check(&s->g, &err), NB_E_INVALID);
    print_message("%s\n", err.text);
    if (!strstr(err.text, part)) fail_msg("'%s' does not name '%s'", err.text, part);
    nb_arena_free(s->a);
}

static void test_good(void **state)
{
    (void)state;
    sample s;
    sample_new(&s);
    nb_error err;
    if (nb_graph_check(&s.g, &err) != NB_OK) fail_msg("%s", err.text);
    nb_arena_free(s.a);
}

#define BAD(part, ...)                                                                                                 \
    do {                                                                                                               \
        sample s;                                                                                                      \
        sample_new(&s);                                                                                                \
        nb_op *ops_ = s.g.ops;                                                                                         \
        (void)ops_;                                                                                                    \
        __VA_ARGS__;                                                                                                   \
        refused(&s, part);                                                                                             \
    } while (0)

static void test_faults(void **state)
{
    (void)state;
    BAD("slot out", ops_[0].u.gather.out = 99);
    BAD("gather_rows: slot out (act)", ops_[0].u.gather.out = s.act);
    BAD("table", ops_[0].u.gather.table = NULL);
    BAD("ops[1] rms_norm", ops_[s.at_norm].u.norm.width = 7);
    BAD("neither out nor act", ops_[s.at_norm].u.norm.act = NB_NO_SLOT);
    BAD("parts", ops_[s.at_linear].u.linear.parts = 5);
    BAD("too narrow", ops_[s.at_linear].u.linear.part[0].col = 1);
    BAD("slot act", ops_[s.at_linear].u.linear.act = s.h);
    BAD("slot residual", ops_[s.at_linear].u.linear.part[1].residual = s.r);
    BAD("field w", s.square.layout = NB_LAYOUT_ROWS1);
    BAD("rotary", ops_[s.at_rope].u.rope.rope = 1);
    BAD("more pairs", s.g.ropes[0].pairs = D);
    BAD("k and v", ops_[s.at_rope].u.rope.k = NB_NO_SLOT);
    BAD("no such kv layer", ops_[s.at_rope].u.rope.layer = 1);
    BAD("another shape", s.g.kv[0].dk = 16);
    BAD("heads", ops_[s.at_attention].u.attention.kv_heads = 0);
    BAD("slot gate", ops_[s.at_glu].u.glu.gate = s.r);
    BAD("field k", ops_[s.at_route].u.route.k = E + 1);
    BAD("slot ids", ops_[s.at_route].u.route.ids = s.w);
    BAD("projections", s.bank.proj[NB_PROJ_DOWN].k = 8);
    BAD("no bank", ops_[s.at_experts].u.experts.bank = NULL);
    BAD("slot b", ops_[s.at_add].u.add.b = s.r);
    BAD("unknown op", ops_[s.at_add].kind = 200);
    BAD("head[0] linear", s.g.head[0].u.linear.act = s.oa + 100);
    BAD("not allowed in the head", s.g.head[0].kind = NB_OP_ATTENTION);
    BAD("hidden", s.g.hidden = -1);
    BAD("head_in", s.g.head_in = s.r);
    BAD("width 0", s.g.slots[3].width = 0);
}

static void test_growth(void **state)
{
    (void)state;
    nb_graph g = {.arena = nb_arena_new(0)};
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(nb_graph_slot(&g, NB_SLOT_F32, i + 1, "slot"), i);
        nb_op *op = nb_graph_op(&g, NB_OP_SCALE);
        assert_int_equal(op->u.scale.in, NB_NO_SLOT);
        op->u.scale.scale = (float)i;
    }
    for (int i = 0; i < 1000; i++) assert_true(g.slots[i].width == i + 1 && g.ops[i].u.scale.scale == (float)i);
    nb_arena_free(g.arena);
    g = (nb_graph){.arena = nb_arena_new(64)}; /* memory runs out: an answer, not a crash */
    int n = 0;
    while (n < 1000 && nb_graph_op(&g, NB_OP_ADD)) n++;
    assert_true(n < 1000);
    nb_arena_free(g.arena);
}

static void test_kv_bytes(void **state)
{
    (void)state;
    nb_kv_shape s = {.heads = 3, .dk = 80, .dv = 72};
    assert_int_equal(nb_kv_k_head_bytes(&s), 64 * 96 * 2);
    assert_int_equal(nb_kv_v_head_bytes(&s), 64 * 80 * 2);
    assert_int_equal(nb_kv_block_bytes(&s), 3 * (64 * 96 + 64 * 80) * 2);
}

static void test_nonfinite(void **state)
{
    (void)state;
    float x[40] = {0};
    assert_int_equal(nb_find_nonfinite(x, 40), -1);
    x[33] = -INFINITY;
    assert_int_equal(nb_find_nonfinite(x, 40), 33);
    x[5] = NAN;
    assert_int_equal(nb_find_nonfinite(x, 40), 5);
    assert_int_equal(nb_find_nonfinite(x, 5), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_faults),
                                       cmocka_unit_test(test_growth), cmocka_unit_test(test_kv_bytes),
                                       cmocka_unit_test(test_nonfinite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
