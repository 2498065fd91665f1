/* Manifests: reading one with suspicion, writing one, and pointing a name at it. */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

enum { MANIFEST_MAX = 64 << 20 };
static const char media_manifest[] = "application/vnd.docker.distribution.manifest.v2+json";

/* ---- finding ---- */

/* realpath of ROOT/sub, malloc; NULL when it does not exist. */
static char *real_sub(const nb_store *s, const char *sub)
{
    char *path = nb_store_path(s, "%s", sub);
    char *real = path ? realpath(path, NULL) : NULL;
    free(path);
    return real;
}

/* Where a link leads must be ROOT/blobs/sha256-<hex> itself; where a regular file lies must be inside ROOT/sub.
 * Everything is compared after all symbolic links are followed. hex is set for a link and empty for a file. real: the
 * file that was checked, malloc: another importer may move the name to another file at any moment. */
static nb_status check_place(const nb_store *s, const char *path, const char *sub, bool link, char hex[65], char **real,
                             nb_error *err)
{
    char *base = real_sub(s, link ? "blobs" : sub);
    nb_status st = NB_OK;
    hex[0] = '\0';
    *real = realpath(path, NULL);
    if (!*real || !base) {
        /* Removed while we looked, or dangling? */
        struct stat info;
        bool gone = lstat(path, &info) != 0 && errno == ENOENT;
        st = nb_fail(err, gone ? NB_E_NOT_FOUND : NB_E_INVALID, "%s: leads to nothing", path);
        goto out;
    }
    size_t n = strlen(base);
    bool inside = strncmp(*real, base, n) == 0 && (*real)[n] == '/';
    bool ok = inside && (!link || (nb_digest_parse(nb_str_of(*real + n + 1), hex) && (*real)[n + 7] == '-'));
    if (!ok) st = nb_fail(err, NB_E_INVALID, "%s: leads out of the store", path);
out:
    free(base);
    return st;
}

/* Reads the file that a name stands for at this moment. hex: its digest. */
static nb_status load_once(const nb_store *s, const char *path, const char *sub, nb_buf *text, char hex[65],
                           nb_error *err)
{
    struct stat info;
    char wanted[65], *real = NULL;
    if (lstat(path, &info) != 0) return nb_fail_errno(err, errno, "%s", path);
    nb_status st = check_place(s, path, sub, S_ISLNK(info.st_mode), wanted, &real, err);
    if (!st) st = nb_file_read(text, real, MANIFEST_MAX, err);
    free(real);
    if (st) return st;
    nb_sha256_hex(text->p, text->n, hex);
    if (wanted[0] && strcmp(wanted, hex) != 0)
        return nb_fail(err, NB_E_INVALID, "%s: the manifest's bytes do not match its digest", path);
    return NB_OK;
}

/* Where a link leads, as text; empty for what is no link. */
static void link_text(const char *path, char text[PATH_MAX])
{
    ssize_t n = readlink(path, text, PATH_MAX - 1);
    text[n > 0 ? n : 0] = '\0';
}

/* The same for a name that others move: a manifest that was replaced while it was read may be collected before its bytes
 * are here, and then the name's new one is read. */
static nb_status load(const nb_store *s, const char *path, const char *sub, nb_buf *text, char hex[65], nb_error *err)
{
    char before[PATH_MAX], after[PATH_MAX];
    nb_status st = NB_OK;
    for (int attempt = 0; attempt < 16; attempt++) {
        link_text(path, before);
        text->n = 0;
        st = load_once(s, path, sub, text, hex, err);
        if (!st) break;
        link_text(path, after);
        if (strcmp(before, after) == 0) break;
    }
    return st;
}

/* A name without a host is Ollama's registry in Ollama's store. */
static nb_name in_store(const nb_store *s, const nb_name *n)
{
    nb_name m = *n;
    if (s->foreign && strcmp(m.host, "local") == 0) snprintf(m.host, sizeof m.host, "%s", NB_LEGACY_HOST);
    return m;
}

static nb_status find(const nb_store *s, const nb_name *name, nb_buf *text, char hex[65], nb_error *err)
{
    static const char *const sub[] = {"manifests-v2", "manifests"};
    nb_name n = in_store(s, name);
    nb_status st = NB_E_NOT_FOUND;
    for (size_t i = 0; i < (s->foreign ? 2u : 1u) && st == NB_E_NOT_FOUND; i++) {
        char *path = nb_store_path(s, "%s/%s/%s/%s/%s", sub[i], n.host, n.ns, n.model, n.tag);
        st = path ? load(s, path, sub[i], text, hex, err) : nb_store_no_memory(err);
        free(path);
    }
    if (st == NB_E_NOT_FOUND) {
        char shown[340];
        nb_name_text(name, shown);
        nb_fail(err, st, "model '%s' not found in %s", shown, s->root);
    }
    return st;
}

/* ---- reading ---- */

/* Layer names become labels, and some callers make paths of them. */
static bool good_layer_name(nb_str s)
{
    if (s.n > 1024 || (s.n && s.p[0] == '/') || nb_utf8_valid_prefix(s.p, s.n) != s.n) return false;
    for (size_t i = 0, start = 0; i <= s.n; i++) {
        if (i < s.n && ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f || s.p[i] == '\\')) return false;
        if (i < s.n && s.p[i] != '/') continue;
        if (i - start == 2 && s.p[start] == '.' && s.p[start + 1] == '.') return false;
        start = i + 1;
    }
    return true;
}

static nb_status read_layer(const nb_json *v, nb_layer *l, const char *what, size_t i, nb_error *err)
{
    nb_str digest;
    const nb_json *name = nb_json_get(v, "name");
    if (!nb_json_str(nb_json_get(v, "mediaType"), &l->media_type)) {
        return nb_fail(err, NB_E_INVALID, "%s %zu: mediaType is missing or no text", what, i);
    }
    if (!nb_json_str(nb_json_get(v, "digest"), &digest) || !nb_digest_parse(digest, l->hex)) {
        return nb_fail(err, NB_E_INVALID, "%s %zu: digest is not sha256:<64 hexadecimal digits>", what, i);
    }
    if (!nb_json_u64(nb_json_get(v, "size"), &l->size) || l->size > INT64_MAX) {
        return nb_fail(err, NB_E_INVALID, "%s %zu: size is missing or no byte count", what, i);
    }
    if (nb_json_present(name) && (!nb_json_str(name, &l->name) || !good_layer_name(l->name))) {
        return nb_fail(err, NB_E_INVALID, "%s %zu: name is not usable", what, i);
    }
    return NB_OK;
}

static nb_status read_layers(nb_manifest *m, const nb_json *layers, nb_error *err)
{
    nb_map names;
    if (!nb_map_init(&names, layers->count)) return nb_store_no_memory(err);
    nb_status st = NB_OK;
    m->n_layers = layers->count;
    m->layers = NB_NEW_N(m->arena, nb_layer, m->n_layers);
    if (!m->layers) st = nb_store_no_memory(err);
    for (size_t i = 0; i < m->n_layers && !st; i++) {
        nb_layer *l = &m->layers[i];
        bool had = false;
        st = read_layer(&layers->items[i], l, "layer", i, err);
        if (!st && l->name.n && !nb_map_put(&names, l->name, (uint32_t)i, &had, NULL)) st = nb_store_no_memory(err);
        if (had) st = nb_fail(err, NB_E_INVALID, "layer %zu: name '%.*s' occurs twice", i, NB_FMT_STR(l->name));
    }
    nb_map_free(&names);
    return st;
}

static nb_status read_document(nb_manifest *m, nb_error *err)
{
    const nb_json *root = m->doc.root, *layers = nb_json_get(root, "layers"), *config = nb_json_get(root, "config");
    uint64_t version;
    if (nb_json_is(nb_json_get(root, "manifests"), NB_JSON_ARRAY)) {
        return nb_fail(err, NB_E_UNSUPPORTED, "it is a manifest list");
    }
    if (!nb_json_u64(nb_json_get(root, "schemaVersion"), &version) || version != 2) {
        return nb_fail(err, NB_E_INVALID, "schemaVersion is not 2");
    }
    if (!nb_json_is(layers, NB_JSON_ARRAY)) return nb_fail(err, NB_E_INVALID, "layers is not an array");
    if (!nb_json_is(config, NB_JSON_OBJECT)) return nb_fail(err, NB_E_INVALID, "config is not an object");
    nb_status st = read_layer(config, &m->config, "config", 0, err);
    return st ? st : read_layers(m, layers, err);
}

nb_status nb_manifest_parse(nb_manifest *m, nb_str text, nb_error *err)
{
    m->arena = nb_arena_new(0);
    if (!m->arena) return nb_store_no_memory(err);
    const nb_json_limits limits = {.max_bytes = MANIFEST_MAX, .flags = NB_JSON_COPY | NB_JSON_UNIQUE_KEYS};
    nb_status st = nb_json_parse(&m->doc, text.p, text.n, "manifest", &limits, err);
    return st ? st : read_document(m, err);
}

nb_status nb_manifest_read(nb_store *s, const nb_name *name, nb_manifest *m, nb_error *err)
{
    *m = (nb_manifest){0};
    nb_buf text = {0};
    nb_status st = find(s, name, &text, m->hex, err);
    if (!st) {
        st = nb_manifest_parse(m, nb_buf_str(&text), err);
        char shown[340];
        nb_name_text(name, shown);
        if (st) nb_error_prefix(err, "manifest of '%s'", shown);
    }
    nb_buf_free(&text);
    if (st) nb_manifest_free(m);
    return st;
}

void nb_manifest_free(nb_manifest *m)
{
    nb_json_free(&m->doc);
    nb_arena_free(m->arena);
    *m = (nb_manifest){0};
}

const nb_layer *nb_manifest_find(const nb_manifest *m, const char *layer_name)
{
    for (size_t i = 0; i < m->n_layers; i++) {
        if (m->layers[i].name.n && nb_str_is(m->layers[i].name, layer_name)) return &m->layers[i];
    }
    return NULL;
}

/* ---- publishing ---- */

static void write_layer(nb_buf *out, const nb_layer *l)
{
    nb_buf_add_cstr(out, "{\"mediaType\":");
    nb_json_write_string(out, l->media_type, NB_JSON_COMPACT);
    nb_buf_printf(out, ",\"digest\":\"sha256:%.64s\",\"size\":%llu", l->hex, (unsigned long long)l->size);
    if (l->name.n) {
        nb_buf_add_cstr(out, ",\"name\":");
        nb_json_write_string(out, l->name, NB_JSON_COMPACT);
    }
    nb_buf_add_char(out, '}');
}

static void write_manifest(nb_buf *out, const nb_layer *config, const nb_layer *layers, size_t n)
{
    nb_buf_printf(out, "{\"schemaVersion\":2,\"mediaType\":\"%s\",\"config\":", media_manifest);
    write_layer(out, config);
    nb_buf_add_cstr(out, ",\"layers\":[");
    for (size_t i = 0; i < n; i++) {
        if (i) nb_buf_add_char(out, ',');
        write_layer(out, &layers[i]);
    }
    nb_buf_add_cstr(out, "],\"runner\":\"nibble\",\"format\":\"nibble\"}");
}

static nb_status check_blob(const nb_store *s, const nb_layer *l, nb_error *err)
{
    struct stat st;
    nb_status status = nb_blob_stat(s, l->hex, &st, err);
    if (status == NB_E_NOT_FOUND)
        return nb_fail(err, NB_E_INVALID, "blob sha256-%s ('%.*s') is missing", l->hex, NB_FMT_STR(l->name));
    if (!status && (uint64_t)st.st_size != l->size) {
        status = nb_fail(err, NB_E_INVALID, "blob sha256-%s ('%.*s') has %lld bytes, expected %llu", l->hex,
                         NB_FMT_STR(l->name), (long long)st.st_size, (unsigned long long)l->size);
    }
    return status;
}

nb_status nb_manifest_check_blobs(const nb_store *s, const nb_layer *config, const nb_layer *layers, size_t n,
                                  nb_error *err)
{
    nb_status st = check_blob(s, config, err);
    for (size_t i = 0; i < n && !st; i++) st = check_blob(s, &layers[i], err);
    return st;
}

/* Makes `path` stand for the blob: a symbolic link, else a hard link, else a copy. path does not exist; the link is
 * right once it has been moved to its name's folder. */
static nb_status make_link(const nb_store *s, const char *path, const char hex[65], nb_error *err)
{
    char target[128];
    /* From manifests-v2/HOST/NS/MODEL it is four folders up to ROOT. */
    snprintf(target, sizeof target, "../../../../blobs/sha256-%.64s", hex);
    if (symlink(target, path) == 0) return NB_OK;
    if (errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS) return nb_fail_errno(err, errno, "%s", path);
    nb_buf blob = {0}, text = {0};
    nb_blob_path(s, hex, &blob);
    nb_status st = nb_buf_cstr(&blob) ? NB_OK : nb_store_no_memory(err);
    if (!st && link(blob.p, path) != 0) {
        st = nb_file_read(&text, blob.p, MANIFEST_MAX, err);
        if (!st) st = nb_file_write_atomic(path, text.p, text.n, err);
    }
    nb_buf_free(&blob);
    nb_buf_free(&text);
    return st;
}

nb_status nb_name_link(nb_store *s, const nb_name *n, const char hex[65], nb_error *err)
{
    unsigned random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) < 0) random = (unsigned)nb_now_ns();
    char *folder = nb_name_folder(s, n), *path = NULL, *tmp = NULL;
    nb_status st = NB_OK;
    if (!folder || asprintf(&path, "%s/%s", folder, n->tag) < 0) path = NULL;
    tmp = nb_store_path(s, "tmp/link-%ld-%08x", (long)getpid(), random);
    if (!path || !tmp) {
        st = nb_store_no_memory(err);
        goto out;
    }
    /* Whoever removes the last name of a folder removes the folder: it may vanish between any two steps. After the
     * rename that means that the name was removed again, and there is nothing to sync. */
    for (int attempt = 0; attempt < 64; attempt++) {
        st = nb_mkdirs(folder, err);
        if (st == NB_E_NOT_FOUND) continue;
        if (!st) st = make_link(s, tmp, hex, err);
        if (st) break;
        if (rename(tmp, path) == 0) {
            st = nb_sync_path(folder, true, err);
            if (st == NB_E_NOT_FOUND) st = NB_OK;
            break;
        }
        st = nb_fail_errno(err, errno, "%s", path);
        unlink(tmp);
        if (st != NB_E_NOT_FOUND) break;
    }
out:
    free(tmp);
    free(path);
    free(folder);
    return st;
}

nb_status nb_manifest_publish(nb_store *s, const nb_name *name, const nb_layer *config, const nb_layer *layers,
                              size_t n, char hex_out[65], nb_error *err)
{
    nb_buf text = {0};
    nb_blob_ref ref = {0};
    int lock = -1;
    /* Shared: nothing is collected between the check below and the link. */
    nb_status st = nb_store_lock_shared(s, &lock, err);
    if (st) return st;
    st = nb_manifest_check_blobs(s, config, layers, n, err);
    if (!st) st = nb_store_adopt(s, config->hex, err);
    for (size_t i = 0; i < n && !st; i++) st = nb_store_adopt(s, layers[i].hex, err);
    if (st) goto out;
    write_manifest(&text, config, layers, n);
    if (!nb_buf_cstr(&text)) {
        st = nb_store_no_memory(err);
        goto out;
    }
    st = nb_blob_put(s, text.p, text.n, &ref, err);
    if (!st) st = nb_store_sync(s, err);
    if (!st) st = nb_name_link(s, name, ref.hex, err);
    if (st && ref.created) nb_store_discard(s, &ref, 1);
    if (!st && hex_out) memcpy(hex_out, ref.hex, 65);
out:
    nb_buf_free(&text);
    nb_store_unlock(lock);
    return st;
}
