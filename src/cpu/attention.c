/* Attention over blocks of 256 absolute slots (design.md 4). One source for all tiers: the kernels do the arithmetic,
 * this file the order.
 *
 * An item is a few query rows of one sequence and one kv head: `rows` = queries x heads that share the kv head, so that
 * K and V are read once for all of them. Prefill: a lane takes whole items and walks their blocks. Few items (decode):
 * the lanes take (item, block) units, leave m, l and o of each in shared memory, and then combine them in ascending
 * order; the sums are the same either way, since a block's part never depends on another block.
 */
#include "cpu/exec.h"
#include "cpu/math.h"

enum { BLOCK = 256, ITEM_ROWS = 48, SPLIT_ROWS = 16, SPLIT_ITEMS = 4 /* per lane */, WAVE_BLOCKS = 8 };

typedef struct item {
    int32_t row0, queries; /* batch rows */
    int32_t kvh;
    const nb_kv_view *view;
    int32_t block0, block1; /* absolute blocks that some row sees */
} item;

/* What all items of an op share. */
typedef struct attn {
    const nb_run *r;
    const nb_plan *p;
    const nb_op *op;
    const nb_kv_shape *shape;
    int32_t group; /* heads per kv head */
    int64_t dkp, dvp;
    float *q, *s, *ob, *o;  /* lane scratch: [rows][dkp], [rows][BLOCK], [rows][dvp] twice */
    float *m, *l, *mb, *lb; /* [rows] */
} attn;

static int32_t item_rows_max(int32_t group) { return group > ITEM_ROWS ? group : ITEM_ROWS; }
static int32_t split_rows_max(int32_t group) { return group > SPLIT_ROWS ? group : SPLIT_ROWS; }

size_t nb_attention_temp_bytes(const nb_plan *p, const nb_op *op)
{
    (void)p;
    size_t rows = (size_t)item_rows_max(op->u.attention.heads / op->u.attention.kv_heads);
    return rows * 4 * ((size_t)nb_pad32(op->u.attention.dk) + BLOCK + 2 * (size_t)nb_pad16(op->u.attention.dv) + 4) +
           8 * 64;
}

void nb_attention_shared_floats(const nb_plan *p, const nb_op *op, size_t *partial, size_t *state)
{
    size_t row = (size_t)nb_pad16(op->u.attention.dv) + 2;
    size_t items = (size_t)SPLIT_ITEMS * (size_t)p->n_lanes,
           rows = (size_t)split_rows_max(op->u.attention.heads / op->u.attention.kv_heads);
    *state = items * rows * row;
    *partial = *state * WAVE_BLOCKS;
}

static attn attn_new(const nb_run *r, const nb_op *op, int lane)
{
    attn a = {.r = r,
              .p = r->p,
              .op = op,
              .shape = &r->p->g->kv[op->u.attention.layer],
              .group = op->u.attention.heads / op->u.attention.kv_heads,
              .dkp = nb_pad32(op->u.attention.dk),
              .dvp = nb_pad16(op->u.attention.dv)};
    size_t rows = (size_t)item_rows_max(a.group);
    float *at = (float *)(void *)r->p->lane[lane].temp;
    a.q = at, at += rows * (size_t)a.dkp;
    a.s = at, at += rows * BLOCK;
    a.ob = at, at += rows * (size_t)a.dvp;
    a.o = at, at += rows * (size_t)a.dvp;
    a.m = at, at += rows;
    a.l = at, at += rows;
    a.mb = at, at += rows;
    a.lb = at;
    return a;
}

/* Queries of one item, starting at row0: rows of one sequence, at most `most`. */
static int32_t run_length(const nb_batch *b, int32_t rows, int32_t row0, int32_t most)
{
    int32_t n = 1;
    while (n < most && row0 + n < rows && b->seq[row0 + n] == b->seq[row0]) n++;
    return n;
}

static int32_t lowest_key(const attn *a, int32_t slot)
{
    int32_t w = a->shape->window;
    return w && slot >= w ? slot - w + 1 : 0;
}

static item item_at(const attn *a, int32_t row0, int32_t queries, int32_t kvh)
{
    const nb_batch *b = a->r->b;
    item it = {row0, queries, kvh, &b->kv[b->seq[row0]][a->op->u.attention.layer], 0, 0};
    int32_t last = b->slot[row0 + queries - 1];
    it.block0 = lowest_key(a, b->slot[row0]) / BLOCK;
    it.block1 = last / BLOCK + 1;
    return it;
}

static void load_q(const attn *a, const item *it)
{
    const nb_plan *p = a->p;
    for (int32_t i = 0; i < it->queries; i++) {
        const uint8_t *act = nb_slot_act(p, a->op->u.attention.q_act, it->row0 + i) +
                             (size_t)it->kvh * (size_t)a->group * (size_t)a->dkp * p->elem;
        float *q = a->q + (size_t)i * (size_t)a->group * (size_t)a->dkp;
        if (p->f32)
            memcpy(q, act, (size_t)a->group * (size_t)a->dkp * 4);
        else
            p->k.widen((const uint16_t *)(const void *)act, a->group * a->dkp, q);
    }
}

/* Keys of the block that query i sees, relative to the block: [lo, hi). */
static bool seen(const attn *a, const item *it, int32_t i, int32_t block, int32_t *lo, int32_t *hi)
{
    int32_t slot = a->r->b->slot[it->row0 + i], base = block * BLOCK;
    *lo = lowest_key(a, slot) - base;
    *hi = slot + 1 - base;
    if (*lo < 0) *lo = 0;
    if (*hi > BLOCK) *hi = BLOCK;
    return *lo < *hi;
}

/* One cache block's K or V of the item's kv head. */
static const uint8_t *cache_k(const attn *a, const item *it, int32_t slot)
{
    int32_t at = it->view->ring ? slot % it->view->ring : slot;
    return it->view->block[at / NB_KV_BLOCK] + (size_t)it->kvh * nb_kv_k_head_bytes(a->shape);
}

static const uint8_t *cache_v(const attn *a, const item *it, int32_t slot)
{
    int32_t at = it->view->ring ? slot % it->view->ring : slot;
    return it->view->block[at / NB_KV_BLOCK] + (size_t)a->shape->heads * nb_kv_k_head_bytes(a->shape) +
           (size_t)it->kvh * nb_kv_v_head_bytes(a->shape);
}

/* End of the cache block that slot j of an absolute block lies in, or `to` if that comes first. */
static int32_t piece_end(int32_t j, int32_t to)
{
    int32_t end = j / NB_KV_BLOCK * NB_KV_BLOCK + NB_KV_BLOCK;
    return end < to ? end : to;
}

/* While one piece is read, the next one is fetched: K after K, then the first V; V after V. */
static void scores(const attn *a, const item *it, int32_t block, int32_t from, int32_t to)
{
    size_t group = a->p->f32 ? 2048 : 1024, tile = (size_t)a->dkp / 32 * group;
    int32_t base = block * BLOCK;
    nb_attn_job job = {.tile_stride = tile,
                       .groups = (int32_t)(a->dkp / 32),
                       .x = a->q,
                       .x_stride = (size_t)a->dkp,
                       .rows = it->queries * a->group,
                       .acc_stride = BLOCK};
    for (int32_t r = 0; r < job.rows; r++) memset(a->s + (size_t)r * BLOCK + from, 0, (size_t)(to - from) * 4);
    for (int32_t j = from, end; j < to; j = end) {
        end = piece_end(j, to);
        job.w = cache_k(a, it, base + j) + (size_t)(j % NB_KV_BLOCK / 16) * tile;
        job.ahead = end < to ? cache_k(a, it, base + end) : cache_v(a, it, base + from);
        job.tiles = (end - j) / 16;
        job.acc = a->s + j;
        a->p->k.attn_tiles[a->p->f32](&job);
    }
}

static void weigh_values(const attn *a, const item *it, int32_t block, int32_t from, int32_t to)
{
    size_t group = a->p->f32 ? 2048 : 1024;
    int32_t base = block * BLOCK, rows = it->queries * a->group;
    nb_attn_job job = {.tile_stride = 2 * group,
                       .tiles = (int32_t)(a->dvp / 16),
                       .x_stride = BLOCK,
                       .rows = rows,
                       .acc = a->ob,
                       .acc_stride = (size_t)a->dvp};
    memset(a->ob, 0, (size_t)rows * (size_t)a->dvp * 4);
    for (int32_t j = from, end; j < to; j = end) {
        end = piece_end(j, to);
        job.w = cache_v(a, it, base + j) + (size_t)(j % NB_KV_BLOCK / 32) * group;
        job.ahead = end < to                 ? cache_v(a, it, base + end)
                    : block + 1 < it->block1 ? cache_k(a, it, base + BLOCK)
                                             : job.w;
        job.groups = (end - j) / 32;
        job.x = a->s + j;
        a->p->k.attn_tiles[a->p->f32](&job);
    }
    /* Groups that nobody sees would add +0. It changes nothing but a -0, which only float32 mode can reach (by flushing
     * a cancelled sum). */
    if (a->p->f32 && to < BLOCK)
        for (int64_t i = 0; i < rows * a->dvp; i++) a->ob[i] = a->ob[i] + 0.0f;
}

/* m_b, l_b and o_b of every row of the item in one block; l_b of a row that sees nothing there is -1. */
static void attend_block(const attn *a, const item *it, int32_t block)
{
    int32_t from = BLOCK, to = 0, lo, hi;
    for (int32_t i = 0; i < it->queries; i++) {
        if (!seen(a, it, i, block, &lo, &hi)) continue;
        from = lo / 32 * 32 < from ? lo / 32 * 32 : from;
        to = NB_ALIGN_UP(hi, 32) > to ? NB_ALIGN_UP(hi, 32) : to;
    }
    if (from < to) scores(a, it, block, from, to);
    for (int32_t r = 0; r < it->queries * a->group; r++) {
        float *s = a->s + (size_t)r * BLOCK;
        if (seen(a, it, r / a->group, block, &lo, &hi)) {
            a->p->k.attn_softmax(s, from, to, lo, hi, a->op->u.attention.scale, a->op->u.attention.softcap, a->p->f32,
                                 &a->mb[r], &a->lb[r]);
        } else {
            if (from < to) memset(s + from, 0, (size_t)(to - from) * 4);
            a->mb[r] = 0.0f;
            a->lb[r] = -1.0f;
        }
    }
    if (from < to) weigh_values(a, it, block, from, to);
}

static void start_row(const attn *a, const item *it, int32_t r, float *m, float *l, float *o)
{
    const float *sinks = a->op->u.attention.sinks;
    *m = sinks ? sinks[it->kvh * a->group + r % a->group] : -__builtin_inff();
    *l = sinks ? 1.0f : 0.0f;
    memset(o, 0, (size_t)a->dvp * 4);
}

static void merge_row(const attn *a, float mb, float lb, const float *ob, float *m, float *l, float *o)
{
    if (lb == -1.0f) return;
    float top = *m > mb ? *m : mb;
    float x = nb_exp(*m - top), y = nb_exp(mb - top);
    *l = fmaf(*l, x, lb * y);
    *m = top;
    a->p->k.attn_merge(o, ob, a->dvp, x, y);
}

/* o / l into the row's columns. ob is free by now. */
static void finish_row(const attn *a, const item *it, int32_t r, float l, const float *o)
{
    const nb_plan *p = a->p;
    int32_t row = it->row0 + r / a->group, dv = a->op->u.attention.dv;
    int64_t col = (int64_t)(it->kvh * a->group + r % a->group) * dv;
    float *y = a->ob;
    if (l == 0.0f)
        memset(y, 0, (size_t)dv * 4);
    else
        p->k.attn_divide(o, dv, l, y);
    if (a->op->u.attention.out != NB_NO_SLOT)
        memcpy(nb_slot_f32(p, a->op->u.attention.out, row) + col, y, (size_t)dv * 4);
    if (a->op->u.attention.act != NB_NO_SLOT)
        nb_round_into(a->r, row, y, dv, dv, nb_slot_act(p, a->op->u.attention.act, row), col);
}

static void whole_item(const attn *a, const item *it)
{
    int32_t rows = it->queries * a->group;
    load_q(a, it);
    for (int32_t r = 0; r < rows; r++) start_row(a, it, r, &a->m[r], &a->l[r], a->o + (size_t)r * (size_t)a->dvp);
    for (int32_t b = it->block0; b < it->block1; b++) {
        attend_block(a, it, b);
        for (int32_t r = 0; r < rows; r++)
            merge_row(a, a->mb[r], a->lb[r], a->ob + (size_t)r * (size_t)a->dvp, &a->m[r], &a->l[r],
                      a->o + (size_t)r * (size_t)a->dvp);
    }
    for (int32_t r = 0; r < rows; r++) finish_row(a, it, r, a->l[r], a->o + (size_t)r * (size_t)a->dvp);
}

/* ---- few items: units of (item, block), in waves of blocks that fit the shared memory ---- */

static float *unit_row(const attn *a, float *base, int64_t unit, int32_t r)
{
    return base + (size_t)(unit * split_rows_max(a->group) + r) * ((size_t)a->dvp + 2);
}

/* The queries of item n: every (run, kv head) pair in order. */
static item item_number(const attn *a, int32_t n, int32_t most)
{
    int32_t row = 0;
    for (;;) {
        int32_t q = run_length(a->r->b, a->r->rows, row, most);
        if (n < a->shape->heads) return item_at(a, row, q, n);
        n -= a->shape->heads;
        row += q;
    }
}

static int32_t count_items(const attn *a, int32_t most, int32_t *first, int32_t *last)
{
    int32_t n = 0;
    *first = INT32_MAX;
    *last = 0;
    for (int32_t row = 0; row < a->r->rows;) {
        int32_t q = run_length(a->r->b, a->r->rows, row, most);
        item it = item_at(a, row, q, 0);
        *first = it.block0 < *first ? it.block0 : *first;
        *last = it.block1 > *last ? it.block1 : *last;
        n += a->shape->heads;
        row += q;
    }
    return n;
}

static void split_unit(const attn *a, const item *it, int32_t block, int64_t unit)
{
    if (block < it->block0 || block >= it->block1) return;
    load_q(a, it);
    attend_block(a, it, block);
    for (int32_t r = 0; r < it->queries * a->group; r++) {
        float *to = unit_row(a, a->p->attn.partial, unit, r);
        to[0] = a->mb[r];
        to[1] = a->lb[r];
        memcpy(to + 2, a->ob + (size_t)r * (size_t)a->dvp, (size_t)a->dvp * 4);
    }
}

/* Rows of all items go round the lanes; the same lane keeps a row through all waves. */
static void split_combine(const attn *a, int32_t items, int32_t most, int32_t wave, int32_t end, bool start,
                          bool finish, int lane)
{
    int64_t turn = 0;
    for (int32_t n = 0; n < items; n++) {
        item it = item_number(a, n, most);
        for (int32_t r = 0; r < it.queries * a->group; r++) {
            if (turn++ % a->p->n_lanes != lane) continue;
            float *state = unit_row(a, a->p->attn.state, n, r);
            if (start) start_row(a, &it, r, &state[0], &state[1], state + 2);
            for (int32_t b = wave; b < end; b++) {
                if (b < it.block0 || b >= it.block1) continue;
                const float *part = unit_row(a, a->p->attn.partial, (int64_t)n * WAVE_BLOCKS + (b - wave), r);
                merge_row(a, part[0], part[1], part + 2, &state[0], &state[1], state + 2);
            }
            if (finish) finish_row(a, &it, r, state[1], state + 2);
        }
    }
}

static void split_items(const attn *a, int32_t items, int32_t most, int32_t first, int32_t last, int lane)
{
    const nb_plan *p = a->p;
    for (int32_t wave = first; wave < last; wave += WAVE_BLOCKS) {
        int32_t end = wave + WAVE_BLOCKS < last ? wave + WAVE_BLOCKS : last;
        int32_t blocks = end - wave;
        int64_t from, to;
        /* A lane's units are neighbours: blocks of one head, so that what it fetches ahead is its own. */
        nb_split((int64_t)items * blocks, lane, p->n_lanes, &from, &to);
        for (int64_t u = from; u < to; u++) {
            item it = item_number(a, (int32_t)(u / blocks), most);
            split_unit(a, &it, wave + (int32_t)(u % blocks), u / blocks * WAVE_BLOCKS + u % blocks);
        }
        nb_lanes_barrier(p->lanes, lane);
        split_combine(a, items, most, wave, end, wave == first, end == last, lane);
        if (end < last) nb_lanes_barrier(p->lanes, lane);
    }
}

void nb_run_attention(const nb_run *r, const nb_step *s, int lane)
{
    const nb_plan *p = r->p;
    attn a = attn_new(r, s->op, lane);
    int32_t first, last, most = split_rows_max(a.group) / a.group;
    int32_t items =
        p->n_lanes > 1 && r->rows <= SPLIT_ITEMS * p->n_lanes * most ? count_items(&a, most, &first, &last) : 0;
    bool even = items == a.shape->heads &&
                items % p->n_lanes == 0; /* equal items, the same number for each lane: nothing to gain */
    if (items && !even && items <= SPLIT_ITEMS * p->n_lanes && last - first > 1) {
        split_items(&a, items, most, first, last, lane);
        return;
    }
    most = item_rows_max(a.group) / a.group;
    int64_t turn = 0;
    for (int32_t row = 0; row < r->rows;) {
        int32_t q = run_length(r->b, r->rows, row, most);
        for (int32_t h = 0; h < a.shape->heads; h++) {
            if (turn++ % p->n_lanes != lane) continue;
            item it = item_at(&a, row, q, h);
            whole_item(&a, &it);
        }
        row += q;
    }
}
