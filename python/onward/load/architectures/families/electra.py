"""ELECTRA's generator with ``is_decoder``: BERT with an embedding that is narrower than its
layers."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.bert import bert_names, read_bert
from onward.spec import DecoderSpec, EmbeddingSpec

TENSORS = bert_names(
    "electra.",
    embedding_projection="embeddings_project",
    head="generator_lm_head",
    head_dense="generator_predictions.dense",
    head_norm="generator_predictions.LayerNorm",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The dense layer before the head is as wide as the embedding, and has GELU."""
    config.ignore("summary_activation", "summary_type", "summary_use_proj")
    size = config.integer("embedding_size", 1, MAX_WIDTH, 128)
    same = size == config.integer("hidden_size", 1, MAX_WIDTH)
    return read_bert(
        config,
        "electra",
        head_activation="gelu",
        head_size=size,
        embedding=EmbeddingSpec() if same else EmbeddingSpec(size, bias=True),
    )
