/* create/job: notes, progress and cancellation of one import. */
#include "create/plan.h"

#include <stdio.h>
#include <stdlib.h>

static bool note_push(nb_job *j, nb_create_note **v, size_t *n, size_t *cap, nb_str name, nb_str text)
{
    if (!nb_arena_grow(j->arena, v, *n, cap, sizeof **v, 64)) return false;
    nb_create_note *slot = &(*v)[(*n)++];
    *slot = (nb_create_note){0};
    slot->name = nb_arena_str(j->arena, name);
    slot->text = nb_arena_str(j->arena, text);
    return slot->text.p != NULL;
}

enum { LISTED = 4 }; /* warnings of one text */

static bool warn_push(nb_job *j, nb_str name, nb_str text, size_t more)
{
    uint32_t last = 0;
    if (!j->warned.cap && !nb_map_init(&j->warned, 64)) return false;
    nb_create_note *before = nb_map_get(&j->warned, text, &last) ? &j->warnings.v[last] : NULL;
    if (before && before->nth == LISTED) {
        before->more += 1 + more;
        return true;
    }
    size_t nth = before ? before->nth + 1 : 1;
    if (!note_push(j, &j->warnings.v, &j->warnings.n, &j->warnings.cap, name, text)) return false;
    nb_create_note *w = &j->warnings.v[j->warnings.n - 1];
    w->nth = nth;
    w->more = more;
    return nb_map_put(&j->warned, w->text, (uint32_t)(j->warnings.n - 1), NULL, NULL);
}

bool nb_job_warn(nb_job *j, nb_str name, const char *fmt, ...)
{
    char text[400], clean[400]; /* what stands in a config may be in it */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n >= sizeof text ? sizeof text - 1 : (size_t)n;
    nb_str s = {clean, nb_text_clean(clean, sizeof clean, text, used)};
    return warn_push(j, name, s, 0);
}

bool nb_job_adopt_warnings(nb_job *j, const nb_job *draft)
{
    for (size_t i = 0; i < draft->warnings.n; i++) {
        const nb_create_note *w = &draft->warnings.v[i];
        char *text = nb_arena_printf(j->arena, "draft: %.*s", NB_FMT_STR(w->text));
        if (!text || !warn_push(j, w->name, nb_str_of(text), w->more)) return false;
    }
    return true;
}

bool nb_job_drop(nb_job *j, nb_str name, const char *why)
{
    return note_push(j, &j->dropped.v, &j->dropped.n, &j->dropped.cap, name, nb_str_of(why));
}

bool nb_job_kept(nb_job *j, nb_str name, const char *why)
{
    return note_push(j, &j->kept.v, &j->kept.n, &j->kept.cap, name, nb_str_of(why ? why : "policy"));
}

bool nb_job_unused(nb_job *j, nb_str name, const char *why)
{
    return note_push(j, &j->unused.v, &j->unused.n, &j->unused.cap, name, nb_str_of(why));
}

nb_create_tensor *nb_job_tensor(nb_job *j)
{
    if (!nb_arena_grow(j->arena, &j->tensors.v, j->tensors.n, &j->tensors.cap, sizeof *j->tensors.v, 256)) return NULL;
    return &j->tensors.v[j->tensors.n++];
}

bool nb_job_cancelled(const nb_job *j) { return j->o->cancel && *j->o->cancel; }

void nb_job_progress(const nb_job *j, nb_create_phase p, const char *item, uint64_t done, uint64_t total, uint32_t n,
                     uint32_t n_total)
{
    if (j->o->progress) j->o->progress(j->o->user, p, item, done, total, n, n_total);
}

const char *nb_create_phase_name(nb_create_phase p)
{
    static const char *const names[] = {"reading",   "planning",   "quantizing", "configs",
                                        "verifying", "publishing", "done"};
    return (size_t)p < NB_COUNT(names) ? names[p] : "unknown";
}

void nb_create_defaults(nb_create_options *o)
{
    memset(o, 0, sizeof *o);
    o->size = sizeof *o;
    o->request = NB_REQUEST_NONE;
    o->layout = NB_LAYOUT_ROWS16;
}

nb_status nb_create_parse_request(nb_create_options *o, const char *text, nb_error *err)
{
    if (!text || !*text || !strcmp(text, "none") || !strcmp(text, "auto")) {
        o->request = NB_REQUEST_NONE;
        return NB_OK;
    }
    if (!strcmp(text, "keep")) {
        o->request = NB_REQUEST_KEEP;
        return NB_OK;
    }
    if (!strcmp(text, "fp8") || !strcmp(text, "fp4"))
        return nb_fail(err, NB_E_USAGE, "quantisation '%s' is ambiguous: say %s (E_QUANT_TYPE)", text,
                       text[2] == '8' ? "mxfp8 or int8" : "nvfp4 or int4");
    const char *name = !strcmp(text, "q4") ? "int4" : !strcmp(text, "q8") ? "int8" : text;
    nb_status st = nb_qtype_parse(&o->type, name, err);
    if (st != NB_OK) return st;
    if (nb_format_info((nb_format)o->type.format)->scale_kind == NB_SCALE_APART)
        return nb_fail(err, NB_E_USAGE, "'%s' is kept where a checkpoint has it, not made: say mxfp8 (E_QUANT_TYPE)",
                       text);
    o->request = NB_REQUEST_TYPE;
    return NB_OK;
}
