"""Mistral: llama with a sliding window over every layer, and without biases."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    decoder_spec,
    layer_types,
    window_everywhere,
)
from onward.load.architectures.gguf.family import gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()
GGUF = gguf(TENSORS, interleaved=True, optional={"attention.sliding_window": "sliding_window"})


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``sliding_window`` null means full attention; an absent field means 4096 (Mistral 0.1)."""
    windows = window_everywhere(config, 4096)
    kinds = layer_types(config)
    expected = "sliding_attention" if windows[0] else "full_attention"
    if kinds is not None and set(kinds) != {expected}:
        raise config.error("layer_types", f"must be {expected} in all layers of this family")
    return decoder_spec(
        config,
        "mistral",
        default_context=131072,
        windows=windows,
    )
