/* Making a plan's steps: who does which part of an op, and where the lanes must meet. */
#include "cpu/exec.h"

/* What one access looks like to the hazard check below. Positive codes: lane i touches the same part of the slot in
 * every step of that code. */
enum {
    CODE_NONE = 0,
    CODE_ANY = -1, /* the part is not known, or all of it */
    CODE_ROWS = 1,
    CODE_COLS = 16, /* + tiles */
};

typedef struct hazard {
    /* Code of the writes and reads since the last barrier: [slots + kv layers + 1 for what lanes share inside an op] */
    int32_t *w, *r;
    int32_t n;
} hazard;

size_t nb_plan_state_bytes(const nb_graph *g)
{
    return 2 * sizeof(int32_t) * ((size_t)g->n_slots + (size_t)g->n_kv + 1);
}

static int32_t tiles_of(int64_t width) { return (int32_t)(nb_pad16(width) / 16); }

/* Parts of equal height are split alike, so that what follows may go on with the same columns. */
static bool linear_even(const nb_graph *g, const nb_op *op)
{
    for (int i = 0; i < op->u.linear.parts; i++) {
        const nb_weight *w = op->u.linear.part[i].w;
        if (w->n != op->u.linear.part[0].w->n || op->u.linear.part[i].col ||
            g->slots[op->u.linear.part[i].out].width != w->n)
            return false;
    }
    return true;
}

/* Element-wise ops go with whatever came before them. */
static void share_like(nb_step *s, const nb_step *before, int64_t width)
{
    s->tiles = tiles_of(width);
    if (before && before->share == NB_SHARE_ROWS)
        s->share = NB_SHARE_ROWS;
    else
        s->share = NB_SHARE_COLS;
}

static void choose_share(const nb_graph *g, nb_step *s, const nb_step *before)
{
    const nb_op *op = s->op;
    switch ((nb_op_kind)op->kind) {
    case NB_OP_LINEAR:
        s->share = NB_SHARE_OWN;
        if (linear_even(g, op)) {
            s->share = NB_SHARE_COLS;
            s->tiles = tiles_of(op->u.linear.part[0].w->n);
        }
        break;
    case NB_OP_GLU: share_like(s, before, op->u.glu.width); break;
    case NB_OP_ADD: share_like(s, before, g->slots[op->u.add.out].width); break;
    case NB_OP_SCALE: share_like(s, before, g->slots[op->u.scale.out].width); break;
    case NB_OP_SOFTCAP: share_like(s, before, g->slots[op->u.softcap.out].width); break;
    case NB_OP_ATTENTION:
    case NB_OP_EXPERTS: s->share = NB_SHARE_OWN; break;
    default: s->share = NB_SHARE_ROWS; break;
    }
}

/* ---- hazards: a step must wait where it touches what another lane may have touched since the last barrier ---- */

typedef struct access {
    int32_t at, code;
    bool write;
} access;
enum { MAX_ACCESS = 2 * NB_LINEAR_PARTS + 2 };
static int32_t inside(const nb_graph *g) { return g->n_slots + g->n_kv; }

static void touch(access *a, int *n, nb_slot_id at, int32_t code, bool write)
{
    if (at != NB_NO_SLOT) a[(*n)++] = (access){at, code, write};
}

static int accesses(const nb_graph *g, const nb_step *s, access *a)
{
    const nb_op *op = s->op;
    int32_t c = s->share == NB_SHARE_ROWS ? CODE_ROWS : s->share == NB_SHARE_COLS ? CODE_COLS + s->tiles : CODE_ANY;
    int n = 0;
    switch ((nb_op_kind)op->kind) {
    case NB_OP_GATHER_ROWS: touch(a, &n, op->u.gather.out, c, true); break;
    case NB_OP_ROUND: touch(a, &n, op->u.round.in, c, false), touch(a, &n, op->u.round.act, c, true); break;
    case NB_OP_RMS_NORM:
        touch(a, &n, op->u.norm.in, c, false), touch(a, &n, op->u.norm.out, c, true),
            touch(a, &n, op->u.norm.act, c, true);
        break;
    case NB_OP_LINEAR:
        touch(a, &n, op->u.linear.act, CODE_ANY, false);
        for (int i = 0; i < op->u.linear.parts; i++)
            touch(a, &n, op->u.linear.part[i].residual, c, false), touch(a, &n, op->u.linear.part[i].out, c, true);
        break;
    case NB_OP_ROPE:
        touch(a, &n, op->u.rope.q, c, true), touch(a, &n, op->u.rope.k, c, true), touch(a, &n, op->u.rope.v, c, false);
        touch(a, &n, op->u.rope.q_act, c, true);
        if (op->u.rope.k != NB_NO_SLOT) touch(a, &n, g->n_slots + op->u.rope.layer, c, true);
        break;
    case NB_OP_ATTENTION:
        touch(a, &n, op->u.attention.q_act, CODE_ANY, false),
            touch(a, &n, g->n_slots + op->u.attention.layer, CODE_ANY, false);
        touch(a, &n, inside(g), c, true), touch(a, &n, op->u.attention.out, c, true),
            touch(a, &n, op->u.attention.act, c, true);
        break;
    case NB_OP_GLU:
        touch(a, &n, op->u.glu.gate, c, false), touch(a, &n, op->u.glu.up, c, false),
            touch(a, &n, op->u.glu.act, c, true);
        break;
    case NB_OP_ADD:
        touch(a, &n, op->u.add.a, c, false), touch(a, &n, op->u.add.b, c, false), touch(a, &n, op->u.add.out, c, true);
        break;
    case NB_OP_SCALE: touch(a, &n, op->u.scale.in, c, false), touch(a, &n, op->u.scale.out, c, true); break;
    case NB_OP_SOFTCAP: touch(a, &n, op->u.softcap.in, c, false), touch(a, &n, op->u.softcap.out, c, true); break;
    case NB_OP_ROUTE:
        touch(a, &n, op->u.route.logits, c, true), touch(a, &n, op->u.route.ids, c, true),
            touch(a, &n, op->u.route.weights, c, true);
        break;
    case NB_OP_EXPERTS:
        touch(a, &n, op->u.experts.act, c, false), touch(a, &n, op->u.experts.ids, c, false),
            touch(a, &n, op->u.experts.weights, c, false);
        touch(a, &n, inside(g), c, true), touch(a, &n, op->u.experts.residual, c, false),
            touch(a, &n, op->u.experts.out, c, true);
        break;
    case NB_OP_CAPTURE: touch(a, &n, op->u.capture.in, c, false); break;
    case NB_OP_COUNT: break;
    }
    return n;
}

static bool clash(int32_t earlier, int32_t now) { return earlier != CODE_NONE && (earlier != now || now < 0); }

static bool must_wait(const hazard *h, const access *a, int n)
{
    for (int i = 0; i < n; i++)
        if (clash(h->w[a[i].at], a[i].code) || (a[i].write && clash(h->r[a[i].at], a[i].code))) return true;
    return false;
}

static void note(hazard *h, const access *a, int n)
{
    for (int i = 0; i < n; i++) {
        int32_t *code = a[i].write ? &h->w[a[i].at] : &h->r[a[i].at];
        *code = *code == CODE_NONE || *code == a[i].code ? a[i].code : CODE_ANY;
    }
}

/* A recorder's no_barrier is a hint about these same facts; the check decides from the facts, so a wrong hint cannot
 * become a race. */
void nb_plan_steps(nb_plan *p, const nb_op *ops, int32_t n, nb_step *steps, uint8_t *state)
{
    const nb_graph *g = p->g;
    hazard h = {.n = g->n_slots + g->n_kv + 1};
    h.w = (int32_t *)(void *)state;
    h.r = h.w + h.n;
    memset(state, 0, nb_plan_state_bytes(g));
    int32_t routes = 0;
    for (int32_t i = 0; i < n; i++) {
        access a[MAX_ACCESS];
        steps[i].op = &ops[i];
        if (ops[i].kind == NB_OP_ROUTE) steps[i].ordinal = routes++;
        choose_share(g, &steps[i], i ? &steps[i - 1] : NULL);
        int count = accesses(g, &steps[i], a);
        if (must_wait(&h, a, count)) {
            steps[i].barrier = true;
            memset(state, 0, nb_plan_state_bytes(g));
        }
        note(&h, a, count);
    }
}

size_t nb_op_temp_bytes(const nb_plan *p, const nb_op *op)
{
    switch ((nb_op_kind)op->kind) {
    case NB_OP_RMS_NORM: return (size_t)op->u.norm.width * (size_t)op->u.norm.groups * 4;
    case NB_OP_GLU: return (size_t)op->u.glu.width * 4;
    case NB_OP_ROPE: return nb_rope_temp_bytes(op);
    case NB_OP_ATTENTION: return nb_attention_temp_bytes(p, op);
    case NB_OP_EXPERTS: return nb_experts_temp_bytes(p, op);
    default: return 0;
    }
}
