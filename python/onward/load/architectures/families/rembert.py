"""RemBERT with ``is_decoder``: BERT whose embedding and head have widths of their own."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.bert import bert_names, read_bert
from onward.spec import DecoderSpec, EmbeddingSpec

TENSORS = bert_names(
    "rembert.",
    embedding_projection="encoder.embedding_hidden_mapping_in",
    head="cls.predictions.decoder",
    head_dense="cls.predictions.dense",
    head_norm="cls.predictions.LayerNorm",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The head is never the embedding."""
    return read_bert(
        config,
        "rembert",
        head_size=config.integer("output_embedding_size", 1, MAX_WIDTH, 1664),
        embedding=EmbeddingSpec(
            config.integer("input_embedding_size", 1, MAX_WIDTH, 256), bias=True
        ),
        tied_head=False,
    )
