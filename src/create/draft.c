/* create/draft: draft models for speculation. specs/create.md 1.5. A draft has its own folder and its own request; its
 * tensors are stored under "draft.", its config files under "draft/". It is planned by names and shapes. An inline head
 * ("mtp.") is part of the target's own tensors and is only recorded. */
#include "base/file.h"
#include "create/plan.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

static bool has_model(const char *dir)
{
    char path[4096];
    struct stat st;
    return snprintf(path, sizeof path, "%s/config.json", dir) < (int)sizeof path && stat(path, &st) == 0 &&
           S_ISREG(st.st_mode);
}

/* "draft", else the first "draft*" folder with a config.json. */
static const char *find_folder(nb_job *j)
{
    const char *best = NULL;
    DIR *d = opendir(j->src.dir);
    if (!d) return NULL;
    for (struct dirent *e; (e = readdir(d));) {
        if (strncmp(e->d_name, "draft", 5)) continue;
        char *path = nb_arena_printf(j->arena, "%s/%s", j->src.dir, e->d_name);
        if (path && nb_path_is_dir(path) && has_model(path) && (!best || strcmp(path, best) < 0)) best = path;
    }
    closedir(d);
    return best;
}

static nb_status same_folder(const char *a, const char *b, nb_error *err)
{
    struct stat x, y;
    if (stat(a, &x) != 0) return nb_fail_errno(err, errno, "%s", a);
    if (stat(b, &y) != 0) return nb_fail_errno(err, errno, "%s", b);
    if (x.st_dev == y.st_dev && x.st_ino == y.st_ino)
        return nb_fail(err, NB_E_INVALID, "draft and model are the same directory: %s (E_DRAFT)", b);
    return NB_OK;
}

static nb_status adopt(nb_job *j, nb_job *d, nb_error *err)
{
    for (size_t i = 0; i < d->n_items; i++) {
        nb_item *it = nb_plan_item(j);
        if (!it) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        *it = d->items[i];
    }
    for (size_t i = 0; i < d->tensors.n; i++) {
        nb_create_tensor *t = nb_job_tensor(j);
        if (!t) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        *t = d->tensors.v[i];
    }
    if (!nb_job_adopt_warnings(j, d)) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < d->src.n_configs; i++) {
        const nb_src_config *c = &d->src.configs[i];
        char *name = nb_arena_printf(j->arena, "draft/%.*s", NB_FMT_STR(c->name));
        if (!name || !nb_source_add_config(j, &j->src, nb_str_of(name), c->media_type, c->bytes))
            return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    if (!nb_add_u64(j->total_bytes, d->total_bytes, &j->total_bytes))
        return nb_fail(err, NB_E_INVALID, "the plan is larger than 2^64 bytes");
    j->r->source_bytes += d->src.bytes;
    return NB_OK;
}

/* Number of layers of an inline head; the config's number must agree. */
static void inline_head(nb_job *j)
{
    int64_t said;
    int layers = 0;
    for (size_t i = 0; i < j->src.n; i++) {
        nb_str name = j->src.t[i].canon;
        if (!name.p || !nb_str_starts(name, "mtp.layers.")) continue;
        int64_t n = 0;
        for (size_t k = 11; k < name.n && name.p[k] >= '0' && name.p[k] <= '9' && n < 1000; k++)
            n = n * 10 + (name.p[k] - '0');
        if (n + 1 > layers) layers = (int)n + 1;
    }
    j->mtp_layers = layers;
    if (layers &&
        nb_json_i64(nb_json_get(j->src.cfg.text ? j->src.cfg.text : j->src.config.root, "mtp_num_hidden_layers"),
                    &said) &&
        said != layers)
        nb_job_warn(j, NB_LIT("mtp"), "config.json says %lld draft layers, the file has %d", (long long)said, layers);
}

nb_status nb_draft_plan(nb_job *j, nb_error *err)
{
    inline_head(j);
    nb_status st = nb_inline_fit(j, err);
    if (st != NB_OK) return st;
    const char *dir = j->o->draft ? j->o->draft : j->src.gguf || j->base ? NULL : find_folder(j);
    if (!dir && j->o->draft_request == NB_REQUEST_TYPE)
        return nb_fail(err, NB_E_USAGE, "a type for the draft was given, and there is no draft (E_DRAFT)");
    if (!dir) return NB_OK;
    st = j->src.dir ? same_folder(j->src.dir, dir, err) : NB_OK;
    if (st != NB_OK) return st;
    nb_job *d = NB_NEW(j->arena, nb_job);
    nb_create_options *o = NB_NEW(j->arena, nb_create_options);
    nb_create_report *r = NB_NEW(j->arena, nb_create_report);
    if (!d || !o || !r) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    *o = *j->o;
    o->source = dir;
    o->request = j->o->draft_request;
    o->type = j->o->draft_type;
    o->draft = NULL;
    o->keep = o->types = NULL;
    o->force = true;
    r->arena = j->arena;
    *d = (nb_job){.store = j->store, .o = o, .arena = j->arena, .r = r, .journal_fd = -1, .is_draft = true};
    d->wide_scales = j->wide_scales;
    j->draft = d;
    st = nb_job_plan(d, err);
    if (st == NB_OK && nb_str_is(r->architecture, "unknown"))
        st = nb_fail(err, NB_E_INVALID, "no architecture in config.json (E_DRAFT)");
    if (st != NB_OK) {
        nb_error_prefix(err, "draft");
        return st;
    }
    st = nb_draft_fit(j, d, err);
    return st == NB_OK ? adopt(j, d, err) : st;
}

void nb_draft_close(nb_job *j)
{
    if (j->draft) nb_job_close(j->draft);
}
