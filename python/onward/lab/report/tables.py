"""Reports as text, markdown, CSV or JSON.

A report for people is a list of sections: a title, a table and lines of text, each optional. CSV
and JSON are written from plain data.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
Rows = Sequence[Sequence[str]]
"""A table. The first row is the head."""


@dataclass(frozen=True)
class Section:
    """A part of a report."""

    title: str = ""
    rows: Rows = ()
    notes: Sequence[str] = ()
    left: Collection[str] = ()
    """Heads of the columns that hold words, besides the first column. The others hold numbers."""
    fixed: bool = False
    """The notes are aligned by their spaces."""


def writers(
    sections: Callable[[T], Sequence[Section]],
    names: Sequence[str],
    records: Callable[[T], Sequence[Mapping[str, object]]],
    content: Callable[[T], object],
) -> dict[str, Callable[[T], str]]:
    """The writers for a command's --format: table, md, csv and json. ``names`` are the columns of
    CSV, ``records`` its rows."""
    return {
        "table": lambda report: text(sections(report)),
        "md": lambda report: markdown(sections(report)),
        "csv": lambda report: comma_separated(names, records(report)),
        "json": lambda report: as_json(content(report)),
    }


def text(sections: Sequence[Section]) -> str:
    """For a terminal: aligned columns. The lines below a title are indented."""
    parts = []
    for section in sections:
        lines = [*aligned(section.rows, section.left), *section.notes]
        if section.title:
            lines = [section.title, *(f"  {line}" for line in lines)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def markdown(sections: Sequence[Section]) -> str:
    """Markdown with tables; the notes below a title are a list."""
    parts = []
    for section in sections:
        if section.title:
            parts.append(f"## {section.title[0].upper()}{section.title[1:]}")
        if section.rows:
            parts.append("\n".join(piped(section.rows, section.left)))
        notes = section.notes
        if section.fixed:
            notes = ["```", *notes, "```"]
        elif section.title:
            notes = [f"- {note}" for note in notes]
        if notes:
            parts.append("\n".join(notes))
    return "\n\n".join(parts) + "\n"


def aligned(rows: Rows, left: Collection[str] = ()) -> list[str]:
    """Lines with aligned columns: words to the left, numbers to the right."""
    if not rows:
        return []
    words = _words(rows, left)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, words, strict=True)
        ).rstrip()
        for row in rows
    ]


def piped(rows: Rows, left: Collection[str] = ()) -> list[str]:
    """The lines of a table of markdown."""
    rule = ["---" if word else "---:" for word in _words(rows, left)]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return ["| " + " | ".join(row) + " |" for row in (escaped[0], rule, *escaped[1:])]


def comma_separated(names: Sequence[str], records: Sequence[Mapping[str, object]]) -> str:
    """CSV with a head."""
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def as_json(content: object) -> str:
    """Indented JSON. Infinite numbers and NaN, which JSON does not have, are null."""
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def _words(rows: Rows, left: Collection[str]) -> list[bool]:
    return [index == 0 or head in left for index, head in enumerate(rows[0])]


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
