/* The functions of include/nibble.h at their edges: sizes of structs, wrong arguments, life times, masks; and that
 * decoding allocates nothing. */
#include "support.h"

#include <stdatomic.h>
#include <stddef.h>

/* ---- counting allocations; debug builds have a guard of their own, sanitizers their own allocator ---- */

#if defined(__GLIBC__) && !defined(NB_DEBUG) && !defined(NB_TSAN)
#define COUNTS 1
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n);
void *calloc(size_t count, size_t size);
void *realloc(void *p, size_t n);
static atomic_long allocations;
void *malloc(size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_malloc(n);
}
void *calloc(size_t count, size_t size)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_calloc(count, size);
}
void *realloc(void *p, size_t n)
{
    atomic_fetch_add(&allocations, 1);
    return __libc_realloc(p, n);
}
static long allocated(void) { return atomic_load(&allocations); }
#else
#define COUNTS 0
static long allocated(void) { return 0; }
#endif

static nb_model *first_model(void)
{
    const char *dir = model_of_type("llama");
    assert_non_null(dir);
    nb_model *m = open_dir(dir, "first", 0, 2);
    assert_non_null(m);
    return m;
}

static void decoding_allocates_nothing(void **state)
{
    (void)state;
    int done = 0;
    for (int i = 0; i < n_model_dirs; i++) {
        nb_model *m = open_dir(model_dirs[i], "each", 16, 2);
        if (!m) continue;
        int32_t a[40], id = 0;
        make_ids(a, 40, vocab_of(m), 1);
        nb_session *s = session(m, 400);
        nb_sampling o;
        nb_sampling_default(&o, m);
        o.temperature = 0.9f;
        o.top_k = 40;
        o.top_p = 0.95f;
        o.repeat_penalty = 1.1f;
        must_feed(s, a, 40, 1);
        long before = allocated();
        for (int k = 0; k < 300; k++) {
            assert_int_equal(nb_sample(s, -1, &o, &id, NULL), NB_OK);
            must_feed(s, &id, 1, 1);
        }
        assert_int_equal(allocated() - before, 0);
        /* generation makes its few buffers at the start, not per token */
        nb_generate_options g;
        nb_generate_options_default(&g, m);
        g.ignore_eos = true;
        long per[2];
        for (int k = 0; k < 2; k++) {
            g.max_tokens = k ? 200 : 20;
            before = allocated();
            assert_int_equal(nb_generate(s, a, 40, &g, NULL, NULL), NB_OK);
            per[k] = allocated() - before;
        }
        assert_int_equal(per[0], per[1]);
        nb_session_free(s);
        nb_model_close(m);
        done++;
    }
    printf("covered: %d models decode without an allocation%s\n", done, COUNTS ? "" : " (not counted in this build)");
    assert_true(done > 0);
}

static void sizes_of_structs(void **state)
{
    (void)state;
    nb_error err = {0};
    nb_model *m = first_model();
    /* an older caller's shorter structs */
    nb_model_options mo = {.size = offsetof(nb_model_options, threads), .store = test_store, .threads = -5};
    nb_model *again = NULL;
    assert_int_equal(nb_model_open(&again, "first", &mo, &err), NB_OK);
    nb_model_close(again);
    mo.size = sizeof mo;
    assert_int_equal(nb_model_open(&again, "first", &mo, &err), NB_E_USAGE);
    assert_null(again);
    static const size_t wild[] = {0, 7, 5000, SIZE_MAX};
    for (size_t i = 0; i < NB_COUNT(wild); i++) {
        mo.size = wild[i];
        assert_int_equal(nb_model_open(&again, "first", &mo, &err), NB_E_USAGE);
        nb_session_options so = {.size = wild[i]};
        nb_session *s = NULL;
        assert_int_equal(nb_session_new(&s, m, &so, &err), NB_E_USAGE);
        assert_null(s);
        nb_model_info info = {.size = wild[i]};
        assert_int_equal(nb_model_get_info(m, &info, &err), NB_E_USAGE);
    }
    /* info of a shorter and of a longer struct */
    struct {
        nb_model_info i;
        uint64_t later[2];
    } longer;
    memset(&longer, 0xff, sizeof longer);
    longer.i.size = sizeof longer;
    assert_int_equal(nb_model_get_info(m, &longer.i, &err), NB_OK);
    assert_int_equal(longer.i.size, sizeof longer);
    assert_true(longer.i.layers > 0 && longer.later[0] == 0 && longer.later[1] == 0);
    nb_model_info shorter;
    memset(&shorter, 0xff, sizeof shorter);
    shorter.size = offsetof(nb_model_info, vocab);
    assert_int_equal(nb_model_get_info(m, &shorter, &err), NB_OK);
    assert_true(shorter.hidden == longer.i.hidden && shorter.vocab == -1);
    /* generation: options without their newest fields, a result without its last ones */
    int32_t ids[3] = {1, 5, 6};
    nb_session *s = session(m, 64);
    nb_generate_options o;
    nb_generate_options_default(&o, m);
    o.max_tokens = 4;
    o.on_token = (bool (*)(void *, int32_t))1; /* beyond the size: must not be called */
    o.size = offsetof(nb_generate_options, on_token);
    nb_generate_result r;
    memset(&r, 0xff, sizeof r);
    r.size = offsetof(nb_generate_result, prompt_ns);
    assert_int_equal(nb_generate(s, ids, 3, &o, &r, &err), NB_OK);
    assert_true(r.prompt_tokens == 3 && r.generated_tokens >= 1 && r.prompt_ns == UINT64_MAX);
    o.size = sizeof(size_t);
    assert_int_equal(nb_generate(s, ids, 3, &o, &r, &err), NB_E_USAGE);
    nb_eval_item it = {.size = 8, .session = s, .ids = ids, .n = 1};
    assert_int_equal(nb_eval(&it, 1, &err), NB_E_USAGE);
    nb_session_free(s);
    nb_model_close(m);
}

static void wrong_arguments(void **state)
{
    (void)state;
    nb_error err = {0};
    nb_model *m = NULL;
    nb_model_options mo = {.size = sizeof mo, .store = test_store};
    assert_int_equal(nb_model_open(NULL, "x", &mo, &err), NB_E_USAGE);
    assert_int_equal(nb_model_open(&m, "absent", &mo, &err), NB_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "absent"));
    assert_int_equal(nb_model_open(&m, "../x", &mo, &err), NB_E_USAGE);
    mo.tier = "abacus";
    m = first_model();
    nb_model *n = NULL;
    assert_int_equal(nb_model_open(&n, "first", &mo, &err), NB_E_USAGE);
    assert_non_null(strstr(err.text, "abacus"));
    nb_session_options so = {.size = sizeof so, .context = 1 << 30};
    nb_session *s = NULL;
    assert_int_equal(nb_session_new(&s, m, &so, &err), NB_E_USAGE);
    so.context = -1;
    assert_int_equal(nb_session_new(&s, m, &so, &err), NB_E_USAGE);
    s = session(m, 64);
    int32_t ids[70] = {0};
    nb_eval_item it = {.size = sizeof it, .session = s, .ids = ids, .n = 70, .logits = 65};
    assert_int_equal(nb_eval(&it, 1, &err), NB_E_USAGE);
    assert_int_equal(it.status, NB_E_USAGE);
    it.logits = 0;
    it.n = 0;
    assert_int_equal(nb_eval(&it, 1, &err), NB_E_USAGE);
    it.n = 1;
    nb_eval_item twice[2] = {it, it};
    assert_int_equal(nb_eval(twice, 2, &err), NB_E_USAGE);
    assert_int_equal(twice[1].status, NB_E_USAGE);
    assert_int_equal(nb_session_length(s), 0);
    nb_generate_options o;
    nb_generate_options_default(&o, m);
    assert_int_equal(nb_generate(s, ids, 0, &o, NULL, &err), NB_E_USAGE);
    assert_int_equal(nb_generate(s, NULL, 3, &o, NULL, &err), NB_E_USAGE);
    o.n_stop = 1;
    assert_int_equal(nb_generate(s, ids, 1, &o, NULL, &err), NB_E_USAGE);
    o.n_stop = 0;
    o.sampling.n_bias = 1;
    assert_int_equal(nb_generate(s, ids, 1, &o, NULL, &err), NB_E_USAGE);
    assert_int_equal(nb_session_length(s), 0);
    o.sampling.n_bias = 0;
    ids[0] = -1;
    assert_int_equal(nb_generate(s, ids, 1, &o, NULL, &err), NB_E_USAGE);
    assert_int_equal(nb_generate(s, ids, 64, &o, NULL, &err), NB_E_CONTEXT);
    int32_t *out = NULL;
    size_t n_out = 0;
    assert_int_equal(nb_tokenize(m, "x", 1, 0, &out, &n_out, &err), NB_E_UNSUPPORTED); /* no tokenizer */
    nb_session_free(s);
    nb_session_free(NULL);
    nb_model_close(m);
    nb_model_close(NULL);
    nb_free(NULL);
    assert_string_equal(nb_status_text(NB_OK), nb_status_text((nb_status)0));
    assert_non_null(strstr(nb_build_info(), nb_version()));
}

static void the_last_session_closes_the_model(void **state)
{
    (void)state;
    nb_model *m = first_model();
    int32_t ids[4] = {1, 2, 3, 4};
    nb_session *s = session(m, 32), *f = NULL;
    must_feed(s, ids, 4, 1);
    nb_model_close(m);
    assert_int_equal(nb_session_fork(&f, s, NULL), NB_OK);
    nb_session_free(s);
    must_feed(f, ids, 4, 1); /* ASan would see a model that is gone */
    assert_int_equal(nb_session_length(f), 8);
    nb_session_free(f);
}

/* A tokenizer that knows only the first ids of the model, and a chat template. */
static const char tiny_tokenizer[] =
    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],\"normalizer\":null,\"pre_"
    "tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
    "\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_"
    "offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"dropout\":null,"
    "\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_"
    "fallback\":false,\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,"
    "\"h\":7,\"ab\":8,\"cd\":9},\"merges\":[\"a b\",\"c d\"]}}";

static void ids_beyond_the_tokenizer_are_masked(void **state)
{
    (void)state;
    char dir[200];
    copy_model(model_of_type("llama"), "tokenized", NULL, dir);
    write_file(dir, "tokenizer.json", tiny_tokenizer, sizeof tiny_tokenizer - 1);
    static const char config[] = "{\"chat_template\":\"{% for m in messages %}{{ m.content }}{% endfor %}\"}";
    write_file(dir, "tokenizer_config.json", config, sizeof config - 1);
    nb_model *m = open_dir(dir, "tokenized", 0, 1);
    nb_model_info info = {.size = sizeof info};
    assert_int_equal(nb_model_get_info(m, &info, NULL), NB_OK);
    assert_true(info.has_tokenizer && info.has_template);
    assert_int_equal(info.tokens, 10);
    assert_true(info.vocab > 10);
    int32_t *ids = NULL;
    size_t n = 0;
    nb_error err = {0};
    assert_int_equal(nb_tokenize(m, "abcdh", 5, 0, &ids, &n, &err), NB_OK);
    assert_int_equal(n, 3);
    nb_session *s = session(m, 600);
    nb_sampling o = {.size = sizeof o, .temperature = 5, .top_p = 1, .repeat_penalty = 1};
    must_feed(s, ids, (int32_t)n, 1);
    int seen[10] = {0};
    for (uint64_t seed = 0; seed < 500; seed++) {
        int32_t id = -1;
        o.seed = seed;
        assert_int_equal(nb_sample(s, 0, &o, &id, &err), NB_OK);
        assert_true(id >= 0 && id < 10);
        seen[id]++;
    }
    for (int i = 0; i < 10; i++) assert_true(seen[i] > 0);
    o.temperature = 0;
    int32_t id = -1;
    assert_int_equal(nb_sample(s, 0, &o, &id, &err), NB_OK);
    assert_int_equal(id, nb_argmax(nb_logits(s, 0), 10));
    char *text = NULL;
    assert_int_equal(nb_detokenize(m, ids, n, false, &text, &n, &err), NB_OK);
    assert_string_equal(text, "abcdh");
    nb_free(text);
    nb_free(ids);
    /* requests of every wrong shape */
    static const char *const wrong[] = {
        "", "[", "[1,2]", "3", "null", "\"x\"", "{}", "{\"messages\":3}", "{\"messages\":{\"a\":1}}"};
    for (size_t i = 0; i < NB_COUNT(wrong); i++)
        assert_true(nb_chat_encode(m, wrong[i], strlen(wrong[i]), &ids, &n, NULL, &err) != NB_OK);
    static const char good[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"abab\"}]}";
    assert_int_equal(nb_chat_encode(m, good, sizeof good - 1, &ids, &n, &text, &err), NB_OK);
    assert_int_equal(n, 2);
    assert_string_equal(text, "abab");
    nb_free(ids);
    nb_free(text);
    nb_session_free(s);
    nb_model_close(m);
}

/* Which template a request gets, and what it sees of the special tokens. */
static void named_templates(void **state)
{
    (void)state;
    static const char config[] =
        "{\"unk_token\":\"h\",\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"cd{{ unk_token }}\"},{\"name\":"
        "\"default\",\"template\":\"ab{{ unk_token }}\"},{\"name\":\"bad\",\"template\":\"{% oops\"}]}";
    static const struct {
        const char *request, *prompt;
    } rows[] = {{"{\"messages\":[]}", "abh"},
                {"{\"messages\":[],\"tools\":null}", "abh"},
                {"{\"messages\":[],\"tools\":[]}", "cdh"},
                {"{\"messages\":[],\"tools\":[{\"type\":\"function\"}],\"unk_token\":\"e\"}", "cde"}};
    char dir[200];
    copy_model(model_of_type("llama"), "named", NULL, dir);
    write_file(dir, "tokenizer.json", tiny_tokenizer, sizeof tiny_tokenizer - 1);
    write_file(dir, "tokenizer_config.json", config, sizeof config - 1);
    nb_model *m = open_dir(dir, "named", 0, 1);
    for (size_t i = 0; i < NB_COUNT(rows); i++) {
        int32_t *ids = NULL;
        size_t n = 0;
        char *text = NULL;
        nb_error err = {0};
        assert_int_equal(nb_chat_encode(m, rows[i].request, strlen(rows[i].request), &ids, &n, &text, &err), NB_OK);
        assert_string_equal(text, rows[i].prompt);
        assert_int_equal(n, 2);
        nb_free(ids);
        nb_free(text);
    }
    nb_model_close(m);
}

/* The same with control tokens, a user's token and a chat template that puts them around messages. */
static void chat_model(char dir[200])
{
    static const char added[] =
        "\"added_tokens\":[{\"id\":10,\"content\":\"<|im_start|>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":"
        "false,\"normalized\":false,\"special\":true},{\"id\":11,\"content\":\"<|im_end|>\",\"single_word\":false,"
        "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true},{\"id\":12,\"content\":\"<t>\","
        "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":false}]";
    static const char config[] =
        "{\"chat_template\":\"{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
        "{% if enable_thinking %}<|im_start|>ab{% else %}<|im_start|>a{% endif %}\"}";
    copy_model(model_of_type("llama"), "chatting", NULL, dir);
    const char *at = strstr(tiny_tokenizer, "\"added_tokens\":[]");
    assert_non_null(at);
    nb_buf b = {0};
    nb_buf_add(&b, tiny_tokenizer, (size_t)(at - tiny_tokenizer));
    nb_buf_add_cstr(&b, added);
    nb_buf_add_cstr(&b, at + strlen("\"added_tokens\":[]"));
    write_file(dir, "tokenizer.json", b.p, b.n);
    write_file(dir, "tokenizer_config.json", config, sizeof config - 1);
    nb_buf_free(&b);
}

/* Messages of a conversation that grows, is cut, changed, trusted and thought about in every order. */
static void random_request(nb_buf *out, uint32_t *seed, char said[][24], int *n)
{
    static const char *const words[] = {"ab", "cd", "<|im_end|>", "<|im_start|>", "<t>", "h", "<|im_", "end|>", "efg"};
    uint32_t r = (*seed = *seed * 1664525u + 1013904223u) >> 8;
    if (*n == 0 || r % 8 < 5)
        snprintf(said[*n], 24, "%s%s", words[r / 8 % 9], words[r / 72 % 9]), *n += *n < 30;
    else if (r % 8 == 5)
        *n = (int)(r / 8 % (uint32_t)*n);
    else if (r % 8 == 6)
        said[r / 8 % (uint32_t)*n][0] = 'a';
    out->n = 0;
    nb_buf_add_cstr(out, "{\"messages\":[");
    for (int i = 0; i < *n; i++)
        nb_buf_printf(out, "%s{\"role\":\"%s\",\"content\":\"%s\"}", i ? "," : "", i % 2 ? "assistant" : "user",
                      said[i]);
    nb_buf_printf(out, "],\"enable_thinking\":%s,\"trust_content\":%s}", r / 1000 % 4 ? "false" : "true",
                  r / 4000 % 8 ? "false" : "true");
}

/* A session that remembers its prompt gives the ids of one that does not, with control tokens where they were not
 * meant, and forgets nothing when a request fails. */
static void a_growing_prompt_is_encoded_like_a_new_one(void **state)
{
    (void)state;
    char dir[200], said[32][24];
    chat_model(dir);
    nb_model *m = open_dir(dir, "chatting", 0, 1);
    assert_non_null(m);
    nb_session *s = session(m, 64);
    nb_buf request = {0};
    nb_error err = {0};
    uint32_t seed = 5;
    int n = 0;
    size_t reused = 0, all = 0, control = 0;
    for (int round = 0; round < 1000; round++) {
        int32_t *a = NULL, *b = NULL;
        size_t na = 0, nb = 0, kept = 0;
        char *ta = NULL, *tb = NULL;
        random_request(&request, &seed, said, &n);
        if (round % 50 == 49) assert_int_not_equal(nb_session_chat_encode(s, "{", 1, &a, &na, NULL, NULL, &err), NB_OK);
        assert_int_equal(nb_session_chat_encode(s, request.p, request.n, &a, &na, &ta, &kept, &err), NB_OK);
        assert_int_equal(nb_chat_encode(m, request.p, request.n, &b, &nb, &tb, &err), NB_OK);
        assert_int_equal(na, nb);
        assert_memory_equal(a, b, na * sizeof *a);
        assert_string_equal(ta, tb);
        assert_true(kept <= na);
        for (size_t i = 0; i < na; i++) control += a[i] == 10 || a[i] == 11;
        reused += kept;
        all += na;
        nb_free(a), nb_free(b), nb_free(ta), nb_free(tb);
    }
    printf("covered: 1000 prompts, %zu of %zu ids kept from the one before, %zu control tokens\n", reused, all,
           control);
    assert_true(reused > all / 4 && control > 1000);
    nb_buf_free(&request);
    nb_session_free(s);
    nb_model_close(m);
}

static void suppressed_ids_are_never_drawn(void **state)
{
    (void)state;
    char dir[200];
    nb_model *m = first_model();
    nb_session *s = session(m, 32);
    int32_t ids[3] = {1, 5, 6}, plain = -1, banned = -1;
    nb_sampling o = {.size = sizeof o};
    must_feed(s, ids, 3, 1);
    assert_int_equal(nb_sample(s, 0, &o, &plain, NULL), NB_OK);
    nb_session_free(s);
    nb_model_close(m);
    copy_model(model_of_type("llama"), "suppressed", NULL, dir);
    char config[100];
    int len =
        snprintf(config, sizeof config, "{\"suppress_tokens\":[%d, 3],\"do_sample\":true,\"temperature\":0.5}", plain);
    write_file(dir, "generation_config.json", config, (size_t)len);
    m = open_dir(dir, "suppressed", 0, 1);
    s = session(m, 32);
    must_feed(s, ids, 3, 1);
    assert_int_equal(nb_sample(s, 0, &o, &banned, NULL), NB_OK);
    assert_int_not_equal(banned, plain);
    nb_sampling_default(&o, m);
    assert_true(o.temperature == 0.5f);
    o.temperature = 3;
    for (uint64_t seed = 0; seed < 500; seed++) {
        o.seed = seed;
        assert_int_equal(nb_sample(s, 0, &o, &banned, NULL), NB_OK);
        assert_true(banned != plain && banned != 3);
    }
    nb_session_free(s);
    nb_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_allocates_nothing),
        cmocka_unit_test(sizes_of_structs),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(the_last_session_closes_the_model),
        cmocka_unit_test(ids_beyond_the_tokenizer_are_masked), cmocka_unit_test(named_templates),
        cmocka_unit_test(a_growing_prompt_is_encoded_like_a_new_one),
        cmocka_unit_test(suppressed_ids_are_never_drawn),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
