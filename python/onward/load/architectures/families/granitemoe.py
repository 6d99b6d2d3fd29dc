"""Granite 3 MoE: Granite with experts in every layer."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, num_layers
from onward.load.architectures.families.granite import MULTIPLIERS, granite_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import Stored, fused, names
from onward.spec import DecoderSpec, ExpertsSpec

_FUSED = fused("block_sparse_moe.input_linear", "expert_gate", "expert_up")
_OTHER = fused("block_sparse_moe.experts.gate_up_proj", "expert_gate", "expert_up", weight="")
_SHARED = fused("shared_mlp.input_linear", "shared_gate", "shared_up")
TENSORS = names(
    router=("block_sparse_moe.router.layer", "block_sparse_moe.router"),
    expert_gate=(_FUSED, _OTHER),
    expert_up=(_FUSED, _OTHER),
    expert_down=(
        "block_sparse_moe.output_linear",
        Stored("block_sparse_moe.experts.down_proj", weight=""),
    ),
    shared_gate=_SHARED,
    shared_down="shared_mlp.output_linear",
)
REQUIRED = {
    "logit_scale": "logits_scaling",
    "attention.scale": "attention_multiplier",
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
}
GGUF = gguf(
    TENSORS,
    interleaved=True,
    required=REQUIRED,
    optional=MULTIPLIERS,
    same={"rope.scaling.finetuned": True},
    from_tensors={"attention_bias": QKV_BIAS},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """Without shared experts."""
    return granitemoe_spec(config, "granitemoe", 0)


def granitemoe_spec(
    config: ConfigReader, architecture: str, shared_size: int, **fields: Any
) -> DecoderSpec:
    """The weights of the chosen experts are a softmax of their logits alone."""
    config.ignore("router_aux_loss_coef")  # of training
    return granite_spec(
        config,
        architecture,
        experts=ExpertsSpec(
            count=config.integer("num_local_experts", 1, 4096, 8),
            chosen=config.integer("num_experts_per_tok", 1, 4096, 2),
            intermediate_size=config.integer("intermediate_size", 1, MAX_WIDTH),
            normalise=True,
            shared_size=shared_size,
        ),
        layer_experts=(1,) * num_layers(config),
        **fields,
    )
