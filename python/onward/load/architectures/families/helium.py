"""Helium 1: Llama with rotation of neighbours."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(rotation="pairs")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` is of q, k and v."""
    return decoder_spec(
        config,
        "helium",
        default_context=4096,
        default_head_dim=128,
        default_kv_heads=20,
        default_theta=1e5,
        default_eps=1e-8,
        qkv_bias=config.flag("attention_bias", False),
        mlp_bias=config.flag("mlp_bias", False),
        mlp=MlpSpec(activation(config, "silu")),
    )
