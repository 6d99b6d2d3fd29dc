"""One generation option: its row in the table, and the check of a value for it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from onward.errors import ArgumentTypeError, InvalidArgument
from onward.message_text import literal, nearest

Kind = Literal[
    "integer",
    "optional_integer",
    "number",
    "flag",
    "seed",
    "name",
    "early_stopping",
    "texts",
    "constraint",
    "callable",
    "callables",
    "ids",
    "allowed_ids",
    "id_lists",
    "biases",
]


@dataclass(frozen=True)
class Option:
    """One row of the table."""

    name: str
    kind: Kind
    default: Any
    help: str
    low: float = -math.inf
    high: float = math.inf
    above_low: bool = False
    """The lowest value itself is not legal."""
    choices: tuple[int | str, ...] = ()
    """The only legal values, where not empty."""
    absent: str = "none"
    """The meaning of a default of None or of an empty default, in words."""
    samples: bool = False
    """The option affects only sampling, so a call that sets it without a temperature samples."""
    type: str = ""
    """The Python type of a value, where ``kind`` does not imply it."""
    details: str = ""
    """Sentences that the document "generation" adds to ``help``."""


def check(option: Option, value: object, vocab_size: int) -> Any:
    """Returns the value for the engine. InvalidArgument or ArgumentTypeError names the option."""
    value = plain(value)
    match option.kind:
        case "flag":
            return check_flag(option.name, value)
        case "texts":
            return _check_texts(option.name, value)
        case "ids":
            return _check_ids(option.name, value, vocab_size)
        case "allowed_ids":
            return None if value is None else _check_some_ids(option.name, value, vocab_size)
        case "id_lists":
            return _check_id_lists(option.name, value, vocab_size)
        case "biases":
            return _check_biases(option.name, value, vocab_size)
        case "seed" | "optional_integer" if value is None:
            return None
        case "name":
            return _check_name(option, value)
        case "early_stopping":
            if not (isinstance(value, bool) or value == "never"):
                raise wrong_type(option.name, value, 'True, False or "never"')
            return value
        case "constraint":
            return value  # grammar.py checks the four of them together
        case "callable":
            if value is not None and not callable(value):
                raise wrong_type(option.name, value, "a function or None")
            return value
        case "callables":
            return _check_callables(option.name, value)
        case "number":
            return _check_number(option, value)
        case _:
            number = check_integer(option.name, value, option.low, option.high)
            if option.choices and number not in option.choices:
                listed = " or ".join(map(str, option.choices))
                raise InvalidArgument(f"{option.name}: is {number}, expected {listed}")
            return max(number, 0) if option.name == "top_k" else number


def check_flag(name: str, value: object) -> bool:
    """Returns True or False. numpy's bools are legal too."""
    value = plain(value)
    if not isinstance(value, bool):
        raise wrong_type(name, value, "True or False")
    return value


def check_integer(name: str, value: object, low: float, high: float = math.inf) -> int:
    """Returns an integer from low to high. numpy's integers are legal too, bools are not."""
    value = plain(value)
    expected = f"an integer of at least {low}"
    if high != math.inf:
        expected = f"an integer from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong_type(name, value, expected)
    number = int(value)
    if not low <= number <= high:
        raise InvalidArgument(f"{name}: is {shown(number)}, expected {expected}")
    return number


def _check_name(option: Option, value: object) -> str:
    expected = " or ".join(f'"{choice}"' for choice in option.choices)
    if not isinstance(value, str):
        raise wrong_type(option.name, value, expected)
    if value not in option.choices:
        hint = nearest(value, map(str, option.choices))
        raise InvalidArgument(f"{option.name}: is {shown(value)}, expected {expected}{hint}")
    return value


def _check_callables(name: str, value: object) -> tuple[Any, ...]:
    given: Any = () if value is None else (value,) if callable(value) else value
    if not isinstance(given, Sequence) or not all(callable(each) for each in given):
        raise wrong_type(name, value, "a function or a list of functions")
    return tuple(given)


def _check_number(option: Option, value: object) -> float:
    low = f" above {option.low}" if option.above_low else f" of at least {option.low}"
    expected = "a finite number" + (low if option.low != -math.inf else "")
    if option.high != math.inf and option.above_low:
        expected = f"a number above {option.low}, at most {option.high}"
    elif option.high != math.inf:
        expected = f"a number from {option.low} to {option.high}"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type(option.name, value, expected)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    inside = option.low <= number <= option.high and not (option.above_low and number == option.low)
    if not math.isfinite(number) or not inside:
        raise InvalidArgument(f"{option.name}: is {shown(value)}, expected {expected}")
    return number


def _check_texts(name: str, value: object) -> tuple[str, ...]:
    texts: Any = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise wrong_type(name, value, "a string or a list of strings")
    if "" in texts:
        raise InvalidArgument(f"{name}: holds an empty string, expected text to stop at")
    return tuple(texts)


def _check_ids(name: str, value: object, vocab_size: int) -> tuple[int, ...]:
    ids = () if value is None else value
    if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes)):
        raise wrong_type(name, value, "a list of token ids")
    return tuple(check_integer(name, token, 0, vocab_size - 1) for token in ids)


def _check_some_ids(name: str, value: object, vocab_size: int) -> tuple[int, ...]:
    ids = _check_ids(name, value, vocab_size)
    if not ids:
        raise InvalidArgument(f"{name}: is empty, expected at least one token id")
    return ids


def _check_id_lists(name: str, value: object, vocab_size: int) -> tuple[tuple[int, ...], ...]:
    lists = () if value is None else value
    if not isinstance(lists, Sequence) or isinstance(lists, (str, bytes)):
        raise wrong_type(name, value, "a list of lists of token ids")
    lists = [plain(ids) for ids in lists]
    for ids in lists:
        if not isinstance(ids, Sequence) or isinstance(ids, (str, bytes)):
            raise wrong_type(name, value, "a list of lists of token ids")
    return tuple(_check_some_ids(name, ids, vocab_size) for ids in lists)


def _check_biases(name: str, value: object, vocab_size: int) -> dict[int, float]:
    biases = {} if value is None else value
    if not isinstance(biases, Mapping):
        raise wrong_type(name, value, "a dict from token id to bias")
    checked = {}
    for token, bias in biases.items():
        bias = plain(bias)
        if isinstance(token, bool) or not isinstance(token, Integral):
            raise InvalidArgument(f"{name}: has the key {shown(token)}, expected a token id")
        found = check_integer(name, token, 0, vocab_size - 1)
        if isinstance(bias, bool) or not isinstance(bias, Real):
            raise wrong_type(f"{name}[{found}]", bias, "a number")
        try:
            checked[found] = float(bias)
        except OverflowError:
            checked[found] = math.inf
        if not checked[found] < math.inf:  # NaN fails this comparison too
            raise InvalidArgument(
                f"{name}[{found}]: is {shown(bias)}, "
                "expected a finite number, or -inf to ban the token"
            )
    return checked


def plain(value: object) -> object:
    """Converts an array, tensor or number of another library to a Python list or number."""
    if hasattr(value, "__array__") and callable(convert := getattr(value, "tolist", None)):
        converted: object = convert()
        return converted
    return value


shown = literal


def wrong_type(name: str, value: object, expected: str) -> ArgumentTypeError:
    """The error for a value of a wrong type."""
    kind = type(value).__name__
    if isinstance(value, (Iterator, Set)) and "list" in expected:
        expected += "; make it a list first"
    return ArgumentTypeError(f"{name}: is {shown(value)} ({kind}), expected {expected}")
