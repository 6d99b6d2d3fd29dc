"""Reads and writes messages between this process and a side in another process.

A message is ``{"body": ..., "bytes": [n, ...]}`` and a newline, followed by n bytes of .npy for
each array of float32. Nothing is unpickled or evaluated.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from typing import IO, Any

import numpy as np

from onward.errors import LoadError
from onward.files.json_file import parse_json_object
from onward.lab.compare.array_bytes import HEADER_BYTES, read_header

PROTOCOL = 1
_LINE_BYTES = 64 << 20
_ARRAY_BYTES = 4 << 30


def send(stream: IO[bytes], body: object, arrays: Sequence[Any] = ()) -> None:
    """Write one message."""
    parts = []
    for array in arrays:
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        parts.append(buffer.getbuffer())
    line = json.dumps({"body": body, "bytes": [part.nbytes for part in parts]})
    stream.write(line.encode() + b"\n")
    for part in parts:
        stream.write(part)
    stream.flush()


def receive(stream: IO[bytes], where: str) -> tuple[Any, list[Any]] | None:
    """The body and the arrays of the next message; None at the end. LoadError for anything else."""
    line = stream.readline(_LINE_BYTES)
    if not line:
        return None
    message = parse_json_object(line, where, error=LoadError)
    sizes = message.get("bytes")
    if (
        "body" not in message
        or not isinstance(sizes, list)
        or not all(isinstance(size, int) and 0 <= size <= _ARRAY_BYTES for size in sizes)
    ):
        raise LoadError(f"{where}: sent a line that is not a message, expected a body and sizes")
    arrays = []
    for size in sizes:
        data = stream.read(size)
        if len(data) != size:
            raise LoadError(f"{where}: ends after {len(data)} bytes, expected {size}")
        arrays.append(_array(data, where))
    return message["body"], arrays


def _array(data: bytes, where: str) -> Any:
    header = read_header(data[:HEADER_BYTES])
    if (
        header is None
        or header.dtype != "<f4"
        or header.fortran_order
        or 4 * math.prod(header.shape) != len(data) - header.begin
    ):
        raise LoadError(f"{where}: sent no array, expected float32 in numpy's format")
    return np.frombuffer(data, "<f4", offset=header.begin).reshape(header.shape)
