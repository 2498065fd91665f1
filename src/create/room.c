/* create/room: what an import will still take on the disk. Blobs that a resumed import finished are not written again;
 * blobs that are stored already are written, found equal and dropped, so that they take room only while they are in
 * work. Which those are nobody knows before their digests: a blob of the same size with the same header and, on
 * sampled rows, the same values is taken for one. It is looked for only where the whole plan does not fit. */
#include "base/file.h"
#include "create/plan.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static bool header_is(const nb_job *j, const char hex[65], nb_str header)
{
    nb_buf path = {0};
    uint64_t size;
    int fd = -1;
    char *p = malloc(header.n);
    nb_blob_path(j->store, hex, &path);
    bool same = p && nb_buf_cstr(&path) && nb_file_open(&fd, &size, path.p, NULL) == NB_OK &&
                nb_pread_full(fd, p, header.n, 0, path.p, NULL) == NB_OK && !memcmp(p, header.p, header.n);
    if (fd >= 0) close(fd);
    free(p);
    nb_buf_free(&path);
    return same;
}

/* Marks the items whose blob this file can be. */
static void match(nb_job *j, bool *stored, int dir, const char *entry)
{
    struct stat info;
    nb_layer l = {.media_type = NB_LIT(NB_MEDIA_TENSOR)};
    if (!nb_digest_parse(nb_str_of(entry), l.hex) || fstatat(dir, entry, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(info.st_mode))
        return;
    l.size = (uint64_t)info.st_size;
    for (size_t i = 0; i < j->n_items; i++) {
        const nb_item *it = &j->items[i];
        if (stored[i] || j->resumed[i] || it->bytes != l.size || !header_is(j, l.hex, it->header)) continue;
        l.name = it->name;
        stored[i] = nb_deep_same(j, it, &l);
    }
}

static void find_stored(nb_job *j, bool *stored)
{
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/blobs", nb_store_root(j->store));
    DIR *dir = n > 0 && (size_t)n < sizeof path ? opendir(path) : NULL;
    for (struct dirent *e; dir && (e = readdir(dir)) && !nb_job_cancelled(j);) match(j, stored, dirfd(dir), e->d_name);
    if (dir) closedir(dir);
}

static int larger(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Bytes of what is not stored, and of the largest others that are in work at once; a hundredth more. */
static nb_status needed(const nb_job *j, const bool *stored, uint64_t *need, nb_error *err)
{
    uint64_t *held = NB_NEW_N(j->arena, uint64_t, j->n_items + 1);
    size_t n = 0;
    if (!held) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    *need = 0; /* the sum of all was checked by the plan */
    for (size_t i = 0; i < j->n_items; i++) {
        if (j->resumed[i]) continue;
        if (stored[i])
            held[n++] = j->items[i].bytes;
        else
            *need += j->items[i].bytes;
    }
    if (n) qsort(held, n, sizeof *held, larger);
    for (size_t i = 0; i < n && i < (size_t)nb_write_threads(j, j->n_items); i++) *need += held[i];
    *need += *need / 100;
    return NB_OK;
}

nb_status nb_room_check(nb_job *j, nb_error *err)
{
    uint64_t have = 0, need;
    bool *stored = NB_NEW_N(j->arena, bool, j->n_items + 1);
    if (!stored) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = needed(j, stored, &need, err);
    if (st == NB_OK) st = nb_store_free_bytes(j->store, &have, err);
    if (st != NB_OK || need <= have) return st;
    find_stored(j, stored);
    st = needed(j, stored, &need, err);
    if (st != NB_OK || need <= have) return st;
    return nb_fail(err, NB_E_NO_SPACE, "%s has %llu bytes free, the import needs %llu (E_NO_SPACE)",
                   nb_store_root(j->store), (unsigned long long)have, (unsigned long long)need);
}
