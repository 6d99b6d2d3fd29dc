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
from onward.message_text import label, labels
from onward.spec import DecoderSpec
from onward.weights import Checkpoint, open_checkpoint
from onward.weights.checkpoint import STORAGE

if TYPE_CHECKING:
    from onward import _core

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""

DTYPES = ("auto", "f32", "bf16")
_COMPARED_BYTES = 16 << 20
# Constants that old checkpoints carry beside the weights; they are computed here.
_BUFFERS = (".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached")


@dataclass
class LoadedModel:
    """A model in the core, and what its files say besides the weights."""

    core: _core.Model
    spec: DecoderSpec
    dtype: str
    files: ModelFiles
    generation_config: dict[str, Any]
    config: dict[str, Any]
    metadata: Mapping[str, object]


def load_model(
    files: ModelFiles, dtype: str, threads: int, progress: Progress | None = None
) -> LoadedModel:
    """Load a model with its weights as ``dtype``: "f32", "bf16" or "auto".

    "auto" keeps what the file has. It is bf16 where every matrix is stored so, or where the file
    is quantised (stored in blocks), whose own error is larger than bf16's; else f32, which holds
    F16 and F32 exactly.
    """
    if dtype not in DTYPES:
        raise InvalidArgument(f"dtype: {dtype!r} given, expected one of {', '.join(DTYPES)}")
    checkpoint = open_checkpoint(files)
    try:
        spec = architectures.read_spec(checkpoint.config, checkpoint.where)
        plan = architectures.tensor_plan(spec)
        check_tensors(plan, checkpoint, spec)
        chosen = choose_dtype(plan, checkpoint) if dtype == "auto" else dtype
        core = _pack(spec, plan, checkpoint, chosen, threads, progress)
    finally:
        checkpoint.close()
    return LoadedModel(
        core=core,
        spec=spec,
        dtype=chosen,
        files=files,
        generation_config=checkpoint.generation_config,
        config=checkpoint.config,
        metadata=checkpoint.metadata,
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


def choose_dtype(plan: list[PlannedTensor], checkpoint: Checkpoint) -> str:
    """What "auto" stands for; see ``load_model``."""
    stored = {
        checkpoint.describe(source)[0]
        for planned in plan
        for source, shape in zip(planned.sources, planned.shapes, strict=True)
        if len(shape) == 2
    }
    quantised = any(STORAGE[dtype][0] > 1 for dtype in stored)
    return "bf16" if quantised or stored == {"BF16"} else "f32"


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
    dtype: str,
    threads: int,
    progress: Progress | None,
) -> _core.Model:
    from onward import _core

    builder = _core.ModelBuilder(core_spec(spec), dtype, threads)
    total = sum(_stored_bytes(checkpoint, name) for planned in plan for name in planned.sources)
    done = 0
    for planned in plan:
        tensors = [checkpoint.tensor(source) for source in planned.sources]
        builder.add(planned.name, [(t.buffer, t.dtype, t.shape, t.row_order) for t in tensors])
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
