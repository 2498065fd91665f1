"""Random templates for jinja_diff.py: most of them run through, some fail. One seed gives the same templates every time.

Expressions come in two kinds: of any type, which often fail, and of one type, which mostly do not. Rare things (formats,
arguments by keyword, recursive loops, call blocks with arguments, ...) stand in lists of their own below."""
import random

VARS = {
    "s": "Hello World", "u": "Grüße, 日本 ﬁ ß İ", "e": "", "pad": "  two  words\n", "html": "<b class=\"x\">&amp; 'y'</b>", "multi": "one\n\n  two\nthree",
    "num": "42", "n": None, "t": True, "f": False, "i": 7, "neg": -3, "z": 0, "x": 2.5, "y": 1e22, "small": 1e-7, "big": 12345678901234567890,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "lm": [1, "a", None, 2.0, [1]], "el": [], "d": {"b": 1, "a": "x", "items": [1], "k y": None}, "ed": {},
    "ld": [{"a": 1, "b": "y"}, {"a": 2}, {"a": 1, "b": "X", "c": {"d": [1]}}], "nest": {"a": {"b": [1, 2, {"c": "d"}]}},
    "tree": [{"k": "p", "sub": [{"k": "q", "sub": []}, {"k": "r", "sub": [{"k": "s"}]}]}, {"k": "t", "sub": []}], "ll": [[1, [2, 3]], [], [[4]], "x"],
    "hyph": "well-known e-mail -- a--b, so-called x-y-z", "args": {"a": 1, "b": "two"}, "pairs": [["k", 1], ["v", 2]], "sci": 12345.678, "tiny": 5e-324,
    "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>a</think>b", "tool_calls": [{"function": {"name": "f", "arguments": {"q": 1.0}}}]}],
}
NAMES = list(VARS) + ["undef1", "ns", "mac", "loc", "loop"]
STR_METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "strip('ab')", "lstrip()", "rstrip('\\n')", "split()", "split(' ')", "split('l', 1)",
               "rsplit(' ', 1)", "splitlines()", "splitlines(true)", "startswith('H')", "startswith(('a', 'H'))", "endswith('d')", "replace('l', 'L')", "replace('', '-')",
               "replace('o', '', 1)", "find('o')", "rfind('o')", "index('o')", "count('l')", "count('')", "center(20)", "center(15, '*')", "ljust(12, '.')", "rjust(12)", "zfill(8)",
               "join(ls)", "join('ab')", "isdigit()", "isalpha()", "isalnum()", "isupper()", "islower()", "isspace()", "istitle()", "isnumeric()", "isdecimal()", "isidentifier()", "isascii()",
               "isprintable()", "partition(' ')", "rpartition('l')", "removeprefix('He')", "removesuffix('ld')", "expandtabs(4)", "format(1, a=2)", "find('o', 5)", "startswith('W', 6)", "nosuch()", "__class__",
               "split(none, 1)", "rsplit(none, 1)", "split(maxsplit=1)", "split(sep='o', maxsplit=1)", "rsplit('o', 1)", "split(none, 0)", "split('')", "split('l', -1)", "rsplit()", "strip(none)", "strip('')", "rindex('l')",
               "rindex('o', 5)", "find('')", "find('l', -3)", "rfind('l', 0, 4)", "count('l', 3)", "count('o', -5, -1)", "endswith('o', 0, 5)", "endswith(('x', 'ld'))", "replace('l', 'LL', 2)", "replace('lo', '')", "zfill(-1)",
               "center(6, 'é')", "ljust(3)", "expandtabs()", "expandtabs(tabsize=3)", "format_map({'a': 1})", "splitlines(keepends=true)", "partition('')", "upper(1)", "strip(1)", "join([1])"]
OTHER_METHODS = ["items()", "keys()", "values()", "get('a')", "get('zz', 5)", "get([])", "copy()", "append(1)", "pop()", "update({})", "index(1)", "count(1)", "insert(0, 1)", "extend([1])", "a", "b", "content", "role",
                 "0", "1", "is_integer()", "real", "name", "index0", "first", "length", "nothing", "sort()", "setdefault('a', 1)", "clear", "imag", "numerator", "denominator", "index(2, 1)", "index(1, -2, 5)", "get('b', default=1)",
                 "fromkeys('ab', 1)", "keys()|list", "items()|first", "values()|sum", "start", "stop", "step", "grouper", "list", "arguments", "catch_kwargs", "catch_varargs", "caller", "get()"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "trim('H')", "length", "count", "list", "first", "last", "string", "int", "int(9)", "float", "abs", "round", "round(1)", "round(0, 'ceil')",
           "default('D')", "default('D', true)", "d", "join", "join(', ')", "join('-', attribute='a')", "sort", "sort(reverse=true)", "sort(attribute='a')", "sort(case_sensitive=true)", "unique|list", "unique",
           "reverse", "reverse|list", "map('upper')|list", "map(attribute='a')|list", "map(attribute='b', default='-')|join(',')", "map('string')|join", "map('length')|list", "select|list", "select('odd')|list",
           "select('string')|list", "reject('none')|list", "selectattr('b')|list", "selectattr('a', 'eq', 1)|list", "rejectattr('b', 'defined')|list", "selectattr('a', '>', 1)|list", "batch(2)|list", "batch(3, 0)|list",
           "slice(2)|list", "slice(3, 'z')|list", "groupby('a')|list", "groupby('b', default='q')|list", "sum", "sum(attribute='a')", "sum(start=[])", "min", "max", "min(attribute='a')", "dictsort", "dictsort(by='value')",
           "dictsort(reverse=true)", "items|list", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "tojson(indent=0)", "replace('l', 'L')",
           "replace('o', '0', 1)", "replace(1, 2)", "indent", "indent(2, true)", "indent('> ', blank=true)", "truncate(8)", "truncate(8, true)", "truncate(5, false, '', 0)", "wordcount", "center(20)", "escape", "e", "safe",
           "forceescape", "striptags", "urlencode", "xmlattr", "filesizeformat", "filesizeformat(true)", "format(1, 2)", "wordwrap(6)", "nofilter", "items"]
# Every argument of every filter, by place and by name.
RARE_FILTERS = ["batch(linecount=2, fill_with='x')|list", "batch(0)|list", "batch(-1, 1)|list", "batch(1.0)|list", "batch(none)|list", "slice(slices=2, fill_with=none)|list", "slice(1)|list", "slice(5)|list", "slice(0)|list",
                "trim(chars=' H')", "trim(none)", "d(default_value=1, boolean=true)", "default(boolean=true)", "default", "int(default=3, base=16)", "int(base=2)", "int(5, 8)", "int(base=0)", "float(default=1.5)", "float(2)", "round(precision=1, method='floor')",
                "round(-1)", "round(2, 'ceil')", "round(method='common')", "round(1, 'bad')", "round(none)", "center(width=9)", "center(0)", "replace(old='l', new='', count=1)", "replace('', '.')", "replace('l', none)", "indent(width=3, first=true, blank=true)",
                "indent(0)", "indent(-2)", "indent('\\t')", "indent(true)", "truncate(length=9, killwords=true, end='~', leeway=0)", "truncate(3)", "truncate(10, leeway=none)", "truncate(2, true)", "wordwrap(width=5, break_long_words=false)",
                "wordwrap(4, wrapstring='|')", "wordwrap(3, true, '+', false)", "wordwrap(1)", "wordwrap(0)", "wordwrap", "tojson(true, 1)", "tojson(indent='--')", "tojson(indent=1, sort_keys=true, ensure_ascii=true)", "tojson(separators=('; ', '='), indent=1)",
                "tojson(false, none, none, true)", "tojson(indent=true)", "tojson(separators=['a', 'b'])", "join(d='+')", "join(1)", "join('-', 'b')", "join(attribute='a')", "join(attribute=0)", "sort(true, true)", "sort(false, false, 'b')", "sort(attribute='a,b')",
                "sort(attribute='c.d')", "sort(attribute=0)", "unique(true)|list", "unique(attribute='a')|list", "unique(case_sensitive=true)|join", "min(true)", "max(case_sensitive=true)", "max(attribute='b')", "min(attribute='c.d')", "sum('a', 5)", "sum(start=1.5)",
                "sum(start='')", "dictsort(true)", "dictsort(false, 'value', true)", "dictsort(by='x')", "groupby(attribute='a', case_sensitive=true)|list", "groupby('c.d', default=1)|list", "groupby(0)", "groupby('a')|map('last')|list", "groupby('b', 'Q')|map(attribute='grouper')|list",
                "groupby('a')|map(attribute='list')|list", "groupby('a')|map('first')|join(',')", "map('replace', 'a', 'Z')|list", "map('default', 0)|list", "map('join', '/')|list", "map('int', default=2)|sum", "map('tojson', indent=1)|join", "map(attribute='c.d.0')|list", "map(attribute=0)|list",
                "map('round', 1, 'ceil')|list", "map('trim')|list", "map('items')|map('list')|list", "map('first')|list", "map('nosuch')|list", "map()|list", "map(attribute='a', bad=1)|list", "map('attr', 'a')|list", "map('dictsort')|list", "map('batch', 2)|map('list')|list", "select('in', [1, 'a', 2])|list",
                "select('divisibleby', 2)|list", "select('eq', 1)|list", "select('sameas', none)|list", "select('>', 1)|list", "reject('lt', 2)|list", "reject|list", "reject('in', 'abc')|list", "select('mapping')|first", "select('nosuch')|list", "selectattr('a', 'in', [1])|list", "selectattr('c.d')|list",
                "selectattr('b', 'ne', 'y')|map(attribute='a')|list", "selectattr('a', 'odd')|list|length", "selectattr(0)|list", "selectattr()|list", "rejectattr('c')|list", "rejectattr('a', 'equalto', 2)|list", "rejectattr('b', 'none')|list", "selectattr('b', 'undefined')|list", "pprint",
                "filesizeformat(binary=true)", "urlencode", "xmlattr(false)", "xmlattr(autospace=true)", "attr('a')", "attr('upper')()", "format(a=1)", "format(1)", "format('é', [1])", "string|length", "list|string", "items|map('first')|list", "items|list|last", "list|reverse|join",
                "wordcount|string", "reverse|join", "last|default('L')", "first|default('F')", "tojson|length", "safe|upper", "safe|replace('<', '&')", "escape|length", "e|e", "striptags|upper", "safe|tojson", "count()", "upper('x')", "length(1)", "join(bad=1)", "round(bad=1)", "sort|first|string", "abs|string|center(5)"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable", "callable", "odd", "even", "divisibleby(3)", "divisibleby 2", "lower", "upper",
         "in l", "in(ls)", "eq 7", "equalto('x')", "ne 1", "gt 2", "lt(5)", "ge 7", "le 'a'", "sameas true", "sameas none", "escaped", "filter", "test", "notest", "divisibleby(num=2)", "in 'abc'", "in d", "in [1, none]", "greaterthan 1", "lessthan(2)", "sameas l",
         "sameas(n)", "divisibleby 0", "eq", "odd(1)", "in", "in undef1", "eq(none)", "ne [1]", "lt 'a'"]
STR_TO_STR = [m for m in STR_METHODS if m.split("(")[0] in ("upper", "lower", "title", "capitalize", "swapcase", "casefold", "strip", "lstrip", "rstrip", "replace", "center", "ljust", "rjust", "zfill", "removeprefix", "removesuffix", "expandtabs", "join")
              and m not in ("upper(1)", "strip(1)", "join([1])")]
STR_TO_LIST = ["split()", "split(' ')", "split('l', 1)", "rsplit(' ', 1)", "splitlines()", "splitlines(true)", "partition(' ')", "rpartition('l')", "split(none, 1)", "rsplit(none, 1)", "split(maxsplit=2)", "split('o')", "rsplit(maxsplit=1)"]
STR_TO_BOOL = [m for m in STR_METHODS if m.startswith(("is", "starts", "ends"))]
STR_F = ["upper", "lower", "title", "capitalize", "trim", "trim('H')", "string", "reverse", "replace('l', 'L')", "replace('o', '0', 1)", "indent", "indent(2, true)", "indent('> ', blank=true)", "truncate(8)", "truncate(8, true)",
         "truncate(5, false, '', 0)", "center(20)", "escape", "e", "safe", "forceescape", "striptags", "urlencode", "tojson", "tojson(true)", "default('D')", "default('D', true)", "first", "last", "wordwrap(9)", "wordwrap(4, wrapstring='/')",
         "wordwrap(5, false)", "wordwrap(6, true, '\\n', false)", "pprint", "indent(width=1, blank=true)", "truncate(9, end='…')", "list|join('·')", "format", "replace('', '_')", "map('upper')|join", "select('lower')|join", "batch(3)|map('join')|join('|')", "unique|join", "sort|join"]
NUM_F = ["abs", "int", "float", "round", "round(1)", "round(-1)", "round(0, 'ceil')", "round(1, 'floor')", "default(3)", "round(2)", "int(default=1)"]
LIST_F = ["list", "sort", "sort(reverse=true)", "unique|list", "reverse|list", "map('string')|list", "map('string')|map('upper')|list", "map('tojson')|list", "select|list", "select('string')|list", "reject('none')|list", "reject('number')|list",
          "select('number')|list", "batch(2)|list", "batch(3, 0)|list", "slice(2)|list", "slice(3, 'z')|list", "batch(linecount=2, fill_with=none)|list", "map('default', 1)|list", "map('pprint')|list", "select('in', [1, 2, 'b'])|list", "reject('eq', 1)|list"]
LD_F = ["map(attribute='a')|list", "map(attribute='b', default='-')|list", "selectattr('b')|list", "selectattr('a', 'eq', 1)|list", "rejectattr('b', 'defined')|list", "selectattr('a', '>', 1)|list", "groupby('a')|list", "groupby('b', default='q')",
        "sort(attribute='a')", "sort(attribute='a,b')", "unique(attribute='a')|list", "map(attribute='c.d')|list", "sort(true, attribute='a')", "groupby('b', default='q', case_sensitive=true)|list", "groupby('a')|map(attribute='grouper')|list", "map('dictsort')|list",
        "sort(attribute='a')|map(attribute='b', default=0)|list", "map('items')|map('list')|list", "selectattr('c.d.0', 'defined')|list", "rejectattr('a', 'in', [2])|list", "map('length')|list", "map('tojson', sort_keys=true)|list", "map('list')|list"]
SAFE_TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable", "callable", "lower", "upper", "eq 7", "ne 1", "sameas none", "escaped", "in [1, 'a']", "ne none", "eq 'Hi'"]
BINOPS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
LITERALS = ["1", "0", "2", "-1", "3.5", "1e3", "true", "false", "none", "True", "None", "'a'", "'%s'", "'x y'", "\"it's\"", "'\\n'", "''", "[]", "{}", "()", "'<&>'", "10", "'é'", "'%d|%s'", "100", "0.1",
            "0x1F", "0b101", "0o17", "1_000", "1E-3", "1.5e-3", "1e16", "123456789012345.6", "1e15", "0.0001", "1e-5", "9223372036854775807", "9223372036854775808", "1e22", "-0.0", "2.0", "00", "1_0.2_5", "'a' 'b'", "'a' \"b\" 'c'", "'\\x41\\u00e9\\U0001F600'", "'\\101\\0'",
            "'\\q\\d'", "'\\\\'", "'\\t|\\r|\\b'", "'a\\\nb'", "'}}'", "\"{%\"", "'#}'", "\"\\\"\"", "(1,)", "(1, 'a')", "[1, [2, (3,)]]", "{'a': {'b': []}}", "{1: 'a', 'b': none}", "'日本'", "'İ'", "' '", "'1.5'", "'-7'", "'0x1f'", "'nan'", "' 12 '", "'1e3'", "False", "'x' * 3"]
# Left sides of %, and what goes with them.
PERCENT = [("'%5.2f|%-8.3e|%g'", "(x, sci, small)"), ("'%05d|%+d|% d|%x|%X|%o|%#x|%#o'", "(i, i, i, 255, 255, 8, 255, 8)"), ("'%s|%r|%a'", "(u, u, u)"), ("'%-8s|%8s|%.3s|%8.2s'", "(s, s, s, s)"), ("'%c%c'", "(65, 'é')"), ("'%%|%d%%'", "i"), ("'%*d|%-*d|%.*f'", "(6, i, 6, i, 2, x)"),
           ("'%(a)s-%(b)5s'", "args"), ("'%(a)d'", "d"), ("'%(zz)s'", "args"), ("'%d'", "x"), ("'%d'", "s"), ("'%s'", "l"), ("'%s %s'", "(1,)"), ("'%s'", "(1, 2)"), ("'%i|%u'", "(neg, big)"), ("'%f|%e|%G'", "(big, i, y)"), ("'%q'", "1"), ("'%'", "1"), ("'%5'", "1"), ("'plain'", "()"), ("'plain'", "[]"), ("'plain'", "1"),
           ("'%06.1f|%+.0f|%#.0f|%010d'", "(x, x, x, neg)"), ("'%.3d|%+.3d|%8.3d'", "(i, i, i)"), ("'%s'", "undef1"), ("'%x'", "x"), ("'%s %(a)s'", "args"), ("'%ld|%hd'", "(i, i)"), ("'%.1f|%.2f|%.0f'", "(0.25, 2.675, 0.5)"), ("'%s|%s|%s'", "(n, t, ld)"), ("'%r'", "(messages,)"), ("'%5s|%-5s|'", "(t, n)")]
FORMATS = ["'{0} {1} {0}'.format({a}, {b})", "'{a}-{b}'.format(a={a}, b={b})", "'{:>8}|{:<8}|{:^8}|{:*^9}'.format({s}, {s}, {s}, {s})", "'{:05d}|{:+d}|{: d}|{:,}|{:_}|{:x}|{:#x}|{:b}|{:#o}|{:c}'.format({i}, {i}, {i}, {i}, {i}, {i}, {i}, {i}, {i}, 65)",
           "'{:.2f}|{:e}|{:g}|{:.1%}|{:10.3f}|{:,.2f}|{:.3}|{:G}|{:012,}|{:+09.1f}'.format({n}, {n}, {n}, {n}, {n}, {n}, {n}, {n}, {n}, {n})", "'{!r}|{!s}|{!a}|{!r:>12}'.format({a}, {a}, {s}, {s})", "'{:{w}}|{:{f}{g}{w}}|{:.{w}}'.format({s}, {s}, {s}, w=6, f='*', g='^')",
           "'{0[0]}|{0[1]}|{1[a]}'.format(l, d)", "'{0.real}|{0.imag}'.format({i})", "'{a[b][c]}'.format(a={{'b': {{'c': {a}}}}})", "'{{{{}}}}{}'.format({a})", "'{:08.3f}|{:<8}|{:>8}|{:=+8}|{:08}|{:<08}|{:^08}'.format({n}, {n}, {n}, {n}, {n}, {n}, {n})", "'{}|{}|{}'.format({a}, {b}, {a})",
           "'{} {0}'.format(1)", "'{1}'.format({a})", "'{x}'.format()", "'{'.format(1)", "'}'.format(1)", "'{:d}'.format({a})", "'{:s}'.format({a})", "'{:q}'.format(1)", "'{!x}'.format(1)", "'{0.__class__}'.format(1)", "'{:5}|{:^5}|{:>5}'.format({a}, {s}, {n})", "'{[0]}'.format(l)", "'{:,}|{:_}'.format(big, 1e7)",
           "'{0:{1}}'.format({s}, 9)", "'{:06,}|{:07,}|{:08,}|{:#012_b}'.format(1234, 1234, 1234, 5)", "'{a}{a!r:>9}'.format(a={s})", "'{:%}|{:.0%}'.format({n}, {i})", "'{:.3}|{:7.2}'.format({s}, {s})", "({s}).format({a}, {b})"]
SLICES = ["[::-1]", "[::2]", "[1:]", "[:-1]", "[-2:]", "[5:1:-1]", "[-1:-4:-2]", "[:2:-1]", "[99:]", "[-99:2]", "[1:1]", "[::-3]", "[none:none:none]", "[true:]", "[:i]", "[neg:]", "[::neg]", "[-1::-1]", "[:-99:-1]", "[::0]", "['a':]", "[big:]", "[:-big]", "[1.0:]"]
CALLS = ["range({i})|list", "range(2, {i})|list", "range(10, 0, -3)|list", "range({i}, 20, 5)", "range(5)[::-2]|list", "range(1, 9, 2)[1:3]", "range(3)|last", "dict(a={a}, **args)", "dict(pairs)", "dict({{'q': {a}}}, z={b})", "dict(**d)", "dict([('x', {a})])", "dict(5)", "namespace(args, c={a}).c", "namespace(pairs).k",
         "namespace(**args).b", "cycler({a}, {b}).current", "joiner({s}).sep", "joiner()()", "range()", "range(1, 2, 0)", "range(100001)", "range('a')", "dict(1, 2)", "mac(*l)", "mac(**args)", "mac(*ls, **args)", "mac({a}, a={b})", "mac.name", "mac.arguments|list", "raise_exception({s})", "strftime_now('%d %b %Y')",
         "strftime_now('%Y-%m-%d %H:%M')", "strftime_now('%B %d, %Y|%A|%a|%j|%I %p|%y|%U|%W|%w')", "strftime_now('%-d/%-m %e %D %T %R %F %h %u %V %G %C %%')", "strftime_now({s})", "strftime_now(1)", "d.get(*['a'])", "s.split(**{{'sep': 'o'}})", "s.replace(*['l', 'r'])"]
COMPARE = ["{a} < {b} < {c}", "{a} == {b} == {c}", "{a} in {l} in [{l}]", "{a} != {b} != {c}", "{a} >= {b} > {c}", "{a} not in {l}", "not {a} in {l}", "{a} is number and {b} is string", "{a} is not none", "({a}, {b}) < ({c}, {a})", "[{a}] == [{b}]", "{{'a': {a}}} == {{'a': {b}}}", "{l} == {l}", "d.keys() == d.keys()", "{a} == {a} != {b}",
           "1 < {a} <= 10", "{a} or {b} and {c}", "not {a} or {b}", "not ({a} and {b})", "{a} if {b} is defined else {c}", "{a} if {b} else {c} if {a} else {l}", "({a} if {b}) is undefined", "{a} ~ {b} ~ {c}", "{a} + {b} ~ {c}", "-{a} ** 2", "2 ** {i} ** 1", "{a} - {b} - {c}", "{a} / {b} * {c}", "{a} // {b} % {c}", "-{a}|abs", "(-{a})|abs",
           "{a} in ({a}, {b})", "{a} is in [{a}]", "{a} is sameas {b}", "{a} is eq {b}", "{a} is divisibleby {i}", "undef1.x", "undef1['a']", "d.zz.y", "d.zz", "l[99]", "s[99]", "d['items']", "d.items()", "args.b", "args['b']", "nest.a.b[2].c", "nest['a'].b.2.c", "ll[0][1][-1]", "tree[0].sub[1].k", "{l}[{i}]", "{s}[{i}]", "({l})[-1]",
           "({a}).real", "-{n}", "+{n}", "1 / {i}", "{n} % {i}", "{n} // {x}", "2 ** -{i}", "{i} * {s}", "{s} * {i}", "[0] * {i}", "{l} + {l}", "big * {i} // 7", "big % {i}", "-big // 3", "big - big", "1e308 * x * {i}", "{n} == {n} + 0.0"]


# Corners of the grammar: names in other scripts, `self`, words of the language as attributes, commas at the end, several operators in a row, targets,
# tags that need a loader, scopes of macros and loops, braces that end where the tag ends.
CORNERS = ["{% set größe = 1 %}{{ größe }}{{ d.größe }}", "{{ self.x }}{{ self is defined }}", "{% set self = 3 %}{{ self }}", "{% macro m() %}{{ self.a }}|{{ self is iterable }}{% endmacro %}{{ m() }}", "{{ d.if }}{{ d.for }}{{ d.not }}{{ d.is }}", "{{ [1,] }}{{ (1,) }}{{ {'a':1,} }}",
           "{{ {'a': {'b': 1}}}}", "{{{'a':1}}}", "{{ {'a':1}['a']}}", "{{ dict(a=1,) }}{{ range(3,)|list }}", "{{ dict(a=1, 2) }}", "{{ dict(**{'a':1}, b=2) }}", "{{ range(*[1,2], 3)|list }}", "{{ s|upper.x }}", "{{ s|list[0] }}", "{{ s is string[0] }}", "{% if x %}a{% else if y %}b{% endif %}",
           "{% for x in l recursive if x > 1 %}{{ x }}{% endfor %}", "{% for x in l if x > 1 recursive %}{{ x }}{% endfor %}", "{% for x in l if true else ls %}{{ x }}{% endfor %}", "{% for x in 1, %}{{ x }}{% endfor %}", "{% for x, in [[1]] %}{{ x }}{% endfor %}", "{% for x.y in l %}{{ x }}{% endfor %}",
           "{% for loop in l %}{{ loop }}{% endfor %}", "{% for x in l %}{% set loop = 1 %}{% endfor %}", "{% set loop = 1 %}{% for x in l %}{{ loop.index }}{% endfor %}{{ loop }}", "{% set none = 1 %}", "{% set [a, b] = l %}", "{% set a = b = 1 %}", "{% set a['b'] = 1 %}", "{% set a.b.c = 1 %}", "{% set a += 1 %}",
           "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{% set ns.a, ns.b = ns.b, ns.a %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace() %}{% for ns.x in l %}{{ ns.x }}{% endfor %}", "{% macro m(a, a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a=1, b) %}{{ a }}{{ b }}{% endmacro %}", "{% macro m(*args) %}{% endmacro %}",
           "{% macro m(a,) %}x{{ a }}{% endmacro m %}{{ m(2) }}", "{% call s.upper() %}x{% endcall %}", "{% call m %}x{% endcall %}", "{% macro m(varargs) %}{{ varargs }}{% endmacro %}{{ m(2) }}", "{% macro m(kwargs=3) %}{{ kwargs }}{% endmacro %}{{ m() }}{{ m(kwargs=2) }}", "{{ s is defined is true }}", "{{ 4 is divisibleby 2 + 1 }}",
           "{{ 4 is eq -4 }}", "{{ 3 is eq l.0 }}{{ 3 is in l and true }}", "{{ - - 1 }}{{ -+1 }}{{ 2 ** - 1 }}{{ not not s }}", "{{ 1 == not 1 }}", "{{ 1 <> 2 }}", "{{ a ! b }}", "{{ a & b }}", "{{ [1) }}", "{{ '\\x4' }}", "{{ '\\777\\8\\400' }}", "{{ 1 2 }}", "{{ 1;2 }}", "{{ }}", "{%- -%}", "{{ 1. }}", "{{ 1_ }}", "{{ 1__0 }}", "{{ 0x }}", "{{ 08 }}",
           "{{ 1.5.real }}{{ l.0 }}{{ ll.1.2 }}", "{{ l.-1 }}", "{% if x %}a{% endif x %}", "{% for x in l %}{{ x }}{% endfor x %}", "{% do l %}", "{% include 'x' %}", "{% include 'x' ignore missing %}", "{% if false %}{% include 'x' %}{% import 'x' as y %}{% endif %}ok{{ y }}", "{% from 'x' import y, z as q with context %}",
           "{% extends 'x' %}", "{% autoescape false %}<{{ html }}{% endautoescape %}", "{% with a=1 b=2 %}{% endwith %}", "{% break %}", "{% for y in l %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}{% break %}{% endfor %}{{ y }}{% endfor %}", "{% for x in l %}{% set y %}{% break %}{% endset %}{% endfor %}",
           "{% for x in l %}{% with %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endwith %}{% endfor %}", "{% for x in l if loop.first %}{{ x }}{% endfor %}", "{% for y in l %}{% for x in loop %}{{ x }}{% endfor %}|{% endfor %}", "{% for x in l %}{{ loop|first }}{{ x }}{% endfor %}",
           "{% for x in ls|map('upper') %}{{ loop.length }}{{ loop.revindex }}{{ loop.last }}{{ x }}{% endfor %}", "{% for x in l %}{% macro m(q=x, r=loop) %}{{ q }}{{ r.index }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro a() %}{{ v }}{% endmacro %}{% set v = 3 %}{{ a() }}{% set v = 4 %}{{ a() }}",
           "{% macro outer() %}{% macro inner() %}I{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner }}", "{% if true %}{% macro m() %}A{% endmacro %}{% else %}{% macro m() %}B{% endmacro %}{% endif %}{{ m() }}", "{% macro m() %}{% generation %}{{ varargs }}{% endgeneration %}{% endmacro %}{{ m(1) }}",
           "{% raw %}{% raw %}{% endraw %}", "{% raw x %}a{% endraw %}", "{% raw %}a", "{%raw%}{%endraw%}{%-raw-%}{%-endraw-%}", "{# {# #} #}", "{#-}#}", "{##}{#-#}{#+#}x", "{% endraw %}", "{%if(t)%}x{%endif%}{{(1)if(2)else(3)}}{{1if 2else 3}}", "{{ 1if true else 2 }}", "{{ ld|map('zz')|list }}", "{{ messages[99].role }}", "{{ '\\\nx' }}{{ 'a\nb' }}"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def literal(self):
        return self.r.choice(LITERALS)

    def expr(self, depth):
        r = self.r
        if depth <= 0:
            return r.choice(NAMES) if r.random() < .6 else self.literal()
        k = r.random()
        e = lambda: self.expr(depth - 1)
        if k < .10:
            op = r.choice(BINOPS)  # powers of large numbers would stop Python itself
            return f"{e()} {op} {r.choice(['2', '0', '3', '-1', '.5', 'true', repr('a')]) if op == '**' else e()}"
        if k < .13:
            return f"({e()}, {e()})" if r.random() < .5 else f"({e()})"
        if k < .17:
            return f"[{', '.join(e() for _ in range(r.randint(0, 3)))}]"
        if k < .21:
            return "{" + ", ".join(f"{self.key()}: {e()}" for _ in range(r.randint(0, 2))) + "}"
        if k < .24:
            return f"{e()} if {e()} else {e()}" if r.random() < .8 else f"({e()} if {e()})"
        if k < .27:
            return r.choice(["not ", "-", "+"]) + e()
        if k < .36:
            return f"{self.atom(depth)}.{r.choice(STR_METHODS)}"
        if k < .42:
            return f"{self.atom(depth)}.{r.choice(OTHER_METHODS)}"
        if k < .58:
            return f"{self.atom(depth)}|{r.choice(FILTERS)}"
        if k < .66:
            return f"{self.atom(depth)}|{r.choice(RARE_FILTERS)}"
        if k < .72:
            return f"{self.atom(depth)} is {r.choice(['', '', 'not '])}{r.choice(TESTS)}"
        if k < .76:
            return f"{self.atom(depth)}[{e()}]"
        if k < .82:
            part = lambda: r.choice(["", "", "1", "-1", "2", "0", "-2", "none", "10", self.expr(0)])
            of = r.choice(NAMES)  # slices of constants are folded by the compiler, errors included
            of = f"({of}|{r.choice(FILTERS)})" if r.random() < .3 else of
            return f"{of}[{part()}:{part()}" + (f":{part()}]" if r.random() < .3 else "]")
        if k < .86:
            return r.choice(["range({})", "range(1, {})", "dict(a={})", "namespace(v={}).v", "mac({})", "mac(a={})", "mac({}, 2, 3)", "raise_exception({})", "dict({})", "cycler({}).next()", "joiner({})()"]).format(e())
        if k < .96:
            return self.rare(depth)
        return r.choice(NAMES)

    def key(self):
        return self.r.choice(["1", "0", "true", "none", "'a'", "'b'", "2.5", "s", "i", "x", "''", "(1, 2)", "0.0", "false", "1.0"])

    # One of the patterns above with small parts filled in.
    def rare(self, depth):
        r = self.r
        small = max(0, min(depth - 1, 1))
        fill = lambda p: p.format(a=f"({self.any(small)})", b=f"({self.any(0)})", c=f"({self.typed('num', 0)})", s=f"({self.typed('str', small)})", n=f"({self.typed('num', small)})", x=r.choice(["0.5", "-2", "3", "2.5"]),
                                  i=r.choice(["0", "1", "2", "3", "5", "7"]), l=f"({self.typed('list', 0)})")
        k = r.random()
        if k < .17:
            fmt, args = r.choice(PERCENT)
            return f"{fmt} % {args}" if r.random() < .8 else f"({fmt})|format({args if not args.startswith('(') else args[1:-1]})"
        if k < .36:
            return self.fill_format(r.choice(FORMATS))
        if k < .52:
            of = r.choice(["s", "u", "l", "ls", "lm", "multi", "range(9)", "(1, 2, 3, 4)", "messages", "el", "e", "(ls|map('upper')|list)", "s.split('l')"])
            return f"{of}{r.choice(SLICES)}"
        if k < .70:
            return fill(r.choice(CALLS))
        return fill(r.choice(COMPARE))

    # Formats are full of braces: only these names are filled in.
    def fill_format(self, p):
        for name, kind in (("a", None), ("b", None), ("s", "str"), ("n", "num"), ("i", None)):
            head, dot, tail = p.partition(".format") if not p.startswith("(") else ("", "", p)
            while "{" + name + "}" in tail:
                v = self.r.choice(["1", "42", "-7", "1234567", "0", "255", "t", "i"]) if name == "i" else f"({self.typed(kind, 1)})" if kind else f"({self.any(0)})"
                tail = tail.replace("{" + name + "}", v, 1)
            p = head + dot + tail.replace("{{", "{").replace("}}", "}")
        return p

    # Expressions of one type, which mostly do not fail.
    def typed(self, kind, depth):
        r = self.r
        if depth <= 0:
            return r.choice({"str": ["s", "u", "e", "pad", "html", "multi", "num", "'a'", "'x y'", "ls[0]", "messages[0].content", "messages[1]['role']", "hyph", "'\\u00e9x'"],
                             "num": ["i", "neg", "z", "x", "big", "1", "2", "3.5", "l[0]", "ld[0].a", "y", "small", "t", "0.1", "sci", "1e16", "0x10"],
                             "list": ["l", "ls", "el", "[1, 2]", "['x', 'b']", "range(4)", "(1, 2)", "[s, u]", "[i, x]", "pairs"],
                             "dict": ["d", "ed", "ld[0]", "{'q': 1}", "nest", "messages[0]", "dict(a=s)", "args"],
                             "bool": ["t", "f", "true", "s == e", "i > 3", "undef1 is defined", "1 < i < 10"]}[kind])
        n = lambda k: self.typed(k, depth - 1)
        safe = lambda k: f"({n(k)})"
        if kind == "str":
            return r.choice([
                lambda: f"{safe('str')}.{r.choice(STR_TO_STR)}", lambda: f"{safe('str')}|{r.choice(STR_F)}", lambda: f"{n('str')} + {n('str')}", lambda: f"{n('str')} ~ {n('num')}",
                lambda: f"{safe('num')}|string", lambda: f"{safe('list')}|join({r.choice(['', repr('-'), 's'])})", lambda: f"{r.choice(['s', 'u', 'multi', 'pad'])}[{r.choice(['', '1', '-3', '2'])}:{r.choice(['', '4', '-1', '99'])}{r.choice(['', '', ':2', ':-1'])}]",
                lambda: f"{safe('dict')}|tojson", lambda: f"{safe('list')}|tojson({r.choice(['', 'indent=2', 'true', 'indent=1, ensure_ascii=true', repr('x')])})", lambda: f"{n('str')} if {n('bool')} else {n('str')}", lambda: f"'%s|%r' % ({n('str')}, {n('list')})",
                lambda: f"'{{}} {{:>6}} {{!r}}'.format({n('str')}, {n('num')}, {n('str')})", lambda: f"{safe('str')} * 2", lambda: f"{safe('list')}|string", lambda: f"{safe('num')}|tojson", lambda: f"{safe(r.choice(['dict', 'list']))}|pprint",
                lambda: f"'%8.3f|%+d' % ({n('num')}, i)", lambda: f"'{{:,.2f}}|{{:<12}}|{{:+}}'.format({n('num')}, {n('num')}, {n('num')})", lambda: f"{safe('dict')}|xmlattr", lambda: f"{safe('dict')}|items|map('join', '=')|join('&')", lambda: f"{safe('str')}|replace({n('str')}, {n('str')})"])()
        if kind == "num":
            return r.choice([
                lambda: f"{safe('num')} {r.choice(['+', '-', '*'])} {safe('num')}", lambda: f"{safe('num')} {r.choice(['/', '//', '%'])} {r.choice(['2', '3', '-2', '0.5', '7'])}", lambda: f"{safe('str')}|{r.choice(['length', 'wordcount', 'int', 'float', 'count'])}",
                lambda: f"{safe('num')}|{r.choice(NUM_F)}", lambda: f"{safe('list')}|length", lambda: f"{safe('str')}.{r.choice(['count', 'find', 'rfind'])}('l')", lambda: f"-{safe('num')}", lambda: f"{safe('num')} ** 2", lambda: "l|sum", lambda: "l|max", lambda: f"[{n('num')}, {n('num')}]|{r.choice(['min', 'max', 'sum'])}",
                lambda: "ld|sum(attribute='a')", lambda: f"range(1, 20, 3)[{r.choice(['0', '-1', '2'])}]", lambda: f"{safe('list')}|map('string')|map('length')|sum", lambda: f"{safe('num')}|round({r.choice(['2', '-2', '1, ' + repr('ceil')])})"])()
        if kind == "list":
            return r.choice([
                lambda: f"{safe('list')}|{r.choice(LIST_F)}", lambda: f"[{n('str')}, {n('num')}]", lambda: f"{safe('str')}.{r.choice(STR_TO_LIST)}", lambda: f"{safe('dict')}|{r.choice(['items|list', 'list', 'dictsort'])}", lambda: f"{safe('dict')}.{r.choice(['items', 'keys', 'values'])}()|list",
                lambda: f"[{n('str')}] + [{n('str')}]", lambda: f"{r.choice(['l', 'ls', 'messages'])}[{r.choice(['', '1', '-2'])}:{r.choice(['', '2', '-1'])}]", lambda: f"ld|{r.choice(LD_F)}", lambda: f"{safe('list')}|list", lambda: f"({n('num')}, {n('str')})",
                lambda: f"{r.choice(['l', 'ls', 'lm', 'range(7)|list'])}{r.choice(SLICES[:15])}", lambda: f"{safe('list')} * {r.choice(['0', '1', '2'])}", lambda: "pairs|map('first')|list", lambda: f"range({r.choice(['3', '2, 9, 3', '5, 0, -2'])})|list"])()
        if kind == "dict":
            return r.choice([lambda: f"{{'k': {n('str')}, {n('num')}: {n('list')}}}", lambda: f"dict({n('dict')})", lambda: f"dict(a={n('num')}, b={n('str')})", lambda: f"{safe('dict')}.copy()", lambda: f"dict({n('dict')}, new={n('str')})", lambda: "dict(pairs, **args)", lambda: f"{{true: {n('num')}, 1.5: {n('str')}, none: 0}}"])()
        return r.choice([
            lambda: f"{safe('num')} {r.choice(['<', '<=', '>', '>=', '==', '!='])} {safe('num')}", lambda: f"{n('str')} in {safe('str')}", lambda: f"{safe('str')} {r.choice(['<', '==', '>='])} {safe('str')}", lambda: f"not {safe('bool')}", lambda: f"{safe('bool')} {r.choice(['and', 'or'])} {safe('bool')}",
            lambda: f"{safe(r.choice(['str', 'num', 'list', 'dict']))} is {r.choice(['', 'not '])}{r.choice(SAFE_TESTS)}", lambda: f"{safe('str')}.{r.choice(STR_TO_BOOL)}", lambda: f"{n('num')} in {safe('list')}", lambda: f"'a' in {safe('dict')}", lambda: f"{safe('num')} < {safe('num')} < {safe('num')}", lambda: f"{safe('dict')} == {safe('dict')}"])()

    def any(self, depth):
        k = self.r.random()
        if k < .20:
            return self.expr(depth)
        if k < .32 and depth > 0:
            return self.rare(depth)
        return self.typed(self.r.choice(["str", "str", "num", "list", "dict", "bool"]), depth)

    def atom(self, depth):
        a = self.expr(depth - 1)
        return a if a.isidentifier() or self.r.random() < .1 else f"({a})"

    def target(self):
        return self.r.choice(["loc", "loc", "v", "a", "a, b", "(a, b)", "ns.v", "x", "l", "ns.w", "a, (b, v)", "ns.v, a", "a,"])

    def tag(self, text):
        r = self.r
        return "{%" + r.choice(["", "", "", "-", "+"]) + f" {text} " + r.choice(["", "", "", "-", "+"]) + "%}"

    def text(self):
        return self.r.choice(["", "", " ", "\n", "a", "  \n  ", "x\n", "\n\n", "é", "{ }", "\t", "<|im_start|>", "}}", "\r\n", " \u00a0\n ", "%}"])

    def block(self, depth):
        return "".join(self.text() + self.stmt(depth) for _ in range(self.r.choice([1, 1, 2, 3]))) + self.text()

    def loop_field(self):
        return "{{ loop." + self.r.choice(["index", "index0", "revindex", "revindex0", "first", "last", "length", "previtem", "nextitem", "depth", "cycle(1, 2)", "changed(v)", "depth0", "cycle(*ls)", "changed()", "changed(v, loop.index0 // 2)", "nosuch", "cycle()", "previtem is defined", "nextitem.k"]) + " }}"

    # Loops that call themselves, over lists in lists, trees and maps.
    def recursive(self, depth):
        r = self.r
        inner = "".join(r.choice(["", self.loop_field(), "-", "\n", "{{ loop.depth }}"]) for _ in range(2))
        if depth > 0 and r.random() < .3:
            inner += self.block(0)
        cond = r.choice(["", "", "", " if v", " if v is defined"])
        if r.random() < .5:
            return self.tag(f"for v in tree{cond} recursive") + "{{ v.k }}" + inner + r.choice(["{{ loop(v.sub) }}", "{% if v.sub %}({{ loop(v.sub) }}){% endif %}", "{{ loop(v.sub)|upper }}", "{{ loop(v.sub|reverse|list) }}", "{{ loop() }}", "{{ loop(v.sub, 1) }}"]) + self.other(0) + self.tag("endfor")
        return self.tag(f"for v in ll{cond} recursive") + inner + r.choice(["{% if v is sequence and v is not string %}[{{ loop(v) }}]{% else %}{{ v }}{% endif %}", "{{ loop(v) if v is iterable and v is not string else v }}", "{% if v is string %}{{ v }}{% elif v is iterable %}{% set q = loop(v) %}{{ q|length }}{{ q }}{% endif %}"]) + self.other(0) + self.tag("endfor")

    def other(self, depth):
        return self.tag("else") + self.block(depth) if self.r.random() < .25 else ""

    # A macro that uses its caller, and call blocks with parameters.
    def call_block(self, depth):
        r = self.r
        name = r.choice(["cal", "cal", "mac"])
        head = r.choice(["call", "call", "call(p)", "call(p, q=2)", "call(p='z', q=p)", "call()"])
        use = r.choice(["{{ caller() }}", "{{ caller(1) }}", "{{ caller(a, 2) }}", "{{ caller(p=a) }}", "{{ caller(q=3) }}", "{{ caller(*[1, 2]) }}", "{{ caller.name }}{{ caller.arguments }}", "{{ caller }}", "{% if caller %}{{ caller(5) }}{% endif %}", "{{ caller(1, 2, 3) }}", "{{ caller()|upper ~ caller() }}", "{% for v in l %}{{ caller(v) }}{% endfor %}"])
        sig = r.choice(["", "a", "a=s", "a, caller=none", "a, b=[a]"])
        out = self.tag(f"macro {name}({sig})") + self.text() + use + self.text() + self.tag("endmacro") if r.random() < .8 else ""
        return out + self.tag(f"{head} {name}({r.choice(['', '1', 's', 'a=x', '1, b=2', '*l'])})") + self.text() + r.choice(["", "{{ p }}", "{{ p }}{{ q }}", "{{ varargs }}", "{{ kwargs }}", "{{ a }}"]) + self.block(max(depth - 1, 0)) + self.tag("endcall")

    def stmt(self, depth):
        r = self.r
        k = r.random()
        if depth <= 0 or k < .40:
            return "{{" + r.choice(["", "", "-", "+"] if r.random() < .2 else ["", "", "-"]) + f" {self.any(r.randint(0, 3))} " + r.choice(["", "", "-"]) + "}}"
        if k < .51:
            return self.tag(f"set {self.target()} = {self.any(2)}" + (f", {self.any(1)}" if r.random() < .15 else ""))
        if k < .62:
            other = self.tag("elif " + self.any(1)) + self.block(depth - 1) if r.random() < .3 else ""
            other += self.tag("else") + self.block(depth - 1) if r.random() < .4 else ""
            return self.tag("if " + self.any(2)) + self.block(depth - 1) + other + self.tag("endif")
        if k < .76:
            cond = " if " + self.any(1) if r.random() < .25 else ""
            head = f"for {r.choice(['v', 'a', 'a, b', 'x', 'loc', 'a, (b, v)', 'v, a'])} in {r.choice([self.any(2), self.any(2), 'd.items()', 'd|dictsort', 'pairs', 'ld|groupby(' + repr('a') + ')', 'tree', 'l, ls', 's', 'ls|batch(2)'])}{cond}"
            inner = self.block(depth - 1)
            if r.random() < .5:
                inner += self.loop_field()
            if r.random() < .15:
                inner += self.tag("if " + self.any(1)) + self.tag(r.choice(["break", "continue"])) + self.tag("endif")
            return self.tag(head) + inner + self.other(depth - 1) + self.tag("endfor")
        if k < .79:
            return self.recursive(depth)
        if k < .83:
            sig = r.choice(["", "a", "a, b=2", "a=l, b=a", "p, q='z'", "a=1, b=a + 1", "v, x=v|string", "loc=loc"])
            return self.tag(f"macro mac({sig})") + self.block(depth - 1) + r.choice(["", "{{ a }}", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ varargs|join }}{{ kwargs|dictsort }}", "{{ mac.name }}", "{% if a is defined and a %}{{ mac(none) }}{% endif %}"]) + self.tag("endmacro") + ("{{ mac(" + r.choice(["", "1", "s, 2", "a=3", "1, 2, 3", "*l", "**args", "b=1, a=x"]) + ") }}" if r.random() < .5 else "")
        if k < .86:
            return self.tag(r.choice(["set loc", "set loc | upper", "set loc|trim|length", "set loc|replace('a', 'b')|indent(1, true)", "set ns.v", "set loc|default('q', true)"])) + self.block(depth - 1) + self.tag("endset")
        if k < .89:
            return self.tag(r.choice(["filter upper", "filter trim", "filter indent(2)|title", "filter length", "filter replace('a', 'b')", "filter wordwrap(5)|trim", "filter tojson", "filter truncate(9, true)", "filter escape|lower", "filter nofilter"])) + self.block(depth - 1) + self.tag("endfilter")
        if k < .92:
            return self.call_block(depth)
        if k < .94:
            return self.tag("generation") + self.block(depth - 1) + self.tag("endgeneration")
        if k < .96:
            return self.tag(r.choice([f"with a = {self.any(1)}, b = 3", f"with a = {self.any(1)}, b = a", "with", "with a, b = (1, 2)", f"with loc = {self.any(1)}"])) + self.block(depth - 1) + self.tag("endwith")
        if k < .97:
            return self.tag(f"print {self.any(1)}" + (f", {self.any(0)}" if r.random() < .5 else ""))
        if k < .985:
            return r.choice(CORNERS)
        return r.choice(["{# note #}", "{#- note -#}", "{#+ note +#}", "{# {{ x }} {% if %} #}", "{% raw %}{{ x }}{% endraw %}", "{%- raw -%} {% x %} {%- endraw -%}", "{% raw %}\n a{% endraw +%}\n", "{%+ raw %} {# #} {% endraw -%} ", "  {%raw%}\n{%endraw%}\n", "\n  {#- a\nb -#}  \n", "{%set loc=1%}", "{%-set loc='%}'-%}", "{{'}}'}}", "{{-s-}}", "{{\n s\n}}"])

    def template(self):
        t = self.tag("set ns = namespace(v=0)") if self.r.random() < .7 else ""
        t += self.block(self.r.choice([0, 1, 1, 2, 2, 3]))
        if self.r.random() < .02:  # damage
            at = self.r.randrange(len(t) + 1)
            t = t[:at] + self.r.choice(["", "{%", "}}", "'", "(", "]", "|", "end", "{#", ",", ".", ":", "=", "is", "{% endif %}", "\\"]) + t[at + self.r.randint(0, 3):]
        return t
