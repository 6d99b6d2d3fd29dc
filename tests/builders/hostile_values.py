"""Values that a recursive function cannot walk: nested 100,000 deep, or part of themselves."""

from __future__ import annotations

from typing import Any


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def _nested_dict(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def _itself() -> list[Any]:
    value: list[Any] = [1]
    value.insert(0, value)
    return value


def _dict_of_itself() -> dict[Any, Any]:
    value: dict[Any, Any] = {}
    value[1] = value
    return value


NESTED = (_nested(100_000), _nested_dict(100_000), _itself(), _dict_of_itself())
NAMES = ("deep list", "deep dict", "list in itself", "dict in itself")
