"""Splits and rebuilds session files, with any fault and a matching hash."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onward.sessions.file import _digest

_NAMES = {"int32": "I32", "int64": "I64", "uint8": "U8", "float32": "F32", "uint16": "U16"}


@dataclass
class Parts:
    metadata: dict[str, str]
    tensors: dict[str, np.ndarray]

    @property
    def conversation(self) -> dict[str, Any]:
        reported: dict[str, Any] = json.loads(self.tensors["conversation"].tobytes())
        return reported

    @conversation.setter
    def conversation(self, value: object) -> None:
        self.tensors["conversation"] = np.frombuffer(json.dumps(value).encode(), np.uint8)


def read_parts(path: Path) -> Parts:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return Parts(dict(file.metadata()), tensors)


def write_parts(path: Path, parts: Parts, *, sign: bool = True) -> None:
    """``sign``: write the matching hash."""
    from safetensors.numpy import save_file

    reported = {
        key: value for key, value in parts.metadata.items() if not (sign and key == "sha256")
    }
    if sign:
        content = {
            name: (_NAMES[str(t.dtype)], t.shape, memoryview(t.tobytes()))
            for name, t in parts.tensors.items()
        }
        reported["sha256"] = _digest(reported, content, lambda done, total: None)
    save_file({name: np.ascontiguousarray(t) for name, t in parts.tensors.items()}, path, reported)


def changed(path: Path, to: Path, change: Callable[[Parts], object], *, sign: bool = True) -> Path:
    """A copy of a session's file with a change."""
    parts = read_parts(path)
    change(parts)
    write_parts(to, parts, sign=sign)
    return to
