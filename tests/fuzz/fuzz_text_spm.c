/* Fuzz: SentencePiece protobuf files, alone and with tokens that a config adds inside, at the end of, and behind a small
 * vocabulary. */
#include "fuzz_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char text[] =
        "{\"added_tokens_decoder\":{\"0\":{\"content\":\"<unk>\",\"special\":true},\"3\":{\"content\":\"New\",\"lstrip\":true},"
        "\"5\":{\"content\":\"<s>\",\"special\":true},\"9\":{\"content\":\"zig\",\"rstrip\":true,\"normalized\":true},\"40\":"
        "{\"content\":\"\xE2\x96\x81\",\"single_word\":true},\"41\":{\"content\":\"don't\",\"special\":true}},\"pad_token\":\"<x>\","
        "\"additional_special_tokens\":[\"a\",{\"content\":\"b \"}]}";
    nb_json_doc config = {0};
    nb_error err;
    if (n > 1 << 16 || nb_json_parse(&config, text, sizeof text - 1, "config", NULL, &err)) return 0;
    for (int with = 0; with < 2; with++) {
        nb_tokenizer *t = NULL;
        if (nb_tokenizer_from_spm(&t, data, n, with ? config.root : NULL, &err)) check(!t && err.text[0]);
        else use_tokenizer(t);
        nb_tokenizer_free(t);
    }
    nb_json_free(&config);
    return 0;
}
