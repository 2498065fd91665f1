/* text/jinja: inside of the template engine; only the files jinja_*.c and chat_*.c include it.
 *
 * Three stages: jinja_lex.c makes tokens, jinja_parse.c an AST, jinja_scope.c gives every name a slot, as Jinja's own
 * compiler does, so that scoping is decided before anything runs. All three write into the template's arena; afterwards
 * a template never changes. jinja_eval.c walks the tree. Values of one rendering live in the rendering's arena.
 *
 * Every string knows where each of its bytes came from: the template (trusted) or the request. A string with one origin
 * has nruns == 0; else its runs tile it, the last run may reach beyond n (strings share run arrays).
 * Where an operation cannot tell, its result counts as the request's.
 */
#ifndef NB_TEXT_JINJA_H
#define NB_TEXT_JINJA_H

#include "text/chat.h"

enum {
    NBJ_MAX_SOURCE = 1 << 20, /* bytes of a template */
    NBJ_MAX_NODE_DEPTH = 200, /* nesting of an expression or of blocks */
    NBJ_MAX_MACRO_DEPTH = 150,
    NBJ_MAX_RANGE = 100000,   /* the sandbox's own limit */
    NBJ_MAX_DATA_DEPTH = 200, /* nesting of lists and dicts that can be printed or compared */
};

/* ---- values ---- */

typedef enum jtype {
    J_MISSING, /* no value: an unset slot, an argument not given. Zeroed memory */
    J_ERR,     /* evaluation failed; the text is in the context */
    J_UNDEF,
    J_NONE,
    J_BOOL,
    J_INT,
    J_BIG, /* an integer outside int64 */
    J_FLOAT,
    J_STR,
    J_LIST,
    J_TUPLE,
    J_DICT,
    J_NS, /* namespace(): u.d */
    J_RANGE,
    J_VIEW, /* dict.keys(), .values(), .items() */
    J_ITER, /* lazy result of map, select, ...; can be read once */
    J_MACRO,
    J_METHOD, /* a method bound to its object */
    J_FUNC,   /* a global function or type */
    J_LOOP,
    J_CYCLER,
    J_JOINER,
    J_SELF, /* `self`, the blocks of a template: there are none */
} jtype;

typedef struct jctx jctx;
typedef struct jval jval;
typedef struct jnode jnode;

typedef struct jrun {
    uint32_t end;
    bool trusted;
} jrun;

/* Space behind a string and behind its runs, so that s + x in a loop need not copy s each time. */
typedef struct jgrow {
    uint32_t used, cap;
    char *p;
    jrun *runs; /* of the string that ends at used; NULL: it has none */
    uint32_t nruns, capruns;
} jgrow;

typedef struct jstr {
    const char *p;     /* valid UTF-8 */
    uint32_t n, chars; /* chars: code points, UINT32_MAX while not counted */
    const jrun *runs;
    jgrow *grow; /* or NULL */
    uint32_t nruns;
    bool trusted; /* origin where nruns == 0 */
    bool markup;  /* came through |safe or |escape: adding plain text escapes that text */
} jstr;

typedef struct jundef jundef;
typedef struct jbig {
    bool neg;
    uint32_t n;
    uint32_t d[];
} jbig; /* base 1e9, least first */
typedef struct jrange {
    int64_t start, stop, step, len;
} jrange;
typedef struct jlist jlist;
typedef struct jdict jdict;
typedef struct jview {
    jdict *d;
    int kind;
} jview; /* 0 keys, 1 values, 2 items */
typedef struct jiter jiter;
typedef struct jmacro jmacro;
typedef struct jmethod jmethod;
typedef struct jfuncdef jfuncdef;
typedef struct jloop jloop;
typedef struct jcycler {
    jval *v;
    uint32_t n, pos;
} jcycler;
typedef struct jjoiner jjoiner;

struct jval {
    uint8_t t;
    bool req; /* a number of the request: what it prints is the request's */
    union {
        bool b;
        int64_t i;
        double f;
        const jbig *big;
        const jstr *s;
        jlist *l;
        jdict *d;
        const jundef *un;
        const jrange *range;
        const jview *view;
        jiter *it;
        jmacro *macro;
        const jmethod *method;
        const jfuncdef *func;
        jloop *loop;
        jcycler *cycler;
        jjoiner *joiner;
        void *p;
    } u;
};

struct jjoiner {
    jval sep;
    bool used;
};

/* Why a value is undefined; the words are made only when it is used. */
struct jundef {
    const char *hint;  /* words with at most one %.*s, for the name; or NULL */
    const char *owner; /* type of the object that lacks `key`; or NULL */
    const jstr *name;
    jval key;
    const char *exc; /* NULL: UndefinedError */
};

struct jlist {
    jval *v;
    uint32_t n, cap;
    bool req;   /* came with the request: not to be changed, prints as the request's */
    bool group; /* a (grouper, list) pair of groupby */
};

typedef struct jentry {
    jval key, val;
    uint32_t hash;
} jentry;
struct jdict {
    jentry *e; /* in order of insertion */
    uint32_t n, cap;
    uint32_t *index; /* open addressing, entry + 1; NULL while small */
    uint32_t mask;
    bool req;
};

/* next: 1 an item, 0 the end, -1 an error. Fields beyond src and pos are the kind's own. */
struct jiter {
    int (*next)(jctx *j, jiter *it, jval *out);
    jval src;
    uint64_t pos;
    jiter *in;
    jval a, b;
    void *p;
    bool done;
};

typedef struct jkw {
    const jstr *name;
    jval v;
} jkw;
typedef struct jargs {
    jval *v;
    uint32_t n;
    jkw *kw;
    uint32_t nkw;
} jargs;

typedef jval jcall_fn(jctx *j, jval self, const jargs *a);
typedef struct jmethdef {
    const char *name;
    jcall_fn *fn;
} jmethdef; /* fn NULL: exists in Python, refused here by name */
struct jmethod {
    jval self;
    const jmethdef *def;
};
struct jfuncdef {
    const char *name;
    jcall_fn *fn;
};

static inline jval jv(jtype t) { return (jval){.t = (uint8_t)t, .u.p = NULL}; }
static inline jval jv_bool(bool b) { return (jval){.t = J_BOOL, .u.b = b}; }
static inline jval jv_int(int64_t i) { return (jval){.t = J_INT, .u.i = i}; }
static inline jval jv_float(double f) { return (jval){.t = J_FLOAT, .u.f = f}; }
static inline jval jv_str(const jstr *s) { return (jval){.t = J_STR, .u.s = s}; }
static inline jval jv_list(jlist *l) { return (jval){.t = J_LIST, .u.l = l}; }
static inline jval jv_tuple(jlist *l) { return (jval){.t = J_TUPLE, .u.l = l}; }
static inline jval jv_dict(jdict *d) { return (jval){.t = J_DICT, .u.d = d}; }
static inline bool j_bad(jval v) { return v.t == J_ERR; }
static inline nb_str js_view(const jstr *s) { return (nb_str){s->p, s->n}; }

/* ---- AST ---- */

typedef enum jkind {
    N_CONST,
    N_NAME,
    N_NSREF,
    N_TUPLE,
    N_LIST,
    N_DICT,
    N_COND,
    N_OR,
    N_AND,
    N_NOT,
    N_NEG,
    N_POS,
    N_COMPARE,
    N_OPERAND,
    N_CONCAT,
    N_BIN,
    N_GETATTR,
    N_GETITEM,
    N_SLICE,
    N_CALL,
    N_FILTER,
    N_TEST,
    N_DATA,
    N_OUTPUT,
    N_FOR,
    N_IF,
    N_MACRO,
    N_CALLBLOCK,
    N_FILTERBLOCK,
    N_SET,
    N_SETBLOCK,
    N_WITH,
    N_BREAK,
    N_CONTINUE,
    N_GENERATION,
    N_REFUSED,
} jkind;

typedef enum jop {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_DIV,
    OP_FLOORDIV,
    OP_MOD,
    OP_POW,
    OP_EQ,
    OP_NE,
    OP_LT,
    OP_LE,
    OP_GT,
    OP_GE,
    OP_IN,
    OP_NOTIN,
} jop;

/* A variable: `up` functions outwards, then slot. */
typedef struct jref {
    uint16_t up;
    uint32_t slot;
} jref;

typedef enum jload { L_PARAM, L_RESOLVE, L_ALIAS, L_UNDEF, L_SELF } jload;
typedef struct jloadop {
    jload op;
    uint32_t slot;
    jref from;
    const jstr *name;
} jloadop;
/* What a frame does to its slots when it is entered. */
typedef struct jscope {
    jloadop *ops;
    uint32_t n;
} jscope;

typedef struct jblock {
    jnode **v;
    uint32_t n;
} jblock;

typedef struct jcallargs {
    jblock pos;
    const jstr **kwname;
    jblock kw;
    jnode *dyn, *dynkw;
} jcallargs;

/* Parts of a statement that opens frames. */
typedef struct jbody {
    jblock params, defaults; /* macro, call: N_NAME nodes and expressions */
    jblock main, other;      /* body, else */
    jscope scope, else_scope, test_scope;
    uint32_t nslots, test_nslots; /* of the function that this opens (macro, call, recursive loop; loop filter) */
    uint32_t *param_slot;
    jref self;                        /* macro: where its value goes; loop: its `loop` */
    uint32_t caller, kwargs, varargs; /* slots + 1, 0: not used */
    bool explicit_caller, recursive, extended;
} jbody;

struct jnode {
    uint8_t kind, op, ctx; /* ctx of a name: 'l' load, 's' store, 'p' parameter */
    bool unknown;          /* filter or test without a definition: fails when it is run */
    bool folded; /* a slice in an output of constants: Jinja computes it when compiling, where a type error gives
                    undefined */
    uint16_t depth;
    uint32_t pos; /* offset in the source */
    const jstr *name;
    jnode *a, *b, *c;
    jblock kids;
    jval value;
    jref ref;
    jcallargs *args;
    jbody *body;
    const void *def; /* filter or test */
};

struct nb_template {
    nb_arena *arena;
    char *source; /* line ends normalised, one trailing newline dropped */
    uint32_t n;
    jblock root;
    jscope scope;
    uint32_t nslots;
    const jnode *unknown;      /* a filter that only product mode has, where Jinja would not compile */
    struct nb_chat_caps *caps; /* probed by product mode on first use; set once, atomically */
};

typedef enum jtok {
    T_EOF,
    T_DATA,
    T_VAR_BEGIN,
    T_VAR_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INT,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_DIV,
    T_FLOORDIV,
    T_MUL,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
} jtok;
typedef struct jtoken {
    uint8_t t;
    uint32_t pos;
    nb_str text;
} jtoken; /* text: name, number literal, decoded string, data */

/* Tokens of t->source, ended by T_EOF. */
nb_status nbj_lex(nb_template *t, jtoken **out, uint32_t *count, nb_error *err);
nb_status nbj_parse(nb_template *t, const jtoken *tok, uint32_t n, nb_error *err);
nb_status nbj_scope(nb_template *t, nb_error *err);
/* "chat template: line L, column C: TYPE: ..." */
nb_status nbj_syntax(const nb_template *t, uint32_t pos, nb_error *err, const char *type, const char *fmt, ...)
    NB_PRINTF(5, 6);
void nbj_position(const char *src, uint32_t n, uint32_t pos, uint32_t *line, uint32_t *column);
jstr *nbj_const_str(nb_arena *a, const char *p, size_t n, bool trusted);
void *nbj_copy(nb_arena *a, const void *p, size_t count, size_t size); /* aligned for any type */
/* Integer or float literal without underscores; J_ERR when it is too long or memory is out. */
jval nbj_literal(nb_arena *a, nb_str text, bool is_float);

/* ---- one rendering ---- */

typedef struct jact jact;
struct jact {
    jact *up;
    jval *slot;
}; /* one call of a function: its variables */

/* Output and string builder, malloc'ed; kept in the context's pool, used as a stack. */
typedef struct jbuf {
    char *p;
    uint32_t n, cap, nruns, capruns;
    jrun *runs;
    const jnode *odd; /* output of a template: the first part that is not text, which fails when all is joined */
    const char *odd_type;
} jbuf;

struct jctx {
    const nb_template *t;
    nb_arena *a;
    nb_error *err;
    const jnode *at; /* what is being evaluated, for error positions */
    jdict *globals;  /* the variables given */
    nb_render_limits lim;
    uint64_t steps;
    uint64_t bufbytes; /* malloc'ed in pool */
    uint32_t depth, macro_depth, data_depth;
    jbuf **pool;
    uint32_t npool, cappool;
    jbuf *out;
    nb_buf docs; /* nb_json_doc after nb_json_doc, freed at the end */
    jact *act;
    int64_t now;
    bool has_now, extend; /* extend: lists of the template may be changed, from_json exists (product mode) */
    bool failed;
};

struct jmacro {
    const jnode *node;
    jact *act;        /* where it was defined */
    const jstr *name; /* NULL: a caller */
};

struct jloop {
    jiter *it;
    jval src, current, before, after, changed;
    int64_t index0, length; /* length -1: not known */
    int64_t depth0;
    const jnode *node; /* of a recursive loop, else NULL */
    jact *act;
};

/* Fails with a Python error type. Returns J_ERR. The first failure stays. */
jval nbj_fail(jctx *j, const char *type, const char *fmt, ...) NB_PRINTF(3, 4);
jval nbj_oom(jctx *j);
bool nbj_step(jctx *j, uint64_t n); /* counts work; false: limit passed, error set */
void *nbj_alloc(jctx *j, size_t n); /* NULL: error set */
void *nbj_array(jctx *j, size_t count, size_t size);
/* For use of an undefined value where Python would raise: J_ERR. */
jval nbj_use_undef(jctx *j, jval v);
jval nbj_undef(jctx *j, const char *hint, const jstr *name, const char *exc);
jval nbj_undef_key(jctx *j, jval owner, jval key,
                   const char *exc); /* exc "SecurityError": the sandbox refuses the attribute */
const char *nbj_type_name(jval v);   /* Python's */

/* Called with the empty context, defines variables with nbj_define. */
typedef bool nbj_fill(jctx *j, const void *user);
typedef struct nbj_options {
    nbj_fill *fill;
    const void *user;
    const nb_render_limits *limits;
    const int64_t *now;
    bool extend;
} nbj_options;
nb_status nbj_render(const nb_template *t, const nbj_options *o, nb_arena *arena, nb_prompt *out, nb_error *err);
bool nbj_define(jctx *j, const char *name, jval v);
bool nbj_define_str(jctx *j, nb_str name, jval v);
/* JSON to values; strings point into the JSON. */
jval nbj_from_json(jctx *j, const nb_json *v, bool trusted);
jval nbj_parse_json(jctx *j, const jstr *s); /* product mode: text of the request */
jval nbj_tojson(jctx *j, jval v, bool ascii, jval indent, jval separators, bool sort);
jval nbj_pformat(jctx *j, jval v); /* pprint.pformat(v) */

/* ---- strings (jinja_str.c) ---- */
jval nbj_str(jctx *j, const char *p, size_t n, bool trusted);     /* copies */
jval nbj_cstr(jctx *j, const char *s);                            /* a constant of the program */
jval nbj_str_ref(jctx *j, const char *p, size_t n, bool trusted); /* p stays valid */
uint32_t nbj_chars(const jstr *s);
uint32_t nbj_offset(const jstr *s, uint32_t ch);                    /* byte offset of code point ch (clamped) */
jval nbj_slice(jctx *j, const jstr *s, uint32_t from, uint32_t to); /* bytes */
jval nbj_concat(jctx *j, const jstr *a, const jstr *b);
jval nbj_as_markup(jctx *j, jval s, bool markup);
bool nbj_trusted(const jstr *s); /* every byte of it */
bool nbj_trusted_at(const jstr *s, uint32_t off);
uint32_t nbj_hash(nb_str s);
int64_t nbj_find(nb_str s, nb_str part, size_t from);
jval nbj_escape(jctx *j, const jstr *s);
/* Builders. Push, add, pop: strictly nested. Adding fails silently, pop reports it. */
jbuf *nbj_push(jctx *j);
jval nbj_pop(jctx *j);
bool nbj_joins(jctx *j, const jbuf *b); /* false: a part is not text, error set */
void nbj_drop(jctx *j); /* pop without a result */
void nbj_add(jctx *j, jbuf *b, const char *p, size_t n, bool trusted);
void nbj_add_str(jctx *j, jbuf *b, const jstr *s);
void nbj_add_part(jctx *j, jbuf *b, const jstr *s, uint32_t from, uint32_t to);
void nbj_add_cp(jctx *j, jbuf *b, uint32_t cp, bool trusted);
void nbj_fill_cp(jctx *j, jbuf *b, uint32_t cp, uint64_t count, bool trusted);
#define NBJ_ADD(j, b, lit) nbj_add((j), (b), (lit), sizeof(lit) - 1, true)

/* ---- values (jinja_value.c, jinja_dict.c, jinja_print.c) ---- */
jlist *nbj_list(jctx *j, uint32_t cap);
bool nbj_push_val(jctx *j, jlist *l, jval v);
jval nbj_pair(jctx *j, jval a, jval b);
jdict *nbj_dict(jctx *j, uint32_t cap);
bool nbj_dict_set(jctx *j, jdict *d, jval key, jval v);         /* false: unhashable or memory; error set */
int nbj_dict_get(jctx *j, const jdict *d, jval key, jval *out); /* 1 found, 0 not, -1 unhashable */
bool nbj_dict_find(const jdict *d, nb_str key, jval *out);
bool nbj_dict_update(jctx *j, jdict *d, const jargs *a); /* the rules of dict(...) */
bool nbj_truth(jctx *j, jval v);
int nbj_equal(jctx *j, jval a, jval b);           /* 1, 0, -1 error */
int nbj_compare(jctx *j, jop op, jval a, jval b); /* OP_LT ... OP_GE: 1, 0, -1 error */
int nbj_contains(jctx *j, jval box, jval v);
bool nbj_hashable(jctx *j, jval v, uint32_t *hash); /* false: TypeError set */
bool nbj_can_hash(jctx *j, jval v);
int64_t nbj_len(jctx *j, jval v); /* -1: error set */
jval nbj_to_str(jctx *j, jval v); /* str(v), markup kept */
bool nbj_print(jctx *j, jbuf *b, jval v);
bool nbj_repr(jctx *j, jbuf *b, jval v, bool trusted);
bool nbj_origin(jctx *j, jval v); /* true: nothing in it came with the request */
static inline bool j_is_seq(jval v) { return v.t == J_LIST || v.t == J_TUPLE; }
static inline bool j_is_int(jval v) { return v.t == J_INT || v.t == J_BOOL || v.t == J_BIG; }
static inline bool j_is_num(jval v) { return j_is_int(v) || v.t == J_FLOAT; }

/* ---- numbers (jinja_num.c, jinja_big.c) ---- */
jval nbj_arith(jctx *j, jop op, jval a, jval b); /* numbers only */
jval nbj_neg(jctx *j, jval v);
int nbj_num_cmp(jval a, jval b);       /* -1, 0, 1; 2: unordered (NaN) */
bool nbj_int_of(jval v, int64_t *out); /* int or bool in range of int64 */
double nbj_double(jval v);
jval nbj_int_from_double(jctx *j, double d);     /* truncates; inf and nan fail as in Python */
bool nbj_parse_float(nb_str s, double *out);     /* Python's float(str) */
jval nbj_parse_int(jctx *j, nb_str s, int base); /* J_MISSING: not a number */
size_t nbj_format_double(char *out, size_t cap, double v, char conv, int prec, bool alt); /* C locale */
void nbj_num_text(jctx *j, jbuf *b, jval v, bool trusted);                                /* str() of a number */
jval nbj_round(jctx *j, jval v, int64_t digits);
jval nbj_big_parse(nb_arena *a, nb_str digits, bool neg); /* decimal; J_INT where it fits, J_ERR without memory */
jval nbj_big_arith(jctx *j, jop op, jval a, jval b);
int nbj_big_cmp(jval a, jval b);
int nbj_big_cmp_double(const jbig *b, double d); /* d finite */
double nbj_big_double(const jbig *b);
uint32_t nbj_big_hash(const jbig *b);
void nbj_big_text(jctx *j, jbuf *out, const jbig *b, bool trusted);
jval nbj_big_from_double(jctx *j, double d); /* integral, finite */

/* ---- characters (jinja_char.c) ---- */
bool nbj_is_space(uint32_t c);
bool nbj_is_printable(uint32_t c);
bool nbj_is_alpha(uint32_t c);
bool nbj_is_decimal(uint32_t c);
bool nbj_is_digit(uint32_t c);
bool nbj_is_numeric(uint32_t c);
bool nbj_is_lower(uint32_t c);
bool nbj_is_upper(uint32_t c);
bool nbj_is_title(uint32_t c);
bool nbj_is_cased(uint32_t c);
bool nbj_is_case_ignorable(uint32_t c);
bool nbj_is_word(uint32_t c);      /* \w */
int nbj_decimal_value(uint32_t c); /* -1 */
enum { NBJ_UPPER, NBJ_LOWER, NBJ_TITLE, NBJ_FOLD };
uint32_t nbj_map(uint32_t c, int how, uint32_t out[3]);                  /* count */
jval nbj_case(jctx *j, const jstr *s, int how);                          /* upper, lower, casefold of a string */
jval nbj_capitalize(jctx *j, const jstr *s, uint32_t from, uint32_t to); /* of a part */

/* ---- iteration (jinja_iter.c) ---- */
jiter *nbj_iter(jctx *j, jval v); /* NULL: not iterable, error set */
jiter *nbj_iter_new(jctx *j, int (*next)(jctx *, jiter *, jval *));
jlist *nbj_collect(jctx *j, jval v); /* list(v); NULL: error */
static inline int nbj_next(jctx *j, jiter *it, jval *out) { return it->next(j, it, out); }

/* ---- attributes, calls (jinja_attr.c, jinja_call.c, jinja_eval.c) ---- */
jval nbj_getattr(jctx *j, jval o, const jstr *name);
jval nbj_getattr_only(jctx *j, jval o, const jstr *name); /* no keys of a dict */
jval nbj_getitem(jctx *j, jval o, jval key);
jval nbj_slice_of(jctx *j, jval o, jval start, jval stop, jval step);
bool nbj_slice_bounds(jctx *j, int64_t len, const jval part[3], int64_t *start, int64_t *stop, int64_t *step);
jval nbj_method_of(jctx *j, jval o, nb_str name); /* J_MISSING: no such attribute */
bool nbj_is_callable(jval v);
jval nbj_call(jctx *j, jval fn, const jargs *a);
jval nbj_call_macro(jctx *j, jmacro *m, const jargs *a);
/* Binds arguments to names[0..max); the first `req` must be given. "-name": positional only. Missing ones stay
 * J_MISSING. */
bool nbj_bind(jctx *j, const char *fn, const jargs *a, const char *const *names, uint32_t req, uint32_t max, jval *out);
jval nbj_global(nb_str name); /* J_MISSING: none */
jval nbj_eval(jctx *j, const jnode *n);
jval nbj_eval_call(jctx *j, const jnode *n, jval caller); /* caller: J_MISSING or the macro of a call block */
jval nbj_eval_filter(jctx *j, const jnode *n, jval in);   /* in: for a chain without an input of its own */
jval nbj_binop(jctx *j, jop op, jval a, jval b);
int nbj_exec(jctx *j, const jblock *b); /* 0 on, 1 break, 2 continue, -1 error */
void nbj_enter(jctx *j, const jscope *s);
bool nbj_assign(jctx *j, const jnode *target, jval v);
jval nbj_call_loop(jctx *j, jloop *l, const jargs *a);
jval nbj_loop_attr(jctx *j, jloop *l, nb_str name);
int nbj_loop_next(jctx *j, jloop *l, jval *out);
int64_t nbj_loop_length(jctx *j, jloop *l);

/* ---- filters and tests ---- */
typedef jval jfilter_fn(jctx *j, jval v, const jargs *a);
typedef struct jfilter {
    const char *name;
    jfilter_fn *fn;
} jfilter;
typedef int jtest_fn(jctx *j, jval v, const jargs *a); /* 1, 0, -1 */
typedef struct jtest {
    const char *name;
    jtest_fn *fn;
} jtest;
const jfilter *nbj_filter(nb_str name);
const jtest *nbj_test(nb_str name);
extern const jfilter nbj_seq_filters[], nbj_text_filters[]; /* ended by name NULL */
/* Ended by name NULL. The edit tables are what the sandbox refuses, and product mode allows on lists of the template.
 */
extern const jmethdef nbj_str_methods[], nbj_str_tests[], nbj_markup_methods[], nbj_list_methods[], nbj_list_edits[],
    nbj_tuple_methods[], nbj_dict_methods[], nbj_dict_edits[], nbj_num_methods[], nbj_int_methods[], nbj_loop_methods[],
    nbj_cycler_methods[], nbj_dict_type_methods[];
const jstr *nbj_want_str(jctx *j, jval v, const char *what); /* NULL: TypeError set */
bool nbj_want_int(jctx *j, jval v, int64_t *out);
jval nbj_replace(jctx *j, const jstr *s, const jstr *old, const jstr *new_, int64_t count);
jval nbj_strip(jctx *j, const jstr *s, const jstr *chars, int sides); /* 1 left, 2 right */
jval nbj_join(jctx *j, const jstr *sep, jval items, bool any);        /* any: items are made text first */
jval nbj_center(jctx *j, const jstr *s, int64_t width, uint32_t fill, bool fill_trusted,
                int how); /* 0 centre, 1 left, 2 right */
jlist *nbj_split_lines(jctx *j, const jstr *s, bool keep);
jval nbj_percent(jctx *j, const jstr *fmt, jval args);     /* fmt % args */
jval nbj_format(jctx *j, const jstr *fmt, const jargs *a); /* fmt.format(...) */
jval nbj_strftime(jctx *j, const jstr *fmt);
/* The key of sort, unique, groupby, map: "a.b.0" of v, lower case unless told otherwise. */
jval nbj_attribute(jctx *j, jval v, jval path);
bool nbj_sort(jctx *j, jval *keys, jval *v, uint32_t n, bool reverse); /* stable; keys move along */

#endif
