"""Qwen 3 VL: its text model is Qwen 3."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The three positions of a token are equal in text, so their sections change nothing."""
    bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "qwen3_vl_text",
        default_context=128000,
        default_kv_heads=32,
        default_head_dim=128,
        default_theta=500000.0,
        default_tied=True,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
    )
