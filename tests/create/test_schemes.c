/* Which part of a config speaks about which module: config_groups of compressed-tensors with names, expressions and
 * classes, dynamic of gptqmodel, extra_config of AutoRound; and the expressions themselves. What the config says is
 * seen in what is warned of and refused, since the tensors decide everything that they tell.
 * specs/create.md 3.1, 3.6, 3.14. */
#include "create/fixture.h"
#include "create/patterns.h"

/* ---- expressions: Python's re.match ---- */

static void patterns(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        int hit;
    } rows[] = {
        {"model", "model.layers.0", 1}, /* at the beginning, not to the end */
        {"layers", "model.layers.0", 0},
        {".*q_proj$", "l.0.q_proj", 1},
        {".*q_proj$", "l.0.q_proj.x", 0},
        {".*\\.(q|k|v)_proj$", "l.0.k_proj", 1},
        {"^model\\.layers\\.(?!0\\.)\\d+\\.", "model.layers.10.mlp", 1},
        {"^model\\.layers\\.(?!0\\.)\\d+\\.", "model.layers.0.mlp", 0},
        {"(?i)MODEL", "model", 1},
        {"a{,2}b", "aab", 1}, /* {0,2} */
        {"a{,2}b", "a{,2}b", 0},
        {"a\\Z", "a", 1},
        {"a\\Z", "ab", 0},
        {"[[:x]+$", "[x:[", 1}, /* no classes of POSIX */
        {"[]x]+$", "]x", 1},
        {"[^]]$", "]", 0},
        {"\\u0041B", "AB", 1},
        {"(?P<n>a)(?P=n)$", "aa", 1},
        {"(?P<n>a)(?P=n)$", "ab", 0},
        {"", "anything", 1},
        {"a|b.c", "bxc", 1},
        {"\\d", "\xd9\xa1", 1}, /* digits of all scripts */
        {".*?(?<=x)y", "aaxy", 1},
        {"(a+)+$", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab", -1},
    };
    static const char *const bad[] = {"(",      ")",     "[a",      "*a",       "(*ACCEPT)", "a(*FAIL)", "(?R)",
                                      "(?1)",   "\\K",   "\\Qa\\E", "\\",       "\\g1",      "(?<n>a)",  "(?|a)",
                                      "a\\u12", "(?C1)", "a{2,1}",  "(?<=a*)b", "\\C"};
    nb_error err;
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        nb_pattern *p = NULL;
        if (nb_pattern_new(&p, nb_str_of(rows[i].text), &err) != NB_OK) fail_msg("%s: %s", rows[i].text, err.text);
        int hit = nb_pattern_match(p, nb_str_of(rows[i].name));
        if (hit != rows[i].hit) fail_msg("'%s' on '%s' gives %d", rows[i].text, rows[i].name, hit);
        nb_pattern_free(p);
    }
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_pattern *p = NULL;
        memset(&err, 0, sizeof err);
        if (nb_pattern_new(&p, nb_str_of(bad[i]), &err) != NB_E_INVALID) fail_msg("'%s' was taken", bad[i]);
        assert_null(p);
        assert_non_null(strstr(err.text, "is no regular expression"));
        assert_null(strchr(err.text, '\n'));
    }
    char *deep = malloc(6000);
    assert_non_null(deep);
    nb_pattern *p = NULL;
    memset(deep, '(', 6000);
    assert_int_equal(nb_pattern_new(&p, (nb_str){deep, 6000}, &err), NB_E_INVALID);
    assert_int_equal(nb_pattern_new(&p, (nb_str){deep, 4000}, &err), NB_E_INVALID);
    free(deep);
    printf("covered: %zu matches, %zu refusals\n", NB_COUNT(rows), NB_COUNT(bad) + 2);
}

/* ---- compressed-tensors ---- */

static size_t warnings_with(const fx *x, const char *name, const char *part)
{
    size_t n = 0;
    for (size_t i = 0; i < x->report.n_warnings; i++)
        n += nb_str_has(x->report.warnings[i].name, name) && nb_str_has(x->report.warnings[i].text, part);
    return n;
}

static void print_warnings(const fx *x)
{
    for (size_t i = 0; i < x->report.n_warnings; i++)
        print_error("%.*s: %.*s\n", NB_FMT_STR(x->report.warnings[i].name), NB_FMT_STR(x->report.warnings[i].text));
}

/* One packed matrix [8, 128] of `bits`; scales for groups of `group` columns. */
static void packed(fx *x, const char *module, int bits, int group)
{
    static char names[64][100];
    static size_t used;
    char dims[40];
    int64_t shape[2] = {8, 128};
    char *w = names[used++ % 64], *s = names[used++ % 64], *h = names[used++ % 64];
    snprintf(w, 100, "%s.weight_packed", module);
    snprintf(s, 100, "%s.weight_scale", module);
    snprintf(h, 100, "%s.weight_shape", module);
    snprintf(dims, sizeof dims, "8,%d", 4 * bits);
    fx_fill(x, w, NB_DT_I32, dims, 0x21);
    snprintf(dims, sizeof dims, "8,%d", 128 / group);
    fx_random(x, s, dims, 7);
    fx_add(x, h, NB_DT_I64, "2", shape);
}

static void float_weight(fx *x, const char *name) { fx_random(x, name, "8,128", 9); }

#define W4 "\"weights\":{\"num_bits\":4,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"group\",\"group_size\":32}"
#define W8 "\"weights\":{\"num_bits\":8,\"type\":\"int\",\"symmetric\":true,\"strategy\":\"group\",\"group_size\":64}"

static void ct_config(fx *x, const char *groups, const char *ignore)
{
    char more[3000];
    snprintf(more, sizeof more,
             "\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\","
             "\"config_groups\":{%s},\"ignore\":[%s]}",
             groups, ignore);
    fx_plain_config(x, more);
}

/* A checkpoint of two widths: q_proj 4 bits by 32, down_proj 8 bits by 64, o_proj BF16. */
static void two_groups(fx *x, const char *groups, const char *ignore)
{
    fx_clear(x);
    ct_config(x, groups, ignore);
    packed(x, "model.layers.0.self_attn.q_proj", 4, 32);
    packed(x, "model.layers.0.mlp.down_proj", 8, 64);
    float_weight(x, "model.layers.0.self_attn.o_proj.weight");
    fx_save(x, "model.safetensors");
}

/* Each module is found by the right group: then nothing contradicts anything. Exchanged, every field does. */
static void mixed(void **state)
{
    (void)state;
    static const struct {
        const char *groups, *ignore, *name, *warning; /* NULL: none */
    } rows[] = {
        {"\"a\":{\"targets\":[\"re:.*self_attn\\\\.(q|k|v|o)_proj$\"]," W4
         "},\"b\":{\"targets\":[\"re:.*down_proj\"]," W8 "}",
         "\"re:.*o_proj$\"", NULL, NULL},
        {"\"a\":{\"targets\":[\"Linear\"]," W4 "},\"b\":{\"targets\":[\"re:.*down_proj\"]," W8 "}",
         "\"model.layers.0.self_attn.o_proj\"", NULL, NULL}, /* an expression goes before a class */
        {"\"b\":{\"targets\":[\"re:.*proj\"]," W8 "},\"a\":{\"targets\":[\"model.layers.0.self_attn.q_proj\"]," W4 "}",
         "\"re:.*o_proj\"", NULL, NULL}, /* a name before an expression */
        {"\"a\":{\"targets\":[\"re:.*\"]," W4 "},\"b\":{\"targets\":[\"re:.*[n]_proj\"]," W8 "}", "\"re:.*o_proj\"",
         "down_proj", "config says 4 bits"}, /* of two expressions the first in byte order: "re:.*" */
        {"\"a\":{\"targets\":[\"re:.*down_proj\"]," W4 "},\"b\":{\"targets\":[\"re:.*q_proj\"]," W8 "}",
         "\"re:.*o_proj\"", "q_proj", "config says 8 bits, the shapes say 4"},
        {"\"a\":{\"targets\":[\"re:.*down_proj\"]," W4 "},\"b\":{\"targets\":[\"re:.*q_proj\"]," W8 "}",
         "\"re:.*o_proj\"", "down_proj", "config says groups of 32, the shapes say 64"},
        {"\"a\":{\"targets\":[\"re:down_proj\"]," W8 "},\"b\":{\"targets\":[\"re:.*q_proj\"]," W4 "}",
         "\"re:.*o_proj\"", "down_proj", "no group of config.json: config_groups targets 1 modules"},
        {"\"a\":{\"targets\":[\"re:.*q_proj\"]," W4 "},\"b\":{\"targets\":[\"re:.*down_proj\"]," W8 "}",
         "\"re:.*(o|q)_proj\"", "q_proj", "lists 1 modules as not quantised"},
        {"\"a\":{\"targets\":[\"Linear\"]," W4 "},\"b\":{\"targets\":[\"re:.*down_proj\"]," W8 "}", "", "o_proj",
         "config_groups.a targets 1 modules, this one first, whose tensors are BF16"},
        {"\"a\":{\"targets\":[\"Linear\"]," W4 "},\"b\":{\"targets\":[\"Linear\"]," W8 "}", "\"re:.*o_proj\"", "q_proj",
         "config says 8 bits"}, /* the same target twice: the later group has it */
        {"\"a\":{\"targets\":[\"ZapLinear\"]," W8 "},\"b\":{\"targets\":[\"re:.*q_proj\"]," W4 "}", "\"re:.*o_proj\"",
         NULL, NULL}, /* a class that nobody knows: the rest */
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        two_groups(x, rows[i].groups, rows[i].ignore);
        fx_ok(x, fx_create(x, "none"));
        if (rows[i].warning) {
            if (warnings_with(x, rows[i].name, rows[i].warning) == 0) {
                print_warnings(x);
                fail_msg("row %zu: no warning '%s'", i, rows[i].warning);
            }
        } else if (warnings_with(x, "proj", "")) {
            print_warnings(x);
            fail_msg("row %zu: a warning", i);
        }
        fx_blob b = fx_open(x, "model.layers.0.self_attn.q_proj.weight");
        fx_meta(&b, "quant_type", "int4");
        fx_close(&b);
        b = fx_open(x, "model.layers.0.mlp.down_proj.weight");
        fx_meta(&b, "quant_type", "int8");
        fx_meta(&b, "group_size", "64");
        fx_close(&b);
        fx_free(x);
    }
    printf("covered: %zu pairs of groups\n", NB_COUNT(rows));
}

/* Names of another namespace, and a fused matrix by its parts. */
static void other_names(void **state)
{
    (void)state;
    static const struct {
        const char *module, *ignore;
        bool known;
    } rows[] = {
        {"language_model.model.layers.0.q_proj", "\"model.language_model.layers.0.q_proj\"", true},
        {"model.language_model.layers.0.q_proj", "\"re:language_model\\\\.model\\\\..*q_proj\"", true},
        {"layers.0.q_proj", "\"model.layers.0.q_proj\"", true},
        {"model.layers.0.q_proj", "\"layers.0.q_proj\"", true},
        {"model.layers.0.qkv_proj", "\"re:.*\\\\.v_proj\"", true},
        {"model.layers.0.gate_up_proj", "\"model.layers.0.up_proj\"", true},
        {"model.layers.0.gate_up_proj", "\"model.layers.0.down_proj\"", false},
        {"model.layers.0.q_proj", "\"vision.layers.0.q_proj\"", false},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char name[120];
        /* what is ignored and float is no contradiction: the warning stays out where the name was understood */
        ct_config(x, "\"a\":{\"targets\":[\"Linear\"]," W4 "}", rows[i].ignore);
        snprintf(name, sizeof name, "%s.weight", rows[i].module);
        float_weight(x, name);
        packed(x, "model.layers.1.o_proj", 4, 32);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        if (warnings_with(x, rows[i].module, "config_groups.a targets") != (rows[i].known ? 0 : 1)) {
            print_warnings(x);
            fail_msg("row %zu", i);
        }
        fx_free(x);
    }
}

/* The tensors alone, and where they do not tell. */
static void bits_of_packed(void **state)
{
    (void)state;
    static const struct {
        const char *group;
        int bits, words;
        const char *type, *part; /* type NULL: refused */
    } rows[] = {
        {"{}", 4, 0, "int4", NULL},
        {"{\"num_bits\":8}", 4, 0, "int4", "config says 8 bits, the shapes say 4"},
        {"{\"num_bits\":4}", 8, 0, "int8", "config says 4 bits, the shapes say 8"},
        {"{\"num_bits\":99}", 3, 0, "int3", "config says 99 bits, the shapes say 3"},
        {"{}", 6, 0, "int6", NULL},
        {"{\"num_bits\":5}", 5, 22, "int5", NULL}, /* old: 6 codes to a word */
        {"{}", 5, 22, "int5", NULL},
        {"{\"num_bits\":7}", 8, 0, NULL, "E_FORMAT_UNSUPPORTED"}, /* or 8 */
        {"{\"num_bits\":1}", 4, 0, NULL, "E_FORMAT_UNSUPPORTED"},
        {"{\"num_bits\":4}", 4, 15, NULL, "E_QUANT_SHAPE"},
        {"{\"num_bits\":4,\"strategy\":\"channel\"}", 4, 0, "int4", "strategy is \"channel\""},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char groups[300], dims[40];
        int64_t shape[2] = {8, 128};
        snprintf(groups, sizeof groups, "\"group_0\":{\"targets\":[\"Linear\"],\"weights\":%s}", rows[i].group);
        ct_config(x, groups, "");
        snprintf(dims, sizeof dims, "8,%d", rows[i].words ? rows[i].words : 4 * rows[i].bits);
        fx_fill(x, "l.weight_packed", NB_DT_I32, dims, 0x21);
        fx_random(x, "l.weight_scale", "8,4", 7);
        fx_add(x, "l.weight_shape", NB_DT_I64, "2", shape);
        fx_save(x, "model.safetensors");
        nb_status st = fx_create(x, "none");
        if (!rows[i].type) {
            fx_fails(x, st, strstr(rows[i].part, "SHAPE") ? NB_E_INVALID : NB_E_UNSUPPORTED, rows[i].part);
            fx_nothing_left(x);
        } else {
            fx_ok(x, st);
            if (warnings_with(x, "l.", "") != (rows[i].part ? 1 : 0) ||
                (rows[i].part && !warnings_with(x, "l.", rows[i].part))) {
                print_warnings(x);
                fail_msg("row %zu", i);
            }
            fx_blob b = fx_open(x, "l.weight");
            fx_meta(&b, "quant_type", rows[i].type);
            fx_close(&b);
        }
        fx_free(x);
    }
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *groups, *ignore, *part;
        nb_status st;
    } rows[] = {
        {"\"a\":{\"targets\":[\"re:.*(q_proj\"]," W4 "}", "", "config.json: config_groups.a.targets: '.*(q_proj' is no",
         NB_E_INVALID},
        {"\"a\":{\"targets\":[\"Linear\"]," W4 "}", "\"re:lm_head\",\"re:[z\"", "config.json: ignore: '[z' is no",
         NB_E_INVALID},
        {"\"a\":{\"targets\":[\"re:(?:[a-z0-9_.]+)+\\\\.$\"]," W4 "}", "", "takes too many steps on the name", NB_E_INVALID},
        {"\"a\":{\"targets\":[\"Linear\"],\"format\":\"marlin-24\"," W4 "}", "", "Marlin 2:4 sparse", NB_E_UNSUPPORTED},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        two_groups(x, rows[i].groups, rows[i].ignore);
        fx_fails(x, fx_create(x, "none"), rows[i].st, rows[i].part);
        fx_nothing_left(x);
        fx_free(x);
    }
}

/* Codes in bytes with E8M0 scales are MXFP4, unless their group says that they are integers. */
static void bytes_of_two_kinds(void **state)
{
    (void)state;
    for (int integer = 0; integer < 2; integer++) {
        fx *x = fx_new();
        char groups[200];
        snprintf(groups, sizeof groups,
                 "\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{\"num_bits\":4,\"type\":\"%s\"}}",
                 integer ? "int" : "float");
        ct_config(x, groups, "");
        fx_fill(x, "l.weight_packed", NB_DT_U8, "2,16", 0x21);
        fx_fill(x, "l.weight_scale", NB_DT_U8, "2,1", 127);
        fx_save(x, "model.safetensors");
        if (integer)
            fx_fails(x, fx_create(x, "none"), NB_E_UNSUPPORTED, "config_groups.group_0.weights.type is int");
        else
            fx_ok(x, fx_create(x, "none"));
        fx_free(x);
    }
}

/* What a group says of floats, against them. */
static void float_groups(void **state)
{
    (void)state;
    static const struct {
        const char *weights, *part; /* NULL: no warning */
    } rows[] = {
        {"\"num_bits\":4,\"type\":\"float\",\"strategy\":\"tensor_group\",\"group_size\":16", NULL},
        {"\"num_bits\":8,\"type\":\"float\"", "weights.num_bits is 8, but 1 tensors, this one first, are ct-nvfp4"},
        {"\"num_bits\":4,\"type\":\"int\"", "weights.type is \"int\", but 1 tensors"},
        {"\"num_bits\":4,\"type\":\"float\",\"group_size\":32", "weights.group_size is 32"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char groups[300];
        float divisor = 2;
        snprintf(groups, sizeof groups, "\"group_0\":{\"targets\":[\"Linear\"],\"weights\":{%s}}", rows[i].weights);
        ct_config(x, groups, "");
        fx_fill(x, "l.weight_packed", NB_DT_U8, "2,16", 0x21);
        fx_fill(x, "l.weight_scale", NB_DT_F8_E4M3, "2,2", 0x38);
        fx_add(x, "l.weight_global_scale", NB_DT_F32, "1", &divisor);
        fx_save(x, "model.safetensors");
        fx_ok(x, fx_create(x, "none"));
        assert_int_equal(warnings_with(x, "l.", ""), rows[i].part ? 1 : 0);
        if (rows[i].part) assert_int_equal(warnings_with(x, "l.", rows[i].part), 1);
        fx_free(x);
    }
}

/* ---- GPTQ ---- */

/* One matrix of 128 inputs and 32 outputs, groups of 64. */
static void gptq(fx *x, int bits, const char *quant)
{
    char more[1200], dims[40];
    snprintf(more, sizeof more, "\"quantization_config\":%s", quant);
    fx_plain_config(x, more);
    snprintf(dims, sizeof dims, "%d,32", 4 * bits);
    fx_fill(x, "model.layers.1.q_proj.qweight", NB_DT_I32, dims, 0x21);
    snprintf(dims, sizeof dims, "2,%d", bits);
    fx_fill(x, "model.layers.1.q_proj.qzeros", NB_DT_I32, dims, bits == 8 ? 0x7f : bits == 4 ? 0x77 : 0x55);
    fx_random(x, "model.layers.1.q_proj.scales", "2,32", 3);
    fx_save(x, "model.safetensors");
}

static void gptq_widths(void **state)
{
    (void)state;
    static const struct {
        int bits;
        const char *quant, *part; /* NULL: no warning */
    } rows[] = {
        {4, "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":64}", NULL},
        {4, "{\"quant_method\":\"gptq\"}", NULL},
        {8, "{\"quant_method\":\"gptq\"}", NULL},
        {2, "{}", NULL},
        {3, "{\"quant_method\":\"gptq\",\"bits\":null}", NULL},
        {4, "{\"quant_method\":\"gptq\",\"bits\":8}", "config says 8 bits, the shapes say 4"},
        {8, "{\"quant_method\":\"gptq\",\"bits\":4}", "config says 4 bits, the shapes say 8"},
        {4, "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}", "config says groups of 32, the shapes say 64"},
        {8, "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"+:.*\\\\.1\\\\.q_proj\":{\"bits\":8}}}", NULL},
        {8, "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\".*q_proj\":{\"bits\":8,\"group_size\":64}}}", NULL},
        {4, "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"+:.*q_proj\":{\"bits\":8}}}",
         "config says 8 bits, the shapes say 4"},
        {8, "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"+:.*k_proj\":{\"bits\":8}}}",
         "config says 4 bits, the shapes say 8"},
        {8,
         "{\"quant_method\":\"gptq\",\"bits\":8,\"dynamic\":{\"+:model\\\\.layers\\\\.1\\\\.\":{},"
         "\"+:.*\":{\"bits\":2}}}",
         NULL}, /* the first that matches */
        {4, "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"-:.*q_proj\":{}}}", "config says not quantised"},
        {4, "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"-:q_proj\":{}}}", NULL},
        {8, "{\"quant_method\":\"auto-round\",\"bits\":4,\"extra_config\":{\"model.layers.1.q_proj\":{\"bits\":8}}}",
         NULL},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char type[8];
        gptq(x, rows[i].bits, rows[i].quant);
        fx_ok(x, fx_create(x, "none"));
        if (warnings_with(x, "q_proj", "") != (rows[i].part ? 1 : 0) ||
            (rows[i].part && !warnings_with(x, "q_proj", rows[i].part))) {
            print_warnings(x);
            fail_msg("row %zu", i);
        }
        fx_blob b = fx_open(x, "model.layers.1.q_proj.weight");
        snprintf(type, sizeof type, "int%d", rows[i].bits);
        fx_meta(&b, "quant_type", type);
        fx_meta(&b, "group_size", "64");
        fx_close(&b);
        fx_free(x);
    }
    printf("covered: %zu configs\n", NB_COUNT(rows));
}

/* Tensors that contradict each other, expressions that are none, widths that are not stored. */
static void gptq_refused(void **state)
{
    (void)state;
    static const struct {
        const char *weight, *zeros, *scales, *quant, *part;
        nb_status st;
    } rows[] = {
        {"16,32", "2,5", "2,32", "{\"bits\":4}", "zero points [2,5]", NB_E_INVALID},
        {"15,32", "7,4", "7,32", "{\"bits\":4}", "E_QUANT_SHAPE", NB_E_INVALID},
        {"16,32", "2,4", "2,64", "{\"bits\":4}", "the config says 4 bits", NB_E_INVALID},
        {"4,1", "1,1", "1,1", "{}", "the config says no bits", NB_E_INVALID}, /* any width */
        {"20,32", "2,5", "2,32", "{}", "GPTQ with 5 bits", NB_E_UNSUPPORTED},
        {"16,32", "2,4", "2,32", "{\"dynamic\":{\"+:(\":{}}}", "config.json: dynamic: '(' is no regular expression",
         NB_E_INVALID},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        fx *x = fx_new();
        char more[300];
        snprintf(more, sizeof more, "\"quantization_config\":%s", rows[i].quant);
        fx_plain_config(x, more);
        fx_fill(x, "l.qweight", NB_DT_I32, rows[i].weight, 0x21);
        fx_fill(x, "l.qzeros", NB_DT_I32, rows[i].zeros, 0x77);
        fx_random(x, "l.scales", rows[i].scales, 3);
        fx_save(x, "model.safetensors");
        fx_fails(x, fx_create(x, "none"), rows[i].st, rows[i].part);
        fx_nothing_left(x);
        fx_free(x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns),       cmocka_unit_test(mixed),       cmocka_unit_test(other_names),
        cmocka_unit_test(bits_of_packed), cmocka_unit_test(refused),     cmocka_unit_test(bytes_of_two_kinds),
        cmocka_unit_test(float_groups),   cmocka_unit_test(gptq_widths), cmocka_unit_test(gptq_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
