#include "cli/common.h"
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
