/* From tensor names to blocks. */
#include "model/build.h"
#include "model/arch_row.h"

#include <math.h>

/* ---- tensors by name ---- */

static const nb_net_tensor *find(nb_builder *b, int32_t layer, const char *name, const char *suffix, bool optional)
{
    nb_buf text = {.limit = 512};
    const nb_net_tensor *t = NULL;
    if (b->r.status != NB_OK) return NULL;
    if (layer >= 0) nb_buf_printf(&text, "model.layers.%d.", (int)layer);
    nb_buf_add_cstr(&text, name);
    nb_buf_add_cstr(&text, suffix);
    if (text.oom)
        b->r.status = nb_fail(b->r.err, NB_E_NO_MEMORY, "graph: out of memory");
    else
        t = nb_network_find(b->net, nb_buf_str(&text));
    if (!t && !optional && b->r.status == NB_OK)
        b->r.status = nb_fail(b->r.err, NB_E_INVALID, "tensor %.*s is missing", NB_FMT_STR(nb_buf_str(&text)));
    nb_buf_free(&text);
    return t;
}

static const nb_weight *matrix(nb_builder *b, int32_t layer, const char *name)
{
    const nb_net_tensor *t = find(b, layer, name, ".weight", false);
    if (t && !t->weight)
        b->r.status = nb_fail(b->r.err, NB_E_INVALID, "tensor %.*s is not a matrix", NB_FMT_STR(t->name));
    return t ? t->weight : NULL;
}

static const float *vector(nb_builder *b, int32_t layer, const char *name, const char *suffix, int64_t width,
                           bool optional)
{
    const nb_net_tensor *t = find(b, layer, name, suffix, optional);
    if (t && (!t->vector || t->rank != 1 || t->dim[0] != width)) {
        b->r.status =
            nb_fail(b->r.err, NB_E_INVALID, "tensor %.*s is not a vector of %d", NB_FMT_STR(t->name), (int)width);
        return NULL;
    }
    return t ? t->vector : NULL;
}

/* ---- blocks ---- */

void nb_build_begin(nb_builder *b, float scale)
{
    const nb_config *c = b->c;
    nb_recorder *r = &b->r;
    if (!nb_act_parse(&b->f, c->act)) {
        r->status = nb_fail(r->err, NB_E_UNSUPPORTED, "config.json: activation '%s' is not supported", c->act);
        return;
    }
    b->h = nb_nn_slot(r, NB_SLOT_F32, c->hidden, "residual");
    b->x = nb_nn_slot(r, NB_SLOT_ACT, c->hidden, "normed");
    b->branch = nb_nn_slot(r, NB_SLOT_F32, c->hidden, "branch");
    b->rope = nb_nn_rope(r, &c->rope, c->head_dim, c->max_context);
    b->rope_local = b->rope;
    if (memcmp(&c->rope, &c->rope_local, sizeof c->rope) != 0)
        b->rope_local = nb_nn_rope(r, &c->rope_local, c->head_dim, c->max_context);
    nb_nn_embed(r, matrix(b, -1, "model.embed_tokens"), scale, b->h);
    nb_nn_capture(r, b->h);
}

void nb_build_norm(nb_builder *b, int32_t layer, const char *name, nb_slot_id in)
{
    nb_nn_norm(&b->r, in, vector(b, layer, name, ".weight", b->c->hidden, false), (float)b->c->rms_eps, NB_NO_SLOT,
               b->x);
}

void nb_build_norm_f32(nb_builder *b, int32_t layer, const char *name, nb_slot_id in, nb_slot_id out)
{
    nb_nn_norm(&b->r, in, vector(b, layer, name, ".weight", b->c->hidden, false), (float)b->c->rms_eps, out,
               NB_NO_SLOT);
}

void nb_build_attention(nb_builder *b, int32_t layer, nb_slot_id out, nb_slot_id residual)
{
    const nb_config *c = b->c;
    bool slides = c->layer_slides[layer], still = c->layer_no_rope && c->layer_no_rope[layer];
    nb_attention_block a = {
        .q = matrix(b, layer, "self_attn.q_proj"),
        .k = matrix(b, layer, "self_attn.k_proj"),
        .v = matrix(b, layer, "self_attn.v_proj"),
        .o = matrix(b, layer, "self_attn.o_proj"),
        .q_norm = vector(b, layer, "self_attn.q_norm", ".weight", c->head_dim, true),
        .k_norm = vector(b, layer, "self_attn.k_norm", ".weight", c->head_dim, true),
        .sinks = vector(b, layer, "self_attn.sinks", "", c->heads, true),
        .heads = c->heads,
        .kv_heads = c->kv_heads,
        .head_dim = c->head_dim,
        .rope = still    ? -1
                : slides ? b->rope_local
                         : b->rope,
        .window = slides ? c->window : 0,
        .eps = (float)c->rms_eps,
        .scale = (float)(c->query_scale > 0 ? c->query_scale : 1 / sqrt(c->head_dim)),
        .softcap = (float)c->attn_softcap,
    };
    if (b->r.status == NB_OK) nb_nn_attention(&b->r, &a, b->x, out, residual);
}

static const nb_bank *bank(nb_builder *b, int32_t layer, const char *name)
{
    const nb_net_tensor *t = find(b, layer, name, ".gate_proj.weight", false);
    if (t && !t->bank)
        b->r.status = nb_fail(b->r.err, NB_E_INVALID, "tensor %.*s is not an expert bank", NB_FMT_STR(t->name));
    return t ? t->bank : NULL;
}

void nb_build_ffn(nb_builder *b, int32_t layer, nb_slot_id out, nb_slot_id residual)
{
    const nb_config *c = b->c;
    if (!c->layer_sparse[layer]) {
        const nb_weight *gate = matrix(b, layer, "mlp.gate_proj"), *up = matrix(b, layer, "mlp.up_proj"),
                        *down = matrix(b, layer, "mlp.down_proj");
        nb_nn_mlp(&b->r, gate, up, down, b->f, b->x, out, residual);
        return;
    }
    nb_moe_block m = {
        .router = matrix(b, layer, "mlp.gate"),
        .bank = bank(b, layer, "mlp.experts"),
        .kind = NB_ROUTER_SOFTMAX,
        .used = c->experts_used,
        .normalise = c->norm_topk_prob,
        .scale = 1,
        .f = b->f,
    };
    nb_nn_moe(&b->r, &m, b->x, out, residual);
}

void nb_build_add_branch(nb_builder *b) { nb_nn_add(&b->r, b->h, b->branch, b->h); }
void nb_build_end_layer(nb_builder *b) { nb_nn_capture(&b->r, b->h); }

nb_status nb_build_head(nb_builder *b)
{
    const nb_config *c = b->c;
    const nb_weight *head = matrix(b, -1, c->tie_embeddings ? "model.embed_tokens" : "lm_head");
    const float *norm = vector(b, -1, "model.norm", ".weight", c->hidden, false);
    nb_nn_head(&b->r, b->h, norm, (float)c->rms_eps, head, (float)c->final_softcap);
    return b->r.status;
}

nb_status nb_forward_prenorm(nb_builder *b)
{
    nb_build_begin(b, 1);
    for (int32_t i = 0; i < b->c->layers; i++) {
        nb_build_norm(b, i, "input_layernorm", b->h);
        nb_build_attention(b, i, b->h, b->h);
        nb_build_norm(b, i, "post_attention_layernorm", b->h);
        nb_build_ffn(b, i, b->h, b->h);
        nb_build_end_layer(b);
    }
    return nb_build_head(b);
}

/* ---- pre_quant_scale: y = W (x * p) ---- */

/* What an ACT slot was multiplied with, as the records say one after the other. */
typedef struct factors {
    const float **of; /* [slots] */
    nb_error *err;
} factors;

static nb_status check_reader(const factors *f, const nb_weight *w, nb_slot_id act)
{
    const float *have = f->of[act], *want = w->pre_scale;
    if (have == want || (have && want && memcmp(have, want, (size_t)w->k * sizeof *have) == 0)) return NB_OK;
    return nb_fail(f->err, NB_E_UNSUPPORTED,
                   want ? "tensor %s: this forward cannot apply its pre_quant_scale (E_PRE_QUANT_SCALE)"
                        : "tensor %s reads a vector that has the pre_quant_scale of others (E_PRE_QUANT_SCALE)",
                   w->name);
}

static nb_status check_op_factors(const factors *f, const nb_op *op)
{
    nb_status s = NB_OK;
    switch ((nb_op_kind)op->kind) {
    case NB_OP_ROUND: f->of[op->u.round.act] = op->u.round.pre_scale; break;
    case NB_OP_GLU: f->of[op->u.glu.act] = op->u.glu.pre_scale; break;
    case NB_OP_RMS_NORM:
        if (op->u.norm.act != NB_NO_SLOT) f->of[op->u.norm.act] = op->u.norm.pre_scale;
        break;
    case NB_OP_ATTENTION:
        if (op->u.attention.act != NB_NO_SLOT) f->of[op->u.attention.act] = NULL;
        break;
    case NB_OP_GATHER_ROWS:
        if (op->u.gather.table->pre_scale)
            s = nb_fail(f->err, NB_E_UNSUPPORTED,
                        "tensor %s: a gathered table has no pre_quant_scale (E_PRE_QUANT_SCALE)",
                        op->u.gather.table->name);
        break;
    case NB_OP_LINEAR:
        for (int i = 0; i < op->u.linear.parts && s == NB_OK; i++)
            s = check_reader(f, op->u.linear.part[i].w, op->u.linear.act);
        break;
    case NB_OP_EXPERTS:
        if (f->of[op->u.experts.act])
            s = nb_fail(f->err, NB_E_UNSUPPORTED,
                        "%s reads a vector that has the pre_quant_scale of others (E_PRE_QUANT_SCALE)",
                        op->u.experts.bank->name);
        break;
    default: break;
    }
    return s;
}

/* Every weight with factors reads a vector that has them, and no other weight does: whatever blocks an architecture
 * uses, one that cannot apply them is refused. */
static nb_status check_factors(const nb_graph *g, nb_error *err)
{
    factors f = {.of = NB_NEW_N(g->arena, const float *, (size_t)g->n_slots + 1), .err = err};
    if (!f.of) return nb_fail(err, NB_E_NO_MEMORY, "graph: out of memory");
    nb_status s = NB_OK;
    for (int32_t i = 0; i < g->n_ops && s == NB_OK; i++) s = check_op_factors(&f, &g->ops[i]);
    for (int32_t i = 0; i < g->n_head && s == NB_OK; i++) s = check_op_factors(&f, &g->head[i]);
    return s;
}

nb_status nb_build_graph(const nb_network *net, nb_graph *g, bool f32, nb_error *err)
{
    nb_builder b = {.net = net, .c = &net->config, .r = {.g = g, .err = err, .status = NB_OK, .f32 = f32}};
    *g = (nb_graph){.arena = net->arena};
    nb_status s = net->config.arch->forward(&b);
    if (s == NB_OK) s = nb_graph_check(g, err);
    return s == NB_OK ? check_factors(g, err) : s;
}
