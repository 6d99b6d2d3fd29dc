"""Reads and writes files of rows (JSON lines).

Input is read in pieces, output is written row by row, and an unfinished last row is removed.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onward.cli import streams
from onward.errors import InvalidArgument
from onward.message_text import label, literal

_PIECE = 1 << 16


@dataclass(frozen=True)
class Row:
    """A row of output from an earlier run."""

    id: str
    """The id as a literal, "None" without one."""
    failed: bool


class RowReader:
    """The lines of a file or of stdin ("-"), with at most one of them in memory."""

    LIMIT = 64 << 20
    """Most bytes of a row."""

    def __init__(self, path: str) -> None:
        self._stdin = path == "-"
        try:
            if self._stdin:
                descriptor = os.dup(sys.stdin.buffer.fileno())
            else:
                descriptor = os.open(Path(path).expanduser(), os.O_RDONLY)
            self._file = os.fdopen(descriptor, "rb", buffering=0)
            found = os.fstat(descriptor)
        except (OSError, ValueError, RuntimeError) as failure:
            said = getattr(failure, "strerror", None) or failure
            raise InvalidArgument(f"jsonl: {label(path)}: cannot read: {said}") from failure
        self._regular = stat.S_ISREG(found.st_mode)
        self._bytes = found.st_size if self._regular else 0
        self._read = 0

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *of_the_block: object) -> None:
        self._file.close()

    def share(self) -> tuple[int, int]:
        """(bytes read so far, bytes in total). The total is 0 if it is unknown."""
        return min(self._read, self._bytes - 1), self._bytes

    async def lines(self) -> AsyncIterator[bytes | None]:
        """Each line without its end; None for a line that is longer than the limit."""
        kept: list[bytes] = []
        length = 0
        async for piece in self._pieces():
            self._read += len(piece)
            *ends, rest = piece.split(b"\n")
            for end in ends:
                too_long = length + len(end) > self.LIMIT
                yield None if too_long else b"".join([*kept, end])
                kept, length = [], 0
            length += len(rest)
            kept = [*kept, rest] if length <= self.LIMIT else []
        if length:
            yield None if length > self.LIMIT else b"".join(kept)

    async def _pieces(self) -> AsyncIterator[bytes]:
        if self._regular:
            while piece := self._file.read(_PIECE):
                yield piece
            return
        # A pipe or a terminal: results are written during the wait for the next row.
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), self._file)
        while piece := await reader.read(_PIECE):
            yield piece


class RowWriter:
    """Appends rows to a file, or writes them to stdout (None). A row is written in one piece."""

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._file = None
        if path is not None:
            try:
                self._file = open(Path(path).expanduser(), "ab", buffering=0)  # noqa: SIM115
            except (OSError, ValueError, RuntimeError) as failure:
                raise streams.cannot_write(label(path), _os_error(failure)) from failure

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, *of_the_block: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, line: str) -> None:
        if self._file is None:
            return streams.show(line)
        data = memoryview(line.encode())
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as failure:
            raise streams.cannot_write(label(self._path or ""), failure) from failure


def read_done(path: str) -> dict[int, Row]:
    """The rows of an output file by index.

    An unfinished last row is cut off. Raises InvalidArgument for a file with other content.
    """
    done: dict[int, Row] = {}
    target = Path(path).expanduser()
    try:
        if not target.exists():
            return done
        whole = 0
        with open(target, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    break
                index, row = _read_row(line, number, path)
                done[index] = row
                whole += len(line)
        os.truncate(target, whole)
    except OSError as failure:
        raise InvalidArgument(
            f"resume: {label(path)}: cannot read: {failure.strerror or failure}"
        ) from failure
    return done


def _read_row(line: bytes, number: int, path: str) -> tuple[int, Row]:
    try:
        row: Any = json.loads(line)
        index = row["index"]
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise InvalidArgument(
            f"resume: line {number} of {label(path)} is not a row of onward generate --jsonl"
        ) from None
    return index, Row(literal(row.get("id")), "error" in row)


def _os_error(failure: Exception) -> OSError:
    return failure if isinstance(failure, OSError) else OSError(str(failure))
