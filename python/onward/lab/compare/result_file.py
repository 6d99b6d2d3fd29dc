"""Saves a side to a file and reads it: description, tokens with their logits, and timed runs.

The file is an uncompressed .npz: ``side.json`` as bytes, and ``logits_0``, ``logits_1`` and so on,
float32 of (tokens, vocab_size). A file is checked before memory is allocated for its arrays, and
nothing in it is unpickled or evaluated.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from onward.errors import Error, InvalidArgument, IoError, LoadError, TokenizerError
from onward.files.json_file import parse_json_object
from onward.files.whole_files import whole_file
from onward.lab.compare.array_bytes import HEADER_BYTES, read_header
from onward.lab.compare.plain_data import read_as
from onward.lab.compare.setting import RESULT_SUFFIX
from onward.lab.compare.side import Description, Footprint, Logits, Round, Text
from onward.message_text import label, sentence

FORMAT, VERSION = "onward-compare", 1
_JSON_BYTES = 4 << 20
_MEMBERS = 1002
_LOCAL_HEADER_BYTES = 30
# Errors that zipfile raises for a damaged file, such as wrong offsets and names that are not text.
_DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError)
T = TypeVar("T")


@dataclass(frozen=True)
class Saved:
    """All answers of a side."""

    description: Description
    footprint: Footprint
    texts: tuple[Text, ...]
    rounds: tuple[Round, ...]
    logits: tuple[Logits, ...]


def check_path(path: str) -> None:
    """Check that a saved result can be written to ``path``.

    Raises InvalidArgument for a wrong suffix, for a folder that does not exist, and for an existing
    file that is not a saved result, so that a mistyped path overwrites no other file.
    """
    if not path.endswith(RESULT_SUFFIX):
        raise InvalidArgument(f"{label(path)}: expected a name ending in {RESULT_SUFFIX}")
    if not Path(path).parent.is_dir():
        raise InvalidArgument(f"{label(path)}: cannot write: there is no folder for it")
    if os.path.lexists(path):
        try:
            load(path)
        except (LoadError, IoError):
            raise InvalidArgument(
                f"{label(path)}: exists and is not a saved result, expected a new file"
            ) from None


def save(saved: Saved, path: str) -> None:
    """Write the file. An existing file is replaced only if it is a saved result."""
    check_path(path)
    head = {"format": FORMAT, "version": VERSION}
    for field in ("description", "footprint"):
        head[field] = asdict(getattr(saved, field))
    for field in ("texts", "rounds"):
        head[field] = [asdict(item) for item in getattr(saved, field)]
    arrays: dict[str, Any] = {
        f"logits_{index}": logits for index, logits in enumerate(saved.logits)
    }
    text = np.frombuffer(json.dumps(head).encode(), np.uint8)
    try:
        with whole_file(Path(path)) as part:
            np.savez(part.file, allow_pickle=False, **{"side.json": text, **arrays})
    except OSError as failure:
        raise Error(f"{label(path)}: cannot write: {failure.strerror or failure}") from failure


def load(path: str) -> Saved:
    """Read the file. Raises IoError if it cannot be opened, LoadError if it is not a saved
    result."""
    name = label(Path(path).name)
    try:
        file = open(path, "rb")  # noqa: SIM115 - a failure to open has its own error
    except OSError as failure:
        raise IoError(f"{name}: cannot read: {failure.strerror or failure}") from None
    with file:
        try:
            return _read(file, name)
        except LoadError:
            raise
        except _DAMAGE as failure:
            raise LoadError(f"{name}: is not a saved result: {sentence(failure)}") from None


def _read(file: BinaryIO, name: str) -> Saved:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if len(members) != len(archive.infolist()) or len(members) > _MEMBERS:
            raise LoadError(f"{name}: has {len(archive.infolist())} members, expected other ones")
        for info in members.values():
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                raise LoadError(
                    f"{name}: member {label(info.filename)} is compressed or encrypted, "
                    "expected stored bytes"
                )
        _check_places(archive, name)
        head = _head(archive, members, name)
        texts = tuple(_list(head, "texts", Text, name))
        description = read_as(Description, head.get("description"), f"{name}: description")
        expected = {"side.json.npy", *(f"logits_{index}.npy" for index in range(len(texts)))}
        if set(members) != expected or not texts:
            raise LoadError(
                f"{name}: has {len(members) - 1} arrays of logits for {len(texts)} texts, "
                "expected one each"
            )
        logits = []
        for index, text in enumerate(texts):
            member = members[f"logits_{index}.npy"]
            shape = (len(text.written), description.vocab_size)
            logits.append(_array(archive, member, "<f4", shape, name))
        _check_tokens(texts, description.vocab_size, name)
        footprint = read_as(Footprint, head.get("footprint"), f"{name}: footprint")
        rounds = tuple(_list(head, "rounds", Round, name))
        _check_positive(footprint, rounds, name)
        return Saved(description, footprint, texts, rounds, tuple(logits))


def _check_places(archive: zipfile.ZipFile, name: str) -> None:
    """Raise LoadError if two members share bytes, or if a member reaches beyond the file."""
    members = sorted(archive.infolist(), key=lambda info: info.header_offset)
    ends = [*(info.header_offset for info in members[1:]), archive.start_dir]
    for info, end in zip(members, ends, strict=True):
        room = end - info.header_offset - _LOCAL_HEADER_BYTES
        if info.compress_size != info.file_size or not 0 <= info.file_size <= room:
            raise LoadError(
                f"{name}: member {label(info.filename)} claims {info.file_size} bytes "
                f"and the file has room for {max(room, 0)}, expected members that share no bytes"
            )


def _head(
    archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo], name: str
) -> dict[str, Any]:
    member = members.get("side.json.npy")
    if member is None or member.file_size > _JSON_BYTES:
        raise LoadError(f"{name}: has no side.json of at most {_JSON_BYTES} bytes, expected one")
    data = _array(archive, member, "|u1", None, name).tobytes()
    head = parse_json_object(data, f"{name}: side.json", error=LoadError)
    if head.get("format") != FORMAT or head.get("version") != VERSION:
        raise LoadError(
            f"{name}: is {head.get('format')!r} version {head.get('version')!r}, "
            f"expected {FORMAT} version {VERSION}"
        )
    return head


def _array(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    dtype: str,
    shape: tuple[int, ...] | None,
    name: str,
) -> Any:
    """The array of a member with the dtype and shape (None: one dimension). Raises LoadError for
    another dtype, shape or number of bytes."""
    where = f"{name}: member {label(member.filename)}"
    with archive.open(member) as stream:
        header = read_header(stream.read(HEADER_BYTES))
    if header is None:
        raise LoadError(f"{where} is not an array, expected one in numpy's format")
    held = member.file_size - header.begin
    wanted = shape if shape is not None else (held,)
    if header.dtype != dtype or header.fortran_order or header.shape != wanted:
        raise LoadError(
            f"{where} is {header.dtype} of {header.shape}, expected {dtype} of {wanted}"
        )
    size = math.prod(wanted) * np.dtype(dtype).itemsize
    if size != held:
        raise LoadError(f"{where} has {member.file_size} bytes, expected {size} and a header")
    return np.frombuffer(archive.read(member), dtype, offset=header.begin).reshape(wanted)


def _check_positive(footprint: Footprint, rounds: tuple[Round, ...], name: str) -> None:
    """Raise LoadError for numbers that are not positive, because a report divides by them."""
    numbers = [footprint.load_s, float(footprint.weight_bytes)]
    for run in rounds:
        numbers += [run.decode_tokens_per_s, run.prefill_tokens_per_s or 1.0]
    if min(numbers) <= 0:
        raise LoadError(
            f"{name}: has a time, a size or a rate of {min(numbers):g}, expected more than 0"
        )


def _list(head: dict[str, Any], key: str, kind: type[T], name: str) -> list[T]:
    items = head.get(key)
    if not isinstance(items, list) or len(items) > 100_000:
        raise LoadError(f"{name}: {key} is not a list, expected one")
    return [read_as(kind, item, f"{name}: {key}") for item in items]


def _check_tokens(texts: Sequence[Text], vocab_size: int, name: str) -> None:
    for text in texts:
        if not text.written or not all(
            0 <= token < vocab_size for token in (*text.prompt, *text.written)
        ):
            raise LoadError(f"{name}: has no token ids, or ids outside 0 to {vocab_size - 1}")


class SavedSide:
    """A side that answers from a file. It computes nothing new."""

    def __init__(self, path: str) -> None:
        self._name, self.saved = label(Path(path).name), load(path)

    def describe(self) -> Description:
        setting = f"{self._name} ({self.saved.description.setting})"
        return dataclasses.replace(self.saved.description, setting=setting)

    def tokenize(self, prompts: Sequence[str]) -> list[tuple[int, ...]]:
        raise InvalidArgument(f"{self._name}: is a saved result, which has its own prompts")

    def write(self, prompt: Sequence[int], tokens: int) -> tuple[Text, Logits]:
        raise InvalidArgument(f"{self._name}: is a saved result, which generates nothing")

    def follow(self, text: Text) -> Logits:
        if text not in self.saved.texts:
            raise InvalidArgument(
                f"{self._name}: was saved for other tokens, expected the tokens of the other side"
            )
        return self.saved.logits[self.saved.texts.index(text)]

    def spell(self, tokens: Sequence[int]) -> list[str]:
        raise TokenizerError(f"{self._name}: is a saved result, which has no tokenizer")

    def footprint(self) -> Footprint:
        return self.saved.footprint

    def run(self, depth: int) -> Round:
        raise InvalidArgument(f"{self._name}: is a saved result, which cannot be timed again")

    def close(self) -> None:
        """Does nothing: no file is open."""
