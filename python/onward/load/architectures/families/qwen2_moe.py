"""Qwen 2 MoE: Qwen 2 with experts, one of which always runs behind a gate."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_WIDTH,
    decoder_spec,
    num_layers,
    windows_by_layer,
)
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names(
    shared_gate="mlp.shared_expert.gate_proj",
    shared_up="mlp.shared_expert.up_proj",
    shared_down="mlp.shared_expert.down_proj",
)
GGUF = gguf(
    TENSORS,
    required={
        "expert_count": "num_experts",
        "expert_used_count": "num_experts_per_tok",
        "expert_feed_forward_length": "moe_intermediate_size",
        "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    },
    fixed={"norm_topk_prob": False},
    from_tensors={"qkv_bias": QKV_BIAS},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Without ``layer_types``, every other of the first ``max_window_layers`` layers has a
    window."""
    layers = num_layers(config)
    first = config.integer("max_window_layers", 0, 1 << 62, 28)
    slides = [layer % 2 == 0 and layer < first for layer in range(layers)]
    return decoder_spec(
        config,
        "qwen2_moe",
        default_context=32768,
        default_kv_heads=16,
        qkv_bias=config.flag("qkv_bias", True),
        windows=windows_by_layer(config, default_window=4096, slides=slides),
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, 60),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 4),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, 1408),
            normalise=config.flag("norm_topk_prob", False),
            shared_size=config.integer("shared_expert_intermediate_size", 1, MAX_WIDTH, 5632),
            shared_gate=True,
        ),
        layer_experts=sparse_layers(config, layers),
    )


def sparse_layers(
    config: ConfigReader, layers: int, default_dense: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """1 for each layer that has experts: every ``decoder_sparse_step``-th one, without the
    ``mlp_only_layers``, or ``default_dense`` where the field is absent."""
    config.ignore("router_aux_loss_coef")  # of training
    step = config.integer("decoder_sparse_step", 1, 1 << 20, 1)
    dense = config.integers("mlp_only_layers", 0, 1 << 20)
    if config.values.get("mlp_only_layers") is None:
        dense = list(default_dense)
    return tuple(int((layer + 1) % step == 0 and layer not in dense) for layer in range(layers))
