/* Fuzzes the safetensors reader: whatever comes in, each tensor that comes out lies inside the file and none overlap.
 */
#include "format/safetensors.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const nb_st_file *f, size_t size, int flags)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < f->n; i++) {
        const nb_st_tensor *t = &f->tensors[i];
        uint64_t count;
        if (t->off > size || t->len > size - t->off || t->off < f->data_off) abort();
        if (!nb_st_count(t, &count) || count * (uint64_t)nb_dtype_bits(t->dtype) != t->len * 8) abort();
        if (nb_st_find(f, t->name) != t) abort();
        sum += t->len;
    }
    if (sum > size - f->data_off) abort(); /* overlap */
    if ((flags & NB_ST_STRICT) && sum != size - f->data_off) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    for (int flags = 0; flags <= NB_ST_STRICT; flags++) {
        nb_st_file f;
        nb_error err = {0};
        nb_status st = nb_st_read_mem(&f, data, size, "fuzz", flags, &err);
        if (st == NB_OK)
            check(&f, size, flags);
        else if (err.status != st || err.text[0] == 0)
            abort();
        if (st == NB_OK) nb_st_free(&f);
    }
    return 0;
}
