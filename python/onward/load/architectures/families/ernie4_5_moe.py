"""ERNIE 4.5 MoE: ERNIE 4.5 with experts that a corrected softmax router chooses."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.names import Stored, names
from onward.spec import DecoderSpec, ExpertsSpec

TENSORS = names(
    predicts_further=True,
    rotation="pairs",
    router_correction=(
        Stored("mlp.moe_statics.e_score_correction_bias", weight="", one_row=True),
        Stored("mlp.gate.moe_statics.e_score_correction_bias", weight="", one_row=True),
    ),
)

_OF_TRAINING = (
    *("router_aux_loss_coef", "moe_aux_loss_lambda", "moe_z_loss_lambda", "moe_group"),
    *("moe_orthogonal_loss_lambda", "moe_group_orthogonal_loss", "moe_use_aux_free"),
    *("moe_capacity", "moe_multimodal_dispatch_use_allgather", "fuse_gate_detach_matmul"),
    *("num_nextn_predict_layers", "weight_share_add_bias"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Experts are in every ``moe_layer_interval``-th layer from the first to the last of them."""
    config.number("moe_norm_min", 0, 1e-6, default=0.0)  # of sums, which are never so small
    config.ignore(*_OF_TRAINING)
    config.text("moe_gate", ("topk",), "topk")
    config.text("moe_gate_act", ("softmax",), "softmax")
    bias = config.flag("use_bias", False)
    layers = num_layers(config)
    first = config.integer("moe_layer_start_index", 0, 1 << 20, 1)
    last = config.integer("moe_layer_end_index", -1, 1 << 20, -1)
    last = layers - 1 if last == -1 else last
    every = config.integer("moe_layer_interval", 1, 1 << 20, 1)
    shared = config.integer("moe_num_shared_experts", 0, 4096, 2)
    if bias and shared:
        raise config.error("use_bias", "is true, but this version has no bias for shared experts")
    size = config.integer("moe_intermediate_size", 1, MAX_WIDTH, 1536)
    return decoder_spec(
        config,
        "ernie4_5_moe",
        default_context=131072,
        default_kv_heads=4,
        default_theta=500000.0,
        default_tied=True,
        default_eps=1e-5,
        qkv_bias=bias,
        output_bias=bias,
        mlp_bias=bias,
        head_bias=bias,
        experts=ExpertsSpec(
            count=config.integer("moe_num_experts", 1, 4096, 64),
            chosen=config.integer("moe_k", 1, 4096, 6),
            intermediate_size=size,
            correction=True,
            normalise=True,
            shared_size=size * shared,
        ),
        layer_experts=tuple(
            int((layer + 1) % every == 0 and first <= layer <= last) for layer in range(layers)
        ),
    )
