/* SHA-256 by libcrypto, and digests as text. */
#include "store/store.h"

#include <openssl/evp.h>
#include <stdlib.h>

struct nb_sha256 {
    EVP_MD_CTX *ctx; /* owned */
    bool failed;
};

nb_sha256 *nb_sha256_new(void)
{
    nb_sha256 *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->ctx = EVP_MD_CTX_new();
    if (!h->ctx || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1) {
        nb_sha256_abort(h);
        return NULL;
    }
    return h;
}

void nb_sha256_update(nb_sha256 *h, const void *p, size_t n)
{
    if (n && EVP_DigestUpdate(h->ctx, p, n) != 1) h->failed = true;
}

static void to_hex(const unsigned char *digest, char hex[65])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 32; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    hex[64] = '\0';
}

void nb_sha256_finish(nb_sha256 *h, char hex[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    /* Where the library failed inside, the text is empty: it equals no digest. */
    hex[0] = '\0';
    if (!h->failed && EVP_DigestFinal_ex(h->ctx, digest, &len) == 1 && len == 32) to_hex(digest, hex);
    nb_sha256_abort(h);
}

void nb_sha256_abort(nb_sha256 *h)
{
    if (!h) return;
    EVP_MD_CTX_free(h->ctx);
    free(h);
}

void nb_sha256_hex(const void *p, size_t n, char hex[65])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    hex[0] = '\0';
    if (EVP_Digest(n ? p : "", n, digest, &len, EVP_sha256(), NULL) == 1 && len == 32) to_hex(digest, hex);
}

bool nb_digest_parse(nb_str s, char hex[65])
{
    if (s.n != 7 + 64 || memcmp(s.p, "sha256", 6) != 0 || (s.p[6] != ':' && s.p[6] != '-')) return false;
    for (size_t i = 7; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
    }
    memcpy(hex, s.p + 7, 64);
    hex[64] = '\0';
    return true;
}
