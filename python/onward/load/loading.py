"""Loads a model into the core: reads the spec, checks every tensor, packs the weights.

All errors of the files are found before the first weight is packed. The formats of the files are
read in ``weights``, and the families of models in ``architectures``.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from onward.errors import ArgumentTypeError, InvalidArgument, WeightError
from onward.load import architectures
from onward.load import pack_contents as contents
from onward.load.architectures import PlannedTensor
from onward.load.architectures.multimodal import with_text_ids
from onward.load.architectures.parts import stored_shapes, tensors_with_more_rows
from onward.load.hub import ModelFiles
from onward.load.weights import Checkpoint, open_checkpoint
from onward.load.weights.checkpoint import STORAGE, float_values, unsupported
from onward.load.weights.dtypes import DTYPES, HEAD_DTYPES, WeightDtypes, choose_dtypes, head_name
from onward.load.weights.finite import check_finite
from onward.load.weights.part_reader import read_part, stored_bytes
from onward.machine.caller import warn_caller
from onward.message_text import label, labels, nearest, shown
from onward.options.kv_dtypes import KvDtypes, parse_kv_dtype
from onward.spec import DecoderSpec, to_fields

if TYPE_CHECKING:
    from onward import _core

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and the total."""

_COMPARED_BYTES = 16 << 20
_NAME_LENGTH = 64
"""More than the name of any device has."""


@dataclass
class LoadedModel:
    """A model in the core, and what its files say in addition to the weights."""

    core: _core.Model
    spec: DecoderSpec
    dtypes: WeightDtypes
    kv: KvDtypes
    files: ModelFiles
    generation_config: dict[str, Any]
    config: dict[str, Any]
    metadata: Mapping[str, object]
    texts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The metadata of a pack; empty for other files."""

    @property
    def mapped_bytes(self) -> int:
        """Bytes of the weights that stay in their file."""
        return self.core.weight_bytes if self.files.kind == "pack" else 0


def load_model(
    files: ModelFiles,
    dtype: str,
    threads: int,
    progress: Progress | None = None,
    head_dtype: str | None = None,
    kv_dtype: object = "auto",
    device: str = "cpu",
) -> LoadedModel:
    """Load a model into the memory of ``device``, with its weights in the dtypes that
    ``choose_dtypes`` selects.

    ``kv_dtype`` (onward.options.kv_dtypes) may select another float dtype for the cache.

    Raises:
        InvalidArgument: an unknown dtype.
        ConfigError: a config, or a GGUF file's metadata, that cannot be used.
        WeightError: tensors that are missing, left over, misshapen, damaged, of an unknown dtype or
            with values that the chosen dtype cannot hold; a file that changed during the load.
        DeviceError: a device that cannot be used.
        PackError, IoError: a pack that is damaged, of another layout, or cannot be read.
    """
    check_dtypes(dtype, head_dtype)
    if files.kind == "pack":
        return _open_pack(files, dtype, head_dtype, threads, kv_dtype, device)
    with opened_source(files, dtype, threads, progress, head_dtype, kv_dtype, device) as source:
        return source.loaded(pack(source))


@contextlib.contextmanager
def opened_source(
    files: ModelFiles,
    dtype: str,
    threads: int,
    progress: Progress | None,
    head_dtype: str | None,
    kv_dtype: object,
    device: str,
) -> Iterator[Source]:
    """A folder or a GGUF file, opened and checked except for the bytes of its tensors. Takes the
    arguments of ``load_model`` and raises its errors."""
    check_dtypes(dtype, head_dtype)
    checkpoint = open_checkpoint(files)
    try:
        spec = read_spec(checkpoint)
        plan = plan_of(spec, checkpoint)
        check_headers(plan, checkpoint, spec)
        dtypes = choose_dtypes(
            plan, lambda source: checkpoint.describe(source)[0], dtype, head_dtype
        )
        kv = parse_kv_dtype(kv_dtype, dtypes.cache)
        dtypes = dataclasses.replace(dtypes, cache=kv.exact)
        yield Source(files, spec, plan, checkpoint, dtypes, kv, threads, progress, device)
    finally:
        checkpoint.close()


def _open_pack(
    files: ModelFiles,
    dtype: str,
    head_dtype: str | None,
    threads: int,
    kv_dtype: object,
    device: str,
) -> LoadedModel:
    """The model of a pack. Its weights stay in the file. Dtypes and device are fixed by the
    pack."""
    from onward import _core

    core, texts = _core.open_pack(files.path, threads, device=device)
    dtypes = contents.read_dtypes(texts)
    found = {"dtype": dtypes.name, "head_dtype": head_name(dtypes)}
    for option, asked in (("dtype", dtype), ("head_dtype", head_dtype)):
        if asked not in ("auto", None, found[option]):
            flag = "--" + option.replace("_", "-")
            expected = f'"auto" or "{found[option]}"' if option == "dtype" else shown(found[option])
            raise InvalidArgument(
                f"{option}: is {shown(asked)}, but {label(files.path.name)} is packed in "
                f"{found[option]}, expected {expected}; to pack the model anew: onward pack MODEL "
                f"-o {label(files.path.name)} {flag} {asked} --force"
            )
    kv = parse_kv_dtype(kv_dtype, dtypes.cache)
    if kv.exact != dtypes.cache:
        core, texts = _core.open_pack(files.path, threads, cache_dtype=kv.exact, device=device)
        dtypes = dataclasses.replace(dtypes, cache=kv.exact)
    return LoadedModel(
        core=core,
        spec=contents.read_spec(texts),
        dtypes=dtypes,
        kv=kv,
        files=dataclasses.replace(files, name=texts.get("name", files.name)),
        generation_config=contents.read_config(texts, "generation_config"),
        config=contents.read_config(texts, "config"),
        metadata={},
        texts=texts,
    )


def check_device(device: object) -> str:
    """The full name of a device: "cuda:0" for "cuda".

    Raises:
        InvalidArgument: no device has this name.
        DeviceError: the device cannot be used.
    """
    from onward import _core

    if not isinstance(device, str):
        raise ArgumentTypeError(f"device: is {shown(device)}, expected a name as text")
    if not device.isascii() or len(device) > _NAME_LENGTH:
        raise InvalidArgument(f"device: is {shown(device)}, expected a name")
    return _core.device_name(device)


def check_dtypes(dtype: object, head_dtype: object) -> None:
    """Check the dtypes for ``choose_dtypes``.

    Raises:
        ArgumentTypeError, InvalidArgument: it does not accept them.
    """
    _check_name("dtype", dtype, DTYPES, "one of")
    if head_dtype is not None:
        _check_name("head_dtype", head_dtype, HEAD_DTYPES, "None or one of")


def _check_name(argument: str, value: object, names: tuple[str, ...], expected: str) -> None:
    found = f"{argument}: is {shown(value)}, expected {expected} {', '.join(names)}"
    if not isinstance(value, str):
        raise ArgumentTypeError(found)
    if value not in names:
        raise InvalidArgument(found + nearest(value, names))


def read_spec(checkpoint: Checkpoint) -> DecoderSpec:
    """The spec of the config, with a separate output head if the tensors have one.

    If the config ties the head to the embedding, but the file has a head with other values, both
    matrices are used, as in transformers, with a warning.
    """
    spec = architectures.read_spec(checkpoint.config, checkpoint.where)
    if architectures.is_multimodal(checkpoint.config):
        warn_caller(
            f"{checkpoint.where}: model_type {checkpoint.config['model_type']} reads images or "
            "sound, too; here it runs as a text model, and they are not read"
        )
    if not spec.tied_head:
        return spec
    top = architectures.top_tensors(spec, checkpoint.names(), checkpoint.layout)
    head, embed = top["head"], top["embed"]
    if _are_equal(checkpoint, head, embed):
        return spec
    warn_caller(
        f"{checkpoint.file_of(head)}: tensor {head} differs from {embed}, though the config "
        "ties them; both are used, as if tie_word_embeddings were false"
    )
    return dataclasses.replace(spec, tied_head=False)


def plan_of(spec: DecoderSpec, checkpoint: Checkpoint) -> list[PlannedTensor]:
    """The weights of a model and the tensors of its file that they are made of."""
    return architectures.tensor_plan(
        spec, checkpoint.names(), checkpoint.describe, checkpoint.layout
    )


def _are_equal(checkpoint: Checkpoint, head_name: str, embed_name: str) -> bool:
    """Whether the file has no head, or one that equals the embedding."""
    if not {head_name, embed_name} <= checkpoint.names():
        return True
    head, embed = checkpoint.tensor(head_name), checkpoint.tensor(embed_name)
    if head.shape != embed.shape:
        return False
    a, b = (np.frombuffer(tensor.buffer, np.uint8) for tensor in (head, embed))
    size_a, size_b = STORAGE[head.dtype], STORAGE[embed.dtype]
    try:
        if head.dtype == embed.dtype:
            step = _COMPARED_BYTES
            return all(
                np.array_equal(a[begin : begin + step], b[begin : begin + step])
                for begin in range(0, len(a), step)
            )
        if size_a[0] > 1 or size_b[0] > 1:
            return False
        step = _COMPARED_BYTES // 4
        return all(
            np.array_equal(
                float_values(a[begin * size_a[1] : (begin + step) * size_a[1]], head.dtype),
                float_values(b[begin * size_b[1] : (begin + step) * size_b[1]], embed.dtype),
            )
            for begin in range(0, len(a) // size_a[1], step)
        )
    finally:
        del a, b, head, embed
        checkpoint.release(head_name)
        checkpoint.release(embed_name)


def check_headers(plan: list[PlannedTensor], checkpoint: Checkpoint, spec: DecoderSpec) -> None:
    """Compare the spec with the file without reading a tensor: none may be missing, unexpected,
    misshapen or of an unknown dtype."""
    names = checkpoint.names()
    top = architectures.top_tensors(spec, names, checkpoint.layout)
    wanted = stored_shapes(plan)
    missing = [source for source in wanted if source not in names]
    if missing:
        hint = ""
        if missing == [top["head"]]:
            hint = "; tie_word_embeddings is false, so the output head needs a matrix of its own"
        raise WeightError(f"weights: missing tensors: {labels(missing)}{hint}")
    left_over = sorted(names - wanted.keys())
    if spec.tied_head and top["head"] in left_over:
        left_over.remove(top["head"])
    family = architectures.names_of(spec, checkpoint.layout)
    left_over = [
        name
        for name in left_over
        if not family.is_ignored(name, spec.num_layers) and prod(checkpoint.describe(name)[1]) > 0
    ]
    if left_over:
        raise WeightError(
            f"weights: {spec.architecture} has no place for these tensors: {labels(left_over)}"
        )
    longer = tensors_with_more_rows(plan)
    for source, expected in wanted.items():
        found_dtype, found = checkpoint.describe(source)
        where = f"{checkpoint.file_of(source)}: tensor {label(source)}"
        if source in longer and found[1:] == expected[1:] and found[0] >= expected[0]:
            found = expected
        if found != expected:
            raise WeightError(f"{where} has shape {found}, expected {expected} by the config")
        if found_dtype not in STORAGE:
            raise WeightError(f"{where} {unsupported(found_dtype)}")


@dataclass(frozen=True)
class Source:
    """The parts of a model, checked except for the bytes of its tensors, and how to pack them."""

    files: ModelFiles
    spec: DecoderSpec
    plan: list[PlannedTensor]
    checkpoint: Checkpoint
    dtypes: WeightDtypes
    kv: KvDtypes
    threads: int
    progress: Progress | None
    device: str

    def loaded(self, core: _core.Model) -> LoadedModel:
        """The model, with its weights in the core."""
        return LoadedModel(
            core=core,
            spec=self.spec,
            dtypes=self.dtypes,
            kv=self.kv,
            files=self.files,
            generation_config=self.checkpoint.generation_config,
            config=with_text_ids(self.checkpoint.config),
            metadata=self.checkpoint.metadata,
        )


def pack(source: Source, *, finite: bool = False) -> _core.Model:
    """Pack the model's own tensors. WeightError as for ``load_model``, and with ``finite`` for
    values that are NaN or infinite. Loading alone leaves them to the logits, where they are a
    NumericsError, because not every dtype is read value by value."""
    from onward import _core

    plan, checkpoint, progress = source.plan, source.checkpoint, source.progress
    builder = _core.ModelBuilder(
        core_spec(source.spec), source.dtypes.cache, source.threads, source.device
    )
    # A tensor of several weights is counted and checked once.
    left = {name: stored_bytes(checkpoint, name) for name in stored_shapes(plan)}
    total, done = sum(left.values()), 0
    for planned in plan:
        if finite:
            for name in planned.sources:
                if name in left:
                    check_finite(checkpoint, name)
        parts = [read_part(checkpoint, part) for part in planned.parts]
        dtype = source.dtypes.matrices.get(planned.name, "f32")
        try:
            builder.add(
                planned.name,
                [(part.buffer, part.dtype, part.shape, part.row_order) for part in parts],
                dtype=dtype,
                mapped=all(part.mapped for part in parts),
            )
        except WeightError as failure:
            raise WeightError(_range_failure(str(failure), planned, checkpoint)) from None
        del parts
        for name in planned.sources:
            done += left.pop(name, 0)
            checkpoint.release(name)
        if progress is not None:
            progress(done, total)
    checkpoint.check_unchanged()
    return builder.finish()


def _range_failure(text: str, planned: PlannedTensor, checkpoint: Checkpoint) -> str:
    """The error of the core about the values of a weight, with the name of the tensor in the
    file."""
    found = re.fullmatch(r"weights: '.*?' (?:part (\d+) )?(has (?:no )?values? .* for (\w+))", text)
    if found is None:
        return text
    source = planned.parts[int(found[1] or 0)].tensors[0].tensor
    dtypes = "dtype='bf16' or dtype='f32'"
    return (
        f"{checkpoint.file_of(source)}: tensor {label(source)} {found[2]}; load the model with "
        + (dtypes if planned.name not in ("embed", "head") else f"{dtypes}, or head_dtype likewise")
    )


def core_spec(spec: DecoderSpec) -> _core.DecoderSpec:
    """The spec as the core takes it. InvalidArgument for a field with a wrong value."""
    from onward import _core

    return _core.DecoderSpec(to_fields(spec))
