/* config.json and a safetensors header together: whatever they say, a plan (and a small import) must end in a status,
 * and never read outside the file. Input: bytes up to the first 0xFF are config.json, what follows is the header's
 * JSON. The data section is as long as its offsets ask for, up to 64 KiB. */
#include "create/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static char dir[64], config[96], model[96], root[96];

static void write_file(const char *path, const void *a, size_t na, const void *b, size_t nb, size_t zeros)
{
    FILE *f = fopen(path, "wb");
    if (!f) return;
    fwrite(a, 1, na, f);
    fwrite(b, 1, nb, f);
    fflush(f);
    if (zeros && ftruncate(fileno(f), (off_t)(na + nb + zeros)) != 0) perror(path);
    fclose(f);
}

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

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "%s/nibble-fuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
        if (!mkdtemp(dir)) abort();
        snprintf(config, sizeof config, "%s/config.json", dir);
        snprintf(model, sizeof model, "%s/model.safetensors", dir);
        snprintf(root, sizeof root, "%s/store", dir);
    }
    const uint8_t *split = n ? memchr(p, 0xff, n) : NULL;
    size_t nc = split ? (size_t)(split - p) : n, nh = split ? n - nc - 1 : 0;
    uint8_t length[8];
    nb_store_u64(length, nh);
    write_file(config, p, nc, "", 0, 0);
    write_file(model, length, 8, split ? split + 1 : p, nh, data_bytes(split ? split + 1 : p, nh));
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
