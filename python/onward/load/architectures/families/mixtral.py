"""Mixtral: Mistral with experts in every layer, two of which run for each token."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import (
    MAX_WIDTH,
    decoder_spec,
    num_layers,
    window_everywhere,
)
from onward.load.architectures.gguf.family import gguf
from onward.load.architectures.names import Stored, fused, names
from onward.spec import DecoderSpec, ExpertsSpec

_FUSED = fused("mlp.experts.gate_up_proj", "expert_gate", "expert_up", weight="")
ROUTER = ("block_sparse_moe.gate", "mlp.gate")
GATE = ("block_sparse_moe.experts.{e}.w1", _FUSED)
UP = ("block_sparse_moe.experts.{e}.w3", _FUSED)
DOWN = ("block_sparse_moe.experts.{e}.w2", Stored("mlp.experts.down_proj", weight=""))
TENSORS = names(router=ROUTER, expert_gate=GATE, expert_up=UP, expert_down=DOWN)
GGUF = gguf(
    TENSORS,
    interleaved=True,
    required={"expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    optional={"attention.sliding_window": "sliding_window"},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The weights of the chosen experts are a softmax of their logits alone."""
    config.ignore("router_aux_loss_coef", "router_jitter_noise")  # of training
    layers = num_layers(config)
    experts = ExpertsSpec(
        count=config.integer("num_local_experts", 1, 4096, 8),
        chosen=config.integer("num_experts_per_tok", 1, 4096, 2),
        intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH),
        normalise=True,
    )
    return decoder_spec(
        config,
        "mixtral",
        default_context=131072,
        default_eps=1e-5,
        default_theta=1e6,
        windows=window_everywhere(config),
        experts=experts,
        layer_experts=(1,) * layers,
    )
