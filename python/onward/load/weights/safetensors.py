"""Opens a folder as Hugging Face writes it: config.json and one or more safetensors files.

The library safetensors judges each header; the offsets are then taken from the header itself, and
checked once more against the mapped file because C++ will read there. Which files count is decided
as transformers decides it: model.safetensors alone, else what the index names. Where config.json
says that ``onward quantize`` wrote the folder, tensors of bytes are read as the blocks that they
are. Does not know families, or what a tensor means.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from onward.errors import ConfigError, WeightError
from onward.files.contents import START_BYTES, unexpected_content
from onward.files.json_file import parse_json_object, read_json_object
from onward.load.architectures.names import Layout
from onward.load.weights.checkpoint import STORAGE, SourceFile, Tensor
from onward.load.weights.mapped_file import MappedFile
from onward.message_text import label, sentence, shown

SINGLE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
BLOCKS_METHOD = "onward"
"""The quant_method of a folder whose quantization_config names tensors in GGUF's blocks."""
_SHARD = re.compile(r"^model.*-\d{5}-of-\d{5}\.safetensors$")
_NOT_WEIGHTS = ("adapter", "consolidated", "optimizer", "scheduler", "training_args")
HEADER_LIMIT_BYTES = 8 << 20  # 100 bytes a tensor: room for 80,000 tensors in one file


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in its file: dtype, shape and the range of its bytes."""

    file: MappedFile
    dtype: str
    shape: tuple[int, ...]
    begin: int  # offsets in the file
    end: int


class SafetensorsCheckpoint:
    """A folder's config, and its tensors by name."""

    def __init__(self, folder: Path) -> None:
        self.layout: Layout = "hugging_face"
        self.where = "config.json"
        self.config = read_json_object(folder / "config.json", "config.json")
        self.generation_config: dict[str, Any] = {}
        if os.path.lexists(folder / "generation_config.json"):
            self.generation_config = read_json_object(
                folder / "generation_config.json", "generation_config.json"
            )
        self.metadata: Mapping[str, object] = {}
        self._files: list[MappedFile] = []
        self._index: list[SourceFile] = []
        try:
            self._places = self._find_tensors(folder)
            self._read_blocks()
        except BaseException:
            self.close()
            raise

    def names(self) -> set[str]:
        """The tensors there are."""
        return set(self._places)

    def describe(self, name: str) -> tuple[str, tuple[int, ...]]:
        """The dtype and shape that the header gives."""
        place = self._places[name]
        return place.dtype, place.shape

    def file_of(self, name: str) -> str:
        """The file that holds a tensor."""
        return self._places[name].file.path.name

    def sources(self) -> list[SourceFile]:
        """The index, which says where each tensor comes from, and the weight files."""
        return [*self._index, *(file.source() for file in self._files)]

    def tensor(self, name: str) -> Tensor:
        """The bytes of a tensor; WeightError if its dtype is not supported."""
        place = self._places[name]
        if place.dtype not in STORAGE:
            raise WeightError(
                f"{place.file.path.name}: tensor {label(name)} has dtype {place.dtype}, "
                "expected F32, F16 or BF16"
            )
        return Tensor(place.file.view(place.begin, place.end), place.dtype, place.shape)

    def release(self, name: str) -> None:
        """Give the memory of a tensor's pages back."""
        place = self._places[name]
        place.file.release(place.begin, place.end)

    def check_unchanged(self) -> None:
        """WeightError where a file was written again since it was opened."""
        for file in self._files:
            file.check_unchanged()

    def close(self) -> None:
        """Give up the files."""
        for file in self._files:
            file.close()
        self._files.clear()

    def _find_tensors(self, folder: Path) -> dict[str, StoredTensor]:
        if os.path.isfile(folder / SINGLE_NAME):
            return self._open(folder / SINGLE_NAME)
        if os.path.lexists(folder / INDEX_NAME):
            return self._indexed(folder)
        places: dict[str, StoredTensor] = {}
        for name in _weight_files(folder):
            for tensor, place in self._open(folder / name).items():
                if tensor in places:
                    other = places[tensor].file.path.name
                    raise WeightError(
                        f"{name}: tensor {label(tensor)} is also in {other}, "
                        f"and there is no {INDEX_NAME} to say which one counts"
                    )
                places[tensor] = place
        return places

    def _indexed(self, folder: Path) -> dict[str, StoredTensor]:
        """The tensors that the index lists, each from the file it names and from no other."""
        weight_map = _weight_map(folder / INDEX_NAME)
        index = MappedFile(folder / INDEX_NAME)
        self._index.append(index.source())
        index.close()
        file_names = sorted(set(weight_map.values()))
        for file_name in file_names:
            if not os.path.exists(folder / file_name):
                raise WeightError(f"{INDEX_NAME}: {file_name} is listed, but not in the folder")
        opened = {file_name: self._open(folder / file_name) for file_name in file_names}
        places: dict[str, StoredTensor] = {}
        for tensor, file_name in weight_map.items():
            if tensor not in opened[file_name]:
                raise WeightError(
                    f"{file_name}: tensor {label(tensor)} is missing, though {INDEX_NAME} "
                    "says it is in this file"
                )
            places[tensor] = opened[file_name][tensor]
        return places

    def _read_blocks(self) -> None:
        """Tensors of bytes that the config says are blocks; what it says of them is then used up.
        A quantization_config of somebody else stays, and is refused with the config."""
        section = self.config.get("quantization_config")
        if not isinstance(section, dict) or section.get("quant_method") != BLOCKS_METHOD:
            return
        tensors = section.get("tensors")
        if not isinstance(tensors, dict):
            raise ConfigError(
                f"config.json: quantization_config.tensors is {shown(tensors)}, expected an object"
            )
        for name, dtype in tensors.items():
            self._places[name] = _as_blocks(name, dtype, self._places.get(name))
        self.config = {k: v for k, v in self.config.items() if k != "quantization_config"}

    def _open(self, path: Path) -> dict[str, StoredTensor]:
        file = MappedFile(path)
        self._files.append(file)
        return read_header(file)[0]


def _as_blocks(name: str, dtype: object, place: StoredTensor | None) -> StoredTensor:
    """The place of a tensor of bytes ([matrices,] rows, bytes of a row), seen as blocks of
    ([matrices,] rows, values)."""
    formats = [key for key, (values, _) in STORAGE.items() if values > 1]
    if not isinstance(dtype, str) or dtype not in formats:
        raise ConfigError(
            f"config.json: quantization_config.tensors has {shown(dtype)} for {label(name)}, "
            f"expected one of {', '.join(formats)}"
        )
    if place is None:
        raise WeightError(
            f"weights: tensor {label(name)} is missing, though quantization_config names it"
        )
    values, size = STORAGE[dtype]
    shape, length = place.shape, place.end - place.begin
    fits = place.dtype == "U8" and len(shape) in (2, 3) and shape[-1] % size == 0
    if not fits or length != math.prod(shape):
        raise WeightError(
            f"{place.file.path.name}: tensor {label(name)} is {place.dtype} of shape {shape}, "
            f"expected U8 of 2 or 3 dimensions, rows of a multiple of {size} bytes for {dtype}"
        )
    return replace(place, dtype=dtype, shape=(*shape[:-1], shape[-1] // size * values))


def _weight_files(folder: Path) -> list[str]:
    """The weight files of a folder without an index, sorted."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as failure:
        raise WeightError(f"{folder}: cannot list: {failure.strerror}") from failure
    found = [name for name in names if name.endswith(".safetensors")]
    shards = [name for name in found if _SHARD.search(name)]
    # What a training run leaves beside a model, and the second copy of all weights that Mistral
    # ships under other names.
    plain = [name for name in found if not name.startswith(_NOT_WEIGHTS)]
    if chosen := shards or plain or found:
        return chosen
    pickled = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    hint = f"; {pickled[0]} is a pickle, which can run code and is not read" if pickled else ""
    raise WeightError(
        f"{folder}: no weights found, expected model.safetensors or {INDEX_NAME}{hint}"
    )


def _weight_map(path: Path) -> dict[str, str]:
    """Tensor name -> file name. A file name is a name in the folder: no path, no way out of it.

    The name is judged, not where a link of that name leads: the cache of the hub holds links.
    """
    index = read_json_object(path, INDEX_NAME, error=WeightError)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightError(f"{INDEX_NAME}: weight_map is not an object with entries")
    for tensor, name in weight_map.items():
        plain = (
            isinstance(name, str)
            and name.endswith(".safetensors")
            and name.isprintable()
            and not set(name) & set('/\\:*?"<>|')
            and len(name) <= 255
        )
        if not plain:
            raise WeightError(
                f"{INDEX_NAME}: {label(tensor)} is mapped to {shown(name)}, "
                "expected the plain name of a .safetensors file in the folder"
            )
    return weight_map


def read_header(file: MappedFile) -> tuple[dict[str, StoredTensor], Mapping[str, object]]:
    """Where each tensor of a file lies, in the header's order, and the file's metadata."""
    name = file.path.name
    if file.size < 8:
        raise WeightError(f"{name}: has {file.size} bytes, expected a header of at least 8")
    header_bytes = int.from_bytes(file.view(0, 8), "little")
    if header_bytes > min(file.size - 8, HEADER_LIMIT_BYTES):
        if (found := _other_content(file)) is not None:
            raise WeightError(f"{name}: is {found}")
        if header_bytes > file.size - 8:
            raise WeightError(
                f"{name}: has {file.size} bytes, but its header alone is said to take "
                f"{header_bytes}; the file is cut short or no safetensors file"
            )
        raise WeightError(
            f"{name}: header of {header_bytes} bytes, expected at most {HEADER_LIMIT_BYTES}"
        )
    start = 8 + header_bytes
    try:
        with safe_open(file.path, framework="numpy"):
            pass
    except (SafetensorError, OSError, ValueError) as failure:
        raise WeightError(_explain(file, start, failure)) from failure
    header = parse_json_object(bytes(file.view(8, start)), f"{name} header", error=WeightError)
    metadata = header.pop("__metadata__", None) or {}
    places = {tensor: _place(file, start, tensor, entry) for tensor, entry in header.items()}
    return places, metadata


def _other_content(file: MappedFile) -> str | None:
    """What a file is that is no safetensors file, where its first bytes show it."""
    return unexpected_content(bytes(file.view(0, min(START_BYTES, file.size))))


def _explain(file: MappedFile, start: int, failure: Exception) -> str:
    """What is wrong with a file that the library refused; sizes, if they are what is wrong."""
    name = file.path.name
    if (found := _other_content(file)) is not None:
        return f"{name}: is {found}"
    try:
        header = parse_json_object(bytes(file.view(8, start)), name, error=WeightError)
        ends = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        expected = start + max(ends, default=0)
        if type(expected) is int and 0 < expected != file.size:
            found = f"{name}: has {file.size} bytes, expected {expected} by its header"
            return f"{found} ({sentence(failure)})"
    except (WeightError, LookupError, TypeError):
        pass
    return f"{name}: not a valid safetensors file: {sentence(failure)}"


def _place(file: MappedFile, start: int, tensor: str, entry: Mapping[str, Any]) -> StoredTensor:
    """Where a tensor lies. The library has checked all this; here it is checked as it is used."""
    dtype, shape = entry["dtype"], tuple(entry["shape"])
    begin, end = entry["data_offsets"]
    if not 0 <= begin <= end <= file.size - start:
        raise WeightError(
            f"{file.path.name}: tensor {label(tensor)} has bytes {begin}..{end}, "
            f"expected them within {file.size - start}"
        )
    if dtype in STORAGE:
        expected = math.prod(shape) * STORAGE[dtype][1]
        if end - begin != expected:
            raise WeightError(
                f"{file.path.name}: tensor {label(tensor)} has {end - begin} bytes, "
                f"expected {expected} for {dtype} of shape {shape}"
            )
    return StoredTensor(file, dtype, shape, start + begin, start + end)
