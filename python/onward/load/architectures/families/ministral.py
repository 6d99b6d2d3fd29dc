"""Ministral (8B): Mistral whose layers may have a window or not."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, layer_types, num_layers
from onward.load.architectures.layer_kinds import FULL, SLIDING, windows_of
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import DecoderSpec

TENSORS = names()


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Without ``layer_types`` all layers have the window, if there is one."""
    config.integer("sliding_window", 1, MAX_POSITIONS, None)
    null = "sliding_window" in config.values and config.values["sliding_window"] is None
    kinds = layer_types(config) or [FULL if null else SLIDING] * num_layers(config)
    return decoder_spec(
        config,
        "ministral",
        default_context=131072,
        windows=windows_of(config, kinds, 4096),
    )
