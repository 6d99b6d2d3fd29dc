"""Persimmon: squared ReLU, partial rotation, layer norms of q and k, which are stored head by head
with v."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.names import fused, names
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

TENSORS = names(
    norm="final_layernorm",
    qkv=fused("self_attn.query_key_value", "q", "k", "v", groups="heads"),
    o="self_attn.dense",
    q_norm="self_attn.q_layernorm",
    k_norm="self_attn.k_layernorm",
    up="mlp.dense_h_to_4h",
    down="mlp.dense_4h_to_h",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """All matrices and norms have biases."""
    return decoder_spec(
        config,
        "persimmon",
        default_context=16384,
        default_eps=1e-5,
        eps_field="layer_norm_eps",
        default_rotated=0.5,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        qk_norm=config.flag("qk_layernorm", True),
        mlp=MlpSpec(activation(config, "relu2"), gated=False),
        norms=NormSpec("layer", bias=True),
        attention=AttentionSpec(qk_norm_kind="layer", qk_norm_bias=True),
    )
