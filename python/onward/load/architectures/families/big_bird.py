"""BigBird with ``is_decoder``: BERT whose attention is full, as it is in the reference wherever
keys and values are kept."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.bert import BERT_HEAD, bert_names, read_bert
from onward.spec import DecoderSpec

TENSORS = bert_names("bert.", **BERT_HEAD)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``use_bias`` is of q, k and v."""
    config.text("attention_type", ("block_sparse", "original_full"), "block_sparse")
    config.ignore("block_size", "num_random_blocks")
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    return read_bert(
        config,
        "big_bird",
        default_context=4096,
        default_activation="gelu_new",
        qkv_bias=config.flag("use_bias", True),
        embedding_scale=math.sqrt(width) if config.flag("rescale_embeddings", False) else 1.0,
    )
