"""DecoderSpec: what differs between decoder families, as data.

An architecture file (``onward/load/architectures/<model_type>.py``) writes one from a config; the
C++ core reads it. csrc/model/decoder_spec.h lists the same fields with their ranges. A test
compares names, types and defaults.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

_T = TypeVar("_T")
_ADDED = "added"


def _added(default: _T) -> _T:
    """A field that onward 0.1.0 does not have. Files hold it only where it differs from its
    default, so that packs, fingerprints and packed weights of models that do not need it stay as
    they are."""
    return dataclasses.field(default=default, metadata={_ADDED: True})


@dataclass(frozen=True)
class RopeSpec:
    """Rotary position embedding (Su et al. 2021), half-split pairs over the whole head.

    ``inv_freq`` has ``head_dim // 2`` angles per position step, already scaled (linear, llama3,
    yarn); ``attention_factor`` multiplies cos and sin (yarn). ``dynamic_factor`` > 0 turns on
    dynamic NTK scaling: position ``p >= dynamic_original_context`` uses the frequencies of a
    sequence of length ``p + 1``, with base ``theta * ((factor * length / original) - (factor - 1))
    ** (head_dim / (head_dim - 2))``. Each position's frequencies depend on that position alone, so
    a cached key never has to be rotated again.
    """

    inv_freq: tuple[float, ...]
    attention_factor: float = 1.0
    theta: float = 10000.0
    dynamic_factor: float = 0.0
    dynamic_original_context: int = 0


@dataclass(frozen=True)
class DecoderSpec:
    """The shape and the choices of one pre-norm decoder with RMSNorm, RoPE, GQA and SwiGLU.

    A tuple has one value for each layer; an empty one stands for its default in all layers.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    max_context: int
    """Tokens of prompt and output together that the model's positions allow."""
    rope: RopeSpec
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    """RMSNorm over each head of q and k before the rotation (Qwen 3)."""
    tied_head: bool = False
    """The output head is the embedding matrix."""
    windows: tuple[int, ...] = ()
    """Keys that a query sees, its own included; 0, the default, means all."""
    layer_ropes: tuple[int, ...] = _added(())
    """The rotation of q and k: 0, the default, is that of ``rope``, -1 is none (SmolLM3)."""


def to_fields(struct: Any) -> dict[str, Any]:
    """The fields of a spec or a RopeSpec as a JSON object has them, without added fields at their
    default."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(struct):
        value = getattr(struct, field.name)
        if _ADDED in field.metadata and value == field.default:
            continue
        fields[field.name] = to_fields(value) if dataclasses.is_dataclass(value) else value
    return fields


def from_fields(fields: Mapping[str, Any]) -> DecoderSpec:
    """The spec of an object that ``to_fields`` gave and the core has checked."""
    return cast(DecoderSpec, _struct(DecoderSpec, fields))


def _struct(kind: type, fields: Mapping[str, Any]) -> object:
    types = typing.get_type_hints(kind)
    values = dict(fields)
    for name, value in fields.items():
        if isinstance(value, dict):
            values[name] = _struct(types[name], value)
        elif isinstance(value, list):
            values[name] = tuple(value)
    return kind(**values)


def one_layer(spec: DecoderSpec, layer: int, **changes: Any) -> DecoderSpec:
    """The spec of a decoder that has this layer alone; ``changes`` replace other fields."""
    by_layer = {
        field.name: getattr(spec, field.name)[layer : layer + 1]
        for field in dataclasses.fields(spec)
        if isinstance(getattr(spec, field.name), tuple)
    }
    return dataclasses.replace(spec, num_layers=1, **{**by_layer, **changes})
