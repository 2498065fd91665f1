/* create/draft_fit: whether a draft can serve its target (specs/runner.md 1.6, specs/create.md 1.5). All that can be
 * told from the two configs, the shapes and the tokenizers is told here, before anything is written: a draft that does
 * not fit would run, and nearly never be right. */
#include "create/plan.h"

#include <stdio.h>

enum { MAX_BLOCK = 1024, MAX_LAYERS = 1 << 16, MAX_SIZE = 1 << 24 };

/* ---- fields ---- */

/* A field of the draft's config; those of block drafts stand in dflash_config or beside it. NULL: nowhere. */
static const nb_json *find_field(const nb_job *d, const char *key, char path[80])
{
    static const char *const places[] = {"dflash_config.", "", "text_config."};
    for (size_t i = 0; i < NB_COUNT(places); i++) {
        snprintf(path, 80, "%s%s", places[i], key);
        const nb_json *v = nb_json_path(d->src.config.root, path);
        if (nb_json_present(v)) return v;
    }
    return NULL;
}

/* "field X is VALUE, RULE" in one line, whatever the value is. */
static nb_status refuse(const char *path, const nb_json *v, const char *rule, nb_error *err)
{
    nb_buf text = {0};
    nb_json_write(&text, v, NB_JSON_ASCII);
    if (text.n > 80) text.n = 80;
    nb_status st = nb_fail(err, NB_E_INVALID, "draft: config.json: field %s is %.*s, %s (E_DRAFT)", path,
                           NB_FMT_STR(nb_buf_str(&text)), rule);
    nb_buf_free(&text);
    return st;
}

/* An integer from low to high; 0 in *out where there is none. */
static nb_status whole(const nb_job *d, const char *key, int64_t low, int64_t high, int64_t *out, nb_error *err)
{
    char path[80], rule[80];
    const nb_json *v = find_field(d, key, path);
    *out = 0;
    if (!v || (nb_json_i64(v, out) && *out >= low && *out <= high)) return NB_OK;
    snprintf(rule, sizeof rule, "an integer from %lld to %lld was expected", (long long)low, (long long)high);
    return refuse(path, v, rule, err);
}

static nb_status same(const nb_job *d, const char *key, int64_t want, nb_error *err)
{
    char path[80], rule[80];
    int64_t v;
    const nb_json *f = find_field(d, key, path);
    if (want <= 0 || !f || (nb_json_i64(f, &v) && v == want)) return NB_OK;
    snprintf(rule, sizeof rule, "the model has %lld", (long long)want);
    return refuse(path, f, rule, err);
}

static nb_status missing(const char *key, nb_error *err)
{
    return nb_fail(err, NB_E_INVALID, "draft: config.json: no field dflash_config.%s (E_DRAFT)", key);
}

/* ---- taps, block and mask ---- */

/* Features of these layers of the target are what a block draft sees. */
static nb_status check_taps(nb_job *j, const nb_job *d, nb_draft_facts *f, nb_error *err)
{
    char path[80], rule[80];
    int64_t last = -1, layers = j->src.has_cfg ? j->src.cfg.layers : MAX_LAYERS;
    const nb_json *v = find_field(d, "target_layer_ids", path);
    if (!v) return f->block ? missing("target_layer_ids", err) : NB_OK;
    if (!nb_json_is(v, NB_JSON_ARRAY) || !v->count) return refuse(path, v, "a list of layers was expected", err);
    f->taps = NB_NEW_N(j->arena, int64_t, v->count);
    if (!f->taps) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t tap;
        snprintf(rule, sizeof rule, "the model has the layers 0 to %lld", (long long)(layers - 1));
        if (!nb_json_i64(&v->items[i], &tap) || tap < 0 || tap >= layers) return refuse(path, v, rule, err);
        if (tap <= last) return refuse(path, v, "ascending layers were expected", err);
        f->taps[f->n_taps++] = last = tap;
    }
    return NB_OK;
}

static bool is_end(const nb_config *c, int64_t id)
{
    int64_t pad;
    for (int32_t i = 0; i < c->n_eos; i++)
        if (c->eos[i] == id) return true;
    return nb_json_i64(nb_json_get(c->text ? c->text : c->root, "pad_token_id"), &pad) && pad == id;
}

/* Rows of a block that are not known yet hold the mask: its embedding was trained as such, so there is no default. */
static nb_status check_block(const nb_job *j, const nb_job *d, nb_draft_facts *f, nb_error *err)
{
    char path[80], rule[80];
    const nb_json *v;
    int64_t vocab = j->src.has_cfg ? j->src.cfg.vocab : 0;
    nb_status st = whole(d, "block_size", 2, MAX_BLOCK, &f->block_size, err);
    if (st != NB_OK) return st;
    if (f->block && !f->block_size) return missing("block_size", err);
    if (!(v = find_field(d, "mask_token_id", path))) return f->block ? missing("mask_token_id", err) : NB_OK;
    snprintf(rule, sizeof rule, "the model has %lld tokens", (long long)vocab);
    if (!nb_json_i64(v, &f->mask) || f->mask < 0 || (vocab && f->mask >= vocab)) return refuse(path, v, rule, err);
    f->has_mask = true;
    return j->src.has_cfg && is_end(&j->src.cfg, f->mask) ? refuse(path, v, "which ends or pads a text", err) : NB_OK;
}

/* ---- the draft's own numbers ---- */

typedef struct numbers {
    int64_t hidden, layers, heads, kv_heads, head_dim, ffn;
} numbers;

static nb_status check_layer_types(const nb_job *d, int64_t layers, nb_error *err)
{
    char path[80], rule[80], window_path[80];
    int64_t window = 0;
    nb_str type;
    const nb_json *v = find_field(d, "layer_types", path), *w = find_field(d, "sliding_window", window_path);
    if (!v || !layers) return NB_OK;
    snprintf(rule, sizeof rule, "%lld layers were expected", (long long)layers);
    if (!nb_json_is(v, NB_JSON_ARRAY) || v->count != layers) return refuse(path, v, rule, err);
    for (uint32_t i = 0; i < v->count; i++) {
        if (!nb_json_str(&v->items[i], &type)) return refuse(path, v, "names of kinds were expected", err);
        if (nb_str_has(type, "sliding") && (!nb_json_i64(w, &window) || window < 1))
            return refuse(path, v, "and there is no sliding_window", err);
    }
    return NB_OK;
}

static nb_status check_numbers(const nb_job *d, numbers *n, nb_error *err)
{
    char path[80], rule[80];
    const struct {
        const char *key;
        int64_t *out, high;
    } rows[] = {{"hidden_size", &n->hidden, MAX_SIZE},          {"num_hidden_layers", &n->layers, MAX_LAYERS},
                {"num_attention_heads", &n->heads, MAX_LAYERS}, {"num_key_value_heads", &n->kv_heads, MAX_LAYERS},
                {"head_dim", &n->head_dim, MAX_LAYERS},         {"intermediate_size", &n->ffn, MAX_SIZE}};
    nb_status st = NB_OK;
    for (size_t i = 0; i < NB_COUNT(rows) && st == NB_OK; i++)
        st = whole(d, rows[i].key, 1, rows[i].high, rows[i].out, err);
    if (st != NB_OK) return st;
    const nb_json *v = find_field(d, "num_key_value_heads", path);
    snprintf(rule, sizeof rule, "%lld heads are no multiple of it", (long long)n->heads);
    if (n->heads && n->kv_heads && n->heads % n->kv_heads) return refuse(path, v, rule, err);
    v = find_field(d, "num_attention_heads", path);
    snprintf(rule, sizeof rule, "a width of %lld is no multiple of it", (long long)n->hidden);
    if (!n->head_dim && n->heads && n->hidden % n->heads) return refuse(path, v, rule, err);
    if (!n->head_dim && n->heads) n->head_dim = n->hidden / n->heads;
    if (!n->kv_heads) n->kv_heads = n->heads;
    return check_layer_types(d, n->layers, err);
}

/* ---- tensors ---- */

/* A matrix of a job by its name in the file, perhaps below "model.". */
static const nb_weight_src *matrix_of(nb_job *d, const char *name)
{
    static const char *const prefixes[] = {"", "model."};
    for (size_t i = 0; i < NB_COUNT(prefixes); i++) {
        char *full = nb_arena_printf(d->arena, "%s%s%s.weight", d->is_draft ? "draft." : "", prefixes[i], name);
        const nb_weight_src *w = full ? nb_weight_find(d, nb_str_of(full)) : NULL;
        if (w) return w;
    }
    return NULL;
}

static nb_status shape_is(const char *who, const nb_weight_src *w, int64_t n, int64_t k, nb_error *err)
{
    if (!w || n < 1 || k < 1 || (w->m.n == n && w->m.k == k && !w->experts)) return NB_OK;
    return nb_fail(err, NB_E_INVALID, "%stensor %.*s is [%lld,%lld], [%lld,%lld] was expected (E_DRAFT)", who,
                   NB_FMT_STR(w->src_name), (long long)w->m.n, (long long)w->m.k, (long long)n, (long long)k);
}

/* Matrices of layer i as the numbers ask for them. */
static nb_status check_layer(nb_job *d, const numbers *n, int64_t i, nb_error *err)
{
    const int64_t q = n->heads * n->head_dim, kv = n->kv_heads * n->head_dim;
    const struct {
        const char *name;
        int64_t n, k;
    } rows[] = {{"self_attn.q_proj", q, n->hidden},   {"self_attn.k_proj", kv, n->hidden},
                {"self_attn.v_proj", kv, n->hidden},  {"self_attn.o_proj", n->hidden, q},
                {"mlp.gate_proj", n->ffn, n->hidden}, {"mlp.up_proj", n->ffn, n->hidden},
                {"mlp.down_proj", n->hidden, n->ffn}};
    nb_status st = NB_OK;
    for (size_t r = 0; r < NB_COUNT(rows) && st == NB_OK; r++) {
        char name[80];
        snprintf(name, sizeof name, "layers.%lld.%s", (long long)i, rows[r].name);
        const nb_weight_src *w = matrix_of(d, name);
        if (!w)
            return nb_fail(err, NB_E_INVALID,
                           "draft: tensor %s.weight is missing, config.json says %lld layers (E_DRAFT)", name,
                           (long long)n->layers);
        st = shape_is("draft: ", w, rows[r].n, rows[r].k, err);
    }
    return st;
}

/* The matrix that takes the features of all taps. A model with several residual streams gives all of them. */
static nb_status check_features(nb_job *j, nb_job *d, const numbers *n, const nb_draft_facts *f, nb_error *err)
{
    const nb_weight_src *w = matrix_of(d, "fc");
    int64_t width = j->src.cfg.hidden, streams = 1, taps = (int64_t)f->n_taps;
    if (!w) return nb_fail(err, NB_E_INVALID, "draft: tensor fc.weight is missing (E_DRAFT)");
    if (!j->src.has_cfg) return shape_is("draft: ", w, n->hidden, w->m.k, err);
    nb_json_i64(nb_json_get(j->src.cfg.text ? j->src.cfg.text : j->src.cfg.root, "hc_count"), &streams);
    if (streams < 1 || streams > 64) streams = 1;
    return w->m.k == taps * width ? shape_is("draft: ", w, n->hidden, taps * width, err)
                                  : shape_is("draft: ", w, n->hidden, taps * width * streams, err);
}

static nb_status check_tensors(nb_job *j, nb_job *d, const numbers *n, const nb_draft_facts *f, nb_error *err)
{
    nb_status st = check_features(j, d, n, f, err);
    for (int64_t i = 0; i < n->layers && st == NB_OK; i++) st = check_layer(d, n, i, err);
    char beyond[80];
    snprintf(beyond, sizeof beyond, "layers.%lld.self_attn.q_proj", (long long)n->layers);
    const nb_weight_src *w = st == NB_OK ? matrix_of(d, beyond) : NULL;
    return w ? nb_fail(err, NB_E_INVALID,
                       "draft: tensor %.*s is one of more layers than the %lld of config.json (E_DRAFT)",
                       NB_FMT_STR(w->src_name), (long long)n->layers)
             : st;
}

/* ---- vocabulary ---- */

/* A draft with fewer tokens says which they are: one id of the target for each of its own. */
static nb_status check_vocab(const nb_job *j, const nb_job *d, nb_error *err)
{
    int64_t own = 0, target = j->src.cfg.vocab;
    const nb_src_tensor *map = nb_source_find(&d->src, NB_LIT("d2t"));
    nb_status st = whole(d, "draft_vocab_size", 1, MAX_SIZE, &own, err);
    if (st != NB_OK) return st;
    if (!map && !own) return same(d, "vocab_size", target, err);
    char path[80], rule[80];
    const nb_json *v = find_field(d, "draft_vocab_size", path);
    snprintf(rule, sizeof rule, "the model has %lld tokens", (long long)target);
    if (own > target && target > 0) return refuse(path, v, rule, err);
    if (!map) return own == target ? NB_OK : refuse(path, v, "and there is no tensor d2t to map it", err);
    if (map->rank == 1 && (!own || map->dim[0] == own) && (target <= 0 || map->dim[0] <= target)) return NB_OK;
    return nb_fail(err, NB_E_INVALID, "draft: tensor d2t has %lld entries, %lld tokens were expected (E_DRAFT)",
                   (long long)(map->rank ? map->dim[0] : 1), (long long)own);
}

/* ---- all ---- */

static void find_kind(const nb_job *d, nb_draft_facts *f)
{
    static const struct {
        const char *part, *kind;
        bool block;
    } table[] = {
        {"DFlash2DraftModel", "dflash2", true},    {"DFlashDraftModel", "dflash", true}, {"DFlash", "dflash", false},
        {"MuseGlimmerAssistant", "dflash", false}, {"Assistant", "assistant", false},    {"Eagle", "eagle", false}};
    bool config = nb_json_is(nb_json_get(d->src.config.root, "dflash_config"), NB_JSON_OBJECT);
    f->kind = "model";
    for (size_t i = 0; i < NB_COUNT(table); i++) {
        if (!nb_str_has(d->r->architecture, table[i].part)) continue;
        f->kind = table[i].kind;
        f->block = table[i].block || config;
        return;
    }
    f->kind = config ? "dflash" : "model";
    f->block = config;
}

nb_status nb_draft_fit(nb_job *j, nb_job *d, nb_error *err)
{
    nb_draft_facts *f = &j->draft_facts;
    numbers n = {0};
    bool known = j->src.has_cfg, shared = !matrix_of(d, "embed_tokens"); /* else it has a width of its own */
    find_kind(d, f);
    nb_status st = known ? check_vocab(j, d, err) : NB_OK;
    if (st == NB_OK && known) st = same(d, "num_target_layers", j->src.cfg.layers, err);
    if (st == NB_OK && known) st = same(d, "target_hidden_size", j->src.cfg.hidden, err);
    if (st == NB_OK) st = check_taps(j, d, f, err);
    if (st == NB_OK) st = check_block(j, d, f, err);
    if (st == NB_OK) st = check_numbers(d, &n, err);
    if (st == NB_OK && known && (f->block || !strcmp(f->kind, "eagle")) && shared)
        st = same(d, "hidden_size", j->src.cfg.hidden, err);
    if (st == NB_OK && !strcmp(f->kind, "assistant") && known) { /* it reads the target's keys and values */
        st = same(d, "num_key_value_heads", j->src.cfg.kv_heads, err);
        if (st == NB_OK) st = same(d, "head_dim", j->src.cfg.head_dim, err);
    }
    if (st == NB_OK && nb_str_is(d->r->architecture, "DFlashDraftModel")) st = check_tensors(j, d, &n, f, err);
    f->layers = n.layers;
    return st == NB_OK ? nb_draft_tokenizer(j, d, err) : st;
}

/* Whether a matrix of the head has the shape of one of the model's own of this name; *other: one that differs. */
static bool like_some_layer(const nb_job *j, const nb_weight_src *w, const char *end, const nb_weight_src **other)
{
    *other = NULL;
    for (size_t i = 0; i < j->n_weights; i++) {
        const nb_weight_src *t = &j->weights[i];
        if (!nb_str_ends(t->name, end) || nb_str_starts(t->name, "mtp.")) continue;
        if (t->m.n == w->m.n && t->m.k == w->m.k) return true;
        if (!*other) *other = t;
    }
    return !*other;
}

/* The inline head: its layers are like the model's, and its input has the model's width. */
nb_status nb_inline_fit(nb_job *j, nb_error *err)
{
    static const char *const ends[] = {".self_attn.q_proj.weight", ".self_attn.k_proj.weight",
                                       ".self_attn.v_proj.weight", ".self_attn.o_proj.weight", ".mlp.gate.weight"};
    int64_t h = j->src.cfg.hidden;
    const nb_weight_src *other;
    if (!j->src.has_cfg || !j->mtp_layers) return NB_OK;
    nb_status st = shape_is("", matrix_of(j, "mtp.fc"), h, 2 * h, err);
    if (st == NB_OK) st = shape_is("", matrix_of(j, "mtp.fc_embedding"), h, h, err);
    if (st == NB_OK) st = shape_is("", matrix_of(j, "mtp.fc_hidden"), h, h, err);
    for (size_t i = 0; i < j->n_weights && st == NB_OK; i++) {
        const nb_weight_src *w = &j->weights[i];
        if (!nb_str_starts(w->name, "mtp.layers.")) continue;
        for (size_t k = 0; k < NB_COUNT(ends) && st == NB_OK; k++)
            if (nb_str_ends(w->name, ends[k]) && !like_some_layer(j, w, ends[k], &other))
                st = nb_fail(err, NB_E_INVALID,
                             "tensor %.*s of the inline draft is [%lld,%lld], %.*s is [%lld,%lld] (E_DRAFT)",
                             NB_FMT_STR(w->src_name), (long long)w->m.n, (long long)w->m.k, NB_FMT_STR(other->src_name),
                             (long long)other->m.n, (long long)other->m.k);
    }
    return st;
}
