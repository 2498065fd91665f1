/* create/bank: experts. Per-expert tensors, stacked tensors and fused gate_up tensors all become one list of matrices
 * per projection, in expert order. specs/create.md 2.4, 5.4. */
#include "create/producer.h"

#include <stdio.h>
#include <stdlib.h>

/* Text before an expert's index; the second column is how the architecture tables write it. */
static const char *const markers[][2] = {
    {".mlp.experts.", ".mlp.experts"},          {".mlp.shared_experts.", ".mlp.shared_experts"},
    {".mlp.switch_mlp.", ".mlp.experts"},       {".moe.experts.", ".moe.experts"},
    {".mixer.experts.", ".mixer.experts"},      {".mixer.shared_experts.", ".mixer.shared_experts"},
    {".ffn.experts.", ".mlp.experts"},          {".block_sparse_moe.experts.", ".mlp.experts"},
    {".feed_forward.experts.", ".mlp.experts"},
};

static nb_str proj_name(nb_str p)
{
    if (nb_str_is(p, "w1")) return NB_LIT("gate_proj");
    if (nb_str_is(p, "w3")) return NB_LIT("up_proj");
    if (nb_str_is(p, "w2")) return NB_LIT("down_proj");
    return p;
}

static const char *proj_key(nb_str p)
{
    return nb_str_is(p, "gate_proj")   ? "gate"
           : nb_str_is(p, "up_proj")   ? "up"
           : nb_str_is(p, "down_proj") ? "down"
                                       : NULL;
}

/* Splits "GROUP.<index>.<proj>.weight". *hit: the name is of that form, as far as group and index go. */
static nb_status parse_expert(nb_job *j, nb_str name, nb_expert_entry *e, bool *hit, nb_error *err)
{
    *hit = false;
    if (!nb_str_ends(name, ".weight")) return NB_OK;
    for (size_t i = 0; i < NB_COUNT(markers); i++) {
        int64_t at = nb_str_find(name, nb_str_of(markers[i][0]), 0);
        if (at < 0) continue;
        size_t p = (size_t)at + strlen(markers[i][0]), end = p;
        while (end < name.n && name.p[end] >= '0' && name.p[end] <= '9') end++;
        if (end == p || end >= name.n || name.p[end] != '.') continue;
        nb_str rest = {name.p + end + 1, name.n - end - 1};
        if (rest.n <= 7) continue;
        *hit = true;
        if ((name.p[p] == '0' && end - p > 1) || end - p > 6)
            return nb_fail(err, NB_E_INVALID,
                           "tensor %.*s: expert index %.*s is not a canonical number (E_EXPERT_NAME)", NB_FMT_STR(name),
                           (int)(end - p), name.p + p);
        e->index = 0;
        for (size_t k = p; k < end; k++) e->index = e->index * 10 + (name.p[k] - '0');
        e->proj = proj_name((nb_str){rest.p, rest.n - 7});
        char *g = nb_arena_printf(j->arena, "%.*s%s", (int)at, name.p, markers[i][1]);
        if (!g) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        e->group = nb_str_of(g);
        return NB_OK;
    }
    return NB_OK;
}

static int entry_cmp(const void *pa, const void *pb)
{
    const nb_expert_entry *a = pa, *b = pb;
    int c = nb_str_cmp(a->group, b->group);
    if (!c) c = nb_str_cmp(a->proj, b->proj);
    return c ? c : a->index < b->index ? -1 : a->index > b->index;
}

/* ---- one source for each projection ---- */

/* Splits a stacked bank's "GROUP.gate_up_proj" or "GROUP.down_proj.weight". false: another name. */
static bool parse_stack(nb_job *j, nb_str name, nb_expert_entry *e)
{
    if (nb_str_ends(name, ".weight")) name.n -= 7;
    const char *dot = name.n ? memrchr(name.p, '.', name.n) : NULL;
    if (!dot) return false;
    nb_str head = {name.p, (size_t)(dot + 1 - name.p)};
    e->proj = proj_name((nb_str){dot + 1, name.n - head.n});
    for (size_t i = 0; i < NB_COUNT(markers); i++) {
        if (!nb_str_ends(head, markers[i][0])) continue;
        char *g = nb_arena_printf(j->arena, "%.*s%s", (int)(head.n - strlen(markers[i][0])), head.p, markers[i][1]);
        e->group = g ? nb_str_of(g) : (nb_str){0};
        return g != NULL;
    }
    return false;
}

/* Notes that `weight` holds a projection; gate_up is both. */
static nb_status take_projection(nb_job *j, nb_map *seen, const nb_expert_entry *e, uint32_t weight, nb_error *err)
{
    bool both = nb_str_is(e->proj, "gate_up_proj"), had = false;
    nb_str parts[2] = {both ? NB_LIT("gate_proj") : e->proj, NB_LIT("up_proj")};
    for (int i = 0; i < (both ? 2 : 1); i++) {
        uint32_t old = 0;
        char *key = nb_arena_printf(j->arena, "%.*s.%.*s", NB_FMT_STR(e->group), NB_FMT_STR(parts[i]));
        if (!key || !nb_map_put(seen, nb_str_of(key), weight, &had, &old))
            return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        if (had)
            return nb_fail(err, NB_E_INVALID, "two sources would both become %s (%.*s, %.*s) (E_COLLISION)", key,
                           NB_FMT_STR(j->weights[old].src_name), NB_FMT_STR(j->weights[weight].src_name));
    }
    return NB_OK;
}

/* A bank may be spelled per expert, stacked, or stacked with gate and up in one, under two names of the group: but only
 * once. */
static nb_status one_source_each(nb_job *j, nb_error *err)
{
    nb_map seen = {0};
    nb_status st = nb_map_init(&seen, 2 * j->n_weights + 1) ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->n_experts && st == NB_OK; i++) {
        const nb_expert_entry *e = &j->experts[i];
        bool same = i && nb_str_eq(e->group, e[-1].group) && nb_str_eq(e->proj, e[-1].proj);
        if (!same) st = take_projection(j, &seen, e, e->weight, err);
    }
    for (size_t i = 0; i < j->n_weights && st == NB_OK; i++) {
        nb_expert_entry e;
        if (j->weights[i].experts && parse_stack(j, j->weights[i].name, &e))
            st = take_projection(j, &seen, &e, (uint32_t)i, err);
    }
    nb_map_free(&seen);
    return st;
}

/* Lists every per-expert weight, sorted by group, projection and number. */
nb_status nb_bank_scan(nb_job *j, nb_error *err)
{
    j->experts = NB_NEW_N(j->arena, nb_expert_entry, j->n_weights + 1);
    if (!j->experts) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->n_weights; i++) {
        bool hit;
        nb_expert_entry *e = &j->experts[j->n_experts];
        nb_status st = parse_expert(j, j->weights[i].name, e, &hit, err);
        if (st != NB_OK) return st;
        if (!hit) continue;
        if (j->weights[i].experts)
            return nb_fail(err, NB_E_INVALID, "tensor %.*s: an expert's weight has two dimensions, not three (%s)",
                           NB_FMT_STR(j->weights[i].src_name),
                           j->weights[i].quantized ? "E_EXPERT_NVFP4" : "E_EXPERT_LAYOUT");
        e->weight = (uint32_t)i;
        j->n_experts++;
    }
    if (j->n_experts) qsort(j->experts, j->n_experts, sizeof *j->experts, entry_cmp);
    return one_source_each(j, err);
}

/* ---- collecting a projection's matrices ---- */

typedef struct bank_proj {
    nb_str name;  /* "gate_proj" */
    nb_matrix *m; /* [experts] */
    int64_t experts;
    const nb_weight_src *w; /* of expert 0, for messages */
    const nb_src_tensor *bias;
    int64_t bias_row0, bias_step;
} bank_proj;

static bool same_layout(const nb_matrix *a, const nb_matrix *b)
{
    return a->n == b->n && a->k == b->k && a->reader == b->reader && a->w->dtype == b->w->dtype &&
           a->w->ggml == b->w->ggml && a->has_native == b->has_native &&
           (!a->has_native || nb_qtype_eq(a->native, b->native)) &&
           (!a->scale || !b->scale || a->scale->dtype == b->scale->dtype) && !a->global == !b->global &&
           (!a->global || a->global->dtype == b->global->dtype);
}

/* One projection out of the sorted entries [first, end). */
static nb_status collect_entries(nb_job *j, size_t first, size_t end, bank_proj *out, nb_error *err)
{
    const nb_expert_entry *e = &j->experts[first];
    out->name = e->proj;
    out->experts = (int64_t)(end - first);
    out->m = NB_NEW_N(j->arena, nb_matrix, end - first);
    out->w = &j->weights[e->weight];
    if (!out->m) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = first; i < end; i++) {
        nb_weight_src *w = &j->weights[j->experts[i].weight];
        int64_t want = (int64_t)(i - first);
        if (j->experts[i].index < want)
            return nb_fail(err, NB_E_INVALID,
                           "expert group %.*s, projection %.*s: index %lld appears twice (E_EXPERT_DUP)",
                           NB_FMT_STR(e->group), NB_FMT_STR(e->proj), (long long)j->experts[i].index);
        if (j->experts[i].index > want)
            return nb_fail(err, NB_E_INVALID,
                           "expert group %.*s, projection %.*s: index %lld is missing (E_EXPERT_GAP)",
                           NB_FMT_STR(e->group), NB_FMT_STR(e->proj), (long long)want);
        nb_status st = nb_plan_check_matrix(w, err);
        if (st != NB_OK) return st;
        out->m[want] = w->m;
        st = nb_matrix_of_expert(j, &out->m[want], 0, err);
        if (st != NB_OK) return st;
        w->planned = true;
        ((nb_src_tensor *)w->m.w)->used = "weight";
    }
    return NB_OK;
}

/* Flint's published bank rules: packed experts are NVFP4 with an F32 multiplier. flint.md 4.2 */
static nb_status check_flint(const nb_job *j, const nb_weight_src *w, nb_error *err)
{
    if (!nb_str_is(j->r->architecture, "FlintForCausalLM") || !w->quantized) return NB_OK;
    if (!w->m.has_native || w->m.native.format != NB_NVFP4)
        return nb_fail(err, NB_E_INVALID,
                       "expert %.*s: unsupported layout (%s): packed experts of Flint are NVFP4 (E_EXPERT_NVFP4)",
                       NB_FMT_STR(w->src_name), w->from);
    if (w->m.global && w->m.global->dtype != NB_DT_F32)
        return nb_fail(err, NB_E_INVALID, "expert %.*s: a global scale of dtype %s, F32 was expected (E_EXPERT_NVFP4)",
                       NB_FMT_STR(w->src_name), nb_dtype_name(w->m.global->dtype));
    return NB_OK;
}

/* All experts alike, and quantised all or none. */
static nb_status check_group(const nb_job *j, size_t first, size_t end, nb_error *err)
{
    size_t quantized = 0;
    nb_str group = j->experts[first].group;
    for (size_t i = first; i < end; i++) quantized += j->weights[j->experts[i].weight].quantized;
    if (quantized && quantized != end - first)
        return nb_fail(err, NB_E_INVALID, "expert group %.*s: %zu of %zu projections carry scales (E_EXPERT_PARTIAL)",
                       NB_FMT_STR(group), quantized, end - first);
    for (size_t i = first; i < end; i++) {
        nb_status st = check_flint(j, &j->weights[j->experts[i].weight], err);
        if (st != NB_OK) return st;
    }
    for (size_t i = first + 1; i < end; i++) {
        if (!nb_str_eq(j->experts[i].proj, j->experts[i - 1].proj)) continue;
        const nb_weight_src *a = &j->weights[j->experts[i - 1].weight], *b = &j->weights[j->experts[i].weight];
        if (!same_layout(&a->m, &b->m))
            return nb_fail(err, NB_E_INVALID, "expert group %.*s: %.*s differs from expert 0 in dtype or shape (%s)",
                           NB_FMT_STR(group), NB_FMT_STR(b->src_name),
                           quantized ? "E_EXPERT_NVFP4" : "E_EXPERT_LAYOUT");
    }
    return NB_OK;
}

/* Experts of one producer whose values happen to allow different stored types (a power of two here, a whole zero point
 * there) get the type that holds them all. */
static void harmonise(nb_job *j, size_t first, size_t end)
{
    bool mixed = false;
    const nb_matrix *a = &j->weights[j->experts[first].weight].m;
    for (size_t i = first + 1; i < end; i++) {
        const nb_matrix *b = &j->weights[j->experts[i].weight].m;
        if (a->reader != b->reader || !a->has_native || !b->has_native) return;
        mixed = mixed || !nb_qtype_eq(a->native, b->native);
    }
    for (size_t i = first; i < end && mixed; i++) {
        nb_matrix *m = &j->weights[j->experts[i].weight].m;
        if (m->fp8)
            nb_fp8_downgrade(m);
        else if (nb_format_info((nb_format)m->native.format)->scale_kind == NB_SCALE_AFFINE && m->reader->floats)
            m->native.scale_dtype = NB_DT_F32; /* readers that compute their scales can write any type */
    }
}

/* ---- biases of experts ---- */

static bool is_gpt_oss(const nb_job *j)
{
    nb_str t;
    return nb_json_str(nb_json_get(j->src.config.root, "model_type"), &t) && nb_str_is(t, "gpt_oss");
}

/* "G.proj_bias" as the publisher of gpt-oss writes it, "G.proj.bias" as MLX and our own exports do, beside "experts" or
 * beside "switch_mlp". */
static nb_src_tensor *find_bias(nb_job *j, nb_str group, const char *proj)
{
    static const char *const forms[] = {"%.*s.%s_bias", "%.*s.%s.bias"};
    char name[1100], alt[1100];
    int64_t at = nb_str_find(group, NB_LIT(".mlp.experts"), 0);
    bool mlx = at >= 0 && (size_t)at + 12 == group.n;
    int n = mlx ? snprintf(alt, sizeof alt, "%.*s.mlp.switch_mlp", (int)at, group.p) : 0;
    nb_str groups[2] = {group, {alt, mlx ? (size_t)n : 0}};
    if (n < 0 || (size_t)n >= sizeof alt) return NULL;
    for (size_t i = 0; i < 4; i++) {
        uint32_t hit;
        if (!groups[i / 2].n) continue;
        n = snprintf(name, sizeof name, forms[i % 2], NB_FMT_STR(groups[i / 2]), proj);
        if (n > 0 && (size_t)n < sizeof name && nb_map_get(&j->src.by_canon, (nb_str){name, (size_t)n}, &hit))
            return &j->src.t[hit];
    }
    return NULL;
}

static nb_status take_bias(bank_proj *p, nb_src_tensor *t, bool needed, int64_t rows, int64_t row0, int64_t step,
                           nb_error *err)
{
    if (!t && needed)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: the bias of these experts is missing (E_MISSING_TENSORS)",
                       NB_FMT_STR(p->w->src_name));
    if (!t) return NB_OK;
    if (t->rank != 2 || t->dim[0] != p->experts || t->dim[1] != rows * step)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: a bias of [%lld,%lld] was expected (E_ST_SHAPE)",
                       NB_FMT_STR(t->name), (long long)p->experts, (long long)(rows * step));
    if (t->dtype != NB_DT_F32 && t->dtype != NB_DT_F16 && t->dtype != NB_DT_BF16)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: a bias of dtype %s (E_DTYPE_UNSUPPORTED)", NB_FMT_STR(t->name),
                       nb_dtype_name(t->dtype));
    t->used = "weight";
    p->bias = t;
    p->bias_row0 = row0;
    p->bias_step = step;
    return NB_OK;
}

/* ---- per-expert tensors ---- */

/* Up to 3 projections of a group of per-expert tensors. *n is 0 where there is none. */
static nb_status collect_group(nb_job *j, size_t first, size_t end, bank_proj *p, int *n, nb_error *err)
{
    nb_status st = NB_OK;
    *n = 0;
    for (size_t a = first; a < end && st == NB_OK;) {
        size_t b = a + 1;
        while (b < end && nb_str_eq(j->experts[b].proj, j->experts[a].proj)) b++;
        harmonise(j, a, b);
        if (*n == 3)
            return nb_fail(err, NB_E_UNSUPPORTED, "expert group %.*s has more than three projections",
                           NB_FMT_STR(j->experts[first].group));
        bank_proj *out = &p[(*n)++];
        char proj[64];
        st = collect_entries(j, a, b, out, err);
        if (st == NB_OK && is_gpt_oss(j) && snprintf(proj, sizeof proj, "%.*s", NB_FMT_STR(out->name)) < 64)
            st = take_bias(out, find_bias(j, j->experts[a].group, proj), true, out->m[0].n, 0, 1, err);
        a = b;
    }
    for (int i = 1; i < *n && st == NB_OK; i++)
        if (p[i].experts != p[0].experts)
            st = nb_fail(err, NB_E_INVALID,
                         "expert group %.*s: projection %.*s has %lld experts, %.*s has %lld (E_EXPERT_COUNT)",
                         NB_FMT_STR(j->experts[first].group), NB_FMT_STR(p[i].name), (long long)p[i].experts,
                         NB_FMT_STR(p[0].name), (long long)p[0].experts);
    return st == NB_OK ? check_group(j, first, end, err) : st;
}

static bool find_group(const nb_job *j, nb_str group, size_t *first, size_t *end)
{
    for (*first = 0; *first < j->n_experts && !nb_str_eq(j->experts[*first].group, group);) (*first)++;
    for (*end = *first; *end < j->n_experts && nb_str_eq(j->experts[*end].group, group);) (*end)++;
    return *end > *first;
}

/* ---- stacked tensors ---- */

static nb_weight_src *find_stacked(nb_job *j, nb_str group, const char *proj)
{
    static const char *const forms[] = {"%.*s.%s.weight", "%.*s.%s"};
    char name[1100], alt[1100];
    for (size_t f = 0; f < NB_COUNT(forms); f++) {
        nb_buf b = {.limit = sizeof name};
        nb_buf_add_str(&b, group);
        nb_buf_add_char(&b, '.');
        nb_buf_add_cstr(&b, proj);
        if (f == 0) nb_buf_add_cstr(&b, ".weight");
        nb_weight_src *w = b.oom ? NULL : nb_weight_find(j, nb_buf_str(&b));
        size_t n = b.oom ? 0 : b.n;
        if (n && n < sizeof name) memcpy(name, b.p, n);
        nb_buf_free(&b);
        if (w) return w->experts ? w : NULL;
        /* MLX writes switch_mlp where the hub writes experts */
        int64_t at = n ? nb_str_find((nb_str){name, n}, NB_LIT(".mlp.experts."), 0) : -1;
        if (at < 0) continue;
        size_t tail = n - ((size_t)at + 13);
        if ((size_t)at + 16 + tail > sizeof alt) continue;
        memcpy(alt, name, (size_t)at);
        memcpy(alt + at, ".mlp.switch_mlp.", 16);
        memcpy(alt + at + 16, name + at + 13, tail);
        w = nb_weight_find(j, (nb_str){alt, (size_t)at + 16 + tail});
        if (w && w->experts) return w;
    }
    return NULL;
}

/* Experts of a stacked tensor: rows row0, row0 + step, ... of n logical rows. */
static nb_status split_stack(nb_job *j, nb_weight_src *w, int64_t n, int64_t row0, int64_t step, bool transposed,
                             bank_proj *out, nb_error *err)
{
    nb_status st = nb_plan_check_matrix(w, err);
    if (st != NB_OK) return st;
    out->experts = w->experts;
    out->w = w;
    out->m = NB_NEW_N(j->arena, nb_matrix, (size_t)w->experts);
    if (!out->m) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (int64_t e = 0; e < w->experts; e++) {
        nb_matrix *m = &out->m[e];
        *m = w->m;
        m->expert = e;
        m->row0 = row0;
        m->step = step;
        m->transposed = transposed || w->m.transposed;
        if (transposed) {
            m->stored_rows = w->m.k;
            m->k = w->m.n;
        }
        m->n = n;
        st = nb_matrix_of_expert(j, m, e, err);
        if (st != NB_OK) return st;
    }
    w->planned = true;
    ((nb_src_tensor *)w->m.w)->used = "weight";
    return NB_OK;
}

/* Whether the stack is [E, k, n] instead of [E, n, k]. Square ones follow the architecture: gpt-oss stores its float
 * banks transposed. */
static nb_status stack_order(const nb_job *j, const nb_weight_src *w, int64_t n, int64_t k, bool *transposed,
                             nb_error *err)
{
    bool straight = w->m.n == n && w->m.k == k, crossed = w->m.n == k && w->m.k == n;
    *transposed = w->m.float_source && crossed && (!straight || is_gpt_oss(j));
    if (straight || *transposed) return NB_OK;
    return nb_fail(err, NB_E_INVALID,
                   "tensor %.*s is [%lld,%lld,%lld], config.json asks for experts of [%lld,%lld] (E_ST_SHAPE)",
                   NB_FMT_STR(w->src_name), (long long)w->experts, (long long)w->m.n, (long long)w->m.k, (long long)n,
                   (long long)k);
}

static nb_status collect_stacked(nb_job *j, const nb_tensor_spec *spec, nb_str group, bank_proj *p, int *n,
                                 nb_error *err)
{
    static const char *const names[3] = {"gate_proj", "up_proj", "down_proj"};
    nb_weight_src *fused = find_stacked(j, group, "gate_up_proj");
    bool tr;
    *n = 0;
    nb_status st = NB_OK;
    for (int i = 0; i < 3 && st == NB_OK; i++) {
        int64_t rows = spec->proj[i].n, cols = spec->proj[i].k;
        if (!rows) continue;
        bank_proj *out = &p[*n];
        out->name = nb_str_of(names[i]);
        if (fused && i < 2) {
            bool inter = is_gpt_oss(j);
            st = stack_order(j, fused, 2 * rows, cols, &tr, err);
            if (st == NB_OK) st = split_stack(j, fused, rows, inter ? i : i * rows, inter ? 2 : 1, tr, out, err);
            if (st == NB_OK && inter) st = take_bias(out, find_bias(j, group, "gate_up_proj"), true, rows, i, 2, err);
        } else {
            nb_weight_src *w = find_stacked(j, group, names[i]);
            if (!w) return NB_E_NOT_FOUND;
            st = stack_order(j, w, rows, cols, &tr, err);
            if (st == NB_OK) st = split_stack(j, w, rows, 0, 1, tr, out, err);
            if (st == NB_OK) st = take_bias(out, find_bias(j, group, names[i]), is_gpt_oss(j), rows, 0, 1, err);
        }
        (*n)++;
    }
    return st;
}

/* ---- items ---- */

static nb_status fill_proj(nb_job *j, nb_item *it, nb_item_proj *p, const bank_proj *b, nb_str group,
                           const char **reason, nb_error *err)
{
    char *name = nb_arena_printf(j->arena, "%.*s.%.*s.weight", NB_FMT_STR(group), NB_FMT_STR(b->name));
    if (!name) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    int64_t dim[3] = {b->experts, b->m[0].n, b->m[0].k};
    *p = (nb_item_proj){.name = nb_str_of(name),
                        .key = proj_key(b->name),
                        .n = b->m[0].n,
                        .k = b->m[0].k,
                        .m = b->m,
                        .out_bias = b->bias,
                        .bias_row0 = b->bias_row0,
                        .bias_step = b->bias_step};
    p->type = nb_plan_type(j, p->name, NB_ROLE_BANK, 3, dim, &b->m[0], reason);
    p->native = b->m[0].has_native && nb_qtype_eq(p->type, b->m[0].native);
    uint64_t params;
    if (!nb_plan_bytes(it->layout, p->type, p->n, p->k, &p->bytes) ||
        !nb_mul_u64((uint64_t)p->n * (uint64_t)p->k, (uint64_t)b->experts, &params))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: [%lld,%lld] does not fit format %s (E_QUANT_SHAPE)",
                       NB_FMT_STR(b->w->src_name), (long long)p->n, (long long)p->k,
                       nb_format_info((nb_format)p->type.format)->name);
    it->params += params;
    return NB_OK;
}

static int key_rank(const bank_proj *p)
{
    const char *k = proj_key(p->name);
    return !k ? 3 : k[0] == 'g' ? 0 : k[0] == 'u' ? 1 : 2;
}

static nb_status make_bank(nb_job *j, nb_str group, bank_proj *p, int n, nb_error *err)
{
    bool named = true;
    for (int i = 0; i < n; i++) named = named && proj_key(p[i].name);
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++)
            if (key_rank(&p[k]) < key_rank(&p[i])) {
                bank_proj t = p[i];
                p[i] = p[k];
                p[k] = t;
            }
    nb_item it = {.kind = NB_ITEM_BANK, .name = group, .n_proj = n, .experts = p[0].experts};
    it.layout = j->o->layout == NB_LAYOUT_STANDARD || !named ? NB_LAYOUT_STANDARD : NB_LAYOUT_ROWS16;
    it.stacked = it.layout == NB_LAYOUT_STANDARD;
    const char *reason[3];
    nb_status st = NB_OK;
    bool same = true;
    for (int i = 0; i < n && st == NB_OK; i++) {
        it.proj[i].offset = 0;
        st = fill_proj(j, &it, &it.proj[i], &p[i], group, &reason[i], err);
        it.proj[i].offset = it.stride;
        if (st == NB_OK && !nb_add_u64(it.stride, it.proj[i].bytes, &it.stride))
            st = nb_fail(err, NB_E_INVALID, "expert group %.*s is too large", NB_FMT_STR(group));
        if (st == NB_OK) st = nb_report_tensor(j, &it, &it.proj[i], p[i].w, reason[i], err);
        same = same && nb_qtype_eq(it.proj[i].type, it.proj[0].type);
    }
    if (st != NB_OK) return st;
    it.stride = NB_ALIGN_UP(it.stride, 4096);
    int blobs = it.stacked && !same ? n : 1; /* metadata of a standard blob describes the whole blob */
    for (int b = 0; b < blobs && st == NB_OK; b++) {
        nb_item *dst = nb_plan_item(j);
        if (!dst) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        *dst = it;
        if (blobs > 1) {
            dst->name = it.proj[b].name;
            dst->proj[0] = it.proj[b];
            dst->n_proj = 1;
            dst->params = (uint64_t)it.proj[b].n * (uint64_t)it.proj[b].k * (uint64_t)it.experts;
        }
        st = nb_item_layout(j, dst, err);
    }
    return st;
}

nb_status nb_plan_bank(nb_job *j, const nb_tensor_spec *spec, nb_str group, nb_error *err)
{
    bank_proj p[3] = {{.bias_step = 1}, {.bias_step = 1}, {.bias_step = 1}};
    size_t first, end;
    int n = 0;
    nb_status st = find_group(j, group, &first, &end) ? collect_group(j, first, end, p, &n, err)
                                                      : collect_stacked(j, spec, group, p, &n, err);
    if (st != NB_OK) return st;
    if (p[0].experts != spec->experts)
        return nb_fail(err, NB_E_INVALID, "expert group %.*s has %lld experts, config.json says %d (E_EXPERT_COUNT)",
                       NB_FMT_STR(group), (long long)p[0].experts, (int)spec->experts);
    for (int i = 0; i < n; i++) {
        int k = key_rank(&p[i]);
        if (k == 3 || p[i].m[0].n != spec->proj[k].n || p[i].m[0].k != spec->proj[k].k)
            return nb_fail(err, NB_E_INVALID,
                           "expert group %.*s: %.*s is [%lld,%lld], config.json asks for [%lld,%lld] (E_ST_SHAPE)",
                           NB_FMT_STR(group), NB_FMT_STR(p[i].name), (long long)p[i].m[0].n, (long long)p[i].m[0].k,
                           (long long)(k == 3 ? 0 : spec->proj[k].n), (long long)(k == 3 ? 0 : spec->proj[k].k));
    }
    for (int k = 0; k < 3; k++) {
        bool have = !spec->proj[k].n;
        for (int i = 0; i < n; i++) have = have || key_rank(&p[i]) == k;
        if (!have)
            return nb_fail(err, NB_E_INVALID, "expert group %.*s lacks a projection (E_MISSING_TENSORS)",
                           NB_FMT_STR(group));
    }
    return make_bank(j, group, p, n, err);
}

/* A fused stack and its down projection that no list names: their shapes say what is what. */
static nb_status loose_stack(nb_job *j, const nb_weight_src *fused, nb_error *err)
{
    nb_str group = fused->name;
    if (nb_str_ends(group, ".weight")) group.n -= 7;
    group.n -= strlen(".gate_up_proj");
    const nb_weight_src *down = find_stacked(j, group, "down_proj");
    if (!down || down->experts != fused->experts) return NB_OK;
    nb_tensor_spec spec = {.name = group, .role = NB_ROLE_BANK, .experts = (int32_t)fused->experts};
    int64_t n, k;
    if (fused->m.n == 2 * down->m.k && fused->m.k == down->m.n) { /* [E, 2I, H], [E, H, I] */
        n = down->m.k;
        k = down->m.n;
    } else if (fused->m.float_source && fused->m.k == 2 * down->m.n &&
               fused->m.n == down->m.k) { /* transposed: [E, H, 2I], [E, I, H] */
        n = down->m.n;
        k = down->m.k;
    } else {
        return NB_OK;
    }
    spec.proj[0].n = spec.proj[1].n = spec.proj[2].k = n;
    spec.proj[0].k = spec.proj[1].k = spec.proj[2].n = k;
    return nb_plan_bank(j, &spec, group, err);
}

nb_status nb_plan_loose_banks(nb_job *j, nb_error *err)
{
    nb_status st = NB_OK;
    for (size_t i = 0; i < j->n_weights && st == NB_OK; i++) {
        const nb_weight_src *w = &j->weights[i];
        bool fused =
            nb_str_ends(w->name, ".experts.gate_up_proj") || nb_str_ends(w->name, ".experts.gate_up_proj.weight");
        if (fused && w->experts && !w->planned && (!j->src.n_specs || nb_str_starts(w->name, "mtp.")))
            st = loose_stack(j, w, err);
    }
    for (size_t a = 0; a < j->n_experts && st == NB_OK;) {
        size_t b = a + 1;
        while (b < j->n_experts && nb_str_eq(j->experts[b].group, j->experts[a].group)) b++;
        if (!j->weights[j->experts[a].weight].planned) {
            bank_proj p[3] = {{.bias_step = 1}, {.bias_step = 1}, {.bias_step = 1}};
            int n = 0;
            if (j->src.n_specs && !nb_str_starts(j->experts[a].group, "mtp."))
                nb_job_unused(j, j->experts[a].group, "no part of this architecture: kept as it is");
            st = collect_group(j, a, b, p, &n, err);
            if (st == NB_OK) st = make_bank(j, j->experts[a].group, p, n, err);
        }
        a = b;
    }
    return st;
}

/* A quantised stack that no list names: kept with its leading axis, in the standard layout. */
nb_status nb_plan_stacked(nb_job *j, nb_weight_src *w, nb_error *err)
{
    bank_proj p = {.bias_step = 1};
    nb_status st = split_stack(j, w, w->m.n, 0, 1, false, &p, err);
    if (st != NB_OK) return st;
    nb_item it = {.kind = NB_ITEM_BANK,
                  .name = w->name,
                  .n_proj = 1,
                  .experts = w->experts,
                  .layout = NB_LAYOUT_STANDARD,
                  .stacked = true};
    const char *reason;
    nb_str base = w->name, last = w->name;
    if (nb_str_ends(base, ".weight")) base.n -= 7;
    const char *dot = base.n ? memrchr(base.p, '.', base.n) : NULL;
    last = dot ? (nb_str){dot + 1, base.n - (size_t)(dot + 1 - base.p)} : base;
    nb_str group = dot ? (nb_str){base.p, (size_t)(dot - base.p)} : base;
    p.name = last;
    st = fill_proj(j, &it, &it.proj[0], &p, group, &reason, err);
    if (st == NB_OK) st = nb_report_tensor(j, &it, &it.proj[0], w, reason, err);
    nb_item *dst = st == NB_OK ? nb_plan_item(j) : NULL;
    if (st == NB_OK && !dst) st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (st != NB_OK) return st;
    *dst = it;
    return nb_item_layout(j, dst, err);
}
