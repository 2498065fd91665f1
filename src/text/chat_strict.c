/* text/chat_strict: what transformers' apply_chat_template does around a template. */
#include "text/chat_internal.h"

/* Templates build control tokens from the role: '<|' + message.role + '|>'. A role of this list is a word of the
 * protocol, so its bytes count as the template's; any other role stays the request's. */
jval nb_chat_role(jctx *j, nb_str role)
{
    static const char *const known[] = {
        "system",      "user",        "assistant",       "tool",    "developer", "function", "ipython", "model",
        "environment", "observation", "latest_reminder", "context", "documents",
    };
    bool trusted = false;
    for (size_t i = 0; i < NB_COUNT(known); i++) trusted |= nb_str_is(role, known[i]);
    return nbj_str_ref(j, role.p, role.n, trusted);
}

static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

jval nb_chat_alias_reasoning(jctx *j, jval m)
{
    jval r = jv(J_NONE), name;
    for (size_t i = 0; i < NB_COUNT(reasoning_names); i++) {
        if (nbj_dict_find(m.u.d, nb_str_of(reasoning_names[i]), &r) && r.t != J_NONE) break;
        r = jv(J_NONE);
    }
    if (r.t == J_NONE) return m;
    jdict *d = nbj_dict(j, m.u.d->n + 2);
    name = nbj_cstr(j, "thinking");
    if (!d || !nbj_dict_set(j, d, name, r)) return jv(J_ERR);
    for (uint32_t i = 0; i < m.u.d->n; i++) {
        if (!nbj_dict_set(j, d, m.u.d->e[i].key, m.u.d->e[i].val)) return jv(J_ERR);
    }
    d->req = m.u.d->req;
    name = nbj_cstr(j, "reasoning_content");
    return nbj_dict_set(j, d, name, r) ? jv_dict(d) : jv(J_ERR);
}

jval nb_chat_message(jctx *j, const nb_json *m)
{
    if (m->type != NB_JSON_OBJECT) return nbj_fail(j, "TypeError", "Chat messages should be objects");
    jdict *d = nbj_dict(j, m->count);
    if (!d) return jv(J_ERR);
    d->req = true;
    for (uint32_t i = 0; i < m->count; i++) {
        const nb_json *v = &m->items[i];
        if (v->type == NB_JSON_NULL) continue;
        jval key = nbj_str_ref(j, m->keys[i].p, m->keys[i].n, false);
        jval val = nb_str_is(m->keys[i], "role") && v->type == NB_JSON_STRING ? nb_chat_role(j, v->text)
                                                                              : nbj_from_json(j, v, false);
        if (!nbj_dict_set(j, d, key, val)) return jv(J_ERR);
    }
    return nb_chat_alias_reasoning(j, jv_dict(d));
}

/* The messages as transformers passes them on. */
static jval strict_messages(jctx *j, const void *user)
{
    const nb_json *messages = user;
    if (!messages || messages->type != NB_JSON_ARRAY) return nbj_fail(j, "TypeError", "messages is not a list");
    jlist *l = nbj_list(j, messages->count);
    for (uint32_t i = 0; l && i < messages->count; i++) {
        if (!nbj_push_val(j, l, nb_chat_message(j, &messages->items[i]))) return jv(J_ERR);
    }
    if (!l) return jv(J_ERR);
    l->req = true;
    return jv_list(l);
}

/* ---- continue_final_message ---- */

static const char tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

/* Appends the tag to one text and notes what is continued. */
static bool add_tag(jctx *j, jdict *in, const char *key, nb_chat_job *job)
{
    jval v = jv(J_NONE), mark = nbj_str_ref(j, tag, sizeof tag - 1, false);
    nbj_dict_find(in, nb_str_of(key), &v);
    if (v.t != J_STR)
        return nbj_fail(j, "TypeError", "continue_final_message: the text of the final message is not a string"), false;
    job->final_text = nb_arena_str(job->arena, js_view(v.u.s));
    if (!job->final_text.p) return nbj_oom(j), false;
    return nbj_dict_set(j, in, nbj_cstr(j, key), nbj_concat(j, v.u.s, mark.u.s));
}

/* The last message, or the last part of it that has text. */
static bool tag_last(jctx *j, jval messages, nb_chat_job *job)
{
    jlist *l = messages.u.l;
    jval content = jv(J_NONE), ignored;
    if (!l->n) return nbj_fail(j, "ValueError", "continue_final_message is set but the conversation is empty!"), false;
    jdict *last = l->v[l->n - 1].u.d;
    if (!nbj_dict_find(last, NB_LIT("content"), &content))
        return nbj_fail(j, "ValueError",
                        "continue_final_message is set but the final message has no \"content\" to continue!"),
               false;
    if (nbj_find((nb_str){job->t->source, job->t->n}, NB_LIT("content"), 0) < 0)
        return nbj_fail(j, "ValueError",
                        "continue_final_message is set to \"content\" but this is not an accepted field in the chat "
                        "template"),
               false;
    if (content.t != J_LIST) return add_tag(j, last, "content", job);
    for (uint32_t i = content.u.l->n; i > 0; i--) {
        jval part = content.u.l->v[i - 1];
        if (part.t == J_DICT && nbj_dict_find(part.u.d, NB_LIT("text"), &ignored))
            return add_tag(j, part.u.d, "text", job);
    }
    nbj_fail(j, "ValueError",
             "continue_final_message is set but we could not find any text to continue in the final message!");
    return false;
}

static bool is_space_back(nb_str s, size_t *len)
{
    size_t k = s.n;
    do k--;
    while (k > 0 && ((uint8_t)s.p[k] & 0xC0) == 0x80);
    *len = s.n - k;
    size_t n;
    return nbj_is_space(nb_utf8_decode(s.p + k, *len, &n));
}

static nb_str rstrip(nb_str s)
{
    for (size_t len; s.n && is_space_back(s, &len);) s.n -= len;
    return s;
}

static nb_str strip(nb_str s)
{
    size_t len;
    while (s.n && nbj_is_space(nb_utf8_decode(s.p, s.n, &len))) s.p += len, s.n -= len;
    return rstrip(s);
}

/* Keeps the first n bytes of a prompt. */
static void cut(nb_prompt *p, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < p->n; i++) {
        if (at + p->spans[i].text.n >= n) {
            p->spans[i].text.n = n - at;
            p->n = p->spans[i].text.n ? i + 1 : i;
            return;
        }
        at += p->spans[i].text.n;
    }
}

/* The spans of a prompt are one text, one behind the other. */
static nb_str whole(const nb_prompt *p)
{
    nb_str s = {p->n ? p->spans[0].text.p : "", 0};
    for (size_t i = 0; i < p->n; i++) s.n += p->spans[i].text.n;
    return s;
}

/* The last tag counts. If the template trimmed the space behind it, white space before it goes too. */
static nb_status cut_at_tag(const nb_chat_job *job, nb_prompt *out, nb_error *err)
{
    nb_str text = whole(out), final = strip(job->final_text), mark = {tag, sizeof tag - 2};
    int64_t at = -1;
    for (int64_t hit = -1; (hit = nbj_find(text, mark, (size_t)(hit + 1))) >= 0;) at = hit;
    if (at < 0 || nbj_find(text, final, 0) < 0) {
        return nb_fail(err, NB_E_INVALID,
                       "chat template: ValueError: continue_final_message is set but the final message does not appear "
                       "in the chat after applying the chat template");
    }
    bool spaced = (size_t)at + sizeof tag - 1 <= text.n && text.p[(size_t)at + mark.n] == ' ';
    cut(out, spaced ? (size_t)at : rstrip((nb_str){text.p, (size_t)at}).n);
    return NB_OK;
}

/* ---- the variables ---- */

/* tools or documents; None where absent. */
static bool define_list(jctx *j, const char *name, const nb_json *v, bool omit_none, const char *what)
{
    if (!nb_json_present(v)) return omit_none || nbj_define(j, name, jv(J_NONE));
    if (v->type != NB_JSON_ARRAY) return nbj_fail(j, "TypeError", "%s is not a list", name), false;
    for (uint32_t i = 0; i < v->count; i++) {
        if (v->items[i].type != NB_JSON_OBJECT)
            return nbj_fail(j, "TypeError", "%s %u is not an object", what, i), false;
    }
    return nbj_define(j, name, nbj_from_json(j, v, false));
}

/* `functions`: the schemas as JSON text; `datetime`: this moment. What the caller gave stays. */
static bool define_functions(jctx *j, const nb_json *tools)
{
    jval ignored, format = nbj_cstr(j, "%B %d %Y %H:%M:%S");
    if (j_bad(format)) return false;
    if (!nbj_dict_find(j->globals, NB_LIT("datetime"), &ignored) &&
        !nbj_define(j, "datetime", nbj_strftime(j, format.u.s)))
        return false;
    if (nbj_dict_find(j->globals, NB_LIT("functions"), &ignored)) return true;
    jlist *l = nbj_list(j, 0);
    for (uint32_t i = 0; l && nb_json_present(tools) && i < tools->count; i++) {
        const nb_json *f = nb_json_get(&tools->items[i], "function");
        if (!nbj_push_val(j, l, nbj_from_json(j, f ? f : &tools->items[i], false))) return false;
    }
    return l && nbj_define(j, "functions", nbj_tojson(j, jv_list(l), false, jv_int(4), jv(J_NONE), false));
}

/* Tokens first, then the caller's variables, then what must not be overridden. */
static bool fill(jctx *j, const void *user)
{
    nb_chat_job *job = *(nb_chat_job *const *)user;
    const nb_chat_request *r = job->r;
    for (size_t i = 0; i < r->n_tokens; i++) {
        nb_str text = r->tokens[i].text;
        if (!nbj_define_str(j, r->tokens[i].name, nbj_str_ref(j, text.p, text.n, true))) return false;
    }
    for (uint32_t i = 0; r->variables && r->variables->type == NB_JSON_OBJECT && i < r->variables->count; i++) {
        if (!nbj_define_str(j, r->variables->keys[i], nbj_from_json(j, &r->variables->items[i], false))) return false;
    }
    if (job->functions && !define_functions(j, r->tools)) return false;
    jval messages = job->messages(j, job->user);
    if (j_bad(messages) || (r->continue_final_message && !tag_last(j, messages, job))) return false;
    return nbj_define(j, "messages", messages) && define_list(j, "tools", r->tools, job->omit_none, "tool") &&
           define_list(j, "documents", r->documents, job->omit_none, "document") &&
           nbj_define(j, "add_generation_prompt", jv_bool(r->add_generation_prompt));
}

nb_status nb_chat_run(nb_chat_job *job, const int64_t *now, nb_arena *arena, nb_prompt *out, nb_error *err)
{
    *out = (nb_prompt){0};
    job->arena = arena;
    if (job->r->continue_final_message && job->r->add_generation_prompt)
        return nb_fail(
            err, NB_E_USAGE,
            "chat template: ValueError: continue_final_message and add_generation_prompt cannot both be set");
    nbj_options o = {.fill = fill, .user = &job, .limits = job->limits, .now = now, .extend = job->extend};
    nb_status s = nbj_render(job->t, &o, arena, out, err);
    if (s == NB_OK && job->r->continue_final_message) s = cut_at_tag(job, out, err);
    for (size_t i = 0; s == NB_OK && job->r->trust_content && i < out->n; i++) out->spans[i].trusted = true;
    return s;
}

nb_status nb_chat_render_strict(const nb_template *t, const nb_chat_request *r, const int64_t *now, nb_arena *arena,
                                nb_prompt *out, nb_error *err)
{
    nb_chat_job job = {.t = t, .r = r, .messages = strict_messages, .user = r->messages};
    return nb_chat_run(&job, now, arena, out, err);
}
