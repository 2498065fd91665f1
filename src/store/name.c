/* Model names. Every part becomes a folder or file name, so that nothing unchecked may pass. */
#include "store/internal.h"

#include <stdio.h>

static bool alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

/* Checks one part and copies it. */
static nb_status part(char out[81], nb_str p, const char *what, const char *text, nb_error *err)
{
    if (p.n == 0) return nb_fail(err, NB_E_USAGE, "model name '%s': the %s is empty", text, what);
    if (p.n > 80) return nb_fail(err, NB_E_USAGE, "model name '%s': the %s is longer than 80 characters", text, what);
    if (!alnum(p.p[0]))
        return nb_fail(err, NB_E_USAGE, "model name '%s': the %s must begin with a letter or digit", text, what);
    for (size_t i = 0; i < p.n; i++) {
        if (!alnum(p.p[i]) && p.p[i] != '_' && p.p[i] != '.' && p.p[i] != '-') {
            return nb_fail(err, NB_E_USAGE, "model name '%s': the %s may hold letters, digits, '_', '.' and '-' only",
                           text, what);
        }
    }
    if (nb_str_has(p, "..")) return nb_fail(err, NB_E_USAGE, "model name '%s': the %s holds '..'", text, what);
    memcpy(out, p.p, p.n);
    out[p.n] = '\0';
    return NB_OK;
}

nb_status nb_name_parse(nb_name *out, const char *text, nb_error *err)
{
    *out = (nb_name){.host = "local", .ns = "library", .tag = "latest"};
    if (!text) text = "";
    nb_str rest = nb_str_of(text), parts[3];
    int n = 0;
    for (;;) {
        const char *slash = rest.n ? memchr(rest.p, '/', rest.n) : NULL;
        if (n == 3) return nb_fail(err, NB_E_USAGE, "model name '%s': at most [host/][namespace/]model[:tag]", text);
        parts[n++] = slash ? (nb_str){rest.p, (size_t)(slash - rest.p)} : rest;
        if (!slash) break;
        rest = (nb_str){slash + 1, rest.n - (size_t)(slash + 1 - rest.p)};
    }
    nb_str model = parts[n - 1];
    const char *colon = model.n ? memchr(model.p, ':', model.n) : NULL;
    nb_status st = NB_OK;
    if (colon) {
        nb_str tag = {colon + 1, model.n - (size_t)(colon + 1 - model.p)};
        model.n = (size_t)(colon - model.p);
        st = part(out->tag, tag, "tag", text, err);
    }
    if (!st && n == 3) st = part(out->host, parts[0], "host", text, err);
    if (!st && n >= 2) st = part(out->ns, parts[n - 2], "namespace", text, err);
    if (!st) st = part(out->model, model, "model", text, err);
    return st;
}

void nb_name_text(const nb_name *n, char out[340])
{
    bool host = strcmp(n->host, "local") != 0, ns = host || strcmp(n->ns, "library") != 0,
         tag = strcmp(n->tag, "latest") != 0;
    snprintf(out, 340, "%s%s%s%s%s%s%s", host ? n->host : "", host ? "/" : "", ns ? n->ns : "", ns ? "/" : "", n->model,
             tag ? ":" : "", tag ? n->tag : "");
}

char *nb_name_folder(const nb_store *s, const nb_name *n)
{
    return nb_store_path(s, "manifests-v2/%s/%s/%s", n->host, n->ns, n->model);
}
