"""BERT for generation with ``is_decoder``: BERT without token types, and with a head alone."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.bert import bert_names, read_bert
from onward.spec import DecoderSpec

TENSORS = bert_names(
    "bert.",
    positions="embeddings.position_embeddings",
    head="lm_head.decoder",
    head_bias=("lm_head.decoder", "lm_head"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """There is no layer between the decoder and the head."""
    return read_bert(config, "bert_generation", head_size=0)
