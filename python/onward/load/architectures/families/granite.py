"""Granite 3 (dense): Llama with multipliers for the embedding, attention, residuals and logits."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec

TENSORS = names()
_MULTIPLIER = (1e-6, 1e6)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``mlp_bias`` covers all matrices of the MLP."""
    return granite_spec(config, "granite", mlp_bias=config.flag("mlp_bias", False))


def granite_spec(config: ConfigReader, architecture: str, **fields: Any) -> DecoderSpec:
    """``logits_scaling`` divides the logits."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        architecture,
        default_context=2048,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        attention=AttentionSpec(
            scale=config.number("attention_multiplier", *_MULTIPLIER, default=1.0)
        ),
        embedding_scale=config.number("embedding_multiplier", *_MULTIPLIER, default=1.0),
        residual_scale=config.number("residual_multiplier", *_MULTIPLIER, default=1.0),
        logit_scale=1 / config.number("logits_scaling", *_MULTIPLIER, default=1.0),
        **fields,
    )
