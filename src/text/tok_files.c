/* text/tok_files: byte-level BPE from the older files: vocab.json with merges.txt, and ranks as tiktoken writes them. Each
 * is written as the tokenizer.json that transformers would make of it, and read as one. */
#include "text/tok_extra.h"
#include "text/tok_gguf.h"
#include "text/tok_json.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- which pattern ---- */

typedef struct family {
    const char *class, *pattern; /* pattern: its key in tok_gguf_pre; NULL: GPT-2's own */
    bool nfc;
    const char *defaults[NB_SPECIAL_COUNT]; /* special tokens where the config names none */
} family;
#define END "<|endoftext|>"
#define QWEN_1 "QWenTokenizer"

static const family vocab_families[] = {
    {"GPT2Tokenizer", NULL, false, {[NB_SPECIAL_BOS] = END, [NB_SPECIAL_EOS] = END, [NB_SPECIAL_UNK] = END}},
    {"CodeGenTokenizer", NULL, false, {[NB_SPECIAL_BOS] = END, [NB_SPECIAL_EOS] = END, [NB_SPECIAL_UNK] = END}},
    {"Qwen2Tokenizer", "QWEN2", true, {[NB_SPECIAL_EOS] = END, [NB_SPECIAL_UNK] = END, [NB_SPECIAL_PAD] = END}},
    {"Qwen3_5Tokenizer", "QWEN35", true, {[NB_SPECIAL_EOS] = END, [NB_SPECIAL_UNK] = END, [NB_SPECIAL_PAD] = END}},
};
/* Ranks say nothing of the pattern either. Without a class it is the one that transformers takes. */
static const family rank_families[] = {
    {"", "LLAMA3", false, {NULL}},
    {"PreTrainedTokenizer", "LLAMA3", false, {NULL}},
    {"TokenizersBackend", "LLAMA3", false, {NULL}},
    {"LlamaTokenizer", "LLAMA3", false, {NULL}},
    {"ChatGLM4Tokenizer", "LLAMA3", false, {NULL}},
    {"TikTokenTokenizer", "KIMI", false, {NULL}},
    {QWEN_1, "QWEN2", true, {NULL}},
};

/* Classes of models that give none in tokenizer_config.json. */
static const struct {
    const char *model_type, *class;
} models[] = {{"gpt2", "GPT2Tokenizer"},      {"gpt_neo", "GPT2Tokenizer"},    {"gptj", "GPT2Tokenizer"},
              {"opt", "GPT2Tokenizer"},       {"phi", "GPT2Tokenizer"},        {"codegen", "GPT2Tokenizer"},
              {"starcoder2", "GPT2Tokenizer"}, {"dbrx", "GPT2Tokenizer"},      {"qwen2", "Qwen2Tokenizer"},
              {"qwen2_moe", "Qwen2Tokenizer"}, {"qwen2_vl", "Qwen2Tokenizer"}, {"qwen2_5_vl", "Qwen2Tokenizer"},
              {"qwen3", "Qwen2Tokenizer"},    {"qwen3_moe", "Qwen2Tokenizer"}, {"qwen3_next", "Qwen2Tokenizer"},
              {"qwen3_vl", "Qwen2Tokenizer"}, {"qwen3_5", "Qwen3_5Tokenizer"}, {"qwen3_5_moe", "Qwen3_5Tokenizer"},
              {"qwen4_exp", "Qwen3_5Tokenizer"}};

static nb_str class_of(const nb_json *config, nb_str model_type)
{
    nb_str s = {"", 0};
    if (!nb_json_str(nb_json_get(config, "tokenizer_class"), &s))
        for (size_t i = 0; i < NB_COUNT(models); i++)
            if (nb_str_is(model_type, models[i].model_type)) s = nb_str_of(models[i].class);
    if (nb_str_ends(s, "Fast")) s.n -= 4;
    return s;
}

static const family *find_family(const family *list, size_t n, nb_str class)
{
    for (size_t i = 0; i < n; i++)
        if (nb_str_is(class, list[i].class)) return &list[i];
    return NULL;
}

/* ---- tokenizer.json ---- */

typedef struct writer {
    nb_buf out;
    nb_arena *a;
    const nb_json *config;
    const family *f;
    nb_map ids;      /* texts of the vocabulary and of added tokens */
    uint32_t count;  /* entries of the vocabulary */
    uint32_t fresh;  /* added tokens that it lacks */
    bool any_added;
} writer;

static void put(writer *w, const char *s) { nb_buf_add_cstr(&w->out, s); }
static void put_text(writer *w, nb_str s) { nb_json_write_string(&w->out, s, NB_JSON_COMPACT); }

static bool note(writer *w, nb_str text, uint32_t id)
{
    nb_str key = nb_arena_str(w->a, text);
    return key.p && nb_map_put(&w->ids, key, id, NULL, NULL);
}

static bool put_added(writer *w, nb_str content, uint32_t flags)
{
    static const struct {
        const char *name;
        uint32_t flag;
    } fields[] = {{"single_word", NB_AF_SINGLE_WORD},
                  {"lstrip", NB_AF_LSTRIP},
                  {"rstrip", NB_AF_RSTRIP},
                  {"normalized", NB_AF_NORMALIZED},
                  {"special", NB_AF_SPECIAL}};
    uint32_t id;
    if (!nb_map_get(&w->ids, content, &id) && !note(w, content, id = w->count + w->fresh++)) return false;
    put(w, w->any_added ? ",{\"content\":" : "{\"content\":");
    put_text(w, content);
    nb_buf_printf(&w->out, ",\"id\":%u", id);
    for (size_t i = 0; i < NB_COUNT(fields); i++)
        nb_buf_printf(&w->out, ",\"%s\":%s", fields[i].name, flags & fields[i].flag ? "true" : "false");
    put(w, "}");
    w->any_added = true;
    return true;
}

/* What the config adds, and the class's own special tokens. */
static nb_status put_extras(writer *w, nb_error *err)
{
    nb_tok_extras x;
    nb_status st = nb_tok_extras_read(&x, w->config, w->a, err);
    bool ok = true;
    for (size_t i = 0; i < x.n && !st && ok; i++) ok = put_added(w, x.v[i].content, x.v[i].flags);
    for (int i = 0; i < NB_SPECIAL_COUNT && !st && ok; i++)
        if (w->f->defaults[i] && !nb_json_get(w->config, nb_tok_special_names[i]))
            ok = put_added(w, nb_str_of(w->f->defaults[i]), NB_AF_SPECIAL);
    return st || ok ? st : nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
}

/* A special token by its name in the config, else the class's own. */
static nb_str named(const writer *w, const char *key, int which)
{
    const nb_json *v = nb_json_get(w->config, key);
    nb_str s = {0};
    if (!v && w->f->defaults[which]) return nb_str_of(w->f->defaults[which]);
    if (!nb_json_str(v, &s)) nb_json_str(nb_json_get(v, "content"), &s);
    return s;
}

static void put_part(writer *w, nb_str token, const char *between)
{
    put(w, "{\"SpecialToken\":{\"id\":");
    put_text(w, token);
    put(w, ",\"type_id\":0}}");
    put(w, between);
}

/* BOS and EOS around the text, where the config asks for them. */
static void put_post(writer *w)
{
    bool on[2] = {false, false};
    nb_str token[2] = {named(w, "bos_token", NB_SPECIAL_BOS), named(w, "eos_token", NB_SPECIAL_EOS)};
    uint32_t id[2] = {0, 0};
    nb_json_bool(nb_json_get(w->config, "add_bos_token"), &on[0]);
    nb_json_bool(nb_json_get(w->config, "add_eos_token"), &on[1]);
    for (int i = 0; i < 2; i++) on[i] = on[i] && token[i].p && nb_map_get(&w->ids, token[i], &id[i]);
    if (!on[0] && !on[1]) {
        put(w, "null");
        return;
    }
    put(w, "{\"type\":\"TemplateProcessing\",\"single\":[");
    if (on[0]) put_part(w, token[0], ",");
    put(w, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}");
    if (on[1]) put(w, ","), put_part(w, token[1], "");
    put(w, "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{");
    for (int i = 0, any = 0; i < 2; i++) {
        if (!on[i] || (i && on[0] && nb_str_eq(token[0], token[1]))) continue;
        if (any++) put(w, ",");
        put_text(w, token[i]);
        put(w, ":{\"id\":");
        put_text(w, token[i]);
        nb_buf_printf(&w->out, ",\"ids\":[%u],\"tokens\":[", id[i]);
        put_text(w, token[i]);
        put(w, "]}");
    }
    put(w, "}}");
}

static void put_pipeline(writer *w)
{
    bool prefix = false;
    nb_json_bool(nb_json_get(w->config, "add_prefix_space"), &prefix);
    const char *space = prefix ? "true" : "false";
    put(w, "],\"normalizer\":");
    put(w, w->f->nfc ? "{\"type\":\"NFC\"}" : "null");
    put(w, ",\"pre_tokenizer\":");
    if (w->f->pattern) {
        put(w, "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        put_text(w, nb_str_of(nb_tok_gguf_pattern(w->f->pattern)));
        nb_buf_printf(&w->out, "},\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":false}]}", space);
    } else {
        nb_buf_printf(&w->out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"trim_offsets\":true,\"use_regex\":true}", space);
    }
    put(w, ",\"post_processor\":");
    put_post(w);
    put(w, ",\"decoder\":{\"type\":\"ByteLevel\"}");
}

static nb_status begin(writer *w, const nb_json *config, const family *f, nb_error *err)
{
    *w = (writer){.a = nb_arena_new(0), .config = config, .f = f};
    if (!w->a || !nb_map_init(&w->ids, 1024)) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    put(w, "{\"version\":\"1.0\",\"added_tokens\":[");
    return NB_OK;
}

static nb_status end(writer *w, nb_status st, nb_tokenizer **out, nb_error *err)
{
    if (!st && w->out.oom) st = nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    if (!st) st = nb_tokenizer_from_json(out, w->out.p, w->out.n, w->config, err);
    nb_map_free(&w->ids);
    nb_buf_free(&w->out);
    nb_arena_free(w->a);
    return st;
}

/* ---- vocab.json and merges.txt ---- */

static nb_status put_merges(writer *w, nb_str merges, nb_error *err)
{
    uint32_t line = 0, n = 0;
    for (size_t at = 0; at < merges.n;) {
        const char *nl = memchr(merges.p + at, '\n', merges.n - at);
        nb_str s = {merges.p + at, nl ? (size_t)(nl - (merges.p + at)) : merges.n - at};
        at += s.n + 1;
        line++;
        if (s.n && s.p[s.n - 1] == '\r') s.n--;
        if (!s.n || nb_str_starts(s, "#version")) continue;
        const char *sp = memchr(s.p, ' ', s.n);
        if (!sp || memchr(sp + 1, ' ', s.n - (size_t)(sp - s.p) - 1) || nb_utf8_valid_prefix(s.p, s.n) != s.n)
            return nb_fail(err, NB_E_INVALID, "merges.txt: line %u is not two parts with a space between", line);
        put(w, n++ ? "," : "");
        put_text(w, s);
    }
    return NB_OK;
}

nb_status nb_tokenizer_from_vocab(nb_tokenizer **out, nb_str vocab, nb_str merges, const nb_json *config, nb_str model_type,
                                  nb_error *err)
{
    nb_json_doc doc = {0};
    writer w = {0};
    *out = NULL;
    nb_str class = class_of(config, model_type);
    const family *f = find_family(vocab_families, NB_COUNT(vocab_families), class);
    if (!merges.p) return nb_fail(err, NB_E_UNSUPPORTED, "vocab.json: merges.txt is missing beside it");
    if (!f)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "vocab.json: tokenizer_class '%.*s' (model_type '%.*s') says nothing of how the text is cut: "
                       "tokenizer.json is needed",
                       NB_FMT_STR(class), NB_FMT_STR(model_type));
    nb_status st = nb_json_parse(&doc, vocab.p, vocab.n, "vocab.json", NULL, err);
    if (!st && !nb_json_is(doc.root, NB_JSON_OBJECT)) st = nb_fail(err, NB_E_INVALID, "vocab.json: not an object");
    if (!st) st = begin(&w, config, f, err);
    for (uint32_t i = 0; !st && i < doc.root->count; i++) {
        uint64_t id;
        if (!nb_json_u64(&doc.root->items[i], &id) || id >= NB_TOK_MAX_IDS)
            st = nb_fail(err, NB_E_INVALID, "vocab.json: '%.*s' has a bad id", NB_FMT_STR(doc.root->keys[i]));
        else if (!note(&w, doc.root->keys[i], (uint32_t)id))
            st = nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
        w.count++;
    }
    if (!st) st = put_extras(&w, err);
    if (!st) {
        put_pipeline(&w);
        put(&w, ",\"model\":{\"type\":\"BPE\",\"vocab\":");
        nb_json_write(&w.out, doc.root, NB_JSON_COMPACT);
        put(&w, ",\"merges\":[");
        st = put_merges(&w, merges, err);
        put(&w, "]}}");
    }
    st = end(&w, st, out, err);
    nb_json_free(&doc);
    return st;
}

/* ---- tiktoken: a line for each token, its bytes in base64 and its rank ---- */

typedef struct rank {
    nb_str bytes;
    uint32_t id;
} rank;

typedef struct ranks {
    rank *v; /* by id */
    size_t n;
    nb_map map; /* bytes -> id */
} ranks;

static int by_rank(const void *a, const void *b)
{
    uint32_t x = ((const rank *)a)->id, y = ((const rank *)b)->id;
    return (x > y) - (x < y);
}

#define MAX_RESERVED 65536 /* ids between the ranks and the last special token: real files have some hundreds */
#define MAX_SPLITS ((uint64_t)1 << 31) /* bytes looked at while merges are found: real files need a thousandth of it */

static nb_status read_line(ranks *r, nb_arena *a, nb_str s, uint32_t line, uint64_t *work, nb_error *err)
{
    const char *sp = memchr(s.p, ' ', s.n);
    size_t k = sp ? (size_t)(sp - s.p) : 0;
    rank *one = &r->v[r->n];
    int64_t id = sp ? nb_tok_id_of((nb_str){sp + 1, s.n - k - 1}) : -1;
    bool had = false;
    if (!k || id < 0 || id >= NB_TOK_MAX_IDS || nb_tok_base64(a, (nb_str){s.p, k}, &one->bytes, NULL) || !one->bytes.n)
        return nb_fail(err, NB_E_INVALID, "line %u is not a token in base64 and its rank", line);
    one->id = (uint32_t)id;
    *work += (uint64_t)one->bytes.n * one->bytes.n;
    if (one->bytes.n > NB_TOK_MAX_TOKEN / 4 || *work > MAX_SPLITS)
        return nb_fail(err, NB_E_INVALID, "line %u: tokens are too long", line);
    if (!nb_map_put(&r->map, one->bytes, one->id, &had, NULL)) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    if (had) return nb_fail(err, NB_E_INVALID, "line %u: a token that stood before", line);
    r->n++;
    return NB_OK;
}

static nb_status read_ranks(ranks *r, nb_arena *a, const char *p, size_t n, nb_error *err)
{
    uint32_t lines = 1, line = 0;
    uint64_t work = 0;
    for (size_t i = 0; i < n; i++) lines += p[i] == '\n';
    r->v = lines <= NB_TOK_MAX_IDS ? NB_NEW_N(a, rank, lines) : NULL;
    if (!r->v || !nb_map_init(&r->map, lines)) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: no memory for %u lines", lines);
    nb_status st = NB_OK;
    for (size_t at = 0; at < n && !st;) {
        const char *nl = memchr(p + at, '\n', n - at);
        nb_str s = {p + at, nl ? (size_t)(nl - (p + at)) : n - at};
        at += s.n + 1;
        line++;
        if (s.n && s.p[s.n - 1] == '\r') s.n--;
        if (s.n) st = read_line(r, a, s, line, &work, err);
    }
    if (!st && !r->n) st = nb_fail(err, NB_E_INVALID, "it holds no token");
    if (st) return st;
    qsort(r->v, r->n, sizeof *r->v, by_rank);
    for (size_t i = 1; i < r->n; i++)
        if (r->v[i].id == r->v[i - 1].id) return nb_fail(err, NB_E_INVALID, "two tokens have the rank %u", r->v[i].id);
    return NB_OK;
}

/* Bytes in the byte-level alphabet. */
static void spell(nb_buf *out, nb_str bytes)
{
    char c[4];
    out->n = 0;
    for (size_t i = 0; i < bytes.n; i++) nb_buf_add(out, c, nb_utf8_encode(nb_tok_byte_char((uint8_t)bytes.p[i]), c));
}

typedef struct split {
    uint32_t left, right, at;
} split;

static int by_parts(const void *a, const void *b)
{
    const split *x = a, *y = b;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

/* A merge is every way to take a token apart into two others; its rank is the token's. */
static bool put_splits(writer *w, const ranks *r, nb_buf *text)
{
    split *s = NULL;
    size_t cap = 0, total = 0;
    bool ok = true;
    for (size_t i = 0; i < r->n && ok; i++) {
        nb_str t = r->v[i].bytes;
        size_t n = 0;
        if (t.n > cap) {
            split *more = realloc(s, (t.n + 64) * sizeof *s);
            if (!(ok = more != NULL)) break;
            s = more, cap = t.n + 64;
        }
        for (size_t k = 1; k < t.n; k++)
            if (nb_map_get(&r->map, (nb_str){t.p, k}, &s[n].left) && nb_map_get(&r->map, (nb_str){t.p + k, t.n - k}, &s[n].right))
                s[n++].at = (uint32_t)k;
        if (n > 1) qsort(s, n, sizeof *s, by_parts);
        for (size_t k = 0; k < n; k++) {
            put(w, total++ ? ",[" : "[");
            spell(text, (nb_str){t.p, s[k].at});
            put_text(w, nb_buf_str(text));
            put(w, ",");
            spell(text, (nb_str){t.p + s[k].at, t.n - s[k].at});
            put_text(w, nb_buf_str(text));
            put(w, "]");
        }
    }
    free(s);
    return ok && !text->oom;
}

/* Ids behind the ranks up to the highest that the config names: those it leaves out are reserved. */
static nb_status put_reserved(writer *w, nb_error *err)
{
    nb_tok_extras x;
    char text[48];
    int64_t next = w->count;
    nb_status st = nb_tok_extras_read(&x, w->config, w->a, err);
    bool ok = true;
    for (size_t i = 0; i < x.n && !st && ok; i++) {
        if (x.v[i].id < next) continue;
        if (x.v[i].id - w->count >= MAX_RESERVED)
            return nb_fail(err, NB_E_INVALID, "tokenizer_config.json: added_tokens_decoder: id %lld lies %lld behind the last rank, at most %d are reserved", (long long)x.v[i].id,
                           (long long)x.v[i].id - w->count, MAX_RESERVED);
        for (; next < x.v[i].id && ok; next++) {
            snprintf(text, sizeof text, "<|reserved_token_%lld|>", (long long)next);
            ok = put_added(w, nb_str_of(text), NB_AF_SPECIAL);
        }
        ok = ok && put_added(w, x.v[i].content, NB_AF_SPECIAL);
        next++;
    }
    return st || ok ? st : nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
}

/* Qwen-1's code has its special tokens and their ids; no file says them. */
static nb_status put_qwen(writer *w, nb_error *err)
{
    enum { FIRST = 151643, NUMBERED = 205 };
    static const char *const named[] = {END, "<|im_start|>", "<|im_end|>"};
    char text[32];
    bool ok = true;
    if (strcmp(w->f->class, QWEN_1) != 0) return NB_OK;
    if (w->count != FIRST)
        return nb_fail(err, NB_E_UNSUPPORTED, "%u tokens; tokenizer_class '" QWEN_1 "' has %d, and its special ones behind them", w->count, FIRST);
    for (size_t i = 0; i < NB_COUNT(named) && ok; i++) ok = put_added(w, nb_str_of(named[i]), NB_AF_SPECIAL);
    for (int i = 0; i < NUMBERED && ok; i++) {
        snprintf(text, sizeof text, "<|extra_%d|>", i);
        ok = put_added(w, nb_str_of(text), NB_AF_SPECIAL);
    }
    return ok ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
}

static nb_status write_ranks(writer *w, const ranks *r, nb_error *err)
{
    nb_buf text = {0};
    bool ok = true;
    w->count = (uint32_t)r->n;
    for (size_t i = 0; i < r->n && ok; i++) {
        spell(&text, r->v[i].bytes);
        ok = !text.oom && note(w, nb_buf_str(&text), r->v[i].id);
    }
    nb_status st = ok ? put_qwen(w, err) : NB_OK;
    if (ok && !st) st = put_reserved(w, err);
    if (ok && !st) st = put_extras(w, err);
    if (ok && !st) {
        put_pipeline(w);
        put(w, ",\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"vocab\":{");
        for (size_t i = 0; i < r->n; i++) {
            spell(&text, r->v[i].bytes);
            put(w, i ? "," : "");
            put_text(w, nb_buf_str(&text));
            nb_buf_printf(&w->out, ":%u", r->v[i].id);
        }
        put(w, "},\"merges\":[");
        ok = put_splits(w, r, &text);
        put(w, "]}}");
    }
    nb_buf_free(&text);
    return st || ok ? st : nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
}

bool nb_tok_is_ranks(const char *p, size_t n)
{
    const char *nl = memchr(p, '\n', n < 1024 ? n : 1024), *sp = nl ? memchr(p, ' ', (size_t)(nl - p)) : NULL;
    if (!sp || sp == p) return false;
    for (const char *c = p; c < sp; c++)
        if (!((*c >= 'A' && *c <= 'Z') || (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '+' || *c == '/' || *c == '=')) return false;
    nb_str digits = {sp + 1, (size_t)(nl - sp) - 1};
    if (digits.n && digits.p[digits.n - 1] == '\r') digits.n--;
    return nb_tok_id_of(digits) >= 0;
}

nb_status nb_tokenizer_from_ranks(nb_tokenizer **out, const char *p, size_t n, const nb_json *config, nb_error *err)
{
    writer w;
    ranks r = {0};
    *out = NULL;
    nb_str class = class_of(config, (nb_str){"", 0});
    const family *f = find_family(rank_families, NB_COUNT(rank_families), class);
    if (!f)
        return nb_fail(err, NB_E_UNSUPPORTED,
                       "tokenizer_class '%.*s' is not known, so neither is how the text is cut: tokenizer.json is needed",
                       NB_FMT_STR(class));
    nb_status st = begin(&w, config, f, err);
    if (!st) st = read_ranks(&r, w.a, p, n, err);
    if (!st) st = write_ranks(&w, &r, err);
    st = end(&w, st, out, err);
    nb_map_free(&r.map);
    return st;
}
