"""Loads models through a folder of packs, and damages such folders."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builders.core_engine import new_engine
from onward.load import loading
from onward.load.hub import find_model
from onward.load.loading import LoadedModel
from onward.load.packed_cache import load_with_cache

DTYPES = ["f32", "f16", "bf16", "int8", "int4"]
PROMPT = np.arange(12, dtype=np.int32)
Progress = Callable[[int, int], None]


def load(
    model: Path, cache: Path | None, dtype: str = "f32", progress: Progress | None = None
) -> LoadedModel:
    return load_with_cache(cache, find_model(model), dtype, 2, progress)


def logits(loaded: LoadedModel) -> bytes:
    return np.asarray(new_engine(loaded.core).logits(PROMPT)).tobytes()


def the_file(cache: Path) -> Path:
    (path,) = cache.iterdir()
    return path


def spoil(path: Path, begin: int = -1) -> None:
    """Overwrite the last bytes of a file with garbage. Its size and time stay as they were."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    start = begin if begin >= 0 else len(data) // 2
    data[start:] = b"\x5a" * (len(data) - start)
    with open(path, "r+b") as file:
        file.write(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def packs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A list that grows by one when a model is packed from its own tensors."""
    calls: list[str] = []
    pack = loading.pack

    def counted(source: Any) -> Any:
        calls.append("packed")
        return pack(source)

    monkeypatch.setattr(loading, "pack", counted)
    return calls
