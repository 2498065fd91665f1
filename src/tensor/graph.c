/* Recording a forward, and checking the record before a backend trusts it. Arrays grow by doubling inside the graph's
 * arena. */
#include "tensor/graph.h"

static const char *const op_names[NB_OP_COUNT] = {
    [NB_OP_GATHER_ROWS] = "gather_rows",
    [NB_OP_ROUND] = "round",
    [NB_OP_RMS_NORM] = "rms_norm",
    [NB_OP_LINEAR] = "linear",
    [NB_OP_ROPE] = "rope",
    [NB_OP_ATTENTION] = "attention",
    [NB_OP_GLU] = "glu",
    [NB_OP_ADD] = "add",
    [NB_OP_SCALE] = "scale",
    [NB_OP_SOFTCAP] = "softcap",
    [NB_OP_ROUTE] = "route",
    [NB_OP_EXPERTS] = "experts",
    [NB_OP_CAPTURE] = "capture",
};

const char *nb_op_name(int kind) { return kind >= 0 && kind < NB_OP_COUNT ? op_names[kind] : "?"; }

/* Room for one more element; returns it zeroed, or NULL. */
static void *push(nb_arena *a, void *array, int32_t *n, int32_t *cap, size_t size)
{
    char **items = array;
    if (*n == *cap) {
        if (*cap > INT32_MAX / 2) return NULL;
        int32_t grown = *cap ? 2 * *cap : 16;
        char *p = nb_arena_array(a, (size_t)grown, size);
        if (!p) return NULL;
        if (*n) memcpy(p, *items, (size_t)*n * size);
        *items = p;
        *cap = grown;
    }
    void *item = *items + (size_t)*n * size;
    memset(item, 0, size);
    ++*n;
    return item;
}

nb_slot_id nb_graph_slot(nb_graph *g, nb_slot_kind kind, int32_t width, const char *name)
{
    nb_slot *s = push(g->arena, &g->slots, &g->n_slots, &g->cap_slots, sizeof *s);
    if (!s) return NB_NO_SLOT;
    *s = (nb_slot){kind, width, name};
    return g->n_slots - 1;
}

/* The slots of a new record are absent until set. */
static void clear_slots(nb_op *op)
{
    const nb_slot_id no = NB_NO_SLOT;
    switch ((nb_op_kind)op->kind) {
    case NB_OP_GATHER_ROWS: op->u.gather.out = no; break;
    case NB_OP_ROUND: op->u.round.in = op->u.round.act = no; break;
    case NB_OP_RMS_NORM: op->u.norm.in = op->u.norm.out = op->u.norm.act = no; break;
    case NB_OP_LINEAR:
        op->u.linear.act = no;
        for (int i = 0; i < NB_LINEAR_PARTS; i++) op->u.linear.part[i].out = op->u.linear.part[i].residual = no;
        break;
    case NB_OP_ROPE: op->u.rope.q = op->u.rope.k = op->u.rope.v = op->u.rope.q_act = no; break;
    case NB_OP_ATTENTION: op->u.attention.q_act = op->u.attention.out = op->u.attention.act = no; break;
    case NB_OP_GLU: op->u.glu.gate = op->u.glu.up = op->u.glu.act = no; break;
    case NB_OP_ADD: op->u.add.a = op->u.add.b = op->u.add.out = no; break;
    case NB_OP_SCALE: op->u.scale.in = op->u.scale.out = no; break;
    case NB_OP_SOFTCAP: op->u.softcap.in = op->u.softcap.out = no; break;
    case NB_OP_ROUTE: op->u.route.logits = op->u.route.ids = op->u.route.weights = no; break;
    case NB_OP_EXPERTS:
        op->u.experts.act = op->u.experts.ids = op->u.experts.weights = op->u.experts.out = op->u.experts.residual = no;
        break;
    case NB_OP_CAPTURE: op->u.capture.in = no; break;
    case NB_OP_COUNT: break;
    }
}

nb_op *nb_graph_op(nb_graph *g, nb_op_kind kind)
{
    nb_op *op = push(g->arena, &g->ops, &g->n_ops, &g->cap_ops, sizeof *op);
    if (!op) return NULL;
    op->kind = (uint8_t)kind;
    clear_slots(op);
    return op;
}

nb_op *nb_graph_head_op(nb_graph *g, nb_op_kind kind)
{
    nb_op *op = push(g->arena, &g->head, &g->n_head, &g->cap_head, sizeof *op);
    if (!op) return NULL;
    op->kind = (uint8_t)kind;
    clear_slots(op);
    return op;
}

int32_t nb_graph_rope(nb_graph *g, const nb_rope_spec *spec)
{
    nb_rope_spec *r = push(g->arena, &g->ropes, &g->n_ropes, &g->cap_ropes, sizeof *r);
    if (!r) return -1;
    *r = *spec;
    return g->n_ropes - 1;
}

int32_t nb_graph_kv(nb_graph *g, const nb_kv_shape *shape)
{
    nb_kv_shape *s = push(g->arena, &g->kv, &g->n_kv, &g->cap_kv, sizeof *s);
    if (!s) return -1;
    *s = *shape;
    return g->n_kv - 1;
}

/* ---- check ---- */

typedef struct check {
    const nb_graph *g;
    nb_error *err;
    const char *list; /* "ops" or "head" */
    int32_t at;       /* index of the record */
    const nb_op *op;
    nb_status status; /* the first fault stays */
} check;

enum { MAX_WIDTH = 1 << 24 };

static void fault(check *c, const char *field, const char *what)
{
    if (c->status != NB_OK) return;
    c->status = nb_fail(c->err, NB_E_INVALID, "graph: %s[%d] %s: field %s: %s", c->list, c->at, nb_op_name(c->op->kind),
                        field, what);
}

/* The slot exists and has this kind and width. */
static void need(check *c, const char *field, nb_slot_id id, nb_slot_kind kind, int64_t width)
{
    static const char *const kinds[] = {"f32", "act", "i32"};
    if (c->status != NB_OK) return;
    if (id < 0 || id >= c->g->n_slots) {
        c->status = nb_fail(c->err, NB_E_INVALID, "graph: %s[%d] %s: slot %s is %d, of %d", c->list, c->at,
                            nb_op_name(c->op->kind), field, id, c->g->n_slots);
        return;
    }
    const nb_slot *s = &c->g->slots[id];
    if (s->kind == kind && s->width == width) return;
    c->status = nb_fail(c->err, NB_E_INVALID, "graph: %s[%d] %s: slot %s (%s) is %s of width %d, not %s of width %lld",
                        c->list, c->at, nb_op_name(c->op->kind), field, s->name ? s->name : "unnamed", kinds[s->kind],
                        s->width, kinds[kind], (long long)width);
}

static void need_if(check *c, const char *field, nb_slot_id id, nb_slot_kind kind, int64_t width)
{
    if (id != NB_NO_SLOT) need(c, field, id, kind, width);
}

static int64_t width_of(const check *c, nb_slot_id id)
{
    return id >= 0 && id < c->g->n_slots ? c->g->slots[id].width : 0;
}

static void check_norm(check *c)
{
    const nb_op *op = c->op;
    int64_t n = (int64_t)op->u.norm.width * op->u.norm.groups;
    if (op->u.norm.width < 1 || op->u.norm.groups < 1) fault(c, "width", "width and groups must be positive");
    need(c, "in", op->u.norm.in, NB_SLOT_F32, n);
    need_if(c, "out", op->u.norm.out, NB_SLOT_F32, n);
    need_if(c, "act", op->u.norm.act, NB_SLOT_ACT, n);
    if (op->u.norm.out == NB_NO_SLOT && op->u.norm.act == NB_NO_SLOT) fault(c, "out", "neither out nor act");
}

static void check_linear(check *c)
{
    const nb_op *op = c->op;
    if (op->u.linear.parts < 1 || op->u.linear.parts > NB_LINEAR_PARTS) {
        fault(c, "parts", "not from 1 to 4");
        return;
    }
    for (int i = 0; i < op->u.linear.parts && c->status == NB_OK; i++) {
        const nb_weight *w = op->u.linear.part[i].w;
        nb_slot_id out = op->u.linear.part[i].out;
        if (!w || !w->data || w->n < 1 || w->k < 1 || w->layout != NB_LAYOUT_ROWS16) {
            fault(c, "w", "not a matrix in rows16");
            return;
        }
        need(c, "act", op->u.linear.act, NB_SLOT_ACT, w->k);
        int64_t width = width_of(c, out);
        need(c, "out", out, NB_SLOT_F32, width);
        need_if(c, "residual", op->u.linear.part[i].residual, NB_SLOT_F32, width);
        if (op->u.linear.part[i].col < 0 || op->u.linear.part[i].col > width - w->n)
            fault(c, "out", "too narrow for the matrix");
    }
}

static void check_rope(check *c)
{
    const nb_op *op = c->op;
    int32_t heads = op->u.rope.heads, kvh = op->u.rope.kv_heads, dk = op->u.rope.dk, dv = op->u.rope.dv;
    if (heads < 1 || kvh < 1 || dk < 1 || dv < 1 || heads % kvh) fault(c, "heads", "head counts or widths do not fit");
    need(c, "q", op->u.rope.q, NB_SLOT_F32, (int64_t)heads * dk);
    need(c, "q_act", op->u.rope.q_act, NB_SLOT_ACT, (int64_t)heads * NB_ALIGN_UP((int64_t)dk, 32));
    if ((op->u.rope.k == NB_NO_SLOT) != (op->u.rope.v == NB_NO_SLOT)) fault(c, "k", "k and v come together");
    need_if(c, "k", op->u.rope.k, NB_SLOT_F32, (int64_t)kvh * dk);
    need_if(c, "v", op->u.rope.v, NB_SLOT_F32, (int64_t)kvh * dv);
    if (!op->u.rope.no_rotation) {
        if (op->u.rope.rope < 0 || op->u.rope.rope >= c->g->n_ropes)
            fault(c, "rope", "no such rotary table");
        else if (c->g->ropes[op->u.rope.rope].pairs < 1 || c->g->ropes[op->u.rope.rope].pairs > dk / 2)
            fault(c, "rope", "more pairs than the head holds");
    }
    if (op->u.rope.layer < 0 || op->u.rope.layer >= c->g->n_kv) {
        fault(c, "layer", "no such kv layer");
        return;
    }
    const nb_kv_shape *s = &c->g->kv[op->u.rope.layer];
    if (s->heads != kvh || s->dk != dk || s->dv != dv) fault(c, "layer", "the kv layer has another shape");
}

static void check_attention(check *c)
{
    const nb_op *op = c->op;
    int32_t heads = op->u.attention.heads, kvh = op->u.attention.kv_heads, dk = op->u.attention.dk,
            dv = op->u.attention.dv;
    if (heads < 1 || kvh < 1 || dk < 1 || dv < 1 || heads % kvh) fault(c, "heads", "head counts or widths do not fit");
    need(c, "q_act", op->u.attention.q_act, NB_SLOT_ACT, (int64_t)heads * NB_ALIGN_UP((int64_t)dk, 32));
    need_if(c, "out", op->u.attention.out, NB_SLOT_F32, (int64_t)heads * dv);
    need_if(c, "act", op->u.attention.act, NB_SLOT_ACT, (int64_t)heads * dv);
    if (op->u.attention.out == NB_NO_SLOT && op->u.attention.act == NB_NO_SLOT) fault(c, "out", "neither out nor act");
    if (op->u.attention.layer < 0 || op->u.attention.layer >= c->g->n_kv) {
        fault(c, "layer", "no such kv layer");
        return;
    }
    const nb_kv_shape *s = &c->g->kv[op->u.attention.layer];
    if (s->heads != kvh || s->dk != dk || s->dv != dv || s->window < 0)
        fault(c, "layer", "the kv layer has another shape");
}

static void check_route(check *c)
{
    const nb_op *op = c->op;
    int64_t experts = width_of(c, op->u.route.logits);
    need(c, "logits", op->u.route.logits, NB_SLOT_F32, experts);
    if (op->u.route.k < 1 || op->u.route.k > experts) fault(c, "k", "not from 1 to the number of experts");
    need(c, "ids", op->u.route.ids, NB_SLOT_I32, op->u.route.k);
    need(c, "weights", op->u.route.weights, NB_SLOT_F32, op->u.route.k);
}

static void check_experts(check *c)
{
    const nb_op *op = c->op;
    const nb_bank *b = op->u.experts.bank;
    if (!b || !b->data || b->experts < 1) {
        fault(c, "bank", "no bank");
        return;
    }
    const struct nb_bank_proj *gate = &b->proj[NB_PROJ_GATE], *up = &b->proj[NB_PROJ_UP],
                              *down = &b->proj[NB_PROJ_DOWN];
    if (up->n < 1 || up->k < 1 || down->k != up->n || down->n < 1 ||
        (gate->n && (gate->n != up->n || gate->k != up->k)))
        fault(c, "bank", "projections do not fit together");
    if (op->u.experts.k < 1 || op->u.experts.k > b->experts) fault(c, "k", "not from 1 to the number of experts");
    need(c, "act", op->u.experts.act, NB_SLOT_ACT, up->k);
    need(c, "ids", op->u.experts.ids, NB_SLOT_I32, op->u.experts.k);
    need(c, "weights", op->u.experts.weights, NB_SLOT_F32, op->u.experts.k);
    need(c, "out", op->u.experts.out, NB_SLOT_F32, down->n);
    need_if(c, "residual", op->u.experts.residual, NB_SLOT_F32, down->n);
}

static void check_simple(check *c)
{
    const nb_op *op = c->op;
    int64_t n;
    switch ((nb_op_kind)op->kind) {
    case NB_OP_GATHER_ROWS:
        if (!op->u.gather.table || !op->u.gather.table->data)
            fault(c, "table", "no table");
        else
            need(c, "out", op->u.gather.out, NB_SLOT_F32, op->u.gather.table->k);
        break;
    case NB_OP_ROUND:
        need(c, "in", op->u.round.in, NB_SLOT_F32, n = width_of(c, op->u.round.in));
        need(c, "act", op->u.round.act, NB_SLOT_ACT, n);
        break;
    case NB_OP_GLU:
        need(c, "gate", op->u.glu.gate, NB_SLOT_F32, op->u.glu.width);
        need_if(c, "up", op->u.glu.up, NB_SLOT_F32, op->u.glu.width);
        need(c, "act", op->u.glu.act, NB_SLOT_ACT, op->u.glu.width);
        break;
    case NB_OP_ADD:
        need(c, "a", op->u.add.a, NB_SLOT_F32, n = width_of(c, op->u.add.a));
        need(c, "b", op->u.add.b, NB_SLOT_F32, n);
        need(c, "out", op->u.add.out, NB_SLOT_F32, n);
        break;
    case NB_OP_SCALE:
        need(c, "in", op->u.scale.in, NB_SLOT_F32, n = width_of(c, op->u.scale.in));
        need(c, "out", op->u.scale.out, NB_SLOT_F32, n);
        break;
    case NB_OP_SOFTCAP:
        need(c, "in", op->u.softcap.in, NB_SLOT_F32, n = width_of(c, op->u.softcap.in));
        need(c, "out", op->u.softcap.out, NB_SLOT_F32, n);
        break;
    case NB_OP_CAPTURE:
        need(c, "in", op->u.capture.in, NB_SLOT_F32, width_of(c, op->u.capture.in));
        if (op->u.capture.index < 0 || op->u.capture.index >= c->g->n_captures) fault(c, "index", "beyond n_captures");
        break;
    default: fault(c, "kind", "unknown op"); break;
    }
}

static void check_op(check *c)
{
    switch ((nb_op_kind)c->op->kind) {
    case NB_OP_RMS_NORM: check_norm(c); break;
    case NB_OP_LINEAR: check_linear(c); break;
    case NB_OP_ROPE: check_rope(c); break;
    case NB_OP_ATTENTION: check_attention(c); break;
    case NB_OP_ROUTE: check_route(c); break;
    case NB_OP_EXPERTS: check_experts(c); break;
    default: check_simple(c); break;
    }
}

/* hidden, aux, head_in and logits. */
static nb_status check_ends(const nb_graph *g, nb_error *err)
{
    const struct {
        const char *name;
        nb_slot_id id;
    } ends[] = {{"hidden", g->hidden}, {"aux", g->aux}, {"head_in", g->head_in}, {"logits", g->logits}};
    for (size_t i = 0; i < NB_COUNT(ends); i++) {
        if (ends[i].id < 0 || ends[i].id >= g->n_slots)
            return nb_fail(err, NB_E_INVALID, "graph: slot %s is %d, of %d", ends[i].name, ends[i].id, g->n_slots);
        if (g->slots[ends[i].id].kind != NB_SLOT_F32)
            return nb_fail(err, NB_E_INVALID, "graph: slot %s is not f32", ends[i].name);
    }
    if (g->slots[g->hidden].width != g->slots[g->head_in].width)
        return nb_fail(err, NB_E_INVALID, "graph: head_in has width %d, hidden has %d", g->slots[g->head_in].width,
                       g->slots[g->hidden].width);
    return NB_OK;
}

nb_status nb_graph_check(const nb_graph *g, nb_error *err)
{
    for (int32_t i = 0; i < g->n_slots; i++)
        if (g->slots[i].width < 1 || g->slots[i].width > MAX_WIDTH)
            return nb_fail(err, NB_E_INVALID, "graph: slot %d (%s) has width %d", i,
                           g->slots[i].name ? g->slots[i].name : "unnamed", g->slots[i].width);
    check c = {.g = g, .err = err, .list = "ops", .status = NB_OK};
    for (c.at = 0; c.at < g->n_ops && c.status == NB_OK; c.at++) {
        c.op = &g->ops[c.at];
        check_op(&c);
    }
    if (c.status != NB_OK) return c.status;
    c.list = "head";
    for (c.at = 0; c.at < g->n_head && c.status == NB_OK; c.at++) {
        c.op = &g->head[c.at];
        uint8_t k = c.op->kind;
        if (k == NB_OP_GATHER_ROWS || k == NB_OP_ROPE || k == NB_OP_ATTENTION || k == NB_OP_ROUTE ||
            k == NB_OP_EXPERTS || k == NB_OP_CAPTURE)
            fault(&c, "kind", "not allowed in the head");
        else
            check_op(&c);
    }
    return c.status != NB_OK ? c.status : check_ends(g, err);
}

int64_t nb_find_nonfinite(const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if ((nb_bits_f32(x[i]) & 0x7f800000u) == 0x7f800000u) return i;
    return -1;
}
