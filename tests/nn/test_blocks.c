/* Blocks as records: which ops they list, how they share slots, and that the first error stays. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nn/nn.h"

static uint8_t bytes[64];
static nb_weight matrix(int64_t n, int64_t k)
{
    return (nb_weight){.name = "w",
                       .type = nb_qtype_default(NB_BF16),
                       .layout = NB_LAYOUT_ROWS16,
                       .n = n,
                       .k = k,
                       .data = bytes,
                       .multiplier = 1};
}

static void expect(const nb_graph *g, const uint8_t *kinds, int32_t n)
{
    assert_int_equal(g->n_ops, n);
    for (int32_t i = 0; i < n; i++) assert_int_equal(g->ops[i].kind, kinds[i]);
}

/* Two layers of a model with q/k norms and windows; the second adds no slot. */
static void two_layers(void **state)
{
    (void)state;
    static const uint8_t kinds[] = {NB_OP_GATHER_ROWS, NB_OP_CAPTURE,  NB_OP_RMS_NORM,  NB_OP_LINEAR,  NB_OP_RMS_NORM,
                                    NB_OP_RMS_NORM,    NB_OP_ROPE,     NB_OP_ATTENTION, NB_OP_LINEAR,  NB_OP_RMS_NORM,
                                    NB_OP_LINEAR,      NB_OP_GLU,      NB_OP_LINEAR,    NB_OP_CAPTURE, NB_OP_RMS_NORM,
                                    NB_OP_LINEAR,      NB_OP_RMS_NORM, NB_OP_RMS_NORM,  NB_OP_ROPE,    NB_OP_ATTENTION,
                                    NB_OP_LINEAR,      NB_OP_RMS_NORM, NB_OP_LINEAR,    NB_OP_GLU,     NB_OP_LINEAR,
                                    NB_OP_CAPTURE,     NB_OP_RMS_NORM};
    float norm[64] = {0};
    nb_error err = {0};
    nb_weight e = matrix(100, 64), q = matrix(96, 64), k = matrix(48, 64), o = matrix(64, 96), gate = matrix(128, 64),
              down = matrix(64, 128);
    nb_rope_config rc = {.type = "default", .theta = 10000, .partial = 1};
    nb_graph g = {.arena = nb_arena_new(0)};
    nb_recorder r = {.g = &g, .err = &err, .f32 = true};
    nb_slot_id h = nb_nn_slot(&r, NB_SLOT_F32, 64, "h"), x = nb_nn_slot(&r, NB_SLOT_ACT, 64, "x");
    nb_attention_block a = {.q = &q,
                            .k = &k,
                            .v = &k,
                            .o = &o,
                            .q_norm = norm,
                            .k_norm = norm,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 24,
                            .scale = 0.2f,
                            .eps = 1e-6f};
    a.rope = nb_nn_rope(&r, &rc, 24, 100);
    assert_int_equal(g.ropes[a.rope].pairs, 12);
    nb_nn_embed(&r, &e, 2, h);
    nb_nn_capture(&r, h);
    int32_t slots[2];
    for (int i = 0; i < 2; i++) {
        a.window = 8 * i;
        nb_nn_norm(&r, h, norm, 1e-6f, NB_NO_SLOT, x);
        nb_nn_attention(&r, &a, x, h, h);
        nb_nn_norm(&r, h, norm, 1e-6f, NB_NO_SLOT, x);
        nb_nn_mlp(&r, &gate, &gate, &down, NB_ACT_SILU, x, h, h);
        nb_nn_capture(&r, h);
        slots[i] = g.n_slots;
    }
    nb_nn_head(&r, h, norm, 1e-6f, &e, 30);
    assert_int_equal(r.status, NB_OK);
    assert_int_equal(slots[0], slots[1]);
    expect(&g, kinds, NB_COUNT(kinds));
    assert_int_equal(g.n_head, 3);
    assert_int_equal(g.n_kv, 2);
    assert_int_equal(g.kv[1].window, 8);
    assert_true(g.kv[0].f32);
    assert_int_equal(g.n_captures, 3);
    assert_int_equal(g.ops[3].u.linear.parts, 3);
    assert_int_equal(g.ops[8].u.linear.part[0].residual, h);
    if (nb_graph_check(&g, &err) != NB_OK) fail_msg("%s", err.text);
    nb_arena_free(g.arena);
}

static void experts(void **state)
{
    (void)state;
    nb_error err = {0};
    nb_weight router = matrix(6, 64);
    nb_bank bank = {.name = "b", .experts = 6, .data = bytes, .stride = 4096};
    for (int i = 0; i < 3; i++)
        bank.proj[i] =
            (struct nb_bank_proj){.type = nb_qtype_default(NB_BF16), .n = i == 2 ? 64 : 32, .k = i == 2 ? 32 : 64};
    nb_graph g = {.arena = nb_arena_new(0)};
    nb_recorder r = {.g = &g, .err = &err};
    nb_slot_id h = nb_nn_slot(&r, NB_SLOT_F32, 64, "h"), x = nb_nn_slot(&r, NB_SLOT_ACT, 64, "x");
    nb_moe_block m = {.router = &router,
                      .bank = &bank,
                      .kind = NB_ROUTER_SOFTMAX,
                      .used = 2,
                      .normalise = true,
                      .scale = 1,
                      .f = NB_ACT_SILU};
    nb_nn_moe(&r, &m, x, h, h);
    static const uint8_t kinds[] = {NB_OP_LINEAR, NB_OP_ROUTE, NB_OP_EXPERTS};
    expect(&g, kinds, 3);
    assert_true(g.ops[1].u.route.normalise && g.ops[1].u.route.k == 2);
    assert_int_equal(g.ops[2].u.experts.residual, h);
    nb_arena_free(g.arena);
}

/* A missing rotary field, then memory: nothing is recorded after the first error. */
static void errors_stay(void **state)
{
    (void)state;
    nb_error err = {0};
    nb_rope_config rc = {.type = "yarn", .theta = 10000, .partial = 1};
    nb_graph g = {.arena = nb_arena_new(0)};
    nb_recorder r = {.g = &g, .err = &err};
    nb_weight e = matrix(100, 64);
    nb_slot_id h = nb_nn_slot(&r, NB_SLOT_F32, 64, "h");
    assert_int_equal(nb_nn_rope(&r, &rc, 24, 100), -1);
    assert_int_equal(r.status, NB_E_INVALID);
    nb_nn_embed(&r, &e, 1, h);
    nb_nn_head(&r, h, NULL, 1e-6f, &e, 0);
    assert_int_equal(g.n_ops, 0);
    assert_int_equal(nb_nn_slot(&r, NB_SLOT_F32, 64, "h"), NB_NO_SLOT);
    nb_arena_free(g.arena);
    g = (nb_graph){.arena = nb_arena_new(64)};
    r = (nb_recorder){.g = &g, .err = &err};
    assert_int_equal(nb_nn_slot(&r, NB_SLOT_F32, 64, "h"), NB_NO_SLOT);
    assert_int_equal(r.status, NB_E_NO_MEMORY);
    nb_arena_free(g.arena);
}

static void activations(void **state)
{
    (void)state;
    nb_act f;
    assert_true(nb_act_parse(&f, "silu") && f == NB_ACT_SILU);
    assert_true(nb_act_parse(&f, "gelu_pytorch_tanh") && f == NB_ACT_GELU_TANH);
    assert_true(nb_act_parse(&f, "gelu") && f == NB_ACT_GELU_ERF);
    assert_false(nb_act_parse(&f, "mish"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_layers), cmocka_unit_test(experts),
                                       cmocka_unit_test(errors_stay), cmocka_unit_test(activations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
