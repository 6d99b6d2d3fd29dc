"""RoFormer with ``is_decoder``: BERT with rotation of neighbours in place of learned positions."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.bert import BERT_HEAD, TOKEN_TYPES, bert_names, read_bert
from onward.load.architectures.names import Stored
from onward.spec import DecoderSpec, EmbeddingSpec

TENSORS = bert_names(
    "roformer.",
    rotation="pairs",
    positions=Stored(constant=0.0, added=TOKEN_TYPES),
    embedding_projection="embeddings_project",
    **BERT_HEAD,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The embedding may be narrower than the layers."""
    if config.flag("rotary_value", False):
        raise config.wrong("rotary_value", "false: values do not rotate")
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    size = config.integer("embedding_size", 1, MAX_WIDTH, width)
    longest = config.integer("max_position_embeddings", 1, 1 << 31, 1536)
    return read_bert(
        config,
        "roformer",
        default_context=1536,
        rotates=True,
        max_context=longest,
        head_size=size,
        embedding=EmbeddingSpec() if size == width else EmbeddingSpec(size, bias=True),
    )
