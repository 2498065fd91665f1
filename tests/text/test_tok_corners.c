/* Corners of tokenizer.json that no published file has: each row is what the `tokenizers` package gives, and what it takes but nibble refuses by name. */
#include "tok_testlib.h"

/* One-letter tokens, and the same behind another letter: borders of pieces show in the ids. */
static const char letters[] = "{\"type\": \"BPE\", \"continuing_subword_prefix\": \"#\", \"vocab\": {\"a\": 0, \"b\": 1, \" \": 2, \"-\": 3, \"#a\": 4, \"#b\": 5, \"# \": 6, \"#-\": 7}, \"merges\": []}";

static nb_status load(nb_tokenizer **t, const char *more, const char *model, nb_error *err)
{
    nb_buf b = {0};
    nb_buf_printf(&b, "{%s%s\"model\": %s}", more, *more ? ", " : "", model ? model : letters);
    nb_status st = nb_tokenizer_from_json(t, b.p, b.n, NULL, err);
    nb_buf_free(&b);
    return st;
}

static const struct row { const char *name, *more, *model, *text, *ids, *decoded, *skipped; } rows[] = {
    {"Split at the empty text, Isolated", "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"\"}, \"behavior\": \"Isolated\", \"invert\": false}", NULL, "ab a", "0 1 2 0", "a b   a", "a b   a"},
    {"Split at the empty text, Removed", "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"\"}, \"behavior\": \"Removed\", \"invert\": true}", NULL, "ab a", "", "", ""},
    {"Split at the empty text, MergedWithNext", "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"\"}, \"behavior\": \"MergedWithNext\", \"invert\": false}", NULL, "ab a", "0 1 2 0", "a b   a", "a b   a"},
    {"Replace of the empty text", "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"-\"}", NULL, "ab", "3 4 7 5 7", "- #a #- #b #-", "- #a #- #b #-"},
    {"BPEDecoder without a suffix", "\"decoder\": {\"type\": \"BPEDecoder\", \"suffix\": \"\"}", NULL, "ab", "0 5", " a #b", " a #b"},
    {"CTC without a delimiter", "\"decoder\": {\"type\": \"CTC\", \"pad_token\": \"\", \"word_delimiter_token\": \"\", \"cleanup\": true}", NULL, "ab-", "0 5 7", " a  # b  # - ", " a  # b  # - "},
    {"Replace of the empty text, in the decoder", "\"decoder\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"+\"}", NULL, "ab", "0 5", "+a++#+b+", "+a++#+b+"},
    {"whole pieces with a dropout of one", "", "{\"type\": \"BPE\", \"dropout\": 1.0, \"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": true, \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}", "ab", "0 1", "a b", "a b"},
    {"whole pieces", "", "{\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": true, \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}", "ab", "2", "ab", "ab"},
    {"scores that rounding decides", "", "{\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": false, \"vocab\": [[\"u\", -20.0], [\"a\", -9.013167991554875], [\"aaa\", -10.83746908209646], [\"aaaaa\", -11.259354014328007]]}", "aaaaaaaaaaa", "1 3 3", "a aaaaa aaaaa", "a aaaaa aaaaa"},
    {"an unknown token whose text comes twice", "\"added_tokens\": [{\"id\": 2, \"content\": \"u\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}]", "{\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": false, \"vocab\": [[\"u\", -20.0], [\"a\", -1.0], [\"u\", -3.0]]}", "axu", "1 0 2", "a u u", "a"},
    {"a special token shown as another one", "\"normalizer\": {\"type\": \"Lowercase\"}, \"added_tokens\": [{\"id\": 0, \"content\": \"A\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": true, \"special\": true}, {\"id\": 0, \"content\": \"a\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true}]", "{\"type\": \"WordLevel\", \"vocab\": {\"x\": 0, \"A\": 1, \"a\": 2, \"b\": 3}, \"unk_token\": \"x\"}", "A", "1", "a", ""},
    {"a special token shown otherwise", "\"normalizer\": {\"type\": \"Lowercase\"}, \"added_tokens\": [{\"id\": 0, \"content\": \"A\", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": true, \"special\": true}]", "{\"type\": \"WordLevel\", \"vocab\": {\"x\": 0, \"A\": 1, \"q\": 2, \"b\": 3}, \"unk_token\": \"x\"}", "A", "1", "a", "a"},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        const struct row *r = &rows[i];
        nb_tokenizer *t = NULL;
        nb_error err = {0};
        nb_ids v = {0};
        nb_buf ids = {0}, text = {0};
        if (load(&t, r->more, r->model, &err)) fail_msg("%s: %s", r->name, err.text);
        assert_int_equal(nb_tokenizer_encode(t, nb_str_of(r->text), NB_ENC_PARSE_ADDED, &v, &err), NB_OK);
        for (size_t k = 0; k < v.n; k++) nb_buf_printf(&ids, k ? " %d" : "%d", v.id[k]);
        if (strcmp(nb_buf_cstr(&ids), r->ids)) fail_msg("%s: ids %s, wanted %s", r->name, nb_buf_cstr(&ids), r->ids);
        for (int skip = 0; skip < 2; skip++) {
            const char *want = skip ? r->skipped : r->decoded;
            text.n = 0;
            assert_int_equal(nb_tokenizer_decode(t, v.id, v.n, skip, &text, &err), NB_OK);
            if (strcmp(nb_buf_cstr(&text), want)) fail_msg("%s: '%s', wanted '%s'", r->name, nb_buf_cstr(&text), want);
        }
        nb_ids_free(&v);
        nb_buf_free(&ids), nb_buf_free(&text);
        nb_tokenizer_free(t);
    }
}

static void test_refused(void **state)
{
    static const struct { const char *more, *model, *names; nb_status status; } t[] = {
        {"\"pre_tokenizer\": {\"type\": \"FixedLength\", \"length\": 0}", NULL, "length of FixedLength", NB_E_INVALID},
        {"\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 9999], \"cls\": [\"a\", 0]}", NULL, "'sep' must be a token and its id", NB_E_INVALID},
        {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": {\"id\": \"x\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {\"x\": {\"id\": \"x\", \"ids\": [9999], \"tokens\": [\"x\"]}}}", NULL,
         "special token 'x' has an id that no token has", NB_E_INVALID},
        {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}], \"pair\": [], \"special_tokens\": {}}", NULL, "a template for one text names it 2 times", NB_E_UNSUPPORTED},
        {"\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [], \"pair\": [], \"special_tokens\": {}}", NULL, "a template for one text names it 0 times", NB_E_UNSUPPORTED},
        {"", "{\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"b\": 0}, \"unk_token\": \"a\"}", "two entries have the id 0", NB_E_UNSUPPORTED},
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        nb_tokenizer *k = NULL;
        nb_error err = {0};
        nb_status st = load(&k, t[i].more, t[i].model, &err);
        if (st != t[i].status || !strstr(err.text, t[i].names)) fail_msg("%s: %d '%s', wanted '%s'", t[i].more, st, err.text, t[i].names);
        assert_null(k);
    }
}

/* Four rounds of Replace by a hundred characters each make 10^8 bytes of one. */
static void test_growth(void **state)
{
    (void)state;
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    nb_ids v = {0};
    nb_buf more = {0};
    nb_buf_printf(&more, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    for (int i = 0; i < 4; i++) nb_buf_printf(&more, "%s{\"type\": \"Replace\", \"pattern\": {\"String\": \"a\"}, \"content\": \"%0100d\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \"0\"}, \"content\": \"a\"}", i ? ", " : "", 0);
    nb_buf_printf(&more, "]}");
    assert_int_equal(load(&t, nb_buf_cstr(&more), NULL, &err), NB_OK);
    assert_int_equal(nb_tokenizer_encode(t, NB_LIT("bb"), 0, &v, &err), NB_OK);
    assert_int_equal(v.n, 2);
    assert_int_equal(nb_tokenizer_encode(t, NB_LIT("aab"), 0, &v, &err), NB_E_INVALID);
    assert_non_null(strstr(err.text, "a normalizer makes more than 1049344 bytes of 3"));
    nb_ids_free(&v);
    nb_buf_free(&more);
    nb_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_refused), cmocka_unit_test(test_growth)};
    return cmocka_run_group_tests_name("corners", tests, NULL, NULL);
}
