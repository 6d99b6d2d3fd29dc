"""GLM 4 and Z1 of 2025 (9B, 32B): glm with norms of the outputs of the blocks, too."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.glm import glm_spec
from onward.load.architectures.gguf.family import QKV_BIAS, gguf
from onward.load.architectures.names import fused, names
from onward.spec import DecoderSpec, NormSpec

TENSORS = names(
    rotation="pairs",
    gate_up=fused("mlp.gate_up_proj", "gate", "up"),
    attention_post_norm="post_self_attn_layernorm",
    mlp_post_norm="post_mlp_layernorm",
)
GGUF = gguf(
    TENSORS,
    from_tensors={"attention_bias": QKV_BIAS},
    partial=True,
    gate_up=fused("ffn_up", "gate", "up"),
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``attention_bias`` is of q, k and v."""
    return glm_spec(config, "glm4", norms=NormSpec(after=True))
