"""Granite 3 MoE with an expert that always runs."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.granitemoe import TENSORS as TENSORS
from onward.load.architectures.families.granitemoe import granitemoe_spec
from onward.spec import DecoderSpec


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``shared_intermediate_size`` 0 means no such expert."""
    size = config.integer("shared_intermediate_size", 0, MAX_WIDTH, 0)
    return granitemoe_spec(config, "granitemoeshared", size)
