/* Fuzz: model names, digests and manifests. What is accepted must be safe to make paths of. */
#include "store/internal.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(bool ok)
{
    if (!ok) abort();
}

static void check_part(const char *p)
{
    size_t n = strlen(p);
    check(n >= 1 && n <= 80 && p[0] != '.' && !strchr(p, '/') && !strstr(p, ".."));
}

static void try_name(const uint8_t *data, size_t n)
{
    char text[512], shown[340];
    nb_name name, again;
    snprintf(text, sizeof text, "%.*s", (int)(n < 500 ? n : 500), (const char *)data);
    if (nb_name_parse(&name, text, NULL)) return;
    check_part(name.host);
    check_part(name.ns);
    check_part(name.model);
    check_part(name.tag);
    nb_name_text(&name, shown);
    check(nb_name_parse(&again, shown, NULL) == NB_OK && memcmp(&name, &again, sizeof name) == 0);
}

static void check_layer(const nb_layer *l)
{
    check(strlen(l->hex) == 64 && strspn(l->hex, "0123456789abcdef") == 64 && l->size <= INT64_MAX);
    check(!l->name.n || (l->name.p[0] != '/' && !nb_str_starts(l->name, "../") && !nb_str_has(l->name, "/../")));
    check(!l->name.n || !memchr(l->name.p, 0, l->name.n));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char hex[65];
    nb_manifest m = {0};
    nb_error err = {0};
    if (n && data[0] == 'n') try_name(data + 1, n - 1);
    if (nb_digest_parse((nb_str){(const char *)data, n}, hex)) check(strspn(hex, "0123456789abcdef") == 64);
    if (nb_manifest_parse(&m, (nb_str){(const char *)data, n}, &err) == NB_OK) {
        check_layer(&m.config);
        for (size_t i = 0; i < m.n_layers; i++) {
            check_layer(&m.layers[i]);
            char name[1100];
            snprintf(name, sizeof name, "%.*s", NB_FMT_STR(m.layers[i].name));
            if (m.layers[i].name.n) check(nb_manifest_find(&m, name) == &m.layers[i]);
        }
    } else {
        check(err.status && err.text[0]);
    }
    nb_manifest_free(&m);
    return 0;
}
