/* text/tok_gguf_pre: what the names in tokenizer.ggml.pre stand for: the publishers' own patterns, in the order in which
 * each cuts the pieces of the one before. A new name is one line in `names`. */
#include "text/tok_gguf.h"

#include "text/tok_regex.h"

#define ANY_CASE "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define MARKS " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define BY_CASE(suffix, digits) LEAD UPPER "*" LOWER "+" suffix "|" LEAD UPPER "+" LOWER "*" suffix "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL
#define GPT2 NB_TOK_GPT2_PATTERN
#define LLAMA3 ANY_CASE "|" LEAD "\\p{L}+|\\p{N}{1,3}|" MARKS "|" TAIL
#define QWEN2 ANY_CASE "|" LEAD "\\p{L}+|\\p{N}|" MARKS "|" TAIL
#define QWEN35 ANY_CASE "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL
#define O200K BY_CASE(ANY_CASE "?", "\\p{N}{1,3}")
#define TEKKEN BY_CASE("", "\\p{N}")
#define DEEPSEEK3 "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL
#define BLOOM " ?[^(\\s|.,!?\\u2026\\u3002\\uff0c\\u3001\\u0964\\u06d4\\u060c)]+"
/* O200K without Han, which comes first in runs of its own. */
#define KIMI_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define KIMI "[\\p{Han}]+|" LEAD KIMI_UPPER "*" KIMI_LOWER "+" ANY_CASE "?|" LEAD KIMI_UPPER "+" KIMI_LOWER "*" ANY_CASE "?|\\p{N}{1,3}|" MARKS "|" TAIL
#define BAILING "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED ANY_CASE "|" LEAD "\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" TAIL
#define JAIS2 ANY_CASE "|" LEAD "\\p{L}+|\\p{N}{1,3}|" MARKS "|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|" \
                       "\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"
#define EXAONE_MOE ANY_CASE "|" LEAD "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
/* Letters with case, as the publisher lists them. Characters beyond ASCII are written as escapes: an editor that composes
 * would change some of them. */
#define DEEPSEEK_LETTERS "\\s?[A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf\\u01c4-\\u0293\\u0295-\\u02af\\u0370-\\u0373\\u0376" \
    "\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-\\u038a\\u038c\\u038e-\\u03a1\\u03a3-\\u03f5\\u03f7-\\u0481\\u048a-\\u052f" \
    "\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-\\u13fd\\u1c90-\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77" \
    "\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d\\u1f20-\\u1f45\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59\\u1f5b\\u1f5d\\u1f5f-\\u1f7d" \
    "\\u1f80-\\u1fb4\\u1fb6-\\u1fbc\\u1fbe\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc\\u1fd0-\\u1fd3\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4" \
    "\\u1ff6-\\u1ffc\\u2102\\u2107\\u210a-\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-\\u212d\\u212f-\\u2134\\u2139" \
    "\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-\\u2ce4\\u2ceb-\\u2cee\\u2cf2\\u2cf3\\ua640-\\ua66d" \
    "\\ua680-\\ua69b\\ua722-\\ua76f\\ua771-\\ua787\\ua78b-\\ua78e\\uab70-\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-\\uff3a" \
    "\\uff41-\\uff5a\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}" \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define HAN_KANA "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+"
#define HAN_WIDE "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+"

/* One step: a pattern, or one of these. */
#define NEWLINES "\1"
#define THREES "\2"       /* runs of digits, in threes from the right */
#define THREES_END "\3"   /* the same, where the run ends at a word boundary */
#define THREES_CUT "\4"   /* cuts before each three, no more */

static const struct { const char *key, *step[6]; } patterns[] = {
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"GPT2", {GPT2}}, {"LLAMA3", {LLAMA3}}, {"QWEN2", {QWEN2}}, {"QWEN35", {QWEN35}}, {"O200K", {O200K}}, {"TEKKEN", {TEKKEN}},
    {"DEEPSEEK3", {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK3}},
    {"DEEPSEEK_LLM", {"[\\r\\n]", DEEPSEEK_LETTERS, "\\s?[!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+", "\\s+$", HAN_WIDE, "\\p{N}+"}},
    {"DEEPSEEK_CODER", {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", HAN_WIDE, "\\p{N}"}},
    {"STARCODER", {"\\p{N}", GPT2}}, {"FALCON", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"BLOOM", {BLOOM}}, {"VIKING", {BLOOM, "\\p{N}"}}, {"KIMI", {KIMI}}, {"BAILING", {BAILING}}, {"SEED", {SEED}}, {"JAIS2", {JAIS2}},
    {"EXAONE_MOE", {EXAONE_MOE}}, {"SUPERBPE", {"\\p{N}+", THREES_CUT}}, {"TINY_AYA", {THREES_END, O200K}},
    {"AFMOE", {THREES,
     "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\uf900-\\ufaff\\u3040-\\u309f\\u30a0-\\u30ff\\uff65-\\uff9f\\u2f00-\\u2fdf\\u0e40-\\u0e7f\\u0e80-\\u0eff\\u1780-\\u17ff\\u1000-\\u109f\\uaa60-\\uaa7f\\ua9e0-\\ua9ff\\uac00-\\ud7af\\u1100-\\u11ff]+", DEEPSEEK3}},
    {"YOUTU",
     {"[\\uac00-\\ud7a3\\u3131-\\u318e]+|[\\uff01\\u2026\\u201c\\u201d\\u2018\\u2019\\u2014\\uff1a\\uff1b\\uff0c\\u3001-\\u303f\\ufe30-\\ufe4f]+|[\\u3105-\\u312f]+|" HAN_KANA, BY_CASE(ANY_CASE "?", "\\p{N}")}},
    {"CHAMELEON", {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}", "[\\p{P}!-/:-@\\[-`{-~]", GPT2}},
    {"NEWLINES", {NEWLINES}},
};

static const struct { const char *name, *key; uint32_t flags; } names[] = {
    {"llama3", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS}, {"llama-v3", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS}, {"llama-bpe", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS},
    {"laguna", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS}, {"falcon3", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS}, {"falcon-h1", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS},
    {"pixtral", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS}, {"midm-2.0", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS}, {"lfm2", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS},
    {"jina-v5-nano", "LLAMA3", NB_PRE_WHOLE | NB_PRE_BOS}, {"dbrx", "LLAMA3", 0}, {"smaug-bpe", "LLAMA3", 0}, {"glm4", "LLAMA3", 0}, {"chatglm-bpe", "LLAMA3", 0},
    {"gpt-2", "GPT2", 0}, {"phi-2", "GPT2", 0}, {"jina-es", "GPT2", 0}, {"jina-de", "GPT2", 0}, {"jina-v2-es", "GPT2", 0}, {"jina-v2-de", "GPT2", 0},
    {"gigachat", "GPT2", 0}, {"a.x-4.0", "GPT2", 0}, {"mellum", "GPT2", 0}, {"modern-bert", "GPT2", NB_PRE_NFC}, {"mpt", "GPT2", NB_PRE_NFC},
    {"olmo", "GPT2", NB_PRE_NFC}, {"jais", "GPT2", 0}, {"trillion", "GPT2", 0}, {"granite-docling", "GPT2", 0}, {"exaone4", "GPT2", 0},
    {"jina-v1-en", "GPT2", NB_PRE_BOS | NB_PRE_SEP}, {"jina-v2-code", "GPT2", NB_PRE_BOS | NB_PRE_SEP}, {"roberta-bpe", "GPT2", NB_PRE_BOS | NB_PRE_SEP},
    {"qwen2", "QWEN2", NB_PRE_NFC}, {"deepseek-r1-qwen", "QWEN2", NB_PRE_NFC}, {"kormo", "QWEN2", 0}, {"openpangu", "QWEN2", 0}, {"f2llmv2", "QWEN2", 0},
    {"megrez", "QWEN2", 0}, {"stablelm2", "QWEN2", 0}, {"hunyuan", "QWEN2", 0}, {"solar-open", "QWEN2", 0}, {"grok-2", "QWEN2", 0},
    {"qwen35", "QWEN35", NB_PRE_NFC}, {"gpt-4o", "O200K", 0}, {"llama4", "O200K", 0}, {"kanana2", "O200K", 0}, {"minimax-m2", "O200K", 0},
    {"tekken", "TEKKEN", NB_PRE_WHOLE | NB_PRE_BOS}, {"deepseek-v3", "DEEPSEEK3", 0}, {"hunyuan-dense", "DEEPSEEK3", 0}, {"joyai-llm", "DEEPSEEK3", 0},
    {"deepseek-llm", "DEEPSEEK_LLM", 0}, {"deepseek-coder", "DEEPSEEK_CODER", 0}, {"starcoder", "STARCODER", 0}, {"refact", "STARCODER", 0},
    {"command-r", "STARCODER", 0}, {"cohere2_moe", "STARCODER", 0}, {"smollm", "STARCODER", 0}, {"codeshell", "STARCODER", 0}, {"exaone", "STARCODER", 0},
    {"minerva-7b", "STARCODER", 0}, {"mellum2", "STARCODER", 0}, {"falcon", "FALCON", 0}, {"bloom", "BLOOM", 0}, {"poro-chat", "BLOOM", 0},
    {"gpt3-finnish", "BLOOM", 0}, {"viking", "VIKING", 0}, {"chameleon", "CHAMELEON", NB_PRE_BOS}, {"superbpe", "SUPERBPE", 0}, {"bailingmoe", "BAILING", 0},
    {"bailingmoe2", "BAILING", 0}, {"llada-moe", "BAILING", 0}, {"seed-coder", "SEED", 0}, {"kimi-k2", "KIMI", 0}, {"afmoe", "AFMOE", 0},
    {"youtu", "YOUTU", NB_PRE_WHOLE}, {"tiny_aya", "TINY_AYA", 0}, {"jais-2", "JAIS2", 0}, {"exaone-moe", "EXAONE_MOE", 0},
    {"gemma4", "NEWLINES", NB_PRE_RAW | NB_PRE_BOS}, {"default", "default", 0},
};

static void add_steps(nb_tok_build *b, const char *const *step, size_t max)
{
    for (size_t i = 0; i < max && step[i]; i++) {
        nb_tok_step s = {.kind = NB_TP_SPLIT, .f = {1, NB_BEHAVE_ISOLATED}};
        switch (step[i][0]) {
        case 1: s = (nb_tok_step){.kind = NB_TP_NEWLINES}; break;
        case 2: case 3: case 4: s = (nb_tok_step){.kind = NB_TP_DIGITS3, .f = {(uint8_t)(step[i][0] - 2)}}; break;
        default: s.s = nb_tok_build_str(b, nb_str_of(step[i]));
        }
        nb_tok_build_step(b, &b->pre, &s);
    }
}

bool nb_tok_gguf_pre(nb_tok_build *b, nb_str name, uint32_t *flags)
{
    const char *key = NULL;
    *flags = 0;
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (name.p && nb_str_is(name, names[i].name)) key = names[i].key, *flags = names[i].flags;
    for (size_t i = 0; i < NB_COUNT(patterns); i++)
        if (!strcmp(patterns[i].key, key ? key : "default")) add_steps(b, patterns[i].step, NB_COUNT(patterns[i].step));
    return key != NULL;
}

const char *nb_tok_gguf_pattern(const char *key)
{
    for (size_t i = 0; i < NB_COUNT(patterns); i++)
        if (!strcmp(patterns[i].key, key)) return patterns[i].step[0];
    return "";
}
