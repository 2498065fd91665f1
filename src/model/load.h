/* model/load: the parts of opening a stored model. Internal to src/model.
 *
 * blobs.c maps the blobs and reads their headers; bind.c turns their tensors into weights, banks and vectors; repack.c
 * makes rows16 and rows1 of what was stored row-major; prepared.c finds tokenizer, template and generation defaults;
 * load.c puts them together.
 */
#ifndef NB_MODEL_LOAD_H
#define NB_MODEL_LOAD_H

#include "format/safetensors.h"
#include "model/arch_row.h"
#include "model/model.h"

#define NB_MAX_DOCS 12

typedef struct nb_blob {
    const nb_layer *layer;
    nb_mapped file;   /* p NULL once the bytes were copied (resident) */
    const uint8_t *p; /* the bytes, mapped or copied */
    nb_st_file head;  /* until binding is done */
    bool has_head;
} nb_blob;

struct nb_net_blobs {
    nb_blob *blob; /* tensor layers */
    size_t n;
    uint8_t *copies; /* resident: one anonymous mapping */
    size_t copies_bytes;
    struct nb_pages {
        void *p;
        size_t n;
    } * pages; /* repacked matrices, a list of mappings; malloc */
    size_t n_pages;
    nb_json_doc docs[NB_MAX_DOCS]; /* parsed config files, in use as long as the network */
    size_t n_docs;
    nb_mapped tokenizer; /* prepared tokenizer */
};

/* Maps every tensor layer, checks sizes and headers. */
nb_status nb_net_blobs_open(struct nb_net_blobs *b, nb_store *store, const nb_manifest *m, nb_arena *a, nb_error *err);
nb_status nb_net_blobs_resident(struct nb_net_blobs *b, nb_error *err); /* copies them into anonymous huge pages */
void nb_net_blobs_close_heads(struct nb_net_blobs *b);
void nb_net_blobs_close(struct nb_net_blobs *b);
/* Zeroed pages owned by the network. NULL: memory */
uint8_t *nb_net_blobs_pages(struct nb_net_blobs *b, uint64_t bytes);

/* A JSON layer, parsed and kept. *out is NULL without such a layer; NB_E_INVALID where it does not parse. */
nb_status nb_net_load_json(nb_network *net, nb_store *store, const nb_manifest *m, const char *name,
                           const nb_json **out, nb_error *err);

/* ---- a tensor stored row-major ---- */
typedef struct nb_standard {
    nb_str name; /* as the blob has it; canonical name beside it */
    nb_str canon;
    nb_qtype type;
    int64_t experts, n, k;   /* experts 0: a matrix */
    nb_parts parts;          /* of the first row; rows follow at the strides */
    const float *multiplier; /* [1] or [experts], or NULL */
    const float *row_scale, *block_scale, *pre_scale;
    const float *bias; /* bank: [experts, n] in the arena, or NULL */
    uint64_t bytes;
    const char *blob;
} nb_standard;

/* Reads tensor t of a blob as row-major matrix or stack of them. */
nb_status nb_net_standard_read(nb_network *net, const nb_blob *b, const nb_st_tensor *t, nb_standard *out,
                               nb_error *err);
/* Fills a weight (rows16, or rows1 for a table); used in place where the bytes are equal. *repacked says which. */
nb_status nb_net_repack_weight(nb_network *net, const nb_standard *s, nb_layout layout, nb_weight *w, bool *repacked,
                               nb_error *err);
/* Gate, up, down (n 0: absent) of one group into one bank. */
nb_status nb_net_repack_bank(nb_network *net, const nb_standard *const proj[3], nb_bank *bank, nb_error *err);

/* F32 companion of a tensor with exactly `count` elements: in place when aligned, else copied. *out NULL when absent.
 */
nb_status nb_net_companion(nb_network *net, const nb_blob *b, nb_str base, const char *suffix, uint64_t count,
                           const float **out, nb_error *err);
/* count floats of any float dtype as F32 in the arena. */
nb_status nb_net_floats(nb_network *net, const nb_blob *b, const nb_st_tensor *t, uint64_t count, float **out,
                        nb_error *err);
/* "blob <12 hex> tensor NAME: " and the text */
nb_status nb_net_bad_tensor(nb_error *err, const nb_blob *b, nb_str name, const char *fmt, ...) NB_PRINTF(4, 5);
const nb_st_tensor *nb_net_blob_find(const nb_blob *b, nb_str base, const char *suffix);
bool nb_net_blob_meta(const nb_blob *b, nb_str base, const char *suffix, nb_str *value);

/* Binds everything into net->tensors. */
nb_status nb_net_bind(nb_network *net, bool weights_only, nb_error *err);
/* Tokenizer, templates, special tokens, generation defaults. */
nb_status nb_net_load_text(nb_network *net, nb_store *store, const nb_manifest *m, const nb_network_options *o,
                           nb_error *err);

/* ---- text.c: the text side as files ---- */
typedef struct nb_text_files {
    nb_text_file *v; /* in the arena */
    nb_mapped *map;
    size_t n;
    char key[65]; /* of all files that can make the tokenizer, and of the program's version */
} nb_text_files;
/* Maps the layers that the text side is made of. */
nb_status nb_text_files_map(nb_text_files *f, nb_store *store, const nb_manifest *m, nb_arena *a, nb_error *err);
void nb_text_files_unmap(nb_text_files *f);
const char *const *nb_text_file_names(void); /* those with fixed names, NULL at the end */
bool nb_text_is_source(const char *name);    /* can it hold a tokenizer? */
nb_str nb_text_file_find(const nb_text_file *f, size_t n, const char *name); /* p NULL: not there */
/* Templates and special tokens, once the tokenizer is there (or is not). */
nb_status nb_net_load_chat(nb_network *net, const nb_text_file *f, size_t n, nb_error *err);

#endif
