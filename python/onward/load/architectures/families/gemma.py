"""Gemma: GELU, norms that multiply by 1 + weight, and an embedding times sqrt(hidden_size)."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names(norm_plus=1.0)
GGUF = gguf(TENSORS, from_tensors={"attention_bias": QKV_BIAS})


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``hidden_activation``, where it is set, stands before ``hidden_act``."""
    key = "hidden_activation" if "hidden_activation" in config else "hidden_act"
    config.ignore("hidden_act", "hidden_activation")
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "gemma",
        default_context=8192,
        default_head_dim=256,
        default_tied=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp=MlpSpec(activation=activation(config, "gelu_pytorch_tanh", key)),
        embedding_scale=math.sqrt(config.integer("hidden_size", 1, 1 << 20)),
    )
