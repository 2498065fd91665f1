/* Whole-store operations: walk, list, remove, copy, verify, collect. */
#include "store/internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { /* seconds that a file in tmp may lie untouched */
       TMP_GRACE = 3600,
       JOURNAL_GRACE = 7 * 24 * 3600, /* an import that was killed may be taken up again for so long */
};

/* ---- walking over all names ---- */

typedef struct walk {
    nb_store *s;
    nb_name_fn *fn;
    void *user;
    const char *part[4]; /* host, namespace, model, tag on the way down */
} walk;

static nb_status at_leaf(walk *w, int folder, const char *entry, nb_error *err)
{
    char text[4 * 81];
    nb_name name;
    struct stat info;
    for (int i = 0; i < 4; i++) {
        if (strlen(w->part[i]) > 80) return NB_OK;
    }
    snprintf(text, sizeof text, "%s/%s/%s:%s", w->part[0], w->part[1], w->part[2], w->part[3]);
    if (nb_name_parse(&name, text, NULL) || fstatat(folder, entry, &info, AT_SYMLINK_NOFOLLOW) != 0) return NB_OK;
    if (!S_ISLNK(info.st_mode) && !S_ISREG(info.st_mode)) return NB_OK;
    return w->fn(w->user, &name, (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec, err);
}

/* Takes over fd. Recursion is four deep. What cannot be a name is passed over. */
static nb_status walk_folder(walk *w, int fd, int depth, nb_error *err)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        int e = errno;
        close(fd);
        return nb_fail_errno(err, e, "%s", w->s->root);
    }
    nb_status st = NB_OK;
    struct dirent *e;
    while (!st && (e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.') continue;
        w->part[depth] = e->d_name;
        if (depth == 3) {
            st = at_leaf(w, dirfd(dir), e->d_name, err);
            continue;
        }
        int sub = openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (sub >= 0)
            st = walk_folder(w, sub, depth + 1, err);
        else if (errno != ENOTDIR && errno != ENOENT && errno != ELOOP)
            st = nb_fail_errno(err, errno, "%s/%s", w->s->root, e->d_name);
    }
    closedir(dir);
    return st;
}

nb_status nb_store_walk(nb_store *s, nb_name_fn *fn, void *user, nb_error *err)
{
    static const char *const sub[] = {"manifests-v2", "manifests"};
    nb_status st = NB_OK;
    for (size_t i = 0; i < (s->foreign ? 2u : 1u) && !st; i++) {
        walk w = {.s = s, .fn = fn, .user = user};
        char *path = nb_store_path(s, "%s", sub[i]);
        if (!path) return nb_store_no_memory(err);
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0)
            st = walk_folder(&w, fd, 0, err);
        else if (errno != ENOENT)
            st = nb_fail_errno(err, errno, "%s", path);
        free(path);
    }
    return st;
}

/* ---- list ---- */

/* Bytes of the distinct blobs of a model. */
static uint64_t distinct_bytes(const nb_manifest *m)
{
    nb_map seen;
    uint64_t sum = m->config.size;
    if (!nb_map_init(&seen, m->n_layers + 1)) return 0;
    nb_map_put(&seen, (nb_str){m->config.hex, 64}, 0, NULL, NULL);
    for (size_t i = 0; i < m->n_layers; i++) {
        bool had = false;
        if (nb_map_put(&seen, (nb_str){m->layers[i].hex, 64}, 0, &had, NULL) && !had)
            nb_add_u64(sum, m->layers[i].size, &sum);
    }
    nb_map_free(&seen);
    return sum;
}

typedef struct listing {
    nb_store *s;
    nb_buf entries; /* of nb_model_entry */
} listing;

static nb_status list_one(void *user, const nb_name *n, int64_t modified_ns, nb_error *err)
{
    listing *l = user;
    nb_manifest m;
    nb_error why;
    nb_status st = nb_manifest_read(l->s, n, &m, &why);
    if (st == NB_E_NO_MEMORY) return nb_fail(err, st, "%s", why.text);
    if (st) {
        if (st != NB_E_NOT_FOUND) nb_log(1, "%s", why.text); /* not found: removed since */
        return NB_OK;
    }
    nb_model_entry e = {.name = *n, .bytes = distinct_bytes(&m), .modified_ns = modified_ns};
    memcpy(e.hex, m.hex, sizeof e.hex);
    nb_buf_add(&l->entries, &e, sizeof e);
    nb_manifest_free(&m);
    return NB_OK;
}

static int by_name(const void *a, const void *b)
{
    char x[340], y[340];
    nb_name_text(&((const nb_model_entry *)a)->name, x);
    nb_name_text(&((const nb_model_entry *)b)->name, y);
    return strcmp(x, y);
}

nb_status nb_store_list(nb_store *s, nb_arena *a, nb_model_entry **out, size_t *n, nb_error *err)
{
    *out = NULL;
    *n = 0;
    listing l = {.s = s};
    nb_status st = nb_store_walk(s, list_one, &l, err);
    size_t count = l.entries.n / sizeof **out;
    if (!st) {
        *out = NB_NEW_N(a, nb_model_entry, count);
        if (!*out || l.entries.oom) st = nb_store_no_memory(err);
    }
    if (!st && count) {
        memcpy(*out, l.entries.p, l.entries.n);
        qsort(*out, count, sizeof **out, by_name);
        *n = count;
    }
    nb_buf_free(&l.entries);
    return st;
}

/* ---- which blobs are named ---- */

typedef struct naming {
    nb_store *s;
    nb_map *map;
    nb_arena *a;
    bool strict;
} naming;

static bool add_hex(nb_map *map, nb_arena *a, const char hex[65])
{
    if (nb_map_get(map, (nb_str){hex, 64}, NULL)) return true;
    char *key = nb_arena_dup(a, hex, 64);
    return key && nb_map_put(map, (nb_str){key, 64}, 1, NULL, NULL);
}

static bool add_manifest(nb_map *map, nb_arena *a, const nb_manifest *m)
{
    bool ok = add_hex(map, a, m->hex) && add_hex(map, a, m->config.hex);
    for (size_t i = 0; i < m->n_layers && ok; i++) ok = add_hex(map, a, m->layers[i].hex);
    return ok;
}

static nb_status name_one(void *user, const nb_name *n, int64_t modified_ns, nb_error *err)
{
    naming *g = user;
    nb_manifest m;
    nb_error why;
    (void)modified_ns;
    nb_status st = nb_manifest_read(g->s, n, &m, &why);
    if (st == NB_E_NOT_FOUND || (st && !g->strict)) return NB_OK;
    if (st) return nb_fail(err, st, "%s", why.text);
    if (!add_manifest(g->map, g->a, &m)) st = nb_store_no_memory(err);
    nb_manifest_free(&m);
    return st;
}

nb_status nb_store_named(nb_store *s, nb_map *named, nb_arena *a, bool strict, nb_error *err)
{
    naming g = {.s = s, .map = named, .a = a, .strict = strict};
    return nb_store_walk(s, name_one, &g, err);
}

/* ---- collection ---- */

typedef struct collection {
    nb_map named, own; /* own: blobs of a model just removed; they get no grace */
    nb_arena *a;
    int64_t grace;
    uint64_t freed;
} collection;

/* Seconds since a file was last written or touched. */
static int64_t age(const struct stat *st)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec - (int64_t)st->st_mtim.tv_sec;
}

static bool is_journal(const char *entry) { return nb_str_ends(nb_str_of(entry), ".journal"); }

/* Blobs that an interrupted import has finished and will ask for: lines "<64 digits of its recipe> <digest> ...". */
static bool name_journalled(collection *c, const char *path)
{
    nb_buf text = {0};
    bool ok = true;
    if (nb_file_read(&text, path, 64u << 20, NULL) != NB_OK) text.n = 0;
    for (size_t at = 0; at < text.n && ok;) {
        const char *line = text.p + at, *nl = memchr(line, '\n', text.n - at);
        size_t n = nl ? (size_t)(nl - line) : text.n - at;
        char digest[72], hex[65];
        if (n > 129) {
            snprintf(digest, sizeof digest, "sha256:%.64s", line + 65);
            const char *key = nb_digest_parse(nb_str_of(digest), hex) ? nb_arena_dup(c->a, hex, 64) : NULL;
            if (key) ok = nb_map_put(&c->named, (nb_str){key, 64}, 1, NULL, NULL);
        }
        at += n + 1;
    }
    nb_buf_free(&text);
    return ok;
}

static nb_status keep_journalled(const nb_store *s, collection *c, nb_error *err)
{
    char *path = nb_store_path(s, "tmp"), *file = NULL;
    DIR *dir = path ? opendir(path) : NULL;
    bool ok = path != NULL;
    for (struct dirent *e; dir && ok && (e = readdir(dir));) {
        struct stat info;
        if (!is_journal(e->d_name) || fstatat(dirfd(dir), e->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode) || age(&info) >= JOURNAL_GRACE)
            continue;
        ok = asprintf(&file, "%s/%s", path, e->d_name) >= 0;
        if (ok) ok = name_journalled(c, file);
        free(file);
        file = NULL;
    }
    if (dir) closedir(dir);
    free(path);
    return ok ? NB_OK : nb_store_no_memory(err);
}

/* Unlinks what is garbage in one folder: in blobs unnamed blobs, in tmp everything old. */
static nb_status sweep(const nb_store *s, collection *c, const char *sub, bool blobs, nb_error *err)
{
    char *path = nb_store_path(s, "%s", sub);
    if (!path) return nb_store_no_memory(err);
    nb_status st = NB_OK;
    DIR *dir = opendir(path);
    if (!dir && errno != ENOENT) st = nb_fail_errno(err, errno, "%s", path);
    struct dirent *e;
    while (dir && (e = readdir(dir)) != NULL) {
        char hex[65];
        struct stat info;
        if (blobs && !nb_digest_parse(nb_str_of(e->d_name), hex)) continue;
        if (blobs && nb_map_get(&c->named, (nb_str){hex, 64}, NULL)) continue;
        if (fstatat(dirfd(dir), e->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !(S_ISREG(info.st_mode) || (!blobs && S_ISLNK(info.st_mode))))
            continue;
        bool own = blobs && nb_map_get(&c->own, (nb_str){hex, 64}, NULL);
        int64_t grace = blobs ? c->grace : is_journal(e->d_name) ? JOURNAL_GRACE : TMP_GRACE;
        if (!own && age(&info) < grace) continue;
        if (unlinkat(dirfd(dir), e->d_name, 0) != 0)
            nb_log(1, "%s/%s cannot be removed", path, e->d_name);
        else if (info.st_nlink == 1)
            nb_add_u64(c->freed, (uint64_t)info.st_size, &c->freed);
    }
    if (dir) closedir(dir);
    free(path);
    return st;
}

/* Collects unless an import holds the store or a manifest cannot be read: both only postpone. */
static nb_status collect(nb_store *s, collection *c, nb_error *err)
{
    nb_error why;
    int gc = -1, lock = -1;
    nb_status st = nb_store_flock(s, ".gc.lock", LOCK_EX | LOCK_NB, &gc, err);
    if (st) return st;
    if (gc < 0) {
        nb_log(2, "an import is running: unused blobs stay until the next removal");
        return NB_OK;
    }
    if (nb_store_named(s, &c->named, c->a, true, &why)) {
        nb_log(1, "unused blobs stay, since a manifest cannot be read: %s", why.text);
        goto out;
    }
    st = keep_journalled(s, c, err);
    if (!st) st = nb_store_flock(s, ".blobs.lock", LOCK_EX, &lock, err);
    if (!st) st = sweep(s, c, "blobs", true, err);
    if (!st) st = sweep(s, c, "tmp", false, err);
out:
    nb_store_unlock(lock);
    nb_store_unlock(gc);
    return st;
}

static nb_status collection_init(collection *c, uint64_t grace, nb_error *err)
{
    *c = (collection){.grace = grace < INT64_MAX ? (int64_t)grace : INT64_MAX};
    c->a = nb_arena_new(0);
    return c->a && nb_map_init(&c->named, 256) && nb_map_init(&c->own, 256) ? NB_OK : nb_store_no_memory(err);
}

static void collection_free(collection *c)
{
    nb_map_free(&c->named);
    nb_map_free(&c->own);
    nb_arena_free(c->a);
}

nb_status nb_store_gc(nb_store *s, uint64_t grace_seconds, uint64_t *freed_bytes, nb_error *err)
{
    if (freed_bytes) *freed_bytes = 0;
    nb_status st = nb_store_writable(s, err);
    if (st || !nb_path_is_dir(s->root)) return st;
    collection c;
    st = collection_init(&c, grace_seconds, err);
    if (!st) st = collect(s, &c, err);
    if (freed_bytes) *freed_bytes = c.freed;
    collection_free(&c);
    return st;
}

/* ---- remove ---- */

/* Removes the link and the folders that it leaves empty. */
static nb_status unlink_name(nb_store *s, const nb_name *n, nb_error *err)
{
    char *path = nb_name_folder(s, n), *link = NULL;
    if (!path || asprintf(&link, "%s/%s", path, n->tag) < 0) {
        free(path);
        return nb_store_no_memory(err);
    }
    nb_status st = NB_OK;
    if (unlink(link) != 0) {
        st = nb_fail_errno(err, errno, "%s", link);
    } else {
        st = nb_sync_path(path, true, err);
        if (st == NB_E_NOT_FOUND) st = NB_OK; /* another removal took the folder already */
        /* Model, namespace, host: rmdir takes empty ones only. */
        for (int i = 0; i < 3 && rmdir(path) == 0; i++) *strrchr(path, '/') = '\0';
    }
    free(link);
    free(path);
    return st;
}

nb_status nb_store_rm(nb_store *s, const nb_name *name, uint64_t *freed_bytes, nb_error *err)
{
    if (freed_bytes) *freed_bytes = 0;
    char shown[340];
    nb_name_text(name, shown);
    nb_status st = nb_store_writable(s, err);
    if (st) return st;
    collection c;
    nb_manifest m = {0};
    st = collection_init(&c, TMP_GRACE, err);
    if (st) goto out;
    /* A broken model can be removed too; its own blobs are then found by age. */
    nb_error why;
    if (!nb_manifest_read(s, name, &m, &why) && !add_manifest(&c.own, c.a, &m)) {
        st = nb_store_no_memory(err);
        goto out;
    }
    st = unlink_name(s, name, err);
    if (st == NB_E_NOT_FOUND) nb_fail(err, st, "model '%s' not found in %s", shown, s->root);
    if (!st) st = collect(s, &c, err);
    if (freed_bytes) *freed_bytes = c.freed;
out:
    nb_manifest_free(&m);
    collection_free(&c);
    return st;
}

nb_status nb_store_release(nb_store *s, const nb_manifest *replaced, nb_error *err)
{
    collection c;
    nb_status st = collection_init(&c, TMP_GRACE, err);
    if (!st && !add_manifest(&c.own, c.a, replaced)) st = nb_store_no_memory(err);
    if (!st) st = collect(s, &c, err);
    collection_free(&c);
    return st;
}

/* ---- copy, verify ---- */

nb_status nb_store_cp(nb_store *s, const nb_name *from, const nb_name *to, nb_error *err)
{
    int lock = -1;
    nb_manifest m;
    nb_status st = nb_store_lock_shared(s, &lock, err);
    if (st) return st;
    st = nb_manifest_read(s, from, &m, err);
    if (!st) {
        /* A manifest that was copied or hard-linked must have its blob, or the new link leads to nothing. */
        st = nb_blob_stat(s, m.hex, NULL, err);
        if (!st) st = nb_name_link(s, to, m.hex, err);
        nb_manifest_free(&m);
    }
    nb_store_unlock(lock);
    return st;
}

typedef struct ticker {
    void (*progress)(void *, uint64_t, uint64_t);
    void *user;
    uint64_t done, total;
} ticker;

static void tick(void *user, uint64_t n)
{
    ticker *t = user;
    t->done += n;
    if (t->progress) t->progress(t->user, t->done, t->total);
}

static nb_status verify_layer(nb_store *s, const nb_layer *l, ticker *t, nb_error *err)
{
    char got[65];
    nb_status st = nb_manifest_check_blobs(s, l, NULL, 0, err);
    if (!st) st = nb_blob_hash(s, l->hex, got, tick, t, err);
    if (!st && strcmp(got, l->hex) != 0) {
        st = nb_fail(err, NB_E_INVALID, "blob sha256-%s ('%.*s') is damaged: its bytes hash to %s", l->hex,
                     NB_FMT_STR(l->name), got);
    }
    return st;
}

nb_status nb_store_verify(nb_store *s, const nb_name *name, void (*progress)(void *, uint64_t, uint64_t), void *user,
                          nb_error *err)
{
    nb_manifest m;
    nb_map seen = {0};
    nb_status st = nb_manifest_read(s, name, &m, err);
    if (st) return st;
    ticker t = {.progress = progress, .user = user, .total = distinct_bytes(&m)};
    if (!nb_map_init(&seen, m.n_layers + 1)) st = nb_store_no_memory(err);
    if (!st) st = verify_layer(s, &m.config, &t, err);
    if (!st) nb_map_put(&seen, (nb_str){m.config.hex, 64}, 0, NULL, NULL);
    for (size_t i = 0; i < m.n_layers && !st; i++) {
        bool had = false;
        if (!nb_map_put(&seen, (nb_str){m.layers[i].hex, 64}, 0, &had, NULL))
            st = nb_store_no_memory(err);
        else if (!had)
            st = verify_layer(s, &m.layers[i], &t, err);
        else
            st = nb_manifest_check_blobs(s, &m.layers[i], NULL, 0,
                                         err); /* hashed already; the size may still be wrong */
    }
    nb_map_free(&seen);
    nb_manifest_free(&m);
    return st;
}
