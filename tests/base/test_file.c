/* base/file: mapping, reading, atomic writing, folders. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/nb_file_XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static int set_up(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    char cmd[300];
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", dir);
    return system(cmd);
}

static int entries(void)
{
    char cmd[300];
    int n = -1;
    snprintf(cmd, sizeof cmd, "ls -A '%s' | wc -l", dir);
    FILE *f = popen(cmd, "r");
    if (!f || fscanf(f, "%d", &n) != 1) n = -1;
    if (f) pclose(f);
    return n;
}

static void written_files_are_read_and_mapped(void **state)
{
    (void)state;
    nb_error e;
    const char *path = in_dir("a");
    assert_int_equal(nb_file_write_atomic(path, "hello", 5, &e), NB_OK);
    assert_int_equal(nb_file_write_atomic(path, "hello you", 9, &e), NB_OK);
    nb_mapped m;
    assert_int_equal(nb_file_map(&m, path, 9, &e), NB_OK);
    assert_int_equal(m.n, 9);
    assert_memory_equal(m.p, "hello you", 9);
    nb_file_unmap(&m);
    assert_int_equal(nb_file_map(&m, path, 8, &e), NB_E_INVALID);
    assert_non_null(strstr(e.text, "9 bytes, expected 8"));
    nb_file_unmap(&m); /* after a failure too */
    nb_buf b = {0};
    nb_buf_add_cstr(&b, "> ");
    assert_int_equal(nb_file_read(&b, path, 9, &e), NB_OK);
    assert_string_equal(nb_buf_cstr(&b), "> hello you");
    assert_int_equal(nb_file_read(&b, path, 8, &e), NB_E_INVALID);
    nb_buf_free(&b);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    assert_int_equal(nb_file_write_atomic(in_dir("empty"), "", 0, &e), NB_OK);
    assert_int_equal(nb_file_map(&m, in_dir("empty"), UINT64_MAX, &e), NB_OK);
    assert_null(m.p);
    nb_file_unmap(&m);
    nb_mapped zero = {0};
    nb_file_unmap(&zero);
    assert_int_equal(fcntl(0, F_GETFD), 0); /* stdin is still open */
}

static void bad_paths_fail_by_name(void **state)
{
    (void)state;
    nb_error e;
    nb_mapped m;
    nb_buf b = {0};
    assert_int_equal(nb_file_map(&m, in_dir("absent"), UINT64_MAX, &e), NB_E_NOT_FOUND);
    assert_non_null(strstr(e.text, "absent"));
    assert_int_equal(nb_file_map(&m, dir, UINT64_MAX, &e), NB_E_INVALID);
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    assert_int_equal(nb_file_read(&b, in_dir("fifo"), 100, &e), NB_E_INVALID); /* and does not wait */
    assert_non_null(strstr(e.text, "regular"));
    assert_int_equal(nb_file_read(&b, "/dev/zero", 100, &e), NB_E_INVALID);
    assert_int_equal(nb_file_write_atomic(in_dir("no/such/folder"), "x", 1, &e), NB_E_NOT_FOUND);
    nb_buf_free(&b);
}

static void reads_are_whole_or_fail(void **state)
{
    (void)state;
    nb_error e;
    int fd;
    uint64_t size;
    char out[16];
    assert_int_equal(nb_file_write_atomic(in_dir("ten"), "0123456789", 10, &e), NB_OK);
    assert_int_equal(nb_file_open(&fd, &size, in_dir("ten"), &e), NB_OK);
    assert_int_equal(size, 10);
    assert_int_equal(nb_pread_full(fd, out, 4, 6, "ten", &e), NB_OK);
    assert_memory_equal(out, "6789", 4);
    assert_int_equal(nb_pread_full(fd, out, 5, 6, "ten", &e), NB_E_IO);
    assert_non_null(strstr(e.text, "truncated"));
    assert_int_equal(nb_pread_full(fd, out, 1, UINT64_MAX, "ten", &e), NB_E_INVALID);
    assert_int_equal(nb_pread_full(fd, out, 0, 10, "ten", &e), NB_OK);
    close(fd);
}

static void folders_are_made(void **state)
{
    (void)state;
    nb_error e;
    assert_int_equal(nb_mkdirs(in_dir("x/y/z"), &e), NB_OK);
    assert_int_equal(nb_mkdirs(in_dir("x/y/z/"), &e), NB_OK);
    assert_true(nb_path_is_dir(in_dir("x/y/z")));
    assert_true(nb_path_exists(in_dir("x")));
    assert_false(nb_path_exists(in_dir("nothing")));
    assert_int_equal(nb_file_write_atomic(in_dir("plain"), "x", 1, &e), NB_OK);
    assert_int_equal(nb_mkdirs(in_dir("plain/sub"), &e), NB_E_IO);
    assert_int_equal(nb_mkdirs(in_dir("plain"), &e), NB_E_IO);
    assert_false(nb_path_is_dir(in_dir("plain")));
    assert_int_equal(nb_mkdirs("/", &e), NB_OK);
}

/* A full disk: in a child, files may not pass 1000 bytes. The old content stays, nothing is left beside it. */
static void full_disk_keeps_the_old_file(void **state)
{
    (void)state;
    nb_error e;
    const char *path = in_dir("kept");
    assert_int_equal(nb_file_write_atomic(path, "old", 3, &e), NB_OK);
    int before = entries();
    pid_t pid = fork();
    if (pid == 0) {
        char big[5000] = {0};
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000});
        _exit(nb_file_write_atomic(path, big, sizeof big, &e) == NB_E_NO_SPACE && e.status == NB_E_NO_SPACE ? 0 : 1);
    }
    int rc = -1;
    assert_int_equal(waitpid(pid, &rc, 0), pid);
    assert_int_equal(rc, 0);
    nb_buf b = {0};
    assert_int_equal(nb_file_read(&b, path, 100, &e), NB_OK);
    assert_string_equal(nb_buf_cstr(&b), "old");
    nb_buf_free(&b);
    assert_int_equal(entries(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(written_files_are_read_and_mapped), cmocka_unit_test(bad_paths_fail_by_name),
        cmocka_unit_test(reads_are_whole_or_fail),           cmocka_unit_test(folders_are_made),
        cmocka_unit_test(full_disk_keeps_the_old_file),
    };
    return cmocka_run_group_tests_name("base file", tests, set_up, tear_down);
}
