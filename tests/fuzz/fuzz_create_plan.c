/* config.json and a safetensors header together: whatever they say, a plan (and a small import) must end in a status,
 * and never read outside the file. Input, separated by 0xFF: config.json, the header's JSON, and, if there is more, the
 * same two of a draft, its tokenizer.json, and the model's. A data section is as long as its offsets ask for, up to 64
 * KiB. */
#include "create/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { CONFIG, HEADER, DRAFT_CONFIG, DRAFT_HEADER, DRAFT_TOKENS, TOKENS, N_PARTS };
static const char *const names[N_PARTS] = {"config.json",          "model.safetensors",
                                           "draft/config.json",    "draft/model.safetensors",
                                           "draft/tokenizer.json", "tokenizer.json"};
static char dir[64], path[N_PARTS][96], draft[96], root[96];

/* The largest number in the header that could be an end offset. */
static size_t data_bytes(const uint8_t *p, size_t n)
{
    size_t best = 0, v = 0;
    for (size_t i = 0; i < n; i++) {
        v = p[i] >= '0' && p[i] <= '9' ? v * 10 + (size_t)(p[i] - '0') : 0;
        if (v > best && v <= 65536) best = v;
    }
    return best;
}

/* A part as its file; headers with their length before them and zeros behind. */
static void write_part(int i, const uint8_t *p, size_t n)
{
    FILE *f = fopen(path[i], "wb");
    uint8_t length[8];
    bool header = i == HEADER || i == DRAFT_HEADER;
    if (!f) return;
    nb_store_u64(length, n);
    if (header) fwrite(length, 1, 8, f);
    fwrite(p, 1, n, f);
    fflush(f);
    if (header && ftruncate(fileno(f), (off_t)(8 + n + data_bytes(p, n))) != 0) perror(path[i]);
    fclose(f);
}

static void write_parts(const uint8_t *p, size_t n)
{
    const uint8_t *end = p + n;
    for (int i = 0; i < N_PARTS; i++) unlink(path[i]);
    rmdir(draft);
    for (int i = 0; i < N_PARTS; i++) {
        const uint8_t *stop = p < end ? memchr(p, 0xff, (size_t)(end - p)) : NULL;
        if (i == DRAFT_CONFIG && mkdir(draft, 0755) != 0) perror(draft);
        write_part(i, p, (size_t)((stop ? stop : end) - p));
        if (!stop && i >= HEADER) return; /* a header is always there */
        p = stop ? stop + 1 : end;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%s/nibble-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        if (!mkdtemp(dir)) abort();
        for (int i = 0; i < N_PARTS; i++) snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
        snprintf(draft, sizeof draft, "%s/draft", dir);
        snprintf(root, sizeof root, "%s/store", dir);
    }
    write_parts(p, n);
    nb_store *s;
    nb_error err;
    if (nb_store_open(&s, root, &err) != NB_OK) return 0;
    bool stored = false;
    for (int i = 0; i < 2; i++) {
        nb_create_options o;
        nb_create_report r;
        nb_create_defaults(&o);
        o.name = "fuzz";
        o.source = dir;
        o.force = o.permissive = o.allow_requantize = true;
        o.keep_kv_scales = o.dry_run = i == 0;
        o.deep = i == 1;
        o.threads = 1;
        o.layout = i ? NB_LAYOUT_STANDARD : NB_LAYOUT_ROWS16;
        nb_status st = nb_create(s, &o, &r, &err);
        uint64_t bytes = r.bytes;
        nb_create_report_free(&r);
        stored = i == 1 && st == NB_OK;
        if (st != NB_OK || bytes > 65536 || n % 16) break; /* some small plans are carried out as well */
    }
    nb_name name;
    if (stored && nb_name_parse(&name, "fuzz", &err) == NB_OK) nb_store_rm(s, &name, NULL, NULL);
    nb_store_close(s);
    return 0;
}
