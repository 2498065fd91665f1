/* Fuzz: texts. The first byte chooses a tokenizer; a text that is not UTF-8 is refused; borders between trusted spans
 * change nothing; a prompt that begins like the one before gives the ids of a whole encoding; a stream of the ids gives whole characters, and for byte-level the text itself. */
#include "fuzz_text.h"
#include "tok_seeds.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* The prompt of two spans, then one that shares its beginning: cut elsewhere, or of another origin, or going on. */
static void again(const nb_tokenizer *t, nb_str text, uint8_t how)
{
    size_t cut = text.n ? how * 37u % text.n : 0, end = text.n ? text.n - how % 8u % text.n : 0;
    nb_span a[2] = {{{text.p, cut}, true}, {{text.p + cut, text.n - cut}, (how & 8) != 0}};
    nb_span b[3] = {a[0], {{text.p + cut, end > cut ? end - cut : 0}, a[1].trusted ^ ((how & 16) != 0)}, {{text.p, cut}, (how & 32) != 0}};
    int flags = NB_ENC_PARSE_ADDED | (how & 64 ? NB_ENC_SPECIALS : 0);
    nb_ids v = {0}, whole = {0};
    size_t kept = 0;
    nb_status st = nb_tokenizer_encode_again(t, NULL, 0, a, 2, flags, &v, &kept, NULL);
    nb_status second = nb_tokenizer_encode_spans(t, b, 3, flags | NB_ENC_OFFSETS, &whole, NULL);
    if (!st && !second) {
        check(nb_tokenizer_encode_again(t, a, 2, b, 3, flags, &v, &kept, NULL) == NB_OK && kept <= v.n && v.n == whole.n);
        if (v.n) check(!memcmp(v.id, whole.id, v.n * sizeof *v.id) && !memcmp(v.off, whole.off, v.n * sizeof *v.off));
    }
    nb_ids_free(&v), nb_ids_free(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static nb_tokenizer *t[NB_COUNT(tok_seeds)];
    nb_error err;
    for (size_t i = 0; i < NB_COUNT(tok_seeds); i++)
        if (!t[i]) check(nb_tokenizer_from_json(&t[i], tok_seeds[i], strlen(tok_seeds[i]), NULL, &err) == NB_OK);
    if (n < 1 || n > 1 << 14) return 0;
    const nb_tokenizer *k = t[data[0] % NB_COUNT(tok_seeds)];
    nb_str text = {(const char *)data + 1, n - 1};
    nb_ids a = {0}, b = {0}, c = {0};
    nb_status st = nb_tokenizer_encode(k, text, NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS, &a, &err);
    if (nb_utf8_valid_prefix(text.p, text.n) != text.n) check(st != NB_OK);
    if (!st) {
        size_t cut = text.n ? data[0] * 37u % text.n : 0;
        nb_span s[2] = {{{text.p, cut}, true}, {{text.p + cut, text.n - cut}, true}};
        check(nb_tokenizer_encode_spans(k, s, 2, NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS | NB_ENC_OFFSETS, &b, &err) == NB_OK);
        check(a.n == b.n && (!a.n || !memcmp(a.id, b.id, a.n * sizeof *a.id)));
        s[1].trusted = false;
        check(nb_tokenizer_encode_spans(k, s, 2, NB_ENC_PARSE_ADDED, &c, &err) == NB_OK);
        again(k, text, data[0]);
        use_ids(k, a.id, a.n);
        use_ids(k, c.id, c.n);
    }
    nb_ids_free(&a), nb_ids_free(&b), nb_ids_free(&c);
    return 0;
}
