"""MiMo-V2-Flash: layers with a window have sink logits and other kv heads, values are scaled, and
experts are those of DeepSeek-V3 without groups of them."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_HEADS,
    MAX_WIDTH,
    decoder_spec,
    layer_types,
    num_layers,
)
from onward.load.architectures.layer_kinds import FULL, SLIDING, ropes_by_kind, windows_of
from onward.load.architectures.names import Stored, names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec

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
    mlp_kinds = config.texts("mlp_layer_types", ("dense", "sparse"), layers)
    mlp_kinds = mlp_kinds or ["dense"] + ["sparse"] * (layers - 1)
    head_dim = config.integer("head_dim", 2, 512, 192)
    kv_heads = config.integer("num_key_value_heads", 1, MAX_HEADS, 4)
    section = {"rope_type": "default", "partial_rotary_factor": 0.334}
    return decoder_spec(
        config,
        "mimo_v2_flash",
        default_context=131072,
        default_head_dim=192,
        default_eps=1e-5,
        qkv_bias=config.flag("attention_bias", False),
        value_dim=config.integer("v_head_dim", 1, 512, 128),
        windows=windows_of(config, kinds, 129),
        layer_kv_heads=tuple(2 * kv_heads if kind == SLIDING else 0 for kind in kinds),
        attention=AttentionSpec(
            sink_logits=True,
            value_scale=config.number("attention_value_scale", 1e-6, 1e6, default=None)
            or (1.0 if "attention_value_scale" in config.values else 0.707),
        ),
        experts=ExpertsSpec(
            count=config.integer("n_routed_experts", 1, 4096, 256),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 8),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, 2048),
            scores="sigmoid",
            correction=True,
            normalise=config.flag("norm_topk_prob", True),
            scale=config.number("routed_scaling_factor", 0, 1e6, default=1.0),
            groups=config.integer("n_group", 1, 4096, 1),
            chosen_groups=config.integer("topk_group", 1, 4096, 1),
            group_score="top2",
        ),
        layer_experts=tuple(int(kind == "sparse") for kind in mlp_kinds),
        **ropes_by_kind(
            config,
            kinds,
            head_dims={FULL: head_dim, SLIDING: head_dim},
            max_positions=config.integer("max_position_embeddings", 1, MAX_POSITIONS, 131072),
            thetas={FULL: 5e6, SLIDING: 1e4},
            default_sections={FULL: {**section, "rope_theta": 5e6}, SLIDING: section},
        ),
    )
