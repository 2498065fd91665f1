/* Shared by the tokenizer tests: finding and unpacking the test data. */
#ifndef NB_TESTS_TOK_TESTLIB_H
#define NB_TESTS_TOK_TESTLIB_H

#include "base/file.h"
#include "json/json.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static inline const char *test_data(void)
{
    const char *d = getenv("NIBBLE_TEST_DATA");
    return d && *d ? d : "../shared";
}

/* Reads DIR/NAME, or DIR/NAME.xz through `xz -dc`. False when neither is there. */
static inline bool read_data(nb_buf *out, const char *dir, const char *name)
{
    char path[8300], command[8400];
    out->n = 0;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (nb_path_exists(path)) return nb_file_read(out, path, UINT64_MAX, NULL) == NB_OK;
    snprintf(path, sizeof path, "%s/%s.xz", dir, name);
    if (!nb_path_exists(path) || strchr(path, '\'')) return false;
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    FILE *f = popen(command, "r");
    if (!f) return false;
    static char block[1 << 16];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) nb_buf_add(out, block, n);
    return pclose(f) == 0 && !out->oom;
}

/* tokenizer.json (with tokenizer_config.json if it is there) or tokenizer.model of a folder; NULL when it has neither. */
static inline nb_tokenizer *load_tokenizer(const char *dir)
{
    nb_buf b = {0}, c = {0};
    nb_json_doc config = {0};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    nb_status st = NB_OK;
    if (read_data(&c, dir, "tokenizer_config.json")) assert_int_equal(nb_json_parse(&config, c.p, c.n, "tokenizer_config.json", NULL, &err), NB_OK);
    if (read_data(&b, dir, "tokenizer.json")) st = nb_tokenizer_from_json(&t, b.p, b.n, config.root, &err);
    else if (read_data(&b, dir, "tokenizer.model")) st = nb_tokenizer_from_spm(&t, b.p, b.n, config.root, &err);
    if (st) fail_msg("%s: %s", dir, err.text);
    nb_json_free(&config);
    nb_buf_free(&b);
    nb_buf_free(&c);
    return t;
}

typedef void folder_fn(const char *dir, const char *name);
/* Every folder below ROOT (one level) that holds FILE or FILE.xz. Returns how many. */
static inline size_t each_folder(const char *root, const char *file, folder_fn *fn)
{
    struct dirent **list;
    size_t found = 0;
    int n = scandir(root, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char dir[8192], path[8300];
        snprintf(dir, sizeof dir, "%s/%s", root, list[i]->d_name);
        snprintf(path, sizeof path, "%s/%s", dir, file);
        bool is = nb_path_exists(path);
        snprintf(path, sizeof path, "%s/%s.xz", dir, file);
        if (list[i]->d_name[0] != '.' && nb_path_is_dir(dir) && (is || nb_path_exists(path))) {
            found++;
            fn(dir, list[i]->d_name);
        }
        free(list[i]);
    }
    if (n >= 0) free(list);
    return found;
}

#endif
