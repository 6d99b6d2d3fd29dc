"""Packed weights kept in a folder: one safetensors file for each model and choice of dtypes.

A file holds each canonical weight as the core packed it, and in its metadata all that has to agree
for those bytes to be the right ones; where anything differs the file counts as absent. Knows the
container and when it holds, not what the bytes mean, which model they make, or the core.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from onward.errors import ArgumentTypeError, InvalidArgument, WeightError
from onward.files.names import is_file_name
from onward.files.whole_files import remove_abandoned, whole_file
from onward.load.weights.checkpoint import SourceFile
from onward.load.weights.dtypes import WeightDtypes
from onward.load.weights.mapped_file import MappedFile
from onward.load.weights.safetensors import Place, read_header
from onward.load.weights.safetensors_writer import WrittenTensor, header_bytes, write_tensors
from onward.message_text import label
from onward.spec import DecoderSpec

# Not .safetensors: a folder of a model may also be that of its packed weights, and whatever ends so
# there would count as a part of the model.
SUFFIX = ".onward-packed"
_ALIGNMENT = 64


def check_folder(folder: object) -> Path | None:
    """The folder of packed weights, which need not exist; None for none."""
    if folder is None:
        return None
    text = os.fspath(folder) if isinstance(folder, (str, os.PathLike)) else folder
    if not isinstance(text, str):
        raise ArgumentTypeError(
            f"packed_cache: {type(folder).__name__} given, expected the path of a folder or None"
        )
    path = os.path.expanduser(text)
    if not is_file_name(text) or (os.path.exists(path) and not os.path.isdir(path)):
        raise InvalidArgument(
            f"packed_cache: {label(text)!r} cannot be a folder, expected the path of one"
        )
    return Path(path)


def identity(
    layout: int,
    version: str,
    spec: DecoderSpec,
    dtypes: WeightDtypes,
    stored: Mapping[str, str],
    sources: Sequence[SourceFile],
) -> dict[str, str]:
    """What has to agree for packed weights to be taken in place of a model's own: the metadata.
    stored: the dtype of each tensor, which a config can decide too."""

    def text(value: object) -> str:
        return json.dumps(value, sort_keys=True)

    return {
        "format": "onward packed weights",
        "layout": text(layout),
        "onward": version,
        "spec": text(dataclasses.asdict(spec)),
        "dtypes": text({**dataclasses.asdict(dtypes), "matrices": dict(dtypes.matrices)}),
        "stored": hashlib.sha256(text(dict(stored)).encode()).hexdigest(),
        "source": text([source._asdict() for source in sources]),
    }


def file_name(name: str, dtypes: WeightDtypes, sources: Sequence[SourceFile]) -> str:
    """Of the file for a model. It stays when the model's files are written anew, so that their old
    packed weights are replaced; models of one name in two places have two."""
    places = json.dumps([[source.path for source in sources], sorted(dtypes.matrices.items())])
    digest = hashlib.sha256(places.encode()).hexdigest()[:12]
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:80] or "model"
    return f"{plain}-{dtypes.name}-{digest}{SUFFIX}"


class PackedFile:
    """An opened file of packed weights: names, and their bytes, mapped."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._file = MappedFile(path)
        self._places: dict[str, Place] = {}
        self.metadata: Mapping[str, object] = {}
        try:
            self._places, self.metadata = read_header(self._file)
        except BaseException:
            self.close()
            raise

    def sizes(self) -> dict[str, int]:
        """Names in the file's order, with their bytes."""
        return {name: place.end - place.begin for name, place in self._places.items()}

    def view(self, name: str) -> memoryview:
        """The bytes of a weight, not copied."""
        return self._file.view(self._places[name].begin, self._places[name].end)

    def release(self, name: str) -> None:
        """Give the memory of a weight's pages back."""
        self._file.release(self._places[name].begin, self._places[name].end)

    def close(self) -> None:
        """Give up the file."""
        self._file.close()


@contextlib.contextmanager
def opened(path: Path, metadata: Mapping[str, str]) -> Iterator[PackedFile | None]:
    """The packed weights under a path if there are any and their metadata is this; else None.
    WeightError where the file is damaged."""
    if not os.path.lexists(path):
        yield None
        return
    try:
        file = PackedFile(path)
    except WeightError:
        if os.path.lexists(path):
            raise
        yield None  # another process took it away meanwhile
        return
    try:
        yield file if file.metadata == metadata else None
    finally:
        file.close()


def write(
    path: Path,
    metadata: Mapping[str, str],
    weights: Sequence[tuple[str, str, memoryview]],
    progress: Callable[[int, int], None] | None = None,
    *,
    replace: bool = True,
) -> None:
    """Write (name, dtype, bytes) of all weights under a path, or leave what was there: OSError.

    The file appears at once and whole, so that of several writers the last one wins and no reader
    sees a part. With ``replace`` false, a file that is there by then is FileExistsError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors = [_stored(*weight) for weight in weights]
    header = header_bytes(metadata, tensors, _ALIGNMENT)
    size = len(header) + sum(tensor.data.nbytes for tensor in tensors)
    place = Path(os.path.realpath(path))
    remove_abandoned(place)
    free = shutil.disk_usage(place.parent).free
    if free < size:
        raise OSError(f"{size:,} bytes to write, {free:,} free")
    with whole_file(path, replace=replace) as part:
        write_tensors(part.file, header, tensors, progress)


def _stored(name: str, dtype: str, data: memoryview) -> WrittenTensor:
    """Weights in f32, all vectors among them, are numbers (F32), others bytes (U8)."""
    if dtype == "f32":
        return WrittenTensor(name, "F32", [data.nbytes // 4], data)
    return WrittenTensor(name, "U8", [data.nbytes], data)
