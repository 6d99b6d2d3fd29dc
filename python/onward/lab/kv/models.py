"""Reads the facts of a model that the calculator needs, without its weights.

A model is the name of a published shape, a folder, a config.json alone, a GGUF file, or a pack.
Of weight files only the headers are read, for the dtype of each tensor.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onward.errors import ModelNotFound
from onward.files.json_file import read_json_object
from onward.lab.counts.costs import packed_bytes
from onward.lab.counts.shapes import SHAPES
from onward.load import architectures
from onward.load.hub import ModelFiles, find_model
from onward.load.hub.names import parse
from onward.load.loading import check_dtypes, check_headers, load_model, plan_of
from onward.load.weights import open_checkpoint
from onward.load.weights.dtypes import WeightDtypes, choose_dtypes
from onward.message_text import label
from onward.spec import DecoderSpec

# dtype in a config -> dtype in a weight file.
_STORED = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_STORED_UNSAID = "BF16"


@dataclass(frozen=True)
class Subject:
    """A model whose cache is calculated."""

    name: str
    spec: DecoderSpec
    weights: WeightDtypes
    weight_bytes: int
    """Bytes of the weights in memory, packed in ``weights``."""
    files: ModelFiles | None
    """The files of the weights; None for a shape or a config alone."""
    config: Mapping[str, object]
    stored: str
    """The assumed dtype of stored weights for a model without files: F32, F16 or BF16."""


def read_subject(model: str | None, dtype: str) -> Subject:
    """The model of that name, its weights in ``dtype`` as ``LLM`` would pack them.

    None is the default model. A path that exists comes before a shape of the same name. Shapes, and
    configs that do not say otherwise, are taken to be stored in bf16.
    """
    check_dtypes(dtype, None)
    if model is None:
        return _with_weights(find_model(None), dtype)
    path = Path(os.path.expanduser(model))
    if os.path.isdir(path) and not _has_weights(path):
        path = path / "config.json"
    if path.suffix == ".json" and os.path.exists(path):
        name = path.resolve().parent.name if path.name == "config.json" else path.stem
        return _without_weights(name, read_json_object(path, path.name), path.name, dtype)
    if os.path.exists(os.path.expanduser(model)):
        return _with_weights(find_model(model), dtype)
    if model.lower() in SHAPES:
        return _without_weights(model.lower(), SHAPES[model.lower()], model.lower(), dtype)
    if parse(model) is not None:
        return _with_weights(find_model(model), dtype)
    raise ModelNotFound(
        f"{label(model)}: no such file or folder, expected a model folder, a config.json, a .gguf "
        f"file, a model of the hub or one of {', '.join(SHAPES)}"
    )


def _has_weights(folder: Path) -> bool:
    """True also if it is unknown: opening the folder then raises the right error."""
    try:
        return any(name.endswith((".safetensors", ".gguf")) for name in os.listdir(folder))
    except OSError:
        return True


def _with_weights(files: ModelFiles, dtype: str) -> Subject:
    if files.kind == "pack":
        loaded = load_model(files, dtype, threads=1)
        return Subject(
            name=loaded.files.name,
            spec=loaded.spec,
            weights=loaded.dtypes,
            weight_bytes=loaded.core.weight_bytes,
            files=files,
            config=loaded.config,
            stored=_STORED_UNSAID,
        )
    checkpoint = open_checkpoint(files)
    try:
        spec = architectures.read_spec(checkpoint.config, checkpoint.where)
        plan = plan_of(spec, checkpoint)
        check_headers(plan, checkpoint, spec)
        dtypes = choose_dtypes(plan, lambda source: checkpoint.describe(source)[0], dtype)
    finally:
        checkpoint.close()
    return Subject(
        name=files.name,
        spec=spec,
        weights=dtypes,
        weight_bytes=sum(packed_bytes(spec, dtypes).values()),
        files=files,
        config=checkpoint.config,
        stored=_STORED_UNSAID,
    )


def _without_weights(name: str, config: Mapping[str, object], where: str, dtype: str) -> Subject:
    spec = architectures.read_spec(config, where)
    said = config.get("dtype") or config.get("torch_dtype")
    stored = _STORED.get(said, _STORED_UNSAID) if isinstance(said, str) else _STORED_UNSAID
    dtypes = choose_dtypes(architectures.tensor_plan(spec), lambda _: stored, dtype)
    return Subject(
        name=name,
        spec=spec,
        weights=dtypes,
        weight_bytes=sum(packed_bytes(spec, dtypes).values()),
        files=None,
        config=config,
        stored=stored,
    )
