"""Mistral 4: latent attention, experts, and queries that grow with their position."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.deepseek_v2 import (
    deepseek_spec,
    require_pairs,
    shared_size,
)
from onward.load.architectures.families.ministral3 import temperature
from onward.load.architectures.grouped_experts import dense_first
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names(rotation="pairs")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """A group's score is the sum of its best two experts."""
    require_pairs(config)
    return deepseek_spec(
        config,
        "mistral4",
        layer_experts=dense_first(config, 0),
        context=1048576,
        attention=temperature(config),
        experts=ExpertsSpec(
            count=config.integer("n_routed_experts", 1, 4096, 128),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 4),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, 2048),
            normalise=config.flag("norm_topk_prob", True),
            scale=config.number("routed_scaling_factor", 0, 1e6, default=1.0),
            groups=config.integer("n_group", 1, 4096, 1),
            chosen_groups=config.integer("topk_group", 1, 4096, 1),
            group_score="top2",
            shared_size=shared_size(config, 1, 2048),
        ),
    )
