/* Tokenizers of 262,144 entries made from texts of the repository: no published file is needed to see what a large one costs. */
#ifndef NB_TESTS_TOK_MADE_H
#define NB_TESTS_TOK_MADE_H

#include "tok_testlib.h"

#include <search.h>

enum { MADE_ENTRIES = 262144, MADE_ADDED = 3000, MADE_WORDS = 120000, MADE_PART = 16 };

typedef struct made {
    nb_arena *a;
    struct hsearch_data known; /* spelling -> id + 1 */
    char **token;
    uint32_t n, most, seed;
    bool bytes;                /* the byte-level alphabet; else U+2581 for a space, and bytes as <0xNN> */
    nb_buf merges;
} made;

static inline uint32_t made_draw(made *m, uint32_t n) { return (m->seed = m->seed * 1664525u + 1013904223u) / 256 % n; }

static inline bool made_find(made *m, const char *s, uint32_t *id)
{
    ENTRY *found;
    if (!hsearch_r((ENTRY){.key = (char *)s}, FIND, &found, &m->known)) return false;
    *id = (uint32_t)(uintptr_t)found->data - 1;
    return true;
}

static inline uint32_t made_add(made *m, const char *s)
{
    ENTRY *slot;
    char *key = nb_arena_dup(m->a, s, strlen(s));
    assert_non_null(key);
    assert_true(hsearch_r((ENTRY){.key = key, .data = (void *)(uintptr_t)(m->n + 1)}, ENTER, &slot, &m->known));
    m->token[m->n] = key;
    return m->n++;
}

/* The token that both make, with its merge; all merges are of tokens that came before. */
static inline uint32_t made_merge(made *m, uint32_t left, uint32_t right)
{
    char s[256];
    uint32_t id;
    snprintf(s, sizeof s, "%s%s", m->token[left], m->token[right]);
    if (made_find(m, s, &id)) return id;
    if (m->merges.n) nb_buf_add_char(&m->merges, ',');
    if (m->bytes) { /* the newer form, of two strings */
        nb_buf_add_char(&m->merges, '[');
        nb_json_write_string(&m->merges, nb_str_of(m->token[left]), 0);
        nb_buf_add_char(&m->merges, ',');
        nb_json_write_string(&m->merges, nb_str_of(m->token[right]), 0);
        nb_buf_add_char(&m->merges, ']');
    } else {
        char pair[256];
        snprintf(pair, sizeof pair, "%s %s", m->token[left], m->token[right]);
        nb_json_write_string(&m->merges, nb_str_of(pair), 0);
    }
    return made_add(m, s);
}

static inline void made_alphabet(made *m)
{
    uint32_t moved = 256;
    for (uint32_t b = 0; b < 256; b++) {
        nb_buf s = {0};
        bool plain = (b > 0x20 && b < 0x7F) || (b > 0xA0 && b != 0xAD);
        if (m->bytes) nb_buf_add_cp(&s, plain ? b : moved++);
        else nb_buf_printf(&s, "<0x%02X>", b);
        made_add(m, nb_buf_cstr(&s));
        nb_buf_free(&s);
    }
    for (char c = '!'; !m->bytes && c <= '~'; c++) made_add(m, (char[]){c, 0});
    if (!m->bytes) made_add(m, "\n"), made_add(m, "\xE2\x96\x81");
}

static inline uint32_t made_char(made *m, char c)
{
    char s[8] = {c, 0};
    uint32_t id = 0;
    if (c == ' ') strcpy(s, m->bytes ? "\xC4\xA0" : "\xE2\x96\x81");
    if (c == '\n' && m->bytes) strcpy(s, "\xC4\x8A");
    assert_true(made_find(m, s, &id));
    return id;
}

/* Every word of a text, with the space before it, from its first letter on; then runs of one sign. */
static inline void made_words(made *m, nb_str text)
{
    for (size_t i = 0; i < text.n && m->n < MADE_WORDS; i++) {
        bool letter = (uint8_t)((text.p[i] | 32) - 'a') < 26;
        if (!letter || (i && (uint8_t)((text.p[i - 1] | 32) - 'a') < 26)) continue;
        uint32_t word = i && text.p[i - 1] == ' ' ? made_merge(m, made_char(m, ' '), made_char(m, text.p[i])) : made_char(m, text.p[i]);
        for (size_t k = i + 1; k < text.n && k < i + 24 && (uint8_t)((text.p[k] | 32) - 'a') < 26 && m->n < MADE_WORDS; k++) word = made_merge(m, word, made_char(m, text.p[k]));
    }
    for (const char *c = " \n=-*#"; *c; c++) {
        uint32_t run = made_char(m, *c);
        for (int k = 0; k < 6; k++) run = made_merge(m, run, run);
    }
}

/* Fills up with random pairs of words and letters. Behind the first place no space or sign stands: the vocabularies of publishers keep words apart too. */
static inline void made_fill(made *m)
{
    uint32_t words = m->n;
    while (m->n < m->most) {
        uint32_t a = 256 + made_draw(m, m->n - 256), b = 256 + made_draw(m, words - 256);
        const char *left = m->token[a], *right = m->token[b];
        bool letters = right[strspn(right, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] == 0 && ((left[strlen(left) - 1] | 32) >= 'a' && (left[strlen(left) - 1] | 32) <= 'z');
        if (letters && strlen(left) + strlen(right) <= MADE_PART) made_merge(m, a, b);
    }
}

static inline void made_write(made *m, nb_buf *out)
{
    static const char llama[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    nb_buf_add_cstr(out, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (uint32_t i = 0; i < MADE_ADDED; i++)
        nb_buf_printf(out, "%s{\"id\":%u,\"content\":\"<|%s_%u|>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":%s}", i ? "," : "", m->most + i,
                      i % 2 ? "unused" : "reserved", i, i % 2 ? "false" : "true");
    nb_buf_add_cstr(out, "],\"post_processor\":null,");
    if (m->bytes) {
        nb_buf_add_cstr(out, "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{\"Regex\":");
        nb_json_write_string(out, NB_LIT(llama), 0);
        nb_buf_add_cstr(out, "}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},");
    } else {
        nb_buf_add_cstr(out, "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xE2\x96\x81\"},"
                             "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},");
    }
    nb_buf_printf(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":true,\"byte_fallback\":%s,\"ignore_merges\":%s,\"vocab\":{",
                  m->bytes ? "false" : "true", m->bytes ? "true" : "false");
    for (uint32_t i = 0; i < m->n; i++) {
        if (i) nb_buf_add_char(out, ',');
        nb_json_write_string(out, nb_str_of(m->token[i]), 0);
        nb_buf_printf(out, ":%u", i);
    }
    nb_buf_add_cstr(out, "},\"merges\":[");
    nb_buf_add_str(out, nb_buf_str(&m->merges));
    nb_buf_add_cstr(out, "]}}");
}

/* tokenizer.json of byte-level BPE as Llama 3's, or of BPE with byte fallback as Gemma's. */
static inline void made_tokenizer(nb_buf *out, bool bytes, nb_str prose, nb_str code)
{
    made m = {.a = nb_arena_new(0), .most = MADE_ENTRIES - MADE_ADDED, .seed = 7, .bytes = bytes};
    assert_non_null(m.a);
    assert_true(hcreate_r(2 * MADE_ENTRIES, &m.known));
    m.token = NB_NEW_N(m.a, char *, MADE_ENTRIES);
    assert_non_null(m.token);
    out->n = 0;
    made_alphabet(&m);
    made_words(&m, prose), made_words(&m, code);
    made_fill(&m);
    made_write(&m, out);
    assert_false(out->oom);
    hdestroy_r(&m.known);
    nb_buf_free(&m.merges);
    nb_arena_free(m.a);
}

/* The files of a folder of the repository whose names end so, one behind the other: its pages as prose, its sources as code. Tests run at the root. */
static inline void repository_text(nb_buf *out, const char *dir, const char *ends, size_t most)
{
    struct dirent **list;
    int n = scandir(dir, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[8300];
        nb_buf file = {0};
        snprintf(path, sizeof path, "%s/%s", dir, list[i]->d_name);
        if (out->n < most && nb_str_ends(nb_str_of(list[i]->d_name), ends) && !nb_file_read(&file, path, UINT64_MAX, NULL)) nb_buf_add_str(out, nb_buf_str(&file));
        nb_buf_free(&file);
        free(list[i]);
    }
    if (n >= 0) free(list);
    if (out->n > most) out->n = nb_utf8_valid_prefix(out->p, most);
}

#endif
