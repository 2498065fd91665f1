/* store: model names, digests, blobs, manifests, atomic publish, garbage. design.md 8, specs/create.md 6. */
#ifndef NB_STORE_STORE_H
#define NB_STORE_STORE_H

#include "base/base.h"
#include "json/json.h"

/* ---- SHA-256 (libcrypto) ---- */
typedef struct nb_sha256 nb_sha256;
nb_sha256 *nb_sha256_new(void); /* NULL: memory */
void nb_sha256_update(nb_sha256 *h, const void *p, size_t n);
void nb_sha256_finish(nb_sha256 *h, char hex[65]); /* lower-case, NUL-terminated; frees h */
void nb_sha256_abort(nb_sha256 *h);
void nb_sha256_hex(const void *p, size_t n, char hex[65]);
/* "sha256:<64 hex>" or "sha256-<64 hex>", exactly; the 64 digits go to hex. */
bool nb_digest_parse(nb_str s, char hex[65]);

/* ---- names: [host/][namespace/]model[:tag]. Without a host "local/library/NAME:latest" ---- */
typedef struct nb_name {
    char host[81], ns[81], model[81], tag[81]; /* NUL-terminated, validated: [A-Za-z0-9_.-], alphanumeric first, no ".." */
} nb_name;
nb_status nb_name_parse(nb_name *out, const char *text, nb_error *err); /* NB_E_USAGE naming the part */
/* Shortest text that parses to the same name ("smollm2", "smollm2:q4"). */
void nb_name_text(const nb_name *n, char out[340]);

/* ---- the store ---- */
typedef struct nb_store nb_store;
/* root NULL: $NIBBLE_MODELS, else $XDG_DATA_HOME/nibble/models, else ~/.local/share/nibble/models. Creates nothing until something is written. */
nb_status nb_store_open(nb_store **out, const char *root, nb_error *err);
/* Somebody else's store (Ollama's), for reading only: root NULL is $OLLAMA_MODELS, else ~/.ollama/models. Names without a
 * host are looked up as registry.ollama.ai/...; regular files under manifests/ are read too; every writing call fails. */
nb_status nb_store_open_foreign(nb_store **out, const char *root, nb_error *err);
void nb_store_close(nb_store *s);
const char *nb_store_root(const nb_store *s);

/* ---- writing blobs. A blob is hashed while it is written, and lives in ROOT/tmp until it is finished ---- */
typedef struct nb_blob_writer nb_blob_writer;
/* expected: final size for preallocation (ENOSPC up front), 0 if unknown. */
nb_status nb_blob_begin(nb_store *s, nb_blob_writer **out, uint64_t expected, nb_error *err);
nb_status nb_blob_write(nb_blob_writer *w, const void *p, size_t n, nb_error *err);
typedef struct nb_blob_ref {
    char hex[65];
    uint64_t size;
    bool created; /* false: an equal blob existed and was touched */
} nb_blob_ref;
/* Publishes as blobs/sha256-HEX (0644). Frees w in every case. */
nb_status nb_blob_finish(nb_blob_writer *w, nb_blob_ref *ref, nb_error *err);
void nb_blob_abort(nb_blob_writer *w); /* removes the temporary file; NULL is fine */
nb_status nb_blob_put(nb_store *s, const void *p, size_t n, nb_blob_ref *ref, nb_error *err);
/* Takes over a blob that an interrupted import left, once its bytes were checked: it counts as created by this handle, so that nb_store_discard removes it. */
nb_status nb_blob_own(nb_store *s, const char hex[65], nb_error *err);
/* Path of a blob. hex must have passed nb_digest_parse. */
void nb_blob_path(const nb_store *s, const char hex[65], nb_buf *out);
/* Removes blobs that this run created and that no manifest names: clean-up after a failed import. */
void nb_store_discard(nb_store *s, const nb_blob_ref *refs, size_t n);
/* One sync pass over what was written since open, before the manifest is published. */
nb_status nb_store_sync(nb_store *s, nb_error *err);
nb_status nb_store_free_bytes(nb_store *s, uint64_t *bytes, nb_error *err);

/* ---- manifests ---- */
typedef struct nb_layer {
    nb_str media_type, name; /* name is empty where the manifest has none */
    char hex[65];
    uint64_t size;
} nb_layer;
typedef struct nb_manifest {
    nb_arena *arena;     /* owns everything below */
    char hex[65];        /* digest of the manifest blob */
    nb_layer config;     /* model config JSON */
    nb_layer *layers;
    size_t n_layers;
    nb_json_doc doc;     /* the manifest itself */
} nb_manifest;
#define NB_MEDIA_CONFIG "application/vnd.docker.container.image.v1+json"
#define NB_MEDIA_TENSOR "application/vnd.ollama.image.tensor"
#define NB_MEDIA_JSON "application/vnd.ollama.image.json"
#define NB_MEDIA_TEXT "application/vnd.ollama.image.text"
#define NB_MEDIA_TEMPLATE "application/vnd.ollama.image.template"
#define NB_MEDIA_SYSTEM "application/vnd.ollama.image.system"
#define NB_MEDIA_MESSAGES "application/vnd.ollama.image.messages"
#define NB_MEDIA_LICENSE "application/vnd.ollama.image.license"
#define NB_MEDIA_PARAMS "application/vnd.ollama.image.params"

/* Reads and checks a manifest: link resolves inside the store, bytes hash to its name, every digest well formed. NB_E_NOT_FOUND "model 'x' not found". */
nb_status nb_manifest_read(nb_store *s, const nb_name *name, nb_manifest *m, nb_error *err);
void nb_manifest_free(nb_manifest *m);
const nb_layer *nb_manifest_find(const nb_manifest *m, const char *layer_name);
/* Writes the manifest blob (runner "nibble", format "nibble"), syncs, and points the name at it atomically. hex_out may be NULL. */
nb_status nb_manifest_publish(nb_store *s, const nb_name *name, const nb_layer *config, const nb_layer *layers, size_t n, char hex_out[65], nb_error *err);

/* ---- whole-store operations ---- */
typedef struct nb_model_entry {
    nb_name name;
    char hex[65];
    uint64_t bytes;      /* sum of distinct layers */
    int64_t modified_ns; /* mtime of the link, ns since 1970 */
} nb_model_entry;
nb_status nb_store_list(nb_store *s, nb_arena *a, nb_model_entry **out, size_t *n, nb_error *err); /* sorted by name; broken manifests are listed in the log */
nb_status nb_store_rm(nb_store *s, const nb_name *name, uint64_t *freed_bytes, nb_error *err); /* removes the name, then blobs nobody names (no grace for its own) */
/* After a name was pointed at another manifest: removes the replaced one's blobs that nobody names any more, as nb_store_rm does (no grace for its own). */
nb_status nb_store_release(nb_store *s, const nb_manifest *replaced, nb_error *err);
nb_status nb_store_cp(nb_store *s, const nb_name *from, const nb_name *to, nb_error *err);
/* Removes blobs nobody names that were last used more than grace_seconds ago, and what dead imports left in tmp. Does nothing
 * (and says so in the log) while an import holds the store, or when a manifest cannot be read. freed_bytes may be NULL. */
nb_status nb_store_gc(nb_store *s, uint64_t grace_seconds, uint64_t *freed_bytes, nb_error *err);
/* Rehashes every blob of a model. progress(user, done, total) may be NULL; NB_E_INVALID naming the first bad blob. */
nb_status nb_store_verify(nb_store *s, const nb_name *name, void (*progress)(void *, uint64_t, uint64_t), void *user, nb_error *err);
/* Imports hold the store shared, collection holds it exclusively. */
nb_status nb_store_lock_shared(nb_store *s, int *fd, nb_error *err);
void nb_store_unlock(int fd);

#endif
