/* base/file: mapped and whole files. Every path is NUL-terminated; errors name the path. */
#ifndef NB_BASE_FILE_H
#define NB_BASE_FILE_H

#include "base/base.h"

/* A file mapped read-only, or an anonymous copy of it. */
typedef struct nb_mapped {
    const uint8_t *p; /* NULL for an empty file */
    size_t n;
    int fd; /* -1 once closed; the mapping stays */
} nb_mapped;

/* Maps a regular file whole. expected: size it must have, or UINT64_MAX for any. NB_E_NOT_FOUND, NB_E_IO, NB_E_INVALID (not regular, wrong size). */
nb_status nb_file_map(nb_mapped *m, const char *path, uint64_t expected, nb_error *err);
void nb_file_close(nb_mapped *m); /* the descriptor alone: a mapping outlives it */
void nb_file_unmap(nb_mapped *m);

/* Opens a regular file for reading; *size gets its length. Returns a descriptor in *fd. */
nb_status nb_file_open(int *fd, uint64_t *size, const char *path, nb_error *err);
/* Reads exactly n bytes at off or fails (a short file is NB_E_IO "file changed or was truncated"). `path` only names it in the error. */
nb_status nb_pread_full(int fd, void *p, size_t n, uint64_t off, const char *path, nb_error *err);
nb_status nb_write_full(int fd, const void *p, size_t n, const char *path, nb_error *err);
/* Appends a whole regular file to buf; a file larger than max is NB_E_INVALID. */
nb_status nb_file_read(nb_buf *buf, const char *path, uint64_t max, nb_error *err);
/* Writes path so that it holds either the old or the new content, whole: a temporary file beside it, fsync, rename. */
nb_status nb_file_write_atomic(const char *path, const void *p, size_t n, nb_error *err);
/* mkdir -p. NB_E_NOT_FOUND: somebody removed one of the folders meanwhile. */
nb_status nb_mkdirs(const char *path, nb_error *err);
bool nb_path_exists(const char *path);
bool nb_path_is_dir(const char *path);

#endif
