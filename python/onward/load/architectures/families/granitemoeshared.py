"""Granite 3 MoE with an expert that always runs."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.granite import MULTIPLIERS
from onward.load.architectures.families.granitemoe import REQUIRED, granitemoe_spec
from onward.load.architectures.families.granitemoe import TENSORS as TENSORS
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.spec import DecoderSpec

GGUF = gguf(
    TENSORS,
    interleaved=True,
    required={**REQUIRED, "expert_shared_feed_forward_length": "shared_intermediate_size"},
    optional=MULTIPLIERS,
    same={"rope.scaling.finetuned": True},
    from_tensors={"attention_bias": QKV_BIAS},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``shared_intermediate_size`` 0 means no such expert."""
    size = config.integer("shared_intermediate_size", 0, MAX_WIDTH, 0)
    return granitemoe_spec(config, "granitemoeshared", size)
