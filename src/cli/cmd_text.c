/* cli: tokenize, detokenize: for people who debug prompts. template: cmd_template.c */
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/term.h"
#include "cli/text_model.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The ids of a text, and how many before and behind them a post-processor added. */
typedef struct encoding {
    const nb_tokenizer *t;
    nb_str text;
    nb_ids v;
    size_t lead, trail;
} encoding;

/* How many ids a post-processor puts before a text and behind it, seen on a plain letter. */
static nb_status count_around(const nb_tokenizer *t, int flags, size_t *lead, size_t *trail, nb_error *err)
{
    nb_ids all = {0}, bare = {0};
    nb_str letter = NB_LIT("a");
    flags &= ~NB_ENC_OFFSETS;
    nb_status st = nb_tokenizer_encode(t, letter, flags, &all, err);
    if (st == NB_OK) st = nb_tokenizer_encode(t, letter, flags & ~NB_ENC_SPECIALS, &bare, err);
    size_t more = st == NB_OK && bare.n < all.n ? all.n - bare.n : 0;
    while (*lead < more && bare.n && memcmp(all.id + *lead, bare.id, bare.n * sizeof *bare.id) != 0) ++*lead;
    *trail = more - *lead;
    nb_ids_free(&all);
    nb_ids_free(&bare);
    return st;
}

static nb_status encode(encoding *e, bool trusted, int flags, nb_error *err)
{
    nb_span span = {e->text, trusted};
    nb_status st = nb_tokenizer_encode_spans(e->t, &span, 1, flags, &e->v, err);
    bool places = (flags & NB_ENC_SPECIALS) && (flags & NB_ENC_OFFSETS);
    if (st == NB_OK && places) st = count_around(e->t, flags, &e->lead, &e->trail, err);
    if (e->lead + e->trail > e->v.n) e->lead = e->trail = 0;
    return st;
}

/* Where the text of token i ends. Its own bytes decide where they stand in the text; where the tokenizer changed the text,
 * the next token's begin does, without the white space before it. What a post-processor added has no place. */
static size_t token_end(const encoding *e, size_t i, nb_buf *piece)
{
    nb_str text = e->text, name = nb_tokenizer_token(e->t, e->v.id[i]);
    size_t at = e->v.off[i], next = text.n;
    if (i < e->lead || i >= e->v.n - e->trail) return at;
    if (nb_tokenizer_is_added(e->t, e->v.id[i])) { /* some take white space with them */
        size_t from = at;
        while (from < text.n && is_space(text.p[from]) && !(name.n && name.p[0] == text.p[from])) from++;
        if (name.n && name.n <= text.n - from && !memcmp(text.p + from, name.p, name.n)) return from + name.n;
    }
    piece->n = 0;
    nb_tokenizer_bytes(e->t, e->v.id[i], piece);
    if (piece->n && piece->n <= text.n - at && !memcmp(text.p + at, piece->p, piece->n)) return at + piece->n;
    for (size_t k = i + 1; k < e->v.n - e->trail; k++) {
        if (e->v.off[k] <= at) continue;
        next = e->v.off[k];
        break;
    }
    bool white = piece->n && is_space(piece->p[piece->n - 1]);
    while (!white && next > at + 1 && is_space(text.p[next - 1])) next--;
    return next;
}

static void print_ids(const encoding *e, bool json, bool ids_only)
{
    const nb_tokenizer *t = e->t;
    const nb_ids *v = &e->v;
    nb_buf b = {0}, piece = {0};
    if (json) nb_buf_printf(&b, "{\"count\":%zu,\"tokens\":[", v->n);
    for (size_t i = 0; i < v->n; i++) {
        nb_str token = nb_tokenizer_token(t, v->id[i]);
        if (json) {
            nb_buf_printf(&b, "%s{\"id\":%d", i ? "," : "", v->id[i]);
            if (v->off)
                nb_buf_printf(&b, ",\"offset\":%u,\"end\":%zu", v->off[i], token_end(e, i, &piece));
            nb_buf_add_cstr(&b, ",\"token\":");
            nb_json_write_string(&b, token.p ? token : NB_LIT(""), NB_JSON_COMPACT);
            piece.n = 0;
            nb_tokenizer_bytes(t, v->id[i], &piece);
            nb_buf_add_cstr(&b, ",\"bytes\":[");
            for (size_t k = 0; k < piece.n; k++)
                nb_buf_printf(&b, "%s%u", k ? "," : "", (unsigned)(unsigned char)piece.p[k]);
            nb_buf_add_cstr(&b, "]}");
        } else if (ids_only) {
            nb_buf_printf(&b, "%s%d", i ? " " : "", v->id[i]);
        } else {
            nb_buf_printf(&b, "%8d  %6u  ", v->id[i], v->off ? v->off[i] : 0);
            nb_json_write_string(&b, token.p ? token : NB_LIT(""), NB_JSON_COMPACT);
            nb_buf_add_char(&b, '\n');
        }
    }
    if (json) nb_buf_add_cstr(&b, "]}");
    if (json || ids_only) nb_buf_add_char(&b, '\n');
    if (b.n) fwrite(b.p, 1, b.n, stdout);
    nb_buf_free(&b);
    nb_buf_free(&piece);
}

int nb_cmd_tokenize(const nb_command *c, int argc, char **argv)
{
    bool json = false, ids_only = false, no_special = false, untrusted = false;
    const char *file = NULL;
    const nb_opt opts[] = {
        {"--file", "-f", NB_OPT_STR, &file, "FILE", "read the text from a file, a FIFO, or with - (as without text or file) from standard input"},
        {"--ids", NULL, NB_OPT_FLAG, &ids_only, NULL, "print ids only, on one line"},
        {"--no-special", NULL, NB_OPT_FLAG, &no_special, NULL, "do not let the tokenizer add BOS and the like"},
        {"--untrusted", NULL, NB_OPT_FLAG, &untrusted, NULL,
         "take the text as request content: control tokens in it stay text"},
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON object with ids, offsets, pieces and bytes"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n < 1 || n > 2 || (n == 2 && file)) return nb_usage_error(c, "a model, folder or tokenizer file and at most one text are needed");
    nb_error err = {0};
    nb_text_model m = {0};
    nb_buf text = {0};
    nb_status st = NB_OK;
    if (n == 2)
        nb_buf_add_cstr(&text, argv[1]);
    else if (file)
        st = nb_read_input(&text, file, NB_MAX_TEXT, &err);
    else
        st = nb_read_stdin(&text, NB_MAX_TEXT, &err);
    if (st == NB_OK) st = nb_text_model_open(&m, argv[0], &err);
    if (st == NB_OK) st = nb_network_need_tokenizer(m.net, &err);
    int flags = NB_ENC_PARSE_ADDED | (ids_only ? 0 : NB_ENC_OFFSETS) | (no_special ? 0 : NB_ENC_SPECIALS);
    encoding e = {.text = {text.p ? text.p : "", text.n}};
    if (st == NB_OK) {
        e.t = m.net->tokenizer;
        st = encode(&e, !untrusted, flags, &err);
    }
    if (st == NB_OK) print_ids(&e, json, ids_only);
    nb_ids_free(&e.v);
    nb_buf_free(&text);
    nb_text_model_close(&m);
    return st == NB_OK ? 0 : nb_report(&err);
}

static nb_status collect_ids(int n, char **words, nb_ids *v, nb_error *err)
{
    nb_buf in = {0}, ids = {0};
    const char *what = n ? "ids" : "standard input";
    nb_status st = NB_OK;
    if (n == 0) st = nb_read_stdin(&in, NB_MAX_TEXT, err);
    for (int i = 0; i < n; i++) nb_buf_printf(&in, "%s ", words[i]);
    size_t length = in.n;
    const char *text = nb_buf_cstr(&in);
    if (st == NB_OK && !text) st = nb_fail(err, NB_E_NO_MEMORY, "no memory for ids");
    if (st == NB_OK && strlen(text) != length) st = nb_fail(err, NB_E_USAGE, "%s: holds a NUL byte", what);
    if (st == NB_OK) st = nb_ids_parse(text, what, &ids, err);
    for (size_t at = 0; st == NB_OK && at < ids.n; at += sizeof(int32_t))
        if (ids.oom || !nb_ids_push(v, (int32_t)nb_load_u32(ids.p + at)))
            st = nb_fail(err, NB_E_NO_MEMORY, "no memory for ids");
    nb_buf_free(&in);
    nb_buf_free(&ids);
    return st;
}

int nb_cmd_detokenize(const nb_command *c, int argc, char **argv)
{
    bool skip = false, json = false, stream = false;
    const nb_opt opts[] = {
        {"--skip-special", NULL, NB_OPT_FLAG, &skip, NULL, "leave special tokens out"},
        {"--stream", NULL, NB_OPT_FLAG, &stream, NULL, "decode id by id, as while generating; one JSON string a line"},
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON object"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n < 1) return nb_usage_error(c, "a model, folder or tokenizer file is needed");
    nb_error err = {0};
    nb_text_model m = {0};
    nb_ids v = {0};
    nb_buf out = {0}, piece = {0};
    nb_decode_stream *ds = NULL;
    nb_status st = collect_ids(n - 1, argv + 1, &v, &err);
    if (st == NB_OK) st = nb_text_model_open(&m, argv[0], &err);
    if (st == NB_OK) st = nb_network_need_tokenizer(m.net, &err);
    if (st == NB_OK && stream) {
        ds = nb_decode_stream_new(m.net->tokenizer, skip);
        if (!ds) st = nb_fail(&err, NB_E_NO_MEMORY, "no memory for a decode stream");
        for (size_t i = 0; st == NB_OK && i <= v.n; i++) {
            piece.n = 0;
            st = i < v.n ? nb_decode_stream_push(ds, v.id[i], &piece, &err) : nb_decode_stream_flush(ds, &piece, &err);
            nb_json_write_string(&out, nb_buf_str(&piece), NB_JSON_COMPACT);
            nb_buf_add_char(&out, '\n');
        }
    } else if (st == NB_OK) {
        st = nb_tokenizer_decode(m.net->tokenizer, v.id, v.n, skip, &piece, &err);
        if (json) {
            nb_buf_add_cstr(&out, "{\"text\":");
            nb_json_write_string(&out, nb_buf_str(&piece), NB_JSON_COMPACT);
            nb_buf_add_cstr(&out, "}\n");
        } else {
            if (nb_term_is_tty(STDOUT_FILENO))
                nb_term_clean(&out, nb_buf_str(&piece), true);
            else
                nb_buf_add_str(&out, nb_buf_str(&piece));
            nb_buf_add_char(&out, '\n');
        }
    }
    if (st == NB_OK && out.n) fwrite(out.p, 1, out.n, stdout);
    nb_decode_stream_free(ds);
    nb_ids_free(&v);
    nb_buf_free(&out);
    nb_buf_free(&piece);
    nb_text_model_close(&m);
    return st == NB_OK ? 0 : nb_report(&err);
}
