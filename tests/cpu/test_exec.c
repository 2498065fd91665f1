/* A tiny random model recorded with the public recorder: one dense and one expert layer, rotation of both kinds, q and
 * k norms, windows, a soft-capped head. In float32 mode against the same model in double; and bits over tiers, lanes,
 * chunks and batches of several sequences. */
#include "cpu/exec.h"
#include "cpu/util.h"

/* Allocations of any thread are counted here; debug builds have their own guard, sanitizers their own allocator. */
#if defined(__GLIBC__) && !defined(NB_DEBUG) && !defined(NB_TSAN)
enum { COUNTS_ALLOCATIONS = 1 };
static _Atomic long allocations;
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t n);

void *malloc(size_t n)
{
    allocations++;
    return __libc_malloc(n);
}

void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}

void *realloc(void *p, size_t n)
{
    allocations++;
    return __libc_realloc(p, n);
}
#else
enum { COUNTS_ALLOCATIONS = 0 };
static long allocations;
#endif

#ifdef NB_TSAN
enum { SLOW_BUILD = 1 };
#else
enum { SLOW_BUILD = 0 };
#endif

enum {
    HIDDEN = 64,
    HEADS = 4,
    KV_HEADS = 2,
    DK = 32,
    FFN = 96,
    EXPERTS = 8,
    USED = 3,
    MOE = 64,
    VOCAB = 200,
    LAYERS = 2,
    TOKENS = 90,
    WINDOW = 20
};
static const float eps = 1e-5f, embed_scale = 1.5f, head_cap = 5.0f;

typedef struct matrix {
    nb_weight w;
    float *dense; /* [n][k] the exact values, m included */
} matrix;

typedef struct layer {
    matrix q, k, v, o, gate, up, down, router;
    nb_bank bank;
    float *expert[3]; /* [experts][n][k] */
    float *norm1, *norm2, *q_norm, *k_norm;
} layer;

typedef struct model {
    nb_arena *a;
    nb_graph g;
    nb_qtype type;
    bool f32;
    matrix embed, head;
    layer layer[LAYERS];
    float *norm, *freq;
    nb_slot_id h, act, q, k, v, qa, oa, g1, u1, ga, r, ids, ws;
} model;

/* ---- weights ---- */

static float *normal(nb_arena *a, int64_t n, float scale)
{
    float *p = NB_NEW_N(a, float, (size_t)n);
    for (int64_t i = 0; i < n; i++) p[i] = scale * (rnd_unit() + rnd_unit());
    return p;
}

/* Quantises w [n][k] and packs it as rows16 (or rows1) at dst; w becomes what the format holds. */
static void pack(nb_arena *a, nb_qtype t, float *w, int64_t n, int64_t k, float m, nb_layout layout, uint8_t *dst)
{
    size_t cb, sb, bb;
    nb_error err;
    assert_true(nb_parts_row_bytes(t, k, &cb, &sb, &bb));
    nb_parts p = {.codes = nb_arena_alloc(a, cb * (size_t)n + 64),
                  .code_stride = cb,
                  .scales = nb_arena_alloc(a, sb * (size_t)n + 64),
                  .scale_stride = sb,
                  .biases = nb_arena_alloc(a, bb * (size_t)n + 64),
                  .bias_stride = bb};
    if (nb_quantize_rows(t, w, n, k, m, &p, &err) != NB_OK) fail_msg("%s", err.text);
    nb_dequantize_rows(t, &p, n, k, m, w);
    if (layout == NB_LAYOUT_ROWS16)
        nb_rows16_pack(t, &p, n, k, dst);
    else
        nb_rows1_pack(t, &p, n, k, dst);
}

static float multiplier_of(nb_qtype t, const float *w, int64_t n)
{
    return t.format == NB_NVFP4 ? nb_nvfp4_multiplier(nb_abs_max(w, (size_t)n)) : 1.0f;
}

static matrix matrix_new(nb_arena *a, nb_qtype t, int64_t n, int64_t k, float scale, bool bias)
{
    matrix x = {.dense = normal(a, n * k, scale)};
    uint64_t bytes;
    assert_true(nb_rows16_bytes(t, n, k, &bytes));
    uint8_t *data = nb_arena_alloc_aligned(a, bytes + 64, 4096);
    float m = multiplier_of(t, x.dense, n * k);
    pack(a, t, x.dense, n, k, m, NB_LAYOUT_ROWS16, data);
    x.w = (nb_weight){.name = "matrix",
                      .type = t,
                      .layout = NB_LAYOUT_ROWS16,
                      .n = n,
                      .k = k,
                      .data = data,
                      .bytes = bytes,
                      .multiplier = m};
    if (bias) x.w.bias = normal(a, n, 0.1f);
    return x;
}

static void bank_new(nb_arena *a, layer *l, nb_qtype t)
{
    static const int64_t n[3] = {MOE, MOE, HIDDEN}, k[3] = {HIDDEN, HIDDEN, MOE};
    uint64_t bytes[3], at = 0;
    for (int p = 0; p < 3; p++) {
        assert_true(nb_rows16_bytes(t, n[p], k[p], &bytes[p]));
        l->bank.proj[p] = (struct nb_bank_proj){.type = t, .n = n[p], .k = k[p], .offset = at};
        at += bytes[p];
        l->expert[p] = normal(a, EXPERTS * n[p] * k[p], 0.15f);
    }
    l->bank.name = "bank", l->bank.experts = EXPERTS, l->bank.stride = NB_ALIGN_UP(at, 4096);
    uint8_t *data = nb_arena_alloc_aligned(a, EXPERTS * l->bank.stride, 4096);
    l->bank.data = data;
    for (int p = 0; p < 3; p++) {
        float *m = NB_NEW_N(a, float, EXPERTS);
        for (int e = 0; e < EXPERTS; e++) {
            float *w = l->expert[p] + e * n[p] * k[p];
            m[e] = multiplier_of(t, w, n[p] * k[p]);
            pack(a, t, w, n[p], k[p], m[e], NB_LAYOUT_ROWS16,
                 data + (uint64_t)e * l->bank.stride + l->bank.proj[p].offset);
        }
        l->bank.proj[p].multiplier = m;
    }
}

static void weights_new(model *m)
{
    nb_arena *a = m->a;
    nb_qtype f32 = {NB_F32, NB_DT_NONE, 32};
    m->embed = matrix_new(a, m->type, VOCAB, HIDDEN, 0.7f, false);
    m->head = matrix_new(a, m->type, VOCAB, HIDDEN, 0.3f, false);
    for (int i = 0; i < LAYERS; i++) {
        layer *l = &m->layer[i];
        l->q = matrix_new(a, m->type, HEADS * DK, HIDDEN, 0.2f, true);
        l->k = matrix_new(a, m->type, KV_HEADS * DK, HIDDEN, 0.2f, true);
        l->v = matrix_new(a, m->type, KV_HEADS * DK, HIDDEN, 0.2f, false);
        l->o = matrix_new(a, m->type, HIDDEN, HEADS * DK, 0.1f, false);
        l->gate = matrix_new(a, m->type, FFN, HIDDEN, 0.2f, false);
        l->up = matrix_new(a, m->type, FFN, HIDDEN, 0.2f, false);
        l->down = matrix_new(a, m->type, HIDDEN, FFN, 0.1f, false);
        l->router = matrix_new(a, f32, EXPERTS, HIDDEN, 0.4f, false);
        bank_new(a, l, m->type);
        l->norm1 = normal(a, HIDDEN, 0.5f), l->norm2 = normal(a, HIDDEN, 0.5f), l->q_norm = normal(a, DK, 0.7f),
        l->k_norm = normal(a, DK, 0.7f);
    }
    m->norm = normal(a, HIDDEN, 0.6f);
    m->freq = NB_NEW_N(a, float, DK / 2);
    for (int i = 0; i < DK / 2; i++) m->freq[i] = (float)pow(10000.0, -2.0 * i / DK);
}

/* ---- the record ---- */

static void norm_op(model *m, const float *w, int32_t width, int32_t groups, nb_slot_id in, nb_slot_id out,
                    nb_slot_id act)
{
    nb_op *op = nb_graph_op(&m->g, NB_OP_RMS_NORM);
    op->u.norm.in = in, op->u.norm.out = out, op->u.norm.act = act, op->u.norm.w = w, op->u.norm.width = width,
    op->u.norm.groups = groups, op->u.norm.eps = eps;
}

static void linear_op(nb_op *op, nb_slot_id act, int parts, const matrix *const *w, const nb_slot_id *out,
                      nb_slot_id residual)
{
    op->u.linear.act = act, op->u.linear.parts = parts;
    for (int i = 0; i < parts; i++)
        op->u.linear.part[i].w = &w[i]->w, op->u.linear.part[i].out = out[i], op->u.linear.part[i].residual = residual;
}

static void record_attention(model *m, layer *l, int i)
{
    nb_graph *g = &m->g;
    norm_op(m, l->norm1, HIDDEN, 1, m->h, NB_NO_SLOT, m->act);
    linear_op(nb_graph_op(g, NB_OP_LINEAR), m->act, 3, (const matrix *[]){&l->q, &l->k, &l->v},
              (nb_slot_id[]){m->q, m->k, m->v}, NB_NO_SLOT);
    norm_op(m, l->q_norm, DK, HEADS, m->q, m->q, NB_NO_SLOT);
    norm_op(m, l->k_norm, DK, KV_HEADS, m->k, m->k, NB_NO_SLOT);
    nb_op *op = nb_graph_op(g, NB_OP_ROPE);
    int32_t kv = nb_graph_kv(g, &(nb_kv_shape){KV_HEADS, DK, DK, i ? WINDOW : 0, m->f32});
    op->u.rope.q = m->q, op->u.rope.k = m->k, op->u.rope.v = m->v, op->u.rope.q_act = m->qa, op->u.rope.layer = kv,
    op->u.rope.heads = HEADS, op->u.rope.kv_heads = KV_HEADS;
    op->u.rope.dk = DK, op->u.rope.dv = DK, op->u.rope.interleaved = i == 1;
    op = nb_graph_op(g, NB_OP_ATTENTION);
    op->u.attention.q_act = m->qa, op->u.attention.act = m->oa, op->u.attention.layer = kv,
    op->u.attention.heads = HEADS, op->u.attention.kv_heads = KV_HEADS;
    op->u.attention.dk = DK, op->u.attention.dv = DK, op->u.attention.scale = 0.1767767f;
    linear_op(nb_graph_op(g, NB_OP_LINEAR), m->oa, 1, (const matrix *[]){&l->o}, &m->h, m->h);
}

static void record_ffn(model *m, layer *l, int i)
{
    nb_graph *g = &m->g;
    nb_op *op;
    norm_op(m, l->norm2, HIDDEN, 1, m->h, NB_NO_SLOT, m->act);
    if (i == 0) {
        linear_op(nb_graph_op(g, NB_OP_LINEAR), m->act, 2, (const matrix *[]){&l->gate, &l->up},
                  (nb_slot_id[]){m->g1, m->u1}, NB_NO_SLOT);
        op = nb_graph_op(g, NB_OP_GLU);
        op->u.glu.gate = m->g1, op->u.glu.up = m->u1, op->u.glu.act = m->ga, op->u.glu.f = NB_ACT_SILU,
        op->u.glu.width = FFN;
        linear_op(nb_graph_op(g, NB_OP_LINEAR), m->ga, 1, (const matrix *[]){&l->down}, &m->h, m->h);
        return;
    }
    linear_op(nb_graph_op(g, NB_OP_LINEAR), m->act, 1, (const matrix *[]){&l->router}, &m->r, NB_NO_SLOT);
    op = nb_graph_op(g, NB_OP_ROUTE);
    op->u.route.logits = m->r, op->u.route.ids = m->ids, op->u.route.weights = m->ws, op->u.route.f = NB_ROUTER_SOFTMAX,
    op->u.route.k = USED, op->u.route.normalise = true, op->u.route.scale = 1;
    op = nb_graph_op(g, NB_OP_EXPERTS);
    op->u.experts.act = m->act, op->u.experts.ids = m->ids, op->u.experts.weights = m->ws, op->u.experts.out = m->h,
    op->u.experts.residual = m->h;
    op->u.experts.bank = &l->bank, op->u.experts.f = NB_ACT_GELU_TANH, op->u.experts.k = USED;
}

static void record(model *m)
{
    nb_graph *g = &m->g;
    g->arena = m->a;
    struct {
        nb_slot_id *id;
        nb_slot_kind kind;
        int32_t width;
        const char *name;
    } slots[] = {
        {&m->h, NB_SLOT_F32, HIDDEN, "h"},          {&m->act, NB_SLOT_ACT, HIDDEN, "act"},
        {&m->q, NB_SLOT_F32, HEADS * DK, "q"},      {&m->k, NB_SLOT_F32, KV_HEADS * DK, "k"},
        {&m->v, NB_SLOT_F32, KV_HEADS * DK, "v"},   {&m->qa, NB_SLOT_ACT, HEADS * DK, "q_act"},
        {&m->oa, NB_SLOT_ACT, HEADS * DK, "o_act"}, {&m->g1, NB_SLOT_F32, FFN, "gate"},
        {&m->u1, NB_SLOT_F32, FFN, "up"},           {&m->ga, NB_SLOT_ACT, FFN, "ffn_act"},
        {&m->r, NB_SLOT_F32, EXPERTS, "router"},    {&m->ids, NB_SLOT_I32, USED, "ids"},
        {&m->ws, NB_SLOT_F32, USED, "weights"},
    };
    for (size_t i = 0; i < NB_COUNT(slots); i++)
        *slots[i].id = nb_graph_slot(g, slots[i].kind, slots[i].width, slots[i].name);
    nb_graph_rope(g, &(nb_rope_spec){m->freq, DK / 2, 1.0});
    nb_op *op = nb_graph_op(g, NB_OP_GATHER_ROWS);
    op->u.gather.table = &m->embed.w, op->u.gather.scale = embed_scale, op->u.gather.out = m->h;
    g->n_captures = 1;
    op = nb_graph_op(g, NB_OP_CAPTURE);
    op->u.capture.in = m->h;
    for (int i = 0; i < LAYERS; i++) record_attention(m, &m->layer[i], i), record_ffn(m, &m->layer[i], i);
    norm_op(m, m->norm, HIDDEN, 1, m->h, m->h, NB_NO_SLOT);
    g->hidden = g->aux = m->h;
    g->head_in = nb_graph_slot(g, NB_SLOT_F32, HIDDEN, "head_in");
    g->logits = nb_graph_slot(g, NB_SLOT_F32, VOCAB, "logits");
    nb_slot_id act = nb_graph_slot(g, NB_SLOT_ACT, HIDDEN, "head_act");
    op = nb_graph_head_op(g, NB_OP_ROUND);
    op->u.round.in = g->head_in, op->u.round.act = act;
    linear_op(nb_graph_head_op(g, NB_OP_LINEAR), act, 1, (const matrix *[]){&m->head}, &g->logits, NB_NO_SLOT);
    op = nb_graph_head_op(g, NB_OP_SOFTCAP);
    op->u.softcap.in = op->u.softcap.out = g->logits, op->u.softcap.cap = head_cap;
}

static void model_new(model *m, nb_qtype type, bool f32)
{
    *m = (model){.a = nb_arena_new(0), .type = type, .f32 = f32};
    weights_new(m);
    record(m);
    nb_error err;
    if (nb_graph_check(&m->g, &err) != NB_OK) fail_msg("%s", err.text);
}

/* ---- the model in double ---- */

static void d_linear(const matrix *m, const double *x, double *y)
{
    for (int64_t i = 0; i < m->w.n; i++) {
        y[i] = m->w.bias ? (double)m->w.bias[i] : 0;
        for (int64_t j = 0; j < m->w.k; j++) y[i] += (double)m->dense[i * m->w.k + j] * x[j];
    }
}

static void d_norm(const double *x, const float *w, int n, double *y)
{
    double s = 0;
    for (int i = 0; i < n; i++) s += x[i] * x[i];
    for (int i = 0; i < n; i++) y[i] = x[i] / sqrt(s / n + (double)eps) * (double)w[i];
}

static void d_rope(const model *m, double *x, int t, bool interleaved)
{
    for (int i = 0; i < DK / 2; i++) {
        double a = (double)((float)t * m->freq[i]), *p = interleaved ? &x[2 * i] : &x[i],
               *q = interleaved ? &x[2 * i + 1] : &x[i + DK / 2];
        double x0 = *p, x1 = *q;
        *p = x0 * cos(a) - x1 * sin(a);
        *q = x1 * cos(a) + x0 * sin(a);
    }
}

static double kc[LAYERS][TOKENS][KV_HEADS * DK], vc[LAYERS][TOKENS][KV_HEADS * DK];

static void d_attention(const model *m, int i, int t, double *h)
{
    const layer *l = &m->layer[i];
    double x[HIDDEN], q[HEADS * DK], o[HEADS * DK] = {0}, y[HIDDEN];
    d_norm(h, l->norm1, HIDDEN, x);
    d_linear(&l->q, x, q), d_linear(&l->k, x, kc[i][t]), d_linear(&l->v, x, vc[i][t]);
    for (int n = 0; n < HEADS; n++) d_norm(q + n * DK, l->q_norm, DK, q + n * DK), d_rope(m, q + n * DK, t, i == 1);
    for (int n = 0; n < KV_HEADS; n++)
        d_norm(kc[i][t] + n * DK, l->k_norm, DK, kc[i][t] + n * DK), d_rope(m, kc[i][t] + n * DK, t, i == 1);
    for (int n = 0; n < HEADS; n++) {
        double sum = 0;
        int kv = n / (HEADS / KV_HEADS) * DK;
        for (int j = i && t >= WINDOW ? t - WINDOW + 1 : 0; j <= t; j++) {
            double s = 0;
            for (int c = 0; c < DK; c++) s += q[n * DK + c] * kc[i][j][kv + c];
            s = exp(s * 0.1767767);
            sum += s;
            for (int c = 0; c < DK; c++) o[n * DK + c] += s * vc[i][j][kv + c];
        }
        for (int c = 0; c < DK; c++) o[n * DK + c] /= sum;
    }
    d_linear(&l->o, o, y);
    for (int c = 0; c < HIDDEN; c++) h[c] += y[c];
}

static void d_experts(const layer *l, const double *x, double *h)
{
    double r[EXPERTS], p[EXPERTS], sum = 0, norm = 0;
    d_linear(&l->router, x, r);
    for (int e = 0; e < EXPERTS; e++) sum += p[e] = exp(r[e]);
    int best[USED];
    for (int s = 0; s < USED; s++) {
        best[s] = -1;
        for (int e = 0; e < EXPERTS; e++) {
            bool used = false;
            for (int b = 0; b < s; b++) used |= best[b] == e;
            if (!used && (best[s] < 0 || p[e] > p[best[s]])) best[s] = e;
        }
        norm += p[best[s]] / sum;
    }
    for (int s = 0; s < USED; s++) {
        double mid[MOE];
        for (int i = 0; i < MOE; i++) {
            double g = 0, u = 0;
            for (int j = 0; j < HIDDEN; j++)
                g += (double)l->expert[0][(best[s] * MOE + i) * HIDDEN + j] * x[j],
                    u += (double)l->expert[1][(best[s] * MOE + i) * HIDDEN + j] * x[j];
            mid[i] = 0.5 * g * (1 + tanh(sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u;
        }
        for (int i = 0; i < HIDDEN; i++) {
            double y = 0;
            for (int j = 0; j < MOE; j++) y += (double)l->expert[2][(best[s] * HIDDEN + i) * MOE + j] * mid[j];
            h[i] += p[best[s]] / sum / norm * y;
        }
    }
}

static void d_token(const model *m, int id, int t, double *logits)
{
    double h[HIDDEN], x[HIDDEN];
    for (int c = 0; c < HIDDEN; c++) h[c] = (double)m->embed.dense[id * HIDDEN + c] * (double)embed_scale;
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &m->layer[i];
        d_attention(m, i, t, h);
        d_norm(h, l->norm2, HIDDEN, x);
        if (i == 0) {
            double g[FFN], u[FFN], y[HIDDEN];
            d_linear(&l->gate, x, g), d_linear(&l->up, x, u);
            for (int c = 0; c < FFN; c++) g[c] = g[c] / (1 + exp(-g[c])) * u[c];
            d_linear(&l->down, g, y);
            for (int c = 0; c < HIDDEN; c++) h[c] += y[c];
        } else {
            d_experts(l, x, h);
        }
    }
    d_norm(h, m->norm, HIDDEN, x);
    d_linear(&m->head, x, logits);
    for (int c = 0; c < VOCAB; c++) logits[c] = (double)head_cap * tanh(logits[c] / (double)head_cap);
}

/* ---- runs ---- */

enum { MAX_SEQ = 3 };
typedef struct caches {
    uint8_t *memory;
    uint8_t *block[MAX_SEQ][LAYERS][2];
    nb_kv_view view[MAX_SEQ][LAYERS];
    const nb_kv_view *seq[MAX_SEQ];
} caches;

static void caches_new(caches *c, const model *m)
{
    size_t bytes = NB_ALIGN_UP(nb_kv_block_bytes(&m->g.kv[0]), (size_t)64);
    uint8_t *p = c->memory = aligned_alloc(64, bytes * MAX_SEQ * LAYERS * 2);
    memset(p, 0, bytes * MAX_SEQ * LAYERS * 2);
    for (int s = 0; s < MAX_SEQ; s++) {
        for (int l = 0; l < LAYERS; l++) {
            for (int b = 0; b < 2; b++, p += bytes) c->block[s][l][b] = p;
            c->view[s][l] = (nb_kv_view){c->block[s][l], 2, 0};
        }
        c->seq[s] = c->view[s];
    }
}

static nb_plan *plan_of(const model *m, const char *tier, int lanes, int32_t chunk)
{
    nb_plan *p;
    nb_error err;
    nb_plan_options o = {.chunk = chunk, .threads = lanes, .f32 = m->f32, .tier = tier};
    if (nb_cpu_backend.plan_new(&p, &m->g, &o, &err) != NB_OK) fail_msg("%s", err.text);
    return p;
}

static int32_t token(int s, int t) { return (s * 37 + t * t * 11 + t) % VOCAB; }

/* Logits [TOKENS][VOCAB] of sequence 0, `chunk` rows at a time; `others` further sequences run along in the same
 * batches (rows interleaved by run). */
static void run_model(const model *m, const char *tier, int lanes, int32_t chunk, int others, float *logits)
{
    nb_plan *p = plan_of(m, tier, lanes, chunk * (1 + others));
    caches c;
    caches_new(&c, m);
    int32_t ids[TOKENS * MAX_SEQ], seq[TOKENS * MAX_SEQ], slot[TOKENS * MAX_SEQ], rows[NB_LOGIT_ROWS];
    uint8_t bad[MAX_SEQ] = {0};
    for (int32_t t = 0; t < TOKENS; t += chunk) {
        int32_t n = 0, len = chunk < TOKENS - t ? chunk : TOKENS - t, at = 0;
        for (int s = others; s >= 0; s--) {
            if (s == 0) at = n;
            for (int32_t i = 0; i < len; i++, n++) ids[n] = token(s, t + i), seq[n] = s, slot[n] = t + i;
        }
        nb_batch b = {.rows = n, .ids = ids, .seq = seq, .slot = slot, .n_seqs = 1 + others, .kv = c.seq, .bad = bad};
        nb_cpu_backend.forward(p, &b);
        for (int32_t i = 0; i < len;) {
            int32_t k = len - i < 7 ? len - i : 7;
            for (int32_t j = 0; j < k; j++) rows[j] = at + i + j;
            memcpy(logits + (t + i) * VOCAB, nb_cpu_backend.unembed(p, rows, k), (size_t)k * VOCAB * 4);
            i += k;
        }
    }
    for (int s = 0; s <= others; s++) assert_int_equal(bad[s], 0);
    assert_int_equal(nb_find_nonfinite(logits, TOKENS * VOCAB), -1);
    free(c.memory);
    nb_cpu_backend.plan_free(p);
}

static const char *type_name(nb_qtype t)
{
    static char name[32];
    nb_qtype_name(t, name);
    return name;
}

static void test_against_double(void **state)
{
    UNUSED_STATE;
    static float logits[TOKENS * VOCAB];
    static const nb_qtype types[] = {
        {NB_F32, NB_DT_NONE, 32}, {NB_BF16, NB_DT_NONE, 32}, {NB_NVFP4, NB_DT_F8_E4M3, 16}, {NB_INT4, NB_DT_BF16, 32}};
    for (size_t k = 0; k < NB_COUNT(types); k++) {
        model m;
        model_new(&m, types[k], true);
        run_model(&m, NULL, 2, 16, 0, logits);
        double error = 0, size = 0, want[VOCAB];
        for (int t = 0; t < TOKENS; t++) {
            d_token(&m, token(0, t), t, want);
            for (int i = 0; i < VOCAB; i++)
                error += pow((double)logits[t * VOCAB + i] - want[i], 2), size += want[i] * want[i];
        }
        print_message("%s, float32 mode: logits within %.2e relative RMS of double\n", type_name(m.type),
                      sqrt(error / size));
        assert_true(sqrt(error / size) < 2e-5);
        nb_arena_free(m.a);
    }
}

static void compare_runs(const model *m, const float *want, const char *tier, int lanes, int32_t chunk, int others)
{
    static float got[TOKENS * VOCAB];
    run_model(m, tier, lanes, chunk, others, got);
    int64_t i = differ(want, got, TOKENS * VOCAB);
    if (i >= 0)
        fail_msg("%s: tier %s, %d lanes, chunk %d, %d other sequences: row %lld differs", type_name(m->type), tier,
                 lanes, chunk, others, (long long)(i / VOCAB));
}

static void test_same_bits(void **state)
{
    UNUSED_STATE;
    static float want[TOKENS * VOCAB];
    static const nb_qtype types[] = {{NB_BF16, NB_DT_NONE, 32},     {NB_F32, NB_DT_NONE, 32},
                                     {NB_NVFP4, NB_DT_F8_E4M3, 16}, {NB_MXFP4, NB_DT_F8_E8M0, 32},
                                     {NB_MXFP8, NB_DT_F8_E8M0, 32}, {NB_INT4, NB_DT_BF16, 32},
                                     {NB_INT8, NB_DT_BF16, 32}};
    int runs = 0;
    uint64_t digest = 1; /* to compare compilers by */
    for (size_t k = 0; k < (SLOW_BUILD ? 1 : NB_COUNT(types)); k++) {
        for (int f32 = 0; f32 < 2; f32++) {
            model m;
            model_new(&m, types[k], f32);
            run_model(&m, "c", 1, 32, 0, want);
            digest = nb_hash_bytes(want, sizeof want, digest);
            for (int t = 0; t < NB_TIER_COUNT; t++) {
                if (!nb_tier_available((nb_tier)t)) continue;
                for (int lanes = 1; lanes <= 3; lanes++) {
                    compare_runs(&m, want, nb_tier_name((nb_tier)t), lanes, lanes == 2 ? 1 : 13, 0), runs++;
                    compare_runs(&m, want, nb_tier_name((nb_tier)t), lanes, lanes == 3 ? 1 : 29, 2), runs++;
                }
            }
            nb_arena_free(m.a);
        }
    }
    print_message("%d runs gave the bits of tier c, one lane, 32 rows; digest of the logits %016llx\n", runs,
                  (unsigned long long)digest);
}

/* One sequence leaves the domain: it is marked, the other's rows keep their bits and its cache stays finite. */
static void test_domain(void **state)
{
    UNUSED_STATE;
    model m;
    model_new(&m, (nb_qtype){NB_F32, NB_DT_NONE, 32}, false);
    float clean[2 * HIDDEN], *table = (float *)(uintptr_t)m.embed.w.data;
    for (int wrong = 0; wrong < 2; wrong++) {
        if (wrong) table[0] = INFINITY; /* row 0, channel 0 in rows16 */
        nb_plan *p = plan_of(&m, NULL, 2, 8);
        caches c;
        caches_new(&c, &m);
        int32_t ids[4] = {0, 1, 2, 3}, seq[4] = {0, 0, 1, 1}, slot[4] = {0, 1, 0, 1};
        uint8_t bad[2] = {0};
        nb_batch b = {.rows = 4, .ids = ids, .seq = seq, .slot = slot, .n_seqs = 2, .kv = c.seq, .bad = bad};
        nb_cpu_backend.forward(p, &b);
        const float *h = nb_cpu_backend.slot(p, m.g.hidden);
        if (!wrong) memcpy(clean, h + 2 * HIDDEN, sizeof clean);
        assert_int_equal(bad[0], wrong);
        assert_int_equal(bad[1], 0);
        assert_memory_equal(clean, h + 2 * HIDDEN, sizeof clean);
        size_t words = nb_kv_block_bytes(&m.g.kv[0]) / 2;
        for (int l = 0; l < LAYERS; l++)
            for (size_t i = 0; i < words; i++) assert_true((nb_load_u16(c.block[0][l][0] + 2 * i) & 0x7f80) != 0x7f80);
        const float *logits = nb_cpu_backend.unembed(p, (int32_t[]){0, 2}, 2);
        assert_int_equal(nb_find_nonfinite(logits + VOCAB, VOCAB), -1);
        if (wrong) assert_int_equal(nb_find_nonfinite(logits, VOCAB), 0);
        free(c.memory);
        nb_cpu_backend.plan_free(p);
    }
    nb_arena_free(m.a);
}

static void test_capture_and_routes(void **state)
{
    UNUSED_STATE;
    model m;
    model_new(&m, (nb_qtype){NB_BF16, NB_DT_NONE, 32}, false);
    nb_plan *p = plan_of(&m, NULL, 1, 8);
    caches c;
    caches_new(&c, &m);
    int32_t ids[3] = {5, 6, 7}, seq[3] = {0}, slot[3] = {0, 1, 2}, chosen[3 * USED], *routes[1] = {chosen};
    float hidden[3 * HIDDEN], *capture[1] = {hidden};
    uint8_t bad[1] = {0};
    nb_batch b = {.rows = 3,
                  .ids = ids,
                  .seq = seq,
                  .slot = slot,
                  .n_seqs = 1,
                  .kv = c.seq,
                  .bad = bad,
                  .capture = capture,
                  .routes = routes,
                  .n_routes = 1};
    uint32_t before = nb_fpu_enter();
    nb_fpu_leave(before);
    nb_cpu_backend.forward(p, &b);
    assert_int_equal(nb_fpu_enter(), before); /* the caller's mode came back */
    nb_fpu_leave(before);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < HIDDEN; i++)
            assert_true(hidden[r * HIDDEN + i] == m.embed.dense[ids[r] * HIDDEN + i] * embed_scale);
    for (int i = 0; i < 3 * USED; i++) assert_in_range(chosen[i], 0, EXPERTS - 1);
    assert_string_equal(nb_cpu_backend.plan_tier(p), nb_tier_name(nb_tier_best()));
    assert_string_equal(nb_cpu_backend.plan_order(p), "tile");
    print_message("plan: %llu bytes\n", (unsigned long long)nb_cpu_backend.plan_bytes(p));
    free(c.memory);
    nb_cpu_backend.plan_free(p);
    nb_arena_free(m.a);
}

/* Where the lanes meet: dense layer: norm | qkv | norms, rope | attention | o | norm | gate, up, glu | down |; the
 * other layer's route and experts add theirs. */
static void test_barriers(void **state)
{
    UNUSED_STATE;
    model m;
    model_new(&m, (nb_qtype){NB_BF16, NB_DT_NONE, 32}, false);
    nb_plan *p = plan_of(&m, NULL, 2, 8);
    int count = 0, dense = 0;
    for (int32_t i = 0; i < m.g.n_ops; i++) {
        const nb_step *s = &p->forward[i];
        count += s->barrier;
        if (i == m.g.n_ops / 2) dense = count;
        if (s->op->kind == NB_OP_GLU) assert_false(s->barrier); /* same columns as gate and up */
        if (s->op->kind == NB_OP_ROPE) assert_false(s->barrier);
        if (s->op->kind == NB_OP_ATTENTION || s->op->kind == NB_OP_LINEAR) assert_true(s->barrier);
    }
    assert_false(p->forward[0].barrier);
    assert_false(p->head[2].barrier); /* the soft cap goes on with the head's columns */
    print_message("%d barriers for %d steps, %d in the first half\n", count, m.g.n_ops, dense);
    assert_true(count <= 8 + 9 + 1);
    nb_cpu_backend.plan_free(p);
    nb_arena_free(m.a);
}

static void test_no_allocation(void **state)
{
    UNUSED_STATE;
    model m;
    model_new(&m, (nb_qtype){NB_NVFP4, NB_DT_F8_E4M3, 16}, false);
    nb_plan *p = plan_of(&m, NULL, 2, 16);
    caches c;
    caches_new(&c, &m);
    int32_t ids[16], seq[16] = {0}, slot[16];
    uint8_t bad[1] = {0};
    nb_batch b = {.ids = ids, .seq = seq, .slot = slot, .n_seqs = 1, .kv = c.seq, .bad = bad};
    long before = allocations;
    for (int32_t t = 0; t < TOKENS; t += b.rows) {
        b.rows = t == 0 ? 16 : 1;
        for (int32_t i = 0; i < b.rows; i++) ids[i] = token(0, t + i), slot[i] = t + i;
        nb_cpu_backend.forward(p, &b);
        nb_cpu_backend.unembed(p, (int32_t[]){b.rows - 1}, 1);
    }
    assert_int_equal(allocations - before, 0);
    if (!COUNTS_ALLOCATIONS) print_message("allocations are not counted in this build\n");
    free(c.memory);
    nb_cpu_backend.plan_free(p);
    nb_arena_free(m.a);
}

static void test_refusals(void **state)
{
    UNUSED_STATE;
    model m;
    nb_plan *p;
    nb_error err;
    model_new(&m, (nb_qtype){NB_BF16, NB_DT_NONE, 32}, false);
    assert_int_equal(nb_cpu_backend.plan_new(&p, &m.g, &(nb_plan_options){.chunk = 0, .threads = 1}, &err), NB_E_USAGE);
    assert_int_equal(nb_cpu_backend.plan_new(&p, &m.g, &(nb_plan_options){.chunk = 8, .threads = 0}, &err), NB_E_USAGE);
    assert_int_equal(
        nb_cpu_backend.plan_new(&p, &m.g, &(nb_plan_options){.chunk = 8, .threads = 1, .tier = "sse9"}, &err),
        NB_E_USAGE);
    print_message("%s\n", err.text);
    assert_int_equal(
        nb_cpu_backend.plan_new(&p, &m.g, &(nb_plan_options){.chunk = 8, .threads = 1, .tier = "amx"}, &err),
        NB_E_USAGE);
    print_message("%s\n", err.text);
    assert_int_equal(nb_cpu_backend.plan_new(&p, &m.g, &(nb_plan_options){.chunk = 8, .threads = 1, .f32 = true}, &err),
                     NB_E_INVALID);
    print_message("%s\n", err.text);
    nb_arena_free(m.a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double), cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_domain),         cmocka_unit_test(test_capture_and_routes),
        cmocka_unit_test(test_barriers),       cmocka_unit_test(test_no_allocation),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
