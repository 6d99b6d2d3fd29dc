"""The filters, methods and functions that a chat template may call, each with its price.

A function whose result can be much larger than its input pays the Budget before it works. A
template cannot reach anything that is not listed here. template/sandbox.py compiles and runs
templates.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from typing import Any, cast

from jinja2 import Environment, pass_environment
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.runtime import LoopContext
from jinja2.sandbox import safe_range
from jinja2.utils import Cycler, Joiner, Namespace
from markupsafe import escape

from onward.text.template.budget import MAX_DEPTH, BudgetExceeded, budget_in_use

_MAX_WIDTH = 10_000

# Filters of jinja2 that are used unchanged. The frugal ones never make a list of a text.
_FRUGAL_NAMES = "capitalize count d default first last length lower upper"
_OTHER_NAMES = (
    "abs attr dictsort float groupby items map max min reject rejectattr reverse select selectattr "
    "sort title truncate unique"
)
_TEXT_QUESTIONS = (
    "count endswith find index isalnum isalpha isascii isdecimal isdigit isidentifier islower "
    "isnumeric isprintable isspace istitle isupper startswith"
)
_TEXT_CHANGES = "capitalize casefold lower partition removeprefix removesuffix swapcase title upper"
_MAX_COMPARISONS = 50_000_000
"""Of characters, in one call whose time is the product of two lengths."""


class RaisedByTemplate(TemplateError):
    """The template called raise_exception."""


class QuietNamespace(Namespace):
    """A namespace that does not print its attributes, because they may hold namespaces in turn."""

    def __repr__(self) -> str:
        return "<namespace>"


class QuietCycler(Cycler):
    """A cycler that prints no address."""

    def __repr__(self) -> str:
        return "<cycler>"


class QuietJoiner(Joiner):
    """A joiner that prints no address."""

    def __repr__(self) -> str:
        return "<joiner>"


class Function:
    """A function for templates, as a value that prints no address."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name, self.function = name, function

    def __repr__(self) -> str:
        return f"<function {self.name}>"


def _concat(parts: Iterable[Any]) -> str:
    budget = budget_in_use()
    budget.pay(sum(budget.text_size(part) for part in parts))
    return "".join(map(str, parts))


@pass_environment
def _join(
    environment: Environment, value: Iterable[Any], d: Any = "", attribute: str | int | None = None
) -> str:
    parts = _attributes(environment, value, attribute)
    budget_in_use().pay(sum(budget_in_use().text_size(part) for part in parts))
    return _join_text(str(d), map(str, parts))


def _attributes(
    environment: Environment, values: Iterable[Any], attribute: str | int | None
) -> list[Any]:
    """`values`, or the given attribute of each."""
    if attribute is not None:
        values = map(make_attrgetter(environment, attribute), values)
    return budget_in_use().listed(values)


def _join_text(separator: str, parts: Iterable[str]) -> str:
    budget = budget_in_use()
    found = budget.listed(parts)
    budget.pay(budget.text_size(separator) * len(found))
    budget.pay(sum(budget.text_size(part) for part in found))
    return separator.join(found)


def _replace(text: Any, old: Any, new: Any, count: int | None = -1) -> str:
    text, old, new = str(text), str(old), str(new)
    budget = budget_in_use()
    budget.pay(budget.text_size(text) + text.count(old) * budget.text_size(new))
    return cast(str, text.replace(old, new, -1 if count is None else count))


def _changed(method: Callable[..., Any]) -> Callable[..., Any]:
    def change(text: str, *args: Any) -> Any:
        budget_in_use().pay(budget_in_use().text_size(text))
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


def _split(text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    _pay_parts(text, sep, maxsplit)
    return text.split(sep, maxsplit)


def _pay_parts(text: str, sep: str | None, maxsplit: int) -> None:
    parts = text.count(sep) + 1 if sep else len(text) // 2 + 1
    if maxsplit >= 0:
        parts = min(parts, maxsplit + 1)
    budget = budget_in_use()
    budget.pay(64 * parts + budget.text_size(text))


# Searches from the right. Python's own take the product of both lengths at worst. Searches from
# the left are linear, so the text is reversed.


def _rsplit(text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    _pay_parts(text, sep, maxsplit)
    if not sep:
        return text.rsplit(sep, maxsplit)
    budget_in_use().pay(2 * budget_in_use().text_size(text))
    return [part[::-1] for part in reversed(text[::-1].split(sep[::-1], maxsplit))]


def _rpartition(text: str, sep: str) -> tuple[str, str, str]:
    budget_in_use().pay(3 * budget_in_use().text_size(text))
    after, found, before = text[::-1].partition(sep[::-1])
    return before[::-1], found[::-1], after[::-1]


def _rfind(text: str, part: str, start: int | None = None, end: int | None = None) -> int:
    first, last, _ = slice(start, end).indices(len(text))
    if first > last or (start is not None and start > len(text)):
        return -1
    budget_in_use().pay(2 * budget_in_use().text_size(text))
    at = text[first:last][::-1].find(part[::-1])
    return -1 if at < 0 else last - at - len(part)


def _rindex(text: str, part: str, start: int | None = None, end: int | None = None) -> int:
    found = _rfind(text, part, start, end)
    if found < 0:
        raise ValueError("substring not found")
    return found


def _stripped(method: Callable[..., str]) -> Callable[..., str]:
    def strip(text: Any, chars: str | None = None) -> str:
        text = str(text)
        budget_in_use().pay(budget_in_use().text_size(text))
        if chars is not None:
            chars = "".join(dict.fromkeys(chars))
            if len(text) * len(chars) > _MAX_COMPARISONS:
                raise BudgetExceeded(
                    f"strip: compares {len(text)} characters with {len(chars)}, expected at most "
                    f"{_MAX_COMPARISONS} comparisons"
                )
        return method(text, chars)

    return strip


def _count_lines(text: str) -> int:
    return 1 + sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"))


def _splitlines(text: str, keepends: bool = False) -> list[str]:
    budget_in_use().pay(64 * _count_lines(text) + budget_in_use().text_size(text))
    return text.splitlines(keepends)


def _indent(text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
    text = str(text)
    _check_width(width)
    size = budget_in_use().text_size(width) if isinstance(width, str) else 4 * width
    budget_in_use().pay(size * _count_lines(text))
    return cast(str, FILTERS["indent"](text, width, first, blank))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    budget = budget_in_use()
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


def percent(text: str, values: Any) -> str:
    budget = budget_in_use()
    fields = re.findall(r"%(?:\([^()]*\))?[^a-zA-Z%]*", text)
    for field in fields:
        if field.count("(") != field.count(")"):
            raise SecurityError(f"a chat template may not format {field[:20]!r}")
        if "*" in field or re.search(r"\d{4}", field.rpartition(")")[2]):
            raise BudgetExceeded(f"a width in {field[:20]!r} is larger than 999")
    budget.pay(budget.text_size(text) + len(fields) * (1000 + budget.text_size(values)))
    return cast(str, text % values)


def _format_filter(text: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise TemplateError("format takes positional or named values, not both")
    return percent(str(text), kwargs or args)


def _format(text: str, *args: Any, **kwargs: Any) -> str:
    """str.format without attributes, items and nested fields."""
    budget = budget_in_use()
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
    return FILTERS["slice"](budget_in_use().listed(value), slices, fill_with)


@pass_environment
def _sum(
    environment: Environment,
    value: Iterable[Any],
    attribute: str | int | None = None,
    start: Any = 0,
) -> Any:
    values = _attributes(environment, value, attribute)
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
    budget_in_use().pay(5 * budget_in_use().text_size(value))
    return str.__str__(escape(str(value)))


def _string(value: Any) -> str:
    budget_in_use().pay(budget_in_use().text_size(value))
    return str(value)


def _list(value: Iterable[Any]) -> list[Any]:
    return budget_in_use().listed(value)


def _guarded(function: Callable[..., Any], frugal: bool = True) -> Callable[..., Any]:
    """A filter that asks the Budget before it works, pays for its result and never returns an
    iterator. Unless it is frugal, a text counts as the list of its characters."""

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        budget = budget_in_use()
        budget.tick()
        if not frugal:
            budget.pay(sum(80 * len(arg) for arg in args if isinstance(arg, str)))
        result = function(*args, **kwargs)
        if hasattr(result, "__next__"):
            return budget.listed(result)
        return budget.made(result)

    return guarded


def _raise_exception(message: Any = "") -> None:
    raise RaisedByTemplate(str(message)[:10_000])


def _strftime_now(format: str) -> str:
    if len(str(format)) > 200 or re.search(r"\d{4}", str(format)):
        raise BudgetExceeded("a date format is too long")
    return datetime.now().strftime(str(format))


def _dict(*pairs: Any, **items: Any) -> dict[Any, Any]:
    return dict(*pairs, **items)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "range": safe_range,
    "dict": _dict,
    "namespace": QuietNamespace,
    "cycler": QuietCycler,
    "joiner": QuietJoiner,
    "raise_exception": _raise_exception,
    "strftime_now": _strftime_now,
}
FUNCTIONS = {name: Function(name, function) for name, function in _FUNCTIONS.items()}

METHODS: dict[type, dict[str, Callable[..., Any]]] = {
    str: {
        **{name: getattr(str, name) for name in _TEXT_QUESTIONS.split()},
        **{name: _changed(getattr(str, name)) for name in _TEXT_CHANGES.split()},
        "center": _padded(str.center),
        "format": _format,
        "join": _join_text,
        "ljust": _padded(str.ljust),
        "lstrip": _stripped(str.lstrip),
        "replace": _replace,
        "rfind": _rfind,
        "rindex": _rindex,
        "rjust": _padded(str.rjust),
        "rpartition": _rpartition,
        "rsplit": _rsplit,
        "rstrip": _stripped(str.rstrip),
        "split": _split,
        "splitlines": _splitlines,
        "strip": _stripped(str.strip),
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


_OWN: dict[str, Callable[..., Any]] = {
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
    "trim": _stripped(str.strip),
}

ALLOWED_FILTERS: dict[str, Callable[..., Any]] = {
    **{name: _guarded(FILTERS[name]) for name in _FRUGAL_NAMES.split()},
    **{name: _guarded(FILTERS[name], frugal=False) for name in _OTHER_NAMES.split()},
    **{name: _guarded(function) for name, function in _OWN.items()},
}
