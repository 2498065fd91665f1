/* Files: mapped, read whole, written so that a reader never sees a half. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

nb_status nb_file_open(int *fd, uint64_t *size, const char *path, nb_error *err)
{
    *fd = -1;
    *size = 0;
    /* O_NONBLOCK: opening a FIFO must fail the check below, not wait for a writer. */
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (f == 0) { /* a program started without stdin: keep 0 free, it marks "no descriptor" in nb_mapped */
        int up = fcntl(f, F_DUPFD_CLOEXEC, 3);
        int e = errno;
        close(f);
        f = up;
        errno = e;
    }
    if (f < 0) return nb_fail_errno(err, errno, "%s", path);
    struct stat st;
    if (fstat(f, &st) != 0) {
        int e = errno;
        close(f);
        return nb_fail_errno(err, e, "%s", path);
    }
    if (!S_ISREG(st.st_mode)) {
        close(f);
        return nb_fail(err, NB_E_INVALID, "%s: not a regular file", path);
    }
    *fd = f;
    *size = (uint64_t)st.st_size;
    return NB_OK;
}

enum { HUGE_PAGE = 2 << 20 };

nb_status nb_file_map(nb_mapped *m, const char *path, uint64_t expected, nb_error *err)
{
    *m = (nb_mapped){NULL, 0, -1};
    int fd;
    uint64_t size;
    nb_status st = nb_file_open(&fd, &size, path, err);
    if (st) return st;
    if (expected != UINT64_MAX && size != expected) {
        st = nb_fail(err, NB_E_INVALID, "%s: size is %llu bytes, expected %llu", path, (unsigned long long)size,
                     (unsigned long long)expected);
        goto fail;
    }
    if (size > SIZE_MAX / 2) {
        st = nb_fail(err, NB_E_INVALID, "%s: %llu bytes are too many to map", path, (unsigned long long)size);
        goto fail;
    }
    if (size) {
        void *p = mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            st = nb_fail_errno(err, errno, "%s: cannot map %llu bytes", path, (unsigned long long)size);
            goto fail;
        }
        /* Where the file system can (ext4 and xfs of newer kernels), what is read from the disk now comes as huge pages. */
        if (size >= HUGE_PAGE) madvise(p, (size_t)size, MADV_HUGEPAGE);
        m->p = p;
        m->n = (size_t)size;
    }
    m->fd = fd;
    return NB_OK;
fail:
    close(fd);
    return st;
}

void nb_file_close(nb_mapped *m)
{
    if (m->fd > 0) close(m->fd); /* a zeroed struct holds no descriptor */
    m->fd = -1;
}

void nb_file_unmap(nb_mapped *m)
{
    if (m->p) munmap((void *)(uintptr_t)m->p, m->n);
    nb_file_close(m);
    *m = (nb_mapped){NULL, 0, -1};
}

nb_status nb_pread_full(int fd, void *p, size_t n, uint64_t off, const char *path, nb_error *err)
{
    uint64_t end;
    if (!nb_add_u64(off, n, &end) || end > INT64_MAX) {
        return nb_fail(err, NB_E_INVALID, "%s: read of %zu bytes at %llu is out of range", path, n,
                       (unsigned long long)off);
    }
    char *to = p;
    while (n) {
        ssize_t got = pread(fd, to, n < (1u << 30) ? n : 1u << 30, (off_t)off);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return nb_fail_errno(err, errno, "%s: read at byte %llu", path, (unsigned long long)off);
        if (got == 0) {
            return nb_fail(err, NB_E_IO, "%s: file changed or was truncated (%zu bytes missing at %llu)", path, n,
                           (unsigned long long)off);
        }
        to += got;
        n -= (size_t)got;
        off += (uint64_t)got;
    }
    return NB_OK;
}

nb_status nb_write_full(int fd, const void *p, size_t n, const char *path, nb_error *err)
{
    const char *from = p;
    while (n) {
        ssize_t put = write(fd, from, n < (1u << 30) ? n : 1u << 30);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return nb_fail_errno(err, errno, "%s", path);
        if (put == 0) return nb_fail(err, NB_E_IO, "%s: write made no progress", path);
        from += put;
        n -= (size_t)put;
    }
    return NB_OK;
}

nb_status nb_file_read(nb_buf *buf, const char *path, uint64_t max, nb_error *err)
{
    int fd;
    uint64_t size;
    nb_status st = nb_file_open(&fd, &size, path, err);
    if (st) return st;
    if (size > max) {
        st = nb_fail(err, NB_E_INVALID, "%s: %llu bytes, at most %llu are read", path, (unsigned long long)size,
                     (unsigned long long)max);
    } else if (!nb_buf_reserve(buf, (size_t)size)) {
        st = nb_fail(err, NB_E_NO_MEMORY, "%s: no memory for %llu bytes", path, (unsigned long long)size);
    } else {
        st = nb_pread_full(fd, buf->p + buf->n, (size_t)size, 0, path, err);
        if (!st) buf->n += (size_t)size;
    }
    close(fd);
    return st;
}

/* The folder that holds path: "a/b" -> "a", "/b" -> "/", "b" -> ".". Owned by the caller. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

/* Makes a rename in path's folder last. A file system that cannot sync a folder says EINVAL: then there is nothing to
 * do. */
static nb_status sync_folder(const char *path, nb_error *err)
{
    char *dir = folder_of(path);
    if (!dir) return nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
    nb_status st = NB_OK;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        st = nb_fail_errno(err, errno, "%s", dir);
    } else {
        if (fsync(fd) != 0 && errno != EINVAL) st = nb_fail_errno(err, errno, "%s: sync", dir);
        close(fd);
    }
    free(dir);
    return st;
}

nb_status nb_file_write_atomic(const char *path, const void *p, size_t n, nb_error *err)
{
    nb_buf tmp = {0};
    nb_status st = NB_OK;
    int fd = -1;
    nb_buf_add_cstr(&tmp, path);
    nb_buf_add_cstr(&tmp, ".tmp-XXXXXX");
    if (!nb_buf_cstr(&tmp)) {
        st = nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
        goto out;
    }
    fd = mkostemp(tmp.p, O_CLOEXEC);
    if (fd < 0) {
        st = nb_fail_errno(err, errno, "%s", tmp.p);
        goto out;
    }
    st = nb_write_full(fd, p, n, path, err);
    if (!st && (fchmod(fd, 0644) != 0 || fsync(fd) != 0)) st = nb_fail_errno(err, errno, "%s", path);
    if (close(fd) != 0 && !st) st = nb_fail_errno(err, errno, "%s", path);
    if (!st && rename(tmp.p, path) != 0) st = nb_fail_errno(err, errno, "%s", path);
    if (st)
        unlink(tmp.p);
    else
        st = sync_folder(path, err);
out:
    nb_buf_free(&tmp);
    return st;
}

nb_status nb_mkdirs(const char *path, nb_error *err)
{
    char *copy = strdup(path);
    if (!copy) return nb_fail(err, NB_E_NO_MEMORY, "%s: out of memory", path);
    nb_status st = NB_OK;
    size_t n = strlen(copy);
    for (size_t i = 1; i <= n && !st; i++) {
        if (copy[i] != '/' && copy[i] != '\0') continue;
        char keep = copy[i];
        copy[i] = '\0';
        if (mkdir(copy, 0755) != 0 && errno != EEXIST) {
            int e = errno;
            /* A folder above may be read-only and yet hold the one below: only its absence is a failure. */
            if (!nb_path_is_dir(copy)) st = nb_fail_errno(err, e, "%s", copy);
        }
        copy[i] = keep;
    }
    if (!st && !nb_path_is_dir(path))
        st = nb_path_exists(path) ? nb_fail(err, NB_E_IO, "%s: exists and is not a folder", path)
                                  : nb_fail(err, NB_E_NOT_FOUND, "%s: was removed while it was made", path);
    free(copy);
    return st;
}

bool nb_path_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

bool nb_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}
