"""Granite with sink logits, windows in three of four layers, and a base of rotation by layer."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import head_size, layer_types, num_layers
from onward.load.architectures.families.granite import granite_spec
from onward.load.architectures.layer_kinds import FULL, SLIDING, windows_of
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_POSITIONS, read_rope, rope_section
from onward.spec import DecoderSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``mlp_bias`` covers all matrices of the MLP."""
    return granite_spec(
        config,
        "granite_swa",
        default_context=8192,
        default_kv_heads=4,
        default_eps=1e-5,
        default_tied=True,
        mlp_bias=config.flag("mlp_bias", False),
        **windows_and_ropes(config, 8192),
    )


def windows_and_ropes(config: ConfigReader, default_context: int) -> dict[str, Any]:
    """The fields of the spec that are special in these families."""
    kinds = layer_types(config)
    if kinds is None:
        kinds = [SLIDING if layer % 4 else FULL for layer in range(num_layers(config))]
    return {
        "sink_logits": True,
        "windows": windows_of(config, kinds, 128),
        **_ropes_by_theta(config, default_context),
    }


def _ropes_by_theta(config: ConfigReader, default_context: int) -> dict[str, Any]:
    """A table for each base of rotation in ``layer_rope_theta``, where 0 means no rotation."""
    layers = num_layers(config)
    if "layer_rope_theta" not in config:
        config.ignore("layer_rope_theta")
        return {}
    thetas = config.numbers("layer_rope_theta", 0, 1e30, layers)
    used = sorted({theta for theta in thetas if theta})
    if not used:
        return {"layer_ropes": (-1,) * layers}
    context = config.integer("max_position_embeddings", 1, MAX_POSITIONS, default_context)
    ropes = [read_rope(_with_theta(config, theta), head_size(config), context) for theta in used]
    return {
        "rope": ropes[0].spec,
        "other_ropes": tuple(rope.spec for rope in ropes[1:]),
        "layer_ropes": tuple(used.index(theta) if theta else -1 for theta in thetas),
        "max_context": min(rope.max_context for rope in ropes),
    }


def _with_theta(config: ConfigReader, theta: float) -> ConfigReader:
    """The fields of rotation with another base."""
    section = rope_section(config)
    values = {} if section is None else dict(section.values)
    return ConfigReader({"rope_parameters": {**values, "rope_theta": theta}}, config.where)
