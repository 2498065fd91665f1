/* text/tok_json_steps: normalizer, pre_tokenizer, post_processor and decoder of tokenizer.json. Files of different ages
 * leave out `type` in places; then the fields decide, as in the package. */
#include "text/tok_json.h"

#include "text/tok_regex.h"
#include "text/tok_run.h"

#include <stdlib.h>

enum { MAX_NESTING = 16 };

static nb_status missing(nb_error *err, const char *section, const char *type, const char *field)
{
    return nb_fail(err, NB_E_INVALID, "%s: %s needs '%s'", section, type, field);
}

static bool flag(const nb_json *v, const char *field, bool otherwise)
{
    bool b;
    return nb_json_bool(nb_json_get(v, field), &b) ? b : otherwise;
}
static nb_str text(const nb_json *v, const char *field)
{
    nb_str s = {0};
    nb_json_str(nb_json_get(v, field), &s);
    return s;
}
static bool has(const nb_json *v, const char *field) { return nb_json_get(v, field) != NULL; }

/* {"String": s} or {"Regex": s}. Sets f[0] and s of the step; a pattern that cannot be had is named here. */
static nb_status pattern(nb_tok_build *b, const nb_json *v, const char *section, nb_tok_step *s, nb_error *err)
{
    const nb_json *p = nb_json_get(v, "pattern");
    nb_str str = text(p, "String"), re = text(p, "Regex");
    if (nb_json_is(p, NB_JSON_STRING)) str = p->text;
    if (!str.p && !re.p) return nb_fail(err, NB_E_INVALID, "%s: a pattern must be a String or a Regex", section);
    if (!re.p && !str.n) re = NB_LIT(""); /* found between all characters, as the empty pattern is */
    s->f[0] = re.p != NULL;
    s->s = nb_tok_build_str(b, re.p ? re : str);
    if (re.p) {
        nb_tok_regex *r;
        nb_status st = nb_tok_regex_new(&r, re, err);
        nb_tok_regex_free(r);
        if (st) {
            nb_error_prefix(err, "%s", section);
            return st;
        }
    }
    return NB_OK;
}

typedef nb_status section_fn(nb_tok_build *b, const nb_json *v, int depth, nb_error *err);
static nb_status each(nb_tok_build *b, const nb_json *list, int depth, section_fn *fn, const char *section, nb_error *err)
{
    if (!nb_json_is(list, NB_JSON_ARRAY)) return nb_fail(err, NB_E_INVALID, "%s: a Sequence needs a list", section);
    if (depth >= MAX_NESTING) return nb_fail(err, NB_E_INVALID, "%s: Sequences nested deeper than %d", section, MAX_NESTING);
    nb_status st = NB_OK;
    for (uint32_t i = 0; i < list->count && !st; i++) st = fn(b, &list->items[i], depth + 1, err);
    return st;
}

static uint8_t behaviour(nb_str s)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    for (uint8_t i = 0; i < NB_COUNT(names); i++)
        if (nb_str_is(s, names[i])) return i;
    return 255;
}

/* ---- normalizers ---- */

static nb_status charsmap(nb_tok_build *b, const nb_json *v, nb_tok_step *s, nb_error *err)
{
    nb_str blob, code = text(v, "precompiled_charsmap");
    if (!code.p) return missing(err, "normalizer", "Precompiled", "precompiled_charsmap");
    nb_status st = nb_tok_base64(b->arena, code, &blob, err);
    if (!st) st = nb_tok_charsmap_check(blob, err);
    if (!st && !blob.n) st = nb_fail(err, NB_E_INVALID, "normalizer: an empty precompiled_charsmap");
    s->kind = NB_TN_CHARSMAP;
    s->s = nb_tok_build_str(b, blob);
    return st;
}

static nb_str normalizer_type(const nb_json *v)
{
    nb_str type = text(v, "type");
    if (type.p) return type;
    if (has(v, "normalizers")) return NB_LIT("Sequence");
    if (has(v, "clean_text") || has(v, "handle_chinese_chars")) return NB_LIT("BertNormalizer");
    if (has(v, "strip_left") || has(v, "strip_right")) return NB_LIT("Strip");
    if (has(v, "pattern")) return NB_LIT("Replace");
    if (has(v, "prepend")) return NB_LIT("Prepend");
    if (has(v, "precompiled_charsmap")) return NB_LIT("Precompiled");
    return type;
}

nb_status nb_tok_json_normalizer(nb_tok_build *b, const nb_json *v, int depth, nb_error *err)
{
    static const struct { const char *name; uint8_t kind, form; } plain[] = {
        {"NFC", NB_TN_FORM, NB_NFC}, {"NFD", NB_TN_FORM, NB_NFD}, {"NFKC", NB_TN_FORM, NB_NFKC}, {"NFKD", NB_TN_FORM, NB_NFKD},
        {"Nmt", NB_TN_NMT, 0}, {"Lowercase", NB_TN_LOWER, 0}, {"StripAccents", NB_TN_STRIP_ACCENTS, 0}, {"ByteLevel", NB_TN_BYTELEVEL, 0},
    };
    nb_tok_step s = {0};
    nb_status st = NB_OK;
    if (!nb_json_present(v)) return NB_OK;
    nb_str type = normalizer_type(v);
    for (size_t i = 0; i < NB_COUNT(plain); i++)
        if (type.p && nb_str_is(type, plain[i].name)) s.kind = plain[i].kind, s.a[0] = plain[i].form;
    if (s.kind || !type.p) {
    } else if (nb_str_is(type, "Sequence")) {
        return each(b, nb_json_get(v, "normalizers"), depth, nb_tok_json_normalizer, "normalizer", err);
    } else if (nb_str_is(type, "Strip")) {
        s.kind = NB_TN_STRIP, s.f[0] = flag(v, "strip_left", true), s.f[1] = flag(v, "strip_right", true);
    } else if (nb_str_is(type, "BertNormalizer")) {
        bool lower = flag(v, "lowercase", true);
        s.kind = NB_TN_BERT;
        s.f[0] = flag(v, "clean_text", true), s.f[1] = flag(v, "handle_chinese_chars", true), s.f[2] = flag(v, "strip_accents", lower), s.f[3] = lower;
    } else if (nb_str_is(type, "Replace")) {
        nb_str content = text(v, "content");
        if (!content.p) return missing(err, "normalizer", "Replace", "content");
        s.kind = NB_TN_REPLACE;
        st = pattern(b, v, "normalizer", &s, err);
        s.s2 = nb_tok_build_str(b, content);
    } else if (nb_str_is(type, "Prepend")) {
        nb_str p = text(v, "prepend");
        if (!p.p) return missing(err, "normalizer", "Prepend", "prepend");
        s.kind = NB_TN_PREPEND;
        s.s = nb_tok_build_str(b, p);
    } else if (nb_str_is(type, "Precompiled")) {
        st = charsmap(b, v, &s, err);
    }
    if (!s.kind && !st) return nb_fail(err, NB_E_UNSUPPORTED, "normalizer: unknown type '%.*s'", NB_FMT_STR(type));
    if (!st) nb_tok_build_step(b, &b->norm, &s);
    return st;
}

/* ---- pre-tokenizers ---- */

/* Metaspace of both ages, as pre-tokenizer and as decoder: replacement and scheme. */
static nb_status metaspace(nb_tok_build *b, const nb_json *v, nb_tok_step *s, const char *section, nb_error *err)
{
    static const char *const schemes[] = {"always", "first", "never"};
    nb_str sign = text(v, "replacement"), scheme = text(v, "prepend_scheme");
    size_t len;
    if (!sign.n || (nb_utf8_decode(sign.p, sign.n, &len), len != sign.n)) return nb_fail(err, NB_E_INVALID, "%s: the replacement of a Metaspace must be one character", section);
    s->s = nb_tok_build_str(b, sign);
    s->f[0] = NB_SCHEME_ALWAYS;
    if (scheme.p) {
        s->f[0] = 255;
        for (uint8_t i = 0; i < 3; i++)
            if (nb_str_is(scheme, schemes[i])) s->f[0] = i;
        if (s->f[0] == 255) return nb_fail(err, NB_E_UNSUPPORTED, "%s: unknown prepend_scheme '%.*s'", section, NB_FMT_STR(scheme));
    }
    if (!flag(v, "add_prefix_space", true) && s->f[0] != NB_SCHEME_NEVER)
        return nb_fail(err, NB_E_INVALID, "%s: add_prefix_space is false but prepend_scheme is not 'never'", section);
    return NB_OK;
}

static nb_status pre_step(nb_tok_build *b, const nb_json *v, nb_str type, nb_tok_step *s, nb_error *err)
{
    nb_str how = text(v, "behavior");
    size_t len;
    int64_t n = 5;
    if (nb_str_is(type, "ByteLevel")) {
        if (!has(v, "trim_offsets")) return missing(err, "pre_tokenizer", "ByteLevel", "trim_offsets");
        s->kind = NB_TP_BYTELEVEL, s->f[0] = flag(v, "add_prefix_space", true), s->f[1] = flag(v, "use_regex", true);
    } else if (nb_str_is(type, "Split")) {
        if (!has(v, "invert")) return missing(err, "pre_tokenizer", "Split", "invert");
        s->kind = NB_TP_SPLIT, s->f[1] = behaviour(how), s->f[2] = flag(v, "invert", false);
        if (s->f[1] == 255) return nb_fail(err, NB_E_UNSUPPORTED, "pre_tokenizer: unknown behavior '%.*s'", NB_FMT_STR(how));
        return pattern(b, v, "pre_tokenizer", s, err);
    } else if (nb_str_is(type, "Metaspace")) {
        s->kind = NB_TP_METASPACE, s->f[1] = flag(v, "split", true);
        return metaspace(b, v, s, "pre_tokenizer", err);
    } else if (nb_str_is(type, "Punctuation")) {
        s->kind = NB_TP_PUNCT, s->f[1] = how.p ? behaviour(how) : NB_BEHAVE_ISOLATED;
        if (s->f[1] == 255) return nb_fail(err, NB_E_UNSUPPORTED, "pre_tokenizer: unknown behavior '%.*s'", NB_FMT_STR(how));
    } else if (nb_str_is(type, "Digits")) {
        s->kind = NB_TP_DIGITS, s->f[1] = flag(v, "individual_digits", false) ? NB_BEHAVE_ISOLATED : NB_BEHAVE_CONTIGUOUS;
    } else if (nb_str_is(type, "CharDelimiterSplit")) {
        nb_str d = text(v, "delimiter");
        if (!d.n || (s->a[0] = nb_utf8_decode(d.p, d.n, &len), len != d.n)) return nb_fail(err, NB_E_INVALID, "pre_tokenizer: the delimiter must be one character");
        s->kind = NB_TP_DELIMITER;
    } else if (nb_str_is(type, "FixedLength")) {
        if (has(v, "length") && (!nb_json_i64(nb_json_get(v, "length"), &n) || n < 1 || n > INT32_MAX)) return nb_fail(err, NB_E_INVALID, "pre_tokenizer: length of FixedLength");
        s->kind = NB_TP_FIXED, s->a[0] = (uint32_t)n;
    } else if (nb_str_is(type, "Whitespace")) s->kind = NB_TP_WHITESPACE;
    else if (nb_str_is(type, "WhitespaceSplit")) s->kind = NB_TP_WHITESPACE_SPLIT;
    else if (nb_str_is(type, "BertPreTokenizer")) s->kind = NB_TP_BERT;
    else if (nb_str_is(type, "UnicodeScripts")) s->kind = NB_TP_SCRIPTS;
    else return nb_fail(err, NB_E_UNSUPPORTED, "pre_tokenizer: unknown type '%.*s'", NB_FMT_STR(type));
    return NB_OK;
}

nb_status nb_tok_json_pre(nb_tok_build *b, const nb_json *v, int depth, nb_error *err)
{
    nb_tok_step s = {0};
    if (!nb_json_present(v)) return NB_OK;
    nb_str type = text(v, "type");
    if (!type.p) return nb_fail(err, NB_E_INVALID, "pre_tokenizer: 'type' is missing");
    if (nb_str_is(type, "Sequence")) return each(b, nb_json_get(v, "pretokenizers"), depth, nb_tok_json_pre, "pre_tokenizer", err);
    nb_status st = pre_step(b, v, type, &s, err);
    if (!st) nb_tok_build_step(b, &b->pre, &s);
    return st;
}

/* ---- post-processors: all become the two lists of parts ---- */

/* While a list is built PART_END closes each sequence: a processor behind another works on the sequences that one left,
 * and each part of a template is a sequence of its own. */
enum { PART_END = -3, MAX_PARTS = 65536 };

static uint32_t sequences(const nb_tok_vec *v)
{
    const nb_tok_item *it = v->p;
    uint32_t count = 0;
    for (size_t i = 0; i < v->n; i++) count += it[i].id == PART_END;
    return count;
}

static void start_parts(nb_tok_build *b)
{
    if (b->single.n || b->pair.n) return;
    nb_tok_build_item(b, &b->single, -1, 0), nb_tok_build_item(b, &b->single, PART_END, 0);
    nb_tok_build_item(b, &b->pair, -1, 0), nb_tok_build_item(b, &b->pair, PART_END, 0);
    nb_tok_build_item(b, &b->pair, -2, 1), nb_tok_build_item(b, &b->pair, PART_END, 0);
}

static void drop_part_ends(nb_tok_vec *v)
{
    nb_tok_item *it = v->p;
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        if (it[i].id != PART_END) it[n++] = it[i];
    v->n = n;
}

/* Takes over what a processor made of a list; frees the old one, or on failure the new one. */
static nb_status take_parts(nb_tok_build *b, nb_tok_vec *list, nb_tok_vec *made, nb_status st, nb_error *err)
{
    if (!st && b->oom) st = nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    if (!st && made->n > MAX_PARTS) st = nb_fail(err, NB_E_UNSUPPORTED, "post_processor: more than %d parts", MAX_PARTS);
    free(st ? made->p : list->p);
    if (!st) *list = *made;
    return st;
}

/* Sequence `at` (counted from 0) of the list as it was, all of one type. */
static void copy_sequence(nb_tok_build *b, const nb_tok_vec *from, uint32_t at, nb_tok_vec *out, uint32_t type)
{
    const nb_tok_item *it = from->p;
    uint32_t now = 0;
    for (size_t i = 0; i < from->n && now <= at; i++) {
        if (it[i].id == PART_END) now++;
        else if (now == at) nb_tok_build_item(b, out, it[i].id, type);
    }
}

static bool template_id(const nb_json *specials, nb_str name, const nb_json **ids)
{
    *ids = nb_json_get(nb_json_get_str(specials, name), "ids");
    return nb_json_is(*ids, NB_JSON_ARRAY);
}

static nb_status template_items(nb_tok_build *b, const nb_tok_vec *from, const nb_json *list, const nb_json *specials, nb_tok_vec *out, nb_error *err)
{
    if (!nb_json_is(list, NB_JSON_ARRAY)) return nb_fail(err, NB_E_UNSUPPORTED, "post_processor: a template must be a list of parts");
    for (uint32_t i = 0; i < list->count; i++) {
        const nb_json *special = nb_json_get(&list->items[i], "SpecialToken"), *seq = nb_json_get(&list->items[i], "Sequence"), *ids;
        const nb_json *part = special ? special : seq;
        nb_str name = text(part, "id");
        int64_t type = 0, id;
        nb_json_i64(nb_json_get(part, "type_id"), &type);
        if (!name.p || type < 0 || type > INT32_MAX) return nb_fail(err, NB_E_INVALID, "post_processor: part %u of a template", i);
        if (seq) {
            bool second = nb_str_is(name, "B");
            if (second && sequences(from) < 2) return nb_fail(err, NB_E_INVALID, "post_processor: a template for one text names the sequence B");
            copy_sequence(b, from, second, out, (uint32_t)type);
            nb_tok_build_item(b, out, PART_END, 0);
            if (out->n > MAX_PARTS) return NB_OK; /* refused where the list is taken over */
            continue;
        }
        if (!template_id(specials, name, &ids)) return nb_fail(err, NB_E_INVALID, "post_processor: special token '%.*s' has no ids", NB_FMT_STR(name));
        for (uint32_t k = 0; k < ids->count; k++) {
            if (!nb_json_i64(&ids->items[k], &id) || id < 0 || id >= b->tokens || !(b->flags[id] & NB_TF_PRESENT))
                return nb_fail(err, NB_E_INVALID, "post_processor: special token '%.*s' has an id that no token has", NB_FMT_STR(name));
            nb_tok_build_item(b, out, (int32_t)id, (uint32_t)type);
        }
        nb_tok_build_item(b, out, PART_END, 0);
    }
    return NB_OK;
}

/* Without special tokens the text alone is left, once: another number of it is refused. */
static nb_status check_single(const nb_json *list, nb_error *err)
{
    uint32_t texts = 0;
    for (uint32_t i = 0; nb_json_is(list, NB_JSON_ARRAY) && i < list->count; i++) texts += nb_json_get(&list->items[i], "Sequence") != NULL;
    return texts == 1 ? NB_OK : nb_fail(err, NB_E_UNSUPPORTED, "post_processor: a template for one text names it %u times", texts);
}

static nb_status template_parts(nb_tok_build *b, const nb_json *v, nb_tok_vec *list, nb_error *err)
{
    nb_tok_vec made = {0};
    uint32_t count = sequences(list);
    if (list == &b->single && check_single(nb_json_get(v, "single"), err)) return NB_E_UNSUPPORTED;
    if (count < 1 || count > 2) return nb_fail(err, NB_E_UNSUPPORTED, "post_processor: TemplateProcessing behind one that leaves %u sequences", count);
    nb_status st = template_items(b, list, nb_json_get(v, count == 1 ? "single" : "pair"), nb_json_get(v, "special_tokens"), &made, err);
    return take_parts(b, list, &made, st, err);
}

/* ["[SEP]", 102] */
static nb_status pair_id(nb_tok_build *b, const nb_json *v, const char *field, int32_t *out, nb_error *err)
{
    int64_t id;
    const nb_json *pair = nb_json_get(v, field);
    if (!nb_json_i64(nb_json_at(pair, 1), &id) || id < 0 || id >= b->tokens || !(b->flags[id] & NB_TF_PRESENT))
        return nb_fail(err, NB_E_INVALID, "post_processor: '%s' must be a token and its id", field);
    *out = (int32_t)id;
    return NB_OK;
}

/* Before the first sequence cls, behind each one sep; RoBERTa's has two of them between sequences, and no types. */
static nb_status bert_parts(nb_tok_build *b, nb_tok_vec *list, int32_t cls, int32_t sep, bool roberta, nb_error *err)
{
    nb_tok_vec made = {0};
    const nb_tok_item *it = list->p;
    bool start = true, later = false;
    for (size_t i = 0; i < list->n; i++) {
        if (start && (!later || roberta)) nb_tok_build_item(b, &made, later ? sep : cls, 0);
        start = it[i].id == PART_END;
        if (start) nb_tok_build_item(b, &made, sep, later && !roberta);
        nb_tok_build_item(b, &made, it[i].id, roberta ? 0 : it[i].type);
        later |= start;
    }
    return take_parts(b, list, &made, NB_OK, err);
}

static nb_status bert_items(nb_tok_build *b, const nb_json *v, bool roberta, nb_error *err)
{
    int32_t sep, cls;
    nb_status st = pair_id(b, v, "sep", &sep, err);
    if (!st) st = pair_id(b, v, "cls", &cls, err);
    if (!st) st = bert_parts(b, &b->single, cls, sep, roberta, err);
    return st ? st : bert_parts(b, &b->pair, cls, sep, roberta, err);
}

static nb_status post(nb_tok_build *b, const nb_json *v, int depth, nb_error *err)
{
    if (!nb_json_present(v)) return NB_OK;
    nb_str type = text(v, "type");
    if (has(v, "processors")) return each(b, nb_json_get(v, "processors"), depth, post, "post_processor", err);
    /* The two are told apart by a field even where there is a type. */
    bool bert = has(v, "sep") && has(v, "cls");
    if (!bert && type.p && nb_str_is(type, "ByteLevel")) return NB_OK;
    start_parts(b);
    if (bert) return bert_items(b, v, has(v, "trim_offsets"), err);
    if ((type.p && nb_str_is(type, "TemplateProcessing")) || (!type.p && has(v, "single"))) {
        if (!has(v, "pair")) return missing(err, "post_processor", "TemplateProcessing", "pair");
        nb_status st = template_parts(b, v, &b->single, err);
        return st ? st : template_parts(b, v, &b->pair, err);
    }
    return nb_fail(err, NB_E_UNSUPPORTED, "post_processor: unknown type '%.*s'", NB_FMT_STR(type));
}

nb_status nb_tok_json_post(nb_tok_build *b, const nb_json *v, int depth, nb_error *err)
{
    nb_status st = post(b, v, depth, err);
    drop_part_ends(&b->single), drop_part_ends(&b->pair);
    return st;
}

/* ---- decoders ---- */

static nb_str decoder_type(const nb_json *v)
{
    nb_str type = text(v, "type");
    if (type.p) return type;
    if (has(v, "decoders")) return NB_LIT("Sequence");
    if (has(v, "prefix")) return NB_LIT("WordPiece");
    if (has(v, "pad_token")) return NB_LIT("CTC");
    if (has(v, "suffix")) return NB_LIT("BPEDecoder");
    if (has(v, "start") && has(v, "stop")) return NB_LIT("Strip");
    if (has(v, "pattern")) return NB_LIT("Replace");
    return type;
}

static nb_status decoder_step(nb_tok_build *b, const nb_json *v, nb_str type, nb_tok_step *s, nb_error *err)
{
    size_t len;
    int64_t start = 0, stop = 0;
    if (nb_str_is(type, "ByteLevel")) s->kind = NB_TD_BYTELEVEL;
    else if (nb_str_is(type, "ByteFallback")) s->kind = NB_TD_BYTE_FALLBACK;
    else if (nb_str_is(type, "Fuse")) s->kind = NB_TD_FUSE;
    else if (nb_str_is(type, "Strip")) {
        nb_str c = text(v, "content");
        if (!c.n || (s->a[0] = nb_utf8_decode(c.p, c.n, &len), len != c.n)) return nb_fail(err, NB_E_INVALID, "decoder: the content of Strip must be one character");
        if (!nb_json_i64(nb_json_get(v, "start"), &start) || !nb_json_i64(nb_json_get(v, "stop"), &stop) || start < 0 || stop < 0 || start > INT32_MAX || stop > INT32_MAX)
            return nb_fail(err, NB_E_INVALID, "decoder: start and stop of Strip");
        s->kind = NB_TD_STRIP, s->a[1] = (uint32_t)start, s->a[2] = (uint32_t)stop;
    } else if (nb_str_is(type, "Replace")) {
        nb_str content = text(v, "content");
        if (!content.p) return missing(err, "decoder", "Replace", "content");
        s->kind = NB_TD_REPLACE;
        s->s2 = nb_tok_build_str(b, content);
        return pattern(b, v, "decoder", s, err);
    } else if (nb_str_is(type, "Metaspace")) {
        s->kind = NB_TD_METASPACE;
        return metaspace(b, v, s, "decoder", err);
    } else if (nb_str_is(type, "WordPiece")) {
        s->kind = NB_TD_WORDPIECE, s->f[0] = flag(v, "cleanup", true);
        s->s = nb_tok_build_str(b, text(v, "prefix"));
    } else if (nb_str_is(type, "BPEDecoder")) {
        s->kind = NB_TD_BPE;
        s->s = nb_tok_build_str(b, text(v, "suffix"));
    } else if (nb_str_is(type, "CTC")) {
        s->kind = NB_TD_CTC, s->f[0] = flag(v, "cleanup", true);
        s->s = nb_tok_build_str(b, text(v, "pad_token"));
        s->s2 = nb_tok_build_str(b, text(v, "word_delimiter_token"));
    } else return nb_fail(err, NB_E_UNSUPPORTED, "decoder: unknown type '%.*s'", NB_FMT_STR(type));
    return NB_OK;
}

nb_status nb_tok_json_decoder(nb_tok_build *b, const nb_json *v, int depth, nb_error *err)
{
    nb_tok_step s = {0};
    if (!nb_json_present(v)) {
        b->meta.join_space = depth == 0;
        return NB_OK;
    }
    nb_str type = decoder_type(v);
    if (!type.p) return nb_fail(err, NB_E_INVALID, "decoder: 'type' is missing");
    if (nb_str_is(type, "Sequence")) return each(b, nb_json_get(v, "decoders"), depth, nb_tok_json_decoder, "decoder", err);
    nb_status st = decoder_step(b, v, type, &s, err);
    if (!st) nb_tok_build_step(b, &b->dec, &s);
    return st;
}

/* ---- small things ---- */

nb_status nb_tok_base64(nb_arena *a, nb_str code, nb_str *out, nb_error *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    int8_t value[256];
    memset(value, -1, sizeof value);
    for (int i = 0; i < 64; i++) value[(uint8_t)digits[i]] = (int8_t)i;
    char *p = nb_arena_alloc_aligned(a, code.n / 4 * 3 + 4, 4);
    if (!p) return nb_fail(err, NB_E_NO_MEMORY, "tokenizer: out of memory");
    uint32_t bits = 0, have = 0;
    size_t n = 0;
    while (code.n && code.p[code.n - 1] == '=') code.n--;
    for (size_t i = 0; i < code.n; i++) {
        int v = value[(uint8_t)code.p[i]];
        if (v < 0) return nb_fail(err, NB_E_INVALID, "base64: a bad character at %zu", i);
        bits = bits << 6 | (uint32_t)v;
        if ((have += 6) >= 8) p[n++] = (char)(bits >> (have -= 8));
    }
    *out = (nb_str){p, n};
    return NB_OK;
}

static uint32_t config_token(const nb_tok_build *b, const nb_json *config, const char *field)
{
    const nb_json *v = nb_json_get(config, field);
    nb_str s = {0};
    uint32_t at;
    if (!nb_json_str(v, &s)) nb_json_str(nb_json_get(v, "content"), &s);
    if (!s.p || !s.n) return NB_TOK_NONE;
    if (b->added_index.slot && nb_map_get(&b->added_index, s, &at)) return ((const nb_tok_added *)b->added.p)[at].id;
    return nb_tok_build_find(b, s);
}

void nb_tok_json_config(nb_tok_build *b, const nb_json *config)
{
    uint32_t bos = config_token(b, config, "bos_token"), eos = config_token(b, config, "eos_token");
    if (bos != NB_TOK_NONE) b->meta.bos = bos;
    if (eos != NB_TOK_NONE) b->meta.eos = eos;
}
