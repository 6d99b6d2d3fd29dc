"""RoBERTa-PreLayerNorm with ``is_decoder``: RoBERTa with norms before the blocks."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.bert import ROBERTA_HEAD, bert_names
from onward.load.architectures.families.roberta import FIRST_POSITION, read_roberta
from onward.spec import DecoderSpec, NormSpec

TENSORS = bert_names(
    "roberta_prelayernorm.",
    first_position=FIRST_POSITION,
    norm="LayerNorm",
    attention_norm="attention.LayerNorm",
    mlp_norm="intermediate.LayerNorm",
    **ROBERTA_HEAD,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The embedding has a norm, too."""
    norms = NormSpec("layer", bias=True, embedding=True)
    return read_roberta(config, "roberta_prelayernorm", norms=norms)
