"""Sarvam 105B: DeepSeek-V3 with other defaults and other names of fields."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.deepseek_v2 import deepseek_spec, require_pairs
from onward.load.architectures.grouped_experts import dense_first, grouped_experts
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names(rotation="pairs", predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``deepseek_yarn``, of its first config, is yarn."""
    config = _with_yarn(config)
    config.spelled(n_routed_experts="num_experts", n_shared_experts="num_shared_experts")
    config.ignore("q_head_dim")  # qk_nope_head_dim + qk_rope_head_dim
    require_pairs(config)
    return deepseek_spec(
        config,
        "sarvam_mla",
        context=4096,
        experts=grouped_experts(config, count=128, chosen=8, size=2048, scale=2.5),
        layer_experts=dense_first(config, 1),
    )


def _with_yarn(config: ConfigReader) -> ConfigReader:
    section = config.values.get("rope_scaling")
    old = "deepseek_yarn"
    if not isinstance(section, dict) or old not in (section.get("type"), section.get("rope_type")):
        return config
    kept = {key: value for key, value in section.items() if key not in ("type", "rope_type")}
    values = {**config.values, "rope_scaling": {**kept, "rope_type": "yarn"}}
    return ConfigReader(values, config.where)
