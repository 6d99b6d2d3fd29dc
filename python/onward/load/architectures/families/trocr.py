"""The decoder of TrOCR as a language model of its own: BART's, where the norm of the embedding is
an option."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.bart import SUMS, norms_of_sums
from onward.load.architectures.families.mbart import decoder_names, read_decoder
from onward.load.architectures.names import Stored
from onward.spec import DecoderSpec

TENSORS = decoder_names(
    head="output_projection", positions=Stored("embed_positions", first_row=2), **SUMS
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Positions must be learned."""
    config.ignore("cross_attention_hidden_size")
    if not config.flag("use_learned_position_embeddings", True):
        raise config.wrong("use_learned_position_embeddings", "true: sinusoids are not supported")
    return read_decoder(
        config,
        "trocr",
        default_context=512,
        default_pair=False,
        norms=norms_of_sums(embedding=config.flag("layernorm_embedding", True)),
    )
