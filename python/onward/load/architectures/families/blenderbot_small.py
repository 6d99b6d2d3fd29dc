"""The decoder of Blenderbot-Small as a language model of its own: BART with a norm of the embedding
before the positions are added."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.bart import SUMS, norms_of_sums
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.spec import DecoderSpec, EmbeddingSpec

TENSORS = decoder_names(**SUMS)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Positions begin with the first row of their matrix. ``scale_embedding`` is not used."""
    return read_decoder(
        config,
        "blenderbot_small",
        default_context=512,
        norms=norms_of_sums(embedding=True),
        embedding=EmbeddingSpec(wide_positions=True),
        embedding_scale=1.0,
    )
