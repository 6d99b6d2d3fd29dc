"""Aria: its text model is Llama with experts, stored transposed, and experts that always run."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import MAX_WIDTH, decoder_spec, num_layers
from onward.load.architectures.names import Stored, fused, names
from onward.spec import DecoderSpec, ExpertsSpec

_OLD = fused("mlp.experts.fc1", "expert_gate", "expert_up", transposed=True)
_NEW = fused("mlp.experts.gate_up_proj", "expert_gate", "expert_up", transposed=True, weight="")
TENSORS = names(
    router="mlp.router",
    expert_gate=(_OLD, _NEW),
    expert_up=(_OLD, _NEW),
    expert_down=(
        Stored("mlp.experts.fc2", transposed=True),
        Stored("mlp.experts.down_proj", weight="", transposed=True),
    ),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The weights of the chosen experts are a softmax of their logits alone."""
    config.ignore("moe_z_loss_coeff", "moe_aux_loss_coeff")  # of training
    if config.flag("mlp_bias", False):
        raise config.error("mlp_bias", "is true: this version has no bias for shared experts")
    attention_bias = config.flag("attention_bias", False)
    size = config.spelled(intermediate_size="moe_intermediate_size").integer(
        "intermediate_size", 1, MAX_WIDTH
    )
    return decoder_spec(
        config,
        "aria_text",
        default_context=2048,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        experts=ExpertsSpec(
            count=config.integer("moe_num_experts", 1, 4096, 8),
            chosen=config.integer("moe_topk", 1, 4096, 2),
            intermediate_size=size,
            normalise=True,
            shared_size=size * config.integer("moe_num_shared_experts", 0, 4096, 2),
        ),
        layer_experts=(1,) * num_layers(config),
    )
