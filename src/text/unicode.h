/* text/unicode: character classes and normalisation, each with the Unicode version that the component of published
 * tokenizers has: 16.0 for regular expressions, 9.0 for NF* and StripAccents, 8.0 for Bert, 17.0 for lower case and
 * digits. The tables come from scripts/gen_unicode.py, which lists the differences between versions. */
#ifndef NB_TEXT_UNICODE_H
#define NB_TEXT_UNICODE_H

#include "base/base.h"

/* General categories, in the order of the generator. */
enum {
    NB_GC_CN, NB_GC_LU, NB_GC_LL, NB_GC_LT, NB_GC_LM, NB_GC_LO, NB_GC_MN, NB_GC_MC, NB_GC_ME, NB_GC_ND, NB_GC_NL, NB_GC_NO,
    NB_GC_PC, NB_GC_PD, NB_GC_PS, NB_GC_PE, NB_GC_PI, NB_GC_PF, NB_GC_PO, NB_GC_SM, NB_GC_SC, NB_GC_SK, NB_GC_SO,
    NB_GC_ZS, NB_GC_ZL, NB_GC_ZP, NB_GC_CC, NB_GC_CF, NB_GC_CS, NB_GC_CO, NB_GC_COUNT,
};
#define NB_GC_BIT(g) (1u << (g))
#define NB_GC_L (NB_GC_BIT(NB_GC_LU) | NB_GC_BIT(NB_GC_LL) | NB_GC_BIT(NB_GC_LT) | NB_GC_BIT(NB_GC_LM) | NB_GC_BIT(NB_GC_LO))
#define NB_GC_M (NB_GC_BIT(NB_GC_MN) | NB_GC_BIT(NB_GC_MC) | NB_GC_BIT(NB_GC_ME))
#define NB_GC_N (NB_GC_BIT(NB_GC_ND) | NB_GC_BIT(NB_GC_NL) | NB_GC_BIT(NB_GC_NO))
#define NB_GC_P (0x7Fu << NB_GC_PC)
#define NB_GC_S (0xFu << NB_GC_SM)
#define NB_GC_Z (0x7u << NB_GC_ZS)
#define NB_GC_C (NB_GC_BIT(NB_GC_CN) | (0xFu << NB_GC_CC))

/* Grapheme cluster break classes. */
enum {
    NB_GCB_OTHER, NB_GCB_CR, NB_GCB_LF, NB_GCB_CONTROL, NB_GCB_EXTEND, NB_GCB_ZWJ, NB_GCB_REGIONAL, NB_GCB_PREPEND,
    NB_GCB_SPACING, NB_GCB_L, NB_GCB_V, NB_GCB_T, NB_GCB_LV, NB_GCB_LVT,
};

/* Flags of a character. The number is the Unicode version where it is not 16. */
enum {
    NB_UF_WHITE = 1, NB_UF_ALPHA = 2, NB_UF_UPPER = 4, NB_UF_LOWER = 8,
    NB_UF_WORD = 16,        /* \w of Rust: Alphabetic, M, Nd, Pc, Join_Control */
    NB_UF_NUM17 = 32,       /* N*, component Digits */
    NB_UF_PUNCT8 = 64,      /* components Punctuation and BertPreTokenizer */
    NB_UF_BERT_GONE = 128,  /* dropped by clean_text: Cc, Cf, Co, U+FFFD */
    NB_UF_MN8 = 256,        /* dropped by Bert's strip_accents */
    NB_UF_MARK9 = 512,      /* dropped by StripAccents */
    NB_UF_PICT = 1024, NB_UF_IDEO = 2048, NB_UF_HEX = 4096,
    NB_UF_NFC_MAYBE = 8192, /* may compose with what precedes it (9.0) */
    NB_UF_NFC_NO = 16384,   /* has a canonical decomposition and is never composed again (9.0) */
    NB_UF_CANON = 32768, NB_UF_COMPAT = 65536,
    NB_UF_AFTER14 = 131072, /* assigned, or given another category, after 14.0: what PCRE2 10.42 does not know */
};

typedef struct nb_uni_record {
    uint8_t gc, script, script9, gcb, ccc9;
    uint32_t flags;
} nb_uni_record;

extern const nb_uni_record nb_uni_records[];
extern const uint32_t nb_uni_runs[], nb_uni_run_count; /* first code point << 11 | record */
extern uint16_t nb_uni_stage1[0x110000 >> 7];
extern uint16_t nb_uni_stage2[];
extern uint32_t nb_uni_ascii[128]; /* flags of ASCII characters */
extern const char *const nb_uni_script_names[];
extern const uint32_t nb_uni_script_count;
extern const uint16_t nb_uni_full_fold[][4]; /* character, two or three characters that it folds to, 0 */
extern const uint32_t nb_uni_full_fold_count;

/* Spreads the run lists into two-stage tables (0.3 ms); once, from any thread. Everything below needs it. */
void nb_uni_init(void);

static inline const nb_uni_record *nb_uni(uint32_t cp)
{
    return &nb_uni_records[nb_uni_stage2[((uint32_t)nb_uni_stage1[cp >> 7] << 7) | (cp & 127)]];
}
static inline uint32_t nb_uni_flags(uint32_t cp) { return cp < 128 ? nb_uni_ascii[cp] : nb_uni(cp)->flags; }
static inline bool nb_uni_is(uint32_t cp, uint32_t flags) { return (nb_uni_flags(cp) & flags) != 0; }
static inline bool nb_uni_in(uint32_t cp, uint32_t gc_mask) { return (gc_mask >> nb_uni(cp)->gc) & 1; }

/* Lower case of one character (17.0): writes one or two code points, returns how many. */
size_t nb_uni_lowercase(uint32_t cp, uint32_t out[2]);
/* Simple case folding. */
uint32_t nb_uni_simple_fold(uint32_t cp);
/* Number of the script, or -1. Names without regard to case, spaces, '_' and '-'. */
int nb_uni_script_find(nb_str name);
/* true when both names are equal without regard to case, spaces, '_' and '-'. */
bool nb_uni_name_eq(nb_str a, const char *b);

enum { NB_NFC = 0, NB_NFD = 1, NB_NFKC = 2, NB_NFKD = 3 };
/* Called for each character of the result, with the place in the segment of the character that it came from. */
typedef bool nb_uni_emit(void *user, uint32_t cp, size_t from);
/* Length of the longest prefix of p[0..n) that the form leaves as it is and whose end is a safe place to stop. */
size_t nb_uni_normal_prefix(int form, const char *p, size_t n);
/* Normalises the segment at p (valid UTF-8) up to the next character where `normal_prefix` may go on; *used gets its
 * length. scratch is reused between calls. False when memory is out. */
typedef struct nb_uni_scratch { uint32_t *cp, *from; uint8_t *ccc; size_t cap, at; } nb_uni_scratch;
bool nb_uni_normal_segment(int form, const char *p, size_t n, size_t *used, nb_uni_scratch *scratch, nb_uni_emit *emit, void *user);
void nb_uni_scratch_free(nb_uni_scratch *s);

/* End of the extended grapheme cluster that begins at p[0], n > 0, valid UTF-8. */
size_t nb_uni_grapheme(const char *p, size_t n);

/* One character of valid UTF-8, without checks. */
static inline uint32_t nb_uni_next(const char *s, size_t *len)
{
    const uint8_t *p = (const uint8_t *)s;
    if (p[0] < 0x80) { *len = 1; return p[0]; }
    if (p[0] < 0xE0) { *len = 2; return (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu); }
    if (p[0] < 0xF0) { *len = 3; return (p[0] & 0xFu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu); }
    *len = 4;
    return (p[0] & 7u) << 18 | (p[1] & 0x3Fu) << 12 | (p[2] & 0x3Fu) << 6 | (p[3] & 0x3Fu);
}
/* Start of the character that ends before p + at; at > 0. */
static inline size_t nb_uni_back(const char *p, size_t at)
{
    do at--; while (at && ((uint8_t)p[at] & 0xC0) == 0x80);
    return at;
}

#endif
