"""Sarvam 30B: GLM 4.5 with heads that rotate whole, and other names in its files."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import activation, decoder_spec
from onward.load.architectures.grouped_experts import dense_first, grouped_experts
from onward.load.architectures.names import Stored, fused, names
from onward.spec import DecoderSpec, MlpSpec

_QKV = fused("attention.query_key_value", "q", "k", "v")
TENSORS = names(
    embed=("word_embeddings", "embed_tokens"),
    q=(_QKV, "self_attn.q_proj"),
    k=(_QKV, "self_attn.k_proj"),
    v=(_QKV, "self_attn.v_proj"),
    o=("attention.dense", "self_attn.o_proj"),
    q_norm=("attention.query_layernorm", "self_attn.q_norm"),
    k_norm=("attention.key_layernorm", "self_attn.k_norm"),
    router_correction=(
        Stored("mlp.gate.expert_bias", weight=""),
        Stored("mlp.gate.e_score_correction_bias", weight=""),
    ),
    predicts_further=True,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` is of q, k and v."""
    config.spelled(
        n_routed_experts="num_experts",
        n_shared_experts="num_shared_experts",
        attention_bias="use_qkv_bias",
    )
    if config.flag("use_bias", False):
        raise config.wrong("use_bias", "false: other biases than of q, k and v are not supported")
    return decoder_spec(
        config,
        "sarvam_moe",
        default_context=131072,
        default_head_dim=64,
        default_kv_heads=4,
        default_theta=8e6,
        default_rotated=1.0,
        qkv_bias=config.flag("attention_bias", False),
        qk_norm=config.flag("use_qk_norm", True),
        mlp=MlpSpec(activation(config, "silu")),
        experts=grouped_experts(config, count=128, chosen=6, size=1024, scale=2.5),
        layer_experts=dense_first(config, 1),
    )
