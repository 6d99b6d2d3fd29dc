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
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from onward.errors import ArgumentTypeError, InvalidArgument, WeightError
from onward.file_names import is_file_name
from onward.message_text import label
from onward.spec import DecoderSpec
from onward.weights.checkpoint import SourceFile
from onward.weights.dtypes import WeightDtypes
from onward.weights.mapped_file import MappedFile
from onward.weights.safetensors import Place, read_header

# Not .safetensors: a folder of a model may also be that of its packed weights, and whatever ends so
# there would count as a part of the model.
SUFFIX = ".onward-packed"
_ALIGNMENT = 64
_WRITTEN_BYTES = 16 << 20  # at once: between two, Ctrl-C is heard and the bar moves
_ABANDONED_S = 3600  # without a write, by a process that was killed


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
) -> None:
    """Write (name, dtype, bytes) of all weights under a path, or leave what was there: OSError.

    The file appears at once and whole: it is written under another name, forced to the disk and
    then renamed, so that of several writers the last one wins and no reader sees a part.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    header = _header(metadata, weights)
    total = sum(data.nbytes for _, _, data in weights)
    free = shutil.disk_usage(path.parent).free
    if free < total + len(header):
        raise OSError(f"{total + len(header):,} bytes to write, {free:,} free")
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # Mode 0666 less the umask, as any file: a folder may be shared.
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            _write_all(file.write, memoryview(header))
            done = 0
            for _, _, data in weights:
                for begin in range(0, data.nbytes, _WRITTEN_BYTES):
                    piece = data[begin : begin + _WRITTEN_BYTES]
                    _write_all(file.write, piece)
                    done += piece.nbytes
                    if progress is not None:
                        progress(done, total)
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _header(metadata: Mapping[str, str], weights: Sequence[tuple[str, str, memoryview]]) -> bytes:
    """Weights in f32, all vectors among them, are numbers (F32), others bytes (U8); the data begins
    at a multiple of 64."""
    entries: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    for name, dtype, data in weights:
        numbers = dtype == "f32"
        entries[name] = {
            "dtype": "F32" if numbers else "U8",
            "shape": [data.nbytes // 4 if numbers else data.nbytes],
            "data_offsets": [at, at + data.nbytes],
        }
        at += data.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _write_all(write: Callable[[memoryview], int | None], data: memoryview) -> None:
    while data.nbytes:
        data = data[write(data) or 0 :]


def _remove_abandoned(path: Path) -> None:
    """Parts that a killed process left; another's that grows is written to all the time."""
    for part in path.parent.glob(f".{path.name}.*"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED_S:
                part.unlink()
