#include "cli/common.h"
#include "base/file.h"
#include "cli/term.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

nb_status nb_temp_make(char root[4096], const char *label, nb_error *err)
{
    const char *tmp = getenv("TMPDIR");
    if (!tmp || !*tmp) tmp = "/tmp";
    if (snprintf(root, 4096, "%s/nibble-%s-XXXXXX", tmp, label) < 4096 && mkdtemp(root)) return NB_OK;
    int e = errno;
    root[0] = 0;
    return nb_fail_errno(err, e, "no temporary folder could be made in %s", tmp);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void nb_temp_remove(const char *root)
{
    if (root[0]) nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

void nb_draw_create(void *user, nb_create_phase phase, const char *item, uint64_t done, uint64_t total,
                    uint32_t done_tensors, uint32_t total_tensors)
{
    (void)done_tensors;
    (void)total_tensors;
    nb_progress_update(user, nb_create_phase_name(phase), item, done, total);
}

/* ---- ids ---- */

#define MAX_IDS_FILE ((uint64_t)1 << 30)
#define SEPARATORS ", \n\r\t[]"

nb_status nb_ids_parse(const char *p, const char *what, nb_buf *ids, nb_error *err)
{
    while (*p) {
        if (strchr(SEPARATORS, *p)) {
            p++;
            continue;
        }
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && !strchr(SEPARATORS, *end))) {
            size_t word = strcspn(p, SEPARATORS);
            return nb_fail(err, NB_E_USAGE, "%s: '%.*s' is not a token id", what, (int)(word < 20 ? word : 20), p);
        }
        int32_t id = (int32_t)v;
        nb_buf_add(ids, &id, sizeof id);
        p = end;
    }
    return NB_OK;
}

static nb_status parse_binary(const nb_buf *b, size_t each, const char *what, nb_buf *ids, nb_error *err)
{
    if (b->n % each)
        return nb_fail(err, NB_E_USAGE, "%s: %zu bytes are not a whole number of ids of %zu bytes", what, b->n, each);
    for (size_t at = 0; at < b->n; at += each) {
        int32_t id = each == 2 ? nb_load_u16(b->p + at) : (int32_t)nb_load_u32(b->p + at);
        if (id < 0) return nb_fail(err, NB_E_USAGE, "%s: id %zu is %d", what, at / each, id);
        nb_buf_add(ids, &id, sizeof id);
    }
    return NB_OK;
}

static nb_status give_ids(nb_status st, nb_buf *ids, const char *what, int32_t **out, size_t *n, nb_error *err)
{
    *out = NULL;
    *n = 0;
    if (st == NB_OK && ids->oom) st = nb_fail(err, NB_E_NO_MEMORY, "%s: no memory for its ids", what);
    if (st == NB_OK && !ids->n) st = nb_fail(err, NB_E_USAGE, "%s: no token ids", what);
    if (st != NB_OK) {
        nb_buf_free(ids);
        return st;
    }
    *out = (int32_t *)(void *)ids->p;
    *n = ids->n / sizeof **out;
    return NB_OK;
}

nb_status nb_ids_read(const char *path, int32_t **out, size_t *n, nb_error *err)
{
    nb_buf b = {0}, ids = {0};
    nb_str name = nb_str_of(path);
    nb_status st = nb_file_read(&b, path, MAX_IDS_FILE, err);
    const char *text = st == NB_OK && b.n ? nb_buf_cstr(&b) : "";
    if (st == NB_OK && nb_str_ends(name, ".u16"))
        st = parse_binary(&b, 2, path, &ids, err);
    else if (st == NB_OK && nb_str_ends(name, ".i32"))
        st = parse_binary(&b, 4, path, &ids, err);
    else if (st == NB_OK)
        st = text ? nb_ids_parse(text, path, &ids, err) : nb_fail(err, NB_E_NO_MEMORY, "%s: no memory to read it", path);
    nb_buf_free(&b);
    return give_ids(st, &ids, path, out, n, err);
}

nb_status nb_ids_of(const char *text, int32_t **out, size_t *n, nb_error *err)
{
    if (*text != '[' && (*text < '0' || *text > '9')) return nb_ids_read(text, out, n, err);
    nb_buf ids = {0};
    nb_status st = nb_ids_parse(text, "--ids", &ids, err);
    return give_ids(st, &ids, "--ids", out, n, err);
}
