"""Megatron-BERT with ``is_decoder``: BERT with norms before the blocks, and none of the
embedding."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.bert import BERT_HEAD, bert_names, read_bert
from onward.spec import DecoderSpec, NormSpec

TENSORS = bert_names(
    "bert.", norm="encoder.ln", attention_norm="attention.ln", mlp_norm="ln", **BERT_HEAD
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """As BERT, except for its norms."""
    return read_bert(config, "megatron_bert", norms=NormSpec("layer", bias=True))
