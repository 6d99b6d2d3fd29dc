"""Session files: a conversation, its token ids and its cache blocks in one safetensors file.

    token_ids                I32 (tokens)
    conversation             U8 (bytes), JSON: messages, the texts of the transcript, usage
    blocks.G.exact           U8 (blocks, bytes): the exact blocks of layer group G
    blocks.G.exact.index     I64 (blocks): the place of each block in the sequence
    blocks.G.coded           the coded blocks, in the same way

A file without blocks is complete, too. The metadata holds everything that the blocks depend on
(onward.load.origin) and a hash of the content, so that a damaged file and a file of another model
give different errors. Everything is checked before it is used, and sizes are checked before memory
is allocated. The hash is no signature: a person who writes a file on purpose decides what the model
reads.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onward.errors import (
    ArgumentTypeError,
    InvalidArgument,
    LoadError,
    SessionError,
    WeightError,
)
from onward.files.json_file import parse_json_object
from onward.files.names import is_file_name
from onward.files.whole_files import whole_file
from onward.load.origin import BLOCK_TOKENS, Origin, difference
from onward.load.weights.mapped_file import MappedFile
from onward.load.weights.safetensors import StoredTensor, read_header
from onward.load.weights.safetensors_writer import WrittenTensor, header_bytes, write_tensors
from onward.message_text import label, sentence, shown

FORMAT = "onward session"
VERSION = "1"
_CONVERSATION_LIMIT_BYTES = 64 << 20
_HASHED_BYTES = 16 << 20  # at once: Ctrl-C is noticed and the progress bar moves between two pieces
_BLOCKS = re.compile(r"blocks\.(\d{1,4})\.(exact|coded)")
_SIZES = {"I32": 4, "I64": 8, "U8": 1}

Progress = Callable[[int, int], None]
StoredBlock = tuple[int, bool, int, bytes]
"""Layer group, whether coded, index among the blocks of the sequence, bytes."""


@dataclass(frozen=True)
class SavedSession:
    """The content of a file; the blocks are views into it."""

    token_ids: list[int]
    conversation: dict[str, Any]
    blocks: list[tuple[int, bool, int, memoryview]]
    metadata: Mapping[str, object]


def session_path(name: str, path: object) -> Path:
    """The path that a caller gave."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise ArgumentTypeError(f"{name}: is {shown(path)}, expected the path of a file")
    if not is_file_name(text):
        raise InvalidArgument(f"{name}: is {shown(text)}, expected the path of a file")
    return Path(os.path.expanduser(text))


def write_session(
    path: Path,
    metadata: Mapping[str, str],
    token_ids: Sequence[int],
    conversation: Mapping[str, Any],
    blocks: list[StoredBlock],
    progress: Progress,
) -> None:
    """Write the whole file, or leave the old one as it was. Consumes ``blocks``.

    Raises:
        SessionError: the file cannot be written.
    """
    _check_replaceable(path)
    text = json.dumps(conversation).encode()
    tensors: dict[str, NDArray[Any]] = {
        "token_ids": np.asarray(token_ids, np.int32),
        "conversation": np.frombuffer(text, np.uint8),
        **_stacked(blocks),
    }
    content = {
        name: (_name_of(tensor), tensor.shape, tensor.reshape(-1).view(np.uint8).data)
        for name, tensor in tensors.items()
    }
    header: dict[str, str] = {"format": FORMAT, "format_version": VERSION, **metadata}
    header["sha256"] = _digest(header, content, progress)
    try:
        with whole_file(path, mode=0o600) as part:
            written = [WrittenTensor(name, *tensor) for name, tensor in content.items()]
            # Large types first, so that all are aligned.
            written.sort(key=lambda tensor: -_SIZES[tensor.dtype])
            write_tensors(part.file, header_bytes(header, written), written)
    except Exception as failure:
        said = getattr(failure, "strerror", None) or sentence(failure)
        raise SessionError(f"{label(path.name)}: cannot write: {said}") from failure


@contextlib.contextmanager
def opened_session(
    path: Path, origin: Origin, vocab_size: int, context: int, progress: Progress
) -> Iterator[SavedSession]:
    """Read a file and check that it belongs to the model that will continue it.

    The blocks are views. They are valid while the file is open.

    Raises:
        SessionError: the file is damaged, or belongs to another model or other cache settings.
    """
    try:
        file = MappedFile(path)
    except WeightError as failure:
        raise SessionError(str(failure)) from None
    try:
        yield _read(file, origin, vocab_size, context, progress)
    finally:
        file.close()


def _read(
    file: MappedFile, origin: Origin, vocab_size: int, context: int, progress: Progress
) -> SavedSession:
    name = label(file.path.name)
    try:
        places, metadata = read_header(file)
    except LoadError as failure:
        raise SessionError(str(failure)) from None
    if metadata.get("format") != FORMAT:
        raise SessionError(
            f"{name}: its format is {shown(metadata.get('format'))}, expected {FORMAT!r}"
        )
    if metadata.get("format_version") != VERSION:
        raise SessionError(
            f"{name}: is of version {shown(metadata.get('format_version'))} of sessions, "
            f"expected {VERSION!r}"
        )
    if (found := difference(metadata, origin)) is not None:
        raise SessionError(f"{name}: was saved with {found}")
    tokens = _places(name, places, context)
    content = {
        tensor: (place.dtype, place.shape, file.view(place.begin, place.end))
        for tensor, place in places.items()
    }
    header = {key: value for key, value in metadata.items() if key != "sha256"}
    if _digest(header, content, progress) != metadata.get("sha256"):
        raise SessionError(f"{name}: is damaged: its bytes are not those that were written")
    ids = np.frombuffer(content["token_ids"][2], np.int32)
    if tokens and (int(ids.min()) < 0 or int(ids.max()) >= vocab_size):
        raise SessionError(
            f"{name}: has token ids from {ids.min()} to {ids.max()}, expected 0 to {vocab_size - 1}"
        )
    try:
        conversation = parse_json_object(
            bytes(content["conversation"][2]), f"{name}: conversation", error=WeightError
        )
    except WeightError as failure:
        raise SessionError(str(failure)) from None
    return SavedSession(ids.tolist(), conversation, _blocks(content), metadata)


def _places(name: str, places: Mapping[str, StoredTensor], context: int) -> int:
    """Check dtype and shape of every tensor before any is read. Returns the number of tokens."""
    for tensor in ("token_ids", "conversation"):
        if tensor not in places:
            raise SessionError(f"{name}: has no tensor {tensor}, expected one")
    tokens = _shape(name, "token_ids", places["token_ids"], "I32", 1)[0]
    if tokens > context:
        raise SessionError(f"{name}: has {tokens} tokens, expected at most {context}, the context")
    size = _shape(name, "conversation", places["conversation"], "U8", 1)[0]
    if size > _CONVERSATION_LIMIT_BYTES:
        raise SessionError(
            f"{name}: its conversation has {size} bytes, expected at most "
            f"{_CONVERSATION_LIMIT_BYTES}"
        )
    most = -(-tokens // BLOCK_TOKENS)
    for tensor, place in places.items():
        stem = tensor.removesuffix(".index")
        if tensor in ("token_ids", "conversation"):
            continue
        if _BLOCKS.fullmatch(stem) is None:
            raise SessionError(f"{name}: has a tensor {label(tensor)!r}, which no session has")
        if stem not in places or f"{stem}.index" not in places:
            raise SessionError(
                f"{name}: has {label(tensor)} alone, expected blocks and their index"
            )
        if tensor != stem:
            continue
        count = _shape(name, stem, place, "U8", 2)[0]
        indexes = _shape(name, f"{stem}.index", places[f"{stem}.index"], "I64", 1)[0]
        if count != indexes or count > most:
            raise SessionError(
                f"{name}: has {count} blocks and {indexes} indexes in {stem}, expected one "
                f"for each and at most {most} for {tokens} tokens"
            )
    return tokens


def _shape(
    name: str, tensor: str, place: StoredTensor, dtype: str, dimensions: int
) -> tuple[int, ...]:
    shape, length = place.shape, place.end - place.begin
    fits = place.dtype == dtype and len(shape) == dimensions
    if not fits or length != int(np.prod(shape, dtype=object)) * _SIZES[dtype]:
        raise SessionError(
            f"{name}: tensor {tensor} is {place.dtype} of shape {shape}, "
            f"expected {dtype} of {dimensions} dimension{'s' if dimensions > 1 else ''}"
        )
    return shape


Content = Mapping[str, tuple[str, tuple[int, ...], memoryview]]
"""Dtype, shape and bytes of the tensor with this name."""


def _blocks(content: Content) -> list[tuple[int, bool, int, memoryview]]:
    blocks = []
    for name, (_, shape, data) in content.items():
        if (match := _BLOCKS.fullmatch(name)) is None:
            continue
        indexes = np.frombuffer(content[f"{name}.index"][2], np.int64).tolist()
        for row, index in enumerate(indexes):
            block = data[row * shape[1] : (row + 1) * shape[1]]
            blocks.append((int(match[1]), match[2] == "coded", index, block))
    return blocks


def _stacked(blocks: list[StoredBlock]) -> dict[str, NDArray[Any]]:
    """One tensor with the blocks of a group and kind, and one with their indexes. Empties the list,
    so that only one block at a time is in memory twice."""
    sorted_out: dict[str, tuple[list[int], list[bytes]]] = {}
    blocks.reverse()
    while blocks:
        group, coded, index, data = blocks.pop()
        name = f"blocks.{group}.{'coded' if coded else 'exact'}"
        indexes, parts = sorted_out.setdefault(name, ([], []))
        indexes.append(index)
        parts.append(data)
    tensors: dict[str, NDArray[Any]] = {}
    for name, (indexes, parts) in sorted_out.items():
        count, size = len(parts), len(parts[0])
        tensors[name] = np.frombuffer(b"".join(parts), np.uint8).reshape(count, size)
        tensors[f"{name}.index"] = np.asarray(indexes, np.int64)
        parts.clear()
    return tensors


def _digest(metadata: Mapping[str, object], content: Content, progress: Progress) -> str:
    """Hash of everything in a file, in a fixed order."""
    digest = hashlib.sha256(json.dumps(dict(metadata), sort_keys=True).encode())
    total, done = sum(data.nbytes for _, _, data in content.values()), 0
    for name in sorted(content):
        dtype, shape, data = content[name]
        digest.update(json.dumps([name, dtype, list(shape)]).encode())
        for begin in range(0, data.nbytes, _HASHED_BYTES):
            piece = data[begin : begin + _HASHED_BYTES]
            digest.update(piece)
            done += piece.nbytes
            progress(done, total)
    return digest.hexdigest()


def _name_of(tensor: NDArray[Any]) -> str:
    return {"int32": "I32", "int64": "I64", "uint8": "U8"}[str(tensor.dtype)]


def _check_replaceable(path: Path) -> None:
    """Refuse to replace a file that is not a session, so that a mistyped path destroys nothing."""
    if not path.parent.is_dir():
        raise SessionError(f"{label(path.name)}: cannot write: there is no folder for it")
    if not os.path.lexists(path):
        return
    try:
        file = MappedFile(path)
        try:
            replaceable = read_header(file)[1].get("format") == FORMAT
        finally:
            file.close()
    except LoadError:
        replaceable = False
    if not replaceable:
        raise SessionError(
            f"{label(path.name)}: exists and is not a session, expected a new file or a session's"
        )
