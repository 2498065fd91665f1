/* Shared by the tests of src/model: the folder of test data, its reference models by structure, and configs from text.
 */
#ifndef TESTS_MODEL_DATA_H
#define TESTS_MODEL_DATA_H

#include "base/file.h"
#include "model/arch.h"
#include "json/json.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

static inline const char *data_root(void)
{
    const char *e = getenv("NIBBLE_TEST_DATA");
    static char path[4096];
    if (!e || !*e) e = "../shared";
    snprintf(path, sizeof path, "%s/reference_models", e);
    return nb_path_is_dir(path) ? e : "tests/data"; /* the repository's own copy of the reference models */
}

/* Names of the folders under reference_models that hold a config.json, sorted; at most 256. Returns how many. */
static inline int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }
static inline size_t reference_models(char *names[256])
{
    char path[4096];
    size_t n = 0;
    snprintf(path, sizeof path, "%s/reference_models", data_root());
    DIR *d = opendir(path);
    for (struct dirent *e; d && n < 256 && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/reference_models/%s/config.json", data_root(), e->d_name);
        if (e->d_name[0] != '.' && nb_path_exists(path)) names[n++] = strdup(e->d_name);
    }
    if (d) closedir(d);
    qsort(names, n, sizeof *names, by_text);
    return n;
}

static inline nb_status json_file(nb_json_doc *doc, const char *model, const char *file, nb_error *err)
{
    char path[4096];
    nb_buf b = {0};
    snprintf(path, sizeof path, "%s/reference_models/%s/%s", data_root(), model, file);
    nb_status s = nb_file_read(&b, path, 64u << 20, err);
    nb_json_limits lim = {.flags = NB_JSON_COPY};
    if (s == NB_OK) s = nb_json_parse(doc, b.p, b.n, file, &lim, err);
    nb_buf_free(&b);
    return s;
}

/* A config from text; the document is leaked into the arena's lifetime by the caller keeping `doc`. */
static inline nb_status config_text(nb_config *c, nb_json_doc *doc, nb_arena *a, const char *text, nb_error *err)
{
    nb_json_limits lim = {.flags = NB_JSON_COPY};
    *doc = (nb_json_doc){0};
    nb_status s = nb_json_parse(doc, text, strlen(text), "config.json", &lim, err);
    return s == NB_OK ? nb_config_read(c, doc->root, NULL, a, err) : s;
}

#endif
