"""DeepSeek-V2: latent attention, and experts of which a share always runs."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.latent import latent_fields
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, ExpertsSpec

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
        dense=config.integer("first_k_dense_replace", 0, 1 << 20, 0),
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
    dense: int,
    context: int,
    experts: ExpertsSpec,
    attention: dict[str, Any] | None = None,
) -> DecoderSpec:
    """The spec of a DeepSeek model whose first ``dense`` layers have an MLP.

    ``attention`` has fields of the AttentionSpec.
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
        experts=experts,
        layer_experts=tuple(int(layer >= dense) for layer in range(num_layers(config))),
        **latent_fields(config, norm_eps=1e-6, **(attention or {})),
    )
