"""The GGUF file that all engines run, and its conversions for engines that need another format.

The ``gguf`` package reads and dequantises the file, not onward. So a mistake in onward's reader
would show as a difference between the engines.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engines.contest import Absent


class SourceModel:
    """A GGUF file, and the folder where its conversions are kept."""

    def __init__(self, path: Path, work: Path) -> None:
        self.path = path
        state = path.stat()
        key = f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"
        self._folder = work / f"{path.stem}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"

    @cached_property
    def reader(self) -> Any:
        """A ``gguf.GGUFReader`` of the file."""
        try:
            from gguf import GGUFReader
        except ImportError:
            raise Absent("to convert the weights: pip install gguf") from None
        return GGUFReader(self.path)

    def metadata(self, key: str, default: object = None) -> Any:
        """The value of a key of the file."""
        field = self.reader.fields.get(key)
        return default if field is None else field.contents()

    def tensors(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """The name and values of each tensor; values are (rows, columns)."""
        from gguf.quants import dequantize

        for tensor in self.reader.tensors:
            values = dequantize(tensor.data, tensor.tensor_type)
            yield tensor.name, values.reshape(tuple(reversed(tensor.shape.tolist())))

    def converted(self, name: str, write: Callable[[Path], None]) -> Path:
        """The path of a conversion; ``write`` creates it if it does not exist yet."""
        path = self._folder / name
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished = self._folder / f"unfinished-{name}"
            if unfinished.is_dir():
                shutil.rmtree(unfinished)
            write(unfinished)
            unfinished.rename(path)
        return path


def half_rows(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder the rows of q or k. A GGUF file keeps rows that rotate together next to each other;
    other formats keep them half a head apart. Input and output are (heads * head size, columns)."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
