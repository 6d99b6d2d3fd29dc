"""MiniCPM 3: latent attention that rotates halves, and multipliers of the embedding, the blocks and
the logits."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_HEADS, MAX_WIDTH, num_layers
from onward.load.architectures.families.deepseek_v2 import deepseek_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names()
_FACTOR = (1e-6, 1e6)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``scale_depth`` and ``dim_model_base`` null mean no multiplier."""
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    heads = config.integer("num_attention_heads", 1, MAX_HEADS)
    depth = config.number("scale_depth", *_FACTOR, default=None)
    if "scale_depth" not in config.values:
        depth = 1.4
    base = config.integer("dim_model_base", 1, MAX_WIDTH, None)
    if "dim_model_base" not in config.values:
        base = 256
    return deepseek_spec(
        config,
        "minicpm3",
        context=32768,
        value_dim=max(width // heads, 1),
        default_eps=1e-5,
        default_tied=True,
        embedding_scale=config.number("scale_emb", *_FACTOR, default=12.0),
        residual_scale=1.0 if depth is None else depth / math.sqrt(num_layers(config)),
        logit_scale=1.0 if base is None else base / width,
    )
