"""From a config to a DecoderSpec and a plan of tensors.

The ``model_type`` of a config names the file of its family in ``families``. Only that file is
imported. model_types.py lists the types that share a file.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, cast

from onward.load.architectures import families as _families
from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.gguf.config import GgufTensors, gguf_config, gguf_model_type
from onward.load.architectures.gguf.family import GgufFamily
from onward.load.architectures.model_types import FAMILIES
from onward.load.architectures.multimodal import is_multimodal, text_reader
from onward.load.architectures.names import Layout, Names
from onward.load.architectures.parts import PlannedTensor
from onward.load.architectures.planned_parts import Describe, planned
from onward.spec import DecoderSpec

__all__ = [
    "GgufTensors",
    "PlannedTensor",
    "families",
    "gguf_as_config",
    "gguf_family",
    "is_multimodal",
    "names_of",
    "read_spec",
    "tensor_plan",
    "top_tensors",
]


class _Family(Protocol):
    """A file of a family."""

    TENSORS: Names | Callable[[DecoderSpec], Names]
    """A function, where the names depend on the spec."""

    GGUF: GgufFamily
    """Of the families that model_types.GGUF_ARCHITECTURES has."""

    def read_spec(self, config: ConfigReader) -> DecoderSpec: ...


def families() -> list[str]:
    """The supported values of ``model_type``, without multimodal ones."""
    files = {module.name for module in pkgutil.iter_modules(_families.__path__)}
    hyphenated = {name.replace("-", "_") for name in FAMILIES if "-" in name}
    return sorted((files - hyphenated) | FAMILIES.keys())


def read_spec(config: Mapping[str, object], where: str = "config.json") -> DecoderSpec:
    """Describe the decoder of a config, of a multimodal one its text model; ``where`` opens the
    message of every error."""
    reader = ConfigReader(config, where)
    if is_multimodal(config):
        reader = text_reader(reader)
    return _family(reader.text("model_type", families())).read_spec(reader)


def gguf_as_config(
    metadata: Mapping[str, object], tensors: GgufTensors, where: str
) -> dict[str, Any]:
    """The metadata of a GGUF file as config.json would say it; ``where`` opens the message of every
    error.

    Raises:
        ConfigError: metadata that cannot be used.
    """
    model_type = gguf_model_type(metadata, where)
    return gguf_config(gguf_family(model_type), model_type, metadata, tensors, where)


def gguf_family(model_type: str) -> GgufFamily:
    """What the GGUF files of a type say; of a type that GGUF_ARCHITECTURES has."""
    return _family(model_type).GGUF


def names_of(spec: DecoderSpec, layout: Layout = "hugging_face") -> Names:
    """The names that the files of a model have for its tensors."""
    family = _family(spec.architecture)
    if layout == "gguf":
        return family.GGUF.names
    tensors = family.TENSORS
    return tensors(spec) if callable(tensors) else tensors


def tensor_plan(
    spec: DecoderSpec,
    stored: Collection[str] = (),
    describe: Describe | None = None,
    layout: Layout = "hugging_face",
) -> list[PlannedTensor]:
    """The weights of the decoder and the parts of tensors of a file that they are made of.

    ``stored`` are the tensors of the file. They decide where a family has several spellings of its
    names; otherwise the first spelling is used. ``describe`` gives their dtypes and shapes, which
    decide where a family has several layouts under one name.
    """
    return list(planned(spec, names_of(spec, layout), stored, describe))


def top_tensors(
    spec: DecoderSpec, stored: Collection[str], layout: Layout = "hugging_face"
) -> dict[str, str]:
    """The tensors of the weights "embed" and "head" (also where it is tied)."""
    found: dict[str, str] = {}
    untied = dataclasses.replace(spec, tied_head=False)
    for weight in planned(untied, names_of(spec, layout), stored):
        if weight.name in ("embed", "head"):
            found[weight.name] = weight.sources[0]
        if len(found) == 2:
            break
    return found


def _family(model_type: str) -> _Family:
    module = importlib.import_module(f"{_families.__name__}.{FAMILIES.get(model_type, model_type)}")
    return cast(_Family, module)
