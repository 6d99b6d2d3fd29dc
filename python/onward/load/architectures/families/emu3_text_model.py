"""Emu3: its text model is Llama."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Images are tokens of the vocabulary. The model that makes tokens of images is not read."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "emu3_text_model",
        default_context=9216,
        default_kv_heads=8,
        default_eps=1e-5,
        default_theta=1e6,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
    )
