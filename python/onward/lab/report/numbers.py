"""Single numbers as reports show them."""

from __future__ import annotations


def figures(number: float) -> str:
    """A number with at least three significant digits: 0.123, 12.35, 1235."""
    decimals = 0 if number >= 1000 else 1 if number >= 100 else 2 if number >= 10 else 3
    return f"{number:.{decimals}f}"


def counted(count: int, noun: str) -> str:
    """A count and its noun in the right number: "1 token", "1,000 tokens"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
