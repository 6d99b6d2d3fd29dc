"""The decoder of BigBird-Pegasus as a language model of its own: its attention is full, as sparse
blocks are for the encoder alone."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.spec import DecoderSpec

TENSORS = decoder_names(norm="layernorm_embedding")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The norm that is named after the embedding is the last one."""
    config.ignore("attention_type", "block_size", "num_random_blocks")
    bias = config.flag("use_bias", False)
    return read_decoder(
        config,
        "bigbird_pegasus",
        default_context=4096,
        default_activation="gelu_new",
        default_scaled=True,
        qkv_bias=bias,
        output_bias=bias,
    )
