/* cli: create and export. */
#include "base/file.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/term.h"
#include "create/create.h"

#include <stdio.h>
#include <unistd.h>

static void print_report(const nb_create_report *r, bool json, bool verbose)
{
    nb_buf b = {0};
    if (json)
        nb_create_report_json(r, &b);
    else
        nb_create_report_text(r, verbose, &b);
    if (json) {
        fwrite(b.p, 1, b.n, stdout);
        if (b.n && b.p[b.n - 1] != '\n') putchar('\n');
    } else {
        nb_buf clean = {0};
        nb_term_clean(&clean, nb_buf_str(&b), true);
        fwrite(clean.p, 1, clean.n, stdout);
        nb_buf_free(&clean);
    }
    nb_buf_free(&b);
}

/* Options that take one of two words; the second of each sets its flag. -1: all are known. */
static int read_words(const nb_command *c, nb_create_options *o, const char *layout, const char *nonfinite,
                      const char *quality)
{
    if (layout && strcmp(layout, "standard") == 0)
        o->layout = NB_LAYOUT_STANDARD;
    else if (layout && strcmp(layout, "rows16") != 0)
        return nb_usage_error(c, "unknown layout '%s'; known: rows16, standard", layout);
    o->nonfinite_zero = nonfinite && strcmp(nonfinite, "zero") == 0;
    if (nonfinite && !o->nonfinite_zero && strcmp(nonfinite, "refuse") != 0)
        return nb_usage_error(c, "--nonfinite is '%s'; known: refuse, zero", nonfinite);
    o->search = quality && strcmp(quality, "search") == 0;
    if (quality && !o->search && strcmp(quality, "plain") != 0)
        return nb_usage_error(c, "--quality is '%s'; known: plain, search", quality);
    return -1;
}

/* A text that an option takes from a file. */
typedef struct text_file {
    const char *path, **into;
    nb_buf bytes;
} text_file;

static nb_status read_text(text_file *f, nb_error *err)
{
    if (!f->path) return NB_OK;
    nb_status st = nb_file_read(&f->bytes, f->path, 1 << 20, err);
    if (st != NB_OK) return st;
    if (!(*f->into = nb_buf_cstr(&f->bytes))) return nb_fail(err, NB_E_NO_MEMORY, "out of memory");
    return strlen(*f->into) == f->bytes.n ? NB_OK : nb_fail(err, NB_E_INVALID, "%s: holds a NUL byte", f->path);
}

int nb_cmd_create(const nb_command *c, int argc, char **argv)
{
    nb_create_options o;
    nb_create_defaults(&o);
    const char *quantize = NULL, *layout = NULL, *from = NULL, *draft = NULL, *draft_type = NULL, *nonfinite = NULL,
               *quality = NULL;
    text_file texts[4] = {{.into = &o.template_text}, {.into = &o.license}, {.into = &o.system}, {.into = &o.messages}};
    bool json = false, verbose = false, quiet = false;
    int32_t threads = 0;
    const nb_opt opts[] = {
        {"--from", NULL, NB_OPT_STR, &from, "PATH", "checkpoint directory, .safetensors file inside one, or GGUF file"},
        {"--quantize", "-q", NB_OPT_STR, &quantize, "TYPE",
         "none (default: as lossless as the formats allow), keep, bf16, nvfp4, mxfp8, mxfp4, int8, int4, int4:g32 ..."},
        {"--allow-requantize", NULL, NB_OPT_FLAG, &o.allow_requantize, NULL,
         "decode weights that are already quantised and quantise them again"},
        {"--layout", NULL, NB_OPT_STR, &layout, "LAYOUT",
         "rows16 (default: what the kernels stream) or standard (row-major)"},
        {"--keep", NULL, NB_OPT_STR, &o.keep, "PATTERNS",
         "tensors that stay as they are: 'model.layers.0.*,lm_head.*'"},
        {"--type", NULL, NB_OPT_STR, &o.types, "PATTERN=TYPE,...", "types of single tensors, over the policy"},
        {"--draft", NULL, NB_OPT_STR, &draft, "DIR",
         "a draft model for speculation; without --from it is added to the stored model NAME"},
        {"--draft-quantize", NULL, NB_OPT_STR, &draft_type, "TYPE",
         "type of the draft's weights (default: as they are)"},
        {"--template", NULL, NB_OPT_STR, &texts[0].path, "FILE", "a chat template in place of the checkpoint's"},
        {"--license", NULL, NB_OPT_STR, &texts[1].path, "FILE", "a licence in place of the checkpoint's"},
        {"--system", NULL, NB_OPT_STR, &texts[2].path, "FILE", "a system message that every conversation begins with"},
        {"--messages", NULL, NB_OPT_STR, &texts[3].path, "FILE",
         "JSON list of messages that every conversation goes on with: [{\"role\":\"user\",\"content\":\"Hi\"}, ...]"},
        {"--parameters", NULL, NB_OPT_STR, &o.extra_parameters, "JSON",
         "sampling parameters over generation_config.json: '{\"temperature\":0.7}'"},
        {"--parser", NULL, NB_OPT_STR, &o.parser, "NAME", "parser recorded for the model (default: by architecture)"},
        {"--renderer", NULL, NB_OPT_STR, &o.renderer, "NAME", "renderer recorded, likewise"},
        {"--requires", NULL, NB_OPT_STR, &o.min_version, "VERSION", "oldest version that may run the model"},
        {"--dry-run", NULL, NB_OPT_FLAG, &o.dry_run, NULL, "show the plan and write nothing"},
        {"--deep", NULL, NB_OPT_FLAG, &o.deep, NULL, "compare sampled rows with the source before publishing"},
        {"--permissive", NULL, NB_OPT_FLAG, &o.permissive, NULL,
         "repair what can be repaired, with a warning, instead of refusing"},
        {"--nonfinite", NULL, NB_OPT_STR, &nonfinite, "WHAT",
         "NaN and infinite values of a tensor to be quantised: refuse (default) or zero"},
        {"--keep-kv-scales", NULL, NB_OPT_FLAG, &o.keep_kv_scales, NULL,
         "keep the scales of a quantised KV cache, which are left out otherwise"},
        {"--quality", NULL, NB_OPT_STR, &quality, "HOW",
         "how nvfp4 and mxfp4 scales are chosen: plain (default), or search: less error, slower to make, same speed"},
        {"--strict", NULL, NB_OPT_FLAG, &o.strict, NULL,
         "know the source by its SHA-256, not by its dates: a killed import goes on from a copy too"},
        {"--force", NULL, NB_OPT_FLAG, &o.force, NULL, "import an architecture that this version cannot run"},
        {"--threads", "-t", NB_OPT_INT, &threads, "N", "worker threads (default: one per processor)"},
        {"--json", NULL, NB_OPT_FLAG, &json, NULL, "print the report as one JSON object"},
        {"--verbose", "-v", NB_OPT_FLAG, &verbose, NULL, "list every tensor"},
        {"--quiet", NULL, NB_OPT_FLAG, &quiet, NULL, "no progress"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n == 0) return nb_usage_error(c, "a name for the model is needed");
    if (n == 2 && !from) from = argv[1], n = 1;
    if (n > 1) return nb_usage_error(c, "unexpected argument '%s'", argv[1]);
    if (!from && !draft) return nb_usage_error(c, "--from PATH is needed, or --draft DIR for a stored model");
    if (threads < 0) return nb_usage_error(c, "--threads is %d", threads);
    if ((code = read_words(c, &o, layout, nonfinite, quality)) >= 0) return code;

    nb_signals_catch();
    nb_error err = {0};
    nb_store *store = NULL;
    nb_create_report report = {0};
    nb_progress progress;
    nb_progress_begin(&progress, quiet);
    o.name = argv[0], o.source = from, o.draft = draft, o.threads = threads;
    o.progress = nb_draw_create, o.user = &progress, o.cancel = &nb_interrupted;
    nb_status st = nb_create_parse_request(&o, quantize, &err);
    for (size_t i = 0; i < NB_COUNT(texts) && st == NB_OK; i++) st = read_text(&texts[i], &err);
    nb_create_options d = o;
    if (st == NB_OK && draft_type) st = nb_create_parse_request(&d, draft_type, &err);
    if (st == NB_OK && draft_type) o.draft_request = d.request, o.draft_type = d.type;
    if (st == NB_OK) st = nb_store_open(&store, NULL, &err);
    if (st == NB_OK) st = nb_create(store, &o, &report, &err);
    nb_progress_end(&progress);
    if (st == NB_OK) print_report(&report, json, verbose);
    nb_create_report_free(&report);
    nb_store_close(store);
    for (size_t i = 0; i < NB_COUNT(texts); i++) nb_buf_free(&texts[i].bytes);
    return st == NB_OK ? 0 : nb_report(&err);
}

int nb_cmd_export(const nb_command *c, int argc, char **argv)
{
    nb_export_options o;
    nb_export_defaults(&o);
    const char *as = "hub", *dtype = NULL;
    bool quiet = false;
    const nb_opt opts[] = {
        {"--as", NULL, NB_OPT_STR, &as, "FORMAT", "hub (default: dequantised), mlx, compressed-tensors or modelopt"},
        {"--dtype", NULL, NB_OPT_STR, &dtype, "TYPE", "bf16 (default) or f32, for hub"},
        {"--quiet", NULL, NB_OPT_FLAG, &quiet, NULL, "no progress"},
    };
    int n = 0;
    int code = nb_args_parse(c, opts, NB_COUNT(opts), argc, argv, &n);
    if (code >= 0) return code;
    if (n != 2) return nb_usage_error(c, "a model and a directory are needed");
    if (!nb_export_parse(&o.as, as))
        return nb_usage_error(c, "unknown format '%s'; known: hub, mlx, compressed-tensors, modelopt", as);
    if (dtype && strcmp(dtype, "f32") == 0)
        o.dtype = NB_DT_F32;
    else if (dtype && strcmp(dtype, "bf16") != 0)
        return nb_usage_error(c, "unknown dtype '%s'; known: bf16, f32", dtype);
    nb_signals_catch();
    nb_error err = {0};
    nb_store *store = NULL;
    nb_progress progress;
    nb_progress_begin(&progress, quiet);
    o.name = argv[0], o.dir = argv[1], o.progress = nb_draw_create, o.user = &progress, o.cancel = &nb_interrupted;
    nb_status st = nb_store_open(&store, NULL, &err);
    if (st == NB_OK) st = nb_export(store, &o, &err);
    nb_progress_end(&progress);
    nb_store_close(store);
    if (st != NB_OK) return nb_report(&err);
    fprintf(stderr, "exported %s to %s\n", argv[0], argv[1]);
    return 0;
}
