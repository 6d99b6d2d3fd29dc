"""Reads the values of flags: numbers, sizes, lists with commas, and text from files.

A list has commas between its items, and the flag of a list may be repeated. @FILE takes the text of
a file; a text that itself begins with @ is written @@TEXT.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from onward.errors import InvalidArgument
from onward.lab.counts.amounts import read_amount
from onward.message_text import label, literal, nearest

T = TypeVar("T")


def integer(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {literal(text)}, expected a whole number") from None


def number(text: str) -> float:
    """A number, with or without a fraction."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {literal(text)}, expected a number") from None


def size(text: str) -> int:
    """Bytes: a number with a unit (``read_amount``)."""
    try:
        return read_amount("", text)
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(str(error).partition(": ")[2]) from None


def biases(text: str) -> list[tuple[int, float]]:
    """ID=BIAS pairs with commas between them."""
    found = []
    for item in text.split(","):
        token, equals, value = item.partition("=")
        try:
            if not equals:
                raise ValueError
            found.append((int(token), float(value)))
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"is {literal(text)}, expected ID=BIAS, such as 29=-5"
            ) from None
    return found


def one_of(*names: str) -> Callable[[str], str]:
    """One of ``names``."""

    def read(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(
                f"is {literal(text)}, expected {', '.join(names)}{nearest(text, names)}"
            )
        return text

    return read


def list_of(item: Callable[[str], T]) -> Callable[[str], list[T]]:
    """Items with commas between them; "none" is the empty list."""

    def read(text: str) -> list[T]:
        return [] if text == "none" else [item(part.strip()) for part in text.split(",")]

    return read


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",")]


class Extend(argparse.Action):
    """Adds the items of each use of the flag to one list, in place of the default."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        given = getattr(namespace, self.dest, None)
        given = [] if given is self.default or given is None else given
        setattr(namespace, self.dest, [*given, *values])


def text(written: str) -> str:
    """The text itself, or the text of the file after an @, without the newline at its end."""
    try:
        written.encode("utf-8")
    except UnicodeEncodeError as error:
        raise argparse.ArgumentTypeError(
            f"character {error.start + 1} is not UTF-8, expected text"
        ) from None
    if written.startswith("@@"):
        return written[1:]
    if not written.startswith("@"):
        return written
    return _content(written[1:]).removesuffix("\n")


def json_schema(written: str) -> str:
    """A schema as JSON, @FILE, or the name of an existing file."""
    literal_json = written.lstrip().startswith("{") or written.strip() in ("true", "false")
    if literal_json or written.startswith("@"):
        return text(written)
    if _is_file(written):
        return _content(written)
    if written.endswith(".json"):
        raise argparse.ArgumentTypeError(f"{label(written)}: no such file, expected a JSON schema")
    return text(written)


def _is_file(path: str) -> bool:
    try:
        return os.path.isfile(os.path.expanduser(path))
    except ValueError:  # contains a NUL
        return False


def _content(path: str) -> str:
    """The text of a file. An error is reported as an error of the flag's value."""
    where = label(path)
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError as failure:
        said = f"{where}: byte {failure.start} is not UTF-8, expected text"
    except (OSError, ValueError, RuntimeError) as failure:
        said = f"{where}: cannot read: {getattr(failure, 'strerror', None) or failure}"
    raise argparse.ArgumentTypeError(f"{said}; a text that begins with @ is written @@")


def listed(numbers: Sequence[int]) -> str:
    """Numbers in the form of the command line."""
    return ",".join(map(str, numbers))
