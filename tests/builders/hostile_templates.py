"""Chat templates that try to run Python or to exhaust time and memory."""

from __future__ import annotations

BREAK_OUT = [
    "{{ cycler.__init__.__globals__.os.popen('touch F').read() }}",
    "{{ lipsum.__globals__['os'].popen('touch F').read() }}",
    "{{ ''.__class__.__mro__ }}",
    "{{ ('{0.__class__}').format(1) }}",
    "{{ ('{x.__class__}').format(x=1) }}",
    "{{ ('{0[0]}').format([1]) }}",
    "{{ '{0.__class__}'.format_map({}) }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ ['x']|sort(attribute='__class__.__mro__') }}",
    "{% include 'F' %}",
    "{% import 'F' as f %}",
    "{% from 'F' import f %}",
    "{% extends 'F' %}",
    "{% autoescape true %}{{ 1 }}{% endautoescape %}",
    "{{ 'x'.encode('utf-8') }}",
    "{{ messages[0].clear() }}",
]
NOTHING = [
    "{{ messages|attr('__class__') }}",
    "{{ messages.__class__ }}",
    "{{ raise_exception.__globals__ }}",
]

GROW = (
    "{% set ns = namespace(x=START) %}{% for i in range(100000) %}{% set ns.x = NEXT %}{% endfor %}"
)
KEEP = "{% set ns = namespace(l=[]) %}{% set s = 'x' * 1000000 %}"
KEEP += "{% for i in range(100000) %}{% set ns.l = ns.l + [NEXT] %}{% endfor %}"


def _grow(start: str, following: str) -> str:
    return GROW.replace("START", start).replace("NEXT", following)


HUNGRY = [
    "{% for i in range(10**9) %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) recursive %}{{ loop(range(100000)) }}{% endfor %}",
    "{% for i in range(100000) %}" + "x" * 10_000 + "{% endfor %}",
    "{% set x %}{% for i in range(100000) %}" + "x" * 10_000 + "{% endfor %}{% endset %}",
    "{{ 'x' * 10**10 }}",
    "{{ 10000000000 * 'x' }}",
    "{{ [1] * 10**10 }}",
    "{{ [[1] * 1000] * 1000000 }}",
    "{{ '%1000000000d'|format(1) }}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%.1000000000f' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%(a(b))1000000000d' % {'a(b)': 1} }}",
    "{{ '{:1000000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=1000000000) }}",
    "{{ 2**(2**40) }}",
    "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "{% macro f(n) %}{% if n %}{{ f(n-1) ~ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% block a %}{{ self.a() }}{% endblock %}",
    _grow("'ab'", "ns.x ~ ns.x"),
    _grow("'ab'", "ns.x + ns.x"),
    _grow("'ab'", "[ns.x, ns.x]|join"),
    _grow("[1, 2]", "ns.x + ns.x"),
    _grow("[1]", "[ns.x, ns.x]"),
    _grow("(1,)", "(ns.x,)"),
    _grow("{}", "{'a': ns.x.items(), 'b': ns.x.items()}"),
    _grow("2", "ns.x * ns.x"),
    KEEP.replace("NEXT", "s[1:]"),
    KEEP.replace("NEXT", "s|upper"),
    KEEP.replace("NEXT", "s.upper()"),
    KEEP.replace("NEXT", "s.partition('y')"),
    "{{ 'x'|center(1000000000) }}",
    "{{ 'x'.center(1000000000) }}",
    "{{ 'x'.ljust(1000000000) }}",
    "{{ 'x'.zfill(1000000000) }}",
    "{{ '\t'.expandtabs(1000000000) }}",
    "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
    "{{ ('x' * 1000000)|replace('', 'y' * 1000000) }}",
    "{{ ('x' * 100000)|list|join('y' * 1000000) }}",
    "{{ (['x' * 1000000] * 1000)|join }}",
    "{{ ['x' * 1000000] * 1000 }}",
    "{{ (['x' * 1000000] * 1000)|tojson }}",
    "{{ 'x'|indent(1000000000) }}",
    "{{ ('\n' * 1000000)|indent(10000) }}",
    "{{ [1]|tojson(indent=1000000000) }}",
    "{{ [1]|batch(1000000000, 1) }}",
    "{{ [1]|slice(1000000000, 1) }}",
    "{{ ([range(100000)] * 5000)|map('list')|list }}",
    "{{ ('x ' * 1000000).split() }}",
    "{{ ('x ' * 3000000)|title }}",
    "{{ 1|round(1000000000) }}",
    "{{ strftime_now('%1000000000d') }}",
    "{% set a = 'ab' * 500000 %}{% set b = 'ba' * 10000 ~ 'x' %}"
    "{% for i in range(100000) %}{{ b in a }}{% endfor %}",
    "x" * 100_000,
    "{{a+a}}" * 9_000,
    "{{ " + "(" * 10_000,
    "{{ " + "-" * 20_000 + "1 }}",
    "{{ a" + ".b" * 20_000 + " }}",
    "{% if 1 %}" * 5_000,
    "{% for x in y %}" * 50 + "{% endfor %}" * 50,
    "{{ " + "9" * 50_000 + " }}",
]

# A million characters, and the text that is searched in them.
TEXTS = "{% set a = '" + "a" * 1000 + "' * 1000 %}{% set b = '" + "a" * 1000 + "' * 500 %}"
MANY = "{% set many = ['" + "x" * 20 + "'] * 60000 %}"
PATH = ".".join("0" * 5_000)
HEAVY = [
    *(
        TEXTS + "{{ " + call + " }}"
        for call in (
            "a.rfind('b' ~ b)",
            "a.rindex('b' ~ b)",
            "a.rpartition('b' ~ b)[0]|length",
            "a.rsplit('b' ~ b)|length",
            "a.find(b ~ 'b')",
            "a.count(b ~ 'b')",
            "a.replace(b ~ 'b', '')|length",
            "a.strip(b ~ 'b')|length",
            "a.rstrip(b)|length",
            "a|trim(b)|length",
            "a|float",
            "[" + ", ".join(["b ~ 'b' in a"] * 2) + "]",
            "[" + ", ".join(["b in a ~ 'c'"] * 2) + "]",
        )
    ),
    TEXTS + "{% set c = b ~ 'b' %}{{ [" + ", ".join(["c in a"] * 2_000) + "]|length }}",
    MANY + "{{ [" + ", ".join(["many < many"] * 3_000) + "]|length }}",
    MANY
    + "{% for x in [0] recursive %}{% if x is number %}{{ loop(many) }}{% endif %}{% endfor %}",
    "{% for x in [0] recursive %}{% if x < 2 %}{{ loop([x + 1] * 3000) }}{% endif %}{% endfor %}",
    MANY + "{{ many|reject('defined')|list|length }}" * 30,
    MANY + f"{{{{ many|sort(attribute='{PATH}')|length }}}}",
    MANY + f"{{{{ many|rejectattr('{PATH}', 'none')|list|length }}}}",
]
"""They may render, and must end in time."""
