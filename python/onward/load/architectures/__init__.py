"""From a config to a DecoderSpec and a plan of tensors.

The ``model_type`` of a config names the file of its family in ``families``. Only that file is
imported. model_types.py lists the types that share a file.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, cast

from onward.load.architectures import families as _families
from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.model_types import FAMILIES
from onward.load.architectures.multimodal import is_multimodal, text_reader
from onward.load.architectures.names import Names
from onward.load.architectures.parts import PlannedTensor
from onward.load.architectures.planned_parts import Describe, planned
from onward.spec import DecoderSpec

__all__ = [
    "PlannedTensor",
    "families",
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

    def read_spec(self, config: ConfigReader) -> DecoderSpec: ...


def families() -> list[str]:
    """The supported values of ``model_type``, without multimodal ones."""
    files = {module.name for module in pkgutil.iter_modules(_families.__path__)}
    return sorted(files | FAMILIES.keys())


def read_spec(config: Mapping[str, object], where: str = "config.json") -> DecoderSpec:
    """Describe the decoder of a config, of a multimodal one its text model; ``where`` opens the
    message of every error."""
    reader = ConfigReader(config, where)
    if is_multimodal(config):
        reader = text_reader(reader)
    return _family(reader.text("model_type", families())).read_spec(reader)


def names_of(spec: DecoderSpec) -> Names:
    """The names that the files of a model have for its tensors."""
    tensors = _family(spec.architecture).TENSORS
    return tensors if isinstance(tensors, Names) else tensors(spec)


def tensor_plan(
    spec: DecoderSpec, stored: Collection[str] = (), describe: Describe | None = None
) -> list[PlannedTensor]:
    """The weights of the decoder and the parts of Hugging Face tensors that they are made of.

    ``stored`` are the tensors of a file. They decide where a family has several spellings of its
    names; otherwise the first spelling is used. ``describe`` gives their dtypes and shapes, which
    decide where a family has several layouts under one name.
    """
    return list(planned(spec, names_of(spec), stored, describe))


def top_tensors(spec: DecoderSpec, stored: Collection[str]) -> dict[str, str]:
    """The tensors of the weights "embed" and "head" (also where it is tied)."""
    found: dict[str, str] = {}
    for weight in planned(dataclasses.replace(spec, tied_head=False), names_of(spec), stored):
        if weight.name in ("embed", "head"):
            found[weight.name] = weight.sources[0]
        if len(found) == 2:
            break
    return found


def _family(model_type: str) -> _Family:
    module = importlib.import_module(f"{_families.__name__}.{FAMILIES.get(model_type, model_type)}")
    return cast(_Family, module)
