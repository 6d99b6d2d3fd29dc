"""Granite with experts, sink logits, windows in three of four layers, and a base of rotation by
layer."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH
from onward.load.architectures.families.granite_swa import windows_and_ropes
from onward.load.architectures.families.granitemoe import TENSORS as TENSORS
from onward.load.architectures.families.granitemoe import granitemoe_spec
from onward.spec import DecoderSpec


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``shared_intermediate_size`` 0 means no expert that always runs."""
    size = config.integer("shared_intermediate_size", 0, MAX_WIDTH, 0)
    return granitemoe_spec(config, "granitemoe_swa", size, **windows_and_ropes(config, 2048))
