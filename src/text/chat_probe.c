/* text/chat_probe: what a template can do, found by rendering small conversations with marked words and looking for the
 * marks.
 *
 * Nothing is concluded from the template's text. A conversation that raises, or a mark that does not appear, means
 * "cannot"; how the mark appears tells JSON from Python's own notation. */
#include "text/chat_internal.h"

#include <stdlib.h>

/* Marks: words that no template prints by itself. */
#define SYS  "qzsystemqz"
#define DEV  "qzdeveloperqz"
#define ASK  "qzaskqz"
#define ASK2 "qzsecondqz"
#define ANS  "qzanswerqz"
#define RES  "qzresultqz"
#define CALL "qz_call_qz"

#define USER(text)      "{\"role\": \"user\", \"content\": \"" text "\"}"
#define ASSISTANT(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define CALLS(content, args)                                                                                           \
    "{\"role\": \"assistant\"" content                                                                                 \
    ", \"tool_calls\": [{\"id\": \"abcdef123\", \"type\": \"function\", \"function\": {\"name\": \"" CALL              \
    "\", \"arguments\": " args "}}]}"
#define TWO_CALLS(args)                                                                                                \
    "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"abcdef123\", \"type\": \"function\", "   \
    "\"function\": {\"name\": \"" CALL "\", \"arguments\": " args                                                      \
    "}}, {\"id\": \"abcdef124\", \"type\": \"function\", \"function\": {\"name\": \"" CALL "\", \"arguments\": " args  \
    "}}]}"
#define RESULT      "{\"role\": \"tool\", \"tool_call_id\": \"abcdef123\", \"name\": \"" CALL "\", \"content\": \"" RES "\"}"
#define ARGS_OBJECT "{\"qzkey\": \"qzvalue\"}"
#define ARGS_TEXT   "\"{\\\"qzkey\\\": \\\"qzvalue\\\"}\""

static const char tools_text[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"" CALL
    "\", \"description\": \"d\", \"parameters\": {\"type\": \"object\", \"properties\": {\"qzkey\": "
    "{\"type\": \"string\", \"description\": \"k\"}}, \"required\": [\"qzkey\"]}}}]";

static const char documents_text[] = "[{\"title\": \"t\", \"text\": \"d\"}]";

enum { WITH_TOOLS = 1, WITH_DOCUMENTS = 2 };

/* Hostile templates get little time; there are about twenty probes. */
static const nb_render_limits probe_limits = {.steps = 300000, .output_bytes = 1 << 20, .memory_bytes = 64 << 20};
static const int64_t probe_now = 1767323045;
#define TOKEN(name, text)                                                                                              \
    {                                                                                                                  \
        {name, sizeof name - 1}, { text, sizeof text - 1 }                                                             \
    }
static const nb_chat_token probe_tokens[] = {TOKEN("bos_token", "<s>"), TOKEN("eos_token", "</s>"),
                                             TOKEN("unk_token", "<unk>"), TOKEN("pad_token", "<pad>")};

static jval probe_messages(jctx *j, const void *user)
{
    const nb_json *v = user;
    jlist *l = nbj_list(j, v->count);
    for (uint32_t i = 0; l && i < v->count; i++) {
        if (!nbj_push_val(j, l, nb_chat_message(j, &v->items[i]))) return jv(J_ERR);
    }
    return l ? jv_list(l) : jv(J_ERR);
}

/* Renders; the text goes into *out. False where the template fails. */
static bool render(const nb_template *t, const nb_chat_caps *c, const char *messages, int with, nb_buf *out)
{
    nb_json_doc doc = {0}, extra = {0};
    const char *text = with == WITH_TOOLS ? tools_text : documents_text;
    nb_prompt p = {0};
    nb_error err;
    nb_arena *arena = nb_arena_new(0);
    out->n = 0;
    bool ok = arena && nb_json_parse(&doc, messages, strlen(messages), "probe", NULL, &err) == NB_OK;
    ok = ok && (!with || nb_json_parse(&extra, text, strlen(text), "probe", NULL, &err) == NB_OK);
    if (ok) {
        nb_chat_request r = {.tools = with == WITH_TOOLS ? extra.root : NULL,
                             .documents = with == WITH_DOCUMENTS ? extra.root : NULL,
                             .add_generation_prompt = true,
                             .tokens = probe_tokens,
                             .n_tokens = NB_COUNT(probe_tokens)};
        nb_chat_job job = {.t = t,
                           .r = &r,
                           .messages = probe_messages,
                           .user = doc.root,
                           .extend = true,
                           .omit_none = c->omit_none,
                           .functions = c->functions,
                           .limits = &probe_limits};
        ok = nb_chat_run(&job, &probe_now, arena, &p, &err) == NB_OK;
    }
    for (size_t i = 0; ok && i < p.n; i++) nb_buf_add_str(out, p.spans[i].text);
    if (doc.arena) nb_json_free(&doc);
    if (extra.arena) nb_json_free(&extra);
    nb_arena_free(arena);
    return ok && !out->oom;
}

static bool has(const nb_buf *b, const char *mark) { return nb_str_has(nb_buf_str(b), mark); }

/* Both marks in the order given. */
static bool in_order(const nb_buf *b, const char *first, const char *second)
{
    nb_str s = nb_buf_str(b);
    int64_t a = nb_str_find(s, nb_str_of(first), 0);
    return a >= 0 && nb_str_find(s, nb_str_of(second), (size_t)a) >= 0;
}

static void probe_base(const nb_template *t, nb_chat_caps *c, nb_buf *out)
{
    for (int i = 0; i < 4 && !c->works; i++) {
        c->omit_none = (i & 1) != 0;
        c->functions = (i & 2) != 0;
        c->works = render(t, c, "[" USER(ASK) "]", 0, out);
    }
    c->text = c->works && has(out, ASK);
    if (!c->works) c->omit_none = c->functions = false;
    c->parts = render(t, c,
                      "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"" ASK
                      "\"}, {\"type\": \"text\", \"text\": \"" ASK2 "\"}]}]",
                      0, out) &&
               in_order(out, ASK, ASK2) && !has(out, "'text'") && !has(out, "\"text\"");
    c->works = c->works || c->parts;
    bool omit = c->omit_none;
    if (!omit && !render(t, c, "[" USER(ASK) "]", WITH_DOCUMENTS, out)) {
        c->omit_none = true;
        c->omit_with_documents = render(t, c, "[" USER(ASK) "]", WITH_DOCUMENTS, out);
        c->omit_none = omit;
    }
}

static void probe_roles(const nb_template *t, nb_chat_caps *c, nb_buf *out)
{
    c->system = render(t, c, "[{\"role\": \"system\", \"content\": \"" SYS "\"}, " USER(ASK) "]", 0, out) &&
                has(out, SYS) && has(out, ASK);
    c->developer = render(t, c, "[{\"role\": \"developer\", \"content\": \"" DEV "\"}, " USER(ASK) "]", 0, out) &&
                   has(out, DEV) && has(out, ASK);
    c->late_system =
        render(t, c,
               "[" USER(ASK) ", " ASSISTANT(ANS) ", {\"role\": \"system\", \"content\": \"" SYS "\"}, " USER(ASK2) "]",
               0, out) &&
        in_order(out, ANS, SYS) && in_order(out, SYS, ASK2);
    c->repeats = render(t, c, "[" USER(ASK) ", " USER(ASK2) "]", 0, out) && in_order(out, ASK, ASK2);
    c->repeats = c->repeats &&
                 render(t, c, "[" USER(ASK) ", " ASSISTANT(ANS) ", " ASSISTANT(SYS) ", " USER(ASK2) "]", 0, out) &&
                 in_order(out, ANS, SYS);
}

static void probe_empty(const nb_template *t, nb_chat_caps *c, nb_buf *out)
{
    c->empty_answer = render(t, c, "[" USER(ASK) ", " ASSISTANT("") ", " USER(ASK2) "]", 0, out) ||
                      !render(t, c, "[" USER(ASK) ", " ASSISTANT(ANS) ", " USER(ASK2) "]", 0, out);
}

/* JSON of the arguments as JSON, not as a quoted string and not as Python prints a dict. */
static bool shows_args(const nb_buf *out)
{
    return has(out, CALL) && has(out, "qzvalue") && !has(out, "\\\"qzkey\\\"") && !has(out, "'qzkey'");
}

/* Content and reasoning beside a call, where each works alone. */
static void probe_thoughts(const nb_template *t, nb_chat_caps *c, bool object, nb_buf *out)
{
#define THOUGHT     ", \"reasoning_content\": \"" ANS "\""
#define TURN(calls) "[" USER(ASK) ", " calls ", " RESULT "]"
    static const char *const both[2] = {TURN(CALLS(", \"content\": \"" SYS "\"" THOUGHT, ARGS_TEXT)),
                                        TURN(CALLS(", \"content\": \"" SYS "\"" THOUGHT, ARGS_OBJECT))};
    static const char *const alone[2] = {TURN(CALLS(", \"content\": \"\"" THOUGHT, ARGS_TEXT)),
                                         TURN(CALLS(", \"content\": \"\"" THOUGHT, ARGS_OBJECT))};
#undef THOUGHT
#undef TURN
    c->thought_or_said = !render(t, c, both[object], WITH_TOOLS, out) && render(t, c, alone[object], WITH_TOOLS, out);
}

static void probe_tools(const nb_template *t, nb_chat_caps *c, nb_buf *out)
{
#define ROUND(calls) "[" USER(ASK) ", " calls ", " RESULT ", " ASSISTANT(ANS) ", " USER(ASK2) "]"
    static const char *const object = ROUND(CALLS(", \"content\": \"\"", ARGS_OBJECT)), *const text = ROUND(
                                                                                            CALLS(", \"content\": \"\"",
                                                                                                  ARGS_TEXT));
    static const char *const bare = ROUND(CALLS("", ARGS_OBJECT)), *const bare_text = ROUND(CALLS("", ARGS_TEXT));
    static const char *const call_only =
                                 "[" USER(ASK) ", " CALLS(", \"content\": \"\"", ARGS_OBJECT) ", " USER(ASK2) "]",
                             *const said_only = "[" USER(ASK) ", " ASSISTANT(ANS) ", " RESULT ", " USER(ASK2) "]";
    bool ok_object = render(t, c, object, WITH_TOOLS, out);
    c->args_object = ok_object && shows_args(out);
    bool ok_text = render(t, c, text, WITH_TOOLS, out);
    c->args_text = ok_text && shows_args(out);
    bool ok = ok_object || ok_text;
    /* A template that fails at a whole round may still take a part of it; one that drops the part does not. */
    c->tool = ok || (render(t, c, said_only, WITH_TOOLS, out) && has(out, RES));
    c->calls = ok || (render(t, c, call_only, WITH_TOOLS, out) && has(out, CALL));
    if (ok_object || ok_text) probe_thoughts(t, c, ok_object, out);
    c->no_content =
        render(t, c, c->args_object || !c->args_text ? bare : bare_text, WITH_TOOLS, out) && !has(out, "None");
    c->parallel = !ok || render(t, c,
                                c->args_object || !c->args_text
                                    ? "[" USER(ASK) ", " TWO_CALLS(ARGS_OBJECT) ", " RESULT ", " RESULT "]"
                                    : "[" USER(ASK) ", " TWO_CALLS(ARGS_TEXT) ", " RESULT ", " RESULT "]",
                                WITH_TOOLS, out);
#undef ROUND
}

nb_chat_caps nb_chat_probe(const nb_template *t)
{
    nb_chat_caps *old = __atomic_load_n(&t->caps, __ATOMIC_ACQUIRE);
    if (old) return *old;
    nb_chat_caps c = {0};
    nb_buf out = {0};
    probe_base(t, &c, &out);
    probe_roles(t, &c, &out);
    probe_empty(t, &c, &out);
    probe_tools(t, &c, &out);
    nb_buf_free(&out);
    nb_chat_caps *mine = malloc(sizeof *mine);
    if (!mine) return c;
    *mine = c;
    old = NULL;
    /* A template is shared by threads: the first one's result stays, they are equal. */
    if (!__atomic_compare_exchange_n(&((nb_template *)t)->caps, &old, mine, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        free(mine);
    return c;
}
