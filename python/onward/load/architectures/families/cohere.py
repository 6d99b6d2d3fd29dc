"""Command R: attention and MLP side by side after one LayerNorm, and scaled logits."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf, layer_norm
from onward.load.architectures.names import Stored, names
from onward.spec import AttentionSpec, DecoderSpec, NormSpec

TENSORS = names(
    rotation="pairs",
    q_norm=Stored("self_attn.q_norm", by_head=True),
    k_norm=Stored("self_attn.k_norm", by_head=True),
)
GGUF = gguf(
    TENSORS,
    eps=layer_norm("layer_norm_eps"),
    required={"logit_scale": "logit_scale"},
    from_tensors={"attention_bias": QKV_BIAS, "use_qk_norm": ("attn_q_norm.weight",)},
    q_norm=Stored("attn_q_norm", by_head=True),
    k_norm=Stored("attn_k_norm", by_head=True),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Norms of queries and keys, where they are on, have a weight for each head."""
    return cohere_spec(
        config,
        "cohere",
        default_theta=500000.0,
        qk_norm=config.flag("use_qk_norm", False),
        attention=AttentionSpec(qk_norm_kind="layer", qk_norm_over="heads"),
    )


def cohere_spec(
    config: ConfigReader, architecture: str, default_theta: float, **fields: Any
) -> DecoderSpec:
    """``logit_scale`` multiplies the logits."""
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        architecture,
        default_context=8192,
        default_theta=default_theta,
        default_tied=True,
        default_eps=1e-5,
        eps_field="layer_norm_eps",
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        norms=NormSpec("layer"),
        residual="parallel",
        logit_scale=config.number("logit_scale", 1e-6, 1e6, default=0.0625),
        **fields,
    )
