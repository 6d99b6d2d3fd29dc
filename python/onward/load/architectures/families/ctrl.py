"""CTRL: sinusoidal positions, which are computed, an embedding times sqrt(hidden_size), and layer
norms."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import GPT2_FIELDS, MAX_WIDTH, decoder_spec
from onward.load.architectures.names import Stored, names
from onward.load.architectures.rope import MAX_CONTEXT
from onward.load.architectures.sinusoids import paired_sines_then_cosines
from onward.spec import DecoderSpec, MlpSpec, NormSpec

_EPS = 1e-6
TENSORS = names(
    model=("transformer.", ""),
    layer="h.{i}.",
    embed="w",
    norm="layernorm",
    positions=Stored(computed=paired_sines_then_cosines),
    attention_norm="layernorm1",
    mlp_norm="layernorm2",
    q="multi_head_attention.Wq",
    k="multi_head_attention.Wk",
    v="multi_head_attention.Wv",
    o="multi_head_attention.dense",
    up="ffn.0",
    down="ffn.2",
    ignored=("pos_encoding",),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``layer_norm_epsilon`` is of the last norm alone."""
    config.spelled(**{**GPT2_FIELDS, "intermediate_size": "dff"})
    if config.number("layer_norm_epsilon", 0, 1, default=_EPS) != _EPS:
        raise config.wrong("layer_norm_epsilon", f"{_EPS:g}, as the norms of the layers have it")
    return decoder_spec(
        config,
        "ctrl",
        default_context=256,
        norm_eps=_EPS,
        default_tied=True,
        rotates=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec("relu", gated=False),
        norms=NormSpec("layer", bias=True),
        embedding_scale=math.sqrt(config.integer("hidden_size", 1, MAX_WIDTH)),
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 256),
        head_bias=True,
    )
