"""Mellum 2: Qwen 3 MoE where some layers have a window and a rotation of their own."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_WIDTH,
    decoder_spec,
    head_size,
    layer_types,
    num_layers,
)
from onward.load.architectures.layer_kinds import (
    FULL,
    SLIDING,
    ropes_by_kind,
    sparse_by_kind,
    windows_of,
)
from onward.load.architectures.names import names
from onward.load.architectures.rope import MAX_POSITIONS
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names(predicts_further=True)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The layers that predict further tokens (mtp) are not read."""
    config.spelled(num_experts="num_local_experts")
    config.ignore("router_aux_loss_coef", "num_nextn_predict_layers", "num_mtp_layers")
    config.ignore("mtp_layer_types", "mtp_mlp_layer_types")
    kinds = layer_types(config) or [FULL] * num_layers(config)
    head_dim = head_size(config, 128)
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "mellum",
        default_context=131072,
        default_kv_heads=4,
        default_head_dim=128,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=windows_of(config, kinds, 1024),
        experts=ExpertsSpec(
            count=config.integer("num_experts", 1, 4096, 64),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 8),
            intermediate_size=config.integer("moe_intermediate_size", 1, MAX_WIDTH, 896),
            normalise=config.flag("norm_topk_prob", True),
        ),
        layer_experts=sparse_by_kind(config, 0),
        **ropes_by_kind(
            config,
            kinds,
            head_dims={FULL: head_dim, SLIDING: head_dim},
            max_positions=config.integer("max_position_embeddings", 1, MAX_POSITIONS, 131072),
            thetas={FULL: 5e5, SLIDING: 1e4},
        ),
    )
