/* The blocks. Each is a short list of op records; slots are named after what they hold. */
#include "nn/nn.h"

static void out_of_memory(nb_recorder *r)
{
    if (r->status == NB_OK) r->status = nb_fail(r->err, NB_E_NO_MEMORY, "graph: out of memory");
}

nb_slot_id nb_nn_slot(nb_recorder *r, nb_slot_kind kind, int32_t width, const char *name)
{
    if (r->status != NB_OK) return NB_NO_SLOT;
    for (int32_t i = 0; i < r->g->n_slots; i++) {
        const nb_slot *s = &r->g->slots[i];
        if (s->kind == kind && s->width == width && strcmp(s->name, name) == 0) return i;
    }
    nb_slot_id id = nb_graph_slot(r->g, kind, width, name);
    if (id == NB_NO_SLOT) out_of_memory(r);
    return id;
}

static int32_t width_of(const nb_recorder *r, nb_slot_id s)
{
    return s >= 0 && s < r->g->n_slots ? r->g->slots[s].width : 0;
}

/* The next record of the forward, or of the head; NULL after an error. */
static nb_op *record(nb_recorder *r, nb_op_kind kind)
{
    if (r->status != NB_OK) return NULL;
    nb_op *op = nb_graph_op(r->g, kind);
    if (!op) out_of_memory(r);
    return op;
}

static nb_op *record_head(nb_recorder *r, nb_op_kind kind)
{
    if (r->status != NB_OK) return NULL;
    nb_op *op = nb_graph_head_op(r->g, kind);
    if (!op) out_of_memory(r);
    return op;
}

int32_t nb_nn_rope(nb_recorder *r, const nb_rope_config *c, int32_t head_dim, double length)
{
    if (r->status != NB_OK) return -1;
    nb_rope_spec spec = {.pairs = nb_rope_pairs(c, head_dim)};
    float *freq = NB_NEW_N(r->g->arena, float, spec.pairs > 0 ? (size_t)spec.pairs : 1);
    if (!freq) {
        out_of_memory(r);
        return -1;
    }
    r->status = nb_rope_table(c, head_dim, length, freq, &spec.factor, r->err);
    if (r->status != NB_OK) return -1;
    spec.freq = freq;
    int32_t id = nb_graph_rope(r->g, &spec);
    if (id < 0) out_of_memory(r);
    return id;
}

bool nb_act_parse(nb_act *out, const char *name)
{
    static const struct {
        const char *name;
        nb_act f;
    } names[] = {
        {"silu", NB_ACT_SILU},          {"swish", NB_ACT_SILU},    {"gelu_pytorch_tanh", NB_ACT_GELU_TANH},
        {"gelu_new", NB_ACT_GELU_TANH}, {"gelu", NB_ACT_GELU_ERF}, {"relu2", NB_ACT_RELU2},
    };
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].f;
            return true;
        }
    return false;
}

void nb_nn_embed(nb_recorder *r, const nb_weight *table, float scale, nb_slot_id out)
{
    nb_op *op = record(r, NB_OP_GATHER_ROWS);
    if (!op) return;
    op->u.gather.table = table;
    op->u.gather.scale = scale;
    op->u.gather.out = out;
}

static void norm_groups(nb_recorder *r, nb_slot_id in, const float *w, int32_t width, int32_t groups, float eps,
                        nb_slot_id out, nb_slot_id act)
{
    nb_op *op = record(r, NB_OP_RMS_NORM);
    if (!op) return;
    op->u.norm.in = in;
    op->u.norm.out = out;
    op->u.norm.act = act;
    op->u.norm.w = w;
    op->u.norm.width = width;
    op->u.norm.groups = groups;
    op->u.norm.eps = eps;
}

void nb_nn_norm(nb_recorder *r, nb_slot_id in, const float *w, float eps, nb_slot_id out, nb_slot_id act)
{
    norm_groups(r, in, w, width_of(r, in), 1, eps, out, act);
}

void nb_nn_add(nb_recorder *r, nb_slot_id a, nb_slot_id b, nb_slot_id out)
{
    nb_op *op = record(r, NB_OP_ADD);
    if (!op) return;
    op->u.add.a = a;
    op->u.add.b = b;
    op->u.add.out = out;
}

void nb_nn_capture(nb_recorder *r, nb_slot_id in)
{
    nb_op *op = record(r, NB_OP_CAPTURE);
    if (!op) return;
    op->u.capture.in = in;
    op->u.capture.index = r->g->n_captures++;
}

/* One record for up to four matrices that read the same rounded vector. */
static nb_op *linear(nb_op *op, nb_slot_id act)
{
    if (op) op->u.linear.act = act;
    return op;
}

static void part(nb_op *op, const nb_weight *w, nb_slot_id out, nb_slot_id residual)
{
    if (!op) return;
    int32_t i = op->u.linear.parts++;
    op->u.linear.part[i].w = w;
    op->u.linear.part[i].out = out;
    op->u.linear.part[i].residual = residual;
}

/* ---- factors before a product: y = W (x * p) ---- */

static void scale_by(nb_op *op, nb_slot_id s, const float *w)
{
    if (!op) return;
    op->u.scale.in = op->u.scale.out = s;
    op->u.scale.w = w;
}

/* Weights that read one vector need the same factors, or none. Those of the first. */
static const float *common_factors(nb_recorder *r, const nb_weight *const *w, int n)
{
    const float *p = r->status == NB_OK ? w[0]->pre_scale : NULL;
    for (int i = 1; i < n && r->status == NB_OK; i++) {
        const float *q = w[i]->pre_scale;
        if (p == q || (p && q && memcmp(p, q, (size_t)w[0]->k * sizeof *p) == 0)) continue;
        r->status = nb_fail(r->err, NB_E_UNSUPPORTED,
                            "tensors %s and %s read one vector with different pre_quant_scale (E_PRE_QUANT_SCALE)",
                            w[0]->name, w[i]->name);
    }
    return p;
}

/* The norm that made `act` takes the factors into its weight. It is the last record: nobody else has read it yet. */
static void scale_norm(nb_recorder *r, nb_slot_id act, const nb_weight *const *w, int n)
{
    const float *p = common_factors(r, w, n);
    if (!p || r->status != NB_OK) return;
    nb_op *op = r->g->n_ops > 0 ? &r->g->ops[r->g->n_ops - 1] : NULL;
    if (!op || op->kind != NB_OP_RMS_NORM || op->u.norm.act != act || op->u.norm.out != NB_NO_SLOT ||
        op->u.norm.groups != 1 || op->u.norm.width != w[0]->k) {
        r->status =
            nb_fail(r->err, NB_E_UNSUPPORTED,
                    "tensor %s: no norm before it can take its pre_quant_scale (E_PRE_QUANT_SCALE)", w[0]->name);
        return;
    }
    float *v = nb_arena_alloc_aligned(r->g->arena, (size_t)w[0]->k * sizeof *v, 64);
    if (!v) {
        out_of_memory(r);
        return;
    }
    for (int64_t i = 0; i < w[0]->k; i++) v[i] = op->u.norm.w ? op->u.norm.w[i] * p[i] : p[i];
    op->u.norm.w = v;
    op->u.norm.pre_scale = p;
}

/* What attention gives goes through F32 and the factors of the product that reads it. */
static void scale_attention(nb_recorder *r, nb_op *attention, nb_slot_id act, const nb_weight *o)
{
    nb_slot_id y = nb_nn_slot(r, NB_SLOT_F32, (int32_t)o->k, "attention unscaled");
    if (r->status != NB_OK) return;
    attention->u.attention.act = NB_NO_SLOT;
    attention->u.attention.out = y;
    scale_by(record(r, NB_OP_SCALE), y, o->pre_scale);
    nb_op *op = record(r, NB_OP_ROUND);
    if (!op) return;
    op->u.round.in = y;
    op->u.round.act = act;
    op->u.round.pre_scale = o->pre_scale;
}

void nb_nn_attention(nb_recorder *r, const nb_attention_block *a, nb_slot_id act, nb_slot_id out, nb_slot_id residual)
{
    int32_t d = a->head_dim, qw = a->heads * d, kw = a->kv_heads * d;
    nb_kv_shape shape = {.heads = a->kv_heads, .dk = d, .dv = d, .window = a->window, .f32 = r->f32};
    int32_t layer = r->status == NB_OK ? nb_graph_kv(r->g, &shape) : -1;
    if (r->status == NB_OK && layer < 0) out_of_memory(r);
    nb_slot_id q = nb_nn_slot(r, NB_SLOT_F32, qw, "q"), k = nb_nn_slot(r, NB_SLOT_F32, kw, "k"),
               v = nb_nn_slot(r, NB_SLOT_F32, kw, "v");
    nb_slot_id q_act = nb_nn_slot(r, NB_SLOT_ACT, a->heads * (int32_t)NB_ALIGN_UP(d, 32), "q rounded"),
               y = nb_nn_slot(r, NB_SLOT_ACT, qw, "attention");

    const nb_weight *reads[] = {a->q, a->k, a->v};
    scale_norm(r, act, reads, 3);
    nb_op *op = linear(record(r, NB_OP_LINEAR), act);
    part(op, a->q, q, NB_NO_SLOT);
    part(op, a->k, k, NB_NO_SLOT);
    part(op, a->v, v, NB_NO_SLOT);
    if (a->q_norm) norm_groups(r, q, a->q_norm, d, a->heads, a->eps, q, NB_NO_SLOT);
    if (a->k_norm) norm_groups(r, k, a->k_norm, d, a->kv_heads, a->eps, k, NB_NO_SLOT);

    op = record(r, NB_OP_ROPE);
    if (!op) return;
    op->u.rope.q = q;
    op->u.rope.k = k;
    op->u.rope.v = v;
    op->u.rope.q_act = q_act;
    op->u.rope.rope = a->rope < 0 ? 0 : a->rope;
    op->u.rope.no_rotation = a->rope < 0;
    op->u.rope.layer = layer;
    op->u.rope.heads = a->heads;
    op->u.rope.kv_heads = a->kv_heads;
    op->u.rope.dk = op->u.rope.dv = d;

    op = record(r, NB_OP_ATTENTION);
    if (!op) return;
    op->u.attention.q_act = q_act;
    op->u.attention.act = y;
    op->u.attention.layer = layer;
    op->u.attention.heads = a->heads;
    op->u.attention.kv_heads = a->kv_heads;
    op->u.attention.dk = op->u.attention.dv = d;
    op->u.attention.scale = a->scale;
    op->u.attention.softcap = a->softcap;
    op->u.attention.sinks = a->sinks;
    if (a->o->pre_scale) scale_attention(r, op, y, a->o);

    part(linear(record(r, NB_OP_LINEAR), y), a->o, out, residual);
}

void nb_nn_mlp(nb_recorder *r, const nb_weight *gate, const nb_weight *up, const nb_weight *down, nb_act f,
               nb_slot_id act, nb_slot_id out, nb_slot_id residual)
{
    if (r->status != NB_OK) return;
    int32_t width = (int32_t)up->n;
    nb_slot_id g = nb_nn_slot(r, NB_SLOT_F32, width, "gate"), u = nb_nn_slot(r, NB_SLOT_F32, width, "up"),
               y = nb_nn_slot(r, NB_SLOT_ACT, width, "gated");
    const nb_weight *reads[] = {gate, up};
    scale_norm(r, act, reads, 2);
    nb_op *op = linear(record(r, NB_OP_LINEAR), act);
    part(op, gate, g, NB_NO_SLOT);
    part(op, up, u, NB_NO_SLOT);
    if (down->pre_scale) scale_by(record(r, NB_OP_SCALE), u, down->pre_scale);
    op = record(r, NB_OP_GLU);
    if (!op) return;
    op->u.glu.pre_scale = down->pre_scale;
    op->u.glu.gate = g;
    op->u.glu.up = u;
    op->u.glu.act = y;
    op->u.glu.f = f;
    op->u.glu.width = width;
    part(linear(record(r, NB_OP_LINEAR), y), down, out, residual);
}

void nb_nn_moe(nb_recorder *r, const nb_moe_block *m, nb_slot_id act, nb_slot_id out, nb_slot_id residual)
{
    if (r->status != NB_OK) return;
    nb_slot_id logits = nb_nn_slot(r, NB_SLOT_F32, (int32_t)m->router->n, "router"),
               ids = nb_nn_slot(r, NB_SLOT_I32, m->used, "experts");
    nb_slot_id weights = nb_nn_slot(r, NB_SLOT_F32, m->used, "expert weights");
    part(linear(record(r, NB_OP_LINEAR), act), m->router, logits, NB_NO_SLOT);
    nb_op *op = record(r, NB_OP_ROUTE);
    if (!op) return;
    op->u.route.logits = logits;
    op->u.route.ids = ids;
    op->u.route.weights = weights;
    op->u.route.f = m->kind;
    op->u.route.k = m->used;
    op->u.route.normalise = m->normalise;
    op->u.route.scale = m->scale;
    op->u.route.bias = m->selection_bias;
    op = record(r, NB_OP_EXPERTS);
    if (!op) return;
    op->u.experts.act = act;
    op->u.experts.ids = ids;
    op->u.experts.weights = weights;
    op->u.experts.out = out;
    op->u.experts.residual = residual;
    op->u.experts.bank = m->bank;
    op->u.experts.f = m->f;
    op->u.experts.k = m->used;
}

void nb_nn_head(nb_recorder *r, nb_slot_id in, const float *norm, float eps, const nb_weight *head, float softcap)
{
    if (r->status != NB_OK) return;
    int32_t width = width_of(r, in), vocab = (int32_t)head->n;
    nb_graph *g = r->g;
    g->hidden = g->aux = nb_nn_slot(r, NB_SLOT_F32, width, "hidden");
    nb_nn_norm(r, in, norm, eps, g->hidden, NB_NO_SLOT);
    g->head_in = nb_nn_slot(r, NB_SLOT_F32, width, "head rows");
    g->logits = nb_nn_slot(r, NB_SLOT_F32, vocab, "logits");
    nb_slot_id act = nb_nn_slot(r, NB_SLOT_ACT, width, "head rounded");
    if (head->pre_scale) scale_by(record_head(r, NB_OP_SCALE), g->head_in, head->pre_scale);
    nb_op *op = record_head(r, NB_OP_ROUND);
    if (!op) return;
    op->u.round.pre_scale = head->pre_scale;
    op->u.round.in = g->head_in;
    op->u.round.act = act;
    part(linear(record_head(r, NB_OP_LINEAR), act), head, g->logits, NB_NO_SLOT);
    if (softcap <= 0) return;
    op = record_head(r, NB_OP_SOFTCAP);
    if (!op) return;
    op->u.softcap.in = op->u.softcap.out = g->logits;
    op->u.softcap.cap = softcap;
}
