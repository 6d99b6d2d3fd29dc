"""DeepSeek-V3 and R1: latent attention, and experts that a sigmoid router with a correction
chooses within groups."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.deepseek_v2 import deepseek_spec, require_pairs
from onward.load.architectures.grouped_experts import dense_first, grouped_experts
from onward.load.architectures.names import names
from onward.spec import DecoderSpec

TENSORS = names(rotation="pairs", predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The layers after the last one predict further tokens; they are not read."""
    require_pairs(config)
    return deepseek_spec(
        config,
        "deepseek_v3",
        layer_experts=dense_first(config, 3),
        context=4096,
        experts=grouped_experts(config, count=256, chosen=8, size=2048, scale=2.5, groups=(8, 4)),
    )
