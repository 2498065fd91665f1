/* Fuzz: prepared files. The image must lie at an address that a mapping would have. */
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_tokenizer *t = NULL;
    uint8_t *p = aligned_alloc(64, NB_ALIGN_UP(n + 1, 64));
    if (!p) return 0;
    memcpy(p, data, n);
    if (!nb_tokenizer_open(&t, p, n, NULL, NULL)) use_tokenizer(t);
    nb_tokenizer_free(t);
    free(p);
    return 0;
}
