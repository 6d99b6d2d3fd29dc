"""HyperCLOVA X: Granite with norms of the outputs of the blocks, too."""

from __future__ import annotations

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.families.granite import granite_spec
from onward.load.architectures.names import names
from onward.spec import DecoderSpec, NormSpec

TENSORS = names(attention_post_norm="post_norm1", mlp_post_norm="post_norm2")


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``logits_scaling`` multiplies the logits. ``attention_multiplier`` null means
    1 / sqrt(head_dim)."""
    return granite_spec(
        config,
        "hyperclovax",
        default_attention=0.0,
        divides_logits=False,
        mlp_bias=config.flag("mlp_bias", False),
        norms=NormSpec(after=config.flag("use_post_norm", True)),
    )
