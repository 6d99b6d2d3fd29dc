"""Reads which layers see all keys and which a window, and a rotary table for each kind of layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import layer_types, num_layers
from onward.load.architectures.rope import (
    MAX_CONTEXT,
    MAX_POSITIONS,
    Rope,
    read_rope,
    rope_section,
)

FULL, SLIDING = "full_attention", "sliding_attention"


def layer_kinds(
    config: ConfigReader, every: int, pattern_field: str = "sliding_window_pattern"
) -> list[str]:
    """The attention of each layer: ``layer_types``, or else every ``every``-th layer is full.

    ``pattern_field`` is an older spelling of ``every``.
    """
    every = config.integer(pattern_field, 1, MAX_POSITIONS, every)
    kinds = layer_types(config)
    if kinds is not None:
        return kinds
    return [SLIDING if (layer + 1) % every else FULL for layer in range(num_layers(config))]


def windows_of(config: ConfigReader, kinds: Sequence[str], default: int | None) -> tuple[int, ...]:
    """The window of each layer; 0 for all keys. ``default`` is the window where it is absent."""
    window = config.integer("sliding_window", 1, MAX_POSITIONS, default)
    if window is None and SLIDING in kinds:
        raise config.wrong("sliding_window", "an integer, as layers have a window")
    return tuple(min(window or 0, MAX_CONTEXT) if kind == SLIDING else 0 for kind in kinds)


def sparse_by_kind(config: ConfigReader, dense: int) -> tuple[int, ...]:
    """1 for each layer that ``mlp_layer_types`` calls sparse: it has experts. Where the field is
    absent, all layers but the first ``dense`` ones are sparse."""
    layers = num_layers(config)
    kinds = config.texts("mlp_layer_types", ("dense", "sparse"), layers)
    if kinds is None:
        return tuple(int(layer >= dense) for layer in range(layers))
    return tuple(int(kind == "sparse") for kind in kinds)


def ropes_by_kind(
    config: ConfigReader,
    kinds: Sequence[str],
    *,
    head_dims: Mapping[str, int],
    max_positions: int,
    thetas: Mapping[str, float],
    local_theta_field: str = "rope_local_base_freq",
    default_sections: Mapping[str, Mapping[str, object]] | None = None,
) -> dict[str, Any]:
    """The fields ``rope``, ``other_ropes``, ``layer_ropes`` and ``max_context`` of the spec.

    The config has a section for each kind of layer in ``rope_parameters``. In the older spelling
    its fields are of full attention, and ``local_theta_field`` is the base of layers with a window.
    A section that is null means that the layers do not rotate.

    Args:
        kinds: of each layer.
        head_dims: by kind. The tables of the kind of the first entry become ``rope``.
        thetas: the base of a kind, where the config has none.
        default_sections: the sections, where the config has none at all.
    """
    section = rope_section(config)
    if section is None and default_sections is not None:
        section = ConfigReader(default_sections, config.where, "rope_parameters.")
    nested = section is not None and any(kind in section.values for kind in head_dims)
    ropes: dict[str, Rope | None] = {}
    for kind, head_dim in head_dims.items():
        own: ConfigReader = config
        if nested and section is not None:
            section.ignore(kind)
            if kind in section.values and section.values[kind] is None:
                ropes[kind] = None
                continue
            values = {"rope_parameters": section.values.get(kind) or {}}
            own = ConfigReader(values, config.where, f"rope_parameters.{kind}: ")
        elif kind == SLIDING:
            theta = config.number(local_theta_field, 1, 1e30, default=thetas[kind])
            own = ConfigReader({"rope_theta": theta}, config.where)
        ropes[kind] = read_rope(own, head_dim, max_positions, thetas[kind], 1.0)
    if nested and section is not None:
        section.refuse_the_rest(strict=True)
        config.ignore("rope_theta", local_theta_field)
    tables = {kind: rope for kind, rope in ropes.items() if rope is not None}
    if not tables:
        raise config.error("rope_parameters", "has no rotation for any kind of layer")
    order = list(tables)
    return {
        "rope": tables[order[0]].spec,
        "other_ropes": tuple(tables[kind].spec for kind in order[1:]),
        "layer_ropes": tuple(order.index(kind) if kind in tables else -1 for kind in kinds),
        "max_context": min(rope.max_context for rope in tables.values()),
    }
