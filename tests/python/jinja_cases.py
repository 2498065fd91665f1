#!/usr/bin/env python3
"""Writes tests/data/jinja_cases.json: hand-written templates and what jinja2 makes of them in the sandbox of transformers.

usage: jinja_cases.py [OUT]. Needs jinja2 and transformers. One case a line below; \\n in a line that begins with a quote is a line end."""
import copy
import json
import sys
import warnings

from transformers.utils.chat_template_utils import _compile_jinja_template

VARS = {"s": "Hello Wörld ß", "n": None, "i": 7, "f": 2.5, "l": [3, 1, 2], "ls": ["b", "A", "c"], "d": {"b": 1, "a": "x", "items": 5}, "ld": [{"a": 1, "b": "y"}, {"a": 2}, {"a": 1, "b": "X"}],
        "big": 12345678901234567890, "t": True, "nest": {"a": {"b": [1, 2, {"c": "d"}]}}, "html": "<b>&\"'", "multi": "one\n\ntwo\n three", "e": "", "el": [], "neg": -3}

CASES = r'''
{{ s|upper }} {{ s|lower }} {{ s.title() }} {{ s|title }} {{ s|capitalize }} {{ s.swapcase() }} {{ s.casefold() }}
{{ "it's a-b (c) <d> x"|title }} {{ "it's a-b".title() }}
{{ l|sort }} {{ ls|sort }} {{ ls|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ ld|sort(attribute='a') }} {{ ld|sort(attribute='a,b') }}
{{ ld|map(attribute='a')|list }} {{ ld|map(attribute='b', default='?')|list }} {{ ls|map('upper')|join('-') }}
{{ ld|selectattr('b')|list }} {{ ld|selectattr('a','eq',1)|list }} {{ ld|rejectattr('a','equalto',1)|list }}
{{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ l|select('gt',1)|list }} {{ l|select('==', 1)|list }} {{ l|select('>=', 2)|list }} {{ l|select('!=', 2)|list }} {{ l|select('<', 2)|list }} {{ l|select('<=', 2)|list }} {{ l|select('>', 2)|list }}
{{ ld|groupby('a') }} {% for g in ld|groupby('a') %}{{ g.grouper }}:{{ g.list|length }} {% endfor %}
{{ l|batch(2)|list }} {{ l|batch(2,'x')|list }} {{ l|slice(2)|list }} {{ l|slice(2,'x')|list }}
{{ d|dictsort }} {{ d|dictsort(by='value') }}
{{ d|dictsort(reverse=true) }} {{ {'b': 2, 'A': 1}|dictsort }} {{ {'b': 2, 'A': 1}|dictsort(true) }} {{ {'b': 2, 'A': 1}|dictsort(by='value') }}
{{ d|items|list }} {{ d.items() }} {{ d.keys() }} {{ d.values() }} {{ d['items'] }}
{{ d|tojson }} {{ nest|tojson(indent=2) }} {{ l|tojson(indent=0) }} {{ s|tojson(true) }} {{ d|tojson(sort_keys=true) }} {{ d|tojson(separators=(',',':')) }} {{ d|tojson(indent='--') }} {{ [[], {}]|tojson(indent=1) }}
{{ "\x00\x1f\x7f\u2028<>&'\"\\/\b\f\n\r\t😀"|tojson }} {{ "\x7fé😀"|tojson(ensure_ascii=true) }} {{ [1e5, 1e-7, 1e22, -0.0, 1.0]|tojson }} {{ {1: none}|tojson }}
{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1e-5 }} {{ 0.1+0.2 }} {{ 1e22 }} {{ 2**10 }} {{ 2**100 }} {{ 2**-1 }} {{ 7//2 }} {{ -7//2 }} {{ -7%3 }} {{ 7%-3 }} {{ 7.5//2 }} {{ -7.5%2 }} {{ 0.0001 }} {{ 123456789.123 }}
{{ big }} {{ big+1 }} {{ big*big }} {{ big//7 }} {{ big%7 }} {{ -big//7 }} {{ -big%7 }} {{ big/3 }} {{ big|tojson }} {{ big == big+0 }} {{ big > 5 }} {{ (big*big)//big }} {{ (big*big)%(big+1) }} {{ big - big }} {{ big|round(1, 'floor') }}
{{ true+1 }} {{ 4/2 }} {{ 'a'*3 }} {{ [1]*2 }} {{ (1,)+(2,) }} {{ (1,) }} {{ () }} {{ {} }} {{ {'a':1,2:none,3.5:true} }}
{{ 'a' 'b' }} {{ "a\tb\x41\u00e9\101" }} {{ 'a\qb' }} {{ '\\' }} {{ "\é" }}
{{ 1 + 2 ~ 'a' }}
{{ 2**3**2 }} {{ -2**2 }} {{ -1|abs }} {{ not 1 is defined }} {{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 in l }} {{ 9 not in l }} {{ 'b' in d }}
{{ undefinedthing }}|{{ undefinedthing|default('x') }}|{{ n|default('x') }}|{{ n|default('x',true) }}|{{ undefinedthing is defined }}|{{ undefinedthing|d }}
{{ undefinedthing.x }}
{{ undefinedthing['x'] }}
{{ undefinedthing + 'a' }}
{{ undefinedthing.x is defined }}
{{ d.zz }}|{{ d.zz is defined }}|{{ l[10] }}|{{ s[100] }}
{{ d.zz.y }}
{{ s[0] }} {{ s[-1] }} {{ s[7] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[::2] }} {{ l[::-1] }} {{ l[-1:0:-1] }} {{ l[:2] }} {{ s[100:] }}|{{ l[1:100] }} {{ l[-100:2] }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a','b') }}{{ loop.changed(x) }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}none{% endfor %}
{% for x in [] %}a{% else %}b{% endfor %} {% for x in [1] %}{% continue %}{% else %}E{% endfor %} {% for x in [1,2,3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for a, b in d.items() %}{{ a }}={{ b }};{% endfor %} {% for a in d %}{{ a }}{% endfor %} {% for c in 'aé' %}[{{ c }}]{% endfor %} {% for (a, b), c in [((1, 2), 3)] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% for x in n %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}
{% set ns = namespace(x=1) %}{% for y in l %}{% set ns.x = ns.x + y %}{% endfor %}{{ ns.x }} {{ ns }}
{% set ns = namespace(_x=1) %}
{% set ns = namespace() %}{% set ns._y = 1 %}
{% set d.x = 1 %}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1) }} {{ m(1,3) }} {{ m(1,2,3,4) }} {{ m(1,z=5) }} {{ m() }} {{ m(*[7, 8], **{'c': 9}) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1,2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}hi{% endcall %} {% macro k(x) %}{{ caller(x) }}{% endmacro %}{% call(y) k(5) %}<{{ y }}>{% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}hi{% endcall %}
{% macro f(n) %}{% if n > 0 %}{{ n }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(5) }} {{ f }} {{ f.name }} {{ f.arguments }} {{ f.catch_kwargs }}
{% generation %}{% set y=1 %}{{y}}{% endgeneration %}[{{y}}]
{% for x in [1] %}{% generation %}{{ loop.index }}{{ x }}{% endgeneration %}{% endfor %}
{% for x in [1] %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% generation x %}{% endgeneration %}
{% set x %}a{{ 1 }}b{% endset %}{{ x }} {% set x|upper %}abc{% endset %}{{ x }} {% filter upper|trim %} abc {% endfilter %}
{% with a=1, b=2 %}{{ a+b }}{% endwith %}{{ a }}
{% if s is string and i is number and d is mapping and l is sequence and l is iterable and n is none and undefinedx is undefined %}ok{% endif %} {{ s is sequence }} {{ undefx is sequence }} {{ undefx is iterable }} {{ true is number }} {{ true is integer }} {{ 1 is integer }} {{ 1.0 is float }} {{ d is sequence }}
{{ 4 is divisibleby 2 }} {{ 3 is odd }} {{ 3 is even }} {{ 'a' is in 'abc' }} {{ 3 is in l }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ 1 is sameas 1 }} {{ s is eq s }} {{ 'upper' is filter }} {{ 'odd' is test }} {{ range is callable }} {{ html|safe is escaped }} {{ true is boolean }} {{ true is true }} {{ false is false }}
{{ s is foo }}
{{ s|foo }}
{% if false %}{{ s|foo }}{% endif %}ok
{% if true %}{{ s|foo }}{% endif %}ok
{{ (s|foo) if false else 'ok' }}
{{ s.split() }} {{ 'a,b,c'.split(',') }} {{ 'a,b,c'.split(',',1) }} {{ 'a,b,c'.rsplit(',',1) }} {{ ' a  b '.split(' ') }} {{ ' a  b '.split() }} {{ 'a b c'.split(none,1) }} {{ 'a b c '.rsplit(none,1) }}
{{ 'abc'.split('') }}
{{ multi.splitlines() }} {{ multi.splitlines(true) }} {{ multi|indent }} {{ multi|indent(2,true) }} {{ multi|indent(2,blank=true) }} {{ multi|indent('>>') }}
{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.strip('ab') }}|{{ ' a'.lstrip() }}|{{ 'a '.rstrip() }}|{{ '  x '|trim }}|{{ 'xax'|trim('x') }}|{{ '\u200b\u00a0x\u2003'.strip() }}
{{ s.startswith('He') }} {{ s.startswith(('x','H')) }} {{ s.endswith('ß') }} {{ s.find('W') }} {{ s.find('zz') }} {{ s.rfind('l') }} {{ s.index('W') }} {{ s.rindex('l') }} {{ s.count('l') }} {{ s.startswith('lo', 3) }} {{ 'aaa'.count('') }}
{{ s.index('zz') }}
{{ s.replace('l','L') }} {{ s.replace('l','L',1) }} {{ 'abc'.replace('','-') }} {{ s|replace('l','L') }} {{ s|replace('l','L',1) }} {{ 'abc'.replace('','-',2) }}
{{ ','.join(ls) }} {{ ls|join }} {{ ls|join(', ') }} {{ [1,none]|join('-') }} {{ ld|join(',', attribute='a') }}
{{ ','.join([1]) }}
{{ 'abc'.center(10,'*') }} {{ 'abc'.center(6) }}| {{ 'abc'.ljust(5,'.') }} {{ 'abc'.rjust(5) }} {{ '-5'.zfill(5) }} {{ 'abc'|center(9) }}| {{ 'a\tb'.expandtabs(4) }} {{ 'a-b-c'.partition('-') }} {{ 'a-b-c'.rpartition('-') }} {{ 'abc'.partition('x') }} {{ 'abc'.rpartition('x') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }}
{{ '%s-%d-%5.2f-%x-%05d-%-5s|-%r-%%' % ('a', 3, 2.345, 255, 42, 'ab', 'q') }} {{ '%s' % l }} {{ '%(a)s' % {'a':1} }} {{ '%s %s'|format('a','b') }} {{ '%(x)s'|format(x=1) }} {{ '%+d % d %#x %e %g' % (3,3,255,12345.678,0.00001) }}
{{ '%s' % ('a','b') }}
{{ '%d' % 'a' }}
{{ '%s %s' % 'a' }}
{{ '{} {1}'.format(1,2) }}
{{ '{' .format() }}
{{ '{} {}'.format(1,2) }} {{ '{0} {1} {0}'.format('a','b') }} {{ '{a} {b[0]} {c.x}'.format(a=1,b=[2],c={'x':3}) }} {{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:%}|{!r}'.format('a','b','c',42,3.14159,1234567,255,0.5,'q') }} {{ '{{}}'.format() }} {{ '{:{w}}'.format(1, w=4) }} {{ '{a}'.format_map({'a': 2}) }}
{{ 'ß'.upper() }} {{ 'İ'.lower()|length }} {{ 'ΑΣ'.lower() }} {{ 'ΑΣΑ'.lower() }} {{ 'ﬁ'.upper() }} {{ 'ǆ'.title() }} {{ '²'.isdigit() }} {{ '½'.isnumeric() }} {{ '²'.isdecimal() }} {{ 'é'.isalpha() }} {{ ' '.isspace() }} {{ 'abc1'.isalnum() }} {{ 'a b'.isidentifier() }} {{ 'Abc Def'.istitle() }} {{ 'é'.isascii() }} {{ 'ab'.islower() }} {{ 'AB'.isupper() }} {{ 'a\n'.isprintable() }} {{ 'ŉ'.upper() }} {{ 'Straße'.casefold() }} {{ 'ΐ'.upper()|length }}
{{ '1.5'|int }} {{ 'x'|int }} {{ 'x'|int(9) }} {{ '0x1A'|int(0,16) }} {{ ' 42 '|int }} {{ '1_000'|int }} {{ 3.9|int }} {{ -3.9|int }} {{ '1e3'|float }} {{ 'x'|float }} {{ 'inf'|float }} {{ '٣'|int }} {{ n|int }} {{ '123456789012345678901234567890'|int }} {{ '0b11'|int(base=0) }} {{ 'zz'|int(base=36) }} {{ '1e400'|float }}
{{ undefinedthing|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 5|round }} {{ 15|round(-1) }} {{ 25|round(-1) }} {{ 2.1|round(0,'ceil') }} {{ 2.15|round(1,'floor') }} {{ 1234.5|round(-2) }} {{ 1.0|round(2) }}
{{ neg|abs }} {{ l|sum }} {{ ld|sum(attribute='a') }} {{ l|min }} {{ l|max }} {{ ls|min }} {{ []|min }} {{ l|first }} {{ l|last }} {{ s|first }} {{ s|last }} {{ []|first }} {{ l|length }} {{ s|length }} {{ d|count }} {{ [[1],[2]]|sum(start=[]) }}
{{ l|reverse|list }} {{ s|reverse }} {{ [1,1,2,'a','A']|unique|list }} {{ ls|list }} {{ 'ab'|list }} {{ range(5)|list }} {{ range(5,0,-2)|list }} {{ range(3) }} {{ range(1,9,2)[1] }} {{ range(10)[2:5]|list }} {{ 3 in range(5) }}
{{ range(1000000) }}
{{ html|escape }} {{ html|e|e }} {{ html|forceescape }} {{ html|safe }} {{ (html|safe) + html }} {{ html ~ (html|safe) }} {{ html|safe|upper }} {{ '<b>x</b> <!-- c --> &amp; y'|striptags }} {{ html|urlencode }} {{ {'a b':'c/d'}|urlencode }} {{ {'a':'<','b':none}|xmlattr }} {{ [html|safe] }} {{ ('%s'|safe) % html }} {{ ('{}'|safe).format(html) }}
{{ 'hello big world foo bar'|truncate(12) }} {{ 'hello big world foo bar'|truncate(12,true) }} {{ 'hello big world foo bar'|truncate(12,false,'..',0) }} {{ 'hello world'|wordcount }} {{ 'the quick brown fox jumps'|wordwrap(10) }} {{ 1000000|filesizeformat }} {{ 1024|filesizeformat(true) }} {{ 1|filesizeformat }} {{ 500|filesizeformat }} {{ [1]|pprint }}
{{ d.get('a') }} {{ d.get('z') }} {{ d.get('z',3) }} {{ d.copy() }} {{ dict(a=1) }} {{ dict([('a',1)]) }} {{ dict.fromkeys('ab') }} {{ l.index(1) }} {{ l.count(1) }} {{ l.copy() }}
{{ l.append(1) }}
{{ d.update({}) }}
{{ d.pop('a') }}
{{ l.append }}x
{{ s.__class__ }}x
{{ s.__class__.x }}
{{ s|attr('upper') is callable }} {{ d|attr('a') is defined }} {{ d|attr('keys') is defined }}
{% set c = cycler(1,2) %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.next() }} {% set j = joiner('|') %}{{ j() }}a{{ j() }}b
{{ raise_exception('boom') }}
{{ raise_exception('line one\nline "two" é') }}
{{ [1,2]==[1,2] }} {{ (1,2)==[1,2] }} {{ 1==1.0 }} {{ 1==true }} {{ '1'==1 }} {{ n==undefx }} {{ undefx==undefy }} {{ {'a':1}=={'a':1.0} }} {{ [1,2]<[1,3] }} {{ 'a'<'b' }}
{{ 1 < 'a' }}
{{ n < 1 }}
{{ 'a' + 1 }}
{{ 1/0 }}
{{ l[0:2:0] }}
{{ 'yes' if i > 5 else 'no' }} {{ 'yes' if i > 50 }}| {{ i and s }} {{ e or 'x' }} {{ 1 if 0 else 2 if 0 else 3 }}
{{ 1, 2 }} {{ (1, 2) }} {{ [1, 'a', none, true, 1.0, undefx] }} {{ ["it's", 'q"', "it's \"q\"", '\n\t\\', '\x7f\u200b\u3042'] }}
{% raw %}{{ x }}{% endraw %} {# comment #} {{ '{{' }} {{ "%}" }}
{% for item in [[1,[2,[3]]]] recursive %}{{ loop.depth }}{% if item is iterable %}({{ loop(item) }}){% else %}{{ item }}{% endif %}{% endfor %}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set (c, d2) = (3, 4) %}{{ c }}{{ d2 }}
{% set a, b = 1 %}
{{ l|map('foo')|list }}
{{ n|map('foo')|list }}
{% set g = l|map('string') %}{{ g|list }}{{ g|list }}{{ g is iterable }}
{{ l|map('string')|length }}
{{ undefx|tojson }}
{{ l|tojson|safe }} {{ l|map('tojson')|join }} {{ nest|tojson|length }}
{{ d is mapping }} {{ d.items is callable }} {{ none is none }} {{ None }} {{ True }} {{ False }}
{% print 1, 2 %} {% if not true %}{% elif 1 %}x{% else %}y{% endif %}
{{ loop }}|{{ caller }}|{{ varargs }}
{% for x in [1] %}{% for y in [2] %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}
{% macro a() %}{{ zz }}{% endmacro %}{% set zz = 3 %}{{ a() }} {% for q in [1] %}{% macro b() %}{{ q }}{% endmacro %}{{ b() }}{% endfor %}
{% for x in l %}{% set last = x %}{% endfor %}{{ last }}|{% if true %}{% set inif = 1 %}{% endif %}{{ inif }}
{{ 'a' is string is defined }}
{{ (1).real }} {{ 1.5.is_integer() }} {{ (2.0).is_integer() }}
{{ i.bit_length() }} {{ neg.bit_length() }} {{ (0).bit_length() }} {{ t.bit_length() }} {{ big.bit_length() }} {{ (big*big*big).bit_length() }} {{ (-big).bit_length() }} {{ (2**640).bit_length() }} {{ (2**640-1).bit_length() }} {{ (2**64).bit_length() }} {{ (2**63).bit_length() }} {{ (2**32*2**64).bit_length() }}
{{ i.bit_count() }} {{ neg.bit_count() }} {{ (2**640-1).bit_count() }} {{ (big*big).bit_count() }} {{ (2**640).bit_count() }} {{ t.conjugate() }} {{ f.conjugate() }} {{ big.conjugate() }}
{{ i.bit_length(1) }}
{{ f.bit_length() }}
{{ {'a':1}['a'] }} {{ {'a':1}.a }} {{ [1,2,3].1 }} {{ l.0 }} {{ nest.a.b.2.c }} {{ nest['a']['b'][2]['c'] }}
{{ "a" if }}
{{ [1,2 }}
{{ (1 }}
{% if %}{% endif %}
{% endfor %}
{% for x in l %}
{% unknown %}
{{ x..y }}
{{ 'abc }}
{# open
{% raw %} open
{% break %}
{% for x in l %}{% macro q() %}{% break %}{% endmacro %}{% endfor %}
{% set loop = 1 %}{{ loop }}
{% for loop in l %}{% endfor %}
{% set true = 1 %}
{% include 'x' %}
{% if false %}{% include 'x' %}{% endif %}k
{{ 1_000 }} {{ 0x1f }} {{ 0b11 }} {{ 0o17 }} {{ 1e3 }} {{ 1.5e-3 }} {{ 00 }}
{{ 007 }}
{{ 'x' ~ 1 ~ none ~ [1] ~ undefx }} {{ 1 ~ 2 }}
{{ d|length }}{{ d|list }}{{ d|first }}{{ d|last }}
{{ strftime_now('%Y')|length }} {{ strftime_now('%z')|length }}
{{ s|string is string }} {{ 5|string }} {{ none|string }} {{ l|string }} {{ ['a']|upper }} {{ none|upper }} {{ 5|trim }} {{ [1]|replace('1','2') }}
{{ [1,'a']|sort }}
{{ {'a':1,'a':2,1:'x',true:'y',1.0:'z'} }}
{{ {[]:1} }}
{{ [1] in [[1]] }} {{ 'b' in 'abc' }}
{{ 1 in 'abc' }}
{{ 'a' in n }}
{{ 'a' in undefx }}
{{ 1 is divisibleby(0) }}
{{ '%c%c' % (65,'b') }} {{ '%5s|%-5s|%.2s' % ('a','b','cde') }} {{ '%*d' % (5, 3) }} {{ '%i %u %o' % (1,2,8) }} {{ '%d' % 3.99 }} {{ '%s' % none }} {{ '%s' % undefx }}|
{{ 'a\\nb' }} {{ "line1\nline2" }}
{{ ls|map('length')|sum }} {{ ls|map('replace','b','z')|list }} {{ ld|map(attribute='a')|map('string')|join }} {{ [[1,2],[3,4]]|map(attribute=0)|list }} {{ [[1,2],[3,4]]|map(attribute='1')|list }} {{ [[1,2],[3,4]]|sum(attribute=1) }}
{{ 10 is gt 5 }} {{ 10 is lt(5) }} {{ 'a' is ne 'b' }} {{ 5 is ge 5 }} {{ 5 is le 4 }} {{ 5 is greaterthan 4 }} {{ 5 is lessthan 4 }} {{ x is not defined }} {{ 1 is not none }}
{{ nosuch() }}
{{ s() }}
{{ s.nosuch() }}
{{ -'a' }}
{{ +true }} {{ -true }} {{ not none }}
{{ "%s" % s|upper }} {{ ("%s" % s)|upper }}
{{ d.b.c.d }}
{{ '1' * 3 }} {{ 3 * '1' }} {{ 'a' * -1 }}| {{ [0] * 3 }}
{{ 'a' * 1.5 }}
{{ {'x': [1, {'y': (1,2)}]} }} {{ {'x': [1, {'y': (1,2)}]}|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}
{{ {(1,2):3}|tojson }}
{{ ' a  b  c '.split(none, 1) }} {{ ' a  b  c '.rsplit(none, 1) }} {{ ' a b '.split(none, 0) }} {{ ' a b '.rsplit(maxsplit=0) }} {{ 'a b c'.split(maxsplit=1) }} {{ ' a '.split(none, 5) }}
{{ '{:<06}|{:^06}|{:>06}|{:=06}|{:06}'.format(5, 5, 5, 5, 'a') }} {{ '{:06,}|{:07,}|{:08,}|{:012,}|{:012,.2f}|{:#012_b}|{:09_x}'.format(1234, 1234, 1234, -1234567, 1234.5, 5, 65535) }} {{ '{:*<06}|{:x<+06d}|{:<08,}'.format(5, 5, 1234) }}
{{ '{[0]}'.format(l) }}
{{ '%06.1f|%-06d|%+06d' % (-2.5, 5, 5) }}
{{ 'a--b c -- d--e, f---g -h i- j-k- e-mail x-y-z 12-34 a1-b2-c3 !--? _a-_b ab-cd-ef ab-c'|wordwrap(3, false) }} {{ 'well-known--dash so--one (a)--b x--  --y a-b--c-d'|wordwrap(5) }}
{{ l|batch(0)|list }} {{ l|batch(2.0)|list }} {{ l|batch('a')|list }} {{ l|batch(true, 1)|list }} {{ l|batch(5, 'x')|list }} {{ l|batch(-1)|list }} {{ l|batch(none)|list }}
{{ l|batch(5.0, 1)|list }}
{{ d|pprint }} {{ nest|pprint }} {{ 5|pprint }} {{ (1,)|pprint }} {{ ''|pprint }} {{ undefinedthing|pprint }}
{{ {'key': s * 10, 'other': multi * 9, 'z': [s * 8, (s * 9,)], 1: none, none: [[1] * 40]}|pprint }}
{{ (s * 20)|pprint }} {{ [(s ~ '\n') * 5, 'x' * 100, 'é ' * 50]|pprint }} {{ ('x' * 78)|pprint }} {{ (multi * 3)|pprint }}
{{ d.keys() == d.keys() }} {{ d.items() == {}.items() }} {{ {1: 2}.items() == {1: 2}.items() }} {{ d.values() == d.values() }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.items }}{{ c.pos }} {% set j = joiner('|') %}{{ j.used }}{{ j() }}{{ j.sep }}{{ j.used }}
{{ 'a' is sameas 'a' }} {{ s is sameas s }} {{ s is sameas 'x' }}
{% filter length %}a{% endfilter %}
{% filter length %}a{% endfilter %}{{ undefinedthing.x }}
{% for x in l %}{% set q %}{% filter length %}a{% endfilter %}{% break %}{% endset %}{% endfor %}ok
{{ undefinedthing|round(1, 'ceil') }}
{{ []|map('nosuch')|list }} {{ []|select('nosuch')|list }} {{ (l|map('string'))|length if false else 'x' }}
{% set d2 = {} %}{% set d2.x %}y{% endset %}{{ d2 }}
{% set d2.x %}y{% endset %}
{% set n.x %}y{% endset %}
{% macro m(a) %}{{ caller(a, b=2) }}{{ caller.name }}{{ caller.arguments }}{% endmacro %}{% call(x, b=3) m(1) %}{{ x }}{{ b }}{% endcall %}
{% for k, v in {'a': {'b': {}}}.items() recursive %}{{ k }}{{ loop(v.items()) }}{{ loop.depth }}{% else %}-{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{{ loop.changed(x, 1) }}{{ loop.changed() }}{{ loop }}{% endfor %}
{{ big == big + 0.0 }} {{ big > 12345678901234567168.0 }} {{ 10**25 == 1e25 }} {{ -(10**25) < -1e25 }} {{ 10**22 == 1e22 }} {{ 9223372036854775807 == 9223372036854775808.0 }} {{ [big, 1e19, 1e20, big + 1]|sort }} {{ {10**16: 'a', 2**64: 'b'}[1e16] }} {{ {2**64: 'b'}[2.0**64] }} {{ [1e16, 10**16, 2**64, 2.0**64]|unique|list }}
a{#
a{% raw %}
{{ self.x }}{{ self is defined }}{{ self is iterable }}{{ self is sequence }}{{ 1 if self }}{{ self }}{{ self.a.b is defined }}
{{ self.x }}{{ self is defined }}{{ self is iterable }}{{ self is sequence }}{{ self is mapping }}{{ 1 if self }}{{ self }}
{{ self.__class__.x }}
{% set self = 3 %}{{ self }}{% macro m() %}{{ self }}{% endmacro %}{{ m() }}
{{ self.a }}{% set self = 3 %}{{ self }}
{% macro m() %}{{ self.a }}|{{ self is defined }}{% endmacro %}{{ m() }}{% for x in [1] %}{{ self.b }}{{ self is defined }}{% endfor %}
{% for self in [1, 2] %}{{ self }}{% endfor %}{{ self is defined }}
{{ 'a <!-- b > c'|striptags }}|{{ '<!-- x <b>y</b>'|striptags }}|{{ 'a < b <i>c</i> <d'|striptags }}|{{ ('<!--' * 50000)|striptags|length }}
{% if false %}{% extends 'x' %}{% endif %}ok
{% for x in [] %}{% extends 'x' %}{% endfor %}ok
{% if false %}{% with %}{% extends 'x' %}{% endwith %}{% endif %}ok
{{ 5|truncate(2) }}
{{ 1e24|filesizeformat }} {{ 1e30|filesizeformat }} {{ 1023.9|filesizeformat(true) }}
"a\n  {% if true %}\n  b\n  {% endif %}\nc"
"a\n  {%- if true -%}\n  b\n  {%- endif -%}\nc"
"a\n  {%+ if true +%}\n  b\n  {%+ endif +%}\nc"
"  {{ 1 }}\n  {# c #}\n x {# d #}\ny\n"
"x\n{#- c -#}\n y"
"{% set x=1 %}   \n{{ x }}\n\n"
"a\r\n{% if true %}\r\nb{% endif %}\rc\r\n"
"{% raw %}\n a {{ b }}\n{% endraw %}\nc {%- raw -%} d {%- endraw -%} e"
"{{ 'a\r\nb' }}"
"{%- for x in l -%}\n  {{- x -}}\n{%- endfor -%}\n."
"line one\nline two {{ undefx.y }}"
'''


def case(text):
    if text.startswith('"'):
        text = json.loads(text)
    try:
        return {"t": text, "output": _compile_jinja_template(text).render(**copy.deepcopy(VARS))}
    except Exception as e:
        return {"t": text, "error": f"{type(e).__name__}: {e}"}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    out = {"variables": VARS, "cases": [case(line) for line in CASES.strip("\n").split("\n") if line]}
    with open(sys.argv[1] if len(sys.argv) > 1 else "tests/data/jinja_cases.json", "w") as f:
        json.dump(out, f, ensure_ascii=True, indent=0)
        f.write("\n")
    print(len(out["cases"]), "cases")
