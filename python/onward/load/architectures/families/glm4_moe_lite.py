"""GLM 4.7 Flash: DeepSeek-V3 with other defaults."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.deepseek_v2 import deepseek_spec, require_pairs
from onward.load.architectures.grouped_experts import grouped_experts
from onward.load.architectures.layer_kinds import sparse_by_kind
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names(rotation="pairs", predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Without ``mlp_layer_types`` the first layer alone has no experts."""
    require_pairs(config)
    config.integer("first_k_dense_replace", 1, 1, 1)
    return deepseek_spec(
        config,
        "glm4_moe_lite",
        context=202752,
        default_eps=1e-5,
        experts=grouped_experts(config, count=64, chosen=4, size=1536, scale=1.8),
        layer_experts=sparse_by_kind(config, 1),
    )
