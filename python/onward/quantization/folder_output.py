"""A Hugging Face folder again, with some tensors as the bytes of GGUF's blocks.

Safetensors has no dtype for blocks: they are U8 tensors of (rows, bytes of a row), and
``quantization_config`` in config.json says which tensor is in which format
(weights/safetensors.py reads it). Everything else in the folder is copied. Knows no model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
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
    """Write the folder ``target`` with the files of ``source`` and these tensors as its weights.
    ``said`` goes into the quantization_config beside what the loader needs. ``check_source`` is
    called when all is written, before the folder has its name."""
    named = sorted(tensors, key=lambda item: STORAGE[item[1].dtype][0])  # blocks come last
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
    """Blocks are bytes: safetensors has no dtype for them."""
    if STORAGE[tensor.dtype][0] == 1:
        return WrittenTensor(name, tensor.dtype, tensor.shape, tensor.buffer)
    rows = tensor.shape[0]
    return WrittenTensor(name, "U8", [rows, tensor.buffer.nbytes // rows], tensor.buffer)
