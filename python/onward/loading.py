"""From a model's files to a model in the core: read the spec, check every tensor, pack.

Everything that can be wrong with the files is found before the first weight is packed. Knows
neither file formats nor families; it moves tensors from one to the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from onward import architectures
from onward.architectures import PlannedTensor
from onward.errors import InvalidArgument, WeightError
from onward.hub import ModelFiles
from onward.message_text import label, labels, shown
from onward.spec import DecoderSpec
from onward.weights import Checkpoint, open_checkpoint
from onward.weights.checkpoint import STORAGE
from onward.weights.dtypes import DTYPES, HEAD_DTYPES, WeightDtypes, choose_dtypes

if TYPE_CHECKING:
    from onward import _core

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""

_COMPARED_BYTES = 16 << 20
# Constants that old checkpoints carry beside the weights; they are computed here.
_BUFFERS = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")


@dataclass
class LoadedModel:
    """A model in the core, and what its files say besides the weights."""

    core: _core.Model
    spec: DecoderSpec
    dtypes: WeightDtypes
    files: ModelFiles
    generation_config: dict[str, Any]
    config: dict[str, Any]
    metadata: Mapping[str, object]


def load_model(
    files: ModelFiles,
    dtype: str,
    threads: int,
    progress: Progress | None = None,
    head_dtype: str | None = None,
) -> LoadedModel:
    """Load a model with its weights in the dtypes that ``choose_dtypes`` gives."""
    check_dtypes(dtype, head_dtype)
    checkpoint = open_checkpoint(files)
    try:
        spec = architectures.read_spec(checkpoint.config, checkpoint.where)
        plan = architectures.tensor_plan(spec)
        check_tensors(plan, checkpoint, spec)
        dtypes = choose_dtypes(
            plan, lambda source: checkpoint.describe(source)[0], dtype, head_dtype
        )
        core = _pack(spec, plan, checkpoint, dtypes, threads, progress)
    finally:
        checkpoint.close()
    return LoadedModel(
        core=core,
        spec=spec,
        dtypes=dtypes,
        files=files,
        generation_config=checkpoint.generation_config,
        config=checkpoint.config,
        metadata=checkpoint.metadata,
    )


def check_dtypes(dtype: object, head_dtype: object) -> None:
    """InvalidArgument for what ``choose_dtypes`` does not take."""
    if dtype not in DTYPES:
        raise InvalidArgument(f"dtype: is {shown(dtype)}, expected one of {', '.join(DTYPES)}")
    if head_dtype is not None and head_dtype not in HEAD_DTYPES:
        raise InvalidArgument(
            f"head_dtype: is {shown(head_dtype)}, expected None or one of {', '.join(HEAD_DTYPES)}"
        )


def check_tensors(plan: list[PlannedTensor], checkpoint: Checkpoint, spec: DecoderSpec) -> None:
    """Hold the spec against the file: no tensor missing, left over, misshapen or of odd dtype."""
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
        _check_tied_head(checkpoint)
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
                raise WeightError(
                    f"{where} has unsupported dtype {found_dtype}, "
                    f"expected one of {', '.join(STORAGE)}"
                )


def _check_tied_head(checkpoint: Checkpoint) -> None:
    """A head beside tied embeddings must be the embedding: one of the two would be dropped."""
    head, embed = "lm_head.weight", "model.embed_tokens.weight"
    same = checkpoint.describe(head) == checkpoint.describe(embed)
    if same:
        a = np.frombuffer(checkpoint.tensor(head).buffer, np.uint8)
        b = np.frombuffer(checkpoint.tensor(embed).buffer, np.uint8)
        step = _COMPARED_BYTES
        same = all(
            np.array_equal(a[begin : begin + step], b[begin : begin + step])
            for begin in range(0, len(a), step)
        )
        del a, b
        checkpoint.release(head)
        checkpoint.release(embed)
    if not same:
        raise WeightError(
            f"{checkpoint.file_of(head)}: tensor {head} differs from {embed}, though the config "
            "ties them; set tie_word_embeddings to false to use both"
        )


def _pack(
    spec: DecoderSpec,
    plan: list[PlannedTensor],
    checkpoint: Checkpoint,
    dtypes: WeightDtypes,
    threads: int,
    progress: Progress | None,
) -> _core.Model:
    from onward import _core

    builder = _core.ModelBuilder(core_spec(spec), dtypes.cache, threads)
    total = sum(_stored_bytes(checkpoint, name) for planned in plan for name in planned.sources)
    done = 0
    for planned in plan:
        tensors = [checkpoint.tensor(source) for source in planned.sources]
        builder.add(
            planned.name,
            [(t.buffer, t.dtype, t.shape, t.row_order) for t in tensors],
            dtype=dtypes.matrices.get(planned.name, "f32"),
            mapped=True,
        )
        for source, tensor in zip(planned.sources, tensors, strict=True):
            done += tensor.buffer.nbytes
            checkpoint.release(source)
        if progress is not None:
            progress(done, total)
    return builder.finish()


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
