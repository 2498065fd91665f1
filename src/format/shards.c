/* Which files of a source directory hold its weights, and whether they are complete (specs/create.md 1.3). */
#include "format/safetensors.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { MAX_INDEX = 256 << 20, MAX_SHARDS = 100000 };
static const char index_name[] = "model.safetensors.index.json";

/* A bare file name ending in .safetensors. */
static bool bare_name(nb_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == '/' || s.p[i] == '\\' || (unsigned char)s.p[i] < 0x20) return false;
    return nb_str_ends(s, ".safetensors") && s.n > strlen(".safetensors") && s.n < 256;
}

static int str_cmp(const void *a, const void *b) { return nb_str_cmp(*(const nb_str *)a, *(const nb_str *)b); }

static nb_status no_memory(nb_error *err) { return nb_fail(err, NB_E_NO_MEMORY, "shards: out of memory"); }

/* Whether dir/name is a regular file that may be read. Links to regular files are followed. */
static bool is_file(const nb_st_shards *s, const char *dir, nb_str name)
{
    struct stat sb;
    const char *path = nb_arena_printf(s->arena, "%s/%.*s", dir, NB_FMT_STR(name));
    return path && stat(path, &sb) == 0 && S_ISREG(sb.st_mode);
}

/* The sorted set of the index's file names, each of which must exist. */
static nb_status from_index(nb_st_shards *s, const char *dir, nb_error *err)
{
    const nb_json *map = s->weight_map;
    s->files = NB_NEW_N(s->arena, nb_str, map->count);
    if (!s->files) return no_memory(err);
    for (uint32_t i = 0; i < map->count; i++) {
        nb_str file;
        if (!nb_json_str(&map->items[i], &file) || !bare_name(file))
            return nb_fail(err, NB_E_INVALID,
                           "%s/%s: weight_map.%.*s: '%.*s' is no bare name of a .safetensors file (E_INDEX_PATH)", dir,
                           index_name, map->keys[i].n < 100 ? (int)map->keys[i].n : 100, map->keys[i].p,
                           map->items[i].text.n < 100 ? (int)map->items[i].text.n : 100,
                           map->items[i].text.p ? map->items[i].text.p : "");
        s->files[i] = file;
    }
    qsort(s->files, map->count, sizeof *s->files, str_cmp);
    for (uint32_t i = 0; i < map->count; i++)
        if (s->n == 0 || !nb_str_eq(s->files[i], s->files[s->n - 1])) s->files[s->n++] = s->files[i];
    for (size_t i = 0; i < s->n; i++)
        if (!is_file(s, dir, s->files[i]))
            return nb_fail(err, NB_E_INVALID, "%s: shard %.*s named by the index is missing (E_INCOMPLETE)", dir,
                           NB_FMT_STR(s->files[i]));
    return NB_OK;
}

/* "model-00001-of-00003.safetensors": 3, and the length of the digits; 0 for other names. */
static unsigned shard_total(nb_str name, unsigned *number)
{
    unsigned total = 0, num = 0;
    size_t i = strlen("model-");
    if (!nb_str_starts(name, "model-")) return 0;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && num < MAX_SHARDS; i++)
        num = num * 10 + (unsigned)(name.p[i] - '0');
    nb_str rest = {name.p + i, name.n - i};
    if (i == strlen("model-") || !nb_str_starts(rest, "-of-")) return 0;
    for (i = strlen("-of-"); i < rest.n && rest.p[i] >= '0' && rest.p[i] <= '9' && total < MAX_SHARDS; i++)
        total = total * 10 + (unsigned)(rest.p[i] - '0');
    rest.p += i;
    rest.n -= i;
    if (!nb_str_is(rest, ".safetensors")) return 0;
    *number = num;
    return total;
}

/* Numbered shards without an index: all of them must be there. */
static nb_status check_numbers(const nb_st_shards *s, const char *dir, nb_error *err)
{
    for (size_t i = 0; i < s->n; i++) {
        unsigned number, total = shard_total(s->files[i], &number), have = 0;
        if (total == 0) continue;
        uint8_t *seen = nb_arena_alloc(s->arena, (size_t)total + 1);
        if (!seen) return no_memory(err);
        for (size_t j = 0; j < s->n; j++) {
            unsigned num, t = shard_total(s->files[j], &num);
            if (t == total && num >= 1 && num <= total && !seen[num]) seen[num] = 1, have++;
        }
        for (unsigned k = 1; k <= total && have < total; k++)
            if (!seen[k])
                return nb_fail(err, NB_E_INVALID,
                               "%s: shard %u of %u (model-%05u-of-%05u.safetensors) is missing (E_INCOMPLETE)", dir, k,
                               total, k, total);
        return NB_OK; /* names of one series: checked with its first */
    }
    return NB_OK;
}

static nb_status from_names(nb_st_shards *s, const char *dir, nb_error *err)
{
    DIR *d = opendir(dir);
    if (!d) return nb_fail_errno(err, errno, "%s", dir);
    size_t cap = 0;
    bool plain = false, other_weights = false;
    nb_status st = NB_OK;
    for (struct dirent *e; st == NB_OK && (e = readdir(d));) {
        nb_str name = nb_str_of(e->d_name);
        other_weights |= nb_str_ends(name, ".bin") || nb_str_ends(name, ".pt") || nb_str_ends(name, ".pth");
        if (!nb_str_starts(name, "model") || !nb_str_ends(name, ".safetensors") || !is_file(s, dir, name)) continue;
        plain |= nb_str_is(name, "model.safetensors");
        if (s->n == cap) {
            nb_str *more = NB_NEW_N(s->arena, nb_str, cap = cap ? 2 * cap : 16);
            if (more && s->n) memcpy(more, s->files, s->n * sizeof *more);
            s->files = more;
        }
        if (!s->files || !(s->files[s->n] = nb_arena_str(s->arena, name)).p)
            st = no_memory(err);
        else
            s->n++;
    }
    closedir(d);
    if (st != NB_OK) return st;
    if (s->n == 0)
        return nb_fail(err, NB_E_INVALID, "%s: no file model*.safetensors%s (E_NO_WEIGHTS)", dir,
                       other_weights ? "; .bin and .pt files are never opened" : "");
    qsort(s->files, s->n, sizeof *s->files, str_cmp);
    if (plain && s->n > 1)
        return nb_fail(err, NB_E_INVALID, "%s: model.safetensors beside %.*s and no index (E_AMBIGUOUS_SOURCE)", dir,
                       NB_FMT_STR(s->files[nb_str_is(s->files[0], "model.safetensors")]));
    return check_numbers(s, dir, err);
}

nb_status nb_st_shards_find(nb_st_shards *s, const char *dir, nb_error *err)
{
    memset(s, 0, sizeof *s);
    nb_buf text = {0};
    char *path = NULL;
    nb_status st = NB_OK;
    s->arena = nb_arena_new(0);
    if (!s->arena || !(path = nb_arena_printf(s->arena, "%s/%s", dir, index_name))) st = no_memory(err);
    if (st == NB_OK && nb_path_exists(path)) {
        nb_json_limits limits = {.max_bytes = MAX_INDEX, .flags = NB_JSON_COPY | NB_JSON_UNIQUE_KEYS};
        st = nb_file_read(&text, path, MAX_INDEX, err);
        nb_error why = {0};
        if (st == NB_OK && (st = nb_json_parse(&s->index, nb_buf_cstr(&text), text.n, path, &limits, &why)) != NB_OK)
            nb_fail(err, st, "%s (E_CONFIG)", why.text);
        if (st == NB_OK) {
            s->weight_map = nb_json_get(s->index.root, "weight_map");
            if (s->weight_map && s->weight_map->type != NB_JSON_OBJECT)
                st = nb_fail(err, NB_E_INVALID, "%s: weight_map is no object (E_CONFIG)", path);
            else if (s->weight_map && s->weight_map->count == 0)
                s->weight_map = NULL;
        }
    }
    if (st == NB_OK) st = s->weight_map ? from_index(s, dir, err) : from_names(s, dir, err);
    nb_buf_free(&text);
    if (st != NB_OK) nb_st_shards_free(s);
    return st;
}

void nb_st_shards_free(nb_st_shards *s)
{
    nb_json_free(&s->index);
    nb_arena_free(s->arena);
    memset(s, 0, sizeof *s);
}

/* ---- the headers against the choice ---- */

static nb_status check_mapped(const nb_st_shards *s, const nb_st_file *files, nb_st_totals *out, nb_error *err)
{
    for (size_t i = 0; i < s->n; i++)
        for (size_t t = 0; t < files[i].n; t++) {
            nb_str file, name = files[i].tensors[t].name;
            if (!nb_json_str(nb_json_get_str(s->weight_map, name), &file))
                out->unmapped++;
            else if (!nb_str_eq(file, s->files[i]))
                return nb_fail(err, NB_E_INVALID, "tensor %.*s is in %.*s, the index says %.*s (E_INDEX_MISMATCH)",
                               NB_FMT_STR(name), NB_FMT_STR(s->files[i]), NB_FMT_STR(file));
        }
    for (uint32_t i = 0; i < s->weight_map->count; i++) {
        nb_str file = s->weight_map->items[i].text, name = s->weight_map->keys[i];
        nb_str *at = bsearch(&file, s->files, s->n, sizeof file, str_cmp);
        if (!at || !nb_st_find(&files[at - s->files], name))
            return nb_fail(err, NB_E_INVALID,
                           "tensor %.*s, which the index puts into %.*s, is not there (E_INCOMPLETE)", NB_FMT_STR(name),
                           NB_FMT_STR(file));
    }
    return NB_OK;
}

static nb_status check_unique(const nb_st_shards *s, const nb_st_file *files, nb_error *err)
{
    nb_map names = {0};
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) n += files[i].n;
    nb_status st = nb_map_init(&names, n) ? NB_OK : no_memory(err);
    for (size_t i = 0; i < s->n; i++)
        for (size_t t = 0; t < files[i].n && st == NB_OK; t++) {
            bool had = false;
            uint32_t first = 0;
            nb_str name = files[i].tensors[t].name;
            if (!nb_map_put(&names, name, (uint32_t)i, &had, &first))
                st = no_memory(err);
            else if (had)
                st = nb_fail(err, NB_E_INVALID, "tensor %.*s is both in %.*s and in %.*s (E_DUP_TENSOR)",
                             NB_FMT_STR(name), NB_FMT_STR(s->files[first]), NB_FMT_STR(s->files[i]));
        }
    nb_map_free(&names);
    return st;
}

nb_status nb_st_shards_check(const nb_st_shards *s, const nb_st_file *files, nb_st_totals *out, nb_error *err)
{
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < s->n; i++) {
        out->tensors += files[i].n;
        for (size_t t = 0; t < files[i].n; t++) out->bytes += files[i].tensors[t].len;
    }
    if (out->tensors == 0) return nb_fail(err, NB_E_INVALID, "the safetensors files hold no tensor (E_NO_WEIGHTS)");
    nb_status st = s->weight_map ? check_mapped(s, files, out, err) : check_unique(s, files, err);
    if (st != NB_OK) return st;
    uint64_t stated;
    if (nb_json_u64(nb_json_path(s->index.root, "metadata.total_size"), &stated) && stated != out->bytes) {
        out->size_differs = true;
        nb_log(1, "the index says %llu bytes of tensors, the files hold %llu", (unsigned long long)stated,
               (unsigned long long)out->bytes);
    }
    return NB_OK;
}
