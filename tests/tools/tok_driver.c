/* tok_driver: runs a tokenizer for scripts.
 *
 *   tok_driver ids TOKENIZER [special]     stdin: u32 length and bytes, again and again; stdout: the ids of each, one line each
 *   tok_driver raw TOKENIZER               the same without added tokens
 *   tok_driver time TOKENIZER              the same as ids, before each line the nanoseconds that encoding took; answers at once
 *   tok_driver decode TOKENIZER [skip]     stdin: lines of ids; stdout: u32 length and bytes
 *   tok_driver save TOKENIZER OUT          the prepared form
 *   tok_driver bench TOKENIZER FILE [N]    best of N encodings of FILE, loading times, size of the prepared form
 *
 * TOKENIZER: tokenizer.json, tokenizer.model or gguf_tokenizer.json. */
#include "base/file.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Processor time of this thread: other programs on the machine do not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static nb_tokenizer *load(const char *path)
{
    nb_buf b = {0};
    nb_error err = {0};
    nb_tokenizer *t = NULL;
    nb_status st = nb_file_read(&b, path, UINT64_MAX, &err);
    nb_str name = nb_str_of(path);
    if (!st && nb_str_ends(name, ".model")) st = nb_tokenizer_from_spm(&t, b.p, b.n, NULL, &err);
    else if (!st && nb_str_ends(name, "gguf_tokenizer.json")) st = nb_tokenizer_from_gguf(&t, b.p, b.n, &err);
    else if (!st) st = nb_tokenizer_from_json(&t, b.p, b.n, NULL, &err);
    if (st) fprintf(stderr, "%s: %s\n", path, err.text);
    nb_buf_free(&b);
    return t;
}

static int ids(const nb_tokenizer *t, int flags, bool timed)
{
    uint32_t n;
    nb_buf b = {0};
    nb_ids v = {0};
    nb_error err = {0};
    while (fread(&n, 4, 1, stdin) == 1) {
        b.n = 0;
        if (!nb_buf_reserve(&b, n) || fread(b.p, 1, n, stdin) != n) return 1;
        v.n = 0;
        uint64_t from = cpu_ns();
        if (nb_tokenizer_encode(t, (nb_str){b.p, n}, flags, &v, &err)) {
            printf("error %s\n", err.text);
            continue;
        }
        if (timed) printf("%llu ", (unsigned long long)(cpu_ns() - from));
        for (size_t i = 0; i < v.n; i++) printf(i ? " %d" : "%d", v.id[i]);
        putchar('\n');
        if (timed) fflush(stdout);
    }
    nb_ids_free(&v);
    nb_buf_free(&b);
    return 0;
}

static int decode(const nb_tokenizer *t, bool skip)
{
    char *line = NULL;
    size_t cap = 0;
    nb_ids v = {0};
    nb_buf out = {0};
    while (getline(&line, &cap, stdin) > 0) {
        v.n = out.n = 0;
        for (char *p = line, *end;; p = end) {
            long id = strtol(p, &end, 10);
            if (end == p) break;
            nb_ids_push(&v, (int32_t)id);
        }
        if (nb_tokenizer_decode(t, v.id, v.n, skip, &out, NULL)) return 1;
        uint32_t n = (uint32_t)out.n;
        fwrite(&n, 4, 1, stdout);
        fwrite(out.p, 1, n, stdout);
    }
    free(line);
    nb_ids_free(&v);
    nb_buf_free(&out);
    return 0;
}

static int bench(const char *path, const char *file, int rounds)
{
    nb_buf source = {0}, text = {0}, saved = {0};
    nb_ids v = {0};
    nb_error err = {0};
    nb_tokenizer *t = NULL;
    uint64_t best = UINT64_MAX, load_ns = UINT64_MAX, open_ns = UINT64_MAX;
    if (nb_file_read(&source, path, UINT64_MAX, &err) || nb_file_read(&text, file, UINT64_MAX, &err)) return 1;
    for (int i = 0; i < 3; i++) {
        nb_tokenizer_free(t);
        uint64_t from = cpu_ns();
        t = load(path);
        uint64_t ns = cpu_ns() - from;
        if (!t) return 1;
        if (ns < load_ns) load_ns = ns;
    }
    char key[65];
    memset(key, 'a', 64), key[64] = 0;
    if (nb_tokenizer_save(t, &saved, key, &err)) return 1;
    nb_tokenizer_free(t);
    char name[] = "/tmp/nb-tok-XXXXXX";
    int fd = mkstemp(name);
    if (fd < 0 || nb_write_full(fd, saved.p, saved.n, name, &err)) return 1;
    nb_mapped map;
    for (int i = 0; i < 5; i++) {
        uint64_t from = cpu_ns();
        if (nb_file_map(&map, name, UINT64_MAX, &err) || nb_tokenizer_open(&t, map.p, map.n, key, &err)) return 1;
        uint64_t ns = cpu_ns() - from;
        if (ns < open_ns) open_ns = ns;
        if (i == 4) break;
        nb_tokenizer_free(t);
        nb_file_unmap(&map);
    }
    remove(name);
    for (int i = 0; i < rounds; i++) {
        v.n = 0;
        uint64_t from = cpu_ns();
        if (nb_tokenizer_encode(t, nb_buf_str(&text), NB_ENC_PARSE_ADDED, &v, &err)) {
            fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        uint64_t ns = cpu_ns() - from;
        if (ns < best) best = ns;
    }
    printf("load %.1f ms, open %.2f ms, prepared %.1f MB, %zu tokens, %.1f MB/s\n", (double)load_ns / 1e6, (double)open_ns / 1e6, (double)saved.n / 1e6, v.n,
           (double)text.n * 1e3 / (double)best);
    nb_tokenizer_free(t);
    nb_file_unmap(&map);
    nb_ids_free(&v);
    nb_buf_free(&source), nb_buf_free(&text), nb_buf_free(&saved);
    return 0;
}

static int save(const nb_tokenizer *t, const char *path)
{
    char key[65];
    nb_buf b = {0};
    memset(key, '0', 64), key[64] = 0;
    int rc = nb_tokenizer_save(t, &b, key, NULL) || nb_file_write_atomic(path, b.p, b.n, NULL);
    nb_buf_free(&b);
    return rc;
}

int main(int argc, char **argv)
{
    nb_tokenizer *t;
    if (argc >= 4 && !strcmp(argv[1], "bench")) return bench(argv[2], argv[3], argc > 4 ? atoi(argv[4]) : 5);
    if (argc < 3 || !(t = load(argv[2]))) {
        fprintf(stderr, "usage: tok_driver ids|raw|time|decode TOKENIZER [special], tok_driver bench TOKENIZER FILE [N]\n");
        return 2;
    }
    int rc = !strcmp(argv[1], "save") ? save(t, argv[argc - 1]) : !strcmp(argv[1], "decode") ? decode(t, argc > 3)
                                        : ids(t, !strcmp(argv[1], "raw") ? 0 : NB_ENC_PARSE_ADDED | (argc > 3 ? NB_ENC_SPECIALS : 0), !strcmp(argv[1], "time"));
    nb_tokenizer_free(t);
    return rc;
}
