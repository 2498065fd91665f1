/* The simple ops: each lane does its rows or its columns of the step. */
#include "cpu/exec.h"

typedef struct part {
    int32_t row0, row1;
    int64_t col0, col1;
} part; /* of a slot of `width` columns */

static part part_of(const nb_run *r, const nb_step *s, int lane, int64_t width)
{
    part q = {0, r->rows, 0, width};
    int64_t from, to;
    if (s->share == NB_SHARE_ROWS) {
        nb_split(r->rows, lane, r->p->n_lanes, &from, &to);
        q.row0 = (int32_t)from;
        q.row1 = (int32_t)to;
    } else {
        nb_split(s->tiles, lane, r->p->n_lanes, &from, &to);
        q.col0 = from * 16;
        q.col1 = to * 16 < width ? to * 16 : width;
    }
    return q;
}

static void run_gather(const nb_run *r, const nb_step *s, int lane)
{
    const nb_weight *t = s->op->u.gather.table;
    part q = part_of(r, s, lane, t->k);
    for (int32_t row = q.row0; row < q.row1; row++) {
        float *out = nb_slot_f32(r->p, s->op->u.gather.out, row);
        int32_t id = r->b->ids[row];
        if (id < 0 || id >= t->n) { /* the runner checks ids; memory is safe all the same */
            memset(out, 0, (size_t)t->k * 4);
            nb_mark_bad(r, row);
            continue;
        }
        r->p->k.gather_row(t, id, out);
        if (s->op->u.gather.scale != 1.0f && s->op->u.gather.scale != 0.0f)
            r->p->k.scale(out, t->k, s->op->u.gather.scale, out);
    }
}

static void run_round(const nb_run *r, const nb_step *s, int lane)
{
    int64_t n = r->p->g->slots[s->op->u.round.in].width;
    part q = part_of(r, s, lane, n);
    for (int32_t row = q.row0; row < q.row1; row++)
        nb_round_into(r, row, nb_slot_f32(r->p, s->op->u.round.in, row), n, nb_pad32(n),
                      nb_slot_act(r->p, s->op->u.round.act, row), 0);
}

static void run_norm(const nb_run *r, const nb_step *s, int lane)
{
    const nb_op *op = s->op;
    int64_t width = op->u.norm.width, n = width * op->u.norm.groups;
    part q = part_of(r, s, lane, n);
    for (int32_t row = q.row0; row < q.row1; row++) {
        const float *x = nb_slot_f32(r->p, op->u.norm.in, row);
        float *y = op->u.norm.out != NB_NO_SLOT ? nb_slot_f32(r->p, op->u.norm.out, row)
                                                : (float *)(void *)r->p->lane[lane].temp;
        for (int64_t i = 0; i < n; i += width) r->p->k.rms_norm(x + i, op->u.norm.w, width, op->u.norm.eps, y + i);
        if (op->u.norm.act != NB_NO_SLOT)
            nb_round_into(r, row, y, n, nb_pad32(n), nb_slot_act(r->p, op->u.norm.act, row), 0);
    }
}

static void linear_part(const nb_run *r, const nb_op *op, int i, int64_t tile0, int64_t tile1, int lane)
{
    const nb_plan *p = r->p;
    const nb_weight *w = op->u.linear.part[i].w;
    nb_slot_id out = op->u.linear.part[i].out, res = op->u.linear.part[i].residual;
    int32_t col = op->u.linear.part[i].col;
    nb_linear_job j = {.data = w->data,
                       .type = w->type,
                       .n = w->n,
                       .k = w->k,
                       .rows = r->rows,
                       .f32 = p->f32,
                       .x = p->slots[op->u.linear.act].p,
                       .x_stride = p->slots[op->u.linear.act].stride,
                       .y = nb_slot_f32(p, out, 0) + col,
                       .y_stride = p->slots[out].stride / 4,
                       .multiplier = w->multiplier,
                       .row_scale = w->row_scale,
                       .block_scale = w->block_scale,
                       .bias = w->bias};
    if (res != NB_NO_SLOT) {
        j.residual = nb_slot_f32(p, res, 0) + col;
        j.residual_stride = p->slots[res].stride / 4;
    }
    if (!nb_rows16_tile_bytes(w->type, w->k, &j.tile_bytes)) return; /* plan_new has checked it */
    p->k.linear[w->type.format][p->f32](&j, tile0, tile1, p->lane[lane].linear);
}

/* Parts split alike, or all their tiles in one line. */
static void run_linear(const nb_run *r, const nb_step *s, int lane)
{
    const nb_op *op = s->op;
    int64_t from, to, at = 0, total = 0;
    for (int i = 0; i < op->u.linear.parts; i++) total += nb_pad16(op->u.linear.part[i].w->n) / 16;
    nb_split(s->share == NB_SHARE_COLS ? s->tiles : total, lane, r->p->n_lanes, &from, &to);
    for (int i = 0; i < op->u.linear.parts; i++) {
        int64_t tiles = nb_pad16(op->u.linear.part[i].w->n) / 16;
        int64_t t0 = from - at > 0 ? from - at : 0, t1 = to - at < tiles ? to - at : tiles;
        if (t0 < t1) linear_part(r, op, i, t0, t1, lane);
        if (s->share != NB_SHARE_COLS) at += tiles;
    }
}

static void run_glu(const nb_run *r, const nb_step *s, int lane)
{
    const nb_op *op = s->op;
    int64_t width = op->u.glu.width;
    part q = part_of(r, s, lane, width);
    if (q.col0 >= q.col1) return;
    int64_t n = q.col1 - q.col0, n_pad = q.col1 == width ? nb_pad32(width) - q.col0 : n;
    float *y = (float *)(void *)r->p->lane[lane].temp;
    for (int32_t row = q.row0; row < q.row1; row++) {
        const float *up = op->u.glu.up != NB_NO_SLOT ? nb_slot_f32(r->p, op->u.glu.up, row) + q.col0 : NULL;
        r->p->k.glu(nb_slot_f32(r->p, op->u.glu.gate, row) + q.col0, up, n, op->u.glu.f, y);
        nb_round_into(r, row, y, n, n_pad, nb_slot_act(r->p, op->u.glu.act, row), q.col0);
    }
}

static void run_add(const nb_run *r, const nb_step *s, int lane)
{
    const nb_plan *p = r->p;
    part q = part_of(r, s, lane, p->g->slots[s->op->u.add.out].width);
    for (int32_t row = q.row0; row < q.row1 && q.col0 < q.col1; row++)
        p->k.add(nb_slot_f32(p, s->op->u.add.a, row) + q.col0, nb_slot_f32(p, s->op->u.add.b, row) + q.col0,
                 q.col1 - q.col0, nb_slot_f32(p, s->op->u.add.out, row) + q.col0);
}

static void run_scale(const nb_run *r, const nb_step *s, int lane)
{
    const nb_plan *p = r->p;
    const float *w = s->op->u.scale.w;
    part q = part_of(r, s, lane, p->g->slots[s->op->u.scale.out].width);
    for (int32_t row = q.row0; row < q.row1 && q.col0 < q.col1; row++) {
        const float *in = nb_slot_f32(p, s->op->u.scale.in, row);
        float *out = nb_slot_f32(p, s->op->u.scale.out, row);
        if (!w) p->k.scale(in + q.col0, q.col1 - q.col0, s->op->u.scale.scale, out + q.col0);
        for (int64_t i = q.col0; w && i < q.col1; i++) out[i] = in[i] * w[i]; /* one rounding: the same in every tier */
    }
}

static void run_softcap(const nb_run *r, const nb_step *s, int lane)
{
    const nb_plan *p = r->p;
    part q = part_of(r, s, lane, p->g->slots[s->op->u.softcap.out].width);
    for (int32_t row = q.row0; row < q.row1 && q.col0 < q.col1; row++)
        p->k.softcap(nb_slot_f32(p, s->op->u.softcap.in, row) + q.col0, q.col1 - q.col0, s->op->u.softcap.cap,
                     nb_slot_f32(p, s->op->u.softcap.out, row) + q.col0);
}

static void run_capture(const nb_run *r, const nb_step *s, int lane)
{
    int32_t i = s->op->u.capture.index;
    if (!r->b->capture || !r->b->capture[i]) return;
    int64_t n = r->p->g->slots[s->op->u.capture.in].width;
    part q = part_of(r, s, lane, n);
    for (int32_t row = q.row0; row < q.row1; row++)
        memcpy(r->b->capture[i] + row * n, nb_slot_f32(r->p, s->op->u.capture.in, row), (size_t)n * 4);
}

void nb_run_op(const nb_run *r, const nb_step *s, int lane)
{
    switch ((nb_op_kind)s->op->kind) {
    case NB_OP_GATHER_ROWS: run_gather(r, s, lane); break;
    case NB_OP_ROUND: run_round(r, s, lane); break;
    case NB_OP_RMS_NORM: run_norm(r, s, lane); break;
    case NB_OP_LINEAR: run_linear(r, s, lane); break;
    case NB_OP_ROPE: nb_run_rope(r, s, lane); break;
    case NB_OP_ATTENTION: nb_run_attention(r, s, lane); break;
    case NB_OP_GLU: run_glu(r, s, lane); break;
    case NB_OP_ADD: run_add(r, s, lane); break;
    case NB_OP_SCALE: run_scale(r, s, lane); break;
    case NB_OP_SOFTCAP: run_softcap(r, s, lane); break;
    case NB_OP_ROUTE: nb_run_route(r, s, lane); break;
    case NB_OP_EXPERTS: nb_run_experts(r, s, lane); break;
    case NB_OP_CAPTURE: run_capture(r, s, lane); break;
    case NB_OP_COUNT: break;
    }
}
