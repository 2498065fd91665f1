/* store, private.
 *
 * Layout: ROOT/blobs/sha256-HEX, ROOT/manifests-v2/HOST/NS/MODEL/TAG (a relative symbolic link to a manifest blob),
 * ROOT/tmp, ROOT/.gc.lock, ROOT/.blobs.lock.
 *
 * Locks, both flock: .gc.lock is held shared by imports, from their first blob to the published name, and exclusively
 * by whoever removes blobs. .blobs.lock is held for microseconds around "is it there? then touch it" and "is it unused?
 * then unlink it", so that a failed import cannot take away what another one has just decided to reuse.
 */
#ifndef NB_STORE_INTERNAL_H
#define NB_STORE_INTERNAL_H

#include "base/file.h"
#include "store/store.h"

#include <pthread.h>
#include <sys/stat.h>

#define NB_LEGACY_HOST "registry.ollama.ai"

/* A blob that this handle finished. */
typedef struct nb_written {
    char hex[65];
    bool created, synced;
    struct timespec touched; /* its mtime when we last wrote or touched it */
} nb_written;

struct nb_store {
    char *root; /* absolute, owned */
    bool foreign;
    pthread_mutex_t mutex; /* guards what follows */
    nb_arena *arena;       /* owns the entries below and the keys of both maps */
    nb_written **written;  /* malloc */
    size_t n_written, cap_written;
    nb_map by_hex; /* position in written */
    nb_map named;  /* digests that manifests named when it was first asked for */
    bool named_known;
};

/* Paths: NULL when memory is out, else to be freed. */
char *nb_store_path(const nb_store *s, const char *fmt, ...) NB_PRINTF(2, 3);
nb_status nb_store_no_memory(nb_error *err);
/* NB_E_USAGE where the store is foreign. */
nb_status nb_store_writable(const nb_store *s, nb_error *err);
/* Creates ROOT and its folders. */
nb_status nb_store_make_folders(nb_store *s, nb_error *err);
/* flock on ROOT/name; op is LOCK_SH, LOCK_EX, perhaps | LOCK_NB. *fd is -1 and the status NB_OK where LOCK_NB found it
 * taken. */
nb_status nb_store_flock(const nb_store *s, const char *name, int op, int *fd, nb_error *err);
nb_status nb_sync_path(const char *path, bool folder, nb_error *err);

/* Notes that this handle wrote or reused a blob; NB_E_NO_MEMORY. */
nb_status nb_store_note(nb_store *s, const char hex[65], bool created, struct timespec touched, nb_error *err);
/* Notes a blob that the caller counts on without having written it through this handle (a resumed import), so that the
 * next sync covers it. */
nb_status nb_store_adopt(nb_store *s, const char hex[65], nb_error *err);
/* Copies the note on a blob; false where this handle has not finished it. */
bool nb_store_noted(nb_store *s, const char hex[65], nb_written *out);
/* Size and kind of a blob: NB_E_NOT_FOUND, NB_E_INVALID (not a regular file). st may be NULL. */
nb_status nb_blob_stat(const nb_store *s, const char hex[65], struct stat *st, nb_error *err);
/* Hashes a blob's bytes. tick(user, n) is called for every n bytes read; may be NULL. */
nb_status nb_blob_hash(const nb_store *s, const char hex[65], char got[65], void (*tick)(void *, uint64_t), void *user,
                       nb_error *err);

/* Fills a zeroed manifest from its text; hex stays. To be freed after a failure too. */
nb_status nb_manifest_parse(nb_manifest *m, nb_str text, nb_error *err);
/* Checks that a manifest's blobs are there with their sizes. */
nb_status nb_manifest_check_blobs(const nb_store *s, const nb_layer *config, const nb_layer *layers, size_t n,
                                  nb_error *err);
/* Folder of a name's link, without the tag. */
char *nb_name_folder(const nb_store *s, const nb_name *n);
/* Points name at a manifest blob, atomically. */
nb_status nb_name_link(nb_store *s, const nb_name *n, const char hex[65], nb_error *err);

/* Calls fn for every well-formed name in the store; a status from fn ends the walk. */
typedef nb_status nb_name_fn(void *user, const nb_name *n, int64_t modified_ns, nb_error *err);
nb_status nb_store_walk(nb_store *s, nb_name_fn *fn, void *user, nb_error *err);
/* Enters the digest of every blob that some manifest names (value 1). The keys live in a. strict: a manifest that
 * cannot be read is an error; else it is skipped. */
nb_status nb_store_named(nb_store *s, nb_map *named, nb_arena *a, bool strict, nb_error *err);

#endif
