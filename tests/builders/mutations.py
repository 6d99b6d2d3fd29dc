"""Changes to the bytes of good files, for the fuzzers of file formats."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Change = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Target:
    """A good file, its mutation and its reader. ``outcome`` raises onward.Error for a refused
    file."""

    file: Path
    change: Change
    outcome: Callable[[], object]


def damaged(head: int) -> Change:
    """Changes mostly within the first ``head`` bytes."""
    return lambda data, source: damage(data, head, source)


INTEGERS = [0, 1, 2, 7, 31, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
LITERALS = [
    b"-1", b"0", b"1", b"7", b"1e999", b"-1e-400", b"0.5", b"NaN", b"Infinity", b"null", b"true",
    b'""', b'"F32"', b'"../x"', b"[]", b"{}", b"[[]]", b"4294967296", b"18446744073709551615",
    b"9223372036854775807", b"1" * 5000, b"[" * 2000,
]  # fmt: skip


def damage(data: bytes, head: int, source: random.Random) -> bytes:
    """Change one to four things, mostly within the first ``head`` bytes."""
    out = bytearray(data)
    for _ in range(source.choice([1, 1, 1, 2, 4])):
        span = min(len(out), head if source.random() < 0.9 else len(out))
        at = source.randrange(span) if span else 0
        source.choice(DAMAGES)(out, at, source)
    return bytes(out)


def flip_bit(out: bytearray, at: int, source: random.Random) -> None:
    if at < len(out):
        out[at] ^= 1 << source.randrange(8)


def set_byte(out: bytearray, at: int, source: random.Random) -> None:
    if at < len(out):
        out[at] = source.randrange(256)


def insert(out: bytearray, at: int, source: random.Random) -> None:
    out[at:at] = source.randbytes(source.choice([1, 2, 8, 64]))


def delete(out: bytearray, at: int, source: random.Random) -> None:
    del out[at : at + source.choice([1, 2, 8, 64])]


def cut(out: bytearray, at: int, source: random.Random) -> None:
    del out[at:]


def repeat(out: bytearray, at: int, source: random.Random) -> None:
    out[at:at] = out[at : at + source.choice([8, 40, 200])]


def write_integer(out: bytearray, at: int, source: random.Random) -> None:
    size, code = source.choice([(4, "<I"), (8, "<Q")])
    value = source.choice(INTEGERS) & (2 ** (8 * size) - 1)
    out[at : at + size] = struct.pack(code, value)


def write_literal(out: bytearray, at: int, source: random.Random) -> None:
    """Replace the number or word that begins at or after ``at``: edits that stay JSON."""
    begin = at
    while begin < len(out) and not chr(out[begin]).isalnum():
        begin += 1
    end = begin
    while end < len(out) and (chr(out[end]).isalnum() or out[end] in b".-"):
        end += 1
    out[begin:end] = source.choice(LITERALS)


DAMAGES = [flip_bit, set_byte, insert, delete, cut, repeat, write_integer, write_literal]


def framed_header(data: bytes, source: random.Random) -> bytes:
    """Damage the header of a safetensors file, or of a similar format, and write its new length, so
    that the check of the length passes."""
    size = int.from_bytes(data[:8], "little")
    header = bytearray(data[8 : 8 + size])
    for _ in range(source.choice([1, 2])):
        source.choice([write_literal, write_literal, flip_bit, repeat])(
            header, source.randrange(len(header)), source
        )
    return struct.pack("<Q", len(header)) + bytes(header) + data[8 + size :]


VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 1e300, "", "x", "x" * 5000, [], {}, [[]]),
    *([None], [1, "a"], {"a": {}}, {"content": 3}, ["a"] * 300, [["a", "b"]], {"type": "Sequence"}),
]


def other_value(data: bytes, source: random.Random) -> bytes:
    """A JSON text in which one to three values are changed, removed, repeated or moved."""
    content = json.loads(data)
    for _ in range(source.choice([1, 1, 2, 3])):
        places = list(_places(content)) if isinstance(content, (dict, list)) else []
        if not places:
            return json.dumps(source.choice(VALUES)).encode()
        holder, key = source.choice(places)
        value = holder[key]
        way = source.randrange(8)
        if way == 0:
            del holder[key]
        elif way == 1 and isinstance(holder, list):
            holder.insert(key, value)
        elif way == 2:
            other, name = source.choice(places)
            holder[key] = json.loads(
                json.dumps(other[name])
            )  # the value itself may contain this one
        else:
            holder[key] = source.choice(VALUES)
        content = json.loads(json.dumps(content))  # no value is shared by two places
    return json.dumps(content).encode()


def _places(content: Any) -> Any:
    """Every (container, key) of a JSON value; only the first items of long lists."""
    keys = content if isinstance(content, dict) else range(min(len(content), 20))
    for key in list(keys):
        yield content, key
        if isinstance(content[key], (dict, list)):
            yield from _places(content[key])
