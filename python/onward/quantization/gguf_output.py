"""Writes a GGUF file, in one part, in which some tensors have other blocks. All else stays the
same.

The ``gguf`` package writes it. The metadata with its types, the names of the tensors and the order
of their rows are copied from the source, so every program that reads the source reads the result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from onward.errors import MissingExtra
from onward.files.whole_files import whole_file
from onward.load.weights import Tensor
from onward.load.weights.gguf_parts import SPLIT_KEYS
from onward.machine.extras import install_command

# Values of the key general.file_type: the format of most of the tensors.
_FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}
_BLOCKS_VERSION = 2  # the key general.quantization_version: the version of the block layout
_WRITTEN_ANYWAY = ("general.architecture", "general.alignment")
_OF_THE_SOURCE = ("general.file_type", "general.quantization_version", *SPLIT_KEYS)


def require_gguf() -> ModuleType:
    """The ``gguf`` package.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        import gguf
    except ImportError as failure:
        raise MissingExtra(
            "quantize: to write a GGUF file the package gguf is needed: "
            f"{install_command('quantize')}"
        ) from failure
    return gguf


def write_gguf(
    parts: Sequence[Path],
    target: Path,
    dtype: str,
    replaced: Mapping[str, Tensor],
    check_source: Callable[[], None],
) -> None:
    """Write ``target``, one file, from a source that may have several parts.

    ``replaced`` has the new tensors by name. ``dtype`` is the format of most of
    them. Our own reader has checked the parts before, because the package trusts its input.
    ``check_source`` is called when everything is written, before the file gets its name.
    """
    gguf = require_gguf()
    readers = [gguf.GGUFReader(part) for part in parts]
    writer = gguf.GGUFWriter(None, _text(readers[0], "general.architecture"))
    _copy_metadata(gguf, readers[0], writer, _FILE_TYPES[dtype])
    for tensor in (tensor for reader in readers for tensor in reader.tensors):
        new = replaced.get(tensor.name)
        if new is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            raw = np.frombuffer(new.buffer, np.uint8).reshape(*new.shape[:-1], -1)
            kind = gguf.GGMLQuantizationType[new.dtype]
            writer.add_tensor(tensor.name, raw, raw_dtype=kind)
    with whole_file(target, replace=False) as part, contextlib.closing(writer):
        writer.write_header_to_file(part.path)
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        check_source()


def _copy_metadata(gguf: ModuleType, reader: Any, writer: Any, file_type: int) -> None:
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in (*_WRITTEN_ANYWAY, *_OF_THE_SOURCE):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)
    alignment = reader.fields.get("general.alignment")
    if alignment is not None:
        writer.add_custom_alignment(alignment.contents())
    writer.add_file_type(file_type)
    writer.add_quantization_version(_BLOCKS_VERSION)


def _text(reader: Any, key: str) -> str:
    return str(reader.fields[key].contents())
