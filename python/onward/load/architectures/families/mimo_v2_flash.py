"""MiMo-V2-Flash: layers with a window have sink logits and twice the kv heads, values are scaled,
and the experts are chosen as in DeepSeek-V3, without groups."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_HEAD_DIM,
    MAX_HEADS,
    decoder_spec,
    head_size,
    layer_types,
    num_layers,
)
from onward.load.architectures.grouped_experts import grouped_experts
from onward.load.architectures.layer_kinds import (
    FULL,
    SLIDING,
    ropes_by_kind,
    sparse_by_kind,
    windows_of,
)
from onward.load.architectures.names import Stored, names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import AttentionSpec, DecoderSpec

_NO_SINK = -1e30  # a logit without weight
TENSORS = names(
    sink_logits=(
        Stored("self_attn.sinks", weight=""),
        Stored("self_attn.attention_sink_bias", weight=""),
        Stored(constant=_NO_SINK),
    ),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Layers with a window have twice the kv heads."""
    layers = num_layers(config)
    kinds = layer_types(config) or [
        FULL if layer == 0 or (layer + 1) % 6 == 0 else SLIDING for layer in range(layers)
    ]
    head_dim = head_size(config, 192)
    kv_heads = config.integer("num_key_value_heads", 1, MAX_HEADS, 4)
    section = {"rope_type": "default", "partial_rotary_factor": 0.334}
    return decoder_spec(
        config,
        "mimo_v2_flash",
        default_context=131072,
        default_head_dim=192,
        default_eps=1e-5,
        qkv_bias=config.flag("attention_bias", False),
        value_dim=config.integer("v_head_dim", 1, MAX_HEAD_DIM, 128),
        windows=windows_of(config, kinds, 129),
        layer_kv_heads=tuple(2 * kv_heads if kind == SLIDING else 0 for kind in kinds),
        attention=AttentionSpec(
            sink_logits=True,
            value_scale=config.number("attention_value_scale", 1e-6, 1e6, default=None)
            or (1.0 if "attention_value_scale" in config.values else 0.707),
        ),
        experts=grouped_experts(config, count=256, chosen=8, size=2048, shared=0),
        layer_experts=sparse_by_kind(config, dense=1),
        **ropes_by_kind(
            config,
            kinds,
            head_dims={FULL: head_dim, SLIDING: head_dim},
            max_positions=config.integer("max_position_embeddings", 1, MAX_POSITIONS, 131072),
            thetas={FULL: 5e6, SLIDING: 1e4},
            default_sections={FULL: {**section, "rope_theta": 5e6}, SLIDING: section},
        ),
    )
