/* The text side of a checkpoint on the disk: the files of a folder, one of its files with those beside it, or what the
 * metadata of a GGUF file holds. */
#include "format/gguf.h"
#include "model/load.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_ADDITIONAL 256

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_E_NO_MEMORY, "out of memory for tokenizer and templates");
}

/* ---- GGUF ---- */

/* tokenizer.ggml.* as one object without the prefix. *bytes.p NULL: there is no tokenizer. */
static nb_status gguf_tokenizer(const nb_json *meta, nb_arena *a, nb_str *bytes, nb_error *err)
{
    static const char prefix[] = "tokenizer.ggml.";
    nb_json *tok = nb_json_new(a, NB_JSON_OBJECT);
    nb_buf out = {0};
    *bytes = (nb_str){0};
    for (uint32_t i = 0; tok && meta && i < meta->count; i++) {
        nb_str key = meta->keys[i];
        if (!nb_str_starts(key, prefix)) continue;
        key = (nb_str){key.p + sizeof prefix - 1, key.n - (sizeof prefix - 1)};
        if (!nb_json_set(a, tok, key, &meta->items[i])) return no_memory(err);
    }
    if (!tok) return no_memory(err);
    if (!nb_json_get(tok, "tokens")) return NB_OK;
    nb_json_write(&out, tok, NB_JSON_COMPACT);
    if (!out.oom) *bytes = nb_arena_str(a, nb_buf_str(&out));
    nb_buf_free(&out);
    return bytes->p ? NB_OK : no_memory(err);
}

nb_status nb_text_gguf(const nb_json *meta, nb_arena *a, nb_text_file **files, size_t *n, nb_error *err)
{
    static const char plain[] = "tokenizer.chat_template", named[] = "tokenizer.chat_template.";
    nb_str bytes, text;
    size_t cap = meta ? meta->count + 1 : 1;
    *n = 0;
    *files = NB_NEW_N(a, nb_text_file, cap);
    if (!*files) return no_memory(err);
    nb_status s = gguf_tokenizer(meta, a, &bytes, err);
    if (s == NB_OK && bytes.p) (*files)[(*n)++] = (nb_text_file){NB_LIT("gguf_tokenizer.json"), bytes};
    for (uint32_t i = 0; s == NB_OK && meta && i < meta->count; i++) {
        nb_str key = meta->keys[i];
        bool one = nb_str_is(key, plain), other = nb_str_starts(key, named) && key.n >= sizeof named;
        if (!(one || other) || !nb_json_str(&meta->items[i], &text) || !text.n) continue;
        nb_str rest = {key.p + sizeof named - 1, other ? key.n - (sizeof named - 1) : 0};
        if (other && (memchr(rest.p, '/', rest.n) || rest.p[0] == '.')) continue; /* it becomes the name of a file */
        char *name = one ? nb_arena_dup(a, "chat_template.jinja", 19)
                         : nb_arena_printf(a, NB_TEXT_ADDITIONAL "%.*s.jinja", NB_FMT_STR(rest));
        if (!name) return no_memory(err);
        (*files)[(*n)++] = (nb_text_file){nb_str_of(name), text};
    }
    return s;
}

static nb_status from_gguf(nb_network **out, const char *path, nb_error *err)
{
    nb_gguf g = {0};
    nb_text_file *files = NULL;
    size_t n = 0;
    int fd = -1;
    uint64_t size;
    nb_status s = nb_file_open(&fd, &size, path, err);
    if (s == NB_OK) s = nb_gguf_read(&g, fd, size, path, err);
    nb_mapped closing = {.fd = fd};
    nb_file_close(&closing);
    if (s == NB_OK) s = nb_text_gguf(g.meta, g.arena, &files, &n, err);
    if (s == NB_OK) s = nb_network_from_files(out, files, n, err);
    nb_gguf_free(&g);
    return s;
}

/* ---- folders ---- */

typedef struct folder {
    nb_arena *a;
    const char *dir;
    nb_text_files f;
    size_t cap;
} folder;

static nb_status add_file(folder *d, const char *name, const char *path, nb_error *err)
{
    if (d->f.n == d->cap) return nb_fail(err, NB_E_INVALID, "%s: more than %zu templates", d->dir, d->cap);
    nb_mapped *m = &d->f.map[d->f.n];
    nb_status s = nb_file_map(m, path, UINT64_MAX, err);
    if (s != NB_OK) return s;
    nb_file_close(m);
    d->f.v[d->f.n++] = (nb_text_file){nb_str_of(name), {m->p ? (const char *)m->p : "", m->n}};
    return NB_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The files of a folder below dir ("" or ending in a slash) with this ending, sorted, the folder before their names. */
static char **list_files(const char *dir, const char *below, const char *ending, nb_arena *a, size_t *n, nb_error *err)
{
    char **names = NB_NEW_N(a, char *, MAX_ADDITIONAL), *path = nb_arena_printf(a, "%s/%s", dir, below);
    *n = 0;
    if (!names || !path) {
        no_memory(err);
        return NULL;
    }
    DIR *list = opendir(path);
    for (struct dirent *e; list && *n < MAX_ADDITIONAL && (e = readdir(list));) {
        if (e->d_name[0] == '.' || !nb_str_ends(nb_str_of(e->d_name), ending)) continue;
        if ((names[*n] = nb_arena_printf(a, "%s%s", below, e->d_name))) (*n)++;
    }
    if (list) closedir(list);
    if (*n) qsort(names, *n, sizeof *names, by_name);
    return names;
}

char **nb_text_additional(const char *dir, nb_arena *a, size_t *n, nb_error *err)
{
    return list_files(dir, NB_TEXT_ADDITIONAL, ".jinja", a, n, err);
}

static nb_status add_files(folder *d, char **names, size_t n, nb_error *err)
{
    nb_status s = names ? NB_OK : NB_E_NO_MEMORY;
    for (size_t i = 0; s == NB_OK && i < n; i++) {
        char *path = nb_arena_printf(d->a, "%s/%s", d->dir, names[i]);
        s = path ? add_file(d, names[i], path, err) : no_memory(err);
    }
    return s;
}

/* Ranks under any name; tiktoken.model is among the fixed ones. */
static nb_status add_ranks(folder *d, nb_error *err)
{
    size_t n;
    char **names = list_files(d->dir, "", ".tiktoken", d->a, &n, err);
    return add_files(d, names, n, err);
}

/* Files of the folder that belong to the text side; skip: sources of a tokenizer are passed over. */
static nb_status read_folder(folder *d, bool skip, nb_error *err)
{
    const char *const *names = nb_text_file_names();
    nb_status s = skip ? NB_OK : add_ranks(d, err);
    for (; *names && s == NB_OK; names++) {
        char *path = nb_arena_printf(d->a, "%s/%s", d->dir, *names);
        if (!path) return no_memory(err);
        if (nb_path_exists(path) && !(skip && nb_text_is_source(*names))) s = add_file(d, *names, path, err);
    }
    size_t n = 0;
    char **more = s == NB_OK ? nb_text_additional(d->dir, d->a, &n, err) : NULL;
    return s == NB_OK ? add_files(d, more, n, err) : s;
}

/* The name under which a single file is read: its own if it is one of ours, else by its ending. */
static const char *known_name(const char *base)
{
    nb_str name = nb_str_of(base);
    if (nb_text_is_source(base)) return base;
    if (nb_str_ends(name, ".model")) return "tokenizer.model";
    return nb_str_ends(name, ".json") ? "tokenizer.json" : NULL;
}

/* vocab.json alone is none: merges.txt belongs to it. */
static nb_status read_file(folder *d, const char *path, nb_error *err)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *name = known_name(base);
    d->dir = !slash ? "." : slash == path ? "/" : nb_arena_dup(d->a, path, (size_t)(slash - path));
    if (!d->dir) return no_memory(err);
    if (!nb_path_exists(path)) return nb_fail(err, NB_E_NOT_FOUND, "%s: no such file or folder", path);
    if (!name)
        return nb_fail(err, NB_E_INVALID,
                       "%s is neither a folder nor a tokenizer (.json, .model, .tiktoken or GGUF file)", path);
    nb_status s = add_file(d, name, path, err);
    if (s == NB_OK && !strcmp(name, "vocab.json")) {
        char *merges = nb_arena_printf(d->a, "%s/merges.txt", d->dir);
        s = merges ? add_file(d, "merges.txt", merges, err) : no_memory(err);
    }
    return s == NB_OK ? read_folder(d, true, err) : s;
}

static bool is_gguf(const char *path)
{
    nb_mapped m;
    if (nb_file_map(&m, path, UINT64_MAX, NULL) != NB_OK) return false;
    bool yes = m.n >= 4 && memcmp(m.p, "GGUF", 4) == 0;
    nb_file_unmap(&m);
    return yes;
}

nb_status nb_network_from_path(nb_network **out, const char *path, nb_error *err)
{
    *out = NULL;
    if (is_gguf(path)) return from_gguf(out, path, err);
    folder d = {.a = nb_arena_new(0), .dir = path, .cap = MAX_ADDITIONAL + 32};
    if (d.a) d.f.v = NB_NEW_N(d.a, nb_text_file, d.cap), d.f.map = NB_NEW_N(d.a, nb_mapped, d.cap);
    nb_status s = d.a && d.f.v && d.f.map ? NB_OK : no_memory(err);
    if (s == NB_OK) s = nb_path_is_dir(path) ? read_folder(&d, false, err) : read_file(&d, path, err);
    if (s == NB_OK && !d.f.n) s = nb_fail(err, NB_E_NOT_FOUND, "%s has neither tokenizer nor chat template", path);
    if (s == NB_OK) {
        s = nb_network_from_files(out, d.f.v, d.f.n, err);
        if (s != NB_OK) nb_error_prefix(err, "%s", d.dir);
    }
    nb_text_files_unmap(&d.f);
    nb_arena_free(d.a);
    return s;
}
