"""Phi 3.5 MoE: LayerNorm, and experts that a sparse mixer chooses."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_WIDTH,
    decoder_spec,
    num_layers,
    window_everywhere,
)
from onward.load.architectures.names import Stored, fused, names
from onward.spec import DecoderSpec, ExpertsSpec, NormSpec

_FUSED = fused("mlp.experts.gate_up_proj", "expert_gate", "expert_up", weight="")
TENSORS = names(
    router=("block_sparse_moe.gate", "mlp.router"),
    expert_gate=("block_sparse_moe.experts.{e}.w1", _FUSED),
    expert_up=("block_sparse_moe.experts.{e}.w3", _FUSED),
    expert_down=("block_sparse_moe.experts.{e}.w2", Stored("mlp.experts.down_proj", weight="")),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``router_jitter_noise`` is the mixer's bound."""
    config.ignore("router_aux_loss_coef", "input_jitter_noise")  # of training
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        "phimoe",
        default_context=131072,
        default_theta=1e6,
        default_eps=1e-5,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        head_bias=config.flag("lm_head_bias", False),
        norms=NormSpec("layer", bias=True),
        windows=window_everywhere(config),
        experts=ExpertsSpec(
            count=config.integer("num_local_experts", 1, 4096, 16),
            chosen=config.integer("num_experts_per_tok", 2, 2, 2),
            intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH),
            scores="sparse_mixer",
            jitter=config.number("router_jitter_noise", 0, 1, default=0.01),
        ),
        layer_experts=(1,) * num_layers(config),
    )
