/* The safetensors reader and writer: containers C1 to C3 of specs/create.md 9.1, shard choice of 1.3, round trips, and
 * whatever safetensors files lie in the test data. */
#include "support.h"

#include "base/file.h"
#include "format/safetensors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- SHA-256, for the digests of the specification ---- */

static uint32_t rotr(uint32_t x, int n) { return x >> n | x << (32 - n); }

/* First 32 bits of the fractional part of x^(1/root) of the i-th prime. */
static uint32_t root_bits(int i, int root)
{
    int p = 1;
    for (int n = -1; n < i;) {
        bool prime = true;
        p++;
        for (int d = 2; d * d <= p; d++) prime &= p % d != 0;
        n += prime;
    }
    long double v = root == 2 ? sqrtl(p) : cbrtl(p);
    return (uint32_t)((v - floorl(v)) * 4294967296.0L);
}

static void sha256_block(uint32_t h[8], const uint32_t k[64], const uint8_t *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++) w[i] = __builtin_bswap32(nb_load_u32(p + 4 * i));
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, h, 32);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t t1 = v[7] + (rotr(e, 6) ^ rotr(e, 11) ^ rotr(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
        uint32_t t2 = (rotr(a, 2) ^ rotr(a, 13) ^ rotr(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 28);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) h[i] += v[i];
}

static void sha256_hex(const void *data, size_t n, char out[65])
{
    uint32_t h[8], k[64];
    size_t total = (n + 9 + 63) / 64 * 64;
    uint8_t *p = calloc(1, total);
    memcpy(p, data, n);
    p[n] = 0x80;
    for (int i = 0; i < 8; i++) p[total - 1 - (size_t)i] = (uint8_t)((uint64_t)n * 8 >> (8 * i));
    for (int i = 0; i < 8; i++) h[i] = root_bits(i, 2);
    for (int i = 0; i < 64; i++) k[i] = root_bits(i, 3);
    for (size_t i = 0; i < total; i += 64) sha256_block(h, k, p + i);
    for (int i = 0; i < 8; i++) snprintf(out + 8 * i, 9, "%08x", h[i]);
    free(p);
}

/* ---- building files ---- */

typedef struct file {
    uint8_t p[16384];
    size_t n;
} file;

/* length: what the first eight bytes say; the header is text, then `data` bytes 1, 2, 3, ... */
static file *make(uint64_t length, const void *text, size_t n, size_t data)
{
    file *f = calloc(1, sizeof *f);
    nb_store_u64(f->p, length);
    memcpy(f->p + 8, text, n);
    f->n = 8 + n;
    for (size_t i = 0; i < data; i++) f->p[f->n++] = (uint8_t)(i + 1);
    return f;
}

/* Reads f from memory of exactly its size, and through a descriptor; both must agree. */
static nb_status read_both(const file *f, int flags, nb_error *err, nb_st_file *out)
{
    uint8_t *exact = malloc(f->n + 1);
    memcpy(exact, f->p, f->n);
    nb_st_file a, b;
    nb_error e2 = {0};
    nb_status st = nb_st_read_mem(&a, exact, f->n, "f", flags, err);
    char path[] = "/tmp/nbtestXXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, f->p, f->n), f->n);
    assert_int_equal(nb_st_read(&b, fd, f->n, "f", flags, &e2), st);
    if (st != NB_OK)
        assert_string_equal(err->text, e2.text);
    else
        nb_st_free(&b);
    close(fd);
    free(exact); /* nothing of the source may be needed any more */
    if (st == NB_OK && out)
        *out = a;
    else if (st == NB_OK)
        nb_st_free(&a);
    return st;
}

static void expect(file *f, int flags, const char *code)
{
    nb_error err = {0};
    nb_status st = read_both(f, flags, &err, NULL);
    if (code) {
        if (st != NB_E_INVALID || !strstr(err.text, code)) fail_msg("wanted %s, got %d '%s'", code, st, err.text);
        assert_true(strncmp(err.text, "f: ", 3) == 0);
        assert_int_equal(err.text[strlen(err.text) - 1], ')');
    } else if (st != NB_OK) {
        fail_msg("wanted a valid file, got '%s'", err.text);
    }
    free(f);
}
static void expect_text(const char *text, size_t data, const char *code)
{
    expect(make(strlen(text), text, strlen(text), data), 0, code);
}

/* ---- C1, C2 ---- */

static void test_c1(void **state)
{
    (void)state;
    nb_buf b = {0};
    nb_st_out t = {NB_LIT("a"), NB_DT_U8, 1, {4}};
    uint64_t total, off;
    char hex[65];
    assert_int_equal(nb_st_header(&b, &t, 1, NULL, 0, 8, &total, &off, NULL), NB_OK);
    assert_int_equal(total, 68);
    assert_int_equal(off, 64);
    nb_buf_add(&b, "\1\2\3\4", 4);
    assert_int_equal(b.n, 68);
    assert_memory_equal(b.p + 8, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}   ", 56);
    sha256_hex(b.p, b.n, hex);
    assert_string_equal(hex, "34bf6693c8a18c566ced8fb83b12af8ea83ac93564be679a889ac7f9cfd0f207");
    nb_st_file f;
    nb_str v;
    assert_int_equal(nb_st_read_mem(&f, b.p, b.n, "c1", NB_ST_STRICT, NULL), NB_OK);
    const nb_st_tensor *a = nb_st_find(&f, NB_LIT("a"));
    assert_true(a && a->off == 64 && a->len == 4 && a->dtype == NB_DT_U8 && a->rank == 1 && a->dim[0] == 4);
    assert_null(nb_st_find(&f, NB_LIT("b")));
    assert_false(nb_st_meta(&f, "k", &v));
    assert_null(f.metadata);
    nb_st_free(&f);
    nb_buf_free(&b);
}

static void test_c2(void **state)
{
    (void)state;
    const nb_st_out t[3] = {{NB_LIT("l.weight"), NB_DT_U32, 2, {1, 2}},
                            {NB_LIT("l.weight.global_scale"), NB_DT_F32, 0, {0}},
                            {NB_LIT("l.weight.scale"), NB_DT_U8, 2, {1, 1}}};
    const nb_st_kv meta[3] = {{NB_LIT("quant_type"), NB_LIT("nvfp4")},
                              {NB_LIT("group_size"), NB_LIT("16")},
                              {NB_LIT("format_version"), NB_LIT("2")}};
    const struct {
        size_t pad, keys, size;
        const char *digest;
    } c[] = {{8, 2, 285, "7acb54af1c64bf9ce1bf4a02c0dca7fcee695cd42a4ecf880040966e7139a292"},
             {64, 2, 333, "4f59525adcab062e6aca170172971de648f024e7e1cc8e8d1fb4e4b3fb95eba4"},
             {64, 3, 333, "f3fb1980b6b860444b03799e08f28610b43ef6809003f71b071071f21d6ad540"},
             {4096, 2, 4109, "e8fc6f2ef1624b393fa7431ff671fe3ce18bff4cfd5278df6db3c69315ef3c9a"}};
    uint8_t data[13];
    unhex("0029a243c4656ef7 2549123b 7e", data);
    for (size_t i = 0; i < NB_COUNT(c); i++) {
        nb_buf b = {0};
        uint64_t total, offs[3];
        char hex[65];
        assert_int_equal(nb_st_header(&b, t, 3, meta, c[i].keys, c[i].pad, &total, offs, NULL), NB_OK);
        assert_int_equal(total, c[i].size);
        assert_int_equal(b.n % c[i].pad, 0);
        nb_buf_add(&b, data, 13);
        sha256_hex(b.p, b.n, hex);
        assert_string_equal(hex, c[i].digest);
        nb_st_file f;
        nb_str v;
        assert_int_equal(nb_st_read_mem(&f, b.p, b.n, "c2", NB_ST_STRICT, NULL), NB_OK);
        assert_true(nb_st_meta(&f, "quant_type", &v) && nb_str_is(v, "nvfp4"));
        for (int j = 0; j < 3; j++) assert_int_equal(nb_st_find(&f, t[j].name)->off, offs[j]);
        nb_st_free(&f);
        nb_buf_free(&b);
    }
}

/* ---- C3: malformed files ---- */

#define ENTRY(shape, offs) "{\"t\":{\"dtype\":\"I32\",\"shape\":" shape ",\"data_offsets\":" offs "}}"

static void test_c3(void **state)
{
    (void)state;
    static const char plain[] = ENTRY("[2,2]", "[0,16]");
    expect(make(0, "", 0, 0), 0, "E_ST_HEADER_SIZE");
    file *f = make(0, "", 0, 0);
    f->n = 0;
    expect(f, 0, "E_ST_TOO_SMALL");
    f = make(0, "", 0, 0);
    f->n = 7;
    expect(f, 0, "E_ST_TOO_SMALL");
    expect(make(1, "{", 1, 0), 0, "E_ST_HEADER_SIZE");
    expect(make(0xFFFFFF000000003Cull, plain, strlen(plain), 16), 0, "E_ST_HEADER_SIZE");
    expect(make(100000001, plain, strlen(plain), 16), 0, "E_ST_HEADER_SIZE");
    expect(make(60, "", 0, 0), 0, "E_ST_TRUNCATED");
    expect(make(2, "\xff ", 2, 0), 0, "E_ST_UTF8");
    expect(make(2, "{ ", 2, 0), 0, "E_ST_JSON");
    expect_text("{}\r \t\n", 0, NULL);
    expect_text("\t\n{}\r ", 0, NULL);
    expect_text(plain, 16, NULL);
    expect_text("[]", 0, "E_ST_JSON");
    expect_text("{} x", 0, "E_ST_JSON");
    expect_text("{}{}", 0, "E_ST_JSON");
    expect_text("{\"t\":NaN}", 0, "E_ST_JSON");
    expect_text("/**/{}", 0, "E_ST_JSON");
    char ten[2048] = "{";
    for (int i = 0; i < 10; i++)
        snprintf(ten + strlen(ten), 200, "%s\"t%d\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}",
                 i ? "," : "", i);
    strcat(ten, "}");
    expect_text(ten, 16, "E_ST_OVERLAP");
    expect_text(ENTRY("[2,2]", "[0,4]"), 16, "E_ST_SIZE");
    expect_text(ENTRY("[2,18446744073709551614]", "[0,16]"), 16, "E_ST_SHAPE");
    expect_text(ENTRY("[2,18446744073709551616]", "[0,16]"), 16, "E_ST_SHAPE");
    expect_text(ENTRY("[2,9223372036854775807]", "[0,16]"), 16, "E_ST_OVERFLOW");
    expect_text(ENTRY("[4294967296,4294967296]", "[0,16]"), 16, "E_ST_OVERFLOW");
    expect_text(ENTRY("[2,0]", "[0,0]"), 0, NULL);
    expect_text(ENTRY("[]", "[0,4]"), 4, NULL);
    expect_text(ENTRY("[1,1,1,1,1,1,2,2]", "[0,16]"), 16, NULL);
    expect_text(ENTRY("[1,1,1,1,1,1,1,2,2]", "[0,16]"), 16, "E_ST_SHAPE");
    expect_text(ENTRY("[2,2.0]", "[0,16]"), 16, "E_ST_SHAPE");
    expect_text(ENTRY("[-2,-2]", "[0,16]"), 16, "E_ST_SHAPE");
    expect_text(ENTRY("[2e0,2]", "[0,16]"), 16, "E_ST_SHAPE");
    expect_text(ENTRY("[\"2\",2]", "[0,16]"), 16, "E_ST_SHAPE");
    expect_text(ENTRY("4", "[0,16]"), 16, "E_ST_ENTRY");
    expect(make(strlen(plain), plain, strlen(plain), 16 + 34), NB_ST_STRICT, "E_ST_HOLE");
    expect(make(strlen(plain), plain, strlen(plain), 16 + 34), 0, NULL);
    expect_text(plain, 14, "E_ST_RANGE");
    expect_text(ENTRY("[2,2]", "[16,0]"), 16, "E_ST_OFFSETS");
    expect_text(ENTRY("[2,2]", "[-1,15]"), 16, "E_ST_OFFSETS");
    expect_text(ENTRY("[2,2]", "[0,16,32]"), 16, "E_ST_ENTRY");
    expect_text(ENTRY("[2,2]", "[0.0,16]"), 16, "E_ST_OFFSETS");
    expect_text(ENTRY("[2,2]", "[\"0\",16]"), 16, "E_ST_OFFSETS");
    expect_text(ENTRY("[2,2]", "[18446744073709551608,18446744073709551624]"), 16, "E_ST_OFFSETS");
    expect_text(ENTRY("[2,2]", "[18446744073709551599,18446744073709551615]"), 16, "E_ST_RANGE");
    expect_text("{\"t\":{\"dtype\":\"X9\",\"shape\":[2],\"data_offsets\":[0,99999999]}}", 16, "E_ST_DTYPE");
    expect_text("{\"t\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "E_ST_MISALIGNED");
    expect_text("{\"t\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[0,2]}}", 2, NULL);
    expect_text("{\"t\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, NULL);
    expect_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"t\":{\"dtype\":\"U8\",\"shape\":[1],"
                "\"data_offsets\":[1,2]}}",
                2, "E_ST_DUP_KEY");
    expect_text("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "E_ST_DUP_KEY");
    expect_text("{\"__metadata__\":null}", 0, NULL);
    expect_text("{\"__metadata__\":{\"k\":1}}", 0, "E_ST_METADATA");
    expect_text("{\"__metadata__\":[]}", 0, "E_ST_METADATA");
    expect_text("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "E_ST_NAME");
    expect_text("{\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "E_ST_NAME");
    expect_text("{\"a\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "E_ST_NAME");
    expect_text("{\"t\":[]}", 0, "E_ST_ENTRY");
    expect_text("{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "E_ST_ENTRY");
    expect_text("{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "E_ST_ENTRY");
    expect_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "E_ST_ENTRY");
    expect_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":1}}", 1, NULL);
    expect_text("{\"t\":{\"dtype\":\"U8\",\"shape\":[[[[[[[[1]]]]]]]],\"data_offsets\":[0,1]}}", 1, "E_ST_JSON");
    expect_text("{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
                "\"data_offsets\":[1,3]}}",
                3, "E_ST_OVERLAP");
    char xs[1026] = {0}, name[1200];
    for (size_t n = 1024; n <= 1025; n++) {
        memset(xs, 'x', n);
        snprintf(name, sizeof name, "{\"%s\":{\"dtype\":\"u8\",\"shape\":[1],\"data_offsets\":[0,1]}}", xs);
        expect_text(name, 1, n > 1024 ? "E_ST_NAME" : NULL);
    }
}

/* A header that would take gigabytes once parsed is refused before that. */
static void test_many_values(void **state)
{
    (void)state;
    size_t n = 26000000;
    uint8_t *p = malloc(n + 8);
    nb_store_u64(p, n);
    memset(p + 8, '1', n);
    for (size_t i = 0; i < n; i += 2) p[8 + i] = ',';
    memcpy(p + 8, "{\"t\":[", 6);
    memcpy(p + 8 + n - 2, "]}", 2);
    nb_st_file f;
    nb_error err;
    assert_int_equal(nb_st_read_mem(&f, p, n + 8, "f", 0, &err), NB_E_INVALID);
    assert_non_null(strstr(err.text, "E_ST_TOO_MANY"));
    free(p);
}

/* Data at an odd place is read where it lies. */
static void test_unaligned(void **state)
{
    (void)state;
    static const char text[] = "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    float want[2] = {1.5f, -2.25f}, got[2];
    file *f = make(strlen(text), text, strlen(text), 0);
    assert_true(f->n % 4 != 0);
    memcpy(f->p + f->n, want, 8);
    f->n += 8;
    nb_st_file st;
    assert_int_equal(read_both(f, 0, NULL, &st), NB_OK);
    assert_true(nb_floats_decode(st.tensors[0].dtype, f->p + st.tensors[0].off, 2, got));
    assert_memory_equal(got, want, 8);
    nb_st_free(&st);
    free(f);
}

/* Random headers written by our writer come back as they were; holes are reported where allowed. */
static void test_round_trip(void **state)
{
    (void)state;
    rng r = {3};
    for (int t = 0; t < 200; t++) {
        nb_st_out out[20];
        char names[20][32];
        size_t n = (size_t)rng_int(&r, 20);
        for (size_t i = 0; i < n; i++) {
            snprintf(names[i], sizeof names[i], "%s.%zu.\"\\\xc3\xa9", rng_int(&r, 2) ? "w" : "a", i);
            out[i] = (nb_st_out){
                nb_str_of(names[i]), (nb_dtype)(1 + rng_int(&r, NB_DT_COUNT - 1)), (uint8_t)rng_int(&r, 5), {0}};
            for (int d = 0; d < out[i].rank; d++) out[i].dim[d] = 8 * rng_int(&r, 3);
            if (out[i].rank == 0 && nb_dtype_bits(out[i].dtype) < 8) out[i].dtype = NB_DT_U8;
        }
        nb_buf b = {0};
        uint64_t total, offs[20];
        assert_int_equal(nb_st_header(&b, out, n, NULL, 0, 64, &total, offs, NULL), NB_OK);
        while (b.n < total) nb_buf_add_char(&b, 'd');
        nb_st_file f;
        assert_int_equal(nb_st_read_mem(&f, b.p, b.n, "r", NB_ST_STRICT, NULL), NB_OK);
        assert_int_equal(f.n, n);
        for (size_t i = 0; i < n; i++) {
            const nb_st_tensor *s = nb_st_find(&f, out[i].name);
            assert_true(s && s->dtype == out[i].dtype && s->rank == out[i].rank && (s->len == 0 || s->off == offs[i]));
            assert_memory_equal(s->dim, out[i].dim, sizeof s->dim);
        }
        nb_st_free(&f);
        nb_buf_add_char(&b, 'x');
        assert_int_equal(nb_st_read_mem(&f, b.p, b.n, "r", NB_ST_STRICT, NULL), NB_E_INVALID);
        assert_int_equal(nb_st_read_mem(&f, b.p, b.n, "r", 0, NULL), NB_OK);
        assert_true(f.has_holes);
        nb_st_free(&f);
        nb_buf_free(&b);
    }
}

static void test_writer_refusals(void **state)
{
    (void)state;
    nb_buf b = {0};
    uint64_t total;
    nb_error err;
    nb_buf_add_cstr(&b, "before");
    nb_st_out two[2] = {{NB_LIT("a"), NB_DT_U8, 1, {1}}, {NB_LIT("a"), NB_DT_U8, 1, {1}}};
    assert_int_equal(nb_st_header(&b, two, 2, NULL, 0, 8, &total, NULL, &err), NB_E_INVALID);
    two[1] = (nb_st_out){NB_LIT("b"), NB_DT_F32, 2, {INT64_MAX, 3}};
    assert_int_equal(nb_st_header(&b, two, 2, NULL, 0, 8, &total, NULL, &err), NB_E_INVALID);
    two[1] = (nb_st_out){NB_LIT("b"), NB_DT_F4, 1, {3}};
    assert_int_equal(nb_st_header(&b, two, 2, NULL, 0, 8, &total, NULL, &err), NB_E_INVALID);
    nb_st_kv meta[2] = {{NB_LIT("k"), NB_LIT("1")}, {NB_LIT("k"), NB_LIT("2")}};
    assert_int_equal(nb_st_header(&b, two, 1, meta, 2, 8, &total, NULL, &err), NB_E_INVALID);
    assert_int_equal(b.n, 6);
    nb_buf_free(&b);
}

/* ---- shards ---- */

static char dir[64];
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}
/* A file with one U8 tensor of that name. */
static void put_shard(const char *name, const char *tensor)
{
    char path[256], text[256];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    snprintf(text, sizeof text, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    uint64_t n = strlen(text);
    fwrite(&n, 8, 1, f);
    fwrite(text, 1, n, f);
    fputc(7, f);
    fclose(f);
}
static void clear_dir(void)
{
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        unlink(path);
        rmdir(path);
    }
    if (d) closedir(d);
}

/* Finds, reads and checks; names the code wanted, or NULL and the number of files. */
static void shards(const char *code, size_t files, nb_st_totals *totals)
{
    nb_st_shards s;
    nb_error err = {0};
    nb_st_file f[8];
    nb_st_totals own;
    size_t n = 0;
    nb_status st = nb_st_shards_find(&s, dir, &err);
    if (st == NB_OK) {
        for (; n < s.n && st == NB_OK; n++) {
            char path[400];
            uint64_t size;
            int fd;
            snprintf(path, sizeof path, "%s/%.*s", dir, NB_FMT_STR(s.files[n]));
            assert_int_equal(nb_file_open(&fd, &size, path, &err), NB_OK);
            st = nb_st_read(&f[n], fd, size, path, 0, &err);
            close(fd);
            if (st != NB_OK) break;
        }
        if (st == NB_OK && !code) assert_int_equal(s.n, files);
        if (st == NB_OK) st = nb_st_shards_check(&s, f, totals ? totals : &own, &err);
        for (size_t i = 0; i < n; i++) nb_st_free(&f[i]);
        nb_st_shards_free(&s);
    }
    if (code && (st != NB_E_INVALID || !strstr(err.text, code))) fail_msg("wanted %s, got %d '%s'", code, st, err.text);
    if (!code && st != NB_OK) fail_msg("wanted shards, got '%s'", err.text);
    clear_dir();
}
static void put_index(const char *map)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":3},\"weight_map\":%s}", map);
    put("model.safetensors.index.json", text);
}

static void test_shards(void **state)
{
    (void)state;
    nb_st_totals t;
    strcpy(dir, "/tmp/nbshardsXXXXXX");
    assert_non_null(mkdtemp(dir));
    put("x.bin", "");
    shards("E_NO_WEIGHTS", 0, NULL);
    put_shard("consolidated.safetensors", "a");
    shards("E_NO_WEIGHTS", 0, NULL);
    put_shard("model.safetensors", "a"), put_shard("other.safetensors", "b");
    shards(NULL, 1, &t);
    assert_true(t.tensors == 1 && t.bytes == 1 && t.unmapped == 0);
    put_shard("model.safetensors", "a"), put_shard("model-extra.safetensors", "b");
    shards("E_AMBIGUOUS_SOURCE", 0, NULL);
    put_shard("model-00001-of-00002.safetensors", "a");
    shards("model-00002-of-00002.safetensors) is missing (E_INCOMPLETE", 0, NULL);
    put_shard("model-00001-of-00002.safetensors", "a"), put_shard("model-00002-of-00002.safetensors", "b");
    shards(NULL, 2, NULL);
    put_shard("model-00001-of-00002.safetensors", "a"), put_shard("model-00002-of-00002.safetensors", "a");
    shards("E_DUP_TENSOR", 0, NULL);
    put_shard("model-a.safetensors", "a"), put_shard("model-b.safetensors", "b");
    shards(NULL, 2, NULL);
    char path[200];
    snprintf(path, sizeof path, "%s/model-dir.safetensors", dir);
    mkdir(path, 0700);
    put_shard("model-a.safetensors", "a");
    shards(NULL, 1, NULL);
    /* with an index */
    put_index("{\"a\":\"w1.safetensors\",\"b\":\"w2.safetensors\"}"), put_shard("w1.safetensors", "a"),
        put_shard("w2.safetensors", "b"), put_shard("model.safetensors", "z");
    shards(NULL, 2, &t);
    assert_true(t.size_differs && t.unmapped == 0);
    put_index("{\"a\":\"w1.safetensors\",\"b\":\"w2.safetensors\"}"), put_shard("w1.safetensors", "a");
    shards("w2.safetensors named by the index is missing (E_INCOMPLETE", 0, NULL);
    put_index("{\"a\":\"w1.safetensors\",\"b\":\"w1.safetensors\"}"), put_shard("w1.safetensors", "a");
    shards("E_INCOMPLETE", 0, NULL);
    put_index("{\"a\":\"w1.safetensors\",\"b\":\"w2.safetensors\"}"), put_shard("w1.safetensors", "b"),
        put_shard("w2.safetensors", "a");
    shards("E_INDEX_MISMATCH", 0, NULL);
    put_index("{\"a\":\"w1.safetensors\"}"), put_shard("w1.safetensors", "a"), put_shard("model.safetensors", "q"),
        put_shard("model-1.safetensors", "q");
    shards(NULL, 1, NULL);
    put_index("{\"a\":\"w1.safetensors\",\"c\":\"w2.safetensors\"}"), put_shard("w1.safetensors", "a"),
        put_shard("w2.safetensors", "c");
    shards(NULL, 2, NULL);
    put_index("{}"), put_shard("model.safetensors", "a");
    shards(NULL, 1, NULL);
    const char *bad[] = {"{\"a\":\"../w1.safetensors\"}",
                         "{\"a\":\"w1.bin\"}",
                         "{\"a\":\"\"}",
                         "{\"a\":7}",
                         "{\"a\":\"x\\\\y.safetensors\"}",
                         "{\"a\":\".safetensors\"}",
                         "[]"};
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        put_index(bad[i]);
        put_shard("w1.safetensors", "a");
        shards("weight_map", 0, NULL);
    }
    put("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"w1.safetensors\",\"a\":\"w1.safetensors\"}}");
    shards("occurs twice", 0, NULL);
    put("model.safetensors.index.json", "{\"weight_map\":");
    shards("index.json", 0, NULL);
    nb_st_shards s;
    nb_error err;
    rmdir(dir);
    assert_int_equal(nb_st_shards_find(&s, dir, &err), NB_E_NOT_FOUND);
}

/* ---- files of the test data ---- */

static void read_one(int fd, uint64_t size, const char *path)
{
    nb_st_file f;
    nb_error err;
    if (nb_st_read(&f, fd, size, path, 0, &err) != NB_OK) fail_msg("%s", err.text);
    nb_st_free(&f);
}
static void test_real_files(void **state)
{
    (void)state;
    const char *data = getenv("NIBBLE_TEST_DATA");
    int found = visit_files(data ? data : "../shared", ".safetensors", 0, read_one);
    if (found)
        print_message("           %d safetensors files of the test data read\n", found);
    else
        print_message("           skipped: no test data at %s\n", data ? data : "../shared");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c1),
        cmocka_unit_test(test_c2),
        cmocka_unit_test(test_c3),
        cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_unaligned),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_writer_refusals),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests_name("format: safetensors", tests, NULL, NULL);
}
