"""Formats rows as a table: aligned text or markdown. The first row is the heading."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    return "\n".join("  ".join(row).rstrip() for row in _padded(rows))


def markdown(rows: Sequence[Sequence[str]]) -> str:
    text = ["| " + " | ".join(row) + " |" for row in _padded(rows)]
    text.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(text)


def _padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
