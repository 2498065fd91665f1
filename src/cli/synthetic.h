/* cli/synthetic: models of known shapes with random weights, for `bench --shape`. Written into a store like an import,
 * and opened like one. */
#ifndef NB_CLI_SYNTHETIC_H
#define NB_CLI_SYNTHETIC_H

#include "format/format.h"
#include "store/store.h"

typedef struct nb_shape {
    const char *name, *arch;
    int32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    bool tied;
    int32_t experts, used, moe_ffn;
} nb_shape;
const nb_shape *nb_shape_find(const char *name); /* NULL: unknown */
void nb_shape_names(nb_buf *out);                /* "s135, s600, ..." */
/* Publishes the shape under `name`, every matrix in format q, head included. progress may be NULL. */
nb_status nb_synthetic_create(nb_store *s, const nb_name *name, const nb_shape *shape, nb_qtype q,
                              void (*progress)(void *, uint64_t, uint64_t), void *user, nb_error *err);

#endif
