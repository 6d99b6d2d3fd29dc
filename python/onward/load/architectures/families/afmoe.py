"""AFMoE (Trinity): gated attention, norms before and after the blocks, rotation
in layers with a window alone, and experts that a sigmoid router with a correction chooses."""

from __future__ import annotations

import math

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_LAYERS, MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.layer_kinds import SLIDING, layer_kinds, windows_of
from onward.load.architectures.names import Stored, names
from onward.spec import AttentionSpec, DecoderSpec, ExpertsSpec, NormSpec

TENSORS = names(
    attention_post_norm="post_attention_layernorm",
    mlp_norm="pre_mlp_layernorm",
    mlp_post_norm="post_mlp_layernorm",
    router="mlp.router.gate",
    router_correction=Stored("mlp.expert_bias", weight=""),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``mup_enabled`` multiplies the embedding by sqrt(hidden_size)."""
    kinds = layer_kinds(config, 4, "global_attn_every_n_layers")
    layers = num_layers(config)
    dense = config.integer("num_dense_layers", 0, MAX_LAYERS, 1)
    size = config.integer("moe_intermediate_size", 1, MAX_WIDTH, 1408)
    config.ignore("load_balance_coeff")  # of training
    config.text("score_func", ("sigmoid",), "sigmoid")
    for groups in ("n_group", "topk_group", "num_expert_groups", "num_limited_groups"):
        config.integer(groups, 1, 1, 1)
    if not config.flag("route_norm", True):
        raise config.wrong("route_norm", "true in this family")
    attention_bias = config.flag("attention_bias", False)
    hidden_size = config.integer("hidden_size", 1, MAX_WIDTH)
    return decoder_spec(
        config,
        "afmoe",
        default_context=16384,
        default_head_dim=128,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=windows_of(config, kinds, 1024),
        layer_ropes=tuple(0 if kind == SLIDING else -1 for kind in kinds),
        norms=NormSpec(after=True),
        attention=AttentionSpec(output_gate="values"),
        embedding_scale=math.sqrt(hidden_size) if config.flag("mup_enabled", False) else 1.0,
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, 64),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 6),
            intermediate_size=size,
            scores="sigmoid",
            correction=True,
            normalise=True,
            scale=config.number("route_scale", 0, 1e6, default=1.0),
            shared_size=size * config.integer("num_shared_experts", 0, 4096, 2),
        ),
        layer_experts=tuple(int(layer >= dense) for layer in range(layers)),
    )
