"""The decoder of Pegasus as a language model of its own: sinusoidal positions and layer norms."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.load.architectures.names import Stored
from onward.load.architectures.sinusoids import paired_sines_then_cosines_in_double
from onward.spec import DecoderSpec

# Files may hold the positions.
SINUSOIDS = (Stored("embed_positions"), Stored(computed=paired_sines_then_cosines_in_double))
TENSORS = decoder_names(positions=SINUSOIDS)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """As Blenderbot, with other positions."""
    return read_decoder(config, "pegasus", default_context=1024)
