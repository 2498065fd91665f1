/* What the store tests share: a folder of their own, small models, counting files. */
#ifndef NB_TESTS_STORE_SUPPORT_H
#define NB_TESTS_STORE_SUPPORT_H

#include "base/file.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

/* A new folder for one test; *state points to its path. */
static int NB_UNUSED folder_up(void **state)
{
    char *dir = strdup("/tmp/nb_store_XXXXXX");
    if (!dir || !mkdtemp(dir)) return -1;
    *state = dir;
    return 0;
}

static int NB_UNUSED folder_down(void **state)
{
    int rc = nftw(*state, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return rc;
}

static nb_store *NB_UNUSED open_at(const char *root)
{
    nb_store *s;
    nb_error e;
    assert_int_equal(nb_store_open(&s, root, &e), NB_OK);
    return s;
}

static nb_name NB_UNUSED name_of(const char *text)
{
    nb_name n;
    nb_error e;
    assert_int_equal(nb_name_parse(&n, text, &e), NB_OK);
    return n;
}

/* "root/sub", valid until the fourth call after. */
static const char *NB_UNUSED sub(const char *root, const char *rest)
{
    static char path[4][600];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", root, rest);
    return path[turn];
}

static const char *NB_UNUSED blob_at(const char *root, const char *hex)
{
    char rest[100];
    snprintf(rest, sizeof rest, "blobs/sha256-%s", hex);
    return sub(root, rest);
}

/* Entries of a folder, 0 where it does not exist. */
static int NB_UNUSED entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d)) != NULL) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

/* A layer whose blob holds `text`. */
static nb_status NB_UNUSED put_layer(nb_store *s, nb_layer *l, const char *media, const char *name, const char *text,
                                     nb_blob_ref *ref, nb_error *e)
{
    nb_blob_ref own;
    if (!ref) ref = &own;
    nb_status st = nb_blob_put(s, text, strlen(text), ref, e);
    *l = (nb_layer){.media_type = nb_str_of(media), .name = nb_str_of(name), .size = ref->size};
    memcpy(l->hex, ref->hex, 65);
    return st;
}

/* Publishes a model of three layers that all carry `tag`, beside one that every model shares. */
static nb_status NB_UNUSED publish(nb_store *s, const char *name, const char *tag, nb_error *e)
{
    nb_layer config, layer[3];
    nb_name n = name_of(name);
    char text[200];
    snprintf(text, sizeof text, "{\"model_format\":\"nibble\",\"tag\":\"%s\"}", tag);
    nb_status st = put_layer(s, &config, NB_MEDIA_CONFIG, "", text, NULL, e);
    for (int i = 0; i < 2 && !st; i++) {
        char layer_name[20];
        snprintf(layer_name, sizeof layer_name, "tensor.%d", i);
        snprintf(text, sizeof text, "weights %d of %s", i, tag);
        st = put_layer(s, &layer[i], NB_MEDIA_TENSOR, i ? "tensor.1" : "tensor.0", text, NULL, e);
    }
    if (!st) st = put_layer(s, &layer[2], NB_MEDIA_JSON, "config.json", "{\"shared\":true}", NULL, e);
    return st ? st : nb_manifest_publish(s, &n, &config, layer, 3, NULL, e);
}

/* Reads a whole blob as text. */
static void NB_UNUSED read_blob(const char *root, const char *hex, char *out, size_t cap)
{
    nb_buf b = {0};
    nb_error e;
    assert_int_equal(nb_file_read(&b, blob_at(root, hex), cap - 1, &e), NB_OK);
    snprintf(out, cap, "%s", nb_buf_cstr(&b));
    nb_buf_free(&b);
}

/* Gives a file an old modification time. */
static void NB_UNUSED make_old(const char *path)
{
    const struct timespec t[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, t, AT_SYMLINK_NOFOLLOW), 0);
}

#endif
