"""Jais 2: LayerNorm, a plain MLP with squared ReLU, and biases."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers the output projection too."""
    attention_bias = config.flag("attention_bias", True)
    return decoder_spec(
        config,
        "jais2",
        default_context=8192,
        default_eps=1e-5,
        eps_field="layer_norm_eps",
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", True),
        mlp=MlpSpec(activation(config, "relu2"), gated=False),
        norms=NormSpec("layer", bias=True),
    )
