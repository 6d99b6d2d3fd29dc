"""Granite 3 (dense): Llama with multipliers for the embedding, attention, residuals and logits."""

from __future__ import annotations

from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import decoder_spec
from onward.load.architectures.gguf.family import MLP_BIAS, QKV_BIAS, gguf
from onward.load.architectures.names import names
from onward.spec import AttentionSpec, DecoderSpec

TENSORS = names()
_MULTIPLIER = (1e-6, 1e6)
MULTIPLIERS = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
}
GGUF = gguf(
    TENSORS,
    interleaved=True,
    required={"logit_scale": "logits_scaling", "attention.scale": "attention_multiplier"},
    optional=MULTIPLIERS,
    same={"rope.scaling.finetuned": True},  # false: without rotation
    from_tensors={"attention_bias": QKV_BIAS, "mlp_bias": MLP_BIAS},
)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``mlp_bias`` covers all matrices of the MLP."""
    return granite_spec(config, "granite", mlp_bias=config.flag("mlp_bias", False))


def granite_spec(
    config: ConfigReader,
    architecture: str,
    *,
    default_attention: float = 1.0,
    sink_logits: bool = False,
    divides_logits: bool = True,
    default_context: int = 2048,
    **fields: Any,
) -> DecoderSpec:
    """The spec of a family with the multipliers of Granite.

    Args:
        default_attention: attention_multiplier, where it is absent; 0: 1 / sqrt(head_dim).
        sink_logits: of attention.
        divides_logits: logits_scaling divides the logits; otherwise it multiplies them.
        default_context, fields: as of ``decoder_spec``.
    """
    logits = config.number("logits_scaling", *_MULTIPLIER, default=1.0)
    attention_bias = config.flag("attention_bias", False)
    return decoder_spec(
        config,
        architecture,
        default_context=default_context,
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        attention=AttentionSpec(
            scale=config.number("attention_multiplier", *_MULTIPLIER, default=default_attention),
            sink_logits=sink_logits,
        ),
        embedding_scale=config.number("embedding_multiplier", *_MULTIPLIER, default=1.0),
        residual_scale=config.number("residual_multiplier", *_MULTIPLIER, default=1.0),
        logit_scale=1 / logits if divides_logits else logits,
        **fields,
    )
