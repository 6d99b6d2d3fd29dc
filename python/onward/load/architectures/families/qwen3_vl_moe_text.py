"""Qwen 3 VL MoE: its text model is Qwen 3 MoE, with the experts of a layer in one tensor."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.qwen3_moe import qwen3_moe_spec
from onward.load.architectures.names import Stored, fused, names
from onward.spec import DecoderSpec

# Published files have the matrices of experts transposed; the reference library saves them upright.
# It takes a square matrix as upright.
_BOTH_WAYS = tuple(
    fused("mlp.experts.gate_up_proj", "expert_gate", "expert_up", transposed=turned, weight="")
    for turned in (False, True)
)
TENSORS = names(
    expert_gate=_BOTH_WAYS,
    expert_up=_BOTH_WAYS,
    expert_down=tuple(
        Stored("mlp.experts.down_proj", weight="", transposed=turned) for turned in (False, True)
    ),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """The weights of the chosen experts are divided by their sum."""
    return qwen3_moe_spec(
        config,
        "qwen3_vl_moe_text",
        context=128000,
        kv_heads=16,
        theta=500000.0,
        counts=(60, 4, 1408),
        normalise=True,
        tied=True,
    )
