"""GPT-2: learned positions, layer norms, a plain MLP, and matrices stored as (inputs, outputs)."""

from __future__ import annotations

import dataclasses
from typing import Any

from onward.load.architectures.config_reader import ConfigReader
from onward.load.architectures.decoder_plan import GPT2_FIELDS, activation, decoder_spec
from onward.load.architectures.gguf.family import gguf, layer_norm
from onward.load.architectures.names import fused, names, transposed
from onward.load.architectures.rope import MAX_CONTEXT
from onward.spec import AttentionSpec, DecoderSpec, MlpSpec, NormSpec

GPT2_NAMES: dict[str, Any] = {
    "model": ("transformer.", ""),
    "layer": "h.{i}.",
    "embed": "wte",
    "positions": "wpe",
    "norm": "ln_f",
    "attention_norm": "ln_1",
    "mlp_norm": "ln_2",
}
"""Names that the families after GPT-2 have, too."""
TENSORS = names(
    **GPT2_NAMES,
    qkv=fused("attn.c_attn", "q", "k", "v", transposed=True),
    o=transposed("attn.c_proj"),
    up=transposed("mlp.c_fc"),
    down=transposed("mlp.c_proj"),
    ignored=(".attn.bias", ".attn.masked_bias"),
)
GGUF = gguf(TENSORS, eps=layer_norm("layer_norm_epsilon"), rotates=False)


def read_spec(config: ConfigReader) -> DecoderSpec:
    """``n_inner`` null means 4 * n_embd."""
    config.spelled(**GPT2_FIELDS)
    config.ignore("reorder_and_upcast_attn")  # the order of the steps, in float32 anyway
    return decoder_spec(
        config,
        "gpt2",
        default_context=1024,
        default_eps=1e-5,
        eps_field="layer_norm_epsilon",
        default_inner=4,
        default_tied=True,
        rotates=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        mlp=MlpSpec(activation(config, "gelu_new"), gated=False),
        norms=NormSpec("layer", bias=True),
        attention=dataclasses.replace(
            scaled_or_not(config),
            inverse_layer_scale=config.flag("scale_attn_by_inverse_layer_idx", False),
        ),
        learned_positions=config.integer("max_position_embeddings", 1, MAX_CONTEXT, 1024),
    )


def scaled_or_not(config: ConfigReader) -> AttentionSpec:
    """``scale_attn_weights`` false means that scores are not divided by sqrt(head_dim)."""
    return AttentionSpec(scale=0.0 if config.flag("scale_attn_weights", True) else 1.0)
