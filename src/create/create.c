/* create: the stages of an import in order. specs/create.md 2.1. */
#include "base/file.h"
#include "create/plan.h"
#include "model/model.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- reading ---- */

static bool is_gguf(const char *path)
{
    uint8_t magic[4];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    bool hit = pread(fd, magic, 4, 0) == 4 && !memcmp(magic, "GGUF", 4);
    close(fd);
    return hit;
}

static nb_str architecture(const nb_source *s)
{
    static const char *const paths[] = {"model_type", "text_config.model_type"};
    nb_str id;
    if (nb_json_str(nb_json_at(nb_json_get(s->config.root, "architectures"), 0), &id)) return id;
    for (size_t i = 0; i < NB_COUNT(paths); i++)
        if (nb_json_str(nb_json_path(s->config.root, paths[i]), &id)) return id;
    return NB_LIT("unknown");
}

void nb_job_close(nb_job *j)
{
    nb_schemes_free(j);
    nb_map_free(&j->weight_by_name);
    nb_map_free(&j->warned);
    nb_map_free(&j->spec_by_name);
    nb_map_free(&j->src.by_canon);
    nb_source_close(&j->src);
}

static nb_status read_source(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    const char *path = j->o->source;
    nb_job_progress(j, NB_CREATE_READING, path, 0, 0, 0, 0);
    if (!path || !nb_path_exists(path))
        return nb_fail(err, NB_E_NOT_FOUND, "%s: no such file or directory", path ? path : "(no source)");
    bool dir = nb_path_is_dir(path);
    nb_status st = !dir && is_gguf(path) ? nb_source_open_gguf(j, s, path, err) : nb_source_open(j, s, path, err);
    if (st != NB_OK) return st;
    j->r->source_bytes = s->bytes;
    j->r->architecture = nb_arena_str(j->arena, architecture(s));
    if (j->is_draft) { /* by names and shapes; its architecture only has a say in the types */
        int64_t layers, experts;
        s->cfg.arch = nb_arch_find(j->r->architecture);
        if (nb_json_i64(nb_json_get(s->config.root, "num_hidden_layers"), &layers) && layers > 0 && layers < 1 << 16)
            s->cfg.layers = (int32_t)layers;
        if (nb_json_i64(nb_json_get(s->config.root, "num_experts"), &experts) && experts > 0 && experts < 1 << 20)
            s->cfg.experts = (int32_t)experts;
        return NB_OK;
    }
    st = nb_config_read(&s->cfg, s->config.root, s->generation.root, j->arena, err);
    s->has_cfg = st == NB_OK;
    if (st == NB_E_UNSUPPORTED && !j->o->force && err) {
        nb_error why = *err;
        return nb_fail(err, st, "%s; --force imports by names and shapes (E_ARCH_UNSUPPORTED)", why.text);
    }
    if ((st == NB_E_UNSUPPORTED || st == NB_E_INVALID) && j->o->force) {
        nb_job_warn(j, (nb_str){0}, "%s: imported by names and shapes", err ? err->text : "the config cannot be used");
        memset(&s->cfg, 0, sizeof s->cfg);
        st = NB_OK;
    }
    return st;
}

static const char *request_name(nb_job *j, char out[32])
{
    if (j->o->request == NB_REQUEST_TYPE) {
        nb_qtype_name(j->o->type, out);
        return out;
    }
    return j->o->request == NB_REQUEST_KEEP ? "keep" : "none";
}

static void warn_text(void *user, const char *line) { nb_job_warn(user, (nb_str){0}, "%s", line); }

/* Tokenizer and templates are stored as they are; what cannot be used is said now. */
static nb_status check_text(nb_job *j, nb_error *err)
{
    const nb_source *s = &j->src;
    size_t n = 0;
    nb_text_file *f = NB_NEW_N(j->arena, nb_text_file, s->n_configs + 1);
    if (!f) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < s->n_configs; i++) f[n++] = (nb_text_file){s->configs[i].name, s->configs[i].bytes};
    if (j->o->template_text) f[n++] = (nb_text_file){NB_LIT(NB_USER_TEMPLATE), nb_str_of(j->o->template_text)};
    return nb_text_check(f, n, warn_text, j, err);
}

static nb_status make_plan(nb_job *j, nb_error *err)
{
    nb_source *s = &j->src;
    nb_job_progress(j, NB_CREATE_PLANNING, "", 0, 0, 0, 0);
    nb_status st = nb_classify(j, err);
    if (st != NB_OK) return st;
    nb_claims_check(j);
    st = nb_schemes_check(j, err);
    if (st != NB_OK) return st;
    bool is_float = nb_str_is(j->r->source_kind, "float");
    const char *refusal =
        s->has_cfg && j->o->request == NB_REQUEST_TYPE ? nb_policy_refusal(&s->cfg, j->o->type, is_float) : NULL;
    if (refusal) return nb_fail(err, NB_E_INVALID, "%s (E_POLICY_REFUSED)", refusal);
    if (s->has_cfg && nb_arch_f32_only(s->cfg.arch))
        for (size_t i = 0; i < j->n_weights; i++)
            if (!j->weights[i].m.float_source || j->weights[i].m.native.format != NB_F32)
                return nb_fail(err, NB_E_INVALID, "%s; tensor %.*s is %s (E_POLICY_REFUSED)",
                               nb_policy_refusal(&s->cfg, nb_qtype_default(NB_INT8), true),
                               NB_FMT_STR(j->weights[i].src_name), j->weights[i].from);
    if (!j->is_draft && (st = check_text(j, err)) != NB_OK) return st;
    return nb_plan_all(j, err);
}

nb_status nb_job_plan(nb_job *j, nb_error *err)
{
    nb_status st = read_source(j, err);
    return st == NB_OK ? make_plan(j, err) : st;
}

/* ---- preflight ---- */

static nb_status preflight(nb_job *j, nb_error *err)
{
    if (!j->n_items)
        return nb_fail(err, NB_E_INVALID, "no tensors to import in %s (E_NO_WEIGHTS)",
                       j->base ? j->o->draft : j->o->source);
    return nb_room_check(j, err);
}

/* ---- publishing ---- */

static nb_status verify_all(nb_job *j, const nb_layer *layers, size_t n, nb_error *err)
{
    nb_status st = NB_OK;
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        if (!nb_str_is(layers[i].media_type, NB_MEDIA_TENSOR)) continue;
        if (nb_job_cancelled(j)) return nb_fail(err, NB_E_CANCELLED, "cancelled while verifying");
        st = nb_verify_blob(j->store, &layers[i], j->o->deep, err);
        if (i % 64 == 0)
            nb_job_progress(j, NB_CREATE_VERIFYING, "", j->total_bytes, j->total_bytes, (uint32_t)i, (uint32_t)n);
    }
    return st;
}

static nb_status publish(nb_job *j, const nb_name *name, nb_layer *layers, nb_blob_ref *refs, size_t *n_refs,
                         nb_error *err)
{
    size_t kept = j->base ? j->base->n_keep : 0, n = kept;
    nb_layer config;
    if (kept) memcpy(layers, j->base->keep, kept * sizeof *layers);
    for (size_t i = 0; i < j->n_items; i++) {
        layers[n] =
            (nb_layer){.media_type = NB_LIT(NB_MEDIA_TENSOR), .name = j->items[i].name, .size = j->refs[i].size};
        memcpy(layers[n++].hex, j->refs[i].hex, 65);
    }
    nb_job_progress(j, NB_CREATE_CONFIGS, "", j->total_bytes, j->total_bytes, (uint32_t)j->n_items,
                    (uint32_t)j->n_items);
    nb_status st = nb_write_configs(j, layers, &n, &config, refs, n_refs, err);
    if (st == NB_OK) st = verify_all(j, layers + kept, n - kept, err);
    if (st == NB_OK) st = nb_deep_check(j, layers + kept, err);
    if (st == NB_OK) st = nb_source_unchanged(&j->src, err);
    if (st == NB_OK && j->draft) st = nb_source_unchanged(&j->draft->src, err);
    if (st == NB_OK) st = nb_base_unchanged(j, name, err); /* another import may have replaced it meanwhile */
    if (st == NB_OK && nb_job_cancelled(j)) st = nb_fail(err, NB_E_CANCELLED, "cancelled before publishing");
    if (st != NB_OK) return st;
    nb_job_progress(j, NB_CREATE_PUBLISHING, "", j->total_bytes, j->total_bytes, (uint32_t)j->n_items,
                    (uint32_t)j->n_items);
    uint64_t start = nb_now_ns();
    st = nb_store_sync(j->store, err);
    if (st == NB_OK) st = nb_manifest_publish(j->store, name, &config, layers, n, j->r->digest, err);
    j->r->sync_seconds = (double)(nb_now_ns() - start) * 1e-9;
    return st;
}

/* What the name stood for before: its blobs that nothing names any more would stay until some later removal. */
static void release(nb_job *j, nb_manifest *replaced)
{
    nb_error why;
    if (replaced->hex[0] && strcmp(replaced->hex, j->r->digest) && nb_store_release(j->store, replaced, &why) != NB_OK)
        nb_log(1, "blobs of the replaced model stay: %s", why.text);
    nb_manifest_free(replaced);
}

static bool has_gguf(const nb_job *j) { return j->src.gguf || (j->draft && j->draft->src.gguf); }

static nb_status write_and_publish(nb_job *j, const nb_name *name, nb_error *err)
{
    int lock = -1;
    size_t n_refs = j->n_items, room = j->n_items + j->src.n_configs + 5;
    nb_layer *layers = NB_NEW_N(j->arena, nb_layer, room + (j->base ? j->base->n_keep : 0));
    nb_manifest replaced = {0};
    j->refs = NB_NEW_N(j->arena, nb_blob_ref, room);
    j->resumed = NB_NEW_N(j->arena, bool, j->n_items + 1);
    j->mended = NB_NEW_N(j->arena, uint64_t, j->n_items + 1);
    j->zeroed = NB_NEW_N(j->arena, uint64_t, j->n_items + 1);
    if (!layers || !j->refs || !j->resumed || !j->mended || !j->zeroed)
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = nb_store_lock_shared(j->store, &lock, err);
    if (st == NB_OK) st = nb_base_unchanged(j, name, err);
    if (st == NB_OK) st = nb_journal_open(j, err);
    if (st == NB_OK) st = preflight(j, err);
    if (st == NB_OK) {
        st = nb_write_items(j, err);
        j->scale_refused = st == NB_E_UNSUPPORTED && has_gguf(j) && !j->wide_scales;
    }
    if (st == NB_OK) nb_manifest_read(j->store, name, &replaced, NULL); /* empty where the name is new */
    if (st == NB_OK) st = publish(j, name, layers, j->refs, &n_refs, err);
    if (st != NB_OK) nb_store_discard(j->store, j->refs, n_refs);
    for (size_t i = 0; i < n_refs; i++) {
        if (j->refs[i].created)
            j->r->new_bytes += j->refs[i].size;
        else
            j->r->n_reused++;
    }
    j->r->n_blobs = (uint32_t)n_refs;
    nb_journal_close(j);
    nb_store_unlock(lock);
    if (st == NB_OK)
        release(j, &replaced);
    else
        nb_manifest_free(&replaced);
    return st;
}

static nb_status import(nb_store *s, const nb_create_options *o, bool wide_scales, bool *scale_refused,
                        nb_create_report *r, nb_error *err)
{
    nb_name name;
    nb_job j = {.store = s, .o = o, .r = r, .journal_fd = -1, .wide_scales = wide_scales};
    char request[32];
    memset(r, 0, sizeof *r);
    *scale_refused = false;
    r->arena = j.arena = nb_arena_new(0);
    if (!r->arena) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    bool attach = !o->source && o->draft, nameless = o->dry_run && !o->name && !attach;
    nb_status st = nameless ? NB_OK : nb_name_parse(&name, o->name ? o->name : "", err);
    if (st == NB_OK && !nameless) nb_name_text(&name, r->name);
    r->request = nb_arena_str(j.arena, nb_str_of(request_name(&j, request)));
    r->dry_run = o->dry_run;
    r->search = o->search;
    if (st == NB_OK) st = nb_plan_overrides(&j, err);
    if (st == NB_OK) st = nb_plan_quality(&j, err);
    if (st == NB_OK) st = nb_check_users(&j, err);
    if (st == NB_OK) st = attach ? nb_base_open(&j, &name, err) : nb_job_plan(&j, err);
    if (st == NB_OK) st = nb_draft_plan(&j, err);
    if (st == NB_OK) st = nb_plan_matched(&j, err);
    nb_report_fill(&j);
    if (st == NB_OK && !o->dry_run) st = write_and_publish(&j, &name, err);
    nb_report_fill(&j);
    if (st == NB_OK)
        nb_job_progress(&j, NB_CREATE_DONE, "", j.total_bytes, j.total_bytes, (uint32_t)j.n_items, (uint32_t)j.n_items);
    nb_draft_close(&j);
    nb_base_close(&j);
    nb_job_close(&j);
    *scale_refused = j.scale_refused;
    return st;
}

/* GGUF blocks nearly always fit a type with F16 scales and biases, and only reading all of them tells. So the first
 * plan takes it for granted; where the write finds it wrong, a second one looks first. */
nb_status nb_create(nb_store *s, const nb_create_options *o, nb_create_report *r, nb_error *err)
{
    uint64_t start = nb_now_ns();
    bool scale_refused;
    nb_status st = import(s, o, false, &scale_refused, r, err);
    if (st != NB_OK && scale_refused) {
        nb_create_report_free(r);
        st = import(s, o, true, &scale_refused, r, err);
    }
    r->seconds = (double)(nb_now_ns() - start) * 1e-9;
    return st;
}
