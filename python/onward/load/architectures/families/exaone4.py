"""EXAONE 4: norms of the outputs of the blocks and of queries and keys; where layers have a window,
the others do not rotate."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec, layer_types, num_layers
from onward.load.architectures.families.olmo2 import TENSORS as TENSORS
from onward.load.architectures.layer_kinds import FULL, SLIDING, windows_of
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import DecoderSpec, NormSpec


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``sliding_window_pattern`` is a number, or a word with a letter for each layer: L has a
    window."""
    return exaone_spec(
        config, "exaone4", default_kv_heads=32, norms=NormSpec(before=False, after=True)
    )


def exaone_spec(config: ConfigReader, architecture: str, **fields: Any) -> DecoderSpec:
    """The fields that EXAONE 4 and its models with experts have in common."""
    null = "sliding_window" in config.values and config.values["sliding_window"] is None
    config.ignore("sliding_window_pattern")  # layer_types says it
    kinds = layer_types(config) or _pattern(config, null)
    return decoder_spec(
        config,
        architecture,
        default_context=2048,
        default_eps=1e-5,
        qk_norm=True,
        windows=windows_of(config, kinds, None if null else 4096),
        layer_ropes=tuple(-1 if kind == FULL and not null else 0 for kind in kinds),
        **fields,
    )


def _pattern(config: ConfigReader, null: bool) -> list[str]:
    pattern, layers = config.values.get("sliding_window_pattern"), num_layers(config)
    if null:
        return [FULL] * layers
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        config.ignore("sliding_window_pattern")
        kinds = [SLIDING if pattern[i % len(pattern)] == "L" else FULL for i in range(layers)]
        return [*kinds[:-1], FULL]
    every = config.integer("sliding_window_pattern", 1, MAX_POSITIONS, 4)
    return [SLIDING if (layer + 1) % every else FULL for layer in range(layers)]
