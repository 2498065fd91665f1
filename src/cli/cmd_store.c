/* cli: list, ps, cp, rm, verify, version. */
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/term.h"
#include "cpu/cpu.h"
#include "create/create.h"
#include "store/store.h"
#include "json/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void print_json_entry(const nb_model_entry *e, bool first)
{
    char name[340];
    nb_name_text(&e->name, name);
    printf("%s{\"name\":\"%s\",\"digest\":\"sha256:%s\",\"size\":%llu,\"modified_ns\":%lld}", first ? "" : ",", name,
           e->hex, (unsigned long long)e->bytes, (long long)e->modified_ns);
}

static void print_age(int64_t ns, char out[32])
{
    double s = (double)time(NULL) - (double)ns * 1e-9;
    if (s < 90)
        snprintf(out, 32, "just now");
    else if (s < 5400)
        snprintf(out, 32, "%.0f minutes ago", s / 60);
    else if (s < 129600)
        snprintf(out, 32, "%.0f hours ago", s / 3600);
    else
        snprintf(out, 32, "%.0f days ago", s / 86400);
}

static void print_list(const nb_model_entry *e, size_t n)
{
    static const bool right[] = {false, false, true, false};
    nb_table t;
    nb_table_begin(&t, 4, right);
    static const char *const head[] = {"NAME", "ID", "SIZE", "MODIFIED"};
    for (int i = 0; i < 4; i++) nb_table_cell(&t, head[i]);
    for (size_t i = 0; i < n; i++) {
        char name[340], size[24], age[32], id[13];
        nb_name_text(&e[i].name, name);
        nb_human_bytes(e[i].bytes, size);
        print_age(e[i].modified_ns, age);
        snprintf(id, sizeof id, "%.12s", e[i].hex);
        nb_table_cell(&t, name);
        nb_table_cell(&t, id);
        nb_table_cell(&t, size);
        nb_table_cell(&t, age);
    }
    nb_table_print(&t);
}

int nb_cmd_list(const nb_command *c, int argc, char **argv)
{
    bool json = false;
    const nb_opt opts[] = {{"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON array"}};
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n) return nb_usage_error(c, "unexpected argument '%s'", argv[0]);
    nb_error err = {0};
    nb_store *s = NULL;
    nb_arena *a = nb_arena_new(0);
    nb_model_entry *e = NULL;
    size_t count = 0;
    nb_status st = a ? nb_store_open(&s, NULL, &err) : nb_fail(&err, NB_E_NO_MEMORY, "no memory");
    if (st == NB_OK) st = nb_store_list(s, a, &e, &count, &err);
    if (st == NB_OK && json) {
        putchar('[');
        for (size_t i = 0; i < count; i++) print_json_entry(&e[i], i == 0);
        printf("]\n");
    } else if (st == NB_OK) {
        print_list(e, count);
    }
    nb_arena_free(a);
    nb_store_close(s);
    return st == NB_OK ? 0 : nb_report(&err);
}

/* Every command runs in its own process until there is a server (design.md 11), so nothing is held in memory between
 * commands. */
int nb_cmd_ps(const nb_command *c, int argc, char **argv)
{
    bool json = false;
    const nb_opt opts[] = {{"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON array"}};
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n) return nb_usage_error(c, "unexpected argument '%s'", argv[0]);
    printf(json ? "[]\n" : "NAME  ID  SIZE  PROCESSOR  UNTIL\n");
    return 0;
}

int nb_cmd_cp(const nb_command *c, int argc, char **argv)
{
    int n = 0;
    int code = nb_args_parse(c, NULL, 0, argc, argv, &n);
    if (code >= 0) return code;
    if (n != 2) return nb_usage_error(c, "two names are needed");
    nb_error err = {0};
    nb_store *s = NULL;
    nb_name from, to;
    nb_status st = nb_name_parse(&from, argv[0], &err);
    if (st == NB_OK) st = nb_name_parse(&to, argv[1], &err);
    if (st == NB_OK) st = nb_store_open(&s, NULL, &err);
    if (st == NB_OK) st = nb_store_cp(s, &from, &to, &err);
    nb_store_close(s);
    if (st != NB_OK) return nb_report(&err);
    fprintf(stderr, "copied %s to %s\n", argv[0], argv[1]);
    return 0;
}

int nb_cmd_rm(const nb_command *c, int argc, char **argv)
{
    int n = 0;
    int code = nb_args_parse(c, NULL, 0, argc, argv, &n);
    if (code >= 0) return code;
    if (n == 0) return nb_usage_error(c, "the name of a model is needed");
    nb_error err = {0};
    nb_store *s = NULL;
    nb_status st = nb_store_open(&s, NULL, &err);
    for (int i = 0; i < n && st == NB_OK; i++) {
        nb_name name;
        uint64_t freed = 0;
        char size[24];
        st = nb_name_parse(&name, argv[i], &err);
        if (st == NB_OK) st = nb_store_rm(s, &name, &freed, &err);
        if (st != NB_OK) break;
        nb_human_bytes(freed, size);
        fprintf(stderr, "removed %s (%s freed)\n", argv[i], size);
    }
    nb_store_close(s);
    return st == NB_OK ? 0 : nb_report(&err);
}

static void draw_hash(void *user, uint64_t done, uint64_t total)
{
    nb_progress_update(user, "hashing", "", done, total);
}

int nb_cmd_verify(const nb_command *c, int argc, char **argv)
{
    bool deep = false, quiet = false;
    const nb_opt opts[] = {
        {"--deep", NULL, NB_OPT_FLAG, &deep, NULL, "also check every scale and the architecture's tensor list"},
        {"--quiet", NULL, NB_OPT_FLAG, &quiet, NULL, "no progress"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n != 1) return nb_usage_error(c, "the name of a model is needed");
    nb_error err = {0};
    nb_store *s = NULL;
    nb_name name;
    nb_progress p;
    nb_progress_begin(&p, quiet);
    nb_status st = nb_name_parse(&name, argv[0], &err);
    if (st == NB_OK) st = nb_store_open(&s, NULL, &err);
    if (st == NB_OK) st = nb_store_verify(s, &name, draw_hash, &p, &err);
    if (st == NB_OK) st = nb_create_verify(s, &name, deep, nb_draw_create, &p, &err);
    nb_progress_end(&p);
    nb_store_close(s);
    if (st != NB_OK) return nb_report(&err);
    printf("%s is whole\n", argv[0]);
    return 0;
}

int nb_cmd_version(const nb_command *c, int argc, char **argv)
{
    bool json = false;
    const nb_opt opts[] = {{"--json", NULL, NB_OPT_FLAG, &json, NULL, "print one JSON object"}};
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n) return nb_usage_error(c, "unexpected argument '%s'", argv[0]);
    nb_tier best = nb_tier_best();
    const char *forced = getenv("NIBBLE_TIER");
    if (forced && *forced && (!nb_tier_parse(&best, forced) || !nb_tier_available(best))) {
        nb_error err;
        nb_fail(&err, NB_E_USAGE, "NIBBLE_TIER is '%s', which this machine or build lacks", forced);
        return nb_report(&err);
    }
    if (json)
        printf("{\"version\":\"%s\",\"build\":\"%s\",\"tier\":\"%s\",\"order\":\"tile\",\"tiers\":[", nb_version(),
               nb_build_info(), nb_tier_name(best));
    else
        printf("%s\ntier %s, tile order; this machine has", nb_build_info(), nb_tier_name(best));
    bool first = true;
    for (int t = 0; t < NB_TIER_COUNT; t++) {
        if (!nb_tier_available((nb_tier)t)) continue;
        if (json)
            printf("%s\"%s\"", first ? "" : ",", nb_tier_name((nb_tier)t));
        else
            printf("%s%s", first ? " " : ", ", nb_tier_name((nb_tier)t));
        first = false;
    }
    printf(json ? "]}\n" : "\n");
    return 0;
}
