/* text/chat_internal: shared by chat_strict.c, chat_product.c and chat_probe.c. */
#ifndef NB_TEXT_CHAT_INTERNAL_H
#define NB_TEXT_CHAT_INTERNAL_H

#include "text/jinja.h"

/* The messages as values, ready for the template. J_ERR: error set. */
typedef jval nb_chat_messages_fn(jctx *j, const void *user);

typedef struct nb_chat_job {
    const nb_template *t;
    const nb_chat_request *r;
    nb_chat_messages_fn *messages;
    const void *user; /* for messages */
    bool extend;      /* product mode */
    bool omit_none;   /* absent tools and documents are undefined, not None */
    bool functions;   /* define `functions` and `datetime`, which some templates want instead of tools */
    const nb_render_limits *limits;
    nb_arena *arena;   /* the caller's */
    nb_str final_text; /* continue_final_message: what is continued; in that arena, since it outlives the rendering */
} nb_chat_job;

nb_status nb_chat_run(nb_chat_job *job, const int64_t *now, nb_arena *arena, nb_prompt *out, nb_error *err);
/* One message as transformers prepares it: keys with null dropped, reasoning under all its names, known roles trusted.
 */
jval nb_chat_message(jctx *j, const nb_json *m);
jval nb_chat_alias_reasoning(jctx *j, jval message);
jval nb_chat_role(jctx *j, nb_str role);

/* What a template can do, found by rendering small conversations. */
typedef struct nb_chat_caps {
    bool works;               /* renders a plain question */
    bool omit_none;           /* fails when absent tools are None, works when they are undefined */
    bool omit_with_documents; /* the same, where documents are given */
    bool functions;           /* fails unless `functions` and `datetime` are given */
    bool text, parts;         /* shows content given as a string; as a list of parts */
    bool system, late_system, developer;
    bool repeats;         /* takes two messages of one role in a row */
    bool empty_answer;    /* takes an assistant message with nothing in it */
    bool args_object;     /* shows arguments given as an object */
    bool args_text;       /* shows arguments given as JSON text */
    bool calls, tool;     /* takes tool calls; takes results under the role "tool" */
    bool parallel;        /* takes several calls in one message */
    bool no_content;      /* takes an assistant message without content beside tool calls */
    bool thought_or_said; /* beside tool calls it takes content or reasoning, and fails with both */
} nb_chat_caps;
/* Probed on first use, then kept with the template. */
nb_chat_caps nb_chat_probe(const nb_template *t);

#endif
