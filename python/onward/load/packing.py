"""Packs a model: loads it in the dtypes asked for and writes what came of it into one file.

Knows the container by its writer and its contents by theirs; nothing of what bytes mean.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from onward.errors import ArgumentTypeError, InvalidArgument, PackError
from onward.load import pack_contents as contents
from onward.load.hub import PACK, find_model
from onward.load.loading import LoadedModel, check_device, load_model, packed_layout
from onward.load.model_texts import read_template, read_tokenizer
from onward.load.origin import fingerprint
from onward.load.weights import packed
from onward.load.weights.dtypes import head_name
from onward.machine.progress import ProgressBar
from onward.message_text import label, shown
from onward.options.model_defaults import read_model_defaults

ALIGNMENT = 64
HEADER_TEXT_BYTES = 16 << 10
TEXT_LIMIT_BYTES = 256 << 20
Tensor = tuple[str, str, memoryview]


@dataclass(frozen=True)
class Packing:
    """What was written."""

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
    """Write a model into one file that ends in .onward; ``LLM`` and native programs open it, on
    ``device``, whose layout the weights have.

    Raises:
        InvalidArgument: dtypes as of ``LLM``, an output that is there already or ends otherwise, a
            model that is a pack itself.
        PackError: the file cannot be written.
        ModelNotFound, LoadError, DeviceError: as of ``LLM``.
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
        loaded = load_model(
            files, dtype, threads, progress, head_dtype, device=check_device(device)
        )
    weights = loaded.core.packed()
    facts, tensors = _texts(loaded, called)
    tensors = [*weights, *tensors]
    with ProgressBar("summing up") as progress:
        facts["checksums"] = contents.written(_checksums(tensors, progress))
    facts["checksum"] = contents.metadata_checksum(facts)
    with ProgressBar(f"writing {target.name}") as progress:
        _write(target, facts, _aligned(tensors), progress, replace=force)
    return Packing(
        output=str(target),
        name=called,
        dtype=loaded.dtypes.name,
        head_dtype=head_name(loaded.dtypes),
        weight_bytes=sum(data.nbytes for _, _, data in weights),
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
            f"output: {label(str(target))} is there already, expected a path where nothing is, "
            "or --force"
        )
    return target


def _checksums(tensors: list[Tensor], progress: Callable[[int, int], None]) -> dict[str, str]:
    total, done = sum(data.nbytes for _, _, data in tensors), 0
    checksums = {}
    for name, _, data in tensors:
        checksums[name] = contents.checksum_text(zlib.crc32(data))
        done += data.nbytes
        progress(done, total)
    return checksums


def _texts(loaded: LoadedModel, name: str) -> tuple[dict[str, str], list[Tensor]]:
    """The metadata but for checksums, and the texts that are tensors: a header is read with every
    opening, and JSON slowly."""
    version, layout = packed_layout(loaded)
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
    metadata = {
        "format": contents.FORMAT,
        "pack": str(contents.VERSION),
        "layout": str(layout),
        "onward": version,
        "name": name,
        "spec": contents.spec_text(loaded.spec),
        "dtypes": contents.dtypes_text(loaded.dtypes),
        "vocabulary": contents.vocabulary_text(
            tokenizer, defaults.eos_token_ids, loaded.spec.vocab_size
        ),
        "fingerprint": fingerprint(loaded),
        "config": contents.written(loaded.config),
        "generation_config": contents.written(loaded.generation_config),
        **contents.tokenizer_texts(tokenizer),
        **contents.template_texts(template),
    }
    tensors: list[Tensor] = []
    for key, text in list(metadata.items()):
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise PackError(f"{key}: holds half of a surrogate pair, which no pack can") from None
        if len(data) > TEXT_LIMIT_BYTES:
            raise PackError(f"{key}: has {len(data)} bytes, expected at most {TEXT_LIMIT_BYTES}")
        if key in contents.TEXTS and len(data) > HEADER_TEXT_BYTES:
            del metadata[key]
            tensors.append((contents.TEXT_PREFIX + key, "u8", memoryview(data)))
    return metadata, tensors


def _aligned(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors, and zeros in between, so that each begins at a multiple of 64 and the last one
    ends there: tensors of a safetensors file follow each other without a gap."""
    placed: list[Tensor] = []
    for name, dtype, data in tensors:
        placed.append((name, dtype, data))
        if missing := -data.nbytes % ALIGNMENT:
            placed.append((f"padding.{len(placed)}", "u8", memoryview(bytes(missing))))
    return placed


def _write(
    target: Path,
    metadata: Mapping[str, str],
    tensors: list[Tensor],
    progress: Callable[[int, int], None],
    *,
    replace: bool,
) -> None:
    try:
        packed.write(target, metadata, tensors, progress, replace=replace)
    except OSError as failure:
        raise PackError(
            f"{label(target.name)}: cannot write: {failure.strerror or failure}"
        ) from failure
