"""Chat templates are programs from strangers: this is where they run.

A jinja2 environment for which what is not listed here does not exist: filters, string methods and
functions are allowed by name, and each knows what its result may cost. The syntax tree of a
template is changed before it is compiled, so that loops, literals, slices, `~` and output ask the
Budget as well. There is no loader: nothing opens a file. It does not know messages or tokenizers.
"""

from __future__ import annotations

import json
import re
import string
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cache, wraps
from typing import Any, cast

from jinja2 import Template, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import BlockReference, Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment, safe_range
from jinja2.utils import Cycler, Joiner, Namespace
from jinja2.visitor import NodeTransformer
from markupsafe import escape

from onward.template_budget import MAX_DEPTH, Budget, BudgetExceeded

MAX_SOURCE_CHARACTERS = 128 << 10
MAX_NODES = 40_000
_MAX_WIDTH = 10_000
_REFUSED = (  # what opens other templates, and what changes the type of text
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Extends,
    nodes.EvalContextModifier,
)

_active = threading.local()


def _budget() -> Budget:
    return cast(Budget, _active.budget)


class RaisedByTemplate(TemplateError):
    """The template called raise_exception."""


def compile_template(source: str) -> Template:
    """Compile `source`.

    Raises:
        BudgetExceeded: it is too long.
        Exception: of many types, where it is not a template.
    """
    if len(source) > MAX_SOURCE_CHARACTERS:
        raise BudgetExceeded(
            f"it has {len(source)} characters, expected at most {MAX_SOURCE_CHARACTERS}"
        )
    environment = _environment()
    tree = environment.parse(source)
    for count, node in enumerate(tree.find_all(nodes.Node)):
        if isinstance(node, _REFUSED):
            name = type(node).__name__.lower()
            raise SecurityError(f"line {node.lineno}: a chat template may not use {name}")
        if count > MAX_NODES:
            raise BudgetExceeded(f"it has more than {MAX_NODES} parts")
    tree = _Guarding().visit(tree)
    tree.set_environment(environment)
    code = environment.compile(tree, filename="<chat template>")
    return Template.from_code(environment, code, environment.make_globals(None))


def render_template(template: Template, variables: Mapping[str, Any], budget: Budget) -> str:
    """Render `template`, within `budget`.

    Raises:
        BudgetExceeded: it went over its budget.
        Exception: of many types, where the template fails.
    """
    _active.budget = budget
    try:
        return "".join(budget.each(template.generate(variables)))
    finally:
        del _active.budget


class _Guarding(NodeTransformer):
    """Puts a filter that asks the Budget around everything that makes a value without a call."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.iter = _filtered(node.iter, "@each")
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        node.nodes = [
            nodes.Const(child.data, lineno=child.lineno)
            if isinstance(child, nodes.TemplateData)
            else self.visit(child)
            for child in node.nodes
        ]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), "@concat")

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made") if node.ctx == "load" else node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(node, "@made") if isinstance(node.arg, nodes.Slice) else node


def _filtered(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks text for training; here it is only text."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(Namespace):
    def __repr__(self) -> str:
        return "<namespace>"


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _budget()
        budget.tick()
        if operator == "%" and isinstance(left, str):
            return budget.made(_percent(left, right))
        if operator == "+" and isinstance(left, (str, list, tuple)) and type(left) is type(right):
            budget.pay(8 * (len(left) + len(right)))
        elif operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, (str, list, tuple)) and isinstance(times, int):
                    size = budget.text_size(many)
                    budget.pay(size * max(0, times))
        elif operator == "**" and (not _is_small(left) or not _is_small(right)):
            raise BudgetExceeded("an operand of ** is larger than 64")
        return budget.made(super().call_binop(context, operator, left, right))

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        budget = _budget()
        if isinstance(obj, (Macro, LoopContext, BlockReference, Joiner, Undefined)):
            budget.enter()
            result = budget.made(super().call(context, obj, *args, **kwargs))
            budget.calls -= 1
            return result
        budget.tick()
        if obj in _FUNCTIONS.values():
            return budget.made(obj(*args, **kwargs))
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        for kind, methods in _METHODS.items():
            if isinstance(owner, kind) and name in methods:
                return budget.made(methods[name](owner, *args, **kwargs))
        raise SecurityError(f"a chat template may not call {name or type(obj).__name__}")

    def wrap_str_format(self, value: Any) -> None:
        return None  # str.format is called as any other method, see _format


def _is_small(value: Any) -> bool:
    return not isinstance(value, (int, float)) or abs(value) <= 64


@pass_context
def _shown(context: Context, value: Any) -> Any:
    budget = _budget()
    budget.tick()
    budget.pay(budget.text_size(value))
    return value


# Filters. Each is called with the Budget's permission and its result is paid for; what can make
# much of little pays beforehand.


def _concat(parts: Iterable[Any]) -> str:
    budget = _budget()
    budget.pay(sum(budget.text_size(part) for part in parts))
    return "".join(map(str, parts))


def _join(value: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
    parts = _attributes(value, attribute)
    _budget().pay(sum(_budget().text_size(part) for part in parts))
    return _join_text(str(d), map(str, parts))


def _attributes(values: Iterable[Any], attribute: str | int | None) -> list[Any]:
    """`values`, or that attribute of each."""
    if attribute is not None:
        values = map(make_attrgetter(_environment(), attribute), values)
    return _budget().listed(values)


def _join_text(separator: str, parts: Iterable[str]) -> str:
    budget = _budget()
    found = budget.listed(parts)
    budget.pay(budget.text_size(separator) * len(found))
    budget.pay(sum(budget.text_size(part) for part in found))
    return separator.join(found)


def _replace(text: Any, old: Any, new: Any, count: int | None = -1) -> str:
    text, old, new = str(text), str(old), str(new)
    budget = _budget()
    budget.pay(budget.text_size(text) + text.count(old) * budget.text_size(new))
    return cast(str, text.replace(old, new, -1 if count is None else count))


def _changed(method: Callable[..., Any]) -> Callable[..., Any]:
    def change(text: str, *args: Any) -> Any:
        _budget().pay(_budget().text_size(text))
        return method(text, *args)

    return change


def _padded(method: Callable[..., str]) -> Callable[..., str]:
    def pad(text: Any, width: int = 80, *fill: str) -> str:
        _check_width(width)
        return method(str(text), width, *fill)

    return pad


def _check_width(width: Any) -> None:
    if isinstance(width, int) and abs(width) > _MAX_WIDTH:
        raise BudgetExceeded(f"a width is {width}, expected at most {_MAX_WIDTH}")


def _split(method: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def split(text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
        parts = text.count(sep) + 1 if sep else len(text) // 2 + 1
        if maxsplit >= 0:
            parts = min(parts, maxsplit + 1)
        budget = _budget()
        budget.pay(64 * parts + budget.text_size(text))
        return method(text, sep, maxsplit)

    return split


def _count_lines(text: str) -> int:
    return 1 + sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))


def _splitlines(text: str, keepends: bool = False) -> list[str]:
    _budget().pay(64 * _count_lines(text) + _budget().text_size(text))
    return text.splitlines(keepends)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = str(text)
    _check_width(width)
    size = _budget().text_size(width) if isinstance(width, str) else 4 * width
    _budget().pay(size * _count_lines(text))
    return cast(str, FILTERS["indent"](text, width, first, blank))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    budget = _budget()
    weight = budget.weigh(value)
    if indent is not None:
        _check_width(indent)
        step = len(indent) if isinstance(indent, str) else indent
        weight += weight // 8 * step * MAX_DEPTH
    if separators is not None:
        weight += weight // 8 * sum(len(str(text)) for text in separators)
    budget.pay(4 * weight)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _percent(text: str, values: Any) -> str:
    budget = _budget()
    fields = re.findall(r"%(?:\([^()]*\))?[^a-zA-Z%]*", text)
    for field in fields:
        if field.count("(") != field.count(")"):
            raise SecurityError(f"a chat template may not format {field[:20]!r}")
        if "*" in field or re.search(r"\d{4}", field.rpartition(")")[2]):
            raise BudgetExceeded(f"a width in {field[:20]!r} is larger than 999")
    budget.pay(budget.text_size(text) + len(fields) * (1000 + budget.text_size(values)))
    return text % values


def _format_filter(text: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TemplateError("format takes positional or named values, not both")
    return _percent(str(text), kwargs or args)


def _format(text: str, *args: Any, **kwargs: Any) -> str:
    """str.format without attributes, items and nested fields."""
    budget = _budget()
    for literal, name, spec, _ in string.Formatter().parse(text):
        budget.tick()
        if name is not None and not re.fullmatch(r"\w*", name):
            raise SecurityError(f"a chat template may not format {name[:60]!r}")
        if spec and ("{" in spec or re.search(r"\d{4}", spec)):
            raise BudgetExceeded(f"a width in {spec[:20]!r} is larger than 999")
        size = 1000 + budget.text_size(args) + budget.text_size(kwargs)
        budget.pay(len(literal) + (size if name is not None else 0))
    return text.format(*args, **kwargs)


def _batch(value: Iterable[Any], linecount: int, fill_with: Any = None) -> Any:
    _check_width(linecount)
    return FILTERS["batch"](value, linecount, fill_with)


def _slice(value: Iterable[Any], slices: int, fill_with: Any = None) -> Any:
    _check_width(slices)
    return FILTERS["slice"](_budget().listed(value), slices, fill_with)


def _sum(value: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
    values = _attributes(value, attribute)
    if not all(isinstance(item, (int, float)) for item in [*values, start]):
        raise TemplateError("sum: found something that is not a number")
    return sum(values, start)


def _int(value: Any, default: int = 0, base: int = 10) -> int:
    if isinstance(value, str) and len(value) > 64:
        return default
    return cast(int, FILTERS["int"](value, default, base))


def _round(value: float, precision: int = 0, method: Any = "common") -> float:
    if not -30 <= precision <= 30:
        raise BudgetExceeded(f"a precision is {precision}, expected -30 to 30")
    return cast(float, FILTERS["round"](value, precision, method))


def _escape(value: Any) -> str:
    _budget().pay(5 * _budget().text_size(value))
    return str.__str__(escape(str(value)))


def _string(value: Any) -> str:
    _budget().pay(_budget().text_size(value))
    return str(value)


def _list(value: Iterable[Any]) -> list[Any]:
    return _budget().listed(value)


_OWN_FILTERS: dict[str, Callable[..., Any]] = {
    "@concat": _concat,
    "batch": _batch,
    "center": _padded(str.center),
    "e": _escape,
    "escape": _escape,
    "format": _format_filter,
    "indent": _indent,
    "int": _int,
    "join": _join,
    "list": _list,
    "replace": _replace,
    "round": _round,
    "safe": _string,
    "slice": _slice,
    "string": _string,
    "sum": _sum,
    "tojson": _tojson,
}
_FRUGAL = {
    *_OWN_FILTERS.values(),
    *(FILTERS[name] for name in "capitalize count d default first last lower trim upper".split()),
}
_JINJA_FILTERS = (
    "abs attr capitalize count d default dictsort first float groupby items last length lower map "
    "max min reject rejectattr reverse select selectattr sort title trim truncate unique upper"
).split()


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that asks before it works, pays for its result and never returns an iterator.

    A text is paid for as the list of its characters, which many filters turn it into.
    """

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        budget = _budget()
        budget.tick()
        if function not in _FRUGAL:
            budget.pay(sum(80 * len(arg) for arg in args if isinstance(arg, str)))
        result = function(*args, **kwargs)
        if hasattr(result, "__next__"):
            return budget.listed(result)
        return budget.made(result)

    return guarded


def _each(values: Iterable[Any]) -> Iterable[Any]:
    return _budget().each(values)


def _made(value: Any) -> Any:
    return _budget().made(value)


def _raise_exception(message: Any = "") -> None:
    raise RaisedByTemplate(str(message)[:10_000])


def _strftime_now(format: str) -> str:
    if len(str(format)) > 200 or re.search(r"\d{4}", str(format)):
        raise BudgetExceeded("a date format is too long")
    return datetime.now().strftime(str(format))


def _dict(*pairs: Any, **items: Any) -> dict[Any, Any]:
    return dict(*pairs, **items)


_FUNCTIONS: dict[str, Any] = {
    "range": safe_range,
    "dict": _dict,
    "namespace": _Namespace,
    "cycler": Cycler,
    "joiner": Joiner,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}

_TEXT_QUESTIONS = (
    "count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower "
    "isnumeric isprintable isspace istitle isupper rfind rindex startswith"
).split()
_TEXT_CHANGES = (
    "capitalize casefold lower lstrip partition removeprefix removesuffix rpartition rstrip strip "
    "swapcase title upper"
).split()

_METHODS: dict[type, dict[str, Callable[..., Any]]] = {
    str: {
        **{name: getattr(str, name) for name in _TEXT_QUESTIONS},
        **{name: _changed(getattr(str, name)) for name in _TEXT_CHANGES},
        "center": _padded(str.center),
        "format": _format,
        "join": _join_text,
        "ljust": _padded(str.ljust),
        "replace": _replace,
        "rjust": _padded(str.rjust),
        "rsplit": _split(str.rsplit),
        "split": _split(str.split),
        "splitlines": _splitlines,
        "zfill": _padded(str.zfill),
    },
    dict: {
        "get": dict.get,
        "items": lambda value: list(value.items()),
        "keys": lambda value: list(value),
        "values": lambda value: list(value.values()),
    },
    list: {"count": list.count, "index": list.index},
    tuple: {"count": tuple.count, "index": tuple.index},
    Cycler: {"next": Cycler.next, "reset": Cycler.reset},
    LoopContext: {"changed": LoopContext.changed, "cycle": LoopContext.cycle},
}


@cache
def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[loopcontrols, _GenerationTag],
        finalize=_shown,
        optimized=False,  # nothing is evaluated before a rendering and its Budget begin
        autoescape=False,
    )
    environment.filters = {name: _guarded(FILTERS[name]) for name in _JINJA_FILTERS}
    environment.filters.update((name, _guarded(f)) for name, f in _OWN_FILTERS.items())
    environment.filters["@each"] = _each
    environment.filters["@made"] = _made
    environment.globals = dict(_FUNCTIONS)
    return environment
