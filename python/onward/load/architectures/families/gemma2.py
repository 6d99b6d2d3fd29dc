"""Gemma 2: norms before and after the blocks, soft-caps, and every other layer has a window."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.layer_kinds import layer_kinds, windows_of
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    norm_plus=1.0,
    attention_post_norm="post_attention_layernorm",
    mlp_norm="pre_feedforward_layernorm",
    mlp_post_norm="post_feedforward_layernorm",
)
GGUF = gguf(
    TENSORS,
    optional={
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    from_tensors={"attention_bias": QKV_BIAS},
    full_every=2,
    default_window=4096,
    complete=lambda config: {"query_pre_attn_scalar": unsaid_scale(config, layers_of_27b=46)},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Norms before and after the blocks."""
    return gemma2_spec(config, "gemma2", norms=NormSpec(after=True))


def gemma2_spec(config: ConfigReader, architecture: str, norms: NormSpec) -> DecoderSpec:
    """Scores are multiplied by 1 / sqrt(query_pre_attn_scalar). A soft-cap that is null is off."""
    kinds = layer_kinds(config, 2)
    config.ignore("hidden_act")  # of old files, which hidden_activation replaces
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        architecture,
        default_context=8192,
        default_head_dim=256,
        default_tied=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        windows=windows_of(config, kinds, 4096),
        norms=norms,
        attention=AttentionSpec(
            scale=config.number("query_pre_attn_scalar", 1e-6, 1e6, default=256.0) ** -0.5,
            softcap=_cap(config, "attn_logit_softcapping", 50.0),
        ),
        logit_softcap=_cap(config, "final_logit_softcapping", 30.0),
        mlp=MlpSpec(activation(config, "gelu_pytorch_tanh", "hidden_activation")),
        embedding_scale=math.sqrt(config.integer("hidden_size", 1, 1 << 20)),
    )


def unsaid_scale(config: Mapping[str, Any], layers_of_27b: int) -> object:
    """``query_pre_attn_scalar``, which GGUF files do not have: the size of a head, except in the
    models of 27 billion weights, which are known by their layers."""
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if config["num_hidden_layers"] == layers_of_27b and type(hidden) is type(heads) is int:
        return hidden // max(heads, 1)
    return config.get("head_dim")


def _cap(config: ConfigReader, key: str, default: float) -> float:
    cap = config.number(key, 1e-6, 1e6, default=None)
    return default if key not in config.values else cap or 0.0
