"""InternLM 3: Llama with other names of the fields of biases."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``qkv_bias`` is of q, k and v; ``bias`` is of all other matrices of a layer. The reference
    knows no model in which they differ, and so this version has none, either."""
    config.spelled(attention_bias="qkv_bias", mlp_bias="bias")
    attention_bias = config.flag("attention_bias", False)
    mlp_bias = config.flag("mlp_bias", False)
    if attention_bias != mlp_bias:
        raise config.wrong("attention_bias", f"the value of bias, {str(mlp_bias).lower()}")
    return decoder_spec(
        config,
        "internlm3",
        default_context=32768,
        default_head_dim=128,
        default_kv_heads=2,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=mlp_bias,
        mlp=MlpSpec(activation(config, "silu")),
    )
