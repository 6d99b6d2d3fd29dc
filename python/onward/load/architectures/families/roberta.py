"""RoBERTa, CamemBERT, XLM-RoBERTa and data2vec-text with ``is_decoder``: BERT with positions from
the third row of their matrix on."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_VOCAB
from onward.load.architectures.families.bert import ROBERTA_HEAD, bert_names, read_bert
from onward.spec import DecoderSpec

FIRST_POSITION = 2
"""The row after that of the padding token, 1."""
TENSORS = bert_names("roberta.", "data2vec_text.", first_position=FIRST_POSITION, **ROBERTA_HEAD)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The dense layer before the head has GELU, whatever the MLP has."""
    return read_roberta(config, "roberta")


def read_roberta(config: ConfigReader, architecture: str, **fields: Any) -> DecoderSpec:
    """The spec of such a model."""
    if config.integer("pad_token_id", 0, MAX_VOCAB, 1) != FIRST_POSITION - 1:
        raise config.wrong("pad_token_id", "1, as the first position follows it")
    return read_bert(
        config, architecture, first_position=FIRST_POSITION, head_activation="gelu", **fields
    )
