"""A GGUF file again, in one part, with some of its tensors in other blocks and all else as it was.

Written by the ``gguf`` package, so that whatever reads the source reads the result: the metadata
with its types, the names and the order of the rows are the source's. Knows no model.
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
from onward.load.weights.gguf import hugging_face_name
from onward.load.weights.gguf_parts import SPLIT_KEYS
from onward.machine.extras import install_command

# Numbers of the format's general.file_type: what most of the tensors are.
_FILE_TYPES = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7}
_BLOCKS_VERSION = 2  # general.quantization_version: of the layout of the blocks
_WRITTEN_ANYWAY = ("general.architecture", "general.alignment")
_OF_THE_SOURCE = ("general.file_type", "general.quantization_version", *SPLIT_KEYS)


def require_gguf() -> ModuleType:
    """The package, or MissingExtra."""
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
    """Write ``target``: a file, or all parts of one, with the tensors of ``replaced``, by Hugging
    Face's names, in place of its own. ``dtype`` is what most of them have. The parts have been
    read and checked by our own reader before: the package's trusts them. ``check_source`` is called
    when all is written, before the file has its name."""
    gguf = require_gguf()
    readers = [gguf.GGUFReader(part) for part in parts]
    writer = gguf.GGUFWriter(None, _text(readers[0], "general.architecture"))
    _copy_metadata(gguf, readers[0], writer, _FILE_TYPES[dtype])
    for tensor in (tensor for reader in readers for tensor in reader.tensors):
        new = replaced.get(hugging_face_name(tensor.name))
        if new is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        else:
            raw = np.frombuffer(new.buffer, np.uint8).reshape(new.shape[0], -1)
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
