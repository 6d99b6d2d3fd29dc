"""Turns JSON of another process or a file into the records of ``side``, checked field by field.

Fields are texts, numbers, truth values, tuples of texts or numbers, and None.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from typing import Any, TypeVar

from onward.errors import LoadError
from onward.message_text import label, shown

T = TypeVar("T")
_MOST = 2**53


def read_as(kind: type[T], value: object, where: str) -> T:
    """The record in ``value``. Raises LoadError, which names the wrong field."""
    hints = typing.get_type_hints(kind)
    if not isinstance(value, dict) or set(value) != set(hints):
        found = ", ".join(label(str(key)) for key in value) if isinstance(value, dict) else None
        raise LoadError(f"{where}: has {shown(found)}, expected the fields {', '.join(hints)}")
    assert dataclasses.is_dataclass(kind)
    return kind(**{name: _field(hints[name], value[name], f"{where}: {name}") for name in hints})


def _field(kind: Any, value: object, where: str) -> Any:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if isinstance(value, (list, tuple)):
            return tuple(_field(item, part, where) for part in value)
    elif kind is bool:
        if isinstance(value, bool):
            return value
    elif kind is str:
        if isinstance(value, str):
            return value
    elif kind is int:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST:
            return value
    elif kind is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if (
            number
            and abs(typing.cast(float, value)) < _MOST
            and math.isfinite(typing.cast(float, value))
        ):
            return float(typing.cast(float, value))
    elif value is None:  # an optional one
        return None
    else:
        return _field(typing.get_args(kind)[0], value, where)
    raise LoadError(f"{where}: is {shown(value)}, expected {getattr(kind, '__name__', kind)}")
