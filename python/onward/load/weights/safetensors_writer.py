"""Writes safetensors: a header, then the bytes of each tensor, none of them gathered in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO, NamedTuple

_WRITTEN_BYTES = 16 << 20  # at once: between two pieces Ctrl-C is noticed and the bar moves


class WrittenTensor(NamedTuple):
    """A tensor as the file will hold it."""

    name: str
    dtype: str  # as safetensors calls it
    shape: Sequence[int]
    data: memoryview  # contiguous bytes


def header_bytes(
    metadata: Mapping[str, str], tensors: Sequence[WrittenTensor], alignment: int = 8
) -> bytes:
    """The beginning of the file; the data then begins at a multiple of ``alignment``."""
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    for name, dtype, shape, data in tensors:
        entries[name] = {
            "dtype": dtype,
            "shape": list(shape),
            "data_offsets": [at, at + data.nbytes],
        }
        at += data.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % alignment)
    return len(text).to_bytes(8, "little") + text


def write_tensors(
    file: BinaryIO,
    header: bytes,
    tensors: Sequence[WrittenTensor],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write the header and the tensors in their order; ``progress`` gets bytes done and in all."""
    file.write(header)
    total, done = sum(tensor.data.nbytes for tensor in tensors), 0
    for tensor in tensors:
        for begin in range(0, tensor.data.nbytes, _WRITTEN_BYTES):
            piece = tensor.data[begin : begin + _WRITTEN_BYTES]
            file.write(piece)
            done += piece.nbytes
            if progress is not None:
                progress(done, total)
