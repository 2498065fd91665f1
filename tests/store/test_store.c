/* store: names, digests, blobs, manifests, whole-store operations, bad stores. */
#include "support.h"

#include <time.h>

/* ---- names and digests ---- */

static void names_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *in, *host, *ns, *model, *tag, *shortest;
    } good[] = {
        {"smollm2", "local", "library", "smollm2", "latest", "smollm2"},
        {"smollm2:q4", "local", "library", "smollm2", "q4", "smollm2:q4"},
        {"smollm2:latest", "local", "library", "smollm2", "latest", "smollm2"},
        {"me/m", "local", "me", "m", "latest", "me/m"},
        {"library/m:x", "local", "library", "m", "x", "m:x"},
        {"hub.example.org/me/m:1.0-rc_2", "hub.example.org", "me", "m", "1.0-rc_2", "hub.example.org/me/m:1.0-rc_2"},
        {"h/library/m", "h", "library", "m", "latest", "h/library/m"},
        {"local/library/m:latest", "local", "library", "m", "latest", "m"},
        {"9a.B-c_d", "local", "library", "9a.B-c_d", "latest", "9a.B-c_d"},
    };
    for (size_t i = 0; i < NB_COUNT(good); i++) {
        nb_name n = name_of(good[i].in), again;
        char text[340];
        assert_string_equal(n.host, good[i].host);
        assert_string_equal(n.ns, good[i].ns);
        assert_string_equal(n.model, good[i].model);
        assert_string_equal(n.tag, good[i].tag);
        nb_name_text(&n, text);
        assert_string_equal(text, good[i].shortest);
        again = name_of(text);
        assert_memory_equal(&n, &again, sizeof n);
    }
    char long_name[100];
    memset(long_name, 'a', 81);
    long_name[81] = '\0';
    const char *const bad[] = {"",     "/",    "a/",          "/a",      "a//b",        "a/b/c/d",  "..",
                               "../x", "a..b", "a/../b",      ".hidden", "-x",          "_x",       "a b",
                               "a:",   ":a",   "a:b:c",       "a@b",     "a/b:c/d",     "m:..",     "m:.x",
                               "a\\b", "a\nb", "caf\xc3\xa9", "m:t/..",  "host:80/n/m", "%2e%2e/x", long_name};
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_name n;
        nb_error e = {0};
        assert_int_equal(nb_name_parse(&n, bad[i], &e), NB_E_USAGE);
        assert_true(strncmp(e.text, "model name '", 12) == 0);
    }
    nb_name n;
    assert_int_equal(nb_name_parse(&n, NULL, NULL), NB_E_USAGE);
    long_name[80] = '\0';
    assert_int_equal(nb_name_parse(&n, long_name, NULL), NB_OK);
    print_message("store: %zu good names, %zu bad\n", NB_COUNT(good), NB_COUNT(bad) + 1);
}

static void digests_are_checked(void **state)
{
    (void)state;
    char hex[65], text[100];
    const char *abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    nb_sha256_hex("abc", 3, hex);
    assert_string_equal(hex, abc);
    nb_sha256_hex(NULL, 0, hex);
    assert_string_equal(hex, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    nb_sha256 *h = nb_sha256_new();
    assert_non_null(h);
    nb_sha256_update(h, "a", 1);
    nb_sha256_update(h, "", 0);
    nb_sha256_update(h, "bc", 2);
    nb_sha256_finish(h, hex);
    assert_string_equal(hex, abc);
    nb_sha256_abort(nb_sha256_new());
    snprintf(text, sizeof text, "sha256:%s", abc);
    memset(hex, 0, sizeof hex);
    assert_true(nb_digest_parse(nb_str_of(text), hex));
    assert_string_equal(hex, abc);
    text[6] = '-';
    assert_true(nb_digest_parse(nb_str_of(text), hex));
    static const char *const bad[] = {"",
                                      "sha256:",
                                      "sha256:../../../../etc/passwd",
                                      "sha512:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                                      "sha256:BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
                                      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a",
                                      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015adx",
                                      "sha256/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
                                      " sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a",
                                      "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015a/"};
    for (size_t i = 0; i < NB_COUNT(bad); i++) assert_false(nb_digest_parse(nb_str_of(bad[i]), hex));
}

/* ---- where the store lies ---- */

static void check_root(const char *want)
{
    nb_store *s;
    nb_error e;
    assert_int_equal(nb_store_open(&s, NULL, &e), NB_OK);
    assert_string_equal(nb_store_root(s), want);
    nb_store_close(s);
}

static void the_environment_names_the_root(void **state)
{
    const char *root = *state;
    nb_error e;
    nb_store *s;
    const char *keep = getenv("HOME");
    char *home = keep ? strdup(keep) : NULL;
    setenv("NIBBLE_MODELS", "/some/where/", 1);
    setenv("XDG_DATA_HOME", "/xdg", 1);
    setenv("HOME", "/home/me", 1);
    check_root("/some/where");
    setenv("NIBBLE_MODELS", "", 1);
    check_root("/xdg/nibble/models");
    setenv("XDG_DATA_HOME", "relative", 1); /* to be ignored, says its specification */
    check_root("/home/me/.local/share/nibble/models");
    unsetenv("XDG_DATA_HOME");
    unsetenv("HOME");
    assert_int_equal(nb_store_open(&s, NULL, &e), NB_E_USAGE);
    assert_non_null(strstr(e.text, "NIBBLE_MODELS"));
    assert_null(s);
    unsetenv("NIBBLE_MODELS");
    if (home) setenv("HOME", home, 1);
    free(home);
    /* Relative roots become absolute; nothing is created by opening, listing or reading. */
    s = open_at("some/relative");
    assert_int_equal(nb_store_root(s)[0], '/');
    nb_store_close(s);
    s = open_at(sub(root, "new/store"));
    nb_arena *a = nb_arena_new(0);
    nb_model_entry *list;
    size_t n = 9;
    uint64_t bytes = 0;
    nb_manifest m;
    nb_name name = name_of("x");
    assert_int_equal(nb_store_list(s, a, &list, &n, &e), NB_OK);
    assert_int_equal(n, 0);
    assert_int_equal(nb_manifest_read(s, &name, &m, &e), NB_E_NOT_FOUND);
    assert_true(strncmp(e.text, "model 'x' not found", 19) == 0);
    assert_int_equal(nb_store_rm(s, &name, NULL, &e), NB_E_NOT_FOUND);
    assert_int_equal(nb_store_gc(s, 0, NULL, &e), NB_OK);
    assert_int_equal(nb_store_sync(s, &e), NB_OK);
    assert_int_equal(nb_store_free_bytes(s, &bytes, &e), NB_OK);
    assert_true(bytes > 0);
    assert_int_equal(entries(root), 0);
    nb_arena_free(a);
    nb_store_close(s);
}

/* ---- blobs ---- */

static void blobs_are_stored_once(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_blob_writer *w;
    nb_blob_ref a, b;
    assert_int_equal(nb_blob_begin(s, &w, 1000, &e), NB_OK); /* more than will come */
    assert_int_equal(nb_blob_write(w, "ab", 2, &e), NB_OK);
    assert_int_equal(nb_blob_write(w, "c", 1, &e), NB_OK);
    assert_int_equal(entries(sub(root, "tmp")), 1);
    assert_int_equal(nb_blob_finish(w, &a, &e), NB_OK);
    assert_string_equal(a.hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_true(a.created && a.size == 3);
    struct stat st;
    assert_int_equal(stat(blob_at(root, a.hex), &st), 0);
    assert_int_equal(st.st_size, 3);
    assert_int_equal(st.st_mode & 0777, 0644);
    make_old(blob_at(root, a.hex));
    assert_int_equal(nb_blob_put(s, "abc", 3, &b, &e), NB_OK);
    assert_false(b.created);
    assert_string_equal(a.hex, b.hex);
    assert_int_equal(stat(blob_at(root, a.hex), &st), 0);
    assert_true(st.st_mtim.tv_sec > 1600000000); /* touched */
    assert_int_equal(nb_blob_put(s, "", 0, &b, &e), NB_OK);
    assert_int_equal(nb_blob_begin(s, &w, 0, &e), NB_OK);
    nb_blob_abort(w);
    nb_blob_abort(NULL);
    assert_int_equal(entries(sub(root, "tmp")), 0);
    assert_int_equal(entries(sub(root, "blobs")), 2);
    nb_buf path = {0};
    nb_blob_path(s, a.hex, &path);
    assert_string_equal(nb_buf_cstr(&path), blob_at(root, a.hex));
    nb_buf_free(&path);
    nb_store_close(s);
}

/* What a power failure leaves of an import has the right name and size and the wrong bytes. */
static void a_damaged_leftover_is_replaced(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_blob_ref ref;
    char text[10];
    assert_int_equal(nb_mkdirs(sub(root, "blobs"), &e), NB_OK);
    const char *path = blob_at(root, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(nb_file_write_atomic(path, "\0\0\0", 3, &e), NB_OK);
    assert_int_equal(nb_blob_put(s, "abc", 3, &ref, &e), NB_OK);
    assert_true(ref.created);
    read_blob(root, ref.hex, text, sizeof text);
    assert_string_equal(text, "abc");
    /* A sound one is found sound and kept. */
    nb_store_close(s);
    s = open_at(root);
    assert_int_equal(nb_blob_put(s, "abc", 3, &ref, &e), NB_OK);
    assert_false(ref.created);
    assert_int_equal(entries(sub(root, "tmp")), 0);
    nb_store_close(s);
}

static void discard_takes_only_what_is_ours(void **state)
{
    const char *root = *state;
    nb_store *a = open_at(root), *b = open_at(root);
    nb_error e;
    nb_blob_ref mine, reused, named, theirs, again;
    assert_int_equal(publish(b, "other", "x", &e), NB_OK);
    assert_int_equal(nb_blob_put(a, "mine", 4, &mine, &e), NB_OK);
    assert_int_equal(nb_blob_put(a, "reused", 6, &reused, &e), NB_OK);
    assert_int_equal(nb_blob_put(a, "{\"shared\":true}", 15, &named, &e), NB_OK);
    assert_false(named.created);
    assert_int_equal(nb_blob_put(b, "theirs", 6, &theirs, &e), NB_OK);
    assert_int_equal(nb_blob_put(b, "reused", 6, &again, &e), NB_OK); /* another import now counts on it */
    assert_false(again.created);
    nb_blob_ref all[] = {mine, reused, named, theirs};
    nb_store_discard(a, all, 4);
    assert_false(nb_path_exists(blob_at(root, mine.hex)));
    assert_true(nb_path_exists(blob_at(root, reused.hex)));
    assert_true(nb_path_exists(blob_at(root, named.hex)));
    assert_true(nb_path_exists(blob_at(root, theirs.hex)));
    /* Own reuse does not protect. */
    assert_int_equal(nb_blob_put(a, "mine", 4, &mine, &e), NB_OK);
    assert_int_equal(nb_blob_put(a, "mine", 4, &again, &e), NB_OK);
    nb_store_discard(a, &mine, 1);
    assert_false(nb_path_exists(blob_at(root, mine.hex)));
    nb_store_close(a);
    nb_store_close(b);
}

/* ---- manifests ---- */

static void a_published_model_is_read_back(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_manifest m;
    nb_name n = name_of("me/model:v1");
    assert_int_equal(publish(s, "me/model:v1", "first", &e), NB_OK);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_OK);
    assert_int_equal(m.n_layers, 3);
    assert_true(nb_str_is(m.config.media_type, NB_MEDIA_CONFIG) && m.config.name.n == 0);
    const nb_layer *l = nb_manifest_find(&m, "tensor.1");
    assert_ptr_equal(l, &m.layers[1]);
    assert_int_equal(l->size, strlen("weights 1 of first"));
    assert_null(nb_manifest_find(&m, "tensor.2"));
    assert_null(nb_manifest_find(&m, ""));
    assert_true(nb_str_is(nb_json_get(m.doc.root, "runner")->text, "nibble") &&
                nb_str_is(nb_json_get(m.doc.root, "format")->text, "nibble"));
    char link[200] = {0}, want[200], text[64];
    assert_true(readlink(sub(root, "manifests-v2/local/me/model/v1"), link, sizeof link - 1) > 0);
    snprintf(want, sizeof want, "../../../../blobs/sha256-%s", m.hex);
    assert_string_equal(link, want);
    read_blob(root, l->hex, text, sizeof text);
    assert_string_equal(text, "weights 1 of first");
    nb_manifest_free(&m);
    /* Again under the same name: the new one counts, the old blobs stay until a collection. */
    int before = entries(sub(root, "blobs"));
    assert_int_equal(publish(s, "me/model:v1", "second", &e), NB_OK);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_OK);
    read_blob(root, m.layers[0].hex, text, sizeof text);
    assert_string_equal(text, "weights 0 of second");
    nb_manifest_free(&m);
    assert_int_equal(entries(sub(root, "blobs")), before + 4);
    uint64_t freed = 0;
    assert_int_equal(nb_store_gc(s, 3600, &freed, &e), NB_OK);
    assert_int_equal(freed, 0); /* young */
    assert_int_equal(nb_store_gc(s, 0, &freed, &e), NB_OK);
    assert_true(freed > 0);
    assert_int_equal(entries(sub(root, "blobs")), before);
    assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_OK);
    nb_store_close(s);
}

static void age_file(const char *path, int64_t seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec -= (time_t)seconds;
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){now, now}, 0), 0);
}

/* What a killed import has finished waits a week for the next one; other temporary files an hour. */
static void journals_live_for_a_week(void **state)
{
    const char *root = *state;
    enum { HOUR = 3600, DAY = 24 * HOUR };
    nb_store *s = open_at(root);
    nb_error e;
    nb_blob_ref held, loose;
    char journal[500], temporary[500], line[300];
    assert_int_equal(nb_blob_put(s, "finished", 8, &held, &e), NB_OK);
    assert_int_equal(nb_blob_put(s, "nobody's", 8, &loose, &e), NB_OK);
    snprintf(journal, sizeof journal, "%s/tmp/import-0.journal", root);
    snprintf(temporary, sizeof temporary, "%s/tmp/blob-1-0", root);
    int n = snprintf(line, sizeof line, "run 1\n%064d %s 8\ncut off in the midd", 7, held.hex);
    assert_int_equal(nb_file_write_atomic(journal, line, (size_t)n, &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(temporary, "x", 1, &e), NB_OK);
    age_file(journal, 6 * DAY);
    age_file(temporary, 2 * HOUR);
    age_file(blob_at(root, held.hex), 6 * DAY);
    age_file(blob_at(root, loose.hex), 6 * DAY);
    assert_int_equal(nb_store_gc(s, HOUR, NULL, &e), NB_OK);
    assert_true(nb_path_exists(journal) && nb_path_exists(blob_at(root, held.hex)));
    assert_false(nb_path_exists(temporary) || nb_path_exists(blob_at(root, loose.hex)));
    age_file(journal, 8 * DAY);
    assert_int_equal(nb_store_gc(s, HOUR, NULL, &e), NB_OK);
    assert_false(nb_path_exists(journal) || nb_path_exists(blob_at(root, held.hex)));
    nb_store_close(s);
}

static void a_manifest_needs_its_blobs(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_name n = name_of("m");
    nb_layer config, layer;
    assert_int_equal(put_layer(s, &config, NB_MEDIA_CONFIG, "", "{}", NULL, &e), NB_OK);
    assert_int_equal(put_layer(s, &layer, NB_MEDIA_TENSOR, "t", "weights", NULL, &e), NB_OK);
    layer.size++;
    assert_int_equal(nb_manifest_publish(s, &n, &config, &layer, 1, NULL, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "has 7 bytes, expected 8"));
    layer.size--;
    unlink(blob_at(root, layer.hex));
    assert_int_equal(nb_manifest_publish(s, &n, &config, &layer, 1, NULL, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "is missing"));
    assert_int_equal(entries(sub(root, "manifests-v2")), 0);
    char hex[65];
    assert_int_equal(nb_manifest_publish(s, &n, &config, NULL, 0, hex, &e), NB_OK);
    assert_true(nb_path_exists(blob_at(root, hex)));
    nb_store_close(s);
}

/* Puts `text` into the store as a blob and points the name m at it. */
static void point_at(const char *root, const char *text)
{
    nb_store *s = open_at(root);
    nb_blob_ref ref;
    nb_error e;
    char target[200];
    assert_int_equal(nb_blob_put(s, text, strlen(text), &ref, &e), NB_OK);
    snprintf(target, sizeof target, "../../../../blobs/sha256-%s", ref.hex);
    assert_int_equal(nb_mkdirs(sub(root, "manifests-v2/local/library/m"), &e), NB_OK);
    unlink(sub(root, "manifests-v2/local/library/m/latest"));
    assert_int_equal(symlink(target, sub(root, "manifests-v2/local/library/m/latest")), 0);
    nb_store_close(s);
}

#define HEX "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define HEAD                                                                                                           \
    "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"c\",\"digest\":\"sha256:" HEX "\",\"size\":2},\"layers\":["
#define LAYER(digest, size, name) "{\"mediaType\":\"t\",\"digest\":\"" digest "\",\"size\":" size ",\"name\":" name "}"

static void bad_manifests_are_refused(void **state)
{
    const char *root = *state;
    static const struct {
        const char *text, *what;
        nb_status status;
    } row[] = {
        {"", "line 1", NB_E_INVALID},
        {"[]", "schemaVersion", NB_E_INVALID},
        {"{\"schemaVersion\":1}", "schemaVersion", NB_E_INVALID},
        {"{\"schemaVersion\":2,\"schemaVersion\":2}", "twice", NB_E_INVALID},
        {"{\"schemaVersion\":2}", "layers", NB_E_INVALID},
        {"{\"schemaVersion\":2,\"layers\":[]}", "config", NB_E_INVALID},
        {"{\"schemaVersion\":2,\"manifests\":[]}", "manifest list", NB_E_UNSUPPORTED},
        {"{\"schemaVersion\":2,\"layers\":[],\"config\":{\"mediaType\":\"c\",\"digest\":\"sha256:../../"
         "x\",\"size\":2}}",
         "config 0: digest", NB_E_INVALID},
        {HEAD "3]}", "layer 0: mediaType", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX "0", "1", "\"a\"") "]}", "layer 0: digest", NB_E_INVALID},
        {HEAD LAYER("../../../etc/passwd", "1", "\"a\"") "]}", "layer 0: digest", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "-1", "\"a\"") "]}", "layer 0: size", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1.5", "\"a\"") "]}", "layer 0: size", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "18446744073709551615", "\"a\"") "]}", "layer 0: size", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "\"1\"", "\"a\"") "]}", "layer 0: size", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1", "\"../a\"") "]}", "layer 0: name", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1", "\"a/..\"") "]}", "layer 0: name", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1", "\"/a\"") "]}", "layer 0: name", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1", "\"a\\u0000b\"") "]}", "layer 0: name", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1", "\"a\\nb\"") "]}", "layer 0: name", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1", "7") "]}", "layer 0: name", NB_E_INVALID},
        {HEAD LAYER("sha256:" HEX, "1", "\"a\"") "," LAYER("sha256:" HEX, "1", "\"a\"") "]}",
         "layer 1: name 'a' occurs twice", NB_E_INVALID},
    };
    nb_store *s = open_at(root);
    nb_name n = name_of("m");
    nb_manifest m;
    nb_error e;
    for (size_t i = 0; i < NB_COUNT(row); i++) {
        point_at(root, row[i].text);
        e.text[0] = '\0';
        nb_status st = nb_manifest_read(s, &n, &m, &e);
        if (st != row[i].status || !strstr(e.text, row[i].what) || !strstr(e.text, "manifest of 'm'"))
            fail_msg("%s -> %d %s", row[i].text, st, e.text);
        assert_null(m.arena);
    }
    point_at(root, HEAD LAYER("sha256:" HEX, "1", "\"a..b/c\"") "," LAYER("sha256-" HEX, "0", "null") "]}");
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_OK);
    nb_manifest_free(&m);
    print_message("store: %zu bad manifests\n", NB_COUNT(row));
    nb_store_close(s);
}

static void bad_links_are_refused(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_manifest m;
    nb_name n = name_of("m");
    assert_int_equal(publish(s, "m", "x", &e), NB_OK);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_OK);
    char hex[65], target[700], outside[600];
    memcpy(hex, m.hex, 65);
    nb_manifest_free(&m);
    nb_buf text = {0};
    assert_int_equal(nb_file_read(&text, blob_at(root, hex), 10000, &e), NB_OK);
    char link[600];
    snprintf(link, sizeof link, "%s", sub(root, "manifests-v2/local/library/m/latest"));
    snprintf(outside, sizeof outside, "%s", sub(root, "elsewhere"));
    assert_int_equal(nb_mkdirs(outside, &e), NB_OK);
    /* The right bytes at a wrong place; a file that is no digest; nothing; a link to a link out of the store. */
    snprintf(target, sizeof target, "%s/sha256-%s", outside, hex);
    assert_int_equal(nb_file_write_atomic(target, text.p, text.n, &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(sub(root, "blobs/plain"), text.p, text.n, &e), NB_OK);
    const char *const to[] = {target, "../../../../blobs/plain", "../../../../blobs/sha256-" HEX, "/etc/passwd",
                              "../../../../blobs"};
    for (size_t i = 0; i < NB_COUNT(to); i++) {
        unlink(link);
        assert_int_equal(symlink(to[i], link), 0);
        assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_E_INVALID);
        assert_non_null(strstr(e.text, "leads"));
    }
    assert_int_equal(symlink(target, blob_at(root, HEX)), 0);
    unlink(link);
    assert_int_equal(symlink("../../../../blobs/sha256-" HEX, link), 0);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_E_INVALID);
    unlink(blob_at(root, HEX));
    /* A regular file in the manifest folder is fine, an absolute link into this store too. */
    unlink(link);
    assert_int_equal(nb_file_write_atomic(link, text.p, text.n, &e), NB_OK);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_OK);
    assert_string_equal(m.hex, hex);
    nb_manifest_free(&m);
    unlink(link);
    snprintf(target, sizeof target, "%s", blob_at(root, hex));
    assert_int_equal(symlink(target, link), 0);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_OK);
    nb_manifest_free(&m);
    /* Changed bytes. */
    text.p[text.n - 1] = ' ';
    assert_int_equal(nb_file_write_atomic(blob_at(root, hex), text.p, text.n, &e), NB_OK);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "do not match its digest"));
    nb_buf_free(&text);
    nb_store_close(s);
}

/* ---- whole-store operations ---- */

static int warnings;
static void count_warning(void *user, int level, const char *line)
{
    (void)user;
    (void)line;
    if (level <= 1) warnings++;
}

static void list_is_sorted_and_passes_over_rubbish(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    static const char *const name[] = {"zeta", "alpha:b", "alpha:a", "h.org/me/m", "me/alpha"};
    for (size_t i = 0; i < NB_COUNT(name); i++) assert_int_equal(publish(s, name[i], name[i], &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(sub(root, "manifests-v2/stray"), "x", 1, &e), NB_OK);
    assert_int_equal(nb_mkdirs(sub(root, "manifests-v2/local/library/..x/y"), &e), NB_OK);
    assert_int_equal(nb_mkdirs(sub(root, "manifests-v2/local/library/folder/tag"), &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(sub(root, "manifests-v2/local/library/zeta/bad name"), "x", 1, &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(sub(root, "manifests-v2/local/library/zeta/.new-1-2"), "x", 1, &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(sub(root, "manifests-v2/local/library/zeta/broken"), "x", 1, &e), NB_OK);
    assert_int_equal(symlink(sub(root, "manifests-v2/local"), sub(root, "manifests-v2/loop")), 0);
    nb_arena *a = nb_arena_new(0);
    nb_model_entry *list;
    size_t n;
    warnings = 0;
    nb_log_set(count_warning, NULL);
    assert_int_equal(nb_store_list(s, a, &list, &n, &e), NB_OK);
    nb_log_set(NULL, NULL);
    assert_int_equal(warnings, 1); /* zeta:broken */
    static const char *const want[] = {"alpha:a", "alpha:b", "h.org/me/m", "me/alpha", "zeta"};
    assert_int_equal(n, NB_COUNT(want));
    for (size_t i = 0; i < n; i++) {
        char text[340];
        nb_name_text(&list[i].name, text);
        assert_string_equal(text, want[i]);
        size_t tag = strlen(want[i]);
        assert_int_equal(list[i].bytes, strlen("{\"model_format\":\"nibble\",\"tag\":\"\"}") + tag +
                                            2 * (strlen("weights 0 of ") + tag) + 15);
        assert_true(list[i].modified_ns > 1600000000ll * 1000000000);
    }
    nb_arena_free(a);
    nb_store_close(s);
}

static void rm_keeps_what_others_need(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_blob_ref young, old;
    uint64_t freed = 0;
    nb_name a = name_of("a"), b = name_of("b"), c = name_of("x.org/y/z:t");
    assert_int_equal(publish(s, "a", "a", &e), NB_OK);
    assert_int_equal(publish(s, "b", "b", &e), NB_OK);
    assert_int_equal(publish(s, "x.org/y/z:t", "b", &e), NB_OK); /* the same content under two names */
    assert_int_equal(nb_blob_put(s, "young", 5, &young, &e), NB_OK);
    assert_int_equal(nb_blob_put(s, "old garbage", 11, &old, &e), NB_OK);
    make_old(blob_at(root, old.hex));
    assert_int_equal(nb_file_write_atomic(sub(root, "tmp/blob-1-2-3"), "xy", 2, &e), NB_OK);
    make_old(sub(root, "tmp/blob-1-2-3"));
    assert_int_equal(nb_store_rm(s, &c, &freed, &e), NB_OK);
    assert_int_equal(freed, 11 + 2); /* old garbage, and what a dead import left in tmp */
    assert_false(nb_path_exists(sub(root, "manifests-v2/x.org")));
    assert_int_equal(nb_store_verify(s, &b, NULL, NULL, &e), NB_OK);
    int before = entries(sub(root, "blobs"));
    assert_int_equal(nb_store_rm(s, &b, &freed, &e), NB_OK);
    assert_int_equal(entries(sub(root, "blobs")),
                     before - 4); /* config, two weights, manifest; the shared layer stays */
    assert_true(nb_path_exists(blob_at(root, young.hex)));
    assert_int_equal(nb_store_verify(s, &a, NULL, NULL, &e), NB_OK);
    assert_int_equal(nb_store_rm(s, &b, &freed, &e), NB_E_NOT_FOUND);
    assert_true(strncmp(e.text, "model 'b' not found", 19) == 0);
    /* While an import holds the store the name goes, the blobs stay. */
    int lock;
    before = entries(sub(root, "blobs"));
    assert_int_equal(nb_store_lock_shared(s, &lock, &e), NB_OK);
    assert_int_equal(nb_store_rm(s, &a, &freed, &e), NB_OK);
    assert_int_equal(freed, 0);
    assert_int_equal(entries(sub(root, "blobs")), before);
    nb_store_unlock(lock);
    assert_int_equal(nb_store_gc(s, 0, &freed, &e), NB_OK);
    assert_int_equal(entries(sub(root, "blobs")), 0);
    assert_int_equal(entries(sub(root, "manifests-v2")), 0);
    nb_store_close(s);
}

static void a_broken_manifest_stops_collection_not_removal(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    uint64_t freed = 1;
    nb_name m = name_of("m"), bad = name_of("bad");
    assert_int_equal(publish(s, "m", "x", &e), NB_OK);
    assert_int_equal(nb_mkdirs(sub(root, "manifests-v2/local/library/bad"), &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(sub(root, "manifests-v2/local/library/bad/latest"), "{", 1, &e), NB_OK);
    assert_int_equal(nb_store_rm(s, &m, &freed, &e), NB_OK);
    assert_int_equal(freed, 0); /* what `bad` needs is unknown */
    assert_int_equal(entries(sub(root, "blobs")), 5);
    assert_int_equal(nb_store_rm(s, &bad, &freed, &e), NB_OK);
    assert_int_equal(nb_store_gc(s, 0, &freed, &e), NB_OK);
    assert_int_equal(entries(sub(root, "blobs")), 0);
    /* A link that leads to nothing can be removed too. */
    assert_int_equal(nb_mkdirs(sub(root, "manifests-v2/local/library/bad"), &e), NB_OK);
    assert_int_equal(symlink("nowhere", sub(root, "manifests-v2/local/library/bad/latest")), 0);
    assert_int_equal(nb_store_rm(s, &bad, &freed, &e), NB_OK);
    nb_store_close(s);
}

static void cp_gives_a_second_name(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_name a = name_of("a"), b = name_of("me/b:2"), none = name_of("none");
    assert_int_equal(publish(s, "a", "x", &e), NB_OK);
    int before = entries(sub(root, "blobs"));
    assert_int_equal(nb_store_cp(s, &a, &b, &e), NB_OK);
    assert_int_equal(nb_store_cp(s, &a, &a, &e), NB_OK);
    assert_int_equal(nb_store_cp(s, &none, &b, &e), NB_E_NOT_FOUND);
    assert_int_equal(entries(sub(root, "blobs")), before);
    assert_int_equal(nb_store_rm(s, &a, NULL, &e), NB_OK);
    assert_int_equal(nb_store_verify(s, &b, NULL, NULL, &e), NB_OK);
    nb_store_close(s);
}

static uint64_t last_done, last_total;
static void see(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    assert_true(done >= last_done && done <= total);
    last_done = done;
    last_total = total;
}

static void verify_names_the_bad_blob(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    nb_error e;
    nb_manifest m;
    nb_name n = name_of("m");
    assert_int_equal(publish(s, "m", "x", &e), NB_OK);
    last_done = 0;
    assert_int_equal(nb_store_verify(s, &n, see, NULL, &e), NB_OK);
    assert_true(last_done == last_total && last_total > 0);
    assert_int_equal(nb_manifest_read(s, &n, &m, &e), NB_OK);
    const char *path = blob_at(root, m.layers[1].hex);
    assert_int_equal(nb_file_write_atomic(path, "weights 1 of y", 14, &e), NB_OK);
    assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, m.layers[1].hex));
    assert_non_null(strstr(e.text, "tensor.1"));
    assert_non_null(strstr(e.text, "damaged"));
    assert_int_equal(truncate(path, 5), 0);
    assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "has 5 bytes, expected 14"));
    unlink(path);
    assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "missing"));
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "not a regular file"));
    nb_manifest_free(&m);
    nb_store_close(s);
}

static void a_foreign_store_is_only_read(void **state)
{
    const char *root = *state;
    nb_error e;
    nb_manifest m;
    nb_store *s = open_at(root);
    nb_blob_ref ref;
    assert_int_equal(publish(s, "registry.ollama.ai/library/new", "x", &e), NB_OK);
    nb_store_close(s);
    static const char text[] = HEAD LAYER("sha256:" HEX, "1", "\"a\"") "]}";
    assert_int_equal(nb_mkdirs(sub(root, "manifests/registry.ollama.ai/library/old"), &e), NB_OK);
    assert_int_equal(
        nb_file_write_atomic(sub(root, "manifests/registry.ollama.ai/library/old/8b"), text, sizeof text - 1, &e),
        NB_OK);
    s = open_at(root);
    nb_name old = name_of("old:8b"), new = name_of("new");
    assert_int_equal(nb_manifest_read(s, &old, &m, &e), NB_E_NOT_FOUND); /* not asked for */
    nb_store_close(s);
    assert_int_equal(nb_store_open_foreign(&s, root, &e), NB_OK);
    assert_int_equal(nb_manifest_read(s, &old, &m, &e), NB_OK);
    nb_manifest_free(&m);
    assert_int_equal(nb_manifest_read(s, &new, &m, &e), NB_OK);
    nb_manifest_free(&m);
    nb_arena *a = nb_arena_new(0);
    nb_model_entry *list;
    size_t n;
    assert_int_equal(nb_store_list(s, a, &list, &n, &e), NB_OK);
    assert_int_equal(n, 2);
    assert_int_equal(nb_blob_put(s, "x", 1, &ref, &e), NB_E_USAGE);
    assert_int_equal(nb_store_rm(s, &new, NULL, &e), NB_E_USAGE);
    assert_int_equal(nb_store_cp(s, &new, &old, &e), NB_E_USAGE);
    assert_int_equal(nb_store_gc(s, 0, NULL, &e), NB_E_USAGE);
    nb_arena_free(a);
    nb_store_close(s);
}

static void an_unreadable_store_is_named(void **state)
{
    const char *root = *state;
    nb_error e;
    nb_blob_ref ref;
    nb_store *s;
    /* A plain file where the store should be. */
    assert_int_equal(nb_file_write_atomic(sub(root, "file"), "x", 1, &e), NB_OK);
    s = open_at(sub(root, "file"));
    assert_int_equal(nb_blob_put(s, "x", 1, &ref, &e), NB_E_IO);
    assert_non_null(strstr(e.text, "/file"));
    nb_store_close(s);
    if (geteuid() == 0) {
        print_message("store: permissions do not bind root, skipped\n");
        return;
    }
    s = open_at(root);
    assert_int_equal(publish(s, "m", "x", &e), NB_OK);
    assert_int_equal(chmod(sub(root, "manifests-v2"), 0), 0);
    nb_arena *a = nb_arena_new(0);
    nb_model_entry *list;
    size_t n;
    assert_int_equal(nb_store_list(s, a, &list, &n, &e), NB_E_IO);
    assert_int_equal(chmod(sub(root, "manifests-v2"), 0755), 0);
    nb_arena_free(a);
    nb_store_close(s);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, folder_up, folder_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_checked),  cmocka_unit_test(digests_are_checked),
        CASE(the_environment_names_the_root), CASE(blobs_are_stored_once),
        CASE(a_damaged_leftover_is_replaced), CASE(discard_takes_only_what_is_ours),
        CASE(a_published_model_is_read_back), CASE(journals_live_for_a_week),
        CASE(a_manifest_needs_its_blobs),     CASE(bad_manifests_are_refused),
        CASE(bad_links_are_refused),          CASE(list_is_sorted_and_passes_over_rubbish),
        CASE(rm_keeps_what_others_need),      CASE(a_broken_manifest_stops_collection_not_removal),
        CASE(cp_gives_a_second_name),         CASE(verify_names_the_bad_blob),
        CASE(a_foreign_store_is_only_read),   CASE(an_unreadable_store_is_named),
    };
    return cmocka_run_group_tests_name("store", tests, NULL, NULL);
}
