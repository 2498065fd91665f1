/* Mixture of experts. The (row, rank) pairs of a forward are sorted by expert, so that each expert's matrices are read
 * once per forward; sums per row still go by rank.
 *
 *   1. every lane sorts the pairs (a counting sort of a few thousand numbers, the same in each lane: no barrier)
 *   2. lanes divide the tiles of gate and up of all experts that were chosen, by cost; act[position of the pair] =
 * f(gate) * up, rounded
 *   3. barrier
 *   4. lanes divide the tiles of down; for a few columns at a time all pairs are computed, then added per row in rank
 * order
 */
#include "cpu/exec.h"

enum { COLS_MIN = 128, COLS_MAX = 512, FLOATS_GOAL = 32768, TILE_COST = 4 /* rows that reading a tile is worth */ };

typedef struct experts {
    const nb_run *r;
    const nb_plan *p;
    const nb_op *op;
    const nb_bank *bank;
    int32_t pairs, k;
    int32_t *start;    /* [experts + 1] first position of each expert */
    int32_t *order;    /* [pairs] position -> pair = row * k + rank */
    int32_t *pos;      /* [pairs] pair -> position */
    uint8_t *x;        /* [rows][kp] gathered activations of one expert */
    float *y;          /* products: gate and up, or down of all pairs, FLOATS_GOAL or the least columns */
    float *sum;        /* [COLS_MAX] one row's sum */
    uint8_t *act;      /* shared: [pairs][act_stride] by position */
    size_t act_stride; /* bytes */
    int lane;
} experts;

static size_t kp_of(const nb_bank *b) { return (size_t)nb_pad32(b->proj[NB_PROJ_UP].k); }
static size_t pairs_max(const nb_plan *p, const nb_op *op) { return (size_t)p->chunk * (size_t)op->u.experts.k; }

/* Columns at a time so that `rows` rows of them stay in the cache. */
static int64_t columns_for(int64_t rows)
{
    int64_t c = FLOATS_GOAL / rows / 16 * 16;
    return c < COLS_MIN ? COLS_MIN : c > COLS_MAX ? COLS_MAX : c;
}

static size_t y_floats(size_t pairs, size_t chunk)
{
    size_t down = pairs * COLS_MIN, gate_up = 2 * chunk * COLS_MIN, goal = 2 * (size_t)FLOATS_GOAL;
    size_t n = down > gate_up ? down : gate_up;
    return n > goal ? n : goal;
}

size_t nb_experts_temp_bytes(const nb_plan *p, const nb_op *op)
{
    const nb_bank *b = op->u.experts.bank;
    size_t pairs = pairs_max(p, op), chunk = (size_t)p->chunk;
    size_t ints = NB_ALIGN_UP(((size_t)b->experts + 1 + 2 * pairs) * 4, (size_t)64);
    return ints + chunk * kp_of(b) * p->elem + (y_floats(pairs, chunk) + COLS_MAX) * 4 + 4 * 64;
}

size_t nb_experts_shared_bytes(const nb_plan *p, const nb_op *op)
{
    return pairs_max(p, op) * (size_t)nb_pad32(op->u.experts.bank->proj[NB_PROJ_UP].n) * p->elem;
}

static experts experts_new(const nb_run *r, const nb_op *op, int lane)
{
    const nb_plan *p = r->p;
    experts x = {.r = r,
                 .p = p,
                 .op = op,
                 .bank = op->u.experts.bank,
                 .k = op->u.experts.k,
                 .pairs = r->rows * op->u.experts.k,
                 .act = p->experts_act,
                 .lane = lane};
    size_t pairs = pairs_max(p, op), chunk = (size_t)p->chunk;
    uint8_t *at = p->lane[lane].temp;
    x.start = (int32_t *)(void *)at;
    x.order = x.start + x.bank->experts + 1;
    x.pos = x.order + pairs;
    at += NB_ALIGN_UP(((size_t)x.bank->experts + 1 + 2 * pairs) * 4, (size_t)64);
    x.y = (float *)(void *)at;
    x.sum = x.y + y_floats(pairs, chunk);
    x.x = (uint8_t *)(x.sum + COLS_MAX);
    x.act_stride = (size_t)nb_pad32(x.bank->proj[NB_PROJ_UP].n) * p->elem;
    return x;
}

static void sort_pairs(experts *x)
{
    int32_t n = x->bank->experts;
    memset(x->start, 0, ((size_t)n + 1) * 4);
    for (int32_t i = 0; i < x->pairs; i++) x->start[nb_slot_i32(x->p, x->op->u.experts.ids, i / x->k)[i % x->k] + 1]++;
    for (int32_t e = 0; e < n; e++) x->start[e + 1] += x->start[e];
    for (int32_t i = 0; i < x->pairs; i++) {
        int32_t e = nb_slot_i32(x->p, x->op->u.experts.ids, i / x->k)[i % x->k];
        x->pos[i] = x->start[e]++;
        x->order[x->pos[i]] = i;
    }
    for (int32_t e = n; e > 0; e--) x->start[e] = x->start[e - 1];
    x->start[0] = 0;
}

/* Tiles [t0, t1) of one projection of expert e for `rows` vectors at v; results at y[row][column - 16 t0]. */
static void project(const experts *x, int proj, int32_t e, int64_t t0, int64_t t1, const void *v, size_t v_stride,
                    int32_t rows, float *y, size_t y_stride)
{
    const struct nb_bank_proj *b = &x->bank->proj[proj];
    nb_linear_job j = {.type = b->type,
                       .n = b->n - t0 * 16,
                       .k = b->k,
                       .x = v,
                       .x_stride = v_stride,
                       .rows = rows,
                       .y = y,
                       .y_stride = y_stride,
                       .f32 = x->p->f32,
                       .multiplier = b->multiplier ? b->multiplier[e] : 1.0f,
                       .bias = b->bias ? b->bias + (int64_t)e * b->n + t0 * 16 : NULL};
    if (!nb_rows16_tile_bytes(b->type, b->k, &j.tile_bytes)) return; /* plan_new has checked it */
    j.data = x->bank->data + (uint64_t)e * x->bank->stride + b->offset + (size_t)t0 * j.tile_bytes;
    x->p->k.linear[b->type.format][x->p->f32](&j, 0, t1 - t0, x->p->lane[x->lane].linear);
}

/* The vectors of expert e's rows, one after another; a single row is read where it lies. */
static const uint8_t *gather_x(const experts *x, int32_t first, int32_t rows, size_t bytes)
{
    if (rows == 1) return nb_slot_act(x->p, x->op->u.experts.act, x->order[first] / x->k);
    for (int32_t i = 0; i < rows; i++)
        memcpy(x->x + (size_t)i * bytes, nb_slot_act(x->p, x->op->u.experts.act, x->order[first + i] / x->k), bytes);
    return x->x;
}

static void gate_up(const experts *x, int32_t e, int64_t t0, int64_t t1)
{
    int32_t first = x->start[e], rows = x->start[e + 1] - first;
    int64_t n = x->bank->proj[NB_PROJ_UP].n, tiles = columns_for(rows) / 16;
    size_t bytes = kp_of(x->bank) * x->p->elem;
    const uint8_t *v = gather_x(x, first, rows, bytes);
    bool gated = x->bank->proj[NB_PROJ_GATE].n != 0;
    for (int64_t t = t0; t < t1; t += tiles) {
        int64_t end = t + tiles < t1 ? t + tiles : t1, c0 = t * 16, c1 = end * 16 < n ? end * 16 : n;
        size_t stride = (size_t)(end - t) * 16;
        float *up = x->y, *gate = x->y + (size_t)rows * stride;
        project(x, NB_PROJ_UP, e, t, end, v, bytes, rows, up, stride);
        if (gated) project(x, NB_PROJ_GATE, e, t, end, v, bytes, rows, gate, stride);
        for (int32_t i = 0; i < rows; i++) {
            float *u = up + (size_t)i * stride;
            if (gated)
                x->p->k.glu(gate + (size_t)i * stride, u, c1 - c0, x->op->u.experts.f, u);
            else
                x->p->k.glu(u, NULL, c1 - c0, x->op->u.experts.f, u);
            nb_round_into(x->r, x->order[first + i] / x->k, u, c1 - c0, c1 == n ? nb_pad32(n) - c0 : c1 - c0,
                          x->act + (size_t)(first + i) * x->act_stride, c0);
        }
    }
}

/* Where lane boundary `cost` falls in an expert whose tiles begin at cost `at` and cost `each`. */
static int64_t tile_at(int64_t cost, int64_t at, int64_t each, int64_t tiles)
{
    int64_t t = cost <= at ? 0 : (cost - at + each - 1) / each;
    return t < tiles ? t : tiles;
}

static void first_half(const experts *x)
{
    int64_t tiles = nb_pad16(x->bank->proj[NB_PROJ_UP].n) / 16, total = 0, at = 0, from, to;
    for (int32_t e = 0; e < x->bank->experts; e++) {
        int32_t rows = x->start[e + 1] - x->start[e];
        if (rows) total += tiles * (rows + TILE_COST);
    }
    nb_split(total, x->lane, x->p->n_lanes, &from, &to);
    for (int32_t e = 0; e < x->bank->experts; e++) {
        int32_t rows = x->start[e + 1] - x->start[e];
        if (!rows) continue;
        int64_t each = rows + TILE_COST;
        int64_t t0 = tile_at(from, at, each, tiles), t1 = tile_at(to, at, each, tiles);
        if (t0 < t1) gate_up(x, e, t0, t1);
        at += tiles * each;
    }
}

/* Columns [16 t0, 16 t1) of every row: all experts' down products, then the sums. */
static void down_columns(const experts *x, int64_t t0, int64_t t1)
{
    const nb_plan *p = x->p;
    const nb_op *op = x->op;
    size_t stride = (size_t)(t1 - t0) * 16;
    int64_t n = x->bank->proj[NB_PROJ_DOWN].n, c0 = t0 * 16, cols = t1 * 16 < n ? t1 * 16 - c0 : n - c0;
    for (int32_t e = 0; e < x->bank->experts; e++) {
        int32_t first = x->start[e], rows = x->start[e + 1] - first;
        if (rows)
            project(x, NB_PROJ_DOWN, e, t0, t1, x->act + (size_t)first * x->act_stride, x->act_stride, rows,
                    x->y + (size_t)first * stride, stride);
    }
    for (int32_t row = 0; row < x->r->rows; row++) {
        const float *w = nb_slot_f32(p, op->u.experts.weights, row);
        memset(x->sum, 0, (size_t)cols * 4);
        for (int32_t s = 0; s < x->k; s++)
            p->k.fma_row(w[s], x->y + (size_t)x->pos[row * x->k + s] * stride, cols, x->sum);
        float *out = nb_slot_f32(p, op->u.experts.out, row) + c0;
        if (op->u.experts.residual != NB_NO_SLOT)
            p->k.add(x->sum, nb_slot_f32(p, op->u.experts.residual, row) + c0, cols, out);
        else
            memcpy(out, x->sum, (size_t)cols * 4);
    }
}

void nb_run_experts(const nb_run *r, const nb_step *s, int lane)
{
    experts x = experts_new(r, s->op, lane);
    sort_pairs(&x);
    first_half(&x);
    nb_lanes_barrier(r->p->lanes, lane);
    int64_t from, to, tiles = columns_for(x.pairs) / 16;
    nb_split(nb_pad16(x.bank->proj[NB_PROJ_DOWN].n) / 16, lane, r->p->n_lanes, &from, &to);
    for (int64_t t = from; t < to; t += tiles) down_columns(&x, t, t + tiles < to ? t + tiles : to);
}
