"""Cohere 2 MoE: Command R7B with experts in place of the MLP, after some dense layers."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_LAYERS,
    MAX_WIDTH,
    activation,
    decoder_spec,
    layer_types,
    num_layers,
)
from onward.load.architectures.layer_kinds import FULL, SLIDING, sparse_by_kind, windows_of
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import DecoderSpec, ExpertsSpec, MlpSpec, NormSpec

TENSORS = names(rotation="pairs")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Norms are layer norms, or RMSNorm where ``rms_norm_eps`` is set."""
    dense = config.integer("first_k_dense_replace", 0, MAX_LAYERS, 0)
    sparse = sparse_by_kind(config, dense)
    dense_every = config.integer("prefix_dense_sliding_window_pattern", 1, MAX_POSITIONS, 1)
    kinds = _kinds(config, dense, dense_every)
    rotates = [
        kind == SLIDING or (not experts and dense_every == 1)
        for kind, experts in zip(kinds, sparse, strict=True)
    ]
    rms = "rms_norm_eps" in config
    config.ignore("rms_norm_eps", "layer_norm_eps")
    width = config.integer("intermediate_size", 1, MAX_WIDTH)
    prefix_width = config.integer("prefix_dense_intermediate_size", 1, MAX_WIDTH, width)
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "cohere2_moe",
        default_context=8192,
        default_head_dim=128,
        default_eps=1e-5,
        eps_field="rms_norm_eps" if rms else "layer_norm_eps",
        default_tied=True,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        intermediate_size=prefix_width,
        mlp=MlpSpec(activation(config, "silu")),
        norms=NormSpec("rms" if rms else "layer"),
        residual="parallel",
        logit_scale=config.number("logit_scale", -1e6, 1e6, default=0.0625),
        windows=windows_of(config, kinds, 4096),
        layer_ropes=tuple(0 if rotated else -1 for rotated in rotates),
        experts=_experts(config, width),
        layer_experts=sparse,
    )


def _kinds(config: ConfigReader, dense: int, dense_every: int) -> list[str]:
    """The attention of each layer. The first, dense layers have a pattern of their own."""
    every = config.integer("sliding_window_pattern", 1, MAX_POSITIONS, 4)
    kinds = layer_types(config)
    if kinds is not None:
        return kinds
    layers = num_layers(config)
    places = [(layer, dense_every) for layer in range(min(dense, layers))]
    places += [(layer, every) for layer in range(max(layers - dense, 0))]
    return [SLIDING if (place + 1) % period else FULL for place, period in places]


def _experts(config: ConfigReader, width: int) -> ExpertsSpec:
    """A softmax is of the logits of the chosen experts alone."""
    scores = config.text("expert_selection_fn", ("softmax", "sigmoid"), "softmax")
    normalise = config.flag("norm_topk_prob", True)
    shared = config.integer("num_shared_experts", 0, 4096, 0)
    strategy = config.text("shared_expert_combination_strategy", ("average", "sum"), "average")
    if shared and strategy == "average":
        raise config.error(
            "shared_expert_combination_strategy",
            "is average, expected sum: this version does not average the shared experts",
        )
    return ExpertsSpec(
        count=config.integer("num_experts", 1, 4096, 8),
        chosen=config.integer("num_experts_per_tok", 1, 4096, 2),
        intermediate_size=width,
        scores=scores,
        normalise=normalise or scores == "softmax",
        shared_size=shared * width,
    )
