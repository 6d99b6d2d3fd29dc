"""From a model's files to a model in the core: read the spec, check every tensor, pack.

Everything that can be wrong with the files is found before the first weight is packed. Knows
neither file formats nor families; it moves tensors from one to the other. Where a folder of packed
weights is given, it decides between that and the model's own tensors.
"""

from __future__ import annotations

import dataclasses
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onward.errors import ArgumentTypeError, InvalidArgument, WeightError
from onward.load import architectures
from onward.load import pack_contents as contents
from onward.load.architectures import PlannedTensor
from onward.load.hub import ModelFiles
from onward.load.weights import Checkpoint, open_checkpoint, packed
from onward.load.weights.checkpoint import STORAGE, float_values, unsupported
from onward.load.weights.dtypes import DTYPES, HEAD_DTYPES, WeightDtypes, choose_dtypes, head_name
from onward.machine.caller import warn_caller
from onward.message_text import label, labels, nearest, shown
from onward.options.kv_dtypes import KvDtypes, parse_kv_dtype
from onward.spec import DecoderSpec

if TYPE_CHECKING:
    from onward import _core

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""

_COMPARED_BYTES = 16 << 20
_NAME_LENGTH = 64
"""More than any device's name has."""
_HEAD, _EMBED = "lm_head.weight", "model.embed_tokens.weight"
# Constants that old checkpoints carry beside the weights; they are computed here.
_BUFFERS = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")


@dataclass
class LoadedModel:
    """A model in the core, and what its files say besides the weights."""

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
        """Of the weights, those that stay in their file."""
        return self.core.weight_bytes if self.files.kind == "pack" else 0


def load_model(
    files: ModelFiles,
    dtype: str,
    threads: int,
    progress: Progress | None = None,
    head_dtype: str | None = None,
    packed_cache: str | os.PathLike[str] | None = None,
    kv_dtype: object = "auto",
    device: str = "cpu",
) -> LoadedModel:
    """Load a model with its weights in the dtypes that ``choose_dtypes`` gives, in the memory of
    ``device``.

    ``kv_dtype`` (onward.options.kv_dtypes) may ask for another float dtype of the cache.

    With ``packed_cache``, a folder, the packed weights are taken from there, or else are written
    there, in which case ``progress`` goes from 0 to all a second time. What is wrong with that
    folder's file is a warning.

    Raises:
        InvalidArgument: a dtype that there is not, a ``packed_cache`` that cannot be a folder.
        ArgumentTypeError: a ``packed_cache`` that is no path.
        ConfigError: a config, or a GGUF file's metadata, that cannot be used.
        WeightError: tensors that are missing, left over, misshapen, damaged, of an unknown dtype or
            of values that the chosen dtype cannot hold; a file that was written meanwhile.
        DeviceError: a device that cannot be used.
        PackError, IoError: a pack that is damaged, of another layout, or cannot be read.
    """
    check_dtypes(dtype, head_dtype)
    folder = packed.check_folder(packed_cache)
    if files.kind == "pack":
        if folder is not None:
            raise InvalidArgument(
                f"packed_cache: is given for {label(files.path.name)}, which is packed already"
            )
        return _open_pack(files, dtype, head_dtype, threads, kv_dtype, device)
    checkpoint = open_checkpoint(files)
    try:
        spec = read_spec(checkpoint)
        plan = architectures.tensor_plan(spec)
        check_headers(plan, checkpoint, spec)
        dtypes = choose_dtypes(
            plan, lambda source: checkpoint.describe(source)[0], dtype, head_dtype
        )
        kv = parse_kv_dtype(kv_dtype, dtypes.cache)
        dtypes = dataclasses.replace(dtypes, cache=kv.exact)
        source = _Source(spec, plan, checkpoint, dtypes, threads, progress, device)
        core = _pack(source) if folder is None else _kept(folder, files.name, source)
    finally:
        checkpoint.close()
    return LoadedModel(
        core=core,
        spec=spec,
        dtypes=dtypes,
        kv=kv,
        files=files,
        generation_config=checkpoint.generation_config,
        config=checkpoint.config,
        metadata=checkpoint.metadata,
    )


def packed_layout(loaded: LoadedModel) -> tuple[str, int]:
    """The version of the core, and that of the bytes of a loaded model's weights."""
    from onward import _core

    return _core.__version__, loaded.core.packed_layout


def _open_pack(
    files: ModelFiles,
    dtype: str,
    head_dtype: str | None,
    threads: int,
    kv_dtype: object,
    device: str,
) -> LoadedModel:
    """The model of a pack, its weights where they lie in the file. What a pack is in cannot be
    chosen any more."""
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
    """The device's name in full ("cuda:0" of "cuda"). InvalidArgument for what is the name of
    none, DeviceError for one that cannot be used."""
    from onward import _core

    if not isinstance(device, str):
        raise ArgumentTypeError(f"device: is {shown(device)}, expected a name as text")
    if not device.isascii() or len(device) > _NAME_LENGTH:
        raise InvalidArgument(f"device: is {shown(device)}, expected a name")
    return _core.device_name(device)


def check_dtypes(dtype: object, head_dtype: object) -> None:
    """ArgumentTypeError or InvalidArgument for what ``choose_dtypes`` does not take."""
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
    """The spec of the config, with an output head of its own where the tensors have one.

    A config that ties the head to the embedding and a file that holds a head of other values
    contradict each other: as in transformers, both matrices are used, with a warning.
    """
    spec = architectures.read_spec(checkpoint.config, checkpoint.where)
    if not spec.tied_head or _head_is_embedding(checkpoint):
        return spec
    warn_caller(
        f"{checkpoint.file_of(_HEAD)}: tensor {_HEAD} differs from {_EMBED}, though the config "
        "ties them; both are used, as if tie_word_embeddings were false"
    )
    return dataclasses.replace(spec, tied_head=False)


def _head_is_embedding(checkpoint: Checkpoint) -> bool:
    """Whether there is no head beside the embedding, or one of equal values."""
    if not {_HEAD, _EMBED} <= checkpoint.names():
        return True
    head, embed = checkpoint.tensor(_HEAD), checkpoint.tensor(_EMBED)
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
        checkpoint.release(_HEAD)
        checkpoint.release(_EMBED)


def check_headers(plan: list[PlannedTensor], checkpoint: Checkpoint, spec: DecoderSpec) -> None:
    """Hold the spec against the file without reading a tensor: none is missing, left over,
    misshapen or of an unknown dtype."""
    names = checkpoint.names()
    wanted = {source for planned in plan for source in planned.sources}
    missing = [source for planned in plan for source in planned.sources if source not in names]
    if missing:
        hint = ""
        if missing == ["lm_head.weight"]:
            hint = "; tie_word_embeddings is false, so the output head needs a matrix of its own"
        raise WeightError(f"weights: missing tensors: {labels(missing)}{hint}")
    left_over = sorted(names - wanted)
    if spec.tied_head and "lm_head.weight" in left_over:
        left_over.remove("lm_head.weight")
    left_over = [name for name in left_over if not name.endswith(_BUFFERS)]
    if left_over:
        raise WeightError(
            f"weights: {spec.architecture} has no place for these tensors: {labels(left_over)}"
        )
    for planned in plan:
        for source, expected in zip(planned.sources, planned.shapes, strict=True):
            found_dtype, found = checkpoint.describe(source)
            where = f"{checkpoint.file_of(source)}: tensor {label(source)}"
            if found != expected:
                raise WeightError(f"{where} has shape {found}, expected {expected} by the config")
            if found_dtype not in STORAGE:
                raise WeightError(f"{where} {unsupported(found_dtype)}")


@dataclass(frozen=True)
class _Source:
    """What a model is made of, checked but for the tensors' bytes, and how."""

    spec: DecoderSpec
    plan: list[PlannedTensor]
    checkpoint: Checkpoint
    dtypes: WeightDtypes
    threads: int
    progress: Progress | None
    device: str

    def builder(self) -> _core.ModelBuilder:
        from onward import _core

        return _core.ModelBuilder(
            core_spec(self.spec), self.dtypes.cache, self.threads, self.device
        )

    def dtype_of(self, weight: str) -> str:
        return self.dtypes.matrices.get(weight, "f32")


def _kept(folder: Path, name: str, source: _Source) -> _core.Model:
    """The packed weights of the folder, where they are there and good; else packed and kept."""
    from onward import _core

    files = source.checkpoint.sources()
    path = folder / packed.file_name(name, source.dtypes, files)
    tensors = [tensor for planned in source.plan for tensor in planned.sources]
    stored = {tensor: source.checkpoint.describe(tensor)[0] for tensor in tensors}
    metadata = packed.identity(
        source.builder().packed_layout,
        _core.__version__,
        source.spec,
        source.dtypes,
        stored,
        files,
    )
    try:
        with packed.opened(path, metadata) as file:
            if file is not None:
                return _taken(file, source)
    except WeightError as failure:
        _warn(f"{failure}; packing the model's own tensors")
    core = _pack(source)
    try:
        packed.write(path, metadata, core.packed(), source.progress)
    except OSError as failure:
        _warn(f"{label(path.name)}: cannot write: {failure.strerror or failure}")
    return core


def _warn(text: str) -> None:
    warnings.warn(f"packed_cache: {text}", stacklevel=6)  # where the LLM is made


def _taken(file: packed.PackedFile, source: _Source) -> _core.Model:
    """The model of a file of packed weights; WeightError where they are not the spec's."""
    builder = source.builder()
    sizes = file.sizes()
    total, done = sum(sizes.values()), 0
    try:
        for name, size in sizes.items():
            builder.add_packed(name, file.view(name), source.dtype_of(name), mapped=True)
            file.release(name)
            done += size
            if source.progress is not None:
                source.progress(done, total)
        return builder.finish()
    except WeightError as failure:
        raise WeightError(f"{file.name}: {failure}") from None


def _pack(source: _Source) -> _core.Model:
    plan, checkpoint, progress = source.plan, source.checkpoint, source.progress
    builder = source.builder()
    total = sum(_stored_bytes(checkpoint, name) for planned in plan for name in planned.sources)
    done = 0
    for planned in plan:
        tensors = [checkpoint.tensor(name) for name in planned.sources]
        dtype = source.dtype_of(planned.name)
        try:
            builder.add(
                planned.name,
                [(t.buffer, t.dtype, t.shape, t.row_order) for t in tensors],
                dtype=dtype,
                mapped=True,
            )
        except WeightError as failure:
            raise WeightError(_range_failure(str(failure), planned, checkpoint)) from None
        for name, tensor in zip(planned.sources, tensors, strict=True):
            done += tensor.buffer.nbytes
            checkpoint.release(name)
        if progress is not None:
            progress(done, total)
    checkpoint.check_unchanged()
    return builder.finish()


def _range_failure(text: str, planned: PlannedTensor, checkpoint: Checkpoint) -> str:
    """The core's error about the values of a weight, with the tensor's name in the file."""
    found = re.fullmatch(r"weights: '.*?' (?:part (\d+) )?(has (?:no )?values? .* for (\w+))", text)
    if found is None:
        return text
    source = planned.sources[int(found[1] or 0)]
    dtypes = "dtype='bf16' or dtype='f32'"
    return (
        f"{checkpoint.file_of(source)}: tensor {label(source)} {found[2]}; load the model with "
        + (dtypes if planned.name not in ("embed", "head") else f"{dtypes}, or head_dtype likewise")
    )


def core_spec(spec: DecoderSpec) -> _core.DecoderSpec:
    """The spec as the core takes it, the rope's fields among the others."""
    from onward import _core

    fields = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    rope = fields.pop("rope")
    for field in dataclasses.fields(rope):
        fields[f"rope_{field.name}"] = getattr(rope, field.name)
    return _core.DecoderSpec(**fields)


def _stored_bytes(checkpoint: Checkpoint, name: str) -> int:
    return checkpoint.tensor(name).buffer.nbytes
