"""A file mapped read-only into memory.

If another program shortens the file while it is mapped, reading it ends in SIGBUS on any system.
This module does not prevent that.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from pathlib import Path

from onward.errors import WeightError
from onward.load.weights.checkpoint import SourceFile


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when a file is replaced or written again."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class MappedFile:
    """Views into a file, and a way to drop the pages behind them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            # Non-blocking, so that a named pipe in a model folder cannot hang the load.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as failure:
            raise WeightError(f"{path.name}: cannot open: {failure.strerror}") from failure
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise WeightError(f"{path.name}: is not a regular file")
            self.size = status.st_size
            self.modified_ns = status.st_mtime_ns
            self._identity = _identity(status)
            if self.size == 0:
                raise WeightError(f"{path.name}: is empty, expected at least a header")
            self._map = mmap.mmap(descriptor, self.size, access=mmap.ACCESS_READ)
        except OSError as failure:
            raise WeightError(f"{path.name}: cannot map: {failure.strerror}") from failure
        finally:
            os.close(descriptor)
        self._view = memoryview(self._map)

    @property
    def content(self) -> mmap.mmap:
        """The whole file; a slice of it is a copy, unlike ``view``."""
        return self._map

    def view(self, begin: int, end: int) -> memoryview:
        """The bytes from ``begin`` up to ``end``, not copied; the range must lie in the file."""
        if not 0 <= begin <= end <= self.size:
            raise WeightError(f"{self.path.name}: bytes {begin}..{end} of a file of {self.size}")
        return self._view[begin:end]

    def source(self) -> SourceFile:
        """What tells this file from another, and from itself after it was written again."""
        return SourceFile(os.path.realpath(self.path), self.size, self.modified_ns)

    def check_unchanged(self) -> None:
        """WeightError where the path now leads to another file, or the file was written again since
        it was opened. A change within the resolution of the file system's clock is not seen."""
        try:
            found = _identity(os.stat(self.path))
        except OSError:
            found = None
        if found != self._identity:
            raise WeightError(
                f"{self.path.name}: was written or replaced while it was being read, expected a "
                "file that stays as it is; load it again when the writer is done"
            )

    def release(self, begin: int, end: int) -> None:
        """Drop every page that the range touches; a neighbour's bytes are simply read again."""
        if not hasattr(mmap, "MADV_DONTNEED") or begin >= end:
            return
        first = begin - begin % mmap.PAGESIZE
        self._map.madvise(mmap.MADV_DONTNEED, first, end - first)

    def close(self) -> None:
        """Unmap, unless views are still held; then the last one to go unmaps."""
        self._view.release()
        with contextlib.suppress(BufferError):
            self._map.close()
