/* What the tests of sessions share: reference models found by structure, imported into a temporary store, some of them
 * changed on the way. */
#ifndef TESTS_API_SUPPORT_H
#define TESTS_API_SUPPORT_H

#include "base/file.h"
#include "create/create.h"
#include "format/safetensors.h"
#include "run/run.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { MODELS_MAX = 32, SEED_IDS = 4096 };
static char test_root[64], test_store[96];
static char model_dirs[MODELS_MAX][512];
static int n_model_dirs;

static inline const char *models_base(char out[400])
{
    const char *data = getenv("NIBBLE_TEST_DATA");
    snprintf(out, 400, "%s/reference_models", data && *data ? data : "../shared");
    struct stat st;
    if (stat(out, &st) != 0) snprintf(out, 400, "tests/data/reference_models");
    return out;
}

/* Every folder with a config and weights, by name. */
static inline void find_models(void)
{
    char base[400];
    struct dirent **e;
    int n = scandir(models_base(base), &e, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[800];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s/model.safetensors", base, e[i]->d_name);
        if (e[i]->d_name[0] != '.' && stat(path, &st) == 0 && n_model_dirs < MODELS_MAX)
            snprintf(model_dirs[n_model_dirs++], sizeof model_dirs[0], "%s/%.100s", base, e[i]->d_name);
        free(e[i]);
    }
    if (n >= 0) free(e);
}

static inline int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline int group_setup(void **state)
{
    (void)state;
    snprintf(test_root, sizeof test_root, "/tmp/nibble-api-XXXXXX");
    if (!mkdtemp(test_root)) return -1;
    snprintf(test_store, sizeof test_store, "%s/store", test_root);
    find_models();
    return 0;
}

static inline int group_teardown(void **state)
{
    (void)state;
    return nftw(test_root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline nb_status import_dir(const char *dir, const char *name, nb_error *err)
{
    nb_store *s = NULL;
    nb_create_options o;
    nb_create_report r = {0};
    nb_create_defaults(&o);
    o.name = name;
    o.source = dir;
    o.threads = 1;
    nb_status st = nb_store_open(&s, test_store, err);
    if (st == NB_OK) st = nb_create(s, &o, &r, err);
    nb_create_report_free(&r);
    nb_store_close(s);
    return st;
}

/* NULL where the architecture does not run; anything else that goes wrong is a failure. */
static inline nb_model *open_dir(const char *dir, const char *name, int32_t chunk, int32_t threads)
{
    nb_error err = {0};
    nb_model *m = NULL;
    nb_model_options o = {.size = sizeof o, .store = test_store, .threads = threads, .chunk = chunk};
    nb_status st = import_dir(dir, name, &err);
    if (st == NB_OK) st = nb_model_open(&m, name, &o, &err);
    if (st == NB_E_UNSUPPORTED) return NULL;
    if (st != NB_OK) fail_msg("%s: %s", dir, err.text);
    return m;
}

static inline nb_session *session(nb_model *m, int32_t context)
{
    nb_error err = {0};
    nb_session *s = NULL;
    nb_session_options o = {.size = sizeof o, .context = context};
    if (nb_session_new(&s, m, &o, &err) != NB_OK) fail_msg("%s", err.text);
    return s;
}

static inline nb_status feed(nb_session *s, const int32_t *ids, int32_t n, int32_t logits, nb_error *err)
{
    nb_eval_item it = {.size = sizeof it, .session = s, .ids = ids, .n = n, .logits = logits};
    return nb_eval(&it, 1, err);
}

static inline void must_feed(nb_session *s, const int32_t *ids, int32_t n, int32_t logits)
{
    nb_error err = {0};
    if (feed(s, ids, n, logits, &err) != NB_OK) fail_msg("%s", err.text);
}

static inline int32_t vocab_of(const nb_model *m)
{
    nb_model_info i = {.size = sizeof i};
    assert_int_equal(nb_model_get_info(m, &i, NULL), NB_OK);
    return i.vocab;
}

/* Arbitrary ids that stay below `most`. */
static inline void make_ids(int32_t *ids, int32_t n, int32_t most, uint32_t seed)
{
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)((((uint32_t)i + seed * 977u) * 2654435761u >> 9) % (uint32_t)most);
}

/* The last row of logits after ids, from a session of its own. */
static inline float *expected(nb_model *m, const int32_t *ids, int32_t n)
{
    size_t bytes = (size_t)vocab_of(m) * sizeof(float);
    nb_session *s = session(m, n + 1);
    must_feed(s, ids, n, 1);
    float *copy = malloc(bytes);
    memcpy(copy, nb_logits(s, 0), bytes);
    nb_session_free(s);
    return copy;
}

static inline void same_logits(const nb_session *s, const float *want)
{
    const float *got = nb_logits(s, 0);
    assert_non_null(got);
    assert_memory_equal(got, want, (size_t)s->model->net->config.vocab * sizeof(float));
}

/* ---- changed copies of a checkpoint ---- */

static inline void write_file(const char *dir, const char *name, const void *p, size_t n)
{
    char path[800];
    snprintf(path, sizeof path, "%.500s/%.200s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    fclose(f);
}

/* Copies config.json and the weights to a new folder; edit (may be NULL) changes the weights in memory. */
static inline const char *copy_model(const char *from, const char *label,
                                     void (*edit)(uint8_t *file, const nb_st_file *st), char out[200])
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    snprintf(out, 200, "%s/%s", test_root, label);
    mkdir(out, 0755);
    for (int i = 0; i < 2; i++) {
        char path[800];
        nb_buf b = {0};
        nb_error err;
        snprintf(path, sizeof path, "%.500s/%s", from, files[i]);
        assert_int_equal(nb_file_read(&b, path, 64u << 20, &err), NB_OK);
        if (i == 1 && edit) {
            nb_st_file st = {0};
            assert_int_equal(nb_st_read_mem(&st, b.p, b.n, path, 0, &err), NB_OK);
            edit((uint8_t *)b.p, &st);
            nb_st_free(&st);
        }
        write_file(out, files[i], b.p, b.n);
        nb_buf_free(&b);
    }
    return out;
}

/* Id POISON leaves the numeric domain in the first layer, every other id does not meet the poisoned weights: channel 3
 * of the embedding is 0 but for that id, and the first layer's v projection multiplies this channel by 1e38. */
enum { POISON = 7, CHANNEL = 3 };
static inline void poison(uint8_t *file, const nb_st_file *st)
{
    const nb_st_tensor *e = nb_st_find(st, NB_LIT("model.embed_tokens.weight")),
                       *v = nb_st_find(st, NB_LIT("model.layers.0.self_attn.v_proj.weight"));
    assert_true(e && v && e->dtype == NB_DT_BF16 && v->dtype == NB_DT_BF16);
    for (int64_t r = 0; r < e->dim[0]; r++)
        nb_store_u16(file + e->off + 2 * (uint64_t)(r * e->dim[1] + CHANNEL), r == POISON ? 0x3f80 : 0);
    for (int64_t r = 0; r < v->dim[0]; r++)
        nb_store_u16(file + v->off + 2 * (uint64_t)(r * v->dim[1] + CHANNEL), 0x7e96);
}

/* Folder of the first model whose config.json says this model_type. */
static inline const char *model_of_type(const char *type)
{
    char want[80];
    snprintf(want, sizeof want, "\"model_type\": \"%s\"", type);
    for (int i = 0; i < n_model_dirs; i++) {
        char path[800];
        nb_buf b = {0};
        nb_error err;
        snprintf(path, sizeof path, "%.500s/config.json", model_dirs[i]);
        bool found = nb_file_read(&b, path, 1 << 20, &err) == NB_OK && nb_str_has(nb_buf_str(&b), want);
        nb_buf_free(&b);
        if (found) return model_dirs[i];
    }
    return NULL;
}

#endif
