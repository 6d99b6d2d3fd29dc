"""How messages show text from files: cut to one line, without control characters.

A name in a hostile file may be a megabyte long, or contain the escape sequences of a terminal.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from difflib import get_close_matches

_LABEL_CHARACTERS = 100
_VALUE_CHARACTERS = 60
_LISTED = 8


def label(name: str) -> str:
    """The name of a field, tensor or file."""
    text = name if len(name) <= _LABEL_CHARACTERS else name[: _LABEL_CHARACTERS - 3] + "..."
    return _printable(text)


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "?" for character in text)


def labels(names: Iterable[str]) -> str:
    """The first of some names, and the number of the others."""
    listed = list(names)
    text = ", ".join(label(name) for name in listed[:_LISTED])
    return text if len(listed) <= _LISTED else f"{text} and {len(listed) - _LISTED} more"


def shown(value: object) -> str:
    """A value as its literal; containers and huge numbers by their size."""
    if isinstance(value, (dict, list)) and len(value) > 8:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)} items"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    return literal(value)


class _Shortened(reprlib.Repr):
    """``repr`` that visits only the part of a container that fits into a line."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdeque = 16
        self.maxdict = self.maxarray = 16
        self.maxother = self.maxlong = 80

    def repr_str(self, x: str, level: int) -> str:
        return repr(x[: _VALUE_CHARACTERS + 1])

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > 4096:  # Python refuses to print more than 4,300 digits.
            return f"an {type(x).__name__} of thousands of digits"
        return super().repr_int(x, level)


_SHORTENED = _Shortened()


def literal(value: object) -> str:
    """A value for a message: never longer than a line, however large or deep it is."""
    try:
        text = _SHORTENED.repr(value)
    except Exception:  # the __repr__ of a class of the caller
        text = f"a {type(value).__name__}"
    text = " ".join(text.split("\n"))
    return text if len(text) <= _VALUE_CHARACTERS else text[: _VALUE_CHARACTERS - 3] + "..."


def sentence(text: object) -> str:
    """The message of another library about a file: its first line, cut, in printable characters."""
    line = (str(text).strip().splitlines() or [""])[0]
    return _printable(line if len(line) <= 300 else line[:297] + "...")


def nearest(word: object, names: Iterable[str]) -> str:
    """A hint for a misspelled word: ", did you mean X?"; empty if no known word is near."""
    if not isinstance(word, str) or len(word) > _VALUE_CHARACTERS:
        return ""
    near = get_close_matches(word, list(names), n=1, cutoff=0.6)
    return f", did you mean {near[0]}?" if near else ""
