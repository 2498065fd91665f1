/* Fuzz: the older tokenizer files. Parts with a NUL between: vocab.json, merges.txt, tokenizer_config.json; or "R" before
 * the first part: ranks, config. */
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_str part[3] = {{"", 0}, {"", 0}, {"", 0}};
    nb_tokenizer *t = NULL;
    nb_json_doc config = {0};
    nb_error err;
    if (!n || n > 1 << 16) return 0;
    bool ranks = data[0] == 'R';
    const char *p = (const char *)data + ranks, *end = (const char *)data + n;
    for (int i = 0; i < 3 && p < end; i++) {
        const char *nul = memchr(p, 0, (size_t)(end - p));
        part[i] = (nb_str){p, (size_t)((nul ? nul : end) - p)};
        p = nul ? nul + 1 : end;
    }
    nb_str c = part[ranks ? 1 : 2];
    if (c.n && nb_json_parse(&config, c.p, c.n, "config", NULL, NULL)) return 0;
    nb_status st = ranks ? nb_tokenizer_from_ranks(&t, part[0].p, part[0].n, config.root, &err)
                         : nb_tokenizer_from_vocab(&t, part[0], part[1], config.root, NB_LIT("gpt2"), &err);
    if (st) check(!t && err.text[0]);
    else use_tokenizer(t);
    nb_tokenizer_free(t);
    nb_json_free(&config);
    return 0;
}
