/* bench_tokenizer: how fast tokenizers turn text into ids, and how slow hostile text makes them.
 *
 *   bench_tokenizer [-r ROUNDS=3] [-m MB=2] [-o NAME] [-v] FOLDER [TEXT ...]
 *
 * Takes every tokenizer.json, tokenizer.json.xz and tokenizer.model of FOLDER and of the folders in it. MB/s of processor time, the best of ROUNDS, for
 * each TEXT (prose, code; cut or repeated to MB megabytes) and for made texts of 300 kB that make careless tokenizers quadratic: the slowest one and its
 * name, with -v all of them. -o: only the folder of this name.
 */
#include "../text/tok_hostile.h"
#include "base/file.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MAX_TEXTS = 16 };

typedef struct bench {
    int rounds;
    size_t bytes;
    const char *only;
    bool all;
    nb_buf text[MAX_TEXTS];
    int texts;
    size_t seen, slow; /* tokenizers; those below 2 MB/s somewhere */
} bench;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- measuring ---- */

static double speed(const bench *b, const nb_tokenizer *t, nb_str text)
{
    double best = 1e9;
    nb_ids v = {0};
    for (int i = 0; i < b->rounds; i++) {
        nb_error err = {0};
        v.n = 0;
        double from = cpu_seconds();
        if (nb_tokenizer_encode(t, text, NB_ENC_PARSE_ADDED, &v, &err)) {
            fprintf(stderr, "%s\n", err.text);
            best = 0;
            break;
        }
        double s = cpu_seconds() - from;
        if (s < best) best = s;
    }
    nb_ids_free(&v);
    return best > 0 ? (double)text.n / best / 1e6 : 0;
}

static void measure(bench *b, const nb_tokenizer *t, const char *name)
{
    nb_buf h = {0};
    double worst = 1e9;
    const char *which = "";
    printf("%-24s", name);
    for (int i = 0; i < b->texts; i++) printf(" %7.1f", speed(b, t, nb_buf_str(&b->text[i])));
    for (size_t k = 0; k < NB_COUNT(hostile_kinds); k++) {
        hostile_text(&h, k, t);
        if (!h.n) continue;
        double s = speed(b, t, nb_buf_str(&h));
        if (b->all) printf("  %s %.1f", hostile_kinds[k], s);
        if (s < worst) worst = s, which = hostile_kinds[k];
    }
    printf("  worst %.1f (%s)\n", worst, which);
    fflush(stdout);
    b->seen++;
    b->slow += worst < 2;
    nb_buf_free(&h);
}

static bool read_any(nb_buf *out, const char *dir, const char *file)
{
    char path[4400], command[4500];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    if (nb_path_exists(path)) return nb_file_read(out, path, UINT64_MAX, NULL) == NB_OK;
    snprintf(path, sizeof path, "%s/%s.xz", dir, file);
    if (!nb_path_exists(path) || strchr(path, '\'')) return false;
    snprintf(command, sizeof command, "xz -dc '%s'", path);
    FILE *f = popen(command, "r");
    static char block[1 << 16];
    for (size_t n; f && (n = fread(block, 1, sizeof block, f)) > 0;) nb_buf_add(out, block, n);
    return f && pclose(f) == 0 && !out->oom;
}

static void folder(bench *b, const char *dir, const char *name, int depth)
{
    nb_buf s = {0};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    nb_status st = NB_OK;
    struct dirent **list;
    int n = depth < 3 ? scandir(dir, &list, NULL, alphasort) : -1;
    if (b->only && strcmp(b->only, name)) s.n = 0;
    else if (read_any(&s, dir, "tokenizer.json")) st = nb_tokenizer_from_json(&t, s.p, s.n, NULL, &err);
    else if (read_any(&s, dir, "tokenizer.model")) st = nb_tokenizer_from_spm(&t, s.p, s.n, NULL, &err);
    if (st) fprintf(stderr, "%s: %s\n", dir, err.text);
    if (t) measure(b, t, name);
    nb_tokenizer_free(t);
    nb_buf_free(&s);
    for (int i = 0; i < n; i++) {
        char path[4096];
        int k = snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        if (list[i]->d_name[0] != '.' && k > 0 && (size_t)k < sizeof path && nb_path_is_dir(path)) folder(b, path, list[i]->d_name, depth + 1);
        free(list[i]);
    }
    if (n >= 0) free(list);
}

/* The file, cut to a character border or repeated. */
static bool take_text(bench *b, const char *path)
{
    nb_buf file = {0}, *out = &b->text[b->texts];
    nb_error err = {0};
    if (b->texts == MAX_TEXTS || nb_file_read(&file, path, UINT64_MAX, &err) || !file.n) {
        fprintf(stderr, "bench_tokenizer: %s\n", err.text[0] ? err.text : "no text");
        return false;
    }
    while (out->n < b->bytes && !out->oom) nb_buf_add(out, file.p, file.n < b->bytes - out->n ? file.n : b->bytes - out->n);
    out->n = nb_utf8_valid_prefix(out->p, out->n);
    nb_buf_free(&file);
    b->texts++;
    return out->n > 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_tokenizer [-r ROUNDS] [-m MB] [-o NAME] [-v] FOLDER [TEXT ...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    bench b = {.rounds = 3, .bytes = 2000000};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (argv[i][1] == 'v') {
            b.all = true;
            continue;
        }
        if (i + 1 == argc) return usage();
        switch (argv[i++][1]) {
        case 'r': b.rounds = atoi(argv[i]); break;
        case 'm': b.bytes = (size_t)(atof(argv[i]) * 1e6); break;
        case 'o': b.only = argv[i]; break;
        default: return usage();
        }
    }
    if (i == argc || b.rounds < 1 || b.bytes < 1) return usage();
    const char *root = argv[i++];
    for (; i < argc; i++)
        if (!take_text(&b, argv[i])) return 1;
    printf("MB/s of processor time, one thread, best of %d\n", b.rounds);
    const char *slash = strrchr(root, '/');
    folder(&b, root, slash && slash[1] ? slash + 1 : root, 0);
    printf("%zu tokenizers, %zu below 2 MB/s on a hostile text\n", b.seen, b.slow);
    for (int k = 0; k < b.texts; k++) nb_buf_free(&b.text[k]);
    return b.seen && !b.slow ? 0 : 1;
}
