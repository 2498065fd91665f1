/* cli/common: what several commands do: a temporary store, progress of an import or export, lists of ids. */
#ifndef NB_CLI_COMMON_H
#define NB_CLI_COMMON_H

#include "create/create.h"

/* Makes a new folder "nibble-LABEL-XXXXXX" in $TMPDIR, else in /tmp. root is empty when it failed. */
nb_status nb_temp_make(char root[4096], const char *label, nb_error *err);
/* Removes it with all that is inside; an empty root is fine. */
void nb_temp_remove(const char *root);

/* An nb_create_progress whose user is an nb_progress. */
void nb_draw_create(void *user, nb_create_phase phase, const char *item, uint64_t done, uint64_t total,
                    uint32_t done_tensors, uint32_t total_tensors);

/* Numbers with commas, blanks and brackets around them, nothing else, as int32 behind what `ids` holds. what: the file or
 * option, for errors. */
nb_status nb_ids_parse(const char *text, const char *what, nb_buf *ids, nb_error *err);
/* Token ids: a list ("1,2,3", "[1, 2]") where text begins with a digit or '[', else the file of that name. malloc. */
nb_status nb_ids_of(const char *text, int32_t **out, size_t *n, nb_error *err);
/* A file of ids: little-endian u16 (name.u16) or i32 (name.i32), else a list as text. malloc. */
nb_status nb_ids_read(const char *path, int32_t **out, size_t *n, nb_error *err);

#endif
