/* json, private: what hides behind the `text` field of an array or object.
 *
 * A container made by the parser with at most 16 members has none (text.p is NULL). Others keep their spare room and,
 * for objects, a hash index there. It lies in the arena of the items and never changes under a reader.
 */
#ifndef NB_JSON_INDEX_H
#define NB_JSON_INDEX_H

#include "json/json.h"

enum { NB_JSON_LINEAR = 16, NB_JSON_MAX_DEPTH = 1000 };

typedef struct nb_json_box {
    uint32_t used, cap; /* of items and keys. used > count in a copy made before the last append */
    uint64_t mask;      /* slots - 1 */
    uint64_t *slots;    /* upper half: hash of the key; lower half: position + 1; 0 is empty. NULL: no index */
} nb_json_box;

static inline nb_json_box *nb_json_box_of(const nb_json *v) { return (nb_json_box *)(uintptr_t)v->text.p; }

/* An empty index for up to n keys; false when memory is out. */
bool nb_json_index_new(nb_json_box *box, nb_arena *a, size_t n);
/* Position of key, which is entered at position pos when it is not there yet. */
uint32_t nb_json_index_add(nb_json_box *box, const nb_str *keys, nb_str key, uint32_t pos);

#endif
