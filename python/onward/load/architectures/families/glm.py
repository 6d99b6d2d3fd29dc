"""GLM 4 of 2024 (9B): partial rotation of neighbours, and gate and up in one matrix."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.names import fused, names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(rotation="pairs", gate_up=fused("mlp.gate_up_proj", "gate", "up"))


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` is of q, k and v."""
    return glm_spec(config, "glm")


def glm_spec(config: ConfigReader, family: str, **fields: Any) -> DecoderSpec:
    """The fields that glm and glm4 have in common."""
    return decoder_spec(
        config,
        family,
        default_context=131072,
        default_head_dim=128,
        default_kv_heads=2,
        default_eps=1.5625e-7,
        default_rotated=0.5,
        qkv_bias=config.flag("attention_bias", True),
        mlp=MlpSpec(activation(config, "silu")),
        **fields,
    )
