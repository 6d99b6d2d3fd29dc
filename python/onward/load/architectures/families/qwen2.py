"""Qwen 2 and 2.5: biases on q, k and v; windows from a given layer on, where switched on."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, windows_by_layer
from onward.load.architectures.gguf.family import gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()
GGUF = gguf(TENSORS)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The biases of q, k and v are part of the family: the config has no field for them."""
    return decoder_spec(
        config,
        "qwen2",
        default_context=32768,
        qkv_bias=True,
        windows=windows_by_layer(config, default_window=4096),
    )
