"""Arcee AFM: Llama with a plain MLP and squared ReLU."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.gguf.family import MLP_BIAS, QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, MlpSpec

TENSORS = names()
GGUF = gguf(
    TENSORS, interleaved=True, from_tensors={"attention_bias": QKV_BIAS, "mlp_bias": MLP_BIAS}
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "arcee",
        default_context=4096,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
        mlp=MlpSpec(activation(config, "relu2"), gated=False),
    )
