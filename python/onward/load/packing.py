"""Packs a model: loads it in the requested dtypes and writes the packed weights into one file."""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onward.errors import ArgumentTypeError, InvalidArgument, PackError
from onward.files.whole_files import remove_abandoned, whole_file
from onward.load import pack_contents as contents
from onward.load.hub import PACK, find_model
from onward.load.loading import LoadedModel, check_device, opened_source, pack
from onward.load.model_texts import read_template, read_tokenizer
from onward.load.origin import fingerprint
from onward.load.weights.dtypes import head_name
from onward.load.weights.safetensors_writer import WrittenTensor, header_bytes, write_tensors
from onward.machine.progress import ProgressBar
from onward.message_text import label, shown
from onward.options.model_defaults import read_model_defaults

ALIGNMENT = 64
HEADER_TEXT_BYTES = 16 << 10
TEXT_LIMIT_BYTES = 256 << 20
Tensor = tuple[str, str, memoryview]


@dataclass(frozen=True)
class Packing:
    """The file that was written."""

    output: str
    name: str
    dtype: str
    head_dtype: str
    weight_bytes: int
    file_bytes: int
    seconds: float


def pack_model(
    model: str | os.PathLike[str] | None,
    output: str | os.PathLike[str],
    *,
    dtype: str = "auto",
    head_dtype: str | None = None,
    name: str | None = None,
    force: bool = False,
    threads: int,
    device: str = "cpu",
) -> Packing:
    """Write a model into one file that ends in .onward. ``LLM`` and native programs open it. The
    weights have the layout of ``device``.

    Raises:
        InvalidArgument: dtypes as for ``LLM``, an output that exists or has another suffix, a
            model that is a pack itself.
        PackError: the file cannot be written.
        WeightError: as for ``LLM``, and weights that are NaN or infinite.
        ModelNotFound, LoadError, DeviceError: as for ``LLM``.
    """
    began = time.perf_counter()
    target = _checked_output(output, force)
    files = find_model(model)
    if files.kind == "pack":
        raise InvalidArgument(
            f"{label(files.path.name)}: is a pack, expected the model that it was made of"
        )
    called = files.name if name is None else name
    if not isinstance(called, str) or not called.strip() or not called.isprintable():
        raise InvalidArgument(f"name: is {shown(called)}, expected text of one line")
    with ProgressBar(f"loading {files.name}") as progress:
        place = check_device(device)
        with opened_source(files, dtype, threads, progress, head_dtype, "auto", place) as source:
            loaded = source.loaded(pack(source, finite=True))
    facts, texts = _split(pack_facts(loaded, called) | _texts(loaded))
    with ProgressBar(f"writing {target.name}") as progress:
        try:
            write_pack(target, facts, loaded.core.packed(), texts, progress, replace=force)
        except OSError as failure:
            raise PackError(
                f"{label(target.name)}: cannot write: {failure.strerror or failure}"
            ) from failure
    return Packing(
        output=str(target),
        name=called,
        dtype=loaded.dtypes.name,
        head_dtype=head_name(loaded.dtypes),
        weight_bytes=sum(data.nbytes for _, _, data in loaded.core.packed()),
        file_bytes=target.stat().st_size,
        seconds=time.perf_counter() - began,
    )


def _checked_output(output: object, force: bool) -> Path:
    if not isinstance(output, (str, os.PathLike)) or not str(output):
        raise ArgumentTypeError(f"output: is {shown(output)}, expected a path")
    target = Path(os.path.expanduser(output))
    if target.suffix != PACK:
        raise InvalidArgument(
            f"output: {label(target.name)} does not end in {PACK}, expected "
            f"{label(target.name)}{PACK}"
        )
    if target.is_dir():
        raise InvalidArgument(f"output: {label(str(target))} is a folder, expected a file")
    if os.path.lexists(target) and not force:
        raise InvalidArgument(
            f"output: {label(str(target))} exists, expected a new path, or --force"
        )
    return target


def pack_facts(loaded: LoadedModel, name: str) -> dict[str, str]:
    """The metadata that every pack has, except for the checksums, and a vocabulary without ids."""
    from onward import _core

    return {
        "format": contents.FORMAT,
        "pack": str(contents.VERSION),
        "layout": str(loaded.core.packed_layout),
        "onward": _core.__version__,
        "name": name,
        "spec": contents.spec_text(loaded.spec),
        "dtypes": contents.dtypes_text(loaded.dtypes),
        "vocabulary": contents.vocabulary_text(None, (), loaded.spec.vocab_size),
        "fingerprint": fingerprint(loaded),
    }


def _texts(loaded: LoadedModel) -> dict[str, str]:
    """The texts of a model, and the ids that begin, fill and end its outputs."""
    tokenizer, _ = read_tokenizer(loaded)
    template = None
    if tokenizer is not None:
        template = read_template(loaded.files, loaded.metadata, loaded.texts, tokenizer)
    defaults = read_model_defaults(
        loaded.generation_config,
        loaded.config,
        tokenizer.eos_token_ids if tokenizer else (),
        loaded.spec.vocab_size,
    )
    return {
        "vocabulary": contents.vocabulary_text(
            tokenizer, defaults.eos_token_ids, loaded.spec.vocab_size
        ),
        "config": contents.written(loaded.config),
        "generation_config": contents.written(loaded.generation_config),
        **contents.tokenizer_texts(tokenizer),
        **contents.template_texts(template),
    }


def _split(metadata: dict[str, str]) -> tuple[dict[str, str], list[Tensor]]:
    """The metadata, and its large texts as tensors: a header is read with every opening, and JSON
    is slow to read."""
    tensors: list[Tensor] = []
    for key, text in list(metadata.items()):
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise PackError(
                f"{key}: holds half of a surrogate pair, expected text that UTF-8 can hold"
            ) from None
        if len(data) > TEXT_LIMIT_BYTES:
            raise PackError(f"{key}: has {len(data)} bytes, expected at most {TEXT_LIMIT_BYTES}")
        if key in contents.TEXTS and len(data) > HEADER_TEXT_BYTES:
            del metadata[key]
            tensors.append((contents.TEXT_PREFIX + key, "u8", memoryview(data)))
    return metadata, tensors


def write_pack(
    target: Path,
    facts: Mapping[str, str],
    weights: Sequence[Tensor],
    texts: Sequence[Tensor] = (),
    progress: Callable[[int, int], None] | None = None,
    *,
    replace: bool = True,
) -> None:
    """Write the file whole, or leave the target as it was: OSError. The checksums are added here.

    Of several writers the last one wins. With ``replace`` false, an existing target is
    FileExistsError.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    tensors = [*weights, *texts]
    total = sum(data.nbytes for _, _, data in tensors)

    def moved(done: int) -> None:
        if progress is not None:
            progress(done, 2 * total)  # the bytes are read twice

    checksums, done = {}, 0
    for name, _, data in tensors:
        checksums[name] = contents.checksum_text(zlib.crc32(data))
        done += data.nbytes
        moved(done)
    facts = {**facts, "checksums": contents.written(checksums)}
    facts["checksum"] = contents.metadata_checksum(facts)
    written = [_stored(*tensor) for tensor in _aligned(tensors)]
    header = header_bytes(facts, written, ALIGNMENT)
    size = len(header) + sum(tensor.data.nbytes for tensor in written)
    place = Path(os.path.realpath(target))
    remove_abandoned(place)
    free = shutil.disk_usage(place.parent).free
    if free < size:
        raise OSError(f"{size:,} bytes to write, {free:,} free")
    with whole_file(target, replace=replace) as part:
        write_tensors(
            part.file, header, written, lambda done, _: moved(min(total + done, 2 * total))
        )


def _aligned(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, with zeros between them: each tensor begins at a multiple of 64 and the last one
    ends at one, because the tensors of a safetensors file follow each other without a gap."""
    placed: list[Tensor] = []
    for name, dtype, data in tensors:
        placed.append((name, dtype, data))
        if missing := -data.nbytes % ALIGNMENT:
            placed.append((f"padding.{len(placed)}", "u8", memoryview(bytes(missing))))
    return placed


def _stored(name: str, dtype: str, data: memoryview) -> WrittenTensor:
    """Weights in f32, which include all vectors, are numbers (F32). All others are bytes (U8)."""
    if dtype == "f32":
        return WrittenTensor(name, "F32", [data.nbytes // 4], data)
    return WrittenTensor(name, "U8", [data.nbytes], data)
