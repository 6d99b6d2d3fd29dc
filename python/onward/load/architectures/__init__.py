"""The decoder families, one file each, found by the ``model_type`` of a config.

A family's file ``<model_type>.py`` has two functions: ``read_spec(config)`` turns a config into a
DecoderSpec, and ``tensor_plan(spec)`` says which tensors of a Hugging Face checkpoint make up
each weight of the engine. Adding a family is adding that file. Only the file asked for is
imported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.parts import PlannedTensor
from onward.spec import DecoderSpec

__all__ = ["PlannedTensor", "families", "read_spec", "tensor_plan"]

_NOT_FAMILIES = {"config_reader", "decoder_plan", "parts", "rope", "row_orders"}


def families() -> list[str]:
    """The supported values of ``model_type``."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in names if name not in _NOT_FAMILIES)


def read_spec(config: Mapping[str, object], where: str = "config.json") -> DecoderSpec:
    """Describe the decoder of a config; ``where`` opens the message of every error."""
    reader = ConfigReader(config, where)
    model_type = reader.text("model_type", families())
    spec: DecoderSpec = _family(model_type).read_spec(reader)
    return spec


def tensor_plan(spec: DecoderSpec) -> list[PlannedTensor]:
    """The weights of the decoder and the Hugging Face tensors they are made of."""
    plan: list[PlannedTensor] = _family(spec.architecture).tensor_plan(spec)
    return plan


def _family(model_type: str) -> ModuleType:
    return importlib.import_module(f"{__name__}.{model_type}")
