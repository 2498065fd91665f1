/* text/jinja_parse: shared by the two halves of the parser. */
#ifndef NB_TEXT_JINJA_PARSE_H
#define NB_TEXT_JINJA_PARSE_H

#include "text/jinja.h"

typedef struct jparser {
    nb_template *t;
    const jtoken *k;         /* the next token */
    nb_map names;            /* text -> index in name_list */
    nb_buf name_list, stack; /* const jstr *; nodes being gathered */
    uint32_t depth;
    nb_status status;
    nb_error *err;
} jparser;

enum {
    TUPLE_PARENS = 1,    /* inside ( ): may be empty */
    TUPLE_TARGETS = 2,   /* only names and literals */
    TUPLE_NAMESPACE = 4, /* a.b may be a target */
    TUPLE_NO_COND = 8,   /* no inline if */
};

/* All return NULL (or false) with p->status and the error set. */
void *nbj_syntax_fail(jparser *p, uint32_t pos, const char *fmt, ...) NB_PRINTF(3, 4);
void *nbj_parse_oom(jparser *p);
const char *nbj_describe(const jtoken *k);
bool nbj_is_name(const jparser *p, const char *word);
bool nbj_skip_name(jparser *p, const char *word);
bool nbj_skip(jparser *p, jtok t);
bool nbj_expect(jparser *p, jtok t);
bool nbj_deeper(jparser *p); /* caller decrements p->depth afterwards */
jnode *nbj_node(jparser *p, jkind kind, uint32_t pos, jnode *a, jnode *b);
const jstr *nbj_name_of(jparser *p, nb_str text);
bool nbj_keep(jparser *p, const void *n);
jblock nbj_take(jparser *p, size_t from);
jnode *nbj_primary(jparser *p, bool with_namespace);
jnode *nbj_tuple(jparser *p, int flags);
jnode *nbj_expr(jparser *p, bool with_cond);
jcallargs *nbj_call_args(jparser *p);
jnode *nbj_filters(jparser *p, jnode *n, bool start_inline);

#endif
