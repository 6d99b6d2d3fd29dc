"""Qwen 3 (dense): norms on each head of q and k before the rotation; biases by a field."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, windows_by_layer
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()
GGUF = gguf(TENSORS, from_tensors={"attention_bias": QKV_BIAS})


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` covers q, k, v and the output projection."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "qwen3",
        default_context=32768,
        default_head_dim=128,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=windows_by_layer(config, default_window=4096),
    )
