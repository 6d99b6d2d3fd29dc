"""Llama 2, 3, 3.1, 3.2, SmolLM2 and others with ``model_type: llama``."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, layer_types
from onward.load.architectures.gguf.family import MLP_BIAS, QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()
GGUF = gguf(
    TENSORS, interleaved=True, from_tensors={"attention_bias": QKV_BIAS, "mlp_bias": MLP_BIAS}
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers the output projection too; there are no windows."""
    kinds = layer_types(config)
    if kinds is not None and "sliding_attention" in kinds:
        raise config.error("layer_types", "names sliding_attention, which llama does not have")
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "llama",
        default_context=2048,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=config.flag("mlp_bias", False),
    )
