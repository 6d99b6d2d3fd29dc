"""Ministral 3: Llama whose queries grow with their position."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, window_everywhere
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_POSITIONS, rope_section
from onward.spec import AttentionSpec, DecoderSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """A window, where the config has one, is of all layers."""
    return decoder_spec(
        config,
        "ministral3",
        default_context=262144,
        default_head_dim=128,
        default_theta=1e6,
        default_eps=1e-5,
        windows=window_everywhere(config),
        attention=AttentionSpec(**temperature(config)),
    )


def temperature(config: ConfigReader) -> dict[str, Any]:
    """Queries are multiplied by 1 + beta * log(1 + floor(position / original context))."""
    section = rope_section(config)
    if section is None:
        raise config.wrong("rope_parameters", "an object with llama_4_scaling_beta")
    length = section.integer("original_max_position_embeddings", 1, MAX_POSITIONS)
    beta = section.number("llama_4_scaling_beta", 0, 1e6)
    return {"temperature_beta": beta, "temperature_length": float(length)}
