/* text/chat_product: chat rendering that answers where a template would fail for reasons that are not the user's.
 *
 * What is done to a conversation depends on the template's abilities (chat_probe.c) and on each message, never on
 * whether a rendering failed: so the prompt of the next turn begins with the prompt of this one. docs/chat.md lists the
 * steps. */
#include "text/chat_internal.h"

typedef struct jproduct {
    const nb_chat_request *r;
    nb_chat_caps caps;
} jproduct;

static jval get(jval m, const char *key)
{
    jval v = jv(J_MISSING);
    nbj_dict_find(m.u.d, nb_str_of(key), &v);
    return v;
}

static bool set(jctx *j, jval m, const char *key, jval v) { return nbj_dict_set(j, m.u.d, nbj_cstr(j, key), v); }
static bool is_role(jval m, const char *role)
{
    jval v = get(m, "role");
    return v.t == J_STR && nb_str_is(js_view(v.u.s), role);
}
static bool has_calls(jval m)
{
    jval v = get(m, "tool_calls");
    return v.t == J_LIST && v.u.l->n > 0;
}

/* ---- content ---- */

/* The texts of parts, one behind the other. */
static jval join_parts(jctx *j, const jlist *parts)
{
    jbuf *b = nbj_push(j);
    for (uint32_t i = 0; b && i < parts->n; i++) {
        jval part = parts->v[i], text = part.t == J_DICT ? get(part, "text") : part;
        if (text.t == J_STR) {
            nbj_add_str(j, b, text.u.s);
            continue;
        }
        jval type = part.t == J_DICT ? get(part, "type") : jv(J_MISSING); /* an image, say: its place stays visible */
        nbj_add(j, b, "[", 1, false);
        if (type.t == J_STR) nbj_add_str(j, b, type.u.s);
        nbj_add(j, b, "]", 1, false);
    }
    return nbj_pop(j);
}

/* A text as the only part of a list. */
static jval wrap_text(jctx *j, jval text)
{
    jdict *d = nbj_dict(j, 2);
    jlist *l = nbj_list(j, 1);
    if (!d || !l || !set(j, jv_dict(d), "type", nbj_cstr(j, "text")) || !set(j, jv_dict(d), "text", text))
        return jv(J_ERR);
    nbj_push_val(j, l, jv_dict(d));
    d->req = l->req = true;
    return jv_list(l);
}

/* Content in the form that the template shows. */
static bool shape_content(jctx *j, jval m, const nb_chat_caps *c)
{
    jval v = get(m, "content");
    if (v.t == J_MISSING) {
        if (has_calls(m) && c->no_content) return true;
        return set(j, m, "content", nbj_cstr(j, ""));
    }
    if (v.t == J_LIST && !c->parts) return set(j, m, "content", join_parts(j, v.u.l));
    if (v.t == J_STR && !c->text && c->parts) return set(j, m, "content", wrap_text(j, v));
    return true;
}

/* ---- tool calls ---- */

/* Two texts as paragraphs; an empty one adds nothing. */
static jval blank_line(jctx *j, jval a, jval b)
{
    if (a.t != J_STR) return b;
    if (b.t != J_STR) return a;
    if (!a.u.s->n || !b.u.s->n) return a.u.s->n ? a : b;
    jval gap = nbj_str_ref(j, "\n\n", 2, false);
    jval left = j_bad(gap) ? gap : nbj_concat(j, a.u.s, gap.u.s);
    return j_bad(left) ? left : nbj_concat(j, left.u.s, b.u.s);
}

/* A shallow copy: values are shared, keys can be changed. */
static jval copy_dict(jctx *j, jval from)
{
    jdict *d = nbj_dict(j, from.u.d->n + 1);
    for (uint32_t i = 0; d && i < from.u.d->n; i++) {
        if (!nbj_dict_set(j, d, from.u.d->e[i].key, from.u.d->e[i].val)) return jv(J_ERR);
    }
    if (d) d->req = from.u.d->req;
    return d ? jv_dict(d) : jv(J_ERR);
}

/* Arguments as the template wants them: an object, or the JSON text. What is no JSON object stays text. */
static jval shape_args(jctx *j, jval args, const nb_chat_caps *c)
{
    if (args.t == J_STR && (c->args_object || !c->args_text)) {
        jval v = nbj_parse_json(j, args.u.s);
        return v.t == J_DICT ? v : args;
    }
    if (args.t == J_DICT && !c->args_object && c->args_text)
        return nbj_tojson(j, args, false, jv(J_NONE), jv(J_NONE), false);
    return args;
}

/* A call that came without its "function" around name and arguments gets one. */
static jval wrap_call(jctx *j, jval call)
{
    if (call.t != J_DICT || get(call, "function").t != J_MISSING || get(call, "name").t == J_MISSING) return call;
    jdict *d = nbj_dict(j, 3);
    jval id = get(call, "id");
    if (!d) return jv(J_ERR);
    d->req = true;
    if (id.t != J_MISSING && !set(j, jv_dict(d), "id", id)) return jv(J_ERR);
    return set(j, jv_dict(d), "type", nbj_cstr(j, "function")) && set(j, jv_dict(d), "function", call) ? jv_dict(d)
                                                                                                       : jv(J_ERR);
}

/* Arguments of every call of a message. */
static bool shape_calls(jctx *j, jval m, const nb_chat_caps *c)
{
    jval calls = get(m, "tool_calls");
    if (calls.t != J_LIST) return true;
    for (uint32_t i = 0; i < calls.u.l->n; i++) {
        jval call = calls.u.l->v[i] = wrap_call(j, calls.u.l->v[i]);
        if (j_bad(call)) return false;
        jval fn = call.t == J_DICT ? get(call, "function") : jv(J_MISSING);
        if (fn.t == J_DICT) call = fn;
        if (call.t != J_DICT || get(call, "arguments").t == J_MISSING) continue;
        jval args = shape_args(j, get(call, "arguments"), c);
        if (!set(j, call, "arguments", args)) return false;
    }
    return true;
}

/* A template that knows no calls gets them as text: one JSON object a line after what the assistant said. */
static bool calls_as_text(jctx *j, jval m, const nb_chat_caps *c)
{
    jval calls = get(m, "tool_calls"), said = get(m, "content");
    if (said.t == J_LIST) said = join_parts(j, said.u.l);
    jbuf *b = nbj_push(j);
    if (!b) return false;
    if (said.t == J_STR) nbj_add_str(j, b, said.u.s);
    for (uint32_t i = 0; i < calls.u.l->n; i++) {
        jval call = calls.u.l->v[i], fn = call.t == J_DICT ? get(call, "function") : jv(J_MISSING);
        jval text = nbj_tojson(j, fn.t == J_DICT ? copy_dict(j, fn) : call, false, jv(J_NONE), jv(J_NONE), false);
        if (j_bad(text)) return false;
        if (b->n) nbj_add(j, b, "\n", 1, false);
        nbj_add_str(j, b, text.u.s);
    }
    jlist *none = nbj_list(j, 0);
    return none && set(j, m, "content", nbj_pop(j)) && set(j, m, "tool_calls", jv_list(none)) && shape_content(j, m, c);
}

/* A template that takes either content or reasoning beside tool calls gets both as reasoning. */
static bool join_reasoning(jctx *j, jval m)
{
    jval said = get(m, "content"), thought = get(m, "reasoning_content");
    if (said.t == J_LIST) said = join_parts(j, said.u.l);
    if (said.t != J_STR || thought.t != J_STR || !said.u.s->n || !thought.u.s->n) return !j_bad(said);
    jval both = blank_line(j, thought, said);
    return set(j, m, "content", nbj_cstr(j, "")) && set(j, m, "thinking", both) && set(j, m, "reasoning_content", both);
}

/* ---- roles ---- */

/* Two contents as one: texts with a blank line between, parts one after the other. */
static jval join_content(jctx *j, jval a, jval b)
{
    if (a.t != J_LIST && b.t != J_LIST) return blank_line(j, a, b);
    jlist *l = nbj_list(j, 4);
    const jval both[2] = {a.t == J_STR ? wrap_text(j, a) : a, b.t == J_STR ? wrap_text(j, b) : b};
    for (int k = 0; l && k < 2; k++) {
        for (uint32_t i = 0; both[k].t == J_LIST && i < both[k].u.l->n; i++) nbj_push_val(j, l, both[k].u.l->v[i]);
    }
    return l ? jv_list(l) : jv(J_ERR);
}

static jval new_message(jctx *j, const char *role, jval content)
{
    jdict *d = nbj_dict(j, 2);
    if (!d || !set(j, jv_dict(d), "role", nbj_cstr(j, role)) || !set(j, jv_dict(d), "content", content))
        return jv(J_ERR);
    return jv_dict(d);
}

/* The role as the template knows it. */
static bool shape_role(jctx *j, jval m, const nb_chat_caps *c)
{
    if (is_role(m, "developer") && !c->developer && !set(j, m, "role", nbj_cstr(j, "system"))) return false;
    if (is_role(m, "assistant") && has_calls(m) && (!c->calls || !c->tool) && !calls_as_text(j, m, c)) return false;
    if (is_role(m, "tool") && !c->tool && !set(j, m, "role", nbj_cstr(j, "user"))) return false;
    return true;
}

/* May b join a? A message with tool calls ends its turn. */
static bool joins(jval a, jval b, const nb_chat_caps *c)
{
    if (c->repeats || has_calls(a)) return false;
    return (is_role(a, "user") && is_role(b, "user")) || (is_role(a, "assistant") && is_role(b, "assistant"));
}

/* Adds b's content and calls to a. */
static bool join_into(jctx *j, jval a, jval b)
{
    if (!set(j, a, "content", join_content(j, get(a, "content"), get(b, "content")))) return false;
    return !has_calls(b) || set(j, a, "tool_calls", get(b, "tool_calls"));
}

/* An assistant message with nothing in it. */
static bool says_nothing(jval m)
{
    jval content = get(m, "content");
    return is_role(m, "assistant") && !has_calls(m) && content.t == J_STR && !content.u.s->n &&
           get(m, "reasoning_content").t == J_MISSING;
}

/* Adds m to the conversation. *held: system text that waits for the next user turn. */
static bool add(jctx *j, jlist *out, jval m, const nb_chat_caps *c, jval *held)
{
    jval last = out->n ? out->v[out->n - 1] : jv(J_MISSING);
    bool system = is_role(m, "system");
    if (!c->empty_answer && says_nothing(m)) return true;
    if (system && last.t != J_MISSING && is_role(last, "system") && !c->late_system) return join_into(j, last, m);
    if (system && !(out->n ? c->late_system : c->system)) {
        *held = join_content(j, *held, get(m, "content"));
        return !j_bad(*held);
    }
    if (held->t != J_MISSING && is_role(m, "user")) {
        if (!set(j, m, "content", join_content(j, *held, get(m, "content")))) return false;
        *held = jv(J_MISSING);
    } else if (held->t != J_MISSING && !out->n) { /* nobody asked yet: the instructions open the conversation */
        if (!nbj_push_val(j, out, new_message(j, "user", *held))) return false;
        *held = jv(J_MISSING);
    }
    if (last.t != J_MISSING && joins(last, m, c)) return join_into(j, last, m);
    return nbj_push_val(j, out, m);
}

/* ---- several calls in one message, for a template that takes one ---- */

static bool answers(jval result, jval call)
{
    jval want = get(result, "tool_call_id"), id = call.t == J_DICT ? get(call, "id") : jv(J_MISSING);
    return want.t == J_STR && id.t == J_STR && nb_str_eq(js_view(want.u.s), js_view(id.u.s));
}

/* The message with only call number k; what was said stands before the first. */
static jval one_call(jctx *j, jval m, uint32_t k)
{
    jlist *one = nbj_list(j, 1);
    jval copy = copy_dict(j, m);
    if (!one || j_bad(copy) || !nbj_push_val(j, one, get(m, "tool_calls").u.l->v[k])) return jv(J_ERR);
    one->req = true;
    if (!set(j, copy, "tool_calls", jv_list(one))) return jv(J_ERR);
    return k == 0 || set(j, copy, "content", nbj_cstr(j, "")) ? copy : jv(J_ERR);
}

/* Each call followed by its result: by id, else in order. */
static jlist *serial_calls(jctx *j, const jlist *in)
{
    jlist *out = nbj_list(j, in->n + 4);
    for (uint32_t i = 0; out && i < in->n; i++) {
        jval m = in->v[i];
        uint32_t calls = has_calls(m) ? get(m, "tool_calls").u.l->n : 0, results = 0;
        if (calls < 2) {
            if (!nbj_push_val(j, out, m)) return NULL;
            continue;
        }
        while (i + 1 + results < in->n && is_role(in->v[i + 1 + results], "tool")) results++;
        bool *used = nbj_array(j, results + 1, sizeof *used);
        for (uint32_t k = 0; used && k < calls; k++) {
            if (!nbj_push_val(j, out, one_call(j, m, k))) return NULL;
            uint32_t pick = results;
            for (uint32_t r = 0; r < results && pick == results; r++)
                pick = !used[r] && answers(in->v[i + 1 + r], get(m, "tool_calls").u.l->v[k]) ? r : pick;
            for (uint32_t r = 0; r < results && pick == results; r++)
                pick = !used[r] && get(in->v[i + 1 + r], "tool_call_id").t == J_MISSING ? r : pick;
            if (pick == results) continue;
            used[pick] = true;
            if (!nbj_push_val(j, out, in->v[i + 1 + pick])) return NULL;
        }
        for (uint32_t r = 0; used && r < results; r++) {
            if (!used[r] && !nbj_push_val(j, out, in->v[i + 1 + r])) return NULL;
        }
        if (!used) return NULL;
        i += results;
    }
    return out;
}

static jval product_messages(jctx *j, const void *user)
{
    const jproduct *p = user;
    const nb_json *messages = p->r->messages;
    if (!messages || messages->type != NB_JSON_ARRAY) return nbj_fail(j, "TypeError", "messages is not a list");
    jlist *in = nbj_list(j, messages->count), *out = nbj_list(j, messages->count + 1);
    for (uint32_t i = 0; in && i < messages->count; i++) {
        if (!nbj_push_val(j, in, nb_chat_message(j, &messages->items[i]))) return jv(J_ERR);
    }
    if (in && p->caps.calls && !p->caps.parallel) in = serial_calls(j, in);
    jval held = jv(J_MISSING);
    for (uint32_t i = 0; in && out && i < in->n; i++) {
        jval m = in->v[i];
        if (!shape_content(j, m, &p->caps) || !shape_calls(j, m, &p->caps) || !shape_role(j, m, &p->caps))
            return jv(J_ERR);
        if (p->caps.thought_or_said && is_role(m, "assistant") && has_calls(m) && !join_reasoning(j, m))
            return jv(J_ERR);
        jval thought = get(m, "reasoning_content");
        if (thought.t != J_MISSING && !set(j, m, "reasoning", thought)) return jv(J_ERR);
        if (!add(j, out, m, &p->caps, &held)) return jv(J_ERR);
    }
    if (out && held.t != J_MISSING && !nbj_push_val(j, out, new_message(j, "user", held))) return jv(J_ERR);
    if (!in || !out) return jv(J_ERR);
    out->req = true;
    return jv_list(out);
}

nb_status nb_chat_render(const nb_template *t, const nb_chat_request *r, const int64_t *now, nb_arena *arena,
                         nb_prompt *out, nb_error *err)
{
    jproduct p = {.r = r, .caps = nb_chat_probe(t)};
    bool omit = p.caps.omit_none || (p.caps.omit_with_documents && nb_json_present(r->documents));
    nb_chat_job job = {.t = t,
                       .r = r,
                       .messages = product_messages,
                       .user = &p,
                       .extend = true,
                       .omit_none = omit,
                       .functions = p.caps.functions};
    return nb_chat_run(&job, now, arena, out, err);
}
