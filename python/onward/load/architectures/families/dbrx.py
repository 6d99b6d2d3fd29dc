"""DBRX: limits of q, k and v, layer norms without biases, and experts that are stored in one
matrix."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    ACTIVATIONS,
    MAX_HEADS,
    MAX_WIDTH,
    decoder_spec,
    num_layers,
)
from onward.load.architectures.names import Stored, fused, names
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec, MlpSpec, NormSpec

TENSORS = names(
    model=("transformer.", ""),
    layer="blocks.{i}.",
    embed="wte",
    norm="norm_f",
    attention_norm="norm_attn_norm.norm_1",
    mlp_norm="norm_attn_norm.norm_2",
    qkv=fused("norm_attn_norm.attn.Wqkv", "q", "k", "v"),
    o="norm_attn_norm.attn.out_proj",
    router="ffn.router.layer",
    expert_gate=Stored("ffn.experts.mlp.w1", weight="", stacked=True),
    expert_up=Stored("ffn.experts.mlp.v1", weight="", stacked=True),
    expert_down=Stored("ffn.experts.mlp.w2", weight="", stacked=True, transposed=True),
)
_POSITIVE = (1e-6, 1e6)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The norms have an epsilon of 1e-5; the config has no field for it."""
    config.spelled(
        hidden_size="d_model",
        num_hidden_layers="n_layers",
        num_attention_heads="n_heads",
        max_position_embeddings="max_seq_len",
    )
    kv_heads, clip, theta = _attention(config)
    experts, activation = _experts(config)
    if config.flag("tie_word_embeddings", False):
        raise config.wrong("tie_word_embeddings", "false")
    return decoder_spec(
        config,
        "dbrx",
        default_context=2048,
        num_kv_heads=kv_heads,
        default_theta=theta,
        norm_eps=1e-5,
        intermediate_size=experts.intermediate_size,
        mlp=MlpSpec(activation),
        norms=NormSpec("layer"),
        attention=AttentionSpec(clip=clip),
        experts=experts,
        layer_experts=(1,) * num_layers(config),
    )


def _attention(config: ConfigReader) -> tuple[int, float, float]:
    """The heads of k and v, the limit of q, k and v, and the base of the rotation. The base stands
    for the one of the rope section where that is absent, as in files that transformers did not
    write."""
    section = config.section("attn_config")
    if section is None:
        return 1, 0.0, 1e4
    heads = section.integer("kv_n_heads", 1, MAX_HEADS, 1)
    clip = section.number("clip_qkv", *_POSITIVE, default=0.0)
    theta = section.number("rope_theta", 1, 1e30, default=1e4)
    section.refuse_the_rest()
    return heads, clip, theta


def _experts(config: ConfigReader) -> tuple[ExpertsSpec, str]:
    """The experts, and their activation."""
    section = config.section("ffn_config")
    if section is None:
        return ExpertsSpec(count=4, chosen=1, intermediate_size=3584, normalise=True), "silu"
    section.ignore("hidden_size", "moe_jitter_eps", "moe_loss_weight")
    # The weights are divided by their norm of this order: 1 is their sum.
    order = section.number("moe_normalize_expert_weights", 0, 1e6, default=None)
    if "moe_normalize_expert_weights" not in section.values:
        order = 1.0
    if order not in (None, 1.0):
        raise section.wrong("moe_normalize_expert_weights", "1 or null")
    act = section.section("ffn_act_fn")
    activation = (
        "silu" if act is None else ACTIVATIONS[act.text("name", tuple(ACTIVATIONS), "silu")]
    )
    if act is not None:
        act.refuse_the_rest(strict=True)
    count = section.integer("moe_num_experts", 1, 4096, 4)
    experts = ExpertsSpec(
        count=count,
        chosen=section.integer("moe_top_k", 1, count, 1),
        intermediate_size=section.integer("ffn_hidden_size", 1, MAX_WIDTH, 3584),
        normalise=order is not None,
    )
    section.refuse_the_rest()
    return experts, activation
