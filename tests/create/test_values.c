/* Values: every format in every layout against quantising and dequantising the whole matrix at once; and every
 * checkpoint of the test data in every format, with the importer's own deep check. */
#include "create/fixture.h"
#include "create/stored.h"

#include <dirent.h>

static const char *const types[] = {"bf16",     "nvfp4",    "mxfp4",    "mxfp8", "int2:g32",  "int3:g32", "int4:g32",
                                    "int5:g32", "int6:g32", "int8:g32", "int4",  "int8:g128", "int4:g128"};
static const int64_t rows_of[] = {17, 33, 255, 16, 300};
static const int64_t cols_of[] = {128, 384, 640};

static float *whole(const nb_buf *bf16, int64_t n, int64_t k)
{
    float *v = malloc((size_t)(n * k) * sizeof *v);
    assert_non_null(v);
    assert_true(nb_floats_decode(NB_DT_BF16, bf16->p, (size_t)(n * k), v));
    return v;
}

/* Quantised at once, by the format table. */
static void expected(nb_qtype q, const float *w, int64_t n, int64_t k, float *out)
{
    size_t c, s, b;
    nb_error err;
    float m = q.format == NB_NVFP4 ? nb_nvfp4_multiplier(nb_abs_max(w, (size_t)(n * k))) : 1.0f;
    assert_true(nb_parts_row_bytes(q, k, &c, &s, &b));
    uint8_t *p = calloc((size_t)n, c + s + b + 1);
    assert_non_null(p);
    nb_parts parts = {.codes = p, .code_stride = c, .scale_stride = s, .bias_stride = b};
    if (s) parts.scales = p + (size_t)n * c;
    if (b) parts.biases = p + (size_t)n * (c + s);
    if (q.format == NB_NVFP4)
        assert_int_equal(nb_quantize_nvfp4(w, n, k, nb_abs_max(w, (size_t)(n * k)), &parts, &err), NB_OK);
    else
        assert_int_equal(nb_quantize_rows(q, w, n, k, m, &parts, &err), NB_OK);
    nb_dequantize_rows(q, &parts, n, k, m, out);
    free(p);
}

static void formats_and_layouts(void **state)
{
    (void)state;
    static char names[32][64];
    size_t matrices = 0;
    for (size_t t = 0; t < NB_COUNT(types); t++) {
        fx *x = fx_new();
        size_t n = 0;
        fx_plain_config(x, "");
        for (size_t r = 0; r < NB_COUNT(rows_of); r++)
            for (size_t c = 0; c < NB_COUNT(cols_of); c++) {
                char dims[64];
                snprintf(names[n], sizeof names[n], "layers.%zu.q_proj.weight", n);
                snprintf(dims, sizeof dims, "%lld,%lld", (long long)rows_of[r], (long long)cols_of[c]);
                fx_random(x, names[n], dims, (uint32_t)(t * 100 + n));
                n++;
            }
        fx_save(x, "model.safetensors");
        for (int layout = 0; layout < 2; layout++) {
            nb_create_options o = fx_options(x);
            o.layout = layout ? NB_LAYOUT_ROWS16 : NB_LAYOUT_STANDARD;
            o.threads = 1 + layout;
            fx_ok(x, nb_create_parse_request(&o, types[t], &x->err));
            fx_ok(x, fx_run(x, &o));
            nb_name name;
            nb_model_blobs b;
            nb_buf scratch = {0};
            fx_ok(x, nb_name_parse(&name, "t", &x->err));
            fx_ok(x, nb_blobs_open(&b, x->store, &name, &x->err));
            for (size_t i = 0; i < n; i++) {
                int64_t rows = rows_of[i / NB_COUNT(cols_of)], cols = cols_of[i % NB_COUNT(cols_of)];
                size_t bytes = (size_t)(rows * cols) * sizeof(float);
                float *w = whole(&x->data[i], rows, cols), *want = malloc(bytes), *got = malloc(bytes);
                const nb_stored *s = nb_blobs_find(&b, nb_str_of(names[i]), 0);
                assert_non_null(s);
                if (s->matrix) {
                    assert_true(nb_qtype_eq(s->q, o.type));
                    expected(s->q, w, rows, cols, want);
                    fx_ok(x, nb_stored_floats(s, 0, rows, got, &scratch, &x->err));
                } else { /* BF16 in the standard layout is a plain tensor */
                    expected(nb_qtype_default(NB_BF16), w, rows, cols, want);
                    assert_true(nb_floats_decode(s->dtype, s->data, (size_t)(rows * cols), got));
                }
                assert_memory_equal(got, want, bytes);
                matrices++;
                free(w);
                free(want);
                free(got);
            }
            nb_buf_free(&scratch);
            nb_blobs_close(&b);
        }
        fx_free(x);
    }
    print_message("%zu matrices in %zu formats and 2 layouts\n", matrices, NB_COUNT(types));
}

/* Every folder of the test data with a config.json: imported in every format with the deep check, thread counts
 * compared by manifest digest. */
static void test_data(void **state)
{
    (void)state;
    static const char *const some[] = {"none", "bf16", "nvfp4", "mxfp8", "mxfp4", "int8:g32", "int4:g32"};
    const char *data = getenv("NIBBLE_TEST_DATA");
    char root[400];
    snprintf(root, sizeof root, "%s/reference_models", data && *data ? data : "../shared");
    DIR *d = opendir(root);
    if (!d) {
        print_message("skipped all checkpoints: %s is not there\n", root);
        return;
    }
    size_t models = 0, imports = 0, refused = 0;
    for (struct dirent *e; (e = readdir(d));) {
        char path[800];
        snprintf(path, sizeof path, "%s/%s/config.json", root, e->d_name);
        if (e->d_name[0] == '.' || !nb_path_exists(path)) continue;
        path[strlen(path) - strlen("/config.json")] = 0;
        models++;
        for (size_t t = 0; t < NB_COUNT(some); t++) {
            fx *x = fx_new();
            char digest[65] = "";
            for (int threads = 1; threads <= 3; threads += 2) {
                nb_create_options o = fx_options(x);
                o.source = path;
                o.force = false;
                o.deep = threads == 1;
                o.threads = threads;
                o.layout = NB_LAYOUT_ROWS16;
                fx_ok(x, nb_create_parse_request(&o, some[t], &x->err));
                nb_status st = fx_run(x, &o);
                if (st != NB_OK && strstr(x->err.text, "E_POLICY_REFUSED")) {
                    refused++;
                    break;
                }
                fx_ok(x, st);
                if (t > 1) assert_true(x->report.n_quantized > 0);
                if (digest[0]) assert_string_equal(digest, x->report.digest);
                memcpy(digest, x->report.digest, sizeof digest);
                imports++;
            }
            fx_free(x);
        }
    }
    closedir(d);
    print_message("%zu checkpoints, %zu imports, %zu refused by policy\n", models, imports, refused);
    assert_true(models == 0 || imports > 0);
}

/* Spoils values of the first row, or puts in what they are to become. Each 16 of its first 512 columns begin with 8, so
 * that the largest of a group is known; columns 256 to 383 have nothing finite. The last value of all is spoilt too. */
static void spoil(uint8_t *p, int64_t n, int64_t k, bool mended)
{
    static const uint16_t bad[] = {0x7fc0, 0x7f80, 0xff80};  /* NaN, +inf, -inf */
    static const uint16_t good[] = {0x0000, 0x4100, 0xc100}; /* 0, 8, -8 */
    for (int64_t c = 0; c < 512; c += 16) nb_store_u16(p + 2 * c, 0x4100);
    for (int i = 0; i < 3; i++) nb_store_u16(p + 2 * (130 + i), mended ? good[i] : bad[i]);
    for (int i = 0; i < 128; i++) /* nothing finite in a group */
        nb_store_u16(p + 2 * (256 + i), mended ? 0 : bad[i % 3]);
    nb_store_u16(p + 2 * (n * k - 1), mended ? 0 : bad[0]);
}

/* --nonfinite zero gives the blobs that a source mended by hand gives, and counts; without it the import is refused. */
static void nonfinite(void **state)
{
    (void)state;
    for (size_t t = 1; t < NB_COUNT(types) + 1; t++) {
        const char *type = t < NB_COUNT(types) ? types[t] : "nvfp4";
        int64_t n = t < NB_COUNT(types) ? 33 : 8200, k = t < NB_COUNT(types) ? 640 : 512; /* the last: found in tiles */
        char dims[40], hex[65] = "";
        snprintf(dims, sizeof dims, "%lld,%lld", (long long)n, (long long)k);
        fx *x = fx_new();
        fx_plain_config(x, "");
        for (int mended = 1; mended >= 0; mended--) {
            fx_random(x, "layers.0.q_proj.weight", dims, 77);
            spoil((uint8_t *)x->data[0].p, n, k, mended);
            fx_save(x, "model.safetensors");
            fx_clear(x);
            nb_create_options o = fx_options(x);
            o.layout = t % 2 ? NB_LAYOUT_ROWS16 : NB_LAYOUT_STANDARD;
            o.deep = true;
            fx_ok(x, nb_create_parse_request(&o, type, &x->err));
            if (!mended) fx_fails(x, fx_run(x, &o), NB_E_INVALID, "E_NONFINITE");
            o.nonfinite_zero = !mended;
            fx_ok(x, fx_run(x, &o));
            fx_blob b = fx_open(x, "layers.0.q_proj.weight");
            const nb_layer *l = nb_manifest_find(&b.m, "layers.0.q_proj.weight");
            if (!mended) assert_string_equal(l->hex, hex);
            memcpy(hex, l->hex, sizeof hex);
            fx_close(&b);
            size_t said = 0;
            for (size_t i = 0; i < x->report.n_warnings; i++)
                said += nb_str_has(x->report.warnings[i].text, "132 values that are not finite");
            assert_int_equal(said, !mended);
        }
        fx_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(formats_and_layouts), cmocka_unit_test(nonfinite),
                                       cmocka_unit_test(test_data)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
