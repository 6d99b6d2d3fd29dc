"""How messages show what comes out of files: cut to a line, without control characters.

A name in a hostile file may be a megabyte long, or hold the escape sequences of a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable

_LABEL_CHARACTERS = 100
_VALUE_CHARACTERS = 60
_LISTED = 8


def label(name: str) -> str:
    """The name of a field, tensor or file."""
    text = name if len(name) <= _LABEL_CHARACTERS else name[: _LABEL_CHARACTERS - 3] + "..."
    return "".join(character if character.isprintable() else "?" for character in text)


def labels(names: Iterable[str]) -> str:
    """The first of some names, and how many more there are."""
    listed = list(names)
    text = ", ".join(label(name) for name in listed[:_LISTED])
    return text if len(listed) <= _LISTED else f"{text} and {len(listed) - _LISTED} more"


def shown(value: object) -> str:
    """A value as its literal; containers and huge numbers by their size."""
    if isinstance(value, (dict, list)) and len(value) > 8:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)} items"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value[: _VALUE_CHARACTERS + 1] if isinstance(value, str) else value)
    return text if len(text) <= _VALUE_CHARACTERS else text[: _VALUE_CHARACTERS - 3] + "..."


def sentence(text: object) -> str:
    """What another library says about a file: its first line, cut."""
    line = (str(text).strip().splitlines() or [""])[0]
    return line if len(line) <= 300 else line[:297] + "..."
