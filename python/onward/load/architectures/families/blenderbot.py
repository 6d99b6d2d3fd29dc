"""The decoder of Blenderbot as a language model of its own: learned positions and layer norms."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.spec import DecoderSpec

TENSORS = decoder_names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """As mBART without a norm of the embedding."""
    return read_decoder(config, "blenderbot", default_context=128)
