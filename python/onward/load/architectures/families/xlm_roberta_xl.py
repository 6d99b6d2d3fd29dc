"""XLM-RoBERTa-XL with ``is_decoder``: RoBERTa with norms before the blocks, and none of the
embedding."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.bert import ROBERTA_HEAD, bert_names
from onward.load.architectures.families.roberta import FIRST_POSITION, read_roberta
from onward.spec import DecoderSpec, NormSpec

TENSORS = bert_names(
    "roberta.",
    first_position=FIRST_POSITION,
    norm="encoder.LayerNorm",
    attention_norm="attention.self_attn_layer_norm",
    mlp_norm="LayerNorm",
    **ROBERTA_HEAD,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The matrix of positions has two more rows than there are positions."""
    return read_roberta(
        config,
        "xlm_roberta_xl",
        default_context=514,
        default_eps=1e-5,
        norms=NormSpec("layer", bias=True),
    )
