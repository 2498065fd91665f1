/* The GGUF reader against well-formed, malformed and real files; blocks against recorded results of the gguf package.
 */
#include "support.h"

#include "base/file.h"
#include "format/gguf.h"
#include "ggml_vectors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- blocks ---- */

static void test_decode(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(ggml_vectors); i++) {
        const nb_ggml_row *row = nb_ggml_info(ggml_vectors[i].type);
        size_t n = ggml_vectors[i].count;
        assert_non_null(row);
        assert_int_equal(n / row->block * row->bytes, ggml_vectors[i].bytes);
        uint8_t *exact = malloc(ggml_vectors[i].bytes);
        float *got = malloc(n * 4);
        memcpy(exact, ggml_vectors[i].blocks, ggml_vectors[i].bytes);
        assert_true(nb_ggml_to_f32(ggml_vectors[i].type, exact, (int64_t)n, got));
        for (size_t e = 0; e < n; e++) /* == and not bits: d * 0 has a sign there, q*s+z has none */
            if (got[e] != nb_f32_bits(ggml_vectors[i].floats[e]))
                fail_msg("%s element %zu: %a, the package has %a", row->name, e, (double)got[e],
                         (double)nb_f32_bits(ggml_vectors[i].floats[e]));
        if (row->block > 1) assert_false(nb_ggml_to_f32(ggml_vectors[i].type, exact, (int64_t)n - 1, got));
        free(exact), free(got);
    }
    print_message("           %zu types as the gguf package decodes them\n", NB_COUNT(ggml_vectors));
    float f[256];
    uint8_t zeros[256] = {0};
    assert_false(nb_ggml_to_f32(17, zeros, 256, f)); /* IQ2_XS: known by name only */
    assert_string_equal(nb_ggml_info(17)->name, "IQ2_XS");
    assert_null(nb_ggml_info(4));
    assert_null(nb_ggml_info(1000));
}

static void test_lossless(void **state)
{
    (void)state;
    int types = 0;
    for (size_t i = 0; i < NB_COUNT(ggml_vectors); i++) {
        nb_qtype q;
        const nb_ggml_row *row = nb_ggml_info(ggml_vectors[i].type);
        if (!nb_ggml_lossless(ggml_vectors[i].type, &q)) continue;
        int64_t k = row->block == 1 ? 32 : row->block, rows = (int64_t)ggml_vectors[i].count / k;
        for (int wide = 0; wide < 2; wide++) {
            bool affine = nb_format_info((nb_format)q.format)->scale_kind == NB_SCALE_AFFINE;
            if (wide && affine) q.scale_dtype = NB_DT_F32;
            matrix m = matrix_new(q, rows, k, (size_t)wide * 3);
            float *got = malloc((size_t)(rows * k) * 4);
            nb_error err = {0};
            if (nb_ggml_to_parts(ggml_vectors[i].type, ggml_vectors[i].blocks, rows, k, q, &m.p, NULL, &err) != NB_OK)
                fail_msg("%s: %s", row->name, err.text);
            nb_dequantize_rows(q, &m.p, rows, k, 1, got);
            for (int64_t e = 0; e < rows * k; e++)
                if (got[e] != nb_f32_bits(ggml_vectors[i].floats[e])) fail_msg("%s element %d", row->name, (int)e);
            matrix_free(&m);
            free(got);
        }
        types++;
    }
    assert_int_equal(types, 12);
}

static void test_block_refusals(void **state)
{
    (void)state;
    uint8_t q8[34] = {0}, mx[17] = {0}, nv[36] = {0}, codes[64], s[8], z[8];
    nb_parts p = {codes, 64, s, 8, z, 8};
    nb_qtype q;
    nb_error err;
    nb_ggml_lossless(NB_GGML_Q8_0, &q);
    assert_true(q.format == NB_INT8 && q.group == 32 && q.scale_dtype == NB_DT_F16);
    nb_store_u16(q8, nb_f16_encode(512)); /* -128 * 512 is beyond F16 */
    assert_int_equal(nb_ggml_to_parts(NB_GGML_Q8_0, q8, 1, 32, q, &p, NULL, &err), NB_E_UNSUPPORTED);
    assert_string_equal(err.text, "row 0, columns from 0: a scale or bias needs F32");
    q.scale_dtype = NB_DT_F32;
    assert_int_equal(nb_ggml_to_parts(NB_GGML_Q8_0, q8, 1, 32, q, &p, NULL, &err), NB_OK);
    nb_store_u16(q8, 0x7c00);
    assert_int_equal(nb_ggml_to_parts(NB_GGML_Q8_0, q8, 1, 32, q, &p, NULL, &err), NB_E_INVALID);
    nb_store_u16(q8, 0x7e01);
    assert_int_equal(nb_ggml_to_parts(NB_GGML_Q8_0, q8, 1, 32, q, &p, NULL, &err), NB_E_INVALID);
    assert_int_equal(nb_ggml_to_parts(NB_GGML_Q8_0, q8, 1, 33, q, &p, NULL, &err), NB_E_INVALID);
    assert_int_equal(nb_ggml_to_parts(NB_GGML_Q6_K, q8, 1, 32, q, &p, NULL, &err), NB_E_INVALID);
    /* domain of MXFP4: byte 16 to 240 where a code is not zero */
    q = nb_qtype_default(NB_MXFP4);
    for (int e = 0; e < 256; e++)
        for (int zero = 0; zero < 2; zero++) {
            memset(mx, zero ? 0x80 : 0x21, 17);
            mx[0] = (uint8_t)e;
            nb_status st = nb_ggml_to_parts(NB_GGML_MXFP4, mx, 1, 32, q, &p, NULL, &err);
            bool inside = e >= 16 && e <= 240;
            if (e == 255 || (e > 240 && !zero)) {
                assert_int_equal(st, NB_E_INVALID);
                continue;
            }
            assert_int_equal(st, NB_OK);
            assert_int_equal(s[0], inside ? e : 127);
            if (!inside && !zero) assert_hex(codes, "00000000000000000000000000000000");
        }
    q = nb_qtype_default(NB_NVFP4);
    memset(nv + 4, 0x80, 32); /* codes 0 and 8: magnitude zero */
    memset(nv, 0x7f, 4);
    assert_int_equal(nb_ggml_to_parts(NB_GGML_NVFP4, nv, 1, 64, q, &p, NULL, &err), NB_OK); /* N5 */
    assert_hex(s, "00000000");
    nv[20] = 0x10;
    assert_int_equal(nb_ggml_to_parts(NB_GGML_NVFP4, nv, 1, 64, q, &p, NULL, &err), NB_E_INVALID);
    assert_string_equal(err.text, "row 0, block 2: the scale is NaN (E_SCALE_NAN)");
}

static void test_domain(void **state)
{
    (void)state;
    uint8_t codes[32], s[8] = {0xb8, 0x38, 0, 0};
    nb_parts p = {codes, 32, s, 2, NULL, 0};
    memset(codes, 0x21, sizeof codes);
    assert_int_equal(nb_parts_domain(nb_qtype_default(NB_NVFP4), &p, 1, 32, NULL, NULL), NB_OK); /* N6 */
    assert_hex(codes, "a9a9a9a9a9a9a9a92121212121212121");
    assert_hex(s, "3838");
    uint64_t zeroed = 0;
    nb_error err;
    s[0] = 15;
    memset(codes, 0x38, 32);
    assert_int_equal(nb_parts_domain(nb_qtype_default(NB_MXFP8), &p, 1, 32, &zeroed, NULL), NB_OK);
    assert_true(zeroed == 1 && s[0] == 127 && codes[0] == 0 && codes[31] == 0);
    s[0] = 127;
    codes[13] = 0x7f;
    assert_int_equal(nb_parts_domain(nb_qtype_default(NB_MXFP8), &p, 1, 32, NULL, &err), NB_E_INVALID);
    assert_string_equal(err.text, "row 0, block 0: a code is NaN (E_NONFINITE)");
    codes[13] = 0xfe;
    assert_int_equal(nb_parts_domain(nb_qtype_default(NB_MXFP8), &p, 1, 32, NULL, &err), NB_OK);
    codes[31] = 0xff;
    assert_int_equal(nb_parts_domain(nb_qtype_default(NB_MXFP8), &p, 1, 32, NULL, &err), NB_E_INVALID);
    float scale[2] = {1, NAN}, bias[2] = {0, INFINITY};
    nb_qtype q = {NB_INT4, NB_DT_F32, 32};
    nb_parts a = {codes, 16, (uint8_t *)scale, 4, (uint8_t *)bias, 4};
    assert_int_equal(nb_parts_domain(q, &a, 1, 32, NULL, &err), NB_OK);
    assert_int_equal(nb_parts_domain(q, &a, 2, 32, NULL, &err), NB_E_INVALID);
    scale[1] = 1;
    assert_int_equal(nb_parts_domain(q, &a, 2, 32, NULL, &err), NB_E_INVALID);
    assert_string_equal(err.text, "row 1, block 0: the bias is not finite (E_SCALE_NAN)");
}

/* ---- files ---- */

static void u32(nb_buf *b, uint32_t v) { nb_buf_add(b, &v, 4); }
static void u64(nb_buf *b, uint64_t v) { nb_buf_add(b, &v, 8); }
static void str(nb_buf *b, const char *s) { u64(b, strlen(s)), nb_buf_add_cstr(b, s); }
static void head(nb_buf *b, uint32_t version, uint64_t tensors, uint64_t keys)
{
    nb_buf_add_cstr(b, "GGUF");
    u32(b, version), u64(b, tensors), u64(b, keys);
}
static void tensor(nb_buf *b, const char *name, uint32_t rank, const uint64_t *dims, uint32_t type, uint64_t off)
{
    str(b, name), u32(b, rank);
    for (uint32_t i = 0; i < rank; i++) u64(b, dims[i]);
    u32(b, type), u64(b, off);
}
static void pad(nb_buf *b, size_t align, size_t data)
{
    while (b->n % align) nb_buf_add_char(b, 0);
    for (size_t i = 0; i < data; i++) nb_buf_add_char(b, (char)i);
}

static nb_status parse(const nb_buf *b, nb_gguf *g, nb_error *err)
{
    nb_error e2 = {0};
    nb_gguf h;
    char path[] = "/tmp/nbggufXXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    unlink(path);
    assert_int_equal(write(fd, b->p, b->n), b->n);
    nb_status st = nb_gguf_parse(g, b->p, b->n, "g", err);
    assert_int_equal(nb_gguf_read(&h, fd, b->n, "g", &e2), st);
    if (st == NB_OK) {
        assert_int_equal(h.n, g->n);
        assert_null(h.p);
        nb_gguf_free(&h);
    } else {
        assert_string_equal(err->text, e2.text);
    }
    close(fd);
    return st;
}

static void test_values(void **state)
{
    (void)state;
    nb_buf b = {0};
    nb_gguf g;
    nb_error err = {0};
    head(&b, 3, 2, 18);
    str(&b, "u8"), u32(&b, 0), nb_buf_add(&b, "\xff", 1);
    str(&b, "i8"), u32(&b, 1), nb_buf_add(&b, "\xff", 1);
    str(&b, "u16"), u32(&b, 2), nb_buf_add(&b, "\xff\xff", 2);
    str(&b, "i16"), u32(&b, 3), nb_buf_add(&b, "\xff\xff", 2);
    str(&b, "u32"), u32(&b, 4), u32(&b, 0xffffffffu);
    str(&b, "i32"), u32(&b, 5), u32(&b, 0xffffffffu);
    str(&b, "f32"), u32(&b, 6), u32(&b, nb_bits_f32(1e-5f));
    str(&b, "yes"), u32(&b, 7), nb_buf_add(&b, "\1", 1);
    str(&b, "no"), u32(&b, 7), nb_buf_add(&b, "\0", 1);
    str(&b, "text"), u32(&b, 8),
        str(&b, "gr\xc3\xbc\xc3\x9f"
                "e");
    str(&b, "latin"), u32(&b, 8), str(&b, "caf\xe9");
    str(&b, "list"), u32(&b, 9), u32(&b, 8), u64(&b, 2), str(&b, "a"), str(&b, "");
    str(&b, "u64"), u32(&b, 10), u64(&b, UINT64_MAX);
    str(&b, "i64"), u32(&b, 11), u64(&b, (uint64_t)INT64_MIN);
    double d = 0.1;
    str(&b, "f64"), u32(&b, 12), nb_buf_add(&b, &d, 8);
    str(&b, "inf"), u32(&b, 6), u32(&b, 0xff800000u);
    str(&b, "nan"), u32(&b, 6), u32(&b, 0x7fc00000u);
    str(&b, "general.alignment"), u32(&b, 4), u32(&b, 64);
    tensor(&b, "w", 2, (uint64_t[]){64, 3}, NB_GGML_Q8_0, 0);
    tensor(&b, "a", 1, (uint64_t[]){4}, NB_GGML_F32, 256);
    pad(&b, 64, 256 + 16);
    if (parse(&b, &g, &err) != NB_OK) fail_msg("%s", err.text);
    const struct {
        const char *key, *text;
    } t[] = {{"u8", "255"},
             {"i8", "-1"},
             {"u16", "65535"},
             {"i16", "-1"},
             {"u32", "4294967295"},
             {"i32", "-1"},
             {"text", "gr\xc3\xbc\xc3\x9f"
                      "e"},
             {"latin", "caf\xc3\xa9"},
             {"u64", "18446744073709551615"},
             {"i64", "-9223372036854775808"},
             {"f64", "0.1"},
             {"inf", "-1e999"}};
    for (size_t i = 0; i < NB_COUNT(t); i++) assert_true(nb_str_is(nb_json_get(g.meta, t[i].key)->text, t[i].text));
    assert_false(nb_json_present(nb_json_get(g.meta, "nan")));
    double f;
    bool yes, no;
    assert_true(nb_json_f64(nb_json_get(g.meta, "f32"), &f) && (float)f == 1e-5f);
    assert_true(nb_json_bool(nb_json_get(g.meta, "yes"), &yes) && yes && nb_json_bool(nb_json_get(g.meta, "no"), &no) &&
                !no);
    const nb_json *list = nb_json_get(g.meta, "list");
    assert_true(list->count == 2 && nb_str_is(nb_json_at(list, 0)->text, "a") && nb_json_at(list, 1)->text.n == 0);
    assert_int_equal(g.bad_utf8, 1);
    assert_true(g.n == 2 && g.alignment == 64 && g.data_off % 64 == 0 && g.p == (const uint8_t *)b.p);
    const nb_gguf_tensor *w = nb_gguf_find(&g, NB_LIT("w")), *a = nb_gguf_find(&g, NB_LIT("a"));
    assert_true(w && w->off == g.data_off && w->len == 6 * 34 && w->dim[0] == 64 && w->dim[1] == 3 && w->rank == 2);
    assert_true(a && a->off == g.data_off + 256 && a->len == 16 && a == g.tensors);
    assert_null(nb_gguf_find(&g, NB_LIT("b")));
    /* cut anywhere before its last data byte, the file is refused */
    nb_gguf_free(&g);
    for (size_t n = 0; n < b.n; n++) {
        char *exact = malloc(n + 1);
        memcpy(exact, b.p, n);
        assert_int_equal(nb_gguf_parse(&g, exact, n, "g", &err), NB_E_INVALID);
        free(exact);
    }
    nb_buf_free(&b);
}

static void refuse(nb_buf *b, const char *text)
{
    nb_gguf g;
    nb_error err = {0};
    nb_status st = parse(b, &g, &err);
    if (st != NB_E_INVALID || !strstr(err.text, text)) fail_msg("wanted '%s', got %d '%s'", text, st, err.text);
    nb_buf_free(b);
    *b = (nb_buf){0};
}
/* A file with one key "k" whose value is what follows. */
static void one_key(nb_buf *b, uint32_t type) { head(b, 3, 0, 1), str(b, "k"), u32(b, type); }
static void one_tensor(nb_buf *b, const char *name, uint32_t rank, const uint64_t *dims, uint32_t type, uint64_t off,
                       size_t data)
{
    head(b, 3, 1, 0), tensor(b, name, rank, dims, type, off), pad(b, 32, data);
}

static void test_malformed(void **state)
{
    (void)state;
    nb_buf b = {0};
    nb_buf_add_cstr(&b, "GGML0000"), refuse(&b, "not a GGUF file");
    head(&b, 1, 0, 0), refuse(&b, "GGUF version 1");
    head(&b, 4, 0, 0), refuse(&b, "GGUF version 4");
    head(&b, 0x03000000, 0, 0), refuse(&b, "big-endian");
    head(&b, 3, 0, UINT64_MAX), refuse(&b, "metadata keys do not fit");
    head(&b, 3, 0, 1), refuse(&b, "metadata keys do not fit");
    head(&b, 3, UINT64_MAX, 0), refuse(&b, "tensors do not fit");
    head(&b, 3, 0, 1), u64(&b, UINT64_MAX), u64(&b, 0), refuse(&b, "a string of 18446744073709551615 bytes");
    head(&b, 3, 0, 1), str(&b, ""), u32(&b, 4), u32(&b, 1), refuse(&b, "a name of 0 bytes");
    head(&b, 3, 0, 1), str(&b, "a\nb"), u32(&b, 4), u32(&b, 1), refuse(&b, "control characters");
    head(&b, 3, 0, 1), str(&b, "a\xff"), u32(&b, 4), u32(&b, 1), refuse(&b, "no UTF-8");
    head(&b, 3, 0, 2), str(&b, "k"), u32(&b, 4), u32(&b, 1), str(&b, "k"), u32(&b, 4), u32(&b, 2),
        refuse(&b, "k: the key stands twice");
    one_key(&b, 13), u64(&b, 0), refuse(&b, "k: unknown value type 13");
    one_key(&b, 7), nb_buf_add(&b, "\2", 1), refuse(&b, "k: a boolean of 2");
    one_key(&b, 9), u32(&b, 13), u64(&b, 0), refuse(&b, "unknown element type 13");
    one_key(&b, 9), u32(&b, 4), u64(&b, 1ull << 62), refuse(&b, "does not fit into the file");
    one_key(&b, 9), u32(&b, 8), u64(&b, 1), u64(&b, 100), refuse(&b, "a string of 100 bytes");
    one_key(&b, 9);
    for (int i = 0; i < 6; i++) u32(&b, 9), u64(&b, 1);
    refuse(&b, "nested deeper");
    one_key(&b, 8), u64(&b, 64ull << 30), refuse(&b, "a string of");
    const uint32_t align[] = {0, 3, 48, 2 << 20};
    for (size_t i = 0; i < NB_COUNT(align); i++)
        head(&b, 3, 0, 1), str(&b, "general.alignment"), u32(&b, 4), u32(&b, align[i]),
            refuse(&b, "general.alignment: the alignment is no power of two");
    head(&b, 3, 0, 1), str(&b, "general.alignment"), u32(&b, 8), str(&b, "32"), refuse(&b, "no power of two");
    one_tensor(&b, "t", 5, (uint64_t[]){1, 1, 1, 1, 1}, 0, 0, 64), refuse(&b, "t: rank 5 is above 4");
    one_tensor(&b, "t", 1, (uint64_t[]){32}, 4, 0, 128), refuse(&b, "t: unknown type 4");
    one_tensor(&b, "t", 1, (uint64_t[]){32}, 0xffffffffu, 0, 128), refuse(&b, "unknown type");
    one_tensor(&b, "t", 1, (uint64_t[]){33}, NB_GGML_Q4_0, 0, 128),
        refuse(&b, "rows of 33 do not divide into Q4_0 blocks of 32");
    one_tensor(&b, "t", 2, (uint64_t[]){16, 4}, NB_GGML_Q4_0, 0, 128), refuse(&b, "rows of 16");
    one_tensor(&b, "t", 2, (uint64_t[]){1ull << 40, 1ull << 40}, 0, 0, 64), refuse(&b, "overflows");
    one_tensor(&b, "t", 2, (uint64_t[]){1ull << 31, 1ull << 31}, 0, 0, 64), refuse(&b, "overflows");
    one_tensor(&b, "t", 1, (uint64_t[]){1ull << 63}, 0, 0, 64), refuse(&b, "a dimension of");
    one_tensor(&b, "t", 1, (uint64_t[]){8}, 0, 16, 64), refuse(&b, "offset 16 is not aligned to 32");
    one_tensor(&b, "t", 1, (uint64_t[]){17}, 0, 0, 64),
        refuse(&b, "t: 68 bytes at offset 0, the file has 64 data bytes");
    one_tensor(&b, "t", 1, (uint64_t[]){8}, 0, UINT64_MAX - 31, 64), refuse(&b, "bytes at offset 18446744073709551584");
    one_tensor(&b, "", 1, (uint64_t[]){8}, 0, 0, 64), refuse(&b, "a name of 0 bytes");
    head(&b, 3, 2, 0), tensor(&b, "t", 1, (uint64_t[]){8}, 0, 0), tensor(&b, "t", 1, (uint64_t[]){8}, 0, 32),
        pad(&b, 32, 64), refuse(&b, "the tensor stands twice");
    head(&b, 3, 2, 0), tensor(&b, "t", 1, (uint64_t[]){16}, 0, 0), tensor(&b, "u", 1, (uint64_t[]){8}, 0, 32),
        pad(&b, 32, 64), refuse(&b, "u: its data overlaps");
    head(&b, 3, 1, 0), tensor(&b, "t", 1, (uint64_t[]){0}, 0, 0), refuse(&b, "ends before its data");
    /* and these are fine */
    nb_gguf g;
    nb_error err;
    head(&b, 2, 0, 0);
    assert_int_equal(parse(&b, &g, &err), NB_OK);
    assert_int_equal(g.meta->count, 0);
    nb_gguf_free(&g);
    nb_buf_free(&b);
    b = (nb_buf){0};
    one_tensor(&b, "t", 4, (uint64_t[]){256, 2, 0, 3}, NB_GGML_Q6_K, 0, 0);
    assert_int_equal(parse(&b, &g, &err), NB_OK);
    nb_gguf_free(&g);
    nb_buf_free(&b);
}

/* A header longer than what nb_gguf_read takes at first. */
static void test_long_header(void **state)
{
    (void)state;
    nb_buf b = {0};
    head(&b, 3, 1, 2);
    str(&b, "tokens"), u32(&b, 9), u32(&b, 8), u64(&b, 300000);
    for (int i = 0; i < 300000; i++) {
        char text[80];
        snprintf(text, sizeof text, "%064d", i);
        str(&b, text);
    }
    str(&b, "types"), u32(&b, 9), u32(&b, 5), u64(&b, 300000);
    for (uint32_t i = 0; i < 300000; i++) u32(&b, i % 7);
    tensor(&b, "t", 1, (uint64_t[]){8}, 0, 0), pad(&b, 32, 32);
    nb_gguf g;
    nb_error err = {0};
    assert_true(b.n > 20 << 20);
    if (parse(&b, &g, &err) != NB_OK) fail_msg("%s", err.text);
    int64_t v;
    assert_true(nb_json_i64(nb_json_at(nb_json_get(g.meta, "types"), 299999), &v) && v == 299999 % 7);
    assert_int_equal(nb_json_get(g.meta, "tokens")->count, 300000);
    nb_gguf_free(&g);
    nb_buf_free(&b);
}

static void read_one(int fd, uint64_t size, const char *path)
{
    nb_gguf g;
    nb_error err;
    if (nb_gguf_read(&g, fd, size, path, &err) != NB_OK) fail_msg("%s", err.text);
    print_message("           %s: %zu tensors, %u keys\n", strrchr(path, '/') + 1, g.n, g.meta->count);
    nb_gguf_free(&g);
}
static void test_real_files(void **state)
{
    (void)state;
    const char *data = getenv("NIBBLE_TEST_DATA");
    int found = visit_files(data ? data : "../shared", ".gguf", 0, read_one);
    print_message("           %d GGUF files of the test data read%s\n", found,
                  found ? "" : " (skipped: there are none)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),      cmocka_unit_test(test_lossless),   cmocka_unit_test(test_block_refusals),
        cmocka_unit_test(test_domain),      cmocka_unit_test(test_values),     cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_long_header), cmocka_unit_test(test_real_files),
    };
    return cmocka_run_group_tests_name("format: GGUF", tests, NULL, NULL);
}
