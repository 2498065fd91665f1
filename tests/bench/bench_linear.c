/* bench_linear: the product kernels beside what the machine can do at most, measured in the same rounds.
 *
 *   bench_linear [-m MIB=1024] [-k K=2048] [-t THREADS=1] [-r ROUNDS=5] [-M ROWS=1] [-T TIER] [FORMAT ...]
 *
 * Few rows of x: GB/s of weight bytes, walking over MIB of weights, and the share of a plain read of the same bytes. 32 rows and more: Gop/s of a product
 * that is repeated in cache, and the share of a loop of 512-bit (avx2: 256-bit) FMAs between registers. Times are CPU times of the slowest thread, so that other
 * programs on the machine count only where they take bandwidth or clock. Before anything is timed the kernel's results are compared with plain C.
 */
#include "cpu/linear.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_THREADS = 64, MAX_ROUNDS = 100, CALL_ROWS = 5632 /* rows of the matrices that a walk pretends */ };

typedef struct bench {
    uint8_t *weights;
    size_t bytes;
    int64_t k;
    int threads, rounds, rows;
    void *x;
    float *y;
    void *scratch[MAX_THREADS];
} bench;

typedef struct work {
    const bench *b;
    int lane;
    enum { READ, FMA512, FMA256, PRODUCT } what;
    nb_linear_fn *fn;
    nb_linear_job job;
    int64_t tiles;   /* PRODUCT: of the whole walk */
    int repeat;      /* PRODUCT in cache; FMA loops: millions */
    double seconds;
} work;

static pthread_barrier_t gate;
static volatile float float_sink;
static volatile uint64_t sink;

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Four streams side by side with prefetch, as the kernels read: on small pages one stream alone stops at each border. */
__attribute__((target("avx2"))) static void read_all(const uint8_t *p, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a;
    const size_t part = n / 4 / 64 * 64;
    for (size_t i = 0; i < part; i += 64)
        for (int way = 0; way < 4; way++) {
            const uint8_t *q = p + (size_t)way * part + i;
            _mm_prefetch((const char *)q + 1024, _MM_HINT_T1);
            a = _mm256_add_epi64(a, _mm256_load_si256((const __m256i *)(const void *)q));
            b = _mm256_add_epi64(b, _mm256_load_si256((const __m256i *)(const void *)(q + 32)));
        }
    sink += (uint64_t)_mm256_extract_epi64(_mm256_add_epi64(a, b), 0);
}

#define FMA_LOOP(name, isa, vec, set1, fma)                             \
    __attribute__((target(isa))) static void name(int millions)         \
    {                                                                   \
        vec c[12], a = set1(0.999f), b = set1(1e-3f);                   \
        for (int i = 0; i < 12; i++) c[i] = set1((float)i);             \
        for (long r = 0; r < millions * 1000000L; r++) {                \
            _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) c[i] = fma(c[i], a, b); \
            __asm__ volatile("" : "+v"(a));                             \
        }                                                               \
        for (int i = 0; i < 12; i++) float_sink += ((float *)&c[i])[0]; \
    }
FMA_LOOP(fma512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps)
FMA_LOOP(fma256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps)

static void *lane_run(void *arg)
{
    work *w = arg;
    const bench *b = w->b;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(w->lane, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
    _mm_setcsr(0x9fc0);
    pthread_barrier_wait(&gate);
    double start = cpu_seconds();
    size_t part = b->bytes / (size_t)b->threads / 4096 * 4096;
    int64_t t0 = w->tiles * w->lane / b->threads, t1 = w->tiles * (w->lane + 1) / b->threads, step = CALL_ROWS / NB_TILE / b->threads;
    switch (w->what) {
    case READ: read_all(b->weights + part * (size_t)w->lane, part); break;
    case FMA512: fma512(w->repeat); break;
    case FMA256: fma256(w->repeat); break;
    case PRODUCT:
        if (w->repeat) step = t1 - t0;
        for (int i = 0; i < (w->repeat ? w->repeat : 1); i++)
            for (int64_t t = t0; t < t1; t += step) w->fn(&w->job, t, t + step < t1 ? t + step : t1, b->scratch[w->lane]);
        break;
    }
    w->seconds = cpu_seconds() - start;
    return NULL;
}

static double slowest(const bench *b, const work *what)
{
    pthread_t id[MAX_THREADS];
    work w[MAX_THREADS];
    double worst = 0;
    pthread_barrier_init(&gate, NULL, (unsigned)b->threads);
    for (int i = 0; i < b->threads; i++) {
        w[i] = *what;
        w[i].b = b;
        w[i].lane = i;
        pthread_create(&id[i], NULL, lane_run, &w[i]);
    }
    for (int i = 0; i < b->threads; i++) {
        pthread_join(id[i], NULL);
        if (w[i].seconds > worst) worst = w[i].seconds;
    }
    pthread_barrier_destroy(&gate);
    return worst;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

static bool agrees(const bench *b, const work *w, nb_linear_fn *plain, size_t scratch)
{
    int64_t tiles = w->tiles < 9 ? w->tiles : 9;
    void *s = aligned_alloc(4096, NB_ALIGN_UP(scratch, 4096));
    float *y = malloc((size_t)tiles * NB_TILE * (size_t)b->rows * 4);
    nb_linear_job j = w->job;
    j.n = tiles * NB_TILE;
    w->fn(&j, 0, tiles, b->scratch[0]);
    size_t stride = j.y_stride, differ = 0;
    j.y = y;
    j.y_stride = (size_t)j.n;
    plain(&j, 0, tiles, s);
    for (int i = 0; i < b->rows; i++)
        for (int64_t n = 0; n < j.n; n++) {
            float p = y[i * j.n + n], q = b->y[(size_t)i * stride + (size_t)n];
            differ += nb_bits_f32(p) != nb_bits_f32(q) && !(p != p && q != q);
        }
    free(s), free(y);
    return differ == 0;
}

static void measure(bench *b, const char *tier, const nb_kernels *k, const nb_kernels *plain, nb_qtype type)
{
    size_t tile;
    char name[32];
    nb_qtype_name(type, name);
    if (!nb_rows16_tile_bytes(type, b->k, &tile)) return;
    bool many = b->rows >= 32;
    int64_t tiles = many ? 2048 / NB_TILE : (int64_t)(b->bytes / tile);
    size_t blocks = (size_t)(tiles * NB_TILE / 128 + 1) * (size_t)(b->k / 128 + 1);
    float *ones = malloc(blocks * 4);
    for (size_t i = 0; i < blocks; i++) ones[i] = 1;
    work w = {.what = PRODUCT, .fn = k->linear[type.format][0], .tiles = tiles, .repeat = many ? 1 + 1024 / b->rows : 0,
        .job = {.data = b->weights, .type = type, .n = tiles * NB_TILE, .k = b->k, .tile_bytes = tile, .x = b->x, .x_stride = (size_t)b->k * 2, .rows = b->rows, .y = b->y,
            .y_stride = (size_t)tiles * NB_TILE, .multiplier = 1, .block_scale = ones}};
    for (int i = 0; i < b->threads; i++) b->scratch[i] = aligned_alloc(4096, NB_ALIGN_UP(k->linear_scratch(b->k, b->rows), 4096));
    bool good = agrees(b, &w, plain->linear[type.format][0], plain->linear_scratch(b->k, b->rows));
    work limit = {.what = !many ? READ : tier[3] == '5' ? FMA512 : FMA256, .repeat = 5};
    double rate[MAX_ROUNDS], top[MAX_ROUNDS], share[MAX_ROUNDS], ops = 2.0 * (double)tiles * NB_TILE * (double)b->k * b->rows * (many ? w.repeat : 1);
    for (int r = 0; r < b->rounds; r++) {
        double before = slowest(b, &limit), t = slowest(b, &w), after = slowest(b, &limit), l = (before + after) / 2;
        top[r] = (many ? 2.0 * 12 * (limit.what == FMA512 ? 16 : 8) * 5e6 * b->threads : (double)b->bytes) / l / 1e9;
        rate[r] = (many ? ops : (double)tiles * (double)tile) / t / 1e9;
        share[r] = rate[r] / top[r];
    }
    double best = 0;
    for (int r = 0; r < b->rounds; r++) best = share[r] > best ? share[r] : best;
    printf("%-7s %-10s rows %4d, %d threads: %7.1f %s of %7.1f, share %.2f (best %.2f)%s\n", tier, name, b->rows, b->threads, median(rate, b->rounds), many ? "Gop/s" : "GB/s", median(top, b->rounds),
        median(share, b->rounds), best, good ? "" : "  RESULTS DIFFER FROM PLAIN C");
    fflush(stdout);
    for (int i = 0; i < b->threads; i++) free(b->scratch[i]);
    free(ones);
}

static void fill(uint8_t *p, size_t n)
{
    uint64_t s = 88172645463325252u;
    for (size_t i = 0; i + 8 <= n; i += 8) {
        s ^= s << 13, s ^= s >> 7, s ^= s << 17;
        nb_store_u64(p + i, s & 0x3f3f3f3f3f3f3f3fu);
    }
}

static int usage(void)
{
    fprintf(stderr, "usage: bench_linear [-m MIB] [-k K] [-t THREADS] [-r ROUNDS] [-M ROWS] [-T TIER] [-H] [FORMAT ...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    bench b = {.bytes = (size_t)1024 << 20, .k = 2048, .threads = 1, .rounds = 5, .rows = 1};
    const char *only = NULL;
    bool huge = false;
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (argv[i][1] == 'H') {
            huge = true;
            continue;
        }
        if (i + 1 == argc) return usage();
        long v = atol(argv[i + 1]);
        switch (argv[i++][1]) {
        case 'm': b.bytes = (size_t)v << 20; break;
        case 'k': b.k = v; break;
        case 't': b.threads = (int)v; break;
        case 'r': b.rounds = (int)v; break;
        case 'M': b.rows = (int)v; break;
        case 'T': only = argv[i]; break;
        default: return usage();
        }
    }
    if (b.threads < 1 || b.threads > MAX_THREADS || b.rounds < 1 || b.rounds > MAX_ROUNDS || b.rows < 1 || b.k < 128 || b.k % 128 || b.bytes < (size_t)1 << 20) return usage();
    b.weights = mmap(NULL, b.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.weights == MAP_FAILED) return 1;
    madvise(b.weights, b.bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    fill(b.weights, b.bytes);
    b.x = aligned_alloc(64, (size_t)b.rows * (size_t)b.k * 2);
    for (int64_t e = 0; e < b.rows * b.k; e++) ((uint16_t *)b.x)[e] = nb_bf16_encode((float)((e * 7919) % 2003 - 1001) * 1e-3f);
    b.y = malloc(b.bytes / (size_t)(b.k / 8) * 4 * (size_t)(b.rows < 32 ? b.rows : 1) + (size_t)2048 * (size_t)b.rows * 4);

    nb_kernels plain, tiers[2];
    memset(&plain, 0, sizeof plain);
    nb_linear_plain(&plain);
    tiers[0] = plain;
    nb_linear_avx2(&tiers[0]);
    tiers[1] = tiers[0];
    nb_linear_avx512(&tiers[1]);
    bool has512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vbmi");
    printf("%zu MiB of weights%s, K %d, %d rounds; CPU time of the slowest thread\n", b.bytes >> 20, huge ? " on huge pages" : "", (int)b.k, b.rounds);
    const char *all[] = {"nvfp4", "mxfp4", "mxfp8", "bf16", "int4:g32", "int4", "int8"};
    const char **list = i < argc ? (const char **)(argv + i) : all;
    int n = i < argc ? argc - i : (int)NB_COUNT(all);
    for (int f = 0; f < n; f++) {
        nb_qtype q;
        nb_error err;
        if (nb_qtype_parse(&q, list[f], &err) != NB_OK) {
            fprintf(stderr, "bench_linear: %s\n", err.text);
            return 2;
        }
        if (has512 && (!only || !strcmp(only, "avx512"))) measure(&b, "avx512", &tiers[1], &plain, q);
        if (!only || !strcmp(only, "avx2")) measure(&b, "avx2", &tiers[0], &plain, q);
    }
    return 0;
}
