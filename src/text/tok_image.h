/* text/tok_image: what a tokenizer is in memory: one block of bytes, the image, whose parts are found by offsets.
 *
 * The loaders (tokenizer.json, SentencePiece, GGUF) fill an nb_tok_build; nb_tok_build_finish lays it out as an image;
 * nb_tok_open checks an image, whether just made or mapped from a prepared file, and uses it in place. So there is one
 * form and one check. Numbers are little-endian, sections are aligned to 64 bytes, nothing holds an address.
 */
#ifndef NB_TEXT_TOK_IMAGE_H
#define NB_TEXT_TOK_IMAGE_H

#include "text/tokenizer.h"

enum { NB_TOK_IMAGE_VERSION = 3, NB_TOK_MAX_IDS = 1 << 22, NB_TOK_MAX_TOKEN = 1 << 16 };
#define NB_TOK_NONE UINT32_MAX

enum { NB_TM_BPE, NB_TM_UNIGRAM, NB_TM_WORDPIECE, NB_TM_WORDLEVEL, NB_TM_SP_BPE, NB_TM_SP_UNIGRAM, NB_TM_COUNT };

/* Steps of the pipeline. Which fields a kind uses stands beside it: f[] flags, a[] numbers, s, s2 strings. */
enum {
    /* normalizers */
    NB_TN_FORM = 1,      /* a0: NB_NFC ... */
    NB_TN_NMT, NB_TN_LOWER, NB_TN_STRIP_ACCENTS, NB_TN_BYTELEVEL,
    NB_TN_STRIP,         /* f0 left, f1 right */
    NB_TN_BERT,          /* f0 clean, f1 CJK, f2 accents, f3 lower */
    NB_TN_REPLACE,       /* f0 regex; s pattern, s2 content */
    NB_TN_PREPEND,       /* s */
    NB_TN_CHARSMAP,      /* s: the blob */
    /* pre-tokenizers */
    NB_TP_BYTELEVEL = 32, /* f0 prefix space, f1 regex */
    NB_TP_SPLIT,         /* f0 regex, f1 behaviour, f2 invert; s pattern */
    NB_TP_METASPACE,     /* f0 scheme, f1 split; s replacement */
    NB_TP_WHITESPACE, NB_TP_WHITESPACE_SPLIT, NB_TP_BERT, NB_TP_SCRIPTS,
    NB_TP_PUNCT,         /* f1 behaviour */
    NB_TP_DIGITS,        /* f1 behaviour (isolated or contiguous) */
    NB_TP_DELIMITER,     /* a0 code point */
    NB_TP_FIXED,         /* a0 length */
    NB_TP_NEWLINES,      /* GGUF gemma4: runs of newlines apart */
    NB_TP_DIGITS3,       /* GGUF: runs of digits in threes from the right. f0: 0 runs of their own, 1 only where the run ends a word, 2 cuts before threes only */
    /* decoders */
    NB_TD_BYTELEVEL = 64, NB_TD_BYTE_FALLBACK, NB_TD_FUSE,
    NB_TD_STRIP,         /* a0 code point, a1 start, a2 stop */
    NB_TD_REPLACE,       /* f0 regex; s, s2 */
    NB_TD_METASPACE,     /* f0 scheme; s replacement */
    NB_TD_WORDPIECE,     /* f0 clean-up; s prefix */
    NB_TD_BPE,           /* s suffix */
    NB_TD_CTC,           /* f0 clean-up; s pad, s2 delimiter */
    NB_TD_SP,            /* SentencePiece: see the meta flags */
    NB_T_KIND_END,
};
enum { NB_BEHAVE_REMOVED, NB_BEHAVE_ISOLATED, NB_BEHAVE_PREVIOUS, NB_BEHAVE_NEXT, NB_BEHAVE_CONTIGUOUS };
enum { NB_SCHEME_ALWAYS, NB_SCHEME_FIRST, NB_SCHEME_NEVER };

typedef struct nb_tok_ref { uint32_t off, n; } nb_tok_ref; /* into the string section */
typedef struct nb_tok_step {
    uint8_t kind, f[7];
    uint32_t a[3];
    nb_tok_ref s, s2;
} nb_tok_step;

/* One part of a post-processor template. id < 0: sequence A (-1) or B (-2). */
typedef struct nb_tok_item { int32_t id; uint32_t type; } nb_tok_item;

enum { NB_AF_SINGLE_WORD = 1, NB_AF_LSTRIP = 2, NB_AF_RSTRIP = 4, NB_AF_NORMALIZED = 8, NB_AF_SPECIAL = 16 };
typedef struct nb_tok_added {
    nb_tok_ref content, normal; /* normal: what is looked for and what decoding gives */
    uint32_t id, flags;
} nb_tok_added;

enum { NB_TF_PRESENT = 1, NB_TF_ADDED = 2, NB_TF_SPECIAL = 4, NB_TF_CONTROL = 8, NB_TF_BYTE = 16, NB_TF_UNUSED = 32, NB_TF_USER = 64, NB_TF_UNKNOWN = 128 };

/* Pairs that merge, keyed by the pair. Open addressing; left NB_TOK_NONE: empty. */
typedef struct nb_tok_merge { uint32_t left, right, rank, id; } nb_tok_merge;

/* A trie in breadth-first order: the children of node i are first[i] .. first[i + 1], sorted by label. */
typedef struct nb_tok_trie {
    const uint32_t *first; /* nodes + 1 */
    const uint32_t *value; /* NB_TOK_NONE: none */
    const uint8_t *label;
    uint32_t nodes;
    const uint32_t *dense; /* children of the first nodes by label: the upper ones have many */
    uint32_t dense_n;
} nb_tok_trie;
enum { NB_TRIE_RAW, NB_TRIE_NORMAL, NB_TRIE_MODEL, NB_TRIE_USER, NB_TRIE_COUNT };

enum {
    NB_TS_META, NB_TS_STRINGS, NB_TS_STEPS, NB_TS_ITEMS, NB_TS_ADDED, NB_TS_ADDED_BY_ID,
    NB_TS_TOK_OFF, NB_TS_TOK_BYTES, NB_TS_TOK_FLAGS, NB_TS_SCORES, NB_TS_VOCAB, NB_TS_MERGES, NB_TS_PAIRS,
    NB_TS_TRIES, /* three sections for each trie: first, value, label */
    NB_TS_COUNT = NB_TS_TRIES + 3 * NB_TRIE_COUNT,
};

typedef struct nb_tok_meta {
    uint32_t model;       /* NB_TM_* */
    uint32_t ids;         /* one more than the highest id of the vocabulary or the added tokens */
    uint32_t vocab_slots, merge_slots;
    uint32_t ranks;       /* one more than the highest rank of a merge */
    uint32_t norm_at, norm_n, pre_at, pre_n, dec_at, dec_n; /* into the steps */
    uint32_t single_at, single_n, pair_at, pair_n;          /* into the items */
    uint32_t unk, bos, eos;                                  /* NB_TOK_NONE: none */
    uint32_t max_chars;   /* WordPiece */
    uint32_t pair_bits;   /* log2 of the bits in the pair filter, 0: none. byte_level_last: 16, first byte << 8 | second */
    nb_tok_ref prefix, suffix, unk_surface;
    nb_tok_ref special[NB_SPECIAL_COUNT]; /* n 0: the file names none */
    nb_tok_ref unknown_pre;               /* GGUF */
    uint8_t fuse_unk, byte_fallback, ignore_merges, no_merges, join_space, byte_level_last;
    /* SentencePiece */
    uint8_t sp_dummy_prefix, sp_remove_extra, sp_escape, sp_suffix, sp_prefix_every; /* prefix_every: GGUF, after each control token */
    uint8_t sp_raw_user;    /* user-defined pieces are added tokens, found in the raw text */
    uint8_t whole_newlines; /* a run of newlines is looked up whole */
    uint8_t merges_rise;    /* no pair has a lower rank than the merges that made its parts */
    uint8_t sp_unused;      /* there are unused pieces */
    uint8_t pad;
    nb_tok_ref sp_charsmap;
    double unk_score;
    uint32_t byte_id[256];   /* <0xNN> */
    uint32_t symbol_id[256]; /* one-character tokens of the byte-level alphabet, by byte; else of ASCII */
} nb_tok_meta;

typedef struct nb_tok_header {
    char magic[8], key[64];
    uint32_t version, sections;
    uint64_t size;
    struct { uint64_t off, size; } section[NB_TS_COUNT];
} nb_tok_header;

struct nb_tok_regex;

struct nb_tokenizer {
    const uint8_t *image;
    size_t image_n;
    uint8_t *owned; /* the image when it is ours, else NULL */
    const nb_tok_meta *meta;
    const char *strings;
    const nb_tok_step *steps;
    uint32_t step_n;
    const nb_tok_item *items;
    const nb_tok_added *added;
    uint32_t added_n;
    bool normal_special; /* some token is special and looked for in the normalised text */
    const uint32_t *added_by_id; /* indices of `added` in ascending order of id */
    const uint32_t *tok_off;
    const char *tok_bytes;
    const uint8_t *tok_flags;
    const double *scores;
    const uint64_t *vocab; /* hash tag << 32 | id + 1; 0: empty */
    const nb_tok_merge *merges;
    const uint64_t *pairs;
    nb_tok_trie trie[NB_TRIE_COUNT];
    struct nb_tok_regex **regex; /* by step; NULL where it has none */
    uint32_t *dense;              /* of all tries, owned */
    bool raw_first[256], normal_first[256]; /* bytes that an added token begins with */
    uint8_t sp_plain[256];        /* NB_PLAIN_*: characters that SentencePiece's normalisation leaves alone, unless what follows is not ASCII */
};
enum { NB_PLAIN_CHAR = 1, NB_PLAIN_SPACE = 2 };

static inline nb_str nb_tok_str(const nb_tokenizer *t, nb_tok_ref r) { return (nb_str){t->strings + r.off, r.n}; }
static inline nb_str nb_tok_text(const nb_tokenizer *t, uint32_t id)
{
    return (nb_str){t->tok_bytes + t->tok_off[id], t->tok_off[id + 1] - t->tok_off[id]};
}

/* The same for who reads it as characters: a prepared file's tokens are not checked one by one when it is opened. p NULL: damaged. */
static inline nb_str nb_tok_valid_text(const nb_tokenizer *t, uint32_t id)
{
    nb_str s = nb_tok_text(t, id);
    return nb_utf8_valid_prefix(s.p, s.n) == s.n ? s : (nb_str){NULL, 0};
}

/* Hash of the vocabulary and the piece cache: short keys, eight bytes at a step. */
static inline uint64_t nb_tok_hash(const char *p, size_t n)
{
    const uint64_t k = 0x9E3779B97F4A7C15u;
    uint64_t h = n * k, v;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&v, p, 8);
        h = (h ^ v) * k;
        h ^= h >> 29;
    }
    v = 0;
    if (n >= 4) {
        uint32_t a, b;
        memcpy(&a, p, 4), memcpy(&b, p + n - 4, 4);
        v = (uint64_t)a << 32 | b;
    } else if (n) {
        v = (uint64_t)(uint8_t)p[0] << 16 | (uint64_t)(uint8_t)p[n / 2] << 8 | (uint8_t)p[n - 1];
    }
    h = (h ^ v) * k;
    return (h ^ h >> 32) * k;
}
static inline uint64_t nb_tok_pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
}
/* Scales a hash to 0 .. n - 1. */
static inline uint32_t nb_tok_scale(uint64_t hash, uint32_t n) { return (uint32_t)((hash >> 32) * n >> 32); }

/* Id of an entry of the model's vocabulary, or NB_TOK_NONE. */
static inline uint32_t nb_tok_vocab_find(const nb_tokenizer *t, const char *p, size_t n)
{
    uint32_t slots = t->meta->vocab_slots;
    if (!slots) return NB_TOK_NONE;
    uint64_t h = nb_tok_hash(p, n);
    for (uint32_t i = nb_tok_scale(h, slots);; i = i + 1 == slots ? 0 : i + 1) {
        uint64_t s = t->vocab[i];
        if (!s) return NB_TOK_NONE;
        if ((uint32_t)(s >> 32) != (uint32_t)h) continue;
        uint32_t id = (uint32_t)s - 1;
        nb_str v = nb_tok_text(t, id);
        if (v.n == n && !memcmp(v.p, p, n)) return id;
    }
}
/* The table is not read when a prepared file is opened, as it is most of the file: a damaged one is seen here. */
static inline const nb_tok_merge *nb_tok_merge_find(const nb_tokenizer *t, uint32_t left, uint32_t right)
{
    uint32_t slots = t->meta->merge_slots, i = nb_tok_scale(nb_tok_pair_hash(left, right), slots);
    for (uint32_t n = slots; n; n--, i = i + 1 == slots ? 0 : i + 1) {
        const nb_tok_merge *m = &t->merges[i];
        if (m->left == left && m->right == right) return m->id < t->meta->ids && m->rank < t->meta->ranks ? m : NULL;
        if (m->left == NB_TOK_NONE) break;
    }
    return NULL;
}
static inline uint32_t nb_trie_child(const nb_tok_trie *t, uint32_t node, uint8_t label)
{
    if (node < t->dense_n) return t->dense[node << 8 | label];
    uint32_t lo = t->first[node], hi = t->first[node + 1];
    while (hi - lo > 4) {
        uint32_t mid = (lo + hi) / 2;
        if (t->label[mid] <= label) lo = mid;
        else hi = mid;
    }
    for (; lo < hi; lo++)
        if (t->label[lo] == label) return lo;
    return NB_TOK_NONE;
}
/* The added token with this id, or NULL. */
const nb_tok_added *nb_tok_added_of(const nb_tokenizer *t, uint32_t id);

/* Checks an image and builds what lies beside it (compiled patterns). Takes `owned` (freed on failure too). */
nb_status nb_tok_open(nb_tokenizer **out, const void *p, size_t n, uint8_t *owned, const char key[65], nb_error *err);

/* The byte-level alphabet: the printable character that stands for a byte, and the way back (-1: not in it). */
uint32_t nb_tok_byte_char(uint8_t byte);
int nb_tok_char_byte(uint32_t cp);

/* ---- building ---- */

typedef struct nb_tok_key { const char *p; uint32_t n, value; } nb_tok_key; /* a string and what it stands for */
typedef struct nb_tok_vec { void *p; size_t n, cap; } nb_tok_vec;           /* growable array of one type */

typedef struct nb_tok_build {
    nb_arena *arena;
    nb_tok_meta meta;
    nb_buf strings;
    nb_tok_vec norm, pre, dec;        /* nb_tok_step */
    nb_tok_vec single, pair;          /* nb_tok_item */
    nb_tok_vec added;                 /* nb_tok_added */
    nb_str *token;                    /* by id; p NULL: none. In the arena or the source */
    uint8_t *flags;
    double *score;                    /* NULL: no scores */
    uint32_t tokens;                  /* length of the three */
    uint64_t *vocab;                  /* the table of the image */
    uint32_t vocab_count;             /* entries of the model's vocabulary */
    nb_map added_index;               /* content -> place in `added` */
    uint32_t added_new;               /* added tokens that the vocabulary lacks */
    nb_tok_merge *merge;              /* in ascending rank; ranks are set */
    uint32_t merge_n;
    bool oom;
} nb_tok_build;

nb_status nb_tok_build_init(nb_tok_build *b, nb_error *err);
void nb_tok_build_free(nb_tok_build *b);
bool nb_tok_build_tokens(nb_tok_build *b, uint32_t n, bool scores); /* room for n ids */
nb_tok_ref nb_tok_build_str(nb_tok_build *b, nb_str s);
void nb_tok_build_step(nb_tok_build *b, nb_tok_vec *v, const nb_tok_step *s);
void nb_tok_build_item(nb_tok_build *b, nb_tok_vec *v, int32_t id, uint32_t type);
bool nb_tok_vec_push(nb_tok_vec *v, const void *item, size_t size);
/* Fills the vocabulary table inside the build, so that merges and added tokens can be looked up. */
nb_status nb_tok_build_vocab(nb_tok_build *b, nb_error *err);
uint32_t nb_tok_build_find(const nb_tok_build *b, nb_str s);
uint32_t nb_tok_build_find_hashed(const nb_tok_build *b, nb_str s, uint64_t hash);
/* Adds a token as the published package does: the id of the vocabulary, else the next free one. */
nb_status nb_tok_build_add(nb_tok_build *b, nb_str content, uint32_t flags, nb_error *err);
/* The same where the id is known (GGUF, SentencePiece); id has a token. */
nb_status nb_tok_build_add_id(nb_tok_build *b, nb_str content, uint32_t id, uint32_t flags, nb_error *err);
/* Lays everything out, opens it. */
nb_status nb_tok_build_finish(nb_tok_build *b, nb_tokenizer **out, nb_error *err);

#endif
