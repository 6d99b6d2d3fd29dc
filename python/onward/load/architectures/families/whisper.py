"""The decoder of Whisper as a language model of its own: learned positions, and no bias of k."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.load.architectures.names import Stored
from onward.spec import DecoderSpec

TENSORS = decoder_names(head="proj_out", k_bias=Stored(constant=0.0))


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``max_target_positions`` is the longest text. ``scale_embedding`` is not used."""
    config.ignore("classifier_proj_size")
    return read_decoder(
        config,
        "whisper",
        default_context=448,
        context_field="max_target_positions",
        embedding_scale=1.0,
    )
