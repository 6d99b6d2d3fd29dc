"""BioGPT: learned positions from the third row of their matrix on, an embedding times
sqrt(hidden_size), and layer norms."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import Stored, names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("biogpt.", ""),
    norm="layer_norm",
    head="output_projection",
    positions=Stored("embed_positions", first_row=2),
    attention_norm="self_attn_layer_norm",
    mlp_norm="final_layer_norm",
    o="self_attn.out_proj",
    up="fc1",
    down="fc2",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The norms do not use ``layer_norm_eps``."""
    config.ignore("layer_norm_eps")
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    return decoder_spec(
        config,
        "biogpt",
        default_context=1024,
        norm_eps=1e-5,
        default_tied=True,
        rotates=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec(activation(config, "gelu"), gated=False),
        norms=NormSpec("layer", bias=True),
        embedding_scale=math.sqrt(width) if config.flag("scale_embedding", True) else 1.0,
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 1024),
    )
