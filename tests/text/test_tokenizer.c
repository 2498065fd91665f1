/* Tokenizers beyond the vectors: origin of text, prepared form, offsets, streams, bad input, GGUF. */
#include "tok_testlib.h"

#include "text/tok_image.h"

#include <time.h>

static const char key[65] = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/* A byte-level tokenizer of bytes and a few merges, with control and plain added tokens. */
static const char *small_json(nb_buf *b)
{
    b->n = 0;
    nb_buf_add_cstr(b, "{\"added_tokens\":[");
    static const char *const added[] = {"<|im_start|>", "<|im_end|>", "<think>"};
    for (int i = 0; i < 3; i++)
        nb_buf_printf(b, "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}", i ? "," : "", 300 + i, added[i], i < 2 ? "true" : "false");
    nb_buf_add_cstr(b, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true},"
                       "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (uint32_t i = 0, other = 0; i < 256; i++) {
        bool plain = (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
        nb_buf s = {0};
        nb_buf_add_cp(&s, plain ? i : 0x100 + other++);
        nb_json_write_string(b, nb_buf_str(&s), 0);
        nb_buf_printf(b, ":%u,", i);
        nb_buf_free(&s);
    }
    nb_buf_add_cstr(b, "\"im\":256,\"st\":257,\"us\":258,\"er\":259,\"user\":260,\"\xC4\xA0u\":261,\"<|\":262,\"|>\":263},"
                       "\"merges\":[\"i m\",\"s t\",\"u s\",\"e r\",\"us er\",\"\xC4\xA0 u\",\"< |\",\"| >\"]}}");
    return nb_buf_cstr(b);
}

static nb_tokenizer *small(void)
{
    nb_buf b = {0};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    small_json(&b);
    if (nb_tokenizer_from_json(&t, b.p, b.n, NULL, &err)) fail_msg("%s", err.text);
    nb_buf_free(&b);
    return t;
}

/* Processor time of this thread: a busy machine does not count. */
static uint64_t cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static nb_str lit(const char *s) { return nb_str_of(s); }

static size_t count_id(const nb_ids *v, int32_t id)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++) n += v->id[i] == id;
    return n;
}

/* Content <|im_start|> of a request gives no control token; the template's does. */
static void test_origin(void **state)
{
    nb_tokenizer *t = small();
    nb_ids v = {0};
    nb_buf out = {0};
    int32_t start = nb_tokenizer_find(t, lit("<|im_start|>")), think = nb_tokenizer_find(t, lit("<think>"));
    (void)state;
    assert_true(start >= 0 && think >= 0);
    nb_span spans[] = {{lit("<|im_start|>user\n"), true}, {lit("say <|im_start|> and <think>"), false}, {lit("<|im_end|>"), true}};
    assert_int_equal(nb_tokenizer_encode_spans(t, spans, 3, NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
    assert_int_equal(count_id(&v, start), 1);
    assert_int_equal(count_id(&v, think), 1);
    assert_int_equal(v.id[v.n - 1], nb_tokenizer_find(t, lit("<|im_end|>")));
    assert_int_equal(nb_tokenizer_decode(t, v.id, v.n, false, &out, NULL), NB_OK);
    assert_string_equal(nb_buf_cstr(&out), "<|im_start|>user\nsay <|im_start|> and <think><|im_end|>");
    /* A control token whose text crosses a border is none, on either side. */
    nb_span cross[] = {{lit("<|im_"), true}, {lit("start|>"), false}, {lit("<|im_"), false}, {lit("start|>"), true}, {lit("<|im_"), true}, {lit("start|>"), true}};
    v.n = 0;
    assert_int_equal(nb_tokenizer_encode_spans(t, cross, 6, NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
    assert_int_equal(count_id(&v, start), 0);
    /* All of it trusted: one text, as if it had never been in parts. */
    v.n = 0;
    assert_int_equal(nb_tokenizer_encode_spans(t, cross + 4, 2, NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
    assert_int_equal(count_id(&v, start), 1);
    nb_ids_free(&v);
    nb_buf_free(&out);
    nb_tokenizer_free(t);
}

static const char *const sample[] = {
    "Hello, world! It's 12345 o'clock.\n\n  def f(x):\n\treturn x  \r\n", "Привет мир, 你好世界 こんにちは 안녕 مرحبا नमस्ते สวัสดี", "naïve café ﬁne Straße İ é ½ ² x",
    "👍🏽 👨‍👩‍👧 🏳️‍🌈 \xEF\xBF\xBD\xE2\x80\xA8\xEF\xBB\xBF", "    \t\t  a  b   c\n\n\n\n", "CamelCASEWord can't WE'LL //\n// ▁▁ <s> [CLS]", "\x01\x02\x1f control \x7f", "",
};

static size_t tokenizers;
static void same(const nb_ids *a, const nb_ids *b, const char *name)
{
    if (a->n != b->n || (a->n && memcmp(a->id, b->id, a->n * sizeof *a->id))) fail_msg("%s: other ids (%zu, %zu)", name, a->n, b->n);
}

/* Borders between plain spans change nothing; offsets ascend; the prepared form gives the same ids. */
static void check_one(const nb_tokenizer *t, const nb_tokenizer *mapped, const char *name)
{
    nb_ids whole = {0}, parts = {0}, other = {0};
    for (size_t i = 0; i < NB_COUNT(sample); i++) {
        size_t n = strlen(sample[i]);
        whole.n = parts.n = other.n = 0;
        assert_int_equal(nb_tokenizer_encode(t, lit(sample[i]), NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS | NB_ENC_OFFSETS, &whole, NULL), NB_OK);
        for (size_t k = 0; k < whole.n; k++) assert_true(whole.off[k] <= n);
        assert_int_equal(nb_tokenizer_encode(mapped, lit(sample[i]), NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS, &other, NULL), NB_OK);
        same(&whole, &other, name);
        for (size_t cut = 0; cut < n; cut += 3) {
            nb_span s[] = {{{sample[i], cut}, true}, {{sample[i] + cut, n - cut}, true}};
            parts.n = 0;
            /* A border may lie inside a character: only the whole has to be UTF-8. */
            assert_int_equal(nb_tokenizer_encode_spans(t, s, 2, NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS, &parts, NULL), NB_OK);
            same(&whole, &parts, name);
        }
    }
    nb_ids_free(&whole), nb_ids_free(&parts), nb_ids_free(&other);
}

/* Random ids: every piece of a stream is UTF-8, and the pieces of byte-level and SentencePiece decoders are the whole. */
static void check_streams(const nb_tokenizer *t)
{
    uint32_t random = 99, size = nb_tokenizer_size(t);
    nb_buf all = {0}, piece = {0}, bytes = {0};
    for (int round = 0; round < 30; round++) {
        nb_decode_stream *s = nb_decode_stream_new(t, round % 2);
        all.n = 0;
        for (int k = 0; k < 60; k++) {
            random = random * 1664525 + 1013904223;
            int32_t id = (int32_t)((random >> 4) % (size + 5)) - 2;
            piece.n = bytes.n = 0;
            assert_int_equal(nb_decode_stream_push(s, id, &piece, NULL), NB_OK);
            assert_int_equal(nb_utf8_valid_prefix(piece.p, piece.n), piece.n);
            assert_int_equal(nb_tokenizer_bytes(t, id, &bytes), nb_tokenizer_token(t, id).p != NULL);
        }
        assert_int_equal(nb_decode_stream_flush(s, &piece, NULL), NB_OK);
        nb_decode_stream_free(s);
    }
    nb_buf_free(&all), nb_buf_free(&piece), nb_buf_free(&bytes);
}

/* A damaged prepared file is refused or works; it never reads outside itself (the sanitizer builds see to that). */
static void check_damage(const nb_buf *image)
{
    uint32_t random = 7;
    uint8_t *p = aligned_alloc(64, NB_ALIGN_UP(image->n, 64));
    nb_ids v = {0};
    nb_buf out = {0};
    for (int i = 0; i < 60; i++) {
        nb_tokenizer *t = NULL;
        memcpy(p, image->p, image->n);
        for (int k = 0; k < 1 + i % 8; k++) {
            random = random * 1664525 + 1013904223;
            size_t at = i % 2 ? random % image->n : (random >> 8) % (image->n < 4096 ? image->n : 4096);
            p[at] ^= (uint8_t)(1u << (random >> 29));
        }
        size_t n = i % 10 == 9 ? image->n / 2 : image->n;
        if (nb_tokenizer_open(&t, p, n, NULL, NULL)) continue;
        for (size_t k = 0; k < NB_COUNT(sample); k++) {
            v.n = out.n = 0;
            if (nb_tokenizer_encode(t, lit(sample[k]), NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS, &v, NULL)) continue;
            nb_tokenizer_decode(t, v.id, v.n, true, &out, NULL);
        }
        nb_tokenizer_free(t);
    }
    free(p);
    nb_ids_free(&v);
    nb_buf_free(&out);
}

static void check_prepared(const char *dir, const char *name)
{
    nb_tokenizer *t = load_tokenizer(dir), *mapped = NULL;
    nb_buf image = {0};
    nb_error err = {0};
    if (!t) return;
    tokenizers++;
    assert_int_equal(nb_tokenizer_save(t, &image, key, &err), NB_OK);
    uint8_t *p = aligned_alloc(64, NB_ALIGN_UP(image.n, 64));
    memcpy(p, image.p, image.n);
    uint64_t from = cpu_ns();
    if (nb_tokenizer_open(&mapped, p, image.n, key, &err)) fail_msg("%s: %s", name, err.text);
    uint64_t ns = cpu_ns() - from;
    if (nb_tokenizer_size(t) > 100000) print_message("%s: %u tokens, prepared %.1f MB, ready in %.2f ms\n", name, nb_tokenizer_size(t), (double)image.n / 1e6, (double)ns / 1e6);
    assert_int_equal(nb_tokenizer_open(&(nb_tokenizer *){NULL}, p, image.n, "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", NULL), NB_E_INVALID);
    check_one(t, mapped, name);
    check_streams(mapped);
    if (image.n < 4000000) check_damage(&image);
    nb_tokenizer_free(mapped);
    nb_tokenizer_free(t);
    free(p);
    nb_buf_free(&image);
}

static void test_prepared(void **state)
{
    char root[4096];
    (void)state;
    snprintf(root, sizeof root, "%s/tokenizers", test_data());
    each_folder(root, "tokenizer.json", check_prepared);
    snprintf(root, sizeof root, "%s/tokenizers/components", test_data());
    each_folder(root, "tokenizer.json", check_prepared);
    each_folder(root, "tokenizer.model", check_prepared);
    print_message("%zu tokenizers saved, opened, damaged\n", tokenizers);
    if (!tokenizers) skip();
}

/* The fuzz target of prepared files begins with these: they must be of the version that is read. */
static void test_prepared_seeds(void **state)
{
    static const char folder[] = "tests/fuzz/corpus/text_prepared";
    struct dirent **list;
    size_t seeds = 0;
    int n = scandir(folder, &list, NULL, alphasort);
    (void)state;
    for (int i = 0; i < n; i++) {
        char path[512];
        nb_mapped map;
        nb_tokenizer *t = NULL;
        nb_error err = {0};
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        if (list[i]->d_name[0] != '.') {
            if (nb_file_map(&map, path, UINT64_MAX, &err) || nb_tokenizer_open(&t, map.p, map.n, NULL, &err)) fail_msg("%s: %s", path, err.text);
            nb_tokenizer_free(t);
            nb_file_unmap(&map);
            seeds++;
        }
        free(list[i]);
    }
    if (n >= 0) free(list);
    print_message("%zu prepared files of the fuzz corpus\n", seeds);
    if (!seeds) skip();
}

/* Folders that hold a tokenizer and rendered prompts with their ids. */
static size_t prompts;
static void check_chats(const char *dir, const char *name)
{
    nb_buf b = {0};
    nb_json_doc doc = {0};
    nb_ids v = {0};
    nb_buf text = {0};
    int64_t id;
    nb_tokenizer *t = load_tokenizer(dir);
    if (t && read_data(&b, dir, "chats.json") && !nb_json_parse(&doc, b.p, b.n, "chats.json", NULL, NULL)) {
        for (uint32_t i = 0; i < doc.root->count; i++) {
            const nb_json *c = &doc.root->items[i], *ids = nb_json_get(c, "prompt_ids"), *greedy = nb_json_get(c, "greedy_ids");
            nb_str prompt, want;
            if (!ids || !nb_json_str(nb_json_get(c, "prompt"), &prompt)) continue;
            v.n = 0;
            assert_int_equal(nb_tokenizer_encode(t, prompt, NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
            assert_int_equal(v.n, ids->count);
            for (uint32_t k = 0; k < ids->count; k++) assert_true(nb_json_i64(&ids->items[k], &id) && id == v.id[k]);
            if (greedy && nb_json_str(nb_json_get(c, "greedy_text"), &want)) {
                v.n = text.n = 0;
                for (uint32_t k = 0; k < greedy->count; k++) nb_json_i64(&greedy->items[k], &id), nb_ids_push(&v, (int32_t)id);
                assert_int_equal(nb_tokenizer_decode(t, v.id, v.n, false, &text, NULL), NB_OK);
                assert_true(nb_str_eq(nb_buf_str(&text), want));
            }
            prompts++;
        }
        print_message("%s: prompts checked\n", name);
    }
    nb_json_free(&doc);
    nb_buf_free(&b), nb_buf_free(&text);
    nb_ids_free(&v);
    nb_tokenizer_free(t);
}

static void test_chats(void **state)
{
    (void)state;
    each_folder(test_data(), "chats.json", check_chats);
    print_message("%zu prompts\n", prompts);
    if (!prompts) skip();
}

/* A longer prompt keeps the ids of its beginning; the result is that of encoding it whole. */
static void test_again(void **state)
{
    nb_tokenizer *t = small();
    nb_ids v = {0}, whole = {0};
    size_t kept;
    (void)state;
    nb_span a[] = {{lit("<|im_start|>user\n"), true}, {lit("ab <|im_end|> x"), false}, {lit("<|im_end|>\n<|im_start|>"), true}, {lit("q"), false}};
    nb_span b[] = {{lit("<|im_start|>user\n"), true}, {lit("ab <|im_end|> x"), false}, {lit("<|im_end|>\n<|im_start|>"), true}, {lit("quser er<|im_end|>"), false}, {lit("<|im_end|>"), true}};
    nb_span c[] = {{lit("<|im_start|>user\n"), true}, {lit("ab <|im_end|> x"), true}};
    const struct { const nb_span *s; size_t n, least; } next[] = {{b, 5, 1}, {c, 2, 0}, {a, 4, 0}, {b, 4, 1}, {a, 2, 1}, {a, 1, 0}, {a, 0, 0}, {b, 5, 0}}; /* c is trusted whole: nothing is kept */
    assert_int_equal(nb_tokenizer_encode_spans(t, a, 4, NB_ENC_PARSE_ADDED | NB_ENC_OFFSETS, &v, NULL), NB_OK);
    const nb_span *before = a;
    size_t before_n = 4;
    for (size_t i = 0; i < NB_COUNT(next); i++) {
        whole.n = 0;
        assert_int_equal(nb_tokenizer_encode_spans(t, next[i].s, next[i].n, NB_ENC_PARSE_ADDED | NB_ENC_OFFSETS, &whole, NULL), NB_OK);
        assert_int_equal(nb_tokenizer_encode_again(t, before, before_n, next[i].s, next[i].n, NB_ENC_PARSE_ADDED, &v, &kept, NULL), NB_OK);
        same(&v, &whole, "again");
        assert_true(kept >= next[i].least);
        if (v.n) assert_memory_equal(v.off, whole.off, v.n * sizeof *v.off);
        before = next[i].s, before_n = next[i].n;
    }
    nb_ids_free(&v), nb_ids_free(&whole);
    nb_tokenizer_free(t);
}

static void test_offsets(void **state)
{
    nb_tokenizer *t = small();
    nb_ids v = {0};
    const char *text = "a <|im_start|>user us\xC3\xA9r";
    (void)state;
    assert_int_equal(nb_tokenizer_encode(t, lit(text), NB_ENC_PARSE_ADDED | NB_ENC_OFFSETS, &v, NULL), NB_OK);
    for (size_t i = 0; i < v.n; i++) {
        nb_buf b = {0};
        assert_true(nb_tokenizer_bytes(t, v.id[i], &b));
        assert_memory_equal(text + v.off[i], b.p, b.n);
        assert_int_equal(i + 1 < v.n ? v.off[i + 1] : strlen(text), v.off[i] + b.n);
        nb_buf_free(&b);
    }
    nb_ids_free(&v);
    nb_tokenizer_free(t);
}

static void test_bad_text(void **state)
{
    nb_tokenizer *t = small();
    nb_ids v = {0};
    nb_error err = {0};
    (void)state;
    assert_int_equal(nb_tokenizer_encode(t, lit("abc\xED\xA0\x80"), NB_ENC_PARSE_ADDED, &v, &err), NB_E_INVALID);
    assert_non_null(strstr(err.text, "byte 3"));
    assert_int_equal(nb_tokenizer_encode(t, lit("\xFF"), 0, &v, &err), NB_E_INVALID);
    assert_int_equal(v.n, 0);
    nb_ids_free(&v);
    nb_tokenizer_free(t);
}

/* Texts, tokens and sections that are empty have no memory of their own: nothing may be added to their pointers or copied
 * from them (the sanitizer builds see to that). */
static void test_empty(void **state)
{
    static const char *const json[] = {
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\":0,\"a\":1},\"merges\":[]},\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true},"
        "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,\"strip_accents\":false,\"lowercase\":false}}",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\":0,\"a\":1},\"merges\":[]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Nmt\"},{\"type\":\"NFC\"},{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true},{\"type\":\"Lowercase\"}]}}",
        "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"\",\"continuing_subword_prefix\":\"\",\"max_input_chars_per_word\":9,\"vocab\":{\"\":0,\"a\":1}},"
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"\",\"cleanup\":true},\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\".\"},\"content\":\"\"}}"};
    static const nb_str text[] = {{NULL, 0}, {"", 0}, {"\x01", 1}, {" ", 1}};
    (void)state;
    for (size_t i = 0; i < NB_COUNT(json); i++) {
        nb_tokenizer *t = NULL, *again = NULL;
        nb_error err = {0};
        nb_ids v = {0};
        nb_buf out = {0}, image = {0};
        size_t kept;
        if (nb_tokenizer_from_json(&t, json[i], strlen(json[i]), NULL, &err)) fail_msg("%s", err.text);
        for (size_t k = 0; k < NB_COUNT(text); k++) {
            nb_span span = {text[k], false};
            v.n = 0;
            assert_int_equal(nb_tokenizer_encode_spans(t, &span, 1, NB_ENC_PARSE_ADDED | NB_ENC_SPECIALS | NB_ENC_OFFSETS, &v, &err), NB_OK);
            assert_int_equal(nb_tokenizer_encode_again(t, &span, 1, &span, 0, NB_ENC_PARSE_ADDED, &v, &kept, &err), NB_OK);
        }
        assert_int_equal(nb_tokenizer_decode(t, NULL, 0, true, &out, &err), NB_OK);
        nb_decode_stream *s = nb_decode_stream_new(t, false);
        for (int k = 0; k < 3; k++) assert_int_equal(nb_decode_stream_push(s, 0, &out, &err), NB_OK);
        assert_int_equal(nb_decode_stream_flush(s, &out, &err), NB_OK);
        nb_decode_stream_free(s);
        assert_int_equal(nb_tokenizer_find(t, (nb_str){NULL, 0}), 0);
        /* An empty section whose offset is nonsense. */
        assert_int_equal(nb_tokenizer_save(t, &image, key, NULL), NB_OK);
        nb_tok_header *h = aligned_alloc(64, NB_ALIGN_UP(image.n, 64));
        memcpy(h, image.p, image.n);
        for (size_t k = 0; k < NB_TS_COUNT; k++)
            if (!h->section[k].size) h->section[k].off = UINT64_MAX - k;
        assert_int_equal(nb_tokenizer_open(&again, h, image.n, NULL, NULL), NB_OK);
        nb_tokenizer_free(again);
        free(h);
        nb_ids_free(&v);
        nb_buf_free(&out), nb_buf_free(&image);
        nb_tokenizer_free(t);
    }
}

/* Each is refused with a line that names what is wrong. */
/* Processors in a Sequence work on what the one before left; ids and types are the published package's. */
static void test_post_sequence(void **state)
{
#define ROBERTA "{\"type\":\"RobertaProcessing\",\"sep\":[\"i\",8],\"cls\":[\"d\",3],\"trim_offsets\":true,\"add_prefix_space\":false}"
#define BERT "{\"type\":\"BertProcessing\",\"sep\":[\"h\",7],\"cls\":[\"e\",4]}"
#define SEQ(id, type) "{\"Sequence\":{\"id\":\"" id "\",\"type_id\":" type "}}"
#define MARK(type) "{\"SpecialToken\":{\"id\":\"j\",\"type_id\":" type "}}"
#define FORM(single, pair) "{\"type\":\"TemplateProcessing\",\"single\":[" single "],\"pair\":[" pair "],\"special_tokens\":{\"j\":{\"id\":\"j\",\"ids\":[9],\"tokens\":[\"j\"]}}}"
#define MARKED FORM(MARK("0") "," SEQ("A", "0"), SEQ("A", "0") "," MARK("2") "," SEQ("B", "5"))
#define TURNED FORM(SEQ("A", "0"), SEQ("B", "3") "," SEQ("A", "4"))
    static const struct { const char *post, *single, *pair; } cases[] = {
        {ROBERTA "," BERT, "4 3 0 8 7 ", "4/0 3/0 0/0 8/0 7/0 8/0 1/0 8/0 7/1 "},
        {BERT "," BERT, "4 4 0 7 7 ", "4/0 4/0 0/0 7/0 7/0 1/1 7/1 7/1 "},
        {BERT "," MARKED, "9 4 0 7 ", "4/0 0/0 7/0 9/2 1/5 7/5 "},
        {MARKED "," BERT, "4 9 7 0 7 ", "4/0 0/0 7/0 9/2 7/1 1/5 7/1 "},
        {MARKED "," ROBERTA, "3 9 8 8 0 8 ", "3/0 0/0 8/0 8/0 9/0 8/0 8/0 1/0 8/0 "},
        {TURNED "," BERT, "4 0 7 ", "4/0 1/3 7/0 0/4 7/1 "},
        {BERT "," TURNED, "4 0 7 ", "1/3 7/3 4/4 0/4 7/4 "},
        {ROBERTA, "3 0 8 ", "3/0 0/0 8/0 8/0 1/0 8/0 "},
        {MARKED "," TURNED, NULL, "leaves 3 sequences"},
        {FORM(SEQ("B", "0"), SEQ("A", "0") "," SEQ("B", "0")), NULL, "names the sequence B"},
    };
    (void)state;
    for (size_t k = 0; k < NB_COUNT(cases); k++) {
        nb_buf b = {0};
        nb_error err = {0};
        nb_tokenizer *t = NULL;
        nb_buf_printf(&b, "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"e\":4,\"f\":5,\"g\":6,\"h\":7,\"i\":8,\"j\":9}},"
                          "\"post_processor\":{\"type\":\"Sequence\",\"processors\":[%s]}}", cases[k].post);
        nb_status st = nb_tokenizer_from_json(&t, b.p, b.n, NULL, &err);
        assert_int_equal(st != NB_OK, !cases[k].single);
        if (st && !strstr(err.text, cases[k].pair)) fail_msg("case %zu: %s", k, err.text);
        for (int pair = 0; pair < 2 && !st; pair++) {
            nb_ids v = {0}, types = {0};
            nb_buf got = {0};
            const char *want = pair ? cases[k].pair : cases[k].single;
            if (pair) assert_int_equal(nb_tokenizer_encode_pair(t, lit("a"), lit("b"), NB_ENC_SPECIALS, &v, &types, NULL), NB_OK);
            else assert_int_equal(nb_tokenizer_encode(t, lit("a"), NB_ENC_SPECIALS, &v, NULL), NB_OK);
            for (size_t i = 0; i < v.n; i++) {
                if (pair) nb_buf_printf(&got, "%d/%d ", v.id[i], types.id[i]);
                else nb_buf_printf(&got, "%d ", v.id[i]);
            }
            if (strcmp(nb_buf_cstr(&got), want)) fail_msg("case %zu: '%s', not '%s'", k, nb_buf_cstr(&got), want);
            nb_buf_free(&got), nb_ids_free(&v), nb_ids_free(&types);
        }
        nb_tokenizer_free(t);
        nb_buf_free(&b);
    }
}

/* The bytes of a token are those in the middle of a text; only the text as a whole loses the space it begins with. */
static void test_bytes_keep_spaces(void **state)
{
    static const char json[] = "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"\u2581\u2581\u2581\":1,\"\u2581a\":2,\"<0x20>\":3,\"b\":4},\"merges\":[]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},"
        "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}}";
    static const char *const want[] = {"u", "   ", " a", " ", "b"};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    nb_buf text = {0};
    (void)state;
    if (nb_tokenizer_from_json(&t, json, strlen(json), NULL, &err)) fail_msg("%s", err.text);
    for (int32_t id = 0; id < 5; id++) {
        nb_buf b = {0};
        assert_true(nb_tokenizer_bytes(t, id, &b));
        assert_string_equal(nb_buf_cstr(&b), want[id]);
        nb_buf_free(&b);
    }
    assert_int_equal(nb_tokenizer_decode(t, (int32_t[]){2, 2}, 2, false, &text, NULL), NB_OK);
    assert_string_equal(nb_buf_cstr(&text), "a a");
    nb_buf_free(&text);
    nb_tokenizer_free(t);
}

static void test_refusals(void **state)
{
    static const struct { const char *json, *names; nb_status status; } t[] = {
        {"{", "tokenizer.json", NB_E_INVALID}, {"[]", "model", NB_E_INVALID}, {"{\"model\":{\"type\":\"Magic\",\"vocab\":{}}}", "Magic", NB_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "bad id", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}}", "bad id", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", "entry 0 needs 'b'", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a a\"]}}", "entry 0", NB_E_INVALID},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}}", "unk_token", NB_E_INVALID},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":7}}", "unk_id", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Rot13\"}}", "normalizer: unknown type 'Rot13'", NB_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Cut\"}]}}", "'Cut'", NB_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"decoder\":{\"type\":\"Glue\"}}", "decoder: unknown type 'Glue'", NB_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"post_processor\":{\"type\":\"Wrap\"}}", "'Wrap'", NB_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}}", "prepend_scheme", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a\"},\"behavior\":\"Isolated\",\"invert\":false}}", "group", NB_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{Klingon}\"},\"behavior\":\"Isolated\",\"invert\":false}}", "Klingon", NB_E_UNSUPPORTED},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////\"}}", "charsmap", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"*\"}}", "base64", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"added_tokens\":[{\"content\":\"x\"}]}", "lacks", NB_E_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "two entries", NB_E_UNSUPPORTED},
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(t); i++) {
        nb_tokenizer *k = NULL;
        nb_error err = {0};
        nb_status st = nb_tokenizer_from_json(&k, t[i].json, strlen(t[i].json), NULL, &err);
        if (st != t[i].status || !strstr(err.text, t[i].names)) fail_msg("%s: %d '%s', wanted '%s'", t[i].json, st, err.text, t[i].names);
        assert_null(k);
    }
}

/* ---- GGUF ---- */

static nb_tokenizer *gguf_model(const char *model, const char *pre, const char *more)
{
    nb_buf b = {0};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    nb_buf_printf(&b, "{\"model\":\"%s\",\"pre\":\"%s\",\"merges\":[\"1 none\",\"1 2\",\"12 3\"],\"token_type\":[3", model, pre);
    for (int i = 0; i < 258; i++) nb_buf_add_cstr(&b, ",1");
    nb_buf_add_cstr(&b, "],\"tokens\":[\"<|end|>\"");
    for (uint32_t i = 0, other = 0; i < 256; i++) {
        bool plain = (i >= 0x21 && i <= 0x7E) || (i >= 0xA1 && i <= 0xAC) || i >= 0xAE;
        nb_buf s = {0};
        nb_buf_add_cp(&s, plain ? i : 0x100 + other++);
        nb_buf_add_char(&b, ',');
        nb_json_write_string(&b, nb_buf_str(&s), 0);
        nb_buf_free(&s);
    }
    nb_buf_printf(&b, ",\"12\",\"123\"]%s}", more);
    if (nb_tokenizer_from_gguf(&t, b.p, b.n, &err)) fail_msg("%s: %s", pre, err.text);
    nb_buf_free(&b);
    return t;
}

static nb_tokenizer *gguf(const char *pre, const char *more) { return gguf_model("gpt2", pre, more); }

static void expect_pieces(const char *pre, const char *text, const char *want)
{
    nb_tokenizer *t = gguf(pre, "");
    nb_ids v = {0};
    nb_buf got = {0};
    assert_int_equal(nb_tokenizer_encode(t, lit(text), NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
    for (size_t i = 0; i < v.n; i++) {
        if (i) nb_buf_add_char(&got, '|');
        nb_tokenizer_bytes(t, v.id[i], &got);
    }
    if (strcmp(nb_buf_cstr(&got), want)) fail_msg("%s: '%s' gives '%s', not '%s'", pre, text, nb_buf_cstr(&got), want);
    nb_buf_free(&got);
    nb_ids_free(&v);
    nb_tokenizer_free(t);
}

static void test_gguf(void **state)
{
    static const char *const names[] = {
        "llama3", "llama-v3", "llama-bpe", "laguna", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano", "dbrx", "smaug-bpe", "glm4", "chatglm-bpe", "gpt-2",
        "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
        "jina-v1-en", "jina-v2-code", "roberta-bpe", "qwen2", "deepseek-r1-qwen", "kormo", "openpangu", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2", "qwen35",
        "gpt-4o", "llama4", "kanana2", "minimax-m2", "tekken", "deepseek-v3", "hunyuan-dense", "joyai-llm", "deepseek-llm", "deepseek-coder", "starcoder", "refact", "command-r",
        "cohere2_moe", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2", "falcon", "bloom", "poro-chat", "gpt3-finnish", "viking", "chameleon", "superbpe", "bailingmoe",
        "bailingmoe2", "llada-moe", "seed-coder", "kimi-k2", "afmoe", "youtu", "tiny_aya", "jais-2", "exaone-moe", "gemma4", "default", "never-heard-of",
    };
    (void)state;
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        nb_tokenizer *t = gguf(names[i], "");
        nb_ids v = {0};
        nb_buf out = {0};
        const char *text = "Hello 12345 world's\n\n  你好 é<|end|>";
        assert_int_equal(nb_tokenizer_encode(t, lit(text), NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
        assert_int_equal(v.id[v.n - 1], 0);
        assert_int_equal(nb_tokenizer_decode(t, v.id, v.n, false, &out, NULL), NB_OK);
        if (strcmp(names[i], "gemma4")) assert_string_equal(nb_buf_cstr(&out), text); /* gemma4 has no bytes in this vocabulary */
        nb_ids_free(&v);
        nb_buf_free(&out);
        nb_tokenizer_free(t);
    }
    expect_pieces("gpt-2", "1234", "123|4");
    expect_pieces("smollm", "1234", "1|2|3|4");
    expect_pieces("llama-bpe", "1231234", "123|123|4");
    expect_pieces("superbpe", "a123123", "a|123|123");
    expect_pieces("superbpe", "1123", "1|123");
    expect_pieces("superbpe", "12312", "12|3|12");
    expect_pieces("tiny_aya", "12312", "12|3|12");
    expect_pieces("tiny_aya", "12312x", "123|12|x");
    expect_pieces("afmoe", "x12312", "x|12|3|12");
    nb_tokenizer *t = gguf("gpt-2", ",\"bos_token_id\":0,\"add_bos_token\":true");
    nb_ids v = {0};
    assert_int_equal(nb_tokenizer_encode(t, lit("12"), NB_ENC_SPECIALS | NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
    assert_int_equal(v.n, 2);
    assert_int_equal(v.id[0], 0);
    nb_ids_free(&v);
    nb_tokenizer_free(t);
    print_message("%zu names of pre-tokenizers\n", NB_COUNT(names));
}

/* The model "gemma4" is cut as pre-tokenizer "gemma4", whatever name the file gives. */
static void test_gguf_gemma4(void **state)
{
    nb_tokenizer *t[] = {gguf("gemma4", ""), gguf_model("gemma4", "gpt-2", ""), gguf_model("gemma4", "default", ""), gguf("gpt-2", "")};
    nb_ids v[4] = {{0}};
    (void)state;
    for (int i = 0; i < 4; i++) assert_int_equal(nb_tokenizer_encode(t[i], lit("12 312\n\n1a"), 0, &v[i], NULL), NB_OK);
    same(&v[1], &v[0], "pre gpt-2");
    same(&v[2], &v[0], "pre default");
    assert_true(v[3].n != v[0].n || memcmp(v[3].id, v[0].id, v[0].n * sizeof *v[0].id));
    for (int i = 0; i < 4; i++) nb_ids_free(&v[i]), nb_tokenizer_free(t[i]);
}

static void test_gguf_llama(void **state)
{
    static const char json[] = "{\"model\":\"llama\",\"tokens\":[\"<unk>\",\"<s>\",\"</s>\",\"<0x41>\",\"<0xC3>\",\"<0xA9>\",\"\xE2\x96\x81\",\"a\",\"b\",\"\xE2\x96\x81" "a\",\"ab\"],"
                               "\"scores\":[0,0,0,0,0,0,-3,-4,-5,-1,-2],\"token_type\":[2,3,3,6,6,6,1,1,1,1,1],\"bos_token_id\":1,\"eos_token_id\":2}";
    nb_tokenizer *t = NULL;
    nb_ids v = {0};
    nb_buf out = {0};
    nb_error err = {0};
    (void)state;
    if (nb_tokenizer_from_gguf(&t, json, sizeof json - 1, &err)) fail_msg("%s", err.text);
    assert_int_equal(nb_tokenizer_encode(t, lit("ab\xC3\xA9</s>ab"), NB_ENC_SPECIALS | NB_ENC_PARSE_ADDED, &v, &err), NB_OK);
    static const int32_t want[] = {1, 9, 8, 4, 5, 2, 9, 8};
    assert_int_equal(v.n, 8);
    assert_memory_equal(v.id, want, sizeof want);
    assert_int_equal(nb_tokenizer_decode(t, v.id, v.n, true, &out, NULL), NB_OK);
    assert_string_equal(nb_buf_cstr(&out), "ab\xC3\xA9 ab");
    nb_ids_free(&v);
    nb_buf_free(&out);
    nb_tokenizer_free(t);
}

/* Text that makes careless tokenizers quadratic: twice as much may take three times as long, not more. */
static void check_linear(const nb_tokenizer *t, const char *const *unit, size_t units)
{
    for (size_t i = 0; i < units; i++) {
        uint64_t best[2] = {UINT64_MAX, UINT64_MAX};
        for (int round = 0; round < 6; round++) {
            nb_buf b = {0};
            nb_ids v = {0};
            while (b.n < (round % 2 ? 400000u : 200000u)) nb_buf_add_cstr(&b, unit[i]);
            uint64_t from = cpu_ns();
            assert_int_equal(nb_tokenizer_encode(t, nb_buf_str(&b), NB_ENC_PARSE_ADDED, &v, NULL), NB_OK);
            uint64_t ns = cpu_ns() - from;
            if (ns < best[round % 2]) best[round % 2] = ns;
            nb_ids_free(&v);
            nb_buf_free(&b);
        }
        print_message("'%s' again and again: %.1f MB/s\n", unit[i][0] == '\n' ? "\\n" : unit[i], 400e6 / (double)best[1]);
        assert_true(best[1] < best[0] * 7 / 2 + 2000000); /* quadratic would be 4 times */
    }
}

static void test_hostile(void **state)
{
    static const char *const unit[] = {"a", "=", " ", "\n", "a\xD0\xB6\xE4\xB8\xAD\xF0\x9F\x98\x80", "'", "<|im_start", "1", "user ", "\xCC\x81"};
    nb_tokenizer *t = small();
    (void)state;
    check_linear(t, unit, NB_COUNT(unit));
    nb_tokenizer_free(t);
}

static void proto_bytes(nb_buf *b, char field, const void *p, size_t n)
{
    nb_buf_add_char(b, (char)(field << 3 | 2));
    nb_buf_add_char(b, (char)n); /* all are short */
    nb_buf_add(b, p, n);
}

static void proto_piece(nb_buf *b, const char *text, float score, char type)
{
    nb_buf m = {0};
    proto_bytes(&m, 1, text, strlen(text));
    nb_buf_add_char(&m, 2 << 3 | 5);
    nb_buf_add(&m, &score, 4);
    nb_buf_add_char(&m, 3 << 3), nb_buf_add_char(&m, type);
    proto_bytes(b, 1, m.p, m.n);
    nb_buf_free(&m);
}

/* A long text for SentencePiece's Unigram: runs of a whose parts may stand in any order, but for rounding in float32. What the
 * library (0.2.3) gives depends on where its sums begin anew. */
static void test_float_sums(void **state)
{
    nb_buf model = {0}, text = {0};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    nb_ids v = {0};
    uint32_t x = 1, hash = 2166136261u;
    (void)state;
    proto_piece(&model, "<unk>", 0, 2);
    proto_piece(&model, "a", -5.25f, 1), proto_piece(&model, "aa", -7.5078125f, 1), proto_piece(&model, "aaa", -8.13417f, 1), proto_piece(&model, "b", -3.14159f, 1);
    proto_bytes(&model, 2, "\x18\x01", 2);                 /* a Unigram */
    proto_bytes(&model, 3, "\x18\x00\x20\x00\x28\x00", 6); /* that leaves spaces alone */
    if (nb_tokenizer_from_spm(&t, model.p, model.n, NULL, &err)) fail_msg("%s", err.text);
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525 + 1013904223;
        for (uint32_t k = 3 + 2 * ((x >> 16) % 6); k; k--) nb_buf_add_char(&text, 'a');
        nb_buf_add_char(&text, 'b');
    }
    assert_int_equal(nb_tokenizer_encode(t, nb_buf_str(&text), 0, &v, NULL), NB_OK);
    for (size_t i = 0; i < v.n; i++) hash = (hash ^ (uint32_t)v.id[i]) * 16777619u;
    assert_int_equal(v.n, 80140);
    assert_int_equal(hash, 0x599f8ad9u);
    nb_ids_free(&v);
    nb_tokenizer_free(t);
    nb_buf_free(&model), nb_buf_free(&text);
}

/* With ignore_merges a piece is looked up whole; the same text as a part of a longer piece is not. */
static void test_whole_pieces(void **state)
{
    nb_buf b = {0};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    nb_ids v = {0};
    (void)state;
    small_json(&b);
    const char *json = nb_buf_cstr(&b), *at = strstr(json, "\"im\":256"), *merges = strstr(json, "\"merges\":[");
    nb_buf more = {0};
    nb_buf_add(&more, json, (size_t)(at - json));
    nb_buf_add_cstr(&more, "\"ab\":264,\"bc\":265,\"abc\":266,");
    nb_buf_add(&more, at, (size_t)(merges - at));
    nb_buf_add_cstr(&more, "\"ignore_merges\":true,\"merges\":[\"a b\",\"b c\",");
    nb_buf_add_cstr(&more, merges + strlen("\"merges\":["));
    if (nb_tokenizer_from_json(&t, more.p, more.n, NULL, &err)) fail_msg("%s", err.text);
    const char *text = "zzzzzzzzzzzzzzzzabczzzzzzzzzzzzzzzz1abc2zzzzzzzzzzzzzzzzabczzzzzzzzzzzzzzzz3abc";
    int32_t whole = nb_tokenizer_find(t, lit("abc")), part = nb_tokenizer_find(t, lit("ab"));
    assert_int_equal(nb_tokenizer_encode(t, lit(text), 0, &v, NULL), NB_OK);
    assert_int_equal(count_id(&v, whole), 2);
    assert_int_equal(count_id(&v, part), 2);
    nb_ids_free(&v);
    nb_tokenizer_free(t);
    nb_buf_free(&b), nb_buf_free(&more);
}

/* Thousands of added tokens with all flags, white space that strips white space, and patterns that look far ahead. */
static void test_many_added(void **state)
{
    static const char *const unit[] = {"a", " ", "\n", "<x17><x18>", "<x1", "<x17> ", "\n<x18> ", "a<x19>", "<"};
    nb_buf b = {0};
    nb_tokenizer *t = NULL;
    nb_error err = {0};
    (void)state;
    nb_buf_add_cstr(&b, "{\"added_tokens\":[");
    for (int i = 0; i < 5000; i++) {
        char text[16];
        snprintf(text, sizeof text, i == 0 ? " " : i == 1 ? "\\n" : "<x%d>", i);
        nb_buf_printf(&b, "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":%s,\"lstrip\":%s,\"rstrip\":%s,\"normalized\":%s,\"special\":%s}", i ? "," : "", 9 + i, text, i % 7 == 6 ? "true" : "false",
                      i % 3 == 0 ? "true" : "false", i % 5 == 1 ? "true" : "false", i % 2 ? "true" : "false", i % 4 == 3 ? "true" : "false");
    }
    nb_buf_add_cstr(&b, "],\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" +$\"},\"content\":\"\"}]},"
                        "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a+1|<x*y|.\"},\"behavior\":\"Isolated\",\"invert\":false},"
                        "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a\":1,\"<\":2,\"x\":3,\"1\":4},\"merges\":[]}}");
    if (nb_tokenizer_from_json(&t, b.p, b.n, NULL, &err)) fail_msg("%s", err.text);
    check_linear(t, unit, NB_COUNT(unit));
    nb_tokenizer_free(t);
    nb_buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_origin), cmocka_unit_test(test_prepared), cmocka_unit_test(test_prepared_seeds), cmocka_unit_test(test_chats), cmocka_unit_test(test_again), cmocka_unit_test(test_offsets), cmocka_unit_test(test_bad_text), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_bytes_keep_spaces), cmocka_unit_test(test_post_sequence), cmocka_unit_test(test_gguf), cmocka_unit_test(test_gguf_llama), cmocka_unit_test(test_gguf_gemma4), cmocka_unit_test(test_whole_pieces), cmocka_unit_test(test_float_sums), cmocka_unit_test(test_hostile), cmocka_unit_test(test_many_added),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
