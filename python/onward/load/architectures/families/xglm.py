"""XGLM: sinusoidal positions, which are computed, an embedding times sqrt(hidden_size), and layer
norms."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_VOCAB, MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.names import Stored, names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.load.architectures.sinusoids import sines_then_cosines
from onward.spec import DecoderSpec, MlpSpec, NormSpec

_FIRST_POSITION = 2
TENSORS = names(
    model=("model.", ""),
    norm="layer_norm",
    positions=Stored(computed=sines_then_cosines(_FIRST_POSITION)),
    attention_norm="self_attn_layer_norm",
    mlp_norm="final_layer_norm",
    o="self_attn.out_proj",
    up="fc1",
    down="fc2",
    ignored=("embed_positions.weights",),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The row of positions at ``pad_token_id`` is 0. It lies before the first position."""
    config.spelled(
        hidden_size="d_model",
        num_hidden_layers="num_layers",
        num_attention_heads="attention_heads",
        intermediate_size="ffn_dim",
        hidden_act="activation_function",
    )
    if config.integer("pad_token_id", 0, MAX_VOCAB, 1) >= _FIRST_POSITION:
        raise config.wrong("pad_token_id", "0 or 1, as the position of its number is 0")
    width = config.integer("hidden_size", 1, MAX_WIDTH)
    return decoder_spec(
        config,
        "xglm",
        default_context=2048,
        norm_eps=1e-5,
        default_tied=True,
        rotates=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec(activation(config, "gelu"), gated=False),
        norms=NormSpec("layer", bias=True),
        embedding_scale=math.sqrt(width) if config.flag("scale_embedding", True) else 1.0,
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 2048),
    )
