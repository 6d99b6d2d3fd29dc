"""Reads and writes amounts of memory: "16GiB", "24 GB", "15.6 GiB"."""

from __future__ import annotations

import re
from decimal import Decimal

from onward.errors import InvalidArgument
from onward.message_text import shown

UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_WRITTEN = {
    "": 1,
    **{name.lower(): count for name, count in UNITS.items()},
    **{name[0].lower(): count for name, count in UNITS.items()},
    **{"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
}
_AMOUNT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([A-Za-z]*)\s*")


def read_amount(name: str, text: str) -> int:
    """The bytes of "16GiB" or "16G" (2**30), "24GB" (10**9), "1.5 MiB" or "65536"; case does not
    matter."""
    match = _AMOUNT.fullmatch(text)
    if match is None or match[2].lower() not in _WRITTEN:
        raise InvalidArgument(
            f"{name}: is {shown(text)}, expected bytes, or a number with K, M, G, T (the same as "
            "KiB, MiB, GiB, TiB), KB, MB, GB or TB"
        )
    return int(Decimal(match[1]) * _WRITTEN[match[2].lower()])


def unit_of(count: int) -> str:
    """The largest unit that is at most the amount."""
    return max((name for name in UNITS if UNITS[name] <= max(count, 1)), key=UNITS.__getitem__)


def amount(count: int, unit: str | None = None) -> str:
    """The amount with at least three digits, in ``unit`` or in the largest unit that fits: "50.5
    KiB", "2,048 MiB"."""
    unit = unit or unit_of(count)
    number = count / UNITS[unit]
    decimals = 0 if number >= 100 else 1 if number >= 10 else 2
    text = f"{number:,.{decimals}f}"
    if decimals:
        text = text.rstrip("0").rstrip(".")
    return f"{text} {unit}"
