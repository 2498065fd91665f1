/* What an export keeps and what it refuses, to the bit, without the packages that read the directories (those are in
 * tests/python/test_export.py). */
#include "create/fixture.h"

enum { ROWS = 10, COLS = 256 };

static nb_status export_to(fx *x, nb_export_as as, char dir[400])
{
    nb_export_options e;
    nb_export_defaults(&e);
    snprintf(dir, 400, "%s/out-%d", x->dir, (int)as);
    e.name = "t";
    e.dir = dir;
    e.as = as;
    return nb_export(x->store, &e, &x->err);
}

/* Per-channel int4 with zero points, as compressed-tensors writes it; scales are whole F32. */
static void channel_source(fx *x, int64_t rows, bool symmetric)
{
    static int64_t shape[2];
    char text[400], dims[2][32];
    uint8_t codes[ROWS * COLS / 2], zeros[8] = {0};
    float scales[ROWS];
    shape[0] = rows;
    shape[1] = COLS;
    for (size_t i = 0; i < sizeof codes; i++) codes[i] = (uint8_t)(i * 37 + 11);
    for (int r = 0; r < ROWS; r++) {
        scales[r] = 0.0123456789f / (float)(r + 3); /* no product with a zero point is exact */
        int z = symmetric ? 8 : (r * 5 + 1) % 16;
        zeros[r / 2] |= (uint8_t)(z << r % 2 * 4);
    }
    snprintf(text, sizeof text,
             "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"g\":{\"weights\":{"
             "\"num_bits\":4,\"type\":\"int\",\"strategy\":\"channel\",\"symmetric\":%s}}}}",
             symmetric ? "true" : "false");
    snprintf(dims[0], 32, "%lld,%d", (long long)rows, COLS / 8);
    snprintf(dims[1], 32, "%lld,1", (long long)rows);
    fx_plain_config(x, text);
    fx_add(x, "l.weight_packed", NB_DT_I32, dims[0], codes);
    fx_add(x, "l.weight_scale", NB_DT_F32, dims[1], scales);
    fx_add(x, "l.weight_shape", NB_DT_I64, "2", shape);
    if (!symmetric) fx_add(x, "l.weight_zero_point", NB_DT_I32, rows > 8 ? "2,1" : "1,1", zeros);
    fx_save(x, "model.safetensors");
}

/* Zero points come back although -z / s is no whole number in F32 any more. */
static void zero_points_come_back(void **state)
{
    (void)state;
    static const nb_qtype q = {NB_INT4, NB_DT_F32, 128};
    fx *x = fx_new();
    float before[ROWS * COLS], after[ROWS * COLS];
    char dir[400];
    channel_source(x, ROWS, false);
    fx_ok(x, fx_create(x, "none"));
    fx_blob b = fx_open(x, "l.weight");
    fx_values(&b, "l.weight", q, ROWS, COLS, before);
    fx_close(&b);
    fx_ok(x, export_to(x, NB_EXPORT_COMPRESSED_TENSORS, dir));
    nb_create_options o = fx_options(x);
    o.source = dir;
    fx_ok(x, fx_run(x, &o));
    b = fx_open(x, "l.weight");
    fx_meta(&b, "source", "ct-int");
    fx_values(&b, "l.weight", q, ROWS, COLS, after);
    assert_memory_equal(before, after, sizeof before);
    fx_close(&b);
    fx_fails(x, export_to(x, NB_EXPORT_MODELOPT, dir), NB_E_UNSUPPORTED, "that is not symmetric");
    fx_free(x);
}

/* A bias that is no product of the scale is refused, also where the scale is zero. */
static void other_biases(void **state)
{
    (void)state;
    static const float scales[] = {0.5f, 0.0f}, biases[] = {-2.25f, 1.0f};
    for (int i = 0; i < 2; i++) {
        fx *x = fx_new();
        char dir[400];
        fx_plain_config(x, "\"quantization\":{\"bits\":4,\"group_size\":32}");
        fx_add(x, "l.weight", NB_DT_U32, "1,4", NULL);
        fx_add(x, "l.scales", NB_DT_F32, "1,1", &scales[i]);
        fx_add(x, "l.biases", NB_DT_F32, "1,1", &biases[i]);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        fx_fails(x, export_to(x, NB_EXPORT_COMPRESSED_TENSORS, dir), NB_E_UNSUPPORTED, "no whole zero points");
        fx_free(x);
    }
}

/* ModelOpt's INT4 holds two rows in a byte. */
static void odd_rows(void **state)
{
    (void)state;
    for (int64_t rows = 7; rows <= 8; rows++) {
        fx *x = fx_new();
        char dir[400];
        channel_source(x, rows, true);
        fx_ok(x, fx_create(x, "none"));
        nb_status st = export_to(x, NB_EXPORT_MODELOPT, dir);
        if (rows % 2)
            fx_fails(x, st, NB_E_UNSUPPORTED, "with an odd number of rows");
        else
            fx_ok(x, st);
        fx_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero_points_come_back),
        cmocka_unit_test(other_biases),
        cmocka_unit_test(odd_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
