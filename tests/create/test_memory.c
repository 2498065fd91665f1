/* The memory of an import does not grow with its tensors (specs/create.md 7.2): checkpoints of 128 MiB and more in one
 * tensor go through a process that may hold a fraction of it. The files are holes, so they take no room. */
#include "create/fixture.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || __has_feature(address_sanitizer) ||               \
    __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED true
#else
#define SANITIZED false
#endif

enum { MIB = 1 << 20, BOUND = 64, TOO_LITTLE = 6 }; /* MiB beyond what the process has before */

/* The header of what fx_add was told, and behind it nothing but a length. */
static void save_hole(fx *x)
{
    nb_buf b = {0};
    char path[400];
    uint64_t total;
    snprintf(path, sizeof path, "%s/model.safetensors", x->src);
    fx_ok(x, nb_st_header(&b, x->outs, x->n, NULL, 0, 8, &total, NULL, &x->err));
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b.p, b.n), (ssize_t)b.n);
    assert_int_equal(ftruncate(fd, (off_t)total), 0);
    close(fd);
    nb_buf_free(&b);
}

static void hole(fx *x, const char *name, nb_dtype dt, int rank, int64_t a, int64_t b, int64_t c)
{
    x->outs[x->n++] = (nb_st_out){.name = nb_str_of(name), .dtype = dt, .rank = (uint8_t)rank, .dim = {a, b, c}};
}

/* Bytes of writable private memory that the process has. */
static rlim_t data_bytes(void)
{
    char line[200];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmData: %llu kB", &kib) == 1) break;
    if (f) fclose(f);
    return (rlim_t)kib * 1024;
}

/* The import in a process of its own, with so many MiB. */
static nb_status within(fx *x, const char *type, nb_layout layout, int mib)
{
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct rlimit l = {data_bytes() + (rlim_t)mib * MIB, RLIM_INFINITY};
        nb_create_options o = fx_options(x);
        o.layout = layout;
        o.threads = 2;
        if (nb_create_parse_request(&o, type, &x->err) != NB_OK || setrlimit(RLIMIT_DATA, &l) != 0) _exit(100);
        nb_status st = fx_run(x, &o);
        if (st != NB_OK && mib == BOUND) print_error("%s\n", x->err.text);
        _exit((int)st);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return (nb_status)WEXITSTATUS(status);
}

static void large_tensors(void **state)
{
    (void)state;
    if (SANITIZED) {
        print_message("skipped: the sanitizer's own memory would count\n");
        return;
    }
    static const struct {
        const char *type;
        int shape; /* 0: one float matrix, 1: one that is quantised already, 2: a bank in two tensors */
        nb_layout layout;
    } rows[] = {{"none", 0, NB_LAYOUT_ROWS16},   {"nvfp4", 0, NB_LAYOUT_ROWS16},  {"nvfp4", 0, NB_LAYOUT_STANDARD},
                {"int4", 0, NB_LAYOUT_STANDARD}, {"none", 1, NB_LAYOUT_STANDARD}, {"none", 1, NB_LAYOUT_ROWS16},
                {"none", 2, NB_LAYOUT_ROWS16},   {"nvfp4", 2, NB_LAYOUT_STANDARD}};
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        fx_plain_config(x, "");
        if (rows[i].shape == 0) {
            hole(x, "layers.0.q_proj.weight", NB_DT_BF16, 2, 16384, 4096, 0);
        } else if (rows[i].shape == 1) {
            hole(x, "layers.0.q_proj.weight", NB_DT_U8, 2, 32768, 4096, 0);
            hole(x, "layers.0.q_proj.weight_scale", NB_DT_F8_E4M3, 2, 32768, 512, 0);
            hole(x, "layers.0.q_proj.weight_scale_2", NB_DT_F32, 0, 0, 0, 0);
        } else {
            hole(x, "model.layers.0.mlp.experts.gate_up_proj", NB_DT_BF16, 3, 16, 4096, 1024);
            hole(x, "model.layers.0.mlp.experts.down_proj", NB_DT_BF16, 3, 16, 1024, 2048);
        }
        save_hole(x);
        nb_status st = within(x, rows[i].type, rows[i].layout, BOUND);
        if (st != NB_OK) fail_msg("row %zu, %s: status %d", i, rows[i].type, (int)st);
        if (i == 1) /* the limit is one */
            assert_int_equal(within(x, rows[i].type, rows[i].layout, TOO_LITTLE), NB_E_NO_MEMORY);
        fx_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_tensors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
