/* Tokenizers from files that a config adds to: tokenizer.model of the test data, vocab.json with merges.txt, ranks. The ids
 * themselves are compared with transformers in tests/python/test_tokenizer_files.py. */
#include "tok_testlib.h"

static nb_json_doc parsed(const char *text)
{
    nb_json_doc d = {0};
    nb_error err = {0};
    if (nb_json_parse(&d, text, strlen(text), "config", NULL, &err)) fail_msg("%s", err.text);
    return d;
}

/* Ids of one text. */
static void expect(const nb_tokenizer *t, const char *text, bool trusted, const int32_t *want, size_t n)
{
    nb_ids v = {0};
    nb_error err = {0};
    nb_span s = {nb_str_of(text), trusted};
    if (nb_tokenizer_encode_spans(t, &s, 1, NB_ENC_PARSE_ADDED, &v, &err)) fail_msg("%s", err.text);
    bool same = v.n == n && (!n || !memcmp(v.id, want, n * sizeof *want));
    for (size_t i = 0; i < v.n && !same; i++) print_error("%d ", v.id[i]);
    if (!same) fail_msg("'%s' gave these", text);
    nb_ids_free(&v);
}

static bool has_special(const nb_tokenizer *t, const char *text, bool trusted)
{
    nb_ids v = {0};
    nb_error err = {0};
    nb_span s = {nb_str_of(text), trusted};
    bool any = false;
    if (nb_tokenizer_encode_spans(t, &s, 1, NB_ENC_PARSE_ADDED, &v, &err)) fail_msg("%s", err.text);
    for (size_t i = 0; i < v.n; i++) any |= nb_tokenizer_is_special(t, v.id[i]);
    nb_ids_free(&v);
    return any;
}

static void decodes(const nb_tokenizer *t, int32_t id, bool skip, const char *want)
{
    nb_buf b = {0};
    nb_error err = {0};
    if (nb_tokenizer_decode(t, &id, 1, skip, &b, &err)) fail_msg("%s", err.text);
    assert_true(nb_str_is(nb_buf_str(&b), want) || (!b.n && !*want));
    nb_buf_free(&b);
}

/* A model of the test data, plain and with tokens inside its vocabulary, behind it, with a gap, said twice. */
static void test_spm_added(void **state)
{
    (void)state;
    nb_buf model = {0};
    char dir[600];
    nb_error err = {0};
    snprintf(dir, sizeof dir, "%s/tokenizers/components/sp_bpe_llama", test_data());
    if (!read_data(&model, dir, "tokenizer.model")) skip();
    nb_tokenizer *plain = NULL, *t = NULL;
    if (nb_tokenizer_from_spm(&plain, model.p, model.n, NULL, &err)) fail_msg("%s", err.text);
    int32_t n = (int32_t)nb_tokenizer_size(plain), piece = n - 1;
    while (piece > 0 && nb_tokenizer_token(plain, piece).n < 1) piece--;
    char text[1200], old[80];
    snprintf(old, sizeof old, "%.*s", NB_FMT_STR(nb_tokenizer_token(plain, piece)));
    snprintf(text, sizeof text,
             "{\"added_tokens_decoder\":{\"1\":{\"content\":\"<s>\",\"special\":true},\"2\":{\"content\":\"</s>\",\"special\":true},"
             "\"%d\":{\"content\":\"<in>\",\"special\":true},\"%d\":{\"content\":\"<a>\",\"special\":true,\"lstrip\":true},"
             "\"%d\":{\"content\":\"<b>\",\"special\":false,\"rstrip\":true},\"%d\":{\"content\":\"<gap>\",\"special\":true}},"
             "\"pad_token\":\"<pad>\",\"eos_token\":\"</s>\",\"additional_special_tokens\":[\"<a>\",\"<more>\"]}",
             piece, n, n + 1, n + 7);
    nb_json_doc config = parsed(text);
    if (nb_tokenizer_from_spm(&t, model.p, model.n, config.root, &err)) fail_msg("%s", err.text);
    assert_int_equal(nb_tokenizer_size(t), n + 5);
    expect(t, "<in>", true, &piece, 1);
    expect(t, "   <a>", true, (int32_t[]){n}, 1);
    expect(t, "<b>   ", true, (int32_t[]){n + 1}, 1);
    expect(t, "<b>", false, (int32_t[]){n + 1}, 1); /* not special: anybody may write it */
    expect(t, "<gap><pad><more>", true, (int32_t[]){n + 2, n + 3, n + 4}, 3);
    expect(t, "<s></s>", true, (int32_t[]){1, 2}, 2);
    static const char *const special[] = {"<in>", "<a>", "<gap>", "<pad>", "<more>", "<s>", "</s>"};
    for (size_t i = 0; i < NB_COUNT(special); i++) {
        assert_true(has_special(t, special[i], true));
        assert_false(has_special(t, special[i], false));
        int32_t id = nb_tokenizer_find(t, nb_str_of(special[i]));
        assert_true(id >= 0 && nb_tokenizer_is_special(t, id) && nb_tokenizer_is_added(t, id));
        decodes(t, id, false, special[i]);
        decodes(t, id, true, "");
    }
    decodes(t, n + 1, true, "<b>");
    assert_false(nb_tokenizer_is_special(t, n + 1));
    assert_int_equal(nb_tokenizer_find(t, nb_str_of(old)), -1); /* it has another name now */
    assert_int_equal(nb_tokenizer_eos(t), 2);
    decodes(plain, 1, false, ""); /* the library's own way */
    nb_tokenizer_free(t);
    nb_tokenizer_free(plain);
    nb_json_free(&config);
    nb_buf_free(&model);
}

/* The older pair of files: what special_tokens_map.json and added_tokens.json say becomes part of the config. */
static void test_config(void **state)
{
    (void)state;
    nb_arena *a = nb_arena_new(0);
    nb_json_doc config = parsed("{\"eos_token\":\"x\",\"extra_special_tokens\":[\"e\"]}"),
                map = parsed("{\"eos_token\":\"y\",\"pad_token\":\"p\",\"additional_special_tokens\":[\"no\"]}"),
                added = parsed("{\"p\":7,\"q\":8}"), newer = parsed("{\"added_tokens_decoder\":{}}");
    const nb_json *c = nb_tok_config(config.root, map.root, added.root, a);
    assert_true(nb_str_is(nb_json_get(c, "eos_token")->text, "y"));
    assert_null(nb_json_get(c, "additional_special_tokens"));
    const nb_json *p = nb_json_path(c, "added_tokens_decoder.7"), *q = nb_json_path(c, "added_tokens_decoder.8");
    assert_true(nb_json_get(p, "special")->type == NB_JSON_TRUE && nb_json_get(p, "normalized")->type == NB_JSON_FALSE);
    assert_true(nb_json_get(q, "special")->type == NB_JSON_FALSE && nb_json_get(q, "normalized")->type == NB_JSON_TRUE);
    assert_ptr_equal(nb_tok_config(newer.root, map.root, added.root, a), newer.root);
    assert_ptr_equal(nb_tok_config(config.root, NULL, NULL, a), config.root);
    nb_json_free(&config), nb_json_free(&map), nb_json_free(&added), nb_json_free(&newer);
    nb_arena_free(a);
}

static const char vocab[] = "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}";

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *vocab, *merges, *config, *says;
    } rows[] = {{vocab, "a b", "{\"tokenizer_class\":\"OddTokenizer\"}", "'OddTokenizer'"},
                {vocab, NULL, "{\"tokenizer_class\":\"GPT2Tokenizer\"}", "merges.txt is missing"},
                {vocab, "a b\n\na", "{\"tokenizer_class\":\"GPT2Tokenizer\"}", "merges.txt: line 3"},
                {vocab, "a b\nb c", "{\"tokenizer_class\":\"GPT2Tokenizer\"}", "'c'"},
                {"{\"a\":-1}", "", "{\"tokenizer_class\":\"GPT2Tokenizer\"}", "'a' has a bad id"},
                {"[]", "", "{\"tokenizer_class\":\"GPT2Tokenizer\"}", "vocab.json: not an object"},
                {"{", "", "{\"tokenizer_class\":\"GPT2Tokenizer\"}", "vocab.json"},
                {vocab, "", "{\"tokenizer_class\":\"GPT2Tokenizer\",\"added_tokens_decoder\":{\"x\":{\"content\":\"c\"}}}", "has the id 'x'"}};
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        nb_json_doc c = parsed(rows[i].config);
        nb_tokenizer *t = NULL;
        nb_error err = {0};
        nb_str merges = rows[i].merges ? nb_str_of(rows[i].merges) : (nb_str){0};
        assert_true(nb_tokenizer_from_vocab(&t, nb_str_of(rows[i].vocab), merges, c.root, NB_LIT("?"), &err) != NB_OK);
        assert_null(t);
        if (!strstr(err.text, rows[i].says)) fail_msg("'%s' does not say %s", err.text, rows[i].says);
        nb_json_free(&c);
    }
    static const char *const bad[] = {"", "\n", "a", "YQ==", "YQ== x", "YQ== -1", "YQ== 99999999999", "Y!== 1", " 1", "YQ== 1\nYg== 1", "YQ== 1\nYQ== 2"};
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_tokenizer *t = NULL;
        nb_error err = {0};
        assert_int_equal(nb_tokenizer_from_ranks(&t, bad[i], strlen(bad[i]), NULL, &err), NB_E_INVALID);
        assert_null(t);
    }
    assert_true(nb_tok_is_ranks("YQ== 0\n", 7) && nb_tok_is_ranks("YQ== 0\r\nYg== 1\r\n", 16));
    assert_false(nb_tok_is_ranks("\n\x05<unk>\x15 \n", 10) || nb_tok_is_ranks("", 0) || nb_tok_is_ranks("YQ== 0", 6));
}

/* A tokenizer.json whose added tokens are <x> (5) and <y> (6), neither special, and what stands beside it. The ids and the
 * special tokens are those of transformers 5.24. */
static void test_on_json(void **state)
{
    (void)state;
    static const char json[] =
        "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\".\"},\"behavior\":\"Isolated\",\"invert\":false},"
        "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"[UNK]\":0,\"a\":1,\"b\":2,\"c\":3,\" \":4},\"unk_token\":\"[UNK]\"},\"added_tokens\":["
        "{\"id\":5,\"content\":\"<x>\",\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"single_word\":false,\"special\":false},"
        "{\"id\":6,\"content\":\"<y>\",\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"single_word\":false,\"special\":false}]}";
    static const struct {
        const char *config, *map, *added;
        int32_t n, ids[14];
        const char *special; /* "5" for id 5 */
    } rows[] = {
        {"{}", NULL, NULL, 14, {1, 4, 5, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ""},
        {"{\"added_tokens_decoder\":{\"5\":{\"content\":\"<x>\",\"lstrip\":true}}}", NULL, NULL, 13, {1, 5, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0}, ""},
        {"{\"added_tokens_decoder\":{\"20\":{\"content\":\"<n>\"},\"12\":{\"content\":\"<m>\",\"special\":true}}}", NULL, NULL, 10, {1, 4, 5, 4, 6, 8, 7, 0, 0, 0}, "7"},
        {"{\"pad_token\":\"<p>\",\"image_token\":\"<y>\"}", NULL, NULL, 12, {1, 4, 5, 4, 6, 0, 0, 0, 0, 0, 0, 7}, "67"},
        {"{\"pad_token\":\"<p>\",\"image_token\":\"<y>\",\"added_tokens_decoder\":{}}", NULL, NULL, 12, {1, 4, 5, 4, 6, 0, 0, 0, 0, 0, 0, 7}, "7"},
        {"{\"extra_special_tokens\":[\"<n>\",\"<y>\"],\"bos_token\":\"c\"}", NULL, NULL, 12, {1, 4, 5, 4, 6, 7, 0, 0, 0, 0, 0, 0}, "37"},
        {"{}", "{\"pad_token\":\"<p>\",\"eos_token\":{\"content\":\"<y>\",\"lstrip\":true}}", "{\"<m>\":5,\"<n>\":9,\"<p>\":10}", 10, {1, 4, 5, 4, 6, 7, 0, 0, 0, 8}, "68"},
    };
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        nb_arena *a = nb_arena_new(0);
        nb_json_doc config = parsed(rows[i].config), map = parsed(rows[i].map ? rows[i].map : "null"), added = parsed(rows[i].added ? rows[i].added : "null");
        nb_tokenizer *t = NULL;
        nb_error err = {0};
        const nb_json *c = nb_tok_config(config.root, rows[i].map ? map.root : NULL, rows[i].added ? added.root : NULL, a);
        if (nb_tokenizer_from_json(&t, json, sizeof json - 1, c, &err)) fail_msg("%s", err.text);
        expect(t, "a <x> <y><n><m><p>", true, rows[i].ids, (size_t)rows[i].n);
        for (int32_t id = 0; id < 9; id++) assert_int_equal(nb_tokenizer_is_special(t, id), strchr(rows[i].special, '0' + id) != NULL);
        nb_tokenizer_free(t);
        nb_json_free(&config), nb_json_free(&map), nb_json_free(&added);
        nb_arena_free(a);
    }
    static const char *const bad[][2] = {{"{\"added_tokens_decoder\":[]}", "tokenizer_config.json: added_tokens_decoder must be"},
                                         {"{\"added_tokens_decoder\":{\"7\":{\"text\":\"z\"}}}", "added_tokens_decoder: id 7 has no 'content'"},
                                         {"{\"added_tokens_decoder\":{\"7.5\":{\"content\":\"z\"}}}", "the id '7.5'"}};
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_json_doc config = parsed(bad[i][0]);
        nb_tokenizer *t = NULL;
        nb_error err = {0};
        assert_int_equal(nb_tokenizer_from_json(&t, json, sizeof json - 1, config.root, &err), NB_E_INVALID);
        assert_null(t);
        if (!strstr(err.text, bad[i][1])) fail_msg("'%s' does not say %s", err.text, bad[i][1]);
        nb_json_free(&config);
    }
}

/* One long token costs its square: a file of such is refused, not worked on. */
static void test_hostile_ranks(void **state)
{
    (void)state;
    nb_buf b = {0};
    nb_error err = {0};
    nb_tokenizer *t = NULL;
    for (int i = 0; i < 40; i++) {
        for (int k = 0; k < 16000; k++) nb_buf_add_cstr(&b, "QUFB");
        nb_buf_printf(&b, "QUFC%02d== %d\n", i, i);
    }
    assert_int_equal(nb_tokenizer_from_ranks(&t, b.p, b.n, NULL, &err), NB_E_INVALID);
    assert_non_null(strstr(err.text, "too long"));
    nb_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spm_added), cmocka_unit_test(test_config), cmocka_unit_test(test_on_json), cmocka_unit_test(test_refusals),
                                       cmocka_unit_test(test_hostile_ranks)};
    return cmocka_run_group_tests_name("tokenizer files", tests, NULL, NULL);
}
