"""Flint: sigmoid experts, sink logits, and rotation in layers with a window alone."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_WIDTH,
    decoder_spec,
    layer_types,
    num_layers,
)
from onward.load.architectures.families.qwen2_moe import sparse_layers
from onward.load.architectures.layer_kinds import FULL, SLIDING, windows_of
from onward.load.architectures.names import Stored, names
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec

TENSORS = names(
    sink_logits=(
        Stored("self_attn.softmax_offset", weight=""),
        Stored("self_attn.sinks", weight=""),
    ),
    shared_gate="mlp.shared_expert.gate_proj",
    shared_up="mlp.shared_expert.up_proj",
    shared_down="mlp.shared_expert.down_proj",
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The first two layers are dense, where ``mlp_only_layers`` is absent."""
    kinds = _kinds(config)
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "flint",
        default_context=262144,
        default_kv_heads=4,
        default_head_dim=128,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=windows_of(config, kinds, 513),
        layer_ropes=tuple(0 if kind == SLIDING else -1 for kind in kinds),
        attention=AttentionSpec(sink_logits=True),
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, 256),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 6),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, 512),
            scores="sigmoid",
            normalise=config.flag("norm_topk_prob", True),
            shared_size=config.integer("shared_expert_intermediate_size", 1, MAX_WIDTH, 1024),
        ),
        layer_experts=sparse_layers(config, num_layers(config), default_dense=(0, 1)),
    )


def _kinds(config: ConfigReader) -> list[str]:
    """``layer_types``, or else the first two, every fourth and the last layer see all keys."""
    kinds = layer_types(config)
    if kinds is not None:
        return kinds
    last = num_layers(config) - 1
    return [
        FULL if layer < 2 or layer % 4 == 1 or layer == last else SLIDING
        for layer in range(last + 1)
    ]
