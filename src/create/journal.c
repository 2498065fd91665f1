/* create/journal: resume after a kill. ROOT/tmp/import-<plan>.journal has a line per finished blob: recipe, digest,
 * size. The recipe is a hash of all that decides the blob's bytes, with the identity of the source files in it, so a
 * journal can never bring in what the source does not hold any more: size, date and inode, or with --strict its
 * SHA-256. A blob found this way is hashed again.
 *
 * The running import holds a lock on its journal. Who gets the lock of a journal that has lines knows that their writer
 * is dead, and removes what it left in ROOT/tmp: each run begins with a line "run PID", and temporary files carry the
 * pid in their names. */
#include "base/file.h"
#include "create/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define CONVERTER "nibble-create-1"

static void hash_i64(nb_sha256 *h, int64_t v) { nb_sha256_update(h, &v, sizeof v); }

static void hash_tensor(nb_sha256 *h, const nb_source *s, const nb_src_tensor *t)
{
    if (!t) {
        hash_i64(h, -1);
        return;
    }
    const nb_src_file *f = &s->files[t->file];
    if (f->sha256[0]) {
        int64_t place[] = {(int64_t)f->size, (int64_t)t->off, (int64_t)t->len, t->dtype, (int64_t)t->ggml};
        nb_sha256_update(h, f->sha256, 64);
        nb_sha256_update(h, place, sizeof place);
        return;
    }
    int64_t v[] = {(int64_t)f->size, f->mtime_ns,     f->ctime_ns, (int64_t)f->ino,  (int64_t)f->dev,
                   (int64_t)t->off,  (int64_t)t->len, t->dtype,    (int64_t)t->ggml};
    nb_sha256_update(h, v, sizeof v);
}

static void hash_matrix(nb_sha256 *h, const nb_source *s, const nb_matrix *m)
{
    int64_t v[] = {m->n,           m->k,          m->expert,     m->row0,       m->step,
                   m->stored_rows, m->perm,       m->transposed, m->bits,       m->src_group,
                   m->flags,       m->block_rows, m->block_cols, m->has_native, nb_bits_f32(m->m)};
    nb_sha256_update(h, m->reader->name, strlen(m->reader->name) + 1);
    nb_sha256_update(h, v, sizeof v);
    const nb_src_tensor *t[] = {m->w, m->scale, m->bias, m->global, m->zero, m->gidx};
    for (size_t i = 0; i < NB_COUNT(t); i++) hash_tensor(h, s, t[i]);
    if (m->pre_scale) nb_sha256_update(h, m->pre_scale, (size_t)m->k * sizeof *m->pre_scale);
    for (int64_t i = 0, n = m->keys ? m->n / (m->keys->k + m->values->n) : 0; i < n; i++) {
        hash_matrix(h, s, &m->keys[i]);
        hash_matrix(h, s, &m->values[i]);
    }
}

static nb_status recipe(nb_job *j, nb_item *it, nb_error *err)
{
    nb_sha256 *h = nb_sha256_new();
    if (!h) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_sha256_update(h, CONVERTER, sizeof CONVERTER);
    nb_sha256_update(h, it->header.p, it->header.n);
    hash_i64(h, j->o->permissive | j->o->nonfinite_zero << 1 | j->o->search << 2);
    if (it->src) hash_tensor(h, it->source, it->src);
    hash_i64(h, it->plain_perm);
    hash_i64(h, it->minus_one);
    for (int i = 0; i < it->n_proj; i++) {
        hash_i64(h, it->proj[i].native);
        hash_tensor(h, it->source, it->proj[i].out_bias);
        for (int64_t e = 0; e < it->experts; e++) hash_matrix(h, it->source, &it->proj[i].m[e]);
    }
    nb_sha256_finish(h, it->recipe);
    return NB_OK;
}

static nb_status hash_file(const nb_job *j, int fd, uint64_t size, const char *path, char hex[65], nb_error *err)
{
    enum { STEP = 1 << 20 };
    nb_sha256 *h = nb_sha256_new();
    char *chunk = malloc(STEP);
    nb_status st = h && chunk ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (uint64_t at = 0; at < size && st == NB_OK; at += STEP) {
        size_t n = size - at < STEP ? (size_t)(size - at) : STEP;
        st = nb_pread_full(fd, chunk, n, at, path, err);
        if (st == NB_OK) nb_sha256_update(h, chunk, n);
        if (st == NB_OK && nb_job_cancelled(j)) st = nb_fail(err, NB_E_CANCELLED, "cancelled while reading %s", path);
    }
    if (st == NB_OK)
        nb_sha256_finish(h, hex);
    else
        nb_sha256_abort(h);
    free(chunk);
    return st;
}

/* The digest of a stored blob's bytes is what the journal says. */
static bool still_whole(nb_job *j, const nb_blob_ref *ref)
{
    nb_buf path = {0};
    char hex[65] = "";
    int fd = -1;
    uint64_t size = 0;
    nb_blob_path(j->store, ref->hex, &path);
    bool ok = nb_buf_cstr(&path) && nb_file_open(&fd, &size, path.p, NULL) == NB_OK && size == ref->size &&
              hash_file(j, fd, size, path.p, hex, NULL) == NB_OK;
    if (fd >= 0) close(fd);
    nb_buf_free(&path);
    return ok && !strcmp(hex, ref->hex);
}

/* --strict: what the files hold, instead of when they were written. */
static nb_status hash_sources(nb_job *j, nb_source *s, nb_error *err)
{
    nb_status st = NB_OK;
    for (size_t i = 0; i < s->n_files && st == NB_OK && j->o->strict; i++) {
        nb_src_file *f = &s->files[i];
        nb_job_progress(j, NB_CREATE_READING, f->path, 0, 0, (uint32_t)i, (uint32_t)s->n_files);
        st = hash_file(j, f->fd, f->size, f->path, f->sha256, err);
    }
    return st;
}

/* Temporary files of a process that is gone: "blob-PID-..." and "link-PID-...". */
static void sweep(const char *dir, long pid)
{
    char part[40], path[4096];
    DIR *d = pid <= 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH ? NULL : opendir(dir);
    if (!d) return;
    snprintf(part, sizeof part, "-%ld-", pid);
    for (struct dirent *e; (e = readdir(d));) {
        bool ours = (!strncmp(e->d_name, "blob", 4) || !strncmp(e->d_name, "link", 4)) &&
                    !strncmp(e->d_name + 4, part, strlen(part));
        if (ours && snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path) unlink(path);
    }
    closedir(d);
}

/* Marks the items whose blobs an earlier run finished. A line that does not parse ends the reading: it was cut by the
 * kill. */
static void read_lines(nb_job *j, const char *dir, const char *text, size_t n, const nb_map *by_recipe)
{
    for (size_t at = 0; at + 5 < n;) {
        const char *nl = memchr(text + at, '\n', n - at);
        if (!nl) return;
        if (!strncmp(text + at, "run ", 4)) {
            sweep(dir, strtol(text + at + 4, NULL, 10));
            at = (size_t)(nl - text) + 1;
            continue;
        }
        if (nl - (text + at) < 131) return;
        nb_str key = {text + at, 64};
        nb_blob_ref ref = {.created = true};
        char digest[72];
        uint32_t i;
        snprintf(digest, sizeof digest, "sha256:%.64s", text + at + 65);
        if (text[at + 64] != ' ' || text[at + 129] != ' ' || !nb_digest_parse(nb_str_of(digest), ref.hex)) return;
        ref.size = strtoull(text + at + 130, NULL, 10);
        if (nb_map_get(by_recipe, key, &i) && ref.size == j->items[i].bytes && !j->resumed[i] && still_whole(j, &ref) &&
            nb_blob_own(j->store, ref.hex, NULL) == NB_OK) {
            j->refs[i] = ref;
            j->resumed[i] = true;
            j->r->n_resumed++;
        }
        at = (size_t)(nl - text) + 1;
    }
}

nb_status nb_journal_open(nb_job *j, nb_error *err)
{
    nb_map by_recipe = {0};
    nb_buf text = {0};
    char plan[65];
    nb_status st = hash_sources(j, &j->src, err);
    if (st == NB_OK && j->draft) st = hash_sources(j, &j->draft->src, err);
    if (st != NB_OK) return st;
    nb_sha256 *h = nb_sha256_new();
    if (!h || !nb_map_init(&by_recipe, j->n_items + 1)) st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < j->n_items && st == NB_OK; i++) {
        st = recipe(j, &j->items[i], err);
        if (st != NB_OK) break;
        nb_sha256_update(h, j->items[i].recipe, 64);
        if (!nb_map_put(&by_recipe, (nb_str){j->items[i].recipe, 64}, (uint32_t)i, NULL, NULL))
            st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    if (st != NB_OK) {
        nb_sha256_abort(h);
        goto out;
    }
    nb_sha256_finish(h, plan);
    j->journal_path = nb_arena_printf(j->arena, "%s/tmp/import-%s.journal", nb_store_root(j->store), plan);
    char *dir = nb_arena_printf(j->arena, "%s/tmp", nb_store_root(j->store));
    st = j->journal_path && dir ? nb_mkdirs(dir, err) : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    if (st != NB_OK) goto out;
    j->journal_fd = open(j->journal_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (j->journal_fd < 0) {
        st = nb_fail_errno(err, errno, "%s", j->journal_path);
        goto out;
    }
    if (flock(j->journal_fd, LOCK_EX | LOCK_NB) != 0) { /* the same import runs elsewhere: do without */
        close(j->journal_fd);
        j->journal_fd = -1;
        j->journal_path = NULL;
        goto out;
    }
    if (nb_file_read(&text, j->journal_path, 64u << 20, NULL) == NB_OK) read_lines(j, dir, text.p, text.n, &by_recipe);
    text.n = 0;
    nb_buf_printf(&text, "run %ld\n", (long)getpid());
    st = text.oom ? nb_fail(err, NB_E_NO_MEMORY, "out of memory")
                  : nb_write_full(j->journal_fd, text.p, text.n, j->journal_path, err);
out:
    nb_map_free(&by_recipe);
    nb_buf_free(&text);
    return st;
}

nb_status nb_journal_add(nb_job *j, size_t item, nb_error *err)
{
    char line[160];
    if (j->journal_fd < 0) return NB_OK;
    int n = snprintf(line, sizeof line, "%s %s %llu\n", j->items[item].recipe, j->refs[item].hex,
                     (unsigned long long)j->refs[item].size);
    return nb_write_full(j->journal_fd, line, (size_t)n, j->journal_path, err);
}

void nb_journal_close(nb_job *j)
{
    if (j->journal_fd < 0) return;
    if (j->journal_path) unlink(j->journal_path);
    close(j->journal_fd);
    j->journal_fd = -1;
}
