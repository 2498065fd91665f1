/* Runs every vectors.json.xz of the test data: ids, decoded texts, pairs and streams of what the publishers' packages give. */
#include "tok_testlib.h"

static size_t checked, wrong, folders, late; /* late: pieces that the eager way shows earlier */
static const char *only; /* NB_TOK_ONLY: one folder, for debugging */

static nb_str str_of(const nb_json *v, const char *key)
{
    nb_str s = {0};
    nb_json_str(nb_json_get(v, key), &s);
    return s;
}

static void report(const char *name, const char *what, size_t i, const nb_json *c, const char *detail)
{
    nb_str group = str_of(c, "group");
    if (++wrong <= 40) print_error("%s: %s %zu (%.*s): %s\n", name, what, i, NB_FMT_STR(group), detail);
}

static void show_ids(nb_buf *b, const int32_t *id, size_t n)
{
    for (size_t i = 0; i < n && i < 40; i++) nb_buf_printf(b, "%d ", id[i]);
}

static bool same_ids(const nb_ids *got, const nb_json *want)
{
    int64_t id;
    if (got->n != want->count) return false;
    for (uint32_t i = 0; i < want->count; i++)
        if (!nb_json_i64(&want->items[i], &id) || id != got->id[i]) return false;
    return true;
}

static void check_encode(const nb_tokenizer *t, const char *name, size_t i, const nb_json *c, int flags, const char *key)
{
    const nb_json *want = nb_json_get(c, key);
    nb_ids got = {0};
    nb_error err = {0};
    if (!want) return;
    checked++;
    nb_status st = nb_tokenizer_encode(t, str_of(c, "text"), flags, &got, &err);
    if (st) report(name, key, i, c, err.text);
    else if (!same_ids(&got, want)) {
        nb_buf b = {0}, w = {0};
        int64_t id;
        show_ids(&b, got.id, got.n);
        for (uint32_t k = 0; k < want->count && k < 40; k++) nb_json_i64(&want->items[k], &id), nb_buf_printf(&w, "%d ", (int)id);
        nb_str text = str_of(c, "text");
        nb_buf all = {0};
        nb_buf_printf(&all, "'%.*s' got %s want %s", text.n > 100 ? 100 : (int)text.n, text.p, nb_buf_cstr(&b), nb_buf_cstr(&w));
        report(name, key, i, c, nb_buf_cstr(&all));
        nb_buf_free(&b), nb_buf_free(&w), nb_buf_free(&all);
    }
    nb_ids_free(&got);
}

static int32_t *ids_of(const nb_json *v, size_t *n)
{
    int32_t *id = malloc((v->count + 1) * sizeof *id);
    *n = v->count;
    for (uint32_t i = 0; i < v->count; i++) {
        int64_t x = -1;
        nb_json_i64(&v->items[i], &x);
        id[i] = x > INT32_MAX ? -1 : (int32_t)x; /* ids that no int32 holds exist no more than -1 does */
    }
    return id;
}

static void check_decode(const nb_tokenizer *t, const char *name, size_t i, const nb_json *c, bool skip, const char *key)
{
    nb_buf got = {0};
    nb_error err = {0};
    size_t n;
    if (!nb_json_get(c, key)) return;
    checked++;
    int32_t *id = ids_of(nb_json_get(c, "ids"), &n);
    nb_status st = nb_tokenizer_decode(t, id, n, skip, &got, &err);
    if (st) report(name, key, i, c, err.text);
    else if (!nb_str_eq((nb_str){got.p, got.n}, str_of(c, key))) {
        nb_buf all = {0};
        nb_str want = str_of(c, key);
        nb_buf_printf(&all, "got '%.*s' want '%.*s'", got.n > 200 ? 200 : (int)got.n, got.p ? got.p : "", want.n > 200 ? 200 : (int)want.n, want.p);
        report(name, key, i, c, nb_buf_cstr(&all));
        nb_buf_free(&all);
    }
    free(id);
    nb_buf_free(&got);
}

/* Each piece is whole characters; in a well-formed stream they add up to `decoded`; and they come either as the eager
 * way shows them or as DecodeStream does, or between the two. */
static void check_stream(const nb_tokenizer *t, const char *name, size_t i, const nb_json *c)
{
    nb_error err = {0};
    nb_buf all = {0}, piece = {0}, eager = {0};
    size_t n;
    bool well = false;
    const char *problem = NULL;
    const nb_json *want = nb_json_get(c, "pieces_eager");
    int32_t *id = ids_of(nb_json_get(c, "ids"), &n);
    nb_decode_stream *s = nb_decode_stream_new(t, false);
    nb_json_bool(nb_json_get(c, "well_formed"), &well);
    checked++;
    for (size_t k = 0; k <= n && !problem; k++) {
        piece.n = 0;
        nb_status st = k < n ? nb_decode_stream_push(s, id[k], &piece, &err) : nb_decode_stream_flush(s, &piece, &err);
        if (st) problem = err.text;
        if (nb_utf8_valid_prefix(piece.p, piece.n) != piece.n) problem = "a piece with half a character";
        nb_buf_add(&all, piece.p, piece.n);
        if (want && k < want->count) {
            nb_buf_add_str(&eager, want->items[k].text);
            if (eager.n < all.n) problem = "a piece comes before its time";
            late += eager.n > all.n;
        }
    }
    if (!problem && want && !nb_str_eq(nb_buf_str(&all), nb_buf_str(&eager))) problem = "the pieces do not add up to those of the eager way";
    if (!problem && well && !nb_str_eq(nb_buf_str(&all), str_of(c, "decoded"))) problem = "the pieces do not add up to the whole";
    if (problem) {
        nb_buf d = {0};
        nb_str dec = str_of(c, "decoded");
        nb_buf_printf(&d, "%s: '%.*s' for '%.*s'", problem, (int)all.n, all.p ? all.p : "", NB_FMT_STR(dec));
        report(name, "stream", i, c, nb_buf_cstr(&d));
        nb_buf_free(&d);
    }
    nb_decode_stream_free(s);
    free(id);
    nb_buf_free(&all), nb_buf_free(&piece), nb_buf_free(&eager);
}

static void check_pair(const nb_tokenizer *t, const char *name, size_t i, const nb_json *c)
{
    nb_ids got = {0}, types = {0};
    nb_error err = {0};
    checked++;
    nb_status st = nb_tokenizer_encode_pair(t, str_of(c, "a"), str_of(c, "b"), NB_ENC_SPECIALS | NB_ENC_PARSE_ADDED, &got, &types, &err);
    if (st) report(name, "pair", i, c, err.text);
    else if (!same_ids(&got, nb_json_get(c, "ids"))) report(name, "pair", i, c, "other ids");
    else if (!same_ids(&types, nb_json_get(c, "type_ids"))) report(name, "pair", i, c, "other type ids");
    nb_ids_free(&got);
    nb_ids_free(&types);
}

/* All texts, again and again in other orders, as one long text: with offsets nothing comes from a cache, and must be the same. */
static void check_long(const nb_tokenizer *t, const char *name, const nb_json *cases)
{
    static const char *const between[] = {"", " ", "\n", "1", ". "};
    nb_buf text = {0};
    nb_ids a = {0}, b = {0};
    nb_error err = {0};
    uint32_t random = 12345;
    while (cases && cases->count && text.n < 200000) {
        random = random * 1664525 + 1013904223;
        nb_str s = str_of(&cases->items[(random >> 8) % cases->count], "text");
        if (s.n > 2000) continue;
        nb_buf_add_str(&text, s);
        nb_buf_add_cstr(&text, between[(random >> 4) % NB_COUNT(between)]);
    }
    nb_str whole = {text.n ? text.p : "", text.n};
    checked++;
    nb_status st = nb_tokenizer_encode(t, whole, NB_ENC_PARSE_ADDED, &a, &err);
    nb_status st2 = nb_tokenizer_encode(t, whole, NB_ENC_PARSE_ADDED | NB_ENC_OFFSETS, &b, &err);
    if (st || st2 || a.n != b.n || (a.n && memcmp(a.id, b.id, a.n * sizeof *a.id))) {
        wrong++;
        print_error("%s: %zu bytes give %zu ids, with offsets %zu %s\n", name, text.n, a.n, b.n, err.text);
    }
    nb_ids_free(&a), nb_ids_free(&b);
    nb_buf_free(&text);
}

static bool whole_sections(const char *dir)
{
    nb_buf b = {0};
    nb_json_doc doc = {0};
    bool has = false;
    if (read_data(&b, dir, "tokenizer.json") && !nb_json_parse(&doc, b.p, b.n, "tokenizer.json", NULL, NULL))
        has = nb_json_present(nb_json_get(doc.root, "truncation")) || nb_json_present(nb_json_get(doc.root, "padding"));
    nb_json_free(&doc);
    nb_buf_free(&b);
    return has;
}

static void check_folder(const char *dir, const char *name)
{
    nb_buf b = {0};
    nb_json_doc doc = {0};
    nb_error err = {0};
    nb_json_limits limits = {.max_bytes = 1u << 30};
    if (only && strcmp(only, name)) return;
    nb_tokenizer *t = load_tokenizer(dir);
    if (!t || !read_data(&b, dir, "vectors.json")) fail_msg("%s: no tokenizer", dir);
    if (nb_json_parse(&doc, b.p, b.n, "vectors.json", &limits, &err)) fail_msg("%s: %s", dir, err.text);
    size_t before = wrong, had = checked, behind = late;
    bool sp = nb_json_get(doc.root, "decode") != NULL;
    const nb_json *v = nb_json_get(doc.root, "cases");
    for (uint32_t i = 0; v && i < v->count; i++) {
        const nb_json *c = &v->items[i];
        /* Truncation and padding of the file are for batches; ids_whole is without them. */
        bool whole = nb_json_get(c, "ids_whole") != NULL;
        check_encode(t, name, i, c, sp ? 0 : NB_ENC_SPECIALS | NB_ENC_PARSE_ADDED, whole ? "ids_whole" : "ids");
        if (!whole) check_encode(t, name, i, c, NB_ENC_PARSE_ADDED, "ids_no_special");
        check_encode(t, name, i, c, (sp ? 0 : NB_ENC_SPECIALS | NB_ENC_PARSE_ADDED) | NB_ENC_OFFSETS, whole ? "ids_whole" : "ids");
        check_decode(t, name, i, c, false, "decoded");
        check_decode(t, name, i, c, true, "decoded_skip");
    }
    check_long(t, name, v);
    v = nb_json_get(doc.root, "decode");
    for (uint32_t i = 0; v && i < v->count; i++) check_decode(t, name, i, &v->items[i], false, "decoded");
    v = nb_json_get(doc.root, "stream");
    for (uint32_t i = 0; v && i < v->count; i++) check_stream(t, name, i, &v->items[i]);
    /* Pairs of a file with truncation or padding were made with both: those sections are for batches, as above. */
    v = whole_sections(dir) ? NULL : nb_json_get(doc.root, "pairs");
    for (uint32_t i = 0; v && i < v->count; i++) check_pair(t, name, i, &v->items[i]);
    print_message("%-24s %6zu checks, %zu wrong%s\n", name, checked - had, wrong - before, late > behind ? " (byte runs held back until they are whole)" : "");
    folders++;
    nb_json_free(&doc);
    nb_buf_free(&b);
    nb_tokenizer_free(t);
}

static void test_vectors(void **state)
{
    char root[4096];
    (void)state;
    only = getenv("NB_TOK_ONLY");
    snprintf(root, sizeof root, "%s/tokenizers", test_data());
    size_t n = each_folder(root, "vectors.json", check_folder);
    snprintf(root, sizeof root, "%s/tokenizers/components", test_data());
    n += each_folder(root, "vectors.json", check_folder);
    print_message("%zu folders, %zu checks, %zu wrong\n", folders, checked, wrong);
    if (!n) {
        print_message("skipped: no tokenizers in %s\n", test_data());
        skip();
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors)};
    return cmocka_run_group_tests_name("tokenizer vectors", tests, NULL, NULL);
}
