/* Fuzz: whatever is accepted as tokenizer.json can encode, decode, be saved and opened again with the same result. */
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_tokenizer *t = NULL;
    nb_error err;
    if (n > 1 << 16) return 0;
    if (nb_tokenizer_from_json(&t, (const char *)data, n, NULL, &err)) {
        check(!t && err.text[0]);
        return 0;
    }
    use_tokenizer(t);
    nb_tokenizer_free(t);
    return 0;
}
