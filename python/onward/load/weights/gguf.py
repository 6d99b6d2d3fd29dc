"""Opens a GGUF file, with its parts if it has several.

The metadata becomes a config as config.json would say it (``architectures/gguf``). The tensors keep
their names, for which the families have a table.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onward.errors import WeightError
from onward.load import architectures
from onward.load.architectures.gguf.rope import FACTOR_TENSORS
from onward.load.architectures.names import Layout
from onward.load.weights.checkpoint import STORAGE, SourceFile, Tensor, unsupported
from onward.load.weights.gguf_parts import open_parts
from onward.load.weights.gguf_reader import GgufTensor
from onward.load.weights.mapped_file import MappedFile
from onward.message_text import label

_MAX_FACTORS = 1 << 16


class GgufCheckpoint:
    """A GGUF file as a config and tensors.

    `path` is the file, or any part of a model in parts.
    """

    def __init__(self, path: Path) -> None:
        self.layout: Layout = "gguf"
        parts = open_parts(path)
        self._files = [part.file for part in parts]
        try:
            self._tensors: dict[str, GgufTensor] = {}
            self._holders: dict[str, MappedFile] = {}
            for part in parts:
                self._tensors.update(part.header.tensors)
                self._holders.update(dict.fromkeys(part.header.tensors, part.file))
            first = parts[0]
            self.where = f"{first.name} (metadata as config.json would say it)"
            self.metadata: Mapping[str, object] = first.header.metadata
            self.generation_config: dict[str, Any] = {}
            shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
            self.config = architectures.gguf_as_config(
                self.metadata, architectures.GgufTensors(shapes, self._vector), first.name
            )
        except BaseException:
            self.close()
            raise

    def names(self) -> set[str]:
        """The tensors there are, except for factors of the rotation, which the config has."""
        return set(self._tensors) - FACTOR_TENSORS

    def describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape that the header gives."""
        tensor = self._tensors[name]
        return tensor.dtype, tensor.shape

    def file_of(self, name: str) -> str:
        """The name of the file, or of the part that holds the tensor."""
        return self._holders[name].path.name

    def sources(self) -> list[SourceFile]:
        """The file, or its parts in order."""
        return [file.source() for file in self._files]

    def tensor(self, name: str) -> Tensor:
        """The bytes of a tensor; WeightError if its dtype is not supported."""
        tensor = self._tensors[name]
        if tensor.dtype not in STORAGE:
            raise WeightError(
                f"{self.file_of(name)}: tensor {label(tensor.name)} {unsupported(tensor.dtype)}"
            )
        buffer = self._holders[name].view(tensor.begin, tensor.end)
        return Tensor(buffer, tensor.dtype, tensor.shape)

    def release(self, name: str) -> None:
        """Give the memory of a tensor's pages back."""
        tensor = self._tensors[name]
        self._holders[name].release(tensor.begin, tensor.end)

    def check_unchanged(self) -> None:
        """WeightError where a file was written again since it was opened."""
        for file in self._files:
            file.check_unchanged()

    def close(self) -> None:
        """Give up the files."""
        for file in self._files:
            file.close()

    def _vector(self, name: str) -> list[float]:
        """The values of a short vector in F32."""
        tensor = self.tensor(name)
        if tensor.dtype != "F32" or len(tensor.shape) != 1 or tensor.shape[0] > _MAX_FACTORS:
            raise WeightError(
                f"{self.file_of(name)}: tensor {label(name)} is {tensor.dtype} of "
                f"shape {tensor.shape}, expected one dimension of F32"
            )
        return list(struct.unpack(f"<{tensor.shape[0]}f", tensor.buffer))
