/* create/spill: scales of the standard layout wait here until the codes are written. */
#include "base/file.h"
#include "create/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SPILL_MEMORY (32u << 20)

static nb_status flush(nb_spill *s, const char *root, nb_error *err)
{
    if (s->fd <= 0) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s/tmp", root) >= (int)sizeof path)
            return nb_fail(err, NB_E_IO, "path of the store is too long");
        s->fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (s->fd < 0) { /* a file system without unnamed files */
            if (snprintf(path, sizeof path, "%s/tmp/spill-XXXXXX", root) >= (int)sizeof path)
                return nb_fail(err, NB_E_IO, "path of the store is too long");
            s->fd = mkostemp(path, O_CLOEXEC);
            if (s->fd < 0) return nb_fail_errno(err, errno, "%s", path);
            unlink(path);
        }
    }
    nb_status st = nb_write_full(s->fd, s->mem.p, s->mem.n, "spill file", err);
    s->filed += s->mem.n;
    s->mem.n = 0;
    return st;
}

nb_status nb_spill_add(nb_spill *s, const char *root, const void *p, size_t n, nb_error *err)
{
    nb_status st = s->mem.n && s->mem.n + n > SPILL_MEMORY ? flush(s, root, err) : NB_OK;
    if (st != NB_OK) return st;
    nb_buf_add(&s->mem, p, n);
    return s->mem.oom ? nb_fail(err, NB_E_NO_MEMORY, "out of memory for scales") : NB_OK;
}

nb_status nb_spill_copy(nb_spill *s, nb_blob_writer *out, nb_error *err)
{
    char chunk[1 << 16];
    for (uint64_t at = 0; at < s->filed;) {
        size_t n = s->filed - at < sizeof chunk ? (size_t)(s->filed - at) : sizeof chunk;
        nb_status st = nb_pread_full(s->fd, chunk, n, at, "spill file", err);
        if (st == NB_OK) st = nb_blob_write(out, chunk, n, err);
        if (st != NB_OK) return st;
        at += n;
    }
    return s->mem.n ? nb_blob_write(out, s->mem.p, s->mem.n, err) : NB_OK;
}

void nb_spill_reset(nb_spill *s)
{
    if (s->fd > 0) close(s->fd);
    s->fd = 0;
    s->filed = 0;
    s->mem.n = 0;
}
