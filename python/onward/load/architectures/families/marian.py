"""The decoder of Marian as a language model of its own: BART with sinusoidal positions."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.bart import SUMS, norms_of_sums
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.load.architectures.families.pegasus import SINUSOIDS
from onward.spec import DecoderSpec

TENSORS = decoder_names(positions=SINUSOIDS, **SUMS)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The head has ``vocab_size`` rows, so the decoder's own vocabulary must be as large."""
    size = config.integer("vocab_size", 1, 1 << 24)
    if config.integer("decoder_vocab_size", 1, 1 << 24, size) != size:
        raise config.wrong("decoder_vocab_size", f"vocab_size, which is {size}")
    config.ignore("share_encoder_decoder_embeddings")
    norms = norms_of_sums(embedding=False)
    return read_decoder(config, "marian", default_context=1024, norms=norms)
