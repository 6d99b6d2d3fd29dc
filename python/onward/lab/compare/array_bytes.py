"""Reads the header of an array in numpy's file format by one strict pattern.

numpy's own reader evaluates the header as Python, and allocates memory for any shape in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEADER_BYTES = 512
"""More than the header of any array that ``compare`` writes."""
_MAGIC = b"\x93NUMPY\x01\x00"  # and the version, 1.0
_HEADER = re.compile(
    r"\{'descr': '([<>|=]?\w{1,16})', 'fortran_order': (True|False), "
    r"'shape': \((\d{1,16}(?:, \d{1,16})*)?,?\), \} *\n",
    re.ASCII,
)


class ArrayHeader(NamedTuple):
    """The dtype and shape of an array. Its bytes begin at ``begin``."""

    dtype: str
    fortran_order: bool
    shape: tuple[int, ...]
    begin: int


def read_header(start: bytes) -> ArrayHeader | None:
    """The header at the start of these bytes; None if it does not match the pattern."""
    text = len(_MAGIC) + 2
    begin = text + int.from_bytes(start[len(_MAGIC) : text], "little")
    found = _HEADER.fullmatch(start[text:begin].decode("latin-1"))
    if not start.startswith(_MAGIC) or found is None:
        return None
    shape = tuple(int(size) for size in (found[3] or "").split(", ") if size)
    return ArrayHeader(found[1], found[2] == "True", shape, begin)
