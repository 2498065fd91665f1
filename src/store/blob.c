/* Blobs: written once under a temporary name and hashed on the way, then moved to the name of their digest. */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { HASH_CHUNK = 1 << 20 };

struct nb_blob_writer {
    nb_store *store; /* not owned */
    nb_sha256 *hash; /* owned until finished */
    char *tmp;       /* path, owned */
    int fd;
    uint64_t size, expected;
    nb_error failure; /* of an earlier write: the writer is of no more use */
};

/* ---- beginning and writing ---- */

static nb_status reserve_space(nb_blob_writer *w, nb_error *err)
{
    if (w->expected == 0) return NB_OK;
    if (w->expected > INT64_MAX)
        return nb_fail(err, NB_E_INVALID, "blob of %llu bytes", (unsigned long long)w->expected);
    int rc;
    while ((rc = fallocate(w->fd, 0, 0, (off_t)w->expected)) != 0 && errno == EINTR) {
    }
    /* Some file systems cannot reserve. Then a full disk shows while writing. */
    if (rc == 0 || errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) return NB_OK;
    return nb_fail_errno(err, errno, "%s: cannot reserve %llu bytes", w->tmp, (unsigned long long)w->expected);
}

nb_status nb_blob_begin(nb_store *s, nb_blob_writer **out, uint64_t expected, nb_error *err)
{
    static _Atomic uint32_t counter;
    *out = NULL;
    nb_status st = nb_store_make_folders(s, err);
    if (st) return st;
    nb_blob_writer *w = calloc(1, sizeof *w);
    if (!w) return nb_store_no_memory(err);
    w->store = s;
    w->fd = -1;
    w->expected = expected;
    w->hash = nb_sha256_new();
    unsigned random = 0; /* two machines may share the store: pid and counter alone would not do */
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0) random = (unsigned)nb_now_ns();
    w->tmp = nb_store_path(s, "tmp/blob-%ld-%u-%08x", (long)getpid(), (unsigned)atomic_fetch_add(&counter, 1), random);
    if (!w->hash || !w->tmp) {
        st = nb_store_no_memory(err);
        goto fail;
    }
    w->fd = open(w->tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (w->fd < 0) {
        st = nb_fail_errno(err, errno, "%s", w->tmp);
        goto fail;
    }
    st = reserve_space(w, err);
    if (st) goto fail;
    *out = w;
    return NB_OK;
fail:
    nb_blob_abort(w);
    return st;
}

nb_status nb_blob_write(nb_blob_writer *w, const void *p, size_t n, nb_error *err)
{
    if (w->failure.status) return nb_fail(err, w->failure.status, "%s", w->failure.text);
    uint64_t size = 0;
    nb_status st;
    if (!nb_add_u64(w->size, n, &size))
        st = nb_fail(&w->failure, NB_E_INVALID, "%s: too large", w->tmp);
    else
        st = nb_write_full(w->fd, p, n, w->tmp, &w->failure);
    if (st) return nb_fail(err, st, "%s", w->failure.text);
    nb_sha256_update(w->hash, p, n);
    w->size = size;
    return NB_OK;
}

void nb_blob_abort(nb_blob_writer *w)
{
    if (!w) return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->tmp);
    }
    nb_sha256_abort(w->hash);
    free(w->tmp);
    free(w);
}

/* ---- what is there already ---- */

nb_status nb_blob_stat(const nb_store *s, const char hex[65], struct stat *out, nb_error *err)
{
    struct stat st;
    char *path = nb_store_path(s, "blobs/sha256-%s", hex);
    if (!path) return nb_store_no_memory(err);
    nb_status status = NB_OK;
    if (lstat(path, &st) != 0)
        status = nb_fail_errno(err, errno, "%s", path);
    else if (!S_ISREG(st.st_mode))
        status = nb_fail(err, NB_E_INVALID, "%s: not a regular file", path);
    else if (out)
        *out = st;
    free(path);
    return status;
}

nb_status nb_blob_hash(const nb_store *s, const char hex[65], char got[65], void (*tick)(void *, uint64_t), void *user,
                       nb_error *err)
{
    uint64_t size;
    int fd = -1;
    char *path = nb_store_path(s, "blobs/sha256-%s", hex), *chunk = malloc(HASH_CHUNK);
    nb_sha256 *h = nb_sha256_new();
    nb_status st = path && chunk && h ? nb_blob_stat(s, hex, NULL, err) : nb_store_no_memory(err);
    if (!st) st = nb_file_open(&fd, &size, path, err);
    for (uint64_t off = 0; !st && off < size;) {
        size_t n = size - off < HASH_CHUNK ? (size_t)(size - off) : HASH_CHUNK;
        st = nb_pread_full(fd, chunk, n, off, path, err);
        if (st) break;
        nb_sha256_update(h, chunk, n);
        off += n;
        if (tick) tick(user, n);
    }
    if (st)
        nb_sha256_abort(h);
    else
        nb_sha256_finish(h, got);
    if (fd >= 0) close(fd);
    free(chunk);
    free(path);
    return st;
}

static bool named_by_manifest(nb_store *s, const char hex[65])
{
    pthread_mutex_lock(&s->mutex);
    if (!s->named_known) {
        nb_error ignored;
        s->named_known = true;
        if (nb_map_init(&s->named, 256)) (void)nb_store_named(s, &s->named, s->arena, false, &ignored);
    }
    bool named = nb_map_get(&s->named, (nb_str){hex, 64}, NULL);
    pthread_mutex_unlock(&s->mutex);
    return named;
}

nb_status nb_store_adopt(nb_store *s, const char hex[65], nb_error *err)
{
    struct stat st = {0};
    nb_written w;
    if (nb_store_noted(s, hex, &w) || named_by_manifest(s, hex)) return NB_OK;
    nb_status status = nb_blob_stat(s, hex, &st, err);
    return status ? status : nb_store_note(s, hex, false, st.st_mtim, err);
}

nb_status nb_blob_own(nb_store *s, const char hex[65], nb_error *err)
{
    struct stat st = {0};
    nb_written w;
    if (nb_store_noted(s, hex, &w) || named_by_manifest(s, hex)) return NB_OK;
    nb_status status = nb_blob_stat(s, hex, &st, err);
    return status ? status : nb_store_note(s, hex, true, st.st_mtim, err);
}

/* May an existing blob of the right size be taken for ours? One that a manifest names was synced before that manifest
 * was published. Any other may be what a power failure left of an import: the right name and size, with holes inside.
 * Its bytes are hashed again. */
static bool trustworthy(nb_store *s, const char hex[65], uint64_t size)
{
    struct stat st = {0};
    nb_written w;
    char got[65];
    if (nb_blob_stat(s, hex, &st, NULL) || (uint64_t)st.st_size != size) return false;
    if (nb_store_noted(s, hex, &w) || named_by_manifest(s, hex)) return true;
    return nb_blob_hash(s, hex, got, NULL, NULL, NULL) == NB_OK && strcmp(got, hex) == 0;
}

/* Marks a blob as used now: later than before even where clocks are coarse, so that a discard sees the difference. */
static nb_status touch(const char *path, const struct stat *old, struct timespec *touched, nb_error *err)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (old && (now.tv_sec < old->st_mtim.tv_sec ||
                (now.tv_sec == old->st_mtim.tv_sec && now.tv_nsec <= old->st_mtim.tv_nsec))) {
        now = old->st_mtim;
        if (++now.tv_nsec == 1000000000) {
            now.tv_nsec = 0;
            now.tv_sec++;
        }
    }
    const struct timespec both[2] = {now, now};
    struct stat st;
    /* Another user's blob cannot be touched; it is used as it is. */
    bool failed = utimensat(AT_FDCWD, path, both, AT_SYMLINK_NOFOLLOW) != 0 && errno != EPERM && errno != EACCES;
    if (failed || lstat(path, &st) != 0) return nb_fail_errno(err, errno, "%s", path);
    *touched = st.st_mtim;
    return NB_OK;
}

/* ---- finishing ---- */

/* Moves the temporary file to its name, or drops it where an equal blob exists. Both under .blobs.lock. */
static nb_status place(nb_blob_writer *w, nb_blob_ref *ref, nb_error *err)
{
    nb_store *s = w->store;
    struct timespec touched = {0};
    bool reuse = trustworthy(s, ref->hex, w->size);
    int lock = -1;
    char *path = nb_store_path(s, "blobs/sha256-%s", ref->hex);
    if (!path) return nb_store_no_memory(err);
    nb_status st = nb_store_flock(s, ".blobs.lock", LOCK_EX, &lock, err);
    if (st) goto out;
    struct stat old;
    bool there = lstat(path, &old) == 0;
    if (reuse && there && S_ISREG(old.st_mode) && (uint64_t)old.st_size == w->size) {
        st = touch(path, &old, &touched, err);
        unlink(w->tmp);
    } else {
        if (rename(w->tmp, path) != 0)
            st = nb_fail_errno(err, errno, "%s", path);
        else
            st = touch(path, there ? &old : NULL, &touched, err);
        ref->created = !st;
    }
    if (!st) st = nb_store_note(s, ref->hex, ref->created, touched, err);
out:
    nb_store_unlock(lock);
    free(path);
    return st;
}

nb_status nb_blob_finish(nb_blob_writer *w, nb_blob_ref *ref, nb_error *err)
{
    *ref = (nb_blob_ref){.size = w->size};
    nb_status st = NB_OK;
    if (w->failure.status) {
        st = nb_fail(err, w->failure.status, "%s", w->failure.text);
        goto out;
    }
    nb_sha256_finish(w->hash, ref->hex);
    w->hash = NULL;
    if (!ref->hex[0]) {
        st = nb_fail(err, NB_E_FAILED, "%s: SHA-256 failed", w->tmp);
        goto out;
    }
    /* Less came than was reserved. */
    if (w->size < w->expected && ftruncate(w->fd, (off_t)w->size) != 0) st = nb_fail_errno(err, errno, "%s", w->tmp);
    if (!st && fchmod(w->fd, 0644) != 0) st = nb_fail_errno(err, errno, "%s", w->tmp);
    if (st) goto out;
    /* Starts writing back, so that the sync pass before the manifest finds little left to do. */
    sync_file_range(w->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
    st = place(w, ref, err);
    if (!st) { /* the temporary name is gone */
        close(w->fd);
        w->fd = -1;
    }
out:
    nb_blob_abort(w);
    return st;
}

nb_status nb_blob_put(nb_store *s, const void *p, size_t n, nb_blob_ref *ref, nb_error *err)
{
    nb_blob_writer *w;
    *ref = (nb_blob_ref){0};
    nb_status st = nb_blob_begin(s, &w, n, err);
    if (st) return st;
    st = nb_blob_write(w, p, n, err);
    if (!st) return nb_blob_finish(w, ref, err);
    nb_blob_abort(w);
    return st;
}

void nb_blob_path(const nb_store *s, const char hex[65], nb_buf *out)
{
    nb_buf_printf(out, "%s/blobs/sha256-%.64s", s->root, hex);
}

/* Unlinks a blob that this handle created, unless somebody touched it since. .blobs.lock is held. */
static void discard_one(nb_store *s, const char hex[65])
{
    nb_written w;
    struct stat st = {0};
    if (!nb_store_noted(s, hex, &w) || !w.created || nb_blob_stat(s, hex, &st, NULL)) return;
    if (st.st_mtim.tv_sec != w.touched.tv_sec || st.st_mtim.tv_nsec != w.touched.tv_nsec) return;
    char *path = nb_store_path(s, "blobs/sha256-%s", hex);
    if (path) unlink(path);
    free(path);
}

void nb_store_discard(nb_store *s, const nb_blob_ref *refs, size_t n)
{
    nb_error err;
    nb_map named = {0};
    int lock = -1;
    nb_arena *a = nb_arena_new(0);
    if (nb_store_writable(s, &err) || !a || !nb_map_init(&named, 256)) goto out;
    if (nb_store_flock(s, ".blobs.lock", LOCK_EX, &lock, &err)) goto out;
    nb_status st = nb_store_named(s, &named, a, true, &err);
    if (st) {
        /* What a broken manifest names is unknown: leave everything to a later collection. */
        nb_log(1, "new blobs are kept: %s", err.text);
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        if (refs[i].created && !nb_map_get(&named, (nb_str){refs[i].hex, 64}, NULL)) discard_one(s, refs[i].hex);
    }
out:
    nb_store_unlock(lock);
    nb_map_free(&named);
    nb_arena_free(a);
}
