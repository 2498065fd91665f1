/* Rotation of q and k, and the store of k and v into the cache. tensor/kv.h says how a block lies:
 *   K of a head: 4 tiles of 16 slots; in a tile, groups of 32 channels; BF16: word w of a slot = channels 2w (low), 2w
 * + 1; F32: word w = channel w V of a head: tiles of 16 channels; in a tile, 2 groups of 32 slots; word w of a channel
 * = slots 2w, 2w + 1 (F32: slot w)
 */
#include "cpu/exec.h"

static void store_k(uint8_t *head, const void *k, int32_t dk, int32_t at, bool f32)
{
    size_t group = f32 ? 2048 : 1024, tile = (size_t)nb_pad32(dk) / 32 * group;
    uint8_t *lane = head + (size_t)(at / 16) * tile + (size_t)(at % 16) * 4;
    if (f32) {
        const float *x = k;
        for (int32_t c = 0; c < dk; c++)
            memcpy(lane + (size_t)c * 64, &x[c], 4); /* 32 vectors a group: vector c of the tile */
    } else {
        const uint16_t *x = k;
        for (int32_t c = 0; c < dk; c++) nb_store_u16(lane + (size_t)(c / 2) * 64 + (size_t)(c & 1) * 2, x[c]);
    }
}

static void store_v(uint8_t *head, const void *v, int32_t dv, int32_t at, bool f32)
{
    size_t group = f32 ? 2048 : 1024;
    size_t word = f32 ? (size_t)(at % 32) * 64 : (size_t)(at % 32 / 2) * 64 + (size_t)(at & 1) * 2;
    uint8_t *slot = head + (size_t)(at / 32) * group + word;
    for (int32_t c = 0; c < dv; c++) {
        uint8_t *to = slot + (size_t)(c / 16) * 2 * group + (size_t)(c % 16) * 4;
        if (f32)
            memcpy(to, (const float *)v + c, 4);
        else
            nb_store_u16(to, ((const uint16_t *)v)[c]);
    }
}

/* One row of k and v of all kv heads; `rounded` holds one head. */
static bool store_row(const nb_run *r, const nb_op *op, int32_t row, void *rounded)
{
    const nb_plan *p = r->p;
    const nb_kv_shape *shape = &p->g->kv[op->u.rope.layer];
    const nb_kv_view *view = &r->b->kv[r->seq[row]][op->u.rope.layer];
    int32_t slot = r->b->slot[row], at = view->ring ? slot % view->ring : slot;
    uint8_t *block = view->block[at / NB_KV_BLOCK];
    const float *k = nb_slot_f32(p, op->u.rope.k, row), *v = nb_slot_f32(p, op->u.rope.v, row);
    bool bad = false;
    for (int32_t h = 0; h < shape->heads; h++) {
        bad |= p->k.round_kv[p->f32](k + (size_t)h * (size_t)shape->dk, shape->dk, shape->dk, rounded);
        store_k(block + (size_t)h * nb_kv_k_head_bytes(shape), rounded, shape->dk, at % NB_KV_BLOCK, p->f32);
        bad |= p->k.round_kv[p->f32](v + (size_t)h * (size_t)shape->dv, shape->dv, shape->dv, rounded);
        store_v(block + (size_t)shape->heads * nb_kv_k_head_bytes(shape) + (size_t)h * nb_kv_v_head_bytes(shape),
                rounded, shape->dv, at % NB_KV_BLOCK, p->f32);
    }
    return bad;
}

size_t nb_rope_temp_bytes(const nb_op *op)
{
    return (size_t)(op->u.rope.dk > op->u.rope.dv ? op->u.rope.dk : op->u.rope.dv) * 4;
}

void nb_run_rope(const nb_run *r, const nb_step *s, int lane)
{
    const nb_plan *p = r->p;
    const nb_op *op = s->op;
    int32_t dk = op->u.rope.dk;
    int64_t from, to, dkp = nb_pad32(dk);
    nb_split(r->rows, lane, p->n_lanes, &from, &to);
    for (int32_t row = (int32_t)from; row < to; row++) {
        float *q = nb_slot_f32(p, op->u.rope.q, row),
              *k = op->u.rope.k != NB_NO_SLOT ? nb_slot_f32(p, op->u.rope.k, row) : NULL;
        if (!op->u.rope.no_rotation) {
            int64_t pairs = p->g->ropes[op->u.rope.rope].pairs;
            const float *c = p->rope[op->u.rope.rope] + row * 2 * pairs;
            for (int32_t h = 0; h < op->u.rope.heads; h++)
                p->k.rotate(q + (size_t)h * (size_t)dk, pairs, c, c + pairs, op->u.rope.interleaved);
            for (int32_t h = 0; k && h < op->u.rope.kv_heads; h++)
                p->k.rotate(k + (size_t)h * (size_t)dk, pairs, c, c + pairs, op->u.rope.interleaved);
        }
        bool bad = k && store_row(r, op, row, p->lane[lane].temp);
        uint8_t *act = nb_slot_act(p, op->u.rope.q_act, row);
        for (int32_t h = 0; h < op->u.rope.heads; h++)
            bad |= p->k.round_kv[p->f32](q + (size_t)h * (size_t)dk, dk, dkp, act + (size_t)h * (size_t)dkp * p->elem);
        if (bad) nb_mark_bad(r, row);
    }
}
