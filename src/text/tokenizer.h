/* text/tokenizer: text to ids and back, exact to the model's publisher. specs/text_and_api.md 1.
 *
 * A tokenizer is immutable after loading and may be shared by threads.
 */
#ifndef NB_TEXT_TOKENIZER_H
#define NB_TEXT_TOKENIZER_H

#include "base/base.h"
#include "json/json.h"

typedef struct nb_tokenizer nb_tokenizer;

/* From the bytes of tokenizer.json (the source may be freed afterwards). config (tokenizer_config.json, root value) may be NULL. Unknown components: NB_E_UNSUPPORTED naming the component. */
nb_status nb_tokenizer_from_json(nb_tokenizer **out, const char *text, size_t n, const nb_json *config, nb_error *err);
/* tokenizer_config.json with what special_tokens_map.json and added_tokens.json say beside it where it is of the old kind, without "added_tokens_decoder" (each may be NULL):
 * for the loaders below. NULL: all are, or memory. Values are shared. */
const nb_json *nb_tok_config(const nb_json *config, const nb_json *map, const nb_json *added, nb_arena *arena);
/* From a SentencePiece tokenizer.model (protobuf), with the tokens that the config adds. */
nb_status nb_tokenizer_from_spm(nb_tokenizer **out, const void *p, size_t n, const nb_json *config, nb_error *err);
/* Byte-level BPE from vocab.json and merges.txt (p NULL: not there). How the text is cut follows from the config's tokenizer_class, else from config.json's model_type;
 * a class that says nothing of it: NB_E_UNSUPPORTED. */
nb_status nb_tokenizer_from_vocab(nb_tokenizer **out, nb_str vocab, nb_str merges, const nb_json *config, nb_str model_type, nb_error *err);
/* From ranks as tiktoken writes them, "base64 rank" a line; and whether a file begins like that. */
nb_status nb_tokenizer_from_ranks(nb_tokenizer **out, const char *p, size_t n, const nb_json *config, nb_error *err);
bool nb_tok_is_ranks(const char *p, size_t n);
/* GGUF tokenizers: create stores the tokenizer.ggml.* metadata as one JSON object "gguf_tokenizer.json" whose keys are the metadata keys without the "tokenizer.ggml." prefix
 * ("model", "pre", "tokens", "scores", "token_type", "merges", "bos_token_id", "add_bos_token", ...). Token strings that are not UTF-8 are written byte by byte with the
 * byte-level alphabet only for model "gpt2" (they already are); for "llama" tokens are UTF-8. */
nb_status nb_tokenizer_from_gguf(nb_tokenizer **out, const char *json, size_t n, nb_error *err);

/* Prepared form: position-independent bytes, mapped and used in place. `key` (64 hex digits) names sources and program version. */
nb_status nb_tokenizer_save(const nb_tokenizer *t, nb_buf *out, const char key[65], nb_error *err);
/* p[0..n) must stay mapped as long as the tokenizer lives. Every index is bounds-checked here. NB_E_INVALID: make it anew. */
nb_status nb_tokenizer_open(nb_tokenizer **out, const void *p, size_t n, const char key[65], nb_error *err);
void nb_tokenizer_free(nb_tokenizer *t);

uint32_t nb_tokenizer_size(const nb_tokenizer *t); /* 1 + highest id that has a token: ids at and beyond it are never sampled */
int32_t nb_tokenizer_bos(const nb_tokenizer *t);   /* -1: none */
int32_t nb_tokenizer_eos(const nb_tokenizer *t);
/* Special tokens that the tokenizer's own file names: those of SentencePiece and GGUF files, and the pad token of tokenizer.json's "padding". p NULL: none. Owned by t. */
enum { NB_SPECIAL_BOS, NB_SPECIAL_EOS, NB_SPECIAL_UNK, NB_SPECIAL_SEP, NB_SPECIAL_PAD, NB_SPECIAL_CLS, NB_SPECIAL_MASK, NB_SPECIAL_COUNT };
nb_str nb_tokenizer_special(const nb_tokenizer *t, int which);
/* A GGUF file's name of its pre-tokenizer where it is not known: the text is then cut in a general way. p NULL: known. */
nb_str nb_tokenizer_unknown_pre(const nb_tokenizer *t);
int32_t nb_tokenizer_find(const nb_tokenizer *t, nb_str token); /* id of an exact token (vocabulary spelling), -1 */
/* Vocabulary spelling of id; p == NULL for an id without one. Owned by t. */
nb_str nb_tokenizer_token(const nb_tokenizer *t, int32_t id);
bool nb_tokenizer_is_special(const nb_tokenizer *t, int32_t id); /* "special": true */
bool nb_tokenizer_is_added(const nb_tokenizer *t, int32_t id);
/* The bytes that id stands for in running text (after the decoder; byte-fallback tokens give one byte). false: no such id. */
bool nb_tokenizer_bytes(const nb_tokenizer *t, int32_t id, nb_buf *out);

typedef struct nb_ids {
    int32_t *id;
    uint32_t *off; /* NULL, or per id: byte offset in the text where it begins (filled when asked) */
    size_t n, cap;
} nb_ids;
void nb_ids_free(nb_ids *v);
bool nb_ids_push(nb_ids *v, int32_t id);

enum {
    NB_ENC_SPECIALS = 1,      /* let the post-processor add BOS and the like */
    NB_ENC_PARSE_ADDED = 2,   /* find added tokens (special ones included) in the text */
    NB_ENC_OFFSETS = 4,
};
/* A span is text from one origin. In spans from a request, added tokens with "special": true and all control tokens are encoded as plain text
 * (trusted spans find them); no pre-token or merge crosses from a control token, but text of neighbouring spans is one text to the normaliser, pre-tokenizer and merges. */
typedef struct nb_span {
    nb_str text;
    bool trusted;
} nb_span;
nb_status nb_tokenizer_encode(const nb_tokenizer *t, nb_str text, int flags, nb_ids *out, nb_error *err);
nb_status nb_tokenizer_encode_spans(const nb_tokenizer *t, const nb_span *spans, size_t n, int flags, nb_ids *out, nb_error *err);
/* The same for a prompt that may begin like an earlier one, `before`, whose ids and offsets (NB_ENC_OFFSETS) are in out: what both share up to an added token is kept,
 * only the rest is encoded. *kept gets the number of ids kept; the result equals a whole encoding. out without offsets: everything is encoded. */
nb_status nb_tokenizer_encode_again(const nb_tokenizer *t, const nb_span *before, size_t before_n, const nb_span *spans, size_t n, int flags, nb_ids *out, size_t *kept, nb_error *err);
/* Two texts as one sequence (cross-encoders, embeddings); types (may be NULL) gets a type id for each id. */
nb_status nb_tokenizer_encode_pair(const nb_tokenizer *t, nb_str a, nb_str b, int flags, nb_ids *out, nb_ids *types, nb_error *err);
/* Whole decode, exactly as the package's decode(). */
nb_status nb_tokenizer_decode(const nb_tokenizer *t, const int32_t *ids, size_t n, bool skip_special, nb_buf *out, nb_error *err);

/* ---- streaming decode: never half a character, nothing lost at the end. specs/text_and_api.md 1.9 ---- */
typedef struct nb_decode_stream nb_decode_stream;
nb_decode_stream *nb_decode_stream_new(const nb_tokenizer *t, bool skip_special);
void nb_decode_stream_free(nb_decode_stream *s);
nb_status nb_decode_stream_push(nb_decode_stream *s, int32_t id, nb_buf *out, nb_error *err); /* appends what can be shown now */
nb_status nb_decode_stream_flush(nb_decode_stream *s, nb_buf *out, nb_error *err);

#endif
