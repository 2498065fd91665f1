/* create/source: the inventory of a hub directory. Headers and small files only; nothing here reads a weight.
 * specs/create.md 1. */
#include "base/file.h"
#include "create/plan.h"
#include "model/model.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CONFIG (64u << 20)

static int by_name(const void *a, const void *b)
{
    return nb_str_cmp(((const nb_src_tensor *)a)->name, ((const nb_src_tensor *)b)->name);
}

nb_status nb_source_index(nb_job *j, nb_source *s, nb_error *err)
{
    if (s->n) qsort(s->t, s->n, sizeof *s->t, by_name);
    if (!nb_map_init(&s->by_name, s->n + 1))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory for %zu tensor names", s->n);
    for (size_t i = 0; i < s->n; i++) {
        bool had = false;
        uint32_t old = 0;
        if (!nb_map_put(&s->by_name, s->t[i].name, (uint32_t)i, &had, &old))
            return nb_fail(err, NB_E_NO_MEMORY, "out of memory for tensor names");
        if (had)
            return nb_fail(err, NB_E_INVALID, "tensor %.*s appears in both %s and %s (E_DUP_TENSOR)",
                           NB_FMT_STR(s->t[i].name), s->files[s->t[old].file].path, s->files[s->t[i].file].path);
        s->bytes += s->t[i].len;
    }
    (void)j;
    return NB_OK;
}

nb_src_tensor *nb_source_find(const nb_source *s, nb_str name)
{
    uint32_t i;
    return nb_map_get(&s->by_name, name, &i) ? &s->t[i] : NULL;
}

nb_src_tensor *nb_source_findf(const nb_source *s, const char *fmt, ...)
{
    char name[1200];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof name) return NULL;
    return nb_source_find(s, (nb_str){name, (size_t)n});
}

/* Opens a file of the source and keeps its identity, so that a change during the import is noticed. */
nb_status nb_source_add_file(nb_job *j, nb_source *s, const char *path, nb_error *err)
{
    nb_src_file *f = &s->files[s->n_files];
    int fd = -1;
    uint64_t size = 0;
    nb_status st = nb_file_open(&fd, &size, path, err);
    if (st != NB_OK) return st;
    struct stat sb;
    if (fstat(fd, &sb) != 0) {
        st = nb_fail_errno(err, errno, "%s", path);
        close(fd);
        return st;
    }
    f->path = nb_arena_dup(j->arena, path, strlen(path));
    f->fd = fd;
    f->size = size;
    f->ino = (uint64_t)sb.st_ino;
    f->dev = (uint64_t)sb.st_dev;
    f->mtime_ns = (int64_t)sb.st_mtim.tv_sec * 1000000000 + sb.st_mtim.tv_nsec;
    f->ctime_ns = (int64_t)sb.st_ctim.tv_sec * 1000000000 + sb.st_ctim.tv_nsec;
    s->n_files++;
    return f->path ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

nb_status nb_source_unchanged(const nb_source *s, nb_error *err)
{
    for (size_t i = 0; i < s->n_files; i++) {
        const nb_src_file *f = &s->files[i];
        struct stat open_file, named;
        if (fstat(f->fd, &open_file) != 0 || stat(f->path, &named) != 0)
            return nb_fail(err, NB_E_INVALID, "%s changed while importing (E_SOURCE_CHANGED)", f->path);
        int64_t mtime = (int64_t)open_file.st_mtim.tv_sec * 1000000000 + open_file.st_mtim.tv_nsec;
        if ((uint64_t)open_file.st_size != f->size || mtime != f->mtime_ns || (uint64_t)named.st_ino != f->ino ||
            (uint64_t)named.st_dev != f->dev)
            return nb_fail(err, NB_E_INVALID, "%s changed while importing (E_SOURCE_CHANGED)", f->path);
    }
    return NB_OK;
}

void nb_source_close(nb_source *s)
{
    for (size_t i = 0; i < s->n_files; i++)
        if (s->files[i].fd >= 0) close(s->files[i].fd);
    s->n_files = 0;
    nb_map_free(&s->by_name);
    nb_json_free(&s->config);
    nb_json_free(&s->generation);
    nb_json_free(&s->hf_quant);
    nb_json_free(&s->quantize);
    if (s->gguf) nb_gguf_free(&s->gguf_file);
}

nb_status nb_source_read(const nb_source *s, const nb_src_tensor *t, uint64_t off, size_t n, void *dst, nb_error *err)
{
    const nb_src_file *f = &s->files[t->file];
    if (off > t->len || n > t->len - off)
        return nb_fail(err, NB_E_INVALID, "%s: tensor %.*s: bytes %llu+%zu lie outside its %llu (E_ST_RANGE)", f->path,
                       NB_FMT_STR(t->name), (unsigned long long)off, n, (unsigned long long)t->len);
    return nb_pread_full(f->fd, dst, n, t->off + off, f->path, err);
}

nb_status nb_source_floats(nb_job *j, const nb_source *s, const nb_src_tensor *t, uint64_t limit, float **out,
                           uint64_t *count, nb_error *err)
{
    int bits = nb_dtype_bits(t->dtype);
    uint64_t n = bits >= 8 ? t->len / ((uint64_t)bits / 8) : 0;
    if (!n || n > limit)
        return nb_fail(err, NB_E_INVALID, "tensor %.*s: %llu elements of %s where up to %llu floats were expected",
                       NB_FMT_STR(t->name), (unsigned long long)n, nb_dtype_name(t->dtype), (unsigned long long)limit);
    nb_buf raw = {0};
    nb_status st = NB_OK;
    *out = NB_NEW_N(j->arena, float, n);
    if (!*out || !nb_buf_reserve(&raw, t->len))
        st = nb_fail(err, NB_E_NO_MEMORY, "out of memory for tensor %.*s", NB_FMT_STR(t->name));
    if (st == NB_OK) st = nb_source_read(s, t, 0, t->len, raw.p, err);
    if (st == NB_OK && !nb_floats_decode(t->dtype, raw.p, n, *out))
        st = nb_fail(err, NB_E_INVALID, "tensor %.*s: dtype %s where floats were expected (E_DTYPE_UNSUPPORTED)",
                     NB_FMT_STR(t->name), nb_dtype_name(t->dtype));
    *count = n;
    nb_buf_free(&raw);
    return st;
}

bool nb_source_add_config(nb_job *j, nb_source *s, nb_str name, const char *media, nb_str bytes)
{
    nb_src_config *grown = NB_NEW_N(j->arena, nb_src_config, s->n_configs + 1);
    if (!grown) return false;
    if (s->n_configs) memcpy(grown, s->configs, s->n_configs * sizeof *grown);
    grown[s->n_configs] = (nb_src_config){.name = nb_arena_str(j->arena, name), .media_type = media, .bytes = bytes};
    s->configs = grown;
    s->n_configs++;
    return grown[s->n_configs - 1].name.p != NULL;
}

/* ---- config files ---- */

static nb_status read_text(nb_job *j, const char *path, nb_str *out, nb_error *err)
{
    nb_buf b = {0};
    nb_status st = nb_file_read(&b, path, MAX_CONFIG, err);
    if (st == NB_OK) {
        *out = (nb_str){nb_arena_dup(j->arena, b.p ? b.p : "", b.n), b.n};
        if (!out->p) st = nb_fail(err, NB_E_NO_MEMORY, "out of memory reading %s", path);
    }
    nb_buf_free(&b);
    return st;
}

static const char *media_of(const char *name)
{
    static const char *const texts[] = {"chat_template.jinja", "merges.txt", "tokenizer.model", "tiktoken.model",
                                        "vocab.txt"};
    size_t n = strlen(name);
    if (n > 11 && !strcmp(name + n - 11, ".index.json")) return NULL;
    if (n > 5 && !strcmp(name + n - 5, ".json")) return NB_MEDIA_JSON;
    for (size_t i = 0; i < NB_COUNT(texts); i++)
        if (!strcmp(name, texts[i])) return NB_MEDIA_TEXT;
    if (nb_str_ends(nb_str_of(name), ".tiktoken") && name[0] != '.') return NB_MEDIA_TEXT;
    if (!strncmp(name, NB_TEXT_ADDITIONAL, sizeof NB_TEXT_ADDITIONAL - 1)) return NB_MEDIA_TEXT;
    return !strncmp(name, "LICENSE", 7) ? NB_MEDIA_LICENSE : NULL;
}

static int config_name_cmp(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Every config file of the top level, sorted by byte value. Links are followed to regular files only. */
static nb_status read_configs(nb_job *j, nb_source *s, bool *has_bin, nb_error *err)
{
    char *names[4096];
    size_t n = 0;
    DIR *d = opendir(s->dir);
    if (!d) return nb_fail_errno(err, errno, "%s", s->dir);
    for (struct dirent *e; (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len > 4 && !strcmp(e->d_name + len - 4, ".bin")) *has_bin = true;
        if (!media_of(e->d_name) || n == NB_COUNT(names)) continue;
        names[n] = nb_arena_dup(j->arena, e->d_name, len);
        if (!names[n++]) break;
    }
    closedir(d);
    size_t more = 0;
    char **templates = nb_text_additional(s->dir, j->arena, &more, err);
    if (!templates) return NB_E_NO_MEMORY;
    for (size_t i = 0; i < more && n < NB_COUNT(names); i++) names[n++] = templates[i];
    if (n) qsort(names, n, sizeof *names, config_name_cmp);
    for (size_t i = 0; i < n; i++) {
        char *path = nb_arena_printf(j->arena, "%s/%s", s->dir, names[i]);
        struct stat sb;
        if (!path) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
        if (stat(path, &sb) != 0 || !S_ISREG(sb.st_mode)) continue;
        nb_str bytes;
        nb_status st = read_text(j, path, &bytes, err);
        if (st != NB_OK) return st;
        if (!nb_source_add_config(j, s, nb_str_of(names[i]), media_of(names[i]), bytes))
            return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    }
    return NB_OK;
}

static nb_status parse_config(nb_source *s, const char *name, nb_json_doc *doc, nb_error *err)
{
    for (size_t i = 0; i < s->n_configs; i++) {
        if (!nb_str_is(s->configs[i].name, name)) continue;
        nb_status st = nb_json_parse(doc, s->configs[i].bytes.p, s->configs[i].bytes.n, name, NULL, err);
        if (st == NB_E_INVALID && err) {
            nb_error why = *err;
            return nb_fail(err, st, "%s (E_CONFIG)", why.text);
        }
        if (st == NB_OK && doc->root->type != NB_JSON_OBJECT)
            st = nb_fail(err, NB_E_INVALID, "%s: not a JSON object (E_CONFIG)", name);
        return st;
    }
    return NB_OK;
}

static void add_quant(nb_source *s, const nb_json *q, const char *file)
{
    if (!nb_json_is(q, NB_JSON_OBJECT) || s->n_quant == NB_COUNT(s->quant)) return;
    s->quant_file[s->n_quant] = file;
    s->quant[s->n_quant++] = q;
}

/* Quantisation objects in the order of specs/create.md 1.2. */
static void find_quant(nb_source *s)
{
    static const char *const roots[] = {"", "text_config.", "language_config.", "llm_config."};
    static const char *const keys[] = {"quantization", "quantization_config", "compression_config"};
    for (size_t r = 0; r < NB_COUNT(roots); r++)
        for (size_t k = 0; k < NB_COUNT(keys); k++) {
            char path[64];
            snprintf(path, sizeof path, "%s%s", roots[r], keys[k]);
            const nb_json *q = nb_json_path(s->config.root, path);
            if (s->n_quant + 2 < NB_COUNT(s->quant)) add_quant(s, q, "config.json");
        }
    add_quant(s, nb_json_get(s->hf_quant.root, "quantization"), "hf_quant_config.json");
    /* GPTQ and AWQ: may be the only place that says anything */
    add_quant(s, s->quantize.root, s->quantize_file);
}

/* ---- shards ---- */

static nb_status add_tensor(nb_job *j, nb_source *s, size_t *cap, const nb_st_tensor *t, uint32_t file, nb_error *err)
{
    if (!nb_arena_grow(j->arena, &s->t, s->n, cap, sizeof *s->t, 1024))
        return nb_fail(err, NB_E_NO_MEMORY, "out of memory for more than %zu tensors", s->n);
    nb_src_tensor *d = &s->t[s->n++];
    *d = (nb_src_tensor){.name = nb_arena_str(j->arena, t->name),
                         .dtype = t->dtype,
                         .rank = t->rank,
                         .file = file,
                         .off = t->off,
                         .len = t->len};
    memcpy(d->dim, t->dim, sizeof d->dim);
    return d->name.p ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

/* Takes the tensors of one shard, as far as the index maps them to it. */
static nb_status take_shard(nb_job *j, nb_source *s, const nb_st_shards *sh, size_t i, size_t *cap, uint32_t *ignored,
                            nb_error *err)
{
    const char *path = nb_arena_printf(j->arena, "%s/%.*s", s->dir, NB_FMT_STR(sh->files[i]));
    if (!path) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    nb_status st = nb_source_add_file(j, s, path, err);
    if (st != NB_OK) return st;
    nb_st_file f = {0};
    st = nb_st_read(&f, s->files[i].fd, s->files[i].size, path, 0, err);
    if (st != NB_OK) return st;
    if (f.has_holes) nb_job_warn(j, sh->files[i], "the data section has holes (E_ST_HOLE)");
    for (size_t k = 0; k < f.n && st == NB_OK; k++) {
        const nb_json *mapped = sh->weight_map ? nb_json_get_str(sh->weight_map, f.tensors[k].name) : NULL;
        if (sh->weight_map && !mapped) {
            (*ignored)++;
            continue;
        }
        if (mapped && !nb_str_eq(mapped->text, sh->files[i]))
            st = nb_fail(err, NB_E_INVALID, "tensor %.*s is indexed in %.*s but stored in %.*s (E_INDEX_MISMATCH)",
                         NB_FMT_STR(f.tensors[k].name), NB_FMT_STR(mapped->text), NB_FMT_STR(sh->files[i]));
        else
            st = add_tensor(j, s, cap, &f.tensors[k], (uint32_t)i, err);
    }
    nb_st_free(&f);
    return st;
}

static nb_status read_shards(nb_job *j, nb_source *s, nb_error *err)
{
    nb_st_shards sh = {0};
    size_t cap = 0;
    uint32_t ignored = 0;
    nb_status st = nb_st_shards_find(&sh, s->dir, err);
    if (st != NB_OK) goto out;
    struct rlimit fds;
    if (getrlimit(RLIMIT_NOFILE, &fds) == 0 && fds.rlim_cur != RLIM_INFINITY && sh.n + 64 > fds.rlim_cur) {
        st = nb_fail(err, NB_E_IO, "%s: %zu shards need more open files than the limit of %llu (ulimit -n)", s->dir,
                     sh.n, (unsigned long long)fds.rlim_cur);
        goto out;
    }
    s->files = NB_NEW_N(j->arena, nb_src_file, sh.n + 1);
    if (!s->files) st = nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < sh.n && st == NB_OK; i++) {
        st = take_shard(j, s, &sh, i, &cap, &ignored, err);
        nb_job_progress(j, NB_CREATE_READING, "headers", i + 1, sh.n, 0, 0);
        if (st == NB_OK && nb_job_cancelled(j)) st = nb_fail(err, NB_E_CANCELLED, "cancelled while reading headers");
    }
    if (st == NB_OK) st = nb_source_index(j, s, err);
    for (uint32_t i = 0; st == NB_OK && sh.weight_map && i < sh.weight_map->count; i++)
        if (!nb_source_find(s, sh.weight_map->keys[i]))
            st = nb_fail(err, NB_E_INVALID,
                         "incomplete source: tensor %.*s is listed in %.*s, which does not hold it (E_INCOMPLETE)",
                         NB_FMT_STR(sh.weight_map->keys[i]), NB_FMT_STR(sh.weight_map->items[i].text));
    if (st == NB_OK && !s->n) st = nb_fail(err, NB_E_INVALID, "no tensors found in %s (E_NO_WEIGHTS)", s->dir);
    if (st == NB_OK && ignored)
        nb_job_warn(j, (nb_str){0}, "%u tensors that the index does not name were ignored", ignored);
    uint64_t total;
    if (st == NB_OK && nb_json_u64(nb_json_path(sh.index.root, "metadata.total_size"), &total) && total != s->bytes)
        nb_job_warn(j, (nb_str){0}, "the index gives a total size of %llu bytes, the tensors have %llu",
                    (unsigned long long)total, (unsigned long long)s->bytes);
out:
    nb_st_shards_free(&sh);
    return st;
}

/* A path that names a file gives its folder, if it is a safetensors file. */
static nb_status resolve_dir(nb_job *j, nb_source *s, const char *path, nb_error *err)
{
    struct stat sb;
    if (stat(path, &sb) != 0) return nb_fail_errno(err, errno, "%s", path);
    s->path = s->dir = path;
    if (S_ISDIR(sb.st_mode)) return NB_OK;
    size_t n = strlen(path);
    if (!S_ISREG(sb.st_mode) || n < 12 || strcmp(path + n - 12, ".safetensors"))
        return nb_fail(err, NB_E_INVALID,
                       "%s is neither a model directory nor a .safetensors or GGUF file (E_NOT_MODEL_DIR)", path);
    const char *slash = strrchr(path, '/');
    s->dir = slash ? slash == path ? "/" : nb_arena_dup(j->arena, path, (size_t)(slash - path)) : ".";
    return s->dir ? NB_OK : nb_fail(err, NB_E_NO_MEMORY, "out of memory");
}

nb_status nb_source_open(nb_job *j, nb_source *s, const char *path, nb_error *err)
{
    bool has_bin = false;
    nb_json_doc tokenizer_config = {0};
    nb_status st = resolve_dir(j, s, path, err);
    if (st == NB_OK) st = read_configs(j, s, &has_bin, err);
    if (st == NB_OK) st = parse_config(s, "config.json", &s->config, err);
    if (st == NB_OK && !s->config.root)
        st =
            nb_fail(err, NB_E_INVALID,
                    "%s is not a safetensors model directory (needs config.json and *.safetensors)%s (E_NOT_MODEL_DIR)",
                    s->dir, has_bin ? "; found a .bin file: convert it to safetensors first" : "");
    if (st == NB_OK) st = parse_config(s, "generation_config.json", &s->generation, err);
    if (st == NB_OK) st = parse_config(s, "tokenizer_config.json", &tokenizer_config, err);
    if (st == NB_OK) st = parse_config(s, "hf_quant_config.json", &s->hf_quant, err);
    s->quantize_file = "quantize_config.json";
    if (st == NB_OK) st = parse_config(s, s->quantize_file, &s->quantize, err);
    if (st == NB_OK && !s->quantize.root)
        st = parse_config(s, s->quantize_file = "quant_config.json", &s->quantize, err);
    nb_json_free(&tokenizer_config);
    if (st != NB_OK) return st;
    if (s->config.duplicate_keys)
        nb_job_warn(j, NB_LIT("config.json"), "%u duplicate keys: the last one counts", s->config.duplicate_keys);
    find_quant(s);
    return read_shards(j, s, err);
}
