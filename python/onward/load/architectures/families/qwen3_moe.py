"""Qwen 3 MoE: Qwen 3 with experts."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_WIDTH,
    decoder_spec,
    num_layers,
    window_everywhere,
)
from onward.load.architectures.families.qwen2_moe import sparse_layers
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names()
GGUF = gguf(
    TENSORS,
    required={
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
    },
    fixed={"norm_topk_prob": True},
    from_tensors={"attention_bias": QKV_BIAS},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """A window, where it is on, is of all layers."""
    config.ignore("max_window_layers")
    windows = window_everywhere(config, 4096)
    used = config.flag("use_sliding_window", False)
    return qwen3_moe_spec(config, "qwen3_moe", windows=windows if used else ())


def qwen3_moe_spec(
    config: ConfigReader,
    architecture: str,
    *,
    windows: tuple[int, ...] = (),
    context: int = 32768,
    kv_heads: int = 4,
    theta: float = 1e4,
    counts: tuple[int, int, int] = (128, 8, 768),
    normalise: bool = False,
    tied: bool = False,
) -> DecoderSpec:
    """``counts``: experts, chosen experts and their intermediate size, where they are absent."""
    config.spelled(num_experts="num_local_experts")
    layers = num_layers(config)
    bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        architecture,
        default_context=context,
        default_kv_heads=kv_heads,
        default_theta=theta,
        default_tied=tied,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=True,
        windows=windows,
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, counts[0]),
            chosen=config.integer("num_experts_per_tok", 1, 4096, counts[1]),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, counts[2]),
            normalise=config.flag("norm_topk_prob", normalise),
        ),
        layer_experts=sparse_layers(config, layers),
    )
