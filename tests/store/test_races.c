/* store under pressure: several importers of one name, removal beside them, full disks, killed importers. */
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Children report by exit status: 0 is success. */
static pid_t start(int (*fn)(const char *root, int id), const char *root, int id)
{
    pid_t pid = fork();
    if (pid == 0) _exit(fn(root, id));
    assert_true(pid > 0);
    return pid;
}

static int finish(pid_t pid)
{
    int rc = -1;
    assert_int_equal(waitpid(pid, &rc, 0), pid);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : 128 + WTERMSIG(rc);
}

static int complain(const nb_error *e, int rc)
{
    print_message("child: %s\n", e->text);
    return rc;
}

enum { ROUNDS = 25 };

/* An import as `create` does it: the shared lock, blobs, the name. */
static int import_often(const char *root, int id)
{
    nb_error e = {0};
    for (int i = 0; i < ROUNDS; i++) {
        nb_store *s;
        int lock;
        char tag[40];
        snprintf(tag, sizeof tag, "%d of %d", i % 3, id % 2); /* importers share content now and then */
        if (nb_store_open(&s, root, &e) || nb_store_lock_shared(s, &lock, &e)) return complain(&e, 1);
        if (publish(s, "same", tag, &e)) return complain(&e, 2);
        nb_store_unlock(lock);
        nb_store_close(s);
    }
    return 0;
}

/* Whoever reads must see one whole model: all four layers of the same importer and round. */
static int read_often(const char *root, int id)
{
    nb_error e = {0};
    nb_store *s;
    nb_name n;
    if (nb_store_open(&s, root, &e) || nb_name_parse(&n, "same", &e)) return complain(&e, 1);
    for (int i = 0; i < 60; i++) {
        nb_manifest m;
        nb_status st = nb_manifest_read(s, &n, &m, &e);
        if (st == NB_E_NOT_FOUND && id) continue;
        if (st) return complain(&e, 2);
        char got[2][64];
        for (int k = 0; k < 2; k++) {
            nb_buf path = {0}, text = {0};
            nb_blob_path(s, m.layers[k].hex, &path);
            st = nb_file_read(&text, nb_buf_cstr(&path), 60, &e);
            if (st && !(id && st == NB_E_NOT_FOUND)) return complain(&e, 3);
            snprintf(got[k], sizeof got[k], "%s", text.n > 10 ? nb_buf_cstr(&text) + 10 : "");
            nb_buf_free(&path);
            nb_buf_free(&text);
        }
        if (!st && strcmp(got[0], got[1]) != 0) return 4;
        nb_manifest_free(&m);
    }
    nb_store_close(s);
    return 0;
}

static int remove_often(const char *root, int id)
{
    nb_error e = {0};
    nb_store *s;
    nb_name n;
    if (nb_store_open(&s, root, &e) || nb_name_parse(&n, "same", &e)) return complain(&e, 1);
    for (int i = 0; i < ROUNDS; i++) {
        nb_status st = id ? nb_store_rm(s, &n, NULL, &e) : nb_store_gc(s, 0, NULL, &e);
        if (st && st != NB_E_NOT_FOUND) return complain(&e, 2);
    }
    nb_store_close(s);
    return 0;
}

static void check_whole(const char *root)
{
    nb_error e;
    nb_store *s = open_at(root);
    nb_name n = name_of("same");
    uint64_t freed;
    assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_OK);
    assert_int_equal(entries(sub(root, "tmp")), 0);
    assert_int_equal(entries(sub(root, "manifests-v2/local/library/same")), 1);
    assert_int_equal(nb_store_gc(s, 0, &freed, &e), NB_OK);
    assert_int_equal(entries(sub(root, "blobs")), 5);
    assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_OK);
    nb_store_close(s);
}

static void two_importers_of_one_name_leave_one_whole_model(void **state)
{
    const char *root = *state;
    nb_error e;
    nb_store *s = open_at(root);
    assert_int_equal(publish(s, "same", "first", &e), NB_OK);
    nb_store_close(s);
    pid_t a = start(import_often, root, 0), b = start(import_often, root, 1), c = start(import_often, root, 2),
          r = start(read_often, root, 0);
    assert_int_equal(finish(a), 0);
    assert_int_equal(finish(b), 0);
    assert_int_equal(finish(c), 0);
    assert_int_equal(finish(r), 0); /* the name was never absent, never half */
    check_whole(root);
}

static void removal_and_collection_beside_importers(void **state)
{
    const char *root = *state;
    pid_t a = start(import_often, root, 0), b = start(import_often, root, 1), c = start(remove_often, root, 0),
          d = start(remove_often, root, 1), r = start(read_often, root, 1);
    assert_int_equal(finish(a), 0);
    assert_int_equal(finish(b), 0);
    assert_int_equal(finish(c), 0);
    assert_int_equal(finish(d), 0);
    assert_int_equal(finish(r), 0);
    nb_error e;
    nb_store *s = open_at(root);
    assert_int_equal(publish(s, "same", "last", &e), NB_OK);
    nb_store_close(s);
    check_whole(root);
}

/* ---- a full disk ---- */

/* Runs an import in what room there is. Everything must fail with NB_E_NO_SPACE, keep the old model and leave nothing.
 */
static int import_too_much(const char *root, int id)
{
    static char big[300000];
    nb_error e = {0};
    nb_store *s;
    nb_blob_writer *w;
    nb_blob_ref ref[2];
    memset(big, 7, sizeof big);
    if (nb_store_open(&s, root, &e)) return complain(&e, 1);
    if (nb_blob_put(s, "small", 5, &ref[0], &e)) return complain(&e, 2);
    if (id == 0) { /* told beforehand: refused at once */
        if (nb_blob_begin(s, &w, sizeof big, &e) != NB_E_NO_SPACE) return complain(&e, 3);
    } else { /* not told: the write fails, every later call too */
        if (nb_blob_begin(s, &w, 0, &e)) return complain(&e, 4);
        if (nb_blob_write(w, big, sizeof big, &e) != NB_E_NO_SPACE || e.status != NB_E_NO_SPACE) return complain(&e, 5);
        if (nb_blob_write(w, "x", 1, &e) != NB_E_NO_SPACE) return complain(&e, 6);
        if (nb_blob_finish(w, &ref[1], &e) != NB_E_NO_SPACE) return complain(&e, 7);
    }
    nb_store_discard(s, ref, 1);
    nb_store_close(s);
    return entries(sub(root, "tmp")) == 0 && entries(sub(root, "blobs")) == 5 ? 0 : 8;
}

static int with_small_files(const char *root, int id)
{
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){100000, 100000}) != 0) return 20;
    return import_too_much(root, id);
}

/* A manifest that does not fit: the old one stays. */
static int publish_too_much(const char *root, int id)
{
    nb_error e = {0};
    nb_store *s;
    nb_layer config, layer[200];
    char names[200][16];
    nb_name n;
    (void)id;
    if (nb_store_open(&s, root, &e) || nb_name_parse(&n, "same", &e)) return complain(&e, 1);
    if (put_layer(s, &config, NB_MEDIA_CONFIG, "", "{\"shared\":true}", NULL, &e)) return complain(&e, 2);
    for (int i = 0; i < 200; i++) {
        layer[i] = config;
        snprintf(names[i], sizeof names[i], "t%d", i);
        layer[i].name = nb_str_of(names[i]);
    }
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &(struct rlimit){2000, 2000}) != 0) return 20;
    if (nb_manifest_publish(s, &n, &config, layer, 200, NULL, &e) != NB_E_NO_SPACE) return complain(&e, 3);
    nb_store_close(s);
    return 0;
}

static void full_disk_leaves_the_old_model(void **state)
{
    const char *root = *state;
    nb_error e;
    nb_store *s = open_at(root);
    assert_int_equal(publish(s, "same", "first", &e), NB_OK);
    for (int id = 0; id < 2; id++) assert_int_equal(finish(start(with_small_files, root, id)), 0);
    assert_int_equal(finish(start(publish_too_much, root, 0)), 0);
    nb_store_close(s);
    check_whole(root);
}

/* The same on a real file system of 256 KiB, where the kernel lets us mount one. 77: it does not. */
static int on_small_tmpfs(const char *root, int id)
{
    nb_error e = {0};
    nb_store *s;
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (mount("tmpfs", root, "tmpfs", 0, "size=256k") != 0) return 77;
    if (nb_store_open(&s, root, &e) || publish(s, "same", "first", &e)) return complain(&e, 21);
    int rc = import_too_much(root, id);
    nb_name n = name_of("same");
    if (!rc && nb_store_verify(s, &n, NULL, NULL, &e)) rc = complain(&e, 22);
    nb_store_close(s);
    return rc;
}

static void full_file_system(void **state)
{
    for (int id = 0; id < 2; id++) {
        int rc = finish(start(on_small_tmpfs, *state, id));
        if (rc == 77)
            print_message("store: no tmpfs may be mounted here, skipped\n");
        else
            assert_int_equal(rc, 0);
    }
}

/* ---- killed importers ---- */

static int import_until_killed(const char *root, int id)
{
    nb_error e = {0};
    for (int i = 0;; i++) {
        nb_store *s;
        int lock;
        char tag[40];
        snprintf(tag, sizeof tag, "%d of %d", i, id);
        nb_blob_writer *w;
        nb_blob_ref ref;
        static char chunk[4096];
        if (nb_store_open(&s, root, &e) || nb_store_lock_shared(s, &lock, &e) || nb_blob_begin(s, &w, 0, &e))
            return complain(&e, 1);
        for (int k = 0; k < 1500; k++) { /* a large blob, so that many die in the middle of one */
            if (nb_blob_write(w, chunk, sizeof chunk, &e)) return complain(&e, 2);
        }
        if (nb_blob_finish(w, &ref, &e) || publish(s, "same", tag, &e)) return complain(&e, 3);
        nb_store_unlock(lock);
        nb_store_close(s);
    }
}

static void a_killed_importer_leaves_a_whole_model(void **state)
{
    const char *root = *state;
    nb_error e;
    nb_store *s = open_at(root);
    nb_name n = name_of("same");
    assert_int_equal(publish(s, "same", "first", &e), NB_OK);
    for (int i = 0; i < 12; i++) {
        pid_t pid = start(import_until_killed, root, i);
        usleep((unsigned)(3000 + 1700 * i));
        kill(pid, SIGKILL);
        assert_int_equal(finish(pid), 128 + SIGKILL);
        assert_int_equal(nb_store_verify(s, &n, NULL, NULL, &e), NB_OK);
    }
    /* What lies in tmp goes once it is old; its locks died with it. */
    DIR *d = opendir(sub(root, "tmp"));
    assert_non_null(d);
    int left = 0;
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        char rest[300];
        if (entry->d_name[0] == '.') continue;
        snprintf(rest, sizeof rest, "tmp/%s", entry->d_name);
        make_old(sub(root, rest));
        left++;
    }
    closedir(d);
    uint64_t freed;
    assert_int_equal(nb_store_gc(s, 0, &freed, &e), NB_OK);
    assert_int_equal(entries(sub(root, "tmp")), 0);
    assert_int_equal(entries(sub(root, "blobs")), 5);
    print_message("store: 12 importers killed, %d temporary files collected\n", left);
    nb_store_close(s);
    check_whole(root);
}

/* ---- threads of one importer ---- */

typedef struct writer {
    nb_store *s;
    int id, failed;
} writer;

static void *write_blobs(void *p)
{
    writer *w = p;
    for (int i = 0; i < 60; i++) {
        nb_blob_ref ref;
        nb_error e;
        char text[40];
        snprintf(text, sizeof text, "blob %d",
                 i % 2 ? i : i * 1000 + 100 + w->id); /* every other one is written by all threads */
        if (nb_blob_put(w->s, text, strlen(text), &ref, &e)) w->failed++;
        if (i % 16 == 0 && nb_store_sync(w->s, &e)) w->failed++;
    }
    return NULL;
}

static void threads_share_a_handle(void **state)
{
    const char *root = *state;
    nb_store *s = open_at(root);
    pthread_t t[4];
    writer w[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (writer){s, i, 0};
        assert_int_equal(pthread_create(&t[i], NULL, write_blobs, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        assert_int_equal(w[i].failed, 0);
    }
    assert_int_equal(entries(sub(root, "blobs")), 30 + 4 * 30);
    assert_int_equal(entries(sub(root, "tmp")), 0);
    nb_store_close(s);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, folder_up, folder_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(two_importers_of_one_name_leave_one_whole_model),
        CASE(removal_and_collection_beside_importers),
        CASE(full_disk_leaves_the_old_model),
        CASE(full_file_system),
        CASE(threads_share_a_handle),
        CASE(a_killed_importer_leaves_a_whole_model),
    };
    return cmocka_run_group_tests_name("store under pressure", tests, NULL, NULL);
}
