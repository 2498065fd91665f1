/* create/plan: from weights to blobs. The architecture's tensor list says what is expected and how it is used; what no
 * line of it names is kept as it came and reported. */
#include "create/plan.h"

#include <fnmatch.h>

nb_item *nb_plan_item(nb_job *j)
{
    if (!nb_arena_grow(j->arena, &j->items, j->n_items, &j->cap_items, sizeof *j->items, 512)) return NULL;
    return &j->items[j->n_items++];
}

/* The next comma-separated part of *text; n 0: the end. */
static nb_str next_part(const char **text)
{
    const char *p = *text, *end = p ? strchrnul(p, ',') : NULL;
    if (!p) return (nb_str){0};
    *text = *end ? end + 1 : NULL;
    return (nb_str){p, (size_t)(end - p)};
}

static bool matches(nb_str pattern, nb_str name)
{
    char p[256], n[1100];
    if (pattern.n >= sizeof p || name.n >= sizeof n) return false;
    memcpy(p, pattern.p, pattern.n);
    p[pattern.n] = 0;
    memcpy(n, name.p, name.n);
    n[name.n] = 0;
    return fnmatch(p, n, 0) == 0;
}

/* Notes that a pattern has matched; only the first 64 of a list are told apart. */
static void hit(uint64_t *mask, int index)
{
    if (index < 64) *mask |= (uint64_t)1 << index;
}

/* What the user said about this tensor: 1 a type, 0 keep, -1 nothing. Types were checked before (nb_plan_overrides). */
static int user_choice(nb_job *j, nb_str name, nb_qtype *out)
{
    int choice = -1, index = 0;
    char text[64];
    nb_str part;
    for (const char *t = j->o->types; (part = next_part(&t)).n; index++) {
        const char *eq = memrchr(part.p, '=', part.n);
        size_t n = eq ? (size_t)(part.p + part.n - eq - 1) : 0;
        if (!eq || n >= sizeof text || !matches((nb_str){part.p, (size_t)(eq - part.p)}, name)) continue;
        hit(&j->type_hits, index);
        memcpy(text, eq + 1, n);
        text[n] = 0;
        if (nb_qtype_parse(out, text, NULL) == NB_OK) choice = 1;
    }
    index = 0;
    for (const char *t = j->o->keep; (part = next_part(&t)).n; index++)
        if (matches(part, name)) {
            hit(&j->keep_hits, index);
            choice = 0;
        }
    return choice;
}

static nb_status unmatched(const char *option, const char *list, uint64_t mask, nb_error *err)
{
    nb_str part;
    for (int i = 0; (part = next_part(&list)).n && i < 64; i++)
        if (!(mask >> i & 1))
            return nb_fail(err, NB_E_USAGE, "%s '%.*s': the pattern matches no tensor of this model", option,
                           NB_FMT_STR(part));
    return NB_OK;
}

nb_status nb_plan_matched(const nb_job *j, nb_error *err)
{
    uint64_t types = j->type_hits | (j->draft ? j->draft->type_hits : 0),
             keeps = j->keep_hits | (j->draft ? j->draft->keep_hits : 0);
    nb_status st = unmatched("--type", j->o->types, types, err);
    return st == NB_OK ? unmatched("--keep", j->o->keep, keeps, err) : st;
}

/* The list of PATTERN=TYPE holds the name itself, not just a pattern that it fits. */
static bool named_alone(const char *list, nb_str name)
{
    nb_str part;
    while ((part = next_part(&list)).n)
        if (part.n > name.n && part.p[name.n] == '=' && !memcmp(part.p, name.p, name.n)) return true;
    return false;
}

nb_status nb_plan_overrides(const nb_job *j, nb_error *err)
{
    nb_str part;
    for (const char *t = j->o->types; (part = next_part(&t)).n;) {
        const char *eq = memrchr(part.p, '=', part.n);
        nb_create_options o;
        char text[64];
        size_t n = eq ? (size_t)(part.p + part.n - eq - 1) : 0;
        if (!eq || n >= sizeof text) return nb_fail(err, NB_E_USAGE, "'%.*s' is not PATTERN=TYPE", NB_FMT_STR(part));
        memcpy(text, eq + 1, n);
        text[n] = 0;
        nb_status st = nb_create_parse_request(&o, text, err);
        if (st != NB_OK) return st;
        if (o.request != NB_REQUEST_TYPE)
            return nb_fail(err, NB_E_USAGE, "'%.*s': '%s' is no type", NB_FMT_STR(part), text);
    }
    return NB_OK;
}

nb_status nb_plan_quality(const nb_job *j, nb_error *err)
{
    const nb_create_options *o = j->o;
    nb_qtype asked[2] = {o->type, o->draft_type}, q;
    char name[32] = "", text[64];
    nb_str part;
    bool any = !o->search;
    for (int i = 0; i < 2 && !any; i++) {
        if ((i ? o->draft_request : o->request) != NB_REQUEST_TYPE) continue;
        any = nb_format_searches((nb_format)asked[i].format);
        if (!name[0]) nb_qtype_name(asked[i], name);
    }
    for (const char *t = o->types; !any && (part = next_part(&t)).n;) { /* checked before: nb_plan_overrides */
        const char *eq = memrchr(part.p, '=', part.n);
        size_t n = eq ? (size_t)(part.p + part.n - eq - 1) : sizeof text;
        if (n >= sizeof text) continue;
        memcpy(text, eq + 1, n);
        text[n] = 0;
        any = nb_qtype_parse(&q, text, NULL) == NB_OK && nb_format_searches((nb_format)q.format);
    }
    if (any) return NB_OK;
    return name[0] ? nb_fail(err, NB_E_USAGE, "quality 'search' is for nvfp4 and mxfp4; %s has no search", name)
                   : nb_fail(err, NB_E_USAGE, "quality 'search' is for a quantisation to nvfp4 or mxfp4");
}

nb_qtype nb_plan_type(nb_job *j, nb_str name, nb_role role, uint8_t rank, const int64_t *dim, const nb_matrix *m,
                      const char **reason)
{
    nb_qtype out, source = m->has_native ? m->native : nb_qtype_default(NB_BF16);
    *reason = NULL;
    int choice = user_choice(j, name, &out);
    if (choice == 1 && !m->float_source && !j->o->allow_requantize) {
        nb_job_warn(j, name, "is already quantised: --type needs --allow-requantize");
        choice = 0;
    }
    if (choice == 1 && dim[rank - 1] % out.group != 0) {
        nb_job_warn(j, name, "%lld columns are not whole groups of %u: kept", (long long)dim[rank - 1],
                    (unsigned)out.group);
        choice = 0;
    }
    if (choice >= 0) *reason = "asked for by name";
    if (choice >= 0) return choice ? out : source;
    bool direct = j->is_draft && !nb_str_has(name, "per_layer") &&
                  (nb_str_ends(name, "embed_tokens.weight") || nb_str_ends(name, "lm_head.weight"));
    if (direct && j->o->request == NB_REQUEST_TYPE) { /* a draft's quality only changes how often it is right */
        *reason = "draft: no promotion";
        return dim[rank - 1] % j->o->type.group == 0 ? j->o->type : source;
    }
    if (j->o->request != NB_REQUEST_TYPE) {
        if (!m->has_native) *reason = m->why ? m->why : "no exact format: decoded";
        return source;
    }
    if (j->is_draft && nb_str_starts(name, "draft.")) name = (nb_str){name.p + 6, name.n - 6};
    return nb_policy(&j->src.cfg, name, role, rank, dim, j->o->type, &out, reason) ? out : source;
}

/* Notes what a matrix became: the report, and the list of what was kept although a type was asked for. */
nb_status nb_report_tensor(nb_job *j, const nb_item *it, const nb_item_proj *p, const nb_weight_src *w,
                           const char *reason, nb_error *err)
{
    nb_create_tensor *t = nb_job_tensor(j);
    if (!t) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    *t = (nb_create_tensor){.name = p->name,
                            .from = nb_str_of(w->from),
                            .layout = nb_layout_name(it->layout),
                            .reason = reason,
                            .bytes = p->bytes * (uint64_t)it->experts};
    nb_qtype_name(p->type, t->type);
    t->rank = it->kind == NB_ITEM_BANK ? 3 : 2;
    int64_t dims[3] = {it->experts, p->n, p->k};
    memcpy(t->dim, dims + (3 - t->rank), t->rank * sizeof *dims);
    const nb_format_row *f = nb_format_info((nb_format)p->type.format);
    t->quantized = !p->native && !f->is_float;
    t->lossless = p->native || (p->m[0].float_source && p->type.format == NB_F32 && p->m[0].w->dtype != NB_DT_F64);
    if (j->o->request == NB_REQUEST_TYPE && f->is_float && j->o->type.format != p->type.format &&
        !nb_job_kept(j, p->name, reason))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (!t->lossless && f->is_float && !w->m.float_source)
        nb_job_warn(j, p->name, "%s has no exact format here%s%s: decoded to %s", w->from, p->m[0].why ? ", " : "",
                    p->m[0].why ? p->m[0].why : "", t->type);
    return NB_OK;
}

nb_status nb_plan_check_matrix(const nb_weight_src *w, nb_error *err)
{
    if (w->m.n < 1 || w->m.k < 1 || w->m.k > NB_MAX_COLUMNS || w->m.n > INT32_MAX)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: a matrix of [%lld,%lld] cannot be imported (E_ST_SHAPE)",
                       NB_FMT_STR(w->src_name), (long long)w->m.n, (long long)w->m.k);
    return NB_OK;
}

bool nb_plan_bytes(nb_layout l, nb_qtype q, int64_t n, int64_t k, uint64_t *bytes)
{
    size_t c, s, b;
    if (l == NB_LAYOUT_ROWS16) return nb_rows16_bytes(q, n, k, bytes);
    if (l == NB_LAYOUT_ROWS1) return nb_rows1_row_bytes(q, k, &c) && nb_mul_u64((uint64_t)n, c, bytes);
    return nb_parts_row_bytes(q, k, &c, &s, &b) && nb_mul_u64((uint64_t)n, (uint64_t)c + s + b, bytes);
}

/* q and k rows of a GGUF llama stand in pair order. */
static int64_t permutation(const nb_job *j, nb_str name)
{
    if (!j->src.permuted_qk) return 0;
    return nb_str_has(name, ".self_attn.q_proj.") || nb_str_has(name, ".self_attn.k_proj.") ? j->src.cfg.head_dim : 0;
}

nb_status nb_plan_matrix(nb_job *j, nb_weight_src *w, nb_role role, nb_str name, nb_error *err)
{
    nb_status st = nb_plan_check_matrix(w, err);
    nb_item *it = st == NB_OK ? nb_plan_item(j) : NULL;
    nb_matrix *m = NB_NEW(j->arena, nb_matrix);
    if (st != NB_OK) return st;
    if (!it || !m) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    const char *reason;
    int64_t dim[2] = {w->m.n, w->m.k};
    *m = w->m;
    st = nb_matrix_of_expert(j, m, 0, err);
    if (st != NB_OK) return st;
    m->perm = permutation(j, name);
    if (m->perm && m->n % m->perm)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %lld rows are not whole heads of %lld", NB_FMT_STR(w->src_name),
                       (long long)m->n, (long long)m->perm);
    *it = (nb_item){.kind = NB_ITEM_MATRIX, .name = name, .n_proj = 1, .experts = 1};
    it->layout = j->o->layout == NB_LAYOUT_STANDARD ? NB_LAYOUT_STANDARD
                 : role == NB_ROLE_TABLE            ? NB_LAYOUT_ROWS1
                                                    : NB_LAYOUT_ROWS16;
    nb_item_proj *p = &it->proj[0];
    *p = (nb_item_proj){.name = name, .key = "", .n = m->n, .k = m->k, .m = m};
    p->type = nb_plan_type(j, name, role, 2, dim, m, &reason);
    p->native = m->has_native && nb_qtype_eq(p->type, m->native);
    if (p->native && w->note) reason = w->note;
    if (!nb_plan_bytes(it->layout, p->type, p->n, p->k, &p->bytes))
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: [%lld,%lld] does not fit format %s (E_QUANT_SHAPE)",
                       NB_FMT_STR(w->src_name), (long long)p->n, (long long)p->k,
                       nb_format_info((nb_format)p->type.format)->name);
    it->params = (uint64_t)p->n * (uint64_t)p->k;
    w->planned = true;
    ((nb_src_tensor *)m->w)->used = "weight";
    st = nb_report_tensor(j, it, p, w, reason, err);
    return st == NB_OK ? nb_item_layout(j, it, err) : st;
}

/* Not linear_attn.norm, and not those of the inline draft, which mlx-lm drops. */
bool nb_mlx_norm(nb_str name)
{
    static const char *const ends[] = {".input_layernorm.weight", ".post_attention_layernorm.weight",
                                       "model.norm.weight", ".q_norm.weight", ".k_norm.weight"};
    for (size_t i = 0; i < NB_COUNT(ends); i++)
        if (nb_str_ends(name, ends[i])) return !nb_str_has(name, "mtp.");
    return false;
}

static bool mlx_norms(const nb_job *j)
{
    static const char *const starts[] = {"Qwen3_5", "Qwen3Next", "qwen3_5", "qwen3_next"};
    bool arch = false;
    for (size_t i = 0; i < NB_COUNT(starts); i++) arch = arch || nb_str_starts(j->r->architecture, starts[i]);
    for (size_t i = 0; i < j->src.n && arch; i++) {
        const nb_src_tensor *t = &j->src.t[i];
        if (nb_str_ends(t->name, "linear_attn.conv1d.weight") && t->rank == 3 && t->dim[1] > 1 && t->dim[2] == 1)
            return true;
    }
    return false;
}

static bool float_dtype(nb_dtype t) { return t == NB_DT_BF16 || t == NB_DT_F16 || t == NB_DT_F32; }

nb_status nb_plan_plain(nb_job *j, nb_src_tensor *t, nb_str name, nb_error *err)
{
    nb_item *it = nb_plan_item(j);
    nb_create_tensor *r = nb_job_tensor(j);
    if (!it || !r) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    *it = (nb_item){.kind = NB_ITEM_PLAIN,
                    .name = name,
                    .layout = NB_LAYOUT_STANDARD,
                    .src = t,
                    .experts = 1,
                    .plain_perm = permutation(j, name)};
    nb_qtype asked; /* a plain tensor has no types; but a pattern that names it matches */
    if (user_choice(j, name, &asked) == 1 && named_alone(j->o->types, name))
        nb_job_warn(j, name, "is no matrix: --type does not apply");
    it->plain_dtype = t->dtype == NB_DT_F64 || t->dtype == NB_DT_NONE ? NB_DT_F32 : t->dtype;
    it->minus_one = j->src.mlx_norms && t->rank == 1 && float_dtype(t->dtype) && nb_mlx_norm(name);
    if (it->minus_one) it->plain_dtype = NB_DT_F32;
    it->params = 1;
    for (int i = 0; i < t->rank; i++) it->params *= (uint64_t)t->dim[i];
    t->used = "weight";
    nb_status st = nb_item_layout(j, it, err);
    *r = (nb_create_tensor){
        .name = name,
        .from = nb_str_of(t->dtype == NB_DT_NONE ? nb_ggml_info(t->ggml)->name : nb_dtype_name(t->dtype)),
        .layout = "plain",
        .reason = it->minus_one ? "less the 1 that mlx-lm adds" : NULL,
        .lossless = it->plain_dtype == t->dtype};
    nb_str dt = nb_str_of(nb_dtype_name(it->plain_dtype));
    for (size_t i = 0; i < dt.n && i < sizeof r->type - 1; i++)
        r->type[i] = (char)(dt.p[i] >= 'A' && dt.p[i] <= 'Z' ? dt.p[i] + 32 : dt.p[i]);
    r->rank = t->rank < 3 ? t->rank : 3;
    memcpy(r->dim, t->dim, r->rank * sizeof *r->dim);
    r->bytes = it->params * (uint64_t)nb_dtype_bits(it->plain_dtype) / 8;
    return st;
}

/* ---- against the architecture's list ---- */

typedef struct missing {
    size_t n;
    char text[400];
} missing;

static void note_missing(missing *m, nb_str name)
{
    size_t len = strlen(m->text);
    if (m->n++ < 20 && len + name.n + 3 < sizeof m->text) {
        if (len) memcpy(m->text + len, ", ", 3);
        memcpy(m->text + strlen(m->text), name.p, name.n);
        m->text[len + (len ? 2 : 0) + name.n] = 0;
    }
}

static nb_status plan_vector(nb_job *j, const nb_tensor_spec *spec, nb_src_tensor *t, nb_error *err)
{
    uint64_t want = 1, have = 1;
    bool value = nb_str_ends(spec->name, ".weight") || nb_str_ends(spec->name, ".bias");
    if (value && t->dtype != NB_DT_NONE && t->dtype != NB_DT_F32 && t->dtype != NB_DT_F16 && t->dtype != NB_DT_BF16 &&
        t->dtype != NB_DT_F64)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s has dtype %s where floats were expected (E_DTYPE_UNSUPPORTED)",
                       NB_FMT_STR(t->name), nb_dtype_name(t->dtype));
    for (int i = 0; i < spec->rank; i++) {
        if (spec->dim[i] <= 0) return nb_plan_plain(j, t, spec->name, err); /* any size */
        want *= (uint64_t)spec->dim[i];
    }
    for (int i = 0; i < t->rank; i++) have *= (uint64_t)t->dim[i];
    if (want != have)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s has %llu elements, config.json asks for %llu (E_ST_SHAPE)",
                       NB_FMT_STR(t->name), (unsigned long long)have, (unsigned long long)want);
    return nb_plan_plain(j, t, spec->name, err);
}

static nb_status plan_spec(nb_job *j, const nb_tensor_spec *spec, missing *miss, nb_error *err)
{
    uint32_t i;
    if (spec->role == NB_ROLE_BANK) {
        nb_status st = nb_plan_bank(j, spec, spec->name, err);
        if (st != NB_E_NOT_FOUND) return st;
        if (!spec->optional) note_missing(miss, spec->name);
        return NB_OK;
    }
    nb_weight_src *w = nb_weight_find(j, spec->name);
    if (spec->role == NB_ROLE_VECTOR && (!w || !w->quantized)) {
        if (nb_map_get(&j->src.by_canon, spec->name, &i)) return plan_vector(j, spec, &j->src.t[i], err);
    } else if (w) {
        if (spec->rank == 2 && ((spec->dim[0] > 0 && w->m.n != spec->dim[0]) ||
                                (spec->dim[1] > 0 && w->m.k != spec->dim[1]) || w->experts))
            return nb_fail(err, NB_E_INVALID,
                           "tensor %.*s is [%lld,%lld], config.json asks for [%lld,%lld] (E_ST_SHAPE)",
                           NB_FMT_STR(w->src_name), (long long)w->m.n, (long long)w->m.k, (long long)spec->dim[0],
                           (long long)spec->dim[1]);
        return nb_plan_matrix(j, w, spec->role == NB_ROLE_VECTOR ? NB_ROLE_LINEAR : spec->role, spec->name, err);
    }
    if (!spec->optional) note_missing(miss, spec->name);
    return NB_OK;
}

/* ---- what no list names ---- */

static nb_role guess_role(const nb_job *j, nb_str name)
{
    if (nb_str_has(name, "ngram_embedding.shard_")) return NB_ROLE_TABLE;
    if (nb_str_ends(name, "embed_tokens.weight")) return j->src.cfg.tie_embeddings ? NB_ROLE_LINEAR : NB_ROLE_TABLE;
    return NB_ROLE_LINEAR;
}

static bool matrix_like(const nb_weight_src *w)
{
    if (w->experts) return false;
    if (w->quantized) return true;
    return nb_str_ends(w->name, ".weight") && !nb_str_has(w->name, "norm") && !nb_str_has(w->name, "conv");
}

static bool tied_head(const nb_job *j, nb_str canon)
{
    return j->src.has_cfg && j->src.cfg.tie_embeddings && nb_str_is(canon, "lm_head.weight");
}

static nb_status plan_rest(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    nb_status st = NB_OK;
    for (size_t i = 0; i < s->n && st == NB_OK; i++) {
        nb_src_tensor *t = &s->t[i];
        if (t->used || !t->canon.p) continue;
        if (tied_head(j, t->canon)) {
            t->used = "dropped";
            nb_job_drop(j, t->name, "tied: the embedding is the head");
            continue;
        }
        nb_weight_src *w = nb_weight_find(j, t->canon);
        bool head = nb_str_starts(t->canon, "mtp."); /* an inline draft head: its matrices are stored like the others */
        if (s->n_specs && !head)
            nb_job_unused(j, t->name,
                          nb_is_kv_scale(t->name) ? "scale of a quantised KV cache: kept on request"
                                                  : "no part of this architecture: kept as it is");
        if (w && (w->quantized || !s->n_specs || head) && matrix_like(w))
            st = nb_plan_matrix(j, w, guess_role(j, w->name), w->name, err);
        else
            st = nb_plan_plain(j, t, t->canon, err);
    }
    /* quantised weights whose first tensor has another name than their own */
    for (size_t i = 0; i < j->n_weights && st == NB_OK; i++) {
        nb_weight_src *w = &j->weights[i];
        if (w->planned || !w->quantized || (w->m.w->used && !strcmp(w->m.w->used, "weight"))) continue;
        if (tied_head(j, w->name)) {
            nb_job_drop(j, w->src_name, "tied: the embedding is the head");
            continue;
        }
        if (s->n_specs) nb_job_unused(j, w->src_name, "no part of this architecture: kept as it is");
        st = w->experts ? nb_plan_stacked(j, w, err) : nb_plan_matrix(j, w, guess_role(j, w->name), w->name, err);
    }
    return st;
}

/* ---- factors before a product (pre_quant_scale): what the forward will take is known now ---- */

/* Matrices of one row of the table read one vector. */
static const char *const factor_places[][3] = {
    {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"},
    {"mlp.gate_proj.weight", "mlp.up_proj.weight", NULL},
    {"self_attn.o_proj.weight", NULL, NULL},
    {"mlp.down_proj.weight", NULL, NULL},
    {"lm_head.weight", NULL, NULL},
};

static const float *factors_of(const nb_item *it)
{
    return it->kind == NB_ITEM_MATRIX && it->proj[0].native ? it->proj[0].m->pre_scale : NULL;
}

static const nb_item *item_named(const nb_job *j, nb_str head, const char *end)
{
    size_t n = strlen(end);
    for (size_t i = 0; i < j->n_items; i++) {
        nb_str name = j->items[i].name;
        if (name.n == head.n + n && !memcmp(name.p, head.p, head.n) && !memcmp(name.p + head.n, end, n))
            return &j->items[i];
    }
    return NULL;
}

static nb_status check_place(const nb_job *j, const nb_item *it, nb_error *err)
{
    for (size_t g = 0; g < NB_COUNT(factor_places); g++)
        for (int i = 0; i < 3 && factor_places[g][i]; i++) {
            if (!nb_str_ends(it->name, factor_places[g][i])) continue;
            nb_str head = {it->name.p, it->name.n - strlen(factor_places[g][i])};
            for (int k = 0; k < 3 && factor_places[g][k]; k++) {
                const nb_item *other = item_named(j, head, factor_places[g][k]);
                const float *p = factors_of(it), *q = other ? factors_of(other) : p;
                if (!q || memcmp(p, q, (size_t)it->proj[0].k * sizeof *p) != 0)
                    return nb_fail(err, NB_E_UNSUPPORTED,
                                   "tensors %.*s and %.*s read one vector with different pre_quant_scale "
                                   "(E_PRE_QUANT_SCALE)",
                                   NB_FMT_STR(it->name), NB_FMT_STR(other->name));
            }
            return NB_OK;
        }
    return nb_fail(err, NB_E_UNSUPPORTED,
                   "tensor %.*s needs pre_quant_scale, which this engine cannot apply there; --allow-requantize with "
                   "--quantize bf16 multiplies it into decoded weights (E_PRE_QUANT_SCALE)",
                   NB_FMT_STR(it->name));
}

/* Architectures that do not run yet keep their factors wherever they are: the loader refuses what it cannot apply. */
static nb_status check_factors(const nb_job *j, nb_error *err)
{
    nb_status st = NB_OK;
    if (!j->src.has_cfg || j->is_draft || !nb_arch_runs(j->src.cfg.arch)) return NB_OK;
    for (size_t i = 0; i < j->n_items && st == NB_OK; i++)
        if (factors_of(&j->items[i])) st = check_place(j, &j->items[i], err);
    return st;
}

static nb_str source_name(const nb_item *it) { return it->src ? it->src->name : it->proj[0].m[0].w->name; }

/* No two blobs, and no two tensors, have one name. */
static nb_status unique_names(const nb_job *j, nb_error *err)
{
    nb_map names = {0};
    nb_status st = nb_map_init(&names, j->n_items + 1) ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->n_items && st == NB_OK; i++)
        for (size_t k = 0; k < j->items[i].n_outs && st == NB_OK; k++) {
            bool had = false;
            uint32_t old = 0;
            nb_str name = j->items[i].outs[k].name;
            if (!nb_map_put(&names, name, (uint32_t)i, &had, &old))
                st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
            else if (had)
                st = nb_fail(err, NB_E_INVALID, "two sources would both become %.*s (%.*s, %.*s) (E_COLLISION)",
                             NB_FMT_STR(name), NB_FMT_STR(source_name(&j->items[old])),
                             NB_FMT_STR(source_name(&j->items[i])));
        }
    nb_map_free(&names);
    return st;
}

nb_status nb_plan_all(nb_job *j, nb_error *err)
{
    missing miss = {0};
    j->src.mlx_norms = mlx_norms(j);
    nb_status st = nb_bank_scan(j, err);
    for (size_t i = 0; i < j->src.n_specs && st == NB_OK; i++) st = plan_spec(j, &j->src.specs[i], &miss, err);
    if (st == NB_OK && miss.n)
        st = nb_fail(err, NB_E_INVALID, "%zu tensors that config.json asks for are missing: %s%s (E_MISSING_TENSORS)",
                     miss.n, miss.text, miss.n > 20 ? ", ..." : "");
    if (st == NB_OK) st = nb_plan_loose_banks(j, err);
    if (st == NB_OK) st = plan_rest(j, err);
    if (st == NB_OK) st = unique_names(j, err);
    if (st == NB_OK) st = check_factors(j, err);
    for (size_t i = 0; i < j->n_items && st == NB_OK; i++)
        if (!nb_add_u64(j->total_bytes, j->items[i].bytes, &j->total_bytes))
            st = nb_fail(err, NB_E_INVALID, "the plan is larger than 2^64 bytes");
    return st;
}
