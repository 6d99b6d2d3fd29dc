"""DeepSeek-V2: latent attention, and experts of which a share always runs."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, activation, decoder_spec
from onward.load.architectures.grouped_experts import dense_first
from onward.load.architectures.latent import latent_fields
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, ExpertsSpec, MlpSpec

TENSORS = names(rotation="pairs")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The weights of the chosen experts are not divided by their sum."""
    config.ignore("aux_loss_alpha", "seq_aux", "ep_size")
    config.text("scoring_func", ("softmax",), "softmax")
    config.integer("moe_layer_freq", 1, 1, 1)
    method = config.text("topk_method", ("greedy", "group_limited_greedy"), "greedy")
    if config.flag("norm_topk_prob", False):
        raise config.error("norm_topk_prob", "is true, expected false in this family")
    grouped = method == "group_limited_greedy"
    return deepseek_spec(
        config,
        "deepseek_v2",
        layer_experts=dense_first(config, 0),
        context=2048,
        experts=ExpertsSpec(
            count=config.integer("n_routed_experts", 1, 4096, 64),
            chosen=config.integer("num_experts_per_tok", 1, 4096),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, 1407),
            scale=config.number("routed_scaling_factor", 0, 1e6, default=1.0),
            groups=(config.integer("n_group", 1, 4096, None) or 1) if grouped else 1,
            chosen_groups=(config.integer("topk_group", 1, 4096, None) or 1) if grouped else 1,
            shared_size=shared_size(config, 2, 1407),
        ),
    )


def shared_size(config: ConfigReader, default_count: int, default_size: int) -> int:
    """The intermediate size of the experts that always run, which are one wide expert."""
    count = config.integer("n_shared_experts", 0, 4096, default_count)
    return count * config.integer("moe_intermediate_size", 1, MAX_WIDTH, default_size)


def deepseek_spec(
    config: ConfigReader,
    architecture: str,
    *,
    context: int,
    value_dim: int | None = None,
    attention: dict[str, Any] | None = None,
    **fields: Any,
) -> DecoderSpec:
    """The spec of a model with the attention of DeepSeek.

    Args:
        context: max_position_embeddings, where it is absent.
        value_dim: v_head_dim, where it is absent; None: it is required.
        attention: fields of the AttentionSpec.
        fields: more arguments of ``decoder_spec``.
    """
    config.ignore("n_group", "topk_group")
    bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        architecture,
        default_context=context,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias", False),
        mlp=MlpSpec(activation(config, "silu")),
        **latent_fields(config, norm_eps=1e-6, value_dim=value_dim, **(attention or {})),
        **fields,
    )


def require_pairs(config: ConfigReader) -> None:
    """ConfigError if rotated dimensions are not neighbours, which the table of names says."""
    if not config.flag("rope_interleave", True):
        raise config.error("rope_interleave", "is false, expected true in this family")
