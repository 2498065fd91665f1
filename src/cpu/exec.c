/* The CPU backend: making a plan, running it. Memory is laid out once; a forward only walks steps (design.md 5 and 6).
 */
#include "cpu/exec.h"

#include <math.h>
#include <sys/mman.h>

enum { MAX_CHUNK = 4096, PAGE = 4096 };

/* ---- laying out the mapping: run once with base NULL to measure, once to place ---- */

typedef struct layout {
    uint8_t *base;
    uint64_t at;
    bool overflow;
} layout;

static uint8_t *place(layout *l, uint64_t count, uint64_t size, uint64_t align)
{
    uint64_t bytes, from, to;
    if (!nb_mul_u64(count, size, &bytes) || !nb_align_u64(l->at, align, &from) || !nb_add_u64(from, bytes, &to) ||
        to > SIZE_MAX / 2) {
        l->overflow = true;
        return NULL;
    }
    l->at = to;
    return l->base ? l->base + from : NULL;
}

static void place_slots(nb_plan *p, layout *l)
{
    for (int32_t i = 0; i < p->g->n_slots; i++) {
        nb_slot_mem *m = &p->slots[i];
        m->stride = p->g->slots[i].kind == NB_SLOT_ACT ? (size_t)nb_pad32(p->g->slots[i].width) * p->elem
                                                       : (size_t)p->g->slots[i].width * 4;
        m->p = place(l, (uint64_t)m->rows, m->stride, 64);
    }
}

/* What the lanes share inside an attention or experts op: the largest that any op needs. */
static void place_shared(nb_plan *p, layout *l)
{
    size_t partial = 0, state = 0, act = 0;
    for (int32_t i = 0; i < p->g->n_ops; i++) {
        size_t a = 0, b = 0, c = 0;
        if (p->g->ops[i].kind == NB_OP_ATTENTION) nb_attention_shared_floats(p, &p->g->ops[i], &a, &b);
        if (p->g->ops[i].kind == NB_OP_EXPERTS) c = nb_experts_shared_bytes(p, &p->g->ops[i]);
        partial = a > partial ? a : partial;
        state = b > state ? b : state;
        act = c > act ? c : act;
    }
    p->experts_act = place(l, act, 1, 64);
    p->attn.partial = (float *)(void *)place(l, partial, 4, 64);
    p->attn.state = (float *)(void *)place(l, state, 4, 64);
}

static void place_all(nb_plan *p, layout *l)
{
    place_slots(p, l);
    for (int32_t i = 0; i < p->g->n_ropes; i++)
        p->rope[i] = (float *)(void *)place(l, (uint64_t)p->chunk * 2, (uint64_t)p->g->ropes[i].pairs * 4, 64);
    place_shared(p, l);
    for (int32_t i = 0; i < p->n_lanes; i++) {
        p->lane[i].linear = place(l, 1, p->linear_bytes, PAGE);
        p->lane[i].temp = place(l, 1, p->temp_bytes, PAGE);
    }
}

/* ---- what the graph needs ---- */

static void max_k_of(const nb_op *op, int64_t *k)
{
    if (op->kind == NB_OP_LINEAR) {
        for (int i = 0; i < op->u.linear.parts; i++)
            *k = op->u.linear.part[i].w->k > *k ? op->u.linear.part[i].w->k : *k;
    } else if (op->kind == NB_OP_EXPERTS) {
        for (int i = 0; i < NB_PROJ_COUNT; i++)
            *k = op->u.experts.bank->proj[i].k > *k ? op->u.experts.bank->proj[i].k : *k;
    }
}

static void measure_scratch(nb_plan *p)
{
    int64_t k = 32;
    p->temp_bytes = 64;
    for (int32_t i = 0; i < p->g->n_ops + p->g->n_head; i++) {
        const nb_op *op = i < p->g->n_ops ? &p->g->ops[i] : &p->g->head[i - p->g->n_ops];
        size_t temp = nb_op_temp_bytes(p, op);
        p->temp_bytes = temp > p->temp_bytes ? temp : p->temp_bytes;
        max_k_of(op, &k);
    }
    p->linear_bytes = p->k.linear_scratch(k, p->chunk > NB_LOGIT_ROWS ? p->chunk : NB_LOGIT_ROWS);
}

static void use_slot(nb_plan *p, nb_slot_id s, int32_t rows)
{
    if (s != NB_NO_SLOT && p->slots[s].rows < rows) p->slots[s].rows = rows;
}

static void use_slots_of(nb_plan *p, const nb_op *op, int32_t rows)
{
    switch ((nb_op_kind)op->kind) {
    case NB_OP_GATHER_ROWS: use_slot(p, op->u.gather.out, rows); break;
    case NB_OP_ROUND: use_slot(p, op->u.round.in, rows), use_slot(p, op->u.round.act, rows); break;
    case NB_OP_RMS_NORM:
        use_slot(p, op->u.norm.in, rows), use_slot(p, op->u.norm.out, rows), use_slot(p, op->u.norm.act, rows);
        break;
    case NB_OP_LINEAR:
        use_slot(p, op->u.linear.act, rows);
        for (int i = 0; i < op->u.linear.parts; i++)
            use_slot(p, op->u.linear.part[i].out, rows), use_slot(p, op->u.linear.part[i].residual, rows);
        break;
    case NB_OP_ROPE:
        use_slot(p, op->u.rope.q, rows), use_slot(p, op->u.rope.k, rows), use_slot(p, op->u.rope.v, rows),
            use_slot(p, op->u.rope.q_act, rows);
        break;
    case NB_OP_ATTENTION:
        use_slot(p, op->u.attention.q_act, rows), use_slot(p, op->u.attention.out, rows),
            use_slot(p, op->u.attention.act, rows);
        break;
    case NB_OP_GLU:
        use_slot(p, op->u.glu.gate, rows), use_slot(p, op->u.glu.up, rows), use_slot(p, op->u.glu.act, rows);
        break;
    case NB_OP_ADD:
        use_slot(p, op->u.add.a, rows), use_slot(p, op->u.add.b, rows), use_slot(p, op->u.add.out, rows);
        break;
    case NB_OP_SCALE: use_slot(p, op->u.scale.in, rows), use_slot(p, op->u.scale.out, rows); break;
    case NB_OP_SOFTCAP: use_slot(p, op->u.softcap.in, rows), use_slot(p, op->u.softcap.out, rows); break;
    case NB_OP_ROUTE:
        use_slot(p, op->u.route.logits, rows), use_slot(p, op->u.route.ids, rows),
            use_slot(p, op->u.route.weights, rows);
        break;
    case NB_OP_EXPERTS:
        use_slot(p, op->u.experts.act, rows), use_slot(p, op->u.experts.ids, rows),
            use_slot(p, op->u.experts.weights, rows);
        use_slot(p, op->u.experts.out, rows), use_slot(p, op->u.experts.residual, rows);
        break;
    case NB_OP_CAPTURE: use_slot(p, op->u.capture.in, rows); break;
    case NB_OP_COUNT: break;
    }
}

static void measure_rows(nb_plan *p)
{
    const nb_graph *g = p->g;
    for (int32_t i = 0; i < g->n_ops; i++) use_slots_of(p, &g->ops[i], p->chunk);
    use_slot(p, g->hidden, p->chunk);
    use_slot(p, g->aux, p->chunk);
    for (int32_t i = 0; i < g->n_head; i++) use_slots_of(p, &g->head[i], NB_LOGIT_ROWS);
    use_slot(p, g->head_in, NB_LOGIT_ROWS);
    use_slot(p, g->logits, NB_LOGIT_ROWS);
}

/* ---- plan_new ---- */

static nb_status need_kernel(const nb_plan *p, nb_qtype t, int64_t k, const char *name, nb_error *err)
{
    size_t bytes;
    char type[32];
    nb_qtype_name(t, type);
    if (t.format >= NB_FORMAT_COUNT || !p->k.linear[t.format][p->f32])
        return nb_fail(err, NB_E_UNSUPPORTED, "%s: no product kernel for %s", name ? name : "weight", type);
    if (!nb_rows16_tile_bytes(t, k, &bytes))
        return nb_fail(err, NB_E_INVALID, "%s: %lld columns do not fit %s", name ? name : "weight", (long long)k, type);
    return NB_OK;
}

static nb_status check_kernels(const nb_plan *p, nb_error *err)
{
    const nb_graph *g = p->g;
    for (int32_t i = 0; i < g->n_ops + g->n_head; i++) {
        const nb_op *op = i < g->n_ops ? &g->ops[i] : &g->head[i - g->n_ops];
        if (op->kind == NB_OP_LINEAR) {
            for (int j = 0; j < op->u.linear.parts; j++) {
                const nb_weight *w = op->u.linear.part[j].w;
                nb_status s = need_kernel(p, w->type, w->k, w->name, err);
                if (s != NB_OK) return s;
            }
        } else if (op->kind == NB_OP_EXPERTS) {
            const nb_bank *b = op->u.experts.bank;
            for (int j = 0; j < NB_PROJ_COUNT; j++) {
                nb_status s = b->proj[j].n ? need_kernel(p, b->proj[j].type, b->proj[j].k, b->name, err) : NB_OK;
                if (s != NB_OK) return s;
            }
        }
    }
    for (int32_t i = 0; i < g->n_kv; i++)
        if (g->kv[i].f32 != p->f32)
            return nb_fail(err, NB_E_INVALID, "graph: kv layer %d is %s, the plan is not", i,
                           g->kv[i].f32 ? "f32" : "bf16");
    return NB_OK;
}

static nb_status choose_tier(nb_tier *out, const char *name, nb_error *err)
{
    *out = nb_tier_best();
    if (!name) return NB_OK;
    if (!nb_tier_parse(out, name))
        return nb_fail(err, NB_E_USAGE, "tier '%s' is unknown; known: c, avx2, avx512, avx512bf16, amx", name);
    if (!nb_tier_available(*out)) return nb_fail(err, NB_E_USAGE, "tier '%s' is not available on this machine", name);
    return NB_OK;
}

static bool small_arrays(nb_plan *p)
{
    const nb_graph *g = p->g;
    nb_arena *a = p->arena;
    p->slots = NB_NEW_N(a, nb_slot_mem, (size_t)g->n_slots);
    p->forward = NB_NEW_N(a, nb_step, (size_t)g->n_ops);
    p->head = NB_NEW_N(a, nb_step, (size_t)g->n_head);
    p->rope = NB_NEW_N(a, float *, (size_t)g->n_ropes);
    p->lane = NB_NEW_N(a, nb_lane_mem, (size_t)p->n_lanes);
    uint8_t *state = nb_arena_alloc(a, nb_plan_state_bytes(g));
    if (!p->slots || !p->forward || !p->head || !p->rope || !p->lane || !state) return false;
    nb_plan_steps(p, g->ops, g->n_ops, p->forward, state);
    nb_plan_steps(p, g->head, g->n_head, p->head, state);
    for (int32_t i = 0; i < NB_LOGIT_ROWS; i++) p->head_seq[i] = i;
    return true;
}

/* One anonymous mapping, zeroed by the kernel, on huge pages where the system gives them. */
static nb_status map_memory(nb_plan *p, nb_error *err)
{
    layout l = {0};
    place_all(p, &l);
    if (l.overflow) return nb_fail(err, NB_E_NO_MEMORY, "plan: the scratch of %d rows is too large", p->chunk);
    p->map_bytes = NB_ALIGN_UP((size_t)l.at + 1, (size_t)PAGE);
    void *m = mmap(NULL, p->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (m == MAP_FAILED) return nb_fail(err, NB_E_NO_MEMORY, "plan: %zu bytes of scratch: out of memory", p->map_bytes);
    madvise(m, p->map_bytes, MADV_HUGEPAGE);
    p->map = m;
    l = (layout){.base = m};
    place_all(p, &l);
    return NB_OK;
}

static void cpu_plan_free(nb_plan *p)
{
    if (!p) return;
    nb_lanes_free(p->lanes);
    if (p->map) munmap(p->map, p->map_bytes);
    nb_arena_free(p->arena);
}

static nb_status cpu_plan_new(nb_plan **out, const nb_graph *g, const nb_plan_options *o, nb_error *err)
{
    *out = NULL;
    nb_tier tier;
    if (o->chunk < 1 || o->chunk > MAX_CHUNK)
        return nb_fail(err, NB_E_USAGE, "chunk: %d is not from 1 to %d", o->chunk, MAX_CHUNK);
    nb_status s = choose_tier(&tier, o->tier, err);
    if (s == NB_OK) s = nb_graph_check(g, err);
    if (s != NB_OK) return s;
    nb_arena *a = nb_arena_new(0);
    nb_plan *p = a ? NB_NEW(a, nb_plan) : NULL;
    if (!p) {
        nb_arena_free(a);
        return nb_fail(err, NB_E_NO_MEMORY, "plan: out of memory");
    }
    p->arena = a;
    p->g = g;
    p->chunk = o->chunk;
    p->f32 = o->f32;
    p->elem = o->f32 ? 4 : 2;
    nb_kernels_init(&p->k, tier);
    if ((s = check_kernels(p, err)) != NB_OK) goto fail;
    if ((s = nb_lanes_new(&p->lanes, o->threads, err)) != NB_OK) goto fail;
    p->n_lanes = o->threads;
    if (!small_arrays(p)) {
        s = nb_fail(err, NB_E_NO_MEMORY, "plan: out of memory");
        goto fail;
    }
    measure_rows(p);
    measure_scratch(p);
    if ((s = map_memory(p, err)) != NB_OK) goto fail;
    *out = p;
    return NB_OK;
fail:
    cpu_plan_free(p);
    return s;
}

/* ---- running ---- */

/* Rotary rows of this step's positions: fp32 angle, cosine and sine in double (design.md 4). Each lane makes those of
 * its own rows, which are the rows that it rotates. */
static void make_rotary(const nb_run *r, int lane)
{
    nb_plan *p = r->p;
    int64_t from, to;
    nb_split(r->rows, lane, p->n_lanes, &from, &to);
    for (int32_t i = 0; i < p->g->n_ropes; i++) {
        const nb_rope_spec *spec = &p->g->ropes[i];
        for (int64_t row = from; row < to; row++) {
            float *c = p->rope[i] + row * 2 * spec->pairs, *s = c + spec->pairs;
            float position = (float)r->b->slot[row];
            for (int32_t j = 0; j < spec->pairs; j++) {
                float angle = position * spec->freq[j];
                c[j] = (float)(cos((double)angle) * spec->factor);
                s[j] = (float)(sin((double)angle) * spec->factor);
            }
        }
    }
}

static void lane_main(void *arg, int lane, int lanes)
{
    const nb_run *r = arg;
    (void)lanes;
    uint32_t saved = nb_fpu_enter();
    nb_guard_on();
    if (r->b) make_rotary(r, lane);
    for (int32_t i = 0; i < r->n_steps; i++) {
        if (r->steps[i].barrier) nb_lanes_barrier(r->p->lanes, lane);
        nb_run_op(r, &r->steps[i], lane);
    }
    nb_guard_off();
    nb_fpu_leave(saved);
}

static void cpu_forward(nb_plan *p, const nb_batch *b)
{
    if (b->rows < 1 || b->rows > p->chunk) return;
    nb_run r = {
        .p = p, .steps = p->forward, .n_steps = p->g->n_ops, .rows = b->rows, .b = b, .seq = b->seq, .bad = b->bad};
    nb_lanes_run(p->lanes, lane_main, &r);
}

static const float *cpu_unembed(nb_plan *p, const int32_t *rows, int32_t n)
{
    const nb_graph *g = p->g;
    n = n < NB_LOGIT_ROWS ? n : NB_LOGIT_ROWS;
    for (int32_t i = 0; i < n; i++)
        memcpy(nb_slot_f32(p, g->head_in, i), nb_slot_f32(p, g->hidden, rows[i]), p->slots[g->hidden].stride);
    memset(p->head_bad, 0, sizeof p->head_bad);
    nb_run r = {.p = p, .steps = p->head, .n_steps = g->n_head, .rows = n, .seq = p->head_seq, .bad = p->head_bad};
    if (n > 0) nb_lanes_run(p->lanes, lane_main, &r);
    /* A row whose hidden state left the domain has no logits: the runner finds the NaN (nb_find_nonfinite). */
    for (int32_t i = 0; i < n; i++)
        if (p->head_bad[i]) *nb_slot_f32(p, g->logits, i) = __builtin_nanf("");
    return nb_slot_f32(p, g->logits, 0);
}

static uint64_t cpu_plan_bytes(const nb_plan *p) { return p->map_bytes + nb_arena_used(p->arena); }
static const char *cpu_plan_tier(const nb_plan *p) { return nb_tier_name(p->k.tier); }
static const char *cpu_plan_order(const nb_plan *p)
{
    (void)p;
    return "tile";
}
static const float *cpu_slot(nb_plan *p, nb_slot_id s)
{
    if (s < 0 || s >= p->g->n_slots || p->g->slots[s].kind != NB_SLOT_F32 || !p->slots[s].rows) return NULL;
    return nb_slot_f32(p, s, 0);
}

const nb_backend nb_cpu_backend = {
    .name = "cpu",
    .plan_new = cpu_plan_new,
    .plan_free = cpu_plan_free,
    .plan_bytes = cpu_plan_bytes,
    .plan_tier = cpu_plan_tier,
    .plan_order = cpu_plan_order,
    .forward = cpu_forward,
    .unembed = cpu_unembed,
    .slot = cpu_slot,
};
