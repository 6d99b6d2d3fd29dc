"""K-EXAONE: EXAONE 4 with norms before the blocks, and experts as in DeepSeek-V3."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_LAYERS
from onward.load.architectures.families.exaone4 import exaone_spec
from onward.load.architectures.grouped_experts import grouped_experts
from onward.load.architectures.layer_kinds import sparse_by_kind
from onward.load.architectures.names import Stored, names
from onward.spec import DecoderSpec

TENSORS = names(
    router_correction=(
        Stored("mlp.e_score_correction_bias", weight=""),
        Stored("mlp.gate.e_score_correction_bias", weight=""),
    ),
    predicts_further=True,
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``mlp_layer_types`` stands before ``first_k_dense_replace``."""
    config.spelled(n_routed_experts="num_experts", n_shared_experts="num_shared_experts")
    dense = config.integer("first_k_dense_replace", 0, MAX_LAYERS, 1)
    config.ignore("is_moe_layer")  # of old files, beside first_k_dense_replace
    return exaone_spec(
        config,
        "exaone_moe",
        default_kv_heads=32,
        experts=grouped_experts(config, count=64, chosen=8, size=1024, scale=2.5),
        layer_experts=sparse_by_kind(config, dense),
    )
