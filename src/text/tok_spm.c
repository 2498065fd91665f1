/* text/tok_spm: loads a SentencePiece tokenizer.model, a protobuf message. Only the fields that matter are read; unknown
 * ones are passed over by their wire type. */
#include "text/tok_decode.h"
#include "text/tok_extra.h"
#include "text/tok_json.h"
#include "text/tok_run.h"

/* ---- protobuf ---- */

typedef struct reader { const uint8_t *p; size_t n, at; } reader;
typedef struct field { uint32_t number; uint64_t value; nb_str bytes; } field; /* bytes.p set for length-delimited ones */

static bool varint(reader *r, uint64_t *out)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && r->at < r->n; shift += 7) {
        uint8_t b = r->p[r->at++];
        v |= (uint64_t)(b & 127) << shift;
        if (b < 128) {
            *out = v;
            return true;
        }
    }
    return false;
}

/* The next field: 1, 0 at the end, -1 when the message is damaged. */
static int next_field(reader *r, field *f)
{
    uint64_t tag, n;
    *f = (field){0};
    if (r->at == r->n) return 0;
    if (!varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > 1u << 29) return -1;
    f->number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case 0: return varint(r, &f->value) ? 1 : -1;
    case 2:
        if (!varint(r, &n) || n > r->n - r->at) return -1;
        f->bytes = (nb_str){(const char *)r->p + r->at, (size_t)n};
        r->at += (size_t)n;
        return 1;
    case 1: case 5:
        n = (tag & 7) == 1 ? 8 : 4;
        if (n > r->n - r->at) return -1;
        f->value = n == 8 ? nb_load_u64(r->p + r->at) : nb_load_u32(r->p + r->at);
        r->at += (size_t)n;
        return 1;
    default: return -1;
    }
}

/* ---- the model ---- */

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

typedef struct spec { int64_t model, bos, eos; nb_str charsmap; } spec;

static reader inside(nb_str s) { return (reader){(const uint8_t *)s.p, s.n, 0}; }
static nb_status damaged(nb_error *err, const char *what) { return nb_fail(err, NB_E_INVALID, "tokenizer.model: damaged %s", what); }

static nb_status read_piece(nb_tok_build *b, nb_str message, uint32_t id, nb_error *err)
{
    reader r = inside(message);
    field f;
    int k;
    uint64_t type = NORMAL;
    nb_str text = {"", 0};
    float score = 0;
    while ((k = next_field(&r, &f)) > 0) {
        if (f.number == 1 && f.bytes.p) text = f.bytes;
        else if (f.number == 2) score = nb_f32_bits((uint32_t)f.value);
        else if (f.number == 3) type = f.value;
    }
    static const uint8_t flags[] = {0, 0, NB_TF_UNKNOWN | NB_TF_SPECIAL, NB_TF_CONTROL | NB_TF_SPECIAL, NB_TF_USER, NB_TF_UNUSED, NB_TF_BYTE};
    if (k < 0 || type < NORMAL || type > BYTE || text.n >= NB_TOK_MAX_TOKEN || nb_utf8_valid_prefix(text.p, text.n) != text.n || score != score)
        return nb_fail(err, NB_E_INVALID, "tokenizer.model: piece %u is damaged", id);
    if (type == BYTE && nb_tok_fallback_byte(text) < 0) return nb_fail(err, NB_E_INVALID, "tokenizer.model: byte piece %u is not <0xNN>", id);
    b->token[id] = text;
    b->flags[id] = NB_TF_PRESENT | flags[type];
    b->score[id] = score;
    if (type == UNKNOWN && b->meta.unk == NB_TOK_NONE) b->meta.unk = id;
    return NB_OK;
}

static nb_status read_trainer(nb_tok_build *b, nb_str message, spec *s, nb_error *err)
{
    reader r = inside(message);
    field f;
    int k;
    while ((k = next_field(&r, &f)) > 0) {
        switch (f.number) {
        case 3: s->model = (int64_t)f.value; break;
        case 24: b->meta.sp_suffix = f.value != 0; break;
        case 35: b->meta.byte_fallback = f.value != 0; break;
        case 41: s->bos = (int64_t)f.value; break;
        case 42: s->eos = (int64_t)f.value; break;
        case 44: if (f.bytes.p) b->meta.unk_surface = nb_tok_build_str(b, f.bytes); break;
        default: break;
        }
    }
    return k < 0 ? damaged(err, "trainer_spec") : NB_OK;
}

static nb_status read_normalizer(nb_tok_build *b, nb_str message, spec *s, nb_error *err)
{
    reader r = inside(message);
    field f;
    int k;
    while ((k = next_field(&r, &f)) > 0) {
        switch (f.number) {
        case 2: if (f.bytes.p) s->charsmap = f.bytes; break;
        case 3: b->meta.sp_dummy_prefix = f.value != 0; break;
        case 4: b->meta.sp_remove_extra = f.value != 0; break;
        case 5: b->meta.sp_escape = f.value != 0; break;
        default: break;
        }
    }
    if (k < 0) return damaged(err, "normalizer_spec");
    return nb_tok_charsmap_check(s->charsmap, err);
}

static nb_status read_model(nb_tok_build *b, const void *p, size_t n, spec *s, nb_error *err)
{
    reader r = {p, n, 0}, count = r;
    field f;
    uint32_t pieces = 0, id = 0;
    int k;
    nb_status st = NB_OK;
    while ((k = next_field(&count, &f)) > 0) pieces += f.number == 1 && f.bytes.p;
    if (k < 0) return damaged(err, "message");
    if (!pieces || pieces > NB_TOK_MAX_IDS) return nb_fail(err, NB_E_INVALID, "tokenizer.model: %u pieces", pieces);
    if (!nb_tok_build_tokens(b, pieces, true)) return nb_tok_no_memory(err);
    while (!st && next_field(&r, &f) > 0) {
        if (!f.bytes.p) continue;
        if (f.number == 1) st = read_piece(b, f.bytes, id++, err);
        else if (f.number == 2) st = read_trainer(b, f.bytes, s, err);
        else if (f.number == 3) st = read_normalizer(b, f.bytes, s, err);
    }
    return st;
}

static bool class_is(const nb_json *config, const char *part)
{
    nb_str s;
    return nb_json_str(nb_json_get(config, "tokenizer_class"), &s) && nb_str_has(s, part);
}

/* The library itself adds neither BOS nor EOS; the families that wrap it do, and say so in tokenizer_config.json. */
static void templates(nb_tok_build *b, const nb_json *config)
{
    bool bos = class_is(config, "Llama") || class_is(config, "Gemma"), eos = class_is(config, "T5");
    nb_json_bool(nb_json_get(config, "add_bos_token"), &bos);
    nb_json_bool(nb_json_get(config, "add_eos_token"), &eos);
    for (int k = 0; k < 2; k++) {
        nb_tok_vec *out = k ? &b->pair : &b->single;
        for (int part = 0; part <= k; part++) {
            if (bos && b->meta.bos != NB_TOK_NONE) nb_tok_build_item(b, out, (int32_t)b->meta.bos, (uint32_t)part);
            nb_tok_build_item(b, out, -1 - part, (uint32_t)part);
            if (eos && b->meta.eos != NB_TOK_NONE) nb_tok_build_item(b, out, (int32_t)b->meta.eos, (uint32_t)part);
        }
    }
}

/* Classes that build their vocabulary from the model alone; the others rename pieces as the config says. */
static bool renames(const nb_tok_build *b, const nb_json *config)
{
    static const char *const own[] = {"Llama", "Gemma", "T5", "XGLM", "Reformer", "Camembert", "XLMRoberta", "MBart"};
    bool any = b->meta.model != NB_TM_SP_BPE;
    for (size_t i = 0; i < NB_COUNT(own); i++) any = any || class_is(config, own[i]);
    return !any;
}

/* A piece whose id the config gives to another token is that token: a place that the model keeps free. But where a piece
 * of that text stays as it is, that piece is the token. */
static nb_status rename_pieces(nb_tok_build *b, const nb_tok_extras *x, nb_error *err)
{
    bool any = false;
    uint8_t *listed = NB_NEW_N(b->arena, uint8_t, b->tokens), *change = NB_NEW_N(b->arena, uint8_t, x->n + 1);
    if (!listed || !change) return nb_tok_no_memory(err);
    for (size_t i = 0; i < x->n; i++)
        if (x->v[i].id >= 0 && x->v[i].id < b->tokens) listed[x->v[i].id] = 1;
    for (size_t i = 0; i < x->n; i++) {
        if (x->v[i].id < 0 || x->v[i].id >= b->tokens || nb_str_eq(b->token[x->v[i].id], x->v[i].content)) continue;
        uint32_t other = nb_tok_build_find(b, x->v[i].content);
        change[i] = other == NB_TOK_NONE || listed[other];
        any = any || change[i];
    }
    for (size_t i = 0; i < x->n; i++) {
        nb_str name = change[i] ? nb_arena_str(b->arena, x->v[i].content) : (nb_str){"", 0};
        if (!name.p) return nb_tok_no_memory(err);
        if (change[i]) b->token[x->v[i].id] = name;
    }
    return any ? nb_tok_build_vocab(b, err) : NB_OK;
}

/* They are found in the raw text and, unless the model has them as its user-defined ones, are no pieces any more: plain
 * text does not become one. Where the model itself puts
 * no space before a text, normalised ones are looked for behind U+2581 in place of spaces, so they strip none. */
static nb_status add_extras(nb_tok_build *b, const nb_tok_extras *x, nb_error *err)
{
    nb_status st = NB_OK;
    for (size_t i = 0; i < x->n && !st; i++) {
        uint32_t flags = x->v[i].flags, id = nb_tok_build_find(b, x->v[i].content);
        bool user = id != NB_TOK_NONE && (b->flags[id] & NB_TF_USER) && !(b->flags[id] & NB_TF_CONTROL);
        if ((flags & NB_AF_NORMALIZED) && !b->meta.sp_dummy_prefix && b->meta.sp_escape)
            flags &= ~(uint32_t)(NB_AF_LSTRIP | NB_AF_RSTRIP);
        if (x->v[i].content.n >= NB_TOK_MAX_TOKEN)
            return nb_fail(err, NB_E_INVALID, "tokenizer_config.json: an added token of %zu bytes is too long", x->v[i].content.n);
        st = nb_tok_build_add(b, x->v[i].content, flags & ~(uint32_t)NB_AF_NORMALIZED, err);
        if (st || !x->v[i].content.n || !nb_map_get(&b->added_index, x->v[i].content, &id)) continue;
        id = ((nb_tok_added *)b->added.p)[id].id;
        if (!user || (flags & NB_AF_SPECIAL)) b->flags[id] = (uint8_t)((b->flags[id] & ~(NB_TF_CONTROL | NB_TF_UNKNOWN)) | NB_TF_ADDED);
    }
    return st;
}

nb_status nb_tok_sp_finish(nb_tok_build *b, const nb_json *config, nb_tokenizer **out, nb_error *err)
{
    nb_tok_step s = {.kind = NB_TD_SP};
    nb_tok_extras extras;
    float lowest = 0;
    bool any = false;
    nb_status st = nb_tok_extras_read(&extras, config, b->arena, err);
    if (!st) st = nb_tok_build_vocab(b, err);
    if (!st && renames(b, config)) st = rename_pieces(b, &extras, err);
    for (uint32_t i = 0; i < b->tokens && !st; i++) {
        uint8_t f = b->flags[i];
        if ((f & NB_TF_PRESENT) && !(f & (uint8_t)~NB_TF_PRESENT) && (!any || (float)b->score[i] < lowest)) lowest = (float)b->score[i], any = true;
        /* Control tokens are found in trusted text, as the wrappers of the library do it. */
        if (!(f & NB_TF_CONTROL) || !b->token[i].n) continue;
        st = nb_tok_build_add_id(b, b->token[i], i, NB_AF_SPECIAL, err);
        /* The library decodes them to nothing, its wrappers to their text. */
        if (config) b->flags[i] = (uint8_t)((b->flags[i] & ~NB_TF_CONTROL) | NB_TF_ADDED);
    }
    if (!st) st = add_extras(b, &extras, err);
    if (st) return st;
    b->meta.unk_score = lowest - 10.0f;
    nb_tok_build_step(b, &b->dec, &s);
    return nb_tok_build_finish(b, out, err);
}

nb_status nb_tokenizer_from_spm(nb_tokenizer **out, const void *p, size_t n, const nb_json *config, nb_error *err)
{
    nb_tok_build b;
    spec s = {.model = 1, .bos = 1, .eos = 2};
    *out = NULL;
    nb_status st = nb_tok_build_init(&b, err);
    if (st) return st;
    b.meta.sp_dummy_prefix = b.meta.sp_remove_extra = b.meta.sp_escape = 1;
    b.meta.unk_surface = nb_tok_build_str(&b, NB_LIT(" \xE2\x81\x87 "));
    if ((st = read_model(&b, p, n, &s, err))) goto end;
    if (s.model != 1 && s.model != 2) {
        st = nb_fail(err, NB_E_UNSUPPORTED, "tokenizer.model: model type %lld is neither unigram (1) nor BPE (2)", (long long)s.model);
        goto end;
    }
    b.meta.model = s.model == 2 ? NB_TM_SP_BPE : NB_TM_SP_UNIGRAM;
    bool legacy = true; /* the wrappers put the prefix behind every control token, unless they say otherwise */
    nb_json_bool(nb_json_get(config, "legacy"), &legacy);
    b.meta.sp_prefix_every = legacy;
    b.meta.sp_charsmap = nb_tok_build_str(&b, s.charsmap);
    if (s.bos >= 0 && s.bos < b.tokens && (b.flags[s.bos] & NB_TF_CONTROL)) b.meta.bos = (uint32_t)s.bos;
    if (s.eos >= 0 && s.eos < b.tokens && (b.flags[s.eos] & NB_TF_CONTROL)) b.meta.eos = (uint32_t)s.eos;
    const uint32_t own[] = {b.meta.bos, b.meta.eos, b.meta.unk};
    for (uint32_t i = 0; i < NB_COUNT(own); i++)
        if (own[i] != NB_TOK_NONE) b.meta.special[i] = nb_tok_build_str(&b, b.token[own[i]]);
    nb_tok_json_config(&b, config);
    templates(&b, config);
    st = nb_tok_sp_finish(&b, config, out, err);
end:
    nb_tok_build_free(&b);
    return st;
}
