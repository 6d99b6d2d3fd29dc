"""Writes a Hugging Face folder in which some tensors are the bytes of GGUF blocks.

Safetensors has no dtype for blocks. They are stored as U8 tensors of (rows, bytes of a row), or
(matrices, rows, bytes of a row), and ``quantization_config`` in config.json lists the format of
each tensor (onward.load.weights.safetensors reads it). All other files of the folder are copied.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from onward.files.whole_files import whole_folder
from onward.load.weights import Tensor
from onward.load.weights.checkpoint import STORAGE
from onward.load.weights.safetensors import BLOCKS_METHOD
from onward.load.weights.safetensors_writer import WrittenTensor, header_bytes, write_tensors

_COPIED = (".json", ".jinja", ".model", ".txt", ".md")
_WRITTEN = ("config.json", "model.safetensors.index.json")


def write_folder(
    source: Path,
    target: Path,
    config: Mapping[str, Any],
    said: Mapping[str, Any],
    tensors: Iterable[tuple[str, Tensor]],
    check_source: Callable[[], None],
) -> None:
    """Write the folder ``target``: the files of ``source``, with these tensors as its weights.

    ``said`` is added to the quantization_config, beside the entries that the loader needs.
    ``check_source`` is called when everything is written, before the folder gets its name.
    """
    named = sorted(tensors, key=lambda item: STORAGE[item[1].dtype][0])  # block formats come last
    blocks = {name: t.dtype for name, t in named if STORAGE[t.dtype][0] > 1}
    quantization = {"quant_method": BLOCKS_METHOD, **said, "tensors": blocks}
    with whole_folder(target) as unfinished:
        for path in sorted(source.iterdir()):
            wanted = path.suffix in _COPIED or path.name.upper().startswith("LICENSE")
            if wanted and path.name not in _WRITTEN and path.is_file():
                shutil.copyfile(path, unfinished / path.name)
        text = json.dumps({**config, "quantization_config": quantization}, indent=2)
        (unfinished / "config.json").write_text(text + "\n", "utf-8")
        written = [_written(name, tensor) for name, tensor in named]
        with open(unfinished / "model.safetensors", "wb") as file:
            write_tensors(file, header_bytes({"format": "pt"}, written), written)
        check_source()


def _written(name: str, tensor: Tensor) -> WrittenTensor:
    """The name and shape of a tensor in the file. Block formats are stored as bytes."""
    if STORAGE[tensor.dtype][0] == 1:
        return WrittenTensor(name, tensor.dtype, tensor.shape, tensor.buffer)
    rows = tensor.shape[:-1]
    return WrittenTensor(name, "U8", [*rows, tensor.buffer.nbytes // prod(rows)], tensor.buffer)
