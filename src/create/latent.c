/* create/latent: kv_b_proj of latent attention, where mlx-lm has split it. It writes for each head the rows that make
 * keys as the transposed `embed_q` [heads, rank, nope] and those that make values as `unembed_out` [heads, v, rank];
 * the publisher's matrix is [heads * (nope + v), rank], keys before values in each head. Floats are put back bit for
 * bit. What was quantised after the split has the groups of its keys across rows of the matrix: no format of groups
 * along rows holds that, so such a matrix is decoded to F32. */
#include "create/producer.h"

static nb_status floats(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, float *out, nb_scratch *sc,
                        nb_error *err)
{
    int64_t nope = m->keys[0].k, v = m->values[0].n, head_rows = nope + v;
    if (!nb_buf_reserve(&sc->heads, (size_t)(m->k * nope) * sizeof(float)))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory reading rows of %.*s", NB_FMT_STR(m->w->name));
    float *key = (float *)(void *)sc->heads.p;
    nb_status st = NB_OK;
    for (int64_t r = r0; r < r0 + rows && st == NB_OK;) {
        int64_t h = r / head_rows, in = r % head_rows, left = r0 + rows - r;
        int64_t n = in < nope ? nope - in : head_rows - in;
        float *to = out + (r - r0) * m->k;
        if (n > left) n = left;
        if (in >= nope) {
            st = nb_matrix_floats(s, &m->values[h], in - nope, n, to, sc, err);
        } else {
            st = nb_matrix_floats(s, &m->keys[h], 0, m->k, key, sc, err);
            for (int64_t i = 0; i < n && st == NB_OK; i++)
                for (int64_t c = 0; c < m->k; c++) to[i * m->k + c] = key[c * nope + in + i];
        }
        r += n;
    }
    return st;
}

static nb_status parts(const nb_source *s, const nb_matrix *m, int64_t r0, int64_t rows, const nb_parts *out,
                       nb_scratch *sc, nb_error *err)
{
    sc->joined.n = 0;
    if (!nb_buf_reserve(&sc->joined, (size_t)(rows * m->k) * sizeof(float)))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory reading rows of %.*s", NB_FMT_STR(m->w->name));
    float *v = (float *)(void *)sc->joined.p;
    nb_status st = floats(s, m, r0, rows, v, sc, err);
    if (st == NB_OK) st = nb_quantize_rows(m->native, v, rows, m->k, 1, out, err); /* floats: converts, exactly */
    if (st == NB_E_INVALID) nb_error_prefix(err, "tensor %.*s, rows from %lld", NB_FMT_STR(m->w->name), (long long)r0);
    return st;
}

static const nb_reader reader_floats = {"float", parts, floats}; /* the bytes of the publisher's matrix */
static const nb_reader reader_packed = {"mlx", parts, floats};

/* One matrix per head of a stacked weight. */
static nb_status each_head(nb_job *j, nb_weight_src *w, const nb_matrix **out, nb_error *err)
{
    nb_matrix *m = NB_NEW_N(j->arena, nb_matrix, (size_t)w->experts);
    if (!m) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = NB_OK;
    for (int64_t h = 0; h < w->experts && st == NB_OK; h++) {
        m[h] = w->m;
        m[h].expert = h;
        st = nb_matrix_of_expert(j, &m[h], h, err);
    }
    w->planned = true;
    ((nb_src_tensor *)w->m.w)->used = "weight";
    *out = m;
    return st;
}

static nb_status check_halves(const nb_job *j, const nb_weight_src *k, const nb_weight_src *v, nb_error *err)
{
    int64_t heads = j->src.cfg.heads, nope = 0, rank = 0, dim = 0;
    const nb_json *c = j->src.cfg.text;
    bool said = nb_json_i64(nb_json_get(c, "qk_nope_head_dim"), &nope) &&
                nb_json_i64(nb_json_get(c, "kv_lora_rank"), &rank) && nb_json_i64(nb_json_get(c, "v_head_dim"), &dim);
    if (said && k->experts == heads && v->experts == heads && k->m.n == rank && k->m.k == nope && v->m.n == dim &&
        v->m.k == rank)
        return NB_OK;
    return nb_fail(err, NB_E_INVALID,
                   "tensors %.*s [%lld,%lld,%lld] and %.*s [%lld,%lld,%lld]: config.json asks for heads of [%lld,%lld] "
                   "and [%lld,%lld] (E_ST_SHAPE)",
                   NB_FMT_STR(k->src_name), (long long)k->experts, (long long)k->m.n, (long long)k->m.k,
                   NB_FMT_STR(v->src_name), (long long)v->experts, (long long)v->m.n, (long long)v->m.k,
                   (long long)rank, (long long)nope, (long long)dim, (long long)rank);
}

static nb_status join(nb_job *j, nb_str name, nb_weight_src *k, nb_weight_src *v, nb_error *err)
{
    nb_weight_src w = {.name = name, .src_name = k->src_name, .from = k->from};
    uint32_t at = (uint32_t)j->n_weights;
    nb_status st = check_halves(j, k, v, err);
    if (st == NB_OK) st = nb_plan_check_matrix(k, err);
    if (st == NB_OK) st = nb_plan_check_matrix(v, err);
    if (st != NB_OK) return st;
    bool is_float = k->m.float_source && v->m.float_source;
    w.quantized = !is_float;
    w.m = (nb_matrix){
        .reader = is_float ? &reader_floats : &reader_packed, .w = k->m.w, .step = 1, .m = 1.0f, .has_native = true};
    w.m.n = w.m.stored_rows = k->experts * (k->m.k + v->m.n);
    w.m.k = v->m.k;
    w.m.float_source = is_float;
    w.m.native = is_float && nb_qtype_eq(k->m.native, v->m.native) ? k->m.native : nb_qtype_default(NB_F32);
    if (!is_float) w.note = "split by head before it was quantised: decoded to F32";
    st = each_head(j, k, &w.m.keys, err);
    if (st == NB_OK) st = each_head(j, v, &w.m.values, err);
    if (st == NB_OK && (!nb_classify_add(j, &w) || !nb_map_put(&j->weight_by_name, name, at, NULL, NULL)))
        st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    return st;
}

nb_status nb_latent_join(nb_job *j, nb_error *err)
{
    static const char tail[] = ".self_attn.kv_b_proj.weight";
    nb_status st = NB_OK;
    size_t decoded = 0;
    nb_str first = {0};
    for (size_t i = 0; i < j->src.n_specs && st == NB_OK; i++) {
        nb_str name = j->src.specs[i].name;
        if (!nb_str_ends(name, tail)) continue;
        int layer = (int)(name.n - (sizeof tail - 1));
        char *key = nb_arena_printf(j->arena, "%.*s.self_attn.embed_q.weight", layer, name.p),
             *value = nb_arena_printf(j->arena, "%.*s.self_attn.unembed_out.weight", layer, name.p);
        if (!key || !value) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        nb_weight_src *k = nb_weight_find(j, nb_str_of(key)), *v = nb_weight_find(j, nb_str_of(value)),
                      *whole = nb_weight_find(j, name);
        if (!k && !v) continue;
        if (whole)
            return nb_fail(err, NB_E_INVALID, "two sources would both become %.*s (%.*s, %.*s) (E_COLLISION)",
                           NB_FMT_STR(name), NB_FMT_STR(whole->src_name), NB_FMT_STR((k ? k : v)->src_name));
        if (!k || !v) continue; /* missing, says the plan */
        bool packed = !k->m.float_source || !v->m.float_source;
        if (packed && !decoded++) first = name;
        st = join(j, name, k, v, err);
    }
    if (st == NB_OK && decoded)
        nb_job_warn(j, first,
                    "split by head before it was quantised, so that groups lie across its rows: this and the other %zu "
                    "such matrices are decoded to F32",
                    decoded - 1);
    return st;
}
