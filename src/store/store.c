/* The store's handle: where it lies, its folders and locks. */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

nb_status nb_store_no_memory(nb_error *err) { return nb_fail(err, NB_E_NO_MEMORY, "store: out of memory"); }

char *nb_store_path(const nb_store *s, const char *fmt, ...)
{
    char *tail = NULL, *path = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&tail, fmt, ap);
    va_end(ap);
    if (n < 0) return NULL;
    if (asprintf(&path, "%s/%s", s->root, tail) < 0) path = NULL;
    free(tail);
    return path;
}

nb_status nb_store_writable(const nb_store *s, nb_error *err)
{
    return s->foreign ? nb_fail(err, NB_E_USAGE, "%s: this store is only read", s->root) : NB_OK;
}

/* ---- opening ---- */

static const char *env(const char *name)
{
    const char *v = getenv(name);
    return v && *v ? v : NULL;
}

/* The root as the environment gives it. malloc; NULL and *err set on failure. */
static char *default_root(bool foreign, nb_error *err)
{
    const char *direct = env(foreign ? "OLLAMA_MODELS" : "NIBBLE_MODELS"), *home = env("HOME"),
               *xdg = env("XDG_DATA_HOME");
    char *root = NULL;
    int n;
    if (direct)
        n = asprintf(&root, "%s", direct);
    else if (!foreign && xdg && *xdg == '/')
        n = asprintf(&root, "%s/nibble/models", xdg);
    else if (home)
        n = asprintf(&root, "%s/%s", home, foreign ? ".ollama/models" : ".local/share/nibble/models");
    else {
        nb_fail(err, NB_E_USAGE, "no model store: neither %s nor HOME is set",
                foreign ? "OLLAMA_MODELS" : "NIBBLE_MODELS");
        return NULL;
    }
    if (n >= 0) return root;
    nb_store_no_memory(err);
    return NULL;
}

/* A relative root must not move when the program changes its folder. Takes path over. */
static char *make_absolute(char *path, nb_error *err)
{
    if (*path == '/') return path;
    char *cwd = getcwd(NULL, 0), *full = NULL;
    if (!cwd)
        nb_fail_errno(err, errno, "current folder");
    else if (asprintf(&full, "%s/%s", cwd, path) < 0) {
        full = NULL;
        nb_store_no_memory(err);
    }
    free(cwd);
    free(path);
    return full;
}

static nb_status open_store(nb_store **out, const char *root, bool foreign, nb_error *err)
{
    nb_error why = {0};
    *out = NULL;
    nb_store *s = calloc(1, sizeof *s);
    if (!s) return nb_store_no_memory(err);
    s->foreign = foreign;
    pthread_mutex_init(&s->mutex, NULL);
    s->arena = nb_arena_new(0);
    s->root = root && *root ? strdup(root) : default_root(foreign, &why);
    if (s->root) s->root = make_absolute(s->root, &why);
    if (!s->root || !s->arena) {
        nb_store_close(s);
        return why.status ? nb_fail(err, why.status, "%s", why.text) : nb_store_no_memory(err);
    }
    for (size_t n = strlen(s->root); n > 1 && s->root[n - 1] == '/'; n--) s->root[n - 1] = '\0';
    *out = s;
    return NB_OK;
}

nb_status nb_store_open(nb_store **out, const char *root, nb_error *err) { return open_store(out, root, false, err); }
nb_status nb_store_open_foreign(nb_store **out, const char *root, nb_error *err)
{
    return open_store(out, root, true, err);
}

void nb_store_close(nb_store *s)
{
    if (!s) return;
    pthread_mutex_destroy(&s->mutex);
    nb_map_free(&s->by_hex);
    nb_map_free(&s->named);
    nb_arena_free(s->arena);
    free(s->written);
    free(s->root);
    free(s);
}

const char *nb_store_root(const nb_store *s) { return s->root; }

nb_status nb_store_make_folders(nb_store *s, nb_error *err)
{
    static const char *const folder[] = {"blobs", "manifests-v2", "tmp"};
    nb_status st = nb_store_writable(s, err);
    for (size_t i = 0; i < NB_COUNT(folder) && !st; i++) {
        char *path = nb_store_path(s, "%s", folder[i]);
        st = path ? nb_mkdirs(path, err) : nb_store_no_memory(err);
        free(path);
    }
    return st;
}

nb_status nb_store_free_bytes(nb_store *s, uint64_t *bytes, nb_error *err)
{
    struct statvfs v;
    char *path = strdup(s->root);
    if (!path) return nb_store_no_memory(err);
    int rc;
    /* The root may not exist yet: ask the nearest folder above it. */
    while ((rc = statvfs(path, &v)) != 0 && errno == ENOENT && strcmp(path, "/") != 0) {
        char *slash = strrchr(path, '/');
        slash[slash == path] = '\0';
    }
    nb_status st = rc == 0 ? NB_OK : nb_fail_errno(err, errno, "%s", path);
    if (!st && !nb_mul_u64(v.f_bavail, v.f_frsize, bytes)) *bytes = UINT64_MAX;
    free(path);
    return st;
}

/* ---- locks ---- */

nb_status nb_store_flock(const nb_store *s, const char *name, int op, int *fd, nb_error *err)
{
    *fd = -1;
    char *path = nb_store_path(s, "%s", name);
    if (!path) return nb_store_no_memory(err);
    nb_status st = NB_OK;
    int rc, f = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (f < 0) {
        st = nb_fail_errno(err, errno, "%s", path);
        goto out;
    }
    while ((rc = flock(f, op)) != 0 && errno == EINTR) {
    }
    if (rc == 0) {
        *fd = f;
        f = -1;
    } else if (errno != EWOULDBLOCK) {
        st = nb_fail_errno(err, errno, "%s: lock", path);
    }
    if (f >= 0) close(f);
out:
    free(path);
    return st;
}

nb_status nb_store_lock_shared(nb_store *s, int *fd, nb_error *err)
{
    *fd = -1;
    nb_status st = nb_store_make_folders(s, err);
    return st ? st : nb_store_flock(s, ".gc.lock", LOCK_SH, fd, err);
}

void nb_store_unlock(int fd)
{
    if (fd >= 0) close(fd);
}

/* ---- what this handle wrote, and syncing it ---- */

/* Adds an entry; the mutex is held. NULL when memory is out. */
static nb_written *add_written(nb_store *s, const char hex[65])
{
    if (s->n_written == s->cap_written) {
        size_t cap = s->cap_written ? 2 * s->cap_written : 64;
        nb_written **list = realloc(s->written, cap * sizeof *list);
        if (!list) return NULL;
        s->written = list;
        s->cap_written = cap;
    }
    nb_written *w = NB_NEW(s->arena, nb_written);
    if (!w) return NULL;
    memcpy(w->hex, hex, 65);
    if (!nb_map_put(&s->by_hex, (nb_str){w->hex, 64}, (uint32_t)s->n_written, NULL, NULL)) return NULL;
    s->written[s->n_written++] = w;
    return w;
}

nb_status nb_store_note(nb_store *s, const char hex[65], bool created, struct timespec touched, nb_error *err)
{
    uint32_t at;
    pthread_mutex_lock(&s->mutex);
    bool known = nb_map_get(&s->by_hex, (nb_str){hex, 64}, &at);
    nb_written *w = known ? s->written[at] : add_written(s, hex);
    if (w) {
        w->touched = touched;
        if (created) w->created = true;
        if (created) w->synced = false;
    }
    pthread_mutex_unlock(&s->mutex);
    return w ? NB_OK : nb_store_no_memory(err);
}

bool nb_store_noted(nb_store *s, const char hex[65], nb_written *out)
{
    uint32_t at;
    pthread_mutex_lock(&s->mutex);
    bool known = nb_map_get(&s->by_hex, (nb_str){hex, 64}, &at);
    if (known) *out = *s->written[at];
    pthread_mutex_unlock(&s->mutex);
    return known;
}

nb_status nb_sync_path(const char *path, bool folder, nb_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | (folder ? O_DIRECTORY : O_NOFOLLOW));
    if (fd < 0) return nb_fail_errno(err, errno, "%s", path);
    nb_status st = NB_OK;
    /* A file system that cannot sync a folder says EINVAL: nothing to do there. */
    if ((folder ? fsync(fd) : fdatasync(fd)) != 0 && errno != EINVAL) st = nb_fail_errno(err, errno, "%s: sync", path);
    close(fd);
    return st;
}

nb_status nb_store_sync(nb_store *s, nb_error *err)
{
    nb_status st = nb_store_writable(s, err);
    if (st) return st;
    bool any = false;
    pthread_mutex_lock(&s->mutex);
    for (size_t i = 0; i < s->n_written && !st; i++) {
        nb_written *w = s->written[i];
        if (w->synced) continue;
        char *path = nb_store_path(s, "blobs/sha256-%s", w->hex);
        st = path ? nb_sync_path(path, false, err) : nb_store_no_memory(err);
        free(path);
        if (st == NB_E_NOT_FOUND) st = NB_OK; /* discarded since; publishing looks for what it needs */
        w->synced = !st;
        any = true;
    }
    pthread_mutex_unlock(&s->mutex);
    if (st || !any) return st;
    char *folder = nb_store_path(s, "blobs");
    st = folder ? nb_sync_path(folder, true, err) : nb_store_no_memory(err);
    free(folder);
    return st;
}
