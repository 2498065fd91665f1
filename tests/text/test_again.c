/* Prompts that begin like earlier ones, for every tokenizer of the test data: what is encoded again only from the end
 * equals a whole encoding, with spans of both origins and control tokens in both. And what a long prompt with one more
 * message costs. */
#include "tok_made.h"

#include <time.h>

enum { PARTS = 48, ROUNDS = 200, LONG = 100000, TRIES = 5 };

static uint32_t seed = 1;
static uint32_t draw(uint32_t n) { return (seed = seed * 1664525u + 1013904223u) / 65536 % n; }

static size_t tokenizers, prompts, kept_ids, all_ids, measured;

/* Contents of added tokens, special ones first. */
typedef struct pool { nb_str v[64]; size_t n, special; } pool;

static void collect(const nb_tokenizer *t, pool *p)
{
    for (int special = 1; special >= 0; special--) {
        for (uint32_t id = 0; id < nb_tokenizer_size(t) && p->n < NB_COUNT(p->v); id++) {
            nb_str s = nb_tokenizer_token(t, (int32_t)id);
            if (s.p && s.n && nb_tokenizer_is_added(t, (int32_t)id) && nb_tokenizer_is_special(t, (int32_t)id) == (special == 1)) p->v[p->n++] = s;
        }
        if (special) p->special = p->n;
    }
}

static nb_span random_part(const pool *p)
{
    static const char *const texts[] = {"Hello", " world", "  ", "\n", "don't", " 12345", "\xC3\xA9t\xC3\xA9 ", "\xE4\xBD\xA0\xE5\xA5\xBD", "e\xCC\x81", "\xF0\x9F\x98\x80", "<|im_", "start|>", "<", "/s>", "user", "\xE2\x96\x81", "\xEF\xBC\xA1", "a"};
    bool token = p->n && draw(3) == 0;
    nb_str s = token ? p->v[draw((uint32_t)p->n)] : nb_str_of(texts[draw(NB_COUNT(texts))]);
    if (token && draw(6) == 0 && s.n > 1 && nb_utf8_valid_prefix(s.p, s.n / 2) == s.n / 2) s.n /= 2; /* the rest may follow or not */
    return (nb_span){s, draw(2) == 0};
}

static void compare(const nb_tokenizer *t, const char *name, const nb_span *before, size_t before_n, const nb_span *now, size_t n, int flags, nb_ids *v)
{
    nb_ids whole = {0};
    nb_error err = {0};
    size_t kept = 0;
    if (nb_tokenizer_encode_spans(t, now, n, flags | NB_ENC_OFFSETS, &whole, &err)) fail_msg("%s: %s", name, err.text);
    if (nb_tokenizer_encode_again(t, before, before_n, now, n, flags, v, &kept, &err)) fail_msg("%s: %s", name, err.text);
    bool same = v->n == whole.n && kept <= v->n && (!v->n || (!memcmp(v->id, whole.id, v->n * sizeof *v->id) && !memcmp(v->off, whole.off, v->n * sizeof *v->off)));
    if (!same) {
        for (size_t i = 0; i < n; i++) print_error("%s'%.*s' ", now[i].trusted ? "+" : "-", NB_FMT_STR(now[i].text));
        fail_msg("%s: %zu ids of %zu kept, the rest differs from a whole encoding", name, kept, v->n);
    }
    prompts++, kept_ids += kept, all_ids += v->n;
    nb_ids_free(&whole);
}

/* A prompt that grows, is cut, gets another origin or another word in its middle. */
static void random_prompts(const nb_tokenizer *t, const char *name, const pool *p)
{
    for (int flags = NB_ENC_PARSE_ADDED; flags <= (NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS); flags++) {
        nb_span a[PARTS], b[PARTS];
        size_t na = 0, nb = 0;
        nb_ids v = {0};
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t what = draw(8);
            if (what < 5 || !nb)
                for (uint32_t more = 1 + draw(4); more && nb < PARTS; more--) b[nb++] = random_part(p);
            else if (what == 5) nb = draw((uint32_t)nb);
            else if (what == 6) b[draw((uint32_t)nb)].trusted ^= true;
            else b[draw((uint32_t)nb)] = random_part(p);
            if (nb == PARTS) nb = PARTS / 2;
            compare(t, name, a, na, b, nb, flags, &v);
            memcpy(a, b, sizeof a);
            na = nb;
        }
        nb_ids_free(&v);
    }
}

static double ms(void)
{
    struct timespec s;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &s);
    return (double)s.tv_sec * 1e3 + (double)s.tv_nsec / 1e6;
}

/* 100,000 tokens of conversation and one more message: whole, and only its end. */
static void long_prompt(const nb_tokenizer *t, const char *name, const pool *p)
{
    nb_buf said = {0}; /* words that do not repeat */
    nb_span *s = calloc(LONG, sizeof *s);
    nb_ids v = {0}, whole = {0};
    size_t n = 0, kept = 0;
    assert_non_null(s);
    if (!p->special) goto out;
    for (int i = 0; i < 200000; i++) {
        if (draw(7) == 0) nb_buf_add_char(&said, " \n.,"[draw(4)]);
        nb_buf_add_char(&said, (char)('a' + draw(26)));
    }
    for (size_t tokens = 0; tokens < LONG && n + 8 < LONG; n += 2) {
        s[n] = (nb_span){p->v[n / 2 % (p->special < 4 ? p->special : 4)], true};
        s[n + 1] = (nb_span){{said.p + n / 2 * 97 % (said.n - 400), 400}, false};
        if (n % 100 == 0) {
            v.n = 0;
            assert_int_equal(nb_tokenizer_encode_spans(t, s, 2, NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
            tokens = v.n * n / 2;
        }
    }
    v.n = 0;
    assert_int_equal(nb_tokenizer_encode_again(t, NULL, 0, s, n, NB_ENC_PARSE_ADDED, &v, &kept, NULL), NB_OK);
    for (size_t i = 0; i < 2; i++) s[n + i] = s[n + i - 2];
    double full = 1e9, again = 1e9;
    size_t old = v.n;
    for (int i = 0; i < TRIES; i++) {
        double start = ms();
        whole.n = 0;
        assert_int_equal(nb_tokenizer_encode_spans(t, s, n + 2, NB_ENC_PARSE_ADDED, &whole, NULL), NB_OK);
        full = ms() - start < full ? ms() - start : full;
        v.n = old; /* the ids of the shorter prompt stand there still */
        start = ms();
        assert_int_equal(nb_tokenizer_encode_again(t, s, n, s, n + 2, NB_ENC_PARSE_ADDED, &v, &kept, NULL), NB_OK);
        again = ms() - start < again ? ms() - start : again;
    }
    assert_int_equal(v.n, whole.n);
    assert_memory_equal(v.id, whole.id, v.n * sizeof *v.id);
    print_message("%s: %zu tokens and one message more: %.2f ms whole, %.2f ms again, %zu ids kept\n", name, v.n, full, again, kept);
    /* Only the last message of the old prompt may be encoded again: it is 400 bytes. */
    measured++;
    assert_true(old >= LONG && kept + 402 > old);
    assert_true(again < full / 4);
out:
    nb_ids_free(&v), nb_ids_free(&whole);
    nb_buf_free(&said);
    free(s);
}

static bool with_speed;

static void all_prompts(nb_tokenizer *t, const char *name)
{
    pool p = {0};
    if (!t) return;
    collect(t, &p);
    tokenizers++;
    random_prompts(t, name, &p);
    if (with_speed) long_prompt(t, name, &p);
    nb_tokenizer_free(t);
}

static void one(const char *dir, const char *name) { all_prompts(load_tokenizer(dir), name); }

/* Two that need no test data. */
static void made_ones(void)
{
    nb_buf prose = {0}, code = {0}, json = {0};
    repository_text(&prose, "docs", ".md", 400000);
    repository_text(&code, "src/text", ".c", 400000);
    for (int i = 0; i < 2; i++) {
        nb_tokenizer *t = NULL;
        made_tokenizer(&json, i == 0, nb_buf_str(&prose), nb_buf_str(&code));
        assert_int_equal(nb_tokenizer_from_json(&t, json.p, json.n, NULL, NULL), NB_OK);
        all_prompts(t, i ? "made, byte fallback" : "made, byte-level");
    }
    nb_buf_free(&prose), nb_buf_free(&code), nb_buf_free(&json);
}

static void test_again(void **state)
{
    char root[4096];
    (void)state;
    snprintf(root, sizeof root, "%s/tokenizers", test_data());
    with_speed = true;
    made_ones();
    each_folder(root, "tokenizer.json", one);
    snprintf(root, sizeof root, "%s/tokenizers/components", test_data());
    with_speed = false;
    each_folder(root, "tokenizer.json", one);
    each_folder(root, "tokenizer.model", one);
    print_message("%zu tokenizers%s, %zu prompts, %zu of %zu ids kept; %zu long prompts measured\n", tokenizers, tokenizers > 2 ? "" : " (no test data: those of it skipped)", prompts, kept_ids, all_ids, measured);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_again)};
    return cmocka_run_group_tests_name("again", tests, NULL, NULL);
}
