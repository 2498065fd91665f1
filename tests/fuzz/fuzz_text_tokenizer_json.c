/* Fuzz: whatever is accepted as tokenizer.json can encode, decode, be saved and opened again with the same result. Behind a
 * NUL: a tokenizer_config.json beside it. */
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_tokenizer *t = NULL;
    nb_json_doc config = {0};
    nb_error err;
    if (n > 1 << 16) return 0;
    const char *p = (const char *)data, *nul = n ? memchr(p, 0, n) : NULL;
    size_t first = nul ? (size_t)(nul - p) : n;
    if (nul && nb_json_parse(&config, nul + 1, n - first - 1, "config", NULL, NULL)) return 0;
    if (nb_tokenizer_from_json(&t, p, first, config.root, &err)) check(!t && err.text[0]);
    else use_tokenizer(t);
    nb_tokenizer_free(t);
    nb_json_free(&config);
    return 0;
}
