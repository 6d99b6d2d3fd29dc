"""Phi 3 and 4: Llama with q, k and v in one tensor, and gate and up in another."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, window_everywhere
from onward.load.architectures.gguf.family import gguf
from onward.load.architectures.names import fused, names
from onward.spec import DecoderSpec

TENSORS = names(
    q=fused("self_attn.qkv_proj", "q", "k", "v"), gate=fused("mlp.gate_up_proj", "gate", "up")
)
GGUF = gguf(
    TENSORS,
    optional={"attention.sliding_window": "sliding_window"},
    partial=True,
    gate_up=fused("ffn_up", "gate", "up"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """A window, where the config has one, is of all layers."""
    config.ignore("attention_bias")  # of the file format of old versions; there are no biases
    return decoder_spec(
        config,
        "phi3",
        default_context=4096,
        default_eps=1e-5,
        default_rotated=1.0,
        windows=window_everywhere(config),
    )
